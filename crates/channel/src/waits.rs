// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an end of a FIFO keeps for its waits, in its own memory.

use crate::descriptor::{Descriptor, Event};
use crate::fifo::Fifo;
use crate::shm::Role;
use crate::sync::{AtomicU32, Ordering::*};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a waiter checks that its peer lives.
pub(crate) const PEER_CHECK: Duration = Duration::from_millis(100);

/// What one end knows of the other: whether it has been there, so that it can be gone.
#[derive(Debug)]
pub struct OtherEnd {
    pub(crate) role: Role,
    /// A reader's position when it began: a writer was there if it is somewhere else.
    began: Option<u64>,
    met: AtomicU32,
}

impl OtherEnd {
    fn new(role: Role, fifo: &Fifo) -> Self {
        let began = (role == Role::Writer).then(|| fifo.position(Role::Reader));
        Self { role, began, met: AtomicU32::new(0) }
    }

    /// Whether the other end was there and is there no more. One system call.
    pub fn has_ended(&self, fifo: &Fifo) -> bool {
        if fifo.shared().is_held(self.role) {
            self.met.store(1, Relaxed);
            return false;
        }
        let moved = self.began.is_some_and(|began| fifo.position(self.role) != began);
        moved || self.met.load(Relaxed) != 0
    }
}

/// What an end keeps for its waits.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Dropped before the memory: its thread uses that, too.
    pub descriptor: Option<Descriptor>,
    pub peer: Arc<OtherEnd>,
    /// When to check next that the peer lives. Kept from one wait to the next, so that a program
    /// that only waits for short times finds out, too.
    pub next_check: Option<Instant>,
}

impl Waits {
    pub fn new(peer: Role, fifo: &Fifo) -> Self {
        Self { descriptor: None, peer: Arc::new(OtherEnd::new(peer, fifo)), next_check: None }
    }

    /// The descriptor, made with its thread if it is not there yet. `ready` is asked by the thread,
    /// after it has announced itself.
    pub fn descriptor(
        &mut self,
        fifo: &Fifo,
        ready: impl Fn(&Fifo) -> bool + Send + 'static,
    ) -> io::Result<Arc<OwnedFd>> {
        if let Some(made) = &self.descriptor {
            return Ok(made.fd());
        }
        // Notes whether it is there now: it may have ended before the thread looks first.
        self.peer.has_ended(fifo);
        let (seen, peer) = (fifo.again(), Arc::clone(&self.peer));
        let mut next_check = Instant::now();
        let look = move |event: &Event| {
            let now = Instant::now();
            if now >= next_check {
                next_check = now + PEER_CHECK;
                if peer.has_ended(&seen) {
                    return true;
                }
            }
            seen.watch(peer.role, PEER_CHECK, || event.ends() || ready(&seen))
        };
        let made = Descriptor::start(fifo.shared().name(), &fifo.canceller(), look)?;
        let fd = made.fd();
        self.descriptor = Some(made);
        Ok(fd)
    }

    /// The end has found nothing.
    #[inline]
    pub fn found_nothing(&self) {
        if let Some(descriptor) = &self.descriptor {
            descriptor.lower();
        }
    }
}

#[cfg(all(test, not(miri)))]
#[path = "waits_tests.rs"]
pub(crate) mod tests;
