// SPDX-License-Identifier: Apache-2.0 OR MIT
//! latency, spaces, overhead and ab: from arguments to a series, its progress, its tables and exit
//! code.

use super::conductor::{self, ByShield, one_cpu};
use super::progress::Progress;
use super::told::{free_of_the_cpu, is_not_root, why_nanosleep, without_root};
use super::{Tables, tables};
use crate::args;
use crate::change::caller;
use crate::exit::{
    BAD_FILE, NO_TIMERLAT, NOT_ROOT, PARTIAL, TRACER_IN_USE, UNEXPECTED, USAGE, failure, of_signal,
};
use crate::print::shell_word;
use crate::signals;
use anyhow::{Context, Result};
use asmp_host::{CpuSpec, clock};
use asmp_measure::experiment::{
    Completion, Conductor as _, EndedEarly, ExperimentError, Factor, Measurement, Series, Session,
    compare_factors, fewest_rounds, once,
};
use asmp_measure::report;
use asmp_measure::run::{Kind, Run};
use asmp_shield::Shield;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Measures every kind under every load. Exit code: 0, of a partial run, or of a signal.
/// `for_a_time`: missed instants count as samples that were asked for.
pub fn measure(
    shield: &Shield,
    args: &args::Series,
    measurement: Measurement,
    for_a_time: bool,
    with: Tables,
) -> Result<u8> {
    let (mut series, held) = prepare(shield, args, measurement)?;
    series.counts_missed = for_a_time;
    let period = for_a_time.then(|| measurement.period()).flatten();
    let (conductor, progress) = (ByShield::new(shield), Progress::new(args.quiet, period)?);
    let session = Session::new(shield.kernel(), &conductor, &progress, measurement, &series);
    let session = session.map_err(|error| refused(error, &series.kinds, measurement))?;
    held.tell();
    say_what_was_chosen(shield, args, &series, measurement);
    let completion = session.run();
    let completion = completion.map_err(|error| kept(&series.dir, error))?;
    let runs = match Run::read_all(&series.dir) {
        Ok(found) => found.runs,
        // It ended before the first run.
        Err(_) if completion == Completion::Stopped => {
            return Ok(code(completion, progress.noted.signal()));
        }
        Err(error) => return Err(error.into()),
    };
    print!("{}", tables(&runs, with));
    if args.explain > 0 {
        for run in &runs {
            print!("\n{}\n{}", run.name(), report::explain(run, args.explain));
        }
    }
    let dir = series.dir.display();
    let word = shell_word(&dir.to_string());
    println!("runs in {dir}; figures: asmp measure report {word} -o page.html");
    Ok(code(completion, progress.noted.signal()))
}

/// Each factor with and without, in turn; which helped, by how much, and how sure.
pub fn ab(
    shield: &Shield,
    args: &args::Series,
    measurement: Measurement,
    factors: &[Factor],
    rounds: u32,
) -> Result<u8> {
    let [load] = args.loads[..] else { return Err(failure(USAGE, "ab takes one --load")) };
    once(factors).map_err(failed)?;
    if !args.kinds.is_empty() {
        let why = "ab measures in a partition and takes no --kinds: choose the steps by --knob";
        return Err(failure(USAGE, why));
    }
    if args.explain > 0 {
        let cure = "asmp measure report DIR --explain N prints them for its runs";
        return Err(failure(USAGE, format!("ab prints no causes and takes no --explain: {cure}")));
    }
    let (mut series, held) = prepare(shield, args, measurement)?;
    // Every step but the tick is tried where the tick can be kept.
    series.kinds.push(Kind::PartitionTick);
    let (conductor, progress) = (ByShield::new(shield), Progress::new(args.quiet, None)?);
    let session = Session::new(shield.kernel(), &conductor, &progress, measurement, &series);
    let session = session.map_err(failed)?;
    held.tell();
    say_what_was_chosen(shield, args, &series, measurement);
    let compared = compare_factors(&session, load, factors, rounds);
    let compared = compared.map_err(|error| kept(&series.dir, error))?;
    let early = compared.told_early(factors, rounds);
    if let Some(said) = &early {
        println!("{said}");
    }
    let effects = || compared.effects.iter().filter(|effect| effect.rounds > 0);
    if let Some(least) = effects().map(|effect| effect.rounds).min() {
        let each = early.map_or_else(|| format!(", {rounds} rounds each"), |_| String::new());
        println!(
            "without - with, in microseconds, {load} load, CPU {}, {} samples a round{each}; \
             positive: the step helps",
            series.cpu,
            measurement.samples()
        );
        effects().for_each(|effect| println!("{effect}"));
        let fewest = fewest_rounds(effects().count());
        if (least as usize) < fewest {
            println!("{least} rounds are too few to be sure of anything: use --rounds {fewest}");
        }
    }
    if series.dir.exists() {
        println!("runs in {}", series.dir.display());
    }
    let code = |early: EndedEarly| code(early.completion, progress.noted.signal());
    Ok(compared.ended_early.map_or(0, code))
}

/// The series that the arguments mean, and what is to be held while it runs.
fn prepare(
    shield: &Shield,
    args: &args::Series,
    measurement: Measurement,
) -> Result<(Series, Held)> {
    signals::outlive_file_size_limit().context("take SIGXFSZ")?;
    if let Some(why) = keeps_the_cpu(&args.kinds, measurement) {
        return Err(failure(USAGE, why));
    }
    let cpu = one_cpu(shield, args.cpu.as_ref().unwrap_or(&CpuSpec::Last(1)))?;
    let held = Held { awake: clock::hold_cpu_latency(), locked: clock::lock_memory() };
    // Recording would lengthen the very paths that spaces compares.
    let spaces = matches!(measurement, Measurement::Spaces { .. });
    let no_events = match args.no_trace {
        true => Some("--no-trace".to_owned()),
        false => (spaces && args.explain == 0).then(|| "no --explain".to_owned()),
    };
    let series = Series {
        kinds: args.kinds.clone(),
        loads: args.loads.clone(),
        load_factor: args.load_factor,
        cpu,
        priority: args.priority,
        warm_up: args.warm_up,
        counts_missed: false,
        dir: args.output.clone().unwrap_or_else(|| {
            PathBuf::from(format!("measure-{}", caller(shield.kernel()).time_s))
        }),
        load_dir: args.load_dir.clone(),
        samples_too: args.samples_too,
        no_events,
        flooder: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
        tool: format!("asmp {}", env!("CARGO_PKG_VERSION")),
        command_line: std::env::args().collect(),
        memory_locked: held.locked.is_ok(),
        cpu_latency_held: held.awake.is_ok(),
    };
    Ok((series, held))
}

/// What keeps disturbances off the probe, where the kernel allows it.
struct Held {
    /// While it is open, no CPU enters a deep idle state.
    awake: io::Result<File>,
    /// The memory of this process.
    locked: io::Result<()>,
}

impl Held {
    /// Says what is not held, which only the record would tell.
    fn tell(&self) {
        if let Err(error) = &self.locked {
            eprintln!(
                "asmp: page faults may delay the probe: its memory is not locked ({error}): \
                 measure as root, or raise the limit (ulimit -l unlimited)"
            );
        }
        if let Err(error) = &self.awake {
            eprintln!(
                "asmp: latencies have the time that CPUs take to leave deep idle states: \
                 /dev/cpu_dma_latency: {error}: measure as root"
            );
        }
    }
}

/// Says of a series that was not refused what no one has chosen: who takes the times, and that the
/// CPU is not that of kind normal.
fn say_what_was_chosen(
    shield: &Shield,
    args: &args::Series,
    series: &Series,
    measurement: Measurement,
) {
    let may_arrange = ByShield::new(shield).may_arrange();
    let why = why_nanosleep(shield.kernel(), measurement, series.cpu, may_arrange);
    if let Some(why) = &why {
        eprintln!("asmp: {why}");
    }
    if args.cpu.is_some() && free_of_the_cpu(&series.kinds, measurement, why.is_some()) {
        eprintln!(
            "asmp: --cpu {} does not hold the task of kind normal: without timerlat it may run on \
             any CPU",
            series.cpu
        );
    }
}

/// A series that was refused: a user who is not root may measure something else.
fn refused(error: ExperimentError, kinds: &[Kind], measurement: Measurement) -> anyhow::Error {
    match (&error, without_root(kinds, measurement)) {
        (ExperimentError::Conductor(cause), Some(cure)) if is_not_root(&**cause) => {
            failure(NOT_ROOT, cure)
        }
        _ => failed(error),
    }
}

/// Why a real-time task would keep the CPU; an ordinary one shares it. Without kinds (`ab`) it is
/// in a partition.
fn keeps_the_cpu(kinds: &[Kind], measurement: Measurement) -> Option<String> {
    const LEAST: Duration = Duration::from_micros(10);
    let Measurement::Latency { period, flood: false, .. } = measurement else { return None };
    let is_ordinary = !kinds.is_empty() && kinds.iter().all(|kind| *kind == Kind::Normal);
    let other = if kinds.is_empty() { "" } else { ", or --kinds normal" };
    (period < LEAST && !is_ordinary).then(|| {
        format!(
            "--period: {period:?} is less than a wake-up takes, so that a real-time task would \
             keep the CPU: choose 10 us or more{other}"
        )
    })
}

/// A failed series. Says where the runs are that it has measured.
fn kept(dir: &Path, error: ExperimentError) -> anyhow::Error {
    let runs = Run::read_all(dir).map_or(0, |found| found.runs.len());
    if runs > 0 {
        eprintln!("asmp: what was measured is kept in {}, runs: {runs}", dir.display());
    }
    failed(error)
}

fn code(completion: Completion, signal: Option<i32>) -> u8 {
    match completion {
        Completion::Complete => 0,
        Completion::Partial => PARTIAL,
        Completion::Stopped => of_signal(signal.unwrap_or(libc::SIGINT)),
    }
}

/// A failed series with its exit code and, where an argument is wrong, the words of the command
/// line.
fn failed(error: ExperimentError) -> anyhow::Error {
    let instead = |alternative| if alternative { ", or use --source nanosleep" } else { "" };
    match error {
        ExperimentError::Conductor(error) => conductor::failed(error),
        ExperimentError::NotRestored(error) => {
            conductor::failed(error).context("the measurement's settings could not be undone")
        }
        ExperimentError::Period { alternative, .. } => {
            failure(USAGE, format!("--period: {error}; choose another{}", instead(alternative)))
        }
        ExperimentError::NoTimerlat { alternative }
        | ExperimentError::NoUserTimerlat { alternative } => {
            failure(NO_TIMERLAT, format!("{error}{}", instead(alternative)))
        }
        ExperimentError::Twice { .. } => failure(USAGE, error.to_string()),
        ExperimentError::NoDisk { .. } => failure(USAGE, format!("--load-dir: {error}")),
        ExperimentError::TracerInUse { .. } => failure(TRACER_IN_USE, error.to_string()),
        ExperimentError::File { .. } | ExperimentError::Provenance { .. } => {
            failure(BAD_FILE, error.to_string())
        }
        ExperimentError::Load(error) => error.into(),
        ExperimentError::Run(error) => error.into(),
        ExperimentError::Host(error) => error.into(),
        ExperimentError::Probe(_)
        | ExperimentError::Pin { .. }
        | ExperimentError::Schedule { .. }
        | ExperimentError::NoKernelThread { .. } => failure(UNEXPECTED, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::code_of;
    use crate::print::chain;
    use asmp_measure::load::LoadError;
    use asmp_measure::run::RunError;
    use asmp_shield::{ChangeError, Refusal};

    #[test]
    fn a_period_that_a_real_time_task_cannot_sleep_in_is_refused() {
        let refused = |kinds: &[Kind], ns: u64| {
            let period = Duration::from_nanos(ns);
            let latency = Measurement::Latency { samples: 1, period, source: None, flood: false };
            keeps_the_cpu(kinds, latency)
        };
        let words = refused(&[Kind::Normal, Kind::Fifo], 1_000).unwrap();
        assert!(words.starts_with("--period: 1µs is less") && words.contains("10 us"), "{words}");
        assert!(refused(&[], 9_999).is_some(), "ab measures in a partition");
        assert_eq!(refused(&[Kind::Normal], 1_000), None);
        assert_eq!(refused(&Kind::ALL, 10_000), None);
    }

    #[test]
    fn a_failed_series_has_the_exit_code_and_words_of_its_cause() {
        let says = |error: ExperimentError| {
            let error = failed(error);
            (code_of(&error), chain(&error))
        };
        let refusal = ChangeError::Refused(Refusal::NotRoot);
        let words = refusal.to_string();
        assert_eq!(says(ExperimentError::Conductor(Box::new(refusal))), (10, words));
        let taken = Refusal::TakenCpus { cpus: "3".parse().unwrap(), owner: "a".into() };
        assert_eq!(says(ExperimentError::Conductor(Box::new(ChangeError::from(taken)))).0, 22);
        let other = says(ExperimentError::Conductor("no such setting".into()));
        assert_eq!(other, (UNEXPECTED, "no such setting".to_owned()));
        let busy = ChangeError::Busy { patience: Duration::from_secs(10) };
        let (code, words) = says(ExperimentError::NotRestored(Box::new(busy)));
        assert!(
            code == 8 && words.starts_with("the measurement's settings could not be undone: "),
            "{words}"
        );
        let error = asmp_host::Error::busy("/sys/x".as_ref(), "write");
        let words = error.to_string();
        assert_eq!(says(ExperimentError::Host(error)), (UNEXPECTED, words));
        assert_eq!(says(LoadError::NoTool.into()).0, 51);
        assert_eq!(says(RunError::NoProvenance { path: "x".into() }.into()).0, 50);
        let (code, words) = says(ExperimentError::NoTimerlat { alternative: true });
        assert!(
            code == NO_TIMERLAT && words.ends_with("kernel, or use --source nanosleep"),
            "{words}"
        );
        let period = Duration::from_micros(99);
        let (code, words) = says(ExperimentError::Period { period, alternative: false });
        assert!(
            code == USAGE && words.starts_with("--period: invalid period 99µs: timerlat"),
            "{words}"
        );
        let file = io::Error::from(io::ErrorKind::AlreadyExists);
        let twice = ExperimentError::Twice { what: "normal".into() };
        assert_eq!(says(twice), (USAGE, "normal is named twice".to_owned()));
        let (path, file_system) = ("/tmp".into(), "tmpfs".into());
        let words = "--load-dir: /tmp is on tmpfs, in memory: choose a directory on a disk";
        assert_eq!(says(ExperimentError::NoDisk { path, file_system }), (USAGE, words.to_owned()));
        assert_eq!(says(ExperimentError::File { path: "dir".into(), cause: file }).0, BAD_FILE);
    }
}
