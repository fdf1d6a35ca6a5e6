// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What affinity tasks have, so that it can be given back.

use crate::cpuset::CpuSet;
use crate::facts::cpu_list;
use crate::kernel::Kernel;
use crate::task::{self, PF_KTHREAD, PF_NO_SETAFFINITY, Task, TaskId, after_command};
use crate::topology;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The affinity of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    pub task: TaskId,
    pub cpus: CpuSet,
    /// CPUs that were offline when this was read, of a thread that had the online CPUs of its node
    /// ([`Task::node`]). The kernel may give it those as they come online.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub offline_then: CpuSet,
    /// We gave the task other CPUs after this was read. The kernel then gives it none beyond those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_set: bool,
}

/// The affinity of these tasks.
pub fn of<'a>(kernel: &dyn Kernel, tasks: impl IntoIterator<Item = &'a Task>) -> Vec<Mask> {
    let list = |name: &str| cpu_list(kernel, name).unwrap_or_default();
    let online = list("online");
    let offline = list("possible").difference(&online);
    let mut nodes = topology::nodes(kernel);
    if nodes.is_empty() {
        // A kernel without NUMA.
        nodes.insert(0, online);
    }
    let mask = |task: &Task| {
        let node = task.node().and_then(|node| nodes.get(&node));
        let follows = node.is_some_and(|cpus| *cpus == task.allowed_cpus);
        let offline_then = if follows { offline.clone() } else { CpuSet::new() };
        Mask { task: task.id, cpus: task.allowed_cpus.clone(), offline_then, was_set: false }
    };
    tasks.into_iter().map(mask).collect()
}

/// The affinity of each task that the kernel moves by itself with the CPUs of the root cgroup:
/// kernel threads that are bound to no CPU, among them handlers of interrupts (before 7.0), and
/// process 1. One pass; of other tasks only their flags are read.
pub fn of_root(kernel: &dyn Kernel) -> Vec<Mask> {
    let names = kernel.list(Path::new("/proc")).unwrap_or_default();
    let mut tids: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    tids.sort_unstable();
    let is_unbound = |tid: i32| {
        let path = PathBuf::from(format!("/proc/{tid}/stat"));
        let stat = kernel.text(&path).ok()?;
        let (_, fields) = after_command(&path, &stat).ok()?;
        let flags: u64 = fields[6].parse().ok()?;
        Some(flags & PF_KTHREAD != 0 && flags & PF_NO_SETAFFINITY == 0)
    };
    let tasks: Vec<Task> = tids
        .into_iter()
        .filter(|tid| *tid == 1 || is_unbound(*tid) == Some(true))
        .filter_map(|tid| task::read(kernel, tid).ok())
        .filter(|task| !task.zombie)
        .collect();
    of(kernel, &tasks)
}
