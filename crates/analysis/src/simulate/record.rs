// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who had which core when, for pictures and traces.

use super::engine::{Job, Observe};
use std::ops::ControlFlow;

/// A job on a core without interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub core: usize,
    pub stream: usize,
    pub job: u64,
    pub from_ticks: u64,
    pub to_ticks: u64,
}

/// An instant of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    pub stream: usize,
    pub job: u64,
    pub at_ticks: u64,
}

/// The first segments of a run, up to a number; the run itself goes on.
#[derive(Debug, Clone, Default)]
pub struct Record {
    most: usize,
    pub segments: Vec<Segment>,
    pub releases: Vec<Instant>,
    /// The absolute deadline of each release.
    pub deadlines: Vec<Instant>,
    /// Completions after the deadline.
    pub misses: Vec<Instant>,
    /// Something was not kept.
    pub is_cut: bool,
}

impl Record {
    pub fn up_to(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    fn push<T>(list: &mut Vec<T>, most: usize, is_cut: &mut bool, item: T) {
        if list.len() < most {
            list.push(item);
        } else {
            *is_cut = true;
        }
    }
}

impl Observe for Record {
    fn ran(&mut self, core: usize, job: &Job, from_ticks: u64, to_ticks: u64) {
        let segment = Segment { core, stream: job.stream(), job: job.index, from_ticks, to_ticks };
        Self::push(&mut self.segments, self.most, &mut self.is_cut, segment);
    }

    fn released(&mut self, job: &Job) {
        let instant = Instant { stream: job.stream(), job: job.index, at_ticks: job.release_ticks };
        Self::push(&mut self.releases, self.most, &mut self.is_cut, instant);
        if let Some(at_ticks) = job.deadline_ticks {
            let instant = Instant { at_ticks, ..instant };
            Self::push(&mut self.deadlines, self.most, &mut self.is_cut, instant);
        }
    }

    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        if job.deadline_ticks.is_some_and(|deadline| at_ticks > deadline) {
            let instant = Instant { stream: job.stream(), job: job.index, at_ticks };
            Self::push(&mut self.misses, self.most, &mut self.is_cut, instant);
        }
        ControlFlow::Continue(())
    }
}
