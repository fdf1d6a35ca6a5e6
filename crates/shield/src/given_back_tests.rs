// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every original is kept until it was given back: refused, offline, moved by the kernel itself.

use crate::apply::NAP;
use crate::fixture::{Fake, REPAIR, RESTORE, create, destroy, set};
use crate::left::Left;
use crate::request::{Caller, Request};
use crate::shield::{ChangeError, Patience};
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::{Kernel, Schedule};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

impl Fake {
    /// As `nohz_full=2-3 isolcpus=3` boots it.
    pub(crate) fn isolcpus() -> Self {
        let kernel = FakeKernel::new();
        kernel.start_kernel_thread(2, "kthreadd", None);
        kernel.start_kernel_thread(16, "rcu_preempt", None);
        kernel.give_at_boot(1, &set("0-2"));
        kernel.give_at_boot(2, &set("0-1"));
        kernel.give_at_boot(16, &set("0"));
        kernel.start(200, 200, "app", Schedule::Other { nice: 0 });
        Self::on(kernel)
    }

    /// The same under systemd; task 200 is in a unit.
    fn under_systemd() -> Self {
        let mut fake = Self::isolcpus();
        fake.kernel.boot_systemd(&[200]);
        fake.untouched = fake.kernel.snapshot();
        fake
    }
}

const SERVER: &str = "/sys/kernel/debug/sched/fair_server/cpu3/runtime";
const LATENCY: &str = "/sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us";

#[test]
fn originals_of_an_offline_cpu_wait_until_it_is_back() {
    for back in [RESTORE, REPAIR, destroy("b")] {
        for end in [destroy("a"), RESTORE] {
            let fake = Fake::isolcpus();
            fake.ask(&create("a", "3")).unwrap();
            if back == destroy("b") && end != RESTORE {
                fake.ask(&create("b", "2")).unwrap();
            }
            fake.kernel.set_online(3, false);
            let outcome = fake.ask(&end).unwrap();
            let left: Vec<String> = outcome.left.iter().map(ToString::to_string).collect();
            for file in [SERVER, LATENCY] {
                assert!(left.iter().any(|left| left.starts_with(file)), "{file}: {left:?}");
            }
            assert!(left.iter().all(|left| left.ends_with("CPU 3 is offline")), "{left:?}");
            let status = fake.shield.status().unwrap();
            assert!(!status.holds() && status.left.len() == left.len(), "{:?}", status.left);
            // Still offline: tried again, and still named.
            assert_eq!(fake.ask(&REPAIR).unwrap().left, outcome.left);
            assert_eq!((fake.text(SERVER), fake.text(LATENCY)), ("0".into(), "n/a".into()));
            fake.kernel.set_online(3, true);
            let outcome = match fake.ask(&back) {
                Err(ChangeError::Refused(_)) => fake.ask(&RESTORE),
                other => other,
            };
            assert!(outcome.unwrap().left.is_empty());
            fake.is_untouched(&format!("{end:?}, {back:?}"));
            assert!(fake.shield.status().unwrap().holds());
        }
    }
}

/// Node 0 has CPU 0-1, node 1 CPU 2-3; CPU 1 and 3 are offline, and not there is CPU 1.
#[test]
fn a_thread_of_a_node_gets_no_offline_cpu_of_another_node() {
    for present in ["0-3", "0,2-3"] {
        let kernel = FakeKernel::new();
        kernel.set_node(0, "0");
        kernel.set_node(1, "2");
        for (cpu, node) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            kernel.set_file(&format!("/sys/devices/system/cpu/cpu{cpu}/node{node}"), "");
        }
        kernel.set_file("/sys/devices/system/cpu/present", present);
        for cpu in [1, 3] {
            kernel.set_online(cpu, false);
        }
        kernel.edit(30, |task| task.affinity = Some(set("0")));
        let fake = Fake::on(kernel);
        fake.ask(&create("a", "2")).unwrap();
        fake.kernel.set_affinity(30, &set("0,2")).unwrap();
        assert_eq!(fake.ask(&destroy("a")).unwrap().left, []);
        let expected = if present == "0-3" { "0-1" } else { "0" };
        assert_eq!(fake.kernel.allowed(30).unwrap(), set(expected), "present: {present}");
    }
}

/// kthreadd has 0-2 by `nohz_full=3`, whatever is online.
#[test]
fn cpus_of_other_kernel_threads_come_back_exactly_though_they_equal_those_online() {
    let kernel = FakeKernel::new();
    kernel.start_kernel_thread(2, "kthreadd", None);
    kernel.give_at_boot(2, &set("0-2"));
    let fake = Fake::on(kernel);
    fake.kernel.set_online(3, false);
    fake.ask(&create("a", "2")).unwrap();
    fake.kernel.set_online(3, true);
    assert_eq!(fake.ask(&destroy("a")).unwrap().left, []);
    fake.is_untouched("CPU 3 came online beside the partition");
}

/// Node 0 has CPU 0-1, node 1 CPU 2-3; CPU 1 and 3 are offline when the partition is made.
#[test]
fn a_thread_of_a_node_gets_no_cpu_of_another_node() {
    let kernel = FakeKernel::new();
    for (cpu, node) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        kernel.set_file(&format!("/sys/devices/system/cpu/cpu{cpu}/node{node}"), "");
    }
    kernel.set_node(0, "0");
    kernel.set_node(1, "2");
    for cpu in [1, 3] {
        kernel.set_online(cpu, false);
    }
    kernel.edit(30, |task| task.affinity = Some(set("0")));
    let fake = Fake::on(kernel);
    fake.ask(&create("a", "2")).unwrap();
    for (node, cpus, cpu) in [(0, "0-1", 1), (1, "2-3", 3)] {
        fake.kernel.set_node(node, cpus);
        fake.kernel.set_online(cpu, true);
    }
    assert_eq!(fake.ask(&destroy("a")).unwrap().left, []);
    assert_eq!(fake.kernel.allowed(30).unwrap(), set("0-1"));
}

#[test]
fn cpus_that_a_kernel_thread_does_not_take_back_are_named_and_tried_again() {
    let fake = Fake::isolcpus();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.arm(Some(Fault::Keep { tid: 16 }));
    let left = fake.ask(&destroy("a")).unwrap().left;
    let words = "the CPUs of task 16 (was \"0\"): it has CPU 0-3 now";
    assert_eq!(left.iter().map(ToString::to_string).collect::<Vec<_>>(), [words]);
    assert!(!fake.shield.status().unwrap().holds());
    fake.kernel.arm(None);
    assert_eq!(fake.ask(&RESTORE).unwrap().left, []);
    fake.is_untouched("tried again");
}

#[test]
fn a_partition_made_before_the_originals_are_back_takes_none_of_ours_for_its_own() {
    let fake = Fake::isolcpus();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.set_online(3, false);
    fake.ask(&destroy("a")).unwrap();
    fake.kernel.set_online(3, true);
    fake.ask(&create("a", "3")).unwrap();
    fake.ask(&destroy("a")).unwrap();
    fake.is_untouched("made again");
}

#[test]
fn an_offline_cpu_of_a_partition_that_stays_is_not_left() {
    for line in ["0-3", "3"] {
        let mut fake = Fake::isolcpus();
        fake.kernel.set_file("/proc/irq/24/smp_affinity_list", line);
        fake.untouched = fake.kernel.snapshot();
        fake.ask(&create("a", "3")).unwrap();
        fake.kernel.set_online(3, false);
        assert_eq!(fake.shield.status().unwrap().left, []);
        assert_eq!(fake.ask(&create("b", "2")).unwrap().left, []);
        assert_eq!(fake.ask(&destroy("b")).unwrap().left, []);
        fake.kernel.set_online(3, true);
        fake.ask(&RESTORE).unwrap();
        fake.is_untouched("restored");
    }
}

#[test]
fn a_refused_way_back_keeps_its_original_and_is_tried_again() {
    let mut kept = 0;
    for end in [destroy("a"), RESTORE] {
        for at in 0.. {
            let fake = Fake::isolcpus();
            fake.ask(&create("a", "3")).unwrap();
            let steps = {
                fake.kernel.arm(Some(Fault::Refuse { at, errno: libc::EINVAL }));
                let outcome = fake.ask(&end);
                let steps = fake.kernel.changes();
                fake.kernel.arm(None);
                if let Ok(outcome) = outcome {
                    let status = fake.shield.status().unwrap();
                    assert_eq!(outcome.left.len(), status.left.len(), "{at}: {:?}", outcome.left);
                    assert_eq!(outcome.left.is_empty(), status.holds());
                    kept += outcome.left.len();
                }
                steps
            };
            assert!(fake.ask(&RESTORE).unwrap().left.is_empty());
            fake.is_untouched(&format!("{end:?} refused at {at}"));
            if steps <= at {
                break;
            }
        }
    }
    assert!(kept > 10, "only {kept}");
}

#[test]
fn what_was_lost_is_given_up_only_after_what_waits_is_back() {
    let fake = Fake::isolcpus();
    fake.ask(&create("a", "2")).unwrap();
    fake.files().iter().for_each(|file| std::fs::remove_file(fake.dir.path().join(file)).unwrap());
    fake.ask(&RESTORE).unwrap();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.set_online(3, false);
    fake.ask(&RESTORE).unwrap();
    let says = |words: &str| {
        let left = fake.shield.status().unwrap().left;
        let lost: Vec<_> = left.iter().filter(|left| left.what.contains("not known")).collect();
        assert!(!lost.is_empty() && lost.iter().all(|left| left.cure.contains(words)), "{left:?}");
    };
    says("once all else is given back");
    fake.kernel.set_online(3, true);
    fake.ask(&RESTORE).unwrap();
    says("check it, then `asmp restore --abandon`");
}

#[test]
fn what_cannot_be_given_back_is_given_up_on_demand() {
    let fake = Fake::isolcpus();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.set_online(3, false);
    fake.ask(&destroy("a")).unwrap();
    let outcome = fake.ask(&Request::Restore { abandon: true }).unwrap();
    assert!(!outcome.left.is_empty());
    assert!(fake.files().is_empty() && fake.state().originals.is_empty());
    assert!(fake.shield.status().unwrap().holds());
}

#[test]
fn a_line_whose_device_is_removed_owes_nothing() {
    let fake = Fake::isolcpus();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.remove_file("/proc/irq/24/smp_affinity_list");
    let outcome = fake.ask(&destroy("a")).unwrap();
    assert!(outcome.left.is_empty() && outcome.refused.is_empty(), "{:?}", outcome.left);
    assert!(fake.files().is_empty());
}

#[test]
fn the_tasks_of_units_keep_a_cpu_that_is_offline_when_the_last_partition_ends() {
    for end in [destroy("a"), RESTORE] {
        for back in [RESTORE, REPAIR] {
            let fake = Fake::under_systemd();
            fake.ask(&create("a", "3")).unwrap();
            assert_eq!(fake.kernel.allowed(200), Some(set("0-2")));
            fake.kernel.set_online(3, false);
            for request in [&end, &RESTORE, &REPAIR] {
                let outcome = fake.ask(request).unwrap();
                let left: Vec<String> = outcome.left.iter().map(ToString::to_string).collect();
                assert!(left.iter().all(|left| left.ends_with("CPU 3 is offline")), "{left:?}");
                let file = "/sys/fs/cgroup/cgroup.subtree_control: cpuset stays";
                assert!(left.iter().any(|left| left.starts_with(file)), "{left:?}");
                assert!(outcome.unknown_originals.is_empty());
                let status = fake.shield.status().unwrap();
                assert_eq!(status.left.len(), left.len(), "{:?}", status.left);
                assert!(status.orphans.is_empty() && !status.holds());
            }
            fake.kernel.set_online(3, true);
            assert!(!fake.shield.status().unwrap().holds());
            let outcome = fake.ask(&back).unwrap();
            assert!(outcome.left.is_empty(), "{:?}", outcome.left);
            assert_eq!(fake.kernel.allowed(200), Some(set("0-3")));
            fake.is_untouched(&format!("{end:?}, {back:?}"));
        }
    }
}

#[test]
fn a_partition_made_while_the_controller_waits_takes_the_groups_again() {
    let fake = Fake::under_systemd();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.set_online(3, false);
    fake.ask(&destroy("a")).unwrap();
    fake.ask(&create("b", "2")).unwrap();
    // The CPU of the partition before is still offline when this one ends.
    let outcome = fake.ask(&destroy("b")).unwrap();
    assert!(outcome.left.iter().any(|left| left.reason.contains("cpuset stays")));
    fake.ask(&create("b", "2")).unwrap();
    fake.kernel.set_online(3, true);
    assert!(fake.ask(&destroy("b")).unwrap().left.is_empty());
    fake.is_untouched("ended");
}

#[test]
fn the_group_of_our_partitions_that_stays_is_named_until_it_is_gone() {
    let bases = [
        (Fake::isolcpus(), "/sys/fs/cgroup/asmp"),
        (Fake::under_systemd(), "/sys/fs/cgroup/asmp.slice/asmp-holder.service"),
    ];
    for (fake, base) in bases {
        fake.ask(&create("a", "3")).unwrap();
        let theirs = Path::new(base).join("theirs");
        fake.kernel.make_dir(&theirs).unwrap();
        assert!(fake.shield.status().unwrap().holds(), "a partition is there");
        let is_named = |left: &Left| left.what == base && left.reason.contains("remove that first");
        for request in [destroy("a"), RESTORE, REPAIR] {
            let left = fake.ask(&request).unwrap().left;
            assert!(left.iter().any(is_named), "{left:?}");
        }
        let named = |cure: &str| {
            let status = fake.shield.status().unwrap();
            let stays = format!("{base} stays");
            let left = status.left.iter().find(|left| left.what.starts_with(&stays));
            assert!(left.is_some_and(|left| left.cure.contains(cure)), "{:?}", status.left);
            assert!(!status.holds());
        };
        named("remove that first, then `asmp restore`");
        fake.kernel.remove_dir(&theirs).unwrap();
        named("`asmp restore`");
        assert!(fake.ask(&RESTORE).unwrap().left.is_empty());
        fake.is_untouched(base);
        assert!(fake.shield.status().unwrap().holds());
    }
}

#[test]
fn a_controller_that_waits_for_a_cpu_can_be_given_up() {
    let fake = Fake::under_systemd();
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.set_online(3, false);
    fake.ask(&destroy("a")).unwrap();
    let outcome = fake.ask(&Request::Restore { abandon: true }).unwrap();
    assert!(outcome.left.iter().any(|left| left.reason.contains("cpuset stays")));
    assert!(fake.shield.status().unwrap().holds() && fake.files().is_empty());
    fake.kernel.set_online(3, true);
    // This is what the wait is for.
    assert_eq!(fake.kernel.allowed(200), Some(set("0-2")));
}

#[test]
fn killed_at_any_step_the_end_under_systemd_restores_everything() {
    for offline in [false, true] {
        for at in 0.. {
            let fake = Fake::under_systemd();
            fake.ask(&create("a", "3")).unwrap();
            fake.kernel.set_online(3, !offline);
            let killed = fake.kill(&destroy("a"), at, at % 2 == 0);
            fake.ask(&RESTORE).unwrap();
            fake.kernel.set_online(3, true);
            fake.ask(&RESTORE).unwrap();
            assert_eq!(fake.kernel.allowed(200), Some(set("0-3")));
            fake.is_untouched(&format!("offline {offline}, {at}"));
            if !killed {
                break;
            }
        }
    }
}

#[test]
fn a_task_on_an_offline_cpu_leaves_with_the_cpus_of_its_group() {
    let fake = Fake::isolcpus();
    fake.ask(&create("a", "3")).unwrap();
    let members = crate::Members { pids: vec![200], ..Default::default() };
    fake.ask(&Request::Add { name: "a".into(), members }).unwrap();
    // A thread that sleeps keeps its mask when its CPU goes offline, and in its next group.
    fake.kernel.set_affinity(200, &set("3")).unwrap();
    fake.kernel.set_online(3, false);
    fake.ask(&destroy("a")).unwrap();
    let allowed = fake.kernel.allowed(200).unwrap();
    assert!(allowed.intersects(&set("0-2")), "{allowed}");
    fake.kernel.set_online(3, true);
    fake.ask(&RESTORE).unwrap();
    fake.is_untouched("restored");
}

#[test]
fn masks_that_the_kernel_changes_by_itself_are_given_back_killed_or_refused_at_any_step() {
    let faults: [fn(usize) -> Fault; 2] = [
        |at| Fault::Die { at, after: at % 2 == 0 },
        |at| Fault::Refuse { at, errno: libc::EINVAL },
    ];
    for fault in faults {
        for ending in [false, true] {
            for at in 0.. {
                let fake = Fake::isolcpus();
                if ending {
                    fake.ask(&create("a", "3")).unwrap();
                    fake.ask(&create("b", "2")).unwrap();
                    fake.ask(&destroy("b")).unwrap();
                }
                fake.kernel.arm(Some(fault(at)));
                let request = if ending { destroy("a") } else { create("a", "3") };
                let _ = catch_unwind(AssertUnwindSafe(|| fake.ask(&request)));
                let steps = fake.kernel.changes();
                fake.kernel.arm(None);
                fake.ask(&RESTORE).unwrap();
                fake.is_untouched(&format!("ending {ending}, {at}"));
                if steps <= at {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_handler_goes_back_to_the_cpu_of_its_line() {
    let mut fake = Fake::isolcpus();
    fake.kernel.set_file("/proc/irq/24/effective_affinity_list", "2");
    fake.kernel.start_kernel_thread(41, "irq/24-eth0", None);
    // By the kernel itself, which asks for nothing that it must go on respecting.
    fake.kernel.edit(41, |handler| handler.affinity = Some(set("2")));
    fake.untouched = fake.kernel.snapshot();
    fake.ask(&create("a", "3")).unwrap();
    assert_eq!(fake.kernel.allowed(41), Some(set("0-2")), "as 6.12 does");
    // The line is given back with the mask that it had, and the controller may choose anew.
    fake.ask(&destroy("a")).unwrap();
    let line = fake.kernel.text(Path::new("/proc/irq/24/effective_affinity_list")).unwrap();
    assert_eq!(fake.kernel.allowed(41), Some(set(line.trim())));
    fake.is_untouched("the handler follows its line");
}

#[test]
fn what_repair_confines_is_given_back() {
    for end in [destroy("a"), RESTORE] {
        let fake = Fake::isolcpus();
        fake.ask(&create("a", "3")).unwrap();
        for tid in [2, 30] {
            fake.kernel.set_affinity(tid, &set("0-3")).unwrap();
        }
        // One that started later has no other original than what it has now.
        fake.kernel.start_kernel_thread(40, "late", None);
        fake.kernel.set_affinity(40, &set("0-3")).unwrap();
        fake.ask(&REPAIR).unwrap();
        assert!([2, 30, 40].iter().all(|tid| fake.kernel.allowed(*tid) == Some(set("0-2"))));
        fake.ask(&end).unwrap();
        assert_eq!(fake.kernel.allowed(40), Some(set("0-3")));
        assert_eq!(fake.kernel.allowed(2), Some(set("0-1")));
        let mut fake = fake;
        fake.untouched.insert("task 40".into(), fake.kernel.snapshot()["task 40"].clone());
        fake.is_untouched(&format!("{end:?}"));
    }
}

#[test]
fn the_cpus_of_unbound_work_that_isolcpus_left_are_given_back() {
    let file = "/sys/devices/virtual/workqueue/cpumask";
    let fake = Fake::isolcpus();
    fake.kernel.set_file("/sys/devices/system/cpu/isolated", "3");
    fake.kernel.set_file(file, "7");
    fake.ask(&create("a", "3")).unwrap();
    // It was noted, and nothing has changed it: nothing waits to be given back.
    let status = fake.shield.status().unwrap();
    assert!(status.holds() && status.left.is_empty(), "{:?}", status.left);
    assert!(status.boot_isolated_cpus.is_empty() && status.foreign_isolated_cpus.is_empty());
    // The kernel gives unbound work all CPUs when the last partition ends; here: before.
    fake.kernel.set_file(file, "f");
    fake.ask(&destroy("a")).unwrap();
    assert_eq!(fake.text(file), "7");
    assert!(fake.files().is_empty());
    let status = fake.shield.status().unwrap();
    assert_eq!((status.boot_isolated_cpus, status.system_cpus), (set("3"), set("0-2")));
    // The fake is as forgetful as Linux 6.12.
    assert_eq!(status.boot_isolated_uncounted, set("3"));
}

#[test]
fn repair_tries_again_what_the_kernel_refused() {
    let fake = Fake::isolcpus();
    let file = "/proc/irq/24/smp_affinity_list";
    let at = (0..)
        .find(|at| {
            let fake = Fake::isolcpus();
            fake.kernel.arm(Some(Fault::Refuse { at: *at, errno: libc::EIO }));
            let made = fake.ask(&create("a", "3"));
            made.is_ok() && fake.state().refused.contains_key(Path::new(file))
        })
        .unwrap();
    fake.kernel.arm(Some(Fault::Refuse { at, errno: libc::EIO }));
    fake.ask(&create("a", "3")).unwrap();
    fake.kernel.arm(None);
    assert_eq!(fake.text(file), "0-3");
    let outcome = fake.ask(&REPAIR).unwrap();
    assert_eq!(fake.text(file), "0-2");
    assert!(!fake.state().refused.contains_key(Path::new(file)));
    let refuses: Vec<&Path> = outcome.refused.iter().map(|refused| &*refused.path).collect();
    assert_eq!(refuses, [Path::new("/proc/irq/25/smp_affinity_list")]);
    fake.ask(&RESTORE).unwrap();
    fake.is_untouched("restored");
}

#[test]
fn all_waits_on_a_busy_kernel_together_are_bounded() {
    let changes = |errno| {
        let fake = Fake::isolcpus();
        fake.ask(&create("a", "1-3")).unwrap();
        let busy = 10 * NAP;
        let shield = fake.shield.clone().with_patience(Patience { busy, ..Patience::default() });
        fake.kernel.arm(Some(Fault::Hold { below: "/sys/kernel/debug/sched", errno }));
        let destroy = destroy("a");
        let outcome = shield.change(&destroy, &Caller::now(0, "root", "test")).unwrap();
        let changes = fake.kernel.changes();
        fake.kernel.arm(None);
        assert_eq!(outcome.left.len(), 3, "{:?}", outcome.left);
        assert!(fake.ask(&RESTORE).unwrap().left.is_empty());
        fake.is_untouched("restored");
        changes
    };
    assert_eq!(changes(libc::EBUSY) - changes(libc::EINVAL), 10, "tries");
}

/// Timers of machine checks may be started twice by the kernel when both happen at once.
#[test]
fn the_interval_of_machine_checks_is_not_written_while_a_cpu_comes_online() {
    let fake = Fake::isolcpus();
    let file = |name: &str| format!("/sys/devices/system/cpu/cpu2/hotplug/{name}");
    fake.kernel.set_file(&file("target"), "240");
    let comes = |state: &str| fake.kernel.set_file(&file("state"), state);
    let patience = Patience { busy: 2 * NAP, ..Patience::default() };
    let shield = fake.shield.clone().with_patience(patience);
    let ask = |request| shield.change(&request, &Caller::now(0, "root", "test")).unwrap();
    let interval = "/sys/devices/system/machinecheck/machinecheck0/check_interval";
    comes("187");
    let refused = ask(create("a", "3")).refused;
    assert!(refused.iter().any(|one| one.path == Path::new(interval)), "{refused:?}");
    assert_eq!(fake.text(interval), "300");
    comes("240");
    ask(REPAIR);
    assert_eq!(fake.text(interval), "0");
    comes("187");
    assert_eq!(ask(destroy("a")).left.len(), 1);
    assert_eq!(fake.text(interval), "0");
    comes("240");
    assert_eq!(ask(RESTORE).left, []);
    assert_eq!(fake.text(interval), "300");
}
