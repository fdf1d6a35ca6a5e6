// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as the page shows it: with its number, its name, its times.

use super::style::{Style, of_run};
use super::timeline::Timeline;
use crate::load::Load;
use crate::report::{self, Row};
use crate::run::{Experiment, Run, RunError};
use crate::spaces;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug)]
pub struct Shown<'a> {
    pub run: &'a Run,
    /// Of its row in the tables.
    pub number: usize,
    /// As the text report names it.
    pub name: String,
    /// In figures: the kind; if others have it too, between its number and what tells it from them.
    pub label: String,
    /// The same where there is little room: without the kind, which the colour says.
    pub short: String,
    /// Which run of its experiment, load and kind, from 0 on.
    pub nth: usize,
    pub timeline: Option<Timeline>,
    /// Overhead: the most that the system itself took of a turn.
    pub system_max_ns: Option<u64>,
}

impl Shown<'_> {
    pub fn style(&self) -> Style {
        of_run(self.run.provenance.kind, self.nth)
    }

    pub const fn experiment(&self) -> Experiment {
        self.run.provenance.experiment
    }

    pub const fn load(&self) -> Load {
        self.run.provenance.load
    }

    pub fn has_instants(&self) -> bool {
        self.run.latencies.instants() > 0
    }
}

/// Those that are in no table of address spaces, by experiment, load and kind. Errors: samples that
/// were read before can no longer be read.
pub fn shown<'a>(all: &'a [Run]) -> Result<Vec<Shown<'a>>, RunError> {
    let mut runs = spaces::others(all);
    let heading = |run: &Run| (run.provenance.experiment, run.provenance.load, run.provenance.kind);
    runs.sort_by_key(|run| heading(run));
    let rows = report::rows(all, None);
    let rows: BTreeMap<&Path, &Row> = rows.iter().map(|row| (Path::new(&row.dir), row)).collect();
    let row = |run: &Run| rows.get(Path::new(&run.dir.display().to_string()));
    let named = |run: &Run| row(run).map_or_else(|| run.name(), |row| row.name.clone());
    let mut shown = Vec::with_capacity(runs.len());
    for alike in runs.chunk_by(|one, other| heading(one) == heading(other)) {
        let kind = alike[0].provenance.kind.word();
        let names: Vec<String> = alike.iter().map(|run| named(run)).collect();
        let rests = names.iter().map(|name| name.strip_prefix(kind).unwrap_or(name).trim());
        let apart = apart(&rests.collect::<Vec<_>>());
        for (nth, ((run, name), what)) in alike.iter().zip(&names).zip(apart).enumerate() {
            let number = shown.len() + 1;
            let (label, short) = match alike.len() {
                1 => (kind.to_owned(), kind.to_owned()),
                // Empty of one that has the kind alone for its name.
                _ => {
                    let said = |words: String| words.trim_end().to_owned();
                    (said(format!("{number} {kind} {what}")), said(format!("{number} {what}")))
                }
            };
            shown.push(Shown {
                run,
                number,
                name: name.clone(),
                label,
                short,
                nth,
                timeline: Timeline::read(run)?,
                system_max_ns: row(run).and_then(|row| row.system_max_ns),
            });
        }
    }
    Ok(shown)
}

/// Of names that are paths, the parts where they differ, and the one before: `before/1` of
/// `x/before/1/mixed-fifo` and `x/before/2/mixed-fifo`.
fn apart(names: &[&str]) -> Vec<String> {
    let mut all: Vec<Vec<&str>> = names.iter().map(|name| name.rsplit('/').collect()).collect();
    let most = all.iter().map(Vec::len).min().unwrap_or(0).saturating_sub(1);
    let last = shared(&all, most);
    all.iter_mut().for_each(|parts| parts.reverse());
    let first = shared(&all, most - last);
    let from = first.saturating_sub(1);
    all.iter().map(|parts| parts[from..parts.len() - last].join("/")).collect()
}

/// How many of the first parts, at most so many, all have alike.
fn shared(all: &[Vec<&str>], most: usize) -> usize {
    let is_alike = |at: &usize| all.iter().all(|parts| parts[*at] == all[0][*at]);
    (0..most).take_while(is_alike).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::run::tests::provenance;
    use crate::run::{Kind, Provenance, Times};

    #[test]
    fn a_kind_that_comes_twice_has_its_number_and_its_directory_in_figures() {
        let run = |dir: &str, kind: Kind| Run {
            dir: dir.into(),
            provenance: Provenance { kind, ..provenance() },
            latencies: Latencies::default(),
            times: Times::default(),
            system_max_ns: None,
        };
        let runs = [run("b", Kind::Partition), run("a", Kind::Partition), run("c", Kind::Normal)];
        let shown = shown(&runs).unwrap();
        let labels: Vec<&str> = shown.iter().map(|one| one.label.as_str()).collect();
        let [n, aoff] = [Kind::Normal, Kind::Partition].map(|kind| kind.to_string());
        assert_eq!(labels, [n, format!("2 {aoff} b"), format!("3 {aoff} a")]);
        let shorts: Vec<&str> = shown.iter().map(|one| one.short.as_str()).collect();
        assert_eq!(shorts, ["normal", "2 b", "3 a"]);
        assert!(shown[1].style() != shown[2].style());
        assert_eq!(shown[1].style().colour, shown[2].style().colour);
        assert!(shown[1].name.ends_with(" b") && shown[2].name.ends_with(" a"), "{shown:?}");
        // One has nothing besides: its label does not end with a space.
        let mut runs = [run("a", Kind::Normal), run("b", Kind::Normal)];
        runs[1].provenance.column = Some("thread 0".into());
        let shown = super::shown(&runs).unwrap();
        let labels: Vec<&str> = shown.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels, ["1 normal", "2 normal thread 0"]);
    }

    #[test]
    fn columns_and_rounds_are_told_apart_in_few_words() {
        assert_eq!(apart(&["IRQ-003", "Thr-003"]), ["IRQ-003", "Thr-003"]);
        assert_eq!(apart(&["a/mixed-fifo", "b/mixed-fifo"]), ["a", "b"]);
        let rounds = ["/x/y/before/1/mixed-fifo", "/x/y/before/2/mixed-fifo"];
        assert_eq!(apart(&rounds), ["before/1", "before/2"]);
        assert_eq!(apart(&["before/1/f", "after/1/f"]), ["before", "after"]);
        assert_eq!(apart(&["a", "a/b"]), ["a", "a/b"]);
        assert_eq!(apart(&["a", "a"]), ["a", "a"]);
    }
}
