// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A signal at the n-th system call that changes anything: SIGKILL before the kernel carries it
//! out, another one right after. Or what else a test does there.
//!
//! Problem:  strace stops the program at every system call, twice: a `create` reads thousands of
//!           files, so that each kill takes ten times as long as the command. Where strace lets a
//!           filter choose the calls (`--seccomp-bpf`), it injects no signal.
//! Approach: the program starts with a filter of its own (seccomp(2)) that stops it at those calls
//!           alone, and this process, which traces it (ptrace(2)), counts the stops of all its
//!           threads and children.

use libc::{c_int, c_long, c_ulong, pid_t};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Files written, groups made, marked and removed, states renamed, policies, affinities.
const CALLS: [c_long; 12] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_setxattr,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setaffinity,
];
/// The older names of some; newer architectures lack them.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: [c_long; 4] =
    [libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_rename, libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: [c_long; 0] = [];

/// A program of classic BPF: these calls stop for the tracer, any other goes on.
fn filter() -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jt: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: 0,
        k,
    };
    // The number of the call is the first word of struct seccomp_data.
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    let calls = [&CALLS[..], &OLDER_CALLS].concat();
    for (at, call) in calls.iter().enumerate() {
        // Over the other calls and over ALLOW.
        let to_trace = calls.len() - at;
        let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(instruction(jump, to_trace, *call as u32));
    }
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_TRACE));
    program
}

/// Runs a command until its n-th such call (1 is the first) and kills it there. False: it ended by
/// itself before.
pub fn killed_at(n: usize, command: &mut Command) -> bool {
    signalled_at(n, libc::SIGKILL, command).0
}

/// The same, and its whole process group is killed.
pub fn group_killed_at(n: usize, command: &mut Command) -> bool {
    let calls = at_each_call(command.process_group(0), |call, stopped| {
        if call >= n {
            // SAFETY: takes numbers alone.
            unsafe { libc::kill(-stopped.root, libc::SIGKILL) };
        }
        call < n
    });
    calls.0 >= n
}

/// Runs a command until its n-th such call and sends it a signal there. Returns whether there was
/// an n-th call, and the status that waitpid(2) gave.
pub fn signalled_at(n: usize, signal: c_int, command: &mut Command) -> (bool, c_int) {
    let kills = signal == libc::SIGKILL;
    let (calls, status) = at_each_call(command, |call, stopped| {
        if call == n || call > n && kills {
            // SAFETY: takes numbers alone.
            unsafe { libc::kill(stopped.root, signal) };
        }
        call < n || !kills
    });
    (calls >= n, status)
}

/// A thread that waits for the tracer before it changes something.
pub struct Stopped {
    /// The command.
    root: pid_t,
    thread: pid_t,
}

impl Stopped {
    /// The path of the file that the call is about, where its first argument is a descriptor.
    pub fn file(&self) -> Option<PathBuf> {
        // NUMBER ARGUMENT..., proc_pid_syscall(5).
        let call = fs::read_to_string(format!("/proc/{}/syscall", self.thread)).ok()?;
        let descriptor = call.split(' ').nth(1)?.trim_start_matches("0x");
        let descriptor = u64::from_str_radix(descriptor, 16).ok()?;
        fs::read_link(format!("/proc/{}/fd/{descriptor}", self.thread)).ok()
    }
}

/// Runs a command. Before each such call `meet` is called with its number (1 is the first), and
/// says whether the call goes on. Returns how many there were, and the status that waitpid(2) gave.
pub fn at_each_call(
    command: &mut Command,
    mut meet: impl FnMut(usize, &Stopped) -> bool,
) -> (usize, c_int) {
    let filter = filter();
    let traced = move || {
        // A shell starts a background job with SIGINT ignored.
        // SAFETY: async-signal-safe; SIG_DFL is no function.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        let program =
            libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: takes no memory of ours.
        let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } == 0;
        let mode = libc::SECCOMP_MODE_FILTER as c_ulong;
        // SAFETY: the kernel copies the program, which lives in this closure.
        let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } == 0;
        if traced && filtered { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[expect(clippy::zombie_processes, reason = "waitpid below")]
    // SAFETY: two system calls; nothing is allocated between fork and exec.
    let child = unsafe { command.pre_exec(traced) }.spawn().expect("the command starts");
    let root = child.id().cast_signed();
    let mut tracees = BTreeSet::new();
    let mut calls = 0;
    loop {
        let mut status = 0;
        // SAFETY: writes one number. Only children of this thread are waited for.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(pid > 0, "waitpid: {}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            tracees.remove(&pid);
            if pid == root {
                return (calls, status);
            }
            continue;
        }
        let stopped_by = libc::WSTOPSIG(status);
        let event = status >> 16;
        if pid == root && tracees.insert(pid) {
            // It has just begun: the stop of execve(2).
            let options = libc::PTRACE_O_EXITKILL
                | libc::PTRACE_O_TRACESECCOMP
                | libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACEEXEC;
            trace(libc::PTRACE_SETOPTIONS, pid, options);
            trace(libc::PTRACE_CONT, pid, 0);
            continue;
        }
        if event == libc::PTRACE_EVENT_SECCOMP {
            calls += 1;
            if !meet(calls, &Stopped { root, thread: pid }) {
                continue;
            }
        }
        // A new thread or child begins with a SIGSTOP of the tracer's.
        let begins = tracees.insert(pid) && stopped_by == libc::SIGSTOP;
        trace(libc::PTRACE_CONT, pid, if event != 0 || begins { 0 } else { stopped_by });
    }
}

/// What it asks for may have ended meanwhile.
fn trace(request: libc::c_uint, pid: pid_t, data: c_int) {
    // SAFETY: these requests take numbers alone.
    let _ = unsafe { libc::ptrace(request, pid, 0, c_long::from(data)) };
}
