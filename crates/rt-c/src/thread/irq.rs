// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts by RTLinux's names: number N is the UIO device /dev/uioN, or a descriptor of the
//! program.
//!
//! As in RTLinux, an interrupt stays masked after its handler until `rtl_hard_enable_irq`. As in
//! L4, it reaches the handler as a message to a thread of its own, at SCHED_FIFO 99, above all
//! other threads.

use crate::thread::create::without_priorities;
use crate::thread::priority::OF_HANDLERS;
use asmp_rt::thread::{Handler, InterruptError, Interrupts, Line, RealTime, Refusal, Reply};
use std::ffi::{c_int, c_uint};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Interrupts with a handler at one time.
const CAPACITY: usize = 32;

/// Registers of the interrupted program. RTLinux passes handlers a pointer to them. Here it is
/// always null.
#[allow(non_camel_case_types)]
pub struct pt_regs(());

/// A handler of interrupts. Its return value is not used.
pub type RtlIrqHandler =
    Option<unsafe extern "C" fn(irq: c_uint, registers: *mut pt_regs) -> c_uint>;

struct Place {
    /// The handler thread's `pthread_t`, which is an address; 0 before its first interrupt.
    thread: AtomicUsize,
    irq: AtomicU32,
    /// The handler has called `rtl_hard_enable_irq`.
    enabled: AtomicBool,
    /// `rtl_hard_disable_irq` came last: the handler is not called.
    disabled: AtomicBool,
    /// Taken out before it is waited for, so that no thread waits with the lock held.
    handler: Mutex<Option<(c_uint, Handler)>>,
}

static PLACES: [Place; CAPACITY] = [const {
    Place {
        thread: AtomicUsize::new(0),
        irq: AtomicU32::new(0),
        enabled: AtomicBool::new(false),
        disabled: AtomicBool::new(false),
        handler: Mutex::new(None),
    }
}; CAPACITY];

fn self_id() -> usize {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Calls `handler` for each interrupt of /dev/uioN, in a thread of its own. The interrupt is
/// enabled when this returns. For set-up only.
///
/// Returns 0, or an error:
/// - -EINVAL: no handler
/// - -EBUSY: it has a handler
/// - -ENODEV: there is no such device, or it cannot be opened
/// - -EPERM: no permission for a real-time policy, see RLIMIT_RTPRIO
/// - -EAGAIN: 32 interrupts have handlers, or the thread cannot be created
///
/// # Safety
/// `handler` may be called from another thread until `rtl_free_irq` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_request_irq(irq: c_uint, handler: RtlIrqHandler) -> c_int {
    request(irq, handler, || Line::uio(&PathBuf::from(format!("/dev/uio{irq}"))))
}

/// The same for an eventfd or a timerfd of the program, under a number that the program chooses.
/// The descriptor must have no other reader. Errors: those of `rtl_request_irq`; -EBADF.
///
/// # Safety
/// As `rtl_request_irq`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_request_irq_from_np(
    irq: c_uint,
    fd: c_int,
    handler: RtlIrqHandler,
) -> c_int {
    if fd < 0 {
        return -libc::EBADF;
    }
    // SAFETY: borrowed for the time of the call; a descriptor that is not open makes dup fail.
    let owned = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    match owned {
        Ok(owned) => request(irq, handler, || Ok(Line::counter(owned, &format!("rtl-irq-{irq}")))),
        Err(_) => -libc::EBADF,
    }
}

fn request(
    irq: c_uint,
    handler: RtlIrqHandler,
    line: impl FnOnce() -> Result<Line, InterruptError>,
) -> c_int {
    let Some(handler) = handler else { return -libc::EINVAL };
    // Looking for a place and taking it is one step: this lock is held by requests alone.
    static REQUESTS: Mutex<()> = Mutex::new(());
    let _one = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut free = None;
    for place in &PLACES {
        match &*place.handler.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((taken, _)) if *taken == irq => return -libc::EBUSY,
            Some(_) => {}
            None => free = free.or(Some(place)),
        }
    }
    let Some(place) = free else { return -libc::EAGAIN };
    place.irq.store(irq, Ordering::Relaxed);
    place.disabled.store(false, Ordering::Relaxed);
    let how =
        if without_priorities() { RealTime::without_policy() } else { RealTime::fifo(OF_HANDLERS) };
    let deliver = move |_| {
        place.thread.store(self_id(), Ordering::Relaxed);
        place.enabled.store(false, Ordering::Relaxed);
        if place.disabled.load(Ordering::Relaxed) {
            return Reply::KeepMasked;
        }
        // SAFETY: the program's own handler, by its word callable until the interrupt is freed.
        unsafe { handler(irq, std::ptr::null_mut()) };
        if place.enabled.load(Ordering::Relaxed) { Reply::Unmask } else { Reply::KeepMasked }
    };
    // Memory is the program's to lock (rtl_lock_memory_np).
    match line().and_then(|line| Interrupts::handle(line, how.unlocked(), deliver)) {
        Ok(handler) => {
            *place.handler.lock().unwrap_or_else(PoisonError::into_inner) = Some((irq, handler));
            0
        }
        Err(error) => -number(&error),
    }
}

fn number(error: &InterruptError) -> c_int {
    match error {
        InterruptError::Taken { .. } => libc::EBUSY,
        InterruptError::Open { .. } => libc::ENODEV,
        InterruptError::Line { cause, .. } => cause.raw_os_error().unwrap_or(libc::EIO),
        InterruptError::Thread(Refusal::NoPermission { .. }) => libc::EPERM,
        InterruptError::Thread(_) => libc::EAGAIN,
    }
}

/// Unmasks an interrupt: called in its handler, when that returns; called elsewhere, at once.
/// Ignores unknown ones, as RTLinux does. In the handler it is bounded, and makes no system call
/// and takes no lock.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_hard_enable_irq(irq: c_uint) {
    let own = self_id();
    for place in &PLACES {
        // A handler thread finds what it stored itself: Relaxed.
        if place.thread.load(Ordering::Relaxed) == own && place.irq.load(Ordering::Relaxed) == irq {
            place.disabled.store(false, Ordering::Relaxed);
            place.enabled.store(true, Ordering::Relaxed);
            return;
        }
    }
    for place in &PLACES {
        if let Some((taken, handler)) =
            &*place.handler.lock().unwrap_or_else(PoisonError::into_inner)
            && *taken == irq
        {
            place.disabled.store(false, Ordering::Relaxed);
            return handler.unmask();
        }
    }
}

/// Calls the handler no more until `rtl_hard_enable_irq`. An interrupt that comes meanwhile masks
/// the line, and its message is lost; a device that still asks interrupts again when the line is
/// unmasked. A handler under way in its thread goes on. Ignores unknown ones, as RTLinux does.
/// Returns 0. Takes a lock.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_hard_disable_irq(irq: c_uint) -> c_int {
    for place in &PLACES {
        let handler = place.handler.lock().unwrap_or_else(PoisonError::into_inner);
        if handler.as_ref().is_some_and(|(taken, _)| *taken == irq) {
            place.disabled.store(true, Ordering::Relaxed);
            place.enabled.store(false, Ordering::Relaxed);
        }
    }
    0
}

/// Removes the handler of an interrupt. Returns when the handler has returned; called in the
/// handler itself, at once. Errors: -EINVAL: it has no handler.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_free_irq(irq: c_uint) -> c_int {
    for place in &PLACES {
        let mut handler = place.handler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, freed)) = handler.take_if(|(taken, _)| *taken == irq) {
            drop(handler);
            // A line that failed before has no handler thread any more; that is what was wanted.
            let _ = freed.free();
            place.thread.store(0, Ordering::Relaxed);
            return 0;
        }
    }
    -libc::EINVAL
}
