// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Response times beside those of crate response-time-analysis (Bozhko, Brandenburg, ECRTS 2020:
//! formulas verified in Coq).

use super::sets::{Shape, set};
use asmp_analysis::{Effort, Policy, Task, edf_response, fp, np_fp};
use response_time_analysis::arrival::Sporadic;
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::{demand, edf, fixed_priority, wcet};

const LIMIT: u64 = 20_000;

fn d(ns: u64) -> Duration {
    Duration::from(ns)
}

fn s(ns: u64) -> Service {
    Service::from(d(ns))
}

struct Theirs {
    arrivals: Vec<Sporadic>,
    costs: Vec<wcet::Scalar>,
}

impl Theirs {
    fn of(tasks: &[Task]) -> Self {
        let arrival = |task: &Task| Sporadic {
            min_inter_arrival: d(task.period_ticks),
            jitter: d(task.jitter_ticks),
        };
        Self {
            arrivals: tasks.iter().map(arrival).collect(),
            costs: tasks.iter().map(|task| wcet::Scalar::new(s(task.cost_ticks()))).collect(),
        }
    }

    fn rbf(&self, index: usize) -> demand::RBF<&Sporadic, &wcet::Scalar> {
        demand::RBF::new(&self.arrivals[index], &self.costs[index])
    }
}

/// Sets below full load, priorities distinct, in the order of urgency.
fn sets() -> impl Iterator<Item = Vec<Task>> {
    (0..400).map(|seed| set(seed, Shape::Deadlines)).filter_map(|tasks| {
        let load: f64 =
            tasks.iter().map(|task| task.cost_ticks() as f64 / task.period_ticks as f64).sum();
        let count = tasks.len() as u32;
        let ranked = tasks
            .into_iter()
            .enumerate()
            .map(|(at, task)| Task { priority: Some(count - at as u32), ..task });
        // Deadlines out of the way: only response times are compared.
        (load < 0.97).then(|| ranked.collect())
    })
}

fn without_deadlines(tasks: &[Task]) -> Vec<Task> {
    tasks.iter().map(|task| Task { deadline_ticks: LIMIT, ..task.clone() }).collect()
}

#[test]
fn preemptive_fixed_priorities_agree() {
    let mut compared = 0;
    for tasks in sets() {
        let theirs = Theirs::of(&tasks);
        let ours =
            fp::analyse(&without_deadlines(&tasks), Policy::Fp, &Effort::default()).responses_ticks;
        for (index, ours) in ours.iter().enumerate() {
            let urgent: Vec<_> = (0..index).map(|other| theirs.rbf(other)).collect();
            let bound = fixed_priority::fully_preemptive::dedicated_uniproc_rta(
                &theirs.rbf(index),
                &urgent,
                d(LIMIT),
            );
            assert_eq!(ours.map(d), bound.ok(), "{index} {tasks:?}");
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn non_preemptive_fixed_priorities_agree() {
    let mut compared = 0;
    for tasks in sets() {
        let theirs = Theirs::of(&tasks);
        let ours = np_fp::analyse(&without_deadlines(&tasks), &Effort::default()).responses_ticks;
        for (index, ours) in ours.iter().enumerate() {
            let urgent: Vec<_> = (0..index).map(|other| theirs.rbf(other)).collect();
            let lower =
                tasks[index + 1..].iter().map(|task| task.cost_ticks() - 1).max().unwrap_or(0);
            let task = fixed_priority::fully_nonpreemptive::TaskUnderAnalysis {
                wcet: wcet::Scalar::new(s(tasks[index].cost_ticks())),
                arrivals: &theirs.arrivals[index],
                blocking_bound: s(lower),
            };
            let bound = fixed_priority::fully_nonpreemptive::dedicated_uniproc_rta(
                &task,
                &urgent,
                d(LIMIT),
            );
            assert_eq!(ours.map(d), bound.ok(), "{index} {tasks:?}");
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn edf_agrees() {
    let mut compared = 0;
    for tasks in sets() {
        let theirs = Theirs::of(&tasks);
        let ours =
            edf_response::responses(&tasks, false, &Effort::default()).expect("below full load");
        for (index, ours) in ours.iter().enumerate() {
            let (own, others) = split(&tasks, &theirs, index);
            let task = |(rbf, at): &(_, usize)| edf::fully_preemptive::Task {
                rbf: *rbf,
                deadline: d(tasks[*at].deadline_ticks),
            };
            let others: Vec<(&demand::RBF<_, _>, usize)> =
                others.iter().map(|(rbf, at)| (rbf, *at)).collect();
            let others: Vec<_> = others.iter().map(task).collect();
            let own =
                edf::fully_preemptive::Task { rbf: &own, deadline: d(tasks[index].deadline_ticks) };
            let bound = edf::fully_preemptive::dedicated_uniproc_rta(&own, &others, d(LIMIT));
            assert_eq!(Ok(d(*ours)), bound, "{index} {tasks:?}");
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}

type Rbf<'a> = demand::RBF<&'a Sporadic, &'a wcet::Scalar>;

fn split<'a>(tasks: &[Task], theirs: &'a Theirs, index: usize) -> (Rbf<'a>, Vec<(Rbf<'a>, usize)>) {
    let others =
        (0..tasks.len()).filter(|other| *other != index).map(|other| (theirs.rbf(other), other));
    (theirs.rbf(index), others.collect())
}

#[test]
fn non_preemptive_edf_agrees() {
    let mut compared = 0;
    for tasks in sets() {
        let theirs = Theirs::of(&tasks);
        let ours =
            edf_response::responses(&tasks, true, &Effort::default()).expect("below full load");
        let task = |index: usize| edf::fully_nonpreemptive::Task {
            wcet: wcet::Scalar::new(s(tasks[index].cost_ticks())),
            arrivals: &theirs.arrivals[index],
            deadline: d(tasks[index].deadline_ticks),
        };
        for (index, ours) in ours.iter().enumerate() {
            let others: Vec<_> =
                (0..tasks.len()).filter(|other| *other != index).map(task).collect();
            let bound =
                edf::fully_nonpreemptive::dedicated_uniproc_rta(&task(index), &others, d(LIMIT));
            assert_eq!(Ok(d(*ours)), bound, "{index} {tasks:?}");
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}
