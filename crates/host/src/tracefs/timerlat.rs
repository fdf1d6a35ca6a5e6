// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own latency tracer, timerlat (trace/timerlat-tracer.rst): on each of its CPUs a
//! timer expires once a period, and a thread that waits for it says when it ran.
//!
//! Its settings hold for the whole machine. They are [`Knob`]s like all others, and
//! [`Settings::wanted`] says which text each must have. The shield sets, journals and restores
//! them.

use super::TRACING;
use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::knob::{self, Knob};
use crate::{Error, Result, task};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Which thread waits for timerlat's periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handler {
    /// A thread of the kernel, `timerlat/N`, which handles the event in the kernel.
    Kernel,
    /// A thread of user space that reads [`waiter`] once a period.
    User,
}

/// Does this kernel have timerlat? (Only PREEMPT_RT flavours of Debian do.)
pub fn is_available(kernel: &dyn Kernel) -> bool {
    is_known_available(kernel) == Some(true)
}

/// The same; `None` where this user cannot ask, or no tracefs is mounted.
pub fn is_known_available(kernel: &dyn Kernel) -> Option<bool> {
    match require(kernel) {
        Ok(()) => Some(true),
        Err(Error::Content { .. }) => Some(false),
        Err(_) => None,
    }
}

/// Errors: `Content` where this kernel has no timerlat, `Io` without tracefs.
pub(super) fn require(kernel: &dyn Kernel) -> Result<()> {
    let path = Path::new(TRACING).join("available_tracers");
    let text = kernel.text(&path).map_err(Error::io(&path, "read"))?;
    match text.split_whitespace().any(|name| name == "timerlat") {
        true => Ok(()),
        false => Err(Error::Content {
            path,
            text,
            expected: "timerlat in the list: boot a PREEMPT_RT kernel",
        }),
    }
}

/// The file that a thread of user space, pinned to `cpu`, reads once a period (since 6.5).
pub fn waiter(cpu: Cpu) -> PathBuf {
    Path::new(TRACING).join(format!("osnoise/per_cpu/cpu{cpu}/timerlat_fd"))
}

/// The kernel's thread on `cpu`, while timerlat runs for [`Handler::Kernel`].
pub fn kernel_thread(kernel: &dyn Kernel, cpu: Cpu) -> Option<i32> {
    let name = format!("timerlat/{cpu}");
    task::kernel_threads_named(kernel, 1, |command| command == name).first().map(|task| task.id.tid)
}

/// How timerlat works, on the whole machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub handler: Handler,
    /// 100 to 1,000,000.
    pub period_us: u64,
    /// Where its threads are.
    pub cpus: CpuSet,
}

impl Settings {
    /// The text that each setting must have. Pure.
    pub fn wanted(&self) -> [(Knob, String); 3] {
        let workload = match self.handler {
            Handler::Kernel => knob::OSNOISE_WORKLOAD.to_owned(),
            // The kernel starts no threads: a thread of user space takes their place.
            Handler::User => format!("NO_{}", knob::OSNOISE_WORKLOAD),
        };
        [
            (knob::osnoise_options(), workload),
            (knob::timerlat_period_us(), self.period_us.to_string()),
            (knob::osnoise_cpus(), self.cpus.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    fn settings(handler: Handler, cpus: &str) -> Settings {
        Settings { handler, period_us: 1000, cpus: cpus.parse().unwrap() }
    }

    #[test]
    fn each_setting_has_a_text_for_cpus_period_and_handler() {
        let text = |settings: Settings| settings.wanted().map(|(_, text)| text);
        assert_eq!(text(settings(Handler::User, "3")), ["NO_OSNOISE_WORKLOAD", "1000", "3"]);
        assert_eq!(text(settings(Handler::Kernel, "1-2")), ["OSNOISE_WORKLOAD", "1000", "1-2"]);
    }

    #[test]
    fn a_kernel_without_timerlat_is_refused_in_its_own_words() {
        let of = |tracers: &str| machine(&[("sys/kernel/tracing/available_tracers", tracers)]);
        let (_root, linux) = of("timerlat osnoise nop\n");
        assert!(is_available(&linux));
        let (_root, nothing) = machine(&[]);
        assert_eq!(is_known_available(&nothing), None, "no tracefs");
        let (_root, linux) = of("hwlat nop\n");
        assert_eq!((is_known_available(&linux), is_available(&linux)), (Some(false), false));
        let error = require(&linux).unwrap_err().to_string();
        assert!(error.contains("PREEMPT_RT") && !error.contains("--"), "{error}");
    }
}
