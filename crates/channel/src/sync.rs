// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The atomics of this crate: the standard library's, or loom's with `--cfg loom` (`make loom`).
//!
//! Only this module and the models know which. loom explores every interleaving of small models,
//! and its atomics live in the memory of a model: shared memory never holds them.

pub(crate) use std::sync::atomic::Ordering;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, fence};

/// A size that multiplies the interleavings of a model: `size`, or `in_model` there.
pub(crate) const fn sized(size: usize, in_model: usize) -> usize {
    if cfg!(loom) { in_model } else { size }
}

/// A constant function; in a model a plain one, because loom makes its atomics at run time.
macro_rules! const_fn {
    ($(#[$attribute:meta])* $visible:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visible const fn $($rest)*
        #[cfg(loom)]
        $(#[$attribute])*
        $visible fn $($rest)*
    };
}
pub(crate) use const_fn;

/// `count` atomic words of mapped memory.
///
/// # Safety
/// The words from `first` on are mapped for reading and writing during `'a`. All accesses to them
/// are atomic.
#[inline]
pub(crate) unsafe fn mapped_words<'a>(first: *const u64, count: usize) -> &'a [AtomicU64] {
    no_model();
    // SAFETY: the caller vouches for the memory; an `AtomicU64` has the layout of a `u64`.
    unsafe { std::slice::from_raw_parts(first.cast(), count) }
}

/// One atomic half word of mapped memory, for a futex.
///
/// # Safety
/// As [`mapped_words`].
#[inline]
pub(crate) unsafe fn mapped_futex<'a>(place: *const u32) -> &'a AtomicU32 {
    no_model();
    // SAFETY: the caller vouches for the memory; an `AtomicU32` has the layout of a `u32`.
    unsafe { &*place.cast() }
}

/// Panics in a model: loom's atomics are larger than a word.
#[inline]
fn no_model() {
    if cfg!(loom) {
        panic!("a model runs in memory of its own, not in shared memory");
    }
}
