// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the real-time policy from tasks of users' partitions that other programs took out.
//!
//! Problem:  systemd moves a user's process for that user, and what it starts is real-time too. A
//!           listing of tasks misses those that are just being made.
//! Approach: asmpd marks a process before it makes it real-time. Children inherit the mark
//!           ([`asmp_host::rttime`]). The kernel tells asmpd of each move, and asmpd goes through
//!           the group that the task went to until it finds nothing more. A user who means harm
//!           lowers the limit that is the mark, and keeps the policy.

use asmp_host::rttime;
use asmp_host::tracefs::TakenOut;
use asmp_host::{Kernel, Schedule, cgroup, task};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// After something was found, nothing must be found so often, a nap apart: a task that is being
/// made is not listed yet.
const MOST_CLEAN: u32 = 3;
const NAP: Duration = Duration::from_millis(1);

/// A user whose tasks start others as fast as they lose their policy has asmpd for so long; the
/// rest comes after repairs.
const MOST: Duration = Duration::from_millis(200);

/// What was done, in words, and whether the time was over before all was.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub told: Vec<String>,
    pub is_cut: bool,
}

/// Where cgroups are mounted, and the group of all partitions as /proc/PID/cgroup names it.
#[derive(Debug, Clone)]
pub struct Tree {
    pub mount: PathBuf,
    pub partitions: PathBuf,
}

/// After these moves.
pub fn after(kernel: &dyn Kernel, tree: &Tree, moved: &BTreeSet<TakenOut>) -> Done {
    let end = Instant::now() + MOST;
    let tasks = |TakenOut { group, tid }: &TakenOut| {
        let group = tree.mount.join(group.strip_prefix("/").unwrap_or(group));
        let mut all = cgroup::threads_below(kernel, &group).unwrap_or_default();
        // It may have gone on meanwhile.
        let process = task::read(kernel, *tid).map_or(*tid, |task| task.process);
        all.extend(task::thread_numbers(kernel, process).unwrap_or_default());
        all
    };
    let mut all = Done::default();
    for one in moved {
        let done = demote(kernel, tree, end, || tasks(one));
        all.told.extend(done.told);
        all.is_cut |= done.is_cut;
    }
    all
}

/// Wherever they are: moves may have been missed. By number: a group may be nested so deep that its
/// files have no path.
pub fn everywhere(kernel: &dyn Kernel, tree: &Tree) -> Done {
    demote(kernel, tree, Instant::now() + MOST, || task::all_threads(kernel))
}

/// Makes those of `tasks` SCHED_OTHER that have a policy from asmp, and are in no partition. Goes
/// through them once at least.
fn demote(kernel: &dyn Kernel, tree: &Tree, end: Instant, tasks: impl Fn() -> Vec<i32>) -> Done {
    // As it is now: a number may be another task's meanwhile.
    let is_it = |tid: i32| {
        let was = kernel.schedule(tid).ok().filter(Schedule::is_real_time)?;
        let task = task::read(kernel, tid).ok()?;
        let is_outside = !task.group.starts_with(&tree.partitions);
        (is_outside && rttime::is_marked(kernel, task.process)).then_some((task, was))
    };
    let mut told = BTreeMap::new();
    let mut clean = 0;
    let is_cut = loop {
        let mut found = false;
        for tid in tasks() {
            let Some((task, was)) = is_it(tid) else { continue };
            found = true;
            if kernel.set_schedule(tid, &Schedule::Other { nice: 0 }).is_ok() {
                told.entry(tid).or_insert_with(|| words(&task, was));
            }
        }
        clean = if found { 0 } else { clean + 1 };
        let is_clean = clean == MOST_CLEAN || told.is_empty();
        if is_clean || Instant::now() >= end {
            break !is_clean;
        }
        std::thread::sleep(NAP);
    };
    Done { told: told.into_values().collect(), is_cut }
}

fn words(task: &task::Task, was: Schedule) -> String {
    let (tid, command, group) = (task.id.tid, &task.command, task.group.display());
    format!("task {tid} ({command}) was taken out to {group}: SCHED_OTHER now, it was {was}")
}

#[cfg(test)]
#[path = "outside_tests.rs"]
mod tests;
