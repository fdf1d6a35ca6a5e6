//! A running real-time thread, seen from outside ([`Task`]) and from inside ([`Me`], [`Releases`]).
//!
//! What others ask of a periodic thread (suspend, another period, end) takes effect between two jobs, in
//! [`Releases::wait`], never in the middle of one: a job stopped half way would keep its locks.

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
    /// A period asked for and not yet taken; 0 (which is no period): none.
    wanted_period_ns: AtomicU64,
    /// Written when a grid is given up, never in a section.
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

/// A real-time thread. Dropping this leaves it running by itself.
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

    /// Its number, as /proc, cgroups and tracers know it.
    pub const fn tid(&self) -> i32 {
        self.tid
    }

    /// It gets no release any more, from the next one on, until [`Task::wakeup`]. Bounded, no system call.
    pub fn suspend(&self) {
        // A deleted thread stays deleted. Publishes nothing: Relaxed.
        let _ = self.control.state.compare_exchange(RUNS, SUSPENDED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends a suspension; the grid goes on where it is, and what lay in between is no overrun. At most one system call.
    pub fn wakeup(&self) {
        // Release: the thread's Acquire in `Releases::wait` sees what was prepared for it before.
        let woken =
            self.control.state.compare_exchange(SUSPENDED, RUNS, Ordering::Release, Ordering::Relaxed);
        if woken.is_ok() {
            self.thread.thread().unpark();
        }
    }

    /// Another period: the release it now waits for stays, those after it come at the new distance. Bounded, no
    /// system call.
    pub fn set_period(&self, period: Duration) -> Result<(), BadPeriod> {
        // One value, which publishes nothing else: Relaxed.
        self.control.wanted_period_ns.store(period_ns(period)?, Ordering::Relaxed);
        Ok(())
    }

    /// Its next [`Releases::wait`] answers `None`, at the latest at the release it waits for; then waits for its end.
    /// Blocks until then. `Err`: it panicked, with its message.
    pub fn delete(self) -> thread::Result<R> {
        // Release: pairs with the Acquire in `Releases::wait` and `Me::is_deleted`.
        self.control.state.store(DELETED, Ordering::Release);
        self.thread.thread().unpark();
        self.join()
    }

    /// Waits for its end. `Err`: it panicked, with its message.
    pub fn join(self) -> thread::Result<R> {
        self.thread.join().map(|result| result.expect("a thread that was refused has no Task"))
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// What its sections did that they should not do, of all grids it has given up. Empty in release builds.
    pub fn tally(&self) -> Tally {
        self.control.tally()
    }
}

/// The thread itself, inside.
#[derive(Debug, Clone)]
pub struct Me {
    control: Arc<Control>,
}

impl Me {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Releases of the calling thread at `phase + k * period`, the first one after now. See [`Periodic::new`].
    pub fn releases(&self, period: Duration, phase: Duration) -> Result<Releases, BadPeriod> {
        Ok(Releases { periodic: Periodic::new(period, phase)?, control: Arc::clone(&self.control) })
    }

    /// Somebody wants this thread to end: for loops that wait for something else than releases. Bounded.
    pub fn is_deleted(&self) -> bool {
        // Acquire: pairs with the Release in `Task::delete`.
        self.control.state.load(Ordering::Acquire) == DELETED
    }

    /// The warning about its sections, if there is anything to warn of.
    pub(crate) fn warning(&self, name: &str) -> Option<String> {
        self.control.tally().warning(name)
    }
}

/// A [`Periodic`] that listens to its [`Task`].
#[derive(Debug)]
pub struct Releases {
    periodic: Periodic,
    control: Arc<Control>,
}

impl Releases {
    /// The next release; `None` once the thread shall end. Costs what [`Periodic::wait`] costs; a suspension adds
    /// the calls of `thread::park`.
    pub fn wait(&mut self) -> Option<Tick> {
        loop {
            self.periodic.leave_section();
            if !self.may_run() {
                return None;
            }
            let wanted_ns = self.control.wanted_period_ns.swap(0, Ordering::Relaxed);
            if wanted_ns > 0 {
                // Checked when it was asked for.
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

    /// Another period, from the one after the next release on.
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
        self.control.tally.lock().unwrap_or_else(PoisonError::into_inner).merge(self.periodic.tally());
    }
}
