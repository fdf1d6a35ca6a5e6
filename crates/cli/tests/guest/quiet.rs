// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A minute of a busy task on a shielded CPU, on a kernel that was not told to trust its clock.
//!
//! Problem:  the lab boots with `tsc=reliable`, because an emulator's clocks drift apart on a busy
//!           host. Most machines do not, and a kernel that watches its clock sends a timer round.
//! Approach: boot without it (`watched`), count for a minute, and let the kernel's own trace name
//!           each timer that expired there. Zeros, or `asmp check` names the source and a cure.

use super::guests::{Boot, On};
use super::lab::{Process, Test, asmp, binary, guest, read, test, until};
use super::measure::traces;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn all() -> Vec<Test> {
    let name = "shielded a busy loop has no tick for long or each disturbance has a name";
    vec![
        test(name, minute).on(On::OneThenAll).booted(&[Boot::Bare, Boot::Watched]),
        test("noise counts a task whose name has line breaks", line_breaks)
            .on(On::RtAndNot)
            .booted(&[Boot::Bare]),
        test("noise names a task that never leaves the cpu and says how long it ran", never_leaves)
            .on(On::RtAndNot)
            .booted(&[Boot::Bare]),
        test("noise ended by a signal prints its counts and leaves no trace instance", ended)
            .on(On::One)
            .booted(&[Boot::Bare]),
        test("noise on a terminal counts from the beginning without a gap", on_a_terminal)
            .on(On::One)
            .booted(&[Boot::Bare]),
    ]
}

fn never_leaves() {
    let spin = binary().display().to_string();
    let task = Process::start("taskset", &["-c", "3", &spin, "spin", "600000"]);
    let name = format!("asmp/{}", task.id());
    until("it spins", || read(format!("/proc/{}/comm", task.id())) == "asmp");
    let report = asmp("noise --cpus 3 -t 2s --json").done().out;
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let (cpu, whole_ns) = (&report["cpus"]["3"], report["duration_ns"].as_u64().expect("a time"));
    let ran_ns = cpu["foreign_ns"][&name].as_u64().expect("it ran");
    assert!(ran_ns > whole_ns / 2, "{ran_ns} of {whole_ns} ns: {cpu}");
    assert!(cpu["foreign_switches"][&name].as_u64() >= Some(1), "{cpu}");
    let sum = |map: &str| -> u64 {
        cpu[map].as_object().expect("a map").values().filter_map(Value::as_u64).sum()
    };
    let others =
        ["own_ns", "idle_ns", "unknown_ns"].map(|name| cpu[name].as_u64().expect("a time"));
    let all_ns = sum("foreign_ns") + sum("kernel_ns") + others.iter().sum::<u64>();
    assert_eq!(all_ns, whole_ns, "no time is lost: {cpu}");
    asmp("noise --cpus 3 --table").done().says(&name).says("foreign tasks ran, us");
}

fn ended() {
    let before = traces();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut noise = Command::new(binary())
            .args(["noise", "--cpus", "3", "-t", "1h", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("asmp starts");
        until("it records", || traces().len() > before.len());
        // The signal is to come between two of its looks, which are a second apart.
        std::thread::sleep(Duration::from_secs(2));
        let words = [format!("-{signal}"), noise.id().to_string()];
        assert!(Command::new("kill").args(words).status().expect("kill starts").success());
        let mut told = String::new();
        noise.stdout.take().expect("a pipe").read_to_string(&mut told).expect("JSON");
        assert_eq!(noise.wait().expect("it ends").code(), Some(code), "{signal}");
        let report: Value = serde_json::from_str(&told).expect("JSON");
        assert!(report["duration_ns"].as_u64() > Some(0), "{signal}: {report}");
        assert_eq!(traces(), before, "{signal}: trace instances");
    }
}

fn on_a_terminal() {
    let task = Process::start("taskset", &["-c", "3", "sh", "-c", "while :; do sleep 0.02; done"]);
    let line = format!("{} noise --cpus 3 -t 4s", binary().display());
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script starts");
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let screens: Vec<&str> = text.split("\x1b[H\x1b[J").collect();
    let number = |screen: &str, begins: &str, word: usize| -> f64 {
        let line = screen.lines().find(|line| line.contains(begins));
        let line = line.unwrap_or_else(|| panic!("no {begins:?} in {text}"));
        line.split_whitespace().nth(word).and_then(|word| word.parse().ok()).expect("a number")
    };
    let seconds: Vec<f64> = screens.iter().map(|screen| number(screen, " s, kernel ", 0)).collect();
    let switches: Vec<f64> =
        screens.iter().map(|screen| number(screen, "switches to foreign tasks", 4)).collect();
    assert!(seconds.len() >= 3 && seconds.is_sorted(), "{seconds:?}");
    assert!(switches.is_sorted() && switches.last() > switches.first(), "{switches:?}");
    // A window of its own each second would have one.
    assert!(seconds.last() >= Some(&4.0), "{seconds:?}");
    drop(task);
}

/// The kernel prints the name of a task as it is into the trace that noise reads.
fn line_breaks() {
    let sleeps = r"printf 'a\nb' >/proc/$$/comm; while :; do sleep 0.02; done";
    let task = Process::start("taskset", &["-c", "3", "sh", "-c", sleeps]);
    let pid = task.0.id();
    until("it has its name", || read(format!("/proc/{pid}/comm")).starts_with("a\nb"));
    let report = asmp("noise --cpus 3 -t 2s --json").done().out;
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["lost_events"], 0);
    let switches = &report["cpus"]["3"]["foreign_switches"];
    let count = switches[format!("a\nb/{pid}")].as_u64();
    assert!(count.is_some_and(|count| count >= 5), "{switches}");
}

/// An instance of tracefs that records which timers expire on CPU 3.
struct Timers;

const INSTANCE: &str = "/sys/kernel/tracing/instances/quiet";

impl Timers {
    fn begin() -> Self {
        let set = |file: &str, text: &str| {
            fs::write(format!("{INSTANCE}/{file}"), text)
                .unwrap_or_else(|error| panic!("{file}: {error}"));
        };
        fs::create_dir(INSTANCE).expect("an instance");
        set("tracing_cpumask", "8");
        set("events/timer/timer_expire_entry/enable", "1");
        set("events/timer/hrtimer_expire_entry/enable", "1");
        Self
    }

    fn clear() {
        fs::write(format!("{INSTANCE}/trace"), "").expect("the trace is emptied");
    }

    /// How often each function of a timer was called.
    fn names() -> BTreeMap<String, u64> {
        let mut names = BTreeMap::new();
        for line in read(format!("{INSTANCE}/trace")).lines() {
            let Some((_, function)) = line.split_once(" function=") else { continue };
            let function = function.split_whitespace().next().unwrap_or_default();
            *names.entry(function.to_owned()).or_default() += 1;
        }
        names
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        for event in ["timer", "hrtimer"] {
            let _ = fs::write(format!("{INSTANCE}/events/timer/{event}_expire_entry/enable"), "0");
        }
        let _ = fs::remove_dir(INSTANCE);
    }
}

fn names(counts: &Value) -> Vec<String> {
    counts
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, count)| format!("{name} {count}"))
        .collect()
}

fn minute() {
    let watched = guest().is_some_and(|guest| guest.boot == Boot::Watched);
    let reliable = read("/proc/cmdline").contains("tsc=reliable");
    assert_eq!(reliable, !watched, "the guest is booted as its name says");
    let seconds = if watched { 60 } else { 10 };
    let timers = Timers::begin();
    asmp("create a --cpus 3").done();
    let spin = binary().display().to_string();
    let mut busy =
        Process::start(&spin, &["exec", "a", "--policy", "fifo:80", "--", &spin, "spin", "600000"]);
    // What the change itself left to do on the CPU is over by then; else the count shows it.
    std::thread::sleep(Duration::from_secs(4));
    Timers::clear();
    let report = asmp(&format!("noise a -t {seconds}s --json")).done().out;
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let expired = Timers::names();
    assert!(busy.0.try_wait().expect("wait").is_none(), "the busy loop ran all the time");
    assert_eq!(report["lost_events"], 0, "zeros are zeros only where no event was lost");
    let counts = &report["cpus"]["3"];
    let (foreign, of_kernel) =
        (names(&counts["foreign_switches"]), names(&counts["kernel_switches"]));
    let ticks = counts["ticks"].as_u64().expect("ticks");
    let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let check = asmp("check").out;
    let said = check.lines().find(|line| line.contains("clock source watchdog"));
    println!(
        "  kernel {}, clock {clock}, {seconds} s: {ticks} ticks, foreign {foreign:?}, kernel \
         threads {of_kernel:?}, timers {expired:?}\n  check: {}",
        read("/proc/sys/kernel/osrelease"),
        said.unwrap_or("nothing").trim()
    );
    drop((busy, timers));
    asmp("destroy a").done();
    assert!(foreign.is_empty(), "foreign switches: {foreign:?}");
    if ticks == 0 && of_kernel.is_empty() {
        return;
    }
    assert!(watched, "told to trust its clock, it has {ticks} ticks and {of_kernel:?}");
    let said = said.unwrap_or_default();
    let says = |word: &str| assert!(said.contains(word), "check does not say {word:?}:\n{check}");
    assert!(!expired.is_empty(), "what fired has no name");
    // The window of noise lies within that of the trace.
    let named: Vec<&String> = counts["timers"].as_object().expect("timers").keys().collect();
    assert!(named.iter().all(|timer| expired.contains_key(*timer)), "noise names {named:?}");
    let watchdog = "clocksource_watchdog".to_owned();
    assert_eq!(named.contains(&&watchdog), expired.contains_key(&watchdog), "{named:?}");
    if ticks > 0 && clock != "tsc" {
        // The kernel keeps the tick, and other timers may then expire there too.
        says("unstable: ");
    } else {
        // An interrupted task has its tick back for a moment: two or three for each visit.
        let visits = expired.get("clocksource_watchdog").copied().unwrap_or(0);
        // Deferrable timers (tcp_orphan_update) wait for such a visit, and one that was set before
        // the partition comes once: none has a visit of its own.
        let ours = ["clocksource_watchdog", "tick_nohz_handler", "tick_sched_timer"];
        let mut others = expired.iter().filter(|(name, _)| !ours.contains(&&***name));
        assert!(others.all(|(_, count)| *count <= visits + 1), "more than visits: {expired:?}");
        assert!(ticks <= 4 * visits, "{ticks} ticks and {visits} visits of the watchdog");
        says("runs: ");
    }
    asmp("check").says("tsc=reliable");
}
