// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real-time program with file capabilities (`setcap cap_sys_nice+ep`), which an ordinary user
//! starts, and programs without rights: they meet in channels of both directions, by offers.
//!
//! The kernel keeps such a program from its own user: it is not dumpable, so that only root follows
//! its links. The programs are copies of this one, each a process of its own.

mod capability;

use asmp_channel::{
    Access, Fifo, FifoReader, FifoWriter, Kind, Offer, Options, Overflow, Pages, Record, ShmError,
    WaitError, Wake, receive,
};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Who starts the program, and another user whom it names.
const USERS: [u32; 2] = [65534, 65533];
/// What comes, comes within this time on any machine.
const SOON: Option<Duration> = Some(Duration::from_secs(120));
const DIR: &str = "ASMP_CAPABLE_DIR";

/// The directories of one test: names and sockets belong to the first user.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for (name, mode) in [("", 0o755), ("names", 0o700), ("sockets", 0o755)] {
            let dir = place.0.path().join(name);
            let _ = std::fs::create_dir(&dir);
            std::fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            if !name.is_empty() {
                chown(&dir, Some(USERS[0]), Some(USERS[0])).unwrap();
            }
        }
        place
    }

    /// A copy of this program that any user may start.
    fn copy(&self, name: &str) -> PathBuf {
        let program = self.0.path().join(name);
        // Another process writes it, so that no fork of this one has it open as it is executed.
        let mut copy = Command::new("cp");
        copy.arg(std::env::current_exe().unwrap()).arg(&program);
        assert!(copy.status().unwrap().success());
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// Starts a copy as a user without rights, in one of the parts below.
    fn start(&self, program: &Path, part: &str, user: u32) -> std::io::Result<Running> {
        let mut command = Command::new(program);
        command.args(["--exact", part, "--ignored", "--nocapture", "--quiet"]);
        command.env(DIR, self.0.path()).uid(user).gid(user).current_dir("/");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().unwrap());
        Ok(Running { child, said })
    }
}

/// Killed when dropped.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// The next line that it says of itself; not those of its test harness.
    fn line(&mut self) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            if let Some(said) = line.trim_end().strip_prefix("says: ") {
                return said.to_owned();
            }
            line.clear();
        }
        let mut complaint = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        panic!("it has ended: {complaint}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(line: &str) {
    println!("\nsays: {line}");
}

#[test]
fn a_program_with_file_capabilities_and_readers_without_rights_meet_in_both_directions() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: file capabilities and other users need root");
    }
    let place = Place::new();
    let program = place.copy("motion");
    match capability::set(&program) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return println!("skipped: {} takes no file capabilities", place.0.path().display());
        }
        set => set.unwrap(),
    }
    let mut motion = match place.start(&program, "offers_both_directions", USERS[0]) {
        // The capability is none that this machine may give, as in a container.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return println!("skipped: no program may have CAP_SYS_NICE here: {error}");
        }
        started => started.unwrap(),
    };
    match motion.line().as_str() {
        "offers" => {}
        "no capability" => return println!("skipped: the file system gives no capabilities"),
        other => panic!("{other}"),
    }
    // One after the other: a FIFO has one reader and one writer.
    let client = place.copy("client");
    for user in USERS {
        let mut client = place.start(&client, "receives_both_directions", user).unwrap();
        assert_eq!(client.line(), "they met", "user {user}");
        assert_eq!(motion.line(), "a peer has gone", "user {user}");
    }
    // A user whom it does not name gets nothing.
    let mut stranger = place.start(&client, "receives_nothing", 65532).unwrap();
    assert_eq!(stranger.line(), "nothing");
}

fn at(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(DIR).unwrap()).join(name)
}

/// The program with the capability.
#[test]
#[ignore = "a part of the test above"]
fn offers_both_directions() {
    // SAFETY: takes nothing, gives a number.
    let is_dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) } == 1;
    // SAFETY: takes and gives a number.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if is_dumpable || !is_secure {
        return say("no capability");
    }
    let names = at("names");
    let fifo = |name| {
        let options = Options { capacity_bytes: 4096, overflow: Overflow::Refuse };
        Fifo::create(&names, name, &options).unwrap()
    };
    let mut samples = fifo("samples").into_writer(Wake::IfAsleep).unwrap();
    let mut commands = fifo("commands").into_reader(Wake::IfAsleep).unwrap();
    let mut state = Record::<u64>::alloc(&names, "state", Pages::Normal).unwrap().writer().unwrap();
    for (name, channel, access) in [
        ("samples", samples.fifo().shared(), Access::Write),
        ("commands", commands.fifo().shared(), Access::Write),
        ("state", state.shared(), Access::Read),
    ] {
        let offer = Offer::new(&at("sockets").join(name), channel, access, &USERS).unwrap();
        std::thread::spawn(move || while offer.serve_one(None).is_ok() {});
    }
    // After the threads that serve: they are no real-time threads.
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: one structure of ours, of this thread.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    assert_eq!(set, 0, "the capability is for this: {}", std::io::Error::last_os_error());
    say("offers");
    let mut command = [0; 8];
    loop {
        // A wait without a peer ends: there is none yet.
        while !commands.has_writer() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let gone = loop {
            match commands.wait(SOON) {
                Ok(()) => assert_eq!(commands.get(&mut command).unwrap(), 8),
                Err(gone) => break gone,
            }
            let number = u64::from_ne_bytes(command);
            state.write(&number);
            samples.put(&(number * 2).to_ne_bytes()).unwrap();
        };
        assert_eq!(gone, WaitError::PeerGone);
        say("a peer has gone");
    }
}

fn receive_fifo(name: &str) -> Fifo {
    let shared = receive(&at("sockets").join(name), Some(USERS[0]), Kind::Fifo, SOON).unwrap();
    Fifo::from_shared(shared).unwrap()
}

/// A program without rights: of the same user, and of another.
#[test]
#[ignore = "a part of the test above"]
fn receives_both_directions() {
    // SAFETY: takes nothing, cannot fail.
    let user = unsafe { libc::geteuid() };
    // By its name the channel is closed even to the user who started the program.
    let refused = Fifo::attach(&at("names"), "samples").unwrap_err();
    match user == USERS[0] {
        true => {
            let ShmError::Hidden { pid, .. } = refused else { panic!("{refused}") };
            let listed = std::fs::read_dir(format!("/proc/{pid}/fd"));
            assert_eq!(listed.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        false => assert!(matches!(refused, ShmError::Io { .. } | ShmError::ForeignDir { .. })),
    }
    let mut samples: FifoReader = receive_fifo("samples").into_reader(Wake::IfAsleep).unwrap();
    let mut commands: FifoWriter = receive_fifo("commands").into_writer(Wake::IfAsleep).unwrap();
    let state = receive(&at("sockets").join("state"), Some(USERS[0]), Kind::Mbuff, SOON).unwrap();
    let state = Record::<u64>::from_shared(state).unwrap();
    for number in 1..=100_u64 {
        let mut answer = [0; 8];
        commands.put(&number.to_ne_bytes()).unwrap();
        samples.wait(SOON).unwrap();
        assert_eq!(samples.get(&mut answer).unwrap(), 8);
        assert_eq!(u64::from_ne_bytes(answer), number * 2);
        assert!(matches!(state.read(), Ok(Some((_, seen))) if seen == number));
    }
    let refused = state.writer().unwrap_err();
    assert!(refused.to_string().contains("offered for reading"), "{refused}");
    say("they met");
}

#[test]
#[ignore = "a part of the test above"]
fn receives_nothing() {
    let refused = receive(&at("sockets").join("samples"), Some(USERS[0]), Kind::Fifo, SOON);
    let line = refused.unwrap_err().to_string();
    assert!(line.contains("is not for user 65532"), "{line}");
    say("nothing");
}
