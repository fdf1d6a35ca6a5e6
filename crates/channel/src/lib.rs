// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Channels between processes on one machine, in shared memory with a name.
//!
//! | channel | what it carries |
//! |---|---|
//! | [`Fifo`], [`TypedFifo`] | frames of bytes or records of one type, one writer to one reader |
//! | [`Mbuff`], [`Record`] | shared memory; a record of which readers see the newest whole value |
//! | [`call`] | synchronous calls of several clients to one server |
//! | [`Pair`] | two numbers, between threads of one process |
//!
//! Programs of one user find a channel by its name. A program of another user gets it from an
//! [`Offer`], or from asmpd by its name ([`Kept`]).
//!
//! The real-time side never waits for the other side. Once a channel is set up, the operations that
//! do not say otherwise allocate nothing, take no lock and make no system call.
//!
//! The other process may write anything into shared memory at any time. A channel reports such
//! damage as an error. It never reads or writes out of bounds because of it.

mod cancel;
mod descriptor;
mod fifo;
mod kept;
mod mbuff;
mod names;
mod offer;
mod pair;
mod plain;
mod ring;
mod seqlock;
mod shm;
mod sync;
mod typed;
mod waits;

pub mod call;
pub mod futex;
pub mod keeper;

/// Ends waits from another thread.
pub use cancel::Canceller;
/// FIFOs of bytes: the FIFO, its two ends, and how to create and wait.
pub use fifo::{
    Fifo, FifoReader, FifoWriter, MAX_FIFO_BYTES, MIN_FIFO_BYTES, Options, WaitError, Wake,
};
/// A channel that asmpd keeps for programs of other users.
pub use kept::{Kept, Readers};
/// Shared memory as bytes, and records in it.
pub use mbuff::{Mbuff, MbuffError, RawRecord, RawRecordWriter, Record, RecordWriter};
/// Where names are kept.
pub use names::default_dir;
/// A channel for programs of other users.
pub use offer::{Access, Offer, OfferError, Peer, receive};
/// Two numbers for another thread.
pub use pair::Pair;
/// What a typed channel can carry.
pub use plain::Plain;
/// What a full FIFO does, and why a put or get fails.
pub use ring::{Overflow, RingError};
/// Why a record could not be read.
pub use seqlock::Overtaken;
/// The named memory under every channel, and who holds which role.
pub use shm::{Kind, MAX_CHANNEL_BYTES, Pages, Role, SharedMemory, ShmError};
/// FIFOs of records of one type.
pub use typed::{TypedFifo, TypedReader, TypedWriter};
/// What an end knows of the other.
pub use waits::OtherEnd;

/// Every interleaving of small models, with `--cfg loom`.
#[cfg(all(test, loom))]
mod models;
