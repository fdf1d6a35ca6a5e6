// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text to duration.

use crate::{DurationError, ExactDuration};
use std::str::FromStr;

/// Characters of a wrong text that an error shows.
const SHOWN: usize = 40;

enum Unit {
    /// Nanoseconds of one.
    Time(u64),
    /// Hertz of one.
    Rate(u64),
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name {
        "ns" => Unit::Time(1),
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => Unit::Time(1_000),
        "ms" => Unit::Time(1_000_000),
        "s" => Unit::Time(1_000_000_000),
        "min" => Unit::Time(60_000_000_000),
        "h" => Unit::Time(3_600_000_000_000),
        "Hz" => Unit::Rate(1),
        "kHz" => Unit::Rate(1_000),
        "MHz" => Unit::Rate(1_000_000),
        "GHz" => Unit::Rate(1_000_000_000),
        _ => return None,
    })
}

impl FromStr for ExactDuration {
    type Err = DurationError;

    /// Reads `NUMBER UNIT` or `WHOLE/WHOLE UNIT`, with or without a space before the unit. A
    /// number may have decimals. Units: ns, us, ms, s, min, h; a number may also be a rate in Hz,
    /// kHz, MHz or GHz, which stands for its period. `0` needs no unit.
    fn from_str(text: &str) -> Result<Self, DurationError> {
        let shown = || text.trim().chars().take(SHOWN).collect::<String>();
        let malformed = || DurationError::Malformed { text: shown() };
        let trimmed = text.trim();
        let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '/';
        let end = trimmed.find(|c| !is_number(c)).unwrap_or(trimmed.len());
        let (number, name) = (&trimmed[..end], trimmed[end..].trim_start());
        let (is_decimal, Parts { above, below }) = match number.split_once('/') {
            None => (true, decimal(number).ok_or_else(malformed)?),
            Some((above, below)) => {
                let above = digits(above).ok_or_else(malformed)?;
                (false, Parts { above, below: digits(below).ok_or_else(malformed)? })
            }
        };
        let Some(unit) = unit(name) else {
            return Err(match name {
                "" if is_decimal && above == Number::Fits(0) => return Ok(Self::ZERO),
                "" => DurationError::NoUnit { text: shown() },
                _ => {
                    let unit = name.chars().take(SHOWN).collect();
                    DurationError::UnknownUnit { text: shown(), unit }
                }
            });
        };
        let is_rate = matches!(unit, Unit::Rate(_));
        if is_rate && !is_decimal {
            return Err(DurationError::FractionOfRate { text: shown() });
        }
        if below == Number::Fits(0) || is_rate && above == Number::Fits(0) {
            return Err(DurationError::ZeroDivisor { text: shown() });
        }
        let too_long = || DurationError::TooLong { text: shown() };
        let too_fine = || DurationError::TooFine { text: shown() };
        let overflow = || if is_long(number) && !is_rate { too_long() } else { too_fine() };
        let (Number::Fits(above), Number::Fits(below)) = (above, below) else {
            return Err(overflow());
        };
        let product = match unit {
            Unit::Time(ns) => above.checked_mul(u128::from(ns)).map(|above| (above, below)),
            // The period of `above / below` times so many hertz.
            Unit::Rate(hertz) => {
                below.checked_mul(1_000_000_000).zip(above.checked_mul(u128::from(hertz)))
            }
        };
        let (above_ns, below) = product.ok_or_else(overflow)?;
        if above_ns / below > u128::from(u64::MAX) {
            return Err(too_long());
        }
        Self::fraction_ns(above_ns, below).ok_or_else(too_fine)
    }
}

/// Whether the part before the point alone is beyond 64 bits.
fn is_long(number: &str) -> bool {
    let whole = number.split(['.', '/']).next().unwrap_or(number);
    whole.trim_start_matches('0').len() > 19
}

/// A fraction as written.
struct Parts {
    above: Number,
    below: Number,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Fits(u128),
    /// More than 128 bits.
    Huge,
}

/// A whole number. `None`: it is not one.
fn digits(text: &str) -> Option<Number> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().map_or(Number::Huge, Number::Fits))
}

/// A number with decimals or without. `None`: it is not one.
fn decimal(text: &str) -> Option<Parts> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    digits(whole)?;
    digits(decimals)?;
    let decimals = decimals.trim_end_matches('0');
    let power = u32::try_from(decimals.len()).ok().and_then(|places| 10u128.checked_pow(places));
    let below = power.map_or(Number::Huge, Number::Fits);
    Some(Parts { above: digits(&format!("{whole}{decimals}"))?, below })
}
