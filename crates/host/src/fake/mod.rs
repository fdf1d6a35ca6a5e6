// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine of plain values that behaves like the kernel where partitions depend on it: cgroup v2
//! with remote isolated partitions, IRQ affinities, tasks and their policies. For tests that must
//! not change a machine, and for those that no machine can run: a refusal or a kill at every step.
//!
//! Modelled after admin-guide/cgroup-v2.rst "Cpuset" and core-api/irq/irq-affinity.rst; the guests
//! of the lab run the same rows, so that a difference between this and a kernel shows there.

mod machine;
mod start;

pub use machine::FakeTask;

use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::sched::{Schedule, TimeLimits};
use crate::spin::Spinner;
use machine::{Group, Machine, PATH_MAX, os};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const MOUNT: &str = "/sys/fs/cgroup";
const SYSTEMD: &str = "/run/systemd/system";
const SHARER: &str = "/usr/bin/asmp-artis";
/// The one hook of its scheduler.
const HOOK: &str = "user_exit";

/// What goes wrong at the n-th change from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this error number, once.
    Refuse { at: usize, errno: i32 },
    /// The caller ends before it (or right after), as by `kill -9`: a panic for the test to catch.
    Die { at: usize, after: bool },
    /// This task ends just before it.
    End { at: usize, tid: i32 },
    /// Another program makes the group that would be made, just before it is.
    Race { at: usize },
    /// Each write to a file below is refused with this error number.
    Hold { below: &'static str, errno: i32 },
    /// The files below are root's alone, and who reads is another user.
    Hide { below: &'static str },
    /// The kernel reports success where this task's CPUs are set, and leaves them as they are.
    Keep { tid: i32 },
    /// The tick of no CPU ever stops: each look at /proc/interrupts shows more.
    Tick,
}

/// A kernel in memory. Clones of the handle are not possible; share it by reference.
#[derive(Debug)]
pub struct FakeKernel {
    machine: Mutex<Machine>,
    calls: AtomicUsize,
}

impl FakeKernel {
    /// Starts a thread of `process` in the root group; the process' first thread has its number.
    pub fn start(&self, tid: i32, process: i32, command: &str, schedule: Schedule) {
        let group =
            self.lock().tasks.get(&process).map_or_else(|| "/".into(), |task| task.group.clone());
        let command = command.to_owned();
        let task = FakeTask {
            process,
            command,
            kernel_thread: false,
            bound: false,
            of_node: false,
            affinity: None,
            asked: None,
            schedule,
            group,
            parent: 1,
            start_ticks: 1000 + tid as u64,
            uid: 0,
            other_uids: 0,
            runnable: false,
            most_us: None,
        };
        self.lock().tasks.insert(tid, task);
    }

    /// Changes a thread, as itself or another program does.
    pub fn edit(&self, tid: i32, edit: impl FnOnce(&mut FakeTask)) {
        edit(self.lock().tasks.get_mut(&tid).expect("the task is there"));
    }

    /// Ends a thread.
    pub fn end(&self, tid: i32) {
        self.lock().tasks.remove(&tid);
    }

    /// A thread as it is; `None`: it has ended.
    pub fn task(&self, tid: i32) -> Option<FakeTask> {
        self.lock().tasks.get(&tid).cloned()
    }

    /// Calls of the kernel since the machine was made.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn call(&self) -> MutexGuard<'_, Machine> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.lock()
    }

    pub fn set_online(&self, cpu: Cpu, online: bool) {
        let mut machine = self.lock();
        let one = CpuSet::from_iter([cpu]);
        if machine.online.contains(cpu) == online {
            return;
        }
        machine.online =
            if online { machine.online.union(&one) } else { machine.online.difference(&one) };
        machine.hotplug();
        if online {
            machine.follow_node();
        }
    }

    /// Makes a group of somebody else, `/machine.slice`, that asks for `cpus` and has `exclusive`
    /// ones (empty: none). The groups around it hand the cpuset controller on.
    pub fn make_group(&self, path: &str, cpus: &CpuSet, exclusive: &CpuSet) {
        let mut machine = self.lock();
        for around in Path::new(path).ancestors().skip(1) {
            machine.groups.entry(around.to_owned()).or_default().hands_on = true;
        }
        let (cpus, exclusive) = (cpus.clone(), exclusive.clone());
        machine.groups.insert(path.into(), Group { cpus, exclusive, ..Group::default() });
    }

    /// What its starter did to a thread: its group, and its affinity (`None`: none).
    pub fn place(&self, tid: i32, group: &str, affinity: Option<CpuSet>) {
        if let Some(task) = self.lock().tasks.get_mut(&tid) {
            task.group = group.into();
            task.affinity = affinity;
        }
    }

    /// A line takes what it is told from now on.
    pub fn unmanage(&self, irq: u32) {
        self.lock().managed.remove(&irq);
    }

    /// As when a device is removed.
    pub fn remove_file(&self, path: &str) {
        self.lock().files.remove(Path::new(path));
    }

    pub fn set_file(&self, path: &str, text: &str) {
        self.lock().files.insert(path.into(), text.to_owned());
    }

    /// Counts changes from here and arms a fault; `None` disarms.
    pub fn arm(&self, fault: Option<Fault>) {
        let mut machine = self.lock();
        machine.fault = fault;
        machine.changes = 0;
    }

    /// Changes since the last [`arm`](Self::arm), refused ones included.
    pub fn changes(&self) -> usize {
        self.lock().changes
    }

    pub fn online(&self) -> CpuSet {
        self.lock().online.clone()
    }

    /// CPUs in valid isolated partitions.
    pub fn isolated(&self) -> CpuSet {
        self.lock().isolated()
    }

    /// CPUs a thread may run on; `None`: it has ended.
    pub fn allowed(&self, tid: i32) -> Option<CpuSet> {
        let machine = self.lock();
        machine.tasks.get(&tid).map(|task| machine.allowed(task))
    }

    /// Everything that can be changed, in words.
    pub fn snapshot(&self) -> BTreeMap<String, String> {
        let machine = self.lock();
        let files =
            machine.files.iter().map(|(path, text)| (path.display().to_string(), text.clone()));
        let groups = machine
            .groups
            .iter()
            .map(|(path, group)| (format!("group {}", path.display()), format!("{group:?}")));
        let as_seen = |task: &FakeTask| {
            let affinity = Some(machine.allowed(task));
            FakeTask { affinity, asked: None, ..task.clone() }
        };
        let tasks = machine
            .tasks
            .iter()
            .map(|(tid, task)| (format!("task {tid}"), format!("{:?}", as_seen(task))));
        files.chain(groups).chain(tasks).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change, with the fault that is due.
    fn change(&self, act: impl FnOnce(&mut Machine) -> io::Result<()>) -> io::Result<()> {
        let mut machine = self.call();
        let now = machine.changes;
        machine.changes += 1;
        match machine.fault {
            Some(Fault::Refuse { at, errno }) if at == now => Err(os(errno)),
            Some(Fault::Die { at, after }) if at == now => {
                if after {
                    let _ = act(&mut machine);
                }
                std::panic::resume_unwind(Box::new("killed"))
            }
            Some(Fault::End { at, tid }) if at == now => {
                machine.tasks.retain(|_, task| task.process != tid);
                act(&mut machine)
            }
            _ => act(&mut machine),
        }
    }
}

impl Default for FakeKernel {
    fn default() -> Self {
        Self::new()
    }
}

/// The group a path of the cgroup tree means, and the file in it.
fn in_tree(path: &Path) -> Option<(PathBuf, String)> {
    let below = path.strip_prefix(MOUNT).ok()?;
    let file = below.file_name()?.to_string_lossy().into_owned();
    Some((Path::new("/").join(below.parent()?), file))
}

/// The task a path of /proc means, and the file of it: `/proc/TID/FILE`, `/proc/PID/task/TID/FILE`.
fn of_task(path: &Path) -> Option<(i32, String)> {
    let parts: Vec<&str> = path.strip_prefix("/proc").ok()?.to_str()?.split('/').collect();
    match parts[..] {
        [_, "task", tid, file] | [tid, file] => Some((tid.parse().ok()?, file.to_owned())),
        _ => None,
    }
}

impl Kernel for FakeKernel {
    fn stream(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        Ok(Box::new(io::Cursor::new(self.read(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut machine = self.call();
        if matches!(machine.fault, Some(Fault::Hide { below }) if path.starts_with(below)) {
            return Err(os(libc::EACCES));
        }
        if path.as_os_str().len() >= PATH_MAX {
            return Err(os(libc::ENAMETOOLONG));
        }
        if path == Path::new("/proc/sys/kernel/sched_rt_runtime_us") {
            let release = machine.files.get(Path::new("/proc/sys/kernel/osrelease"));
            machine.lost_servers |= release.is_some_and(|text| text.starts_with("6.12."));
        }
        let text = match (in_tree(path), of_task(path)) {
            (Some((group, file)), _) => machine.read_group(&group, &file)?,
            (_, Some((tid, file))) => machine.read_task(tid, &file)?,
            _ if path == Path::new("/sys/devices/system/cpu/online") => machine.online.to_string(),
            _ if path == Path::new("/sys/devices/system/cpu/possible") => {
                machine.possible.to_string()
            }
            _ if path == Path::new("/sys/devices/system/cpu/present")
                && !machine.files.contains_key(path) =>
            {
                machine.possible.to_string()
            }
            _ if path.starts_with("/sys/devices/system/node") && path.ends_with("cpulist") => {
                // As the kernel does, without those that are offline.
                let all = machine.files.get(path).ok_or_else(|| os(libc::ENOENT))?;
                let all: CpuSet = all.parse().map_err(|_| os(libc::EINVAL))?;
                all.intersection(&machine.online).to_string()
            }
            _ if path.starts_with("/sys/kernel/debug") && !machine.is_root() => {
                return Err(os(libc::EACCES));
            }
            _ => machine.files.get(path).ok_or_else(|| os(libc::ENOENT))?.clone(),
        };
        if matches!(machine.fault, Some(Fault::Tick)) && path == Path::new("/proc/interrupts") {
            let ticks = format!("{} ", self.calls.load(Ordering::Relaxed)).repeat(4);
            return Ok(text.replace("LOC: 0 0 0 0 ", &format!("LOC: {ticks}")).into_bytes());
        }
        Ok(format!("{text}\n").into_bytes())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
        if path.as_os_str().len() >= PATH_MAX {
            return Err(os(libc::ENAMETOOLONG));
        }
        self.change(|machine| match in_tree(path) {
            _ if machine.holds(path).is_some() => Err(os(machine.holds(path).unwrap_or_default())),
            Some((group, file)) => machine.write_group(&group, &file, &text),
            None => machine.write_file(path, &text),
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let machine = self.call();
        let names: BTreeSet<String> = if let Ok(group) = dir.strip_prefix(MOUNT) {
            let group = Path::new("/").join(group);
            let children = machine.groups.keys().filter(|path| path.parent() == Some(&group));
            children
                .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
                .collect()
        } else if dir == Path::new("/proc") {
            let processes = machine.tasks.iter().filter(|(tid, task)| task.process == **tid);
            processes.map(|(tid, _)| tid.to_string()).collect()
        } else if let Some((process, "task")) =
            of_task(dir).as_ref().map(|(tid, file)| (*tid, file.as_str()))
        {
            let threads = machine.tasks.iter().filter(|(_, task)| task.process == process);
            threads.map(|(tid, _)| tid.to_string()).collect()
        } else {
            let below = machine.files.keys().filter_map(|path| path.strip_prefix(dir).ok());
            below
                .filter_map(|path| Some(path.iter().next()?.to_string_lossy().into_owned()))
                .collect()
        };
        match names.is_empty() && !self.exists_in(&machine, dir) {
            true => Err(os(libc::ENOENT)),
            false => Ok(names.into_iter().collect()),
        }
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let (parent, name) = in_tree(dir).ok_or_else(|| os(libc::EACCES))?;
        self.change(|machine| {
            let group = parent.join(name);
            if !machine.groups.contains_key(&parent) {
                return Err(os(libc::ENOENT));
            }
            if matches!(machine.fault, Some(Fault::Race { at }) if at + 1 == machine.changes) {
                machine.groups.entry(group.clone()).or_default();
            }
            match machine.groups.contains_key(&group) {
                true => Err(os(libc::EEXIST)),
                false => {
                    machine.groups.insert(group, Group::default());
                    Ok(())
                }
            }
        })
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let (parent, name) = in_tree(dir).ok_or_else(|| os(libc::EACCES))?;
        self.change(|machine| {
            let group = parent.join(name);
            let busy = machine.tasks.values().any(|task| task.group == group)
                || machine.groups.keys().any(|path| path.parent() == Some(&group));
            match machine.groups.contains_key(&group) {
                false => Err(os(libc::ENOENT)),
                true if busy => Err(os(libc::EBUSY)),
                true => {
                    machine.groups.remove(&group);
                    Ok(())
                }
            }
        })
    }

    fn mark(&self, dir: &Path) -> io::Result<()> {
        let (parent, name) = in_tree(dir).ok_or_else(|| os(libc::EOPNOTSUPP))?;
        self.change(|machine| {
            let group = machine.groups.get_mut(&parent.join(name));
            group.ok_or_else(|| os(libc::ENOENT))?.marked = true;
            Ok(())
        })
    }

    fn is_marked(&self, dir: &Path) -> bool {
        let Some((parent, name)) = in_tree(dir) else { return false };
        self.lock().groups.get(&parent.join(name)).is_some_and(|group| group.marked)
    }

    fn schedule(&self, tid: i32) -> io::Result<Schedule> {
        self.call().tasks.get(&tid).map(|task| task.schedule).ok_or_else(|| os(libc::ESRCH))
    }

    fn set_schedule(&self, tid: i32, schedule: &Schedule) -> io::Result<()> {
        self.change(|machine| {
            machine.tasks.get_mut(&tid).ok_or_else(|| os(libc::ESRCH))?.schedule = *schedule;
            Ok(())
        })
    }

    fn limit_real_time(&self, process: i32, limits: TimeLimits) -> io::Result<()> {
        self.change(|machine| {
            let task = machine.tasks.get_mut(&process).ok_or_else(|| os(libc::ESRCH))?;
            task.most_us = limits.hard_us;
            Ok(())
        })
    }

    fn online_affinity(&self, tid: i32) -> io::Result<CpuSet> {
        let machine = self.call();
        let task = machine.tasks.get(&tid).ok_or_else(|| os(libc::ESRCH))?;
        Ok(machine.allowed(task).intersection(&machine.online))
    }

    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        self.change(|machine| {
            let online = machine.online.clone();
            let task = machine.tasks.get_mut(&tid).ok_or_else(|| os(libc::ESRCH))?;
            if task.bound || !cpus.intersects(&online) {
                return Err(os(libc::EINVAL));
            }
            if machine.fault == Some(Fault::Keep { tid }) {
                return Ok(());
            }
            task.affinity = Some(cpus.clone());
            task.asked = task.kernel_thread.then(|| cpus.clone());
            Ok(())
        })
    }

    fn exists(&self, path: &Path) -> bool {
        let machine = self.lock();
        self.exists_in(&machine, path)
    }

    fn is_file(&self, path: &Path) -> bool {
        self.lock().files.contains_key(path)
    }

    fn link(&self, path: &Path) -> io::Result<String> {
        self.lock().files.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn delegate(&self, _mount: &Path, on: bool) -> io::Result<()> {
        if !self.exists(Path::new(SYSTEMD)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no systemd runs here"));
        }
        self.change(|machine| machine.delegate(on))
    }

    fn sharer(&self) -> Option<PathBuf> {
        let loader = PathBuf::from(SHARER);
        self.lock().files.contains_key(&loader).then_some(loader)
    }

    fn share(&self, cpus: &CpuSet) -> io::Result<()> {
        self.change(|machine| machine.share(cpus))
    }

    fn spin(&self, _most: Duration) -> io::Result<Box<dyn Spinner + '_>> {
        self.start(SPINNER, SPINNER, "spinner", Schedule::Other { nice: 0 });
        Ok(Box::new(FakeSpinner(self)))
    }
}

/// The number of a spinner's task.
pub const SPINNER: i32 = 9_000;

/// A task of the fake that is there while this is.
struct FakeSpinner<'a>(&'a FakeKernel);

impl Spinner for FakeSpinner<'_> {
    fn pid(&self) -> i32 {
        SPINNER
    }
}

impl Drop for FakeSpinner<'_> {
    fn drop(&mut self) {
        self.0.lock().tasks.remove(&SPINNER);
    }
}

impl FakeKernel {
    fn exists_in(&self, machine: &Machine, path: &Path) -> bool {
        let as_group = path
            .strip_prefix(MOUNT)
            .is_ok_and(|group| machine.groups.contains_key(&Path::new("/").join(group)));
        let as_file =
            in_tree(path).is_some_and(|(group, file)| machine.read_group(&group, &file).is_ok());
        as_group || as_file || machine.files.keys().any(|file| file.starts_with(path))
    }
}
