// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A writer and a reader of a ring.

use super::explore;
use crate::ring::{Overflow, Reader, Ring, Writer};
use crate::sync::AtomicU64;
use loom::{sync::Arc, thread};

struct Memory {
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
}

/// A writer puts `records` numbers in, `together` in a frame; a reader takes them out.
fn model(overflow: Overflow, words: u64, records: u64, together: usize, at_least: usize) {
    explore(at_least, move || {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new(Memory { head: AtomicU64::new(0), tail: AtomicU64::new(0), words });
        let theirs = Arc::clone(&memory);
        let ring = Ring::new(&memory.head, &memory.tail, &memory.words, overflow).unwrap();
        let (mut writer, mut reader) = (Writer::attach(&ring), Reader::attach(&ring));
        let writing = thread::spawn(move || {
            let ring = Ring::new(&theirs.head, &theirs.tail, &theirs.words, overflow).unwrap();
            let mut taken = 0;
            let all: Vec<[u8; 8]> = (1..=records).map(u64::to_ne_bytes).collect();
            for some in all.chunks(together) {
                let put = writer.put(&ring, some.as_flattened());
                taken += if put.is_ok() { some.len() as u64 } else { 0 };
            }
            assert_eq!(writer.corrupted, 0);
            (taken, writer.dropped_bytes / 8)
        });
        let (mut last, mut seen) = (0, 0);
        let mut read = |reader: &mut Reader| {
            let mut bytes = [0; 8];
            let count = reader.get(&ring, &mut bytes).expect("nothing is corrupt here");
            if count > 0 {
                let number = u64::from_ne_bytes(bytes);
                assert!(count == 8 && number > last && number <= records, "{number} after {last}");
                (last, seen) = (number, seen + 1);
            }
            count
        };
        read(&mut reader);
        read(&mut reader);
        let (taken, dropped) = writing.join().unwrap();
        while read(&mut reader) > 0 {}
        assert_eq!(seen + dropped, taken);
        assert_eq!(reader.corrupted, 0);
    });
}

#[test]
fn refuse_loses_nothing() {
    model(Overflow::Refuse, 4, 3, 1, 20);
}

#[test]
fn drop_oldest_counts_what_it_drops() {
    model(Overflow::DropOldest, 4, 2, 1, 20);
}

#[test]
fn records_of_one_frame_are_all_there_when_the_first_is() {
    model(Overflow::Refuse, 8, 6, 2, 20);
}
