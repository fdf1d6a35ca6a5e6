// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `Fifo`, `FifoReader`, `FifoWriter`.

use crate::bytes::{Target, from_object};
use crate::errors::{self, BadRecord, BadSize, ChannelIO};
use crate::offer::{self, Offer};
use crate::slot::{Slot, handle};
use crate::wait::{Peer, deadline};
use asmp_channel::{
    Kind, MAX_FIFO_BYTES, MIN_FIFO_BYTES, Options, Overflow, RingError, Role, Wake,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::borrow::Cow;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A FIFO of records of bytes, from one writer to one reader, between two processes. Use
/// `Fifo.create` or `Fifo.attach`, then `reader()` or `writer()`. The object itself is neither end.
/// The name exists while it is open. Leaving `with` closes it.
#[pyclass(frozen, module = "asmp_rt")]
pub struct Fifo {
    /// `None`: it came from an offer, and has no name here.
    dir: Option<PathBuf>,
    slot: Slot<Arc<asmp_channel::Fifo>>,
}

impl Fifo {
    fn of(dir: Option<PathBuf>, fifo: asmp_channel::Fifo) -> Self {
        let name = fifo.shared().name().to_owned();
        Self { dir, slot: Slot::new("fifo", &name, Arc::new(fifo)) }
    }

    /// The FIFO, and a second mapping for an end.
    fn again(&self, py: Python<'_>) -> PyResult<(Arc<asmp_channel::Fifo>, asmp_channel::Fifo)> {
        let fifo = self.slot.with(py, |fifo| Arc::clone(fifo))?;
        let end = py
            .detach(|| match &self.dir {
                Some(dir) => asmp_channel::Fifo::attach(dir, fifo.shared().name()),
                None => asmp_channel::Fifo::from_shared(fifo.shared().again()?),
            })
            .map_err(errors::shm)?;
        Ok((fifo, end))
    }
}

#[pymethods]
impl Fifo {
    /// Create a FIFO with room for `capacity_bytes` bytes of records (16 to 2**29 - 8; each record
    /// takes 8 bytes more and is padded to 8). When it is full, "refuse" refuses a new record, and
    /// "drop-oldest" drops the oldest ones. `dir`: the directory of names, default $ASMP_CHANNELS
    /// or /dev/shm/asmp-UID.
    ///
    /// Raises BadName, NameTaken, BadSize, NoRoom, ForeignDirectory, HiddenChannel, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (name, capacity_bytes, *, overflow = "refuse", dir = None))]
    fn create(
        py: Python<'_>,
        name: &str,
        capacity_bytes: i128,
        overflow: &str,
        dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let overflow = match overflow {
            "refuse" => Overflow::Refuse,
            "drop-oldest" => Overflow::DropOldest,
            other => {
                let line = format!("invalid overflow {other:?}: use \"refuse\" or \"drop-oldest\"");
                return Err(PyValueError::new_err(line));
            }
        };
        if !(MIN_FIFO_BYTES.into()..=MAX_FIFO_BYTES.into()).contains(&capacity_bytes) {
            let line = format!(
                "invalid capacity {capacity_bytes}: use {MIN_FIFO_BYTES} to {MAX_FIFO_BYTES} bytes"
            );
            return Err(BadSize::new_err(line));
        }
        let dir = crate::directory(dir);
        let options = Options { capacity_bytes: capacity_bytes as u64, overflow };
        let made =
            py.detach(|| asmp_channel::Fifo::create(&dir, name, &options)).map_err(errors::shm)?;
        Ok(Self::of(Some(dir), made))
    }

    /// Attach to a FIFO that a process has open.
    ///
    /// Raises BadName, NoSuchChannel, Mismatch, ForeignDirectory, HiddenChannel, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (name, *, dir = None))]
    fn attach(py: Python<'_>, name: &str, dir: Option<PathBuf>) -> PyResult<Self> {
        let dir = crate::directory(dir);
        let found = py.detach(|| asmp_channel::Fifo::attach(&dir, name)).map_err(errors::shm)?;
        Ok(Self::of(Some(dir), found))
    }

    /// Receive the FIFO that a program of another user offers at `path`. It trusts programs of
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
        let shared = offer::receive(py, &path, owner, Kind::Fifo, timeout)?;
        Ok(Self::of(None, asmp_channel::Fifo::from_shared(shared).map_err(errors::shm)?))
    }

    /// Become the reader. Raises RoleTaken, Closed, ChannelIO.
    fn reader<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // The subclass with asyncio, which is defined in Python.
        slf.py().import("asmp_rt")?.getattr("FifoReader")?.call1((slf,))
    }

    /// Become the writer. Raises RoleTaken, Closed, ChannelIO.
    fn writer<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("asmp_rt")?.getattr("FifoWriter")?.call1((slf,))
    }

    /// Close the FIFO. Its ends stay open. The name is free when no process has the FIFO open.
    fn close(&self, py: Python<'_>) {
        self.slot.close(py);
    }

    /// Bytes that all records may take at once, headers of 8 bytes and padding included.
    #[getter]
    fn capacity_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.slot.with(py, |fifo| fifo.capacity_bytes())
    }

    /// Whether it is empty.
    #[getter]
    fn empty(&self, py: Python<'_>) -> PyResult<bool> {
        self.slot.with(py, |fifo| fifo.is_empty())
    }
}

handle!(Fifo, close);

struct Reading {
    end: asmp_channel::FifoReader,
    /// A record is copied here before it becomes a Python object.
    record: Vec<u8>,
}

/// The reader of a FIFO, without asyncio. `Fifo.reader()` returns an `asmp_rt.FifoReader`.
#[pyclass(frozen, subclass, module = "asmp_rt._native")]
pub struct FifoReader {
    slot: Slot<Reading>,
    watched: Slot<Arc<asmp_channel::Fifo>>,
    writer: Peer,
}

impl FifoReader {
    /// Takes the oldest record, at most `most` bytes of it, and passes it to `give`. `None`: there
    /// is none.
    fn take<R>(
        &self,
        py: Python<'_>,
        most: usize,
        give: impl FnOnce(&[u8]) -> R,
    ) -> PyResult<Option<R>> {
        self.slot.with(py, |reading| {
            let most = most.min(reading.record.len());
            let count = reading.end.get(&mut reading.record[..most]).map_err(errors::ring)?;
            Ok((count > 0).then(|| give(&reading.record[..count])))
        })?
    }

    fn wait_until(&self, py: Python<'_>, end: Option<Instant>) -> PyResult<()> {
        let fifo = self.watched.with(py, |fifo| Arc::clone(fifo))?;
        self.writer
            .wait(py, &fifo, end, || self.slot.with_detached(|reading| !reading.end.is_empty()))
    }

    /// As `take`, but waits if there is no record.
    fn take_until<R>(
        &self,
        py: Python<'_>,
        most: usize,
        timeout_s: Option<f64>,
        give: impl Fn(&[u8]) -> R,
    ) -> PyResult<R> {
        let end = deadline(timeout_s)?;
        loop {
            self.writer.check(&self.slot.name)?;
            match self.take(py, most, &give) {
                Ok(Some(given)) => return Ok(given),
                Ok(None) => self.wait_until(py, end)?,
                // The writer drops records faster than we read: try again.
                Err(error) if error.is_instance_of::<errors::Overtaken>(py) => {
                    py.check_signals()?
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[pymethods]
impl FifoReader {
    #[new]
    fn new(py: Python<'_>, fifo: &Fifo) -> PyResult<Self> {
        let name = fifo.slot.name.as_str();
        let (watched, end) = fifo.again(py)?;
        let end = end.into_reader(Wake::IfAsleep).map_err(errors::shm)?;
        // Pages that no record touches are never allocated.
        let record = vec![0; watched.capacity_bytes()];
        let writer = Peer::new(Role::Writer, end.peer(), end.canceller());
        Ok(Self {
            slot: Slot::new("the reader of fifo", name, Reading { end, record }),
            watched: Slot::new("the reader of fifo", name, watched),
            writer,
        })
    }

    /// Read the oldest record, or None if there is none. Does not wait.
    ///
    /// Raises Corrupt (once; the next read continues), Overtaken, Closed.
    fn try_read(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        self.take(py, usize::MAX, |record| PyBytes::new(py, record).unbind())
    }

    /// Copy the oldest record into `buffer` (writable, contiguous), or as much of it as fits; the
    /// next call returns the rest. Returns the number of bytes, or None if there is no record. Does
    /// not wait.
    ///
    /// Raises as try_read, and TypeError, BufferError.
    fn try_readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let target = target(buffer)?;
        self.take(py, target.len(), |record| filled(&target, record))
    }

    /// Read the oldest record; wait up to `timeout` seconds for it (None: without limit). Waits for
    /// a writer that has not attached yet. Raises PeerGone after the last record of a writer that
    /// ended.
    ///
    /// Raises TimedOut, PeerGone (within 100 ms), Corrupt (once; the next read continues), Closed
    /// and Cancelled (by another thread, at once), ValueError.
    #[pyo3(signature = (timeout = None))]
    fn read(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyBytes>> {
        self.take_until(py, usize::MAX, timeout, |record| PyBytes::new(py, record).unbind())
    }

    /// As read, into `buffer` as try_readinto. Returns the number of bytes.
    #[pyo3(signature = (buffer, timeout = None))]
    fn readinto(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        let target = target(buffer)?;
        self.take_until(py, target.len(), timeout, |record| filled(&target, record))
    }

    /// Wait until there is a record, without reading it. Raises as read.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        self.wait_until(py, deadline(timeout)?)
    }

    /// Offer this FIFO at the Unix socket `path` to root and to `users` (user IDs; none: the
    /// real user of this process), who cannot attach to it by its name. Who receives it takes the
    /// other role.
    ///
    /// Raises BadName, NameTaken (a living process listens there, or it is no socket),
    /// ForeignDirectory (other users may write there), Mismatch, Closed, ChannelIO.
    #[pyo3(signature = (path, users = None))]
    fn offer(&self, py: Python<'_>, path: PathBuf, users: Option<Vec<u32>>) -> PyResult<Offer> {
        self.slot.with(py, |reading| Offer::of(reading.end.fifo().shared(), path, users, true))?
    }

    /// Return a descriptor for select, poll, epoll and event loops. It is readable while there is a
    /// record, the writer has ended, or waits are cancelled. try_read makes it unreadable when it
    /// finds none. If there is none though it was readable, wait(0) says why. Do not read or close
    /// it.
    ///
    /// Raises ChannelIO, Closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        number(self.slot.with(py, |reading| reading.end.descriptor())?)
    }

    /// End the waits of this end in all threads and coroutines, at once, and each later one, until
    /// resume(): they raise Cancelled. Any thread may call it.
    fn cancel(&self) {
        self.writer.canceller.cancel();
    }

    /// Let this end wait again.
    fn resume(&self) {
        self.writer.canceller.resume();
    }

    /// Whether waits are cancelled now.
    #[getter]
    fn cancelled(&self) -> bool {
        self.writer.canceller.is_cancelled()
    }

    /// Release the role. Threads that wait get Closed at once.
    fn close(&self, py: Python<'_>) {
        self.slot.close(py);
        end_watches(py, &self.watched);
    }

    /// Whether there is a living writer.
    #[getter]
    fn has_writer(&self, py: Python<'_>) -> PyResult<bool> {
        self.slot.with(py, |reading| reading.end.has_writer())
    }

    /// How often the shared memory held values that no writer writes.
    #[getter]
    fn corrupted(&self, py: Python<'_>) -> PyResult<u64> {
        self.slot.with(py, |reading| reading.end.corrupted())
    }

    /// Iterate over records until the writer ends (after its last record) or another thread closes
    /// this end.
    fn __iter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().slot.with(py, |_| ())?;
        Ok(slf)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyBytes>>> {
        match self.read(py, None) {
            Ok(record) => Ok(Some(record)),
            Err(error)
                if error.is_instance_of::<errors::PeerGone>(py)
                    || error.is_instance_of::<errors::Closed>(py) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

handle!(FifoReader, close);

/// The number of a descriptor, which its end keeps open.
fn number(made: io::Result<Arc<OwnedFd>>) -> PyResult<i32> {
    made.map(|fd| fd.as_raw_fd()).map_err(|error| ChannelIO::new_err(error.to_string()))
}

/// Wakes the threads that wait: they find the end closed.
fn end_watches(py: Python<'_>, watched: &Slot<Arc<asmp_channel::Fifo>>) {
    if let Ok(fifo) = watched.with(py, |fifo| Arc::clone(fifo)) {
        watched.close(py);
        fifo.canceller().cancel();
    }
}

fn target(buffer: &Bound<'_, PyAny>) -> PyResult<Target> {
    let target = Target::new(buffer)?;
    match target.len() {
        0 => Err(PyValueError::new_err("the buffer is empty: use at least 1 byte")),
        _ => Ok(target),
    }
}

fn filled(target: &Target, record: &[u8]) -> usize {
    target.fill(record);
    record.len()
}

/// The writer of a FIFO, without asyncio. `Fifo.writer()` returns an `asmp_rt.FifoWriter`.
#[pyclass(frozen, subclass, module = "asmp_rt._native")]
pub struct FifoWriter {
    slot: Slot<asmp_channel::FifoWriter>,
    watched: Slot<Arc<asmp_channel::Fifo>>,
    reader: Peer,
}

impl FifoWriter {
    /// Did it fit now?
    fn put(&self, py: Python<'_>, record: &[u8]) -> PyResult<bool> {
        let put = self.slot.with(py, |end| (end.put(record), end.fifo().capacity_bytes()))?;
        match put {
            (Ok(()), _) => Ok(true),
            (Err(RingError::Full), _) => Ok(false),
            (Err(RingError::BadLength), capacity) => {
                self.fits(record.len(), capacity).map(|()| false)
            }
            (Err(error), _) => Err(errors::ring(error)),
        }
    }

    /// Errors: BadRecord, one of so many bytes is never taken.
    fn fits(&self, count: usize, capacity: usize) -> PyResult<()> {
        let (name, most) = (&self.slot.name, capacity - 8);
        match (1..=most).contains(&count) {
            true => Ok(()),
            false => Err(BadRecord::new_err(format!(
                "invalid record of {count} bytes: fifo {name} takes 1 to {most}"
            ))),
        }
    }

    fn wait_until(&self, py: Python<'_>, count: usize, end: Option<Instant>) -> PyResult<()> {
        let fifo = self.watched.with(py, |fifo| Arc::clone(fifo))?;
        let has_room = |end: &mut asmp_channel::FifoWriter| end.has_room(count);
        self.reader.wait(py, &fifo, end, || self.slot.with_detached(has_room))
    }
}

#[pymethods]
impl FifoWriter {
    #[new]
    fn new(py: Python<'_>, fifo: &Fifo) -> PyResult<Self> {
        let name = fifo.slot.name.as_str();
        let (watched, end) = fifo.again(py)?;
        let end = end.into_writer(Wake::IfAsleep).map_err(errors::shm)?;
        let reader = Peer::new(Role::Reader, end.peer(), end.canceller());
        Ok(Self {
            slot: Slot::new("the writer of fifo", name, end),
            watched: Slot::new("the writer of fifo", name, watched),
            reader,
        })
    }

    /// Put a whole record (bytes-like, 1 byte or more) in, or nothing: did it fit? Does not wait.
    /// Under "drop-oldest" it always fits.
    ///
    /// Raises BadRecord, TypeError, BufferError, Closed.
    fn try_write(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.put(py, &record_of(record)?)
    }

    /// Put a whole record in; wait up to `timeout` seconds for room (None: without limit). Waits
    /// for a reader that has not attached yet.
    ///
    /// Raises TimedOut, PeerGone (there is no room, and the reader has ended), Closed, Cancelled,
    /// and as try_write.
    #[pyo3(signature = (record, timeout = None))]
    fn write(
        &self,
        py: Python<'_>,
        record: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let end = deadline(timeout)?;
        let record = record_of(record)?;
        self.reader.check(&self.slot.name)?;
        while !self.put(py, &record)? {
            self.wait_until(py, record.len(), end)?;
        }
        Ok(())
    }

    /// Wait until a record of `count` bytes fits, without putting one in. With "drop-oldest" a put
    /// does not need this wait.
    ///
    /// Raises as write.
    #[pyo3(signature = (size, timeout = None))]
    fn wait(&self, py: Python<'_>, size: usize, timeout: Option<f64>) -> PyResult<()> {
        self._check_size(py, size)?;
        self.wait_until(py, size, deadline(timeout)?)
    }

    /// Offer this FIFO at the Unix socket `path` to root and to `users` (user IDs; none: the
    /// real user of this process), who cannot attach to it by its name. Who receives it takes the
    /// other role.
    ///
    /// Raises BadName, NameTaken (a living process listens there, or it is no socket),
    /// ForeignDirectory (other users may write there), Mismatch, Closed, ChannelIO.
    #[pyo3(signature = (path, users = None))]
    fn offer(&self, py: Python<'_>, path: PathBuf, users: Option<Vec<u32>>) -> PyResult<Offer> {
        self.slot.with(py, |end| Offer::of(end.fifo().shared(), path, users, true))?
    }

    /// Raise BadRecord if no record of so many bytes ever fits.
    fn _check_size(&self, py: Python<'_>, size: usize) -> PyResult<()> {
        let capacity = self.slot.with(py, |end| end.fifo().capacity_bytes())?;
        self.fits(size, capacity)
    }

    /// Return a descriptor for select, poll, epoll and event loops. It is readable while the record
    /// that last found no room fits (at first any), the reader has ended, or waits are cancelled.
    /// try_write makes it unreadable when it finds no room. If there is none though it was
    /// readable, wait(size, 0) says why. Do not read or close it.
    ///
    /// Raises ChannelIO, Closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        number(self.slot.with(py, |end| end.descriptor())?)
    }

    /// End the waits of this end in all threads and coroutines, at once, and each later one, until
    /// resume(): they raise Cancelled. Any thread may call it.
    fn cancel(&self) {
        self.reader.canceller.cancel();
    }

    /// Let this end wait again.
    fn resume(&self) {
        self.reader.canceller.resume();
    }

    /// Whether waits are cancelled now.
    #[getter]
    fn cancelled(&self) -> bool {
        self.reader.canceller.is_cancelled()
    }

    /// Release the role. Threads that wait get Closed at once.
    fn close(&self, py: Python<'_>) {
        self.slot.close(py);
        end_watches(py, &self.watched);
    }

    /// Whether there is a living reader.
    #[getter]
    fn has_reader(&self, py: Python<'_>) -> PyResult<bool> {
        self.slot.with(py, |end| end.has_reader())
    }

    /// Records dropped to make room, so far.
    #[getter]
    fn dropped(&self, py: Python<'_>) -> PyResult<u64> {
        self.slot.with(py, |end| end.dropped())
    }

    /// How often the shared memory held values that no reader writes.
    #[getter]
    fn corrupted(&self, py: Python<'_>) -> PyResult<u64> {
        self.slot.with(py, |end| end.corrupted())
    }
}

handle!(FifoWriter, close);

/// Errors: TypeError for text, with what to do.
fn record_of<'a>(record: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if record.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "a record is bytes, not str: encode it, as in text.encode()",
        ));
    }
    from_object(record)
}
