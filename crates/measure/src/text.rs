// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report's tables as text, in microseconds: what was measured, a line for each run, which
//! kind is best at the worst, and what the columns mean.

use crate::histogram::{ALL_PERCENTILES, Above};
use crate::load::Load;
use crate::report::Row;
use crate::run::{Experiment, Kind, Source};
use crate::summary::Summary;
use asmp_host::Schedule;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// One table for each experiment and load.
pub fn text(rows: &[Row]) -> String {
    let mut tables: BTreeMap<(Experiment, usize), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let first = rows.iter().position(|one| one.load == row.load).unwrap_or(0);
        tables.entry((row.experiment, first)).or_default().push(row);
    }
    let table = |rows: &Vec<&Row>| -> String {
        let what = match rows[0].experiment {
            Experiment::Latency => "Latency",
            Experiment::Overhead => "Overhead",
        };
        let heading = format!("{what} under load {}, in microseconds\n", rows[0].load);
        [heading, conditions(rows), table(rows), verdict(rows), legend(rows)].concat()
    };
    tables.values().map(table).collect::<Vec<_>>().join("\n")
}

/// What was measured and how: what all runs share once, else with the kinds that have it.
fn conditions(rows: &[&Row]) -> String {
    let instants = || rows.iter().map(|row| row.summary.instants);
    let count = match (instants().min().unwrap_or(0), instants().max().unwrap_or(0)) {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    let measured = match rows[0].experiment {
        Experiment::Overhead => format!("{count} turns of a loop"),
        Experiment::Latency => format!("{count} instants, {}", each(rows, period)),
    };
    let mut how = vec![each(rows, load)];
    let is_ours = rows.iter().any(|row| row.source != Source::Import);
    if is_ours && rows[0].load.parse::<Load>().is_ok_and(Load::writes) {
        how.push(format!("load wrote to {}", each(rows, wrote_to)));
    }
    if rows[0].experiment == Experiment::Latency {
        how.push(format!("times by {}", each(rows, source)));
    }
    how.push(each(rows, |row| format!("kernel {}", row.kernel)));
    if rows.iter().any(|row| row.hypervisor) {
        how.push("a guest: no times of a machine".to_owned());
    }
    let (cpu, policy) = (each(rows, cpu), each(rows, policy));
    format!("{measured}; {cpu}; {policy}\n{}\n", how.join("; "))
}

fn period(row: &Row) -> String {
    match (row.period_ns, row.source) {
        (Some(ns), _) => format!("one every {}", time(ns)),
        (None, Source::Import) => "of another tool's histogram".to_owned(),
        (None, _) => "at random".to_owned(),
    }
}

fn cpu(row: &Row) -> String {
    match (row.cpu, row.source) {
        (Some(cpu), _) => format!("CPU {cpu}"),
        (None, Source::Import) => "CPU not known".to_owned(),
        (None, _) => "any CPU".to_owned(),
    }
}

fn policy(row: &Row) -> String {
    match (row.source, &row.schedule) {
        (Source::Import, _) => "policy not known".to_owned(),
        (_, Schedule::Fifo { priority }) => format!("SCHED_FIFO {priority}"),
        (_, Schedule::Other { nice: 0 }) => "SCHED_OTHER".to_owned(),
        (_, other) => other.to_string(),
    }
}

fn load(row: &Row) -> String {
    match row.load_factor {
        Some(factor) => format!("load factor {factor}"),
        None if row.load == Load::Idle.word() => "no load".to_owned(),
        None => "load factor not known".to_owned(),
    }
}

fn wrote_to(row: &Row) -> String {
    let unknown = || "an unknown file system".to_owned();
    row.load_dir.as_ref().map_or_else(unknown, ToString::to_string)
}

fn source(row: &Row) -> String {
    match row.source {
        Source::Import => "another tool".to_owned(),
        source => source.word().to_owned(),
    }
}

/// A value that all rows share, or each value with its kinds.
fn each(rows: &[&Row], value: impl Fn(&Row) -> String) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        let value = value(row);
        match kinds.iter_mut().find(|(of, _)| *of == value) {
            Some((_, kinds)) if kinds.contains(&row.kind.as_str()) => {}
            Some((_, kinds)) => kinds.push(&row.kind),
            None => kinds.push((value, vec![&row.kind])),
        }
    }
    match kinds.as_slice() {
        [(value, _)] => value.clone(),
        several => {
            let with =
                |(value, kinds): &(String, Vec<&str>)| format!("{value} ({})", kinds.join(", "));
            several.iter().map(with).collect::<Vec<_>>().join(", ")
        }
    }
}

/// In the longest unit that leaves it whole.
fn time(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let whole = units.into_iter().find(|(length, _)| ns > 0 && ns.is_multiple_of(*length));
    whole.map_or_else(|| format!("{ns} ns"), |(length, unit)| format!("{} {unit}", ns / length))
}

fn us(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns / 1e3))
}

fn whole(ns: Option<u64>) -> String {
    us(ns.map(|ns| ns as f64))
}

fn table(rows: &[&Row]) -> String {
    let mut text = String::new();
    // The percentiles that the instants of some run support.
    let supported = |name: &&str| rows.iter().any(|row| row.summary.percentile(name).is_some());
    let percentiles: Vec<&str> =
        ALL_PERCENTILES.iter().map(|one| one.name).filter(supported).collect();
    let first = if rows.iter().all(|row| row.name == row.kind) { "kind" } else { "run" };
    let heading: Vec<String> = [first, "mean", "stdev", "min"]
        .into_iter()
        .chain(percentiles.iter().copied())
        .chain(["max", "n", "missed", "lost"])
        .map(str::to_owned)
        .chain(rows[0].above.map(|above| format!("above {}", whole(Some(above.limit_ns)))))
        .collect();
    let cells = |row: &&Row| -> Vec<String> {
        let summary = &row.summary;
        let percentile = |name: &&str| {
            summary.percentile(name).map_or_else(
                || "-".to_owned(),
                |one| format!("{}{}", if one.or_more { ">=" } else { "" }, whole(Some(one.ns))),
            )
        };
        let mut cells = vec![row.name.clone()];
        cells.extend([us(summary.average_ns), us(summary.deviation_ns), whole(summary.min_ns)]);
        cells.extend(percentiles.iter().map(percentile));
        cells.push(whole(summary.max_ns));
        cells.extend([summary.instants, summary.missed, summary.lost].map(|n| n.to_string()));
        cells.extend(row.above.map(|above| match above.instants {
            Above { at_least, at_most } if at_least == at_most => at_least.to_string(),
            Above { at_least, at_most } => format!("{at_least}..{at_most}"),
        }));
        cells
    };
    let lines: Vec<Vec<String>> = std::iter::once(heading).chain(rows.iter().map(cells)).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    for (line, row) in lines.iter().zip(std::iter::once(None).chain(rows.iter().map(Some))) {
        let _ = write!(text, "{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        let none = row.is_some_and(|row| row.summary.instants == 0);
        let partial = row.is_some_and(|row| row.partial.is_some());
        let _ = writeln!(
            text,
            "{}{}",
            if none { "  no sample" } else { "" },
            if partial { "  partial" } else { "" }
        );
        if let Some(system) = row.and_then(|row| row.system_max_ns) {
            let _ = writeln!(
                text,
                "      of which the system's own (interrupts, ticks, other tasks), largest: {}",
                whole(Some(system))
            );
        }
    }
    text
}

/// Which kind is best at the worst, and how many times as long the others took. Runs of one kind
/// count together, by the worst of them. Empty where fewer than two have a worst that is known.
fn verdict(rows: &[&Row]) -> String {
    let mut worst: Vec<(String, u64)> = Vec::new();
    for row in rows {
        let Some(max_ns) = row.summary.max_ns else { continue };
        let column = row.column.as_ref().map_or_else(String::new, |column| format!(" {column}"));
        let name = format!("{}{column}", row.kind);
        match worst.iter_mut().find(|(of, _)| *of == name) {
            Some((_, before)) => *before = max_ns.max(*before),
            None => worst.push((name, max_ns)),
        }
    }
    worst.sort_by_key(|(_, max_ns)| *max_ns);
    let [(best, least_ns), others @ ..] = worst.as_slice() else { return String::new() };
    match others.last() {
        None => return String::new(),
        Some((_, most_ns)) if most_ns == least_ns => {
            return format!("At the worst all are alike, with {}.\n", whole(Some(*least_ns)));
        }
        Some(_) => {}
    }
    let times = |(name, max_ns): &(String, u64)| match *least_ns {
        0 => format!("{name} {}", whole(Some(*max_ns))),
        least_ns => format!("{name} {:.1} times as long", *max_ns as f64 / least_ns as f64),
    };
    let others: Vec<String> = others.iter().map(times).collect();
    format!(
        "At the worst {best} is best, with {}: {}.\n",
        whole(Some(*least_ns)),
        others.join(", ")
    )
}

/// What the columns mean: those that are there.
fn legend(rows: &[&Row]) -> String {
    let mut lines = match rows[0].experiment {
        Experiment::Latency => vec![
            "mean to max: from the instant until the task ran, of all n instants, also the missed \
             ones.",
            "missed: instants that passed while the task was late for an earlier one; they count \
             in n.",
            "lost: samples that found no room; their latency is not known, and they are not in n.",
        ],
        Experiment::Overhead => vec![
            "mean to max: how much longer than an undisturbed turn each of n turns took.",
            "missed: always 0, a loop has no instants. lost: turns that found no room.",
        ],
    };
    let percentiles = rows.iter().flat_map(|row| &row.summary.percentiles);
    if percentiles.clone().next().is_some() {
        lines.insert(1, "stdev: standard deviation. p99: 99 of 100 took no longer.");
    } else {
        lines.insert(1, "stdev: standard deviation.");
    }
    if percentiles.clone().any(|one| one.or_more) {
        lines.push(">=: beyond the last bucket of the other tool's histogram.");
    }
    if rows.iter().any(|row| row.above.is_some()) {
        lines.push("above: how many took longer; two numbers where a bucket reaches across.");
    }
    if rows.iter().any(|row| row.partial.is_some()) {
        lines.push("partial: ended before its last sample.");
    }
    lines.iter().flat_map(|line| ["  ", line, "\n"]).collect()
}

/// What the papers found, beside the same ratios of each series of latencies.
pub fn beside_paper(rows: &[Row]) -> String {
    let parent = |row: &Row| Path::new(&row.dir).parent().map(Path::to_owned).unwrap_or_default();
    let latencies = || rows.iter().filter(|row| row.experiment == Experiment::Latency);
    if latencies().next().is_none() {
        return String::new();
    }
    let mut seen = BTreeSet::new();
    let mut text = String::from("Beside ASMP-Linux, table 3, machine S3:\n");
    for row in latencies() {
        let (load, dir) = (row.load.as_str(), parent(row));
        if !seen.insert((load, dir.clone())) {
            continue;
        }
        let of = |kind: Kind| {
            let is = |one: &&Row| one.load == load && one.kind == kind.word() && parent(one) == dir;
            latencies().find(is).map(|row| &row.summary)
        };
        let ratio = |above: Kind, below: Kind, figure: fn(&Summary) -> Option<f64>| {
            let Some((above, below)) = of(above).zip(of(below)) else {
                return "n/a, a run is missing".to_owned();
            };
            match figure(above).zip(figure(below)) {
                Some((above, below)) => format!("{:.1}", above / below.max(1.0)),
                None => "n/a, one run has no such figure".to_owned(),
            }
        };
        let max = |one: &Summary| one.max_ns.map(|ns| ns as f64);
        let deviation = |one: &Summary| one.deviation_ns;
        let _ = writeln!(
            text,
            "  {}, {load}: max(normal)/max(partition) {} (paper: 3688093), \
             stdev(fifo)/stdev(partition) {} (paper: 26.0)",
            dir.display(),
            ratio(Kind::Normal, Kind::Partition, max),
            ratio(Kind::Fifo, Kind::Partition, deviation),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Latencies;
    use crate::load::LoadDir;
    use crate::report::rows;
    use crate::run::tests::provenance;
    use crate::run::{Provenance, Run, Times};

    fn run(dir: &str, kind: Kind, latencies: Latencies) -> Run {
        let schedule = match kind {
            Kind::Normal => Schedule::Other { nice: 0 },
            _ => Schedule::Fifo { priority: 80 },
        };
        let samples = latencies.samples();
        let provenance = Provenance { kind, schedule, samples, ..provenance() };
        let times = Times::default();
        Run { dir: dir.into(), provenance, latencies, times, system_max_ns: None }
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn a_run_without_samples_has_its_row_and_missed_instants_are_told() {
        let mut late = Latencies::of([10_000; 50]);
        late.record_late(1_234_567_890_000, 30_000_000_000);
        let runs =
            [run("a/x", Kind::Normal, Latencies::default()), run("a/y", Kind::Partition, late)];
        let text = text(&rows(&runs, None));
        let lines: Vec<&str> = text.lines().collect();
        let [heading, normal, partition] = [3, 4, 5].map(|line| words(lines[line]));
        let end = ["max", "n", "missed", "lost"];
        assert!(heading.starts_with(&["kind"]) && heading.ends_with(&end), "{text}");
        assert!(heading.contains(&"p90") && !heading.contains(&"p99"), "{text}");
        assert_eq!(normal, ["normal", "-", "-", "-", "-", "-", "-", "0", "0", "0", "no", "sample"]);
        assert!(partition.ends_with(&["1234567890.000", "92", "41", "0"]), "{text}");
        // Long numbers do not run together.
        assert_eq!(lines[3].len(), lines[5].len(), "{text}");
        assert!(!text.contains("At the worst"), "one worst case is none to compare: {text}");
    }

    #[test]
    fn instants_above_a_limit_have_a_column_and_a_bucket_that_has_both_says_so() {
        let latencies = Latencies::of([99_000, 99_990, 100_010, 100_020, 300_000]);
        let runs = [run("a/x", Kind::Normal, latencies)];
        let line = |limit_ns: u64| {
            let text = text(&rows(&runs, Some(limit_ns)));
            assert!(text.contains("above: how many took longer"), "{text}");
            let lines: Vec<String> = text.lines().map(|line| words(line).join(" ")).collect();
            (lines[3].clone(), words(&lines[4]).last().map(|word| (*word).to_owned()).unwrap())
        };
        let (heading, count) = line(200_000);
        assert!(heading.ends_with("lost above 200.000") && count == "1", "{heading}: {count}");
        // 99.968 to 100.031 us are one bucket.
        assert_eq!(line(100_000).1, "1..4");
        assert_eq!(line(300_000).1, "0");
    }

    #[test]
    fn a_table_says_what_was_measured_how_and_what_its_columns_mean() {
        let mut runs = [
            run("a/x", Kind::Normal, Latencies::of([9_000, 90_000])),
            run("a/y", Kind::Partition, Latencies::of([5_000, 6_000, 20_000])),
        ];
        runs[0].provenance.cpu = None;
        for run in &mut runs {
            run.provenance.load_dir = Some(LoadDir {
                path: "/tmp".into(),
                file_system: "tmpfs".into(),
                device: "0:32".into(),
            });
        }
        let says = text(&rows(&runs, None));
        let lines: Vec<&str> = says.lines().collect();
        assert_eq!(lines[0], "Latency under load mixed, in microseconds");
        assert_eq!(
            lines[1],
            "2 to 3 instants, one every 1 ms; any CPU (normal), CPU 3 (partition); SCHED_OTHER \
             (normal), SCHED_FIFO 80 (partition)"
        );
        assert_eq!(
            lines[2],
            "load factor 1; load wrote to tmpfs: no disk; times by nanosleep; kernel 7.2; a guest: \
             no times of a machine"
        );
        assert!(says.contains("\n  mean to max: from the instant until the task ran"), "{says}");
        assert!(!says.contains("partial:") && !says.contains("above:"), "{says}");
        // An import knows less.
        for run in &mut runs {
            run.provenance.source = Source::Import;
            run.provenance.column = Some("Usr-003".into());
            (run.provenance.cpu, run.provenance.period_ns) = (None, None);
            run.provenance.partial = Some("interrupted".into());
            run.provenance.load_size.per_cpu = 0;
        }
        let says = text(&rows(&runs, None));
        assert!(!says.contains("load wrote"), "{says}");
        let lines: Vec<&str> = says.lines().collect();
        assert_eq!(
            lines[1],
            "2 to 3 instants, of another tool's histogram; CPU not known; policy not known"
        );
        assert!(lines[2].starts_with("load factor not known; times by another tool; "), "{says}");
        assert!(lines[3].starts_with("run ") && says.contains("\n  partial: ended"), "{says}");
        runs[0].provenance.load = Load::Idle;
        assert!(text(&rows(&runs[..1], None)).contains("\nno load; times by"));
        assert_eq!(
            [0, 1_500, 2_000_000, 3_000_000_000].map(time),
            ["0 ns", "1500 ns", "2 ms", "3 s"]
        );
    }

    #[test]
    fn the_kind_that_is_best_at_the_worst_is_named_with_the_others_ratios() {
        let of = |dir: &str, kind, max_ns| run(dir, kind, Latencies::of([1_000, max_ns]));
        let runs = [
            of("a/x", Kind::Normal, 90_000),
            of("b/x", Kind::Normal, 30_000),
            of("a/y", Kind::Fifo, 50_000),
            of("a/z", Kind::Partition, 20_000),
        ];
        let says = text(&rows(&runs, None));
        let line = "\nAt the worst partition is best, with 20.000: fifo 2.5 times as long, normal \
                    4.5 times as long.\n";
        assert!(says.contains(line), "{says}");
        // Turns that nothing disturbed have no ratio.
        let runs =
            [of("a/x", Kind::Normal, 90_000), run("a/y", Kind::Partition, Latencies::of([0, 0]))];
        let says = text(&rows(&runs, None));
        assert!(says.contains("partition is best, with 0.000: normal 90.000.\n"), "{says}");
        let alike = [of("a/x", Kind::Normal, 90_000), of("a/y", Kind::Partition, 90_000)];
        let says = text(&rows(&alike, None));
        assert!(says.contains("\nAt the worst all are alike, with 90.000.\n"), "{says}");
        let rounds = [of("a/x", Kind::Normal, 90_000), of("b/x", Kind::Normal, 30_000)];
        assert!(!text(&rows(&rounds, None)).contains("At the worst"), "one kind alone");
    }

    #[test]
    fn each_series_is_beside_the_papers_ratios() {
        let of = |dir: &str, kind, max_ns| run(dir, kind, Latencies::of([1_000, max_ns]));
        let runs = [
            of("a/n", Kind::Normal, 90_000),
            of("a/b", Kind::Fifo, 50_000),
            of("a/o", Kind::Partition, 20_000),
            of("b/n", Kind::Normal, 30_000),
            of("c/n", Kind::Normal, 30_000),
            run("c/o", Kind::Partition, Latencies::default()),
        ];
        let says = beside_paper(&rows(&runs, None));
        let lines: Vec<&str> = says.lines().collect();
        assert_eq!(lines.len(), 4, "{says}");
        assert_eq!(
            lines[1],
            "  a, mixed: max(normal)/max(partition) 4.5 (paper: 3688093), \
             stdev(fifo)/stdev(partition) 2.6 (paper: 26.0)"
        );
        assert!(
            lines[2].starts_with("  b, mixed: max(normal)/max(partition) n/a, a run"),
            "{says}"
        );
        // No sample was taken; so with the longest of an import.
        let none = "  c, mixed: max(normal)/max(partition) n/a, one run has no such figure (";
        assert!(lines[3].starts_with(none), "{says}");
        assert_eq!(beside_paper(&[]), "");
    }
}
