// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far a long run is, on a terminal.

use asmp_analysis::TimeBase;
use asmp_analysis::simulate::{Job, Observe};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// A shorter run has no line.
const QUIET: Duration = Duration::from_secs(1);
/// Jobs between two looks at the clock.
const MASK: u64 = (1 << 16) - 1;

/// Watches a run. The line is on standard error, goes away at the end, and is only drawn on a
/// terminal.
pub struct Progress {
    start: Instant,
    jobs: u64,
    until_ticks: u64,
    time: TimeBase,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new(until_ticks: u64, time: TimeBase) -> Self {
        Self { start: Instant::now(), jobs: 0, until_ticks, time, bar: None }
    }

    fn show(&mut self, now_ticks: u64) {
        if self.start.elapsed() < QUIET {
            return;
        }
        let (until_ticks, time) = (self.until_ticks, self.time);
        let bar = self.bar.get_or_insert_with(|| {
            let form = "asmp: simulated {msg} {bar:30} {percent} %, {eta} left";
            let style = ProgressStyle::with_template(form);
            ProgressBar::new(until_ticks)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_message(format!("{} of {}", time.show(now_ticks), time.show(until_ticks)));
        bar.set_position(now_ticks.min(until_ticks));
    }

    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observe for Progress {
    fn released(&mut self, job: &Job) {
        self.jobs += 1;
        if self.jobs & MASK == 0 {
            self.show(job.release_ticks);
        }
    }
}
