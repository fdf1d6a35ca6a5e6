// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's core, the simulator of `asmp-analysis` and the executive of `asmp-rt` run the same
//! jobs at the same instants.

use asmp_analysis::simulate::{self, Execution, Observe, Random, Releases, Run, Simulation};
use asmp_analysis::{Policy, Task as Analysed};
use asmp_rt::executive::{self, JobSet};
use asmp_yartek::{Edf, Job, Late, Next, Task};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// A job that ran: task, activation, begin and end.
type Ran = (u32, u32, u64, u64);

/// What the simulator did.
#[derive(Default)]
struct Seen {
    /// In the order of time.
    arrivals: Vec<(u64, usize)>,
    begun: HashMap<(u32, u64), u64>,
    missed: usize,
    costs: HashMap<(u32, u64), u64>,
    ran: Vec<Ran>,
}

impl Observe for Seen {
    fn released(&mut self, job: &simulate::Job) {
        self.arrivals.push((job.release_ticks, job.stream()));
        self.costs.insert((job.stream, job.index), job.cost_ticks);
    }

    fn started(&mut self, job: &simulate::Job, at_ticks: u64) {
        self.begun.insert((job.stream, job.index), at_ticks);
    }

    fn finished(&mut self, job: &simulate::Job, at_ticks: u64) -> ControlFlow<()> {
        let begun = self.begun[&(job.stream, job.index)];
        self.ran.push((job.stream, job.index as u32, begun, at_ticks));
        self.missed += usize::from(job.deadline_ticks.is_some_and(|due| at_ticks > due));
        ControlFlow::Continue(())
    }
}

/// Half of the sets ask for more than the CPU has. Many share periods and deadlines, so that the
/// order of equals counts.
fn random_set(random: &mut Random) -> Vec<Task> {
    let count = if random.up_to(3) == 0 { 32 } else { 1 + random.up_to(11) };
    let load_percent = if random.up_to(1) == 0 { 90 } else { 180 };
    let grid = [1, 10, 500][random.up_to(2) as usize];
    let mut task = || {
        let period_ticks = (2 + random.up_to(30)) * 40 * grid;
        let deadline_ticks = match random.up_to(3) {
            0 => grid * (1 + random.up_to(period_ticks / grid - 1)),
            1 => period_ticks + grid * random.up_to(40),
            _ => period_ticks,
        };
        let most = (2 * period_ticks * load_percent / 100 / count).max(1);
        Task {
            period_ticks,
            offset_ticks: if random.up_to(1) == 0 { 0 } else { grid * random.up_to(200) },
            deadline_ticks,
            budget_ticks: 1 + random.up_to(most - 1),
            is_sporadic: random.up_to(4) == 0,
            late: Late::Finish,
        }
    };
    (0..count).map(|_| task()).collect()
}

fn simulated(set: &[Task], seed: u64, horizon_ticks: u64) -> Seen {
    let analysed = |(number, task): (usize, &Task)| {
        let analysed = Analysed::new(number.to_string(), task.budget_ticks, task.period_ticks)
            .deadline(task.deadline_ticks)
            .offset(task.offset_ticks);
        if task.is_sporadic { analysed.sporadic() } else { analysed }
    };
    let tasks: Vec<Analysed> = set.iter().enumerate().map(analysed).collect();
    let mut simulation = Simulation::new(&tasks, Policy::NpEdf, Releases::Random);
    simulation.seed = seed;
    simulation.execution = Execution { least_ppm: 300_000, ..Execution::default() };
    let mut seen = Seen::default();
    let mut run = Run::prepare(&simulation).expect("a set that can be simulated");
    run.go(horizon_ticks, 1_000_000, &mut seen);
    seen
}

/// Feeds the core with the simulator's arrivals and costs. `None`: arrivals found no room.
fn run_core(set: &[Task], seen: &Seen, horizon_ticks: u64) -> Option<Vec<Ran>> {
    let mut edf = Edf::new(set, 0);
    let mut arrivals = seen.arrivals.iter().filter(|(_, task)| set[*task].is_sporadic).peekable();
    let (mut ran, mut now) = (Vec::new(), 0);
    loop {
        while let Some((at, task)) = arrivals.next_if(|(at, _)| *at <= now) {
            edf.arrive(*task, *at);
            if edf.refused(*task) > 0 {
                return None;
            }
        }
        now = match edf.next(now) {
            Next::Run(job) => {
                let cost = seen.costs.get(&(job.task, job.activation.into()));
                let end = now + cost.expect("a job that the simulator released");
                if end >= horizon_ticks {
                    return Some(ran);
                }
                assert!(edf.ended(&job, end));
                ran.push((job.task, job.activation, now, end));
                end
            }
            Next::Idle(soonest) => {
                let arrival = arrivals.peek().map_or(u64::MAX, |(at, _)| *at);
                arrival.min(soonest.unwrap_or(u64::MAX))
            }
            Next::NotBegun(job) => panic!("no task faults: {job:?}"),
        };
        if now >= horizon_ticks {
            return Some(ran);
        }
    }
}

#[test]
fn the_core_runs_each_job_when_the_simulator_does() {
    let sets = std::env::var("YARTEK_SETS").map_or(3000, |sets| sets.parse().expect("a number"));
    let (mut jobs, mut refused, mut missed) = (0, 0, 0);
    for seed in 0..sets {
        let mut random = Random::new(seed);
        let set = random_set(&mut random);
        let longest = set.iter().map(|task| task.period_ticks).max().expect("a task");
        let horizon = longest * 8;
        let seen = simulated(&set, seed, horizon);
        let Some(ran) = run_core(&set, &seen, horizon) else {
            refused += 1;
            continue;
        };
        assert_eq!(ran, seen.ran, "seed {seed}: {set:#?}");
        jobs += ran.len();
        missed += usize::from(seen.missed > 0);
    }
    println!("{jobs} jobs of {sets} sets are equal; {missed} sets with misses, {refused} left out");
    assert!(jobs as u64 > 50 * sets && missed as u64 > sets / 5 && refused < sets / 10);
}

/// A run of `asmp-rt`'s queue and one of the core, of tasks that skip or fault. Costs by chance.
fn compare_with_rt(seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let mut set = random_set(&mut random);
    for task in &mut set {
        task.is_sporadic = false;
        task.deadline_ticks = task.period_ticks;
        let faults = if seed.is_multiple_of(4) { 2 } else { 1 };
        task.late = [Late::Finish, Late::Skip, Late::Fault][random.up_to(faults) as usize];
    }
    let of_rt = |task: &Task| executive::Task {
        period_ns: task.period_ticks,
        offset_ns: task.offset_ticks,
        budget_ns: task.budget_ticks,
        late: match task.late {
            Late::Finish => executive::Late::Finish,
            Late::Skip => executive::Late::Skip,
            Late::Fault => executive::Late::Fault,
        },
    };
    let mut rt = JobSet::new(&set.iter().map(of_rt).collect::<Vec<_>>());
    let mut edf = Edf::new(&set, 0);
    let (mut now, mut jobs) = (0, 0);
    while jobs < 500 {
        let next = edf.next(now);
        match (next, rt.next(now)) {
            (Next::Run(job), Ok(executive::Next::Run(tick))) => {
                assert_eq!(of_tick(&tick), job, "seed {seed}");
                // Some take much longer than they may.
                let times = if random.up_to(9) == 0 { 6 } else { 1 };
                now += 1 + random.up_to(set[tick.task].budget_ticks * times);
                jobs += 1;
                let fault = rt.ended(&tick, now).is_err();
                assert_eq!(edf.ended(&job, now), !fault, "seed {seed}");
                if fault {
                    break;
                }
            }
            (Next::Idle(at), Ok(executive::Next::Idle(rt_at))) => {
                assert_eq!(at, rt_at, "seed {seed}");
                now = at.expect("a periodic task starts some time");
            }
            (Next::NotBegun(job), Err(fault)) => {
                let told = (fault.task as u32, fault.activation as u32, fault.deadline_ns);
                assert_eq!(told, (job.task, job.activation, job.deadline_ticks), "seed {seed}");
                break;
            }
            (core, rt) => panic!("seed {seed}: core {core:?}, rt {rt:?}"),
        }
    }
    for (task, stats) in rt.stats().enumerate() {
        let core = edf.stats(task);
        let counts = [stats.activations, stats.misses, stats.skipped, stats.over_budget];
        let core_counts = [core.ended, core.missed, core.skipped, core.over_budget];
        assert_eq!(counts, core_counts.map(u64::from), "seed {seed}");
        let times = [stats.worst_response_ns, stats.worst_start_lateness_ns, stats.worst_run_ns];
        assert_eq!(times, [core.response_ticks, core.lateness_ticks, core.run_ticks]);
    }
    [jobs, rt.stats().map(|stats| stats.skipped).sum(), u64::from(jobs < 500)]
}

fn of_tick(tick: &executive::Tick) -> Job {
    Job {
        task: tick.task as u32,
        activation: tick.activation as u32,
        skipped: tick.skipped as u32,
        start_ticks: tick.start_ns,
        deadline_ticks: tick.deadline_ns,
        begun_ticks: tick.begun_ns,
    }
}

#[test]
fn the_core_skips_and_faults_as_the_executive_of_rt() {
    let totals = (0..2000).map(compare_with_rt).fold([0; 3], |mut sum, one| {
        sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        sum
    });
    println!("jobs, skipped, sets that faulted: {totals:?}");
    assert!(totals[0] > 100_000 && totals[1] > 10_000 && totals[2] > 100, "{totals:?}");
}

fn task(period_ticks: u64, deadline_ticks: u64) -> Task {
    Task {
        period_ticks,
        offset_ticks: 0,
        deadline_ticks,
        budget_ticks: 1,
        is_sporadic: false,
        late: Late::Finish,
    }
}

#[test]
fn after_a_skip_the_next_job_waits_for_its_start() {
    let mut edf = Edf::new(&[Task { late: Late::Skip, ..task(10, 3) }], 0);
    assert_eq!(edf.next(25), Next::Idle(Some(30)), "those of 0, 10 and 20 are over");
    let Next::Run(job) = edf.next(30) else { panic!("it runs at 30") };
    assert_eq!((job.activation, job.skipped, job.start_ticks), (3, 3, 30));
}

#[test]
fn what_arrives_before_the_epoch_becomes_a_job_that_starts_then() {
    let mut edf = Edf::new(&[Task { is_sporadic: true, ..task(10, 4) }], 1000);
    edf.arrive(0, 990);
    edf.arrive(0, 995);
    let mut started = Vec::new();
    let mut now = 996;
    while started.len() < 2 {
        match edf.next(now) {
            Next::Run(job) => {
                started.push((job.start_ticks, job.deadline_ticks));
                now += 1;
                assert!(edf.ended(&job, now));
            }
            Next::Idle(Some(soonest)) => now = soonest,
            next => panic!("{next:?}"),
        }
    }
    assert_eq!(started, [(1000, 1004), (1010, 1014)]);
}

#[test]
fn an_arrival_that_comes_too_soon_counts_a_period_after_the_one_before() {
    let mut edf = Edf::new(&[Task { is_sporadic: true, ..task(10, 4) }], 0);
    assert_eq!(edf.next(0), Next::Idle(None));
    for at in [2, 5, 6, 100] {
        edf.arrive(0, at);
    }
    let mut ran = Vec::new();
    let mut now = 6;
    while ran.len() < 4 {
        match edf.next(now) {
            Next::Run(job) => {
                ran.push((job.start_ticks, job.deadline_ticks));
                now += 1;
                assert!(edf.ended(&job, now));
            }
            next => {
                let Next::Idle(Some(soonest)) = next else { panic!("{next:?}") };
                now = soonest;
            }
        }
    }
    assert_eq!(ran, [(2, 6), (12, 16), (22, 26), (100, 104)]);
    (0..9).for_each(|_| edf.arrive(0, 200));
    assert_eq!(edf.refused(0), 0, "one is a job by now, eight wait");
    edf.arrive(0, 200);
    assert_eq!(edf.refused(0), 1);
}
