// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running real-time thread, seen from outside ([`Task`]) and from inside ([`Me`], [`Releases`]).
//!
//! A request of another thread (suspend, change the period, end) takes effect between two jobs, in
//! [`Releases::wait`]. A job is never stopped inside: it would keep its locks.

use crate::thread::periodic::{BadPeriod, Periodic, Tick, period_ns};
use crate::thread::watch::Tally;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const RUNS: u8 = 0;
const SUSPENDED: u8 = 1;
const DELETED: u8 = 2;

/// What the two sides share.
#[derive(Debug)]
pub(crate) struct Control {
    state: AtomicU8,
    /// A requested period that is not in effect yet; 0: none.
    wanted_period_ns: AtomicU64,
    /// Written when a grid is dropped, never in a section.
    tally: Mutex<Tally>,
}

impl Control {
    pub fn new() -> Self {
        Self {
            state: AtomicU8::new(RUNS),
            wanted_period_ns: AtomicU64::new(0),
            tally: Mutex::new(Tally::default()),
        }
    }

    fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running real-time thread. Dropping this value detaches the thread.
#[derive(Debug)]
pub struct Task<R> {
    control: Arc<Control>,
    tid: i32,
    thread: JoinHandle<Option<R>>,
}

impl<R> Task<R> {
    pub(crate) fn new(control: Arc<Control>, tid: i32, thread: JoinHandle<Option<R>>) -> Self {
        Self { control, tid, thread }
    }

    /// The thread id, as in /proc, cgroups and traces.
    pub const fn tid(&self) -> i32 {
        self.tid
    }

    /// Suspends the thread from its next release on, until [`Task::wakeup`]. Bounded, no system
    /// call.
    pub fn suspend(&self) {
        // A deleted thread stays deleted. Publishes nothing: Relaxed.
        let _ = self.control.state.compare_exchange(
            RUNS,
            SUSPENDED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Ends a suspension. The grid stays, and releases during the suspension are no overruns. At
    /// most one system call.
    pub fn wakeup(&self) {
        // Release pairs with the Acquire in `Releases::wait`: the thread sees earlier changes.
        let woken = self.control.state.compare_exchange(
            SUSPENDED,
            RUNS,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if woken.is_ok() {
            self.thread.thread().unpark();
        }
    }

    /// Changes the period. The release that the thread waits for stays; later ones come at the new
    /// distance. Bounded, no system call.
    pub fn set_period(&self, period: Duration) -> Result<(), BadPeriod> {
        // One value, which publishes nothing else: Relaxed.
        self.control.wanted_period_ns.store(period_ns(period)?, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the thread and waits for its end. Its next [`Releases::wait`] returns `None`, at the
    /// latest at the release it waits for. Blocks. `Err`: it panicked, with its message.
    pub fn delete(self) -> thread::Result<R> {
        // Release: pairs with the Acquire in `Releases::wait` and `Me::is_deleted`.
        self.control.state.store(DELETED, Ordering::Release);
        self.thread.thread().unpark();
        self.join()
    }

    /// Waits for the end of the thread. Blocks. `Err`: it panicked, with its message.
    pub fn join(self) -> thread::Result<R> {
        self.thread.join().map(|result| result.expect("a thread that was refused has no Task"))
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Page faults, sleeps and preemptions in the sections of all dropped grids. Empty in release
    /// builds.
    pub fn tally(&self) -> Tally {
        self.control.tally()
    }
}

/// The thread, from inside.
#[derive(Debug, Clone)]
pub struct Me {
    control: Arc<Control>,
}

impl Me {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Releases the calling thread at `phase + k * period`, from the first one after now on. See
    /// [`Periodic::new`].
    pub fn releases(&self, period: Duration, phase: Duration) -> Result<Releases, BadPeriod> {
        Ok(Releases { periodic: Periodic::new(period, phase)?, control: Arc::clone(&self.control) })
    }

    /// Whether [`Task::delete`] was called, for loops that do not wait for releases. Bounded.
    pub fn is_deleted(&self) -> bool {
        // Acquire: pairs with the Release in `Task::delete`.
        self.control.state.load(Ordering::Acquire) == DELETED
    }

    /// A warning about its sections, if there is one.
    pub(crate) fn warning(&self, name: &str) -> Option<String> {
        self.control.tally().warning(name)
    }
}

/// A [`Periodic`] that obeys its [`Task`].
#[derive(Debug)]
pub struct Releases {
    periodic: Periodic,
    control: Arc<Control>,
}

impl Releases {
    /// Waits for the next release. `None`: the thread has to end. Costs are those of
    /// [`Periodic::wait`]; a suspension adds those of `thread::park`.
    pub fn wait(&mut self) -> Option<Tick> {
        loop {
            self.periodic.leave_section();
            if !self.may_run() {
                return None;
            }
            let wanted_ns = self.control.wanted_period_ns.swap(0, Ordering::Relaxed);
            if wanted_ns > 0 {
                // Checked when it was requested.
                let _ = self.periodic.set_period(Duration::from_nanos(wanted_ns));
            }
            let tick = self.periodic.wait();
            // Acquire: pairs with the Releases in `Task::wakeup` and `Task::delete`.
            match self.control.state.load(Ordering::Acquire) {
                RUNS => return Some(tick),
                DELETED => return None,
                _ => {}
            }
        }
    }

    /// Waits out a suspension. `false`: deleted.
    fn may_run(&mut self) -> bool {
        loop {
            // Acquire: pairs with the Releases in `Task::wakeup` and `Task::delete`.
            match self.control.state.load(Ordering::Acquire) {
                RUNS => return true,
                DELETED => return false,
                _ => {
                    thread::park();
                    self.periodic.skip_past_now();
                }
            }
        }
    }

    /// Changes the period from the release after the next one on.
    pub fn set_period(&mut self, period: Duration) -> Result<(), BadPeriod> {
        self.periodic.set_period(period)
    }

    pub const fn period_ns(&self) -> u64 {
        self.periodic.period_ns()
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        self.periodic.leave_section();
        self.control
            .tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .merge(self.periodic.tally());
    }
}
