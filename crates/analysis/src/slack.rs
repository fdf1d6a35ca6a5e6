// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much room is left: how much longer one task may take, and by which factor all may grow,
//! before the test of a policy no longer accepts. Binary search: every test here accepts less when
//! a cost grows. `Unknown` counts as no.

use crate::decide::Answer;
use crate::policy::Policy;
use crate::task::{Cost, Task};
use crate::verdict::{Effort, Stop};
use crate::{edf, fp, np_edf, np_fp};
#[cfg(feature = "files")]
use serde::Serialize;

/// Does a set on one CPU fit, if the offsets are free? Gives no counterexample. Errors: why there
/// is neither a yes nor a no.
pub fn fits(tasks: &[Task], policy: Policy, effort: &Effort) -> Result<bool, Stop> {
    let answer = match policy {
        Policy::NpEdf => np_edf::decide(tasks, effort),
        Policy::Edf => edf::decide(tasks, effort),
        Policy::NpFp => np_fp::decide(tasks, effort),
        Policy::Rm | Policy::Dm | Policy::Fp | Policy::Muf => fp::decide(tasks, policy, effort),
    };
    Ok(answer? == Answer::Fits)
}

/// Sets up to this size get a search for each task.
pub const SEARCHED: usize = 100;

/// Parts of one in a factor.
pub const PPM: u64 = 1_000_000;

/// The room that a task set has left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Slack {
    /// The largest factor, in millionths, by which all costs (rounded up to nanoseconds) may be
    /// multiplied; below a million for a set that does not fit. `None`: not even the least costs
    /// fit.
    pub factor_ppm: Option<u64>,
    /// By how much each task alone may grow; all `None` if the set does not fit.
    pub extra_ticks: Vec<Option<u64>>,
}

/// Both, for at most `most_tasks` tasks one by one (a search each). Errors: those of the test of
/// the set itself.
pub fn slack(
    tasks: &[Task],
    policy: Policy,
    most_tasks: usize,
    effort: &Effort,
) -> Result<Slack, Stop> {
    let fits_now = fits(tasks, policy, effort)?;
    let factor_ppm = factor_ppm(tasks, policy, effort);
    let mut extra_ticks = vec![None; tasks.len()];
    if fits_now && tasks.len() <= most_tasks {
        for (index, extra) in extra_ticks.iter_mut().enumerate() {
            *extra = Some(extra_of(tasks, index, policy, effort));
        }
    }
    Ok(Slack { factor_ppm, extra_ticks })
}

/// Turns of a binary search over 64 bits, about.
const TURNS: u64 = 60;
/// Of the effort, for each turn of each task's search: a hundred tasks then take a few seconds at
/// worst.
const TASK_PART: u64 = 2000;

const fn part(effort: &Effort, of: u64) -> Effort {
    Effort { steps: effort.steps / of, jobs: effort.jobs }
}

/// The largest factor in millionths; all turns together take the effort at most.
pub fn factor_ppm(tasks: &[Task], policy: Policy, effort: &Effort) -> Option<u64> {
    let effort = &part(effort, TURNS);
    let scaled = |factor: u64| -> Option<Vec<Task>> {
        let scale = |task: &Task| {
            let cost = (u128::from(task.cost_ticks()) * u128::from(factor))
                .div_ceil(u128::from(PPM))
                .max(1);
            Some(Task { cost: Cost::Guaranteed(u64::try_from(cost).ok()?), ..task.clone() })
        };
        tasks.iter().map(scale).collect()
    };
    let accepts =
        |factor| scaled(factor).is_some_and(|set| fits(&set, policy, effort).unwrap_or(false));
    // No cost may exceed its period for long, so no factor exceeds the least ratio of the two.
    let most = tasks.iter().map(|task| {
        let ratio =
            u128::from(task.period_ticks) * u128::from(PPM) / u128::from(task.cost_ticks().max(1));
        u64::try_from(ratio).unwrap_or(u64::MAX - 1)
    });
    let most = most.min()?;
    accepts(0).then(|| largest(0, most, accepts))
}

fn extra_of(tasks: &[Task], index: usize, policy: Policy, effort: &Effort) -> u64 {
    let cost_ticks = tasks[index].cost_ticks();
    largest_cost(tasks, index, policy, effort).map_or(0, |most| most.saturating_sub(cost_ticks))
}

/// The longest that one task may be while all others stay as they are; `None`: not even a
/// nanosecond fits. A turn takes a small part of the effort.
pub fn largest_cost(tasks: &[Task], index: usize, policy: Policy, effort: &Effort) -> Option<u64> {
    let effort = &part(effort, TASK_PART);
    let mut set = tasks.to_vec();
    let most = set.get(index).map(|task| task.deadline_ticks.max(task.period_ticks))?;
    let mut accepts = |cost_ticks| {
        set[index].cost = Cost::Guaranteed(cost_ticks);
        fits(&set, policy, effort).unwrap_or(false)
    };
    accepts(1).then(|| largest(1, most, accepts))
}

/// The largest value from `low` (accepted) to `high` that is accepted, for a predicate that only
/// ever turns to no.
pub fn largest(mut low: u64, mut high: u64, mut accepts: impl FnMut(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if accepts(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
