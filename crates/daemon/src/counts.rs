// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came on the CPUs of partitions, and what asmpd did: as lines for people, and in Prometheus'
//! text format (version 0.0.4). Pure, but for [`came`], which reads the kernel's counters.

use crate::interface::State;
use asmp_host::counters::{InterruptKind, interrupts, softirqs};
use asmp_host::shown::shown;
use asmp_host::{Cpu, CpuSet, Error, Kernel};
use asmp_shield::Partition;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Interrupts or softirqs of one kind that came on a CPU since boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Came {
    pub cpu: Cpu,
    /// `tick`, `device`, `ipi`, `other` or `softirq`.
    pub kind: &'static str,
    /// The line and its handler, or the kernel's name; empty for a tick.
    pub name: String,
    pub count: u64,
}

/// All of these CPUs, also what never came. Errors: a counter file cannot be read.
pub fn came(kernel: &dyn Kernel, cpus: &CpuSet) -> Result<Vec<Came>, Error> {
    let mut all = Vec::new();
    let mut add = |kind, name: &str, counts: &BTreeMap<Cpu, u64>| {
        let of_cpus = counts.iter().filter(|(cpu, _)| cpus.contains(**cpu));
        let one = |(cpu, count): (&Cpu, &u64)| Came {
            cpu: *cpu,
            kind,
            name: name.to_owned(),
            count: *count,
        };
        all.extend(of_cpus.map(one));
    };
    for row in interrupts(kernel)? {
        let (kind, name) = match &row.kind {
            InterruptKind::LocalTimer => ("tick", ""),
            InterruptKind::Device(name) => ("device", name.as_str()),
            InterruptKind::Ipi(name) => ("ipi", name.as_str()),
            InterruptKind::Other(name) => ("other", name.as_str()),
        };
        add(kind, name, &row.counts);
    }
    for (name, counts) in softirqs(kernel)? {
        add("softirq", &name, &counts);
    }
    all.sort_by_key(|one| one.cpu);
    Ok(all)
}

/// A line for each: `3 device 24 eth0: 118`.
pub fn lines(all: &[Came]) -> String {
    all.iter().fold(String::new(), |mut text, Came { cpu, kind, name, count }| {
        let space = if name.is_empty() { "" } else { " " };
        _ = writeln!(text, "{cpu} {kind}{space}{}: {count}", shown(name));
        text
    })
}

/// Labels and value.
type Sample = (String, String);

/// The metrics of all partitions. `came`: on all their CPUs.
pub fn metrics(partitions: &[Partition], state: &State, all: &[Came]) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[Sample]| {
        _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        samples.iter().for_each(|(labels, value)| _ = writeln!(text, "{name}{labels} {value}"));
    };
    let one = |value: u64| [(String::new(), value.to_string())];
    let counts = state.counts;
    family("asmp_up", "gauge", "asmpd runs.", &one(1));
    for (name, help, value) in [
        ("asmp_violations_total", "Violations that were found.", counts.violations),
        ("asmp_repaired_total", "Violations that were repaired.", counts.repaired),
        ("asmp_repairs_total", "Repairs that were made.", counts.repairs),
        ("asmp_looks_total", "Times that the machine was read.", counts.looks),
        ("asmp_entered_total", "Tasks that other programs moved in.", counts.entered),
    ] {
        family(name, "counter", help, &one(value));
    }
    let seconds = counts.repair_us as f64 / 1e6;
    let help = "Time from notices to the ends of repairs, of all that was repaired.";
    let samples = [(String::new(), format!("{seconds}"))];
    family("asmp_repair_seconds_total", "counter", help, &samples);
    let help = "1 where the last look failed.";
    family("asmp_blind", "gauge", help, &one(state.blind.into()));
    let help = "1 while repairs pause, because others break partitions too fast.";
    family("asmp_storming", "gauge", help, &one(state.storming.into()));
    let help = "Violations now, those of no partition too.";
    family("asmp_violations", "gauge", help, &one(state.violations.len() as u64));
    let of_partitions = |value: &dyn Fn(&Partition) -> usize| -> Vec<Sample> {
        let sample =
            |one: &Partition| (format!("{{partition=\"{}\"}}", one.name), value(one).to_string());
        partitions.iter().map(sample).collect()
    };
    let help = "CPUs of a partition.";
    family("asmp_partition_cpus", "gauge", help, &of_partitions(&|one| one.cpus.len()));
    let help = "Violations of a partition that were not repaired.";
    let open = |partition: &Partition| {
        state.violations.iter().filter(|one| one.partition == partition.name).count()
    };
    family("asmp_partition_violations", "gauge", help, &of_partitions(&open));
    let help = "Violations of a partition that were repaired.";
    let repaired = |partition: &Partition| {
        let of = state.repaired.iter().find(|one| one.partition == partition.name);
        of.map_or(0, |one| one.count as usize)
    };
    family("asmp_partition_repaired_total", "counter", help, &of_partitions(&repaired));
    let help = "1 where a user made the partition under a grant.";
    let granted = |one: &Partition| usize::from(one.granted.is_some());
    family("asmp_partition_granted", "gauge", help, &of_partitions(&granted));
    let help = "Interrupts on a CPU of a partition since boot.";
    family("asmp_interrupts_total", "counter", help, &of_cpus(partitions, all, false));
    let help = "Softirqs on a CPU of a partition since boot.";
    family("asmp_softirqs_total", "counter", help, &of_cpus(partitions, all, true));
    text
}

/// Sums by CPU and kind; of softirqs by CPU and name.
fn of_cpus(partitions: &[Partition], all: &[Came], softirqs: bool) -> Vec<Sample> {
    let mut sums: BTreeMap<(Cpu, &str), u64> = BTreeMap::new();
    for one in all.iter().filter(|one| (one.kind == "softirq") == softirqs) {
        let kind = if softirqs { &one.name } else { one.kind };
        *sums.entry((one.cpu, kind)).or_default() += one.count;
    }
    let sample = |((cpu, kind), count): ((Cpu, &str), u64)| {
        let partition = partitions.iter().find(|one| one.cpus.contains(cpu))?;
        let name = &partition.name;
        let labels = format!("{{partition=\"{name}\",cpu=\"{cpu}\",kind=\"{kind}\"}}");
        Some((labels, count.to_string()))
    };
    sums.into_iter().filter_map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Counts;
    use crate::interface::{Repaired, Violated};
    use asmp_host::fake::FakeKernel;
    use asmp_host::store::Store;
    use asmp_shield::{Caller, Request, Shield, Spec};
    use std::sync::Arc;

    fn motion() -> Vec<Partition> {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let shield = Shield::new(Arc::new(FakeKernel::new()), Store::at(dir.path()));
        let spec = Spec::of("3".parse().unwrap());
        let request = Request::Create { name: "motion".to_owned(), spec };
        let outcome = shield.change(&request, &Caller::now(0, "root", "test")).unwrap();
        outcome.state.partitions
    }

    fn counted() -> Vec<Came> {
        let kernel = FakeKernel::new();
        kernel.set_file(
            "/proc/interrupts",
            "           CPU0       CPU3\n 24:   1   2  PCI-MSI 0-edge eth0\n 25:   3   4  PCI-MSI \
             1-edge eth1\nLOC:  100  5 Local timer interrupts\nRES:  9   6 Rescheduling \
             interrupts\n",
        );
        kernel.set_file("/proc/softirqs", "   CPU0  CPU3\nTIMER:  50  7\nSCHED:  60  0\n");
        came(&kernel, &"3".parse().unwrap()).unwrap()
    }

    #[test]
    fn each_counter_of_the_cpus_has_a_line() {
        let text = lines(&counted());
        let expected = "3 device 24 eth0: 2\n3 device 25 eth1: 4\n3 tick: 5\n\
                        3 ipi rescheduling: 6\n3 softirq SCHED: 0\n3 softirq TIMER: 7\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn metrics_have_a_type_each_and_every_partition() {
        let counts = Counts { violations: 3, repaired: 2, repair_us: 1_500, ..Counts::default() };
        let violation = Violated {
            partition: "motion".to_owned(),
            what: "a line".to_owned(),
            cause: "a write".to_owned(),
            for_us: 1,
            tries: 1,
        };
        let other = Violated { partition: String::new(), ..violation.clone() };
        let repaired = vec![Repaired { partition: "motion".to_owned(), count: 2 }];
        let violations = vec![violation, other];
        let state = State { counts, storming: true, repaired, violations, ..State::default() };
        let text = metrics(&motion(), &state, &counted());
        for line in [
            "asmp_up 1",
            "# TYPE asmp_violations_total counter",
            "asmp_violations_total 3",
            "asmp_repaired_total 2",
            "asmp_repair_seconds_total 0.0015",
            "asmp_blind 0",
            "asmp_storming 1",
            "asmp_violations 2",
            "asmp_partition_cpus{partition=\"motion\"} 1",
            "asmp_partition_violations{partition=\"motion\"} 1",
            "asmp_partition_repaired_total{partition=\"motion\"} 2",
            "asmp_partition_granted{partition=\"motion\"} 0",
            "asmp_interrupts_total{partition=\"motion\",cpu=\"3\",kind=\"device\"} 6",
            "asmp_interrupts_total{partition=\"motion\",cpu=\"3\",kind=\"tick\"} 5",
            "asmp_softirqs_total{partition=\"motion\",cpu=\"3\",kind=\"TIMER\"} 7",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        let named = |prefix: &str| -> Vec<String> {
            let words = text.lines().filter_map(|line| line.strip_prefix(prefix));
            words.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(named("# HELP "), named("# TYPE "));
        let is_typed = |line: &str| {
            let name = line.split(['{', ' ']).next().unwrap();
            named("# TYPE ").iter().any(|one| one == name)
        };
        assert!(text.lines().filter(|line| !line.starts_with('#')).all(is_typed), "{text}");
    }
}
