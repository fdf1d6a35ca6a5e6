// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shielded CPUs that go offline and come back, again and again, with tasks inside; and those of a
//! partition that is just made or ended, between two steps of that.

use super::guests::{Boot, On, Tier};
use super::killer::{self, Stopped};
use super::lab::{Process, Test, allowed, asmp, binary, isolated, read, test, tier};
use super::random::hands::online;
use super::random::judge;
use super::snapshot::{settled, snapshot};
use super::watchdog;
use std::process::Command;
use std::time::Instant;

pub fn all() -> Vec<Test> {
    let name = "a shield with tasks inside comes back each time its cpus were offline";
    vec![
        test(name, cycles).on(On::OnePerSeries).booted(&[Boot::Bare]),
        test("a cpu that leaves between two steps of create or destroy comes back whole", steps)
            .on(On::OnePerSeries)
            .booted(&[Boot::Bare])
            .nightly(),
    ]
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

const CREATE: &str = "create a --cpus 2-3";

/// One in so many steps is met. (`steps.rs` of shield has each, on the fake.)
const STRIDE: usize = 7;

fn steps() {
    let started = Instant::now();
    let created = each_step(|| {}, CREATE);
    let destroyed = each_step(|| drop(asmp(CREATE).done()), "destroy a");
    println!(
        "  {created} steps of create, {destroyed} of destroy in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    assert!(created > 5 && destroyed > 5);
}

/// CPU 3 goes offline before a step of the command, and comes back before the same step or after
/// the command, in turn.
fn each_step(prepare: impl Fn(), line: &str) -> usize {
    let before = snapshot();
    let mut met = 0;
    for (turn, n) in (1..).step_by(STRIDE).enumerate() {
        watchdog::goes_on();
        prepare();
        let mut left = false;
        let meet = |call, stopped: &Stopped| {
            if call >= n && !left && !is_of_machine_checks(stopped) {
                left = online(3, false);
                assert!(left && (turn % 2 == 1 || online(3, true)), "{line} at {n}: CPU 3");
            }
            true
        };
        let mut command = Command::new(binary());
        let (_, status) = killer::at_each_call(command.args(line.split(' ')), meet);
        let when = format!("{line} at {n}, turn {turn}, status {status:#x}");
        assert!(libc::WIFEXITED(status), "{when}");
        // Refused; violated or not given back, both of which it says.
        assert!([0, 3, 6, 7, 21].contains(&libc::WEXITSTATUS(status)), "{when}");
        let lies = judge::lies();
        assert!(lies.is_empty(), "{when}: {lies:?}");
        assert!(online(3, true), "{when}: CPU 3 comes back");
        asmp("repair").done();
        asmp("status").done();
        asmp("restore").done();
        let (_, changed) = settled(&before);
        assert!(changed.is_empty(), "{when}:\n{}", changed.join("\n"));
        if !left {
            break;
        }
        met += 1;
    }
    met
}

/// Hotplug beside this write makes kernels hang (LIMITS.md, "CPU hotplug, machine checks").
fn is_of_machine_checks(stopped: &Stopped) -> bool {
    stopped.file().is_some_and(|file| file.ends_with("check_interval"))
}
