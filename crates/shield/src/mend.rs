// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a repair, and a change that repairs as well, find out of place, by reading only.

use crate::partition::{BoostedThread, Partition, State};
use crate::plan::{Action, Base, IfRefused, Step};
use crate::verify::{Finding, finding};
use asmp_host::task::{self, Member, task_path};
use asmp_host::{Kernel, Knob, Schedule, knob};
use std::path::Path;

/// Members of partitions that are in another group than their partition's, with the partition's
/// name. `tree`: the group of our partitions as tasks see it.
///
/// A process is in its partition as long as one of its threads is, or as long as it waits in
/// `rest`: there it is too when the thread that entered by itself has ended.
pub fn astray(kernel: &dyn Kernel, tree: &Path, partitions: &[Partition]) -> Vec<(String, Member)> {
    let members = partitions.iter().flat_map(|one| one.tasks.iter().map(move |task| (one, task)));
    members
        .filter(|(partition, placed)| is_astray(kernel, &tree.join(&partition.name), placed))
        .map(|(partition, placed)| (partition.name.clone(), placed.clone()))
        .collect()
}

fn is_astray(kernel: &dyn Kernel, domain: &Path, placed: &Member) -> bool {
    let Ok(now) = task::read(kernel, placed.task.tid) else { return false };
    if now.id != placed.task || now.zombie {
        return false;
    }
    match placed.alone {
        true => !now.group.starts_with(domain.join("rt")),
        false => !now.group.starts_with(domain),
    }
}

/// The `cgroup.freeze` files of a partition's groups, and of those above, that keep its tasks from
/// running.
pub fn frozen(kernel: &dyn Kernel, base: &Base, partition: &Partition) -> Vec<Knob> {
    let groups = base.groups(&partition.name);
    let own = [&groups.domain, &groups.rt, &groups.rest];
    let knobs = base.ancestors.iter().chain(own).map(|group| knob::freeze(group));
    knobs.filter(|knob| knob.read(kernel).is_ok_and(|now| knob.holds(&now, "1"))).collect()
}

/// Leaves out steps of a repair that would change nothing. They come before all other steps in the
/// cgroup tree, so that what holds now holds when they are taken.
pub fn keep_needed(kernel: &dyn Kernel, base: &Base, steps: &mut Vec<Step>) {
    let is_repair = |step: &Step| step.if_refused == IfRefused::Verify;
    steps.retain_mut(|step| !is_repair(step) || is_needed(kernel, base, step));
}

/// Would this step of a repair change anything? Then the value it replaces is noted in it.
fn is_needed(kernel: &dyn Kernel, base: &Base, step: &mut Step) -> bool {
    match &step.action {
        Action::Set { knob, to, .. } => match knob.read(kernel) {
            Ok(now) => {
                let holds = knob.holds(&now, to);
                step.old = Some(now);
                !holds
            }
            // A group that is to be made has nothing that must be cleared.
            Err(_) => !matches!(to.as_str(), "" | "0"),
        },
        Action::MakeGroup { path, .. } => !kernel.exists(path),
        Action::Delegate { .. } => !base.is_held(kernel),
        Action::SetPolicy { thread, to } => has_other_policy(kernel, thread.task, to),
        _ => true,
    }
}

/// Is there such a thread, with another policy than this?
pub fn has_other_policy(kernel: &dyn Kernel, thread: task::TaskId, to: &Schedule) -> bool {
    task::identify(kernel, thread.tid) == Some(thread)
        && kernel.schedule(thread.tid).is_ok_and(|now| now != *to)
}

/// Members outside their partition, groups that are frozen, and kernel threads that serve the
/// partition with another policy than it gives them: what other programs did, and what the kernel
/// refused.
pub fn held_back(
    kernel: &dyn Kernel,
    base: &Base,
    state: &State,
    partition: &Partition,
) -> (Vec<Finding>, Vec<Finding>) {
    let (mut violations, mut stays) = (Vec::new(), Vec::new());
    let repair = || format!("another program did that: `asmp repair {}`", partition.name);
    for (_, placed) in astray(kernel, &base.in_tree(), std::slice::from_ref(partition)) {
        let kind = if placed.alone { "thread" } else { "process" };
        let what = format!(
            "{kind} {} ({}) is a member, but not on the partition's CPUs",
            placed.task.tid, placed.command
        );
        violations.push(finding(what, repair()));
    }
    for knob in frozen(kernel, base, partition) {
        let what = format!("{} is 1: the tasks inside do not run", knob.path.display());
        violations.push(finding(what, repair()));
    }
    for thread in &partition.served {
        let to = Schedule::Fifo { priority: thread.priority };
        if !has_other_policy(kernel, thread.task, &to) {
            continue;
        }
        let BoostedThread { task, command, .. } = thread;
        let now = kernel.schedule(task.tid).map_or_else(|_| "none".into(), |now| now.to_string());
        let what =
            format!("thread {} ({command}) serves the partition as {to}, and is {now}", task.tid);
        match state.refused.get(&task_path(task.tid)) {
            Some(reason) => {
                let cure = format!("`asmp repair {}` tries again", partition.name);
                stays.push(finding(format!("{what}: {reason}"), cure));
            }
            None => violations.push(finding(what, repair())),
        }
    }
    (violations, stays)
}
