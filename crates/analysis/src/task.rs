// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is analysed: tasks. All times are whole ticks of the workload's
//! [`TimeBase`](crate::TimeBase): nanoseconds, unless the file has finer fractions.

#[cfg(feature = "files")]
use serde::Serialize;

/// The longest time that a test takes: 2^60 ticks, 36 years of nanoseconds. Sums of a few such
/// values still fit `u64`.
pub const MAX_TICKS: u64 = 1 << 60;

/// How long one job computes at most.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(rename_all = "lowercase"))]
pub enum Cost {
    /// A worst-case execution time that the author of the task answers for.
    Guaranteed(u64),
    /// The longest of a measurement run. Measured, not proven: a verdict over it holds as long as
    /// it does.
    Measured { ticks: u64, run: String },
}

impl Cost {
    pub const fn ticks(&self) -> u64 {
        match self {
            Self::Guaranteed(ticks) | Self::Measured { ticks, .. } => *ticks,
        }
    }

    /// The same kind of cost with another length.
    #[must_use]
    pub fn with_ticks(&self, ticks: u64) -> Self {
        match self {
            Self::Guaranteed(_) => Self::Guaranteed(ticks),
            Self::Measured { run, .. } => Self::Measured { ticks, run: run.clone() },
        }
    }

    pub const fn is_measured(&self) -> bool {
        matches!(self, Self::Measured { .. })
    }
}

/// How jobs follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(rename_all = "lowercase"))]
pub enum Arrival {
    /// Exactly a period apart.
    Periodic,
    /// A period apart or more.
    Sporadic,
}

/// Criticality, for maximum urgency first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "files", derive(Serialize, serde::Deserialize))]
#[cfg_attr(feature = "files", serde(rename_all = "lowercase"))]
pub enum Class {
    High,
    Low,
}

/// What becomes of a job whose deadline is over, where a kernel runs the set. No test asks: a set
/// that is accepted has no such job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize, serde::Deserialize))]
#[cfg_attr(feature = "files", serde(rename_all = "lowercase"))]
pub enum Late {
    /// It runs to its end.
    #[default]
    Finish,
    /// It is dropped if it has not begun.
    Skip,
    /// The kernel stops the application.
    Fault,
}

/// One task. A job arrives, is released up to `jitter_ticks` later, and must be finished
/// `deadline_ticks` after its arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Task {
    pub name: String,
    pub cost: Cost,
    /// Period, or least time between two arrivals.
    pub period_ticks: u64,
    pub arrival: Arrival,
    /// From the arrival; may be shorter than, equal to or longer than the period.
    pub deadline_ticks: u64,
    /// First arrival. `None`: any, the tests take the worst.
    pub offset_ticks: Option<u64>,
    /// Longest time from arrival to release.
    pub jitter_ticks: u64,
    /// SCHED_FIFO's sense: the larger the more urgent.
    pub priority: Option<u32>,
    pub class: Class,
    /// Longest time that a section of a less urgent task, or of the kernel, keeps the CPU from a
    /// job of this task (SRP, PCP: once in a busy period).
    pub blocking_ticks: u64,
    /// The CPU it is bound to.
    pub core: Option<u32>,
    /// The larger the more important: what to keep when not everything fits.
    pub importance: u32,
    /// Tasks of one application are placed together where they fit.
    pub app: Option<String>,
    pub memory_bytes: u64,
    /// Bytes a second.
    pub bandwidth: u64,
    /// The function of C that runs a job, where a kernel runs the set.
    pub entry: Option<String>,
    pub late: Late,
    /// The longest that a job may hold the CPU before the kernel stops the application. `None`: for
    /// ever.
    pub most_ticks: Option<u64>,
}

impl Task {
    /// A periodic task with its period as deadline, free offset and nothing else.
    pub fn new(name: impl Into<String>, cost_ticks: u64, period_ticks: u64) -> Self {
        Self {
            name: name.into(),
            cost: Cost::Guaranteed(cost_ticks),
            period_ticks,
            arrival: Arrival::Periodic,
            deadline_ticks: period_ticks,
            offset_ticks: None,
            jitter_ticks: 0,
            priority: None,
            class: Class::High,
            blocking_ticks: 0,
            core: None,
            importance: 0,
            app: None,
            memory_bytes: 0,
            bandwidth: 0,
            entry: None,
            late: Late::Finish,
            most_ticks: None,
        }
    }

    #[must_use]
    pub fn deadline(self, deadline_ticks: u64) -> Self {
        Self { deadline_ticks, ..self }
    }

    #[must_use]
    pub fn jitter(self, jitter_ticks: u64) -> Self {
        Self { jitter_ticks, ..self }
    }

    #[must_use]
    pub fn blocking(self, blocking_ticks: u64) -> Self {
        Self { blocking_ticks, ..self }
    }

    #[must_use]
    pub fn offset(self, offset_ticks: u64) -> Self {
        Self { offset_ticks: Some(offset_ticks), ..self }
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

    pub const fn cost_ticks(&self) -> u64 {
        self.cost.ticks()
    }
}

/// `true` if every arrival is fixed by the set itself, and nothing but tasks wants the CPU.
pub(crate) fn all_arrive_as_given(tasks: &[Task]) -> bool {
    let is_given = |task: &Task| {
        task.offset_ticks.is_some() && task.arrival == Arrival::Periodic && task.blocking_ticks == 0
    };
    tasks.iter().all(is_given)
}

/// `true` if every release is fixed, too.
pub(crate) fn all_fixed(tasks: &[Task]) -> bool {
    all_arrive_as_given(tasks) && tasks.iter().all(|task| task.jitter_ticks == 0)
}

/// Words that C has for itself, those of GNU's dialect included.
const C_WORDS: &str = "auto break case char const continue default do double else enum extern \
    float for goto if inline int long register restrict return short signed sizeof static struct \
    switch typedef union unsigned void volatile while _Alignas _Alignof _Atomic _Bool _Complex \
    _Generic _Imaginary _Noreturn _Static_assert _Thread_local asm typeof";

/// Whether a function of C may have this name. By 31 characters any compiler tells names apart.
pub fn is_c_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter)
        && name.len() <= 31
        && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
        && !C_WORDS.split_whitespace().any(|word| word == name)
}

/// Whether `name` may stand in a table: 1 to 64 characters, none of them a control character, and
/// none that is not seen but turns or hides others.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.chars().count()) && !name.chars().any(is_unseen)
}

fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_c_is_one_that_a_compiler_takes() {
        let long = "a".repeat(31);
        for name in ["a", "_", "get_sonar1", "X9", "Auto", "int_", long.as_str()] {
            assert!(is_c_name(name), "{name}");
        }
        let too_long = "a".repeat(32);
        for name in ["", "1a", "a-b", "a b", "a;", "\u{e4}", "int", "_Bool", "asm", &too_long] {
            assert!(!is_c_name(name), "{name}");
        }
    }
}
