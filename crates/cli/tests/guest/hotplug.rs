// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shielded CPUs that go offline and come back, again and again, with tasks inside.

use super::guests::{Boot, On, Tier};
use super::lab::{Process, Test, allowed, asmp, isolated, read, test, tier};
use super::random::hands::online;
use super::random::judge;
use super::watchdog;
use std::time::Instant;

pub fn all() -> Vec<Test> {
    let name = "a shield with tasks inside comes back each time its cpus were offline";
    vec![test(name, cycles).on(On::OnePerSeries).booted(&[Boot::Bare])]
}

/// One CPU of the partition, the other, both: in turn.
const DOWN: [&[u32]; 4] = [&[3], &[2], &[2, 3], &[3, 2]];

fn cycles() {
    let count = if tier() == Tier::Nightly { 100 } else { 5 };
    let started = Instant::now();
    asmp("create a --cpus 2-3").done();
    let tasks = [Process::start("sleep", &["100000"]), Process::start("sleep", &["100000"])];
    for task in &tasks {
        asmp(&format!("add a --pid {}", task.id())).done();
    }
    for cycle in 0..count {
        watchdog::begins(&format!("offline and online, cycle {cycle}"));
        let down = DOWN[cycle % DOWN.len()];
        for cpu in down {
            assert!(online(*cpu, false), "cycle {cycle}: CPU {cpu} goes offline");
        }
        asmp("status").code(7).says("offline");
        if cycle % 2 == 0 {
            // Nothing that a repair does now may stand in the way of the next one.
            asmp("repair").code(7).says("offline");
        }
        for cpu in down.iter().rev() {
            assert!(online(*cpu, true), "cycle {cycle}: CPU {cpu} comes back");
        }
        asmp("repair").done();
        asmp("status").done();
        let lies = judge::lies();
        assert!(lies.is_empty(), "cycle {cycle}: {lies:?}");
        assert_eq!(isolated(), "2-3", "cycle {cycle}");
        for task in &tasks {
            assert_eq!(allowed(task.id()), "2-3", "cycle {cycle}");
            let group = read(format!("/proc/{}/cgroup", task.id()));
            assert!(group.ends_with("/a/rt"), "cycle {cycle}: {group}");
        }
    }
    println!("  {count} cycles in {:.0} s", started.elapsed().as_secs_f64());
}
