// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a change should have given back and could not.

use crate::apart;
use crate::apply::{Applied, Refused};
use crate::orphans;
use crate::partition::{Partition, State};
use crate::plan::{Base, Plan};
use asmp_host::task::{self, Member, TaskId};
use asmp_host::{Kernel, knob};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a change could not give back. Its original is kept until it can.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// The file, or the task.
    pub what: String,
    /// What it had before the first change; empty of a group that should be gone.
    pub original: String,
    pub reason: String,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.original.is_empty() {
            true => write!(f, "{}: {}", self.what, self.reason),
            false => write!(f, "{} (was {:?}): {}", self.what, self.original, self.reason),
        }
    }
}

/// A task that has left a partition and is not in the group that it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    pub task: TaskId,
    pub command: String,
    pub from: PathBuf,
    /// Is that group still there?
    pub from_exists: bool,
    pub now: PathBuf,
}

impl std::fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { task, command, from, from_exists, now } = self;
        let gone = if *from_exists { "" } else { ", which is gone," };
        let (tid, from, now) = (task.tid, from.display(), now.display());
        write!(f, "task {tid} ({command}) came from the group {from}{gone} and is in {now} now")
    }
}

/// Tasks that this change took out of partitions, and that are not where they came from: their
/// group is gone or refused them, or another program has moved them.
pub fn of_tasks(
    kernel: &dyn Kernel,
    base: &Base,
    before: &[Partition],
    after: &[Partition],
) -> Vec<Elsewhere> {
    let stay = after.iter().flat_map(|one| &one.tasks).map(Member::process_id);
    let stay: BTreeSet<TaskId> = stay.collect();
    let left = before.iter().flat_map(|one| &one.tasks);
    let left = left.filter(|placed| !stay.contains(&placed.process_id()));
    let homes: BTreeMap<TaskId, &Path> = left
        .flat_map(|placed| {
            let threads = placed.apart.iter().map(|thread| (thread.task, thread.group.as_path()));
            threads.chain([(placed.process_id(), placed.from.as_path())])
        })
        .collect();
    let elsewhere = |(id, from): (TaskId, &Path)| {
        let task = task::read(kernel, id.tid).ok()?;
        let is_out = !task.group.starts_with(base.in_tree());
        (task.id == id && !task.zombie && is_out && task.group != from).then(|| Elsewhere {
            task: id,
            command: task.command,
            from: from.to_owned(),
            from_exists: kernel.exists(&apart::absolute(&base.mount, from)),
            now: task.group,
        })
    };
    homes.into_iter().filter_map(elsewhere).collect()
}

/// What is not given back, with the reason. A line that is gone needs nothing.
pub fn of_settings(state: &State, plan: &Plan, applied: &Applied) -> Vec<Left> {
    let original = |path: &Path| state.originals.get(path).map(|original| original.text.clone());
    let of_path = |path: &Path, reason: String| {
        Some(Left { what: path.display().to_string(), original: original(path)?, reason })
    };
    let waiting = plan.waiting.iter();
    let waiting = waiting.filter_map(|(path, cpu)| of_path(path, format!("CPU {cpu} is offline")));
    let refused = applied.refused.iter().filter(|refused| !is_gone(refused));
    let refused = refused.filter(|refused| plan.released.contains(&refused.path));
    let refused = refused.filter_map(|refused| of_path(&refused.path, refused.reason.clone()));
    let masks = applied.masks_left.iter().map(|(mask, error)| Left {
        what: format!("the CPUs of task {}", mask.task.tid),
        original: mask.cpus.to_string(),
        reason: error.to_string(),
    });
    let policies = applied.policies_left.iter().map(|(thread, reason)| Left {
        what: format!("the policy of task {} ({})", thread.task.tid, thread.command),
        original: thread.before.to_string(),
        reason: reason.clone(),
    });
    let held = plan.held.iter().map(|file| Left {
        what: file.display().to_string(),
        original: original(file).unwrap_or_default(),
        reason: format!("{HELD}: CPU {} is offline", plan.returning),
    });
    waiting.chain(refused).chain(masks).chain(policies).chain(held).collect()
}

/// Why the controller of CPU lists stays.
pub const HELD: &str = "cpuset stays, or tasks of other groups would keep fewer CPUs";

/// Is the group of our partitions there?
pub fn has_base(kernel: &dyn Kernel, base: &Base) -> bool {
    kernel.exists(base.dir()) && (base.delegated || kernel.is_marked(base.dir()))
}

/// A line whose device was removed meanwhile.
pub fn is_gone(refused: &Refused) -> bool {
    !refused.disturbs && knob::irq_of(&refused.path).is_some()
}

/// Why the group of our partitions stays beside a group of another program.
pub fn made(other: &Path) -> String {
    format!("another program made {}: remove that first", other.display())
}

/// Groups that should be gone with these partitions and are not, because another program made them
/// or made one in them.
pub fn of_groups(kernel: &dyn Kernel, base: &Base, gone: &[Partition], is_last: bool) -> Vec<Left> {
    let left = |group: PathBuf, reason: String| Left {
        what: group.display().to_string(),
        original: String::new(),
        reason,
    };
    let mut kept = Vec::new();
    for group in gone.iter().map(|partition| base.groups(&partition.name).domain) {
        if kernel.exists(&group) {
            kept.push(left(group, "another program made it, so it stays".to_owned()));
        }
    }
    if let Some(other) =
        orphans::foreign(kernel, base).filter(|_| is_last && has_base(kernel, base))
    {
        kept.push(left(base.dir().to_owned(), made(&other)));
    }
    kept
}
