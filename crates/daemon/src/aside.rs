// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keeper of channels in a process of its own.
//!
//! Problem:  to close a descriptor that a user sent may wait as long as that user likes (for a
//!           file of a FUSE file system), and a process that does so cannot even be killed. asmpd
//!           would hold its lock for as long, and no other could start.
//! Approach: a child without the lock closes them. It ends when its standard input does, which
//!           asmpd alone has open; asmpd waits a second for it and no longer. Each child gets a
//!           new directory and opens it once, so that an old child cannot touch the new one's
//!           files. If a child ends by itself, asmpd starts another.

use crate::keeper::{self, Keeper};
use crate::seen::Seen;
use crate::socket::own_directory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::dup2_stderr;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The argument of asmpd that makes it such a child; a directory follows.
pub const ARGUMENT: &str = "--keep-channels";

/// What a child says once it listens. Anything else is why it does not.
const READY: &[u8] = b"ready";
/// How long that may take.
const START: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// How long asmpd waits for a child to end.
const END: Duration = Duration::from_secs(1);
/// How long asmpd waits before it starts the next one. It doubles with each that ends early.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Channels are kept as long as this lives.
#[derive(Debug)]
pub struct Aside {
    dir: PathBuf,
    say: fn(&str),
    life: Arc<Life>,
    /// Its other end is gone once no child is left.
    ended: Receiver<()>,
}

/// The standard input of the child that runs, which ends when this is closed.
#[derive(Debug, Default)]
struct Life {
    stdin: Mutex<Stdin>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct Stdin {
    is_over: bool,
    open: Option<ChildStdin>,
}

impl Life {
    fn stdin(&self) -> MutexGuard<'_, Stdin> {
        // No code panics between two states of it that fit together.
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        *self.stdin() = Stdin { is_over: true, open: None };
        self.told.notify_all();
    }

    /// Keeps it open. If asmpd ends, it is closed at once.
    fn keep(&self, open: Option<ChildStdin>) {
        let mut stdin = self.stdin();
        stdin.open = open.filter(|_| !stdin.is_over);
    }

    /// Waits for this time, or until asmpd ends. Does asmpd end?
    fn is_over_within(&self, time: Duration) -> bool {
        let waited = self.told.wait_timeout_while(self.stdin(), time, |stdin| !stdin.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}

impl Aside {
    /// Starts a child that keeps channels in this directory: this very program with [`ARGUMENT`].
    /// Says why there is none, and tries again later. Errors: in words.
    pub fn start(dir: &Path, say: fn(&str)) -> Result<Self, String> {
        // Also where an upgrade has removed the file.
        Self::start_by(Path::new("/proc/self/exe"), dir, say)
    }

    /// The same with this program in place of the running one.
    pub fn start_by(program: &Path, dir: &Path, say: fn(&str)) -> Result<Self, String> {
        let mut program = Command::new(program);
        program.arg0("asmpd").arg(ARGUMENT).arg(dir);
        // It is no service of systemd.
        program.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
        // Before asmpd says that it is ready: who starts after it can register.
        let mut killed = Vec::new();
        let first = begin(&mut program, dir, &mut killed);
        let life = Arc::new(Life::default());
        let (ends, ended) = mpsc::channel();
        let (its, at) = (Arc::clone(&life), dir.to_owned());
        let follow = move || follow(&mut program, &at, (first, killed), &its, say, ends);
        let builder = thread::Builder::new().name("asmpd-aside".to_owned());
        builder.spawn(follow).map_err(|error| format!("a thread: {error}"))?;
        Ok(Self { dir: dir.to_owned(), say, life, ended })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.life.end();
        if self.ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            (self.say)("the process that keeps channels does not end: see asmpd(8)");
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Waits for the child, and starts another each time that one ends or does not start, until asmpd
/// ends.
fn follow(
    program: &mut Command,
    dir: &Path,
    (mut child, mut killed): (Result<Child, String>, Vec<Child>),
    life: &Life,
    say: fn(&str),
    _ends: Sender<()>,
) {
    let mut pause = PAUSE;
    let mut said = String::new();
    loop {
        let status = match child {
            Ok(mut child) => {
                let began = Instant::now();
                life.keep(child.stdin.take());
                let status =
                    child.wait().map_or_else(|error| error.to_string(), |it| it.to_string());
                pause = if began.elapsed() > LONGEST_PAUSE { PAUSE } else { pause };
                said.clear();
                Some(status)
            }
            Err(why) => {
                if why != said {
                    let next = pause.as_secs();
                    say(&format!("no channels are kept: {why} (next try in {next} s)"));
                    said = why;
                }
                None
            }
        };
        // What ended the child may end asmpd, too.
        if life.is_over_within(pause) {
            return;
        }
        if let Some(status) = status {
            say(&format!(
                "the process that keeps channels has ended ({status}): another one is started"
            ));
        }
        pause = LONGEST_PAUSE.min(pause * 2);
        child = begin(program, dir, &mut killed);
    }
}

/// Starts a child in the directory, made anew: what lies there is an earlier one's. `killed`:
/// children that did not start and were killed; each stays there until it has ended. Errors: in
/// words.
fn begin(program: &mut Command, dir: &Path, killed: &mut Vec<Child>) -> Result<Child, String> {
    killed.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(format!("{}: {error}", dir.display()));
        }
        _ => {}
    }
    own_directory(dir)?;
    let mut child = program.spawn().map_err(|error| format!("a process: {error}"))?;
    let said = first_words(&mut child);
    match said.as_deref() {
        Ok(READY) => return Ok(child),
        // It has ended.
        Ok([]) => {
            let status = child.wait().map_err(|error| error.to_string())?;
            return Err(format!("their process has ended: {status}"));
        }
        _ => {}
    }
    let _ = child.kill();
    // It is not waited for now: it may have taken a descriptor.
    killed.push(child);
    said.and_then(|said| Err(String::from_utf8_lossy(&said).into_owned()))
}

/// What a child writes when it starts: nothing if it has ended. Errors: in words.
fn first_words(child: &mut Child) -> Result<Vec<u8>, String> {
    let mut said = child.stdout.take().ok_or("it has no output")?;
    let mut polled = [PollFd::new(&said, PollFlags::IN)];
    match poll(&mut polled, Some(&START)) {
        Ok(0) => return Err(format!("their process says nothing for {} s", START.tv_sec)),
        Ok(_) => {}
        Err(errno) => return Err(errno.to_string()),
    }
    let mut words = vec![0; 4096];
    let count = said.read(&mut words).map_err(|error| error.to_string())?;
    words.truncate(count);
    Ok(words)
}

/// The child: keeps channels until its standard input ends.
pub fn keep(dir: &Path, policy: Seen) -> ExitCode {
    let ended = listen(dir, policy).and_then(|keeper| {
        let ended = until_end().map_err(|error| error.to_string());
        keeper.end();
        // Who reads asmpd's messages does not wait for a thread of this process.
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            let _ = dup2_stderr(&null);
        }
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = io::stdout().write_all(why.as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn listen(dir: &Path, policy: Seen) -> Result<Keeper, String> {
    let _ = rustix::thread::set_name(c"asmpd-channels");
    // It keeps no directory in use.
    let _ = std::env::set_current_dir("/");
    // They are meant for asmpd. This process ends when asmpd does.
    for signal in [SIGTERM, SIGINT] {
        let unused = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, unused).map_err(|error| error.to_string())?;
    }
    keeper::start(dir, policy)
}

fn until_end() -> io::Result<()> {
    let mut said = io::stdout();
    said.write_all(READY)?;
    said.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}
