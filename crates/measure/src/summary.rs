// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a run: average, deviation, extremes, percentiles over all instants. Integers in
//! ns but the average and the deviation.

use crate::histogram::{ALL_PERCENTILES, Latencies, Quantile};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// All instants: those sampled and those missed. The figures below are of all of them.
    pub instants: u64,
    pub samples: u64,
    /// Instants that passed while the probe was late for an earlier one. `None` of an import that
    /// does not tell them: its figures are of samples alone.
    pub missed: Option<u64>,
    /// Samples that found no room: their latencies are not known.
    pub lost: u64,
    /// `None` without instants, or where an import does not say it.
    pub average_ns: Option<f64>,
    /// Of the sample (n - 1); 0 for one instant. `None` where an import does not say it.
    pub deviation_ns: Option<f64>,
    pub min_ns: Option<u64>,
    /// `None` without instants, or where an import's longest ones have no known latency.
    pub max_ns: Option<u64>,
    /// Those that the number of instants supports.
    pub percentiles: Vec<PercentileValue>,
}

/// A percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PercentileValue {
    pub name: &'static str,
    pub ns: u64,
    /// It lies beyond the last bucket of an import, which begins there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub or_more: bool,
}

impl Summary {
    pub fn of(latencies: &Latencies) -> Self {
        let figure = |name, one_in| match latencies.quantile(one_in) {
            Quantile::At { ns } => Some(PercentileValue { name, ns, or_more: false }),
            Quantile::AtLeast { ns } => Some(PercentileValue { name, ns, or_more: true }),
            Quantile::Unsupported => None,
        };
        let percentiles = ALL_PERCENTILES.iter().filter_map(|one| figure(one.name, one.one_in));
        Self {
            instants: latencies.instants(),
            samples: latencies.samples(),
            missed: latencies.known_missed(),
            lost: latencies.lost(),
            average_ns: latencies.average_ns(),
            deviation_ns: latencies.deviation_ns(),
            min_ns: latencies.min_ns(),
            max_ns: latencies.max_ns(),
            percentiles: percentiles.collect(),
        }
    }

    /// A percentile by its name; `None` where there are too few instants.
    pub fn percentile(&self, name: &str) -> Option<PercentileValue> {
        self.percentiles.iter().find(|figure| figure.name == name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_one_to_a_thousand_are_known() {
        let mut latencies = Latencies::of((1..=1000).rev());
        latencies.lose(3);
        let summary = Summary::of(&latencies);
        assert_eq!((summary.instants, summary.missed, summary.lost), (1000, Some(0), 3));
        assert_eq!((summary.min_ns, summary.max_ns), (Some(1), Some(1000)));
        assert_eq!(summary.average_ns, Some(500.5));
        let deviation = summary.deviation_ns.unwrap();
        assert!((deviation - 288.819_436_095_7).abs() < 1e-6, "{deviation}");
        let figures: Vec<(&str, u64)> =
            summary.percentiles.iter().map(|figure| (figure.name, figure.ns)).collect();
        assert_eq!(figures, [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999)]);
    }

    #[test]
    fn without_an_instant_there_is_no_figure() {
        let summary = Summary::of(&Latencies::default());
        assert_eq!((summary.instants, summary.average_ns, summary.max_ns), (0, None, None));
        assert_eq!(summary.percentiles, []);
        assert_eq!(Summary::of(&Latencies::of([7])).percentiles, []);
        assert_eq!(Summary::of(&Latencies::of([7])).deviation_ns, Some(0.0));
    }
}
