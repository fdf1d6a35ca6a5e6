// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The algorithm of a shared record: one writer that never waits, readers that see whole records.
//!
//! It is a seqlock with several slots (with two, Linux calls it a latch). Record n lies in slot
//! n mod [`SLOTS`], and `newest` is the number of the last whole record. The writer fills the slot
//! after it, which no reader uses yet, and then moves `newest`.
//!
//! So a writer that is interrupted, stopped or killed in the middle of a record blocks no reader.
//! Readers keep getting the last whole record, and the next writer fills the same slot again. A
//! reader fails only while the writer laps it: after a bounded number of attempts it gives up.
//!
//! Neither end trusts `newest`: the writer keeps its own, and the reader takes it modulo [`SLOTS`].

use crate::sync::{self, AtomicU64, Ordering::*, fence};

/// Slots: the newest record, the one being written, and those that a slow reader may still copy.
pub const SLOTS: usize = sync::sized(4, 2);

/// How often a reader retries.
const ATTEMPTS: u32 = 16;

/// The writer replaced the record during each of 16 attempts to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the writer overtook the reader 16 times in a row: try again")]
pub struct Overtaken;

/// The shared memory as one end sees it.
#[derive(Clone, Copy)]
pub struct Board<'a> {
    newest: &'a AtomicU64,
    words: &'a [AtomicU64],
}

impl<'a> Board<'a> {
    /// `None`: there are no words, or their number is no multiple of [`SLOTS`].
    pub fn new(newest: &'a AtomicU64, words: &'a [AtomicU64]) -> Option<Self> {
        (!words.is_empty() && words.len().is_multiple_of(SLOTS)).then_some(Self { newest, words })
    }

    fn slot(&self, number: u64) -> &'a [AtomicU64] {
        let length = self.words.len() / SLOTS;
        let from = (number % SLOTS as u64) as usize * length;
        &self.words[from..from + length]
    }

    /// Copies the newest record into `into`, which is at most as long as a slot, and returns its
    /// number (1 is the first). `None`: there is no record yet. Bounded: at most 16 times O(bytes).
    /// No system call, no allocation. Errors: `Overtaken`.
    pub fn read(&self, into: &mut [u8]) -> Result<Option<u64>, Overtaken> {
        for _ in 0..ATTEMPTS {
            // Acquire pairs with Release in `write`: the words of that record are there.
            let number = self.newest.load(Acquire);
            if number == 0 {
                return Ok(None);
            }
            for (bytes, word) in into.chunks_mut(8).zip(self.slot(number)) {
                bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..bytes.len()]);
            }
            // Pairs with the Release fence in `write`: if a word above was of a later record in the
            // same slot, the load below sees that the record before that one was whole.
            fence(Acquire);
            let passed = self.newest.load(Relaxed).wrapping_sub(number);
            if passed <= SLOTS as u64 - 2 {
                return Ok(Some(number));
            }
        }
        Err(Overtaken)
    }
}

/// The private state of the writing end. Use it with one board only.
#[derive(Debug)]
pub struct Writer {
    /// Our own number. The shared one is only for readers.
    newest: u64,
}

impl Writer {
    /// Continues after the last whole record.
    pub fn attach(board: &Board) -> Self {
        Self { newest: board.newest.load(Relaxed) }
    }

    /// Writes a record and makes it the newest. Wait-free: O(bytes), no system call, no allocation.
    pub fn write(&mut self, board: &Board, bytes: &[u8]) {
        // Number 0 means that there is no record.
        let next = self.newest.wrapping_add(1).max(1);
        // Pairs with the Acquire fence in `read`: a reader that sees one of the words below sees
        // the `newest` before them.
        fence(Release);
        for (bytes, word) in bytes.chunks(8).zip(board.slot(next)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(all), Relaxed);
        }
        // Release pairs with the first load in `read`.
        board.newest.store(next, Release);
        self.newest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(words: usize) -> (AtomicU64, Vec<AtomicU64>) {
        (AtomicU64::new(0), (0..words * SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    #[test]
    fn the_newest_record_is_read_as_often_as_one_likes() {
        let memory = memory(2);
        let board = Board::new(&memory.0, &memory.1).unwrap();
        let mut into = [0; 12];
        assert_eq!(board.read(&mut into), Ok(None));
        let mut writer = Writer::attach(&board);
        for number in 1..=9u8 {
            writer.write(&board, &[number; 12]);
            for _ in 0..2 {
                assert_eq!(board.read(&mut into), Ok(Some(number.into())));
                assert_eq!(into, [number; 12]);
            }
        }
        assert!(Board::new(&memory.0, &memory.1[1..]).is_none());
    }

    #[test]
    fn a_writer_that_ends_in_the_middle_leaves_the_last_whole_record_and_the_next_goes_on() {
        let memory = memory(2);
        let board = Board::new(&memory.0, &memory.1).unwrap();
        Writer::attach(&board).write(&board, &[1; 16]);
        // The first word of record 2, and then no more.
        board.slot(2)[0].store(7, Relaxed);
        let mut into = [0; 16];
        assert_eq!(board.read(&mut into), Ok(Some(1)));
        assert_eq!(into, [1; 16]);
        Writer::attach(&board).write(&board, &[3; 16]);
        assert_eq!(board.read(&mut into), Ok(Some(2)));
        assert_eq!(into, [3; 16]);
    }

    #[test]
    fn whatever_stands_in_the_control_word_a_read_ends_and_the_next_write_puts_it_right() {
        let memory = memory(1);
        let board = Board::new(&memory.0, &memory.1).unwrap();
        let mut writer = Writer::attach(&board);
        let mut into = [0; 8];
        for value in [0, 1, 3, 1 << 63, u64::MAX - 1, u64::MAX] {
            memory.0.store(value, Relaxed);
            let _ = board.read(&mut into);
            writer.write(&board, &value.to_ne_bytes());
            assert!(board.read(&mut into).unwrap().is_some());
            assert_eq!(into, value.to_ne_bytes());
            memory.0.store(value, Relaxed);
            Writer::attach(&board).write(&board, &[5; 8]);
            assert!(board.read(&mut into).unwrap().is_some(), "a writer that attaches to {value}");
        }
    }

    #[test]
    fn threads_never_see_half_of_a_record() {
        let memory = memory(6);
        let rounds: u64 = if cfg!(miri) { 100 } else { 200_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let board = Board::new(&memory.0, &memory.1).unwrap();
                let mut writer = Writer::attach(&board);
                for number in 1..=rounds {
                    writer.write(&board, &number.to_ne_bytes().repeat(6));
                }
            });
            let board = Board::new(&memory.0, &memory.1).unwrap();
            let (mut into, mut last) = ([0; 48], 0);
            while last < rounds {
                if let Ok(Some(number)) = board.read(&mut into) {
                    assert!(number >= last && into == *number.to_ne_bytes().repeat(6), "torn");
                    last = number;
                }
            }
        });
    }
}
