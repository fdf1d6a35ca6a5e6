// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock for data that a high-priority thread shares with lower ones: who holds it inherits the
//! priority of who waits (a PI futex in the kernel, futex(2)), so that the wait is bounded by what
//! is done under the lock, whatever runs in between. std's `Mutex` does not inherit; glibc's does,
//! at 120 instructions for an uncontended lock.
//!
//! The word holds the owner's thread number, and the kernel does the rest. Uncontended, neither
//! locking nor unlocking enters the kernel, but for a thread's first lock, which asks for that
//! number.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::*};

thread_local! {
    /// 0: not asked for yet.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread, as the kernel knows it.
#[inline]
fn thread_id() -> u32 {
    match THREAD.get() {
        0 => ask_thread_id(),
        thread => thread,
    }
}

#[cold]
fn ask_thread_id() -> u32 {
    // SAFETY: takes nothing, touches nothing, cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    THREAD.set(thread);
    thread
}

/// The child of a fork is another thread.
unsafe extern "C" fn in_child() {
    ask_thread_id();
}

pub struct PiMutex<T> {
    /// 0, or the owner's thread number; FUTEX_WAITERS is the kernel's.
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and one guard exists at a time.
unsafe impl<T: Send> Sync for PiMutex<T> {}

impl<T> PiMutex<T> {
    /// Errors: ENOSYS where the kernel has no PI futexes, ENOMEM.
    pub fn new(value: T) -> io::Result<Self> {
        static FORKS: Once = Once::new();
        let mut registered = 0;
        FORKS.call_once(|| {
            // SAFETY: the handler makes one system call and writes a thread-local word, which needs
            // no initialisation.
            registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        if registered != 0 {
            return Err(io::Error::from_raw_os_error(registered));
        }
        let made = Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) };
        made.ask(libc::FUTEX_LOCK_PI)?;
        made.ask(libc::FUTEX_UNLOCK_PI)?;
        Ok(made)
    }

    /// Waits for the lock. Panics if this thread holds it, or its holder ended with it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let thread = thread_id();
        // Acquire pairs with Release in the guard's drop: what was done under the lock is seen.
        if self.word.compare_exchange(0, thread, Acquire, Relaxed).is_err() {
            self.wait();
        }
        Guard { mutex: self, thread, stays: PhantomData }
    }

    /// The kernel lends our priority to the owner, and gives us the word.
    #[cold]
    fn wait(&self) {
        while let Err(error) = self.ask(libc::FUTEX_LOCK_PI) {
            // EAGAIN: the owner is about to end.
            if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
                panic!("a lock that cannot be had: {error}");
            }
        }
        // Acquire pairs with Release in `wake`, the last this owner's forerunner did with the word.
        self.word.load(Acquire);
    }

    /// Somebody waits, or has waited: the kernel gives the word to the one with the highest
    /// priority.
    #[cold]
    fn wake(&self) {
        // Release pairs with Acquire in `wait`; changes nothing.
        self.word.fetch_or(0, Release);
        if let Err(error) = self.ask(libc::FUTEX_UNLOCK_PI) {
            panic!("a lock that cannot be let go: {error}");
        }
    }

    /// One system call.
    fn ask(&self, operation: i32) -> io::Result<()> {
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        let for_ever = std::ptr::null::<libc::timespec>();
        // SAFETY: the word is alive for the call; no time is given.
        match unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), operation, 0, for_ever) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The lock, held. Stays in its thread: only the owner may let go.
pub struct Guard<'a, T> {
    mutex: &'a PiMutex<T>,
    thread: u32,
    /// A raw pointer is not Send.
    stays: PhantomData<*const ()>,
}

// SAFETY: shared use of a guard gives shared use of the value only.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with Acquire in `lock`.
        if self.mutex.word.compare_exchange(self.thread, 0, Release, Relaxed).is_err() {
            self.mutex.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let shared = PiMutex::new(0u64).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut value = shared.lock();
                        let seen = *value;
                        *value = std::hint::black_box(seen) + 1;
                    }
                });
            }
        });
        assert_eq!(*shared.lock(), 40_000);
    }

    #[test]
    fn who_waits_sleeps_until_it_is_given_the_lock() {
        let shared = PiMutex::new(0u64).unwrap();
        let held = shared.lock();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                *shared.lock() += 1;
            });
            // The kernel says so in the word when somebody sleeps.
            while shared.word.load(Relaxed) & libc::FUTEX_WAITERS == 0 {
                std::thread::yield_now();
            }
            assert_eq!(*held, 0);
            drop(held);
            waiting.join().unwrap();
        });
        assert_eq!(*shared.lock(), 1);
    }

    /// As the scheduler sees it, this moment: 20 of SCHED_OTHER, -1 and less of real-time threads.
    fn own_priority() -> i64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The name may have spaces; behind it the priority is the 16th word.
        let (_, behind) = stat.rsplit_once(") ").unwrap();
        behind.split_whitespace().nth(15).unwrap().parse().unwrap()
    }

    #[test]
    fn the_holder_inherits_the_priority_of_who_waits() {
        let shared = PiMutex::new(()).unwrap();
        let held = shared.lock();
        let before = own_priority();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let priority = libc::sched_param { sched_priority: 10 };
                // SAFETY: the structure is ours.
                let permitted =
                    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) }
                        == 0;
                if permitted {
                    drop(shared.lock());
                }
                permitted
            });
            // The end is that of a test that fails.
            let end = Instant::now() + Duration::from_secs(180);
            while own_priority() != -11 && !waiting.is_finished() && Instant::now() < end {
                std::thread::yield_now();
            }
            let inherited = own_priority();
            drop(held);
            match waiting.join().unwrap() {
                true => assert_eq!((inherited, own_priority()), (-11, before)),
                false => {
                    println!(
                        "skipped: SCHED_FIFO is not permitted here (CAP_SYS_NICE or RLIMIT_RTPRIO)"
                    )
                }
            }
        });
    }

    #[test]
    fn a_thread_that_asks_for_what_it_holds_is_told_so() {
        let shared = PiMutex::new(0u64).unwrap();
        let held = shared.lock();
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(shared.lock())));
        let said = again.unwrap_err().downcast::<String>().unwrap();
        assert!(said.starts_with("a lock that cannot be had: Resource deadlock avoided"), "{said}");
        drop(held);
        drop(shared.lock());
    }

    #[test]
    fn the_child_of_a_fork_is_a_thread_of_its_own() {
        let shared = PiMutex::new(0u64).unwrap();
        drop(shared.lock());
        // SAFETY: the child locks and ends, and calls nothing that another thread might have had
        // under way.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let held = shared.lock();
            // SAFETY: takes nothing, touches nothing, cannot fail.
            let own = shared.word.load(Relaxed) == unsafe { libc::getpid() } as u32;
            drop(held);
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(if own { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: a child of ours, and a local to write to.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
    }
}
