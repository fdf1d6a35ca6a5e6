// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel on its boards, in QEMU.

mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending, Output, Trace};
use board::{Board, Line, each};
use std::path::{Path, PathBuf};

fn c_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek/test").join(name)
}

fn number(output: &Output, name: &str) -> u64 {
    let mut lines = output.console.lines().filter_map(|line| line.strip_prefix(name));
    let number = lines.next().and_then(|rest| rest.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no number {name} in {}", output.console))
}

#[test]
fn no_raise_is_lost_doubled_or_out_of_order() {
    each(|board: &Board| {
        let lines = [Line { service: "serve_0", most: 3 }, Line { service: "serve_1", most: 0 }];
        let table = board.table(&[("work", Task::new("work", 400, 500), "YK_FINISH")], &lines);
        let output = board.run(Application::Files(&[c_file("lines.c")]), &table, 0);
        assert!(output.console.ends_with("good\n"), "{}: {}", board.name, output.console);
        let [raised, masked, passed] =
            ["raised", "masked", "passed"].map(|name| number(&output, name));
        println!("{}: {}", board.name, output.console.replace('\n', " "));
        assert!(raised >= 40_000 && masked > 100 && passed < raised / 10);
        assert!(number(&output, "jobs") > 100);
    });
}

/// Runs `faults.c` with these tasks. Times in microseconds.
fn faulty(board: &Board, tasks: &[(&str, Task, &str)]) -> Trace {
    let table = board.table(tasks, &[]);
    let output = board.run(Application::Files(&[c_file("faults.c")]), &table, 1_000_000);
    assert_eq!(output.ending, Ending::Exit(1), "{}: {}", board.name, output.console);
    Trace::of(&output.console, tasks.len())
}

#[test]
fn a_job_that_never_ends_is_told() {
    each(|board| {
        let never = ("hang", Task::new("a", 100, 10_000), "YK_FINISH, .most = 2000");
        let trace = faulty(board, &[never]);
        let fault = trace.fault.expect("a fault");
        assert_eq!((&*fault.why, fault.job), ("too-long", Some((0, 2))), "{}", board.name);
    });
}

#[test]
fn a_refused_instruction_is_told_with_its_address() {
    each(|board| {
        let trap = ("trap", Task::new("a", 100, 10_000), "YK_FINISH");
        let fault = faulty(board, &[("yk_spin", Task::new("b", 9, 999), "YK_FINISH"), trap]).fault;
        let fault = fault.expect("a fault");
        assert_eq!((&*fault.why, fault.job), ("trap", Some((1, 0))), "{}", board.name);
        assert_ne!(fault.address, 0);
    });
}

#[test]
fn a_deadline_that_is_over_is_told_where_a_task_asks_for_it() {
    each(|board| {
        let long = ("yk_spin", Task::new("a", 3000, 10_000), "YK_FINISH");
        let late = |deadline| {
            let task = Task::new("b", 1500, 10_000).deadline(deadline);
            faulty(board, &[long.clone(), ("yk_spin", task.offset(1000), "YK_FAULT")])
        };
        let why = |trace: Trace| trace.fault.map(|fault| (fault.why, fault.job));
        assert_eq!(why(late(1500)), Some(("not-begun".to_owned(), Some((1, 0)))));
        assert_eq!(why(late(3000)), Some(("not-ended".to_owned(), Some((1, 0)))));
    });
}
