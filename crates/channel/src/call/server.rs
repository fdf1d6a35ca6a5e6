// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the server.

use super::rendezvous::{ASLEEP, Message, Outcome, ServerEnd, Want, announce_sleep, notify_client};
use super::{CallError, MAX_CLIENTS, PENDING, SetupError, Shape, Table, WaitLimit, pi};
use crate::cancel::Canceller;
use crate::descriptor::{Descriptor, Event};
use crate::futex;
use crate::shm::{Role, SharedMemory};
use crate::sync::{Ordering::*, fence};
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A request: a copy, which other processes cannot change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The slot of its client, for [`Server::set_ceiling`] and [`Server::notify`].
    pub client: u32,
    /// The priority that the client states, at most its ceiling. 0 with `Scheduling::Direct`.
    pub priority: u32,
    /// `Call`: the client waits for a reply. `Send`: it does not.
    pub want: Want,
    /// The message of the client.
    pub message: Message,
}

/// The result of a receive: notification bits, a request, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Notification bits set since the last receive.
    pub bits: u64,
    /// The request. `None`: only notification bits came.
    pub request: Option<Request>,
}

/// The server of a call channel. It stays on the thread that opened it, because that thread borrows
/// the clients' priority. Dropping it releases the role.
#[derive(Debug)]
pub struct Server {
    /// Dropped before the memory: its thread uses that, too.
    descriptor: Option<Descriptor>,
    canceller: Canceller,
    pub(super) table: Table,
    end: ServerEnd,
    epoch: u32,
    thread: u32,
    spins: u32,
    stays: PhantomData<*const ()>,
}

impl Server {
    /// Creates the channel, or takes it over from a server that has ended. Clients that still wait
    /// for the earlier server get `PeerDied`. Allocates and blocks: for set-up only. Errors:
    /// `BadShape`, `ShapeMismatch`, `Shm` (`RoleTaken`: there is a server).
    pub fn open(dir: &Path, name: &str, shape: Shape) -> Result<Self, SetupError> {
        let table = Table::open(dir, name, shape)?;
        table.shared.acquire(Role::Server)?;
        // An epoch has 31 bits and is never 0.
        let epoch = (((table.epoch().load(Relaxed) >> 1) + 1) & (u32::MAX >> 1)).max(1);
        let thread = pi::thread_id();
        table.server_thread().store(thread, Relaxed);
        // Release pairs with Acquire in `Client::epoch`: the client sees our thread, too.
        table.epoch().store(epoch << 1 | 1, Release);
        let end = ServerEnd::new(epoch, shape.scheduling, shape.clients as usize);
        let canceller = Canceller::new(&table.shared, vec![PENDING], !ASLEEP);
        let (descriptor, stays) = (None, PhantomData);
        let server = Self { descriptor, canceller, table, end, epoch, thread, spins: 0, stays };
        server.wake_all();
        Ok(server)
    }

    /// The memory of the channel, for an [`Offer`](crate::Offer).
    pub fn shared(&self) -> &SharedMemory {
        &self.table.shared
    }

    /// Sets the highest priority that requests of this client may have. No limit at first.
    pub fn set_ceiling(&mut self, client: u32, priority: u32) {
        if let Some(ceiling) = self.end.ceilings.get_mut(client as usize) {
            *ceiling = priority;
        }
    }

    /// Sets how often to poll before sleeping: useful for clients on other CPUs. 0 at first.
    pub fn set_spins(&mut self, spins: u32) {
        self.spins = spins;
    }

    /// Waits for a request or notification bits. A client that still waits for an answer gets
    /// `Unanswered`. Blocks. At most two system calls to wake clients, and one more to sleep.
    /// Errors: `TimedOut`, `Cancelled`.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Received, CallError> {
        self.finish(Outcome::Unanswered);
        self.wait(timeout)
    }

    /// Answers the last call. Bounded; at most one system call (two with `inherit`), to wake the
    /// client. It succeeds also when the client has ended. Errors: `NoCaller`.
    #[inline]
    pub fn reply(&mut self, message: &Message) -> Result<(), CallError> {
        match self.finish(Outcome::Answered(*message)) {
            true => Ok(()),
            false => Err(CallError::NoCaller),
        }
    }

    /// [`Server::reply`] and [`Server::receive`] in one step. Blocks. Errors: `NoCaller` (it did
    /// not wait), `TimedOut`, `Cancelled`.
    #[inline]
    pub fn reply_wait(
        &mut self,
        message: &Message,
        timeout: Option<Duration>,
    ) -> Result<Received, CallError> {
        self.reply(message)?;
        self.wait(timeout)
    }

    /// Sets notification bits for a client. Bounded; at most one system call. Does nothing for a
    /// slot that does not exist.
    pub fn notify(&self, client: u32, bits: u64) {
        if client < self.table.shape.clients
            && notify_client(&self.table.slot(client as usize), bits)
        {
            futex::wake(self.table.slot(client as usize).answer, 1);
        }
    }

    /// Whether this slot has a living client. One system call.
    pub fn has_client(&self, client: u32) -> bool {
        client < self.table.shape.clients && self.table.shared.is_held(Role::Client(client as u8))
    }

    /// Ends waits of this server from another thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// A descriptor for poll(2), epoll(7) and event loops: readable while there is a request or
    /// notification bits, or waits are cancelled. A receive that finds nothing makes it unreadable.
    /// Poll it for POLLIN, do not read it.
    ///
    /// The first call makes a thread of the ordinary policy, on the CPUs of the caller. It sleeps
    /// as [`Server::receive`] does. Clients do not lend it their priority. Errors: no descriptor,
    /// no thread.
    pub fn descriptor(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(made) = &self.descriptor {
            return Ok(made.fd());
        }
        let (table, canceller) = (self.table.again(), self.canceller.clone());
        let (epoch, thread) = (self.epoch, self.thread);
        let look = move |event: &Event| {
            repair(&table, epoch, thread);
            let pending = table.rendezvous().pending;
            let Some(expected) = announce_sleep(&table.rendezvous()) else { return true };
            // SeqCst pairs with the fence in `cancel::take_back`.
            fence(SeqCst);
            if canceller.is_cancelled() || event.ends() {
                return true;
            }
            futex::wait_among(pending, expected, None);
            false
        };
        let made = Descriptor::start(self.table.shared.name(), &self.canceller, look)?;
        let fd = made.fd();
        if self.end.has_more() {
            made.raise();
        }
        self.descriptor = Some(made);
        Ok(fd)
    }

    #[inline]
    fn finish(&mut self, outcome: Outcome) -> bool {
        let finished = self.end.finish(|client| self.table.slot(client), outcome);
        if let Some((client, wake)) = finished {
            self.ring(client, wake);
        }
        finished.is_some()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Received, CallError> {
        let mut limit = WaitLimit::new(timeout, None);
        loop {
            if self.canceller.is_cancelled() {
                return Err(CallError::Cancelled { taken: false });
            }
            for spin in 0..=self.spins {
                if let Some(received) = self.look() {
                    // The thread sees what is pending; what was collected only we do.
                    if let Some(descriptor) = &self.descriptor
                        && self.end.has_more()
                    {
                        descriptor.raise();
                    }
                    return Ok(received);
                }
                if spin < self.spins {
                    std::hint::spin_loop();
                }
            }
            if let Some(descriptor) = &self.descriptor {
                descriptor.lower();
            }
            repair(&self.table, self.epoch, self.thread);
            let sleep_for = limit.next_sleep().map_err(|_| CallError::TimedOut)?;
            let pending = self.table.rendezvous().pending;
            if let Some(expected) = self.end.announce_sleep(&self.table.rendezvous()) {
                // SeqCst pairs with the fence in `cancel::take_back`.
                fence(SeqCst);
                match self.canceller.is_cancelled() {
                    true => continue,
                    false if self.descriptor.is_some() => {
                        futex::wait_among(pending, expected, sleep_for)
                    }
                    false => futex::wait(pending, expected, sleep_for),
                };
            }
        }
    }

    #[inline]
    fn look(&mut self) -> Option<Received> {
        let table = &self.table;
        let (thread, inherit) = (self.thread, table.shape.inherit);
        let slot = |client| table.slot(client);
        let again = |client| ring(table, client, true, inherit.then_some(thread));
        let bits = self.end.collect(&table.rendezvous(), slot, again);
        let taken = self.end.take(slot);
        if let Some((taken, wake)) = taken
            && taken.want == Want::Send
        {
            ring(table, taken.client, wake, inherit.then_some(thread));
        }
        let request = taken.map(|(taken, _)| Request {
            client: taken.client as u32,
            priority: taken.priority,
            want: taken.want,
            message: taken.message,
        });
        (bits != 0 || request.is_some()).then_some(Received { bits, request })
    }

    #[inline]
    fn ring(&self, client: usize, wake: bool) {
        ring(&self.table, client, wake, self.table.shape.inherit.then_some(self.thread));
    }

    fn wake_all(&self) {
        for client in 0..self.table.shape.clients as usize {
            // AcqRel: a client that sets ASLEEP after this sees the new epoch.
            let asleep = self.table.slot(client).answer.fetch_and(!ASLEEP, AcqRel) & ASLEEP != 0;
            self.ring(client, asleep);
        }
    }
}

/// Restores words that only the server may write, if they were overwritten.
fn repair(table: &Table, epoch: u32, thread: u32) {
    for (word, value) in [(table.epoch(), epoch << 1 | 1), (table.server_thread(), thread)] {
        if word.load(Relaxed) != value {
            word.store(value, Release);
        }
    }
}

/// Wakes a client that has its answer. `inherit`: our thread, for which the client may wait at its
/// PI lock.
#[inline]
fn ring(table: &Table, client: usize, wake: bool, inherit: Option<u32>) {
    if wake {
        futex::wake(table.slot(client).answer, 1);
    }
    if let Some(thread) = inherit {
        pi::release(table.pi_lock(client), thread);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its thread would write the epoch of a living server again.
        drop(self.descriptor.take());
        self.finish(Outcome::Unanswered);
        // Release pairs with Acquire in `Client::epoch`.
        self.table.epoch().store(self.epoch << 1, Release);
        self.wake_all();
    }
}

const _: () = assert!(16 + MAX_CLIENTS <= 64, "a slot's role has a bit in `SharedMemory`");
