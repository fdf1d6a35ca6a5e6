// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies of *instants*, counted in constant memory (crate hdrhistogram). Pure.
//!
//! A task with a period has an instant each period, and each of them counts. One that passes while
//! the probe is still late for an earlier one has no sample: it is *missed*. A reader of that
//! instant would have waited until the same wake-up, so its latency is known: of a stall of s ns,
//! the k-th instant after the sample's own has s - k * period. Percentiles of the samples alone
//! would count a stall once, however long it is (Gil Tene calls that coordinated omission).
//!
//! Values are nanoseconds. A bucket is at most 1/1024 of its values wide ([`Digits::Measured`]), so
//! a percentile is the true one or at most that part above it. Count, minimum, maximum, average
//! and deviation are exact.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The largest latency that has a bucket of its own, 146 years; longer ones lie in its bucket.
const MOST_NS: u64 = (1 << 62) - 1;

/// Part of the instants that lie above a percentile: one in so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile {
    pub name: &'static str,
    pub one_in: u64,
}

/// The percentiles that are reported, where there are enough instants.
pub const ALL_PERCENTILES: [Percentile; 7] = [
    Percentile { name: "p50", one_in: 2 },
    Percentile { name: "p90", one_in: 10 },
    Percentile { name: "p99", one_in: 100 },
    Percentile { name: "p99.9", one_in: 1_000 },
    Percentile { name: "p99.99", one_in: 10_000 },
    Percentile { name: "p99.999", one_in: 100_000 },
    Percentile { name: "p99.9999", one_in: 1_000_000 },
];

/// What is known of a percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantile {
    /// At most one in so many instants took longer.
    At { ns: u64 },
    /// It lies beyond the last bucket of an imported histogram, which begins there.
    AtLeast { ns: u64 },
    /// Not one instant could lie above: n is less than one in so many.
    Unsupported,
}

/// Instants above a limit. A limit within a bucket leaves that bucket open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Above {
    pub at_least: u64,
    pub at_most: u64,
}

/// Instants of an imported histogram beyond its last bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beyond {
    pub instants: u64,
    /// Each took that long or longer.
    pub from_ns: u64,
    /// The longest, where the tool says it.
    pub max_ns: Option<u64>,
    /// Of all of them, where the tool says the average; exact to one unit of the tool's each.
    pub sum_ns: Option<u128>,
}

/// How finely values are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digits {
    /// 1/1024, and single nanoseconds up to 2 us.
    Measured,
    /// 1/131072: what another tool counts by microseconds comes back exactly up to 134 ms.
    Imported,
}

/// Instants of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    pub from_ns: u64,
    /// Included.
    pub to_ns: u64,
    pub instants: u64,
}

/// Exact figures of counted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exact {
    pub count: u64,
    pub min_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub sum_ns: u128,
    /// Of the squares, in ns^2.
    pub squares: u128,
}

impl Exact {
    fn extremes(&mut self, least_ns: u64, most_ns: u64) {
        self.min_ns = Some(self.min_ns.map_or(least_ns, |min_ns| min_ns.min(least_ns)));
        self.max_ns = Some(self.max_ns.map_or(most_ns, |max_ns| max_ns.max(most_ns)));
    }

    fn many(&mut self, value_ns: u64, count: u64) {
        let (value, times) = (u128::from(value_ns), u128::from(count));
        self.count = self.count.saturating_add(count);
        self.sum_ns = self.sum_ns.saturating_add(value.saturating_mul(times));
        let squares = (value * value).saturating_mul(times);
        self.squares = self.squares.saturating_add(squares);
        self.extremes(value_ns, value_ns);
    }

    /// Of `count` values, `first_ns` and then each time `step_ns` less.
    fn falling(first_ns: u64, step_ns: u64, count: u64) -> Self {
        let (first, step, n) = (u128::from(first_ns), u128::from(step_ns), u128::from(count));
        // The last one, and sums of k and of k^2 for k < n: all by last + k * step, k downwards.
        let last = first.saturating_sub(step * (n - 1));
        let ks = n * (n - 1) / 2;
        let squares = (ks * (2 * n - 1)) / 3;
        let terms = [
            (last * last).checked_mul(n),
            (2 * last * step).checked_mul(ks),
            (step * step).checked_mul(squares),
        ];
        let squares = terms.into_iter().try_fold(0u128, |sum, term| sum.checked_add(term?));
        Self {
            count,
            min_ns: Some(last as u64),
            max_ns: Some(first_ns),
            sum_ns: n * last + step * ks,
            squares: squares.unwrap_or(u128::MAX),
        }
    }

    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.squares = self.squares.saturating_add(other.squares);
        if let (Some(min_ns), Some(max_ns)) = (other.min_ns, other.max_ns) {
            self.extremes(min_ns, max_ns);
        }
    }

    /// `None` of no values.
    pub fn average_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// Of a sample (n - 1); 0 of one value, `None` of none.
    pub fn deviation_ns(&self) -> Option<f64> {
        let n = u128::from(self.count);
        let freedom = n.checked_sub(1)?;
        if freedom == 0 {
            return Some(0.0);
        }
        // n * sum of squares - square of the sum: exact while it fits.
        let whole = n.checked_mul(self.squares).zip(self.sum_ns.checked_mul(self.sum_ns));
        let excess = whole.map_or_else(
            || self.squares as f64 - self.sum_ns as f64 / n as f64 * self.sum_ns as f64,
            |(squares, square)| squares.saturating_sub(square) as f64 / n as f64,
        );
        Some((excess.max(0.0) / freedom as f64).sqrt())
    }
}

/// Values by bucket, with their exact figures.
#[derive(Debug, Clone)]
struct Tally {
    counts: Histogram<u64>,
    exact: Exact,
}

impl PartialEq for Tally {
    fn eq(&self, other: &Self) -> bool {
        // How far the buckets reach does not count.
        let of = |tally: &Self| -> Vec<(u64, u64)> {
            let recorded = tally.counts.iter_recorded();
            recorded.map(|one| (one.value_iterated_to(), one.count_at_value())).collect()
        };
        self.exact == other.exact && of(self) == of(other)
    }
}

impl Tally {
    fn new(digits: Digits) -> Self {
        let digits = match digits {
            Digits::Measured => 3,
            Digits::Imported => 5,
        };
        let counts = Histogram::new(digits).expect("the crate takes 0 to 5 digits");
        Self { counts, exact: Exact::default() }
    }

    fn count(&mut self, value_ns: u64, count: u64) {
        // It grows where a value is new, and fails only where usize has too few bits.
        let _ = self.counts.record_n(value_ns.min(MOST_NS), count);
    }

    fn many(&mut self, value_ns: u64, count: u64) {
        if count > 0 {
            self.count(value_ns, count);
            self.exact.many(value_ns, count);
        }
    }

    /// `first_ns`, then each time `step_ns` less, `count` values in all: bucket by bucket, so that
    /// a long stall costs no more than there are buckets.
    fn falling(&mut self, first_ns: u64, step_ns: u64, count: u64) {
        let (mut value_ns, mut left) = (first_ns, count);
        while left > 0 {
            self.count(value_ns, 1);
            let room_ns = match value_ns > MOST_NS {
                true => 0,
                false => value_ns - self.counts.lowest_equivalent(value_ns),
            };
            let more = (room_ns / step_ns).min(left - 1);
            if more > 0 {
                self.count(value_ns, more);
            }
            left -= more + 1;
            value_ns = value_ns.saturating_sub(step_ns.saturating_mul(more + 1));
        }
        if count > 0 {
            self.exact.add(&Exact::falling(first_ns, step_ns, count));
        }
    }

    fn of_counts(counts: Histogram<u64>) -> Self {
        let mut exact = Exact::default();
        for one in counts.iter_recorded() {
            let (ns, count) = (one.value_iterated_to(), one.count_at_value());
            exact.many(counts.median_equivalent(ns), count);
            exact.extremes(counts.lowest_equivalent(ns), counts.highest_equivalent(ns));
        }
        Self { counts, exact }
    }

    fn agrees(&self, exact: &Exact) -> bool {
        let within = |rough: Option<u64>, ns: Option<u64>| match (rough, ns) {
            (Some(rough), Some(ns)) => self.counts.equivalent(rough, ns.min(MOST_NS)),
            (rough, ns) => rough == ns,
        };
        self.exact.count == exact.count
            && within(self.exact.min_ns, exact.min_ns)
            && within(self.exact.max_ns, exact.max_ns)
    }

    fn add(&mut self, other: &Self) {
        // It grows as needed: the crate refuses no histogram of whole values.
        let _ = self.counts.add(&other.counts);
        self.exact.add(&other.exact);
    }
}

/// Latencies of instants: those sampled, those missed, and how many were lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies {
    digits: Digits,
    sampled: Tally,
    missed: Tally,
    lost: u64,
    beyond: Option<Beyond>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new(Digits::Measured)
    }
}

impl Latencies {
    pub fn new(digits: Digits) -> Self {
        let (sampled, missed) = (Tally::new(digits), Tally::new(digits));
        Self { digits, sampled, missed, lost: 0, beyond: None }
    }

    /// Of plain values: no instant was missed.
    pub fn of(values_ns: impl IntoIterator<Item = u64>) -> Self {
        let mut latencies = Self::default();
        values_ns.into_iter().for_each(|value_ns| latencies.record(value_ns));
        latencies
    }

    /// A sample. Bounded time; allocates only where it is longer than all before.
    pub fn record(&mut self, latency_ns: u64) {
        self.sampled.many(latency_ns, 1);
    }

    /// So many samples of the same latency.
    pub fn record_many(&mut self, latency_ns: u64, count: u64) {
        self.sampled.many(latency_ns, count);
    }

    /// A sample, and the instants that were missed meanwhile.
    pub fn record_late(&mut self, latency_ns: u64, period_ns: u64) {
        self.record(latency_ns);
        self.miss(latency_ns, period_ns, 1, missed_by(latency_ns, period_ns));
    }

    /// `count` instants missed by one late sample, from the `first`-th after its own on.
    pub(crate) fn miss(&mut self, latency_ns: u64, period_ns: u64, first: u64, count: u64) {
        if count > 0 {
            self.missed.falling(latency_ns - first * period_ns, period_ns, count);
        }
    }

    /// Instants whose latency is not known: their samples found no room.
    pub fn lose(&mut self, instants: u64) {
        self.lost = self.lost.saturating_add(instants);
    }

    /// Instants beyond the last bucket of an imported histogram.
    pub fn exceed(&mut self, beyond: Beyond) {
        if beyond.instants == 0 {
            return;
        }
        self.beyond = Some(self.beyond.map_or(beyond, |before| Beyond {
            instants: before.instants.saturating_add(beyond.instants),
            from_ns: before.from_ns.min(beyond.from_ns),
            max_ns: before.max_ns.zip(beyond.max_ns).map(|(one, other)| one.max(other)),
            sum_ns: before.sum_ns.zip(beyond.sum_ns).map(|(one, other)| one.saturating_add(other)),
        }));
    }

    pub fn merge(&mut self, other: &Self) {
        self.sampled.add(&other.sampled);
        self.missed.add(&other.missed);
        self.lose(other.lost);
        other.beyond.into_iter().for_each(|beyond| self.exceed(beyond));
    }

    /// All instants whose latency is known or has a lower bound: samples, missed, beyond.
    pub fn instants(&self) -> u64 {
        self.samples().saturating_add(self.missed())
    }

    /// Those that have a sample, beyond the last bucket included.
    pub fn samples(&self) -> u64 {
        self.sampled.exact.count.saturating_add(self.beyond.map_or(0, |beyond| beyond.instants))
    }

    pub const fn missed(&self) -> u64 {
        self.missed.exact.count
    }

    pub const fn lost(&self) -> u64 {
        self.lost
    }

    pub const fn beyond(&self) -> Option<Beyond> {
        self.beyond
    }

    /// The same without the missed instants: what the probe saw itself.
    #[must_use]
    pub fn of_samples(&self) -> Self {
        Self { missed: Tally::new(self.digits), ..self.clone() }
    }

    /// Exact figures of all instants, but for those beyond the last bucket.
    pub fn exact(&self) -> Exact {
        let mut exact = self.sampled.exact;
        exact.add(&self.missed.exact);
        exact
    }

    /// Of all instants; `None` without any, or where the sum of those beyond is not known.
    pub fn average_ns(&self) -> Option<f64> {
        let exact = self.exact();
        match self.beyond {
            None => exact.average_ns(),
            Some(beyond) => {
                let sum_ns = exact.sum_ns.saturating_add(beyond.sum_ns?);
                Some(sum_ns as f64 / self.instants() as f64)
            }
        }
    }

    /// Of all instants, as of a sample (n - 1); `None` without any, or if some lie beyond.
    pub fn deviation_ns(&self) -> Option<f64> {
        self.exact().deviation_ns().filter(|_| self.beyond.is_none())
    }

    pub fn min_ns(&self) -> Option<u64> {
        self.exact().min_ns.or(self.beyond.map(|beyond| beyond.from_ns))
    }

    /// Exact, unless a full disk has cut the last comments of the log off: then the end of its
    /// bucket. `None` without instants, or if the longest lie beyond the last bucket and the tool
    /// does not say how long they took.
    pub fn max_ns(&self) -> Option<u64> {
        match self.beyond {
            Some(beyond) => beyond.max_ns,
            None => self.exact().max_ns,
        }
    }

    /// The smallest value with at most one in `one_in` instants above it (nearest rank).
    pub fn quantile(&self, one_in: u64) -> Quantile {
        let n = self.instants();
        let above = n / one_in.max(1);
        if above == 0 || one_in < 2 {
            return Quantile::Unsupported;
        }
        self.at_rank(n - above)
    }

    /// The `rank`-th smallest, from 1 on.
    pub fn at_rank(&self, rank: u64) -> Quantile {
        let mut before = 0u64;
        for bucket in self.buckets() {
            before = before.saturating_add(bucket.instants);
            if before >= rank {
                let max_ns = self.exact().max_ns.unwrap_or(bucket.to_ns);
                return Quantile::At { ns: bucket.to_ns.min(max_ns) };
            }
        }
        self.beyond.map_or(Quantile::Unsupported, |beyond| Quantile::AtLeast { ns: beyond.from_ns })
    }

    /// Instants that took longer than that.
    pub fn above(&self, limit_ns: u64) -> Above {
        let mut above = Above { at_least: 0, at_most: 0 };
        let add = |sum: &mut u64, instants: u64| *sum = sum.saturating_add(instants);
        for bucket in self.buckets().filter(|bucket| bucket.to_ns > limit_ns) {
            add(&mut above.at_most, bucket.instants);
            add(&mut above.at_least, if bucket.from_ns > limit_ns { bucket.instants } else { 0 });
        }
        let exact = self.exact();
        if exact.max_ns.is_none_or(|max_ns| max_ns <= limit_ns) {
            above = Above { at_least: 0, at_most: 0 };
        } else if exact.min_ns.is_some_and(|min_ns| min_ns > limit_ns) {
            above.at_least = exact.count;
        } else {
            // The longest itself.
            above.at_least = above.at_least.max(1);
        }
        if let Some(beyond) = self.beyond.filter(|beyond| beyond.instants > 0) {
            let longest = beyond.max_ns.map(|max_ns| max_ns > limit_ns);
            add(&mut above.at_most, if longest == Some(false) { 0 } else { beyond.instants });
            let all = beyond.from_ns > limit_ns;
            let least = if all { beyond.instants } else { u64::from(longest == Some(true)) };
            add(&mut above.at_least, least);
        }
        above
    }

    /// All buckets with an instant, from the smallest on, without what lies beyond the last.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let (sampled, missed) = (&self.sampled.counts, &self.missed.counts);
        // Both have the same digits, and so the same buckets as far as they reach.
        let of = |counts: &Histogram<u64>, at: Option<u64>| at.map_or(0, |ns| counts.count_at(ns));
        let mut samples = sampled.iter_recorded().map(|one| one.value_iterated_to()).peekable();
        let mut others = missed.iter_recorded().map(|one| one.value_iterated_to()).peekable();
        std::iter::from_fn(move || {
            let (sample, other) = (samples.peek().copied(), others.peek().copied());
            let ns = sample.into_iter().chain(other).min()?;
            let sample = samples.next_if_eq(&ns);
            let other = others.next_if_eq(&ns);
            Some(Bucket {
                from_ns: sampled.lowest_equivalent(ns),
                to_ns: sampled.highest_equivalent(ns),
                instants: of(sampled, sample).saturating_add(of(missed, other)),
            })
        })
    }

    pub const fn digits(&self) -> Digits {
        self.digits
    }

    /// Counts of all instants, and of the missed ones among them.
    pub(crate) fn counts(&self) -> [Histogram<u64>; 2] {
        let mut all = self.sampled.clone();
        all.add(&self.missed);
        [all.counts, self.missed.counts.clone()]
    }

    /// Exact figures of the samples in buckets, and of the missed instants.
    pub(crate) const fn exact_parts(&self) -> [Exact; 2] {
        [self.sampled.exact, self.missed.exact]
    }

    /// Of counts alone: the exact figures are then those of the buckets. Errors: missed instants
    /// that are not among all.
    pub(crate) fn of_counts(
        all: Histogram<u64>,
        missed: Option<Histogram<u64>>,
    ) -> Result<Self, &'static str> {
        let digits = if all.sigfig() == 5 { Digits::Imported } else { Digits::Measured };
        let mut latencies = Self::new(digits);
        let mut sampled = all;
        if let Some(missed) = missed {
            let is_among = sampled.subtract(&missed);
            is_among.map_err(|_| "its missed instants are not among all of that second")?;
            latencies.missed = Tally::of_counts(missed);
        }
        latencies.sampled = Tally::of_counts(sampled);
        Ok(latencies)
    }

    /// Sets what buckets round. `None`, and nothing is set, if the buckets contradict it.
    pub(crate) fn correct(
        &mut self,
        [sampled, missed]: [Exact; 2],
        lost: u64,
        beyond: Option<Beyond>,
    ) -> Option<()> {
        let agrees = self.sampled.agrees(&sampled) && self.missed.agrees(&missed);
        agrees.then_some(())?;
        (self.sampled.exact, self.missed.exact) = (sampled, missed);
        (self.lost, self.beyond) = (lost, beyond);
        Some(())
    }

    /// Memory of the counts.
    pub fn bytes(&self) -> usize {
        (self.sampled.counts.distinct_values() + self.missed.counts.distinct_values()) * 8
    }
}

/// Instants that pass while a sample is that late: k * period < latency, k from 1 on.
pub const fn missed_by(latency_ns: u64, period_ns: u64) -> u64 {
    match (latency_ns, period_ns) {
        (0, _) | (_, 0) => 0,
        _ => (latency_ns - 1) / period_ns,
    }
}

#[cfg(test)]
mod tests;
