// SPDX-License-Identifier: Apache-2.0 OR MIT
//! run and exec: a command on shielded CPUs, with its policy, its signals and its exit status.
//!
//! The child enters the partition's group before it becomes the command, so everything it forks,
//! threads or executes is born inside. `run` then waits, passes signals on, and undoes everything.

use crate::args::{Exec, Run};
use crate::change::{changer, not_given_back, run_request};
use crate::exit::{CANNOT_EXECUTE, NOT_FOUND, NOT_UNDONE, POLICY_REFUSED, code_of, failure};
use crate::print;
use anyhow::Result;
use asmp_host::{Schedule, sched};
use asmp_shield::plan::Base;
use asmp_shield::{ChangeError, Members, Refusal, Request, Shield};
use signal_hook::consts::signal::*;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

/// Signals that a user may mean for the command.
const PASSED_ON: [i32; 9] =
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT];

/// Partition, command, wait, undo. Returns the command's status: its code, or 128 + signal.
pub fn run(shield: &Shield, run: &Run) -> Result<u8> {
    let name = run.name.clone().unwrap_or_else(|| format!("run-{}", std::process::id()));
    // From here on a signal ends the command, never us half way.
    let mut signals = SignalsInfo::<WithOrigin>::new(PASSED_ON.iter().chain(&[SIGCHLD]))?;
    let kernel = shield.kernel();
    let caller = changer(kernel)?;
    let outcome = shield.change(&run_request(kernel, run, &name), &caller)?;
    report(&outcome);
    let base = Base::of(&outcome.facts).ok_or(Refusal::NoCgroupV2)?;
    let group = base.groups(&name).rt;

    let ended =
        start(&group, &run.policy, &run.command).and_then(|child| wait(child, &mut signals));

    // What the command left behind goes on, but not as a real-time task among others.
    let destroy = Request::Destroy { name: Some(name.clone()), demote: true };
    let undone = shield.change(&destroy, &caller);
    if let Ok(outcome) = &undone {
        print::demoted(&outcome.demoted);
    }
    if let Some(left) = undone.as_ref().ok().and_then(not_given_back) {
        eprintln!("asmp: partition {name}: {left}");
        return Ok(NOT_UNDONE);
    }
    match undone {
        Ok(outcome) if outcome.refused.iter().any(|refused| refused.disturbs) => {
            print_left(&outcome.refused)
        }
        Ok(_) => {}
        Err(ChangeError::Refused(Refusal::NoPartition { .. })) => {
            eprintln!("asmp: partition {name} was destroyed while the command ran");
        }
        Err(error) => {
            let error =
                anyhow::Error::new(error).context(format!("partition {name} could not be undone"));
            eprintln!("asmp: {}", print::chain(&error));
            return Ok(code_of(&error));
        }
    }
    ended.map(|status| code(&status))
}

/// Becomes the command inside an existing partition; returns only on errors.
pub fn exec(shield: &Shield, exec: &Exec) -> Result<u8> {
    let kernel = shield.kernel();
    let own = std::process::id() as i32;
    let caller = changer(kernel)?;
    let (name, command) = (exec.name.clone(), base_name(&exec.command[0]));
    shield.change(&Request::Exec { name, pid: own, command }, &caller)?;
    let error = match sched::set(0, &exec.policy) {
        Err(error) => policy_refused(&exec.policy, &error),
        Ok(()) => {
            let error = Command::new(&exec.command[0]).args(&exec.command[1..]).exec();
            cannot_execute(&exec.command[0], &error)
        }
    };
    // Still ourselves: leave the partition as if we had never come.
    let members = Members { pids: vec![own], ..Members::default() };
    let leave = Request::Remove { name: exec.name.clone(), members, demote: true };
    if let Err(undo) = shield.change(&leave, &caller) {
        eprintln!("asmp: {undo}");
    }
    Err(error)
}

fn report(outcome: &asmp_shield::Outcome) {
    // The command's own output stays clean: only what the user must know, on stderr.
    let disturbing: Vec<_> =
        outcome.refused.iter().filter(|refused| refused.disturbs).cloned().collect();
    print::refusals(&disturbing).iter().for_each(|line| eprintln!("asmp: {line}"));
    for cannot in &outcome.plan.cannot {
        eprintln!("asmp: not in this boot: {} (cure: {})", cannot.what, cannot.cure);
    }
}

fn print_left(refused: &[asmp_shield::Refused]) {
    eprintln!("asmp: the kernel refused to take something back:");
    print::refusals(refused).iter().for_each(|line| eprintln!("asmp:   {line}"));
}

/// Where the child was when it failed before becoming the command.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Stage {
    Group = 1,
    Policy = 2,
    Command = 3,
}

fn start(group: &Path, policy: &Schedule, command: &[OsString]) -> Result<Child> {
    let mut entrance =
        OpenOptions::new().write(true).open(group.join("cgroup.procs")).map_err(|error| {
            failure(crate::exit::UNEXPECTED, format!("{}: {error}", group.display()))
        })?;
    let (mut told, tell) = io::pipe()?;
    let policy_in_child = *policy;
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    let mut tell_in_child = tell.try_clone()?;
    // SAFETY: between fork and exec only async-signal-safe calls: write(2) and sched_setattr(2) on
    // values prepared before the fork; nothing allocates or locks.
    unsafe {
        child.pre_exec(move || {
            let mut at = |stage: Stage, result: io::Result<()>| {
                if result.is_err() {
                    let _ = tell_in_child.write(&[stage as u8]);
                }
                result
            };
            at(Stage::Group, entrance.write(b"0\n").map(drop))?;
            at(Stage::Policy, sched::set(0, &policy_in_child))
        });
    }
    let spawned = child.spawn();
    drop((child, tell));
    spawned.map_err(|error| {
        let mut stage = [Stage::Command as u8];
        let _ = io::Read::read(&mut told, &mut stage);
        match stage[0] {
            1 => failure(crate::exit::UNEXPECTED, format!("{}: {error}", group.display())),
            2 => policy_refused(policy, &error),
            _ => cannot_execute(&command[0], &error),
        }
    })
}

fn base_name(command: &OsString) -> String {
    Path::new(command)
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn policy_refused(policy: &Schedule, error: &io::Error) -> anyhow::Error {
    let hint = match policy {
        Schedule::Deadline { .. } => {
            "; a deadline needs free bandwidth, and all isolated CPUs of the machine in this one \
             partition"
        }
        _ => "",
    };
    failure(POLICY_REFUSED, format!("the kernel refuses {policy}: {error}{hint}"))
}

fn cannot_execute(command: &OsString, error: &io::Error) -> anyhow::Error {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    failure(code, format!("{}: {error}", command.to_string_lossy()))
}

/// Waits for the child and passes on what is meant for it. Signals of the terminal reach it by
/// themselves.
fn wait(mut child: Child, signals: &mut SignalsInfo<WithOrigin>) -> Result<ExitStatus> {
    let pid = child.id() as i32;
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    for origin in signals.forever() {
        if origin.signal == SIGCHLD {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
        } else if matches!(origin.cause, Cause::Sent(_)) {
            // SAFETY: kill takes two numbers; the child is not yet waited for, so its number is
            // still its own.
            unsafe { libc::kill(pid, origin.signal) };
        }
    }
    Ok(child.wait()?)
}

fn code(status: &ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
