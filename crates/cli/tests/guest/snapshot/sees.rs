// SPDX-License-Identifier: Apache-2.0 OR MIT
//! That the snapshot sees: one setting of each kind is changed behind its back and put back.

use super::super::guests::On;
use super::super::lab::{Process, Test, kernel_threads, test};
use super::{Snapshot, differences, settled, snapshot};
use std::fs;
use std::mem::MaybeUninit;

pub fn all() -> Vec<Test> {
    let name = "snapshot: one changed setting of any kind is seen";
    vec![test(name, every_kind_is_seen).on(On::OnePerSeries)]
}

/// A change, and a word of the line that must name it.
struct Hidden {
    word: String,
    change: Box<dyn Fn()>,
    back: Box<dyn Fn()>,
}

fn hidden(word: &str, change: impl Fn() + 'static, back: impl Fn() + 'static) -> Hidden {
    Hidden { word: word.to_owned(), change: Box::new(change), back: Box::new(back) }
}

/// Another text in a file, and the old one again.
fn file(path: &str, other: &str) -> Hidden {
    let old = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let other = other.to_owned();
    assert_ne!(old.trim(), other, "{path}");
    let (here, there) = (path.to_owned(), path.to_owned());
    let set = |path: &str, text: &str| {
        fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {text:?}: {error}"));
    };
    hidden(path, move || set(&here, &other), move || set(&there, old.trim()))
}

fn dir(path: &str) -> Hidden {
    let (here, there) = (path.to_owned(), path.to_owned());
    hidden(
        &format!("dir {path}"),
        move || fs::create_dir(&here).unwrap_or_else(|error| panic!("{here}: {error}")),
        move || fs::remove_dir(&there).unwrap_or_else(|error| panic!("{there}: {error}")),
    )
}

/// The CPUs of a thread, as bits.
fn mask(tid: u32) -> libc::cpu_set_t {
    let tid = tid.cast_signed();
    let mut mask = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set is as long as is said.
    let done = unsafe { libc::sched_getaffinity(tid, size_of_val(&mask), mask.as_mut_ptr()) };
    assert_eq!(done, 0, "task {tid}");
    // SAFETY: all zeroes is a set, and the kernel has written one.
    unsafe { mask.assume_init() }
}

fn set_mask(tid: u32, mask: &libc::cpu_set_t) {
    // SAFETY: the set is as long as is said.
    let done = unsafe { libc::sched_setaffinity(tid.cast_signed(), size_of_val(mask), mask) };
    assert_eq!(done, 0, "task {tid}: {}", std::io::Error::last_os_error());
}

/// A thread that may run on CPU 1 alone.
fn confined(tid: u32) -> Hidden {
    let old = mask(tid);
    // SAFETY: a set is plain bits.
    let mut one: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: CPU 1 is within the set.
    unsafe { libc::CPU_SET(1, &mut one) };
    hidden(&format!("task {tid} ("), move || set_mask(tid, &one), move || set_mask(tid, &old))
}

fn nice(tid: u32, value: i32) {
    // SAFETY: takes numbers alone.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, value) };
    assert_eq!(done, 0, "task {tid}");
}

/// A value that marks a group, and none.
fn attribute(set: bool) {
    let (group, name) = (c"/sys/fs/cgroup", c"trusted.hidden");
    let done = if set {
        // SAFETY: both names end with a zero byte, and the value has one byte.
        unsafe { libc::setxattr(group.as_ptr(), name.as_ptr(), c"1".as_ptr().cast(), 1, 0) }
    } else {
        // SAFETY: both names end with a zero byte.
        unsafe { libc::removexattr(group.as_ptr(), name.as_ptr()) }
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The mask of an IRQ line that moves.
fn irq_mask() -> String {
    let entries = fs::read_dir("/proc/irq").expect("/proc/irq").flatten();
    let moves = |path: &String| {
        let old = fs::read_to_string(path).unwrap_or_default();
        fs::write(path, old.trim()).is_ok() && old.trim() != "1"
    };
    let mut paths = entries.map(|entry| format!("{}/smp_affinity", entry.path().display()));
    paths.find(moves).expect("a line that moves")
}

/// Of an instance: the first event ever makes the buffers of the top level larger, for good.
const INSTANCE: &str = "/sys/kernel/tracing/instances/hidden-before";
const SET_EVENT: &str = "/sys/kernel/tracing/instances/hidden-before/set_event";

fn every_kind_is_seen() {
    let sleeper = Process::start("sleep", &["1000"]);
    let kthreadd = kernel_threads("kthreadd")[0].0;
    fs::create_dir("/sys/fs/cgroup/hidden-before").expect("a group");
    fs::create_dir(INSTANCE).expect("an instance");
    let id = sleeper.id();
    let kinds = [
        file(&irq_mask(), "1"),
        file("/proc/irq/default_smp_affinity", "3"),
        file("/proc/sys/kernel/sched_rr_timeslice_ms", "90"),
        file("/proc/sys/vm/swappiness", "17"),
        file("/sys/devices/virtual/workqueue/cpumask", "3"),
        file("/sys/devices/virtual/workqueue/writeback/cpumask", "3"),
        file("/sys/fs/cgroup/hidden-before/cgroup.max.depth", "5"),
        file("/sys/kernel/debug/sched/migration_cost_ns", "600000"),
        file("/sys/kernel/tracing/osnoise/runtime_us", "900000"),
        file("/sys/kernel/tracing/tracing_cpumask", "3"),
        file("/sys/kernel/rcu_expedited", "1"),
        dir("/sys/kernel/tracing/instances/hidden"),
        dir("/sys/fs/cgroup/hidden"),
        hidden("trusted.hidden", || attribute(true), || attribute(false)),
        hidden(
            "set_event",
            || fs::write(SET_EVENT, "irq:softirq_entry").expect("an event"),
            || fs::write(SET_EVENT, "!irq:softirq_entry").expect("none"),
        ),
        confined(kthreadd),
        confined(id),
        hidden(&format!("task {id} (sleep) nice"), move || nice(id, 7), move || nice(id, 0)),
    ];
    let before: Snapshot = snapshot();
    let mut unseen = Vec::new();
    for kind in &kinds {
        (kind.change)();
        let changed = differences(&before, &snapshot());
        (kind.back)();
        println!("{} -> {}", kind.word, changed.join("; "));
        if !changed.iter().any(|line| line.contains(&kind.word)) {
            unseen.push(&kind.word);
        }
        let (_, left) = settled(&before);
        assert!(left.is_empty(), "{} is back, but:\n{}", kind.word, left.join("\n"));
    }
    fs::remove_dir("/sys/fs/cgroup/hidden-before").expect("the group goes");
    fs::remove_dir(INSTANCE).expect("the instance goes");
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
