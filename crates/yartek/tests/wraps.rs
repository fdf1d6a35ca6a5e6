// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wraps of the boards' clocks, in QEMU: each run begins just before the clock passes 2^32.

mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending, Output, Serial, Trace, expect, run};
use board::{Board, Line, c_file, each};
use std::collections::BTreeMap;
use std::time::Duration;

const WRAP_TICKS: u64 = 1 << 32;
/// From the start of the clock to the epoch.
const EPOCH_TICKS: u64 = 8192;
const PERIOD_US: u64 = 500;
/// The image reads where its clock begins.
const BEGINS_AS_TOLD: &str =
    "-DYK_CLOCK_BEGIN=({ extern yk_ticks yk_trace_until; yk_trace_until; })";
/// Handlers of the test begin before they read the clock, and go on after that: so much together,
/// in the time that a job waits. An alarm that comes 200 us late is 6,250.
const OF_TEST_INSTRUCTIONS: u64 = 400;

fn number(output: &Output, name: &str) -> u64 {
    let mut lines = output.console.lines().filter_map(|line| line.strip_prefix(name));
    let number = lines.next().and_then(|rest| u64::from_str_radix(rest.trim(), 16).ok());
    number.unwrap_or_else(|| panic!("no number {name} in {}", output.console))
}

/// Where clocks begin. The wrap falls into any part of two periods; then 160 times a tick later
/// than the time before: between any two instructions of a level that looks at the clock. On a
/// board whose clock is a sum of wraps of 16 bits, it is one of the first sixty of these.
fn begins(board: &Board) -> Vec<u64> {
    let small = board.0.clock_interrupt_ticks;
    let before: Vec<u64> = if small < 1 << 16 {
        (0..60).map(|run| (1 + run) * small + run * 1097 % small).collect()
    } else {
        let span_ticks = board.ticks(2 * PERIOD_US);
        let coarse = (0..60).map(|run| EPOCH_TICKS + run * 7919 % span_ticks);
        coarse.chain((0..160).map(|run| EPOCH_TICKS + board.ticks(PERIOD_US / 4) - run)).collect()
    };
    before.iter().map(|before| WRAP_TICKS - before).collect()
}

#[test]
fn no_level_reads_the_clock_going_back_at_a_wrap() {
    each(|board| {
        let table = board.table(
            &[("work", Task::new("work", 220, PERIOD_US), "YK_FINISH")],
            &[Line { service: "serve", most: 0 }],
        );
        let (files, machine) = ([c_file("clock.c")], board.0.machine());
        let mut at = BTreeMap::<String, u32>::new();
        let (mut latest, mut bound) = (0, 0);
        let built =
            board.build(&[BEGINS_AS_TOLD], Application::Files(&files), &table, &mut |image| {
                for begin in begins(board) {
                    let wall = Duration::from_secs(60);
                    let output = run(&machine, image, begin, wall, Serial::Nowhere).expect("a run");
                    assert!(
                        output.console.ends_with("good\n"),
                        "{}: {begin:#x}: {output:?}",
                        board.name()
                    );
                    let level = output.console.lines().find_map(|line| line.strip_prefix("at "));
                    *at.entry(level.expect("a level").to_owned()).or_default() += 1;
                    let most = board.0.dispatch_milli_ticks(1).div_ceil(1000)
                        + board.ticks(OF_TEST_INSTRUCTIONS * board.0.instruction_ps / 1_000_000);
                    let late = number(&output, "lateness ");
                    latest = latest.max(late);
                    assert!(late <= most, "{}: {begin:#x}: {late} > {most}", board.name());
                    bound = most;
                    assert_eq!(number(&output, "missed "), 0);
                }
            });
        built.expect("an image");
        println!("{}: at the wrap ran, in so many runs: {at:?}", board.name());
        println!("{}: a job began {latest} of {bound} ticks late at most", board.name());
        for level in ["background", "job", "handler"] {
            assert!(at.contains_key(level), "{}: never at the wrap: {level}", board.name());
        }
    });
}

#[test]
fn boards_run_the_simulators_schedule_over_a_wrap() {
    // Mumolo, Nolich, Lenac 2008, example 1; times in microseconds.
    let tasks = [("a", 1500, 4000), ("b", 1500, 6000), ("c", 1500, 7000)]
        .map(|(name, cost, period)| Task::new(name, cost, period));
    each(|board| {
        let in_ticks = board.in_ticks(&tasks);
        let table = board.table(&tasks.clone().map(|task| ("yk_spin", task, "YK_FINISH")), &[]);
        let dispatch = board.0.dispatch_milli_ticks(tasks.len());
        let expected = expect(&in_ticks, board.ticks(2_000_000), dispatch).expect("a schedule");
        // In a job, while it idles, as all tasks start, and in the first of them after that.
        for after_us in [750, 5800, 84_000, 168_001] {
            let begin = WRAP_TICKS - EPOCH_TICKS - board.ticks(after_us);
            let words = format!("-DYK_CLOCK_BEGIN={begin:#x}");
            let output = board.run_with(&[&words], Application::Spin, &table, expected.until_ticks);
            assert_eq!(output.ending, Ending::Exit(0), "{}", output.console);
            let trace = Trace::of(&output.console, tasks.len());
            assert_eq!(trace.partial, None, "{} {after_us}", board.name());
            let found = expected.compare(&in_ticks, &trace);
            assert!(
                found.is_equal() && found.missed == 0,
                "{} {after_us}: {found:?}",
                board.name()
            );
            assert_eq!(found.jobs, expected.jobs().len());
        }
    });
}
