// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tells that somebody has changed the machine, without looking again and again:
//!
//! - writes to kernel files, by inotify(7). It sees what programs write, not what the kernel
//!   changes by itself, nor what goes through another mount of /proc; the files of a cgroup
//!   (`cgroup.events`, `cpuset.cpus.partition`) are told by the kernel too
//!   (admin-guide/cgroup-v2.rst).
//! - moves of tasks from one cgroup to another: a trace event, see [`Moves`].
//! - devices, modules and CPUs that come and go: uevents, netlink(7).
//! - network links that come up, at which drivers set their interrupts anew: rtnetlink(7).
//! - ends of processes, by pidfd_open(2).
//! - the end of a suspension, by a timer that the kernel cancels then (timerfd_create(2)).
//!
//! No source wakes a CPU but the one on which somebody changed something, and the one on which the
//! reader waits.

use crate::kernel::Kernel;
use crate::task::{self, TaskId};
use crate::tracefs::{Entered, Moved, Moves, TakenOut, Tasks};
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, netlink};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Something that may have changed a partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A file was written, or the kernel told of a change; in a directory, a file came or went.
    Written(PathBuf),
    /// A file that was followed is gone.
    Gone(PathBuf),
    /// `online cpu devices/system/cpu/cpu3`: action, subsystem and device.
    Device(String),
    /// A task that is followed was moved to another cgroup.
    Moved(i32),
    /// Another one was moved into a group that is followed.
    Entered(Entered),
    /// A task of a user's partition may have been taken out of it.
    TakenOut(TakenOut),
    /// A process that is followed has ended.
    Ended(i32),
    /// A network link changed.
    Link,
    /// The machine was suspended, or somebody has set its clock.
    Resumed,
    /// There was more than found room: anything may have changed.
    Lost,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Written(path) => write!(f, "{} was written", path.display()),
            Self::Gone(path) => write!(f, "{} is gone", path.display()),
            Self::Device(what) => write!(f, "device: {what}"),
            Self::Moved(tid) => write!(f, "task {tid} was moved to another group"),
            Self::Entered(Entered { group, tid, by }) => {
                write!(f, "{by} moved task {tid} to {}", group.display())
            }
            Self::TakenOut(TakenOut { group, tid }) => {
                write!(f, "task {tid} was moved to {}", group.display())
            }
            Self::Ended(pid) => write!(f, "process {pid} has ended"),
            Self::Link => write!(f, "a network link changed"),
            Self::Resumed => write!(f, "resumed, or the clock was set"),
            Self::Lost => write!(f, "notices were lost"),
        }
    }
}

/// Groups of netlink(7) sockets: the kernel's own uevents (not udev's), and links.
const KERNEL_UEVENTS: u32 = 1;
const LINKS: u32 = 1;
/// NETLINK_ROUTE is 0, as no protocol.
const ROUTE: Option<rustix::net::Protocol> = None;

/// All sources of one process.
pub struct Watch<'a> {
    kernel: &'a dyn Kernel,
    inotify: OwnedFd,
    uevents: OwnedFd,
    links: OwnedFd,
    resume: OwnedFd,
    /// Or why not.
    moves: Result<Moves<'a>>,
    tasks: Tasks,
    groups: BTreeSet<PathBuf>,
    /// `None`: it has ended, and that was told.
    processes: BTreeMap<TaskId, Option<OwnedFd>>,
    /// Those that had ended before they could be followed, which is to be told.
    ended: BTreeSet<i32>,
    paths: BTreeMap<i32, PathBuf>,
    numbers: BTreeMap<PathBuf, Followed>,
}

/// A file that is followed.
struct Followed {
    number: i32,
    /// Keeps the name of a file of /proc. The kernel drops names that nothing keeps when memory is
    /// short, and makes another inode at the next use, which has no watch.
    _name: Option<OwnedFd>,
}

impl<'a> Watch<'a> {
    /// Starts to follow devices, links and suspensions; [`Watch::follow`] adds files,
    /// [`Watch::follow_tasks`] tasks, [`Watch::follow_groups`] cgroups. Errors: the kernel refuses
    /// a source. If it refuses only the trace events, [`Watch::deaf`] says why.
    pub fn new(kernel: &'a dyn Kernel) -> Result<Self> {
        more_descriptors();
        let error = |what: &'static str| {
            move |errno: Errno| Error::io(Path::new(what), "open")(errno.into())
        };
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let uevents = netlink_socket(Some(netlink::KOBJECT_UEVENT), KERNEL_UEVENTS);
        let links = netlink_socket(ROUTE, LINKS);
        Ok(Self {
            kernel,
            inotify: inotify.map_err(error("inotify"))?,
            uevents: uevents.map_err(error("netlink: uevents"))?,
            links: links.map_err(error("netlink: links"))?,
            resume: cancelled_at_resume().map_err(error("timerfd"))?,
            moves: Moves::new(kernel),
            tasks: Tasks::new(),
            groups: BTreeSet::new(),
            processes: BTreeMap::new(),
            ended: BTreeSet::new(),
            paths: BTreeMap::new(),
            numbers: BTreeMap::new(),
        })
    }

    /// Why no move of a task is noticed, if so.
    pub fn deaf(&self) -> Option<&Error> {
        self.moves.as_ref().err()
    }

    /// Follows these tasks and no others.
    pub fn follow_tasks(&mut self, tasks: Tasks) {
        self.tasks = tasks;
    }

    /// Follows the ends of these processes and of no others. The end of each is told once.
    pub fn follow_processes(&mut self, processes: &BTreeSet<TaskId>) {
        self.processes.retain(|id, _| processes.contains(id));
        for id in processes {
            if self.processes.contains_key(id) {
                continue;
            }
            let open = match Pid::from_raw(id.tid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                // Another process may have had its number when it was opened.
                Some(Ok(open)) => {
                    Some(open).filter(|_| task::identify(self.kernel, id.tid) == Some(*id))
                }
                None | Some(Err(Errno::SRCH)) => None,
                // No descriptor is left, for example: the next call tries again.
                Some(Err(_)) => continue,
            };
            if open.is_none() {
                self.ended.insert(id.tid);
            }
            self.processes.insert(*id, open);
        }
    }

    /// Follows who comes into these cgroups, as /proc/PID/cgroup names them, and into no others.
    pub fn follow_groups(&mut self, groups: BTreeSet<PathBuf>) {
        self.groups = groups;
    }

    /// Follows these files and directories and no others. Gives those that cannot be followed,
    /// with the reason: a file that is not there is none of them.
    pub fn follow(&mut self, files: &BTreeSet<PathBuf>) -> Vec<(PathBuf, std::io::Error)> {
        let dropped: Vec<PathBuf> =
            self.numbers.keys().filter(|path| !files.contains(*path)).cloned().collect();
        for path in dropped {
            if let Some(Followed { number, .. }) = self.numbers.remove(&path) {
                self.paths.remove(&number);
                // The kernel has dropped it already where the file is gone.
                let _ = inotify::remove_watch(&self.inotify, number);
            }
        }
        let mut refused = Vec::new();
        let what = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF;
        for path in files {
            if self.numbers.contains_key(path) {
                continue;
            }
            let followed = name_kept(path).and_then(|name| {
                let number = inotify::add_watch(&self.inotify, path, what)?;
                Ok(Followed { number, _name: name })
            });
            match followed {
                Ok(followed) => {
                    self.paths.insert(followed.number, path.clone());
                    self.numbers.insert(path.clone(), followed);
                }
                Err(Errno::NOENT) => {}
                Err(errno) => refused.push((path.clone(), errno.into())),
            }
        }
        refused
    }

    /// Waits until something is noticed, one of `wake` can be read, or the time is over; what was
    /// noticed, each thing once. Errors: those of poll(2).
    pub fn wait(&mut self, most: Duration, wake: [BorrowedFd; 2]) -> Result<BTreeSet<Notice>> {
        let most = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        // It is told at once.
        let most = if self.ended.is_empty() { most } else { Timespec { tv_sec: 0, tv_nsec: 0 } };
        let moves = self.moves.as_ref().map_or(wake[0], Moves::fd);
        let mut ready = vec![
            PollFd::new(&self.inotify, PollFlags::IN),
            PollFd::new(&self.uevents, PollFlags::IN),
            PollFd::new(&self.links, PollFlags::IN),
            PollFd::new(&self.resume, PollFlags::IN),
            PollFd::from_borrowed_fd(wake[0], PollFlags::IN),
            PollFd::from_borrowed_fd(wake[1], PollFlags::IN),
            // Twice the same where there is none.
            PollFd::from_borrowed_fd(moves, PollFlags::IN),
        ];
        let followed: Vec<TaskId> =
            self.processes.iter().filter_map(|(id, fd)| fd.as_ref().map(|_| *id)).collect();
        let fds = self.processes.values().flatten();
        ready.extend(fds.map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut ready, Some(&most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io(Path::new("poll"), "wait")(errno.into())),
        }
        let has: Vec<bool> = ready.iter().map(|one| !one.revents().is_empty()).collect();
        let (has, ends) = has.split_at(7);
        let mut noticed = BTreeSet::new();
        noticed.extend(std::mem::take(&mut self.ended).into_iter().map(Notice::Ended));
        for (id, _) in followed.into_iter().zip(ends).filter(|(_, has)| **has) {
            self.processes.insert(id, None);
            noticed.insert(Notice::Ended(id.tid));
        }
        if has[0] {
            self.read_files(&mut noticed);
        }
        if has[1] {
            read_messages(self.uevents.as_fd(), &mut noticed, |message| {
                uevent(message).map(Notice::Device)
            });
        }
        if has[2] {
            read_messages(self.links.as_fd(), &mut noticed, |_| Some(Notice::Link));
        }
        if has[3] {
            // The cancelled timer is set again.
            if let Ok(again) = cancelled_at_resume() {
                self.resume = again;
            }
            noticed.insert(Notice::Resumed);
        }
        if has[6]
            && let Ok(moves) = &mut self.moves
        {
            match moves.take(&self.tasks, &self.groups) {
                Some(Moved { tasks, entered, taken_out }) => {
                    noticed.extend(tasks.into_iter().map(Notice::Moved));
                    noticed.extend(entered.into_iter().map(Notice::Entered));
                    noticed.extend(taken_out.into_iter().map(Notice::TakenOut));
                }
                None => drop(noticed.insert(Notice::Lost)),
            }
        }
        Ok(noticed)
    }

    fn read_files(&mut self, noticed: &mut BTreeSet<Notice>) {
        let mut room = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut room);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                noticed.insert(Notice::Lost);
            }
            let Some(path) = self.paths.get(&event.wd()) else { continue };
            if event.events().intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF) {
                noticed.insert(Notice::Gone(path.clone()));
                self.numbers.remove(path);
                self.paths.remove(&event.wd());
            } else {
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                noticed.insert(Notice::Written(name.map_or(path.clone(), |name| path.join(name))));
            }
        }
    }
}

/// A followed file of /proc takes a descriptor, and a machine may have thousands of interrupts.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // What is not enough is told by `follow`.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Of a file of /proc: see [`Followed`]. Other file systems keep an inode that has a watch.
fn name_kept(path: &Path) -> std::result::Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    path.starts_with("/proc").then(|| open(path, flags, Mode::empty())).transpose()
}

fn netlink_socket(
    protocol: Option<rustix::net::Protocol>,
    groups: u32,
) -> std::result::Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
    rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// A timer so far away that only a change of the clock ends it.
fn cancelled_at_resume() -> std::result::Result<OwnedFd, Errno> {
    let timer =
        timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let never = Timespec { tv_sec: i64::MAX / 2, tv_nsec: 0 };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(&timer, flags, &once)?;
    Ok(timer)
}

/// What the messages of the kernel say; others may send too, and are not believed.
fn read_messages(
    socket: BorrowedFd,
    noticed: &mut BTreeSet<Notice>,
    mut told: impl FnMut(&[u8]) -> Option<Notice>,
) {
    let mut room = [0; 8 << 10];
    loop {
        match rustix::net::recvfrom(socket, &mut room[..], RecvFlags::empty()) {
            Ok((_, length, from)) => {
                let from = from.and_then(|from| netlink::SocketAddrNetlink::try_from(from).ok());
                if from.is_some_and(|from| from.pid() == 0) {
                    noticed.extend(told(&room[..length.min(8 << 10)]));
                }
            }
            Err(Errno::NOBUFS) => {
                noticed.insert(Notice::Lost);
            }
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Action, subsystem and device of a uevent: `online@/devices/system/cpu/cpu3`, then
/// `SUBSYSTEM=cpu` among other lines, each ended by a zero. `None` of one that brings and takes
/// nothing: batteries, for example, tell of each `change`.
fn uevent(message: &[u8]) -> Option<String> {
    let mut parts = message.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let head = parts.next()?;
    let (action, device) = head.split_once('@')?;
    let counts = ["add", "remove", "online", "offline", "bind", "unbind", "move"].contains(&action);
    let subsystem = parts.find_map(|part| part.strip_prefix("SUBSYSTEM=").map(str::to_owned));
    counts.then(|| {
        let device = device.trim_start_matches('/');
        format!("{action} {} {device}", subsystem.as_deref().unwrap_or("-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;
    use std::os::unix::net::UnixStream;

    const MOST: Duration = Duration::from_secs(180);

    fn set(paths: &[&PathBuf]) -> BTreeSet<PathBuf> {
        paths.iter().copied().cloned().collect()
    }

    /// What is noticed of files: other sources belong to this machine.
    fn of_files(watch: &mut Watch, most: Duration) -> Vec<Notice> {
        let (quiet, _other) = UnixStream::pair().unwrap();
        let noticed = watch.wait(most, [quiet.as_fd(); 2]).unwrap();
        let is_of_file = |one: &Notice| matches!(one, Notice::Written(_) | Notice::Gone(_));
        noticed.into_iter().filter(is_of_file).collect()
    }

    #[test]
    fn a_file_that_is_written_or_goes_is_noticed_and_one_no_longer_followed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other, missing] = ["one", "other", "missing"].map(|name| dir.path().join(name));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&other, "1").unwrap();
        // Without a tracer of its own: this machine's stays as it is.
        let (_root, linux) = machine(&[]);
        let mut watch = Watch::new(&linux).unwrap();
        assert!(watch.follow(&set(&[&one, &other, &missing])).is_empty());
        std::fs::write(&one, "2").unwrap();
        assert_eq!(of_files(&mut watch, MOST), [Notice::Written(one.clone())]);
        assert!(watch.follow(&set(&[&other])).is_empty());
        std::fs::write(&one, "3").unwrap();
        std::fs::remove_file(&other).unwrap();
        // Leaving `one` is told by the kernel too, and means nothing.
        assert_eq!(of_files(&mut watch, MOST), [Notice::Gone(other.clone())]);
        // A new file of the same name is followed again.
        std::fs::write(&other, "1").unwrap();
        assert!(watch.follow(&set(&[&other])).is_empty());
        std::fs::write(&other, "2").unwrap();
        assert_eq!(of_files(&mut watch, MOST), [Notice::Written(other)]);
    }

    #[test]
    fn a_file_that_comes_into_a_directory_is_noticed_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("state");
        std::fs::create_dir(&at).unwrap();
        let (_root, linux) = machine(&[]);
        let mut watch = Watch::new(&linux).unwrap();
        assert!(watch.follow(&set(&[&at])).is_empty());
        std::fs::write(dir.path().join("new"), "").unwrap();
        std::fs::rename(dir.path().join("new"), at.join("state.json")).unwrap();
        assert_eq!(of_files(&mut watch, MOST), [Notice::Written(at.join("state.json"))]);
    }

    #[test]
    fn another_descriptor_ends_the_wait() {
        let (quiet, mut other) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut other, b"1").unwrap();
        let (_root, linux) = machine(&[]);
        let mut watch = Watch::new(&linux).unwrap();
        let began = std::time::Instant::now();
        watch.wait(MOST, [quiet.as_fd(); 2]).unwrap();
        assert!(began.elapsed() < MOST);
    }

    #[test]
    fn the_end_of_a_process_is_noticed_once() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as i32;
        let (root, linux) = machine(&[]);
        let proc = root.path().join("proc");
        std::fs::create_dir_all(&proc).unwrap();
        let own = proc.join(pid.to_string());
        std::os::unix::fs::symlink(format!("/proc/{pid}"), own).unwrap();
        let id = task::identify(&linux, pid).unwrap();
        let another = TaskId { start_ticks: id.start_ticks + 1, ..id };
        let mut watch = Watch::new(&linux).unwrap();
        let (quiet, _other) = UnixStream::pair().unwrap();
        let mut ends = |most: Duration, processes: &[TaskId]| {
            watch.follow_processes(&processes.iter().copied().collect());
            let end = std::time::Instant::now() + most;
            // Other sources belong to this machine.
            loop {
                let left = end.saturating_duration_since(std::time::Instant::now());
                let noticed = watch.wait(left, [quiet.as_fd(); 2]).unwrap();
                if noticed.contains(&Notice::Ended(pid)) || left.is_zero() {
                    return noticed.contains(&Notice::Ended(pid));
                }
            }
        };
        let soon = Duration::from_millis(50);
        assert!(!ends(soon, &[id]) && !task::has_ended(&linux, id));
        assert!(ends(MOST, &[another]), "one that had the number before it");
        assert!(!ends(soon, &[another, id]));
        child.kill().unwrap();
        assert!(ends(MOST, &[id]));
        assert!(task::has_ended(&linux, id), "it was not waited for yet");
        assert!(!ends(soon, &[id]));
        child.wait().unwrap();
    }

    #[test]
    fn a_uevent_tells_what_came_and_went_and_nothing_else() {
        let message = |head: &str| {
            let subsystem = head.split('/').nth(3).unwrap_or("none");
            format!("{head}\0ACTION=x\0DEVPATH=y\0SUBSYSTEM={subsystem}\0SEQNUM=7\0")
        };
        let of = |head: &str| uevent(message(head).as_bytes());
        let cpu = of("online@/devices/system/cpu/cpu3");
        assert_eq!(cpu.as_deref(), Some("online cpu devices/system/cpu/cpu3"));
        assert_eq!(of("change@/devices/virtual/thermal/zone0"), None);
        assert_eq!(uevent(b"libudev\0\xfe\xed\xca\xfe"), None);
        assert_eq!(uevent(b""), None);
        assert_eq!(uevent(b"add@/module/loop\0").as_deref(), Some("add - module/loop"));
    }
}
