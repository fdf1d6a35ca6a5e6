// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the real-time thread and its peers exchange, and the ledger in which a peer notes how far
//! it came.

use asmp_channel::{Kind, Mbuff, Pages};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::*};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where the channels are.
pub fn dir() -> PathBuf {
    "/dev/shm/containment".into()
}

/// All shared memory that a peer may map and write.
pub const SHARED: [(&str, Kind); 5] = [
    (REPORTS, Kind::Fifo),
    (COMMANDS, Kind::Fifo),
    (STATE, Kind::Mbuff),
    (SETPOINT, Kind::Mbuff),
    (QUESTIONS, Kind::Call),
];
/// From the thread, a frame each period.
pub const REPORTS: &str = "reports";
/// To the thread.
pub const COMMANDS: &str = "commands";
/// From the thread, the newest.
pub const STATE: &str = "state";
/// To the thread, the newest.
pub const SETPOINT: &str = "setpoint";
/// The thread serves, the peer asks.
pub const QUESTIONS: &str = "questions";

/// A number, whose it is, and a mark by which anything else is told from it.
pub type Frame = [u64; 3];
pub const FRAME_BYTES: usize = size_of::<Frame>();

pub fn frame(generation: u64, number: u64) -> Frame {
    [generation, number, mark(generation, number)]
}

/// `None`: nobody of us has written this.
pub fn checked(frame: Frame) -> Option<(u64, u64)> {
    let [generation, number, found] = frame;
    (found == mark(generation, number)).then_some((generation, number))
}

pub fn bytes(frame: Frame) -> [u8; FRAME_BYTES] {
    let mut bytes = [0; FRAME_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(frame) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

pub fn of_bytes(bytes: &[u8; FRAME_BYTES]) -> Frame {
    let (words, _) = bytes.as_chunks::<8>();
    [words[0], words[1], words[2]].map(u64::from_ne_bytes)
}

fn mark(generation: u64, number: u64) -> u64 {
    let mixed = (generation.rotate_left(32) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29) | 1
}

/// Words in memory that no fault touches. The thread writes `Jobs`, the runs and the peers the
/// others.
#[derive(Clone, Copy)]
pub enum Word {
    /// The generation whose peer is in full exchange.
    Ready,
    /// What the peer is told to do.
    Order,
    /// 1: the peer before has scribbled; what it left in shared memory may be lost.
    AfterScribble,
    /// The last report that was read, over all generations.
    Read,
    /// The last command that was put in, in this generation.
    Put,
    /// Reports that nobody has read although they were accepted.
    LostReports,
    /// A report or an answer that is not what was sent, from a peer that has done nothing wrong.
    Wrong,
    /// The last command of this generation that the thread has said it has.
    Confirmed,
    /// Words scribbled.
    Scribbled,
    /// The peer died between reading a report and noting it.
    Unnoted,
    /// Jobs that the thread has done.
    Jobs,
}
const WORDS: u64 = 11;

pub struct Ledger(Mbuff);

impl Ledger {
    pub fn open() -> Result<Self, Failure> {
        Ok(Self(Mbuff::alloc(&dir(), "ledger", WORDS * 8, Pages::Normal)?))
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        &self.0.words()[word as usize]
    }

    pub fn get(&self, word: Word) -> u64 {
        // Acquire pairs with the Release of `set`.
        self.word(word).load(Acquire)
    }

    pub fn set(&self, word: Word, value: u64) {
        // Release pairs with the Acquire of `get`: what was noted before is there.
        self.word(word).store(value, Release);
    }

    pub fn add(&self, word: Word, more: u64) {
        self.word(word).fetch_add(more, AcqRel);
    }
}

/// What a peer is told to do, as a number of the ledger.
pub mod order {
    pub const NOTHING: u64 = 0;
    pub const SCRIBBLE: u64 = 1;
    pub const TAKE_MEMORY: u64 = 2;
    pub const FORK: u64 = 3;
}
