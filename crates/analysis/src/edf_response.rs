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
//! longest deadline's tasks (as in `demand`). A task that holds the job up although others of its
//! jobs are due by d, which takes jitter, has none of them in the window: so it is left out of the
//! sum. For people and for chains: the verdict of a set comes from the demand, which is quicker.
//!
//! At a load of 1 with jitter or sections the busy period need not end. Once b is so late that jobs
//! of all tasks count and none holds the window, a job at b + H has the response of the one at b
//! (H: the hyperperiod). For the work of all tasks in H is H, so that w grows by exactly H. It is
//! enough to look at b up to one hyperperiod beyond the longest deadline.

use crate::check::check;
use crate::task::{MAX_TICKS, Task};
use crate::utilisation::{Utilisation, hyperperiod_ticks, is_above_one};
use crate::verdict::{Doubt, Effort, Meter, Stop};

/// Releases that are looked at for one task; 8 bytes each.
const MOST_RELEASES: usize = 1 << 20;

/// From the arrival, in the order of the set: exact without sections, else a bound. O(candidates n)
/// steps of an iteration a task. Errors: utilisation above 1; one of 1 whose hyperperiod does not
/// fit, with jitter or sections; effort.
pub fn responses(tasks: &[Task], non_preemptive: bool, effort: &Effort) -> Result<Vec<u64>, Stop> {
    check(tasks)?;
    Ok(of_all(tasks, non_preemptive, &mut Meter::new(effort))?)
}

/// How a job is released that has the worst response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Worst {
    pub response_ticks: u64,
    /// After everything else was released.
    pub release_ticks: u64,
    /// The task whose job has started a tick before.
    pub holder: Option<usize>,
}

/// As [`responses`], of one task, with how it comes about.
pub(crate) fn worst(
    tasks: &[Task],
    index: usize,
    non_preemptive: bool,
    effort: &Effort,
) -> Result<Worst, Stop> {
    check(tasks)?;
    let meter = &mut Meter::new(effort);
    let busy_ticks = latest_release(tasks, non_preemptive, meter)?;
    Ok(response(tasks, index, non_preemptive, busy_ticks, meter)?)
}

/// Of tasks that are checked; their jitter, which chains bring, may be longer than a file's.
pub(crate) fn of_all(
    tasks: &[Task],
    non_preemptive: bool,
    meter: &mut Meter,
) -> Result<Vec<u64>, Doubt> {
    let busy_ticks = latest_release(tasks, non_preemptive, meter)?;
    (0..tasks.len())
        .map(|index| Ok(response(tasks, index, non_preemptive, busy_ticks, meter)?.response_ticks))
        .collect()
}

/// A deadline, counted from the last instant of release. Deadlines are at most 2^60, jitter that
/// chains bring 2^61, busy periods 2^62: sums of one of each fit.
fn from_release_ticks(task: &Task) -> i64 {
    task.deadline_ticks as i64 - task.jitter_ticks as i64
}

/// Before which the worst job of each task is released: in the busy period that is held up for
/// longest. At a load of 1 that one does not end. There it is what is due before the longest
/// deadline, and the busy period of jobs that nothing blocks any more, or a hyperperiod.
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
    if is_above_one(tasks) {
        return Err(Doubt::Overflow { what: "the longest busy period: the load is above 1" });
    }
    if tasks.iter().any(never_ends) {
        let jitter_ticks = tasks.iter().map(|task| task.jitter_ticks).max().unwrap_or(0);
        let period_ticks = hyperperiod_ticks(tasks);
        let all_ticks =
            period_ticks.map(|all| all.saturating_add(longest_ticks).saturating_add(jitter_ticks));
        return all_ticks
            .filter(|all| *all <= 4 * MAX_TICKS)
            .ok_or(Doubt::Overflow { what: "the longest busy period" });
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
) -> Result<Worst, Doubt> {
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
    let mut worst = Worst { response_ticks: own.cost_ticks(), release_ticks: 0, holder: None };
    for release_ticks in releases {
        let found = after_release(tasks, index, release_ticks, non_preemptive, meter)?;
        if found.response_ticks > worst.response_ticks {
            worst = found;
        }
    }
    worst.response_ticks = worst.response_ticks.saturating_add(own.jitter_ticks);
    Ok(worst)
}

/// From the last instant at which that job may be released.
fn after_release(
    tasks: &[Task],
    index: usize,
    release_ticks: u64,
    non_preemptive: bool,
    meter: &mut Meter,
) -> Result<Worst, Doubt> {
    let own = &tasks[index];
    let due_ticks = release_ticks as i64 + from_release_ticks(own);
    let is_urgent = |task: &Task| from_release_ticks(task) <= due_ticks;
    let longest_ticks = tasks.iter().map(|task| task.deadline_ticks).max().unwrap_or(0);
    let may_wait =
        |task: &Task| longest_ticks as i64 > due_ticks || task.deadline_ticks == longest_ticks;
    let section = |task: &Task| if may_wait(task) { task.blocking_ticks } else { 0 };
    let sections = tasks.iter().filter(|task| is_urgent(task)).map(section);
    // It has started a tick before.
    let is_later = |other: usize, task: &Task| {
        non_preemptive && other != index && task.deadline_ticks as i64 > due_ticks + 1
    };
    let holders = tasks.iter().enumerate().filter(|(other, task)| is_later(*other, task));
    let longest = holders
        .clone()
        .filter(|(_, task)| !is_urgent(task) && task.cost_ticks() > 1)
        .max_by_key(|(_, task)| task.cost_ticks());
    let section_ticks = sections.max().unwrap_or(0);
    let held_ticks = longest.map_or(0, |(_, task)| task.cost_ticks() - 1);
    let holder = longest.map(|(other, _)| other).filter(|_| held_ticks >= section_ticks);
    let own_jobs = release_ticks / own.period_ticks + u64::from(!non_preemptive);
    let own_ticks = own_jobs.saturating_mul(own.cost_ticks());
    let window = Window { tasks, index, due_ticks, non_preemptive };
    let of = |at_ticks: u64, holder| {
        let wait_ticks = at_ticks.saturating_sub(release_ticks);
        let response_ticks = if non_preemptive {
            wait_ticks.saturating_add(own.cost_ticks())
        } else {
            wait_ticks.max(own.cost_ticks())
        };
        Worst { response_ticks, release_ticks, holder }
    };
    let base_ticks = own_ticks.saturating_add(held_ticks.max(section_ticks));
    let mut worst = of(window.end_ticks(base_ticks, None, meter)?, holder);
    // Jobs of these are due in the window, too, but not beside one that holds it.
    for (other, task) in holders.filter(|(_, task)| is_urgent(task)) {
        let base_ticks = own_ticks.saturating_add(task.cost_ticks() - 1);
        let found = of(window.end_ticks(base_ticks, Some(other), meter)?, Some(other));
        if found.response_ticks > worst.response_ticks {
            worst = found;
        }
    }
    Ok(worst)
}

/// What goes before a job that is due at an instant.
struct Window<'a> {
    tasks: &'a [Task],
    index: usize,
    due_ticks: i64,
    non_preemptive: bool,
}

impl Window<'_> {
    /// When all that goes before is done: the least w.
    fn end_ticks(
        &self,
        base_ticks: u64,
        left_out: Option<usize>,
        meter: &mut Meter,
    ) -> Result<u64, Doubt> {
        let Self { tasks, index, due_ticks, non_preemptive } = *self;
        let goes_before = |(other, task): &(usize, &Task)| {
            *other != index && Some(*other) != left_out && from_release_ticks(task) <= due_ticks
        };
        let others = || tasks.iter().enumerate().filter(goes_before);
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
                return Ok(at_ticks);
            }
            at_ticks = next_ticks;
        }
    }
}
