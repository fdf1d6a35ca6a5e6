//! Sets with given offsets, refused for free ones.
//!
//! Where one offset is given and the others are free, the refusal's run may begin at any time, so it is one of the set's. With
//! more, it is if some shift takes all its arrivals to where they may be (Chinese remainders); without preemption even then
//! jobs that the run leaves out may spoil it. Where it is not, and where all offsets are given, the set is simulated until
//! the schedule repeats, with what is free as early as it may: a miss refutes.
//!
//! With everything released at fixed instants and every job taking its cost there is one schedule; once its state at
//! `O_max + k H` equals that at `O_max + (k - 1) H` it repeats for ever (Leung, Merrill 1980 for EDF; for any deterministic
//! policy the argument is the same). Preemptive EDF and fixed priorities only get better when jobs take less; non-preemptive
//! ones may get worse, so there a schedule without a miss proves nothing.

use crate::policy::Policy;
use crate::simulate::engine::{Job, Observe};
use crate::simulate::{End, Releases, Run, Simulation};
use crate::task::{MAX_NS, Task, all_fixed};
use crate::utilisation::{gcd, hyperperiod_ns};
use crate::verdict::{Counterexample, Doubt, Effort, Missed, Start, Verdict};
use std::ops::ControlFlow;

#[derive(Default)]
struct Watch(Option<(Job, u64)>);

impl Observe for Watch {
    fn finished(&mut self, job: &Job, at_ns: u64) -> ControlFlow<()> {
        if job.deadline_ns.is_some_and(|deadline| at_ns > deadline) {
            self.0 = Some((*job, at_ns));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Whether given offsets decide, and not the run of a refusal.
pub(crate) fn decide(tasks: &[Task], policy: Policy, run: &[Start]) -> bool {
    let given = tasks.iter().filter(|task| task.offset_ns.is_some()).count();
    all_fixed(tasks) || given > 1 && !(policy.is_preemptive() && meet(tasks, run))
}

/// Is there a shift that takes every arrival of a task with an offset to one of its arrivals? O(n).
fn meet(tasks: &[Task], run: &[Start]) -> bool {
    // The shift is `shift` modulo `modulus`, so far.
    let (mut shift, mut modulus): (i128, i128) = (0, 1);
    for start in run {
        let Some(offset_ns) = tasks[start.task].offset_ns else { continue };
        let period = i128::from(tasks[start.task].period_ns);
        let wanted = i128::from(offset_ns) - i128::from(start.arrival_ns);
        let shared = gcd(modulus as u128, period as u128) as i128;
        let apart = wanted - shift;
        if apart % shared != 0 {
            return false;
        }
        // Steps of `modulus` from `shift` until it suits this one, too.
        let steps = (apart / shared).rem_euclid(period / shared) * inverse(modulus / shared, period / shared);
        shift += modulus * steps.rem_euclid(period / shared);
        modulus *= period / shared;
        if modulus > i128::from(MAX_NS) {
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
    let mut run = match Run::prepare(&Simulation::new(&here, policy, Releases::Together)) {
        Ok(run) => run,
        Err(stop) => return stop.into(),
    };
    let latest_ns = tasks.iter().filter_map(|task| task.offset_ns).max().unwrap_or(0);
    let period_ns = hyperperiod_ns(tasks);
    let mut watch = Watch::default();
    let mut state: Option<Vec<(u32, u64, u64)>> = None;
    let mut at_ns = latest_ns;
    loop {
        let end = run.go(at_ns, effort.jobs, &mut watch);
        if let Some((job, finished_ns)) = watch.0 {
            return refuted(tasks, &job, Some(finished_ns));
        }
        let overdue =
            run.unfinished().filter(|job| job.deadline_ns.is_some_and(|deadline| deadline < run.now_ns()));
        let overdue: Option<Job> = overdue.min_by_key(|job| (job.deadline_ns, job.stream));
        if let Some(job) = overdue {
            return refuted(tasks, &job, None);
        }
        if end != End::Horizon {
            return unknown("the schedule does not repeat within the jobs that may be simulated");
        }
        let mut left: Vec<(u32, u64, u64)> =
            run.unfinished().map(|job| (job.stream, at_ns - job.arrival_ns, job.left_ns)).collect();
        left.sort_unstable();
        if state.as_ref() == Some(&left) {
            break;
        }
        state = Some(left);
        match period_ns.and_then(|period| at_ns.checked_add(period)).filter(|next| *next < 4 * MAX_NS) {
            Some(next) => at_ns = next,
            None if period_ns.is_none() && at_ns < 4 * MAX_NS => {
                // No repetition in reach: look for a miss as far as the effort goes.
                at_ns = 4 * MAX_NS;
            }
            None => return unknown("the hyperperiod is too long"),
        }
    }
    if !all_fixed(tasks) {
        unknown("no job misses if all that is free comes as early as it may")
    } else if policy.is_preemptive() {
        Verdict::Schedulable
    } else {
        unknown("no job misses if every job takes its whole cost, but one may if some take less")
    }
}

/// Everything at its offset, and what has none at 0.
pub(crate) fn as_given(tasks: &[Task]) -> Vec<Start> {
    let start = |(task, of): (usize, &Task)| {
        let offset_ns = of.offset_ns.unwrap_or(0);
        Start { task, arrival_ns: offset_ns, release_ns: offset_ns, held_up_ns: 0 }
    };
    tasks.iter().enumerate().map(start).collect()
}

fn refuted(tasks: &[Task], job: &Job, finished_ns: Option<u64>) -> Verdict {
    let deadline_ns = job.deadline_ns.unwrap_or(job.release_ns);
    let missed =
        Missed { task: job.stream(), job: job.index, release_ns: job.release_ns, deadline_ns, finished_ns };
    let pattern = as_given(tasks);
    let counterexample = Counterexample { pattern, by_ns: Some(deadline_ns), missed: Some(missed) };
    Verdict::NotSchedulable { counterexample: Box::new(counterexample) }
}
