// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel needs to begin a job, on each board in QEMU: D(n) = a + b n instructions for n
//! tasks in the table, as board.toml has it.
//!
//!     cargo run --release -p asmp-yartek --example dispatch
//!
//! D is the time from the start of a job, or from the end of the job before if that is later, to
//! its begin: with the trace, which keeps the job before. It is the longest of all jobs of two runs
//! of 12 s: all tasks start together, and each by itself.
//!
//! The clock's own interrupts may fall into any D, and seldom do: D is without them. Theirs is what
//! a job of 10^8 instructions takes longer than these, a part of it for each interrupt: the guard
//! looks at the job each time.

#[path = "../tests/board/mod.rs"]
mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Trace};
use board::{Board, c_file, each};

const COUNTS: [u64; 6] = [1, 2, 4, 8, 16, 32];
const PERIOD_US: u64 = 20_000;
const UNTIL_US: u64 = 12_000_000;
const ROUNDS: u64 = 50_000_000;
const INSTRUCTIONS_A_ROUND: u64 = 2;

/// With so many tasks, so far apart.
fn longest_ticks(board: &Board, count: u64, apart_us: u64) -> u64 {
    let task = |n| Task::new("t", 150, PERIOD_US).offset(n * apart_us);
    let tasks: Vec<_> = (0..count).map(|n| ("yk_spin", task(n), "YK_FINISH")).collect();
    let output = board.run(Application::Spin, &board.table(&tasks, &[]), board.ticks(UNTIL_US));
    let trace = Trace::of(&output.console, tasks.len());
    assert_eq!(trace.partial, None, "{}", output.console);
    let mut end_ticks = 0;
    let dispatch = trace.jobs.iter().map(|job| {
        let from_ticks = job.start_ticks.max(end_ticks);
        end_ticks = job.end_ticks;
        job.begun_ticks - from_ticks
    });
    dispatch.max().expect("jobs")
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

fn main() {
    each(|board| {
        let longest = |count| {
            let ticks = [0, 500].map(|apart_us| longest_ticks(board, count, apart_us));
            (count, board.instructions_up(ticks[0].max(ticks[1])))
        };
        let all = COUNTS.map(longest);
        let (first, last) = (all[0], all[all.len() - 1]);
        let b = (last.1 - first.1).div_ceil(last.0 - first.0);
        let a = all.iter().map(|(count, longest)| longest.saturating_sub(b * count)).max();
        println!("{}: n and longest D, in instructions: {all:?}", board.name());
        let a = a.expect("counts");
        println!("{}: a = {a}, b = {b}", board.name());
        println!("{}: an interrupt of the clock: {:.1}", board.name(), clock_instructions(board));
    });
}
