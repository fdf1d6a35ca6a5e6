// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A writer, a reader that polls a descriptor, and the thread that raises it.

use super::explore;
use crate::descriptor::Raised;
use crate::fifo::has_sleeper;
use crate::ring::{Overflow, Reader, Ring, Writer};
use crate::sync::{AtomicU32, AtomicU64, Ordering::*, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Memory {
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
    doorbell: AtomicU32,
    raised: Raised,
    /// The kernel's locks of the descriptor and of the futex.
    readable: Mutex<bool>,
    asleep: Mutex<bool>,
}

impl Memory {
    fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            words: (0..8).map(|_| AtomicU64::new(0)).collect(),
            doorbell: AtomicU32::new(0),
            raised: Raised::new(),
            readable: Mutex::new(false),
            asleep: Mutex::new(false),
        }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.words, Overflow::Refuse).unwrap()
    }

    fn raise(&self) {
        self.raised.raise(|| *self.readable.lock().unwrap() = true);
    }

    /// One round of the thread, unless it waits until the descriptor is lowered.
    fn watch(&self) {
        if *self.readable.lock().unwrap() {
            return;
        }
        self.doorbell.store(1, Relaxed);
        fence(SeqCst);
        if self.ring().holds_frame() {
            return self.raise();
        }
        let mut asleep = self.asleep.lock().unwrap();
        *asleep = self.doorbell.load(Relaxed) == 1;
    }
}

/// The ring holds one frame, and the descriptor is readable. The reader gets the frame and lowers
/// the descriptor, while the writer puts a second frame.
#[test]
fn a_frame_that_comes_while_the_descriptor_is_lowered_raises_it_again() {
    explore(100, || {
        let memory = Arc::new(Memory::new());
        let (mut writer, mut reader) =
            (Writer::attach(&memory.ring()), Reader::attach(&memory.ring()));
        writer.put(&memory.ring(), &[1; 8]).unwrap();
        memory.raise();
        let theirs = Arc::clone(&memory);
        let writing = thread::spawn(move || {
            writer.put(&theirs.ring(), &[2; 8]).unwrap();
            if has_sleeper(&theirs.doorbell) {
                *theirs.asleep.lock().unwrap() = false;
            }
        });
        let watcher = Arc::clone(&memory);
        let watching = thread::spawn(move || watcher.watch());
        let mut get = || reader.get(&memory.ring(), &mut [0; 8]).unwrap();
        while get() > 0 {}
        memory.raised.lower(|| *memory.readable.lock().unwrap() = false);
        writing.join().unwrap();
        watching.join().unwrap();
        let (readable, asleep) = (*memory.readable.lock().unwrap(), *memory.asleep.lock().unwrap());
        assert!(get() == 0 || readable || !asleep, "the reader polls, and the thread sleeps on");
    });
}
