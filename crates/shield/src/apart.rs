// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads of one process in groups of their own, as virtual machines have them (libvirt's
//! `vcpu0`). A partition takes the process whole, and gives each thread its group back.

use crate::rules::Origin;
use asmp_host::task::{self, Task, ThreadGroup};
use asmp_host::{Kernel, cgroup};
use std::path::{Path, PathBuf};

/// A path in the cgroup tree as one of files below `mount`.
pub fn absolute(mount: &Path, group: &Path) -> PathBuf {
    mount.join(group.strip_prefix("/").unwrap_or(group))
}

/// Where the process of a task is now, and which of its threads are real-time or apart.
pub fn origin(kernel: &dyn Kernel, mount: &Path, task: &Task) -> Origin {
    let process = task.process;
    // The kernel leaves a first thread that has ended where it was.
    let first = task::read(kernel, process).ok().filter(|first| !first.zombie);
    let from = first.map_or_else(|| task.group.clone(), |first| first.group);
    let apart = find(kernel, mount, process, &from);
    Origin { real_time: task::real_time_threads(kernel, process), apart, from, policy: None }
}

/// Threads of a process that are in another group than `from`.
pub fn find(kernel: &dyn Kernel, mount: &Path, process: i32, from: &Path) -> Vec<ThreadGroup> {
    // Only threaded groups divide a process (admin-guide/cgroup-v2.rst "Threads"). The root of the
    // tree, which has no such file, may have some below it.
    let kind = kernel.text(&absolute(mount, from).join("cgroup.type"));
    if kind.is_ok_and(|kind| kind == "domain") {
        return Vec::new();
    }
    let groups = task::thread_groups(kernel, process).into_iter();
    groups.filter(|thread| thread.group != from).collect()
}

/// Sends threads of a process back to their groups, once the process is where it was. A thread that
/// has ended needs none. One whose group is gone stays with its process, and so do all where the
/// process could not go home (one process is in one domain).
pub fn send_home(kernel: &dyn Kernel, mount: &Path, process: i32, apart: &[ThreadGroup]) {
    if apart.is_empty() {
        return;
    }
    let own = task::thread_numbers(kernel, process).unwrap_or_default();
    for ThreadGroup { task, group } in apart {
        if own.binary_search(&task.tid).is_ok() && task::identify(kernel, task.tid) == Some(*task) {
            let _ = cgroup::move_thread(kernel, task.tid, &absolute(mount, group));
        }
    }
}
