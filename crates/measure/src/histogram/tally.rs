// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values by bucket, and the figures that buckets round.

use super::counts::Counts;
use super::{Digits, MOST_NS};
use serde::{Deserialize, Serialize};

/// Exact figures of counted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exact {
    pub count: u64,
    pub min_ns: Option<u64>,
    pub max_ns: Option<u64>,
    /// `None` where an import does not tell it.
    pub sum_ns: Option<u128>,
    /// Of the squares, in ns^2; `None` likewise.
    pub squares: Option<u128>,
}

impl Default for Exact {
    fn default() -> Self {
        Self { count: 0, min_ns: None, max_ns: None, sum_ns: Some(0), squares: Some(0) }
    }
}

impl Exact {
    pub(super) fn extremes(&mut self, least_ns: u64, most_ns: u64) {
        self.min_ns = Some(self.min_ns.map_or(least_ns, |min_ns| min_ns.min(least_ns)));
        self.max_ns = Some(self.max_ns.map_or(most_ns, |max_ns| max_ns.max(most_ns)));
    }

    fn many(&mut self, value_ns: u64, count: u64) {
        let (value, times) = (u128::from(value_ns), u128::from(count));
        self.count = self.count.saturating_add(count);
        self.sum(Some(value.saturating_mul(times)), Some((value * value).saturating_mul(times)));
        self.extremes(value_ns, value_ns);
    }

    fn sum(&mut self, values_ns: Option<u128>, squares: Option<u128>) {
        let both = |one: Option<u128>, other| one.zip(other).map(|(a, b)| a.saturating_add(b));
        (self.sum_ns, self.squares) = (both(self.sum_ns, values_ns), both(self.squares, squares));
    }

    /// Of `count` values, `first_ns` and then each time `step_ns` less.
    fn falling(first_ns: u64, step_ns: u64, count: u64) -> Self {
        let (first, step, n) = (u128::from(first_ns), u128::from(step_ns), u128::from(count));
        // The last one, and sums of k and of k^2 for k < n: all by last + k * step, k downwards.
        let last = first.saturating_sub(step * (n - 1));
        let ks = n * (n - 1) / 2;
        let squares = ks.checked_mul(2 * n - 1).map(|sum| sum / 3);
        let twice = (last * step).checked_mul(2);
        let terms = [
            (last * last).checked_mul(n),
            twice.and_then(|twice| twice.checked_mul(ks)),
            squares.and_then(|squares| (step * step).checked_mul(squares)),
        ];
        let squares = terms.into_iter().try_fold(0u128, |sum, term| sum.checked_add(term?));
        Self {
            count,
            min_ns: Some(last as u64),
            max_ns: Some(first_ns),
            sum_ns: Some(n * last + step * ks),
            squares: Some(squares.unwrap_or(u128::MAX)),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum(other.sum_ns, other.squares);
        if let (Some(min_ns), Some(max_ns)) = (other.min_ns, other.max_ns) {
            self.extremes(min_ns, max_ns);
        }
    }

    /// Takes the sums that a file tells. It may have rounded each value by a nanosecond; sums that
    /// are further off are not known.
    pub(super) fn tell(&mut self, sum_ns: Option<u128>, squares: Option<u128>) {
        let n = u128::from(self.count);
        let bounds = self.min_ns.zip(self.max_ns).filter(|_| n > 0);
        let Some((low, high)) = bounds.map(|(low, high)| (u128::from(low), u128::from(high)))
        else {
            return;
        };
        let within = |sum: u128, low: u128, high: u128| {
            sum.clamp(low.saturating_mul(n), high.saturating_mul(n))
        };
        let near = |sum_ns: &u128| sum_ns.abs_diff(within(*sum_ns, low, high)) <= n;
        self.sum_ns = sum_ns.filter(near).map(|sum_ns| within(sum_ns, low, high));
        let least = self.sum_ns.and_then(|sum_ns| sum_ns.checked_mul(sum_ns));
        self.squares = squares.filter(|_| self.sum_ns.is_some()).map(|squares| {
            let squares = within(squares, low * low, high * high);
            squares.max(least.map_or(0, |square| square.div_ceil(n)))
        });
    }

    /// Could so many values between the least and the longest have these sums? What was too large
    /// for a sum may be any.
    fn is_consistent(&self) -> bool {
        let n = u128::from(self.count);
        let (Some(min_ns), Some(max_ns)) = (self.min_ns, self.max_ns) else {
            return n == 0 && self.sum_ns.unwrap_or(0) == 0 && self.squares.unwrap_or(0) == 0;
        };
        let of = |sum: Option<u128>, low: u128, high: u128| {
            let bounds = low.saturating_mul(n)..=high.saturating_mul(n);
            sum.is_none_or(|sum| sum == u128::MAX || bounds.contains(&sum))
        };
        let (low, high) = (u128::from(min_ns), u128::from(max_ns));
        // The mean of squares is no less than the square of the mean.
        let product = self.squares.and_then(|squares| squares.checked_mul(n));
        let square = self.sum_ns.and_then(|sum_ns| sum_ns.checked_mul(sum_ns));
        let is_spread = product.zip(square).is_none_or(|(product, square)| product >= square);
        of(self.sum_ns, low, high) && of(self.squares, low * low, high * high) && is_spread
    }

    /// `None` of no values, or where their sum is not known.
    pub fn average_ns(&self) -> Option<f64> {
        self.sum_ns.filter(|_| self.count > 0).map(|sum_ns| sum_ns as f64 / self.count as f64)
    }

    /// Of a sample (n - 1); 0 of one value, `None` of none, or where the sums are not known.
    pub fn deviation_ns(&self) -> Option<f64> {
        let n = u128::from(self.count);
        let freedom = n.checked_sub(1)?;
        if freedom == 0 {
            return Some(0.0);
        }
        let (sum_ns, squares) = self.sum_ns.zip(self.squares)?;
        // n * sum of squares - square of the sum: exact while it fits.
        let whole = n.checked_mul(squares).zip(sum_ns.checked_mul(sum_ns));
        let excess = whole.map_or_else(
            || squares as f64 - sum_ns as f64 / n as f64 * sum_ns as f64,
            |(squares, square)| squares.saturating_sub(square) as f64 / n as f64,
        );
        Some((excess.max(0.0) / freedom as f64).sqrt())
    }
}

/// Values by bucket, with their exact figures.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    pub(super) exact: Exact,
}

impl Tally {
    pub(super) fn new(digits: Digits) -> Self {
        let counts = Counts::new(digits);
        Self { counts, exact: Exact::default() }
    }

    fn count(&mut self, value_ns: u64, count: u64) {
        self.counts.record(value_ns.min(MOST_NS), count);
    }

    pub(super) fn many(&mut self, value_ns: u64, count: u64) {
        if count > 0 {
            self.count(value_ns, count);
            self.exact.many(value_ns, count);
        }
    }

    /// `first_ns`, then each time `step_ns` less, `count` values in all: bucket by bucket, so that
    /// a long stall costs no more than there are buckets.
    pub(super) fn falling(&mut self, first_ns: u64, step_ns: u64, count: u64) {
        let (mut value_ns, mut left) = (first_ns, count);
        while left > 0 {
            // What is longer than the longest lies in its bucket.
            let lowest_ns = self.counts.grid.lowest(value_ns.min(MOST_NS));
            let more = ((value_ns - lowest_ns) / step_ns).min(left - 1);
            self.count(value_ns, more + 1);
            left -= more + 1;
            value_ns = value_ns.saturating_sub(step_ns.saturating_mul(more + 1));
        }
        if count > 0 {
            self.exact.add(&Exact::falling(first_ns, step_ns, count));
        }
    }

    pub(super) fn of_counts(counts: Counts) -> Self {
        let mut exact = Exact::default();
        for (ns, count) in counts.recorded() {
            exact.many(counts.grid.middle(ns), count);
            exact.extremes(ns, counts.grid.highest(ns));
        }
        Self { counts, exact }
    }

    /// Are these figures possible with these counts?
    pub(super) fn agrees(&self, exact: &Exact) -> bool {
        let within = |rough: Option<u64>, ns: Option<u64>| match (rough, ns) {
            (Some(rough), Some(ns)) => {
                let grid = self.counts.grid;
                grid.lowest(rough) == grid.lowest(ns.min(MOST_NS))
            }
            (rough, ns) => rough == ns,
        };
        self.exact.count == exact.count
            && within(self.exact.min_ns, exact.min_ns)
            && within(self.exact.max_ns, exact.max_ns)
            && exact.is_consistent()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.exact.add(&other.exact);
    }
}
