// SPDX-License-Identifier: Apache-2.0 OR MIT
//! export and import: what other tools read and write.

use crate::change::caller;
use crate::exit::{BAD_FILE, BAD_RUN, PARTIAL, USAGE, failure};
use crate::file::{text_of, wrong};
use anyhow::Result;
use asmp_host::limited::MOST_BYTES;
use asmp_measure::exchange::{self, Column, Document, Exported, Format, Rows};
use asmp_measure::histogram::Latencies;
use asmp_measure::hlog;
use asmp_measure::load::{Load, Size};
use asmp_measure::run::{
    self, Experiment, Kind, Machine, Provenance, RUN_SCHEMA, Run, Source, Totals,
};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Rows for a second: what lies beyond is overflow in cyclictest's and rtla's files.
const END_US: u64 = 1_000_000;
/// Text that is gathered before it is written.
const CHUNK: usize = 1 << 16;

pub fn export(runs: &[Run], to: Format) -> Result<()> {
    for run in runs.iter().filter(|run| run.provenance.partial.is_some()) {
        let why = run.provenance.partial.as_deref().unwrap_or_default();
        eprintln!("asmp: {}: partial: {why}", run.dir.display());
    }
    match to {
        Format::Prometheus => {
            let all: Vec<Exported> = runs.iter().map(Exported::of).collect();
            crate::print::raw(&exchange::to_prometheus(&all));
            return Ok(());
        }
        Format::Csv => return csv(runs),
        Format::Json => return crate::print::json(&Document::of(runs)),
        Format::Cyclictest | Format::Rtla | Format::Hdr => {}
    }
    let [run] = runs else {
        let names: Vec<String> = runs.iter().map(|run| run.dir.display().to_string()).collect();
        return Err(failure(
            USAGE,
            format!("this format holds one run: choose one of {}", names.join(", ")),
        ));
    };
    let latencies = &run.latencies;
    let text = match to {
        Format::Cyclictest => exchange::to_cyclictest(&Rows::of(latencies, END_US)),
        Format::Rtla => {
            let Provenance { column, cpu, .. } = &run.provenance;
            // A task that may move has no CPU.
            let usr = cpu.map_or_else(|| "Usr".to_owned(), |cpu| format!("Usr-{cpu:03}"));
            let column = column.as_deref().and_then(exchange::named).unwrap_or(usr);
            exchange::to_rtla(&Rows::as_wide(latencies, END_US), &column)
        }
        _ => exchange::to_hdr(latencies),
    };
    print!("{}", exchange::noted(text, to, run));
    Ok(())
}

fn csv(runs: &[Run]) -> Result<()> {
    if let Some(run) = runs.iter().find(|run| !run.has_samples()) {
        let dir = run.dir.display();
        let why = match run.provenance.source {
            Source::Import => "is an import and has no samples: use --to hdr or json",
            _ => "keeps no samples: measure with --samples-too, or use --to hdr or json",
        };
        return Err(failure(USAGE, format!("{dir} {why}")));
    }
    let mut text = exchange::csv_heading().to_owned();
    for run in runs {
        let mut longest_ns = None;
        run.each_sample(|sample| {
            longest_ns = longest_ns.max(Some(sample.value_ns.saturating_sub(run.base_ns())));
            text.push_str(&exchange::csv_line(run, &sample));
            if text.len() > CHUNK {
                print!("{}", std::mem::take(&mut text));
            }
        })
        .map_err(run::RunError::from)?;
        // What is cut short may have more samples than its log.
        if longest_ns != run.latencies.max_ns() && run.provenance.partial.is_none() {
            let [_, log, samples] = run.files().map(|path| path.display().to_string());
            return Err(failure(BAD_RUN, format!("{samples} contradicts {log}: do not use them")));
        }
    }
    print!("{text}");
    Ok(())
}

/// What is said of an import that its file does not say.
pub struct Origin<'a> {
    /// What a value of 1 stands for, where the format does not say it.
    pub unit_ns: Option<u64>,
    pub kernel: &'a str,
    pub kind: Kind,
    pub load: Load,
}

/// The exit code: another one where the file is not whole.
pub fn import(file: &Path, from: Format, output: &Path, origin: &Origin) -> Result<u8> {
    let from_input = file == Path::new("-");
    let path = if from_input { Path::new("/dev/stdin") } else { file };
    let text = text_of(path, MOST_BYTES, "record fewer or wider buckets")
        .map_err(|reason| failure(BAD_FILE, format!("{}: {reason}", file.display())))?;
    // Windows begins a text with a mark that is no part of it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut columns = match from {
        Format::Cyclictest => exchange::from_cyclictest(text, origin.unit_ns),
        Format::Rtla => exchange::from_rtla(text, origin.unit_ns),
        Format::Hdr => exchange::from_hdr(text, origin.unit_ns),
        Format::Csv | Format::Json | Format::Prometheus => {
            return Err(failure(USAGE, "--from takes cyclictest, rtla or hdr"));
        }
    }
    .map_err(|reason| failure(BAD_RUN, format!("{}: {reason}", file.display())))?;
    // Of an export of ours.
    if let Some(why) = exchange::partial(text) {
        columns.iter_mut().for_each(|column| _ = column.partial.get_or_insert_with(|| why.clone()));
    }
    std::fs::create_dir(output).map_err(|error| {
        let said = match (error.kind(), output.parent()) {
            (ErrorKind::AlreadyExists, _) => {
                "it exists, and nothing is overwritten: name another directory".to_owned()
            }
            (ErrorKind::NotFound, Some(above)) if !above.exists() => {
                format!("there is no directory {}: make that first", above.display())
            }
            _ => error.to_string(),
        };
        failure(BAD_FILE, format!("-o {}: {said}", output.display()))
    })?;
    let mut each = columns.iter();
    let written = each.try_for_each(|column| one(&output.join(&column.name), file, column, origin));
    if let Err((path, cause)) = written {
        // We made it: nothing half done remains. That the rest cannot go either is no news.
        let _ = std::fs::remove_dir_all(output);
        return Err(wrong(&path, &format!("cannot be written: {cause}")));
    }
    let runs = if columns.len() == 1 { "run" } else { "runs" };
    println!("{} {runs} in {}", columns.len(), output.display());
    let Some(reason) = columns.iter().find_map(|column| column.partial.as_ref()) else {
        return Ok(0);
    };
    eprintln!("asmp: {}: {reason}: its runs are marked as partial", file.display());
    Ok(PARTIAL)
}

/// Errors: what could not be written, and why.
fn one(
    dir: &Path,
    file: &Path,
    column: &Column,
    origin: &Origin,
) -> Result<(), (PathBuf, io::Error)> {
    let Column { name, latencies, partial } = column;
    let now_s = caller(&asmp_host::Linux::new()).time_s;
    std::fs::create_dir(dir).map_err(|cause| (dir.to_owned(), cause))?;
    let log = dir.join("hist.hlog");
    write_log(&log, now_s, latencies).map_err(|cause| (log, cause))?;
    let unknown = || "unknown".to_owned();
    let provenance = Provenance {
        schema: RUN_SCHEMA,
        tool: format!("asmp {}, import of {}", env!("CARGO_PKG_VERSION"), file.display()),
        command_line: std::env::args().collect(),
        experiment: Experiment::Latency,
        kind: origin.kind,
        source: Source::Import,
        column: Some(name.clone()),
        step: None,
        load: origin.load,
        load_size: Size { per_cpu: 0, cpus: 0 },
        load_commands: Vec::new(),
        load_tool: None,
        load_dir: None,
        flood: None,
        machine: Machine {
            kernel: origin.kernel.to_owned(),
            kernel_version: unknown(),
            cpu_model: unknown(),
            online_cpus: unknown(),
            boot_parameters: unknown(),
            hypervisor: None,
        },
        cpu: None,
        schedule: None,
        memory_locked: None,
        cpu_latency_held: None,
        period_ns: None,
        warm_up_samples: 0,
        started_s: now_s,
        duration_ns: 0,
        samples: latencies.samples(),
        lost: 0,
        overruns: 0,
        lost_records: 0,
        partial: partial.clone(),
        work_ns: None,
        base_ns: None,
        not_recorded: Some("a histogram of another tool".to_owned()),
        settings: Vec::new(),
        totals: Totals::default(),
        worst: Vec::new(),
    };
    run::write_provenance(dir, &provenance).map_err(|cause| (dir.join("run.json"), cause))
}

fn write_log(path: &Path, now_s: u64, latencies: &Latencies) -> io::Result<()> {
    let out = BufWriter::new(File::create_new(path)?);
    let mut log = hlog::Writer::new(out, UNIX_EPOCH + Duration::from_secs(now_s))?;
    log.second(0, None, latencies)?;
    log.exact(None, latencies)?;
    log.finish()?.get_ref().sync_all()
}
