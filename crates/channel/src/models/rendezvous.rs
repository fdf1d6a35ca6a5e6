// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server and its clients, asleep or awake. A lost wake-up shows as a deadlock.

use super::explore;
use crate::call::rendezvous::*;
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const EPOCH: u32 = 1;

/// What the kernel does for one word: it looks at the word and falls asleep in one step.
#[derive(Default)]
struct Futex {
    lock: Mutex<()>,
    sleepers: Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.lock.lock().unwrap();
        if word.load(Relaxed) == expected {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        let _guard = self.lock.lock().unwrap();
        self.sleepers.notify_all();
    }
}

#[derive(Default)]
struct Place {
    request: AtomicU64,
    order: AtomicU64,
    sent: [AtomicU64; 2],
    answer: AtomicU32,
    notifications: AtomicU64,
    reply: [AtomicU64; 2],
    futex: Futex,
}

impl Place {
    fn slot(&self) -> Slot<'_> {
        let Self { request, order, sent, answer, notifications, reply, .. } = self;
        Slot { request, order, sent, answer, notifications, reply }
    }
}

#[derive(Default)]
struct Memory {
    /// What a notification tells of.
    published: AtomicU64,
    pending: AtomicU32,
    tickets: AtomicU32,
    notifications: AtomicU64,
    futex: Futex,
    places: [Place; 2],
}

impl Memory {
    fn rendezvous(&self) -> Rendezvous<'_> {
        Rendezvous {
            pending: &self.pending,
            tickets: &self.tickets,
            notifications: &self.notifications,
        }
    }

    fn callers(&self) -> [ClientEnd; 2] {
        [0, 1].map(|index| ClientEnd::attach(index, &self.places[index].slot()))
    }

    /// As `Client::request` without a timeout.
    fn call(&self, index: usize, caller: &mut ClientEnd, number: u64) {
        let slot = self.places[index].slot();
        self.post(index, caller, number);
        loop {
            if let Some(outcome) = caller.outcome(&slot) {
                let Outcome::Answered(message) = outcome else { panic!("{outcome:?}") };
                assert_eq!(message[..2], [number + 100; 2]);
                return;
            }
            if let Some(expected) = caller.announce_sleep(&slot) {
                self.places[index].futex.wait(slot.answer, expected);
            }
        }
    }

    fn post(&self, index: usize, caller: &mut ClientEnd, number: u64) {
        let slot = self.places[index].slot();
        if caller.post(
            &self.rendezvous(),
            &slot,
            (EPOCH, Scheduling::Direct),
            Want::Call,
            0,
            &[number; WORDS],
        ) {
            self.futex.wake();
        }
    }

    /// As `Server::receive` without a timeout.
    fn receive(&self, end: &mut ServerEnd) -> (u64, Option<Taken>) {
        loop {
            let (bits, taken) = self.look(end);
            if bits != 0 || taken.is_some() {
                return (bits, taken);
            }
            if let Some(expected) = end.announce_sleep(&self.rendezvous()) {
                self.futex.wait(&self.pending, expected);
            }
        }
    }

    fn look(&self, end: &mut ServerEnd) -> (u64, Option<Taken>) {
        let slot = |client: usize| self.places[client].slot();
        let bits = end.collect(&self.rendezvous(), slot, |_| panic!("no client was missed"));
        let taken = end.take(slot).map(|(taken, _)| taken);
        if let Some(taken) = taken {
            assert_eq!(taken.message[0], taken.message[1], "torn");
        }
        (bits, taken)
    }

    fn reply(&self, end: &mut ServerEnd, taken: Taken) {
        let slot = |client: usize| self.places[client].slot();
        let outcome = Outcome::Answered([taken.message[0] + 100; WORDS]);
        if let Some((client, true)) = end.finish(slot, outcome) {
            self.places[client].futex.wake();
        }
    }
}

fn model(
    at_least: usize,
    body: impl Fn(Arc<Memory>, [ClientEnd; 2], ServerEnd) + Send + Sync + 'static,
) {
    explore(at_least, move || {
        let memory = Arc::new(Memory::default());
        let callers = memory.callers();
        body(Arc::clone(&memory), callers, ServerEnd::new(EPOCH, Scheduling::Direct, 2));
    });
}

#[test]
fn a_call_after_a_call_is_answered_and_nobody_sleeps_for_ever() {
    model(100, |memory, [mut caller, _], mut end| {
        let theirs = Arc::clone(&memory);
        let calling = thread::spawn(move || {
            theirs.call(0, &mut caller, 1);
            theirs.call(0, &mut caller, 2);
        });
        for number in 1..=2 {
            let (_, Some(taken)) = memory.receive(&mut end) else { panic!("no bits were set") };
            assert_eq!(taken.message[0], number);
            memory.reply(&mut end, taken);
        }
        calling.join().unwrap();
    });
}

#[test]
fn two_clients_at_once_are_both_answered() {
    model(100, |memory, [mut first, mut second], mut end| {
        let (one, two) = (Arc::clone(&memory), Arc::clone(&memory));
        let calling = [
            thread::spawn(move || one.call(0, &mut first, 1)),
            thread::spawn(move || two.call(1, &mut second, 2)),
        ];
        for _ in 0..2 {
            let (_, Some(taken)) = memory.receive(&mut end) else { panic!("no bits were set") };
            assert_eq!(taken.message[0], taken.client as u64 + 1);
            memory.reply(&mut end, taken);
        }
        for calling in calling {
            calling.join().unwrap();
        }
    });
}

#[test]
fn a_request_is_taken_or_withdrawn_and_the_next_one_does_not_mix_with_it() {
    model(100, |memory, [mut caller, _], mut end| {
        let theirs = Arc::clone(&memory);
        let calling = thread::spawn(move || {
            theirs.post(0, &mut caller, 1);
            let withdrawn = caller.withdraw(&theirs.places[0].slot());
            theirs.call(0, &mut caller, 2);
            withdrawn
        });
        let mut taken = Vec::new();
        while taken.last() != Some(&2) {
            let (_, Some(next)) = memory.receive(&mut end) else { panic!("no bits were set") };
            taken.push(next.message[0]);
            memory.reply(&mut end, next);
        }
        let withdrawn = calling.join().unwrap();
        assert_eq!(taken, if withdrawn { vec![2] } else { vec![1, 2] });
    });
}

#[test]
fn notification_bits_wake_whoever_waits_for_them_and_are_seen_once() {
    model(100, |memory, [caller, mut second], mut end| {
        let theirs = Arc::clone(&memory);
        let other = thread::spawn(move || {
            for bit in [1, 4] {
                theirs.published.store(bit, Relaxed);
                if notify_server(&theirs.rendezvous(), bit) {
                    theirs.futex.wake();
                }
            }
            theirs.call(1, &mut second, 7);
            let slot = theirs.places[0].slot();
            loop {
                match caller.notifications(&slot) {
                    0 => (),
                    bits => break assert_eq!(bits, 2),
                }
                if let Some(expected) = caller.announce_sleep_for_bits(&slot) {
                    theirs.places[0].futex.wait(slot.answer, expected);
                }
            }
            assert_eq!(caller.notifications(&slot), 0);
        });
        let (mut all, mut requests) = (0, 0);
        while all != 5 || requests == 0 {
            let (bits, taken) = memory.receive(&mut end);
            assert_eq!(bits & all, 0);
            assert!(
                memory.published.load(Relaxed) >= bits & 5 & !1,
                "published of before it was there"
            );
            assert!(
                bits & 1 == 0 || memory.published.load(Relaxed) >= 1,
                "published of before it was there"
            );
            all |= bits;
            if let Some(taken) = taken {
                requests += 1;
                memory.reply(&mut end, taken);
            }
        }
        assert_eq!((all, requests), (5, 1));
        if notify_client(&memory.places[0].slot(), 2) {
            memory.places[0].futex.wake();
        }
        other.join().unwrap();
    });
}
