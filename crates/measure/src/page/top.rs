// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The top of the page: which kind is best and by what factor, what is above the limit, and what
//! was measured where. Pure.

use super::axis::grouped;
use super::shown::Shown;
use super::style::of_kind;
use super::table::{above, swatch};
use super::words::{self, date, escape, short_us, times, us};
use crate::histogram::Above;
use crate::run::{Experiment, Kind, Run, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// All runs of a kind together.
#[derive(Debug, Default)]
struct Together {
    n: u64,
    lost: u64,
    /// `None` where a run's longest are not known, or there is no instant.
    worst_ns: Option<u64>,
    is_unknown: bool,
    above: Option<Above>,
}

impl Together {
    fn add(&mut self, one: &Shown, limit_ns: Option<u64>) {
        let latencies = &one.run.latencies;
        self.n += latencies.instants();
        self.lost += latencies.lost();
        self.worst_ns = self.worst_ns.max(latencies.max_ns());
        self.is_unknown |= one.has_instants() && latencies.max_ns().is_none();
        if let Some(limit_ns) = limit_ns {
            let Above { at_least, at_most } = latencies.above(limit_ns);
            let sum = self.above.get_or_insert(Above { at_least: 0, at_most: 0 });
            sum.at_least += at_least;
            sum.at_most += at_most;
        }
    }
}

/// What is said of a load.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    pub best: String,
    /// The others, and what a reader must know of them; each a sentence.
    pub more: Vec<String>,
}

/// For each load: all worst ones from the best on, and what is above the limit.
pub fn verdicts(shown: &[Shown], limit_ns: Option<u64>) -> Vec<Verdict> {
    let mut groups: BTreeMap<_, BTreeMap<Kind, Together>> = BTreeMap::new();
    for one in shown {
        let group = groups.entry((one.experiment(), one.load())).or_default();
        group.entry(one.run.provenance.kind).or_default().add(one, limit_ns);
    }
    let several = groups.keys().any(|(experiment, _)| *experiment == Experiment::Overhead);
    let said = groups.iter().map(|((experiment, load), kinds)| {
        let what = match experiment {
            Experiment::Overhead => ", overhead",
            Experiment::Latency if several => ", latency",
            Experiment::Latency => "",
        };
        let (best, others) = ranking(kinds);
        let mut more: Vec<String> = others.into_iter().collect();
        more.extend(reservations(kinds));
        more.extend(limit_ns.map(|limit_ns| over(kinds, limit_ns)));
        Verdict { best: format!("{load}{what}: {best}"), more }
    });
    said.collect()
}

/// The best, and the others.
fn ranking(kinds: &BTreeMap<Kind, Together>) -> (String, Option<String>) {
    let known = kinds.iter().filter(|(_, one)| !one.is_unknown);
    let mut known: Vec<(u64, Kind, u64)> =
        known.filter_map(|(kind, one)| Some((one.worst_ns?, *kind, one.n))).collect();
    known.sort_unstable();
    let Some(((best_ns, kind, n), others)) = known.split_first() else {
        return ("no worst is known.".to_owned(), None);
    };
    let (best, n) = (us(*best_ns as f64), grouped(*n));
    if others.is_empty() {
        return (format!("the worst of {kind} is {best} us, of {n} instants."), None);
    }
    let others: Vec<String> = others
        .iter()
        .map(|(ns, kind, _)| {
            let factor = match best_ns {
                0 => String::new(),
                _ => format!(" ({} times)", times(*ns as f64 / *best_ns as f64)),
            };
            format!("{kind} {} us{factor}", us(*ns as f64))
        })
        .collect();
    let best = format!("{kind} has the best worst, {best} us of {n} instants.");
    (best, Some(format!("The others took longer: {}.", others.join(", "))))
}

/// What a reader must know before believing the ranking.
fn reservations(kinds: &BTreeMap<Kind, Together>) -> Vec<String> {
    let mut all = Vec::new();
    for (kind, one) in kinds {
        if one.n == 0 {
            all.push(format!("{kind} has no sample."));
        } else if one.is_unknown {
            all.push(format!("The worst of {kind} is not known."));
        }
        if one.lost > 0 {
            all.push(format!(
                "{kind} lost {} samples: a longer one may be among them.",
                grouped(one.lost)
            ));
        }
    }
    let counts = kinds.values().map(|one| one.n).filter(|n| *n > 0);
    let (least, most) = counts.fold((u64::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
    if most > least.saturating_mul(2) {
        all.push("The numbers of instants differ: more of them find a longer worst.".to_owned());
    }
    all
}

fn over(kinds: &BTreeMap<Kind, Together>, limit_ns: u64) -> String {
    let counts: Vec<String> = kinds
        .iter()
        .filter_map(|(kind, one)| {
            Some(format!("{kind} {} of {}", above(one.above?), grouped(one.n)))
        })
        .collect();
    format!("Above {} us: {}.", short_us(limit_ns), counts.join("; "))
}

/// What was measured, when, where and how; where runs differ, all of it.
pub fn facts(runs: &[Run]) -> String {
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
            return "not known (import)".to_owned();
        }
        let guest = if machine.hypervisor { ", a guest: no times of a machine" } else { "" };
        format!("{}, CPUs {} online{guest}", machine.cpu_model, machine.online_cpus.trim())
    };
    let kernel = |run: &Run| {
        let machine = &run.provenance.machine;
        format!("{} {}", machine.kernel.trim(), machine.kernel_version.trim())
    };
    let started = runs.iter().map(|run| run.provenance.started_s);
    let first = started.clone().min().map_or_else(String::new, date);
    let last = started.max().map_or_else(String::new, date);
    let when = if first == last { first } else { format!("{first} to {last}") };
    let sum = |of: &dyn Fn(&Run) -> u64| grouped(runs.iter().map(of).fold(0, u64::saturating_add));
    let instants = format!(
        "{} in {} runs, {} of them missed; {} samples lost",
        sum(&|run| run.latencies.instants()),
        grouped(runs.len() as u64),
        sum(&|run| run.latencies.missed()),
        sum(&|run| run.latencies.lost())
    );
    let kinds: BTreeSet<Kind> = runs.iter().map(|run| run.provenance.kind).collect();
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|kind| {
            let words = escape(words::kind(kind));
            format!("<span class=\"kind\">{}{kind}: {words}</span>", swatch(of_kind(kind)))
        })
        .collect();
    let loads: BTreeSet<_> = runs.iter().map(|run| run.provenance.load).collect();
    let loads: Vec<String> =
        loads.into_iter().map(|load| escape(&format!("{load}: {}", words::load(load)))).collect();
    let plain = [
        ("Measured", when),
        ("With", distinct(&|run| run.provenance.tool.clone())),
        ("Machine", distinct(&machine)),
        ("Kernel", distinct(&kernel)),
        ("Measured CPU", by_kind(runs, cpu)),
        ("Times by", distinct(&|run| words::source(run.provenance.source).to_owned())),
        ("Period", distinct(&period)),
        ("Policy", by_kind(runs, policy)),
        ("Load for each CPU", distinct(&size)),
        ("Instants", instants),
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

fn is_import(run: &Run) -> bool {
    run.provenance.source == Source::Import
}

fn cpu(run: &Run) -> String {
    match run.provenance.cpu {
        _ if is_import(run) => "not known (import)".to_owned(),
        Some(cpu) => cpu.to_string(),
        None => "any".to_owned(),
    }
}

fn period(run: &Run) -> String {
    match (run.provenance.experiment, run.provenance.period_ns) {
        (_, Some(ns)) => format!("{} us", short_us(ns)),
        _ if is_import(run) => "not known (import)".to_owned(),
        (Experiment::Latency, None) => "at random".to_owned(),
        (Experiment::Overhead, None) => String::new(),
    }
}

/// With its priority.
fn policy(run: &Run) -> String {
    match is_import(run) {
        true => "not known (import)".to_owned(),
        false => run.provenance.schedule.to_string(),
    }
}

/// What kinds have in common: `other (normal); fifo:80 (fifo, partition)`.
fn by_kind(runs: &[Run], of: fn(&Run) -> String) -> String {
    let mut all: Vec<(String, BTreeSet<Kind>)> = Vec::new();
    for run in runs {
        let said = of(run);
        match all.iter_mut().find(|(one, _)| *one == said) {
            Some((_, kinds)) => _ = kinds.insert(run.provenance.kind),
            None => all.push((said, BTreeSet::from([run.provenance.kind]))),
        }
    }
    let is_one = all.len() == 1;
    let told = all.into_iter().map(|(said, kinds)| {
        let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        if is_one { said } else { format!("{said} ({})", kinds.join(", ")) }
    });
    told.collect::<Vec<_>>().join("; ")
}

fn size(run: &Run) -> String {
    let provenance = &run.provenance;
    let flood = if provenance.flood { ", caches made dirty before each event" } else { "" };
    match provenance.load_commands.is_empty() {
        true => flood.trim_start_matches(", ").to_owned(),
        false => format!("{} processes{flood}", provenance.load_size.per_cpu),
    }
}
