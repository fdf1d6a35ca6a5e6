// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What another tool rounds: a count above a limit, and a percentile, say no more than its file.

use super::*;
use crate::histogram::{Above, Quantile, Rounding};
use crate::hlog;
use crate::run::tests::provenance;
use crate::run::{Kind, Provenance, Times};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use std::time::{Duration, UNIX_EPOCH};

const US: u64 = 1000;

fn one(columns: Result<Vec<Column>, String>) -> Latencies {
    let [column] = columns.unwrap().try_into().unwrap();
    column.latencies
}

fn above(latencies: &Latencies, limit_ns: u64) -> (u64, u64) {
    let Above { at_least, at_most } = latencies.above(limit_ns);
    (at_least, at_most)
}

/// The same after it was written and read back.
fn kept(latencies: &Latencies) -> Latencies {
    let mut log = hlog::Writer::new(Vec::new(), UNIX_EPOCH).unwrap();
    log.second(0, None, latencies).unwrap();
    log.exact(None, latencies).unwrap();
    let log = log.finish().unwrap();
    let whole = hlog::whole(std::io::Cursor::new(&log)).unwrap().unwrap().remove(&None);
    let read = hlog::read(log.as_slice(), |_| ()).unwrap().remove(&None);
    assert_eq!(whole, read);
    read.unwrap()
}

#[test]
fn an_instant_of_a_row_is_on_either_side_of_a_limit_within_that_microsecond() {
    let text = "000019 000998\n000020 000002\n# Min Latencies: 00019\n# Avg Latencies: 00019\n\
                # Max Latencies: 00020\n# Histogram Overflows: 00000\n";
    let latencies = kept(&one(from_cyclictest(text, None)));
    for (limit_ns, expected) in [
        (18_999, (1000, 1000)),
        (19_000, (2, 1000)),
        (19_500, (2, 1000)),
        (19_998, (2, 1000)),
        (19_999, (2, 2)),
        (20_000, (0, 2)),
        (20_998, (0, 2)),
        (20_999, (0, 0)),
    ] {
        assert_eq!(above(&latencies, limit_ns), expected, "{limit_ns}");
    }
    // With -N a row is a nanosecond, and nothing is cut.
    let latencies = kept(&one(from_cyclictest(text, Some(1))));
    assert_eq!([18, 19, 20].map(|ns| above(&latencies, ns)), [(1000, 1000), (2, 2), (0, 0)]);
}

#[test]
fn an_overflow_is_above_a_limit_in_the_microsecond_of_its_longest() {
    let text = "000019 000098\n# Max Latencies: 00400\n# Histogram Overflows: 00002\n";
    let latencies = one(from_cyclictest(text, None));
    let limits = [399 * US, 400 * US, 400 * US + 998, 400 * US + 999];
    assert_eq!(limits.map(|ns| above(&latencies, ns)), [(1, 2), (0, 2), (0, 2), (0, 0)]);
}

#[test]
fn percentiles_of_whole_units_are_whole_units() {
    let mut text = String::new();
    for us in 1..=1000u64 {
        text += &format!("{:06} 000001\n", us * 331);
    }
    let latencies = kept(&one(from_cyclictest(&text, None)));
    assert_eq!(latencies.rounding(), Rounding { spread_ns: 0, cut_ns: 999 });
    for (one_in, rank) in [(2, 500), (10, 900), (100, 990), (1000, 999)] {
        let Quantile::At { ns } = latencies.quantile(one_in) else { panic!("a value") };
        let true_ns = rank * 331 * US;
        // Above 134 ms a bucket has room for two.
        let room_ns = if true_ns < 134_000 * US { 0 } else { true_ns / 131_072 };
        assert!((true_ns..=true_ns + room_ns).contains(&ns), "{ns}, not {true_ns}");
        assert_eq!(ns % US, 0);
    }
}

/// A log of another program's, with so many significant digits.
fn log_of(digits: u8, low: u64, values: &[u64]) -> String {
    let mut counts = Histogram::<u64>::new_with_bounds(low, 3_600_000_000, digits).unwrap();
    values.iter().for_each(|value| counts.record(*value).unwrap());
    let (mut text, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let mut log = IntervalLogWriterBuilder::new().begin_log_with(&mut text, &mut serializer);
    let log = log.as_mut().unwrap();
    for second in 0..2 {
        let length = Duration::from_secs(1);
        log.write_histogram(&counts, Duration::from_secs(second), length, None).unwrap();
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn a_log_of_few_digits_keeps_its_buckets_and_has_the_figures_that_its_own_reader_gives() {
    let values: Vec<u64> = (0..1500).map(|turn| 4_960 + turn * 7919 % 45_000).collect();
    for (digits, low) in [(1, 1), (2, 1), (4, 1), (2, 1_000), (5, 7)] {
        let mut theirs = Histogram::<u64>::new_with_bounds(low, 3_600_000_000, digits).unwrap();
        values.iter().for_each(|value| theirs.record_n(*value, 2).unwrap());
        let text = log_of(digits, low, &values);
        let latencies = kept(&one(from_hdr(&text, None)));
        assert_eq!(latencies.min_ns(), Some(theirs.min()), "{digits}");
        assert_eq!(latencies.max_ns(), Some(theirs.max()), "{digits}");
        let average = latencies.average_ns().unwrap();
        assert!((average / theirs.mean() - 1.0).abs() < 1e-9, "{average}, not {}", theirs.mean());
        let Quantile::At { ns } = latencies.quantile(100) else { panic!("a value") };
        assert_eq!(ns, theirs.value_at_quantile(0.99));
        for limit_ns in [3_000, 5_000, 5_100, 20_000, 49_000, 60_000] {
            let true_above = 2 * values.iter().filter(|value| **value > limit_ns).count() as u64;
            let (least, most) = above(&latencies, limit_ns);
            assert!((least..=most).contains(&true_above), "{digits}, {limit_ns}: {least}..{most}");
        }
        // In another unit the same figures a thousand times.
        let in_us = kept(&one(from_hdr(&text, Some(US))));
        assert_eq!(in_us.min_ns(), Some(theirs.min() * US));
        assert_eq!(in_us.max_ns(), Some(theirs.max() * US));
        let average = in_us.average_ns().unwrap() / 1e3;
        assert!((average / theirs.mean() - 1.0).abs() < 1e-9, "{average}, not {}", theirs.mean());
        let (least, most) = above(&in_us, 20_000 * US);
        let true_above = 2 * values.iter().filter(|value| **value > 20_000).count() as u64;
        assert!((least..=most).contains(&true_above), "{digits}: {least}..{most}");
    }
}

#[test]
fn a_log_whose_lines_have_different_digits_is_refused() {
    let [two, three] = [2, 3].map(|digits| log_of(digits, 1, &[5_000]));
    let last = three.lines().last().unwrap();
    let refused = from_hdr(&format!("{two}{last}\n"), None).unwrap_err();
    assert!(refused.contains("other digits than those before"), "{refused}");
}

#[test]
fn the_count_of_hdrhistogram_for_python_has_decimals() {
    let text = "Value Percentile TotalCount 1/(1-Percentile)\n\n10.0 0.5 5 2.00\n20.0 1.0 10\n\
                #[Mean    =       15.000, StdDeviation   =        5.000]\n\
                #[Max     =       20.000, TotalCount     =       10.000]\n";
    assert_eq!(one(from_hdr(text, None)).instants(), 10);
    let refused = from_hdr(&text.replace("10.000]", "10.500]"), None).unwrap_err();
    assert!(refused.contains("TotalCount"), "{refused}");
}

#[test]
fn an_export_says_why_it_is_partial_and_that_missed_instants_count_and_is_read_again() {
    let latencies = Latencies::of([5_000, 7_000, 9_000]);
    let run = |partial: Option<&str>| Run {
        dir: "d".into(),
        provenance: Provenance {
            kind: Kind::Fifo,
            partial: partial.map(str::to_owned),
            ..provenance()
        },
        latencies: latencies.clone(),
        times: Times::default(),
        system_max_ns: None,
    };
    let rows = Rows::of(&latencies, 1_000_000);
    for (format, text) in [
        (Format::Cyclictest, to_cyclictest(&rows)),
        (Format::Rtla, to_rtla(&rows, "Usr-003")),
        (Format::Hdr, to_hdr(&latencies)),
    ] {
        let whole = noted(text.clone(), format, &run(None));
        assert!(whole.contains("the missed ones included"), "{whole}");
        assert_eq!(partial(&whole), None);
        let cut = noted(text, format, &run(Some("interrupted\nat once")));
        assert_eq!(partial(&cut).as_deref(), Some("interrupted at once"), "{cut}");
        let back = one(match format {
            Format::Cyclictest => from_cyclictest(&cut, None),
            Format::Rtla => from_rtla(&cut, None),
            _ => from_hdr(&cut, None),
        });
        assert_eq!(back.instants(), 3, "{cut}");
    }
}
