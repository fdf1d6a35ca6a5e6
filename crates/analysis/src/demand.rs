// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processor demand under EDF, and the one search over it that EDF and np-EDF share.
//!
//! Symbols: C cost, T period, D deadline, J jitter, b blocking. With F = D - J the first deadline
//! after a release at 0, `dbf(t) = sum over F_i <= t of (floor((t - F_i) / T_i) + 1) C_i` is the
//! work of jobs that are released at 0 or later and due by t (Baruah, Mok, Rosier 1990; with jitter
//! Spuri 1996). `hold(t)` is what work that is not due by t can still take of the window: under
//! np-EDF `max over D_i > t + 1 of C_i - 1` (a job that started one tick before), and b of
//! sections. EDF fits if and only if `dbf(t) + hold(t) <= t` for every t from the least F on.
//!
//! Jobs of one task are released in the order of their arrivals. So a job that holds the window
//! came after those of its task that are due by t, and they are not in the window: where `F_i <= t`
//! and `D_i > t + 1`, which takes jitter, the demand beside i's hold leaves out i.
//!
//! The search is QPA (Zhang, Burns, "Schedulability analysis for real-time systems with EDF
//! scheduling", IEEE TC 2009), backwards from a bound on t. It wants a function that does not
//! decrease, and `hold` of np-EDF decreases: so it goes through the stretches in which that is
//! constant, from the last to the first.

use crate::task::{MAX_TICKS, Task};
use crate::utilisation::{Utilisation, hyperperiod_ticks};
use crate::verdict::{Doubt, Meter, Start};
use std::cmp::Ordering;

/// Windows are searched up to here; a longer one is a [`Doubt`].
const MAX_WINDOW_NS: u64 = 4 * MAX_TICKS;
/// Turns of the busy-period iteration before it is left alone.
const BUSY_TURNS: usize = 200;

/// How a deadline can be missed, as a test finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Witness {
    pub pattern: Vec<Start>,
    pub by_ticks: Option<u64>,
    /// The theorem itself refutes: the replay only finds which job it is. Otherwise the replay
    /// must show a miss.
    pub proof: bool,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    first_ticks: u64,
    cost_ticks: u64,
    period_ticks: u64,
}

/// The demand of a checked set, ready to be asked often.
#[derive(Debug)]
pub(crate) struct Demand {
    /// By `first_ticks`.
    rows: Vec<Row>,
    /// Largest blocking of the rows up to each, and whose it is.
    sections: Vec<(u64, usize)>,
}

impl Demand {
    pub(crate) fn of(tasks: &[Task]) -> Self {
        Self::without(tasks, tasks.len())
    }

    /// Of all tasks but this one.
    fn without(tasks: &[Task], left_out: usize) -> Self {
        let mut order: Vec<usize> = (0..tasks.len()).filter(|task| *task != left_out).collect();
        order.sort_by_key(|index| first_ticks(&tasks[*index]));
        let row = |index: &usize| {
            let task = &tasks[*index];
            Row {
                first_ticks: first_ticks(task),
                cost_ticks: task.cost_ticks(),
                period_ticks: task.period_ticks,
            }
        };
        let mut longest = (0, 0);
        let section = |index: &usize| {
            longest = longest.max((tasks[*index].blocking_ticks, *index));
            longest
        };
        Self {
            rows: order.iter().map(row).collect(),
            sections: order.iter().map(section).collect(),
        }
    }

    /// `dbf(t)`; saturates, which is still more than any t. O(n).
    pub(crate) fn at(&self, t_ticks: u64) -> u64 {
        let mut sum: u64 = 0;
        for row in self.rows.iter().take_while(|row| row.first_ticks <= t_ticks) {
            let jobs = (t_ticks - row.first_ticks) / row.period_ticks + 1;
            sum = sum.saturating_add(jobs.saturating_mul(row.cost_ticks));
        }
        sum
    }

    /// The last instant before t at which `dbf` steps. O(n).
    fn step_before(&self, t_ticks: u64) -> Option<u64> {
        let last = |row: &Row| {
            let behind = t_ticks - 1 - row.first_ticks;
            row.first_ticks + behind / row.period_ticks * row.period_ticks
        };
        self.rows.iter().take_while(|row| row.first_ticks < t_ticks).map(last).max()
    }

    fn section_by(&self, t_ticks: u64) -> (u64, usize) {
        let count = self.rows.partition_point(|row| row.first_ticks <= t_ticks);
        count.checked_sub(1).map_or((0, 0), |last| self.sections[last])
    }
}

/// F = D - J; 0 where the jitter is as long as the deadline.
const fn first_ticks(task: &Task) -> u64 {
    task.deadline_ticks.saturating_sub(task.jitter_ticks)
}

/// Windows `from_ticks <= t < to_ticks` in which the same job holds the CPU longest under np-EDF.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from_ticks: u64,
    to_ticks: u64,
    /// `max C_i - 1`, and whose.
    held_ticks: u64,
    holder: Option<usize>,
    /// All deadlines lie within: sections of tasks in the set are over, b is of something outside.
    last: bool,
}

/// What keeps the CPU from the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Nothing,
    /// A job of this task, under way.
    Job(usize),
    /// A section that holds this task up.
    Section(usize, u64),
}

/// `None`: everything fits. `non_preemptive`: a started job runs to its end.
pub(crate) fn overload(
    tasks: &[Task],
    non_preemptive: bool,
    meter: &mut Meter,
) -> Result<Option<Witness>, Doubt> {
    let exact = tasks.iter().all(|task| task.blocking_ticks == 0);
    // A job that is released too late for itself.
    if let Some(task) = tasks.iter().find(|task| task.cost_ticks() > first_ticks(task)) {
        return Ok(Some(witness(tasks, first_ticks(task), Hold::Nothing, true)));
    }
    let utilisation = Utilisation::of(tasks);
    let load = utilisation.compare_to_one(tasks)?;
    let demand = Demand::of(tasks);
    let stretches = stretches(tasks, non_preemptive);
    let outside = tasks.iter().max_by_key(|task| task.deadline_ticks).map_or(0, |longest| {
        let last = tasks.iter().filter(|task| task.deadline_ticks == longest.deadline_ticks);
        last.map(|task| task.blocking_ticks).max().unwrap_or(0)
    });
    let search = Search { tasks, demand: &demand, outside_ticks: outside, exact };
    if load == Ordering::Greater {
        // The miss that the load alone makes certain may be far away: first the windows in which
        // something is held up.
        let near = match search.through(&stretches[1..], longest_deadline(tasks), meter)? {
            None if non_preemptive => search.held_by_jittered(meter)?,
            near => near,
        };
        return Ok(Some(near.unwrap_or_else(|| beyond_one(tasks, utilisation))));
    }
    let end = search_end(tasks, &stretches, utilisation, load == Ordering::Equal, outside, meter)?;
    match search.through(&stretches, end, meter)? {
        None if non_preemptive => search.held_by_jittered(meter),
        found => Ok(found),
    }
}

/// From this window on, jobs of this task are due, or a job of it cannot hold the window.
const fn held_until_ticks(task: &Task) -> u64 {
    let (first_ticks, last_ticks) = (first_ticks(task), task.deadline_ticks - 1);
    if first_ticks < last_ticks { first_ticks } else { last_ticks }
}

fn longest_deadline(tasks: &[Task]) -> u64 {
    tasks.iter().map(|task| task.deadline_ticks).max().unwrap_or(0)
}

/// QPA over stretches.
struct Search<'a> {
    tasks: &'a [Task],
    demand: &'a Demand,
    /// Blocking of windows in which all deadlines lie.
    outside_ticks: u64,
    exact: bool,
}

impl Search<'_> {
    /// An overloaded window that a job of a task with jitter holds, where other jobs of that task
    /// are due by its end. Its own demand is left out. O(n) a step for each such task.
    fn held_by_jittered(&self, meter: &mut Meter) -> Result<Option<Witness>, Doubt> {
        for (holder, task) in self.tasks.iter().enumerate() {
            let from_ticks = held_until_ticks(task);
            if task.cost_ticks() == 1 || from_ticks >= task.deadline_ticks - 1 {
                continue;
            }
            meter.spend(self.tasks.len(), "processor demand")?;
            let demand = Demand::without(self.tasks, holder);
            let held_ticks = task.cost_ticks() - 1;
            let mut next = demand.step_before(task.deadline_ticks - 1);
            while let Some(t) = next.filter(|t| *t >= from_ticks) {
                meter.spend(self.tasks.len(), "processor demand")?;
                let needed = demand.at(t).saturating_add(held_ticks);
                next = match needed.cmp(&t) {
                    Ordering::Greater => {
                        return Ok(Some(witness(self.tasks, t, Hold::Job(holder), self.exact)));
                    }
                    Ordering::Less => Some(needed),
                    Ordering::Equal => demand.step_before(t),
                };
            }
        }
        Ok(None)
    }

    /// The last overloaded window of at most `end`.
    fn through(
        &self,
        stretches: &[Stretch],
        end: u64,
        meter: &mut Meter,
    ) -> Result<Option<Witness>, Doubt> {
        let Self { tasks, demand, outside_ticks: outside, exact } = *self;
        let least = demand.rows.first().map_or(0, |row| row.first_ticks);
        for stretch in stretches.iter().filter(|stretch| stretch.from_ticks <= end) {
            let mut next = demand.step_before(stretch.to_ticks.min(end.saturating_add(1)));
            meter.spend(tasks.len(), "processor demand")?;
            while let Some(t) = next.filter(|t| *t >= stretch.from_ticks.max(least)) {
                meter.spend(tasks.len(), "processor demand")?;
                let section = if stretch.last {
                    (outside, demand.sections.last().map_or(0, |section| section.1))
                } else {
                    demand.section_by(t)
                };
                let (held, hold) = match stretch.holder {
                    Some(holder) if stretch.held_ticks >= section.0 => {
                        (stretch.held_ticks, Hold::Job(holder))
                    }
                    _ if section.0 > 0 => (section.0, Hold::Section(section.1, section.0)),
                    _ => (0, Hold::Nothing),
                };
                let needed = demand.at(t).saturating_add(held);
                next = match needed.cmp(&t) {
                    Ordering::Greater => return Ok(Some(witness(tasks, t, hold, exact))),
                    Ordering::Less => Some(needed),
                    Ordering::Equal => demand.step_before(t),
                };
            }
        }
        Ok(None)
    }
}

/// From the last to the first.
fn stretches(tasks: &[Task], non_preemptive: bool) -> Vec<Stretch> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(held_until_ticks(&tasks[*index])));
    let longest_ticks = longest_deadline(tasks);
    let beyond = Stretch {
        from_ticks: longest_ticks,
        to_ticks: u64::MAX,
        held_ticks: 0,
        holder: None,
        last: true,
    };
    let mut current = Stretch {
        from_ticks: 0,
        to_ticks: longest_ticks,
        held_ticks: 0,
        holder: None,
        last: false,
    };
    let mut all = vec![beyond];
    if non_preemptive {
        for index in order {
            let task = &tasks[index];
            let held_ticks = task.cost_ticks() - 1;
            if held_ticks > current.held_ticks {
                let until_ticks = held_until_ticks(task);
                if until_ticks < current.to_ticks {
                    all.push(Stretch { from_ticks: until_ticks, ..current });
                }
                current =
                    Stretch { to_ticks: until_ticks, held_ticks, holder: Some(index), ..current };
            }
        }
    }
    all.push(current);
    all
}

/// No window longer than this can be overloaded unless a shorter one is.
fn search_end(
    tasks: &[Task],
    stretches: &[Stretch],
    utilisation: Utilisation,
    full: bool,
    outside_ticks: u64,
    meter: &mut Meter,
) -> Result<u64, Doubt> {
    let longest_ticks = longest_deadline(tasks);
    let held_ticks = stretches.iter().map(|stretch| stretch.held_ticks).max().unwrap_or(0);
    let section_ticks = tasks.iter().map(|task| task.blocking_ticks).max().unwrap_or(0);
    let mut ends = Vec::new();
    if full {
        // dbf(t + H) = dbf(t) + H from the last first deadline on.
        ends.extend(hyperperiod_ticks(tasks).map(|all| all.saturating_add(longest_ticks)));
    } else {
        let all = by_utilisation(tasks, utilisation, held_ticks.max(section_ticks));
        let late =
            by_utilisation(tasks, utilisation, outside_ticks).map(|end| end.max(longest_ticks));
        ends.extend([all, late].into_iter().flatten());
    }
    ends.extend(busy_period(tasks, outside_ticks, meter)?.map(|end| end.max(longest_ticks)));
    let end = ends.into_iter().min().filter(|end| *end <= MAX_WINDOW_NS);
    end.ok_or(Doubt::Overflow { what: "the longest window to examine" })
}

/// `dbf(t) <= U t + sum U_i (T_i - F_i)` from `max(F_i - T_i)` on, so that no t above
/// `(sum U_i (T_i - F_i) + hold) / (1 - U)` is overloaded.
fn by_utilisation(tasks: &[Task], utilisation: Utilisation, hold_ticks: u64) -> Option<u64> {
    let room = utilisation.room()?;
    let mut sum = i128::from(hold_ticks);
    let mut least_ticks = 0;
    for task in tasks {
        let (first, period) = (i128::from(first_ticks(task)), i128::from(task.period_ticks));
        let product = i128::from(task.cost_ticks()) * (period - first);
        // Rounded up.
        sum = sum.checked_add(-(-product).div_euclid(period))?;
        least_ticks = least_ticks.max(first_ticks(task).saturating_sub(task.period_ticks));
    }
    let scaled = u128::try_from(sum.max(0)).ok()?.checked_mul(1 << 64)?;
    Some(u64::try_from(scaled.div_ceil(room)).ok()?.max(least_ticks))
}

/// The first instant by which everything released since 0 is done; `None`: not found soon.
fn busy_period(tasks: &[Task], hold_ticks: u64, meter: &mut Meter) -> Result<Option<u64>, Doubt> {
    let mut end: u64 = 1;
    for _ in 0..BUSY_TURNS {
        meter.spend(tasks.len(), "busy period")?;
        let mut work = hold_ticks;
        for task in tasks {
            let jobs = (end.saturating_add(task.jitter_ticks)).div_ceil(task.period_ticks);
            work = work.saturating_add(jobs.saturating_mul(task.cost_ticks()));
        }
        if work == end {
            return Ok(Some(end));
        }
        if work > MAX_WINDOW_NS {
            break;
        }
        end = work;
    }
    Ok(None)
}

/// Utilisation above 1: `dbf(t) > U t - sum U_i F_i`, which exceeds t from `sum U_i F_i / (U - 1)`
/// on.
pub(crate) fn beyond_one(tasks: &[Task], utilisation: Utilisation) -> Witness {
    let mut sum: u128 = 0;
    for task in tasks {
        let product = u128::from(task.cost_ticks()) * u128::from(first_ticks(task));
        sum = sum.saturating_add(product.div_ceil(u128::from(task.period_ticks)));
    }
    let by =
        utilisation.excess().and_then(|excess| Some(sum.checked_mul(1 << 64)?.div_ceil(excess)));
    let by = by.and_then(|by| u64::try_from(by).ok()).filter(|by| *by <= MAX_WINDOW_NS);
    let jitter_ticks = longest_jitter(tasks);
    Witness {
        pattern: together(tasks, jitter_ticks, |_| true),
        by_ticks: by.map(|by| by + jitter_ticks),
        proof: true,
    }
}

fn longest_jitter(tasks: &[Task]) -> u64 {
    tasks.iter().map(|task| task.jitter_ticks).max().unwrap_or(0)
}

/// Every chosen task is released at `at_ticks`, as late after its arrival as its jitter allows, and
/// then as soon as it may.
pub(crate) fn together(
    tasks: &[Task],
    at_ticks: u64,
    chosen: impl Fn(usize) -> bool,
) -> Vec<Start> {
    let start = |task: usize| Start {
        task,
        arrival_ticks: at_ticks.saturating_sub(tasks[task].jitter_ticks),
        release_ticks: at_ticks,
        held_up_ticks: 0,
    };
    (0..tasks.len()).filter(|task| chosen(*task)).map(start).collect()
}

/// The pattern in which the window of length t is overloaded.
fn witness(tasks: &[Task], t_ticks: u64, hold: Hold, proof: bool) -> Witness {
    let holder = if let Hold::Job(task) = hold { Some(task) } else { None };
    let at_ticks = longest_jitter(tasks) + u64::from(holder.is_some());
    let mut pattern = together(tasks, at_ticks, |task| {
        first_ticks(&tasks[task]) <= t_ticks && Some(task) != holder
    });
    if let Some(task) = holder {
        let start_ticks = at_ticks - 1;
        pattern.insert(
            0,
            Start {
                task,
                arrival_ticks: start_ticks,
                release_ticks: start_ticks,
                held_up_ticks: 0,
            },
        );
    }
    if let Hold::Section(victim, held_up_ticks) = hold {
        for start in pattern.iter_mut().filter(|start| start.task == victim) {
            start.held_up_ticks = held_up_ticks;
        }
    }
    Witness { pattern, by_ticks: Some(at_ticks + t_ticks), proof }
}
