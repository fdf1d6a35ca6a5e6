// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a thread is not started: the cause with its numbers, then what to do. Pure.

use asmp_host::{CpuSet, Schedule};
use asmp_shield::membership::EntryError;
use std::io;

/// Why a thread could not be set up as requested. No thread runs then, and all changes are undone.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The policy is not real-time, or its priority is out of range.
    #[error(
        "{0} is not a real-time policy: use fifo or rr with a priority of 1 to 99, or deadline"
    )]
    Priority(Schedule),

    /// The times of a deadline policy are invalid.
    #[error(
        "invalid times in {0}: use runtime <= deadline <= period, a runtime of at least 1024 ns, \
         and a period from sched_deadline_period_min_us to sched_deadline_period_max_us (in \
         /proc/sys/kernel)"
    )]
    DeadlineTimes(Schedule),

    /// The process may not use this fixed priority.
    #[error(
        "no permission for {policy}: RLIMIT_RTPRIO allows priorities up to {limit} (hard limit \
         {hard}) and the process lacks CAP_SYS_NICE: raise the limit (ulimit -r, rtprio in \
         /etc/security/limits.conf, LimitRTPRIO= of a systemd unit) or run as root; if the limit \
         is high enough, the cgroup has no real-time budget (cpu.rt_runtime_us)"
    )]
    NoPermission { policy: Schedule, limit: Limit, hard: Limit },

    /// The process may not use a deadline policy, or the thread may not use all CPUs of its domain.
    #[error(
        "no permission for {policy}: it needs CAP_SYS_NICE (RLIMIT_RTPRIO does not help), and \
         the thread must be allowed to use all CPUs of its root domain{confined}: run as root; \
         to confine it to one CPU, start it in a partition of that CPU"
    )]
    DeadlineNotPermitted { policy: Schedule, confined: Confined },

    /// The kernel's admission test for deadline tasks failed.
    #[error(
        "the kernel does not admit {policy}: the task needs {needs} of a CPU, the limit for all \
         deadline tasks of a root domain is {bound}, and too little is left: reduce the runtime, \
         end other deadline tasks, or use another partition"
    )]
    NotAdmitted { policy: Schedule, needs: Share, bound: AdmissionLimit },

    /// RLIMIT_MEMLOCK is too low to lock all memory.
    #[error(
        "locking all memory needs {needs_bytes} bytes now, RLIMIT_MEMLOCK allows {limit} (hard \
         limit {hard}): raise it (ulimit -l, memlock in /etc/security/limits.conf, LimitMEMLOCK= \
         of a systemd unit), run as root, or start the thread unlocked"
    )]
    MemoryLimit { needs_bytes: u64, limit: Limit, hard: Limit },

    /// mlockall(2) failed.
    #[error("cannot lock memory: {0}")]
    MemoryLock(io::Error),

    /// The heap could not be allocated in advance.
    #[error(
        "cannot allocate {bytes} bytes of heap: request less, or raise RLIMIT_MEMLOCK, RLIMIT_DATA \
         or RLIMIT_AS"
    )]
    Heap { bytes: usize },

    /// The set of CPUs is empty.
    #[error("the CPU set is empty: give at least one CPU, or no set to let the kernel choose")]
    NoCpus,

    /// The machine does not have these CPUs.
    #[error("CPU {cpus} does not exist: this machine has {possible}")]
    UnknownCpus { cpus: CpuSet, possible: CpuSet },

    /// These CPUs are offline.
    #[error("CPU {cpus} is offline: bring it online, or choose from {online}")]
    OfflineCpus { cpus: CpuSet, online: CpuSet },

    /// The cgroup of the process does not allow these CPUs.
    #[error(
        "the cgroup of this process does not allow CPU {cpus}: start the thread in the partition \
         of that CPU, or choose from {allowed}"
    )]
    CpusNotAllowed { cpus: CpuSet, allowed: CpuSet },

    /// The partition has other CPUs.
    #[error("CPU {cpus} does not belong to partition {partition}, which has {has}")]
    OutsidePartition { cpus: CpuSet, partition: String, has: CpuSet },

    /// The partition does not exist.
    #[error(
        "no partition {name}: {known}; create it first: asmp create {name} --cpus \
         {cpus}; or create it while a program runs: asmp run --name {name} --cpus {cpus} -- \
         PROGRAM"
    )]
    NoPartition { name: String, known: String, cpus: String },

    /// The thread cannot enter the partition.
    #[error(transparent)]
    Partition(#[from] EntryError),

    /// The thread could not be created.
    #[error("cannot create a thread: {0}")]
    Spawn(io::Error),

    /// The kernel refused the policy for another reason.
    #[error("the kernel refuses {policy}: {cause}")]
    Policy {
        policy: Schedule,
        #[source]
        cause: io::Error,
    },

    /// A file of the kernel could not be read or written.
    #[error(transparent)]
    Host(#[from] asmp_host::Error),
}

/// A resource limit (`getrlimit(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// RLIM_INFINITY.
    Unlimited,
    /// This value, in the unit of its resource.
    Of(u64),
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => write!(f, "any"),
            Self::Of(limit) => write!(f, "{limit}"),
        }
    }
}

/// The requested CPUs, if any: the kernel refuses a deadline thread that is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confined(pub Option<CpuSet>);

impl std::fmt::Display for Confined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(cpus) => write!(f, " (requested: CPU {cpus} only)"),
            None => Ok(()),
        }
    }
}

/// A share of CPU time, printed as a percentage and as its two terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub runtime_ns: u64,
    pub period_ns: u64,
}

impl Share {
    /// Hundredths of a percent, rounded up. `None` if the period is 0.
    pub fn per_myriad(self) -> Option<u128> {
        let period = u128::from(self.period_ns);
        (period > 0).then(|| (u128::from(self.runtime_ns) * 10_000).div_ceil(period))
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { runtime_ns, period_ns } = self;
        match self.per_myriad() {
            Some(share) => {
                write!(f, "{}.{:02} % ({runtime_ns} of {period_ns} ns)", share / 100, share % 100)
            }
            None => write!(f, "{runtime_ns} of {period_ns} ns"),
        }
    }
}

/// The limit for deadline tasks from `/proc/sys/kernel/sched_rt_{runtime,period}_us`
/// (sched-deadline.rst, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionLimit {
    /// `sched_rt_runtime_us` is -1.
    Unlimited,
    /// This share of each CPU of the domain. `cpus`: how many CPUs the thread may use.
    PerCpu { share: Share, cpus: usize },
}

impl AdmissionLimit {
    /// From the two sysctls, in microseconds.
    pub fn of(runtime_us: i64, period_us: u64, cpus: usize) -> Self {
        match u64::try_from(runtime_us) {
            Err(_) => Self::Unlimited,
            Ok(runtime_us) => Self::PerCpu {
                share: Share {
                    runtime_ns: runtime_us.saturating_mul(1000),
                    period_ns: period_us.saturating_mul(1000),
                },
                cpus,
            },
        }
    }
}

impl std::fmt::Display for AdmissionLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => write!(f, "none (sched_rt_runtime_us is -1)"),
            Self::PerCpu { share, cpus } => {
                write!(
                    f,
                    "{share}, by sched_rt_runtime_us and sched_rt_period_us, on each of {cpus} CPUs"
                )
            }
        }
    }
}

/// Checks that all requested CPUs are online. Pure. Errors: `NoCpus`, `UnknownCpus`, `OfflineCpus`.
pub fn check_cpus(cpus: &CpuSet, possible: &CpuSet, online: &CpuSet) -> Result<(), Refusal> {
    let missing = |from: &CpuSet| cpus.difference(from);
    if cpus.is_empty() {
        return Err(Refusal::NoCpus);
    }
    if !cpus.is_subset(possible) {
        return Err(Refusal::UnknownCpus { cpus: missing(possible), possible: possible.clone() });
    }
    if !cpus.is_subset(online) {
        return Err(Refusal::OfflineCpus { cpus: missing(online), online: online.clone() });
    }
    Ok(())
}

/// Checks a policy of [`crate::thread::RealTime`] before anything is changed. Pure. Errors:
/// `Priority`, `DeadlineTimes`.
pub fn check_policy(policy: &Schedule) -> Result<(), Refusal> {
    match *policy {
        Schedule::Fifo { priority: 1..=99 } | Schedule::Rr { priority: 1..=99 } => Ok(()),
        Schedule::Deadline { runtime_ns, deadline_ns, period_ns }
            if 1024 <= runtime_ns && runtime_ns <= deadline_ns && deadline_ns <= period_ns =>
        {
            Ok(())
        }
        Schedule::Deadline { .. } => Err(Refusal::DeadlineTimes(*policy)),
        _ => Err(Refusal::Priority(*policy)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_cpu_is_there_offline_or_unknown() {
        let check = |cpus: &str| check_cpus(&set(cpus), &set("0-7"), &set("0-3"));
        assert!(check("0-3").is_ok());
        assert_eq!(
            check("3,5").unwrap_err().to_string(),
            "CPU 5 is offline: bring it online, or choose from 0-3"
        );
        assert_eq!(
            check("3,9").unwrap_err().to_string(),
            "CPU 9 does not exist: this machine has 0-7"
        );
        assert!(matches!(check(""), Err(Refusal::NoCpus)));
    }

    #[test]
    fn priorities_and_deadlines_out_of_range_are_refused_before_the_kernel_is_asked() {
        assert!(check_policy(&Schedule::Fifo { priority: 99 }).is_ok());
        for wrong in [
            Schedule::Fifo { priority: 0 },
            Schedule::Rr { priority: 100 },
            Schedule::Other { nice: 0 },
            Schedule::Deadline { runtime_ns: 3000, deadline_ns: 2000, period_ns: 4000 },
            Schedule::Deadline { runtime_ns: 1000, deadline_ns: 2000, period_ns: 4000 },
        ] {
            let error = check_policy(&wrong).unwrap_err().to_string();
            assert!(error.contains(&wrong.to_string()), "{error}");
        }
    }

    #[test]
    fn a_refused_admission_tells_what_is_asked_and_what_is_given() {
        let (runtime_ns, period_ns) = (990_000, 1_000_000);
        let policy = Schedule::Deadline { runtime_ns, deadline_ns: period_ns, period_ns };
        let needs = Share { runtime_ns, period_ns };
        let error = Refusal::NotAdmitted {
            policy,
            needs,
            bound: AdmissionLimit::of(950_000, 1_000_000, 2),
        };
        let text = error.to_string();
        assert!(text.contains("needs 99.00 % (990000 of 1000000 ns) of a CPU"), "{text}");
        assert!(text.contains("is 95.00 % (950000000 of 1000000000 ns"), "{text}");
        assert!(text.contains("on each of 2 CPUs"), "{text}");
        assert_eq!(AdmissionLimit::of(-1, 1_000_000, 2), AdmissionLimit::Unlimited);
    }

    #[test]
    fn a_share_is_rounded_up_and_never_divides_by_nothing() {
        assert_eq!(Share { runtime_ns: 1, period_ns: 3 }.to_string(), "33.34 % (1 of 3 ns)");
        assert_eq!(
            Share { runtime_ns: u64::MAX, period_ns: 1 }.per_myriad(),
            Some(u128::from(u64::MAX) * 10_000)
        );
        assert_eq!(Share { runtime_ns: 1, period_ns: 0 }.to_string(), "1 of 0 ns");
    }
}
