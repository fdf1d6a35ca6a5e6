// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers: what was proven, what was refuted and how, what was not decided and why.

use asmp_duration::NotWhole;
#[cfg(feature = "files")]
use serde::{Deserialize, Serialize};

/// The answer of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(rename_all = "kebab-case", tag = "verdict"))]
pub enum Verdict {
    /// No job ever finishes after its deadline, as long as costs, periods, jitter and blocking are
    /// as given.
    Schedulable,
    /// There is a run allowed by the task set in which a job finishes after its deadline.
    NotSchedulable { counterexample: Box<Counterexample> },
    /// The test does not cover such sets.
    DoesNotApply {
        #[cfg_attr(feature = "files", serde(serialize_with = "as_text"))]
        reason: Inapplicable,
    },
    /// Not decided.
    Unknown {
        #[cfg_attr(feature = "files", serde(serialize_with = "as_text"))]
        reason: Doubt,
    },
}

#[cfg(feature = "files")]
fn as_text<T: ToString, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

impl Verdict {
    /// The same verdict with task `i` renumbered as `members[i]`.
    pub(crate) fn numbered_by(mut self, members: &[usize]) -> Self {
        if let Self::NotSchedulable { counterexample } = &mut self {
            for start in &mut counterexample.pattern {
                start.task = members[start.task];
            }
            if let Some(missed) = &mut counterexample.missed {
                missed.task = members[missed.task];
            }
        }
        self
    }

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
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "files", serde(deny_unknown_fields))]
pub struct Counterexample {
    /// Tasks that are not named release nothing.
    pub pattern: Vec<Start>,
    /// The instant at which some job must have missed; `None`: only that one will (utilisation
    /// above 1).
    pub by_ticks: Option<u64>,
    /// The first miss of the replay; `None`: too far away to be replayed within the effort.
    pub missed: Option<Missed>,
}

/// How a task releases in a counterexample: job k arrives at `arrival_ticks + k * period` and is
/// released then, or at `release_ticks` if that is later. Each job takes its whole cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "files", serde(deny_unknown_fields))]
pub struct Start {
    pub task: usize,
    pub arrival_ticks: u64,
    pub release_ticks: u64,
    /// How long the first job is kept from the CPU by a section of something less urgent.
    pub held_up_ticks: u64,
}

/// A job that missed its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "files", serde(deny_unknown_fields))]
pub struct Missed {
    pub task: usize,
    /// 0 is the first of the task.
    pub job: u64,
    pub release_ticks: u64,
    pub deadline_ticks: u64,
    /// `None`: not finished when the replay ended, after the deadline.
    pub finished_ticks: Option<u64>,
}

/// Why a test does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inapplicable {
    #[error("there are no tasks")]
    NoTasks,
    #[error("task {task}: {what} is 0")]
    Zero { task: String, what: &'static str },
    #[error("task {task}: {what} is longer than 2^60 ticks (36 years of nanoseconds)")]
    TooLong { task: String, what: &'static str },
    #[error("more than {most} tasks")]
    TooMany { most: usize },
    #[error("task {task} has no priority: give it one, or use rm or dm, which derive priorities")]
    NoPriority { task: String },
    #[error("task {task}: this test requires deadline == period")]
    DeadlineNotPeriod { task: String },
    #[error("task {task}: this test requires deadline >= period")]
    DeadlineBeforePeriod { task: String },
    #[error("task {task}: this test does not support {what}")]
    Unsupported { task: String, what: &'static str },
    #[error("task {task}: {rule} (the kernel answers EINVAL)")]
    Kernel { task: String, rule: &'static str },
    #[error("task {task}: {what}: {refused}")]
    NotWholeNs { task: String, what: &'static str, refused: NotWhole },
    #[error("{what}")]
    Set { about: About, key: &'static str, what: String },
    /// The same, with its place in a file as the reader of the file names it.
    #[error("{place}, {reason}")]
    InFile { place: String, reason: Box<Inapplicable> },
}

/// The entry of a file that a refusal is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// All of them.
    File,
    Task(String),
    /// The task of this number, from 0.
    TaskAt(usize),
    Chain(String),
    Interrupt(String),
    Room,
}

impl Inapplicable {
    /// Without its place.
    pub fn cause(&self) -> &Self {
        match self {
            Self::InFile { reason, .. } => reason.cause(),
            cause => cause,
        }
    }

    /// The entry that it is about, and the key; an empty one: the entry as a whole.
    pub fn about(&self) -> (About, &'static str) {
        let of = |task: &String, key| (About::Task(task.clone()), key);
        match self {
            Self::NoTasks => (About::File, ""),
            Self::TooMany { most } => (About::TaskAt(*most), ""),
            Self::NoPriority { task } => of(task, "priority"),
            Self::DeadlineNotPeriod { task } | Self::DeadlineBeforePeriod { task } => {
                of(task, "deadline")
            }
            Self::Zero { task, what }
            | Self::TooLong { task, what }
            | Self::Unsupported { task, what }
            | Self::NotWholeNs { task, what, .. } => of(task, *what),
            Self::Kernel { task, .. } => of(task, ""),
            Self::Set { about, key, .. } => (about.clone(), *key),
            Self::InFile { reason, .. } => reason.about(),
        }
    }
}

/// Why a test did not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("gave up after {steps} steps: {what}")]
    Steps { steps: u64, what: &'static str },
    #[error("number too large for 64 bits: {what}")]
    Overflow { what: &'static str },
    #[error("this sufficient test does not accept the set: {what}")]
    Sufficient { what: String },
    #[error(
        "not schedulable for arbitrary first arrivals; whether the given offsets avoid the miss \
         is undecided: {what}"
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

/// How much work a test may do before its answer is `Unknown`.
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
    pub(crate) const fn new(effort: &Effort) -> Self {
        Self { steps: effort.steps, left: effort.steps }
    }

    pub(crate) const fn spend(&mut self, steps: usize, what: &'static str) -> Result<(), Doubt> {
        match self.left.checked_sub(steps as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Doubt::Steps { steps: self.steps, what }),
        }
    }
}
