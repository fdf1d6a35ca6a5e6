// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The probe: a thread that does one thing at known instants and records when it did it.
//!
//! It allocates, locks and prints nothing once it runs. A sample goes into a ring (crate rtrb) that
//! was allocated before; where the ring is full, it is counted as lost. `collect` empties the ring
//! on another CPU. The thread waits at a gate until it has its CPU, group and policy.
//!
//! Told to end, it is woken by a signal (SIGURG, whose handler does nothing). A sleep that a signal
//! cut short, and a turn that is not whole, are no samples.

use crate::histogram::missed_by;
use crate::load::{make_dirty, use_small_pages};
use asmp_host::clock::{self, monotonic_ns, sleep_until, thread_id};
use asmp_host::{Cpu, tracefs::timerlat};
use rtrb::{Consumer, Producer, RingBuffer};
use std::cell::Cell;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::thread::JoinHandleExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Room for a second of samples at 65 kHz.
pub const RING: usize = 1 << 16;
/// A probe that has not ended so long after it was told to has no CPU for it.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });
/// Rounds of the integer loop between two looks at the word to end: some milliseconds.
const PIECE: u64 = 1 << 20;

/// What the probe does at each instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Sleeps until each next instant of a period. `counts_missed`: one that was missed counts as
    /// one of the samples asked for, so that these take a known time.
    Periodic { period_ns: u64, counts_missed: bool },
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
    /// Only a hint to look soon: Relaxed, the thread is joined.
    ends: AtomicBool,
    /// Counters for the reader's eyes: Relaxed; exact once the thread was joined.
    lost: AtomicU64,
    overruns: AtomicU64,
}

pub struct Probe {
    pub tid: i32,
    pub ring: Consumer<Raw>,
    shared: Arc<Shared>,
    thread: JoinHandle<io::Result<()>>,
    /// The tracer would take a signal for the period's instant. It has one a second at least.
    takes_signals: bool,
    /// When it was first told to end.
    told: Cell<Option<Instant>>,
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
        handle_signals()?;
        let takes_signals = !matches!(work, Work::Timerlat { .. });
        let (ring_in, ring) = RingBuffer::new(RING);
        let shared = Arc::new(Shared::default());
        let (tell, told) = std::sync::mpsc::channel();
        let (in_thread, owner) = (Arc::clone(&shared), std::thread::current());
        let body = move || {
            let _ = tell.send(thread_id());
            while !in_thread.open.load(Acquire) {
                std::thread::park();
            }
            let _timer = keep_tick.then(clock::CpuTimer::arm).transpose()?;
            let recording = Recording { ring: ring_in, shared: &in_thread };
            let ended = run(work, samples, warm_up, recording);
            in_thread.ends.store(true, Relaxed);
            owner.unpark();
            ended
        };
        let thread = std::thread::Builder::new().name("asmp-probe".to_owned()).spawn(body)?;
        let tid = told.recv().map_err(io::Error::other)?;
        Ok(Self { tid, ring, shared, thread, takes_signals, told: Cell::default() })
    }

    pub fn start(&self) {
        // Release pairs with the Acquire at the gate.
        self.shared.open.store(true, Release);
        self.thread.thread().unpark();
    }

    /// Tells it to end, and wakes it. It may fall asleep just after that: tell it again until it
    /// `is_done`.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
        self.told.set(Some(self.told.get().unwrap_or_else(Instant::now)));
        if self.takes_signals {
            // SAFETY: a thread that is not joined has its number, also when it has ended; the
            // handler was set before the thread was made.
            unsafe { libc::pthread_kill(self.thread.as_pthread_t(), libc::SIGURG) };
        }
    }

    /// It was told to end, and has had no CPU for it since: a task that goes before it has that.
    pub fn is_stuck(&self) -> bool {
        self.told.get().is_some_and(|told| told.elapsed() >= PATIENCE) && !self.is_done()
    }

    /// Instants that it has missed so far.
    pub fn missed(&self) -> u64 {
        self.shared.overruns.load(Relaxed)
    }

    /// All its samples are in the ring. It unparks the thread that made it then.
    pub fn is_ending(&self) -> bool {
        self.shared.ends.load(Relaxed)
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread; the ring keeps what is still in it.
    pub fn join(self) -> io::Result<(Consumer<Raw>, Ended)> {
        let Self { ring, shared, thread, .. } = self;
        thread.join().map_err(|_| io::Error::other("the probe panicked"))??;
        Ok((ring, shared.ended()))
    }

    /// Leaves a thread alone that does not end: it does so when it has a CPU.
    pub fn abandon(self) -> Ended {
        self.shared.ended()
    }
}

impl Shared {
    fn ended(&self) -> Ended {
        Ended { lost: self.lost.load(Relaxed), overruns: self.overruns.load(Relaxed) }
    }
}

/// From now on SIGURG, which a process ignores by default, cuts sleeps short and does no more.
fn handle_signals() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, which is async-signal-safe.
    match unsafe { libc::signal(libc::SIGURG, nothing as *const () as libc::sighandler_t) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
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
        Work::Periodic { period_ns, counts_missed } => {
            let first_ns = monotonic_ns().saturating_add(period_ns);
            let times = Times { first_ns, period_ns, counts_missed };
            let shared = recording.shared;
            periodic(times, samples, warm_up, recording, |due_ns| wake_at(due_ns, shared));
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

/// The instants of a period.
#[derive(Debug, Clone, Copy)]
struct Times {
    first_ns: u64,
    period_ns: u64,
    counts_missed: bool,
}

/// `wake_at`: sleeps until that instant and tells the one at which it woke; `None`: told to end
/// before. An instant that comes just as the probe wakes for an earlier one is not missed: it is
/// late by nothing, and sampled.
fn periodic(
    Times { first_ns, period_ns, counts_missed }: Times,
    samples: u64,
    warm_up: u64,
    mut recording: Recording,
    mut wake_at: impl FnMut(u64) -> Option<u64>,
) {
    let (mut due_ns, mut warm_up, mut left) = (first_ns, warm_up, samples);
    while left > 0 {
        let Some(end_ns) = wake_at(due_ns) else { return };
        let missed = missed_by(end_ns.saturating_sub(due_ns), period_ns);
        if warm_up > 0 {
            warm_up -= 1;
        } else {
            recording.put(Raw { due_ns, end_ns });
            recording.shared.overruns.fetch_add(missed, Relaxed);
            left = left.saturating_sub(if counts_missed { 1 + missed } else { 1 });
        }
        due_ns = due_ns.saturating_add((1 + missed).saturating_mul(period_ns));
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
        let Some(end_ns) = wake_at(due_ns, recording.shared) else { return };
        if turn >= warm_up {
            recording.put(Raw { due_ns, end_ns });
        }
        if recording.ends() {
            return;
        }
    }
}

/// Sleeps until that instant, and returns the one at which it woke. A signal alone ends no sleep:
/// the sample would be 0, before its instant had come. `None`: told to end before the instant.
fn wake_at(due_ns: u64, shared: &Shared) -> Option<u64> {
    loop {
        sleep_until(due_ns);
        let now_ns = monotonic_ns();
        if now_ns >= due_ns {
            return Some(now_ns);
        }
        if shared.stop.load(Relaxed) {
            return None;
        }
    }
}

fn compute(rounds: u64, samples: u64, warm_up: u64, mut recording: Recording) {
    for turn in 0..samples.saturating_add(warm_up) {
        let due_ns = monotonic_ns();
        let mut left = rounds;
        while left > 0 {
            let piece = left.min(PIECE);
            work_loop(piece);
            left -= piece;
            if left > 0 && recording.ends() {
                return;
            }
        }
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

    fn drained(mut ring: Consumer<Raw>) -> Vec<Raw> {
        std::iter::from_fn(|| ring.pop().ok()).collect()
    }

    fn every(period_ns: u64) -> Work {
        Work::Periodic { period_ns, counts_missed: false }
    }

    #[test]
    fn a_probe_waits_at_its_gate_and_takes_as_many_samples_as_asked() {
        let probe = Probe::spawn(every(200_000), 20, 5, true).unwrap();
        std::thread::sleep(Duration::from_millis(20));
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
        let times = Times { first_ns: 50_000, period_ns: 1_000, counts_missed: false };
        periodic(times, 8, 1, recording, |due_ns| Some(due_ns + late_ns.next().unwrap()));
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
    fn a_run_for_a_time_ends_with_it_also_where_most_instants_are_missed() {
        let due_of = |samples: u64, counts_missed: bool| {
            let (ring_in, ring) = RingBuffer::new(RING);
            let shared = Shared::default();
            let recording = Recording { ring: ring_in, shared: &shared };
            let times = Times { first_ns: 50_000, period_ns: 1_000, counts_missed };
            // Seventeen of eighteen instants are missed, also in the warm-up.
            periodic(times, samples, 1, recording, |due_ns| Some(due_ns + 17_500));
            drained(ring).into_iter().map(|raw| raw.due_ns).collect::<Vec<_>>()
        };
        assert_eq!(due_of(36, true), [68_000, 86_000]);
        assert_eq!(due_of(37, true).len(), 3, "what is late at the end counts whole");
        assert_eq!(due_of(36, false).len(), 36);
    }

    #[test]
    fn a_period_that_no_clock_holds_is_slept_and_ends_when_told() {
        let probe = Probe::spawn(every(u64::MAX), 2, 0, false).unwrap();
        probe.start();
        std::thread::sleep(Duration::from_millis(20));
        while !probe.is_done() {
            probe.stop();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(drained(probe.join().unwrap().0), []);
        let (ring_in, ring) = RingBuffer::new(RING);
        let shared = Shared::default();
        let times = Times { first_ns: 7, period_ns: u64::MAX, counts_missed: true };
        periodic(times, 2, 0, Recording { ring: ring_in, shared: &shared }, |_| Some(u64::MAX));
        assert_eq!(drained(ring).len(), 2);
    }

    #[test]
    fn a_probe_that_ends_wakes_the_thread_that_made_it() {
        const MOST: Duration = Duration::from_secs(120);
        let work = Work::Periodic { period_ns: 200_000_000, counts_missed: false };
        let probe = Probe::spawn(work, 2, 0, false).unwrap();
        let began = Instant::now();
        probe.start();
        while !probe.is_ending() {
            std::thread::park_timeout(MOST);
        }
        assert!(began.elapsed() < MOST);
    }

    #[test]
    fn a_signal_ends_no_sleep_before_its_instant() {
        handle_signals().unwrap();
        let due_ns = monotonic_ns() + 200_000_000;
        let sleeper = std::thread::spawn(move || wake_at(due_ns, &Shared::default()));
        let mut signals = 0;
        while !sleeper.is_finished() {
            // SAFETY: a thread that is not joined has its number.
            unsafe { libc::pthread_kill(sleeper.as_pthread_t(), libc::SIGURG) };
            signals += 1;
            std::thread::yield_now();
        }
        let woken_ns = sleeper.join().unwrap().unwrap();
        assert!(woken_ns >= due_ns && signals > 0, "{signals} signals");
    }

    #[test]
    fn a_probe_ends_soon_also_in_an_hour_of_sleep_or_work_and_keeps_no_part_of_a_sample() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        for work in [every(HOUR_NS), Work::Compute { rounds: u64::MAX }] {
            let probe = Probe::spawn(work.clone(), 1, 0, false).unwrap();
            probe.start();
            std::thread::sleep(Duration::from_millis(20));
            let told = Instant::now();
            while !probe.is_done() {
                probe.stop();
                assert!(told.elapsed() < Duration::from_secs(120), "{work:?} goes on");
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(!probe.is_stuck());
            let (ring, ended) = probe.join().unwrap();
            assert_eq!((drained(ring).len(), ended), (0, Ended::default()), "{work:?}");
        }
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
