// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as one plain value, read once. All decisions are made from it.

use crate::architecture;
use crate::cgroup::Hierarchy;
use crate::cpuset::{Cpu, CpuSet};
use crate::irq::{self, Irq};
use crate::kernel::Kernel;
use crate::knob::{self, Knob};
use crate::sharing::Sharing;
use crate::task;
use crate::{Error, ErrorKind, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// CPUs of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpus {
    pub possible: CpuSet,
    pub online: CpuSet,
    /// CPUs whose tick may stop (`nohz_full=`); empty where booted without.
    pub nohz_full: CpuSet,
    /// Can this kernel stop ticks at all (CONFIG_NO_HZ_FULL)?
    pub tick_can_stop: bool,
    /// CPUs isolated at boot (`isolcpus=`).
    pub boot_isolated: CpuSet,
    /// For each online CPU the hardware threads of its core, itself included.
    pub core_of: BTreeMap<Cpu, CpuSet>,
    /// For each online CPU that has a frequency governor the CPUs that share it, itself included.
    pub governor_of: BTreeMap<Cpu, CpuSet>,
}

/// A list in /sys/devices/system/cpu (`online`, `nohz_full`). Errors: `Io`, `Content`.
pub fn cpu_list(kernel: &dyn Kernel, name: &str) -> Result<CpuSet> {
    let path = Path::new("/sys/devices/system/cpu").join(name);
    let text = kernel.text(&path).map_err(Error::io(&path, "read"))?;
    // A kernel with no nohz_full CPU prints "(null)".
    let text = if text.trim() == "(null)" { "" } else { text.trim() };
    text.parse().map_err(|_| Error::Content { path, text: text.to_owned(), expected: "a CPU list" })
}

/// The CPUs of a CPU's policy, admin-guide/pm/cpufreq.rst: numbers with spaces between them.
/// `None`: no cpufreq.
fn shared_governor(kernel: &dyn Kernel, cpu: Cpu) -> Option<CpuSet> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/related_cpus");
    let text = kernel.text(Path::new(&path)).ok()?;
    text.split_whitespace().map(|word| word.parse::<Cpu>().ok()).collect()
}

impl Cpus {
    fn read(kernel: &dyn Kernel) -> Result<Self> {
        let list = |name: &str| cpu_list(kernel, name);
        let optional = |name: &str| match list(name) {
            Err(error) if error.is_missing() => Ok(CpuSet::new()),
            other => other,
        };
        let online = list("online")?;
        let core_of = online
            .iter()
            .map(|cpu| {
                let siblings = list(&format!("cpu{cpu}/topology/thread_siblings_list"));
                // Some virtual machines give no topology: then every CPU is its own core.
                (cpu, siblings.unwrap_or_else(|_| CpuSet::from_iter([cpu])))
            })
            .collect();
        let governor_of =
            online.iter().filter_map(|cpu| Some((cpu, shared_governor(kernel, cpu)?)));
        Ok(Self {
            governor_of: governor_of.collect(),
            possible: list("possible")?,
            nohz_full: optional("nohz_full")?,
            tick_can_stop: kernel.exists(Path::new("/sys/devices/system/cpu/nohz_full")),
            boot_isolated: optional("isolated")?,
            core_of,
            online,
        })
    }
}

/// Everything about a machine that a plan depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// As /proc/sys/kernel/arch says: `x86_64`, `aarch64`.
    pub architecture: String,
    pub preempt_rt: bool,
    /// Is the effective user root?
    pub root: bool,
    /// Are the tasks here those of a container, which do not include the machine's? Known to root
    /// only: from others they may be hidden (`hidepid=`).
    pub contained_pids: bool,
    /// Is systemd the system manager?
    pub systemd: bool,
    pub command_line: String,
    /// `integrity` or `confidentiality` where the kernel is locked down (Secure Boot). It comes
    /// from the boot parameter if securityfs is not mounted.
    pub lockdown: Option<String>,
    pub cpus: Cpus,
    pub cgroups: Hierarchy,
    pub irqs: Vec<Irq>,
    /// Real-time CPUs under a guarantee, for other tasks too.
    pub sharing: Sharing,
    /// The CPUs that unbound work was asked to keep to, where the kernel shows less while some are
    /// isolated.
    pub work_asked: Option<String>,
    /// The text of every setting in [`knob`] that this machine has.
    pub settings: BTreeMap<PathBuf, String>,
}

impl Facts {
    /// Reads the machine; changes nothing. Errors: a file that every kernel has is missing or
    /// unreadable.
    pub fn read(kernel: &dyn Kernel) -> Result<Self> {
        let text =
            |path: &str| kernel.text(Path::new(path)).map_err(Error::io(Path::new(path), "read"));
        let cpus = Cpus::read(kernel)?;
        let release = text("/proc/sys/kernel/osrelease")?;
        let knobs = all_knobs(&cpus).filter(|knob| may_be_read(knob, version(&release)));
        let settings: BTreeMap<PathBuf, String> =
            knobs.filter_map(|knob| knob.read(kernel).ok().map(|text| (knob.path, text))).collect();
        let root = effective_user(&text("/proc/self/status")?) == Some(0);
        Ok(Self {
            contained_pids: root && !task::has_kernel_threads(kernel),
            release,
            architecture: architecture::read(kernel),
            lockdown: lockdown(kernel, &text("/proc/cmdline")?),
            preempt_rt: text("/proc/sys/kernel/version")?.contains("PREEMPT_RT"),
            root,
            systemd: kernel.exists(Path::new("/run/systemd/system")),
            command_line: text("/proc/cmdline")?,
            cgroups: Hierarchy::read(kernel)?,
            irqs: irq::read_all(kernel)?,
            sharing: Sharing::read(kernel),
            work_asked: kernel.text(Path::new(knob::WORKQUEUE_REQUESTED)).ok(),
            cpus,
            settings,
        })
    }

    /// The text of a setting; `None` where this machine has no such file.
    pub fn setting(&self, knob: &Knob) -> Option<&str> {
        self.settings.get(&knob.path).map(String::as_str)
    }

    /// Settings that this caller may not read, so that they are missing here. For root only what a
    /// locked-down kernel closes.
    pub fn unreadable(&self, kernel: &dyn Kernel) -> Vec<PathBuf> {
        let refused = |knob: &Knob| {
            knob.read(kernel).is_err_and(|error| error.kind() == ErrorKind::NotPermitted)
        };
        let missing = all_knobs(&self.cpus)
            .filter(|knob| self.setting(knob).is_none() && may_be_read(knob, self.version()));
        missing.filter(refused).map(|knob| knob.path).collect()
    }

    /// Major and minor version of the kernel.
    pub fn version(&self) -> (u32, u32) {
        version(&self.release)
    }

    /// The value of a boot parameter (`nohz_full=1-3` gives `1-3`, a bare word gives the empty
    /// text).
    pub fn boot_parameter(&self, name: &str) -> Option<&str> {
        boot_parameter(&self.command_line, name)
    }
}

fn boot_parameter<'a>(command_line: &'a str, name: &str) -> Option<&'a str> {
    command_line.split_whitespace().find_map(|word| match word.split_once('=') {
        Some((key, value)) if key == name => Some(value),
        None if word == name => Some(""),
        _ => None,
    })
}

fn all_knobs(cpus: &Cpus) -> impl Iterator<Item = Knob> {
    knob::of_machine().into_iter().chain(cpus.online.iter().flat_map(knob::of_cpu))
}

/// Does reading this setting change nothing? 6.12.y rebuilds the scheduler's domains when
/// `sched_rt_runtime_us` is read, and loses account of what the deadline servers had reserved: from
/// then on it refuses every change of a server (EBUSY). Since 6.12 it matters to no partition.
fn may_be_read(knob: &Knob, version: (u32, u32)) -> bool {
    *knob != knob::rt_runtime_us() || version < (6, 12)
}

/// Major and minor number of a release.
fn version(release: &str) -> (u32, u32) {
    let mut words =
        release.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}

/// The chosen one of `none [integrity] confidentiality`, or the boot parameter where that file is
/// not there; `None` where it is `none`.
fn lockdown(kernel: &dyn Kernel, command_line: &str) -> Option<String> {
    let mode = match kernel.text(Path::new("/sys/kernel/security/lockdown")) {
        Ok(text) => text.split_once('[')?.1.split_once(']')?.0.to_owned(),
        Err(_) => boot_parameter(command_line, "lockdown")?.to_owned(),
    };
    (mode != "none").then_some(mode)
}

/// The effective user of this process.
pub fn user(kernel: &dyn Kernel) -> Option<u32> {
    effective_user(&kernel.text(Path::new("/proc/self/status")).ok()?)
}

/// The second number of the `Uid:` line of /proc/self/status.
fn effective_user(status: &str) -> Option<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use std::fs;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn machine() -> (tempfile::TempDir, Linux) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "7.2.13+deb14-rt-amd64\n"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_RT Debian 7.2.13-1 (2026-11-01)\n"),
            ("proc/self/status", "Name:\tx\nUid:\t1000\t0\t0\t0\n"),
            ("proc/self/mountinfo", "25 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/cmdline", "quiet nohz_full=1-3 rcu_nocbs=1-3\n"),
            ("proc/irq/1/smp_affinity_list", "0-3\n"),
            ("proc/interrupts", "  CPU0 CPU1 CPU2 CPU3\n  1:  1 2 3 4  IO-APIC 1-edge i8042\n"),
            ("proc/irq/default_smp_affinity", "f\n"),
            ("sys/devices/system/cpu/possible", "0-7\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/cpu/nohz_full", "(null)\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n"),
            ("sys/devices/system/cpu/cpu2/cpufreq/related_cpus", "2 3\n"),
        ] {
            write(root.path(), path, text);
        }
        let linux = Linux::below(root.path());
        (root, linux)
    }

    #[test]
    fn the_machine_is_read_into_one_value() {
        let (_root, linux) = machine();
        let facts = Facts::read(&linux).unwrap();
        assert_eq!(facts.version(), (7, 2));
        assert!(facts.preempt_rt && facts.root && !facts.systemd);
        assert_eq!(facts.boot_parameter("rcu_nocbs"), Some("1-3"));
        assert_eq!(facts.boot_parameter("quiet"), Some(""));
        assert_eq!(facts.boot_parameter("isolcpus"), None);
        assert!(facts.cpus.nohz_full.is_empty());
        assert_eq!(facts.cpus.core_of[&0].to_string(), "0,2");
        assert_eq!(facts.cpus.core_of[&1].to_string(), "1");
        assert_eq!(facts.cpus.governor_of[&2].to_string(), "2-3");
        assert_eq!(facts.cpus.governor_of.get(&0), None);
        assert_eq!(facts.setting(&knob::default_irq_affinity()), Some("f"));
        assert_eq!(facts.setting(&knob::watchdog_cpus()), None);
    }

    #[test]
    fn what_reading_would_change_is_not_read() {
        let (root, linux) = machine();
        write(root.path(), "proc/sys/kernel/sched_rt_runtime_us", "950000\n");
        for (release, read) in [("6.12.107-rt", None), ("6.11.0", Some("950000")), ("7.2.0", None)]
        {
            write(root.path(), "proc/sys/kernel/osrelease", release);
            let facts = Facts::read(&linux).unwrap();
            assert_eq!(facts.setting(&knob::rt_runtime_us()), read, "{release}");
        }
    }

    #[test]
    fn a_kernel_that_cannot_stop_ticks_is_not_one_that_was_asked_for_none() {
        let (root, linux) = machine();
        let cpus = Facts::read(&linux).unwrap().cpus;
        assert!(cpus.nohz_full.is_empty() && cpus.tick_can_stop, "(null): none given");
        fs::remove_file(root.path().join("sys/devices/system/cpu/nohz_full")).unwrap();
        let cpus = Facts::read(&linux).unwrap().cpus;
        assert!(cpus.nohz_full.is_empty() && !cpus.tick_can_stop, "absent: it cannot");
    }

    #[test]
    fn the_mode_of_a_locked_down_kernel_is_the_one_in_brackets() {
        let (root, linux) = machine();
        let mode = || Facts::read(&linux).unwrap().lockdown;
        assert_eq!(mode(), None);
        for (text, expected) in [
            ("[none] integrity confidentiality\n", None),
            ("none [integrity] confidentiality\n", Some("integrity")),
        ] {
            write(root.path(), "sys/kernel/security/lockdown", text);
            assert_eq!(mode().as_deref(), expected);
        }
        write(root.path(), "proc/cmdline", "quiet lockdown=confidentiality\n");
        assert_eq!(mode().as_deref(), Some("integrity"), "the file goes before the parameter");
        fs::remove_file(root.path().join("sys/kernel/security/lockdown")).unwrap();
        assert_eq!(mode().as_deref(), Some("confidentiality"), "securityfs is not mounted");
    }

    #[test]
    fn garbage_where_a_list_should_be_is_named() {
        let (root, linux) = machine();
        write(root.path(), "sys/devices/system/cpu/online", "all of them\n");
        assert!(
            Facts::read(&linux).unwrap_err().to_string().contains("/sys/devices/system/cpu/online")
        );
    }

    #[test]
    fn a_file_every_kernel_has_may_not_be_missing() {
        let (root, linux) = machine();
        fs::remove_file(root.path().join("proc/cmdline")).unwrap();
        assert!(Facts::read(&linux).unwrap_err().is_missing());
    }
}
