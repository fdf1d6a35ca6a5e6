// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions to a ring from a thread that is not one of its ends, such as that of a descriptor. It
//! reads the shared words only. It may answer yes where an end then finds nothing, but never no
//! where an end would find something.

use super::Ring;
use crate::sync::Ordering::*;

impl Ring<'_> {
    /// Whether a get may have something to return, damage included. Bounded, no system call.
    pub fn holds_frame(&self) -> bool {
        // Acquire pairs with Release of tail, and below with that of head: what a put whose
        // doorbell was not rung for us has stored is seen.
        let tail = self.tail.load(Acquire);
        if self.words.at(tail).load(Relaxed) != 0 {
            return true;
        }
        // A head after the tail: the reader moves now, or there is damage. Only then it is larger.
        tail.wrapping_sub(self.head.load(Acquire)) > self.capacity()
    }

    /// Whether a put of so many bytes may find room. As [`Ring::holds_frame`].
    pub fn has_room(&self, bytes: u64) -> bool {
        // Acquire as above. The tail first: it is never ahead of a head that is read later.
        let tail = self.tail.load(Acquire);
        let held = self.head.load(Acquire).wrapping_sub(tail);
        match self.capacity().checked_sub(held) {
            Some(room) => self.frame_words(bytes).is_some_and(|need| need <= room),
            // Damage: the writer's next put repairs it.
            None => true,
        }
    }
}
