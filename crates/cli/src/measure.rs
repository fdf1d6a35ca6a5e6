// SPDX-License-Identifier: Apache-2.0 OR MIT
//! measure: the papers' experiments, their reports, and what other tools read and write.

mod compare;
mod conductor;
mod exchange;
mod progress;
mod series;
mod told;

use crate::analyze::files::{separate, write};
use crate::args::{MOST_SAMPLES, Measure, TimeSource, Unit};
use crate::exit::{BAD_FILE, BAD_RUN, MIXED, USAGE, failure};
use anyhow::Result;
use asmp_measure::experiment::Measurement;
use asmp_measure::run::{RUN_FILES, Run, RunError, Source};
use asmp_measure::{page, report, spaces};
use asmp_shield::Shield;
use asmp_shield::text::shown;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn measure(shield: &Shield, action: &Measure) -> Result<u8> {
    match action {
        Measure::Latency { series, samples, time, period, source, flood, limit, beside_paper } => {
            let source = source.map(|source| match source {
                TimeSource::Timerlat => Source::Timerlat,
                TimeSource::Nanosleep => Source::Nanosleep,
            });
            let samples = samples_of(*samples, *time, *period)?;
            let latency = Measurement::Latency { samples, period: *period, source, flood: *flood };
            let (limit_ns, beside_paper) = (ns(*limit), *beside_paper);
            let tables = Tables { limit_ns, beside_paper, samples_alone: false };
            series::measure(shield, series, latency, time.is_some(), tables)
        }
        Measure::Spaces { series, samples, time, period } => {
            let samples = samples_of(*samples, *time, *period)?;
            let spaces = Measurement::Spaces { samples, period: *period };
            series::measure(shield, series, spaces, time.is_some(), Tables::default())
        }
        Measure::Overhead { series, iterations, work } => {
            let overhead = Measurement::Overhead { iterations: *iterations, work: *work };
            series::measure(shield, series, overhead, false, Tables::default())
        }
        Measure::Ab { series, knobs, samples, rounds, period } => {
            let latency = Measurement::Latency {
                samples: *samples,
                period: *period,
                source: None,
                flood: false,
            };
            series::ab(shield, series, latency, knobs, *rounds)
        }
        Measure::Report {
            dirs,
            output,
            json,
            limit,
            beside_paper,
            samples_alone,
            explain,
            across,
        } => {
            let read = read(dirs)?;
            one_kernel(&read.runs, across.is_some())?;
            if let Some(output) = output {
                has_a_directory(output)?;
            }
            let mut files: Vec<PathBuf> = read.runs.iter().flat_map(Run::files).collect();
            // Also of a run that could not be read.
            let is_of_a_run = |path: &&PathBuf| RUN_FILES.iter().any(|name| path.ends_with(name));
            files.extend(output.iter().filter(is_of_a_run).filter(|path| path.exists()).cloned());
            separate(&files, &[("-o", output.as_deref())])?;
            let (beside_paper, samples_alone) = (*beside_paper, *samples_alone);
            let tables = Tables { limit_ns: ns(*limit), beside_paper, samples_alone };
            write_report(&read.runs, tables, output.as_deref(), *json, *explain)?;
            Ok(read.code)
        }
        Measure::Compare { a, b, kinds, json, across } => {
            let a = read(std::slice::from_ref(a))?;
            let other = b.as_ref().map(|b| read(std::slice::from_ref(b))).transpose()?;
            let b = other.as_ref().unwrap_or(&a);
            let sides = compare::Sides { a: &a.runs, b: &b.runs, kinds: *kinds, across };
            compare::compare(&sides, *json)?;
            Ok(a.code.max(b.code))
        }
        Measure::Export { dir, to } => {
            let read = read(std::slice::from_ref(dir))?;
            exchange::export(&read.runs, *to)?;
            Ok(read.code)
        }
        Measure::Import { file, from, unit, output, kernel, kind, load } => {
            let unit_ns = unit.map(Unit::ns);
            let origin = exchange::Origin { unit_ns, kernel, kind: *kind, load: *load };
            exchange::import(file, *from, output, &origin)
        }
    }
}

/// Samples of a run: as many as its time has periods, where a time was asked for. Missed instants
/// count as such then.
fn samples_of(samples: u64, time: Option<Duration>, period: Duration) -> Result<u64> {
    let Some(time) = time else { return Ok(samples) };
    match u64::try_from(time.as_nanos() / period.as_nanos().max(1)) {
        Ok(0) => Err(failure(USAGE, "--for: shorter than one --period")),
        Ok(samples) if samples <= MOST_SAMPLES => Ok(samples),
        _ => Err(failure(
            USAGE,
            format!("--for: more than {MOST_SAMPLES} periods: choose a longer --period"),
        )),
    }
}

/// What the tables have besides.
#[derive(Debug, Clone, Copy, Default)]
struct Tables {
    limit_ns: Option<u64>,
    beside_paper: bool,
    samples_alone: bool,
}

fn ns(time: Option<Duration>) -> Option<u64> {
    time.map(|time| time.as_nanos() as u64)
}

/// All tables of these runs, as text.
fn tables(runs: &[Run], tables: Tables) -> String {
    let mut rows = report::rows(runs, tables.limit_ns);
    if !tables.samples_alone {
        rows.iter_mut().for_each(|row| row.samples_alone = None);
    }
    let beside = if tables.beside_paper { report::beside_paper(&rows) } else { String::new() };
    [report::text(&rows), spaces::text(&spaces::spaces(runs)), beside].concat()
}

/// Runs that were read.
struct Read {
    runs: Vec<Run>,
    /// 0, or that of a run that could not be read.
    code: u8,
}

/// Runs of all directories; what is none is named, and the others are read all the same.
fn read(dirs: &[PathBuf]) -> Result<Read> {
    let mut all = Read { runs: Vec::new(), code: 0 };
    let mut refused = Vec::new();
    for dir in dirs {
        if dir.is_file() {
            refused.push(a_file(dir));
            continue;
        }
        match Run::read_all(dir) {
            Ok(found) => {
                all.runs.extend(found.runs);
                refused.extend(found.refused);
            }
            Err(error) => refused.push(error),
        }
    }
    // A run that was named twice, or by a link, is one round and not two.
    let mut seen = BTreeSet::new();
    all.runs.retain(|run| seen.insert(run.dir.canonicalize().unwrap_or_else(|_| run.dir.clone())));
    if all.runs.is_empty() && !refused.is_empty() {
        return Err(refused.swap_remove(0).into());
    }
    // A directory of something else is no failure; a run that cannot be read is one.
    let (foreign, bad): (Vec<_>, Vec<_>) =
        refused.into_iter().partition(|error| matches!(error, RunError::NoRun { .. }));
    for error in &bad {
        eprintln!("asmp: left out: {error}");
        all.code = BAD_RUN;
    }
    if let Some(told) = foreign_told(&foreign) {
        eprintln!("asmp: left out: {told}");
    }
    Ok(all)
}

/// A file in the place of a directory; that of a run tells which one was meant.
fn a_file(path: &Path) -> RunError {
    let of_a_run = RUN_FILES.iter().any(|name| path.ends_with(name));
    let dir = path.parent().filter(|dir| of_a_run && *dir != Path::new(""));
    let cure = match dir {
        Some(dir) => format!("name the run's directory, {}", dir.display()),
        None => "name the directory of a run".to_owned(),
    };
    RunError::BadProvenance { path: path.to_owned(), reason: format!("this is a file: {cure}") }
}

/// Directories that hold no run, in one line.
fn foreign_told(refused: &[RunError]) -> Option<String> {
    let name = |error: &RunError| match error {
        RunError::NoRun { path } => path.display().to_string(),
        other => other.to_string(),
    };
    let names: Vec<String> = refused.iter().take(3).map(name).collect();
    match refused {
        [] => None,
        [one] => Some(one.to_string()),
        few if few.len() <= 3 => Some(format!("{} hold no run", names.join(", "))),
        many => Some(format!("{} directories hold no run: {}, …", many.len(), names.join(", "))),
    }
}

/// Refuses an output in a directory that is not there, before the tables are printed.
fn has_a_directory(output: &Path) -> Result<()> {
    let above = output.parent().filter(|above| *above != Path::new(""));
    match above.filter(|above| !above.is_dir()) {
        Some(above) => {
            let (output, above) = (output.display(), above.display());
            let why = format!("-o {output}: there is no directory {above}: make that first");
            Err(failure(BAD_FILE, why))
        }
        None => Ok(()),
    }
}

/// Refuses different kernels side by side.
fn one_kernel(runs: &[Run], across_kernels: bool) -> Result<()> {
    let kernels: BTreeSet<&str> =
        runs.iter().map(|run| run.provenance.machine.kernel.as_str()).collect();
    if kernels.len() > 1 && !across_kernels {
        let kernels: Vec<&str> = kernels.into_iter().collect();
        return Err(failure(
            MIXED,
            format!(
                "runs of kernels {} side by side compare kernels, not settings: choose one, or \
                 say --across kernel",
                kernels.join(" and ")
            ),
        ));
    }
    Ok(())
}

fn write_report(
    runs: &[Run],
    with: Tables,
    output: Option<&Path>,
    json: bool,
    explain: usize,
) -> Result<()> {
    match json {
        true => {
            let (rows, spaces) = (report::rows(runs, with.limit_ns), spaces::spaces(runs));
            let schema = report::REPORT_SCHEMA;
            let report = serde_json::json!({ "schema": schema, "rows": rows, "spaces": spaces });
            crate::print::json(&report)?;
        }
        false => print!("{}", tables(runs, with)),
    }
    if explain > 0 && !json {
        for run in runs {
            print!("\n{}\n{}", shown(&run.name()), report::explain(run, explain));
        }
    }
    if let Some(path) = output {
        write(path, &page::html(runs, with.limit_ns)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    #[test]
    fn a_run_for_a_time_has_as_many_samples_as_that_has_periods() {
        let ms = Duration::from_millis;
        assert_eq!(samples_of(7, None, ms(1)).unwrap(), 7);
        assert_eq!(samples_of(7, Some(ms(600_000)), ms(1)).unwrap(), 600_000);
        assert_eq!(samples_of(7, Some(ms(5)), ms(2)).unwrap(), 2);
        let refused = samples_of(7, Some(ms(1)), ms(2)).unwrap_err();
        assert!(refused.to_string().contains("--for"), "{refused}");
        let most = Duration::from_secs(MOST_SAMPLES / 1000);
        assert_eq!(samples_of(7, Some(most), ms(1)).unwrap(), MOST_SAMPLES);
        for time in [most + ms(1), Duration::MAX] {
            let refused = samples_of(7, Some(time), ms(1)).unwrap_err().to_string();
            assert!(refused.contains("choose a longer --period"), "{refused}");
        }
    }

    #[test]
    fn directories_without_a_run_are_one_line() {
        let refused = |count: usize| -> Vec<RunError> {
            (0..count).map(|at| RunError::NoRun { path: format!("d/{at}").into() }).collect()
        };
        let told = |count: usize| foreign_told(&refused(count));
        assert_eq!(told(0), None);
        assert_eq!(told(1).unwrap(), "d/0 holds no run");
        assert_eq!(told(2).unwrap(), "d/0, d/1 hold no run");
        assert_eq!(told(61).unwrap(), "61 directories hold no run: d/0, d/1, d/2, …");
    }

    #[test]
    fn a_file_in_the_place_of_a_run_is_answered_with_the_directory() {
        let said = |path: &str| a_file(Path::new(path)).to_string();
        assert_eq!(
            said("d/run/hist.hlog"),
            "d/run/hist.hlog: this is a file: name the run's directory, d/run"
        );
        assert_eq!(said("page.html"), "page.html: this is a file: name the directory of a run");
        assert!(said("run.json").ends_with("name the directory of a run"), "it is here");
    }

    #[test]
    fn more_samples_than_a_run_can_have_are_refused() {
        for option in [
            "latency --samples",
            "latency --warm-up",
            "spaces --samples",
            "overhead --iterations",
            "ab --knob tick --samples",
        ] {
            let is_taken = |samples: u64| {
                let line = format!("asmp measure {option} {samples}");
                Cli::try_parse_from(line.split(' ')).is_ok()
            };
            assert_eq!((is_taken(MOST_SAMPLES), is_taken(MOST_SAMPLES + 1)), (true, false));
        }
    }
}
