// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers and conditions of runs as reports say them: the text and the page in the same words.
//! Pure.

use crate::histogram::Above;
use crate::run::{Experiment, Source};
use asmp_host::{Cpu, Schedule};

/// What a reader must know of times that were measured in a virtual machine.
pub const VIRTUAL: &str = "measured in a virtual machine: not the times of real hardware";

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

/// `1 instant`, `1,000 instants`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// In the longest unit that leaves it whole: `1 ms`, `1500 us`.
pub fn time(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let whole = units.into_iter().find(|(length, _)| ns > 0 && ns.is_multiple_of(*length));
    whole.map_or_else(|| format!("{ns} ns"), |(length, unit)| format!("{} {unit}", ns / length))
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
        Some(Schedule::Rr { priority }) => format!("SCHED_RR {priority}"),
        Some(Schedule::Other { nice: 0 }) => "SCHED_OTHER".to_owned(),
        Some(Schedule::Other { nice }) => format!("SCHED_OTHER, nice {nice}"),
        Some(Schedule::Batch { .. }) => "SCHED_BATCH".to_owned(),
        Some(Schedule::Idle) => "SCHED_IDLE".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// A value of one run, with what tells whose it is.
pub struct Told {
    pub kind: String,
    /// As tables name the run.
    pub name: String,
    pub value: String,
}

/// A value that all runs share, or each value with its kinds. Where runs of one kind differ in it,
/// with their names.
pub fn by_kind(runs: impl IntoIterator<Item = Told>) -> String {
    let all: Vec<Told> = runs.into_iter().collect();
    let is_split =
        |one: &Told| all.iter().any(|other| other.kind == one.kind && other.value != one.value);
    let mut values: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in &all {
        let whose = if is_split(one) { &one.name } else { &one.kind };
        match values.iter_mut().find(|(of, _)| *of == one.value) {
            Some((_, known)) if known.contains(&whose.as_str()) => {}
            Some((_, known)) => known.push(whose),
            None => values.push((&one.value, vec![whose])),
        }
    }
    match values.as_slice() {
        [(value, _)] => (*value).to_owned(),
        several => {
            let with =
                |(value, whose): &(&str, Vec<&str>)| format!("{value} ({})", whose.join(", "));
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
        assert_eq!([0, 1, 2000].map(|n| counted(n, "turn")), ["0 turns", "1 turn", "2,000 turns"]);
        assert_eq!(
            [0, 1_500, 2_000_000, 3_000_000_000].map(time),
            ["0 ns", "1500 ns", "2 ms", "3 s"]
        );
    }

    #[test]
    fn a_value_that_runs_do_not_share_is_told_with_its_kinds() {
        let runs = |all: &[(&str, &str)]| {
            by_kind((0..).zip(all).map(|(at, (kind, value)): (u32, _)| Told {
                kind: (*kind).to_owned(),
                name: format!("{kind} s/{at}"),
                value: (*value).to_owned(),
            }))
        };
        assert_eq!(runs(&[("normal", "CPU 3"), ("fifo", "CPU 3")]), "CPU 3");
        let several = [("normal", "any CPU"), ("fifo", "CPU 3"), ("partition", "CPU 3")];
        assert_eq!(runs(&several), "any CPU (normal), CPU 3 (fifo, partition)");
        assert_eq!(runs(&[]), "");
        // Runs of one kind are told apart by their names.
        let of_one = [("normal", "1 ms"), ("fifo", "1 ms"), ("normal", "2 ms")];
        assert_eq!(runs(&of_one), "1 ms (normal s/0, fifo), 2 ms (normal s/2)");
    }
}
