// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines of latencies, from their buckets: percentiles and histograms. Steps throughout: a slanted
//! line would show values that are not there. Pure.

use super::axis::{Axis, Towards, round_number};
use super::pen::Pen;
use crate::histogram::{Digits, Latencies};
use std::collections::BTreeMap;

/// A line.
#[derive(Debug, Default, PartialEq)]
pub struct Curve {
    pub path: String,
    /// The largest value; `None` where there is none, or where it is not known.
    pub end: Option<(f64, f64)>,
    /// Where the line ends, and so the known values.
    pub last: Option<(f64, f64)>,
}

/// The latency (us) that none of the smallest P of the instants exceeds, over 1 - P; up to the
/// maximum, which has its place at one in n.
pub fn percentiles(latencies: &Latencies, x: &Axis, y: &Axis) -> Curve {
    let n = latencies.instants() as f64;
    let known_max_ns = latencies.exact().max_ns.unwrap_or(u64::MAX);
    let (mut pen, mut last) = (Pen::default(), None);
    let mut before = 0u64;
    for bucket in latencies.buckets() {
        let height = y.place(bucket.to_ns.min(known_max_ns) as f64 / 1e3);
        if before == 0 {
            pen.move_to(0.0, height);
        }
        // A log may tell any counts; their sum is bounded as that of all instants.
        before = before.saturating_add(bucket.instants);
        // The last instant ends where it begins, at one in n: above it there is no percentile.
        let above = (n - before as f64).max(1.0);
        pen.step(height, x.place(n / above));
        last = Some((x.place(n / above), height));
    }
    let end = latencies.max_ns().map(|max_ns| (x.place(n), y.place(max_ns as f64 / 1e3)));
    Curve { path: pen.path(), end, last }
}

/// Lower and upper end of all values above 0 (us), for a logarithmic axis.
pub fn range_us<'a>(all: impl Iterator<Item = &'a Latencies>) -> Option<(f64, f64)> {
    let us = |ns: u64| ns.max(1) as f64 / 1e3;
    let ends = |latencies: &Latencies| {
        let exact = latencies.exact();
        let beyond = latencies.beyond().map(|beyond| beyond.max_ns.unwrap_or(beyond.from_ns));
        let high = exact.max_ns.into_iter().chain(beyond).max()?;
        let low = match exact.min_ns.filter(|min_ns| *min_ns > 0) {
            Some(min_ns) => min_ns,
            None => {
                let above = latencies.buckets().find(|bucket| bucket.from_ns > 0);
                above.map_or(high, |bucket| bucket.from_ns)
            }
        };
        Some((us(low), us(high)))
    };
    let ends = all.filter_map(ends);
    ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

/// How wide the buckets of a histogram up to there are: a round number of ns, at most 250 buckets.
/// Never narrower than what the latencies tell apart.
pub fn bucket_ns<'a>(to_us: f64, mut all: impl Iterator<Item = &'a Latencies>) -> f64 {
    let imported = all.any(|latencies| latencies.digits() != Digits::Measured);
    let least = if imported { 1000.0 } else { 1.0 };
    round_number(to_us * 1e3 / 250.0, Towards::End).max(least)
}

/// Instants of buckets of one width, from 0 on: number of the bucket, and count.
fn counts(latencies: &Latencies, width_ns: f64) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for bucket in latencies.buckets() {
        let middle_ns = bucket.from_ns as f64 / 2.0 + bucket.to_ns as f64 / 2.0;
        let count: &mut u64 = counts.entry((middle_ns / width_ns) as u64).or_default();
        *count = count.saturating_add(bucket.instants);
    }
    counts
}

/// The largest count of a bucket.
pub fn most(latencies: &Latencies, width_ns: f64) -> u64 {
    counts(latencies, width_ns).into_values().max().unwrap_or(0)
}

/// Count over latency (us): the outline of the buckets. Also: how many instants lie beyond the
/// axis.
pub fn histogram(latencies: &Latencies, width_ns: f64, x: &Axis, y: &Axis) -> (Curve, u64) {
    let (mut pen, mut end, mut before) = (Pen::default(), None, None);
    let mut beyond = latencies.beyond().map_or(0, |beyond| beyond.instants);
    for (at, count) in counts(latencies, width_ns) {
        let from_us = at as f64 * width_ns / 1e3;
        if from_us >= x.high() {
            beyond = beyond.saturating_add(count);
            continue;
        }
        let (from, to) = (x.place(from_us), x.place(from_us + width_ns / 1e3));
        let height = y.place(count as f64);
        if at == 0 || before != Some(at - 1) {
            pen.move_to(from, height);
        }
        pen.step(height, to);
        before = Some(at);
        end = Some((f64::midpoint(from, to), height));
    }
    (Curve { path: pen.path(), end: end.filter(|_| beyond == 0), last: end }, beyond)
}

/// Buckets of a decade in [`density`]: each is 12 % wider than the one before.
const OF_A_DECADE: f64 = 20.0;

/// Part of the instants by bucket, numbered from 1 us on.
fn parts(latencies: &Latencies) -> BTreeMap<i64, f64> {
    let mut parts = BTreeMap::new();
    let n = latencies.instants() as f64;
    for bucket in latencies.buckets() {
        let middle_us = (bucket.from_ns as f64 / 2.0 + bucket.to_ns as f64 / 2.0).max(1.0) / 1e3;
        let at = (middle_us.log10() * OF_A_DECADE).floor() as i64;
        *parts.entry(at).or_default() += bucket.instants as f64 / n;
    }
    parts
}

/// The smallest part of the instants that a bucket of [`density`] has.
pub fn least_part(latencies: &Latencies) -> f64 {
    parts(latencies).into_values().fold(1.0, f64::min)
}

/// Part of the instants over latency (us), both axes logarithmic: L4RTL's figures 3 and 4.
pub fn density(latencies: &Latencies, x: &Axis, y: &Axis) -> Curve {
    let (mut pen, mut end, mut before) = (Pen::default(), None, None);
    let start_us = |at: i64| 10f64.powf(at as f64 / OF_A_DECADE);
    for (at, part) in parts(latencies) {
        let (from, to) = (x.place(start_us(at)), x.place(start_us(at + 1)));
        let height = y.place(part);
        if before != Some(at - 1) {
            pen.move_to(from, height);
        }
        pen.step(height, to);
        before = Some(at);
        end = Some((f64::midpoint(from, to), height));
    }
    Curve { path: pen.path(), end, last: end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Beyond;
    use crate::page::pen::places;

    fn axes(latencies: &Latencies) -> (Axis, Axis) {
        let (low, high) = range_us([latencies].into_iter()).unwrap();
        (Axis::percentiles(latencies.instants()), Axis::log(low, high))
    }

    #[test]
    fn percentiles_reach_the_maximum_in_steps_and_stand_where_they_belong() {
        // 99.9 % at 10 us, the rest up to 70 ms.
        let mut latencies = Latencies::default();
        latencies.record_many(10_000, 999_000);
        (1..=1000).for_each(|turn| latencies.record(turn * 70_000));
        let (x, y) = axes(&latencies);
        let curve = percentiles(&latencies, &x, &y);
        let places = places(&curve.path);
        assert_eq!(curve.end, Some((1.0, y.place(70_000.0))));
        let (last_x, last_y) = places[places.len() - 1];
        assert!(last_x == 1.0 && (last_y - y.place(70_000.0)).abs() <= 0.002, "{last_y}");
        let straight = |pair: &[(f64, f64)]| pair[0].0 == pair[1].0 || pair[0].1 == pair[1].1;
        assert!(places.windows(2).all(straight), "no slanted line: {}", curve.path);
        // Between 99.9 % and the maximum the line follows the data: half of those above 99.9 % took
        // longer than 35 ms.
        let at = x.place(2000.0);
        let height = places.iter().rfind(|(x, _)| *x <= at).unwrap().1;
        assert!((height - y.place(35_000.0)).abs() < 0.01, "{height}");
        assert!(curve.path.len() < 5000, "{}", curve.path.len());
    }

    #[test]
    fn what_lies_beyond_the_last_bucket_has_only_its_maximum() {
        let mut latencies = Latencies::new(Digits::Imported);
        latencies.record_many(10_000, 990);
        let beyond =
            Beyond { instants: 10, from_ns: 20_000, max_ns: Some(9_000_000), sum_ns: None };
        latencies.exceed(beyond);
        let (x, y) = axes(&latencies);
        let curve = percentiles(&latencies, &x, &y);
        assert_eq!(curve.end, Some((1.0, y.place(9000.0))));
        let end = places(&curve.path).pop().unwrap();
        assert!((end.0 - x.place(100.0)).abs() < 0.001, "its line ends at 99 %: {end:?}");
        let unknown = Beyond { max_ns: None, ..beyond };
        latencies.exceed(unknown);
        assert_eq!(percentiles(&latencies, &x, &y).end, None);
    }

    #[test]
    fn a_histogram_has_each_instant_in_a_bucket_or_counts_it_beyond() {
        let latencies = Latencies::of([500, 1500, 1600, 9500, 30_000]);
        let width_ns = bucket_ns(10.0, [&latencies].into_iter());
        assert_eq!(width_ns, 50.0);
        assert_eq!(bucket_ns(600.0, [&latencies].into_iter()), 5000.0);
        let (x, y) = (Axis::linear(10.0), Axis::counts(most(&latencies, 1000.0)));
        let (curve, beyond) = histogram(&latencies, 1000.0, &x, &y);
        assert_eq!((beyond, curve.end), (1, None));
        let drawn = places(&curve.path);
        let tops: Vec<f64> = drawn.iter().map(|(x, _)| *x).collect();
        assert_eq!(tops, [0.0, 0.1, 0.1, 0.2, 0.9, 1.0]);
        assert!((drawn[2].1 - y.place(2.0)).abs() < 0.002);
        let whole = histogram(&latencies, 1000.0, &Axis::linear(40.0), &y);
        assert!(whole.1 == 0 && whole.0.end.is_some());
    }

    #[test]
    fn counts_beyond_any_run_are_drawn_and_do_not_overflow() {
        let mut latencies = Latencies::default();
        for ns in [10_000, 10_100, 20_000] {
            latencies.record_many(ns, u64::MAX / 2 + 1);
        }
        let (x, y) = axes(&latencies);
        assert!(!percentiles(&latencies, &x, &y).path.is_empty());
        assert_eq!(most(&latencies, 1000.0), u64::MAX);
        let (x, y) = (Axis::linear(5.0), Axis::counts(1));
        assert_eq!(histogram(&latencies, 1000.0, &x, &y).1, u64::MAX);
    }

    #[test]
    fn values_of_zero_leave_a_logarithmic_axis_its_range() {
        let range = range_us([&Latencies::of([0, 0, 2000, 3000])].into_iter()).unwrap();
        assert!(range.0 > 1.9 && range.1 == 3.0, "{range:?}");
        assert_eq!(range_us([&Latencies::of([0])].into_iter()), Some((0.001, 0.001)));
        assert_eq!(range_us([&Latencies::default()].into_iter()), None);
        let latencies = Latencies::of([0, 2000, 2000, 3000]);
        let density = density(&latencies, &Axis::log(1.0, 10.0), &Axis::log(0.1, 1.0));
        // What lies below the axis has no width there.
        assert_eq!(places(&density.path).len(), 5);
    }
}
