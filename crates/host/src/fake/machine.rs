// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of the fake machine, and the kernel's rules for cgroups, tasks and IRQ lines.

use super::{Fault, HOOK, SHARER};
use crate::cpuset::CpuSet;
use crate::knob;
use crate::sched::Schedule;
use crate::sharing;
use crate::systemd;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Paths that go to the kernel or come from it are shorter than this (limits.h).
pub(super) const PATH_MAX: usize = 4096;
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
    /// The kernel gives this kernel thread the online CPUs of its node, as it does kcompactd.
    pub of_node: bool,
    /// CPUs of its own choice; `None`: what its group gives.
    pub affinity: Option<CpuSet>,
    /// What `sched_setaffinity` asked for: the kernel goes on respecting it.
    pub(super) asked: Option<CpuSet>,
    pub schedule: Schedule,
    pub group: PathBuf,
    pub parent: i32,
    /// Tells it from an earlier task of its number.
    pub start_ticks: u64,
    /// Real user.
    pub uid: u32,
    /// Effective, saved and file system user.
    pub other_uids: u32,
    /// State R: it runs, or waits for a CPU.
    pub runnable: bool,
    /// RLIMIT_RTTIME, both limits, of a process by its first thread.
    pub most_us: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) threaded: bool,
    /// The cpuset controller is on for its children.
    pub(super) hands_on: bool,
    /// `cpuset.cpus`: what it asks for.
    pub(super) cpus: CpuSet,
    pub(super) exclusive: CpuSet,
    pub(super) isolated: bool,
    /// Its CPUs went offline with tasks inside: it stays invalid until its type is written again.
    pub(super) lost: bool,
    pub(super) frozen: bool,
    pub(super) marked: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Machine {
    /// Settings that are a file and nothing else.
    pub(super) files: BTreeMap<PathBuf, String>,
    pub(super) possible: CpuSet,
    pub(super) online: CpuSet,
    pub(super) groups: BTreeMap<PathBuf, Group>,
    pub(super) tasks: BTreeMap<i32, FakeTask>,
    /// IRQ lines whose affinity the kernel keeps to itself.
    pub(super) managed: BTreeSet<u32>,
    /// 6.12 lost account of what the deadline servers had reserved.
    pub(super) lost_servers: bool,
    pub(super) changes: usize,
    pub(super) fault: Option<Fault>,
}

pub(super) fn os(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl Machine {
    /// Only root may read debugfs.
    pub(super) fn is_root(&self) -> bool {
        let status = self.files.get(Path::new("/proc/self/status"));
        status.is_some_and(|status| status.starts_with("Uid:\t0\t0"))
    }

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
        if self.groups.get(group).is_some_and(|group| group.lost) {
            return Err("No cpu available due to hotplug");
        }
        match (cpus.is_empty(), self.online.difference(&cpus).is_empty()) {
            (true, _) => Err("Invalid cpu list in cpuset.cpus.exclusive"),
            (_, true) => Err("Parent unable to distribute cpu downstream"),
            _ => Ok(cpus),
        }
    }

    /// What a change of the online CPUs does to partitions: one without tasks is valid again as
    /// soon as it has a CPU, one with tasks is not.
    pub(super) fn hotplug(&mut self) {
        let isolated = self.groups.iter().filter(|(_, group)| group.isolated);
        let changed: Vec<(PathBuf, bool)> = isolated
            .filter_map(|(path, _)| {
                let has_tasks = self.tasks.values().any(|task| task.group.starts_with(path));
                let cpus = self.exclusive(path).intersection(&self.online);
                match (cpus.is_empty(), has_tasks) {
                    (true, true) => Some((path.clone(), true)),
                    (false, false) => Some((path.clone(), false)),
                    _ => None,
                }
            })
            .collect();
        for (path, lost) in changed {
            self.groups.entry(path).or_default().lost = lost;
        }
    }

    /// What the kernel does when a CPU has come online, or a partition has changed.
    pub(super) fn follow_node(&mut self) {
        let cpus = self.online.difference(&self.isolated());
        for task in self.tasks.values_mut().filter(|task| task.of_node) {
            let asked = task.asked.as_ref().map(|asked| asked.intersection(&cpus));
            let asked = asked.filter(|both| !both.is_empty());
            task.affinity = Some(asked.unwrap_or_else(|| cpus.clone()));
        }
    }

    pub(super) fn isolated(&self) -> CpuSet {
        let groups = self.groups.iter().filter(|(_, group)| group.isolated);
        groups
            .filter_map(|(path, _)| self.partition(path).ok())
            .fold(CpuSet::new(), |all, cpus| all.union(&cpus))
    }

    /// The error number of each write to `path`, while a fault says so.
    pub(super) fn holds(&self, path: &Path) -> Option<i32> {
        match self.fault {
            Some(Fault::Hold { below, errno }) if path.starts_with(below) => Some(errno),
            _ => None,
        }
    }

    /// CPUs of isolated partitions, online or not.
    fn taken(&self) -> CpuSet {
        let groups = self.groups.iter().filter(|(_, group)| group.isolated);
        let cpus = groups.map(|(path, _)| self.exclusive(path));
        cpus.fold(CpuSet::new(), |all, cpus| all.union(&cpus))
    }

    pub(super) fn allowed(&self, task: &FakeTask) -> CpuSet {
        let root = task.group.parent().is_none();
        let given = match root && (task.kernel_thread || task.process == 1) {
            // The kernel counts offline CPUs in.
            true => self.possible.difference(&self.taken()),
            false => self.given(&task.group),
        };
        match &task.affinity {
            Some(own) if task.kernel_thread || !own.intersects(&self.online) => own.clone(),
            // What its group does not give it cannot choose.
            Some(own) if own.intersects(&given) => own.intersection(&given),
            Some(_) => given,
            None => {
                let asked = task.asked.as_ref().map(|asked| asked.intersection(&given));
                asked.filter(|both| !both.is_empty()).unwrap_or(given)
            }
        }
    }

    /// The CPUs that a group gives to its tasks.
    fn given(&self, group: &Path) -> CpuSet {
        let partition =
            group.ancestors().find(|group| self.groups.get(*group).is_some_and(|g| g.isolated));
        match partition.and_then(|group| self.partition(group).ok()) {
            Some(cpus) => cpus,
            None => {
                group.ancestors().fold(self.online.difference(&self.isolated()), |all, group| {
                    let asked = self.groups.get(group).map(|group| group.cpus.intersection(&all));
                    asked.filter(|asked| !asked.is_empty()).unwrap_or(all)
                })
            }
        }
    }

    pub(super) fn read_group(&self, group: &Path, file: &str) -> io::Result<String> {
        let own = self.groups.get(group).ok_or_else(|| os(libc::ENOENT))?;
        let root = group.parent().is_none();
        let members = |of: &dyn Fn(i32, &FakeTask) -> bool| -> String {
            let inside = self.tasks.iter().filter(|(tid, task)| of(**tid, task));
            inside.map(|(tid, _)| tid.to_string()).collect::<Vec<_>>().join("\n")
        };
        // A process of a threaded group counts where its threaded groups begin.
        let is_threaded = |task: &FakeTask| {
            let of = self.groups.get(&task.group);
            task.group.starts_with(group) && of.is_some_and(|of| of.threaded)
        };
        match file {
            "cgroup.controllers" if root => Ok("cpuset cpu memory".to_owned()),
            "cgroup.subtree_control" => Ok(if own.hands_on { "cpuset" } else { "" }.to_owned()),
            "cgroup.threads" => Ok(members(&|_, task| task.group == group)),
            "cgroup.procs" => Ok(members(&|tid, task| {
                task.process == tid && (task.group == group || is_threaded(task))
            })),
            "cgroup.type" if !root => {
                let mut below = self.groups.iter().filter(|(path, _)| path.parent() == Some(group));
                let kind = match own.threaded {
                    true => "threaded",
                    false if below.any(|(_, child)| child.threaded) => "domain threaded",
                    false => "domain",
                };
                Ok(kind.to_owned())
            }
            "cgroup.freeze" if !root => Ok(u8::from(own.frozen).to_string()),
            "cgroup.events" if !root => Ok(format!("populated 1\nfrozen {}", u8::from(own.frozen))),
            "cpuset.cpus.isolated" if root => Ok(self.isolated().to_string()),
            "cpuset.cpus.effective" if root => Ok(self.given(group).to_string()),
            _ if root || !self.has_cpuset(group) => Err(os(libc::ENOENT)),
            "cpuset.cpus.effective" => Ok(self.given(group).to_string()),
            "cpuset.cpus" => Ok(own.cpus.to_string()),
            "cpuset.cpus.exclusive" => Ok(own.exclusive.to_string()),
            "cpuset.cpus.partition" => Ok(match (own.isolated, self.partition(group)) {
                (false, _) => "member".to_owned(),
                (true, Ok(_)) => "isolated".to_owned(),
                (true, Err(why)) => format!("isolated invalid ({why})"),
            }),
            _ => Err(os(libc::ENOENT)),
        }
    }

    pub(super) fn write_group(&mut self, group: &Path, file: &str, text: &str) -> io::Result<()> {
        if !self.groups.contains_key(group) {
            return Err(os(libc::ENOENT));
        }
        let invalid = |_| os(libc::EINVAL);
        match file {
            "cgroup.subtree_control" => return self.hand_on(group, text),
            "cgroup.procs" => return self.move_process(text.parse().map_err(invalid)?, group),
            "cgroup.threads" => return self.move_thread(text.parse().map_err(invalid)?, group),
            "cgroup.type" if text == "threaded" => {}
            "cgroup.freeze" | "cpuset.cpus" => return self.write_plain(group, file, text),
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
            && siblings.clone().any(|(_, sibling)| {
                sibling.exclusive.intersects(cpus)
                    || (!sibling.cpus.is_empty() && sibling.cpus.is_subset(cpus))
            })
        {
            return Err(os(libc::EINVAL));
        }
        if file == "cpuset.cpus.partition" {
            // The kernel gives every unbound kernel thread, and process 1, the CPUs that are left,
            // also when the partition ends.
            let moved = self.tasks.values_mut();
            let moved =
                moved.filter(|task| task.process == 1 || (task.kernel_thread && !task.bound));
            moved.for_each(|task| task.affinity = None);
        }
        let own = self.groups.entry(group.to_owned()).or_default();
        match (file, cpus) {
            (_, Some(cpus)) => own.exclusive = cpus,
            ("cgroup.type", None) => own.threaded = true,
            _ => {
                own.isolated = match text {
                    "isolated" => true,
                    "member" => false,
                    _ => return Err(os(libc::EINVAL)),
                };
                own.lost = false;
                self.hotplug();
            }
        }
        self.follow_node();
        Ok(())
    }

    /// Files that no other file of the tree depends on here.
    fn write_plain(&mut self, group: &Path, file: &str, text: &str) -> io::Result<()> {
        let has_cpuset = self.has_cpuset(group);
        let own = self.groups.get_mut(group).ok_or_else(|| os(libc::ENOENT))?;
        match (file, text) {
            ("cgroup.freeze", "0" | "1") => own.frozen = text == "1",
            ("cpuset.cpus", _) if has_cpuset => {
                own.cpus = text.parse().map_err(|_| os(libc::EINVAL))?;
            }
            _ => return Err(os(libc::EINVAL)),
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
            self.narrow(group);
            for child in children {
                let Group { threaded, marked, frozen, .. } = self.groups[&child];
                let plain = Group { threaded, marked, frozen, ..Group::default() };
                self.groups.insert(child, plain);
            }
        }
        self.groups.entry(group.to_owned()).or_default().hands_on = on;
        Ok(())
    }

    /// Tasks below a group that hands cpuset on no more keep the CPUs that are online now, also
    /// when others come back.
    fn narrow(&mut self, group: &Path) {
        if self.online == self.possible {
            return;
        }
        let below = |task: &&FakeTask| task.group != group && task.group.starts_with(group);
        let tasks = self.tasks.iter().filter(|(_, task)| below(task));
        let now: Vec<(i32, CpuSet)> = tasks
            .map(|(tid, task)| (*tid, self.allowed(task).intersection(&self.online)))
            .collect();
        for (tid, cpus) in now {
            self.tasks.entry(tid).and_modify(|task| task.affinity = Some(cpus));
        }
    }

    /// systemd's job: the delegated service and its slice, with the controller for all units; or
    /// all of that away, and the tasks inside killed (as systemd before 254 does).
    /// What `asmp-artis set` does to the files of the kernel.
    pub(super) fn share(&mut self, cpus: &CpuSet) -> io::Result<()> {
        if !self.files.contains_key(Path::new(SHARER)) {
            return Err(os(libc::ENOENT));
        }
        let state = if cpus.is_empty() { "disabled" } else { "enabled" };
        self.files.insert(sharing::STATE.into(), state.to_owned());
        let counts = "began_on_rt 9\ncalls_from_rt 7\nfaults_from_rt 1\nlongest_kernel_ns 9000\n\
                      too_short 2\nlinux_on_nrt_ns 2000000000\nlinux_on_rt_ns 1000000000\n\
                      rt1_on_nrt_ns 0\nrt1_on_rt_ns 0\nlinux_to_nrt 8\nlinux_to_rt 9\n\
                      rt1_to_nrt 0\nrt1_to_rt 0";
        let kept = [
            (sharing::NAME, sharing::OURS.to_owned()),
            (sharing::CPUS, cpus.to_string()),
            (sharing::STATS, counts.to_owned()),
            (sharing::LOADED, format!("0.1 {HOOK}")),
        ];
        let hook = (Path::new(sharing::DIR).join(HOOK), String::new());
        for (path, text) in kept.map(|(path, text)| (path.into(), text)).into_iter().chain([hook]) {
            match cpus.is_empty() {
                true => self.files.remove(&path),
                false => self.files.insert(path, text),
            };
        }
        Ok(())
    }

    pub(super) fn delegate(&mut self, on: bool) -> io::Result<()> {
        let slice = Path::new("/").join(systemd::SLICE);
        let service = slice.join(systemd::SERVICE);
        if !on {
            self.tasks.retain(|_, task| !task.group.starts_with(&slice));
            self.groups.retain(|path, _| !path.starts_with(&slice));
            return self.hand_on(Path::new("/"), "-cpuset");
        }
        let hands_on = |hands_on| Group { hands_on, ..Group::default() };
        self.groups.entry("/".into()).or_default().hands_on = true;
        self.groups.entry(slice).or_insert_with(|| hands_on(true));
        self.groups.entry(service.clone()).or_insert_with(|| hands_on(false));
        self.groups.entry(service.join("holder")).or_insert_with(|| hands_on(false));
        Ok(())
    }

    /// A group below a threaded one takes no task until it is threaded itself.
    fn takes_tasks(&self, group: &Path) -> io::Result<()> {
        let threaded = |group: &Path| self.groups.get(group).is_some_and(|group| group.threaded);
        match !threaded(group) && group.parent().is_some_and(threaded) {
            true => Err(os(libc::EOPNOTSUPP)),
            false => Ok(()),
        }
    }

    fn move_process(&mut self, tid: i32, group: &Path) -> io::Result<()> {
        self.takes_tasks(group)?;
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
        self.takes_tasks(group)?;
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

    pub(super) fn read_task(&self, tid: i32, file: &str) -> io::Result<String> {
        let task = self.tasks.get(&tid).ok_or_else(|| os(libc::ENOENT))?;
        let kernel = if task.kernel_thread { PF_KTHREAD } else { 0 };
        let bound = if task.bound { PF_NO_SETAFFINITY } else { 0 };
        match file {
            "comm" => Ok(task.command.clone()),
            // Cut, as Linux 6.12 and 7.2 do.
            "cgroup" => {
                let mut group = task.group.display().to_string();
                group.truncate(PATH_MAX - 1);
                Ok(format!("0::{group}"))
            }
            "limits" => {
                let most = task.most_us.map_or("unlimited".to_owned(), |most| most.to_string());
                Ok(format!("Max realtime timeout      {most}   {most}   us"))
            }
            "status" => {
                let (process, cpus, uid) = (task.process, self.allowed(task), task.uid);
                let uids = format!("{uid}{}", format!("\t{}", task.other_uids).repeat(3));
                Ok(format!("Tgid:\t{process}\nUid:\t{uids}\nCpus_allowed_list:\t{cpus}"))
            }
            "stat" => Ok(format!(
                "{tid} ({}) {} {} 0 0 0 -1 {} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0",
                task.command,
                if task.runnable { 'R' } else { 'S' },
                task.parent,
                kernel | bound,
                task.start_ticks
            )),
            _ => Err(os(libc::ENOENT)),
        }
    }

    /// The files that a write to this one changes: more than one where CPUs share a governor.
    fn same_governor(&self, path: &Path) -> Vec<PathBuf> {
        match self.files.get(&path.with_file_name("related_cpus")) {
            Some(cpus) if path.ends_with("scaling_governor") => cpus
                .split(' ')
                .filter_map(|cpu| cpu.parse().ok())
                .map(|cpu| knob::frequency_governor(cpu).path)
                .collect(),
            _ => vec![path.to_owned()],
        }
    }

    pub(super) fn write_file(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let old = self.files.get(path).ok_or_else(|| os(libc::ENOENT))?;
        if self.lost_servers && path.to_string_lossy().contains("_server/") {
            return Err(os(libc::EBUSY));
        }
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
        let is_new = *old != spelled;
        if path == Path::new(knob::WORKQUEUE_REQUESTED) {
            return Err(os(libc::EACCES));
        }
        if *path == *knob::workqueue_cpus().path {
            self.files.insert(knob::WORKQUEUE_REQUESTED.into(), spelled.clone());
        }
        if is_new {
            for path in self.same_governor(path) {
                self.files.insert(path, spelled.clone());
            }
        }
        Ok(())
    }
}
