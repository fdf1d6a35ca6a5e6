// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies that a partition file gives to tasks (`[[partition.task]] policy`).
//!
//! All threads of the task get the policy when the file is applied, as steps of the plan: if the
//! kernel refuses one, the whole change is undone. What each thread had before is recorded with the
//! task. When the task leaves, a thread that still has the given policy goes back to what it had. A
//! thread or a child that was born inside inherited the policy; it gets what the task's first
//! thread had. A thread that chose another policy meanwhile keeps it, under the rules of
//! [`crate::moving`].

use crate::apply::{Undo, UndoLog};
use asmp_host::cgroup::{self, Groups};
use asmp_host::task::{self, GivenPolicy, Member, Task, ThreadPolicy, task_path};
use asmp_host::{Error, ErrorKind, Kernel, Result, Schedule, kind_of};

/// New threads appear while a policy is given; this many looks find all but those of a fork bomb.
const LOOKS: usize = 50;

/// How far up the family of a process to look for the task that brought it in.
const GENERATIONS: usize = 64;

/// The record of giving `to` to a task: what each of its threads goes back to. `old`: the tasks
/// of all partitions until now, of which one may have given its policy to this one.
pub fn given(kernel: &dyn Kernel, task: &Task, to: Schedule, old: &[Member]) -> GivenPolicy {
    let mut threads = task::threads(kernel, task.process).unwrap_or_default();
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

/// The policy that a thread which has `now` gets when it leaves.
pub fn on_leaving(kernel: &dyn Kernel, tasks: &[Member], thread: &Task, now: Schedule) -> Schedule {
    let Some(given) = given_to(kernel, tasks, thread).filter(|given| given.to == now) else {
        return now;
    };
    let own = given.before.iter().find(|before| before.task == thread.id);
    own.or(given.before.first()).map_or(now, |before| before.policy)
}

/// The policy given to a thread: as itself, with its process, or with the ancestor that brought it
/// in.
fn given_to<'a>(
    kernel: &dyn Kernel,
    tasks: &'a [Member],
    thread: &Task,
) -> Option<&'a GivenPolicy> {
    if tasks.iter().all(|placed| placed.policy.is_none()) {
        return None;
    }
    let of = |tid: i32, alone: bool| {
        let placed = tasks.iter().find(|placed| placed.task.tid == tid && placed.alone == alone)?;
        Some(placed.policy.as_ref())
    };
    if let Some(own) = of(thread.id.tid, true) {
        return own;
    }
    let mut process = thread.process;
    let mut parent = thread.parent;
    for _ in 0..GENERATIONS {
        if let Some(own) = of(process, false) {
            return own;
        }
        if parent <= 1 {
            return None;
        }
        process = parent;
        parent = task::read(kernel, process).ok()?.parent;
    }
    None
}

/// Gives a policy to all threads of a task, or to the one that is placed alone. A thread that ends
/// meanwhile needs none. Errors: what the kernel answers for one of them.
pub fn give(
    kernel: &dyn Kernel,
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
        let mut changed = false;
        for thread in threads.unwrap_or_default() {
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
    for tid in cgroup::threads_below(kernel, &groups.domain)? {
        let (Ok(thread), Ok(now)) = (task::read(kernel, tid), kernel.schedule(tid)) else {
            continue;
        };
        if only.is_some_and(|only| !is_of(&thread, only)) {
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

/// Does a thread belong to this task of a partition?
pub fn is_of(thread: &Task, placed: &Member) -> bool {
    placed.task.tid == if placed.alone { thread.id.tid } else { thread.process }
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
