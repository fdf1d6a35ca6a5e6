// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks of SCHED_DEADLINE that live while partitions come and go. The kernel books their
//! bandwidth in a root domain, and each partition is one.

use super::lab::{Process, Test, allowed, asmp, policy, read, test, until};

pub fn all() -> Vec<Test> {
    vec![
        test("a deadline task of the system outlives each change", outside),
        test("a deadline task moves in, with the cpus, and home", inside),
        test("cpus that deadline tasks need are not taken from them", too_much),
    ]
}

/// A sleeping task with so much of a CPU, in per cent.
fn deadline_task(share: u64) -> Process {
    let runtime = (share * 1_000_000).to_string();
    let period = 100_000_000.to_string();
    let task = Process::start(
        "chrt",
        &["-d", "-T", &runtime, "-D", &period, "-P", &period, "0", "sleep", "1000"],
    );
    let id = task.id();
    until("it has its policy", || read(format!("/proc/{id}/comm")) == "sleep");
    assert!(has_deadline(id), "{}", policy(id));
    task
}

fn has_deadline(id: u32) -> bool {
    policy(id).contains("SCHED_DEADLINE")
}

fn outside() {
    let task = deadline_task(10);
    let id = task.id();
    for (line, cpus) in [
        ("create a --cpus 3", "0-2"),
        ("resize a --cpus 2-3", "0-1"),
        ("create b --cpus 1", "0"),
        ("destroy a", "0,2-3"),
        ("restore", "0-3"),
    ] {
        asmp(line).done();
        assert_eq!(allowed(id), cpus, "{line}");
        assert!(has_deadline(id), "{line}: {}", policy(id));
        asmp("status").done();
    }
}

fn inside() {
    let task = deadline_task(10);
    let id = task.id();
    asmp("create a --cpus 3").done();
    asmp(&format!("add a --pid {id}")).done();
    for (line, cpus) in [("resize a --cpus 2-3", "2-3"), ("resize a --cpus 2", "2")] {
        asmp(line).done();
        assert_eq!(allowed(id), cpus, "{line}");
        assert!(has_deadline(id), "{line}: {}", policy(id));
        asmp("status").done();
    }
    asmp("destroy a").done();
    assert_eq!(allowed(id), "0-3");
    assert!(has_deadline(id), "after destroy: {}", policy(id));
}

/// Three tasks with 80 % each do not fit on two CPUs, of which the kernel grants 95 %. It would
/// isolate the other two all the same.
fn too_much() {
    let tasks: Vec<Process> = (0..3).map(|_| deadline_task(80)).collect();
    for line in ["plan create a --cpus 2-3", "create a --cpus 2-3", "run --cpus 2-3 -- true"] {
        asmp(line).code(48).says("have booked 240 % of a CPU, and CPU 0-1 would have 1");
    }
    for task in &tasks {
        assert!(has_deadline(task.id()) && allowed(task.id()) == "0-3");
    }
    drop(tasks);
    asmp("create a --cpus 2-3").done();
}
