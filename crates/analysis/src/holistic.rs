// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains across cores: a bound from the first release to the last completion.
//!
//! Holistic analysis: Tindell, Clark, "Holistic schedulability analysis for distributed hard
//! real-time systems", Microprocessing and Microprogramming 40, 1994. Each task of a chain is
//! released when the one before it completes, so it inherits as jitter that one's worst response
//! from the chain's arrival; responses on every core (`fp`, `np_fp`; under EDF `edf_response`,
//! after Spuri, INRIA RR-2873, 1996) are found with that jitter, again and again until nothing
//! grows. The deadline of each stage is the chain's, counted from the chain's arrival. Sufficient
//! only: the stages' worst cases need not meet, so a bound beyond the deadline refutes nothing.

use crate::chain::{Chain, by_core, predecessors, with_deadlines};
use crate::check::check;
use crate::fp::{Ranked, Response};
use crate::levels::Interference;
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{Doubt, Effort, Meter, Stop, Verdict};
use crate::{edf_response, fp, np_fp};
#[cfg(feature = "files")]
use serde::Serialize;

/// What is known of one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct ChainBound {
    pub name: String,
    pub deadline_ticks: u64,
    pub end_to_end_ticks: Option<u64>,
    /// Worst completion of each stage, from the arrival of the chain.
    pub stages_ticks: Vec<Option<u64>>,
    pub verdict: Verdict,
}

/// What is known of all tasks and chains.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Holistic {
    pub chains: Vec<ChainBound>,
    /// Of each task, from the arrival of its chain or its own, with the jitter that chains bring;
    /// all `None` where some task passes its limit, since then the others are not bounded either.
    pub responses_ticks: Vec<Option<u64>>,
}

/// Bounds all chains over all tasks of all cores. A task that is in no chain must meet its own
/// deadline. Errors: what cannot be analysed at all.
pub fn holistic(
    tasks: &[Task],
    chains: &[Chain],
    policy: Policy,
    effort: &Effort,
) -> Result<Holistic, Stop> {
    check(tasks)?;
    let before = predecessors(tasks, chains)?;
    let mut all = with_deadlines(tasks, chains);
    let cores = by_core(tasks);
    let mut meter = Meter::new(effort);
    let mut responses: Vec<Option<u64>>;
    loop {
        responses = vec![None; tasks.len()];
        for members in cores.values() {
            on_core(&all, members, policy, &mut meter, &mut responses)?;
        }
        let mut grown = false;
        for (task, before) in before.iter().enumerate() {
            let Some(inherited_ticks) = before.and_then(|before| responses[before]) else {
                continue;
            };
            let jitter_ticks = inherited_ticks.saturating_add(tasks[task].jitter_ticks);
            if jitter_ticks > all[task].jitter_ticks {
                all[task].jitter_ticks = jitter_ticks;
                grown = true;
            }
        }
        // Beyond a limit nothing more is learned: what follows is not bounded either.
        if !grown || responses.iter().any(Option::is_none) {
            break;
        }
    }
    let bounded = responses.iter().all(Option::is_some);
    let chains = chains.iter().map(|chain| bound(chain, tasks, &responses, bounded)).collect();
    if !bounded {
        responses.fill(None);
    }
    Ok(Holistic { chains, responses_ticks: responses })
}

fn bound(chain: &Chain, tasks: &[Task], responses: &[Option<u64>], bounded: bool) -> ChainBound {
    // A response found before the iteration ended is too small.
    let stages_ticks: Vec<Option<u64>> =
        chain.tasks.iter().map(|task| responses[*task].filter(|_| bounded)).collect();
    let end_to_end_ticks = stages_ticks.last().copied().flatten();
    let verdict = match end_to_end_ticks {
        Some(ticks) if ticks <= chain.deadline_ticks => Verdict::Schedulable,
        _ => {
            let over = responses.iter().position(Option::is_none);
            let culprit = over.map_or("the last stage", |task| tasks[task].name.as_str());
            let what = format!("the bound of {culprit} passes its deadline");
            Verdict::Unknown { reason: Doubt::Sufficient { what } }
        }
    };
    ChainBound {
        name: chain.name.clone(),
        deadline_ticks: chain.deadline_ticks,
        end_to_end_ticks,
        stages_ticks,
        verdict,
    }
}

fn on_core(
    tasks: &[Task],
    members: &[usize],
    policy: Policy,
    meter: &mut Meter,
    responses: &mut [Option<u64>],
) -> Result<(), Stop> {
    let here: Vec<Task> = members.iter().map(|index| tasks[*index].clone()).collect();
    let Some(ranks) = policy.ranks(&here)? else {
        let found = edf_response::of_all(&here, !policy.is_preemptive(), meter)?;
        for (index, response_ticks) in members.iter().zip(found) {
            responses[*index] =
                Some(response_ticks).filter(|ticks| *ticks <= tasks[*index].deadline_ticks);
        }
        return Ok(());
    };
    let ranked = Ranked::of(&ranks);
    let rows: Vec<Interference> =
        ranked.order.iter().map(|index| Interference::of(&here[*index])).collect();
    for (position, index) in ranked.order.iter().enumerate() {
        let (task, end) = (&here[*index], ranked.group_end(position));
        let limit_ticks = task.deadline_ticks;
        let others = rows[..position].iter().chain(&rows[position + 1..end.max(position + 1)]);
        let found = if policy.is_preemptive() {
            fp::response(rows[position], task.blocking_ticks, others, end, limit_ticks, meter)?
        } else {
            let lower = ranked.order[end..]
                .iter()
                .map(|index| here[*index].cost_ticks() - 1)
                .max()
                .unwrap_or(0);
            np_fp::response(
                rows[position],
                task.blocking_ticks.max(lower),
                others,
                end,
                limit_ticks,
                meter,
            )?
        };
        responses[members[*index]] = match found {
            Response::Bound(ticks) => Some(ticks),
            Response::Exceeds { .. } => None,
        };
    }
    Ok(())
}
