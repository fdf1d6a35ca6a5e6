// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks that are moved from one cgroup to another, told by the kernel as it happens.
//!
//! A cgroup tells of its first task and of its last (`cgroup.events`), and inotify(7) of who writes
//! to its own files. That one task of some was taken out is written to the file of another group.

use super::instance::Instance;
use crate::kernel::Kernel;
use crate::{Error, Result, rttime, task};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Of these events each kernel has the first.
const EVENTS: [&str; 2] = ["cgroup/cgroup_attach_task", "cgroup/cgroup_transfer_tasks"];

/// Reads of one call: what is left then is read by the next one.
const MOST_READS: usize = 64;

/// Thread IDs.
pub type Tasks = BTreeSet<i32>;

/// A task that was moved into a group that is followed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entered {
    /// As /proc/PID/cgroup names it.
    pub group: PathBuf,
    /// The task; of a whole process, its first thread.
    pub tid: i32,
    /// Who moved it: `bash-301`, command and thread.
    pub by: String,
}

/// A task was moved whose process asmp has marked ([`crate::rttime`]), or that has ended since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TakenOut {
    /// Where it went, as /proc/PID/cgroup names it.
    pub group: PathBuf,
    /// The task; of a whole process, its first thread.
    pub tid: i32,
}

/// What was moved.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Tasks that are followed, wherever they went.
    pub tasks: Tasks,
    /// Others that came into a group that is followed, and that did not move themselves.
    pub entered: BTreeSet<Entered>,
    /// Those that went into a group that is not followed.
    pub taken_out: BTreeSet<TakenOut>,
}

/// An instance that records who is moved, removed when dropped.
pub struct Moves<'a> {
    kernel: &'a dyn Kernel,
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
        Ok(Self { kernel, pipe, _instance: instance, rest: Vec::new() })
    }

    /// poll(2) reports it readable when any task was moved.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Those of `tasks` that were moved since the last call, and others that came into one of these
    /// groups. Never waits. `None`: events were lost.
    pub fn take(&mut self, tasks: &Tasks, groups: &BTreeSet<PathBuf>) -> Option<Moved> {
        let mut page = [0; 16 << 10];
        let mut moved = Some(Moved::default());
        for _ in 0..MOST_READS {
            match self.pipe.read(&mut page) {
                Ok(count) if count > 0 => self.rest.extend_from_slice(&page[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => break,
            }
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let text: Vec<u8> = self.rest.drain(..whole).collect();
            let text = String::from_utf8_lossy(&text);
            moved = moved.filter(|_| !text.lines().any(is_lost));
            if let Some(moved) = &mut moved {
                moved.tasks.extend(named(&text, tasks));
                let entered = text.lines().filter_map(|line| entered(line, groups));
                let others = entered
                    .filter(|one| !moved.tasks.contains(&one.tid) && !self.is_own_doing(one));
                moved.entered.extend(others);
                let out = text.lines().flat_map(|line| left(line, groups));
                moved.taken_out.extend(out.filter(|one| self.may_be_of_user(one)));
            }
        }
        moved
    }

    /// Most tasks that are moved have nothing to do with partitions.
    fn may_be_of_user(&self, taken_out: &TakenOut) -> bool {
        let task = task::read(self.kernel, taken_out.tid);
        // What it has started before its end may be there yet.
        task.map_or(true, |task| rttime::is_marked(self.kernel, task.process))
    }

    /// Whether a thread of the same process has moved it, or one that is inside itself: a program
    /// with groups of its own.
    fn is_own_doing(&self, entered: &Entered) -> bool {
        let Some(by) = entered.by.rsplit_once('-').and_then(|(_, tid)| tid.parse().ok()) else {
            return false;
        };
        let process = task::read(self.kernel, entered.tid).map(|task| task.process);
        // It may have ended: then it moves nothing more.
        let mover = task::read(self.kernel, by);
        by == entered.tid
            || mover.is_ok_and(|mover| {
                let is_inside = mover.group.starts_with(&entered.group);
                is_inside || process.is_ok_and(|process| process == mover.process)
            })
    }
}

/// A task that was moved, as a line of the trace has it.
struct Line<'a> {
    head: &'a str,
    /// Path of the group, and what follows it.
    path: &'a str,
}

impl<'a> Line<'a> {
    /// No name of a command is as long as the name of the event.
    fn read(line: &'a str) -> Option<Self> {
        let (head, fields) = EVENTS.iter().find_map(|event| {
            let name = event.split_once('/').map_or(*event, |(_, name)| name);
            line.split_once(&format!(": {name}: "))
        })?;
        let (_, path) = fields.split_once(" dst_path=")?;
        Some(Self { head, path })
    }

    /// Which of these groups it came into.
    fn entered<'b>(&self, groups: &'b BTreeSet<PathBuf>) -> Option<&'b PathBuf> {
        groups.iter().find(|group| {
            let rest = group.to_str().and_then(|group| self.path.strip_prefix(group));
            rest.is_some_and(|rest| rest.starts_with([' ', '/']))
        })
    }
}

/// A line that tells of a task which came into one of these groups.
fn entered(line: &str, groups: &BTreeSet<PathBuf>) -> Option<Entered> {
    let line = Line::read(line)?;
    let group = line.entered(groups)?;
    let (_, rest) = line.path.split_once(" pid=")?;
    let tid = rest.split(' ').next()?.parse().ok()?;
    // `   bash-301     [001] .....   73.406801`
    let (by, _) = line.head.rsplit_once(" [")?;
    Some(Entered { group: group.clone(), tid, by: by.trim().to_owned() })
}

/// Who a line may tell of that came into none of these groups. Users choose the names of groups
/// and of commands, which may look like the field that is sought: they add to what is found, and
/// hide nothing.
fn left(line: &str, groups: &BTreeSet<PathBuf>) -> Vec<TakenOut> {
    let Some(line) = Line::read(line).filter(|line| line.entered(groups).is_none()) else {
        return Vec::new();
    };
    let fields = line.path.match_indices(" pid=");
    let all = fields.filter_map(|(at, field)| {
        let digits = line.path[at + field.len()..].split(' ').next()?;
        Some(TakenOut { group: line.path[..at].into(), tid: digits.parse().ok()? })
    });
    all.collect()
}

/// `CPU:2 [LOST 37 EVENTS]`, or without the number: the kernel writes it where a buffer was full. A
/// command may have a newline in its name, and no room in it for this.
fn is_lost(line: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let lost = line.strip_prefix("CPU:").and_then(|rest| rest.split_once(" [LOST "));
    lost.is_some_and(|(cpu, rest)| {
        let count = rest.strip_suffix(" EVENTS]");
        is_number(cpu) && (rest == "EVENTS]" || count.is_some_and(is_number))
    })
}

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

    #[test]
    fn only_the_kernel_says_that_events_are_lost() {
        assert!(is_lost("CPU:2 [LOST 37 EVENTS]"));
        assert!(is_lost("CPU:11 [LOST EVENTS]"));
        for forged in [
            "CPU: [LOST ",
            "CPU:1 [LOST 1-301 [001] EVENTS]",
            "CPU:1 [LOST  EVENTS]",
            "CPU:x [LOST EVENTS]",
        ] {
            assert!(!is_lost(forged), "{forged}");
        }
        assert!(!is_lost(&LINE.replace("sleep", "[LOST 1")));
        assert!(!is_lost(&LINE.replace("bash", "CPU:1 [LOST 1")));
    }

    #[test]
    fn who_came_into_a_group_is_read_with_who_moved_it() {
        let groups = ["/asmp/a/rt", "/asmp/ab/rt"].map(PathBuf::from).into();
        let of = |path: &str, line: &str| {
            let line = line.replace("dst_path=/", &format!("dst_path={path}"));
            entered(&line, &groups).map(|one| (one.group.display().to_string(), one.tid, one.by))
        };
        let told = |group: &str| Some((group.to_owned(), 412, "bash-301".to_owned()));
        assert_eq!(of("/asmp/a/rt", LINE), told("/asmp/a/rt"));
        assert_eq!(of("/asmp/ab/rt/theirs", LINE), told("/asmp/ab/rt"));
        for other in ["/", "/asmp/a", "/asmp/a/rtx", "/x/asmp/a/rt", "/asmp/b/rt"] {
            assert_eq!(of(other, LINE), None, "{other}");
        }
        // Names of commands are what their users want.
        let forged = LINE.replace("bash", "a-9 [001] x").replace("sleep", "y pid=7 comm=z");
        let (_, tid, by) = of("/asmp/a/rt", &forged).expect("it is read");
        assert_eq!((tid, by.as_str()), (412, "a-9 [001] x-301"));
        assert_eq!(of("/asmp/a/rt", &LINE.replace("attach", "detach")), None);
    }
    #[test]
    fn who_was_taken_elsewhere_is_found_whatever_others_are_called() {
        let groups = ["/asmp/a/rt"].map(PathBuf::from).into();
        let of = |path: &str, comm: &str| {
            let line = LINE.replace("dst_path=/", &format!("dst_path={path}"));
            let all = left(&line.replace("sleep", comm), &groups);
            all.into_iter()
                .map(|one| (one.group.display().to_string(), one.tid))
                .collect::<Vec<_>>()
        };
        let told = |group: &str, tid| (group.to_owned(), tid);
        assert_eq!(of("/user.slice/x.scope", "sleep"), [told("/user.slice/x.scope", 412)]);
        assert_eq!(of("/", "a pid=7 b")[0], told("/", 412));
        assert!(of("/x pid=7 comm=y", "sleep").contains(&told("/x pid=7 comm=y", 412)));
        for inside in ["/asmp/a/rt", "/asmp/a/rt/theirs"] {
            assert_eq!(of(inside, "sleep"), [], "{inside}");
        }
        assert_eq!(of("/asmp/a/rtx", "sleep"), [told("/asmp/a/rtx", 412)]);
    }
}
