// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers that were wrong, or missing where there is one: each as a vector, and np-EDF with jitter
//! beside a search through every run of small sets.

use asmp_analysis::file::{from_csv, from_toml, no_measurement};
use asmp_analysis::simulate::{
    Random, Releases, Run, Simulation, Statistics, first_miss, worst_pattern,
};
use asmp_analysis::{
    Effort, Policy, Task, Verdict, Workload, analyse, edf_response, fp, np_fp, schedulability,
    worst_schedule_svg,
};
use std::collections::HashSet;

fn test(tasks: &[Task], policy: Policy) -> Verdict {
    schedulability(tasks, policy, &Effort::default())
}

#[test]
fn of_equal_priorities_the_order_in_the_file_decides_nothing() {
    let a = Task::new("a", 2, 10).deadline(2).offset(0).priority(5);
    let b = Task::new("b", 3, 10).offset(0).priority(5);
    let c = Task::new("c", 1, 10).offset(6).priority(5);
    for policy in [Policy::Fp, Policy::NpFp] {
        for set in [[a.clone(), b.clone(), c.clone()], [b.clone(), c.clone(), a.clone()]] {
            let verdict = test(&set, policy);
            let found = verdict.counterexample().unwrap_or_else(|| panic!("{policy} {verdict:?}"));
            let missed = found.missed.expect("a replay");
            assert_eq!((set[missed.task].name.as_str(), missed.finished_ticks), ("a", Some(5)));
        }
        // Apart, or with room for either order, all is well.
        let apart = [a.clone(), Task { offset_ticks: Some(2), ..b.clone() }];
        assert!(test(&apart, policy).is_schedulable(), "{policy}");
        let roomy = [Task { deadline_ticks: 5, ..a.clone() }, b.clone(), c.clone()];
        assert!(test(&roomy, policy).is_schedulable(), "{policy}");
    }
    // Without offsets: whose miss the replay shows must not depend on the order either.
    let free = |task: &Task| Task { offset_ticks: None, ..task.clone() };
    for set in [[free(&a), free(&b), free(&c)], [free(&c), free(&b), free(&a)]] {
        assert!(test(&set, Policy::Fp).is_not_schedulable());
    }
}

#[test]
fn a_load_above_1_is_a_no_under_every_policy() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let count = 2 + random.up_to(3);
        let mut tasks: Vec<Task> = (0..count)
            .map(|at| {
                let period = 4 + random.up_to(16);
                let mut task = Task::new(format!("t{at}"), 1 + random.up_to(period - 1), period)
                    .deadline(period * (1 + random.up_to(30)))
                    .jitter(random.up_to(1) * random.up_to(period))
                    .blocking(random.up_to(3))
                    .priority(1 + random.up_to(1) as u32);
                if random.up_to(2) == 0 {
                    task = task.offset(random.up_to(period));
                }
                task
            })
            .collect();
        let load = |tasks: &[Task]| -> f64 {
            tasks.iter().map(|task| task.cost_ticks() as f64 / task.period_ticks as f64).sum()
        };
        if load(&tasks) <= 1.01 {
            tasks.push(Task::new("full", 19, 20).priority(1).deadline(900));
        }
        if load(&tasks) <= 1.01 {
            continue;
        }
        for policy in Policy::ALL {
            let verdict = test(&tasks, policy);
            assert!(verdict.is_not_schedulable(), "{seed} {policy}: {verdict:?}\n{tasks:?}");
        }
    }
}

#[test]
fn a_job_without_preemption_does_not_block_its_own_task() {
    let one = [Task::new("a", 3, 10).jitter(7)];
    assert!(test(&one, Policy::NpEdf).is_schedulable());
    assert!(test(&[Task::new("a", 4, 10).jitter(7)], Policy::NpEdf).is_not_schedulable());
    let responses = edf_response::responses(&one, true, &Effort::default());
    assert_eq!(responses, Ok(vec![10]));
}

/// A job in a search: its task, its age, what is left of it, whether it is released.
type Job = (u8, u8, u8, bool);

/// Does some run of these tasks (arrivals a period apart or more, released in order up to the
/// jitter later) miss a deadline? Goes through every state.
fn some_run_misses(tasks: &[Task], preemptive: bool) -> bool {
    let byte = |ticks: u64| u8::try_from(ticks).expect("small");
    // Ticks since the last arrival of each; jobs in the order of arrival; the job that runs.
    type State = (Vec<u8>, Vec<Job>, Option<usize>);
    let first: State = (tasks.iter().map(|task| byte(task.period_ticks)).collect(), vec![], None);
    let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
    while let Some((since, jobs, running)) = open.pop() {
        assert!(seen.len() < 3_000_000, "too many states: {tasks:?}");
        for arrivals in 0..1u32 << tasks.len() {
            let arrives = |task: usize| arrivals >> task & 1 == 1;
            let may = |task: usize| u64::from(since[task]) >= tasks[task].period_ticks;
            if (0..tasks.len()).any(|task| arrives(task) && !may(task)) {
                continue;
            }
            let (mut since, mut jobs) = (since.clone(), jobs.clone());
            for task in (0..tasks.len()).filter(|task| arrives(*task)) {
                since[task] = 0;
                jobs.push((task as u8, 0, byte(tasks[task].cost_ticks()), false));
            }
            let held: Vec<usize> = (0..jobs.len()).filter(|job| !jobs[*job].3).collect();
            for releases in 0..1u32 << held.len() {
                let mut jobs = jobs.clone();
                for (bit, job) in held.iter().enumerate() {
                    jobs[*job].3 = releases >> bit & 1 == 1;
                }
                let is_allowed = (0..jobs.len()).all(|at| {
                    let (task, age, _, released) = jobs[at];
                    let before = jobs[..at].iter().any(|job| job.0 == task && !job.3);
                    let due = u64::from(age) >= tasks[task as usize].jitter_ticks;
                    if released { !before } else { !due || before }
                });
                // One that is held back by an earlier one of its task may not be late itself.
                let in_time = jobs.iter().all(|(task, age, _, released)| {
                    *released || u64::from(*age) < tasks[*task as usize].jitter_ticks
                });
                if !is_allowed || !in_time {
                    continue;
                }
                let left = |job: &Job| {
                    i64::try_from(tasks[job.0 as usize].deadline_ticks).unwrap() - i64::from(job.1)
                };
                let least = jobs.iter().filter(|job| job.3).map(left).min();
                let choices: Vec<Option<usize>> = match (running.filter(|_| !preemptive), least) {
                    (Some(job), _) => vec![Some(job)],
                    (None, Some(least)) => (0..jobs.len())
                        .filter(|job| jobs[*job].3 && left(&jobs[*job]) == least)
                        .map(Some)
                        .collect(),
                    (None, None) => vec![None],
                };
                for choice in choices {
                    let (mut since, mut jobs) = (since.clone(), jobs.clone());
                    let mut running = choice;
                    if let Some(job) = choice {
                        jobs[job].2 -= 1;
                    }
                    jobs.iter_mut().for_each(|job| job.1 += 1);
                    if let Some(job) = choice.filter(|job| jobs[*job].2 == 0) {
                        if left(&jobs[job]) < 0 {
                            return true;
                        }
                        jobs.remove(job);
                        running = None;
                    }
                    if jobs.iter().any(|job| left(job) <= 0) {
                        return true;
                    }
                    for (task, since) in since.iter_mut().enumerate() {
                        *since = (*since + 1).min(byte(tasks[task].period_ticks));
                    }
                    let next = (since, jobs, running);
                    if seen.insert(next.clone()) {
                        open.push(next);
                    }
                }
            }
        }
    }
    false
}

#[test]
fn np_edf_and_edf_with_jitter_are_exact_beside_a_search_through_every_run() {
    let (mut yes, mut no, mut own) = (0, 0, 0);
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let task = |at: u64, random: &mut Random| {
            let period = 3 + random.up_to(4);
            let cost = 1 + random.up_to(2);
            let deadline = cost + random.up_to(7);
            Task::new(format!("t{at}"), cost, period)
                .deadline(deadline)
                .jitter(random.up_to(4).min(deadline.saturating_sub(cost)))
        };
        let count = 1 + random.up_to(1);
        let tasks: Vec<Task> = (0..count).map(|at| task(at, &mut random)).collect();
        let load: f64 =
            tasks.iter().map(|task| task.cost_ticks() as f64 / task.period_ticks as f64).sum();
        if load > 1.0 {
            continue;
        }
        for (policy, preemptive) in [(Policy::Edf, true), (Policy::NpEdf, false)] {
            let verdict = test(&tasks, policy);
            let misses = some_run_misses(&tasks, preemptive);
            let agrees =
                if misses { verdict.is_not_schedulable() } else { verdict.is_schedulable() };
            assert!(agrees, "{seed} {policy}: {misses} {verdict:?}\n{tasks:?}");
            yes += u32::from(!misses);
            no += u32::from(misses);
            let held = |task: &Task| task.jitter_ticks > 1 && task.cost_ticks() > 1;
            own += u32::from(!misses && !preemptive && tasks.iter().any(held));
        }
    }
    println!("{yes} schedulable, {no} not, {own} with a job that could block itself");
    assert!(yes > 100 && no > 60 && own > 20, "lopsided: {yes} {no} {own}");
}

#[test]
fn edf_responses_at_a_load_of_exactly_1_with_jitter_are_found_and_reached() {
    let one = [Task::new("a", 6, 6).deadline(13).jitter(7)];
    for non_preemptive in [false, true] {
        let found = edf_response::responses(&one, non_preemptive, &Effort::default());
        assert_eq!(found, Ok(vec![13]), "{non_preemptive}");
    }
    let two = [
        Task::new("a", 2, 4).deadline(11).jitter(3),
        Task::new("b", 3, 6).deadline(14).blocking(1),
    ];
    for policy in [Policy::Edf, Policy::NpEdf] {
        let found = edf_response::responses(&two, policy == Policy::NpEdf, &Effort::default());
        let found = found.expect("a load of 1");
        for (victim, bound) in found.iter().enumerate() {
            let reached = longest(&two, policy, victim);
            assert!(reached <= *bound, "{policy} {victim}: {reached} of {bound}");
        }
    }
    let above = [Task::new("a", 6, 6).jitter(1), Task::new("b", 1, 60)];
    assert!(edf_response::responses(&above, false, &Effort::default()).is_err());
}

/// The longest response of a task in the run that is worst for it.
fn longest(tasks: &[Task], policy: Policy, victim: usize) -> u64 {
    let pattern = worst_pattern(tasks, policy, victim).expect("a set");
    let position = pattern.iter().position(|start| start.task == victim).expect("the victim");
    let first = pattern[..position].iter().filter(|start| start.held_up_ticks > 0).count();
    let simulation = Simulation::new(tasks, policy, Releases::Pattern(pattern));
    let mut run = Run::prepare(&simulation).expect("a set");
    let mut statistics = Statistics::of(&run);
    run.go(2000, 100_000, &mut statistics);
    statistics.rows(&run)[position + first].max_ticks.unwrap_or(0)
}

/// Where nothing is preempted, a section that begins while jobs wait is none that the set allows:
/// it would add to the job that runs at that moment.
#[test]
fn the_worst_pattern_of_an_accepted_set_with_sections_misses_nothing() {
    let task = |name: &str, cost, period, deadline| {
        Task::new(name, cost, period).deadline(deadline).blocking(5)
    };
    let mut tasks = [
        task("t0", 3, 11, 14),
        task("t1", 2, 13, 20),
        task("t2", 6, 54, 26),
        task("t3", 1, 7, 6),
        task("t4", 1, 33, 34),
    ];
    for least in 0..=5 {
        tasks[2].blocking_ticks = least;
        for policy in [Policy::NpEdf, Policy::Edf] {
            assert!(test(&tasks, policy).is_schedulable());
            for victim in 0..tasks.len() {
                let pattern = worst_pattern(&tasks, policy, victim).unwrap();
                let held = pattern.iter().map(|start| start.held_up_ticks).max();
                assert!(held <= Some(5), "{policy} {victim}: {pattern:?}");
                let releases = Releases::Pattern(pattern);
                let simulation = Simulation::new(&tasks, policy, releases);
                let missed = first_miss(&simulation, 1_000, 100_000).unwrap();
                assert_eq!(missed, None, "{policy} {victim} {least}");
            }
        }
    }
}

#[test]
fn the_worst_pattern_under_edf_reaches_the_response_of_the_table() {
    let (mut reached, mut all) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let tasks: Vec<Task> = (0..2 + random.up_to(3))
            .map(|at| {
                let period = 5 + random.up_to(30);
                Task::new(format!("t{at}"), 1 + random.up_to(period / 4), period)
                    .deadline(period + random.up_to(20))
            })
            .collect();
        for policy in [Policy::Edf, Policy::NpEdf] {
            let non_preemptive = policy == Policy::NpEdf;
            let Ok(bounds) = edf_response::responses(&tasks, non_preemptive, &Effort::default())
            else {
                continue;
            };
            for (victim, bound) in bounds.iter().enumerate() {
                let found = longest(&tasks, policy, victim);
                assert!(found <= *bound, "{seed} {policy} {victim}: {found} {bound}\n{tasks:?}");
                all += 1;
                reached += u32::from(found == *bound);
            }
        }
    }
    assert!(all > 500, "{all}");
    println!("{reached} of {all} reached");
    // The rest: of equal deadlines the simulator runs the first released, the bound counts either.
    assert!(reached * 100 >= all * 95, "{reached} of {all}");
}

#[test]
fn given_offsets_without_preemption_are_decided_for_every_cost_and_jitter() {
    // At free offsets long makes b late; at these it never runs before b, unless a ends early.
    let set = |cost: u64| {
        [
            Task::new("a", 2, 10).offset(0),
            Task::new("long", cost, 20).offset(0),
            Task::new("b", 2, 10).offset(2).deadline(5),
        ]
    };
    assert!(test(&set(4), Policy::NpEdf).is_schedulable());
    let verdict = test(&set(5), Policy::NpEdf);
    assert!(
        matches!(&verdict, Verdict::Unknown { reason }
            if reason.to_string().contains("some take less")),
        "{verdict:?}"
    );
    // Late by 1, urgent may find that long has started.
    let late = |jitter: u64| {
        [
            Task::new("urgent", 2, 10).offset(0).deadline(6).jitter(jitter),
            Task::new("long", 5, 20).offset(0),
        ]
    };
    assert!(test(&late(0), Policy::NpEdf).is_schedulable());
    assert!(matches!(test(&late(1), Policy::NpEdf), Verdict::Unknown { .. }));
    let mut with_jitter = 0;
    let (mut accepted, mut refused, mut open, mut gained) = (0, 0, 0, 0);
    for seed in 0..1200 {
        let mut random = Random::new(seed);
        let periods = [4, 6, 8, 12, 24];
        let has_jitter = seed >= 600;
        let tasks: Vec<Task> = (0..2 + random.up_to(2))
            .map(|at| {
                let period = periods[random.up_to(4) as usize];
                Task::new(format!("t{at}"), 1 + random.up_to(period / 3), period)
                    .offset(random.up_to(period))
                    .priority(1 + random.up_to(2) as u32)
                    .jitter(if has_jitter { random.up_to(period / 3) } else { 0 })
            })
            .collect();
        for policy in [Policy::NpEdf, Policy::NpFp] {
            match test(&tasks, policy) {
                Verdict::Schedulable => {
                    accepted += 1;
                    let free = |task: &Task| Task { offset_ticks: None, ..task.clone() };
                    let free: Vec<Task> = tasks.iter().map(free).collect();
                    let is_gain = u32::from(!test(&free, policy).is_schedulable());
                    gained += is_gain;
                    with_jitter += if has_jitter { is_gain } else { 0 };
                    let execution =
                        asmp_analysis::simulate::Execution { least_ppm: 1, ..Default::default() };
                    for seed in 0..20 {
                        let simulation = Simulation {
                            seed,
                            execution,
                            ..Simulation::new(&tasks, policy, Releases::Random)
                        };
                        let missed = first_miss(&simulation, 500, 10_000).expect("a set");
                        assert_eq!(missed, None, "{seed} {policy}\n{tasks:?}");
                    }
                }
                Verdict::NotSchedulable { .. } => refused += 1,
                _ => open += 1,
            }
        }
    }
    println!("{accepted} accepted, {gained} by their offsets, {refused} refused, {open} open");
    assert!(gained > 20, "the offsets decide: {gained}");
    assert!(with_jitter > 10, "with jitter, too: {with_jitter}");
    assert!(accepted > 200 && refused > 200, "{accepted} {refused} {open}");
    // Equal priorities whose order jitter may exclude.
    assert!(open <= 160, "of 2,400 sets {open} are undecided");
}

#[test]
fn fixed_priorities_say_how_late_a_task_is() {
    let tasks = [Task::new("a", 5, 10).priority(2), Task::new("b", 5, 20).deadline(7).priority(1)];
    let of = |responses: Vec<Option<u64>>| responses;
    let fp = fp::analyse(&tasks, Policy::Fp, &Effort::default());
    assert!(fp.verdict.is_not_schedulable());
    assert_eq!(of(fp.responses_ticks), [Some(5), Some(10)]);
    let np = np_fp::analyse(&tasks, &Effort::default());
    assert_eq!(of(np.responses_ticks), [Some(9), Some(10)]);
    let over = [Task::new("a", 5, 10).priority(2), Task::new("b", 11, 20).priority(1)];
    let fp = fp::analyse(&over, Policy::Fp, &Effort::default());
    assert_eq!(of(fp.responses_ticks), [Some(5), None], "a load above 1 has no bound");
}

const TASK: &str = "[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '10 ms'\n";

#[test]
fn each_wrong_entry_of_a_file_is_named_with_its_line() {
    let error = |text: &str| from_toml(text, &no_measurement).unwrap_err().to_string();
    let b = "[[task]]\nname = 'b'\ncost = '1 ms'\nperiod = '10 ms'\n";
    let chain = "[[chain]]\nname = 'c'\ntasks = ['a', 'b']\ndeadline = '10 ms'\n";
    for (text, says) in [
        (format!("{TASK}deadline = '5'\n"), "line 5, task a: deadline: "),
        (format!("{TASK}\n{TASK}"), "line 6, task a: this name occurs twice"),
        (TASK.replace("'10 ms'", "'0'"), "line 4, task a: period is 0"),
        (format!("{TASK}sporadic = '1 s'\n"), "line 1, task a: give either period or sporadic"),
        (format!("{TASK}priority = 120\n"), "line 5, task a: priority: 120 is not one of"),
        (format!("{TASK}priority = 0\n"), "line 5, task a: priority: 0 is not one of"),
        (TASK.replace("'a'", "'a\u{202e}b'"), "line 2, task \"a\\u{202e}b\": name: invalid"),
        (TASK.replace("'a'", "\"a\\u0007\""), "line 2, task \"a\\u{7}\": name: invalid"),
        (TASK.replace("'a'", &format!("'{}'", "x".repeat(100_000))), "…\": name: invalid: use 1"),
        (format!("{TASK}app = 'a\u{2067}'\n"), "line 5, task a: app: invalid"),
        (
            format!("{TASK}{b}offset = '1 ms'\n{chain}"),
            "line 10, chain c: task b has an offset, but the task before it releases it",
        ),
        (
            format!("{TASK}{b}deadline = '9 ms'\n{chain}"),
            "line 10, chain c: task b has a deadline of its own",
        ),
        (
            format!("{TASK}{b}{chain}").replace("'b']", "'x']"),
            "line 11, chain c: tasks: there is no task \"x\"",
        ),
        (
            format!("{TASK}[[background]]\nname = 'l'\ncost = '1'\nperiod = '1 s'\n"),
            "line 7, background l: cost: ",
        ),
        (
            format!("{TASK}[[interrupt]]\nname = 'l'\nservice = '1 s'\ngap = '0'\n"),
            "line 8, interrupt l: gap is 0",
        ),
        (
            format!(
                "{TASK}jitter = '1/4294967291 ns'\nblocking = '1/4294967279 ns'\n\
                 offset = '1/4294967231 ns'\n"
            ),
            "line 6: duration \"1/4294967279 ns\": no tick divides",
        ),
    ] {
        let found = error(&text);
        assert!(found.contains(says) && found.len() < 300 && !found.contains('\n'), "{found}");
    }
    let says = error(&format!("{TASK}{b}offset = '1 ms'\n{chain}"));
    assert!(says.ends_with("leave the offset out"), "{says}");
    // The first task of a chain has what releases it.
    let first = TASK.replace("'10 ms'\n", "'10 ms'\noffset = '1 ms'\n");
    from_toml(&format!("{first}{b}{chain}"), &no_measurement).unwrap();
}

#[test]
fn a_file_without_a_task_is_its_own_refusal() {
    for text in ["", "# nothing\n", "[room]\nmemory = 1\n"] {
        let error = from_toml(text, &no_measurement).unwrap_err();
        assert!(error.to_string().starts_with("there is no task: "), "{error}");
        assert_eq!(error, from_csv("", &no_measurement).unwrap_err());
        assert_eq!(error, from_csv("name,cost,period\n", &no_measurement).unwrap_err());
    }
}

#[test]
fn the_picture_of_an_accepted_set_is_the_worst_case_of_its_tightest_task() {
    let ms =
        |name: &str, cost: u64, period: u64| Task::new(name, cost * 1_000_000, period * 1_000_000);
    let mut tasks: Vec<Task> = (1..=6).map(|at| ms(&format!("sonar{at}"), 20, 500)).collect();
    tasks.extend([ms("updateMap", 100, 500), ms("antiSensor", 20, 2000)]);
    let workload = Workload::of(tasks);
    let report = analyse(&workload, Policy::NpEdf, &[], &Effort::default());
    let svg = worst_schedule_svg(&workload, &report).unwrap().expect("a picture");
    assert!(svg.contains("np-edf: the worst case of sonar1"), "{svg}");
    // antiSensor has started a nanosecond before; sonar1 is the last of its deadline.
    assert!(svg.contains("antiSensor job 0: 0 ns to 20 ms"), "{svg}");
    assert!(svg.contains("sonar1 job 0: 220 ms to 240 ms"), "{svg}");
    assert!(svg.contains("sonar1 job 0 is due at 500.000001 ms"), "{svg}");
    assert!(!svg.contains("fill=\"black\""), "what is free does not dominate");
}

#[test]
fn placement_tests_tasks_in_the_order_of_the_file() {
    // Of equal deadlines the first goes first: b waits for a, and for its section.
    let mut tasks =
        vec![Task::new("a", 2, 8).deadline(4), Task::new("b", 1, 12).deadline(4).blocking(3)];
    tasks[1].importance = 2;
    tasks.push(Task::new("c", 12, 12).on_core(1));
    tasks.iter_mut().take(2).for_each(|task| task.core = Some(0));
    let room = asmp_analysis::place::Room::default();
    let by = asmp_analysis::place::By::FirstFit;
    let effort = Effort::default();
    tasks.push(Task::new("d", 12, 12));
    let found =
        asmp_analysis::place::place(&tasks, &[0, 1], by, Policy::Dm, &room, &effort).unwrap();
    assert!(found.unplaced.iter().any(|unplaced| unplaced.task < 2), "{found:?}");
    assert!(test(&tasks[..2], Policy::Dm).is_not_schedulable());
}

#[test]
fn a_later_task_of_a_chain_has_its_jitter_in_the_simulator() {
    let text = |jitter: &str| {
        format!(
            "{TASK}core = 1\n[[task]]\nname = 'b'\ncost = '1 ms'\nperiod = '10 ms'\ncore = 2\n\
             {jitter}\n\
             [[chain]]\nname = 'c'\ntasks = ['a', 'b']\ndeadline = '20 ms'\n"
        )
    };
    let longest = |jitter: &str| {
        let workload = from_toml(&text(jitter), &no_measurement).unwrap();
        let simulation = Simulation {
            chains: &workload.chains,
            ..Simulation::new(&workload.tasks, Policy::Edf, Releases::Random)
        };
        let mut run = Run::prepare(&simulation).unwrap();
        let mut statistics = Statistics::of(&run);
        run.go(10_000_000_000, 1_000_000, &mut statistics);
        let row = &statistics.rows(&run)[1];
        (row.max_ticks, row.jobs)
    };
    assert_eq!(longest("").0, Some(2_000_000));
    let (late, jobs) = longest("jitter = '3 ms'");
    assert_eq!((late, jobs > 900), (Some(5_000_000), true));
}
