// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that are moved from one cgroup to another, told by the kernel as it happens.
//!
//! A cgroup tells of its first task and of its last (`cgroup.events`), and inotify(7) of who writes
//! to its own files. That one task of some was taken out is written to the file of another group.

use super::instance::Instance;
use crate::kernel::Kernel;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Of these events each kernel has the first.
const EVENTS: [&str; 2] = ["cgroup/cgroup_attach_task", "cgroup/cgroup_transfer_tasks"];

/// Reads of one call: what is left then is read by the next one.
const MOST_READS: usize = 64;

/// Thread IDs.
pub type Tasks = BTreeSet<i32>;

/// An instance that records who is moved, removed when dropped.
pub struct Moves<'a> {
    /// Opened last and closed first.
    pipe: File,
    _instance: Instance<'a>,
    /// The beginning of a line whose end was not read yet.
    rest: Vec<u8>,
}

impl<'a> Moves<'a> {
    /// Records from now on. To enable the events interrupts every CPU once. Errors: no tracefs, not
    /// root.
    pub fn new(kernel: &'a dyn Kernel) -> Result<Self> {
        let instance = Instance::make(kernel, "moves")?;
        // Each event wakes the reader: half a buffer of them would be too late.
        let _ = instance.write("buffer_percent", "0");
        for (at, event) in EVENTS.iter().enumerate() {
            let enabled = instance.write(&format!("events/{event}/enable"), "1");
            if at == 0 {
                enabled?;
            }
        }
        let path = instance.dir.join("trace_pipe");
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let pipe = options.open(&path).map_err(Error::io(&path, "open"))?;
        instance.write("tracing_on", "1")?;
        Ok(Self { pipe, _instance: instance, rest: Vec::new() })
    }

    /// poll(2) reports it readable when any task was moved.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Those of `tasks` that were moved since the last call. Never waits. `None`: events were lost.
    pub fn take(&mut self, tasks: &Tasks) -> Option<Tasks> {
        let mut page = [0; 16 << 10];
        let mut moved = Some(Tasks::new());
        for _ in 0..MOST_READS {
            match self.pipe.read(&mut page) {
                Ok(count) if count > 0 => self.rest.extend_from_slice(&page[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => break,
            }
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let text: Vec<u8> = self.rest.drain(..whole).collect();
            let text = String::from_utf8_lossy(&text);
            moved = moved.filter(|_| !text.contains(LOST));
            if let Some(moved) = &mut moved {
                moved.extend(named(&text, tasks));
            }
        }
        moved
    }
}

/// What the kernel writes where a buffer was full.
const LOST: &str = "[LOST ";

/// Those of `tasks` that a text names. Paths of groups and names of tasks may look like the field
/// that is sought. They add a task that was not moved, and hide none that was.
fn named(text: &str, tasks: &Tasks) -> Tasks {
    let numbers = text.split("pid=").skip(1).filter_map(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    });
    numbers.filter(|number| tasks.contains(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "            bash-301     [001] .....   73.406801: cgroup_attach_task: \
        dst_root=0 dst_id=1 dst_level=0 dst_path=/ pid=412 comm=sleep\n";

    #[test]
    fn a_task_that_is_moved_is_found_whatever_others_are_called() {
        let tasks = Tasks::from([412, 77]);
        assert_eq!(named(LINE, &tasks), Tasks::from([412]));
        let forged = LINE.replace("dst_path=/", "dst_path=/a pid=7").replace("sleep", "pid=9");
        assert_eq!(named(&forged, &tasks), Tasks::from([412]));
        assert_eq!(named(LINE, &Tasks::from([41, 4120])), Tasks::new());
        assert_eq!(named("pid=", &tasks), Tasks::new());
    }
}
