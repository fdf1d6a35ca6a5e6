// SPDX-License-Identifier: Apache-2.0 OR MIT
//! latency, spaces, overhead and ab: from arguments to a series, its progress, its tables and exit
//! code.

use super::conductor::{self, ByShield, one_cpu};
use super::progress::Progress;
use super::{Tables, tables};
use crate::args;
use crate::change::caller;
use crate::exit::{
    BAD_FILE, NO_TIMERLAT, PARTIAL, TRACER_IN_USE, UNEXPECTED, USAGE, failure, of_signal,
};
use crate::print::shell_word;
use crate::signals;
use anyhow::{Context, Result};
use asmp_host::clock;
use asmp_measure::experiment::{
    Completion, Conductor as _, ExperimentError, Factor, Factors, Measurement, Series, Session,
    compare_factors, fewest_rounds, misses_timerlat, once,
};
use asmp_measure::report;
use asmp_measure::run::{Kind, Run};
use asmp_shield::Shield;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Measures every kind under every load. Exit code: 0, of a partial run, or of a signal.
pub fn measure(
    shield: &Shield,
    args: &args::Series,
    measurement: Measurement,
    with: Tables,
) -> Result<u8> {
    let (series, _awake) = prepare(shield, args, measurement)?;
    let (conductor, progress) = (ByShield::new(shield), Progress::new(args.quiet)?);
    let session = Session::new(shield.kernel(), &conductor, &progress, measurement, &series);
    let completion = session.map_err(failed)?.run();
    let completion = completion.map_err(|error| kept(&series.dir, error))?;
    let runs = Run::read_all(&series.dir)?.runs;
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
    let (mut series, _awake) = prepare(shield, args, measurement)?;
    // Every step but the tick is tried where the tick can be kept.
    series.kinds.push(Kind::PartitionTick);
    let (conductor, progress) = (ByShield::new(shield), Progress::new(args.quiet)?);
    let session = Session::new(shield.kernel(), &conductor, &progress, measurement, &series);
    let compared = compare_factors(&session.map_err(failed)?, load, factors, rounds);
    let effects = match compared.map_err(|error| kept(&series.dir, error))? {
        Factors::Compared(effects) => effects,
        Factors::EndedEarly { reason, completion } => {
            println!("ended early ({reason}); what was measured is in {}", series.dir.display());
            return Ok(code(completion, progress.noted.signal()));
        }
    };
    println!(
        "without - with, in microseconds, {load} load, CPU {}, {} samples a round, {rounds} rounds \
         each; positive: the step helps",
        series.cpu,
        measurement.samples()
    );
    effects.iter().for_each(|effect| println!("{effect}"));
    let fewest = fewest_rounds(factors.len());
    if (rounds as usize) < fewest {
        println!("{rounds} rounds cannot be sure of anything: --rounds {fewest} can");
    }
    println!("runs in {}", series.dir.display());
    Ok(0)
}

/// The series that the arguments mean, and a file to keep open while it runs: no CPU dozes off.
fn prepare(
    shield: &Shield,
    args: &args::Series,
    measurement: Measurement,
) -> Result<(Series, Option<File>)> {
    signals::outlive_file_size_limit().context("take SIGXFSZ")?;
    let cpu = one_cpu(shield, &args.cpu)?;
    if misses_timerlat(shield.kernel(), measurement, cpu) {
        eprintln!(
            "asmp: nanosleep takes the times: timerlat requires a --period of 100 us to 1 s in \
             whole microseconds"
        );
    }
    if let Err(error) = ByShield::new(shield).may_arrange()
        && matches!(measurement, Measurement::Latency { source: None, .. })
    {
        eprintln!("asmp: nanosleep takes the times, as timerlat cannot be set: {error}");
    }
    let awake = clock::hold_cpu_latency().ok();
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
        dir: args.output.clone().unwrap_or_else(|| {
            PathBuf::from(format!("measure-{}", caller(shield.kernel()).time_s))
        }),
        load_dir: args.load_dir.clone(),
        samples_too: args.samples_too,
        no_events,
        flooder: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
        tool: format!("asmp {}", env!("CARGO_PKG_VERSION")),
        command_line: std::env::args().collect(),
        memory_locked: clock::lock_memory().is_ok(),
        cpu_latency_held: awake.is_some(),
    };
    Ok((series, awake))
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
        ExperimentError::File { .. } => failure(BAD_FILE, error.to_string()),
        ExperimentError::Load(error) => error.into(),
        ExperimentError::Run(error) => error.into(),
        ExperimentError::Host(error) => error.into(),
        ExperimentError::Provenance { .. }
        | ExperimentError::Probe(_)
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
    use std::time::Duration;

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
        let file = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        let twice = ExperimentError::Twice { what: "normal".into() };
        assert_eq!(says(twice), (USAGE, "normal is named twice".to_owned()));
        let (path, file_system) = ("/tmp".into(), "tmpfs".into());
        let words = "--load-dir: /tmp is on tmpfs, in memory: choose a directory on a disk";
        assert_eq!(says(ExperimentError::NoDisk { path, file_system }), (USAGE, words.to_owned()));
        assert_eq!(says(ExperimentError::File { path: "dir".into(), cause: file }).0, BAD_FILE);
    }
}
