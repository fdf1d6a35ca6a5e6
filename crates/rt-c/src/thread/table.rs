// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of each thread, in a table of fixed size, by `pthread_t`.
//!
//! Finding a thread's place scans at most [`CAPACITY`] words from the hash of the thread on,
//! without a lock. Taking a place is set-up: it holds a lock, so that two callers get the same
//! place for one thread. A thread returns its place when it ends (a destructor of thread-specific
//! data). A thread that is used after that gets another place, which the next thread of the same
//! `pthread_t` does not inherit.
//!
//! Writers of a new period ([`Pair`]) take turns with the lock held. The thread reads it between
//! two releases and never waits. If it meets a write in progress, it reads again after the wake-up
//! that follows.

use asmp_channel::Pair;
use asmp_rt::thread::Grid;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Threads with a place at one time.
const CAPACITY: usize = 128;

/// No thread: glibc's `pthread_t` is an address.
const FREE: usize = 0;

/// When a thread is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// When another thread wakes it.
    Never,
    /// A period of 0: at that instant, then never.
    Once { at_ns: u64 },
    /// Nothing that passed before it was asked for is an overrun.
    Grid { grid: Grid, fresh: bool },
}

impl Plan {
    /// What `pthread_make_periodic_np` was told; `None` for a negative period.
    pub fn new(start_ns: i64, period_ns: i64) -> Option<Self> {
        let start_ns = u64::try_from(start_ns).unwrap_or(0);
        match u64::try_from(period_ns).ok()? {
            0 => Some(Self::Once { at_ns: start_ns }),
            period_ns => {
                let grid = Grid::starting_at(start_ns, Duration::from_nanos(period_ns)).ok()?;
                Some(Self::Grid { grid, fresh: true })
            }
        }
    }

    /// Is a release due? Then how many were missed before it.
    pub fn release(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Once { at_ns } if *at_ns <= now_ns => {
                *self = Self::Never;
                Some(0)
            }
            Self::Once { .. } => None,
            Self::Grid { grid, fresh } => {
                let release = grid.release(now_ns)?;
                let overruns = if *fresh { 0 } else { release.overruns };
                *fresh = false;
                Some(overruns)
            }
        }
    }

    /// The instant to sleep to; `None`: until woken.
    pub const fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Never => None,
            Self::Once { at_ns } => Some(*at_ns),
            Self::Grid { grid, .. } => Some(grid.next_ns()),
        }
    }
}

/// What only the thread itself touches.
struct Own {
    plan: Plan,
    /// The request that `plan` came from.
    taken: u32,
}

pub struct Place {
    thread: AtomicUsize,
    /// Posted for each event that the thread must check while it sleeps.
    kick: UnsafeCell<libc::sem_t>,
    /// `pthread_wakeup_np` came; the next wait or suspension ends at once.
    pub token: AtomicBool,
    /// 1: stopped by another thread (a futex word).
    pub stopped: AtomicU32,
    pub overruns: AtomicU64,
    /// RTLinux's signals: bits of those that came, and of those that wait.
    pub pending: AtomicU32,
    pub blocked: AtomicU32,
    /// How many handlers of theirs have run.
    pub handled: AtomicU32,
    /// Start and period as `pthread_make_periodic_np` was told; written with LOCK held.
    request: Pair,
    own: UnsafeCell<Own>,
}

// SAFETY: `kick` is a semaphore, made for many threads, and initialised before `thread` names
// a thread. `own` is touched by the thread that `thread` names (`Place::own`). While the place is
// free, the thread that takes it touches `own`, under LOCK.
unsafe impl Sync for Place {}

static PLACES: [Place; CAPACITY] = [const { Place::free() }; CAPACITY];

/// Held while a place changes hands and while a request is written.
static LOCK: Mutex<()> = Mutex::new(());

/// The signal that stops a thread.
pub fn stop_signal() -> c_int {
    libc::SIGRTMIN() + 6
}

/// The same for the signal that stops a thread.
fn mask_stop(how: c_int) -> libc::sigset_t {
    mask(how, stop_signal())
}

/// Adds a signal to the caller's mask, or takes it out; the mask before.
pub fn mask(how: c_int, signal: c_int) -> libc::sigset_t {
    // SAFETY: a sigset_t is plain bits, for which all zeros is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: ours, and the signal exists.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    let mut before = set;
    // SAFETY: both sets outlive the call.
    unsafe { libc::pthread_sigmask(how, &raw const set, &raw mut before) };
    before
}

/// LOCK. Its holder cannot be stopped until it releases LOCK: a thread that stopped it would block
/// on LOCK at its next call.
struct Held {
    lock: Option<MutexGuard<'static, ()>>,
    mask: libc::sigset_t,
}

fn hold() -> Held {
    let mask = mask_stop(libc::SIG_BLOCK);
    Held { lock: Some(LOCK.lock().unwrap_or_else(PoisonError::into_inner)), mask }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lock = None;
        // SAFETY: the mask outlives the call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut())
        };
    }
}

impl Place {
    const fn free() -> Self {
        Self {
            thread: AtomicUsize::new(FREE),
            // SAFETY: a sem_t is plain memory; sem_init fills it before use.
            kick: UnsafeCell::new(unsafe { std::mem::zeroed() }),
            token: AtomicBool::new(false),
            stopped: AtomicU32::new(0),
            overruns: AtomicU64::new(0),
            pending: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            handled: AtomicU32::new(0),
            request: Pair::new(),
            own: UnsafeCell::new(Own { plan: Plan::Never, taken: 0 }),
        }
    }

    pub fn kick(&self) -> *mut libc::sem_t {
        self.kick.get()
    }

    /// Makes a sleeping thread look again. Never blocks; async-signal-safe.
    pub fn post(&self) {
        // SAFETY: the semaphore was initialised when the place was taken and is never destroyed.
        unsafe { libc::sem_post(self.kick.get()) };
    }

    /// Asks the thread for another plan. For any thread; takes the lock.
    pub fn ask(&self, start_ns: i64, period_ns: i64) {
        let _held = hold();
        self.request.write(start_ns, period_ns);
        self.post();
    }

    /// # Safety
    /// Only the thread whose place this is, and not while it has another such reference.
    #[allow(clippy::mut_from_ref)]
    unsafe fn own(&self) -> &mut Own {
        // SAFETY: by the contract there is no other reference.
        unsafe { &mut *self.own.get() }
    }

    /// The thread's plan, after a new request if there is one whole.
    ///
    /// # Safety
    /// Only the thread whose place this is.
    pub unsafe fn plan(&self) -> Plan {
        // SAFETY: passed on to the caller; the reference ends with this function.
        let own = unsafe { self.own() };
        if let Some((number, start_ns, period_ns)) = self.request.read(own.taken) {
            own.plan = Plan::new(start_ns, period_ns).unwrap_or(Plan::Never);
            own.taken = number;
        }
        own.plan
    }

    /// # Safety
    /// Only the thread whose place this is.
    pub unsafe fn set_plan(&self, plan: Plan) {
        // SAFETY: passed on to the caller; the reference ends with this function.
        unsafe { self.own() }.plan = plan;
    }
}

fn position(thread: libc::pthread_t) -> usize {
    // Threads lie at least a page apart.
    (thread as usize >> 12) % CAPACITY
}

fn from(start: usize) -> impl Iterator<Item = &'static Place> {
    PLACES[start..].iter().chain(&PLACES[..start])
}

/// The place of a thread that has one. Bounded; no lock, no system call; async-signal-safe.
pub fn find(thread: libc::pthread_t) -> Option<&'static Place> {
    if thread as usize == FREE {
        return None;
    }
    // Acquire: pairs with the Release in `take`, after which the place is initialised.
    from(position(thread)).find(|place| place.thread.load(Ordering::Acquire) == thread as usize)
}

/// The place of a thread, a new one if it has none. Takes a lock where it has none. Errors: FULL;
/// ESRCH: 0, which a program has that has not yet created the thread.
pub fn find_or_take(thread: libc::pthread_t) -> Result<&'static Place, c_int> {
    match find(thread) {
        Some(place) => Ok(place),
        None if thread as usize == FREE => Err(libc::ESRCH),
        None => take(thread).ok_or(FULL),
    }
}

#[cold]
fn take(thread: libc::pthread_t) -> Option<&'static Place> {
    let _held = hold();
    // Somebody may have taken it for the same thread meanwhile.
    if let Some(place) = find(thread) {
        return Some(place);
    }
    // Acquire: pairs with the Release in `give_back`; the last owner has done with it.
    let place =
        from(position(thread)).find(|place| place.thread.load(Ordering::Acquire) == FREE)?;
    // SAFETY: the place is free, and the lock is held: no other thread touches the semaphore.
    unsafe { libc::sem_init(place.kick.get(), 0, 0) };
    place.token.store(false, Ordering::Relaxed);
    place.stopped.store(0, Ordering::Relaxed);
    place.overruns.store(0, Ordering::Relaxed);
    place.pending.store(0, Ordering::Relaxed);
    place.blocked.store(0, Ordering::Relaxed);
    let taken = place.request.number();
    // SAFETY: as above: it is free.
    *unsafe { place.own() } = Own { plan: Plan::Never, taken };
    // Release: pairs with the Acquire in `find`.
    place.thread.store(thread as usize, Ordering::Release);
    Some(place)
}

/// Makes a thread and frees a place that an ended thread of the same number left. A call that names
/// a thread between its end and its join takes such a place. The thread waits for that in
/// [`begin`].
/// Errors: those of `make`.
pub fn make(make: impl FnOnce() -> Result<libc::pthread_t, c_int>) -> Result<(), c_int> {
    let _held = hold();
    if let Some(left) = find(make()?) {
        // Release: pairs with the Acquire in `take`.
        left.thread.store(FREE, Ordering::Release);
    }
    Ok(())
}

/// Takes a place for a thread that was made by [`make`], which cannot be stopped before
/// [`may_be_stopped`].
pub fn begin() {
    drop(hold());
    // A full table shows at the first wait.
    let _ = own();
}

/// Ends what the caller has inherited from [`make`].
pub fn may_be_stopped() {
    mask_stop(libc::SIG_UNBLOCK);
}

/// The caller's own place, given back when it ends. `None`: the table is full.
pub fn own() -> Option<&'static Place> {
    // SAFETY: takes nothing and cannot fail.
    let own = unsafe { libc::pthread_self() };
    let place = find_or_take(own).ok()?;
    let key = *key()?;
    // SAFETY: the key is valid for ever.
    if unsafe { libc::pthread_getspecific(key) }.is_null() {
        // SAFETY: as above; glibc keeps the value of the first 32 keys in the thread itself.
        unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(place).cast()) };
    }
    Some(place)
}

/// The thread-specific value whose destructor gives the place back. `None`: the process has used up
/// all keys.
fn key() -> Option<&'static libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key is written to a local; the destructor lives as long as this library.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(give_back)) };
        (made == 0).then_some(key)
    })
    .as_ref()
}

unsafe extern "C" fn give_back(place: *mut c_void) {
    // SAFETY: the value is a place of PLACES, set by `own`.
    let place = unsafe { &*place.cast::<Place>() };
    // Release: pairs with the Acquire in `take`.
    place.thread.store(FREE, Ordering::Release);
}

/// Returns the number of releases that the thread missed since it first had a period; 0 without
/// one. Bounded, no system call.
#[unsafe(no_mangle)]
pub extern "C" fn rtl_overruns_np(thread: libc::pthread_t) -> std::ffi::c_ulonglong {
    find(thread).map_or(0, |place| place.overruns.load(Ordering::Relaxed))
}

/// What a full table answers.
pub(crate) const FULL: c_int = libc::EAGAIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_without_period_is_due_once() {
        let mut plan = Plan::new(100, 0).unwrap();
        assert_eq!((plan.next_ns(), plan.release(99)), (Some(100), None));
        assert_eq!((plan.release(100), plan.next_ns(), plan.release(200)), (Some(0), None, None));
    }

    #[test]
    fn what_passed_before_a_plan_was_made_is_no_overrun_and_what_passes_later_is() {
        let mut plan = Plan::new(0, 10).unwrap();
        assert_eq!(plan.release(1_000_005), Some(0));
        assert_eq!((plan.release(1_000_005), plan.next_ns()), (None, Some(1_000_010)));
        assert_eq!(plan.release(1_000_035), Some(2));
        assert_eq!(Plan::new(-5, 10).unwrap().next_ns(), Some(0));
        assert_eq!(Plan::new(0, -1), None);
    }

    #[test]
    fn a_thread_has_one_place_as_long_as_it_lives_and_the_next_thread_may_have_it() {
        for _ in 0..3 * CAPACITY {
            let ended = std::thread::spawn(|| {
                // SAFETY: takes nothing and cannot fail.
                let own_id = unsafe { libc::pthread_self() };
                assert!(find(own_id).is_none(), "the last owner of this address has given back");
                let place = own().unwrap();
                assert!(std::ptr::eq(place, find(own_id).unwrap()));
                assert!(std::ptr::eq(place, own().unwrap()));
            });
            ended.join().unwrap();
        }
    }

    #[test]
    fn a_thread_that_holds_the_lock_cannot_be_stopped() {
        let is_masked = || {
            let now = mask_stop(libc::SIG_BLOCK);
            // SAFETY: ours, and the signal exists.
            let masked = unsafe { libc::sigismember(&raw const now, stop_signal()) } == 1;
            if !masked {
                mask_stop(libc::SIG_UNBLOCK);
            }
            masked
        };
        assert!(!is_masked());
        let held = hold();
        assert!(is_masked());
        drop(held);
        assert!(!is_masked());
    }

    #[test]
    fn the_last_request_is_the_plan() {
        let place = Place::free();
        // SAFETY: no other thread has this place.
        unsafe { libc::sem_init(place.kick.get(), 0, 0) };
        place.ask(100, 10);
        // SAFETY: this thread alone uses the place.
        assert_eq!(unsafe { place.plan() }, Plan::new(100, 10).unwrap());
        place.ask(7, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { place.plan() }, Plan::new(7, 0).unwrap());
    }
}
