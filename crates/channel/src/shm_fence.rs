//! Only with AddressSanitizer (`make asan`): fences around shared memory. It knows of heap and stack what belongs to whom; of a
//! mapping it knows nothing, and a read beyond a body would mostly meet the rest of a page. So what is not the body is
//! forbidden: the header once it is read, the rest of the last page, and a megabyte of nothing on each side.

use super::HEADER;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

const FENCE: usize = 1 << 20;

unsafe extern "C" {
    fn __asan_poison_memory_region(address: *const c_void, bytes: usize);
    fn __asan_unpoison_memory_region(address: *const c_void, bytes: usize);
}

/// An address for `bytes` with nothing on either side, where MAP_FIXED may map them.
pub fn reserve(bytes: usize) -> io::Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice, that nobody can touch.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes + 2 * FENCE, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: inside the mapping.
    Ok(unsafe { base.add(FENCE) })
}

/// From now on only `body` bytes after the header may be touched; the word that the last of them lies in, whole.
pub fn close(base: NonNull<u8>, whole: usize, body: u64) {
    let end = HEADER + (body as usize).next_multiple_of(8);
    // SAFETY: marks memory of ours.
    unsafe { __asan_poison_memory_region(base.as_ptr().cast(), HEADER) };
    // SAFETY: inside the mapping, which is `whole` bytes long.
    let rest = unsafe { base.add(end) };
    // SAFETY: as above.
    unsafe { __asan_poison_memory_region(rest.as_ptr().cast(), whole - end) };
}

/// Before the address is given back: others may have it next. The fences go too.
pub fn open(base: NonNull<u8>, whole: usize) {
    // SAFETY: takes the marks off memory of ours.
    unsafe { __asan_unpoison_memory_region(base.as_ptr().cast(), whole) };
    // SAFETY: `reserve` made it FENCE bytes before.
    let before = unsafe { base.sub(FENCE) };
    // SAFETY: the fence that `reserve` made, which nobody can use.
    unsafe { libc::munmap(before.as_ptr().cast(), FENCE) };
    // SAFETY: one past the mapping, where the other fence begins.
    let behind = unsafe { base.add(whole) };
    // SAFETY: as above.
    unsafe { libc::munmap(behind.as_ptr().cast(), FENCE) };
}
