// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a need to CPUs: reads where CPUs and devices are and who has which CPUs, and lets
//! [`crate::choose`] decide.

use crate::choose::{self, Chosen, Ground, Need};
use crate::neighbours;
use crate::partition::{Partition, Refusal, Smt, Tick};
use crate::plan::Base;
use crate::request::{Cpus, Spec};
use asmp_host::topology::{self, NoPlace, Place, Topology};
use asmp_host::{CpuSet, CpuSpec, Facts, Kernel};

/// What is read once for all needs of a request.
pub(crate) struct Survey<'a> {
    kernel: &'a dyn Kernel,
    facts: &'a Facts,
    topology: Topology,
    /// Groups of others with exclusive CPUs.
    exclusive: Vec<(String, CpuSet)>,
    claimed: CpuSet,
}

/// A partition that asks for CPUs by number.
#[derive(Debug, Clone)]
pub(crate) struct Asks<'a> {
    pub name: &'a str,
    pub need: Need,
    pub tick: Tick,
    pub smt: Smt,
    /// The CPUs that it has now.
    pub has: Option<CpuSet>,
    /// All that it may take, SMT siblings included; `None`: any.
    pub within: Option<CpuSet>,
}

/// The CPUs that a request names, or those chosen for it, `within` these. `others`: the partitions
/// beside it.
pub(crate) fn resolve(
    kernel: &dyn Kernel,
    facts: &Facts,
    others: &[Partition],
    (name, spec): (&str, &Spec),
    within: Option<&CpuSet>,
) -> Result<(CpuSpec, Option<Chosen>), Refusal> {
    let need = match &spec.cpus {
        Cpus::Named(cpus) => return Ok((cpus.clone(), None)),
        Cpus::Needed(need) => need.clone(),
    };
    let within = within.cloned();
    let asks = Asks { name, need, tick: spec.tick, smt: spec.smt, has: None, within };
    let settled = Survey::read(kernel, facts).settle(others, &[asks]);
    let chosen = settled.map_err(|(_, refusal)| refusal)?.pop();
    let cpus = chosen.as_ref().map(|chosen| chosen.choice.cpus.clone()).unwrap_or_default();
    Ok((CpuSpec::List(cpus), chosen))
}

impl<'a> Survey<'a> {
    /// `facts.cgroups.isolated` has no CPUs of partitions that are about to be made anew.
    pub fn read(kernel: &'a dyn Kernel, facts: &'a Facts) -> Self {
        let (exclusive, claimed) = match Base::of(facts) {
            Some(base) => neighbours::held_cpus(kernel, facts, &base),
            None => (Vec::new(), CpuSet::new()),
        };
        let topology = Topology::read(kernel, &facts.cpus.online);
        Self { kernel, facts, topology, exclusive, claimed }
    }

    /// CPUs for each that asks, beside `others`; in order, so the first has the first choice. Who
    /// has CPUs that satisfy the need keeps them, unless there are CPUs nearer to hardware that was
    /// asked for. What is near an IRQ line without a node moves with the line, so it moves no
    /// partition. Errors: the refusal, and the index of the one that it is about.
    pub fn settle(
        &self,
        others: &[Partition],
        asks: &[Asks],
    ) -> Result<Vec<Chosen>, (usize, Refusal)> {
        let places = asks
            .iter()
            .enumerate()
            .map(|(at, ask)| self.place(&ask.need).map_err(|refusal| (at, refusal)));
        let places = places.collect::<Result<Vec<_>, _>>()?;
        let held = others.iter().map(|other| (other.name.clone(), other.shielded()));
        let held: Vec<(String, CpuSet)> = held.collect();
        let mut now: Vec<Option<CpuSet>> = asks.iter().map(|ask| ask.has.clone()).collect();
        let ground = |at: usize, now: &[Option<CpuSet>]| {
            let mut held = held.clone();
            for (other, cpus) in now.iter().enumerate().filter(|(other, _)| *other != at) {
                if let Some(cpus) = cpus {
                    let shielded = self.ground(&asks[other], None, &[]).shielded(cpus);
                    held.push((asks[other].name.to_owned(), shielded));
                }
            }
            self.ground(&asks[at], places[at].clone(), &held)
        };
        // What no longer satisfies gives way before anybody chooses.
        for at in 0..asks.len() {
            let ground = ground(at, &now);
            let fits = |cpus: &CpuSet| choose::satisfies(&ground, &asks[at].need, cpus);
            now[at] = now[at].take().filter(fits);
        }
        let mut settled = Vec::new();
        // Each who moves is nearer than before, so this ends; nothing would move in a second
        // `apply`.
        loop {
            let mut moved = false;
            settled.clear();
            for at in 0..asks.len() {
                let ground = ground(at, &now);
                let need = asks[at].need.clone();
                let mut choice = choose::choose(&ground, &need).map_err(|refusal| (at, refusal))?;
                if let Some(stays) = now[at].as_ref().filter(|now| ground.stays(now, &choice)) {
                    choice = ground.keep(stays, &need, choice);
                } else {
                    moved = true;
                    now[at] = Some(choice.cpus.clone());
                }
                let kept = asks[at].has.as_ref() == Some(&choice.cpus);
                settled.push(Chosen { partition: asks[at].name.to_owned(), need, kept, choice });
            }
            if !moved {
                return Ok(settled);
            }
        }
    }

    fn place(&self, need: &Need) -> Result<Option<Place>, Refusal> {
        let Some(name) = &need.near else { return Ok(None) };
        let (online, irqs) = (&self.facts.cpus.online, &self.facts.irqs);
        let found = topology::find(self.kernel, &self.topology, online, irqs, name);
        found.map(Some).map_err(|why| match why {
            NoPlace::Unknown { known } => Refusal::UnknownPlace { name: name.clone(), known },
            NoPlace::Virtual => Refusal::VirtualPlace { name: name.clone() },
            NoPlace::NoCpus { what } => Refusal::EmptyPlace { name: name.clone(), what },
        })
    }

    fn ground(&self, asks: &Asks, near: Option<Place>, held: &[(String, CpuSet)]) -> Ground {
        let cpus = &self.facts.cpus;
        let union = |all: CpuSet, (_, cpus): &(String, CpuSet)| all.union(cpus);
        let taken = held.iter().fold(CpuSet::new(), union);
        let isolated = self.facts.cgroups.isolated.clone().unwrap_or_default();
        // isolcpus= CPUs are listed there too; those may be in a partition.
        let isolated = isolated.difference(&taken).difference(&cpus.boot_isolated);
        let exclusive = self.exclusive.iter().fold(CpuSet::new(), union).difference(&taken);
        let system = cpus.online.difference(&taken).difference(&isolated);
        let held = held.iter().map(|(name, cpus)| (format!("partition {name}"), cpus.clone()));
        let groups = self.exclusive.iter().map(|(group, cpus)| (format!("group {group}"), cpus));
        let groups = groups.map(|(group, theirs)| (group, theirs.intersection(&cpus.online)));
        let named = groups.clone().fold(CpuSet::new(), |all, (_, cpus)| all.union(&cpus));
        let unnamed = ("another program's partition".to_owned(), isolated.difference(&named));
        let free = system.difference(&exclusive);
        let beyond = asks.within.as_ref().map(|within| free.difference(within));
        let beyond = beyond.unwrap_or_default();
        Ground {
            online: cpus.online.clone(),
            free: free.difference(&beyond),
            system,
            claimed: self.claimed.difference(&taken),
            nohz_full: cpus.nohz_full.clone(),
            tick_can_stop: cpus.tick_can_stop,
            core_of: cpus.core_of.clone(),
            topology: self.topology.clone(),
            near,
            tick: asks.tick,
            smt: asks.smt,
            held: held
                .chain(groups)
                .chain([unnamed, ("the system alone".to_owned(), beyond)])
                .collect(),
        }
    }
}
