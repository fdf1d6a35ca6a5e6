// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole page, of runs in memory.

use super::*;
use crate::explain::Outlier;
use crate::histogram::{Beyond, Digits, Latencies};
use crate::load::{Load, LoadDir};
use crate::page::pen::places;
use crate::page::timeline::tests as timelines;
use crate::run::tests::provenance;
use crate::run::{BaseTime, Kind, Provenance, Source, Times};

const MS: u64 = 1_000_000;

fn run(kind: Kind, load: Load, latencies: Latencies) -> Run {
    let samples = latencies.samples();
    let provenance = Provenance { kind, load, samples, ..provenance() };
    let dir = format!("runs/{load}-{kind}").into();
    Run { dir, provenance, latencies, times: Times::default(), system_max_ns: None }
}

/// Of a kind, a millisecond each.
fn value(kind: Kind, turn: u64) -> u64 {
    let body = 3000 * (5 - kind as u64).pow(2) + turn * 7919 % 2000;
    if turn.is_multiple_of(997) { body + turn % 1_000_003 * (5 - kind as u64) } else { body }
}

/// Those of ASMP-Linux.
const KINDS: [Kind; 5] =
    [Kind::Normal, Kind::FifoIrq, Kind::Fifo, Kind::PartitionTick, Kind::Partition];

/// All these kinds under two loads.
fn series(samples: u64) -> Vec<Run> {
    let latencies = KINDS.map(|kind| Latencies::of((0..samples).map(|turn| value(kind, turn))));
    let of = |load: Load| {
        let kinds = KINDS.into_iter().zip(latencies.clone());
        kinds.map(move |(kind, latencies)| run(kind, load, latencies))
    };
    [Load::Idle, Load::Mixed].into_iter().flat_map(of).collect()
}

/// As they are shown, with times where they are no import.
fn shown_of(runs: &[Run]) -> Vec<Shown<'_>> {
    let of = |(at, run): (usize, &'_ Run)| {
        let Provenance { kind, samples, source, .. } = run.provenance;
        let values = (0..samples).map(move |turn| value(kind, turn));
        let timeline = (source != Source::Import).then(|| timelines::of(MS, values));
        (at + 1, timeline)
    };
    let of: Vec<_> = runs.iter().enumerate().map(of).collect();
    let show = |(run, (number, timeline)): (_, (usize, _))| {
        let run: &Run = run;
        let name = format!("{} {number}", run.provenance.kind);
        let (label, short) = (name.clone(), name.clone());
        Shown { run, number, name, label, short, nth: 0, timeline, system_max_ns: None }
    };
    runs.iter().zip(of).map(show).collect()
}

fn page(runs: &[Run], limit_ns: Option<u64>) -> String {
    document(runs, &shown_of(runs), limit_ns)
}

/// The paths of a figure whose title has these words, and its text.
fn figure<'a>(page: &'a str, words: &str) -> (Vec<&'a str>, &'a str) {
    let figures = page.split("<figure>").skip(1);
    let figure = figures
        .map(|rest| rest.split("</figure>").next().unwrap())
        .find(|figure| figure.contains(&format!("<h3>{words}")))
        .unwrap_or_else(|| panic!("no figure {words:?}"));
    let symbols = figure.split("<symbol ").skip(1);
    let paths = symbols.flat_map(|symbol| {
        let symbol = symbol.split("</symbol>").next().unwrap();
        symbol.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap())
    });
    (paths.collect(), figure)
}

#[test]
fn every_run_is_drawn_in_each_figure_however_many_there_are() {
    let runs: Vec<Run> = (0..13)
        .map(|turn| {
            run(Kind::Partition, Load::Mixed, Latencies::of((0..2000).map(|ns| ns + turn * 9)))
        })
        .collect();
    let page = page(&runs, None);
    let lines = |words: &str| {
        let (paths, html) = figure(&page, words);
        let labels =
            (1..=13).filter(|number| html.contains(&format!(">partition {number}</text>")));
        assert_eq!(labels.count(), 13, "{words}");
        paths.into_iter().filter(|path| !path.is_empty()).count()
    };
    // A line, and a dot at its end.
    assert_eq!(lines("Latency, mixed: percentiles"), 26);
    assert_eq!(lines("Latency, mixed: histogram"), 26);
    assert_eq!(lines("Latency, mixed: over time"), 26);
    assert_eq!(lines("Latency, mixed: largest of each second"), 13);
    // A line and three dots.
    assert_eq!(lines("Latency at a glance"), 52);
}

#[test]
fn the_page_of_ten_runs_of_a_million_instants_has_less_than_300_kb() {
    let mut runs = series(1_000_000);
    for run in &mut runs {
        run.provenance.worst = (0..100)
            .map(|index| Outlier {
                index,
                at_ns: Some(index * MS),
                value_ns: 1000,
                handler_ns: None,
                cause: "the interrupt came late ".repeat(10),
                records: vec!["+12 us reschedule of a task with a name".to_owned(); 24],
            })
            .collect();
        run.provenance.settings = vec!["/proc/irq/24/smp_affinity_list: 0-3 -> 0-2".into(); 30];
    }
    let page = page(&runs, Some(50_000));
    assert!(page.len() < 300_000, "{} bytes", page.len());
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("url("));
    assert_eq!(page.matches("href=").count(), page.matches("href=\"#").count());
}

#[test]
fn the_worst_instant_is_reached_by_the_line_and_by_the_dots_over_time() {
    let runs = series(20_000);
    let page = page(&runs, None);
    for words in ["Latency, mixed: percentiles", "Latency, mixed: over time"] {
        let (paths, _) = figure(&page, words);
        let top = |path: &&str| places(path).iter().map(|place| place.1).fold(0.0, f64::max);
        let highest = paths.iter().map(top).fold(0.0, f64::max);
        let worst_us = runs[5].latencies.max_ns().unwrap() as f64 / 1e3;
        let (low, high) = curve::range_us(runs[5..].iter().map(|run| &run.latencies)).unwrap();
        let expected = axis::Axis::log(low, high).place(worst_us);
        assert!((highest - expected).abs() < 0.003, "{words}: {highest}, {expected}");
    }
}

#[test]
fn the_top_says_which_kind_is_best_by_what_factor_and_what_is_above_the_limit() {
    let mut runs = vec![
        run(Kind::Normal, Load::Mixed, Latencies::of((0..1000).map(|turn| 10_000 + turn * 1000))),
        run(Kind::Partition, Load::Mixed, Latencies::of((0..1000).map(|turn| 9000 + turn))),
        run(Kind::Fifo, Load::Mixed, Latencies::default()),
    ];
    runs[0].latencies.lose(3);
    runs[0].provenance.started_s = 1_795_519_860;
    let said = top::verdicts(&report::rows(&runs, Some(500_000)));
    let expected = [
        "Load mixed. partition has the best worst case: 9.999 us of 1,000 instants (one run each: \
         may be chance).",
        "The other took longer: normal 1,009.0 us (101 times as long).",
        "normal lost 3 samples: a longer one may be among them.",
        "fifo has no sample, which is worse than any time.",
        "Above 500 us: normal 509..510 of 1,000; fifo 0 of 0; partition 0 of 1,000.",
    ];
    assert_eq!(said, [expected.map(str::to_owned).to_vec()]);
    let page = page(&runs, Some(500_000));
    for word in [
        "1970-01-01 00:00 UTC to 2026-11-24 11:31 UTC",
        "7.2",
        "CPUs 0-3 online, measured in a virtual machine: not the times of real hardware",
        "1,000 us",
        "<dd>SCHED_FIFO 80</dd>",
        "mixed: processes that compute, that write, and that wait for the disk; 6 processes on 4 \
         CPUs",
        "in a partition whose tick was asked to stop",
        "2,000 in 3 runs, 0 of them missed; 3 samples lost",
        "&gt; 500",
        "no sample",
    ] {
        assert!(page.contains(word), "no {word:?}");
    }
}

#[test]
fn an_import_has_the_figures_that_its_counts_allow_and_the_page_says_what_is_missing() {
    let mut latencies = Latencies::new(Digits::Imported);
    latencies.record_many(20_000, 5000);
    latencies.exceed(Beyond { instants: 9, from_ns: 400_000, max_ns: None, sum_ns: None });
    let mut import = run(Kind::Fifo, Load::Mixed, latencies);
    import.provenance.source = Source::Import;
    let runs = [import, run(Kind::Partition, Load::Mixed, Latencies::of(0..5000))];
    let page = page(&runs, None);
    let (_, over_time) = figure(&page, "Latency, mixed: over time");
    assert!(!over_time.contains(">fifo 1</text>") && over_time.contains(">partition 2</text>"));
    let (_, percentiles) = figure(&page, "Latency, mixed: percentiles");
    assert!(percentiles.contains(">fifo 1</text>"));
    for sentence in [
        "No times are known of fifo 1: an imported histogram says how often, and not when.",
        "; not known of an import, whose figures are of samples alone.",
        "Of 9 instants of fifo 1 only the shortest possible time is known, 400 us",
        "The worst case of fifo is not known.",
    ] {
        assert!(page.contains(sentence), "no {sentence:?}");
    }
    assert!(!page.contains("fifo has the best"), "an unknown worst is not the best");
    let mut one = Latencies::new(Digits::Imported);
    one.record_many(20_000, 5000);
    one.exceed(Beyond { instants: 1, from_ns: 400_000, max_ns: None, sum_ns: None });
    let page = self::page(&[run(Kind::Fifo, Load::Mixed, one)], None);
    assert!(page.contains("Of 1 instant of fifo 1 only the shortest possible time"), "{page}");
}

#[test]
fn every_column_of_a_table_is_explained_below_it() {
    let mut runs = series(3000);
    runs[0].provenance.worst = vec![Outlier {
        index: 0,
        at_ns: None,
        value_ns: 5,
        handler_ns: None,
        cause: "<b>late</b>".into(),
        records: vec!["<i>".into()],
    }];
    let page = page(&runs, Some(1));
    let tables = page.split("<table").skip(1);
    let mut columns = 0;
    for table in tables {
        let note = table.split("<p class=\"note\">").nth(1).unwrap().split("</p>").next().unwrap();
        for heading in table.split("<th scope=\"col\">").skip(1) {
            let name = heading.split("</th>").next().unwrap();
            assert!(note.contains(&format!("<b>{name}</b>: ")), "{name}");
            columns += 1;
        }
    }
    assert!(columns > 14, "{columns}");
    assert!(page.contains("&lt;b&gt;late") && !page.contains("<b>late") && !page.contains("<i>"));
}

#[test]
fn text_of_a_run_is_no_markup_anywhere() {
    let mut one = run(Kind::Normal, Load::Idle, Latencies::of([5, 6]));
    let evil = || "<script>\"&".to_owned();
    one.provenance.machine.cpu_model = evil();
    one.provenance.machine.kernel = evil();
    one.provenance.machine.online_cpus = evil();
    one.provenance.tool = evil();
    one.provenance.partial = Some(evil());
    one.provenance.not_recorded = Some(evil());
    one.dir = evil().into();
    let page = page(&[one], None);
    assert!(!page.contains("<script"), "{page}");
    assert!(page.matches("&lt;script&gt;").count() > 6);
}

#[test]
fn kinds_far_apart_have_a_histogram_of_the_short_ones_that_counts_what_is_beyond() {
    let short = || Latencies::of((0..1000).map(|turn| 3000 + turn));
    let mut long = Latencies::of((0..1000).map(|turn| 900_000 + turn * 1000));
    long.record(5000);
    let mix = Load::Mixed;
    let runs = [
        run(Kind::Normal, mix, long),
        run(Kind::Fifo, mix, short()),
        run(Kind::Partition, mix, short()),
    ];
    let page = page(&runs, None);
    let (_, part) = figure(&page, "Latency, mixed: histogram up to 10 us");
    assert!(part.contains("beyond the axis: normal 1: 1,000 (worst 1,899.0 us)."), "{part}");
    assert!(part.contains("A bucket is 0.05 us wide."), "{part}");
    let (_, whole) = figure(&page, "Latency, mixed: histogram</h3>");
    assert!(whole.contains("A bucket is 10 us wide.") && !whole.contains("beyond the axis"));
}

#[test]
fn a_load_that_wrote_to_memory_is_said_to_have_waited_for_no_disk() {
    let latencies = || Latencies::of([5000, 6000]);
    let mut runs =
        [run(Kind::Normal, Load::Io, latencies()), run(Kind::Fifo, Load::Io, latencies())];
    let dir = |file_system: &str| {
        let (path, device) = ("/x".into(), "8:1".into());
        Some(LoadDir { path, file_system: file_system.into(), device })
    };
    runs[0].provenance.load_dir = dir("tmpfs");
    let said = |runs: &[Run]| {
        let page = page(runs, None);
        let fact = page.split("<dt>Loads wrote to</dt><dd>").nth(1).unwrap();
        let sentence = page.split("<br>").find(|text| text.starts_with("The load"));
        let sentence = sentence.map(|text| text.split("</li>").next().unwrap().to_owned());
        (fact.split("</dd>").next().unwrap().to_owned(), sentence)
    };
    let all = "The load wrote to memory (tmpfs): it waited for no disk.".to_owned();
    assert_eq!(said(&runs[..1]), ("tmpfs: no disk".to_owned(), Some(all)));
    runs[1].provenance.load_dir = dir("ext4");
    let (fact, sentence) = said(&runs);
    assert_eq!(fact, "tmpfs: no disk; ext4 (device 8:1)");
    let of_one = "The load of normal wrote to memory (tmpfs): it waited for no disk.";
    assert_eq!(sentence.as_deref(), Some(of_one));
    runs[0].provenance.load_dir = dir("ext4");
    assert_eq!(said(&runs), ("ext4 (device 8:1)".to_owned(), None));
    // A load that does not write has no place.
    assert!(!page(&[run(Kind::Normal, Load::Cpu, latencies())], None).contains("Loads wrote to"));
}

#[test]
fn a_load_is_told_by_all_its_processes_and_not_by_its_factor() {
    let says = |load: Load| {
        let mut one = run(Kind::Fifo, load, Latencies::of([5000]));
        one.provenance.load_size.per_cpu = 128;
        top::facts(&[one])
    };
    assert!(says(Load::Cpu).contains("cpu: processes that compute; 512 processes on 4 CPUs<"));
    assert!(says(Load::Mixed).contains("the disk; 768 processes on 4 CPUs<"));
    assert!(says(Load::Cache).contains("; 772 processes on 4 CPUs<"), "with the flooders");
    assert!(says(Load::Artis).contains("; 16 processes on 4 CPUs<"));
    assert!(says(Load::Idle).contains("idle: asmp started no load<"), "others may have");
}

#[test]
fn instants_of_several_columns_of_one_import_are_not_added_up() {
    let column = |(name, n): (&str, u64)| {
        let mut one = run(Kind::Partition, Load::Idle, Latencies::of(0..n));
        (one.provenance.source, one.provenance.column) = (Source::Import, Some(name.to_owned()));
        one
    };
    let mut runs: Vec<Run> =
        [("IRQ-003", 10_000), ("Thr-003", 10_000), ("Usr-003", 9999)].map(column).into();
    let instants = "<dt>Instants</dt><dd>9,999 to 10,000 in each of 3 columns of another tool</dd>";
    assert!(top::facts(&runs).contains(instants), "{}", top::facts(&runs));
    let said = top::verdicts(&report::rows(&runs, Some(1_000_000)));
    let above = "Load idle. Above 1,000 us: partition IRQ-003 0 of 10,000; ";
    assert!(said[0].last().unwrap().starts_with(above), "{said:?}");
    let none: Vec<Vec<String>> = top::verdicts(&report::rows(&runs, None));
    assert!(none.is_empty(), "columns of one kind: {none:?}");
    runs.push(run(Kind::Normal, Load::Idle, Latencies::of([7])));
    let both = "1 in 1 run, 0 of them missed; 0 samples lost; 9,999 to 10,000 in each of 3";
    assert!(top::facts(&runs).contains(both), "{}", top::facts(&runs));
}

/// One run with its worst, as a run without samples has them.
fn without_samples(column_ns: u64, at_ns: Option<u64>) -> String {
    let mut runs = [run(Kind::Partition, Load::Mixed, Latencies::of([5000, 9000]))];
    runs[0].provenance.worst = vec![Outlier {
        index: 1,
        at_ns,
        value_ns: 9000,
        handler_ns: None,
        cause: "late".into(),
        records: vec![],
    }];
    let mut shown = shown_of(&runs);
    for timeline in shown.iter_mut().filter_map(|one| one.timeline.as_mut()) {
        (timeline.has_samples, timeline.column_ns) = (false, column_ns);
        timeline.worst_ns = at_ns.into_iter().map(|at_ns| (1, at_ns)).collect();
    }
    document(&runs, &shown, None)
}

#[test]
fn the_worst_have_marks_without_samples_and_no_word_points_at_a_mark_that_is_not_there() {
    const SECOND_NS: u64 = 1_000_000_000;
    let page = without_samples(SECOND_NS, Some(MS));
    let (_, over_time) = figure(&page, "Latency, mixed: over time");
    assert!(over_time.contains("<circle"), "{over_time}");
    assert!(over_time.contains("Numbers: the worst, see below."), "{over_time}");
    assert!(page.contains("<b>Mark</b>: the number in the figure over time"));
    assert!(page.contains("data-name=\"At\">0.001<"));
    let page = without_samples(SECOND_NS, None);
    let (_, over_time) = figure(&page, "Latency, mixed: over time");
    assert!(!over_time.contains("<circle") && !over_time.contains("Numbers"), "{over_time}");
    assert!(page.contains("<b>Mark</b>: 1 the worst. "));
    assert!(page.contains(" –: not known, or the sample was not kept."));
}

#[test]
fn the_caption_over_time_says_what_the_dots_are() {
    let caption = |page: &str| {
        let (_, figure) = figure(page, "Latency, mixed: over time");
        figure.split("<figcaption>").nth(1).unwrap().to_owned()
    };
    let seconds = caption(&without_samples(1_000_000_000, None));
    let each = "same axes. A dot is the highest of each second, and a pale line goes down to";
    assert!(seconds.contains(each), "{seconds}");
    let joined = caption(&without_samples(4_000_000_000, None));
    assert!(joined.contains("A dot is the highest of each 4 seconds, and"), "{joined}");
    assert!(!joined.contains("240 columns"), "{joined}");
    let samples = caption(&page(&series(3000), None));
    assert!(samples.contains("the dot is the highest sample of each, and a pale"), "{samples}");
}

#[test]
fn over_time_a_dot_is_the_highest_of_its_column_and_a_line_goes_down_to_the_lowest() {
    let runs = [run(Kind::Partition, Load::Mixed, Latencies::of([5000]))];
    let mut shown = shown_of(&runs);
    let values = (0..10_000).map(|turn| [1000, 2000, 9000][turn % 3]);
    shown[0].timeline = Some(timelines::of(MS, values));
    let page = document(&runs, &shown, None);
    let (paths, _) = figure(&page, "Latency, mixed: over time");
    let [ranges, dots] = paths[..] else { panic!("{paths:?}") };
    let heights = |path: &str| -> BTreeSet<u64> {
        places(path).iter().map(|(_, y)| (y * 500.0).round() as u64).collect()
    };
    assert_eq!(heights(dots).len(), 1, "only the highest: {dots}");
    assert!(heights(ranges).len() == 2 && heights(ranges).last() == heights(dots).last());
}

#[test]
fn the_last_step_of_the_largest_ends_with_its_run() {
    let of = |instants: &[u64]| {
        let kinds = [Kind::Fifo, Kind::Partition].into_iter().zip(instants);
        let runs: Vec<Run> = kinds
            .map(|(kind, instants)| run(kind, Load::Mixed, Latencies::of(0..*instants)))
            .collect();
        let page = page(&runs, None);
        let (paths, html) = figure(&page, "Latency, mixed: largest of each second");
        let ends: BTreeSet<u64> =
            places(paths[0]).iter().map(|(x, _)| (x * 1000.0).round() as u64).collect();
        (ends.into_iter().collect::<Vec<_>>(), html.contains("it ends with its run"))
    };
    // A second and a quarter, and two whole seconds.
    assert_eq!(of(&[1250]), (vec![0, 800, 1000], true));
    assert_eq!(of(&[2000]), (vec![0, 500, 1000], false));
    assert_eq!(of(&[1250, 2000]), (vec![0, 500, 625], true), "beside a longer run");
}

/// What rtla prints of one CPU: columns of 256 us each, and what lies beyond.
fn columns() -> Vec<Run> {
    let column = |(name, beyond, max_us): (&str, u64, u64)| {
        let mut latencies = Latencies::new(Digits::Imported);
        (3..=255).for_each(|us| latencies.record_many(us * 1000, 3));
        let (from_ns, max_ns) = (256_000, Some(max_us * 1000));
        latencies.exceed(Beyond { instants: beyond, from_ns, max_ns, sum_ns: None });
        let mut one = run(Kind::Partition, Load::Mixed, latencies);
        let provenance = &mut one.provenance;
        provenance.source = Source::Import;
        (provenance.column, provenance.cpu, provenance.schedule) = (Some(name.into()), None, None);
        let machine = &mut provenance.machine;
        (machine.kernel_version, machine.cpu_model) = ("unknown".into(), "unknown".into());
        one.dir = format!("rtla/{name}").into();
        one
    };
    [("IRQ-003", 128, 9605), ("Thr-003", 180, 9680), ("Usr-003", 207, 9713)].map(column).into()
}

#[test]
fn columns_of_an_import_are_told_apart_in_every_figure() {
    let page = html(&columns(), Some(100_000)).unwrap();
    for words in
        ["Latency at a glance", "Latency, mixed: percentiles", "Latency, mixed: histogram</h3>"]
    {
        let (_, html) = figure(&page, words);
        for label in ["1 partition IRQ-003", "2 partition Thr-003", "3 partition Usr-003"] {
            assert!(html.contains(&format!(">{label}</text>")), "{words}: {label}");
            let short = label.replace("partition ", "");
            assert!(html.contains(&format!(">{short}</text>")), "{words}: {short}");
        }
        let symbols: String = html
            .split("<symbol ")
            .skip(1)
            .map(|rest| rest.split("</symbol>").next().unwrap())
            .collect();
        let lines =
            symbols.split("stroke=\"").skip(1).map(|rest| rest.split(" vector").next().unwrap());
        let looks: BTreeSet<&str> = lines.filter(|line| !line.contains("linecap")).collect();
        assert!(
            looks.len() == 3 && looks.iter().all(|one| one.starts_with("#0072B2")),
            "{looks:?}"
        );
        assert!(html.contains(">limit 100 us</text>"), "{words}");
    }
    // Each line has its label where it ends, and not at the far dot.
    let (_, percentiles) = figure(&page, "Latency, mixed: percentiles");
    let far = percentiles.matches("stroke-opacity=\".5\"").count();
    assert_eq!(far, 6, "a leader for each line, in two layouts");
    let glance = figure(&page, "Latency at a glance").1;
    assert!(glance.contains("has no dot.") && !glance.contains("where n supports it"), "{glance}");
    for sentence in [
        "how many took longer; two numbers where a bucket reaches across.",
        "≥: beyond the last bucket of the other tool's histogram.",
    ] {
        assert!(page.contains(sentence), "{sentence}");
    }
}

#[test]
fn the_axis_of_a_histogram_ends_where_its_buckets_do() {
    let page = html(&columns(), Some(500_000)).unwrap();
    assert!(!page.contains("histogram up to"), "one histogram");
    let (paths, html) = figure(&page, "Latency, mixed: histogram");
    let lines: Vec<&&str> = paths.iter().filter(|path| !path.is_empty()).collect();
    assert_eq!(lines.len(), 3, "no dot: the worst lies beyond");
    for line in lines {
        let ends = places(line);
        assert!(ends[0].0 < 0.02 && ends[ends.len() - 1].0 > 0.98, "{line}");
    }
    assert!(html.contains("beyond the axis: 1 partition IRQ-003: 128 (worst 9,605.0 us); "));
    assert!(html.contains(" The limit, 500 us, lies beyond the axis."), "{html}");
    assert!(!html.contains("A dot marks"), "{html}");
}

#[test]
fn of_an_import_nothing_is_said_that_only_its_importer_knows() {
    let mut runs = columns();
    let said = top::facts(&runs);
    for word in ["Measured", "unknown", "not known", "<dt>CPU", "<dt>Policy", "<dt>Period"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
    assert!(said.contains("<dt>Imported</dt>") && said.contains("<dt>Kernel</dt><dd>7.2</dd>"));
    assert!(said.contains("partition: as the importer says, a real-time task"), "{said}");
    assert!(said.contains("mixed: as the importer says, processes that compute"), "{said}");
    // What asmp has measured beside it, it knows.
    runs.push(run(Kind::Partition, Load::Mixed, Latencies::of([5000])));
    let said = top::facts(&runs);
    assert!(said.contains("<dt>Measured</dt>") && said.contains("<dt>Imported</dt>"), "{said}");
    assert!(said.contains("partition: a real-time task"), "{said}");
}

#[test]
fn a_number_of_a_card_has_its_unit_and_a_count_or_a_dash_has_none() {
    let page = page(&[run(Kind::Partition, Load::Mixed, Latencies::of([5000]))], None);
    assert!(page.contains("<td data-unit=\"us\" data-name=\"Max\">5.000<"));
    assert!(page.contains("<td data-name=\"n\">1<"));
    let columns = html(&columns(), None).unwrap();
    assert!(columns.contains("<td data-name=\"Stdev\">–<"), "{columns}");
    assert!(style::SHEET.contains("td[data-unit]::after { content: attr(data-unit)"));
}

#[test]
fn turns_are_no_instants() {
    let mut turns =
        run(Kind::Partition, Load::Idle, Latencies::of((0..2000).map(|turn| 50 + turn)));
    (turns.provenance.experiment, turns.provenance.source) = (Experiment::Overhead, Source::Loop);
    turns.provenance.base_ns = Some(BaseTime { before_ns: 70_000, after_ns: 80_000, rounds: 1 });
    turns.provenance.worst = vec![Outlier {
        index: 0,
        at_ns: Some(0),
        value_ns: 72_049,
        handler_ns: None,
        cause: "late".into(),
        records: vec![],
    }];
    let runs = [turns];
    let page = page(&runs, Some(1_000_000));
    let shown = page.split("<h2>Provenance").next().unwrap();
    let told = shown.replace("a loop has no instants", "");
    assert!(!told.to_lowercase().contains("instant"), "{told}");
    assert!(told.contains("<dt>Turns</dt><dd>2,000 in 1 run, "), "{told}");
    let worst = "The worst case of partition is 2.049 us of 2,000 turns.";
    assert!(told.contains(worst), "{told}");
    // As much as Max: both are beyond the base time.
    assert_eq!(told.matches("data-unit=\"us\" data-name=\"Took\">2.049<").count(), 1);
    assert_eq!(told.matches("data-name=\"Max\">2.049<").count(), 1);
}

#[test]
fn runs_of_one_kind_with_different_settings_are_told_by_their_names() {
    let mut runs = [
        run(Kind::Normal, Load::Idle, Latencies::of([5000])),
        run(Kind::Normal, Load::Idle, Latencies::of([5000])),
    ];
    (runs[0].dir, runs[1].dir) = ("s/free".into(), "s/bound".into());
    runs[0].provenance.cpu = None;
    let said = top::facts(&runs);
    let cpus = "<dd>any CPU (idle/normal free), CPU 3 (idle/normal bound)</dd>";
    assert!(said.contains(cpus), "{said}");
}

#[test]
fn that_no_cause_was_recorded_is_said_once_and_no_list_of_the_worst_is_called_empty() {
    let mut runs = [run(Kind::Normal, Load::Idle, Latencies::of([5000]))];
    let worst = |index| Outlier {
        index,
        at_ns: None,
        value_ns: 5000,
        handler_ns: None,
        cause: crate::explain::NOT_RECORDED.into(),
        records: vec![],
    };
    runs[0].provenance.worst = vec![worst(0), worst(1)];
    runs[0].provenance.not_recorded = Some("the task may move between CPUs".into());
    let whole = page(&runs, None);
    let (shown, provenance) = whole.split_once("<h2>Provenance").unwrap();
    assert_eq!(shown.matches("not recorded").count(), 1, "{shown}");
    assert!(shown.contains("normal 1: causes were not recorded: the task may move"), "{shown}");
    assert!(!shown.contains("<b>Cause</b>"), "an empty column");
    assert!(provenance.contains("totals") && !provenance.contains("\"worst"), "{provenance}");
    assert!(!provenance.contains("&quot;worst&quot;"), "{provenance}");
    assert!(provenance.contains("without the worst samples"), "{provenance}");
}

#[test]
fn a_column_has_the_same_name_in_the_text_and_on_the_page() {
    let runs = series(3000);
    let page = page(&runs, None);
    let table = page.split("<table").nth(1).unwrap().split("</thead>").next().unwrap();
    let columns = table.split("<th scope=\"col\">").skip(2);
    let of_page: Vec<String> =
        columns.map(|rest| rest.split("</th>").next().unwrap().to_lowercase()).collect();
    let text = report::text(&report::rows(&runs, None));
    let heading = text.lines().find(|line| line.starts_with("kind ")).unwrap();
    let of_text: Vec<&str> = heading.split_whitespace().skip(1).collect();
    assert_eq!(of_page, of_text);
}
