// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of noise: one column a CPU, and below it the names behind the counts.

use super::{CpuNoise, Report};
use asmp_host::Cpu;
use asmp_host::architecture::TIMER_CURES;
use std::collections::{BTreeMap, BTreeSet};

/// A cell: what it counts, and where it is named.
type Rows = Vec<(String, Option<u64>)>;

fn sum(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

fn rows(cpu: &CpuNoise) -> Rows {
    let of = |counts: &Option<BTreeMap<String, u64>>| counts.as_ref().map(sum);
    // A task that ran is no zero.
    let us = |ns: Option<u64>| ns.map(|ns| ns.div_ceil(1000));
    let mut rows = vec![
        ("local timer ticks".to_owned(), cpu.ticks),
        ("device interrupts".to_owned(), Some(sum(&cpu.device_interrupts))),
        ("IPIs".to_owned(), Some(sum(&cpu.ipis))),
        ("other interrupts".to_owned(), Some(sum(&cpu.other_interrupts))),
        ("softirqs".to_owned(), Some(sum(&cpu.softirqs))),
        ("switches to foreign tasks".to_owned(), of(&cpu.foreign_switches)),
        ("switches to kernel threads".to_owned(), of(&cpu.kernel_switches)),
        ("switches to own tasks".to_owned(), cpu.own_switches),
        ("foreign tasks ran, us".to_owned(), us(of(&cpu.foreign_ns))),
        ("kernel threads ran, us".to_owned(), us(of(&cpu.kernel_ns))),
        ("own tasks ran, us".to_owned(), us(cpu.own_ns)),
        ("who ran is unknown, us".to_owned(), us(cpu.unknown_ns)),
        ("migrations".to_owned(), of(&cpu.migrations)),
        ("page faults, user".to_owned(), cpu.user_page_faults),
        ("page faults, kernel".to_owned(), cpu.kernel_page_faults),
    ];
    if cpu.went_offline {
        rows.iter_mut().for_each(|(_, count)| *count = None);
    }
    rows
}

/// A table with one column a report and CPU, and below it the names behind the counts.
pub fn table(columns: &[(&str, &Report)]) -> String {
    let mut heads = Vec::new();
    let mut cells: Vec<Rows> = Vec::new();
    for (title, report) in columns {
        for (number, cpu) in &report.cpus {
            heads.push(match title.is_empty() {
                true => format!("CPU {number}"),
                false => format!("CPU {number} {title}"),
            });
            cells.push(rows(cpu));
        }
    }
    let width = heads.iter().map(String::len).max().unwrap_or(0).max(8) + 2;
    let mut text = format!("{:28}", "in the window");
    heads.iter().for_each(|head| text.push_str(&format!("{head:>width$}")));
    text.push('\n');
    for index in 0..cells.first().map_or(0, Vec::len) {
        text.push_str(&format!("{:28}", cells[0][index].0));
        for column in &cells {
            let cell = column[index].1.map_or("-".to_owned(), |count| count.to_string());
            text.push_str(&format!("{cell:>width$}"));
        }
        text.push('\n');
    }
    for (title, report) in columns {
        let seconds = report.duration_ns as f64 / 1e9;
        text.push_str(&format!(
            "{title}{}{seconds:.2} s, kernel {}",
            if title.is_empty() { "" } else { ": " },
            report.kernel
        ));
        match &report.tasks_unavailable {
            Some(reason) => text.push_str(&format!(", tasks not recorded: {reason}")),
            None => text.push_str(&format!(", lost events {}", report.lost_events)),
        }
        text.push('\n');
        for (number, cpu) in &report.cpus {
            names(&mut text, *number, cpu);
        }
    }
    text
}

/// The name of a task begins no line of its own.
pub(crate) fn shown(name: &str) -> String {
    asmp_host::shown::shown(name).into_owned()
}

/// A name with its count, and how long it had the CPU where that is known.
type Named = (String, u64, Option<u64>);

/// The most first; of the rest how many.
fn most(mut named: Vec<Named>) -> String {
    named.sort_by_key(|(name, count, ns)| {
        (std::cmp::Reverse((ns.unwrap_or(0), *count)), name.clone())
    });
    let more = named.len().saturating_sub(8);
    let words = named.iter().take(8).map(|(name, count, ns)| {
        let time = ns.map(|ns| format!(" ({:.1} us)", ns as f64 / 1e3)).unwrap_or_default();
        format!("{} {count}{time}", shown(name))
    });
    let words: Vec<String> = words.collect();
    let rest = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!("{}{rest}", words.join(", "))
}

fn names(text: &mut String, number: Cpu, cpu: &CpuNoise) {
    if cpu.went_offline {
        text.push_str(&format!("  CPU {number}: went offline\n"));
    }
    let none = BTreeMap::new();
    let counted = |counts: &BTreeMap<String, u64>| -> Vec<Named> {
        counts.iter().map(|(name, count)| (name.clone(), *count, None)).collect()
    };
    let timed = |counts: &Option<BTreeMap<String, u64>>, ns: &Option<BTreeMap<String, u64>>| {
        let (counts, ns) = (counts.as_ref().unwrap_or(&none), ns.as_ref().unwrap_or(&none));
        let names: BTreeSet<&String> = counts.keys().chain(ns.keys()).collect();
        let of = |map: &BTreeMap<String, u64>, name| map.get(name).copied().unwrap_or(0);
        let named = names.into_iter().map(|name| {
            let (count, ns) = (of(counts, name), of(ns, name));
            (name.clone(), count, Some(ns))
        });
        named.collect::<Vec<Named>>()
    };
    let named = [
        ("devices", counted(&cpu.device_interrupts)),
        ("IPIs", counted(&cpu.ipis)),
        ("others", counted(&cpu.other_interrupts)),
        ("softirqs", counted(&cpu.softirqs)),
        ("timers", counted(cpu.timers.as_ref().unwrap_or(&none))),
        ("foreign", timed(&cpu.foreign_switches, &cpu.foreign_ns)),
        ("kernel threads", timed(&cpu.kernel_switches, &cpu.kernel_ns)),
        ("migrated", counted(cpu.migrations.as_ref().unwrap_or(&none))),
    ];
    for (label, named) in named.into_iter().filter(|(_, named)| !named.is_empty()) {
        text.push_str(&format!("  CPU {number} {label}: {}\n", most(named)));
    }
    let came = |timer: &str| cpu.timers.as_ref().is_some_and(|timers| timers.contains_key(timer));
    for (timer, cure) in TIMER_CURES.into_iter().filter(|(timer, _)| came(timer)) {
        text.push_str(&format!("  CPU {number}: {timer}: {cure}\n"));
    }
}
