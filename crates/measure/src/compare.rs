// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two sets of samples: how far apart, and how sure. Confidence by the bootstrap (Efron, 1979):
//! both sets are drawn anew a number of times, with a fixed seed, so that the same runs give the
//! same answer.

use serde::Serialize;

/// Draws; the interval's ends are then good to about one part in a hundred.
const DRAWS: usize = 1000;
/// Samples of a set that are drawn; of more, every n-th is used.
const MOST: usize = 20_000;

/// A difference (b - a) of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    pub a_ns: u64,
    pub b_ns: u64,
    pub difference_ns: i64,
    /// The middle 95 % of the differences drawn.
    pub low_ns: i64,
    pub high_ns: i64,
}

impl Difference {
    /// Does the interval leave out zero?
    pub fn is_sure(&self) -> bool {
        self.low_ns > 0 || self.high_ns < 0
    }
}

/// Difference of the quantile with `part` (0.5: median) of the samples at or below it. `None`
/// without samples.
pub fn quantile(a: &[u64], b: &[u64], part: f64) -> Option<Difference> {
    let (a, b) = (spread(a), spread(b));
    let (a_ns, b_ns) = (at(&mut a.clone(), part)?, at(&mut b.clone(), part)?);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = |of: &[u64]| {
        let mut drawn: Vec<u64> = (0..of.len())
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                of[(random % of.len() as u64) as usize]
            })
            .collect();
        at(&mut drawn, part).unwrap_or(0) as i64
    };
    let mut differences: Vec<i64> = (0..DRAWS).map(|_| -draw(&a) + draw(&b)).collect();
    differences.sort_unstable();
    Some(Difference {
        a_ns,
        b_ns,
        difference_ns: b_ns as i64 - a_ns as i64,
        low_ns: differences[DRAWS * 25 / 1000],
        high_ns: differences[DRAWS * 975 / 1000 - 1],
    })
}

fn spread(values: &[u64]) -> Vec<u64> {
    values.iter().step_by(values.len().div_ceil(MOST).max(1)).copied().collect()
}

fn at(values: &mut [u64], part: f64) -> Option<u64> {
    let last = values.len().checked_sub(1)?;
    let place = ((values.len() as f64 * part).ceil() as usize).saturating_sub(1).min(last);
    Some(*values.select_nth_unstable(place).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_twice_is_not_surely_different() {
        let values: Vec<u64> = (0..500).map(|n| n * 7919 % 1000).collect();
        let difference = quantile(&values, &values, 0.5).unwrap();
        assert_eq!(difference.difference_ns, 0);
        assert!(!difference.is_sure(), "{difference:?}");
    }

    #[test]
    fn a_shift_is_found_with_its_size() {
        let a: Vec<u64> = (0..500).map(|n| n * 7919 % 1000).collect();
        let b: Vec<u64> = a.iter().map(|value| value + 300).collect();
        let difference = quantile(&a, &b, 0.5).unwrap();
        assert_eq!(difference.difference_ns, 300);
        assert!(
            difference.is_sure() && difference.low_ns > 150 && difference.high_ns < 450,
            "{difference:?}"
        );
        assert_eq!(quantile(&a, &b, 0.5), Some(difference), "the same answer each time");
        assert_eq!(quantile(&[], &b, 0.5), None);
    }
}
