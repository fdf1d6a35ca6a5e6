// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory without later page faults: all of it locked, the stack and a part of the heap touched.
//!
//! glibc returns freed memory to the kernel and maps large blocks separately. Both would fault
//! again, so both are switched off for the process (mallopt(3)). Each thread has a malloc arena of
//! its own, so the thread that uses the heap touches it.

use crate::thread::refusal::{Limit, Refusal};
use asmp_host::{Error, Kernel, Linux, clock};
use std::hint::black_box;
use std::io;
use std::path::Path;

/// The smallest page of any architecture; touching too often does no harm.
const PAGE: usize = 4096;

/// What the kernel maps at once.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Room at the far end of a stack that is left untouched: its guard, and frames of the one who
/// touches.
const MARGIN: usize = 4 * PAGE;

/// Soft and hard limit of a resource.
pub fn limits(resource: libc::__rlimit_resource_t) -> (Limit, Limit) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit into `limit`; the resources asked for exist on every
    // Linux.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    let of = |value| if value == libc::RLIM_INFINITY { Limit::Unlimited } else { Limit::Of(value) };
    (of(limit.rlim_cur), of(limit.rlim_max))
}

/// The lock on all memory of this process, now and later (`mlockall(2)`).
#[derive(Debug)]
pub struct Locked {
    was_locked: bool,
}

impl Locked {
    pub fn all(kernel: &dyn Kernel) -> Result<Self, Refusal> {
        let path = Path::new("/proc/self/status");
        let status = kernel.text(path).map_err(Error::io(path, "read"))?;
        let was_locked = bytes_of(&status, "VmLck:") > 0;
        match clock::lock_memory() {
            Ok(()) => Ok(Self { was_locked }),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN)
                ) =>
            {
                let (limit, hard) = limits(libc::RLIMIT_MEMLOCK);
                match limit {
                    Limit::Unlimited => Err(Refusal::MemoryLock(error)),
                    Limit::Of(_) => Err(Refusal::MemoryLimit {
                        needs_bytes: bytes_of(&status, "VmSize:"),
                        limit,
                        hard,
                    }),
                }
            }
            Err(error) => Err(Refusal::MemoryLock(error)),
        }
    }

    /// Unlocks again, unless the process had locked memory before.
    pub fn undo(self) {
        if !self.was_locked {
            // SAFETY: munlockall takes nothing and changes no memory contents.
            unsafe { libc::munlockall() };
        }
    }
}

/// Locks all memory of this process, now and later. For set-up only: takes time for all of it.
/// Errors: `MemoryLimit`, with the limit and the bytes needed; `MemoryLock`.
pub fn lock_memory() -> Result<(), Refusal> {
    Locked::all(&Linux::new()).map(drop)
}

/// A `Name:   123 kB` line of /proc/PID/status in bytes; 0 where there is none.
fn bytes_of(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes =
        line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

/// Keeps freed memory in the process and touches `bytes` bytes of the calling thread's heap.
/// Allocations up to that size then cause no page fault. (They may still wait for a lock of
/// malloc.) Errors: `Heap`.
pub fn prefault_heap(bytes: usize) -> Result<(), Refusal> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: mallopt takes two numbers; -1 is the documented way to never trim.
    let keeps = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, -1) } == 1;
    // SAFETY: mallopt takes two numbers; 0 makes no block a mapping of its own.
    let one_heap = unsafe { libc::mallopt(libc::M_MMAP_MAX, 0) } == 1;
    // SAFETY: malloc takes a number.
    let block = unsafe { libc::malloc(bytes) }.cast::<u8>();
    if block.is_null() || !keeps || !one_heap {
        // SAFETY: free takes what malloc gave, or null.
        unsafe { libc::free(block.cast()) };
        return Err(Refusal::Heap { bytes });
    }
    for place in (0..bytes).step_by(PAGE).chain([bytes - 1]) {
        // SAFETY: `place` lies below `bytes`, the size of the block.
        let byte = unsafe { block.add(place) };
        // SAFETY: the byte is ours to write, as above; volatile, so that the write is not left out.
        unsafe { byte.write_volatile(0) };
    }
    // SAFETY: `block` came from malloc and is freed once.
    unsafe { libc::free(block.cast()) };
    Ok(())
}

/// Touches the calling thread's stack from here down to its end, at most `at_most` bytes.
pub fn prefault_stack(at_most: usize) -> io::Result<()> {
    let here = 0u8;
    let here = &raw const here as usize;
    let end = lowest_of_stack()?.saturating_add(MARGIN).max(here.saturating_sub(at_most));
    touch_down_to(end);
    Ok(())
}

/// Half a page a frame, so that with all that a compiler adds no page is stepped over.
#[inline(never)]
fn touch_down_to(end: usize) {
    let mut frame = [0u8; PAGE / 2];
    let here = black_box(&mut frame).as_ptr() as usize;
    if here > end {
        touch_down_to(end);
    }
    // Keeps the frame alive below, so that the call above is no tail call.
    black_box(&mut frame);
}

/// The lowest address of the calling thread's stack.
fn lowest_of_stack() -> io::Result<usize> {
    let check =
        |result| if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) };
    // SAFETY: pthread_self takes nothing and cannot fail.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: a pthread_attr_t is plain memory that pthread_getattr_np initialises.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: the thread is the caller, so it exists; `attributes` outlives the call.
    check(unsafe { libc::pthread_getattr_np(own, &raw mut attributes) })?;
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: `attributes` was initialised above; both results are written to locals.
    let read = check(unsafe {
        libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size)
    });
    // SAFETY: initialised by pthread_getattr_np and destroyed once.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    read.map(|()| low as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::Watch;

    #[test]
    fn a_touched_stack_faults_no_page_any_more() {
        const BYTES: usize = 1 << 20;
        let run = |touch: bool| {
            let thread = std::thread::Builder::new().stack_size(BYTES).spawn(move || {
                if touch {
                    prefault_stack(usize::MAX).unwrap();
                }
                let here = 0u8;
                let end = lowest_of_stack().unwrap().max(&raw const here as usize - BYTES / 2);
                let watch = Watch::enter();
                touch_down_to(end);
                watch.leave().minor_faults
            });
            thread.unwrap().join().unwrap()
        };
        // The uppermost part is in use already.
        let pages = (BYTES / 2 / page_bytes()) as u64;
        assert!(
            run(false) > pages / 3,
            "the stack faults when it is not touched before: the test can fail"
        );
        assert_eq!(run(true), 0);
    }

    #[test]
    fn a_heap_that_cannot_be_had_is_refused_with_its_size() {
        let error = prefault_heap(isize::MAX as usize).unwrap_err().to_string();
        assert!(error.contains(&isize::MAX.to_string()), "{error}");
    }

    #[test]
    fn sizes_are_read_from_a_status_file() {
        let status = "Name:\tx\nVmSize:\t    2048 kB\nVmLck:\t       0 kB\n";
        assert_eq!((bytes_of(status, "VmSize:"), bytes_of(status, "VmLck:")), (2 << 20, 0));
        assert_eq!(bytes_of("VmSize: lots\n", "VmSize:"), 0);
    }
}
