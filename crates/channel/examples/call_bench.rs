// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a call costs: `cargo run --release -p asmp-channel --example call_bench [rounds]`.
//!
//! Two processes exchange messages, on one CPU and on two, by bare futexes, by Call, and by Call
//! that lends its priority. All kinds take turns in one run, five times; the table shows the median
//! of the five. Then three clients of different priorities and one server share a CPU, served in
//! order of priority or slot after slot. Affinity of its own processes is all that is changed.
//!
//! One exchange with the server on that CPU, for perf to count:
//!
//! ```text
//! call_bench one bare|call|direct|inherit CPU SPINS ROUNDS
//! ```

use asmp_channel::call::{Client, Scheduling, Server, Shape};
use asmp_channel::{Mbuff, Pages, futex};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

const TURNS: usize = 5;
const NAME: &str = "bench";
/// Places in the mbuff: begin (1) and end (2), clients that are ready, and (a word) calls.
const GATE: usize = 8;
const READY: usize = 12;
const CALLS: usize = 2;
type Failure = Box<dyn std::error::Error>;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Bare,
    Call,
    Direct,
    Inherit,
}

const WAYS: [(Way, &str); 4] =
    [(Way::Bare, "bare"), (Way::Call, "call"), (Way::Direct, "direct"), (Way::Inherit, "inherit")];

fn shape(way: Way) -> Shape {
    let scheduling = if way == Way::Direct { Scheduling::Direct } else { Scheduling::Full };
    Shape { clients: 4, scheduling, inherit: way == Way::Inherit }
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", way, dir, cpu, spins] => {
            return serve(way_of(way)?, Path::new(dir), cpu.parse()?, spins.parse()?);
        }
        ["client", dir, cpu, priority] => {
            return client(Path::new(dir), cpu.parse()?, priority.parse()?);
        }
        ["one", way, cpu, spins, rounds] => {
            let [p50, p99, average] =
                exchange(way_of(way)?, way, cpu.parse()?, spins.parse()?, rounds.parse()?)?;
            println!("{way}: p50 {p50} p99 {p99} average {average} ns");
            return Ok(());
        }
        _ => (),
    }
    let rounds: usize = args.first().map_or(Ok(20_000), |rounds| rounds.parse())?;
    println!("{TURNS} turns of {rounds} calls; medians of the turns, in ns");
    println!(
        "{:28} {:>8} {:>10} {:>10} {:>10} {:>8}",
        "", "p50", "p99", "average", "calls/s", "of bare"
    );
    let cpus = std::thread::available_parallelism()?.get();
    for (title, other, spins) in
        [("one CPU", 0, 0), ("two CPUs, asleep", 1, 0), ("two CPUs, spinning", 1, 20_000)]
    {
        if other >= cpus {
            println!("{title}: skipped: one CPU");
            continue;
        }
        let mut turns: [Vec<[u64; 3]>; 4] = Default::default();
        for _ in 0..TURNS {
            for (at, (way, name)) in WAYS.iter().enumerate() {
                turns[at].push(exchange(*way, name, other, spins, rounds)?);
            }
        }
        for ((_, name), turn) in WAYS.iter().zip(&turns) {
            let [p50, p99, average] =
                [0, 1, 2].map(|at| median(turn.iter().map(|one| one[at]).collect()));
            // Of neighbours in time: per mille of the bare futexes' p50 in the same turn.
            let of_bare = turn
                .iter()
                .zip(&turns[0])
                .map(|(one, bare)| one[0] * 1000 / bare[0].max(1))
                .collect();
            let (rate, of_bare) = (1_000_000_000 / average.max(1), median(of_bare) as f64 / 1000.0);
            let label = format!("{title}: {name}");
            println!("{label:28} {p50:>8} {p99:>10} {average:>10} {rate:>10} {of_bare:>8.3}");
        }
    }
    let mut turns: [Vec<u64>; 2] = Default::default();
    for _ in 0..TURNS {
        for (at, way) in [(0, Way::Direct), (1, Way::Call)] {
            turns[at].push(crowd(way)?);
        }
    }
    let ratios =
        turns[0].iter().zip(&turns[1]).map(|(direct, full)| full * 1000 / direct).collect();
    let cost = 100.0 - median(ratios) as f64 / 10.0;
    let [direct, full] = turns.map(median);
    println!("three clients, one CPU: direct {direct} calls/s, full scheduling {full} calls/s");
    println!("full scheduling costs {cost:.1} % (median of neighbours in time)");
    Ok(())
}

fn way_of(name: &str) -> Result<Way, Failure> {
    let found = WAYS.iter().find(|(_, own)| *own == name);
    found.map(|(way, _)| *way).ok_or_else(|| format!("{name}: no such way").into())
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// The directory of one measurement; gone with the value.
struct Place(std::path::PathBuf);

impl Place {
    fn new() -> Result<Self, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("asmp-call-bench-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(args: &[&str]) -> Result<Helper, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    Ok(Helper(command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?))
}

/// p50, p99 and average of so many round trips.
fn exchange(
    way: Way,
    name: &str,
    other: usize,
    spins: u32,
    rounds: usize,
) -> Result<[u64; 3], Failure> {
    pin(0)?;
    let place = Place::new()?;
    let dir = place.0.as_path();
    let words = Mbuff::alloc(dir, "bare", 128, Pages::Normal)?;
    let path = dir.to_str().ok_or("a path in UTF-8")?;
    let _server = start(&["serve", name, path, &other.to_string(), &spins.to_string()])?;
    let mut times = Vec::with_capacity(rounds);
    if way == Way::Bare {
        let (ours, theirs) = bare(&words);
        // Until the other process is there: outside what is measured.
        while ours.load(Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        ours.store(0, Relaxed);
        for round in 0..rounds + rounds / 10 {
            let start = Instant::now();
            raise(theirs, spins);
            await_flag(ours, spins);
            if round >= rounds / 10 {
                times.push(start.elapsed().as_nanos() as u64);
            }
        }
    } else {
        let mut client = attach(dir)?;
        client.set_spins(spins);
        for round in 0..rounds + rounds / 10 {
            let start = Instant::now();
            let answer = client.call(&[round as u64; 8], None)?;
            if round >= rounds / 10 {
                times.push(start.elapsed().as_nanos() as u64);
            }
            assert_eq!(answer[0], round as u64 + 1);
        }
    }
    times.sort_unstable();
    let average = times.iter().sum::<u64>() / times.len() as u64;
    Ok([times[times.len() / 2], times[times.len() - times.len() / 100 - 1], average])
}

/// The flags of a pair of bare futexes, each on a cache line of its own.
fn bare(words: &Mbuff) -> (&AtomicU32, &AtomicU32) {
    (words.shared().futex_word(0), words.shared().futex_word(64))
}

/// Whoever spins needs no wake.
fn raise(flag: &AtomicU32, spins: u32) {
    flag.store(1, Release);
    if spins == 0 {
        futex::wake(flag, 1);
    }
}

fn await_flag(flag: &AtomicU32, spins: u32) {
    let mut spin = 0;
    while flag.load(Acquire) == 0 {
        match spin < spins {
            true => std::hint::spin_loop(),
            false if spins > 0 => std::thread::yield_now(),
            false => _ = futex::wait(flag, 0, None),
        }
        spin += 1;
    }
    flag.store(0, Relaxed);
}

fn serve(way: Way, dir: &Path, cpu: usize, spins: u32) -> Result<(), Failure> {
    pin(cpu)?;
    if way == Way::Bare {
        let words = Mbuff::attach(dir, "bare")?;
        let (theirs, ours) = bare(&words);
        theirs.store(1, Release);
        loop {
            await_flag(ours, spins);
            raise(theirs, spins);
        }
    }
    let mut server = Server::open(dir, NAME, shape(way))?;
    server.set_spins(spins);
    let mut received = server.receive(None)?;
    loop {
        let mut message = received.request.ok_or("nobody sets bits here")?.message;
        message[0] += 1;
        received = server.reply_wait(&message, None)?;
    }
}

fn attach(dir: &Path) -> Result<Client, Failure> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match Client::attach(dir, NAME, None) {
            Ok(mut client) => match client.call(&[0; 8], Some(Duration::from_secs(5))) {
                Ok(_) => return Ok(client),
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => (),
            },
            Err(error) if Instant::now() > end => return Err(error.into()),
            Err(_) => (),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn client(dir: &Path, cpu: usize, priority: u32) -> Result<(), Failure> {
    pin(cpu)?;
    let mut client = attach(dir)?;
    client.set_priority(priority);
    let words = Mbuff::attach(dir, "bare")?;
    let (gate, ready) = (words.shared().futex_word(GATE), words.shared().futex_word(READY));
    ready.fetch_add(1, AcqRel);
    while gate.load(Acquire) == 0 {
        futex::wait(gate, 0, None);
    }
    let mut calls = 0;
    while gate.load(Relaxed) == 1 {
        client.call(&[calls; 8], None)?;
        calls += 1;
    }
    words.words()[CALLS].fetch_add(calls, Relaxed);
    Ok(())
}

/// Calls a second of three clients together, half a second long.
fn crowd(way: Way) -> Result<u64, Failure> {
    pin(0)?;
    let place = Place::new()?;
    let path = place.0.to_str().ok_or("a path in UTF-8")?;
    let words = Mbuff::alloc(&place.0, "bare", 128, Pages::Normal)?;
    let name = if way == Way::Direct { "direct" } else { "call" };
    let _server = start(&["serve", name, path, "0", "0"])?;
    let mut clients = Vec::new();
    for priority in ["1", "2", "3"] {
        clients.push(start(&["client", path, "0", priority])?);
    }
    let (gate, ready) = (words.shared().futex_word(GATE), words.shared().futex_word(READY));
    // Until all are there: outside what is measured.
    while ready.load(Acquire) < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    gate.store(1, Release);
    futex::wake(gate, 3);
    // The window in which they call.
    std::thread::sleep(Duration::from_millis(500));
    gate.store(2, Release);
    let took = start.elapsed();
    for client in &mut clients {
        if !client.0.wait()?.success() {
            return Err("a client failed".into());
        }
    }
    Ok((words.words()[CALLS].load(Relaxed) as f64 / took.as_secs_f64()) as u64)
}

fn pin(cpu: usize) -> Result<(), Failure> {
    // SAFETY: all zeros is an empty set of CPUs.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours; a number beyond it is ignored.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set outlives the call.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}
