// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as the page shows it: with its number, its name, its times.

use super::style::{Style, of_kind};
use super::timeline::Timeline;
use crate::load::Load;
use crate::report;
use crate::run::{Experiment, Run, RunError};
use crate::spaces;
use std::path::Path;

#[derive(Debug)]
pub struct Shown<'a> {
    pub run: &'a Run,
    /// Of its row in the tables.
    pub number: usize,
    /// As the text report names it.
    pub name: String,
    /// In figures, where there is little room: the kind, behind the number if others have it too.
    pub label: String,
    pub timeline: Option<Timeline>,
    /// Overhead: the most that the system itself took of a turn.
    pub system_max_ns: Option<u64>,
}

impl Shown<'_> {
    pub const fn style(&self) -> Style {
        of_kind(self.run.provenance.kind)
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
    let show = |(at, run): (usize, &&'a Run)| {
        let kind = run.provenance.kind;
        let number = at + 1;
        let alike = runs.iter().filter(|other| heading(other) == heading(run)).count();
        let label = if alike == 1 { kind.to_string() } else { format!("{number} {kind}") };
        let row = rows.iter().find(|row| Path::new(&row.dir) == run.dir);
        let name = row.map_or_else(|| run.name(), |row| row.name.clone());
        let system_max_ns = row.and_then(|row| row.system_max_ns);
        Ok(Shown { run, number, name, label, timeline: Timeline::read(run)?, system_max_ns })
    };
    runs.iter().enumerate().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::run::tests::provenance;
    use crate::run::{Kind, Provenance, Times};

    #[test]
    fn a_kind_that_comes_twice_has_its_number_in_figures() {
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
        assert_eq!(labels, [n, format!("2 {aoff}"), format!("3 {aoff}")]);
        assert!(shown[1].name.ends_with(" b") && shown[2].name.ends_with(" a"), "{shown:?}");
    }
}
