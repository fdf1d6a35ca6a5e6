// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a forked process shares with its parent, for queues that know the heap only. So
//! they, too, are measured between two processes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const BYTES: usize = 64 << 20;
/// Two cache lines, as rtrb asks for: no queue is slowed by where its slots lie.
const ALIGNMENT: usize = 128;

static FROM: OnceLock<usize> = OnceLock::new();
static USED: AtomicUsize = AtomicUsize::new(0);
thread_local!(static IS_ON: Cell<bool> = const { Cell::new(false) });

/// What `make` allocates is shared with processes that are forked later. It is never freed, so that
/// each process may drop its copy.
pub fn shared<T>(make: impl FnOnce() -> T) -> T {
    FROM.get_or_init(|| {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let from = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(from, libc::MAP_FAILED, "memory");
        from as usize
    });
    IS_ON.set(true);
    let made = make();
    IS_ON.set(false);
    made
}

pub struct Heap;

// SAFETY: either the system's allocator, or a part of the mapping that is given out once.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_ON.get() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        let bytes = layout.size().next_multiple_of(ALIGNMENT);
        let at = USED.fetch_add(bytes, Relaxed);
        match FROM.get() {
            Some(from) if layout.align() <= ALIGNMENT && at + bytes <= BYTES => {
                (from + at) as *mut u8
            }
            // It is full.
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let ours =
            FROM.get().is_some_and(|from| (*from..from + BYTES).contains(&(pointer as usize)));
        if !ours {
            // SAFETY: it came from `System`; the caller's promise.
            unsafe { System.dealloc(pointer, layout) }
        }
    }
}
