// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps in the cgroup tree: the base, and the groups of partitions that open, change and close.
//!
//! Partitions that give up CPUs come before those that take them.

use super::{Action, Base, Step, named, step, verified, write};
use crate::guard::{self, exclusive};
use crate::mode::Mode;
use crate::partition::{Partition, State, shielded};
use asmp_host::{CpuSet, Facts, knob};
use std::path::{Path, PathBuf};

/// Everything in the cgroup tree but the end of the base.
pub(super) fn groups(
    base: &Base,
    before: &[Partition],
    after: &[Partition],
    facts: &Facts,
    steps: &mut Vec<Step>,
) {
    let (was, will_be) = (exclusive(before), exclusive(after));
    if before.is_empty() && !after.is_empty() {
        open_base(facts, base, steps);
    }
    // CPUs change in the old mode, and the mode after that.
    let mode_of = |new: &Partition| before.iter().find(|old| old.name == new.name);
    let between: Vec<Partition> = after
        .iter()
        .map(|new| Partition { mode: mode_of(new).map_or(new.mode, |old| old.mode), ..new.clone() })
        .collect();
    let widest = was.union(&will_be).union(&exclusive(&between));
    if widest != was {
        for ancestor in &base.ancestors {
            steps.push(write(
                knob::exclusive_cpus(ancestor),
                Some(was.to_string()),
                widest.to_string(),
                "a partition gets only CPUs that each group above it lists",
            ));
        }
    }
    let ends = |old: &&Partition| !after.iter().any(|new| new.name == old.name);
    // All tasks leave first: from 7.0 on closing one partition waits for the kworkers of all CPUs.
    for old in before.iter().filter(ends) {
        evacuate(base, old, steps);
    }
    for old in before.iter().filter(ends) {
        close_partition(base, old, steps);
    }
    let resized: Vec<(&Partition, &Partition)> = after
        .iter()
        .filter_map(|new| before.iter().find(|old| old.name == new.name).map(|old| (old, new)))
        .filter(|(old, new)| old.cpus != new.cpus || old.idle_cpus != new.idle_cpus)
        .collect();
    // CPUs first, with the old mode.
    let resized: Vec<(&Partition, Partition)> = resized
        .into_iter()
        .map(|(old, new)| (old, Partition { mode: old.mode, ..new.clone() }))
        .collect();
    exchange_cpus(base, &resized, steps);
    for new in after {
        let old = before.iter().find(|old| old.name == new.name);
        if let Some(old) = old.filter(|old| old.mode.is_isolated() != new.mode.is_isolated()) {
            change_mode(base, new, old.mode, steps);
        }
    }
    for new in after.iter().filter(|new| !before.iter().any(|old| old.name == new.name)) {
        open_partition(base, new, steps);
    }
    if will_be != widest {
        for ancestor in base.ancestors.iter().rev() {
            let knob = knob::exclusive_cpus(ancestor);
            let why = "this group lists only the CPUs of partitions";
            steps.push(named(write(knob, Some(widest.to_string()), will_be.to_string(), why)));
        }
    }
}

/// While a CPU of an ended partition is offline, the kernel would give every task below a group
/// that loses the cpuset controller the CPUs that are online, for good. The file of the root's
/// controllers then, and those CPUs.
pub(super) fn held(
    facts: &Facts,
    base: &Base,
    state: &State,
    after: &[Partition],
) -> (Option<PathBuf>, CpuSet) {
    let ended = shielded(&state.partitions).union(&state.returning).difference(&shielded(after));
    let returning = ended.difference(&facts.cpus.online);
    let is_open = state.keeps_base || !state.partitions.is_empty();
    let holds = after.is_empty() && is_open && !returning.is_empty();
    (holds.then(|| knob::controllers_of_children(&base.mount).path), returning)
}

fn open_base(facts: &Facts, base: &Base, steps: &mut Vec<Step>) {
    if base.delegated {
        steps.push(step(
            Action::Delegate { on: true },
            "systemd does not change the groups below a delegated service",
        ));
    } else {
        let enabled = facts.cgroups.controllers_of_children.join(" ");
        steps.push(Step {
            keeps_original: true,
            ..write(
                knob::controllers_of_children(&base.mount),
                Some(enabled),
                "+cpuset",
                "enable CPU lists (cpuset) for groups below the root",
            )
        });
        for group in &base.ancestors {
            let action = Action::MakeGroup { path: group.clone(), threaded: false };
            steps.push(step(action, "create the group that holds the partitions"));
        }
    }
    steps.push(write(
        knob::controllers_of_children(base.dir()),
        None,
        "+cpuset",
        "enable CPU lists (cpuset) for the partitions",
    ));
}

pub(super) fn close_base(facts: &Facts, base: &Base, state: &State, steps: &mut Vec<Step>) {
    let controllers = knob::controllers_of_children(base.dir());
    steps.push(named(write(controllers, None, "-cpuset", "no partition is left")));
    if base.delegated {
        steps.push(step(Action::Delegate { on: false }, "no partition is left"));
        return;
    }
    for group in base.ancestors.iter().rev() {
        let action = Action::RemoveGroup { path: group.clone(), threaded: false };
        steps.push(step(action, "no partition is left"));
    }
    close_root(facts, base, state, steps);
}

/// The cpuset controller of the root as it was.
pub(super) fn close_root(facts: &Facts, base: &Base, state: &State, steps: &mut Vec<Step>) {
    let root = knob::controllers_of_children(&base.mount);
    if let Some(original) = state.originals.get(&root.path) {
        let back = root.inverse(&original.text, "+cpuset");
        // Switching the controller off would take the CPU lists of groups that are not ours.
        let others = facts.cgroups.cpuset_users.iter().any(|group| !base.ancestors.contains(group));
        if back == "-cpuset" && !others {
            steps.push(named(write(root, None, back, "as it was before")));
        }
    }
}

fn open_partition(base: &Base, partition: &Partition, steps: &mut Vec<Step>) {
    let groups = base.groups(&partition.name);
    let make = |path: &Path, threaded| Action::MakeGroup { path: path.to_owned(), threaded };
    steps.push(step(make(&groups.domain, false), format!("create partition {}", partition.name)));
    steps.push(step(make(&groups.rt, true), "create the group of its tasks"));
    steps.push(step(
        make(&groups.rest, true),
        "create the group of threads that stay outside while others of their process are inside",
    ));
    if !partition.idle_cpus.is_empty() {
        steps.push(step(
            make(&groups.idle, true),
            "create the group that keeps the SMT siblings idle",
        ));
    }
    steps.push(write(
        knob::controllers_of_children(&groups.domain),
        None,
        "+cpuset",
        "enable CPU lists (cpuset) for its groups",
    ));
    steps.push(write(
        knob::exclusive_cpus(&groups.domain),
        None,
        partition.exclusive().to_string(),
        "the groups below get only CPUs that this group lists",
    ));
    take_cpus(&groups.rt, partition.mode, &partition.cpus, steps);
    if !partition.idle_cpus.is_empty() {
        isolate(&groups.idle, &partition.idle_cpus, steps);
    }
}

/// The CPUs of a partition's tasks.
fn take_cpus(group: &Path, mode: Mode, cpus: &CpuSet, steps: &mut Vec<Step>) {
    match mode.is_isolated() {
        true => isolate(group, cpus, steps),
        false => ask(group, &CpuSet::new(), cpus, steps),
    }
}

fn give_cpus(group: &Path, mode: Mode, cpus: &CpuSet, steps: &mut Vec<Step>) {
    match mode.is_isolated() {
        true => integrate(group, cpus, steps),
        false => ask(group, cpus, &CpuSet::new(), steps),
    }
}

/// Its tasks run on these CPUs, and others may, too.
fn ask(group: &Path, from: &CpuSet, to: &CpuSet, steps: &mut Vec<Step>) {
    let why = match to.is_empty() {
        true => "the group asks for no CPUs any more".to_owned(),
        false => format!("tasks of the partition run on CPU {to}, which others share"),
    };
    let knob = knob::requested_cpus(group);
    let step = write(knob, Some(from.to_string()), to.to_string(), why);
    steps.push(if to.is_empty() { named(step) } else { step });
}

/// The tasks inside stay, and always have these CPUs.
fn change_mode(base: &Base, new: &Partition, was: Mode, steps: &mut Vec<Step>) {
    let groups = base.groups(&new.name);
    let domain = |from: &CpuSet, to: &CpuSet| {
        let why = "the groups below get only CPUs that this group lists";
        write(knob::exclusive_cpus(&groups.domain), Some(from.to_string()), to.to_string(), why)
    };
    let (all, idle) = (new.shielded(), &new.idle_cpus);
    match new.mode.is_isolated() {
        true => {
            steps.push(domain(idle, &all));
            isolate(&groups.rt, &new.cpus, steps);
            give_cpus(&groups.rt, was, &new.cpus, steps);
        }
        false => {
            take_cpus(&groups.rt, new.mode, &new.cpus, steps);
            integrate(&groups.rt, &new.cpus, steps);
            steps.push(named(domain(&all, idle)));
        }
    }
}

fn isolate(group: &Path, cpus: &CpuSet, steps: &mut Vec<Step>) {
    steps.push(write(
        knob::exclusive_cpus(group),
        None,
        cpus.to_string(),
        "no other group may use these CPUs",
    ));
    steps.push(write(
        knob::partition_type(group),
        Some("member".to_owned()),
        "isolated",
        format!("the kernel moves all other tasks, timers and unbound kernel work off CPU {cpus}"),
    ));
}

fn integrate(group: &Path, cpus: &CpuSet, steps: &mut Vec<Step>) {
    let why = format!("return CPU {cpus} to the system");
    let member = write(knob::partition_type(group), Some("isolated".to_owned()), "member", why);
    let none = write(
        knob::exclusive_cpus(group),
        Some(cpus.to_string()),
        "",
        "release its exclusive CPUs",
    );
    steps.extend([member, none].map(named));
}

fn evacuate(base: &Base, partition: &Partition, steps: &mut Vec<Step>) {
    let groups = base.groups(&partition.name);
    // Root's programs are not stopped: epoll_wait(2), for one, fails with EINTR after it.
    if partition.granted.is_some() {
        let freeze = knob::freeze(&groups.domain);
        let why = "a user's tasks start no others while they leave";
        steps.push(named(write(freeze, None, "1", why)));
    }
    let (partition, placed) = (partition.name.clone(), partition.tasks.clone());
    let action = Action::Evacuate { partition, placed, groups };
    steps.push(step(action, "move its tasks back to where they came from"));
}

fn close_partition(base: &Base, partition: &Partition, steps: &mut Vec<Step>) {
    let groups = base.groups(&partition.name);
    let remove = |path: &Path, threaded| Action::RemoveGroup { path: path.to_owned(), threaded };
    if !partition.idle_cpus.is_empty() {
        integrate(&groups.idle, &partition.idle_cpus, steps);
    }
    give_cpus(&groups.rt, partition.mode, &partition.cpus, steps);
    steps.push(named(write(
        knob::exclusive_cpus(&groups.domain),
        Some(partition.exclusive().to_string()),
        "",
        "release its exclusive CPUs",
    )));
    let controllers = knob::controllers_of_children(&groups.domain);
    steps.push(named(write(controllers, None, "-cpuset", "remove the partition")));
    if !partition.idle_cpus.is_empty() {
        steps.push(step(remove(&groups.idle, true), "remove the partition"));
    }
    steps.push(step(remove(&groups.rest, true), "remove the partition"));
    steps.push(step(remove(&groups.rt, true), "remove the partition"));
    steps.push(step(remove(&groups.domain, false), "remove the partition"));
}

/// Writes all that holds `partitions` in the cgroup tree again. `all`: every partition. Steps whose
/// result is there already change nothing.
pub(super) fn again(
    base: &Base,
    all: &[Partition],
    partitions: &[Partition],
    steps: &mut Vec<Step>,
) {
    if partitions.is_empty() {
        return;
    }
    let why = "the partitions need it, and another program changed it";
    let mut wanted = Vec::new();
    let set = |knob, to: &str| write(knob, None, to, why);
    let make =
        |path: &Path, threaded| step(Action::MakeGroup { path: path.to_owned(), threaded }, why);
    if base.delegated {
        wanted.push(step(Action::Delegate { on: true }, why));
    } else {
        wanted.push(set(knob::controllers_of_children(&base.mount), "+cpuset"));
        wanted.extend(base.ancestors.iter().map(|group| make(group, false)));
    }
    wanted.push(set(knob::controllers_of_children(base.dir()), "+cpuset"));
    let all = exclusive(all).to_string();
    wanted.extend(base.ancestors.iter().map(|group| set(knob::exclusive_cpus(group), &all)));
    wanted.extend(base.ancestors.iter().map(|group| set(knob::freeze(group), "0")));
    for partition in partitions {
        let groups = base.groups(&partition.name);
        let is_isolated = partition.mode.is_isolated();
        let mut isolated = Vec::new();
        if is_isolated {
            isolated.push((&groups.rt, &partition.cpus));
        }
        if !partition.idle_cpus.is_empty() {
            isolated.push((&groups.idle, &partition.idle_cpus));
        }
        wanted.push(make(&groups.domain, false));
        wanted.push(make(&groups.rt, true));
        if !partition.idle_cpus.is_empty() {
            wanted.push(make(&groups.idle, true));
        }
        wanted.push(make(&groups.rest, true));
        wanted.push(set(knob::controllers_of_children(&groups.domain), "+cpuset"));
        let exclusive = partition.exclusive().to_string();
        wanted.push(set(knob::exclusive_cpus(&groups.domain), &exclusive));
        let asked = if is_isolated { String::new() } else { partition.cpus.to_string() };
        for (group, cpus) in
            [(&groups.domain, ""), (&groups.rt, asked.as_str()), (&groups.rest, "")]
        {
            wanted.push(set(knob::requested_cpus(group), cpus));
            wanted.push(set(knob::freeze(group), "0"));
        }
        if !is_isolated {
            wanted.push(set(knob::partition_type(&groups.rt), "member"));
            wanted.push(set(knob::exclusive_cpus(&groups.rt), ""));
        }
        for (group, cpus) in isolated {
            wanted.push(set(knob::exclusive_cpus(group), &cpus.to_string()));
            // Written again, an invalid partition is looked at again by the kernel.
            wanted.push(set(knob::partition_type(group), "isolated"));
        }
    }
    steps.extend(wanted.into_iter().map(verified));
}

/// Gives these partitions their new CPUs, each only once no other has them. A partition that keeps
/// none of its CPUs changes them in one step and is never without. Only where partitions pass all
/// their CPUs on in a ring, one of them is without for a moment.
fn exchange_cpus(base: &Base, resized: &[(&Partition, Partition)], steps: &mut Vec<Step>) {
    let mut now: Vec<Partition> = resized.iter().map(|(old, new)| give_up(old, new)).collect();
    for ((old, _), between) in resized.iter().zip(&now) {
        // One that keeps its CPUs till later may have none that is online: it cannot be confirmed.
        resize_partition(base, old, between, old.cpus != between.cpus, steps);
    }
    let mut waiting: Vec<usize> = (0..resized.len()).collect();
    while let Some(first) = waiting.first().copied() {
        let blocks = |one: usize| {
            let wanted = resized[one].1.shielded();
            let mut others = waiting.iter().copied().filter(|other| *other != one);
            others.find(|other| now[*other].shielded().intersects(&wanted))
        };
        if let Some(at) = waiting.iter().position(|one| blocks(*one).is_none()) {
            let one = waiting.remove(at);
            resize_partition(base, &now[one], &resized[one].1, true, steps);
            now[one] = resized[one].1.clone();
        } else if let Some(other) = blocks(first) {
            let (cpus, idle_cpus) = (CpuSet::new(), CpuSet::new());
            let without = Partition { cpus, idle_cpus, ..now[other].clone() };
            resize_partition(base, &now[other], &without, true, steps);
            now[other] = without;
        }
    }
}

/// What `old` keeps until the others have given up what it takes: CPUs that it still has
/// afterwards, or all of them if there is none.
fn give_up(old: &Partition, new: &Partition) -> Partition {
    let kept = old.cpus.intersection(&new.cpus);
    let cpus = if kept.is_empty() { old.cpus.clone() } else { kept };
    let idle_cpus =
        if old.idle_cpus == new.idle_cpus { old.idle_cpus.clone() } else { CpuSet::new() };
    Partition { cpus, idle_cpus, ..old.clone() }
}

fn resize_partition(
    base: &Base,
    old: &Partition,
    new: &Partition,
    confirm: bool,
    steps: &mut Vec<Step>,
) {
    if old.cpus == new.cpus && old.idle_cpus == new.idle_cpus {
        return;
    }
    let groups = base.groups(&new.name);
    let why = format!("resize partition {}", new.name);
    let widest = old.exclusive().union(&new.exclusive());
    let set = |group: &Path, from: &CpuSet, to: &CpuSet, steps: &mut Vec<Step>| {
        if from != to {
            let knob = knob::exclusive_cpus(group);
            steps.push(write(knob, Some(from.to_string()), to.to_string(), why.clone()));
        }
    };
    set(&groups.domain, &old.exclusive(), &widest, steps);
    if !old.idle_cpus.is_empty() && old.idle_cpus != new.idle_cpus {
        integrate(&groups.idle, &old.idle_cpus, steps);
        let action = Action::RemoveGroup { path: groups.idle.clone(), threaded: true };
        steps.push(step(action, "the partition gets other SMT siblings"));
    }
    match (old.cpus.is_empty(), new.cpus.is_empty()) {
        _ if !new.mode.is_isolated() => {
            if old.cpus != new.cpus {
                ask(&groups.rt, &old.cpus, &new.cpus, steps);
            }
        }
        // Partitions exchange all their CPUs: for a moment the tasks are on system CPUs.
        (_, true) => integrate(&groups.rt, &old.cpus, steps),
        (true, false) => isolate(&groups.rt, &new.cpus, steps),
        (false, false) => {
            set(&groups.rt, &old.cpus, &new.cpus, steps);
            // Written again only where the kernel took the CPUs but not the partition.
            let kind = knob::partition_type(&groups.rt);
            let why = "confirm the partition after the change of CPUs";
            steps.extend(confirm.then(|| write(kind, None, "isolated", why)));
        }
    }
    if !new.idle_cpus.is_empty() && old.idle_cpus != new.idle_cpus {
        let action = Action::MakeGroup { path: groups.idle.clone(), threaded: true };
        steps.push(step(action, "create the group that keeps the SMT siblings idle"));
        isolate(&groups.idle, &new.idle_cpus, steps);
    }
    set(&groups.domain, &widest, &new.exclusive(), steps);
}

/// Before the groups change: CPUs that are shared with a guarantee from now on, or still are, are
/// guarded. After that: these alone.
pub(super) fn guard(
    facts: &Facts,
    before: &[Partition],
    after: &[Partition],
) -> (Option<Step>, Option<Step>) {
    let (was, will_be) = (guard::guarded(before), guard::guarded(after));
    let both = was.union(&will_be);
    let share = |cpus: &CpuSet, from: &CpuSet, why: String| {
        let old = Some(from.to_string());
        Step { old, ..step(Action::Share { cpus: cpus.clone() }, why) }
    };
    let guards = || format!("the kernel takes tasks off CPU {will_be} that enter it there");
    let ends = || match will_be.is_empty() {
        true => "no partition is shared: the kernel's own scheduler has all tasks".to_owned(),
        false => "only CPUs of shared partitions are guarded".to_owned(),
    };
    let first = (!will_be.is_empty()).then(|| share(&both, &was, guards()));
    // Also what is guarded now and belongs to no partition: a state was lost, or asmp was killed.
    let now = both.union(&facts.sharing.guarded);
    let last = (now != will_be).then(|| named(share(&will_be, &both, ends())));
    (first, last)
}
