// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random task sets, and what must hold of every one of them: tests, oracles and the simulator
//! agree.

use asmp_analysis::simulate::{Random, Releases, Simulation, first_miss, replay, worst_pattern};
use asmp_analysis::{Arrival, Effort, Policy, Task, Verdict, budgets, np_edf, rm, schedulability};

/// What was seen, so that a run that looked at nothing is noticed.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    pub sets: u64,
    pub accepted: u64,
    pub refused: u64,
    pub unknown: u64,
    /// Refused for a load above 1 by so little that the miss is too far away to be simulated.
    pub far: u64,
    pub simulations: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        // Each field by name, so that none is forgotten.
        let Self { sets, accepted, refused, unknown, far, simulations } = more;
        self.sets += sets;
        self.accepted += accepted;
        self.refused += refused;
        self.unknown += unknown;
        self.far += far;
        self.simulations += simulations;
    }
}

/// Utilisations that sum to `total`, evenly distributed (UUniFast: Bini, Buttazzo, Real-Time
/// Systems 30, 2005).
pub fn uunifast(random: &mut Random, count: usize, total: f64) -> Vec<f64> {
    let mut left = total;
    let mut parts = Vec::with_capacity(count);
    for rest in (1..count).rev() {
        let next = left * random.fraction().powf(1.0 / rest as f64);
        parts.push(left - next);
        left = next;
    }
    parts.push(left);
    parts
}

/// Which set comes of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Deadlines are periods, nothing else.
    Plain,
    /// Any deadlines.
    Deadlines,
    /// Any deadlines, jitter, blocking, sporadic tasks.
    Everything,
}

/// 2 to 12 tasks with periods of 2 to 60 ticks: ties and near ties are frequent, hyperperiods
/// short.
pub fn set(seed: u64, shape: Shape) -> Vec<Task> {
    let mut random = Random::new(seed);
    let count = 2 + random.up_to(10) as usize;
    let total = 0.3 + 0.75 * random.fraction();
    let parts = uunifast(&mut random, count, total);
    let section = random.up_to(3).saturating_sub(2) * random.up_to(5);
    let mut tasks = Vec::with_capacity(count);
    for (at, part) in parts.iter().enumerate() {
        let period = 2 + random.up_to(58);
        let cost = ((part * period as f64).round() as u64).max(1);
        let mut task =
            Task::new(format!("t{at}"), cost, period).priority(random.up_to(1000) as u32);
        if random.up_to(1) == 0 {
            task.arrival = Arrival::Sporadic;
        }
        if shape != Shape::Plain {
            task.deadline_ticks = cost + random.up_to(2 * period - cost.min(2 * period));
        }
        if shape == Shape::Everything {
            task.jitter_ticks = random.up_to(2).saturating_sub(1) * random.up_to(period);
            // A section of something outside, the kernel say, keeps everybody up.
            task.blocking_ticks = section;
        }
        tasks.push(task);
    }
    tasks
}

/// The tests that are compared, in the order of their verdicts.
const POLICIES: [Policy; 6] =
    [Policy::NpEdf, Policy::Edf, Policy::Rm, Policy::Dm, Policy::Fp, Policy::NpFp];

/// How the simulator is asked.
#[derive(Debug, Clone, Copy)]
pub struct Runs {
    /// Random runs of each policy that accepts a set.
    pub random: u64,
    /// How long each is, in times of the longest period with its deadline: in one, every task has
    /// a job that is due.
    pub lengths: u64,
}

/// Every test of every policy on one set; panics with the seed where two disagree.
pub fn check(seed: u64, shape: Shape, runs: Runs, tally: &mut Tally) {
    let tasks = set(seed, shape);
    let effort = Effort { steps: 50_000_000, jobs: 300_000 };
    tally.sets += 1;
    let verdicts = POLICIES.map(|policy| schedulability(&tasks, policy, &effort));
    let [np_edf, edf, rm, dm, fp, _] = &verdicts;
    let at = || format!("seed {seed} {shape:?}\n{tasks:?}");
    let implies = |a: &Verdict, b: &Verdict, what: &str| {
        assert!(!a.is_schedulable() || b.is_schedulable(), "{what}: {a:?} but {b:?}\n{}", at());
    };
    implies(&budgets::test(&tasks), np_edf, "budgets accept, the exact test does not");
    let (simple, hyperbolic) = (rm::liu_layland(&tasks), rm::hyperbolic(&tasks));
    implies(&simple, &hyperbolic, "Liu-Layland accepts, hyperbolic does not");
    implies(&hyperbolic, rm, "hyperbolic accepts, the exact test does not");
    if shape != Shape::Everything {
        // EDF is optimal. With jitter it is not: deadlines count from arrivals that nobody knows of
        // yet.
        for other in [np_edf, rm, dm, fp] {
            implies(other, edf, "EDF refuses what another accepts");
        }
        assert_eq!(edf.is_schedulable(), naive(&tasks, false), "naive EDF demand\n{}", at());
        assert_eq!(np_edf.is_schedulable(), naive(&tasks, true), "naive np-EDF demand\n{}", at());
    }
    for (policy, verdict) in POLICIES.into_iter().zip(&verdicts) {
        match verdict {
            Verdict::Schedulable => {
                tally.accepted += 1;
                survives(&tasks, policy, seed, runs, tally, &at);
            }
            Verdict::NotSchedulable { counterexample } if counterexample.missed.is_none() => {
                let load: f64 = tasks
                    .iter()
                    .map(|task| task.cost_ticks() as f64 / task.period_ticks as f64)
                    .sum();
                let far = load > 1.0 && counterexample.by_ticks.is_none_or(|by| by > 300_000);
                assert!(
                    far,
                    "{policy}: the counterexample does not miss: {counterexample:?}\n{}",
                    at()
                );
                tally.refused += 1;
                tally.far += 1;
            }
            Verdict::NotSchedulable { counterexample } => {
                tally.refused += 1;
                let again = replay(
                    &tasks,
                    policy,
                    &counterexample.pattern,
                    counterexample.by_ticks,
                    &effort,
                );
                assert!(again.is_some(), "{policy}: no miss in {counterexample:?}\n{}", at());
                assert_eq!(again, counterexample.missed, "{policy}\n{}", at());
            }
            Verdict::Unknown { .. }
                if shape == Shape::Everything || policy == Policy::Fp || policy == Policy::NpFp =>
            {
                tally.unknown += 1;
            }
            Verdict::Unknown { .. } | Verdict::DoesNotApply { .. } => {
                panic!("{policy}: {verdict:?}\n{}", at())
            }
        }
    }
}

/// An accepted set meets all deadlines under chance and under the worst pattern of each task.
fn survives(
    tasks: &[Task],
    policy: Policy,
    seed: u64,
    runs: Runs,
    tally: &mut Tally,
    at: &dyn Fn() -> String,
) {
    let longest =
        tasks.iter().map(|task| task.period_ticks + task.deadline_ticks).max().unwrap_or(0);
    let mut simulation = Simulation::new(tasks, policy, Releases::Random);
    for run in 0..runs.random {
        simulation.seed = seed ^ (run << 40);
        let missed = first_miss(&simulation, longest * runs.lengths, 100_000).unwrap();
        assert_eq!(missed, None, "{policy}: accepted, but missed in run {run}\n{}", at());
    }
    for victim in 0..tasks.len() {
        let pattern = worst_pattern(tasks, policy, victim).unwrap();
        simulation.releases = Releases::Pattern(pattern);
        let missed = first_miss(&simulation, longest * 8, 100_000).unwrap();
        assert_eq!(
            missed,
            None,
            "{policy}: accepted, but missed in {:?}\n{}",
            simulation.releases,
            at()
        );
    }
    tally.simulations += runs.random + tasks.len() as u64;
}

/// Demand at every tick, without any of the shortcuts; sets without jitter and blocking.
fn naive(tasks: &[Task], non_preemptive: bool) -> bool {
    let hyper = tasks
        .iter()
        .map(|task| task.period_ticks)
        .fold(1u64, |all, period| all / gcd(all, period) * period);
    let demand: u64 = tasks.iter().map(|task| hyper / task.period_ticks * task.cost_ticks()).sum();
    if demand > hyper {
        return false;
    }
    // No window longer than the busy period needs a look.
    let longest = tasks.iter().map(|task| task.deadline_ticks).max().unwrap_or(0);
    let mut busy: u64 = 1;
    loop {
        let work =
            tasks.iter().map(|task| busy.div_ceil(task.period_ticks) * task.cost_ticks()).sum();
        if work == busy {
            break;
        }
        busy = work;
    }
    let first = tasks.iter().map(|task| task.deadline_ticks).min().unwrap_or(0);
    (first..=busy.max(longest)).all(|t| {
        let due = tasks.iter().filter(|task| task.deadline_ticks <= t);
        let demand: u64 = due
            .map(|task| ((t - task.deadline_ticks) / task.period_ticks + 1) * task.cost_ticks())
            .sum();
        let later = tasks.iter().filter(|task| non_preemptive && task.deadline_ticks > t + 1);
        demand + later.map(|task| task.cost_ticks() - 1).max().unwrap_or(0) <= t
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Of sets that are exactly schedulable under np-EDF, how many Proposition 1 accepts, in per mille.
/// The sets: 2 to 12 tasks, UUniFast, periods of 10 to 1000 ticks evenly.
pub fn curve(total: f64, sets: u64, seed: u64) -> (u64, u64) {
    let effort = Effort::default();
    let (mut exact, mut accepted) = (0, 0);
    let mut random = Random::new(seed);
    for _ in 0..sets {
        let count = 2 + random.up_to(10) as usize;
        let parts = uunifast(&mut random, count, total);
        let task = |part: &f64| {
            let period = 10 + random.up_to(990);
            Task::new("t", ((part * period as f64) as u64).max(1), period)
        };
        let tasks: Vec<Task> = parts.iter().map(task).collect();
        if np_edf::test(&tasks, &effort).is_schedulable() {
            exact += 1;
            accepted += u64::from(budgets::test(&tasks).is_schedulable());
        }
    }
    (accepted, exact)
}
