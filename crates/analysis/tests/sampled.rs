// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sampled chains: bounds of data age and reaction time against what runs show, by definition and
//! over all phases, and by hand.

use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::simulate::{
    DataTimes, Execution, Job, Observe, Owner, Random, Releases, Run, Simulation,
};
use asmp_analysis::{
    Chain, Effort, Outcome, Policy, SampledBound, SampledChain, Task, Verdict, Workload, analyse,
};
use std::ops::ControlFlow;

/// Start and finish of each job, by stream.
#[derive(Default)]
struct Jobs {
    first_arrivals: Vec<Option<u64>>,
    starts: Vec<Vec<u64>>,
    done: Vec<Vec<(u64, u64)>>,
}

impl Jobs {
    fn of(run: &Run) -> Self {
        let count = run.owners.len();
        Self {
            first_arrivals: vec![None; count],
            starts: vec![vec![]; count],
            done: vec![vec![]; count],
        }
    }
}

impl Observe for Jobs {
    fn released(&mut self, job: &Job) {
        self.first_arrivals[job.stream()].get_or_insert(job.arrival_ticks);
    }

    // Called when a job leaves a core, so that jobs of one stream come in their order.
    fn ran(&mut self, _core: usize, job: &Job, from_ticks: u64, _to_ticks: u64) {
        if job.left_ticks == job.cost_ticks {
            self.starts[job.stream()].push(from_ticks);
        }
    }

    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        let stream = job.stream();
        let start = self.starts[stream][job.index as usize];
        self.done[stream].push((start, at_ticks));
        ControlFlow::Continue(())
    }
}

/// Longest data age and reaction time, by their definitions.
fn by_definition(run: &Run, jobs: &Jobs, chain: &SampledChain) -> (Option<u64>, Option<u64>) {
    let stream = |task: usize| run.owners.iter().position(|owner| *owner == Owner::Task(task));
    let streams: Vec<usize> = chain.tasks.iter().map(|task| stream(*task).unwrap()).collect();
    // The read that the data of a job of a stage come from.
    let sample = |stage: usize, start: u64| {
        let (mut stage, mut start) = (stage, start);
        while stage > 0 {
            stage -= 1;
            let written = jobs.done[streams[stage]].iter().filter(|(_, end)| *end <= start);
            start = written.max_by_key(|(_, end)| *end)?.0;
        }
        Some(start)
    };
    let last = streams.len() - 1;
    let outputs: Vec<(u64, u64)> = jobs.done[streams[last]]
        .iter()
        .filter_map(|(start, end)| Some((sample(last, *start)?, *end)))
        .collect();
    let age = outputs.iter().map(|(sample, end)| end - sample).max();
    let complete = streams.iter().map(|stream| jobs.first_arrivals[*stream].unwrap_or(u64::MAX));
    let complete = complete.max().unwrap();
    let reaction = jobs.done[streams[0]].iter().filter_map(|(read, _)| {
        // Something happens just after this read.
        let shown = outputs.iter().filter(|(sample, _)| sample > read).map(|(_, end)| *end);
        // From the first output on that is based on a read after all tasks had arrived.
        let before = outputs.iter().map(|(sample, _)| *sample).filter(|sample| sample <= read);
        (before.max()? >= complete).then_some(shown.min()? - read)
    });
    (age, reaction.max())
}

struct Set {
    tasks: Vec<Task>,
    chains: Vec<Chain>,
    sampled: SampledChain,
}

impl Set {
    fn bound(&self, policy: Policy) -> SampledBound {
        let workload = Workload {
            chains: self.chains.clone(),
            sampled: vec![self.sampled.clone()],
            ..Workload::of(self.tasks.clone())
        };
        analyse(&workload, policy, &[], &Effort::default()).sampled.remove(0)
    }

    /// A run; panics where it passes the bounds or differs from the definitions.
    fn run(
        &self,
        policy: Policy,
        bound: &SampledBound,
        simulation: &Simulation,
        until: u64,
    ) -> u64 {
        let mut run = Run::prepare(simulation).unwrap();
        let (mut jobs, mut times) =
            (Jobs::of(&run), DataTimes::of(&run, std::slice::from_ref(&self.sampled)));
        run.go(until, 1_000_000, &mut (&mut jobs, &mut times));
        let (age, reaction) = by_definition(&run, &jobs, &self.sampled);
        let row = times.rows().next().unwrap();
        let what = || {
            let (tasks, chains) = (&self.tasks, &self.chains);
            format!("{policy} {tasks:#?} {chains:?} {:?} {:?}", self.sampled, simulation.releases)
        };
        assert_eq!((row.age_ticks, row.reaction_ticks), (age, reaction), "{}", what());
        assert!(age <= bound.age_ticks, "{age:?} {bound:?} {}", what());
        assert!(reaction <= bound.reaction_ticks, "{reaction:?} {bound:?} {}", what());
        age.unwrap_or(0)
    }
}

fn sampled(tasks: &[usize]) -> SampledChain {
    let tasks = tasks.to_vec();
    SampledChain { name: "c".into(), tasks, age_limit_ticks: None, reaction_limit_ticks: None }
}

fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, random.up_to(at as u64) as usize);
    }
    order
}

fn small(seed: u64) -> Set {
    let random = &mut Random::new(seed);
    let (count, cores) = (2 + random.up_to(1), 1 + random.up_to(1));
    let task = |at: u64, random: &mut Random| {
        let period = 3 + random.up_to(4);
        let cost = 1 + random.up_to(period / 2);
        let mut task = Task::new(format!("t{at}"), cost, period).priority(random.up_to(3) as u32);
        task.deadline_ticks = cost + random.up_to(period + 2);
        if random.up_to(3) == 0 {
            task.jitter_ticks = random.up_to(2);
        }
        task.on_core(random.up_to(cores - 1) as u32)
    };
    let tasks: Vec<Task> = (0..count).map(|at| task(at, random)).collect();
    let sampled = sampled(&shuffled(count as usize, random));
    Set { tasks, chains: vec![], sampled }
}

#[test]
fn over_all_phases_of_small_sets_no_data_are_older_and_no_reaction_later_than_the_bounds() {
    let (mut bounded, mut reached) = (0, 0);
    for seed in 0..100 {
        let set = small(seed);
        for policy in Policy::ALL {
            let bound = set.bound(policy);
            let Some(most) = bound.age_ticks else { continue };
            bounded += 1;
            let mut longest = 0;
            let phases: u64 = set.tasks.iter().map(|task| task.period_ticks).product();
            for phase in 0..phases {
                let mut rest = phase;
                let mut tasks = set.tasks.clone();
                for task in &mut tasks {
                    task.offset_ticks = Some(rest % task.period_ticks);
                    rest /= task.period_ticks;
                }
                let has_jitter = tasks.iter().any(|task| task.jitter_ticks > 0);
                let releases = if has_jitter { Releases::Random } else { Releases::Together };
                let simulation =
                    Simulation { seed: phase, ..Simulation::new(&tasks, policy, releases) };
                longest = longest.max(set.run(policy, &bound, &simulation, 90));
            }
            reached += u32::from(longest * 10 >= most * 7);
        }
    }
    assert!(bounded > 300, "{bounded}");
    assert!(reached * 2 > bounded, "of {bounded} bounds {reached} are near what happens");
}

/// Up to eight tasks on up to three CPUs, some with jitter, sections and offsets; half of the sets
/// with a triggered chain, one task of which may be sampled.
fn large(seed: u64) -> Set {
    let random = &mut Random::new(seed);
    let (count, cores) = (2 + random.up_to(6), 1 + random.up_to(2));
    let load = 1 + random.up_to(3);
    let triggered = if random.up_to(1) == 0 { 0 } else { random.up_to(2).min(count - 1) };
    let of_chain = 20 + random.up_to(40);
    let mut tasks = Vec::new();
    for at in 0..count {
        let period = if at < triggered { of_chain } else { 8 + random.up_to(92) };
        let cost = 1 + random.up_to(period * 2 / (count * load));
        let mut task = Task::new(format!("t{at}"), cost, period);
        task.priority = Some(random.up_to(5) as u32);
        task.core = Some(random.up_to(cores - 1) as u32);
        if at >= triggered {
            task.deadline_ticks = cost + random.up_to(period * 2);
            task.offset_ticks = (random.up_to(3) == 0).then(|| random.up_to(period * 3));
        }
        if random.up_to(2) == 0 {
            task.jitter_ticks = random.up_to(period);
        }
        if random.up_to(4) == 0 {
            task.blocking_ticks = random.up_to(4);
        }
        tasks.push(task);
    }
    let mut chains = Vec::new();
    if triggered > 0 {
        let tasks = (0..triggered as usize).collect();
        let deadline_ticks = of_chain * (1 + random.up_to(2));
        chains.push(Chain { name: "t".into(), tasks, deadline_ticks });
    }
    let mut order = shuffled(count as usize, random);
    order.truncate(1 + random.up_to(4) as usize);
    Set { tasks, chains, sampled: sampled(&order) }
}

#[test]
fn two_tasks_with_cpus_of_their_own_come_within_a_tick_of_the_bounds() {
    // Their periods have no common factor, so that one run has all phases: a sample is written
    // just after the other has read.
    for (first, second) in [(5, 7), (7, 5), (9, 4), (4, 9), (8, 11)] {
        for (cost, other) in [(1, 1), (4, 1), (1, 4), (3, 2), (4, 4)] {
            let tasks = vec![
                Task::new("a", cost, first).on_core(0).priority(2),
                Task::new("b", other, second).on_core(1).priority(1),
            ];
            let set = Set { tasks, chains: vec![], sampled: sampled(&[0, 1]) };
            for policy in Policy::ALL {
                let bound = set.bound(policy);
                let all_ticks = first + cost + second + other;
                assert_eq!(bound.age_ticks, Some(all_ticks - second));
                assert_eq!(bound.reaction_ticks, Some(all_ticks));
                let simulation = Simulation::new(&set.tasks, policy, Releases::Together);
                let age = set.run(policy, &bound, &simulation, 3 * first * second);
                assert_eq!(age, all_ticks - second - 1, "{policy} {first} {second} {cost} {other}");
            }
        }
    }
}

#[test]
fn in_random_runs_of_thousands_of_chains_no_bound_is_passed() {
    let mut bounded = 0;
    for seed in 0..800 {
        let set = large(seed);
        for policy in Policy::ALL {
            let bound = set.bound(policy);
            if bound.age_ticks.is_none() {
                continue;
            }
            bounded += 1;
            for (run, least_ppm) in [(0, 1_000_000), (1, 1), (2, 1_000_000)] {
                let releases = if run == 2 { Releases::Together } else { Releases::Random };
                let simulation = Simulation {
                    seed: seed ^ (run << 32),
                    execution: Execution { least_ppm, ..Execution::default() },
                    chains: &set.chains,
                    ..Simulation::new(&set.tasks, policy, releases)
                };
                set.run(policy, &bound, &simulation, 1500);
            }
        }
    }
    assert!(bounded > 2000, "{bounded}");
}

#[test]
fn a_camera_of_33_ms_and_a_control_of_10_ms_by_hand() {
    let text = |limits: &str| {
        format!(
            "[[task]]\nname = 'camera'\ncost = '5 ms'\nperiod = '33 ms'\ncore = 0\n\
             [[task]]\nname = 'control'\ncost = '2 ms'\nperiod = '10 ms'\ncore = 1\n\
             [[chain]]\nname = 'see'\nkind = 'sampled'\ntasks = ['camera', 'control']\n{limits}"
        )
    };
    let of = |limits: &str| {
        let workload = from_toml(&text(limits), &no_measurement).unwrap();
        analyse(&workload, Policy::Rm, &[], &Effort::default())
    };
    // The next camera job arrives 33 after the one that just missed the event and takes 5; then
    // control arrives within 10, and takes 2. What the camera wrote is used for 33 - 5 + 5 more.
    let report = of("");
    let bound = &report.sampled[0];
    let ms = |ms: u64| Some(ms * 1_000_000);
    assert_eq!((bound.age_ticks, bound.reaction_ticks), (ms(33 + 5 + 2), ms(33 + 5 + 10 + 2)));
    assert_eq!(report.outcome(), Outcome::Schedulable);
    assert!(report.factor_ppm().is_some(), "without limits room is known");
    assert_eq!(of("age = '40 ms'\nreaction = '50 ms'\n").outcome(), Outcome::Schedulable);
    for limits in ["age = '39 ms'\n", "reaction = '49.999 ms'\n"] {
        let report = of(limits);
        assert_eq!(report.outcome(), Outcome::Unknown);
        assert!(matches!(report.sampled[0].verdict, Verdict::Unknown { .. }));
        assert_eq!(report.factor_ppm(), None, "room would ignore the limit");
    }
    // On one CPU, with the camera before control, control never reads between.
    let one = text("").replace("core = 1", "core = 0").replace("10 ms", "33 ms");
    let one = from_toml(&one, &no_measurement).unwrap();
    let report = analyse(&one, Policy::Rm, &[], &Effort::default());
    let bound = &report.sampled[0];
    assert_eq!((bound.age_ticks, bound.reaction_ticks), (ms(33 + 7), ms(66 + 7)));
    assert_eq!(report.policy.ranks(&one.tasks), Ok(Some(vec![0, 1])));
}

#[test]
fn a_wrong_sampled_chain_is_refused_with_its_line_and_the_cure() {
    let error = |chain: &str| {
        let text = format!(
            "[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '33 ms'\n\
             [[task]]\nname = 'b'\ncost = '1 ms'\nperiod = '10 ms'\n\
             [[task]]\nname = 's'\ncost = '1 ms'\nsporadic = '10 ms'\n\
             [[chain]]\nname = 'c'\n{chain}\n"
        );
        from_toml(&text, &no_measurement).unwrap_err().to_string()
    };
    let start = "tasks = ['a', 'b']\n";
    for (chain, says) in [
        (format!("{start}deadline = '1 s'"), "line 13, chain c: task b has a different period"),
        (format!("{start}deadline = '1 s'"), "if it samples at its own, write kind = \"sampled\""),
        (format!("{start}age = '1 s'"), "line 16, chain c: age: only chains with kind"),
        (
            format!("{start}kind = 'sampled'\ndeadline = '1 s'"),
            "line 17, chain c: deadline: a samp",
        ),
        (format!("{start}kind = 'sampled'\nage = '0'"), "line 17, chain c: age is 0"),
        (format!("{start}kind = 'sampled'\nreaction = '1'"), "line 17, chain c: reaction: "),
        (start.to_owned(), "line 13, chain c: the key deadline is missing: add it"),
        (
            format!("{start}kind = 'both'"),
            "unknown value `both`: expected `triggered` or `sampled`",
        ),
        ("kind = 'sampled'\ntasks = []".to_owned(), "chain c: tasks: there are none"),
        ("kind = 'sampled'\ntasks = ['a', 'a']".to_owned(), "chain c: task a occurs twice"),
        ("kind = 'sampled'\ntasks = ['x']".to_owned(), "there is no task \"x\""),
        (
            "kind = 'sampled'\ntasks = ['a', 's']".to_owned(),
            "line 13, chain c: task s is sporadic, so that its data may be of any age: give it a",
        ),
    ] {
        let error = error(&chain);
        assert!(error.contains(says) && !error.contains('\n'), "{chain}: {error}");
    }
}
