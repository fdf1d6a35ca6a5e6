//! The rt-FIFO of records: one type, of which both ends have to have the same size, and many at once for the price of
//! one frame.
//!
//! What is put in together is one frame of the FIFO, which is why it is cheap: one header, one copy. A reader takes as
//! many records as it has room for, whatever the parts they came in. Other programs may read the same FIFO as bytes.

use crate::fifo::{Fifo, FifoReader, FifoWriter, WaitError, Wake};
use crate::plain::{self, Plain};
use crate::ring::{Overflow, RingError};
use crate::shm::ShmError;
use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

/// A FIFO of `T` that exists; it becomes one of its ends, or is kept so that its name stays.
#[derive(Debug)]
pub struct TypedFifo<T> {
    fifo: Fifo,
    kind: PhantomData<T>,
}

impl<T: Plain> TypedFifo<T> {
    /// Makes one with room for so many records, each put in alone. Errors: those of [`Fifo::create_for`].
    pub fn create(dir: &Path, name: &str, records: u64, overflow: Overflow) -> Result<Self, ShmError> {
        const { assert!(size_of::<T>() > 0, "a record of nothing") };
        let fifo = Fifo::create_for(dir, name, records, size_of::<T>() as u64, overflow)?;
        Ok(Self { fifo, kind: PhantomData })
    }

    /// Maps one. Errors: those of [`Fifo::attach_for`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, ShmError> {
        let fifo = Fifo::attach_for(dir, name, size_of::<T>() as u64)?;
        Ok(Self { fifo, kind: PhantomData })
    }

    /// Becomes the one writer. Errors: `RoleTaken`, `Io`.
    pub fn into_writer(self, wake: Wake) -> Result<TypedWriter<T>, ShmError> {
        Ok(TypedWriter { writer: self.fifo.into_writer(wake)?, kind: PhantomData })
    }

    /// Becomes the one reader. Errors: `RoleTaken`, `Io`.
    pub fn into_reader(self, wake: Wake) -> Result<TypedReader<T>, ShmError> {
        Ok(TypedReader { reader: self.fifo.into_reader(wake)?, kind: PhantomData })
    }
}

/// The end that puts records in.
#[derive(Debug)]
pub struct TypedWriter<T> {
    writer: FifoWriter,
    kind: PhantomData<T>,
}

impl<T: Plain> TypedWriter<T> {
    /// Puts a record in, or nothing. Bounds, system calls and errors: those of [`FifoWriter::put`].
    #[inline(always)]
    pub fn put(&mut self, record: &T) -> Result<(), RingError> {
        self.writer.put(plain::bytes(std::slice::from_ref(record)))
    }

    /// Puts all records in, or none; the reader sees them at once, and `DropOldest` drops them at once. Bounded: one
    /// copy. Errors: `Full`; `BadLength` (together they never fit).
    #[inline]
    pub fn put_all(&mut self, records: &[T]) -> Result<(), RingError> {
        match records.is_empty() {
            true => Ok(()),
            false => self.writer.put(plain::bytes(records)),
        }
    }

    /// Waits until so many records fit together. Blocks; errors: those of [`FifoWriter::wait`].
    pub fn wait(&mut self, records: usize, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.writer.wait(records.saturating_mul(size_of::<T>()), timeout)
    }

    /// Records thrown away to make room, so far: of some of them the reader may have taken the first already.
    pub fn dropped(&self) -> u64 {
        self.writer.dropped_bytes() / size_of::<T>() as u64
    }

    /// The same end for bytes: counts, and who is at the other.
    pub fn bytes(&self) -> &FifoWriter {
        &self.writer
    }
}

/// The end that takes records out.
#[derive(Debug)]
pub struct TypedReader<T> {
    reader: FifoReader,
    kind: PhantomData<T>,
}

impl<T: Plain> TypedReader<T> {
    /// The oldest record, if there is one. Bounds, system calls and errors: those of [`FifoReader::get`]; `Corrupt` also
    /// where there is a part of a record only.
    #[inline]
    pub fn get(&mut self) -> Result<Option<T>, RingError> {
        let mut record = plain::zeroed();
        Ok((self.get_all(std::slice::from_mut(&mut record))? == 1).then_some(record))
    }

    /// Copies out the oldest records, as many as fit and were put in together; 0: there is none. Otherwise as
    /// [`TypedReader::get`].
    #[inline]
    pub fn get_all(&mut self, into: &mut [T]) -> Result<usize, RingError> {
        let bytes = self.reader.get(plain::bytes_mut(into))?;
        match bytes.is_multiple_of(size_of::<T>()) {
            true => Ok(bytes / size_of::<T>()),
            false => Err(RingError::Corrupt),
        }
    }

    /// Waits until there is a record. Blocks; errors: those of [`FifoReader::wait`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.reader.wait(timeout)
    }

    /// The same end for bytes: counts, and who is at the other.
    pub fn bytes(&self) -> &FifoReader {
        &self.reader
    }
}

#[cfg(all(test, not(miri)))]
#[path = "typed_tests.rs"]
mod tests;
