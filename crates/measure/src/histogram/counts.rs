// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts by bucket: dense while samples come, sparse for what was read. The latter may have any
//! digits, and a column or tag for each thread of a large machine: its memory goes with the buckets
//! that have a count.

use super::Digits;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// The buckets of HdrHistogram with some significant digits, where values below `low` need not be
/// told apart: up to 2 * 10^digits such units one bucket each, then twice as wide at each power of
/// two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    /// A power of two: what is told apart at least.
    unit_bits: u32,
    /// Values below this power of two have buckets of one unit.
    exact_bits: u32,
}

impl Grid {
    fn of(digits: Digits) -> Self {
        let (digits, low) = digits.layout();
        let unit_bits = low.max(1).ilog2();
        let single = 2 * 10u64.pow(digits.into());
        Self { unit_bits, exact_bits: unit_bits + single.next_power_of_two().ilog2() }
    }

    /// How wide the bucket of a value is: its power of two.
    fn bits(self, value: u64) -> u32 {
        let length = u64::BITS - value.leading_zeros();
        self.unit_bits + length.saturating_sub(self.exact_bits)
    }

    pub fn lowest(self, value: u64) -> u64 {
        value >> self.bits(value) << self.bits(value)
    }

    /// Included.
    pub fn highest(self, value: u64) -> u64 {
        self.lowest(value) + ((1u64 << self.bits(value)) - 1)
    }

    pub fn middle(self, value: u64) -> u64 {
        self.lowest(value) + (1u64 << self.bits(value) >> 1)
    }
}

#[derive(Debug, Clone)]
enum Kept {
    Dense(Histogram<u64>),
    /// By the lowest value of each bucket.
    Sparse(BTreeMap<u64, u64>),
}

#[derive(Debug, Clone)]
pub(super) struct Counts {
    digits: Digits,
    pub grid: Grid,
    kept: Kept,
}

impl Counts {
    /// Dense where samples are recorded.
    pub fn new(digits: Digits) -> Self {
        let kept = match digits {
            Digits::Measured => Kept::Dense(histogram(digits)),
            Digits::Imported | Digits::Foreign { .. } => Kept::Sparse(BTreeMap::new()),
        };
        Self { digits, grid: Grid::of(digits), kept }
    }

    /// Of a histogram that was read.
    pub fn read(from: &Histogram<u64>) -> Self {
        let digits = Digits::of(from);
        let grid = Grid::of(digits);
        let recorded = from.iter_recorded();
        let counts =
            recorded.map(|one| (grid.lowest(one.value_iterated_to()), one.count_at_value()));
        Self { digits, grid, kept: Kept::Sparse(counts.collect()) }
    }

    /// Bounded time where it is dense; allocates only where a value is longer than all before.
    pub fn record(&mut self, value: u64, count: u64) {
        match &mut self.kept {
            // It grows where a value is new, and fails only where usize has too few bits.
            Kept::Dense(counts) => drop(counts.record_n(value, count)),
            Kept::Sparse(counts) => {
                let of = counts.entry(self.grid.lowest(value)).or_default();
                *of = of.saturating_add(count);
            }
        }
    }

    /// Buckets that have a count: the lowest value, and the count.
    pub fn recorded(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        match &self.kept {
            Kept::Dense(counts) => Box::new(
                counts
                    .iter_recorded()
                    .map(|one| (self.grid.lowest(one.value_iterated_to()), one.count_at_value())),
            ),
            Kept::Sparse(counts) => Box::new(counts.iter().map(|(value, count)| (*value, *count))),
        }
    }

    pub fn add(&mut self, other: &Self) {
        other.recorded().for_each(|(value, count)| self.record(value, count));
    }

    /// The same without these; `None` if they are not among them.
    pub fn without(&self, others: &Self) -> Option<Self> {
        let mut left: BTreeMap<u64, u64> = self.recorded().collect();
        for (value, count) in others.recorded() {
            let of = left.get_mut(&self.grid.lowest(value))?;
            *of = of.checked_sub(count)?;
        }
        left.retain(|_, count| *count > 0);
        Some(Self { kept: Kept::Sparse(left), ..*self })
    }

    pub fn is_empty(&self) -> bool {
        self.recorded().next().is_none()
    }

    /// As the crate writes it; made for the moment.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = histogram(self.digits);
        for (value, count) in self.recorded() {
            let _ = histogram.record_n(value, count);
        }
        histogram
    }

    pub fn bytes(&self) -> usize {
        match &self.kept {
            Kept::Dense(counts) => counts.distinct_values() * 8,
            // Some 1.5 times its entries.
            Kept::Sparse(counts) => counts.len() * 24,
        }
    }

    pub const fn digits(&self) -> Digits {
        self.digits
    }
}

impl PartialEq for Counts {
    /// How they are kept does not count.
    fn eq(&self, other: &Self) -> bool {
        self.grid == other.grid && self.recorded().eq(other.recorded())
    }
}

fn histogram(digits: Digits) -> Histogram<u64> {
    let (digits, low) = digits.layout();
    let counts = Histogram::new_with_bounds(low, low.saturating_mul(2), digits);
    let mut counts = counts.expect("digits and least of a histogram that was read");
    counts.auto(true);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUTS: [Digits; 6] = [
        Digits::Measured,
        Digits::Imported,
        Digits::Foreign { digits: 1, low: 1 },
        Digits::Foreign { digits: 2, low: 1_000 },
        Digits::Foreign { digits: 4, low: 7 },
        Digits::Foreign { digits: 0, low: 3 },
    ];

    /// Around each power of two, and some between.
    fn values() -> Vec<u64> {
        let powers = (0..62).map(|bits| 1u64 << bits);
        powers.flat_map(|one| [one - 1, one, one + 1, one + one / 3, one + one / 2]).collect()
    }

    #[test]
    fn the_buckets_are_those_of_the_crate() {
        for digits in LAYOUTS {
            let (grid, mut theirs) = (Grid::of(digits), histogram(digits));
            for value in values() {
                theirs.record(value).unwrap();
                let expected = (theirs.lowest_equivalent(value), theirs.highest_equivalent(value));
                assert_eq!(
                    (grid.lowest(value), grid.highest(value)),
                    expected,
                    "{digits:?} {value}"
                );
                assert_eq!(
                    grid.middle(value),
                    theirs.median_equivalent(value),
                    "{digits:?} {value}"
                );
            }
        }
    }

    #[test]
    fn what_is_kept_sparse_is_the_same_as_what_is_kept_dense() {
        let mut dense = Counts::new(Digits::Measured);
        values().into_iter().zip(1..).for_each(|(value, count)| dense.record(value, count));
        let sparse = Counts::read(&dense.histogram());
        assert_eq!(sparse, dense);
        assert_eq!(sparse.histogram(), dense.histogram());
        let mut twice = sparse.clone();
        twice.add(&dense);
        assert_eq!(twice.without(&sparse), Some(dense.clone()));
        assert_eq!(sparse.without(&twice), None);
        assert!(dense.without(&sparse).unwrap().is_empty() && !dense.is_empty());
    }

    #[test]
    fn an_import_takes_memory_for_its_rows_and_not_for_how_far_they_reach() {
        let mut counts = Counts::new(Digits::Imported);
        for value in [1_000, 9_000_000_000_000_000_000] {
            counts.record(value, 1);
        }
        assert!(counts.bytes() < 100, "{}", counts.bytes());
    }
}
