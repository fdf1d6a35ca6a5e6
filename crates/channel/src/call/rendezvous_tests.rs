// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hand-off without threads: order, replays, and whatever an enemy writes.
use super::*;

#[derive(Default)]
struct Place {
    request: AtomicU64,
    order: AtomicU64,
    sent: [AtomicU64; WORDS],
    answer: AtomicU32,
    notifications: AtomicU64,
    reply: [AtomicU64; WORDS],
}

#[derive(Default)]
struct Memory {
    pending: AtomicU32,
    tickets: AtomicU32,
    notifications: AtomicU64,
    places: [Place; 6],
}

const EPOCH: u32 = 7;

impl Memory {
    fn rendezvous(&self) -> Rendezvous<'_> {
        Rendezvous {
            pending: &self.pending,
            tickets: &self.tickets,
            notifications: &self.notifications,
        }
    }

    fn slot(&self, client: usize) -> Slot<'_> {
        let Place { request, order, sent, answer, notifications, reply } = &self.places[client];
        Slot { request, order, sent, answer, notifications, reply }
    }

    fn callers(&self) -> [ClientEnd; 6] {
        std::array::from_fn(|index| ClientEnd::attach(index, &self.slot(index)))
    }

    fn post(
        &self,
        callers: &mut [ClientEnd; 6],
        client: usize,
        scheduling: Scheduling,
        priority: u32,
    ) {
        let (slot, message) = (self.slot(client), [client as u64; WORDS]);
        callers[client].post(
            &self.rendezvous(),
            &slot,
            (EPOCH, scheduling),
            Want::Call,
            priority,
            &message,
        );
    }

    fn collect(&self, end: &mut ServerEnd) -> Vec<usize> {
        let mut again = Vec::new();
        end.collect(&self.rendezvous(), |client| self.slot(client), |client| again.push(client));
        again
    }

    fn serve_all(&self, end: &mut ServerEnd) -> Vec<usize> {
        let mut order = Vec::new();
        self.collect(end);
        while let Some((taken, _)) = end.take(|client| self.slot(client)) {
            assert_eq!(taken.message, [taken.client as u64; WORDS]);
            let finished = end.finish(|client| self.slot(client), Outcome::Answered(taken.message));
            assert_eq!(finished, Some((taken.client, false)));
            order.push(taken.client);
            self.collect(end);
        }
        order
    }
}

#[test]
fn the_highest_priority_is_served_first_and_among_equals_the_one_that_came_first() {
    let memory = Memory::default();
    let mut callers = memory.callers();
    let mut end = ServerEnd::new(EPOCH, Scheduling::Full, 6);
    // Just before tickets wrap around.
    memory.tickets.store(u32::MAX - 1, Relaxed);
    for (client, priority) in [(4, 1), (2, 1), (5, 2), (0, 1), (1, 3)] {
        memory.post(&mut callers, client, Scheduling::Full, priority);
    }
    assert_eq!(memory.serve_all(&mut end), [1, 5, 4, 2, 0]);
    // Those that were seen waiting come before equals that come later, whatever their tickets say.
    memory.post(&mut callers, 3, Scheduling::Full, 1);
    memory.collect(&mut end);
    memory.tickets.store(0, Relaxed);
    memory.post(&mut callers, 0, Scheduling::Full, 1);
    assert_eq!(memory.serve_all(&mut end), [3, 0]);
}

#[test]
fn a_late_comer_of_higher_priority_waits_for_one_service_at_most() {
    let memory = Memory::default();
    let mut callers = memory.callers();
    let mut end = ServerEnd::new(EPOCH, Scheduling::Full, 6);
    for client in 0..4 {
        memory.post(&mut callers, client, Scheduling::Full, 1);
    }
    memory.collect(&mut end);
    assert_eq!(end.take(|client| memory.slot(client)).unwrap().0.client, 0);
    memory.post(&mut callers, 5, Scheduling::Full, 9);
    end.finish(|client| memory.slot(client), Outcome::Unanswered);
    assert_eq!(memory.serve_all(&mut end), [5, 1, 2, 3]);
}

#[test]
fn a_claim_above_the_ceiling_counts_as_the_ceiling() {
    let memory = Memory::default();
    let mut callers = memory.callers();
    let mut end = ServerEnd::new(EPOCH, Scheduling::Full, 6);
    end.ceilings[3] = 1;
    for (client, priority) in [(3, u32::MAX), (4, 2)] {
        memory.post(&mut callers, client, Scheduling::Full, priority);
    }
    assert_eq!(memory.serve_all(&mut end), [4, 3]);
}

#[test]
fn direct_goes_slot_after_slot_and_starves_nobody() {
    let memory = Memory::default();
    let mut callers = memory.callers();
    let mut end = ServerEnd::new(EPOCH, Scheduling::Direct, 6);
    for client in [4, 0, 2] {
        memory.post(&mut callers, client, Scheduling::Direct, client as u32);
    }
    memory.collect(&mut end);
    assert_eq!(end.take(|client| memory.slot(client)).unwrap().0.client, 2);
    end.finish(|client| memory.slot(client), Outcome::Unanswered);
    memory.post(&mut callers, 0, Scheduling::Direct, 0);
    memory.post(&mut callers, 2, Scheduling::Direct, 0);
    assert_eq!(memory.serve_all(&mut end), [4, 0, 2]);
}

#[test]
fn what_is_posted_again_is_answered_again_and_not_served_again() {
    let memory = Memory::default();
    let mut callers = memory.callers();
    let mut end = ServerEnd::new(EPOCH, Scheduling::Full, 6);
    memory.post(&mut callers, 1, Scheduling::Full, 0);
    callers[1].repost(&memory.rendezvous());
    assert_eq!(memory.serve_all(&mut end), [1]);
    let posted = callers[1].posted;
    for replay in [memory.places[1].request.load(Relaxed), posted] {
        memory.places[1].request.store(replay, Relaxed);
        memory.places[1].answer.store(0x3fff_ffff, Relaxed);
        memory.places[1].reply[0].store(99, Relaxed);
        callers[1].repost(&memory.rendezvous());
        assert_eq!(memory.collect(&mut end), [1]);
        assert_eq!(callers[1].outcome(&memory.slot(1)), Some(Outcome::Answered([1; WORDS])));
        assert_eq!(memory.serve_all(&mut end), [] as [usize; 0]);
    }
}

#[test]
fn a_request_to_an_earlier_server_is_not_served() {
    let memory = Memory::default();
    let mut callers = memory.callers();
    memory.post(&mut callers, 1, Scheduling::Full, 0);
    let mut end = ServerEnd::new(EPOCH + 1, Scheduling::Full, 6);
    assert_eq!(memory.serve_all(&mut end), [] as [usize; 0]);
}

#[test]
fn a_client_that_takes_a_slot_over_gets_no_answer_meant_for_the_one_before() {
    let memory = Memory::default();
    let mut callers = memory.callers();
    let mut end = ServerEnd::new(EPOCH, Scheduling::Full, 6);
    memory.post(&mut callers, 1, Scheduling::Full, 0);
    memory.collect(&mut end);
    let taken = end.take(|client| memory.slot(client)).unwrap().0;
    let mut callers = memory.callers();
    memory.post(&mut callers, 1, Scheduling::Full, 0);
    end.finish(|client| memory.slot(client), Outcome::Answered(taken.message));
    assert_eq!(callers[1].outcome(&memory.slot(1)), None);
    assert_eq!(memory.serve_all(&mut end), [1]);
    assert_eq!(callers[1].outcome(&memory.slot(1)), Some(Outcome::Answered([1; WORDS])));
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn whatever_an_enemy_writes_each_step_ends_and_afterwards_all_are_served() {
    let rounds = if cfg!(miri) { 300 } else { 200_000 };
    for scheduling in [Scheduling::Full, Scheduling::Direct] {
        let memory = Memory::default();
        let mut callers = memory.callers();
        let mut end = ServerEnd::new(EPOCH, scheduling, 6);
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..rounds {
            let client = (random(&mut state) % 6) as usize;
            let place = &memory.places[client];
            let value = match random(&mut state) % 4 {
                0 => random(&mut state),
                1 => u64::MAX,
                2 => place.request.load(Relaxed) ^ (1 << (random(&mut state) % 64)),
                _ => u64::from(EPOCH) << 32 | (random(&mut state) % 64),
            };
            match random(&mut state) % 12 {
                0 => memory.pending.store(value as u32, Relaxed),
                1 => memory.tickets.store(value as u32, Relaxed),
                2 => memory.notifications.store(value, Relaxed),
                3 | 4 => place.request.store(value, Relaxed),
                5 => place.order.store(value, Relaxed),
                6 => place.answer.store(value as u32, Relaxed),
                7 => _ = callers[client].withdraw(&memory.slot(client)),
                8 => memory.post(&mut callers, client, scheduling, value as u32),
                9 => {
                    _ = (
                        callers[client].outcome(&memory.slot(client)),
                        end.announce_sleep(&memory.rendezvous()),
                    )
                }
                _ => {
                    memory.collect(&mut end);
                    if let Some((taken, _)) = end.take(|client| memory.slot(client)) {
                        assert!(taken.client < 6);
                    }
                    end.finish(|client| memory.slot(client), Outcome::Unanswered);
                }
            }
        }
        // Whatever is still around is served or dropped; then each is served once.
        while end.take(|client| memory.slot(client)).is_some() {}
        memory.collect(&mut end);
        while end.take(|client| memory.slot(client)).is_some() {}
        end.finish(|client| memory.slot(client), Outcome::Unanswered);
        let mut callers = memory.callers();
        for client in 0..6 {
            memory.post(&mut callers, client, scheduling, 0);
        }
        let mut order = memory.serve_all(&mut end);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }
}
