// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to the shield, as plain values: a command, a daemon and a controller send the same
//! [`Request`]. It serialises, so it can cross a socket or stand in a log.
//!
//! A request says what is wanted, never how: [`crate::Shield::plan`] decides and shows the steps,
//! [`crate::Shield::change`] carries them out. Who asks is the [`Caller`]; whether that caller may
//! ask is settled at the edge, before the shield is called.

use crate::choose::Need;
use crate::declaration::Declaration;
use crate::grant::Grant;
use crate::mode::Mode;
use crate::partition::{Aspect, Refusal, Smt, System, Tick};
use crate::text::cut;
use asmp_host::CpuSpec;
use asmp_host::clock::unix_s;
use asmp_host::task::TaskId;
use serde::{Deserialize, Serialize};

/// One change of the machine's partitions. Each is carried out whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Make a partition that stays until it is destroyed.
    Create { name: String, spec: Spec },
    /// The same, with its first members.
    CreateFor { name: String, spec: Spec, members: Members },
    /// Make a partition that belongs to one process; `status` reports a violation once that process
    /// has ended without destroying it.
    Run { name: String, spec: Spec, owner: Option<TaskId> },
    /// End the partition that `Run` made for this owner, as `Destroy` with `demote` does. Refused
    /// with `NoPartition` where another one has its name by now.
    EndRun { name: String, owner: Option<TaskId> },
    /// Move a process, which is about to execute `command`, into a partition. Its present policy
    /// does not count as brought along: it gets its policy inside. Refused with `UnknownTask` where
    /// another process has its number by now.
    Exec { name: String, process: TaskId, command: String },
    /// End one partition (`None`: all of them).
    Destroy { name: Option<String>, demote: bool },
    /// Give a partition other CPUs.
    Resize {
        name: String,
        #[serde(with = "crate::text")]
        cpus: CpuSpec,
    },
    /// Change who may use the CPUs of a partition.
    Mode { name: String, mode: Mode },
    /// Move tasks and IRQ lines into a partition.
    Add { name: String, members: Members },
    /// Move tasks and IRQ lines out of a partition, back to where they came from.
    Remove { name: String, members: Members, demote: bool },
    /// Move tasks and IRQ lines from one partition to another. Policies stay as they are.
    Move { from: String, to: String, members: Members },
    /// Make the partitions of a file what the file says; leave others alone.
    Apply { declaration: Declaration },
    /// Set what drifted back to what was promised, of all partitions. With a name, that partition
    /// must exist.
    Repair { name: Option<String> },
    /// Undo everything: the machine as it was before the first change.
    Restore {
        /// Give up the steps of an interrupted change that the kernel refuses to undo; they are
        /// named in the outcome.
        #[serde(default)]
        abandon: bool,
    },
    /// Settings of the system outside the partitions, for measurements; both are replaced.
    System(System),
}

/// The CPUs of a partition: which ones, as a text (`"2-3"`), or how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cpus {
    Named(#[serde(with = "crate::text")] CpuSpec),
    /// asmp chooses them when the request is carried out.
    Needed(Need),
}

/// A partition as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub cpus: Cpus,
    /// IRQ lines that belong to it, by number or handler name.
    #[serde(default)]
    pub irqs: Vec<String>,
    /// SCHED_FIFO priority, 1 to 99, of the handler threads of `irqs`.
    #[serde(default)]
    pub irq_priority: Option<u32>,
    #[serde(default)]
    pub tick: Tick,
    #[serde(default)]
    pub smt: Smt,
    /// A device interrupt or a setting that cannot leave the CPUs is an error.
    #[serde(default)]
    pub strict: bool,
    /// Steps of the plan to leave out.
    #[serde(default)]
    pub without: Vec<Aspect>,
    /// Who may use its CPUs.
    #[serde(default)]
    pub mode: Mode,
}

impl Spec {
    /// These CPUs, everything else at its default.
    pub fn of(cpus: CpuSpec) -> Self {
        Self::with(Cpus::Named(cpus))
    }

    /// The same for CPUs that asmp chooses.
    pub fn needing(need: Need) -> Self {
        Self::with(Cpus::Needed(need))
    }

    /// The same for either.
    pub const fn with(cpus: Cpus) -> Self {
        Self {
            cpus,
            irqs: Vec::new(),
            irq_priority: None,
            tick: Tick::Off,
            smt: Smt::Idle,
            strict: false,
            without: Vec::new(),
            mode: Mode::Isolated,
        }
    }
}

/// Tasks and IRQ lines that join or leave a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Members {
    /// Processes, each with all its threads.
    #[serde(default)]
    pub pids: Vec<i32>,
    /// Single threads.
    #[serde(default)]
    pub tids: Vec<i32>,
    /// IRQ lines by number or handler name.
    #[serde(default)]
    pub irqs: Vec<String>,
    /// Of `Add`: also where systemd ends the scope that the tasks leave empty.
    #[serde(default)]
    pub force: bool,
}

impl Members {
    /// Task numbers, each with whether only that thread is meant.
    pub fn tasks(&self) -> impl Iterator<Item = (i32, bool)> {
        let pids = self.pids.iter().map(|pid| (*pid, false));
        pids.chain(self.tids.iter().map(|tid| (*tid, true)))
    }
}

impl Request {
    /// Are partitions repaired, whatever others made of them, and then checked?
    pub const fn is_repair(&self) -> bool {
        match self {
            Self::Repair { .. } | Self::Resize { .. } | Self::Mode { .. } | Self::Apply { .. } => {
                true
            }
            // Others may use its CPUs: the kernel vouches for nothing.
            Self::Create { spec, .. } => !matches!(spec.mode, Mode::Isolated),
            _ => false,
        }
    }

    /// Is this partition one of those? A request for a partition that others may have changed, and
    /// that says which CPUs it has, promises that it has them.
    pub fn repairs(&self, partition: &str) -> bool {
        match self {
            Self::Repair { .. } => true,
            Self::Resize { name, .. } | Self::Mode { name, .. } => name == partition,
            Self::Create { name, spec } => name == partition && !spec.mode.is_isolated(),
            Self::Apply { declaration } => {
                declaration.partitions.iter().any(|declared| declared.name == partition)
            }
            _ => false,
        }
    }

    /// Does it say which mode this partition has from now on?
    pub fn sets_mode(&self, partition: &str) -> bool {
        match self {
            Self::Mode { name, .. } => name == partition,
            Self::Apply { .. } => self.repairs(partition),
            _ => false,
        }
    }

    /// May threads that became real-time inside leave as SCHED_OTHER? Else they refuse the change.
    pub const fn demotes(&self) -> bool {
        match self {
            Self::Destroy { demote, .. } | Self::Remove { demote, .. } => *demote,
            // The machine as it was: there they were not real-time. What a command left behind goes
            // on, but not as a real-time task among others.
            Self::Restore { .. } | Self::EndRun { .. } => true,
            _ => false,
        }
    }
}

/// Who asks. Recorded with what the request makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// Effective user id.
    pub uid: u32,
    /// Name for people: the user behind sudo, a service, a controller.
    pub user: String,
    /// What was asked, in the caller's words: a command line, the name of a method.
    pub command: String,
    /// Seconds since 1970-01-01 UTC.
    pub time_s: u64,
    /// What this caller may do; `None`: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Grant>,
}

impl Caller {
    /// A caller who asks now.
    pub fn now(uid: u32, user: impl Into<String>, command: impl Into<String>) -> Self {
        let time_s = unix_s();
        Self { uid, user: user.into(), command: command.into(), time_s, granted: None }
    }

    /// The same, who may do no more than this.
    pub fn with_grant(self, grant: Grant) -> Self {
        Self { granted: Some(grant), ..self }
    }

    /// For edges that let only root change partitions. Errors: `NotRoot`.
    pub const fn must_be_root(&self) -> Result<(), Refusal> {
        match self.uid {
            0 => Ok(()),
            _ => Err(Refusal::NotRoot),
        }
    }

    /// As the state keeps it: user and command, at most 200 characters each.
    pub fn creator(&self) -> String {
        let [user, command] = [&self.user, &self.command].map(|text| cut(text, 200));
        format!("{user}: {command}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_line_is_cut() {
        let command = format!("asmp run --cpus 3 -- app{}", " argument".repeat(20_000));
        let creator = Caller::now(0, "root", command).creator();
        assert_eq!(creator.chars().count(), "root: ".len() + 200);
        assert!(creator.starts_with("root: asmp run --cpus 3 -- app argument"));
        assert!(creator.ends_with('…'));
    }
}
