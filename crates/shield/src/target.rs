//! What every setting of the machine must be while a given set of partitions is in force.
//!
//! A setting's target is a function of its original text and of *all* partitions, never of the order in
//! which they came. So creating, resizing and destroying are one thing (go from the targets of before to
//! those of after), the last partition to go leaves each original to the byte, and anybody can ask at any
//! time whether the machine still holds what was promised.

use crate::partition::{Aspect, Original, Partition, shielded};
use asmp_host::{CpuSet, Facts, Knob, knob};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What one setting must be, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The text to write.
    pub wanted: String,
    /// Any reading that names none of these CPUs will do: others may move the setting elsewhere.
    pub away_from: Option<CpuSet>,
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
}

/// The targets of every setting that `partitions` need changed on this machine.
pub fn targets(
    facts: &Facts,
    partitions: &[Partition],
    irq_home: Option<&CpuSet>,
    originals: &BTreeMap<PathBuf, Original>,
) -> BTreeMap<Knob, Target> {
    let all = shielded(partitions);
    let mut targets = BTreeMap::new();
    let system = facts.cpus.online.difference(&all);
    // The CPUs of the partitions that want this step.
    let shielded = |aspect: Aspect| -> CpuSet {
        let wanting = partitions.iter().filter(|partition| !partition.without.contains(&aspect));
        wanting.fold(CpuSet::new(), |all, partition| all.union(&partition.shielded()))
    };
    // Device interrupts of the system may be asked to keep to a part of it.
    let home = irq_home.map(|home| home.intersection(&system)).filter(|home| !home.is_empty());
    let (irq_home, no_irqs) = match &home {
        Some(home) => (home.clone(), facts.cpus.online.difference(home)),
        None => (system.clone(), shielded(Aspect::Irqs)),
    };
    if all.is_empty() && home.is_none() {
        return targets;
    }
    let base = |knob: &Knob, now: &str| -> String {
        originals.get(&knob.path).map_or_else(|| now.to_owned(), |original| original.text.clone())
    };

    // Sets of CPUs that must not name a shielded one.
    let (no_work, no_watchdog) = (shielded(Aspect::Workqueues), shielded(Aspect::Watchdog));
    let machine = [
        (
            knob::default_irq_affinity(),
            &no_irqs,
            &irq_home,
            "interrupt lines set up later start on system CPUs",
        ),
        (knob::workqueue_cpus(), &no_work, &system, "unbound kernel work stays on system CPUs"),
        (knob::watchdog_cpus(), &no_watchdog, &system, "the lockup watchdogs leave shielded CPUs alone"),
    ];
    for (knob, away_from, home, why) in machine {
        let Some(now) = facts.setting(&knob) else { continue };
        if let Some(target) = keep_away(&knob, &base(&knob, now), away_from, home, why) {
            targets.insert(knob, target);
        }
    }

    for irq in &facts.irqs {
        let knob = knob::irq_affinity(irq.number);
        let owner = partitions.iter().find(|partition| partition.irqs.contains(&irq.number));
        let target = match owner {
            Some(owner) => Some(Target::exactly(
                owner.cpus.to_string(),
                format!("IRQ {} belongs to {}", irq.label(), owner.name),
            )),
            None => keep_away(
                &knob,
                &base(&knob, &irq.affinity_text),
                &no_irqs,
                &irq_home,
                &format!("IRQ {} stays on system CPUs", irq.label()),
            ),
        };
        if let Some(target) = target {
            targets.insert(knob, target);
        }
    }

    let machine_checks = knob::machine_check_interval();
    if !shielded(Aspect::MachineChecks).is_empty() && facts.setting(&machine_checks).is_some() {
        let why = "no timer polls for corrected machine checks (one value for all CPUs)";
        targets.insert(machine_checks, Target::exactly("0", why));
    }

    let migration = knob::timer_migration();
    if shielded(Aspect::Timers).intersects(&facts.cpus.nohz_full) && facts.setting(&migration).is_some() {
        let why = "a nohz_full CPU's timers expire on it, not on a system CPU (one value for all CPUs)";
        targets.insert(migration, Target::exactly("0", why));
    }

    for cpu in all.iter() {
        let settings = [
            (
                Aspect::DlServer,
                knob::deadline_server_runtime("fair", cpu),
                "0",
                "no time is taken from real-time tasks for fair ones",
            ),
            (
                Aspect::DlServer,
                knob::deadline_server_runtime("ext", cpu),
                "0",
                "no time is taken from real-time tasks for sched_ext ones",
            ),
            (Aspect::Governor, knob::frequency_governor(cpu), "performance", "the clock does not slow down"),
            (Aspect::IdleStates, knob::resume_latency(cpu), "n/a", "no idle state that takes time to leave"),
        ];
        for (aspect, knob, wanted, why) in settings {
            if shielded(aspect).contains(cpu) && facts.setting(&knob).is_some() {
                targets.insert(knob, Target::exactly(wanted, format!("CPU {cpu}: {why}")));
            }
        }
    }
    targets
}

/// `None` where the original names no shielded CPU: then it is nobody's business of ours.
fn keep_away(knob: &Knob, original: &str, shielded: &CpuSet, system: &CpuSet, why: &str) -> Option<Target> {
    let cpus = knob.cpus(original).ok()?;
    if !cpus.intersects(shielded) {
        return None;
    }
    let rest = cpus.difference(shielded);
    // A line bound to shielded CPUs alone goes to the whole system partition.
    let rest = if rest.intersects(system) { rest } else { system.clone() };
    Some(Target { wanted: knob.spell(&rest), away_from: Some(shielded.clone()), why: why.to_owned() })
}
