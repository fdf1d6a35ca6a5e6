// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many jobs on the boards, in QEMU. `YARTEK_JOBS=10000000` for the long run.

mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending};
use board::{c_file, each};
use std::time::Instant;

#[test]
fn no_job_is_lost_or_late() {
    let jobs = std::env::var("YARTEK_JOBS");
    let jobs: u64 = jobs.map_or(100_000, |jobs| jobs.parse().expect("a number"));
    // Microseconds; multiples of 96, which the clocks of all boards can count.
    let tasks =
        [96, 192, 288, 480].map(|period| ("yk_spin", Task::new("t", 5, period), "YK_FINISH"));
    each(|board| {
        let (table, words) = (board.table(&tasks, &[]), format!("-DJOBS={jobs}"));
        let files = [c_file("endure.c")];
        let begun = Instant::now();
        let output = board.run_with(&[&words], Application::Files(&files), &table, 0);
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
        let lines: Vec<Vec<&str>> =
            output.console.lines().map(|line| line.split_whitespace().collect()).collect();
        let (last, of_tasks) = lines.split_last().expect("lines");
        let ticks = u64::from_str_radix(last[1], 16).expect("a time");
        let in_ticks = board.in_ticks(&tasks.clone().map(|(_, task, _)| task));
        assert_eq!(of_tasks.len(), tasks.len());
        let mut all = 0;
        for (task, words) in in_ticks.iter().zip(of_tasks) {
            let numbers: Vec<u64> =
                words[1..].iter().map(|word| word.parse().expect("a number")).collect();
            assert_eq!(numbers[1..], [0, 0, 0], "{}: {}", board.name(), output.console);
            // The last that started may not have ended yet, or has after the clock was read.
            let started = ticks / task.period_ticks + 1;
            assert!((started - 1..=started + 1).contains(&numbers[0]), "{started}: {numbers:?}");
            all += numbers[0];
        }
        assert!(all >= jobs);
        println!(
            "{}: {all} jobs in {:.0} s of the board, {:.0} s here: none missed, skipped, too long",
            board.name(),
            ticks as f64 / board.ticks(1_000_000) as f64,
            begun.elapsed().as_secs_f64()
        );
    });
}
