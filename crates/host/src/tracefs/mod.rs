// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel's tracer recorded on some CPUs, through private tracefs instances
//! (trace/ftrace.rst): which tasks ran, which interrupts came, which CPUs tasks moved between.
//!
//! - [`EventBuffer`]: the events of a window on some CPUs, read while it lasts;
//! - [`EventStream`]: the events of one CPU, read while it runs, to compare a late sample with what
//!   the kernel did just then;
//! - [`Moves`]: which tasks are moved from one cgroup to another;
//! - [`timerlat`]: the kernel's own latency tracer and its settings for the whole machine;
//! - [`users`]: who uses that tracer, or osnoise, which shares them.
//!
//! Of these only the reader of [`Moves`] waits in the kernel for data: the traced CPU would have to
//! wake the others. Each buffer keeps
//! the kernel's size (1.4 MB a CPU), because resizing waits for a worker thread on each CPU, which
//! a busy real-time task starves.
//!
//! Events are read as text, not from `trace_pipe_raw`: the binary layout of a page and of each
//! event differs between kernels and would have to be parsed from `events/*/format`, and the
//! microseconds that the text shows are enough to name a cause (timerlat's own times are in
//! nanoseconds).

mod event;
mod instance;
mod moves;
pub mod timerlat;
pub mod timers;
pub mod users;

pub use event::{Event, EventKind, parse};
pub use instance::{Contents, EventBuffer, EventStream};
pub use moves::{Entered, Moved, Moves, TakenOut, Tasks};

use crate::kernel::Kernel;
use crate::task::{self, TaskId};
use std::path::Path;

const TRACING: &str = "/sys/kernel/tracing";
const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// The name of an instance of this process: `asmp-ROLE-PID-START`.
fn name_of(kernel: &dyn Kernel, role: &str) -> String {
    let pid = std::process::id() as i32;
    // Without /proc the start is unknown; then the instance is taken for one of a dead process.
    let start_ticks = task::identify(kernel, pid).map_or(0, |id| id.start_ticks);
    format!("asmp-{role}-{pid}-{start_ticks}")
}

/// The process that an instance belongs to.
fn owner_of(name: &str) -> Option<TaskId> {
    let mut words = name.strip_prefix("asmp-")?.splitn(3, '-').skip(1);
    let tid = words.next()?.parse().ok()?;
    let start_ticks = words.next()?.parse().ok()?;
    Some(TaskId { tid, start_ticks })
}

/// Removes the instances of asmp processes that were killed. Does nothing without tracefs.
pub fn remove_stale(kernel: &dyn Kernel) {
    for name in kernel.list(Path::new(INSTANCES)).unwrap_or_default() {
        let Some(owner) = owner_of(&name) else { continue };
        if task::identify(kernel, owner.tid) != Some(owner) {
            instance::remove(kernel, &Path::new(INSTANCES).join(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Linux, machine};

    const STAT: &str = "77 (asmp) S 2 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n";

    fn instances(linux: &Linux) -> Vec<String> {
        linux.list(Path::new(INSTANCES)).unwrap()
    }

    #[test]
    fn an_instance_names_its_owner() {
        let owner = TaskId { tid: 77, start_ticks: 4242 };
        assert_eq!(owner_of("asmp-events-77-4242"), Some(owner));
        for name in ["asmp-events", "asmp-77", "asmp-events-77", "lab-events-77-4242", "asmp-x-y-1"]
        {
            assert_eq!(owner_of(name), None, "{name}");
        }
        let (_root, linux) = machine(&[]);
        let mine = name_of(&linux, "events");
        assert_eq!(owner_of(&mine).unwrap().tid, std::process::id() as i32, "{mine}");
    }

    /// Another process may have the number of one that was killed.
    #[test]
    fn only_instances_of_the_dead_are_removed_even_where_their_number_is_used_again() {
        let (root, linux) = machine(&[("proc/77/task/77/stat", STAT)]);
        for name in
            ["asmp-events-77-4242", "asmp-events-77-4000", "asmp-window-78-1", "lab1", "asmp-own"]
        {
            std::fs::create_dir_all(
                root.path().join(format!("sys/kernel/tracing/instances/{name}")),
            )
            .unwrap();
        }
        remove_stale(&linux);
        assert_eq!(instances(&linux), ["asmp-events-77-4242", "asmp-own", "lab1"]);
    }
}
