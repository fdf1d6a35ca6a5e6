// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts by the whole unit of another tool, with what its last lines say.

use crate::histogram::{Beyond, Digits, Latencies, Rounding};
use std::collections::BTreeMap;

/// HdrHistogram's counts have a sign.
const MOST_INSTANTS: u64 = i64::MAX as u64;

/// One column: counts by microsecond, or by the unit that the tool's header names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    /// By the first value of each row.
    pub counts: BTreeMap<u64, u64>,
    /// The first value that has no row.
    pub end: u64,
    /// The last value of a row less its first: 0 for rows of one unit.
    pub spread: u64,
    /// Instants at or beyond `end`.
    pub overflow: u64,
    /// As the tool itself says; they know the overflow too.
    pub min: Option<u64>,
    pub avg: Option<u64>,
    pub max: Option<u64>,
}

impl Rows {
    /// By microsecond, `end_us` of them. Times are cut to whole microseconds, as those tools cut
    /// theirs: 14.9 us is in row 14. What is known of an instant is the end of its bucket, so its
    /// row may be a bucket too high.
    pub fn of(latencies: &Latencies, end_us: u64) -> Self {
        let beyond = latencies.beyond();
        let mut rows = Self::default();
        let mut sum: u128 = 0;
        for (ns, instants) in values(latencies) {
            let us = ns / 1000;
            sum += u128::from(us) * u128::from(instants);
            rows.min.get_or_insert(us);
            rows.max = Some(us);
            match us < end_us {
                true => *rows.counts.entry(us).or_default() += instants,
                false => rows.overflow += instants,
            }
        }
        let last = rows.counts.keys().next_back().map_or(0, |us| us + 1);
        rows.end = if rows.overflow > 0 { end_us } else { last };
        if let Some(beyond) = beyond {
            let from_us = beyond.from_ns / 1000;
            rows.end = if rows.overflow > 0 { rows.end } else { from_us.clamp(last, end_us) };
            rows.overflow += beyond.instants;
            rows.min.get_or_insert(from_us);
            rows.max = beyond.max_ns.map(|ns| ns / 1000);
        }
        // Of whole microseconds; what another tool has told stays.
        let sum_us = match latencies.digits() {
            Digits::Measured if beyond.is_none() => Some(sum),
            _ => latencies.sum_ns().map(|ns| ns / 1000),
        };
        let average = sum_us.and_then(|sum| sum.checked_div(u128::from(latencies.instants())));
        rows.avg = average.and_then(|us| u64::try_from(us).ok());
        rows
    }

    /// The same by the rows of an import that are wider than a microsecond.
    pub fn as_wide(latencies: &Latencies, end_us: u64) -> Self {
        let mut rows = Self::of(latencies, end_us);
        let width = latencies.rounding().spread_ns / 1000 + 1;
        let is_end = |us: &u64| (us + 1).is_multiple_of(width);
        let is_extreme = |us: &u64| rows.min == Some(*us) || rows.max == Some(*us);
        if rows.counts.keys().all(|us| is_end(us) || is_extreme(us)) {
            let mut counts = BTreeMap::new();
            for (us, count) in &rows.counts {
                *counts.entry(us / width * width).or_default() += count;
            }
            (rows.counts, rows.spread) = (counts, width - 1);
        }
        rows
    }

    /// Instants that have a row.
    pub fn within(&self) -> u64 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn instants(&self) -> u64 {
        self.within().saturating_add(self.overflow)
    }

    /// Errors: the tool's own longest lies below its last row, or above it where nothing
    /// overflowed. What overflowed is known of a whole file.
    pub fn check_max(&self, column: &str, is_whole: bool) -> Result<(), String> {
        let (Some(max), Some(last)) = (self.max, self.counts.keys().next_back()) else {
            return Ok(());
        };
        if max < *last || (is_whole && self.overflow == 0 && max > *last) {
            return Err(format!("{column}: its last row is {last}, and its maximum {max}"));
        }
        Ok(())
    }

    /// As latencies, in units of `unit_ns`. An instant lies somewhere in its row; it counts at the
    /// row's last unit, cut to whole units as the tool cuts its least and its longest. Those are
    /// instants of the first and the last row, and the tool's average is that of all. Errors: a
    /// least that is not in the first row, an average that is not between the two, more instants
    /// than a file of HdrHistogram takes.
    pub fn latencies(&self, unit_ns: u64) -> Result<Latencies, String> {
        let ns = |value: u64| value.saturating_mul(unit_ns);
        if self.instants() > MOST_INSTANTS {
            return Err(format!("more than {MOST_INSTANTS} instants"));
        }
        let is_between = |avg: &u64| {
            self.min.is_none_or(|min| min <= *avg) && self.max.is_none_or(|max| *avg <= max)
        };
        if let Some(avg) = self.avg.filter(|avg| !is_between(avg)) {
            return Err(format!("its average {avg} is not between its minimum and its maximum"));
        }
        let mut latencies = Latencies::new(Digits::Imported);
        let mut spread = self.spread;
        let (first, last) = (self.counts.keys().next(), self.counts.keys().next_back());
        for (start, count) in &self.counts {
            let end = start.saturating_add(self.spread);
            let value = match self.max {
                // Nothing is longer: it is one of this row.
                Some(max) if Some(start) == last && self.overflow == 0 => max,
                Some(max) => end.min(max).max(*start),
                None => end,
            };
            spread = spread.max(value.saturating_sub(*start));
            let least = self.min.filter(|_| Some(start) == first);
            if let Some(min) = least {
                let is_all = *count == 1 && self.max == Some(value) && self.overflow == 0;
                if !(*start..=value).contains(&min) || (is_all && first == last && min != value) {
                    return Err(format!("its first row is {start}, and its minimum {min}"));
                }
                latencies.record_many(ns(min), 1);
            }
            let others = count.saturating_sub(u64::from(least.is_some()));
            latencies.record_many(ns(value), others);
        }
        // Where there is no row at all, the least is what the tool says.
        let from = if self.counts.is_empty() { self.min.unwrap_or(0) } else { 0 }.max(self.end);
        let from_ns = ns(from);
        let max_ns = self.max.map(|max| ns(max).max(from_ns));
        let sum_ns = self.sums(&mut latencies, unit_ns);
        let cut_ns = unit_ns.saturating_sub(1);
        latencies.round(Rounding { spread_ns: ns(spread), cut_ns });
        latencies.exceed(Beyond { instants: self.overflow, from_ns, max_ns, sum_ns });
        Ok(latencies)
    }

    /// Tells the latencies of the rows their sums, and returns that of the overflow.
    fn sums(&self, latencies: &mut Latencies, unit_ns: u64) -> Option<u128> {
        let (n, unit) = (u128::from(self.instants()), u128::from(unit_ns));
        let exact = latencies.exact();
        // Wide rows do not say it.
        let of_rows = exact.sum_ns.filter(|_| self.spread == 0);
        let squares = exact.squares.filter(|_| self.spread == 0);
        let Some(avg) = self.avg.filter(|_| n > 0).map(u128::from) else {
            latencies.tell(of_rows, squares);
            return None;
        };
        let all = avg.saturating_mul(unit).saturating_mul(n);
        if self.overflow > 0 {
            // Only the sum of both is told, and used.
            let within = exact.sum_ns.unwrap_or(0).min(all);
            latencies.tell(Some(within), squares);
            return Some(all - within);
        }
        // Rows of one unit have the same average, and its fraction.
        match of_rows.is_some_and(|sum_ns| sum_ns / n / unit.max(1) == avg) {
            true => latencies.tell(of_rows, squares),
            false => latencies.tell(Some(all), None),
        }
        None
    }
}

/// Ends of the buckets with their counts; the least and the longest, which are known, as they are.
pub fn values(latencies: &Latencies) -> Vec<(u64, u64)> {
    let exact = latencies.exact();
    let end_ns = |to_ns: u64| exact.max_ns.map_or(to_ns, |max_ns| to_ns.min(max_ns));
    let of = latencies.buckets().map(|bucket| (end_ns(bucket.to_ns), bucket.instants));
    let mut values: Vec<(u64, u64)> = of.collect();
    if let Some((min_ns, first)) = exact.min_ns.zip(values.first_mut())
        && min_ns < first.0
    {
        first.1 -= 1;
        values.insert(0, (min_ns, 1));
    }
    values.retain(|(_, instants)| *instants > 0);
    values
}

/// The most that rows at these places may be wide: each is a multiple of the width. 0 if all are at
/// 0.
pub fn most_width(places: impl IntoIterator<Item = u64>) -> u64 {
    places.into_iter().fold(0, |mut one, mut other| {
        while other > 0 {
            (one, other) = (other, one % other);
        }
        one
    })
}
