// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creating threads as RTLinux does: SCHED_FIFO from the first instruction, with its priorities and
//! CPU numbers.

use crate::thread::glibc::{
    PTHREAD_EXPLICIT_SCHED, PTHREAD_INHERIT_SCHED, pthread_attr_getinheritsched,
    pthread_attr_getschedpolicy, pthread_attr_setinheritsched, pthread_attr_setschedparam,
    pthread_attr_setschedpolicy, pthread_create,
};
use crate::thread::hrtime_t;
use crate::thread::priority::linux_priority;
use crate::thread::table;
use asmp_rt::thread::{lock_memory, prefault_heap, prefault_stack};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// RTLinux's earliest-deadline-first policy: a number that no Linux policy has.
pub const SCHED_EDF_NP: c_int = 0x0ED0;

/// The function that a thread runs.
pub type StartRoutine = Option<unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void>;

/// Of threads without attributes: every page of it is touched.
const STACK_BYTES: usize = 256 << 10;

/// Policies are taken and checked, but not set.
static WITHOUT_PRIORITIES: AtomicBool = AtomicBool::new(false);

pub fn without_priorities() -> bool {
    WITHOUT_PRIORITIES.load(Ordering::Relaxed)
}

/// From now on threads keep the ordinary policy, whatever they request. Use it to try a program
/// without the permission for real-time policies. No timing is guaranteed then.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_without_priorities_np(on: bool) {
    WITHOUT_PRIORITIES.store(on, Ordering::Relaxed);
}

/// First error, in order.
fn all(results: impl IntoIterator<Item = c_int>) -> c_int {
    results.into_iter().find(|result| *result != 0).unwrap_or(0)
}

/// An RTLinux policy and priority in Linux's terms. Errors: EINVAL; ENOTSUP for SCHED_EDF_NP.
fn translate(policy: c_int, priority: c_int) -> Result<libc::sched_param, c_int> {
    match (policy, linux_priority(priority)) {
        // Its jobs have a deadline and no budget; SCHED_DEADLINE admits only what has one.
        (SCHED_EDF_NP, _) => Err(libc::ENOTSUP),
        (libc::SCHED_FIFO | libc::SCHED_RR, Some(sched_priority)) => {
            Ok(libc::sched_param { sched_priority })
        }
        _ => Err(libc::EINVAL),
    }
}

/// `pthread_attr_setschedparam` with a priority of 0 to 1,000,000. Threads with these attributes
/// are SCHED_FIFO, unless their policy was set to SCHED_RR before. Errors: EINVAL.
///
/// # Safety
/// `attributes` is initialised and `parameters` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_pthread_attr_setschedparam(
    attributes: *mut libc::pthread_attr_t,
    parameters: *const libc::sched_param,
) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let priority = unsafe { (*parameters).sched_priority };
    let mut policy = libc::SCHED_OTHER;
    // SAFETY: the caller vouches for the pointer; the policy is written to a local.
    unsafe { pthread_attr_getschedpolicy(attributes, &raw mut policy) };
    let policy = if policy == libc::SCHED_RR { policy } else { libc::SCHED_FIFO };
    let translated = match translate(policy, priority) {
        Ok(translated) => translated,
        Err(error) => return error,
    };
    // SAFETY: the caller vouches for the pointer.
    let explicit = unsafe { pthread_attr_setinheritsched(attributes, PTHREAD_EXPLICIT_SCHED) };
    // SAFETY: as above.
    let chosen = unsafe { pthread_attr_setschedpolicy(attributes, policy) };
    // SAFETY: as above; `translated` outlives the call.
    all([explicit, chosen, unsafe {
        pthread_attr_setschedparam(attributes, &raw const translated)
    }])
}

/// `pthread_setschedparam` with a priority of 0 to 1,000,000. Errors: EINVAL; EPERM: see
/// RLIMIT_RTPRIO; ENOTSUP: SCHED_EDF_NP; ESRCH.
///
/// # Safety
/// `parameters` is readable; `thread` has not been joined and has not ended detached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_pthread_setschedparam(
    thread: libc::pthread_t,
    policy: c_int,
    parameters: *const libc::sched_param,
) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    match translate(policy, unsafe { (*parameters).sched_priority }) {
        Ok(_) if without_priorities() => 0,
        // SAFETY: the caller vouches for the thread; the parameters outlive the call.
        Ok(translated) => unsafe {
            libc::pthread_setschedparam(thread, policy, &raw const translated)
        },
        Err(error) => error,
    }
}

/// Always fails with ENOTSUP: RTLinux's deadlines have no budget, and SCHED_DEADLINE needs one. Use
/// fixed priorities: the shorter the period, the higher.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_setdeadline_np(thread: libc::pthread_t, deadline: hrtime_t) -> c_int {
    let _ = (thread, deadline);
    libc::ENOTSUP
}

/// Does nothing: every thread may use floating point. Returns 0; EINVAL: the flag is not 0 or 1.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_setfp_np(thread: libc::pthread_t, flag: c_int) -> c_int {
    let _ = thread;
    if matches!(flag, 0 | 1) { 0 } else { libc::EINVAL }
}

/// As `pthread_setfp_np`.
#[unsafe(no_mangle)]
pub extern "C" fn pthread_attr_setfp_np(
    attributes: *mut libc::pthread_attr_t,
    flag: c_int,
) -> c_int {
    let _ = attributes;
    if matches!(flag, 0 | 1) { 0 } else { libc::EINVAL }
}

/// Binds threads with these attributes to that CPU. Allocates. Errors: EINVAL: no such CPU; ENOMEM.
///
/// # Safety
/// `attributes` is initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_attr_setcpu_np(
    attributes: *mut libc::pthread_attr_t,
    cpu: c_int,
) -> c_int {
    // SAFETY: takes a number.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let cpu = match usize::try_from(cpu) {
        Ok(cpu)
            if i64::try_from(cpu).is_ok_and(|cpu| cpu < configured)
                && cpu < libc::CPU_SETSIZE as usize =>
        {
            cpu
        }
        _ => return libc::EINVAL,
    };
    // SAFETY: a cpu_set_t is plain bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the caller vouches for the attributes; the set outlives the call.
    unsafe { libc::pthread_attr_setaffinity_np(attributes, size_of_val(&set), &raw const set) }
}

/// The CPU of threads with these attributes in `cpu`: the lowest one that they may run on. Errors:
/// ENOMEM.
///
/// # Safety
/// `attributes` is initialised, `cpu` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_attr_getcpu_np(
    attributes: *const libc::pthread_attr_t,
    cpu: *mut c_int,
) -> c_int {
    // SAFETY: a cpu_set_t is plain bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the caller vouches for the attributes; the set is a local of that size.
    let error =
        unsafe { libc::pthread_attr_getaffinity_np(attributes, size_of_val(&set), &raw mut set) };
    if error == 0 {
        // SAFETY: each number is below CPU_SETSIZE.
        let lowest =
            (0..libc::CPU_SETSIZE).find(|cpu| unsafe { libc::CPU_ISSET(*cpu as usize, &set) });
        // SAFETY: the caller vouches for `cpu`.
        unsafe { *cpu = lowest.unwrap_or(0) };
    }
    error
}

/// Returns 1 if the first thread of the program may run on that CPU, else 0. One system call.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_cpu_exists(cpu: c_int) -> c_int {
    // SAFETY: a cpu_set_t is plain bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let first = std::process::id() as libc::pid_t;
    // SAFETY: the kernel writes a set of that size into a local.
    unsafe { libc::sched_getaffinity(first, size_of_val(&set), &raw mut set) };
    match usize::try_from(cpu) {
        // SAFETY: below CPU_SETSIZE.
        Ok(cpu) if cpu < libc::CPU_SETSIZE as usize => unsafe { libc::CPU_ISSET(cpu, &set) }.into(),
        _ => 0,
    }
}

struct Start {
    routine: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
    begun: SyncSender<()>,
}

/// How long an ordinary thread waits for one that it has made: its CPU may be another's.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

/// Is the caller what Linux is in RTLinux: below all threads of real time?
fn is_ordinary() -> bool {
    // SAFETY: takes and returns a number; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    ![libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&policy)
}

/// `pthread_create` of a thread that is SCHED_FIFO with RTLinux priority 0, unless its attributes
/// say otherwise. All pages of its stack are touched (256 KiB without attributes). An ordinary
/// caller goes on once the thread has begun, or after a second: so threads begin in the order in
/// which init_module makes them. For set-up only: takes a lock and allocates. Errors: those of
/// pthread_create; EPERM: no permission for a real-time policy, see RLIMIT_RTPRIO; EINVAL: no
/// routine.
///
/// # Safety
/// As pthread_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: StartRoutine,
    argument: *mut c_void,
) -> c_int {
    let Some(routine) = routine else { return libc::EINVAL };
    // SAFETY: a pthread_attr_t is plain memory; pthread_attr_init fills it, or the caller's is
    // copied over it.
    let mut own: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let owned = attributes.is_null();
    if owned {
        // SAFETY: `own` is ours.
        unsafe { libc::pthread_attr_init(&raw mut own) };
        // SAFETY: as above.
        unsafe { libc::pthread_attr_setstacksize(&raw mut own, STACK_BYTES) };
    } else {
        // SAFETY: the caller vouches for the pointer; the copy shares what the original owns and is
        // not destroyed.
        own = unsafe { *attributes };
    }
    let mut inherits = PTHREAD_INHERIT_SCHED;
    // SAFETY: `own` is initialised; the answer goes to a local.
    unsafe { pthread_attr_getinheritsched(&raw const own, &raw mut inherits) };
    if without_priorities() {
        // SAFETY: `own` is initialised.
        unsafe { pthread_attr_setinheritsched(&raw mut own, PTHREAD_INHERIT_SCHED) };
    } else if inherits == PTHREAD_INHERIT_SCHED {
        let lowest = libc::sched_param { sched_priority: 0 };
        // SAFETY: both are ours and initialised.
        unsafe { rtl_pthread_attr_setschedparam(&raw mut own, &raw const lowest) };
    }
    let (begun, begins) = sync_channel(1);
    let start = Box::into_raw(Box::new(Start { routine, argument, begun })).cast();
    let made = table::make(|| {
        // SAFETY: the caller vouches for `thread`; `begin` takes the box.
        match unsafe { pthread_create(thread, &raw const own, begin, start) } {
            // SAFETY: written by the call before.
            0 => Ok(unsafe { *thread }),
            error => Err(error),
        }
    });
    if made.is_err() {
        // SAFETY: no thread was made, so the box is still ours.
        drop(unsafe { Box::from_raw(start.cast::<Start>()) });
    } else if is_ordinary() {
        let _ = begins.recv_timeout(BEGINS_WITHIN);
    }
    if owned {
        // SAFETY: initialised above, and destroyed once.
        unsafe { libc::pthread_attr_destroy(&raw mut own) };
    }
    made.err().unwrap_or(0)
}

unsafe extern "C-unwind" fn begin(start: *mut c_void) -> *mut c_void {
    // SAFETY: the box of `rtl_pthread_create`, given to this thread alone.
    let Start { routine, argument, begun } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    table::begin();
    // A stack that cannot be asked for its end is one that faults; the program still runs.
    let _ = prefault_stack(usize::MAX);
    table::may_be_stopped();
    // A caller of real time does not wait.
    let _ = begun.send(());
    drop(begun);
    // SAFETY: the program's own routine and argument; may unwind this frame, which owns nothing any
    // more.
    unsafe { routine(argument) }
}

/// Locks all memory of the process, now and later, and touches `heap_bytes` bytes of the caller's
/// heap.
///
/// Returns 0, or -1 and the reason with its numbers in `why`: at most `size` bytes, with a NUL at
/// the end.
///
/// # Safety
/// `why` points to `size` writable bytes, or `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_lock_memory_np(
    heap_bytes: usize,
    why: *mut c_char,
    size: usize,
) -> c_int {
    let Err(refusal) = lock_memory().and_then(|()| prefault_heap(heap_bytes)) else { return 0 };
    if size > 0 {
        let text = refusal.to_string();
        let length = text.len().min(size - 1);
        // SAFETY: `length` bytes fit with the NUL, by the caller's word; the text is ours, so they
        // do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), why, length) };
        // SAFETY: below `size`.
        let end = unsafe { why.add(length) };
        // SAFETY: as above.
        unsafe { *end = 0 };
    }
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_rtlinux_are_translated_or_refused_by_name() {
        let priority =
            |policy, priority| translate(policy, priority).map(|param| param.sched_priority);
        assert_eq!(priority(libc::SCHED_FIFO, 1), Ok(2));
        assert_eq!(priority(libc::SCHED_RR, 1_000_000), Ok(98));
        assert_eq!(priority(libc::SCHED_FIFO, 1_000_001), Err(libc::EINVAL));
        assert_eq!(priority(libc::SCHED_OTHER, 0), Err(libc::EINVAL));
        assert_eq!(priority(SCHED_EDF_NP, 1), Err(libc::ENOTSUP));
        assert_eq!(pthread_setdeadline_np(0, 5), libc::ENOTSUP);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_when_it_is_named() {
        // SAFETY: plain memory that pthread_attr_init fills.
        let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
        // SAFETY: ours.
        unsafe { libc::pthread_attr_init(&raw mut attributes) };
        for (cpu, wanted) in [(0, 0), (-1, libc::EINVAL), (60_000, libc::EINVAL)] {
            // SAFETY: initialised above.
            let answer = unsafe { pthread_attr_setcpu_np(&raw mut attributes, cpu) };
            assert_eq!(answer, wanted, "{cpu}");
        }
        // SAFETY: initialised above, destroyed once.
        unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    }

    #[test]
    fn floating_point_is_always_allowed_and_nonsense_is_not() {
        assert_eq!([0, 1, 2].map(|flag| pthread_setfp_np(0, flag)), [0, 0, libc::EINVAL]);
        assert_eq!(pthread_attr_setfp_np(std::ptr::null_mut(), -1), libc::EINVAL);
    }
}
