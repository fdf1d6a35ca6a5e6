// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers and conditions of runs as reports say them: the text and the page in the same words.
//! Pure.

use crate::histogram::Above;
use crate::run::{Experiment, Source};
use asmp_host::{Cpu, Schedule};

/// `1,000,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds: `649,012`, `1,234.5`, `14.217`.
pub fn us(ns: f64) -> String {
    let us = ns / 1e3;
    let decimals = match us {
        10_000.0.. => 0,
        100.0.. => 1,
        _ => 3,
    };
    let text = format!("{us:.decimals$}");
    let (whole, part) = text.split_at(text.find('.').unwrap_or(text.len()));
    whole.parse().map_or_else(|_| text.clone(), |whole| grouped(whole) + part)
}

/// The same of a time without a part of a nanosecond, as short as it goes: `1,000`, `62.5`.
pub fn short_us(ns: u64) -> String {
    let part = format!("{:03}", ns % 1000);
    let part = part.trim_end_matches('0');
    let dot = if part.is_empty() { "" } else { "." };
    format!("{}{dot}{part}", grouped(ns / 1000))
}

/// How many times as long: `3.2`, `45,700`.
pub fn times(factor: f64) -> String {
    match factor {
        10.0.. => {
            let unit = 10f64.powi((factor.log10().floor() as i32 - 2).max(0));
            grouped(((factor / unit).round() * unit) as u64)
        }
        _ => format!("{factor:.1}"),
    }
}

/// `0`, `12`, or `3..5` where a bucket reaches across the limit.
pub fn above(above: Above) -> String {
    match above {
        Above { at_least, at_most } if at_least == at_most => grouped(at_least),
        Above { at_least, at_most } => format!("{}..{}", grouped(at_least), grouped(at_most)),
    }
}

/// What has a latency, or a time beyond the base time; add an `s` for several.
pub const fn instant(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Latency => "instant",
        Experiment::Overhead => "turn",
    }
}

pub fn cpu(cpu: Option<Cpu>, source: Source) -> String {
    match (cpu, source) {
        (Some(cpu), _) => format!("CPU {cpu}"),
        (None, Source::Import) => "CPU not known".to_owned(),
        (None, _) => "any CPU".to_owned(),
    }
}

pub fn policy(schedule: Option<Schedule>) -> String {
    match schedule {
        None => "policy not known".to_owned(),
        Some(Schedule::Fifo { priority }) => format!("SCHED_FIFO {priority}"),
        Some(Schedule::Other { nice: 0 }) => "SCHED_OTHER".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// A value that all runs share, or each value with its kinds. Takes the kind and the value of each
/// run.
pub fn by_kind(runs: impl IntoIterator<Item = (String, String)>) -> String {
    let mut values: Vec<(String, Vec<String>)> = Vec::new();
    for (kind, value) in runs {
        match values.iter_mut().find(|(of, _)| *of == value) {
            Some((_, kinds)) if kinds.contains(&kind) => {}
            Some((_, kinds)) => kinds.push(kind),
            None => values.push((value, vec![kind])),
        }
    }
    match values.as_slice() {
        [(value, _)] => value.clone(),
        several => {
            let with =
                |(value, kinds): &(String, Vec<String>)| format!("{value} ({})", kinds.join(", "));
            several.iter().map(with).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_can_be_read() {
        let all = [649_012_345.0, 1_234_549.0, 14_217.0, 7.0].map(us);
        assert_eq!(all, ["649,012", "1,234.5", "14.217", "0.007"]);
        assert_eq!([1_000_000, 62_500, 7].map(short_us), ["1,000", "62.5", "0.007"]);
        assert_eq!([3.24, 10.4, 45_678.0].map(times), ["3.2", "10", "45,700"]);
    }

    #[test]
    fn a_value_that_runs_do_not_share_is_told_with_its_kinds() {
        let runs = |all: &[(&str, &str)]| {
            by_kind(all.iter().map(|(kind, value)| ((*kind).to_owned(), (*value).to_owned())))
        };
        assert_eq!(runs(&[("normal", "CPU 3"), ("fifo", "CPU 3")]), "CPU 3");
        let several = [("normal", "any CPU"), ("fifo", "CPU 3"), ("partition", "CPU 3")];
        assert_eq!(runs(&several), "any CPU (normal), CPU 3 (fifo, partition)");
        assert_eq!(runs(&[]), "");
    }
}
