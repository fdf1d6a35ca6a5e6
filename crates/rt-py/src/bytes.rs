// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies bytes from and to Python objects with the buffer protocol. Other threads or processes may
//! change such memory during a copy (a bytearray, an mbuff), so it is never a Rust slice.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::borrow::Cow;

/// A contiguous buffer of any element type.
fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(PyBufferError::new_err("the buffer is not contiguous: pass a copy of it")),
    }
}

/// The bytes of `object`: borrowed from `bytes`, copied from other types.
pub fn from_object<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    let buffer = contiguous(object)?;
    let count = buffer.len_bytes();
    let mut bytes = Vec::with_capacity(count);
    if count > 0 {
        // SAFETY: a contiguous buffer has `count` bytes, which live as long as `buffer`; there is
        // room.
        unsafe {
            std::ptr::copy_nonoverlapping(buffer.buf_ptr().cast::<u8>(), bytes.as_mut_ptr(), count)
        };
    }
    // SAFETY: the copy above initialised `count` bytes.
    unsafe { bytes.set_len(count) };
    Ok(Cow::Owned(bytes))
}

/// A writable buffer.
pub struct Target(PyUntypedBuffer);

impl Target {
    /// Errors: TypeError (no buffer), BufferError (read-only, not contiguous).
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        match buffer.readonly() {
            true => {
                Err(PyBufferError::new_err("the buffer is read-only: pass a bytearray or the like"))
            }
            false => Ok(Self(buffer)),
        }
    }

    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Copies `bytes` to its beginning. Panics if they do not fit.
    pub fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len());
        if !bytes.is_empty() {
            // SAFETY: `self` keeps a contiguous writable buffer of at least this length; `bytes`
            // are ours.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    self.0.buf_ptr().cast::<u8>(),
                    bytes.len(),
                )
            };
        }
    }
}
