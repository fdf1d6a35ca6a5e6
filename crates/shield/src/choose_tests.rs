// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice of CPUs: what people expect of small machines, and a judge that tries every set.

use crate::choose::{Ground, Need, choose, satisfies};
use crate::partition::{Refusal, Smt, Tick};
use crate::scale_tests::cost;
use asmp_host::topology::{Place, Topology};
use asmp_host::{Cpu, CpuSet};
use std::collections::{BTreeMap, BTreeSet};

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// A machine with these cores (online threads), nodes and caches; all is free, no tick stops but
/// those of `nohz_full`.
fn machine(cores: &[&str], nodes: &[&str], caches: &[&str], nohz_full: &str) -> Ground {
    let cores: Vec<CpuSet> = cores.iter().map(|core| set(core)).collect();
    let online = cores.iter().fold(CpuSet::new(), |all, core| all.union(core));
    let core_of = |core: &CpuSet| core.iter().map(|cpu| (cpu, core.clone())).collect::<Vec<_>>();
    Ground {
        system: online.clone(),
        free: online.clone(),
        online,
        claimed: CpuSet::new(),
        nohz_full: set(nohz_full),
        tick_can_stop: true,
        core_of: cores.iter().flat_map(core_of).collect(),
        topology: Topology {
            nodes: (0..).zip(nodes.iter().map(|node| set(node))).collect(),
            caches: caches.iter().map(|cache| set(cache)).collect(),
        },
        near: None,
        tick: Tick::Off,
        smt: Smt::Idle,
        held: Vec::new(),
    }
}

/// Two nodes of two caches each, 16 CPUs; n and n + 8 share a core; all but CPU 0 may stop.
fn server() -> Ground {
    let cores: Vec<String> = (0..8).map(|cpu| format!("{cpu},{}", cpu + 8)).collect();
    let cores: Vec<&str> = cores.iter().map(String::as_str).collect();
    let caches = ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"];
    machine(&cores, &["0-3,8-11", "4-7,12-15"], &caches, "1-15")
}

fn near(what: &str, cpus: &str) -> Option<Place> {
    Some(Place { what: what.to_owned(), cpus: set(cpus), moves: false })
}

fn need(count: usize) -> Need {
    Need { count, near: None, whole_cores: false }
}

fn whole(count: usize) -> Need {
    Need { whole_cores: true, ..need(count) }
}

#[track_caller]
fn chosen(ground: &Ground, need: &Need) -> String {
    choose(ground, need).unwrap().cpus.to_string()
}

#[test]
fn cpus_are_chosen_as_people_expect() {
    let four = || machine(&["0", "1", "2", "3"], &["0-3"], &["0-3"], "1-3");
    let node0 = || near("node 0", "0-3,8-11");
    let changed = |change: &dyn Fn(&mut Ground)| {
        let mut ground = server();
        change(&mut ground);
        ground
    };
    for (what, ground, need, cpus) in [
        ("the highest of equals", four(), need(2), "2-3"),
        ("a tick that stops", Ground { nohz_full: set("1-2"), ..four() }, need(1), "2"),
        (
            "the tick counts for nothing where it stays",
            Ground { nohz_full: set("1-2"), tick: Tick::Keep, ..four() },
            need(1),
            "3",
        ),
        ("what others ask for comes last", Ground { claimed: set("3"), ..four() }, need(1), "2"),
        ("cores of their own, in one cache", server(), need(2), "14-15"),
        ("cores of their own, in one node", server(), need(3), "13-15"),
        ("whole cores", server(), whole(4), "6-7,14-15"),
        ("near a node, never the boot cpu", changed(&|g| g.near = node0()), need(2), "10-11"),
        ("near, across caches", changed(&|g| g.near = node0()), need(3), "9-11"),
        ("near, on fewer cores", changed(&|g| g.near = node0()), need(4), "3,9-11"),
        // The core of CPU 0 is near, but CPU 0 would idle.
        ("no core of the boot cpu", changed(&|g| g.near = node0()), need(7), "1-3,9-11,15"),
        (
            "a sibling of the boot cpu, if that need not idle",
            changed(&|g| (g.near, g.smt) = (node0(), Smt::Share)),
            need(4),
            "8-11",
        ),
        (
            "free cpus only",
            changed(&|g| (g.system, g.free) = (set("0-5,8-13"), set("0-5,8-13"))),
            need(2),
            "12-13",
        ),
        (
            "a core whose sibling is taken is none",
            changed(&|g| g.free = set("0-7,8-14")),
            need(1),
            "14",
        ),
        (
            "where a tick must stop",
            changed(&|g| (g.tick, g.nohz_full) = (Tick::RequireOff, set("1"))),
            need(1),
            "1",
        ),
        ("the boot cpu if there is no other", machine(&["0", "1"], &[], &[], ""), need(1), "1"),
        ("two threads before the boot cpu", machine(&["0,2", "1,3"], &[], &[], ""), need(2), "1,3"),
        (
            "the boot cpu where the others are taken",
            Ground { free: set("0"), ..machine(&["0", "1"], &[], &[], "") },
            need(1),
            "0",
        ),
        (
            "small cores beside large ones",
            machine(&["0-1", "2-3", "4"], &[], &[], ""),
            whole(3),
            "2-4",
        ),
    ] {
        assert_eq!(chosen(&ground, &need), cpus, "{what}");
    }
}

#[test]
fn a_choice_says_why_and_why_not_the_next() {
    let ground = Ground { near: near("eth1", "4-7,12-15"), ..server() };
    let choice = choose(&ground, &need(4)).unwrap();
    assert_eq!(choice.cpus.to_string(), "12-15");
    let why = "near eth1; node 1; its tick can stop; alone on its core: CPU 7 idles";
    assert_eq!((choice.reasons[3].cpu, choice.reasons[3].why.as_str()), (15, why));
    let next = choice.next.unwrap();
    assert_eq!(next.cpus.to_string(), "4,13-15");
    assert!(next.why.starts_with("as good;"), "{}", next.why);

    let choice = choose(&Ground { near: near("eth1", "15"), ..server() }, &whole(2)).unwrap();
    assert_eq!(choice.cpus.to_string(), "7,15");
    let why = "not near eth1 (CPU 15), for want of others; node 1; its tick can stop; whole core";
    assert!(choice.reasons[0].why.starts_with(why), "{}", choice.reasons[0].why);
    assert_eq!(choice.next.unwrap().why, "1 more not near eth1");

    for (ground, count, why) in [
        (machine(&["0", "1"], &[], &[], ""), 1, "it takes the boot CPU, which keeps the time"),
        (machine(&["0", "1", "2"], &[], &[], "2"), 1, "1 more whose tick cannot stop in this boot"),
        (machine(&["0", "1-2", "3"], &[], &[], ""), 2, "as good; of equals, the highest"),
        (machine(&["0", "1", "2"], &["0-1", "2"], &[], ""), 2, "it takes the boot CPU"),
        (machine(&["0", "1", "2", "3"], &["0-1", "2-3"], &[], ""), 2, "it spans 1 more NUMA node"),
        (
            machine(&["0", "1", "2", "3"], &[], &["0-1", "2-3"], ""),
            2,
            "it spans 1 more last-level cache",
        ),
        (
            Ground { claimed: set("1"), ..machine(&["0", "1", "2"], &[], &[], "") },
            1,
            "it takes 1 more that groups of others ask for",
        ),
    ] {
        let next = choose(&ground, &need(count)).unwrap().next.unwrap();
        assert!(next.why.starts_with(why), "{why}: {next:?}");
    }
    let none = Ground { free: set("3"), ..machine(&["0", "3"], &[], &[], "") };
    assert_eq!(choose(&none, &need(1)).unwrap().next, None);
}

#[test]
fn cpus_that_are_not_near_say_what_the_near_ones_are_for() {
    let four = || machine(&["0", "1", "2", "3"], &[], &[], "");
    let pairs = || machine(&["0,3", "1,4", "2,5"], &[], &[], "");
    for (what, ground, count, cpus, why) in [
        ("none left", Ground { near: near("x", "3"), ..four() }, 2, "2-3", ", for want of others"),
        (
            "a group asks for it",
            Ground { near: near("x", "2"), claimed: set("2"), ..four() },
            1,
            "3",
            ", where CPU 2 is asked for by a group of others",
        ),
        (
            "the boot CPU",
            Ground { near: near("x", "0"), ..four() },
            1,
            "3",
            ", where CPU 0 is the boot CPU",
        ),
        (
            "its core, and a group",
            Ground { near: near("x", "0-1,3"), claimed: set("1"), ..pairs() },
            1,
            "5",
            ", where CPU 0,3 is on the core of the boot CPU and CPU 1 is asked for by a group of \
             others",
        ),
        (
            "taken",
            Ground { near: near("x", "1-2"), free: set("0,3"), system: set("0,3"), ..four() },
            1,
            "3",
            ", for want of others",
        ),
    ] {
        let choice = choose(&ground, &need(count)).unwrap();
        assert_eq!(choice.cpus.to_string(), cpus, "{what}");
        let said = &choice.reasons.iter().find(|one| one.why.contains("not near")).unwrap().why;
        let place = ground.near.unwrap().cpus;
        assert!(said.contains(&format!("not near x (CPU {place}){why}")), "{what}: {said}");
    }
}

#[test]
fn what_cannot_be_given_is_refused_with_what_can() {
    let ground = machine(&["0,2", "1,3"], &[], &[], "");
    let held = vec![("partition a".to_owned(), set("1,3")), ("group /b".to_owned(), set(""))];
    let taken = Ground { free: set("0,2"), system: set("0,2"), held, ..ground.clone() };
    let says = |ground: &Ground, need: Need| choose(ground, &need).unwrap_err().to_string();
    assert!(says(&ground, need(3)).starts_with("3 CPUs are asked for, and at most 2 can be given"));
    let refused = says(&taken, need(1));
    assert!(refused.contains("at most 0") && refused.contains("CPU 0,2 is free"), "{refused}");
    assert!(refused.contains("; partition a has CPU 1,3;"), "{refused}");
    assert!(!refused.contains("group /b"), "{refused}");
    let refused = says(&Ground { free: set(""), ..taken }, need(1));
    assert!(refused.contains(": none is free"), "{refused}");
    assert!(says(&server(), whole(3)).ends_with("2 threads each: ask for a count of 2 or 4"));
    assert!(says(&ground, whole(1)).ends_with("ask for a count of 2"));
    // Two cores, of which one stays with the system.
    assert!(says(&ground, whole(3)).contains("at most 2"));
    for count in [17, 1 << 40, usize::MAX] {
        let refusal = choose(&server(), &whole(count)).unwrap_err();
        let Refusal::TooFewCpus { most, .. } = refusal else { panic!("{refusal:?}") };
        assert_eq!(most, 14, "{count}");
    }
    let one = says(&Ground { free: set("0"), system: set("0"), ..ground.clone() }, need(1));
    assert!(one.starts_with("1 CPU is asked for, and at most 0 can be given: CPU 0 is"), "{one}");
    assert!(matches!(choose(&ground, &need(0)), Err(Refusal::NoCpus { .. })));
}

#[test]
fn a_refusal_names_what_is_in_the_way() {
    let stops = |nohz_full| Ground {
        tick: Tick::RequireOff,
        ..machine(&["0", "1", "2", "3"], &[], &[], nohz_full)
    };
    let refused = |ground: &Ground, need: Need| choose(ground, &need).unwrap_err();
    let ticks = |cpus: &str| Refusal::TickNotCandidate { cpus: set(cpus) };
    assert_eq!(refused(&stops(""), need(1)), ticks("3"));
    assert_eq!(refused(&stops("1"), need(2)), ticks("3"));
    // More than there are, with and without candidates.
    assert!(matches!(refused(&stops(""), need(4)), Refusal::TooFewCpus { most: 0, .. }));
    let never = Ground { tick_can_stop: false, ..stops("") };
    assert_eq!(refused(&never, need(1)), Refusal::TickNeverStops);

    // Each core has a thread in another partition.
    let held = vec![("partition a".to_owned(), set("2-3"))];
    let broken = Ground {
        free: set("0-1"),
        system: set("0-1"),
        held,
        ..machine(&["0,2", "1,3"], &[], &[], "")
    };
    let why = "belongs to partition a".to_owned();
    assert_eq!(refused(&broken, need(1)), Refusal::Sibling { cpu: 1, sibling: 3, why });
    let shared = Ground { smt: Smt::Share, ..broken.clone() };
    assert_eq!(chosen(&shared, &need(1)), "1");
    let cores = refused(&Ground { system: set("0-3"), ..shared.clone() }, whole(2));
    assert!(matches!(cores, Refusal::NoWholeCores { count: 2, most: 0, .. }), "{cores:?}");
    // A tick and a core: what comes first in the way is named.
    let both = Ground { tick: Tick::RequireOff, ..broken };
    assert_eq!(refused(&both, need(1)), ticks("1"));

    // The sibling is the last CPU of the system.
    for (cores, count) in [(vec!["0,1"], 1), (vec!["0,2", "1,3"], 3)] {
        let last = refused(&machine(&cores, &[], &[], ""), need(count)).to_string();
        assert!(last.contains("keeps one; SMT siblings would idle (--smt share"), "{last}");
    }
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    /// Each of `cpus` with a chance of one in `chances` to be left out.
    fn most_of(&mut self, cpus: &CpuSet, chances: usize) -> CpuSet {
        cpus.iter().filter(|_| !self.one_in(chances)).collect()
    }

    fn ground(&mut self) -> Ground {
        let cpus = 1 + self.below(9) as Cpu;
        let mut cores: BTreeMap<usize, CpuSet> = BTreeMap::new();
        let most = 1 + self.below(cpus as usize);
        for cpu in 0..cpus {
            cores.entry(self.below(most)).or_default().insert(cpu);
        }
        let cores: Vec<CpuSet> = cores.into_values().collect();
        let (mut nodes, mut caches) = (BTreeMap::new(), BTreeMap::new());
        let (most_nodes, most_caches) = (1 + self.below(3), 1 + self.below(4));
        for core in &cores {
            // Some CPUs are in no node and no cache.
            let node: &mut CpuSet = nodes.entry(self.below(most_nodes) as u32).or_default();
            *node = node.union(core);
            let cache: &mut CpuSet = caches.entry(self.below(most_caches)).or_default();
            *cache = cache.union(core);
        }
        if self.one_in(4) {
            nodes.remove(&0);
        }
        if self.one_in(4) {
            caches.remove(&0);
        }
        let all: CpuSet = (0..cpus).collect();
        let online = self.most_of(&all, 9);
        let system = self.most_of(&online, 6);
        let near = Place { what: "x".to_owned(), cpus: self.most_of(&all, 2), moves: false };
        Ground {
            free: self.most_of(&system, 9),
            claimed: self.most_of(&all, 2).intersection(&self.most_of(&all, 2)),
            nohz_full: self.most_of(&all, 3),
            tick_can_stop: true,
            core_of: cores
                .iter()
                .flat_map(|core| core.iter().map(|cpu| (cpu, core.clone())))
                .collect(),
            topology: Topology { nodes, caches: caches.into_values().collect() },
            near: (!self.one_in(3)).then_some(near),
            tick: [Tick::Off, Tick::Off, Tick::Keep, Tick::RequireOff][self.below(4)],
            smt: [Smt::Idle, Smt::Share][self.below(2)],
            held: Vec::new(),
            online,
            system,
        }
    }
}

/// The judge: the doc comment of `choose` in the plainest words. `None`: a set that may not be
/// chosen.
fn judge(ground: &Ground, need: &Need, cpus: &CpuSet) -> Option<[usize; 8]> {
    let core = |cpu: Cpu| ground.core_of[&cpu].intersection(&ground.online);
    let mut shielded = cpus.clone();
    if ground.smt == Smt::Idle {
        for cpu in cpus.iter() {
            shielded = shielded.union(&core(cpu));
        }
    }
    let allowed = shielded.is_subset(&ground.free)
        && cpus.is_subset(&ground.free)
        && (ground.tick != Tick::RequireOff || cpus.is_subset(&ground.nohz_full))
        && (!need.whole_cores || cpus.iter().all(|cpu| core(cpu).is_subset(cpus)))
        && !ground.system.difference(&shielded).is_empty();
    if !allowed {
        return None;
    }
    let node = |cpu| ground.topology.nodes.iter().position(|(_, node)| node.contains(cpu));
    let cache = |cpu| ground.topology.caches.iter().position(|cache| cache.contains(cpu));
    let count = |is: &dyn Fn(Cpu) -> bool| cpus.iter().filter(|cpu| is(*cpu)).count();
    let cores: BTreeSet<CpuSet> = cpus.iter().map(core).collect();
    let nodes: BTreeSet<_> = cpus.iter().map(node).collect();
    let caches: BTreeSet<_> = cpus.iter().map(|cpu| (node(cpu), cache(cpu))).collect();
    let highest = ground.online.last().unwrap();
    Some([
        ground.online.first().is_some_and(|boot| shielded.contains(boot)).into(),
        shielded.intersection(&ground.claimed).len(),
        count(&|cpu| ground.near.as_ref().is_some_and(|place| !place.cpus.contains(cpu))),
        count(&|cpu| ground.tick != Tick::Keep && !ground.nohz_full.contains(cpu)),
        if need.whole_cores { 0 } else { cpus.len() - cores.len() },
        nodes.len(),
        caches.len(),
        cpus.iter().map(|cpu| (highest - cpu) as usize).sum(),
    ])
}

/// All sets of `count` of these CPUs.
fn sets(cpus: &CpuSet, count: usize) -> Vec<CpuSet> {
    let cpus: Vec<Cpu> = cpus.iter().collect();
    let of = |bits: u32| (0..cpus.len()).filter(move |at| bits >> at & 1 == 1);
    (0..1u32 << cpus.len())
        .filter(|bits| bits.count_ones() as usize == count)
        .map(|bits| of(bits).map(|at| cpus[at]).collect())
        .collect()
}

#[test]
fn no_set_of_that_size_is_better_and_the_next_best_is_the_next_best() {
    let mut random = Random(12);
    let (mut chosen, mut refused, mut nexts, mut conditions) = (0, 0, 0, 0);
    for round in 0..20_000 {
        let ground = random.ground();
        let count = 1 + random.below(ground.online.len().max(1));
        let need = if random.one_in(4) { whole(count) } else { need(count) };
        let judged = sets(&ground.online, count);
        let judged = judged.iter().filter_map(|set| Some((judge(&ground, &need, set)?, set)));
        let mut judged: Vec<([usize; 8], &CpuSet)> = judged.collect();
        judged.sort();
        let when = || format!("round {round}: {need:?}, {ground:?}");
        let choice = match choose(&ground, &need) {
            Ok(choice) => choice,
            Err(refusal) => {
                assert!(judged.is_empty(), "{}: {refusal}: {judged:?}", when());
                let most = (1..=ground.online.len()).rev().find(|size| {
                    let sets = sets(&ground.online, *size);
                    sets.iter().any(|set| judge(&ground, &need, set).is_some())
                });
                let any = Need { whole_cores: false, ..need.clone() };
                let plain = Ground { tick: Tick::Off, smt: Smt::Share, ..ground.clone() };
                let in_the_way = sets(&ground.online, count)
                    .iter()
                    .any(|set| judge(&plain, &any, set).is_some());
                match refusal {
                    Refusal::TooFewCpus { most: named, .. } => {
                        assert_eq!(named, most.unwrap_or(0), "{}", when());
                        // The system's last CPU, or a condition.
                        let mut spare = ground.clone();
                        spare.system.insert(99);
                        let is_last = |set: &CpuSet| judge(&spare, &need, set).is_some();
                        let is_last = sets(&ground.online, count).iter().any(is_last);
                        assert!(is_last || !in_the_way, "{}", when());
                    }
                    Refusal::UnevenCores { .. } => {
                        assert!(need.whole_cores && most.is_some_and(|most| most > count));
                    }
                    refusal => {
                        assert!(in_the_way, "{}: {refusal}", when());
                        conditions += 1;
                    }
                }
                refused += 1;
                continue;
            }
        };
        let of = |cpus: &CpuSet| judge(&ground, &need, cpus);
        let best = judged.first().map(|(cost, _)| *cost);
        assert_eq!(of(&choice.cpus), best, "{}: {choice:?}", when());
        assert!(best.is_some(), "{}: {choice:?}", when());
        assert_eq!(choice.cpus.len(), count);
        let next = choice.next.as_ref().and_then(|next| of(&next.cpus));
        assert_eq!(next, judged.get(1).map(|(cost, _)| *cost), "{}: {choice:?}", when());
        assert!(choice.next.as_ref().is_none_or(|next| next.cpus != choice.cpus));
        assert!(choice.reasons.iter().map(|reason| reason.cpu).eq(choice.cpus.iter()));
        assert_eq!(choose(&ground, &need), Ok(choice.clone()), "the same again");
        for set in sets(&ground.online, count) {
            let may = judge(&ground, &need, &set).is_some();
            assert_eq!(satisfies(&ground, &need, &set), may, "{}: {set}", when());
        }
        chosen += 1;
        nexts += usize::from(next.is_some());
    }
    println!("{chosen} chosen, {nexts} with a next best, {refused} refused");
    assert!(chosen > 5_000 && nexts > 4_000 && refused > 2_000 && conditions > 500);
}

/// A machine of `cpus` CPUs in pairs, caches of 8 cores, two nodes.
fn large(cpus: Cpu) -> Ground {
    let half = cpus / 2;
    let list =
        |first: Cpu, end: Cpu| format!("{first}-{},{}-{}", end - 1, first + half, end + half - 1);
    let cores: Vec<String> = (0..half).map(|cpu| format!("{cpu},{}", cpu + half)).collect();
    let caches: Vec<String> =
        (0..half).step_by(8).map(|first| list(first, half.min(first + 8))).collect();
    let nodes = vec![list(0, half / 2), list(half / 2, half)];
    let [cores, caches, nodes] =
        [&cores, &caches, &nodes].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
    machine(&cores, &nodes, &caches, &format!("1-{}", cpus - 1))
}

#[test]
fn a_machine_of_512_cpus_takes_under_20_ms_and_one_of_5120_at_most_30_times_as_long() {
    let [small, big] = [512, 5_120].map(large);
    let near = |ground: &Ground| {
        let node = ground.topology.nodes[&0].to_string();
        Ground { near: near("node 0", &node), ..ground.clone() }
    };
    let time = |ground: &Ground, need: &Need| {
        let once = || cost(&|| choose(ground, need).unwrap());
        (0..7).map(|_| once()).min().unwrap()
    };
    let cpus = choose(&near(&small), &need(8)).unwrap().cpus;
    assert_eq!((cpus.to_string().as_str(), cpus.len()), ("376-383", 8));
    for (what, need) in [("8", need(8)), ("8 of whole cores", whole(8))] {
        let (few, many) = (time(&near(&small), &need), time(&near(&big), &need));
        println!("{what} CPUs: {few:?} of 512, {many:?} of 5120");
        assert!(few.as_millis() < 20, "{what}: {few:?}");
        assert!(many <= few * 30, "{what}: {many:?} is more than 30 times {few:?}");
    }
}

#[test]
fn the_choice_of_256_of_512_cpus_takes_under_200_ms() {
    let ground = large(512);
    let half = (0..7).map(|_| cost(&|| choose(&ground, &need(256)).unwrap())).min().unwrap();
    println!("256 CPUs: {half:?} of 512");
    assert!(half.as_millis() < 200, "{half:?}");
}
