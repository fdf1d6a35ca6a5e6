// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of the page alone. Pure.

use crate::load::Load;
use crate::run::{Kind, Run, Source};
use crate::told::VIRTUAL;
use asmp_host::clock::utc;
use asmp_host::shown::shown_lines;

/// Text that looks like markup is text, and what would reorder it is shown as its escape.
pub fn escape(text: &str) -> String {
    let text = shown_lines(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// `2026-11-24 12:31 UTC`.
pub fn date(seconds: u64) -> String {
    let to_the_second = utc(seconds);
    let minute = to_the_second.rsplit_once(':').map_or("", |(minute, _)| minute);
    format!("{minute} UTC")
}

pub const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Normal => {
            "an ordinary task (SCHED_OTHER), on any CPU or, by timerlat, on the measured one"
        }
        Kind::FifoIrq => {
            "a real-time task (SCHED_FIFO), on the CPU that takes all device interrupts"
        }
        Kind::Fifo => "a real-time task (SCHED_FIFO), on a CPU that takes no device interrupts",
        Kind::PartitionTick => "a real-time task (SCHED_FIFO) in a partition that keeps its tick",
        Kind::Partition => {
            "a real-time task (SCHED_FIFO) in a partition whose tick was asked to stop"
        }
        Kind::Shared => {
            "a real-time task (SCHED_FIFO) in a partition whose CPU others share in user mode"
        }
        Kind::BestEffort => {
            "a real-time task (SCHED_FIFO) in a partition whose CPU others share, in the kernel too"
        }
    }
}

pub const fn load(load: Load) -> &'static str {
    match load {
        Load::Idle => "asmp started no load",
        Load::Unknown => "what else the machine did is not known",
        Load::Cpu => "processes that compute",
        Load::AsyncIo => "processes that write and do not wait for the disk",
        Load::Io => "processes that write and wait for the disk",
        Load::Mixed => "processes that compute, that write, and that wait for the disk",
        Load::Artis => "processes that compute, use disk and network, and take locks of the kernel",
        Load::Cache => {
            "processes that compute, write and wait for the disk, and on each CPU one that keeps \
             caches dirty and the TLB full"
        }
    }
}

pub const fn source(source: Source) -> &'static str {
    match source {
        Source::Nanosleep => "clock_nanosleep to an absolute instant, and the clock after it",
        Source::Timerlat => "the kernel's timerlat tracer, until user space",
        Source::TimerlatKernel => "the kernel's timerlat tracer, of a thread of the kernel",
        Source::Loop => "the clock before and after each turn of a loop",
        Source::Import => "another tool, which gave its histogram",
    }
}

/// Whose times a figure shows: kernel, CPU, and whether those of a virtual machine.
pub fn origin(runs: &[&Run]) -> String {
    let all = |of: fn(&Run) -> &str| {
        let mut all: Vec<&str> =
            runs.iter().map(|run| of(run)).filter(|one| *one != "unknown").collect();
        all.sort_unstable();
        all.dedup();
        all.join(", ")
    };
    let kernels = all(|run| &run.provenance.machine.kernel);
    let cpus = all(|run| &run.provenance.machine.cpu_model);
    let is_guest = runs.iter().any(|run| run.provenance.machine.hypervisor == Some(true));
    let guest = if is_guest { format!("; {VIRTUAL}") } else { String::new() };
    let cpus = if cpus.is_empty() { cpus } else { format!("; {cpus}") };
    format!("Kernel {kernels}{cpus}{guest}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_looks_like_markup_is_not() {
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
        assert_eq!(escape("a\u{202e}b\n\u{1b}"), "a\\u{202e}b\n\\u{1b}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_795_519_860), "2026-11-24 11:31 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
    }
}
