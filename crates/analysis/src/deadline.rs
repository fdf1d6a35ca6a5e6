// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SCHED_DEADLINE: what the kernel admits, what that is worth, and what one queue a CPU would admit
//! instead.
//!
//! Admission as in kernel/sched/deadline.c (`__dl_overflow`, `to_ratio` in kernel/sched/core.c) and
//! Documentation/scheduler/sched-deadline.rst: per root domain, the sum of `floor(runtime 2^20 /
//! period)` must not exceed `m floor(rt_runtime 2^20 / rt_period)`, by default 95 % of each of m
//! CPUs. Since 6.12 the deadline server of each CPU (50 ms of 1 s) is in the sum. It looks at
//! runtime and period, never at the deadline.
//!
//! What it is worth: on one CPU, with the deadlines equal to the periods, they are met. On m CPUs
//! (global EDF) admission only bounds the lateness (Devi, Anderson 2005); deadlines are met if the
//! densities `d_i = C_i / min(D_i, T_i)` satisfy `sum d_i <= m - (m - 1) max d_i` (Goossens, Funk,
//! Baruah, Real-Time Systems 25, 2003).

use crate::check::check;
use crate::place::{By, Placement, Room, place};
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{About, Doubt, Effort, Inapplicable, Stop, Verdict};
use crate::{edf, utilisation::Utilisation};
#[cfg(feature = "files")]
use serde::Serialize;

const BW_SHIFT: u32 = 20;
/// Runtimes below 2^10 ns are refused (DL_SCALE).
const LEAST_RUNTIME_NS: u64 = 1 << 10;

/// A root domain: CPUs that share one admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Domain {
    pub cpus: u32,
    /// `kernel.sched_rt_runtime_us` and `kernel.sched_rt_period_us`; `None`: -1, no admission
    /// control.
    pub rt_runtime_us: Option<u64>,
    pub rt_period_us: u64,
    /// What the deadline servers of its CPUs have booked together, in units of 2^-20 CPU: the sum
    /// of their [`ratio`]s.
    pub servers: u64,
    /// `kernel.sched_deadline_period_min_us` and `_max_us`.
    pub least_period_ns: u64,
    pub most_period_ns: u64,
}

impl Domain {
    /// The kernel's defaults, without a deadline server.
    pub const fn of(cpus: u32) -> Self {
        Self {
            cpus,
            rt_runtime_us: Some(950_000),
            rt_period_us: 1_000_000,
            servers: 0,
            least_period_ns: 100_000,
            most_period_ns: (1 << 22) * 1000,
        }
    }
}

/// What the kernel does and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Admission {
    /// In units of 2^-20 CPU, servers included.
    pub asked: u64,
    /// `None`: no admission control.
    pub limit: Option<u64>,
    pub admitted: bool,
    /// The first task that no longer fits, in the order of the set.
    pub refused: Option<usize>,
    /// Whether every deadline is met under (global) EDF by tasks that keep to their runtimes.
    pub deadlines: Verdict,
    /// One queue a CPU instead (worst-fit decreasing with the exact EDF test). `None`: the workload
    /// has what a placement would ignore.
    pub partitioned: Option<Placement>,
}

/// `to_ratio` of the kernel: what it books for a runtime in a period, in units of 2^-20 CPU.
pub const fn ratio(period_ns: u64, runtime_ns: u64) -> u64 {
    // As the kernel computes, in 64 bits: a runtime is below 2^44 there.
    match (runtime_ns as u128 * (1 << BW_SHIFT)).checked_div(period_ns as u128) {
        Some(ratio) if ratio <= u64::MAX as u128 => ratio as u64,
        _ => 0,
    }
}

/// The tasks have a tick of a nanosecond, and each CPU has this room. Errors: sets that
/// `sched_setattr` refuses with EINVAL, and jitter, which the kernel does not support.
pub fn admission(
    tasks: &[Task],
    room: &Room,
    domain: &Domain,
    effort: &Effort,
) -> Result<Admission, Stop> {
    check(tasks)?;
    for task in tasks {
        valid(task, domain)?;
    }
    if domain.cpus == 0 || domain.rt_period_us == 0 {
        return Err(Inapplicable::Set {
            about: About::File,
            key: "",
            what: "the root domain has no CPU, or sched_rt_period_us is 0".to_owned(),
        }
        .into());
    }
    let limit = domain.rt_runtime_us.map(|runtime_us| {
        let one = ratio(domain.rt_period_us.saturating_mul(1000), runtime_us.saturating_mul(1000));
        one.saturating_mul(u64::from(domain.cpus))
    });
    let mut asked = domain.servers;
    let mut refused = None;
    for (index, task) in tasks.iter().enumerate() {
        asked = asked.saturating_add(ratio(task.period_ticks, task.cost_ticks()));
        if refused.is_none() && limit.is_some_and(|limit| asked > limit) {
            refused = Some(index);
        }
    }
    let free: Vec<Task> = tasks.iter().map(|task| Task { core: None, ..task.clone() }).collect();
    let cpus: Vec<u32> = (0..domain.cpus).collect();
    Ok(Admission {
        asked,
        limit,
        admitted: refused.is_none(),
        refused,
        deadlines: deadlines(tasks, domain, effort),
        partitioned: Some(place(&free, &cpus, By::WorstFit, Policy::Edf, room, effort)?),
    })
}

/// The rules of `__checkparam_dl`.
fn valid(task: &Task, domain: &Domain) -> Result<(), Inapplicable> {
    if task.jitter_ticks > 0 {
        // A wake-up starts the kernel's deadline: it knows of no arrival before.
        return Err(Inapplicable::Unsupported { task: task.name.clone(), what: "jitter" });
    }
    let rules = [
        (task.cost_ticks() < LEAST_RUNTIME_NS, "the runtime is below 1024 ns"),
        (task.cost_ticks() > task.deadline_ticks, "the runtime is longer than the deadline"),
        (task.deadline_ticks > task.period_ticks, "the deadline is longer than the period"),
        (
            task.period_ticks < domain.least_period_ns,
            "the period is below sched_deadline_period_min_us",
        ),
        (
            task.period_ticks > domain.most_period_ns,
            "the period is above sched_deadline_period_max_us",
        ),
    ];
    match rules.iter().find(|(broken, _)| *broken) {
        Some((_, rule)) => Err(Inapplicable::Kernel { task: task.name.clone(), rule }),
        None => Ok(()),
    }
}

fn deadlines(tasks: &[Task], domain: &Domain, effort: &Effort) -> Verdict {
    if domain.cpus == 1 {
        return edf::test(tasks, effort);
    }
    // The test of densities knows no section that holds up others.
    if let Some(task) = tasks.iter().find(|task| task.blocking_ticks > 0) {
        let reason = Inapplicable::Unsupported { task: task.name.clone(), what: "blocking" };
        return Verdict::DoesNotApply { reason };
    }
    let one: u128 = 1 << 64;
    let density = |task: &Task| {
        let window = u128::from(task.deadline_ticks.min(task.period_ticks));
        (u128::from(task.cost_ticks()) << 64).div_ceil(window)
    };
    let sum = tasks.iter().map(density).fold(0, u128::saturating_add);
    let most = tasks.iter().map(density).max().unwrap_or(0);
    let cpus = u128::from(domain.cpus);
    let allowed = (cpus * one).checked_sub((cpus - 1).saturating_mul(most));
    if allowed.is_some_and(|allowed| sum <= allowed) {
        return Verdict::Schedulable;
    }
    let what = if Utilisation::of(tasks).approximate() > f64::from(domain.cpus) {
        "the tasks request more than all CPUs: lateness grows without bound".to_owned()
    } else {
        "global EDF bounds the lateness, but not below the deadlines".to_owned()
    };
    Verdict::Unknown { reason: Doubt::Sufficient { what } }
}
