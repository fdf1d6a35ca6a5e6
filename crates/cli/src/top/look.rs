// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One look at the partitions, and what came between two of them.

use super::screen::MOST_KEPT;
use super::worst;
use crate::events;
use crate::print;
use anyhow::Result;
use asmp_daemon::counts::{Came, came};
use asmp_daemon::hold::{self, Violation};
use asmp_daemon::interface::State as Asmpd;
use asmp_host::cgroup::threads_below;
use asmp_host::{Cpu, CpuSet, clock, task};
use asmp_shield::verify::Status;
use asmp_shield::{Partition, Shield, Tick};
use std::collections::BTreeMap;

/// Of a partition. No screen has more lines.
const MOST_TASKS: usize = 100;

/// What is seen at one instant.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Seconds since 1970-01-01 UTC.
    pub at_s: u64,
    pub partitions: Vec<Seen>,
    /// Counts since boot on the CPUs of all partitions.
    pub came: Vec<Came>,
    /// Who holds the partitions, in words.
    pub held: String,
    /// asmpd could not read the machine: there may be violations that it does not know.
    pub blind: bool,
    /// What is violated and belongs to none of them.
    pub violations: Vec<String>,
}

/// A partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    pub name: String,
    pub cpus: CpuSet,
    pub tick: Tick,
    pub created_by: String,
    /// Those with the lowest numbers, so many as are shown.
    pub tasks: Vec<Inside>,
    /// So many more there are.
    pub more_tasks: usize,
    pub violations: Vec<String>,
    /// It is shared, and this user may not see whether it is guarded.
    pub unchecked: bool,
    /// The worst latencies of the last seconds, the oldest first, where they are measured.
    pub worst_ns: Vec<u64>,
}

/// A thread on the CPUs of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    pub tid: i32,
    pub process: i32,
    pub command: String,
    pub policy: String,
}

impl Look {
    /// Errors: the state or the kernel's counters cannot be read.
    pub fn take(shield: &Shield) -> Result<Self> {
        let state = shield.state()?;
        let asmpd = events::state();
        // Without asmpd what violates a partition must be looked for.
        let status = match asmpd {
            Ok(Some(_)) => None,
            _ => Some(shield.status()?),
        };
        let cpus = state.partitions.iter().fold(CpuSet::new(), |all, one| all.union(&one.cpus));
        let held = match &asmpd {
            Ok(Some(asmpd)) => words_of(asmpd),
            Ok(None) => "asmpd does not run: it repairs nothing".to_owned(),
            Err(error) => print::chain(error),
        };
        let asmpd = asmpd.ok().flatten();
        let blind = asmpd.as_ref().is_some_and(|asmpd| asmpd.blind);
        let violations = violations(asmpd.as_ref(), status.as_ref());
        let of = |name: &str| {
            let own = violations.iter().filter(|one| one.partition == name);
            own.map(|one| one.what.clone()).collect()
        };
        let unchecked = |name: &str| {
            let mut all = status.iter().flat_map(|status| &status.partitions);
            all.any(|one| one.name == name && one.guarantee_checked == Some(false))
        };
        let of_none = violations.iter().filter(|one| state.partition(&one.partition).is_err());
        let seen = |one: &Partition| {
            let (tasks, more_tasks) = inside(shield, &one.name);
            Seen {
                name: one.name.clone(),
                cpus: one.cpus.clone(),
                tick: one.tick,
                created_by: one.created_by.clone(),
                violations: of(&one.name),
                unchecked: unchecked(&one.name),
                worst_ns: worst(&tasks),
                tasks,
                more_tasks,
            }
        };
        Ok(Self {
            at_ns: clock::monotonic_ns(),
            at_s: clock::unix_s(),
            partitions: state.partitions.iter().map(seen).collect(),
            came: came(shield.kernel(), &cpus)?,
            held,
            blind,
            violations: of_none.map(ToString::to_string).collect(),
        })
    }
}

fn words_of(asmpd: &Asmpd) -> String {
    let repaired = asmpd.counts.repaired;
    let storm = if asmpd.storming { ", repairs wait" } else { "" };
    let blind = if asmpd.blind { ", and cannot look now" } else { "" };
    format!("held by asmpd: {repaired} repaired{storm}{blind}")
}

/// As asmpd says, or as was looked for.
fn violations(asmpd: Option<&Asmpd>, status: Option<&Status>) -> Vec<Violation> {
    let of = |partition: &str, what: &str| Violation {
        partition: partition.to_owned(),
        what: what.to_owned(),
    };
    let by_asmpd = asmpd.into_iter().flat_map(|asmpd| &asmpd.violations);
    let by_asmpd = by_asmpd.map(|one| of(&one.partition, &one.what));
    let found = status.into_iter().flat_map(hold::violations).map(|(one, _)| one);
    let hidden = status.is_some_and(|status| status.journal_unreadable);
    let hidden =
        hidden.then(|| of("", "a change is under way or was interrupted: root sees which"));
    by_asmpd.chain(found).chain(hidden).collect()
}

/// Threads that have ended meanwhile are left out. A user may start thousands: of so many only the
/// first are read, and the others are counted.
fn inside(shield: &Shield, name: &str) -> (Vec<Inside>, usize) {
    let Ok(entrance) = shield.entrance(name) else { return (Vec::new(), 0) };
    let kernel = shield.kernel();
    let mut tids = threads_below(kernel, &entrance.groups.rt).unwrap_or_default();
    tids.sort_unstable();
    let more = tids.split_off(MOST_TASKS.min(tids.len())).len();
    let of = |tid: i32| {
        let task = task::read(kernel, tid).ok()?;
        let policy = kernel.schedule(tid).ok()?.to_string();
        Some(Inside { tid, process: task.process, command: task.command, policy })
    };
    (tids.into_iter().filter_map(of).collect(), more)
}

fn worst(tasks: &[Inside]) -> Vec<u64> {
    worst::latencies(tasks.iter().map(|one| one.process).collect(), MOST_KEPT)
}

/// What came on a CPU, a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    pub ticks: f64,
    pub devices: f64,
    pub ipis: f64,
    pub softirqs: f64,
}

impl Rates {
    pub fn sum(&self) -> f64 {
        self.ticks + self.devices + self.ipis + self.softirqs
    }
}

/// Rates between two looks, for each CPU of the later one that both have counted.
pub fn rates(before: &Look, after: &Look) -> BTreeMap<Cpu, Rates> {
    let seconds = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
    let earlier: BTreeMap<(Cpu, &str, &str), u64> =
        before.came.iter().map(|one| ((one.cpu, one.kind, &*one.name), one.count)).collect();
    let mut all: BTreeMap<Cpu, Rates> = BTreeMap::new();
    for one in &after.came {
        // A line that is new began at 0, and one that was freed and requested again too.
        let had = earlier.get(&(one.cpu, one.kind, &*one.name)).copied().unwrap_or(0);
        let is_known = before.came.iter().any(|old| old.cpu == one.cpu);
        if !is_known || seconds <= 0.0 {
            continue;
        }
        let rate = one.count.saturating_sub(had) as f64 / seconds;
        let rates = all.entry(one.cpu).or_default();
        match one.kind {
            "tick" => rates.ticks += rate,
            "device" => rates.devices += rate,
            "softirq" => rates.softirqs += rate,
            // IPIs, and what is rare: machine checks, NMIs.
            _ => rates.ipis += rate,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came(cpu: Cpu, kind: &'static str, name: &str, count: u64) -> Came {
        Came { cpu, kind, name: name.to_owned(), count }
    }

    #[test]
    fn rates_are_differences_a_second() {
        let at = |at_ns: u64, came: Vec<Came>| Look { at_ns, came, ..Look::default() };
        let before = at(
            1_000_000_000,
            vec![
                came(3, "tick", "", 100),
                came(3, "device", "24 eth0", 5),
                came(3, "device", "25 eth1", 50),
            ],
        );
        let after = at(
            3_000_000_000,
            vec![
                came(3, "tick", "", 600),
                came(3, "device", "24 eth0", 9),
                // Requested again.
                came(3, "device", "25 eth1", 2),
                // New.
                came(3, "device", "26 eth2", 4),
                came(3, "ipi", "rescheduling", 7),
                came(3, "other", "NMI", 1),
                came(3, "softirq", "TIMER", 2),
                // Not counted before.
                came(2, "tick", "", 1_000),
            ],
        );
        let rates = rates(&before, &after);
        assert_eq!(rates.len(), 1);
        let expected = Rates { ticks: 250.0, devices: 4.0, ipis: 4.0, softirqs: 1.0 };
        assert_eq!((rates[&3], rates[&3].sum()), (expected, 259.0));
        assert!(super::rates(&after, &after).is_empty(), "no time has passed");
    }
}
