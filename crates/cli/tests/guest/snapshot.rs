// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is set to, as far as its files and tasks say, read by a program that knows no
//! setting of asmp.
//!
//! Problem:  a list of the files that we write shows only that we restore what we know of. The
//!           kernel changes more when a partition comes and goes, and a fault of ours may touch any
//!           file. Yet thousands of these files are counters that never stand still.
//! Approach: read every file of the trees that hold settings ([`files`]) and every task
//!           ([`tasks`]). Before the first test, look at the idle machine several times and leave
//!           out what changes by itself ([`noise`]). What is left must be the same after each test.

mod files;
mod noise;
pub mod sees;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;
use std::time::Duration;

/// Values by name: the path of a file, `dir PATH`, `xattr PATH NAME`, or `task TID@START WHAT`.
pub type Snapshot = BTreeMap<String, String>;

/// The last snapshot between two tests.
static LAST: Mutex<Option<Snapshot>> = Mutex::new(None);

pub fn snapshot() -> Snapshot {
    noise::learn_once();
    read()
}

/// For scripts: a line `take` of standard input takes a snapshot, a line `compare` prints what
/// differs from it, one line each. A line `.` ends each answer, and comes first of all once the
/// machine's noise is learned.
pub fn serve() {
    let mut before = snapshot();
    println!(".");
    for line in std::io::stdin().lines() {
        match line.expect("standard input").as_str() {
            "take" => before = snapshot(),
            "compare" => settled(&before).1.iter().for_each(|line| println!("{line}")),
            other => panic!("{other:?}: expected take or compare"),
        }
        println!(".");
    }
}

/// Without what is known to change by itself.
fn read() -> Snapshot {
    let mut all = Snapshot::new();
    files::read(&mut all);
    tasks::read(&mut all);
    all
}

/// The machine before a test: as the test before left it, where that was compared just now.
pub fn before_a_test() -> Snapshot {
    LAST.lock().expect("no panic in between").take().unwrap_or_else(snapshot)
}

/// What is no longer as it was `before`, when the machine has come to rest.
pub fn changes_of_a_test(before: &Snapshot) -> Vec<String> {
    let (now, changed) = settled(before);
    *LAST.lock().expect("no panic in between") = Some(now);
    changed
}

/// Compares again while that makes a difference: a group's removal, a task's end and a kernel
/// thread's return to its CPU take the kernel a moment.
pub fn settled(before: &Snapshot) -> (Snapshot, Vec<String>) {
    let mut now = snapshot();
    let mut changed = differences(before, &now);
    for wait_ms in [100, 300, 1000, 2000] {
        if changed.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(wait_ms));
        now = snapshot();
        changed = differences(before, &now);
    }
    if changed.iter().any(|line| line.starts_with("/proc/sys/kernel/tainted")) {
        println!("{}", last_warning());
    }
    (now, changed)
}

/// Lines of the kernel's log (dev-kmsg of the ABI) that were read so far, by sequence number.
static LOG: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

/// All lines that the kernel's log had in this or an earlier call. The kernel overwrites old lines,
/// so a long test calls this now and then.
pub fn kernel_log() -> Vec<String> {
    let mut log = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")
        .expect("the kernel's log");
    let mut lines = LOG.lock().expect("no panic in between");
    let mut record = [0; 8192];
    // Each read gives one record, `PRIORITY,NUMBER,…;TEXT`. The last one fails with EAGAIN; one
    // that was overwritten meanwhile with EPIPE, and the next read gives the oldest.
    loop {
        let length = match log.read(&mut record) {
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => continue,
            Err(_) => return lines.values().cloned().collect(),
        };
        let text = String::from_utf8_lossy(&record[..length]).into_owned();
        let Some((numbers, text)) = text.split_once(';') else { continue };
        if let Some(number) = numbers.split(',').nth(1).and_then(|number| number.parse().ok()) {
            lines.insert(number, text.trim().to_owned());
        }
    }
}

/// The last warning of the kernel: what it is tainted by.
fn last_warning() -> String {
    let lines = kernel_log();
    let begin = lines.iter().rposition(|line| line.starts_with("WARNING:")).unwrap_or(0);
    lines[begin..].iter().take(50).map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// One line each, `NAME: before -> after`.
pub fn differences(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let word = |all: &Snapshot, name: &String| match all.get(name) {
        Some(value) => format!("{value:?}"),
        None => "absent".to_owned(),
    };
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .filter(|name| tasks::counts(name, before, after) && files::counts(name, before, after))
        .map(|name| {
            let shown = tasks::shown(name, before);
            format!("{shown}: {} -> {}", word(before, name), word(after, name))
        })
        .collect()
}
