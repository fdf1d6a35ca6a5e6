// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of a ring: bytes into them and out of them.

use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The words of frames, addressed by position. Their number is a power of two.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a>(pub &'a [AtomicU64]);

impl<'a> Words<'a> {
    #[inline]
    pub fn at(self, position: u64) -> &'a AtomicU64 {
        &self.0[(position as usize) & (self.0.len() - 1)]
    }

    /// The words from `position` on, up to the end of the memory and at most `count`.
    #[inline]
    pub fn run(self, position: u64, count: usize) -> &'a [AtomicU64] {
        let from = &self.0[(position as usize) & (self.0.len() - 1)..];
        &from[..count.min(from.len())]
    }

    /// As many words as a cache line has, unless the ring wraps around inside it.
    #[inline(always)]
    pub fn line(self, position: u64) -> Option<&'a [AtomicU64; 8]> {
        self.0[(position as usize) & (self.0.len() - 1)..].first_chunk::<8>()
    }

    /// Stores `bytes` from `position` on, and wraps around at the end of the ring.
    pub fn store(self, position: u64, bytes: &[u8]) {
        let run = self.run(position, bytes.len().div_ceil(8));
        let (now, later) = bytes.split_at(bytes.len().min(run.len() * 8));
        store_bytes(run, now);
        store_bytes(
            self.run(position.wrapping_add(run.len() as u64), later.len().div_ceil(8)),
            later,
        );
    }

    /// Copies out bytes from `offset` on, of a frame whose bytes begin at `position`.
    #[inline]
    pub fn load(self, position: u64, offset: u64, into: &mut [u8]) {
        if offset.is_multiple_of(8) {
            let mut position = position.wrapping_add(offset / 8);
            let (mut words, rest) = into.as_chunks_mut::<8>();
            while !words.is_empty() {
                let run = self.run(position, words.len());
                let (now, later) = words.split_at_mut(run.len());
                for (place, word) in run.iter().zip(now) {
                    *word = place.load(Relaxed).to_ne_bytes();
                }
                words = later;
                position = position.wrapping_add(run.len() as u64);
            }
            let count = rest.len();
            if count > 0 {
                rest.copy_from_slice(&self.at(position).load(Relaxed).to_ne_bytes()[..count]);
            }
        } else {
            for (place, byte) in (offset..).zip(into) {
                let word = self.at(position.wrapping_add(place / 8)).load(Relaxed).to_ne_bytes();
                *byte = word[(place % 8) as usize];
            }
        }
    }
}

/// Stores as many words as a cache line has, the last one first.
#[inline(always)]
pub fn store_line(places: &[AtomicU64; 8], line: &[u8; 64]) {
    for (place, word) in places.iter().zip(line.as_chunks::<8>().0).rev() {
        place.store(u64::from_ne_bytes(*word), Relaxed);
    }
}

/// Copies out as many words.
#[inline(always)]
pub fn load_line(places: &[AtomicU64; 8], line: &mut [u8; 64]) {
    for (place, word) in places.iter().zip(line.as_chunks_mut::<8>().0) {
        *word = place.load(Relaxed).to_ne_bytes();
    }
}

/// Stores whole cache lines first: a loop of constant length costs half the instructions.
fn store_bytes(places: &[AtomicU64], bytes: &[u8]) {
    let (lines, rest) = bytes.as_chunks::<64>();
    for (places, line) in places.as_chunks::<8>().0.iter().zip(lines) {
        store_line(places, line);
    }
    let places = &places[lines.len() * 8..];
    let (words, rest) = rest.as_chunks::<8>();
    for (place, word) in places.iter().zip(words) {
        place.store(u64::from_ne_bytes(*word), Relaxed);
    }
    if !rest.is_empty() {
        // Bytes after the end of the last word are 0.
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        places[words.len()].store(u64::from_ne_bytes(word), Relaxed);
    }
}
