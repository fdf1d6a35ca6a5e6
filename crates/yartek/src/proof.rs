// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does a task set meet its deadlines on a board, the kernel and interrupts included?
//!
//! # Approach
//! The exact test of non-preemptive EDF of `asmp-analysis`, in ticks of the board. Its costs hold
//! all that keeps the CPU from the end of the job before, or from the start, to the end:
//!
//! - the cost of the file, rounded up, and one tick more: a job may begin between two ticks, and
//!   the test counts from the tick before;
//! - D(n) = a + b n, what the kernel needs to begin a job of n tasks;
//! - handlers. While a job runs for a time W, an interrupt line whose raises are at least G apart
//!   runs its handler `floor(W / G) + 1` times at most. A line with `most = k` runs it k times: it
//!   is masked until its service has run, and services run in the background. The smaller of the
//!   two counts. W includes these handlers, so it is found by iteration;
//! - arrivals of sporadic tasks: each has a handler, which nothing masks, with the period as G;
//! - interrupts of the clock, whose distance the board says.
//!
//! Offsets are left out: any first arrivals must do. The kernel's own time moves the jobs against
//! each other, so that a set that fits by its offsets alone may miss.

use crate::board::Board;
use crate::table::{Refusal, Table, TableTask};
use asmp_analysis::simulate::Interrupt;
use asmp_analysis::slack::largest;
use asmp_analysis::{
    Arrival, Effort, Outcome, Policy, Report, SampledChain, Task, Utilisation, Verdict, Workload,
    analyse,
};

/// The iteration for a window ends after so many rounds, and the window counts as endless.
const MOST_TURNS: u32 = 100_000;

/// What is known of a set on a board. Times are in ticks.
#[derive(Debug, Clone)]
pub struct Proof {
    /// In place of each cost what its job may take: with the kernel and the handlers.
    pub tasks: Vec<Task>,
    pub report: Report,
    /// By how much the cost of each task alone may grow in the file, its `most` as it is. The
    /// handlers that a longer job takes are counted. `None`: not known.
    pub extra_ticks: Vec<Option<u64>>,
    /// Of the tasks alone, and with all that is added to them.
    pub utilisation: f64,
    pub whole_utilisation: f64,
}

/// A line, or the clock, as the costs of tasks see it.
struct Handler {
    ticks: u64,
    /// In parts of the file.
    gap: Option<u64>,
    most: Option<u32>,
}

/// Tests the set of this table. Errors: a `most` that stops jobs which are right.
pub fn prove(
    workload: &Workload,
    table: &Table,
    board: &Board,
    effort: &Effort,
) -> Result<Proof, Refusal> {
    let rate = board.rate();
    let of_instructions = |count: u64| rate.ticks_of_ps(count.saturating_mul(board.instruction_ps));
    let own = of_instructions(board.handler_instructions);
    let of_line = |line: &Interrupt| Handler {
        ticks: add(own, parts_up(table, line.flag_ticks)),
        gap: line.gap_ticks,
        most: line.most,
    };
    // A nanosecond shorter at most.
    let clock_ns = rate.ns_up(board.clock_interrupt_ticks).unwrap_or(u64::MAX) - 1;
    let clock = Handler {
        ticks: of_instructions(board.clock_interrupt_instructions),
        gap: Some(clock_ns.saturating_mul(workload.time.ticks_per_ns())),
        most: None,
    };
    let of_arrivals = |task: &Task| Handler {
        ticks: of_instructions(board.arrive_instructions(table.tasks.len())),
        gap: Some(task.period_ticks),
        most: None,
    };
    let sporadic = workload.tasks.iter().filter(|task| task.arrival == Arrival::Sporadic);
    let lines = workload.interrupts.iter().map(of_line);
    let handlers: Vec<Handler> =
        lines.chain(sporadic.map(of_arrivals)).chain(std::iter::once(clock)).collect();
    let dispatch = of_instructions(board.dispatch_instructions(table.tasks.len()));
    let pairs = || table.tasks.iter().zip(&workload.tasks);
    // With so many ticks more than in the file.
    let whole = |on_board: &TableTask, extra_ticks| {
        let times = on_board.times;
        let alone_ticks = add(add(add(times.cost_ticks, 1), dispatch), extra_ticks);
        // A job beyond that is late in any case.
        let limit_ticks = times.period_ticks.max(times.deadline_ticks);
        window(alone_ticks, &handlers, limit_ticks, table, workload)
    };
    let mut tasks = Vec::with_capacity(table.tasks.len());
    for (on_board, task) in pairs() {
        let cost_ticks = whole(on_board, 0);
        if on_board.most_ticks.is_some_and(|most| most < cost_ticks) {
            let (task, least) = (on_board.name.clone(), table.clock.show(cost_ticks));
            return Err(Refusal::Most { task, least });
        }
        tasks.push(Task {
            cost: task.cost.with_ticks(cost_ticks),
            blocking_ticks: parts_up(table, task.blocking_ticks),
            core: None,
            ..plain(on_board, task)
        });
    }
    let plain: Vec<Task> = pairs().map(|(on_board, task)| plain(on_board, task)).collect();
    // A limit that is kept with a tick less is kept.
    let limit = |parts: Option<u64>| parts.map(|parts| parts_up(table, parts).saturating_sub(1));
    let sampled = workload.sampled.iter().map(|chain| SampledChain {
        age_limit_ticks: limit(chain.age_limit_ticks),
        reaction_limit_ticks: limit(chain.reaction_limit_ticks),
        ..chain.clone()
    });
    let sampled = sampled.collect();
    let set = Workload { sampled, room: workload.room, ..Workload::of(tasks) };
    let report = analyse(&set, Policy::NpEdf, &[], effort);
    let extra = |at: usize, extra: Option<u64>| {
        let on_board = &table.tasks[at];
        let room_ticks = add(set.tasks[at].cost_ticks(), extra?);
        let most_ticks = on_board.most_ticks.map_or(room_ticks, |most| most.min(room_ticks));
        Some(largest(0, extra?, |more| whole(on_board, more) <= most_ticks))
    };
    // One CPU has all tasks, in their order.
    let extras = report.cpus.iter().flat_map(|cpu| &cpu.extra_ticks);
    let extra_ticks = extras.enumerate().map(|(at, ticks)| extra(at, *ticks)).collect();
    let load = |tasks: &[Task]| Utilisation::of(tasks).approximate();
    Ok(Proof {
        utilisation: load(&plain),
        whole_utilisation: load(&set.tasks),
        tasks: set.tasks,
        report,
        extra_ticks,
    })
}

/// A task with the times of the table.
fn plain(on_board: &TableTask, task: &Task) -> Task {
    let times = on_board.times;
    Task {
        cost: task.cost.with_ticks(times.cost_ticks),
        period_ticks: times.period_ticks,
        deadline_ticks: times.deadline_ticks,
        offset_ticks: None,
        most_ticks: on_board.most_ticks,
        arrival: if on_board.is_sporadic { Arrival::Sporadic } else { Arrival::Periodic },
        ..task.clone()
    }
}

/// A sum that does not fit 64 bits is larger than any period: its exact value does not matter.
fn add(one: u64, other: u64) -> u64 {
    one.saturating_add(other)
}

/// A time of the file in ticks. One that is too long to count is longer than any period.
fn parts_up(table: &Table, parts: u64) -> u64 {
    table.clock.up(parts).unwrap_or(u64::MAX)
}

/// How long a job takes at most, with its handlers. Above the limit, any value above it will do.
fn window(
    alone_ticks: u64,
    handlers: &[Handler],
    limit_ticks: u64,
    table: &Table,
    workload: &Workload,
) -> u64 {
    // One of each may run when the window begins.
    let begun = handlers.iter().fold(0, |sum, handler| add(sum, handler.ticks));
    let mut ticks = alone_ticks;
    for _ in 0..MOST_TURNS {
        let window_ns = table.clock.rate().ns_up(add(ticks, begun)).unwrap_or(u64::MAX);
        let parts = u128::from(window_ns) * u128::from(workload.time.ticks_per_ns());
        let of = |handler: &Handler| {
            let by_gap = handler.gap.map(|gap| parts / u128::from(gap.max(1)) + 1);
            let by_most = handler.most.map(u128::from);
            // A table refuses a line with neither.
            let count = by_gap.into_iter().chain(by_most).min().unwrap_or(0);
            u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(handler.ticks)
        };
        let next = handlers.iter().fold(alone_ticks, |sum, handler| add(sum, of(handler)));
        if next == ticks || next > limit_ticks {
            return next;
        }
        ticks = next;
    }
    add(limit_ticks, 1)
}

impl Proof {
    pub fn outcome(&self) -> Outcome {
        self.report.outcome()
    }

    /// Why the set is not proved, in a line. `None`: it is.
    pub fn doubt(&self, table: &Table) -> Option<String> {
        let not_proved = |verdict: &&Verdict| !verdict.is_schedulable();
        let all = self.report.cpus.iter().map(|cpu| &cpu.verdict);
        let chains = self.report.sampled.iter().map(|chain| &chain.verdict);
        Some(match all.chain(chains).find(not_proved)? {
            Verdict::NotSchedulable { .. } => self.counterexample(table),
            Verdict::DoesNotApply { reason } => format!("the test does not apply: {reason}"),
            Verdict::Unknown { reason } => reason.to_string(),
            Verdict::Schedulable => return None,
        })
    }

    /// A run that misses a deadline, in one line: what `asmp analyze` calls a counterexample.
    fn counterexample(&self, table: &Table) -> String {
        let show = |ticks| table.clock.show(ticks);
        let name = |task: usize| self.tasks[task].name.as_str();
        let found = self.report.cpus.iter().find_map(|cpu| cpu.verdict.counterexample());
        let Some(found) = found else { return "a deadline is missed".to_owned() };
        let Some(missed) = found.missed else { return "the load is above 1".to_owned() };
        let end = missed.finished_ticks.map_or_else(
            || "finishes after the end of the replay".to_owned(),
            |at| format!("finishes at {}", show(at)),
        );
        let (task, job) = (name(missed.task), missed.job);
        let (release, due) = (show(missed.release_ticks), show(missed.deadline_ticks));
        let first = found.pattern.iter().min_by_key(|start| start.release_ticks);
        let is_alone =
            |at| found.pattern.iter().filter(|start| start.release_ticks == at).count() == 1;
        let count = found.pattern.len();
        let when = match first.filter(|first| count > 1 && is_alone(first.release_ticks)) {
            Some(first) => format!("{} starts a tick before the others", name(first.task)),
            None => format!("{count} tasks are released together"),
        };
        format!(
            "job {job} of {task}, released at {release}, is due at {due} and {end}, when {when}"
        )
    }
}
