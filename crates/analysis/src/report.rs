// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an analysis answers: a report for each policy, and one outcome for all.

use crate::holistic::ChainBound;
use crate::policy::Policy;
use crate::sampled::SampledBound;
use crate::verdict::Verdict;
#[cfg(feature = "files")]
use serde::Serialize;

/// A verdict without its reasons, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Proven: every job meets its deadline.
    Schedulable,
    /// Not decided, or the test does not apply.
    Unknown,
    /// Proven: some job misses its deadline.
    NotSchedulable,
}

impl From<&Verdict> for Outcome {
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Schedulable => Self::Schedulable,
            Verdict::NotSchedulable { .. } => Self::NotSchedulable,
            Verdict::DoesNotApply { .. } | Verdict::Unknown { .. } => Self::Unknown,
        }
    }
}

/// One CPU under one policy. Tasks are indices into those of the workload.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct CpuReport {
    /// `None`: the CPU of the tasks that name none.
    pub cpu: Option<u32>,
    pub tasks: Vec<usize>,
    pub utilisation: f64,
    pub verdict: Verdict,
    /// Bound of the response time from the arrival, in the order of `tasks`. `None`: no bound.
    pub responses_ticks: Vec<Option<u64>>,
    /// By how much the cost of each task alone may grow, in the order of `tasks`. `None`: not
    /// known.
    pub extra_ticks: Vec<Option<u64>>,
    /// The largest factor for all costs, in millionths. `None`: not known.
    pub factor_ppm: Option<u64>,
    /// The workload has chains, or sampled chains with limits. Then there are no `extra_ticks` and
    /// no factor. With chains a counterexample is a run with them, of all CPUs.
    pub in_chains: bool,
}

impl CpuReport {
    /// Room was found without limits that count too.
    pub(crate) fn forget_room(&mut self) {
        self.in_chains = true;
        self.factor_ppm = None;
        self.extra_ticks.fill(None);
    }
}

/// A workload under one policy.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Report {
    pub policy: Policy,
    pub cpus: Vec<CpuReport>,
    pub chains: Vec<ChainBound>,
    /// Chains whose tasks have periods of their own.
    pub sampled: Vec<SampledBound>,
    /// Tasks that the heuristic of [`place`](crate::place::place) found no CPU for.
    pub unplaced: Vec<usize>,
}

/// A report in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summary<'a> {
    Verdict(&'a Verdict),
    /// Every CPU is schedulable, but these tasks are on none.
    Unplaced(&'a [usize]),
    NoTasks,
}

impl Report {
    /// The worst of all CPUs, chains and sampled chains. Tasks without a CPU make it at best
    /// unknown, since a heuristic proves no impossibility.
    pub fn outcome(&self) -> Outcome {
        let cpus = self.cpus.iter().map(|cpu| &cpu.verdict);
        let verdicts = cpus.chain(self.verdicts_of_chains());
        let worst = verdicts.map(Outcome::from).max().unwrap_or(Outcome::Schedulable);
        if self.unplaced.is_empty() { worst } else { worst.max(Outcome::Unknown) }
    }

    /// Those of all CPUs, chains and sampled chains.
    pub fn verdicts_mut(&mut self) -> impl Iterator<Item = &mut Verdict> {
        let cpus = self.cpus.iter_mut().map(|cpu| &mut cpu.verdict);
        let chains = self.chains.iter_mut().map(|chain| &mut chain.verdict);
        cpus.chain(chains).chain(self.sampled.iter_mut().map(|chain| &mut chain.verdict))
    }

    fn verdicts_of_chains(&self) -> impl Iterator<Item = &Verdict> {
        let sampled = self.sampled.iter().map(|chain| &chain.verdict);
        self.chains.iter().map(|chain| &chain.verdict).chain(sampled)
    }

    /// Whether the tests of the policy cover the workload.
    pub fn applies(&self) -> bool {
        !self.cpus.iter().any(|cpu| matches!(cpu.verdict, Verdict::DoesNotApply { .. }))
    }

    /// The verdict of the worst CPU, else of the first chain that is not proven.
    pub fn summary(&self) -> Summary<'_> {
        let worst = self.cpus.iter().map(|cpu| &cpu.verdict).max_by_key(|cpu| Outcome::from(*cpu));
        match (worst, self.verdicts_of_chains().find(|verdict| !verdict.is_schedulable())) {
            (Some(worst), _) if !worst.is_schedulable() => Summary::Verdict(worst),
            (Some(_), Some(chain)) => Summary::Verdict(chain),
            _ if !self.unplaced.is_empty() => Summary::Unplaced(&self.unplaced),
            (Some(worst), None) => Summary::Verdict(worst),
            (None, _) => Summary::NoTasks,
        }
    }

    /// The least factor by which all costs on every CPU may be multiplied, in millionths.
    pub fn factor_ppm(&self) -> Option<u64> {
        self.cpus.iter().map(|cpu| cpu.factor_ppm).min().flatten()
    }
}

/// The best outcome of the policies that apply: is there one that works?
pub fn best_outcome(reports: &[Report]) -> Outcome {
    let outcomes = reports.iter().filter(|report| report.applies()).map(Report::outcome);
    outcomes.min().unwrap_or(Outcome::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Doubt, Inapplicable};

    fn report(verdicts: &[Verdict], unplaced: Vec<usize>) -> Report {
        let cpu = |verdict: &Verdict| CpuReport {
            cpu: None,
            tasks: vec![0],
            utilisation: 0.5,
            verdict: verdict.clone(),
            responses_ticks: vec![None],
            extra_ticks: vec![None],
            factor_ppm: None,
            in_chains: false,
        };
        let cpus = verdicts.iter().map(cpu).collect();
        Report { policy: Policy::Edf, cpus, chains: vec![], sampled: vec![], unplaced }
    }

    #[test]
    fn the_worst_cpu_decides_and_of_the_policies_the_best_that_applies() {
        let yes = Verdict::Schedulable;
        let unknown = Verdict::Unknown { reason: Doubt::Sufficient { what: String::new() } };
        let not = Verdict::DoesNotApply { reason: Inapplicable::NoTasks };
        assert_eq!(report(&[yes.clone(), yes.clone()], vec![]).outcome(), Outcome::Schedulable);
        assert_eq!(report(std::slice::from_ref(&yes), vec![3]).outcome(), Outcome::Unknown);
        assert_eq!(report(std::slice::from_ref(&yes), vec![3]).summary(), Summary::Unplaced(&[3]));
        let mixed = report(&[yes.clone(), unknown.clone()], vec![]);
        assert_eq!(
            (mixed.outcome(), mixed.summary()),
            (Outcome::Unknown, Summary::Verdict(&unknown))
        );
        assert_eq!(report(&[], vec![]).summary(), Summary::NoTasks);
        assert_eq!(report(&[], vec![0]).summary(), Summary::Unplaced(&[0]));
        let inapplicable = report(&[not], vec![]);
        assert_eq!(best_outcome(std::slice::from_ref(&inapplicable)), Outcome::Unknown);
        assert_eq!(
            best_outcome(&[inapplicable, mixed, report(&[yes], vec![])]),
            Outcome::Schedulable
        );
    }
}
