// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From 7.0 on the kernel ends no change of the isolated CPUs before work that is queued for each
//! CPU is done: that of vmstat, memory cgroups and PCI probes (`housekeeping_update`,
//! kernel/sched/isolation.c). A busy real-time task keeps the kworkers of its CPU from all work.
//! The kernel may then wait as long as the task runs, and every later change waits, too. So such a
//! change is refused.

use crate::apply::Undo;
use crate::partition::{Partition, Refusal, shielded};
use crate::plan::{Action, Step};
use asmp_host::{CpuSet, Facts, Kernel, Knob, task};
use std::time::{Duration, Instant};

/// The first kernel that waits.
const WAITS: (u32, u32) = (7, 0);

const PAUSE: Duration = Duration::from_millis(10);

/// Waits until each kworker that has work, in a partition that stays, has run. Partitions that end
/// let their tasks out first. Errors: `StarvedKworker` after `patience`. Work that is queued later
/// is not seen.
pub(crate) fn wait_for(
    kernel: &dyn Kernel,
    facts: &Facts,
    steps: &[Step],
    (before, after): (&[Partition], &[Partition]),
    patience: Duration,
) -> Result<(), Refusal> {
    let isolates =
        |step: &Step| matches!(&step.action, Action::Set { knob, .. } if is_isolation(knob));
    if !steps.iter().any(isolates) {
        return Ok(());
    }
    let stays = |old: &&Partition| after.iter().any(|new| new.name == old.name);
    let cpus =
        before.iter().filter(stays).fold(CpuSet::new(), |all, old| all.union(&old.shielded()));
    wait(kernel, facts, &cpus, patience)
}

/// The same before a change that was cut short is undone, for each partition in force. Undoing
/// takes out first the tasks that the change had moved in. Errors: `StarvedUndo`.
pub(crate) fn wait_for_undo(
    kernel: &dyn Kernel,
    facts: &Facts,
    back: &[Undo],
    partitions: &[Partition],
    patience: Duration,
) -> Result<(), Refusal> {
    let isolates = |undo: &Undo| matches!(undo, Undo::Set { knob, .. } if is_isolation(knob));
    if !back.iter().any(isolates) {
        return Ok(());
    }
    wait(kernel, facts, &shielded(partitions), patience).map_err(|refusal| match refusal {
        Refusal::StarvedKworker { cpu, kworker } => Refusal::StarvedUndo { cpu, kworker },
        other => other,
    })
}

fn wait(
    kernel: &dyn Kernel,
    facts: &Facts,
    cpus: &CpuSet,
    patience: Duration,
) -> Result<(), Refusal> {
    if facts.version() < WAITS || cpus.is_empty() {
        return Ok(());
    }
    let mut waiting = task::runnable_kworkers(kernel, cpus);
    let end = Instant::now() + patience;
    loop {
        waiting.retain(|kworker| kworker.is_starved(kernel));
        match waiting.first() {
            None => return Ok(()),
            Some(kworker) if Instant::now() >= end => {
                let (cpu, kworker) = (kworker.cpu, kworker.command.clone());
                return Err(Refusal::StarvedKworker { cpu, kworker });
            }
            Some(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Does writing it change which CPUs are isolated?
fn is_isolation(knob: &Knob) -> bool {
    let name = knob.path.file_name().and_then(|name| name.to_str());
    matches!(name, Some("cpuset.cpus.partition" | "cpuset.cpus.exclusive"))
}
