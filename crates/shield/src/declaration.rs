// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partitions as a file declares them (asmp-partitions(5)): which there are, and which tasks and
//! IRQ lines belong to each. Unknown fields are refused. The text format is the caller's: `asmp`
//! reads TOML.

use crate::choose::Need;
use crate::mode::Mode;
use crate::partition::{Aspect, Smt, Tick};
use crate::request::Cpus;
use asmp_host::names::number_of;
use asmp_host::{CpuSpec, Kernel, Schedule};
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    #[serde(default, rename = "partition")]
    pub partitions: Vec<Declared>,
}

/// One `[[partition]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    pub name: String,
    /// As on the command line: "2-3", "last", "all-but 0", "0xc". Either this or `count`.
    #[serde(default, with = "crate::text::option")]
    pub cpus: Option<CpuSpec>,
    /// How many CPUs; asmp chooses them.
    #[serde(default)]
    pub count: Option<usize>,
    /// Of `count`: a device, an IRQ line or a NUMA node that they are to be near.
    #[serde(default)]
    pub near: Option<IrqName>,
    /// Of `count`: all threads of each core.
    #[serde(default)]
    pub whole_cores: bool,
    #[serde(default)]
    pub irqs: Vec<IrqName>,
    #[serde(default)]
    pub irq_priority: Option<u32>,
    #[serde(default)]
    pub tick: Tick,
    #[serde(default)]
    pub smt: Smt,
    #[serde(default)]
    pub strict: bool,
    /// Steps of the plan to leave out.
    #[serde(default)]
    pub without: Vec<Aspect>,
    /// Who may use its CPUs.
    #[serde(default)]
    pub mode: Mode,
    #[serde(default, rename = "task")]
    pub tasks: Vec<DeclaredTask>,
}

/// An IRQ line by number or by its handler's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum IrqName {
    Number(u32),
    Name(String),
}

/// By hand: a derived reader of both says nothing about what is wrong.
impl<'de> Deserialize<'de> for IrqName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = IrqName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of an IRQ line, or the name of its handler in quotes")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<IrqName, E> {
                let bad = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
                u32::try_from(number).map(IrqName::Number).map_err(bad)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<IrqName, E> {
                let bad = |_| E::invalid_value(Unexpected::Signed(number), &self);
                u32::try_from(number).map(IrqName::Number).map_err(bad)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<IrqName, E> {
                Ok(IrqName::Name(name.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl IrqName {
    /// As `--irq` takes it.
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Name(name) => name.clone(),
        }
    }
}

/// Processes that belong to a partition: by command name, or all of a systemd unit. Any user may
/// give a process any name, so a name means the caller's processes, or those of `user`. A unit
/// means one of the system, whose group only root makes, or, with `user`, that user's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTask {
    /// As the kernel has it in /proc/PID/comm: at most 15 bytes.
    #[serde(default)]
    pub command: Option<String>,
    #[serde(default)]
    pub unit: Option<String>,
    /// Real user of the processes: a name in /etc/passwd, or a number.
    #[serde(default)]
    pub user: Option<UserName>,
    #[serde(default, with = "crate::text::option")]
    pub policy: Option<Schedule>,
}

/// A user by number or by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum UserName {
    Number(u32),
    Name(String),
}

impl UserName {
    /// The user's number. Errors: the reason, in words.
    pub(crate) fn uid(&self, kernel: &dyn Kernel) -> Result<u32, String> {
        let name = match self {
            Self::Number(uid) => return Ok(*uid),
            Self::Name(name) => name,
        };
        let users = kernel.text(Path::new("/etc/passwd")).unwrap_or_default();
        number_of(&users, name).ok_or_else(|| {
            let groups = kernel.text(Path::new("/etc/group")).unwrap_or_default();
            let is_group = groups.lines().any(|line| line.split(':').next() == Some(name));
            let but = if is_group { " (it is a group, and a task has a user)" } else { "" };
            format!(
                "user {name:?} is not in /etc/passwd{but}: write the number that `id -u` prints"
            )
        })
    }
}

/// The kernel keeps this many bytes of a command's name (TASK_COMM_LEN - 1).
const COMMAND_BYTES: usize = 15;

/// What is wrong in a declaration, and where: who reads the text knows the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Which partition of the file, from 0.
    pub partition: usize,
    /// Which of its tasks, where one is wrong.
    pub task: Option<usize>,
    /// The key; `None` where one is missing.
    pub key: Option<&'static str>,
    /// In words, with the partition's name.
    pub reason: String,
}

/// A key, if it is there, and the reason.
type WrongKey = (Option<&'static str>, String);

impl Declaration {
    /// What the format cannot say by itself. Errors: the first, with its place.
    pub fn check(&self) -> Result<(), Wrong> {
        let mut names = BTreeSet::new();
        for (partition, declared) in self.partitions.iter().enumerate() {
            let wrong = |task| move |(key, reason)| Wrong { partition, task, key, reason };
            if !names.insert(&declared.name) {
                let twice = "is declared twice: join the two or rename one";
                let reason = format!("partition {} {twice}", declared.name);
                return Err(wrong(None)((Some("name"), reason)));
            }
            declared.check().map_err(wrong(None))?;
            for (number, task) in declared.tasks.iter().enumerate() {
                task.check(&declared.name).map_err(wrong(Some(number)))?;
            }
        }
        Ok(())
    }
}

impl DeclaredTask {
    fn check(&self, partition: &str) -> Result<(), WrongKey> {
        if self.command.is_some() == self.unit.is_some() {
            let key = self.unit.is_some().then_some("unit");
            return Err((key, format!("partition {partition}: a task has either command or unit")));
        }
        let long = self.command.as_ref().filter(|command| command.len() > COMMAND_BYTES);
        long.map_or(Ok(()), |command| {
            let reason = format!(
                "partition {partition}: command {command:?} matches no task: the kernel keeps \
                 {COMMAND_BYTES} bytes of a name; write {:?}",
                comm(command)
            );
            Err((Some("command"), reason))
        })
    }
}

impl Declared {
    fn check(&self) -> Result<(), WrongKey> {
        self.asked()?;
        let wrong = self.irq_priority.filter(|priority| !(1..=99).contains(priority));
        wrong.map_or(Ok(()), |priority| {
            let reason = format!("partition {}: irq_priority {priority}: use 1 to 99", self.name);
            Err((Some("irq_priority"), reason))
        })
    }

    /// The CPUs that it asks for. Errors: the reason, with the partition's name.
    pub fn wanted(&self) -> Result<Cpus, String> {
        self.asked().map_err(|(_, reason)| reason)
    }

    fn asked(&self) -> Result<Cpus, WrongKey> {
        let wrong = |key, what: &str| Err((key, format!("partition {}: {what}", self.name)));
        let of_count = match (&self.near, self.whole_cores) {
            (Some(_), _) => Some("near"),
            (None, true) => Some("whole_cores"),
            (None, false) => None,
        };
        match (&self.cpus, self.count) {
            (Some(_), Some(_)) => wrong(Some("count"), "use either cpus or count"),
            (None, None) => wrong(None, "cpus or count is missing"),
            (Some(_), None) if of_count.is_some() => {
                wrong(of_count, "near and whole_cores go with count, not with cpus")
            }
            (Some(cpus), None) => Ok(Cpus::Named(cpus.clone())),
            (None, Some(0)) => wrong(Some("count"), "count = 0: use 1 or more"),
            (None, Some(count)) => Ok(Cpus::Needed(Need {
                count,
                near: self.near.as_ref().map(IrqName::text),
                whole_cores: self.whole_cores,
            })),
        }
    }
}

/// A command's name as the kernel cuts it, at a character's end.
pub(crate) fn comm(command: &str) -> &str {
    let end = (0..=COMMAND_BYTES).rev().find(|end| command.is_char_boundary(*end));
    &command[..end.unwrap_or(0)]
}
