// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moving tasks into partitions and out of them.
//!
//! A real-time task that leaves would keep its policy. A busy SCHED_FIFO task on a CPU that others
//! need stops RCU there, and with it the machine. So a thread that became real-time inside
//! ([`Demotion`]) leaves only as SCHED_OTHER, and only if the user agreed. A thread that was
//! real-time when it joined keeps its policy.

use crate::apart::{self, absolute};
use crate::apply::{Undo, UndoLog};
use crate::plan::{Action, Base, Plan};
use crate::policies;
use asmp_host::cgroup::{self, Groups};
use asmp_host::facts::cpu_list;
use asmp_host::task::{self, Member, Task, TaskId, ThreadGroup, task_path};
use asmp_host::{CpuSet, Error, ErrorKind, Kernel, Result, Schedule, kind_of, knob};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Naps of 1 ms until a group is frozen, which mostly takes less than one. Then its tasks leave as
/// they are.
const MOST_NAPS: u32 = 1000;

/// A thread that became real-time inside a partition and loses that policy when it leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Demotion {
    pub task: TaskId,
    pub command: String,
    pub policy: Schedule,
    pub partition: String,
}

/// Every thread that would become SCHED_OTHER by this plan.
pub fn demotions(kernel: &dyn Kernel, plan: &Plan) -> Vec<Demotion> {
    let mut all = Vec::new();
    for step in &plan.steps {
        match &step.action {
            Action::Evacuate { placed, groups, .. } => {
                all.extend(leaving(kernel, groups, placed, None))
            }
            Action::MoveOut { placed, groups } => {
                all.extend(leaving(kernel, groups, std::slice::from_ref(placed), Some(placed)));
            }
            _ => {}
        }
    }
    all
}

/// Real-time threads in a partition that did not come so: all of them, or those of one task.
fn leaving(
    kernel: &dyn Kernel,
    groups: &Groups,
    came: &[Member],
    only: Option<&Member>,
) -> Vec<Demotion> {
    let came_so: BTreeSet<TaskId> =
        came.iter().flat_map(|placed| placed.real_time.iter().copied()).collect();
    let of_task = |task: &Task| only.is_none_or(|only| policies::is_of(kernel, task, only));
    let partition =
        groups.domain.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    policies::concerned(kernel, &[&groups.rt, &groups.idle], only)
        .into_iter()
        .filter_map(|tid| Some((task::read(kernel, tid).ok()?, kernel.schedule(tid).ok()?)))
        // What a partition file gave a thread it gives back before it leaves.
        .map(|(task, now)| {
            let policy = policies::on_leaving(kernel, came, &task, now);
            (task, policy)
        })
        .filter(|(task, policy)| policy.is_real_time() && !came_so.contains(&task.id))
        .filter(|(task, _)| of_task(task))
        .map(|(task, policy)| Demotion {
            task: task.id,
            command: task.command,
            policy,
            partition: partition.clone(),
        })
        .collect()
}

fn demote(kernel: &dyn Kernel, demotions: &[Demotion], undo_log: &mut UndoLog) -> Result<()> {
    for demotion in demotions {
        undo_log.note(Undo::SetPolicy { task: demotion.task, to: demotion.policy })?;
        let path = task_path(demotion.task.tid);
        match kernel.set_schedule(demotion.task.tid, &Schedule::Other { nice: 0 }) {
            Err(error) if kind_of(&error) != ErrorKind::Ended => {
                return Err(Error::io(&path, "take the real-time policy of")(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Moves every task out of a group that an interrupted change had made, such as the child of a
/// killed `asmp run`, and out of the groups below it. It goes to the caller's group, without a
/// real-time policy.
pub fn evict(kernel: &dyn Kernel, base: &Base, group: &Path) {
    let fallback_group = fallback_group(kernel, base);
    for tid in cgroup::threads_below(kernel, group).unwrap_or_default() {
        if kernel.schedule(tid).is_ok_and(|schedule| schedule.is_real_time()) {
            let _ = kernel.set_schedule(tid, &Schedule::Other { nice: 0 });
        }
        let _ = cgroup::move_process(kernel, process_of(kernel, tid), &fallback_group);
    }
}

/// Where tasks go whose own group is unknown or gone: the caller's group, else the root. Not to a
/// service's, such as asmpd's: systemd would end them with it.
fn fallback_group(kernel: &dyn Kernel, base: &Base) -> PathBuf {
    let own = kernel.text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let is_of_service = |group: &str| group.ends_with(".service");
    match own.lines().find_map(|line| line.strip_prefix("0::/")) {
        Some(group)
            if !Path::new("/").join(group).starts_with(base.in_tree()) && !is_of_service(group) =>
        {
            base.mount.join(group)
        }
        _ => base.mount.clone(),
    }
}

/// Moves a process to `home`. If that group is gone or refuses it: to the caller's group, then to
/// the root.
pub fn move_home(kernel: &dyn Kernel, base: &Base, process: i32, home: &Path) -> Result<()> {
    let cannot_take = |error: &Error| {
        use ErrorKind::{Busy, Missing, NotPermitted, Unsupported};
        // A user can nest groups so deep that none can name them from the root.
        let is_too_deep = error.errno() == Some(libc::ENAMETOOLONG);
        is_too_deep || matches!(error.kind(), Missing | Busy | Unsupported | NotPermitted)
    };
    let fallback_group = fallback_group(kernel, base);
    match cgroup::move_process(kernel, process, home) {
        Err(error) if cannot_take(&error) => {
            match cgroup::move_process(kernel, process, &fallback_group) {
                Err(error) if cannot_take(&error) => {
                    cgroup::move_process(kernel, process, &base.mount)
                }
                other => other,
            }
        }
        other => other,
    }
}

pub(crate) fn ended(tid: i32) -> Error {
    Error::ended(&task_path(tid), "move")
}

pub fn move_in(
    kernel: &dyn Kernel,
    base: &Base,
    placed: &Member,
    groups: &Groups,
    undo_log: &mut UndoLog,
) -> Result<()> {
    let tid = placed.task.tid;
    if task::identify(kernel, tid) != Some(placed.task) {
        return Err(ended(tid));
    }
    let now = task::read(kernel, tid)?;
    let process = task::identify(kernel, now.process).ok_or_else(|| ended(tid))?;
    let here = absolute(&base.mount, &now.group);
    let alone = placed.alone.then_some(placed.task);
    let mut entered = placed.entered.clone();
    let lives = |thread: &TaskId| task::identify(kernel, thread.tid) == Some(*thread);
    entered.iter_mut().for_each(|threads| threads.retain(lives));
    let only = entered.as_deref().or(alone.as_ref().map(std::slice::from_ref));
    let hop = Hop { groups, mount: &base.mount, here: &here, process };
    hop.take(kernel, only, &mut |undo| undo_log.note(undo))
}

/// A task on its way into a partition.
pub struct Hop<'a> {
    pub groups: &'a Groups,
    /// Where the cgroup tree is mounted.
    pub mount: &'a Path,
    /// The group that it is in.
    pub here: &'a Path,
    pub process: TaskId,
}

impl Hop<'_> {
    /// Moves the process in, or `only` these threads of it. The way back of each move goes to
    /// `note` before the move.
    pub fn take(
        &self,
        kernel: &dyn Kernel,
        only: Option<&[TaskId]>,
        note: &mut dyn FnMut(Undo) -> Result<()>,
    ) -> Result<()> {
        let &Self { groups, mount, here, process } = self;
        let whole = |to: &Path, note: &mut dyn FnMut(Undo) -> Result<()>| {
            note_apart(kernel, mount, here, process, note)?;
            note(Undo::Move { task: process, alone: false, to: here.to_owned() })?;
            cgroup::move_process(kernel, process.tid, to)
        };
        let Some(threads) = only else { return whole(&groups.rt, note) };
        if here == groups.rt {
            return Ok(());
        }
        // A single thread moves only within its threaded domain: the process comes along into
        // `rest`.
        if here != groups.rest {
            whole(&groups.rest, note)?;
        }
        for thread in threads {
            note(Undo::Move { task: *thread, alone: true, to: groups.rest.clone() })?;
            match cgroup::move_thread(kernel, thread.tid, &groups.rt) {
                // Of several, one has ended meanwhile.
                Err(error) if error.is_missing() && threads.len() > 1 => {}
                moved => moved?,
            }
        }
        Ok(())
    }
}

/// Notes where those threads of a process are that are not in `here`: the way back takes the whole
/// process to `here`, and then each of them to its group.
fn note_apart(
    kernel: &dyn Kernel,
    mount: &Path,
    here: &Path,
    process: TaskId,
    note: &mut dyn FnMut(Undo) -> Result<()>,
) -> Result<()> {
    let from = Path::new("/").join(here.strip_prefix(mount).unwrap_or(here));
    for ThreadGroup { task, group } in apart::find(kernel, mount, process.tid, &from) {
        note(Undo::Move { task, alone: true, to: absolute(mount, &group) })?;
    }
    Ok(())
}

/// Moves a task back to where it came from. One that ends meanwhile is out as well.
pub fn move_out(
    kernel: &dyn Kernel,
    base: &Base,
    placed: &Member,
    groups: &Groups,
    undo_log: &mut UndoLog,
) -> Result<()> {
    match move_living_out(kernel, base, placed, groups, undo_log) {
        Err(error) if error.is_missing() => Ok(()),
        other => other,
    }
}

fn move_living_out(
    kernel: &dyn Kernel,
    base: &Base,
    placed: &Member,
    groups: &Groups,
    undo_log: &mut UndoLog,
) -> Result<()> {
    let tid = placed.task.tid;
    let task = task::read(kernel, tid)?;
    // Its process may have left with another of its threads.
    if task.id != placed.task || !absolute(&base.mount, &task.group).starts_with(&groups.domain) {
        return Ok(());
    }
    let process = task.process;
    policies::give_back(kernel, groups, std::slice::from_ref(placed), Some(placed), undo_log)?;
    demote(kernel, &leaving(kernel, groups, std::slice::from_ref(placed), Some(placed)), undo_log)?;
    if placed.alone {
        let here = absolute(&base.mount, &task::read(kernel, tid)?.group);
        undo_log.note(Undo::Move { task: placed.task, alone: true, to: here })?;
        cgroup::move_thread(kernel, tid, &groups.rest)?;
        let inside: BTreeSet<i32> =
            cgroup::threads_below(kernel, &groups.rt)?.into_iter().collect();
        if task::thread_numbers(kernel, process)?.iter().any(|thread| inside.contains(thread)) {
            return Ok(());
        }
    }
    let id = task::identify(kernel, process).ok_or_else(|| ended(process))?;
    let back = gather(kernel, base, process, groups, undo_log)?;
    undo_log.note(Undo::Move { task: id, alone: false, to: back })?;
    let stranded = offline_cpus(kernel, groups);
    move_home(kernel, base, process, &absolute(&base.mount, &placed.from))?;
    apart::send_home(kernel, &base.mount, process, &placed.apart);
    if stranded {
        strand_nothing(kernel, process);
    }
    Ok(())
}

/// Is a CPU of the partition offline?
fn offline_cpus(kernel: &dyn Kernel, groups: &Groups) -> bool {
    let cpus = knob::exclusive_cpus(&groups.rt).read(kernel).ok();
    let cpus = cpus.and_then(|cpus| cpus.parse::<CpuSet>().ok());
    match (cpus, cpu_list(kernel, "online")) {
        (Some(cpus), Ok(online)) => !cpus.difference(&online).is_empty(),
        _ => false,
    }
}

/// The kernel leaves a sleeping thread on a CPU that went offline, also in its new group: every
/// thread of `process` without an online CPU gets all CPUs that its group allows. It had no mask
/// worth a way back; what the kernel refuses here it mends itself when the thread wakes.
fn strand_nothing(kernel: &dyn Kernel, process: i32) {
    let lists = (cpu_list(kernel, "online"), cpu_list(kernel, "possible"));
    let (Ok(online), Ok(possible)) = lists else { return };
    for thread in task::threads(kernel, process).unwrap_or_default() {
        if !thread.allowed_cpus.intersects(&online) {
            let _ = kernel.set_affinity(thread.id.tid, &possible);
        }
    }
}

/// Moves every task out, also those forked meanwhile and those in groups that others made inside.
/// Errors: EBUSY if the group does not get
/// empty.
pub fn evacuate(
    kernel: &dyn Kernel,
    base: &Base,
    placed: &[Member],
    groups: &Groups,
    undo_log: &mut UndoLog,
) -> Result<()> {
    let mut homes: BTreeMap<i32, PathBuf> = BTreeMap::new();
    let mut apart: BTreeMap<i32, &[ThreadGroup]> = BTreeMap::new();
    // A process has its home also after the thread that was recorded has ended.
    for placed in placed {
        let process = placed.process_id();
        if task::identify(kernel, process.tid) == Some(process) {
            homes.insert(process.tid, absolute(&base.mount, &placed.from));
            apart.insert(process.tid, &placed.apart);
        }
    }
    let stranded = offline_cpus(kernel, groups);
    wait_until_frozen(kernel, &groups.domain);
    for _ in 0..50 {
        let inside = cgroup::threads_below(kernel, &groups.domain)?;
        let processes: BTreeSet<i32> = inside.iter().map(|tid| process_of(kernel, *tid)).collect();
        if processes.is_empty() {
            return Ok(());
        }
        policies::give_back(kernel, groups, placed, None, undo_log)?;
        demote(kernel, &leaving(kernel, groups, placed, None), undo_log)?;
        for process in processes {
            let Some(id) = task::identify(kernel, process) else { continue };
            let back = gather(kernel, base, process, groups, undo_log)?;
            undo_log.note(Undo::Move { task: id, alone: false, to: back })?;
            let home =
                home_of(kernel, process, &homes).unwrap_or_else(|| fallback_group(kernel, base));
            match move_home(kernel, base, process, &home) {
                Err(error) if !error.is_missing() => return Err(error),
                _ => {}
            }
            let threads = apart.get(&process).copied().unwrap_or_default();
            apart::send_home(kernel, &base.mount, process, threads);
            if stranded {
                strand_nothing(kernel, process);
            }
        }
    }
    Err(Error::busy(&groups.domain, "empty the group"))
}

/// The kernel stops the tasks of a group one by one, on their way back to their programs. A task
/// that sleeps and cannot be woken keeps its group from being frozen. It starts no other task.
fn wait_until_frozen(kernel: &dyn Kernel, group: &Path) {
    let is_to_be = knob::freeze(group).read(kernel).is_ok_and(|now| now == "1");
    let events = group.join("cgroup.events");
    let is_on_its_way =
        || kernel.text(&events).is_ok_and(|text| text.lines().any(|line| line == "frozen 0"));
    let mut naps = 0;
    while is_to_be && naps < MOST_NAPS && is_on_its_way() {
        std::thread::sleep(Duration::from_millis(1));
        naps += 1;
    }
}

/// Gathers a process whose threads are in several groups of the partition in `rest`. Returns the
/// group that it leaves from. The kernel gives every thread the CPUs of the new group only if those
/// of the first thread change: a thread in `rt` whose process leads from `rest` would keep the
/// shielded CPU.
fn gather(
    kernel: &dyn Kernel,
    base: &Base,
    process: i32,
    groups: &Groups,
    undo_log: &mut UndoLog,
) -> Result<PathBuf> {
    let threads = task::threads(kernel, process).unwrap_or_default();
    let living = threads.iter().filter(|thread| !thread.zombie);
    // Threads outside the partition stay where they are: another program took them there.
    let here: Vec<(TaskId, PathBuf)> = living
        .map(|thread| (thread.id, absolute(&base.mount, &thread.group)))
        .filter(|(_, group)| group.starts_with(&groups.domain))
        .collect();
    let Some((_, first)) = here.first() else { return Ok(groups.rt.clone()) };
    if here.iter().all(|(_, group)| group == first) {
        return Ok(first.clone());
    }
    for (thread, group) in here.iter().filter(|(_, group)| *group != groups.rest) {
        undo_log.note(Undo::Move { task: *thread, alone: true, to: group.clone() })?;
        match cgroup::move_thread(kernel, thread.tid, &groups.rest) {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
    }
    Ok(groups.rest.clone())
}

/// The group it came from, or that of the ancestor that brought it in.
fn home_of(kernel: &dyn Kernel, process: i32, homes: &BTreeMap<i32, PathBuf>) -> Option<PathBuf> {
    let mut ancestor = process;
    for _ in 0..64 {
        if let Some(home) = homes.get(&ancestor) {
            return Some(home.clone());
        }
        ancestor = task::read(kernel, ancestor).ok()?.parent;
        if ancestor <= 1 {
            return None;
        }
    }
    None
}

fn process_of(kernel: &dyn Kernel, tid: i32) -> i32 {
    task::read(kernel, tid).map_or(tid, |task| task.process)
}
