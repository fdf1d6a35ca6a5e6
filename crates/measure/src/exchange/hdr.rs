// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HdrHistogram's percentile text (`Value Percentile TotalCount 1/(1-Percentile)`) and its logs.
//! Neither says its unit. Percentile texts are in microseconds with three decimals here, logs in
//! nanoseconds, unless the caller knows better.

use super::rows::values;
use super::{Column, named, shown, whole_lines};
use crate::histogram::{Beyond, Digits, Latencies, Rounding};
use crate::hlog::{self, ByTag, HlogError};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Marks our own texts. HdrHistogram's own have lines at chosen percentiles only.
const EACH: &str = "#[asmp: each value has its line]";

/// Nanoseconds as microseconds, digit by digit.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

/// As HdrHistogram prints it, in microseconds. What lies beyond the last bucket of an import has no
/// value and no count: the last percentile is then below 1, and a last line without a count of its
/// own says where that begins. NaN in the last lines: not known.
pub fn to_hdr(latencies: &Latencies) -> String {
    let total = latencies.instants();
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let values = values(latencies);
    let Some((last_ns, _)) = values.last().copied() else { return text };
    let mut at = 0;
    let beyond_ns = latencies.beyond().map(|beyond| beyond.from_ns).filter(|ns| *ns > last_ns);
    for (ns, count) in values.into_iter().chain(beyond_ns.map(|ns| (ns, 0))) {
        at += count;
        let percentile = at as f64 / total as f64;
        let _ = write!(text, "{:>12} {percentile:>14.12} {at:>10}", us(ns));
        let _ = match at == total {
            true => writeln!(text),
            false => writeln!(text, " {:>14.2}", 1.0 / (1.0 - percentile)),
        };
    }
    if latencies.rounding().spread_ns == 0 {
        let _ = writeln!(text, "{EACH}");
    }
    let mean = latencies.average_ns().map_or(f64::NAN, |ns| ns / 1e3);
    // HdrHistogram's divides by n.
    let of_all = ((total - 1) as f64 / total as f64).sqrt() / 1e3;
    let deviation = latencies.deviation_ns().map_or(f64::NAN, |ns| ns * of_all);
    let max = latencies.max_ns().map_or_else(|| "NaN".to_owned(), us);
    let _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
    let _ = writeln!(text, "#[Max     = {max:>12}, Total count    = {total:>12}]");
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
    let (all, partial) = log(text).map_err(|error| error.to_string())?;
    let mut columns: Vec<Column> = Vec::new();
    for (tag, latencies) in all {
        let tag = tag.unwrap_or_else(|| "all".to_owned());
        let name = named(&tag).filter(|name| columns.iter().all(|other| other.name != *name));
        let name = name.ok_or_else(|| {
            let tag = shown(&tag);
            format!("invalid tag {tag}: use letters, digits and '-'; \"all\" has no tag")
        })?;
        let mut latencies = scaled(latencies, unit_ns);
        if !hlog::is_ours(text) && latencies.missed() == 0 {
            latencies.forget_missed();
        }
        columns.push(Column { name, latencies, partial: partial.clone() });
    }
    match columns.is_empty() {
        true => Err(partial.unwrap_or_else(|| "it has no histogram".to_owned())),
        false => Ok(columns),
    }
}

/// The counts of a log by tag, and why they are not all: its last line is cut.
fn log(text: &str) -> Result<(ByTag, Option<String>), HlogError> {
    let read = |text: &str| match hlog::is_ours(text) {
        true => hlog::read(text.as_bytes(), |_| ()),
        false => hlog::read_foreign(text.as_bytes()),
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole == text.len() {
        let killed = hlog::is_ours(text) && !hlog::is_whole(text);
        let why = killed.then(|| "cut short: its last comments are missing".to_owned());
        return Ok((read(text)?, why));
    }
    // A line that only lacks its end counts.
    match read(&format!("{text}\n")) {
        Ok(all) => Ok((all, None)),
        Err(_) => Ok((read(&text[..whole])?, Some("its last line is cut".to_owned()))),
    }
}

/// Values of another unit in nanoseconds, each at the end of its bucket; the least, the longest and
/// the sums are those of the log.
fn scaled(latencies: Latencies, unit_ns: u64) -> Latencies {
    if unit_ns == 1 {
        return latencies;
    }
    let ns = |value: u64| value.saturating_mul(unit_ns);
    let mut in_ns = Latencies::new(Digits::Imported);
    for (value, count) in values(&latencies) {
        in_ns.record_many(ns(value), count);
    }
    let (exact, unit) = (latencies.exact(), u128::from(unit_ns));
    let scaled = |sum: Option<u128>, by: u128| sum.map(|sum| sum.saturating_mul(by));
    in_ns.tell(scaled(exact.sum_ns, unit), scaled(exact.squares, unit.saturating_mul(unit)));
    let widths = latencies.buckets().map(|bucket| bucket.to_ns - bucket.from_ns);
    in_ns.round(Rounding { spread_ns: ns(widths.max().unwrap_or(0)), cut_ns: 0 });
    in_ns
}

/// What the last lines of a percentile text say.
#[derive(Debug, Default)]
struct Ends {
    mean_ns: Option<f64>,
    deviation_ns: Option<f64>,
    max_ns: Option<u64>,
    /// `None` of a text that is cut short.
    instants: Option<u64>,
    /// No value is left out between two lines.
    is_each: bool,
}

/// Both values of a last line: `#[Max = 2.250, Total count = 10]`.
fn both(line: &str) -> Option<[&str; 2]> {
    let (one, other) = line.trim_end().trim_end_matches(']').split_once(',')?;
    Some([one.rsplit_once('=')?.1.trim(), other.rsplit_once('=')?.1.trim()])
}

fn from_percentiles(text: &str, unit_ns: u64) -> Result<Column, String> {
    // By the nanosecond: values have a fraction.
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut before, mut end_ns, mut heading, mut ends) = (0, 0, false, Ends::default());
    for (number, line) in whole_lines(text).lines().enumerate() {
        let bad = || {
            let (number, line) = (number + 1, shown(line));
            format!("line {number}: expected HdrHistogram's log or percentile text, found {line}")
        };
        let in_ns = |word: &str| -> Result<f64, String> {
            let value: f64 = word.parse().map_err(|_| bad())?;
            if value < 0.0 || value.is_infinite() { Err(bad()) } else { Ok(value * unit_ns as f64) }
        };
        // NaN: not known.
        let known = |word: &str| in_ns(word).map(|ns| Some(ns).filter(|ns| !ns.is_nan()));
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Value") => heading = true,
            None => {}
            Some(word) if word.starts_with("#[Mean") => {
                let [mean, deviation] = both(line).ok_or_else(bad)?;
                (ends.mean_ns, ends.deviation_ns) = (known(mean)?, known(deviation)?);
            }
            Some(word) if word.starts_with("#[Max") => {
                let [max, instants] = both(line).ok_or_else(bad)?;
                ends.max_ns = known(max)?.map(|ns| ns.round() as u64);
                // Python's hdrh gives it three decimals.
                let whole = instants.trim_end_matches('0').strip_suffix('.').unwrap_or(instants);
                ends.instants = Some(whole.parse().map_err(|_| bad())?);
                ends.instants.filter(|instants| *instants >= before).ok_or_else(bad)?;
            }
            Some(word) if word.starts_with('#') => ends.is_each |= line.trim_end() == EACH,
            Some(_) if !heading => return Err(bad()),
            Some(value) => {
                let ns = known(value)?.ok_or_else(bad)?.round() as u64;
                let count: u64 = words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(bad)?;
                match count.checked_sub(before).ok_or_else(bad)? {
                    0 => end_ns = ns,
                    more => *counts.entry(ns).or_default() += more,
                }
                before = count;
            }
        }
    }
    let Some(last_ns) = counts.keys().next_back().copied() else {
        return Err("expected HdrHistogram's log or percentile text, found no value".to_owned());
    };
    // Its values may be the ends of buckets, the widest of which are a tenth of their value.
    if let Some(max_ns) = ends.max_ns.filter(|max_ns| *max_ns < last_ns - last_ns / 10) {
        return Err(format!("its last value is {last_ns} ns, and its `Max` {max_ns} ns"));
    }
    let from_ns = end_ns.max(last_ns.saturating_add(1));
    let latencies = ends.latencies(&counts, before, from_ns);
    let why = "cut short: it has no line `#[Max`";
    let partial = ends.instants.is_none().then(|| why.to_owned());
    Ok(Column { name: "all".to_owned(), latencies, partial })
}

impl Ends {
    /// Of lines that count `within` instants. What they do not count took `from_ns` or longer.
    /// Mean, deviation and longest are as the text tells them.
    fn latencies(&self, counts: &BTreeMap<u64, u64>, within: u64, from_ns: u64) -> Latencies {
        let overflow = self.instants.unwrap_or(within).saturating_sub(within);
        let longest_ns = self.max_ns.filter(|_| overflow == 0);
        let last_ns = counts.keys().next_back().copied();
        let mut latencies = Latencies::new(Digits::Imported);
        let (mut before_ns, mut gap_ns) = (None, 0);
        for (ns, count) in counts {
            let value_ns = match longest_ns {
                Some(max_ns) if Some(*ns) == last_ns => max_ns,
                Some(max_ns) => max_ns.min(*ns),
                None => *ns,
            };
            latencies.record_many(value_ns, *count);
            gap_ns =
                gap_ns.max(before_ns.map_or(0, |before_ns| value_ns.saturating_sub(before_ns)));
            before_ns = Some(value_ns);
        }
        // HdrHistogram's own lines leave values out: an instant lies above the line before.
        let spread_ns = if self.is_each { 0 } else { gap_ns };
        let exact = latencies.exact();
        let n = self.instants.unwrap_or(within);
        let told_ns = self.mean_ns.map(|mean_ns| (mean_ns * n as f64).round() as u128);
        let mut sum_beyond_ns = None;
        match told_ns {
            None => {
                let [sum_ns, squares] =
                    [exact.sum_ns, exact.squares].map(|sum| sum.filter(|_| self.is_each));
                latencies.tell(sum_ns, squares);
            }
            // Only the sum of both is told, and used.
            Some(all_ns) if overflow > 0 => {
                let within_ns = exact.sum_ns.unwrap_or(0).min(all_ns);
                sum_beyond_ns = Some(all_ns - within_ns);
                latencies.tell(Some(within_ns), None);
            }
            Some(all_ns) => {
                let squares = self.deviation_ns.and_then(|ns| {
                    let of_mean = all_ns.checked_mul(all_ns)?.div_ceil(u128::from(n.max(1)));
                    of_mean.checked_add((ns * ns * n as f64).round() as u128)
                });
                latencies.tell(Some(all_ns), squares);
            }
        }
        // An export of what another tool has cut to whole microseconds.
        let is_cut = self.is_each && counts.keys().all(|ns| ns.is_multiple_of(1000));
        latencies.round(Rounding { spread_ns, cut_ns: if is_cut { 999 } else { 0 } });
        let max_ns = self.max_ns.map(|max_ns| max_ns.max(from_ns));
        latencies.exceed(Beyond { instants: overflow, from_ns, max_ns, sum_ns: sum_beyond_ns });
        latencies
    }
}
