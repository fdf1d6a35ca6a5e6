// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `asmpd`: arguments, signals, and what it prints.

use asmp_daemon::aside::{self, Aside};
use asmp_daemon::balancer::Balancer;
use asmp_daemon::board::Board;
use asmp_daemon::files::{self, OF_FILES};
use asmp_daemon::hold::{Hold, Pace, Record};
use asmp_daemon::interface::{DIR, done};
use asmp_daemon::policy::Files;
use asmp_daemon::seen::Seen;
use asmp_daemon::serve::{Source, serve};
use asmp_daemon::socket::Place;
use asmp_daemon::work::{Refused, Work};
use asmp_duration::ExactDuration;
use asmp_host::clock::{monotonic_ns, unix_s};
use asmp_host::shown::shown;
use asmp_host::task::TaskId;
use asmp_host::watch::{Notice, Watch};
use asmp_host::{Linux, facts, irqbalance};
use asmp_shield::verify::Status;
use asmp_shield::{RUN_DIR, Shield};
use sd_notify::NotifyState;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

const HELP: &str = "\
asmpd - holds the partitions of this machine

Usage: asmpd [--sweep TIME]

It waits until a program changes what a partition rests on: an IRQ's affinity, a cgroup, a CPU that
goes offline or comes online, a module, a network link. Then it repairs the partition, as `asmp
repair` does, and prints what violated it and how long that took. What it cannot repair it names, as
`asmp status` does. It stays in the foreground and needs root. Ending it leaves the partitions as
they are. `asmp events` shows what it did.

Options:
      --sweep TIME  how often to look for changes that the kernel does not report (1s to 1h;
                    default 60s)
  -h, --help        print this
  -V, --version     print the version

Exit status: 0 after SIGTERM or SIGINT; 1 without root, if another asmpd runs, or if the kernel
refuses what it needs at the start; 2 for wrong usage; 3 if it could not go on.
";

/// Which exit status, and why.
type Failure = (u8, String);

fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let ended = match asked(&words) {
        Ok(Asked::Hold(pace)) => hold(pace),
        Ok(Asked::KeepChannels(dir)) => return keep_channels(&dir),
        Ok(Asked::Print(text)) => io::stdout()
            .write_all(text.as_bytes())
            .map_err(|error| (1, format!("cannot write: {error}"))),
        Err(failure) => Err(failure),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            say(format_args!("{why}"));
            ExitCode::from(code)
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Hold(Pace),
    KeepChannels(PathBuf),
    Print(String),
}

fn asked(words: &[String]) -> Result<Asked, Failure> {
    let mut pace = Pace::default();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match name {
            "-h" | "--help" => return Ok(Asked::Print(HELP.to_owned())),
            "-V" | "--version" => {
                return Ok(Asked::Print(format!("asmpd {}\n", env!("CARGO_PKG_VERSION"))));
            }
            // Of asmpd itself.
            aside::ARGUMENT if words.len() == 1 => {
                return Ok(Asked::KeepChannels(words.map(PathBuf::from).collect()));
            }
            "--sweep" => {
                let value = value.or_else(|| words.next());
                let value = value.ok_or_else(|| {
                    (2, "--sweep needs a time from 1s to 1h: --sweep 5s".to_owned())
                })?;
                pace.sweep_ns = sweep(value).map_err(|why| (2, why))?;
            }
            _ => return Err((2, format!("unknown argument {word:?}: see `asmpd --help`"))),
        }
    }
    Ok(Asked::Hold(pace))
}

fn sweep(text: &str) -> Result<u64, String> {
    let time = text.parse::<ExactDuration>();
    let time = time.map_err(|error| format!("--sweep: {}", error.of_seconds()))?;
    let ns = time.whole_ns().map_err(|error| format!("--sweep: {error}"))?;
    match (1_000_000_000..=3_600_000_000_000).contains(&ns) {
        true => Ok(ns),
        false => Err(format!("--sweep {text}: give a time from 1s to 1h")),
    }
}

/// The running kernel's notices, and signals.
struct Kernel<'a> {
    watch: Watch<'a>,
    wake: UnixStream,
    /// Real-time programs' channels, where they can be kept.
    _channels: Option<Aside>,
    board: Arc<Board>,
    /// The tree of files, where there can be one.
    files: Option<files::Files>,
    linux: &'a Linux,
    balancer: Balancer,
    over: Arc<AtomicBool>,
    /// How often systemd wants to hear of it.
    watchdog: Option<Duration>,
    is_ready: bool,
    /// The lock: dropped last. The next asmpd makes the directories of channels and files anew.
    place: Place,
}

impl<'a> Kernel<'a> {
    fn new(linux: &'a Linux, shield: Shield) -> Result<Self, Failure> {
        let failed = |error: &dyn Display| (1, format!("cannot watch the kernel: {error}"));
        let over = Arc::new(AtomicBool::new(false));
        let wake = woken_by_signals(&over).map_err(|error| failed(&error))?;
        let place = Place::take(Path::new(DIR)).map_err(|why| (1, why))?;
        let board = Arc::new(Board::new(monotonic_ns()).map_err(|error| failed(&error))?);
        // Before the first look: its directory is in one that is followed from then on.
        let files = files::Files::mount(Path::new(RUN_DIR), shield, Arc::clone(&board));
        let files = files.map_err(|why| say(format_args!("there is no tree of files: {why}")));
        let channels = Path::new(asmp_channel::keeper::DIR);
        let channels = Aside::start(channels, |what| say(format_args!("{what}")));
        let channels = channels.map_err(|why| say(format_args!("no channels are kept: {why}")));
        let watch = Watch::new(linux).map_err(|error| failed(&error))?;
        Ok(Self {
            watch,
            wake,
            board,
            files: files.ok(),
            _channels: channels.ok(),
            linux,
            balancer: Balancer::new(irqbalance::DIR.into(), Path::new(DIR).join("irqbalance")),
            over,
            watchdog: sd_notify::watchdog_enabled(),
            is_ready: false,
            place,
        })
    }
}

impl Source for Kernel<'_> {
    fn follow(&mut self, files: &BTreeSet<PathBuf>) -> Vec<(PathBuf, io::Error)> {
        self.watch.follow(files)
    }

    fn follow_tasks(&mut self, tasks: BTreeSet<i32>) {
        self.watch.follow_tasks(tasks);
    }

    fn note_users(&mut self, users: BTreeSet<u32>) {
        users.into_iter().for_each(|user| self.board.note_user(user));
    }

    fn follow_processes(&mut self, processes: &BTreeSet<TaskId>) {
        self.watch.follow_processes(processes);
    }

    fn follow_groups(&mut self, groups: BTreeSet<PathBuf>) {
        self.watch.follow_groups(groups);
    }

    fn wait(&mut self, most: Duration) -> Result<BTreeSet<Notice>, String> {
        let most = self.watchdog.map_or(most, |watchdog| most.min(watchdog / 2));
        let noticed = self.watch.wait(most, [self.wake.as_fd(), self.board.work()]);
        if self.watchdog.is_some() {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
        noticed.map_err(|error| error.to_string())
    }

    fn advise(&mut self, status: &Status) -> Option<String> {
        self.balancer.follow(self.linux, status, self.now_ns())
    }

    fn advise_again_ns(&self) -> Option<u64> {
        self.balancer.again_ns()
    }

    fn work(&mut self) -> Option<(u64, Work)> {
        self.board.take_work()
    }

    fn reply(&mut self, client: u64, reply: Result<Value, Refused>) {
        match (client & OF_FILES != 0, &self.files) {
            (false, _) => self.board.reply(client, done(reply)),
            (true, Some(files)) => files.reply(client, &reply.map(drop)),
            (true, None) => {}
        }
    }

    /// Ready after the first look. Without systemd it tells no service manager.
    fn looked(&mut self, hold: &Hold) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.show(hold);
            // Who asks hears what is wrong with it.
            let policy = Seen::new(Files::default(), |_| {});
            if let Err(error) = self.place.serve(Arc::clone(&self.board), policy) {
                say(format_args!("`asmp events` is not answered: {error}"));
            }
            say(format_args!("holds the partitions of this machine"));
        }
        let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&hold.summary())]);
    }

    fn tell(&mut self, record: &Record) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.board.tell(record, since.map_or(0, |since| since.as_micros() as u64));
        say(format_args!("{record}"));
    }

    fn show(&mut self, hold: &Hold) {
        self.board.show(hold, monotonic_ns());
        if let Some(files) = &self.files {
            files.changed();
        }
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn now_s(&self) -> u64 {
        unix_s()
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}

/// A line, if it is read. Any process may choose its name: none begins another line.
fn say(words: std::fmt::Arguments) {
    let _ = writeln!(io::stderr(), "asmpd: {}", shown(&words.to_string()));
}

/// Readable from the first of these signals on, and the flag is set.
fn woken_by_signals(over: &Arc<AtomicBool>) -> io::Result<UnixStream> {
    let (wake, written) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        // The flag first: who is woken sees it.
        signal_hook::flag::register(signal, Arc::clone(over))?;
        signal_hook::low_level::pipe::register(signal, written.try_clone()?)?;
    }
    Ok(wake)
}

/// Else a thread that panics would leave an asmpd that looks alive and answers no longer. systemd
/// starts it again, and partitions stay as they are.
fn end_at_panic() {
    let says = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |why| {
        says(why);
        std::process::abort();
    }));
}

/// What [`Aside`] starts.
fn keep_channels(dir: &Path) -> ExitCode {
    end_at_panic();
    let policy = Seen::new(Files::default(), |why| {
        say(format_args!("a channel was refused by the policy: {why}"))
    });
    aside::keep(dir, policy)
}

fn hold(pace: Pace) -> Result<(), Failure> {
    end_at_panic();
    let linux = Linux::new();
    if facts::user(&linux).unwrap_or(u32::MAX) != 0 {
        return Err((1, "needs root: start it with sudo, or as a service".to_owned()));
    }
    let shield = Shield::of_this_machine();
    let mut kernel = Kernel::new(&linux, shield.clone())?;
    if let Some(why) = kernel.watch.deaf() {
        say(format_args!("moves of tasks are found by a sweep, or not at all: {why}"));
    }
    let ended = serve(&shield, &mut kernel, pace);
    let hold = ended.map_err(|why| (3, format!("stopped: {why}")))?;
    let counts = hold.counts;
    say(format_args!(
        "ends; {} violations, {} repaired, in {} repairs; {} notices, {} looks; found by a \
         sweep: {}",
        counts.violations,
        counts.repaired,
        counts.repairs,
        counts.notices,
        counts.looks,
        counts.found_by_sweep
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    fn of(line: &str) -> Result<Asked, Failure> {
        asked(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_sweep_is_a_time_within_its_limits() {
        let sweep_ns = |line: &str| match of(line) {
            Ok(Asked::Hold(pace)) => pace.sweep_ns,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(sweep_ns(""), 60_000_000_000);
        assert_eq!(sweep_ns("--sweep 1s"), 1_000_000_000);
        assert_eq!(sweep_ns("--sweep=1h"), 3_600_000_000_000);
        for line in ["--sweep", "--sweep 10", "--sweep 999ms", "--sweep 61min", "--sweep x", "now"]
        {
            assert_eq!(of(line).unwrap_err().0, 2, "{line}");
        }
        assert!(of("--sweep 10").unwrap_err().1.ends_with("write 10s"));
        assert!(of("--sweep").unwrap_err().1.contains("--sweep 5s"));
    }

    #[test]
    fn help_and_version_are_printed_and_nothing_is_held() {
        let printed = |line: &str| match of(line) {
            Ok(Asked::Print(text)) => text,
            other => panic!("{line}: {other:?}"),
        };
        assert!(printed("--sweep 2s --help").contains("--sweep TIME"));
        assert_eq!(printed("-V"), format!("asmpd {}\n", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_whole_process() {
        const PANICS: &str = "ASMPD_TEST_PANICS";
        if std::env::var_os(PANICS).is_some() {
            end_at_panic();
            let _ = std::thread::spawn(|| panic!("as planned")).join();
            return;
        }
        let mut itself = Command::new(std::env::current_exe().unwrap());
        itself.args(["--exact", "tests::a_panic_of_any_thread_ends_the_whole_process"]);
        itself.env(PANICS, "1").stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(itself.status().unwrap().signal(), Some(signal_hook::consts::SIGABRT));
    }
}
