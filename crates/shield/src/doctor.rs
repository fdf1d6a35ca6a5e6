// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The doctor: what this machine can do, and each remaining source of noise, with a fix.
//!
//! `diagnose` is pure: facts in, findings out. A thing that does not apply to this machine is `not
//! applicable`, never `ok`.

use asmp_host::knob::observed;
use asmp_host::{Facts, Kernel, Result, knob, task};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Ok,
    /// Partitions are impossible without it.
    Missing,
    /// Partitions work; with it they are quieter.
    Optional,
    NotApplicable,
}

#[derive(Debug, Serialize)]
pub struct Item {
    pub what: &'static str,
    pub verdict: Verdict,
    pub found: String,
    pub cure: String,
}

/// What this machine can do, and what still disturbs real-time tasks on it.
#[derive(Debug, Serialize)]
pub struct Examination {
    pub facts: Facts,
    pub items: Vec<Item>,
}

impl Examination {
    /// Reads the machine.
    pub fn of(kernel: &dyn Kernel) -> Result<Self> {
        let facts = Facts::read(kernel)?;
        let irqbalance = task::read_all(kernel)?.iter().any(|task| task.command == "irqbalance");
        let items = diagnose(&facts, &observed::read(kernel), irqbalance);
        Ok(Self { facts, items })
    }

    /// Are partitions impossible here?
    pub fn lacks_something(&self) -> bool {
        self.items.iter().any(|item| item.verdict == Verdict::Missing)
    }
}

/// Settings that are only looked at, by path.
pub type Observed = BTreeMap<&'static str, String>;

pub fn diagnose(facts: &Facts, seen: &Observed, irqbalance: bool) -> Vec<Item> {
    let mut items = abilities(facts, seen);
    items.extend(boot_parameters(facts));
    items.extend(noise_sources(facts, seen, irqbalance));
    items
}

fn item(
    what: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    cure: impl Into<String>,
) -> Item {
    let cure = if matches!(verdict, Verdict::Ok | Verdict::NotApplicable) {
        String::new()
    } else {
        cure.into()
    };
    Item { what, verdict, found: found.into(), cure }
}

fn either(
    what: &'static str,
    good: bool,
    bad: Verdict,
    found: impl Into<String>,
    cure: &str,
) -> Item {
    item(what, if good { Verdict::Ok } else { bad }, found, cure)
}

fn abilities(facts: &Facts, seen: &Observed) -> Vec<Item> {
    use Verdict::{Missing, Optional};
    let groups = &facts.cgroups;
    let cpuset = groups.controllers.iter().any(|name| name == "cpuset");
    let debugfs = facts.cpus.online.first().map(|cpu| knob::deadline_server_runtime("fair", cpu));
    let has_server_file = debugfs.is_some_and(|knob| facts.setting(&knob).is_some());
    let extra = seen.get(observed::SCHED_EXT);
    vec![
        either(
            "root",
            facts.root,
            Optional,
            yes(facts.root),
            "changing partitions needs sudo; looking does not",
        ),
        either(
            "cgroup v2",
            groups.mount.is_some(),
            Missing,
            groups
                .mount
                .as_ref()
                .map_or("not mounted".to_owned(), |mount| mount.display().to_string()),
            "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup",
        ),
        either(
            "cpuset controller in v2",
            cpuset,
            Missing,
            match &groups.cpuset_v1 {
                Some(mount) => format!("held by cgroup v1 at {}", mount.display()),
                None => yes(cpuset),
            },
            "boot with cgroup_no_v1=cpuset, or outside the container that hides it",
        ),
        either(
            "isolated partitions at run time",
            groups.isolated.is_some() || facts.version() >= (6, 7),
            Missing,
            facts.release.clone(),
            "kernel 6.7 or newer",
        ),
        either(
            "more than one CPU",
            facts.cpus.online.len() > 1,
            Missing,
            format!("CPU {} online", facts.cpus.online),
            "the system partition always keeps one",
        ),
        either(
            "PREEMPT_RT",
            facts.preempt_rt,
            Optional,
            yes(facts.preempt_rt),
            "an rt kernel (Debian: linux-image-rt-amd64) bounds the kernel's own non-preemptible \
             sections",
        ),
        match (has_server_file, facts.version() >= (6, 8)) {
            (true, _) => item("deadline servers can be switched off", Verdict::Ok, "yes", ""),
            (false, true) => item(
                "deadline servers can be switched off",
                Optional,
                "no debugfs file (or not root)",
                "mount -t debugfs none /sys/kernel/debug",
            ),
            (false, false) => item(
                "deadline servers can be switched off",
                Verdict::NotApplicable,
                "this kernel has none",
                "",
            ),
        },
        either(
            "tracefs, for naming foreign tasks",
            seen.contains_key(observed::TRACING),
            Optional,
            yes(seen.contains_key(observed::TRACING)),
            "mount -t tracefs none /sys/kernel/tracing (and be root)",
        ),
        match extra {
            None => item("sched_ext", Verdict::NotApplicable, "not in this kernel", ""),
            Some(state) => item("sched_ext", Verdict::Ok, state, ""),
        },
    ]
}

fn boot_parameters(facts: &Facts) -> Vec<Item> {
    use Verdict::{NotApplicable, Ok, Optional};
    let candidates = &facts.cpus.nohz_full;
    let enable = "asmp boot enable --cpus LIST, update-grub, reboot; only the tick needs it";
    let mut items = vec![
        either(
            "candidates whose tick can stop (nohz_full)",
            !candidates.is_empty(),
            Optional,
            if candidates.is_empty() { "none".to_owned() } else { format!("CPU {candidates}") },
            enable,
        ),
        either(
            "RCU callbacks off the candidates (rcu_nocbs)",
            facts.boot_parameter("rcu_nocbs").is_some() || !candidates.is_empty(),
            Optional,
            facts
                .boot_parameter("rcu_nocbs")
                .map_or("not given; nohz_full implies it for its CPUs", |value| value),
            enable,
        ),
    ];
    items.push(match facts.boot_parameter("isolcpus") {
        None => item("isolcpus", NotApplicable, "not given (good: asmp isolates at run time)", ""),
        Some(value) => item(
            "isolcpus",
            Optional,
            value,
            "remove it: these CPUs are lost to the system for ever, and sched_ext will not start",
        ),
    });
    let balanced = facts.boot_parameter("skew_tick");
    items.push(match (facts.preempt_rt, balanced) {
        (_, Some(value)) => item("skew_tick", Ok, value, ""),
        (true, None) => {
            item("skew_tick", Optional, "not given", "skew_tick=1 keeps ticks of many CPUs apart")
        }
        (false, None) => item("skew_tick", NotApplicable, "not an rt kernel", ""),
    });
    items
}

fn noise_sources(facts: &Facts, seen: &Observed, irqbalance: bool) -> Vec<Item> {
    use Verdict::{NotApplicable, Optional};
    let quiet = |what: &'static str, path: &str, good: &[&str], cure: &'static str| match seen
        .get(path)
        .map(String::as_str)
    {
        None => item(what, NotApplicable, "not on this machine", ""),
        Some(found) => either(what, good.contains(&found), Optional, found, cure),
    };
    let governors: Vec<&str> = facts
        .cpus
        .online
        .iter()
        .filter_map(|cpu| facts.setting(&knob::frequency_governor(cpu)))
        .collect();
    vec![
        either(
            "irqbalance",
            !irqbalance,
            Optional,
            if irqbalance { "running" } else { "not running" },
            "it does not see run-time partitions: stop it, or ban the CPUs \
             (IRQBALANCE_BANNED_CPULIST); asmp repair puts lines back",
        ),
        match facts.cpus.core_of.values().any(|core| core.len() > 1) {
            false => item("SMT", NotApplicable, "one thread a core", ""),
            true => item(
                "SMT",
                Optional,
                "siblings share cores",
                "partitions take siblings out of use (--smt idle, the default)",
            ),
        },
        quiet(
            "NMI watchdog",
            observed::NMI_WATCHDOG,
            &["0"],
            "partitions leave the watchdog's CPU mask; sysctl kernel.nmi_watchdog=0 frees its \
             counter everywhere",
        ),
        quiet(
            "real-time throttling",
            observed::RT_RUNTIME_US,
            &["-1", "1000000"],
            "sysctl kernel.sched_rt_runtime_us=-1, once no real-time task can hang; \
             SCHED_DEADLINE admission then is unchecked",
        ),
        quiet(
            "automatic NUMA balancing",
            observed::NUMA_BALANCING,
            &["0"],
            "sysctl kernel.numa_balancing=0",
        ),
        quiet(
            "transparent huge pages",
            observed::HUGE_PAGES,
            &["always [madvise] never", "always madvise [never]"],
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        quiet(
            "same-page merging",
            observed::SAME_PAGE_MERGING,
            &["0"],
            "echo 0 > /sys/kernel/mm/ksm/run",
        ),
        quiet(
            "clock source",
            observed::CLOCK_SOURCE,
            &["tsc", "arch_sys_counter"],
            "clocksource=tsc tsc=reliable at boot, where the hardware's TSC is sound",
        ),
        match governors.as_slice() {
            [] => item("frequency governor", NotApplicable, "no cpufreq", ""),
            some => either(
                "frequency governor",
                some.iter().all(|governor| *governor == "performance"),
                Optional,
                some[0],
                "partitions set performance on their CPUs",
            ),
        },
    ]
}

fn yes(good: bool) -> String {
    if good { "yes" } else { "no" }.to_owned()
}
