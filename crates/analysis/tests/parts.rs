// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deferred interrupts, classes, admission, placement, slack, files: one behaviour a test.

use asmp_analysis::deadline::{Domain, admission, ratio};
use asmp_analysis::file::{FileError, from_csv, from_toml, no_measurement};
use asmp_analysis::place::{By, Room, place};
use asmp_analysis::simulate::{
    End, Execution, Interrupt, Record, Releases, Run, Simulation, Statistics,
};
use asmp_analysis::{
    Arrival, Class, Cost, Effort, Policy, Start, Task, Verdict, edf_response, fp, kernel_admission,
    np_edf, schedulability, slack,
};

const MS: u64 = 1_000_000;

fn ms(name: &str, cost: u64, period: u64) -> Task {
    Task::new(name, cost * MS, period * MS)
}

fn effort() -> Effort {
    Effort::default()
}

fn robot() -> Vec<Task> {
    let mut tasks: Vec<Task> = (1..=6).map(|at| ms(&format!("sonar{at}"), 20, 500)).collect();
    tasks.extend([ms("updateMap", 100, 500), ms("odometer1", 20, 1200), ms("odometer2", 20, 1200)]);
    tasks.push(ms("antiSensor", 20, 2000));
    tasks
}

fn rows(simulation: &Simulation, until_ticks: u64) -> (Vec<asmp_analysis::simulate::Row>, u64) {
    let mut run = Run::prepare(simulation).expect("it can be simulated");
    let mut statistics = Statistics::of(&run);
    run.go(until_ticks, 10_000_000, &mut statistics);
    (statistics.rows(&run), statistics.miss_count(&run))
}

#[test]
fn a_deferred_interrupt_of_the_robot_waits_for_the_whole_busy_period_of_280_ms() {
    let tasks = robot();
    let interrupts = [Interrupt {
        name: "serial".into(),
        flag_ticks: 0,
        service_ticks: 1000,
        gap_ticks: Some(MS),
        core: None,
        entry: None,
        most: None,
    }];
    let simulation = Simulation {
        interrupts: &interrupts,
        ..Simulation::new(&tasks, Policy::NpEdf, Releases::Together)
    };
    let (rows, misses) = rows(&simulation, 400 * MS);
    let serial = rows.iter().find(|row| row.name == "serial").expect("its service");
    assert_eq!((serial.kind, serial.max_ticks, misses), ("service", Some(280 * MS + 1000), 0));
}

#[test]
fn rows_count_a_miss_of_a_job_that_never_finished_as_the_whole_run_does() {
    // The second runs from 6 to 10 ms, and from 16 ms on.
    let tasks = [ms("first", 6, 10), ms("second", 6, 12)];
    let simulation = Simulation::new(&tasks, Policy::Rm, Releases::Together);
    let (rows, misses) = rows(&simulation, 15 * MS);
    assert_eq!((rows[1].jobs, rows[1].misses, misses), (0, 1, 1));
    assert_eq!((rows[0].jobs, rows[0].misses), (1, 0));
}

fn spans(simulation: &Simulation, until_ticks: u64) -> Vec<(String, u64, u64)> {
    let mut run = Run::prepare(simulation).unwrap();
    let mut record = Record::up_to(100);
    run.go(until_ticks, 100, &mut record);
    record
        .segments
        .iter()
        .map(|s| (run.names[s.stream].clone(), s.from_ticks, s.to_ticks))
        .collect()
}

fn named(spans: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    spans.iter().map(|(name, from, to)| ((*name).to_owned(), *from, *to)).collect()
}

#[test]
fn a_handler_interrupts_a_job_that_nothing_else_may_preempt_and_the_job_goes_on_after_it() {
    let tasks = [Task::new("long", 60, 200), Task::new("urgent", 2, 200).deadline(80).offset(3)];
    let interrupts = [Interrupt {
        name: "irq".into(),
        flag_ticks: 1,
        service_ticks: 1,
        gap_ticks: Some(50),
        core: None,
        entry: None,
        most: None,
    }];
    let simulation = Simulation {
        interrupts: &interrupts,
        ..Simulation::new(&tasks, Policy::NpEdf, Releases::Together)
    };
    let wanted = [
        ("irq flag", 0, 1),
        ("long", 1, 50),
        ("irq flag", 50, 51),
        ("long", 51, 62),
        ("urgent", 62, 64),
        ("irq", 64, 65),
        ("irq", 65, 66),
    ];
    assert_eq!(spans(&simulation, 99), named(&wanted));
}

#[test]
fn a_job_is_not_preempted_by_one_that_is_as_urgent_and_is_by_one_that_is_more() {
    let tasks = [
        Task::new("first", 10, 100).priority(5),
        Task::new("equal", 10, 100).priority(5).offset(1),
        Task::new("more", 2, 100).priority(6).offset(4),
    ];
    let fp = Simulation::new(&tasks, Policy::Fp, Releases::Together);
    assert_eq!(
        spans(&fp, 99),
        named(&[("first", 0, 4), ("more", 4, 6), ("first", 6, 12), ("equal", 12, 22)])
    );
    let np = Simulation::new(&tasks, Policy::NpFp, Releases::Together);
    assert_eq!(spans(&np, 99), named(&[("first", 0, 10), ("more", 10, 12), ("equal", 12, 22)]));
}

#[test]
fn a_section_holds_up_the_first_job_of_a_pattern_and_no_other() {
    let tasks = [Task::new("a", 3, 10), Task::new("b", 1, 50)];
    let start =
        |task, held_up_ticks| Start { task, arrival_ticks: 0, release_ticks: 0, held_up_ticks };
    let pattern = Releases::Pattern(vec![start(0, 4), start(1, 0)]);
    let edf = Simulation::new(&tasks, Policy::Edf, pattern.clone());
    assert_eq!(spans(&edf, 15), named(&[("a", 0, 7), ("b", 7, 8), ("a", 10, 13)]));
    let np = Simulation::new(&tasks, Policy::NpEdf, pattern);
    assert_eq!(
        spans(&np, 15),
        named(&[("section", 0, 4), ("a", 4, 7), ("b", 7, 8), ("a", 10, 13)])
    );
}

#[test]
fn more_releases_at_one_instant_than_allowed_end_the_run() {
    let tasks = [Task::new("a", 1, 1)];
    let start = Start { task: 0, arrival_ticks: 0, release_ticks: 1 << 60, held_up_ticks: 0 };
    let simulation = Simulation::new(&tasks, Policy::Edf, Releases::Pattern(vec![start]));
    let mut run = Run::prepare(&simulation).unwrap();
    let mut statistics = Statistics::of(&run);
    assert_eq!(run.go(u64::MAX, 1000, &mut statistics), End::Jobs);
    assert!(run.jobs() <= 1001, "{}", run.jobs());
}

#[test]
fn under_muf_low_classes_cannot_make_a_high_one_late_and_under_rm_they_can() {
    let mut tasks = vec![ms("steer", 40, 100), ms("stats", 35, 50)];
    tasks[1].class = Class::Low;
    let of = |policy| {
        rows(&Simulation::new(&tasks, policy, Releases::Together), 10_000 * MS).0[0].misses
    };
    assert_eq!(of(Policy::Muf), 0);
    assert!(of(Policy::Rm) > 0, "the shorter period goes first");
    let analysis = fp::analyse(&tasks, Policy::Muf, &effort());
    assert_eq!(analysis.responses_ticks[0], Some(40 * MS));
    assert!(analysis.verdict.is_not_schedulable(), "the low one is late");
}

#[test]
fn overruns_make_an_accepted_set_miss_and_shorter_jobs_do_not_under_edf() {
    let tasks = [ms("a", 5, 10), ms("b", 9, 20)];
    let base = Simulation::new(&tasks, Policy::Edf, Releases::Random);
    let short = Execution { least_ppm: 100_000, ..Execution::default() };
    assert_eq!(rows(&Simulation { execution: short, ..base.clone() }, 5000 * MS).1, 0);
    let over =
        Execution { overrun_chance_ppm: 200_000, overrun_ppm: 2_000_000, ..Execution::default() };
    assert!(rows(&Simulation { execution: over, ..base }, 5000 * MS).1 > 0);
}

#[test]
fn the_kernel_admits_up_to_95_percent_of_each_cpu_by_its_own_rounding() {
    let half = |name: &str| ms(name, 50, 100);
    let one = Domain::of(1);
    let admit = |tasks: &[Task], domain: &Domain| {
        admission(tasks, &Room::default(), domain, &effort()).unwrap()
    };
    let just = [half("a"), ms("b", 45, 100)];
    // floor(0.5 2^20) + floor(0.45 2^20) = 524288 + 471859 = 996147 = floor(0.95 2^20).
    let admitted = admit(&just, &one);
    assert_eq!((admitted.asked, admitted.limit, admitted.admitted), (996_147, Some(996_147), true));
    let over = [half("a"), Task::new("b", 45 * MS + 100, 100 * MS)];
    let refused = admit(&over, &one);
    assert_eq!((refused.asked, refused.refused), (996_148, Some(1)));
    assert!(refused.deadlines.is_schedulable(), "EDF itself would take it");
    let server = Domain { servers: ratio(1000 * MS, 50 * MS), ..one };
    assert!(!admit(&just, &server).admitted, "a deadline server takes 5 % of it");
    let none = Domain { rt_runtime_us: None, ..one };
    assert!(admit(&over, &none).admitted, "-1 switches the test off");
}

#[test]
fn global_admission_is_no_promise_where_partitioning_finds_one_and_the_other_way_round() {
    let admit = |tasks: &[Task]| admission(tasks, &Room::default(), &Domain::of(2), &effort());
    let dhall = [ms("a", 2, 10), ms("b", 2, 10), ms("heavy", 10, 11)];
    let admitted = admit(&dhall).unwrap();
    assert!(admitted.admitted, "1.31 of 1.9");
    assert!(matches!(admitted.deadlines, Verdict::Unknown { .. }), "Dhall's effect");
    assert!(admitted.partitioned.unwrap().is_complete());
    let thirds: Vec<Task> = ["a", "b", "c"].iter().map(|name| ms(name, 60, 100)).collect();
    let admitted = admit(&thirds).unwrap();
    assert!(
        admitted.admitted && !admitted.partitioned.unwrap().is_complete(),
        "three of 60 % on two CPUs"
    );
    let short = [ms("x", 1, 10).deadline(20 * MS)];
    assert!(
        admission(&short, &Room::default(), &Domain::of(1), &effort()).is_err(),
        "a deadline beyond the period is EINVAL"
    );
}

/// brandenburg/schedcat, tests/binpack.py, KnownExample, in the order of decreasing size.
#[test]
fn bins_are_packed_as_known() {
    let tasks: Vec<Task> =
        [8, 5, 7, 6, 2, 4, 1].iter().map(|size| ms(&size.to_string(), *size, 10)).collect();
    let packed = |by, cpus: &[u32]| {
        let placement = place(&tasks, cpus, by, Policy::Edf, &Room::default(), &effort()).unwrap();
        assert!(placement.is_complete());
        let sizes = |load: &asmp_analysis::place::Load| {
            load.tasks.iter().map(|index| tasks[*index].cost_ticks() / MS).collect::<Vec<u64>>()
        };
        placement.loads.iter().map(sizes).collect::<Vec<_>>()
    };
    assert_eq!(
        packed(By::FirstFit, &[0, 1, 2, 3, 4]),
        [vec![8, 2], vec![7, 1], vec![6, 4], vec![5], vec![]]
    );
    assert_eq!(
        packed(By::BestFit, &[0, 1, 2, 3, 4]),
        [vec![8, 2], vec![7, 1], vec![6, 4], vec![5], vec![]]
    );
    assert_eq!(
        packed(By::WorstFit, &[0, 1, 2, 3, 4]),
        [vec![8], vec![7], vec![6], vec![5, 1], vec![4, 2]]
    );
}

#[test]
fn applications_stay_together_until_they_must_be_cut_and_memory_counts() {
    let of = |name: &str, cost, app: &str, memory_bytes| Task {
        app: Some(app.to_owned()),
        memory_bytes,
        ..ms(name, cost, 10)
    };
    let tasks =
        [of("a1", 4, "a", 10), of("a2", 4, "a", 10), of("b1", 3, "b", 30), of("b2", 3, "b", 60)];
    let room = Room { memory_bytes: Some(100), bandwidth: None };
    let placement =
        place(&tasks, &[0, 1], By::BfdPartitioned, Policy::Edf, &room, &effort()).unwrap();
    assert!(placement.is_complete() && placement.cut.is_empty());
    assert_eq!(placement.cpu_of(0), placement.cpu_of(1));
    assert_eq!(placement.cpu_of(2), placement.cpu_of(3));
    assert_ne!(placement.cpu_of(0), placement.cpu_of(2), "110 bytes do not go on one");
    let large = [of("c1", 6, "c", 1), of("c2", 6, "c", 1), of("d", 3, "d", 1)];
    let placement =
        place(&large, &[0, 1], By::BfdPartitioned, Policy::Edf, &room, &effort()).unwrap();
    assert!(placement.is_complete());
    assert_eq!(placement.cut, ["c"]);
    let bound = [ms("x", 5, 10).on_core(7)];
    let placement = place(&bound, &[0, 1], By::FirstFit, Policy::Edf, &room, &effort()).unwrap();
    assert_eq!(placement.unplaced.len(), 1, "its CPU is not among them");
}

#[test]
fn what_does_not_fit_is_the_less_important_however_large() {
    let important = |importance, task| Task { importance, ..task };
    let free =
        [important(1, ms("large", 7, 10)), important(5, ms("small", 4, 10)), ms("least", 5, 10)];
    let bound = free.clone().map(|task| task.on_core(0));
    for by in [By::FirstFit, By::BestFit, By::WorstFit, By::BfdPartitioned] {
        for tasks in [&free, &bound] {
            let placement =
                place(tasks, &[0], by, Policy::Edf, &Room::default(), &effort()).unwrap();
            assert_eq!(placement.loads[0].tasks, [1, 2], "{by:?}: small, and what fits beside it");
            assert_eq!(placement.unplaced[0].task, 0, "{by:?}");
            let placement =
                place(tasks, &[0], by, Policy::NpEdf, &Room::default(), &effort()).unwrap();
            assert_eq!(placement.loads[0].tasks, [1, 2], "{by:?}");
        }
        let two = place(&free, &[0, 1], by, Policy::Edf, &Room::default(), &effort()).unwrap();
        assert!(two.is_complete(), "{by:?}: by size, as long as all fit");
    }
}

#[test]
fn slack_ends_exactly_where_the_test_says_no() {
    let tasks = robot();
    let room = slack::slack(&tasks, Policy::NpEdf, 100, &effort()).unwrap();
    for (index, extra) in room.extra_ticks.iter().enumerate() {
        let grown = |by: u64| {
            let mut tasks = tasks.clone();
            tasks[index].cost = Cost::Guaranteed(tasks[index].cost_ticks() + by);
            np_edf::test(&tasks, &effort()).is_schedulable()
        };
        let extra = extra.expect("it fits");
        assert!(grown(extra) && !grown(extra + 1), "{index}");
    }
    let factor = room.factor_ppm.unwrap();
    let scaled = |ppm: u64| {
        let scale = |task: &Task| Task {
            cost: Cost::Guaranteed((task.cost_ticks() * ppm).div_ceil(1_000_000)),
            ..task.clone()
        };
        np_edf::test(&tasks.iter().map(scale).collect::<Vec<_>>(), &effort()).is_schedulable()
    };
    assert!(scaled(factor) && !scaled(factor + 1));
}

#[test]
fn edf_responses_of_a_full_set_end_within_the_hyperperiod() {
    let tasks = [Task::new("a", 2, 4), Task::new("b", 3, 6)];
    assert_eq!(edf_response::responses(&tasks, false, &effort()), Ok(vec![4, 6]));
    let over = [Task::new("a", 3, 4), Task::new("b", 3, 6)];
    assert!(edf_response::responses(&over, false, &effort()).is_err(), "it has no bound");
}

/// Of the last task, which loses every tie: with every offset of the others, three hyperperiods of
/// each.
fn longest_seen(tasks: &[Task], hyperperiod_ticks: u64) -> u64 {
    let last = tasks.len() - 1;
    let patterns: u64 = tasks[..last].iter().map(|task| task.period_ticks).product();
    let response = |mut pattern: u64| {
        let mut set = tasks.to_vec();
        set[last].offset_ticks = Some(0);
        for task in &mut set[..last] {
            task.offset_ticks = Some(pattern % task.period_ticks);
            pattern /= task.period_ticks;
        }
        let (rows, _) =
            rows(&Simulation::new(&set, Policy::NpEdf, Releases::Together), 3 * hyperperiod_ticks);
        rows.iter()
            .find(|row| row.name == tasks[last].name)
            .and_then(|row| row.max_ticks)
            .expect("its row")
    };
    (0..patterns).map(response).max().unwrap_or(0)
}

#[test]
fn np_edf_responses_of_a_full_set_are_the_longest_of_all_offsets() {
    let sets: [&[(u64, u64, u64)]; 5] = [
        &[(1, 3, 3), (2, 3, 3)],
        &[(1, 2, 2), (2, 4, 4)],
        &[(2, 4, 4), (3, 6, 6)],
        &[(3, 8, 5), (1, 4, 4), (3, 8, 9)],
        &[(1, 4, 4), (2, 6, 14), (5, 12, 9)],
    ];
    for set in sets {
        let named = set.iter().zip(["a", "b", "c"]);
        let tasks: Vec<Task> = named
            .map(|((cost, period, due), name)| Task::new(name, *cost, *period).deadline(*due))
            .collect();
        let bounds = edf_response::responses(&tasks, true, &effort()).expect("it has bounds");
        for (index, bound) in bounds.into_iter().enumerate() {
            let order = [&tasks[index + 1..], &tasks[..=index]].concat();
            assert_eq!(longest_seen(&order, 24), bound, "{index} of {set:?}");
        }
    }
    // The worst job is released after the longest deadline; the simulator shows 10, where the
    // earlier job wins a tie.
    let third = Task::new("c", 4, 12).deadline(7);
    let beyond = [Task::new("a", 1, 6).deadline(9), Task::new("b", 4, 8).deadline(5), third];
    assert_eq!(edf_response::responses(&beyond, true, &effort()).unwrap()[0], 11);
    let held = [Task::new("a", 2, 4), Task { blocking_ticks: 1, ..Task::new("b", 3, 6) }];
    let late = [Task::new("a", 2, 4), Task { jitter_ticks: 1, ..Task::new("b", 3, 6) }];
    // What never catches up repeats with the hyperperiod.
    for (set, bounds) in [(held, [5, 7]), (late, [4, 6])] {
        let little = Effort { steps: 1000, ..effort() };
        assert_eq!(edf_response::responses(&set, true, &little).unwrap(), bounds);
    }
}

#[test]
fn a_file_says_everything_about_a_task() {
    let text = r#"
        [[task]]
        name = "a"
        measured = "run"
        sporadic = "10 ms"
        deadline = "8 ms"
        jitter = "5 us"
        blocking = "1 us"
        priority = 7
        class = "low"
        core = 3
        importance = 2
        app = "x"
        memory = 5
        bandwidth = 6
        [[task]]
        name = "b"
        cost = "1.5 ms"
        period = "20 ms"
        offset = "2 ms"
        [[task]]
        name = "d"
        cost = "1 ms"
        period = "10 ms"
        [[task]]
        name = "e"
        cost = "1 ms"
        period = "10 ms"
        [[chain]]
        name = "c"
        tasks = ["d", "e"]
        deadline = "30 ms"
        [room]
        memory = 100
    "#;
    let workload =
        from_toml(text, &|run| if run == "run" { Ok(77) } else { Err(run.to_owned()) }).unwrap();
    let a = &workload.tasks[0];
    assert_eq!(a.cost, Cost::Measured { ticks: 77, run: "run".into() });
    assert_eq!(
        (a.arrival, a.period_ticks, a.deadline_ticks, a.jitter_ticks),
        (Arrival::Sporadic, 10 * MS, 8 * MS, 5000)
    );
    assert_eq!(
        (a.blocking_ticks, a.priority, a.class, a.core),
        (1000, Some(7), Class::Low, Some(3))
    );
    assert_eq!((a.importance, a.app.as_deref(), a.memory_bytes, a.bandwidth), (2, Some("x"), 5, 6));
    let b = &workload.tasks[1];
    assert_eq!(
        (b.cost_ticks(), b.deadline_ticks, b.offset_ticks),
        (1_500_000, 20 * MS, Some(2 * MS))
    );
    assert_eq!(workload.chains[0].tasks, [2, 3]);
    assert_eq!(workload.room, Room { memory_bytes: Some(100), bandwidth: None });
    let csv = "name, cost, period, deadline\n# a comment\na, 1 ms, 10 ms,\nb, 2 ms, 20 ms, 15 ms\n";
    let workload = from_csv(csv, &no_measurement).unwrap();
    assert_eq!(workload.tasks, [ms("a", 1, 10), ms("b", 2, 20).deadline(15 * MS)]);
}

#[test]
fn a_wrong_file_is_refused_with_the_place() {
    let toml = |text: &str| from_toml(text, &no_measurement).unwrap_err().to_string();
    let task = |rest: &str| toml(&format!("[[task]]\nname = \"a\"\n{rest}"));
    assert!(task("cost = \"1 ms\"\nperiod = \"2 ms\"\nprio = 1").contains("unknown key `prio`"));
    assert_eq!(task("cost = \"1 ms\""), "line 1, task a: give either period or sporadic");
    assert_eq!(task("period = \"1 ms\""), "line 1, task a: give either cost or measured");
    assert_eq!(
        task("cost = \"1 m\"\nperiod = \"2 ms\""),
        "line 3, task a: cost: duration \"1 m\": m may be minutes or milliseconds: write \
         1 min or 1 ms"
    );
    assert_eq!(task("cost = \"0\"\nperiod = \"2 ms\""), "line 3, task a: cost is 0");
    assert_eq!(
        task("cost = \"9999999 min\"\nperiod = \"30000000 min\""),
        "line 4, task a: period is longer than 36 years"
    );
    for (text, reason) in [
        ("5", "duration \"5\" has no unit: write 5ns, 5us, 5ms or 5s"),
        ("-1 ms", "invalid duration \"-1 ms\": expected e.g. 500us, 1.5 ms, 64/48000 s or 1kHz"),
    ] {
        let said = task(&format!("cost = {text:?}\nperiod = \"20 ms\""));
        assert_eq!(said, format!("line 3, task a: cost: {reason}"));
    }
    assert_eq!(
        task("cost = 5\nperiod = \"20 ms\""),
        "line 3, cost = 5: found 5; expected a text in quotes; a time has its unit: \
         \"5 ms\""
    );
    assert!(!toml(&"\0".repeat(1000)).contains(char::is_control), "one line that a terminal takes");
    assert!(
        toml("[[task]]\nname = \"a\\u001b\"\n").contains("name: invalid: use 1 to 64 characters")
    );
    assert!(task("measured = \"x\"\nperiod = \"2 ms\"").contains("not read here"));
    let twice = "[[task]]\nname = \"a\"\ncost = \"1 s\"\nperiod = \"2 s\"\n";
    assert_eq!(toml(&twice.repeat(2)), "line 5, task a: this name occurs twice: rename one");
    let chain = format!("{twice}[[chain]]\nname = \"c\"\ntasks = [\"z\"]\ndeadline = \"1 ms\"\n");
    assert_eq!(toml(&chain), "line 7, chain c: tasks: there is no task \"z\"");
    let chain = |tasks: &str, deadline: &str| {
        toml(&format!(
            "{twice}[[chain]]\nname = \"c\"\ntasks = {tasks}\ndeadline = \"{deadline}\"\n"
        ))
    };
    assert_eq!(chain("[\"a\", \"a\"]", "1 s"), "line 5, chain c: task a occurs twice in chains");
    assert_eq!(chain("[]", "1 s"), "line 5, chain c has no tasks");
    assert_eq!(chain("[\"a\"]", "0 s"), "line 8, chain c: deadline is 0");
    let csv = |text: &str| from_csv(text, &no_measurement).unwrap_err();
    assert_eq!(csv(""), FileError::NoTasks);
    assert_eq!(
        csv("name,cots,period\n").to_string(),
        "line 1: unknown column \"cots\": use the fields of [[task]], separated by commas: \
         name,cost,period"
    );
    let spreadsheet =
        from_csv("\u{feff}name,cost,period\r\na,1 ms,10 ms\r\n", &no_measurement).unwrap();
    assert_eq!(spreadsheet.tasks, [ms("a", 1, 10)]);
    assert_eq!(csv("name,cost,period\na,1 ms\n").to_string(), "line 2: 2 fields, the header has 3");
    assert_eq!(
        csv("name,cost,period\na,1 ms,2 ms\na,1 ms,2 ms\n").to_string(),
        "line 3: the name a occurs twice: rename one"
    );
}

#[test]
fn times_that_are_fractions_of_a_nanosecond_are_analysed_exactly() {
    let set = |cost: &str| {
        let other = "name = \"b\"\ncost = \"2/3 ms\"\nsporadic = \"0.75 kHz\"\n";
        let text = format!(
            "[[task]]\nname = \"a\"\ncost = \"{cost}\"\nperiod = \"64/48000 s\"\n[[task]]\n{other}"
        );
        from_toml(&text, &no_measurement).unwrap()
    };
    let verdict = |cost| schedulability(&set(cost).tasks, Policy::Edf, &Effort::default());
    let full = set("2/3 ms");
    assert_eq!(full.time.ticks_per_ns(), 3);
    assert_eq!(full.tasks[0].period_ticks, 4_000_000);
    assert_eq!(full.time.show(full.tasks[1].period_ticks), "4/3 ms");
    // Exactly all of the CPU. In whole nanoseconds the costs round up and the period down.
    assert_eq!(verdict("2/3 ms"), Verdict::Schedulable);
    assert!(verdict("2000001/3 ns").is_not_schedulable());
    let csv = "name,cost,period\na,1/3 ms,44.1 kHz\n";
    assert_eq!(from_csv(csv, &no_measurement).unwrap().time.ticks_per_ns(), 441);
}

#[test]
fn times_without_a_common_tick_are_refused() {
    let row = |below: u64| format!("t{below},1/{below} ns,1 ms\n");
    let primes = [4_294_967_291, 4_294_967_279, 4_294_967_231].map(row).concat();
    let refused = from_csv(&format!("name,cost,period\n{primes}"), &no_measurement).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "line 4: duration \"1/4294967231 ns\": no tick divides all times up to this one and fits \
         64 bits; use fewer different fractions and rates"
    );
    let fine = "name,cost,period\na,1/4294967291 ns,1 h\n";
    assert_eq!(
        from_csv(fine, &no_measurement).unwrap_err().to_string(),
        "line 2: period is longer than 268.435456 ms, the longest for such fine fractions"
    );
}

#[test]
fn the_kernel_admits_whole_nanoseconds_only() {
    let text = "[[task]]\nname = \"a\"\ncost = \"1 ms\"\nperiod = \"64/48000 s\"\n";
    let workload = from_toml(text, &no_measurement).unwrap();
    let refused = kernel_admission(&workload, &Domain::of(1), &Effort::default()).unwrap_err();
    let Verdict::DoesNotApply { reason } = refused else { panic!("{refused:?}") };
    assert_eq!(
        reason.to_string(),
        "task a: period: 4/3 ms is not a whole number of nanoseconds: use 1333333 ns or 1333334 ns"
    );
    let whole = from_toml(&text.replace("64/48000 s", "2 ms"), &no_measurement).unwrap();
    assert!(kernel_admission(&whole, &Domain::of(1), &Effort::default()).unwrap().admitted);
}

/// A chain each, and one that samples all.
#[test]
fn a_file_of_many_chains_is_read_in_time_linear_in_their_number() {
    let seconds = |count: usize| {
        let (mut text, mut all) = (String::new(), Vec::new());
        for at in 0..count {
            all.push(format!("\"t{at}\""));
            text += &format!(
                "[[task]]\nname = \"t{at}\"\ncost = \"1 us\"\nperiod = \"1 s\"\n\
                 [[chain]]\nname = \"c{at}\"\ntasks = [\"t{at}\"]\ndeadline = \"1 s\"\n"
            );
        }
        let all = all.join(", ");
        text += &format!("[[chain]]\nname = \"all\"\nkind = \"sampled\"\ntasks = [{all}]\n");
        let read = || {
            let begin = std::time::Instant::now();
            from_toml(&text, &no_measurement).expect("a task set");
            begin.elapsed().as_secs_f64()
        };
        (0..3).map(|_| read()).fold(f64::INFINITY, f64::min)
    };
    let (few, many) = (seconds(2_000), seconds(40_000));
    // In proportion to their square it is 400 times as long; a busy machine may slow one of them.
    assert!(many < 150.0 * few, "{few} s for 2,000 chains, {many} s for 20 times as many");
}
