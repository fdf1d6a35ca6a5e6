// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies as `chrt` names them, and the two system calls that read and set them.

use crate::cpuset::CpuSet;
use asmp_duration::{DurationError, ExactDuration};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::str::FromStr;

/// Policy and parameters of one thread. Times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "policy")]
pub enum Schedule {
    Other {
        nice: i32,
    },
    Batch {
        nice: i32,
    },
    Idle,
    Fifo {
        priority: u32,
    },
    Rr {
        priority: u32,
    },
    Deadline {
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    },
    /// A policy that asmp never sets (`SCHED_EXT`, or a newer one).
    Unknown {
        number: u32,
    },
}

impl Schedule {
    pub const fn is_real_time(&self) -> bool {
        matches!(self, Self::Fifo { .. } | Self::Rr { .. } | Self::Deadline { .. })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { nice: 0 } => write!(f, "other"),
            Self::Other { nice } => write!(f, "other (nice {nice})"),
            Self::Batch { .. } => write!(f, "batch"),
            Self::Idle => write!(f, "idle"),
            Self::Fifo { priority } => write!(f, "fifo:{priority}"),
            Self::Rr { priority } => write!(f, "rr:{priority}"),
            Self::Deadline { runtime_ns, deadline_ns, period_ns } => {
                let times = [runtime_ns, deadline_ns, period_ns];
                let text = times.map(|ns| ExactDuration::from_ns(*ns).to_string().replace(' ', ""));
                write!(f, "deadline:{}", text.join("/"))
            }
            Self::Unknown { number } => write!(f, "policy {number}"),
        }
    }
}

/// Why a text is not a policy; holds the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "invalid policy {0:?}: expected fifo:1..99, rr:1..99, deadline:RUNTIME/DEADLINE/PERIOD, \
         other, batch or idle"
    )]
    NotAPolicy(String),
    #[error("invalid policy {0:?}: the priority must be 1 to 99")]
    Priority(String),
    #[error(
        "invalid policy {0:?}: expected three times, e.g. deadline:1ms/5ms/10ms, with 1024ns <= \
         RUNTIME <= DEADLINE <= PERIOD, see sched(7)"
    )]
    Deadline(String),
    #[error("invalid policy {text:?}: {reason}")]
    Time { text: String, reason: DurationError },
}

impl FromStr for Schedule {
    type Err = PolicyError;

    /// Accepts `fifo:80`, `SCHED_FIFO:80`, `rr:1`, `deadline:1ms/5ms/10ms`, `other`, `batch`,
    /// `idle`.
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let (name, argument) = match text.trim().split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text.trim(), None),
        };
        let lower = name.to_ascii_lowercase();
        let name = lower.strip_prefix("sched_").unwrap_or(&lower);
        let not_a_policy = || PolicyError::NotAPolicy(text.to_owned());
        let priority = || match argument.ok_or_else(not_a_policy)?.parse::<u32>() {
            Ok(priority @ 1..=99) => Ok(priority),
            _ => Err(PolicyError::Priority(text.to_owned())),
        };
        match (name, argument) {
            ("other" | "normal", None) => Ok(Self::Other { nice: 0 }),
            ("batch", None) => Ok(Self::Batch { nice: 0 }),
            ("idle", None) => Ok(Self::Idle),
            ("fifo", _) => Ok(Self::Fifo { priority: priority()? }),
            ("rr", _) => Ok(Self::Rr { priority: priority()? }),
            ("deadline", Some(times)) => {
                let bad = || PolicyError::Deadline(text.to_owned());
                let ns = |time: &str| Ok(time.parse::<ExactDuration>()?.whole_ns()?);
                let wrong = |reason| PolicyError::Time { text: text.to_owned(), reason };
                let times: Result<Vec<u64>, DurationError> = times.split('/').map(ns).collect();
                match times.map_err(wrong)?[..] {
                    [runtime_ns, deadline_ns, period_ns]
                        if 1024 <= runtime_ns
                            && runtime_ns <= deadline_ns
                            && deadline_ns <= period_ns =>
                    {
                        Ok(Self::Deadline { runtime_ns, deadline_ns, period_ns })
                    }
                    _ => Err(bad()),
                }
            }
            _ => Err(not_a_policy()),
        }
    }
}

/// `struct sched_attr` of `sched_setattr(2)`, version 0 (48 bytes).
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SCHED_EXT: u32 = 7;

impl SchedAttr {
    fn of(schedule: &Schedule) -> Self {
        let empty = Self { size: size_of::<Self>() as u32, ..Self::default() };
        match *schedule {
            Schedule::Other { nice } => Self { policy: libc::SCHED_OTHER as u32, nice, ..empty },
            Schedule::Batch { nice } => Self { policy: libc::SCHED_BATCH as u32, nice, ..empty },
            Schedule::Idle => Self { policy: libc::SCHED_IDLE as u32, ..empty },
            Schedule::Fifo { priority } => {
                Self { policy: libc::SCHED_FIFO as u32, priority, ..empty }
            }
            Schedule::Rr { priority } => Self { policy: libc::SCHED_RR as u32, priority, ..empty },
            Schedule::Deadline { runtime_ns, deadline_ns, period_ns } => Self {
                policy: libc::SCHED_DEADLINE as u32,
                runtime_ns,
                deadline_ns,
                period_ns,
                ..empty
            },
            Schedule::Unknown { number } => Self { policy: number, ..empty },
        }
    }

    fn schedule(&self) -> Schedule {
        match self.policy as i32 {
            libc::SCHED_OTHER => Schedule::Other { nice: self.nice },
            libc::SCHED_BATCH => Schedule::Batch { nice: self.nice },
            libc::SCHED_IDLE => Schedule::Idle,
            libc::SCHED_FIFO => Schedule::Fifo { priority: self.priority },
            libc::SCHED_RR => Schedule::Rr { priority: self.priority },
            libc::SCHED_DEADLINE => Schedule::Deadline {
                runtime_ns: self.runtime_ns,
                deadline_ns: self.deadline_ns,
                period_ns: self.period_ns,
            },
            _ => Schedule::Unknown { number: self.policy.max(SCHED_EXT) },
        }
    }
}

/// `sched_getattr(2)` of a thread; 0 is the caller. Errors: ESRCH.
pub fn get(tid: i32) -> io::Result<Schedule> {
    Ok(read(tid)?.schedule())
}

fn read(tid: i32) -> io::Result<SchedAttr> {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: the kernel writes at most `size` bytes into `attr`, which is that large and outlives
    // the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0u32) };
    if result == 0 { Ok(attr) } else { Err(io::Error::last_os_error()) }
}

/// `sched_setattr(2)` of a thread; 0 is the caller. Errors: ESRCH, EPERM, EBUSY (deadline
/// admission), EINVAL. A thread whose children do not inherit its policy stays so.
/// Async-signal-safe: allocates nothing, so it may run between fork and exec.
pub fn set(tid: i32, schedule: &Schedule) -> io::Result<()> {
    let flags = read(tid)?.flags & libc::SCHED_FLAG_RESET_ON_FORK as u64;
    let attr = SchedAttr { flags, ..SchedAttr::of(schedule) };
    // SAFETY: the kernel reads `attr.size` bytes of `attr`, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Confines a thread to these CPUs (`sched_setaffinity(2)`). Errors: ESRCH, EPERM, EINVAL (its
/// cpuset has none of them, or it is a kernel thread bound to its CPU).
pub fn confine(tid: i32, cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads `size_of_val(words)` bytes of `words`, which outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(words), words.as_ptr())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The online CPUs that a thread may run on (`sched_getaffinity(2)`). Errors: ESRCH.
pub fn affinity(tid: i32) -> io::Result<CpuSet> {
    // More than any kernel has: NR_CPUS is at most 8192.
    let mut words = [0_u64; 1024 / 8];
    // SAFETY: the kernel writes at most `size_of_val(&words)` bytes into `words`.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&words), words.as_mut_ptr())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(CpuSet::of_words(words.into_iter()))
}

/// How long real-time tasks of a process may run without sleeping, in microseconds: RLIMIT_RTTIME
/// of getrlimit(2). `None`: without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    pub soft_us: Option<u64>,
    /// Only root can raise it.
    pub hard_us: Option<u64>,
}

/// prlimit(2).
pub fn limit(process: i32, limits: TimeLimits) -> io::Result<()> {
    let pid = Pid::from_raw(process).ok_or(Errno::SRCH)?;
    let limits = Rlimit { current: limits.soft_us, maximum: limits.hard_us };
    prlimit(Some(pid), Resource::Rttime, limits)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_spelled_as_in_chrt() {
        let is = |text: &str, expected: Schedule| assert_eq!(text.parse(), Ok(expected), "{text}");
        is("fifo:80", Schedule::Fifo { priority: 80 });
        is("SCHED_RR:1", Schedule::Rr { priority: 1 });
        is("other", Schedule::Other { nice: 0 });
        is("idle", Schedule::Idle);
        is(
            "deadline:500us/2ms/0.1kHz",
            Schedule::Deadline {
                runtime_ns: 500_000,
                deadline_ns: 2_000_000,
                period_ns: 10_000_000,
            },
        );
    }

    #[test]
    fn a_thread_whose_children_inherit_no_policy_keeps_that() {
        let flags_after = |before: u64| {
            let thread = std::thread::spawn(move || {
                let attr = SchedAttr { flags: before, ..SchedAttr::of(&Schedule::Idle) };
                // SAFETY: the kernel reads `attr.size` bytes of `attr`, which outlives the call.
                let result =
                    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0u32) };
                assert_eq!(result, 0, "{}", io::Error::last_os_error());
                set(0, &Schedule::Batch { nice: 5 }).unwrap();
                let after = read(0).unwrap();
                assert_eq!(after.schedule(), Schedule::Batch { nice: 5 });
                after.flags
            });
            thread.join().unwrap()
        };
        let reset_on_fork = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        assert_eq!((flags_after(reset_on_fork), flags_after(0)), (reset_on_fork, 0));
    }

    #[test]
    fn wrong_policies_say_what_is_right() {
        for text in [
            "fifo",
            "fifo:0",
            "fifo:100",
            "rr:x",
            "fast",
            "",
            "other:3",
            "deadline:1ms",
            "deadline:2ms/1ms/3ms",
            "deadline:1/2/3",
        ] {
            assert!(text.parse::<Schedule>().unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn the_times_of_a_deadline_have_units_and_are_whole_nanoseconds() {
        for (text, cure) in [
            ("deadline:1000000/2ms/3ms", "has no unit: write 1000000ns, 1000000us, 1000000ms or"),
            ("deadline:1ms/2ms/3 fortnights", "unknown unit \"fortnights\""),
            ("deadline:1ms/2ms/3kHz", "1/3 ms is not a whole number of nanoseconds: use 333333 ns"),
            ("deadline:1000ns/2ms/3ms", "1024ns <= RUNTIME <= DEADLINE <= PERIOD"),
        ] {
            let refused = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(refused.contains(text) && refused.contains(cure), "{refused}");
        }
        let schedule: Schedule = "SCHED_DEADLINE:1.5 ms/5ms/10ms".parse().unwrap();
        assert_eq!(schedule.to_string(), "deadline:1.5ms/5ms/10ms");
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
    }

    #[test]
    fn the_cpus_of_a_thread_are_read_as_in_its_file() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let [allowed, online] = [list.unwrap(), online.trim()].map(|list| list.parse().unwrap());
        let both: CpuSet = CpuSet::intersection(&allowed, &online);
        assert_eq!(affinity(0).unwrap(), both);
        assert_eq!(affinity(i32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn the_callers_own_schedule_can_be_read_and_a_missing_thread_cannot() {
        // SAFETY: sched_getscheduler(2) takes a number and touches no memory.
        let class = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        let word = match class {
            libc::SCHED_OTHER => "other",
            libc::SCHED_BATCH => "batch",
            libc::SCHED_IDLE => "idle",
            libc::SCHED_FIFO => "fifo",
            class => panic!("test run under class {class}"),
        };
        let own = get(0).unwrap().to_string();
        assert!(own.starts_with(word), "{own}, {word}");
        assert_eq!(get(i32::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
