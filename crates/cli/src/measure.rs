// SPDX-License-Identifier: Apache-2.0 OR MIT
//! measure: the papers' experiments, their reports, and what other tools read and write.

mod conductor;
mod series;

use crate::analyze::files::write;
use crate::args::{Measure, TimeSource};
use crate::change::caller;
use crate::exit::{BAD_FILE, BAD_RUN, MIXED, USAGE, failure};
use crate::file::text_of;
use anyhow::{Context, Result};
use asmp_host::Schedule;
use asmp_host::limited::MOST_BYTES;
use asmp_measure::compare::{self, Difference};
use asmp_measure::exchange::{self, Format, Histogram};
use asmp_measure::experiment::Measurement;
use asmp_measure::load::{Load, Size};
use asmp_measure::run::{
    self, Experiment, Kind, Machine, Provenance, RUN_SCHEMA, Run, Source, Totals,
};
use asmp_measure::sample::{Sample, Writer};
use asmp_measure::{report, spaces};
use asmp_shield::Shield;
use serde::Serialize;
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
        Measure::Report { dirs, output, json, explain, across_kernels } => {
            let runs = read(dirs, *across_kernels)?;
            write_report(&runs, output.as_deref(), *json, *explain)?;
        }
        Measure::Compare { a, b, json, across_kernels } => {
            let runs = read(&[a.clone(), b.clone()], *across_kernels)?;
            compare(&runs, a, b, *json)?;
        }
        Measure::Export { dir, to } => export(dir, *to)?,
        Measure::Import { file, from, output, kernel, kind, load } => {
            import(file, *from, output, kernel, *kind, *load)?;
        }
    }
    Ok(0)
}

/// Runs of all directories. Refuses what is no run, and different kernels side by side.
fn read(dirs: &[PathBuf], across_kernels: bool) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for dir in dirs {
        runs.extend(Run::read_all(dir)?);
    }
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
    Ok(runs)
}

fn write_report(runs: &[Run], output: Option<&Path>, json: bool, explain: usize) -> Result<()> {
    let (rows, spaces) = (report::rows(runs), spaces::spaces(runs));
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
        let page = report::html(runs).map_err(|error| failure(crate::exit::UNEXPECTED, error))?;
        write(path, &page)?;
    }
    Ok(())
}

/// One kind under one load in both directories.
#[derive(Serialize)]
struct Compared {
    experiment: Experiment,
    load: Load,
    kind: Kind,
    median: Option<Difference>,
    p99: Option<Difference>,
    max_a_ns: Option<u64>,
    max_b_ns: Option<u64>,
}

fn compare(runs: &[Run], a: &Path, b: &Path, json: bool) -> Result<()> {
    let below = |dir: &Path| runs.iter().filter(|run| run.dir.starts_with(dir)).collect::<Vec<_>>();
    let key = |run: &Run| (run.provenance.experiment, run.provenance.load, run.provenance.kind);
    let same =
        |a: &Run, b: &Run| key(a) == key(b) && a.is_of_kernel_thread() == b.is_of_kernel_thread();
    let (of_a, of_b) = (below(a), below(b));
    let mut compared = Vec::new();
    for run in &of_a {
        let Some(other) = of_b.iter().find(|other| same(run, other)) else { continue };
        let (a, b) = (run.values(), other.values());
        let (experiment, load, kind) = key(run);
        compared.push(Compared {
            experiment,
            load,
            kind,
            median: compare::quantile(&a, &b, 0.5),
            p99: compare::quantile(&a, &b, 0.99).filter(|_| a.len() >= 100 && b.len() >= 100),
            max_a_ns: a.iter().max().copied(),
            max_b_ns: b.iter().max().copied(),
        });
    }
    if compared.is_empty() {
        return Err(failure(
            USAGE,
            format!(
                "{} and {} have no experiment, load and kind in common",
                a.display(),
                b.display()
            ),
        ));
    }
    if json {
        crate::print::json(&compared)?;
        return Ok(());
    }
    println!(
        "B - A in microseconds, with 95 % of the bootstrap; `~`: the difference may be chance"
    );
    for one in &compared {
        let figure = |name: &str, difference: Option<Difference>| match difference {
            None => format!("{name} too few samples"),
            Some(difference) => {
                let us = |ns: i64| format!("{:+.3}", ns as f64 / 1e3);
                let chance = if difference.is_sure() { "" } else { " ~" };
                format!(
                    "{name} {} [{} .. {}]{chance}",
                    us(difference.difference_ns),
                    us(difference.low_ns),
                    us(difference.high_ns)
                )
            }
        };
        let max =
            |ns: Option<u64>| ns.map_or_else(String::new, |ns| format!("{:.3}", ns as f64 / 1e3));
        println!(
            "{:?} {}/{}: {} · {} · max {} -> {}",
            one.experiment,
            one.load,
            one.kind,
            figure("median", one.median),
            figure("p99", one.p99),
            max(one.max_a_ns),
            max(one.max_b_ns)
        );
    }
    Ok(())
}

fn export(dir: &Path, to: Format) -> Result<()> {
    let runs = Run::read_all(dir)?;
    if to == Format::Prometheus {
        let rows = report::rows(&runs);
        let all: Vec<_> = rows.into_iter().map(|row| (row.load, row.kind, row.summary)).collect();
        print!("{}", exchange::to_prometheus(&all));
        return Ok(());
    }
    let [run] = runs.as_slice() else {
        let names: Vec<String> = runs.iter().map(|run| run.dir.display().to_string()).collect();
        return Err(failure(
            USAGE,
            format!("this format holds one run: choose one of {}", names.join(", ")),
        ));
    };
    let values = run.values();
    // As wide as a second: what lies beyond is overflow in every such file.
    let histogram = Histogram::of(&values, 1_000_000);
    print!(
        "{}",
        match to {
            Format::Cyclictest => exchange::to_cyclictest(&histogram),
            Format::Rtla => exchange::to_rtla(&histogram, run.provenance.cpu.unwrap_or(0)),
            Format::Hdr => exchange::to_hdr(&values),
            _ => exchange::to_csv(&run.samples),
        }
    );
    Ok(())
}

fn import(
    file: &Path,
    from: Format,
    output: &Path,
    kernel: &str,
    kind: Kind,
    load: Load,
) -> Result<()> {
    let text = text_of(file, MOST_BYTES, "record fewer or wider buckets")
        .map_err(|reason| failure(BAD_FILE, format!("{}: {reason}", file.display())))?;
    let columns = match from {
        Format::Cyclictest => exchange::from_cyclictest(&text).map(|columns| {
            columns.into_iter().enumerate().map(|(at, one)| (format!("thread-{at}"), one)).collect()
        }),
        Format::Rtla => exchange::from_rtla(&text),
        Format::Hdr => exchange::from_hdr(&text).map(|one| vec![("all".to_owned(), one)]),
        Format::Csv | Format::Prometheus => {
            return Err(failure(USAGE, "--from takes cyclictest, rtla or hdr"));
        }
    }
    .map_err(|reason| failure(BAD_RUN, format!("{}: {reason}", file.display())))?;
    std::fs::create_dir(output)
        .map_err(|error| failure(BAD_FILE, format!("{}: {error}", output.display())))?;
    for (name, histogram) in &columns {
        import_one(&output.join(name), file, histogram, kernel, kind, load)
            .with_context(|| format!("{}", output.display()))?;
    }
    println!("{} runs in {}", columns.len(), output.display());
    Ok(())
}

fn import_one(
    dir: &Path,
    file: &Path,
    histogram: &Histogram,
    kernel: &str,
    kind: Kind,
    load: Load,
) -> Result<()> {
    std::fs::create_dir(dir)?;
    let mut writer = Writer::create(&dir.join("samples.bin"))?;
    for value_ns in histogram.values_ns() {
        writer.push(Sample { value_ns, ..Sample::default() })?;
    }
    let (samples, kept_out) = writer.finish()?;
    if let Some(error) = kept_out {
        return Err(error.into());
    }
    let beyond = histogram.overflow;
    let unknown = || "unknown".to_owned();
    let provenance = Provenance {
        schema: RUN_SCHEMA,
        tool: format!("asmp {}, import of {}", env!("CARGO_PKG_VERSION"), file.display()),
        command_line: std::env::args().collect(),
        experiment: Experiment::Latency,
        kind,
        source: Source::Import,
        load,
        load_size: Size { per_cpu: 0, cpus: 0 },
        load_commands: Vec::new(),
        flood: false,
        machine: Machine {
            kernel: kernel.to_owned(),
            kernel_version: unknown(),
            cpu_model: unknown(),
            online_cpus: unknown(),
            boot_parameters: unknown(),
            hypervisor: false,
        },
        cpu: None,
        schedule: Schedule::Other { nice: 0 },
        memory_locked: false,
        cpu_latency_held: false,
        period_ns: None,
        warm_up_samples: 0,
        started_s: caller(&asmp_host::Linux::new()).time_s,
        duration_ns: 0,
        samples,
        lost: 0,
        overruns: 0,
        lost_records: 0,
        partial: (beyond > 0).then(|| {
            format!(
                "{beyond} samples lay beyond the last bucket; the tool says max {} us",
                histogram.max_us.map_or_else(unknown, |us| us.to_string())
            )
        }),
        base_ns: None,
        not_recorded: Some("a histogram of another tool".to_owned()),
        settings: Vec::new(),
        totals: Totals::default(),
        worst: Vec::new(),
    };
    run::write_provenance(dir, &provenance)?;
    Ok(())
}
