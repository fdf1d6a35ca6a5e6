// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains of tasks: each task releases the next, across cores.

use crate::task::{MAX_TICKS, Task};
use crate::verdict::{About, Inapplicable};
#[cfg(feature = "files")]
use serde::Serialize;
use std::collections::BTreeMap;

/// Tasks in the order of the data, each released by the one before; all have the first one's
/// period.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Chain {
    pub name: String,
    pub tasks: Vec<usize>,
    /// From the arrival of the first to the completion of the last.
    pub deadline_ticks: u64,
}

/// The tasks. One in a chain has the deadline of the chain, from the chain's arrival, instead of
/// its own.
pub(crate) fn with_deadlines(tasks: &[Task], chains: &[Chain]) -> Vec<Task> {
    let mut tasks = tasks.to_vec();
    for chain in chains {
        for index in &chain.tasks {
            if let Some(task) = tasks.get_mut(*index) {
                task.deadline_ticks = chain.deadline_ticks;
            }
        }
    }
    tasks
}

/// The task before each in its chain. Errors: a chain that is empty, names a task twice, or mixes
/// periods.
pub(crate) fn predecessors(
    tasks: &[Task],
    chains: &[Chain],
) -> Result<Vec<Option<usize>>, Inapplicable> {
    let mut order = Order::of(tasks);
    chains.iter().try_for_each(|chain| order.add(tasks, chain))?;
    Ok(order.before)
}

/// Who releases whom in the chains so far.
pub(crate) struct Order {
    /// The task before each in its chain.
    before: Vec<Option<usize>>,
    /// The first task of its chain; a task of no chain is its own.
    pub(crate) first: Vec<usize>,
    member: Vec<bool>,
}

impl Order {
    /// No chain yet.
    pub(crate) fn of(tasks: &[Task]) -> Self {
        let count = tasks.len();
        Self { before: vec![None; count], first: (0..count).collect(), member: vec![false; count] }
    }

    /// One chain more, in time linear in its length. Errors: those of [`predecessors`].
    pub(crate) fn add(&mut self, tasks: &[Task], chain: &Chain) -> Result<(), Inapplicable> {
        let about = || About::Chain(chain.name.clone());
        let refuse = |key: &'static str, what| Err(Inapplicable::Set { about: about(), key, what });
        if chain.tasks.is_empty() {
            return refuse("tasks", format!("chain {} has no tasks", chain.name));
        }
        if chain.deadline_ticks == 0 || chain.deadline_ticks > MAX_TICKS {
            let what = format!("chain {}: the deadline is 0 or above 2^60 ticks", chain.name);
            return refuse("deadline", what);
        }
        let mut last = None;
        for task in &chain.tasks {
            let Some(found) = tasks.get(*task) else {
                let what = format!("chain {} names a task that does not exist", chain.name);
                return refuse("tasks", what);
            };
            if std::mem::replace(&mut self.member[*task], true) {
                return refuse("tasks", format!("task {} occurs twice in chains", found.name));
            }
            if found.period_ticks != tasks[chain.tasks[0]].period_ticks {
                let what = format!(
                    "chain {}: task {} has a different period than the first task, which releases \
                     it: if it samples at its own, write kind = \"sampled\"",
                    chain.name, found.name
                );
                return refuse("tasks", what);
            }
            if last.is_some() && found.offset_ticks.is_some() {
                let what = format!(
                    "chain {}: task {} has an offset, but the task before it releases it: leave \
                     the offset out",
                    chain.name, found.name
                );
                return refuse("tasks", what);
            }
            self.before[*task] = last;
            self.first[*task] = chain.tasks[0];
            last = Some(*task);
        }
        Ok(())
    }
}

/// Tasks that name no core share one.
pub(crate) fn by_core(tasks: &[Task]) -> BTreeMap<Option<u32>, Vec<usize>> {
    let mut cores: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for (index, task) in tasks.iter().enumerate() {
        cores.entry(task.core).or_default().push(index);
    }
    cores
}
