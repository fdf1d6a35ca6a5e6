// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds for any scripts: no thread is in two places, no time is lost, and priorities
//! are kept where the policy asks for it.

use super::engine::Went;
use super::*;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) % bound
    }

    fn thread(&mut self) -> ThreadId {
        ThreadId(self.below(THREADS as u64) as usize)
    }

    fn from(&mut self) -> From {
        match self.below(4) {
            0 => From::Only(Partner::Thread(self.thread())),
            1 => From::Only(Partner::Line(LineId(self.below(2) as usize))),
            _ => From::Any,
        }
    }

    fn step(&mut self, switch_to: bool) -> Step {
        match self.below(if switch_to { 10 } else { 9 }) {
            0 => Step::WaitUntil(self.below(5000)),
            1 => Step::Send(self.thread()),
            2 => Step::Receive(self.from()),
            3 => Step::Call(self.thread()),
            4 | 5 => Step::ReplyWait,
            6 => Step::SendReceive(self.thread(), self.from()),
            7 => Step::Yield,
            8 => Step::Compute(self.below(200)),
            _ => Step::SwitchTo(self.thread()),
        }
    }
}

const THREADS: usize = 6;

fn random_cpu(policy: Policy, random: &mut Random) -> VirtualCpu {
    let mut cpu = VirtualCpu::new(policy, Costs::default());
    for _ in 0..THREADS {
        let slice_ns = (random.below(2) == 0).then(|| 50 + random.below(500));
        cpu.thread(random.below(8) as u8, slice_ns);
    }
    let lines = [(); 2].map(|()| cpu.line(random.thread()));
    for thread in (0..THREADS).map(ThreadId) {
        let switch_to = policy.mode == Mode::Direct;
        let mut steps: Vec<Step> =
            (0..1 + random.below(6)).map(|_| random.step(switch_to)).collect();
        steps.push(Step::Compute(1 + random.below(300)));
        cpu.script(thread, &steps, Then::Repeat(0)).unwrap();
    }
    (0..20).for_each(|_| cpu.interrupt_at(random.below(20_000), lines[random.below(2) as usize]));
    cpu
}

fn policies() -> [Policy; 5] {
    [
        Policy::L4_EMBEDDED,
        Policy::L4KA,
        Policy::REAL_TIME,
        Policy { mode: Mode::PriorityPreserving, ..Policy::L4_EMBEDDED },
        Policy { inheritance: true, on_send: OnSend::Receiver, ..Policy::L4KA },
    ]
}

#[test]
fn any_scripts_keep_the_books() {
    let mut random = Random(7);
    for round in 0..300 {
        let policy = policies()[round % 5];
        let mut cpu = random_cpu(policy, &mut random);
        while let Went::On = cpu.go_on(20_000).unwrap() {
            for (id, thread) in
                cpu.threads.iter().enumerate().map(|(id, thread)| (ThreadId(id), thread))
            {
                let queued = cpu.ready.iter().filter(|ready| **ready == id).count();
                let has_cpu = usize::from(cpu.current == Some(id));
                assert_eq!(
                    queued + has_cpu,
                    usize::from(thread.state == State::Ready),
                    "{round} {id:?}"
                );
                assert!(
                    thread.slice_ns.is_none_or(|slice_ns| (1..=slice_ns).contains(&thread.left_ns))
                );
                let waits = |receiver: &Thread| receiver.senders.contains(&Partner::Thread(id));
                let sends = usize::from(matches!(thread.state, State::Sending { .. }));
                assert_eq!(cpu.threads.iter().filter(|receiver| waits(receiver)).count(), sends);
            }
            if let Some(current) = cpu.current.filter(|_| policy.mode == Mode::PriorityPreserving) {
                let above = |thread: &&ThreadId| cpu.priority(**thread) > cpu.priority(current);
                assert_eq!(
                    cpu.ready.iter().find(above),
                    None,
                    "{round}: {current:?} runs below it"
                );
            }
        }
        let ran_ns: u64 = cpu.threads.iter().map(|thread| thread.ran_ns).sum();
        assert_eq!(ran_ns + cpu.counts().idle_ns, 20_000, "{round}");
    }
}

#[test]
fn any_scripts_give_the_same_trace_twice() {
    for seed in 0..50 {
        let run = || {
            let mut cpu = random_cpu(policies()[seed as usize % 5], &mut Random(seed));
            cpu.run_until(20_000).unwrap();
            cpu.trace().to_vec()
        };
        assert_eq!(run(), run());
    }
}

#[test]
fn the_timer_of_a_sleep_that_was_cut_short_does_not_end_the_next() {
    use crate::executive::Clock;
    use std::cell::RefCell;

    let cpu = RefCell::new(VirtualCpu::new(Policy::REAL_TIME, Costs::default()));
    let caller = Caller::new(&cpu, 1, Latency::default());
    let flags = Arc::new(Flags::new(1));
    cpu.borrow_mut().flag_at(5, &flags, 0);
    let clock = |until_ns| {
        (&caller).wait(until_ns, &flags);
        flags.take(0);
        (&caller).now_ns()
    };
    assert_eq!([clock(10), clock(20)], [5, 20]);
}
