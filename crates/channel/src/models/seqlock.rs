// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A record that is written while it is read.

use super::explore;
use crate::seqlock::{Board, SLOTS, Writer};
use crate::sync::AtomicU64;
use loom::{sync::Arc, thread};

#[test]
fn a_record_is_never_torn_and_never_goes_back() {
    explore(100, || {
        let words: Vec<_> = (0..2 * SLOTS).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new((AtomicU64::new(0), words));
        let theirs = Arc::clone(&memory);
        let board = Board::new(&memory.0, &memory.1).unwrap();
        let mut writer = Writer::attach(&board);
        let writing = thread::spawn(move || {
            let board = Board::new(&theirs.0, &theirs.1).unwrap();
            for number in 1..=3u64 {
                writer.write(&board, &[number.to_ne_bytes(), number.to_ne_bytes()].concat());
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            let mut into = [0; 16];
            if let Ok(Some(number)) = board.read(&mut into) {
                let words = into.as_chunks::<8>().0;
                assert_eq!(words, [number.to_ne_bytes(); 2]);
                assert!(number >= last);
                last = number;
            }
        }
        writing.join().unwrap();
    });
}
