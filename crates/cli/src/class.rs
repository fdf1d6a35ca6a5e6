// SPDX-License-Identifier: Apache-2.0 OR MIT
//! class: how tasks that share the CPUs of partitions are served.

use crate::change::changer;
use crate::exit::{CANNOT_SHARE, KERNEL_THREAD, NO_TASK, NOT_ROOT, UNDONE, failure};
use crate::run::cannot_execute;
use crate::signals;
use anyhow::Result;
use asmp_host::sharing::{self, Class};
use asmp_host::task::{self, Task};
use asmp_host::{Facts, Kernel, Schedule};
use asmp_shield::Refusal;
use asmp_shield::plan::Base;
use clap::ArgGroup;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Start a command in a class, or change the class of a process, on shared CPUs
///
/// Tasks that share the CPUs of partitions wait there for the real-time tasks inside, and for each
/// other by class: `rt1` tasks first, those with the higher priority before others, then `linux`
/// tasks. One that has waited for 1.5 seconds goes before all that came since. Every task is
/// `linux` at first, and children inherit the class. All classes end with the last shared
/// partition, or when its mode changes.
///
/// A real-time task (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE) is `rt0`, inside a partition and
/// outside: no class can be set for it, nor for a task in a partition or a kernel thread. Of a
/// process with some real-time threads the other threads get the class.
#[derive(Debug, clap::Args)]
#[command(after_long_help = crate::examples::CLASS)]
#[command(group = ArgGroup::new("whom").required(true).args(["pid", "command"]))]
pub struct Args {
    /// linux, rt1 or rt1:PRIORITY
    ///
    /// PRIORITY is 1 to 99, the highest first; `rt1` is rt1:1. Without a class, --pid prints that
    /// of each thread, the policy of real-time threads (`rt0`), and the partition of threads
    /// inside.
    /// Example: asmp class rt1:20 --pid 4711
    #[arg(required_unless_present = "pid")]
    pub class: Option<Class>,
    /// A running process with all its threads
    ///
    /// The number of any thread of the process will do. Example: asmp class --pid 4711
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// The command and its arguments, after `--`
    ///
    /// The command replaces asmp. Example: asmp class rt1:20 -- ./vision --fast
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

pub fn class(kernel: &dyn Kernel, args: &Args) -> Result<u8> {
    changer(kernel).map_err(|error| match error.downcast_ref() {
        Some(Refusal::NotRoot) => failure(NOT_ROOT, "only root may see or set classes: use sudo"),
        _ => error,
    })?;
    let facts = Facts::read(kernel)?;
    if facts.sharing.guarded.is_empty() {
        return Err(failure(
            CANNOT_SHARE,
            "no partition is shared under the guarantee: see `asmp create --share`, `asmp mode`",
        ));
    }
    let base = Base::of(&facts).ok_or(Refusal::NoCgroupV2)?;
    let process = args.pid.unwrap_or(std::process::id() as i32);
    let Some(class) = args.class else {
        let classes =
            sharing::classes(process).map_err(|error| refused(kernel, process, &error))?;
        print!("{}", told(kernel, &base.in_tree(), &classes));
        return Ok(0);
    };
    takes_class(kernel, &base.in_tree(), process)?;
    sharing::set_class(process, class).map_err(|error| refused(kernel, process, &error))?;
    let Some((program, words)) = args.command.split_first() else { return Ok(0) };
    let mut command = Command::new(program);
    signals::keep_ignored_pipe(&mut command);
    Err(cannot_execute(program, &command.args(words).exec()))
}

/// What the loader says of threads (`THREAD CLASS`), with what it does not know: the policy of
/// those that are real-time, and the partition of those inside.
fn told(kernel: &dyn Kernel, tree: &Path, classes: &str) -> String {
    let line = |line: &str| {
        let tid = line.split(' ').next()?.parse().ok()?;
        let policy = kernel.schedule(tid).ok().and_then(real_time);
        let task = task::read(kernel, tid).ok();
        let place = task.as_ref().and_then(|task| partition_of(tree, task));
        let place = place.map_or_else(String::new, |name| format!(" in partition {name}"));
        match policy {
            Some(policy) => Some(format!("{tid} rt0 ({policy}){place}\n")),
            // It has ended, or is real-time no more.
            None if line.ends_with(" rt0") => None,
            None => Some(format!("{line}{place}\n")),
        }
    };
    classes.lines().filter_map(line).collect()
}

/// `SCHED_FIFO 80`; `None`: it is not real-time.
fn real_time(schedule: Schedule) -> Option<String> {
    match schedule {
        Schedule::Fifo { priority } => Some(format!("SCHED_FIFO {priority}")),
        Schedule::Rr { priority } => Some(format!("SCHED_RR {priority}")),
        Schedule::Deadline { .. } => Some("SCHED_DEADLINE".to_owned()),
        _ => None,
    }
}

/// The partition on whose CPUs a task runs. One in the group `rest` runs on system CPUs.
fn partition_of(tree: &Path, task: &Task) -> Option<String> {
    let mut groups = task.group.strip_prefix(tree).ok()?.iter();
    let (name, group) = (groups.next()?, groups.next()?);
    (group == "rt").then(|| name.to_string_lossy().into_owned())
}

/// Has any thread of this process a class? Errors: none has. The reason is the main thread's.
fn takes_class(kernel: &dyn Kernel, tree: &Path, process: i32) -> Result<()> {
    // One that ends meanwhile: the loader says so.
    let Ok(main) = task::read(kernel, process) else { return Ok(()) };
    if main.kernel_thread {
        let what = format!("{process} ({}) is a kernel thread: it has no class", main.command);
        return Err(failure(KERNEL_THREAD, what + ": name a process"));
    }
    let threads = task::thread_numbers(kernel, main.process).unwrap_or_default();
    let has_class = |tid: &i32| {
        let policy = kernel.schedule(*tid).ok().and_then(real_time);
        let inside = task::read(kernel, *tid).ok().and_then(|task| partition_of(tree, &task));
        policy.is_none() && inside.is_none()
    };
    if threads.is_empty() || threads.iter().any(has_class) {
        return Ok(());
    }
    if let Some(name) = partition_of(tree, &main) {
        let cure = format!("`asmp remove {name} --pid {process}` first");
        let what = format!("{process} is in partition {name}: tasks inside have no class: {cure}");
        return Err(failure(CANNOT_SHARE, what));
    }
    let policy = kernel.schedule(process).ok().and_then(real_time).unwrap_or_default();
    let what = format!("{process} is rt0 while it has a real-time policy ({policy})");
    Err(failure(CANNOT_SHARE, format!("{what}: `chrt -a -o -p 0 {process}` first")))
}

fn refused(kernel: &dyn Kernel, process: i32, error: &io::Error) -> anyhow::Error {
    match task::identify(kernel, process) {
        None => failure(NO_TASK, format!("no process {process}")),
        Some(_) if error.kind() == io::ErrorKind::Unsupported => {
            let cure = "build it with tests/artis.sh, then make install";
            failure(CANNOT_SHARE, format!("{error}: {cure}"))
        }
        Some(_) => failure(UNDONE, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::code_of;
    use asmp_host::fake::FakeKernel;

    const TREE: &str = "/asmp";

    /// Thread 245 is SCHED_FIFO, outside. 300 and 301 (SCHED_RR) are inside. Of the threads of 400
    /// one is real-time. 500 is an ordinary thread in `rest`. 600 is a kernel thread.
    fn machine() -> FakeKernel {
        let kernel = FakeKernel::new();
        let other = Schedule::Other { nice: 0 };
        kernel.start(245, 245, "audio", Schedule::Fifo { priority: 80 });
        kernel.start(300, 300, "app", other);
        kernel.start(301, 301, "loop", Schedule::Rr { priority: 7 });
        kernel.start(400, 400, "mixed", Schedule::Fifo { priority: 1 });
        kernel.start(401, 400, "worker", other);
        kernel.start(500, 500, "rest", other);
        kernel.start_kernel_thread(600, "kworker/3:0", Some(3));
        for (tid, group) in [(300, "rt"), (301, "rt/deeper"), (500, "rest")] {
            kernel.edit(tid, |task| task.group = format!("{TREE}/motion/{group}").into());
        }
        kernel
    }

    #[test]
    fn a_class_is_refused_where_there_is_none_with_the_reason() {
        let kernel = machine();
        let refused = |process| {
            let error = takes_class(&kernel, Path::new(TREE), process).unwrap_err();
            (code_of(&error), error.to_string())
        };
        let (code, text) = refused(245);
        assert_eq!(code, CANNOT_SHARE);
        assert_eq!(
            text,
            "245 is rt0 while it has a real-time policy (SCHED_FIFO 80): `chrt -a -o -p 0 245` \
             first"
        );
        for inside in [300, 301] {
            let (code, text) = refused(inside);
            assert_eq!(code, CANNOT_SHARE);
            assert!(text.contains("is in partition motion: tasks inside have no class"), "{text}");
        }
        let (code, text) = refused(600);
        assert_eq!(code, KERNEL_THREAD);
        assert!(text.contains("600 (kworker/3:0) is a kernel thread"), "{text}");
        for process in [400, 401, 500, 4_000_000] {
            takes_class(&kernel, Path::new(TREE), process).unwrap();
        }
    }

    #[test]
    fn what_a_thread_is_is_told_where_it_has_no_class() {
        let said = "245 rt0\n300 linux\n301 rt0\n401 rt1:7\n402 rt0\n500 linux\n";
        assert_eq!(
            told(&machine(), Path::new(TREE), said),
            "245 rt0 (SCHED_FIFO 80)\n300 linux in partition motion\n\
             301 rt0 (SCHED_RR 7) in partition motion\n401 rt1:7\n500 linux\n",
            "thread 402 has ended meanwhile"
        );
    }
}
