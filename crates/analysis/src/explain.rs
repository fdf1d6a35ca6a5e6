// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a CPU is tight, and what would help.

use crate::policy::Policy;
use crate::report::CpuReport;
use crate::slack::{SEARCHED, factor_ppm, fits, largest_cost};
use crate::task::Task;
use crate::verdict::{Effort, Inapplicable, Verdict};

/// Changes of single costs that are proposed.
const PROPOSED: usize = 3;

/// What the longest response of one task consists of. The parts add up to `response_ticks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    pub task: usize,
    pub response_ticks: u64,
    pub own_ticks: u64,
    /// Less urgent work that has started. The task that does it; `None`: a section.
    pub held_ticks: u64,
    pub held_by: Option<usize>,
    pub jitter_ticks: u64,
    pub more_urgent_ticks: u64,
}

/// A change after which the set is schedulable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Help {
    /// Multiply all costs by this many millionths.
    AllCosts { factor_ppm: u64 },
    /// Take one of these policies.
    OtherPolicy { policies: Vec<Policy> },
    /// Make one task this short.
    Shorter { task: usize, cost_ticks: u64 },
}

impl CpuReport {
    /// Positions in `self.tasks` from the tightest on: the task that misses, then by the part of
    /// the deadline that is left.
    pub fn by_tightness(&self, tasks: &[Task]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        let missed = self.verdict.counterexample().and_then(|found| found.missed);
        order.sort_by_key(|at| {
            let task = &tasks[self.tasks[*at]];
            let deadline_ticks = task.deadline_ticks.max(1);
            let response_ticks = self.responses_ticks[*at];
            let left = response_ticks.map(|response| deadline_ticks.saturating_sub(response));
            let ppm = left.map(|left| u128::from(left) * 1_000_000 / u128::from(deadline_ticks));
            let misses = missed.map(|missed| missed.task) == Some(self.tasks[*at]);
            (!misses, ppm, self.extra_ticks[*at], task.period_ticks)
        });
        order
    }

    /// The tightest task and its longest response. `None`: no bound of it is known. Under EDF the
    /// parts follow from the deadlines; they are a reading of the bound, not a second bound.
    pub fn explanation(&self, tasks: &[Task], policy: Policy) -> Option<Explanation> {
        let at = *self.by_tightness(tasks).first()?;
        let index = self.tasks[at];
        let task = &tasks[index];
        let response_ticks = self.responses_ticks[at]?;
        let ranks = policy.ranks(tasks).ok()?;
        let less_urgent = |other: &usize| match &ranks {
            Some(ranks) => ranks[*other] > ranks[index],
            None => tasks[*other].deadline_ticks > task.deadline_ticks,
        };
        let holders =
            self.tasks.iter().filter(|other| !policy.is_preemptive() && less_urgent(other));
        let holder = holders.max_by_key(|other| tasks[**other].cost_ticks());
        let held_ticks = holder.map_or(0, |other| tasks[*other].cost_ticks() - 1);
        let held_ticks = held_ticks.max(task.blocking_ticks);
        let (own_ticks, jitter_ticks) = (task.cost_ticks(), task.jitter_ticks);
        let rest_ticks = response_ticks.saturating_sub(own_ticks).saturating_sub(held_ticks);
        Some(Explanation {
            task: index,
            response_ticks,
            own_ticks,
            held_ticks,
            held_by: holder
                .copied()
                .filter(|other| tasks[*other].cost_ticks() > task.blocking_ticks),
            jitter_ticks,
            more_urgent_ticks: rest_ticks.saturating_sub(jitter_ticks),
        })
    }

    /// Changes that make a CPU schedulable that is not, each by itself. Empty where it is. A search
    /// for each: takes a multiple of `effort`.
    pub fn help(&self, tasks: &[Task], policy: Policy, effort: &Effort) -> Vec<Help> {
        // A set that no test covers is helped by nothing of this.
        let is_covered = match &self.verdict {
            Verdict::DoesNotApply { reason } => !matches!(reason.cause(), Inapplicable::Set { .. }),
            _ => true,
        };
        if self.verdict.is_schedulable() || !is_covered {
            return Vec::new();
        }
        let set: Vec<Task> = self.tasks.iter().map(|index| tasks[*index].clone()).collect();
        let mut help = Vec::new();
        if let Some(factor_ppm) = factor_ppm(&set, policy, effort).filter(|ppm| *ppm > 0) {
            help.push(Help::AllCosts { factor_ppm });
        }
        let accepts =
            |other: &Policy| *other != policy && fits(&set, *other, effort).unwrap_or(false);
        let policies: Vec<Policy> = Policy::ALL.into_iter().filter(accepts).collect();
        if !policies.is_empty() {
            help.push(Help::OtherPolicy { policies });
        }
        if set.len() <= SEARCHED {
            let shorter = |(at, task): (usize, &Task)| {
                let most = largest_cost(&set, at, policy, effort)?;
                let less = task.cost_ticks().checked_sub(most).filter(|less| *less > 0)?;
                Some((less, at, most))
            };
            let mut all: Vec<_> = set.iter().enumerate().filter_map(shorter).collect();
            all.sort_unstable();
            help.extend(
                all.into_iter()
                    .take(PROPOSED)
                    .map(|(_, at, cost_ticks)| Help::Shorter { task: self.tasks[at], cost_ticks }),
            );
        }
        help
    }
}
