// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own latency tracer, timerlat (trace/timerlat-tracer.rst): on each of its CPUs a
//! timer expires once a period, and a thread that waits for it says when it ran.
//!
//! Its settings hold for the whole machine. They are [`Knob`]s like all others, and
//! [`Settings::wanted`] says which text each must have, for a shield that journals and restores
//! them. Until the shield does, [`Borrowed`] holds them for one process.

use super::instance::Instance;
use super::{TRACING, remove_stale};
use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::knob::{self, Knob};
use crate::{Error, Result, task};
use std::path::{Path, PathBuf};

/// Which thread waits for timerlat's periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// A thread of the kernel, `timerlat/N`, which handles the event in the kernel.
    Kernel,
    /// A thread of user space that reads [`waiter`] once a period.
    User,
}

/// Does this kernel have timerlat? (Only PREEMPT_RT flavours of Debian do.)
pub fn is_available(kernel: &dyn Kernel) -> bool {
    require(kernel).is_ok()
}

/// Errors: `Content` where this kernel has no timerlat, `Io` without tracefs.
pub(super) fn require(kernel: &dyn Kernel) -> Result<()> {
    let path = Path::new(TRACING).join("available_tracers");
    let text = kernel.text(&path).map_err(Error::io(&path, "read"))?;
    match text.split_whitespace().any(|name| name == "timerlat") {
        true => Ok(()),
        false => {
            Err(Error::Content { path, text, expected: "timerlat in the list: boot a PREEMPT_RT kernel" })
        }
    }
}

/// The file that a thread of user space, pinned to `cpu`, reads once a period (since 6.5).
pub fn waiter(cpu: Cpu) -> PathBuf {
    Path::new(TRACING).join(format!("osnoise/per_cpu/cpu{cpu}/timerlat_fd"))
}

/// The kernel's thread on `cpu`, while timerlat runs for [`Handler::Kernel`].
pub fn kernel_thread(kernel: &dyn Kernel, cpu: Cpu) -> Option<i32> {
    let name = format!("timerlat/{cpu}");
    task::named(kernel, 1, |command| command == name).first().map(|task| task.id.tid)
}

/// How timerlat works, on the whole machine.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// As they are. Errors: `Io` where the kernel has no timerlat, `Content`.
    pub fn read(kernel: &dyn Kernel) -> Result<Self> {
        let options = knob::osnoise_options();
        let period = knob::timerlat_period_us();
        let text = period.read(kernel)?;
        let period_us = text.trim().parse().map_err(|_| Error::Content {
            path: period.path,
            text,
            expected: "a number of microseconds",
        })?;
        let handler = match options.holds(&options.read(kernel)?, knob::OSNOISE_WORKLOAD) {
            true => Handler::Kernel,
            false => Handler::User,
        };
        let cpus = knob::osnoise_cpus();
        Ok(Self { handler, period_us, cpus: cpus.cpus(&cpus.read(kernel)?)? })
    }

    pub(super) fn write(&self, kernel: &dyn Kernel) -> Result<()> {
        self.wanted().iter().try_for_each(|(knob, text)| knob.set(kernel, text))
    }

    /// As words of an instance's name, separated by `-`, which a list of CPUs may hold.
    fn to_name(&self) -> String {
        let workload = if self.handler == Handler::Kernel { "-workload" } else { "" };
        format!("{}-{}{workload}", self.period_us, self.cpus.to_string().replace('-', "_"))
    }

    /// What the words of an instance's name say.
    pub(super) fn of_instance(words: &str) -> Option<Self> {
        let mut words = words.split('-');
        let period_us = words.next()?.parse().ok()?;
        let cpus = words.next()?.replace('_', "-").parse().ok()?;
        let handler = if words.next().is_some() { Handler::Kernel } else { Handler::User };
        Some(Self { handler, period_us, cpus })
    }
}

/// Settings changed for this process, and restored when dropped. The name of a trace instance holds
/// what [`remove_stale`] restores if the process is killed.
pub struct Borrowed<'a> {
    kernel: &'a dyn Kernel,
    before: Settings,
    _carrier: Instance<'a>,
}

impl<'a> Borrowed<'a> {
    /// Errors: no timerlat, not root, or the kernel refuses a value; then all is as it was.
    pub fn set(kernel: &'a dyn Kernel, wanted: &Settings) -> Result<Self> {
        require(kernel)?;
        remove_stale(kernel);
        let before = Settings::read(kernel)?;
        let carrier = Instance::carrier(kernel, "osnoise", &before.to_name())?;
        let borrowed = Self { kernel, before, _carrier: carrier };
        wanted.write(kernel)?;
        Ok(borrowed)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let _ = self.before.write(self.kernel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Linux, machine};

    fn settings(handler: Handler, cpus: &str) -> Settings {
        Settings { handler, period_us: 1000, cpus: cpus.parse().unwrap() }
    }

    fn with_timerlat() -> (tempfile::TempDir, Linux) {
        machine(&[
            ("sys/kernel/tracing/available_tracers", "timerlat osnoise nop\n"),
            ("sys/kernel/tracing/instances/other/tracing_on", "1\n"),
            ("sys/kernel/tracing/osnoise/options", "NO_OSNOISE_WORKLOAD\n"),
            ("sys/kernel/tracing/osnoise/timerlat_period_us", "2000\n"),
            ("sys/kernel/tracing/osnoise/cpus", "0-3\n"),
        ])
    }

    #[test]
    fn the_name_of_an_instance_holds_what_was_before() {
        for (handler, cpus) in [(Handler::Kernel, "0-3"), (Handler::User, "1,4-7"), (Handler::Kernel, "")] {
            let before = settings(handler, cpus);
            assert_eq!(Settings::of_instance(&before.to_name()), Some(before), "{cpus}");
        }
        assert_eq!(Settings::of_instance(""), None);
    }

    #[test]
    fn each_setting_has_a_text_for_cpus_period_and_handler() {
        let text = |settings: Settings| settings.wanted().map(|(_, text)| text);
        assert_eq!(text(settings(Handler::User, "3")), ["NO_OSNOISE_WORKLOAD", "1000", "3"]);
        assert_eq!(text(settings(Handler::Kernel, "1-2")), ["OSNOISE_WORKLOAD", "1000", "1-2"]);
    }

    #[test]
    fn settings_are_read_and_a_kernel_without_timerlat_is_refused_in_its_own_words() {
        let (_root, linux) = with_timerlat();
        let read = Settings::read(&linux).unwrap();
        assert_eq!(read, Settings { handler: Handler::User, period_us: 2000, cpus: "0-3".parse().unwrap() });
        assert!(is_available(&linux));
        let (_root, linux) = machine(&[("sys/kernel/tracing/available_tracers", "hwlat nop\n")]);
        assert!(!is_available(&linux));
        let error = Borrowed::set(&linux, &settings(Handler::User, "3")).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("PREEMPT_RT") && !error.contains("--"), "{error}");
        assert!(Settings::read(&linux).unwrap_err().is_missing());
    }
}
