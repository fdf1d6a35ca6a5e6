// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ending the waits of one end from another thread.
//!
//! A waiter announces itself in the word of shared memory at which it will sleep, then looks for a
//! cancel, then sleeps unless the word has changed. A cancel is noted first; then the announcement
//! is taken back and every sleeper woken. So the waiter sees the note, or its word has changed, or
//! it is woken. `models/cancel.rs` explores that.

use crate::futex;
use crate::shm::SharedMemory;
use crate::sync::{AtomicU32, Ordering::*, fence};
use std::sync::{Arc, Weak};

/// Ends the waits of one end, from any thread. Clones end the same waits. It keeps no channel open,
/// and does nothing once the end was dropped.
#[derive(Debug, Clone)]
pub struct Canceller(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    noted: AtomicU32,
    shared: Weak<SharedMemory>,
    /// Where the end may sleep: offsets in the body, and the bits there that are no announcement.
    places: Vec<usize>,
    keep: u32,
}

impl Canceller {
    pub(crate) fn new(shared: &Arc<SharedMemory>, places: Vec<usize>, keep: u32) -> Self {
        let (noted, shared) = (AtomicU32::new(0), Arc::downgrade(shared));
        Self(Arc::new(Inner { noted, shared, places, keep }))
    }

    /// Ends the wait in progress at once, and every later wait before it sleeps, until
    /// [`Canceller::resume`]. They return `Cancelled`, even if they had something to return but an
    /// answer to a call. Bounded; at most two system calls.
    pub fn cancel(&self) {
        self.0.noted.store(1, Relaxed);
        self.wake();
    }

    /// Lets the end wait again.
    pub fn resume(&self) {
        self.0.noted.store(0, Relaxed);
    }

    /// Whether waits are ended now.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.noted.load(Relaxed) != 0
    }

    /// Wakes every sleeper of this end, which then checks again.
    pub(crate) fn wake(&self) {
        let Some(shared) = self.0.shared.upgrade() else { return };
        for place in &self.0.places {
            let word = shared.futex_word(*place);
            take_back(word, self.0.keep);
            futex::wake(word, futex::ALL);
        }
    }
}

/// Takes back the announcement of sleepers.
pub(crate) fn take_back(word: &AtomicU32, keep: u32) {
    // SeqCst pairs with the fence between a waiter's announcement and its look: either it sees what
    // we noted before, or this changes its word after it.
    fence(SeqCst);
    word.fetch_and(keep, Relaxed);
}
