//! Shared memory with a name (RTLinux's mbuff): raw bytes, or one record of a type that is never seen torn.
//!
//! Set-up (`alloc`, `attach`) allocates and enters the kernel; what comes after does neither. The memory goes with
//! its last mapping, however its processes end; its size is sealed (see [`crate::shm`]).
//!
//! The other side may write anything at any time, also when it should not. So there is no `&mut [u8]` and no `&T`
//! into this memory: raw access is by words that are atomics, by copies, or by a pointer whose user answers for it.

use crate::seqlock::{Board, Overtaken, SLOTS, Writer};
use crate::shm::{Kind, MAX_BYTES, Pages, Role, Shared, ShmError};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often `alloc` begins anew when others make and free the same name meanwhile.
const ATTEMPTS: u32 = 16;
/// Bytes before the records: the control word, on a cache line of its own.
const RECORDS: usize = 64;

/// Why an mbuff cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MbuffError {
    #[error(
        "mbuff {name} has {found} bytes, {asked} were asked for: free it everywhere, or ask for its size"
    )]
    SizeMismatch { name: String, found: u64, asked: u64 },
    #[error("mbuff {name} holds {found}, {asked} was asked for")]
    ViewMismatch { name: String, found: String, asked: String },
    #[error("{offset}+{bytes} is beyond the {size} bytes of mbuff {name}")]
    Outside { name: String, offset: usize, bytes: usize, size: usize },
    #[error(transparent)]
    Shm(#[from] ShmError),
}

/// Mapped shared memory; dropping it is `mbuff_free` and `mbuff_detach`.
#[derive(Debug)]
pub struct Mbuff {
    shared: Shared,
    bytes: usize,
}

impl Mbuff {
    /// Makes `bytes` of zeroed memory, or attaches to what has this name and size. Errors: `SizeMismatch`,
    /// `ViewMismatch` (it holds records), and those of [`Shared::create`].
    pub fn alloc(dir: &Path, name: &str, bytes: u64, pages: Pages) -> Result<Self, MbuffError> {
        Self::alloc_for(dir, name, bytes, None, pages)
    }

    /// Attaches to what exists, of whatever size. Errors: `ViewMismatch`, and those of [`Shared::attach`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, MbuffError> {
        Self::attach_for(dir, name, None)
    }

    /// `record`: bytes of its records. `bytes` then follows from it.
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
            match Shared::create(dir, name, Kind::Mbuff, bytes, parameters, pages) {
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
                Err(MbuffError::Shm(ShmError::Missing { .. })) if attempts < ATTEMPTS => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn attach_for(dir: &Path, name: &str, record: Option<usize>) -> Result<Self, MbuffError> {
        Self::checked(Shared::attach(dir, name, Kind::Mbuff)?, record)
    }

    /// What the creator's parameters say is checked against what is really there.
    fn checked(shared: Shared, record: Option<usize>) -> Result<Self, MbuffError> {
        let [bytes, found, ..] = shared.parameters();
        let name = || shared.name().to_owned();
        if bytes == 0 || bytes > shared.body_bytes() as u64 {
            let found = format!("it says {bytes} bytes and has {}", shared.body_bytes());
            return Err(ShmError::Mismatch { name: name(), found }.into());
        }
        let asked = record.unwrap_or(0) as u64;
        // `bytes` is checked, so nothing below overflows.
        let fits = |record| record as u64 <= bytes && (RECORDS + SLOTS * words(record) * 8) as u64 <= bytes;
        if found != asked || !record.is_none_or(fits) {
            let say = |bytes| match bytes {
                0 => "raw bytes".to_owned(),
                _ => format!("a record of {bytes} bytes"),
            };
            return Err(MbuffError::ViewMismatch { name: name(), found: say(found), asked: say(asked) });
        }
        Ok(Self { shared, bytes: bytes as usize })
    }

    /// Bytes that were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The first byte, 64-byte aligned; valid as long as `self`. Whoever uses it must expect any value at any time,
    /// and use volatile or atomic accesses.
    pub fn pointer(&self) -> NonNull<u8> {
        self.shared.body()
    }

    /// The memory as words, the last bytes of a size that is no multiple of 8 left out.
    pub fn words(&self) -> &[AtomicU64] {
        self.shared.words(0, self.bytes / 8)
    }

    /// Copies bytes out; a concurrent write may be seen in part. O(bytes), no system call, no allocation. Errors:
    /// `Outside`.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MbuffError> {
        let words = self.within(offset, into.len())?;
        for (place, bytes) in pieces(offset, into.len()) {
            let word = words[place / 8].load(Relaxed).to_ne_bytes();
            into[place + bytes.start - offset..][..bytes.len()].copy_from_slice(&word[bytes]);
        }
        Ok(())
    }

    /// Copies bytes in, and touches no other byte. O(bytes), no system call, no allocation. Errors: `Outside`.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MbuffError> {
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
                // Only bits of our own bytes change, whatever the neighbours do meanwhile.
                false => _ = word.fetch_xor(before ^ after, Relaxed),
            }
        }
        Ok(())
    }

    /// All words, if the range is inside.
    fn within(&self, offset: usize, bytes: usize) -> Result<&[AtomicU64], MbuffError> {
        match offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            // The body ends with a page: the word that holds the last byte is in it.
            true => Ok(self.shared.words(0, self.bytes.div_ceil(8))),
            false => {
                let (name, size) = (self.shared.name().to_owned(), self.bytes);
                Err(MbuffError::Outside { name, offset, bytes, size })
            }
        }
    }
}

/// The words that a range of bytes lies in: where each begins, and which of its bytes are meant.
fn pieces(offset: usize, bytes: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let end = offset + bytes;
    let first = offset - offset % 8;
    (first..end).step_by(8).map(move |place| (place, offset.max(place) - place..end.min(place + 8) - place))
}

/// What can be a record: plain data.
///
/// # Safety
/// Every pattern of bits is a value, no byte is padding, and there is no pointer, reference or interior mutability
/// in it.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($name:ty)*) => { $(
        // SAFETY: every pattern of bits is a number.
        unsafe impl Plain for $name {}
    )* };
}
plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array has no padding between its elements, and they are plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// An mbuff that holds records of so many bytes, where the size is known only at run time (other languages):
/// one writer that never waits, readers that never see half of a record.
#[derive(Debug)]
pub struct RawRecord {
    mbuff: Mbuff,
    bytes: usize,
}

impl RawRecord {
    /// Makes it, or attaches to what has this name and records of this size. Errors: `BadSize`, `ViewMismatch`, and
    /// those of [`Mbuff::alloc`].
    pub fn alloc(dir: &Path, name: &str, bytes: usize, pages: Pages) -> Result<Self, MbuffError> {
        if !(1..=MAX_BYTES).contains(&(bytes as u64)) {
            return Err(ShmError::BadSize { bytes: bytes as u64 }.into());
        }
        let whole = RECORDS + SLOTS * words(bytes) * 8;
        Ok(Self { mbuff: Mbuff::alloc_for(dir, name, whole as u64, Some(bytes), pages)?, bytes })
    }

    /// Attaches to what exists, of whatever size. Errors: `ViewMismatch`, and those of [`Shared::attach`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, MbuffError> {
        let shared = Shared::attach(dir, name, Kind::Mbuff)?;
        let [_, bytes, ..] = shared.parameters();
        match usize::try_from(bytes) {
            Ok(bytes @ 1..) => Ok(Self { mbuff: Mbuff::checked(shared, Some(bytes))?, bytes }),
            _ => {
                let (name, found) = (name.to_owned(), "raw bytes".to_owned());
                Err(MbuffError::ViewMismatch { name, found, asked: "a record".to_owned() })
            }
        }
    }

    /// Becomes the one writer. It goes on from the last whole record, whatever became of the writer before. Errors:
    /// `RoleTaken`.
    pub fn writer(self) -> Result<RawRecordWriter, MbuffError> {
        self.mbuff.shared.take(Role::Writer)?;
        let writer = Writer::attach(&self.board());
        Ok(RawRecordWriter { record: self, writer })
    }

    /// Copies the newest whole record, or as much of it as fits, and gives its number, 1 being the first; `None` before
    /// that. Bounded: at most 16 copies. No system call, no allocation; does not wait for a writer that stopped
    /// half-way. Errors: `Overtaken`.
    pub fn read(&self, into: &mut [u8]) -> Result<Option<u64>, Overtaken> {
        let count = into.len().min(self.bytes);
        self.board().read(&mut into[..count])
    }

    /// Of one record.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn shared(&self) -> &Shared {
        self.mbuff.shared()
    }

    /// Is there a writer, alive, in another place than this value? One system call.
    pub fn has_writer(&self) -> bool {
        self.mbuff.shared.is_held(Role::Writer)
    }

    /// Control word, then the slots.
    fn board(&self) -> Board<'_> {
        let count = SLOTS * words(self.bytes);
        let [newest] = self.mbuff.shared.words(0, 1) else { unreachable!("one word was asked for") };
        Board::new(newest, self.mbuff.shared.words(RECORDS, count)).expect("a multiple of SLOTS, and not 0")
    }
}

/// The one writer of a [`RawRecord`]; dropping it lets another be.
#[derive(Debug)]
pub struct RawRecordWriter {
    record: RawRecord,
    writer: Writer,
}

impl RawRecordWriter {
    /// Makes `bytes` the newest record. Wait-free: O(bytes), no system call, no allocation, whatever readers do. Panics
    /// if they are not as many as a record has.
    pub fn write(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.record.bytes, "a record is written whole");
        self.writer.write(&self.record.board(), bytes);
    }

    pub fn record(&self) -> &RawRecord {
        &self.record
    }
}

/// A [`RawRecord`] of a type `T`.
#[derive(Debug)]
pub struct Record<T> {
    raw: RawRecord,
    kind: PhantomData<T>,
}

impl<T: Plain> Record<T> {
    const BYTES: usize = {
        assert!(size_of::<T>() > 0, "a record of nothing");
        size_of::<T>()
    };

    /// Makes it, or attaches to what has this name and records of this size. Errors: `ViewMismatch`, and those of
    /// [`Mbuff::alloc`].
    pub fn alloc(dir: &Path, name: &str, pages: Pages) -> Result<Self, MbuffError> {
        Ok(Self { raw: RawRecord::alloc(dir, name, Self::BYTES, pages)?, kind: PhantomData })
    }

    /// Attaches to what exists. Errors: `ViewMismatch`, and those of [`Shared::attach`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, MbuffError> {
        let mbuff = Mbuff::attach_for(dir, name, Some(Self::BYTES))?;
        Ok(Self { raw: RawRecord { mbuff, bytes: Self::BYTES }, kind: PhantomData })
    }

    /// Becomes the one writer: [`RawRecord::writer`].
    pub fn writer(self) -> Result<RecordWriter<T>, MbuffError> {
        Ok(RecordWriter { raw: self.raw.writer()?, kind: PhantomData })
    }

    /// The newest whole record and its number: [`RawRecord::read`].
    pub fn read(&self) -> Result<Option<(u64, T)>, Overtaken> {
        // SAFETY: `Plain`: all zeros is a value.
        let mut value: T = unsafe { std::mem::zeroed() };
        // SAFETY: `Plain`: bytes of `value`, none of them padding, and whatever is put there is a value.
        let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
        Ok(self.raw.read(bytes)?.map(|number| (number, value)))
    }

    /// Is there a writer, alive, in another place than this value? One system call.
    pub fn has_writer(&self) -> bool {
        self.raw.has_writer()
    }
}

/// The one writer; dropping it lets another be.
#[derive(Debug)]
pub struct RecordWriter<T> {
    raw: RawRecordWriter,
    kind: PhantomData<T>,
}

impl<T: Plain> RecordWriter<T> {
    /// Makes `value` the newest record: [`RawRecordWriter::write`].
    pub fn write(&mut self, value: &T) {
        // SAFETY: `Plain`: the bytes of `value`, none of them padding.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) };
        self.raw.write(bytes);
    }
}

#[cfg(all(test, not(miri)))]
#[path = "mbuff_tests.rs"]
mod tests;
