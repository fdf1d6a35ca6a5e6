// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report's tables as text, in microseconds: what was measured, a line for each run, which
//! kind has the best worst case, and what the columns mean.

use crate::histogram::{ALL_PERCENTILES, Above};
use crate::load::Load;
use crate::noise::shown;
use crate::report::{Row, tables};
use crate::run::{Experiment, Kind, Source};
use crate::settings::Setting;
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
    let one = told::instant(rows[0].experiment);
    let count = match (instants().min().unwrap_or(0), instants().max().unwrap_or(0)) {
        (1, 1) => format!("1 {one}"),
        (least, most) if least == most => format!("{least} {one}s"),
        (least, most) => format!("{least} to {most} {one}s"),
    };
    let measured = match rows[0].experiment {
        Experiment::Overhead => format!("{count} of a loop"),
        Experiment::Latency => format!("{count}, {}", each(rows, period)),
    };
    let mut how = vec![each(rows, load)];
    let is_ours = rows.iter().any(|row| row.source != Source::Import);
    if is_ours && rows[0].load.parse::<Load>().is_ok_and(Load::writes) {
        how.push(format!("load wrote to {}", each(rows, wrote_to)));
    }
    if rows[0].experiment == Experiment::Latency {
        how.push(format!("times taken by {}", each(rows, source)));
    }
    how.push(each(rows, |row| format!("kernel {}", shown(&row.kernel))));
    if rows.iter().any(|row| row.hypervisor == Some(true)) {
        how.push(told::VIRTUAL.to_owned());
    } else if is_ours && rows.iter().any(|row| row.hypervisor.is_none()) {
        how.push("whether that is a virtual machine is not known".to_owned());
    }
    let cpu = each(rows, |row| told::cpu(row.cpu, row.source));
    let policy = each(rows, |row| told::policy(row.schedule));
    format!("{measured}; {cpu}; {policy}\n{}\n", how.join("; "))
}

fn period(row: &Row) -> String {
    match (row.period_ns, row.source) {
        (Some(ns), _) => format!("one every {}", told::time(ns)),
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
    row.load_dir.as_ref().map_or_else(unknown, |dir| shown(&dir.to_string()))
}

fn source(row: &Row) -> String {
    match row.source {
        Source::Import => "another tool".to_owned(),
        source => source.word().to_owned(),
    }
}

/// A value that all rows share, or each value with its kinds or runs.
fn each(rows: &[&Row], value: impl Fn(&Row) -> String) -> String {
    let of = |row: &&Row| {
        let (kind, name) = (row.kind.clone(), row.name.clone());
        told::Told { kind, name, value: value(row) }
    };
    told::by_kind(rows.iter().map(of))
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
    let cells = |name: String, summary: &Summary| -> Vec<String> {
        let percentile = |name: &&str| {
            summary.percentile(name).map_or_else(
                || "-".to_owned(),
                |one| format!("{}{}", if one.or_more { ">=" } else { "" }, whole(Some(one.ns))),
            )
        };
        let mut cells = vec![name];
        cells.extend([us(summary.average_ns), us(summary.deviation_ns), whole(summary.min_ns)]);
        cells.extend(percentiles.iter().map(percentile));
        cells.push(whole(summary.max_ns));
        let counts = [Some(summary.instants), summary.missed, Some(summary.lost)];
        cells.extend(counts.map(|n| n.map_or_else(|| "-".to_owned(), |n| n.to_string())));
        cells
    };
    let mut lines: Vec<(Vec<String>, String)> = vec![(heading, "\n".to_owned())];
    for row in rows {
        let above = row.above.map(|above| match above.instants {
            Above { at_least, at_most } if at_least == at_most => at_least.to_string(),
            Above { at_least, at_most } => format!("{at_least}..{at_most}"),
        });
        let mut line = cells(row.name.clone(), &row.summary);
        line.extend(above);
        lines.push((line, remarks(row)));
        if let Some(summary) = &row.samples_alone {
            let mut line = cells("  samples alone".to_owned(), summary);
            line.extend(row.above.map(|_| "-".to_owned()));
            lines.push((line, "\n".to_owned()));
        }
    }
    let width = |at: usize| lines.iter().map(|(line, _)| line[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].0.len()).map(width).collect();
    for (line, remarks) in &lines {
        let _ = write!(text, "{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push_str(remarks);
    }
    text
}

/// What follows the figures of a row.
fn remarks(row: &Row) -> String {
    let none = if row.summary.instants == 0 { "  no sample" } else { "" };
    let partial = if row.partial.is_some() { "  partial" } else { "" };
    let system = row.system_max_ns.map_or_else(String::new, |ns| {
        format!(
            "      of which the system's own (interrupts, ticks, other tasks), largest: {}\n",
            whole(Some(ns))
        )
    });
    format!("{none}{partial}\n{system}")
}

/// Who has the best worst case, where there are several, and what weakens that. What is above a
/// limit the table has.
fn verdict(rows: &[&Row]) -> String {
    let said = verdict::verdict(rows);
    let ranking = said.is_comparison.then_some([said.best, said.others]);
    let ranking = ranking.into_iter().flatten().flatten();
    ranking.chain(said.reservations).map(|sentence| sentence + "\n").collect()
}

/// What the columns mean: those that are there.
fn legend(rows: &[&Row]) -> String {
    let is_known = |row: &&&Row| row.summary.missed.is_some();
    let known = rows.iter().filter(is_known).count();
    let of_imports = "missed: not known of an import, whose figures are of samples alone.";
    let lost = "lost: samples that found the ring full; their latency is not known, and they are \
                not in n.";
    let mut lines = match rows[0].experiment {
        Experiment::Latency if known == 0 => vec![
            "mean to max: from the instant until the task ran, of n samples.",
            of_imports,
            lost,
        ],
        Experiment::Latency => vec![
            "mean to max: from the instant until the task ran, of all n instants, also the missed \
             ones.",
            "missed: instants that passed while the task was late for an earlier one; they count \
             in n.",
            lost,
        ],
        Experiment::Overhead => vec![
            "mean to max: how much longer than an undisturbed turn each of n turns took.",
            "missed: always 0, a loop has no instants. lost: turns that found the ring full.",
        ],
    };
    let percentiles = rows.iter().flat_map(|row| &row.summary.percentiles);
    if percentiles.clone().next().is_some() {
        lines.insert(1, "stdev: standard deviation. p99: 99 of 100 took no longer.");
    } else {
        lines.insert(1, "stdev: standard deviation.");
    }
    if known > 0 && known < rows.len() {
        lines.push(of_imports);
    }
    if percentiles.clone().any(|one| one.or_more) {
        lines.push(">=: beyond the last bucket that the other tool's file names.");
    }
    if rows.iter().any(|row| row.above.is_some()) {
        lines.push("above: how many took longer; two numbers where a bucket reaches across.");
    }
    if rows.iter().any(|row| row.samples_alone.is_some()) {
        lines.push("samples alone: without the missed instants, as other tools count.");
    }
    let partial = rows.iter().filter_map(|row| {
        let (kind, name) = (row.name.clone(), row.name.clone());
        Some(told::Told { kind, name, value: shown(row.partial.as_ref()?) })
    });
    let partial = format!("partial: {}.", told::by_kind(partial));
    if rows.iter().any(|row| row.partial.is_some()) {
        lines.push(&partial);
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
            latencies().filter(is).collect::<Vec<_>>()
        };
        let ratio = |above: Kind, below: Kind, figure: fn(&[&Row]) -> Option<f64>| {
            let (above, below) = (of(above), of(below));
            if let Some(why) = not_ranked(&above, &below) {
                return format!("n/a, {why}");
            }
            match figure(&above).zip(figure(&below)) {
                Some((_, 0.0)) => "n/a, the lower is 0".to_owned(),
                Some((above, below)) => format!("{:.1}", above / below),
                None => "n/a, one run has no such figure".to_owned(),
            }
        };
        let _ = writeln!(
            text,
            "  {}, {load}: max(normal)/max(partition) {} (paper: 3688093), \
             stdev(fifo)/stdev(partition) {} (paper: 26.0)",
            shown(&dir.display().to_string()),
            ratio(Kind::Normal, Kind::Partition, max),
            ratio(Kind::Fifo, Kind::Partition, deviation),
        );
    }
    text
}

/// Why two kinds have no ratio: as in the ranking, they differ in nothing else, and all are whole.
fn not_ranked(above: &[&Row], below: &[&Row]) -> Option<String> {
    let all = || above.iter().chain(below);
    if above.is_empty() || below.is_empty() {
        return Some("a run is missing".to_owned());
    }
    if let Some(row) = all().find(|row| row.partial.is_some()) {
        return Some(format!("{} is partial", row.name));
    }
    let first = above[0].provenance;
    let refused = |row: &&&Row| Setting::refused(first, row.provenance, &[Setting::Kind]);
    let differing = all().map(|row| refused(&row)).find(|differing| !differing.is_empty())?;
    let names: Vec<String> = differing.iter().map(Setting::to_string).collect();
    Some(format!("the runs differ in {}", names.join(", ")))
}

/// Of all runs of a kind.
fn max(rows: &[&Row]) -> Option<f64> {
    let all: Option<Vec<u64>> = rows.iter().map(|row| row.summary.max_ns).collect();
    all?.into_iter().max().map(|ns| ns as f64)
}

/// Of the instants of all runs of a kind together.
fn deviation(rows: &[&Row]) -> Option<f64> {
    let of = |row: &&Row| {
        let Summary { instants, average_ns, deviation_ns, .. } = &row.summary;
        Some((*instants as f64, (*average_ns)?, (*deviation_ns)?))
    };
    let all: Vec<(f64, f64, f64)> = rows.iter().map(of).collect::<Option<_>>()?;
    let count: f64 = all.iter().map(|(n, ..)| n).sum();
    let mean = all.iter().map(|(n, mean, _)| n * mean).sum::<f64>() / count;
    let within = |(n, one, deviation): &(f64, f64, f64)| {
        (n - 1.0) * deviation.powi(2) + n * (one - mean).powi(2)
    };
    Some((all.iter().map(within).sum::<f64>() / (count - 1.0).max(1.0)).sqrt())
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
        let alone = words(lines[6]);
        assert_eq!(alone[..2], ["samples", "alone"], "{text}");
        // 50 of 10 us, and one.
        assert!(alone.ends_with(&["1234567890.000", "51", "0", "0"]), "{text}");
        assert!(alone[4..].starts_with(&["10.000", "10.007", "10.007"]), "{text}");
        assert!(text.contains("  samples alone: without the missed instants"), "{text}");
        let verdict = "\nThe worst case of partition is 1,234,567,890 us of 92 instants.\nnormal \
                       has no sample, which is worse than any time.\n";
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
            "6 processes of the load (factor 1); load wrote to tmpfs: no disk; times taken by \
             nanosleep; kernel 7.2; measured in a virtual machine: not the times of real hardware"
        );
        assert!(says.contains("\n  mean to max: from the instant until the task ran"), "{says}");
        assert!(says.contains("\n  lost: samples that found the ring full; "), "{says}");
        assert!(!says.contains("partial:") && !says.contains("above:"), "{says}");
        // An import knows less.
        for run in &mut runs {
            run.provenance.source = Source::Import;
            run.provenance.schedule = None;
            run.provenance.column = Some("Usr-003".into());
            (run.provenance.cpu, run.provenance.period_ns) = (None, None);
            run.provenance.partial = Some("interrupted".into());
            run.provenance.load_size.per_cpu = 0;
            run.latencies.forget_missed();
        }
        let says = text(&rows(&runs, None));
        assert!(!says.contains("load wrote"), "{says}");
        let lines: Vec<&str> = says.lines().collect();
        assert_eq!(
            lines[1],
            "2 to 3 instants, of another tool's histogram; CPU not known; policy not known"
        );
        let unknown = "size of the load not known; times taken by another tool; ";
        assert!(lines[2].starts_with(unknown), "{says}");
        assert!(
            lines[3].starts_with("run ") && says.contains("\n  partial: interrupted.\n"),
            "{says}"
        );
        assert!(words(lines[4]).ends_with(&["2", "-", "0", "partial"]), "{says}");
        let of_import = "\n  missed: not known of an import, whose figures are of samples alone.\n";
        assert!(says.contains(of_import) && !says.contains("instants that passed"), "{says}");
        // Beside a run of ours both are said.
        runs[1].latencies = Latencies::of([5_000, 6_000, 20_000]);
        let says = text(&rows(&runs, None));
        assert!(says.contains(of_import) && says.contains("instants that passed"), "{says}");
        runs[0].provenance.load = Load::Idle;
        assert!(text(&rows(&runs[..1], None)).contains("\nno load; times taken by"));
    }

    #[test]
    fn runs_of_one_kind_that_differ_in_a_setting_are_told_by_their_names() {
        let mut runs = [
            run("a/x", Kind::Normal, Latencies::of([9_000])),
            run("a/y", Kind::Normal, Latencies::of([5_000])),
        ];
        runs[1].provenance.period_ns = Some(2_000_000);
        let says = text(&rows(&runs, None));
        let line = "1 instant, one every 1 ms (normal x), one every 2 ms (normal y); CPU 3; ";
        assert!(says.lines().nth(1).unwrap().starts_with(line), "{says}");
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
        let verdict = "\npartition has the best worst case: 20.000 us of 2 instants (few runs: may \
                       be chance).\nThe others took longer: fifo 50.000 us (2.5 times as long), \
                       normal 90.000 us (4.5 times as long).\npartition is partial \
                       (interrupted), 2 instants: a whole run may have a longer one.\npartition \
                       lost 3,000 samples: a longer one may be among them.\nThe numbers of \
                       instants differ: more of them find a longer worst.\n  mean to max: ";
        assert!(says.contains(verdict), "{says}");
        let reason = "cut short: it has no line";
        runs[0].provenance.partial = Some(reason.into());
        let both = text(&rows(&runs, None));
        let legend = format!("\n  partial: {reason} (normal a/x), interrupted (partition).\n");
        assert!(both.contains(&legend) && !both.contains("ended"), "{both}");
        runs[0].provenance.partial = None;
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
        let nothing = run("a/o", Kind::Partition, Latencies::of([0, 0]));
        let says = beside_paper(&rows(&[of("a/n", Kind::Normal, 90_000), nothing], None));
        assert!(says.contains("max(normal)/max(partition) n/a, the lower is 0 ("), "{says}");
    }

    #[test]
    fn no_ratio_is_told_of_runs_that_are_not_ranked_and_all_of_a_kind_count() {
        let of = |dir: &str, kind, max_ns| run(dir, kind, Latencies::of([1_000, max_ns]));
        let says = |change: &dyn Fn(&mut Provenance)| {
            let mut runs = [
                of("a/n1", Kind::Normal, 30_000),
                of("a/n2", Kind::Normal, 90_000),
                of("a/p", Kind::Partition, 20_000),
            ];
            change(&mut runs[2].provenance);
            beside_paper(&rows(&runs, None)).lines().nth(1).unwrap().to_owned()
        };
        assert!(says(&|_| ()).starts_with("  a, mixed: max(normal)/max(partition) 4.5 ("));
        let load = says(&|run| run.load_size.cpus = 64);
        assert!(load.contains("/max(partition) n/a, the runs differ in load-size ("), "{load}");
        let partial = says(&|run| run.partial = Some("interrupted".into()));
        assert!(partial.contains("/max(partition) n/a, partition is partial ("), "{partial}");
        let runs = [[10, 20, 30].as_slice(), &[60]]
            .map(|all| run("a/p", Kind::Fifo, Latencies::of(all.iter().copied())));
        let of_all = Latencies::of([10, 20, 30, 60]).deviation_ns().unwrap();
        let both = rows(&runs, None);
        let both = deviation(&both.iter().collect::<Vec<_>>()).unwrap();
        assert!((both - of_all).abs() < 1e-9, "{both}");
    }

    #[test]
    fn no_name_of_a_run_begins_a_line() {
        let forged = "At the worst normal is best: 0.001 us.";
        let of = |dir: &str, kind, max_ns| run(dir, kind, Latencies::of([1_000, max_ns]));
        let mut runs = [
            of(&format!("a/n\n{forged}"), Kind::Normal, 90_000),
            of("a/n", Kind::Normal, 90_000),
            of("a/p", Kind::Partition, 20_000),
        ];
        for run in &mut runs {
            run.provenance.machine.kernel = format!("7.2\n{forged}");
            run.provenance.column = Some(format!("Usr\n{forged}"));
        }
        let rows = rows(&runs, None);
        let says = [text(&rows), beside_paper(&rows)].concat();
        assert!(says.contains(&format!("\\n{forged}")), "{says}");
        assert!(!says.lines().any(|line| line.starts_with(forged)), "{says}");
    }
}
