// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A line of production with quality control, on a shared partition: the application of section 3
//! of "An Asymmetric Model for Real-Time and Load Balancing on Linux SMP" (Marquet, Soula, Piel,
//! Dekeyser, 2004). README.md says what it shows.
//!
//! ```text
//! quality_line PARTITION [--seconds N] [--svg FILE]
//! ```
//!
//! Exit status: 0; 1 if a hard deadline was missed; 2 if the line cannot begin, for what the one
//! line on standard error says; 3 if a task failed.

mod figure;
mod report;
mod scene;
mod tasks;
mod trace;

use asmp_channel::{Fifo, Options, Overflow, TypedFifo, default_dir};
use asmp_host::sharing::Sharing;
use asmp_host::store::Store;
use asmp_host::{Linux, facts};
use asmp_shield::{RUN_DIR, membership};
use report::{Machine, Report};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use tasks::{CAMERAS, Failure, Found, fifo};

const USAGE: &str = "usage: quality_line PARTITION [--seconds N] [--svg FILE]";
/// Frames that wait for a filter at most, of one camera: the cameras themselves never wait.
const FRAMES: u64 = 256;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, words @ ..] = &words[..]
        && first == "--task"
    {
        return match tasks::run(words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error, 3),
        };
    }
    let request = match Request::parse(words).and_then(|request| Ok((request.machine()?, request)))
    {
        Ok(request) => request,
        Err(error) => return failed(&error, 2),
    };
    match produce(&request.1, &request.0) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => failed(&error, 3),
    }
}

fn failed(error: &Failure, code: u8) -> ExitCode {
    eprintln!("quality_line: {error}");
    code.into()
}

/// What the user asks for.
struct Request {
    partition: String,
    seconds: u64,
    svg: Option<PathBuf>,
}

impl Request {
    fn parse(words: Vec<String>) -> Result<Self, Failure> {
        let (mut partition, mut seconds, mut svg) = (None, 10, None);
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seconds" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    seconds = number
                        .filter(|seconds| (1..=600).contains(seconds))
                        .ok_or("--seconds needs a number, 1 to 600")?;
                }
                "--svg" => svg = Some(words.next().ok_or("--svg needs a file")?.into()),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}; {USAGE}").into());
                }
                _ if partition.is_none() => partition = Some(word),
                _ => return Err(format!("one partition, not also {word}; {USAGE}").into()),
            }
        }
        Ok(Self { partition: partition.ok_or(USAGE)?, seconds, svg })
    }

    /// The partition's CPUs and all others, if the line can run there. Changes nothing.
    fn machine(&self) -> Result<Machine, Failure> {
        let (linux, name) = (Linux::new(), &self.partition);
        let cpus = membership::find(&linux, &Store::at(RUN_DIR), name)?.cpus;
        if cpus.len() < CAMERAS {
            let why = format!("partition {name} has CPU {cpus}: the line needs {CAMERAS} CPUs");
            return Err(why.into());
        }
        let sharing = Sharing::read(&linux);
        if sharing.is_hidden {
            return Err("this user may not see which CPUs are shared: run as root".into());
        }
        if !cpus.is_subset(&sharing.guarded) {
            let why = format!("partition {name} is not shared; `asmp mode {name} shared` does it");
            return Err(why.into());
        }
        let online = facts::cpu_list(&linux, "online")?;
        Ok(Machine { cameras: cpus, real_time: sharing.guarded, online })
    }
}

/// A process with tasks of one kind.
struct Process {
    kind: &'static str,
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Process {
    fn start(kind: &'static str, words: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--task", kind])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { kind, child, says })
    }

    /// Waits until it has attached its FIFOs.
    fn is_ready(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        match line.as_str() {
            "ready\n" => Ok(()),
            _ => Err(format!("the {} did not begin", self.kind).into()),
        }
    }

    /// Lets it begin.
    fn go(&mut self) -> Result<(), Failure> {
        use std::io::Write;
        Ok(self.child.stdin.as_mut().ok_or("no input")?.write_all(b"go\n")?)
    }

    /// What it says at its end.
    fn ends(mut self) -> Result<String, Failure> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.says.read_to_string(&mut text)?;
        match self.child.wait()?.success() {
            true => Ok(text),
            false => Err(format!("the {} failed", self.kind).into()),
        }
    }
}

/// Runs the line, and prints what came of it. Returns the number of hard deadlines missed.
fn produce(request: &Request, machine: &Machine) -> Result<u64, Failure> {
    let line = std::process::id().to_string();
    // Kept until the end: they keep the names.
    let (dir, options) = (default_dir(), Options { capacity_bytes: 1 << 20, overflow: REFUSE });
    let mut frames: Vec<TypedFifo<scene::Frame>> = Vec::new();
    for camera in 0..CAMERAS {
        let name = fifo(&line, &format!("frames{camera}"));
        frames.push(TypedFifo::create(&dir, &name, FRAMES, REFUSE)?);
    }
    let _parts = Fifo::create(&dir, &fifo(&line, "parts"), &options)?;
    let _found: TypedFifo<Found> = TypedFifo::create(&dir, &fifo(&line, "found"), 4096, REFUSE)?;
    let database = std::env::temp_dir().join(fifo(&line, "database"));
    let path = database.to_string_lossy();

    let cpus = machine.cameras.iter().take(CAMERAS).map(|cpu| cpu.to_string());
    let cpus: Vec<String> = cpus.collect();
    let seconds = request.seconds.to_string();
    let mut words = vec![line.as_str(), request.partition.as_str(), seconds.as_str()];
    words.extend(cpus.iter().map(String::as_str));
    // The last ones first: each finds its reader there.
    let mut all = vec![
        Process::start("statistics", &[&line, &path])?,
        Process::start("defects", &[&line])?,
        Process::start("filters", &[&line])?,
        Process::start("cameras", &words)?,
    ];
    let begin = all.iter_mut().try_for_each(Process::is_ready);
    // Open, it needs no name.
    let found = std::fs::File::open(&database);
    let _ = std::fs::remove_file(&database);
    begin?;
    all.iter_mut().try_for_each(Process::go)?;

    let mut report = Report::default();
    // The cameras end first; then each ends when it has nothing left to do.
    while let Some(process) = all.pop() {
        report.read(&process.ends()?)?;
    }
    let mut database = String::new();
    found?.read_to_string(&mut database)?;
    let judged = report.judge(&database)?;
    print!("{}", report.text(machine, &judged));
    if let Some(file) = &request.svg {
        let svg = figure::svg(&report, machine);
        std::fs::write(file, svg).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    match judged.is_exact() {
        true => Ok(report.missed()),
        false => Err("the line does not find what was planted".into()),
    }
}

const REFUSE: Overflow = Overflow::Refuse;
