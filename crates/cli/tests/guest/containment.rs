// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of time-sharing peers beside a real-time thread: `crates/rt/tests/containment`, a few of
//! each kind. `make containment` does a thousand.

use super::guests::Boot;
use super::lab::{Called, Test, asmp, called, example, read, test};
use std::process::Command;

pub fn all() -> Vec<Test> {
    let contained = |name, run: fn()| test(name, run).booted(&[Boot::Plain]).lacks(remote_timers);
    vec![
        contained(
            "contained: no period is missed and no datum is lost by 25 faults of peers",
            faults_stay_outside,
        ),
        contained("contained: a thread that waits for its peer is found out", waiting_is_found),
        contained(
            "contained: a fifo that forgets what it accepted is found out",
            forgetting_is_found,
        ),
    ]
}

/// What delays a timer on another CPU is not seen on the thread's.
fn remote_timers() -> Option<&'static str> {
    read("/sys/devices/system/cpu/nohz_full")
        .contains('3')
        .then_some("with nohz_full other CPUs serve its timer")
}

/// A period that an emulator on a busy host keeps, too.
fn containment(line: &str) -> Called {
    let words = format!("--period-ms 100 --cpu 3 --partition a {line}");
    let output = Command::new(example("containment")).args(words.split_whitespace()).output();
    called(&words, output.expect("the judge starts"))
}

fn faults_stay_outside() {
    asmp("create a --cpus 3").done();
    let report = containment("--runs 5").done().says("contained: 25 runs with a fault");
    println!("{}", report.out.trim_end());
}

fn waiting_is_found() {
    asmp("create a --cpus 3").done();
    containment("--runs 1 --wait-on-peer").code(1).says("NOT CONTAINED").says("blocked");
}

fn forgetting_is_found() {
    asmp("create a --cpus 3").done();
    containment("--runs 1 --forgetful").code(1).says("LOST:").says("reports that were accepted");
}
