// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user without rights (65534) beside a real-time program of root: it tries each row of this
//! list, which stood before the first test, and gets nothing. What it keeps open, locked or
//! connected meanwhile does not stop the program.
//!
//! | area | what the stranger tries | what it gets |
//! |---|---|---|
//! | names | attach to a channel of root by its name | the directory belongs to another user |
//! | names | look into root's default directory | EACCES |
//! | names | make, move or remove a link of root | EACCES |
//! | links | follow a link, by itself or in /proc/PID/fd | EACCES |
//! | links | list /proc/PID/fd and map_files, follow cwd | EACCES |
//! | locks | open the lock of a directory of names | EACCES |
//! | locks | hold the directory itself locked | the lock; root creates channels all the same |
//! | memory | /proc/PID/mem; ptrace; process_vm_readv and writev; pidfd_getfd | EACCES; EPERM |
//! | memory | of a channel for reading: write, map for writing, open anew, resize, free, seal, chmod | EACCES, EBADF, EINVAL, EPERM |
//! | memory | of a channel for reading: take or share the writer's role, lease | EBADF, EAGAIN, EACCES |
//! | memory | of a channel for writing: resize, seal, chmod, open anew, lease | EPERM, EACCES |
//! | memory | of a channel for writing: take or release root's role | it is taken, and stays so |
//! | memory | of a channel for writing: scribble, and free its pages | the pages; root goes on |
//! | environment | ASMP_CHANNELS for a setuid program of root, and for one with capabilities | each ignores it |
//! | file limits | lower or raise limits of root's program, raise its own | EPERM |
//! | file limits | start a setuid program of root with few descriptors, no files, no locked memory | it refuses by words, or works; nothing is left |
//! | file limits | fill the directory of names and that of the sockets | EACCES |
//! | sockets | receive what is offered to others | not for this user |
//! | sockets | connect 200 times, say nothing | connections; others are served |
//! | sockets | remove, rename, replace, chmod a socket of root | EACCES, EPERM |
//! | sockets | offer a channel to root by its own socket, by a link | root refuses both |
//! | signals | stop, kill, slow down, move, lower root's program | EPERM |
//! | groups | move root's program to another cgroup | EACCES |
//!
//! Not here, because it needs partitions in a guest: the state directory, the groups of partitions,
//! the device /dev/rtfN. Not here, because it needs a /dev/shm or another program of its own: the
//! default directory of root made first, or as a link (`src/names_tests.rs`); the pipe that
//! asmp-rtf serves (`rt-c/tests/c/fifo.rs`). Not refused by any rule of ours: the stranger may use
//! up the memory of the machine or of /dev/shm; only limits of its own session prevent that.

mod attempts;
#[path = "../capability/mod.rs"]
mod capability;
mod program;

use asmp_channel::{Fifo, Kind, Mbuff, Role, ShmError, receive};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The stranger, and users to whom the program offers something else.
const STRANGER: u32 = 65534;
const OTHERS: [u32; 2] = [65533, 65532];
/// What comes, comes within this time on any machine.
const SOON: Duration = Duration::from_secs(120);

/// Where things of root are, as the stranger may know it.
struct Place {
    /// The process of the program.
    pid: i32,
    /// The directory of names: others may look into it.
    names: PathBuf,
    /// A directory as the library makes it.
    default: PathBuf,
    /// The directory of the sockets.
    sockets: PathBuf,
    /// A directory of the stranger.
    own: PathBuf,
}

/// The program of root; killed when dropped.
struct Program {
    child: Child,
    place: Place,
    dir: tempfile::TempDir,
}

impl Program {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (names, sockets, own) = (at("names"), at("sockets"), at("own"));
        chown(&own, Some(STRANGER), Some(STRANGER)).unwrap();
        for open in [dir.path(), &names, &sockets, &own] {
            std::fs::set_permissions(open, Permissions::from_mode(0o755)).unwrap();
        }
        let copy = |name: &str, mode| {
            let path = dir.path().join(name);
            // Another process writes it, so that no fork of this one has it open as it is executed.
            let mut copy = Command::new("cp");
            copy.arg(std::env::current_exe().unwrap()).arg(&path);
            assert!(copy.status().unwrap().success());
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        copy("setuid", 0o4755);
        let capable = copy("capable", 0o755);
        match capability::set(&capable) {
            // The attempt says so.
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                std::fs::remove_file(&capable).unwrap();
            }
            set => set.unwrap(),
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program::runs_for_ever", "--ignored"])
            .env(program::DIR, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let default = dir.path().join("default");
        let program = Self { child, place: Place { pid, names, default, sockets, own }, dir };
        let end = Instant::now() + SOON;
        while !program.dir.path().join("ready").exists() {
            assert!(Instant::now() < end, "the program of root does not start");
            std::thread::sleep(Duration::from_millis(1));
        }
        program
    }

    /// Its counts, as long as it holds its roles: cycles of the real-time thread, channels created.
    fn counts(&self) -> [u64; 2] {
        let mut bytes = [0; 16];
        Mbuff::attach(&self.place.names, "count").unwrap().read(0, &mut bytes).unwrap();
        match Fifo::attach(&self.place.names, "log") {
            Ok(log) => assert!(log.shared().is_held(Role::Writer), "its role is its own"),
            // The stranger has overwritten the header of what it may write: see LIMITS.md.
            Err(error) => assert!(matches!(error, ShmError::Mismatch { .. }), "{error}"),
        }
        let (words, _) = bytes.as_chunks::<8>();
        [0, 1].map(|at| u64::from_ne_bytes(words[at]))
    }

    /// Whether it runs, creates channels and serves other users now.
    fn goes_on(&mut self, while_the_stranger: &str) {
        let before = self.counts();
        let end = Instant::now() + SOON;
        loop {
            let now = self.counts();
            if now[0] >= before[0] + 20 && now[1] >= before[1] + 2 {
                break;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended while the stranger {while_the_stranger}: {ended:?}");
            assert!(Instant::now() < end, "{before:?} to {now:?}: {while_the_stranger}");
            std::thread::sleep(Duration::from_millis(1));
        }
        let socket = self.place.sockets.join("others");
        receive(&socket, None, Kind::Fifo, Some(SOON)).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an attempt makes of its refusal: the reason why it is another one.
type Attempt = fn(&Place) -> Result<(), String>;

/// A child process of the stranger that has made its attempt, and keeps what it got.
struct Stranger {
    child: i32,
    said: String,
    _ends: File,
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into a local.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: new descriptors, which nothing else owns.
    let [read, write] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
    (read, write)
}

impl Stranger {
    fn tries(attempt: Attempt, place: &Place) -> Self {
        let ((said, mut says), (waits, ends)) = (pipe(), pipe());
        // SAFETY: the child allocates (glibc's malloc allows it after a fork) and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop((said, ends));
            become_stranger();
            let tried = std::panic::catch_unwind(|| attempt(place));
            let line = match tried {
                Ok(Ok(())) => "refused as it should".to_owned(),
                Ok(Err(why)) => why,
                Err(_) => "a panic, above".to_owned(),
            };
            let _ = writeln!(says, "{}", line.replace('\n', " "));
            // Until the test has looked how the program is.
            let _ = BufReader::new(waits).read_line(&mut String::new());
            // SAFETY: ends the child without what belongs to its parent.
            unsafe { libc::_exit(0) }
        }
        assert!(child > 0);
        drop(says);
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).unwrap();
        Self { child, said: line.trim_end().to_owned(), _ends: ends }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(self.child, libc::SIGKILL) };
        // SAFETY: waits for it; no status is asked for.
        unsafe { libc::waitpid(self.child, std::ptr::null_mut(), 0) };
    }
}

/// Gives up all rights of root, for good.
fn become_stranger() {
    // SAFETY: takes numbers and a null list.
    let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
    // SAFETY: takes numbers.
    let ids = unsafe { libc::setgid(STRANGER) } | unsafe { libc::setuid(STRANGER) };
    // SAFETY: takes a number.
    assert!(groups == 0 && ids == 0 && unsafe { libc::setuid(0) } != 0);
}

#[test]
fn a_user_without_rights_gets_nothing_of_roots_and_stops_none_of_its_programs() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: another user's process needs root");
        return;
    }
    let mut program = Program::start();
    let mut wrong = Vec::new();
    for (name, attempt) in attempts::ALL {
        let stranger = Stranger::tries(*attempt, &program.place);
        if stranger.said != "refused as it should" {
            match stranger.said.strip_prefix("skipped: ") {
                Some(why) => println!("skipped: {name}: {why}"),
                None => wrong.push(format!("{name}: {}", stranger.said)),
            }
        }
        program.goes_on(name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn root_takes_no_channel_from_a_strangers_socket_or_link() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: another user's process needs root");
        return;
    }
    let program = Program::start();
    let stranger = Stranger::tries(attempts::offers_to_root, &program.place);
    assert_eq!(stranger.said, "refused as it should");
    let said = |path: &Path| {
        let refused = receive(path, None, Kind::Fifo, Some(SOON)).unwrap_err();
        refused.to_string()
    };
    let line = said(&program.place.own.join("socket"));
    assert!(line.contains("is served by user 65534, and not by root or user 0"), "{line}");
    let line = said(&program.place.own.join("link"));
    assert!(line.contains("link is a symbolic link: remove it"), "{line}");
}
