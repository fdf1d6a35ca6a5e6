// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine of plain values that behaves like the kernel where partitions depend on it: cgroup v2
//! with remote isolated partitions, IRQ affinities, tasks and their policies. For tests that must
//! not change a machine, and for those that no machine can run: a refusal or a kill at every step.
//!
//! Modelled after admin-guide/cgroup-v2.rst "Cpuset" and core-api/irq/irq-affinity.rst; the guests
//! of the lab run the same rows, so that a difference between this and a kernel shows there.

use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::sched::Schedule;
use crate::spin::Spinner;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const MOUNT: &str = "/sys/fs/cgroup";
const PF_KTHREAD: u64 = 0x0020_0000;
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// A thread of the fake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeTask {
    pub process: i32,
    pub command: String,
    pub kernel_thread: bool,
    /// A kernel thread that cannot be moved.
    pub bound: bool,
    /// CPUs of its own choice; `None`: what its group gives.
    pub affinity: Option<CpuSet>,
    pub schedule: Schedule,
    group: PathBuf,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Group {
    threaded: bool,
    /// The cpuset controller is on for its children.
    hands_on: bool,
    exclusive: CpuSet,
    isolated: bool,
}

/// What goes wrong at the n-th change from now.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// It is refused with this error number, once.
    Refuse { at: usize, errno: i32 },
    /// The caller ends before it (or right after), as by `kill -9`: a panic for the test to catch.
    Die { at: usize, after: bool },
    /// This task ends just before it.
    End { at: usize, tid: i32 },
}

#[derive(Debug, Clone)]
struct Machine {
    /// Settings that are a file and nothing else.
    files: BTreeMap<PathBuf, String>,
    possible: CpuSet,
    online: CpuSet,
    groups: BTreeMap<PathBuf, Group>,
    tasks: BTreeMap<i32, FakeTask>,
    /// IRQ lines whose affinity the kernel keeps to itself.
    managed: BTreeSet<u32>,
    changes: usize,
    fault: Option<Fault>,
}

/// A kernel in memory. Clones of the handle are not possible; share it by reference.
#[derive(Debug)]
pub struct FakeKernel {
    machine: Mutex<Machine>,
}

fn os(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl FakeKernel {
    /// Four CPUs, candidates 1-3; IRQ 4 (ttyS0), 24 (eth0) and 25 (managed: virtio0-req.1); 6.12's
    /// files.
    pub fn new() -> Self {
        let lines = [(4, "ttyS0", "0-3"), (24, "eth0", "0-3"), (25, "virtio0-req.1", "3")];
        let lines = lines.map(|(irq, name, cpus)| (irq, name.to_owned(), cpus.to_owned()));
        Self::of((0..4).map(|cpu| CpuSet::from_iter([cpu])).collect(), &lines, [25].into())
    }

    /// A server: `cpus` CPUs in pairs (n and n + `cpus` / 2 share a core), all but CPU 0
    /// candidates, and `irq_lines` lines from IRQ 4 on. As drivers spread them: a quarter may
    /// go to every CPU, a quarter to half of the CPUs, and the rest are queues of one CPU each.
    pub fn large(cpus: u32, irq_lines: u32) -> Self {
        let half = cpus / 2;
        let cores = (0..cpus).map(|cpu| CpuSet::from_iter([cpu % half, cpu % half + half]));
        let lines: Vec<(u32, String, String)> = (0..irq_lines)
            .map(|line| {
                let cpus = match line % 4 {
                    0 => format!("0-{}", cpus - 1),
                    1 => format!("0-{},{half}-{}", half / 2 - 1, half + half / 2 - 1),
                    _ => (line % cpus).to_string(),
                };
                (4 + line, format!("nvme0q{line}"), cpus)
            })
            .collect();
        Self::of(cores.collect(), &lines, BTreeSet::new())
    }

    /// A machine with these cores (by CPU), lines (number, handler, affinity) and managed lines.
    fn of(cores: Vec<CpuSet>, lines: &[(u32, String, String)], managed: BTreeSet<u32>) -> Self {
        let cpus: CpuSet = (0..cores.len() as Cpu).collect();
        let candidates = cpus.difference(&CpuSet::from_iter([0])).to_string();
        let mut files: BTreeMap<PathBuf, String> = [
            ("/proc/sys/kernel/osrelease", "6.12.0-fake".to_owned()),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_RT".to_owned()),
            ("/proc/self/status", "Uid:\t0\t0\t0\t0".to_owned()),
            ("/proc/self/cgroup", "0::/".to_owned()),
            ("/proc/self/mountinfo", format!("25 1 0:23 / {MOUNT} rw - cgroup2 cgroup2 rw")),
            ("/proc/cmdline", format!("nohz_full={candidates}")),
            ("/proc/irq/default_smp_affinity", cpus.to_mask()),
            ("/proc/sys/kernel/watchdog_cpumask", cpus.to_string()),
            ("/sys/devices/virtual/workqueue/cpumask", cpus.to_mask()),
            ("/sys/devices/system/cpu/nohz_full", candidates),
            ("/sys/devices/system/machinecheck/machinecheck0/check_interval", "12c".to_owned()),
            ("/proc/sys/kernel/timer_migration", "1".to_owned()),
        ]
        .into_iter()
        .map(|(path, text)| (path.into(), text))
        .collect();
        let columns: Vec<String> = cpus.iter().map(|cpu| format!("CPU{cpu}")).collect();
        let counts = "0 ".repeat(cores.len());
        let mut interrupts = format!("  {}\n", columns.join(" "));
        for (irq, name, cpus) in lines {
            files.insert(format!("/proc/irq/{irq}/smp_affinity_list").into(), cpus.clone());
            files.insert(format!("/proc/irq/{irq}/effective_affinity_list").into(), cpus.clone());
            interrupts.push_str(&format!("{irq}: {counts}PCI-MSI 0-edge {name}\n"));
        }
        interrupts.push_str("LOC: 0 0 0 0 Local timer interrupts\n");
        files.insert("/proc/interrupts".into(), interrupts);
        for (cpu, core) in cores.iter().enumerate() {
            let dir = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}"));
            files.insert(dir.join("topology/thread_siblings_list"), core.to_string());
            files.insert(dir.join("power/pm_qos_resume_latency_us"), "0".to_owned());
            files.insert(dir.join("cpufreq/scaling_governor"), "schedutil".to_owned());
            let server = format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime");
            files.insert(server.into(), "50000000".to_owned());
        }
        let fake = Self {
            machine: Mutex::new(Machine {
                files,
                possible: cpus.clone(),
                online: cpus.clone(),
                groups: BTreeMap::from([(PathBuf::from("/"), Group::default())]),
                tasks: BTreeMap::new(),
                managed,
                changes: 0,
                fault: None,
            }),
        };
        // Four CPUs: 20 to 23; larger machines have theirs beyond the numbers that tests choose.
        let first = if cores.len() <= 4 { 20 } else { 10_000 };
        for cpu in cpus.iter() {
            fake.start_kernel_thread(first + cpu as i32, &format!("ktimers/{cpu}"), Some(cpu));
        }
        fake.start_kernel_thread(30, "kcompactd0", None);
        fake.start(1, 1, "init", Schedule::Other { nice: 0 });
        fake.start(100, 100, "init", Schedule::Other { nice: 0 });
        fake
    }

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
            affinity: None,
            schedule,
            group,
        };
        self.lock().tasks.insert(tid, task);
    }

    fn start_kernel_thread(&self, tid: i32, command: &str, cpu: Option<Cpu>) {
        let schedule = Schedule::Fifo { priority: 1 };
        let task = FakeTask {
            process: tid,
            command: command.to_owned(),
            kernel_thread: true,
            bound: cpu.is_some(),
            affinity: cpu.map(|cpu| CpuSet::from_iter([cpu])),
            schedule,
            group: PathBuf::from("/"),
        };
        self.lock().tasks.insert(tid, task);
    }

    pub fn set_online(&self, cpu: Cpu, online: bool) {
        let mut machine = self.lock();
        let one = CpuSet::from_iter([cpu]);
        machine.online =
            if online { machine.online.union(&one) } else { machine.online.difference(&one) };
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
        let tasks =
            machine.tasks.iter().map(|(tid, task)| (format!("task {tid}"), format!("{task:?}")));
        files.chain(groups).chain(tasks).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One change, with the fault that is due.
    fn change(&self, act: impl FnOnce(&mut Machine) -> io::Result<()>) -> io::Result<()> {
        let mut machine = self.lock();
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

impl Machine {
    /// Does the cpuset controller reach this group's files?
    fn has_cpuset(&self, group: &Path) -> bool {
        group
            .parent()
            .is_some_and(|parent| self.groups.get(parent).is_some_and(|parent| parent.hands_on))
    }

    /// The exclusive CPUs that really reach a group: all ancestors must pass them on.
    fn exclusive(&self, group: &Path) -> CpuSet {
        match (group.parent(), self.groups.get(group)) {
            (None, _) => self.possible.clone(),
            (Some(parent), Some(own)) => own.exclusive.intersection(&self.exclusive(parent)),
            _ => CpuSet::new(),
        }
    }

    /// CPUs of a valid isolated partition; what makes it invalid otherwise.
    fn partition(&self, group: &Path) -> Result<CpuSet, &'static str> {
        let cpus = self.exclusive(group).intersection(&self.online);
        match (cpus.is_empty(), self.online.difference(&cpus).is_empty()) {
            (true, _) => Err("Invalid cpu list in cpuset.cpus.exclusive"),
            (_, true) => Err("Parent unable to distribute cpu downstream"),
            _ => Ok(cpus),
        }
    }

    fn isolated(&self) -> CpuSet {
        let groups = self.groups.iter().filter(|(_, group)| group.isolated);
        groups
            .filter_map(|(path, _)| self.partition(path).ok())
            .fold(CpuSet::new(), |all, cpus| all.union(&cpus))
    }

    fn allowed(&self, task: &FakeTask) -> CpuSet {
        task.affinity.clone().unwrap_or_else(|| self.given(&task.group))
    }

    /// The CPUs that a group gives to its tasks.
    fn given(&self, group: &Path) -> CpuSet {
        let partition =
            group.ancestors().find(|group| self.groups.get(*group).is_some_and(|g| g.isolated));
        match partition.and_then(|group| self.partition(group).ok()) {
            Some(cpus) => cpus,
            None => self.online.difference(&self.isolated()),
        }
    }

    fn read_group(&self, group: &Path, file: &str) -> io::Result<String> {
        let own = self.groups.get(group).ok_or_else(|| os(libc::ENOENT))?;
        let root = group.parent().is_none();
        let members = |of: &dyn Fn(i32, &FakeTask) -> bool| -> String {
            let inside =
                self.tasks.iter().filter(|(tid, task)| task.group == group && of(**tid, task));
            inside.map(|(tid, _)| tid.to_string()).collect::<Vec<_>>().join("\n")
        };
        match file {
            "cgroup.controllers" if root => Ok("cpuset cpu memory".to_owned()),
            "cgroup.subtree_control" => Ok(if own.hands_on { "cpuset" } else { "" }.to_owned()),
            "cgroup.threads" => Ok(members(&|_, _| true)),
            "cgroup.procs" => Ok(members(&|tid, task| task.process == tid)),
            "cgroup.type" => Ok(if own.threaded { "threaded" } else { "domain" }.to_owned()),
            "cpuset.cpus.isolated" if root => Ok(self.isolated().to_string()),
            _ if root || !self.has_cpuset(group) => Err(os(libc::ENOENT)),
            "cpuset.cpus.effective" => Ok(self.given(group).to_string()),
            "cpuset.cpus.exclusive" => Ok(own.exclusive.to_string()),
            "cpuset.cpus.partition" => Ok(match (own.isolated, self.partition(group)) {
                (false, _) => "member".to_owned(),
                (true, Ok(_)) => "isolated".to_owned(),
                (true, Err(why)) => format!("isolated invalid ({why})"),
            }),
            _ => Err(os(libc::ENOENT)),
        }
    }

    fn write_group(&mut self, group: &Path, file: &str, text: &str) -> io::Result<()> {
        if !self.groups.contains_key(group) {
            return Err(os(libc::ENOENT));
        }
        let invalid = |_| os(libc::EINVAL);
        match file {
            "cgroup.subtree_control" => return self.hand_on(group, text),
            "cgroup.procs" => return self.move_process(text.parse().map_err(invalid)?, group),
            "cgroup.threads" => return self.move_thread(text.parse().map_err(invalid)?, group),
            "cgroup.type" if text == "threaded" => {}
            "cpuset.cpus.exclusive" | "cpuset.cpus.partition" if self.has_cpuset(group) => {}
            _ => return Err(os(libc::ENOENT)),
        }
        let cpus: Option<CpuSet> = match file {
            "cpuset.cpus.exclusive" => Some(text.parse().map_err(|_| os(libc::EINVAL))?),
            _ => None,
        };
        let siblings = self
            .groups
            .iter()
            .filter(|(path, _)| path.parent() == group.parent() && **path != group);
        if let Some(cpus) = &cpus
            && siblings.clone().any(|(_, sibling)| sibling.exclusive.intersects(cpus))
        {
            return Err(os(libc::EINVAL));
        }
        if file == "cpuset.cpus.partition" {
            // The kernel gives every unbound kernel thread the CPUs that are left.
            let kernel_threads =
                self.tasks.values_mut().filter(|task| task.kernel_thread && !task.bound);
            kernel_threads.for_each(|task| task.affinity = None);
        }
        let own = self.groups.entry(group.to_owned()).or_default();
        match (file, cpus) {
            (_, Some(cpus)) => own.exclusive = cpus,
            ("cgroup.type", None) => own.threaded = true,
            _ => match text {
                "isolated" => own.isolated = true,
                "member" => own.isolated = false,
                _ => return Err(os(libc::EINVAL)),
            },
        }
        Ok(())
    }

    fn hand_on(&mut self, group: &Path, text: &str) -> io::Result<()> {
        let children: Vec<PathBuf> =
            self.groups.keys().filter(|path| path.parent() == Some(group)).cloned().collect();
        let root = group.parent().is_none();
        let on = match text {
            "+cpuset" if root || self.has_cpuset(group) => true,
            "+cpuset" => return Err(os(libc::ENOENT)),
            "-cpuset" if children.iter().any(|child| self.groups[child].hands_on) => {
                return Err(os(libc::EBUSY));
            }
            "-cpuset" => false,
            _ => return Err(os(libc::EINVAL)),
        };
        if !on {
            for child in children {
                let threaded = self.groups[&child].threaded;
                self.groups.insert(child, Group { threaded, ..Group::default() });
            }
        }
        self.groups.entry(group.to_owned()).or_default().hands_on = on;
        Ok(())
    }

    fn move_process(&mut self, tid: i32, group: &Path) -> io::Result<()> {
        let process = self.tasks.get(&tid).ok_or_else(|| os(libc::ESRCH))?.process;
        if self.tasks[&tid].kernel_thread {
            return Err(os(libc::EINVAL));
        }
        for task in self.tasks.values_mut().filter(|task| task.process == process) {
            task.group = group.to_owned();
        }
        Ok(())
    }

    /// One thread moves only within its threaded domain.
    fn move_thread(&mut self, tid: i32, group: &Path) -> io::Result<()> {
        let from = self.tasks.get(&tid).ok_or_else(|| os(libc::ESRCH))?.group.clone();
        if self.domain(&from) != self.domain(group) {
            return Err(os(libc::EOPNOTSUPP));
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.group = group.to_owned();
        }
        Ok(())
    }

    fn domain<'a>(&self, group: &'a Path) -> &'a Path {
        let is_domain =
            |group: &&Path| self.groups.get(*group).is_some_and(|group| !group.threaded);
        group.ancestors().find(is_domain).unwrap_or(group)
    }

    fn read_task(&self, tid: i32, file: &str) -> io::Result<String> {
        let task = self.tasks.get(&tid).ok_or_else(|| os(libc::ENOENT))?;
        let kernel = if task.kernel_thread { PF_KTHREAD } else { 0 };
        let bound = if task.bound { PF_NO_SETAFFINITY } else { 0 };
        match file {
            "comm" => Ok(task.command.clone()),
            "cgroup" => Ok(format!("0::{}", task.group.display())),
            "status" => {
                Ok(format!("Tgid:\t{}\nCpus_allowed_list:\t{}", task.process, self.allowed(task)))
            }
            "stat" => Ok(format!(
                "{tid} ({}) S 1 0 0 0 -1 {} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0",
                task.command,
                kernel | bound,
                1000 + tid
            )),
            _ => Err(os(libc::ENOENT)),
        }
    }

    fn write_file(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let old = self.files.get(path).ok_or_else(|| os(libc::ENOENT))?;
        let irq = path
            .strip_prefix("/proc/irq")
            .ok()
            .and_then(|rest| rest.iter().next()?.to_str()?.parse().ok());
        let spelled = match irq {
            Some(irq) if self.managed.contains(&irq) => return Err(os(libc::EPERM)),
            Some(_) => {
                let cpus: CpuSet = text.parse().map_err(|_| os(libc::EINVAL))?;
                if !cpus.intersects(&self.online) {
                    return Err(os(libc::EINVAL));
                }
                cpus.to_string()
            }
            None => text.to_owned(),
        };
        if *old != spelled {
            self.files.insert(path.to_owned(), spelled);
        }
        Ok(())
    }
}

/// The group a path of the cgroup tree means, and the file in it.
fn in_tree(path: &Path) -> Option<(PathBuf, String)> {
    let below = path.strip_prefix(MOUNT).ok()?;
    let file = below.file_name()?.to_string_lossy().into_owned();
    Some((Path::new("/").join(below.parent()?), file))
}

/// The task a path of /proc means, and the file of it.
fn of_task(path: &Path) -> Option<(i32, String)> {
    let mut parts = path.strip_prefix("/proc").ok()?.iter();
    let tid = parts.next()?.to_str()?.parse().ok()?;
    Some((tid, parts.next()?.to_str()?.to_owned()))
}

impl Kernel for FakeKernel {
    fn stream(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        Ok(Box::new(io::Cursor::new(self.read(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let machine = self.lock();
        let text = match (in_tree(path), of_task(path)) {
            (Some((group, file)), _) => machine.read_group(&group, &file)?,
            (_, Some((tid, file))) => machine.read_task(tid, &file)?,
            _ if path == Path::new("/sys/devices/system/cpu/online") => machine.online.to_string(),
            _ if path == Path::new("/sys/devices/system/cpu/possible") => {
                machine.possible.to_string()
            }
            _ => machine.files.get(path).ok_or_else(|| os(libc::ENOENT))?.clone(),
        };
        Ok(format!("{text}\n").into_bytes())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
        self.change(|machine| match in_tree(path) {
            Some((group, file)) => machine.write_group(&group, &file, &text),
            None => machine.write_file(path, &text),
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let machine = self.lock();
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

    fn schedule(&self, tid: i32) -> io::Result<Schedule> {
        self.lock().tasks.get(&tid).map(|task| task.schedule).ok_or_else(|| os(libc::ESRCH))
    }

    fn set_schedule(&self, tid: i32, schedule: &Schedule) -> io::Result<()> {
        self.change(|machine| {
            machine.tasks.get_mut(&tid).ok_or_else(|| os(libc::ESRCH))?.schedule = *schedule;
            Ok(())
        })
    }

    fn set_affinity(&self, tid: i32, cpus: &CpuSet) -> io::Result<()> {
        self.change(|machine| {
            let task = machine.tasks.get_mut(&tid).ok_or_else(|| os(libc::ESRCH))?;
            if task.bound {
                return Err(os(libc::EINVAL));
            }
            task.affinity = Some(cpus.clone());
            Ok(())
        })
    }

    fn exists(&self, path: &Path) -> bool {
        let machine = self.lock();
        self.exists_in(&machine, path)
    }

    fn delegate(&self, _mount: &Path, _on: bool) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the fake has no systemd"))
    }

    fn spin(&self, _most: Duration) -> io::Result<Box<dyn Spinner + '_>> {
        self.start(SPINNER, SPINNER, "spinner", Schedule::Other { nice: 0 });
        Ok(Box::new(FakeSpinner(self)))
    }
}

/// The number of a spinner's task.
const SPINNER: i32 = 9_000;

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
        as_group || machine.files.keys().any(|file| file.starts_with(path))
    }
}
