// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priority inheritance: a PI futex (futex(2)) that lends the server the priority of a client.
//!
//! The client stores the server's thread id in its PI lock, as if the server had locked it, and
//! asks the kernel for the lock. The kernel puts the client to sleep and lends its priority to the
//! server, at whatever point of its work that is. The server unlocks it when it has answered, and
//! the kernel does when the server ends.
//!
//! Only the client waits for its PI lock. So no value that a hostile process writes there can block
//! the server: at worst the kernel returns an error.

use crate::sync::{AtomicU32, Ordering::*, fence};
use std::io;
use std::time::Duration;

/// The id of the calling thread, in its PID namespace. One system call.
pub(super) fn thread_id() -> u32 {
    // SAFETY: takes nothing, touches nothing, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// How a client's wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PiWait {
    /// The server unlocked it, or something overwrote it: check again.
    Recheck,
    TimedOut,
    /// The server's thread has ended.
    OwnerDied,
    /// The kernel cannot lend a priority: it is older than Linux 5.14, or something overwrote the
    /// lock. Wait at the answer instead.
    Unsupported,
}

/// Stores the thread to wait for. Later loads see everything that the server did before it unlocks.
pub(super) fn prepare(pi_lock: &AtomicU32, server: u32) {
    pi_lock.store(server, Relaxed);
    // Pairs with the fence in `release`: either the server sees its id here and unlocks, or we see
    // its answer.
    fence(SeqCst);
}

/// Waits until the server unlocks, for at most `timeout` (`None`: without limit). One system call.
pub(super) fn wait(pi_lock: &AtomicU32, timeout: Option<Duration>) -> PiWait {
    let until = timeout.map(after);
    let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is alive for the call, the time is null or a timespec on our stack.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, std::ptr::from_ref(pi_lock), libc::FUTEX_LOCK_PI2, 0, until)
    };
    if result >= 0 {
        return match pi_lock.load(Relaxed) & libc::FUTEX_OWNER_DIED {
            0 => PiWait::Recheck,
            _ => PiWait::OwnerDied,
        };
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ETIMEDOUT) => PiWait::TimedOut,
        Some(libc::ESRCH) => PiWait::OwnerDied,
        Some(libc::EINTR | libc::EAGAIN) => PiWait::Recheck,
        _ => PiWait::Unsupported,
    }
}

/// Unlocks: wakes a waiting client and returns its priority. No system call without a waiter. Never
/// waits for the client.
pub(super) fn release(pi_lock: &AtomicU32, server: u32) {
    // Pairs with the fence in `prepare`.
    fence(SeqCst);
    if let Err(found) = pi_lock.compare_exchange(server, 0, Release, Relaxed)
        && found & libc::FUTEX_TID_MASK == server
    {
        // SAFETY: the word is alive for the call.
        unsafe {
            libc::syscall(libc::SYS_futex, std::ptr::from_ref(pi_lock), libc::FUTEX_UNLOCK_PI)
        };
    }
}

/// The instant `time` from now, on CLOCK_MONOTONIC.
fn after(time: Duration) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec on our stack; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let nanoseconds = now.tv_nsec + libc::c_long::from(time.subsec_nanos() as i32);
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX / 2);
    libc::timespec {
        tv_sec: now.tv_sec.saturating_add(seconds) + nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    }
}
