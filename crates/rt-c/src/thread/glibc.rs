// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of glibc that the libc crate lacks, or declares so that their frames may not be
//! unwound.

use std::ffi::{c_int, c_ulong, c_void};

pub const PTHREAD_INHERIT_SCHED: c_int = 0;
pub const PTHREAD_EXPLICIT_SCHED: c_int = 1;
pub const PTHREAD_CANCEL_DISABLE: c_int = 1;
/// The signal of pthread_cancel: the first that the kernel has for real time (nptl/pthreadP.h).
const SIGCANCEL: c_int = 32;

// Where a thread may be when it is cancelled: these may unwind their caller's frame.
unsafe extern "C-unwind" {
    pub fn pthread_testcancel();
    pub fn pthread_exit(value: *mut c_void) -> !;
    pub fn pthread_join(thread: libc::pthread_t, value: *mut *mut c_void) -> c_int;
    pub fn sem_wait(semaphore: *mut libc::sem_t) -> c_int;
    pub fn sigsuspend(mask: *const libc::sigset_t) -> c_int;
    pub fn sem_clockwait(
        semaphore: *mut libc::sem_t,
        clock: libc::clockid_t,
        until: *const libc::timespec,
    ) -> c_int;
}

unsafe extern "C" {
    pub fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    pub fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    // The libc crate's routine may not be unwound; RTLinux programs end threads by cancelling them.
    pub fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        routine: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    pub fn pthread_attr_setinheritsched(
        attributes: *mut libc::pthread_attr_t,
        inherit: c_int,
    ) -> c_int;
    pub fn pthread_attr_getinheritsched(
        attributes: *const libc::pthread_attr_t,
        inherit: *mut c_int,
    ) -> c_int;
    pub fn pthread_attr_setschedpolicy(
        attributes: *mut libc::pthread_attr_t,
        policy: c_int,
    ) -> c_int;
    pub fn pthread_attr_getschedpolicy(
        attributes: *const libc::pthread_attr_t,
        policy: *mut c_int,
    ) -> c_int;
    pub fn pthread_attr_setschedparam(
        attributes: *mut libc::pthread_attr_t,
        parameters: *const libc::sched_param,
    ) -> c_int;
}

/// Has a handler's cancellation wait until it has returned. `sigaddset` refuses this signal;
/// `sigaction` takes it.
pub fn add_cancellation(mask: &mut libc::sigset_t) {
    let first: *mut c_ulong = (&raw mut *mask).cast();
    // SAFETY: a sigset_t is an array of c_ulong, a bit a signal, the first signal 1 (sigset_t.h);
    // 32 is in the first word.
    unsafe { *first |= 1 << (SIGCANCEL - 1) };
}
