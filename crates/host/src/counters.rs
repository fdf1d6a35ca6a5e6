// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own counters of what happens on each CPU: /proc/interrupts and /proc/softirqs
//! (filesystems/proc.rst). Parsers are pure; offline CPUs have no column and are absent.

use crate::architecture::{counts_ticks_of, from_other_cpus};
use crate::cpuset::Cpu;
use crate::kernel::Kernel;
use crate::{Error, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What kind of interrupt a row of /proc/interrupts counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptKind {
    /// The CPU's own timer, as clockevents names it.
    LocalTimer,
    /// A device line: its number and handlers.
    Device(String),
    /// From another CPU: rescheduling, function call, TLB shootdown, irq work.
    Ipi(String),
    /// Machine checks, thermal events, NMIs and what else the architecture has.
    Other(String),
}

/// One row: counts since boot by CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub kind: InterruptKind,
    pub counts: BTreeMap<Cpu, u64>,
}

/// All rows with a column for each CPU. No row is of kind `LocalTimer` where the timers of this
/// machine have no row that is known.
pub fn interrupts(kernel: &dyn Kernel) -> Result<Vec<Row>> {
    let path = Path::new("/proc/interrupts");
    let text = kernel.text(path).map_err(Error::io(path, "read"))?;
    let devices = tick_devices(kernel, &text);
    parse_interrupts(&text, &devices).ok_or_else(|| bad(path, &text, "a table of interrupts"))
}

/// The names of the timers that give the CPUs of the table their tick.
fn tick_devices(kernel: &dyn Kernel, interrupts: &str) -> BTreeSet<String> {
    let header = interrupts.lines().next().unwrap_or_default();
    header
        .split_whitespace()
        .filter_map(|name| tick_device(kernel, name.strip_prefix("CPU")?.parse().ok()?))
        .collect()
}

/// The timer that gives a CPU its tick; `None` where it has none now.
fn tick_device(kernel: &dyn Kernel, cpu: Cpu) -> Option<String> {
    let path = format!("/sys/devices/system/clockevents/clockevent{cpu}/current_device");
    let name = kernel.text(Path::new(&path)).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Interrupts that came on one CPU between two readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// `None`: which row counts them is not known here.
    pub ticks: Option<u64>,
    /// By line and handler; this one and the next two hold only what came.
    pub devices: BTreeMap<String, u64>,
    /// By kind.
    pub ipis: BTreeMap<String, u64>,
    /// Machine checks, NMIs and the like.
    pub others: BTreeMap<String, u64>,
}

impl Interrupts {
    /// `None` where the CPU has no column in one of the readings: it was offline. A row that
    /// appeared meanwhile began at 0; one that went back (its line was freed and requested again)
    /// counts as none. Pure.
    pub fn between(before: &[Row], after: &[Row], cpu: Cpu) -> Option<Self> {
        let has_column = |rows: &[Row]| rows.iter().any(|row| row.counts.contains_key(&cpu));
        if !has_column(before) || !has_column(after) {
            return None;
        }
        let of_cpu = |row: &Row| row.counts.get(&cpu).copied().unwrap_or(0);
        let earlier: BTreeMap<&InterruptKind, u64> =
            before.iter().map(|row| (&row.kind, of_cpu(row))).collect();
        let is_known =
            |row: &Row| row.kind == InterruptKind::LocalTimer && row.counts.contains_key(&cpu);
        let mut came = Self { ticks: after.iter().any(is_known).then_some(0), ..Self::default() };
        for row in after {
            let count = of_cpu(row).saturating_sub(earlier.get(&row.kind).copied().unwrap_or(0));
            let (counts, name) = match &row.kind {
                InterruptKind::LocalTimer => {
                    came.ticks = came.ticks.map(|ticks| ticks + count);
                    continue;
                }
                InterruptKind::Device(name) => (&mut came.devices, name),
                InterruptKind::Ipi(name) => (&mut came.ipis, name),
                InterruptKind::Other(name) => (&mut came.others, name),
            };
            if count > 0 {
                *counts.entry(name.clone()).or_default() += count;
            }
        }
        Some(came)
    }
}

/// Softirqs by kind and CPU.
pub fn softirqs(kernel: &dyn Kernel) -> Result<BTreeMap<String, BTreeMap<Cpu, u64>>> {
    let path = Path::new("/proc/softirqs");
    let text = kernel.text(path).map_err(Error::io(path, "read"))?;
    let table = table(&text).ok_or_else(|| bad(path, &text, "a table of softirqs"))?;
    Ok(table.into_iter().map(|(name, counts, _)| (name.to_owned(), counts)).collect())
}

/// Is this a row that each CPU has for itself, such as `LOC` or `NMI`? It has no number.
pub fn is_of_each_cpu(kernel: &dyn Kernel, label: &str) -> bool {
    let text = kernel.text(Path::new("/proc/interrupts")).unwrap_or_default();
    let rows = table(&text).unwrap_or_default();
    label.parse::<u32>().is_err() && rows.iter().any(|(row, ..)| *row == label)
}

/// Names of the handlers of each IRQ line in use.
pub(crate) fn handlers_by_line(kernel: &dyn Kernel) -> Result<BTreeMap<u32, Vec<String>>> {
    let path = Path::new("/proc/interrupts");
    let text = kernel.text(path).map_err(Error::io(path, "read"))?;
    parse_handlers(&text).ok_or_else(|| bad(path, &text, "a table of interrupts"))
}

/// Local timer interrupts of one CPU since boot. Errors: `Content` where it has no column, or where
/// no row of the table is known to count the ticks of its timer.
pub fn local_timer_ticks(kernel: &dyn Kernel, cpu: Cpu) -> Result<u64> {
    let path = Path::new("/proc/interrupts");
    let text = kernel.text(path).map_err(Error::io(path, "read"))?;
    let device = tick_device(kernel, cpu);
    let unknown = |expected| {
        let device = device.as_deref().unwrap_or("unknown");
        bad(path, &format!("CPU{cpu}, timer {device}"), expected)
    };
    let devices = device.iter().cloned().collect();
    let rows = parse_interrupts(&text, &devices)
        .ok_or_else(|| bad(path, &text, "a table of interrupts"))?;
    let timers = rows.iter().filter(|row| row.kind == InterruptKind::LocalTimer);
    timers
        .filter_map(|row| row.counts.get(&cpu))
        .copied()
        .reduce(|one, other| one + other)
        .ok_or_else(|| unknown("a row of this CPU's timer"))
}

fn bad(path: &Path, text: &str, expected: &'static str) -> Error {
    Error::Content { path: path.to_owned(), text: text.chars().take(80).collect(), expected }
}

/// The rows whose label is a number, without their counts: on a machine of 512 CPUs and 2,000 lines
/// those are a million numbers.
fn parse_handlers(text: &str) -> Option<BTreeMap<u32, Vec<String>>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next()?.split_whitespace().collect();
    if header.is_empty() || !header.iter().all(|name| name.starts_with("CPU")) {
        return None;
    }
    let mut by_line = BTreeMap::new();
    for line in lines {
        let (label, rest) = line.split_once(':')?;
        let Ok(number) = label.trim().parse() else { continue };
        let mut words = rest.split_ascii_whitespace();
        let counts = words.by_ref().take(header.len());
        if counts.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit())).count()
            < header.len()
        {
            continue;
        }
        let words = handlers(&words.collect::<Vec<_>>().join(" "));
        let names = words.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        by_line.insert(number, names);
    }
    Some(by_line)
}

/// Label, counts by CPU and the rest of a line.
type Line<'a> = (&'a str, BTreeMap<Cpu, u64>, String);

/// Each line that has a count for every CPU of the header.
fn table(text: &str) -> Option<Vec<Line<'_>>> {
    let mut lines = text.lines();
    let cpus: Vec<Cpu> = lines
        .next()?
        .split_whitespace()
        .map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect::<Option<_>>()?;
    let mut rows = Vec::new();
    for line in lines {
        let (label, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let counts: Vec<u64> =
            words.iter().map_while(|word| word.parse().ok()).take(cpus.len()).collect();
        // ERR and MIS have one number for the whole machine.
        if counts.len() == cpus.len() {
            let by_cpu = cpus.iter().copied().zip(counts).collect();
            rows.push((label.trim(), by_cpu, words[cpus.len()..].join(" ")));
        }
    }
    if cpus.is_empty() { None } else { Some(rows) }
}

fn parse_interrupts(text: &str, tick_devices: &BTreeSet<String>) -> Option<Vec<Row>> {
    let rows = table(text)?;
    Some(
        rows.into_iter()
            .map(|(label, counts, words)| {
                let ticks = |device: &String| counts_ticks_of(device, label, &words);
                let kind = match tick_devices.iter().any(ticks) {
                    true => InterruptKind::LocalTimer,
                    false => kind(label, &words),
                };
                Row { kind, counts }
            })
            .collect(),
    )
}

fn kind(label: &str, words: &str) -> InterruptKind {
    match from_other_cpus(label, words) {
        Some(name) => InterruptKind::Ipi(name),
        None if label.parse::<u32>().is_ok() => {
            InterruptKind::Device(format!("{label} {}", handlers(words)).trim_end().to_owned())
        }
        None => InterruptKind::Other(format!("{label} {words}").trim().to_owned()),
    }
}

/// The chip, the hardware line and the trigger come first; the handlers are what people know.
fn handlers(words: &str) -> String {
    let is_trigger = |word: &&str| {
        let word = word.to_ascii_lowercase();
        ["edge", "level", "fasteoi"].iter().any(|trigger| word.ends_with(trigger))
    };
    words
        .split_whitespace()
        .skip_while(|word| !is_trigger(word))
        .skip(1)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = concat!(
        "            CPU0       CPU2       \n",
        "  0:         40          0  IO-APIC   2-edge      timer\n",
        " 24:          7          9  PCI-MSIX-0000:00:01.0    0-edge      virtio0-config\n",
        "NMI:          0          0   Non-maskable interrupts\n",
        "LOC:       1200       3400   Local timer interrupts\n",
        "RES:         11         12   Rescheduling interrupts\n",
        "ERR:          0\n"
    );

    #[test]
    fn a_row_without_a_number_is_one_of_each_cpu() {
        let (_root, linux) = crate::machine(&[("proc/interrupts", X86)]);
        let rows = ["LOC", "NMI", "RES", "0", "24", "ERR", "eth0", ""];
        let of_each_cpu = rows.map(|label| is_of_each_cpu(&linux, label));
        assert_eq!(of_each_cpu, [true, true, true, false, false, false, false, false]);
    }

    #[test]
    fn rows_are_named_and_belong_to_their_cpu_although_one_is_offline() {
        let rows = parse_interrupts(X86, &timer("lapic-deadline")).unwrap();
        assert_eq!(rows.len(), 5, "ERR has no column a CPU");
        let of = |kind: &InterruptKind| {
            rows.iter().find(|row| row.kind == *kind).map(|row| row.counts.clone())
        };
        assert_eq!(of(&InterruptKind::LocalTimer).unwrap()[&2], 3400);
        assert_eq!(of(&InterruptKind::Ipi("rescheduling".into())).unwrap()[&0], 11);
        assert!(rows.iter().any(
            |row| matches!(&row.kind, InterruptKind::Device(name) if name == "24 virtio0-config")
        ));
    }

    #[test]
    fn arm64_spells_the_timer_and_ipis_its_own_way() {
        let text = "           CPU0       CPU1\n 11:       5       6  GICv3  30 Level     \
                    arch_timer\nIPI0:      1       2  Rescheduling interrupts\n";
        let rows = parse_interrupts(text, &timer("arch_sys_timer")).unwrap();
        assert_eq!(rows[0].kind, InterruptKind::LocalTimer);
        let others = parse_interrupts(text, &timer("timer0")).unwrap();
        assert_ne!(others[0].kind, InterruptKind::LocalTimer, "another timer gives the tick");
        assert_eq!(rows[1].kind, InterruptKind::Ipi("rescheduling".into()));
    }

    fn row(kind: InterruptKind, count: u64) -> Row {
        Row { kind, counts: BTreeMap::from([(3, count)]) }
    }

    #[test]
    fn interrupts_between_two_readings_are_differences_and_never_less_than_none() {
        let eth0 = || InterruptKind::Device("24 eth0".into());
        let before = [row(InterruptKind::LocalTimer, 100), row(eth0(), 5000)];
        let after = [
            row(InterruptKind::LocalTimer, 107),
            // Freed and requested again: it counts from 0.
            row(eth0(), 3),
            row(InterruptKind::Device("25 nvme".into()), 4),
            row(InterruptKind::Ipi("function call".into()), 0),
            row(InterruptKind::Other("NMI".into()), 1),
        ];
        let came = Interrupts::between(&before, &after, 3).unwrap();
        assert_eq!((came.ticks, came.ipis.len()), (Some(7), 0));
        assert_eq!(came.devices, BTreeMap::from([("25 nvme".into(), 4)]));
        assert_eq!(came.others, BTreeMap::from([("NMI".into(), 1)]));
        assert_eq!(
            Interrupts::between(&before, &after, 2),
            None,
            "a CPU without a column was offline"
        );
        assert_eq!(Interrupts::between(&[], &after, 3), None);
    }

    fn timer(device: &str) -> BTreeSet<String> {
        BTreeSet::from([device.to_owned()])
    }

    #[test]
    fn ticks_of_a_timer_without_a_known_row_are_unknown_and_never_none() {
        let table = "     CPU0 CPU3\n 11:  5 6  GICv2 30 Level arch_timer\n \
                     12:  1 2  LIC 0 Level tegra_timer\n";
        let clockevent = "sys/devices/system/clockevents/clockevent3/current_device";
        let ticks = |device: &str| {
            let files = [("proc/interrupts", table), (clockevent, device)];
            let (_root, linux) = crate::machine(&files);
            let rows = interrupts(&linux).unwrap();
            (local_timer_ticks(&linux, 3).ok(), Interrupts::between(&rows, &rows, 3).unwrap().ticks)
        };
        assert_eq!(ticks("arch_sys_timer\n"), (Some(6), Some(0)));
        assert_eq!(ticks("tegra_timer\n"), (Some(2), Some(0)));
        assert_eq!(ticks("timer7\n"), (None, None));
        assert_eq!(ticks("\n"), (None, None));
        let (_root, linux) = crate::machine(&[("proc/interrupts", table), (clockevent, "timer7")]);
        let error = local_timer_ticks(&linux, 3).unwrap_err().to_string();
        assert!(error.contains("CPU3, timer timer7"), "{error}");
    }

    #[test]
    fn handlers_are_those_of_the_numbered_rows() {
        let names = |text: &str| parse_handlers(text).unwrap();
        let x86 = BTreeMap::from([
            (0, vec!["timer".to_owned()]),
            (24, vec!["virtio0-config".to_owned()]),
        ]);
        assert_eq!(names(X86), x86);
        let shared =
            " CPU0 CPU1\n 9: 1 2 IO-APIC 9-fasteoi acpi, i801_smbus\n 10: 3 4 IO-APIC 10-edge\n";
        assert_eq!(names(shared)[&9], ["acpi", "i801_smbus"]);
        assert!(names(shared)[&10].is_empty(), "no driver uses it");
        assert!(parse_handlers("").is_none() && parse_handlers("hello\n").is_none());
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let none = BTreeSet::new();
        assert!(parse_interrupts("", &none).is_none());
        assert!(parse_interrupts("hello\nworld\n", &none).is_none());
    }
}
