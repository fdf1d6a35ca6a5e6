// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs by need: which CPUs a partition gets that asks for a number of them. Pure: the [`Ground`]
//! has all that is known, and the same ground and need give the same choice.
//!
//! A set of CPUs may be chosen if each is online and free (of no partition, isolated by no other
//! program), if its core can be shielded with it (`smt = idle`), if its tick can stop (where that
//! is required), if it takes whole cores (where they are asked for), and if a CPU remains for the
//! system. Of these sets the best is chosen. A set is better than another if it is less in the
//! first of these numbers in which they differ:
//!
//! 1. the boot CPU, which keeps the time, is shielded (0 or 1);
//! 2. shielded CPUs that a group of others asks for;
//! 3. CPUs that are not near the place asked for;
//! 4. CPUs whose tick cannot stop (0 where the tick is to stay);
//! 5. CPUs beyond the first one of each core (0 where whole cores are asked for);
//! 6. NUMA nodes;
//! 7. last-level caches (those of each node count by themselves);
//! 8. distance from the highest CPU, added up.
//!
//! All of these add up over cores, caches and nodes, which lie in each other. So the best set of k
//! CPUs of a machine is made of the best sets of its nodes, these of the best of their caches, and
//! these of the best of their cores: dynamic programming, exact, in time linear in the number of
//! CPUs for a given count.

mod words;

use crate::partition::{Refusal, Smt, Tick};
use asmp_host::topology::{Place, Topology};
use asmp_host::{Cpu, CpuSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;

/// CPUs asked for by number, not by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// At least 1.
    pub count: usize,
    /// An IRQ line, a device or a NUMA node.
    #[serde(default)]
    pub near: Option<String>,
    /// All threads of each core, or none.
    #[serde(default)]
    pub whole_cores: bool,
}

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    pub cpus: CpuSet,
    /// One for each CPU, lowest first.
    pub reasons: Vec<Reason>,
    /// The next best set; `None`: there is no other.
    pub next: Option<Next>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub cpu: Cpu,
    pub why: String,
}

/// What was not chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    pub cpus: CpuSet,
    /// What is worse about it.
    pub why: String,
}

/// A choice that is part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chosen {
    pub partition: String,
    pub need: Need,
    /// The partition was there, satisfies its need and keeps its CPUs.
    pub kept: bool,
    #[serde(flatten)]
    pub choice: Choice,
}

/// All that a choice depends on.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    pub online: CpuSet,
    /// Online CPUs of no partition that no other program isolates. One must stay.
    pub system: CpuSet,
    /// Those of them that a partition can have.
    pub free: CpuSet,
    /// CPUs that groups of others ask for.
    pub claimed: CpuSet,
    /// CPUs whose tick may stop.
    pub nohz_full: CpuSet,
    /// The kernel can stop ticks at all.
    pub tick_can_stop: bool,
    pub core_of: BTreeMap<Cpu, CpuSet>,
    pub topology: Topology,
    pub near: Option<Place>,
    pub tick: Tick,
    pub smt: Smt,
    /// Who has the other CPUs, for messages.
    pub held: Vec<(String, CpuSet)>,
}

/// The eight numbers of a set, the first one highest: they add up and compare as one.
type Cost = u128;

/// Bits of the last number, and of each other one.
const LAST_BITS: u32 = 30;
const BITS: u32 = 14;

/// The numbers, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Boot,
    Claimed,
    Far,
    Ticking,
    Shared,
    Nodes,
    Caches,
    Low,
}

impl Worth {
    const ALL: [Self; 8] = [
        Self::Boot,
        Self::Claimed,
        Self::Far,
        Self::Ticking,
        Self::Shared,
        Self::Nodes,
        Self::Caches,
        Self::Low,
    ];

    const fn shift(self) -> u32 {
        match self {
            Self::Low => 0,
            other => LAST_BITS + BITS * (Self::Caches as u32 - other as u32),
        }
    }

    const fn times(self, count: usize) -> Cost {
        (count as Cost) << self.shift()
    }

    const fn of(self, cost: Cost) -> u128 {
        let bits = if matches!(self, Self::Low) { LAST_BITS } else { BITS };
        cost >> self.shift() & ((1 << bits) - 1)
    }
}

/// CPUs of one core, or of two sets that do not overlap. Shared, because a larger set holds on to
/// the smaller ones that it is made of.
#[derive(Debug)]
enum Picked {
    OfCore(Vec<Cpu>),
    Both(Rc<Self>, Rc<Self>),
}

impl Picked {
    fn is_empty(&self) -> bool {
        matches!(self, Self::OfCore(cpus) if cpus.is_empty())
    }

    fn both(one: &Rc<Self>, other: &Rc<Self>) -> Rc<Self> {
        match (one.is_empty(), other.is_empty()) {
            (true, _) => Rc::clone(other),
            (_, true) => Rc::clone(one),
            _ => Rc::new(Self::Both(Rc::clone(one), Rc::clone(other))),
        }
    }

    fn cpus(&self) -> CpuSet {
        let (mut cpus, mut open) = (CpuSet::new(), vec![self]);
        while let Some(picked) = open.pop() {
            match picked {
                Self::OfCore(of_core) => of_core.iter().for_each(|cpu| cpus.insert(*cpu)),
                Self::Both(one, other) => open.extend([&**one, &**other]),
            }
        }
        cpus
    }
}

/// A set of CPUs with what it costs.
#[derive(Debug, Clone)]
struct Pick {
    cost: Cost,
    picked: Rc<Picked>,
}

/// The best sets of one size, at most two, best first.
#[derive(Debug, Clone, Default)]
struct Best(Vec<Pick>);

impl Best {
    fn offer(&mut self, cost: Cost, picked: impl FnOnce() -> Rc<Picked>) {
        let place = self.0.iter().position(|pick| cost < pick.cost).unwrap_or(self.0.len());
        if place < 2 {
            self.0.truncate(1);
            self.0.insert(place, Pick { cost, picked: picked() });
        }
    }
}

/// The best sets of each size: of those that leave the system no CPU here, and of the others.
#[derive(Debug, Clone)]
struct Table(Vec<[Best; 2]>);

impl Table {
    fn of_nothing() -> Self {
        let nothing = Pick { cost: 0, picked: Rc::new(Picked::OfCore(Vec::new())) };
        Self(vec![[Best(vec![nothing]), Best::default()]])
    }

    fn at(&mut self, size: usize, leaves: bool) -> &mut Best {
        if self.0.len() <= size {
            self.0.resize(size + 1, Default::default());
        }
        &mut self.0[size][usize::from(leaves)]
    }

    fn all(&self) -> impl Iterator<Item = (usize, bool, &Pick)> {
        self.0.iter().enumerate().flat_map(|(size, both)| {
            let of = move |leaves: bool| both[usize::from(leaves)].0.iter();
            let named = move |leaves| of(leaves).map(move |pick| (size, leaves, pick));
            named(false).chain(named(true))
        })
    }

    /// The best sets of both, up to `most` CPUs.
    fn join(&self, other: &Self, most: usize) -> Self {
        let mut joined = Self(Vec::new());
        for (size, leaves, pick) in self.all() {
            for (more, also, with) in other.all().take_while(|(more, ..)| size + more <= most) {
                joined
                    .at(size + more, leaves || also)
                    .offer(pick.cost + with.cost, || Picked::both(&pick.picked, &with.picked));
            }
        }
        joined
    }

    /// What every set but the empty one costs more.
    fn charge(mut self, cost: Cost) -> Self {
        let some = self.0.iter_mut().skip(1).flatten().flat_map(|best| &mut best.0);
        some.for_each(|pick| pick.cost += cost);
        self
    }

    /// The best sets of `size` that leave the system a CPU.
    fn fit(&self, size: usize) -> &[Pick] {
        self.0.get(size).map_or(&[], |both| &both[1].0)
    }
}

/// The best CPUs for a need. Errors: `NoCpus`, `TooFewCpus`, `UnevenCores`, `NoWholeCores`,
/// `Sibling`, `TickNotCandidate`, `TickNeverStops`.
pub(crate) fn choose(ground: &Ground, need: &Need) -> Result<Choice, Refusal> {
    let cores = ground.cores();
    let threads = cores.iter().map(CpuSet::len).max().unwrap_or(1);
    // With whole cores the next larger number counts too: a refusal names it.
    let most = need.count.saturating_add(if need.whole_cores { threads } else { 0 });
    let table = ground.table(cores, need, most.min(ground.online.len()));
    let (best, next) = match table.fit(need.count) {
        _ if need.count == 0 => return Err(Refusal::NoCpus { online: ground.free.clone() }),
        [] => return Err(ground.too_few(&table, need)),
        [best] => (best, None),
        [best, next, ..] => (best, Some(next)),
    };
    let cpus = best.picked.cpus();
    let far = ground.why_far(&cpus);
    let why = |cpu| Reason { cpu, why: ground.why(cpu, &cpus, need, &far) };
    let next = next
        .map(|next| Next { cpus: next.picked.cpus(), why: ground.why_not(best.cost, next.cost) });
    Ok(Choice { reasons: cpus.iter().map(why).collect(), cpus, next })
}

/// Do these CPUs satisfy a need, whether or not others were better?
pub(crate) fn satisfies(ground: &Ground, need: &Need, cpus: &CpuSet) -> bool {
    let cores = ground.cores();
    let fits = |core: &CpuSet| {
        let own = core.intersection(cpus);
        let eligible = ground.eligible(core, need);
        own.is_subset(&eligible) && (!need.whole_cores || own.is_empty() || own == *core)
    };
    cpus.len() == need.count
        && cpus.is_subset(&ground.free)
        && cores.iter().all(fits)
        && !ground.system.is_subset(&ground.shielded(cpus))
}

impl Ground {
    /// The online threads of each core.
    fn cores(&self) -> Vec<CpuSet> {
        let mut seen = CpuSet::new();
        let mut cores = Vec::new();
        for cpu in self.online.iter() {
            if !seen.contains(cpu) {
                let core: CpuSet =
                    self.core(cpu).iter().filter(|cpu| !seen.contains(*cpu)).collect();
                core.iter().for_each(|cpu| seen.insert(cpu));
                cores.push(core);
            }
        }
        cores
    }

    fn core(&self, cpu: Cpu) -> CpuSet {
        let alone = || CpuSet::from_iter([cpu]);
        let core = self.core_of.get(&cpu).map(|core| core.intersection(&self.online));
        core.filter(|core| core.contains(cpu)).unwrap_or_else(alone)
    }

    /// The CPUs that the system loses with these.
    pub(crate) fn shielded(&self, cpus: &CpuSet) -> CpuSet {
        match self.smt {
            Smt::Share => cpus.clone(),
            Smt::Idle => cpus.iter().fold(cpus.clone(), |all, cpu| all.union(&self.core(cpu))),
        }
    }

    /// The threads of a core that may be chosen.
    fn eligible(&self, core: &CpuSet, need: &Need) -> CpuSet {
        if self.smt == Smt::Idle && !core.is_subset(&self.free) {
            return CpuSet::new();
        }
        let free = core.intersection(&self.free);
        let able = match self.tick {
            Tick::RequireOff => free.intersection(&self.nohz_full),
            Tick::Off | Tick::Keep => free,
        };
        if need.whole_cores && able != *core { CpuSet::new() } else { able }
    }

    /// The choice of CPUs that a partition has already, though others may be as near, or nearer to
    /// a place that moves.
    pub(crate) fn keep(&self, has: &CpuSet, need: &Need, other: Choice) -> Choice {
        let far = match self.far(has) > self.far(&other.cpus) {
            true => "; the partition stays where it is, as an IRQ line may move again".to_owned(),
            false => self.why_far(has),
        };
        let why = |cpu| Reason { cpu, why: self.why(cpu, has, need, &far) };
        let next = (other.cpus != *has).then(|| Next {
            cpus: other.cpus.clone(),
            why: "the partition keeps what it has, as that satisfies its need".to_owned(),
        });
        let next = next.or(other.next);
        Choice { cpus: has.clone(), reasons: has.iter().map(why).collect(), next }
    }

    /// How many of these CPUs are not near the place asked for.
    fn far(&self, cpus: &CpuSet) -> usize {
        self.near.as_ref().map_or(0, |place| cpus.difference(&place.cpus).len())
    }

    /// Does a partition stay on CPUs that satisfy its need? Only hardware that is nearer to others
    /// moves it, never a line that went elsewhere.
    pub(crate) fn stays(&self, has: &CpuSet, other: &Choice) -> bool {
        let moves = self.near.as_ref().is_some_and(|place| place.moves);
        moves || self.far(has) <= self.far(&other.cpus)
    }

    fn ticks(&self, cpu: Cpu) -> bool {
        self.tick != Tick::Keep && !self.nohz_full.contains(cpu)
    }

    /// What shielding these costs the others.
    fn cost_to_others(&self, shielded: &CpuSet) -> Cost {
        let boot = self.online.first().is_some_and(|boot| shielded.contains(boot));
        let claimed = shielded.intersection(&self.claimed).len();
        Worth::Boot.times(boot.into()) + Worth::Claimed.times(claimed)
    }

    fn cost_of(&self, cpu: Cpu) -> Cost {
        let highest = self.online.last().unwrap_or(cpu);
        let is_far = self.near.as_ref().is_some_and(|place| !place.cpus.contains(cpu));
        let own = || self.cost_to_others(&CpuSet::from_iter([cpu]));
        Worth::Far.times(is_far.into())
            + Worth::Ticking.times(self.ticks(cpu).into())
            + Worth::Low.times(highest.abs_diff(cpu) as usize)
            + if self.smt == Smt::Share { own() } else { 0 }
    }

    /// The best sets of one core, up to `most` CPUs.
    fn table_of_core(&self, core: &CpuSet, need: &Need, most: usize) -> Table {
        let mut table = Table(Vec::new());
        let in_system = core.intersection(&self.system).len();
        let of_core = |cpus| Rc::new(Picked::OfCore(cpus));
        table.at(0, in_system > 0).offer(0, || of_core(Vec::new()));
        let eligible = self.eligible(core, need);
        let mut cpus: Vec<(Cost, Cpu)> =
            eligible.iter().map(|cpu| (self.cost_of(cpu), cpu)).collect();
        cpus.sort_unstable();
        let sizes = if need.whole_cores { cpus.len()..=cpus.len() } else { 1..=cpus.len() };
        for size in sizes.filter(|size| (1..=most).contains(size)) {
            // The second best has the next CPU in place of its last.
            for last in (size - 1..cpus.len()).take(2) {
                let picked = || cpus[..size - 1].iter().chain([&cpus[last]]);
                let set = || of_core(picked().map(|(_, cpu)| *cpu).collect());
                let mut cost: Cost = picked().map(|(cost, _)| *cost).sum();
                if self.smt == Smt::Idle {
                    cost += self.cost_to_others(core);
                }
                if !need.whole_cores {
                    cost += Worth::Shared.times(size - 1);
                }
                let leaves = self.smt == Smt::Share && in_system > size;
                table.at(size, leaves).offer(cost, set);
            }
        }
        table
    }

    /// The best sets of the machine, up to `most` CPUs.
    fn table(&self, cores: Vec<CpuSet>, need: &Need, most: usize) -> Table {
        let node_of: BTreeMap<Cpu, u32> = self
            .topology
            .nodes
            .iter()
            .flat_map(|(node, cpus)| cpus.iter().map(|cpu| (cpu, *node)))
            .collect();
        let caches = self.topology.caches.iter().enumerate();
        let cache_of: BTreeMap<Cpu, usize> =
            caches.flat_map(|(cache, cpus)| cpus.iter().map(move |cpu| (cpu, cache))).collect();
        let mut nodes: BTreeMap<_, BTreeMap<_, Table>> = BTreeMap::new();
        // The highest first: they win where sets are equal, so few are replaced later.
        for core in cores.iter().rev() {
            let first = core.first().unwrap_or_default();
            let node = nodes.entry(node_of.get(&first)).or_default();
            let table = node.entry(cache_of.get(&first)).or_insert_with(Table::of_nothing);
            *table = table.join(&self.table_of_core(core, need, most), most);
        }
        nodes.into_values().rev().fold(Table::of_nothing(), |machine, caches| {
            let caches =
                caches.into_values().rev().map(|table| table.charge(Worth::Caches.times(1)));
            let node = caches.fold(Table::of_nothing(), |node, cache| node.join(&cache, most));
            machine.join(&node.charge(Worth::Nodes.times(1)), most)
        })
    }
}
