// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How exactly the reflective scheduler meets instants 1 ms apart on this machine: raw, calibrated,
//! calibrated with a final spin; side by side, in blocks that take turns.
//!
//! ```text
//! cargo run --release -p asmp-rt --example calibrated_timer [ACTIVATIONS OF EACH] [CPU] [awake]
//! ```
//!
//! `awake`: a second thread keeps the CPU from idling and is the witness of what takes it (see
//! `witness`): samples for which that was the hypervisor are rejected and counted. Without it,
//! blocks in which /proc/stat counted steal are, by 10 ms; a steal below that may be told in a
//! later block.
//!
//! The grid of instants may lie anywhere in its millisecond, and where the kernel's tick falls onto
//! it, every fourth wake-up or so waits for the tick. Ten places are tried with the raw timer
//! first; the quietest is used, and the loudest said.
//!
//! Errors are in us, negative: early. The thread becomes SCHED_FIFO and locks its memory if it may.
//! Exit code 1: a bar is missed. Calibration takes out what all wake-ups have in common. So where
//! the raw ones are spread more widely than the absolute bars, these are skipped and said so; the
//! spread beside that of the raw ones is always judged.

mod witness;

use asmp_host::{CpuSet, Kernel, Linux, Schedule, clock};
use asmp_rt::executive::{Action, Agenda, Clock, Monotonic, Reflective, Tuning};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use witness::{Taken, Witness};

const INTERVAL_NS: u64 = 1_000_000;
/// Activations in one block.
const BLOCK: usize = 100;
/// Places of the grid that are tried.
const PLACES: u64 = 10;

struct Variant<'a> {
    name: &'static str,
    agenda: &'a Agenda,
    scheduler: Reflective<'a, Monotonic>,
    errors_ns: Vec<i64>,
    rejected: Rejected,
}

#[derive(Default)]
struct Rejected {
    steal: usize,
    pause: usize,
}

/// What a block needs to know.
struct Bench<'a> {
    linux: &'a Linux,
    cpu: u32,
    witness: Option<Witness>,
    /// Of the grid, within its interval.
    place_ns: u64,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let activations: usize = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let cpu: u32 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let witness = match arguments.next().as_deref() {
        Some("awake") => Witness::start(cpu)
            .inspect_err(|error| println!("skipped: no witness, and the CPU may idle: {error}"))
            .ok(),
        Some(other) => return Err(format!("{other}: only awake may stand here").into()),
        None => None,
    };
    let linux = Linux::new();
    become_real_time(&linux, cpu);
    let mut bench = Bench { linux: &linux, cpu, witness, place_ns: 0 };

    let agendas = [Agenda::new(1)?, Agenda::new(1)?, Agenda::new(1)?];
    let tunings = [
        ("raw", Tuning::RAW),
        ("calibrated", Tuning::CALIBRATED),
        ("calibrated + spin", Tuning::SPINNING),
    ];
    let mut variants: Vec<Variant> = tunings
        .into_iter()
        .zip(&agendas)
        .map(|((name, tuning), agenda)| Variant {
            name,
            agenda,
            scheduler: Reflective::new(Monotonic, agenda, tuning),
            errors_ns: Vec::with_capacity(activations + BLOCK),
            rejected: Rejected::default(),
        })
        .collect();

    place(&mut variants[0], &mut bench)?;
    // The first block of each settles the loops and is not counted.
    for variant in &mut variants {
        bench.block(variant)?;
        variant.errors_ns.clear();
        variant.rejected = Rejected::default();
    }
    let steal_at_start = steal(&linux, cpu);
    // A machine that steals from each block ends the run too.
    for _ in 0..10 * activations.div_ceil(BLOCK) {
        if variants.iter().all(|variant| variant.errors_ns.len() >= activations) {
            break;
        }
        for variant in &mut variants {
            bench.block(variant)?;
        }
    }
    let stolen =
        steal(&linux, cpu).zip(steal_at_start).map(|(after, before)| after.saturating_sub(before));
    match stolen {
        Some(ticks) => println!("steal during the run: {ticks} ticks of 10 ms"),
        None => println!("skipped: /proc/stat shows no steal for CPU {cpu}, nothing is rejected"),
    }
    Ok(report(&mut variants))
}

/// Tries places of the grid with the raw timer and keeps the quietest.
fn place(raw: &mut Variant, bench: &mut Bench) -> Result<(), Box<dyn std::error::Error>> {
    let mut tried = Vec::new();
    for place_ns in (0..PLACES).map(|place| place * INTERVAL_NS / PLACES) {
        bench.place_ns = place_ns;
        bench.block(raw)?;
        raw.errors_ns.sort_unstable();
        let p95 = raw.errors_ns.get(raw.errors_ns.len() * 95 / 100).copied();
        tried.extend(p95.map(|p95| (p95, place_ns)));
        raw.errors_ns.clear();
    }
    if let (Some(best), Some(worst)) = (tried.iter().min(), tried.iter().max()) {
        bench.place_ns = best.1;
        println!(
            "the grid lies {} us after the ms, where the raw p95 is {:.1} us (worst of {PLACES} \
             places: {:.1} us)",
            best.1 / 1000,
            best.0 as f64 / 1000.0,
            worst.0 as f64 / 1000.0
        );
    }
    Ok(())
}

fn become_real_time(linux: &Linux, cpu: u32) {
    let tid = clock::thread_id();
    let pinned = cpu.to_string().parse::<CpuSet>().map(|cpus| linux.set_affinity(tid, &cpus));
    if !matches!(pinned, Ok(Ok(()))) {
        println!("skipped: cannot be bound to CPU {cpu}: {pinned:?}");
    }
    if let Err(error) = linux.set_schedule(tid, &Schedule::Fifo { priority: 80 }) {
        println!("skipped: SCHED_FIFO: {error}");
    }
    if let Err(error) = clock::lock_memory() {
        println!("skipped: locked memory: {error}");
    }
    // SAFETY: takes a number only. It matters where SCHED_FIFO is refused: the default slack is 50
    // us.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

impl Bench<'_> {
    /// Adds the errors of a block that nothing but this machine has disturbed.
    fn block(&mut self, variant: &mut Variant) -> Result<(), Box<dyn std::error::Error>> {
        let soon_ns = Monotonic.now_ns() + 2 * INTERVAL_NS;
        let first_ns = soon_ns.next_multiple_of(INTERVAL_NS) + self.place_ns;
        let entry = variant
            .agenda
            .change(|table| table.insert(first_ns, Action::Call(0), Some(INTERVAL_NS)))?;
        let (had, steal_before) = (variant.errors_ns.len(), steal(self.linux, self.cpu));
        let (errors_ns, rejected, witness) =
            (&mut variant.errors_ns, &mut variant.rejected, &mut self.witness);
        // What was taken before the first of them does not count.
        let _ = witness.as_mut().map(Witness::taken);
        let mut left = BLOCK;
        let mut paused_until_ns = 0;
        variant.scheduler.run(u64::MAX, |moment| {
            let taken = witness.as_mut().map_or(Taken::Nothing, Witness::taken);
            if taken == Taken::Pause {
                paused_until_ns = moment.now_ns;
            }
            // Instants that fell into a pause come one after the other when it is over.
            match taken {
                _ if moment.instant_ns <= paused_until_ns => rejected.pause += 1,
                Taken::Steal => rejected.steal += 1,
                _ => errors_ns.push(moment.now_ns as i64 - moment.instant_ns as i64),
            }
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        variant.agenda.change(|table| table.remove(entry))?;
        if self.witness.is_none() && steal(self.linux, self.cpu) != steal_before {
            variant.errors_ns.truncate(had);
            variant.rejected.steal += BLOCK;
        }
        Ok(())
    }
}

/// Steal of a CPU in ticks of 10 ms.
fn steal(linux: &Linux, cpu: u32) -> Option<u64> {
    let text = linux.text(Path::new("/proc/stat")).ok()?;
    let label = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&label))?;
    line.split_whitespace().nth(7)?.parse().ok()
}

/// The table; code 1 if a bar is missed.
fn report(variants: &mut [Variant]) -> ExitCode {
    println!(
        "{:<18} {:>8} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>8}  rejected: steal, pause",
        "us", "p1", "p50", "p99", "p99.9", "mean |err|", "min", "max", "samples"
    );
    let mut missed = false;
    let mut raw: Option<Spread> = None;
    for variant in variants {
        let errors_ns = &mut variant.errors_ns;
        errors_ns.sort_unstable();
        let count = errors_ns.len();
        if count == 0 {
            println!("{:<18} no samples: all rejected", variant.name);
            missed = true;
            continue;
        }
        let rank = |permille: usize| (count * permille).div_ceil(1000).clamp(1, count) - 1;
        let us = |permille| errors_ns[rank(permille)] as f64 / 1000.0;
        let absolute =
            errors_ns.iter().map(|error| error.unsigned_abs()).sum::<u64>() as f64 / count as f64;
        println!(
            "{:<18} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>10.2} {:>8.2} {:>8.2} {:>8}  {}, {}",
            variant.name,
            us(10),
            us(500),
            us(990),
            us(999),
            absolute / 1000.0,
            us(0),
            us(1000),
            count,
            variant.rejected.steal,
            variant.rejected.pause
        );
        let spread = Spread { p1: us(10), p50: us(500), p99: us(990) };
        let raw = raw.get_or_insert(spread);
        missed |= match variant.name {
            "calibrated" => spread.is_wider(raw, 1.5) || !raw.is_noisy() && spread.misses(),
            "calibrated + spin" => {
                spread.is_wider(raw, 1.0) || !raw.is_noisy() && spread.p99 > SPIN_BAR_US
            }
            _ => false,
        };
        let calibration = variant.scheduler.calibration();
        println!(
            "{:<18} latency taken out {:.2} us, margin {:.2} us",
            "",
            calibration.estimate_ns() / 1000.0,
            calibration.margin_ns() as f64 / 1000.0
        );
    }
    let verdict = if missed { "missed" } else { "met" };
    println!("bars (|p50| <= 1; p1 to p99 at most 1.5 times that of raw, with spin 1): {verdict}");
    match raw {
        Some(raw) if raw.is_noisy() => println!(
            "skipped: the absolute bars: raw wake-ups here lie {:.1} us before to {:.1} us after \
             their median (10 and 25 at most)",
            raw.p50 - raw.p1,
            raw.p99 - raw.p50
        ),
        _ => println!(
            "bars (calibrated: p1 >= -10, p99 <= 25; with spin: p99 <= {SPIN_BAR_US}): {verdict}"
        ),
    }
    ExitCode::from(u8::from(missed))
}

const SPIN_BAR_US: f64 = 10.0;

/// Errors in us.
#[derive(Clone, Copy)]
struct Spread {
    p1: f64,
    p50: f64,
    p99: f64,
}

impl Spread {
    /// Of raw wake-ups: no calibration can meet the absolute bars.
    fn is_noisy(&self) -> bool {
        self.p50 - self.p1 > 10.0 || self.p99 - self.p50 > 25.0
    }

    fn misses(&self) -> bool {
        self.p1 < -10.0 || self.p99 > 25.0
    }

    /// Is the median off, or the spread more than `times` that of `raw`?
    fn is_wider(&self, raw: &Self, times: f64) -> bool {
        self.p50.abs() > 1.0 || self.p99 - self.p1 > times * (raw.p99 - raw.p1)
    }
}
