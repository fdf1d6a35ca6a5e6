// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Non-preemptive scheduling of jobs that arrive at fixed instants, are released up to their jitter
//! later and take any part of their cost: the schedule-abstraction graph, bounded.
//!
//! Nasri, Brandenburg, "An exact and sustainable analysis of non-preemptive scheduling", RTSS 2017.
//! A state is what has been started, and the interval of instants at which the CPU may become free.
//! Every whole tick of it can occur, so the answer is exact: states that started the same jobs are
//! merged where their intervals touch. Jobs of a task start in order, so what has been started is
//! one number a task. We differ in two things. The paper looks at a given set of jobs; here the
//! states after each hyperperiod are compared with those after the one before, and if they hold
//! nothing new, all repeats. And of equal priority the one released first goes first; where two
//! may be released in either order, each may: what fits does not depend on the order of the set.
//!
//! What has run says of a job that has not started only that it was not released before the last
//! start, where it was more urgent than what started. So it may still be released at any later
//! instant up to its last, and states need no more than the above. Of three or more of equal
//! priority orders are tried that jitter may exclude: then a miss may be one that cannot happen,
//! and what fits is still true.

use crate::policy::Policy;
use crate::task::Task;
use crate::utilisation::hyperperiod_ticks;
use crate::verdict::{Effort, Meter};
use std::collections::HashMap;

/// States at one depth; about 200 bytes each.
const MOST_STATES: usize = 100_000;
/// Elementary steps of one state, beside those of each task.
const STATE_STEPS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No job ever finishes late.
    Fits,
    /// Some job does, for some costs and some order of equals.
    Misses,
    /// Too much work, or a hyperperiod that does not fit.
    GaveUp,
}

/// By the next job of each task: when the CPU may become free, disjoint and in order.
type States = HashMap<Box<[i64]>, Vec<(i64, i64)>>;

/// Arrivals must be fixed (`task::all_arrive_as_given`), the policy non-preemptive. At most a
/// quarter of `effort.steps`.
pub(crate) fn explore(tasks: &[Task], policy: Policy, effort: &Effort) -> Found {
    let mut meter = Meter::new(&Effort { steps: effort.steps / 4, ..*effort });
    let ranks = policy.ranks(tasks).ok().flatten();
    let Some(period_ticks) = hyperperiod_ticks(tasks) else { return Found::GaveUp };
    let jobs: Vec<u64> = tasks.iter().map(|task| period_ticks / task.period_ticks).collect();
    let all_jobs: u128 = jobs.iter().map(|jobs| u128::from(*jobs)).sum();
    if all_jobs > u128::from(effort.jobs) {
        return Found::GaveUp;
    }
    let graph = Graph { tasks, ranks };
    let mut states = States::from([(vec![0; tasks.len()].into(), vec![(0, 0)])]);
    loop {
        let before = states.clone();
        for _ in 0..all_jobs {
            match graph.next(&states, &mut meter) {
                Ok(next) => states = next,
                Err(found) => return found,
            }
        }
        states = earlier(states, &jobs, period_ticks);
        if is_within(&states, &before) {
            return Found::Fits;
        }
    }
}

/// The same states a hyperperiod earlier.
fn earlier(states: States, jobs: &[u64], period_ticks: u64) -> States {
    let shift = |ticks: i64| ticks.saturating_sub_unsigned(period_ticks);
    let moved = states.into_iter().map(|(next, free)| {
        let next = next.iter().zip(jobs).map(|(job, all)| job.saturating_sub_unsigned(*all));
        (next.collect(), free.into_iter().map(|(low, high)| (shift(low), shift(high))).collect())
    });
    moved.collect()
}

fn is_within(states: &States, others: &States) -> bool {
    states.iter().all(|(next, free)| {
        let known = others.get(next).map_or(&[][..], Vec::as_slice);
        free.iter().all(|(low, high)| known.iter().any(|(from, to)| from <= low && high <= to))
    })
}

struct Graph<'a> {
    tasks: &'a [Task],
    ranks: Option<Vec<u32>>,
}

/// The next job of a task.
#[derive(Debug, Clone, Copy)]
struct Next {
    task: usize,
    /// Smaller goes first.
    urgency: i64,
    /// The first and the last instant at which it may be released.
    release_ticks: (i64, i64),
    cost_ticks: i64,
    deadline_ticks: i64,
}

impl Next {
    /// Whether the scheduler starts this job first if both are released at the same time.
    const fn goes_before(&self, other: &Self) -> bool {
        self.urgency < other.urgency
            || self.urgency == other.urgency && self.release_ticks.1 < other.release_ticks.0
    }
}

impl Graph<'_> {
    /// The next job of each task, the most urgent first.
    fn ready(&self, next: &[i64], all: &mut Vec<Next>) {
        all.clear();
        all.extend(self.tasks.iter().zip(next).enumerate().map(|(index, (task, job))| {
            let offset_ticks = task.offset_ticks.unwrap_or(0) as i64;
            let arrival_ticks =
                job.saturating_mul(task.period_ticks as i64).saturating_add(offset_ticks);
            let deadline_ticks = arrival_ticks.saturating_add_unsigned(task.deadline_ticks);
            let last_ticks = arrival_ticks.saturating_add_unsigned(task.jitter_ticks);
            let rank = self.ranks.as_ref().map(|ranks| i64::from(ranks[index]));
            Next {
                task: index,
                urgency: rank.unwrap_or(deadline_ticks),
                release_ticks: (arrival_ticks, last_ticks),
                cost_ticks: task.cost_ticks() as i64,
                deadline_ticks,
            }
        }));
        all.sort_unstable_by_key(|next| (next.urgency, next.release_ticks));
    }

    /// One job further, from every state. Errors: the answer.
    fn next(&self, states: &States, meter: &mut Meter) -> Result<States, Found> {
        let mut following = States::with_capacity(states.len());
        let mut ready = Vec::with_capacity(self.tasks.len());
        for (next, free) in states {
            self.ready(next, &mut ready);
            let first_ticks = ready.iter().map(|job| job.release_ticks.0).min().unwrap_or(0);
            let sure_ticks = ready.iter().map(|job| job.release_ticks.1).min().unwrap_or(0);
            for (low, high) in free {
                let steps = self.tasks.len() * 20 + STATE_STEPS;
                meter.spend(steps, "schedule abstraction").map_err(|_| Found::GaveUp)?;
                // Idle until something is released.
                let (low, high) = ((*low).max(first_ticks), (*high).max(sure_ticks));
                self.start(next, &ready, (low, high), &mut following)?;
            }
            if following.len() > MOST_STATES {
                return Err(Found::GaveUp);
            }
        }
        Ok(following)
    }

    /// Every job that may start while the CPU is free from `low` to `high`.
    fn start(
        &self,
        next: &[i64],
        ready: &[Next],
        (low, high): (i64, i64),
        following: &mut States,
    ) -> Result<(), Found> {
        // By when something more urgent is released for sure, and where its equals begin.
        let (mut before_ticks, mut equals) = (i64::MAX, 0);
        for (position, job) in ready.iter().enumerate() {
            if job.urgency > ready[equals].urgency {
                let passed = ready[equals..position].iter().map(|job| job.release_ticks.1).min();
                before_ticks = before_ticks.min(passed.unwrap_or(i64::MAX));
                equals = position;
            }
            if low.saturating_add(job.cost_ticks) > job.deadline_ticks {
                return Err(Found::Misses);
            }
            let earlier = ready[equals..position].iter().filter(|other| other.goes_before(job));
            let earlier_ticks = earlier.map(|other| other.release_ticks.1).min();
            let before_ticks = before_ticks.min(earlier_ticks.unwrap_or(i64::MAX));
            let from_ticks = low.max(job.release_ticks.0);
            let to_ticks = high.min(before_ticks.saturating_sub(1));
            if from_ticks > to_ticks {
                continue;
            }
            let last_ticks = to_ticks.saturating_add(job.cost_ticks);
            if last_ticks > job.deadline_ticks {
                return Err(Found::Misses);
            }
            let mut after: Box<[i64]> = next.into();
            after[job.task] += 1;
            insert(following.entry(after).or_default(), (from_ticks + 1, last_ticks));
        }
        Ok(())
    }
}

/// Adds an interval; those that touch become one.
fn insert(free: &mut Vec<(i64, i64)>, (mut low, mut high): (i64, i64)) {
    free.retain(|(from, to)| {
        let apart = *to < low - 1 || high + 1 < *from;
        if !apart {
            low = low.min(*from);
            high = high.max(*to);
        }
        apart
    });
    let at = free.partition_point(|(from, _)| *from < low);
    free.insert(at, (low, high));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tasks: &[Task], policy: Policy) -> Found {
        explore(tasks, policy, &Effort::default())
    }

    #[test]
    fn a_job_that_ends_early_lets_a_long_one_in_before_an_urgent_one() {
        let set = |c: u64| {
            [
                Task::new("a", 2, 10).offset(0),
                Task::new("long", c, 20).offset(0),
                Task::new("b", 2, 10).offset(2).deadline(5),
            ]
        };
        // With a's whole cost b is released as a ends; after a shorter a, long is in its way.
        assert_eq!(found(&set(4), Policy::NpEdf), Found::Fits);
        assert_eq!(found(&set(5), Policy::NpEdf), Found::Misses);
    }

    #[test]
    fn of_equal_keys_and_releases_each_may_go_first() {
        let set = |deadline: u64| {
            [
                Task::new("a", 2, 10).offset(0).priority(5).deadline(deadline),
                Task::new("b", 3, 10).offset(0).priority(5),
            ]
        };
        assert_eq!(found(&set(5), Policy::NpFp), Found::Fits);
        assert_eq!(found(&set(4), Policy::NpFp), Found::Misses);
    }

    #[test]
    fn jitter_lets_a_long_job_in_before_an_urgent_one() {
        let set = |jitter: u64, cost: u64| {
            [
                Task::new("urgent", 2, 10).offset(0).deadline(6).jitter(jitter),
                Task::new("long", cost, 20).offset(0),
            ]
        };
        // Released with it or earlier, urgent goes first. Late by 1, it waits for long from 0 on.
        assert_eq!(found(&set(0, 8), Policy::NpEdf), Found::Fits);
        assert_eq!(found(&set(1, 4), Policy::NpEdf), Found::Fits);
        assert_eq!(found(&set(1, 5), Policy::NpEdf), Found::Misses);
        // Late by 5 it is too late by itself.
        assert_eq!(found(&set(4, 1), Policy::NpEdf), Found::Fits);
        assert_eq!(found(&set(5, 1), Policy::NpEdf), Found::Misses);
    }

    #[test]
    fn of_equals_the_one_that_is_released_later_for_sure_goes_last() {
        let set = |jitter: u64| {
            [
                Task::new("a", 3, 20).offset(0).priority(5).jitter(jitter).deadline(9),
                Task::new("b", 3, 20).offset(4).priority(5),
                Task::new("c", 4, 20).offset(0).priority(9),
            ]
        };
        // c runs to 4. A job of a that is released by 3 goes before b, one at 4 may go after it.
        assert_eq!(found(&set(3), Policy::NpFp), Found::Fits);
        assert_eq!(found(&set(4), Policy::NpFp), Found::Misses);
    }

    #[test]
    fn too_little_effort_is_no_answer() {
        let set = [Task::new("a", 2, 10).offset(0), Task::new("b", 3, 7).offset(0)];
        let little = Effort { steps: 1000, ..Effort::default() };
        assert_eq!(explore(&set, Policy::NpEdf, &little), Found::GaveUp);
        assert_eq!(found(&set, Policy::NpEdf), Found::Fits);
    }

    #[test]
    fn intervals_that_touch_become_one() {
        let mut free = vec![(1, 2), (6, 8)];
        insert(&mut free, (10, 12));
        assert_eq!(free, [(1, 2), (6, 8), (10, 12)]);
        insert(&mut free, (3, 5));
        assert_eq!(free, [(1, 8), (10, 12)]);
    }
}
