// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The probe: a thread that does one thing at known instants and records when it did it.
//!
//! It allocates, locks and prints nothing once it runs. A sample goes into a ring (crate rtrb) that
//! was allocated before; where the ring is full, it is counted as lost. `collect` empties the ring
//! on another CPU. The thread waits at a gate until it has its CPU, group and policy.

use crate::histogram::missed_by;
use crate::load::{make_dirty, use_small_pages};
use asmp_host::clock::{self, monotonic_ns, sleep_until, thread_id};
use asmp_host::{Cpu, tracefs::timerlat};
use rtrb::{Consumer, Producer, RingBuffer};
use std::hint::black_box;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread::JoinHandle;

/// Room for a second of samples at 65 kHz.
const RING: usize = 1 << 16;

/// What the probe does at each instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Sleeps until each next instant of a period.
    Periodic { period_ns: u64 },
    /// L4RTL's worst case: makes every line of `bytes` dirty (twice the second-level cache, and
    /// more pages than the TLB holds), then sleeps for 2 to 30 ms at random.
    Flood { bytes: usize, seed: u64 },
    /// Waits for each period of the kernel's timerlat tracer; the tracer takes the times.
    Timerlat { waiter: PathBuf },
    /// Computes for `rounds` rounds of an integer loop that touches no memory.
    Compute { rounds: u64 },
}

impl Work {
    pub fn timerlat(cpu: Cpu) -> Self {
        Self::Timerlat { waiter: timerlat::waiter(cpu) }
    }
}

/// What the thread itself knows of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Raw {
    pub due_ns: u64,
    pub end_ns: u64,
}

/// State shared with the thread.
#[derive(Default)]
struct Shared {
    /// Stored (Release) by `start`, read (Acquire) by the thread at its gate: what was set up
    /// before is seen.
    open: AtomicBool,
    /// Only a hint to end soon: Relaxed, nothing else hangs on it.
    stop: AtomicBool,
    /// Counters for the reader's eyes: Relaxed; exact once the thread was joined.
    lost: AtomicU64,
    overruns: AtomicU64,
}

pub struct Probe {
    pub tid: i32,
    pub ring: Consumer<Raw>,
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
}

/// How a probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    /// Samples that found the ring full.
    pub lost: u64,
    /// Instants that passed while the probe was late for a sample that counts.
    pub overruns: u64,
}

impl Probe {
    /// A thread at its gate; it will take `samples` samples and as many `warm_up` ones before, not
    /// recorded. `keep_tick`: the tick of its CPU goes on while it runs, also where it could stop.
    pub fn spawn(work: Work, samples: u64, warm_up: u64, keep_tick: bool) -> io::Result<Self> {
        let (ring_in, ring) = RingBuffer::new(RING);
        let shared = Arc::new(Shared::default());
        let (tell, told) = std::sync::mpsc::channel();
        let in_thread = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("asmp-probe".to_owned()).spawn(move || {
                let _ = tell.send(thread_id());
                while !in_thread.open.load(Acquire) {
                    std::thread::park();
                }
                let _timer = keep_tick.then(clock::CpuTimer::arm).transpose()?;
                run(work, samples, warm_up, Recording { ring: ring_in, shared: &in_thread })
            })?;
        let tid = told.recv().map_err(io::Error::other)?;
        Ok(Self { tid, ring, shared, thread })
    }

    pub fn start(&self) {
        // Release pairs with the Acquire at the gate.
        self.shared.open.store(true, Release);
        self.thread.thread().unpark();
    }

    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread; the ring keeps what is still in it.
    pub fn join(self) -> io::Result<(Consumer<Raw>, Ended)> {
        let Self { ring, shared, thread, .. } = self;
        thread.join().map_err(|_| io::Error::other("the probe panicked"))??;
        let ended =
            Ended { lost: shared.lost.load(Relaxed), overruns: shared.overruns.load(Relaxed) };
        Ok((ring, ended))
    }
}

/// The probe's end of things.
struct Recording<'a> {
    ring: Producer<Raw>,
    shared: &'a Shared,
}

impl Recording<'_> {
    #[inline]
    fn put(&mut self, raw: Raw) {
        if self.ring.push(raw).is_err() {
            self.shared.lost.fetch_add(1, Relaxed);
        }
    }

    #[inline]
    fn ends(&self) -> bool {
        self.shared.stop.load(Relaxed)
    }
}

fn run(work: Work, samples: u64, warm_up: u64, recording: Recording) -> io::Result<()> {
    touch_stack();
    match work {
        Work::Periodic { period_ns } => {
            let first_ns = monotonic_ns() + period_ns;
            periodic(first_ns, period_ns, samples, warm_up, recording, wake_at);
        }
        Work::Flood { bytes, seed } => {
            use_small_pages()?;
            flood(bytes, seed, samples, warm_up, recording);
        }
        Work::Compute { rounds } => compute(rounds, samples, warm_up, recording),
        // The tracer tells of a period when the next one is asked for.
        Work::Timerlat { waiter } => {
            let turns = samples.saturating_add(warm_up).saturating_add(1);
            return wait_for_timerlat(&waiter, turns, recording);
        }
    }
    Ok(())
}

/// `wake_at`: sleeps until that instant and tells the one at which it woke. An instant that comes
/// just as the probe wakes for an earlier one is not missed: it is late by nothing, and sampled.
fn periodic(
    first_ns: u64,
    period_ns: u64,
    samples: u64,
    warm_up: u64,
    mut recording: Recording,
    mut wake_at: impl FnMut(u64) -> u64,
) {
    let mut due_ns = first_ns;
    for turn in 0..samples.saturating_add(warm_up) {
        let end_ns = wake_at(due_ns);
        let missed = missed_by(end_ns - due_ns, period_ns);
        if turn >= warm_up {
            recording.put(Raw { due_ns, end_ns });
            recording.shared.overruns.fetch_add(missed, Relaxed);
        }
        due_ns += (1 + missed) * period_ns;
        if recording.ends() {
            return;
        }
    }
}

fn flood(bytes: usize, seed: u64, samples: u64, warm_up: u64, mut recording: Recording) {
    let mut lines = vec![0u8; bytes];
    let mut random = seed | 1;
    for turn in 0..samples.saturating_add(warm_up) {
        make_dirty(&mut lines);
        random = xorshift(random);
        let due_ns = monotonic_ns() + 2_000_000 + random % 28_000_000;
        let end_ns = wake_at(due_ns);
        if turn >= warm_up {
            recording.put(Raw { due_ns, end_ns });
        }
        if recording.ends() {
            return;
        }
    }
}

/// Sleeps until that instant, and returns the one at which it woke. A signal ends no sleep: the
/// sample would be 0, before its instant had come.
fn wake_at(due_ns: u64) -> u64 {
    loop {
        sleep_until(due_ns);
        let now_ns = monotonic_ns();
        if now_ns >= due_ns {
            return now_ns;
        }
    }
}

fn compute(rounds: u64, samples: u64, warm_up: u64, mut recording: Recording) {
    for turn in 0..samples.saturating_add(warm_up) {
        let due_ns = monotonic_ns();
        work_loop(rounds);
        let end_ns = monotonic_ns();
        if turn >= warm_up {
            recording.put(Raw { due_ns, end_ns });
        }
        if recording.ends() {
            return;
        }
    }
}

fn wait_for_timerlat(waiter: &std::path::Path, turns: u64, recording: Recording) -> io::Result<()> {
    let mut file = std::fs::File::open(waiter)?;
    let mut page = [0; 1024];
    for _ in 0..turns {
        // Returns once a period, and tells the tracer that user space was reached when it is called
        // again.
        let _ = file.read(&mut page)?;
        if recording.ends() {
            break;
        }
    }
    Ok(())
}

/// Integer arithmetic on registers: no memory, no division, no system call.
#[inline(never)]
fn work_loop(rounds: u64) {
    let mut value = black_box(0x9e37_79b9_7f4a_7c15);
    for _ in 0..rounds {
        value = xorshift(value);
    }
    black_box(value);
}

const fn xorshift(mut value: u64) -> u64 {
    value ^= value << 13;
    value ^= value >> 7;
    value ^ (value << 17)
}

/// How many rounds take about `work_ns` here: the fastest of a few tries counts.
pub fn calibrate(work_ns: u64) -> u64 {
    let mut rounds = 1000;
    loop {
        let fastest = (0..3)
            .map(|_| {
                let start = monotonic_ns();
                work_loop(rounds);
                monotonic_ns() - start
            })
            .min()
            .unwrap_or(0);
        if fastest >= work_ns.min(10_000_000) {
            let scaled = u128::from(rounds) * u128::from(work_ns) / u128::from(fastest.max(1));
            return u64::try_from(scaled).unwrap_or(u64::MAX).max(1);
        }
        rounds *= 2;
    }
}

/// Pages of the stack that the loops may use are there before the first sample.
#[inline(never)]
fn touch_stack() {
    black_box([1u8; 64 * 1024]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::hlog::Instants;
    use std::os::unix::thread::JoinHandleExt;

    fn drained(mut ring: Consumer<Raw>) -> Vec<Raw> {
        std::iter::from_fn(|| ring.pop().ok()).collect()
    }

    #[test]
    fn a_probe_waits_at_its_gate_and_takes_as_many_samples_as_asked() {
        let probe = Probe::spawn(Work::Periodic { period_ns: 200_000 }, 20, 5, true).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(probe.ring.slots(), 0, "the gate is shut");
        probe.start();
        let (ring, ended) = probe.join().unwrap();
        let samples = drained(ring);
        assert_eq!((samples.len(), ended.lost), (20, 0));
        assert!(
            samples.iter().all(|raw| raw.end_ns >= raw.due_ns),
            "no thread wakes before the instant"
        );
        assert!(samples.windows(2).all(|pair| (pair[1].due_ns - pair[0].due_ns) % 200_000 == 0));
    }

    #[test]
    fn what_the_probe_skips_is_what_the_histogram_counts_as_missed_without_the_warm_up() {
        let (ring_in, ring) = RingBuffer::new(RING);
        let shared = Shared::default();
        let recording = Recording { ring: ring_in, shared: &shared };
        // A stall of 7 periods in the warm-up, then on time, and late by exactly 3 periods.
        let mut late_ns = [7_000, 10, 0, 3_000, 0, 2_999, 3_001, 1_000, 5].into_iter();
        periodic(50_000, 1_000, 8, 1, recording, |due_ns| due_ns + late_ns.next().unwrap());
        let (mut latencies, mut instants) = (Latencies::default(), Instants::new(Some(1_000)));
        let samples = drained(ring);
        for Raw { due_ns, end_ns } in &samples {
            instants.sample(&mut latencies, *due_ns, end_ns - due_ns);
        }
        let due: Vec<u64> = samples.iter().map(|raw| raw.due_ns / 1_000).collect();
        assert_eq!(due, [57, 58, 59, 62, 63, 66, 70, 71]);
        assert_eq!((latencies.missed(), latencies.lost()), (7, 0));
        assert_eq!(shared.overruns.load(Relaxed), 7);
    }

    #[test]
    fn a_signal_ends_no_sleep_before_its_instant() {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing, which is async-signal-safe.
        unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as libc::sighandler_t) };
        let due_ns = monotonic_ns() + 200_000_000;
        let sleeper = std::thread::spawn(move || wake_at(due_ns));
        let mut signals = 0;
        while !sleeper.is_finished() {
            // SAFETY: a thread that is not joined has its number.
            unsafe { libc::pthread_kill(sleeper.as_pthread_t(), libc::SIGUSR1) };
            signals += 1;
            std::thread::yield_now();
        }
        let woken_ns = sleeper.join().unwrap();
        assert!(woken_ns >= due_ns && signals > 0, "{signals} signals");
    }

    #[test]
    fn a_full_ring_is_counted_and_blocks_nobody() {
        let probe =
            Probe::spawn(Work::Compute { rounds: 1 }, RING as u64 + 1000, 0, false).unwrap();
        probe.start();
        let (ring, ended) = probe.join().unwrap();
        assert_eq!((drained(ring).len(), ended.lost), (RING, 1000));
    }

    #[test]
    fn a_probe_can_be_ended_early() {
        let probe = Probe::spawn(Work::Flood { bytes: 4096, seed: 7 }, u64::MAX, 1, false).unwrap();
        probe.start();
        probe.stop();
        let (ring, _) = probe.join().unwrap();
        assert!(drained(ring).len() <= 2);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(status.contains("THP_enabled:\t0"), "a flood takes small pages");
    }

    /// The bar: fewer than 100 ns a sample beyond the wake-up. An absolute time, so the fastest of
    /// many tries counts; the ring is emptied between them.
    #[test]
    fn keeping_a_sample_costs_little() {
        let (ring_in, mut ring) = RingBuffer::new(RING);
        let shared = Shared::default();
        let mut recording = Recording { ring: ring_in, shared: &shared };
        let fastest = (0..50)
            .map(|_| {
                let start = monotonic_ns();
                for turn in 0..1000 {
                    recording.put(Raw { due_ns: turn, end_ns: turn });
                    black_box(recording.ends());
                }
                let took = monotonic_ns() - start;
                while ring.pop().is_ok() {}
                took / 1000
            })
            .min()
            .unwrap();
        // Without optimisation ten times as much is normal.
        let limit = if cfg!(debug_assertions) { 1000 } else { 100 };
        println!("a sample costs {fastest} ns");
        assert!(fastest < limit, "{fastest} ns a sample");
    }
}
