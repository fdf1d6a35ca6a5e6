// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Duration to text.

use crate::ExactDuration;
use std::fmt;

/// From the longest to the shortest, in nanoseconds. Text for people ends at seconds.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
/// Decimals at most.
const PLACES: u32 = 6;
/// Above this, a numerator or denominator says less to a reader than a rounded decimal.
const LARGEST_SHOWN: u64 = 9_999;

impl fmt::Display for ExactDuration {
    /// Exact, and reads back as the same duration: a decimal where six places are enough, such as
    /// `1.5 ms`, else a fraction, such as `4/3 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (1, Some(text)) = (self.denominator(), decimal(self.numerator_ns())) {
            return f.write_str(&text);
        }
        let (above, below, unit) = self.shortest_fraction();
        match below {
            1 => write!(f, "{above} {unit}"),
            _ => write!(f, "{above}/{below} {unit}"),
        }
    }
}

impl ExactDuration {
    /// For people: exact where that is short, else a decimal of six places marked as rounded, such
    /// as `~1.333333 ms`.
    pub fn rounded(self) -> String {
        let (above, below, _) = self.shortest_fraction();
        if self.denominator() == 1 || above.max(below) <= LARGEST_SHOWN {
            return self.to_string();
        }
        let ns = self.numerator_ns() / self.denominator();
        let (name, unit_ns) =
            UNITS.into_iter().find(|(_, unit_ns)| ns >= *unit_ns).unwrap_or(("ns", 1));
        let scale = 10u128.pow(PLACES);
        let unit = u128::from(unit_ns) * u128::from(self.denominator());
        // At most 2^64 * 10^6 above; half a unit is added to round to the nearest.
        let parts = (u128::from(self.numerator_ns()) * scale + unit / 2) / unit;
        format!("~{}.{:06} {name}", parts / scale, parts % scale)
    }

    /// Numerator, denominator and unit with the fewest digits; of equals the longest unit.
    fn shortest_fraction(self) -> (u64, u64, &'static str) {
        let digits = |number: u64| number.checked_ilog10().map_or(1, |log| log + 1);
        let in_unit = |(name, unit_ns): (&'static str, u64)| {
            let below = u128::from(self.denominator()) * u128::from(unit_ns);
            let reduced = Self::fraction_ns(u128::from(self.numerator_ns()), below)?;
            Some((reduced.numerator_ns, reduced.denominator, name))
        };
        let all = UNITS.into_iter().filter_map(in_unit);
        all.min_by_key(|(above, below, _)| digits(*above) + digits(*below)).unwrap_or((
            self.numerator_ns(),
            self.denominator(),
            "ns",
        ))
    }
}

/// The longest unit that needs at most six decimals. `None`: never.
fn decimal(ns: u64) -> Option<String> {
    for (name, unit_ns) in UNITS {
        // What the sixth decimal stands for.
        let least_ns = unit_ns.div_ceil(10u64.pow(PLACES));
        if ns < unit_ns || !ns.is_multiple_of(least_ns) {
            continue;
        }
        let (whole, rest_ns) = (ns / unit_ns, ns % unit_ns);
        if rest_ns == 0 {
            return Some(format!("{whole} {name}"));
        }
        let places = (unit_ns / least_ns).ilog10() as usize;
        let decimals = format!("{:0places$}", rest_ns / least_ns);
        return Some(format!("{whole}.{} {name}", decimals.trim_end_matches('0')));
    }
    (ns == 0).then(|| "0 ns".to_owned())
}
