// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The top of the page: which kind is best and by what factor, what is above the limit, and what
//! was measured where. Pure.

use super::style::of_kind;
use super::table::swatch;
use super::words::{self, date, escape};
use crate::histogram::Latencies;
use crate::load::Load;
use crate::report::{Row, rows, tables};
use crate::run::{Experiment, Kind, Provenance, Run, Source};
use crate::told::{self, Told, VIRTUAL, grouped, short_us};
use crate::verdict::{self, Verdict};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// For each load of which there is something to say: who has the best worst case, what weakens
/// that, and what is above the limit; each text is a sentence, the first one with the load before
/// it.
pub fn verdicts(rows: &[Row]) -> Vec<Vec<String>> {
    let several = rows.iter().any(|row| row.experiment == Experiment::Overhead);
    let said = tables(rows).into_iter().map(|rows| {
        let what = match rows[0].experiment {
            Experiment::Overhead => ", overhead",
            Experiment::Latency if several => ", latency",
            Experiment::Latency => "",
        };
        let Verdict { best, others, reservations, above, .. } = verdict::verdict(&rows);
        let told = [best, others].into_iter().flatten().chain(reservations);
        let mut told: Vec<String> = told.chain(without_disk(&rows)).chain(above).collect();
        if let Some(first) = told.first_mut() {
            *first = format!("Load {}{what}. {first}", rows[0].load);
        }
        told
    });
    said.filter(|told| !told.is_empty()).collect()
}

/// Which runs had a load that wrote to memory: the load's own words speak of a disk.
fn without_disk(rows: &[&Row]) -> Option<String> {
    let in_memory = |row: &&&Row| row.load_dir.as_ref().is_some_and(|dir| dir.is_memory());
    let file_system = rows.iter().find(in_memory)?.load_dir.as_ref()?.file_system.as_str();
    let kinds: BTreeSet<&str> =
        rows.iter().filter(in_memory).map(|row| row.name.as_str()).collect();
    let of = match rows.iter().all(|row| in_memory(&row)) {
        true => String::new(),
        false => format!(" of {}", Vec::from_iter(kinds).join(", ")),
    };
    Some(format!("The load{of} wrote to memory ({file_system}): it waited for no disk."))
}

/// What was measured, when, where and how; where runs differ, all of it. What is not known of any
/// of them is left out.
pub fn facts(runs: &[Run]) -> String {
    let are_imports = runs.iter().all(is_import);
    let distinct = |of: &dyn Fn(&Run) -> String| -> String {
        let mut all: Vec<String> = Vec::new();
        for one in runs.iter().map(of).filter(|one| !one.is_empty()) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all.join("; ")
    };
    let machine = |run: &Run| {
        let machine = &run.provenance.machine;
        if is_import(run) {
            return if are_imports { "" } else { "not known (import)" }.to_owned();
        }
        let guest = match machine.hypervisor {
            Some(true) => format!(", {VIRTUAL}"),
            Some(false) => String::new(),
            None => ", a virtual machine or not: that is not known".to_owned(),
        };
        format!("{}, CPUs {} online{guest}", machine.cpu_model, machine.online_cpus.trim())
    };
    let kernel = |run: &Run| {
        let machine = &run.provenance.machine;
        let words = [machine.kernel.trim(), machine.kernel_version.trim()];
        let known: Vec<&str> =
            words.into_iter().filter(|word| !word.is_empty() && *word != "unknown").collect();
        known.join(" ")
    };
    let when = |imports: bool| {
        let of = runs.iter().filter(|run| is_import(run) == imports);
        let started = of.map(|run| run.provenance.started_s);
        let first = started.clone().min().map_or_else(String::new, date);
        let last = started.max().map_or_else(String::new, date);
        if first == last { first } else { format!("{first} to {last}") }
    };
    // What asmp has not looked at itself.
    let said_of = |of: &dyn Fn(&&Run) -> bool| match runs.iter().filter(of).all(is_import) {
        true => "as the importer says, ",
        false => "",
    };
    let known = |told: String| if are_imports { String::new() } else { told };
    let kinds: BTreeSet<Kind> = runs.iter().map(|run| run.provenance.kind).collect();
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|kind| {
            let said = said_of(&|run| run.provenance.kind == kind);
            let words = escape(&format!("{}{}", words::kind(kind), ticks(kind, runs)));
            format!("<span class=\"kind\">{}{kind}: {said}{words}</span>", swatch(of_kind(kind)))
        })
        .collect();
    let loads: BTreeSet<_> = runs.iter().map(|run| run.provenance.load).collect();
    let load = |load: Load| {
        let said = said_of(&|run| run.provenance.load == load);
        escape(&load_told(load, said, runs))
    };
    let loads: Vec<String> = loads.into_iter().map(load).collect();
    let has = |experiment| runs.iter().any(|run| run.provenance.experiment == experiment);
    let counted = match (has(Experiment::Latency), has(Experiment::Overhead)) {
        (true, true) => "Instants and turns",
        (false, true) => "Turns",
        (_, false) => "Instants",
    };
    let plain = [
        ("Measured", when(false)),
        ("Imported", when(true)),
        ("With", distinct(&|run| run.provenance.tool.clone())),
        ("Machine", distinct(&machine)),
        ("Kernel", distinct(&kernel)),
        ("Measured CPU", known(by_kind(runs, |of| told::cpu(of.cpu, of.source)))),
        ("Times taken by", distinct(&|run| words::source(run.provenance.source).to_owned())),
        ("Period", known(distinct(&period))),
        ("Policy", known(by_kind(runs, |of| told::policy(of.schedule)))),
        ("Before each event", distinct(&dirty)),
        ("Loads wrote to", distinct(&wrote_to)),
        (counted, instants(runs)),
    ];
    let mut html = String::from("<dl>\n");
    for (name, said) in plain.into_iter().filter(|(_, said)| !said.is_empty()) {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&said));
    }
    for (name, said) in [("Kinds", kinds.concat()), ("Loads", loads.join("<br>"))] {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{said}</dd>");
    }
    html + "</dl>\n"
}

/// How often the timer came where its tick was asked to stop, of the runs that count it.
fn ticks(kind: Kind, runs: &[Run]) -> String {
    let of = runs.iter().map(|run| &run.provenance).filter(|run| run.kind == kind);
    let counted = of.filter_map(|run| Some((run.totals.ticks?, run.samples)));
    let sum =
        counted.reduce(|one, other| (one.0.saturating_add(other.0), one.1.saturating_add(other.1)));
    sum.filter(|_| kind == Kind::Partition).map_or_else(String::new, |(came, samples)| {
        format!("; the timer came {} times in {} samples", grouped(came), grouped(samples))
    })
}

fn is_import(run: &Run) -> bool {
    run.provenance.source == Source::Import
}

fn period(run: &Run) -> String {
    match (run.provenance.experiment, run.provenance.period_ns) {
        (_, Some(ns)) => format!("{} us", short_us(ns)),
        _ if is_import(run) => "not known (import)".to_owned(),
        (Experiment::Latency, None) => "at random".to_owned(),
        (Experiment::Overhead, None) => String::new(),
    }
}

/// What kinds have in common: `SCHED_OTHER (normal), SCHED_FIFO 80 (fifo, partition)`. Runs of one
/// kind that differ have their loads and names.
fn by_kind(runs: &[Run], of: fn(&Provenance) -> String) -> String {
    let mut all: Vec<&Run> = runs.iter().collect();
    all.sort_by_key(|run| run.provenance.kind);
    let rows = rows(runs, None);
    let named = |run: &Run| {
        let row = rows.iter().find(|row| Path::new(&row.dir) == run.dir);
        row.map_or_else(|| run.name(), |row| format!("{}/{}", row.load, row.name))
    };
    told::by_kind(all.into_iter().map(|run| Told {
        kind: run.provenance.kind.to_string(),
        name: named(run),
        value: of(&run.provenance),
    }))
}

fn dirty(run: &Run) -> String {
    if run.provenance.flood == Some(true) { "caches and TLB made dirty" } else { "" }.to_owned()
}

/// Empty of a load that does not write.
fn wrote_to(run: &Run) -> String {
    match &run.provenance.load_dir {
        _ if !run.provenance.load.writes() || is_import(run) => String::new(),
        Some(dir) => dir.to_string(),
        None => "an unknown file system".to_owned(),
    }
}

/// What a load does, and how many processes do it.
fn load_told(load: Load, said: &str, runs: &[Run]) -> String {
    // What an importer calls idle, asmp has not seen.
    let words = match load {
        Load::Idle if !said.is_empty() => "no load",
        load => words::load(load),
    };
    let mut told = format!("{load}: {said}{words}");
    let of = runs.iter().map(|run| &run.provenance).filter(|run| run.load == load);
    let size = |run: &Provenance| {
        let count = run.load_size.processes(load).filter(|count| *count > 0)?;
        Some(format!("{} processes on {} CPUs", grouped(count.into()), run.load_size.cpus))
    };
    let sizes: BTreeSet<String> = of.filter_map(size).collect();
    sizes.iter().for_each(|size| _ = write!(told, "; {size}"));
    told
}

/// Columns of another tool may be of the same activations: they are not added up.
fn instants(runs: &[Run]) -> String {
    let (columns, own): (Vec<&Run>, Vec<&Run>) =
        runs.iter().partition(|run| run.provenance.column.is_some());
    let sum = |of: fn(&Latencies) -> u64| {
        grouped(own.iter().map(|run| of(&run.latencies)).fold(0, u64::saturating_add))
    };
    let own = (!own.is_empty()).then(|| {
        format!(
            "{} in {} run{}, {} of them missed; {} samples lost",
            sum(Latencies::instants),
            grouped(own.len() as u64),
            if own.len() == 1 { "" } else { "s" },
            sum(Latencies::missed),
            sum(Latencies::lost)
        )
    });
    let counts = || columns.iter().map(|run| run.latencies.instants());
    let columns = counts().min().zip(counts().max()).map(|(least, most)| {
        let to = if most > least { format!(" to {}", grouped(most)) } else { String::new() };
        let columns = match columns.len() {
            1 => "a column".to_owned(),
            several => format!("each of {} columns", grouped(several as u64)),
        };
        format!("{}{to} in {columns} of another tool", grouped(least))
    });
    own.into_iter().chain(columns).collect::<Vec<_>>().join("; ")
}
