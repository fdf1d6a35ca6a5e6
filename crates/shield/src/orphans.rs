// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups that have asmp's mark and that no state knows: /run/asmp was lost, or its state cannot be
//! read. They can be removed. What the settings of the machine were before is not known any more.

use crate::mode::Mode;
use crate::partition::{Partition, Smt, State, System, Tick, shielded};
use crate::plan::Base;
use crate::target::{Lines, reading, targets};
use asmp_host::systemd::HOLDER;
use asmp_host::task::{self, Member};
use asmp_host::{CpuSet, Facts, Kernel, Knob, cgroup, knob};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The groups of partitions that no state knows, and the group above them where there is nothing
/// else in it.
pub fn groups(kernel: &dyn Kernel, base: &Base, state: &State) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = kernel
        .list(base.dir())
        .unwrap_or_default()
        .iter()
        .filter(|name| !state.partitions.iter().any(|known| known.name == **name))
        .map(|name| base.dir().join(name))
        .filter(|group| kernel.exists(&group.join("cgroup.procs")) && kernel.is_marked(group))
        .collect();
    if found.is_empty() && is_empty_base(kernel, base, state) {
        found.push(base.dir().to_owned());
    }
    found
}

/// Is the group of our partitions there without any?
pub fn is_empty_base(kernel: &dyn Kernel, base: &Base, state: &State) -> bool {
    let is_known = state.keeps_base || !state.partitions.is_empty();
    !is_known && kernel.is_marked(base.dir()) && foreign(kernel, base).is_none()
}

/// A group that is no partition's in the group of our partitions. Call where no partition is left.
pub fn foreign(kernel: &dyn Kernel, base: &Base) -> Option<PathBuf> {
    let holder = base.dir().join(HOLDER);
    let others = cgroup::groups_below(kernel, base.dir());
    others.into_iter().find(|group| !base.delegated || *group != holder)
}

/// A group that another program made right in the group of our partitions, where that is ours.
pub fn made_by_others(kernel: &dyn Kernel, base: &Base) -> Option<PathBuf> {
    if !base.delegated && !kernel.is_marked(base.dir()) {
        return None;
    }
    let names = kernel.list(base.dir()).unwrap_or_default();
    let mut groups = names.iter().map(|name| base.dir().join(name));
    groups.find(|group| {
        let is_holder = base.delegated && group.ends_with(HOLDER);
        let is_group = kernel.exists(&group.join("cgroup.procs"));
        is_group && !is_holder && !kernel.is_marked(group)
    })
}

/// The partitions of these groups, as far as the kernel tells. All their tasks go to the root
/// group.
pub fn partitions(kernel: &dyn Kernel, base: &Base, groups: &[PathBuf]) -> Vec<Partition> {
    let inside = groups.iter().filter(|group| base.is_inside(group));
    inside.map(|group| partition(kernel, base, group)).collect()
}

fn partition(kernel: &dyn Kernel, base: &Base, group: &Path) -> Partition {
    let name = group.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let groups = base.groups(&name);
    let known = unknown(name);
    let cpus_of = |group: &Path| -> CpuSet {
        let text = knob::exclusive_cpus(group).read(kernel).unwrap_or_default();
        text.parse().unwrap_or_default()
    };
    let threads = cgroup::threads_below(kernel, group).unwrap_or_default();
    let processes: BTreeSet<i32> =
        threads.iter().filter_map(|tid| Some(task::read(kernel, *tid).ok()?.process)).collect();
    let member = |process: i32| {
        let task = task::read(kernel, process).ok()?;
        Some(Member {
            task: task.id,
            command: task.command,
            process: None,
            alone: false,
            from: PathBuf::from("/"),
            apart: Vec::new(),
            entered: None,
            real_time: Vec::new(),
            policy: None,
        })
    };
    let asks = knob::requested_cpus(&groups.rt).read(kernel).unwrap_or_default();
    let asks: CpuSet = asks.trim().parse().unwrap_or_default();
    let exclusive = cpus_of(&groups.rt);
    // Only the group of a shared partition asks for CPUs instead of taking them.
    let (cpus, mode) = match exclusive.is_empty() && !asks.is_empty() {
        true => (asks, Mode::BestEffort),
        false => (exclusive, Mode::Isolated),
    };
    Partition {
        cpus,
        mode,
        idle_cpus: cpus_of(&groups.idle),
        tasks: processes.into_iter().filter_map(member).collect(),
        ..known
    }
}

/// A partition of which only the name is known.
fn unknown(name: String) -> Partition {
    Partition {
        name,
        cpus: CpuSet::new(),
        idle_cpus: CpuSet::new(),
        smt: Smt::default(),
        mode: Mode::default(),
        tick: Tick::Keep,
        strict: false,
        without: Vec::new(),
        irqs: Vec::new(),
        irq_priority: None,
        served: Vec::new(),
        tasks: Vec::new(),
        created_s: 0,
        created_by: String::new(),
        granted: None,
        owner: None,
    }
}

/// Where not even the groups of partitions are left: what has the value that a partition of some
/// CPU needs, and not its usual one.
fn unusual(kernel: &dyn Kernel, facts: &Facts, base: &Base) -> Vec<String> {
    let lines = Lines::of(facts);
    let mut found = BTreeSet::new();
    let mut note = |knob: &Knob, now: &str| {
        if let Some(usual) = usual(knob, facts).filter(|usual| !knob.holds(now, usual)) {
            found.insert(format!("{} is {now} (usual: {usual})", knob.path.display()));
        }
    };
    for cpu in facts.cpus.possible.iter() {
        let one = Partition { cpus: CpuSet::from_iter([cpu]), ..unknown(String::new()) };
        for (knob, target) in targets(facts, &[one], &System::default(), &BTreeMap::new()) {
            let now = reading(facts, &lines, &knob).unwrap_or_default();
            if target.away_from.is_none() && target.is_met_by(&knob, now) {
                note(&knob, now);
            }
        }
    }
    for knob in [knob::default_irq_affinity(), knob::workqueue_cpus(), knob::watchdog_cpus()] {
        facts.setting(&knob).into_iter().for_each(|now| note(&knob, now));
    }
    let mut all: Vec<String> = found.into_iter().collect();
    all.extend(requested_work(kernel, facts));
    all.push("lines in /proc/irq/*/smp_affinity_list may have named more CPUs".to_owned());
    if facts.preempt_rt {
        all.push("policies of the kernel threads ktimers/N may have been others".to_owned());
    }
    all.push(lost_controllers(base));
    all
}

fn lost_controllers(base: &Base) -> String {
    let controllers = knob::controllers_of_children(&base.mount);
    format!("{} may have had no cpuset", controllers.path.display())
}

/// Settings that have the value which such partitions need: they may have had another before.
pub fn suspects(
    kernel: &dyn Kernel,
    facts: &Facts,
    base: &Base,
    found: &[Partition],
) -> Vec<String> {
    if found.is_empty() {
        return unusual(kernel, facts, base);
    }
    let all = shielded(found);
    let lines = Lines::of(facts);
    let mut suspects = Vec::new();
    let is_now = |knob: &Knob, now: &str| {
        let usual = usual(knob, facts);
        let usual = usual.map_or(String::new(), |text| format!(" (usual: {text})"));
        format!("{} is {now}{usual}", knob.path.display())
    };
    for (knob, target) in targets(facts, found, &System::default(), &BTreeMap::new()) {
        let now = reading(facts, &lines, &knob).unwrap_or_default();
        if target.away_from.is_none() && target.is_met_by(&knob, now) {
            suspects.push(is_now(&knob, now));
        }
    }
    for knob in [knob::default_irq_affinity(), knob::workqueue_cpus(), knob::watchdog_cpus()] {
        let Some(now) = facts.setting(&knob) else { continue };
        if knob.cpus(now).is_ok_and(|cpus| !cpus.intersects(&all)) {
            suspects.push(is_now(&knob, now));
        }
    }
    suspects.extend(requested_work(kernel, facts));
    let away = facts.irqs.iter().filter(|irq| !irq.affinity.intersects(&all)).count();
    if away > 0 {
        suspects.push(format!(
            "{away} of {} lines in /proc/irq/*/smp_affinity_list do not name CPU {all}",
            facts.irqs.len()
        ));
    }
    if facts.preempt_rt && !all.is_empty() {
        suspects.push(format!("policies of the kernel threads ktimers/N of CPU {all}"));
    }
    suspects.push(lost_controllers(base));
    suspects
}

/// What a write has asked for unbound work to keep to, where that is not what the kernel asks for
/// at boot. It stays so after the partitions, and the reading of [`knob::workqueue_cpus`] may hide
/// it: the kernel takes isolated CPUs away from that by itself.
fn requested_work(kernel: &dyn Kernel, facts: &Facts) -> Option<String> {
    let (knob, path) = (knob::workqueue_cpus(), Path::new(knob::WORKQUEUE_REQUESTED));
    let (asked, usual) = (kernel.text(path).ok()?, usual(&knob, facts)?);
    let words = format!("{} is {asked} (usual: {usual}, written to cpumask)", path.display());
    (!knob.holds(&asked, &usual)).then_some(words)
}

fn usual(knob: &Knob, facts: &Facts) -> Option<String> {
    let kept_free = facts.cpus.boot_isolated.union(&facts.cpus.nohz_full);
    knob::usual(knob, &facts.cpus.possible, &kept_free)
}
