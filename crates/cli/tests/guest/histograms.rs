// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `noise` beside another observer: the kernel's own histograms of the same events, in tracefs.
//!
//! Problem:  two windows never open at the same instant, so two counts of a busy CPU differ.
//! Approach: a partition, which is quiet. The histograms are read twice within the window of
//!           `noise` and twice around it, and what is planted begins and ends within: the counts of
//!           `noise` lie between the two, which differ by what little comes at the edges.

use super::guests::{Boot, On};
use super::lab::{Process, Test, asmp, binary, read, stressors, test, until};
use super::measure::traces;
use super::planted::clock_of_cpu_3;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn all() -> Vec<Test> {
    vec![
        test("noise counts what the kernel's histograms count, exactly", quiet)
            .on(On::RtAndNot)
            .booted(&[Boot::Bare])
            .nightly(),
        test("noise counts under load what the kernel's histograms count", loaded)
            .on(On::RtAndNot)
            .booted(&[Boot::Bare])
            .nightly(),
    ]
}

const DIR: &str = "/sys/kernel/tracing/instances/histograms";

/// An event, the field by which it is counted, and what `noise` calls it.
const EVENTS: [(&str, &str, &str); 8] = [
    ("sched/sched_switch", "next_pid", "switches"),
    ("exceptions/page_fault_user", "common_pid", "user page faults"),
    ("irq/softirq_entry", "vec", "softirqs"),
    ("irq_vectors/local_timer_entry", "vector", "ticks"),
    ("irq_vectors/reschedule_entry", "vector", "reschedules"),
    ("irq_vectors/call_function_entry", "vector", "function calls"),
    ("irq_vectors/call_function_single_entry", "vector", "function calls"),
    ("irq_vectors/irq_work_entry", "vector", "IRQ work"),
];

type Counts = BTreeMap<&'static str, u64>;

/// Histograms of CPU 3.
struct Histograms;

impl Histograms {
    fn begin() -> Self {
        fs::create_dir(DIR).expect("an instance");
        for (event, field, _) in EVENTS {
            let trigger = format!("hist:keys={field} if CPU == 3");
            fs::write(format!("{DIR}/events/{event}/trigger"), trigger).expect(event);
        }
        Self
    }

    fn counts() -> Counts {
        let mut counts = Counts::new();
        for (event, _, name) in EVENTS {
            let text = read(format!("{DIR}/events/{event}/hist"));
            // `{ next_pid:        123 } hitcount:          4`; thread 0 is the idle one.
            let rows = text.lines().filter_map(|line| line.split_once("} hitcount:"));
            let rows = rows.filter(|(key, _)| {
                name != "switches" || key.rsplit(':').next().is_some_and(|tid| tid.trim() != "0")
            });
            let sum: u64 =
                rows.map(|(_, count)| count.trim().parse::<u64>().expect("a count")).sum();
            *counts.entry(name).or_default() += sum;
        }
        counts
    }
}

impl Drop for Histograms {
    fn drop(&mut self) {
        for (event, field, _) in EVENTS {
            let trigger = format!("!hist:keys={field} if CPU == 3");
            let _ = fs::write(format!("{DIR}/events/{event}/trigger"), trigger);
        }
        let _ = fs::remove_dir(DIR);
    }
}

/// The same of a report of `noise`.
fn counts_of(cpu: &Value) -> Counts {
    let sum = |map: &str, word: &str| -> u64 {
        let all = cpu[map].as_object().expect(map).iter();
        all.filter(|(name, _)| name.to_lowercase().contains(word))
            .filter_map(|(_, count)| count.as_u64())
            .sum()
    };
    let one = |name: &str| cpu[name].as_u64().expect(name);
    let switches = sum("foreign_switches", "") + sum("kernel_switches", "") + one("own_switches");
    [
        ("switches", switches),
        ("user page faults", one("user_page_faults")),
        ("softirqs", sum("softirqs", "")),
        ("ticks", one("ticks")),
        ("reschedules", sum("ipis", "reschedul")),
        ("function calls", sum("ipis", "function call")),
        ("IRQ work", sum("ipis", "irq work")),
    ]
    .into()
}

/// What `noise` counts of the partition while this is planted, and what the histograms count within
/// its window and around it.
struct Seen {
    noise: Counts,
    within: Counts,
    around: Counts,
}

fn seen(plant: impl FnOnce()) -> Seen {
    let histograms = Histograms::begin();
    asmp("create a --cpus 3").done();
    // For what the change left to do on the CPU. A pause that is too short makes the counts differ:
    // so it is with all three.
    std::thread::sleep(Duration::from_secs(3));
    let (before, instances) = (Histograms::counts(), traces().len());
    let mut noise = Command::new(binary())
        .args(["noise", "a", "-t", "1h", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("asmp starts");
    until("it records", || traces().len() > instances);
    // Until its window opens.
    std::thread::sleep(Duration::from_secs(2));
    let first = Histograms::counts();
    plant();
    // For what that left to do.
    std::thread::sleep(Duration::from_secs(1));
    let last = Histograms::counts();
    let sent = Command::new("kill").args(["-INT", &noise.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    let mut told = String::new();
    noise.stdout.take().expect("a pipe").read_to_string(&mut told).expect("JSON");
    noise.wait().expect("it ends");
    let after = Histograms::counts();
    drop(histograms);
    asmp("destroy a").done();
    let report: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(report["lost_events"], 0, "{told}");
    let between = |begin: &Counts, end: &Counts| -> Counts {
        end.iter().map(|(name, count)| (*name, count - begin[name])).collect()
    };
    let (within, around) = (between(&first, &last), between(&before, &after));
    let noise = counts_of(&report["cpus"]["3"]);
    println!("  noise: {noise:?}\n  kernel, within: {within:?}\n  around: {around:?}");
    for (name, count) in &noise {
        assert!((within[name]..=around[name]).contains(count), "{name}");
    }
    Seen { noise, within, around }
}

fn quiet() {
    let seen = seen(|| {
        let script = "import time\nfor _ in range(500): time.sleep(0.002)\nb\"x\" * (8 << 20)";
        asmp(&format!("exec a -- python3 -c '{script}'")).done();
        let mut counter = clock_of_cpu_3(0, None);
        for _ in 0..1000 {
            let _ = counter.read(&mut [0; 64]).expect("a counter");
        }
    });
    for (name, least) in [("switches", 500), ("user page faults", 500), ("function calls", 500)] {
        assert!(seen.within[name] >= least, "{name} were not planted");
    }
    // So little comes at the edges.
    for (name, around) in &seen.around {
        assert!(around - seen.within[name] <= 20, "{name}: the partition is not quiet");
    }
    assert_eq!(seen.noise["user page faults"], seen.around["user page faults"]);
}

fn loaded() {
    let beside = Process::start("stress-ng", &["--cpu", "2", "--fork", "1", "--quiet"]);
    let seen = seen(|| {
        let load = "--switch 1 --switch-ops 20000 --fault 1 --fault-ops 20000 --quiet";
        asmp(&format!("exec a -- stress-ng {load}")).done();
    });
    drop(beside);
    until("the load has ended", || stressors() == 0);
    for name in ["switches", "user page faults"] {
        let (ours, theirs) = (seen.noise[name], seen.within[name]);
        assert!(theirs >= 20_000, "{name} were not planted");
        assert!(ours.abs_diff(theirs) * 1000 <= theirs, "{name}: {ours} and {theirs}");
    }
}
