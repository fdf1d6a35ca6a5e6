// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each hand of a list before each single step of each kind of change: what `status` says is held
//! against the kernel then, and the machine after a last `restore` against its snapshot. The random
//! sequences beside this meet few of these pairs, with more hands.

use super::hands::Hand;
use super::{Event, Run, spec};
use crate::request::{Members, Request};
use asmp_host::Schedule;

fn create(name: &str, cpus: &str) -> Request {
    Request::Create { name: name.into(), spec: spec(cpus) }
}

fn add(tid: i32) -> Request {
    let members = Members { pids: vec![tid], ..Members::default() };
    Request::Add { name: "a".into(), members }
}

/// What was done before, and then the change.
fn changes() -> Vec<(Vec<Request>, Request)> {
    let resize = |cpus: &str| Request::Resize { name: "a".into(), cpus: cpus.parse().unwrap() };
    let destroy = Request::Destroy { name: Some("a".into()), demote: false };
    let apply = r#"{"partition":[{"name":"a","cpus":"2-3"}]}"#;
    let apply = Request::Apply { declaration: serde_json::from_str(apply).unwrap() };
    let made = || vec![create("a", "3"), add(200)];
    vec![
        (vec![], create("a", "3")),
        (vec![create("b", "2")], create("a", "3")),
        (vec![create("a", "3")], add(200)),
        (made(), resize("2-3")),
        (vec![create("a", "2-3"), add(200)], resize("3")),
        (made(), apply),
        (made(), destroy.clone()),
        (vec![create("a", "3"), create("b", "2"), add(200)], destroy),
        (made(), Request::Repair { name: None }),
        (made(), Request::Restore { abandon: false }),
    ]
}

const HANDS: [Hand; 14] = [
    Hand::Offline(3),
    Hand::Offline(2),
    Hand::Member("a"),
    Hand::Exclusive("a", true),
    Hand::Exclusive("a", false),
    Hand::Freeze("a", true),
    Hand::SubGroup("a", None),
    Hand::SubGroup("a", Some(200)),
    Hand::Taskset(300, "3"),
    Hand::Policy(200, Schedule::Fifo { priority: 50 }),
    Hand::End(200),
    Hand::MoveOut(200),
    Hand::Irq("3"),
    Hand::LoseState,
];

#[test]
fn what_others_do_at_any_step_of_a_change_is_told_and_undone() {
    let mut runs = 0;
    let mut wrong = Vec::new();
    for (before, request) in changes() {
        for hand in &HANDS {
            for at in 0.. {
                let mut run = Run::new(false);
                before.iter().for_each(|request| run.happen(&Event::Ask(request.clone())));
                run.happen(&Event::Disturbed(request.clone(), at, hand.clone()));
                if !run.came {
                    break;
                }
                run.end();
                let found = run.wrong.into_iter();
                wrong.extend(found.map(|(what, words)| {
                    format!("{request:?} after {before:?}, {hand:?} at {at}: {what}: {words}")
                }));
                runs += 1;
            }
        }
    }
    println!("{runs} runs");
    assert!(wrong.is_empty(), "{} of {runs} runs:\n{}", wrong.len(), wrong.join("\n"));
    assert!(runs > 1500, "only {runs} runs");
}
