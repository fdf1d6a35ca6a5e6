// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The doctor: what this machine can do, and each remaining source of noise, with a fix.
//!
//! `diagnose` is pure: facts in, findings out. A thing that does not apply to this machine is `not
//! applicable`, never `ok`.

use crate::guard;
use asmp_host::architecture::{self, Architecture};
use asmp_host::knob::observed;
use asmp_host::{CpuSet, Facts, Kernel, Result, knob, task};
use serde::Serialize;
use std::collections::BTreeMap;

mod clock;
#[cfg(test)]
mod tests;

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
        // Of root: anybody may call a program so.
        let runs = |task: &task::Task| {
            task.command == "irqbalance" && task::real_uid(kernel, task.id.tid) == Some(0)
        };
        let irqbalance = task::read_all(kernel)?.iter().any(runs);
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
            cpuset && groups.cpuset_v1.is_none(),
            Missing,
            match &groups.cpuset_v1 {
                Some(mount) => format!("held by cgroup v1 at {}", mount.display()),
                None => yes(cpuset),
            },
            match (&groups.cpuset_v1, groups.is_group) {
                (_, true) => "run asmp on the host",
                (Some(_), false) => "unmount it, or boot with systemd.unified_cgroup_hierarchy=1",
                (None, false) => "use a kernel with CONFIG_CPUSETS",
            },
        ),
        either(
            "the machine's own cgroup tree",
            groups.mount.is_none() || groups.is_real_root(facts.version()),
            Missing,
            match (groups.is_real_root(facts.version()), groups.is_group) {
                (true, _) => "yes",
                (false, true) => "no: its root is a group (cgroup.type), so this is a container",
                (false, false) => "no: it has no cpuset.cpus.isolated, so this is a container",
            },
            "run asmp on the host",
        ),
        either(
            "all tasks of the machine are seen",
            !facts.contained_pids,
            Missing,
            match (facts.contained_pids, facts.root) {
                (true, _) => "no: there is no kernel thread, so this is a container",
                (false, true) => "yes",
                (false, false) => "known to root only",
            },
            "run asmp on the host",
        ),
        either(
            "isolated partitions at run time",
            groups.isolated.is_some() || facts.version() >= (6, 7),
            Missing,
            format!("kernel {}, needs 6.7", facts.release),
            "use kernel 6.7 or newer",
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
            &rt_kernel(architecture::named(&facts.architecture)),
        ),
        deadline_servers(facts),
        either(
            "tracefs, for naming foreign tasks",
            seen.contains_key(observed::TRACING),
            Optional,
            yes(seen.contains_key(observed::TRACING)),
            "mount -t tracefs none /sys/kernel/tracing (and be root)",
        ),
        sharing(facts),
    ]
}

/// Can partitions share their CPUs, and how surely?
fn sharing(facts: &Facts) -> Item {
    let candidates = &facts.cpus.nohz_full;
    let others = || facts.cpus.online.difference(&CpuSet::from_iter([0]));
    let cpus = if candidates.is_empty() { others() } else { candidates.clone() };
    match guard::hindrance(facts, &cpus) {
        None => item(SHARING, Verdict::Ok, format!("with the guarantee: CPU {cpus}"), ""),
        Some((what, cure)) => {
            item(SHARING, Verdict::Optional, format!("only as best effort: {what}"), cure)
        }
    }
}
const SHARING: &str = "shared partitions (--share)";

/// What helps where the kernel cannot stop ticks: no boot parameter does.
pub(crate) const NO_HZ_FULL: &str =
    "boot a kernel with CONFIG_NO_HZ_FULL (Debian's have it); `asmp boot enable` does not help";

fn rt_kernel(architecture: Option<&Architecture>) -> String {
    let package = architecture
        .map_or(String::new(), |known| format!(" (Debian: linux-image-rt-{})", known.debian));
    format!("an rt kernel{package} bounds the kernel's own non-preemptible sections")
}

fn has_deadline_server_files(facts: &Facts) -> bool {
    let first = facts.cpus.online.first().map(|cpu| knob::deadline_server_runtime("fair", cpu));
    first.is_some_and(|knob| facts.setting(&knob).is_some())
}

/// What makes the deadline servers of this kernel visible; `None` where there are none.
pub(crate) fn deadline_servers_cure(facts: &Facts) -> Option<String> {
    if facts.version() < (6, 12) {
        return None;
    }
    Some(match (&facts.lockdown, debugfs_parameter(facts), facts.root) {
        (Some(mode), ..) => format!(
            "lockdown={mode} closes debugfs: switch Secure Boot off, or boot without lockdown=; \
             or let the task sleep 50 ms in each second"
        ),
        (None, Some(value), _) => format!(
            "boot without debugfs={value}: no mount helps; or let the task sleep 50 ms in each \
             second"
        ),
        (None, None, false) => "be root (sudo), with debugfs mounted".to_owned(),
        (None, None, true) => "mount debugfs: mount -t debugfs none /sys/kernel/debug".to_owned(),
    })
}

/// `off` or `no-mount` where the boot closed debugfs.
fn debugfs_parameter(facts: &Facts) -> Option<&str> {
    facts.boot_parameter("debugfs").filter(|value| *value != "on")
}

fn deadline_servers(facts: &Facts) -> Item {
    let what = "deadline servers can be switched off";
    let lost = "a busy real-time task may lose 50 ms of each second";
    let found = match (&facts.lockdown, debugfs_parameter(facts), facts.root) {
        (Some(mode), ..) => format!("no: the kernel is locked down ({mode}); {lost}"),
        (None, Some(value), _) => format!("no: booted with debugfs={value}; {lost}"),
        (None, None, true) => format!("no debugfs file; {lost}"),
        (None, None, false) => "unknown: only root may look".to_owned(),
    };
    match deadline_servers_cure(facts) {
        _ if has_deadline_server_files(facts) => item(what, Verdict::Ok, "yes", ""),
        None => item(what, Verdict::NotApplicable, "this kernel has none (they are 6.12's)", ""),
        Some(cure) => item(what, Verdict::Optional, found, cure),
    }
}

/// Does the kernel stop busy real-time tasks for a part of each second? The fact and its cure.
pub(crate) fn throttling(facts: &Facts) -> Option<(String, String)> {
    let runtime_us: i64 = facts.setting(&knob::rt_runtime_us())?.parse().ok()?;
    if facts.version() >= (6, 12) || !(0..1_000_000).contains(&runtime_us) {
        return None;
    }
    let lost_ms = (1_000_000 - runtime_us) / 1000;
    Some((
        format!("the kernel stops a busy real-time task for {lost_ms} ms of each second"),
        "sysctl kernel.sched_rt_runtime_us=-1 (for the whole machine: then nothing stops a \
         real-time task that hangs, and SCHED_DEADLINE admits unchecked), or a kernel from 6.12 on"
            .to_owned(),
    ))
}

fn real_time_throttling(facts: &Facts) -> Item {
    let what = "real-time throttling";
    let text = facts.setting(&knob::rt_runtime_us());
    match (throttling(facts), text) {
        (Some((found, cure)), _) => item(what, Verdict::Optional, found, cure),
        (None, _) if facts.version() >= (6, 12) => {
            item(what, Verdict::NotApplicable, "none since 6.12", "")
        }
        (None, None) => item(what, Verdict::NotApplicable, "not on this machine", ""),
        (None, Some(text)) => item(what, Verdict::Ok, text, ""),
    }
}

fn boot_parameters(facts: &Facts) -> Vec<Item> {
    use Verdict::{NotApplicable, Ok, Optional};
    let candidates = &facts.cpus.nohz_full;
    let enable = match facts.cpus.tick_can_stop {
        true => "asmp boot enable --cpus LIST, update-grub, reboot; the tick and `--share` need it",
        false => NO_HZ_FULL,
    };
    let mut items = vec![
        either(
            "candidates whose tick can stop (nohz_full)",
            !candidates.is_empty(),
            Optional,
            match (facts.cpus.tick_can_stop, candidates.is_empty()) {
                (false, _) => "this kernel cannot stop a tick".to_owned(),
                (true, true) => "none given".to_owned(),
                (true, false) => format!("CPU {candidates}"),
            },
            enable,
        ),
        either(
            "RCU callbacks off the candidates (rcu_nocbs)",
            facts.boot_parameter("rcu_nocbs").is_some() || !candidates.is_empty(),
            Optional,
            match (facts.boot_parameter("rcu_nocbs"), candidates.is_empty()) {
                (Some(value), _) => value,
                (None, false) => "not given; nohz_full implies it for its CPUs",
                (None, true) => "not given",
            },
            match facts.cpus.tick_can_stop {
                true => enable,
                false => "rcu_nocbs=LIST at boot, where the kernel has CONFIG_RCU_NOCB_CPU",
            },
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
        real_time_throttling(facts),
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
        clock_source(facts, seen),
        clock::watchdog(facts, seen),
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

fn clock_source(facts: &Facts, seen: &Observed) -> Item {
    let what = "clock source";
    let known = architecture::named(&facts.architecture);
    match (seen.get(observed::CLOCK_SOURCE), known) {
        (None, _) => item(what, Verdict::NotApplicable, "not on this machine", ""),
        (Some(found), None) => {
            item(what, Verdict::NotApplicable, format!("{found} (unknown architecture)"), "")
        }
        (Some(found), Some(known)) => {
            let good = found == known.clock_source;
            either(what, good, Verdict::Optional, found, known.clock_cure)
        }
    }
}

fn yes(good: bool) -> String {
    if good { "yes" } else { "no" }.to_owned()
}
