// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared memory with a name (RTLinux's mbuff): raw bytes, or one record of a type.
//!
//! Set-up (`alloc`, `attach`) allocates and makes system calls; later operations do neither. The
//! memory lives until its last mapping ends, in whatever way its processes end. Its size is sealed.
//!
//! The other side may write anything at any time. So there is no `&mut [u8]` and no `&T` into this
//! memory. Access it by atomic words, by copies, or by a pointer at your own risk.

use crate::plain::{self, Plain};
use crate::seqlock::{Board, Overtaken, SLOTS, Writer};
use crate::shm::{Kind, MAX_CHANNEL_BYTES, Pages, Role, SharedMemory, ShmError};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;

/// How often `alloc` retries when others create and free the same name meanwhile.
const ATTEMPTS: u32 = 16;
/// Offset of the records in bytes: the control word has a cache line of its own.
const RECORDS: usize = 64;

/// Why an mbuff could not be allocated, attached or accessed.
#[derive(Debug, thiserror::Error)]
pub enum MbuffError {
    /// An mbuff of this name has another size.
    #[error(
        "mbuff {name} has {found} bytes, not {asked}: free it in all processes, or use its size"
    )]
    SizeMismatch { name: String, found: u64, asked: u64 },
    /// The mbuff holds raw bytes instead of a record, a record instead of raw bytes, or a record of
    /// another size.
    #[error("mbuff {name} holds {found}, expected {asked}")]
    ViewMismatch { name: String, found: String, asked: String },
    /// The range is not inside the mbuff.
    #[error("{bytes} bytes at offset {offset} exceed the {size} bytes of mbuff {name}")]
    OutOfBounds { name: String, offset: usize, bytes: usize, size: usize },
    /// The shared memory failed.
    #[error(transparent)]
    Shm(#[from] ShmError),
}

/// Mapped shared memory. Dropping it unmaps it (`mbuff_free` and `mbuff_detach`).
#[derive(Debug)]
pub struct Mbuff {
    shared: SharedMemory,
    bytes: usize,
}

impl Mbuff {
    /// Creates `bytes` bytes of zeroed memory, or attaches to memory of this name and size.
    /// Allocates and blocks: for set-up only. Errors: `SizeMismatch`, `ViewMismatch` (it holds a
    /// record), `Shm`.
    pub fn alloc(dir: &Path, name: &str, bytes: u64, pages: Pages) -> Result<Self, MbuffError> {
        Self::alloc_for(dir, name, bytes, None, pages)
    }

    /// Attaches to existing memory of any size. Allocates and blocks: for set-up only. Errors:
    /// `ViewMismatch`, `Shm`.
    pub fn attach(dir: &Path, name: &str) -> Result<Self, MbuffError> {
        Self::attach_for(dir, name, None)
    }

    /// Memory that was [received](crate::receive). Errors: `ViewMismatch`, `Shm`.
    pub fn from_shared(shared: SharedMemory) -> Result<Self, MbuffError> {
        Self::checked(shared, None)
    }

    /// `record`: bytes of its record, which determine `bytes`.
    fn alloc_for(
        dir: &Path,
        name: &str,
        bytes: u64,
        record: Option<usize>,
        pages: Pages,
    ) -> Result<Self, MbuffError> {
        let parameters = [bytes, record.unwrap_or(0) as u64, 0, 0];
        let mut attempts = 0;
        loop {
            attempts += 1;
            match SharedMemory::create(dir, name, Kind::Mbuff, bytes, parameters, pages) {
                Ok(shared) => return Self::checked(shared, record),
                Err(ShmError::NameTaken { .. }) => (),
                Err(error) => return Err(error.into()),
            }
            match Self::attach_for(dir, name, record) {
                Ok(there) if there.bytes as u64 == bytes => return Ok(there),
                Ok(there) => {
                    let (name, found) = (name.to_owned(), there.bytes as u64);
                    return Err(MbuffError::SizeMismatch { name, found, asked: bytes });
                }
                Err(MbuffError::Shm(ShmError::NotFound { .. })) if attempts < ATTEMPTS => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn attach_for(dir: &Path, name: &str, record: Option<usize>) -> Result<Self, MbuffError> {
        Self::checked(SharedMemory::attach(dir, name, Kind::Mbuff)?, record)
    }

    /// Checks the parameters of the creator against the size of the memory.
    fn checked(shared: SharedMemory, record: Option<usize>) -> Result<Self, MbuffError> {
        let [bytes, found, ..] = shared.parameters();
        let name = || shared.name().to_owned();
        if shared.kind() != Kind::Mbuff {
            let found = format!("it is of kind {:?}, expected Mbuff", shared.kind());
            return Err(ShmError::Mismatch { name: name(), found }.into());
        }
        if bytes == 0 || bytes > shared.body_bytes() as u64 {
            let found = format!("its header says {bytes} bytes, it has {}", shared.body_bytes());
            return Err(ShmError::Mismatch { name: name(), found }.into());
        }
        let asked = record.unwrap_or(0) as u64;
        if found != asked
            || record.is_some_and(|record| bytes < (RECORDS + SLOTS * words(record) * 8) as u64)
        {
            let say = |bytes| match bytes {
                0 => "raw bytes".to_owned(),
                _ => format!("a record of {bytes} bytes"),
            };
            return Err(MbuffError::ViewMismatch {
                name: name(),
                found: say(found),
                asked: say(asked),
            });
        }
        Ok(Self { shared, bytes: bytes as usize })
    }

    /// The size in bytes, as requested by its creator.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory itself: its name, descriptor and roles.
    pub fn shared(&self) -> &SharedMemory {
        &self.shared
    }

    /// The first byte, aligned to 64 bytes and valid as long as `self`. Use volatile or atomic
    /// accesses, and expect any value at any time. See [`SharedMemory::is_writable`].
    pub fn pointer(&self) -> NonNull<u8> {
        self.shared.body()
    }

    /// The memory as words, without the last bytes if the size is no multiple of 8.
    pub fn words(&self) -> &[AtomicU64] {
        self.shared.words(0, self.bytes / 8)
    }

    /// Copies bytes out. It may see a part of a concurrent write. O(bytes), no system call, no
    /// allocation. Errors: `OutOfBounds`.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MbuffError> {
        let words = self.within(offset, into.len())?;
        for (place, bytes) in pieces(offset, into.len()) {
            let word = words[place / 8].load(Relaxed).to_ne_bytes();
            into[place + bytes.start - offset..][..bytes.len()].copy_from_slice(&word[bytes]);
        }
        Ok(())
    }

    /// Copies bytes in, and changes no other byte. O(bytes), no system call, no allocation. Errors:
    /// `OutOfBounds`, `Shm` (`ReadOnly`).
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MbuffError> {
        if !self.shared.is_writable() {
            return Err(ShmError::ReadOnly { name: self.shared.name().to_owned() }.into());
        }
        let words = self.within(offset, from.len())?;
        for (place, bytes) in pieces(offset, from.len()) {
            let (word, whole) = (&words[place / 8], bytes.len() == 8);
            let before = if whole { 0 } else { word.load(Relaxed) };
            let mut after = before.to_ne_bytes();
            let length = bytes.len();
            after[bytes.clone()].copy_from_slice(&from[place + bytes.start - offset..][..length]);
            let after = u64::from_ne_bytes(after);
            match whole {
                true => word.store(after, Relaxed),
                // Changes bits of our own bytes only, also while others change their neighbours.
                false => _ = word.fetch_xor(before ^ after, Relaxed),
            }
        }
        Ok(())
    }

    /// All words, if the range is inside.
    fn within(&self, offset: usize, bytes: usize) -> Result<&[AtomicU64], MbuffError> {
        match offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            // The body ends at a page boundary, so it contains the whole last word.
            true => Ok(self.shared.words(0, self.bytes.div_ceil(8))),
            false => {
                let (name, size) = (self.shared.name().to_owned(), self.bytes);
                Err(MbuffError::OutOfBounds { name, offset, bytes, size })
            }
        }
    }
}

/// The words that contain a range of bytes: the offset of each, and which of its bytes belong to
/// the range.
fn pieces(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let end = offset + bytes;
    let first = offset - offset % 8;
    (first..end)
        .step_by(8)
        .map(move |place| (place, offset.max(place) - place..end.min(place + 8) - place))
}

fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// An mbuff that holds one record of bytes. The one writer never waits, and readers see whole
/// records only. [`Record`] is the same with a type.
#[derive(Debug)]
pub struct RawRecord {
    mbuff: Mbuff,
    bytes: usize,
}

impl RawRecord {
    /// Creates a record of `bytes` bytes, or attaches to one of this name and size. Allocates and
    /// blocks: for set-up only. Errors: those of [`Mbuff::alloc`] (0 bytes: `BadSize`).
    pub fn alloc(dir: &Path, name: &str, bytes: usize, pages: Pages) -> Result<Self, MbuffError> {
        let whole = check(bytes)? + RECORDS as u64;
        Ok(Self { mbuff: Mbuff::alloc_for(dir, name, whole, Some(bytes), pages)?, bytes })
    }

    /// Attaches to an existing record of this size. Allocates and blocks: for set-up only. Errors:
    /// those of [`Mbuff::attach`].
    pub fn attach(dir: &Path, name: &str, bytes: usize) -> Result<Self, MbuffError> {
        check(bytes)?;
        Ok(Self { mbuff: Mbuff::attach_for(dir, name, Some(bytes))?, bytes })
    }

    /// Attaches to an existing record of any size. Errors: as [`RawRecord::attach`].
    pub fn attach_any(dir: &Path, name: &str) -> Result<Self, MbuffError> {
        Self::from_shared(SharedMemory::attach(dir, name, Kind::Mbuff)?)
    }

    /// A record in memory that was [received](crate::receive), of any size. Errors:
    /// `ViewMismatch`, `Shm`.
    pub fn from_shared(shared: SharedMemory) -> Result<Self, MbuffError> {
        let bytes = shared.parameters()[1] as usize;
        if bytes == 0 {
            let (name, found) = (shared.name().to_owned(), "raw bytes".to_owned());
            return Err(MbuffError::ViewMismatch { name, found, asked: "a record".to_owned() });
        }
        check(bytes)?;
        Ok(Self { mbuff: Mbuff::checked(shared, Some(bytes))?, bytes })
    }

    /// The record, if it has this size. Errors: `ViewMismatch`.
    pub fn of_bytes(self, bytes: usize) -> Result<Self, MbuffError> {
        match self.bytes == bytes {
            true => Ok(self),
            false => Err(MbuffError::ViewMismatch {
                name: self.shared().name().to_owned(),
                found: format!("a record of {} bytes", self.bytes),
                asked: format!("a record of {bytes} bytes"),
            }),
        }
    }

    /// Acquires the role of the writer. It continues after the last whole record, however the
    /// writer before it ended. Errors: `Shm` (`RoleTaken`).
    pub fn writer(self) -> Result<RawRecordWriter, MbuffError> {
        self.mbuff.shared.acquire(Role::Writer)?;
        let writer = Writer::attach(&self.board());
        Ok(RawRecordWriter { record: self, writer })
    }

    /// Copies the newest whole record and returns its number, from 1. `None`: there is no record
    /// yet. Bounded: at most 16 copies. No system call, no allocation. It does not wait for a
    /// writer that stopped inside a write. Errors: `Overtaken`. Panics if `into` does not have the
    /// record's size.
    pub fn read(&self, into: &mut [u8]) -> Result<Option<u64>, Overtaken> {
        assert_eq!(into.len(), self.bytes, "a record is read as a whole");
        self.board().read(into)
    }

    /// The memory itself: its name, descriptor and roles.
    pub fn shared(&self) -> &SharedMemory {
        self.mbuff.shared()
    }

    /// Bytes of a record.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether another living process or value is the writer. One system call.
    pub fn has_writer(&self) -> bool {
        self.mbuff.shared.is_held(Role::Writer)
    }

    /// The control word and the slots.
    fn board(&self) -> Board<'_> {
        let [newest] = self.mbuff.shared.words(0, 1) else {
            unreachable!("one word was asked for")
        };
        let slots = self.mbuff.shared.words(RECORDS, SLOTS * words(self.bytes));
        Board::new(newest, slots).expect("a multiple of SLOTS, and not 0")
    }
}

/// Bytes of all slots for records of `bytes` bytes. Errors: `BadSize`.
fn check(bytes: usize) -> Result<u64, ShmError> {
    match bytes as u64 {
        bytes @ 1..=MAX_CHANNEL_BYTES => Ok(SLOTS as u64 * bytes.next_multiple_of(8)),
        bytes => Err(ShmError::BadSize { bytes, min: 1, max: MAX_CHANNEL_BYTES }),
    }
}

/// The writer of a record. Dropping it releases the role.
#[derive(Debug)]
pub struct RawRecordWriter {
    record: RawRecord,
    writer: Writer,
}

impl RawRecordWriter {
    /// Makes `value` the newest record. Wait-free, independent of readers: O(bytes), no system
    /// call, no allocation. Panics if `value` does not have the record's size.
    pub fn write(&mut self, value: &[u8]) {
        assert_eq!(value.len(), self.record.bytes, "a record is written as a whole");
        self.writer.write(&self.record.board(), value);
    }

    /// The record of this writer.
    pub fn record(&self) -> &RawRecord {
        &self.record
    }
}

/// An mbuff that holds one record of type `T`. The one writer never waits, and readers see whole
/// records only.
#[derive(Debug)]
pub struct Record<T> {
    raw: RawRecord,
    kind: PhantomData<T>,
}

impl<T: Plain> Record<T> {
    /// As [`RawRecord::alloc`].
    pub fn alloc(dir: &Path, name: &str, pages: Pages) -> Result<Self, MbuffError> {
        Ok(Self { raw: RawRecord::alloc(dir, name, size_of::<T>(), pages)?, kind: PhantomData })
    }

    /// As [`RawRecord::attach`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, MbuffError> {
        Ok(Self { raw: RawRecord::attach(dir, name, size_of::<T>())?, kind: PhantomData })
    }

    /// As [`RawRecord::from_shared`], for a record of this size.
    pub fn from_shared(shared: SharedMemory) -> Result<Self, MbuffError> {
        let raw = RawRecord::from_shared(shared)?.of_bytes(size_of::<T>())?;
        Ok(Self { raw, kind: PhantomData })
    }

    /// The memory itself: its name, descriptor and roles.
    pub fn shared(&self) -> &SharedMemory {
        self.raw.shared()
    }

    /// As [`RawRecord::writer`].
    pub fn writer(self) -> Result<RecordWriter<T>, MbuffError> {
        Ok(RecordWriter { raw: self.raw.writer()?, kind: PhantomData })
    }

    /// As [`RawRecord::read`].
    pub fn read(&self) -> Result<Option<(u64, T)>, Overtaken> {
        let mut value: T = plain::zeroed();
        let number = self.raw.read(plain::bytes_mut(std::slice::from_mut(&mut value)))?;
        Ok(number.map(|number| (number, value)))
    }

    /// As [`RawRecord::has_writer`].
    pub fn has_writer(&self) -> bool {
        self.raw.has_writer()
    }
}

/// The writer of a record. Dropping it releases the role.
#[derive(Debug)]
pub struct RecordWriter<T> {
    raw: RawRecordWriter,
    kind: PhantomData<T>,
}

impl<T: Plain> RecordWriter<T> {
    /// The memory itself: its name, descriptor and roles.
    pub fn shared(&self) -> &SharedMemory {
        self.raw.record().shared()
    }

    /// As [`RawRecordWriter::write`].
    pub fn write(&mut self, value: &T) {
        self.raw.write(plain::bytes(std::slice::from_ref(value)));
    }
}

#[cfg(all(test, not(miri)))]
#[path = "mbuff_tests.rs"]
mod tests;
