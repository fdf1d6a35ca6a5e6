// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests on a machine in memory share: that machine with its shield, and requests in a
//! word.

use crate::outcome::Outcome;
use crate::partition::State;
use crate::request::{Caller, Members, Request, Spec};
use crate::shield::{ChangeError, Shield};
use crate::verify::Status;
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::sched::TimeLimits;
use asmp_host::store::Store;
use asmp_host::{CpuSet, Kernel, Schedule};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub type Snapshot = BTreeMap<String, String>;

pub const OTHER: Schedule = Schedule::Other { nice: 0 };
pub const FIFO_80: Schedule = Schedule::Fifo { priority: 80 };
pub const FIFO_50: Schedule = Schedule::Fifo { priority: 50 };

pub const RESTORE: Request = Request::Restore { abandon: false };
pub const REPAIR: Request = Request::Repair { name: None };

/// A machine in memory and its shield. A test file adds what it alone needs.
pub struct Fake {
    pub kernel: Arc<FakeKernel>,
    /// The directory of asmp's own files.
    pub dir: tempfile::TempDir,
    pub store: Store,
    pub shield: Shield,
    /// The machine before the shield did anything.
    pub untouched: Snapshot,
}

impl Fake {
    pub fn on(kernel: FakeKernel) -> Self {
        let kernel = Arc::new(kernel);
        let untouched = kernel.snapshot();
        // In memory if possible: a journal syncs at every line.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = Store::at(dir.path());
        let shield = Shield::new(Arc::clone(&kernel) as Arc<dyn Kernel>, store.clone());
        Self { kernel, dir, store, shield, untouched }
    }

    /// With process 200, `app`: an ordinary thread, and 201 of SCHED_FIFO.
    pub fn with_app() -> Self {
        let kernel = FakeKernel::new();
        kernel.start(200, 200, "app", OTHER);
        kernel.start(201, 200, "app-rt", FIFO_80);
        Self::on(kernel)
    }

    /// The same, with these requests carried out.
    pub fn after(requests: &[Request]) -> Self {
        let fake = Self::with_app();
        requests.iter().for_each(|request| drop(fake.done(request)));
        fake
    }

    pub fn ask(&self, request: &Request) -> Result<Outcome, ChangeError> {
        self.shield.change(request, &root())
    }

    #[track_caller]
    pub fn done(&self, request: &Request) -> Outcome {
        self.ask(request).unwrap_or_else(|error| panic!("{request:?}: {error}"))
    }

    /// Asks with a kill at the n-th step, before it or right after. Was there such a step?
    pub fn kill(&self, request: &Request, at: usize, after: bool) -> bool {
        self.kernel.arm(Some(Fault::Die { at, after }));
        let killed = catch_unwind(AssertUnwindSafe(|| self.ask(request))).is_err();
        self.kernel.arm(None);
        killed
    }

    pub fn state(&self) -> State {
        self.shield.state().unwrap()
    }

    pub fn status(&self) -> Status {
        self.shield.status().unwrap()
    }

    pub fn text(&self, path: impl AsRef<Path>) -> String {
        self.kernel.text(path.as_ref()).unwrap()
    }

    /// What another program writes.
    #[track_caller]
    pub fn write(&self, path: &str, text: &str) {
        self.kernel.write(Path::new(path), text.as_bytes()).unwrap();
    }

    pub fn allowed(&self, tid: i32) -> String {
        self.kernel.allowed(tid).map_or_else(|| "ended".to_owned(), |cpus| cpus.to_string())
    }

    /// A process enters before it executes a command.
    pub fn exec(&self, name: &str, pid: i32, command: &str) -> Request {
        let process = asmp_host::task::identify(&*self.kernel, pid).unwrap();
        Request::Exec { name: name.into(), process, command: command.into() }
    }

    pub fn policy(&self, tid: i32) -> Schedule {
        self.kernel.schedule(tid).unwrap()
    }

    /// asmp's own files, but the lock.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect()
    }

    pub fn has_journal(&self) -> bool {
        self.dir.path().join("journal").exists()
    }

    /// The machine is as it was, and nothing is left of ours.
    #[track_caller]
    pub fn is_untouched(&self, when: &str) {
        assert_same(&self.untouched, &self.kernel.snapshot(), when);
        assert!(self.files().is_empty(), "{when}: {:?}", self.files());
    }

    /// A restore succeeds and does that.
    #[track_caller]
    pub fn restored(&self, when: &str) {
        self.ask(&RESTORE).unwrap_or_else(|error| panic!("{when}: {error}"));
        self.is_untouched(when);
    }
}

/// A call that tests look at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Write,
    List,
}

type Watcher = Box<dyn Fn(Call, &Path) + Send + Sync>;

/// A kernel that tells of these calls before it takes them.
struct Watched(Arc<FakeKernel>, Watcher);

impl Fake {
    pub fn watched(&self, watcher: impl Fn(Call, &Path) + Send + Sync + 'static) -> Shield {
        let kernel = Watched(Arc::clone(&self.kernel), Box::new(watcher));
        Shield::new(Arc::new(kernel), self.store.clone())
    }
}

impl Kernel for Watched {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        (self.1)(Call::Write, path);
        self.0.write(path, bytes)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.read(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        (self.1)(Call::List, dir);
        self.0.list(dir)
    }
    fn stream(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        self.0.stream(path)
    }
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.make_dir(dir)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.remove_dir(dir)
    }
    fn mark(&self, dir: &Path) -> io::Result<()> {
        self.0.mark(dir)
    }
    fn is_marked(&self, dir: &Path) -> bool {
        self.0.is_marked(dir)
    }
    fn link(&self, path: &Path) -> io::Result<String> {
        self.0.link(path)
    }
    fn schedule(&self, tid: i32) -> io::Result<Schedule> {
        self.0.schedule(tid)
    }
    fn set_schedule(&self, tid: i32, schedule: &Schedule) -> io::Result<()> {
        self.0.set_schedule(tid, schedule)
    }
    fn online_affinity(&self, tid: i32) -> io::Result<CpuSet> {
        self.0.online_affinity(tid)
    }
    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        self.0.set_affinity(tid, cpus)
    }
    fn limit_real_time(&self, process: i32, limits: TimeLimits) -> io::Result<()> {
        self.0.limit_real_time(process, limits)
    }
    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
    fn is_file(&self, path: &Path) -> bool {
        self.0.is_file(path)
    }
    fn sharer(&self) -> Option<PathBuf> {
        self.0.sharer()
    }
    fn share(&self, cpus: &CpuSet) -> io::Result<()> {
        self.0.share(cpus)
    }
    fn delegate(&self, mount: &Path, on: bool) -> io::Result<()> {
        self.0.delegate(mount, on)
    }
    fn spin(&self, time: Duration) -> io::Result<Box<dyn asmp_host::Spinner + '_>> {
        self.0.spin(time)
    }
}

#[track_caller]
pub fn assert_same(before: &Snapshot, now: &Snapshot, when: &str) {
    let keys = before.keys().chain(now.keys());
    let changed = keys.filter(|key| before.get(*key) != now.get(*key));
    let changed: Vec<_> = changed.map(|key| (key, before.get(key), now.get(key))).collect();
    assert!(changed.is_empty(), "{when}: {changed:#?}");
}

pub fn root() -> Caller {
    Caller::now(0, "root", "test")
}

pub fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

pub fn create(name: &str, cpus: &str) -> Request {
    Request::Create { name: name.into(), spec: Spec::of(cpus.parse().unwrap()) }
}

/// With its first process.
pub fn create_for(name: &str, cpus: &str, pid: i32) -> Request {
    let (name, spec) = (name.into(), Spec::of(cpus.parse().unwrap()));
    Request::CreateFor { name, spec, members: pid_of(pid) }
}

pub fn destroy(name: &str) -> Request {
    Request::Destroy { name: Some(name.into()), demote: false }
}

pub fn destroy_demoting(name: &str) -> Request {
    Request::Destroy { name: Some(name.into()), demote: true }
}

pub fn add(name: &str, pid: i32) -> Request {
    Request::Add { name: name.into(), members: pid_of(pid) }
}

/// A process.
pub fn pid_of(pid: i32) -> Members {
    Members { pids: vec![pid], ..Members::default() }
}
