// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a storm of interrupts does to jobs, beside what `check` counts for it.

mod board;

use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::{Effort, Task};
use asmp_yartek::{Application, Ending, Table, Trace, prove};
use board::{Board, Line, c_file, each};
use std::fmt::Write;

const SET: [(&str, u64, u64); 3] = [("a", 1000, 5000), ("b", 1500, 10_000), ("c", 2000, 20_000)];
/// With 1 a handler both puts its line into the queue and masks its source.
const MOST: [u32; 2] = [1, 3];
const UNTIL_US: u64 = 4_000_000;
/// The kernel's own time differs so much from job to job.
const JITTER_INSTRUCTIONS: u64 = 24;

/// By task, what `check` adds to a job for the line.
fn counted_ticks(board: &Board, most: u32) -> Vec<u64> {
    let mut text = String::new();
    for (name, cost, period) in SET {
        let times = format!("cost = '{cost} us'\nperiod = '{period} us'\n");
        write!(text, "[[task]]\nname = '{name}'\n{times}").expect("a text grows");
    }
    let costs = |text: &str| {
        let set = from_toml(text, &no_measurement).expect("a set");
        let table = Table::of(&set, board.0.rate()).expect("a table");
        let proof = prove(&set, &table, &board.0, &Effort::default()).expect("a proof");
        assert_eq!(proof.doubt(&table), None);
        proof.tasks.iter().map(Task::cost_ticks).collect::<Vec<_>>()
    };
    let line = format!("[[interrupt]]\nname = 'i'\nservice = '1 us'\nmost = {most}\n");
    let (without, with) = (costs(&text), costs(&(text + &line)));
    with.iter().zip(without).map(|(with, without)| with - without).collect()
}

fn trace(board: &Board, most: u32, words: &[&str]) -> Trace {
    let task = |(name, cost, period)| ("work", Task::new(name, cost, period), "YK_FINISH");
    let table = board.table(&SET.map(task), &[Line { service: "serve", most }]);
    let files = [c_file("storm.c")];
    let output = board.run_with(words, Application::Files(&files), &table, board.ticks(UNTIL_US));
    assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
    let trace = Trace::of(&output.console, SET.len());
    assert_eq!(trace.partial, None);
    trace
}

#[test]
fn a_handler_takes_what_is_counted_for_one() {
    each(|board| {
        let (quiet, storm) = (trace(board, 1, &[]), trace(board, 1, &["-DSTORM"]));
        let ticks = |job: &asmp_yartek::Ran| job.end_ticks - job.begun_ticks;
        let jobs = quiet.jobs.iter().zip(&storm.jobs);
        let longer = jobs.map(|(quiet, storm)| ticks(storm).saturating_sub(ticks(quiet)));
        let longer = longer.map(|ticks| board.instructions_up(ticks) as f64);
        let counted = board.0.handler_instructions as f64;
        // Until the background has served, the line is masked: jobs that follow others have none.
        let with_one: Vec<f64> = longer.filter(|longer| *longer > counted / 2.0).collect();
        let took = with_one.iter().sum::<f64>() / with_one.len() as f64;
        // Jobs begin with a tick: an average does not even out what their times are rounded by.
        let rounded = 2.0 * board.instructions_up(1) as f64;
        println!("{}: a handler takes {took:.1} of {counted}, +- {rounded}", board.name());
        let is_so = (counted - 4.0 - rounded..=counted + rounded).contains(&took);
        assert!(is_so && with_one.len() > 500, "{}: {took}", board.name());
    });
}

#[test]
fn a_storm_moves_no_job_by_more_than_was_counted() {
    each(|board| MOST.iter().for_each(|most| moves_no_job(board, *most)));
}

fn moves_no_job(board: &Board, most: u32) {
    let counted = counted_ticks(board, most);
    let (quiet, storm) = (trace(board, most, &[]), trace(board, most, &["-DSTORM"]));
    let jitter_ticks = board.ticks(JITTER_INSTRUCTIONS * board.0.instruction_ps / 1_000_000);
    let (mut sum_ticks, mut free_ticks, mut latest) = (0, 0, (0, 0));
    let mut longer_ticks = 0;
    for (quiet, storm) in quiet.jobs.iter().zip(&storm.jobs) {
        let of = |job: &asmp_yartek::Ran| (job.task, job.activation);
        assert_eq!(of(quiet), of(storm), "{}: another order", board.name());
        // The CPU was idle, storm or not.
        if quiet.start_ticks > free_ticks {
            sum_ticks = 0;
        }
        sum_ticks += counted[quiet.task];
        let late_ticks = storm.begun_ticks.saturating_sub(quiet.begun_ticks);
        let bound_ticks = sum_ticks + jitter_ticks + 1;
        let name = board.name();
        assert!(late_ticks <= bound_ticks, "{name}: {late_ticks} of {bound_ticks}: {storm:?}");
        latest = latest.max((late_ticks, bound_ticks));
        let took = |job: &asmp_yartek::Ran| job.end_ticks - job.begun_ticks;
        let more_ticks = took(storm).saturating_sub(took(quiet));
        assert!(more_ticks <= counted[quiet.task] + jitter_ticks + 1, "{name}: {more_ticks}");
        longer_ticks = longer_ticks.max(more_ticks);
        free_ticks = quiet.end_ticks + sum_ticks;
    }
    println!(
        "{}: most = {most}: {} jobs, latest {latest:?}, longer by {longer_ticks} ticks at most, \
             counted {counted:?}",
        board.name(),
        quiet.jobs.len()
    );
    assert!(longer_ticks > 0 && latest.0 > 0 && quiet.jobs.len() > 1000);
}
