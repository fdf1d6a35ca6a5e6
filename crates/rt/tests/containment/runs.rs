// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runs: one peer after the other, a fault each, and what the CPU did meanwhile.

use crate::exchange::{Failure, Ledger, Word, dir, order};
use crate::judge::{self, Lost, Measured, Window};
use asmp_host::tracefs::{Event, EventKind, EventStream};
use asmp_host::{Cpu, Linux};
use asmp_rt::thread::gethrtime;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ROOT: &str = "/sys/fs/cgroup";
/// The peers' cgroup, and what it may have.
const GROUP: &str = "/sys/fs/cgroup/containment";
const MEMORY: &str = "32M";
const TASKS: &str = "32";
/// How long a fault lasts once it has come, at least: this time and so many jobs of the thread,
/// more than the FIFO of `--forgetful` holds.
const FAULT: Duration = Duration::from_millis(200);
const FAULT_JOBS: u64 = 6;
/// After so long something has gone wrong that is no fault of the kinds below.
const PATIENCE: Duration = Duration::from_secs(180);

/// What happens in a run; the first two are the control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nothing,
    Busy,
    Killed,
    Stopped,
    Scribbles,
    TakesMemory,
    Forks,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Nothing,
        Self::Busy,
        Self::Killed,
        Self::Stopped,
        Self::Scribbles,
        Self::TakesMemory,
        Self::Forks,
    ];

    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Nothing | Self::Busy)
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "control: no fault",
            Self::Busy => "control: busy programs",
            Self::Killed => "peer killed",
            Self::Stopped => "peer stopped",
            Self::Scribbles => "peer scribbles",
            Self::TakesMemory => "peer takes memory",
            Self::Forks => "peer forks",
        }
    }
}

/// What a run on the command line begins with.
pub const OPTIONS: [&str; 7] = [
    "--runs",
    "--period-ms",
    "--cpu",
    "--partition",
    "--unshielded",
    "--wait-on-peer",
    "--forgetful",
];

struct Options {
    runs: u64,
    period_ms: u64,
    cpu: Cpu,
    partition: String,
    mode: String,
}

fn options(words: &[String]) -> Result<Options, Failure> {
    let (mut runs, mut period_ms, mut cpu) = (5, 20, 3);
    let (mut partition, mut mode) = ("containment".to_owned(), "contained".to_owned());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--runs" => runs = value()?.parse()?,
            "--period-ms" => period_ms = value()?.parse()?,
            "--cpu" => cpu = value()?.parse()?,
            "--partition" => partition = value()?.clone(),
            "--unshielded" | "--wait-on-peer" | "--forgetful" => mode = word[2..].to_owned(),
            _ => return Err(format!("unknown option {word}: use {}", OPTIONS.join(", ")).into()),
        }
    }
    Ok(Options { runs, period_ms, cpu, partition, mode })
}

/// Runs of each kind in turn. `false`: a fault has come through.
pub fn main(words: &[String]) -> Result<bool, Failure> {
    let options = options(words)?;
    let _ = fs::remove_dir_all(dir());
    let _group = Group::make()?;
    let linux = Linux::new();
    let mut controller = Controller::start(&options)?;
    let ledger = Ledger::open()?;
    let mut recorder = EventStream::events(&linux, options.cpu)?;
    let mut measured = Measured { thread: controller.thread, ..Measured::default() };
    let mut generation = 0;
    let mut scribbled = false;
    for turn in 0..options.runs {
        if turn > 0 && turn % 20 == 0 {
            eprintln!("{turn} of {} runs of each kind", options.runs);
        }
        for kind in Kind::ALL {
            generation += 1;
            let window = one(&options, &ledger, generation, kind, scribbled)?;
            scribbled = kind == Kind::Scribbles;
            measured.windows.push(window);
            measured.records.extend(recorder.take()?.into_iter().filter(of_interest));
        }
    }
    measured.log = controller.stop()?;
    measured.records.extend(recorder.take()?.into_iter().filter(of_interest));
    drop(recorder);
    let lost = Lost {
        reports: ledger.get(Word::LostReports),
        wrong: ledger.get(Word::Wrong),
        unnoted: ledger.get(Word::Unnoted),
    };
    let verdict = judge::judge(&measured, lost, options.period_ms * 1_000_000);
    println!("{verdict}");
    drop(ledger);
    let _ = fs::remove_dir_all(dir());
    Ok(verdict.is_contained())
}

/// Of the timers that expired only the interrupt counts.
fn of_interest(record: &Event) -> bool {
    !matches!(record.kind, EventKind::TimerExpired(_))
}

/// One run: a peer comes, exchanges, the fault, its end.
fn one(
    options: &Options,
    ledger: &Ledger,
    generation: u64,
    kind: Kind,
    after_scribble: bool,
) -> Result<Window, Failure> {
    for (word, value) in [
        (Word::Order, order::NOTHING),
        (Word::AfterScribble, after_scribble.into()),
        (Word::Put, 0),
        (Word::Confirmed, 0),
    ] {
        ledger.set(word, value);
    }
    let own = std::env::current_exe()?;
    let where_to =
        if options.mode == "unshielded" { options.cpu.to_string() } else { "any".to_owned() };
    let mut peer = Peer(
        Command::new(&own).args(["--peer", &generation.to_string(), GROUP, &where_to]).spawn()?,
    );
    until(&format!("run {generation}: the peer is in exchange"), || {
        Ok(ledger.get(Word::Ready) == generation || peer.has_ended()?)
    })?;
    if peer.has_ended()? {
        return Err(format!("run {generation}: its peer ended before the fault").into());
    }
    // The fault comes at any place of a period and of the peer's turn.
    sleep(Duration::from_micros(40_000 + gethrtime() / 1000 % 20_000));

    let begin_ns = gethrtime();
    let (scribbles, kills, refusals) =
        (ledger.get(Word::Scribbled), event("memory", "oom_kill")?, event("pids", "max")?);
    let jobs = ledger.get(Word::Jobs);
    let mut busy = Vec::new();
    match kind {
        Kind::Nothing => {}
        Kind::Busy => {
            for _ in 0..4 {
                busy.push(Peer(Command::new(&own).arg("--spin").spawn()?));
            }
        }
        Kind::Killed => peer.0.kill()?,
        Kind::Stopped => stop(&peer.0),
        Kind::Scribbles => ledger.set(Word::Order, order::SCRIBBLE),
        Kind::TakesMemory => ledger.set(Word::Order, order::TAKE_MEMORY),
        Kind::Forks => ledger.set(Word::Order, order::FORK),
    }
    // It has come when it shows.
    until(&format!("run {generation}: {}", kind.words()), || {
        Ok(match kind {
            Kind::Scribbles => ledger.get(Word::Scribbled) > scribbles,
            Kind::TakesMemory => event("memory", "oom_kill")? > kills,
            Kind::Forks => event("pids", "max")? > refusals,
            _ => true,
        })
    })?;
    sleep(FAULT);
    until(&format!("run {generation}: {FAULT_JOBS} jobs during it"), || {
        Ok(ledger.get(Word::Jobs) >= jobs + FAULT_JOBS)
    })?;
    fs::write(format!("{GROUP}/cgroup.kill"), "1")?;
    drop((peer, busy));
    until(&format!("run {generation}: all peers have ended"), || {
        Ok(fs::read_to_string(format!("{GROUP}/cgroup.procs"))?.is_empty())
    })?;
    let end_ns = gethrtime();
    let (put, confirmed) = (ledger.get(Word::Put), ledger.get(Word::Confirmed));
    Ok(Window { kind, generation, begin_ns, end_ns, put, confirmed, after_scribble })
}

fn stop(child: &Child) {
    // SAFETY: kill takes two numbers; the child has not been waited for, so its number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
}

/// A counter of the peers' cgroup.
fn event(controller: &str, name: &str) -> Result<u64, Failure> {
    let text = fs::read_to_string(format!("{GROUP}/{controller}.events"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.ok_or_else(|| format!("no {name} in {controller}.events"))?.parse()?)
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > end {
            return Err(format!("{} s and still not: {what}", PATIENCE.as_secs()).into());
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A process that is killed and waited for when dropped.
struct Peer(Child);

impl Peer {
    fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The real-time side.
struct Controller {
    child: Peer,
    out: BufReader<ChildStdout>,
    thread: i32,
}

impl Controller {
    fn start(options: &Options) -> Result<Self, Failure> {
        let Options { period_ms, cpu, partition, mode, .. } = options;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--controller", &period_ms.to_string(), &cpu.to_string(), partition, mode])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = BufReader::new(child.stdout.take().ok_or("no output")?);
        let child = Peer(child);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let thread = line.trim().strip_prefix("ready ").ok_or("no controller")?.parse()?;
        Ok(Self { child, out, thread })
    }

    /// Ends it and returns its log.
    fn stop(&mut self) -> Result<String, Failure> {
        drop(self.child.0.stdin.take());
        let mut log = String::new();
        self.out.read_to_string(&mut log)?;
        match self.child.0.wait()?.success() {
            true => Ok(log),
            false => Err("the controller failed".into()),
        }
    }
}

/// The peers' cgroup, removed when dropped, and the controllers that were switched on for it.
struct Group {
    switched_on: Vec<&'static str>,
}

impl Group {
    fn make() -> Result<Self, Failure> {
        let file = Path::new(ROOT).join("cgroup.subtree_control");
        let on = fs::read_to_string(&file)?;
        let missing = ["memory", "pids"]
            .into_iter()
            .filter(|name| !on.split_whitespace().any(|word| word == *name));
        let group = Self { switched_on: missing.collect() };
        for name in &group.switched_on {
            fs::write(&file, format!("+{name}"))?;
        }
        fs::create_dir_all(GROUP)?;
        fs::write(format!("{GROUP}/memory.max"), MEMORY)?;
        // Only where there is swap at all.
        let _ = fs::write(format!("{GROUP}/memory.swap.max"), "0");
        fs::write(format!("{GROUP}/pids.max"), TASKS)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(format!("{GROUP}/cgroup.kill"), "1");
        // Those who were killed are in it until they have ended.
        let _ = until("the peers' group is empty", || Ok(fs::remove_dir(GROUP).is_ok()));
        for name in &self.switched_on {
            let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), format!("-{name}"));
        }
    }
}
