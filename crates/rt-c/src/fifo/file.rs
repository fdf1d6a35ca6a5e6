// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFOs as files of the real-time side: what `open("/dev/rtf0", O_NONBLOCK)` is in a module.
//!
//! A file has a descriptor of the process (of /dev/null), so its number belongs to no other file. A
//! table says which FIFO it is: rtl_posixio.h puts and gets there instead of writing and reading.

use crate::fifo::table::slot;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Descriptors that may be FIFOs: those below it.
const CAPACITY: usize = 1024;

/// By descriptor: 0, or 1 and the number of its FIFO.
static FILES: [AtomicU8; CAPACITY] = [const { AtomicU8::new(0) }; CAPACITY];

fn file(fd: c_int) -> Option<&'static AtomicU8> {
    usize::try_from(fd).ok().and_then(|fd| FILES.get(fd))
}

/// Opens FIFO number `fifo` as a file of the real-time side, which created it with `rtf_create`.
/// For set-up only. End it with `rtl_fifo_close_np`. rtl_posixio.h makes `open` of it.
///
/// Returns a descriptor, for `rtl_fifo_of_np` alone: nothing can be read from it by read(2), nor is
/// it to be polled. close(2) leaves its number to the FIFO, so do not close it by that. Or an
/// error: -ENODEV: this process has not created that FIFO; -EMFILE: its descriptor is not below
/// 1024, or there is none.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_fifo_open_np(fifo: c_uint) -> c_int {
    match slot(fifo) {
        Ok(slot) if slot.is_there() => {}
        _ => return -libc::ENODEV,
    }
    // SAFETY: a C string; the flags need no mode.
    let fd = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    match file(fd) {
        Some(file) => {
            // A FIFO's number is below RTF_NO, 64.
            file.store(fifo as u8 + 1, Relaxed);
            fd
        }
        None => {
            // SAFETY: opened above, or below 0, which close refuses.
            unsafe { libc::close(fd) };
            -libc::EMFILE
        }
    }
}

/// Returns the number of the FIFO that `fd` is a file of, or -1: it is none. Bounded, no system
/// call.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_fifo_of_np(fd: c_int) -> c_int {
    file(fd).map_or(-1, |file| c_int::from(file.load(Relaxed)) - 1)
}

/// Closes a file of `rtl_fifo_open_np`; the FIFO stays. Errors: -EBADF: it is none.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_fifo_close_np(fd: c_int) -> c_int {
    match file(fd) {
        // First forgotten: the next open of this process may get the number.
        Some(file) if file.swap(0, Relaxed) != 0 => {
            // SAFETY: it came from `rtl_fifo_open_np`, which forgets it only here.
            unsafe { libc::close(fd) };
            0
        }
        _ => -libc::EBADF,
    }
}
