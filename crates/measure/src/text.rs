// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report's tables as text, in microseconds: what was measured, a line for each run, which
//! kind is best at the worst, and what the columns mean.

use crate::histogram::{ALL_PERCENTILES, Above};
use crate::load::Load;
use crate::report::{Row, tables};
use crate::run::{Experiment, Kind, Source};
use crate::summary::Summary;
use crate::told;
use crate::verdict;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// One table for each experiment and load.
pub fn text(rows: &[Row]) -> String {
    let table = |rows: &Vec<&Row>| -> String {
        let what = match rows[0].experiment {
            Experiment::Latency => "Latency",
            Experiment::Overhead => "Overhead",
        };
        let heading = format!("{what} under load {}, in microseconds\n", rows[0].load);
        [heading, conditions(rows), table(rows), verdict(rows), legend(rows)].concat()
    };
    tables(rows).iter().map(table).collect::<Vec<_>>().join("\n")
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
    let cpu = each(rows, |row| told::cpu(row.cpu, row.source));
    let policy = each(rows, |row| told::policy(row.schedule));
    format!("{measured}; {cpu}; {policy}\n{}\n", how.join("; "))
}

fn period(row: &Row) -> String {
    match (row.period_ns, row.source) {
        (Some(ns), _) => format!("one every {}", time(ns)),
        (None, Source::Import) => "of another tool's histogram".to_owned(),
        (None, _) => "at random".to_owned(),
    }
}

fn load(row: &Row) -> String {
    match (row.load_processes, row.load_factor) {
        (Some(0), _) => "no load".to_owned(),
        (Some(count), Some(factor)) => format!("{count} processes of the load (factor {factor})"),
        (Some(count), None) => format!("{count} processes of the load"),
        (None, _) => "size of the load not known".to_owned(),
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
    told::by_kind(rows.iter().map(|row| (row.kind.clone(), value(row))))
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

/// Who is best at the worst, where there are several, and what weakens that. What is above a limit
/// the table has.
fn verdict(rows: &[&Row]) -> String {
    let said = verdict::verdict(rows);
    let ranking = said.is_comparison.then_some([Some(said.best), said.others]);
    let ranking = ranking.into_iter().flatten().flatten();
    ranking.chain(said.reservations).map(|sentence| sentence + "\n").collect()
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
    use asmp_host::Schedule;

    fn run(dir: &str, kind: Kind, latencies: Latencies) -> Run {
        let schedule = match kind {
            Kind::Normal => Schedule::Other { nice: 0 },
            _ => Schedule::Fifo { priority: 80 },
        };
        let samples = latencies.samples();
        let provenance = Provenance { kind, schedule: Some(schedule), samples, ..provenance() };
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
        let verdict = "\nThe worst of partition is 1,234,567,890 us of 92 instants.\nnormal has no \
                       sample, which is worse than any time.\n";
        assert!(text.contains(verdict), "{text}");
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
            "6 processes of the load (factor 1); load wrote to tmpfs: no disk; times by nanosleep; \
             kernel 7.2; a guest: no times of a machine"
        );
        assert!(says.contains("\n  mean to max: from the instant until the task ran"), "{says}");
        assert!(!says.contains("partial:") && !says.contains("above:"), "{says}");
        // An import knows less.
        for run in &mut runs {
            run.provenance.source = Source::Import;
            run.provenance.schedule = None;
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
        let unknown = "size of the load not known; times by another tool; ";
        assert!(lines[2].starts_with(unknown), "{says}");
        assert!(lines[3].starts_with("run ") && says.contains("\n  partial: ended"), "{says}");
        runs[0].provenance.load = Load::Idle;
        assert!(text(&rows(&runs[..1], None)).contains("\nno load; times by"));
        assert_eq!(
            [0, 1_500, 2_000_000, 3_000_000_000].map(time),
            ["0 ns", "1500 ns", "2 ms", "3 s"]
        );
    }

    #[test]
    fn a_table_ends_with_its_verdict_and_with_what_weakens_it() {
        let of = |dir: &str, kind, max_ns| run(dir, kind, Latencies::of([1_000, max_ns]));
        let mut runs = [
            of("a/x", Kind::Normal, 90_000),
            of("b/x", Kind::Normal, 30_000),
            of("a/y", Kind::Fifo, 50_000),
            of("a/z", Kind::Partition, 20_000),
        ];
        runs[3].provenance.partial = Some("interrupted".into());
        runs[3].latencies.lose(3_000);
        let says = text(&rows(&runs, None));
        let verdict = "\nAt the worst partition is best: 20.000 us of 2 instants.\nThe others took \
                       longer: fifo 50.000 us (2.5 times as long), normal 90.000 us (4.5 times as \
                       long).\npartition ended early, after 2 instants: a whole run may have a \
                       longer one.\npartition lost 3,000 samples: a longer one may be among \
                       them.\n  mean to max: ";
        assert!(says.contains(verdict), "{says}");
        // One kind alone: its rows say all.
        let rounds = text(&rows(&runs[..2], None));
        assert!(!rounds.contains("worst") && rounds.contains("30.000"), "{rounds}");
    }

    #[test]
    fn a_load_is_told_by_its_processes() {
        let says = |load: Load, per_cpu: u32| {
            let mut runs = [run("a/x", Kind::Partition, Latencies::of([1_000]))];
            (runs[0].provenance.load, runs[0].provenance.load_size.per_cpu) = (load, per_cpu);
            let text = text(&rows(&runs, None));
            text.lines().nth(2).and_then(|line| line.split(';').next()).unwrap().to_owned()
        };
        assert_eq!(says(Load::Cpu, 128), "512 processes of the load (factor 128)");
        assert_eq!(says(Load::Mixed, 128), "768 processes of the load (factor 128)");
        assert_eq!(says(Load::Cache, 128), "772 processes of the load (factor 128)");
        assert_eq!(says(Load::Artis, 128), "16 processes of the load");
        assert_eq!(says(Load::Idle, 128), "no load");
        assert_eq!(says(Load::Mixed, 0), "size of the load not known");
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
