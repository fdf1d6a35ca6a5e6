// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time base of an executive.

use crate::executive::Flags;

/// A clock that one thread reads and waits on. It is monotonic.
pub trait Clock {
    /// Nanoseconds since an arbitrary origin.
    fn now_ns(&self) -> u64;

    /// Waits until `until_ns` or until a flag is raised, whichever comes first. It may return early
    /// without a reason, and returns late by the wake-up latency: check the clock.
    fn wait(&self, until_ns: u64, flags: &Flags);

    /// Spins until `until_ns`.
    fn spin_until(&self, until_ns: u64);
}

/// CLOCK_MONOTONIC. Reading makes no system call if the vDSO has the clock. Waiting is one
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
