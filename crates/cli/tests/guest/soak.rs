// SPDX-License-Identifier: Apache-2.0 OR MIT
//! asmpd for as long as there is time: storms of other people's hands beside stress-ng, and between
//! them a calm in which everything must be whole again. `make soak` takes half an hour.

use super::drift::tty_irq;
use super::guests::{Boot, On};
use super::held::{Daemon, median_ms};
use super::lab::{Process, Stressors, Test, allowed, asmp, isolated, read, test, until};
use super::random::hands::online;
use super::random::judge::{self, base};
use super::watchdog;
use asmp_daemon::log::MOST_KEPT;
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let soak = test("soak: asmpd loses nothing and grows by nothing under storms and load", soak);
    vec![soak.on(On::One).booted(&[Boot::Bare]).nightly()]
}

/// How long, in minutes.
fn minutes() -> u64 {
    std::env::var("ASMP_SOAK_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Those that take CPUs offline would take all.
const STRESSORS: &str = "--class interrupt,cpu,scheduler,filesystem --exclude cpu-online";

/// Memory of asmpd's own, in kB.
fn memory_kb(daemon: &Daemon) -> u64 {
    let status = read(format!("/proc/{}/status", daemon.process.id()));
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).expect("a size")
}

/// What disturbed CPU 3 in a second: devices, other tasks, ticks.
fn noise() -> [u64; 3] {
    let report: Value =
        serde_json::from_str(&asmp("noise a -t 1s --json").done().out).expect("JSON");
    let cpu = &report["cpus"]["3"];
    let sum = |counts: &Value| -> u64 {
        counts.as_object().expect("counts").values().filter_map(Value::as_u64).sum()
    };
    let ticks = cpu["ticks"].as_u64().expect("a count");
    [sum(&cpu["device_interrupts"]), sum(&cpu["foreign_switches"]), ticks]
}

fn soak() {
    asmp("create a --cpus 3").done();
    let task = Process::start("sleep", &["1000000"]);
    asmp(&format!("add a --pid {}", task.id())).done();
    let (file, daemon) = (tty_irq(), Daemon::start());
    let kind = format!("{}/a/rt/cpuset.cpus.partition", base());
    let (began, end) = (Instant::now(), Duration::from_secs(60 * minutes()));
    // After a minute, and once asmpd keeps as many events as it ever does.
    let (mut minute_kb, mut full) = (None, None);
    let (mut storms, mut broken, mut looked) = (0, 0, 0);
    while full.is_none_or(|(at, _): (Instant, u64)| at.elapsed() < end) {
        let load = Stressors::start(STRESSORS);
        let storm = Instant::now();
        while storm.elapsed() < Duration::from_secs(20) {
            watchdog::goes_on();
            let _ = fs::write(&file, ["3", "0-3"][broken % 2]);
            // In the middle of a repair a write may be refused.
            let _ = fs::write(&kind, "member");
            let _ = fs::write("/sys/fs/cgroup/cgroup.procs", task.id().to_string());
            broken += 3;
            if broken % 30 == 0 {
                online(3, false);
                online(3, true);
                broken += 1;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        drop(load);
        watchdog::goes_on();
        until("all is whole again", || {
            let is_home = allowed(task.id()) == "3" && read(&file) == "0-2" && isolated() == "3";
            is_home && asmp("status").code == 0
        });
        let lies = judge::lies();
        assert!(lies.is_empty(), "after storm {storms}: {lies:?}");
        // A timer that the storm has started may expire yet.
        let calm = |tries: &mut usize| {
            *tries += 1;
            noise() == [0, 0, 0]
        };
        until("no device, task or tick disturbs CPU 3", || calm(&mut looked));
        storms += 1;
        if minute_kb.is_none() && began.elapsed() > Duration::from_secs(60) {
            minute_kb = Some(memory_kb(&daemon));
        }
        if full.is_none() && daemon.told().lines().count() > MOST_KEPT {
            full = Some((Instant::now(), memory_kb(&daemon)));
        }
    }
    let (first, last) = (full.map_or(0, |(_, kb)| kb), memory_kb(&daemon));
    let (counts, told) = daemon.ends();
    println!(
        "  {storms} storms, {broken} breaks, calm at look {:.1}, {counts:?}, median repair {:.1} \
         ms, memory {} kB after a minute, {first} kB with all events, {last} kB at the end",
        looked as f64 / storms as f64,
        median_ms(&told),
        minute_kb.unwrap_or(0)
    );
    assert!(last * 100 <= first * 105, "asmpd had {first} kB, and has {last} kB");
    assert!(counts.repaired > storms, "{counts:?}");
    asmp("destroy a").done();
}
