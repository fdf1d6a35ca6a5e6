//! What is analysed: tasks. All times in whole nanoseconds.

use serde::Serialize;

/// Longest time that a test takes: 2^60 ns, 36 years. Sums of a few such values still fit `u64`.
pub const MAX_NS: u64 = 1 << 60;

/// How long one job computes at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// Somebody answers for it: a worst-case execution time.
    Guaranteed(u64),
    /// The longest of a measurement run. Measured, not proven: a verdict over it holds as long as it does.
    Measured { ns: u64, run: String },
}

impl Cost {
    pub const fn ns(&self) -> u64 {
        match self {
            Self::Guaranteed(ns) | Self::Measured { ns, .. } => *ns,
        }
    }

    pub const fn is_measured(&self) -> bool {
        matches!(self, Self::Measured { .. })
    }
}

/// How jobs follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Exactly a period apart.
    Periodic,
    /// A period apart or more.
    Sporadic,
}

/// Criticality, for maximum urgency first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    High,
    Low,
}

/// One task. A job arrives, is released up to `jitter_ns` later, and must be finished `deadline_ns` after its arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    pub name: String,
    pub cost: Cost,
    /// Period, or least time between two arrivals.
    pub period_ns: u64,
    pub arrival: Arrival,
    /// From the arrival; may be shorter than, equal to or longer than the period.
    pub deadline_ns: u64,
    /// First arrival. `None`: any, the tests take the worst.
    pub offset_ns: Option<u64>,
    /// Longest time from arrival to release.
    pub jitter_ns: u64,
    /// SCHED_FIFO's sense: the larger the more urgent.
    pub priority: Option<u32>,
    pub class: Class,
    /// Longest time that a section of a less urgent task, or of the kernel, keeps the CPU from a job of this task (SRP, PCP:
    /// once in a busy period).
    pub blocking_ns: u64,
    /// The CPU it is bound to.
    pub core: Option<u32>,
    /// The larger the more important: what to keep when not everything fits.
    pub importance: u32,
    /// Tasks of one application are placed together where they fit.
    pub app: Option<String>,
    pub memory_bytes: u64,
    /// Bytes a second.
    pub bandwidth: u64,
}

impl Task {
    /// A periodic task with its period as deadline, free offset and nothing else.
    pub fn new(name: impl Into<String>, cost_ns: u64, period_ns: u64) -> Self {
        Self {
            name: name.into(),
            cost: Cost::Guaranteed(cost_ns),
            period_ns,
            arrival: Arrival::Periodic,
            deadline_ns: period_ns,
            offset_ns: None,
            jitter_ns: 0,
            priority: None,
            class: Class::High,
            blocking_ns: 0,
            core: None,
            importance: 0,
            app: None,
            memory_bytes: 0,
            bandwidth: 0,
        }
    }

    #[must_use]
    pub fn deadline(self, deadline_ns: u64) -> Self {
        Self { deadline_ns, ..self }
    }

    #[must_use]
    pub fn jitter(self, jitter_ns: u64) -> Self {
        Self { jitter_ns, ..self }
    }

    #[must_use]
    pub fn blocking(self, blocking_ns: u64) -> Self {
        Self { blocking_ns, ..self }
    }

    #[must_use]
    pub fn offset(self, offset_ns: u64) -> Self {
        Self { offset_ns: Some(offset_ns), ..self }
    }

    #[must_use]
    pub fn priority(self, priority: u32) -> Self {
        Self { priority: Some(priority), ..self }
    }

    #[must_use]
    pub fn sporadic(self) -> Self {
        Self { arrival: Arrival::Sporadic, ..self }
    }

    #[must_use]
    pub fn on_core(self, core: u32) -> Self {
        Self { core: Some(core), ..self }
    }

    pub const fn cost_ns(&self) -> u64 {
        self.cost.ns()
    }
}

/// `true` if every first arrival and every release is fixed by the set itself.
pub(crate) fn all_fixed(tasks: &[Task]) -> bool {
    let fixed = |task: &Task| {
        task.offset_ns.is_some()
            && task.arrival == Arrival::Periodic
            && task.jitter_ns == 0
            && task.blocking_ns == 0
    };
    tasks.iter().all(fixed)
}
