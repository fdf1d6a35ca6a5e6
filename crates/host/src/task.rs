// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes and threads, from /proc.
//!
//! A number alone does not name a task: the kernel uses numbers again. [`TaskId`] adds the start
//! time, so a task that died midway is never confused with its successor.

use crate::cpuset::{Cpu, CpuSet};
use crate::kernel::Kernel;
use crate::sched::Schedule;
use crate::{Error, ErrorKind, Result, kind_of};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// A task for its whole life: thread number and start time in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    pub tid: i32,
    pub start_ticks: u64,
}

/// One thread (of a process: its main thread).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    pub id: TaskId,
    /// The process; equal to `id.tid` for a main thread.
    pub process: i32,
    pub parent: i32,
    pub command: String,
    pub kernel_thread: bool,
    /// A kernel thread that the kernel forbids to move (`PF_NO_SETAFFINITY`).
    pub bound: bool,
    pub allowed_cpus: CpuSet,
    /// Path in the cgroup v2 tree (`/system.slice/x.service`); `/` for kernel threads.
    pub group: PathBuf,
    pub zombie: bool,
}

/// A task that was moved into a partition, and where it came from, as the state file keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub task: TaskId,
    pub command: String,
    /// Only this thread; the rest of its process is in the partition's `rest` group.
    pub alone: bool,
    /// The process of a thread that is `alone`; `None` in states of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<TaskId>,
    /// The group of its process before, as a path in the cgroup tree (`/system.slice/x.service`).
    pub from: PathBuf,
    /// Threads of its process that were in other groups than `from` (libvirt's `vcpu0`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<ThreadGroup>,
    /// Threads that entered by themselves, the rest of the process being in the group `rest`;
    /// `None` of a process that was moved in whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered: Option<Vec<TaskId>>,
    /// Its threads that were real-time before: they keep their policy when they leave.
    pub real_time: Vec<TaskId>,
    /// The policy that a partition file gives it; `None`: its threads have what they choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<GivenPolicy>,
}

impl Member {
    /// The process that it is, or that its thread belongs to.
    pub fn process_id(&self) -> TaskId {
        self.process.unwrap_or(self.task)
    }
}

/// A thread and its group, as a path in the cgroup tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadGroup {
    pub task: TaskId,
    pub group: PathBuf,
}

/// A policy that all threads of a task have while it is in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenPolicy {
    pub to: Schedule,
    /// What each thread had before, the task's own thread first.
    pub before: Vec<ThreadPolicy>,
}

/// The policy of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadPolicy {
    pub task: TaskId,
    pub policy: Schedule,
}

/// The directory of a thread, main thread or not: `/proc/TID`.
pub fn task_path(tid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{tid}"))
}

// include/linux/sched.h
pub(crate) const PF_NO_SETAFFINITY: u64 = 0x0400_0000;
pub(crate) const PF_KTHREAD: u64 = 0x0020_0000;

/// Fields of /proc/PID/stat after the command, which may itself hold spaces and parentheses.
pub(crate) fn after_command<'a>(path: &Path, stat: &'a str) -> Result<(&'a str, Vec<&'a str>)> {
    let bad = || Error::Content {
        path: path.to_owned(),
        text: stat.to_owned(),
        expected: "a task's stat line",
    };
    let open = stat.find('(').ok_or_else(bad)?;
    let close = stat.rfind(')').filter(|close| *close > open).ok_or_else(bad)?;
    let fields: Vec<&str> = stat[close + 1..].split_whitespace().collect();
    if fields.len() < 20 { Err(bad()) } else { Ok((&stat[open + 1..close], fields)) }
}

/// The value of one `Name:\tvalue` line of /proc/PID/status.
fn status_line<'a>(path: &Path, status: &'a str, name: &str) -> Result<&'a str> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim).ok_or_else(|| Error::Content {
        path: path.to_owned(),
        text: format!("no line {name}"),
        expected: "a task's status",
    })
}

/// One task by thread number. Errors: `is_missing()` where there is none.
pub fn read(kernel: &dyn Kernel, tid: i32) -> Result<Task> {
    let text = |path: PathBuf| -> Result<(PathBuf, String)> {
        let text = kernel.text(&path).map_err(Error::io(&path, "read"))?;
        Ok((path, text))
    };
    let file = |name: &str| text(PathBuf::from(format!("/proc/{tid}/{name}")));
    let number = |path: &Path, text: &str| -> Result<u64> {
        text.parse().map_err(|_| Error::Content {
            path: path.to_owned(),
            text: text.to_owned(),
            expected: "a number",
        })
    };
    let (stat_path, stat) = text(stat_of(tid))?;
    let (command, fields) = after_command(&stat_path, &stat)?;
    let flags = number(&stat_path, fields[6])?;
    let (status_path, status) = file("status")?;
    let allowed = status_line(&status_path, &status, "Cpus_allowed_list")?;
    let (_, groups) = file("cgroup")?;
    Ok(Task {
        id: TaskId { tid, start_ticks: number(&stat_path, fields[19])? },
        process: number(&status_path, status_line(&status_path, &status, "Tgid")?)? as i32,
        parent: number(&stat_path, fields[1])? as i32,
        command: command.to_owned(),
        kernel_thread: flags & PF_KTHREAD != 0,
        bound: flags & PF_NO_SETAFFINITY != 0,
        allowed_cpus: allowed.parse().map_err(|_| Error::Content {
            path: status_path.clone(),
            text: allowed.to_owned(),
            expected: "a CPU list",
        })?,
        group: groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").into(),
        zombie: fields[0] == "Z" || fields[0] == "X",
    })
}

/// The numbers of one thread. In /proc/TID/stat the kernel sums up all threads of the process: to
/// read it for each of n threads takes n² steps.
fn stat_of(tid: i32) -> PathBuf {
    format!("/proc/{tid}/task/{tid}/stat").into()
}

/// CPUs that a thread may run on, offline ones too; `None` where there is none.
pub fn allowed_cpus(kernel: &dyn Kernel, tid: i32) -> Option<CpuSet> {
    let path = task_path(tid).join("status");
    let status = kernel.text(&path).ok()?;
    status_line(&path, &status, "Cpus_allowed_list").ok()?.parse().ok()
}

/// Only the identity of a thread; `None` where there is none.
pub fn identify(kernel: &dyn Kernel, tid: i32) -> Option<TaskId> {
    let path = stat_of(tid);
    let stat = kernel.text(&path).ok()?;
    let (_, fields) = after_command(&path, &stat).ok()?;
    Some(TaskId { tid, start_ticks: fields[19].parse().ok()? })
}

/// Has this process ended? One that its parent has not waited for yet has. What cannot be read for
/// another reason than its end (no descriptor is left) is no end.
pub fn has_ended(kernel: &dyn Kernel, process: TaskId) -> bool {
    let path = stat_of(process.tid);
    let is_gone =
        |error: &io::Error| matches!(kind_of(error), ErrorKind::Missing | ErrorKind::Ended);
    let stat = match kernel.text(&path) {
        Ok(stat) => stat,
        Err(error) => return is_gone(&error),
    };
    let Ok((_, fields)) = after_command(&path, &stat) else { return false };
    if fields[19].parse() != Ok(process.start_ticks) {
        return true;
    }
    // Its main thread may have ended before the others.
    let is_last = || match thread_numbers(kernel, process.tid) {
        Ok(all) => all.len() <= 1,
        // Its parent has waited for it meanwhile.
        Err(error) => error.is_missing(),
    };
    matches!(fields[0], "Z" | "X") && is_last()
}

/// The group of each thread of a process; one that ends meanwhile is left out.
pub fn thread_groups(kernel: &dyn Kernel, process: i32) -> Vec<ThreadGroup> {
    let group = |tid: i32| {
        let text = kernel.text(Path::new(&format!("/proc/{tid}/cgroup"))).ok()?;
        let group = text.lines().find_map(|line| line.strip_prefix("0::"))?.into();
        Some(ThreadGroup { task: identify(kernel, tid)?, group })
    };
    let threads = thread_numbers(kernel, process).unwrap_or_default();
    threads.into_iter().filter_map(group).collect()
}

/// How far up the family of a process to look for the task that brought it into a partition.
const GENERATIONS: usize = 64;

/// A process and its living ancestors, nearest first, without process 1.
pub fn lineage(kernel: &dyn Kernel, process: i32) -> Vec<TaskId> {
    let mut family = Vec::new();
    let mut next = process;
    while next > 1 && family.len() < GENERATIONS {
        let path = PathBuf::from(format!("/proc/{next}/stat"));
        let Ok(stat) = kernel.text(&path) else { break };
        let Ok((_, fields)) = after_command(&path, &stat) else { break };
        let (Ok(parent), Ok(start_ticks)) = (fields[1].parse(), fields[19].parse()) else { break };
        family.push(TaskId { tid: next, start_ticks });
        next = parent;
    }
    family
}

/// The real, effective, saved and file system user ids of a task; `None` where there is none.
pub fn uids(kernel: &dyn Kernel, tid: i32) -> Option<[u32; 4]> {
    let path = PathBuf::from(format!("/proc/{tid}/status"));
    let status = kernel.text(&path).ok()?;
    let all = status_line(&path, &status, "Uid").ok()?.split_whitespace();
    all.map(|uid| uid.parse().ok()).collect::<Option<Vec<u32>>>()?.try_into().ok()
}

/// The real user id of a task; `None` where there is none.
pub fn real_uid(kernel: &dyn Kernel, tid: i32) -> Option<u32> {
    uids(kernel, tid).map(|[real, ..]| real)
}

/// Every process (main threads), kernel threads included; those that end meanwhile are left out.
pub fn read_all(kernel: &dyn Kernel) -> Result<Vec<Task>> {
    let dir = Path::new("/proc");
    let names = kernel.list(dir).map_err(Error::io(dir, "list"))?;
    read_each(kernel, &numbers(&names))
}

/// The number of every process, lowest first; none where they cannot be listed.
pub fn process_numbers(kernel: &dyn Kernel) -> Vec<i32> {
    numbers(&kernel.list(Path::new("/proc")).unwrap_or_default())
}

/// The number of every thread of the machine.
pub fn all_threads(kernel: &dyn Kernel) -> Vec<i32> {
    let of = |process: i32| thread_numbers(kernel, process).unwrap_or_default();
    process_numbers(kernel).into_iter().flat_map(of).collect()
}

/// Those of these names that are numbers, lowest first.
fn numbers(names: &[String]) -> Vec<i32> {
    let mut numbers: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

impl Task {
    /// The NUMA node of a kernel thread that serves one: `kswapd0`, `kcompactd0`. It has the CPUs
    /// of that node. When one of these comes online, kcompactd gets it, and from 7.0 on kswapd too.
    pub fn node(&self) -> Option<u32> {
        node_served(&self.command).filter(|_| self.kernel_thread)
    }
}

/// The NUMA node in the name of a kernel thread.
pub(crate) fn node_served(command: &str) -> Option<u32> {
    let of = |prefix| command.strip_prefix(prefix)?.parse().ok();
    of("kswapd").or_else(|| of("kcompactd"))
}

/// Kernel threads whose name satisfies `wanted`, lowest number first; of other tasks only the name
/// is read. Any user may give a process such a name: those are left out. Looks no further once
/// `enough` are found: kernel threads of CPUs are made at boot and have low numbers.
pub fn kernel_threads_named(
    kernel: &dyn Kernel,
    enough: usize,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Task> {
    process_numbers(kernel)
        .into_iter()
        .filter(|tid| {
            kernel.text(Path::new(&format!("/proc/{tid}/comm"))).is_ok_and(|name| wanted(&name))
        })
        .filter_map(|tid| read(kernel, tid).ok())
        .filter(|task| task.kernel_thread)
        .take(enough)
        .collect()
}

/// A thread that runs, or waits for its CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runnable {
    pub tid: i32,
    pub command: String,
    pub cpu: Cpu,
    /// As proc(5) has it, field 18: the lower number goes first.
    pub priority: i64,
}

/// The CPU that a thread ran on last; `None` where it has ended.
pub fn last_cpu(kernel: &dyn Kernel, tid: i32) -> Option<Cpu> {
    let path = stat_of(tid);
    let stat = kernel.text(&path).ok()?;
    let (_, fields) = after_command(&path, &stat).ok()?;
    fields.get(CPU_FIELD)?.parse().ok()
}

/// Of /proc/TID/stat (proc(5), field 39), after the command.
const CPU_FIELD: usize = 36;

/// Every thread that runs or waits on one of these CPUs, at the moments at which each is read.
pub fn runnable_on(kernel: &dyn Kernel, cpus: &CpuSet) -> Vec<Runnable> {
    let runnable = |tid: i32| {
        let path = stat_of(tid);
        let stat = kernel.text(&path).ok()?;
        let (command, fields) = after_command(&path, &stat).ok()?;
        let cpu: Cpu = fields.get(CPU_FIELD)?.parse().ok()?;
        let is_it = fields[0] == "R" && cpus.contains(cpu);
        let priority = fields[15].parse().ok()?;
        is_it.then(|| Runnable { tid, command: command.to_owned(), cpu, priority })
    };
    all_threads(kernel).into_iter().filter_map(runnable).collect()
}

/// Is there a kernel thread? Only the machine's own PID namespace has them; there kthreadd has
/// number 2.
pub fn has_kernel_threads(kernel: &dyn Kernel) -> bool {
    is_kernel_thread(kernel, 2)
        || process_numbers(kernel).into_iter().any(|tid| is_kernel_thread(kernel, tid))
}

/// Of the machine's own PID namespace. `false` where there is none.
pub fn is_kernel_thread(kernel: &dyn Kernel, tid: i32) -> bool {
    let path = stat_of(tid);
    let stat = kernel.text(&path).unwrap_or_default();
    let flags = after_command(&path, &stat).ok().and_then(|(_, fields)| fields[6].parse().ok());
    flags.is_some_and(|flags: u64| flags & PF_KTHREAD != 0)
}

/// A kworker of one CPU that had work and no CPU, or ran, when it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kworker {
    pub cpu: Cpu,
    pub command: String,
    tid: i32,
    /// User and system time.
    ran_ticks: u64,
}

impl Kworker {
    /// Is it still runnable, and has it not run since it was found?
    pub fn is_starved(&self, kernel: &dyn Kernel) -> bool {
        runnable_since(kernel, self.tid) == Some(self.ran_ticks)
    }
}

/// The time that a runnable thread has run; `None` where it sleeps or has ended.
fn runnable_since(kernel: &dyn Kernel, tid: i32) -> Option<u64> {
    let path = stat_of(tid);
    let stat = kernel.text(&path).ok()?;
    let (_, fields) = after_command(&path, &stat).ok()?;
    let ticks = |field: usize| fields[field].parse::<u64>().ok();
    if fields[0] == "R" { Some(ticks(11)? + ticks(12)?) } else { None }
}

/// The kworkers of these CPUs that have work and no CPU, or run.
pub fn runnable_kworkers(kernel: &dyn Kernel, cpus: &CpuSet) -> Vec<Kworker> {
    let cpu_of = |name: &str| name.strip_prefix("kworker/")?.split(':').next()?.parse().ok();
    let is_theirs = |name: &str| cpu_of(name).is_some_and(|cpu| cpus.contains(cpu));
    let runnable = |task: Task| {
        let (tid, cpu) = (task.id.tid, cpu_of(&task.command)?);
        let ran_ticks = runnable_since(kernel, tid)?;
        Some(Kworker { cpu, command: task.command, tid, ran_ticks })
    };
    kernel_threads_named(kernel, usize::MAX, is_theirs).into_iter().filter_map(runnable).collect()
}

/// Every thread of a process, by number.
pub fn threads(kernel: &dyn Kernel, process: i32) -> Result<Vec<Task>> {
    read_each(kernel, &thread_numbers(kernel, process)?)
}

/// The numbers of a process' threads, lowest first.
pub fn thread_numbers(kernel: &dyn Kernel, process: i32) -> Result<Vec<i32>> {
    if kernel.has_one_thread(process) {
        return Ok(vec![process]);
    }
    let dir = PathBuf::from(format!("/proc/{process}/task"));
    Ok(numbers(&kernel.list(&dir).map_err(Error::io(&dir, "list"))?))
}

/// Threads of a process that are real-time now.
pub fn real_time_threads(kernel: &dyn Kernel, process: i32) -> Vec<TaskId> {
    let threads = thread_numbers(kernel, process).unwrap_or_default();
    let real_time = |tid: &i32| kernel.schedule(*tid).is_ok_and(|now| now.is_real_time());
    threads.into_iter().filter(real_time).filter_map(|tid| identify(kernel, tid)).collect()
}

fn read_each(kernel: &dyn Kernel, tids: &[i32]) -> Result<Vec<Task>> {
    let mut tasks = Vec::with_capacity(tids.len());
    for tid in tids {
        match read(kernel, *tid) {
            Ok(task) => tasks.push(task),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Linux;
    use std::fs;

    const STAT: &str = "77 (a (b) c) S 2 0 0 0 -1 69238848 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0\n";

    fn machine(stat: &str, status: &str) -> (tempfile::TempDir, Linux) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/77");
        fs::create_dir_all(dir.join("task/77")).unwrap();
        fs::write(dir.join("task/77/stat"), stat).unwrap();
        fs::write(dir.join("status"), status).unwrap();
        fs::write(dir.join("cgroup"), "1:cpuset:/old\n0::/system.slice/x.service\n").unwrap();
        let linux = Linux::below(root.path());
        (root, linux)
    }

    #[test]
    fn a_task_is_read_even_when_its_name_has_parentheses() {
        let (_root, linux) = machine(STAT, "Name:\ta\nTgid:\t77\nCpus_allowed_list:\t0-2\n");
        let task = read(&linux, 77).unwrap();
        assert_eq!(task.command, "a (b) c");
        assert_eq!(task.id, TaskId { tid: 77, start_ticks: 4242 });
        assert_eq!((task.process, task.parent), (77, 2));
        assert!(task.kernel_thread && task.bound);
        assert_eq!(task.group, Path::new("/system.slice/x.service"));
        assert_eq!(identify(&linux, 77), Some(task.id));
    }

    #[test]
    fn what_runs_or_waits_on_a_cpu_is_told_from_what_sleeps_or_is_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let stat = |tid: i32, state: char, priority: i64, cpu: u32| {
            let zeros = "0 ".repeat(16);
            format!(
                "{tid} (a) b) {state} 2 0 0 0 -1 64 0 0 0 0 0 0 0 0 {priority} 0 1 0 4242 {zeros} \
                 {cpu} 0 0 0 0\n"
            )
        };
        for (process, tid, text) in [
            (77, 77, stat(77, 'S', 20, 3)),
            (77, 78, stat(78, 'R', -81, 3)),
            (79, 79, stat(79, 'R', 20, 3)),
            (80, 80, stat(80, 'R', 20, 1)),
            (81, 81, "81 (torn) R 2".into()),
        ] {
            // The files of a thread are below its own number too, though that is not listed.
            for dir in [process, tid] {
                let dir = root.path().join(format!("proc/{dir}/task/{tid}"));
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("stat"), &text).unwrap();
            }
        }
        let linux = Linux::below(root.path());
        let mut found = runnable_on(&linux, &"3".parse().unwrap());
        found.dedup();
        let runnable = |tid, priority| Runnable { tid, command: "a) b".into(), cpu: 3, priority };
        assert_eq!(found, [runnable(78, -81), runnable(79, 20)]);
    }

    #[test]
    fn a_torn_stat_line_is_an_error_that_names_the_file() {
        let (_root, linux) = machine("77 (a) S 2\n", "");
        assert!(read(&linux, 77).unwrap_err().to_string().contains("/proc/77/task/77/stat"));
    }

    #[test]
    fn a_missing_task_is_missing() {
        let (_root, linux) = machine(STAT, "");
        assert!(read(&linux, 78).unwrap_err().is_missing());
        assert_eq!(identify(&linux, 78), None);
    }

    #[test]
    fn a_process_of_one_thread_is_told_by_its_links_as_by_its_list() {
        let linux = Linux::new();
        let own = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (one, other) = (child.id() as i32, std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| other.wait());
            assert!(!linux.has_one_thread(own) && linux.has_one_thread(one));
            assert!(!linux.has_one_thread(i32::MAX));
            assert!(thread_numbers(&linux, own).unwrap().len() >= 2);
            other.wait();
        });
        let listed = linux.list(Path::new(&format!("/proc/{one}/task"))).unwrap();
        assert_eq!(
            (thread_numbers(&linux, one).unwrap(), listed),
            (vec![one], vec![one.to_string()])
        );
        let all = all_threads(&linux);
        assert!(all.contains(&own) && all.contains(&one));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(thread_numbers(&linux, one).unwrap_err().is_missing());
    }
}
