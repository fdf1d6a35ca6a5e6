// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is worst for a task is as bad as the table says: in the simulator, and in the picture.

use asmp_analysis::simulate::{Random, Releases, Run, Simulation, Statistics, worst_pattern};
use asmp_analysis::{
    Class, Effort, Policy, Task, Workload, analyse, fp, np_fp, worst_schedule_svg,
};
use asmp_duration::ExactDuration;
use std::collections::BTreeMap;

/// A set with a priority for each task and at most nine tenths of the CPU's time, so that its busy
/// periods are short. `None`: this seed gives more.
fn set(seed: u64, jitter: bool) -> Option<Vec<Task>> {
    let mut random = Random::new(seed);
    let tasks: Vec<Task> = (0..2 + random.up_to(3) as u32)
        .map(|at| {
            let period = 5 + random.up_to(30);
            let cost = 1 + random.up_to(period / 3);
            let late = random.up_to(1) * random.up_to(period);
            let mut task = Task::new(format!("t{at}"), cost, period)
                .deadline(cost + random.up_to(2 * period))
                .jitter(if jitter { late } else { 0 })
                .priority(1 + at);
            task.class = if random.up_to(1) == 0 { Class::High } else { Class::Low };
            task
        })
        .collect();
    let load: f64 =
        tasks.iter().map(|task| task.cost_ticks() as f64 / task.period_ticks as f64).sum();
    (load <= 0.9).then_some(tasks)
}

/// The longest response of a task in the run that is worst for it.
fn longest(tasks: &[Task], policy: Policy, victim: usize) -> Option<u64> {
    let pattern = worst_pattern(tasks, policy, victim).expect("a set");
    let stream = pattern.iter().position(|start| start.task == victim).expect("the victim");
    let mut run =
        Run::prepare(&Simulation::new(tasks, policy, Releases::Pattern(pattern))).expect("a set");
    let mut statistics = Statistics::of(&run);
    run.go(2_000, 100_000, &mut statistics);
    statistics.rows(&run)[stream].max_ticks
}

#[test]
fn the_worst_pattern_under_fixed_priorities_reaches_the_response_of_the_table() {
    let mut reached = BTreeMap::new();
    for (seed, tasks) in (0..200).filter_map(|seed| Some((seed, set(seed, true)?))) {
        for policy in [Policy::Rm, Policy::Dm, Policy::Fp, Policy::NpFp, Policy::Muf] {
            let bounds = match policy {
                Policy::NpFp => np_fp::analyse(&tasks, &Effort::default()).responses_ticks,
                _ => fp::analyse(&tasks, policy, &Effort::default()).responses_ticks,
            };
            for (victim, bound) in bounds.into_iter().enumerate() {
                assert!(bound.is_some(), "{seed} {policy} {victim}\n{tasks:?}");
                assert_eq!(
                    longest(&tasks, policy, victim),
                    bound,
                    "{seed} {policy} {victim}\n{tasks:?}"
                );
                *reached.entry(policy.name()).or_insert(0) += 1;
            }
        }
    }
    assert!(reached.len() == 5 && reached.values().all(|count| *count > 200), "{reached:?}");
}

/// The longest response of a task that a picture shows whole, with its deadline.
fn drawn(svg: &str, task: &Task) -> Option<u64> {
    let ns = |text: &str| text.parse::<ExactDuration>().unwrap().whole_ns().unwrap();
    let (mut due, mut done) = (BTreeMap::new(), BTreeMap::new());
    for title in svg.split("<title>").skip(1).filter_map(|part| part.split('<').next()) {
        let Some(of_task) = title.strip_prefix(&format!("{} job ", task.name)) else { continue };
        match (of_task.split_once(" is due at "), of_task.split_once(": ")) {
            (Some((job, at)), _) => _ = due.insert(job, ns(at)),
            (_, Some((job, times))) => _ = done.insert(job, ns(times.split_once(" to ")?.1)),
            _ => {}
        }
    }
    let responses = due.iter().filter_map(|(job, due)| {
        let done = done.get(job)?;
        Some(done + task.deadline_ticks - due)
    });
    responses.max()
}

/// The picture of an accepted set, the task that it is about and that task's bound.
fn picture(tasks: &[Task], policy: Policy) -> Option<(String, usize, u64)> {
    let workload = Workload::of(tasks.to_vec());
    let report = analyse(&workload, policy, &[], &Effort::default());
    if !report.cpus[0].verdict.is_schedulable() {
        return None;
    }
    let svg = worst_schedule_svg(&workload, &report).unwrap().unwrap();
    let (_, name) = svg.split_once(": the worst case of ")?;
    let (name, _) = name.split_once('<')?;
    let victim = tasks.iter().position(|task| task.name == name)?;
    let bound = report.cpus[0].responses_ticks[victim]?;
    Some((svg, victim, bound))
}

#[test]
fn the_picture_of_an_accepted_set_shows_the_response_of_the_table() {
    for policy in Policy::ALL {
        let (mut reached, mut all) = (0, 0);
        for seed in 0..400 {
            // Under EDF a victim's own jitter is not taken into the pattern.
            let Some(tasks) = set(seed, !policy.is_edf()) else { continue };
            let Some((svg, victim, bound)) = picture(&tasks, policy) else { continue };
            let found = drawn(&svg, &tasks[victim]);
            assert!(found <= Some(bound), "{seed} {policy}: {found:?} {bound}\n{tasks:?}");
            all += 1;
            reached += u32::from(found == Some(bound));
        }
        println!("{policy}: {reached} of {all}");
        assert!(all > 40, "{policy}: {all}");
        // Of equal deadlines the simulator runs the first released, the bound counts either.
        let least = if policy.is_edf() { all * 95 } else { all * 100 };
        assert!(reached * 100 >= least, "{policy}: {reached} of {all}");
    }
}

/// The messages of Davis, Burns, Bril, Lukkien 2007, with room for what they found: the second job
/// of the third takes longest.
#[test]
fn a_picture_goes_on_until_the_worst_job_where_that_is_not_the_first() {
    let tasks = [
        Task::new("a", 2, 5).priority(3),
        Task::new("b", 2, 7).priority(2),
        Task::new("c", 2, 7).priority(1),
    ];
    let (svg, victim, bound) = picture(&tasks, Policy::NpFp).expect("an accepted set");
    assert_eq!((victim, bound), (2, 7));
    assert!(svg.contains("c job 0: 4 ns to 6 ns"), "{svg}");
    assert!(svg.contains("c job 1: 12 ns to 14 ns"), "{svg}");
    assert!(svg.contains("c job 1 is due at 14 ns"), "{svg}");
}
