// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exact durations, read with their unit: `1.5 ms`, `500us`, `2 h`, `64/48000 s`, `44.1 kHz`.
//!
//! # Problem
//! An audio period of 64 frames at 48 kHz lasts 4/3 ms. No whole number of nanoseconds is that
//! long, and a test of schedulability over a rounded period proves nothing about the real one.
//! A bare number is as bad: `5` is 5 ms to one program and 5 ns to the next.
//!
//! # Approach
//! A duration is a reduced fraction of nanoseconds. Text must have a unit; only `0` needs none.
//! A rate such as `1kHz` stands for its period. Who needs whole nanoseconds (a timer, a system
//! call) asks for them with [`ExactDuration::whole_ns`]. The refusal names the nearest two.

#![forbid(unsafe_code)]

mod parse;
mod show;

use std::cmp::Ordering;

/// A duration from 0 to 584 years: a reduced fraction of nanoseconds with 64 bits a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExactDuration {
    numerator_ns: u64,
    /// At least 1; 1 where the duration is 0.
    denominator: u64,
}

/// Why a text is not a duration, or not one in whole nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// Neither a number with a unit nor a fraction with one.
    #[error("invalid duration {text:?}: expected e.g. 500us, 1.5 ms, 64/48000 s or 1kHz")]
    Malformed { text: String },
    /// A bare number above 0.
    #[error("duration {text:?} has no unit: write {text}ns, {text}us, {text}ms or {text}s")]
    NoUnit { text: String },
    #[error(
        "duration {text:?}: unknown unit {unit:?}; use ns, us, ms, s, min, h, Hz, kHz, MHz or GHz"
    )]
    UnknownUnit { text: String, unit: String },
    /// What people write elsewhere, and how it is written here.
    #[error("duration {text:?}: {cause}: write {cure}")]
    Spelled { text: String, cause: &'static str, cure: String },
    #[error("duration {text:?} divides by zero")]
    ZeroDivisor { text: String },
    /// `64/48 kHz` could mean 64 periods of 48 kHz, or the period of 64/48 kHz.
    #[error("duration {text:?}: a fraction needs a unit of time, e.g. 64/48000 s, not a rate")]
    FractionOfRate { text: String },
    #[error("duration {text:?} is longer than 584 years")]
    TooLong { text: String },
    /// A fraction whose numerator or denominator needs more than 64 bits.
    #[error("duration {text:?} is too fine to be exact: use fewer digits")]
    TooFine { text: String },
    #[error(transparent)]
    NotWhole(#[from] NotWhole),
}

impl DurationError {
    /// The error in words, for an option that takes seconds or longer times.
    pub fn of_seconds(&self) -> String {
        match self {
            Self::NoUnit { text } => {
                format!("duration {text:?} has no unit: write {text}s")
            }
            other => other.to_string(),
        }
    }
}

/// A duration that ends between two nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{duration} is not a whole number of nanoseconds: use {below_ns} ns or {above_ns} ns")]
pub struct NotWhole {
    pub duration: ExactDuration,
    /// The longest whole number of nanoseconds that is shorter.
    pub below_ns: u64,
    /// The shortest whole number of nanoseconds that is longer.
    pub above_ns: u64,
}

impl ExactDuration {
    pub const ZERO: Self = Self::from_ns(0);

    /// A whole number of nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self { numerator_ns: ns, denominator: 1 }
    }

    /// `numerator / denominator` nanoseconds, reduced. `None`: the denominator is 0, or the
    /// reduced fraction does not fit 64 bits a side.
    pub fn fraction_ns(numerator: u128, denominator: u128) -> Option<Self> {
        let shared = gcd(numerator, denominator);
        let numerator_ns = u64::try_from(numerator.checked_div(shared)?).ok()?;
        let denominator = u64::try_from(denominator / shared).ok().filter(|below| *below > 0)?;
        Some(Self { numerator_ns, denominator })
    }

    /// Numerator of the reduced fraction of nanoseconds.
    pub const fn numerator_ns(self) -> u64 {
        self.numerator_ns
    }

    /// Denominator of the reduced fraction; 1 for a whole number of nanoseconds.
    pub const fn denominator(self) -> u64 {
        self.denominator
    }

    pub const fn is_zero(self) -> bool {
        self.numerator_ns == 0
    }

    /// The duration in nanoseconds. Errors: it ends between two of them.
    pub const fn whole_ns(self) -> Result<u64, NotWhole> {
        let below_ns = self.numerator_ns / self.denominator;
        match self.denominator {
            1 => Ok(below_ns),
            // Above a denominator of 2 or more, `below_ns` is at most half of `u64::MAX`.
            _ => Err(NotWhole { duration: self, below_ns, above_ns: below_ns + 1 }),
        }
    }

    /// The duration in parts of a nanosecond. `None`: not a whole number of parts, or more than
    /// 64 bits of them.
    pub const fn in_parts(self, parts_per_ns: u64) -> Option<u64> {
        match parts_per_ns % self.denominator {
            0 => self.numerator_ns.checked_mul(parts_per_ns / self.denominator),
            _ => None,
        }
    }
}

impl Ord for ExactDuration {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |a: &Self, b: &Self| u128::from(a.numerator_ns) * u128::from(b.denominator);
        cross(self, other).cmp(&cross(other, self))
    }
}

impl PartialOrd for ExactDuration {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl TryFrom<ExactDuration> for std::time::Duration {
    type Error = NotWhole;

    /// Errors: the duration ends between two nanoseconds.
    fn try_from(duration: ExactDuration) -> Result<Self, NotWhole> {
        duration.whole_ns().map(Self::from_nanos)
    }
}

const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
