// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTLinux's mbuffs: shared memory with a name; and records in it that are never seen in part,
//! which RTLinux does not have.
//!
//! Names are in the user's directory ([`asmp_channel::default_dir`]). Every alloc and attach
//! creates another mapping. The memory is freed with its last mapping, in whatever way its
//! processes end.

mod record;

pub use record::asmp_record;

use crate::why::{self, keep, pointer, set_errno};
use asmp_channel::{Mbuff, MbuffError, Pages, default_dir};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// The mappings of this process, by their addresses.
static MAPPED: Mutex<BTreeMap<usize, Mbuff>> = Mutex::new(BTreeMap::new());

/// What a name stands for that is none, as in RTLinux.
const DEFAULT: &str = "default";

/// The number of an error, its line kept.
pub fn number(error: &MbuffError) -> c_int {
    let number = match error {
        MbuffError::SizeMismatch { .. } => -libc::EIO,
        MbuffError::ViewMismatch { .. } => -libc::EBUSY,
        MbuffError::OutOfBounds { .. } => -libc::EINVAL,
        MbuffError::Shm(error) => why::number(error),
    };
    keep(number, error)
}

/// Errors: EINVAL.
///
/// # Safety
/// As [`why::name`].
unsafe fn name_or_default<'a>(name: *const c_char) -> Result<&'a str, c_int> {
    match name.is_null() {
        true => Ok(DEFAULT),
        // SAFETY: not null, and the caller vouches for the rest.
        false => unsafe { why::name(name) },
    }
}

/// At least so many bytes of this name; 0: as many as there are.
fn find_or_make(name: &str, bytes: u64) -> Result<Mbuff, MbuffError> {
    let dir = default_dir();
    match bytes {
        0 => Mbuff::attach(&dir, name),
        _ => match Mbuff::alloc(&dir, name, bytes, Pages::Normal) {
            Err(MbuffError::SizeMismatch { found, .. }) if found > bytes => {
                let there = Mbuff::attach(&dir, name)?;
                match there.bytes() as u64 {
                    found if found < bytes => {
                        Err(MbuffError::SizeMismatch { name: name.to_owned(), found, asked: bytes })
                    }
                    _ => Ok(there),
                }
            }
            other => other,
        },
    }
}

/// Errors: those of `mbuff_alloc`.
fn map(name: &str, size: c_int) -> Result<*mut c_void, c_int> {
    let bytes = u64::try_from(size)
        .map_err(|_| keep(-libc::EINVAL, &format!("invalid size {size}: use 0 or more")))?;
    let mbuff = find_or_make(name, bytes).map_err(|error| number(&error))?;
    let first = mbuff.pointer();
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner).insert(first.addr().get(), mbuff);
    Ok(first.cast().as_ptr())
}

/// Errors: EINVAL, no mapping of that name begins there.
fn unmap(name: &str, first: *mut c_void) -> Result<(), c_int> {
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = match mapped.get(&first.addr()) {
        Some(mbuff) if mbuff.shared().name() == name => mapped.remove(&first.addr()),
        _ => None,
    };
    // Unmapped with the lock let go.
    drop(mapped);
    match gone {
        Some(_) => Ok(()),
        None => Err(keep(
            -libc::EINVAL,
            &format!("no mbuff {name} is mapped at {first:p}: nothing was freed"),
        )),
    }
}

/// Maps `size` bytes of shared memory with the name `name` (null: "default"): existing memory of at
/// least that size, or else new memory filled with zeros. A `size` of 0 maps existing memory only.
/// Every call creates a new mapping, which needs its own mbuff_free. The memory exists as long as a
/// process maps it (in RTLinux: until it is freed). It begins at a multiple of 64. Other processes
/// may change it at any time: asmp_record_alloc has records that are never seen in part.
///
/// For set-up only: allocates, takes a lock, reads a directory. Touches every page. Later accesses
/// make no system call.
///
/// Returns the first byte. On error returns null, and sets errno and asmp_why():
/// - EINVAL: `size` is below 0, or the name is not 1 to 64 letters, digits, '-' or '_'
/// - EIO: the existing memory is smaller
/// - ENODEV: `size` is 0 and there is no such memory
/// - EBUSY: the name belongs to a record, a FIFO or calls, or to another version of this library
/// - ENOMEM: no memory
/// - EACCES: another user's directory, or a channel of a process with more rights
/// - EMFILE: too many open files
/// - ETIMEDOUT: another process held the lock of the directory for 10 s
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbuff_alloc(name: *const c_char, size: c_int) -> *mut c_void {
    // SAFETY: the caller vouches for it.
    pointer(unsafe { name_or_default(name) }.and_then(|name| map(name, size)))
}

/// The same as mbuff_alloc. In RTLinux, attached memory did not count as allocated. Here memory is
/// freed with its last mapping, by whichever call.
///
/// # Safety
/// As mbuff_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbuff_attach(name: *const c_char, size: c_int) -> *mut c_void {
    // SAFETY: the caller vouches for it.
    unsafe { mbuff_alloc(name, size) }
}

/// Unmaps memory from mbuff_alloc. Ignores null. For set-up only: makes system calls. If no such
/// mapping begins at `mbuf`, it only sets errno to EINVAL, and asmp_why().
///
/// # Safety
/// `name` is null or a C string; the mapping is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbuff_free(name: *const c_char, mbuf: *mut c_void) {
    if mbuf.is_null() {
        return;
    }
    // SAFETY: the caller vouches for it.
    if let Err(error) = unsafe { name_or_default(name) }.and_then(|name| unmap(name, mbuf)) {
        set_errno(-error);
    }
}

/// The same as mbuff_free, for memory from mbuff_attach.
///
/// # Safety
/// As mbuff_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mbuff_detach(name: *const c_char, mbuf: *mut c_void) {
    // SAFETY: the caller vouches for it.
    unsafe { mbuff_free(name, mbuf) };
}
