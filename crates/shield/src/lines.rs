// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt lines that come and go beside partitions. Their numbers are used again: what is known
//! of a number holds only as long as it is the line of one device. A line that comes starts where
//! `default_smp_affinity` says, which partitions narrow, so it would have started where that said
//! before.

use crate::partition::{Original, Refusal, State};
use asmp_host::irq::{self, Irq};
use asmp_host::{CpuSet, Facts, Kernel, counters, knob, topology};
use std::collections::BTreeMap;

/// Compares the machine's lines with those of the state, and notes them. Adds CPUs that came online
/// to originals where the driver has added them to the line. Forgets what was known of a number
/// that another device has now. Gives a line that came and is still where it started an original.
pub(crate) fn follow(kernel: &dyn Kernel, facts: &Facts, state: &mut State) {
    let named = |irq: &Irq| (irq.number, irq::identity(kernel, irq));
    let now: BTreeMap<u32, String> = facts.irqs.iter().map(named).collect();
    for irq in &facts.irqs {
        let knob = knob::irq_affinity(irq.number);
        if let Some(original) = state.originals.get_mut(&knob.path) {
            original.widen(&knob, &irq.affinity);
        }
    }
    // A state of an earlier asmp knows no lines.
    let is_known = !state.lines.is_empty() && !state.owes_nothing();
    for irq in facts.irqs.iter().filter(|_| is_known) {
        let (known, now) = (state.lines.get(&irq.number), &now[&irq.number]);
        if known == Some(now) {
            continue;
        }
        let replaced = known.is_some();
        let knob = knob::irq_affinity(irq.number);
        if replaced {
            state.originals.remove(&knob.path);
            state.refused.remove(&knob.path);
            state.partitions.iter_mut().for_each(|owner| owner.irqs.retain(|n| *n != irq.number));
        }
        let started = started(facts, state).filter(|(now, _)| *now == irq.affinity);
        if let Some((_, before)) = started {
            let original = Original::of(&knob, before.to_string(), &facts.cpus);
            state.originals.entry(knob.path).or_insert(original);
        }
    }
    state.lines = now;
}

/// A refusal of a line that is not there, with what has its name: a row that each CPU has for
/// itself (`LOC`), or a device, with its lines.
pub(crate) fn name_what_it_is(kernel: &dyn Kernel, facts: &Facts, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Declared { partition, cause } => {
            let cause = Box::new(name_what_it_is(kernel, facts, *cause));
            Refusal::Declared { partition, cause }
        }
        Refusal::UnknownIrq { name, .. } if counters::is_of_each_cpu(kernel, &name) => {
            Refusal::PerCpuIrq { irq: name }
        }
        Refusal::UnknownIrq { name, .. } => {
            let lines = topology::lines_of_device(kernel, &name);
            let lines = facts.irqs.iter().filter(|irq| lines.contains(&irq.number) && !irq.per_cpu);
            let lines: Vec<String> = lines.map(Irq::label).collect();
            let hint = match lines.is_empty() {
                true => String::new(),
                false => format!("; device {name} uses IRQ {}", lines.join(", ")),
            };
            Refusal::UnknownIrq { name, hint }
        }
        other => other,
    }
}

/// Where lines start now, and where they did before the first partition; `None` where that is the
/// same.
fn started(facts: &Facts, state: &State) -> Option<(CpuSet, CpuSet)> {
    let knob = knob::default_irq_affinity();
    let before = &state.originals.get(&knob.path)?.text;
    Some((knob.cpus(facts.setting(&knob)?).ok()?, knob.cpus(before).ok()?))
}
