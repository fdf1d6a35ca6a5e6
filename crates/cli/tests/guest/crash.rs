// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kill -9` at every step: the unmodified binary is killed at the n-th system call that changes
//! anything; `asmp restore` must then bring back every byte.

use super::guests::{Architecture, Boot, Kernel, On, Tier};
use super::killer;
use super::lab::{Test, asmp, binary, console, guest, test, tier};
use super::snapshot::{settled, snapshot};
use super::watchdog;
use std::process::Command;

pub fn all() -> Vec<Test> {
    let killed = |name, run: fn()| {
        let test = test(name, run).on(On::OnePerSeries).booted(&[Boot::Bare]);
        test.also_on_arm64(Tier::Nightly)
    };
    vec![
        killed("a create killed at any step is undone by restore", create_killed),
        killed("a destroy killed at any step is undone by restore", destroy_killed),
        test(
            "an interrupted change is undone by the next one and leaves the others",
            next_change_recovers,
        ),
    ]
}

/// Runs asmp and kills it at the n-th call that changes something. False: it ended by itself.
fn killed_at(n: usize, line: &str) -> bool {
    let line = line.replace("ttyS0", console());
    killer::killed_at(n, Command::new(binary()).args(line.split(' ')))
}

/// Every how many-th step is killed: `newest` on the newest kernel, every fourth on others, each
/// one nightly; on arm64 every fourth.
fn stride(newest: usize) -> usize {
    let guest = guest();
    match (tier(), guest.map(|guest| guest.kernel)) {
        _ if guest.is_some_and(|guest| guest.architecture == Architecture::Arm64) => 4,
        (Tier::Nightly, _) => 1,
        (Tier::Ci, Some(Kernel::SidRt)) => newest,
        (Tier::Ci, _) => 4,
    }
}

const CREATE: &str = "create a --cpus 2-3 --irq ttyS0 --irq-priority 70";

fn create_killed() {
    // The fake dies at each step in every run; here each one nightly.
    each_step(|| {}, CREATE);
}

fn destroy_killed() {
    // Every third step: the ways back are the same as those of create.
    each_step(|| drop(asmp(CREATE).done()), "destroy a");
}

/// Kills the command at one step after the other, and compares the machine after a restore.
fn each_step(prepare: impl Fn(), line: &str) {
    let before = snapshot();
    let stride = stride(3);
    let mut kills = 0;
    for n in (1..).step_by(stride) {
        watchdog::goes_on();
        prepare();
        let killed = killed_at(n, line);
        asmp("restore").done();
        let (_, changed) = settled(&before);
        assert!(changed.is_empty(), "killed at {n}:\n{}", changed.join("\n"));
        if !killed {
            break;
        }
        kills += 1;
    }
    println!("{kills} kills, one in {stride} steps");
    assert!(kills > 60 / stride, "only {kills} kills");
}

fn next_change_recovers() {
    asmp("create a --cpus 3").done();
    let with_a = snapshot();
    assert!(killed_at(40, "create b --cpus 2"), "killed in the middle");
    asmp("status").code(7).says("cut short");
    asmp("create c --cpus 1").done().says("first undid");
    asmp("destroy c").done();
    let (_, changed) = settled(&with_a);
    assert!(changed.is_empty(), "{}", changed.join("\n"));
    asmp("status").done().says("a: CPU 3");
}
