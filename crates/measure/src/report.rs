// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report: the papers' tables and figures of any runs, as text, JSON, or one HTML file that
//! needs no network and reads on a light and on a dark page.

use crate::histogram::Above;
use crate::load::{Load, LoadDir};
use crate::noise::shown;
use crate::plot::{self, Columns, Series};
use crate::run::{Experiment, Run, Source};
use crate::spaces;
use crate::summary::Summary;
pub use crate::text::{beside_paper, text};
use asmp_host::{Cpu, Schedule};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Version of the layout of the report in JSON.
pub const REPORT_SCHEMA: u32 = 3;

/// One line of a table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub experiment: Experiment,
    pub load: String,
    pub kind: String,
    /// The kind, and what tells runs of one kind apart: column, thread, directory.
    pub name: String,
    /// Of an import: what the tool's column counted.
    pub column: Option<String>,
    pub dir: String,
    pub kernel: String,
    /// Times of a guest are no times of a machine.
    pub hypervisor: bool,
    pub source: Source,
    /// `None` where instants are random or there are none.
    pub period_ns: Option<u64>,
    /// `None` where the task was free to move.
    pub cpu: Option<Cpu>,
    pub schedule: Schedule,
    /// The papers' k: how many processes of the load for each CPU. `None` without a load.
    pub load_factor: Option<u32>,
    /// What a load that writes wrote to, where that is known.
    pub load_dir: Option<LoadDir>,
    pub summary: Summary,
    /// Instants above the limit that was asked for.
    pub above: Option<AboveLimit>,
    /// Overhead: what handlers and other tasks took, the largest of a turn; the rest of the excess
    /// is the hypervisor's or the hardware's. `None` where that was not recorded, or of a latency.
    pub system_max_ns: Option<u64>,
    pub partial: Option<String>,
}

/// Instants above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AboveLimit {
    pub limit_ns: u64,
    #[serde(flatten)]
    pub instants: Above,
}

/// Rows in the papers' order: experiment, load, kind. What belongs to the table of `spaces` is left
/// out. A run without samples has its row: there is no worse one.
pub fn rows(runs: &[Run], limit_ns: Option<u64>) -> Vec<Row> {
    let mut runs = spaces::others(runs);
    runs.sort_by_key(|run| (run.provenance.experiment, run.provenance.load, run.provenance.kind));
    let names = names(&runs);
    let row = |(run, name): (&Run, String)| {
        let provenance = &run.provenance;
        let recorded = provenance.not_recorded.is_none() && provenance.lost_records == 0;
        Row {
            experiment: provenance.experiment,
            load: provenance.load.to_string(),
            kind: provenance.kind.to_string(),
            name,
            column: provenance.column.clone(),
            dir: run.dir.display().to_string(),
            kernel: provenance.machine.kernel.clone(),
            hypervisor: provenance.machine.hypervisor,
            source: provenance.source,
            period_ns: provenance.period_ns,
            cpu: provenance.cpu,
            schedule: provenance.schedule,
            load_factor: (provenance.load != Load::Idl && provenance.load_size.per_cpu > 0)
                .then_some(provenance.load_size.per_cpu),
            load_dir: provenance.load_dir.clone(),
            summary: run.summary(),
            above: limit_ns
                .map(|limit_ns| AboveLimit { limit_ns, instants: run.latencies.above(limit_ns) }),
            system_max_ns: run.system_max_ns.filter(|_| recorded),
            partial: provenance.partial.clone(),
        }
    };
    runs.into_iter().zip(names).map(row).collect()
}

/// Names that tell the runs of one experiment and load apart: `partition`, `partition Usr-003`, and
/// where that does not, the directory too.
fn names(runs: &[&Run]) -> Vec<String> {
    let short =
        |run: &Run| run.name().split_once('/').map_or_else(String::new, |name| name.1.into());
    let last = |run: &Run| {
        let name = run.dir.file_name().unwrap_or_default();
        format!("{} {}", short(run), name.to_string_lossy())
    };
    let whole = |run: &Run| format!("{} {}", short(run), run.dir.display());
    let heading = |run: &Run| (run.provenance.experiment, run.provenance.load);
    let is_unique = |run: &Run, name: &dyn Fn(&Run) -> String| {
        let alike = |other: &&&Run| heading(other) == heading(run) && name(other) == name(run);
        runs.iter().filter(alike).count() == 1
    };
    let name = |run: &&Run| match (is_unique(run, &short), is_unique(run, &last)) {
        (true, _) => short(run),
        (_, true) => last(run),
        _ => whole(run),
    };
    runs.iter().map(name).collect()
}

/// One self-contained page. Errors: a figure could not be drawn.
pub fn html(all: &[Run], limit_ns: Option<u64>) -> Result<String, String> {
    let rows = rows(all, limit_ns);
    let mut runs: Vec<&Run> = all.iter().collect();
    runs.sort_by_key(|run| (run.provenance.experiment, run.provenance.load, run.provenance.kind));
    let mut page = String::from(HEAD);
    let _ = write!(page, "<h1>asmp measure</h1>\n<pre>{}</pre>\n", escape(&text(&rows)));
    address_spaces(&mut page, all).map_err(|error| error.to_string())?;
    for experiment in [Experiment::Latency, Experiment::Overhead] {
        let mut of = spaces::others(all);
        of.retain(|run| run.provenance.experiment == experiment && run.latencies.instants() > 0);
        of.sort_by_key(|run| (run.provenance.load, run.provenance.kind));
        if !of.is_empty() {
            figures(&mut page, experiment, &of).map_err(|error| error.to_string())?;
        }
    }
    page.push_str("<h2>Worst samples</h2>\n");
    for run in &runs {
        let _ = writeln!(
            page,
            "<h3>{}</h3>\n<pre>{}</pre>",
            escape(&run.name()),
            escape(&explain(run, 5))
        );
    }
    page.push_str("<h2>Provenance</h2>\n");
    for run in runs {
        let _ = writeln!(
            page,
            "<h3>{}</h3>\n<pre>{}</pre>",
            escape(&run.name()),
            escape(&provenance(run))
        );
    }
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn address_spaces(page: &mut String, runs: &[Run]) -> Result<(), Box<dyn std::error::Error>> {
    let table = spaces::text(&spaces::spaces(runs));
    if !table.is_empty() {
        let _ = writeln!(page, "<h2>Address spaces</h2>\n<pre>{}</pre>", escape(&table));
    }
    for one in spaces::figures(runs)? {
        figure(page, &one.svg, &caption(&one.runs));
    }
    Ok(())
}

fn figures(
    page: &mut String,
    experiment: Experiment,
    runs: &[&Run],
) -> Result<(), Box<dyn std::error::Error>> {
    let what = match experiment {
        Experiment::Latency => "Latency",
        Experiment::Overhead => "Overhead",
    };
    let _ = writeln!(page, "<h2>{what}</h2>");
    let loads: BTreeSet<_> = runs.iter().map(|run| run.provenance.load).collect();
    let kinds: BTreeSet<_> = runs.iter().map(|run| run.provenance.kind).collect();
    let short = names(runs);
    let name = |(run, short): (&&Run, String)| format!("{}/{short}", run.provenance.load);
    let all: Vec<(&Run, String)> =
        runs.iter().zip(short).map(|(run, short)| (*run, name((run, short)))).collect();
    let maxima: Vec<(usize, usize, u64)> = all
        .iter()
        .filter_map(|(run, _)| {
            let load = loads.iter().position(|load| *load == run.provenance.load)?;
            let kind = kinds.iter().position(|kind| *kind == run.provenance.kind)?;
            Some((load, kind, run.latencies.max_ns()?))
        })
        .collect();
    let drawn = plot::maxima(
        &format!("{what}: largest by load and kind"),
        &loads.iter().map(ToString::to_string).collect::<Vec<_>>(),
        &kinds.iter().map(ToString::to_string).collect::<Vec<_>>(),
        &maxima,
    )?;
    figure(page, &drawn, &caption(runs));
    for load in &loads {
        let of: Vec<_> = all.iter().filter(|(run, _)| run.provenance.load == *load).collect();
        let series: Vec<Series> =
            of.iter().map(|(run, name)| Series { name, latencies: &run.latencies }).collect();
        let of_load: Vec<&Run> = of.iter().map(|(run, _)| *run).collect();
        let title = format!("{what}, {load}: inverse distribution");
        figure(page, &plot::inverse_distribution(&title, &series)?, &caption(&of_load));
        let title = format!("{what}, {load}: density");
        figure(page, &plot::density(&title, &series)?, &caption(&of_load));
        for (run, name) in of.into_iter().filter(|(run, _)| run.has_samples()) {
            let mut columns = Columns::of(run.provenance.samples);
            let base_ns = run.base_ns();
            run.each_sample(|sample| columns.push(sample.value_ns.saturating_sub(base_ns)))?;
            let drawn = plot::scatter(&format!("{what}, {name}: samples"), name, columns)?;
            figure(page, &drawn, &caption(&[run]));
        }
    }
    Ok(())
}

fn figure(page: &mut String, svg: &str, caption: &str) {
    let _ = writeln!(page, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(caption));
}

/// Samples, maximum, lost, kernel, machine of what a figure shows.
fn caption(runs: &[&Run]) -> String {
    let mut kernels: BTreeSet<&str> = BTreeSet::new();
    let parts: Vec<String> = runs
        .iter()
        .map(|run| {
            kernels.insert(&run.provenance.machine.kernel);
            let summary = run.summary();
            let max = summary.max_ns.map_or_else(
                || "unknown".to_owned(),
                |max_ns| {
                    let (unit, length) = plot::unit(max_ns);
                    format!("{:.1} {unit}", max_ns as f64 / length)
                },
            );
            let Summary { instants, missed, lost, .. } = summary;
            let name = run.name();
            format!("{name}: n {instants}, max {max}, missed {missed}, lost {lost}")
        })
        .collect();
    let machine = runs.first().map_or(String::new(), |run| {
        let machine = &run.provenance.machine;
        let guest = if machine.hypervisor { ", a guest: no times of a machine" } else { "" };
        format!("{}{guest}", machine.cpu_model)
    });
    let kernels: Vec<&str> = kernels.into_iter().collect();
    format!("{} · kernel {} · {machine}", parts.join("; "), kernels.join(", "))
}

/// The worst samples of a run with their causes.
pub fn explain(run: &Run, count: usize) -> String {
    let mut text = String::new();
    if let Some(reason) = &run.provenance.not_recorded {
        let _ = writeln!(text, "causes were not recorded: {reason}");
    }
    if run.provenance.lost_records > 0 {
        let _ = writeln!(
            text,
            "{} records of the kernel were lost: causes are incomplete",
            run.provenance.lost_records
        );
    }
    for outlier in run.provenance.worst.iter().take(count) {
        let (index, us) = (outlier.index, outlier.value_ns as f64 / 1e3);
        let sentence = format!("sample {index}: {us:.1} us: {}", shown(&outlier.cause));
        let _ = writeln!(text, "{}", crate::explain::wrapped(&sentence));
        outlier.records.iter().for_each(|record| _ = writeln!(text, "    {}", shown(record)));
    }
    text
}

fn provenance(run: &Run) -> String {
    let mut of = run.provenance.clone();
    of.worst.clear();
    serde_json::to_string_pretty(&of).unwrap_or_default()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const HEAD: &str = r##"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>asmp measure</title>
<style>
:root { color-scheme: light dark; --ink: #1a1a1a; --page: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --page: #16181c; } }
body { color: var(--ink); background: var(--page); font: 15px/1.5 sans-serif; margin: 0; }
main { max-width: 960px; margin: 0 auto; padding: 1rem; }
pre { overflow-x: auto; font-size: 12px; }
figure { margin: 1.5rem 0; }
figcaption { font-size: 12px; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); }
svg [stroke="#000000"] { stroke: var(--ink); }
</style></head><body><main>
"##;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::run::tests::provenance;
    use crate::run::{Kind, Provenance, Times};

    fn run(dir: &str, kind: Kind, latencies: Latencies) -> Run {
        let provenance = Provenance { kind, samples: latencies.samples(), ..provenance() };
        let times = Times::default();
        Run { dir: dir.into(), provenance, latencies, times, system_max_ns: None }
    }

    #[test]
    fn runs_of_one_kind_are_told_apart() {
        let of = |dir: &str| run(dir, Kind::Aoff, Latencies::of([1]));
        let names = |runs: &[Run]| -> Vec<String> {
            rows(runs, None).into_iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&[of("a/mixed-partition")]), ["partition"]);
        assert_eq!(
            names(&[of("ab/tick-with-0"), of("ab/tick-without-0")]),
            ["partition tick-with-0", "partition tick-without-0"]
        );
        assert_eq!(
            names(&[of("a/mixed-partition"), of("b/mixed-partition")]),
            ["partition a/mixed-partition", "partition b/mixed-partition"]
        );
        let mut columns = [of("i/irq"), of("i/thr")];
        columns[0].provenance.column = Some("IRQ-003".into());
        columns[1].provenance.column = Some("Thr-003".into());
        assert_eq!(names(&columns), ["partition IRQ-003", "partition Thr-003"]);
    }

    #[test]
    fn text_that_looks_like_markup_is_not() {
        assert_eq!(escape("<a & b>"), "&lt;a &amp; b&gt;");
    }
}
