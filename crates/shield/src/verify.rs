// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading everything back: is each partition what it was promised to be, and if not, what violates
//! it?
//!
//! Only the promise itself is remembered from the time a partition was made. Every claim is read
//! from the kernel now. What the kernel refuses to move or to show is listed apart (`stays`).

use crate::grant::Grant;
use crate::guard;
use crate::left;
use crate::mend;
use crate::mode::Mode;
use crate::neighbours::{self, Affected};
use crate::orphans;
use crate::partition::{BoostedThread, Partition, Smt, State, Tick, shielded};
use crate::plan::Base;
use crate::rules;
use crate::target::{Due, Lines, Target, due, not_back, reading, targets};
use asmp_host::irq::Irq;
use asmp_host::sharing;
use asmp_host::task::{self, Task};
use asmp_host::{Cpu, CpuSet, ErrorKind, Facts, Kernel, Knob, Result, Shape, cgroup, irq, knob};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod intruders;

use intruders::{intruders, pinned};

/// Version of the layout of [`Status`] in JSON.
pub const STATUS_SCHEMA: u32 = 1;

/// The machine's partitions as the kernel has them now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    pub schema: u32,
    pub kernel: String,
    pub system_cpus: CpuSet,
    /// The CPUs that the system's device interrupts were asked to keep to.
    pub irq_home: Option<CpuSet>,
    /// A change was interrupted and is not undone yet. The next change (or `asmp restore`) undoes
    /// it.
    pub interrupted: bool,
    /// There is a journal, which only root may read: a change is under way or was interrupted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub journal_unreadable: bool,
    /// A change is under way: what is said here may be half of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changing: bool,
    pub partitions: Vec<PartitionStatus>,
    /// Groups that asmp made and whose state is lost.
    pub orphans: Vec<PathBuf>,
    /// CPUs that `isolcpus=` isolated at boot and that belong to no partition of ours.
    #[serde(skip_serializing_if = "CpuSet::is_empty")]
    pub boot_isolated_cpus: CpuSet,
    /// Those that `cpuset.cpus.isolated` lacks: Linux 6.12 forgets them when their partition ends.
    #[serde(skip_serializing_if = "CpuSet::is_empty")]
    pub boot_isolated_uncounted: CpuSet,
    /// Other isolated CPUs that belong to no partition of ours.
    pub foreign_isolated_cpus: CpuSet,
    /// What no partition needs changed any more and is not given back yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Finding>,
    /// Groups of others that ask for CPUs of the partitions. (A task's own affinity cannot be seen
    /// while a partition overrides it.)
    pub affected: Vec<Affected>,
}

impl Status {
    /// Is every promise kept?
    pub fn holds(&self) -> bool {
        !self.interrupted
            && self.left.is_empty()
            && !self.journal_unreadable
            && !self.changing
            && self.orphans.is_empty()
            && self.partitions.iter().all(|partition| partition.violations.is_empty())
    }
}

/// One partition as it really is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartitionStatus {
    pub name: String,
    pub cpus: CpuSet,
    pub idle_cpus: CpuSet,
    /// Who may use its CPUs.
    pub mode: Mode,
    /// Of a shared partition: what the scheduler counted, on all shared CPUs, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<(String, u64)>,
    /// Of a shared partition: could this user see whether the scheduler guards it?
    pub guarantee_checked: Option<bool>,
    /// No violation was found.
    pub shielded: bool,
    /// The text of the kernel's partition file.
    pub kernel_says: String,
    pub created_s: u64,
    pub created_by: String,
    /// What its user was granted, where that is not root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<Grant>,
    /// Of a partition made by `asmp run`: is that process still there?
    pub owner_alive: Option<bool>,
    pub irqs: Vec<u32>,
    pub tasks: Vec<TaskStatus>,
    /// Groups that tasks inside or other programs made in it; they go with the partition.
    pub sub_groups: Vec<PathBuf>,
    pub tick: TickStatus,
    /// What breaks the promise, each with cause and cure.
    pub violations: Vec<Finding>,
    /// What the kernel keeps on these CPUs and no setting moves.
    pub stays: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskStatus {
    pub tid: i32,
    pub process: i32,
    pub command: String,
    pub allowed_cpus: CpuSet,
    /// `fifo:80`, as chrt says; `None` where it ended meanwhile.
    pub policy: Option<String>,
}

/// What this boot allows of the tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum TickStatus {
    /// It was not asked to stop.
    Kept,
    /// It stops while one task runs; `asmp noise` counts it.
    CanStop,
    /// These CPUs were not candidates at boot.
    CannotStop { cpus: CpuSet },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub what: String,
    pub cure: String,
}

pub(crate) fn finding(what: impl Into<String>, cure: impl Into<String>) -> Finding {
    Finding { what: what.into(), cure: cure.into() }
}

/// Reads the machine and holds it against what was promised.
pub fn verify(
    kernel: &dyn Kernel,
    facts: &Facts,
    base: &Base,
    state: &State,
    interrupted: bool,
) -> Result<Status> {
    let all = shielded(&state.partitions);
    let tasks = match state.partitions.as_slice() {
        [] => Vec::new(),
        partitions => guard::tasks(kernel, partitions)?,
    };
    let lines = Lines::of(facts);
    let targets = targets(facts, &state.partitions, &state.system(), &state.originals);
    let mut left = left(facts, state, &lines, &targets);
    left.extend(base_stays(kernel, base, state));
    let not_back = not_back(facts, &state.partitions, &state.originals, &targets);
    let unmet = unmet(kernel, facts, targets.into_iter().chain(not_back).collect(), &lines);
    let partitions = state
        .partitions
        .iter()
        .map(|partition| verify_one(kernel, facts, base, state, partition, &tasks, &unmet))
        .collect();
    let known = facts.cgroups.isolated.as_ref();
    let isolated = known.cloned().unwrap_or_default();
    let boot_isolated = facts.cpus.boot_isolated.difference(&all);
    let uncounted = known.map_or(CpuSet::new(), |known| boot_isolated.difference(known));
    Ok(Status {
        schema: STATUS_SCHEMA,
        kernel: facts.release.clone(),
        system_cpus: facts.cpus.online.difference(&all.union(&isolated).union(&boot_isolated)),
        irq_home: state.irq_home.clone(),
        interrupted,
        journal_unreadable: false,
        changing: false,
        partitions,
        // Those of an interrupted change are known to its journal.
        orphans: match interrupted {
            true => Vec::new(),
            false => orphans::groups(kernel, base, state),
        },
        boot_isolated_uncounted: uncounted,
        boot_isolated_cpus: boot_isolated,
        // An interrupted change may have isolated them.
        foreign_isolated_cpus: match interrupted {
            true => CpuSet::new(),
            false => isolated.difference(&all).difference(&facts.cpus.boot_isolated),
        },
        left,
        affected: {
            let taken = guard::exclusive(&state.partitions);
            neighbours::affected_groups(kernel, facts, base, &taken)
        },
    })
}

/// The group of our partitions, or its service, without a partition. One that waits for a CPU is
/// named with the controller that it holds.
fn base_stays(kernel: &dyn Kernel, base: &Base, state: &State) -> Option<Finding> {
    if !state.keeps_base || !state.returning.is_empty() || !left::has_base(kernel, base) {
        return None;
    }
    let dir = base.dir().display();
    Some(match orphans::made_by_others(kernel, base) {
        Some(other) => finding(
            format!("{dir} stays: another program made {}", other.display()),
            "remove that first, then `asmp restore`",
        ),
        None => finding(format!("{dir} stays, and no partition is left"), "`asmp restore`"),
    })
}

/// Originals that wait to be given back, and those that are lost.
fn left(
    facts: &Facts,
    state: &State,
    lines: &Lines,
    targets: &BTreeMap<Knob, Target>,
) -> Vec<Finding> {
    let held = (state.keeps_base && !state.returning.is_empty()).then(|| {
        let offline = state.returning.difference(&facts.cpus.online);
        match offline.is_empty() {
            true => finding(left::HELD, "`asmp restore` or `asmp repair` takes it away now"),
            false => finding(
                format!("{}: CPU {offline} is offline", left::HELD),
                format!("bring CPU {offline} online, then `asmp repair`"),
            ),
        }
    });
    let knobs = state.originals.iter().filter_map(|(path, original)| {
        let knob = Knob::new(path.clone(), original.shape);
        let due = match original.shape {
            // A switch of the cgroup tree goes with the last partition, or later.
            Shape::Toggle if state.partitions.is_empty() && held.is_none() => Due::Now,
            Shape::Toggle => Due::Needed,
            _ => due(facts, lines, targets, &state.partitions, (&knob, &original.text)),
        };
        let text = &original.text;
        let has = |text: &str| facts.setting(&knob).is_some_and(|now| knob.holds(now, text));
        let what = format!("{}: {text:?} is not given back", path.display());
        match due {
            Due::Needed | Due::Gone => None,
            // Noted because the kernel may change it by itself, which it has not done.
            Due::Now if !state.partitions.is_empty() && has(text) => None,
            Due::Now => Some(finding(what, "`asmp restore` or `asmp repair` tries again")),
            Due::Offline(cpu) => Some(finding(
                format!("{what}: CPU {cpu} is offline"),
                format!("bring CPU {cpu} online, then `asmp repair`"),
            )),
        }
    });
    let masks = state.masks.iter().filter(|_| state.partitions.is_empty()).map(|mask| {
        finding(
            format!("task {}: CPU {} is not given back", mask.task.tid, mask.cpus),
            "`asmp restore` or `asmp repair` tries again",
        )
    });
    let policies = state.policies_left.iter().map(|thread| {
        let BoostedThread { task, command, before, .. } = thread;
        finding(
            format!("task {} ({command}): policy {before} is not given back", task.tid),
            "`asmp restore` or `asmp repair` tries again",
        )
    });
    let mut left: Vec<Finding> = knobs.chain(masks).chain(policies).chain(held.clone()).collect();
    // Giving up what is lost would give up what waits too.
    let cure = match left.is_empty() {
        true => "check it, then `asmp restore --abandon`",
        false => "check it; once all else is given back, `asmp restore --abandon`",
    };
    left.extend(state.lost.iter().map(|found| {
        let what = format!("{found}: what it was before is not known (/run/asmp was lost)");
        finding(what, cure)
    }));
    left
}

fn verify_one(
    kernel: &dyn Kernel,
    facts: &Facts,
    base: &Base,
    state: &State,
    partition: &Partition,
    tasks: &[Task],
    unmet: &[Unmet],
) -> PartitionStatus {
    let groups = base.groups(&partition.name);
    let mut violations = Vec::new();
    let mut stays = Vec::new();

    let name = &partition.name;
    // A CPU that is offline is a finding of its own.
    let online = |cpus: &CpuSet| cpus.intersection(&facts.cpus.online);
    let cpus = online(&partition.cpus);
    let kernel_says = has_cpus(kernel, name, (&groups.rt, partition.mode), &cpus, &mut violations);
    let lost = guard::unguarded(kernel, facts, partition);
    violations.extend(lost.map(|(what, cure)| finding(what, cure)));
    let guarantee_checked = (partition.mode == Mode::Shared).then_some(!facts.sharing.is_hidden);
    if guarantee_checked == Some(false) {
        let what = format!("{}: this user may not read it: not checked", sharing::CPUS);
        stays.push(finding(what, "look as root"));
    }
    if !partition.idle_cpus.is_empty() {
        let cpus = online(&partition.idle_cpus);
        let idle = (groups.idle.as_path(), Mode::Isolated);
        has_cpus(kernel, name, idle, &cpus, &mut violations);
    }
    let (others, refused) = mend::held_back(kernel, base, state, partition);
    violations.extend(others);
    stays.extend(refused);
    if !base.is_held(kernel) {
        violations.push(finding(
            "asmp-holder.service was stopped: systemd removes the partition after its last task"
                .to_owned(),
            format!("`asmp repair {name}`"),
        ));
    }
    let offline = partition.shielded().difference(&facts.cpus.online);
    if !offline.is_empty() {
        violations.push(finding(
            format!("CPU {offline} is offline"),
            format!("bring it up, or `asmp resize {} --cpus …` without it", partition.name),
        ));
    }
    if partition.smt == Smt::Idle {
        let awake =
            rules::siblings(facts, &partition.cpus).difference(&shielded(&state.partitions));
        if !awake.is_empty() {
            violations.push(finding(
                format!(
                    "CPU {awake} shares a core with it, came online and runs the system's tasks"
                ),
                format!("`asmp resize {} --cpus {}` keeps it idle", partition.name, partition.cpus),
            ));
        }
    }
    settings(kernel, state, partition, unmet, &mut violations, &mut stays);
    stays.extend(unread(facts, state, partition));
    violations.extend(on_idle_cpus(kernel, &groups.idle, &partition.name));
    intruders(kernel, partition, base, tasks, &mut violations, &mut stays);
    if partition.mode == Mode::Shared {
        violations.extend(pinned(partition, base, tasks, &facts.sharing.guarded));
    }
    let owner_alive = partition.owner.map(|owner| !task::has_ended(kernel, owner));
    if owner_alive == Some(false) {
        violations.push(finding(
            "the `asmp run` or `measure` that made it was killed before it could clean up",
            format!("`asmp destroy {}` once its tasks may leave", partition.name),
        ));
    }
    PartitionStatus {
        name: partition.name.clone(),
        cpus: partition.cpus.clone(),
        idle_cpus: partition.idle_cpus.clone(),
        mode: partition.mode,
        shared: match partition.mode {
            Mode::Shared => sharing::counts(kernel).unwrap_or_default(),
            _ => Vec::new(),
        },
        guarantee_checked,
        shielded: violations.is_empty(),
        kernel_says,
        created_s: partition.created_s,
        created_by: partition.created_by.clone(),
        granted: partition.granted.clone(),
        owner_alive,
        irqs: partition.irqs.clone(),
        tasks: tasks_inside(kernel, &groups.rt),
        sub_groups: cgroup::groups_below(kernel, &groups.domain)
            .into_iter()
            .filter(|group| ![&groups.rt, &groups.rest, &groups.idle].contains(&group))
            .collect(),
        tick: tick(facts, partition),
        violations,
        stays,
    }
}

/// The partition file and the CPUs it really has; `cpus` are those online.
fn has_cpus(
    kernel: &dyn Kernel,
    name: &str,
    (group, mode): (&Path, Mode),
    cpus: &CpuSet,
    violations: &mut Vec<Finding>,
) -> String {
    let knob = knob::partition_type(group);
    let recreate = format!("another program changed the group: `asmp repair {name}`");
    let says = match knob.read(kernel) {
        Ok(says) => says,
        Err(error) => {
            violations.push(finding(format!("its group cannot be read: {error}"), recreate));
            return "missing".to_owned();
        }
    };
    let must_say = if mode.is_isolated() { "isolated" } else { "member" };
    if says.trim() != must_say {
        let what = format!("{}: the kernel says {says:?}", knob.path.display());
        violations.push(finding(what, recreate.clone()));
    }
    let effective = kernel.text(&group.join("cpuset.cpus.effective")).unwrap_or_default();
    match effective.parse::<CpuSet>() {
        Ok(effective) if effective == *cpus => {}
        // The kernel gives a group without CPUs those of its parent, and the file above says so.
        Ok(_) if cpus.is_empty() => {}
        _ => violations
            .push(finding(format!("it has CPU {effective:?} instead of {cpus}"), recreate)),
    }
    says
}

/// A setting that does not meet its target.
struct Unmet<'a> {
    knob: Knob,
    target: Target,
    now: &'a str,
    /// The line whose affinity it is.
    irq: Option<&'a Irq>,
    /// The one CPU that it is a setting of.
    cpu: Option<Cpu>,
    /// This user may not read it: nothing is known of it.
    is_hidden: bool,
}

/// Every setting of the machine that does not meet its target, found once for all partitions.
fn unmet<'a>(
    kernel: &dyn Kernel,
    facts: &'a Facts,
    targets: BTreeMap<Knob, Target>,
    lines: &Lines<'a>,
) -> Vec<Unmet<'a>> {
    let mut unmet: Vec<Unmet> = targets
        .into_iter()
        .filter_map(|(knob, target)| {
            let now = reading(facts, lines, &knob);
            let is_hidden = !facts.root
                && now.is_none()
                && knob.read(kernel).is_err_and(|error| error.kind() == ErrorKind::NotPermitted);
            let now = now.unwrap_or_default();
            if target.is_met(lines, &knob, now) {
                return None;
            }
            let irq = lines.steered_by(&knob);
            Some(Unmet { knob, target, now, irq, cpu: None, is_hidden })
        })
        .collect();
    if !unmet.is_empty() {
        let of_cpus: BTreeMap<Knob, Cpu> = facts
            .cpus
            .online
            .iter()
            .flat_map(|cpu| knob::of_cpu(cpu).into_iter().map(move |k| (k, cpu)))
            .collect();
        unmet.iter_mut().for_each(|unmet| unmet.cpu = of_cpus.get(&unmet.knob).copied());
    }
    unmet
}

/// Settings of this partition that are not what they must be.
fn settings(
    kernel: &dyn Kernel,
    state: &State,
    partition: &Partition,
    unmet: &[Unmet],
    violations: &mut Vec<Finding>,
    stays: &mut Vec<Finding>,
) {
    let shielded = partition.shielded();
    for Unmet { knob, target, now, irq, cpu, is_hidden } in unmet {
        if cpu.is_some_and(|cpu| !shielded.contains(cpu)) {
            continue;
        }
        if *is_hidden {
            let what = format!("{}: this user may not read it: not checked", knob.path.display());
            stays.push(finding(what, "look as root"));
            continue;
        }
        // A setting of CPUs concerns this partition only where it names its CPUs.
        let elsewhere = || match irq {
            Some(irq) => !irq.affinity.intersects(&shielded),
            None => knob.cpus(now).is_ok_and(|named| !named.intersects(&shielded)),
        };
        if target.away_from.is_some() && elsewhere() {
            continue;
        }
        // Another partition's line concerns this one where it is sent here.
        let is_other = |irq: &&Irq| !partition.irqs.contains(&irq.number);
        if target.away_from.is_none()
            && irq.filter(is_other).is_some_and(|irq| !irq.affinity.intersects(&shielded))
        {
            continue;
        }
        match (state.refused.get(&knob.path), irq) {
            (Some(reason), Some(irq)) => match irq::effective(kernel, irq.number) {
                // The line may be sent here by its mask, but the hardware sends it elsewhere.
                Some(effective) if !effective.intersects(&shielded) => {}
                _ => stays.push(finding(
                    format!("IRQ {}: {reason}", irq.label()),
                    "it fires only for work that this CPU submits: use fewer queues, or \
                     irqaffinity= at boot",
                )),
            },
            (Some(reason), None) => {
                stays.push(finding(format!("{}: {reason}", knob.path.display()), ""))
            }
            (None, _) => violations.push(finding(
                format!(
                    "{}: is {now:?}, must be {:?}: {}",
                    knob.path.display(),
                    target.wanted,
                    target.why
                ),
                format!("something set it back: `asmp repair {}`", partition.name),
            )),
        }
    }
}

/// Deadline servers that were switched off and cannot be read now. Other users than root never can.
fn unread(facts: &Facts, state: &State, partition: &Partition) -> Option<Finding> {
    let online = partition.shielded().intersection(&facts.cpus.online);
    let unread = |path: &&PathBuf| {
        path.starts_with("/sys/kernel/debug") && !facts.settings.contains_key(*path)
    };
    let paths = state.originals.keys().filter(unread);
    let cpus = CpuSet::from_iter(paths.filter_map(|path| knob::cpu_of(path)));
    let cpus = cpus.intersection(&online);
    (facts.root && !cpus.is_empty()).then(|| {
        let what = format!("the deadline servers of CPU {cpus} cannot be read: not checked");
        finding(what, "mount -t debugfs none /sys/kernel/debug, where no lockdown closes it")
    })
}

/// Threads in the group of CPUs that must be idle.
fn on_idle_cpus(kernel: &dyn Kernel, group: &Path, name: &str) -> Vec<Finding> {
    let named = |TaskStatus { tid, command, .. }| {
        let cure = format!("another program moved it: `asmp remove {name} --tid {tid}`");
        finding(format!("task {tid} ({command}) is on CPUs that must be idle"), cure)
    };
    tasks_inside(kernel, group).into_iter().map(named).collect()
}

fn tasks_inside(kernel: &dyn Kernel, group: &Path) -> Vec<TaskStatus> {
    cgroup::threads_below(kernel, group)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|tid| task::read(kernel, tid).ok())
        .map(|task| TaskStatus {
            policy: kernel.schedule(task.id.tid).ok().map(|schedule| schedule.to_string()),
            tid: task.id.tid,
            process: task.process,
            command: task.command,
            allowed_cpus: task.allowed_cpus,
        })
        .collect()
}

fn tick(facts: &Facts, partition: &Partition) -> TickStatus {
    let ticking = partition.cpus.difference(&facts.cpus.nohz_full);
    match (partition.tick, ticking.is_empty()) {
        (Tick::Keep, _) => TickStatus::Kept,
        (_, true) => TickStatus::CanStop,
        (_, false) => TickStatus::CannotStop { cpus: ticking },
    }
}
