// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prometheus' text format: base units, one series a run (its directory is a label), counters that
//! end in `_total`.

use crate::run::{Experiment, Run};
use crate::summary::Summary;
use std::fmt::Write;

/// A run as Prometheus names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Exported {
    pub experiment: Experiment,
    pub labels: Vec<(&'static str, String)>,
    pub summary: Summary,
}

impl Exported {
    pub fn of(run: &Run) -> Self {
        let provenance = &run.provenance;
        let mut labels = vec![
            ("run", run.dir.display().to_string()),
            ("load", provenance.load.to_string()),
            ("kind", provenance.kind.to_string()),
            ("source", format!("{:?}", provenance.source).to_lowercase()),
        ];
        labels.extend(provenance.column.clone().map(|column| ("column", column)));
        Self { experiment: provenance.experiment, labels, summary: run.summary() }
    }

    fn labels(&self) -> String {
        let label = |(name, value): &(&str, String)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        };
        self.labels.iter().map(label).collect::<Vec<_>>().join(",")
    }
}

/// All runs; each may have its directory once.
pub fn to_prometheus(runs: &[Exported]) -> String {
    let mut text = String::new();
    for (experiment, name, what) in [
        (Experiment::Latency, "asmp_latency", "Latency of all instants, the missed ones included"),
        (Experiment::Overhead, "asmp_overhead", "What turns of the loop took beyond its base time"),
    ] {
        let of: Vec<&Exported> = runs.iter().filter(|run| run.experiment == experiment).collect();
        if of.is_empty() {
            continue;
        }
        let _ = writeln!(text, "# HELP {name}_seconds {what}.\n# TYPE {name}_seconds summary");
        of.iter().for_each(|run| text.push_str(&summary(name, run)));
        let max = |run: &Exported| run.summary.max_ns.map(seconds);
        family(&mut text, &format!("{name}_max_seconds"), "gauge", "The longest.", &of, max);
        if experiment == Experiment::Latency {
            let help = "Instants that passed while the task was late for an earlier one.";
            let missed = |run: &Exported| Some(run.summary.missed.to_string());
            family(&mut text, &format!("{name}_missed_total"), "counter", help, &of, missed);
        }
        let help = "Samples that found no room: their values are not known.";
        let lost = |run: &Exported| Some(run.summary.lost.to_string());
        family(&mut text, &format!("{name}_lost_total"), "counter", help, &of, lost);
    }
    text
}

/// Quantiles that the run supports and whose value is known, sum and count.
fn summary(name: &str, run: &Exported) -> String {
    let (labels, summary) = (run.labels(), &run.summary);
    let mut text = String::new();
    for figure in summary.percentiles.iter().filter(|figure| !figure.or_more) {
        let part = quantile(figure.name);
        let value = seconds(figure.ns);
        let _ = writeln!(text, "{name}_seconds{{{labels},quantile=\"{part}\"}} {value}");
    }
    // An import that does not say how long its longest are has no sum.
    let sum = match (summary.average_ns, summary.instants) {
        (_, 0) => Some(0.0),
        (average_ns, instants) => average_ns.map(|ns| ns / 1e9 * instants as f64),
    };
    if let Some(sum) = sum {
        let _ = writeln!(text, "{name}_seconds_sum{{{labels}}} {sum}");
    }
    let _ = writeln!(text, "{name}_seconds_count{{{labels}}} {}", summary.instants);
    text
}

/// `p99.9` as `0.999`, digit by digit.
fn quantile(name: &str) -> String {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    format!("0.{}", digits.trim_end_matches('0'))
}

/// Whole nanoseconds in seconds, digit by digit.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    runs: &[&Exported],
    value: impl Fn(&Exported) -> Option<String>,
) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for run in runs {
        if let Some(value) = value(run) {
            let _ = writeln!(text, "{name}{{{}}} {value}", run.labels());
        }
    }
}
