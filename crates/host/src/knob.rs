// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One kernel setting: its path, how its text is compared, how it is set and read back.
//!
//! Kernel files have their own spelling (`00ff` reads back as `ff`, `+cpuset` as `cpuset memory`).
//! So a knob has a [`Shape`] that says when a reading *holds* a wanted value. Originals are kept as
//! the exact text that was read; writing it back gives the same bytes.

use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

/// How the text of a knob is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Byte for byte, but for white space around it.
    Text,
    /// As a CPU list.
    CpuList,
    /// As a CPU mask in hexadecimal words.
    CpuMask,
    /// A list of words of which one is switched: `+word` is wanted present, `-word` absent.
    Toggle,
    /// A list of options, each there as `WORD` or `NO_WORD`; written in the same spelling.
    Option,
    /// The type of a cpuset partition: one word is written, and the kernel adds to it why a
    /// partition is invalid.
    Partition,
}

/// A kernel setting by its path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Knob {
    pub path: PathBuf,
    pub shape: Shape,
}

/// By the bytes of the path: a `Path` compares component by component, and plans of large machines
/// keep thousands of knobs in order.
impl Ord for Knob {
    fn cmp(&self, other: &Self) -> Ordering {
        self.path.as_os_str().cmp(other.path.as_os_str()).then(self.shape.cmp(&other.shape))
    }
}

impl PartialOrd for Knob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Knob {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Knob {}

impl Knob {
    pub fn new(path: impl Into<PathBuf>, shape: Shape) -> Self {
        Self { path: path.into(), shape }
    }

    /// Does a reading of this knob hold the wanted value?
    pub fn holds(&self, reading: &str, wanted: &str) -> bool {
        match self.shape {
            Shape::Text => reading.trim() == wanted.trim(),
            Shape::CpuList => match (reading.parse::<CpuSet>(), wanted.parse::<CpuSet>()) {
                (Ok(reading), Ok(wanted)) => reading == wanted,
                _ => reading.trim() == wanted.trim(),
            },
            Shape::CpuMask => match (CpuSet::from_mask(reading), CpuSet::from_mask(wanted)) {
                (Ok(reading), Ok(wanted)) => reading == wanted,
                _ => reading.trim() == wanted.trim(),
            },
            Shape::Toggle => {
                let word = wanted.trim_start_matches(['+', '-']);
                reading.split_whitespace().any(|present| present == word) == wanted.starts_with('+')
            }
            Shape::Option => reading.split_whitespace().any(|option| option == wanted.trim()),
            // A partition that was invalid before is as it was whether the kernel has CPUs for it
            // now or not.
            Shape::Partition if word(wanted) != wanted.trim() => word(reading) == word(wanted),
            Shape::Partition => reading.trim() == wanted.trim(),
        }
    }

    /// What was written to it last, where the kernel shows less: unbound work keeps off the CPUs
    /// that are isolated now, and goes back there by itself (core-api/workqueue.rst).
    pub fn asked(&self, kernel: &dyn Kernel, reading: String) -> String {
        match *self == workqueue_cpus() {
            true => kernel.text(Path::new(WORKQUEUE_REQUESTED)).unwrap_or(reading),
            false => reading,
        }
    }

    /// What to write to restore the reading `original` after `wanted` was set.
    pub fn inverse(&self, original: &str, wanted: &str) -> String {
        match self.shape {
            Shape::Toggle => {
                let word = wanted.trim_start_matches(['+', '-']);
                let was_present = original.split_whitespace().any(|present| present == word);
                format!("{}{word}", if was_present { '+' } else { '-' })
            }
            Shape::Option => {
                let word = wanted.trim_start_matches("NO_");
                let was_on = original.split_whitespace().any(|option| option == word);
                format!("{}{word}", if was_on { "" } else { "NO_" })
            }
            Shape::Text | Shape::CpuList | Shape::CpuMask | Shape::Partition => original.to_owned(),
        }
    }

    /// The CPUs in a reading of this knob. Errors: `Content` where it is not a list or mask.
    pub fn cpus(&self, reading: &str) -> Result<CpuSet> {
        let parsed = match self.shape {
            Shape::CpuMask => CpuSet::from_mask(reading),
            _ => reading.parse(),
        };
        parsed.map_err(|_| Error::Content {
            path: self.path.clone(),
            text: reading.to_owned(),
            expected: "a set of CPUs",
        })
    }

    /// A set of CPUs in this knob's spelling.
    pub fn spell(&self, cpus: &CpuSet) -> String {
        match self.shape {
            Shape::CpuMask => cpus.to_mask(),
            _ => cpus.to_string(),
        }
    }

    /// The text now, without the trailing newline.
    pub fn read(&self, kernel: &dyn Kernel) -> Result<String> {
        kernel.text(&self.path).map_err(Error::io(&self.path, "read"))
    }

    /// Writes and reads back. Errors: `Io` with the kernel's error, `ReadBack` with what it shows.
    pub fn set(&self, kernel: &dyn Kernel, wanted: &str) -> Result<()> {
        let text = if self.shape == Shape::Partition { word(wanted) } else { wanted };
        // The kernel wants at least one byte to clear a list.
        let line = format!("{text}\n");
        kernel.write(&self.path, line.as_bytes()).map_err(Error::io(&self.path, "write"))?;
        match self.read(kernel)? {
            got if self.holds(&got, wanted) => Ok(()),
            got => Err(Error::ReadBack { path: self.path.clone(), wanted: wanted.to_owned(), got }),
        }
    }
}

/// The first word of a text; empty where there is none.
fn word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

// The settings of a machine that a partition needs, each with the kernel document that defines it.

/// Affinity of one IRQ line, core-api/irq/irq-affinity.rst.
pub fn irq_affinity(irq: u32) -> Knob {
    Knob::new(format!("/proc/irq/{irq}/smp_affinity_list"), Shape::CpuList)
}

/// The number of the IRQ line whose affinity the file at `path` holds: the inverse of
/// [`irq_affinity`].
pub fn irq_of(path: &Path) -> Option<u32> {
    path.to_str()?.strip_prefix("/proc/irq/")?.strip_suffix("/smp_affinity_list")?.parse().ok()
}

/// The CPU that the file at `path` is a setting of: the inverse of [`of_cpu`]. `None` for a setting
/// of anything else.
pub fn cpu_of(path: &Path) -> Option<Cpu> {
    let mut dirs = path.iter().rev().skip(1).take(2);
    let name = dirs.find_map(|dir| dir.to_str()?.strip_prefix("cpu")?.parse().ok());
    let known =
        path.starts_with("/sys/devices/system/cpu") || path.starts_with("/sys/kernel/debug/sched");
    name.filter(|_| known)
}

/// Affinity that IRQ lines set up later start with, core-api/irq/irq-affinity.rst.
pub fn default_irq_affinity() -> Knob {
    Knob::new("/proc/irq/default_smp_affinity", Shape::CpuMask)
}

/// From 6.8 on: the mask that was written to [`workqueue_cpus`], whatever is isolated. Read-only.
pub const WORKQUEUE_REQUESTED: &str = "/sys/devices/virtual/workqueue/cpumask_requested";

/// CPUs of unbound workqueues, core-api/workqueue.rst "Affinity Scopes".
pub fn workqueue_cpus() -> Knob {
    Knob::new("/sys/devices/virtual/workqueue/cpumask", Shape::CpuMask)
}

/// CPUs watched for soft and hard lockups, admin-guide/lockup-watchdogs.rst.
pub fn watchdog_cpus() -> Knob {
    Knob::new("/proc/sys/kernel/watchdog_cpumask", Shape::CpuList)
}

/// Seconds between polls for corrected machine checks; one value for all CPUs whichever CPU's file
/// is written (CPU 0 is always there), arch/x86/x86_64/machinecheck.rst.
pub fn machine_check_interval() -> Knob {
    Knob::new(crate::architecture::MACHINE_CHECKS, Shape::Text)
}

/// Whether the kernel may have a timer expire on another CPU than the one that starts it: 1 yes,
/// which for a CPU of `nohz_full=` means always; 0 no. kernel/time/timer.c, "timer_migration".
pub fn timer_migration() -> Knob {
    Knob::new("/proc/sys/kernel/timer_migration", Shape::Text)
}

/// Microseconds of each second that real-time tasks may have together; -1: all. Before 6.12 the
/// kernel keeps the rest from them, also on isolated CPUs; later it only bounds what SCHED_DEADLINE
/// admits. scheduler/sched-rt-group.rst.
pub fn rt_runtime_us() -> Knob {
    Knob::new("/proc/sys/kernel/sched_rt_runtime_us", Shape::Text)
}

/// Time that the deadline server of `class` (fair, ext) may take from real-time tasks on one CPU,
/// in ns a period; 0 switches it off. scheduler/sched-debug.rst, debugfs.
pub fn deadline_server_runtime(class: &str, cpu: Cpu) -> Knob {
    Knob::new(format!("/sys/kernel/debug/sched/{class}_server/cpu{cpu}/runtime"), Shape::Text)
}

pub fn is_deadline_server(knob: &Knob) -> bool {
    knob.path.starts_with("/sys/kernel/debug/sched")
}

/// admin-guide/pm/cpufreq.rst; the policy may cover several CPUs.
pub fn frequency_governor(cpu: Cpu) -> Knob {
    Knob::new(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), Shape::Text)
}

/// Longest wake-up from idle the CPU may take; `n/a` means none at all, `0` no limit.
/// ABI/testing/sysfs-devices-power.
pub fn resume_latency(cpu: Cpu) -> Knob {
    Knob::new(
        format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"),
        Shape::Text,
    )
}

/// cgroup v2 files of one group, admin-guide/cgroup-v2.rst "Cpuset".
pub fn controllers_of_children(group: &Path) -> Knob {
    Knob::new(group.join("cgroup.subtree_control"), Shape::Toggle)
}

pub fn exclusive_cpus(group: &Path) -> Knob {
    Knob::new(group.join("cpuset.cpus.exclusive"), Shape::CpuList)
}

pub fn partition_type(group: &Path) -> Knob {
    Knob::new(group.join("cpuset.cpus.partition"), Shape::Partition)
}

/// The CPUs that a group asks for; empty: what its parent has. No group of ours asks.
pub fn requested_cpus(group: &Path) -> Knob {
    Knob::new(group.join("cpuset.cpus"), Shape::CpuList)
}

/// `1`: no task of the group runs. admin-guide/cgroup-v2.rst "Core Interface Files".
pub fn freeze(group: &Path) -> Knob {
    Knob::new(group.join("cgroup.freeze"), Shape::Text)
}

/// The option of [`osnoise_options`] by which the kernel starts threads of its own.
pub const OSNOISE_WORKLOAD: &str = "OSNOISE_WORKLOAD";

/// Options of the osnoise and timerlat tracers, trace/osnoise-tracer.rst.
pub fn osnoise_options() -> Knob {
    Knob::new("/sys/kernel/tracing/osnoise/options", Shape::Option)
}

/// Period of the timerlat tracer in microseconds (100 to 1,000,000), trace/timerlat-tracer.rst.
pub fn timerlat_period_us() -> Knob {
    Knob::new("/sys/kernel/tracing/osnoise/timerlat_period_us", Shape::Text)
}

/// CPUs of the osnoise and timerlat tracers, trace/osnoise-tracer.rst.
pub fn osnoise_cpus() -> Knob {
    Knob::new("/sys/kernel/tracing/osnoise/cpus", Shape::CpuList)
}

/// Every setting of one CPU.
pub fn of_cpu(cpu: Cpu) -> Vec<Knob> {
    vec![
        deadline_server_runtime("fair", cpu),
        deadline_server_runtime("ext", cpu),
        frequency_governor(cpu),
        resume_latency(cpu),
    ]
}

/// Every setting of the whole machine.
pub(crate) fn of_machine() -> Vec<Knob> {
    vec![
        default_irq_affinity(),
        workqueue_cpus(),
        watchdog_cpus(),
        machine_check_interval(),
        timer_migration(),
        rt_runtime_us(),
        osnoise_options(),
        timerlat_period_us(),
        osnoise_cpus(),
    ]
}

/// The text that a kernel gives this setting at boot, where no parameter but `isolcpus=` and
/// `nohz_full=` concerns it; `None`: that depends on the machine. `kept_free`: the CPUs of both,
/// which the kernel keeps unbound work off. Only for advice.
pub fn usual(knob: &Knob, possible: &CpuSet, kept_free: &CpuSet) -> Option<String> {
    let texts = [(machine_check_interval(), "300"), (timer_migration(), "1")];
    match knob {
        _ if *knob == default_irq_affinity() => return Some(knob.spell(possible)),
        _ if *knob == workqueue_cpus() => {
            return Some(knob.spell(&possible.difference(kept_free)));
        }
        _ => {}
    }
    let of_cpu = cpu_of(&knob.path).and_then(|cpu| match knob {
        _ if is_deadline_server(knob) => Some("50000000"),
        _ => (*knob == resume_latency(cpu)).then_some("0"),
    });
    let text = texts.iter().find(|(one, _)| one == knob).map(|(_, text)| *text);
    text.or(of_cpu).map(str::to_owned)
}

/// Is this a setting of the osnoise and timerlat tracers?
pub fn is_of_tracer(knob: &Knob) -> bool {
    knob.path.parent().is_some_and(|dir| dir == Path::new("/sys/kernel/tracing/osnoise"))
}

/// Settings that are only read, to find sources of noise; see the sysctl documents and ABI files of
/// the same names.
pub mod observed {
    use crate::Kernel;
    use std::collections::BTreeMap;
    use std::path::Path;

    /// The text of each that this machine has, by path.
    pub fn read(kernel: &dyn Kernel) -> BTreeMap<&'static str, String> {
        ALL.into_iter()
            .filter_map(|path| Some((path, kernel.text(Path::new(path)).ok()?.trim().to_owned())))
            .collect()
    }

    pub const NMI_WATCHDOG: &str = "/proc/sys/kernel/nmi_watchdog";
    pub const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
    pub const CLOCK_SOURCE: &str =
        "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    pub const CLOCK_SOURCES: &str =
        "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    pub const CPU_INFO: &str = "/proc/cpuinfo";
    pub const NUMA_NODES: &str = "/sys/devices/system/node/online";
    pub const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    pub const SAME_PAGE_MERGING: &str = "/sys/kernel/mm/ksm/run";
    pub const SMT: &str = "/sys/devices/system/cpu/smt/active";
    pub const TRACING: &str = "/sys/kernel/tracing/current_tracer";

    pub const ALL: [&str; 10] = [
        NMI_WATCHDOG,
        NUMA_BALANCING,
        CLOCK_SOURCE,
        CLOCK_SOURCES,
        CPU_INFO,
        NUMA_NODES,
        HUGE_PAGES,
        SAME_PAGE_MERGING,
        SMT,
        TRACING,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use std::fs;

    #[test]
    fn readings_are_compared_by_shape() {
        let mask = default_irq_affinity();
        assert!(mask.holds("0000000f", "f"));
        assert!(!mask.holds("7", "f"));
        let list = irq_affinity(1);
        assert!(list.holds("0,1,2", "0-2"));
        let toggle = controllers_of_children(Path::new("/sys/fs/cgroup"));
        assert!(toggle.holds("cpu cpuset", "+cpuset"));
        assert!(!toggle.holds("cpu cpuset", "-cpuset"));
        assert!(toggle.holds("", "-cpuset"));
        assert_eq!(toggle.inverse("cpu memory", "+cpuset"), "-cpuset");
        assert_eq!(toggle.inverse("cpuset", "+cpuset"), "+cpuset");
        let option = osnoise_options();
        let reading = "NO_PANIC_ON_STOP OSNOISE_WORKLOAD NO_OSNOISE_IRQ_DISABLE";
        assert!(
            option.holds(reading, "OSNOISE_WORKLOAD")
                && !option.holds(reading, "NO_OSNOISE_WORKLOAD")
        );
        assert_eq!(option.inverse(reading, "NO_OSNOISE_WORKLOAD"), "OSNOISE_WORKLOAD");
        assert_eq!(
            option.inverse("NO_OSNOISE_WORKLOAD", "OSNOISE_WORKLOAD"),
            "NO_OSNOISE_WORKLOAD"
        );
        assert_eq!(
            option.inverse("NO_OSNOISE_WORKLOAD", "NO_OSNOISE_WORKLOAD"),
            "NO_OSNOISE_WORKLOAD"
        );
        assert!(
            !partition_type(Path::new("/x"))
                .holds("isolated invalid (Parent is not a partition root)", "isolated")
        );
    }

    #[test]
    fn the_cpus_of_unbound_work_are_those_asked_for_and_not_those_left_by_isolation() {
        let dir = "sys/devices/virtual/workqueue";
        for (files, asked) in [
            (vec![("cpumask", "b\n"), ("cpumask_requested", "f\n")], "f"),
            (vec![("cpumask", "b\n")], "b"),
        ] {
            let files: Vec<_> =
                files.iter().map(|(name, text)| (format!("{dir}/{name}"), *text)).collect();
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let (_root, linux) = crate::machine(&files);
            assert_eq!(workqueue_cpus().asked(&linux, "b".to_owned()), asked);
            assert_eq!(default_irq_affinity().asked(&linux, "7".to_owned()), "7");
        }
    }

    #[test]
    fn an_invalid_partition_is_written_as_its_word_and_holds_in_either_condition() {
        let root = tempfile::tempdir().unwrap();
        let linux = Linux::below(root.path());
        let knob = partition_type(Path::new("/group"));
        fs::create_dir(root.path().join("group")).unwrap();
        fs::write(root.path().join("group/cpuset.cpus.partition"), "").unwrap();
        let before = "isolated invalid (No cpu available due to hotplug)";
        knob.set(&linux, before).unwrap();
        assert_eq!(knob.read(&linux).unwrap(), "isolated");
        assert!(knob.holds(before, before) && !knob.holds("member", before));
        assert!(!knob.holds(before, "isolated"));
    }

    #[test]
    fn the_knob_of_an_irq_line_knows_its_number_and_no_other_knob_has_one() {
        assert_eq!(irq_of(&irq_affinity(0).path), Some(0));
        assert_eq!(irq_of(&irq_affinity(2_003).path), Some(2_003));
        let others = of_machine().into_iter().chain(of_cpu(3));
        assert!(others.into_iter().all(|knob| irq_of(&knob.path).is_none()));
    }

    #[test]
    fn the_knobs_of_a_cpu_know_it_and_no_other_knob_has_one() {
        for cpu in [0, 3, 511] {
            assert!(of_cpu(cpu).iter().all(|knob| cpu_of(&knob.path) == Some(cpu)), "{cpu}");
        }
        let groups = ["/sys/fs/cgroup/asmp/cpu3", "/sys/devices/system/machinecheck/cpu3"];
        let others = of_machine().into_iter().chain([irq_affinity(3)]);
        let others = others.chain(groups.map(|group| exclusive_cpus(Path::new(group))));
        assert!(others.into_iter().all(|knob| cpu_of(&knob.path).is_none()));
    }

    #[test]
    fn setting_writes_and_reads_back_and_a_missing_file_is_named() {
        let root = tempfile::tempdir().unwrap();
        let linux = Linux::below(root.path());
        let knob = watchdog_cpus();
        let missing = knob.set(&linux, "0").unwrap_err();
        assert!(
            missing.is_missing()
                && missing.to_string().contains("/proc/sys/kernel/watchdog_cpumask")
        );
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(root.path().join("proc/sys/kernel/watchdog_cpumask"), "").unwrap();
        knob.set(&linux, "0-2").unwrap();
        assert_eq!(knob.read(&linux).unwrap(), "0-2");
    }
}
