// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rt-FIFO beside what else there is, on two CPUs, side by side in one run: records of 64 bytes
//! one way, of two kinds; round trips; wake-ups. `channels [RUNS]` prints a table (medians over
//! RUNS alternating runs, 9 by default); `channels put N` puts N records and `channels get N` takes
//! them too, for a counter of instructions.

mod against;
mod ours;
mod record;
mod shared_heap;

use record::{Bytes, Numbers, Record};

use std::process::ExitCode;
use std::time::Instant;

const RECORDS: u64 = 500_000;
const ROUNDS: u64 = 50_000;
const SLEEPS: u64 = 5_000;
/// Records that fit into each ring (the one in C has 1024, a power of two).
const ROOM: usize = 910;

/// What rtrb's push and pop may take of our put and get, at least (0.76 and 0.89 when measured).
/// Words stored from the first to the last made a put and get half as long again.
const LEAST_OF_OURS: f64 = 0.6;

#[global_allocator]
static HEAP: shared_heap::Heap = shared_heap::Heap;

/// Runs `other` in a process of its own on CPU 1 and `here` on CPU 0; nanoseconds for each of
/// `count`.
pub fn two_processes(count: u64, here: impl FnOnce(), other: impl FnOnce()) -> f64 {
    // SAFETY: this program has one thread; the child runs on with a copy of everything.
    match unsafe { libc::fork() } {
        0 => {
            pin(1);
            other();
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        child => {
            pin(0);
            let start = Instant::now();
            here();
            let mut status = 0;
            // SAFETY: waits for our own child; the status is on our stack.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "the other process failed");
            start.elapsed().as_nanos() as f64 / count as f64
        }
    }
}

/// The same in two threads.
pub fn two_threads(count: u64, here: impl FnOnce(), other: impl FnOnce() + Send) -> f64 {
    std::thread::scope(|scope| {
        let start = Instant::now();
        let other = scope.spawn(|| {
            pin(1);
            other();
        });
        pin(0);
        here();
        other.join().expect("the other thread failed");
        start.elapsed().as_nanos() as f64 / count as f64
    })
}

pub fn pin(cpu: usize) {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the CPU is below the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: this thread's own affinity; the set is as long as is said.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Row {
    name: &'static str,
    measure: fn(u64) -> f64,
}

/// Alternating runs; the first row is what the others are compared with. Gives each row's median
/// as a multiple of that one's.
fn table(title: &str, count: u64, runs: usize, rows: &[Row]) -> Vec<f64> {
    let mut all = vec![Vec::new(); rows.len()];
    for _ in 0..runs {
        for (row, values) in rows.iter().zip(&mut all) {
            values.push((row.measure)(count));
        }
    }
    println!("{title}, {count} each, medians of {runs}");
    let first = median(&mut all[0].clone());
    let mut ratios = Vec::new();
    for (row, values) in rows.iter().zip(&mut all) {
        let middle = median(values);
        ratios.push(middle / first);
        let (low, high) = (values[0], values[values.len() - 1]);
        println!(
            "  {:38} {middle:9.1} ns  ({low:.1} to {high:.1})  {:6.2} x ours",
            row.name,
            middle / first
        );
    }
    ratios
}

/// Records of one kind, one way. Gives what rtrb's push and pop take of our put and get.
fn one_way<T: Record>(what: &str, runs: usize) -> f64 {
    let ratios = table(
        &format!("{what}, one way, polling"),
        RECORDS,
        runs,
        &[
            Row { name: "rt-FIFO, two processes", measure: ours::one_way::<T> },
            Row { name: "rtrb, push and pop, two processes", measure: against::rtrb_single::<T> },
            Row { name: "ring in C, two processes", measure: against::c_ring::<T> },
            Row {
                name: "rt-FIFO, 64 at once, two processes",
                measure: ours::one_way_together::<T>,
            },
            Row { name: "rtrb, chunks of 64, two processes", measure: against::rtrb_chunks::<T> },
            Row { name: "pipe, two processes", measure: against::pipe::<T> },
            Row { name: "Unix stream socket, two processes", measure: against::unix_stream::<T> },
            Row { name: "Unix packet socket, two processes", measure: against::unix_packets::<T> },
        ],
    );
    ratios[1]
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if let Some(what @ ("put" | "get")) = first.as_deref() {
        let count = arguments.next().and_then(|count| count.parse().ok()).expect("put N");
        ours::count_instructions(count, what == "get");
        return ExitCode::SUCCESS;
    }
    let runs = first.map_or(9, |runs| runs.parse().expect("a number of runs"));
    let of_ours = one_way::<Numbers>("records of eight u64", runs);
    one_way::<Bytes>("records of 64 times a byte", runs);
    table(
        "records of eight u64, beside a queue that drops the oldest",
        RECORDS,
        runs,
        &[
            Row { name: "rt-FIFO, two processes", measure: ours::one_way::<Numbers> },
            Row { name: "iceoryx2, publish-subscribe, two threads", measure: against::iceoryx2 },
        ],
    );
    table(
        "round trip of 8 bytes, both ends spin, two processes",
        ROUNDS,
        runs,
        &[
            Row { name: "two rt-FIFOs", measure: ours::round_trip },
            Row { name: "two flags in C", measure: against::two_flags },
        ],
    );
    table(
        "round trip of 8 bytes, both ends sleep, two processes",
        SLEEPS,
        runs,
        &[
            Row { name: "two rt-FIFOs, woken", measure: ours::sleeping_round_trip },
            Row { name: "two futexes in C", measure: against::two_futexes },
        ],
    );
    if of_ours < LEAST_OF_OURS {
        println!(
            "records of eight u64: rtrb takes {of_ours:.2} of our time, less than {LEAST_OF_OURS}"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
