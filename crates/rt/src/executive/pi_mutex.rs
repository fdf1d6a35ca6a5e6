//! A lock for data that a high-priority thread shares with lower ones: who holds it inherits the priority of who
//! waits (PTHREAD_PRIO_INHERIT, a PI futex in the kernel), so that the wait is bounded by what is done under the lock,
//! whatever runs in between. std's `Mutex` does not inherit.
//!
//! Uncontended, neither locking nor unlocking enters the kernel. Allocates when made only.

use std::cell::UnsafeCell;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

pub struct PiMutex<T> {
    /// Boxed: a pthread mutex must not move.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and one guard exists at a time.
unsafe impl<T: Send> Sync for PiMutex<T> {}
// SAFETY: an unlocked pthread mutex may be used and destroyed by any thread; the guard borrows the mutex.
unsafe impl<T: Send> Send for PiMutex<T> {}

impl<T> PiMutex<T> {
    /// Errors: ENOTSUP where the kernel has no PI futexes, ENOMEM.
    pub fn new(value: T) -> io::Result<Self> {
        let check = |code| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        // SAFETY: plain memory for which zeros are a value; it is initialised next.
        let mut attributes: libc::pthread_mutexattr_t = unsafe { std::mem::zeroed() };
        // SAFETY: `attributes` is ours and outlives the call.
        check(unsafe { libc::pthread_mutexattr_init(&raw mut attributes) })?;
        // SAFETY: initialised above.
        let inherits = check(unsafe {
            libc::pthread_mutexattr_setprotocol(&raw mut attributes, libc::PTHREAD_PRIO_INHERIT)
        });
        // SAFETY: the mutex is ours, nobody has it yet, and its address does not change.
        let made = inherits
            .and_then(|()| check(unsafe { libc::pthread_mutex_init(raw.get(), &raw const attributes) }));
        // SAFETY: initialised above and not used again.
        unsafe { libc::pthread_mutexattr_destroy(&raw mut attributes) };
        made.map(|()| Self { raw, value: UnsafeCell::new(value) })
    }

    /// Waits for the lock. A thread that asks for what it holds waits for ever.
    pub fn lock(&self) -> Guard<'_, T> {
        // SAFETY: the mutex was initialised by `new` and lives as long as `self`.
        let code = unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        // Possible are only EINVAL of a mutex that was not made and EAGAIN of a recursive one.
        assert_eq!(code, 0, "a mutex that was made can be locked");
        Guard { mutex: self, stays: PhantomData }
    }
}

impl<T> Drop for PiMutex<T> {
    fn drop(&mut self) {
        // SAFETY: no guard is left, as it borrows `self`; the mutex was made by `new`.
        unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
    }
}

/// The lock, held. Stays in its thread: only the owner may unlock a PI mutex.
pub struct Guard<'a, T> {
    mutex: &'a PiMutex<T>,
    /// A raw pointer is not Send.
    stays: PhantomData<*const ()>,
}

// SAFETY: shared use of a guard gives shared use of the value only.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this guard holds the lock, and is in the thread that took it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
