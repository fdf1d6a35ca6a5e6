//! The time an executive lives in.

use crate::executive::Flags;

/// A clock that one thread reads and waits on. It never goes back.
pub trait Clock {
    /// Nanoseconds since an origin of the clock's own.
    fn now_ns(&self) -> u64;

    /// Waits until `until_ns` or until a flag is up, whichever comes first; returns at once when either is so
    /// already. May return early for no reason, and returns late by what the machine takes to wake up: look at the
    /// clock.
    fn wait(&self, until_ns: u64, flags: &Flags);

    /// Keeps the CPU until `until_ns`.
    fn spin_until(&self, until_ns: u64);
}

/// CLOCK_MONOTONIC of this machine. Reading enters no kernel where the vDSO has the clock; waiting is one
/// `futex(2)` with an absolute timeout.
#[derive(Debug, Clone, Copy, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    #[inline]
    fn now_ns(&self) -> u64 {
        asmp_host::clock::monotonic_ns()
    }

    fn wait(&self, until_ns: u64, flags: &Flags) {
        flags.wait_until(until_ns);
    }

    fn spin_until(&self, until_ns: u64) {
        while self.now_ns() < until_ns {
            std::hint::spin_loop();
        }
    }
}
