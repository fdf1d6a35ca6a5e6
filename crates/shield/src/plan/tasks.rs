// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps for tasks: those that leave and join, the policies of a file, and the policies of kernel
//! threads that serve a partition.

use super::{Action, Base, Step, named, step, verified};
use crate::partition::{BoostedThread, Partition, Service};
use asmp_host::Schedule;
use asmp_host::task::{GivenPolicy, Member, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Tasks that leave a partition which stays, tasks that join one, members that come back, by their
/// partition's name, and the policies that a file gives them.
pub(super) fn tasks_in(
    base: &Base,
    before: &[Partition],
    after: &[Partition],
    astray: &[(String, Member)],
    steps: &mut Vec<Step>,
) {
    fn members(all: &[Partition]) -> impl Iterator<Item = (&str, &Member)> {
        all.iter().flat_map(|one| one.tasks.iter().map(|placed| (one.name.as_str(), placed)))
    }
    let held: BTreeSet<(&str, TaskId, bool)> =
        members(before).map(|(name, placed)| (name, placed.task, placed.alone)).collect();
    let joins =
        |(name, placed): &(&str, &Member)| !held.contains(&(name, placed.task, placed.alone));
    // A thread of a process that joins as a whole, or joins another partition, leaves with it.
    let moving: BTreeSet<TaskId> =
        members(after).filter(joins).map(|(_, placed)| placed.process_id()).collect();
    let staying: BTreeMap<(TaskId, bool), &Member> =
        members(after).map(|(_, placed)| ((placed.task, placed.alone), placed)).collect();
    let stays = |old: &&Partition| after.iter().any(|new| new.name == old.name);
    let wanted = |placed: &Member| staying.get(&(placed.task, placed.alone)).copied();
    for old in before.iter().filter(stays) {
        for placed in old.tasks.iter().filter(|placed| placed.policy.is_some()) {
            if wanted(placed).is_some_and(|new| new.policy.is_none()) {
                let why = format!("{} no longer sets a policy for {}", old.name, placed.command);
                let groups = base.groups(&old.name);
                steps.push(step(Action::RestoreTaskPolicy { placed: placed.clone(), groups }, why));
            }
        }
        for placed in &old.tasks {
            if wanted(placed).is_none() && !moving.contains(&placed.process_id()) {
                let why = format!("{} leaves {}", placed.command, old.name);
                let groups = base.groups(&old.name);
                steps.push(step(Action::MoveOut { placed: placed.clone(), groups }, why));
            }
        }
    }
    for new in after {
        for placed in new.tasks.iter().filter(|placed| joins(&(new.name.as_str(), *placed))) {
            let why = format!("{} joins {}", placed.command, new.name);
            let groups = base.groups(&new.name);
            steps.push(step(Action::MoveIn { placed: placed.clone(), groups }, why));
        }
    }
    for (name, placed) in astray {
        let why = format!("{} is a member of {name}", placed.command);
        let groups = base.groups(name);
        steps.push(verified(step(Action::MoveIn { placed: placed.clone(), groups }, why)));
    }
    // A task that leaves a partition which goes has given its policy back.
    let given: BTreeMap<(TaskId, bool), &GivenPolicy> = before
        .iter()
        .filter(stays)
        .flat_map(|old| &old.tasks)
        .filter_map(|placed| Some(((placed.task, placed.alone), placed.policy.as_ref()?)))
        .collect();
    for new in after {
        for placed in &new.tasks {
            let Some(policy) = &placed.policy else { continue };
            let holds = given.get(&(placed.task, placed.alone)).is_some_and(|old| {
                old.to == policy.to
                    && policy.before.iter().all(|thread| old.before.contains(thread))
            });
            if !holds {
                let why =
                    format!("the file sets this policy for {} in {}", placed.command, new.name);
                let groups = base.groups(&new.name);
                let action =
                    Action::SetTaskPolicy { placed: placed.clone(), groups, to: policy.to };
                steps.push(step(action, why));
            }
        }
    }
}

#[derive(PartialEq, Eq)]
pub(super) enum Direction {
    Back,
    Forth,
}

/// Policies of kernel threads: back to what they were, or to what the partition needs.
pub(super) fn policies(
    before: &[Partition],
    after: &[Partition],
    direction: Direction,
    steps: &mut Vec<Step>,
) {
    // On the way forth a thread counts as known only with the same priority.
    let has = |partitions: &[Partition], thread: &BoostedThread| {
        let is_known = |known: &BoostedThread| {
            known.task == thread.task
                && (direction == Direction::Back || known.priority == thread.priority)
        };
        partitions.iter().any(|p| p.served.iter().any(is_known))
    };
    let (these, others) = match direction {
        Direction::Back => (before, after),
        Direction::Forth => (after, before),
    };
    for partition in these {
        for thread in partition.served.iter().filter(|thread| !has(others, thread)) {
            let (to, why) = match (&direction, thread.by) {
                (Direction::Back, _) => (thread.before, "restore the original policy".to_owned()),
                (Direction::Forth, Service::Irq(irq)) => (
                    Schedule::Fifo { priority: thread.priority },
                    format!("handle IRQ {irq} at the priority of partition {}", partition.name),
                ),
                (Direction::Forth, Service::Timers(cpu)) => (
                    Schedule::Fifo { priority: thread.priority },
                    format!(
                        "CPU {cpu}: a timer that waits behind a busy task would keep the tick \
                         running"
                    ),
                ),
            };
            steps.push(named(step(Action::SetPolicy { thread: thread.clone(), to }, why)));
        }
    }
}

/// Sets the policies again of kernel threads that serve these partitions and still do afterwards.
pub(super) fn policies_again(partitions: &[Partition], after: &[Partition], steps: &mut Vec<Step>) {
    let still = |thread: &&BoostedThread| after.iter().any(|new| new.served.contains(thread));
    for partition in partitions {
        for thread in partition.served.iter().filter(still) {
            let to = Schedule::Fifo { priority: thread.priority };
            let why = format!("{} serves partition {}", thread.command, partition.name);
            steps.push(verified(step(Action::SetPolicy { thread: thread.clone(), to }, why)));
        }
    }
}
