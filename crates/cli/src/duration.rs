// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Durations on the command line.

use asmp_duration::{DurationError, ExactDuration};
use std::time::Duration;

/// A duration with its unit: `500us`, `1.5 ms`, `64/48000 s`, `1kHz`.
pub fn exact(text: &str) -> Result<ExactDuration, String> {
    text.parse().map_err(|error: DurationError| error.to_string())
}

/// A duration above 0, in whole nanoseconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = Duration::try_from(exact(text)?).map_err(|refused| refused.to_string())?;
    if duration.is_zero() { Err("the duration must be above 0".to_owned()) } else { Ok(duration) }
}

/// A duration of 1 s to 24 h.
pub fn counting_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let is_allowed = (1..=86_400).contains(&time.as_secs()) && time.as_secs_f64() <= 86_400.0;
    if is_allowed { Ok(time) } else { Err("the time must be between 1 s and 24 h".to_owned()) }
}
