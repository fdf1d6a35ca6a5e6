// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of deferred interrupts. Any thread raises a line, which is counted. The executive
//! takes the count later and starts a background job. Yartek's table has one bit a line that is
//! never cleared. Here taking clears the count, so no interrupt is lost and none is served twice.
//!
//! [`raise`](Flags::raise) is wait-free, allocates nothing, may be called by any thread and in a
//! signal handler, and makes one system call (it wakes the executive). Only the executive waits.

use asmp_host::clock::timespec;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The table has no such line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no interrupt line {line}: the table has {lines}, numbered from 0")]
pub struct NoSuchLine {
    pub line: usize,
    pub lines: usize,
}

#[derive(Debug)]
pub struct Flags {
    counts: Box<[AtomicU64]>,
    /// Moves with each raise; the executive sleeps on it.
    bell: AtomicU32,
}

impl Flags {
    pub fn new(lines: usize) -> Self {
        Self { counts: (0..lines).map(|_| AtomicU64::new(0)).collect(), bell: AtomicU32::new(0) }
    }

    pub fn lines(&self) -> usize {
        self.counts.len()
    }

    /// Counts one interrupt of `line` and wakes the executive.
    pub fn raise(&self, line: usize) -> Result<(), NoSuchLine> {
        let count = self.counts.get(line).ok_or(NoSuchLine { line, lines: self.counts.len() })?;
        // Release: what the interrupt left in memory is seen by who takes the count (Acquire in
        // `take`).
        count.fetch_add(1, Ordering::Release);
        // Release: who sees the bell moved (Acquire in `wait_until`) sees the count too.
        self.bell.fetch_add(1, Ordering::Release);
        // SAFETY: FUTEX_WAKE reads no memory; the address is that of a live word and names a queue.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.bell.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            )
        };
        Ok(())
    }

    /// Takes and clears the count of `line`. 0 for a line that does not exist.
    pub fn take(&self, line: usize) -> u64 {
        // Acquire: pairs with the Release in `raise`.
        self.counts.get(line).map_or(0, |count| count.swap(0, Ordering::Acquire))
    }

    /// Whether a line is raised.
    pub fn any(&self) -> bool {
        self.counts.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Waits until that instant of CLOCK_MONOTONIC or until a line is raised. May return early.
    pub fn wait_until(&self, until_ns: u64) {
        // Acquire: pairs with the bell in `raise`. A raise after this load moves the bell, and the
        // kernel then refuses to sleep; a raise before it is seen by `any`.
        let seen = self.bell.load(Ordering::Acquire);
        if self.any() {
            return;
        }
        let until = timespec(until_ns);
        // SAFETY: the kernel reads the word and the timespec, both of which outlive the call.
        // FUTEX_WAIT_BITSET takes the timeout as an absolute instant of CLOCK_MONOTONIC.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.bell.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                seen,
                &raw const until,
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::clock::monotonic_ns;
    use std::sync::Arc;

    #[test]
    fn raises_are_counted_and_taking_clears_them() {
        let flags = Flags::new(2);
        for _ in 0..3 {
            flags.raise(1).unwrap();
        }
        assert!(flags.any());
        assert_eq!((flags.take(0), flags.take(1), flags.take(1)), (0, 3, 0));
        assert!(!flags.any());
    }

    #[test]
    fn a_line_that_is_not_there_is_refused() {
        assert_eq!(Flags::new(2).raise(2), Err(NoSuchLine { line: 2, lines: 2 }));
    }

    #[test]
    fn a_raise_ends_the_wait() {
        let flags = Arc::new(Flags::new(1));
        let raiser = Arc::clone(&flags);
        let thread = std::thread::spawn(move || raiser.raise(0).unwrap());
        // An hour: the test ends only by the raise, whether it comes before the wait or in it.
        while !flags.any() {
            flags.wait_until(monotonic_ns() + 3_600_000_000_000);
        }
        thread.join().unwrap();
        assert_eq!(flags.take(0), 1);
    }

    #[test]
    fn no_raise_is_lost_between_threads() {
        let flags = Arc::new(Flags::new(1));
        let raisers: Vec<_> = (0..4)
            .map(|_| {
                let flags = Arc::clone(&flags);
                std::thread::spawn(move || (0..1000).for_each(|_| flags.raise(0).unwrap()))
            })
            .collect();
        let mut taken = 0;
        while taken < 4000 {
            flags.wait_until(monotonic_ns() + 3_600_000_000_000);
            taken += flags.take(0);
        }
        raisers.into_iter().for_each(|raiser| raiser.join().unwrap());
        assert_eq!((taken, flags.any()), (4000, false));
    }

    #[test]
    fn a_wait_without_a_raise_ends_at_its_instant() {
        let flags = Flags::new(1);
        let until = monotonic_ns() + 2_000_000;
        while monotonic_ns() < until {
            flags.wait_until(until);
        }
        flags.wait_until(0);
    }
}
