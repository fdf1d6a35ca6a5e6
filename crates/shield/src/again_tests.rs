// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A partition that other programs broke, and then a request that says which CPUs it has: it is
//! repaired first, so that the request means what it says.

use crate::declaration::Declaration;
use crate::fixture::{Fake, OTHER, add, create};
use crate::request::Request;
use asmp_host::{Kernel, Schedule};
use std::path::Path;

const TREE: &str = "/sys/fs/cgroup/asmp";

/// What another program does to a partition on CPU 2-3 without members.
enum Edit {
    Write(&'static str, &'static str),
    /// Removes groups, after it has dissolved the partition.
    Remove(&'static [&'static str]),
}

const EDITS: [Edit; 13] = [
    Edit::Write("a/rt/cpuset.cpus.partition", "member"),
    Edit::Write("a/rt/cpuset.cpus.exclusive", ""),
    Edit::Write("a/rt/cpuset.cpus.exclusive", "2"),
    Edit::Write("a/cpuset.cpus.exclusive", ""),
    Edit::Write("cpuset.cpus.exclusive", ""),
    Edit::Write("a/cgroup.subtree_control", "-cpuset"),
    Edit::Write("cgroup.freeze", "1"),
    Edit::Write("a/cgroup.freeze", "1"),
    Edit::Write("a/rt/cgroup.freeze", "1"),
    Edit::Remove(&["a/rt"]),
    Edit::Remove(&["a/rest"]),
    Edit::Remove(&["a/rt", "a/rest", "a"]),
    Edit::Remove(&["a/rt", "a/rest", "a", ""]),
];

fn to_cpus(cpus: &str, apply: bool) -> Request {
    let text = format!(r#"{{"partition":[{{"name":"a","cpus":"{cpus}"}}]}}"#);
    let declaration: Declaration = serde_json::from_str(&text).unwrap();
    match apply {
        true => Request::Apply { declaration },
        false => Request::Resize { name: "a".into(), cpus: cpus.parse().unwrap() },
    }
}

/// A machine with that done to it.
fn broken(edit: &Edit) -> Fake {
    let fake = Fake::after(&[create("a", "2-3")]);
    match edit {
        Edit::Write(file, text) => fake.write(&format!("{TREE}/{file}"), text),
        Edit::Remove(groups) => {
            fake.write(&format!("{TREE}/a/rt/cpuset.cpus.partition"), "member");
            for group in *groups {
                fake.kernel.remove_dir(&Path::new(TREE).join(group)).unwrap();
            }
        }
    }
    assert!(!fake.status().holds(), "it is broken");
    fake
}

#[test]
fn a_resize_or_apply_of_a_broken_partition_is_as_good_as_after_a_repair() {
    for (at, edit) in EDITS.iter().enumerate() {
        for cpus in ["2-3", "2", "1", "1-3"] {
            for apply in [false, true] {
                let fake = broken(edit);
                let request = to_cpus(cpus, apply);
                let outcome = fake.done(&request);
                assert!(outcome.violated(&request).is_empty(), "edit {at}, {request:?}");
                assert!(fake.status().holds(), "edit {at}, {request:?}: {:#?}", fake.status());
                assert_eq!(fake.kernel.isolated().to_string(), cpus, "edit {at}, {request:?}");
                fake.restored(&format!("edit {at}, {request:?}"));
            }
        }
    }
}

#[test]
fn a_change_of_a_broken_partition_that_is_refused_leaves_it_as_it_was() {
    for edit in &EDITS {
        let fake = broken(edit);
        let before = fake.kernel.snapshot();
        fake.ask(&to_cpus("0-3", false)).unwrap_err();
        assert_eq!(fake.kernel.snapshot(), before);
    }
}

#[test]
fn a_resize_repairs_the_partition_that_it_names_and_speaks_of_no_other() {
    let fake = Fake::after(&[create("a", "3"), create("b", "2")]);
    fake.write(&format!("{TREE}/b/cgroup.freeze"), "1");
    let request = to_cpus("1", false);
    let outcome = fake.done(&request);
    assert!(outcome.violated(&request).is_empty(), "{:#?}", outcome.status);
    let [a, b] = &fake.status().partitions[..] else { panic!("two") };
    assert!(a.shielded && !b.shielded, "b is still frozen");
    fake.restored("b is frozen");
}

#[test]
fn a_resize_of_a_sound_partition_writes_nothing_else() {
    let fake = Fake::after(&[create("a", "2-3")]);
    assert_eq!(fake.done(&to_cpus("2-3", false)).changes, 0);
    assert_eq!(fake.done(&to_cpus("2-3", true)).changes, 0);
    let steps = fake.done(&to_cpus("2", false)).plan.steps;
    assert!(!steps.iter().any(|step| step.why.contains("another program")), "{steps:#?}");
}

#[test]
fn members_that_others_moved_come_back_with_a_resize_and_strays_leave() {
    let fake = Fake::on(asmp_host::fake::FakeKernel::new());
    fake.kernel.start(200, 200, "app", OTHER);
    fake.done(&create("a", "3"));
    fake.done(&add("a", 200));
    fake.write("/sys/fs/cgroup/cgroup.procs", "200");
    fake.kernel.set_affinity(30, &"0-3".parse().unwrap()).unwrap();
    fake.done(&to_cpus("2", false));
    assert_eq!(fake.allowed(200), "2");
    assert!(fake.status().holds(), "{:#?}", fake.status());
    fake.kernel.set_affinity(30, &"0-3".parse().unwrap()).unwrap();
    let irq = r#"{"partition":[{"name":"a","cpus":"2","irqs":["24"]}]}"#;
    fake.done(&Request::Apply { declaration: serde_json::from_str(irq).unwrap() });
    assert!(fake.status().holds(), "{:#?}", fake.status());
}

/// A partition that is none keeps no task out: each by its name would be the whole machine.
#[test]
fn many_tasks_that_come_in_together_are_one_violation() {
    let fake = Fake::partitioned();
    for tid in 300..340 {
        fake.kernel.start(tid, tid, "job", Schedule::Other { nice: 0 });
    }
    fake.write(&format!("{TREE}/a/rt/cpuset.cpus.partition"), "member");
    let status = fake.status();
    let [partition] = status.partitions.as_slice() else { panic!("{status:#?}") };
    let all: Vec<&str> = partition.violations.iter().map(|one| one.what.as_str()).collect();
    let of_tasks: Vec<&&str> = all.iter().filter(|what| what.contains(" tasks may run")).collect();
    let [what] = of_tasks.as_slice() else { panic!("{all:#?}") };
    let count: usize = what.split(' ').next().unwrap().parse().unwrap();
    assert!(count >= 40 && what.contains(" tasks may run on CPU 3, such as "), "{what}");
    assert!(!all.iter().any(|what| what.contains("job") && !what.contains(" tasks ")), "{all:#?}");
    assert!(fake.repair());
}
