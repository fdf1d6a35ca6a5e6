// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hand-off of a call: the words that a server and up to [`MAX_CLIENTS`] clients share, and the
//! steps of each end. Each client has a slot of its own.
//!
//! Every step is wait-free: no lock, no allocation, no system call. A step returns whether the
//! caller must wake the other end.
//!
//! A request's state is one word of its slot. The client *posts* it (idle -> posted). Then the
//! server *takes* it (-> taken), or the client *withdraws* it (-> idle). Both leave *posted* by
//! compare-and-exchange, so exactly one succeeds, and a timeout can report which. The answer
//! carries the request's number: a late answer to a withdrawn request matches none.
//!
//! `pending` has a bit for each client and a bit that says that the server sleeps. A client that
//! sets its bit sees with the same instruction whether it must wake the server. The answer word has
//! such a bit for the client. Other processes may erase a bit: the client posts it again after a
//! slice of waiting. The server remembers its last answer to each client, and publishes that again
//! instead of serving the request twice.
//!
//! Neither end trusts the other's words. The server keeps its queue, ceilings and answers outside
//! the shared memory, copies a message once before anything reads it, and numbers the slots itself.

use crate::sync::{AtomicU32, AtomicU64, Ordering::*};

/// The largest number of clients: each has a bit of a word, and two bits have other uses.
pub const MAX_CLIENTS: usize = 30;
/// In `pending` and in the answer word: there are new notification bits.
const NOTIFIED: u32 = 1 << 30;
/// In `pending` and in the answer word: the end that reads it sleeps, or is about to.
pub(super) const ASLEEP: u32 = 1 << 31;
/// Request numbers count modulo 2^28.
const NUMBERS: u32 = (1 << 28) - 1;

/// Words of a message: one cache line.
pub const WORDS: usize = 8;
/// A message or an answer.
pub type Message = [u64; WORDS];

/// Which of the waiting clients is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// The one with the highest priority; among equals, the one that arrived first.
    #[default]
    Full,
    /// Slot after slot, in turn. Priorities and the order of arrival do not matter.
    Direct,
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// An answer.
    Call,
    /// Until the server has taken the message.
    Send,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Answered(Message),
    /// The server took it and continued without an answer.
    Unanswered,
}

/// The words that all ends share.
#[derive(Clone, Copy)]
pub struct Rendezvous<'a> {
    pub pending: &'a AtomicU32,
    /// The next ticket: tickets order requests of equal priority.
    pub tickets: &'a AtomicU32,
    /// Notification bits for the server.
    pub notifications: &'a AtomicU64,
}

/// The words of one client's slot.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    pub request: &'a AtomicU64,
    /// Ticket << 32 | priority.
    pub order: &'a AtomicU64,
    pub sent: &'a [AtomicU64],
    pub answer: &'a AtomicU32,
    /// Notification bits for the client.
    pub notifications: &'a AtomicU64,
    pub reply: &'a [AtomicU64],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle = 0,
    Call = 1,
    Send = 2,
    Taken = 3,
}

/// epoch << 32 | number << 2 | stage.
fn request(epoch: u32, number: u32, stage: Stage) -> u64 {
    u64::from(epoch) << 32 | u64::from(number) << 2 | stage as u64
}

fn stage_of(word: u64) -> Stage {
    match word & 3 {
        0 => Stage::Idle,
        1 => Stage::Call,
        2 => Stage::Send,
        _ => Stage::Taken,
    }
}

fn number_of(word: u64) -> u32 {
    (word >> 2) as u32 & NUMBERS
}

/// Bits of an answer: number << 2 | how.
const ANSWERED: u32 = 1;
const UNANSWERED: u32 = 2;

/// Sets notification bits for the server. Returns true if the caller must wake it.
pub fn notify_server(rendezvous: &Rendezvous, bits: u64) -> bool {
    // Release pairs with Acquire in `ServerEnd::collect`: a server that sees `NOTIFIED` sees the
    // bits.
    rendezvous.notifications.fetch_or(bits, Release);
    rendezvous.pending.fetch_or(NOTIFIED, Release) & ASLEEP != 0
}

/// Sets notification bits for a client. Returns true if the caller must wake it.
pub fn notify_client(slot: &Slot, bits: u64) -> bool {
    // Release pairs with Acquire in `ClientEnd::notifications` and
    // `ClientEnd::announce_sleep_for_bits`.
    slot.notifications.fetch_or(bits, Release);
    slot.answer.fetch_or(NOTIFIED, Release) & ASLEEP != 0
}

/// The private state of a client. Use it with one slot only.
#[derive(Debug)]
pub struct ClientEnd {
    /// The slot's bit in `pending`.
    bit: u32,
    number: u32,
    /// The request word while the request is posted.
    posted: u64,
}

impl ClientEnd {
    /// Takes over slot `index` from an earlier client, and withdraws its request, if there is one.
    pub fn attach(index: usize, slot: &Slot) -> Self {
        let number = number_of(slot.request.load(Relaxed));
        // Acquire pairs with Release in `ServerEnd::take`, if a server takes the earlier client's
        // request now (see `withdraw`).
        slot.request.swap(request(0, number, Stage::Idle), Acquire);
        slot.answer.fetch_and(!ASLEEP, Relaxed);
        slot.notifications.store(0, Relaxed);
        Self { bit: 1 << index, number, posted: 0 }
    }

    /// Posts a request to the server of this `epoch`. Returns true if the caller must wake the
    /// server. Bounded.
    #[inline]
    pub fn post(
        &mut self,
        rendezvous: &Rendezvous,
        slot: &Slot,
        (epoch, scheduling): (u32, Scheduling),
        want: Want,
        priority: u32,
        message: &Message,
    ) -> bool {
        self.number = (self.number + 1) & NUMBERS;
        for (word, value) in slot.sent.iter().zip(message) {
            word.store(*value, Relaxed);
        }
        if scheduling == Scheduling::Full {
            let ticket = rendezvous.tickets.fetch_add(1, Relaxed);
            slot.order.store(u64::from(ticket) << 32 | u64::from(priority), Relaxed);
        }
        let stage = if want == Want::Call { Stage::Call } else { Stage::Send };
        self.posted = request(epoch, self.number, stage);
        // Release pairs with Acquire in `ServerEnd::inspect`: the message is there.
        slot.request.store(self.posted, Release);
        self.repost(rendezvous)
    }

    /// Sets our bit, also again in case something erased it. Returns true if the caller must wake
    /// the server.
    #[inline]
    pub fn repost(&self, rendezvous: &Rendezvous) -> bool {
        // Release pairs with Acquire in `ServerEnd::collect`: a server that takes the bit sees the
        // request. The server's exchange to ASLEEP is before this in the order of `pending`, and we
        // see it, or after, and it fails.
        rendezvous.pending.fetch_or(self.bit, Release) & ASLEEP != 0
    }

    /// The outcome of our request. `None`: not yet.
    #[inline]
    pub fn outcome(&self, slot: &Slot) -> Option<Outcome> {
        // Acquire pairs with Release in `ServerEnd::publish`: the answer's words are there.
        match self.how(slot.answer.load(Acquire)) {
            0 => None,
            ANSWERED => {
                let mut message = [0; WORDS];
                for (value, word) in message.iter_mut().zip(slot.reply) {
                    *value = word.load(Relaxed);
                }
                Some(Outcome::Answered(message))
            }
            _ => Some(Outcome::Unanswered),
        }
    }

    /// The kind of answer to our request; 0: none yet.
    fn how(&self, answer: u32) -> u32 {
        let of_ours = (answer & !(ASLEEP | NOTIFIED)) >> 2 == self.number;
        if of_ours { answer & 3 } else { 0 }
    }

    /// Announces that the client will sleep. Returns the value of the answer word to sleep on.
    /// `None`: do not sleep, check again.
    pub fn announce_sleep(&self, slot: &Slot) -> Option<u32> {
        let answer = slot.answer.load(Relaxed);
        if self.how(answer) != 0 {
            return None;
        }
        sleep(slot.answer, answer)
    }

    /// As [`announce_sleep_for_bits`].
    pub fn announce_sleep_for_bits(&self, slot: &Slot) -> Option<u32> {
        announce_sleep_for_bits(slot)
    }

    /// Takes the notification bits for this client.
    pub fn notifications(&self, slot: &Slot) -> u64 {
        take_bits_of(slot.notifications)
    }

    /// Withdraws the request. Returns true if the server has not taken it, and never will.
    pub fn withdraw(&self, slot: &Slot) -> bool {
        let idle = request(0, self.number, Stage::Idle);
        // Acquire on failure pairs with Release in `ServerEnd::take`: its reads of our message are
        // done before the next one is written there. (No model shows it: loom does not let a load
        // see a later store.) If this succeeds, the server's exchange fails.
        match slot.request.compare_exchange(self.posted, idle, Relaxed, Acquire) {
            Ok(_) => true,
            Err(_) => {
                slot.request.store(idle, Relaxed);
                false
            }
        }
    }
}

/// As [`ClientEnd::announce_sleep`], to wait for notification bits: the client, or the thread of
/// its descriptor.
pub fn announce_sleep_for_bits(slot: &Slot) -> Option<u32> {
    let answer = slot.answer.load(Relaxed);
    if answer & NOTIFIED != 0 {
        // Acquire pairs with `notify_client`: the bits that came before are seen by the caller's
        // next look.
        let _ = slot.answer.compare_exchange(answer, answer & !NOTIFIED, Acquire, Relaxed);
        return None;
    }
    sleep(slot.answer, answer)
}

/// Sets ASLEEP in a word that still holds `seen`, and returns its new value.
fn sleep(word: &AtomicU32, seen: u32) -> Option<u32> {
    // Relaxed: only the order of this word matters. The other side's read-modify-write is after
    // this and sees ASLEEP, or before this, which then fails.
    match word.compare_exchange(seen, seen | ASLEEP, Relaxed, Relaxed) {
        Ok(_) => Some(seen | ASLEEP),
        Err(_) => None,
    }
}

fn take_bits_of(notifications: &AtomicU64) -> u64 {
    match notifications.load(Relaxed) {
        0 => 0,
        // Acquire pairs with Release in `notify_server` and `notify_client`: the changes before the
        // notification are visible.
        _ => notifications.swap(0, Acquire),
    }
}

/// A request, as the server's own copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub client: usize,
    pub priority: u32,
    pub want: Want,
    pub message: Message,
}

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    word: u64,
    priority: u32,
    /// The number of the scan that found it, and its ticket among requests of the same scan.
    found: u64,
    ticket: u32,
}

impl Waiting {
    /// Whether the server takes it before `other`.
    fn precedes(&self, other: &Self) -> bool {
        let first = |a: u32, b: u32| (b.wrapping_sub(a) as i32) > 0;
        match self.priority.cmp(&other.priority) {
            std::cmp::Ordering::Equal if self.found == other.found => {
                first(self.ticket, other.ticket)
            }
            std::cmp::Ordering::Equal => self.found < other.found,
            order => order.is_gt(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Served {
    number: u32,
    outcome: Outcome,
}

/// The private state of the server.
#[derive(Debug)]
pub struct ServerEnd {
    epoch: u32,
    scheduling: Scheduling,
    clients: usize,
    /// The highest priority that each client may state.
    pub ceilings: [u32; MAX_CLIENTS],
    /// Bits of the slots whose `waiting` is valid.
    queue: u32,
    waiting: [Waiting; MAX_CLIENTS],
    served: [Option<Served>; MAX_CLIENTS],
    /// The client whose answer is due, and the number of its request.
    current: Option<(usize, u32)>,
    scans: u64,
    /// The client that was taken last.
    last: usize,
}

impl ServerEnd {
    pub fn new(epoch: u32, scheduling: Scheduling, clients: usize) -> Self {
        Self {
            epoch,
            scheduling,
            clients: clients.min(MAX_CLIENTS),
            ceilings: [u32::MAX; MAX_CLIENTS],
            queue: 0,
            waiting: [Waiting::default(); MAX_CLIENTS],
            served: [None; MAX_CLIENTS],
            current: None,
            scans: 0,
            last: 0,
        }
    }

    /// Scans for new requests, and returns notification bits. Calls `again` for each client that
    /// may have missed an answer: the caller must wake it. Bounded: O(clients).
    #[inline]
    pub fn collect<'a>(
        &mut self,
        rendezvous: &Rendezvous,
        slot: impl Fn(usize) -> Slot<'a>,
        mut again: impl FnMut(usize),
    ) -> u64 {
        // The announcement alone stays: the thread of a descriptor may sleep by it.
        if rendezvous.pending.load(Relaxed) & !ASLEEP == 0 {
            return 0;
        }
        // Acquire pairs with `repost` and `notify_server`.
        let pending = rendezvous.pending.swap(0, Acquire);
        self.scans += 1;
        let mut arrived = pending & ((1 << self.clients) - 1);
        while arrived != 0 {
            let client = arrived.trailing_zeros() as usize;
            arrived &= arrived - 1;
            if self.inspect(client, &slot(client)) {
                again(client);
            }
        }
        if pending & NOTIFIED != 0 { take_bits_of(rendezvous.notifications) } else { 0 }
    }

    /// Inspects one slot. Returns true if it published the last answer again.
    #[inline]
    fn inspect(&mut self, client: usize, slot: &Slot) -> bool {
        // Acquire pairs with Release in `post`.
        let word = slot.request.load(Acquire);
        let stage = stage_of(word);
        if (word >> 32) as u32 != self.epoch || stage == Stage::Idle {
            return false;
        }
        match self.served[client] {
            Some(served) if served.number == number_of(word) => {
                self.publish(slot, served.number, &served.outcome);
                return true;
            }
            _ if stage == Stage::Taken => return false,
            _ => (),
        }
        if self.queue & 1 << client != 0 && self.waiting[client].word == word {
            return false;
        }
        self.queue |= 1 << client;
        self.waiting[client] = match self.scheduling {
            Scheduling::Direct => Waiting { word, ..Waiting::default() },
            Scheduling::Full => {
                let order = slot.order.load(Relaxed);
                let priority = (order as u32).min(self.ceilings[client]);
                Waiting { word, priority, found: self.scans, ticket: (order >> 32) as u32 }
            }
        };
        false
    }

    /// Takes the next request, which becomes the current one unless it was a Send. The second value
    /// is true if the caller must wake the client of a Send. Bounded: O(clients^2), O(clients) if
    /// no client withdraws.
    #[inline]
    pub fn take<'a>(&mut self, slot: impl Fn(usize) -> Slot<'a>) -> Option<(Taken, bool)> {
        while self.queue != 0 {
            let client = self.next();
            self.queue &= !(1 << client);
            self.last = client;
            let (slot, Waiting { word, priority, .. }) = (slot(client), self.waiting[client]);
            let mut message = [0; WORDS];
            for (value, word) in message.iter_mut().zip(slot.sent) {
                *value = word.load(Relaxed);
            }
            let number = number_of(word);
            let taken = request(self.epoch, number, Stage::Taken);
            // Release pairs with Acquire in `withdraw`: the reads above are done. If it succeeds,
            // the client had not withdrawn, so the copy is what it posted.
            if slot.request.compare_exchange(word, taken, Release, Relaxed).is_err() {
                continue;
            }
            let want = if stage_of(word) == Stage::Call { Want::Call } else { Want::Send };
            let taken = Taken { client, priority, want, message };
            let wake = match want {
                Want::Call => {
                    self.current = Some((client, number));
                    false
                }
                Want::Send => self.answer(&slot, (client, number), Outcome::Unanswered),
            };
            return Some((taken, wake));
        }
        None
    }

    /// The client to take next. `queue` is not empty.
    fn next(&self) -> usize {
        let lowest = |bits: u32| bits.trailing_zeros() as usize;
        match self.scheduling {
            Scheduling::Direct => {
                let later = self.queue & !((2 << self.last) - 1);
                lowest(if later != 0 { later } else { self.queue })
            }
            Scheduling::Full => {
                let (mut best, mut rest) = (lowest(self.queue), self.queue & (self.queue - 1));
                while rest != 0 {
                    let client = lowest(rest);
                    rest &= rest - 1;
                    if self.waiting[client].precedes(&self.waiting[best]) {
                        best = client;
                    }
                }
                best
            }
        }
    }

    /// Ends the current request. `None`: there is none. Else its client, and true if the caller
    /// must wake it. Bounded.
    #[inline]
    pub fn finish<'a>(
        &mut self,
        slot: impl Fn(usize) -> Slot<'a>,
        outcome: Outcome,
    ) -> Option<(usize, bool)> {
        let current = self.current.take()?;
        Some((current.0, self.answer(&slot(current.0), current, outcome)))
    }

    #[inline]
    fn answer(&mut self, slot: &Slot, (client, number): (usize, u32), outcome: Outcome) -> bool {
        self.served[client] = Some(Served { number, outcome });
        self.publish(slot, number, &outcome)
    }

    #[inline]
    fn publish(&self, slot: &Slot, number: u32, outcome: &Outcome) -> bool {
        let how = match outcome {
            Outcome::Answered(message) => {
                for (word, value) in slot.reply.iter().zip(message) {
                    word.store(*value, Relaxed);
                }
                ANSWERED
            }
            Outcome::Unanswered => UNANSWERED,
        };
        // Release pairs with Acquire in `outcome`: the answer's words are there. The client's
        // exchange to ASLEEP is after this in the order of this word and fails, or before, and this
        // sees it.
        slot.answer.swap(number << 2 | how, Release) & ASLEEP != 0
    }

    /// As [`announce_sleep`].
    pub fn announce_sleep(&self, rendezvous: &Rendezvous) -> Option<u32> {
        announce_sleep(rendezvous)
    }

    /// Whether it has collected requests that it has not taken yet.
    pub fn has_more(&self) -> bool {
        self.queue != 0
    }
}

/// Announces that the server will sleep, or the thread of its descriptor. Returns the value of
/// `pending` to sleep on. `None`: there is a request or notification.
pub fn announce_sleep(rendezvous: &Rendezvous) -> Option<u32> {
    // The other one of the two may sleep already.
    sleep(rendezvous.pending, 0).or_else(|| sleep(rendezvous.pending, ASLEEP))
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;
