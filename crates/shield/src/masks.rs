// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs of the kernel's own threads, and of process 1.
//!
//! When CPUs become isolated or are given back, the kernel itself gives all of them the CPUs of the
//! root cgroup: with `nohz_full=` or `isolcpus=` at boot they end with more CPUs than before. So
//! what they had is noted before the first partition and given back after the last.

use crate::guard;
use crate::partition::{Partition, shielded};
use asmp_host::facts::cpu_list;
use asmp_host::masks::{self, Mask};
use asmp_host::task::{self, task_path};
use asmp_host::{Cpu, CpuSet, Error, ErrorKind, Facts, Kernel, Result, irq, kind_of, topology};
use std::path::Path;

/// What tasks had and did not take back, with the reason.
pub type MasksLeft = Vec<(Mask, std::io::Error)>;

/// Gives each task the CPUs of its mask again, if it has others now, and then reads what it has. A
/// task that has ended, or that the kernel has since bound to its CPUs, needs nothing. `note` gets
/// what the tasks have now, before the first change. Returns how many were changed, and which did
/// not take their CPUs.
pub fn give_back_masks(
    kernel: &dyn Kernel,
    mount: &Path,
    masks: &[Mask],
    note: &mut dyn FnMut(Vec<Mask>) -> Result<()>,
) -> Result<(usize, MasksLeft)> {
    let mut differ = Vec::new();
    let mut now = Vec::new();
    for mask in masks {
        let Ok(task) = task::read(kernel, mask.task.tid) else { continue };
        // A program's thread that we did not set: its user may have, and the kernel keeps that.
        if !mask.was_set && !task.kernel_thread && mask.task.tid != 1 {
            continue;
        }
        let cpus = due(kernel, mask, &task);
        let has = &task.allowed_cpus;
        let is_back = *has == cpus || has_enough(kernel, mask, has, &cpus);
        if task.id == mask.task && !task.bound && !is_back {
            now.push(Mask { cpus: task.allowed_cpus, ..mask.clone() });
            differ.push((mask, cpus));
        }
    }
    if differ.is_empty() {
        return Ok((0, Vec::new()));
    }
    note(now)?;
    let (mut changes, mut left) = (0, Vec::new());
    for (mask, cpus) in differ {
        match set_mask(kernel, mount, mask, &cpus) {
            Ok(()) => changes += 1,
            Err(error) if kind_of(&error) == ErrorKind::Ended => {}
            Err(error) => left.push((mask.clone(), error)),
        }
    }
    Ok((changes, left))
}

/// What a task should have. A thread that had the online CPUs of its node may have those of its
/// node that were offline when it was noted, too: a mask once set bounds what the kernel gives
/// with a CPU that comes online, now or later.
fn due(kernel: &dyn Kernel, mask: &Mask, task: &task::Task) -> CpuSet {
    let given = || match (mask.offline_then.is_empty(), task.node()) {
        (false, Some(node)) => mask.cpus.union(&of_node(kernel, &mask.offline_then, node)),
        _ => mask.cpus.clone(),
    };
    handled(kernel, task).unwrap_or_else(given)
}

/// Those of `cpus` that are there, online or not, in this node.
fn of_node(kernel: &dyn Kernel, cpus: &CpuSet, node: u32) -> CpuSet {
    let present = cpu_list(kernel, "present").unwrap_or_default();
    let is_one_of_many = topology::nodes(kernel).len() > 1;
    // The list of a node leaves out offline CPUs.
    let is_here = |cpu: &Cpu| {
        let link = format!("/sys/devices/system/cpu/cpu{cpu}/node{node}");
        !is_one_of_many || kernel.exists(Path::new(&link))
    };
    cpus.intersection(&present).iter().filter(is_here).collect()
}

/// Has the thread of a node what it had, and each CPU that came online since? It needs no others as
/// long as its mask was not set.
fn has_enough(kernel: &dyn Kernel, mask: &Mask, has: &CpuSet, due: &CpuSet) -> bool {
    let online = || cpu_list(kernel, "online").unwrap_or_default();
    !mask.offline_then.is_empty()
        && !mask.was_set
        && mask.cpus.is_subset(has)
        && has.is_subset(due)
        && due.intersection(&online()).is_subset(has)
}

/// Sets the CPUs of a task and reads them back. The kernel leaves out CPUs of another program's
/// partition, and gives them by itself when that partition ends. An error if the kernel refuses, or
/// if the task then has CPUs that neither explains.
fn set_mask(kernel: &dyn Kernel, mount: &Path, mask: &Mask, cpus: &CpuSet) -> std::io::Result<()> {
    kernel.set_affinity(mask.task.tid, cpus)?;
    let Ok(task) = task::read(kernel, mask.task.tid) else { return Ok(()) };
    let has = &task.allowed_cpus;
    let group = mount.join(task.group.strip_prefix("/").unwrap_or(&task.group));
    let is_all = match effective(kernel, mount, &group) {
        Some(there) => has.is_subset(cpus) && cpus.intersection(&there).is_subset(has),
        None => has == cpus,
    };
    // A CPU may have come online, or the line of a handler may have moved, meanwhile.
    match task.id != mask.task || is_all || *has == due(kernel, mask, &task) {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("it has CPU {has} now"))),
    }
}

/// The online CPUs that a group gives to its tasks: its own, or those of the nearest group around
/// it that has cpusets. `None`: none has.
fn effective(kernel: &dyn Kernel, mount: &Path, group: &Path) -> Option<CpuSet> {
    let around = group.ancestors().take_while(|around| around.starts_with(mount));
    let text =
        around.filter_map(|group| kernel.text(&group.join("cpuset.cpus.effective")).ok()).next();
    text?.trim().parse().ok()
}

/// Of the handler of an interrupt line: where the line goes now. The kernel gives the handler that
/// CPU with the next interrupt after the line has moved.
fn handled(kernel: &dyn Kernel, task: &task::Task) -> Option<CpuSet> {
    let name = task.command.strip_prefix("irq/").filter(|_| task.kernel_thread)?;
    let line: u32 = name.split('-').next()?.parse().ok()?;
    irq::effective(kernel, line).filter(|cpus| !cpus.is_empty())
}

/// Unbound kernel threads that may run on shielded CPUs go (back) to system CPUs: 6.12 lets memory
/// threads out with each CPU that comes online, and shared CPUs stay in the masks of all. So do
/// real-time threads of others from shared CPUs: the scheduler there does not have them. `tree`:
/// the group of our partitions as tasks see it. `note` gets what all have, before one is moved.
/// Returns what those had that were moved.
pub fn confine_strays(
    kernel: &dyn Kernel,
    facts: &Facts,
    (tree, partitions): (&Path, &[Partition]),
    note: &mut dyn FnMut(Vec<Mask>) -> Result<()>,
) -> Result<Vec<Mask>> {
    let (shielded, shared) = (shielded(partitions), guard::shared(partitions));
    let to = facts.cpus.online.difference(&shielded);
    let mut strays = guard::tasks(kernel, partitions)?;
    strays.retain(|task| is_stray(task, &shielded) || is_rival(kernel, task, &shared, tree));
    let mut had = masks::of(kernel, &strays);
    if had.is_empty() {
        return Ok(had);
    }
    had.iter_mut().for_each(|mask| mask.was_set = true);
    note(had.clone())?;
    let mut moved = Vec::new();
    for had in had {
        let own = had.cpus.difference(&shielded).intersection(&facts.cpus.online);
        let to = if own.is_empty() { &to } else { &own };
        match kernel.set_affinity(had.task.tid, to) {
            Ok(()) => moved.push(had),
            // It ended, or the kernel holds it to its CPUs after all (SCHED_DEADLINE: EBUSY,
            // EPERM): then status goes on naming it.
            Err(error) if is_of_task(kind_of(&error)) => {}
            Err(error) => return Err(Error::io(&task_path(had.task.tid), "move")(error)),
        }
    }
    Ok(moved)
}

fn is_of_task(kind: ErrorKind) -> bool {
    use ErrorKind::{Busy, Ended, Invalid, NotPermitted};
    matches!(kind, Ended | Invalid | Busy | NotPermitted)
}

/// A kernel thread on shielded CPUs that could be elsewhere. Handlers of interrupts follow their
/// line.
pub fn is_stray(task: &task::Task, shielded: &CpuSet) -> bool {
    task.kernel_thread
        && !task.bound
        && !task.zombie
        && task.allowed_cpus.len() > 1
        && task.allowed_cpus.intersects(shielded)
        && !task.command.starts_with("irq/")
}

/// Another program's real-time thread that may run on these shared CPUs.
pub fn is_rival(kernel: &dyn Kernel, task: &task::Task, shared: &CpuSet, tree: &Path) -> bool {
    !task.kernel_thread
        && !task.zombie
        && task.allowed_cpus.intersects(shared)
        && (!task.group.starts_with(tree) || is_aside(&task.group, tree))
        && kernel.schedule(task.id.tid).is_ok_and(|schedule| schedule.is_real_time())
}

/// Is this the group of threads that stay outside while others of their process are inside?
pub fn is_aside(group: &Path, tree: &Path) -> bool {
    let below = group.strip_prefix(tree).unwrap_or(Path::new(""));
    below.iter().nth(1).is_some_and(|name| name == "rest")
}
