// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens in a sequence, by its seed.

use super::hands::Hand;
use crate::System;
use crate::request::{Members, Request, Spec};
use asmp_host::Schedule;
use asmp_host::task::TaskId;

/// Something that happens.
#[derive(Debug, Clone)]
pub enum Event {
    Ask(Request),
    /// A request, with a hand before the n-th change that it makes.
    Disturbed(Request, usize, Hand),
    By(Hand),
}

impl Event {
    pub fn hand(&self) -> Option<&Hand> {
        match self {
            Self::Ask(_) => None,
            Self::Disturbed(_, _, hand) | Self::By(hand) => Some(hand),
        }
    }
}

/// xorshift64*: the same sequences everywhere.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

pub fn spec(cpus: &str) -> Spec {
    Spec::of(cpus.parse().unwrap())
}

/// Who makes a partition for its command, and lives on.
const OWNER: Option<TaskId> = Some(TaskId { tid: 100, start_ticks: 1100 });

fn request(dice: &mut Dice) -> Request {
    let name = dice.one(&["a", "b"]).to_owned();
    let members = |dice: &mut Dice| match dice.below(5) {
        0 => Members { irqs: vec!["ttyS0".into()], ..Members::default() },
        1 => Members { tids: vec![201], ..Members::default() },
        2 => Members { pids: vec![300], ..Members::default() },
        _ => Members { pids: vec![200], ..Members::default() },
    };
    match dice.below(25) {
        0..=5 => {
            let irqs = if dice.chance(30) { vec!["24".to_owned()] } else { Vec::new() };
            let cpus = dice.one(&["3", "2", "2-3", "1"]);
            Request::Create { name, spec: Spec { irqs, ..spec(cpus) } }
        }
        6 | 7 => Request::Destroy { name: Some(name), demote: dice.chance(50) },
        8 => Request::Destroy { name: None, demote: true },
        9 | 10 => {
            Request::Resize { name, cpus: dice.one(&["1", "2", "3", "1-2"]).parse().unwrap() }
        }
        11..=13 => Request::Add { name, members: members(dice) },
        14 => Request::Remove { name, members: members(dice), demote: dice.chance(50) },
        15 => Request::Move { from: "a".into(), to: "b".into(), members: members(dice) },
        16 => Request::Repair { name: None },
        17 => {
            let cpus = dice.one(&["1", "2", "3", "1-2"]);
            let text = format!(r#"{{"partition":[{{"name":"{name}","cpus":"{cpus}"}}]}}"#);
            Request::Apply { declaration: serde_json::from_str(&text).unwrap() }
        }
        18 => Request::System(System {
            irq_home: dice.one(&[None, Some("0-1")]).map(|cpus| cpus.parse().unwrap()),
            timerlat: None,
        }),
        19 | 20 => Request::Run { name, spec: spec(dice.one(&["3", "2", "2-3"])), owner: OWNER },
        21..=23 => Request::EndRun { name, owner: OWNER },
        _ => Request::Restore { abandon: false },
    }
}

pub fn hand(dice: &mut Dice, kind: &str) -> Hand {
    let name = dice.one(&["a", "a", "b"]);
    let tid = dice.one(&[200, 300]);
    match kind {
        "member" => Hand::Member(name),
        "exclusive" => Hand::Exclusive(name, dice.chance(50)),
        "freeze" => Hand::Freeze(name, dice.chance(50)),
        "foreign-group" => Hand::Foreign(dice.one(&[None, Some(name)])),
        "sub-group" => Hand::SubGroup(name, dice.one(&[None, Some(tid)])),
        "rmdir" => Hand::Remove(dice.one(&[
            &["a/rest"][..],
            &["a/rt"],
            &["a/rt", "a/rest", "a"],
            &["b/rt", "b/rest", "b"],
        ])),
        "hotplug" if dice.chance(50) => Hand::Offline(dice.one(&[2, 3])),
        "hotplug" => Hand::Online(dice.one(&[2, 3])),
        "lost-state" => Hand::LoseState,
        "unwritable-state" => Hand::FailState,
        "full" => Hand::Room(dice.below(4)),
        "taskset" => Hand::Taskset(tid, dice.one(&["0-3", "0", "3"])),
        "policy" => Hand::Policy(tid, Schedule::Fifo { priority: 50 }),
        "end" => Hand::End(tid),
        "move-out" => Hand::MoveOut(tid),
        "narrow-thread" => Hand::Narrow,
        "irq" => Hand::Irq(dice.one(&["0-3", "0", "3"])),
        "refuse" => Hand::Refuse(dice.one(&[libc::EINVAL, libc::EBUSY])),
        _ => Hand::Kill(dice.chance(50)),
    }
}

pub fn sequence(seed: u64) -> Vec<Event> {
    let mut dice = Dice::new(seed);
    let kinds = match dice.below(10) {
        0 => 3,
        1 | 2 => 2,
        _ => 1,
    };
    let kinds: Vec<&str> = (0..kinds).map(|_| dice.one(&Hand::KINDS)).collect();
    let mut events = vec![Event::Ask(request(&mut dice))];
    if dice.chance(70) {
        let (name, spec) = ("a".into(), spec("3"));
        events = vec![Event::Ask(match dice.chance(20) {
            true => Request::Run { name, spec, owner: OWNER },
            false => Request::Create { name, spec },
        })];
    }
    for _ in 0..2 + dice.below(6) {
        let kind = dice.one(&kinds);
        let by = hand(&mut dice, kind);
        events.push(match dice.below(10) {
            0..=4 => Event::Ask(request(&mut dice)),
            5 | 6 if !by.is_inside_only() => Event::By(by),
            _ => {
                let request = request(&mut dice);
                Event::Disturbed(request, dice.below(45), by)
            }
        });
    }
    events
}
