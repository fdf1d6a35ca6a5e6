// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other tools' files: what they say must be in every figure, and come back as it went.

use super::*;
use crate::histogram::{Above, Beyond, Digits, Quantile};
use crate::hlog::{self, Recorder};
use crate::run::tests::provenance;
use crate::run::{Experiment, Kind, Provenance, Run, Source, Times};
use crate::sample::{Counts, Sample};
use crate::summary::Summary;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::time::{Duration, UNIX_EPOCH};

mod tools;

const VALUES: [u64; 6] = [3_000, 3_999, 4_000, 17_500, 17_900, 2_000_000];

fn hdr(text: &str) -> Latencies {
    let [column] = from_hdr(text, None).unwrap().try_into().unwrap();
    column.latencies
}

/// Microseconds, where the text has no line of its unit.
fn from_rtla(text: &str) -> Result<Vec<Column>, String> {
    super::from_rtla(text, (!text.contains("# Time unit")).then_some(1000))
}

fn names(columns: &[Column]) -> Vec<&str> {
    columns.iter().map(|column| column.name.as_str()).collect()
}

#[test]
fn the_overflow_counts_and_the_tool_says_its_longest() {
    let text = "# Histogram\n000041 000050\n000042 000048\n000399 000000\n# Total: 000000098\n\
                # Min Latencies: 00041\n# Avg Latencies: 00150\n# Max Latencies: 08974\n\
                # Histogram Overflows: 00002\n";
    let [column] = from_cyclictest(text, None).unwrap().try_into().unwrap();
    let latencies = column.latencies;
    assert_eq!((latencies.instants(), latencies.lost()), (100, 0));
    assert_eq!(latencies.max_ns(), Some(8_974_000));
    assert_eq!(latencies.quantile(100), Quantile::AtLeast { ns: 400_000 });
    let summary = Summary::of(&latencies);
    assert_eq!((summary.average_ns, summary.deviation_ns), (Some(150_000.0), None));
    assert!(summary.percentile("p99").unwrap().or_more);
    // The overflow's sum is what the average of all leaves for it.
    let sum_ns = Some(15_000_000 - 50 * 41_000 - 48 * 42_000);
    let beyond = Beyond { instants: 2, from_ns: 400_000, max_ns: Some(8_974_000), sum_ns };
    assert_eq!(latencies.beyond(), Some(beyond));
}

const fn above(at_least: u64, at_most: u64) -> Above {
    Above { at_least, at_most }
}

#[test]
fn a_wide_row_understates_nothing_and_the_tools_own_figures_are_the_runs() {
    let table = "Index   Usr-003\n20 900\n30 90\n50 9\n900 1\nover: 0\ncount: 1000\n";
    let text = format!("{table}min: 21\navg: 27\nmax: 907\n");
    let [column] = from_rtla(&text).unwrap().try_into().unwrap();
    let latencies = column.latencies;
    let summary = Summary::of(&latencies);
    assert_eq!((summary.min_ns, summary.max_ns), (Some(21_000), Some(907_000)));
    assert_eq!((summary.average_ns, summary.deviation_ns), (Some(27_000.0), None));
    assert_eq!(latencies.quantile(2), Quantile::At { ns: 29_000 });
    assert_eq!(latencies.quantile(1_000), Quantile::At { ns: 59_000 });
    let counts = [25_000, 29_000, 905_000, 907_000].map(|limit_ns| latencies.above(limit_ns));
    assert_eq!(counts, [above(100, 999), above(100, 999), above(1, 1), above(0, 1)]);
    // It stays what it is in a run's directory, and goes back into such a file.
    let mut log = hlog::Writer::new(Vec::new(), UNIX_EPOCH).unwrap();
    log.second(0, None, &latencies).unwrap();
    log.exact(None, &latencies).unwrap();
    let all = hlog::read(log.finish().unwrap().as_slice(), |_| ()).unwrap();
    assert_eq!(all[&None], latencies);
    let again = to_rtla(&Rows::as_wide(&latencies, 1_000_000), "Usr-003");
    assert_eq!(from_rtla(&again).unwrap()[0].latencies, latencies, "{again}");
    // Rows of 100: how wide they are is not known, and the longest is.
    let text = "Index a\n0 990\n300 9\n900 1\nmin: 21\navg: 44\nmax: 987\n";
    let latencies = from_rtla(text).unwrap().remove(0).latencies;
    assert_eq!((latencies.min_ns(), latencies.max_ns()), (Some(21_000), Some(987_000)));
    assert_eq!((latencies.average_ns(), latencies.above(950_000)), (Some(44_000.0), above(1, 1)));
    // Without those lines the mean is not known.
    let latencies = from_rtla(table).unwrap().remove(0).latencies;
    assert_eq!((latencies.average_ns(), latencies.max_ns()), (None, Some(909_000)));
    let refused = from_rtla(&format!("{table}min: 5\navg: 27\nmax: 907\n")).unwrap_err();
    assert_eq!(refused, "Usr-003: its first row is 20, and its minimum 5");
}

#[test]
fn the_average_of_a_file_is_the_runs_and_rows_give_its_fraction() {
    let of = |avg: u64| {
        let text = format!("000041 000001\n000042 000001\n# Avg Latencies: {avg}\n");
        let summary = Summary::of(&from_cyclictest(&text, None).unwrap()[0].latencies);
        (summary.average_ns, summary.deviation_ns.map(f64::round))
    };
    assert_eq!(of(41), (Some(41_500.0), Some(707.0)));
    // None of these rows has it, and the file says of none that they are not all.
    assert_eq!(of(44), (None, None));
    // The maximum of a file that is cut short proves an instant beyond its rows.
    let cut = "000041 000005\n# Max Latencies: 00900\n# Histogram Overflows: 0";
    let latencies = from_cyclictest(cut, None).unwrap().remove(0).latencies;
    assert_eq!((latencies.instants(), latencies.max_ns()), (6, Some(900_000)));
}

#[test]
fn the_percentile_text_of_another_program_is_read_with_its_last_lines() {
    let text = "Value Percentile TotalCount 1/(1-Percentile)\n\n10.000 0.0 1 1.00\n\
                20.000 0.5 5 2.00\n40.250 1.0 10\n\
                #[Mean    =       25.125, StdDeviation   =        7.500]\n\
                #[Max     =       40.249, Total count    =           10]\n\
                #[Buckets =           28, SubBuckets     =         2048]\n";
    let latencies = hdr(text);
    assert_eq!((latencies.average_ns(), latencies.max_ns()), (Some(25_125.0), Some(40_249)));
    let deviation_ns = latencies.deviation_ns().unwrap();
    assert!((deviation_ns - 7_905.694).abs() < 0.01, "of a sample, n - 1: {deviation_ns}");
    // Between two lines values are left out.
    assert_eq!(latencies.above(15_000), above(5, 9));
    let cut = hdr(&text[..text.find("#[Mean").unwrap()]);
    assert_eq!((cut.instants(), cut.average_ns(), cut.deviation_ns()), (10, None, None));
}

#[test]
fn what_other_tools_missed_is_not_known() {
    let missed = |column: &Column| Summary::of(&column.latencies).missed;
    let cyclictest = from_cyclictest(include_str!("../../tests/data/cyclictest.txt"), None);
    let rtla = from_rtla(include_str!("../../tests/data/rtla.txt"));
    let log = from_hdr(&foreign_log(3, 1, &[None], &[7]), None);
    let text = from_hdr(&to_hdr(&Latencies::of(VALUES)), None);
    for columns in [cyclictest, rtla, log, text] {
        assert!(columns.unwrap().iter().all(|column| missed(column).is_none()));
    }
}

#[test]
fn the_column_of_all_threads_is_no_thread() {
    let rows = "# Histogram\n000001 000002\t000003\t000005\n000002 000000\t000001\t000001\n";
    let trailers = "# Min Latencies: 00001 00001\n# Avg Latencies: 00001 00001\n\
                    # Max Latencies: 00001 00002 00002\n# Histogram Overflows: 00000 00000 00000\n";
    let with = from_cyclictest(&format!("{rows}{trailers}"), None).unwrap();
    assert_eq!(names(&with), ["thread-0", "thread-1"]);
    let cut = from_cyclictest(rows, None).unwrap();
    assert_eq!(names(&cut), names(&with), "also where the trailers are cut off");
    assert!(cut.iter().zip(&with).all(|(cut, with)| cut.latencies == with.latencies));
    // Three threads that are no sum.
    let other = rows.replace("\t000005", "\t000004");
    assert_eq!(from_cyclictest(&other, None).unwrap().len(), 3);
    assert!(from_cyclictest(&format!("{other}{trailers}"), None).unwrap_err().contains("3 minima"));
}

#[test]
fn the_header_says_the_unit() {
    let table = "Index   IRQ-003   Thr-003\n1100          1         0\nover:         1         2\n\
                 count:        2         2\nmin:       1100      9000\navg:       1150      9100\n\
                 max:       1200      9200\n";
    let of = |unit: &str| {
        from_rtla(&format!("# RTLA timerlat histogram\n# Time unit is {unit}\n{table}"))
    };
    let nano = of("nanoseconds (ns)").unwrap();
    assert_eq!(nano[0].latencies.max_ns(), Some(1200));
    let micro = of("microseconds (us)").unwrap();
    assert_eq!(micro[0].latencies.max_ns(), Some(1_200_000));
    // All of a column lies beyond the rows: it counts all the same, from its least on.
    let beyond = nano[1].latencies.beyond().unwrap();
    assert_eq!((nano[1].latencies.instants(), beyond.from_ns), (2, 9000));
    assert_eq!(nano[1].latencies.quantile(2), Quantile::AtLeast { ns: 9000 });
    assert!(of("furlongs (fl)").unwrap_err().contains("line 2"));
    // What follows the table is no part of it.
    let stopped = format!("{table}rtla timerlat hit stop tracing\n## CPU 3 hit stop tracing\n");
    assert_eq!(from_rtla(&stopped).unwrap(), micro);
}

#[test]
fn the_unit_is_the_callers_where_the_file_has_none() {
    let text = "# Histogram\n000041 000050\n# Max Latencies: 00041\n";
    for (unit_ns, max_ns) in [(None, 41_000), (Some(1), 41)] {
        let [column] = from_cyclictest(text, unit_ns).unwrap().try_into().unwrap();
        assert_eq!(column.latencies.max_ns(), Some(max_ns));
    }
    // As wrk2 prints it, in ms: a value has a fraction.
    let text = "Value   Percentile   TotalCount 1/(1-Percentile)\n\n0.921 0.5 7 2.0\n\
                1.5 0.9 9 10.0\n2.25 1.0 10 inf\n#[Max     =        2.250, Total count = 10]\n";
    let [column] = from_hdr(text, Some(1_000_000)).unwrap().try_into().unwrap();
    let latencies = column.latencies;
    assert_eq!((latencies.instants(), latencies.beyond()), (10, None));
    assert_eq!((latencies.min_ns(), latencies.max_ns()), (Some(921_000), Some(2_250_000)));
    let Quantile::At { ns } = latencies.quantile(10) else { panic!("a value") };
    assert!((1_500_000..1_500_020).contains(&ns), "{ns}: a bucket is a 131072th wide");
}

/// A log of another program's: `digits`, from `low` on, one line for each tag.
fn foreign_log(digits: u8, low: u64, tags: &[Option<&str>], values: &[u64]) -> String {
    let mut counts = Histogram::<u64>::new_with_bounds(low, 3_600_000_000, digits).unwrap();
    values.iter().for_each(|value| counts.record(*value).unwrap());
    let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut log = IntervalLogWriterBuilder::new().begin_log_with(&mut text, &mut serializer);
    let log = log.as_mut().unwrap();
    for tag in tags {
        let tag = tag.map(|tag| Tag::new(tag).unwrap());
        let (start, length) = (Duration::from_millis(127), Duration::from_secs(1));
        log.write_histogram(&counts, start, length, tag).unwrap();
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn a_log_of_another_program_is_read_in_its_unit() {
    let values: Vec<u64> = (1..=5_000).map(|turn| turn * 7919 % 90_000_000 + 2_000).collect();
    for (digits, low, unit_ns) in [(2, 1_000, 1), (3, 1, 1), (1, 1, 1_000), (5, 7, 1_000)] {
        let text = foreign_log(digits, low, &[Some("A"), None], &values);
        let columns = from_hdr(&text, Some(unit_ns)).unwrap();
        assert_eq!(names(&columns), ["all", "A"]);
        let mut sorted = values.clone();
        sorted.sort_unstable();
        for column in columns {
            assert_eq!(column.latencies.instants(), 5_000);
            for (one_in, rank) in [(2, 2_500), (100, 4_950), (1_000, 4_995)] {
                let Quantile::At { ns } = column.latencies.quantile(one_in) else { panic!() };
                // As fine as the log's own buckets, and never below the true one.
                let true_ns = sorted[rank - 1] * unit_ns;
                let theirs_ns = true_ns / 10u64.pow(digits.into()) + low * unit_ns * 2;
                let most_ns = true_ns + theirs_ns + true_ns / 131_072;
                assert!((true_ns..=most_ns).contains(&ns), "{digits} {low}: {ns}, not {true_ns}");
            }
        }
    }
    let refused = from_hdr(&foreign_log(3, 1, &[Some("../up")], &[7]), None).unwrap_err();
    assert!(refused.contains("../up") && refused.contains("letters, digits"), "{refused}");
    let twice = from_hdr(&foreign_log(3, 1, &[Some("all"), None], &[7]), None).unwrap_err();
    assert!(twice.contains("invalid tag \"all\""), "{twice}");
}

#[test]
fn our_own_log_comes_back_exactly() {
    let mut recorder = Recorder::new(Vec::new(), UNIX_EPOCH, Some(1_000_000)).unwrap();
    for (due_ms, value_ns) in [(0, 5_001), (1, 40_000_000), (41, 7_777)] {
        let due_ns = due_ms * 1_000_000;
        recorder.sample(&Sample { due_ns, value_ns, ..Sample::default() }).unwrap();
    }
    let (latencies, log) = recorder.finish(3).unwrap();
    assert_eq!((latencies.instants(), latencies.missed(), latencies.lost()), (42, 39, 3));
    let back = hdr(&String::from_utf8(log).unwrap());
    assert_eq!((back.known_missed(), back), (Some(39), latencies));
}

#[test]
fn a_heading_is_never_a_path() {
    for heading in ["../escaped", "/tmp/absolute", "a/b", "..", "-", "", "a b\u{e9}", "é", "a\0"] {
        let said = from_rtla(&format!("Index   {heading}\u{2028}\n1 2\n"));
        assert!(said.is_err(), "{heading:?}: {said:?}");
    }
    let long = "x".repeat(33);
    assert!(from_rtla(&format!("Index {long}\n1 2\n")).is_err());
    assert!(from_rtla("Index a a\n1 2 3\n").is_err(), "two columns of one name");
    assert_eq!(names(&from_rtla("Index Usr-003 CPU1\n1 2 3\n").unwrap()), ["Usr-003", "CPU1"]);
}

#[test]
fn a_count_of_any_size_takes_no_memory() {
    let text = "# Histogram\n000007 99999999999\n";
    let [column] = from_cyclictest(text, None).unwrap().try_into().unwrap();
    assert_eq!(column.latencies.instants(), 99_999_999_999);
    assert!(column.latencies.bytes() < 64 << 20);
    let of = |count: u64| from_rtla(&format!("Index a\n7 {count}\nover: {count}\n"));
    let half = i64::MAX as u64 / 2;
    assert_eq!(of(half).unwrap()[0].latencies.instants(), 2 * half);
    assert_eq!(of(u64::MAX).unwrap_err(), "a: more than 9223372036854775807 instants");
}

#[test]
fn what_was_exported_comes_back_as_it_went() {
    let mut with_overflow = Latencies::new(Digits::Imported);
    (0..134_000).step_by(7).for_each(|us| with_overflow.record_many(us * 1000, us % 13 + 1));
    let (instants, from_ns) = (12, 134_001_000);
    let beyond = Beyond { instants, from_ns, max_ns: Some(9_000_000_000), sum_ns: None };
    let all = [
        Latencies::of(VALUES),
        Latencies::of((0..9_999).map(|turn| turn * 7919 % 3_000_000)),
        Latencies::of([5, 2_000_000_000]),
        {
            with_overflow.exceed(beyond);
            with_overflow
        },
        {
            let mut only = Latencies::new(Digits::Imported);
            only.exceed(Beyond { max_ns: None, ..beyond });
            only
        },
    ];
    for latencies in &all {
        let rows = Rows::of(latencies, 1_000_000);
        let text = to_cyclictest(&rows);
        let [column] = from_cyclictest(&text, None).unwrap().try_into().unwrap();
        let again = to_cyclictest(&Rows::of(&column.latencies, 1_000_000));
        assert!(again == text, "{} and {} bytes", again.len(), text.len());
        assert_eq!(column.latencies.instants(), latencies.instants());
        let text = to_rtla(&rows, "Usr-003");
        let [column] = from_rtla(&text).unwrap().try_into().unwrap();
        let again = to_rtla(&Rows::of(&column.latencies, 1_000_000), "Usr-003");
        assert!(again == text, "{} and {} bytes", again.len(), text.len());
        let text = to_hdr(latencies);
        if latencies.exact().count > 0 {
            let back = hdr(&text);
            assert!(to_hdr(&back) == text);
            assert_eq!((back.min_ns(), back.max_ns()), (latencies.min_ns(), latencies.max_ns()));
            let beyond_ns = |one: &Latencies| one.beyond().map(|beyond| beyond.from_ns);
            assert_eq!(beyond_ns(&back), beyond_ns(latencies));
        }
    }
}

#[test]
fn the_percentile_text_counts_what_has_no_line() {
    let mut latencies = Latencies::new(Digits::Imported);
    latencies.record_many(5_000, 8);
    latencies.exceed(Beyond { instants: 2, from_ns: 6_000, max_ns: None, sum_ns: None });
    let text = to_hdr(&latencies);
    assert_eq!(text.matches("NaN").count(), 3, "mean, deviation and longest: {text}");
    let back = hdr(&text);
    assert_eq!((back.instants(), back.max_ns(), back.average_ns()), (10, None, None));
    assert_eq!(back.quantile(10), Quantile::AtLeast { ns: 6_000 });
}

#[test]
fn the_percentile_text_has_nanoseconds() {
    let text = to_hdr(&Latencies::of([700, 14_900, 14_900, 14_900]));
    let value = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let values: Vec<String> = text.lines().skip(2).take(2).filter_map(value).collect();
    assert_eq!(values, ["0.700", "14.900"], "the end of a bucket, or the longest");
    assert!(text.contains("#[Mean    =       11.350, StdDeviation   =        6.149]"), "{text}");
    assert!(text.contains("#[Max     =       14.900, Total count    =            4]"), "{text}");
}

#[test]
fn real_output_of_the_tools_is_read() {
    let columns = from_cyclictest(include_str!("../../tests/data/cyclictest.txt"), None).unwrap();
    let counts: Vec<u64> = columns.iter().map(|column| column.latencies.instants()).collect();
    assert_eq!(counts, [500, 462]);
    assert_eq!(columns[1].latencies.max_ns(), Some(10_804_000));
    assert_eq!(Summary::of(&columns[0].latencies).average_ns, Some(1_073_000.0));
    let text = include_str!("../../tests/data/rtla.txt");
    let columns = from_rtla(text).unwrap();
    assert_eq!(names(&columns), ["IRQ-003", "Thr-003", "Usr-003"]);
    for (column, max_us) in columns.iter().zip([9605, 9680, 9713]) {
        assert_eq!(column.latencies.instants(), 922, "{}", column.name);
        assert_eq!(column.latencies.max_ns(), Some(max_us * 1000), "{}", column.name);
        // Written again and read again nothing has changed.
        let rows = Rows::of(&column.latencies, 1_000_000);
        assert_eq!(from_rtla(&to_rtla(&rows, "Usr-003")).unwrap()[0].latencies, column.latencies);
    }
}

#[test]
fn a_file_without_its_end_is_partial() {
    let whole = include_str!("../../tests/data/cyclictest.txt");
    let partial = |columns: Vec<Column>| columns.into_iter().all(|one| one.partial.is_some());
    let before = |text: &str, word: &str| text[..text.find(word).unwrap()].to_owned();
    assert!(!partial(from_cyclictest(whole, None).unwrap()));
    let cut = before(whole, "# Histogram Overflows");
    assert!(partial(from_cyclictest(&cut, None).unwrap()));
    for begun in ["# Histogram Overflows: 00093\n", "# Histogram Overflows: 00093 001"] {
        assert!(partial(from_cyclictest(&format!("{cut}{begun}"), None).unwrap()), "{begun}");
    }
    let whole = include_str!("../../tests/data/rtla.txt");
    assert!(!partial(from_rtla(whole).unwrap()));
    assert!(partial(from_rtla(&before(whole, "max:")).unwrap()));
    let whole = to_hdr(&Latencies::of(VALUES));
    assert!(!partial(from_hdr(&whole, None).unwrap()));
    assert!(partial(from_hdr(&before(&whole, "#[Max"), None).unwrap()));
}

#[test]
fn last_lines_that_the_rows_contradict_are_refused() {
    let cyclictest = |end: &str| {
        let text = format!("000041 000050\n000042 000048\n000043 000000\n{end}");
        from_cyclictest(&text, None)
    };
    let overflows = |count: u64| format!("# Histogram Overflows: {count}\n");
    for (end, word) in [
        ("# Total: 99\n".to_owned(), "`Total` says 99"),
        ("# Max Latencies: 00041\n".to_owned() + &overflows(0), "its maximum 41"),
        ("# Max Latencies: 00043\n".to_owned() + &overflows(0), "its maximum 43"),
        ("# Max Latencies: 00041\n".to_owned() + &overflows(1), "its maximum 41"),
    ] {
        let said = cyclictest(&end);
        assert!(said.as_ref().is_err_and(|said| said.contains(word)), "{end}: {said:?}");
    }
    let fits = "# Total: 98\n# Max Latencies: 00900\n".to_owned() + &overflows(3);
    assert_eq!(cyclictest(&fits).unwrap()[0].latencies.instants(), 101);
    let rtla = |max: u64| from_rtla(&format!("Index a\n7 2\nmax: {max}\n"));
    assert!(rtla(6).unwrap_err().contains("`max:` says 6"));
    assert!(rtla(9).is_ok(), "a row may be wider than a unit");
    let hdr = |max: &str| {
        let head = "Value Percentile TotalCount 1/(1-Percentile)\n100.0 1.0 7\n";
        from_hdr(&format!("{head}#[Max = {max}, Total count = 7]\n"), None)
    };
    assert!(hdr("50.0").unwrap_err().contains("`Max` 50000 ns"));
    assert!(hdr("99.9").is_ok() && hdr("100.0").is_ok());
}

#[test]
fn garbage_names_its_line() {
    assert!(from_cyclictest("000001 x\n", None).unwrap_err().contains("line 1"));
    assert!(from_cyclictest("hello\n", None).unwrap_err().contains("hello"));
    assert!(from_cyclictest("1 2 3\n2 3\n", None).unwrap_err().contains("line 2"));
    assert!(from_cyclictest("2 3\n2 3\n", None).unwrap_err().contains("line 2"));
    assert!(from_cyclictest("7\n", None).is_err());
    assert!(from_rtla("hello\n").unwrap_err().contains("Index"));
    assert!(from_rtla("Index a\n7 1\n7 1\n").unwrap_err().contains("line 3"));
    assert!(from_rtla("Index a\n7 1\ncount: 2\n").unwrap_err().contains("1 samples"));
    assert!(from_hdr("1 2 3\n", None).unwrap_err().contains("line 1"));
    assert!(from_hdr("Value\n1.0 0.5 9\n1.0 0.5 3\n", None).unwrap_err().contains("line 3"));
}

fn run(dir: &str, experiment: Experiment, latencies: Latencies) -> Run {
    let provenance = Provenance { experiment, kind: Kind::Normal, ..provenance() };
    let times = Times::default();
    Run { dir: dir.into(), provenance, latencies, times, system_max_ns: None }
}

#[test]
fn prometheus_has_each_series_once_in_base_units() {
    let mut late = Latencies::of([10_000; 98]);
    late.record_late(3_000_000, 1_000_000);
    late.lose(4);
    let mut imported = Latencies::new(Digits::Imported);
    imported.exceed(Beyond { instants: 3, from_ns: 1, max_ns: None, sum_ns: None });
    let mut column = run("i/thread-0", Experiment::Latency, imported);
    column.provenance.column = Some("thread-0".into());
    column.provenance.source = Source::Import;
    let mut kernel = run("k/mixed-normal", Experiment::Latency, Latencies::of([7]));
    kernel.provenance.source = Source::TimerlatKernel;
    let runs = [
        run("a/mixed-normal", Experiment::Latency, late),
        run("b \"quoted\\\"\n", Experiment::Latency, Latencies::default()),
        run("c/mixed-normal", Experiment::Overhead, Latencies::of([7])),
        column,
        kernel,
    ];
    let text = to_prometheus(&runs.iter().map(Exported::of).collect::<Vec<_>>());
    let has = |line: &str| assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    let on = r#"kernel="7.2",cpu="3""#;
    let a = r#"run="a/mixed-normal",load="mixed",kind="normal",source="nanosleep""#;
    let a = format!("{a},{on}");
    has(&format!("asmp_latency_seconds{{{a},quantile=\"0.5\"}} 0.000010007"));
    has(&format!("asmp_latency_seconds{{{a},quantile=\"0.99\"}} 0.002000895"));
    has(&format!("asmp_latency_seconds_count{{{a}}} 101"));
    has(&format!("asmp_latency_max_seconds{{{a}}} 0.003000000"));
    has(&format!("asmp_latency_missed_total{{{a}}} 2"));
    has(&format!("asmp_latency_lost_total{{{a}}} 4"));
    has("# TYPE asmp_overhead_seconds summary");
    assert!(text.contains(r#"run="b \"quoted\\\"\n","#), "{text}");
    assert!(text.contains(r#"column="thread-0"} 3"#), "{text}");
    assert!(!text.contains(r#"missed_total{run="i/thread-0""#), "it is not known: {text}");
    assert!(text.contains(r#"source="timerlat-kernel",kernel="7.2",cpu="3"} 1"#), "{text}");
    // What promtool refuses or warns of: series twice, families apart, suffixes, words without
    // their HELP and TYPE.
    let mut series: Vec<&str> = Vec::new();
    let mut families: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(!families.contains(&name), "{name} twice");
            families.push(name);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(name.ends_with("_total") || name.ends_with("_seconds"), "{name}");
        } else if !line.starts_with('#') {
            let name = line.rsplit_once(' ').unwrap().0;
            assert!(!series.contains(&name), "{name} twice");
            let metric = name.split('{').next().unwrap();
            let metric = metric.trim_end_matches("_sum").trim_end_matches("_count");
            assert_eq!(families.last(), Some(&metric), "{line}");
            series.push(name);
        }
    }
    assert_eq!(text.matches("# HELP ").count(), families.len());
    assert!(series.len() > 12, "{text}");
}

#[test]
fn csv_names_the_run_and_has_every_column() {
    let mut run = run("a,b \"c\"", Experiment::Latency, Latencies::default());
    run.provenance.kind = Kind::PartitionTick;
    let counts = Counts { ticks: 1, page_faults: 6, ..Counts::default() };
    let sample = Sample {
        due_ns: 1,
        value_ns: 2,
        handler_ns: Some(3),
        thread_ns: Some(4),
        system_ns: 5,
        counts: Some(counts),
    };
    let line = csv_line(&run, &sample);
    let expected =
        "\"a,b \"\"c\"\"\",latency,mixed,partition-tick,nanosleep,1,2,3,4,5,1,0,0,0,0,6\n";
    assert_eq!(line, expected);
    run.dir = "a".into();
    run.provenance.source = Source::TimerlatKernel;
    assert!(csv_line(&run, &sample).starts_with("a,latency,mixed,partition-tick,timerlat-kernel,"));
    run.provenance.source = Source::Nanosleep;
    let columns = |line: &str| line.matches(',').count();
    let empty = csv_line(&run, &Sample::default());
    assert_eq!(empty, "a,latency,mixed,partition-tick,nanosleep,0,0,,,0,,,,,,\n");
    assert_eq!(columns(&empty), columns(csv_heading()));
}
