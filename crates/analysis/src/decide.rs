// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the yes or no of a theorem to a verdict: what a test refutes is replayed first.

use crate::demand::{Witness, beyond_one};
use crate::offsets;
use crate::policy::Policy;
use crate::simulate::replay::replay;
use crate::task::Task;
use crate::utilisation::{Utilisation, is_above_one};
use crate::verdict::{Counterexample, Doubt, Effort, Missed, Start, Stop, Verdict};

/// A yes or a no of a test that has not been replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Fits,
    /// At least one. Where none is a proof, each is replayed in turn.
    Fails(Vec<Witness>),
}

impl Answer {
    /// Remembers one more way to miss.
    pub(crate) fn add(&mut self, witness: Witness) {
        match self {
            Self::Fits => *self = Self::Fails(vec![witness]),
            Self::Fails(all) => all.push(witness),
        }
    }

    /// Replays what fails and makes it a verdict; where given offsets decide, they are simulated.
    fn verdict(self, tasks: &[Task], policy: Policy, effort: &Effort) -> Verdict {
        let Self::Fails(witnesses) = self else { return Verdict::Schedulable };
        let share = Effort { jobs: effort.jobs / witnesses.len() as u64, ..*effort };
        for witness in witnesses {
            if offsets::decide(tasks, policy, &witness.pattern) {
                return offsets::settle(tasks, policy, effort);
            }
            let missed = replay(tasks, policy, &witness.pattern, witness.by_ticks, &share);
            if missed.is_some() || witness.proof {
                return refuted(witness.pattern, witness.by_ticks, missed);
            }
        }
        let what = "its worst pattern does not miss a deadline when replayed".to_owned();
        Verdict::Unknown { reason: Doubt::Sufficient { what } }
    }
}

fn refuted(pattern: Vec<Start>, by_ticks: Option<u64>, missed: Option<Missed>) -> Verdict {
    let counterexample = Counterexample { pattern, by_ticks, missed };
    Verdict::NotSchedulable { counterexample: Box::new(counterexample) }
}

/// The verdict of a test. A load above 1 misses whatever the test could not decide.
pub(crate) fn verdict(
    answer: Result<Answer, Stop>,
    tasks: &[Task],
    policy: Policy,
    effort: &Effort,
) -> Verdict {
    let verdict = match answer {
        Ok(answer) => answer.verdict(tasks, policy, effort),
        Err(stop) => stop.into(),
    };
    match verdict {
        Verdict::Unknown { .. } if is_above_one(tasks) => above_one(tasks, policy, effort),
        decided => decided,
    }
}

/// More work arrives than one CPU does, so that the backlog grows beyond every deadline, whatever
/// the policy, offsets, jitter and the order of equals are.
fn above_one(tasks: &[Task], policy: Policy, effort: &Effort) -> Verdict {
    let witness = beyond_one(tasks, Utilisation::of(tasks));
    if tasks.iter().any(|task| task.offset_ticks.is_some()) {
        let pattern = offsets::as_given(tasks);
        let missed = replay(tasks, policy, &pattern, None, effort);
        return refuted(pattern, missed.map(|missed| missed.deadline_ticks), missed);
    }
    let missed = replay(tasks, policy, &witness.pattern, witness.by_ticks, effort);
    refuted(witness.pattern, witness.by_ticks, missed)
}
