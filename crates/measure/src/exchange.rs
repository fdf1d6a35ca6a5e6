// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of other tools: cyclictest `-h`, `rtla timerlat hist`, and HdrHistogram's percentile
//! text; out and in. Pure: text to text.
//!
//! A histogram has buckets of one microsecond; what lies beyond its last bucket is counted as
//! overflow, never put into it. An import therefore gives samples at the bottom of their
//! microsecond.

use crate::summary::{PERCENTILES, Summary};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;

/// Counts by microsecond of one column (CPU, or context of rtla).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    pub counts: BTreeMap<u64, u64>,
    /// Samples beyond the last bucket.
    pub overflow: u64,
    /// As the tool itself says; they know the overflow too.
    pub min_us: Option<u64>,
    pub avg_us: Option<u64>,
    pub max_us: Option<u64>,
}

impl Histogram {
    /// `buckets` microseconds from 0.
    pub fn of(values_ns: &[u64], buckets: u64) -> Self {
        let mut histogram = Self::default();
        for us in values_ns.iter().map(|ns| ns / 1000) {
            match us < buckets {
                true => *histogram.counts.entry(us).or_default() += 1,
                false => histogram.overflow += 1,
            }
        }
        let sum: u64 = values_ns.iter().map(|ns| ns / 1000).sum();
        histogram.min_us = values_ns.iter().min().map(|ns| ns / 1000);
        histogram.max_us = values_ns.iter().max().map(|ns| ns / 1000);
        histogram.avg_us = sum.checked_div(values_ns.len() as u64);
        histogram
    }

    pub fn count(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.overflow
    }

    /// A value in ns for each counted sample; those in the overflow have none.
    pub fn values_ns(&self) -> Vec<u64> {
        self.counts.iter().flat_map(|(us, count)| (0..*count).map(move |_| us * 1000)).collect()
    }
}

/// Formats that `asmp measure` writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Cyclictest,
    Rtla,
    Hdr,
    Csv,
    Prometheus,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "cyclictest" => Self::Cyclictest,
            "rtla" => Self::Rtla,
            "hdr" => Self::Hdr,
            "csv" => Self::Csv,
            "prometheus" => Self::Prometheus,
            _ => {
                let expected = "cyclictest, rtla, hdr, csv or prometheus";
                return Err(format!("invalid format {text:?}: expected {expected}"));
            }
        })
    }
}

/// cyclictest's `-h` output: a bucket a line, one column a thread, trailers with `#`.
pub fn to_cyclictest(histogram: &Histogram) -> String {
    let mut text = String::from("# Histogram\n");
    let last = histogram.counts.keys().next_back().copied().unwrap_or(0);
    for us in 0..=last {
        let _ = writeln!(text, "{us:06} {:06}", histogram.counts.get(&us).copied().unwrap_or(0));
    }
    let number = |value: Option<u64>| value.unwrap_or(0);
    let _ = writeln!(text, "# Total: {:09}", histogram.counts.values().sum::<u64>());
    let _ = writeln!(text, "# Min Latencies: {:05}", number(histogram.min_us));
    let _ = writeln!(text, "# Avg Latencies: {:05}", number(histogram.avg_us));
    let _ = writeln!(text, "# Max Latencies: {:05}", number(histogram.max_us));
    let _ = writeln!(text, "# Histogram Overflows: {:05}", histogram.overflow);
    text
}

/// One histogram for each column of cyclictest's `-h` output. Errors: the line that is none of it.
pub fn from_cyclictest(text: &str) -> Result<Vec<Histogram>, String> {
    let mut columns: Vec<Histogram> = Vec::new();
    let mut seen = false;
    for (number, line) in text.lines().enumerate() {
        let bad =
            || format!("line {}: expected output of cyclictest -h, found {line:?}", number + 1);
        if let Some(trailer) = line.strip_prefix("# ") {
            let Some((name, values)) = trailer.split_once(':') else { continue };
            for (at, value) in values.split_whitespace().enumerate() {
                // After the bucket table there is one trailer value a column; other trailers are
                // lists.
                let (Ok(value), Some(column)) = (value.parse::<u64>(), columns.get_mut(at)) else {
                    continue;
                };
                match name {
                    "Min Latencies" => column.min_us = Some(value),
                    "Avg Latencies" => column.avg_us = Some(value),
                    "Max Latencies" => column.max_us = Some(value),
                    "Histogram Overflows" => column.overflow = value,
                    _ => {}
                }
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            let us = words.next().and_then(Result::ok).ok_or_else(bad)?;
            for (at, count) in words.enumerate() {
                if columns.len() <= at {
                    columns.resize(at + 1, Histogram::default());
                }
                let count = count.map_err(|_| bad())?;
                if count > 0 {
                    *columns[at].counts.entry(us).or_default() += count;
                }
            }
            seen = true;
        } else if !line.trim().is_empty() && !line.starts_with(['#', '/', 'T', 'p']) {
            return Err(bad());
        }
    }
    if seen {
        Ok(columns)
    } else {
        Err("expected output of cyclictest -h, found no bucket".to_owned())
    }
}

/// `rtla timerlat hist`: columns `IRQ-NNN Thr-NNN Usr-NNN`; ours has the one of user space.
pub fn to_rtla(histogram: &Histogram, cpu: u32) -> String {
    let mut text = String::from("# RTLA timerlat histogram\n# Time unit is microseconds (us)\n");
    let _ = writeln!(text, "Index   Usr-{cpu:03}");
    for (us, count) in &histogram.counts {
        let _ = writeln!(text, "{us:<8}{count:>7}");
    }
    let line = |name: &str, value: Option<u64>| {
        value.map_or_else(
            || format!("{name:<8}{:>7}\n", "-"),
            |value| format!("{name:<8}{value:>7}\n"),
        )
    };
    text.push_str(&line("over:", Some(histogram.overflow)));
    text.push_str(&line("count:", Some(histogram.count())));
    text.push_str(&line("min:", histogram.min_us));
    text.push_str(&line("avg:", histogram.avg_us));
    text.push_str(&line("max:", histogram.max_us));
    text
}

/// The columns of `rtla timerlat hist`, by their headings. Errors: the line that is none of it.
pub fn from_rtla(text: &str) -> Result<Vec<(String, Histogram)>, String> {
    let mut columns: Vec<(String, Histogram)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "Index" {
            columns = words.map(|heading| (heading.to_owned(), Histogram::default())).collect();
            continue;
        }
        // Before the table: titles. After it: the same once more for all columns together.
        if columns.is_empty() || first.starts_with('#') {
            continue;
        }
        if first == "ALL:" {
            break;
        }
        for ((_, column), word) in columns.iter_mut().zip(words) {
            let value = match word {
                "-" => continue,
                word => word.parse::<u64>().map_err(|_| {
                    format!(
                        "line {}: expected output of rtla timerlat hist, found {line:?}",
                        number + 1
                    )
                })?,
            };
            match (first, first.parse::<u64>()) {
                (_, Ok(_)) if value == 0 => {}
                (_, Ok(us)) => *column.counts.entry(us).or_default() += value,
                ("over:", _) => column.overflow = value,
                ("min:", _) => column.min_us = Some(value),
                ("avg:", _) => column.avg_us = Some(value),
                ("max:", _) => column.max_us = Some(value),
                _ => {}
            }
        }
    }
    if columns.is_empty() {
        return Err("expected output of rtla timerlat hist, found no line `Index …`".to_owned());
    }
    Ok(columns)
}

/// HdrHistogram's percentile text (`Value Percentile TotalCount 1/(1-Percentile)`), values in us.
pub fn to_hdr(values_ns: &[u64]) -> String {
    let mut sorted: Vec<u64> = values_ns.iter().map(|ns| ns / 1000).collect();
    sorted.sort_unstable();
    let total = sorted.len();
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut at = 0;
    while at < total {
        let value = sorted[at];
        at = sorted.partition_point(|other| *other <= value);
        let percentile = at as f64 / total as f64;
        match at == total {
            true => _ = writeln!(text, "{value:>12}.000 {percentile:>14.12} {at:>10}"),
            false => {
                _ = writeln!(
                    text,
                    "{value:>12}.000 {percentile:>14.12} {at:>10} {:>14.2}",
                    1.0 / (1.0 - percentile)
                );
            }
        }
    }
    if let Some(summary) = Summary::of(&sorted, 0) {
        let _ = writeln!(
            text,
            "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]",
            summary.average_ns, summary.deviation_ns
        );
        let _ = writeln!(
            text,
            "#[Max     = {:>12.3}, Total count    = {total:>12}]",
            summary.max_ns as f64
        );
    }
    text
}

/// The histogram of a percentile text whose values are microseconds.
pub fn from_hdr(text: &str) -> Result<Histogram, String> {
    let mut histogram = Histogram::default();
    let (mut before, mut heading) = (0, false);
    for (number, line) in text.lines().enumerate() {
        let bad = || {
            format!("line {}: expected HdrHistogram's percentile text, found {line:?}", number + 1)
        };
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Value") => heading = true,
            None => {}
            Some(word) if word.starts_with('#') => {}
            Some(_) if !heading => return Err(bad()),
            Some(value) => {
                let us: f64 = value.parse().map_err(|_| bad())?;
                let count: u64 = words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(bad)?;
                if !us.is_finite() || us < 0.0 || count < before {
                    return Err(bad());
                }
                if count > before {
                    *histogram.counts.entry(us as u64).or_default() += count - before;
                }
                before = count;
            }
        }
    }
    if histogram.counts.is_empty() {
        return Err("expected HdrHistogram's percentile text, found no value".to_owned());
    }
    histogram.min_us = histogram.counts.keys().next().copied();
    histogram.max_us = histogram.counts.keys().next_back().copied();
    Ok(histogram)
}

/// One line a sample; empty where it was not recorded.
pub fn to_csv(samples: &[crate::sample::Sample]) -> String {
    let mut text = String::from(
        "due_ns,value_ns,handler_ns,system_ns,\
         ticks,device_interrupts,ipis,softirqs,switches,page_faults\n",
    );
    for sample in samples {
        let handler = sample.handler_ns.map_or_else(String::new, |ns| ns.to_string());
        let counts = sample.counts.map_or_else(
            || ",,,,,".to_owned(),
            |c| {
                format!(
                    "{},{},{},{},{},{}",
                    c.ticks, c.device_interrupts, c.ipis, c.softirqs, c.switches, c.page_faults
                )
            },
        );
        let _ = writeln!(
            text,
            "{},{},{handler},{},{counts}",
            sample.due_ns, sample.value_ns, sample.system_ns
        );
    }
    text
}

/// Prometheus' text format; seconds, as its conventions want.
pub fn to_prometheus(runs: &[(String, String, Summary)]) -> String {
    let mut text = String::new();
    let seconds = |ns: f64| ns / 1e9;
    for (metric, help) in [
        ("asmp_latency_seconds", "Latency or overhead by quantile."),
        ("asmp_latency_max_seconds", "Largest sample."),
        ("asmp_latency_samples", "Samples taken."),
        ("asmp_latency_lost", "Samples lost."),
    ] {
        let kind = if metric == "asmp_latency_seconds" { "summary" } else { "gauge" };
        let _ = writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
        for (load, kind, summary) in runs {
            let labels = format!("load=\"{load}\",kind=\"{kind}\"");
            match metric {
                "asmp_latency_seconds" => {
                    for ((name, _), value) in PERCENTILES.iter().zip(summary.percentiles_ns) {
                        let Some(value) = value else { continue };
                        let quantile = name[1..].parse::<f64>().unwrap_or(0.0) / 100.0;
                        let _ = writeln!(
                            text,
                            "{metric}{{{labels},quantile=\"{quantile}\"}} {}",
                            seconds(value as f64)
                        );
                    }
                    let _ = writeln!(
                        text,
                        "{metric}_sum{{{labels}}} {}",
                        seconds(summary.average_ns * summary.samples as f64)
                    );
                    let _ = writeln!(text, "{metric}_count{{{labels}}} {}", summary.samples);
                }
                "asmp_latency_max_seconds" => {
                    let _ =
                        writeln!(text, "{metric}{{{labels}}} {}", seconds(summary.max_ns as f64));
                }
                "asmp_latency_samples" => {
                    let _ = writeln!(text, "{metric}{{{labels}}} {}", summary.samples);
                }
                _ => _ = writeln!(text, "{metric}{{{labels}}} {}", summary.lost),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [u64; 6] = [3_000, 3_999, 4_000, 17_500, 17_900, 2_000_000];

    #[test]
    fn cyclictest_comes_back_as_it_went() {
        let histogram = Histogram::of(&VALUES, 400);
        assert_eq!((histogram.overflow, histogram.max_us), (1, Some(2000)));
        let text = to_cyclictest(&histogram);
        assert_eq!(from_cyclictest(&text).unwrap(), [histogram]);
    }

    #[test]
    fn rtla_comes_back_as_it_went() {
        let histogram = Histogram::of(&VALUES, 400);
        assert_eq!(
            from_rtla(&to_rtla(&histogram, 3)).unwrap(),
            [("Usr-003".to_owned(), histogram)]
        );
    }

    #[test]
    fn hdr_comes_back_as_it_went() {
        let histogram = Histogram::of(&VALUES, u64::MAX);
        let back = from_hdr(&to_hdr(&VALUES)).unwrap();
        assert_eq!((back.counts, back.max_us), (histogram.counts, histogram.max_us));
    }

    #[test]
    fn real_output_of_the_tools_is_read() {
        let cyclictest = include_str!("../tests/data/cyclictest.txt");
        let columns = from_cyclictest(cyclictest).unwrap();
        assert_eq!(columns.iter().map(Histogram::count).collect::<Vec<_>>(), [500, 462]);
        let rtla = include_str!("../tests/data/rtla.txt");
        let columns = from_rtla(rtla).unwrap();
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["IRQ-003", "Thr-003", "Usr-003"]);
        for (name, column) in &columns {
            assert!(
                column.count() > 0
                    && column.min_us <= column.avg_us
                    && column.avg_us <= column.max_us,
                "{name}"
            );
        }
        // Written again and read again nothing has changed.
        for (_, column) in columns {
            assert_eq!(from_rtla(&to_rtla(&column, 3)).unwrap()[0].1, column);
        }
    }

    #[test]
    fn garbage_names_its_line() {
        assert!(from_cyclictest("000001 x\n").unwrap_err().contains("line 1"));
        assert!(from_cyclictest("hello\n").unwrap_err().contains("hello"));
        assert!(from_rtla("hello\n").unwrap_err().contains("Index"));
        assert!(from_hdr("1 2 3\n").unwrap_err().contains("line 1"));
        assert!(from_hdr("Value\n1.0 0.5 9\n1.0 0.5 3\n").unwrap_err().contains("line 3"));
    }
}
