// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process whose threads have groups of their own, as libvirt makes them for a virtual machine.

use crate::fixture::{FIFO_80, Fake, OTHER, REPAIR, RESTORE, add, create, destroy};
use crate::membership::{Entered, Join};
use crate::request::{Members, Request};
use asmp_host::Kernel;
use asmp_host::fake::FakeKernel;
use std::path::Path;

const SCOPE: &str = "/sys/fs/cgroup/vm.scope";

/// `qemu` (200, 201 of SCHED_FIFO, 202) with a group for each thread, and partition `a` on CPU 3.
fn machine() -> Fake {
    let kernel = FakeKernel::new();
    kernel.make_dir(Path::new(SCOPE)).unwrap();
    for group in ["emulator", "vcpu0", "vcpu1"] {
        let group = Path::new(SCOPE).join(group);
        kernel.make_dir(&group).unwrap();
        kernel.write(&group.join("cgroup.type"), b"threaded").unwrap();
    }
    for (tid, policy, group) in
        [(200, OTHER, "emulator"), (201, FIFO_80, "vcpu0"), (202, OTHER, "vcpu1")]
    {
        kernel.start(tid, 200, "qemu", policy);
        kernel.edit(tid, |task| task.group = format!("/vm.scope/{group}").into());
    }
    let fake = Fake::on(kernel);
    fake.done(&create("a", "3"));
    fake
}

fn thread(tid: i32) -> Members {
    Members { tids: vec![tid], ..Members::default() }
}

fn enter(fake: &Fake, tid: i32, join: Join) -> Entered {
    fake.shield.entrance("a").unwrap().enter(&*fake.kernel, tid, join).unwrap()
}

fn groups(fake: &Fake) -> [String; 3] {
    [200, 201, 202].map(|tid| fake.kernel.task(tid).unwrap().group.display().to_string())
}

const HOME: [&str; 3] = ["/vm.scope/emulator", "/vm.scope/vcpu0", "/vm.scope/vcpu1"];

#[test]
fn the_threads_of_a_virtual_machine_go_home_to_their_own_groups() {
    let name = || "a".to_owned();
    let adds = [
        add("a", 200),
        Request::Add { name: name(), members: thread(201) },
        Request::Add {
            name: name(),
            members: Members { tids: vec![202, 201], ..Members::default() },
        },
    ];
    for join in &adds {
        for way in ["destroy", "remove", "restore"] {
            let fake = machine();
            fake.done(join);
            assert_eq!(groups(&fake)[1], "/asmp/a/rt", "{join:?}");
            let members = match join {
                Request::Add { members, .. } => members.clone(),
                _ => unreachable!(),
            };
            match way {
                "destroy" => drop(fake.done(&destroy("a"))),
                "remove" => {
                    fake.done(&Request::Remove { name: name(), members, demote: false });
                    assert_eq!(groups(&fake), HOME, "{join:?}");
                }
                _ => {}
            }
            fake.restored(&format!("{join:?} {way}"));
        }
    }
}

#[test]
fn they_do_so_too_where_a_thread_entered_by_itself() {
    for join in [Join::Thread, Join::Process] {
        let fake = machine();
        let entered = enter(&fake, 202, join);
        let others = if join == Join::Thread { "/asmp/a/rest" } else { "/asmp/a/rt" };
        assert_eq!(groups(&fake), [others, others, "/asmp/a/rt"]);
        entered.leave(&*fake.kernel).unwrap();
        assert_eq!(groups(&fake), HOME);
        drop(enter(&fake, 202, join));
        fake.restored(&format!("{join:?}"));
    }
}

#[test]
fn a_kill_at_any_step_on_the_way_in_or_out_loses_none_of_these_groups() {
    for request in [add("a", 200), destroy("a")] {
        for (at, after) in (0..).flat_map(|at| [(at, false), (at, true)]) {
            let fake = machine();
            if request == destroy("a") {
                fake.done(&add("a", 200));
            }
            if !fake.kill(&request, at, after) {
                assert!(at > 0);
                break;
            }
            fake.restored(&format!("{request:?}, killed at {at} {after}"));
        }
    }
}

#[test]
fn a_thread_whose_group_is_gone_stays_with_its_process() {
    let fake = machine();
    fake.done(&add("a", 200));
    fake.kernel.remove_dir(&Path::new(SCOPE).join("vcpu0")).unwrap();
    let outcome = fake.done(&RESTORE);
    assert_eq!(groups(&fake), [HOME[0], HOME[0], HOME[2]]);
    let lines: Vec<String> = outcome.elsewhere.iter().map(ToString::to_string).collect();
    let line = "task 201 (qemu) came from the group /vm.scope/vcpu0, which is gone, and is in \
                /vm.scope/emulator now";
    assert_eq!(lines, [line]);
}

#[test]
fn a_process_whose_group_is_gone_is_named_and_others_are_not() {
    for end in [destroy("a"), RESTORE] {
        let fake = machine();
        fake.kernel.make_dir(Path::new("/sys/fs/cgroup/job")).unwrap();
        for tid in [300, 301, 302] {
            fake.kernel.start(tid, tid, "job", OTHER);
            fake.write("/sys/fs/cgroup/job/cgroup.procs", &tid.to_string());
            fake.done(&add("a", tid));
        }
        fake.done(&create("b", "2"));
        let members = Members { pids: vec![300], ..Members::default() };
        let (from, to) = ("a".to_owned(), "b".to_owned());
        assert_eq!(fake.done(&Request::Move { from, to, members }).elsewhere, []);
        // 301 ends inside, and another program takes 302 out.
        fake.kernel.end(301);
        fake.write("/sys/fs/cgroup/cgroup.procs", "302");
        fake.kernel.remove_dir(Path::new("/sys/fs/cgroup/job")).unwrap();
        let outcome = fake.done(&end);
        let named: Vec<i32> = outcome.elsewhere.iter().map(|one| one.task.tid).collect();
        let expected: &[i32] = if end == RESTORE { &[300, 302] } else { &[302] };
        assert_eq!(named, expected);
    }
}

#[test]
fn a_child_does_not_answer_for_the_threads_of_its_parent() {
    let fake = machine();
    fake.done(&add("a", 200));
    fake.kernel.start(300, 300, "child", OTHER);
    fake.kernel.edit(300, |task| {
        task.group = "/asmp/a/rt".into();
        task.parent = 200;
    });
    let remove = |tid| Request::Remove {
        name: "a".into(),
        members: Members { pids: vec![tid], ..Members::default() },
        demote: true,
    };
    fake.done(&remove(200));
    fake.write(&format!("{SCOPE}/vcpu1/cgroup.threads"), "201");
    assert_eq!(fake.done(&remove(300)).elsewhere, []);
}

#[test]
fn a_repair_takes_in_the_threads_that_had_entered_and_no_others() {
    let fake = machine();
    let _first = enter(&fake, 201, Join::Thread);
    fake.write("/sys/fs/cgroup/vm.scope/emulator/cgroup.procs", "200");
    fake.done(&REPAIR);
    assert_eq!(groups(&fake), ["/asmp/a/rest", "/asmp/a/rt", "/asmp/a/rest"]);
    let second = enter(&fake, 202, Join::Thread);
    fake.write("/sys/fs/cgroup/vm.scope/emulator/cgroup.procs", "200");
    fake.done(&REPAIR);
    assert_eq!(groups(&fake), ["/asmp/a/rest", "/asmp/a/rt", "/asmp/a/rt"]);
    second.leave(&*fake.kernel).unwrap();
    fake.write("/sys/fs/cgroup/vm.scope/emulator/cgroup.procs", "200");
    fake.done(&REPAIR);
    assert_eq!(groups(&fake), ["/asmp/a/rest", "/asmp/a/rt", "/asmp/a/rest"]);
    // One that the user takes out stays out.
    let _second = enter(&fake, 202, Join::Thread);
    let (name, members) = ("a".to_owned(), thread(202));
    fake.done(&Request::Remove { name, members, demote: true });
    fake.write("/sys/fs/cgroup/vm.scope/emulator/cgroup.procs", "200");
    fake.done(&REPAIR);
    assert_eq!(groups(&fake), ["/asmp/a/rest", "/asmp/a/rt", "/asmp/a/rest"]);
    // None of them is left to take in.
    fake.kernel.end(201);
    fake.write("/sys/fs/cgroup/vm.scope/emulator/cgroup.procs", "200");
    fake.done(&REPAIR);
    assert_eq!(fake.kernel.task(200).unwrap().group, Path::new("/asmp/a/rest"));
    // Now it enters whole.
    drop(enter(&fake, 202, Join::Process));
    fake.write("/sys/fs/cgroup/vm.scope/emulator/cgroup.procs", "200");
    fake.done(&REPAIR);
    let group = |tid| fake.kernel.task(tid).unwrap().group;
    assert_eq!([200, 202].map(group), [Path::new("/asmp/a/rt"); 2]);
}
