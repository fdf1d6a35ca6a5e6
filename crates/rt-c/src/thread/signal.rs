// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTLinux's signals of threads, on one signal of Linux: SIGRTMIN + 7 tells a thread to look at its
//! own pending set.
//!
//! RTLinux's numbers begin above Linux's, so that each call tells them apart. As in RTLinux they
//! are bits, not queues, and one without a handler is ignored.

use crate::thread::glibc::sigsuspend;
use crate::thread::periodic::{pthread_suspend_np, pthread_wakeup_np, rtl_pthread_cancel};
use crate::thread::table::{self, FULL, Place};
use std::ffi::{c_int, c_ulong};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// RTLinux's signal N is number 64 + N here: Linux has the numbers up to 64.
pub const RTL_SIGNAL_BASE: c_int = 64;

const WAKEUP: c_int = RTL_SIGNAL_BASE + 1;
const CANCEL: c_int = RTL_SIGNAL_BASE + 2;
const SUSPEND: c_int = RTL_SIGNAL_BASE + 3;
const TIMER: c_int = RTL_SIGNAL_BASE + 5;
const READY: c_int = RTL_SIGNAL_BASE + 6;
/// RTL_SIGUSR1 to RTL_SIGRTMAX: the ones with handlers.
const FIRST: c_int = RTL_SIGNAL_BASE + 7;
const LAST: c_int = RTL_SIGNAL_BASE + 31;

/// A handler of one of RTLinux's signals.
pub type RtlSignalHandler = Option<unsafe extern "C-unwind" fn(signal: c_int)>;

/// What a handler is, and what it blocks while it runs.
struct Action {
    /// 0: none.
    handler: AtomicUsize,
    mask: AtomicU32,
}

static ACTIONS: [Action; 32] =
    [const { Action { handler: AtomicUsize::new(0), mask: AtomicU32::new(0) } }; 32];

/// The bit of a signal that may have a handler.
fn bit(signal: c_int) -> Option<u32> {
    (FIRST..=LAST).contains(&signal).then(|| 1 << (signal - RTL_SIGNAL_BASE))
}

/// Where RTLinux's signals begin in a set of the program (rtl_signal.h): Linux's are below.
const SHIFT: u32 = c_ulong::BITS - u32::BITS;

/// The bits of those in a set of the program: others cannot be blocked.
fn blockable(set: c_ulong) -> u32 {
    const ALL: u32 = !0 << (FIRST - RTL_SIGNAL_BASE);
    (set >> SHIFT) as u32 & ALL
}

/// A set of the program with these bits.
fn set_of(bits: u32) -> c_ulong {
    c_ulong::from(bits) << SHIFT
}

/// The signal of Linux that carries ours, its handler installed; `None`: the kernel refused it. A
/// wait that POSIX lets a handler interrupt is interrupted (EINTR), as in RTLinux.
fn carrier() -> Option<c_int> {
    static SIGNAL: OnceLock<Option<c_int>> = OnceLock::new();
    *SIGNAL.get_or_init(|| {
        let signal = libc::SIGRTMIN() + 7;
        // SAFETY: a sigaction is plain numbers and an address, for which all zeros is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = carry as *const () as usize;
        // A handler may be interrupted by what its mask lets through.
        action.sa_flags = libc::SA_NODEFER;
        // SAFETY: `action` outlives the call; its handler calls only what is async-signal-safe,
        // and the program's own handlers.
        let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        (set == 0).then_some(signal)
    })
}

/// Runs in the thread that a signal was sent to. A handler may end the thread (pthread_exit).
extern "C-unwind" fn carry(_signal: c_int) {
    // SAFETY: takes nothing; async-signal-safe in glibc.
    let Some(place) = table::find(unsafe { libc::pthread_self() }) else { return };
    // SAFETY: the address is the thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    deliver(place);
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Runs the handlers of what is pending and not blocked, the lowest number first. For the place's
/// own thread. Bounded but for the handlers.
fn deliver(place: &Place) {
    loop {
        let blocked = place.blocked.load(SeqCst);
        // SeqCst: pairs with the store of a mask: either the sender sees the signal unblocked and
        // kicks, or this sees it pending.
        let ready = place.pending.load(SeqCst) & !blocked;
        if ready == 0 {
            return;
        }
        let number = ready.trailing_zeros();
        if place.pending.fetch_and(!(1 << number), SeqCst) & (1 << number) == 0 {
            // A signal that interrupted this call has handled it.
            continue;
        }
        let action = &ACTIONS[number as usize];
        // Acquire is part of SeqCst: the mask was stored before the handler.
        let handler = action.handler.load(SeqCst);
        if handler == 0 {
            continue;
        }
        place.blocked.store(blocked | 1 << number | action.mask.load(Relaxed), SeqCst);
        // SAFETY: a handler of the program, stored by `rtl_set_signal_handler_np`.
        let handler =
            unsafe { std::mem::transmute::<usize, unsafe extern "C-unwind" fn(c_int)>(handler) };
        // SAFETY: the program's own handler, by its word callable with a number.
        unsafe { handler(RTL_SIGNAL_BASE + number as c_int) };
        place.blocked.store(blocked, SeqCst);
        place.handled.fetch_add(1, Relaxed);
    }
}

/// `pthread_kill` for RTLinux's signals and Linux's. RTL_SIGNAL_SUSPEND, RTL_SIGNAL_WAKEUP and
/// RTL_SIGNAL_CANCEL do what `pthread_suspend_np`, `pthread_wakeup_np` and `pthread_cancel` do;
/// the caller itself stops at once. RTL_SIGUSR1 to RTL_SIGRTMAX run their handler in the thread.
///
/// At most two system calls. Errors: EINVAL: no such signal; ESRCH; EAGAIN: 128 threads are
/// registered already.
///
/// # Safety
/// `thread` has not been joined and has not ended detached.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rtl_pthread_kill(thread: libc::pthread_t, signal: c_int) -> c_int {
    match signal {
        // SAFETY: passed on to the caller; may unwind this frame, which owns nothing.
        SUSPEND => unsafe { pthread_suspend_np(thread) },
        // SAFETY: passed on to the caller.
        WAKEUP | TIMER | READY => unsafe { pthread_wakeup_np(thread) },
        // SAFETY: as above.
        CANCEL if thread != 0 => unsafe { rtl_pthread_cancel(thread) },
        FIRST..=LAST => send(thread, signal),
        _ if thread == 0 => libc::ESRCH,
        // SAFETY: as above; the C library knows which of these numbers there are.
        ..=RTL_SIGNAL_BASE => unsafe { libc::pthread_kill(thread, signal) },
        _ => libc::EINVAL,
    }
}

fn send(thread: libc::pthread_t, signal: c_int) -> c_int {
    let (Some(bit), Some(carrier)) = (bit(signal), carrier()) else { return libc::EINVAL };
    let place = match table::find_or_take(thread) {
        Ok(place) => place,
        Err(error) => return error,
    };
    place.pending.fetch_or(bit, SeqCst);
    // SeqCst: pairs with the loads in `deliver`, as there.
    if place.blocked.load(SeqCst) & bit != 0 {
        return 0;
    }
    // SAFETY: the caller vouches that the thread is there to be named.
    unsafe { libc::pthread_kill(thread, carrier) }
}

/// Sets the handler of RTL_SIGUSR1 to RTL_SIGRTMAX for all threads; null ignores the signal. While
/// it runs, the signal itself and those in `mask` (an `rtl_sigset_t`) are blocked. It runs as a
/// signal handler: it interrupts the thread anywhere. `old` and `old_mask` take what was, unless
/// they are null. rtl_signal.h makes RTLinux's sigaction of it.
///
/// Returns 0; EINVAL: another signal.
///
/// # Safety
/// The handler may be called from now on. `old` and `old_mask` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_set_signal_handler_np(
    signal: c_int,
    handler: RtlSignalHandler,
    mask: c_ulong,
    old: *mut RtlSignalHandler,
    old_mask: *mut c_ulong,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { rtl_get_signal_handler_np(signal, old, old_mask) };
    let (Some(bit), Some(_)) = (bit(signal), carrier()) else { return libc::EINVAL };
    let action = &ACTIONS[bit.trailing_zeros() as usize];
    action.mask.store(blockable(mask), Relaxed);
    // Release is part of SeqCst: pairs with the load in `deliver`.
    action.handler.store(handler.map_or(0, |handler| handler as usize), SeqCst);
    0
}

/// Reads what `rtl_set_signal_handler_np` set. Errors: EINVAL: another signal.
///
/// # Safety
/// `handler` and `mask` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_get_signal_handler_np(
    signal: c_int,
    handler: *mut RtlSignalHandler,
    mask: *mut c_ulong,
) -> c_int {
    let Some(bit) = bit(signal) else { return libc::EINVAL };
    let action = &ACTIONS[bit.trailing_zeros() as usize];
    if !handler.is_null() {
        let now = action.handler.load(SeqCst);
        // SAFETY: 0 is the null of an optional function; else it is one that was stored.
        let now = unsafe { std::mem::transmute::<usize, RtlSignalHandler>(now) };
        // SAFETY: not null, so writable by the caller's word.
        unsafe { *handler = now };
    }
    if !mask.is_null() {
        // SAFETY: as above.
        unsafe { *mask = set_of(action.mask.load(Relaxed)) };
    }
    0
}

/// `pthread_sigmask` for RTLinux's signals: `how` is SIG_BLOCK, SIG_UNBLOCK or SIG_SETMASK, `set`
/// and `old` point to an `rtl_sigset_t` or are null. Handlers of what was pending and is no longer
/// blocked run before it returns. Errors: EINVAL; EAGAIN: 128 threads are registered already.
///
/// # Safety
/// `set` is null or readable, `old` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rtl_pthread_sigmask(
    how: c_int,
    set: *const c_ulong,
    old: *mut c_ulong,
) -> c_int {
    let Some(place) = table::own() else { return FULL };
    let before = place.blocked.load(SeqCst);
    // SAFETY: readable by the caller's word, if there is one.
    if let Some(set) = unsafe { set.as_ref() } {
        let set = blockable(*set);
        let now = match how {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return libc::EINVAL,
        };
        // SeqCst: pairs with the load in `send`.
        place.blocked.store(now, SeqCst);
    }
    // SAFETY: writable by the caller's word, if there is one.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = set_of(before);
    }
    deliver(place);
    0
}

/// Waits with that mask of RTLinux's signals until a handler of one of them has run. A cancellation
/// point. Returns -1 with errno EINTR; EAGAIN: 128 threads are registered already.
///
/// # Safety
/// `set` points to a readable mask.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rtl_sigsuspend(set: *const c_ulong) -> c_int {
    // SAFETY: the address is the thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    let (Some(place), Some(carrier)) = (table::own(), carrier()) else {
        // SAFETY: as above.
        unsafe { *errno = FULL };
        return -1;
    };
    let handled = place.handled.load(Relaxed);
    let before = place.blocked.load(SeqCst);
    let mask = table::mask(libc::SIG_BLOCK, carrier);
    let mut waiting = mask;
    // SAFETY: ours, and the signal exists.
    unsafe { libc::sigdelset(&raw mut waiting, carrier) };
    // SAFETY: readable by the caller's word.
    place.blocked.store(blockable(unsafe { *set }), SeqCst);
    deliver(place);
    while place.handled.load(Relaxed) == handled {
        // SAFETY: the mask outlives the call; may unwind this frame, which owns nothing.
        unsafe { sigsuspend(&raw const waiting) };
    }
    place.blocked.store(before, SeqCst);
    // SAFETY: the mask outlives the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
    deliver(place);
    // SAFETY: as above.
    unsafe { *errno = libc::EINTR };
    -1
}

/// Stores the caller's pending signals of RTLinux in `set`, an `rtl_sigset_t`. Returns 0.
///
/// # Safety
/// `set` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_sigpending(set: *mut c_ulong) -> c_int {
    // SAFETY: takes nothing and cannot fail.
    let own = unsafe { libc::pthread_self() };
    let pending = table::find(own).map_or(0, |place| place.pending.load(SeqCst));
    // SAFETY: writable by the caller's word.
    unsafe { *set = set_of(pending) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rtlinux_s_own_signals_have_bits_and_its_inner_ones_cannot_be_blocked() {
        assert_eq!(
            [64, 65, 70, 71, 95, 96].map(bit),
            [None, None, None, Some(128), Some(1 << 31), None]
        );
        assert_eq!(blockable(c_ulong::MAX), 0xffff_ff80);
        assert_eq!(blockable(set_of(0x7f)), 0);
        assert_eq!(blockable(set_of(0x180)), 0x180);
    }
}
