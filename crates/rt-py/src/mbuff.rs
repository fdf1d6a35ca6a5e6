//! `Mbuff`: raw shared memory as a buffer of Python.

use crate::errors::{self, BadSize, InUse};
use crate::slot::{Slot, shown};
use asmp_channel::MAX_CHANNEL_BYTES;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_int;
use std::path::PathBuf;

struct Mapped {
    memory: asmp_channel::Mbuff,
    /// Views that point into it.
    views: usize,
}

/// Raw shared memory with a name: a buffer of bytes (memoryview, numpy.frombuffer), without copies, 64-byte aligned.
/// Whoever has it may change it at any time; for what must be whole there is Record. Leaving `with` detaches it.
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
    let refused = || BadSize::new_err(format!("{bytes} bytes: an mbuff holds 1 to {MAX_CHANNEL_BYTES}"));
    u64::try_from(bytes).ok().filter(|bytes| (1..=MAX_CHANNEL_BYTES).contains(bytes)).ok_or_else(refused)
}

#[pymethods]
impl Mbuff {
    /// `size_bytes` (1 to 2**30) of zeroed shared memory with that name, or what has this name and size already. `huge`:
    /// of 2 MiB pages. `dir`: the directory of names, default $ASMP_CHANNELS or /dev/shm/asmp-UID.
    ///
    /// Raises BadName, BadSize, Mismatch (another size, or it holds records), NoRoom, ForeignDirectory, ChannelIO.
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

    /// What has this name, of whatever size. `readonly`: its views cannot be written through.
    ///
    /// Raises BadName, NoSuchChannel, Mismatch (it holds records, or is no mbuff), ForeignDirectory, ChannelIO.
    #[staticmethod]
    #[pyo3(signature = (name, *, readonly = false, dir = None))]
    fn attach(py: Python<'_>, name: &str, readonly: bool, dir: Option<PathBuf>) -> PyResult<Self> {
        let dir = crate::directory(dir);
        let found = py.detach(|| asmp_channel::Mbuff::attach(&dir, name)).map_err(errors::mbuff)?;
        Ok(Self::of(found, readonly))
    }

    /// Let the memory go; it stays as long as any process has it. Also what `with` does at its end. Once more is nothing.
    ///
    /// Raises InUse while a view points into it, and then nothing has changed.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(views) = self.slot.with(py, |mapped| mapped.views) else { return Ok(()) };
        if views > 0 {
            let (name, noun) = (&self.slot.name, if views == 1 { "view points" } else { "views point" });
            return Err(InUse::new_err(format!(
                "mbuff {name}: {views} {noun} into it: release them first (memoryview.release(), del array)"
            )));
        }
        self.slot.close(py);
        Ok(())
    }

    /// Was it closed or detached?
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.slot.is_closed(py)
    }

    /// Of the channel.
    #[getter]
    fn name(&self) -> &str {
        &self.slot.name
    }

    /// Can its views not be written through?
    #[getter]
    const fn readonly(&self) -> bool {
        self.readonly
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.slot.with(py, |mapped| mapped.memory.bytes())
    }

    /// All bytes of it, without a copy, valid until released. Others may change them at any time.
    ///
    /// # Safety
    /// Called by the interpreter, with a `view` to be filled.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        this.slot.with(py, |mapped| {
            let (memory, bytes) = (mapped.memory.pointer().as_ptr(), mapped.memory.bytes());
            let (object, readonly) = (slf.as_ptr(), c_int::from(this.readonly));
            // SAFETY: `view` is the interpreter's to be filled. It points to so many mapped bytes, which stay while it
            // lives: it keeps our object, and `detach` refuses while it is counted.
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
    /// Called by the interpreter, once for each view.
    unsafe fn __releasebuffer__(&self, py: Python<'_>, _view: *mut ffi::Py_buffer) {
        // It is not closed: it had a view.
        let _ = self.slot.with(py, |mapped| mapped.views -= 1);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.detach(py) {
            // What went wrong in the block keeps views alive by its traceback, and is what the program is to hear of.
            Err(_) if exception.get_item(0).is_ok_and(|kind| !kind.is_none()) => Ok(()),
            detached => detached,
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        shown("Mbuff", &self.slot.name, self.slot.is_closed(py))
    }
}
