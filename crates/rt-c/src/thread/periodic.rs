// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Releases, suspension and end of threads, and the clocks.

use crate::thread::glibc::{
    add_cancellation, pthread_cancel, pthread_exit, pthread_join, pthread_testcancel,
    sem_clockwait, sem_wait,
};
use crate::thread::hrtime_t;
use crate::thread::table::{self, FULL, Plan};
use asmp_rt::thread::{clock_gethrtime as read_clock, gethrtime as monotonic_ns, timespec};
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Returns nanoseconds of CLOCK_MONOTONIC. Bounded; no system call if the vDSO has the clock.
#[unsafe(no_mangle)]
pub extern "C" fn gethrtime() -> hrtime_t {
    hrtime_t::try_from(monotonic_ns()).unwrap_or(hrtime_t::MAX)
}

/// Returns nanoseconds of any clock of `clock_gettime(2)`; -1: there is no such clock. `clock` is
/// one of its `clockid_t`; the parameter is an `int` because ISO C has no type of that name.
#[unsafe(no_mangle)]
pub extern "C" fn clock_gethrtime(clock: c_int) -> hrtime_t {
    read_clock(clock).unwrap_or(-1)
}

/// Releases the thread every `period` nanoseconds from `start` on (CLOCK_MONOTONIC; at once if it
/// has passed). With a period of 0, releases it once. `pthread_wait_np` waits for the next release.
/// Another call changes start and period. For set-up only: takes a lock. Errors: EINVAL: a negative
/// period; EAGAIN: 128 threads are registered already; ESRCH: `thread` is 0.
///
/// # Safety
/// `thread` has not been joined and has not ended detached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_make_periodic_np(
    thread: libc::pthread_t,
    start: hrtime_t,
    period: hrtime_t,
) -> c_int {
    if Plan::new(start, period).is_none() {
        return libc::EINVAL;
    }
    match table::find_or_take(thread) {
        Ok(place) => place.ask(start, period),
        Err(error) => return error,
    }
    0
}

/// `pthread_make_periodic_np` with `it_value` as the start and `it_interval` as the period; both on
/// CLOCK_MONOTONIC. Errors: EINVAL: no value, or a negative one; else those of
/// `pthread_make_periodic_np`.
///
/// # Safety
/// `thread` has not been joined and has not ended detached; `value` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setperiod_np(
    thread: libc::pthread_t,
    value: *const libc::itimerspec,
) -> c_int {
    const NS_PER_S: hrtime_t = 1_000_000_000;
    let ns = |time: libc::timespec| time.tv_sec * NS_PER_S + time.tv_nsec;
    // SAFETY: readable by the caller's word, if there is one.
    let Some(value) = (unsafe { value.as_ref() }) else { return libc::EINVAL };
    // SAFETY: passed on to the caller.
    unsafe { pthread_make_periodic_np(thread, ns(value.it_value), ns(value.it_interval)) }
}

/// Keeps the CPU busy for `ns` nanoseconds. No system call if the vDSO has the clock.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_delay(ns: hrtime_t) {
    let end = gethrtime().saturating_add(ns);
    while gethrtime() < end {
        std::hint::spin_loop();
    }
}

/// Waits for the caller's next release, or for `pthread_wakeup_np`. A thread without a period waits
/// for `pthread_wakeup_np`. Of several releases that have passed, only the last is returned, at
/// once; `rtl_overruns_np` counts the others.
///
/// A cancellation point. Bounded except for the sleep. Allocates nothing after the first call. One
/// system call if it sleeps, none if a release has passed. Errors: EAGAIN: 128 threads are
/// registered already.
///
/// # Safety
/// A cancellation point: the caller must tolerate to end here.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_wait_np() -> c_int {
    // SAFETY: may unwind this frame, which owns nothing.
    unsafe { pthread_testcancel() };
    let Some(place) = table::own() else { return FULL };
    loop {
        // SAFETY: it is the caller's own place.
        let mut plan = unsafe { place.plan() };
        // Acquire: pairs with the Release in `pthread_wakeup_np`.
        if place.token.swap(false, Ordering::Acquire) {
            return 0;
        }
        if let Some(overruns) = plan.release(monotonic_ns()) {
            // SAFETY: as above.
            unsafe { place.set_plan(plan) };
            place.overruns.fetch_add(overruns, Ordering::Relaxed);
            return 0;
        }
        match plan.next_ns() {
            None => {
                // SAFETY: the semaphore lives for ever; may unwind this frame, which owns nothing.
                unsafe { sem_wait(place.kick()) };
            }
            Some(next_ns) => {
                let until = timespec(next_ns);
                // SAFETY: as above; `until` outlives the call.
                unsafe { sem_clockwait(place.kick(), libc::CLOCK_MONOTONIC, &raw const until) };
            }
        }
    }
}

/// Stops a thread until `pthread_wakeup_np`.
///
/// The caller itself stops at once, unless it was woken before; this is a cancellation point.
/// Another thread is stopped by signal SIGRTMIN + 6, asynchronously: the call returns before the
/// thread has stopped. The thread keeps its locks, as in RTLinux: if it is inside malloc, every
/// thread that allocates blocks. It is never stopped while it holds the lock of these functions.
///
/// Errors: ESRCH: no such thread; EAGAIN: 128 threads are registered already.
///
/// # Safety
/// `thread` has not been joined and has not ended detached.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_suspend_np(thread: libc::pthread_t) -> c_int {
    // SAFETY: takes nothing and cannot fail.
    if thread != unsafe { libc::pthread_self() } {
        return stop(thread);
    }
    // SAFETY: may unwind this frame, which owns nothing.
    unsafe { pthread_testcancel() };
    let Some(place) = table::own() else { return FULL };
    // Acquire: pairs with the Release in `pthread_wakeup_np`.
    while !place.token.swap(false, Ordering::Acquire) {
        // SAFETY: the semaphore lives for ever; may unwind this frame, which owns nothing.
        unsafe { sem_wait(place.kick()) };
    }
    0
}

fn stop(thread: libc::pthread_t) -> c_int {
    let Some(signal) = stop_signal() else { return libc::EINVAL };
    let place = match table::find_or_take(thread) {
        Ok(place) => place,
        Err(error) => return error,
    };
    place.stopped.store(1, Ordering::Relaxed);
    // SAFETY: the caller vouches that the thread is there to be named.
    let sent = unsafe { libc::pthread_kill(thread, signal) };
    if sent != 0 {
        place.stopped.store(0, Ordering::Relaxed);
    }
    sent
}

/// The signal that stops threads, its handler installed; `None`: the kernel refused it.
fn stop_signal() -> Option<c_int> {
    static SIGNAL: OnceLock<Option<c_int>> = OnceLock::new();
    *SIGNAL.get_or_init(|| {
        let signal = table::stop_signal();
        // SAFETY: a sigaction is plain numbers and an address, for which all zeros is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = stay as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        add_cancellation(&mut action.sa_mask);
        // SAFETY: `action` outlives the call; its handler calls only what is async-signal-safe.
        let set = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        (set == 0).then_some(signal)
    })
}

/// Runs in the stopped thread until it is woken. Only atomics and a futex: async-signal-safe.
///
/// A cancellation waits until this has returned (its mask, above) and then finds the thread where
/// it was stopped: in a cancellation point, where it ends it, or elsewhere. In here nothing could
/// be unwound; and since glibc 2.41 a thread that blocks in a cancellation point is cancelled only
/// by a signal that interrupts it there.
extern "C" fn stay(_signal: c_int) {
    // SAFETY: takes nothing; async-signal-safe in glibc.
    let Some(place) = table::find(unsafe { libc::pthread_self() }) else { return };
    // SAFETY: the address is the thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // Acquire: pairs with the Release in `release_stopped`.
    while place.stopped.load(Ordering::Acquire) == 1 {
        // SAFETY: the kernel compares one word, which lives for ever, and gets no timeout.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                place.stopped.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                1u32,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Lets a stopped thread go on. `false`: it was not stopped.
fn release_stopped(place: &table::Place) -> bool {
    // Release: pairs with the Acquire in `stay`.
    if place.stopped.swap(0, Ordering::Release) == 0 {
        return false;
    }
    // SAFETY: the kernel takes the word's address and touches no memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            place.stopped.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1u32,
        )
    };
    true
}

/// Resumes a stopped thread. If it is not stopped, ends its current or next wait or suspension. Its
/// period stays. Never blocks once the thread is registered; at most one system call. Errors:
/// EAGAIN: 128 threads are registered already; ESRCH: `thread` is 0.
///
/// # Safety
/// `thread` has not been joined and has not ended detached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_wakeup_np(thread: libc::pthread_t) -> c_int {
    let place = match table::find_or_take(thread) {
        Ok(place) => place,
        Err(error) => return error,
    };
    // Release: pairs with the Acquires of the waits, which see what was done before.
    if !release_stopped(place) && !place.token.swap(true, Ordering::Release) {
        place.post();
    }
    0
}

/// `pthread_cancel`, which also works for a thread stopped by `pthread_suspend_np`. Errors: ESRCH.
///
/// # Safety
/// `thread` has not been joined and has not ended detached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_pthread_cancel(thread: libc::pthread_t) -> c_int {
    // SAFETY: the caller vouches that the thread is there to be named.
    let result = unsafe { pthread_cancel(thread) };
    if let Some(place) = table::find(thread) {
        release_stopped(place);
    }
    result
}

/// Ends a thread at its next cancellation point (`pthread_wait_np` is one) and waits for its end.
/// The caller itself ends at once. Blocks without limit if the thread never reaches one. Errors:
/// ESRCH; EINVAL: it is detached.
///
/// # Safety
/// `thread` has not been joined and has not ended detached; it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_delete_np(thread: libc::pthread_t) -> c_int {
    // SAFETY: takes nothing and cannot fail.
    if thread == unsafe { libc::pthread_self() } {
        // SAFETY: unwinds this frame, which owns nothing.
        unsafe { pthread_exit(std::ptr::null_mut()) };
    }
    // SAFETY: passed on to the caller.
    match unsafe { rtl_pthread_cancel(thread) } {
        // SAFETY: the thread's value is not wanted; may unwind this frame, which owns nothing.
        0 => unsafe { pthread_join(thread, std::ptr::null_mut()) },
        error => error,
    }
}
