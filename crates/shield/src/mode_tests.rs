// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared partitions on a machine in memory that can guard CPUs.

use crate::fixture::{FIFO_50, Fake, OTHER, REPAIR, RESTORE, create, destroy, set};
use crate::mode::Mode;
use crate::partition::Refusal;
use crate::request::{Cpus, Members, Request, Spec};
use crate::shield::ChangeError;
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::sharing::{CPUS, Sharing};
use asmp_host::{CpuSet, Kernel};
use std::path::Path;

const RT: &str = "/sys/fs/cgroup/asmp/a/rt";

/// With process 200 (`app`, an ordinary thread), 300 (`audio`, SCHED_FIFO, on any CPU) and 301
/// (the same, on CPU 3 alone).
fn machine() -> Fake {
    let kernel = FakeKernel::new();
    kernel.can_share();
    kernel.start(200, 200, "app", OTHER);
    kernel.start(300, 300, "audio", FIFO_50);
    kernel.start(301, 301, "pinned", FIFO_50);
    kernel.give_at_boot(301, &set("3"));
    Fake::on(kernel)
}

fn shared(name: &str, cpus: &str) -> Request {
    let cpus = Cpus::Named(cpus.parse().unwrap());
    Request::Create { name: name.into(), spec: Spec { mode: Mode::Shared, ..Spec::with(cpus) } }
}

fn mode(name: &str, mode: Mode) -> Request {
    Request::Mode { name: name.into(), mode }
}

fn guarded(fake: &Fake) -> String {
    Sharing::read(&*fake.kernel).guarded.to_string()
}

fn file(fake: &Fake, name: &str) -> String {
    fake.text(Path::new(RT).join(name))
}

#[track_caller]
fn holds(fake: &Fake, when: &str) {
    let status = fake.status();
    assert!(status.holds(), "{when}: {status:#?}");
}

#[test]
fn a_shared_partition_leaves_its_cpus_to_other_tasks_and_has_them_guarded() {
    let fake = machine();
    fake.done(&shared("a", "2-3"));
    holds(&fake, "made");
    assert_eq!(guarded(&fake), "2-3");
    assert_eq!(
        (file(&fake, "cpuset.cpus.partition").as_str(), fake.allowed(200).as_str()),
        ("member", "0-3")
    );
    assert_eq!(file(&fake, "cpuset.cpus"), "2-3");
    assert_eq!(fake.text("/proc/irq/24/smp_affinity_list"), "0-1", "interrupts keep off");
    let one = &fake.status().partitions[0];
    assert_eq!(one.mode, Mode::Shared);
    assert!(one.shared.contains(&("calls_from_rt".to_owned(), 7)), "{:?}", one.shared);

    let members = Members { pids: vec![200], ..Members::default() };
    fake.done(&Request::Add { name: "a".into(), members });
    assert_eq!(fake.allowed(200), "2-3", "its own tasks have its CPUs alone");
    holds(&fake, "with a task");
    fake.done(&destroy("a"));
    fake.is_untouched("it ended");
}

#[test]
fn real_time_threads_of_others_keep_off_shared_cpus_and_get_them_back() {
    let fake = machine();
    fake.done(&shared("a", "2-3"));
    assert_eq!((fake.allowed(300).as_str(), fake.allowed(301).as_str()), ("0-1", "0-1"));

    fake.kernel.start(302, 302, "late", FIFO_50);
    let status = fake.status();
    let said = &status.partitions[0].violations;
    assert!(said.iter().any(|one| one.what.contains("302 (late) may run on CPU 2-3")), "{said:?}");
    fake.done(&REPAIR);
    assert_eq!(fake.allowed(302), "0-1");
    holds(&fake, "repaired");
    fake.done(&destroy("a"));
    assert_eq!(fake.allowed(300), "0-3");
    assert_eq!((fake.allowed(301).as_str(), fake.allowed(302).as_str()), ("3", "0-3"));
}

#[test]
fn a_confined_thread_gets_what_it_had_before_the_first_partition_also_an_isolated_one() {
    let fake = machine();
    for (tid, cpus) in [(310, "1-2"), (311, "0-3"), (312, "1-3")] {
        fake.kernel.start(tid, tid, "theirs", FIFO_50);
        fake.kernel.give_at_boot(tid, &set(cpus));
    }
    fake.done(&create("a", "1-2"));
    assert_eq!((fake.allowed(310).as_str(), fake.allowed(311).as_str()), ("0,3", "0,3"));
    fake.done(&shared("b", "3"));
    assert_eq!((fake.allowed(310).as_str(), fake.allowed(311).as_str()), ("0", "0"));
    // One that began meanwhile, on a system CPU, is left alone.
    fake.kernel.start(313, 313, "late", FIFO_50);
    fake.kernel.give_at_boot(313, &set("0"));
    fake.done(&destroy("a"));
    fake.done(&destroy("b"));
    let now = [310, 311, 312, 313].map(|tid| fake.allowed(tid));
    assert_eq!(now, ["1-2", "0-3", "1-3", "0"]);
}

#[test]
fn what_a_user_sets_meanwhile_stays() {
    let fake = machine();
    fake.kernel.start(310, 310, "theirs", FIFO_50);
    fake.kernel.give_at_boot(310, &set("0-3"));
    fake.done(&create("a", "2-3"));
    fake.kernel.give_at_boot(310, &set("1"));
    fake.done(&destroy("a"));
    assert_eq!(fake.allowed(310), "1");
}

#[test]
fn a_task_that_is_bound_to_shared_cpus_alone_is_named() {
    let fake = machine();
    fake.kernel.start(400, 400, "taskset", OTHER);
    fake.kernel.give_at_boot(400, &set("2-3"));
    fake.done(&shared("a", "2-3"));
    let said = &fake.status().partitions[0].violations;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].what.contains("400 (taskset) is bound to CPU 2-3"), "{said:?}");
    fake.kernel.give_at_boot(400, &set("1-3"));
    fake.kernel.start(401, 400, "worker", OTHER);
    fake.kernel.give_at_boot(401, &set("3"));
    let said = &fake.status().partitions[0].violations;
    assert!(said[0].what.contains("401 (worker) is bound to CPU 3"), "{said:?}");
    fake.kernel.give_at_boot(401, &set("1"));
    holds(&fake, "it may leave");
    fake.done(&mode("a", Mode::BestEffort));
    fake.kernel.give_at_boot(400, &set("2-3"));
    holds(&fake, "nothing is promised");
}

#[test]
fn a_mode_changes_both_ways_with_tasks_inside() {
    let fake = machine();
    fake.done(&create("a", "2-3"));
    let members = Members { pids: vec![200], ..Members::default() };
    fake.done(&Request::Add { name: "a".into(), members });
    for _ in 0..2 {
        fake.done(&mode("a", Mode::Shared));
        holds(&fake, "shared");
        assert_eq!((guarded(&fake), fake.allowed(200)), ("2-3".into(), "2-3".into()));
        assert_eq!(fake.allowed(100), "0-3", "others may use it");
        fake.done(&mode("a", Mode::Isolated));
        holds(&fake, "isolated");
        assert_eq!((guarded(&fake), fake.allowed(200)), ("".into(), "2-3".into()));
        assert_eq!(fake.allowed(100), "0-1", "others may not");
        assert_eq!(file(&fake, "cpuset.cpus"), "");
    }
    fake.done(&mode("a", Mode::BestEffort));
    holds(&fake, "best effort");
    assert_eq!((guarded(&fake), fake.allowed(100)), ("".into(), "0-3".into()));
    fake.restored("the end");
}

#[test]
fn partitions_of_all_modes_stand_side_by_side_and_change_cpus() {
    let fake = machine();
    fake.done(&shared("a", "3"));
    fake.done(&create("b", "2"));
    fake.done(&shared("c", "1"));
    holds(&fake, "three");
    assert_eq!((guarded(&fake), fake.allowed(100)), ("1,3".into(), "0-1,3".into()));
    let resize =
        |name: &str, cpus: &str| Request::Resize { name: name.into(), cpus: cpus.parse().unwrap() };
    fake.done(&destroy("b"));
    fake.done(&resize("a", "2"));
    holds(&fake, "resized");
    assert_eq!((guarded(&fake), file(&fake, "cpuset.cpus")), ("1-2".into(), "2".into()));
    fake.done(&resize("a", "2-3"));
    assert_eq!(guarded(&fake), "1-3");
    fake.done(&destroy("c"));
    assert_eq!(guarded(&fake), "2-3");
    fake.restored("the end");
}

#[test]
fn a_partition_whose_scheduler_has_ended_is_named_and_then_isolated() {
    let fake = machine();
    fake.done(&shared("a", "2-3"));
    fake.kernel.end_sharing("runnable task stall");
    let status = fake.status();
    let said = &status.partitions[0].violations[0];
    assert!(said.what.contains("has ended (runnable task stall)"), "{said:?}");
    assert!(said.cure.contains("asmp repair a"), "{said:?}");
    fake.done(&REPAIR);
    holds(&fake, "repaired");
    assert_eq!(fake.status().partitions[0].mode, Mode::Isolated);
    assert_eq!(fake.allowed(100), "0-1");
    fake.done(&mode("a", Mode::Shared));
    holds(&fake, "shared again");
    assert_eq!(guarded(&fake), "2-3");

    // Any other change sees it, too.
    fake.kernel.end_sharing("killed");
    fake.done(&create("b", "1"));
    assert_eq!(fake.status().partitions[0].mode, Mode::Isolated);
    assert_eq!(fake.allowed(100), "0");
    fake.restored("the end");
}

#[test]
fn a_lost_file_is_named_and_repair_takes_the_rest_out() {
    let fake = machine();
    fake.done(&shared("a", "2-3"));
    fake.kernel.lose_hook();
    let status = fake.status();
    let said = &status.partitions[0].violations[0];
    assert!(said.what.contains("has lost /sys/fs/bpf/asmp/user_exit: "), "{said:?}");
    fake.done(&REPAIR);
    holds(&fake, "repaired");
    assert_eq!((guarded(&fake), fake.allowed(100)), (String::new(), "0-1".into()));
    fake.done(&mode("a", Mode::Shared));
    holds(&fake, "shared again");
    assert_eq!(guarded(&fake), "2-3");
    fake.restored("the end");
}

#[test]
fn a_directory_in_the_place_of_a_hook_is_a_lost_hook() {
    let fake = machine();
    fake.done(&shared("a", "2-3"));
    fake.kernel.replace_hook();
    let status = fake.status();
    let said = &status.partitions[0].violations[0];
    assert!(said.what.contains("has lost /sys/fs/bpf/asmp/user_exit: "), "{said:?}");
}

#[test]
fn hooks_that_stand_still_are_named_and_repair_isolates() {
    let fake = machine();
    fake.kernel.enable_ftrace(true);
    fake.done(&shared("a", "2-3"));
    holds(&fake, "made");
    fake.kernel.enable_ftrace(false);
    let said = fake.status().partitions[0].violations[0].clone();
    assert_eq!(
        (said.what.as_str(), said.cure.as_str()),
        (
            "kernel.ftrace_enabled is 0: hooks of functions stand still: other tasks' kernel code \
             runs on CPU 2-3",
            "set it to 1, or `asmp repair a` isolates"
        )
    );
    fake.kernel.arm(Some(Fault::Hide { below: "/sys/fs/bpf" }));
    assert!(!fake.status().holds(), "any user may read that setting");
    fake.kernel.arm(None);
    fake.kernel.enable_ftrace(true);
    holds(&fake, "set to 1");
    fake.kernel.enable_ftrace(false);
    fake.done(&REPAIR);
    holds(&fake, "repaired");
    assert_eq!(fake.status().partitions[0].mode, Mode::Isolated);
    assert_eq!((guarded(&fake), fake.allowed(100)), (String::new(), "0-1".into()));

    let was = fake.kernel.snapshot();
    for request in [mode("a", Mode::Shared), shared("b", "1")] {
        let refused = fake.ask(&request).unwrap_err();
        assert_eq!(refused.code(), 57);
        assert!(refused.to_string().contains("sysctl kernel.ftrace_enabled=1"), "{refused}");
    }
    assert_eq!(fake.kernel.snapshot(), was, "nothing has changed");
    fake.kernel.enable_ftrace(true);
    fake.done(&mode("a", Mode::Shared));
    assert_eq!(guarded(&fake), "2-3");
    fake.kernel.remove_file("/proc/sys/kernel/ftrace_enabled");
    holds(&fake, "a kernel without dynamic ftrace");
    fake.restored("the end");
}

#[test]
fn the_cure_names_all_candidates_of_the_boot_and_never_cpu_0() {
    let fake = machine();
    fake.kernel.set_file("/sys/devices/system/cpu/nohz_full", "1");
    let refused = fake.ask(&shared("a", "2-3")).unwrap_err().to_string();
    assert!(refused.contains("(asmp boot enable --cpus 1-3)"), "{refused}");
    let refused = fake.ask(&shared("a", "0,3")).unwrap_err().to_string();
    assert!(refused.contains("CPU 0 keeps the time for the others: choose other"), "{refused}");
    assert!(!refused.contains("asmp boot"), "{refused}");
}

#[test]
fn a_user_who_may_not_read_what_is_guarded_is_told_so() {
    let fake = machine();
    fake.done(&shared("a", "2-3"));
    fake.kernel.arm(Some(Fault::Hide { below: "/sys/fs/bpf" }));
    let status = fake.status();
    let one = &status.partitions[0];
    assert_eq!(one.guarantee_checked, Some(false));
    assert!(one.violations.is_empty(), "{:?}", one.violations);
    assert!(one.stays.iter().any(|stays| stays.what.contains("not checked")), "{:?}", one.stays);
    fake.kernel.arm(None);
    assert_eq!(fake.status().partitions[0].guarantee_checked, Some(true));
}

#[test]
fn a_machine_that_cannot_guard_says_what_is_missing_and_the_best_effort_is_named() {
    type Change = fn(&FakeKernel);
    let cases: [(Change, &str); 5] = [
        (|kernel| kernel.set_file("/proc/sys/kernel/osrelease", "7.0.0"), "SCX_ENQ_IMMED"),
        (|kernel| kernel.set_file("/sys/devices/system/cpu/nohz_full", "1-2"), "CPU 3 is not in"),
        (|kernel| kernel.set_file("/sys/kernel/sched_ext/state", "enabled"), "another scheduler"),
        (|kernel| kernel.set_file("/sys/devices/system/cpu/isolated", "1"), "isolcpus="),
        (|kernel| kernel.set_file("/sys/kernel/debug/sched/preempt", "(none) full"), "=none"),
    ];
    for (change, said) in cases {
        let fake = machine();
        change(&fake.kernel);
        let refused = fake.ask(&shared("a", "2-3")).unwrap_err();
        let ChangeError::Refused(Refusal::CannotShare { what, .. }) = &refused else {
            panic!("{said}: {refused}")
        };
        assert!(what.contains(said), "{what}");
        assert!(fake.state().partitions.is_empty());
    }
    let fake = Fake::with_app();
    let refused = fake.ask(&shared("a", "2-3")).unwrap_err();
    assert!(refused.to_string().contains("no sched_ext"), "{refused}");
    fake.done(&create("a", "2-3"));
    assert!(fake.ask(&mode("a", Mode::Shared)).is_err());
    fake.done(&mode("a", Mode::BestEffort));
    holds(&fake, "best effort needs nothing");
    fake.restored("the end");
}

/// CPUs without a guard on which both process 200, if it is in the partition, and tasks outside may
/// run.
fn open(fake: &Fake) -> CpuSet {
    let is_inside = fake.kernel.task(200).unwrap().group.starts_with("/asmp");
    let others = if is_inside { set(&fake.allowed(100)) } else { CpuSet::new() };
    set(&fake.allowed(200)).intersection(&others).difference(&Sharing::read(&*fake.kernel).guarded)
}

/// Each step of each change refused, and a kill before and after each. After no step are CPUs open
/// that are not guarded.
#[test]
fn a_change_of_modes_that_fails_or_is_killed_leaves_what_was_there() {
    let members = Members { pids: vec![200], ..Members::default() };
    let add = Request::Add { name: "a".into(), members };
    let changes = [
        (vec![], shared("a", "2-3")),
        (vec![shared("a", "2-3"), add.clone()], mode("a", Mode::Isolated)),
        (vec![create("a", "2-3"), add.clone()], mode("a", Mode::Shared)),
        (vec![shared("a", "2-3"), shared("b", "1"), add.clone()], destroy("a")),
        (
            vec![shared("a", "2-3"), add.clone()],
            Request::Resize { name: "a".into(), cpus: "3".parse().unwrap() },
        ),
    ];
    for (before, change) in changes {
        let made = || {
            let fake = machine();
            before.iter().for_each(|request| drop(fake.done(request)));
            fake
        };
        let mut steps = 0;
        for at in 0.. {
            let fake = made();
            let was = fake.kernel.snapshot();
            fake.kernel.arm(Some(Fault::Refuse { at, errno: libc::ENOMEM }));
            let answer = fake.ask(&change);
            fake.kernel.arm(None);
            if answer.is_err() {
                assert_eq!(fake.kernel.snapshot(), was, "{change:?}: step {at} refused");
            }
            let mut was_there = false;
            for after in [false, true] {
                let fake = made();
                was_there = fake.kill(&change, at, after);
                let when = format!("{change:?}: killed at step {at}");
                assert_eq!(open(&fake), CpuSet::new(), "{when}");
                fake.done(&REPAIR);
                holds(&fake, &when);
                fake.restored("after a kill");
            }
            steps = at;
            if !was_there {
                break;
            }
        }
        assert!(steps > 4, "{change:?}: {steps} steps");
    }
}

#[test]
fn the_file_of_guarded_cpus_is_written_by_no_step_but_that_of_the_scheduler() {
    let fake = machine();
    fake.done(&shared("a", "2-3"));
    assert_eq!(fake.text(CPUS), "2-3");
    fake.done(&REPAIR);
    assert_eq!(fake.text(CPUS), "2-3");
    fake.restored("the end");
}

#[test]
fn one_file_moves_a_partition_to_other_cpus_and_shares_it() {
    for mode in [Mode::Shared, Mode::BestEffort] {
        let fake = machine();
        fake.done(&create("a", "2"));
        let file = |cpus: &str, mode: Mode| {
            let one = serde_json::json!({"name": "a", "cpus": cpus, "mode": mode.to_string()});
            let file = serde_json::json!({ "partition": [one] });
            Request::Apply { declaration: serde_json::from_value(file).unwrap() }
        };
        fake.done(&file("3", mode));
        holds(&fake, "moved and shared");
        assert_eq!(fake.text(Path::new(RT).join("cpuset.cpus")), "3");
        fake.done(&file("1-2", Mode::Isolated));
        holds(&fake, "moved and isolated");
        fake.restored("the end");
    }
}

#[test]
fn a_scheduler_that_belongs_to_no_partition_goes_with_the_next_change() {
    for request in [create("b", "1"), RESTORE] {
        let fake = machine();
        fake.kernel.share(&set("2-3")).unwrap();
        fake.done(&request);
        assert_eq!(guarded(&fake), "");
        fake.restored("the end");
    }
}

#[test]
fn a_real_time_thread_beside_its_process_is_confined_too() {
    let fake = machine();
    fake.kernel.start(201, 200, "app-rt", FIFO_50);
    fake.done(&shared("a", "2-3"));
    let members = Members { tids: vec![200], ..Members::default() };
    fake.done(&Request::Add { name: "a".into(), members });
    let said = &fake.status().partitions[0].violations;
    assert!(said.is_empty(), "it was confined as it was outside: {said:?}");
    fake.kernel.give_at_boot(201, &set("0-3"));
    let said = &fake.status().partitions[0].violations;
    assert!(
        said.iter().any(|one| one.what.contains("201 (app-rt) may run on CPU 2-3")),
        "{said:?}"
    );
    fake.done(&REPAIR);
    assert_eq!(fake.allowed(201), "0-1");
    holds(&fake, "repaired");
}

#[test]
fn cpus_that_another_program_has_exclusively_are_not_shared() {
    let fake = machine();
    fake.write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
    fake.kernel.make_dir(Path::new("/sys/fs/cgroup/other")).unwrap();
    fake.write("/sys/fs/cgroup/other/cpuset.cpus.exclusive", "3");
    for request in [shared("a", "2-3"), create("a", "2-3")] {
        let refused = fake.ask(&request).unwrap_err();
        assert_eq!(refused.code(), 22, "{refused}");
    }
}
