// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting on a word of shared memory (futex(2)). Each function is one system call. A wake never
//! waits for the waiter.

use crate::sync::{AtomicU32, Ordering};
use std::io;
use std::time::Duration;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// A wake, a signal, or another value in the word: check the condition again.
    Recheck,
    /// The timeout passed.
    TimedOut,
}

/// Waits while `word` holds `expected`, for at most `timeout` (`None`: without limit). Blocks.
/// Returns [`Woken::Recheck`] for every error of the kernel except a timeout.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
    let time = timeout.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is alive for the call, and the time is null or a timespec on our stack. The
    // futex is shared between processes, so there is no PRIVATE flag.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), libc::FUTEX_WAIT, expected, time)
    };
    match result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) {
        true => Woken::TimedOut,
        false => Woken::Recheck,
    }
}

/// Every waiter, as the count of [`wake`].
pub const ALL: u32 = i32::MAX as u32;

/// As [`wait`], at a word where others may sleep, too, while a wake is for one: if the word has
/// changed, it wakes them all. Two system calls.
pub fn wait_among(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Woken {
    let woken = wait(word, expected, timeout);
    if word.load(Ordering::Relaxed) != expected {
        wake(word, ALL);
    }
    woken
}

/// Wakes up to `count` waiters. Does not block.
pub fn wake(word: &AtomicU32, count: u32) {
    // SAFETY: the word is alive for the call; the kernel uses its address only.
    unsafe { libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), libc::FUTEX_WAKE, count) };
}
