// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run as the page shows it: with its number, its name, its times.

use super::style::{Style, of_kind};
use super::timeline::Timeline;
use crate::load::Load;
use crate::report::{self, Row};
use crate::run::{Experiment, Run, RunError};
use crate::spaces;

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

/// Those that are in no table of address spaces, in the order of the text report. Errors: samples
/// that were read before can no longer be read.
pub fn shown<'a>(all: &'a [Run]) -> Result<Vec<Shown<'a>>, RunError> {
    let mut runs = spaces::others(all);
    let heading = |run: &Run| (run.provenance.experiment, run.provenance.load, run.provenance.kind);
    runs.sort_by_key(|run| heading(run));
    let rows = report::rows(all, None);
    let show = |(at, (run, row)): (usize, (&&'a Run, Row))| {
        let kind = run.provenance.kind;
        let number = at + 1;
        let alike = runs.iter().filter(|other| heading(other) == heading(run)).count();
        let label = if alike == 1 { kind.to_string() } else { format!("{number} {kind}") };
        let timeline = Timeline::read(run)?;
        let Row { name, system_max_ns, .. } = row;
        Ok(Shown { run, number, name, label, timeline, system_max_ns })
    };
    runs.iter().zip(rows).enumerate().map(show).collect()
}
