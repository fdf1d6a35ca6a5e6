// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel admits SCHED_DEADLINE tasks against (scheduler/sched-deadline.rst): two sysctls
//! for the share of a CPU that real-time tasks may use, two for the periods it accepts, and since
//! 6.12 a server on each CPU that takes bandwidth as a task does (debugfs).

use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::{Error, Result};
use serde::Serialize;
use std::io;
use std::path::Path;

/// As read; `None` where the file does not exist or is not readable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeadlineLimits {
    /// Below 0: no admission control.
    pub rt_runtime_us: Option<i64>,
    pub rt_period_us: Option<u64>,
    pub least_period_us: Option<u64>,
    pub most_period_us: Option<u64>,
    /// Empty: this kernel has none. `None`: they cannot be read, as [`servers`] says.
    pub servers: Option<Vec<Server>>,
}

/// A deadline server of a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Server {
    pub cpu: Cpu,
    /// The scheduling class it serves: `fair` or `ext`.
    pub class: &'static str,
    pub runtime_ns: u64,
    pub period_ns: u64,
}

/// Time that all real-time tasks of a CPU may use in a period (scheduler/sched-rt-group.rst): the
/// bound of SCHED_DEADLINE's admission as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// Below 0: no bound.
    pub runtime_us: i64,
    pub period_us: u64,
}

impl Bandwidth {
    /// The kernel's own.
    pub const DEFAULT: Self = Self { runtime_us: 950_000, period_us: 1_000_000 };

    /// Errors: `Io` or `Content`, where one of the two is not to be read.
    pub fn read(kernel: &dyn Kernel) -> Result<Self> {
        fn number<N: std::str::FromStr>(kernel: &dyn Kernel, name: &str) -> Result<N> {
            let path = Path::new(SYSCTL).join(name);
            let text = kernel.text(&path).map_err(Error::io(&path, "read"))?;
            let parsed = text.trim().parse();
            parsed.map_err(|_| Error::Content { path, text, expected: "a number of microseconds" })
        }
        Ok(Self {
            runtime_us: number(kernel, RT_RUNTIME_US)?,
            period_us: number(kernel, RT_PERIOD_US)?,
        })
    }
}

const SYSCTL: &str = "/proc/sys/kernel";
const RT_RUNTIME_US: &str = "sched_rt_runtime_us";
const RT_PERIOD_US: &str = "sched_rt_period_us";

fn number<N: std::str::FromStr>(kernel: &dyn Kernel, path: &Path) -> Option<N> {
    kernel.text(path).ok()?.trim().parse().ok()
}

impl DeadlineLimits {
    /// Reads the limits and the [`servers`] of these CPUs.
    pub fn read(kernel: &dyn Kernel, cpus: &CpuSet) -> Self {
        let sysctl = Path::new(SYSCTL);
        Self {
            rt_runtime_us: number(kernel, &sysctl.join(RT_RUNTIME_US)),
            rt_period_us: number(kernel, &sysctl.join(RT_PERIOD_US)),
            least_period_us: number(kernel, &sysctl.join("sched_deadline_period_min_us")),
            most_period_us: number(kernel, &sysctl.join("sched_deadline_period_max_us")),
            servers: servers(kernel, cpus),
        }
    }
}

/// The deadline servers of these CPUs, but for stopped ones (runtime 0). Empty: this kernel has
/// none. `None`: debugfs is not mounted or not readable, or its files are not: a locked-down kernel
/// lists them and refuses to open them.
pub fn servers(kernel: &dyn Kernel, cpus: &CpuSet) -> Option<Vec<Server>> {
    let debugfs = Path::new("/sys/kernel/debug/sched");
    kernel.list(debugfs).ok()?;
    let mut servers = Vec::new();
    for class in ["fair", "ext"] {
        for cpu in cpus.iter() {
            let dir = debugfs.join(format!("{class}_server/cpu{cpu}"));
            let runtime_ns = match kernel.text(&dir.join("runtime")) {
                Ok(text) => text.trim().parse().ok()?,
                // No such server, or no such CPU.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => return None,
            };
            let period_ns = number(kernel, &dir.join("period"))?;
            if runtime_ns > 0 {
                servers.push(Server { cpu, class, runtime_ns, period_ns });
            }
        }
    }
    Some(servers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn limits_and_the_servers_of_the_cpus_asked_for_are_read() {
        let server = "sys/kernel/debug/sched/fair_server";
        let (_root, linux) = machine(&[
            ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
            ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
            ("proc/sys/kernel/sched_deadline_period_min_us", "100\n"),
            ("proc/sys/kernel/sched_deadline_period_max_us", "4194304\n"),
            (&format!("{server}/cpu0/runtime"), "50000000\n"),
            (&format!("{server}/cpu0/period"), "1000000000\n"),
            (&format!("{server}/cpu1/runtime"), "0\n"),
            (&format!("{server}/cpu1/period"), "1000000000\n"),
            ("sys/kernel/debug/sched/ext_server/cpu1/runtime", "20000000\n"),
            ("sys/kernel/debug/sched/ext_server/cpu1/period", "900000000\n"),
        ]);
        assert_eq!(
            Bandwidth::read(&linux).unwrap(),
            Bandwidth { runtime_us: -1, period_us: 1_000_000 }
        );
        let server =
            |cpu, class, runtime_ns, period_ns| Server { cpu, class, runtime_ns, period_ns };
        let fair = server(0, "fair", 50_000_000, 1_000_000_000);
        let ext = server(1, "ext", 20_000_000, 900_000_000);
        let limits = DeadlineLimits::read(&linux, &"0-1".parse().unwrap());
        assert_eq!(
            limits,
            DeadlineLimits {
                rt_runtime_us: Some(-1),
                rt_period_us: Some(1_000_000),
                least_period_us: Some(100),
                most_period_us: Some(4_194_304),
                servers: Some(vec![fair, ext.clone()]),
            }
        );
        assert_eq!(DeadlineLimits::read(&linux, &"1".parse().unwrap()).servers, Some(vec![ext]));
    }

    #[test]
    fn servers_that_are_there_and_cannot_be_read_are_not_known() {
        let server = "sys/kernel/debug/sched/fair_server";
        let (runtime, period) = (format!("{server}/cpu0/runtime"), format!("{server}/cpu0/period"));
        let of = |files: &[(&str, &str)]| {
            let (_root, linux) = machine(files);
            servers(&linux, &"0-1".parse().unwrap())
        };
        // A directory in place of a file: there, and no read succeeds, root's neither.
        let (below_runtime, below_period) = (format!("{runtime}/x"), format!("{period}/x"));
        assert_eq!(of(&[(&below_runtime, ""), (&period, "1000000000\n")]), None);
        assert_eq!(of(&[(&runtime, "50000000\n"), (&below_period, "")]), None);
        // A CPU without a server has none.
        let read = of(&[(&runtime, "50000000\n"), (&period, "1000000000\n")]).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(of(&[(&format!("{server}/x"), "")]), Some(Vec::new()));
    }

    #[test]
    fn what_is_missing_or_no_number_is_not_known() {
        let (_root, linux) = machine(&[("proc/sys/kernel/sched_rt_period_us", "much\n")]);
        assert_eq!(DeadlineLimits::read(&linux, &"0".parse().unwrap()), DeadlineLimits::default());
        assert!(Bandwidth::read(&linux).unwrap_err().is_missing());
        let (_root, linux) = machine(&[
            ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("proc/sys/kernel/sched_rt_period_us", "much\n"),
        ]);
        assert!(Bandwidth::read(&linux).unwrap_err().to_string().contains("sched_rt_period_us"));
        let (_root, linux) = machine(&[("sys/kernel/debug/sched/features", "\n")]);
        assert_eq!(DeadlineLimits::read(&linux, &"0".parse().unwrap()).servers, Some(vec![]));
    }
}
