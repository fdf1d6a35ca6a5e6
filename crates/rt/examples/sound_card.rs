// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A periodic real-time task that streams through an rt-FIFO, as a sound card would: 48,000 samples
//! a second in blocks of 128, one block each 2.67 ms, whatever the other side does.
//! examples/rt/python/plot.py is an other side.
//!
//! ```text
//! cargo run --release -p asmp-rt --example sound_card -- [-n] [FIFO] [SECONDS] [CAPACITY IN BYTES]
//! ```
//!
//! Defaults: sound, 10, 1000000. -n: without a real-time policy, for trying it out without
//! permission. It begins when a reader comes. Exit code 1: a block found no room.
//!
//! A block: its number (u64), the instant it was due (u64, ns of CLOCK_MONOTONIC), when its samples
//! began (u64, number of the first), then 128 samples (i16), all in this machine's order of bytes.

use asmp_channel::{Fifo, FifoWriter, Options, Overflow, RingError, Wake, default_dir};
use asmp_rt::thread::{Me, RealTime};
use std::f64::consts::TAU;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const RATE_HZ: u64 = 48_000;
const SAMPLES: usize = 128;
/// 2.666666 ms: at a whole number of nanoseconds.
const PERIOD_NS: u64 = SAMPLES as u64 * 1_000_000_000 / RATE_HZ;
const HEADER: usize = 24;
const PATIENCE: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the task did.
struct Played {
    blocks: u64,
    lost: u64,
    /// Releases that came too late for a job of their own; their blocks were put in by the next
    /// one.
    overruns: u64,
    latest_ns: u64,
}

fn main() -> Result<ExitCode, Failure> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let without_policy =
        words.iter().position(|word| word == "-n").map(|at| words.remove(at)).is_some();
    let mut words = words.into_iter();
    let name = words.next().unwrap_or_else(|| "sound".to_owned());
    let seconds: u64 = words.next().map_or(Ok(10), |word| word.parse())?;
    let capacity_bytes: u64 = words.next().map_or(Ok(1_000_000), |word| word.parse())?;

    // All that allocates or waits comes before the task begins.
    let options = Options { capacity_bytes, overflow: Overflow::Refuse };
    // `Wake::Never`: no system call in `put`; the time-sharing side looks for itself.
    let mut writer = Fifo::create(&default_dir(), &name, &options)?.into_writer(Wake::Never)?;
    eprintln!("sound_card: fifo {name}, waiting for a reader");
    let begin = Instant::now();
    while !writer.has_reader() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("no reader of fifo {name} within {PATIENCE:?}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }

    let blocks = seconds * 1_000_000_000 / PERIOD_NS;
    let real_time = if without_policy { RealTime::without_policy() } else { RealTime::fifo(80) };
    let task = real_time.start("sound", move |me| play(me, &mut writer, blocks));
    let task = task.map_err(|refusal| format!("{refusal} (-n: without a real-time policy)"))?;
    let played = task.join().map_err(|_| "the task panicked")??;

    let Played { blocks, lost, overruns, latest_ns } = played;
    println!("{blocks} blocks, {lost} lost, {overruns} overruns, latest {} us", latest_ns / 1000);
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The real-time task. Nothing in its loop allocates, locks or waits for the reader.
fn play(me: &Me, writer: &mut FifoWriter, blocks: u64) -> Result<Played, Failure> {
    let mut releases = me.releases(Duration::from_nanos(PERIOD_NS), Duration::ZERO)?;
    let mut played = Played { blocks: 0, lost: 0, overruns: 0, latest_ns: 0 };
    let mut block = [0; HEADER + 2 * SAMPLES];
    'playing: while let Some(tick) = releases.wait() {
        played.overruns += tick.overruns;
        // A release without a job still had its samples.
        let late_ns = tick.woken_ns - tick.scheduled_ns + tick.overruns * PERIOD_NS;
        played.latest_ns = played.latest_ns.max(late_ns);
        for back in (0..=tick.overruns).rev() {
            if played.blocks == blocks {
                break 'playing;
            }
            fill(&mut block, played.blocks, tick.scheduled_ns - back * PERIOD_NS);
            match writer.put(&block) {
                Ok(()) => (),
                // The reader is too slow, or gone: that is its loss, not our delay.
                Err(RingError::Full) => played.lost += 1,
                Err(error) => return Err(error.into()),
            }
            played.blocks += 1;
        }
    }
    Ok(played)
}

/// A tone of 440 Hz that swells once a second.
fn fill(block: &mut [u8; HEADER + 2 * SAMPLES], number: u64, due_ns: u64) {
    let first = number * SAMPLES as u64;
    let (words, _) = block[..HEADER].as_chunks_mut::<8>();
    words.copy_from_slice(&[number, due_ns, first].map(u64::to_ne_bytes));
    for (sample, place) in (first..).zip(block[HEADER..].as_chunks_mut::<2>().0) {
        let seconds = (sample % RATE_HZ) as f64 / RATE_HZ as f64;
        let swell = 0.5 - 0.4 * (TAU * seconds).cos();
        *place = ((swell * (TAU * 440.0 * seconds).sin() * 32_767.0) as i16).to_ne_bytes();
    }
}
