//! The algorithm of the rt-FIFO: records of bytes from one writer to one reader through memory that both can
//! write. `put` is wait-free. Nobody allocates, locks or enters the kernel.
//!
//! Memory: a power of two of 64-bit words, and two positions that count words from the beginning of time
//! (2^64 words last for ever). A frame is one word with its length in bytes, then its bytes, padded to a word;
//! in a ring of fixed records there is no length. The writer alone moves `head`; the reader moves `tail`, and so
//! does the writer when it drops the oldest.
//!
//! **Nobody trusts what the other side can write.** Each end keeps its own position, the capacity and the policy
//! outside the shared memory; of the other's position only the distance counts, and a distance beyond the
//! capacity or a length beyond the distance is `Corrupt`. Indices are masked, so whatever stands there is never
//! followed out of the memory. Words are atomics: a torn frame is thrown away, never undefined behaviour.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering::*};
use std::num::NonZeroU32;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering::*};

/// How often a reader begins anew because the writer dropped the frame it was reading, before it says so.
const ATTEMPTS: u32 = 16;

/// What a full ring does with a new frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// It is not taken: `Full`.
    Refuse,
    /// The oldest frames make room, and are counted.
    DropOldest,
}

/// What both ends must agree on before they share a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Words, a power of two.
    pub words: usize,
    /// Bytes of every frame, where all are of one length.
    pub record_bytes: Option<NonZeroU32>,
    pub overflow: Overflow,
}

impl Shape {
    /// Words that a frame takes, its length word included. `None`: it can never be put in.
    fn frame_words(&self, bytes: u64) -> Option<u64> {
        let words = match self.record_bytes {
            Some(record) if u64::from(record.get()) == bytes => bytes.div_ceil(8),
            Some(_) => return None,
            None => 1 + bytes.div_ceil(8),
        };
        (bytes > 0 && words <= self.words as u64).then_some(words)
    }

    fn header_words(&self) -> u64 {
        u64::from(self.record_bytes.is_none())
    }
}

/// Why a frame was not taken or given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// There is no room for the whole frame (ENOSPC).
    #[error("no room for the whole frame")]
    Full,
    /// It is empty, larger than the ring, or not of the record's length.
    #[error("the frame does not fit: it is empty, larger than the ring or not of the record's length")]
    BadLength,
    /// The writer dropped frame after frame while each was being read.
    #[error("the writer is overtaking the reader; try again")]
    Overtaken,
    /// The other side wrote into the control words what cannot be. The ring goes on from an empty state.
    #[error("the other side has corrupted the ring; what was in it is lost")]
    Corrupt,
}

/// The shared memory as one end sees it.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    words: &'a [AtomicU64],
    shape: Shape,
}

impl<'a> Ring<'a> {
    /// `None`: `words` is not as long as `shape` says, or no power of two.
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        words: &'a [AtomicU64],
        shape: Shape,
    ) -> Option<Self> {
        let fits = words.len() == shape.words && shape.words.is_power_of_two();
        fits.then_some(Self { head, tail, words, shape })
    }

    #[inline]
    fn word(&self, position: u64) -> &'a AtomicU64 {
        &self.words[(position as usize) & (self.words.len() - 1)]
    }

    fn capacity(&self) -> u64 {
        self.words.len() as u64
    }

    /// May so many words be between tail and head?
    fn holds(&self, words: u64) -> bool {
        let whole = match self.shape.record_bytes {
            Some(record) => words.is_multiple_of(u64::from(record.get()).div_ceil(8)),
            None => true,
        };
        words <= self.capacity() && whole
    }

    #[inline]
    fn store(&self, position: u64, bytes: &[u8]) {
        let mut position = position;
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(position).store(u64::from_ne_bytes(word), Relaxed);
            position = position.wrapping_add(1);
        }
        if !chunks.remainder().is_empty() {
            let mut word = [0; 8];
            word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
            self.word(position).store(u64::from_ne_bytes(word), Relaxed);
        }
    }

    /// Bytes from `offset` on of a frame whose bytes begin at `position`.
    #[inline]
    fn load(&self, position: u64, offset: u64, into: &mut [u8]) {
        let mut place = offset;
        let mut into = into;
        while !into.is_empty() {
            let word = self.word(position.wrapping_add(place / 8)).load(Relaxed).to_ne_bytes();
            let from = &word[(place % 8) as usize..];
            let count = from.len().min(into.len());
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&from[..count]);
            place += count as u64;
            into = later;
        }
    }
}

/// The end that puts frames in: its own memory, to be used with the same ring always.
#[derive(Debug)]
pub struct Writer {
    /// Our own position: what stands in the shared memory is only for the reader's eyes.
    head: u64,
    /// As far as the reader is known to have come: the shared one is read only when this leaves no room.
    tail: u64,
    /// Frames thrown away to make room.
    pub dropped: u64,
    /// How often the shared words held what no reader writes.
    pub corrupted: u64,
}

impl Writer {
    /// Takes up where the shared head stands (0 in a new ring).
    pub fn attach(ring: &Ring) -> Self {
        // Acquire pairs with Release of head: what an earlier writer put in before it ended is there.
        let head = ring.head.load(Acquire);
        let tail = ring.tail.load(Acquire);
        let tail = if ring.holds(head.wrapping_sub(tail)) { tail } else { head };
        Self { head, tail, dropped: 0, corrupted: 0 }
    }

    /// Puts a whole frame in, or nothing. Bounded: O(bytes), plus O(frames dropped) with `DropOldest`. No system
    /// call, no allocation. Errors: `BadLength`; `Full` (with `Refuse`).
    #[inline]
    pub fn put(&mut self, ring: &Ring, bytes: &[u8]) -> Result<(), RingError> {
        let need = ring.shape.frame_words(bytes.len() as u64).ok_or(RingError::BadLength)?;
        if self.room(ring) < need {
            self.make_room(ring, need)?;
        }
        let mut position = self.head;
        if ring.shape.record_bytes.is_none() {
            ring.word(position).store(bytes.len() as u64, Relaxed);
            position = position.wrapping_add(1);
        }
        ring.store(position, bytes);
        self.head = self.head.wrapping_add(need);
        // Release pairs with the reader's Acquire of head: it sees the frame's words.
        ring.head.store(self.head, Release);
        Ok(())
    }

    /// Is there room for a frame of so many bytes? Looks at the reader's position.
    pub fn has_room(&mut self, ring: &Ring, bytes: usize) -> bool {
        self.refresh(ring);
        ring.shape.frame_words(bytes as u64).is_some_and(|need| need <= self.room(ring))
    }

    fn room(&self, ring: &Ring) -> u64 {
        ring.capacity() - self.head.wrapping_sub(self.tail)
    }

    #[cold]
    fn make_room(&mut self, ring: &Ring, need: u64) -> Result<(), RingError> {
        self.refresh(ring);
        while self.room(ring) < need {
            match ring.shape.overflow {
                Overflow::Refuse => {
                    // Said again: had somebody scribbled over it, the reader would see an empty ring for ever.
                    // Release pairs with the reader's Acquire of head.
                    ring.head.store(self.head, Release);
                    return Err(RingError::Full);
                }
                Overflow::DropOldest => self.drop_oldest(ring),
            }
        }
        Ok(())
    }

    /// Looks how far the reader has come.
    fn refresh(&mut self, ring: &Ring) {
        // Acquire pairs with the reader's Release of tail: its reads of those words are done.
        let tail = ring.tail.load(Acquire);
        let held = self.head.wrapping_sub(tail);
        // It only ever goes forward, and never beyond what was put in.
        match held <= self.head.wrapping_sub(self.tail) && ring.holds(held) {
            true => self.tail = tail,
            false => self.corrupted += 1,
        }
    }

    /// Takes the oldest frame away from the reader, if it has not taken it meanwhile.
    fn drop_oldest(&mut self, ring: &Ring) {
        let held = self.head.wrapping_sub(self.tail);
        let length = match ring.shape.record_bytes {
            Some(record) => u64::from(record.get()),
            None => ring.word(self.tail).load(Relaxed),
        };
        let next = match ring.shape.frame_words(length) {
            Some(words) if words <= held => self.tail.wrapping_add(words),
            // Somebody scribbled over the length: everything goes.
            _ => {
                self.corrupted += 1;
                self.head
            }
        };
        // AcqRel: the reader's exchange of the same word is either before (and has its frame) or fails.
        match ring.tail.compare_exchange(self.tail, next, AcqRel, Acquire) {
            Ok(_) => {
                self.dropped += 1;
                self.tail = next;
            }
            Err(tail) if self.head.wrapping_sub(tail) < held && ring.holds(self.head.wrapping_sub(tail)) => {
                self.tail = tail;
            }
            Err(_) => {
                // Nothing a reader could have written: ours is put in its place.
                self.corrupted += 1;
                // Release pairs with the reader's Acquire of tail.
                ring.tail.store(next, Release);
                self.tail = next;
            }
        }
    }
}

/// The end that takes frames out: its own memory, to be used with the same ring always.
#[derive(Debug)]
pub struct Reader {
    /// Our position. With `DropOldest` the writer may have moved on: the shared tail then counts.
    tail: u64,
    /// As far as the writer is known to have come.
    head: u64,
    /// Bytes of the frame at `tail` that were given already.
    given: u64,
    /// How often the shared words held what no writer writes.
    pub corrupted: u64,
}

impl Reader {
    /// Takes up where the shared tail stands (0 in a new ring).
    pub fn attach(ring: &Ring) -> Self {
        // Acquire pairs with Release of tail and head: what earlier ends did is done.
        let tail = ring.tail.load(Acquire);
        let head = ring.head.load(Acquire);
        let mut reader = Self { tail, head, given: 0, corrupted: 0 };
        if ring.shape.overflow == Overflow::Refuse && !ring.holds(head.wrapping_sub(tail)) {
            let _ = reader.reset(ring);
        }
        reader
    }

    /// Is there nothing to be had?
    pub fn is_empty(&self, ring: &Ring) -> bool {
        let tail = match ring.shape.overflow {
            Overflow::Refuse => self.tail,
            Overflow::DropOldest => ring.tail.load(Relaxed),
        };
        // Acquire pairs with the writer's Release of head.
        ring.head.load(Acquire) == tail
    }

    /// Copies bytes of the oldest frame: what does not fit into `into` comes with the next call. 0: the ring is
    /// empty (or `into` is). Bounded: O(bytes), with `DropOldest` at most 16 times. No system call, no allocation.
    /// Errors: `Corrupt`, `Overtaken`.
    #[inline]
    pub fn get(&mut self, ring: &Ring, into: &mut [u8]) -> Result<usize, RingError> {
        if into.is_empty() {
            return Ok(0);
        }
        match ring.shape.overflow {
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

    /// Nobody else moves the tail.
    #[inline]
    fn get_alone(&mut self, ring: &Ring, into: &mut [u8]) -> Result<usize, RingError> {
        if self.head == self.tail {
            // Acquire pairs with the writer's Release of head: the frames' words are there.
            self.head = ring.head.load(Acquire);
            if self.head == self.tail {
                // Had somebody scribbled over it, the writer would see a full ring for ever.
                if ring.tail.load(Relaxed) != self.tail {
                    // Release pairs with the writer's Acquire of tail.
                    ring.tail.store(self.tail, Release);
                }
                return Ok(0);
            }
            if !ring.holds(self.head.wrapping_sub(self.tail)) {
                return self.reset(ring);
            }
        }
        let Some((length, words)) = self.frame(ring, self.tail, self.head) else { return self.reset(ring) };
        let count = (length - self.given).min(into.len() as u64);
        let bytes = self.tail.wrapping_add(ring.shape.header_words());
        ring.load(bytes, self.given, &mut into[..count as usize]);
        self.given += count;
        if self.given == length {
            self.given = 0;
            self.tail = self.tail.wrapping_add(words);
            // Release pairs with the writer's Acquire of tail: our reads are done before it writes there again.
            ring.tail.store(self.tail, Release);
        }
        Ok(count as usize)
    }

    /// The writer may take the frame away while it is read. `None`: it did.
    fn get_contended(&mut self, ring: &Ring, into: &mut [u8]) -> Result<Option<usize>, RingError> {
        // Acquire pairs with the writer's exchange of tail.
        let tail = ring.tail.load(Acquire);
        if tail != self.tail {
            (self.tail, self.given) = (tail, 0);
        }
        // Acquire pairs with the writer's Release of head: the frame's words are there.
        let head = ring.head.load(Acquire);
        if head == tail {
            return Ok(Some(0));
        }
        let frame = match ring.holds(head.wrapping_sub(tail)) {
            true => self.frame(ring, tail, head),
            false => None,
        };
        let Some((length, words)) = frame else {
            // Torn by a drop, or scribbled over. Torn: the writer has moved the tail, so this exchange fails.
            return match ring.tail.compare_exchange(tail, head, AcqRel, Acquire) {
                Ok(_) => {
                    self.corrupted += 1;
                    (self.tail, self.given) = (head, 0);
                    Err(RingError::Corrupt)
                }
                Err(_) => Ok(None),
            };
        };
        let count = (length - self.given).min(into.len() as u64);
        let bytes = tail.wrapping_add(ring.shape.header_words());
        ring.load(bytes, self.given, &mut into[..count as usize]);
        let whole = self.given + count == length;
        let next = if whole { tail.wrapping_add(words) } else { tail };
        // AcqRel: Release orders our reads of the words before the writer may reuse them, and fails where the writer
        // has dropped the frame meanwhile: what was copied is then no frame.
        if ring.tail.compare_exchange(tail, next, AcqRel, Acquire).is_err() {
            self.given = 0;
            return Ok(None);
        }
        self.given = if whole { 0 } else { self.given + count };
        self.tail = next;
        Ok(Some(count as usize))
    }

    /// Bytes and words of the frame at `tail`, if it can be one.
    #[inline]
    fn frame(&self, ring: &Ring, tail: u64, head: u64) -> Option<(u64, u64)> {
        let length = match ring.shape.record_bytes {
            Some(record) => u64::from(record.get()),
            None => ring.word(tail).load(Relaxed),
        };
        let words = ring.shape.frame_words(length)?;
        (words <= head.wrapping_sub(tail) && self.given < length).then_some((length, words))
    }

    /// Goes on from an empty ring (`Refuse`: the tail is ours alone).
    #[cold]
    fn reset(&mut self, ring: &Ring) -> Result<usize, RingError> {
        self.corrupted += 1;
        // Acquire and Release as everywhere.
        self.head = ring.head.load(Acquire);
        (self.tail, self.given) = (self.head, 0);
        ring.tail.store(self.tail, Release);
        Err(RingError::Corrupt)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ring_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "ring_models.rs"]
mod models;
