// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fences around shared memory, only with AddressSanitizer (`make asan`).
//!
//! AddressSanitizer tracks heap and stack, but not mappings: a read beyond a body would often hit
//! the rest of a page and pass. So everything except the body is poisoned: the header once it is
//! read, and the rest of the last page. One megabyte without access lies on each side.

use super::HEADER;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

const FENCE: usize = 1 << 20;

unsafe extern "C" {
    fn __asan_poison_memory_region(address: *const c_void, bytes: usize);
    fn __asan_unpoison_memory_region(address: *const c_void, bytes: usize);
}

/// Reserves an address for `bytes`, with inaccessible memory on both sides, for MAP_FIXED.
pub fn reserve(bytes: usize) -> io::Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping without access, at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes + 2 * FENCE, libc::PROT_NONE, flags, -1, 0)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: inside the mapping.
    Ok(unsafe { base.add(FENCE) })
}

/// Poisons all but the `body` bytes after the header, rounded up to whole words.
pub fn close(base: NonNull<u8>, whole: usize, body: u64) {
    let end = HEADER + (body as usize).next_multiple_of(8);
    // SAFETY: marks memory of ours.
    unsafe { __asan_poison_memory_region(base.as_ptr().cast(), HEADER) };
    // SAFETY: inside the mapping, which is `whole` bytes long.
    let rest = unsafe { base.add(end) };
    // SAFETY: as above.
    unsafe { __asan_poison_memory_region(rest.as_ptr().cast(), whole - end) };
}

/// Removes poison and fences before the address is unmapped, because it may be reused.
pub fn open(base: NonNull<u8>, whole: usize) {
    // SAFETY: takes the marks off memory of ours.
    unsafe { __asan_unpoison_memory_region(base.as_ptr().cast(), whole) };
    // SAFETY: `reserve` made it FENCE bytes before.
    let before = unsafe { base.sub(FENCE) };
    // SAFETY: the fence that `reserve` made, which nothing uses.
    unsafe { libc::munmap(before.as_ptr().cast(), FENCE) };
    // SAFETY: one past the mapping, where the other fence begins.
    let behind = unsafe { base.add(whole) };
    // SAFETY: as above.
    unsafe { libc::munmap(behind.as_ptr().cast(), FENCE) };
}
