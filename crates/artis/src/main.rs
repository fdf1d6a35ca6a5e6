// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `asmp-artis`: says which CPUs the scheduler of shared partitions keeps for real-time
//! tasks, and of which class tasks are.
//!
//! Problem:  a scheduler that lives in a process ends with it, and what it kept apart is mixed.
//! Approach: files below /sys/fs/bpf/asmp keep it in the kernel after this program has ended. Two
//!           of them are text: `cpus` and `stats`. This program may be killed at any time: what
//!           notices entries into the kernel is there before the scheduler and goes after it, and
//!           the set of CPUs changes in one step, in the kernel.

mod kept;

use asmp_host::CpuSet;
use kept::{CPUS, DIR, Failure, Loaded, STATS, Test};
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

const HELP: &str = "\
asmp-artis - the scheduler of shared partitions

Usage: asmp-artis set CPUS [--observe | --eager] | stats | class PID [CLASS]

set CPUS   Real-time CPUS (such as 2-3) run tasks of other programs too, but only while these are
           in user mode. What enters the kernel there goes on elsewhere. The scheduler stays after
           this program has ended; CPUS may be changed. Without CPUS ('') it is taken out: the
           kernel's own scheduler has all tasks again. One that another build of this program has
           loaded stays, and a line says so: the CPUs would be without one for a moment. If
           one of its hooks is gone, it is loaded anew.
           /sys/fs/bpf/asmp/cpus says which they are: an empty line if the scheduler has ended.
--observe  Also counts what runs in the kernel on a real-time CPU all the same, and why. This
           slows the system calls of all tasks. Refused while it is loaded.
--eager    The same, and tasks go to real-time CPUs whenever they can, worth it or not: for tests.
stats      Prints /sys/fs/bpf/asmp/stats: what it has counted, a line `NAME VALUE` each; the last
           says `ended` and why if the kernel has ended it.
class PID  Prints the class of each thread of the process: `THREAD CLASS`. With CLASS, sets it for
           all: `linux`, `rt1`, or `rt1:PRIORITY`, 1 to 99. Children inherit it.

Exit status: 0; 1 where the kernel refuses; 2 for wrong usage; 3 where this kernel cannot.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["set", cpus] => set(cpus, Test::None),
        ["set", cpus, "--observe"] => set(cpus, Test::Observe),
        ["set", cpus, "--eager"] => set(cpus, Test::Eager),
        ["stats"] => read(STATS).and_then(|text| print(&text)),
        ["class", pid] => class(pid, None),
        ["class", pid, class_of] => class(pid, Some(class_of)),
        ["-h" | "--help"] => print(HELP),
        _ => Err((2, "see `asmp-artis --help`".to_owned())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            eprintln!("asmp-artis: {why}");
            ExitCode::from(code)
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(|error| (1, format!("cannot write: {error}")))
}

fn set(cpus: &str, test: Test) -> Result<(), Failure> {
    let cpus: CpuSet = cpus.parse().map_err(|error| (2, format!("{cpus:?}: {error}")))?;
    if cpus.is_empty() {
        let _lock = kept::locked()?;
        return kept::remove();
    }
    let possible = list("/sys/devices/system/cpu/possible")?;
    if !cpus.is_subset(&possible) || cpus == possible {
        return Err((2, format!("CPU {cpus}: some of {possible}, but not all")));
    }
    let full = list("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    if !cpus.is_subset(&full) {
        return Err((
            3,
            format!(
                "CPU {} is not in nohz_full= of this boot: the kernel tells of no entry there",
                cpus.difference(&full)
            ),
        ));
    }
    let _lock = kept::locked()?;
    if read(CPUS).is_ok_and(|text| !text.trim().is_empty()) {
        if test != Test::None {
            return Err((1, "one is loaded already: take it out first, by `set ''`".to_owned()));
        }
        match kept::loaded() {
            Loaded::Whole => return kept::change(&cpus),
            Loaded::Other => {
                eprintln!(
                    "asmp-artis: another build of it is loaded, and stays; `set ''` takes it out"
                );
                return kept::change(&cpus);
            }
            Loaded::Broken => eprintln!("asmp-artis: a hook of it is gone: it is loaded anew"),
        }
    }
    // What a killed one or one that the kernel has ended has left.
    kept::remove()?;
    kept::load(&cpus, possible.iter().max().map_or(0, |last| last + 1), test)
}

/// `linux` or `rt1[:PRIORITY]`, as a priority: 0 for Linux.
fn priority(class: &str) -> Option<i32> {
    match class {
        "linux" => Some(0),
        "rt1" => Some(1),
        _ => class.strip_prefix("rt1:")?.parse().ok().filter(|prio| (1..=99).contains(prio)),
    }
}

/// Sets or prints the class of each thread; a real-time thread has none, and is `rt0`.
/// Threads that start meanwhile have the class of the one that started them: it goes on until a
/// whole round finds none to change.
fn class(pid: &str, to: Option<&str>) -> Result<(), Failure> {
    let pid: i32 = pid.parse().map_err(|_| (2, format!("{pid:?} is not the ID of a process")))?;
    let to = match to {
        Some(class) => Some(priority(class).ok_or_else(|| {
            (2, format!("{class:?} is no class: linux, rt1 or rt1:PRIORITY, 1 to 99"))
        })?),
        None => None,
    };
    let class_of = kept::ClassOf::open()?;
    loop {
        let mut text = String::new();
        let mut changed = false;
        for thread in threads(pid)? {
            let Some(prio) = class_of.ask(thread)? else {
                if to.is_none() {
                    text += &format!("{thread} rt0\n");
                }
                continue;
            };
            if let Some(to) = to.filter(|to| *to != prio) {
                class_of.set(thread, to)?;
                changed = true;
            }
            text += &match prio {
                0 => format!("{thread} linux\n"),
                _ => format!("{thread} rt1:{prio}\n"),
            };
        }
        if text.is_empty() {
            return Err((1, format!("no process {pid}, or all its threads are real-time")));
        }
        if !changed {
            return if to.is_none() { print(&text) } else { Ok(()) };
        }
    }
}

fn threads(pid: i32) -> Result<Vec<i32>, Failure> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.map_err(|_| (1, format!("no process {pid}")))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn read(name: &str) -> Result<String, Failure> {
    let path = format!("{DIR}/{name}");
    fs::read_to_string(&path).map_err(|error| (1, format!("{path}: {error}: is it loaded?")))
}

fn list(path: &str) -> Result<CpuSet, Failure> {
    let text = fs::read_to_string(path).map_err(|error| (1, format!("{path}: {error}")))?;
    // nohz_full says "(null)" where no CPU is in it.
    let text = text.trim();
    let text = if text == "(null)" { "" } else { text };
    text.parse().map_err(|error| (1, format!("{path}: {text:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::priority;

    #[test]
    fn a_class_is_linux_or_rt1_with_a_priority_from_1_to_99() {
        let cases = [
            ("linux", Some(0)),
            ("rt1", Some(1)),
            ("rt1:1", Some(1)),
            ("rt1:99", Some(99)),
            ("rt1:0", None),
            ("rt1:100", None),
            ("rt1:", None),
            ("rt0", None),
            ("", None),
        ];
        for (class, prio) in cases {
            assert_eq!(priority(class), prio, "{class:?}");
        }
    }
}
