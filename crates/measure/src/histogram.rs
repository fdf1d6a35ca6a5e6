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
//! and deviation are exact, those of an import as far as its file tells them.

mod counts;
mod tally;

use counts::Counts;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
pub use tally::Exact;
use tally::Tally;

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
    /// As another program's log has them: its significant digits, and the least value that it tells
    /// from 0.
    Foreign { digits: u8, low: u64 },
}

impl Digits {
    /// Significant digits, and the least value that is told from 0.
    const fn layout(self) -> (u8, u64) {
        match self {
            Self::Measured => (3, 1),
            Self::Imported => (5, 1),
            Self::Foreign { digits, low } => (digits, low),
        }
    }

    fn of(counts: &Histogram<u64>) -> Self {
        match (counts.sigfig(), counts.low()) {
            (3, 1) => Self::Measured,
            (5, 1) => Self::Imported,
            (digits, low) => Self::Foreign { digits, low },
        }
    }
}

/// How another tool rounds what it counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounding {
    /// An instant of a wide row counts at the end of the row: it may have been this much shorter.
    pub spread_ns: u64,
    /// Times are cut to whole units, as the tool prints them: each may have been this much longer.
    pub cut_ns: u64,
}

/// Instants of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    pub from_ns: u64,
    /// Included.
    pub to_ns: u64,
    pub instants: u64,
}

/// Latencies of instants: those sampled, those missed, and how many were lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies {
    digits: Digits,
    sampled: Tally,
    missed: Tally,
    /// Other tools pass over the periods that they miss, and do not count them.
    knows_missed: bool,
    lost: u64,
    beyond: Option<Beyond>,
    rounding: Rounding,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new(Digits::Measured)
    }
}

impl Latencies {
    /// Of an import, missed instants are not known.
    pub fn new(digits: Digits) -> Self {
        let (sampled, missed) = (Tally::new(digits), Tally::new(digits));
        let knows_missed = digits == Digits::Measured;
        let rounding = Rounding::default();
        Self { digits, sampled, missed, knows_missed, lost: 0, beyond: None, rounding }
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

    /// Of an import: the sums that its file tells.
    pub(crate) fn tell(&mut self, sum_ns: Option<u128>, squares: Option<u128>) {
        self.sampled.exact.tell(sum_ns, squares);
    }

    /// Of an import: how its values are rounded.
    pub(crate) const fn round(&mut self, rounding: Rounding) {
        self.rounding = rounding;
    }

    /// Of a file that does not tell missed instants.
    pub(crate) const fn forget_missed(&mut self) {
        self.knows_missed = false;
    }

    pub fn merge(&mut self, other: &Self) {
        self.sampled.add(&other.sampled);
        self.missed.add(&other.missed);
        self.knows_missed &= other.knows_missed;
        let Rounding { spread_ns, cut_ns } = other.rounding;
        self.rounding.spread_ns = self.rounding.spread_ns.max(spread_ns);
        self.rounding.cut_ns = self.rounding.cut_ns.max(cut_ns);
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

    /// `None` of an import that does not tell them: its figures are of samples alone.
    pub fn known_missed(&self) -> Option<u64> {
        self.knows_missed.then(|| self.missed())
    }

    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Of an import; an instant was longer than the bucket before all the same.
    pub const fn rounding(&self) -> Rounding {
        self.rounding
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

    /// Of all instants; `None` where an import does not tell it.
    pub(crate) fn sum_ns(&self) -> Option<u128> {
        let beyond_ns = self.beyond.map_or(Some(0), |beyond| beyond.sum_ns);
        self.exact().sum_ns.zip(beyond_ns).map(|(one, other)| one.saturating_add(other))
    }

    /// Of all instants; `None` without any, or where an import does not tell it.
    pub fn average_ns(&self) -> Option<f64> {
        let (n, sum_ns) = (self.instants(), self.sum_ns());
        sum_ns.filter(|_| n > 0).map(|sum_ns| sum_ns as f64 / n as f64)
    }

    /// Of all instants, as of a sample (n - 1); `None` without any, if some lie beyond, or where an
    /// import does not tell it.
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

    /// The `rank`-th smallest, from 1 on; the end of its bucket, and so never less than it is.
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
        // Of a time as the tool tells it, cut to a whole unit.
        let may_exceed = |ns: u64| ns.saturating_add(self.rounding.cut_ns) > limit_ns;
        for bucket in self.buckets().filter(|bucket| may_exceed(bucket.to_ns)) {
            add(&mut above.at_most, bucket.instants);
            add(&mut above.at_least, if bucket.from_ns > limit_ns { bucket.instants } else { 0 });
        }
        let exact = self.exact();
        if !exact.max_ns.is_some_and(may_exceed) {
            above = Above { at_least: 0, at_most: 0 };
        } else if exact.min_ns.is_some_and(|min_ns| min_ns > limit_ns) {
            above.at_least = exact.count;
        } else if exact.max_ns.is_some_and(|max_ns| max_ns > limit_ns) {
            // The longest itself.
            above.at_least = above.at_least.max(1);
        }
        if let Some(beyond) = self.beyond.filter(|beyond| beyond.instants > 0) {
            let none = beyond.max_ns.is_some_and(|max_ns| !may_exceed(max_ns));
            add(&mut above.at_most, if none { 0 } else { beyond.instants });
            let all = beyond.from_ns > limit_ns;
            let longest = u64::from(beyond.max_ns.is_some_and(|max_ns| max_ns > limit_ns));
            add(&mut above.at_least, if all { beyond.instants } else { longest });
        }
        above
    }

    /// All buckets with an instant, from the smallest on, without what lies beyond the last.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let (sampled, missed) = (&self.sampled.counts, &self.missed.counts);
        // Both have the same digits, and so the same buckets.
        let mut samples = sampled.recorded().peekable();
        let mut others = missed.recorded().peekable();
        let mut before_ns = 0;
        std::iter::from_fn(move || {
            let at = |one: Option<&(u64, u64)>| one.map(|(ns, _)| *ns);
            let next = at(samples.peek()).into_iter().chain(at(others.peek())).min();
            let lowest_ns = next?;
            let is_here = |one: &(u64, u64)| one.0 == lowest_ns;
            let both = [samples.next_if(is_here), others.next_if(is_here)];
            let counts = both.into_iter().flatten().map(|(_, count)| count);
            let instants = counts.fold(0, u64::saturating_add);
            let highest_ns = sampled.grid.highest(lowest_ns);
            // The unit that lies in it, if it has no room for two.
            let unit_ns = self.rounding.cut_ns + 1;
            let (whole_ns, to_ns) = match highest_ns - highest_ns % unit_ns {
                whole_ns if whole_ns < lowest_ns => (lowest_ns, highest_ns),
                whole_ns if unit_ns > highest_ns - lowest_ns => (whole_ns, whole_ns),
                whole_ns => (lowest_ns, whole_ns),
            };
            let from_ns = whole_ns.saturating_sub(self.rounding.spread_ns).max(before_ns);
            before_ns = to_ns;
            Some(Bucket { from_ns, to_ns, instants })
        })
    }

    pub const fn digits(&self) -> Digits {
        self.digits
    }

    /// Counts of all instants, and of the missed ones among them; `None` where there are none.
    pub(crate) fn counts(&self) -> [Option<Histogram<u64>>; 2] {
        let mut all = self.sampled.counts.clone();
        all.add(&self.missed.counts);
        [&all, &self.missed.counts].map(|one| (!one.is_empty()).then(|| one.histogram()))
    }

    /// Exact figures of the samples in buckets, and of the missed instants where they are known.
    pub(crate) fn exact_parts(&self) -> (Exact, Option<Exact>) {
        (self.sampled.exact, self.knows_missed.then_some(self.missed.exact))
    }

    /// Of counts alone: the exact figures are then those of the buckets. Errors: missed instants
    /// that are not among all.
    pub(crate) fn of_counts(
        all: &Histogram<u64>,
        missed: Option<&Histogram<u64>>,
    ) -> Result<Self, &'static str> {
        let mut sampled = Counts::read(all);
        let mut latencies = Self::new(sampled.digits());
        if let Some(missed) = missed.map(Counts::read) {
            let among = sampled.without(&missed).filter(|_| missed.digits() == sampled.digits());
            sampled = among.ok_or("its missed instants are not among all of that second")?;
            latencies.missed = Tally::of_counts(missed);
            latencies.knows_missed = true;
        }
        latencies.sampled = Tally::of_counts(sampled);
        Ok(latencies)
    }

    /// Sets what buckets round. `None`, and nothing is set, if the buckets contradict it.
    pub(crate) fn correct(
        &mut self,
        (sampled, missed): (Exact, Option<Exact>),
        lost: u64,
        beyond: Option<Beyond>,
        rounding: Rounding,
    ) -> Option<()> {
        // Imports once said that nothing was missed, and no file had told it.
        let is_known = |of: &Exact| of.count > 0 || self.digits == Digits::Measured;
        let knows_missed = missed.as_ref().is_some_and(is_known);
        let missed = missed.unwrap_or_default();
        let agrees = self.sampled.agrees(&sampled) && self.missed.agrees(&missed);
        // What lies beyond the rows is no shorter than they are, and its longest no shorter than
        // its least.
        let is_beyond = |beyond: &Beyond| {
            let last_ns = sampled.max_ns.unwrap_or(0);
            beyond.instants > 0
                && beyond.from_ns >= last_ns
                && beyond.max_ns.is_none_or(|max_ns| max_ns >= beyond.from_ns)
        };
        (agrees && beyond.as_ref().is_none_or(is_beyond)).then_some(())?;
        (self.sampled.exact, self.missed.exact) = (sampled, missed);
        (self.lost, self.beyond, self.rounding) = (lost, beyond, rounding);
        self.knows_missed = knows_missed;
        Some(())
    }

    /// Memory of the counts.
    pub fn bytes(&self) -> usize {
        self.sampled.counts.bytes() + self.missed.counts.bytes()
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
