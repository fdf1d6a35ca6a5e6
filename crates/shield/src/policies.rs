// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies that a partition file gives to tasks (`[[partition.task]] policy`).
//!
//! All threads of the task that are inside get the policy when the file is applied, as steps of the
//! plan: if the kernel refuses one, the whole change is undone. What each thread had before is
//! recorded with the task. When the task leaves, a thread that still has the given policy goes back
//! to what it had. A thread or a child that was born inside inherited the policy; it gets what the
//! task's first thread had. A thread that chose another policy meanwhile keeps it, under the rules
//! of [`crate::moving`].

use crate::apply::{Undo, UndoLog};
use asmp_host::cgroup::{self, Groups};
use asmp_host::task::{self, GivenPolicy, Member, Task, TaskId, ThreadPolicy, task_path};
use asmp_host::{Error, ErrorKind, Kernel, Result, Schedule, kind_of};
use std::collections::BTreeSet;
use std::path::Path;

/// New threads appear while a policy is given; this many looks find all but those of a fork bomb.
const LOOKS: usize = 50;

/// The record of giving `to` to a task: what each of its threads goes back to. `inside`: the group
/// of the partition's tasks if the process is in it already; its threads elsewhere get no policy.
/// `old`: the tasks of all partitions until now, of which one may have given its policy to this
/// one.
pub fn given(
    kernel: &dyn Kernel,
    task: &Task,
    to: Schedule,
    inside: Option<&Path>,
    old: &[Member],
) -> GivenPolicy {
    let mut threads = task::threads(kernel, task.process).unwrap_or_default();
    threads.retain(|thread| inside.is_none_or(|inside| thread.group == inside));
    // The first thread comes first: threads that are born later go back to what it had.
    threads.sort_by_key(|thread| thread.id.tid != task.id.tid);
    let before = threads
        .iter()
        .filter_map(|thread| {
            let now = kernel.schedule(thread.id.tid).ok()?;
            Some(ThreadPolicy { task: thread.id, policy: on_leaving(kernel, old, thread, now) })
        })
        .collect();
    GivenPolicy { to, before }
}

/// Records the threads of a process that stood aside until now and get its policy too.
pub fn join(kernel: &dyn Kernel, process: i32, given: &mut GivenPolicy) {
    let known: BTreeSet<TaskId> = given.before.iter().map(|thread| thread.task).collect();
    for thread in task::threads(kernel, process).unwrap_or_default() {
        if let Ok(policy) = kernel.schedule(thread.id.tid)
            && thread.group.ends_with("rest")
            && !known.contains(&thread.id)
        {
            given.before.push(ThreadPolicy { task: thread.id, policy });
        }
    }
}

/// The policy that a thread which has `now` gets when it leaves.
pub fn on_leaving(kernel: &dyn Kernel, tasks: &[Member], thread: &Task, now: Schedule) -> Schedule {
    let Some(placed) = giver(kernel, tasks, thread) else { return now };
    let Some(given) = placed.policy.as_ref().filter(|given| given.to == now) else { return now };
    let own = given.before.iter().find(|before| before.task == thread.id);
    match own {
        // It was not given the policy: it came with it.
        None if placed.real_time.contains(&thread.id) => now,
        own => own.or(given.before.first()).map_or(now, |before| before.policy),
    }
}

/// The record by which a thread may have got a policy: its own, that of its process, or that of the
/// ancestor that brought it in.
fn giver<'a>(kernel: &dyn Kernel, tasks: &'a [Member], thread: &Task) -> Option<&'a Member> {
    if tasks.iter().all(|placed| placed.policy.is_none()) {
        return None;
    }
    let of = |task: TaskId, alone: bool| {
        tasks.iter().find(|placed| placed.task == task && placed.alone == alone)
    };
    // A thread that joined alone may have got its policy with its process later.
    if let Some(own) = of(thread.id, true).filter(|placed| placed.policy.is_some()) {
        return Some(own);
    }
    task::lineage(kernel, thread.process).into_iter().find_map(|process| of(process, false))
}

/// Gives a policy to those threads of a task that are inside, or to the one that is placed alone:
/// a real-time thread on system CPUs could starve them. A thread that ends meanwhile needs none.
/// Errors: what the kernel answers for one of them.
pub fn give(
    kernel: &dyn Kernel,
    groups: &Groups,
    placed: &Member,
    to: &Schedule,
    undo_log: &mut UndoLog,
) -> Result<()> {
    if task::identify(kernel, placed.task.tid) != Some(placed.task) {
        return Ok(());
    }
    for _ in 0..LOOKS {
        let threads = match placed.alone {
            true => task::read(kernel, placed.task.tid).map(|thread| vec![thread]),
            false => task::threads(kernel, placed.task.tid),
        };
        let inside = cgroup::threads_below(kernel, &groups.rt)?;
        let inside: BTreeSet<i32> = inside.into_iter().collect();
        let mut changed = false;
        let threads = threads.unwrap_or_default().into_iter();
        for thread in threads.filter(|thread| inside.contains(&thread.id.tid)) {
            changed |= set(kernel, &thread, to, undo_log)?;
        }
        if !changed {
            break;
        }
    }
    Ok(())
}

/// Gives threads of a partition the policy back that they had before the file gave them another:
/// all of them, or those of one task.
pub fn give_back(
    kernel: &dyn Kernel,
    groups: &Groups,
    tasks: &[Member],
    only: Option<&Member>,
    undo_log: &mut UndoLog,
) -> Result<()> {
    if tasks.iter().all(|placed| placed.policy.is_none()) {
        return Ok(());
    }
    for tid in concerned(kernel, &[&groups.domain], only) {
        let (Ok(thread), Ok(now)) = (task::read(kernel, tid), kernel.schedule(tid)) else {
            continue;
        };
        if only.is_some_and(|only| !is_of(kernel, &thread, only)) {
            continue;
        }
        let to = on_leaving(kernel, tasks, &thread, now);
        if set(kernel, &thread, &to, undo_log).is_err() {
            // SCHED_DEADLINE may not be admitted a second time: the task must leave all the same.
            set(kernel, &thread, &Schedule::Other { nice: 0 }, undo_log)?;
        }
    }
    Ok(())
}

/// Threads in these groups and below them, or those of them that may be of one task.
pub fn concerned(kernel: &dyn Kernel, groups: &[&Path], only: Option<&Member>) -> Vec<i32> {
    let threads = groups.iter().flat_map(|group| cgroup::threads_below(kernel, group));
    let mut threads: Vec<i32> = threads.flatten().collect();
    if let Some(only) = only {
        let own: BTreeSet<i32> = match only.alone {
            true => BTreeSet::from([only.task.tid]),
            false => {
                let own = task::thread_numbers(kernel, only.task.tid).unwrap_or_default();
                own.into_iter().collect()
            }
        };
        threads.retain(|tid| own.contains(tid));
    }
    threads
}

/// Does a thread belong to this task of a partition?
pub fn is_of(kernel: &dyn Kernel, thread: &Task, placed: &Member) -> bool {
    match placed.alone {
        true => placed.task == thread.id,
        false => {
            placed.task.tid == thread.process
                && task::identify(kernel, thread.process) == Some(placed.task)
        }
    }
}

/// Sets the policy of one thread, with its way back. Did anything change?
fn set(kernel: &dyn Kernel, thread: &Task, to: &Schedule, undo_log: &mut UndoLog) -> Result<bool> {
    match kernel.schedule(thread.id.tid) {
        Ok(now) if now != *to => undo_log.note(Undo::SetPolicy { task: thread.id, to: now })?,
        _ => return Ok(false),
    }
    match kernel.set_schedule(thread.id.tid, to) {
        Err(error) if kind_of(&error) == ErrorKind::Ended => Ok(false),
        other => {
            other.map_err(Error::io(&task_path(thread.id.tid), "set the policy of")).map(|()| true)
        }
    }
}
