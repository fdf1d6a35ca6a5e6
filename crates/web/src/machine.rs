// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the page shows and asks for. Names of fields are those of the JSON.

use serde::{Deserialize, Serialize};

/// The machine as it is seen now, and what may be changed of it. Calls may take long, and come from
/// threads of their own.
pub trait Machine: Send + Sync + 'static {
    /// Reads it. Errors: in words.
    fn seen(&self) -> Result<Seen, String>;

    /// Carries a change out. What came of it, in words.
    fn change(&self, change: &Change) -> Result<String, Refused>;
}

/// What is seen at one instant.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Seen {
    /// Of the day, UTC.
    pub time: String,
    pub host: String,
    pub kernel: String,
    /// Who holds the partitions, in words.
    pub held: String,
    /// asmpd cannot look now: what is known of violations is from before.
    pub blind: bool,
    /// What is violated and belongs to none of the partitions.
    pub violations: Vec<String>,
    /// Whether this program may change partitions.
    pub changes: bool,
    pub cpus: Vec<Cpu>,
    pub partitions: Vec<Partition>,
    /// Of asmpd, the last one first.
    pub events: Vec<Event>,
}

/// A CPU that the machine has.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Cpu {
    pub cpu: u32,
    pub socket: u32,
    /// The least CPU of its core.
    pub core: u32,
    /// `system`, `shielded`, `kept idle` (a sibling of a shielded one), `offline`.
    pub state: &'static str,
    pub partition: Option<String>,
    /// Of CPUs of partitions, once they were counted twice.
    pub rates: Option<Rates>,
}

/// What came on a CPU, a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    pub ticks: f64,
    pub devices: f64,
    pub ipis: f64,
    pub softirqs: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Partition {
    pub name: String,
    pub cpus: String,
    pub since: String,
    pub by: String,
    /// `off`, `keep`, `require-off`.
    pub tick: String,
    pub irqs: Vec<u32>,
    /// The first ones.
    pub tasks: Vec<Task>,
    /// So many more there are.
    pub more_tasks: usize,
    pub violations: Vec<String>,
    /// It is shared, and who looked may not see whether it is guarded.
    pub unchecked: bool,
    /// The worst latency of the last seconds, in words, where a probe measures it.
    pub latency: Option<String>,
}

/// A thread on the CPUs of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Task {
    pub tid: i32,
    pub command: String,
    pub policy: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Event {
    pub number: u64,
    pub time: String,
    pub text: String,
}

/// What the page may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase", deny_unknown_fields)]
pub enum Change {
    /// A partition of these CPUs, in any notation of asmp.
    Create {
        name: String,
        cpus: String,
    },
    Destroy {
        name: String,
    },
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The exit code of `asmp`.
    pub code: u8,
    pub why: String,
}
