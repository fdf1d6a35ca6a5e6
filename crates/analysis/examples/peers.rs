// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response times beside those of crate response-time-analysis: the same sets, both sides in this
//! process, turn by turn, equal results. The least of three times nine turns of each counts, or of
//! three times 99 where a turn takes microseconds. Then all policies for 10,000 tasks. Exits with 1
//! where a limit is missed.
//!
//! ```text
//! cargo run --release -p asmp-analysis --example peers -- [MOST_TASKS]
//! ```

use asmp_analysis::simulate::Random;
use asmp_analysis::{Effort, Policy, Task, Workload, analyse, edf_response, fp, np_fp};
use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::RBF;
use response_time_analysis::fixed_priority::{fully_nonpreemptive as np, fully_preemptive as p};
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::{edf, wcet};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// Of sets with more tasks than FEW, and of others.
const TURNS: (usize, usize) = (9, 99);
const FEW: usize = 20;
const SETS: usize = 5;
const ROUNDS: usize = 3;
const POLICIES: [Policy; 4] = [Policy::Fp, Policy::NpFp, Policy::Edf, Policy::NpEdf];

/// Of our time beside theirs, for each policy and number of tasks: 1, and more where a turn takes
/// less than a microsecond, because other work on the core slows the two by different factors.
const MOST_RATIO: f64 = 1.0;
const MOST_RATIO_OF_FEW: f64 = 1.25;
/// For 10,000 tasks under all policies.
const MOST_SECONDS: f64 = 3.0;

fn main() -> ExitCode {
    let mut missed = Vec::new();
    let most = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(100);
    let counts = [5, 10, 20, 40, 100].into_iter().filter(|count| *count <= most);
    let rows: Vec<(Policy, usize)> =
        POLICIES.into_iter().flat_map(|policy| counts.clone().map(move |n| (policy, n))).collect();
    let mut least = vec![[(f64::MAX, f64::MAX); SETS]; rows.len()];
    // Some seconds apart: another machine on the same core slows the two by different factors.
    for _ in 0..ROUNDS {
        for ((policy, count), least) in rows.iter().zip(&mut least) {
            for (seed, least) in (0..).zip(least) {
                let both = side_by_side(&set(*count, seed), *policy);
                *least = (least.0.min(both.0), least.1.min(both.1));
            }
        }
    }
    println!("| policy | tasks | ours us | theirs us | ours / theirs |\n|---|---|---|---|---|");
    for ((policy, count), least) in rows.iter().zip(&least) {
        let each = 1e6 / SETS as f64;
        let ours: f64 = each * least.iter().map(|both| both.0).sum::<f64>();
        let theirs: f64 = each * least.iter().map(|both| both.1).sum::<f64>();
        let ratio = ours / theirs;
        let most = if *count < FEW { MOST_RATIO_OF_FEW } else { MOST_RATIO };
        if ratio > most {
            missed.push(format!("{policy}, {count} tasks: {ratio:.2} of their time"));
        }
        println!("| {policy} | {count} | {ours:.2} | {theirs:.2} | {ratio:.2} |");
    }
    let many = Workload { tasks: set(10_000, 1), ..Workload::default() };
    let start = Instant::now();
    for policy in Policy::ALL {
        let start = Instant::now();
        let report = black_box(analyse(&many, policy, &[], &Effort::default()));
        let answer = report.cpus.first().map(|cpu| cpu.verdict.is_schedulable());
        println!("10,000 tasks, {policy}: {:.3} s, {answer:?}", start.elapsed().as_secs_f64());
    }
    let all = start.elapsed().as_secs_f64();
    println!("10,000 tasks, all policies: {all:.2} s");
    if all > MOST_SECONDS {
        missed.push(format!("10,000 tasks, all policies: {all:.2} s, at most {MOST_SECONDS}"));
    }
    missed.iter().for_each(|missed| println!("missed: {missed}"));
    ExitCode::from(u8::from(!missed.is_empty()))
}

/// Periods of 1 ms to 1 s, their logarithms evenly, about equal costs, a load of 0.8; priorities by
/// period. Deadlines count under EDF; elsewhere they are so long that each task keeps its own.
fn set(count: usize, seed: u64) -> Vec<Task> {
    let mut random = Random::new(seed);
    let mut periods: Vec<f64> = (0..count).map(|_| 1e6 * 1000f64.powf(random.fraction())).collect();
    periods.sort_by(f64::total_cmp);
    let sizes: Vec<f64> = periods.iter().map(|_| 0.5 + random.fraction()).collect();
    let sum: f64 = periods.iter().zip(&sizes).map(|(period, size)| size / period).sum();
    let task = |(at, (period, size)): (usize, (&f64, &f64))| {
        let task = Task::new("t", ((0.8 * size / sum) as u64).max(1), *period as u64);
        task.priority((count - at) as u32)
    };
    periods.iter().zip(&sizes).enumerate().map(task).collect()
}

/// Seconds of each side.
fn side_by_side(tasks: &[Task], policy: Policy) -> (f64, f64) {
    let mut least = (f64::MAX, f64::MAX);
    let late: Vec<Task> =
        tasks.iter().map(|task| task.clone().deadline(100 * task.period_ticks)).collect();
    let tasks = if policy.is_edf() { tasks } else { &late };
    for _ in 0..if tasks.len() > FEW { TURNS.0 } else { TURNS.1 } {
        let start = Instant::now();
        let ours = black_box(ours(black_box(tasks), policy));
        let between = Instant::now();
        let theirs = black_box(theirs(black_box(tasks), policy));
        least.1 = least.1.min(between.elapsed().as_secs_f64());
        least.0 = least.0.min((between - start).as_secs_f64());
        assert_eq!(ours, theirs, "{policy}");
    }
    least
}

fn ours(tasks: &[Task], policy: Policy) -> Vec<u64> {
    let effort = Effort { steps: u64::MAX, jobs: 0 };
    let all = match policy {
        Policy::Fp => fp::analyse(tasks, policy, &effort).responses_ticks,
        Policy::NpFp => np_fp::analyse(tasks, &effort).responses_ticks,
        _ => {
            let all = edf_response::responses(tasks, policy == Policy::NpEdf, &effort);
            return all.expect("below full load");
        }
    };
    all.into_iter().map(|ticks| ticks.expect("below full load")).collect()
}

/// As its documentation has it: each task with those that may delay it, all vectors beside the
/// loop.
fn theirs(tasks: &[Task], policy: Policy) -> Vec<u64> {
    let d = Duration::from;
    let limit = d(1 << 50);
    let cost = |task: &Task| wcet::Scalar::new(Service::from(d(task.cost_ticks())));
    let arrivals: Vec<Sporadic> = tasks
        .iter()
        .map(|task| Sporadic { min_inter_arrival: d(task.period_ticks), jitter: d(0) })
        .collect();
    let rbfs: Vec<_> =
        tasks.iter().zip(&arrivals).map(|(task, arrival)| RBF::new(*arrival, cost(task))).collect();
    let but = |at: usize| (0..tasks.len()).filter(move |other| *other != at);
    let preemptive = |at: usize| edf::fully_preemptive::Task {
        rbf: &rbfs[at],
        deadline: d(tasks[at].deadline_ticks),
    };
    let not = |at: usize| edf::fully_nonpreemptive::Task {
        wcet: cost(&tasks[at]),
        arrivals: &arrivals[at],
        deadline: d(tasks[at].deadline_ticks),
    };
    let each = |at: usize| {
        let bound = match policy {
            Policy::Fp => p::dedicated_uniproc_rta(&rbfs[at], &rbfs[..at], limit),
            Policy::NpFp => {
                let below = tasks[at + 1..].iter().map(|task| task.cost_ticks() - 1).max();
                let own = np::TaskUnderAnalysis {
                    wcet: cost(&tasks[at]),
                    arrivals: &arrivals[at],
                    blocking_bound: Service::from(d(below.unwrap_or(0))),
                };
                np::dedicated_uniproc_rta(&own, &rbfs[..at], limit)
            }
            Policy::Edf => {
                let others: Vec<_> = but(at).map(preemptive).collect();
                edf::fully_preemptive::dedicated_uniproc_rta(&preemptive(at), &others, limit)
            }
            _ => {
                let others: Vec<_> = but(at).map(not).collect();
                edf::fully_nonpreemptive::dedicated_uniproc_rta(&not(at), &others, limit)
            }
        };
        u64::from(bound.expect("below full load"))
    };
    (0..tasks.len()).map(each).collect()
}
