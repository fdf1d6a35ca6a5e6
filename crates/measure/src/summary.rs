// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a paper prints of a run: average, deviation, extremes, percentiles. Integers in ns but the
//! average and the deviation.

use serde::Serialize;

/// Percentiles that are reported, as (name, part above it: one in so many).
pub const PERCENTILES: [(&str, u64); 4] =
    [("p50", 2), ("p99", 100), ("p99.999", 100_000), ("p99.999999", 100_000_000)];

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub samples: u64,
    pub lost: u64,
    pub average_ns: f64,
    /// Of the sample (n - 1); 0 for one sample.
    pub deviation_ns: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// In the order of [`PERCENTILES`]; `None`: not enough samples for that one.
    pub percentiles_ns: [Option<u64>; 4],
}

impl Summary {
    /// `None` of no values.
    pub fn of(values: &[u64], lost: u64) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let (min_ns, max_ns) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        let average = sorted.iter().map(|value| *value as f64).sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|value| (*value as f64 - average).powi(2)).sum();
        let deviation = if sorted.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Some(Self {
            samples: sorted.len() as u64,
            lost,
            average_ns: average,
            deviation_ns: deviation,
            min_ns,
            max_ns,
            percentiles_ns: PERCENTILES.map(|(_, one_in)| percentile(&sorted, one_in)),
        })
    }
}

/// The smallest value with at most one in `one_in` above it (nearest rank). At least one sample
/// must be able to lie above: with fewer samples than `one_in` there is no such percentile.
fn percentile(sorted: &[u64], one_in: u64) -> Option<u64> {
    let count = sorted.len() as u64;
    let above = count / one_in;
    if above == 0 {
        return None;
    }
    sorted.get(usize::try_from(count - above).ok()? - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_one_to_a_thousand_are_known() {
        let values: Vec<u64> = (1..=1000).rev().collect();
        let summary = Summary::of(&values, 3).unwrap();
        assert_eq!(
            (summary.samples, summary.lost, summary.min_ns, summary.max_ns),
            (1000, 3, 1, 1000)
        );
        assert_eq!(summary.average_ns, 500.5);
        assert!(
            (summary.deviation_ns - 288.819_436_095_7).abs() < 1e-6,
            "{}",
            summary.deviation_ns
        );
        assert_eq!(summary.percentiles_ns, [Some(500), Some(990), None, None]);
    }

    #[test]
    fn a_percentile_is_not_invented() {
        assert_eq!(Summary::of(&[], 0), None);
        assert_eq!(Summary::of(&[7], 0).unwrap().percentiles_ns, [None; 4]);
        let values = vec![1; 99_999];
        assert_eq!(Summary::of(&values, 0).unwrap().percentiles_ns, [Some(1), Some(1), None, None]);
        let values = vec![1; 100_000];
        assert_eq!(Summary::of(&values, 0).unwrap().percentiles_ns[2], Some(1));
    }
}
