// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts by the whole unit of another tool, with what its last lines say.

use crate::histogram::{Beyond, Digits, Latencies};
use std::collections::BTreeMap;

/// One column: counts by microsecond, or by the unit that the tool's header names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    pub counts: BTreeMap<u64, u64>,
    /// The first value that has no row.
    pub end: u64,
    /// Instants at or beyond `end`.
    pub overflow: u64,
    /// As the tool itself says; they know the overflow too.
    pub min: Option<u64>,
    pub avg: Option<u64>,
    pub max: Option<u64>,
}

impl Rows {
    /// By microsecond, `end_us` of them.
    pub fn of(latencies: &Latencies, end_us: u64) -> Self {
        let beyond = latencies.beyond();
        let mut rows = Self::default();
        let most_ns = latencies.exact().max_ns;
        let mut sum: u128 = 0;
        for bucket in latencies.buckets() {
            // The end of a bucket: what a tool counts by microseconds lies in the right one, and
            // no latency is understated.
            let us = most_ns.map_or(bucket.to_ns, |most_ns| bucket.to_ns.min(most_ns)) / 1000;
            sum += u128::from(us) * u128::from(bucket.instants);
            rows.min.get_or_insert(us);
            rows.max = Some(us);
            match us < end_us {
                true => *rows.counts.entry(us).or_default() += bucket.instants,
                false => rows.overflow += bucket.instants,
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
            sum += beyond.sum_ns.unwrap_or(0) / 1000;
        }
        let known = beyond.is_none_or(|beyond| beyond.sum_ns.is_some());
        let average = sum.checked_div(u128::from(latencies.instants())).filter(|_| known);
        rows.avg = average.and_then(|us| u64::try_from(us).ok());
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

    /// As latencies, of rows that are `unit_ns` wide. A row's instants lie at its start.
    pub fn latencies(&self, unit_ns: u64) -> Latencies {
        let mut latencies = Latencies::new(Digits::Imported);
        for (value, count) in &self.counts {
            latencies.record_many(value.saturating_mul(unit_ns), *count);
        }
        // Where there is no row at all, the least is what the tool says.
        let from = if self.counts.is_empty() { self.min.unwrap_or(0) } else { 0 }.max(self.end);
        let from_ns = from.saturating_mul(unit_ns);
        let max_ns = self.max.map(|max| max.saturating_mul(unit_ns).max(from_ns));
        // The average is of all: what the rows do not have of it is the overflow's.
        let all =
            self.avg.map(|avg| u128::from(avg) * u128::from(unit_ns) * u128::from(self.instants()));
        let least = u128::from(from_ns) * u128::from(self.overflow);
        let sum_ns = all.map(|all| all.saturating_sub(latencies.exact().sum_ns).max(least));
        latencies.exceed(Beyond { instants: self.overflow, from_ns, max_ns, sum_ns });
        latencies
    }
}
