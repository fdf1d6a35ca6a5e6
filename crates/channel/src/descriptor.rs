// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A descriptor for poll(2), epoll(7) and event loops.
//!
//! Shared memory has no descriptor that the kernel could poll. So a thread of the ordinary policy
//! waits as the end would, and *raises* an eventfd: it becomes readable. It is made when a program
//! first asks for the descriptor. The other end does nothing that it does not do for a sleeper.
//!
//! **Level-triggered.** The descriptor stays readable until the end itself finds nothing: until a
//! get finds no frame, a put no room, a receive no request, or until a wait would sleep. That
//! *lowers* it, by one system call. So read until there is nothing, then poll; or read one and poll
//! each time. Nothing else clears or re-arms it.
//!
//! **No lost wake-up.** The thread checks anew after each lowering, and after it has announced
//! itself at the doorbell. So what came before the check is seen, and what comes later wakes it.
//! `models/descriptor.rs` explores that.
//!
//! **Spurious.** It may be readable although there is nothing: another thread may have taken what
//! was there.

use crate::cancel::Canceller;
use crate::sync::{AtomicU32, Ordering::*};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long to wait before a thread that has not ended is woken once more.
const AGAIN: Duration = Duration::from_micros(100);

/// A program that locks its memory locks this, too.
const STACK_BYTES: usize = 64 << 10;

/// The descriptor of one end, and the thread that raises it. Dropping it ends the thread; the
/// descriptor stays readable then.
#[derive(Debug)]
pub(crate) struct Descriptor {
    event: Arc<Event>,
    canceller: Canceller,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread: a forked child has none.
    process: u32,
}

/// What the end and its thread share.
#[derive(Debug)]
pub(crate) struct Event {
    fd: Arc<OwnedFd>,
    raised: Raised,
    ends: AtomicU32,
}

impl Descriptor {
    /// Starts the thread. `look` returns true if the end may be ready; else it sleeps where
    /// `canceller` wakes it and returns false. After it has announced itself there, it checks
    /// [`Event::ends`]. Errors: no descriptor, no thread.
    pub fn start(
        name: &str,
        canceller: &Canceller,
        mut look: impl FnMut(&Event) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        // SAFETY: takes numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor from the kernel, which nothing else owns.
        let fd = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let event = Arc::new(Event { fd, raised: Raised::new(), ends: AtomicU32::new(0) });
        let ours = Arc::clone(&event);
        let watch = move || {
            become_ordinary();
            while !ours.ends() {
                if look(&ours) {
                    ours.raise();
                    // After the raise: an end that is dropped notes that first and lowers then.
                    if !ours.ends() {
                        ours.wait_until_lowered();
                    }
                }
            }
        };
        let thread = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(watch)?;
        let (canceller, process) = (canceller.clone(), std::process::id());
        Ok(Self { event, canceller, thread: Some(thread), process })
    }

    /// The descriptor.
    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.event.fd)
    }

    /// Makes it readable. One system call.
    #[cold]
    pub fn raise(&self) {
        self.event.raise();
    }

    /// Makes it unreadable, if it was raised: the end has found nothing. At most one system call.
    #[inline]
    pub fn lower(&self) {
        self.event.raised.lower(|| self.event.drain());
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A forked child has no such thread, and must not detach another one of its number.
            std::mem::forget(self.thread.take());
            return;
        }
        self.event.ends.store(1, Relaxed);
        if let Some(thread) = self.thread.take() {
            // Another process may write the word back at which the thread is about to sleep.
            loop {
                self.canceller.wake();
                self.event.drain();
                if thread.is_finished() {
                    break;
                }
                std::thread::sleep(AGAIN);
            }
            let _ = thread.join();
        }
        self.event.raise();
    }
}

/// Whether the thread has raised the descriptor: the end then need not ask the kernel.
#[derive(Debug)]
pub(crate) struct Raised(AtomicU32);

impl Raised {
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Before the write, so that who finds it readable finds this, too. And after it, in case an
    /// end lowered in between: it then lowers at its next look.
    pub fn raise(&self, write: impl FnOnce()) {
        self.0.store(1, Relaxed);
        write();
        self.0.store(1, Relaxed);
    }

    /// In this order: what is raised meanwhile is lowered at the end's next look.
    #[inline]
    pub fn lower(&self, read: impl FnOnce()) {
        if self.0.load(Relaxed) != 0 {
            self.0.store(0, Relaxed);
            read();
        }
    }
}

impl Event {
    /// Whether the end is being dropped.
    pub fn ends(&self) -> bool {
        self.ends.load(Relaxed) != 0
    }

    fn raise(&self) {
        // The largest count: no more can be written until it is read.
        let count: u64 = u64::MAX - 1;
        self.raised.raise(|| {
            // syscall(2), since write(2) is a cancellation point: it would unwind ends at work.
            // SAFETY: eight bytes of our stack. It fails only if it is readable already.
            unsafe {
                libc::syscall(libc::SYS_write, self.fd.as_raw_fd(), &raw const count, 8usize)
            };
        });
    }

    fn drain(&self) {
        let mut count = 0u64;
        // syscall(2) as in `raise`.
        // SAFETY: eight bytes of our stack. It fails only if there is nothing to read.
        unsafe { libc::syscall(libc::SYS_read, self.fd.as_raw_fd(), &raw mut count, 8usize) };
    }

    fn wait_until_lowered(&self) {
        let mut asked = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd on our stack. No signal comes here; else the thread looks once more.
        unsafe { libc::poll(&raw mut asked, 1, -1) };
    }
}

/// A thread inherits policy and signal mask from the one that makes it. This one is SCHED_OTHER and
/// handles no signal of the program.
fn become_ordinary() {
    // SAFETY: all zeros is a valid set, and the call fills it.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set on our stack.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: as above; the old set is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut()) };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the caller's own thread; the parameters outlive the call. To SCHED_OTHER one may
    // always go.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) };
}
