//! Durations with their unit written: `"500 ms"`, `"20us"`, `"1.5 s"`; only 0 needs none. Fractions are exact or refused:
//! `"0.5 ns"` is no time.

use std::fmt::Write;

/// Units from the longest to the shortest, in nanoseconds.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("{text:?} is no duration: write 500 ms, 20us or 1.5 s")]
    Malformed { text: String },
    #[error("{text:?} has no unit of time: h, min, s, ms, us or ns")]
    Unit { text: String },
    #[error("{text:?} is no whole number of nanoseconds")]
    Fraction { text: String },
    #[error("{text:?} is longer than 584 years")]
    TooLong { text: String },
}

/// Nanoseconds of a text.
pub fn parse_ns(text: &str) -> Result<u64, DurationError> {
    let shown = || text.chars().take(40).collect::<String>();
    let malformed = || DurationError::Malformed { text: shown() };
    let too_long = || DurationError::TooLong { text: shown() };
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    if number.is_empty() {
        return Err(malformed());
    }
    let unit_ns = match unit.trim() {
        // 5 of what? Whoever writes no unit means milliseconds as often as not.
        "" if number == "0" => 1,
        "µs" => 1_000,
        name => UNITS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, ns)| *ns)
            .ok_or_else(|| DurationError::Unit { text: shown() })?,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(malformed());
    }
    let whole: u64 = whole.parse().map_err(|_| too_long())?;
    let mut ns = whole.checked_mul(unit_ns).ok_or_else(too_long)?;
    let mut place_ns = unit_ns;
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        if digit > 0 && place_ns % 10 != 0 {
            return Err(DurationError::Fraction { text: shown() });
        }
        place_ns /= 10;
        ns = ns.checked_add(digit * place_ns).ok_or_else(too_long)?;
    }
    Ok(ns)
}

/// For people: the longest unit up to seconds that needs at most six decimals. Exact.
pub fn show_ns(ns: u64) -> String {
    for (name, unit_ns) in UNITS.iter().filter(|(name, _)| *name != "h" && *name != "min") {
        // What a sixth decimal stands for.
        let least_ns = unit_ns.div_ceil(1_000_000);
        if ns >= *unit_ns && ns.is_multiple_of(least_ns) {
            let mut text = (ns / unit_ns).to_string();
            let rest_ns = ns % unit_ns;
            if rest_ns > 0 {
                let digits = (unit_ns / least_ns).ilog10() as usize;
                let decimals = format!("{:0digits$}", rest_ns / least_ns);
                // Writing to a String does not fail.
                let _ = write!(text, ".{}", decimals.trim_end_matches('0'));
            }
            return format!("{text} {name}");
        }
    }
    format!("{ns} ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_with_its_unit_and_exactly() {
        for (text, ns) in [
            ("500 ms", 500_000_000),
            ("20us", 20_000),
            ("20 µs", 20_000),
            ("1.5 s", 1_500_000_000),
            ("0.25us", 250),
            ("7 ns", 7),
            ("0", 0),
            (" 2 min ", 120_000_000_000),
            ("271.666666 ms", 271_666_666),
            ("18446744073709551615 ns", u64::MAX),
        ] {
            assert_eq!(parse_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        use DurationError::*;
        let text = |text: &str| text.to_owned();
        assert_eq!(parse_ns(""), Err(Malformed { text: text("") }));
        assert_eq!(parse_ns(". s"), Err(Malformed { text: text(". s") }));
        assert_eq!(parse_ns("1..2 s"), Err(Malformed { text: text("1..2 s") }));
        assert_eq!(parse_ns("5 parsec"), Err(Unit { text: text("5 parsec") }));
        assert_eq!(parse_ns("-5 ms"), Err(Malformed { text: text("-5 ms") }));
        assert_eq!(parse_ns("5"), Err(Unit { text: text("5") }), "a bare number is no time");
        assert_eq!(parse_ns("0.5 ns"), Err(Fraction { text: text("0.5 ns") }));
        assert_eq!(parse_ns("1.0001 us"), Err(Fraction { text: text("1.0001 us") }));
        assert_eq!(
            parse_ns("18446744073709551616 ns"),
            Err(TooLong { text: text("18446744073709551616 ns") })
        );
        assert_eq!(parse_ns("9999999 h"), Err(TooLong { text: text("9999999 h") }));
    }

    #[test]
    fn a_shown_duration_reads_back_as_itself() {
        for ns in [0, 1, 999, 1000, 1500, 20_000_000, 271_666_666, 1_200_000_000, 3_600_000_000_000, u64::MAX]
        {
            assert_eq!(parse_ns(&show_ns(ns)), Ok(ns), "{}", show_ns(ns));
        }
        assert_eq!(show_ns(1_200_000_000), "1.2 s");
        assert_eq!(show_ns(500_000_000), "500 ms");
        assert_eq!(show_ns(1_234_567), "1.234567 ms");
        assert_eq!(show_ns(239_999_999), "239.999999 ms");
        assert_eq!(show_ns(1_289_817_166), "1289.817166 ms");
        assert_eq!(show_ns(1_289_817_000), "1.289817 s");
        assert_eq!(show_ns(1_050), "1.05 us");
    }
}
