// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data age and reaction time of sampled chains in a run.

use super::engine::{Job, Observe};
use super::model::Owner;
use super::run::Run;
use crate::sampled::SampledChain;
#[cfg(feature = "files")]
use serde::Serialize;
use std::ops::ControlFlow;

/// The longest that a run had. `None`: no output, or only one sample in all outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct DataRow {
    pub name: String,
    pub age_ticks: Option<u64>,
    /// From the first output on whose sample was read when every task of the chain had arrived.
    pub reaction_ticks: Option<u64>,
    pub age_limit_ticks: Option<u64>,
    pub reaction_limit_ticks: Option<u64>,
}

impl DataRow {
    /// What passed its limit: its name, the longest, the limit.
    pub fn over(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let age = ("data age", self.age_ticks, self.age_limit_ticks);
        let reaction = ("reaction time", self.reaction_ticks, self.reaction_limit_ticks);
        let over = |(what, longest, limit): (_, Option<u64>, Option<u64>)| {
            longest.zip(limit).filter(|(longest, limit)| longest > limit).map(|(l, m)| (what, l, m))
        };
        [age, reaction].into_iter().filter_map(over)
    }
}

/// Watches a run. A sample is the instant at which the first task of a chain read it.
#[derive(Debug)]
pub struct DataTimes {
    chains: Vec<Watched>,
    /// By stream: positions of chains and of tasks in them.
    places: Vec<Vec<(usize, usize)>>,
}

#[derive(Debug)]
struct Watched {
    row: DataRow,
    stages: Vec<Stage>,
    /// The sample of the last output.
    shown_ticks: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Stage {
    first_arrival_ticks: Option<u64>,
    /// The sample that the running job has read, and the one that the last wrote.
    read_ticks: Option<u64>,
    written_ticks: Option<u64>,
}

impl DataTimes {
    pub fn of(run: &Run, chains: &[SampledChain]) -> Self {
        let mut places = vec![Vec::new(); run.owners.len()];
        for (number, chain) in chains.iter().enumerate() {
            for (stage, task) in chain.tasks.iter().enumerate() {
                let stream = run.owners.iter().position(|owner| *owner == Owner::Task(*task));
                if let Some(stream) = stream {
                    places[stream].push((number, stage));
                }
            }
        }
        let watched = |chain: &SampledChain| Watched {
            row: DataRow {
                name: chain.name.clone(),
                age_ticks: None,
                reaction_ticks: None,
                age_limit_ticks: chain.age_limit_ticks,
                reaction_limit_ticks: chain.reaction_limit_ticks,
            },
            stages: vec![Stage::default(); chain.tasks.len()],
            shown_ticks: None,
        };
        Self { chains: chains.iter().map(watched).collect(), places }
    }

    pub fn rows(&self) -> impl Iterator<Item = &DataRow> {
        self.chains.iter().map(|chain| &chain.row)
    }
}

impl Watched {
    /// An output, and the sample that it is based on.
    fn output(&mut self, sample_ticks: u64, at_ticks: u64) {
        self.row.age_ticks = self.row.age_ticks.max(Some(at_ticks - sample_ticks));
        let before = self.shown_ticks.replace(sample_ticks).filter(|shown| *shown != sample_ticks);
        let complete_ticks = self.stages.iter().filter_map(|stage| stage.first_arrival_ticks).max();
        // Just after the read before, something happened that the output shows first.
        if let Some(before_ticks) = before.filter(|before| Some(*before) >= complete_ticks) {
            self.row.reaction_ticks = self.row.reaction_ticks.max(Some(at_ticks - before_ticks));
        }
    }
}

impl Observe for DataTimes {
    fn released(&mut self, job: &Job) {
        if job.index == 0 {
            for (chain, stage) in &self.places[job.stream()] {
                let stage = &mut self.chains[*chain].stages[*stage];
                stage.first_arrival_ticks = Some(job.arrival_ticks);
            }
        }
    }

    fn started(&mut self, job: &Job, at_ticks: u64) {
        for (chain, stage) in &self.places[job.stream()] {
            let stages = &mut self.chains[*chain].stages;
            stages[*stage].read_ticks = match stage.checked_sub(1) {
                None => Some(at_ticks),
                Some(before) => stages[before].written_ticks,
            };
        }
    }

    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        for (chain, stage) in &self.places[job.stream()] {
            let chain = &mut self.chains[*chain];
            let own = &mut chain.stages[*stage];
            own.written_ticks = own.read_ticks;
            if let Some(sample_ticks) = own.written_ticks
                && stage + 1 == chain.stages.len()
            {
                chain.output(sample_ticks, at_ticks);
            }
        }
        ControlFlow::Continue(())
    }
}
