//! How exactly the reflective scheduler meets instants 1 ms apart on this machine: raw, calibrated, calibrated with a
//! final spin; side by side, in blocks that take turns.
//!
//!     cargo run --release -p asmp-rt --example calibrated_timer [ACTIVATIONS OF EACH] [CPU] [awake]
//!
//! `awake`: a thread under SCHED_IDLE keeps the CPU from idling, as `idle=poll` would; a partition does it by
//! pm_qos_resume_latency_us, where there are idle states. A virtual CPU that idles is given back to the hypervisor,
//! and how long it takes to come again no calibration takes out.
//!
//! Errors are in us, negative: early. Blocks in which the hypervisor took time from the CPU (steal in /proc/stat, which
//! counts in 10 ms) are rejected and counted; a steal below that may be told in a later block. The thread becomes
//! SCHED_FIFO and locks its memory if it may. Exit code 1: a bar is missed.

use asmp_host::{CpuSet, Kernel, Linux, Schedule, clock};
use asmp_rt::executive::calibration::Tuning;
use asmp_rt::executive::reflective::Reflective;
use asmp_rt::executive::table::{Action, Agenda};
use asmp_rt::executive::{Clock, Monotonic};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

const INTERVAL_NS: u64 = 1_000_000;
/// Activations in one block.
const BLOCK: usize = 100;

struct Variant<'a> {
    name: &'static str,
    agenda: &'a Agenda,
    scheduler: Reflective<'a, Monotonic>,
    errors_ns: Vec<i64>,
    rejected: usize,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let activations: usize = arguments.next().map_or(Ok(5000), |text| text.parse())?;
    let cpu: u32 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    match arguments.next().as_deref() {
        Some("awake") => keep_awake(cpu),
        Some(other) => return Err(format!("{other}: only awake may stand here").into()),
        None => (),
    }
    let linux = Linux::new();
    become_real_time(&linux, cpu);

    let agendas = [Agenda::new(1)?, Agenda::new(1)?, Agenda::new(1)?];
    let tunings =
        [("raw", Tuning::RAW), ("calibrated", Tuning::CALIBRATED), ("calibrated + spin", Tuning::SPINNING)];
    let mut variants: Vec<Variant> = tunings
        .into_iter()
        .zip(&agendas)
        .map(|((name, tuning), agenda)| Variant {
            name,
            agenda,
            scheduler: Reflective::new(Monotonic, agenda, tuning),
            errors_ns: Vec::with_capacity(activations + BLOCK),
            rejected: 0,
        })
        .collect();

    // The first block of each settles the loops and is not counted.
    for variant in &mut variants {
        block(variant)?;
        variant.errors_ns.clear();
    }
    let steal_at_start = steal(&linux, cpu);
    // A machine that steals from each block ends the run too.
    for _ in 0..10 * activations.div_ceil(BLOCK) {
        if variants.iter().all(|variant| variant.errors_ns.len() >= activations) {
            break;
        }
        for variant in &mut variants {
            let before = (variant.errors_ns.len(), steal(&linux, cpu));
            block(variant)?;
            if steal(&linux, cpu) != before.1 {
                variant.errors_ns.truncate(before.0);
                variant.rejected += BLOCK;
            }
        }
    }
    let stolen = steal(&linux, cpu).zip(steal_at_start).map(|(after, before)| after.saturating_sub(before));
    match stolen {
        Some(ticks) => println!("steal during the run: {ticks} ticks of 10 ms"),
        None => println!("skipped: /proc/stat shows no steal for CPU {cpu}, nothing is rejected"),
    }
    Ok(report(&mut variants))
}

/// Ends with the program.
fn keep_awake(cpu: u32) {
    let (ready, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let linux = Linux::new();
        let tid = clock::thread_id();
        let cpus = cpu.to_string().parse::<CpuSet>().expect("a CPU");
        let bound = linux.set_affinity(tid, &cpus).and_then(|()| linux.set_schedule(tid, &Schedule::Idle));
        ready.send(bound.map_err(|error| error.to_string())).expect("who waits");
        loop {
            std::hint::spin_loop();
        }
    });
    if let Err(error) = wait.recv().expect("the thread says how it went") {
        println!("skipped: the CPU is not kept awake: {error}");
    }
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
    // SAFETY: takes a number only. It matters where SCHED_FIFO is refused: the default slack is 50 us.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn block(variant: &mut Variant) -> Result<(), Box<dyn std::error::Error>> {
    let first_ns = Monotonic.now_ns() + 2 * INTERVAL_NS;
    let entry = variant.agenda.change(|table| table.insert(first_ns, Action::Call(0), Some(INTERVAL_NS)))?;
    let mut left = BLOCK;
    let errors_ns = &mut variant.errors_ns;
    variant.scheduler.run(u64::MAX, |moment| {
        errors_ns.push(moment.now_ns as i64 - moment.instant_ns as i64);
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    variant.agenda.change(|table| table.remove(entry))?;
    Ok(())
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
        "{:<18} {:>8} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>8} {:>9}",
        "us", "p1", "p50", "p99", "p99.9", "mean |err|", "min", "max", "samples", "rejected"
    );
    let mut missed = false;
    for variant in variants {
        let errors_ns = &mut variant.errors_ns;
        errors_ns.sort_unstable();
        let count = errors_ns.len();
        if count == 0 {
            println!("{:<18} no samples, {} rejected", variant.name, variant.rejected);
            missed = true;
            continue;
        }
        let rank = |permille: usize| (count * permille).div_ceil(1000).clamp(1, count) - 1;
        let us = |permille| errors_ns[rank(permille)] as f64 / 1000.0;
        let absolute = errors_ns.iter().map(|error| error.unsigned_abs()).sum::<u64>() as f64 / count as f64;
        println!(
            "{:<18} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>10.2} {:>8.2} {:>8.2} {:>8} {:>9}",
            variant.name,
            us(10),
            us(500),
            us(990),
            us(999),
            absolute / 1000.0,
            us(0),
            us(1000),
            count,
            variant.rejected
        );
        missed |= match variant.name {
            "calibrated" => us(500).abs() > 1.0 || us(10) < -10.0 || us(990) > 25.0,
            "calibrated + spin" => us(990) > 10.0,
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
    println!(
        "bars (calibrated: |p50| <= 1, p1 >= -10, p99 <= 25; with spin: p99 <= 10): {}",
        verdict(missed)
    );
    ExitCode::from(u8::from(missed))
}

fn verdict(missed: bool) -> &'static str {
    if missed { "missed" } else { "met" }
}
