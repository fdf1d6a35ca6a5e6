// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler of shared partitions (`crates/artis`), as far as other crates see it: the CPUs
//! that it guards, what it counted, why it ended, and the program that loads it, `asmp-artis`.
//!
//! The scheduler is kept in the kernel by files of BPF. Two of these are text: they are read like
//! any other file of the kernel. Only `asmp-artis` knows BPF.

use crate::cpuset::CpuSet;
use crate::kernel::Kernel;
use crate::{ErrorKind, kind_of};
use serde::Serialize;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The files that keep it.
pub const DIR: &str = "/sys/fs/bpf/asmp";
/// How long the kernel may take to end it.
const MOST: Duration = Duration::from_secs(20);
/// The CPUs that the scheduler guards: tasks that it has are there in user mode only.
pub const CPUS: &str = "/sys/fs/bpf/asmp/cpus";
/// What it counted: a name and a number in each line, and why it ended, if it did.
pub const STATS: &str = "/sys/fs/bpf/asmp/stats";
/// A link that leads nowhere: its text is the build of what is loaded, and the names of its hooks
/// in [`DIR`], which notice that a task enters the kernel.
pub(crate) const LOADED: &str = "/sys/fs/bpf/asmp/loaded";
/// `disabled` while no scheduler in BPF has the tasks of this machine.
pub(crate) const STATE: &str = "/sys/kernel/sched_ext/state";
/// The name of the scheduler that has them.
pub(crate) const NAME: &str = "/sys/kernel/sched_ext/root/ops";
/// The name of ours.
pub(crate) const OURS: &str = "artis";
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";
/// `0` stops the hooks of functions (fentry and fexit). It is there with `CONFIG_DYNAMIC_FTRACE`.
pub(crate) const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
const PREEMPTION: &str = "/sys/kernel/debug/sched/preempt";
/// Where `asmp-artis` is looked for if it is not beside the running program.
const PLACES: [&str; 2] = ["/usr/local/bin/asmp-artis", "/usr/bin/asmp-artis"];

/// What a machine can do for shared partitions, and does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sharing {
    /// CPUs that are guarded now.
    pub guarded: CpuSet,
    /// A file in [`DIR`] that keeps a hook of the scheduler, or their names, and was removed:
    /// entries into the kernel may go unnoticed.
    pub lost_file: Option<String>,
    /// `kernel.ftrace_enabled` is 0: the scheduler's hooks of functions stand still, and entries
    /// into the kernel go unnoticed.
    pub hooks_stand_still: bool,
    /// This user may not read which: BPF's file system is root's alone under systemd.
    pub is_hidden: bool,
    /// Schedulers in BPF (sched_ext) can be loaded: `CONFIG_SCHED_CLASS_EXT`.
    pub has_sched_ext: bool,
    /// The kernel describes its types (BTF), which the loader needs.
    pub has_btf: bool,
    /// Another scheduler in BPF has the tasks of this machine.
    pub other: Option<String>,
    pub loader: Option<PathBuf>,
    /// When the kernel preempts itself (`full`, `lazy`, `voluntary`, `none`); `None`: it is not
    /// shown, as with PREEMPT_RT, or to users who are not root.
    pub preemption: Option<String>,
}

impl Sharing {
    pub fn read(kernel: &dyn Kernel) -> Self {
        let state = kernel.text(Path::new(STATE));
        let is_on = state.as_ref().is_ok_and(|state| state != "disabled");
        let name = is_on.then(|| kernel.text(Path::new(NAME)).unwrap_or_default());
        let is_ours = name.as_deref() == Some(OURS);
        let lost_file = if is_ours { lost_file(kernel) } else { None };
        let hooks_stand_still = kernel.text(Path::new(FTRACE)).is_ok_and(|text| text == "0");
        let is_whole = is_ours && lost_file.is_none() && !hooks_stand_still;
        Self {
            guarded: if is_whole { guarded(kernel) } else { CpuSet::new() },
            lost_file,
            hooks_stand_still,
            is_hidden: is_ours && is_hidden(kernel),
            has_sched_ext: state.is_ok(),
            has_btf: kernel.exists(Path::new(BTF)),
            other: name.filter(|_| !is_ours),
            loader: kernel.sharer(),
            preemption: preemption(kernel),
        }
    }
}

fn is_hidden(kernel: &dyn Kernel) -> bool {
    let read = kernel.read(Path::new(CPUS));
    read.is_err_and(|error| kind_of(&error) == ErrorKind::NotPermitted)
}

/// The word in brackets of `none voluntary (full) lazy`.
fn preemption(kernel: &dyn Kernel) -> Option<String> {
    let text = kernel.text(Path::new(PREEMPTION)).ok()?;
    Some(text.split_once('(')?.1.split_once(')')?.0.to_owned())
}

/// The CPUs that the file of ours names; none where it is not there.
fn guarded(kernel: &dyn Kernel) -> CpuSet {
    let text = kernel.text(Path::new(CPUS)).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

/// Pinned objects are regular files: another thing of that name is none of ours.
fn lost_file(kernel: &dyn Kernel) -> Option<String> {
    let Ok(loaded) = kernel.link(Path::new(LOADED)) else { return Some(LOADED.to_owned()) };
    let mut hooks = loaded.split(' ').skip(1).map(|hook| format!("{DIR}/{hook}"));
    hooks.find(|hook| !kernel.is_file(Path::new(hook)))
}

/// The scheduler's counts by name. `None`: it is not loaded, or this user may not read them.
pub fn counts(kernel: &dyn Kernel) -> Option<Vec<(String, u64)>> {
    let text = kernel.text(Path::new(STATS)).ok()?;
    let count = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    Some(text.lines().filter_map(count).collect())
}

/// One of the counts. A scheduler that an older build has loaded may lack it.
pub fn count_of(counts: &[(String, u64)], name: &str) -> Option<u64> {
    counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
}

/// How often tasks entered the kernel on guarded CPUs: by system calls, page faults, other
/// exceptions, or to take a signal. Tasks that may not leave these CPUs are not counted.
pub fn entered(counts: &[(String, u64)]) -> Option<u64> {
    let of = |name: &str| count_of(counts, name);
    Some(of("calls_from_rt")? + of("faults_from_rt")? + of("other_from_rt").unwrap_or(0))
}

/// Why the kernel or its user ended the scheduler, in the kernel's words; `None`: it did not end.
pub fn ended(kernel: &dyn Kernel) -> Option<String> {
    let text = kernel.text(Path::new(STATS)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("ended ")).map(str::to_owned)
}

/// The program that loads the scheduler: beside the running program, or where it is installed.
pub(crate) fn find_loader() -> Option<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("asmp-artis")));
    own.into_iter().chain(PLACES.map(PathBuf::from)).find(|place| place.is_file())
}

/// Has the scheduler guard exactly these CPUs: loads it, changes it, or, for none, unloads it.
/// Errors: what `asmp-artis` printed.
pub(crate) fn set(cpus: &CpuSet) -> io::Result<()> {
    if cpus.is_empty() && find_loader().is_none() {
        return unload();
    }
    ask_loader(&["set", &cpus.to_string()]).map(drop)
}

/// How the scheduler of shared partitions serves an ordinary task (ARTiS, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Linux,
    /// Before Linux tasks, and among its like by priority, 1 to 99: the highest first.
    Rt1 {
        priority: u8,
    },
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linux => f.write_str("linux"),
            Self::Rt1 { priority } => write!(f, "rt1:{priority}"),
        }
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let priority = match text {
            "linux" => return Ok(Self::Linux),
            "rt1" => Some(1),
            "rt0" => {
                return Err("rt0 is a real-time task in the partition: start it with `asmp exec \
                            NAME --policy fifo:N`"
                    .to_owned());
            }
            _ => text.strip_prefix("rt1:").and_then(|number| number.parse().ok()),
        };
        match priority.filter(|priority| (1..=99).contains(priority)) {
            Some(priority) => Ok(Self::Rt1 { priority }),
            None => Err("a class is linux, rt1 or rt1:PRIORITY (1 to 99)".to_owned()),
        }
    }
}

/// A line `THREAD CLASS` for each thread of the process. Errors: what `asmp-artis` printed to
/// standard error.
pub fn classes(process: i32) -> io::Result<String> {
    ask_loader(&["class", &process.to_string()])
}

/// Gives all threads of a process this class, until the scheduler is unloaded; their children
/// inherit it. Errors: what `asmp-artis` printed to standard error.
pub fn set_class(process: i32, class: Class) -> io::Result<()> {
    ask_loader(&["class", &process.to_string(), &class.to_string()]).map(drop)
}

/// Runs the loader, and returns its standard output. Errors: what it printed to standard error.
fn ask_loader(words: &[&str]) -> io::Result<String> {
    let Some(loader) = find_loader() else {
        let why = format!("asmp-artis is not installed beside asmp or as {}", PLACES.join(", "));
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    };
    let ran = Command::new(&loader)
        .args(words)
        // ^C on a terminal is for asmp, which undoes the change.
        .process_group(0)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", loader.display())))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let said = said.trim().trim_start_matches("asmp-artis: ");
    let said = if said.is_empty() { ran.status.to_string() } else { said.to_owned() };
    let kind = match ran.status.code() {
        Some(3) => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, format!("asmp-artis: {said}")))
}

/// The same as `asmp-artis set ''`, where that was uninstalled meanwhile: the scheduler first, then
/// what notices entries for it.
fn unload() -> io::Result<()> {
    let dir = Path::new(DIR);
    let missing = |error: io::Error| match error.kind() {
        // A directory of that name holds no scheduler, and goes below with all others.
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory => Ok(()),
        _ => Err(error),
    };
    std::fs::remove_file(dir.join("scheduler")).or_else(missing)?;
    // The kernel ends it a moment later.
    let end = Instant::now() + MOST;
    while std::fs::read_to_string(NAME).is_ok_and(|name| name.trim() == OURS) {
        if Instant::now() > end {
            return Err(io::Error::other("the scheduler of shared partitions does not end"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::remove_dir_all(dir).or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn cpus_are_guarded_only_while_the_scheduler_is_ours() {
        let files = [
            (STATE, "enabled\n"),
            (NAME, "artis\n"),
            (CPUS, "2,3\n"),
            (BTF, ""),
            (PREEMPTION, "(full) lazy\n"),
        ];
        let (root, linux) = machine(&files);
        std::os::unix::fs::symlink("0.1", root.path().join(&LOADED[1..])).unwrap();
        let sharing = Sharing::read(&linux);
        assert_eq!(sharing.guarded.to_string(), "2-3");
        assert!(sharing.has_sched_ext && sharing.has_btf && sharing.other.is_none());
        assert_eq!(sharing.preemption.as_deref(), Some("full"));

        let (_root, linux) =
            machine(&[(STATE, "enabled\n"), (NAME, "scx_lavd\n"), (CPUS, "2,3\n")]);
        let sharing = Sharing::read(&linux);
        assert!(sharing.guarded.is_empty() && !sharing.has_btf);
        assert_eq!(sharing.other.as_deref(), Some("scx_lavd"));

        let (_root, linux) = machine(&[(STATE, "disabled\n"), (NAME, "artis\n"), (CPUS, "2,3\n")]);
        let sharing = Sharing::read(&linux);
        assert!(sharing.guarded.is_empty() && sharing.has_sched_ext && sharing.other.is_none());

        let hook = "/sys/fs/bpf/asmp/begin_work";
        let (root, linux) =
            machine(&[(STATE, "enabled"), (NAME, "artis"), (CPUS, "2"), (hook, "")]);
        let loaded = root.path().join(&LOADED[1..]);
        std::os::unix::fs::symlink("0.1 begin_work end_work", loaded).unwrap();
        let sharing = Sharing::read(&linux);
        assert!(sharing.guarded.is_empty(), "a hook is gone");
        assert_eq!(sharing.lost_file.as_deref(), Some("/sys/fs/bpf/asmp/end_work"));
        std::fs::create_dir(root.path().join("sys/fs/bpf/asmp/end_work")).unwrap();
        let lost = Sharing::read(&linux).lost_file;
        assert_eq!(lost.as_deref(), Some("/sys/fs/bpf/asmp/end_work"), "a directory is no hook");
        let all = [(STATE, "enabled"), (NAME, "artis"), (CPUS, "2")];
        assert_eq!(Sharing::read(&machine(&all).1).lost_file.as_deref(), Some(LOADED));

        let (_root, linux) = machine(&[("/proc/version", "")]);
        assert!(!Sharing::read(&linux).has_sched_ext);
    }

    #[test]
    fn nothing_is_guarded_while_hooks_of_functions_stand_still() {
        for (ftrace, guarded) in [(Some("1\n"), "2"), (None, "2"), (Some("0\n"), "")] {
            let files = [(STATE, "enabled"), (NAME, "artis"), (CPUS, "2")];
            let files = files.into_iter().chain(ftrace.map(|text| (FTRACE, text)));
            let (root, linux) = machine(&files.collect::<Vec<_>>());
            std::os::unix::fs::symlink("0.1", root.path().join(&LOADED[1..])).unwrap();
            let sharing = Sharing::read(&linux);
            assert_eq!(sharing.guarded.to_string(), guarded, "{ftrace:?}");
            assert_eq!(sharing.hooks_stand_still, guarded.is_empty());
            assert_eq!(sharing.lost_file, None);
        }
    }

    #[test]
    fn a_class_has_a_name_and_rt1_a_priority() {
        for text in ["linux", "rt1:1", "rt1:99"] {
            assert_eq!(text.parse::<Class>().unwrap().to_string(), text);
        }
        assert_eq!("rt1".parse(), Ok(Class::Rt1 { priority: 1 }));
        for text in ["", "rt", "rt1:", "rt1:0", "rt1:100", "rt1:-1", "rt2:5", "Linux", "rt1: 5"] {
            assert!(text.parse::<Class>().is_err(), "{text:?}");
        }
        assert!("rt0".parse::<Class>().unwrap_err().contains("asmp exec"));
    }

    #[test]
    fn counts_have_names_and_the_end_has_a_reason() {
        let text =
            "calls_from_rt 1505\nlongest_kernel_ns 9000\nended watchdog failed to check in\n";
        let (_root, linux) = machine(&[(STATS, text)]);
        let counts = counts(&linux).unwrap();
        assert_eq!(counts[0], ("calls_from_rt".to_owned(), 1505));
        assert_eq!(counts[1], ("longest_kernel_ns".to_owned(), 9000));
        assert_eq!(counts.len(), 2, "the reason is no count");
        assert_eq!((count_of(&counts, "ended"), entered(&counts)), (None, None));
        assert_eq!(ended(&linux).as_deref(), Some("watchdog failed to check in"));
        let text = "calls_from_rt 7\nfaults_from_rt 2\nother_from_rt 30\n";
        let (_root, linux) = machine(&[(STATS, text)]);
        let counts = super::counts(&linux).unwrap();
        assert_eq!(entered(&counts), Some(39));
        assert_eq!(entered(&counts[..2]), Some(9), "an older build does not count the others");
    }
}
