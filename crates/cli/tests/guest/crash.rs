// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kill -9` at every step: the unmodified binary is killed at the n-th system call that changes
//! anything; `asmp restore` must then bring back every byte. And SIGINT there, to asmp alone, after
//! which the command itself must have done so.

use super::guests::{Architecture, Boot, Kernel, On, Tier};
use super::killer;
use super::lab::{
    Process, Test, allowed, asmp, binary, console, guest, isolated, test, tier, until,
};
use super::lost::inside;
use super::others::{Machine, sh};
use super::snapshot::{Snapshot, settled, snapshot};
use super::watchdog;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

pub fn all() -> Vec<Test> {
    let killed = |name, run: fn()| {
        let test = test(name, run).on(On::OnePerSeries).booted(&[Boot::Bare]);
        test.also_on_arm64(Tier::Nightly)
    };
    vec![
        killed("a create killed at any step is undone by restore", create_killed),
        killed("a destroy killed at any step is undone by restore", destroy_killed),
        killed(
            "a create or destroy that gets a SIGINT is carried out whole or undone",
            interrupted,
        ),
        killed("a run that gets a SIGTERM leaves nothing", run_interrupted),
        test("a create whose group is killed under systemd is undone by restore", group_killed)
            .on(On::One)
            .booted(&[Boot::Systemd])
            .nightly(),
        test("what a killed unit leaves of a create or a run is named and restored", unit_killed)
            .on(On::One)
            .booted(&[Boot::Systemd]),
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

/// Every how many-th step is killed: `newest` on the newest kernel, `other` on others, each one
/// nightly; on arm64 every fourth.
fn stride(newest: usize, other: usize) -> usize {
    let guest = guest();
    match (tier(), guest.map(|guest| guest.kernel)) {
        _ if guest.is_some_and(|guest| guest.architecture == Architecture::Arm64) => 4,
        (Tier::Nightly, _) => 1,
        (Tier::Ci, Some(Kernel::SidRt)) => newest,
        (Tier::Ci, _) => other,
    }
}

const CREATE: &str = "create a --cpus 2-3 --irq ttyS0 --irq-priority 70";

fn create_killed() {
    // The fake dies at each step in every run; here each one nightly.
    each_step(|| {}, CREATE);
}

fn destroy_killed() {
    // Few of the steps in CI: the ways back are the same as those of create.
    each_step(|| drop(asmp(CREATE).done()), "destroy a");
}

/// With systemctl and systemd-run, which it waits for.
fn group_killed() {
    each_step_by(killer::group_killed_at, 5, || {}, CREATE);
}

const UNIT: &str = "/sys/fs/cgroup/system.slice/asmp-killed.scope";

/// Starts asmp in a scope of its own.
fn in_unit(line: &str) -> Process {
    let asmp = binary().display().to_string();
    let words = ["--quiet", "--scope", "--unit=asmp-killed", asmp.as_str()];
    Process::start("systemd-run", &words.into_iter().chain(line.split(' ')).collect::<Vec<_>>())
}

/// As systemd ends a unit (KillMode=control-group), at once.
fn kill_unit(mut started: Process) {
    fs::write(format!("{UNIT}/cgroup.kill"), "1").expect("SIGKILL");
    let status = started.0.wait().expect("it ends");
    assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
    until("the scope is gone", || !fs::exists(UNIT).unwrap_or(true));
}

fn unit_killed() {
    let machine = Machine::now();
    let create = in_unit("create a --cpus 3 --tick require-off");
    until("its ticks are counted", || isolated() == "3");
    kill_unit(create);
    assert!(fs::exists("/run/asmp/journal").expect("/run/asmp"));
    asmp("status").code(7).says("cut short");
    asmp("restore").done();
    asmp("status").done();
    machine.is_as_it_was("create");
    let run = in_unit("run --cpus 3 --name a -- sleep 1000");
    until("the command runs", || inside("sleep").is_some());
    let task = inside("sleep").expect("it runs");
    kill_unit(run);
    // It is in the partition, and so in no unit of its own.
    assert_eq!(allowed(task), "3");
    asmp("status").code(7).says("killed before it could clean up");
    asmp("restore").done();
    asmp("status").done();
    assert_eq!(allowed(task), "0-3");
    sh(&format!("kill {task}")).done();
    until("it has ended", || !fs::exists(format!("/proc/{task}")).unwrap_or(true));
    machine.is_as_it_was("run");
}

/// Kills the command at one step after the other, and compares the machine after a restore.
fn each_step(prepare: impl Fn(), line: &str) {
    each_step_by(killer::killed_at, stride(6, 8), prepare, line);
}

fn each_step_by(
    kill: fn(usize, &mut Command) -> bool,
    stride: usize,
    prepare: impl Fn(),
    line: &str,
) {
    let before = snapshot();
    let mut kills = 0;
    for n in (1..).step_by(stride) {
        watchdog::goes_on();
        prepare();
        let line = line.replace("ttyS0", console());
        let killed = kill(n, Command::new(binary()).args(line.split(' ')));
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

fn interrupted() {
    let untouched = snapshot();
    interrupt_each(&untouched, CREATE, "destroy a");
    asmp(CREATE).done();
    let (with_a, _) = settled(&untouched);
    interrupt_each(&with_a, "destroy a", CREATE);
    asmp("destroy a").done();
}

/// Interrupts the command at some steps: the machine is as it was, or the command was done and
/// `back` takes it back. (`a_signal_between_any_two_steps_undoes_the_change` of shield tries each.)
fn interrupt_each(before: &Snapshot, line: &str, back: &str) {
    let (mut undone, mut carried_out) = (0, 0);
    for n in (1..).step_by(2 * stride(8, 6)) {
        watchdog::goes_on();
        let words = line.replace("ttyS0", console());
        let mut command = Command::new(binary());
        let (came, status) = killer::signalled_at(n, libc::SIGINT, command.args(words.split(' ')));
        // It ends by the signal; or as usual, where that came at its last breath or not at all.
        let by_signal = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGINT;
        assert!(by_signal || libc::WIFEXITED(status), "{line} at {n}: status {status:#x}");
        assert!(by_signal || libc::WEXITSTATUS(status) == 0, "{line} at {n}: status {status:#x}");
        let is_made = asmp("status").done().out.contains("a: CPU 2-3");
        if is_made == (line == CREATE) {
            carried_out += 1;
            asmp(back).done();
        } else {
            assert!(by_signal, "{line} at {n} did nothing");
            undone += 1;
        }
        let (_, changed) = settled(before);
        assert!(changed.is_empty(), "{line} interrupted at {n}:\n{}", changed.join("\n"));
        asmp("status").done();
        if !came {
            break;
        }
    }
    println!("{line}: {undone} undone, {carried_out} carried out");
    assert!(undone > 3, "only {undone} of {line} were interrupted");
}

fn run_interrupted() {
    let untouched = snapshot();
    let mut ended = 0;
    for n in (1..).step_by(2 * stride(8, 6)) {
        watchdog::goes_on();
        let mut command = Command::new(binary());
        let run = command.args(["run", "--cpus", "3", "--", "true"]);
        let (came, status) = killer::signalled_at(n, libc::SIGTERM, run);
        assert!(libc::WIFEXITED(status), "at {n}: status {status:#x}");
        let code = libc::WEXITSTATUS(status);
        assert!([0, 128 + libc::SIGTERM].contains(&code), "at {n}: exit code {code}");
        ended += usize::from(code != 0);
        let (_, changed) = settled(&untouched);
        assert!(changed.is_empty(), "SIGTERM at {n}:\n{}", changed.join("\n"));
        asmp("status").done();
        if !came {
            break;
        }
    }
    println!("{ended} runs ended");
    assert!(ended > 3, "only {ended} runs were ended");
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
