// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `asmp run` does with signals, without a partition: this program, started by itself as
//! `supervise`, is the part of `asmp run` around the command.

#[path = "../src/signals.rs"]
#[allow(dead_code)]
mod signals;
#[path = "../src/supervise.rs"]
#[allow(dead_code, unused_imports)]
mod supervise;

use asmp_host::Schedule;
use libtest_mimic::{Arguments, Failed, Trial};
use signals::{Signals, Taken};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "supervise" => {
            let kill_after = words.next().and_then(|ms| ms.to_str()?.parse().ok());
            supervised(kill_after.map(Duration::from_millis), &words.collect::<Vec<_>>())
        }
        Some(word) if word == "mortal" => mortal(),
        Some(word) if word == "noted" => noted(),
        Some(word) if word == "full" => full(),
        _ => {
            heed_signals();
            libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
        }
    }
}

/// A shell starts a background job, and nohup(1) any, with some signals ignored; so would be what
/// is started here.
fn heed_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: no other thread is there yet; SIG_DFL is no function.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// As `asmp run`: take signals, prepare, start, wait. It prepares until a line comes.
fn supervised(kill_after: Option<Duration>, command: &[std::ffi::OsString]) -> ExitCode {
    let signals = Signals::take().unwrap();
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    if let Some(signal) = signals.ending().unwrap() {
        return ExitCode::from(128 + signal as u8);
    }
    let other = Schedule::Other { nice: 0 };
    let child = supervise::start(command, || Ok(()), Some(&other), &signals).unwrap();
    let mut say = |line: &str| eprintln!("{line}");
    let status = supervise::wait(child, &signals, kill_after, &mut say).unwrap();
    ExitCode::from(supervise::code(&status))
}

/// As a command that changes something: a line of input ends its change, a second one its words.
fn noted() -> ExitCode {
    let noted = signals::Noted::take().unwrap();
    println!("ready");
    let line = || std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    line();
    let signal = noted.signal();
    noted.let_go();
    println!("{}", signal.map_or_else(|| "none".to_owned(), signals::name));
    line();
    if let Some(signal) = signal {
        signals::end_by(signal);
    }
    ExitCode::SUCCESS
}

/// Writes beyond the limit of a file's size.
fn full() -> ExitCode {
    signals::outlive_file_size_limit().unwrap();
    let limit = libc::rlimit { rlim_cur: 10, rlim_max: 10 };
    // SAFETY: a limit on our stack.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0; 10]).unwrap();
    let error = file.write_all(&[0; 10]).unwrap_err();
    ExitCode::from(error.raw_os_error().unwrap_or_default() as u8)
}

/// A command that SIGHUP ends, also where it was ignored before.
fn mortal() -> ExitCode {
    // SAFETY: the default action is no function.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    println!("up");
    // The signal comes meanwhile, or never.
    std::thread::sleep(Duration::from_secs(1));
    println!("end");
    ExitCode::SUCCESS
}

/// A long time: only a test that fails waits for its end.
const BOUND: Duration = Duration::from_secs(120);

struct Supervisor {
    child: Child,
    words: BufReader<ChildStdout>,
}

impl Supervisor {
    fn of(kill_after_ms: &str, shell: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["supervise", kill_after_ms, "sh", "-c", shell]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let words = BufReader::new(child.stdout.take().unwrap());
        let mut started = Self { child, words };
        assert_eq!(started.line(), "ready");
        started
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.words.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// The command starts now.
    fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }

    fn kill(&self, signal: i32) {
        // SAFETY: takes two numbers; the child is not yet waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    #[track_caller]
    fn ends_with(mut self, code: i32) {
        let end = Instant::now() + BOUND;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => {
                    let got = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
                    assert_eq!(got, code, "{status}");
                    return;
                }
                None if Instant::now() > end => panic!("it does not end"),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 15] = [
        ("what was ignored at start is ignored by the command", ignored),
        ("an ignored signal is not passed on", ignored_is_not_listened_to),
        ("the command gets the mask of the start", mask),
        ("a signal before the start ends the run", before_the_start),
        ("a terminal's signal before the start ends the run", terminal_before_the_start),
        ("a signal that a process sends is passed on", passed_on),
        ("a terminal's signal reaches a command of another group", terminal),
        ("a terminal's signal reaches a command of the same group once", terminal_same_group),
        ("a second SIGTERM kills a command that does not end", second_term),
        ("--kill-after kills a command that does not end", kill_after),
        ("which signals of the kernel are passed on", decision),
        ("a signal during a change is noted and then ends the command", is_noted),
        ("a signal after a change ends the command at once", is_noted_no_more),
        ("a change does not listen to an ignored signal", ignored_is_not_noted),
        ("a write beyond the limit of a file's size fails and ends nothing", outlives_the_limit),
    ];
    let trial = |(name, run): (&str, fn())| {
        Trial::test(name, move || {
            std::panic::catch_unwind(run).map_err(|_| Failed::from("see above"))
        })
    };
    tests.into_iter().map(trial).collect()
}

fn changing(prepare: &str, word: &str) -> Supervisor {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{prepare} exec {} {word}", program.display())]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Supervisor::start(command)
}

fn is_noted() {
    for (signal, name) in
        [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM"), (libc::SIGQUIT, "SIGQUIT")]
    {
        let mut started = changing("", "noted");
        started.kill(signal);
        started.go();
        assert_eq!(started.line(), name);
        started.ends_with(-signal);
    }
}

fn is_noted_no_more() {
    let mut started = changing("", "noted");
    started.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(started.line(), "none");
    // It waits for its second line.
    started.kill(libc::SIGHUP);
    started.ends_with(-libc::SIGHUP);
}

fn ignored_is_not_noted() {
    let mut started = changing("trap '' HUP;", "noted");
    started.kill(libc::SIGHUP);
    started.go();
    assert_eq!(started.line(), "none");
    started.ends_with(0);
}

fn outlives_the_limit() {
    let status = Command::new(std::env::current_exe().unwrap()).arg("full").status().unwrap();
    assert_eq!(status.code(), Some(libc::EFBIG), "{status}");
}

/// The value of a field of the command's /proc/self/status, in hexadecimal.
fn status(field: &str, prepare: &str) -> u64 {
    let program = std::env::current_exe().unwrap();
    let inner = format!("grep {field}: /proc/self/status");
    let line = format!("{prepare} exec {} supervise - {inner}", program.display());
    let mut command = Command::new("sh");
    command.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut started = Supervisor::start(command);
    started.go();
    let line = started.line();
    started.ends_with(0);
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

fn bits(signals: &[i32]) -> u64 {
    signals.iter().map(|signal| 1 << (signal - 1)).sum()
}

fn ignored() {
    let without = |prepare: &str| {
        let line = format!("{prepare} exec grep SigIgn: /proc/self/status");
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        u64::from_str_radix(words.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    let all = ["HUP", "INT", "QUIT", "TERM", "PIPE", "USR1", "USR2", "ALRM", "WINCH", "CHLD"];
    let traps = all.map(|name| format!("trap '' {name};"));
    for prepare in traps.iter().chain([&String::new(), &traps.concat()]) {
        let (kept, expected) = (status("SigIgn", prepare), without(prepare));
        assert_eq!(kept, expected, "{prepare}: {kept:x}, without asmp {expected:x}");
    }
}

fn ignored_is_not_listened_to() {
    let program = std::env::current_exe().unwrap();
    let program = program.display();
    let line = format!("trap '' HUP; exec {program} supervise - {program} mortal");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut started = Supervisor::start(command);
    started.kill(libc::SIGHUP);
    started.go();
    assert_eq!(started.line(), "up");
    started.kill(libc::SIGHUP);
    assert_eq!(started.line(), "end");
    started.ends_with(0);
}

fn mask() {
    let ours = bits(&[libc::SIGINT, libc::SIGTERM, libc::SIGCHLD]);
    assert_eq!(status("SigBlk", "") & ours, 0);
}

fn before_the_start() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut started = Supervisor::start(Supervisor::of("-", "echo it runs"));
        started.kill(signal);
        started.go();
        assert_eq!(started.line(), "", "the command was started");
        started.ends_with(128 + signal);
    }
    let mut started = Supervisor::start(Supervisor::of("-", "echo it runs"));
    started.kill(libc::SIGWINCH);
    started.kill(libc::SIGCONT);
    started.go();
    assert_eq!(started.line(), "it runs");
    started.ends_with(0);
}

fn passed_on() {
    for (name, signal) in [("USR1", libc::SIGUSR1), ("INT", libc::SIGINT), ("TERM", libc::SIGTERM)]
    {
        let line = format!("trap 'exit 7' {name}; echo up; while :; do sleep 0.05; done");
        let mut started = Supervisor::start(Supervisor::of("-", &line));
        started.go();
        assert_eq!(started.line(), "up");
        started.kill(signal);
        started.ends_with(7);
    }
    let mut started = Supervisor::start(Supervisor::of("-", "echo up; exec sleep 600"));
    started.go();
    assert_eq!(started.line(), "up");
    started.kill(libc::SIGALRM);
    started.ends_with(128 + libc::SIGALRM);
}

/// Starts a supervisor with a terminal of its own. The file is the terminal's other side.
fn in_terminal(shell: &str) -> (Supervisor, File) {
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: two places for descriptors; name and settings are left out.
    let opened = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // A copy of it in the child would keep the terminal alive.
    // SAFETY: takes numbers; the descriptor is ours.
    assert_eq!(unsafe { libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
    // SAFETY: a new descriptor without another owner.
    let master = unsafe { File::from_raw_fd(master) };
    // SAFETY: as above.
    let slave = unsafe { OwnedFd::from_raw_fd(slave) };
    let mut command = Supervisor::of("-", shell);
    command.stderr(slave);
    let control = || {
        // SAFETY: takes no arguments; async-signal-safe.
        let session = unsafe { libc::setsid() };
        // SAFETY: takes numbers; async-signal-safe.
        match (session, unsafe { libc::ioctl(2, libc::TIOCSCTTY, 0) }) {
            (1.., 0) => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: two system calls; nothing allocates.
    unsafe { command.pre_exec(control) };
    (Supervisor::start(command), master)
}

fn terminal() {
    let (mut started, mut keys) = in_terminal(
        "exec setsid sh -c 'trap \"exit 9\" INT; echo up; while :; do sleep 0.05; done'",
    );
    started.go();
    assert_eq!(started.line(), "up");
    keys.write_all(b"\x03").unwrap();
    started.ends_with(9);
}

/// The kernel sends it to the group, in which there is no command yet.
fn terminal_before_the_start() {
    for (key, signal) in [(Some(b"\x03"), libc::SIGINT), (Some(b"\x1c"), libc::SIGQUIT)] {
        before_the_start_by(key, signal);
    }
    before_the_start_by(None, libc::SIGHUP);
}

/// A key, or the end of the terminal.
fn before_the_start_by(key: Option<&[u8; 1]>, signal: i32) {
    let (mut started, keys) = in_terminal("echo it runs");
    let mut keys = Some(keys);
    match key {
        Some(key) => keys.as_mut().unwrap().write_all(key).unwrap(),
        None => drop(keys.take()),
    }
    let end = Instant::now() + BOUND;
    while pending(started.child.id()) & bits(&[signal]) == 0 {
        assert!(Instant::now() < end, "signal {signal} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
    started.go();
    assert_eq!(started.line(), "", "the command was started");
    started.ends_with(128 + signal);
}

/// The signals that wait for a process.
fn pending(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    of("SigPnd:") | of("ShdPnd:")
}

fn terminal_same_group() {
    let line = "trap 'echo INT' INT; trap 'exit 8' USR1; echo up; while :; do sleep 0.05; done";
    let (mut started, mut keys) = in_terminal(line);
    started.go();
    assert_eq!(started.line(), "up");
    keys.write_all(b"\x03").unwrap();
    assert_eq!(started.line(), "INT");
    // Time for a second one, which must not come.
    std::thread::sleep(Duration::from_millis(300));
    started.kill(libc::SIGUSR1);
    let mut rest = String::new();
    started.words.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "it came once");
    started.ends_with(8);
}

const DEAF: &str = "trap '' TERM; echo up; while :; do sleep 0.05; done";

fn second_term() {
    let mut started = Supervisor::start(Supervisor::of("-", DEAF));
    started.go();
    assert_eq!(started.line(), "up");
    started.kill(libc::SIGTERM);
    // A second one within a second would be the same wish.
    std::thread::sleep(Duration::from_millis(1300));
    assert!(started.child.try_wait().unwrap().is_none(), "it is deaf");
    started.kill(libc::SIGTERM);
    started.ends_with(128 + libc::SIGKILL);
}

fn kill_after() {
    let mut started = Supervisor::start(Supervisor::of("300", DEAF));
    started.go();
    assert_eq!(started.line(), "up");
    let asked = Instant::now();
    started.kill(libc::SIGTERM);
    started.ends_with(128 + libc::SIGKILL);
    assert!(asked.elapsed() >= Duration::from_millis(300));
}

fn decision() {
    let taken = |signal, by_kernel| Taken { signal, by_kernel };
    let (own, command) = (10, 20);
    // A process sent it to asmp alone.
    assert!(taken(libc::SIGINT, false).must_be_passed_on(own, own, Some(own)));
    // The terminal sent it to both.
    assert!(!taken(libc::SIGINT, true).must_be_passed_on(own, own, Some(own)));
    // The command has a group of its own, in the background or in the foreground.
    assert!(taken(libc::SIGINT, true).must_be_passed_on(own, command, Some(own)));
    assert!(!taken(libc::SIGHUP, true).must_be_passed_on(own, command, Some(command)));
    // The terminal is gone.
    assert!(!taken(libc::SIGHUP, true).must_be_passed_on(own, own, None));
    assert!(taken(libc::SIGHUP, true).must_be_passed_on(own, command, None));
    // An alarm that was set before asmp is this process's alone.
    assert!(taken(libc::SIGALRM, true).must_be_passed_on(own, own, Some(own)));
}
