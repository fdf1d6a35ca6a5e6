// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of data age and reaction time of sampled chains.
//!
//! An output's data age is the time from the read of the first task that it is based on to the
//! output. The reaction time is the longest from an instant to the first output that is based on a
//! read after it. With T the period, R the response time from the arrival and J the jitter of each
//! task, 1 the first and n the last:
//!
//! ```text
//! reaction <= T1 + sum over i < n of (H(i) + T(i+1)) + R(n)
//! age      <=      sum over i < n of (T(i) + H(i))   + R(n)
//! H(i) = J(i) if a job of i that is released no later always goes before one of i + 1 on their
//!        CPU, else R(i)
//! ```
//!
//! With H = R these are the sums of periods and response times of Davare et al., "Period
//! optimization for hard real-time distributed automotive systems", DAC 2007; there the age has
//! T(n), too, as the output stands until the next. H is after Dürr et al., "End-to-end timing
//! analysis of sporadic cause-effect chains in distributed systems", ACM TECS 18(5s), 2019, whose
//! term is max(R(i), T(i+1)); as a task of i + 1 that is released with or after i starts when i has
//! written, ours is T(i+1) + J(i).
//!
//! Why: the first job of task 1 that reads after an instant arrives at most T1 after the arrival of
//! the one that read before it. If the job of i that carries the data is released at r and writes
//! by w, some job of i + 1 arrives within T(i+1) of w, or of r where i goes before i + 1, and reads
//! it. Backwards in the same way. Sufficient only: the worst cases of two tasks need not meet.

use crate::chain::{Chain, predecessors};
use crate::policy::Policy;
use crate::report::CpuReport;
use crate::sampled::{SampledBound, SampledChain};
use crate::task::Task;
use crate::verdict::{Doubt, Verdict};

/// Bounds from the response times of the CPUs.
pub(crate) fn bounds(
    tasks: &[Task],
    chains: &[Chain],
    sampled: &[SampledChain],
    policy: Policy,
    cpus: &[CpuReport],
) -> Vec<SampledBound> {
    if sampled.is_empty() {
        return Vec::new();
    }
    let known = Known::of(tasks, chains, policy, cpus);
    sampled.iter().map(|chain| known.bound(chain, cpus)).collect()
}

/// By task.
struct Known<'a> {
    tasks: &'a [Task],
    responses_ticks: Vec<Option<u64>>,
    /// Position in the list of CPUs.
    cpu: Vec<Option<usize>>,
    ranks: Option<Vec<u32>>,
    /// Released by another task.
    follows: Vec<bool>,
    is_edf: bool,
}

impl<'a> Known<'a> {
    fn of(tasks: &'a [Task], chains: &[Chain], policy: Policy, cpus: &[CpuReport]) -> Self {
        let mut responses_ticks = vec![None; tasks.len()];
        let mut cpu = vec![None; tasks.len()];
        for (at, report) in cpus.iter().enumerate() {
            for (task, response) in report.tasks.iter().zip(&report.responses_ticks) {
                responses_ticks[*task] = *response;
                cpu[*task] = Some(at);
            }
        }
        let before = predecessors(tasks, chains).unwrap_or_else(|_| vec![None; tasks.len()]);
        let follows = before.iter().map(Option::is_some).collect();
        let ranks = policy.ranks(tasks).ok().flatten();
        Self { tasks, responses_ticks, cpu, ranks, follows, is_edf: policy.is_edf() }
    }

    /// Whether a job of `a` always goes before each job of `b` that is released with it or later.
    fn goes_before(&self, a: usize, b: usize) -> bool {
        let is_more_urgent = match &self.ranks {
            Some(ranks) => ranks[a] < ranks[b],
            None => self.is_edf && self.tasks[a].deadline_ticks < self.tasks[b].deadline_ticks,
        };
        let together = self.cpu[a].is_some() && self.cpu[a] == self.cpu[b];
        is_more_urgent && together && !self.follows[a] && !self.follows[b]
    }

    /// Age and reaction time. Errors: the task without a response time; `None`: 64 bits are too
    /// few.
    fn of_chain(&self, chain: &SampledChain) -> Result<(u64, u64), Option<usize>> {
        let (mut age_ticks, mut reaction_ticks) = (0, 0_u64);
        for (at, task) in chain.tasks.iter().enumerate() {
            let response_ticks = self.responses_ticks[*task].ok_or(Some(*task))?;
            let handed_ticks = match chain.tasks.get(at + 1) {
                Some(next) if self.goes_before(*task, *next) => self.tasks[*task].jitter_ticks,
                _ => response_ticks,
            };
            age_ticks = reaction_ticks.checked_add(handed_ticks).ok_or(None)?;
            let period_ticks = self.tasks[*task].period_ticks;
            reaction_ticks = age_ticks.checked_add(period_ticks).ok_or(None)?;
        }
        Ok((age_ticks, reaction_ticks))
    }

    fn bound(&self, chain: &SampledChain, cpus: &[CpuReport]) -> SampledBound {
        let found = self.of_chain(chain);
        let unknown = |what| Verdict::Unknown { reason: Doubt::Sufficient { what } };
        let verdict = match found {
            _ if !chain.has_limit() => Verdict::Schedulable,
            Ok((age, reaction)) => {
                let over = |bound: u64, limit: Option<u64>| limit.is_some_and(|most| bound > most);
                match (over(age, chain.age_limit_ticks), over(reaction, chain.reaction_limit_ticks))
                {
                    (false, false) => Verdict::Schedulable,
                    (true, _) => unknown("the bound of the data age passes its limit".to_owned()),
                    _ => unknown("the bound of the reaction time passes its limit".to_owned()),
                }
            }
            Err(None) => Verdict::Unknown { reason: Doubt::Overflow { what: "a sampled chain" } },
            Err(Some(task)) => {
                let of_cpu = self.cpu[task].and_then(|cpu| cpus.get(cpu));
                match of_cpu.map(|cpu| &cpu.verdict) {
                    Some(verdict @ Verdict::DoesNotApply { .. }) => verdict.clone(),
                    _ => unknown(format!(
                        "no bound of the response of {} is known",
                        self.tasks[task].name
                    )),
                }
            }
        };
        chain.with(found.ok(), verdict)
    }
}
