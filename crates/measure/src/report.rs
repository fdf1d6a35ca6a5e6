// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report: the papers' tables and figures of any runs, as text, JSON, or one HTML file that
//! needs no network and reads on a light and on a dark page.

use crate::noise::shown;
use crate::plot::{self, Series};
use crate::run::{Experiment, Run};
use crate::spaces;
use crate::summary::{PERCENTILES, Summary};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Version of the layout of the report in JSON.
pub const REPORT_SCHEMA: u32 = 1;

/// One line of a table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub experiment: Experiment,
    pub load: String,
    pub kind: String,
    pub dir: String,
    pub kernel: String,
    pub summary: Summary,
    /// Overhead: what handlers and other tasks took, the largest of a turn; the rest of the excess
    /// is the hypervisor's or the hardware's. `None` where that was not recorded, or of a latency.
    pub system_max_ns: Option<u64>,
    pub partial: Option<String>,
}

/// Rows in the papers' order: experiment, load, kind. What belongs to the table of `spaces` is left
/// out.
pub fn rows(runs: &[Run]) -> Vec<Row> {
    let mut rows: Vec<(_, Row)> = spaces::others(runs)
        .into_iter()
        .filter_map(|run| {
            let provenance = &run.provenance;
            let overhead = provenance.experiment == Experiment::Overhead;
            let recorded = provenance.not_recorded.is_none() && provenance.lost_records == 0;
            let row = Row {
                experiment: provenance.experiment,
                load: provenance.load.to_string(),
                kind: provenance.kind.to_string(),
                dir: run.dir.display().to_string(),
                kernel: provenance.machine.kernel.clone(),
                summary: run.summary()?,
                system_max_ns: run.system_ns().into_iter().max().filter(|_| overhead && recorded),
                partial: provenance.partial.clone(),
            };
            Some(((provenance.experiment, provenance.load, provenance.kind), row))
        })
        .collect();
    rows.sort_by_key(|(order, _)| *order);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The tables as text, one for each experiment and load, in microseconds.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut before = None;
    for row in rows {
        let heading = (row.experiment, row.load.clone());
        if before.as_ref() != Some(&heading) {
            let what = match row.experiment {
                Experiment::Latency => "Operating system latencies",
                Experiment::Overhead => "Operating system overheads",
            };
            let gap = if before.is_some() { "\n" } else { "" };
            let _ = writeln!(text, "{gap}{what} for the {} load (in microseconds)", row.load);
            let _ =
                write!(text, "{:<6}{:>11}{:>11}{:>11}{:>11}", "Proc", "Avg", "StDev", "Min", "Max");
            PERCENTILES.iter().for_each(|(name, _)| _ = write!(text, "{name:>13}"));
            let _ = writeln!(text, "{:>9}{:>6}", "n", "lost");
            before = Some(heading);
        }
        let us = |ns: f64| format!("{:.3}", ns / 1e3);
        let summary = &row.summary;
        let _ = write!(
            text,
            "{:<6}{:>11}{:>11}{:>11}{:>11}",
            row.kind,
            us(summary.average_ns),
            us(summary.deviation_ns),
            us(summary.min_ns as f64),
            us(summary.max_ns as f64)
        );
        for value in summary.percentiles_ns {
            let _ = write!(
                text,
                "{:>13}",
                value.map_or_else(|| "too few".to_owned(), |ns| us(ns as f64))
            );
        }
        let _ = write!(text, "{:>9}{:>6}", summary.samples, summary.lost);
        let _ = writeln!(
            text,
            "{}",
            row.partial.as_deref().map_or(String::new(), |_| "  partial".to_owned())
        );
        if let Some(system) = row.system_max_ns {
            let _ = writeln!(
                text,
                "      of which the system's own (interrupts, ticks, other tasks), largest: {}",
                us(system as f64)
            );
        }
    }
    text
}

/// Beside the papers': how much the shield is worth. `None` where a kind is missing.
pub fn ratios(rows: &[Row], load: &str) -> Option<String> {
    let of = |kind: &str| {
        rows.iter()
            .find(|row| {
                row.experiment == Experiment::Latency && row.load == load && row.kind == kind
            })
            .map(|row| &row.summary)
    };
    let (normal, bound, off) = (of("N")?, of("Rb")?, of("Aoff")?);
    Some(format!(
        "{load}: max(N)/max(Aoff) = {:.1} (ASMP-Linux, table 3, S3: 3688093) · sd(Rb)/sd(Aoff) = \
         {:.1} (S3: 26.0)\n",
        normal.max_ns as f64 / off.max_ns.max(1) as f64,
        bound.deviation_ns / off.deviation_ns.max(1.0),
    ))
}

/// One self-contained page. Errors: a figure could not be drawn.
pub fn html(all: &[Run]) -> Result<String, String> {
    let rows = rows(all);
    let mut runs: Vec<&Run> = all.iter().collect();
    runs.sort_by_key(|run| (run.provenance.experiment, run.provenance.load, run.provenance.kind));
    let mut page = String::from(HEAD);
    let _ = write!(page, "<h1>asmp measure</h1>\n<pre>{}</pre>\n", escape(&text(&rows)));
    address_spaces(&mut page, all).map_err(|error| error.to_string())?;
    for experiment in [Experiment::Latency, Experiment::Overhead] {
        let mut of = spaces::others(all);
        of.retain(|run| run.provenance.experiment == experiment && !run.samples.is_empty());
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
    let all: Vec<(&&Run, Vec<u64>, String)> =
        runs.iter().map(|run| (run, run.values(), run.name())).collect();
    let maxima: Vec<(usize, usize, u64)> = all
        .iter()
        .filter_map(|(run, values, _)| {
            let load = loads.iter().position(|load| *load == run.provenance.load)?;
            let kind = kinds.iter().position(|kind| *kind == run.provenance.kind)?;
            Some((load, kind, *values.iter().max()?))
        })
        .collect();
    let drawn = plot::maxima(
        &format!("{what}: largest sample by load and kind"),
        &loads.iter().map(ToString::to_string).collect::<Vec<_>>(),
        &kinds.iter().map(ToString::to_string).collect::<Vec<_>>(),
        &maxima,
    )?;
    figure(page, &drawn, &caption(runs));
    for load in &loads {
        let of: Vec<_> = all.iter().filter(|(run, ..)| run.provenance.load == *load).collect();
        let series: Vec<Series> =
            of.iter().map(|(_, values, name)| Series { name, values_ns: values }).collect();
        let of_load: Vec<&Run> = of.iter().map(|(run, ..)| **run).collect();
        let title = format!("{what}, {load}: inverse distribution");
        figure(page, &plot::inverse_distribution(&title, &series)?, &caption(&of_load));
        let title = format!("{what}, {load}: density");
        figure(page, &plot::density(&title, &series)?, &caption(&of_load));
        for (run, values, name) in of {
            let drawn = plot::scatter(
                &format!("{what}, {name}: every sample"),
                Series { name, values_ns: values },
            )?;
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
        .filter_map(|run| {
            kernels.insert(&run.provenance.machine.kernel);
            let summary = run.summary()?;
            let (unit, length) = plot::unit(summary.max_ns);
            Some(format!(
                "{}: n {}, max {:.1} {unit}, lost {}",
                run.name(),
                summary.samples,
                summary.max_ns as f64 / length,
                summary.lost
            ))
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
        let _ = writeln!(
            text,
            "sample {}: {:.1} us: {}",
            outlier.index,
            outlier.value_ns as f64 / 1e3,
            shown(&outlier.cause)
        );
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

    #[test]
    fn text_that_looks_like_markup_is_not() {
        assert_eq!(escape("<a & b>"), "&lt;a &amp; b&gt;");
    }
}
