// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies and what they make of priorities.

use crate::task::Task;
use crate::verdict::Inapplicable;
#[cfg(feature = "files")]
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Who runs next on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "files", derive(Serialize))]
#[cfg_attr(feature = "files", serde(rename_all = "kebab-case"))]
pub enum Policy {
    /// Earliest deadline first; a job that has started is not preempted by another.
    NpEdf,
    /// Earliest deadline first, preemptive.
    Edf,
    /// Fixed priorities by period.
    Rm,
    /// Fixed priorities by deadline.
    Dm,
    /// Fixed priorities as given.
    Fp,
    /// Fixed priorities as given; a job that has started is not preempted.
    NpFp,
    /// Two classes of criticality, by period within each (RACE's maximum urgency first).
    Muf,
}

impl Policy {
    pub const ALL: [Self; 7] =
        [Self::NpEdf, Self::Edf, Self::Rm, Self::Dm, Self::Fp, Self::NpFp, Self::Muf];

    pub const fn is_preemptive(self) -> bool {
        !matches!(self, Self::NpEdf | Self::NpFp)
    }

    pub const fn is_edf(self) -> bool {
        matches!(self, Self::NpEdf | Self::Edf)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::NpEdf => "np-edf",
            Self::Edf => "edf",
            Self::Rm => "rm",
            Self::Dm => "dm",
            Self::Fp => "fp",
            Self::NpFp => "np-fp",
            Self::Muf => "muf",
        }
    }

    /// Rank of each task, 0 the most urgent; equal ranks are served first come, first served. Under
    /// `Rm`, `Dm` and `Muf` no two are equal: the one that stands first in the set goes first.
    /// `None` under EDF.
    pub fn ranks(self, tasks: &[Task]) -> Result<Option<Vec<u32>>, Inapplicable> {
        let by = |key: &dyn Fn(&Task) -> (u8, u64)| {
            let mut order: Vec<usize> = (0..tasks.len()).collect();
            order.sort_by_key(|index| key(&tasks[*index]));
            let mut ranks = vec![0; tasks.len()];
            for (rank, index) in order.into_iter().enumerate() {
                ranks[index] = rank as u32;
            }
            ranks
        };
        Ok(Some(match self {
            Self::NpEdf | Self::Edf => return Ok(None),
            Self::Rm => by(&|task| (0, task.period_ticks)),
            Self::Dm => by(&|task| (0, task.deadline_ticks)),
            Self::Muf => by(&|task| (task.class as u8, task.period_ticks)),
            Self::Fp | Self::NpFp => {
                let given = |task: &Task| {
                    let missing = || Inapplicable::NoPriority { task: task.name.clone() };
                    task.priority.map(|priority| u32::MAX - priority).ok_or_else(missing)
                };
                tasks.iter().map(given).collect::<Result<_, _>>()?
            }
        }))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What sched(7) calls fixed priorities.
        let name = match text.to_ascii_lowercase().as_str() {
            "fifo" | "sched_fifo" => "fp".to_owned(),
            other => other.to_owned(),
        };
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            format!("unknown policy {text:?}: use {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}
