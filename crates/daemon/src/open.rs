// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and directories of the tree that are open: what was read of each, and who waits.
//!
//! A text is made when a reader begins, and kept until it is read to its end: who reads in pieces
//! gets one text, not pieces of several. So each user may have some open, and no more.

use crate::tree::Node;
use fuser::{Errno, PollHandle};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Open at a time: of all users but root, and of each.
pub const MOST: usize = 1024;
pub const MOST_OF_USER: usize = 64;

/// A write so long that does not end in white space is a piece of a longer one: programs write what
/// they have in pieces of their buffers, which are not smaller.
const PIECE: usize = 1024;

/// All that are open, by their handles.
#[derive(Debug, Default)]
pub struct Open {
    last: u64,
    files: BTreeMap<u64, OpenFile>,
}

impl Open {
    /// Errors: too many are open.
    pub fn add(&mut self, number: u64, uid: u32) -> Result<u64, Errno> {
        let of = |is: &dyn Fn(u32) -> bool| self.files.values().filter(|one| is(one.uid)).count();
        if uid != 0 && of(&|uid| uid != 0) >= MOST {
            return Err(Errno::ENFILE);
        }
        if uid != 0 && of(&|one| one == uid) >= MOST_OF_USER {
            return Err(Errno::EMFILE);
        }
        self.last += 1;
        self.files.insert(self.last, OpenFile::new(number, uid));
        Ok(self.last)
    }

    /// Errors: there is no such handle.
    pub fn get(&mut self, handle: u64) -> Result<&mut OpenFile, Errno> {
        self.files.get_mut(&handle).ok_or(Errno::EBADF)
    }

    pub fn close(&mut self, handle: u64) {
        self.files.remove(&handle);
    }

    /// Who waits: each once.
    pub fn take_waiting(&mut self) -> Vec<PollHandle> {
        self.files.values_mut().filter_map(|one| one.waits.take()).collect()
    }
}

/// What is in a directory, with the names.
pub type Entries = Arc<[(String, Node)]>;

/// How far a reader is.
#[derive(Debug, Clone, Default)]
enum Reading {
    #[default]
    NotBegun,
    Text(Arc<str>),
    Entries(Entries),
    /// The next one begins at 0.
    AtEnd,
}

/// One of them.
#[derive(Debug)]
pub struct OpenFile {
    /// Its inode number.
    pub number: u64,
    uid: u32,
    reading: Reading,
    /// Of the events: the number of the last one that was read. Of others: a sum of the text that
    /// was read to its end.
    pub seen: Option<u64>,
    /// The rest of an event that found no room.
    pub rest: Vec<u8>,
    /// Who waits in poll(2).
    pub waits: Option<PollHandle>,
    /// A piece of a long write came: the next one may begin inside a number.
    is_cut: bool,
}

impl OpenFile {
    fn new(number: u64, uid: u32) -> Self {
        let (reading, seen, rest, waits, is_cut) =
            (Reading::NotBegun, None, Vec::new(), None, false);
        Self { number, uid, reading, seen, rest, waits, is_cut }
    }

    /// The text that a read at `from` goes on with; `None`: a new one is to be made.
    pub fn text(&self, from: usize) -> Option<Arc<str>> {
        match &self.reading {
            Reading::Text(text) if from > 0 => Some(Arc::clone(text)),
            Reading::AtEnd if from > 0 => Some("".into()),
            _ => None,
        }
    }

    /// At most `room` bytes of a text from a place on. It is kept for the next read.
    pub fn piece(&mut self, text: &Arc<str>, from: usize, room: usize) -> Vec<u8> {
        let rest = text.as_bytes().get(from..).unwrap_or_default();
        let piece = rest[..rest.len().min(room)].to_vec();
        if piece.len() == rest.len() && !matches!(self.reading, Reading::AtEnd) {
            self.seen = Some(sum_of(text));
        }
        self.reading = match piece.is_empty() {
            true => Reading::AtEnd,
            false => Reading::Text(Arc::clone(text)),
        };
        piece
    }

    /// The entries that a read from this place on goes on with; `None`: they are to be listed anew.
    pub fn entries(&self, from: u64) -> Option<Entries> {
        match &self.reading {
            Reading::Entries(entries) if from > 0 => Some(Arc::clone(entries)),
            _ => None,
        }
    }

    pub fn keep_entries(&mut self, entries: &Entries) {
        self.reading = Reading::Entries(Arc::clone(entries));
    }

    /// May a number be cut in what is written? Then all else that is written to this open file may
    /// be.
    pub fn is_cut(&mut self, bytes: &[u8], most: usize) -> bool {
        let ends = bytes.last().is_none_or(u8::is_ascii_whitespace);
        self.is_cut |= bytes.len() > most || bytes.len() >= PIECE && !ends;
        self.is_cut
    }
}

pub fn sum_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
