// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integer time of a task set: whole ticks, each an equal part of a nanosecond.
//!
//! Every test computes in whole ticks. With times in whole nanoseconds a tick is a nanosecond.
//! A period of 64/48000 s is 4000000/3 ns, so there a tick is 1/3 ns and the period 4000000 ticks:
//! the verdict is about the period as given, not about a rounded one.

use crate::numbers::lcm;
use crate::task::MAX_TICKS;
use asmp_duration::ExactDuration;

/// How many ticks a nanosecond has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBase {
    ticks_per_ns: u64,
}

impl Default for TimeBase {
    fn default() -> Self {
        Self::NANOSECONDS
    }
}

impl TimeBase {
    /// A tick is a nanosecond.
    pub const NANOSECONDS: Self = Self { ticks_per_ns: 1 };

    /// The least number of ticks per nanosecond (at least that of `self`) of which this duration,
    /// too, is a whole number. `None`: more than 64 bits of them.
    pub fn including(self, duration: ExactDuration) -> Option<Self> {
        let ticks_per_ns = lcm(self.ticks_per_ns, duration.denominator())?;
        Some(Self { ticks_per_ns })
    }

    pub const fn ticks_per_ns(self) -> u64 {
        self.ticks_per_ns
    }

    /// `None`: not a whole number of ticks, or more than 64 bits of them.
    pub const fn ticks(self, duration: ExactDuration) -> Option<u64> {
        duration.in_parts(self.ticks_per_ns)
    }

    /// Whole ticks that have passed after this duration. `None`: more than 64 bits of them.
    pub fn ticks_within(self, duration: ExactDuration) -> Option<u64> {
        let all = u128::from(duration.numerator_ns()) * u128::from(self.ticks_per_ns);
        u64::try_from(all / u128::from(duration.denominator())).ok()
    }

    pub fn duration(self, ticks: u64) -> ExactDuration {
        let exact = ExactDuration::fraction_ns(ticks.into(), self.ticks_per_ns.into());
        // Both sides have 64 bits, and there is at least a tick in a nanosecond.
        exact.unwrap_or(ExactDuration::ZERO)
    }

    /// For people: exact where that is short, else marked as rounded (`~1.333333 ms`).
    pub fn show(self, ticks: u64) -> String {
        self.duration(ticks).rounded()
    }

    /// The longest time that tests take, roughly.
    pub fn longest(self) -> String {
        let ns = MAX_TICKS / self.ticks_per_ns;
        let units = [("years", 365 * 86_400), ("days", 86_400), ("hours", 3_600), ("minutes", 60)];
        match units.into_iter().find(|(_, seconds)| ns >= 2 * seconds * 1_000_000_000) {
            Some((name, seconds)) => format!("{} {name}", ns / 1_000_000_000 / seconds),
            None => ExactDuration::from_ns(ns).rounded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_of_a_set_become_whole_ticks_and_come_back_exactly() {
        let texts = ["64/48000 s", "44.1 kHz", "1 ms", "0", "0.5 ns", "3 GHz"];
        let all: Vec<ExactDuration> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let mut time = TimeBase::NANOSECONDS;
        for duration in &all {
            time = time.including(*duration).unwrap();
        }
        assert_eq!(time.ticks_per_ns(), 3 * 147 * 2);
        for duration in all {
            let ticks = time.ticks(duration).unwrap();
            assert_eq!(time.duration(ticks), duration);
            assert_eq!(time.ticks_within(duration), Some(ticks));
        }
        assert_eq!(time.ticks("1/5 ns".parse().unwrap()), None);
        assert_eq!(time.ticks_within("1/5 ns".parse().unwrap()), Some(176));
        assert_eq!(time.show(time.ticks_per_ns() * 1_500), "1.5 us");
    }

    #[test]
    fn a_base_that_does_not_fit_is_none() {
        let prime = |below: u128| ExactDuration::fraction_ns(1, below).unwrap();
        let time = TimeBase::NANOSECONDS.including(prime(4_294_967_291)).unwrap();
        let time = time.including(prime(4_294_967_279)).unwrap();
        assert_eq!(time.including(prime(4_294_967_231)), None);
        assert_eq!(TimeBase::NANOSECONDS.longest(), "36 years");
        assert_eq!(TimeBase { ticks_per_ns: 441 }.longest(), "30 days");
        assert_eq!(time.longest(), "0 ns");
    }
}
