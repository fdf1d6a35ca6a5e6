// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets with given offsets, refused for free ones.
//!
//! Where one offset is given and the others are free, the refusal's run may begin at any time, so
//! it is one of the set's. With more, it is if some shift takes all its arrivals to where they may
//! be (Chinese remainders); without preemption even then jobs that the run leaves out may spoil it.
//! Where it is not, and where all offsets are given, the set is simulated until the schedule
//! repeats, with what is free as early as it may: a miss refutes.
//!
//! With everything released at fixed instants and every job taking its cost there is one schedule;
//! once its state at `O_max + k H` equals that at `O_max + (k - 1) H` it repeats for ever (Leung,
//! Merrill 1980 for EDF; for any deterministic policy the argument is the same). Preemptive EDF and
//! fixed priorities only get better when jobs take less; non-preemptive ones may get worse, so
//! there a schedule without a miss proves nothing, and `abstraction` goes through all schedules,
//! with jitter, too.
//! Of tasks of equal priority that are released together any may go first: each is tried as the
//! last of them.

use crate::abstraction::{Found, explore};
use crate::numbers::gcd_wide;
use crate::policy::Policy;
use crate::simulate::engine::{End, Job, Observe};
use crate::simulate::model::{Releases, Simulation};
use crate::simulate::replay::replay;
use crate::simulate::run::Run;
use crate::task::{MAX_TICKS, Task, all_arrive_as_given, all_fixed};
use crate::utilisation::hyperperiod_ticks;
use crate::verdict::{Counterexample, Doubt, Effort, Missed, Start, Verdict};
use std::ops::ControlFlow;

#[derive(Default)]
struct Watch(Option<(Job, u64)>);

impl Observe for Watch {
    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        if job.deadline_ticks.is_some_and(|deadline| at_ticks > deadline) {
            self.0 = Some((*job, at_ticks));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Whether given offsets decide, and not the run of a refusal.
pub(crate) fn decide(tasks: &[Task], policy: Policy, run: &[Start]) -> bool {
    let given = tasks.iter().filter(|task| task.offset_ticks.is_some()).count();
    all_fixed(tasks) || given > 1 && !(policy.is_preemptive() && meet(tasks, run))
}

/// Is there a shift that takes every arrival of a task with an offset to one of its arrivals? O(n).
fn meet(tasks: &[Task], run: &[Start]) -> bool {
    // The shift is `shift` modulo `modulus`, so far.
    let (mut shift, mut modulus): (i128, i128) = (0, 1);
    for start in run {
        let Some(offset_ticks) = tasks[start.task].offset_ticks else { continue };
        let period = i128::from(tasks[start.task].period_ticks);
        let wanted = i128::from(offset_ticks) - i128::from(start.arrival_ticks);
        let shared = gcd_wide(modulus as u128, period as u128) as i128;
        let apart = wanted - shift;
        if apart % shared != 0 {
            return false;
        }
        // Steps of `modulus` from `shift` until it suits this one, too.
        let steps = (apart / shared).rem_euclid(period / shared)
            * inverse(modulus / shared, period / shared);
        shift += modulus * steps.rem_euclid(period / shared);
        modulus *= period / shared;
        if modulus > i128::from(MAX_TICKS) {
            // Such a shift lies beyond any time that is looked at.
            return false;
        }
    }
    true
}

/// Of a number modulo another that shares no factor with it, by Euclid.
const fn inverse(number: i128, modulus: i128) -> i128 {
    let (mut old, mut rest) = (number.rem_euclid(modulus), modulus);
    let (mut factor, mut next) = (1, 0);
    while rest != 0 {
        let times = old / rest;
        (old, rest) = (rest, old - times * rest);
        (factor, next) = (next, factor - times * next);
    }
    factor.rem_euclid(modulus)
}

/// A verdict over the offsets as given. At most `effort.jobs` jobs.
pub(crate) fn settle(tasks: &[Task], policy: Policy, effort: &Effort) -> Verdict {
    // One CPU, whatever the tasks say.
    let here: Vec<Task> = tasks.iter().map(|task| Task { core: None, ..task.clone() }).collect();
    let unknown = |what| Verdict::Unknown { reason: Doubt::Offsets { what } };
    let orders = orders(&here, policy);
    let share = Effort { jobs: effort.jobs / orders.len() as u64, ..*effort };
    let mut doubt = None;
    for order in orders {
        match in_order(&here, &order, policy, &share) {
            Ok(()) => {}
            Err(Verdict::Unknown { reason }) => doubt = Some(reason),
            Err(verdict) => return verdict,
        }
    }
    if let Some(reason) = doubt {
        return Verdict::Unknown { reason };
    }
    if policy.is_preemptive() && all_fixed(tasks) {
        return Verdict::Schedulable;
    }
    if policy.is_preemptive() || !all_arrive_as_given(tasks) {
        return unknown("no job misses if all that is free comes as early as allowed");
    }
    match explore(&here, policy, effort) {
        Found::Fits => Verdict::Schedulable,
        Found::Misses => unknown(
            "no job misses if every job takes its whole cost and comes as early as allowed, but \
             one does if some take less or are released later, or if of equals another goes first",
        ),
        Found::GaveUp => unknown(
            "no job misses if every job takes its whole cost and comes as early as allowed, but \
             one may if some take less or are released later",
        ),
    }
}

/// Orders of the tasks in which those of equal priority that are released together are served. Each
/// such task is once the last: then its job waits for all that was released by then, so that this
/// is the worst for it, whatever the order of the others.
fn orders(tasks: &[Task], policy: Policy) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..tasks.len()).collect();
    let Ok(Some(ranks)) = policy.ranks(tasks) else { return vec![all] };
    let has_equal =
        |task: &usize| ranks.iter().filter(|rank| **rank == ranks[*task]).nth(1).is_some();
    let last = |task: usize| {
        let others = all.iter().copied().filter(|other| *other != task);
        others.chain([task]).collect()
    };
    let orders: Vec<Vec<usize>> = all.iter().copied().filter(has_equal).map(last).collect();
    if orders.is_empty() { vec![all] } else { orders }
}

/// Simulates until the schedule repeats. Errors: the verdict, if that is no repetition.
fn in_order(
    tasks: &[Task],
    order: &[usize],
    policy: Policy,
    effort: &Effort,
) -> Result<(), Verdict> {
    let here: Vec<Task> = order.iter().map(|index| tasks[*index].clone()).collect();
    let here = here.as_slice();
    let unknown = |what| Err(Verdict::Unknown { reason: Doubt::Offsets { what } });
    let refuted = |job: &Job, finished_ticks| {
        Err(refuted(here, policy, job, finished_ticks, effort).numbered_by(order))
    };
    let mut run = Run::prepare(&Simulation::new(here, policy, Releases::Together))?;
    let latest_ticks = here.iter().filter_map(|task| task.offset_ticks).max().unwrap_or(0);
    let period_ticks = hyperperiod_ticks(here);
    let mut watch = Watch::default();
    let mut state: Option<Vec<(u32, u64, u64)>> = None;
    let mut at_ticks = latest_ticks;
    loop {
        let end = run.go(at_ticks, effort.jobs, &mut watch);
        if let Some((job, finished_ticks)) = watch.0 {
            return refuted(&job, Some(finished_ticks));
        }
        let overdue = run
            .unfinished()
            .filter(|job| job.deadline_ticks.is_some_and(|deadline| deadline < run.now_ticks()));
        let overdue: Option<Job> = overdue.min_by_key(|job| (job.deadline_ticks, job.stream));
        if let Some(job) = overdue {
            return refuted(&job, None);
        }
        if end != End::Horizon {
            return unknown("the schedule does not repeat within the simulated jobs");
        }
        let mut left: Vec<(u32, u64, u64)> = run
            .unfinished()
            .map(|job| (job.stream, at_ticks - job.arrival_ticks, job.left_ticks))
            .collect();
        left.sort_unstable();
        if state.as_ref() == Some(&left) {
            return Ok(());
        }
        state = Some(left);
        match period_ticks
            .and_then(|period| at_ticks.checked_add(period))
            .filter(|next| *next < 4 * MAX_TICKS)
        {
            Some(next) => at_ticks = next,
            None if period_ticks.is_none() && at_ticks < 4 * MAX_TICKS => {
                // No repetition in reach: look for a miss as far as the effort goes.
                at_ticks = 4 * MAX_TICKS;
            }
            None => return unknown("the hyperperiod is too long"),
        }
    }
}

/// Everything at its offset, and what has none at 0.
pub(crate) fn as_given(tasks: &[Task]) -> Vec<Start> {
    let start = |(task, of): (usize, &Task)| {
        let offset_ticks = of.offset_ticks.unwrap_or(0);
        Start { task, arrival_ticks: offset_ticks, release_ticks: offset_ticks, held_up_ticks: 0 }
    };
    tasks.iter().enumerate().map(start).collect()
}

fn refuted(
    tasks: &[Task],
    policy: Policy,
    job: &Job,
    finished_ticks: Option<u64>,
    effort: &Effort,
) -> Verdict {
    let deadline_ticks = job.deadline_ticks.unwrap_or(job.release_ticks);
    let missed = Missed {
        task: job.stream(),
        job: job.index,
        release_ticks: job.release_ticks,
        deadline_ticks,
        finished_ticks,
    };
    let pattern = as_given(tasks);
    // As a replay shows it, which follows a job that is late until it ends.
    let again = replay(tasks, policy, &pattern, Some(deadline_ticks), effort);
    let missed = Some(again.unwrap_or(missed));
    let counterexample = Counterexample { pattern, by_ticks: Some(deadline_ticks), missed };
    Verdict::NotSchedulable { counterexample: Box::new(counterexample) }
}
