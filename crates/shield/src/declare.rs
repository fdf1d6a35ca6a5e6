// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partitions as a file declares them (asmp-partitions(5)): which there are, and which tasks and
//! IRQ lines belong to each. Unknown fields are refused. The text format is the caller's: `asmp`
//! reads TOML.

use crate::partition::{Aspect, BoostedThread, Partition, Refusal, Smt, State, Tick, shielded};
use crate::plan::Base;
use crate::policies;
use crate::request::{Caller, Spec};
use crate::rules::{self, Wish};
use asmp_host::task::{self, Member, Task};
use asmp_host::{CpuSpec, Facts, Kernel, Schedule};
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

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
    /// As on the command line: "2-3", "last", "all-but 0", "0xc".
    #[serde(with = "crate::text")]
    pub cpus: CpuSpec,
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

/// Processes that belong to a partition: by command name, or all of a systemd unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTask {
    /// As the kernel has it in /proc/PID/comm: at most 15 bytes.
    #[serde(default)]
    pub command: Option<String>,
    #[serde(default)]
    pub unit: Option<String>,
    #[serde(default, with = "crate::text::option")]
    pub policy: Option<Schedule>,
}

/// The kernel keeps this many bytes of a command's name (TASK_COMM_LEN - 1).
const COMMAND_BYTES: usize = 15;

impl Declaration {
    /// What the format cannot say by itself. Errors: the reason, with the partition's name.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for declared in &self.partitions {
            let name = &declared.name;
            if !names.insert(name) {
                return Err(format!(
                    "partition {name} is declared twice: join the two or rename one"
                ));
            }
            if let Some(priority) = declared.irq_priority.filter(|one| !(1..=99).contains(one)) {
                return Err(format!("partition {name}: irq_priority {priority}: use 1 to 99"));
            }
            for task in &declared.tasks {
                if task.command.is_some() == task.unit.is_some() {
                    return Err(format!("partition {name}: a task has either command or unit"));
                }
                if let Some(command) = task.command.as_ref().filter(|c| c.len() > COMMAND_BYTES) {
                    return Err(format!(
                        "partition {name}: command {command:?} matches no task: the kernel keeps \
                         {COMMAND_BYTES} bytes of a name; write {:?}",
                        comm(command)
                    ));
                }
            }
        }
        Ok(())
    }
}

/// A command's name as the kernel cuts it, at a character's end.
fn comm(command: &str) -> &str {
    let end = (0..=COMMAND_BYTES).rev().find(|end| command.is_char_boundary(*end));
    &command[..end.unwrap_or(0)]
}

/// The partitions once the file is in force. `state` gains a record of tasks that were born inside
/// and get a policy.
pub(crate) fn decide(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    declaration: &Declaration,
    caller: &Caller,
) -> Result<Vec<Partition>, Refusal> {
    declaration.check().map_err(|reason| Refusal::BadDeclaration { reason })?;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let mut now = state.clone();
    // CPUs may pass from one partition of the file to another: all give up theirs first.
    let names: BTreeSet<&str> =
        declaration.partitions.iter().map(|one| one.name.as_str()).collect();
    now.partitions.retain(|partition| !names.contains(partition.name.as_str()));
    // CPUs that our own partitions isolate are no foreign ones.
    let mut ours = facts.clone();
    ours.cgroups.isolated =
        facts.cgroups.isolated.as_ref().map(|all| all.difference(&shielded(&state.partitions)));
    let tasks = match declaration.partitions.iter().any(|one| !one.tasks.is_empty()) {
        true => task::read_all(kernel).unwrap_or_default(),
        false => Vec::new(),
    };
    for declared in &declaration.partitions {
        let old =
            state.partitions.iter().find(|partition| partition.name == declared.name).cloned();
        now.partitions = rules::create(&ours, &now, &declared.wish(old.as_ref(), caller))?;
        if let (Some(old), Some(new)) = (&old, now.partitions.last_mut()) {
            // Only who still has a policy in the file keeps it.
            new.tasks =
                old.tasks.iter().map(|task| Member { policy: None, ..task.clone() }).collect();
            let kept = old.served.iter().filter_map(|thread| {
                let priority = rules::priority_for(new, thread.by)?;
                Some(BoostedThread { priority, ..thread.clone() })
            });
            new.served = kept.collect();
        }
        for wanted in &declared.tasks {
            for task in wanted.find(&tasks) {
                let inside = base.in_tree().join(&declared.name);
                if !task.group.starts_with(&inside) {
                    let real_time = task::real_time_threads(kernel, task.process);
                    let (name, tree) = (&declared.name, base.in_tree());
                    now.partitions = rules::add_task(&now, name, &task, false, real_time, &tree)?;
                } else if wanted.policy.is_some() && state.partition(&declared.name).is_ok() {
                    // Born inside: recorded in both, so that the plan does not move it in.
                    rules::record_born_inside(state, &declared.name, &task, false)?;
                    rules::record_born_inside(&mut now, &declared.name, &task, false)?;
                }
                if let Some(to) = wanted.policy {
                    give_policy(kernel, state, &mut now, &task, to);
                }
            }
        }
    }
    if declaration.partitions.is_empty() {
        return Ok(state.partitions.clone());
    }
    // Partitions keep their order of creation, so that an unchanged file changes nothing.
    let order = |new: &Partition| state.partitions.iter().position(|old| old.name == new.name);
    now.partitions.sort_by_key(|partition| order(partition).unwrap_or(usize::MAX));
    Ok(now.partitions)
}

/// Records in `now` that a task gets a policy, with what its threads go back to.
fn give_policy(kernel: &dyn Kernel, state: &mut State, now: &mut State, task: &Task, to: Schedule) {
    let old: Vec<Member> =
        state.partitions.iter().flat_map(|partition| partition.tasks.clone()).collect();
    let mut members = now.partitions.iter_mut().flat_map(|partition| &mut partition.tasks);
    if let Some(member) = members.find(|member| member.task == task.id) {
        member.policy = Some(policies::given(kernel, task, to, &old));
    }
    // A thread that has changed its policy since is no longer recorded as having this one: the plan
    // sees a thread more and sets it.
    let has = |tid: i32| kernel.schedule(tid).is_ok_and(|now| now == to);
    let members = state.partitions.iter_mut().flat_map(|partition| &mut partition.tasks);
    for policy in
        members.filter(|member| member.task == task.id).filter_map(|member| member.policy.as_mut())
    {
        policy.before.retain(|thread| has(thread.task.tid));
    }
}

impl Declared {
    fn wish(&self, old: Option<&Partition>, caller: &Caller) -> Wish {
        let spec = Spec {
            cpus: self.cpus.clone(),
            irqs: self.irqs.iter().map(IrqName::text).collect(),
            irq_priority: self.irq_priority,
            tick: self.tick,
            smt: self.smt,
            strict: self.strict,
            without: self.without.clone(),
        };
        let fresh = Wish::new(&self.name, &spec, caller, None);
        match old {
            Some(old) => {
                Wish { created_s: old.created_s, created_by: old.created_by.clone(), ..fresh }
            }
            None => fresh,
        }
    }
}

impl DeclaredTask {
    /// Processes that run now. A file says what is to be while they run; none is no error.
    fn find(&self, tasks: &[Task]) -> Vec<Task> {
        let is_meant = |task: &&Task| match (&self.command, &self.unit) {
            (Some(command), _) => !task.zombie && task.command == *command,
            (None, Some(unit)) => {
                task.group.components().any(|part| part.as_os_str() == unit.as_str())
            }
            (None, None) => false,
        };
        tasks.iter().filter(|task| !task.kernel_thread).filter(is_meant).cloned().collect()
    }
}
