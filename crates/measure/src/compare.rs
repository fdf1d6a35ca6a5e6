// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two sides with several rounds each: how far apart, and how sure. One rule for `compare`, `ab`
//! and `spaces`. Pure and exact: nothing is drawn at random.
//!
//! The unit is the round. Samples of one round depend on each other (a timer, a daemon, a frequency
//! outlasts many of them), so each round gives one number for each figure, and rounds are compared.
//! Under the null hypothesis every distribution of the rounds over the two sides is as likely as
//! any other; the rank sum of one side (Wilcoxon, Mann and Whitney) has then a distribution that is
//! computed whole, ties included. `p` is the part of it at least as far from its middle. Ranks, as
//! one odd round must not decide; two sides, not pairs, as the signs of 6 pairs have 64
//! arrangements, and 6 rounds against 6 have 924.
//!
//! The difference is Hodges' and Lehmann's: the median of all differences b - a of one round each.
//! Its interval has those values that the same test does not refuse at 5 %. Several figures are
//! several chances to be wrong: "sure" is what Holm's method leaves at 5 % for all together.
//! [`fewest_rounds`] says how many rounds that takes at least.

use crate::histogram::{Latencies, Quantile};
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
        let us = |ns: i64| format!("{:+.1}", ns as f64 / 1e3);
        let mut text = format!("{} {} us", self.figure.name(), us(self.difference_ns));
        if let Some([low, high]) = self.interval_ns {
            let _ = write!(text, " [{} .. {}]", us(low), us(high));
        }
        let _ = match self.p {
            None => write!(text, " (one run each)"),
            Some(p) => {
                let word = if self.is_sure { "sure" } else { "may be chance" };
                write!(text, ", p {p:.4}: {word}")
            }
        };
        text
    }
}

/// Differences of those figures that every round of both sides supports. None is sure before
/// [`judge`] has seen all of them.
pub fn differences(a: &[&Latencies], b: &[&Latencies], figures: &[Figure]) -> Vec<Difference> {
    let instants = || a.iter().chain(b).map(|round| round.instants());
    let (least, most) = (instants().min().unwrap_or(0), instants().max().unwrap_or(0));
    let of = |figure: &Figure| {
        // The longer a round, the worse its worst: only rounds of one length are alike.
        if *figure == Figure::Worst && most - least > most / 100 {
            return None;
        }
        let values = |side: &[&Latencies]| -> Option<Vec<u64>> {
            side.iter().map(|round| figure.of(round)).collect()
        };
        difference(*figure, &values(a)?, &values(b)?)
    };
    figures.iter().filter_map(of).collect()
}

/// Of one number a round; `None` without a round on a side.
pub fn difference(figure: Figure, a_ns: &[u64], b_ns: &[u64]) -> Option<Difference> {
    let mut pairs: Vec<i64> =
        a_ns.iter().flat_map(|a| b_ns.iter().map(move |b| *b as i64 - *a as i64)).collect();
    pairs.sort_unstable();
    let difference_ns = middle(&pairs)?;
    let agreeing = pairs.iter().filter(|one| one.signum() == difference_ns.signum()).count();
    let sorted = |side: &[u64]| {
        let mut side: Vec<i64> = side.iter().map(|ns| *ns as i64).collect();
        side.sort_unstable();
        side
    };
    Some(Difference {
        figure,
        rounds: [a_ns.len(), b_ns.len()],
        a_ns: middle(&sorted(a_ns))? as u64,
        b_ns: middle(&sorted(b_ns))? as u64,
        difference_ns,
        interval_ns: interval(&pairs, a_ns.len(), b_ns.len()),
        pairs: pairs.len(),
        agreeing,
        p: (a_ns.len() > 1 && b_ns.len() > 1).then(|| rank_sum(a_ns, b_ns)),
        is_sure: false,
    })
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

/// The median of sorted values; between two, their mean.
fn middle(sorted: &[i64]) -> Option<i64> {
    let last = sorted.len().checked_sub(1)?;
    let (low, high) = (sorted[last / 2], sorted[last - last / 2]);
    Some(low + (high - low) / 2)
}

/// The two-sided p of the rank sum, exact also with ties: each value of a tie has the mean rank.
fn rank_sum(a: &[u64], b: &[u64]) -> f64 {
    let mut all: Vec<u64> = a.iter().chain(b).copied().collect();
    all.sort_unstable();
    // Twice the mean rank is whole: first and last rank of the tie.
    let doubled = |value: u64| {
        all.partition_point(|one| *one < value) + 1 + all.partition_point(|one| *one <= value)
    };
    let ranks: Vec<usize> = all.iter().map(|value| doubled(*value)).collect();
    let found: usize = a.iter().map(|value| doubled(*value)).sum();
    let middle = a.len() * (all.len() + 1);
    let ways = sums(&ranks, a.len());
    let far = |sum: usize| sum.abs_diff(middle) >= found.abs_diff(middle);
    let extreme: f64 = (0..).zip(&ways).filter(|(sum, _)| far(*sum)).map(|(_, ways)| ways).sum();
    (extreme / ways.iter().sum::<f64>()).min(1.0)
}

/// How many choices of `chosen` of the ranks have each sum.
fn sums(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().rev().take(chosen).sum();
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for count in (1..=chosen).rev() {
            let (fewer, more) = ways.split_at_mut(count);
            let (from, to) = (&fewer[count - 1], &mut more[0]);
            for (sum, ways) in from.iter().enumerate().filter(|(_, ways)| **ways > 0.0) {
                // No sum of so many ranks is above the most.
                if let Some(place) = to.get_mut(sum + rank) {
                    *place += ways;
                }
            }
        }
    }
    ways.swap_remove(chosen)
}

/// Of sorted differences, the values that the test does not refuse at 5 %.
fn interval(pairs: &[i64], a: usize, b: usize) -> Option<[i64; 2]> {
    let ranks: Vec<usize> = (1..=a + b).collect();
    let ways = sums(&ranks, a);
    let all: f64 = ways.iter().sum();
    // The rank sum of a side below which less than 2.5 % lie; the least has one way.
    let least = a * (a + 1) / 2;
    let mut below = 0.0;
    let outside = ways[least..]
        .iter()
        .take_while(|ways| {
            below += **ways / all;
            below <= ALPHA / 2.0
        })
        .count();
    let low = outside.checked_sub(1)?;
    Some([*pairs.get(low)?, *pairs.get(pairs.len().checked_sub(outside)?)?])
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
}
