// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The value behind a Python object until it is closed: by `close`, by `with`, or by another
//! thread.

use crate::errors;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that `close` can remove while other threads use the object.
pub struct Slot<T> {
    pub name: String,
    what: &'static str,
    value: Mutex<Option<T>>,
}

impl<T: Send> Slot<T> {
    pub fn new(what: &'static str, name: &str, value: T) -> Self {
        Self { name: name.to_owned(), what, value: Mutex::new(Some(value)) }
    }

    /// Runs `work`, which must be short. Errors: Closed.
    pub fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        let value = self.value.lock_py_attached(py);
        self.on(value.unwrap_or_else(PoisonError::into_inner), work)
    }

    /// As `with`, for a thread that has released the GIL.
    pub fn with_detached<R>(&self, work: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        self.on(self.value.lock().unwrap_or_else(PoisonError::into_inner), work)
    }

    fn on<R>(
        &self,
        mut value: MutexGuard<'_, Option<T>>,
        work: impl FnOnce(&mut T) -> R,
    ) -> PyResult<R> {
        value.as_mut().map(work).ok_or_else(|| errors::closed(self.what, &self.name))
    }

    pub fn close(&self, py: Python<'_>) {
        let mut value = self.value.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        *value = None;
    }

    pub fn is_closed(&self, py: Python<'_>) -> bool {
        self.value.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// The part of a Python class that is the same for each end and channel: its state, its name and
/// `with`. `$class` has a field `slot`. `$close` is the Python method that leaving `with` calls, a
/// subclass's own where it has one; without it `$class` has its own `__exit__`.
macro_rules! handle {
    ($class:ident, $close:ident) => {
        handle!($class);

        #[pymethods]
        impl $class {
            #[pyo3(signature = (*_exception))]
            fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
                slf.call_method0(stringify!($close)).map(|_| ())
            }
        }
    };
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// Whether it is closed or detached.
            #[getter]
            fn closed(&self, py: Python<'_>) -> bool {
                self.slot.is_closed(py)
            }

            /// The name of the channel.
            #[getter]
            fn name(&self) -> &str {
                &self.slot.name
            }

            fn __enter__(slf: Py<Self>) -> Py<Self> {
                slf
            }

            fn __repr__(&self, py: Python<'_>) -> String {
                let closed = if self.slot.is_closed(py) { " (closed)" } else { "" };
                format!("<asmp_rt.{} {}{closed}>", stringify!($class), self.slot.name)
            }
        }
    };
}

pub(crate) use handle;
