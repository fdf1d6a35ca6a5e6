//! The rt-FIFO (RTLinux's `rtf`): one writer and one reader, in any two processes, over named shared memory.
//!
//! Who may call: one writer and one reader at a time, each a process's role until it drops it or ends. `put` and
//! `get` never enter the kernel, never wait and never allocate. Full: refused or the oldest dropped, as was said
//! at creation. After a crash of either side the other goes on with what is there; a new one takes the role up
//! where the ring stands. What the other side scribbles is an error, never undefined behaviour.
//!
//! Waiting is the time-sharing side's business: `wait` sleeps on a futex. The other end wakes it only if it was
//! asked to ([`Wake::IfAsleep`], one system call when somebody sleeps); with [`Wake::Never`] it never enters the
//! kernel, and the waiter looks again every millisecond.

use crate::futex;
use crate::ring::{Overflow, Reader, Ring, RingError, Writer};
use crate::shm::{Kind, Pages, Role, SharedMemory, ShmError};
use crate::sync::{AtomicU32, Ordering::*, fence};
use std::path::Path;
use std::time::{Duration, Instant};

/// Offsets in the body: each position and each doorbell has its cache line.
const HEAD: usize = 0;
const TAIL: usize = 64;
const READER_ASLEEP: usize = 128;
const WRITER_ASLEEP: usize = 192;
const WORDS: usize = 256;
/// Beside a doorbell: does the end that should ring it do so?
const RINGS: usize = 4;
const USER_WORD: usize = WRITER_ASLEEP + 16;
/// What the frames of a FIFO may take together at least and at most. (The next power of two is more than a channel holds.)
pub const MIN_FIFO_BYTES: u64 = 16;
pub const MAX_FIFO_BYTES: u64 = (1 << 29) - 8;
/// How often a waiter looks whether its peer lives, and how often one that nobody wakes looks for data.
const PEER_CHECK: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(1);

/// Does an end enter the kernel to wake the other?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// No system call, ever.
    Never,
    /// One, when the other end sleeps (or says so).
    IfAsleep,
}

/// What a new FIFO is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes of frames, each with a header of 8 bytes and padded to 8; with 8 more rounded up to a power of two.
    pub capacity_bytes: u64,
    pub overflow: Overflow,
}

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    #[error("the time is over")]
    TimedOut,
    /// Nobody is in the other role; what is in the FIFO was given first.
    #[error("the other end is gone")]
    PeerGone,
}

/// A FIFO that exists, mapped; it becomes one of its ends, or is kept so that its name stays.
#[derive(Debug)]
pub struct Fifo {
    shared: SharedMemory,
    words: usize,
    /// Of the memory that `shared` has mapped; given out only for as long as that is borrowed.
    ring: Ring<'static>,
}

impl Fifo {
    /// Makes one. Allocates, locks the name's directory; set-up only. Errors: those of [`SharedMemory::create`].
    pub fn create(dir: &Path, name: &str, options: &Options) -> Result<Self, ShmError> {
        Self::create_of(dir, name, options, 0)
    }

    /// Makes one with room for so many records of a size, each put in alone. Errors: those of [`SharedMemory::create`].
    pub fn create_for(
        dir: &Path,
        name: &str,
        records: u64,
        record_bytes: u64,
        overflow: Overflow,
    ) -> Result<Self, ShmError> {
        let frame = record_bytes.checked_next_multiple_of(8).and_then(|bytes| bytes.checked_add(8));
        let capacity_bytes = frame.unwrap_or(u64::MAX).saturating_mul(records);
        Self::create_of(dir, name, &Options { capacity_bytes, overflow }, record_bytes)
    }

    /// `record_bytes`: of its records, 0 for bytes.
    fn create_of(dir: &Path, name: &str, options: &Options, record_bytes: u64) -> Result<Self, ShmError> {
        let bytes = options.capacity_bytes;
        if !(MIN_FIFO_BYTES..=MAX_FIFO_BYTES).contains(&bytes) {
            return Err(ShmError::BadSize { bytes, min: MIN_FIFO_BYTES, max: MAX_FIFO_BYTES });
        }
        let words = (bytes.div_ceil(8) + 1).next_power_of_two();
        let parameters = [words, u64::from(options.overflow == Overflow::DropOldest), record_bytes, 0];
        let shared =
            SharedMemory::create(dir, name, Kind::Fifo, WORDS as u64 + words * 8, parameters, Pages::Normal)?;
        Self::from_shared(shared)
    }

    /// Maps one. Allocates; set-up only. Errors: those of [`SharedMemory::attach`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, ShmError> {
        Self::from_shared(SharedMemory::attach(dir, name, Kind::Fifo)?)
    }

    /// Maps one whose records have this size. Errors: `Mismatch` (bytes, or records of another size), and those of
    /// [`SharedMemory::attach`].
    pub fn attach_for(dir: &Path, name: &str, record_bytes: u64) -> Result<Self, ShmError> {
        let fifo = Self::attach(dir, name)?;
        let found = match fifo.record_bytes() {
            bytes if bytes == record_bytes => return Ok(fifo),
            0 => "bytes".to_owned(),
            bytes => format!("records of {bytes} bytes"),
        };
        let found = format!("it carries {found}, records of {record_bytes} bytes were asked for");
        Err(ShmError::Mismatch { name: name.to_owned(), found })
    }

    /// Takes what came as a descriptor. Errors: `Mismatch`.
    pub fn from_shared(shared: SharedMemory) -> Result<Self, ShmError> {
        let [words, overflow, ..] = shared.parameters();
        let mismatch = |found: String| ShmError::Mismatch { name: shared.name().to_owned(), found };
        let room = (shared.body_bytes().saturating_sub(WORDS) / 8) as u64;
        if !words.is_power_of_two() || words < 4 || words > room {
            return Err(mismatch(format!("it says {words} words and has room for {room}")));
        }
        let overflow = match overflow {
            0 => Overflow::Refuse,
            1 => Overflow::DropOldest,
            other => return Err(mismatch(format!("overflow policy {other}"))),
        };
        let words = words as usize;
        let (head, tail) = (&shared.words(HEAD, 1)[0], &shared.words(TAIL, 1)[0]);
        let ring = Ring::new(head, tail, shared.words(WORDS, words), overflow);
        let ring = ring.ok_or_else(|| mismatch(format!("a ring of {words} words")))?;
        // SAFETY: only the lifetime changes. The mapping stays where it is when `SharedMemory` moves, and as long as it lives:
        // as long as the `Fifo` that keeps both; `ring` gives no more than that out.
        let ring = unsafe { std::mem::transmute::<Ring<'_>, Ring<'static>>(ring) };
        Ok(Self { shared, words, ring })
    }

    /// Bytes that frames, their headers and padding included, may take at once.
    pub fn capacity_bytes(&self) -> usize {
        (self.words - 1) * 8
    }

    /// Bytes of its records, 0 if it was made for bytes.
    pub fn record_bytes(&self) -> u64 {
        self.shared.parameters()[2]
    }

    pub fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    /// Is nothing in it, as far as the shared words say? For who is no end of it. Bounded, no system call.
    pub fn is_empty(&self) -> bool {
        let ring = self.ring();
        Reader::attach(ring).is_empty(ring)
    }

    /// A word for who builds on the FIFO, 0 in a new one; what it says is as little to be trusted as the rest.
    pub fn user_word(&self) -> &AtomicU32 {
        self.shared.futex_word(USER_WORD)
    }

    /// How far the writer or the reader has come: a number that differs when it has moved.
    pub fn position(&self, of: Role) -> u64 {
        self.shared.words(if of == Role::Writer { HEAD } else { TAIL }, 1)[0].load(Relaxed)
    }

    /// Sleeps until that end has moved from `seen`, or for 100 ms: for who is no end and watches. Blocks; at most two
    /// system calls.
    pub fn watch(&self, of: Role, seen: u64) {
        self.watch_for(of, seen, PEER_CHECK);
    }

    /// As [`Fifo::watch`], for `at_most` (and 100 ms).
    pub fn watch_for(&self, of: Role, seen: u64, at_most: Duration) {
        let at = if of == Role::Writer { READER_ASLEEP } else { WRITER_ASLEEP };
        let doorbell = self.shared.futex_word(at);
        doorbell.store(1, Relaxed);
        // SeqCst pairs with the fence in `ring_doorbell`.
        fence(SeqCst);
        if self.position(of) == seen {
            // Who is not there yet says at its coming whether it rings.
            let rung = self.shared.futex_word(at + RINGS).load(Relaxed) == 1 || !self.shared.is_held(of);
            futex::wait(doorbell, 1, Some(at_most.min(if rung { PEER_CHECK } else { LOOK })));
        }
    }

    /// Becomes the one writer. Errors: `RoleTaken`, `Io`.
    pub fn into_writer(self, wake: Wake) -> Result<FifoWriter, ShmError> {
        self.shared.acquire(Role::Writer)?;
        self.says(READER_ASLEEP, wake);
        let end = Writer::attach(self.ring());
        Ok(FifoWriter { fifo: self, end, wake })
    }

    /// Becomes the one reader. Errors: `RoleTaken`, `Io`.
    pub fn into_reader(self, wake: Wake) -> Result<FifoReader, ShmError> {
        self.shared.acquire(Role::Reader)?;
        self.says(WRITER_ASLEEP, wake);
        let end = Reader::attach(self.ring());
        Ok(FifoReader { fifo: self, end, wake })
    }

    #[inline]
    fn ring<'a>(&'a self) -> &'a Ring<'a> {
        &self.ring
    }

    /// Tells who may sleep at `doorbell` whether it is rung.
    fn says(&self, doorbell: usize, wake: Wake) {
        self.shared.futex_word(doorbell + RINGS).store(u32::from(wake == Wake::IfAsleep), Relaxed);
    }

    /// Wakes who sleeps at `doorbell`, if anybody.
    #[inline]
    fn ring_doorbell(&self, doorbell: usize) {
        let doorbell = self.shared.futex_word(doorbell);
        // SeqCst pairs with the fence in `sleep`: either the sleeper sees what we did, or we see that it sleeps.
        fence(SeqCst);
        if doorbell.load(Relaxed) != 0 {
            doorbell.store(0, Relaxed);
            futex::wake(doorbell, 1);
        }
    }

    /// Sleeps at the doorbell `at` until `ready`, the deadline, or the end of the peer.
    fn sleep(
        &self,
        at: usize,
        peer: Role,
        timeout: Option<Duration>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        let doorbell: &AtomicU32 = self.shared.futex_word(at);
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut next_check = Instant::now() + PEER_CHECK;
        loop {
            doorbell.store(1, Relaxed);
            // SeqCst pairs with the fence in `ring_doorbell`.
            fence(SeqCst);
            if ready() {
                doorbell.store(0, Relaxed);
                return Ok(());
            }
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Err(WaitError::TimedOut);
            }
            if now >= next_check {
                next_check = now + PEER_CHECK;
                if !self.shared.is_held(peer) && !ready() {
                    return Err(WaitError::PeerGone);
                }
            }
            let rung = self.shared.futex_word(at + RINGS).load(Relaxed) == 1;
            let slice = if rung { PEER_CHECK } else { LOOK };
            futex::wait(doorbell, 1, Some(end.map_or(slice, |end| end - now).min(slice)));
        }
    }
}

/// The end that puts frames in.
#[derive(Debug)]
pub struct FifoWriter {
    fifo: Fifo,
    end: Writer,
    wake: Wake,
}

impl FifoWriter {
    /// Puts a whole frame in, or nothing. Bounded, no allocation; system calls: none, or one with
    /// [`Wake::IfAsleep`] when the reader sleeps. Errors: `Full`, `BadLength`.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), RingError> {
        self.end.put(self.fifo.ring(), bytes)?;
        if self.wake == Wake::IfAsleep {
            self.fifo.ring_doorbell(READER_ASLEEP);
        }
        Ok(())
    }

    /// Does a frame of so many bytes fit now? Bounded, no system call.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        self.end.has_room(self.fifo.ring(), bytes)
    }

    /// Waits until a frame of so many bytes fits (for ever without `timeout`, and where it never fits). Blocks; system calls. Errors:
    /// `TimedOut`, `PeerGone` (found within 100 ms).
    pub fn wait(&mut self, bytes: usize, timeout: Option<Duration>) -> Result<(), WaitError> {
        let (fifo, end) = (&self.fifo, &mut self.end);
        let ring = fifo.ring();
        fifo.sleep(WRITER_ASLEEP, Role::Reader, timeout, || end.has_room(ring, bytes))
    }

    /// Frames thrown away to make room, so far.
    pub fn dropped(&self) -> u64 {
        self.end.dropped
    }

    /// Bytes of those frames.
    pub fn dropped_bytes(&self) -> u64 {
        self.end.dropped_bytes
    }

    /// How often the shared words held what no reader writes.
    pub fn corrupted(&self) -> u64 {
        self.end.corrupted
    }

    /// Is there a reader? One system call.
    pub fn has_reader(&self) -> bool {
        self.fifo.shared.is_held(Role::Reader)
    }

    pub fn fifo(&self) -> &Fifo {
        &self.fifo
    }
}

/// The end that takes frames out.
#[derive(Debug)]
pub struct FifoReader {
    fifo: Fifo,
    end: Reader,
    wake: Wake,
}

impl FifoReader {
    /// Takes the oldest frame, or as much of it as fits (the rest comes next); 0: there is none. Bounded, no
    /// allocation; system calls as [`FifoWriter::put`]. Errors: `Corrupt`, `Overtaken`.
    #[inline]
    pub fn get(&mut self, into: &mut [u8]) -> Result<usize, RingError> {
        let count = self.end.get(self.fifo.ring(), into)?;
        if count > 0 && self.wake == Wake::IfAsleep {
            self.fifo.ring_doorbell(WRITER_ASLEEP);
        }
        Ok(count)
    }

    /// Gives the role back. Bytes of a frame that was given in part come again to the next reader.
    pub fn release(self) -> Fifo {
        self.fifo.shared.release(Role::Reader);
        self.fifo
    }

    pub fn is_empty(&self) -> bool {
        self.end.is_empty(self.fifo.ring())
    }

    /// Bytes that could be got now. Bounded: O(frames); no system call.
    pub fn held_bytes(&self) -> u64 {
        self.end.held_bytes(self.fifo.ring())
    }

    /// Waits until there is something to get (for ever without `timeout`). Blocks; system calls. Errors:
    /// `TimedOut`, `PeerGone` (found within 100 ms; what is in the FIFO comes first).
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let (fifo, end) = (&self.fifo, &mut self.end);
        let ring = fifo.ring();
        fifo.sleep(READER_ASLEEP, Role::Writer, timeout, || end.is_ready(ring))
    }

    /// How often the shared words held what no writer writes.
    pub fn corrupted(&self) -> u64 {
        self.end.corrupted
    }

    /// Is there a writer? One system call.
    pub fn has_writer(&self) -> bool {
        self.fifo.shared.is_held(Role::Writer)
    }

    pub fn fifo(&self) -> &Fifo {
        &self.fifo
    }
}

#[cfg(all(test, not(miri)))]
#[path = "fifo_tests.rs"]
mod tests;
