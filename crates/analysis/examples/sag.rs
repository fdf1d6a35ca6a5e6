// SPDX-License-Identifier: Apache-2.0 OR MIT
//! np-EDF beside the schedule-abstraction graph of Nasri and Brandenburg ("An exact and sustainable
//! analysis of non-preemptive scheduling", RTSS 2017), on what both can judge: periodic tasks that
//! are released together.
//!
//!     cargo run --release -p asmp-analysis --example sag -- NPTEST [SETS [TASKS]]
//!
//! NPTEST is the program `nptest` of github.com/gnelissen/np-schedulability-analysis, built
//! elsewhere; none of it is here. It gets the jobs of a hyperperiod and is exact for them. Once
//! each job takes its whole cost, once any part of it. Our test is exact for free offsets; with
//! offsets of 0 a refusal is looked into by simulation, and may end as `Unknown`.

#[path = "../tests/agreement/sets.rs"]
#[allow(dead_code)]
mod sets;

use asmp_analysis::simulate::Random;
use asmp_analysis::{Effort, Task, Verdict, np_edf};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Their least common multiple is the longest, so that is a hyperperiod of every set.
const PERIODS_US: [u64; 8] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000];

/// UUniFast, but no job longer than a part of the shortest period: else nearly all sets are
/// refused.
fn set(seed: u64, count: usize) -> Vec<Task> {
    let mut random = Random::new(seed);
    let total = 0.3 + 0.7 * random.fraction();
    let parts = sets::uunifast(&mut random, count, total);
    let periods: Vec<u64> = (0..count)
        .map(|_| PERIODS_US[random.up_to(PERIODS_US.len() as u64 - 1) as usize])
        .collect();
    let shortest = *periods.iter().min().expect("a task");
    let most = (shortest as f64 * (0.3 + 0.7 * random.fraction())) as u64;
    let cost = |part: f64, period: u64| ((part * period as f64) as u64).clamp(1, most);
    parts
        .iter()
        .zip(periods)
        .map(|(part, period)| Task::new("t", cost(*part, period), period).offset(0))
        .collect()
}

/// Task, job, earliest and latest release, least and most cost, deadline, priority: the deadline,
/// and of equal ones first released first, then as in the set, which is the order of our simulator.
fn jobs(tasks: &[Task], least_cost: impl Fn(&Task) -> u64) -> String {
    let end = PERIODS_US[PERIODS_US.len() - 1];
    let of = |(index, task): (usize, &Task)| {
        (0..end).step_by(task.period_ticks as usize).map(move |release| (release, index))
    };
    let mut releases: Vec<(u64, usize)> = tasks.iter().enumerate().flat_map(of).collect();
    releases.sort_unstable();
    let mut lines =
        "Task ID, Job ID, Arrival min, Arrival max, Cost min, Cost max, Deadline, Priority\n"
            .to_owned();
    for (number, (release, index)) in releases.into_iter().enumerate() {
        let task = &tasks[index];
        let (due, least, most) =
            (release + task.deadline_ticks, least_cost(task), task.cost_ticks());
        let priority = due * 1_000_000 + number as u64;
        let _ = writeln!(
            lines,
            "{}, {number}, {release}, {release}, {least}, {most}, {due}, {priority}",
            index + 1
        );
    }
    lines
}

/// Its answer and its own CPU time in seconds; `None`: it gave up after a minute.
fn ask(nptest: &str, jobs: &str) -> Option<(bool, f64)> {
    let mut child = Command::new(nptest)
        .args(["-l", "60", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("nptest starts");
    child.stdin.take().expect("its input").write_all(jobs.as_bytes()).expect("it reads the jobs");
    let output = child.wait_with_output().expect("it ends");
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let column = |at: usize| {
        line.split(',').nth(at).map(str::trim).unwrap_or_else(|| panic!("nptest: {line:?}"))
    };
    let seconds = column(6).parse().expect("seconds");
    (column(8) == "0").then_some((column(1) == "1", seconds))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let nptest = words.first().expect("the path of nptest");
    let sets: u64 = words.get(1).map_or(1000, |word| word.parse().expect("how many sets"));
    let fixed: Option<usize> = words.get(2).map(|word| word.parse().expect("how many tasks"));
    let (mut yes, mut no, mut unknown) = (0, 0, 0);
    let (mut later, mut gave_up) = (0, 0);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for seed in 0..sets {
        let tasks = set(seed, fixed.unwrap_or(2 + seed as usize % 11));
        let free: Vec<Task> =
            tasks.iter().map(|task| Task { offset_ticks: None, ..task.clone() }).collect();
        let start = Instant::now();
        let sporadic = np_edf::test(&free, &Effort::default());
        let seconds = start.elapsed().as_secs_f64();
        let verdict = np_edf::test(&tasks, &Effort::default());
        let (whole, any) = (jobs(&tasks, Task::cost_ticks), jobs(&tasks, |_| 1));
        let (Some((whole, _)), Some((any, cpu))) = (ask(nptest, &whole), ask(nptest, &any)) else {
            gave_up += 1;
            continue;
        };
        ours.push(seconds);
        theirs.push(cpu);
        let at = || {
            format!(
                "seed {seed}: ours {verdict:?}; theirs: whole costs {whole}, any costs {any}\n\
                 {tasks:?}"
            )
        };
        match &verdict {
            Verdict::Schedulable => {
                yes += 1;
                assert!(whole && any && sporadic.is_schedulable(), "{}", at());
            }
            Verdict::NotSchedulable { .. } => {
                no += 1;
                assert!(!whole && !any && !sporadic.is_schedulable(), "{}", at());
            }
            // Refused for free offsets; together, and with whole costs, none misses.
            Verdict::Unknown { .. } => {
                unknown += 1;
                later += u64::from(!any);
                assert!(whole && !sporadic.is_schedulable(), "{}", at());
            }
            Verdict::DoesNotApply { reason } => panic!("{reason}"),
        }
    }
    println!(
        "{sets} sets: both yes {yes}, both no {no}; released together and with whole costs no \
         miss, with others unknown to us {unknown}, of which nptest refutes {later}; nptest gave \
         up on {gave_up}"
    );
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0) * 1e6
    };
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    println!(
        "median of a set: ours {ours:.1} us, nptest {theirs:.0} us (its own CPU time), ratio {:.0}",
        theirs / ours
    );
}
