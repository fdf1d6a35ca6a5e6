// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two sides with several rounds each: how far apart, and how sure. One rule for `compare`, `ab`
//! and `spaces`. Pure: nothing is drawn at random.
//!
//! The unit is the round. Samples of one round depend on each other (a timer, a daemon, a frequency
//! outlasts many of them), so each round gives one number for each figure, and rounds are compared.
//! Under the null hypothesis every distribution of the rounds over the two sides is as likely as
//! any other; the rank sum of one side (Wilcoxon, Mann and Whitney) has then a distribution that
//! `ranks.rs` knows, ties included: exact, and from some 70 rounds on to better than 1 %. `p` is
//! the part of it at least as far from its middle. Ranks, as one odd round must not decide; two
//! sides, not pairs, as the signs of 6 pairs have 64 arrangements, and 6 rounds against 6 have 924.
//!
//! The difference is Hodges' and Lehmann's: the median of all differences b - a of one round each.
//! Its interval has those values that the same test does not refuse at 5 %. Several figures are
//! several chances to be wrong: "sure" is what Holm's method leaves at 5 % for all together.
//! [`fewest_rounds`] says how many rounds that takes at least.

use crate::histogram::{Latencies, Quantile};
use crate::ranks::{doubled, least_sums, two_sided};
use serde::Serialize;
use std::fmt::Write;

/// Chance that anything at all is falsely called sure.
const ALPHA: f64 = 0.05;

/// What is compared of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Figure {
    #[serde(rename = "p50")]
    Median,
    #[serde(rename = "p99")]
    P99,
    #[serde(rename = "p99.9")]
    P999,
    #[serde(rename = "worst")]
    Worst,
}

impl Figure {
    pub const ALL: [Self; 4] = [Self::Median, Self::P99, Self::P999, Self::Worst];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Worst => "worst",
        }
    }

    /// `None` where the instants of the round do not support it.
    pub fn of(self, latencies: &Latencies) -> Option<u64> {
        let one_in = match self {
            Self::Median => 2,
            Self::P99 => 100,
            Self::P999 => 1000,
            Self::Worst => return latencies.max_ns(),
        };
        match latencies.quantile(one_in) {
            Quantile::At { ns } => Some(ns),
            Quantile::AtLeast { .. } | Quantile::Unsupported => None,
        }
    }
}

/// B - A of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    pub figure: Figure,
    /// Rounds of A, and of B.
    pub rounds: [usize; 2],
    /// Median of A's rounds.
    pub a_ns: u64,
    pub b_ns: u64,
    /// The median of all differences b - a of one round each.
    pub difference_ns: i64,
    /// 95 % interval of it; `None` of fewer than four rounds each.
    pub interval_ns: Option<[i64; 2]>,
    /// Of so many differences b - a, `agreeing` have the sign of the median.
    pub pairs: usize,
    pub agreeing: usize,
    /// Two-sided; `None` with one round on a side.
    pub p: Option<f64>,
    /// More than chance at 5 %, together with all that was judged with it.
    pub is_sure: bool,
}

impl Difference {
    /// In microseconds: `p99 +300.0 us [+290.0 .. +310.0], p 0.0022: sure`.
    pub fn told(&self) -> String {
        let us = |ns: i64| format!("{}{}", if ns < 0 { "-" } else { "+" }, us(ns.unsigned_abs()));
        let mut text = format!("{} {} us", self.figure.name(), us(self.difference_ns));
        if let Some([low, high]) = self.interval_ns {
            let _ = write!(text, " [{} .. {}]", us(low), us(high));
        }
        let _ = match self.p {
            None if self.rounds == [1, 1] => write!(text, " (one run each)"),
            None => write!(text, " (one run on a side)"),
            Some(p) => {
                let word = if self.is_sure { "sure" } else { "may be chance" };
                let p = if p < LEAST_P { format!("< {LEAST_P}") } else { format!("{p:.4}") };
                write!(text, ", p {p}: {word}")
            }
        };
        text
    }
}

/// The least p that is told by its number.
const LEAST_P: f64 = 0.0001;

/// In microseconds, to the nanosecond where they are few.
pub fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if ns < 10_000 { format!("{us:.3}") } else { format!("{us:.1}") }
}

/// Differences of those figures that every round of both sides supports. None is sure before
/// [`judge`] has seen all of them.
pub fn differences(a: &[&Latencies], b: &[&Latencies], figures: &[Figure]) -> Vec<Difference> {
    let instants = || a.iter().chain(b).map(|round| round.instants());
    let (least, most) = (instants().min().unwrap_or(0), instants().max().unwrap_or(0));
    let of = |figure: &Figure| {
        if *figure == Figure::Worst && !are_of_one_length(least, most) {
            return None;
        }
        let values = |side: &[&Latencies]| -> Option<Vec<u64>> {
            side.iter().map(|round| figure.of(round)).collect()
        };
        difference(*figure, &values(a)?, &values(b)?)
    };
    figures.iter().filter_map(of).collect()
}

/// Numbers of instants of which the worst may be compared: the longer a round, the worse its worst.
pub const fn are_of_one_length(least: u64, most: u64) -> bool {
    most - least <= most / 100
}

/// Of one number a round; `None` without a round on a side.
pub fn difference(figure: Figure, a_ns: &[u64], b_ns: &[u64]) -> Option<Difference> {
    let sorted = |side: &[u64]| {
        let mut side = side.to_vec();
        side.sort_unstable();
        side
    };
    let (a, b) = (sorted(a_ns), sorted(b_ns));
    let middle_of =
        |side: &[u64]| Some(middle(side.len(), |place| i128::from(side[place]))? as u64);
    let (a_middle_ns, b_middle_ns) = (middle_of(&a)?, middle_of(&b)?);
    let pairs = a.len() * b.len();
    let difference_ns = middle(pairs, |place| nth(&a, &b, place))?;
    let agreeing = match difference_ns {
        0 => up_to(&a, &b, 0) - up_to(&a, &b, -1),
        1.. => pairs - up_to(&a, &b, 0),
        _ => up_to(&a, &b, -1),
    };
    Some(Difference {
        figure,
        rounds: [a.len(), b.len()],
        a_ns: a_middle_ns,
        b_ns: b_middle_ns,
        difference_ns: saturated(difference_ns),
        interval_ns: interval(&a, &b),
        pairs,
        agreeing,
        p: (a.len() > 1 && b.len() > 1).then(|| rank_sum(&a, &b)),
        is_sure: false,
    })
}

/// Of times as long as centuries.
fn saturated(ns: i128) -> i64 {
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

/// Says which differences are sure, all of them together (Holm, 1979): the smallest p of m must be
/// at most 5 % / m, the next one 5 % / (m - 1), and so on up to the first that is not.
pub fn judge<'a>(all: impl IntoIterator<Item = &'a mut Difference>) {
    let mut all: Vec<&mut Difference> = all.into_iter().filter(|one| one.p.is_some()).collect();
    all.sort_by(|one, other| one.p.partial_cmp(&other.p).expect("a p is a number"));
    let count = all.len();
    for (turn, one) in all.into_iter().enumerate() {
        one.is_sure = one.p.is_some_and(|p| p <= ALPHA / (count - turn) as f64);
        if !one.is_sure {
            break;
        }
    }
}

/// Rounds on each side that can make one of so many differences sure: 4 for one, 5 for up to 6, 6
/// for up to 23, 7 for up to 85.
pub fn fewest_rounds(differences: usize) -> usize {
    let least_p = |rounds: usize| -> f64 {
        // Two of (2n over n) arrangements are the most extreme.
        (1..=rounds).fold(2.0, |p, turn| p * turn as f64 / (rounds + turn) as f64)
    };
    let enough = |rounds: &usize| least_p(*rounds) <= ALPHA / differences.max(1) as f64;
    (2..64).find(enough).unwrap_or(64)
}

/// The median of so many sorted values; between two, their mean.
fn middle(count: usize, nth: impl Fn(usize) -> i128) -> Option<i128> {
    let last = count.checked_sub(1)?;
    let (low, high) = (nth(last / 2), nth(last - last / 2));
    Some(low + (high - low) / 2)
}

/// How many differences b - a of sorted values are at most that.
fn up_to(a: &[u64], b: &[u64], most: i128) -> usize {
    let mut below = 0;
    let of = |one: &u64| {
        while b.get(below).is_some_and(|b| i128::from(*b) - i128::from(*one) <= most) {
            below += 1;
        }
        below
    };
    a.iter().map(of).sum()
}

/// The difference b - a of sorted values at that place, from the least. They are counted and not
/// kept: of many rounds they are too many.
fn nth(a: &[u64], b: &[u64], place: usize) -> i128 {
    let most = i128::from(u64::MAX);
    let (mut low, mut high) = (-most, most);
    while low < high {
        let half = low + (high - low).div_euclid(2);
        if up_to(a, b, half) > place {
            high = half;
        } else {
            low = half + 1;
        }
    }
    low
}

/// The two-sided p of the rank sum of sorted values; each value of a tie has the mean rank.
fn rank_sum(a: &[u64], b: &[u64]) -> f64 {
    let mut all: Vec<u64> = a.iter().chain(b).copied().collect();
    all.sort_unstable();
    let ranks: Vec<usize> = all.iter().map(|value| doubled(&all, *value)).collect();
    // Of either side: where it is fewer, there is less to count.
    let side = if a.len() <= b.len() { a } else { b };
    let found = side.iter().map(|value| doubled(&all, *value)).sum();
    two_sided(&ranks, side.len(), found)
}

/// Of the differences of sorted values, those that the test does not refuse at 5 %.
fn interval(a: &[u64], b: &[u64]) -> Option<[i64; 2]> {
    let outside = least_sums(a.len().min(b.len()), a.len().max(b.len()), ALPHA / 2.0);
    let low = outside.checked_sub(1)?;
    let high = (a.len() * b.len()).checked_sub(outside)?;
    Some([low, high].map(|place| saturated(nth(a, b, place))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(a: &[u64], b: &[u64]) -> Difference {
        difference(Figure::Median, a, b).unwrap()
    }

    #[test]
    fn p_is_that_of_the_published_tables() {
        // All of one side below all of the other: two of (2n over n) arrangements.
        for (rounds, all) in [(2, 6.0), (3, 20.0), (4, 70.0), (5, 252.0), (6, 924.0)] {
            let (a, b) = (0..rounds, 100..100 + rounds);
            let one = of(&a.collect::<Vec<_>>(), &b.collect::<Vec<_>>());
            assert!((one.p.unwrap() - 2.0 / all).abs() < 1e-12, "{rounds}: {one:?}");
        }
        // Mann and Whitney's table for 4 against 4: U = 1 has 2 of 70 below or at it, on a side.
        let one = of(&[1, 2, 3, 5], &[4, 6, 7, 8]);
        assert!((one.p.unwrap() - 4.0 / 70.0).abs() < 1e-12, "{one:?}");
        // 5 against 3, U = 2: 4 of 56 on a side.
        let one = of(&[1, 2, 3, 4, 7], &[5, 6, 8]);
        assert!((one.p.unwrap() - 8.0 / 56.0).abs() < 1e-12, "{one:?}");
    }

    #[test]
    fn p_with_ties_is_that_of_every_arrangement_counted() {
        let all = [3u64, 3, 5, 5, 5, 9, 11, 11, 2];
        let middle = |values: &[u64], of: u64| -> f64 {
            let below = values.iter().filter(|one| **one < of).count() as f64;
            below + (values.iter().filter(|one| **one == of).count() as f64 + 1.0) / 2.0
        };
        let sum = |mask: u32| -> f64 {
            (0..9).filter(|at| mask >> at & 1 == 1).map(|at| middle(&all, all[at])).sum()
        };
        let masks: Vec<u32> = (0u32..512).filter(|mask| mask.count_ones() == 4).collect();
        for mask in masks.clone() {
            let far = |one: &&u32| (sum(**one) - 20.0).abs() >= (sum(mask) - 20.0).abs() - 1e-9;
            let expected = masks.iter().filter(far).count() as f64 / masks.len() as f64;
            let side = |bit| -> Vec<u64> {
                (0..9).filter(|at| mask >> at & 1 == bit).map(|at| all[at]).collect()
            };
            let p = of(&side(1), &side(0)).p.unwrap();
            assert!((p - expected).abs() < 1e-12, "{mask:b}: {p}, not {expected}");
        }
    }

    #[test]
    fn the_same_twice_is_no_difference_and_one_run_each_is_never_sure() {
        let mut same = of(&[7; 6], &[7; 6]);
        judge([&mut same]);
        assert_eq!((same.difference_ns, same.p, same.is_sure), (0, Some(1.0), false));
        let mut one = of(&[10], &[1_000_000]);
        judge([&mut one]);
        assert_eq!((one.difference_ns, one.p, one.is_sure), (999_990, None, false));
        assert_eq!(one.interval_ns, None);
        assert_eq!(difference(Figure::P99, &[], &[1]), None);
    }

    #[test]
    fn a_shift_is_found_with_its_size_and_its_interval() {
        let a = [100, 101, 102, 103, 104, 105];
        let b = a.map(|ns| ns + 300);
        let mut one = of(&a, &b);
        judge([&mut one]);
        assert_eq!((one.difference_ns, one.agreeing, one.pairs), (300, 36, 36));
        assert_eq!((one.a_ns, one.b_ns), (102, 402));
        assert!(one.is_sure, "{one:?}");
        // 6 against 6 leave out five differences on each side (U <= 5 is refused at 5 %).
        let mut pairs: Vec<i64> =
            a.iter().flat_map(|a| b.iter().map(move |b| *b as i64 - *a as i64)).collect();
        pairs.sort_unstable();
        assert_eq!(one.interval_ns, Some([pairs[5], pairs[30]]));
        let back = of(&b, &a);
        assert_eq!((back.difference_ns, back.agreeing), (-300, 36));
        assert_eq!(of(&a[..3], &b[..3]).interval_ns, None, "3 against 3 bound nothing");
    }

    #[test]
    fn several_figures_are_judged_together() {
        let with_p = |p| Difference { p: Some(p), ..of(&[1, 2], &[3, 4]) };
        let mut all = [0.03, 0.012, 0.2, 0.024].map(with_p);
        judge(&mut all);
        assert_eq!(all.map(|one| one.is_sure), [false, true, false, false]);
        let mut all = [0.05, 0.025].map(with_p);
        judge(&mut all);
        assert_eq!(all.map(|one| one.is_sure), [true, true]);
        let rounds: Vec<usize> = [1, 2, 6, 7, 23, 24, 85].into_iter().map(fewest_rounds).collect();
        assert_eq!(rounds, [4, 5, 5, 6, 6, 7, 7]);
    }

    #[test]
    fn rounds_of_different_length_have_no_common_worst_and_what_is_too_short_no_percentile() {
        let rounds = |instants: u64| Latencies::of((0..instants).map(|turn| turn * 7919 % 1000));
        let names = |a: &Latencies, b: &Latencies| -> Vec<Figure> {
            let all = differences(&[a, a], &[b, b], &Figure::ALL);
            all.iter().map(|one| one.figure).collect()
        };
        let (long, short) = (rounds(10_000), rounds(900));
        assert_eq!(names(&long, &long), Figure::ALL);
        assert_eq!(names(&long, &short), [Figure::Median, Figure::P99]);
        assert_eq!(names(&long, &Latencies::default()), []);
    }

    #[test]
    fn a_difference_is_told_to_the_nanosecond_where_it_is_small_and_no_p_is_zero() {
        let told = |a: &[u64], b: &[u64]| difference(Figure::Median, a, b).unwrap().told();
        assert_eq!(told(&[5_000], &[5_030]), "median +0.030 us (one run each)");
        assert_eq!(told(&[50_000], &[20_000, 20_000]), "median -30.0 us (one run on a side)");
        let [a, b] = [1_000, 9_000].map(|least| (least..least + 12).collect::<Vec<u64>>());
        assert!(told(&a, &b).contains("], p < 0.0001: "), "{}", told(&a, &b));
    }

    /// Counted one by one they take 13 GB, and longer than a test may.
    #[test]
    fn a_thousand_rounds_against_a_thousand_are_compared() {
        let (mut a, mut b): (Vec<u64>, Vec<u64>) =
            (0u64..2000).map(|at| at * 7919 % 100_003).partition(|value| value % 2 == 0);
        (a, b) = (
            a.into_iter().cycle().take(1000).collect(),
            b.into_iter().cycle().take(1000).collect(),
        );
        let before = std::time::Instant::now();
        let same = of(&a, &a);
        let one = of(&a, &b.iter().map(|ns| ns + 10_000).collect::<Vec<_>>());
        let took = before.elapsed();
        assert!(took < std::time::Duration::from_secs(120), "two of them took {took:?}");
        assert_eq!((same.difference_ns, same.p), (0, Some(1.0)));
        let [low, high] = one.interval_ns.unwrap();
        assert!(low < 10_000 && 10_000 < high && high - low < 10_000, "{one:?}");
        assert!(one.p.unwrap() < 1e-6 && one.pairs == 1_000_000, "{one:?}");
    }

    #[test]
    fn times_of_centuries_keep_their_sign() {
        let one = of(&[7], &[u64::MAX]);
        assert_eq!((one.a_ns, one.b_ns, one.difference_ns), (7, u64::MAX, i64::MAX));
        assert_eq!(of(&[u64::MAX], &[7]).difference_ns, i64::MIN);
        let half = 1 << 63;
        assert_eq!(of(&[half - 1], &[half]).difference_ns, 1);
        assert_eq!(of(&[half; 4], &[half + 5; 4]).interval_ns, Some([5, 5]));
    }
}
