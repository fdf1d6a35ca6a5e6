// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command as a child: started through a door, waited for, given the signals that are meant for
//! it.

use super::signals::{Signals, Taken, foreground};
use asmp_host::{Schedule, sched};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// So long a command may take to end after SIGTERM before its user learns how to kill it.
const LONG: Duration = Duration::from_secs(10);
/// Two SIGTERM within this time are one wish: timeout(1) sends two.
const TWICE: Duration = Duration::from_secs(1);

/// Where the child was when it failed before becoming the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    Door = 1,
    Policy = 2,
    Command = 3,
}

/// Starts the command. The child first goes through `door`, then takes `policy` (`None`: it keeps
/// what it has behind the door), and gets the signals as asmp found them. `door` must be
/// async-signal-safe: it runs after a fork. Errors: how far the child came.
pub fn start(
    command: &[OsString],
    mut door: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
    policy: Option<&Schedule>,
    signals: &Signals,
) -> Result<Child, (Stage, io::Error)> {
    let at_once = |error| (Stage::Command, error);
    let (mut words, report) = io::pipe().map_err(at_once)?;
    let mut report_in_child = report.try_clone().map_err(at_once)?;
    let policy = policy.copied();
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    // SAFETY: between fork and exec only async-signal-safe calls: write(2), sched_setattr(2) and
    // the door, on values prepared before the fork; nothing allocates or locks.
    unsafe {
        child.pre_exec(move || {
            let mut at = |stage: Stage, result: io::Result<()>| {
                if result.is_err() {
                    let _ = report_in_child.write(&[stage as u8]);
                }
                result
            };
            at(Stage::Door, door())?;
            at(Stage::Policy, policy.map_or(Ok(()), |policy| sched::set(0, &policy)))
        });
    }
    signals.keep_for(&mut child);
    let spawned = child.spawn();
    drop((child, report));
    spawned.map_err(|error| {
        let mut stage = [Stage::Command as u8];
        let _ = words.read(&mut stage);
        let stage = [Stage::Door, Stage::Policy].into_iter().find(|one| *one as u8 == stage[0]);
        (stage.unwrap_or(Stage::Command), error)
    })
}

/// Waits for the child and passes on what is meant for it. Signals of the terminal reach its
/// foreground process group by themselves. With `kill_after` the command gets SIGKILL that long
/// after it was first asked to end. `say` gets a line for the user.
pub fn wait(
    mut child: Child,
    signals: &Signals,
    kill_after: Option<Duration>,
    say: &mut dyn FnMut(&str),
) -> io::Result<ExitStatus> {
    let pid = child.id() as i32;
    let mut patience = Patience::new(kill_after);
    // What came while it was started may have missed it.
    let mut missed = true;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let left = if missed { Some(Duration::ZERO) } else { patience.left(Instant::now()) };
        match signals.next(left)? {
            None if missed => missed = false,
            None => match patience.over(Instant::now()) {
                Some(Then::Kill) => send(pid, libc::SIGKILL),
                Some(Then::Say) => say(&format!(
                    "the command has not ended {} s after SIGTERM; a second SIGTERM kills it (or \
                     kill -KILL {pid}). A busy real-time thread keeps others off its CPU",
                    LONG.as_secs()
                )),
                None => {}
            },
            Some(Taken { signal: libc::SIGCHLD, .. }) => {}
            Some(taken) if missed || must_be_passed_on(taken, pid) => {
                let kills = patience.asked(taken.signal, Instant::now());
                send(pid, if kills { libc::SIGKILL } else { taken.signal });
            }
            // The terminal asked it to end.
            Some(taken) => _ = patience.asked(taken.signal, Instant::now()),
        }
    }
}

fn must_be_passed_on(taken: Taken, pid: i32) -> bool {
    // SAFETY: takes no arguments.
    let own = unsafe { libc::getpgrp() };
    // SAFETY: takes a number; the child is not yet waited for.
    let command = unsafe { libc::getpgid(pid) };
    taken.must_be_passed_on(own, command, foreground())
}

fn send(pid: i32, signal: i32) {
    // SAFETY: kill takes two numbers; the child is not yet waited for, so its number is still its
    // own.
    unsafe { libc::kill(pid, signal) };
}

/// What follows once a command has taken too long to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Say,
    Kill,
}

/// How long a command may take to end once it was asked to. A controller may bring its machine to a
/// safe stop then, so it is killed only where its user said when, or asks again.
struct Patience {
    kill_after: Option<Duration>,
    terminated: Option<Instant>,
    next: Option<(Instant, Then)>,
}

impl Patience {
    const fn new(kill_after: Option<Duration>) -> Self {
        Self { kill_after, terminated: None, next: None }
    }

    /// The command gets this signal now. True: it must be killed instead.
    fn asked(&mut self, signal: i32, now: Instant) -> bool {
        if ![libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM].contains(&signal) {
            return false;
        }
        if let (None, Some(after)) = (self.next, self.kill_after) {
            self.next = now.checked_add(after).map(|at| (at, Then::Kill));
        }
        if signal != libc::SIGTERM {
            return false;
        }
        let first = *self.terminated.get_or_insert(now);
        if self.kill_after.is_none() && first == now {
            self.next = Some((now + LONG, Then::Say));
        }
        now.duration_since(first) > TWICE
    }

    fn left(&self, now: Instant) -> Option<Duration> {
        self.next.map(|(at, _)| at.saturating_duration_since(now))
    }

    fn over(&mut self, now: Instant) -> Option<Then> {
        self.next.take_if(|(at, _)| *at <= now).map(|(_, then)| then)
    }
}

/// The exit code of a shell for it: its own, or 128 + signal.
pub fn code(status: &ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: i32 = libc::SIGTERM;

    #[test]
    fn a_second_term_kills_but_not_within_a_second_and_ten_seconds_later_the_user_learns_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut patience = Patience::new(None);
        assert_eq!(patience.left(at(0)), None);
        assert!(!patience.asked(libc::SIGINT, at(0)) && !patience.asked(TERM, at(0)));
        assert!(!patience.asked(TERM, at(1000)), "timeout(1) sends two");
        assert_eq!(patience.over(at(9_999)), None);
        assert_eq!(patience.left(at(9_999)), Some(Duration::from_millis(1)));
        assert_eq!(patience.over(at(10_000)), Some(Then::Say));
        assert_eq!((patience.over(at(60_000)), patience.left(at(60_000))), (None, None));
        assert!(patience.asked(TERM, at(60_000)));
    }

    #[test]
    fn kill_after_counts_from_the_first_signal_that_ends() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut patience = Patience::new(Some(Duration::from_millis(300)));
        assert!(!patience.asked(libc::SIGUSR1, at(0)));
        assert_eq!(patience.left(at(0)), None);
        assert!(!patience.asked(libc::SIGINT, at(100)) && !patience.asked(TERM, at(200)));
        assert_eq!((patience.over(at(399)), patience.over(at(400))), (None, Some(Then::Kill)));
    }
}
