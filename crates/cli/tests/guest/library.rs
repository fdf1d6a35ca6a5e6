// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Crate `shield` alone, through `crates/shield/examples/create.rs`, makes the partition that
//! `asmp create` makes.

use super::lab::{Test, asmp, called, example, read, test};
use super::snapshot::{settled, snapshot};
use serde_json::Value;
use std::process::Command;

pub fn all() -> Vec<Test> {
    vec![
        test("library: the shield alone plans what asmp plans", same_plan),
        test(
            "library: the shield alone makes the partition that asmp makes, tick proven",
            same_partition,
        ),
    ]
}

fn create(line: &str) -> String {
    let output = Command::new(example("create")).args(line.split(' ')).output().expect("it starts");
    called(line, output).done().out
}

fn same_plan() {
    let ours = asmp("plan --json create a --cpus 3 --tick require-off").done().out;
    let ours: Value = serde_json::from_str(&ours).expect("JSON");
    let theirs: Value = serde_json::from_str(&create("--plan a 3")).expect("JSON");
    assert!(ours["steps"].as_array().is_some_and(|steps| steps.len() > 10), "{ours}");
    assert_eq!(ours["steps"], theirs["steps"]);
    assert_eq!(ours["cannot"], theirs["cannot"]);
}

fn same_partition() {
    asmp("create a --cpus 3 --tick require-off").done();
    let by_command = snapshot();
    asmp("destroy a").done();
    let said = create("a 3");
    assert!(said.contains("a: CPU 3, shielded: true"), "{said}");
    let (_, differences) = settled(&by_command);
    assert!(differences.is_empty(), "{differences:?}");
    let timers = super::lab::kernel_threads("ktimers/3");
    for (tid, _) in &timers {
        let policy = super::lab::policy(*tid);
        assert!(policy.contains("SCHED_FIFO") && policy.contains("98"), "{policy}");
    }
    let rt = read("/proc/sys/kernel/version").contains("PREEMPT_RT");
    assert_eq!(timers.len(), usize::from(rt), "a raised timer thread where the kernel has one");
    asmp("status").done();
}
