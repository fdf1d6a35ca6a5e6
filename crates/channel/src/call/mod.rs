// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synchronous calls between processes, as in L4: several clients, one server, messages of one
//! cache line.
//!
//! A client *calls* (it sends a message and waits for the answer) or *sends* (it waits until the
//! server has taken the message). The server *receives* and *replies*, or does both in one step
//! with [`Server::reply_wait`]. Both sides can set notification bits without waiting. The other
//! side receives them with a message or alone.
//!
//! **Cost.** The hand-off is wait-free in shared memory. System calls are needed only to sleep and
//! to wake a sleeper. Nothing allocates after set-up. Linux has no futex call that wakes one thread
//! and suspends another. So a call on one CPU costs two system calls and one switch each way, as a
//! pair of bare futexes does.
//!
//! **Ending a wait.** Another thread ends waits by a [`Canceller`](crate::Canceller): at once, or
//! within a [`SLICE`] while a client lends its priority. [`Server::descriptor`] and
//! [`Client::descriptor`] are for poll(2) and event loops.
//!
//! **Order.** With [`Scheduling::Full`] the server takes the waiting client with the highest
//! priority first, and clients of equal priority in order of arrival. A client states its own
//! priority, up to a ceiling that the server sets for its slot ([`Server::set_ceiling`]). With
//! `inherit` in the [`Shape`], a waiting client lends its scheduling priority to the server's
//! thread (PI futex).
//!
//! **Crash.** When the server ends, its clients get `PeerDied`: at once if it ended in order or
//! with `inherit`, else within [`SLICE`]. A client can call again as soon as there is a new server.
//! Two servers never serve the same request. The slot of a client that ended is free at once.
//!
//! **Hostile clients.** Every process that maps the memory can write anything into it. The server
//! never crashes, blocks or reads out of bounds because of that: it reads each word once, checks or
//! masks it, and keeps queue, ceilings and answers in its own memory. All slots share one memory,
//! so a hostile client can still
//! - post requests in another client's slot,
//! - change a request before the server takes it, or an answer before the client reads it,
//! - make a request get lost (it is posted again after a [`SLICE`]; a timeout works anyway),
//! - keep the server busy, as every client can.
//!
//! Clients that must not affect each other need a channel each. With `inherit`, a client can lend
//! its priority to any thread; it could do so without this crate.

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
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a waiting client sleeps before it checks that the server is alive. A waiting server
/// needs no such check: clients wake it.
pub const SLICE: Duration = Duration::from_millis(100);

/// Properties of a call channel. The server chooses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of slots, 1 to [`MAX_CLIENTS`].
    pub clients: u32,
    /// Which waiting client the server takes first.
    pub scheduling: Scheduling,
    /// Waiting clients lend their priority to the server. Needs Linux 5.14, and both ends in one
    /// PID namespace.
    pub inherit: bool,
}

impl Shape {
    fn parameters(self) -> [u64; PARAMETERS] {
        [
            self.clients.into(),
            u64::from(self.scheduling == Scheduling::Direct),
            self.inherit.into(),
            0,
        ]
    }

    fn of(parameters: [u64; PARAMETERS]) -> Option<Self> {
        let [clients, direct, inherit, _] = parameters;
        let scheduling = if direct == 0 { Scheduling::Full } else { Scheduling::Direct };
        let shape =
            Self { clients: u32::try_from(clients).ok()?, scheduling, inherit: inherit != 0 };
        ((1..=MAX_CLIENTS as u64).contains(&clients) && shape.parameters() == parameters)
            .then_some(shape)
    }
}

/// Why a server could not open, or a client could not attach.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The number of clients is out of range.
    #[error("invalid number of clients {clients}: use 1 to {MAX_CLIENTS}")]
    BadShape { clients: u32 },
    /// The channel exists with other properties.
    #[error("call channel {name} exists with {found:?}, expected {asked:?}")]
    ShapeMismatch { name: String, found: Shape, asked: Shape },
    /// Every slot has a client.
    #[error("all {clients} slots of call channel {name} are in use")]
    SlotsTaken { name: String, clients: u32 },
    /// The slot does not exist.
    #[error("call channel {name} has no slot {slot}: it has {clients}, numbered from 0")]
    NoSuchSlot { name: String, clients: u32, slot: u32 },
    /// The shared memory failed.
    #[error(transparent)]
    Shm(#[from] ShmError),
}

/// Why a call, a reply or a wait failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The channel has no server.
    #[error("the channel has no server")]
    NoServer,
    /// The timeout of a client passed. If `taken` is false, the server will never take the request.
    #[error(
        "timed out: {}",
        if *taken { "the server has taken the request" } else { "the request is withdrawn" }
    )]
    NoAnswer { taken: bool },
    /// The timeout passed, and there was no request and no notification.
    #[error("timed out")]
    TimedOut,
    /// The server ended before it answered.
    #[error("the server ended before it answered")]
    PeerDied,
    /// The server received its next request without an answer to this one.
    #[error("the server continued without an answer")]
    Unanswered,
    /// The server replied, but no client waits for an answer.
    #[error("no client waits for an answer: receive a call first")]
    NoCaller,
    /// Another thread has ended the waits of this end ([`Canceller::cancel`](crate::Canceller)). If
    /// `taken` is false, the server will never take the request.
    #[error(
        "cancelled by another thread{}",
        if *taken { ": the server has taken the request" } else { "" }
    )]
    Cancelled { taken: bool },
}

/// Offsets in the body, in bytes. One side writes most of each cache line.
const PENDING: usize = 0;
const TICKETS: usize = 4;
const NOTIFICATIONS: usize = 8;
const EPOCH: usize = 64;
const THREAD: usize = 68;
const SLOTS: usize = 128;
/// Bytes of a slot, and offsets in it.
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
    shared: Arc<SharedMemory>,
    shape: Shape,
}

impl Table {
    /// The same mapping, for the thread of a descriptor.
    fn again(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), shape: self.shape }
    }

    /// Creates the channel, or attaches to one of an earlier server that clients still hold.
    fn open(dir: &Path, name: &str, shape: Shape) -> Result<Self, SetupError> {
        if Shape::of(shape.parameters()).is_none() {
            return Err(SetupError::BadShape { clients: shape.clients });
        }
        let bytes = (SLOTS + shape.clients as usize * SLOT_BYTES) as u64;
        for _ in 0..16 {
            match SharedMemory::create(
                dir,
                name,
                Kind::Call,
                bytes,
                shape.parameters(),
                Pages::Normal,
            ) {
                Ok(shared) => return Ok(Self { shared: Arc::new(shared), shape }),
                Err(ShmError::NameTaken { .. }) => (),
                Err(error) => return Err(error.into()),
            }
            match Self::attach(dir, name) {
                Ok(table) if table.shape == shape => return Ok(table),
                Ok(Self { shape: found, .. }) => {
                    return Err(SetupError::ShapeMismatch {
                        name: name.to_owned(),
                        found,
                        asked: shape,
                    });
                }
                // Its last user has left meanwhile: try again.
                Err(SetupError::Shm(ShmError::NotFound { .. })) => (),
                Err(error) => return Err(error),
            }
        }
        Err(ShmError::NameTaken { name: name.to_owned() }.into())
    }

    fn attach(dir: &Path, name: &str) -> Result<Self, SetupError> {
        Self::of(SharedMemory::attach(dir, name, Kind::Call)?)
    }

    /// The table in this memory. Errors: `Mismatch`, `ReadOnly`.
    fn of(shared: SharedMemory) -> Result<Self, SetupError> {
        let name = || shared.name().to_owned();
        if shared.kind() != Kind::Call {
            let found = format!("it is of kind {:?}, expected Call", shared.kind());
            return Err(ShmError::Mismatch { name: name(), found }.into());
        }
        if !shared.is_writable() {
            return Err(ShmError::ReadOnly { name: name() }.into());
        }
        let shape = Shape::of(shared.parameters());
        let shape = shape
            .filter(|shape| SLOTS + shape.clients as usize * SLOT_BYTES <= shared.body_bytes());
        match shape {
            Some(shape) => Ok(Self { shared: Arc::new(shared), shape }),
            None => {
                let found = format!("its parameters {:?} are invalid", shared.parameters());
                Err(ShmError::Mismatch { name: name(), found }.into())
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
        // One bounds check for all: the offsets below are constants.
        let words = self.shared.words(at, SLOT_BYTES / 8).first_chunk::<{ SLOT_BYTES / 8 }>();
        let words = words.expect("a slot has this many words");
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

    /// The server's epoch << 1, and bit 0 while there is a server.
    fn epoch(&self) -> &AtomicU32 {
        self.shared.futex_word(EPOCH)
    }

    fn server_thread(&self) -> &AtomicU32 {
        self.shared.futex_word(THREAD)
    }
}

/// Computes how long to sleep next. It reads the clock for the first time when it has to wait.
struct WaitLimit {
    timeout: Option<Duration>,
    /// The longest single sleep.
    slice: Option<Duration>,
    end: Option<Instant>,
}

/// The timeout has passed.
struct Expired;

impl WaitLimit {
    fn new(timeout: Option<Duration>, slice: Option<Duration>) -> Self {
        Self { timeout, slice, end: None }
    }

    /// The next sleep; `None`: without limit.
    fn next_sleep(&mut self) -> Result<Option<Duration>, Expired> {
        let Some(timeout) = self.timeout else { return Ok(self.slice) };
        if timeout.is_zero() {
            return Err(Expired);
        }
        let now = Instant::now();
        let Some(end) = self.end.or_else(|| now.checked_add(timeout)) else {
            return Ok(self.slice);
        };
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
#[cfg(all(test, not(miri)))]
mod wait_tests;
