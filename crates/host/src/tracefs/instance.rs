// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Private tracefs instances: made, filled by the events that are enabled in them, and removed.
//!
//! Enabling a tracepoint patches kernel code and interrupts every CPU, so an instance is made
//! before, and removed after, the time that is observed.

use super::event::{Event, EventKind, head, parse};
use super::timers::{self, Timers};
use super::{INSTANCES, name_of, remove_stale, timerlat};
use crate::architecture::{INTERRUPT_EVENTS, PAGE_FAULT_EVENTS};
use crate::clock::monotonic_ns;
use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::{Error, Result};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Marks in the buffer where the window opens.
const WINDOW: &str = "asmp: the window opens";

/// What a stream enables beside those of the architecture: every kernel has the first, not all have
/// the others.
const EVENTS: [&str; 9] = [
    "sched/sched_switch",
    "sched/sched_waking",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "timer/hrtimer_expire_entry",
    "ipi/ipi_entry",
    "ipi/ipi_exit",
];

/// What a line of the trace looks like. A new instance has the options that somebody gave the
/// top-level trace.
const OPTIONS: [(&str, &str); 11] = [
    ("context-info", "1"),
    ("irq-info", "1"),
    ("markers", "1"),
    ("record-tgid", "0"),
    ("latency-format", "0"),
    ("verbose", "0"),
    ("fields", "0"),
    ("raw", "0"),
    ("hex", "0"),
    ("bin", "0"),
    ("stacktrace", "0"),
];

/// An instance that is removed when dropped; its tracer ends first.
pub(super) struct Instance<'a> {
    kernel: &'a dyn Kernel,
    pub(super) dir: PathBuf,
}

impl<'a> Instance<'a> {
    /// An instance that records nothing yet, all CPUs by one clock (CLOCK_MONOTONIC): an event of
    /// one CPU stands before or after those of another as they happened. Errors: no tracefs, not
    /// root.
    pub(super) fn make(kernel: &'a dyn Kernel, role: &str) -> Result<Self> {
        remove_stale(kernel);
        let dir = Path::new(INSTANCES).join(name_of(kernel, role));
        kernel.make_dir(&dir).map_err(Error::io(&dir, "make the trace instance"))?;
        let instance = Self { kernel, dir };
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        for (option, value) in OPTIONS {
            // Not every kernel has each.
            let _ = instance.write(&format!("options/{option}"), value);
        }
        Ok(instance)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        self.kernel.write(&path, text.as_bytes()).map_err(Error::io(&path, "write"))
    }
}

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        remove(self.kernel, &self.dir);
    }
}

/// Ends the tracer of an instance and removes it.
pub(super) fn remove(kernel: &dyn Kernel, dir: &Path) {
    let tracer = dir.join("current_tracer");
    if kernel.text(&tracer).is_ok_and(|name| name != "nop") {
        let _ = kernel.write(&tracer, b"nop");
    }
    let _ = kernel.remove_dir(dir);
}

/// The pipe of an instance, which gives each event once.
struct Pipe {
    reader: Box<dyn Read + Send>,
    path: PathBuf,
    rest: Vec<u8>,
}

/// Reads of one call of [`Pipe::take`], each of a page or two: it ends also where a CPU records
/// faster than they take.
const MOST_READS: usize = 16_384;

impl Pipe {
    fn open(instance: &Instance, file: &str) -> Result<Self> {
        let path = instance.dir.join(file);
        let reader = instance.kernel.stream(&path).map_err(Error::io(&path, "open"))?;
        Ok(Self { reader, path, rest: Vec::new() })
    }

    /// The text recorded since the last call. Never waits. It stops behind the first event after
    /// `until_ns`: a CPU may record faster than this reads.
    fn take(&mut self, until_ns: u64) -> Result<String> {
        let mut page = [0; 65536];
        for _ in 0..MOST_READS {
            match self.reader.read(&mut page) {
                Ok(0) => break,
                Ok(count) => {
                    self.rest.extend_from_slice(&page[..count]);
                    if latest_ns(&page[..count]).is_some_and(|at_ns| at_ns > until_ns) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(&self.path, "read")(error)),
            }
        }
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// When the last event of a text was, whose head is whole.
fn latest_ns(text: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    text.lines().rev().find_map(|line| head(line).map(|(_, at_ns, _)| at_ns))
}

/// An instance whose events are read while the window lasts: switches, forks and page faults on
/// some CPUs, and migrations to and from them. It counts timers that expire there.
pub struct EventBuffer<'a> {
    /// Opened last and closed first.
    pipe: Pipe,
    instance: Instance<'a>,
    cpus: CpuSet,
    has_page_faults: bool,
    has_timers: bool,
    /// What was recorded before the window was taken.
    is_open: bool,
}

/// What the buffers of a window held.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Those of one CPU in order of time. Where the kernel had no room, [`EventKind::Lost`] stands.
    pub events: Vec<Event>,
    /// Whether page faults are among what is recorded: not every architecture has events for them.
    pub has_page_faults: bool,
    /// Events that found no room since the recording began.
    pub lost: u64,
}

impl<'a> EventBuffer<'a> {
    /// Makes an instance and enables its events, but records nothing yet. Errors: no tracefs, not
    /// root.
    pub fn prepare(kernel: &'a dyn Kernel, cpus: &CpuSet) -> Result<Self> {
        let instance = Instance::make(kernel, "window")?;
        let on = |field: &str| {
            cpus.iter().map(|cpu| format!("{field}=={cpu}")).collect::<Vec<_>>().join("||")
        };
        instance.write("events/sched/sched_switch/filter", &on("CPU"))?;
        // A migration happens on the CPU of its cause, so its own fields are filtered.
        instance.write(
            "events/sched/sched_migrate_task/filter",
            &format!("{}||{}", on("orig_cpu"), on("dest_cpu")),
        )?;
        instance.write("events/sched/sched_process_fork/filter", &on("CPU"))?;
        instance.write("events/sched/sched_process_fork/enable", "1")?;
        instance.write("events/sched/sched_switch/enable", "1")?;
        instance.write("events/sched/sched_migrate_task/enable", "1")?;
        let mut has_page_faults = true;
        for fault in PAGE_FAULT_EVENTS {
            match instance.write(&format!("events/{fault}/filter"), &on("CPU")) {
                Ok(()) => instance.write(&format!("events/{fault}/enable"), "1")?,
                Err(_) => has_page_faults = false,
            }
        }
        let count = format!("{} if {}", timers::TRIGGER, on("CPU"));
        let has_timers = timers::EVENTS
            .iter()
            .all(|event| instance.write(&format!("events/{event}/trigger"), &count).is_ok());
        let pipe = Pipe::open(&instance, "trace_pipe")?;
        let cpus = cpus.clone();
        Ok(Self { pipe, instance, cpus, has_page_faults, has_timers, is_open: false })
    }

    /// Timers that have expired so far; `None` where this kernel does not count them.
    pub fn timers(&self) -> Option<Timers> {
        let mut all = self.has_timers.then(Timers::new)?;
        for event in timers::EVENTS {
            let path = self.instance.dir.join("events").join(event).join("hist");
            timers::add(&mut all, &self.instance.kernel.text(&path).ok()?)?;
        }
        Some(all)
    }

    /// Records from now on.
    pub fn start(&self) -> Result<()> {
        self.instance.write("tracing_on", "1")
    }

    /// Discards everything recorded so far except forks, so that a caller who lists tasks between
    /// `start` and this call misses no child.
    pub fn open_window(&self) -> Result<()> {
        self.instance.write("trace_marker", WINDOW)
    }

    /// What was recorded since the window was opened, or since the last call. Never waits.
    pub fn take(&mut self) -> Result<Contents> {
        let text = self.pipe.take(monotonic_ns())?;
        let events = if self.is_open { parse(&text) } else { window(&text) };
        self.is_open = true;
        let lost = self.cpus.iter().map(|cpu| self.lost_on(cpu)).sum();
        Ok(Contents { events, has_page_faults: self.has_page_faults, lost })
    }

    fn lost_on(&self, cpu: Cpu) -> u64 {
        let path = self.instance.dir.join(format!("per_cpu/cpu{cpu}/stats"));
        let stats = self.instance.kernel.text(&path).unwrap_or_default();
        stats
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| matches!(*name, "overrun" | "dropped events" | "commit overrun"))
            .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
            .sum()
    }
}

/// The events of the window, and before them the forks that came before it. What cannot be read may
/// be a fork.
fn window(text: &str) -> Vec<Event> {
    let (before, after) = text.split_once(WINDOW).unwrap_or(("", text));
    let is_fork =
        |event: &Event| matches!(event.kind, EventKind::Fork { .. } | EventKind::Unreadable);
    parse(before).into_iter().filter(is_fork).chain(parse(after)).collect()
}

/// An instance that records one CPU and is read while it runs.
pub struct EventStream<'a> {
    /// Opened last and closed first: while it is open the instance keeps its tracer.
    pipe: Pipe,
    _instance: Instance<'a>,
}

impl<'a> EventStream<'a> {
    /// Records every interrupt, softirq, switch, wake-up and page fault on `cpu` from now on, as
    /// far as this kernel has events for them. Errors: no tracefs, not root.
    pub fn events(kernel: &'a dyn Kernel, cpu: Cpu) -> Result<Self> {
        let instance = Self::instance(kernel, cpu, "events")?;
        let all = EVENTS.iter().chain(&INTERRUPT_EVENTS).chain(&PAGE_FAULT_EVENTS);
        for (index, event) in all.enumerate() {
            let enabled = instance.write(&format!("events/{event}/enable"), "1");
            if index == 0 {
                enabled?;
            }
        }
        Self::start(instance, cpu)
    }

    /// Runs the kernel's timerlat tracer, as set by [`timerlat::Settings`], and records what it
    /// prints on `cpu`. Errors: `Content` where this kernel has no timerlat.
    pub fn timerlat(kernel: &'a dyn Kernel, cpu: Cpu) -> Result<Self> {
        timerlat::require(kernel)?;
        let instance = Self::instance(kernel, cpu, "timerlat")?;
        instance.write("current_tracer", "timerlat")?;
        Self::start(instance, cpu)
    }

    fn instance(kernel: &'a dyn Kernel, cpu: Cpu, role: &str) -> Result<Instance<'a>> {
        let instance = Instance::make(kernel, role)?;
        instance.write("tracing_cpumask", &CpuSet::from_iter([cpu]).to_mask())?;
        Ok(instance)
    }

    fn start(instance: Instance<'a>, cpu: Cpu) -> Result<Self> {
        let pipe = Pipe::open(&instance, &format!("per_cpu/cpu{cpu}/trace_pipe"))?;
        instance.write("tracing_on", "1")?;
        Ok(Self { pipe, _instance: instance })
    }

    /// Everything recorded from the last call to this one, in order of time. Never waits.
    pub fn take(&mut self) -> Result<Vec<Event>> {
        Ok(parse(&self.pipe.take(monotonic_ns())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use std::fs;

    /// Each read gives one event, a second after the one before it, for ever.
    struct Busy {
        at_s: u64,
    }

    impl Read for Busy {
        fn read(&mut self, mut page: &mut [u8]) -> std::io::Result<usize> {
            use std::io::Write;
            self.at_s += 1;
            let kind = "page_fault_user: address=0x1 ip=0x2 error_code=0x4";
            let line = format!(" sh-7 [002] d.... {}.000000: {kind}\n", self.at_s);
            page.write_all(line.as_bytes())?;
            Ok(line.len())
        }
    }

    #[test]
    fn a_cpu_that_records_faster_than_it_is_read_keeps_no_reader_from_ending() {
        let reader = Box::new(Busy { at_s: 0 });
        let mut pipe = Pipe { reader, path: PathBuf::new(), rest: Vec::new() };
        let mut seconds = |until_ns| -> Vec<u64> {
            let events = parse(&pipe.take(until_ns).unwrap());
            events.iter().map(|event| event.at_ns / 1_000_000_000).collect()
        };
        assert_eq!(seconds(3_500_000_000), [1, 2, 3, 4], "all before, and one more tells that");
        assert_eq!(seconds(5_500_000_000), [5, 6], "none is lost");
    }

    #[test]
    fn of_what_was_before_the_window_only_forks_are_kept() {
        let fork =
            " a-7 [003] ..... 1.0: sched_process_fork: comm=a pid=7 child_comm=a child_pid=8";
        let fault = " sh-7 [002] d.... 1.0: page_fault_user: address=0x1 ip=0x2 error_code=0x4";
        let mark = " asmp-5 [000] ..... 2.0: tracing_mark_write: asmp: the window opens";
        let forked = EventKind::Fork { parent: 7, child: 8 };
        let faulted = EventKind::PageFault { user: true };
        let kinds =
            |text: &str| window(text).into_iter().map(|event| event.kind).collect::<Vec<_>>();
        let text = [fault, fork, mark, fault].join("\n");
        assert_eq!(kinds(&text), [forked, faulted.clone()]);
        assert_eq!(kinds(fault), [faulted], "without a mark everything counts");
    }

    /// Time goes to a handler from its entry to its exit. The function of a timer has none of its
    /// own: it runs within the interrupt of the timer.
    #[test]
    fn a_handler_whose_entry_is_recorded_has_its_exit_recorded_too() {
        let all: Vec<&str> = EVENTS.into_iter().chain(INTERRUPT_EVENTS).collect();
        let without = |end: &str, other: &str| -> Vec<&str> {
            let names = all.iter().filter_map(|event| event.strip_suffix(end));
            names.filter(|name| !all.contains(&format!("{name}{other}").as_str())).collect()
        };
        assert_eq!(without("_entry", "_exit"), ["timer/hrtimer_expire"]);
        assert_eq!(without("_exit", "_entry"), [""; 0]);
    }

    /// Removing the directory fails where it holds files, as a plain directory does; the tracer's
    /// end shows.
    #[test]
    fn an_instance_is_removed_after_its_tracer_ended_and_only_one_that_has_a_tracer_is_told_to() {
        let dir = "/sys/kernel/tracing/instances/asmp-timerlat-1-1";
        let file = format!("{}/current_tracer", &dir[1..]);
        for (before, after) in [("timerlat\n", "noperlat\n"), ("nop\n", "nop\n")] {
            let (root, linux) = machine(&[(&file, before)]);
            remove(&linux, Path::new(dir));
            assert_eq!(fs::read_to_string(root.path().join(&file)).unwrap(), after);
        }
        let (root, linux) = machine(&[]);
        fs::create_dir_all(root.path().join(&dir[1..])).unwrap();
        remove(&linux, Path::new(dir));
        assert!(!linux.exists(Path::new(dir)));
    }
}
