// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two numbers from threads that may wait to one that may not: seen both or not at all.
//!
//! A seqlock. Writers exclude each other with a lock of the caller. The reader never waits. It
//! finds nothing new, or both numbers, or a write in progress, which it leaves for its next look.
//! So a writer makes the reader look again afterwards.

use crate::sync::{AtomicI64, AtomicU32, Ordering, const_fn, fence};

/// Two numbers that one thread hands to another, for example a start and a period.
#[derive(Debug, Default)]
pub struct Pair {
    /// Odd while a pair is being written.
    number: AtomicU32,
    first: AtomicI64,
    second: AtomicI64,
}

impl Pair {
    const_fn! {
        /// A pair that nothing was written to: its number is 0.
        pub fn new() -> Self {
            Self { number: AtomicU32::new(0), first: AtomicI64::new(0), second: AtomicI64::new(0) }
        }
    }

    /// The number of the last pair. A reader passes it to [`Pair::read`] to skip earlier pairs.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Writes a pair. One writer at a time. Bounded, no system call.
    pub fn write(&self, first: i64, second: i64) {
        self.write_after(self.number(), first, second);
    }

    /// `even`: the number now. A model gives it, to load nothing that it stores.
    pub(crate) fn write_after(&self, even: u32, first: i64, second: i64) {
        self.number.store(even.wrapping_add(1), Ordering::Relaxed);
        // Release pairs with the Acquire fence in `read`: a reader that sees one of the values sees
        // the odd number.
        fence(Ordering::Release);
        self.first.store(first, Ordering::Relaxed);
        self.second.store(second, Ordering::Relaxed);
        // Release pairs with the Acquire load in `read`, which then sees both values.
        self.number.store(even.wrapping_add(2), Ordering::Release);
    }

    /// The pair newer than number `taken`: its number and both values. `None`: there is none, or it
    /// is being written. Bounded, no system call; any number of readers.
    pub fn read(&self, taken: u32) -> Option<(u32, i64, i64)> {
        // Acquire pairs with the last Release in `write`.
        let before = self.number.load(Ordering::Acquire);
        if before == taken || !before.is_multiple_of(2) {
            return None;
        }
        let values = (self.first.load(Ordering::Relaxed), self.second.load(Ordering::Relaxed));
        // Acquire pairs with the Release fence in `write`.
        fence(Ordering::Acquire);
        let unchanged = self.number.load(Ordering::Relaxed) == before;
        unchanged.then_some((before, values.0, values.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_once_and_a_half_written_one_not_yet() {
        let pair = Pair::new();
        assert_eq!(pair.read(0), None);
        pair.write(5, 7);
        assert_eq!(pair.read(0), Some((2, 5, 7)));
        assert_eq!(pair.read(2), None);
        pair.number.store(3, Ordering::Relaxed);
        assert_eq!(pair.read(2), None);
    }
}
