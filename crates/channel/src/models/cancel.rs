// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A waiter and a thread that cancels it.

use super::explore;
use crate::cancel::take_back;
use crate::sync::{AtomicU32, Ordering::*, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Memory {
    word: AtomicU32,
    noted: AtomicU32,
    /// Whether the waiter sleeps; the kernel's lock of the futex.
    asleep: Mutex<bool>,
}

#[test]
fn a_cancel_just_before_a_wait_or_within_it_ends_it() {
    explore(4, || {
        let memory =
            Memory { word: AtomicU32::new(0), noted: AtomicU32::new(0), asleep: Mutex::new(false) };
        let memory = Arc::new(memory);
        let theirs = Arc::clone(&memory);
        let waiting = thread::spawn(move || {
            theirs.word.store(1, Relaxed);
            fence(SeqCst);
            if theirs.noted.load(Relaxed) == 0 {
                let mut asleep = theirs.asleep.lock().unwrap();
                *asleep = theirs.word.load(Relaxed) == 1;
            }
        });
        memory.noted.store(1, Relaxed);
        take_back(&memory.word, 0);
        *memory.asleep.lock().unwrap() = false;
        waiting.join().unwrap();
        assert!(!*memory.asleep.lock().unwrap(), "it sleeps on");
    });
}
