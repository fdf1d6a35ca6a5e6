// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every setting of the machine must be while a given set of partitions is in force.
//!
//! A setting's target is a function of its original text and of *all* partitions, never of the
//! order in which they came. So create, resize and destroy are one operation: move every setting
//! from its target under the old partitions to its target under the new ones. Destroying the last
//! partition restores each original to the byte, and `verify` can ask at any time whether a setting
//! still meets its target.
//!
//! Large machines have 512 CPUs and 2,000 IRQ lines: everything here is one pass over CPUs and
//! lines.

use crate::partition::{Aspect, Original, Partition, System, shielded};
use asmp_host::irq::Irq;
use asmp_host::tracefs::timerlat;
use asmp_host::{Cpu, CpuSet, Facts, Knob, knob};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// What one setting must be, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The text to write.
    pub wanted: String,
    /// The setting may name any CPUs but these; `None`: it must be exactly `wanted`. Targets share
    /// the set.
    pub away_from: Option<Arc<CpuSet>>,
    pub why: String,
}

impl Target {
    fn exactly(wanted: impl Into<String>, why: impl Into<String>) -> Self {
        Self { wanted: wanted.into(), away_from: None, why: why.into() }
    }

    /// Does a reading of `knob` satisfy this target?
    pub fn is_met_by(&self, knob: &Knob, reading: &str) -> bool {
        match &self.away_from {
            None => knob.holds(reading, &self.wanted),
            Some(shielded) => knob.cpus(reading).is_ok_and(|cpus| !cpus.intersects(shielded)),
        }
    }

    /// The same for a knob of `lines`, whose CPUs are known without parsing the reading again.
    pub fn is_met(&self, lines: &Lines, knob: &Knob, reading: &str) -> bool {
        match (&self.away_from, lines.steered_by(knob)) {
            (Some(shielded), Some(line)) => !line.affinity.intersects(shielded),
            _ => self.is_met_by(knob, reading),
        }
    }
}

/// The IRQ lines of a machine by number, so that finding the line of a knob needs no scan.
pub struct Lines<'a>(BTreeMap<u32, &'a Irq>);

impl<'a> Lines<'a> {
    pub fn of(facts: &'a Facts) -> Self {
        Self(facts.irqs.iter().map(|irq| (irq.number, irq)).collect())
    }

    /// The line whose affinity `knob` sets; `None` for every other knob.
    pub fn steered_by(&self, knob: &Knob) -> Option<&'a Irq> {
        self.0.get(&knob::irq_of(&knob.path)?).copied()
    }
}

/// The text of a setting in `facts`, an IRQ line's affinity included; `None` where this machine
/// lacks it.
pub fn reading<'a>(facts: &'a Facts, lines: &Lines<'a>, knob: &Knob) -> Option<&'a str> {
    match lines.steered_by(knob) {
        Some(irq) => Some(&irq.affinity_text),
        None => facts.setting(knob),
    }
}

/// What becomes of an original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// A partition, or a setting of the system, still needs another value.
    Needed,
    /// It can be written back.
    Now,
    /// Its CPU is offline: it waits.
    Offline(Cpu),
    /// Its file is gone for good.
    Gone,
}

/// What becomes of the original `text` of `knob` where `wanted` are the targets under the
/// partitions `after`. A file that cannot be read now is no reason to give its original up.
pub(crate) fn due(
    facts: &Facts,
    lines: &Lines,
    wanted: &BTreeMap<Knob, Target>,
    after: &[Partition],
    (knob, text): (&Knob, &str),
) -> Due {
    if wanted.contains_key(knob) {
        return Due::Needed;
    }
    if let Some(irq) = knob::irq_of(&knob.path) {
        // The kernel takes no mask that names offline CPUs alone.
        let offline = knob.cpus(text).ok().filter(|cpus| !cpus.intersects(&facts.cpus.online));
        return match (lines.0.contains_key(&irq), offline.and_then(|cpus| cpus.iter().next())) {
            (false, _) => Due::Gone,
            (true, Some(cpu)) => Due::Offline(cpu),
            (true, None) => Due::Now,
        };
    }
    if let Some(other) = shares_governor(facts, knob) {
        return match wanted.contains_key(&knob::frequency_governor(other)) {
            true => Due::Needed,
            // The other's original says the same of both.
            false => Due::Gone,
        };
    }
    let unread = facts.setting(knob).is_none();
    match knob::cpu_of(&knob.path) {
        Some(cpu) if !facts.cpus.possible.contains(cpu) => Due::Gone,
        Some(cpu) if unread && after.iter().any(|one| one.shielded().contains(cpu)) => Due::Needed,
        // Even where the file is there: the kernel keeps no account of such a CPU's servers.
        Some(cpu) if !facts.cpus.online.contains(cpu) => Due::Offline(cpu),
        None if unread && !after.is_empty() => Due::Needed,
        _ => Due::Now,
    }
}

/// An online CPU with whose governor that of this offline one goes; `None` where there is none, and
/// for all other settings.
fn shares_governor(facts: &Facts, knob: &Knob) -> Option<Cpu> {
    let cpu = knob::cpu_of(&knob.path).filter(|cpu| !facts.cpus.online.contains(*cpu))?;
    let mut sharing = facts.cpus.governor_of.iter().filter(|(_, all)| all.contains(cpu));
    sharing.find(|_| *knob == knob::frequency_governor(cpu)).map(|(other, _)| *other)
}

/// The targets of every setting that `partitions` and the settings of the system outside them need
/// changed on this machine.
pub fn targets(
    facts: &Facts,
    partitions: &[Partition],
    system_settings: &System,
    originals: &BTreeMap<PathBuf, Original>,
) -> BTreeMap<Knob, Target> {
    let all = shielded(partitions);
    let system = facts.cpus.online.difference(&all);
    let mut targets = BTreeMap::new();
    for (knob, text) in system_settings.timerlat.iter().flat_map(timerlat::Settings::wanted) {
        let why = "timerlat measures with this setting (one value for all CPUs)";
        targets.insert(knob, Target::exactly(text, why));
    }
    // Device interrupts of the system may be asked to keep to a part of it.
    let home = system_settings.irq_home.as_ref().map(|home| home.intersection(&system));
    let home = home.filter(|home| !home.is_empty());
    if all.is_empty() && home.is_none() {
        return targets;
    }
    let mut irqs = match &home {
        Some(home) => Away::new(facts.cpus.possible.difference(home), home),
        None => Away::new(wanting(partitions, Aspect::Irqs), &system),
    };
    let original = |knob: &Knob| originals.get(&knob.path).map(|original| original.text.as_str());

    let why = "new interrupt lines start on system CPUs";
    // The mask of lines to come has another shape than a line's own list: its texts are kept apart.
    let mut later = Away::new(CpuSet::clone(&irqs.cpus), irqs.home);
    let mut work = Away::new(wanting(partitions, Aspect::Workqueues), &system);
    let mut watchdog = Away::new(wanting(partitions, Aspect::Watchdog), &system);
    let machine = [
        (knob::default_irq_affinity(), &mut later, why),
        (knob::workqueue_cpus(), &mut work, "unbound kernel work stays on system CPUs"),
        (knob::watchdog_cpus(), &mut watchdog, "the lockup watchdogs do not run on shielded CPUs"),
    ];
    for (knob, away, why) in machine {
        let Some(now) = facts.setting(&knob) else { continue };
        let is_work = knob == knob::workqueue_cpus();
        let asked = facts.work_asked.as_deref().filter(|_| is_work).unwrap_or(now);
        let original = original(&knob).unwrap_or(asked);
        if let Some(target) = away.target(&knob, original, || why.to_owned()) {
            targets.insert(knob, target);
        }
    }

    let originals_of_lines: BTreeMap<u32, &str> = originals
        .iter()
        .filter_map(|(path, original)| Some((knob::irq_of(path)?, original.text.as_str())))
        .collect();
    let mut known: HashMap<&str, bool> = HashMap::new();
    let mut can_take = |knob: &Knob, text| {
        let is_online =
            |text| knob.cpus(text).is_ok_and(|cpus| cpus.intersects(&facts.cpus.online));
        *known.entry(text).or_insert_with(|| is_online(text))
    };
    let owners = owners(partitions);
    for irq in facts.irqs.iter().filter(|irq| !irq.per_cpu) {
        let knob = knob::irq_affinity(irq.number);
        let target = match owners.get(&irq.number) {
            Some(owner) if owner.cpus.intersects(&facts.cpus.online) => Some(Target::exactly(
                owner.cpus.to_string(),
                format!("IRQ {} belongs to partition {}", irq.label(), owner.name),
            )),
            // It waits for a CPU of its partition.
            _ => {
                let now = irq.affinity_text.as_str();
                let original = originals_of_lines.get(&irq.number).copied().unwrap_or(now);
                let why = || stays_on_system_cpus(irq);
                match irqs.target(&knob, original, why) {
                    // It cannot go back to offline CPUs now: where it is counts.
                    None if !can_take(&knob, original) => irqs.target(&knob, now, why),
                    target => target,
                }
            }
        };
        if let Some(target) = target {
            targets.insert(knob, target);
        }
    }

    let machine_checks = knob::machine_check_interval();
    if !wanting(partitions, Aspect::MachineChecks).is_empty()
        && facts.setting(&machine_checks).is_some()
    {
        let why = "stop the timers that poll for corrected machine checks (one value for all CPUs)";
        targets.insert(machine_checks, Target::exactly("0", why));
    }

    let migration = knob::timer_migration();
    if wanting(partitions, Aspect::Timers).intersects(&facts.cpus.nohz_full)
        && facts.setting(&migration).is_some()
    {
        let why = "timers of a nohz_full CPU expire on that CPU, not on a system CPU (one value \
                   for all CPUs)";
        targets.insert(migration, Target::exactly("0", why));
    }
    of_each_cpu(facts, partitions, &mut targets);
    targets
}

/// The partition that each line belongs to.
fn owners(partitions: &[Partition]) -> BTreeMap<u32, &Partition> {
    let owners = partitions.iter().rev();
    owners.flat_map(|owner| owner.irqs.iter().map(move |irq| (*irq, owner))).collect()
}

fn stays_on_system_cpus(irq: &Irq) -> String {
    format!("IRQ {} stays on system CPUs", irq.label())
}

/// Lines on shielded CPUs that have no target in `targets`: their original is elsewhere and was not
/// given back yet.
pub(crate) fn not_back(
    facts: &Facts,
    partitions: &[Partition],
    originals: &BTreeMap<PathBuf, Original>,
    targets: &BTreeMap<Knob, Target>,
) -> BTreeMap<Knob, Target> {
    let shielded = Arc::new(wanting(partitions, Aspect::Irqs));
    let lines = facts.irqs.iter().filter(|irq| !irq.per_cpu && irq.affinity.intersects(&shielded));
    lines
        .filter_map(|irq| {
            let knob = knob::irq_affinity(irq.number);
            let original = originals.get(&knob.path).filter(|_| !targets.contains_key(&knob))?;
            let target = Target {
                wanted: original.text.clone(),
                away_from: Some(Arc::clone(&shielded)),
                why: format!(
                    "IRQ {} goes back there; where the kernel refuses that, write a list of system \
                     CPUs",
                    irq.label()
                ),
            };
            Some((knob, target))
        })
        .collect()
}

/// The CPUs of the partitions that want this step of the plan.
fn wanting(partitions: &[Partition], aspect: Aspect) -> CpuSet {
    let wanting = partitions.iter().filter(|partition| !partition.without.contains(&aspect));
    wanting.flat_map(|partition| partition.shielded().iter().collect::<Vec<_>>()).collect()
}

/// The settings that every shielded CPU has for itself.
fn of_each_cpu(facts: &Facts, partitions: &[Partition], targets: &mut BTreeMap<Knob, Target>) {
    let no_server = "fair tasks take no time from real-time tasks";
    let no_ext_server = "sched_ext tasks take no time from real-time tasks";
    for cpu in wanting(partitions, Aspect::DlServer).iter() {
        exactly(facts, targets, cpu, knob::deadline_server_runtime("fair", cpu), "0", no_server);
        exactly(facts, targets, cpu, knob::deadline_server_runtime("ext", cpu), "0", no_ext_server);
    }
    // A governor that CPUs share (ARM clusters) has a file for each: all say and set the same.
    let governed = wanting(partitions, Aspect::Governor);
    let sharing = governed.iter().filter_map(|cpu| facts.cpus.governor_of.get(&cpu));
    let shared = sharing.fold(governed.clone(), |all, cpus| all.union(cpus));
    for cpu in shared.iter() {
        let why = match governed.contains(cpu) {
            true => "the CPU frequency does not drop",
            false => "it shares the frequency governor of a shielded CPU",
        };
        exactly(facts, targets, cpu, knob::frequency_governor(cpu), "performance", why);
    }
    for cpu in wanting(partitions, Aspect::IdleStates).iter() {
        let knob = knob::resume_latency(cpu);
        exactly(facts, targets, cpu, knob, "n/a", "no idle state that takes time to leave");
    }
}

fn exactly(
    facts: &Facts,
    targets: &mut BTreeMap<Knob, Target>,
    cpu: Cpu,
    knob: Knob,
    wanted: &str,
    why: &str,
) {
    if facts.setting(&knob).is_some() {
        targets.insert(knob, Target::exactly(wanted, format!("CPU {cpu}: {why}")));
    }
}

/// Keeps settings of one shape away from `cpus`. Many IRQ lines have the same text, and a set of
/// 512 CPUs takes a while to parse: what was found for a text is kept.
struct Away<'a> {
    cpus: Arc<CpuSet>,
    /// Where a setting goes that names no CPU but `cpus`.
    home: &'a CpuSet,
    /// By original text: the text to write; `None` where the original names none of `cpus`.
    known: HashMap<String, Option<String>>,
}

impl<'a> Away<'a> {
    fn new(cpus: CpuSet, home: &'a CpuSet) -> Self {
        Self { cpus: Arc::new(cpus), home, known: HashMap::new() }
    }

    /// `None` where the original names no shielded CPU: then the setting stays as it is.
    fn target(
        &mut self,
        knob: &Knob,
        original: &str,
        why: impl FnOnce() -> String,
    ) -> Option<Target> {
        if !self.known.contains_key(original) {
            let wanted = self.wanted(knob, original);
            self.known.insert(original.to_owned(), wanted);
        }
        let wanted = self.known.get(original)?.clone()?;
        Some(Target { wanted, away_from: Some(Arc::clone(&self.cpus)), why: why() })
    }

    fn wanted(&self, knob: &Knob, original: &str) -> Option<String> {
        let cpus = knob.cpus(original).ok().filter(|cpus| cpus.intersects(&self.cpus))?;
        let rest = cpus.difference(&self.cpus);
        // A line bound to shielded CPUs alone goes to the whole system partition.
        Some(knob.spell(if rest.intersects(self.home) { &rest } else { self.home }))
    }
}
