// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What affinity tasks have, so that it can be given back.

use crate::cpuset::CpuSet;
use crate::facts::cpu_list;
use crate::kernel::Kernel;
use crate::task::{self, PF_KTHREAD, PF_NO_SETAFFINITY, Task, TaskId, after_command};
use crate::topology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

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

/// CPUs with which affinities are compared.
struct Machine {
    offline: CpuSet,
    /// Online CPUs of each node.
    nodes: BTreeMap<u32, CpuSet>,
}

impl Machine {
    fn read(kernel: &dyn Kernel) -> Self {
        let list = |name: &str| cpu_list(kernel, name).unwrap_or_default();
        let online = list("online");
        let offline = list("possible").difference(&online);
        let mut nodes = topology::nodes(kernel);
        if nodes.is_empty() {
            // A kernel without NUMA.
            nodes.insert(0, online);
        }
        Self { offline, nodes }
    }

    /// Of a task that serves a node, or none.
    fn mask(&self, task: TaskId, node: Option<u32>, cpus: CpuSet) -> Mask {
        let node = node.and_then(|node| self.nodes.get(&node));
        let follows = node.is_some_and(|online| *online == cpus);
        let offline_then = if follows { self.offline.clone() } else { CpuSet::new() };
        Mask { task, cpus, offline_then, was_set: false }
    }
}

/// The affinity of these tasks.
pub fn of<'a>(kernel: &dyn Kernel, tasks: impl IntoIterator<Item = &'a Task>) -> Vec<Mask> {
    let machine = Machine::read(kernel);
    let mask = |task: &Task| machine.mask(task.id, task.node(), task.allowed_cpus.clone());
    tasks.into_iter().map(mask).collect()
}

/// The affinity of each task that the kernel moves by itself with the CPUs of the root cgroup:
/// kernel threads that are bound to no CPU, among them handlers of interrupts (before 7.0), and
/// process 1. One pass; of other tasks only their flags are read.
pub fn of_root(kernel: &dyn Kernel) -> Vec<Mask> {
    let machine = Machine::read(kernel);
    let mask = |tid: i32| {
        let path = PathBuf::from(format!("/proc/{tid}/stat"));
        let stat = kernel.text(&path).ok()?;
        let (command, fields) = after_command(&path, &stat).ok()?;
        let flags: u64 = fields[6].parse().ok()?;
        let is_unbound = flags & PF_KTHREAD != 0 && flags & PF_NO_SETAFFINITY == 0;
        let has_ended = matches!(fields[0], "Z" | "X");
        let start_ticks = fields[19].parse().ok()?;
        let cpus = || task::allowed_cpus(kernel, tid);
        let node = task::node_served(command).filter(|_| is_unbound);
        match (tid == 1 || is_unbound) && !has_ended {
            true => Some(machine.mask(TaskId { tid, start_ticks }, node, cpus()?)),
            false => None,
        }
    };
    task::process_numbers(kernel).into_iter().filter_map(mask).collect()
}

/// The affinity of each real-time thread of programs. To be read while no CPU is isolated: the
/// kernel then says what was asked for, and later only what is left of that.
pub fn of_real_time(kernel: &dyn Kernel) -> Vec<Mask> {
    let machine = Machine::read(kernel);
    let is_program = |tid: &i32| !task::is_kernel_thread(kernel, *tid);
    let processes = task::process_numbers(kernel).into_iter().filter(is_program);
    let threads = processes.flat_map(|process| task::real_time_threads(kernel, process));
    let mask = |task: TaskId| Some(machine.mask(task, None, task::allowed_cpus(kernel, task.tid)?));
    threads.filter_map(mask).collect()
}
