// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Durations on the command line.

use asmp_duration::{DurationError, ExactDuration};
use std::time::Duration;

/// A duration with its unit: `500us`, `1.5 ms`, `64/48000 s`, `1kHz`.
pub fn exact(text: &str) -> Result<ExactDuration, String> {
    text.parse().map_err(|error: DurationError| error.to_string())
}

/// A duration above 0, in whole nanoseconds; a rate stands for its period.
pub fn duration(text: &str) -> Result<Duration, String> {
    let none = || Err("the duration must be above 0".to_owned());
    if text.trim_start().starts_with('-') {
        return none();
    }
    let duration = Duration::try_from(exact(text)?).map_err(|refused| refused.to_string())?;
    if duration.is_zero() { none() } else { Ok(duration) }
}

/// The same of what has no rate, such as a limit.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    match text.trim_end().ends_with("Hz") {
        true => Err(format!("{text:?} is a rate: write the time, which is {}", exact(text)?)),
        false => Ok(time),
    }
}

/// Between two wake-ups: at most 24 h, so that the instants of a run are within the clock's range.
pub fn period(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        period if period <= DAY => Ok(period),
        _ => Err("a period must be at most 24 h".to_owned()),
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// The time of a run, of which `m` are minutes: no one measures for milliseconds by mistake.
pub fn run_time(text: &str) -> Result<Duration, String> {
    let number = text.trim().strip_suffix('m').map(str::trim_end);
    match number.filter(|number| number.ends_with(|last: char| last.is_ascii_digit())) {
        Some(number) => duration(&format!("{number} min")),
        None => time(text),
    }
}

/// A duration of 1 s to 24 h.
pub fn counting_time(text: &str) -> Result<Duration, String> {
    text.parse::<ExactDuration>().map_err(|error| error.of_seconds())?;
    let time = time(text)?;
    let is_allowed = (1..=86_400).contains(&time.as_secs()) && time.as_secs_f64() <= 86_400.0;
    if is_allowed { Ok(time) } else { Err("the time must be between 1 s and 24 h".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_at_most_a_day() {
        assert_eq!(period("24h"), Ok(DAY));
        for text in ["86400.000000001 s", "18446744073709551615ns"] {
            assert_eq!(period(text).unwrap_err(), "a period must be at most 24 h", "{text}");
        }
        assert!(period("0ms").is_err());
    }

    #[test]
    fn a_run_takes_minutes_by_one_letter_too() {
        for text in ["10m", "10 m", " 10min ", "600s"] {
            assert_eq!(run_time(text), Ok(Duration::from_secs(600)), "{text}");
        }
        assert_eq!(run_time("10ms"), Ok(Duration::from_millis(10)));
        assert!(run_time("m").is_err() && run_time("0m").is_err() && run_time("1um").is_err());
        let refused = duration("10m").unwrap_err();
        assert!(refused.ends_with("write 10 min or 10 ms"), "a slip of the pen: {refused}");
    }

    #[test]
    fn a_counting_time_is_1_s_or_more_and_so_is_what_is_proposed() {
        let refused = counting_time("5").unwrap_err();
        assert_eq!(refused, "duration \"5\" has no unit: write 5s");
        assert_eq!(counting_time("5s"), Ok(Duration::from_secs(5)));
        assert!(counting_time("5ms").is_err());
    }

    #[test]
    fn a_limit_is_a_time_above_0_and_no_rate() {
        assert_eq!(time("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(duration("1kHz"), Ok(Duration::from_millis(1)), "a period");
        let rate = "\"1kHz\" is a rate: write the time, which is 1 ms";
        for refused in [time("1kHz"), run_time("1kHz")] {
            assert_eq!(refused.unwrap_err(), rate);
        }
        for text in ["-5us", " -5us", "0", "0s"] {
            assert_eq!(time(text), Err("the duration must be above 0".to_owned()), "{text}");
        }
    }
}
