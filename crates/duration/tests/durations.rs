// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is read, what is refused with which cure, and that the arithmetic is exact.

use asmp_duration::{DurationError, ExactDuration, NotWhole};
use std::time::Duration;

fn read(text: &str) -> Result<ExactDuration, DurationError> {
    text.parse()
}

fn fraction(numerator: u128, denominator: u128) -> ExactDuration {
    ExactDuration::fraction_ns(numerator, denominator).unwrap()
}

#[test]
fn a_duration_is_read_with_its_unit_and_exactly() {
    for (text, ns) in [
        ("500 ms", 500_000_000),
        ("20us", 20_000),
        ("20 \u{b5}s", 20_000),
        ("20\u{3bc}s", 20_000),
        ("1.5 s", 1_500_000_000),
        ("0.25us", 250),
        ("7 ns", 7),
        ("0", 0),
        ("0.0", 0),
        ("0 h", 0),
        (" 2 min ", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("271.666666 ms", 271_666_666),
        ("18446744073709551615 ns", u64::MAX),
        ("00000000000000000000000000000000000000000000000007 ns", 7),
        ("1.50000000000000000000000000000000000000000000000000 us", 1_500),
        ("1kHz", 1_000_000),
        ("400 Hz", 2_500_000),
        ("0.5 Hz", 2_000_000_000),
        ("1 GHz", 1),
        ("64/32 ms", 2_000_000),
        ("0/7 s", 0),
    ] {
        assert_eq!(read(text), Ok(ExactDuration::from_ns(ns)), "{text}");
    }
    for (text, numerator, denominator) in [
        ("64/48000 s", 4_000_000, 3),
        ("1/3 ms", 1_000_000, 3),
        ("44.1 kHz", 10_000_000, 441),
        ("44100Hz", 10_000_000, 441),
        ("3 GHz", 1, 3),
        ("0.5 ns", 1, 2),
        ("1.0001 us", 10_001, 10),
    ] {
        let read = read(text).unwrap();
        assert_eq!((read.numerator_ns(), read.denominator()), (numerator, denominator), "{text}");
    }
}

#[test]
fn a_number_that_is_long_as_written_and_short_in_fact_is_read() {
    let ten_38 = format!("1{}", "0".repeat(38));
    for (text, numerator, denominator) in [
        (format!("{ten_38}/{ten_38} s"), 1_000_000_000, 1),
        (format!("{ten_38}/2{} h", "0".repeat(37)), 18_000_000_000_000, 1),
        (
            "340282366920938463463374607431768211455/340282366920938463463374607431768211455 ms"
                .into(),
            1_000_000,
            1,
        ),
        (format!("0.{}5 h", "0".repeat(24)), 9, 5_000_000_000_000),
        ("1000000000 Hz".into(), 1, 1),
    ] {
        assert_eq!(read(&text), Ok(fraction(numerator, denominator)), "{text}");
    }
}

#[test]
fn a_wrong_text_is_refused_with_the_cure() {
    for (text, cure) in [
        ("", "invalid duration \"\": expected e.g. 500us, 1.5 ms, 64/48000 s or 1kHz"),
        ("ms", "invalid duration"),
        (". s", "invalid duration"),
        ("1. s", "invalid duration"),
        (".5 s", "invalid duration"),
        ("1..2 s", "invalid duration"),
        ("-5 ms", "invalid duration"),
        ("+5 ms", "invalid duration"),
        ("1/2/3 s", "invalid duration"),
        ("1.5/3 s", "invalid duration"),
        ("/3 s", "invalid duration"),
        ("3/ s", "invalid duration"),
        ("5", "duration \"5\" has no unit: write 5ns, 5us, 5ms or 5s"),
        ("1/3", "has no unit"),
        ("0/3", "has no unit"),
        ("5 parsec", "unknown unit \"parsec\"; use ns, us, ms, s, min, h, Hz, kHz, MHz or GHz"),
        ("5 MS", "duration \"5 MS\": no unit has this name: write 5 ms"),
        ("10 Msec", "write 10 ms"),
        ("10m", "duration \"10m\": m may be minutes or milliseconds: write 10 min or 10 ms"),
        ("3 seconds", "write 3 s"),
        ("10 \u{3bc}", "write 10 us"),
        ("10 \u{39c}S", "write 10 us"),
        ("5 KHZ", "write 5 kHz"),
        ("5 mHz", "unknown unit \"mHz\""),
        ("1e3 ms", "duration \"1e3 ms\": an exponent is not read: write 1000 ms"),
        ("2E-3 s", "write 2/1000 s"),
        ("1e99 s", "unknown unit"),
        (
            "1,5 ms",
            "duration \"1,5 ms\": decimals follow a point, and a number has no other separator: \
             write 1.5 ms",
        ),
        ("1,5 MS", "write 1.5 ms"),
        ("1.000,5 ms", "unknown unit"),
        ("1,5", "unknown unit"),
        ("5 ms 3 us", "unknown unit"),
        ("1/0 s", "divides by zero"),
        ("0 Hz", "divides by zero"),
        ("64/48 kHz", "a fraction needs a unit of time, e.g. 64/48000 s, not a rate"),
        ("18446744073709551616 ns", "longer than 584 years"),
        ("9999999 h", "longer than 584 years"),
        ("99999999999999999999999999999999999999999999 s", "longer than 584 years"),
        ("0.00000000001 Hz", "longer than 584 years"),
        ("1/18446744073709551617 ns", "too fine to be exact: use fewer digits"),
        ("0.1234567890123456789012345678901234567890123 s", "too fine"),
        ("99999999999999999999999999999999999999999999 Hz", "too fine"),
    ] {
        let refused = read(text).expect_err(text).to_string();
        assert!(refused.contains(cure), "{text}: {refused}");
    }
    for text in ["5 MS", "10 Msec", "3 seconds", "5 KHZ", "1e3 ms", "2E-3 s", "1,5 MS"] {
        let refused = read(text).unwrap_err().to_string();
        let (_, cure) = refused.rsplit_once("write ").unwrap();
        read(cure).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let long = "9".repeat(10_000);
    assert!(read(&long).unwrap_err().to_string().len() < 300, "shown in part");
}

#[test]
fn whole_nanoseconds_are_given_or_the_nearest_named() {
    assert_eq!(read("1.5 us").unwrap().whole_ns(), Ok(1_500));
    let period = read("64/48000 s").unwrap();
    let (below_ns, above_ns) = (1_333_333, 1_333_334);
    let refused = NotWhole { duration: period, below_ns, above_ns };
    assert_eq!(period.whole_ns(), Err(refused.clone()));
    assert_eq!(
        refused.to_string(),
        "4/3 ms is not a whole number of nanoseconds: use 1333333 ns or 1333334 ns"
    );
    assert_eq!(Duration::try_from(ExactDuration::from_ns(3)), Ok(Duration::from_nanos(3)));
    assert!(Duration::try_from(period).is_err());
    assert_eq!(fraction(u128::from(u64::MAX), 2).whole_ns().unwrap_err().above_ns, 1 << 63);
}

#[test]
fn people_see_short_fractions_exactly_and_long_ones_marked_as_rounded() {
    for (text, exact, rounded) in [
        ("1200 ms", "1.2 s", "1.2 s"),
        ("0", "0 ns", "0 ns"),
        ("1234567 ns", "1.234567 ms", "1.234567 ms"),
        ("239999999 ns", "239.999999 ms", "239.999999 ms"),
        ("1289817166 ns", "1289.817166 ms", "1289.817166 ms"),
        ("1289817 us", "1.289817 s", "1.289817 s"),
        ("1050 ns", "1.05 us", "1.05 us"),
        ("64/48000 s", "4/3 ms", "4/3 ms"),
        ("44.1 kHz", "10/441 ms", "10/441 ms"),
        ("1234567/3 ns", "1234567/3 ns", "~411.522333 us"),
        ("1999999/2000001 ns", "1999999/2000001 ns", "~0.999999 ns"),
    ] {
        let read = read(text).unwrap();
        assert_eq!(
            (read.to_string().as_str(), read.rounded().as_str()),
            (exact, rounded),
            "{text}"
        );
    }
}

#[test]
fn small_fractions_agree_with_whole_number_arithmetic() {
    for above in 0..60u128 {
        for below in 1..60u128 {
            let value = fraction(above, below);
            let (n, d) = (u128::from(value.numerator_ns()), u128::from(value.denominator()));
            assert_eq!(n * below, above * d, "the same value");
            assert!((2..=60).all(|by| n % by != 0 || d % by != 0), "reduced: {n}/{d}");
            let down = u64::try_from(above / below).unwrap();
            match value.whole_ns() {
                Ok(whole) => assert!(whole == down && above % below == 0),
                Err(refused) => {
                    assert_eq!((refused.below_ns, refused.above_ns), (down, down + 1));
                    assert_ne!(above % below, 0);
                }
            }
            for parts in [1, 2, 3, 12, 60] {
                let exact = (above * parts) % below == 0;
                let wanted = exact.then(|| u64::try_from(above * parts / below).unwrap());
                assert_eq!(value.in_parts(u64::try_from(parts).unwrap()), wanted);
            }
            for (other_above, other_below) in [(0, 1), (1, 3), (7, 5), (30, 30), (59, 2)] {
                let other = fraction(other_above, other_below);
                assert_eq!(value.cmp(&other), (above * other_below).cmp(&(other_above * below)));
            }
        }
    }
    assert_eq!(ExactDuration::fraction_ns(1, 0), None);
    assert_eq!(ExactDuration::fraction_ns(0, 0), None);
    assert_eq!(fraction(0, 9), ExactDuration::ZERO);
    assert_eq!(ExactDuration::fraction_ns(1 << 70, 3), None);
}

#[test]
fn a_printed_duration_reads_back_as_itself() {
    // SplitMix64.
    let mut state = 11u64;
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for round in 0..200_000 {
        let numerator = random() >> (random() % 64);
        let denominator = if round % 3 == 0 { 1 } else { (random() >> (random() % 64)).max(1) };
        let value = fraction(u128::from(numerator), u128::from(denominator));
        assert_eq!(read(&value.to_string()), Ok(value), "{value}");
        let near = value.rounded();
        let near = read(near.trim_start_matches('~')).unwrap_or(value);
        let apart = |of: ExactDuration| of.numerator_ns() as f64 / of.denominator() as f64;
        let (near, value) = (apart(near), apart(value));
        assert!((near - value).abs() <= 1e-6 * value + 1e-6, "{near} {value}");
    }
}
