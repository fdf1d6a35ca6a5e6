// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Soft interrupts: work that a real-time thread asks for and that runs at Linux's own priority.
//! Each has a thread of the policy SCHED_OTHER.

use crate::refuse::refuse;
use crate::thread::irq::pt_regs;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Soft interrupts at one time.
const CAPACITY: usize = 16;

/// The first number: above those of devices.
const FIRST: usize = 1024;

/// A handler of soft interrupts. Its second and third argument are null.
pub type RtlSoftIrqHandler =
    Option<unsafe extern "C" fn(irq: c_int, ignored: *mut c_void, registers: *mut pt_regs)>;

struct Place {
    pending: AtomicBool,
    /// The thread, once there is one, and whether it is to end.
    thread: Mutex<Option<(JoinHandle<()>, Arc<AtomicBool>)>>,
    /// The thread sleeps on this until an interrupt is pending.
    kick: Kick,
}

/// A semaphore of the C library: posting it neither blocks nor takes a lock.
struct Kick(std::cell::UnsafeCell<libc::sem_t>);

// SAFETY: a semaphore is made for many threads. All zeros is one with the value 0, private to the
// process (nptl/sem_init.c).
unsafe impl Sync for Kick {}

impl Kick {
    fn post(&self) {
        // SAFETY: the semaphore lives for ever.
        unsafe { libc::sem_post(self.0.get()) };
    }

    fn wait(&self) {
        // SAFETY: as above.
        unsafe { libc::sem_wait(self.0.get()) };
    }
}

static PLACES: [Place; CAPACITY] = [const {
    Place {
        pending: AtomicBool::new(false),
        thread: Mutex::new(None),
        // SAFETY: a sem_t is plain memory; see `Kick`.
        kick: Kick(std::cell::UnsafeCell::new(unsafe { std::mem::zeroed() })),
    }
}; CAPACITY];

fn place(irq: c_int) -> Option<&'static Place> {
    usize::try_from(irq).ok()?.checked_sub(FIRST).and_then(|at| PLACES.get(at))
}

/// Makes a soft interrupt: `handler` runs in a thread of the policy SCHED_OTHER, by the name
/// `name`, after each `rtl_global_pend_irq`. For set-up only.
///
/// Returns its number, or an error: -EINVAL: no handler; -EAGAIN: 16 are in use, or the thread
/// cannot be created.
///
/// # Safety
/// `handler` may be called until `rtl_free_soft_irq` has returned; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtl_get_soft_irq(
    handler: RtlSoftIrqHandler,
    name: *const c_char,
) -> c_int {
    let Some(handler) = handler else { return -libc::EINVAL };
    let name = match name.is_null() {
        true => "rtl-soft-irq".to_owned(),
        // SAFETY: a C string by the caller's word.
        false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
    };
    for (at, place) in PLACES.iter().enumerate() {
        let mut thread = place.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            continue;
        }
        place.pending.store(false, Ordering::Relaxed);
        let irq = (FIRST + at) as c_int;
        let ends = Arc::new(AtomicBool::new(false));
        let its_ends = Arc::clone(&ends);
        let serve = move || {
            ordinary();
            // Acquire: pairs with the Release in `rtl_free_soft_irq`.
            while !its_ends.load(Ordering::Acquire) {
                place.kick.wait();
                // Acquire: as above.
                if its_ends.load(Ordering::Acquire) {
                    return;
                }
                // Acquire: pairs with the Release in `rtl_global_pend_irq`.
                if place.pending.swap(false, Ordering::Acquire) {
                    // SAFETY: the program's own handler, by its word callable until it is freed.
                    unsafe { handler(irq, std::ptr::null_mut(), std::ptr::null_mut()) };
                }
            }
        };
        let made = std::thread::Builder::new().name(name).spawn(serve);
        return match made {
            Ok(made) => {
                *thread = Some((made, ends));
                irq
            }
            Err(_) => -libc::EAGAIN,
        };
    }
    -libc::EAGAIN
}

/// A thread inherits the policy of the thread that makes it.
fn ordinary() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the caller's own thread; the parameters outlive the call. To SCHED_OTHER one may
    // always go.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) };
}

/// Asks for a soft interrupt. Several before its handler runs are one call. Bounded, no lock, at
/// most one system call.
///
/// Of a number that is no soft interrupt it ends the program with one line: a program cannot raise
/// the interrupts of devices in Linux.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_global_pend_irq(irq: c_int) {
    let Some(place) = place(irq) else {
        refuse(
            "rtl_global_pend_irq",
            "no program raises the interrupts of devices: give it a number of rtl_get_soft_irq",
        );
    };
    // Release: pairs with the Acquire in the thread, which sees what was done before.
    if !place.pending.swap(true, Ordering::Release) {
        place.kick.post();
    }
}

/// Ends a soft interrupt. Its handler has returned then, unless it is the caller. Ignores others.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_free_soft_irq(irq: c_int) {
    let Some(place) = place(irq) else { return };
    let mut thread = place.thread.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((made, ends)) = thread.take() {
        // Release: pairs with the Acquires in the thread.
        ends.store(true, Ordering::Release);
        if made.thread().id() != std::thread::current().id() {
            place.kick.post();
            // A handler that panics ends the program, so there is nothing to hear of.
            let _ = made.join();
        }
    }
}
