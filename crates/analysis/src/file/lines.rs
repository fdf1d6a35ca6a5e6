// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where in a file of tasks a refusal belongs that came after the file was read. The tests of the
//! policies know tasks by their names, and no lines.

use super::entry::{line_at, line_of_key};
use super::{Document, InterruptEntry, rows};
use crate::verdict::{About, Inapplicable};
use std::collections::BTreeMap;
use toml::Spanned;

/// Where the entries of a file begin: bytes of TOML, lines of CSV, both from 0.
#[derive(Debug, Default)]
pub struct Places {
    tasks: Vec<usize>,
    tasks_by_name: BTreeMap<String, usize>,
    chains: BTreeMap<String, usize>,
    /// Names may occur twice.
    interrupts: Vec<(String, usize)>,
    room: Option<usize>,
    is_csv: bool,
}

impl Places {
    /// Reads a text again that was a task set.
    pub fn in_toml(text: &str) -> Self {
        let file: Document = toml::from_str(text).unwrap_or_default();
        let room = file.room.as_ref().map(start);
        let tasks: Vec<usize> = file.task.iter().map(start).collect();
        let names = file.task.iter().map(|task| task.as_ref().name.clone());
        let chains = file.chain.iter().map(|chain| (chain.as_ref().name.clone(), start(chain)));
        let interrupt =
            |entry: &Spanned<InterruptEntry>| (entry.as_ref().name.clone(), start(entry));
        Self {
            tasks_by_name: names.zip(tasks.iter().copied()).collect(),
            tasks,
            chains: chains.collect(),
            interrupts: file.interrupt.iter().map(interrupt).collect(),
            room,
            is_csv: false,
        }
    }

    /// The same of a CSV, which has tasks only.
    pub fn in_csv(text: &str) -> Self {
        let rows = rows(text).unwrap_or_default();
        Self {
            tasks: rows.iter().map(|(line, _)| *line).collect(),
            tasks_by_name: rows.into_iter().map(|(line, task)| (task.name, line)).collect(),
            is_csv: true,
            ..Self::default()
        }
    }

    /// The line of this text, from 1, of the key that a refusal is about, else of its entry.
    /// `None`: it is about the whole file.
    pub fn line_of(&self, text: &str, refusal: &Inapplicable) -> Option<usize> {
        let (about, key) = refusal.about();
        let start = match &about {
            About::File => None,
            About::Task(name) => self.tasks_by_name.get(name).copied(),
            About::TaskAt(number) => self.tasks.get(*number).copied(),
            About::Chain(name) => self.chains.get(name).copied(),
            About::Interrupt(name) => {
                let named = self.interrupts.iter().filter(|(of, _)| of == name);
                let starts: Vec<usize> = named.map(|(_, start)| *start).collect();
                let with_key = |start: &&usize| line_of_key(text, **start, key).is_some();
                starts.iter().find(with_key).or(starts.first()).copied()
            }
            About::Room => self.room,
        }?;
        Some(match self.is_csv {
            true => start + 1,
            false => line_of_key(text, start, key).unwrap_or_else(|| line_at(text, start)),
        })
    }
}

fn start<E>(entry: &Spanned<E>) -> usize {
    entry.span().start
}
