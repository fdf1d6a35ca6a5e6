// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How exactly instants were met: accuracy (the mean error) and precision (the spread of errors).

/// Bins of [`WIDTH_NS`] on either side of zero; what lies outside is counted in the last bin of its
/// side.
const BINS: usize = 2000;
const WIDTH_NS: i64 = 250;

/// Errors of instants in ns, negative: early. Recording is bounded and allocates nothing.
#[derive(Debug, Clone)]
pub struct Errors {
    bins: Box<[u64]>,
    count: u64,
    sum_ns: i128,
    sum_absolute_ns: u128,
    extremes_ns: Option<(i64, i64)>,
}

/// A summary of errors, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exactness {
    pub count: u64,
    /// The accuracy: the mean error.
    pub mean_ns: f64,
    pub mean_absolute_ns: f64,
    pub min_ns: i64,
    pub max_ns: i64,
    /// The precision: p1, p50 and p99, each the middle of a bin of 250 ns, within
    /// `min_ns..=max_ns`. Errors beyond +-500 us are in one bin on each side.
    pub p1_p50_p99_ns: [i64; 3],
}

impl Default for Errors {
    fn default() -> Self {
        Self {
            bins: vec![0; 2 * BINS].into(),
            count: 0,
            sum_ns: 0,
            sum_absolute_ns: 0,
            extremes_ns: None,
        }
    }
}

impl Errors {
    /// Records an action that was due at `instant_ns` and began at `acted_ns`.
    pub fn record(&mut self, instant_ns: u64, acted_ns: u64) {
        let error = i128::from(acted_ns) - i128::from(instant_ns);
        let error = error.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let bin = (error.div_euclid(WIDTH_NS)).clamp(-(BINS as i64), BINS as i64 - 1) + BINS as i64;
        self.bins[bin as usize] += 1;
        self.count += 1;
        self.sum_ns += i128::from(error);
        self.sum_absolute_ns += u128::from(error.unsigned_abs());
        let (min, max) = self.extremes_ns.unwrap_or((error, error));
        self.extremes_ns = Some((min.min(error), max.max(error)));
    }

    /// `None`: nothing was recorded.
    pub fn exactness(&self) -> Option<Exactness> {
        let (min_ns, max_ns) = self.extremes_ns?;
        let percentile = |percent: u64| {
            let rank = (self.count * percent).div_ceil(100).max(1);
            let mut below = 0;
            let reached = |count: &u64| {
                below += count;
                below >= rank
            };
            let bin = self.bins.iter().position(reached).unwrap_or(2 * BINS - 1);
            ((bin as i64 - BINS as i64) * WIDTH_NS + WIDTH_NS / 2).clamp(min_ns, max_ns)
        };
        Some(Exactness {
            count: self.count,
            mean_ns: self.sum_ns as f64 / self.count as f64,
            mean_absolute_ns: self.sum_absolute_ns as f64 / self.count as f64,
            min_ns,
            max_ns,
            p1_p50_p99_ns: [1, 50, 99].map(percentile),
        })
    }
}

impl std::fmt::Display for Exactness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |ns: i64| ns as f64 / 1000.0;
        let [p1, p50, p99] = self.p1_p50_p99_ns.map(us);
        let (mean, absolute) = (self.mean_ns / 1000.0, self.mean_absolute_ns / 1000.0);
        write!(
            f,
            "accuracy (mean error) {mean:.2} us, precision (p1 p50 p99) {p1:.2} {p50:.2} \
             {p99:.2} us, mean |error| {absolute:.2} us, min {:.2}, max {:.2}, of {}",
            us(self.min_ns),
            us(self.max_ns),
            self.count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_is_the_mean_and_precision_the_scatter() {
        let mut errors = Errors::default();
        assert_eq!(errors.exactness(), None);
        // -50 to 49 us, each once.
        (0..100).for_each(|n| errors.record(1_000_000, 950_000 + n * 1000));
        let exactness = errors.exactness().unwrap();
        assert_eq!((exactness.count, exactness.min_ns, exactness.max_ns), (100, -50_000, 49_000));
        assert_eq!((exactness.mean_ns, exactness.mean_absolute_ns), (-500.0, 25_000.0));
        assert_eq!(exactness.p1_p50_p99_ns, [-49_875, -875, 48_125]);
    }

    #[test]
    fn a_little_early_is_not_a_little_late() {
        let mut errors = Errors::default();
        [900, 940, 940].into_iter().for_each(|acted_ns| errors.record(1000, acted_ns));
        assert_eq!(errors.exactness().unwrap().p1_p50_p99_ns, [-100; 3]);
    }

    #[test]
    fn errors_beyond_the_bins_are_kept_in_the_extremes() {
        let mut errors = Errors::default();
        errors.record(u64::MAX, 0);
        errors.record(0, 7_000_000);
        let exactness = errors.exactness().unwrap();
        assert_eq!((exactness.min_ns, exactness.max_ns), (i64::MIN, 7_000_000));
        assert_eq!(exactness.p1_p50_p99_ns[2], 499_875);
    }
}
