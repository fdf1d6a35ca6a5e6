// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Axes: where a value stands, from 0 to 1, and which ticks have a number. Pure.

use crate::told::grouped;

/// A number beside an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// From 0, the axis's foot, to 1.
    pub place: f64,
    pub label: String,
}

/// Values from the foot to the end. What lies outside stands at the foot or at the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    pub ticks: Vec<Tick>,
}

impl Axis {
    /// Logarithmic; reaches to round numbers around both ends.
    pub fn log(low: f64, high: f64) -> Self {
        let low = round_number(low.max(1e-9), Towards::Foot);
        let high = round_number(high, Towards::End).max(low * 10.0);
        let mut axis = Self { is_log: true, low, high, ticks: Vec::new() };
        let mantissas = if high / low < 51.0 { &[1.0, 2.0, 5.0][..] } else { &[1.0] };
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = decades.flat_map(|decade| mantissas.iter().map(move |one| one * ten_to(decade)));
        let inside = all.filter(|value| (low * 0.999..=high * 1.001).contains(value));
        axis.ticks = inside.map(|value| axis.tick(value, power(value))).collect();
        axis
    }

    /// Counts, logarithmic; a count of 1 stands a little above the foot.
    pub fn counts(most: u64) -> Self {
        let mut axis = Self::log(1.0, (most as f64).max(10.0));
        axis.low = 0.7;
        let values: Vec<f64> =
            (0..20).map(ten_to).take_while(|value| *value <= axis.high * 1.001).collect();
        axis.ticks = values.into_iter().map(|value| axis.tick(value, power(value))).collect();
        axis
    }

    /// From 0 to exactly there.
    pub fn linear(high: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let mut axis = Self { is_log: false, low: 0.0, high, ticks: Vec::new() };
        let step = round_number(high / 6.0, Towards::End);
        let values = (0..8).map(|turn| f64::from(turn) * step);
        let inside = values.filter(|value| *value <= high * 1.001);
        axis.ticks = inside.map(|value| axis.tick(value, number(value))).collect();
        axis
    }

    /// HdrHistogram's: 1 - P on a logarithmic scale, as "one in so many", up to one in `instants`.
    pub fn percentiles(instants: u64) -> Self {
        let high = (instants as f64).max(10.0);
        let mut axis = Self { is_log: true, low: 1.0, high, ticks: Vec::new() };
        let nines = (0..18).take_while(|nines| ten_to(*nines) <= high * 1.001);
        let ticks = nines.map(|nines| axis.tick(ten_to(nines), percent(nines as usize)));
        axis.ticks = ticks.collect();
        axis
    }

    fn tick(&self, value: f64, label: String) -> Tick {
        Tick { place: self.place(value), label }
    }

    pub fn place(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        part.clamp(0.0, 1.0)
    }

    pub const fn high(&self) -> f64 {
        self.high
    }
}

/// `0 %`, `90 %`, `99 %`, `99.9 %`.
fn percent(nines: usize) -> String {
    match nines {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        _ => format!("99.{} %", "9".repeat(nines - 2)),
    }
}

fn ten_to(power: i32) -> f64 {
    10f64.powi(power)
}

/// Which round number is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    Foot,
    End,
}

/// The next of 1, 2, 5, 10, 20, 50 and so on.
pub fn round_number(value: f64, towards: Towards) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = ten_to(value.log10().floor() as i32);
    let mantissas = [1.0, 2.0, 5.0, 10.0].map(|mantissa| mantissa * decade);
    match towards {
        Towards::Foot => {
            mantissas.into_iter().rfind(|one| *one <= value * 1.000_001).unwrap_or(decade)
        }
        Towards::End => {
            mantissas.into_iter().find(|one| *one >= value * 0.999_999).unwrap_or(decade * 10.0)
        }
    }
}

/// The same in little room: from a million on, `10⁶` and `5·10⁶`.
fn power(value: f64) -> String {
    if value < 999_999.0 {
        return number(value);
    }
    let decade = value.log10().next_up().floor() as i32;
    let digits = decade.to_string();
    let raised: String =
        digits.bytes().map(|digit| SUPERSCRIPTS[usize::from(digit - b'0')]).collect();
    match (value / ten_to(decade)).round() as u64 {
        1 => format!("10{raised}"),
        mantissa => format!("{mantissa}·10{raised}"),
    }
}

const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// `1,000,000`, `20`, `0.5`.
pub fn number(value: f64) -> String {
    if value >= 1.0 && (value - value.round()).abs() < 1e-6 * value {
        return grouped(value.round() as u64);
    }
    let text = format!("{value:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Which ticks have room for their numbers: those at both ends first, then from the foot on.
/// `room` says how far each number reaches from its middle, in the same unit as `length`.
pub fn with_room(ticks: &[Tick], length: f64, room: impl Fn(&Tick) -> f64) -> Vec<&Tick> {
    let mut kept: Vec<&Tick> = Vec::new();
    let clear = |one: &Tick, other: &Tick| {
        (one.place - other.place).abs() * length >= room(one) + room(other)
    };
    let ends = [ticks.first(), ticks.last()].into_iter().flatten();
    for tick in ends.chain(ticks) {
        if kept.iter().all(|other| clear(tick, other)) {
            kept.push(tick);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn a_logarithmic_axis_reaches_around_its_values_and_has_at_least_two_numbers() {
        let axis = Axis::log(3.0, 649_000.0);
        assert_eq!(labels(&axis), ["10", "100", "1,000", "10,000", "100,000", "10⁶"]);
        assert!(axis.place(3.0) > 0.0 && axis.place(649_000.0) < 1.0);
        assert_eq!((axis.place(2.0), axis.place(1e6), axis.place(0.0)), (0.0, 1.0, 0.0));
        assert_eq!(labels(&Axis::log(0.4, 0.4)), ["0.2", "0.5", "1", "2"]);
        for power in -3..9 {
            for mantissa in [1.0, 1.7, 3.0, 9.9] {
                let axis = Axis::log(mantissa * ten_to(power), mantissa * ten_to(power + 1));
                assert!(axis.ticks.len() > 1, "{axis:?}");
            }
        }
    }

    #[test]
    fn percentiles_are_named_by_their_nines_up_to_one_in_n() {
        let axis = Axis::percentiles(123_456);
        let expected = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"];
        assert_eq!(labels(&axis), expected);
        assert_eq!((axis.place(1.0), axis.place(123_456.0)), (0.0, 1.0));
    }

    #[test]
    fn numbers_that_would_touch_are_left_out_and_the_last_one_stays() {
        let axis = Axis::percentiles(10_000_000);
        let room = |tick: &Tick| tick.label.len() as f64 * 3.5;
        let narrow: Vec<&str> =
            with_room(&axis.ticks, 200.0, room).iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!(narrow, ["0 %", "99.99999 %", "90 %", "99 %", "99.99 %"]);
        assert_eq!(with_room(&axis.ticks, 900.0, room).len(), axis.ticks.len());
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_at_its_largest() {
        let axis = Axis::linear(325.0);
        assert_eq!(labels(&axis), ["0", "100", "200", "300"]);
        assert_eq!((axis.place(0.0), axis.place(325.0)), (0.0, 1.0));
        assert_eq!(labels(&Axis::linear(0.0)).len(), 6);
        let counts = Axis::counts(3000);
        assert_eq!(labels(&counts), ["1", "10", "100", "1,000"]);
        assert!(counts.place(1.0) > 0.01);
    }
}
