//! Answers: what was proven, what was refuted and how, what was not decided and why.

use crate::task::Task;
use crate::{Policy, offsets, simulate};
use serde::{Deserialize, Serialize};

/// The answer of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// No job ever finishes after its deadline, as long as costs, periods, jitter and blocking are as given.
    Schedulable,
    /// There is a run allowed by the task set in which a job finishes after its deadline.
    NotSchedulable { counterexample: Box<Counterexample> },
    /// The test says nothing about such sets.
    DoesNotApply {
        #[serde(serialize_with = "as_text")]
        reason: Inapplicable,
    },
    /// Not decided.
    Unknown {
        #[serde(serialize_with = "as_text")]
        reason: Doubt,
    },
}

fn as_text<T: ToString, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

impl Verdict {
    pub const fn is_schedulable(&self) -> bool {
        matches!(self, Self::Schedulable)
    }

    pub const fn is_not_schedulable(&self) -> bool {
        matches!(self, Self::NotSchedulable { .. })
    }

    pub fn counterexample(&self) -> Option<&Counterexample> {
        match self {
            Self::NotSchedulable { counterexample } => Some(counterexample),
            _ => None,
        }
    }
}

/// A run in which a deadline is missed. `simulate::replay` goes through it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counterexample {
    /// Tasks that are not named release nothing.
    pub pattern: Vec<Start>,
    /// The instant at which some job must have missed; `None`: only that one will (utilisation above 1).
    pub by_ns: Option<u64>,
    /// The first miss of the replay; `None`: too far away to be replayed within the effort.
    pub missed: Option<Missed>,
}

/// How a task releases in a counterexample: job k arrives at `arrival_ns + k * period` and is released then, or at
/// `release_ns` if that is later. Each job takes its whole cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub task: usize,
    pub arrival_ns: u64,
    pub release_ns: u64,
    /// How long the first job is kept from the CPU by a section of something less urgent.
    pub held_up_ns: u64,
}

/// A job that missed its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Missed {
    pub task: usize,
    /// 0 is the first of the task.
    pub job: u64,
    pub release_ns: u64,
    pub deadline_ns: u64,
    /// `None`: not finished when the replay ended, after the deadline.
    pub finished_ns: Option<u64>,
}

/// Why a test does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inapplicable {
    #[error("there are no tasks")]
    NoTasks,
    #[error("task {task}: {what} is 0")]
    Zero { task: String, what: &'static str },
    #[error("task {task}: {what} is longer than 36 years")]
    TooLong { task: String, what: &'static str },
    #[error("more than {most} tasks")]
    TooMany { most: usize },
    #[error("task {task} has no priority, and policy fp takes priorities as given (rm and dm make them)")]
    NoPriority { task: String },
    #[error("task {task}: the test wants the period as deadline")]
    DeadlineNotPeriod { task: String },
    #[error("task {task}: the test wants a deadline of at least the period")]
    DeadlineBeforePeriod { task: String },
    #[error("task {task}: the test knows no {what}")]
    Knows { task: String, what: &'static str },
    #[error("task {task}: {rule} (the kernel answers EINVAL)")]
    Kernel { task: String, rule: &'static str },
    #[error("{what}")]
    Set { what: String },
}

/// Why a test did not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("gave up after {steps} steps: {what}")]
    Steps { steps: u64, what: &'static str },
    #[error("a number does not fit 64 bits: {what}")]
    Overflow { what: &'static str },
    #[error("the test is only sufficient: it does not accept, and does not refute ({what})")]
    Sufficient { what: String },
    #[error(
        "refused for arbitrary first arrivals; whether the given offsets avoid the miss is not known: {what}"
    )]
    Offsets { what: &'static str },
}

/// Why there is no plain yes or no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error(transparent)]
    Inapplicable(#[from] Inapplicable),
    #[error(transparent)]
    Doubt(#[from] Doubt),
}

impl From<Stop> for Verdict {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Inapplicable(reason) => Self::DoesNotApply { reason },
            Stop::Doubt(reason) => Self::Unknown { reason },
        }
    }
}

/// How much work a test may do before it says `Unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Elementary steps, a few nanoseconds each.
    pub steps: u64,
    /// Jobs that one replay may simulate, well under a microsecond each.
    pub jobs: u64,
}

impl Default for Effort {
    /// A few seconds at most.
    fn default() -> Self {
        Self { steps: 1_000_000_000, jobs: 5_000_000 }
    }
}

/// What is left of the steps.
#[derive(Debug)]
pub(crate) struct Meter {
    steps: u64,
    left: u64,
}

impl Meter {
    pub const fn new(effort: &Effort) -> Self {
        Self { steps: effort.steps, left: effort.steps }
    }

    pub const fn spend(&mut self, steps: usize, what: &'static str) -> Result<(), Doubt> {
        match self.left.checked_sub(steps as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Doubt::Steps { steps: self.steps, what }),
        }
    }
}

/// A way to a miss, as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Witness {
    pub pattern: Vec<Start>,
    pub by_ns: Option<u64>,
    /// The theorem itself refutes: the replay only finds which job it is. Otherwise the replay must show a miss.
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
    pub fn verdict(self, tasks: &[Task], policy: Policy, effort: &Effort) -> Verdict {
        let witness = match self {
            Self::Fits => return Verdict::Schedulable,
            Self::Fails(witness) if offsets::decide(tasks, policy, &witness.pattern) => {
                return offsets::settle(tasks, policy, effort);
            }
            Self::Fails(witness) => witness,
        };
        let missed = simulate::replay(tasks, policy, &witness.pattern, witness.by_ns, effort);
        if missed.is_none() && !witness.proof {
            let what = "the pattern it fears does not miss when replayed".to_owned();
            return Verdict::Unknown { reason: Doubt::Sufficient { what } };
        }
        let counterexample = Counterexample { pattern: witness.pattern, by_ns: witness.by_ns, missed };
        Verdict::NotSchedulable { counterexample: Box::new(counterexample) }
    }
}
