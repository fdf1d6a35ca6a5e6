// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closed-loop calibration of a timer: it compensates the latency that all wake-ups have in common.
//!
//! Ruocco prints only the outcome (52..57 us late becomes -4..+3 us). Here: for an instant `t` the
//! timer is programmed to the aim `t - m` less the estimate `e`; the thread wakes at `now`; `err =
//! now - aim`; `e += k err`, err clipped, so that one preemption does not move the estimate. With a
//! final spin the aim lies a margin `m` before `t`, and the CPU is kept for what is left of it;
//! without, `m = 0`. The margin is `3 E|err|`, which suffices where errors have bounds, or, where
//! they have a tail, the error that only a chosen share of wake-ups exceeds, found as they come
//! (Robbins and Monro, 1951): one that exceeds it adds `(1 - share) k clip`, any other takes `share
//! k clip` away.
//!
//! Wake-ups have a tail on one side, and with a clip of 100 us alone 1 % of them beyond it draws
//! `e` 1 us from their middle. So an error counts also as no more than `E|err|` once the loop has
//! settled (Huber's estimator): on a loaded host the median went from -0.98 to -0.26 us. The first
//! `1/k` wake-ups are averaged plainly (`k = 1/n`), so that the loop settles at once. Pure
//! arithmetic: bounded, no allocation, no system call.

/// Errors of that size always count in full, so that a loop without noise still moves.
const FLOOR_NS: f64 = 1000.0;

/// Parameters of the loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// `k`, 0.02 to 0.05; 0 leaves the timer raw.
    pub gain: f64,
    /// Larger errors count as this.
    pub clip_ns: u64,
    /// Share of the wake-ups that may come too late for a final spin, 0 to 1; `None`: no final
    /// spin.
    pub spin: Option<f64>,
}

impl Tuning {
    pub const RAW: Self = Self { gain: 0.0, clip_ns: 100_000, spin: None };
    pub const CALIBRATED: Self = Self { gain: 0.03, ..Self::RAW };
    pub const SPINNING: Self = Self { spin: Some(0.005), ..Self::CALIBRATED };
}

/// A timer set for an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Programmed {
    /// When the action is due.
    pub instant_ns: u64,
    /// When the thread has to be awake.
    pub aim_ns: u64,
    /// The instant that the timer is set to.
    pub timer_ns: u64,
}

#[derive(Debug, Clone)]
pub struct Calibration {
    tuning: Tuning,
    estimate_ns: f64,
    mean_absolute_ns: f64,
    /// The error that only the chosen share exceeds.
    tail_ns: f64,
    wakes: u64,
}

impl Calibration {
    pub fn new(tuning: Tuning) -> Self {
        Self { tuning, estimate_ns: 0.0, mean_absolute_ns: 0.0, tail_ns: 0.0, wakes: 0 }
    }

    /// Computes the timer for an action at `instant_ns`.
    pub fn program(&self, instant_ns: u64) -> Programmed {
        let aim_ns = instant_ns.saturating_sub(self.margin_ns());
        let timer_ns = aim_ns.saturating_add_signed(-(self.estimate_ns.round() as i64));
        Programmed { instant_ns, aim_ns, timer_ns }
    }

    /// Learns from a wake-up that this timer caused. Not for one that came early, nor for a timer
    /// that had passed when it was set.
    pub fn learn(&mut self, timer: &Programmed, woken_ns: u64) {
        if self.tuning.gain <= 0.0 {
            return;
        }
        self.wakes = self.wakes.saturating_add(1);
        let gain = self.tuning.gain.max(1.0 / self.wakes as f64);
        let clip = self.tuning.clip_ns as f64;
        let error = (i128::from(woken_ns) - i128::from(timer.aim_ns)) as f64;
        let error = error.clamp(-clip, clip);
        let settled = gain <= self.tuning.gain;
        let usual = if settled { self.mean_absolute_ns.max(FLOOR_NS).min(clip) } else { clip };
        self.estimate_ns += gain * error.clamp(-usual, usual);
        self.mean_absolute_ns += gain * (error.abs() - self.mean_absolute_ns);
        if let Some(share) = self.tuning.spin {
            let late = if error > self.tail_ns { 1.0 } else { 0.0 };
            self.tail_ns =
                (self.tail_ns + self.tuning.gain * clip * (late - share)).clamp(0.0, clip);
        }
    }

    /// `e`: the wake-up latency that is compensated.
    pub fn estimate_ns(&self) -> f64 {
        self.estimate_ns
    }

    /// `m`: how long before the instant the thread means to be awake; at most three times the clip,
    /// 0 without a final spin.
    pub fn margin_ns(&self) -> u64 {
        match self.tuning.spin {
            Some(_) => (3.0 * self.mean_absolute_ns).max(self.tail_ns) as u64,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wakes a machine whose wake-ups take `latency_ns(n)`; errors against the instant, spin
    /// included.
    fn errors_ns(tuning: Tuning, wakes: u64, latency_ns: impl Fn(u64) -> u64) -> Vec<i64> {
        let mut calibration = Calibration::new(tuning);
        let wake = |n| {
            let timer = calibration.program((n + 1) * 1_000_000);
            let woken_ns = timer.timer_ns + latency_ns(n);
            calibration.learn(&timer, woken_ns);
            let acted_ns =
                if tuning.spin.is_some() { woken_ns.max(timer.instant_ns) } else { woken_ns };
            acted_ns as i64 - timer.instant_ns as i64
        };
        (0..wakes).map(wake).collect()
    }

    /// 52 to 57 us, as the paper's machine.
    fn paper(n: u64) -> u64 {
        52_000 + n * 7919 % 5001
    }

    #[test]
    fn the_papers_latency_becomes_less_than_its_remaining_error() {
        let raw = errors_ns(Tuning::RAW, 2000, paper);
        assert!(raw.iter().all(|error| (52_000..=57_000).contains(error)));
        let calibrated = &errors_ns(Tuning::CALIBRATED, 2000, paper)[100..];
        assert!(calibrated.iter().all(|error| (-4000..=3000).contains(error)), "{calibrated:?}");
        let mean = calibrated.iter().sum::<i64>() as f64 / calibrated.len() as f64;
        assert!(mean.abs() < 100.0, "{mean}");
    }

    #[test]
    fn a_final_spin_leaves_nothing_early() {
        let errors = &errors_ns(Tuning::SPINNING, 2000, paper)[100..];
        assert!(errors.iter().all(|error| *error == 0), "{errors:?}");
        // Without noise there is nothing to spin for.
        let mut calibration = Calibration::new(Tuning::SPINNING);
        for n in 1..5000 {
            let timer = calibration.program(n * 1_000_000);
            calibration.learn(&timer, timer.timer_ns + 20_000);
        }
        assert!(calibration.margin_ns() < 50, "{}", calibration.margin_ns());
    }

    #[test]
    fn only_the_chosen_share_comes_too_late_for_the_spin() {
        // 2 of 100 wake-ups are 40 us later than the others, 1 of 1000 is 500 us later.
        let latency = |n| {
            paper(n)
                + if n % 50 == 49 { 40_000 } else { 0 }
                + if n % 1000 == 7 { 500_000 } else { 0 }
        };
        let errors = &errors_ns(Tuning::SPINNING, 20_000, latency)[2000..];
        let late = errors.iter().filter(|error| **error > 0).count() as f64 / errors.len() as f64;
        assert!((0.001..0.006).contains(&late), "{late}");
    }

    #[test]
    fn one_outlier_hardly_moves_the_estimate_and_many_do() {
        let mut calibration = Calibration::new(Tuning::CALIBRATED);
        for n in 1..1000 {
            let timer = calibration.program(n * 1_000_000);
            calibration.learn(&timer, timer.timer_ns + 16_000);
        }
        let before = calibration.estimate_ns();
        let timer = calibration.program(1_000_000_000);
        calibration.learn(&timer, timer.timer_ns + 50_000_000);
        let moved = calibration.estimate_ns() - before;
        assert!((29.0..=31.0).contains(&moved), "the gain times 1 us: {moved}");
        for n in 1..1000 {
            let timer = calibration.program((1000 + n) * 1_000_000);
            calibration.learn(&timer, timer.timer_ns + 50_000_000);
        }
        let moved = calibration.estimate_ns() - before;
        assert!(moved > 500_000.0, "what stays is no outlier: {moved}");
    }

    #[test]
    fn a_tail_on_one_side_does_not_draw_the_middle_away() {
        // 2 of 100 wake-ups are 500 us late.
        let latency = |n| if n % 50 == 49 { 520_000 } else { paper(n) };
        let mut errors = errors_ns(Tuning::CALIBRATED, 5000, latency)[100..].to_vec();
        errors.sort_unstable();
        let median = errors[errors.len() / 2];
        assert!(median.abs() < 500, "{median}");
    }

    #[test]
    fn a_latency_that_changes_is_followed() {
        let errors = errors_ns(Tuning::CALIBRATED, 1000, |n| if n < 500 { 10_000 } else { 40_000 });
        assert!(errors[500] > 29_000, "{}", errors[500]);
        assert!(errors[999].abs() < 10, "{}", errors[999]);
    }

    #[test]
    fn instants_at_the_ends_of_time_do_not_wrap() {
        let mut calibration = Calibration::new(Tuning::SPINNING);
        let timer = calibration.program(10);
        calibration.learn(&timer, u64::MAX);
        assert_eq!(calibration.program(10).timer_ns, 0);
        assert!(calibration.program(u64::MAX).timer_ns > u64::MAX / 2);
    }
}
