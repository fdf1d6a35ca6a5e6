// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HdrHistogram's percentile text (`Value Percentile TotalCount 1/(1-Percentile)`) and its logs.
//! Neither says its unit. Percentile texts are in microseconds here, logs in nanoseconds, unless
//! the caller knows better.

use super::rows::Rows;
use super::{Column, named, shown};
use crate::histogram::{Digits, Latencies};
use crate::hlog;
use std::fmt::Write;

/// As HdrHistogram prints it. What lies beyond the last bucket of an import has no value and no
/// line: the last percentile is then below 1.
pub fn to_hdr(rows: &Rows) -> String {
    let total = rows.instants();
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let (mut at, mut sum, mut squares) = (0, 0.0, 0.0);
    for (value, count) in &rows.counts {
        at += count;
        sum += *value as f64 * *count as f64;
        squares += (*value as f64).powi(2) * *count as f64;
        let percentile = at as f64 / total as f64;
        let _ = write!(text, "{value:>12}.000 {percentile:>14.12} {at:>10}");
        let _ = match at == total {
            true => writeln!(text),
            false => writeln!(text, " {:>14.2}", 1.0 / (1.0 - percentile)),
        };
    }
    if at > 0 {
        let mean = sum / at as f64;
        let deviation = (squares / at as f64 - mean * mean).max(0.0).sqrt();
        let max = rows.max.unwrap_or(0) as f64;
        let _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
        let _ = writeln!(text, "#[Max     = {max:>12.3}, Total count    = {total:>12}]");
    }
    text
}

/// How each histogram of a log begins: the cookie of V2, compressed, in base64.
const IN_LOG: &str = ",HISTF";
const US_NS: u64 = 1000;

/// The columns of a log, one for each tag, or the one of a percentile text. `unit_ns`: what a value
/// of 1 stands for.
pub fn from_hdr(text: &str, unit_ns: Option<u64>) -> Result<Vec<Column>, String> {
    match text.contains(IN_LOG) {
        true => from_log(text, unit_ns.unwrap_or(1)),
        false => from_percentiles(text, unit_ns.unwrap_or(US_NS)).map(|one| vec![one]),
    }
}

fn from_log(text: &str, unit_ns: u64) -> Result<Vec<Column>, String> {
    let all = hlog::read(text.as_bytes(), |_| ()).map_err(|error| error.to_string())?;
    let mut columns: Vec<Column> = Vec::new();
    for (tag, latencies) in all {
        let tag = tag.unwrap_or_else(|| "all".to_owned());
        let name = named(&tag).filter(|name| columns.iter().all(|other| other.name != *name));
        let name = name.ok_or_else(|| {
            let tag = shown(&tag);
            format!("invalid tag {tag}: use letters, digits and '-'; \"all\" has no tag")
        })?;
        let latencies = scaled(latencies, unit_ns);
        columns.push(Column { name, latencies, partial: None });
    }
    Ok(columns)
}

/// Values of another unit in nanoseconds, each at the end of its bucket.
fn scaled(latencies: Latencies, unit_ns: u64) -> Latencies {
    if unit_ns == 1 {
        return latencies;
    }
    let mut in_ns = Latencies::new(Digits::Imported);
    for bucket in latencies.buckets() {
        in_ns.record_many(bucket.to_ns.saturating_mul(unit_ns), bucket.instants);
    }
    in_ns
}

fn from_percentiles(text: &str, unit_ns: u64) -> Result<Column, String> {
    // By the nanosecond: values may have a fraction.
    let mut rows = Rows::default();
    let (mut before, mut heading, mut said_max_ns) = (0, false, None);
    for (number, line) in text.lines().enumerate() {
        let bad = || {
            let (number, line) = (number + 1, shown(line));
            format!("line {number}: expected HdrHistogram's log or percentile text, found {line}")
        };
        let in_ns = |word: &str| {
            let value: f64 = word.trim().parse().ok()?;
            (value.is_finite() && value >= 0.0).then(|| (value * unit_ns as f64).round() as u64)
        };
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Value") => heading = true,
            None => {}
            Some(word) if word.starts_with("#[Max") => {
                let total =
                    line.rsplit_once('=').map(|(_, word)| word.trim_end_matches(']').trim());
                let total: u64 = total.and_then(|word| word.parse().ok()).ok_or_else(bad)?;
                let max = line.split_once('=').and_then(|(_, rest)| rest.split(',').next());
                let max_ns = max.and_then(in_ns).ok_or_else(bad)?;
                said_max_ns = Some(max_ns);
                rows.overflow = total.checked_sub(before).ok_or_else(bad)?;
                rows.max = (rows.overflow > 0).then_some(max_ns);
            }
            Some(word) if word.starts_with('#') => {}
            Some(_) if !heading => return Err(bad()),
            Some(value) => {
                let ns = in_ns(value).ok_or_else(bad)?;
                let count: u64 = words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(bad)?;
                let more = count.checked_sub(before).ok_or_else(bad)?;
                if more > 0 {
                    *rows.counts.entry(ns).or_default() += more;
                }
                before = count;
            }
        }
    }
    let Some(last_ns) = rows.counts.keys().next_back() else {
        return Err("expected HdrHistogram's log or percentile text, found no value".to_owned());
    };
    // Its values may be the ends of buckets, the widest of which are a tenth of their value.
    if let Some(max_ns) = said_max_ns.filter(|max_ns| *max_ns < last_ns - last_ns / 10) {
        return Err(format!("its last value is {last_ns} ns, and its `Max` {max_ns} ns"));
    }
    rows.end = last_ns.saturating_add(unit_ns);
    let why = "cut short: it has no line `#[Max`";
    let partial = said_max_ns.is_none().then(|| why.to_owned());
    Ok(Column { name: "all".to_owned(), latencies: rows.latencies(1), partial })
}
