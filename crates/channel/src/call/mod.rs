//! Synchronous calls between processes, as in L4: several clients, one server, messages of one cache line.
//!
//! A client *calls* (sends, and waits for the answer) or *sends* (waits until the server has taken it); the server
//! *receives*, *replies*, or does both in one step with [`Server::reply_wait`]. Notification bits are set
//! without waiting, in both directions, and received with or instead of a message.
//!
//! **Cost.** The hand-off is wait-free in shared memory; the kernel is entered only to sleep and to wake who sleeps.
//! Nothing allocates after set-up. Stock Linux has no futex call that wakes one thread and suspends another, so a call
//! with both ends on one CPU is two system calls and a switch each way, as a pair of bare futexes is.
//!
//! **Order.** With [`Scheduling::Full`] the waiting client with the highest priority is served first, and among equals
//! the one that came first. A client states its priority itself; what the server believes of it is bounded
//! by a ceiling for each slot ([`Server::set_ceiling`]). With `inherit` in the [`Shape`], a client that waits lends
//! its scheduling priority to the server's thread (PI futex), and to nobody else.
//!
//! **Death.** A client whose server ends gets `PeerDied`: at once if the server ended in order or with `inherit`, else
//! within [`SLICE`]. It can call again as soon as there is a new server; a request is never served by two servers.
//! A slot whose client ended is free at once.
//!
//! **Enemies.** Whoever has the memory can write anything into it. The server never crashes, blocks or reads out of
//! bounds by that: it reads each word once, masks or checks it, and keeps queue, ceilings and answers to itself. What
//! shared memory cannot prevent, since all slots are in one piece: an enemy may post requests in another's slot, change a
//! request before it is taken or an answer before it is read, make one get lost (it is posted again after a
//! [`SLICE`]; a client with a timeout goes on anyway), or keep the server busy with work, as any client can. Clients
//! that must not be able to do this to each other need a channel each. With `inherit`, a client can lend its own
//! priority to any thread; it can do so without us.

mod client;
mod pi;
pub(crate) mod rendezvous;
mod server;

pub use client::Client;
pub use rendezvous::{MAX_CLIENTS, Message, Scheduling, WORDS, Want};
pub use server::{Received, Request, Server};

use crate::shm::{Kind, PARAMETERS, Pages, SharedMemory, ShmError};
use crate::sync::{AtomicU32, AtomicU64};
use rendezvous::{Rendezvous, Slot};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a waiting client sleeps before it looks whether the server is still there. (A server that waits has no
/// timer but the one it asks for: clients wake it.)
pub const SLICE: Duration = Duration::from_millis(100);

/// What both ends must agree on; the server says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Slots, 1 to [`MAX_CLIENTS`].
    pub clients: u32,
    pub scheduling: Scheduling,
    /// Waiting clients lend their priority to the server. Both in one PID namespace; Linux 5.14.
    pub inherit: bool,
}

impl Shape {
    fn parameters(self) -> [u64; PARAMETERS] {
        [self.clients.into(), u64::from(self.scheduling == Scheduling::Direct), self.inherit.into(), 0]
    }

    fn of(parameters: [u64; PARAMETERS]) -> Option<Self> {
        let [clients, direct, inherit, _] = parameters;
        let scheduling = if direct == 0 { Scheduling::Full } else { Scheduling::Direct };
        let shape = Self { clients: u32::try_from(clients).ok()?, scheduling, inherit: inherit != 0 };
        ((1..=MAX_CLIENTS as u64).contains(&clients) && shape.parameters() == parameters).then_some(shape)
    }
}

/// Why there is no server or client.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("{clients} clients: a call channel has 1 to {MAX_CLIENTS}")]
    BadShape { clients: u32 },
    #[error("call channel {name} exists with {found:?}, {asked:?} was asked for")]
    ShapeMismatch { name: String, found: Shape, asked: Shape },
    #[error("all {clients} slots of call channel {name} are taken")]
    SlotsTaken { name: String, clients: u32 },
    #[error("call channel {name} has {clients} slots, slot {slot} was asked for")]
    NoSuchSlot { name: String, clients: u32, slot: u32 },
    #[error(transparent)]
    Shm(#[from] ShmError),
}

/// Why there is no answer or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("nobody serves this channel")]
    NoServer,
    /// Of a client. `taken` is false: the server never will take the request.
    #[error("no answer in time; the request was {}", if *taken { "taken" } else { "withdrawn" })]
    NoAnswer { taken: bool },
    #[error("nothing came in time")]
    TimedOut,
    #[error("the server ended before it answered")]
    PeerDied,
    #[error("the server went on without an answer")]
    Unanswered,
    #[error("nobody waits for an answer: receive first")]
    NoCaller,
}

/// Offsets in the body. Each cache line is written by one side mostly.
const PENDING: usize = 0;
const TICKETS: usize = 4;
const NOTIFICATIONS: usize = 8;
const EPOCH: usize = 64;
const THREAD: usize = 68;
const SLOTS: usize = 128;
/// Of a slot, and offsets in it.
const SLOT_BYTES: usize = 256;
const REQUEST: usize = 0;
const ORDER: usize = 8;
const SENT: usize = 64;
const ANSWER: usize = 128;
const PI_LOCK: usize = 132;
const CLIENT_NOTIFICATIONS: usize = 136;
const REPLY: usize = 192;

/// The shared memory of a channel.
#[derive(Debug)]
struct Table {
    shared: SharedMemory,
    shape: Shape,
}

impl Table {
    /// Makes it, or attaches to what a former server has left and clients still hold.
    fn open(dir: &Path, name: &str, shape: Shape) -> Result<Self, SetupError> {
        if Shape::of(shape.parameters()).is_none() {
            return Err(SetupError::BadShape { clients: shape.clients });
        }
        let bytes = (SLOTS + shape.clients as usize * SLOT_BYTES) as u64;
        for _ in 0..16 {
            match SharedMemory::create(dir, name, Kind::Call, bytes, shape.parameters(), Pages::Normal) {
                Ok(shared) => return Ok(Self { shared, shape }),
                Err(ShmError::NameTaken { .. }) => (),
                Err(error) => return Err(error.into()),
            }
            match Self::attach(dir, name) {
                Ok(table) if table.shape == shape => return Ok(table),
                Ok(Self { shape: found, .. }) => {
                    return Err(SetupError::ShapeMismatch { name: name.to_owned(), found, asked: shape });
                }
                // Its last user has left meanwhile.
                Err(SetupError::Shm(ShmError::NotFound { .. })) => (),
                Err(error) => return Err(error),
            }
        }
        Err(ShmError::NameTaken { name: name.to_owned() }.into())
    }

    fn attach(dir: &Path, name: &str) -> Result<Self, SetupError> {
        let shared = SharedMemory::attach(dir, name, Kind::Call)?;
        let shape = Shape::of(shared.parameters());
        let shape = shape.filter(|shape| SLOTS + shape.clients as usize * SLOT_BYTES <= shared.body_bytes());
        match shape {
            Some(shape) => Ok(Self { shared, shape }),
            None => {
                let found = format!("no shape of a call channel: {:?}", shared.parameters());
                Err(ShmError::Mismatch { name: name.to_owned(), found }.into())
            }
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.shared.words(offset, 1)[0]
    }

    #[inline]
    fn rendezvous(&self) -> Rendezvous<'_> {
        Rendezvous {
            pending: self.shared.futex_word(PENDING),
            tickets: self.shared.futex_word(TICKETS),
            notifications: self.word(NOTIFICATIONS),
        }
    }

    #[inline]
    fn slot(&self, client: usize) -> Slot<'_> {
        let at = SLOTS + client * SLOT_BYTES;
        // One check of bounds for all: what follows are constants.
        let words = self.shared.words(at, SLOT_BYTES / 8).first_chunk::<{ SLOT_BYTES / 8 }>();
        let words = words.expect("as many as were asked for");
        Slot {
            request: &words[REQUEST / 8],
            order: &words[ORDER / 8],
            sent: &words[SENT / 8..SENT / 8 + WORDS],
            answer: self.shared.futex_word(at + ANSWER),
            notifications: &words[CLIENT_NOTIFICATIONS / 8],
            reply: &words[REPLY / 8..REPLY / 8 + WORDS],
        }
    }

    fn pi_lock(&self, client: usize) -> &AtomicU32 {
        self.shared.futex_word(SLOTS + client * SLOT_BYTES + PI_LOCK)
    }

    /// epoch << 1 | 1 while a server is there.
    fn epoch(&self) -> &AtomicU32 {
        self.shared.futex_word(EPOCH)
    }

    fn server_thread(&self) -> &AtomicU32 {
        self.shared.futex_word(THREAD)
    }
}

/// How long to sleep now. The clock is first looked at when there is something to wait for.
struct WaitLimit {
    timeout: Option<Duration>,
    /// At most so long at a time.
    slice: Option<Duration>,
    end: Option<Instant>,
}

/// There is no time left to wait.
struct Expired;

impl WaitLimit {
    fn new(timeout: Option<Duration>, slice: Option<Duration>) -> Self {
        Self { timeout, slice, end: None }
    }

    /// `None`: for ever.
    fn next_sleep(&mut self) -> Result<Option<Duration>, Expired> {
        let Some(timeout) = self.timeout else { return Ok(self.slice) };
        if timeout.is_zero() {
            return Err(Expired);
        }
        let now = Instant::now();
        let Some(end) = self.end.or_else(|| now.checked_add(timeout)) else { return Ok(self.slice) };
        self.end = Some(end);
        match end.saturating_duration_since(now) {
            Duration::ZERO => Err(Expired),
            left => Ok(Some(self.slice.map_or(left, |slice| slice.min(left)))),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod kill_tests;
#[cfg(all(test, not(miri)))]
mod order_tests;
#[cfg(all(test, not(miri)))]
mod tests;
