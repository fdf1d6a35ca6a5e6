// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every thread of the machine: its CPUs, memory nodes, policy, priority, nice value and group.

use super::{Snapshot, noise};
use asmp_host::CpuSet;
use std::fs;

const PF_KTHREAD: u64 = 0x0020_0000;

fn numbers(dir: &str) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub fn read(all: &mut Snapshot) {
    for process in numbers("/proc") {
        if read_one(&format!("/proc/{process}"), process, all) == Some(true) {
            continue;
        }
        let dir = format!("/proc/{process}/task");
        for thread in numbers(&dir).into_iter().filter(|thread| *thread != process) {
            read_one(&format!("{dir}/{thread}"), thread, all);
        }
    }
}

/// Is it a kernel thread? `None`: it has ended.
fn read_one(dir: &str, tid: u32, all: &mut Snapshot) -> Option<bool> {
    let stat = fs::read_to_string(format!("{dir}/stat")).ok()?;
    let status = fs::read_to_string(format!("{dir}/status")).ok()?;
    let group = fs::read_to_string(format!("{dir}/cgroup")).ok()?;
    let (front, back) = stat.rsplit_once(')')?;
    let command = front.split_once('(')?.1;
    // Fields of proc_pid_stat(5), from the third (state) on.
    let fields: Vec<&str> = back.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let kernel_thread = field(9)?.parse::<u64>().ok()? & PF_KTHREAD != 0;
    if ["Z", "X"].contains(&field(3)?) {
        return Some(kernel_thread);
    }
    let of = |word: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(word));
        line.unwrap_or_default().trim().to_owned()
    };
    let name = format!("task {tid}@{}", field(22)?);
    for (what, value) in [
        ("cpus", of("Cpus_allowed_list:")),
        ("nodes", of("Mems_allowed_list:")),
        ("policy", field(41)?.to_owned()),
        ("priority", field(40)?.to_owned()),
        ("nice", field(19)?.to_owned()),
        ("group", group.trim().to_owned()),
    ] {
        // A rescuer of a workqueue has the CPUs of the pool that it helped last (workqueue.c).
        let is_borrowed = what == "cpus" && kernel_thread && command.starts_with("kworker/R-");
        let name = format!("{name} {what}");
        if !is_borrowed && !noise::is_noise(&name) {
            all.insert(name, value);
        }
    }
    all.insert(format!("{name} name"), command.to_owned());
    Some(kernel_thread)
}

/// Whether a difference in a task counts: only of one that lives in both. A worker of the kernel
/// has its work in its name.
pub fn counts(name: &str, before: &Snapshot, after: &Snapshot) -> bool {
    let Some(rest) = name.strip_prefix("task ") else { return true };
    let (Some(was), Some(is)) = (before.get(name), after.get(name)) else { return false };
    let Some((task, what)) = rest.rsplit_once(' ') else { return true };
    let command = before.get(&format!("task {task} name")).map_or("", String::as_str);
    // The handler of a line is where the kernel sends the line, which is one CPU of its mask and
    // is chosen anew (LIMITS.md, "restored state"). More CPUs than that are a difference.
    let one = |cpus: &str| cpus.parse::<u32>().is_ok();
    let follows = what == "cpus" && command.starts_with("irq/") && one(was) && one(is);
    what != "name" && !follows && !(what == "cpus" && is_let_in(task, was, is))
}

/// Has the kernel let a user task onto the CPUs of `isolcpus=`, as it does when a partition ends
/// (LIMITS.md, "restored state")? Process 1 and kernel threads get theirs back.
fn is_let_in(task: &str, was: &str, is: &str) -> bool {
    let set = |text: &str| text.trim().parse::<CpuSet>().unwrap_or_default();
    let tid = task.split('@').next().unwrap_or_default();
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let isolated = set(&isolated);
    let is_user = || fs::read(format!("/proc/{tid}/cmdline")).is_ok_and(|line| !line.is_empty());
    !isolated.is_empty() && set(is) == set(was).union(&isolated) && tid != "1" && is_user()
}

/// `task 2@0 cpus` is `task 2 (kthreadd) cpus`.
pub fn shown(name: &str, all: &Snapshot) -> String {
    let known = || {
        let (task, what) = name.strip_prefix("task ")?.rsplit_once(' ')?;
        let command = all.get(&format!("task {task} name"))?;
        Some(format!("task {} ({command}) {what}", task.split('@').next()?))
    };
    known().unwrap_or_else(|| name.to_owned())
}
