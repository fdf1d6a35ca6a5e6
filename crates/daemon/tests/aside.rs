// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that keeps channels, of the real program: its start, its ends, and one that cannot
//! end.

use asmp_channel::keeper::{REGISTER, path_of};
use asmp_channel::{Access, Fifo, FifoWriter, Kept, Kind, OfferError, Options, Overflow};
use asmp_channel::{Readers, Wake, receive};
use asmp_daemon::aside::Aside;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(120);

/// What was said; each test says other words.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn say(what: &str) {
    SAID.lock().unwrap().push(what.to_owned());
}

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("channels")
    }

    fn start(&self) -> Aside {
        Aside::start_by(Path::new(env!("CARGO_BIN_EXE_asmpd")), &self.dir(), say).unwrap()
    }

    fn writer(&self, name: &str) -> FifoWriter {
        let options = Options { capacity_bytes: 1000, overflow: Overflow::Refuse };
        let fifo = Fifo::create(&self.0.path().join("names"), name, &options).unwrap();
        fifo.into_writer(Wake::Never).unwrap()
    }

    fn keep(&self, writer: &FifoWriter) -> Kept {
        let readers = Readers { users: &[], groups: &[] };
        Kept::at(&self.dir(), writer.fifo().shared(), Access::Write, readers).unwrap()
    }

    fn receives(&self, name: &str) -> bool {
        let path = path_of(&self.dir(), geteuid().as_raw(), name);
        match receive(&path, None, Kind::Fifo, Some(LONG)) {
            Ok(_) => true,
            Err(OfferError::NotFound { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// The process that listens.
    fn pid(&self) -> Pid {
        let stream = UnixStream::connect(self.dir().join(REGISTER)).unwrap();
        rustix::net::sockopt::socket_peercred(&stream).unwrap().pid
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        // Another process does it.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Is it there, and no zombie?
fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn channels_are_kept_by_another_process_and_go_with_whom_it_is_for() {
    let place = Place::new();
    let aside = place.start();
    let writer = place.writer("a");
    let _kept = place.keep(&writer);
    assert!(place.receives("a"));
    let pid = place.pid();
    assert_ne!(pid, rustix::process::getpid());
    drop(aside);
    assert!(!runs(pid) && !place.dir().exists());
}

#[test]
fn a_signal_for_asmpd_ends_no_channel() {
    let place = Place::new();
    let _aside = place.start();
    let writer = place.writer("a");
    let _kept = place.keep(&writer);
    let pid = place.pid();
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(pid, signal).unwrap();
    }
    assert!(place.receives("a") && place.pid() == pid);
}

#[test]
fn one_that_is_killed_is_followed_by_another_and_programs_register_again() {
    let place = Place::new();
    let _aside = place.start();
    let writer = place.writer("a");
    let mut kept = place.keep(&writer);
    let killed = place.pid();
    kill_process(killed, Signal::KILL).unwrap();
    until("another one listens", || {
        let stream = UnixStream::connect(place.dir().join(REGISTER));
        stream.is_ok_and(|stream| {
            rustix::net::sockopt::socket_peercred(&stream).unwrap().pid != killed
        })
    });
    assert!(!place.receives("a") && kept.renew().unwrap() && place.receives("a"));
    let said = SAID.lock().unwrap().join("\n");
    assert!(said.contains("has ended (signal: 9 (SIGKILL)): another one is started"), "{said}");
}

/// A stopped process answers as little as one that waits in the kernel for a user.
#[test]
fn one_that_cannot_end_is_in_no_way_of_the_next_and_takes_nothing_of_it() {
    let place = Place::new();
    let aside = place.start();
    let writer = place.writer("a");
    let mut kept = place.keep(&writer);
    let hangs = place.pid();
    kill_process(hangs, Signal::STOP).unwrap();
    let began = Instant::now();
    drop(aside);
    assert!(began.elapsed() >= Duration::from_millis(900), "it was waited for");
    assert!(runs(hangs) && !place.dir().exists());
    let _aside = place.start();
    // Its last deed, the end of a name: the program has left it.
    assert!(kept.renew().unwrap());
    kill_process(hangs, Signal::CONT).unwrap();
    until("it ends", || !runs(hangs));
    assert!(place.receives("a") && place.pid() != hangs);
}

#[test]
fn what_keeps_it_from_starting_is_said_and_it_starts_once_that_is_gone() {
    let place = Place::new();
    let is_said = |what: &str| {
        let what = format!("no channels are kept: {what}");
        until(&what, || SAID.lock().unwrap().iter().any(|line| line.starts_with(&what)));
    };
    let start = |program: &str| Aside::start_by(Path::new(program), &place.dir(), say).unwrap();
    for (program, why) in [
        ("/no/such/program", "a process: No such file"),
        ("/bin/false", "their process has ended: exit status: 1"),
        ("/bin/echo", "--keep-channels"),
    ] {
        let aside = start(program);
        is_said(why);
        drop(aside);
    }
    fs::write(place.dir(), "").unwrap();
    let _aside = place.start();
    is_said(&format!("{}: Not a directory", place.dir().display()));
    fs::remove_file(place.dir()).unwrap();
    until("it listens", || UnixStream::connect(place.dir().join(REGISTER)).is_ok());
}
