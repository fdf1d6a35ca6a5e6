// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFOs of records of one type. Both ends must use types of the same size.
//!
//! Records that are put in together are one frame of the FIFO: one header, one copy. A reader may
//! take a frame in parts, as many records at a time as it has room for. Other programs may read the
//! same FIFO as bytes.

use crate::fifo::{Fifo, FifoReader, FifoWriter, WaitError, Wake};
use crate::plain::{self, Plain};
use crate::ring::{Overflow, RingError};
use crate::shm::{SharedMemory, ShmError};
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A mapped FIFO of `T`. Turn it into one of its ends, or keep it to keep its name.
#[derive(Debug)]
pub struct TypedFifo<T> {
    fifo: Fifo,
    kind: PhantomData<T>,
}

impl<T: Plain> TypedFifo<T> {
    /// Creates a FIFO with room for `records` records, each put in alone. Errors: those of
    /// [`Fifo::create_for`].
    pub fn create(
        dir: &Path,
        name: &str,
        records: u64,
        overflow: Overflow,
    ) -> Result<Self, ShmError> {
        const { assert!(size_of::<T>() > 0, "a record has at least one byte") };
        let fifo = Fifo::create_for(dir, name, records, size_of::<T>() as u64, overflow)?;
        Ok(Self { fifo, kind: PhantomData })
    }

    /// Maps an existing FIFO. Errors: those of [`Fifo::attach_for`].
    pub fn attach(dir: &Path, name: &str) -> Result<Self, ShmError> {
        let fifo = Fifo::attach_for(dir, name, size_of::<T>() as u64)?;
        Ok(Self { fifo, kind: PhantomData })
    }

    /// A FIFO in memory that was [received](crate::receive). Errors: `Mismatch`, `ReadOnly`.
    pub fn from_shared(shared: SharedMemory) -> Result<Self, ShmError> {
        let fifo = Fifo::from_shared(shared)?.of_records(size_of::<T>() as u64)?;
        Ok(Self { fifo, kind: PhantomData })
    }

    /// Acquires the role of the writer. Errors: `RoleTaken`, `Io`.
    pub fn into_writer(self, wake: Wake) -> Result<TypedWriter<T>, ShmError> {
        Ok(TypedWriter { writer: self.fifo.into_writer(wake)?, kind: PhantomData })
    }

    /// Acquires the role of the reader. Errors: `RoleTaken`, `Io`.
    pub fn into_reader(self, wake: Wake) -> Result<TypedReader<T>, ShmError> {
        Ok(TypedReader { reader: self.fifo.into_reader(wake)?, kind: PhantomData })
    }
}

/// The writing end of a typed FIFO. Dropping it releases the role.
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

    /// Puts all records in, or none. The reader sees them at the same time, and `DropOldest` drops
    /// them together. Bounded: one copy. Errors: `Full`; `BadLength` (together they never fit).
    #[inline]
    pub fn put_all(&mut self, records: &[T]) -> Result<(), RingError> {
        match records.is_empty() {
            true => Ok(()),
            false => self.writer.put(plain::bytes(records)),
        }
    }

    /// Waits until `records` records fit together. Blocks. Errors: those of [`FifoWriter::wait`].
    pub fn wait(&mut self, records: usize, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.writer.wait(records.saturating_mul(size_of::<T>()), timeout)
    }

    /// A descriptor, as [`FifoWriter::descriptor`].
    pub fn descriptor(&mut self) -> io::Result<Arc<OwnedFd>> {
        self.writer.descriptor()
    }

    /// Records dropped to make room, so far. The reader may have taken the first records of a
    /// dropped frame.
    pub fn dropped(&self) -> u64 {
        self.writer.dropped_bytes() / size_of::<T>() as u64
    }

    /// The same end as a FIFO of bytes: for counts, the state of the other end, and its
    /// [`Canceller`](crate::Canceller).
    pub fn bytes(&self) -> &FifoWriter {
        &self.writer
    }
}

/// The reading end of a typed FIFO. Dropping it releases the role.
#[derive(Debug)]
pub struct TypedReader<T> {
    reader: FifoReader,
    kind: PhantomData<T>,
}

impl<T: Plain> TypedReader<T> {
    /// Takes the oldest record. `None`: there is none. Bounds, system calls and errors: those of
    /// [`FifoReader::get`]. `Corrupt` also means that a frame holds a part of a record.
    #[inline]
    pub fn get(&mut self) -> Result<Option<T>, RingError> {
        let mut record = plain::zeroed();
        Ok((self.get_all(std::slice::from_mut(&mut record))? == 1).then_some(record))
    }

    /// Takes the oldest records of one frame, as many as fit into `into`, and returns their number.
    /// 0: there is none. Otherwise as [`TypedReader::get`].
    #[inline]
    pub fn get_all(&mut self, into: &mut [T]) -> Result<usize, RingError> {
        let bytes = self.reader.get(plain::bytes_mut(into))?;
        match bytes.is_multiple_of(size_of::<T>()) {
            true => Ok(bytes / size_of::<T>()),
            false => Err(RingError::Corrupt),
        }
    }

    /// Waits until there is a record. Blocks. Errors: those of [`FifoReader::wait`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.reader.wait(timeout)
    }

    /// A descriptor, as [`FifoReader::descriptor`].
    pub fn descriptor(&mut self) -> io::Result<Arc<OwnedFd>> {
        self.reader.descriptor()
    }

    /// The same end as a FIFO of bytes: for counts, the state of the other end, and its
    /// [`Canceller`](crate::Canceller).
    pub fn bytes(&self) -> &FifoReader {
        &self.reader
    }
}

#[cfg(all(test, not(miri)))]
#[path = "typed_tests.rs"]
mod tests;
