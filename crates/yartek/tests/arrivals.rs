// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sporadic tasks on the boards, in QEMU: what arrives, and the jobs that it becomes.

mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending, Ran, Trace};
use board::{Board, Line, c_file, each};
use std::collections::VecDeque;

const WORDS: [&str; 2] = ["-Wl,--wrap=yk_port_alarm", "-Wl,--wrap=yk_edf_next"];
/// The test's own functions between the kernel's, and its handlers, make a job so much later.
const OF_TEST_INSTRUCTIONS: u64 = 1500;

/// By task, the instants at which something arrived, in ticks since the epoch.
fn arrivals(console: &str, tasks: usize) -> Vec<VecDeque<u64>> {
    let mut all = vec![VecDeque::new(); tasks];
    for line in console.lines().filter_map(|line| line.strip_prefix("a ")) {
        let (task, at) = line.split_once(' ').expect("a task and a time");
        let task: usize = task.parse().expect("a task");
        all[task].push_back(u64::from_str_radix(at, 16).expect("a time"));
    }
    all
}

/// The starts that the jobs of each task must have, in their order.
fn starts(tasks: &[Task], console: &str) -> Vec<VecDeque<u64>> {
    let mut all = arrivals(console, tasks.len());
    for (task, starts) in tasks.iter().zip(&mut all).skip(1) {
        let mut earliest = 0;
        for start in starts {
            *start = (*start).max(earliest);
            earliest = *start + task.period_ticks;
        }
    }
    all
}

fn check(board: &Board, tasks: &[Task], console: &str) {
    let trace = Trace::of(console, tasks.len());
    assert_eq!(trace.partial, None, "{}: {console}", board.name());
    let mut due = starts(tasks, console);
    let arrived: usize = due.iter().map(VecDeque::len).sum();
    let allowed = board.0.dispatch_milli_ticks(tasks.len()).div_ceil(1000)
        + board.ticks(OF_TEST_INSTRUCTIONS * board.0.instruction_ps / 1_000_000);
    due[0] = (0..).map(|job| job * tasks[0].period_ticks).take(trace.jobs.len()).collect();
    let (mut end_ticks, mut latest_ticks, mut waited) = (0, 0, 0);
    for (at, job) in trace.jobs.iter().enumerate() {
        let Ran { task, start_ticks, begun_ticks, .. } = *job;
        let name = board.name();
        assert_eq!(due[task].pop_front(), Some(start_ticks), "{name}: job {at}: {job:?}");
        let free_ticks = start_ticks.max(end_ticks);
        assert!(begun_ticks >= start_ticks, "{name}: job {at} began before its start: {job:?}");
        let late_ticks = begun_ticks - free_ticks;
        assert!(late_ticks <= allowed, "{name}: job {at} is {late_ticks} ticks late: {job:?}");
        let order = |task: usize, start| (start + tasks[task].deadline_ticks, start, task);
        for (other, due) in due.iter().enumerate().filter(|(other, _)| *other != task) {
            let Some(start) = due.front().filter(|start| **start <= free_ticks) else { continue };
            waited += 1;
            let is_right = order(task, start_ticks) < order(other, *start);
            assert!(is_right, "{name}: job {at}, {job:?}, went before task {other} of {start}");
        }
        latest_ticks = latest_ticks.max(late_ticks);
        end_ticks = job.end_ticks;
    }
    due[0].clear();
    assert!(due.iter().all(VecDeque::is_empty), "{}: no job for {due:?}", board.name());
    println!(
        "{}: {arrived} arrivals, {} jobs, {waited} waited for others, latest {latest_ticks} of \
         {allowed} ticks",
        board.name(),
        trace.jobs.len()
    );
    assert!(arrived >= 3000 && waited > 20);
    let refused = trace.lines.iter().find_map(|line| line.strip_prefix("refused "));
    let refused: u32 = refused.expect("a right count").parse().expect("a number");
    println!("{}: {refused} arrivals refused", board.name());
    assert!(refused >= 2);
}

#[test]
fn every_arrival_becomes_one_job_in_its_turn() {
    each(|board| {
        let late = |n| format!("YK_FINISH, .arrivals = &came_for[{n}]");
        let late = [late(0), late(1)];
        let tasks = [
            ("work", Task::new("a", 300, 5000), "YK_FINISH"),
            ("work", Task::new("b", 100, 1000).deadline(500), &*late[0]),
            ("work", Task::new("c", 150, 1500), &*late[1]),
        ];
        let in_us: Vec<Task> = tasks.iter().map(|(_, task, _)| task.clone()).collect();
        let include = "#include \"yartek.h\"\n";
        let table = board.table(&tasks, &[Line { service: "serve", most: 0 }]);
        let declared = format!("{include}extern struct yk_arrivals came_for[2];\n");
        let table = table.replace(include, &declared);
        let files = [c_file("arrivals.c")];
        let application = Application::Files(&files);
        let output = board.run_with(&WORDS, application, &table, board.ticks(12_000_000));
        assert_eq!(output.ending, Ending::Exit(0), "{}", board.name());
        check(board, &board.in_ticks(&in_us), &output.console);
    });
}
