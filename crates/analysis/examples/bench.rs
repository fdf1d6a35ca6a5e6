// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of docs/measurements/analysis.md, but for those beside another crate
//! (`examples/peers.rs`).
//!
//! ```text
//! cargo run --release -p asmp-analysis --example bench -- speed
//! cargo run --release -p asmp-analysis --example bench -- curve
//! cargo run --release -p asmp-analysis --example bench -- agree|files|deep|fuzz FROM TO
//! ```

#[path = "../tests/chaos/sets.rs"]
mod chaos_of_sets;
#[path = "../tests/agreement/files.rs"]
mod files;
#[path = "../tests/chaos/graphs.rs"]
mod graphs;
#[path = "../tests/chaos/numbers.rs"]
mod numbers;
#[path = "../tests/agreement/sets.rs"]
mod sets;
#[path = "../tests/chaos/texts.rs"]
mod texts;

use asmp_analysis::simulate::{Job, Observe};
use asmp_analysis::simulate::{Random, Releases, Run, Simulation, Statistics};
use asmp_analysis::{Effort, Policy, Task, Verdict, edf, np_edf};
use sets::{Runs, Shape, Tally, check, curve};
use std::ops::{AddAssign, ControlFlow};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const SHAPES: [Shape; 3] = [Shape::Plain, Shape::Deadlines, Shape::Everything];
/// A thousand random runs for each policy that accepts a set, each until every task's first job is
/// due.
const DEEP: Runs = Runs { random: 1000, lengths: 1 };

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: u64| {
        words.get(at).and_then(|word| word.parse().ok()).unwrap_or(otherwise)
    };
    match words.first().map(String::as_str) {
        Some("speed") => speed(),
        Some("curve") => acceptance(),
        Some("agree") => agree(number(1, 0), number(2, 10_000), Runs { random: 1, lengths: 8 }),
        Some("files") => agree_on_files(number(1, 0), number(2, 10_000)),
        Some("deep") => agree(number(1, 0), number(2, 100), DEEP),
        Some("fuzz") => fuzz(number(1, 0), number(2, 100_000)),
        _ => {
            speed();
            acceptance();
            agree(0, 10_000, Runs { random: 1, lengths: 8 });
            agree(0, 100, DEEP);
        }
    }
}

/// Periods of 1 ms to 1 s, their logarithms evenly; costs that are schedulable without preemption,
/// so that the whole test is gone through: about equal, scaled to the utilisation.
fn large(count: usize, total: f64, seed: u64) -> Vec<Task> {
    let mut random = Random::new(seed);
    let periods: Vec<f64> = (0..count).map(|_| 1e6 * 1000f64.powf(random.fraction())).collect();
    let sizes: Vec<f64> = periods.iter().map(|_| 0.5 + random.fraction()).collect();
    let sum: f64 = periods.iter().zip(&sizes).map(|(period, size)| size / period).sum();
    let task = |(period, size): (&f64, &f64)| {
        Task::new("t", ((total * size / sum) as u64).max(1), *period as u64)
    };
    periods.iter().zip(&sizes).map(task).collect()
}

/// Median and worst of five, in milliseconds, and the last answer.
fn timed<T>(mut work: impl FnMut() -> T) -> (f64, f64, T) {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..5 {
        let start = Instant::now();
        last = Some(work());
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    (times[2], times[4], last.expect("five turns"))
}

/// Peak of this process so far.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn speed() {
    let effort = Effort { steps: u64::MAX, jobs: 5_000_000 };
    println!("| what | median ms | worst ms | answer |\n|---|---|---|---|");
    for count in [50, 1000, 10_000] {
        let tasks = large(count, 0.9, 1);
        let (median, worst, verdict) = timed(|| np_edf::test(&tasks, &effort));
        println!("| np-EDF exact, {count} tasks | {median:.2} | {worst:.2} | {} |", word(&verdict));
    }
    for count in [1000, 10_000, 100_000] {
        let mut tasks = large(count, 0.9, 2);
        for (at, task) in tasks.iter_mut().enumerate() {
            task.deadline_ticks = task.period_ticks * (80 + at as u64 % 60) / 100;
        }
        let before = peak_kb();
        let (median, worst, verdict) = timed(|| edf::test(&tasks, &effort));
        let grown = peak_kb() - before;
        println!(
            "| EDF by QPA, {count} tasks, {grown} kB more | {median:.2} | {worst:.2} | {} |",
            word(&verdict)
        );
    }
    simulator();
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Schedulable => "schedulable",
        Verdict::NotSchedulable { .. } => "not schedulable",
        Verdict::DoesNotApply { .. } => "does not apply",
        Verdict::Unknown { .. } => "unknown",
    }
}

struct Nothing;

impl Observe for Nothing {
    fn finished(&mut self, _: &Job, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn simulator() {
    for (count, policy) in
        [(10, Policy::NpEdf), (10, Policy::Edf), (10, Policy::Rm), (100, Policy::NpEdf)]
    {
        let tasks = large(count, 0.8, 4);
        let jobs = 3_000_000;
        for with in [true, false] {
            let (median, worst, released) = timed(|| {
                let simulation = Simulation::new(&tasks, policy, Releases::Random);
                let mut run = Run::prepare(&simulation).expect("a set");
                if with {
                    let mut statistics = Statistics::of(&run);
                    run.go(u64::MAX, jobs, &mut statistics);
                } else {
                    run.go(u64::MAX, jobs, &mut Nothing);
                }
                run.jobs()
            });
            let rate = released as f64 / median / 1e3;
            let what = if with { "with statistics" } else { "bare" };
            println!(
                "| simulator, {policy}, {count} tasks, {what} | {median:.0} | {worst:.0} | \
                 {rate:.2} million jobs/s |"
            );
        }
    }
}

fn acceptance() {
    for total in [0.4, 0.7, 0.9] {
        let (accepted, exact) = curve(total, 20_000, 7);
        let share = accepted as f64 * 100.0 / exact.max(1) as f64;
        println!(
            "Proposition 1 at U = {total}: {accepted} of {exact} exactly schedulable sets, \
             {share:.1} %"
        );
    }
}

/// Seeds that a thread takes at once.
const PART: u64 = 100;

/// Tells the other threads when this one ends by a panic.
struct Fails<'a>(&'a AtomicBool);

impl Drop for Fails<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// Goes through the seeds with a thread for each CPU. `tell` hears how many are done, and the sum
/// of what was seen, after each part. A panic of `check` ends all threads, and then this one.
fn spread<T: Default + AddAssign + Send>(
    (from, to): (u64, u64),
    check: impl Fn(u64, &mut T) + Sync,
    tell: impl FnMut(u64, &T) + Send,
) {
    let (next, failed) = (AtomicU64::new(from), AtomicBool::new(false));
    let sum = Mutex::new((0, T::default(), tell));
    let work = || {
        let _fails = Fails(&failed);
        while !failed.load(Relaxed) {
            let first = next.fetch_add(PART, Relaxed);
            if first >= to {
                break;
            }
            let seeds = first..to.min(first + PART);
            let (count, mut seen) = (seeds.end - first, T::default());
            seeds.for_each(|seed| check(seed, &mut seen));
            let mut sum = sum.lock().expect("no panic while it is locked");
            let (done, all, tell) = &mut *sum;
            *done += count;
            *all += seen;
            tell(*done, all);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
        (0..threads).for_each(|_| _ = scope.spawn(work));
    });
}

/// What was seen of each shape.
#[derive(Default)]
struct Tallies([Tally; 3]);

impl AddAssign for Tallies {
    fn add_assign(&mut self, more: Self) {
        self.0.iter_mut().zip(more.0).for_each(|(all, more)| *all += more);
    }
}

/// All three shapes of each seed.
fn agree(from: u64, to: u64, runs: Runs) {
    let start = Instant::now();
    let mut shown = start;
    let tell = |done: u64, tallies: &Tallies| {
        if shown.elapsed().as_secs() < 60 && done < to - from {
            return;
        }
        shown = Instant::now();
        println!("{done} seeds from {from}, {runs:?}, {:.0} s", start.elapsed().as_secs_f64());
        for (shape, tally) in SHAPES.iter().zip(&tallies.0) {
            println!("  {shape:?}: {tally:?}");
        }
    };
    let check = |seed, tallies: &mut Tallies| {
        let shapes = SHAPES.into_iter().zip(&mut tallies.0);
        shapes.for_each(|(shape, tally)| check(seed, shape, runs, tally));
    };
    spread((from, to), check, tell);
}

/// Files with every key.
fn agree_on_files(from: u64, to: u64) {
    let start = Instant::now();
    let tell = |done: u64, seen: &files::Seen| {
        if done.is_multiple_of(100_000) || done == to - from {
            println!("{done} files from {from}, {:.0} s", start.elapsed().as_secs_f64());
            println!("  {seen:?}");
        }
    };
    spread((from, to), files::check_file, tell);
}

/// Each run: a set, a graph and a text for each parser.
fn fuzz(from: u64, to: u64) {
    let start = Instant::now();
    let mut met = numbers::Met::default();
    assert_eq!(chaos_of_sets::bytes(from), chaos_of_sets::bytes(from));
    for seed in from..to {
        chaos_of_sets::once(seed, &mut met);
        graphs::once(seed, &mut met);
        texts::once(seed, &mut met);
        if (seed + 1).is_multiple_of(1_000_000) {
            println!("{} runs, {:.0} s", seed + 1 - from, start.elapsed().as_secs_f64());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let checked = if cfg!(debug_assertions) {
        "an overflow is a panic"
    } else {
        "overflows wrap: see make fuzz"
    };
    println!("fuzz: {} runs, no panic, {seconds:.0} s, {checked}", to - from);
    println!("{met:?}");
}
