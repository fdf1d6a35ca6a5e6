// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long the collector sleeps between two looks at the probe's ring. Pure.
//!
//! Each look evicts cache lines of the measured program, so there should be few. But a short run of
//! timerlat must not end late. In an interrupt storm the kernel's event buffer must not overflow,
//! and with a fast probe the ring must not.

use crate::probe::RING;
use std::time::Duration;

/// At first.
pub const SHORTEST: Duration = Duration::from_millis(10);
/// Where events are recorded, or samples come fast.
const OFTEN: Duration = Duration::from_millis(50);
/// Elsewhere.
const SELDOM: Duration = Duration::from_millis(500);

/// The pause after a look that found `came` samples, so long after the run has begun.
pub fn pause(elapsed: Duration, came: u64, recorded: bool) -> Duration {
    let is_fast = came > RING as u64 / 16;
    let most = if recorded || is_fast { OFTEN } else { SELDOM };
    (elapsed / 4).clamp(SHORTEST, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_what_comes_meanwhile_at_any_rate() {
        for a_second in [1, 500, 10_000, 60_000, 100_000, 300_000, 1_000_000] {
            let (mut elapsed, mut came) = (Duration::ZERO, 0);
            for _ in 0..1000 {
                let pause = pause(elapsed, came, false);
                elapsed += pause;
                came = a_second * pause.as_micros() as u64 / 1_000_000;
                assert!(came < RING as u64, "{a_second} a second: {came} after {pause:?}");
            }
        }
    }

    #[test]
    fn events_are_read_each_50_ms_and_a_run_is_looked_at_more_at_its_beginning() {
        assert_eq!(pause(Duration::ZERO, 0, false), SHORTEST);
        assert_eq!(pause(Duration::from_millis(400), 0, false), Duration::from_millis(100));
        assert_eq!(pause(Duration::from_secs(9), 0, false), SELDOM);
        assert_eq!(pause(Duration::from_secs(9), 0, true), OFTEN);
    }
}
