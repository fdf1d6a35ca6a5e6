// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `Mbuff`: raw shared memory as a buffer of Python.

use crate::errors::{self, BadSize, InUse};
use crate::offer::{self, Offer};
use crate::slot::{Slot, handle};
use asmp_channel::{Kind, MAX_CHANNEL_BYTES};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_int;
use std::path::PathBuf;

struct Mapped {
    memory: asmp_channel::Mbuff,
    /// Number of views.
    views: usize,
}

/// Raw shared memory with a name: a buffer of bytes (memoryview, numpy.frombuffer), without copies,
/// aligned to 64 bytes. Other processes may change it at any time; use Record for values that must
/// be whole. Leaving `with` detaches it.
#[pyclass(frozen, module = "asmp_rt")]
pub struct Mbuff {
    slot: Slot<Mapped>,
    readonly: bool,
}

impl Mbuff {
    fn of(memory: asmp_channel::Mbuff, readonly: bool) -> Self {
        let name = memory.shared().name().to_owned();
        Self { slot: Slot::new("mbuff", &name, Mapped { memory, views: 0 }), readonly }
    }
}

/// Errors: BadSize.
pub fn size(bytes: i128) -> PyResult<u64> {
    let refused =
        || BadSize::new_err(format!("invalid size {bytes}: use 1 to {MAX_CHANNEL_BYTES} bytes"));
    u64::try_from(bytes)
        .ok()
        .filter(|bytes| (1..=MAX_CHANNEL_BYTES).contains(bytes))
        .ok_or_else(refused)
}

#[pymethods]
impl Mbuff {
    /// Create `size_bytes` bytes (1 to 2**30) of zeroed shared memory, or attach to memory of this
    /// name and size. `huge`: use 2 MiB pages. `dir`: the directory of names, default
    /// $ASMP_CHANNELS or /dev/shm/asmp-UID.
    ///
    /// Raises BadName, BadSize, Mismatch (another size, or it holds a record), NoRoom,
    /// ForeignDirectory, HiddenChannel, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (name, size_bytes, *, huge = false, dir = None))]
    fn alloc(
        py: Python<'_>,
        name: &str,
        size_bytes: i128,
        huge: bool,
        dir: Option<PathBuf>,
    ) -> PyResult<Self> {
        let (dir, bytes) = (crate::directory(dir), size(size_bytes)?);
        let made = py.detach(|| asmp_channel::Mbuff::alloc(&dir, name, bytes, crate::pages(huge)));
        Ok(Self::of(made.map_err(errors::mbuff)?, false))
    }

    /// Attach to existing memory of any size. `readonly`: its views are read-only.
    ///
    /// Raises BadName, NoSuchChannel, Mismatch (it holds a record, or is no mbuff),
    /// ForeignDirectory, HiddenChannel, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (name, *, readonly = false, dir = None))]
    fn attach(py: Python<'_>, name: &str, readonly: bool, dir: Option<PathBuf>) -> PyResult<Self> {
        let dir = crate::directory(dir);
        let found = py.detach(|| asmp_channel::Mbuff::attach(&dir, name)).map_err(errors::mbuff)?;
        Ok(Self::of(found, readonly))
    }

    /// Receive the memory that a program of another user offers at `path`. It trusts programs of
    /// root and of user `owner` (a user ID, default this user). It waits up to `timeout` seconds
    /// for the program to serve (None: without limit).
    /// Views of memory that was offered for reading are read-only.
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
        let readonly = !shared.is_writable();
        let memory = asmp_channel::Mbuff::from_shared(shared).map_err(errors::mbuff)?;
        Ok(Self::of(memory, readonly))
    }

    /// Offer this memory at the Unix socket `path` to root and to `users` (user IDs; none: the
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
        self.slot.with(py, |mapped| Offer::of(mapped.memory.shared(), path, users, writable))?
    }

    /// Detach the memory, which exists as long as a process has it. Leaving `with` does the same.
    /// Does nothing if it is detached already.
    ///
    /// Raises InUse while there are views, and then changes nothing.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(views) = self.slot.with(py, |mapped| mapped.views) else { return Ok(()) };
        if views > 0 {
            let (name, noun) = (&self.slot.name, if views == 1 { "view is" } else { "views are" });
            return Err(InUse::new_err(format!(
                "mbuff {name}: {views} {noun} in use: release them first (memoryview.release(), \
                 del array)"
            )));
        }
        self.slot.close(py);
        Ok(())
    }

    /// Whether its views are read-only.
    #[getter]
    const fn readonly(&self) -> bool {
        self.readonly
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.slot.with(py, |mapped| mapped.memory.bytes())
    }

    /// A view of all bytes, without a copy, valid until released. Other processes may change them
    /// at any time.
    ///
    /// # Safety
    /// Only the interpreter calls it, with a `view` to fill in.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.slot.with(py, |mapped| {
            let (memory, bytes) = (mapped.memory.pointer().as_ptr(), mapped.memory.bytes());
            let (object, readonly) = (slf.as_ptr(), c_int::from(this.readonly));
            // SAFETY: the interpreter passes a `view` to fill in. It points to mapped bytes, which
            // live as long as it does: it keeps our object, and `detach` refuses while views are
            // counted.
            let filled = unsafe {
                ffi::PyBuffer_FillInfo(view, object, memory.cast(), bytes as isize, readonly, flags)
            };
            match filled {
                0 => mapped.views += 1,
                _ => return Err(PyErr::fetch(py)),
            }
            Ok(())
        })?
    }

    /// # Safety
    /// Only the interpreter calls it, once for each view.
    unsafe fn __releasebuffer__(&self, py: Python<'_>, _view: *mut ffi::Py_buffer) {
        // It cannot be closed, because it had a view.
        let _ = self.slot.with(py, |mapped| mapped.views -= 1);
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.detach(py) {
            // The traceback of an exception in the block keeps views alive. The program needs that
            // exception, not ours.
            Err(_) if exception.get_item(0).is_ok_and(|kind| !kind.is_none()) => Ok(()),
            detached => detached,
        }
    }
}

handle!(Mbuff);
