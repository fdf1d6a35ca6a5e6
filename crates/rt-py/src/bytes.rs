//! Bytes from and into objects that have the buffer protocol. Python may let somebody else change such memory while we
//! copy (a bytearray, an mbuff): it is reached by pointers and copied, never a Rust slice.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::borrow::Cow;

/// A contiguous buffer of whatever elements.
fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(PyBufferError::new_err("the buffer is not contiguous: pass a copy of it")),
    }
}

/// What is in `object`: borrowed from bytes, copied from anything else.
pub fn from_object<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    let buffer = contiguous(object)?;
    let count = buffer.len_bytes();
    let mut bytes = Vec::with_capacity(count);
    if count > 0 {
        // SAFETY: a contiguous buffer has `count` bytes, and keeps them as long as `buffer`; there is room for them.
        unsafe { std::ptr::copy_nonoverlapping(buffer.buf_ptr().cast::<u8>(), bytes.as_mut_ptr(), count) };
    }
    // SAFETY: so many were just written.
    unsafe { bytes.set_len(count) };
    Ok(Cow::Owned(bytes))
}

/// A buffer to be filled.
pub struct Target(PyUntypedBuffer);

impl Target {
    /// Errors: TypeError (no buffer), BufferError (read-only, not contiguous).
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        match buffer.readonly() {
            true => Err(PyBufferError::new_err("the buffer is read-only: pass a bytearray or the like")),
            false => Ok(Self(buffer)),
        }
    }

    pub fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Copies into its beginning. Panics if there are more than it takes.
    pub fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len());
        if !bytes.is_empty() {
            // SAFETY: a contiguous writable buffer of at least so many bytes, kept by `self`; `bytes` are our own.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.buf_ptr().cast::<u8>(), bytes.len())
            };
        }
    }
}
