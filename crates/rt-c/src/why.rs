// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Error texts beside error numbers: a call that fails stores one line for its thread.

use asmp_channel::ShmError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static WHY: RefCell<CString> = RefCell::default();
}

/// Returns one line that explains the last failure in this thread of mbuff_alloc, mbuff_attach,
/// mbuff_free, mbuff_detach, asmp_record_alloc, asmp_record_attach, asmp_fifo_create,
/// asmp_fifo_attach, asmp_call_serve, asmp_call_attach, or of a call with offer or receive in
/// its name, and says what to do. Empty if none has failed. Valid until the next failure. No
/// system call.
#[unsafe(no_mangle)]
pub extern "C" fn asmp_why() -> *const c_char {
    // While a thread ends there is nothing any more.
    WHY.try_with(|why| why.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Keeps the reason. The error number is given on.
pub fn keep(number: c_int, why: &dyn Display) -> c_int {
    let line = CString::new(why.to_string()).unwrap_or_default();
    // A thread that ends asks no more.
    let _ = WHY.try_with(|why| why.replace(line));
    number
}

/// What C hears of a channel that cannot be had: an error number, negative.
pub fn number(error: &ShmError) -> c_int {
    -match error {
        ShmError::NoRoom { .. } | ShmError::BadSize { .. } => libc::ENOMEM,
        ShmError::NameTaken { .. } | ShmError::RoleTaken { .. } | ShmError::Mismatch { .. } => {
            libc::EBUSY
        }
        ShmError::NotFound { .. } => libc::ENODEV,
        ShmError::ForeignDir { .. } | ShmError::Hidden { .. } | ShmError::ReadOnly { .. } => {
            libc::EACCES
        }
        ShmError::DirLocked { .. } => libc::ETIMEDOUT,
        ShmError::NoDir { cause, .. } | ShmError::Io { cause, .. } => {
            cause.raw_os_error().unwrap_or(libc::EIO)
        }
        ShmError::BadName { .. } => libc::EINVAL,
    }
}

/// A pointer, or null with errno set.
pub fn pointer<T>(result: Result<*mut T, c_int>) -> *mut T {
    result.unwrap_or_else(|error| {
        set_errno(-error);
        std::ptr::null_mut()
    })
}

/// A descriptor, which its end keeps open, or the error.
pub fn descriptor(made: io::Result<Arc<OwnedFd>>) -> c_int {
    match made {
        Ok(fd) => fd.as_raw_fd(),
        Err(error) => -error.raw_os_error().unwrap_or(libc::EAGAIN),
    }
}

/// A time to wait as C gives it: below 0 for ever.
pub fn timeout(ns: c_longlong) -> Option<Duration> {
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

pub fn set_errno(number: c_int) {
    // SAFETY: takes nothing and cannot fail.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: this thread's errno, valid as long as the thread runs.
    unsafe { place.write(number) };
}

/// A name that C gave. Errors: EINVAL.
///
/// # Safety
/// `name` is null or points to a C string that outlives the result.
pub unsafe fn name<'a>(name: *const c_char) -> Result<&'a str, c_int> {
    if name.is_null() {
        return Err(keep(-libc::EINVAL, &"the name is null: give one"));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    let bytes = unsafe { CStr::from_ptr(name) };
    bytes.to_str().map_err(|_| keep(-libc::EINVAL, &"a name is letters, digits, '-' or '_'"))
}
