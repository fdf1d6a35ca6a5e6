// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said of a choice: why these CPUs, why not the next best, and why there is none.

use super::{Cost, Ground, Need, Table, Worth};
use crate::partition::{Refusal, Smt, Tick};
use asmp_host::{Cpu, CpuSet};
use std::collections::BTreeSet;

impl Ground {
    pub(super) fn too_few(&self, table: &Table, need: &Need) -> Refusal {
        let fits = |size: &usize| !table.fit(*size).is_empty();
        let below = (1..need.count.min(table.0.len())).rev().find(fits);
        let above = (need.count..table.0.len()).find(fits);
        let count = need.count;
        match above {
            Some(above) => {
                let either = below.map_or(String::new(), |below| format!("{below} or "));
                let cores = self.cores();
                let threads: BTreeSet<usize> = cores.iter().map(CpuSet::len).collect();
                let threads: Vec<String> = threads.iter().map(usize::to_string).collect();
                let threads = threads.join(" or ");
                Refusal::UnevenCores { count, threads, instead: format!("{either}{above}") }
            }
            None => {
                let most = below.unwrap_or(0);
                // Without a CPU for the system there would be enough.
                let last = table.0.get(count).is_some_and(|both| !both[0].0.is_empty());
                let cause = if last { None } else { self.in_the_way(need, most) };
                let idle = if last && self.smt == Smt::Idle && self.has_siblings() {
                    "; SMT siblings would idle (--smt share leaves them to the system)"
                } else {
                    ""
                };
                cause.unwrap_or_else(|| Refusal::TooFewCpus {
                    count,
                    most,
                    free: self.free.clone(),
                    held: format!("{idle}{}", self.holders()),
                })
            }
        }
    }

    fn has_siblings(&self) -> bool {
        self.cores().iter().any(|core| core.len() > 1)
    }

    /// Who has the other CPUs, for a message.
    fn holders(&self) -> String {
        let held = self.held.iter().filter(|(_, cpus)| !cpus.is_empty());
        held.map(|(who, cpus)| format!("; {who} has CPU {cpus}")).collect()
    }

    /// There are enough CPUs but for a condition: the refusal that names it. Fewer conditions are
    /// given up before more, and of as many the tick goes first, then whole cores.
    fn in_the_way(&self, need: &Need, most: usize) -> Option<Refusal> {
        let (ticks, whole, idle) =
            (self.tick == Tick::RequireOff, need.whole_cores, self.smt == Smt::Idle);
        let mut given_up: Vec<[bool; 3]> =
            (0..8).map(|bits| [bits & 4 > 0, bits & 2 > 0, bits & 1 > 0]).collect();
        given_up.retain(|[tick, cores, smt]| tick <= &ticks && cores <= &whole && smt <= &idle);
        given_up.sort_by_key(|all| (all.iter().filter(|one| **one).count(), all.map(|one| !one)));
        given_up.iter().skip(1).find_map(|[tick, cores, smt]| {
            let ground = Ground {
                tick: if *tick { Tick::Off } else { self.tick },
                smt: if *smt { Smt::Share } else { self.smt },
                ..self.clone()
            };
            let wish = Need { whole_cores: whole && !cores, ..need.clone() };
            let most_cpus = need.count.min(self.online.len());
            let table = ground.table(ground.cores(), &wish, most_cpus);
            let cpus = table.fit(need.count).first()?.picked.cpus();
            Some(match (tick, cores) {
                (true, _) if !self.tick_can_stop => Refusal::TickNeverStops,
                (true, _) => Refusal::TickNotCandidate { cpus: cpus.difference(&self.nohz_full) },
                (false, true) => Refusal::NoWholeCores {
                    count: need.count,
                    most,
                    free: self.free.clone(),
                    held: self.holders(),
                },
                (false, false) => self.sibling_of(&cpus)?,
            })
        })
    }

    /// A sibling of these CPUs that cannot idle, because it is not free.
    fn sibling_of(&self, cpus: &CpuSet) -> Option<Refusal> {
        let taken = |cpu| self.core(cpu).difference(cpus).difference(&self.free).first();
        let (cpu, sibling) = cpus.iter().find_map(|cpu| Some((cpu, taken(cpu)?)))?;
        let holder = self.held.iter().find(|(_, cpus)| cpus.contains(sibling));
        let why = holder.map_or("is not free".to_owned(), |(who, _)| format!("belongs to {who}"));
        Some(Refusal::Sibling { cpu, sibling, why })
    }

    /// Why one of the CPUs was chosen. `far`: what is to be said where it is not near.
    pub(super) fn why(&self, cpu: Cpu, chosen: &CpuSet, need: &Need, far: &str) -> String {
        let mut words: Vec<String> = Vec::new();
        if self.online.first() == Some(cpu) {
            words.push("the boot CPU, for want of others".to_owned());
        }
        match &self.near {
            Some(place) if self.online.is_subset(&place.cpus) => {
                words.push(format!("as near to {} as every CPU", place.what))
            }
            Some(place) if place.cpus.contains(cpu) => words.push(format!("near {}", place.what)),
            Some(place) => words.push(format!("not near {} (CPU {}){far}", place.what, place.cpus)),
            None => {}
        }
        if let Some(node) = self.topology.node_of(cpu).filter(|_| self.topology.nodes.len() > 1) {
            words.push(format!("node {node}"));
        }
        match (self.tick, self.nohz_full.contains(cpu)) {
            (Tick::Keep, _) => {}
            (_, true) => words.push("its tick can stop".to_owned()),
            (_, false) => words.push("its tick cannot stop in this boot".to_owned()),
        }
        let core = self.core(cpu);
        let (inside, outside) = (core.intersection(chosen), core.difference(chosen));
        let mates = inside.difference(&CpuSet::from_iter([cpu]));
        if need.whole_cores && core.len() > 1 {
            words.push(format!("whole core {core}"));
        } else if !mates.is_empty() {
            words.push(format!("on one core with CPU {mates}"));
        } else if core.len() > 1 {
            let verb = if self.smt == Smt::Idle { "idles" } else { "stays with the system" };
            words.push(format!("alone on its core: CPU {outside} {verb}"));
        }
        if self.claimed.contains(cpu) {
            words.push("asked for by a group of others too".to_owned());
        }
        match words.is_empty() {
            true => "free".to_owned(),
            false => words.join("; "),
        }
    }

    /// Why some of these CPUs are not near the place: what keeps the near ones from being chosen.
    pub(super) fn why_far(&self, chosen: &CpuSet) -> String {
        let place = self.near.as_ref().map(|place| place.cpus.clone()).unwrap_or_default();
        let left = place.intersection(&self.free).difference(&self.shielded(chosen));
        let (mut on_boot, mut claimed) = (CpuSet::new(), CpuSet::new());
        let boot = self.online.first();
        for cpu in left.iter() {
            let with = self.shielded(&CpuSet::from_iter([cpu]));
            if !with.is_subset(&self.free) {
                continue;
            }
            if boot.is_some_and(|boot| with.contains(boot)) {
                on_boot.insert(cpu);
            } else if with.intersects(&self.claimed) {
                claimed.insert(cpu);
            }
        }
        let mut words = Vec::new();
        match boot {
            Some(boot) if on_boot == CpuSet::from_iter([boot]) => {
                words.push(format!("CPU {boot} is the boot CPU"));
            }
            _ if on_boot.is_empty() => {}
            _ => words.push(format!("CPU {on_boot} is on the core of the boot CPU")),
        }
        if !claimed.is_empty() {
            words.push(format!("CPU {claimed} is asked for by a group of others"));
        }
        match words.is_empty() {
            true => ", for want of others".to_owned(),
            false => format!(", where {}", words.join(" and ")),
        }
    }

    /// What is worse about the next best set.
    pub(super) fn why_not(&self, best: Cost, next: Cost) -> String {
        let place = self.near.as_ref().map_or("", |place| &place.what);
        let differs = |worth: &Worth| worth.of(best) != worth.of(next);
        let by = Worth::ALL.into_iter().find(differs);
        let more = by.map_or(0, |worth| worth.of(next).saturating_sub(worth.of(best)));
        let s = if more == 1 { "" } else { "s" };
        match by {
            Some(Worth::Boot) => "it takes the boot CPU, which keeps the time".to_owned(),
            Some(Worth::Claimed) => {
                format!("it takes {more} more that groups of others ask for")
            }
            Some(Worth::Far) => format!("{more} more not near {place}"),
            Some(Worth::Ticking) => format!("{more} more whose tick cannot stop in this boot"),
            Some(Worth::Shared) => format!("{more} more that share a core"),
            Some(Worth::Nodes) => format!("it spans {more} more NUMA node{s}"),
            Some(Worth::Caches) => format!("it spans {more} more last-level cache{s}"),
            Some(Worth::Low) | None => {
                "as good; of equals, the highest numbers are chosen".to_owned()
            }
        }
    }
}
