// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Releases that are worst for one task, by the theory of its policy.

use crate::check::check;
use crate::demand::together;
use crate::edf_response;
use crate::offsets;
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{Effort, Start, Stop};

/// Steps that are spent on the worst instant of release under EDF.
const STEPS: u64 = 10_000_000;

/// The pattern that is worst for `victim` by the theory of the policy. Everything that can delay it
/// is released together, and the longest job of the others one tick before where nothing is
/// preempted. Under EDF the victim is released where its response is longest, if that is found
/// soon. Given offsets that exclude the pattern are kept instead. Exact without sections, equal
/// priorities, given offsets and, under EDF, jitter of the victim.
pub fn worst_pattern(tasks: &[Task], policy: Policy, victim: usize) -> Result<Vec<Start>, Stop> {
    check(tasks)?;
    let ranks = policy.ranks(tasks)?;
    let effort = Effort { steps: STEPS, jobs: 0 };
    let pattern = match ranks {
        None if victim < tasks.len() => {
            match edf_response::worst(tasks, victim, !policy.is_preemptive(), &effort) {
                Ok(worst) => by_deadline(tasks, policy, victim, worst),
                Err(_) => all_at_once(tasks, policy, victim, None),
            }
        }
        ranks => all_at_once(tasks, policy, victim, ranks.as_deref()),
    };
    Ok(if offsets::decide(tasks, policy, &pattern) { offsets::as_given(tasks) } else { pattern })
}

/// Its worst job is released some time after everything else, and its earlier jobs at their
/// distance.
fn by_deadline(
    tasks: &[Task],
    policy: Policy,
    victim: usize,
    worst: edf_response::Worst,
) -> Vec<Start> {
    let task = &tasks[victim];
    let longest_jitter_ticks = tasks.iter().map(|task| task.jitter_ticks).max().unwrap_or(0);
    let at_ticks = longest_jitter_ticks + u64::from(worst.holder.is_some());
    let mut pattern =
        together(tasks, at_ticks, |other| Some(other) != worst.holder && other != victim);
    // With jitter of its own, earlier jobs cannot all be as late: then they are left out.
    let earlier_ticks = match task.jitter_ticks {
        0 => worst.release_ticks / task.period_ticks * task.period_ticks,
        _ => 0,
    };
    let release_ticks = at_ticks.saturating_add(worst.release_ticks - earlier_ticks);
    pattern.push(Start {
        task: victim,
        arrival_ticks: release_ticks - task.jitter_ticks,
        release_ticks,
        held_up_ticks: 0,
    });
    match worst.holder {
        Some(holder) => pattern.insert(0, started_before(holder, at_ticks)),
        None => hold_up(&mut pattern, tasks, policy, at_ticks),
    }
    pattern
}

/// One section, of the victim, which is last in the pattern. Where nothing is preempted it begins
/// before the first releases, and holds up each of these: it is as long as all of them allow.
fn hold_up(pattern: &mut [Start], tasks: &[Task], policy: Policy, at_ticks: u64) {
    let section = |start: &Start| tasks[start.task].blocking_ticks;
    if policy.is_preemptive() {
        if let Some(victim) = pattern.last_mut() {
            victim.held_up_ticks = tasks[victim.task].blocking_ticks;
        }
        return;
    }
    let is_first = |start: &Start| start.release_ticks == at_ticks;
    let least_ticks = pattern.iter().filter(|start| is_first(start)).map(section).min();
    if let Some(start) = pattern.iter_mut().rev().find(|start| is_first(start)) {
        start.held_up_ticks = least_ticks.unwrap_or(0);
    }
}

const fn started_before(task: usize, at_ticks: u64) -> Start {
    let start_ticks = at_ticks - 1;
    Start { task, arrival_ticks: start_ticks, release_ticks: start_ticks, held_up_ticks: 0 }
}

/// The victim is released with everything else.
fn all_at_once(tasks: &[Task], policy: Policy, victim: usize, ranks: Option<&[u32]>) -> Vec<Start> {
    let less = |task: usize| match ranks {
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
        pattern.insert(0, started_before(task, at_ticks));
    }
    let mut own = together(tasks, at_ticks, |task| task == victim);
    for start in &mut own {
        start.held_up_ticks = if holder.is_none() { section_ticks } else { 0 };
    }
    pattern.append(&mut own);
    pattern
}
