// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other people's groups and tasks that lose CPUs to a partition: containers with a cpuset of their
//! own, virtual machines with pinned threads, groups with exclusive CPUs.
//!
//! The kernel drives them to other CPUs without a word, or refuses the partition with a bare
//! EINVAL. Here they get names. Everything is read from the cgroup tree and /proc; nothing is
//! changed.

use crate::guard::exclusive;
use crate::partition::{Partition, Refusal, shielded};
use crate::plan::{Action, Base, Step};
use asmp_host::task::{self, Task};
use asmp_host::{
    Bandwidth, CpuSet, Error, ErrorKind, Facts, Kernel, Schedule, cgroup, deadline_servers,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// A group or process of others that asked for CPUs which a partition takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Affected {
    /// `group /docker/web` (as in /proc/PID/cgroup) or `process 812 (qemu)`.
    pub who: String,
    /// The CPUs that it asked for.
    pub cpus: CpuSet,
    /// Those of them that the partition takes.
    pub taken: CpuSet,
    /// Number of its threads.
    pub tasks: usize,
}

impl fmt::Display for Affected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, cpus, taken, tasks } = self;
        let s = if *tasks == 1 { "" } else { "s" };
        write!(f, "{who} ({tasks} task{s}) asks for CPU {cpus} and ")?;
        match cpus.is_subset(taken) {
            true => write!(f, "loses all of them: it runs on other CPUs meanwhile"),
            false => write!(f, "loses CPU {taken}"),
        }
    }
}

impl Affected {
    /// What helps those concerned.
    pub const CURE: &'static str = "give it other CPUs (docker update --cpuset-cpus, virsh \
                                    vcpupin, systemctl set-property … AllowedCPUs=, taskset), or \
                                    choose others for the partition";
}

/// A group of others that the cpuset controller reaches.
struct Group {
    /// As in /proc/PID/cgroup.
    path: PathBuf,
    /// Its `cpuset.cpus`: what it asked for; empty: what its parent gives.
    cpus: CpuSet,
    exclusive: CpuSet,
    is_partition: bool,
    /// Threads in it, and in groups below it that ask for no CPUs of their own.
    tasks: usize,
}

/// Every group that the cpuset controller reaches, but ours, outermost first.
fn groups(kernel: &dyn Kernel, base: &Base) -> Vec<Group> {
    let mut found = Vec::new();
    below(kernel, base, &base.mount, &mut found);
    found
}

/// Adds the groups below `dir`. Returns the threads there that belong to no group with CPUs of its
/// own.
fn below(kernel: &dyn Kernel, base: &Base, dir: &Path, found: &mut Vec<Group>) -> usize {
    let mut threads = 0;
    for name in kernel.list_directories(dir).unwrap_or_default() {
        let group = dir.join(name);
        // A group of ours, or none.
        let is_group = || kernel.text(&group.join("cgroup.subtree_control")).is_ok();
        if group == base.dir() || !is_group() {
            continue;
        }
        let text = |name: &str| kernel.text(&group.join(name)).ok();
        let list = |name: &str| text(name).and_then(|text| text.parse().ok()).unwrap_or_default();
        let at = found.len();
        let cpus: CpuSet = list("cpuset.cpus");
        found.push(Group {
            path: Path::new("/").join(group.strip_prefix(&base.mount).unwrap_or(&group)),
            exclusive: list("cpuset.cpus.exclusive"),
            is_partition: text("cpuset.cpus.partition").is_some_and(|text| text != "member"),
            cpus,
            tasks: 0,
        });
        let own = cgroup::threads_of(kernel, &group).map_or(0, |threads| threads.len());
        let tasks = own + below(kernel, base, &group, found);
        found[at].tasks = tasks;
        if found[at].cpus.is_empty() {
            threads += tasks;
        }
    }
    threads
}

/// Groups beside ours with CPUs that the kernel would not let us have; and the CPUs that any group
/// with tasks asks for.
pub(crate) fn held_cpus(
    kernel: &dyn Kernel,
    facts: &Facts,
    base: &Base,
) -> (Vec<(String, CpuSet)>, CpuSet) {
    let (mut exclusive, mut claimed) = (Vec::new(), CpuSet::new());
    for group in groups(kernel, base) {
        if is_beside(&group, base) && !group.exclusive.is_empty() {
            let name = printable(&group.path.to_string_lossy());
            exclusive.push((name, group.exclusive.clone()));
        }
        if group.tasks > 0 && !facts.cpus.online.is_subset(&group.cpus) {
            claimed = claimed.union(&group.cpus);
        }
    }
    (exclusive, claimed)
}

/// Does a group stand beside the outermost of ours?
fn is_beside(group: &Group, base: &Base) -> bool {
    group.path.parent() == Some(Path::new("/")) && !base.in_tree().starts_with(&group.path)
}

/// Groups with tasks whose own CPUs are among `taken`. One that asks for every CPU asks for none in
/// particular.
pub(crate) fn affected_groups(
    kernel: &dyn Kernel,
    facts: &Facts,
    base: &Base,
    taken: &CpuSet,
) -> Vec<Affected> {
    if taken.is_empty() {
        return Vec::new();
    }
    let is_meant = |group: &Group| {
        group.tasks > 0 && group.cpus.intersects(taken) && !facts.cpus.online.is_subset(&group.cpus)
    };
    groups(kernel, base)
        .into_iter()
        .filter(is_meant)
        .map(|group| Affected {
            who: format!("group {}", printable(&group.path.to_string_lossy())),
            taken: group.cpus.intersection(taken),
            cpus: group.cpus,
            tasks: group.tasks,
        })
        .collect()
}

/// Processes with threads that may run on `taken` only, by their own affinity, outside `groups` and
/// outside our own.
fn affected_processes(
    kernel: &dyn Kernel,
    base: &Base,
    taken: &CpuSet,
    groups: &[Affected],
    threads: &[i32],
) -> Vec<Affected> {
    let in_a_group = |task: &Task| {
        let group = task.group.to_string_lossy();
        let named = |affected: &Affected| {
            let path = affected.who.strip_prefix("group ").unwrap_or_default();
            task.group.starts_with(path) || printable(&group) == path
        };
        task.group.starts_with(base.in_tree()) || groups.iter().any(named)
    };
    let mut found: BTreeMap<i32, Affected> = BTreeMap::new();
    for tid in threads.iter().copied() {
        // Hardly any thread is pinned here. A system call tells that sooner than a file.
        let may_leave = |online: CpuSet| !online.is_subset(taken);
        if kernel.online_affinity(tid).is_ok_and(may_leave) {
            continue;
        }
        // Most of those that are, are the kernel's.
        if task::is_kernel_thread(kernel, tid)
            || !task::allowed_cpus(kernel, tid).is_some_and(|cpus| cpus.is_subset(taken))
        {
            continue;
        }
        let Ok(task) = task::read(kernel, tid) else { continue };
        if task.kernel_thread || task.zombie || in_a_group(&task) {
            continue;
        }
        let command = match task::read(kernel, task.process) {
            Ok(process) => process.command,
            Err(_) => task.command.clone(),
        };
        let entry = found.entry(task.process).or_insert_with(|| Affected {
            who: format!("process {} ({})", task.process, printable(&command)),
            cpus: CpuSet::new(),
            taken: CpuSet::new(),
            tasks: 0,
        });
        entry.cpus = entry.cpus.union(&task.allowed_cpus);
        entry.taken = entry.cpus.clone();
        entry.tasks += 1;
    }
    found.into_values().collect()
}

/// Do the tasks of SCHED_DEADLINE that may run on `taken` fit on what remains of their CPUs? The
/// kernel admitted them to more, and asks this for a CPU that goes offline (`dl_bw_check_overflow`
/// in kernel/sched/deadline.c), but not for one that becomes isolated.
/// Errors: `NoRoomForDeadlines`.
fn keep_deadlines(
    kernel: &dyn Kernel,
    (facts, base): (&Facts, &Base),
    threads: &[i32],
    taken: &CpuSet,
    system: &CpuSet,
) -> Result<(), Refusal> {
    let (mut booked, mut allowed, mut names) = (0, CpuSet::new(), Vec::new());
    for tid in threads.iter().copied() {
        let Ok(Schedule::Deadline { runtime_ns, period_ns, .. }) = kernel.schedule(tid) else {
            continue;
        };
        let Ok(task) = task::read(kernel, tid) else { continue };
        let is_ours = task.group.starts_with(base.in_tree());
        // Those of the kernel (sugov) book nothing.
        if task.kernel_thread || is_ours || !task.allowed_cpus.intersects(taken) {
            continue;
        }
        booked += share(runtime_ns, period_ns);
        allowed = allowed.union(&task.allowed_cpus);
        names.push(format!("task {tid}, {}", printable(&task.command)));
    }
    if booked == 0 {
        return Ok(());
    }
    let cpus = allowed.intersection(system);
    let Some(room) = room(kernel, facts, &cpus).filter(|room| booked > *room) else {
        return Ok(());
    };
    Err(Refusal::NoRoomForDeadlines {
        count: names.len(),
        first: names.swap_remove(0),
        booked_percent: (booked * 100).div_ceil(WHOLE_CPU),
        cpus,
        room_percent: room * 100 / WHOLE_CPU,
    })
}

/// A CPU, in the kernel's unit of bandwidth (BW_SHIFT).
const WHOLE_CPU: u64 = 1 << 20;

/// Of a CPU, as `to_ratio` of the kernel has it.
fn share(runtime_ns: u64, period_ns: u64) -> u64 {
    let share = u128::from(runtime_ns) * u128::from(WHOLE_CPU) / u128::from(period_ns.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What the deadline servers of `cpus` leave; `None`: the kernel admits without a bound, or the
/// bound cannot be read. To read it on 6.12 makes that kernel refuse every later change of a
/// deadline server: there it is taken for the default.
fn room(kernel: &dyn Kernel, facts: &Facts, cpus: &CpuSet) -> Option<u64> {
    let may_be_read = !((6, 12)..(7, 0)).contains(&facts.version());
    let read = if may_be_read { Bandwidth::read(kernel).ok()? } else { Bandwidth::DEFAULT };
    let Bandwidth { runtime_us, period_us } = read;
    let each = share(u64::try_from(runtime_us).ok()?, period_us);
    let servers = deadline_servers(kernel, cpus).unwrap_or_default();
    let served: u64 = servers.iter().map(|one| share(one.runtime_ns, one.period_ns)).sum();
    Some((each * cpus.len() as u64).saturating_sub(served))
}

/// Who loses CPUs when the partitions `before` become `after`. Errors: `Displaces` where a strict
/// partition takes them; `ExclusiveElsewhere` where the kernel would refuse; `NoRoomForDeadlines`.
pub(crate) fn affected(
    kernel: &dyn Kernel,
    facts: &Facts,
    (before, after): (&[Partition], &[Partition]),
) -> Result<Vec<Affected>, Refusal> {
    let taken = exclusive(after).difference(&exclusive(before));
    let Some(base) = Base::of(facts) else { return Ok(Vec::new()) };
    let asked = shielded(after).difference(&shielded(before)).union(&taken);
    if let Some(group) = (!asked.is_empty()).then(|| conflicting(kernel, &base, &asked)).flatten() {
        return Err(exclusive_elsewhere(&group, &asked));
    }
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let threads = task::all_threads(kernel);
    let system = facts.cpus.online.difference(&exclusive(after));
    keep_deadlines(kernel, (facts, &base), &threads, &taken, &system)?;
    let mut affected = affected_groups(kernel, facts, &base, &taken);
    affected.extend(affected_processes(kernel, &base, &taken, &affected, &threads));
    // One that is isolated because its guard has ended is no new wish.
    let is_known = |new: &Partition| {
        before.iter().any(|old| Partition { mode: old.mode, ..new.clone() } == *old)
    };
    let strict = after.iter().any(|new| new.strict && !is_known(new));
    match affected.first() {
        Some(first) if strict => {
            Err(Refusal::Displaces { first: first.to_string(), more: affected.len() - 1 })
        }
        _ => Ok(affected),
    }
}

/// The group beside ours whose exclusive CPUs the kernel would not let us have.
fn conflicting(kernel: &dyn Kernel, base: &Base, taken: &CpuSet) -> Option<Group> {
    let mut groups = groups(kernel, base).into_iter();
    groups.find(|group| is_beside(group, base) && group.exclusive.intersects(taken))
}

fn exclusive_elsewhere(group: &Group, taken: &CpuSet) -> Refusal {
    let exclusive = if group.exclusive.is_empty() { &group.cpus } else { &group.exclusive };
    Refusal::ExclusiveElsewhere {
        group: printable(&group.path.to_string_lossy()),
        cpus: exclusive.intersection(taken),
    }
}

/// The same refusal with the name of the group that isolates the CPUs, where one is found.
pub(crate) fn name_isolator(kernel: &dyn Kernel, facts: &Facts, refusal: Refusal) -> Refusal {
    let (Refusal::ForeignIsolated { cpus }, Some(base)) = (&refusal, Base::of(facts)) else {
        return refusal;
    };
    let has_them = |group: &Group| {
        let own = if group.exclusive.is_empty() { &group.cpus } else { &group.exclusive };
        group.is_partition && own.intersects(cpus)
    };
    // The innermost: the groups around it pass the CPUs on.
    let found = groups(kernel, &base).into_iter().rev().find(has_them);
    found.map_or(refusal.clone(), |group| exclusive_elsewhere(&group, cpus))
}

/// The reason of a step that failed, with the group that is in the way where the kernel only says
/// EINVAL: it lets no group have exclusive CPUs that are all CPUs of another group beside it.
pub(crate) fn explain(kernel: &dyn Kernel, base: &Base, step: &Step, cause: &Error) -> String {
    let why = step.why.clone();
    let Action::Set { knob, to, .. } = &step.action else { return why };
    let wanted: CpuSet = to.parse().unwrap_or_default();
    if cause.kind() != ErrorKind::Invalid || !knob.path.ends_with("cpuset.cpus.exclusive") {
        return why;
    }
    let beside = knob
        .path
        .parent()
        .and_then(Path::parent)
        .and_then(|dir| Some(Path::new("/").join(dir.strip_prefix(&base.mount).ok()?)));
    let in_the_way = |group: &Group| {
        group.path.parent() == beside.as_deref()
            && !base.in_tree().starts_with(&group.path)
            && ((!group.cpus.is_empty() && group.cpus.is_subset(&wanted))
                || group.exclusive.intersects(&wanted))
    };
    match groups(kernel, base).into_iter().find(in_the_way) {
        Some(group) => format!(
            "{why}; group {} beside it asks for CPU {}: give it other CPUs first",
            printable(&group.path.to_string_lossy()),
            group.cpus.union(&group.exclusive)
        ),
        None => why,
    }
}

/// Would the scope of one of these processes be empty without them? systemd ends an empty scope.
/// Errors: `EmptiesScope`.
pub(crate) fn keep_scopes<'a>(
    kernel: &dyn Kernel,
    facts: &Facts,
    leaving: impl Iterator<Item = &'a Task> + Clone,
) -> Result<(), Refusal> {
    let Some(mount) = facts.cgroups.mount.as_ref().filter(|_| facts.systemd) else {
        return Ok(());
    };
    let all: BTreeSet<i32> = leaving.clone().map(|task| task.process).collect();
    let mut seen = BTreeSet::new();
    for task in leaving {
        let is_scope = |path: &&Path| path.to_string_lossy().ends_with(".scope");
        let Some(scope) = task.group.ancestors().find(is_scope) else { continue };
        if !seen.insert(scope) {
            continue;
        }
        let mut processes = Vec::new();
        processes_in(kernel, &mount.join(scope.strip_prefix("/").unwrap_or(scope)), &mut processes);
        if processes.iter().all(|pid| all.contains(pid)) {
            return Err(Refusal::EmptiesScope {
                tid: task.id.tid,
                command: printable(&task.command),
                scope: printable(&scope.to_string_lossy()),
            });
        }
    }
    Ok(())
}

fn processes_in(kernel: &dyn Kernel, group: &Path, found: &mut Vec<i32>) {
    let Ok(text) = kernel.text(&group.join("cgroup.procs")) else { return };
    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for name in kernel.list_directories(group).unwrap_or_default() {
        processes_in(kernel, &group.join(name), found);
    }
}

/// Users may name their groups and tasks as they like.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
