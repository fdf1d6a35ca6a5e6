// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trees that hold settings: every file that may be read, every directory, every attribute of a
//! control group.

use super::{Snapshot, noise};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

const CGROUPS: &str = "/sys/fs/cgroup";
const TRACING: &str = "/sys/kernel/tracing";

const TREES: [&str; 16] = [
    "/proc/irq",
    "/proc/sys",
    "/sys/devices/system/clockevents",
    "/sys/devices/system/clocksource",
    "/sys/devices/system/cpu",
    "/sys/devices/system/machinecheck",
    "/sys/devices/system/workqueue",
    "/sys/devices/virtual/workqueue",
    CGROUPS,
    "/sys/kernel/debug/sched",
    TRACING,
    "/sys/kernel/sched_ext",
    "/sys/module/rcupdate/parameters",
    "/sys/module/rcutree/parameters",
    "/sys/module/workqueue/parameters",
    "/run/asmp",
];

/// Of a file. Longer ones list what the kernel offers (functions, symbols).
const MOST_BYTES: usize = 16 * 1024;

/// Files that are not read, and why.
fn is_left_out(path: &Path, name: &str) -> bool {
    let below = |tree: &str| path.starts_with(tree);
    match name {
        // Members: the group of every task stands with the task.
        "cgroup.procs" | "cgroup.threads" | "pids.current" => below(CGROUPS),
        // Counts groups, also those that are gone and not yet freed; each group is seen itself.
        "cgroup.stat" => below(CGROUPS),
        // The highest value so far.
        "memory.peak" | "memory.swap.peak" | "pids.peak" => below(CGROUPS),
        // How long tasks have waited for memory, a CPU or a disk.
        "cpu.pressure" | "io.pressure" | "irq.pressure" | "memory.pressure" => below(CGROUPS),
        // Reading queues work on every CPU and waits for it.
        "stat_refresh" => below("/proc/sys"),
        // The kernel chooses anew among the CPUs of the mask (LIMITS.md, "restored state").
        "effective_affinity" | "effective_affinity_list" => below("/proc/irq"),
        // Reading these rebuilds the scheduler's domains, and 6.12 forgets there what the deadline
        // servers had reserved.
        "sched_rt_runtime_us" | "sched_rt_period_us" => below("/proc/sys"),
        // Counts interrupts: which lines fire while the idle machine is looked at is chance.
        "spurious" => below("/proc/irq"),
        // Count CPUs that go offline and come back, and schedulers that were loaded.
        "hotplug_seq" | "enable_seq" => below("/sys/kernel/sched_ext"),
        // Names each function of the kernel that a program was ever attached to.
        "touched_functions" => below(TRACING),
        // The records of a trace: reading stops or consumes them. `events` has some 10,000 files
        // below; `set_event` names those that are on.
        "trace" | "trace_pipe" | "snapshot" | "per_cpu" | "events" => below(TRACING),
        // The names of tasks that were traced.
        "saved_cmdlines" | "saved_tgids" => below(TRACING),
        // Adds up the time of every module that was ever loaded.
        "dyn_ftrace_total_info" => below(TRACING),
        // Held while it is there.
        "lock" | "measuring.lock" => below("/run/asmp"),
        _ => false,
    }
}

pub fn read(all: &mut Snapshot) {
    for tree in TREES.map(Path::new) {
        if let Ok(metadata) = fs::symlink_metadata(tree) {
            read_dir(tree, metadata.dev(), all);
        }
    }
    // `rcu_normal`, `rcu_expedited` and what else there may be.
    for name in names(Path::new("/sys/kernel")).iter().filter(|name| name.starts_with("rcu")) {
        read_file(&Path::new("/sys/kernel").join(name), all);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn read_dir(dir: &Path, device: u64, all: &mut Snapshot) {
    all.insert(format!("dir {}", dir.display()), "there".to_owned());
    if dir.starts_with(CGROUPS) {
        read_attributes(dir, all);
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if is_left_out(&path, &entry.file_name().to_string_lossy()) {
            continue;
        }
        if kind.is_file() {
            read_file(&path, all);
        } else if kind.is_dir() {
            // Not into what is mounted there, or would be by looking (/proc/sys/fs/binfmt_misc).
            let below = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.dev() == device);
            if below {
                read_dir(&path, device, all);
            }
        }
    }
}

/// Whether a file may be read at all. Opening a write-only file can do something.
fn is_readable(path: &Path) -> bool {
    static KNOWN: LazyLock<Mutex<HashMap<PathBuf, bool>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().expect("no panic in between");
    if let Some(readable) = known.get(path) {
        return *readable;
    }
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    let readable = metadata.mode() & 0o444 != 0;
    known.insert(path.to_owned(), readable);
    readable
}

fn read_file(path: &Path, all: &mut Snapshot) {
    let name = path.display().to_string();
    // Our own files carry times: that they are there is enough.
    if path.starts_with("/run/asmp") {
        all.insert(name, "there".to_owned());
        return;
    }
    if noise::is_noise(&name) || !is_readable(path) {
        return;
    }
    match text(path) {
        Ok(text) => drop(all.insert(name, text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // Of a group that is just going.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
        Err(error) => drop(all.insert(name, format!("cannot be read: {error}"))),
    }
}

/// Its beginning; never waits.
fn text(path: &Path) -> io::Result<String> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut bytes = vec![0; MOST_BYTES];
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned())
}

/// `xattr PATH NAME`: user.*, trusted.* and others that a program left on a group.
fn read_attributes(dir: &Path, all: &mut Snapshot) {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return };
    let mut list = [0_u8; 1024];
    // SAFETY: the path ends with a zero byte, and the list is as long as is said.
    let length = unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    let length = usize::try_from(length).unwrap_or(0);
    for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // systemd gives each start of a unit another one.
        if name.ends_with(b".invocation_id") {
            continue;
        }
        let Ok(attribute) = CString::new(name) else { continue };
        let mut value = [0_u8; 1024];
        let (to, most) = (value.as_mut_ptr().cast(), value.len());
        // SAFETY: both names end with a zero byte, and the value is as long as is said.
        let length = unsafe { libc::lgetxattr(path.as_ptr(), attribute.as_ptr(), to, most) };
        let length = usize::try_from(length).unwrap_or(0);
        let name = format!("xattr {} {}", dir.display(), attribute.to_string_lossy());
        if !noise::is_noise(&name) {
            all.insert(name, String::from_utf8_lossy(&value[..length]).into_owned());
        }
    }
}

/// 6.12 forgets that CPU 3 is isolated at boot when a partition with it ends (LIMITS.md, "kernel
/// 6.12, `isolcpus=`"); `status` says so.
fn is_forgotten_isolation(name: &str, values: (Option<&str>, Option<&str>)) -> bool {
    let is = match name {
        "/sys/fs/cgroup/cpuset.cpus.isolated" => values == (Some("3"), Some("")),
        "/sys/devices/virtual/workqueue/cpumask_isolated" => values == (Some("8"), Some("0")),
        _ => false,
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    is && read("/proc/sys/kernel/osrelease").starts_with("6.12.")
        && read("/sys/devices/system/cpu/isolated").trim() == "3"
}

/// Whether a difference in a file counts. Under systemd units come and go by themselves, and so
/// does what it keeps on for them: the cpuset controller (LIMITS.md, "restored state, systemd").
pub fn counts(name: &str, before: &Snapshot, after: &Snapshot) -> bool {
    // TAINT_WARN. 6.12 warns once when a deadline server is switched off (LIMITS.md, "kernel 6.12,
    // deadline servers"), 7.x when the writer of a partition is killed ("kill -9, from 7.0"), and
    // when a task moves to a CPU that goes offline at that moment ("CPU hotplug, tasks").
    let warns = || {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let log = super::kernel_log();
        let went_offline = log.iter().any(|line| line.ends_with("is now offline"));
        let is_known = |line: &String| {
            let is = |file: &str, function: &str| {
                line.starts_with(&format!("WARNING: {file}:")) && line.contains(function)
            };
            is("kernel/sched/isolation.c", "housekeeping_update")
                || went_offline && is("kernel/cgroup/cpuset.c", "cpuset_attach_task")
        };
        let mut warnings = log.iter().filter(|line| line.starts_with("WARNING:")).peekable();
        release.starts_with("6.12.")
            || release.starts_with("7.") && warnings.peek().is_some() && warnings.all(is_known)
    };
    let warned = (before.get(name).map(String::as_str), after.get(name).map(String::as_str));
    if name == "/proc/sys/kernel/tainted" && warned == (Some("0"), Some("512")) && warns() {
        return false;
    }
    if is_forgotten_isolation(name, warned) {
        return false;
    }
    static SYSTEMD: LazyLock<bool> =
        LazyLock::new(|| fs::exists("/run/systemd/system").unwrap_or(false));
    let path = name.trim_start_matches("dir ").trim_start_matches("xattr ");
    if !*SYSTEMD || !path.starts_with(CGROUPS) {
        return true;
    }
    let unit = path.split('/').any(|part| {
        [".service", ".scope", ".mount", ".socket", ".swap"].iter().any(|kind| part.ends_with(kind))
    });
    let file = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let gone_or_new = before.contains_key(name) != after.contains_key(name);
    if gone_or_new && (unit && !path.contains("asmp") || file.starts_with("cpuset.")) {
        return false;
    }
    let without = |all: &Snapshot| all.get(name).map(|text| text.replace("cpuset ", ""));
    let controllers = ["cgroup.controllers", "cgroup.subtree_control"].contains(&file.as_str());
    !(controllers && without(before) == without(after))
}
