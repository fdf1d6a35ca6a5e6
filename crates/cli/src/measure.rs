// SPDX-License-Identifier: Apache-2.0 OR MIT
//! measure: the papers' experiments, their reports, and what other tools read and write.

mod compare;
mod conductor;
mod exchange;
mod series;

use crate::analyze::files::write;
use crate::args::{Measure, TimeSource};
use crate::exit::{BAD_RUN, MIXED, failure};
use anyhow::Result;
use asmp_measure::experiment::Measurement;
use asmp_measure::run::{Run, RunError, Source};
use asmp_measure::{report, spaces};
use asmp_shield::Shield;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub fn measure(shield: &Shield, action: &Measure) -> Result<u8> {
    match action {
        Measure::Latency { series, samples, period, source, flood } => {
            let source = source.map(|source| match source {
                TimeSource::Timerlat => Source::Timerlat,
                TimeSource::Nanosleep => Source::Nanosleep,
            });
            let latency =
                Measurement::Latency { samples: *samples, period: *period, source, flood: *flood };
            return series::measure(shield, series, latency);
        }
        Measure::Spaces { series, samples, period } => {
            let spaces = Measurement::Spaces { samples: *samples, period: *period };
            return series::measure(shield, series, spaces);
        }
        Measure::Overhead { series, iterations, work } => {
            let overhead = Measurement::Overhead { iterations: *iterations, work: *work };
            return series::measure(shield, series, overhead);
        }
        Measure::Ab { series, knobs, samples, rounds, period } => {
            let latency = Measurement::Latency {
                samples: *samples,
                period: *period,
                source: None,
                flood: false,
            };
            return series::ab(shield, series, latency, knobs, *rounds);
        }
        Measure::Report { dirs, output, json, limit, explain, across_kernels } => {
            let read = read(dirs)?;
            one_kernel(&read.runs, *across_kernels)?;
            let limit_ns = limit.map(|limit| limit.as_nanos() as u64);
            write_report(&read.runs, limit_ns, output.as_deref(), *json, *explain)?;
            return Ok(read.code);
        }
        Measure::Compare { a, b, json, across } => {
            let (a, b) = (read(std::slice::from_ref(a))?, read(std::slice::from_ref(b))?);
            compare::compare(&a.runs, &b.runs, across, *json)?;
            return Ok(a.code.max(b.code));
        }
        Measure::Export { dir, to } => {
            let read = read(std::slice::from_ref(dir))?;
            exchange::export(&read.runs, *to)?;
            return Ok(read.code);
        }
        Measure::Import { file, from, output, kernel, kind, load } => {
            let origin = exchange::Origin { kernel, kind: *kind, load: *load };
            exchange::import(file, *from, output, &origin)?;
        }
    }
    Ok(0)
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
    for error in refused {
        eprintln!("asmp: left out: {error}");
        // A directory of something else is no failure; a run that cannot be read is one.
        if !matches!(error, RunError::NoRun { .. }) {
            all.code = BAD_RUN;
        }
    }
    Ok(all)
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
                 say --across-kernels",
                kernels.join(" and ")
            ),
        ));
    }
    Ok(())
}

fn write_report(
    runs: &[Run],
    limit_ns: Option<u64>,
    output: Option<&Path>,
    json: bool,
    explain: usize,
) -> Result<()> {
    let (rows, spaces) = (report::rows(runs, limit_ns), spaces::spaces(runs));
    match json {
        true => {
            let schema = report::REPORT_SCHEMA;
            let report = serde_json::json!({ "schema": schema, "rows": rows, "spaces": spaces });
            crate::print::json(&report)?;
        }
        false => print!("{}{}", report::text(&rows), spaces::text(&spaces)),
    }
    if explain > 0 && !json {
        for run in runs {
            print!("\n{}\n{}", run.name(), report::explain(run, explain));
        }
    }
    if let Some(path) = output {
        let page = report::html(runs, limit_ns)
            .map_err(|error| failure(crate::exit::UNEXPECTED, error))?;
        write(path, &page)?;
    }
    Ok(())
}
