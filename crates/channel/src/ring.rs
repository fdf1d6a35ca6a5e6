//! The algorithm of the rt-FIFO: frames of bytes from one writer to one reader through memory that both can
//! write. `put` is wait-free. Nobody allocates, locks or enters the kernel.
//!
//! Memory: a power of two of 64-bit words, and two positions that count words from the beginning of time
//! (2^64 words last for ever). A frame is a header word, then its bytes, padded to a word. The header holds the
//! lower half of its own position and the length: it is stored last, and the word after the frame is made 0
//! before, so the reader finds a frame by looking where the next one begins and touches no other line of the
//! writer (as FastForward does: Giacomoni et al., PPoPP 2008). `head` is for those who attach later. The writer
//! alone moves `head`; the reader moves `tail`, and so does the writer when it drops the oldest.
//!
//! **Nobody trusts what the other side can write.** Each end keeps its own position, the capacity and the policy
//! outside the shared memory; of the other's position only the distance counts, and a distance beyond the
//! capacity, a header of another position or a length beyond the ring is `Corrupt`. Indices are masked, so whatever
//! stands there is never followed out of the memory. Words are atomics: a torn frame is thrown away, never
//! undefined behaviour.

use crate::sync::{AtomicU64, Ordering::*};

/// How often a reader begins anew because the writer dropped the frame it was reading, before it says so.
const ATTEMPTS: u32 = 16;
/// After so many empty looks in a row the reader compares its position with `head`: scribbled-over headers show.
const EMPTY_LOOKS: u32 = 64;

/// What a full ring does with a new frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// It is not taken: `Full`.
    Refuse,
    /// The oldest frames make room, and are counted.
    DropOldest,
}

/// Why a frame was not taken or given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// There is no room for the whole frame (ENOSPC).
    #[error("no room for the whole frame")]
    Full,
    #[error("an empty frame, or one larger than the ring")]
    BadLength,
    /// The writer dropped frame after frame while each was being read.
    #[error("the writer is overtaking the reader; try again")]
    Overtaken,
    /// The other side wrote into the control words what cannot be. The ring goes on from an empty state.
    #[error("the other side has corrupted the ring; what was in it is lost")]
    Corrupt,
}

/// The words of frames, by positions; of a power of two.
#[derive(Debug, Clone, Copy)]
struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    #[inline]
    fn at(self, position: u64) -> &'a AtomicU64 {
        &self.0[(position as usize) & (self.0.len() - 1)]
    }

    /// The words from `position` on, up to the end of the memory and at most `count`.
    #[inline]
    fn run(self, position: u64, count: usize) -> &'a [AtomicU64] {
        let from = &self.0[(position as usize) & (self.0.len() - 1)..];
        &from[..count.min(from.len())]
    }

    /// The words of one line, if the memory does not end in between.
    #[inline(always)]
    fn line(self, position: u64) -> Option<&'a [AtomicU64; 8]> {
        self.0[(position as usize) & (self.0.len() - 1)..].first_chunk::<8>()
    }

    /// Where the memory ends, it goes on at its beginning.
    fn store(self, position: u64, bytes: &[u8]) {
        let run = self.run(position, bytes.len().div_ceil(8));
        let (now, later) = bytes.split_at(bytes.len().min(run.len() * 8));
        store_bytes(run, now);
        store_bytes(self.run(position.wrapping_add(run.len() as u64), later.len().div_ceil(8)), later);
    }

    /// Bytes from `offset` on of a frame whose bytes begin at `position`.
    #[inline]
    fn load(self, position: u64, offset: u64, into: &mut [u8]) {
        if offset.is_multiple_of(8) {
            let mut position = position.wrapping_add(offset / 8);
            let (mut words, rest) = into.as_chunks_mut::<8>();
            while !words.is_empty() {
                let run = self.run(position, words.len());
                let (now, later) = words.split_at_mut(run.len());
                for (place, word) in run.iter().zip(now) {
                    *word = place.load(Relaxed).to_ne_bytes();
                }
                words = later;
                position = position.wrapping_add(run.len() as u64);
            }
            let count = rest.len();
            if count > 0 {
                rest.copy_from_slice(&self.at(position).load(Relaxed).to_ne_bytes()[..count]);
            }
        } else {
            for (place, byte) in (offset..).zip(into) {
                let word = self.at(position.wrapping_add(place / 8)).load(Relaxed).to_ne_bytes();
                *byte = word[(place % 8) as usize];
            }
        }
    }
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
    /// `None`: `words` is not a power of two long, is shorter than 4 or longer than 2^31.
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        words: &'a [AtomicU64],
        overflow: Overflow,
    ) -> Option<Self> {
        let fits = words.len().is_power_of_two() && (4..=1 << 31).contains(&words.len());
        fits.then_some(Self { head, tail, words: Words(words), overflow })
    }

    /// Words of frames that fit at once: one less than there are, for the 0 that follows the last.
    fn capacity(&self) -> u64 {
        self.words.0.len() as u64 - 1
    }

    /// Words that a frame takes, its header included. `None`: it can never be put in.
    #[inline]
    fn frame_words(&self, bytes: u64) -> Option<u64> {
        let words = 1 + bytes.div_ceil(8);
        (bytes > 0 && words <= self.capacity()).then_some(words)
    }

    /// Bytes and words of the frame at `position`, if its header can be one. Acquire pairs with the writer's Release
    /// of the header: the frame's words are there, and the 0 behind them.
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

#[inline(always)]
fn store_line(places: &[AtomicU64; 8], line: &[u8; 64]) {
    for (place, word) in places.iter().zip(line.as_chunks::<8>().0) {
        place.store(u64::from_ne_bytes(*word), Relaxed);
    }
}

/// Lines first: a loop of constant length costs half the instructions.
fn store_bytes(places: &[AtomicU64], bytes: &[u8]) {
    let (lines, rest) = bytes.as_chunks::<64>();
    for (places, line) in places.as_chunks::<8>().0.iter().zip(lines) {
        store_line(places, line);
    }
    let places = &places[lines.len() * 8..];
    let (words, rest) = rest.as_chunks::<8>();
    for (place, word) in places.iter().zip(words) {
        place.store(u64::from_ne_bytes(*word), Relaxed);
    }
    if !rest.is_empty() {
        // What the last word lacks is 0.
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        places[words.len()].store(u64::from_ne_bytes(word), Relaxed);
    }
}

/// Half a word: the part of a position that a header repeats, and the length.
const TAG: u64 = u32::MAX as u64;

/// The end that puts frames in: its own memory, to be used with the same ring always.
#[derive(Debug)]
pub struct Writer {
    /// Our own position: what stands in the shared memory is only for those who attach.
    head: u64,
    /// As far as the reader is known to have come: the shared one is read only when this leaves no room.
    tail: u64,
    /// Frames thrown away to make room.
    pub dropped: u64,
    /// Bytes of those frames.
    pub dropped_bytes: u64,
    /// How often the shared words held what no reader writes.
    pub corrupted: u64,
}

impl Writer {
    /// Takes up where the shared head stands (0 in a new ring), or behind the frames that a writer may have
    /// finished before it died and not counted.
    pub fn attach(ring: &Ring) -> Self {
        // Acquire pairs with Release of head: what an earlier writer put in before it ended is there.
        let counted = ring.head.load(Acquire);
        let mut head = counted;
        while let Ok(Some((_, words))) = ring.frame(head) {
            if head.wrapping_sub(counted) + words > ring.capacity() {
                break;
            }
            head = head.wrapping_add(words);
        }
        // In an honest ring it is 0 already.
        ring.words.at(head).store(0, Relaxed);
        // Release pairs with the reader's Acquire of head.
        ring.head.store(head, Release);
        // Acquire pairs with Release of tail.
        let tail = ring.tail.load(Acquire);
        let tail = if head.wrapping_sub(tail) <= ring.capacity() { tail } else { head };
        Self { head, tail, dropped: 0, dropped_bytes: 0, corrupted: 0 }
    }

    /// Puts a whole frame in, or nothing. Bounded: O(bytes), plus O(frames dropped) with `DropOldest`. No system
    /// call, no allocation. Errors: `BadLength`; `Full` (with `Refuse`).
    #[inline(always)]
    pub fn put(&mut self, ring: &Ring, bytes: &[u8]) -> Result<(), RingError> {
        // A record of one line costs no loop and no call.
        if let Ok(line) = <&[u8; 64]>::try_from(bytes)
            && self.room(ring) > 8
            && let Some(places) = ring.words.line(self.head.wrapping_add(1))
        {
            store_line(places, line);
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
        ring.words.store(self.head.wrapping_add(1), bytes);
        self.publish(ring, bytes.len() as u64, need);
        Ok(())
    }

    /// The frame's bytes are there: its header now, and who looks sees all of it.
    #[inline(always)]
    fn publish(&mut self, ring: &Ring, length: u64, need: u64) {
        let (words, head) = (ring.words, self.head);
        let next = head.wrapping_add(need);
        words.at(next).store(0, Relaxed);
        // Release pairs with the reader's Acquire of the header: it sees the frame's words and the 0 behind them.
        words.at(head).store((head & TAG) << 32 | length, Release);
        self.head = next;
        // Release pairs with the Acquire of who looks at head: the header is there.
        ring.head.store(next, Release);
    }

    /// Is there room for a frame of so many bytes? Looks at the reader's position.
    pub fn has_room(&mut self, ring: &Ring, bytes: usize) -> bool {
        self.refresh(ring);
        let fits = ring.frame_words(bytes as u64).is_some_and(|need| need <= self.room(ring));
        if !fits {
            self.republish(ring);
        }
        fits
    }

    /// In case somebody scribbled over it: a reader that has lost its way finds it by our position.
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

    /// Looks how far the reader has come.
    fn refresh(&mut self, ring: &Ring) {
        // Acquire pairs with the reader's Release of tail: its reads of those words are done.
        let tail = ring.tail.load(Acquire);
        // It only ever goes forward, and never beyond what was put in.
        if self.head.wrapping_sub(tail) <= self.head.wrapping_sub(self.tail) {
            self.tail = tail;
            return;
        }
        self.corrupted += 1;
        // Beyond is a reader who took what somebody forged. It would find nothing and we no room, for ever: we follow it.
        if ring.overflow == Overflow::Refuse && tail.wrapping_sub(self.head) <= ring.capacity() {
            (self.head, self.tail) = (tail, tail);
            ring.words.at(tail).store(0, Relaxed);
            self.republish(ring);
        }
    }

    /// Takes the oldest frame away from the reader, if it has not taken it meanwhile.
    fn drop_oldest(&mut self, ring: &Ring) {
        let held = self.head.wrapping_sub(self.tail);
        let (bytes, next) = match ring.frame(self.tail) {
            Ok(Some((bytes, words))) if words <= held => (bytes, self.tail.wrapping_add(words)),
            // Somebody scribbled over the header: everything goes.
            _ => {
                self.corrupted += 1;
                (0, self.head)
            }
        };
        // AcqRel: the reader's exchange of the same word is either before (and has its frame) or fails.
        match ring.tail.compare_exchange(self.tail, next, AcqRel, Acquire) {
            Ok(_) => {
                self.dropped += 1;
                self.dropped_bytes += bytes;
                self.tail = next;
            }
            Err(tail) if self.head.wrapping_sub(tail) < held => self.tail = tail,
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
    /// Bytes of the frame at `tail` that were given already.
    given: u64,
    /// Words by which `head` may lag behind `tail`: those of the last frame taken, which is there before it is counted.
    lag: u64,
    /// Empty looks in a row.
    empty: u32,
    /// How often the shared words held what no writer writes.
    pub corrupted: u64,
}

impl Reader {
    /// Takes up where the shared tail stands (0 in a new ring).
    pub fn attach(ring: &Ring) -> Self {
        // Acquire pairs with Release of tail: what an earlier reader did is done.
        // What the last frame of an earlier reader was, nobody knows.
        Self { tail: ring.tail.load(Acquire), given: 0, lag: ring.capacity(), empty: 0, corrupted: 0 }
    }

    /// Is there nothing to be had? (What is not a frame is something: `get` says what.)
    pub fn is_empty(&self, ring: &Ring) -> bool {
        let tail = match ring.overflow {
            Overflow::Refuse => self.tail,
            Overflow::DropOldest => ring.tail.load(Relaxed),
        };
        ring.words.at(tail).load(Relaxed) == 0
    }

    /// Before a wait: is there something, if only that `get` has to say that somebody scribbled over it? What `get` finds by
    /// looking often, this looks for at once. Bounded, no system call.
    pub fn is_ready(&mut self, ring: &Ring) -> bool {
        let tail = match ring.overflow {
            Overflow::Refuse => self.tail,
            // Acquire pairs with the writer's exchange of tail.
            Overflow::DropOldest => ring.tail.load(Acquire),
        };
        if ring.words.at(tail).load(Relaxed) != 0 {
            return true;
        }
        // A writer that moves the tail is in the middle of a put, after which it looks who sleeps.
        let moved = || ring.overflow == Overflow::DropOldest && ring.tail.load(Acquire) != tail;
        if self.stands(ring, tail) || moved() {
            return false;
        }
        self.empty = EMPTY_LOOKS - 1;
        true
    }

    /// Bytes that could be got now. Bounded: O(frames). With `DropOldest` the writer may take them away meanwhile.
    pub fn held_bytes(&self, ring: &Ring) -> u64 {
        let tail = match ring.overflow {
            Overflow::Refuse => self.tail,
            Overflow::DropOldest => ring.tail.load(Relaxed),
        };
        let given = if tail == self.tail { self.given } else { 0 };
        let (mut position, mut held) = (tail, 0u64);
        while let Ok(Some((bytes, words))) = ring.frame(position) {
            (position, held) = (position.wrapping_add(words), held + bytes);
            if position.wrapping_sub(tail) > ring.capacity() {
                break;
            }
        }
        held.saturating_sub(given)
    }

    /// Copies bytes of the oldest frame: what does not fit into `into` comes with the next call. 0: the ring is
    /// empty (or `into` is). Bounded: O(bytes), with `DropOldest` at most 16 times. No system call, no allocation.
    /// Errors: `Corrupt`, `Overtaken`.
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

    /// Nobody else moves the tail.
    #[inline]
    fn get_alone(&mut self, ring: &Ring, into: &mut [u8]) -> Result<usize, RingError> {
        let (length, words) = match ring.frame(self.tail) {
            Ok(Some((length, words))) if self.given < length => (length, words),
            Ok(None) if self.given == 0 => return self.found_empty(ring),
            _ => return self.reset(ring),
        };
        self.empty = 0;
        let count = (length - self.given).min(into.len() as u64);
        ring.words.load(self.tail.wrapping_add(1), self.given, &mut into[..count as usize]);
        self.given += count;
        if self.given == length {
            self.given = 0;
            (self.tail, self.lag) = (self.tail.wrapping_add(words), words);
            // Release pairs with the writer's Acquire of tail: our reads are done before it writes there again.
            ring.tail.store(self.tail, Release);
        }
        Ok(count as usize)
    }

    #[inline]
    fn found_empty(&mut self, ring: &Ring) -> Result<usize, RingError> {
        self.empty += 1;
        match self.empty < EMPTY_LOOKS {
            true => Ok(0),
            false => self.is_really_empty(ring),
        }
    }

    /// Has somebody scribbled over the positions or the header? Then the writer may see a full ring for ever.
    #[cold]
    fn is_really_empty(&mut self, ring: &Ring) -> Result<usize, RingError> {
        self.empty = 0;
        match self.stands(ring, self.tail) || ring.words.at(self.tail).load(Relaxed) != 0 {
            true => Ok(0),
            false => self.reset(ring),
        }
    }

    /// Does `head` count nothing behind `tail`, where no frame is? Nor may it fall back behind what it has counted: then
    /// one of the two was scribbled over. Says our position again, where it is ours to say.
    fn stands(&self, ring: &Ring, tail: u64) -> bool {
        if ring.overflow == Overflow::Refuse && ring.tail.load(Relaxed) != self.tail {
            // Release pairs with the writer's Acquire of tail.
            ring.tail.store(self.tail, Release);
        }
        // Acquire pairs with the writer's Release of head: a frame that it counts has its header.
        self.counts_less(ring.head.load(Acquire), tail)
    }

    fn counts_less(&self, head: u64, tail: u64) -> bool {
        // A tail that is not ours is the writer's, who had counted what it dropped.
        let lag = if tail == self.tail { self.lag } else { 0 };
        tail.wrapping_sub(head) <= lag
    }

    /// The writer may take the frame away while it is read. `None`: it did.
    fn get_contended(&mut self, ring: &Ring, into: &mut [u8]) -> Result<Option<usize>, RingError> {
        // Acquire pairs with the writer's exchange of tail.
        let tail = ring.tail.load(Acquire);
        if tail != self.tail {
            (self.tail, self.given, self.lag) = (tail, 0, 0);
        }
        let (length, words) = match ring.frame(tail) {
            Ok(Some((length, words))) if self.given < length => (length, words),
            other => {
                // Acquire pairs with the writer's Release of head: a frame that it counts has its header.
                let head = ring.head.load(Acquire);
                if other == Ok(None) && self.counts_less(head, tail) {
                    return Ok(Some(0));
                }
                // Another frame came, or ours was dropped, or somebody scribbled. Only in the last case the tail still
                // stands there, and so does what is not a frame.
                if other == Ok(None) && ring.words.at(tail).load(Relaxed) != 0 {
                    return Ok(None);
                }
                // AcqRel as below.
                if ring.tail.compare_exchange(tail, head, AcqRel, Acquire).is_err() {
                    return Ok(None);
                }
                self.corrupted += 1;
                (self.tail, self.given, self.lag) = (head, 0, 0);
                return Err(RingError::Corrupt);
            }
        };
        let count = (length - self.given).min(into.len() as u64);
        ring.words.load(tail.wrapping_add(1), self.given, &mut into[..count as usize]);
        let whole = self.given + count == length;
        let next = if whole { tail.wrapping_add(words) } else { tail };
        // AcqRel: Release orders our reads of the words before the writer may reuse them, and fails where the writer
        // has dropped the frame meanwhile: what was copied is then no frame.
        if ring.tail.compare_exchange(tail, next, AcqRel, Acquire).is_err() {
            self.given = 0;
            return Ok(None);
        }
        if whole {
            (self.tail, self.given, self.lag) = (next, 0, words);
        } else {
            self.given += count;
        }
        Ok(Some(count as usize))
    }

    /// Goes on from an empty ring (`Refuse`: the tail is ours alone).
    #[cold]
    fn reset(&mut self, ring: &Ring) -> Result<usize, RingError> {
        self.corrupted += 1;
        // Acquire and Release as everywhere.
        (self.tail, self.given, self.lag) = (ring.head.load(Acquire), 0, 0);
        ring.tail.store(self.tail, Release);
        Err(RingError::Corrupt)
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
