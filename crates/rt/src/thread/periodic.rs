// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Releases on a grid: instants `phase + k * period` of CLOCK_MONOTONIC.
//!
//! The next instant is computed from the grid, not from the time of the wake-up, so lateness does
//! not accumulate. Releases that pass during a job are overruns. They are counted and skipped,
//! except the latest one, which is released at once. RTLinux's scheduler and `timerfd` do the same.
//! [`Grid`] decides; [`Periodic`] adds the clock and the sleep.

use crate::thread::suspects::Suspects;
use crate::thread::watch::{Tally, Watch};
use asmp_host::clock::{monotonic_ns, sleep_until};
use std::cell::OnceCell;
use std::time::Duration;

/// The period of a grid is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid period {period:?}: use 1 ns to 292 years")]
pub struct BadPeriod {
    pub period: Duration,
}

/// One release of a periodic job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// The instant of the grid that this job belongs to, in ns of CLOCK_MONOTONIC.
    pub scheduled_ns: u64,
    /// When the thread ran again, in ns. The difference to `scheduled_ns` is its latency, or the
    /// lateness of the job before.
    pub woken_ns: u64,
    /// Releases without a job between the last tick and this one.
    pub overruns: u64,
}

/// An instant of the grid that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    pub scheduled_ns: u64,
    pub overruns: u64,
}

/// Computes the next release. Pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    next_ns: u64,
    period_ns: u64,
}

pub(crate) fn period_ns(period: Duration) -> Result<u64, BadPeriod> {
    match u64::try_from(period.as_nanos()) {
        Ok(ns) if ns > 0 && i64::try_from(ns).is_ok() => Ok(ns),
        _ => Err(BadPeriod { period }),
    }
}

impl Grid {
    /// The grid through `start_ns`, which is its first release, also if it has passed.
    pub fn starting_at(start_ns: u64, period: Duration) -> Result<Self, BadPeriod> {
        Ok(Self { next_ns: start_ns, period_ns: period_ns(period)? })
    }

    /// The grid `phase + k * period`; its first release is the first instant after `now_ns`.
    pub fn aligned(now_ns: u64, period: Duration, phase: Duration) -> Result<Self, BadPeriod> {
        let period_ns = period_ns(period)?;
        // A phase is a place within one period.
        let phase_ns = (phase.as_nanos() % u128::from(period_ns)) as u64;
        let mut grid = Self { next_ns: phase_ns, period_ns };
        grid.skip_past(now_ns);
        Ok(grid)
    }

    pub const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    pub const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The release due at `now_ns`: the latest instant not after it, and the number of overruns.
    /// `None`: none is due.
    pub fn release(&mut self, now_ns: u64) -> Option<Release> {
        let overruns = now_ns.checked_sub(self.next_ns)? / self.period_ns;
        // Not above now_ns, so neither the product nor the sum overflows.
        let scheduled_ns = self.next_ns + overruns * self.period_ns;
        self.next_ns = scheduled_ns.saturating_add(self.period_ns);
        Some(Release { scheduled_ns, overruns })
    }

    /// Continues with the first instant after `now_ns`; earlier ones are no overruns.
    pub fn skip_past(&mut self, now_ns: u64) {
        self.release(now_ns);
    }

    /// Changes the period. The next release stays; later ones come at the new distance.
    pub fn set_period(&mut self, period: Duration) -> Result<(), BadPeriod> {
        self.period_ns = period_ns(period)?;
        Ok(())
    }
}

/// The calling thread's releases on a [`Grid`].
#[derive(Debug)]
pub struct Periodic {
    grid: Grid,
    /// Counts what the job did between two waits (debug builds only).
    section: Option<Watch>,
    /// Where it did. The first wait creates it, because it belongs to the waiting thread. Empty:
    /// not yet; `None`: not permitted.
    suspects: OnceCell<Option<Suspects>>,
    tally: Tally,
}

impl Periodic {
    /// Releases at `phase + k * period` of CLOCK_MONOTONIC, from the first one after now on.
    /// Threads with equal periods and different phases keep their distance, also in different
    /// processes.
    pub fn new(period: Duration, phase: Duration) -> Result<Self, BadPeriod> {
        Ok(Self::on(Grid::aligned(monotonic_ns(), period, phase)?))
    }

    /// Releases from `start_ns` on.
    pub fn starting_at(start_ns: u64, period: Duration) -> Result<Self, BadPeriod> {
        Ok(Self::on(Grid::starting_at(start_ns, period)?))
    }

    fn on(grid: Grid) -> Self {
        Self { grid, section: None, suspects: OnceCell::new(), tally: Tally::default() }
    }

    /// Sleeps until the next release; returns at once when that has passed.
    ///
    /// Bounded except for the sleep. Allocates nothing. System calls: one `clock_nanosleep` (none
    /// when late), and one more for each signal (EINTR). Debug builds add two `getrusage`, and six
    /// calls for perf with the first wait. Never returns early.
    pub fn wait(&mut self) -> Tick {
        self.leave_section();
        if cfg!(debug_assertions) {
            self.suspects.get_or_init(|| Suspects::new().ok());
        }
        let tick = loop {
            let woken_ns = monotonic_ns();
            if let Some(Release { scheduled_ns, overruns }) = self.grid.release(woken_ns) {
                break Tick { scheduled_ns, woken_ns, overruns };
            }
            sleep_until(self.grid.next_ns());
        };
        if cfg!(debug_assertions) {
            self.suspects().inspect(|suspects| suspects.clear());
            self.section = Some(Watch::enter());
        }
        tick
    }

    /// Changes the period from the release after the next one on. Bounded, no system call.
    pub fn set_period(&mut self, period: Duration) -> Result<(), BadPeriod> {
        self.grid.set_period(period)
    }

    pub const fn period_ns(&self) -> u64 {
        self.grid.period_ns()
    }

    pub const fn next_ns(&self) -> u64 {
        self.grid.next_ns()
    }

    /// Page faults, sleeps and preemptions of the jobs so far. Empty in release builds.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    pub(crate) fn leave_section(&mut self) {
        if let Some(section) = self.section.take() {
            let seen = section.leave();
            let suspect = self.suspects().filter(|_| !seen.is_clean()).and_then(Suspects::first);
            self.tally.add(seen, suspect);
        }
    }

    fn suspects(&self) -> Option<&Suspects> {
        self.suspects.get()?.as_ref()
    }

    pub(crate) fn skip_past_now(&mut self) {
        self.grid.skip_past(monotonic_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn grid(start_ns: u64, period_ns: u64) -> Grid {
        Grid::starting_at(start_ns, Duration::from_nanos(period_ns)).unwrap()
    }

    #[test]
    fn nothing_is_due_before_its_instant_and_everything_at_it() {
        let mut grid = grid(100, 10);
        assert_eq!(grid.release(99), None);
        assert_eq!(grid.release(100), Some(Release { scheduled_ns: 100, overruns: 0 }));
        assert_eq!(grid.next_ns(), 110);
    }

    #[test]
    fn a_late_job_is_released_once_and_the_grid_stays() {
        let mut grid = grid(100, 10);
        assert_eq!(grid.release(119), Some(Release { scheduled_ns: 110, overruns: 1 }));
        assert_eq!(grid.release(119), None);
        assert_eq!(grid.release(120), Some(Release { scheduled_ns: 120, overruns: 0 }));
        assert_eq!(grid.release(175), Some(Release { scheduled_ns: 170, overruns: 4 }));
        assert_eq!(grid.next_ns(), 180);
    }

    #[test]
    fn ticks_and_overruns_add_up_to_the_instants_passed_whatever_the_lateness() {
        let mut grid = grid(7, 1000);
        let (mut now, mut accounted, mut seed) = (0u64, 0u64, 1u64);
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            now += seed >> 52;
            if let Some(Release { scheduled_ns, overruns }) = grid.release(now) {
                accounted += 1 + overruns;
                assert_eq!(scheduled_ns % 1000, 7, "no drift");
                assert!(scheduled_ns <= now && now - scheduled_ns < 1000);
            }
            assert_eq!(accounted, (now + 1000 - 7) / 1000);
        }
    }

    #[test]
    fn grids_of_one_period_keep_the_distance_of_their_phases() {
        for now in [0, 3 * MS, 123_456_789, 1 << 60] {
            let at = |phase_ms| {
                Grid::aligned(now, Duration::from_millis(4), Duration::from_millis(phase_ms))
                    .unwrap()
                    .next_ns()
            };
            assert_eq!((at(0) % (4 * MS), at(1) % (4 * MS), at(7) % (4 * MS)), (0, MS, 3 * MS));
            for phase in [0, 1, 7] {
                assert!(at(phase) > now && at(phase) <= now + 4 * MS);
            }
        }
    }

    #[test]
    fn a_changed_period_counts_from_the_next_release() {
        let mut grid = grid(100, 10);
        grid.set_period(Duration::from_nanos(25)).unwrap();
        assert_eq!(grid.release(100), Some(Release { scheduled_ns: 100, overruns: 0 }));
        assert_eq!(grid.next_ns(), 125);
    }

    #[test]
    fn no_grid_overflows_at_the_end_of_time() {
        let mut grid = grid(u64::MAX - 1, 10);
        assert_eq!(
            grid.release(u64::MAX),
            Some(Release { scheduled_ns: u64::MAX - 1, overruns: 0 })
        );
        assert_eq!(grid.next_ns(), u64::MAX);
        let longest = Duration::from_nanos(i64::MAX as u64);
        assert!(Grid::aligned(u64::MAX, longest, longest).is_ok());
    }

    #[test]
    fn periods_of_nothing_and_of_centuries_are_refused_with_their_value() {
        for period in [Duration::ZERO, Duration::from_secs(300 * 366 * 86_400), Duration::MAX] {
            let error = Periodic::new(period, Duration::ZERO).unwrap_err();
            assert!(error.to_string().contains(&format!("{period:?}")), "{error}");
        }
    }

    #[test]
    fn a_wait_never_ends_before_its_instant_and_keeps_to_the_grid() {
        let start = monotonic_ns();
        let mut periodic = Periodic::starting_at(start, Duration::from_micros(500)).unwrap();
        let mut accounted = 0;
        for _ in 0..20 {
            let tick = periodic.wait();
            assert!(tick.woken_ns >= tick.scheduled_ns);
            accounted += tick.overruns;
            assert_eq!(tick.scheduled_ns, start + accounted * 500_000);
            accounted += 1;
        }
    }
}
