// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains across CPUs: holistic bounds against the simulator, and by hand.

use asmp_analysis::Chain;
use asmp_analysis::holistic::holistic;
use asmp_analysis::simulate::Row;
use asmp_analysis::simulate::{Random, Releases, Run, Simulation, Statistics, first_miss};
use asmp_analysis::{Effort, Outcome, Policy, Task, Verdict, Workload, analyse, edf_response};

const MS: u64 = 1_000_000;

fn ms(name: &str, cost: u64, period: u64) -> Task {
    Task::new(name, cost * MS, period * MS)
}

fn effort() -> Effort {
    Effort::default()
}

fn rows(simulation: &Simulation, until_ticks: u64) -> (Vec<Row>, u64) {
    let mut run = Run::prepare(simulation).expect("it can be simulated");
    let mut statistics = Statistics::of(&run);
    run.go(until_ticks, 10_000_000, &mut statistics);
    (statistics.rows(&run), statistics.miss_count(&run))
}

#[test]
fn a_chain_across_cores_is_never_later_than_its_holistic_bound_in_simulation() {
    let task = |name: &str, cost, period, core, priority| {
        ms(name, cost, period).on_core(core).priority(priority)
    };
    let tasks = [
        task("camera", 2, 33, 0, 80),
        task("detector", 9, 33, 0, 70),
        task("lidar", 4, 20, 0, 75).sporadic(),
        task("planner", 5, 33, 1, 60),
        task("motor", 1, 33, 1, 90),
        task("logger", 3, 50, 1, 10),
    ];
    let chain = Chain { name: "steer".into(), tasks: vec![0, 1, 3, 4], deadline_ticks: 40 * MS };
    let chains = [chain];
    let all = holistic(&tasks, &chains, Policy::Fp, &effort()).unwrap();
    let bounds = all.chains;
    assert!(bounds[0].verdict.is_schedulable());
    let bound = bounds[0].end_to_end_ticks.unwrap();
    let mut longest = 0;
    for seed in 0..50 {
        let simulation = Simulation {
            seed,
            chains: &chains,
            ..Simulation::new(&tasks, Policy::Fp, Releases::Random)
        };
        let (rows, misses) = rows(&simulation, 5000 * MS);
        assert_eq!(misses, 0);
        for (stage, task) in chains[0].tasks.iter().enumerate() {
            assert!(rows[*task].max_ticks <= bounds[0].stages_ticks[stage], "{}", rows[*task].name);
        }
        // What disturbs and is disturbed, jitter of the chain included.
        assert!(
            rows[2].max_ticks <= all.responses_ticks[2]
                && rows[5].max_ticks <= all.responses_ticks[5]
        );
        longest = longest.max(rows[4].max_ticks.unwrap());
    }
    assert!(longest > bound / 2, "the bound {bound} is far from what happens, {longest}");
    let tight = [Chain { deadline_ticks: 15 * MS, ..chains[0].clone() }];
    let bounds = holistic(&tasks, &tight, Policy::Fp, &effort()).unwrap().chains;
    assert!(matches!(bounds[0].verdict, Verdict::Unknown { .. }), "a bound refutes nothing");
}

/// Two or three CPUs with a chain across all of them, each stage on another, and two other tasks on
/// each.
fn chained(seed: u64) -> (Vec<Task>, [Chain; 1]) {
    let mut random = Random::new(seed);
    let cpus = 2 + random.up_to(1) as u32;
    let period = 20 + random.up_to(20);
    let mut tasks = Vec::new();
    for stage in 0..5 {
        tasks.push(ms(&format!("stage{stage}"), 1 + random.up_to(2), period).on_core(stage % cpus));
    }
    for cpu in 0..cpus {
        for _ in 0..2 {
            let period = 10 + random.up_to(60);
            let other = ms(&format!("other{}", tasks.len()), 1 + random.up_to(period / 6), period);
            let mut other = other.on_core(cpu);
            other.jitter_ticks = random.up_to(2) * MS;
            tasks.push(if random.up_to(1) == 0 { other.sporadic() } else { other });
        }
    }
    for (at, task) in tasks.iter_mut().enumerate() {
        task.priority = Some((random.up_to(9) * 20) as u32 + at as u32);
    }
    let deadline_ticks = (1 + random.up_to(2)) * period * MS;
    (tasks, [Chain { name: "c".into(), tasks: (0..5).collect(), deadline_ticks }])
}

#[test]
fn no_simulated_job_of_a_system_with_chains_is_later_than_its_holistic_bound_under_any_policy() {
    for policy in Policy::ALL {
        let (mut bounded, mut near) = (0, 0);
        for set in 0..150 {
            let (tasks, chains) = chained(set);
            let Ok(found) = holistic(&tasks, &chains, policy, &effort()) else { continue };
            if found.responses_ticks.contains(&None) {
                continue;
            }
            bounded += 1;
            let mut nearest_percent = 0;
            for seed in 0..6 {
                let releases = if seed == 0 { Releases::Together } else { Releases::Random };
                let simulation = Simulation {
                    seed,
                    chains: &chains,
                    ..Simulation::new(&tasks, policy, releases)
                };
                let (rows, misses) = rows(&simulation, 2000 * MS);
                assert_eq!(misses, 0, "{policy}, set {set}, seed {seed}");
                for (row, bound_ticks) in rows.iter().zip(&found.responses_ticks) {
                    assert!(
                        row.max_ticks <= *bound_ticks,
                        "{policy}, set {set}, seed {seed}: {row:?} {bound_ticks:?}"
                    );
                }
                let (last_ticks, bound_ticks) =
                    (rows[4].max_ticks.unwrap(), found.responses_ticks[4].unwrap());
                nearest_percent = nearest_percent.max(last_ticks * 100 / bound_ticks);
            }
            near += u32::from(nearest_percent >= 50);
        }
        assert!(bounded >= 40, "{policy}: {bounded} sets have bounds");
        assert!(near * 8 >= bounded, "{policy}: of {bounded} bounds {near} are near what happens");
    }
}

#[test]
fn a_load_above_1_with_chains_is_refuted_under_every_policy_by_a_run_that_misses() {
    let on = |name: &str, cost, period, core, priority| {
        Task::new(name, cost, period).on_core(core).priority(priority)
    };
    // CPU 1 has 1/2 + 3/5 of work, and its first stage is on CPU 0.
    let set = |cost| {
        let mut tasks = vec![on("a", 2, 10, 0, 3), on("b", 5, 10, 1, 2), on("c", cost, 5, 1, 1)];
        tasks[0].jitter_ticks = 1;
        let chains = vec![Chain { name: "c".into(), tasks: vec![0, 1], deadline_ticks: 30 }];
        Workload { chains, ..Workload::of(tasks) }
    };
    for policy in Policy::ALL {
        let workload = set(3);
        let report = analyse(&workload, policy, &[], &effort());
        assert_eq!(report.outcome(), Outcome::NotSchedulable, "{policy}");
        assert!(!report.cpus[0].verdict.is_not_schedulable(), "{policy}: CPU 0 has room");
        let found = report.cpus[1].verdict.counterexample().unwrap();
        let tasks: Vec<usize> = found.pattern.iter().map(|start| start.task).collect();
        assert_eq!(tasks, [0, 2], "{policy}: b is released by a");
        let simulation = Simulation {
            chains: &workload.chains,
            ..Simulation::new(&workload.tasks, policy, Releases::Together)
        };
        let until_ticks = found.by_ticks.unwrap() + 1;
        let missed = first_miss(&simulation, until_ticks, 10_000).unwrap();
        assert_eq!((missed.is_some(), missed), (true, found.missed), "{policy}");
        let full = analyse(&set(2), policy, &[], &effort());
        assert_ne!(full.outcome(), Outcome::NotSchedulable, "{policy}: a load of 0.9");
    }
}

#[test]
fn edf_of_a_chain_by_hand() {
    // On CPU 0 `first` (2, due 10 after its arrival) waits for `other` (3, due 9): 5; `other` for
    // `first` where it comes 1 later: 4. On CPU 1 `second` (1) is released up to 5 after its
    // chain's arrival, and `late` (4, due 30) gives way, unless it may not: then it holds it up for
    // 4 - 1.
    let task = |name: &str, cost, core| Task::new(name, cost, 20).on_core(core);
    let with_deadline = |mut task: Task, deadline_ticks| {
        task.deadline_ticks = deadline_ticks;
        task
    };
    let tasks = [
        task("first", 2, 0),
        with_deadline(task("other", 3, 0), 9),
        task("second", 1, 1),
        with_deadline(task("late", 4, 1), 30),
    ];
    let chains = [Chain { name: "c".into(), tasks: vec![0, 2], deadline_ticks: 10 }];
    let of = |policy| holistic(&tasks, &chains, policy, &effort()).unwrap();
    let all = |of: [u64; 4]| of.map(Some).to_vec();
    assert_eq!(of(Policy::Edf).responses_ticks, all([5, 4, 6, 5]));
    assert_eq!(of(Policy::NpEdf).responses_ticks, all([5, 4, 9, 5]));
    assert!(of(Policy::Edf).chains[0].verdict.is_schedulable());
}

#[test]
fn edf_responses_know_jitter_and_sections() {
    // a, 5 later than b, is due with it; b waits for one a.
    let mut tasks = [Task::new("a", 4, 10), Task::new("b", 6, 20)];
    tasks[1].deadline_ticks = 15;
    assert_eq!(edf_response::responses(&tasks, false, &effort()), Ok(vec![5, 10]));
    tasks[0].jitter_ticks = 3;
    // An a that arrives then is released 3 later, when b is about to end. A b that comes at 2 waits
    // for two: one that came 3 earlier, at -3, and is released at 0, and one that comes at 7 and is
    // due when b is.
    assert_eq!(edf_response::responses(&tasks, false, &effort()), Ok(vec![7, 12]));
    tasks[0].jitter_ticks = 0;
    tasks[0].blocking_ticks = 2;
    // An a that is due before b is held up by 2; what is due when b is, or later, by nothing: all
    // of the set is in then.
    assert_eq!(edf_response::responses(&tasks, false, &effort()), Ok(vec![6, 10]));
    tasks[1].blocking_ticks = 2;
    assert_eq!(edf_response::responses(&tasks, false, &effort()), Ok(vec![7, 12]));
}
