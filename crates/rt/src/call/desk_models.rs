//! Every interleaving of a server and its clients, asleep or awake (`make loom`). A wake-up that is lost shows as a
//! deadlock.
use super::*;
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
    notes: AtomicU64,
    given: [AtomicU64; 2],
    futex: Futex,
}

impl Place {
    fn slot(&self) -> Slot<'_> {
        let Self { request, order, sent, answer, notes, given, .. } = self;
        Slot { request, order, sent, answer, notes, given }
    }
}

#[derive(Default)]
struct Memory {
    /// What a notification tells of.
    told: AtomicU64,
    pending: AtomicU32,
    tickets: AtomicU32,
    notes: AtomicU64,
    futex: Futex,
    places: [Place; 2],
}

impl Memory {
    fn desk(&self) -> Desk<'_> {
        Desk { pending: &self.pending, tickets: &self.tickets, notes: &self.notes }
    }

    fn callers(&self) -> [Caller; 2] {
        [0, 1].map(|index| Caller::attach(index, &self.places[index].slot()))
    }

    /// As `Client::request` without a timeout.
    fn call(&self, index: usize, caller: &mut Caller, number: u64) {
        let slot = self.places[index].slot();
        self.post(index, caller, number);
        loop {
            if let Some(outcome) = caller.outcome(&slot) {
                let Outcome::Answered(message) = outcome else { panic!("{outcome:?}") };
                assert_eq!(message[..2], [number + 100; 2]);
                return;
            }
            if let Some(expected) = caller.doze(&slot) {
                self.places[index].futex.wait(slot.answer, expected);
            }
        }
    }

    fn post(&self, index: usize, caller: &mut Caller, number: u64) {
        let slot = self.places[index].slot();
        if caller.post(&self.desk(), &slot, (EPOCH, Scheduling::Direct), Want::Call, 0, &[number; WORDS]) {
            self.futex.wake();
        }
    }

    /// As `Server::receive` without a timeout.
    fn receive(&self, clerk: &mut Clerk) -> (u64, Option<Taken>) {
        loop {
            let (bits, taken) = self.look(clerk);
            if bits != 0 || taken.is_some() {
                return (bits, taken);
            }
            if let Some(expected) = clerk.doze(&self.desk()) {
                self.futex.wait(&self.pending, expected);
            }
        }
    }

    fn look(&self, clerk: &mut Clerk) -> (u64, Option<Taken>) {
        let slot = |client: usize| self.places[client].slot();
        let bits = clerk.collect(&self.desk(), slot, |_| panic!("nobody was missed"));
        let taken = clerk.take(slot).map(|(taken, _)| taken);
        if let Some(taken) = taken {
            assert_eq!(taken.message[0], taken.message[1], "torn");
        }
        (bits, taken)
    }

    fn reply(&self, clerk: &mut Clerk, taken: Taken) {
        let slot = |client: usize| self.places[client].slot();
        let outcome = Outcome::Answered([taken.message[0] + 100; WORDS]);
        if let Some((client, true)) = clerk.finish(slot, outcome) {
            self.places[client].futex.wake();
        }
    }
}

/// Ends are attached before they part (see `ring_models`).
fn model(at_least: usize, body: impl Fn(Arc<Memory>, [Caller; 2], Clerk) + Send + Sync + 'static) {
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&executions);
    loom::model(move || {
        count.fetch_add(1, Relaxed);
        let memory = Arc::new(Memory::default());
        let callers = memory.callers();
        body(Arc::clone(&memory), callers, Clerk::new(EPOCH, Scheduling::Direct, 2));
    });
    let executions = executions.load(Relaxed);
    println!("{executions} executions");
    assert!(executions >= at_least, "{executions} executions: nothing was explored");
}

#[test]
fn a_call_after_a_call_is_answered_and_nobody_sleeps_for_ever() {
    model(100, |memory, [mut caller, _], mut clerk| {
        let theirs = Arc::clone(&memory);
        let calling = thread::spawn(move || {
            theirs.call(0, &mut caller, 1);
            theirs.call(0, &mut caller, 2);
        });
        for number in 1..=2 {
            let (_, Some(taken)) = memory.receive(&mut clerk) else { panic!("no bits were set") };
            assert_eq!(taken.message[0], number);
            memory.reply(&mut clerk, taken);
        }
        calling.join().unwrap();
    });
}

#[test]
fn two_clients_at_once_are_both_answered() {
    model(100, |memory, [mut first, mut second], mut clerk| {
        let (one, two) = (Arc::clone(&memory), Arc::clone(&memory));
        let calling = [
            thread::spawn(move || one.call(0, &mut first, 1)),
            thread::spawn(move || two.call(1, &mut second, 2)),
        ];
        for _ in 0..2 {
            let (_, Some(taken)) = memory.receive(&mut clerk) else { panic!("no bits were set") };
            assert_eq!(taken.message[0], taken.client as u64 + 1);
            memory.reply(&mut clerk, taken);
        }
        for calling in calling {
            calling.join().unwrap();
        }
    });
}

#[test]
fn a_request_is_taken_or_withdrawn_and_the_next_one_does_not_mix_with_it() {
    model(100, |memory, [mut caller, _], mut clerk| {
        let theirs = Arc::clone(&memory);
        let calling = thread::spawn(move || {
            theirs.post(0, &mut caller, 1);
            let withdrawn = caller.withdraw(&theirs.places[0].slot());
            theirs.call(0, &mut caller, 2);
            withdrawn
        });
        let mut taken = Vec::new();
        while taken.last() != Some(&2) {
            let (_, Some(next)) = memory.receive(&mut clerk) else { panic!("no bits were set") };
            taken.push(next.message[0]);
            memory.reply(&mut clerk, next);
        }
        let withdrawn = calling.join().unwrap();
        assert_eq!(taken, if withdrawn { vec![2] } else { vec![1, 2] });
    });
}

#[test]
fn notification_bits_wake_whoever_waits_for_them_and_are_seen_once() {
    model(100, |memory, [caller, mut second], mut clerk| {
        let theirs = Arc::clone(&memory);
        let other = thread::spawn(move || {
            for bit in [1, 4] {
                theirs.told.store(bit, Relaxed);
                if notify_server(&theirs.desk(), bit) {
                    theirs.futex.wake();
                }
            }
            theirs.call(1, &mut second, 7);
            let slot = theirs.places[0].slot();
            loop {
                match caller.notes(&slot) {
                    0 => (),
                    bits => break assert_eq!(bits, 2),
                }
                if let Some(expected) = caller.doze_for_notes(&slot) {
                    theirs.places[0].futex.wait(slot.answer, expected);
                }
            }
            assert_eq!(caller.notes(&slot), 0);
        });
        let (mut all, mut requests) = (0, 0);
        while all != 5 || requests == 0 {
            let (bits, taken) = memory.receive(&mut clerk);
            assert_eq!(bits & all, 0);
            assert!(memory.told.load(Relaxed) >= bits & 5 & !1, "told of before it was there");
            assert!(bits & 1 == 0 || memory.told.load(Relaxed) >= 1, "told of before it was there");
            all |= bits;
            if let Some(taken) = taken {
                requests += 1;
                memory.reply(&mut clerk, taken);
            }
        }
        assert_eq!((all, requests), (5, 1));
        if notify_client(&memory.places[0].slot(), 2) {
            memory.places[0].futex.wake();
        }
        other.join().unwrap();
    });
}
