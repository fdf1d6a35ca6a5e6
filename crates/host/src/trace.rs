//! A private tracefs instance: who was switched in on some CPUs, who migrated, whose children began there, which page faults
//! came.
//!
//! Switching a tracepoint on or off patches kernel code and interrupts every CPU, so an instance is made
//! before and removed after the window that is counted. Nobody waits for data (a waiting reader would be
//! woken by the traced CPU): the buffers are read when the window is over. Their size stays the kernel's
//! (1.4 MB a CPU): resizing waits for a kernel worker of each CPU, and a busy real-time task starves it for
//! ever. trace/ftrace.rst.

use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::record;
use crate::{Error, Result};
use std::path::PathBuf;

/// What stands in the trace where the window opens.
const WINDOW: &str = "asmp: the window opens";
const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// An instance that is removed when dropped.
pub struct Tracer<'a> {
    kernel: &'a dyn Kernel,
    dir: PathBuf,
    cpus: CpuSet,
}

/// One event of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// On `cpu` this task was switched in; 0 is idle.
    Switch { cpu: Cpu, tid: i32, command: String },
    /// A task was moved from one CPU to another.
    Migration { tid: i32, command: String, from: Cpu, to: Cpu },
    /// A task on one of the CPUs made another, a process or a thread.
    Fork { parent: i32, child: i32 },
    /// A page fault on `cpu`, of user or kernel code.
    PageFault { cpu: Cpu, user: bool },
}

/// What the buffers held, and how many events they lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub events: Vec<Event>,
    pub lost: u64,
}

impl<'a> Tracer<'a> {
    /// Makes an instance and switches its events on, but records nothing yet. Errors: no tracefs, not root.
    pub fn prepare(kernel: &'a dyn Kernel, cpus: &CpuSet) -> Result<Self> {
        record::remove_stale(kernel);
        let dir = PathBuf::from(format!("{INSTANCES}/asmp-{}", std::process::id()));
        kernel.make_dir(&dir).map_err(Error::io(&dir, "make the trace instance"))?;
        let tracer = Self { kernel, dir, cpus: cpus.clone() };
        tracer.write("tracing_on", "0")?;
        // One clock for all CPUs: events of one stand before or after those of another as they happened.
        tracer.write("trace_clock", "mono")?;
        // A migration happens on the CPU of whoever causes it: filtered by its fields, not by the CPU.
        let on =
            |field: &str| cpus.iter().map(|cpu| format!("{field}=={cpu}")).collect::<Vec<_>>().join("||");
        tracer.write("events/sched/sched_switch/filter", &on("CPU"))?;
        tracer.write(
            "events/sched/sched_migrate_task/filter",
            &format!("{}||{}", on("orig_cpu"), on("dest_cpu")),
        )?;
        tracer.write("events/sched/sched_process_fork/filter", &on("CPU"))?;
        tracer.write("events/sched/sched_process_fork/enable", "1")?;
        tracer.write("events/sched/sched_switch/enable", "1")?;
        tracer.write("events/sched/sched_migrate_task/enable", "1")?;
        for fault in ["page_fault_user", "page_fault_kernel"] {
            // Only x86 has these events.
            if tracer.write(&format!("events/exceptions/{fault}/filter"), &on("CPU")).is_ok() {
                tracer.write(&format!("events/exceptions/{fault}/enable"), "1")?;
            }
        }
        Ok(tracer)
    }

    /// Records from now on.
    pub fn start(&self) -> Result<()> {
        self.write("tracing_on", "1")
    }

    /// What was recorded so far counts no more, but for who made whom: whoever asks which tasks there are between `start` and
    /// this misses no child.
    pub fn open_window(&self) -> Result<()> {
        self.write("trace_marker", WINDOW)
    }

    /// Ends recording and reads what the CPUs and the causes of migrations left.
    pub fn stop(&self) -> Result<Trace> {
        self.write("tracing_on", "0")?;
        let path = self.dir.join("trace");
        let text = self.kernel.text(&path).map_err(Error::io(&path, "read"))?;
        let lost = self.cpus.iter().map(|cpu| self.lost_on(cpu)).sum();
        Ok(Trace { events: window(&text), lost })
    }

    fn lost_on(&self, cpu: Cpu) -> u64 {
        let stats = self.kernel.text(&self.dir.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap_or_default();
        stats
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| matches!(*name, "overrun" | "dropped events" | "commit overrun"))
            .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
            .sum()
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        self.kernel.write(&path, text.as_bytes()).map_err(Error::io(&path, "write"))
    }
}

impl Drop for Tracer<'_> {
    fn drop(&mut self) {
        let _ = self.kernel.remove_dir(&self.dir);
    }
}

/// The events of the window, and before them the forks that came before it.
fn window(text: &str) -> Vec<Event> {
    let (before, after) = text.split_once(WINDOW).unwrap_or(("", text));
    let forks = before.lines().filter_map(parse).filter(|event| matches!(event, Event::Fork { .. }));
    forks.chain(after.lines().filter_map(parse)).collect()
}

/// `comm-PID [003] d..2. 12.345: sched_switch: prev_comm=… ==> next_comm=… next_pid=7 next_prio=120`.
/// Commands may hold anything, so fields are searched from the right.
fn parse(line: &str) -> Option<Event> {
    if line.starts_with('#') {
        return None;
    }
    let (head, body) =
        ["sched_switch", "sched_migrate_task", "sched_process_fork", "page_fault_user", "page_fault_kernel"]
            .iter()
            .find_map(|name| line.find(&format!(": {name}: ")).map(|at| line.split_at(at + 2)))?;
    let cpu: Cpu = head.rsplit('[').next()?.split(']').next()?.trim().parse().ok()?;
    let field = |name: &str| -> Option<&str> {
        let at = body.rfind(&format!(" {name}="))?;
        body[at + name.len() + 2..].split_whitespace().next()
    };
    let command = |from: &str, to: &str| -> Option<String> {
        let end = body.rfind(&format!(" {to}="))?;
        let start = body[..end].rfind(&format!("{from}="))? + from.len() + 1;
        Some(body[start..end].to_owned())
    };
    if body.starts_with("sched_switch") {
        let tid = field("next_pid")?.parse().ok()?;
        return Some(Event::Switch { cpu, tid, command: command("next_comm", "next_pid")? });
    }
    if body.starts_with("sched_migrate_task") {
        return Some(Event::Migration {
            tid: field("pid")?.parse().ok()?,
            command: command("comm", "pid")?,
            from: field("orig_cpu")?.parse().ok()?,
            to: field("dest_cpu")?.parse().ok()?,
        });
    }
    if body.starts_with("sched_process_fork") {
        // `comm=… pid=7 child_comm=… child_pid=8`
        let parent = &body[..body.rfind(" child_comm=")?];
        let at = parent.rfind(" pid=")? + " pid=".len();
        return Some(Event::Fork {
            parent: parent[at..].parse().ok()?,
            child: field("child_pid")?.parse().ok()?,
        });
    }
    Some(Event::PageFault { cpu, user: body.starts_with("page_fault_user") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_whatever_the_tasks_are_called() {
        let line = "  a ==> b [9]-77    [003] d..2.    12.345678: sched_switch: prev_comm=a ==> b prev_pid=77 prev_prio=120 prev_state=S ==> next_comm=x next_pid=1 y next_pid=4242 next_prio=19";
        assert_eq!(parse(line), Some(Event::Switch { cpu: 3, tid: 4242, command: "x next_pid=1 y".into() }));
    }

    #[test]
    fn migrations_and_faults_are_read() {
        let line =
            " sh-7 [000] d..3. 1.0: sched_migrate_task: comm=my app pid=9 prio=120 orig_cpu=3 dest_cpu=1";
        assert_eq!(parse(line), Some(Event::Migration { tid: 9, command: "my app".into(), from: 3, to: 1 }));
        let line = " sh-7 [002] d.... 1.0: page_fault_user: address=0x1 ip=0x2 error_code=0x4";
        assert_eq!(parse(line), Some(Event::PageFault { cpu: 2, user: true }));
    }

    #[test]
    fn a_fork_is_read_whatever_the_tasks_are_called() {
        let line = " a pid=1-7 [003] ..... 1.0: sched_process_fork: comm=a pid=1 pid=7 child_comm=a pid=1 child_pid=8";
        assert_eq!(parse(line), Some(Event::Fork { parent: 7, child: 8 }));
    }

    #[test]
    fn of_what_was_before_the_window_only_forks_are_kept() {
        let fork = " a-7 [003] ..... 1.0: sched_process_fork: comm=a pid=7 child_comm=a child_pid=8";
        let fault = " sh-7 [002] d.... 1.0: page_fault_user: address=0x1 ip=0x2 error_code=0x4";
        let mark = " asmp-5 [000] ..... 2.0: tracing_mark_write: asmp: the window opens";
        let (forked, faulted) =
            (Event::Fork { parent: 7, child: 8 }, Event::PageFault { cpu: 2, user: true });
        let text = [fault, fork, mark, fault].join("\n");
        assert_eq!(window(&text), [forked, faulted.clone()]);
        assert_eq!(window(fault), [faulted], "without a mark everything counts");
    }

    #[test]
    fn other_lines_are_none() {
        for line in
            ["# tracer: nop", "", "CPU:3 [LOST 12 EVENTS]", " sh-7 [000] d..3. 1.0: sched_switch: torn"]
        {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
