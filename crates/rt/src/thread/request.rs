//! A word from threads that may wait to one that may not: two numbers, seen whole or not yet.
//!
//! A seqlock. Writers take turns by a lock of their own (the caller's duty); the reader never waits: it finds nothing
//! new, or a whole pair, or one half written, which it leaves for its next look. So whoever writes makes the reader look
//! again afterwards.

#[cfg(loom)]
use loom::sync::atomic::{AtomicI64, AtomicU32, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering, fence};

/// Start and period, as they were asked for.
#[derive(Debug)]
pub struct Request {
    /// Odd while a pair is being written.
    number: AtomicU32,
    first: AtomicI64,
    second: AtomicI64,
}

impl Request {
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { number: AtomicU32::new(0), first: AtomicI64::new(0), second: AtomicI64::new(0) }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        Self { number: AtomicU32::new(0), first: AtomicI64::new(0), second: AtomicI64::new(0) }
    }

    /// The number of the last request, for a reader who does not want those before now.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Writes a pair. One writer at a time. Bounded, no system call.
    pub fn write(&self, first: i64, second: i64) {
        self.write_after(self.number(), first, second);
    }

    fn write_after(&self, even: u32, first: i64, second: i64) {
        self.number.store(even.wrapping_add(1), Ordering::Relaxed);
        // Release: pairs with the Acquire fence in `read`; whoever sees one of the values sees the odd number.
        fence(Ordering::Release);
        self.first.store(first, Ordering::Relaxed);
        self.second.store(second, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `read`, which then sees both values.
        self.number.store(even.wrapping_add(2), Ordering::Release);
    }

    /// A pair newer than number `taken`, and its number. Bounded, no system call; any number of readers.
    pub fn read(&self, taken: u32) -> Option<(u32, i64, i64)> {
        // Acquire: pairs with the last Release in `write`.
        let before = self.number.load(Ordering::Acquire);
        if before == taken || !before.is_multiple_of(2) {
            return None;
        }
        let (first, second) = (self.first.load(Ordering::Relaxed), self.second.load(Ordering::Relaxed));
        // Acquire: pairs with the Release fence in `write`.
        fence(Ordering::Acquire);
        (self.number.load(Ordering::Relaxed) == before).then_some((before, first, second))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_once_and_a_half_written_one_not_yet() {
        let request = Request::new();
        assert_eq!(request.read(0), None);
        request.write(5, 7);
        assert_eq!(request.read(0), Some((2, 5, 7)));
        assert_eq!(request.read(2), None);
        request.number.store(3, Ordering::Relaxed);
        assert_eq!(request.read(2), None);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// The writer is told its numbers: loom remembers one load per place, so one that first loads what it then stores
    /// would hide the interleavings with the reader. What the reader saw shows that there were some.
    #[test]
    fn no_reader_sees_parts_of_two_pairs() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
        let see = std::sync::Arc::clone(&seen);
        loom::model(move || {
            let request = Arc::new(Request::new());
            let writer = Arc::clone(&request);
            let writing = thread::spawn(move || {
                writer.write_after(0, 1, -1);
                writer.write_after(2, 2, -2);
            });
            let mut taken = 0;
            for _ in 0..2 {
                if let Some((number, first, second)) = request.read(taken) {
                    assert_eq!((first, second), (i64::from(number / 2), -i64::from(number / 2)));
                    taken = number;
                }
            }
            writing.join().unwrap();
            assert!(taken == 4 || request.read(taken) == Some((4, 2, -2)), "the last pair is not lost");
            see.lock().unwrap().insert(taken);
        });
        assert_eq!(seen.lock().unwrap().iter().copied().collect::<Vec<_>>(), [0, 2, 4]);
    }
}
