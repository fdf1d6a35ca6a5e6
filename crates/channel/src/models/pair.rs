// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of numbers that is read while it is written.

use super::explore;
use crate::pair::Pair;
use loom::sync::Arc;
use loom::thread;

/// What the reader saw shows that there were interleavings.
#[test]
fn no_reader_sees_parts_of_two_pairs() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let see = std::sync::Arc::clone(&seen);
    explore(3, move || {
        let pair = Arc::new(Pair::new());
        let writer = Arc::clone(&pair);
        let writing = thread::spawn(move || {
            writer.write_after(0, 1, -1);
            writer.write_after(2, 2, -2);
        });
        let mut taken = 0;
        for _ in 0..2 {
            if let Some((number, first, second)) = pair.read(taken) {
                assert_eq!((first, second), (i64::from(number / 2), -i64::from(number / 2)));
                taken = number;
            }
        }
        writing.join().unwrap();
        assert!(taken == 4 || pair.read(taken) == Some((4, 2, -2)), "the last pair is not lost");
        see.lock().unwrap().insert(taken);
    });
    assert_eq!(seen.lock().unwrap().iter().copied().collect::<Vec<_>>(), [0, 2, 4]);
}
