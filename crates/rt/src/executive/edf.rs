// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides for [`npedf`](crate::executive::npedf) which job runs: pure, no clock, no code of jobs.
//!
//! Queues as in Yartek: waiting by start, ready by deadline. A job whose start is *not after* now
//! is ready (the paper's text says once `start > RTClock`). When a job has ended, start and
//! deadline move on by one period. Of equal deadlines the first released runs; of equal starts,
//! too, the order of the tasks decides.
//! Room is taken when the set is made; every call is O(n log n) at worst, O(log n) as a rule, and
//! allocates nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens to a late activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// It starts or finishes late. Later activations run one after the other until the backlog is
    /// gone.
    Finish,
    /// It finishes if it has started. If its deadline passes before it starts, it is dropped and
    /// counted.
    Skip,
    /// The executive stops with a [`Fault`].
    Fault,
}

/// A periodic task. The deadline is the end of the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    pub period_ns: u64,
    /// First start, relative to the start of the run.
    pub offset_ns: u64,
    /// Longest run time of one activation. Longer runs are counted, not stopped.
    pub budget_ns: u64,
    pub late: Late,
}

/// One activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    pub task: usize,
    /// Counts from 0 and includes those dropped.
    pub activation: u64,
    pub start_ns: u64,
    pub deadline_ns: u64,
    /// When it was begun.
    pub begun_ns: u64,
    /// Activations dropped just before this one.
    pub skipped: u64,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Run(Tick),
    /// Nothing to do before this start. `None`: there is no periodic task.
    Idle(Option<u64>),
}

/// A task missed a deadline that stops the executive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "task {task}, activation {activation}: its deadline was {deadline_ns} ns, at {at_ns} ns it \
     had not {missing}"
)]
pub struct Fault {
    pub task: usize,
    pub activation: u64,
    pub deadline_ns: u64,
    pub at_ns: u64,
    pub missing: Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Begun,
    Ended,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Begun => "begun",
            Self::Ended => "ended",
        })
    }
}

/// Statistics of a task since the start of the run. Times in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Jobs that ran to their end.
    pub activations: u64,
    /// Those that ended after their deadline.
    pub misses: u64,
    /// Activations that were dropped.
    pub skipped: u64,
    /// Jobs that ran longer than their budget.
    pub over_budget: u64,
    /// Longest time from start to end.
    pub worst_response_ns: u64,
    /// Longest time from start (release) to the first instruction.
    pub worst_start_lateness_ns: u64,
    /// Longest run time.
    pub worst_run_ns: u64,
}

#[derive(Debug)]
struct Entry {
    task: Task,
    start_ns: u64,
    activation: u64,
    /// Dropped since the last one that ran.
    skipped: u64,
    stats: Stats,
}

/// The set and its queues. Between [`next`](Self::next) that says `Run` and [`ended`](Self::ended)
/// the job is in neither queue.
#[derive(Debug)]
pub struct JobSet {
    entries: Vec<Entry>,
    /// (start, task), soonest first.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// (deadline, start, task), soonest first: of equal deadlines the one that is released first,
    /// then in the order of the set, as in the simulator of `asmp-analysis`.
    ready: BinaryHeap<Reverse<(u64, u64, usize)>>,
}

impl JobSet {
    /// Any set, without an admission test: see [`admit`](crate::executive::admit()). A period of 0
    /// counts as 1 ns.
    pub fn new(tasks: &[Task]) -> Self {
        let entry = |task: &Task| Entry {
            task: Task { period_ns: task.period_ns.max(1), ..*task },
            start_ns: 0,
            activation: 0,
            skipped: 0,
            stats: Stats::default(),
        };
        let mut set = Self {
            entries: tasks.iter().map(entry).collect(),
            waiting: BinaryHeap::with_capacity(tasks.len()),
            ready: BinaryHeap::with_capacity(tasks.len()),
        };
        set.begin(0);
        set
    }

    /// Starts anew: first starts are relative to `epoch_ns`.
    pub fn begin(&mut self, epoch_ns: u64) {
        self.waiting.clear();
        self.ready.clear();
        for (task, entry) in self.entries.iter_mut().enumerate() {
            entry.start_ns = epoch_ns.saturating_add(entry.task.offset_ns);
            entry.activation = 0;
            entry.skipped = 0;
            entry.stats = Stats::default();
            self.waiting.push(Reverse((entry.start_ns, task)));
        }
    }

    /// Which job runs at `now_ns`.
    pub fn next(&mut self, now_ns: u64) -> Result<Next, Fault> {
        while let Some(&Reverse((start_ns, task))) = self.waiting.peek() {
            if start_ns > now_ns {
                break;
            }
            self.waiting.pop();
            self.ready.push(Reverse((self.entries[task].deadline_ns(), start_ns, task)));
        }
        while let Some(Reverse((deadline_ns, _, task))) = self.ready.pop() {
            let entry = &mut self.entries[task];
            let over = now_ns.saturating_sub(entry.start_ns) >= entry.task.period_ns;
            match entry.task.late {
                Late::Skip if over => {
                    entry.skip(now_ns);
                    self.ready.push(Reverse((entry.deadline_ns(), entry.start_ns, task)));
                }
                Late::Fault if over => return Err(entry.fault(task, now_ns, Missing::Begun)),
                _ => {
                    return Ok(Next::Run(Tick {
                        task,
                        activation: entry.activation,
                        start_ns: entry.start_ns,
                        deadline_ns,
                        begun_ns: now_ns,
                        skipped: entry.skipped,
                    }));
                }
            }
        }
        Ok(Next::Idle(self.waiting.peek().map(|Reverse((start_ns, _))| *start_ns)))
    }

    /// Reports the end of the job that [`next`](Self::next) returned.
    pub fn ended(&mut self, tick: &Tick, ended_ns: u64) -> Result<(), Fault> {
        let entry = &mut self.entries[tick.task];
        let stats = &mut entry.stats;
        let run_ns = ended_ns.saturating_sub(tick.begun_ns);
        let missed = ended_ns > tick.deadline_ns;
        stats.activations += 1;
        stats.misses += u64::from(missed);
        stats.over_budget += u64::from(run_ns > entry.task.budget_ns);
        stats.worst_run_ns = stats.worst_run_ns.max(run_ns);
        stats.worst_response_ns =
            stats.worst_response_ns.max(ended_ns.saturating_sub(tick.start_ns));
        stats.worst_start_lateness_ns =
            stats.worst_start_lateness_ns.max(tick.begun_ns.saturating_sub(tick.start_ns));
        if missed && entry.task.late == Late::Fault {
            return Err(entry.fault(tick.task, ended_ns, Missing::Ended));
        }
        entry.start_ns = entry.start_ns.saturating_add(entry.task.period_ns);
        entry.activation += 1;
        entry.skipped = 0;
        self.waiting.push(Reverse((entry.start_ns, tick.task)));
        Ok(())
    }

    /// Statistics of the tasks, in their order.
    pub fn stats(&self) -> impl Iterator<Item = &Stats> {
        self.entries.iter().map(|entry| &entry.stats)
    }
}

impl Entry {
    fn deadline_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.task.period_ns)
    }

    /// Drops each activation whose deadline is over. The one that is left has started.
    fn skip(&mut self, now_ns: u64) {
        let skipped = now_ns.saturating_sub(self.start_ns) / self.task.period_ns;
        self.start_ns = self.start_ns.saturating_add(skipped.saturating_mul(self.task.period_ns));
        self.activation += skipped;
        self.skipped += skipped;
        self.stats.skipped += skipped;
    }

    fn fault(&self, task: usize, at_ns: u64, missing: Missing) -> Fault {
        Fault { task, activation: self.activation, deadline_ns: self.deadline_ns(), at_ns, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_analysis::simulate::{Record, Releases, Run, Simulation};
    use asmp_analysis::{self as analysis, Policy};

    /// Offset, period and cost of each task.
    type Timed = (u64, u64, u64);

    /// The first jobs of a set run in this order, here and in the simulator.
    #[track_caller]
    fn assert_order(set: &[Timed], expected: &[usize]) {
        let task = |(offset_ns, period_ns, budget_ns): &Timed| Task {
            period_ns: *period_ns,
            offset_ns: *offset_ns,
            budget_ns: *budget_ns,
            late: Late::Finish,
        };
        let mut jobs = JobSet::new(&set.iter().map(task).collect::<Vec<_>>());
        let mut order = Vec::new();
        let mut now_ns = 0;
        while order.len() < expected.len() {
            match jobs.next(now_ns).unwrap() {
                Next::Run(tick) => {
                    order.push(tick.task);
                    now_ns += set[tick.task].2;
                    jobs.ended(&tick, now_ns).unwrap();
                }
                Next::Idle(next_ns) => now_ns = next_ns.unwrap(),
            }
        }
        assert_eq!(order, expected);
        let named = set.iter().enumerate().map(|(task, (offset, period, cost))| {
            analysis::Task::new(task.to_string(), *cost, *period).offset(*offset)
        });
        let tasks: Vec<analysis::Task> = named.collect();
        let simulation = Simulation::new(&tasks, Policy::NpEdf, Releases::Together);
        let mut run = Run::prepare(&simulation).unwrap();
        let mut record = Record::up_to(expected.len());
        run.go(now_ns + 1, 100, &mut record);
        let simulated: Vec<usize> = record.segments.iter().map(|segment| segment.stream).collect();
        assert_eq!(simulated, expected);
    }

    #[test]
    fn of_equal_deadlines_the_first_released_runs_as_in_the_simulator() {
        // The first four are due at 60; the last keeps them waiting until all are released.
        let set = [(20, 40, 2), (10, 50, 2), (10, 50, 2), (0, 60, 2), (0, 30, 25)];
        assert_order(&set, &[4, 3, 1, 2, 0]);
    }

    #[test]
    fn a_later_release_with_the_same_deadline_does_not_overtake_by_its_number() {
        // In tenths of a ms: both are due at 21 ms. By numbers the order would be 2 0 1.
        assert_order(&[(110, 100, 10), (10, 200, 10), (0, 120, 115)], &[2, 1, 0]);
    }
}
