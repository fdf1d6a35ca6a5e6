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
//! sum. As b grows, so do the jobs that are due, and w with them where B does not fall: the search
//! for the next w begins at the last. For people and for chains: the verdict of a set comes from
//! the demand, which is quicker.
//!
//! At a load of 1 with jitter or sections the busy period need not end. Once b is so late that jobs
//! of all tasks count and none holds the window, a job at b + H has the response of the one at b
//! (H: the hyperperiod). For the work of all tasks in H is H, so that w grows by exactly H. It is
//! enough to look at b up to one hyperperiod beyond the longest deadline.

use crate::check::check;
use crate::task::{MAX_TICKS, Task};
use crate::utilisation::{Utilisation, hyperperiod_ticks, is_above_one};
use crate::verdict::{Doubt, Effort, Meter, Stop};

/// Releases that are looked at for one task; 16 bytes each.
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

/// One task among those that go before another, at one instant of that one's release.
#[derive(Debug, Clone, Copy)]
struct Other {
    /// A deadline, counted from the last instant of release.
    from_release_ticks: i64,
    deadline_ticks: i64,
    period_ticks: u64,
    cost_ticks: u64,
    jitter_ticks: u64,
    blocking_ticks: u64,
    /// Jobs that are due no later than the one looked at, 0 of that one's task; their work; and the
    /// arrival of the last from the first on.
    jobs: u64,
    work_ticks: u64,
    last_ticks: u64,
}

impl Other {
    fn of(task: &Task) -> Self {
        Self {
            from_release_ticks: from_release_ticks(task),
            deadline_ticks: task.deadline_ticks as i64,
            period_ticks: task.period_ticks,
            cost_ticks: task.cost_ticks(),
            jitter_ticks: task.jitter_ticks,
            blocking_ticks: task.blocking_ticks,
            jobs: 0,
            work_ticks: 0,
            last_ticks: 0,
        }
    }

    fn with_jobs(self, jobs: u64) -> Self {
        Self {
            jobs,
            work_ticks: jobs.saturating_mul(self.cost_ticks),
            last_ticks: jobs.saturating_sub(1).saturating_mul(self.period_ticks),
            ..self
        }
    }

    /// One more job is due.
    const fn add(&mut self) {
        self.work_ticks = self.work_ticks.saturating_add(self.cost_ticks);
        if self.jobs > 0 {
            self.last_ticks = self.last_ticks.saturating_add(self.period_ticks);
        }
        self.jobs += 1;
    }

    /// Work of its due jobs that are released by then. Most are: that needs no division.
    const fn before(&self, at_ticks: u64, non_preemptive: bool) -> u64 {
        let until_ticks = at_ticks.saturating_add(self.jitter_ticks);
        if until_ticks > self.last_ticks || non_preemptive && until_ticks == self.last_ticks {
            return self.work_ticks;
        }
        let so_far = match non_preemptive {
            true => until_ticks / self.period_ticks + 1,
            false => until_ticks.div_ceil(self.period_ticks),
        };
        so_far.saturating_mul(self.cost_ticks)
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
    let mut others: Vec<Other> = tasks.iter().map(Other::of).collect();
    // Instants, and whose deadline it is that coincides with the job's own.
    let mut releases: Vec<(u64, u32)> = Vec::new();
    for (other, row) in others.iter_mut().enumerate() {
        // k T_j + E_j - E_i for every k that gives 0 <= b < busy_ticks.
        let mut at = row.from_release_ticks - from_release_ticks(own);
        if at < 0 {
            let earlier = at.unsigned_abs().div_ceil(row.period_ticks);
            at += (earlier * row.period_ticks) as i64;
            *row = row.with_jobs(earlier);
        }
        while at < busy_ticks as i64 {
            meter.spend(1, "response times")?;
            if releases.len() == MOST_RELEASES {
                return Err(Doubt::Steps {
                    steps: MOST_RELEASES as u64,
                    what: "releases in the longest busy period",
                });
            }
            releases.push((at as u64, other as u32));
            at += row.period_ticks as i64;
        }
    }
    releases.sort_unstable_by_key(|(at_ticks, _)| *at_ticks);
    others[index] = others[index].with_jobs(0);
    let mut window = Window {
        longest_ticks: others.iter().map(|other| other.deadline_ticks).max().unwrap_or(0),
        has_sections: tasks.iter().any(|task| task.blocking_ticks > 0),
        has_jitter: tasks.iter().any(|task| task.jitter_ticks > 0),
        others,
        index,
        own_jobs: 0,
        non_preemptive,
        longest: None,
        last: None,
    };
    window.find_longest(from_release_ticks(own));
    let mut worst = Worst { response_ticks: own.cost_ticks(), release_ticks: 0, holder: None };
    for at_once in releases.chunk_by(|one, next| one.0 == next.0) {
        for (_, other) in at_once {
            match *other as usize == index {
                true => window.own_jobs += 1,
                false => window.others[*other as usize].add(),
            }
        }
        let found = window.after_release(at_once[0].0, meter)?;
        if found.response_ticks > worst.response_ticks {
            worst = found;
        }
    }
    worst.response_ticks = worst.response_ticks.saturating_add(own.jitter_ticks);
    Ok(worst)
}

/// What goes before a job of one task, as it is released later and later.
struct Window {
    others: Vec<Other>,
    index: usize,
    /// Of its own task, due by then.
    own_jobs: u64,
    non_preemptive: bool,
    longest_ticks: i64,
    has_sections: bool,
    has_jitter: bool,
    /// Has started a tick before, and no job of it is due. Tasks only ever leave this choice.
    longest: Option<usize>,
    /// Base and end of the release before: no earlier one is later, for a base that is no less.
    last: Option<(u64, u64)>,
}

impl Window {
    /// A job of it may have started a tick before a window that ends at an instant.
    fn may_hold(&self, other: usize, due_ticks: i64) -> bool {
        self.non_preemptive
            && other != self.index
            && self.others[other].deadline_ticks > due_ticks + 1
    }

    /// Such a task with no job in the window.
    fn may_hold_alone(&self, other: usize, due_ticks: i64) -> bool {
        let row = &self.others[other];
        self.may_hold(other, due_ticks) && row.from_release_ticks > due_ticks && row.cost_ticks > 1
    }

    fn find_longest(&mut self, due_ticks: i64) {
        let all = (0..self.others.len()).filter(|other| self.may_hold_alone(*other, due_ticks));
        self.longest = all.max_by_key(|other| self.others[*other].cost_ticks);
    }

    fn section_ticks(&self, due_ticks: i64) -> u64 {
        let may_wait = |row: &Other| {
            self.longest_ticks > due_ticks || row.deadline_ticks == self.longest_ticks
        };
        let counts = |row: &&Other| row.from_release_ticks <= due_ticks && may_wait(row);
        self.others.iter().filter(counts).map(|row| row.blocking_ticks).max().unwrap_or(0)
    }

    /// From the last instant at which that job may be released, which is later each time.
    fn after_release(&mut self, release_ticks: u64, meter: &mut Meter) -> Result<Worst, Doubt> {
        let own = self.others[self.index];
        let due_ticks = release_ticks as i64 + own.from_release_ticks;
        if self.longest.is_some_and(|other| !self.may_hold_alone(other, due_ticks)) {
            self.find_longest(due_ticks);
        }
        let section_ticks = if self.has_sections { self.section_ticks(due_ticks) } else { 0 };
        let held_ticks = self.longest.map_or(0, |other| self.others[other].cost_ticks - 1);
        let holder = self.longest.filter(|_| held_ticks >= section_ticks);
        let own_jobs = self.own_jobs - u64::from(self.non_preemptive);
        let own_ticks = own_jobs.saturating_mul(own.cost_ticks);
        let non_preemptive = self.non_preemptive;
        let of = |at_ticks: u64, holder| {
            let wait_ticks = at_ticks.saturating_sub(release_ticks);
            let response_ticks = match non_preemptive {
                true => wait_ticks.saturating_add(own.cost_ticks),
                false => wait_ticks.max(own.cost_ticks),
            };
            Worst { response_ticks, release_ticks, holder }
        };
        let base_ticks = own_ticks.saturating_add(held_ticks.max(section_ticks));
        let known = self.last.filter(|(base, _)| *base <= base_ticks).map_or(0, |(_, end)| end);
        let end_ticks = self.end_ticks(base_ticks, known, meter)?;
        let mut worst = of(end_ticks, holder);
        if self.has_jitter {
            // Jobs of these are due in the window, too, but not beside one that holds it.
            for other in 0..self.others.len() {
                let row = self.others[other];
                if row.from_release_ticks > due_ticks || !self.may_hold(other, due_ticks) {
                    continue;
                }
                let base_ticks = own_ticks.saturating_add(row.cost_ticks - 1);
                self.others[other] = row.with_jobs(0);
                let end_ticks = self.end_ticks(base_ticks, 0, meter);
                self.others[other] = row;
                let found = of(end_ticks?, Some(other));
                if found.response_ticks > worst.response_ticks {
                    worst = found;
                }
            }
        }
        self.last = Some((base_ticks, end_ticks));
        Ok(worst)
    }

    /// When all that goes before is done: the least w, which is not before `known_ticks`.
    fn end_ticks(
        &self,
        base_ticks: u64,
        known_ticks: u64,
        meter: &mut Meter,
    ) -> Result<u64, Doubt> {
        let mut at_ticks = base_ticks.max(known_ticks);
        loop {
            meter.spend(self.others.len(), "response times")?;
            let mut next_ticks = base_ticks;
            for other in &self.others {
                if other.jobs > 0 {
                    let before_ticks = other.before(at_ticks, self.non_preemptive);
                    next_ticks = next_ticks.saturating_add(before_ticks);
                }
            }
            if next_ticks <= at_ticks {
                return Ok(at_ticks);
            }
            at_ticks = next_ticks;
        }
    }
}
