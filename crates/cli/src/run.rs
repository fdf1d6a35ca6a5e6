// SPDX-License-Identifier: Apache-2.0 OR MIT
//! run and exec: a command on shielded CPUs, with its policy, its signals and its exit status.
//!
//! The child enters the partition's group before it becomes the command, so everything it forks,
//! threads or executes is born inside. `run` then waits, passes signals on, and undoes everything.

use crate::args::{Exec, Run};
use crate::change::{changer, not_given_back, note_idle_priorities, own_process, run_request, say};
use crate::exit::{
    CANNOT_EXECUTE, NOT_FOUND, NOT_UNDONE, POLICY_REFUSED, UNEXPECTED, code_of, failure, of_signal,
};
use crate::granted;
use crate::outside::Helper;
use crate::print;
use crate::signals::{self, Noted, Signals};
use crate::supervise::{self, Stage};
use anyhow::{Context, Result};
use asmp_host::{Schedule, facts, sched, task};
use asmp_shield::{Caller, ChangeError, Members, Outcome, Request, Shield};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Partition, command, wait, undo. Returns the command's status: its code, or 128 + signal.
pub fn run(shield: &Shield, run: &Run) -> Result<u8> {
    let name = run.name.clone().unwrap_or_else(|| format!("run-{}", std::process::id()));
    // From here on a signal ends the command, never us half way.
    let signals = Arc::new(Signals::take().context("take signals")?);
    let kernel = shield.kernel();
    if facts::user(kernel) != Some(0) {
        return granted::run(run, &name, &signals);
    }
    let caller = changer(kernel)?;
    let request = run_request(kernel, run, &name);
    let made = make(shield, &request, &caller, signals.interrupt())?;
    let Ok(outcome) = made else { return Ok(not_started(made.unwrap_err())) };
    note_idle_priorities(&request);
    report(&outcome);
    let ended = attend(shield, run, &name, &signals);

    let end = Request::EndRun { name: name.clone(), owner: own_process(kernel) };
    let undone = shield.change(&end, &caller);
    if let Ok(outcome) = &undone {
        print::demoted(&outcome.demoted);
        print::elsewhere(&outcome.elsewhere);
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
        Err(error) if error.is_no_partition() => {
            let is_another = shield.state().is_ok_and(|state| state.partition(&name).is_ok());
            eprintln!(
                "asmp: partition {name} {}",
                match is_another {
                    true => "stays: a file of `asmp apply`, or another `asmp`, made it its own",
                    false => "was destroyed while the command ran",
                }
            );
        }
        Err(error) => {
            let error =
                anyhow::Error::new(error).context(format!("partition {name} could not be undone"));
            eprintln!("asmp: {}", print::chain(&error));
            return Ok(code_of(&error));
        }
    }
    ended
}

/// Makes the partition. `Ok(Err(signal))`: a signal came first, and there is none.
fn make(
    shield: &Shield,
    request: &Request,
    caller: &Caller,
    interrupt: impl Fn() -> Option<i32> + Send + Sync + 'static,
) -> Result<Result<Outcome, i32>> {
    match shield.clone().with_interrupt(interrupt).change(request, caller) {
        Ok(outcome) => Ok(Ok(outcome)),
        Err(error) => match error.cause() {
            ChangeError::Interrupted { signal } => Ok(Err(*signal)),
            _ => Err(error.into()),
        },
    }
}

/// The command inside the partition, from its start to its end.
fn attend(shield: &Shield, run: &Run, name: &str, signals: &Signals) -> Result<u8> {
    let mut door = shield.entrance(name)?.door()?;
    if let Some(signal) = signals.ending()? {
        return Ok(not_started(signal));
    }
    let started = supervise::start(&run.command, move || door.enter(), Some(&run.policy), signals);
    let child = started.map_err(|(stage, error)| match stage {
        Stage::Door => failure(UNEXPECTED, format!("partition {name}: cannot enter: {error}")),
        Stage::Policy => policy_refused(&run.policy, &error),
        Stage::Command => cannot_execute(&run.command[0], &error),
    })?;
    let mut say = |line: &str| eprintln!("asmp: {line}");
    let status = supervise::wait(child, signals, run.kill_after, &mut say)?;
    Ok(supervise::code(&status))
}

/// As a shell says it of a command that a signal ended.
pub fn not_started(signal: i32) -> u8 {
    eprintln!("asmp: {} came first: the command was not started", signals::name(signal));
    of_signal(signal)
}

/// What the helper of `exec` is asked for.
const ENTER: u8 = 0;
const LEAVE: u8 = 1;

/// Becomes the command inside an existing partition; returns only on errors.
pub fn exec(shield: &Shield, exec: &Exec) -> Result<u8> {
    let kernel = shield.kernel();
    let own = std::process::id() as i32;
    let caller = changer(kernel)?;
    let (name, command) = (exec.name.clone(), base_name(&exec.command[0]));
    let process = task::identify(kernel, own).context("this process is not in /proc")?;
    let enter = Request::Exec { name: name.clone(), process, command };
    let members = Members { pids: vec![own], ..Members::default() };
    let leave = Request::Remove { name, members, demote: true };
    let mut helper = Helper::start(|request| {
        let changed = match request {
            // In the helper alone: this process must die of a signal, as the command would.
            ENTER => Noted::take().context("take signals").and_then(|noted| {
                let shield = shield.clone().with_interrupt(noted.interrupt());
                Ok(shield.change(&enter, &caller)?)
            }),
            _ => shield.change(&leave, &caller).map_err(anyhow::Error::from),
        };
        changed.map_or_else(|error| say(&error), |_| 0)
    })
    .context("start a process that changes the partition")?;
    match helper.ask(ENTER).context("the process that changes the partition was killed")? {
        0 => {}
        code => return Ok(code),
    }
    let error = match sched::set(0, &exec.policy) {
        Err(error) => policy_refused(&exec.policy, &error),
        Ok(()) => {
            let mut command = Command::new(&exec.command[0]);
            signals::keep_ignored_pipe(&mut command);
            let error = command.args(&exec.command[1..]).exec();
            cannot_execute(&exec.command[0], &error)
        }
    };
    // Still ourselves: leave the partition as if we had never come.
    helper.ask(LEAVE).context("the process that changes the partition was killed")?;
    Err(error)
}

fn report(outcome: &Outcome) {
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

pub fn base_name(command: &OsString) -> String {
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

pub fn cannot_execute(command: &OsString, error: &io::Error) -> anyhow::Error {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    failure(code, format!("{}: {error}", command.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::fake::FakeKernel;
    use asmp_host::store::Store;
    use asmp_shield::Spec;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    #[test]
    fn a_signal_ends_the_wait_for_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        let shield = Shield::new(Arc::new(FakeKernel::new()), store.clone());
        let spec = Spec::of("3".parse().unwrap());
        let request = Request::Run { name: "a".to_owned(), spec, owner: None };
        let caller = Caller::now(0, "root", "test");
        let held = store.lock(Duration::ZERO).unwrap().unwrap();
        let looks = AtomicUsize::new(0);
        let third = move || (looks.fetch_add(1, Relaxed) >= 2).then_some(libc::SIGINT);
        let made = make(&shield, &request, &caller, third).unwrap();
        assert_eq!(made.err(), Some(libc::SIGINT));
        assert!(shield.state().unwrap().partitions.is_empty());
        drop(held);
        assert!(make(&shield, &request, &caller, || None).unwrap().is_ok());
        assert_eq!(shield.state().unwrap().partitions.len(), 1);
    }
}
