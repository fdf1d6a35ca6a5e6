// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks on the CPUs of a partition that do not belong there.

use super::{Finding, finding};
use crate::masks::is_aside;
use crate::partition::Partition;
use crate::plan::Base;
use asmp_host::task::Task;
use asmp_host::{CpuSet, Kernel};

/// Tasks that may run on the partition's CPUs and do not belong there. Many come together: a
/// partition that another program dissolved, or whose CPU was offline, keeps no task out.
pub(super) fn intruders(
    kernel: &dyn Kernel,
    partition: &Partition,
    base: &Base,
    tasks: &[Task],
    violations: &mut Vec<Finding>,
    stays: &mut Vec<Finding>,
) {
    let (name, shielded) = (&partition.name, partition.shielded());
    let inside = base.in_tree().join(name);
    let (mut bound, mut others): (Vec<&Task>, Vec<&Task>) = (Vec::new(), Vec::new());
    for task in tasks.iter().filter(|task| !task.zombie && task.allowed_cpus.intersects(&shielded))
    {
        // Handlers of interrupts follow their line, which is judged by its affinity.
        let handler = task.kernel_thread && task.command.starts_with("irq/");
        let is_aside = !partition.mode.is_isolated() && is_aside(&task.group, &base.in_tree());
        if task.group.starts_with(&inside) && !is_aside || handler {
            continue;
        }
        let stays = task.kernel_thread && (task.bound || task.allowed_cpus.len() == 1);
        // Others may share the CPU, but no real-time thread may.
        let may_share = || !kernel.schedule(task.id.tid).is_ok_and(|now| now.is_real_time());
        if !partition.mode.is_isolated() && !stays && may_share() {
            continue;
        }
        if stays { &mut bound } else { &mut others }.push(task);
    }
    for kernel in [true, false] {
        let all: Vec<&Task> =
            others.iter().filter(|task| task.kernel_thread == kernel).copied().collect();
        let cure = match kernel {
            true => format!("`asmp repair {name}`"),
            false if !partition.mode.is_isolated() => {
                format!("a real-time thread of others: `asmp repair {name}` confines it")
            }
            false => {
                "its cpuset no longer excludes these CPUs: see the partition's own state".into()
            }
        };
        let named = |task: &&Task| format!("{} ({})", task.id.tid, task.command);
        if let [first, second, third, _, ..] = all.as_slice() {
            let cpus = all.iter().fold(CpuSet::new(), |cpus, task| cpus.union(&task.allowed_cpus));
            let (count, cpus) = (all.len(), cpus.intersection(&shielded));
            let such = [first, second, third].map(named).join(", ");
            let of = if kernel { "kernel threads" } else { "tasks" };
            let what = format!("{count} {of} may run on CPU {cpus}, such as {such}");
            violations.push(finding(what, cure));
            continue;
        }
        for task in &all {
            let cpus = task.allowed_cpus.intersection(&shielded);
            let what = format!("task {} may run on CPU {cpus}", named(task));
            violations.push(finding(what, cure.clone()));
        }
    }
    if !bound.is_empty() {
        let names: Vec<&str> = bound.iter().map(|task| task.command.as_str()).collect();
        let (count, names) = (bound.len(), names.join(" "));
        let what = format!("{count} kernel threads that the kernel does not let move: {names}");
        let cure = "every Linux CPU has them: they run for work of this CPU (kworker/R-…: when \
                    memory is short)";
        stays.push(finding(what, cure));
    }
}

/// Tasks of others whose affinity names guarded CPUs alone: there is no system CPU for what they do
/// in the kernel, so they do it here.
pub(super) fn pinned(
    partition: &Partition,
    base: &Base,
    tasks: &[Task],
    guarded: &CpuSet,
) -> Vec<Finding> {
    let is_pinned = |task: &&Task| {
        let cpus = &task.allowed_cpus;
        !task.kernel_thread
            && !task.zombie
            && !task.group.starts_with(base.in_tree())
            && cpus.intersects(&partition.cpus)
            && cpus.is_subset(guarded)
    };
    let pinned = tasks.iter().filter(is_pinned);
    let named = pinned.map(|task| {
        let (tid, cpus) = (task.id.tid, &task.allowed_cpus);
        let what = format!(
            "task {tid} ({}) is bound to CPU {cpus}: its system calls run there",
            task.command
        );
        let cure = format!(
            "give it a system CPU too (taskset -pc). If it belongs inside: `asmp add {} --tid \
             {tid}`; its system calls still run there then",
            partition.name
        );
        finding(what, cure)
    });
    named.collect()
}
