// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel on its boards, in QEMU.

mod board;

use asmp_analysis::Task;
use asmp_yartek::{Application, Ending, Order, Trace, expect};
use board::{Board, Line, c_file, each, number};
use std::time::Instant;

/// Under a load of 90 %, the kernel included. `YARTEK_RAISES=1000000` for the long run.
#[test]
fn no_raise_is_lost_doubled_or_out_of_order() {
    let raises = std::env::var("YARTEK_RAISES");
    let raises = raises.map_or(20_000, |raises| raises.parse().expect("a number"));
    each(|board: &Board| {
        let lines = [Line { service: "serve_0", most: 3 }, Line { service: "serve_1", most: 0 }];
        let table = board.table(&[("work", Task::new("work", 440, 500), "YK_FINISH")], &lines);
        let (files, words) = ([c_file("lines.c")], format!("-DRAISES={raises}"));
        let begun = Instant::now();
        let output = board.run_with(&[&words], Application::Files(&files), &table, 0);
        assert!(output.console.ends_with("good\n"), "{}: {}", board.name(), output.console);
        let [raised, masked, passed, jobs, kiloticks] =
            ["raised", "masked", "passed", "jobs", "kiloticks"].map(|name| number(&output, name));
        // The long run has more than 2^32 ticks on some boards.
        let ticks = kiloticks << 10;
        let load = 100 * jobs * board.ticks(440) / ticks;
        println!(
            "{}: {} load {load} %, {} s of the board, {:.0} s here",
            board.name(),
            output.console.replace('\n', " "),
            ticks / board.ticks(1_000_000),
            begun.elapsed().as_secs_f64()
        );
        assert!(raised >= raises && masked > 100 && passed < raised / 10);
        assert!((85..=100).contains(&load) && jobs > 100);
    });
}

/// Runs `faults.c` with these tasks. Times in microseconds.
fn faulty(board: &Board, tasks: &[(&str, Task, &str)]) -> Trace {
    let table = board.table(tasks, &[]);
    let output =
        board.run(Application::Files(&[c_file("faults.c")]), &table, board.ticks(1_000_000));
    assert_eq!(output.ending, Ending::Exit(1), "{}: {}", board.name(), output.console);
    Trace::of(&output.console, tasks.len())
}

#[test]
fn a_job_that_never_ends_is_told() {
    each(|board| {
        let never = ("hang", Task::new("a", 100, 10_000), "YK_FINISH, .most = 2000");
        let trace = faulty(board, &[never]);
        let fault = trace.fault.expect("a fault");
        assert_eq!((&*fault.why, fault.job), ("too-long", Some((0, 2))), "{}", board.name());
    });
}

#[test]
fn the_clock_goes_on_while_a_fault_of_the_guard_makes_the_machine_safe() {
    // A loop of 2 instructions, ten times for 30 ms: longer than a clock of 16 bits.
    const ROUNDS: u64 = 480_000;
    each(|board| {
        let never = ("hang", Task::new("a", 100, 1_000_000), "YK_FINISH, .most = 2000");
        let table = board.table(&[never], &[]);
        let (files, words) = ([c_file("patient.c")], format!("-DLOOP_ROUNDS={ROUNDS}"));
        let output = board.run_with(&[&words], Application::Files(&files), &table, 1);
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
        let instructions = board.instructions_up(number(&output, "ticks"));
        let (least, name) = (10 * 2 * ROUNDS, board.name());
        assert!((least..least + least / 100).contains(&instructions), "{name}: {instructions}");
    });
}

#[test]
fn a_refused_instruction_is_told_with_its_address() {
    each(|board| {
        let trap = ("trap", Task::new("a", 100, 10_000), "YK_FINISH");
        let fault =
            faulty(board, &[("yk_spin", Task::new("b", 10, 1000), "YK_FINISH"), trap]).fault;
        let fault = fault.expect("a fault");
        assert_eq!((&*fault.why, fault.job), ("trap", Some((1, 0))), "{}", board.name());
        assert_ne!(fault.address, 0);
    });
}

#[test]
fn a_program_that_masks_interrupts_is_refused() {
    each(|board| {
        let table = board.table(&[("mask", Task::new("a", 100, 10_000), "YK_FINISH")], &[]);
        let files = [c_file("faults.c")];
        let error = board.build(&["-DPLANT"], Application::Files(&files), &table, &mut |_| {});
        let error = error.expect_err("refused").to_string();
        assert!(error.starts_with("mask masks interrupts ("), "{error}");
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

/// Times in microseconds.
fn sets() -> [(&'static str, Vec<Task>); 4] {
    let all = |tasks: &[(&str, u64, u64)]| {
        let task = |&(name, cost, period): &(&str, u64, u64)| Task::new(name, cost, period);
        tasks.iter().map(task).collect::<Vec<_>>()
    };
    // Mumolo, Nolich, Lenac 2008.
    let example_1 = [("a", 1500, 4000), ("b", 1500, 6000), ("c", 1500, 7000)];
    let full = [
        ("a", 8000, 20_000),
        ("b", 10_000, 40_000),
        ("c", 12_000, 80_000),
        ("d", 12_000, 160_000),
        ("e", 12_000, 160_000),
    ];
    // Each busy period ends before a task starts anew.
    let many = (0..32).map(|n| {
        let period = 100_000 * (1 + n % 4);
        Task::new(format!("t{n}"), 2000 + 40 * n, period).deadline(period - 1000 * (n % 5))
    });
    let mut robot = all(&["s1", "s2", "s3", "s4", "s5", "s6"].map(|name| (name, 20_000, 500_000)));
    robot.extend(all(&[
        ("updateMap", 100_000, 500_000),
        ("odometer1", 20_000, 1_200_000),
        ("odometer2", 20_000, 1_200_000),
        ("antiSensor", 20_000, 2_000_000),
    ]));
    [
        ("example 1", all(&example_1)),
        ("U = 0.95", all(&full)),
        ("32 tasks", many.collect()),
        ("robot", robot),
    ]
}

#[test]
fn boards_run_the_simulators_schedule() {
    each(|board| {
        for (name, tasks) in sets() {
            let spins: Vec<_> =
                tasks.iter().map(|task| ("yk_spin", task.clone(), "YK_FINISH")).collect();
            let table = board.table(&spins, &[]);
            let in_ticks = board.in_ticks(&tasks);
            let dispatch = board.0.dispatch_milli_ticks(tasks.len());
            let expected =
                expect(&in_ticks, board.ticks(12_000_000), dispatch).expect("a schedule");
            let run = || board.run(Application::Spin, &table, expected.until_ticks);
            let output = run();
            assert_eq!(output.ending, Ending::Exit(0), "{}", output.console);
            let trace = Trace::of(&output.console, tasks.len());
            assert_eq!(trace.partial, None, "{} {name}", board.name());
            let found = expected.compare(&in_ticks, &trace);
            println!("{} {name}: {} jobs, latest {:?}", board.name(), found.jobs, found.latest);
            assert!(found.is_equal() && found.missed == 0, "{} {name}: {found:?}", board.name());
            assert_eq!(found.jobs, expected.jobs().len());
            let again = run();
            let mut lines = output.console.lines().zip(again.console.lines());
            let first = lines.find(|(one, other)| one != other);
            assert!(again == output, "{} {name}: two runs differ: {first:?}", board.name());
        }
    });
}

#[test]
fn an_order_that_hangs_on_the_kernels_time_is_no_equal_one() {
    each(|board| {
        // The last starts just as the second may begin, if the kernel took no time.
        let tasks = [
            Task::new("a", 3000, 20_000),
            Task::new("b", 3000, 20_000),
            Task::new("c", 1000, 20_000).deadline(3000).offset(3000),
        ];
        let in_ticks = board.in_ticks(&tasks);
        // Two ticks later it is released for the guest, and not for the simulator: a cost may be
        // rounded up by one.
        let mut later = in_ticks.clone();
        later[2].offset_ticks = later[2].offset_ticks.map(|ticks| ticks + 2);
        let expected = expect(&later, board.ticks(9000), board.0.dispatch_milli_ticks(3));
        let expected = expected.expect("a schedule");
        let table = board.table(&tasks.map(|task| ("yk_spin", task, "YK_FINISH")), &[]);
        let from = format!(".offset = {}", in_ticks[2].offset_ticks.expect("an offset"));
        let to = format!(".offset = {}", later[2].offset_ticks.expect("an offset"));
        let table = table.replace(&from, &to);
        let output = board.run(Application::Spin, &table, expected.until_ticks);
        let found = expected.compare(&later, &Trace::of(&output.console, 3));
        let Order::Hangs { at: 1, by_ticks, .. } = found.order else { panic!("{found:?}") };
        assert!((1..=2).contains(&by_ticks) && !found.is_equal());
    });
}
