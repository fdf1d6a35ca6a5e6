// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other people's hands on the fake machine, between two commands or between two steps of one.

use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::sched::TimeLimits;
use asmp_host::store::Store;
use asmp_host::{CpuSet, Kernel, Schedule, Spinner};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const MOUNT: &str = "/sys/fs/cgroup";
pub const BASE: &str = "/sys/fs/cgroup/asmp";

/// What somebody else does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hand {
    /// `member` into the partition file of a partition.
    Member(&'static str),
    /// Empties cpuset.cpus.exclusive of its group `rt`, or of the partition's own.
    Exclusive(&'static str, bool),
    /// `1` into cgroup.freeze of its group `rt`, or of the partition's own.
    Freeze(&'static str, bool),
    /// Makes a group with a task where ours would be: `asmp`, or `asmp/NAME`.
    Foreign(Option<&'static str>),
    /// Makes a group inside a partition, and may move a thread there.
    SubGroup(&'static str, Option<i32>),
    /// Dissolves the partition and removes these empty groups, as far as they are empty.
    Remove(&'static [&'static str]),
    Offline(u32),
    Online(u32),
    /// The directory of our files is emptied.
    LoseState,
    /// Between two steps only: the state cannot be written when they are done.
    FailState,
    /// From now on /run has room for so many more files or pages.
    Room(usize),
    Taskset(i32, &'static str),
    Policy(i32, Schedule),
    End(i32),
    MoveOut(i32),
    Irq(&'static str),
    /// Before everything: a kernel thread with fewer CPUs than others.
    Narrow,
    /// Between two steps only: the next one is refused.
    Refuse(i32),
    /// Between two steps only: the command is killed, before the next one or right after.
    Kill(bool),
}

impl Hand {
    /// A name of its kind, for classes of findings.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Member(_) => "member",
            Self::Exclusive(..) => "exclusive",
            Self::Freeze(..) => "freeze",
            Self::Foreign(_) => "foreign-group",
            Self::SubGroup(..) => "sub-group",
            Self::Remove(_) => "rmdir",
            Self::Offline(_) | Self::Online(_) => "hotplug",
            Self::LoseState => "lost-state",
            Self::FailState => "unwritable-state",
            Self::Room(_) => "full",
            Self::Taskset(..) => "taskset",
            Self::Policy(..) => "policy",
            Self::End(_) => "end",
            Self::MoveOut(_) => "move-out",
            Self::Irq(_) => "irq",
            Self::Narrow => "narrow-thread",
            Self::Refuse(_) => "refuse",
            Self::Kill(_) => "kill",
        }
    }

    pub const KINDS: [&'static str; 18] = [
        "member",
        "exclusive",
        "freeze",
        "foreign-group",
        "sub-group",
        "rmdir",
        "hotplug",
        "lost-state",
        "unwritable-state",
        "full",
        "taskset",
        "policy",
        "end",
        "move-out",
        "irq",
        "narrow-thread",
        "refuse",
        "kill",
    ];

    /// Has no meaning between two commands.
    pub fn is_inside_only(&self) -> bool {
        matches!(self, Self::FailState | Self::Refuse(_) | Self::Kill(_))
    }
}

/// The fake with a hand that waits for its step.
#[derive(Debug)]
pub struct Hands {
    pub fake: FakeKernel,
    pub dir: PathBuf,
    pub store: Store,
    waiting: Mutex<(usize, Option<Hand>)>,
    /// Keys of the snapshot that hands have changed.
    pub touched: Mutex<BTreeSet<String>>,
}

impl Hands {
    pub fn new(fake: FakeKernel, dir: &Path, store: Store) -> Arc<Self> {
        Arc::new(Self {
            fake,
            dir: dir.to_owned(),
            store,
            waiting: Mutex::new((0, None)),
            touched: Mutex::default(),
        })
    }

    /// This hand comes before the n-th change of the kernel from now; `None`: no hand. Says whether
    /// the one before has come.
    pub fn wait(&self, steps: usize, hand: Option<Hand>) -> bool {
        let mut waiting = self.waiting.lock().unwrap();
        let came = waiting.1.is_none();
        *waiting = (steps, hand);
        came
    }

    /// Does it now. What is refused is not done: a hand has no way around the kernel's rules.
    pub fn act(&self, hand: &Hand) {
        let group = |name: &str| Path::new(BASE).join(name);
        let write = |path: PathBuf, text: &str| self.fake.write(&path, text.as_bytes());
        let touch = |key: String| {
            self.touched.lock().unwrap().insert(key);
        };
        let moved = |tid: i32, to: &Path, file: &str| {
            if write(to.join(file), &tid.to_string()).is_ok() {
                for thread in [tid, tid + 1] {
                    touch(format!("task {thread}"));
                }
            }
        };
        match hand {
            Hand::Member(name) => {
                let _ = write(group(name).join("rt/cpuset.cpus.partition"), "member");
            }
            Hand::Exclusive(name, rt) => {
                let group = if *rt { group(name).join("rt") } else { group(name) };
                let _ = write(group.join("cpuset.cpus.exclusive"), "");
            }
            Hand::Freeze(name, rt) => {
                let group = if *rt { group(name).join("rt") } else { group(name) };
                let _ = write(group.join("cgroup.freeze"), "1");
            }
            Hand::Foreign(name) => {
                let path = group(name.unwrap_or(""));
                if self.fake.make_dir(&path).is_ok() {
                    let in_tree = path.strip_prefix(MOUNT).unwrap();
                    touch(format!("group /{}", in_tree.display()));
                    moved(400, &path, "cgroup.procs");
                }
            }
            Hand::SubGroup(name, task) => {
                let path = group(name).join("rt/sub");
                if self.fake.make_dir(&path).is_ok() {
                    let _ = write(path.join("cgroup.type"), "threaded");
                    if let Some(tid) = task {
                        moved(*tid, &path, "cgroup.threads");
                    }
                }
            }
            Hand::Remove(groups) => {
                for path in groups.iter().map(|name| group(name)) {
                    if path.ends_with("rt") {
                        let _ = write(path.join("cpuset.cpus.partition"), "member");
                    }
                    let _ = self.fake.remove_dir(&path);
                }
            }
            Hand::Offline(cpu) => self.fake.set_online(*cpu, false),
            Hand::Online(cpu) => self.fake.set_online(*cpu, true),
            Hand::LoseState => {
                for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
            Hand::FailState => drop(std::fs::create_dir(self.dir.join("state.json.new"))),
            Hand::Room(room) => self.store.limit_room(Some(*room)),
            Hand::Taskset(tid, cpus) => {
                touch(format!("task {tid}"));
                let _ = self.fake.set_affinity(*tid, &cpus.parse::<CpuSet>().unwrap());
            }
            Hand::Policy(tid, to) => {
                touch(format!("task {tid}"));
                let _ = self.fake.set_schedule(*tid, to);
            }
            Hand::End(tid) => {
                for thread in [*tid, *tid + 1] {
                    touch(format!("task {thread}"));
                }
                self.fake.arm(Some(Fault::End { at: 0, tid: *tid }));
                let _ = self.fake.remove_dir(&Path::new(MOUNT).join("none"));
                self.fake.arm(None);
            }
            Hand::MoveOut(tid) => moved(*tid, Path::new(MOUNT), "cgroup.procs"),
            Hand::Irq(cpus) => {
                let path = "/proc/irq/24/smp_affinity_list";
                touch(path.to_owned());
                let _ = write(path.into(), cpus);
            }
            // The machine began so.
            Hand::Narrow => {}
            Hand::Refuse(_) | Hand::Kill(_) => unreachable!("only between two steps"),
        }
    }

    /// One change by us, with the hand that is due.
    fn change<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let due = {
            let mut waiting = self.waiting.lock().unwrap();
            match waiting.0.checked_sub(1) {
                Some(left) => {
                    waiting.0 = left;
                    None
                }
                None => waiting.1.take(),
            }
        };
        match due {
            None => act(),
            Some(Hand::Refuse(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Hand::Kill(after)) => {
                if after {
                    let _ = act();
                }
                std::panic::resume_unwind(Box::new("killed"))
            }
            Some(hand) => {
                self.act(&hand);
                act()
            }
        }
    }
}

impl Kernel for Hands {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.fake.read(path)
    }
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(|| self.fake.write(path, bytes))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.fake.list(dir)
    }
    fn stream(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        self.fake.stream(path)
    }
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(|| self.fake.make_dir(dir))
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(|| self.fake.remove_dir(dir))
    }
    fn schedule(&self, tid: i32) -> io::Result<Schedule> {
        self.fake.schedule(tid)
    }
    fn set_schedule(&self, tid: i32, schedule: &Schedule) -> io::Result<()> {
        self.change(|| self.fake.set_schedule(tid, schedule))
    }
    fn online_affinity(&self, tid: i32) -> io::Result<CpuSet> {
        self.fake.online_affinity(tid)
    }
    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        self.change(|| self.fake.set_affinity(tid, cpus))
    }
    fn limit_real_time(&self, process: i32, limits: TimeLimits) -> io::Result<()> {
        self.change(|| self.fake.limit_real_time(process, limits))
    }
    fn exists(&self, path: &Path) -> bool {
        self.fake.exists(path)
    }
    fn is_file(&self, path: &Path) -> bool {
        self.fake.is_file(path)
    }
    fn link(&self, path: &Path) -> io::Result<String> {
        self.fake.link(path)
    }
    fn mark(&self, dir: &Path) -> io::Result<()> {
        self.change(|| self.fake.mark(dir))
    }
    fn is_marked(&self, dir: &Path) -> bool {
        self.fake.is_marked(dir)
    }
    fn sharer(&self) -> Option<PathBuf> {
        self.fake.sharer()
    }
    fn share(&self, cpus: &CpuSet) -> io::Result<()> {
        self.fake.share(cpus)
    }
    fn delegate(&self, mount: &Path, on: bool) -> io::Result<()> {
        self.fake.delegate(mount, on)
    }
    fn spin(&self, most: Duration) -> io::Result<Box<dyn Spinner + '_>> {
        self.fake.spin(most)
    }
}
