//! A pi_lock: a PI futex that lends the server the priority of the client that waits for it (futex(2)).
//!
//! The client writes the server's thread id into its pi_lock, as if the server had locked it, and asks the kernel
//! for the lock: the kernel puts it to sleep and lends its priority to the server, wherever that is in its work.
//! The server lets go when it has answered. Nobody but the client ever waits for a pi_lock, so whatever an enemy writes
//! there, the server is never kept; at most the kernel refuses a call. A server that ends in any way lets go too.

use crate::sync::{AtomicU32, Ordering::*, fence};
use std::io;
use std::time::Duration;

/// The calling thread, as the kernel knows it (in its own PID namespace). One system call.
pub(super) fn thread_id() -> u32 {
    // SAFETY: takes nothing, touches nothing, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// How a client's wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PiWait {
    /// The server let go, or somebody wrote into the pi_lock: look again.
    Recheck,
    TimedOut,
    /// The server's thread is no more.
    OwnerDied,
    /// The kernel cannot lend a priority here (before Linux 5.14, or the pi_lock was scribbled over): wait otherwise.
    Unsupported,
}

/// Says who will be waited for. What the other side did before it let go is seen by every load after this.
pub(super) fn prepare(pi_lock: &AtomicU32, server: u32) {
    pi_lock.store(server, Relaxed);
    // Pairs with the fence in `release`: either the server sees its id here and lets go, or we see its answer.
    fence(SeqCst);
}

/// Waits until the server lets go, for at most `timeout` (`None`: for ever). One system call.
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

/// The server lets go; a client that waits is woken, and its priority is reply back. No system call if nobody waits.
/// Never blocks on the client.
pub(super) fn release(pi_lock: &AtomicU32, server: u32) {
    // Pairs with the fence in `prepare`.
    fence(SeqCst);
    if let Err(found) = pi_lock.compare_exchange(server, 0, Release, Relaxed)
        && found & libc::FUTEX_TID_MASK == server
    {
        // SAFETY: the word is alive for the call.
        unsafe { libc::syscall(libc::SYS_futex, std::ptr::from_ref(pi_lock), libc::FUTEX_UNLOCK_PI) };
    }
}

/// That much later, by CLOCK_MONOTONIC.
fn after(time: Duration) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec of ours; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let nanoseconds = now.tv_nsec + libc::c_long::from(time.subsec_nanos() as i32);
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX / 2);
    libc::timespec {
        tv_sec: now.tv_sec.saturating_add(seconds) + nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    }
}
