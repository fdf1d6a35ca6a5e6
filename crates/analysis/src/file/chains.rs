// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `[[chain]]` tables of a task file: those whose tasks release each other, and those whose
//! tasks sample.

use super::entry::{FileError, above_0, bad, in_line, named, shown};
use crate::chain::{Chain, Order};
use crate::sampled::{self, SampledChain};
use crate::task::Task;
use crate::time::TimeBase;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Each task releases the next.
    #[default]
    Triggered,
    /// Each task has its own period and reads what the one before wrote last.
    Sampled,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChainEntry {
    pub(super) name: String,
    #[serde(default)]
    kind: Kind,
    tasks: Vec<String>,
    deadline: Option<String>,
    age: Option<String>,
    reaction: Option<String>,
}

/// Chains of both kinds.
#[derive(Debug, Default)]
pub(super) struct Chains {
    pub triggered: Vec<Chain>,
    pub sampled: Vec<SampledChain>,
}

/// Numbers of tasks by their names, and the tasks with a deadline of their own, in order.
type Written<'a> = (&'a BTreeMap<String, usize>, &'a [usize]);

/// Reads all, the triggered ones first: who releases a task counts for the others. Errors: the
/// line and the chain.
pub(super) fn read(
    entries: Vec<Spanned<ChainEntry>>,
    text: &str,
    time: TimeBase,
    tasks: &[Task],
    (names, own_deadlines): Written,
) -> Result<Chains, FileError> {
    let mut chains = Chains::default();
    let mut order = Order::of(tasks);
    let mut taken = BTreeSet::new();
    let entries: Vec<Spanned<ChainEntry>> = entries
        .into_iter()
        .map(|entry| match taken.insert(entry.as_ref().name.clone()) {
            true => Ok(entry),
            false => in_line(text, entry, |entry| {
                Err(bad("chain", &shown(&entry.name), "this name occurs twice: rename one"))
            }),
        })
        .collect::<Result<_, FileError>>()?;
    let is_sampled = |entry: &Spanned<ChainEntry>| entry.as_ref().kind == Kind::Sampled;
    let (sampled, triggered): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_sampled);
    for entry in triggered {
        in_line(text, entry, |entry| {
            let name = entry.name.clone();
            let chain = entry.triggered(time, names)?;
            order.add(tasks, &chain).map_err(|error| of(&name, &error))?;
            let has_own = |task: &&usize| own_deadlines.binary_search(task).is_ok();
            let with = chain.tasks.iter().find(has_own).copied();
            chains.triggered.push(chain);
            with.map_or(Ok(()), |task| {
                let reason = "has a deadline of its own, which the chain's would replace: leave it";
                Err(bad("chain", &name, format!("task {} {reason} out", tasks[task].name)))
            })
        })?;
    }
    for entry in sampled {
        in_line(text, entry, |entry| {
            let chain = entry.sampled(time, names)?;
            sampled::check_one(tasks, &order, &chain).map_err(|error| of(&chain.name, &error))?;
            chains.sampled.push(chain);
            Ok(())
        })?;
    }
    Ok(chains)
}

/// A refusal that may already begin with the chain's name.
fn of(name: &str, error: &impl ToString) -> FileError {
    match error.to_string() {
        reason if reason.starts_with(&format!("chain {name}")) => FileError::Syntax { reason },
        reason => bad("chain", name, reason),
    }
}

impl ChainEntry {
    /// Its times, as written.
    pub(super) fn times(&self) -> impl Iterator<Item = &String> {
        [&self.deadline, &self.age, &self.reaction].into_iter().flatten()
    }

    fn indices(&self, names: &BTreeMap<String, usize>) -> Result<Vec<usize>, FileError> {
        named("chain", &self.name)?;
        let find = |name: &String| {
            names.get(name).copied().ok_or_else(|| {
                bad("chain", &self.name, format!("tasks: there is no task {:?}", shown(name)))
            })
        };
        self.tasks.iter().map(find).collect()
    }

    fn triggered(
        self,
        time: TimeBase,
        names: &BTreeMap<String, usize>,
    ) -> Result<Chain, FileError> {
        let tasks = self.indices(names)?;
        for (key, value) in [("age", &self.age), ("reaction", &self.reaction)] {
            if value.is_some() {
                let reason = format!(
                    "{key}: only chains with kind = \"sampled\" have it: write deadline, or the \
                     kind"
                );
                return Err(bad("chain", &self.name, reason));
            }
        }
        let Some(deadline) = &self.deadline else {
            return Err(bad("chain", &self.name, "the key deadline is missing: add it"));
        };
        let deadline_ticks = above_0(time, "chain", &self.name, "deadline", deadline)?;
        Ok(Chain { name: self.name, tasks, deadline_ticks })
    }

    fn sampled(
        self,
        time: TimeBase,
        names: &BTreeMap<String, usize>,
    ) -> Result<SampledChain, FileError> {
        let tasks = self.indices(names)?;
        if self.deadline.is_some() {
            let reason = "deadline: a sampled chain has none: limit age or reaction instead";
            return Err(bad("chain", &self.name, reason));
        }
        let limit = |key, text: &Option<String>| {
            text.as_ref().map(|text| above_0(time, "chain", &self.name, key, text)).transpose()
        };
        let (age_limit_ticks, reaction_limit_ticks) =
            (limit("age", &self.age)?, limit("reaction", &self.reaction)?);
        Ok(SampledChain { name: self.name, tasks, age_limit_ticks, reaction_limit_ticks })
    }
}
