// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long an interrupt waits for its service, on the boards.

mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending};
use board::{Line, c_file, each, number};

/// In microseconds: the robot of the paper. All of its tasks start together at first, and again
/// after 6 s: then the background waits for all of their costs.
const BUSY_US: u64 = 280_000;

fn robot() -> Vec<(&'static str, Task, &'static str)> {
    let tasks = [
        [20_000, 500_000],
        [20_000, 500_000],
        [20_000, 500_000],
        [20_000, 500_000],
        [20_000, 500_000],
        [20_000, 500_000],
        [100_000, 500_000],
        [20_000, 1_200_000],
        [20_000, 1_200_000],
        [20_000, 2_000_000],
    ];
    let task = |(at, [cost, period]): (usize, [u64; 2])| Task::new(format!("t{at}"), cost, period);
    tasks.into_iter().enumerate().map(task).map(|task| ("work", task, "YK_FINISH")).collect()
}

#[test]
fn each_raise_is_served_within_the_longest_busy_period() {
    each(|board| {
        let lines = [Line { service: "serve", most: 0 }];
        let (table, until) = (board.table(&robot(), &lines), board.ticks(12_000_000));
        let (files, words) = ([c_file("services.c")], format!("-DUNTIL={until}u"));
        let output = board.run_with(&[&words], Application::Files(&files), &table, 0);
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
        let [served, longest] = ["served ", "longest "].map(|name| number(&output, name));
        println!("{}: {served} served, after {longest} ticks at most", board.name());
        // The kernel begins ten jobs, and handlers come as it does so.
        let kernel = board.ticks(1000);
        assert!(longest <= board.ticks(BUSY_US) + kernel, "{}: {longest}", board.name());
        // It is measured where it is longest.
        assert!(longest >= board.ticks(BUSY_US) - kernel && served > 50_000, "{}", board.name());
    });
}
