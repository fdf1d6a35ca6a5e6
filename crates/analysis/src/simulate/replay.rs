// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs until a deadline is missed.

use super::engine::{Job, Observe};
use super::model::{Releases, Simulation};
use super::run::Run;
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{Effort, Missed, Start, Stop};
use std::ops::ControlFlow;

/// Stops at the first job that finishes late.
#[derive(Debug, Default)]
struct FirstMiss(Option<(Job, u64)>);

impl Observe for FirstMiss {
    #[inline]
    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        if job.deadline_ticks.is_some_and(|deadline| at_ticks > deadline) {
            self.0 = Some((*job, at_ticks));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// The first job that finishes late, if some deadline before an instant is missed. A job that is
/// overdue then is followed until it, or another that is late, finishes, for about as many jobs
/// again: it may be starved for ever.
pub fn first_miss(
    simulation: &Simulation,
    until_ticks: u64,
    most_jobs: u64,
) -> Result<Option<Missed>, Stop> {
    let mut run = Run::prepare(simulation)?;
    let mut first = FirstMiss::default();
    run.go(until_ticks, most_jobs, &mut first);
    let now_ticks = run.now_ticks();
    let overdue = |job: &Job| job.deadline_ticks.is_some_and(|deadline| deadline < now_ticks);
    let earliest =
        run.unfinished().filter(overdue).min_by_key(|job| (job.deadline_ticks, job.stream));
    if first.0.is_none() && earliest.is_some() {
        let again = run.jobs().saturating_mul(2).saturating_add(1000);
        run.go(u64::MAX, most_jobs.min(again), &mut first);
    }
    Ok(match first.0 {
        Some((job, at_ticks)) => run.missed(&job, Some(at_ticks)),
        None => earliest.and_then(|job| run.missed(&job, None)),
    })
}

/// Goes through a counterexample on one CPU, until the instant by which it must miss.
pub fn replay(
    tasks: &[Task],
    policy: Policy,
    pattern: &[Start],
    by_ticks: Option<u64>,
    effort: &Effort,
) -> Option<Missed> {
    let simulation = Simulation::new(tasks, policy, Releases::Pattern(pattern.to_vec()));
    let until_ticks = by_ticks.and_then(|by| by.checked_add(1)).unwrap_or(u64::MAX);
    first_miss(&simulation, until_ticks, effort.jobs).ok().flatten()
}
