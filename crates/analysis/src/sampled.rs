// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains whose tasks run at periods of their own: each job reads, when it starts, what the task
//! before wrote last, and writes when it finishes. `data_age` bounds them.

use crate::chain::{Chain, Order};
use crate::task::{Arrival, MAX_TICKS, Task};
use crate::verdict::{About, Inapplicable, Verdict};
#[cfg(feature = "files")]
use serde::Serialize;
use std::collections::BTreeSet;

/// Tasks in the order of the data; each has its own period.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct SampledChain {
    pub name: String,
    pub tasks: Vec<usize>,
    /// Longest allowed time from the read of the first task to an output based on it.
    pub age_limit_ticks: Option<u64>,
    /// Longest allowed time from an instant to the first output based on a later read.
    pub reaction_limit_ticks: Option<u64>,
}

impl SampledChain {
    pub const fn has_limit(&self) -> bool {
        self.age_limit_ticks.is_some() || self.reaction_limit_ticks.is_some()
    }

    /// Its bound, by data age and reaction time.
    pub(crate) fn with(&self, found: Option<(u64, u64)>, verdict: Verdict) -> SampledBound {
        SampledBound {
            name: self.name.clone(),
            age_limit_ticks: self.age_limit_ticks,
            reaction_limit_ticks: self.reaction_limit_ticks,
            age_ticks: found.map(|(age, _)| age),
            reaction_ticks: found.map(|(_, reaction)| reaction),
            verdict,
        }
    }
}

/// What is known of one sampled chain. `None`: no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct SampledBound {
    pub name: String,
    pub age_limit_ticks: Option<u64>,
    pub reaction_limit_ticks: Option<u64>,
    pub age_ticks: Option<u64>,
    pub reaction_ticks: Option<u64>,
    /// Whether both keep their limits; schedulable where there is none.
    pub verdict: Verdict,
}

/// Refuses chains without tasks, unknown and repeated tasks, limits of 0 or beyond [`MAX_TICKS`],
/// and tasks that may stay away.
pub(crate) fn check(
    tasks: &[Task],
    chains: &[Chain],
    sampled: &[SampledChain],
) -> Result<(), Inapplicable> {
    if sampled.is_empty() {
        return Ok(());
    }
    let mut order = Order::of(tasks);
    chains.iter().try_for_each(|chain| order.add(tasks, chain))?;
    sampled.iter().try_for_each(|chain| check_one(tasks, &order, chain))
}

/// The same of one chain, beside the chains of releases.
pub(crate) fn check_one(
    tasks: &[Task],
    order: &Order,
    chain: &SampledChain,
) -> Result<(), Inapplicable> {
    let refuse = |key: &'static str, what: String| {
        let about = About::Chain(chain.name.clone());
        Err(Inapplicable::Set { about, key, what: format!("chain {}: {what}", chain.name) })
    };
    if chain.tasks.is_empty() {
        return refuse("tasks", "tasks: there are none".to_owned());
    }
    for (what, limit) in [("age", chain.age_limit_ticks), ("reaction", chain.reaction_limit_ticks)]
    {
        if limit.is_some_and(|ticks| ticks == 0 || ticks > MAX_TICKS) {
            return refuse(what, format!("{what} is 0 or above 2^60 ticks"));
        }
    }
    let mut seen = BTreeSet::new();
    for index in &chain.tasks {
        let Some(task) = tasks.get(*index) else {
            return refuse("tasks", "tasks: one of them does not exist".to_owned());
        };
        if !seen.insert(index) {
            let what = format!("task {} occurs twice: leave one of them", task.name);
            return refuse("tasks", what);
        }
        let first = &tasks[order.first[*index]];
        if first.arrival == Arrival::Sporadic {
            let what = format!(
                "task {} is sporadic, so that its data may be of any age: give it a period",
                first.name
            );
            return refuse("tasks", what);
        }
    }
    Ok(())
}

/// Of chains that no test applies to.
pub(crate) fn unbounded(sampled: &[SampledChain], verdict: &Verdict) -> Vec<SampledBound> {
    sampled.iter().map(|chain| chain.with(None, verdict.clone())).collect()
}
