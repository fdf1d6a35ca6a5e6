// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a client.

use super::pi::{self, PiWait};
use super::rendezvous::{
    ASLEEP, ClientEnd, Message, Outcome, Want, announce_sleep_for_bits, notify_server,
};
use super::{ANSWER, CallError, SLICE, SLOT_BYTES, SLOTS, SetupError, Table, WaitLimit};
use crate::cancel::Canceller;
use crate::descriptor::{Descriptor, Event};
use crate::futex::{self, Woken};
use crate::shm::{Role, SharedMemory, ShmError};
use crate::sync::{AtomicU32, Ordering::*, fence};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client of a call channel, in a slot of its own. Dropping it frees the slot.
#[derive(Debug)]
pub struct Client {
    /// Dropped before the memory: its thread uses that, too.
    descriptor: Option<Descriptor>,
    canceller: Canceller,
    table: Table,
    end: ClientEnd,
    index: usize,
    priority: u32,
    spins: u32,
    /// When waits with no time look next whether the server lives.
    next_check: Option<Instant>,
}

/// Whether the server is gone. Looks each [`SLICE`], or `at_once`: one system call.
fn has_no_server(shared: &SharedMemory, next_check: &mut Option<Instant>, at_once: bool) -> bool {
    let now = Instant::now();
    let next = *next_check.get_or_insert(now + SLICE);
    if now < next && !at_once {
        return false;
    }
    let gone = !shared.is_held(Role::Server);
    if !gone {
        *next_check = Some(now + SLICE);
    }
    gone
}

impl Client {
    /// Takes a slot: the one given, or the first free one. Allocates and blocks: for set-up only.
    /// Errors: `SlotsTaken`, `NoSuchSlot`, `Shm` (`NotFound`: no server has created the channel;
    /// `RoleTaken`: the slot has a client).
    pub fn attach(dir: &Path, name: &str, slot: Option<u32>) -> Result<Self, SetupError> {
        Self::of(Table::attach(dir, name)?, slot)
    }

    /// As [`Client::attach`], in memory that was [received](crate::receive).
    pub fn from_shared(shared: SharedMemory, slot: Option<u32>) -> Result<Self, SetupError> {
        Self::of(Table::of(shared)?, slot)
    }

    fn of(table: Table, slot: Option<u32>) -> Result<Self, SetupError> {
        let clients = table.shape.clients;
        let name = || table.shared.name().to_owned();
        let index = match slot {
            Some(slot) if slot >= clients => {
                return Err(SetupError::NoSuchSlot { name: name(), clients, slot });
            }
            Some(slot) => {
                table.shared.acquire(Role::Client(slot as u8))?;
                slot
            }
            None => 'free: {
                for slot in 0..clients {
                    match table.shared.acquire(Role::Client(slot as u8)) {
                        Ok(()) => break 'free slot,
                        Err(ShmError::RoleTaken { .. }) => (),
                        Err(error) => return Err(error.into()),
                    }
                }
                return Err(SetupError::SlotsTaken { name: name(), clients });
            }
        } as usize;
        let end = ClientEnd::attach(index, &table.slot(index));
        let answer = SLOTS + index * SLOT_BYTES + ANSWER;
        let canceller = Canceller::new(&table.shared, vec![answer], !ASLEEP);
        let (priority, spins, next_check) = (0, 0, None);
        Ok(Self { descriptor: None, canceller, table, end, index, priority, spins, next_check })
    }

    /// The number of our slot, which identifies this client to the server.
    pub fn slot(&self) -> u32 {
        self.index as u32
    }

    /// Sets the priority of later requests: larger is more urgent, 0 at first. It orders the
    /// server's queue. With `inherit` the server borrows the scheduling priority of the calling
    /// thread instead.
    pub fn set_priority(&mut self, priority: u32) {
        self.priority = priority;
    }

    /// Sets how often to poll before sleeping: useful for a server on another CPU. 0 at first.
    pub fn set_spins(&mut self, spins: u32) {
        self.spins = spins;
    }

    /// Sends a message and waits for the answer. Blocks. The timeout works even if other processes
    /// overwrite the shared memory. Checks every [`super::SLICE`] that the server is alive, also in
    /// many calls with no time. Errors: `NoServer`, `NoAnswer`, `PeerDied`, `Unanswered`,
    /// `Cancelled`.
    #[inline]
    pub fn call(
        &mut self,
        message: &Message,
        timeout: Option<Duration>,
    ) -> Result<Message, CallError> {
        match self.request(Want::Call, message, timeout)? {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Unanswered => Err(CallError::Unanswered),
        }
    }

    /// Sends a message and waits until the server has taken it. Blocks. Errors: `NoServer`,
    /// `NoAnswer`, `PeerDied`, `Cancelled`.
    pub fn send(&mut self, message: &Message, timeout: Option<Duration>) -> Result<(), CallError> {
        self.request(Want::Send, message, timeout).map(drop)
    }

    /// Sets notification bits for the server, without waiting. Bounded; at most one system call. A
    /// server that opens later receives them, too.
    pub fn notify(&self, bits: u64) {
        if notify_server(&self.table.rendezvous(), bits) {
            futex::wake(self.table.rendezvous().pending, 1);
        }
    }

    /// Takes the notification bits that the server has set. Bounded, no system call (one if there
    /// are none and a descriptor says so).
    pub fn take_bits(&self) -> u64 {
        let bits = self.end.notifications(&self.table.slot(self.index));
        if bits == 0 {
            self.found_nothing();
        }
        bits
    }

    fn found_nothing(&self) {
        if let Some(descriptor) = &self.descriptor {
            descriptor.lower();
        }
    }

    /// Ends waits of this client from another thread: at once, or within a [`super::SLICE`] where
    /// the call lends its priority.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// A descriptor for poll(2), epoll(7) and event loops: readable while there are notification
    /// bits, the channel has no server, or waits are cancelled. A look for bits that finds none
    /// makes it unreadable. Poll it for POLLIN, do not read it. Answers do not show there: a call
    /// waits for its own.
    ///
    /// The first call makes a thread of the ordinary policy, on the CPUs of the caller. It sleeps
    /// as [`Client::wait_bits`] does. Errors: no descriptor, no thread.
    pub fn descriptor(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(made) = &self.descriptor {
            return Ok(made.fd());
        }
        let (table, index, canceller) = (self.table.again(), self.index, self.canceller.clone());
        let mut next_check = Instant::now();
        let look = move |event: &Event| {
            let slot = table.slot(index);
            let now = Instant::now();
            if now >= next_check {
                next_check = now + SLICE;
                if !table.shared.is_held(Role::Server) {
                    return true;
                }
            }
            if slot.notifications.load(Relaxed) != 0 {
                return true;
            }
            let Some(expected) = announce_sleep_for_bits(&slot) else { return false };
            // SeqCst pairs with the fence in `cancel::take_back`.
            fence(SeqCst);
            let left = table.epoch().load(Acquire) & 1 == 0;
            if left || canceller.is_cancelled() || event.ends() {
                return true;
            }
            futex::wait_among(slot.answer, expected, Some(SLICE));
            false
        };
        let made = Descriptor::start(self.table.shared.name(), &self.canceller, look)?;
        let fd = made.fd();
        self.descriptor = Some(made);
        Ok(fd)
    }

    /// Sleeps at the answer.
    fn sleep_at(&self, word: &AtomicU32, expected: u32, sleep_for: Option<Duration>) -> Woken {
        // SeqCst pairs with the fence in `cancel::take_back`.
        fence(SeqCst);
        match self.canceller.is_cancelled() {
            true => Woken::Recheck,
            false if self.descriptor.is_some() => futex::wait_among(word, expected, sleep_for),
            false => futex::wait(word, expected, sleep_for),
        }
    }

    /// Waits for notification bits, and takes them. Blocks. With no time it makes one system call
    /// each [`super::SLICE`], and with a descriptor one each time that there are none. Errors:
    /// `NoServer`, `TimedOut`, `PeerDied` (found within [`super::SLICE`], also by many waits with
    /// no time), `Cancelled`.
    pub fn wait_bits(&mut self, timeout: Option<Duration>) -> Result<u64, CallError> {
        let mut limit = WaitLimit::new(timeout, Some(SLICE));
        let slot = self.table.slot(self.index);
        loop {
            if self.canceller.is_cancelled() {
                return Err(CallError::Cancelled { taken: false });
            }
            let bits = self.end.notifications(&slot);
            if bits != 0 {
                return Ok(bits);
            }
            self.found_nothing();
            let epoch = self.epoch()?;
            let Ok(sleep_for) = limit.next_sleep() else {
                // Who polls a descriptor asks with no time why it was readable.
                let asks_why = self.descriptor.is_some() && timeout == Some(Duration::ZERO);
                if !has_no_server(&self.table.shared, &mut self.next_check, asks_why) {
                    return Err(CallError::TimedOut);
                }
                return match self.end.notifications(&slot) {
                    0 => Err(CallError::PeerDied),
                    bits => Ok(bits),
                };
            };
            let Some(expected) = self.end.announce_sleep_for_bits(&slot) else { continue };
            // Pairs with Release in `notify_client`, by way of the exchange of the thread of a
            // descriptor: the bits are seen below.
            fence(Acquire);
            let woken = match self.epoch() == Ok(epoch) {
                // The thread of a descriptor may have taken note of bits that came meanwhile.
                true if self.descriptor.is_some() && slot.notifications.load(Acquire) != 0 => {
                    Woken::Recheck
                }
                true => self.sleep_at(slot.answer, expected, sleep_for),
                false => Woken::Recheck,
            };
            let over = woken == Woken::TimedOut && !self.table.shared.is_held(Role::Server);
            if over || self.epoch() != Ok(epoch) {
                return match self.end.notifications(&slot) {
                    0 => Err(CallError::PeerDied),
                    bits => Ok(bits),
                };
            }
        }
    }

    /// The epoch of the current server. Errors: `NoServer`.
    #[inline]
    fn epoch(&self) -> Result<u32, CallError> {
        // Acquire pairs with Release in `Server::open` and in its `drop`.
        match self.table.epoch().load(Acquire) {
            word if word & 1 == 1 => Ok(word >> 1),
            _ => self.no_epoch(),
        }
    }

    #[cold]
    fn no_epoch(&self) -> Result<u32, CallError> {
        if self.table.shared.is_held(Role::Server) {
            // The epoch is damaged, or the server is about to open: once awake, it repairs the
            // word.
            futex::wake(self.table.rendezvous().pending, 1);
        }
        Err(CallError::NoServer)
    }

    #[inline]
    fn request(
        &mut self,
        want: Want,
        message: &Message,
        timeout: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        if self.canceller.is_cancelled() {
            return Err(CallError::Cancelled { taken: false });
        }
        let epoch = self.epoch()?;
        let (rendezvous, slot) = (self.table.rendezvous(), self.table.slot(self.index));
        let scheduling = self.table.shape.scheduling;
        if self.end.post(&rendezvous, &slot, (epoch, scheduling), want, self.priority, message) {
            futex::wake(rendezvous.pending, 1);
        }
        let mut limit = WaitLimit::new(timeout, Some(SLICE));
        loop {
            for spin in 0..=self.spins {
                if let Some(outcome) = self.end.outcome(&slot) {
                    return Ok(outcome);
                }
                if spin < self.spins {
                    std::hint::spin_loop();
                }
            }
            if self.canceller.is_cancelled() {
                let taken = !self.end.withdraw(&slot);
                return self.end.outcome(&slot).ok_or(CallError::Cancelled { taken });
            }
            let Ok(sleep_for) = limit.next_sleep() else {
                let taken = !self.end.withdraw(&slot);
                let gone = has_no_server(&self.table.shared, &mut self.next_check, false);
                let error = if gone { CallError::PeerDied } else { CallError::NoAnswer { taken } };
                return self.end.outcome(&slot).ok_or(error);
            };
            match self.sleep(epoch, sleep_for) {
                PiWait::TimedOut if self.table.shared.is_held(Role::Server) => {
                    // The server sleeps without a timer, and damage may have erased our bit: wake
                    // it in any case.
                    self.end.repost(&rendezvous);
                    futex::wake(rendezvous.pending, 1);
                }
                PiWait::TimedOut | PiWait::OwnerDied => {
                    self.end.withdraw(&slot);
                    return self.end.outcome(&slot).ok_or(CallError::PeerDied);
                }
                PiWait::Recheck | PiWait::Unsupported => (),
            }
        }
    }

    /// Sleeps until there may be an answer. `OwnerDied` also if the server has left, or a new one
    /// has opened.
    fn sleep(&self, epoch: u32, sleep_for: Option<Duration>) -> PiWait {
        let slot = self.table.slot(self.index);
        if self.table.shape.inherit {
            let pi_lock = self.table.pi_lock(self.index);
            pi::prepare(pi_lock, self.table.server_thread().load(Relaxed));
            if self.epoch() != Ok(epoch) {
                return PiWait::OwnerDied;
            }
            if self.end.outcome(&slot).is_some() {
                return PiWait::Recheck;
            }
            match pi::wait(pi_lock, sleep_for) {
                PiWait::Unsupported => (),
                seated => return seated,
            }
        }
        let Some(expected) = self.end.announce_sleep(&slot) else { return PiWait::Recheck };
        // After ASLEEP: a server that opens or leaves after this check wakes us.
        if self.epoch() != Ok(epoch) {
            return PiWait::OwnerDied;
        }
        match self.sleep_at(slot.answer, expected, sleep_for) {
            Woken::Recheck => PiWait::Recheck,
            Woken::TimedOut => PiWait::TimedOut,
        }
    }
}
