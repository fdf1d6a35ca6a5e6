// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reflective scheduler: a thread of high priority that performs the actions of an [`Agenda`]
//! at their instants.
//!
//! The thread that calls [`Reflective::run`] should have the highest real-time priority of its CPU.
//! It starts and stops threads of lower priority. Its wake-up latency is then low and almost
//! constant, and [`Calibration`] compensates the constant part. It records how exactly it meets the
//! instants.
//!
//! A run allocates nothing and makes one system call a wait. An action that was due in the past
//! happens at once, before later ones. An action that is inserted during a final spin waits for its
//! end.

use crate::executive::Clock;
use crate::executive::calibration::{Calibration, Tuning};
use crate::executive::errors::{Errors, Exactness};
use crate::executive::table::{Action, Agenda, Entry};
use std::ops::ControlFlow;

/// An action that happens now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub action: Action,
    /// When it was due.
    pub instant_ns: u64,
    /// Now. With calibration it may be slightly before `instant_ns`.
    pub now_ns: u64,
}

pub struct Reflective<'a, C> {
    clock: C,
    agenda: &'a Agenda,
    calibration: Calibration,
    errors: Errors,
    overdue: u64,
}

impl<'a, C: Clock> Reflective<'a, C> {
    /// Allocates.
    pub fn new(clock: C, agenda: &'a Agenda, tuning: Tuning) -> Self {
        Self {
            clock,
            agenda,
            calibration: Calibration::new(tuning),
            errors: Errors::default(),
            overdue: 0,
        }
    }

    /// Performs due actions until `end_ns`, or until `perform` returns `Break`. `perform` runs
    /// without the lock of the table, so it may change the table.
    pub fn run(&mut self, end_ns: u64, mut perform: impl FnMut(&Moment) -> ControlFlow<()>) {
        while self.clock.now_ns() < end_ns {
            // Cleared before the table is read: a change after this reading ends the wait.
            self.agenda.changed().take(0);
            match self.agenda.first().filter(|entry| entry.instant_ns < end_ns) {
                None => self.clock.wait(end_ns, self.agenda.changed()),
                Some(entry) => {
                    if !self.reach(&entry) {
                        continue;
                    }
                    let Some(entry) = self.agenda.take(&entry) else { continue };
                    let now_ns = self.clock.now_ns();
                    self.errors.record(entry.instant_ns, now_ns);
                    let moment =
                        Moment { action: entry.action, instant_ns: entry.instant_ns, now_ns };
                    if perform(&moment).is_break() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for the instant of an entry; `false`: woken before, look at the table again.
    fn reach(&mut self, entry: &Entry) -> bool {
        let timer = self.calibration.program(entry.instant_ns);
        let now_ns = self.clock.now_ns();
        if now_ns >= timer.timer_ns {
            // Too near for the timer: no longer than latency and margin to spin.
            self.overdue += u64::from(now_ns > entry.instant_ns);
            self.clock.spin_until(entry.instant_ns);
            return true;
        }
        self.clock.wait(timer.timer_ns, self.agenda.changed());
        let woken_ns = self.clock.now_ns();
        if woken_ns < timer.timer_ns {
            return false;
        }
        self.calibration.learn(&timer, woken_ns);
        if timer.aim_ns < timer.instant_ns {
            self.clock.spin_until(timer.instant_ns);
        }
        true
    }

    /// Accuracy and precision of all actions so far. `None`: there was none.
    pub fn exactness(&self) -> Option<Exactness> {
        self.errors.exactness()
    }

    /// Number of actions whose instant had passed before the scheduler could wait for it.
    pub fn overdue(&self) -> u64 {
        self.overdue
    }

    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }
}
