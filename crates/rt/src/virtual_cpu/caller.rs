// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread of the virtual CPU that is driven by calls: the way in for executives.

use super::engine::Went;
use super::{State, Step, ThreadId, VirtualCpu};
use crate::executive::{Clock, Flags};
use std::cell::{Cell, RefCell};

/// How much later than asked a timer wakes its thread: at least `min_ns`, at most `max_ns`, drawn
/// from a sequence that is the same each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    pub min_ns: u64,
    pub max_ns: u64,
}

/// The clock of a program that runs as a thread of `cpu`; other threads run while it waits, and
/// those above it also while it computes. At the end of time (nothing will ever happen) waits end
/// at `u64::MAX`.
///
/// # Panics
/// When other threads are in a [`Livelock`](super::Livelock), when the program calls the clock
/// while it has the CPU borrowed, and when a CPU gets a second caller.
#[derive(Debug)]
pub struct Caller<'a> {
    cpu: &'a RefCell<VirtualCpu>,
    thread: ThreadId,
    latency: Latency,
    draws: Cell<u64>,
}

impl<'a> Caller<'a> {
    /// Adds a thread of that priority, with a timeslice without end.
    pub fn new(cpu: &'a RefCell<VirtualCpu>, priority: u8, latency: Latency) -> Self {
        let mut inner = cpu.borrow_mut();
        assert!(inner.threads.iter().all(|thread| !thread.outside), "a virtual CPU has one caller");
        let thread = inner.thread(priority, None);
        inner.threads[thread.0].outside = true;
        inner.threads[thread.0].state = State::Ready;
        inner.ready.push(thread);
        drop(inner);
        Self { cpu, thread, latency, draws: Cell::new(0) }
    }

    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Needs the CPU for that long.
    pub fn compute(&self, length_ns: u64) {
        self.take(Step::Compute(length_ns), None);
    }

    /// One step; ends when it is done and the thread has the CPU. A flag that is up ends a sleep.
    fn take(&self, step: Step, flags: Option<&Flags>) {
        let mut cpu = self.cpu.borrow_mut();
        let mine = &mut cpu.threads[self.thread.0];
        (mine.steps, mine.at) = (vec![step], 0);
        loop {
            let asleep = matches!(cpu.threads[self.thread.0].state, State::Sleeping { .. });
            if asleep && flags.is_some_and(Flags::any) {
                cpu.end_sleep(self.thread);
            }
            match cpu.go_on(u64::MAX) {
                Ok(Went::On) => {}
                // Done; or time is over.
                Ok(Went::Outside(_) | Went::Limit) => return,
                Err(livelock) => panic!("{livelock}"),
            }
        }
    }

    fn draw(&self) -> u64 {
        // splitmix64: equal draws for equal runs.
        let state = self.draws.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.draws.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let span = self.latency.max_ns.saturating_sub(self.latency.min_ns).saturating_add(1);
        self.latency.min_ns.saturating_add((mixed ^ (mixed >> 31)) % span)
    }
}

impl Clock for &Caller<'_> {
    fn now_ns(&self) -> u64 {
        self.cpu.borrow().now_ns()
    }

    fn wait(&self, until_ns: u64, flags: &Flags) {
        if self.now_ns() < until_ns && !flags.any() {
            let latency_ns = self.draw();
            self.take(Step::WaitUntil(until_ns.saturating_add(latency_ns)), Some(flags));
        }
    }

    fn spin_until(&self, until_ns: u64) {
        self.compute(until_ns.saturating_sub(self.now_ns()));
    }
}
