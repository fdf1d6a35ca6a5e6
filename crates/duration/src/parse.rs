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
            None => {
                let parts = decimal(number);
                (true, parts.ok_or_else(|| spelled(trimmed).unwrap_or_else(malformed))?)
            }
            Some((above, below)) => {
                let above = digits(above).ok_or_else(malformed)?;
                (false, Parts { above, below: digits(below).ok_or_else(malformed)? })
            }
        };
        let Some(unit) = unit(name) else {
            return Err(match name {
                "" if is_decimal && above == Number::Fits(0) => return Ok(Self::ZERO),
                "" => DurationError::NoUnit { text: shown() },
                _ => spelled(trimmed).unwrap_or_else(|| {
                    let unit = name.chars().take(SHOWN).collect();
                    DurationError::UnknownUnit { text: shown(), unit }
                }),
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
        // Reduced before each product, so that one overflows only if the result does.
        let (above, below) = reduced(above, below);
        let product = match unit {
            Unit::Time(ns) => times(above, below, ns),
            // The period of `above / below` times so many hertz.
            Unit::Rate(hertz) => {
                let (ns, hertz) = reduced(1_000_000_000, u128::from(hertz));
                let (below, above) = reduced(below, above);
                let (ns, above) = reduced(ns, above);
                let (below, hertz) = reduced(below, hertz);
                below.checked_mul(ns).zip(above.checked_mul(hertz))
            }
        };
        let (above_ns, below) = product.ok_or_else(overflow)?;
        if above_ns / below > u128::from(u64::MAX) {
            return Err(too_long());
        }
        Self::fraction_ns(above_ns, below).ok_or_else(too_fine)
    }
}

const fn reduced(above: u128, below: u128) -> (u128, u128) {
    // Two zeros share none.
    match crate::gcd(above, below) {
        0 => (above, below),
        shared => (above / shared, below / shared),
    }
}

/// `above / below` times a whole number. `None`: more than 128 bits after reduction.
fn times(above: u128, below: u128, ns: u64) -> Option<(u128, u128)> {
    let (ns, below) = reduced(u128::from(ns), below);
    above.checked_mul(ns).map(|above| (above, below))
}

/// Units by other names, and numbers with a comma or an exponent: what was meant, if one can tell.
fn spelled(text: &str) -> Option<DurationError> {
    let shown: String = text.chars().take(SHOWN).collect();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '/');
    let end = text.find(|c| !is_number(c))?;
    let (number, name) = (&text[..end], text[end..].trim_start());
    let has_odd_comma = number.contains(',') && number.matches([',', '.']).count() > 1;
    if number.is_empty() || has_odd_comma || name.chars().count() > SHOWN || number.len() > SHOWN {
        return None;
    }
    let exponent = || {
        let rest = name.strip_prefix(['e', 'E'])?;
        let sign = rest.len() - rest.trim_start_matches(['+', '-']).len();
        let digits = rest[sign..].find(|c: char| !c.is_ascii_digit())?;
        let unit_name = rest[sign + digits..].trim_start();
        unit(unit_name).filter(|_| digits > 0)?;
        let power: u32 = rest[sign..sign + digits].parse().ok()?;
        let whole: u64 = number.parse().ok()?;
        let exact = match rest.starts_with('-') {
            false => format!("{} {unit_name}", whole.checked_mul(10u64.checked_pow(power)?)?),
            true => format!("{whole}/{} {unit_name}", 10u64.checked_pow(power)?),
        };
        Some(("an exponent is not read", exact))
    };
    let other_name = || {
        let lower = name.to_lowercase();
        let right = match lower.trim_end_matches('.') {
            "nsec" | "nsecs" | "nanosecond" | "nanoseconds" => "ns",
            "usec" | "usecs" | "mus" | "microsecond" | "microseconds" => "us",
            "\u{b5}sec" | "\u{3bc}sec" | "\u{b5}" | "\u{3bc}" | "u" => "us",
            "msec" | "msecs" | "millisecond" | "milliseconds" => "ms",
            "sec" | "secs" | "second" | "seconds" => "s",
            "mins" | "minute" | "minutes" => "min",
            "hr" | "hrs" | "hour" | "hours" => "h",
            "hertz" => "Hz",
            other => ["ns", "us", "ms", "s", "min", "h", "Hz", "kHz", "MHz", "GHz"]
                .into_iter()
                .find(|known| known.eq_ignore_ascii_case(other))
                // Of millihertz nothing is known.
                .filter(|known| *known != "MHz" || name.starts_with('M'))
                .or_else(|| unit(other).map(|_| "us"))?,
        };
        Some(right)
    };
    if unit(name).is_some() && !number.contains(',') {
        return None;
    }
    let point = number.replacen(',', ".", 1);
    let is_comma = point != number && decimal(&point).is_some();
    let (cause, cure) = if is_comma {
        let name = unit(name).map(|_| name).or_else(other_name)?;
        ("decimals follow a point, and a number has no other separator", format!("{point} {name}"))
    } else if let Some(found) = exponent() {
        found
    } else if decimal(number).is_none() {
        return None;
    } else if matches!(name, "m" | "M") {
        ("m may be minutes or milliseconds", format!("{number} min or {number} ms"))
    } else {
        ("no unit has this name", format!("{number} {}", other_name()?))
    };
    Some(DurationError::Spelled { text: shown, cause, cure })
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
