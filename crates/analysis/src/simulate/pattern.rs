// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Releases that are worst for one task, by the theory of its policy.

use crate::check::check;
use crate::demand::together;
use crate::offsets;
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{Start, Stop};

/// The pattern that is worst for `victim` by the theory of the policy: everything that can delay it
/// released together, the longest job of the others one tick before where nothing is preempted;
/// given offsets that exclude it are kept instead. It need not be the worst of all its responses.
pub fn worst_pattern(tasks: &[Task], policy: Policy, victim: usize) -> Result<Vec<Start>, Stop> {
    check(tasks)?;
    let ranks = policy.ranks(tasks)?;
    let less = |task: usize| match &ranks {
        Some(ranks) => ranks.get(task) > ranks.get(victim),
        None => {
            tasks.get(task).map(|task| task.deadline_ticks)
                > tasks.get(victim).map(|task| task.deadline_ticks)
        }
    };
    let candidates = (0..tasks.len()).filter(|task| !policy.is_preemptive() && less(*task));
    // One thing holds the CPU at that instant: the longest job or the section.
    let section_ticks = tasks.get(victim).map_or(0, |task| task.blocking_ticks);
    let holder = candidates.max_by_key(|task| tasks[*task].cost_ticks());
    let holder = holder.filter(|task| tasks[*task].cost_ticks() > section_ticks);
    let at_ticks =
        tasks.iter().map(|task| task.jitter_ticks).max().unwrap_or(0) + u64::from(holder.is_some());
    // A section that holds the victim up is work of something less urgent: that is not released a
    // second time.
    let held_up = section_ticks > 0 && holder.is_none();
    let chosen = |task: usize| Some(task) != holder && task != victim && !(held_up && less(task));
    let mut pattern = together(tasks, at_ticks, chosen);
    if let Some(task) = holder {
        pattern.insert(
            0,
            Start {
                task,
                arrival_ticks: at_ticks - 1,
                release_ticks: at_ticks - 1,
                held_up_ticks: 0,
            },
        );
    }
    let mut own = together(tasks, at_ticks, |task| task == victim);
    for start in &mut own {
        start.held_up_ticks = if holder.is_none() { section_ticks } else { 0 };
    }
    pattern.append(&mut own);
    Ok(if offsets::decide(tasks, policy, &pattern) { offsets::as_given(tasks) } else { pattern })
}
