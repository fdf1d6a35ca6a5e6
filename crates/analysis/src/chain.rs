//! Chains of tasks across cores: a bound from the first release to the last completion.
//!
//! Holistic analysis: Tindell, Clark, "Holistic schedulability analysis for distributed hard real-time systems",
//! Microprocessing and Microprogramming 40, 1994. Each task of a chain is released when the one before it completes, so it
//! inherits as jitter that one's worst response from the chain's arrival; responses on every core (`fp`, `np_fp`; under EDF
//! `edf_response`, after Spuri, INRIA RR-2873, 1996) are found with that jitter, again and again until nothing grows. The
//! deadline of each stage is the chain's, counted from the chain's arrival. Sufficient only: the stages' worst cases need
//! not meet, so a bound beyond the deadline refutes nothing.

use crate::check::check;
use crate::fp::{Interference, Ranked, Response};
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{Doubt, Effort, Inapplicable, Meter, Stop, Verdict};
use crate::{edf_response, fp, np_fp};
use serde::Serialize;
use std::collections::BTreeMap;

/// Tasks in the order of the data; all have the first one's period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chain {
    pub name: String,
    pub tasks: Vec<usize>,
    /// From the arrival of the first to the completion of the last.
    pub deadline_ns: u64,
}

/// What is known of one chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChainBound {
    pub name: String,
    pub deadline_ns: u64,
    pub end_to_end_ns: Option<u64>,
    /// Worst completion of each stage, from the arrival of the chain.
    pub stages_ns: Vec<Option<u64>>,
    pub verdict: Verdict,
}

/// What is known of all tasks and chains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holistic {
    pub chains: Vec<ChainBound>,
    /// Of each task, from the arrival of its chain or its own, with the jitter that chains bring; all `None` where some task
    /// passes its limit, since then the others are not bounded either.
    pub responses_ns: Vec<Option<u64>>,
}

/// The tasks, with the deadline of its chain for each that is in one: from the chain's arrival, whatever its own says.
pub fn with_deadlines(tasks: &[Task], chains: &[Chain]) -> Vec<Task> {
    let mut tasks = tasks.to_vec();
    for chain in chains {
        for index in &chain.tasks {
            if let Some(task) = tasks.get_mut(*index) {
                task.deadline_ns = chain.deadline_ns;
            }
        }
    }
    tasks
}

/// Bounds all chains over all tasks of all cores. A task that is in no chain must meet its own deadline.
/// Errors: what cannot be analysed at all.
pub fn holistic(tasks: &[Task], chains: &[Chain], policy: Policy, effort: &Effort) -> Result<Holistic, Stop> {
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
            let Some(inherited_ns) = before.and_then(|before| responses[before]) else { continue };
            let jitter_ns = inherited_ns.saturating_add(tasks[task].jitter_ns);
            if jitter_ns > all[task].jitter_ns {
                all[task].jitter_ns = jitter_ns;
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
    Ok(Holistic { chains, responses_ns: responses })
}

fn bound(chain: &Chain, tasks: &[Task], responses: &[Option<u64>], bounded: bool) -> ChainBound {
    // A response found before the iteration ended is too small.
    let stages_ns: Vec<Option<u64>> =
        chain.tasks.iter().map(|task| responses[*task].filter(|_| bounded)).collect();
    let end_to_end_ns = stages_ns.last().copied().flatten();
    let verdict = match end_to_end_ns {
        Some(ns) if ns <= chain.deadline_ns => Verdict::Schedulable,
        _ => {
            let over = responses.iter().position(Option::is_none);
            let culprit = over.map_or("the last stage", |task| tasks[task].name.as_str());
            let what = format!("the bound of {culprit} passes its deadline");
            Verdict::Unknown { reason: Doubt::Sufficient { what } }
        }
    };
    ChainBound { name: chain.name.clone(), deadline_ns: chain.deadline_ns, end_to_end_ns, stages_ns, verdict }
}

/// The task before each in its chain. Errors: a chain that is empty, names a task twice, or mixes periods.
pub(crate) fn predecessors(tasks: &[Task], chains: &[Chain]) -> Result<Vec<Option<usize>>, Inapplicable> {
    let mut before = vec![None; tasks.len()];
    let mut member = vec![false; tasks.len()];
    let refuse = |what: String| Err(Inapplicable::Set { what });
    for chain in chains {
        if chain.tasks.is_empty() {
            return refuse(format!("chain {} has no tasks", chain.name));
        }
        if chain.deadline_ns == 0 || chain.deadline_ns > crate::task::MAX_NS {
            return refuse(format!("chain {} has no deadline that can be", chain.name));
        }
        let mut last = None;
        for task in &chain.tasks {
            let Some(found) = tasks.get(*task) else {
                return refuse(format!("chain {} has a task that does not exist", chain.name));
            };
            if std::mem::replace(&mut member[*task], true) {
                return refuse(format!("task {} is in chains twice", found.name));
            }
            if found.period_ns != tasks[chain.tasks[0]].period_ns {
                return refuse(format!("chain {}: task {} has another period", chain.name, found.name));
            }
            before[*task] = last;
            last = Some(*task);
        }
    }
    Ok(before)
}

/// Tasks that name no core share one.
pub(crate) fn by_core(tasks: &[Task]) -> BTreeMap<Option<u32>, Vec<usize>> {
    let mut cores: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for (index, task) in tasks.iter().enumerate() {
        cores.entry(task.core).or_default().push(index);
    }
    cores
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
        for (index, response_ns) in members.iter().zip(found) {
            responses[*index] = Some(response_ns).filter(|ns| *ns <= tasks[*index].deadline_ns);
        }
        return Ok(());
    };
    let ranked = Ranked::of(&ranks);
    let rows: Vec<Interference> = ranked.order.iter().map(|index| Interference::of(&here[*index])).collect();
    for (position, index) in ranked.order.iter().enumerate() {
        let (task, end) = (&here[*index], ranked.group_end[position]);
        let limit_ns = task.deadline_ns;
        let others = rows[..position].iter().chain(&rows[position + 1..end.max(position + 1)]);
        let found = if policy.is_preemptive() {
            fp::response(rows[position], task.blocking_ns, others, end, limit_ns, meter)?
        } else {
            let lower = ranked.order[end..].iter().map(|index| here[*index].cost_ns() - 1).max().unwrap_or(0);
            np_fp::response(rows[position], task.blocking_ns.max(lower), others, end, limit_ns, meter)?
        };
        responses[members[*index]] = match found {
            Response::Bound(ns) => Some(ns),
            Response::Exceeds { .. } => None,
        };
    }
    Ok(())
}
