// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FIFO (RTLinux's `rtf`): one writer and one reader, in any two processes, over shared memory
//! with a name.
//!
//! **Who may call.** One writer and one reader at a time. Each holds its role until it drops its
//! end or its process ends.
//!
//! **Cost.** `put` and `get` never wait, allocate or take a lock. They make no system call, except
//! to wake a sleeping peer with [`Wake::IfAsleep`].
//!
//! **Full.** The FIFO refuses the frame, or drops the oldest: the creator chooses ([`Overflow`]).
//!
//! **Crash.** When one side ends, the other continues with the frames that are there. A new end
//! continues where the old one stopped. Damage by the other side is an error, and never undefined
//! behaviour.
//!
//! **Waiting.** `wait` sleeps on a futex and is for the time-sharing side. With [`Wake::IfAsleep`]
//! the other end wakes it by one system call. With [`Wake::Never`] the other end makes no system
//! call, and the waiter polls every millisecond. Another thread ends a wait by a [`Canceller`].
//! [`FifoReader::descriptor`] and [`FifoWriter::descriptor`] are for poll(2) and event loops.
use crate::cancel::Canceller;
use crate::futex;
use crate::ring::{Overflow, Reader, Ring, RingError, Writer};
use crate::shm::{Kind, Pages, Role, SharedMemory, ShmError};
use crate::sync::{AtomicU32, AtomicU64, Ordering::*, fence};
use crate::waits::{OtherEnd, PEER_CHECK, Waits};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Offsets in the body, in bytes. Each position and each doorbell has a cache line of its own.
const HEAD: usize = 0;
const TAIL: usize = 64;
const READER_ASLEEP: usize = 128;
const WRITER_ASLEEP: usize = 192;
const WORDS: usize = 256;
/// Offset after a doorbell: 1 if the other end rings it.
const RINGS: usize = 4;
const USER_WORD: usize = WRITER_ASLEEP + 16;
/// The smallest capacity of a FIFO, in bytes.
pub const MIN_FIFO_BYTES: u64 = 16;
/// The largest capacity of a FIFO, in bytes: the next power of two exceeds the largest channel.
pub const MAX_FIFO_BYTES: u64 = (1 << 29) - 8;
/// How often a waiter polls where the peer does not wake it.
const POLL: Duration = Duration::from_millis(1);

/// Whether an end makes a system call to wake the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// It never makes a system call. The other end polls.
    Never,
    /// It makes one system call when the other end sleeps.
    IfAsleep,
}

/// Properties of a new FIFO.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes for frames. A frame takes its bytes, padded to 8, and a header of 8 bytes. The
    /// capacity plus 8 is rounded up to a power of two.
    pub capacity_bytes: u64,
    /// What a full FIFO does with a new frame.
    pub overflow: Overflow,
}

/// Why a wait failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The timeout passed first.
    #[error("timed out")]
    TimedOut,
    /// No process holds the role of the other end. A reader first gets the frames that are there.
    #[error("the other end of the FIFO has ended")]
    PeerGone,
    /// Another thread has ended the waits of this end ([`Canceller::cancel`]).
    #[error("cancelled by another thread")]
    Cancelled,
}

/// A mapped FIFO. Turn it into one of its ends, or keep it to keep its name.
#[derive(Debug)]
pub struct Fifo {
    shared: Arc<SharedMemory>,
    canceller: Canceller,
    words: usize,
    /// In the memory that `shared` maps. Given out only while that is borrowed.
    ring: Ring<'static>,
}

impl Fifo {
    /// Creates a FIFO of bytes. Allocates and blocks: for set-up only. Errors: `BadName`,
    /// `NameTaken`, `BadSize`, `NoRoom`, `ForeignDir`, `DirLocked`, `Io`.
    pub fn create(dir: &Path, name: &str, options: &Options) -> Result<Self, ShmError> {
        Self::create_of(dir, name, options, 0)
    }

    /// Creates a FIFO with room for `records` records of one size, each put in alone. Errors: as
    /// [`Fifo::create`].
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

    /// `record_bytes`: the size of its records, 0 for a FIFO of bytes.
    fn create_of(
        dir: &Path,
        name: &str,
        options: &Options,
        record_bytes: u64,
    ) -> Result<Self, ShmError> {
        let bytes = options.capacity_bytes;
        if !(MIN_FIFO_BYTES..=MAX_FIFO_BYTES).contains(&bytes) {
            return Err(ShmError::BadSize { bytes, min: MIN_FIFO_BYTES, max: MAX_FIFO_BYTES });
        }
        let words = (bytes.div_ceil(8) + 1).next_power_of_two();
        let parameters =
            [words, u64::from(options.overflow == Overflow::DropOldest), record_bytes, 0];
        let shared = SharedMemory::create(
            dir,
            name,
            Kind::Fifo,
            WORDS as u64 + words * 8,
            parameters,
            Pages::Normal,
        )?;
        Self::from_shared(shared)
    }

    /// Maps an existing FIFO. Allocates and blocks: for set-up only. Errors: those of
    /// [`SharedMemory::attach`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, ShmError> {
        Self::from_shared(SharedMemory::attach(dir, name, Kind::Fifo)?)
    }

    /// Maps a FIFO whose records have this size. Errors: `Mismatch` (it carries bytes, or records
    /// of another size), and those of [`SharedMemory::attach`].
    pub fn attach_for(dir: &Path, name: &str, record_bytes: u64) -> Result<Self, ShmError> {
        Self::attach(dir, name)?.of_records(record_bytes)
    }

    /// The FIFO, if its records have this size. Errors: `Mismatch`.
    pub fn of_records(self, record_bytes: u64) -> Result<Self, ShmError> {
        let found = match self.record_bytes() {
            bytes if bytes == record_bytes => return Ok(self),
            0 => "bytes".to_owned(),
            bytes => format!("records of {bytes} bytes"),
        };
        let found = format!("it carries {found}, expected records of {record_bytes} bytes");
        Err(ShmError::Mismatch { name: self.shared.name().to_owned(), found })
    }

    /// A FIFO in memory that was [received](crate::receive). Errors: `Mismatch`, `ReadOnly`.
    pub fn from_shared(shared: SharedMemory) -> Result<Self, ShmError> {
        let [words, overflow, ..] = shared.parameters();
        let mismatch = |found: String| ShmError::Mismatch { name: shared.name().to_owned(), found };
        if shared.kind() != Kind::Fifo {
            return Err(mismatch(format!("it is of kind {:?}, expected Fifo", shared.kind())));
        }
        if !shared.is_writable() {
            return Err(ShmError::ReadOnly { name: shared.name().to_owned() });
        }
        let room = (shared.body_bytes().saturating_sub(WORDS) / 8) as u64;
        if !words.is_power_of_two() || words < 4 || words > room {
            return Err(mismatch(format!("its header says {words} words, it has room for {room}")));
        }
        let overflow = match overflow {
            0 => Overflow::Refuse,
            1 => Overflow::DropOldest,
            other => return Err(mismatch(format!("its overflow policy {other} is unknown"))),
        };
        let words = words as usize;
        let (head, tail) = (&shared.words(HEAD, 1)[0], &shared.words(TAIL, 1)[0]);
        let ring = Ring::new(head, tail, shared.words(WORDS, words), overflow);
        let ring = ring.ok_or_else(|| mismatch(format!("its ring of {words} words is invalid")))?;
        // SAFETY: only the lifetime changes. The mapping does not move with `SharedMemory`, and
        // lives as long as it does: as long as the `Fifo` that owns both. `ring` gives out no
        // longer lifetime.
        let ring = unsafe { std::mem::transmute::<Ring<'_>, Ring<'static>>(ring) };
        let shared = Arc::new(shared);
        let canceller = Canceller::new(&shared, vec![READER_ASLEEP, WRITER_ASLEEP], 0);
        Ok(Self { shared, canceller, words, ring })
    }

    /// The same mapping, for the thread of a descriptor.
    pub(crate) fn again(&self) -> Self {
        let (shared, canceller) = (Arc::clone(&self.shared), self.canceller.clone());
        Self { shared, canceller, words: self.words, ring: self.ring }
    }

    /// Ends the waits of this value and of the end that it becomes: [`FifoReader::wait`],
    /// [`FifoWriter::wait`], [`Fifo::watch`].
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Bytes that all frames may take at once, headers and padding included.
    pub fn capacity_bytes(&self) -> usize {
        (self.words - 1) * 8
    }

    /// Bytes of a record, 0 for a FIFO of bytes.
    pub fn record_bytes(&self) -> u64 {
        self.shared.parameters()[2]
    }

    /// The memory of the FIFO: its name, descriptor and roles.
    pub fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    /// Whether it is empty, according to the shared words. For observers that are no end of it.
    /// Bounded, no system call.
    pub fn is_empty(&self) -> bool {
        let ring = self.ring();
        Reader::attach(ring).is_empty(ring)
    }

    /// A word for the program's own use, 0 in a new FIFO. Any process may write it.
    pub fn user_word(&self) -> &AtomicU32 {
        self.shared.futex_word(USER_WORD)
    }

    /// The position of the writer or the reader: a number that changes when it moves.
    pub fn position(&self, of: Role) -> u64 {
        self.shared.words(if of == Role::Writer { HEAD } else { TAIL }, 1)[0].load(Relaxed)
    }

    /// Sleeps at most `at_most`, and at most 100 ms, unless `ready` holds or the waits of this
    /// value are cancelled; then it returns true. That end's next move wakes it. For observers that
    /// are no end, any number at once. Blocks; at most three system calls.
    pub fn watch(&self, of: Role, at_most: Duration, ready: impl FnOnce() -> bool) -> bool {
        let at = if of == Role::Writer { READER_ASLEEP } else { WRITER_ASLEEP };
        let doorbell = self.shared.futex_word(at);
        doorbell.store(1, Relaxed);
        // SeqCst pairs with the fences in `has_sleeper` and `cancel::take_back`.
        fence(SeqCst);
        if self.canceller.is_cancelled() || ready() {
            return true;
        }
        // An end that attaches later publishes then whether it rings.
        let rung =
            self.shared.futex_word(at + RINGS).load(Relaxed) == 1 || !self.shared.is_held(of);
        let slice = at_most.min(if rung { PEER_CHECK } else { POLL });
        futex::wait_among(doorbell, 1, Some(slice));
        false
    }

    /// Acquires the role of the writer. Errors: `RoleTaken`, `Io`.
    pub fn into_writer(self, wake: Wake) -> Result<FifoWriter, ShmError> {
        self.shared.acquire(Role::Writer)?;
        self.publish_wake(READER_ASLEEP, wake);
        let end = Writer::attach(self.ring());
        let waits = Waits::new(Role::Reader, &self);
        Ok(FifoWriter { waits, fifo: self, end, wake, need: Arc::new(AtomicU64::new(1)) })
    }

    /// Acquires the role of the reader. Errors: `RoleTaken`, `Io`.
    pub fn into_reader(self, wake: Wake) -> Result<FifoReader, ShmError> {
        self.shared.acquire(Role::Reader)?;
        self.publish_wake(WRITER_ASLEEP, wake);
        let end = Reader::attach(self.ring());
        let waits = Waits::new(Role::Writer, &self);
        Ok(FifoReader { waits, fifo: self, end, wake })
    }

    #[inline]
    fn ring<'a>(&'a self) -> &'a Ring<'a> {
        &self.ring
    }

    /// Publishes whether we ring `doorbell`.
    fn publish_wake(&self, doorbell: usize, wake: Wake) {
        self.shared.futex_word(doorbell + RINGS).store(u32::from(wake == Wake::IfAsleep), Relaxed);
    }

    /// Wakes a sleeper at `doorbell`. No system call when there is none.
    #[inline]
    fn ring_doorbell(&self, doorbell: usize) {
        let doorbell = self.shared.futex_word(doorbell);
        if has_sleeper(doorbell) {
            futex::wake(doorbell, 1);
        }
    }

    /// Sleeps at the doorbell `at` until `ready` holds, the timeout passes, the peer ends, or the
    /// wait is cancelled.
    fn sleep(
        &self,
        waits: &mut Waits,
        at: usize,
        timeout: Option<Duration>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        let doorbell: &AtomicU32 = self.shared.futex_word(at);
        let begin = Instant::now();
        let end = timeout.and_then(|timeout| begin.checked_add(timeout));
        let mut next_check = *waits.next_check.get_or_insert(begin + PEER_CHECK);
        let watched = waits.descriptor.is_some();
        loop {
            doorbell.store(1, Relaxed);
            // SeqCst pairs with the fences in `has_sleeper` and `cancel::take_back`.
            fence(SeqCst);
            let cancelled = self.canceller.is_cancelled();
            if cancelled || ready() {
                // The thread of a descriptor may sleep there, too.
                if !watched {
                    doorbell.store(0, Relaxed);
                }
                return if cancelled { Err(WaitError::Cancelled) } else { Ok(()) };
            }
            waits.found_nothing();
            let now = Instant::now();
            // Who polls a descriptor asks with no time why it was readable.
            if now >= next_check || watched && timeout == Some(Duration::ZERO) {
                next_check = now + PEER_CHECK;
                waits.next_check = Some(next_check);
                if !self.shared.is_held(waits.peer.role) && !ready() {
                    return Err(WaitError::PeerGone);
                }
            }
            if end.is_some_and(|end| now >= end) {
                return Err(WaitError::TimedOut);
            }
            let rung = self.shared.futex_word(at + RINGS).load(Relaxed) == 1;
            let slice = if rung { PEER_CHECK } else { POLL };
            let slice = Some(end.map_or(slice, |end| end - now).min(slice));
            match watched {
                true => futex::wait_among(doorbell, 1, slice),
                false => futex::wait(doorbell, 1, slice),
            };
        }
    }
}

/// Whether a sleeper has announced itself since the doorbell was rung last: the caller must wake
/// it.
#[inline(always)]
pub(crate) fn has_sleeper(doorbell: &AtomicU32) -> bool {
    // SeqCst pairs with the fences in `sleep` and `watch`: either the sleeper sees our change, or
    // we see that it sleeps.
    fence(SeqCst);
    let sleeps = doorbell.load(Relaxed) != 0;
    if sleeps {
        doorbell.store(0, Relaxed);
    }
    sleeps
}

/// The writing end of a FIFO. Dropping it releases the role.
#[derive(Debug)]
pub struct FifoWriter {
    waits: Waits,
    fifo: Fifo,
    end: Writer,
    wake: Wake,
    /// Bytes of the frame that last found no room.
    need: Arc<AtomicU64>,
}

impl FifoWriter {
    /// Puts a whole frame in, or nothing. Bounded: O(bytes). No allocation. System calls: none, or
    /// one with [`Wake::IfAsleep`] when the reader sleeps. Errors: `Full`, `BadLength`.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), RingError> {
        if let Err(error) = self.end.put(self.fifo.ring(), bytes) {
            if error == RingError::Full {
                self.found_no_room(bytes.len());
            }
            return Err(error);
        }
        if self.wake == Wake::IfAsleep {
            self.fifo.ring_doorbell(READER_ASLEEP);
        }
        Ok(())
    }

    #[cold]
    fn found_no_room(&self, bytes: usize) {
        self.need.store(bytes as u64, Relaxed);
        self.waits.found_nothing();
    }

    /// Whether a frame of so many bytes fits now. Bounded, no system call (one if it does not fit
    /// and a descriptor says so).
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.end.has_room(self.fifo.ring(), bytes);
        if !has_room {
            self.found_no_room(bytes);
        }
        has_room
    }

    /// Waits until a frame of so many bytes fits. Without `timeout`, and for a frame that never
    /// fits, it waits without limit. Blocks; system calls. Errors: `TimedOut`, `PeerGone` (found
    /// within 100 ms, also by many short waits), `Cancelled`.
    pub fn wait(&mut self, bytes: usize, timeout: Option<Duration>) -> Result<(), WaitError> {
        let (fifo, end) = (&self.fifo, &mut self.end);
        let ring = fifo.ring();
        self.need.store(bytes as u64, Relaxed);
        fifo.sleep(&mut self.waits, WRITER_ASLEEP, timeout, || end.has_room(ring, bytes))
    }

    /// A descriptor for poll(2), epoll(7) and event loops: readable while the frame that last found
    /// no room fits (at first any), the reader has ended, or waits are cancelled. A put that finds
    /// no room makes it unreadable, and so does a wait that would sleep. Poll it for POLLIN, do not
    /// read it. If a put finds no room though it was readable, `wait` with no time says why.
    ///
    /// The first call makes a thread of the ordinary policy, on the CPUs of the caller: call it on
    /// the time-sharing side. The thread sleeps as [`FifoWriter::wait`] does, and the reader learns
    /// no more than that somebody sleeps. The kernel's work for a put does not grow; a put that
    /// finds no room makes one system call more. Errors: no descriptor, no thread.
    pub fn descriptor(&mut self) -> io::Result<Arc<OwnedFd>> {
        let need = Arc::clone(&self.need);
        self.waits.descriptor(&self.fifo, move |fifo| fifo.ring().has_room(need.load(Relaxed)))
    }

    /// Ends waits of this end from another thread.
    pub fn canceller(&self) -> Canceller {
        self.fifo.canceller()
    }

    /// What is known of the reader.
    pub fn peer(&self) -> Arc<OtherEnd> {
        Arc::clone(&self.waits.peer)
    }

    /// Frames dropped to make room, so far.
    pub fn dropped(&self) -> u64 {
        self.end.dropped
    }

    /// Bytes of those frames.
    pub fn dropped_bytes(&self) -> u64 {
        self.end.dropped_bytes
    }

    /// How often the shared words held values that no reader writes.
    pub fn corrupted(&self) -> u64 {
        self.end.corrupted
    }

    /// Whether there is a reader. One system call.
    pub fn has_reader(&self) -> bool {
        self.fifo.shared.is_held(Role::Reader)
    }

    /// The FIFO of this end.
    pub fn fifo(&self) -> &Fifo {
        &self.fifo
    }
}

/// The reading end of a FIFO. Dropping it releases the role.
#[derive(Debug)]
pub struct FifoReader {
    waits: Waits,
    fifo: Fifo,
    end: Reader,
    wake: Wake,
}

impl FifoReader {
    /// Takes the oldest frame, or as much of it as fits into `into`; the next call returns the
    /// rest. 0: there is no frame. Bounded, no allocation; system calls as [`FifoWriter::put`].
    /// Errors: `Corrupt`, `Overtaken`.
    #[inline]
    pub fn get(&mut self, into: &mut [u8]) -> Result<usize, RingError> {
        let count = self.end.get(self.fifo.ring(), into)?;
        if count == 0 {
            self.waits.found_nothing();
        } else if self.wake == Wake::IfAsleep {
            self.fifo.ring_doorbell(WRITER_ASLEEP);
        }
        Ok(count)
    }

    /// Releases the role. The next reader gets a frame again of which only a part was read.
    pub fn release(self) -> Fifo {
        self.fifo.shared.release(Role::Reader);
        self.fifo
    }

    /// Whether there is no frame. Bounded, no system call.
    pub fn is_empty(&self) -> bool {
        self.end.is_empty(self.fifo.ring())
    }

    /// Bytes that `get` could copy now. Bounded: O(frames), no system call.
    pub fn held_bytes(&self) -> u64 {
        self.end.held_bytes(self.fifo.ring())
    }

    /// Waits until there is a frame. Without `timeout` it waits without limit. Blocks; system
    /// calls. Errors: `TimedOut`, `PeerGone` (found within 100 ms, also by many short waits, and
    /// only when the FIFO is empty), `Cancelled`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let (fifo, end) = (&self.fifo, &mut self.end);
        let ring = fifo.ring();
        fifo.sleep(&mut self.waits, READER_ASLEEP, timeout, || end.is_ready(ring))
    }

    /// A descriptor for poll(2), epoll(7) and event loops: readable while there is a frame, the
    /// writer has ended, or waits are cancelled. A get that finds no frame makes it unreadable, and
    /// so does a wait that would sleep. Poll it for POLLIN, do not read it. If a get finds nothing
    /// though it was readable, `wait` with no time says why. Costs and errors: those of
    /// [`FifoWriter::descriptor`].
    pub fn descriptor(&mut self) -> io::Result<Arc<OwnedFd>> {
        self.waits.descriptor(&self.fifo, |fifo| fifo.ring().holds_frame())
    }

    /// Ends waits of this end from another thread.
    pub fn canceller(&self) -> Canceller {
        self.fifo.canceller()
    }

    /// What is known of the writer.
    pub fn peer(&self) -> Arc<OtherEnd> {
        Arc::clone(&self.waits.peer)
    }

    /// How often the shared words held values that no writer writes.
    pub fn corrupted(&self) -> u64 {
        self.end.corrupted
    }

    /// Whether there is a writer. One system call.
    pub fn has_writer(&self) -> bool {
        self.fifo.shared.is_held(Role::Writer)
    }

    /// The FIFO of this end.
    pub fn fifo(&self) -> &Fifo {
        &self.fifo
    }
}

#[cfg(all(test, not(miri)))]
#[path = "fifo_tests.rs"]
mod tests;
