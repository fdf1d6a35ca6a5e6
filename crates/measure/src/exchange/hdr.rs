// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HdrHistogram's percentile text (`Value Percentile TotalCount 1/(1-Percentile)`), values in
//! microseconds.

use super::rows::Rows;
use super::{Column, shown};
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

/// The one column of a percentile text whose values are microseconds.
pub fn from_hdr(text: &str) -> Result<Column, String> {
    let mut rows = Rows::default();
    let (mut before, mut heading) = (0, false);
    for (number, line) in text.lines().enumerate() {
        let bad = || {
            let line = shown(line);
            format!("line {}: expected HdrHistogram's percentile text, found {line}", number + 1)
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
                let max: f64 = max.and_then(|word| word.trim().parse().ok()).ok_or_else(bad)?;
                rows.overflow = total.checked_sub(before).ok_or_else(bad)?;
                rows.max = (rows.overflow > 0).then_some(max as u64);
            }
            Some(word) if word.starts_with('#') => {}
            Some(_) if !heading => return Err(bad()),
            Some(value) => {
                let us: f64 = value.parse().map_err(|_| bad())?;
                let count: u64 = words.nth(1).and_then(|word| word.parse().ok()).ok_or_else(bad)?;
                if !us.is_finite() || us < 0.0 || count < before {
                    return Err(bad());
                }
                if count > before {
                    *rows.counts.entry(us as u64).or_default() += count - before;
                }
                before = count;
            }
        }
    }
    if rows.counts.is_empty() {
        return Err("expected HdrHistogram's percentile text, found no value".to_owned());
    }
    rows.end = rows.counts.keys().next_back().map_or(0, |us| us.saturating_add(1));
    Ok(Column { name: "all".to_owned(), latencies: rows.latencies(1000) })
}
