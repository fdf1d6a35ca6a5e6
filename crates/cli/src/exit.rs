// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes, documented in asmp(8). Those of a change are the shield's.

use asmp_host::CpuListError;
use asmp_measure::load::LoadError;
use asmp_measure::run::RunError;
use asmp_shield::{ChangeError, Refusal};

pub use asmp_shield::code::{
    BAD_FILE, BAD_STATE, BUSY, NO_TIMERLAT, NOT_ROOT, NOT_UNDONE, POLICY_REFUSED, STRICT,
    TRACER_IN_USE, UNDONE, UNEXPECTED, UNPROVED, USAGE, of_signal,
};

/// An error with its exit code, for failures that no library enum covers.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: u8,
    pub message: String,
}

pub fn failure(code: u8, message: impl Into<String>) -> anyhow::Error {
    Failure { code, message: message.into() }.into()
}

pub const VIOLATED: u8 = 7;
pub const NO_TASK: u8 = 33;
pub const KERNEL_THREAD: u8 = 34;
pub const NO_BOOT_DROP_IN: u8 = 41;
pub const NO_TASKS: u8 = 43;
pub const UNKNOWN_ORIGINALS: u8 = 45;
pub const NO_ASMPD: u8 = 49;
pub const BAD_RUN: u8 = 50;
pub const NO_LOAD: u8 = 51;
pub const MIXED: u8 = 52;
pub const PARTIAL: u8 = 54;
pub const NO_PORT: u8 = 56;
pub const CANNOT_SHARE: u8 = 57;
/// `analyze`, `simulate`: proven that it cannot work.
pub const NOT_SCHEDULABLE: u8 = 60;
/// `analyze`, `simulate`: no answer.
pub const UNDECIDED: u8 = 61;
/// `yartek`: a compiler or QEMU.
pub const NO_TOOL: u8 = 62;
/// `yartek`: a guest that did not end well.
pub const BAD_GUEST: u8 = 63;
/// `yartek`: a deadline was missed, or the schedule is not the simulator's.
pub const DIFFERENT: u8 = UNEXPECTED;
/// `yartek`: it is not shown that each deadline is met.
pub const NOT_PROVED: u8 = UNDONE;
/// `yartek`: the board cannot run the set, also if its deadlines are met.
pub const NOT_ON_BOARD: u8 = 64;
pub const CANNOT_EXECUTE: u8 = 126;
pub const NOT_FOUND: u8 = 127;

/// What may end by itself: another asmp is done; a CPU, a device or its line comes.
pub const MAY_END: [u8; 5] = [BUSY, 21, 26, 27, 36];

/// Every exit code with its meaning, as asmp(8) and `asmp help exit-codes` print it.
pub const TABLE: &[(u8, &str)] = &[
    (0, "success"),
    (
        UNEXPECTED,
        "unexpected failure; every change was undone; yartek: a deadline was missed, or the \
         schedule is not the simulator's",
    ),
    (USAGE, "invalid command line"),
    (
        UNDONE,
        "the kernel refused a step; every change was undone; yartek: it is not proved that the set \
         meets its deadlines on the board",
    ),
    (
        STRICT,
        "--strict: something stays on the CPUs, or groups and tasks of others would lose them; \
         nothing is changed",
    ),
    (UNPROVED, "--tick require-off: ticks were counted; every change was undone"),
    (
        NOT_UNDONE,
        "not every change could be undone, or not every original given back: run asmp repair",
    ),
    (
        VIOLATED,
        "a partition is violated (a change was made all the same); check: a required feature is \
         missing",
    ),
    (BUSY, "another asmp held the lock for 10 s"),
    (BAD_STATE, "the state in /run/asmp cannot be read or written"),
    (NOT_ROOT, "refused: not root"),
    (11, "refused: no cgroup v2"),
    (12, "refused: cgroup v1 holds the cpuset controller"),
    (13, "refused: no cpuset controller"),
    (14, "refused: the kernel is too old"),
    (15, "refused: inside a container"),
    (20, "refused: no such CPU"),
    (21, "refused: the CPU is offline"),
    (22, "refused: the CPU belongs to another partition or group"),
    (23, "refused: the system would have no CPU left"),
    (24, "refused: an SMT sibling of the CPU is in use elsewhere"),
    (25, "refused: asmp made groups whose state is lost: run asmp restore"),
    (26, "refused: fewer CPUs are free than --count asks for"),
    (27, "refused: --near names nothing that this machine has, or what is near no CPU"),
    (28, "refused: --whole-cores with a --count that whole cores cannot give"),
    (29, "refused: /etc/asmp/policy.toml does not grant that to this user"),
    (30, "refused: invalid partition name"),
    (31, "refused: the partition name is taken"),
    (32, "refused: no such partition"),
    (NO_TASK, "refused: no such task"),
    (
        KERNEL_THREAD,
        "refused: the task is a kernel thread bound to its CPU, or asmp's own process; class: any \
         kernel thread",
    ),
    (35, "refused: the task or IRQ line is not in the partition"),
    (36, "refused: no such IRQ line, or one that each CPU has for itself"),
    (37, "refused: the IRQ line belongs to another partition"),
    (38, "refused: the tick of the CPU cannot stop in this boot"),
    (
        39,
        "refused: a task switched to a real-time policy inside the partition and would keep it \
         on system CPUs; --force demotes it to SCHED_OTHER",
    ),
    (
        BAD_FILE,
        "a file (partitions, policy, task set, graph, output) is invalid, or cannot be read or \
         written; if it is the standard output of a change, the change was made",
    ),
    (NO_BOOT_DROP_IN, "boot: asmp writes GRUB drop-ins only, and this machine takes none"),
    (
        POLICY_REFUSED,
        "the kernel refused the scheduling policy; run, exec: no command started; apply: every \
         change was undone",
    ),
    (NO_TASKS, "a task set has no task: the file is empty, or has other entries only"),
    (44, "refused: other threads of the process are in the partition that the thread would leave"),
    (
        UNKNOWN_ORIGINALS,
        "restore, repair: a state was lost; what settings were before is not known",
    ),
    (46, "refused: the task is the last of a scope, which systemd would end; --force moves it"),
    (
        47,
        "refused: a busy real-time task starves a kworker of its CPU, and the kernel (from 7.0 on) \
         may wait for it",
    ),
    (48, "refused: SCHED_DEADLINE tasks of the system have booked the CPU"),
    (NO_ASMPD, "events: asmpd does not run; any command that asks it: it does not answer"),
    (BAD_RUN, "measure: the input is not a complete run or not a histogram"),
    (NO_LOAD, "measure: a load did not start or ended early"),
    (MIXED, "measure: the settings of the runs differ; --across accepts that"),
    (NO_TIMERLAT, "measure: this kernel has no timerlat tracer"),
    (
        PARTIAL,
        "measure: fewer samples than asked for; the samples taken are kept; import: the file has \
         no last lines, so some of what the tool measured may be missing",
    ),
    (
        TRACER_IN_USE,
        "measure: another measurement is at work, or another program uses the kernel's tracer: try \
         again when it has ended",
    ),
    (NO_PORT, "web, yartek: the port is taken, or this user may not use it"),
    (
        CANNOT_SHARE,
        "refused: this machine cannot share CPUs under a guarantee; class: no partition is shared \
         so, or the task has no class: it is real-time, or in a partition",
    ),
    (
        NOT_SCHEDULABLE,
        "analyze: not schedulable, or the graph cannot run; simulate: a deadline was missed",
    ),
    (UNDECIDED, "analyze, simulate: undecided, or the test does not apply"),
    (NO_TOOL, "yartek: a compiler or QEMU is missing, too old, or refuses the program"),
    (
        BAD_GUEST,
        "yartek: the guest faulted, hung, ended early or lost jobs; what it traced is partial",
    ),
    (NOT_ON_BOARD, "yartek: the board cannot run the task set: its clock, its table, an entry"),
    (CANNOT_EXECUTE, "run, exec: the command cannot be executed"),
    (NOT_FOUND, "run, exec: the command was not found"),
];

/// The exit code of an error anywhere in its chain.
pub fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return refusal.code();
        }
        if cause.is::<RunError>() {
            return BAD_RUN;
        }
        if cause.is::<LoadError>() {
            return NO_LOAD;
        }
        if cause.is::<CpuListError>() {
            return USAGE;
        }
        if let Some(change) = cause.downcast_ref::<ChangeError>() {
            return change.code();
        }
    }
    UNEXPECTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_documented_code_that_no_other_meaning_shares() {
        let codes: Vec<u8> = TABLE.iter().map(|(code, _)| *code).collect();
        let mut unique = codes.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(codes, unique, "sorted and without doubles");
        let refusal = Refusal::UnknownTask { tid: 7 };
        let error = anyhow::Error::new(ChangeError::Refused(refusal)).context("add");
        assert!(codes.contains(&code_of(&error)));
        assert_eq!(code_of(&error), 33);
        assert_eq!(code_of(&anyhow::anyhow!("surprise")), UNEXPECTED);
        for (path, code) in [("/run/asmp/journal", BAD_STATE), ("/proc/irq/1", UNEXPECTED)] {
            let cause = std::io::Error::from_raw_os_error(28);
            let error = asmp_host::Error::Io { path: path.into(), operation: "write", cause };
            assert_eq!(code_of(&ChangeError::Host(error).into()), code, "{path}");
        }
    }

    /// The arms of [`Refusal::code`], each with its code. The compiler holds that none is missing.
    fn refusals() -> Vec<(&'static str, u8)> {
        let source = include_str!("../../shield/src/code.rs");
        let (_, arms) = source.split_once("        match self {\n").unwrap();
        let (arms, _) = arms.split_once("\n        }\n").unwrap();
        let value = |name: &str| {
            let (_, rest) = source.split_once(&format!("pub const {name}: u8 = ")).unwrap();
            rest.split(';').next().unwrap().parse().unwrap()
        };
        // The arm of what a file declares asks again.
        let arms = arms.split(",\n").map(|arm| arm.trim().trim_end_matches(','));
        let arms = arms.filter_map(|arm| arm.rsplit_once(" => "));
        let arms = arms.filter(|(_, code)| !code.contains("cause.code()"));
        arms.map(|(arm, code)| (arm, code.parse().unwrap_or_else(|_| value(code)))).collect()
    }

    #[test]
    fn the_code_of_every_refusal_is_explained_as_one() {
        let arms = refusals();
        let variants: usize = arms.iter().map(|(arm, _)| arm.matches("Self::").count()).sum();
        let source = include_str!("../../shield/src/partition.rs");
        let (_, all) = source.split_once("pub enum Refusal {\n").unwrap();
        let (all, _) = all.split_once("\n}\n").unwrap();
        // Attributes, fields and comments stand deeper, or do not begin with a capital.
        let names = all.lines().filter_map(|line| line.strip_prefix("    "));
        let names = names.filter(|line| line.starts_with(|one: char| one.is_ascii_uppercase()));
        assert_eq!(variants + 1, names.count(), "all but `Declared`: {arms:#?}");
        for (arm, code) in arms {
            assert!(!arm.contains('_'), "{arm}: a variant without a code of its own");
            let row = TABLE.iter().find(|(known, _)| *known == code);
            let (_, words) = row.unwrap_or_else(|| panic!("{arm}: {code} is not explained"));
            // What a file, a line, a kernel or its tracer is refused for has the code of those.
            let of_others = [USAGE, STRICT, BAD_FILE, NO_TIMERLAT, TRACER_IN_USE].contains(&code);
            assert!(of_others || words.starts_with("refused: "), "{arm}: {code} is {words:?}");
        }
    }
}
