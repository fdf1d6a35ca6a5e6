// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Worst response times under EDF and non-preemptive EDF.
//!
//! Spuri, "Analysis of deadline scheduled real-time systems", INRIA RR-2772, 1996, with release
//! jitter as in his "Holistic analysis for deadline scheduled real-time distributed systems", INRIA
//! RR-2873, 1996; non-preemptive: George, Rivierre, Spuri, INRIA RR-2966, 1996. The worst job of
//! task i is released b after everything else was, each as late as its jitter lets it, and b lies
//! where some deadline coincides with its own. With `E = D - J`, a deadline counted from the last
//! instant of release, that is `b = k T_j + E_j - E_i`, and the deadline is at `d = b + E_i`. For
//! each b within the longest busy period: preemptive, the least `w = B + (floor(b / T_i) + 1) C_i +
//! sum over E_j <= d of min(ceil((w + J_j) / T_j), floor((d - E_j) / T_j) + 1) C_j`, `R(b) = J_i +
//! max(C_i, w - b)`; non-preemptive, the start `w = B + floor(b / T_i) C_i + sum of min(floor((w +
//! J_j) / T_j) + 1, …) C_j`, `R(b) = J_i + C_i + max(0, w - b)`. B: the longest section of those
//! that may be waited for, without preemption at least `C_j - 1` of each with `D_j > d + 1`; where
//! no deadline is longer than d, nothing of the set is left to hold a job up, and B is of the
//! longest deadline's tasks (as in `demand`). For people and for chains: the verdict of a set comes
//! from the demand, which is quicker.

use crate::check::check;
use crate::task::{MAX_TICKS, Task};
use crate::utilisation::Utilisation;
use crate::verdict::{Doubt, Effort, Meter, Stop};

/// Releases that are looked at for one task; 8 bytes each.
const MOST_RELEASES: usize = 1 << 20;

/// From the arrival, in the order of the set: exact without sections, else a bound. O(candidates n)
/// steps of an iteration a task. Errors: utilisation of 1 or more with a busy period that does not
/// end; effort.
pub fn responses(tasks: &[Task], non_preemptive: bool, effort: &Effort) -> Result<Vec<u64>, Stop> {
    check(tasks)?;
    Ok(of_all(tasks, non_preemptive, &mut Meter::new(effort))?)
}

/// Of tasks that are checked; their jitter, which chains bring, may be longer than a file's.
pub(crate) fn of_all(
    tasks: &[Task],
    non_preemptive: bool,
    meter: &mut Meter,
) -> Result<Vec<u64>, Doubt> {
    let busy_ticks = latest_release(tasks, non_preemptive, meter)?;
    (0..tasks.len())
        .map(|index| response(tasks, index, non_preemptive, busy_ticks, meter))
        .collect()
}

/// A deadline, counted from the last instant of release. Deadlines are at most 2^60, jitter that
/// chains bring 2^61, busy periods 2^62: sums of one of each fit.
fn from_release_ticks(task: &Task) -> i64 {
    task.deadline_ticks as i64 - task.jitter_ticks as i64
}

/// Before which the worst job of each task is released: in the busy period that is held up for
/// longest. At a load of 1 that one does not end. There it is what is due before the longest
/// deadline, and the busy period of jobs that nothing blocks any more.
fn latest_release(tasks: &[Task], non_preemptive: bool, meter: &mut Meter) -> Result<u64, Doubt> {
    let held = |task: &Task| {
        task.blocking_ticks.max(if non_preemptive { task.cost_ticks() - 1 } else { 0 })
    };
    let held_ticks = tasks.iter().map(held).max().unwrap_or(0);
    if Utilisation::of(tasks).room().is_some() {
        return busy_period(tasks, held_ticks, meter);
    }
    let longest_ticks = tasks.iter().map(|task| task.deadline_ticks).max().unwrap_or(0);
    let never_ends = |task: &Task| {
        task.jitter_ticks > 0 || task.blocking_ticks > 0 && task.deadline_ticks == longest_ticks
    };
    if tasks.iter().any(never_ends) {
        return Err(Doubt::Overflow { what: "the longest busy period" });
    }
    let busy_ticks = busy_period(tasks, 0, meter)?;
    Ok(if held_ticks == 0 { busy_ticks } else { busy_ticks.max(longest_ticks) })
}

fn busy_period(tasks: &[Task], held_ticks: u64, meter: &mut Meter) -> Result<u64, Doubt> {
    let mut end: u64 = 1;
    loop {
        meter.spend(tasks.len(), "busy period")?;
        let mut work = held_ticks;
        for task in tasks {
            let jobs = end.saturating_add(task.jitter_ticks).div_ceil(task.period_ticks);
            work = work.saturating_add(jobs.saturating_mul(task.cost_ticks()));
        }
        if work <= end {
            return Ok(end);
        }
        if work > 4 * MAX_TICKS {
            return Err(Doubt::Overflow { what: "the longest busy period" });
        }
        end = work;
    }
}

fn response(
    tasks: &[Task],
    index: usize,
    non_preemptive: bool,
    busy_ticks: u64,
    meter: &mut Meter,
) -> Result<u64, Doubt> {
    let own = &tasks[index];
    let mut releases = Vec::new();
    for task in tasks {
        // k T_j + E_j - E_i for every k that gives 0 <= b < busy_ticks.
        let mut at = from_release_ticks(task) - from_release_ticks(own);
        if at < 0 {
            at += (at.unsigned_abs().div_ceil(task.period_ticks) * task.period_ticks) as i64;
        }
        while at < busy_ticks as i64 {
            meter.spend(1, "response times")?;
            if releases.len() == MOST_RELEASES {
                return Err(Doubt::Steps {
                    steps: MOST_RELEASES as u64,
                    what: "releases in the longest busy period",
                });
            }
            releases.push(at as u64);
            at += task.period_ticks as i64;
        }
    }
    releases.sort_unstable();
    releases.dedup();
    let mut worst_ticks = own.cost_ticks();
    for release_ticks in releases {
        worst_ticks =
            worst_ticks.max(after_release(tasks, index, release_ticks, non_preemptive, meter)?);
    }
    Ok(worst_ticks.saturating_add(own.jitter_ticks))
}

/// From the last instant at which that job may be released.
fn after_release(
    tasks: &[Task],
    index: usize,
    release_ticks: u64,
    non_preemptive: bool,
    meter: &mut Meter,
) -> Result<u64, Doubt> {
    let own = &tasks[index];
    let due_ticks = release_ticks as i64 + from_release_ticks(own);
    let is_urgent = |task: &Task| from_release_ticks(task) <= due_ticks;
    let longest_ticks = tasks.iter().map(|task| task.deadline_ticks).max().unwrap_or(0);
    let may_wait =
        |task: &Task| longest_ticks as i64 > due_ticks || task.deadline_ticks == longest_ticks;
    let held = |(other, task): (usize, &Task)| {
        let section_ticks = if is_urgent(task) && may_wait(task) { task.blocking_ticks } else { 0 };
        // It has started a tick before.
        let is_later =
            non_preemptive && other != index && task.deadline_ticks as i64 > due_ticks + 1;
        section_ticks.max(if is_later { task.cost_ticks() - 1 } else { 0 })
    };
    let own_jobs = release_ticks / own.period_ticks + u64::from(!non_preemptive);
    let held_ticks = tasks.iter().enumerate().map(held).max().unwrap_or(0);
    let base_ticks = own_jobs.saturating_mul(own.cost_ticks()).saturating_add(held_ticks);
    let others =
        || tasks.iter().enumerate().filter(|(other, task)| *other != index && is_urgent(task));
    let mut at_ticks = base_ticks;
    loop {
        meter.spend(tasks.len(), "response times")?;
        let mut next_ticks = base_ticks;
        for (_, task) in others() {
            let urgent = (due_ticks - from_release_ticks(task)) as u64 / task.period_ticks + 1;
            let until_ticks = at_ticks.saturating_add(task.jitter_ticks);
            let so_far = if non_preemptive {
                until_ticks / task.period_ticks + 1
            } else {
                until_ticks.div_ceil(task.period_ticks)
            };
            next_ticks =
                next_ticks.saturating_add(urgent.min(so_far).saturating_mul(task.cost_ticks()));
        }
        if next_ticks <= at_ticks {
            break;
        }
        at_ticks = next_ticks;
    }
    let wait_ticks = at_ticks.saturating_sub(release_ticks);
    Ok(if non_preemptive {
        wait_ticks.saturating_add(own.cost_ticks())
    } else {
        wait_ticks.max(own.cost_ticks())
    })
}
