// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prometheus' text format: base units, one series a run (its directory is a label), counters that
//! end in `_total`.

use crate::run::{Experiment, Run};
use crate::summary::Summary;
use asmp_host::shown::deceives;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
            ("run", path(&run.dir)),
            ("load", provenance.load.to_string()),
            ("kind", provenance.kind.to_string()),
            ("source", provenance.source.word().to_owned()),
        ];
        labels.push(("kernel", provenance.machine.kernel.clone()));
        labels.extend(provenance.cpu.map(|cpu| ("cpu", cpu.to_string())));
        labels.extend(provenance.column.clone().map(|column| ("column", column)));
        labels.extend(provenance.partial.clone().map(|why| ("partial", why)));
        Self { experiment: provenance.experiment, labels, summary: run.summary() }
    }

    fn labels(&self) -> String {
        let label = |(name, value): &(&str, String)| {
            let value: String = value.chars().map(plain).collect();
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        };
        self.labels.iter().map(label).collect::<Vec<_>>().join(",")
    }
}

/// A directory as UTF-8, and no two as the same: bytes that are none are `%FF`, and `%` is `%25`.
fn path(dir: &Path) -> String {
    let mut text = String::new();
    for chunk in dir.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        chunk.invalid().iter().for_each(|byte| _ = write!(text, "%{byte:02X}"));
    }
    text
}

/// The format has escapes for `\\`, `"` and the newline alone: what else a terminal would obey is
/// written as its bytes.
fn plain(c: char) -> String {
    match c {
        '\n' => c.to_string(),
        c if deceives(c) => {
            c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")).collect()
        }
        c => c.to_string(),
    }
}

/// All runs; each may have its directory once.
pub fn to_prometheus(runs: &[Exported]) -> String {
    let mut text = String::new();
    for (experiment, name, what) in [
        (
            Experiment::Latency,
            "asmp_latency",
            "Latency of all instants, the missed ones included; of an import, of its samples",
        ),
        (Experiment::Overhead, "asmp_overhead", "What turns of the loop took beyond its base time"),
    ] {
        let of: Vec<&Exported> = runs.iter().filter(|run| run.experiment == experiment).collect();
        if of.is_empty() {
            continue;
        }
        let _ = writeln!(text, "# HELP {name}_seconds {what}.\n# TYPE {name}_seconds summary");
        of.iter().for_each(|run| text.push_str(&summary(name, run)));
        let max = |run: &Exported| run.summary.max_ns.map(seconds);
        family(
            &mut text,
            &format!("{name}_max_seconds"),
            "gauge",
            "The longest of them.",
            &of,
            max,
        );
        if experiment == Experiment::Latency {
            let help = "Instants that passed while the task was late for an earlier one.";
            let missed = |run: &Exported| run.summary.missed.map(|missed| missed.to_string());
            family(&mut text, &format!("{name}_missed_total"), "counter", help, &of, missed);
        }
        let help = "Samples lost because the probe's ring was full: their values are not known.";
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

/// Nothing where no run has a value.
fn family(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    runs: &[&Exported],
    value: impl Fn(&Exported) -> Option<String>,
) {
    let line = |run: &&Exported| Some(format!("{name}{{{}}} {}\n", run.labels(), value(run)?));
    let lines: String = runs.iter().filter_map(line).collect();
    if !lines.is_empty() {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::run::tests::provenance;
    use crate::run::{Run, Times};
    use std::ffi::OsStr;

    fn label(dir: &[u8]) -> String {
        let (latencies, times) = (Latencies::of([7]), Times::default());
        let dir = Path::new(OsStr::from_bytes(dir)).to_owned();
        let run = Run { dir, provenance: provenance(), latencies, times, system_max_ns: None };
        let text = to_prometheus(&[Exported::of(&run)]);
        let from = text.split_once("run=\"").expect("a label").1;
        from.split_once("\",load=").expect("its end").0.to_owned()
    }

    #[test]
    fn directories_that_differ_have_labels_that_differ_and_no_label_moves_a_terminal() {
        assert_eq!(label(b"a/b c"), "a/b c");
        assert_eq!(label(b"a\xff"), "a%FF");
        assert_eq!(label(b"a\xfe"), "a%FE");
        assert_eq!(label(b"a%FF"), "a%25FF");
        assert_eq!(label(b"a\x1b[2J\"\n\\"), "a%1B[2J\\\"\\n\\\\");
        assert_eq!(label("ü\u{202e}".as_bytes()), "ü%E2%80%AE");
    }
}
