// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine of 24 CPUs with 20 partitions, all held by one asmpd.

use super::guests::{Boot, On};
use super::held::Daemon;
use super::lab::{Process, Test, allowed, asmp, isolated, read, test, until};
use super::others::{Machine, sh};
use super::random::judge::{self, base};
use super::watchdog;
use std::fs;
use std::time::Instant;

pub fn all() -> Vec<Test> {
    vec![
        test("large: 20 partitions of 24 cpus are made, held and ended", twenty)
            .on(On::One)
            .booted(&[Boot::Large])
            .nightly()
            .lacks(too_few),
    ]
}

fn too_few() -> Option<&'static str> {
    (read("/sys/devices/system/cpu/online") != "0-23").then_some("no guest of 24 CPUs")
}

/// Processor time of asmpd so far, in clock ticks (10 ms).
fn processor_ticks(daemon: &Daemon) -> u64 {
    let stat = read(format!("/proc/{}/stat", daemon.process.id()));
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

/// From asmpd's status.
fn looks() -> u64 {
    let status: serde_json::Value =
        serde_json::from_str(&asmp("status --json").done().out).expect("JSON");
    status["asmpd"]["counts"]["looks"].as_u64().expect("a number of looks")
}

fn twenty() {
    let machine = Machine::now();
    let began = Instant::now();
    let mut tasks = Vec::new();
    for cpu in 1..=20 {
        watchdog::goes_on();
        asmp(&format!("create p{cpu} --cpus {cpu}")).done();
        let task = Process::start("sleep", &["1000000"]);
        asmp(&format!("add p{cpu} --pid {}", task.id())).done();
        tasks.push(task);
    }
    println!("  20 partitions and tasks in {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(isolated(), "1-20");
    let daemon = Daemon::start();
    let before = (looks(), processor_ticks(&daemon));
    let began = Instant::now();
    for cpu in 1..=20 {
        watchdog::goes_on();
        let group = format!("{}/p{cpu}/rt", base());
        fs::write(format!("{group}/cpuset.cpus.partition"), "member").expect("it is dissolved");
        until("it is one again", || {
            let task = &tasks[cpu - 1];
            isolated() == "1-20" && allowed(task.id()) == cpu.to_string()
        });
    }
    let seconds = began.elapsed().as_secs_f64();
    until("all is well", || asmp("status").code == 0);
    let (looked, used) = (looks() - before.0, processor_ticks(&daemon) - before.1);
    println!(
        "  20 were dissolved and repaired in {seconds:.1} s; {looked} looks and their repairs, \
         {:.0} ms of CPU time each",
        used as f64 * 10.0 / looked as f64
    );
    let names = sh("ls /run/asmp/fs/partitions").done().out;
    assert_eq!(names.lines().count(), 20, "{names}");
    let table = asmp("top --once").done().out;
    assert_eq!(table.matches(" holds\n").count(), 20, "{table}");
    let lies = judge::lies();
    assert!(lies.is_empty(), "{lies:?}");
    let (counts, told) = daemon.ends();
    assert!(counts.repaired >= 20, "{counts:?}: {told}");
    asmp("destroy --all").done();
    drop(tasks);
    machine.is_as_it_was("after 20 partitions");
}
