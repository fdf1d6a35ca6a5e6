// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel needs to begin a job, on each board in QEMU: D(n) = a + b n instructions for n
//! tasks in the table, as board.toml has it. And what handlers and the clock's interrupts take.
//!
//!     cargo run --release -p asmp-yartek --example dispatch [BOARD...]
//!
//! D is the time from the start of a job, or from the end of the job before if that is later, to
//! its begin: with the trace, which keeps the job before. It is the longest of all jobs of some
//! runs of 12 s:
//!
//! - all tasks start together while the CPU is idle, and each by itself;
//! - all others start while a long job runs: the same start for all of them, and each before the
//!   one above it in the table, so that each comparison of two jobs is the longest;
//! - all tasks start just before, while, and just after a job ends, a tick apart from job to job.
//!   The kernel has then looked for a job in vain, and sets an alarm that is over.
//!
//! The last is the longest. To it is added what the comparisons of the second take more.
//!
//! The clock's own interrupts may fall into any D, and seldom do: D is without them. Theirs is what
//! a job of 10^8 instructions takes longer than these, a part of it for each interrupt: the guard
//! looks at the job each time.

#[path = "../tests/board/mod.rs"]
mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending, Trace};
use board::{Board, Line, c_file, each, number};

const COUNTS: [u64; 4] = [1, 2, 8, 32];
const UNTIL_US: u64 = 12_000_000;
const ROUNDS: u64 = 50_000_000;
const INSTRUCTIONS_A_ROUND: u64 = 2;
/// All boards count multiples of it exactly.
const STEP_US: u64 = 96;
/// Of the run that sweeps: so many instructions before and after a start.
const BEFORE_INSTRUCTIONS: u64 = 500;
const AFTER_INSTRUCTIONS: u64 = 200;
/// As in `arrival.c`.
const SAMPLES: u64 = 1024;

type Entry = (&'static str, Task, &'static str);

fn spin(cost_us: u64, period_us: u64) -> Entry {
    ("yk_spin", Task::new("t", cost_us, period_us), "YK_FINISH")
}

fn longest_ticks(trace: &Trace) -> u64 {
    let mut end_ticks = 0;
    let dispatch = trace.jobs.iter().map(|job| {
        let from_ticks = job.start_ticks.max(end_ticks);
        end_ticks = job.end_ticks;
        job.begun_ticks - from_ticks
    });
    dispatch.max().expect("jobs")
}

fn trace(board: &Board, words: &[&str], application: Application, tasks: &[Entry]) -> Trace {
    let table = board.table(tasks, &[]);
    let output = board.run_with(words, application, &table, board.ticks(UNTIL_US));
    let trace = Trace::of(&output.console, tasks.len());
    assert_eq!(trace.partial, None, "{}", output.console);
    trace
}

/// With so many tasks, so far apart, on an idle CPU.
fn idle_ticks(board: &Board, count: u64, apart_us: u64) -> u64 {
    let task = |n| ("yk_spin", Task::new("t", 150, 20_000).offset(n * apart_us), "YK_FINISH");
    let tasks: Vec<_> = (0..count).map(task).collect();
    longest_ticks(&trace(board, &[], Application::Spin, &tasks))
}

/// A long job covers the starts of the others, which all have the same deadline.
fn covered_ticks(board: &Board, count: u64, apart_us: u64) -> u64 {
    let (period_us, due_us) = (200 * STEP_US, 150 * STEP_US);
    let mut tasks = vec![spin(60 * STEP_US, period_us)];
    for n in 1..count {
        let offset_us = STEP_US + (count - n) * apart_us;
        let (entry, task, late) = spin(STEP_US, period_us);
        tasks.push((entry, task.offset(offset_us).deadline(due_us - offset_us), late));
    }
    tasks[0].1 = tasks[0].1.clone().deadline(61 * STEP_US);
    longest_ticks(&trace(board, &[], Application::Spin, &tasks))
}

/// A job ends at each instant near the start of all tasks. Their deadlines are so far apart, the
/// later in the table the earlier.
fn swept_ticks(board: &Board, count: u64, apart_us: u64) -> u64 {
    let period_us = 100 * STEP_US;
    let ticks = |instructions| board.ticks(instructions * board.0.instruction_ps / 1_000_000) + 1;
    let before = ticks(BEFORE_INSTRUCTIONS);
    let words =
        [format!("-DBEFORE={before}"), format!("-DSWEEP={}", before + ticks(AFTER_INSTRUCTIONS))];
    let mut tasks = vec![("last", Task::new("t", STEP_US, period_us), "YK_FINISH")];
    for n in 1..count {
        let (entry, task, late) = spin(STEP_US, period_us);
        tasks.push((entry, task.deadline(50 * STEP_US - n * apart_us), late));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let files = [c_file("sweep.c")];
    longest_ticks(&trace(board, &words, Application::Files(&files), &tasks))
}

/// The longest D of so many tasks, in instructions.
fn longest(board: &Board, count: u64) -> u64 {
    let idle = [0, 500].map(|apart_us| idle_ticks(board, count, apart_us));
    let covered = [0, STEP_US].map(|apart_us| covered_ticks(board, count, apart_us));
    let swept = [0, STEP_US].map(|apart_us| swept_ticks(board, count, apart_us));
    let all = [idle, covered, swept].map(|ticks| ticks.map(|ticks| board.instructions_up(ticks)));
    println!("{}: n = {count}: idle, covered, swept: {all:?}", board.name());
    let [idle, covered, swept] = all.map(|both| both[0].max(both[1]));
    idle.max(covered).max(swept + (covered - all[1][0]))
}

/// Of one interrupt of the clock, on the average.
fn clock_instructions(board: &Board) -> f64 {
    let never = "YK_FINISH, .most = 1000000000";
    let table = board.table(&[("count", Task::new("count", 1, 10_000_000), never)], &[]);
    let words = format!("-DCOUNT_ROUNDS={ROUNDS}");
    let files = [c_file("cost.c")];
    let until_ticks = board.ticks(5_000_000);
    let output = board.run_with(&[&words], Application::Files(&files), &table, until_ticks);
    let trace = Trace::of(&output.console, 1);
    let job = trace.jobs.first().expect("a job");
    let ticks = job.end_ticks - job.begun_ticks;
    let more = board.instructions_up(ticks) - INSTRUCTIONS_A_ROUND * ROUNDS;
    more as f64 / (ticks as f64 / board.0.clock_interrupt_ticks as f64)
}

/// Of a handler that puts its line into the queue and masks its source: a storm with `most = 1`.
fn handler_instructions(board: &Board) -> f64 {
    let tasks = [("work", Task::new("t", 1000, 5000), "YK_FINISH")];
    let table = board.table(&tasks, &[Line { service: "serve", most: 1 }]);
    let files = [c_file("storm.c")];
    let ticks = [&[][..], &["-DSTORM"]].map(|words| {
        let until_ticks = board.ticks(UNTIL_US);
        let output = board.run_with(words, Application::Files(&files), &table, until_ticks);
        let jobs = Trace::of(&output.console, 1).jobs;
        let all: u64 = jobs.iter().map(|job| job.end_ticks - job.begun_ticks).sum();
        all as f64 / jobs.len() as f64
    });
    (ticks[1] - ticks[0]) * board.instructions_up(1_000_000) as f64 / 1e6
}

/// Of an arrival with so many sporadic tasks: its handler, a look at all, a pass for nothing.
fn arrive_instructions(board: &Board, count: u64) -> [f64; 3] {
    let late: Vec<String> =
        (0..count).map(|n| format!("YK_FINISH, .arrivals = &came_for[{n}]")).collect();
    let task = |late| ("work", Task::new("t", 100, 1000), late);
    let tasks: Vec<_> = late.iter().map(|late| task(late.as_str())).collect();
    let include = "#include \"yartek.h\"\n";
    let table = board.table(&tasks, &[Line { service: "serve", most: 0 }]);
    let declared = format!("{include}extern struct yk_arrivals came_for[{count}];\n");
    let table = table.replace(include, &declared);
    let files = [c_file("arrival.c")];
    let words = format!("-DTASKS={count}");
    let output = board.run_with(&[&words], Application::Files(&files), &table, 0);
    assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
    ["handlers", "scans", "passes"].map(|name| {
        let all = board.instructions_up(number(&output, name));
        all as f64 / SAMPLES as f64
    })
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    each(|board| {
        if !named.is_empty() && !named.iter().any(|name| name == board.name()) {
            return;
        }
        let all = COUNTS.map(|count| (count, longest(board, count)));
        let (first, last) = (all[0], all[all.len() - 1]);
        let b = (last.1 - first.1).div_ceil(last.0 - first.0);
        let a = all.iter().map(|(count, longest)| longest.saturating_sub(b * count)).max();
        let name = board.name();
        println!("{name}: n and longest D, in instructions: {all:?}");
        println!("{name}: a = {}, b = {b}", a.expect("counts"));
        println!("{name}: an interrupt of the clock: {:.1}", clock_instructions(board));
        println!("{name}: a handler: {:.1}", handler_instructions(board));
        let [two, all] = [2, 32].map(|count| arrive_instructions(board, count));
        println!("{name}: an arrival: handler, look, pass: 2 tasks {two:.1?}, 32 {all:.1?}");
        let sum = |of: [f64; 3]| of.iter().sum::<f64>();
        let b = ((sum(all) - sum(two)) / 30.0).ceil();
        println!("{name}: an arrival: a = {}, b = {b}", (sum(two) - 2.0 * b).ceil());
    });
}
