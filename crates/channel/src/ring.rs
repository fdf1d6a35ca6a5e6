// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The algorithm of the FIFO: frames of bytes from one writer to one reader, through memory that
//! both can write.
//!
//! A put is wait-free. Neither end allocates, locks or enters the kernel.
//!
//! # Layout
//! The ring is a power of two of 64-bit words. Two shared positions, `head` and `tail`, count words
//! since the ring was made and do not overflow in practice (2^64 words). A frame is a header word,
//! then its bytes, padded to whole words.
//!
//! # Approach
//! The header holds the lower half of its own position and the frame's length in bytes. The writer
//! stores 0 in the word after the frame, then the bytes, and the header last. So the reader finds a
//! frame by looking at the word where the next one begins, and touches no other cache line of the
//! writer (FastForward: Giacomoni et al., PPoPP 2008). `head` serves ends that attach later. Only
//! the writer moves `head`. The reader moves `tail`, and so does the writer when it drops a frame.
//!
//! # Invariants against a hostile other side
//! - Each end keeps its own position, the capacity and the policy outside the shared memory.
//! - Of the other end's position only the distance counts. A distance beyond the capacity is
//!   damage.
//! - A header of another position, or of a length beyond the ring, is damage: `Corrupt`.
//! - Indices are masked, so no value leads outside the memory.
//! - Words are atomics: a torn frame is discarded and is never undefined behaviour.

#[path = "ring_observe.rs"]
mod observe;
#[path = "ring_words.rs"]
mod words;

use self::words::Words;
use crate::sync::{AtomicU64, Ordering::*};

/// How often a reader retries when the writer drops the frame that it is reading.
const ATTEMPTS: u32 = 16;
/// After so many empty reads in a row the reader compares its position with `head`, which reveals
/// an overwritten header.
const EMPTY_LOOKS: u32 = 64;

/// What a full FIFO does with a new frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Refuses it: `Full`.
    Refuse,
    /// Drops the oldest frames to make room, and counts them.
    DropOldest,
}

/// Why a put or a get failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// There is no room for the whole frame (ENOSPC).
    #[error("the FIFO is full: no room for the whole frame")]
    Full,
    /// The frame is empty, or larger than the whole ring.
    #[error("invalid frame length: it is 0 or exceeds the capacity of the FIFO")]
    BadLength,
    /// The writer dropped frame after frame while the reader copied them.
    #[error("the writer overtook the reader: try again")]
    Overtaken,
    /// The other end wrote impossible values into the shared words. The reader discards the
    /// contents and continues with an empty ring.
    #[error("the other end corrupted the FIFO: its contents are lost")]
    Corrupt,
}

/// The shared memory as one end sees it.
#[derive(Debug, Clone, Copy)]
pub struct Ring<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    words: Words<'a>,
    overflow: Overflow,
}

impl<'a> Ring<'a> {
    /// `None`: the length of `words` is not a power of two, or not between 4 and 2^31.
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        words: &'a [AtomicU64],
        overflow: Overflow,
    ) -> Option<Self> {
        let fits = words.len().is_power_of_two() && (4..=1 << 31).contains(&words.len());
        fits.then_some(Self { head, tail, words: Words(words), overflow })
    }

    /// Words that all frames may take: one is left for the 0 that follows the last frame.
    fn capacity(&self) -> u64 {
        self.words.0.len() as u64 - 1
    }

    /// Words that a frame takes, its header included. `None`: it never fits.
    #[inline]
    fn frame_words(&self, bytes: u64) -> Option<u64> {
        let words = 1 + bytes.div_ceil(8);
        (bytes > 0 && words <= self.capacity()).then_some(words)
    }

    /// Bytes and words of the frame at `position`. `Ok(None)`: there is none yet. `Err`: its header
    /// is damaged. Acquire pairs with the writer's Release of the header: the frame's words are
    /// there, and the 0 after them.
    #[inline]
    fn frame(&self, position: u64) -> Result<Option<(u64, u64)>, ()> {
        match self.words.at(position).load(Acquire) {
            0 => Ok(None),
            header if header >> 32 == position & TAG => {
                let length = header & TAG;
                Ok(Some((length, self.frame_words(length).ok_or(())?)))
            }
            _ => Err(()),
        }
    }
}

/// Mask of half a word: the part of a position that a header repeats, and the length.
const TAG: u64 = u32::MAX as u64;

/// The private state of the writing end. Use it with one ring only.
#[derive(Debug)]
pub struct Writer {
    /// Our own position. The shared `head` is only for ends that attach later.
    head: u64,
    /// The last known position of the reader. The shared `tail` is read only when this leaves no
    /// room.
    tail: u64,
    /// Frames dropped to make room.
    pub dropped: u64,
    /// Bytes of those frames.
    pub dropped_bytes: u64,
    /// How often the shared words held values that no reader writes.
    pub corrupted: u64,
}

impl Writer {
    /// Continues at the shared head (0 in a new ring). A writer may have died after it finished a
    /// frame and before it moved the head: such frames are kept.
    pub fn attach(ring: &Ring) -> Self {
        // Acquire pairs with Release of head: the frames of an earlier writer are there.
        let counted = ring.head.load(Acquire);
        let mut head = counted;
        while let Ok(Some((_, words))) = ring.frame(head) {
            if head.wrapping_sub(counted) + words > ring.capacity() {
                break;
            }
            head = head.wrapping_add(words);
        }
        // In an undamaged ring it is 0 already.
        ring.words.at(head).store(0, Relaxed);
        // Release pairs with the reader's Acquire of head.
        ring.head.store(head, Release);
        // Acquire pairs with Release of tail.
        let tail = ring.tail.load(Acquire);
        let tail = if head.wrapping_sub(tail) <= ring.capacity() { tail } else { head };
        Self { head, tail, dropped: 0, dropped_bytes: 0, corrupted: 0 }
    }

    /// Puts a whole frame in, or nothing. Bounded: O(bytes), plus O(frames dropped) with
    /// `DropOldest`. No system call, no allocation. Errors: `BadLength`; `Full` (with `Refuse`).
    #[inline(always)]
    pub fn put(&mut self, ring: &Ring, bytes: &[u8]) -> Result<(), RingError> {
        // Fast path: a frame of one cache line costs no loop and no call.
        if let Ok(line) = <&[u8; 64]>::try_from(bytes)
            && self.room(ring) > 8
            && let Some(places) = ring.words.line(self.head.wrapping_add(1))
        {
            // The last word first, so that the header's cache line is written last: a polling
            // reader takes that line from us at any moment.
            ring.words.at(self.head.wrapping_add(9)).store(0, Relaxed);
            words::store_line(places, line);
            self.publish(ring, 64, 9);
            return Ok(());
        }
        self.put_any(ring, bytes)
    }

    #[inline(never)]
    fn put_any(&mut self, ring: &Ring, bytes: &[u8]) -> Result<(), RingError> {
        let need = ring.frame_words(bytes.len() as u64).ok_or(RingError::BadLength)?;
        if self.room(ring) < need {
            self.make_room(ring, need)?;
        }
        ring.words.at(self.head.wrapping_add(need)).store(0, Relaxed);
        ring.words.store(self.head.wrapping_add(1), bytes);
        self.publish(ring, bytes.len() as u64, need);
        Ok(())
    }

    /// Publishes a frame whose bytes, and the 0 after them, are stored: stores its header and moves
    /// the head.
    #[inline(always)]
    fn publish(&mut self, ring: &Ring, length: u64, need: u64) {
        let (words, head) = (ring.words, self.head);
        let next = head.wrapping_add(need);
        // Release pairs with the reader's Acquire of the header: it sees the frame's words and the
        // 0 after them.
        words.at(head).store((head & TAG) << 32 | length, Release);
        self.head = next;
        // Release pairs with every Acquire of head: the header is there.
        ring.head.store(next, Release);
    }

    /// Whether a frame of so many bytes fits. Reads the reader's position.
    pub fn has_room(&mut self, ring: &Ring, bytes: usize) -> bool {
        self.refresh(ring);
        let fits = ring.frame_words(bytes as u64).is_some_and(|need| need <= self.room(ring));
        if !fits {
            self.republish(ring);
        }
        fits
    }

    /// Stores our position in the shared head again, in case something overwrote it. A reader that
    /// found damage continues there.
    fn republish(&self, ring: &Ring) {
        // Release pairs with the reader's Acquire of head.
        ring.head.store(self.head, Release);
    }

    fn room(&self, ring: &Ring) -> u64 {
        ring.capacity() - self.head.wrapping_sub(self.tail)
    }

    #[cold]
    fn make_room(&mut self, ring: &Ring, need: u64) -> Result<(), RingError> {
        self.refresh(ring);
        while self.room(ring) < need {
            match ring.overflow {
                Overflow::Refuse => {
                    self.republish(ring);
                    return Err(RingError::Full);
                }
                Overflow::DropOldest => self.drop_oldest(ring),
            }
        }
        Ok(())
    }

    /// Reads the position of the reader.
    fn refresh(&mut self, ring: &Ring) {
        // Acquire pairs with the reader's Release of tail: its reads of those words are done.
        let tail = ring.tail.load(Acquire);
        // A valid position only moves forward, and never beyond the head.
        if self.head.wrapping_sub(tail) <= self.head.wrapping_sub(self.tail) {
            self.tail = tail;
            return;
        }
        self.corrupted += 1;
        // A reader beyond the head took a forged frame. It would find no frames and we no room, for
        // ever. So we follow it.
        if ring.overflow == Overflow::Refuse && tail.wrapping_sub(self.head) <= ring.capacity() {
            (self.head, self.tail) = (tail, tail);
            ring.words.at(tail).store(0, Relaxed);
            self.republish(ring);
        }
    }

    /// Drops the oldest frame, unless the reader has taken it meanwhile.
    fn drop_oldest(&mut self, ring: &Ring) {
        let held = self.head.wrapping_sub(self.tail);
        let (bytes, next) = match ring.frame(self.tail) {
            Ok(Some((bytes, words))) if words <= held => (bytes, self.tail.wrapping_add(words)),
            // Something overwrote the header: drop all frames.
            _ => {
                self.corrupted += 1;
                (0, self.head)
            }
        };
        // AcqRel: the reader's exchange of the same word comes before this (and has its frame), or
        // fails.
        match ring.tail.compare_exchange(self.tail, next, AcqRel, Acquire) {
            Ok(_) => {
                self.dropped += 1;
                self.dropped_bytes += bytes;
                self.tail = next;
            }
            Err(tail) if self.head.wrapping_sub(tail) < held => self.tail = tail,
            Err(_) => {
                // No reader writes such a value: replace it by ours.
                self.corrupted += 1;
                // Release pairs with the reader's Acquire of tail.
                ring.tail.store(next, Release);
                self.tail = next;
            }
        }
    }
}

/// The private state of the reading end. Use it with one ring only.
#[derive(Debug)]
pub struct Reader {
    /// Our position. With `DropOldest` the writer may have moved the shared tail, which then
    /// counts.
    tail: u64,
    /// Bytes of the frame at `tail` that were copied out already.
    consumed: u64,
    /// Words by which `head` may lag behind `tail`: those of the last frame taken. A frame becomes
    /// visible before the head moves.
    lag: u64,
    /// Empty reads in a row.
    empty: u32,
    /// How often the shared words held values that no writer writes.
    pub corrupted: u64,
}

impl Reader {
    /// Continues at the shared tail (0 in a new ring).
    pub fn attach(ring: &Ring) -> Self {
        // Acquire pairs with Release of tail: the reads of an earlier reader are done.
        // The length of its last frame is unknown, so the lag is the largest possible.
        Self {
            tail: ring.tail.load(Acquire),
            consumed: 0,
            lag: ring.capacity(),
            empty: 0,
            corrupted: 0,
        }
    }

    /// Whether there is no frame. A damaged header counts as a frame: `get` then reports it.
    pub fn is_empty(&self, ring: &Ring) -> bool {
        let tail = match ring.overflow {
            Overflow::Refuse => self.tail,
            Overflow::DropOldest => ring.tail.load(Relaxed),
        };
        ring.words.at(tail).load(Relaxed) == 0
    }

    /// For use before a wait: whether `get` has a frame, or damage, to return. `get` alone finds
    /// damage only after many empty reads; this checks for it at once. Bounded, no system call.
    pub fn is_ready(&mut self, ring: &Ring) -> bool {
        let tail = match ring.overflow {
            Overflow::Refuse => self.tail,
            // Acquire pairs with the writer's exchange of tail.
            Overflow::DropOldest => ring.tail.load(Acquire),
        };
        if ring.words.at(tail).load(Relaxed) != 0 {
            return true;
        }
        // A writer that moves the tail is inside a put, after which it wakes sleepers.
        let moved = || ring.overflow == Overflow::DropOldest && ring.tail.load(Acquire) != tail;
        if self.head_agrees(ring, tail) || moved() {
            return false;
        }
        self.empty = EMPTY_LOOKS - 1;
        true
    }

    /// Bytes that `get` could copy now. Bounded: O(frames). With `DropOldest` the writer may drop
    /// them meanwhile.
    pub fn held_bytes(&self, ring: &Ring) -> u64 {
        let tail = match ring.overflow {
            Overflow::Refuse => self.tail,
            Overflow::DropOldest => ring.tail.load(Relaxed),
        };
        let consumed = if tail == self.tail { self.consumed } else { 0 };
        let (mut position, mut held) = (tail, 0u64);
        while let Ok(Some((bytes, words))) = ring.frame(position) {
            (position, held) = (position.wrapping_add(words), held + bytes);
            if position.wrapping_sub(tail) > ring.capacity() {
                break;
            }
        }
        held.saturating_sub(consumed)
    }

    /// Copies bytes of the oldest frame. The next call returns those that do not fit into `into`.
    /// 0: the ring is empty (or `into` is). Bounded: O(bytes), with `DropOldest` at most 16 times.
    /// No system call, no allocation. Errors: `Corrupt`, `Overtaken`.
    #[inline]
    pub fn get(&mut self, ring: &Ring, into: &mut [u8]) -> Result<usize, RingError> {
        if into.is_empty() {
            return Ok(0);
        }
        match ring.overflow {
            Overflow::Refuse => self.get_alone(ring, into),
            Overflow::DropOldest => {
                for _ in 0..ATTEMPTS {
                    if let Some(count) = self.get_contended(ring, into)? {
                        return Ok(count);
                    }
                }
                Err(RingError::Overtaken)
            }
        }
    }

    /// With `Refuse` only we move the tail.
    #[inline]
    fn get_alone(&mut self, ring: &Ring, into: &mut [u8]) -> Result<usize, RingError> {
        let (length, words) = match ring.frame(self.tail) {
            Ok(Some((length, words))) if self.consumed < length => (length, words),
            Ok(None) if self.consumed == 0 => return self.found_empty(ring),
            _ => return self.reset(ring),
        };
        self.empty = 0;
        // Fast path: as in `put`.
        if (length, self.consumed) == (64, 0)
            && let Some(line) = into.first_chunk_mut::<64>()
            && let Some(places) = ring.words.line(self.tail.wrapping_add(1))
        {
            words::load_line(places, line);
            self.took(ring, words);
            return Ok(64);
        }
        let count = (length - self.consumed).min(into.len() as u64);
        ring.words.load(self.tail.wrapping_add(1), self.consumed, &mut into[..count as usize]);
        self.consumed += count;
        if self.consumed == length {
            self.consumed = 0;
            self.took(ring, words);
        }
        Ok(count as usize)
    }

    /// The frame at the tail, of so many words, was copied out whole.
    #[inline(always)]
    fn took(&mut self, ring: &Ring, words: u64) {
        (self.tail, self.lag) = (self.tail.wrapping_add(words), words);
        // Release pairs with the writer's Acquire of tail: our reads are done before it writes
        // there again.
        ring.tail.store(self.tail, Release);
    }

    #[inline]
    fn found_empty(&mut self, ring: &Ring) -> Result<usize, RingError> {
        self.empty += 1;
        match self.empty < EMPTY_LOOKS {
            true => Ok(0),
            false => self.check_empty(ring),
        }
    }

    /// Checks for an overwritten position or header. Without this check the writer might see a full
    /// ring for ever.
    #[cold]
    fn check_empty(&mut self, ring: &Ring) -> Result<usize, RingError> {
        self.empty = 0;
        match self.head_agrees(ring, self.tail) || ring.words.at(self.tail).load(Relaxed) != 0 {
            true => Ok(0),
            false => self.reset(ring),
        }
    }

    /// Whether `head` agrees that there is no frame at `tail`. If it counts frames after `tail`, or
    /// has moved back, something overwrote a position or a header. With `Refuse` this also stores
    /// our position in the shared tail again.
    fn head_agrees(&self, ring: &Ring, tail: u64) -> bool {
        if ring.overflow == Overflow::Refuse && ring.tail.load(Relaxed) != self.tail {
            // Release pairs with the writer's Acquire of tail.
            ring.tail.store(self.tail, Release);
        }
        // Acquire pairs with the writer's Release of head: a frame that it counts has its header.
        self.counts_nothing_after(ring.head.load(Acquire), tail)
    }

    fn counts_nothing_after(&self, head: u64, tail: u64) -> bool {
        // A tail that is not ours is the writer's, whose head had counted the frames it dropped.
        let lag = if tail == self.tail { self.lag } else { 0 };
        tail.wrapping_sub(head) <= lag
    }

    /// Reads while the writer may drop the frame. `None`: it did.
    fn get_contended(&mut self, ring: &Ring, into: &mut [u8]) -> Result<Option<usize>, RingError> {
        // Acquire pairs with the writer's exchange of tail.
        let tail = ring.tail.load(Acquire);
        if tail != self.tail {
            (self.tail, self.consumed, self.lag) = (tail, 0, 0);
        }
        let (length, words) = match ring.frame(tail) {
            Ok(Some((length, words))) if self.consumed < length => (length, words),
            other => {
                // Acquire pairs with the writer's Release of head: a frame that it counts has its
                // header.
                let head = ring.head.load(Acquire);
                if other == Ok(None) && self.counts_nothing_after(head, tail) {
                    return Ok(Some(0));
                }
                // A frame came, or ours was dropped, or something overwrote the header. Only in the
                // last case the tail is unchanged and there is still no valid frame.
                if other == Ok(None) && ring.words.at(tail).load(Relaxed) != 0 {
                    return Ok(None);
                }
                // AcqRel as below.
                if ring.tail.compare_exchange(tail, head, AcqRel, Acquire).is_err() {
                    return Ok(None);
                }
                self.corrupted += 1;
                (self.tail, self.consumed, self.lag) = (head, 0, 0);
                return Err(RingError::Corrupt);
            }
        };
        let count = (length - self.consumed).min(into.len() as u64);
        ring.words.load(tail.wrapping_add(1), self.consumed, &mut into[..count as usize]);
        let whole = self.consumed + count == length;
        let next = if whole { tail.wrapping_add(words) } else { tail };
        // AcqRel: Release orders our reads of the words before the writer may reuse them. It fails
        // where the writer has dropped the frame meanwhile: the copy is then no frame.
        if ring.tail.compare_exchange(tail, next, AcqRel, Acquire).is_err() {
            self.consumed = 0;
            return Ok(None);
        }
        if whole {
            (self.tail, self.consumed, self.lag) = (next, 0, words);
        } else {
            self.consumed += count;
        }
        Ok(Some(count as usize))
    }

    /// Discards everything and continues with an empty ring. For `Refuse`: only we move the tail.
    #[cold]
    fn reset(&mut self, ring: &Ring) -> Result<usize, RingError> {
        self.corrupted += 1;
        // Acquire and Release as everywhere.
        (self.tail, self.consumed, self.lag) = (ring.head.load(Acquire), 0, 0);
        ring.tail.store(self.tail, Release);
        Err(RingError::Corrupt)
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
