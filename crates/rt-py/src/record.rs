// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `Record` and `RecordWriter`: an mbuff that holds one record, which readers see whole.

use crate::bytes::{Target, from_object};
use crate::errors::{self, BadRecord, BadSize};
use crate::offer::{self, Offer};
use crate::slot::{Slot, handle};
use asmp_channel::{Kind, RawRecord, RawRecordWriter, SharedMemory};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

struct Reading {
    record: RawRecord,
    /// A record is copied here before it becomes a Python object.
    bytes: Vec<u8>,
}

/// Shared memory that holds one record of `size_bytes` bytes. The one writer never waits, and
/// readers see whole records only. Leaving `with` detaches it.
#[pyclass(frozen, module = "asmp_rt")]
pub struct Record {
    /// `None`: it came from an offer, and has no name here.
    dir: Option<PathBuf>,
    slot: Slot<Reading>,
    size_bytes: usize,
}

impl Record {
    fn of(dir: Option<PathBuf>, name: &str, record: RawRecord) -> Self {
        let size_bytes = record.bytes();
        let bytes = vec![0; size_bytes];
        Self { dir, slot: Slot::new("record", name, Reading { record, bytes }), size_bytes }
    }

    fn newest<R>(&self, py: Python<'_>, give: impl FnOnce(u64, &[u8]) -> R) -> PyResult<Option<R>> {
        self.slot.with(py, |Reading { record, bytes }| {
            let number = record.read(bytes).map_err(errors::overtaken)?;
            Ok(number.map(|number| give(number, bytes)))
        })?
    }
}

#[pymethods]
impl Record {
    /// Create a record of `size_bytes` bytes, or attach to one of this name and size. `huge`,
    /// `dir`: as Mbuff.alloc.
    ///
    /// Raises BadName, BadSize, Mismatch (another size, or raw bytes), NoRoom, ForeignDirectory,
    /// HiddenChannel, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (name, size_bytes, *, huge = false, dir = None))]
    fn alloc(
        py: Python<'_>,
        name: &str,
        size_bytes: i128,
        huge: bool,
        dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let dir = crate::directory(dir);
        let refused = || {
            BadSize::new_err(format!("invalid record size {size_bytes}: use 1 to 1073741824 bytes"))
        };
        let bytes = usize::try_from(size_bytes).map_err(|_| refused())?;
        let made = py.detach(|| RawRecord::alloc(&dir, name, bytes, crate::pages(huge)));
        Ok(Self::of(Some(dir), name, made.map_err(errors::mbuff)?))
    }

    /// Attach to an existing record of any size.
    ///
    /// Raises BadName, NoSuchChannel, Mismatch (raw bytes, or no mbuff), ForeignDirectory,
    /// HiddenChannel, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (name, *, dir = None))]
    fn attach(py: Python<'_>, name: &str, dir: Option<PathBuf>) -> PyResult<Self> {
        let dir = crate::directory(dir);
        let found = py.detach(|| RawRecord::attach_any(&dir, name)).map_err(errors::mbuff)?;
        Ok(Self::of(Some(dir), name, found))
    }

    /// Receive the record that a program of another user offers at `path`. It trusts programs of
    /// root and of user `owner` (a user ID, default this user). It waits up to `timeout` seconds
    /// for the program to serve (None: without limit).
    ///
    /// Raises NoSuchChannel, NotPermitted (it is not for this user, or its program is another
    /// user's), Mismatch, NameTaken (no socket), TimedOut, BadName, NoRoom, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (path, *, owner = None, timeout = None))]
    fn receive(
        py: Python<'_>,
        path: PathBuf,
        owner: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let shared = offer::receive(py, &path, owner, Kind::Mbuff, timeout)?;
        let name = shared.name().to_owned();
        Ok(Self::of(None, &name, RawRecord::from_shared(shared).map_err(errors::mbuff)?))
    }

    /// Offer this record at the Unix socket `path` to root and to `users` (user IDs; none: the
    /// real user of this process), who cannot attach to it by its name. Unless `writable`, they can
    /// only read it.
    ///
    /// Raises BadName, NameTaken (a living process listens there, or it is no socket),
    /// ForeignDirectory (other users may write there), Mismatch, Closed, ChannelIO.
    #[pyo3(signature = (path, users = None, *, writable = false))]
    fn offer(
        &self,
        py: Python<'_>,
        path: PathBuf,
        users: Option<Vec<u32>>,
        writable: bool,
    ) -> PyResult<Offer> {
        self.slot.with(py, |reading| Offer::of(reading.record.shared(), path, users, writable))?
    }

    /// Read the newest whole record and its number, from 1; None if there is no record yet. Does
    /// not wait for the writer.
    ///
    /// Raises Overtaken (the writer replaced the record during each of 16 attempts), Closed.
    fn read(&self, py: Python<'_>) -> PyResult<Option<(u64, Py<PyBytes>)>> {
        self.newest(py, |number, bytes| (number, PyBytes::new(py, bytes).unbind()))
    }

    /// As read, into `buffer` (writable, contiguous, size_bytes or more). Returns the number, or
    /// None.
    ///
    /// Raises as read, and BadRecord (the buffer is too small), TypeError, BufferError.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let target = Target::new(buffer)?;
        let (found, asked) = (target.len(), self.size_bytes);
        if found < asked {
            return Err(BadRecord::new_err(format!(
                "the buffer has {found} bytes, the record has {asked}"
            )));
        }
        self.newest(py, |number, bytes| {
            target.fill(bytes);
            number
        })
    }

    /// Become the writer, which continues after the last whole record. Raises RoleTaken, Closed,
    /// HiddenChannel, NotPermitted (it was offered for reading), ChannelIO.
    fn writer(&self, py: Python<'_>) -> PyResult<RecordWriter> {
        let name = self.slot.name.as_str();
        let again = |shared: &SharedMemory| RawRecord::from_shared(shared.again()?);
        let made = match &self.dir {
            Some(dir) => {
                self.slot.with(py, |_| ())?;
                py.detach(|| RawRecord::attach_any(dir, name)?.writer())
            }
            None => self.slot.with(py, |reading| again(reading.record.shared())?.writer())?,
        };
        let made = made.map_err(errors::mbuff)?;
        Ok(RecordWriter { slot: Slot::new("the writer of record", name, made) })
    }

    /// Detach the memory, which exists as long as a process has it.
    fn detach(&self, py: Python<'_>) {
        self.slot.close(py);
    }

    /// Bytes of the record.
    #[getter]
    const fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Whether there is a living writer.
    #[getter]
    fn has_writer(&self, py: Python<'_>) -> PyResult<bool> {
        self.slot.with(py, |reading| reading.record.has_writer())
    }
}

handle!(Record, detach);

/// The writer of a record: `Record.writer()`. Leaving `with` closes it, and another process can
/// become the writer.
#[pyclass(frozen, module = "asmp_rt")]
pub struct RecordWriter {
    slot: Slot<RawRecordWriter>,
}

#[pymethods]
impl RecordWriter {
    /// Make `record` (bytes-like, of the size of the record) the newest. Never waits for readers.
    ///
    /// Raises BadRecord, TypeError, BufferError, Closed.
    fn write(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        let bytes = from_object(record)?;
        self.slot.with(py, |writer| {
            let (found, asked) = (bytes.len(), writer.record().bytes());
            if found != asked {
                return Err(BadRecord::new_err(format!(
                    "got {found} bytes for a record of {asked}"
                )));
            }
            writer.write(&bytes);
            Ok(())
        })?
    }

    /// Release the role of the writer.
    fn close(&self, py: Python<'_>) {
        self.slot.close(py);
    }
}

handle!(RecordWriter, close);
