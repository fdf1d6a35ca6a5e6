//! `partitions.toml`: what shall be, declared. Unknown fields are refused; asmp-partitions(5) in docs/.

use crate::change::{creator, now_s};
use crate::exit::{BAD_FILE, failure};
use anyhow::Result;
use asmp_host::task::{self, Task, TaskId};
use asmp_host::{CpuSpec, Facts, Kernel, Schedule};
use asmp_shield::partition::shielded;
use asmp_shield::plan::Base;
use asmp_shield::request::{self, Wish};
use asmp_shield::{Aspect, Partition, Refusal, Smt, State, Tick};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    #[serde(default)]
    partition: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    /// As on the command line: "2-3", "last", "all-but 0", "0xc".
    cpus: String,
    /// Numbers or handler names.
    #[serde(default)]
    irqs: Vec<IrqName>,
    irq_priority: Option<u32>,
    #[serde(default)]
    tick: Tick,
    #[serde(default)]
    smt: Smt,
    #[serde(default)]
    strict: bool,
    /// Steps of the plan to leave out.
    #[serde(default)]
    without: Vec<Aspect>,
    #[serde(default)]
    task: Vec<TaskEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum IrqName {
    Number(u32),
    Name(String),
}

/// Processes that belong to a partition: by command name, or all of a systemd unit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    command: Option<String>,
    unit: Option<String>,
    policy: Option<String>,
}

/// Policies that tasks of the file shall have.
type Policies = Vec<(TaskId, Schedule)>;

/// Reads and checks a file. Errors: exit code 40 with the place in the file.
pub fn read(path: &Path) -> Result<File> {
    let bad = |reason: String| failure(BAD_FILE, format!("{}: {}", path.display(), reason.trim_end()));
    let text = std::fs::read_to_string(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    parse(&text).map_err(bad)
}

fn parse(text: &str) -> Result<File, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut names = BTreeSet::new();
    for entry in &file.partition {
        if !names.insert(&entry.name) {
            return Err(format!("partition {} is there twice: join the two or rename one", entry.name));
        }
        entry.cpus.parse::<CpuSpec>().map_err(|error| format!("partition {}: {error}", entry.name))?;
        for task in &entry.task {
            if task.command.is_some() == task.unit.is_some() {
                return Err(format!("partition {}: a task has either command or unit", entry.name));
            }
            if let Some(policy) = &task.policy {
                policy.parse::<Schedule>().map_err(|error| format!("partition {}: {error}", entry.name))?;
            }
        }
    }
    Ok(file)
}

/// The partitions once the file is in force, and the policies its tasks shall have.
pub fn decide(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &State,
    file: &File,
) -> Result<(Vec<Partition>, Policies), Refusal> {
    request::check_machine(facts)?;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let mut now = state.clone();
    // CPUs may pass from one partition of the file to another: all give up theirs before any takes.
    let declared: BTreeSet<&str> = file.partition.iter().map(|entry| entry.name.as_str()).collect();
    now.partitions.retain(|partition| !declared.contains(partition.name.as_str()));
    // CPUs that our own partitions isolate are no foreign ones.
    let mut ours = facts.clone();
    ours.cgroups.isolated =
        facts.cgroups.isolated.as_ref().map(|all| all.difference(&shielded(&state.partitions)));
    let mut policies = Vec::new();
    let tasks = match file.partition.iter().any(|entry| !entry.task.is_empty()) {
        true => task::read_all(kernel).unwrap_or_default(),
        false => Vec::new(),
    };
    for entry in &file.partition {
        let old = state.partitions.iter().find(|partition| partition.name == entry.name);
        now.partitions = request::create(&ours, &now, &entry.wish(old))?;
        if let (Some(old), Some(new)) = (old, now.partitions.last_mut()) {
            new.tasks = old.tasks.clone();
            let kept = old.served.iter().filter(|thread| request::priority_for(new, thread.by).is_some());
            new.served = kept.cloned().collect();
        }
        for wanted in &entry.task {
            for task in wanted.find(&tasks) {
                let inside = base.in_tree().join(&entry.name);
                if !task.group.starts_with(&inside) {
                    let real_time = task::real_time_threads(kernel, task.process);
                    let name = &entry.name;
                    now.partitions =
                        request::add_task(facts, &now, name, &task, false, real_time, &base.in_tree())?;
                }
                if let Some(Ok(policy)) = wanted.policy.as_deref().map(str::parse) {
                    policies.push((task.id, policy));
                }
            }
        }
    }
    if file.partition.is_empty() {
        return Ok((state.partitions.clone(), policies));
    }
    // Partitions keep their order of creation, so that an unchanged file changes nothing.
    let order = |partition: &Partition| state.partitions.iter().position(|old| old.name == partition.name);
    now.partitions.sort_by_key(|partition| order(partition).unwrap_or(usize::MAX));
    crate::change::adopt_kernel_threads(kernel, facts, state, &mut now.partitions);
    Ok((now.partitions, policies))
}

impl Entry {
    fn wish(&self, old: Option<&Partition>) -> Wish {
        Wish {
            name: self.name.clone(),
            cpus: self.cpus.parse().unwrap_or(CpuSpec::List(asmp_host::CpuSet::new())),
            irqs: self.irqs.iter().map(IrqName::text).collect(),
            irq_priority: self.irq_priority,
            tick: self.tick,
            smt: self.smt,
            strict: self.strict,
            without: self.without.clone(),
            created_s: old.map_or_else(now_s, |old| old.created_s),
            created_by: old.map_or_else(creator, |old| old.created_by.clone()),
            owner: None,
        }
    }
}

impl IrqName {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Name(name) => name.clone(),
        }
    }
}

impl TaskEntry {
    /// Processes that run now. A file says what shall be while they run; none is no error.
    fn find(&self, tasks: &[Task]) -> Vec<Task> {
        match (&self.command, &self.unit) {
            (Some(command), _) => tasks
                .iter()
                .filter(|task| !task.kernel_thread && !task.zombie && task.command == *command)
                .cloned()
                .collect(),
            (None, Some(unit)) => {
                let is_of_unit = |task: &&Task| {
                    !task.kernel_thread
                        && task.group.components().any(|part| part.as_os_str() == unit.as_str())
                };
                tasks.iter().filter(is_of_unit).cloned().collect()
            }
            (None, None) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_declares_partitions() {
        let file = parse(
            "[[partition]]\nname = \"motion\"\ncpus = \"2-3\"\nirqs = [\"eth1\", 24]\ntick = \"keep\"\n\
             [[partition.task]]\ncommand = \"jackd\"\npolicy = \"fifo:80\"\n",
        )
        .unwrap();
        assert_eq!(file.partition[0].irqs.iter().map(IrqName::text).collect::<Vec<_>>(), ["eth1", "24"]);
        assert_eq!(file.partition[0].tick, Tick::Keep);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_place() {
        for (text, says) in [
            ("[[partition]]\nname = \"a\"\ncpus = \"3\"\ncolour = 1\n", "colour"),
            ("[[partition]]\nname = \"a\"\n", "cpus"),
            ("[[partition]]\nname = \"a\"\ncpus = \"three\"\n", "three"),
            (
                "[[partition]]\nname = \"a\"\ncpus = \"3\"\n[[partition]]\nname = \"a\"\ncpus = \"2\"\n",
                "twice",
            ),
            ("[[partition]]\nname = \"a\"\ncpus = \"3\"\n[[partition.task]]\npolicy = \"rr:1\"\n", "either"),
            ("[[partition]\n", "expected"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
