// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A CPU with a load above 1 in a workload with chains: a certain no, with a run that misses.
//!
//! Let every task that time releases arrive as early as it may, and each job take its cost. If no
//! deadline were missed, then of each task on the CPU all jobs that are due by t would be done by
//! t: those of a later stage, too, which arrive with their chain. Their work exceeds t for some t
//! (`beyond_one`), and one CPU does no more than t. That run is simulated with its chains.

use crate::chain::{Chain, predecessors};
use crate::demand::beyond_one;
use crate::offsets::as_given;
use crate::policy::Policy;
use crate::simulate::model::{Releases, Simulation};
use crate::simulate::replay::first_miss;
use crate::task::Task;
use crate::utilisation::{Utilisation, is_above_one};
use crate::verdict::{Counterexample, Effort, Verdict};

/// The refusal of the tasks of one CPU; `None`: their load is at most 1. Of checked tasks with the
/// deadlines of their chains.
pub(crate) fn refusal(
    tasks: &[Task],
    chains: &[Chain],
    policy: Policy,
    members: &[usize],
    effort: &Effort,
) -> Option<Verdict> {
    let early = |index: &usize| Task { jitter_ticks: 0, ..tasks[*index].clone() };
    let here: Vec<Task> = members.iter().map(early).collect();
    if !is_above_one(&here) {
        return None;
    }
    let is_free = tasks.iter().all(|task| task.offset_ticks.is_none());
    let by_ticks = is_free.then(|| beyond_one(&here, Utilisation::of(&here)).by_ticks).flatten();
    let simulation = Simulation { chains, ..Simulation::new(tasks, policy, Releases::Together) };
    let until_ticks = by_ticks.and_then(|by| by.checked_add(1)).unwrap_or(u64::MAX);
    let missed = first_miss(&simulation, until_ticks, effort.jobs).ok().flatten();
    let before = predecessors(tasks, chains).ok()?;
    let mut pattern = as_given(tasks);
    pattern.retain(|start| before[start.task].is_none());
    let counterexample = Counterexample { pattern, by_ticks, missed };
    Some(Verdict::NotSchedulable { counterexample: Box::new(counterexample) })
}
