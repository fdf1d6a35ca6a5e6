// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps of the plan that can be left out.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A step of the plan that a partition can do without, so that its worth can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// Device interrupts leave.
    Irqs,
    /// Unbound kernel work leaves.
    Workqueues,
    /// The lockup watchdogs leave.
    Watchdog,
    /// No timer polls for machine checks.
    MachineChecks,
    /// The deadline servers take no time.
    DlServer,
    /// The clock does not slow down.
    Governor,
    /// No idle state that takes time to leave.
    IdleStates,
    /// Timers expire on the CPU that starts them; `ktimers/N` above the partition's tasks
    /// (PREEMPT_RT).
    Timers,
}

impl Aspect {
    pub const ALL: [(&str, Self); 8] = [
        ("irqs", Self::Irqs),
        ("workqueues", Self::Workqueues),
        ("watchdog", Self::Watchdog),
        ("machine-checks", Self::MachineChecks),
        ("dl-server", Self::DlServer),
        ("governor", Self::Governor),
        ("idle-states", Self::IdleStates),
        ("timers", Self::Timers),
    ];
}

impl FromStr for Aspect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.replace('_', "-");
        let found = Self::ALL.into_iter().find(|(name, _)| *name == wanted);
        found.map(|(_, aspect)| aspect).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("unknown step of the plan {text:?}: use {}", names.join(", "))
        })
    }
}
