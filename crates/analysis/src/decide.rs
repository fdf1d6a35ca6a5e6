// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the yes or no of a theorem to a verdict: what a test refutes is replayed first.

use crate::offsets;
use crate::policy::Policy;
use crate::simulate::replay::replay;
use crate::task::Task;
use crate::verdict::{Counterexample, Doubt, Effort, Start, Verdict};

/// How a deadline can be missed, as a test finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Witness {
    pub pattern: Vec<Start>,
    pub by_ticks: Option<u64>,
    /// The theorem itself refutes: the replay only finds which job it is. Otherwise the replay
    /// must show a miss.
    pub proof: bool,
}

/// A yes or a no of a test that has not been replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Fits,
    Fails(Witness),
}

impl Answer {
    /// Replays what fails and makes it a verdict; where given offsets decide, they are simulated.
    pub(crate) fn verdict(self, tasks: &[Task], policy: Policy, effort: &Effort) -> Verdict {
        let witness = match self {
            Self::Fits => return Verdict::Schedulable,
            Self::Fails(witness) if offsets::decide(tasks, policy, &witness.pattern) => {
                return offsets::settle(tasks, policy, effort);
            }
            Self::Fails(witness) => witness,
        };
        let missed = replay(tasks, policy, &witness.pattern, witness.by_ticks, effort);
        if missed.is_none() && !witness.proof {
            let what = "its worst pattern does not miss a deadline when replayed".to_owned();
            return Verdict::Unknown { reason: Doubt::Sufficient { what } };
        }
        let counterexample =
            Counterexample { pattern: witness.pattern, by_ticks: witness.by_ticks, missed };
        Verdict::NotSchedulable { counterexample: Box::new(counterexample) }
    }
}
