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

pub fn shown(class: &str, name: &str, closed: bool) -> String {
    format!("<asmp_rt.{class} {name}{}>", if closed { " (closed)" } else { "" })
}
