// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tasks of the line. Each kind has a process of its own, because a class belongs to a process,
//! and because the real-time tasks' process keeps to system CPUs with all its other threads.
//!
//! The FIFOs between them have one reader and one writer and no lock, as section 2 of the paper
//! asks for. A kind of tasks ends when the one before it has ended and its FIFO is empty.

use crate::scene::{self, Defect, Frame};
use crate::trace::{Class, Trace};
use asmp_channel::{
    Fifo, FifoReader, FifoWriter, RingError, TypedFifo, TypedReader, TypedWriter, WaitError, Wake,
    default_dir,
};
use asmp_host::sharing;
use asmp_rt::thread::{Cpu, Me, RealTime, Task, gethrtime};
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub const CAMERAS: usize = 3;
/// Of a camera.
const PERIOD_NS: u64 = 40_000_000;
/// Ordinary tasks that compute without end.
const FITS: usize = 2;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// Camera, frame, x, y, kind.
pub type Found = [u32; 5];

/// The name of a FIFO of this line.
pub fn fifo(line: &str, what: &str) -> String {
    format!("line-{line}-{what}")
}

/// Runs one kind of tasks to their end. The words are its kind, the line's number, and what
/// that kind needs.
pub fn run(words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["cameras", line, partition, seconds, cpus @ ..] => cameras(line, partition, seconds, cpus),
        ["filters", line] => filters(line),
        ["defects", line] => defects(line),
        ["statistics", line, database] => statistics(line, database),
        _ => Err("--task is for this program alone".into()),
    }
}

/// Tells that all FIFOs are attached, and waits until those of all others are.
fn ready() -> Result<(), Failure> {
    say("ready\n")?;
    if std::io::stdin().lock().read_line(&mut String::new())? == 0 {
        // The main process has said why.
        std::process::exit(3);
    }
    Ok(())
}

/// Tells the main process. Not while a task works: it may wait.
fn say(text: &str) -> Result<(), Failure> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// How much tasks did, and where.
fn say_work(class: &str, done: &[(u64, Trace)]) -> Result<(), Failure> {
    let lines = done.iter().map(|(count, trace)| format!("work {class} {count}\n{trace}"));
    say(&lines.collect::<String>())
}

/// A thread of that name.
fn spawn<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> std::io::Result<JoinHandle<R>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

fn joined<R>(result: thread::Result<Result<R, Failure>>) -> Result<R, Failure> {
    result.map_err(|_| "a task panicked")?
}

// --- RT0: the cameras ---

/// What one camera did.
struct Shots {
    /// Jobs that ended after the next release.
    late: u64,
    /// Frames that found no room in the FIFO.
    lost: u64,
    latest_ns: u64,
    /// The numbers of the frames that were put in.
    frames: Vec<u32>,
    trace: Trace,
}

fn cameras(line: &str, partition: &str, seconds: &str, cpus: &[&str]) -> Result<(), Failure> {
    let cpus: Vec<Cpu> = cpus.iter().map(|cpu| cpu.parse()).collect::<Result<_, _>>()?;
    let releases = seconds.parse::<u64>()? * 1_000_000_000 / PERIOD_NS;
    let mut writers: Vec<TypedWriter<Frame>> = Vec::new();
    for camera in 0..cpus.len() {
        let frames = fifo(line, &format!("frames{camera}"));
        // The one system call of a put, to wake the filter, is made on a CPU of its own.
        writers.push(TypedFifo::attach(&default_dir(), &frames)?.into_writer(Wake::IfAsleep)?);
    }
    ready()?;
    // All are set up before the first one begins.
    let (all, began_ns) = (Arc::new(Barrier::new(cpus.len())), Arc::new(OnceLock::new()));
    let mut tasks: Vec<Task<Result<Shots, Failure>>> = Vec::new();
    for ((camera, cpu), writer) in (0..).zip(&cpus).zip(writers) {
        let name = format!("camera{}", camera + 1);
        let (all, began_ns) = (Arc::clone(&all), Arc::clone(&began_ns));
        let trace = Trace::new(Class::Camera, &name, releases as usize);
        let work = move |me: &Me| {
            all.wait();
            acquire(me, camera, (*began_ns.get_or_init(gethrtime), releases), writer, trace)
        };
        tasks.push(RealTime::fifo(80).cpu(*cpu).partition(partition).start(&name, work)?);
    }
    let done: Result<Vec<_>, _> = tasks.into_iter().map(|task| joined(task.join())).collect();
    let mut report = String::new();
    for (shots, cpu) in done?.into_iter().zip(cpus) {
        let Shots { late, lost, latest_ns, frames, trace } = shots;
        let (activations, moves) = (frames.len() as u64 + lost, trace.moves(cpu));
        // A release without a job is one that was missed, too.
        let missed = late + releases.saturating_sub(activations);
        let frames = frames.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        report += &format!("camera {cpu} {activations} {missed} {moves} {latest_ns} {lost}\n");
        report += &format!("frames {frames}\n{trace}");
    }
    say(&report)
}

/// The real-time task: so many releases from that instant on, each the deadline of the one before.
/// Nothing in its loop allocates, locks or waits for others.
fn acquire(
    me: &Me,
    camera: u32,
    (began_ns, count): (u64, u64),
    mut writer: TypedWriter<Frame>,
    trace: Trace,
) -> Result<Shots, Failure> {
    let frames = Vec::with_capacity(count as usize);
    let mut shots = Shots { late: 0, lost: 0, latest_ns: 0, frames, trace };
    let mut frame = [0; size_of::<Frame>()];
    // One after the other, not all at once.
    let phase_ns = PERIOD_NS * u64::from(camera) / CAMERAS as u64;
    let mut releases =
        me.releases(Duration::from_nanos(PERIOD_NS), Duration::from_nanos(phase_ns))?;
    while let Some(tick) = releases.wait() {
        let number = tick.scheduled_ns.saturating_sub(began_ns) / PERIOD_NS;
        if number >= count {
            break;
        }
        shots.trace.begin();
        scene::shoot(camera, number as u32, &mut frame);
        match writer.put(&frame) {
            Ok(()) => shots.frames.push(number as u32),
            Err(RingError::Full) => shots.lost += 1,
            Err(error) => return Err(error.into()),
        }
        let took_ns = shots.trace.end() - tick.scheduled_ns;
        shots.latest_ns = shots.latest_ns.max(took_ns);
        shots.late += u64::from(took_ns > PERIOD_NS);
    }
    Ok(shots)
}

// --- RT1: the filters, a fixed number ---

/// All threads of this process, also those to come, go before those of a lower class.
fn become_rt1(priority: u8) -> Result<(), Failure> {
    // `asmp class rt1:N -- COMMAND` does the same.
    Ok(sharing::set_class(std::process::id() as i32, sharing::Class::Rt1 { priority })?)
}

fn filters(line: &str) -> Result<(), Failure> {
    become_rt1(20)?;
    let parts = Fifo::attach(&default_dir(), &fifo(line, "parts"))?;
    let parts = Arc::new(Mutex::new(parts.into_writer(Wake::IfAsleep)?));
    let mut readers: Vec<TypedReader<Frame>> = Vec::new();
    for camera in 0..CAMERAS {
        let frames = fifo(line, &format!("frames{camera}"));
        readers.push(TypedFifo::attach(&default_dir(), &frames)?.into_reader(Wake::Never)?);
    }
    ready()?;
    let mut tasks = Vec::new();
    for (camera, reader) in (1..).zip(readers) {
        let (name, parts) = (format!("filter{camera}"), Arc::clone(&parts));
        let trace = Trace::new(Class::Filter, &name, 0);
        tasks.push(spawn(&name, move || filter(reader, &parts, trace))?);
    }
    drop(parts);
    let done: Result<Vec<_>, _> = tasks.into_iter().map(|task| joined(task.join())).collect();
    say_work("RT1", &done?)
}

/// Looks for suspicious parts of a camera's frames. Returns how many frames it saw.
fn filter(
    mut reader: TypedReader<Frame>,
    parts: &Mutex<FifoWriter>,
    mut trace: Trace,
) -> Result<(u64, Trace), Failure> {
    let mut frames = 0;
    loop {
        while let Some(frame) = reader.get()? {
            trace.begin();
            let suspicious = scene::suspicious(&frame, || trace.mark());
            frames += 1;
            if suspicious.is_empty() {
                continue;
            }
            let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            while let Err(error) = parts.put(&suspicious) {
                match error {
                    RingError::Full => parts.wait(suspicious.len(), None)?,
                    error => return Err(error.into()),
                }
            }
        }
        match reader.wait(None) {
            Err(WaitError::PeerGone) => return Ok((frames, trace)),
            waited => waited?,
        }
    }
}

// --- RT2: the defect tasks, as many as the product needs ---

/// The defect tasks of the product that is on the line.
#[derive(Default)]
struct Team {
    run: Option<u32>,
    tasks: Vec<Sender<Vec<u8>>>,
    handles: Vec<JoinHandle<Result<(u64, Trace), Failure>>>,
}

fn defects(line: &str) -> Result<(), Failure> {
    become_rt1(10)?;
    let parts = Fifo::attach(&default_dir(), &fifo(line, "parts"))?;
    let mut parts: FifoReader = parts.into_reader(Wake::IfAsleep)?;
    let found: TypedFifo<Found> = TypedFifo::attach(&default_dir(), &fifo(line, "found"))?;
    let found = Arc::new(Mutex::new(found.into_writer(Wake::IfAsleep)?));
    ready()?;
    let mut team = Team::default();
    let (mut bytes, mut turn) = (vec![0; scene::MOST_PARTS], 0);
    loop {
        match parts.get(&mut bytes)? {
            0 => match parts.wait(None) {
                Err(WaitError::PeerGone) => break,
                waited => waited?,
            },
            length => {
                team.prepare(scene::run(scene::header(&bytes).1), &found)?;
                turn += 1;
                let task = &team.tasks[turn % team.tasks.len()];
                task.send(bytes[..length].to_vec()).map_err(|_| "a defect task ended")?;
            }
        }
    }
    team.tasks.clear();
    let done: Result<Vec<_>, _> =
        team.handles.into_iter().map(|task| joined(task.join())).collect();
    drop(found);
    say_work("RT2", &done?)
}

impl Team {
    /// Starts or ends tasks when the first frame of a new product comes. A task that is ended does
    /// what it has got before.
    fn prepare(&mut self, run: u32, found: &Arc<Mutex<TypedWriter<Found>>>) -> Result<(), Failure> {
        if self.run.is_some_and(|now| run <= now) {
            return Ok(());
        }
        self.run = Some(run);
        let tasks = scene::product(run).tasks;
        self.tasks.truncate(tasks);
        while self.tasks.len() < tasks {
            let (sender, jobs) = channel();
            let name = format!("defect{}", self.tasks.len() + 1);
            let (found, trace) = (Arc::clone(found), Trace::new(Class::Defect, &name, 0));
            self.handles.push(spawn(&name, move || examine(&jobs, &found, trace))?);
            self.tasks.push(sender);
        }
        say(&format!("team {} {run} {tasks}\n", gethrtime()))
    }
}

/// Says of each suspicious part what it is.
fn examine(
    jobs: &Receiver<Vec<u8>>,
    found: &Mutex<TypedWriter<Found>>,
    mut trace: Trace,
) -> Result<(u64, Trace), Failure> {
    let mut frames = 0;
    for parts in jobs {
        trace.begin();
        let defects = scene::identify(&parts, || trace.mark());
        frames += 1;
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        for Defect { camera, frame, x, y, kind } in defects {
            while let Err(error) = found.put(&[camera, frame, x, y, kind]) {
                match error {
                    RingError::Full => found.wait(1, None)?,
                    error => return Err(error.into()),
                }
            }
        }
    }
    Ok((frames, trace))
}

// --- Linux: a database, and computations about what is in it ---

fn statistics(line: &str, database: &str) -> Result<(), Failure> {
    let found: TypedFifo<Found> = TypedFifo::attach(&default_dir(), &fifo(line, "found"))?;
    let found = found.into_reader(Wake::IfAsleep)?;
    let database = File::options().write(true).create_new(true).open(database)?;
    ready()?;
    let (ended, sum) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut fits = Vec::new();
    for number in 1..=FITS {
        let (name, ended, sum) = (format!("stats{number}"), Arc::clone(&ended), Arc::clone(&sum));
        let trace = Trace::new(Class::Linux, &name, 0);
        fits.push(spawn(&name, move || fit(&ended, &sum, trace))?);
    }
    let recorded = record(found, BufWriter::new(database), &sum);
    ended.store(true, Relaxed);
    let done: Result<Vec<_>, Failure> =
        fits.into_iter().map(|task| task.join().map_err(|_| "a task panicked".into())).collect();
    say_work("Linux", &done?)?;
    say(&recorded?.to_string())
}

/// Writes a line for each defect that was found.
fn record(
    mut found: TypedReader<Found>,
    mut database: impl Write,
    sum: &AtomicU64,
) -> Result<Trace, Failure> {
    let mut trace = Trace::new(Class::Linux, "record", 0);
    loop {
        trace.begin();
        while let Some(defect) = found.get()? {
            let [camera, frame, x, y, kind] = defect;
            writeln!(database, "{camera} {frame} {x} {y} {kind}")?;
            sum.fetch_add(u64::from(x), Relaxed);
            trace.mark();
        }
        database.flush()?;
        trace.mark();
        match found.wait(None) {
            Err(WaitError::PeerGone) => return Ok(trace),
            waited => waited?,
        }
    }
}

/// Fits a line to what was found, by many small steps. What it comes to is of no use here.
fn fit(ended: &AtomicBool, sum: &AtomicU64, mut trace: Trace) -> (u64, Trace) {
    let mut count = 0;
    trace.begin();
    while !ended.load(Relaxed) {
        let goal = sum.load(Relaxed) as f64;
        let (mut slope, mut steps) = (0.0, 0);
        while steps < 10_000 {
            for _ in 0..500 {
                slope += black_box((goal - slope) * 0.001);
            }
            steps += 500;
            trace.mark();
        }
        black_box(slope);
        count += 1;
    }
    (count, trace)
}
