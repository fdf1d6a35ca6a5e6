// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted, and what is not invented.

use super::*;

#[test]
fn a_stall_of_40_ms_at_1_ms_has_39_missed_instants_and_their_latencies_count() {
    let mut latencies = Latencies::default();
    for _ in 0..960 {
        latencies.record_late(10_000, 1_000_000);
    }
    latencies.record_late(40_000_000, 1_000_000);
    assert_eq!((latencies.instants(), latencies.samples()), (1000, 961));
    assert_eq!((latencies.missed(), latencies.max_ns()), (39, Some(40_000_000)));
    // Ten instants of a thousand waited longer than 30 ms.
    let Quantile::At { ns } = latencies.quantile(100) else { panic!() };
    assert!((30_000_000..=30_029_297).contains(&ns), "{ns}");
    assert_eq!(latencies.of_samples().quantile(100), Quantile::At { ns: 10_007 });
    // The last one waited for exactly a millisecond: its bucket reaches above that.
    assert_eq!(latencies.above(1_000_000), Above { at_least: 39, at_most: 40 });
    assert_eq!(latencies.above(500_000), Above { at_least: 40, at_most: 40 });
}

#[test]
fn the_longest_instant_is_above_what_lies_below_it_in_its_bucket() {
    let latencies = Latencies::of([99_990, 100_010, 5]);
    assert_eq!(latencies.above(100_000), Above { at_least: 1, at_most: 2 });
    assert_eq!(latencies.above(100_010), Above { at_least: 0, at_most: 0 });
}

#[test]
fn a_percentile_is_not_invented() {
    let latencies = Latencies::of(1..=1000);
    let of = |one_in| latencies.quantile(one_in);
    assert_eq!((of(2), of(100)), (Quantile::At { ns: 500 }, Quantile::At { ns: 990 }));
    assert_eq!((of(1000), of(1001)), (Quantile::At { ns: 999 }, Quantile::Unsupported));
    assert_eq!(Latencies::default().quantile(2), Quantile::Unsupported);
    assert_eq!(Latencies::of([7]).quantile(2), Quantile::Unsupported);
}

#[test]
fn what_lies_beyond_the_last_bucket_counts_and_has_no_invented_value() {
    let mut latencies = Latencies::new(Digits::Imported);
    latencies.record_many(42_000, 98);
    latencies.exceed(Beyond {
        instants: 2,
        from_ns: 400_000,
        max_ns: Some(8_974_000),
        sum_ns: None,
    });
    assert_eq!((latencies.instants(), latencies.max_ns()), (100, Some(8_974_000)));
    assert_eq!(latencies.quantile(2), Quantile::At { ns: 42_000 });
    assert_eq!(latencies.quantile(100), Quantile::AtLeast { ns: 400_000 });
    assert_eq!(latencies.above(100_000), Above { at_least: 2, at_most: 2 });
    assert_eq!(latencies.above(1_000_000), Above { at_least: 1, at_most: 2 });
    assert_eq!(latencies.above(9_000_000), Above { at_least: 0, at_most: 0 });
}

#[test]
fn a_hundred_thousand_million_instants_of_any_length_take_little_memory() {
    let mut latencies = Latencies::new(Digits::Imported);
    for bits in 0..37 {
        latencies.record_many((1 << bits) - 1, 2_700_000_000);
    }
    // And a stall of an hour over a period of a microsecond, in no time.
    latencies.record_late(3_600_000_000_000, 1_000);
    assert_eq!(latencies.missed(), 3_599_999_999);
    assert!(latencies.instants() > 100_000_000_000);
    assert!(latencies.bytes() < 64 << 20, "{} MiB", latencies.bytes() >> 20);
    let Quantile::At { ns } = latencies.quantile(1_000_000) else { panic!() };
    assert!((3_596_000_000_000..3_600_000_000_000).contains(&ns), "{ns}");
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let mut latencies = Latencies::of([0, u64::MAX]);
    latencies.record_late(u64::MAX, u64::MAX / 2);
    latencies.record_late(5, 0);
    latencies.record_late(u64::MAX, 1 << 58);
    assert_eq!((latencies.instants(), latencies.missed()), (70, 65));
    assert_eq!((latencies.min_ns(), latencies.max_ns()), (Some(0), Some(u64::MAX)));
    assert!(latencies.exact().deviation_ns().unwrap().is_finite());
    assert_eq!(latencies.above(u64::MAX), Above { at_least: 0, at_most: 0 });
}

#[test]
fn parts_that_are_merged_are_the_whole() {
    let (mut whole, mut parts) = (Latencies::default(), Latencies::default());
    for part in 0..10u64 {
        let mut one = Latencies::default();
        for turn in 0..100 {
            let latency_ns = (part * 100 + turn) * 7919 % 5_000;
            whole.record_late(latency_ns, 1000);
            one.record_late(latency_ns, 1000);
        }
        one.lose(part);
        parts.merge(&one);
    }
    whole.lose(45);
    assert_eq!(parts, whole);
}
