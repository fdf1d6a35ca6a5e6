// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a series of measurements is, on standard error: one bar for the whole of it on a
//! terminal, elsewhere a line every ten seconds. And signals, which end it.

use crate::signals::Noted;
use anyhow::{Context, Result};
use asmp_measure::experiment::Observer;
use asmp_measure::load::{Load, LoadDir};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::{Cell, RefCell};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Between two lines where standard error is no terminal.
const PAUSE: Duration = Duration::from_secs(10);

/// How far a series has come. Pure: the caller tells the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Course {
    runs: u64,
    /// Of each run.
    samples: u64,
    /// Of a series for a time: a sample, or a missed instant, is done each period.
    period: Option<Duration>,
    /// Runs that have begun; the last of them is the present one.
    begun: u64,
    name: String,
    /// Of the present run.
    taken: u64,
}

impl Course {
    fn begin(&mut self, name: &str) {
        (self.begun, self.taken, self.name) = (self.begun + 1, 0, name.to_owned());
    }

    /// Samples of all runs. One that ended early counts as whole.
    fn done(&self) -> u64 {
        let before = self.begun.saturating_sub(1).saturating_mul(self.samples);
        before.saturating_add(self.taken.min(self.samples))
    }

    fn all(&self) -> u64 {
        self.runs.saturating_mul(self.samples)
    }

    /// Time that the rest takes: that of its periods, else as if it goes on as until now. `None`
    /// then before the first sample; and of more than a [`Duration`] holds.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let done = self.done();
        let rest = self.all().saturating_sub(done) as f64;
        if let Some(period) = self.period {
            return Duration::try_from_secs_f64(period.as_secs_f64() * rest).ok();
        }
        let left_s = elapsed.as_secs_f64() * rest / done as f64;
        (done > 0).then(|| Duration::try_from_secs_f64(left_s).ok()).flatten()
    }

    fn run(&self) -> String {
        format!("{}, run {} of {}", self.name, self.begun, self.runs)
    }

    fn told(&self, elapsed: Duration) -> String {
        let percent = self.done().saturating_mul(100).checked_div(self.all()).unwrap_or(0);
        let left = self.left(elapsed).map_or_else(String::new, |left| format!(", {}", words(left)));
        format!("{percent} %{left}")
    }

    fn line(&self, elapsed: Duration) -> String {
        let Self { taken, samples, .. } = self;
        format!("{}: {taken} of {samples} samples; {}", self.run(), self.told(elapsed))
    }
}

/// A time that is left, in its two longest units.
fn words(left: Duration) -> String {
    let seconds = left.as_secs_f64().ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s left"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s left"),
        (hours, minutes, _) => format!("{hours} h {minutes} min left"),
    }
}

pub struct Progress {
    quiet: bool,
    is_terminal: bool,
    bar: ProgressBar,
    course: RefCell<Course>,
    started: Instant,
    last_line: Cell<Instant>,
    /// A signal that has come: end, keep what there is, undo.
    pub noted: Noted,
}

impl Progress {
    /// `period`: of a series for a time, whose end is known.
    pub fn new(quiet: bool, period: Option<Duration>) -> Result<Self> {
        let noted = Noted::take().context("take signals")?;
        let is_terminal = std::io::stderr().is_terminal();
        let bar = match !quiet && is_terminal {
            true => ProgressBar::new(1).with_style(
                ProgressStyle::with_template("{msg} {bar:30} {prefix}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            ),
            false => ProgressBar::hidden(),
        };
        let (course, now) = (Course { period, ..Course::default() }.into(), Instant::now());
        Ok(Self { quiet, is_terminal, bar, course, started: now, last_line: Cell::new(now), noted })
    }
}

impl Observer for Progress {
    fn is_stopped(&self) -> bool {
        self.noted.signal().is_some()
    }

    fn expects(&self, runs: u64, samples: u64) {
        let period = self.course.borrow().period;
        *self.course.borrow_mut() = Course { runs, samples, period, ..Course::default() };
        self.bar.set_length(self.course.borrow().all());
    }

    fn starts(&self, load: Load) {
        self.bar.set_message(format!("starting load {load}"));
        if !self.quiet && !self.is_terminal {
            eprintln!("asmp: starting load {load}");
        }
    }

    fn awaits(&self, load: Load, there: u32, all: u32) {
        let words = format!("starting load {load}: {there} of {all} processes");
        if !self.quiet && !self.is_terminal && self.last_line.get().elapsed() >= PAUSE {
            self.last_line.set(Instant::now());
            eprintln!("asmp: {words}");
        }
        self.bar.set_message(words);
    }

    fn has_no_disk(&self, load: Load, wrote_to: &LoadDir) {
        let words = format!("load {load} writes to {wrote_to}; --load-dir names another directory");
        self.bar.suspend(|| eprintln!("asmp: {words}"));
    }

    fn begins(&self, name: &str) {
        self.course.borrow_mut().begin(name);
        self.bar.set_message(self.course.borrow().run());
    }

    fn has(&self, samples: u64) {
        let mut course = self.course.borrow_mut();
        course.taken = samples;
        let elapsed = self.started.elapsed();
        self.bar.set_prefix(course.told(elapsed));
        self.bar.set_position(course.done());
        if !self.quiet && !self.is_terminal && self.last_line.get().elapsed() >= PAUSE {
            self.last_line.set(Instant::now());
            eprintln!("asmp: {}", course.line(elapsed));
        }
    }

    fn is_partial(&self, name: &str, reason: &str) {
        self.bar.suspend(|| eprintln!("asmp: {name} is partial: {reason}"));
    }

    fn ends(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_tells_how_far_it_is_and_how_long_the_rest_takes() {
        let second = Duration::from_secs;
        let mut course = Course { runs: 4, samples: 100, ..Course::default() };
        assert_eq!((course.all(), course.told(second(3))), (400, "0 %".to_owned()));
        course.begin("idle-normal");
        course.taken = 40;
        assert_eq!(
            course.line(second(10)),
            "idle-normal, run 1 of 4: 40 of 100 samples; 10 %, 1 min 30 s left"
        );
        // The first ended early: the second begins after all of it.
        course.begin("idle-partition");
        assert_eq!((course.done(), course.run()), (100, "idle-partition, run 2 of 4".to_owned()));
        // A ring may hold more than was asked for.
        course.taken = 101;
        assert_eq!((course.done(), course.left(second(20))), (200, Some(second(20))));
        assert_eq!(words(Duration::from_millis(1)), "1 s left");
        assert_eq!(words(second(3 * 3600 + 25 * 60 + 59)), "3 h 25 min left");
        // As many as a number holds take longer than one of seconds does.
        let mut endless = Course { runs: 5, samples: u64::MAX, ..Course::default() };
        endless.begin("idle-normal");
        endless.taken = 1;
        assert_eq!(endless.told(second(2)), "0 %");
        // The end of a series for a time is known, however long its load took to start.
        let period = Some(Duration::from_millis(1));
        let mut timed = Course { runs: 2, samples: 3000, period, ..Course::default() };
        timed.begin("idle-normal");
        assert_eq!(timed.told(second(60)), "0 %, 6 s left");
        timed.taken = 1000;
        assert_eq!(timed.told(second(61)), "16 %, 5 s left");
        // Nothing to do is no reason to divide by it.
        assert_eq!(Course::default().told(second(1)), "0 %");
    }
}
