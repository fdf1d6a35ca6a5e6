// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other programs change the groups of partitions: `status` names it, and `repair` mends it or says
//! what is still broken.

use crate::fixture::{Fake, OTHER, RESTORE, add, create, destroy, destroy_demoting};
use crate::left::Left;
use crate::partition::Refusal;
use crate::plan::Action;
use crate::request::{Members, Request, Spec};
use crate::shield::{ChangeError, Patience};
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::{CpuSet, Kernel, Schedule, task};
use std::path::Path;
use std::time::{Duration, Instant};

const RT: &str = "/sys/fs/cgroup/asmp/a/rt";

impl Fake {
    /// The same with partition `a` of CPU 3, which holds that process.
    pub(crate) fn partitioned() -> Self {
        let fake = Self::with_app();
        fake.done(&create("a", "3"));
        fake.done(&add("a", 200));
        fake
    }

    /// A repair: does it claim what `status` says?
    #[track_caller]
    pub(crate) fn repair(&self) -> bool {
        let claimed = self.done(&Request::Repair { name: None }).status.unwrap();
        let seen = self.status();
        assert_eq!(claimed.holds(), seen.holds(), "{seen:#?}");
        claimed.holds()
    }
}

fn add_thread(name: &str, tid: i32) -> Request {
    let members = Members { tids: vec![tid], ..Members::default() };
    Request::Add { name: name.into(), members }
}

#[test]
fn a_partition_whose_cgroup_files_were_changed_is_named_and_mended() {
    let edits: [&[(&str, &str)]; 6] = [
        &[("a/rt/cpuset.cpus.partition", "member")],
        &[("a/rt/cpuset.cpus.exclusive", "")],
        &[("a/cpuset.cpus.exclusive", "")],
        &[("cpuset.cpus.exclusive", "")],
        &[("a/rt/cpuset.cpus.partition", "member"), ("a/rt/cpuset.cpus.exclusive", "")],
        &[("a/cgroup.subtree_control", "-cpuset")],
    ];
    for edit in edits {
        let fake = Fake::partitioned();
        for (file, text) in edit {
            fake.write(&format!("/sys/fs/cgroup/asmp/{file}"), text);
        }
        assert!(!fake.status().holds(), "{edit:?}");
        assert!(fake.repair(), "{edit:?}");
        assert_eq!(fake.kernel.isolated().to_string(), "3", "{edit:?}");
        assert_eq!(fake.allowed(200), "3", "{edit:?}");
        fake.restored(&format!("{edit:?}"));
    }
}

#[test]
fn groups_that_were_removed_are_made_again() {
    let fake = Fake::with_app();
    fake.done(&create("a", "3"));
    fake.write(&format!("{RT}/cpuset.cpus.partition"), "member");
    for group in ["asmp/a/rt", "asmp/a/rest", "asmp/a", "asmp"] {
        fake.kernel.remove_dir(&Path::new("/sys/fs/cgroup").join(group)).unwrap();
        assert!(!fake.status().holds(), "{group}");
    }
    assert!(fake.repair());
    assert_eq!(fake.kernel.isolated().to_string(), "3");
    fake.restored("all gone");
}

#[test]
fn a_partition_that_a_hotplug_made_invalid_is_valid_again_after_repair() {
    let fake = Fake::partitioned();
    fake.kernel.set_online(3, false);
    assert!(!fake.repair(), "its CPU is still offline");
    fake.kernel.set_online(3, true);
    assert!(!fake.status().holds(), "the kernel leaves it invalid while tasks are inside");
    assert!(fake.repair());
    assert_eq!((fake.kernel.isolated().to_string(), fake.allowed(200)), ("3".into(), "3".into()));
    fake.restored("after a hotplug");
}

#[test]
fn a_repair_changes_nothing_where_nothing_is_broken() {
    let fake = Fake::partitioned();
    let then = fake.kernel.snapshot();
    let outcome = fake.done(&Request::Repair { name: Some("a".into()) });
    assert_eq!(outcome.changes, 0);
    assert_eq!(fake.kernel.snapshot(), then);
}

#[test]
fn a_repair_that_the_kernel_refuses_says_what_is_still_broken() {
    let fake = Fake::partitioned();
    fake.write(&format!("{RT}/cpuset.cpus.partition"), "member");
    fake.write(&format!("{RT}/cpuset.cpus.exclusive"), "");
    // Another group takes the CPU first.
    let other = Path::new("/sys/fs/cgroup/asmp/a/other");
    fake.kernel.make_dir(other).unwrap();
    fake.write("/sys/fs/cgroup/asmp/a/other/cpuset.cpus.exclusive", "3");
    assert!(!fake.repair());
    fake.kernel.remove_dir(other).unwrap();
    assert!(fake.repair());
    fake.restored("after the other group went");
}

#[test]
fn a_member_that_another_tool_moved_out_is_named_and_moved_back() {
    let fake = Fake::partitioned();
    fake.write("/sys/fs/cgroup/cgroup.procs", "200");
    assert_eq!(fake.allowed(200), "0-2");
    let status = fake.status();
    let named = &status.partitions[0].violations[0].what;
    assert!(named.contains("process 200 (app)"), "{named}");
    assert!(fake.repair());
    assert_eq!((fake.allowed(200), fake.allowed(201)), ("3".into(), "3".into()));
    fake.restored("a process");
    let fake = Fake::with_app();
    fake.done(&create("a", "3"));
    fake.done(&add_thread("a", 201));
    assert!(fake.status().holds(), "the rest of its process may be outside");
    fake.write("/sys/fs/cgroup/asmp/a/rest/cgroup.threads", "201");
    assert!(!fake.status().holds());
    assert!(fake.repair());
    assert_eq!((fake.allowed(200), fake.allowed(201)), ("0-2".into(), "3".into()));
    fake.restored("a thread alone");
}

/// LIMITS.md, "members": a process whose last thread inside has ended looks the same.
#[test]
fn a_whole_process_that_another_tool_moved_to_rest_is_no_violation_and_not_listed_inside() {
    let fake = Fake::partitioned();
    assert_eq!(fake.status().partitions[0].tasks.len(), 2);
    fake.write("/sys/fs/cgroup/asmp/a/rest/cgroup.procs", "200");
    assert_eq!((fake.allowed(200), fake.allowed(201)), ("0-2".into(), "0-2".into()));
    let status = fake.status();
    assert!(status.holds() && status.partitions[0].tasks.is_empty(), "{status:#?}");
    assert!(fake.repair());
    assert_eq!(fake.allowed(200), "0-2", "a repair leaves it there");
    fake.restored("a process in rest");
}

#[test]
fn a_frozen_partition_is_named_and_thawed() {
    for group in ["a", "a/rt"] {
        let fake = Fake::partitioned();
        fake.write(&format!("/sys/fs/cgroup/asmp/{group}/cgroup.freeze"), "1");
        let status = fake.status();
        assert!(status.partitions[0].violations[0].what.contains("cgroup.freeze"), "{status:#?}");
        assert!(fake.repair(), "{group}");
        fake.restored(group);
    }
}

#[test]
fn a_kernel_thread_that_lost_its_priority_is_named_and_gets_it_back() {
    let fake = Fake::partitioned();
    fake.kernel.set_schedule(23, &Schedule::Fifo { priority: 1 }).unwrap();
    let status = fake.status();
    assert!(status.partitions[0].violations[0].what.contains("ktimers/3"), "{status:#?}");
    assert!(fake.repair());
    assert_eq!(fake.kernel.schedule(23).unwrap(), Schedule::Fifo { priority: 98 });
    fake.restored("ktimers/3");
}

/// Partition `a` with process 200, one thread of it in `rt/sub`, and 300 in `rt/sub/deep`.
fn with_sub_groups() -> Fake {
    sub_groups_of(create("a", "3"))
}

/// The same where `made` makes the partition.
fn sub_groups_of(made: Request) -> Fake {
    let fake = Fake::after(&[made, add("a", 200)]);
    for group in ["sub", "sub/deep"] {
        let group = Path::new(RT).join(group);
        fake.kernel.make_dir(&group).unwrap();
        fake.kernel.write(&group.join("cgroup.type"), b"threaded").unwrap();
    }
    fake.kernel.make_dir(&Path::new(RT).join("not-threaded")).unwrap();
    fake.kernel.make_dir(Path::new("/sys/fs/cgroup/asmp/a/other")).unwrap();
    fake.kernel.start(300, 300, "inner", Schedule::Other { nice: 0 });
    fake.write(&format!("{RT}/sub/cgroup.threads"), "201");
    fake.write(&format!("{RT}/sub/deep/cgroup.procs"), "300");
    fake
}

/// Of a command in partition `a`.
fn run_and_its_end() -> (Request, Request) {
    let (name, spec, owner) = ("a".to_owned(), Spec::of("3".parse().unwrap()), None);
    (Request::Run { name: name.clone(), spec, owner }, Request::EndRun { name, owner })
}

#[test]
fn groups_made_inside_a_partition_are_listed_and_go_with_it() {
    let of = |request| (create("a", "3"), request);
    let ends = [of(destroy("a")), of(destroy_demoting("a")), of(RESTORE), run_and_its_end()];
    for (made, request) in ends {
        let fake = sub_groups_of(made);
        let status = fake.status();
        assert!(status.holds(), "{status:#?}");
        let partition = &status.partitions[0];
        assert_eq!(partition.sub_groups.len(), 4, "{partition:#?}");
        assert!(partition.tasks.iter().any(|task| task.tid == 300), "{partition:#?}");
        fake.done(&request);
        assert_eq!(fake.allowed(300), "0-3");
        fake.kernel.end(300);
        fake.is_untouched(&format!("{request:?}"));
    }
}

/// A program inside may freeze a group of its own.
#[test]
fn a_frozen_group_made_inside_is_not_thawed_and_goes_with_the_partition() {
    let fake = with_sub_groups();
    let file = format!("{RT}/sub/cgroup.freeze");
    fake.write(&file, "1");
    assert!(fake.repair());
    assert_eq!(fake.text(&file), "1");
    fake.done(&destroy("a"));
    assert_eq!(fake.allowed(300), "0-3");
    fake.kernel.end(300);
    fake.is_untouched("frozen inside");
}

#[test]
fn a_task_that_became_real_time_in_a_group_inside_keeps_the_partition() {
    let fake = with_sub_groups();
    fake.kernel.set_schedule(300, &Schedule::Fifo { priority: 50 }).unwrap();
    let then = fake.kernel.snapshot();
    let error = fake.ask(&destroy("a")).unwrap_err().to_string();
    assert!(error.contains("task 300"), "{error}");
    assert_eq!(fake.kernel.snapshot(), then);
    fake.done(&destroy_demoting("a"));
    assert_eq!(fake.kernel.schedule(300).unwrap(), Schedule::Other { nice: 0 });
    fake.kernel.end(300);
    fake.is_untouched("demoted");
    // The end of a run takes the policy without being told to.
    let (run, end) = run_and_its_end();
    let fake = sub_groups_of(run);
    fake.kernel.set_schedule(300, &Schedule::Fifo { priority: 50 }).unwrap();
    fake.done(&end);
    assert_eq!(fake.kernel.schedule(300).unwrap(), Schedule::Other { nice: 0 });
    fake.kernel.end(300);
    fake.is_untouched("the end of a run");
}

#[test]
fn an_end_of_a_partition_that_is_cut_short_gives_its_inner_groups_and_tasks_back() {
    for after in [false, true] {
        for at in 0.. {
            let fake = with_sub_groups();
            let then = fake.kernel.snapshot();
            let killed = fake.kill(&destroy("a"), at, after);
            if !killed {
                assert!(at > 15, "only {at} steps");
                break;
            }
            // Any change first undoes what was cut short.
            let name = Some("none".into());
            let _ = fake.ask(&Request::Destroy { name, demote: false });
            let now = fake.kernel.snapshot();
            let changed: Vec<_> =
                then.iter().filter(|(key, was)| now.get(*key) != Some(was)).collect();
            assert!(changed.is_empty() && now.len() == then.len(), "killed at {at}: {changed:#?}");
            fake.done(&Request::Restore { abandon: false });
            fake.kernel.end(300);
            fake.is_untouched(&format!("killed at {at}"));
        }
    }
}

#[test]
fn a_killed_creation_goes_with_the_groups_that_others_made_in_it() {
    let fake = Fake::with_app();
    assert!(fake.kill(&create("a", "3"), 9, true));
    fake.kernel.make_dir(&Path::new(RT).join("sub")).unwrap();
    fake.restored("killed");
}

/// A group of another program with a task in it.
fn foreign(fake: &Fake, path: &str) {
    let path = Path::new("/sys/fs/cgroup").join(path);
    fake.kernel.make_dir(&path).unwrap();
    fake.kernel.start(400, 400, "theirs", Schedule::Fifo { priority: 20 });
    fake.kernel.write(&path.join("cgroup.procs"), b"400").unwrap();
}

#[test]
fn a_group_of_another_program_among_ours_is_never_entered_emptied_or_removed() {
    let theirs = |fake: &Fake| {
        let task = fake.kernel.snapshot()["task 400"].clone();
        assert!(task.contains("/asmp/x") && task.contains("priority: 20"), "{task}");
    };
    let fake = Fake::with_app();
    fake.done(&create("a", "3"));
    foreign(&fake, "asmp/x");
    let then = fake.kernel.snapshot();
    let error = fake.ask(&create("x", "2")).unwrap_err().to_string();
    assert!(error.contains("/asmp/x"), "{error}");
    assert_eq!(fake.kernel.snapshot(), then);
    assert!(fake.status().orphans.is_empty() && fake.status().holds());
    let outcome = fake.done(&destroy("a"));
    assert!(outcome.refused.iter().any(|refused| refused.reason.contains("/asmp/x")));
    let names_theirs = |left: &Left| left.to_string().contains("made /sys/fs/cgroup/asmp/x");
    assert!(outcome.left.iter().any(names_theirs), "{:?}", outcome.left);
    theirs(&fake);
    assert!(fake.status().orphans.is_empty(), "what stays for them is no orphan");
    // The group above theirs is still ours: the next partition takes it again.
    fake.done(&create("a", "3"));
    for _ in 0..2 {
        let outcome = fake.done(&Request::Restore { abandon: false });
        assert!(outcome.left.iter().any(names_theirs), "{:?}", outcome.left);
        theirs(&fake);
    }
}

#[test]
fn a_killed_creation_leaves_a_group_that_another_program_made_meanwhile() {
    let fake = Fake::with_app();
    assert!(fake.kill(&create("a", "3"), 1, false));
    // Our journal says that we were about to make it.
    foreign(&fake, "asmp");
    fake.done(&Request::Restore { abandon: false });
    let task = fake.kernel.snapshot()["task 400"].clone();
    assert!(task.contains("/asmp") && task.contains("priority: 20"), "{task}");
}

#[test]
fn a_group_that_others_made_while_a_creation_failed_keeps_only_what_is_above_it() {
    let mut named = 0;
    for at in 0.. {
        let mut fake = Fake::with_app();
        fake.kernel.start(400, 400, "theirs", Schedule::Fifo { priority: 20 });
        fake.untouched = fake.kernel.snapshot();
        // Killed there: then the others come, and then our next command.
        let killed = fake.kill(&create("a", "3"), at, true);
        if !killed {
            break;
        }
        let theirs = Path::new("/sys/fs/cgroup/asmp/x");
        if !fake.kernel.is_marked(theirs.parent().unwrap()) {
            continue;
        }
        fake.kernel.make_dir(theirs).unwrap();
        fake.write("/sys/fs/cgroup/asmp/x/cgroup.procs", "400");
        for request in [Request::Restore { abandon: false }, create("b", "2")] {
            let error = fake.ask(&request).unwrap_err();
            let ChangeError::NotUndone { left, .. } = &error else { panic!("{at}: {error}") };
            assert!(left.len() == 1 && left[0].contains("made /sys/fs/cgroup/asmp/x"), "{left:?}");
            assert!(error.to_string().contains("--abandon"), "{error}");
            let now = fake.kernel.snapshot();
            let changed = now.iter().filter(|(key, text)| fake.untouched.get(*key) != Some(*text));
            let keys: Vec<&str> = changed.map(|(key, _)| key.as_str()).collect();
            assert_eq!(keys, ["group /", "group /asmp", "group /asmp/x", "task 400"], "{at}");
            assert!(now["task 400"].contains("/asmp/x") && now["task 400"].contains("20"));
        }
        fake.write("/sys/fs/cgroup/cgroup.procs", "400");
        fake.kernel.remove_dir(theirs).unwrap();
        fake.restored(&format!("{at}: theirs is gone"));
        named += 1;
    }
    assert!(named > 10, "{named}");
}

#[test]
fn a_group_that_another_program_makes_at_the_same_moment_stays_though_it_is_empty() {
    let mut raced = Vec::new();
    for at in 0.. {
        let fake = Fake::with_app();
        fake.kernel.arm(Some(Fault::Race { at }));
        let answer = fake.ask(&create("a", "3"));
        let steps = fake.kernel.changes();
        fake.kernel.arm(None);
        if let Err(error) = answer {
            assert!(error.to_string().contains("File exists"), "{error}");
            let snapshot = fake.kernel.snapshot();
            let groups: Vec<_> =
                snapshot.keys().filter(|key| key.starts_with("group /a")).collect();
            let unmarked = |path: &Path| fake.kernel.exists(path) && !fake.kernel.is_marked(path);
            let theirs = ["asmp/a", "asmp"].map(|name| Path::new("/sys/fs/cgroup").join(name));
            match theirs.iter().find(|group| unmarked(group)) {
                Some(group) => {
                    assert!(group.ends_with(groups.last().unwrap().trim_start_matches("group /")));
                    fake.kernel.remove_dir(group).unwrap();
                }
                // Inside a partition of ours it goes with the partition.
                None => assert!(groups.is_empty(), "{groups:?}"),
            }
            fake.restored(&format!("{at}"));
            raced.push(groups.len());
        }
        if steps <= at {
            break;
        }
    }
    assert_eq!(raced, [1, 2, 0, 0], "asmp, asmp/a, and two groups of the partition");
}

#[test]
fn the_end_of_a_run_leaves_a_partition_that_others_made_under_its_name() {
    let fake = Fake::on(FakeKernel::new());
    fake.kernel.start(400, 400, "asmp", OTHER);
    let owner = task::identify(&*fake.kernel, 400);
    assert!(owner.is_some());
    let spec = Spec::of("3".parse().unwrap());
    let run = Request::Run { name: "a".into(), spec, owner };
    let end = Request::EndRun { name: "a".into(), owner };
    fake.ask(&run).unwrap();
    fake.ask(&end).unwrap();
    assert_eq!(fake.kernel.isolated().to_string(), "");
    fake.ask(&run).unwrap();
    fake.ask(&destroy("a")).unwrap();
    fake.ask(&create("a", "2")).unwrap();
    let refused = fake.ask(&end).unwrap_err();
    let is_named = matches!(refused, ChangeError::Refused(Refusal::NoPartition { .. }));
    assert!(is_named, "{refused}");
    assert_eq!(fake.kernel.isolated().to_string(), "2");
}

#[test]
fn a_task_on_cpus_that_must_be_idle_is_named() {
    let kernel = FakeKernel::large(8, 4);
    kernel.start(200, 200, "hog", OTHER);
    let fake = Fake::on(kernel);
    fake.done(&create("a", "3"));
    assert!(fake.status().holds());
    fake.write("/sys/fs/cgroup/asmp/a/rest/cgroup.procs", "200");
    fake.write("/sys/fs/cgroup/asmp/a/idle/cgroup.threads", "200");
    let status = fake.status();
    assert!(!status.holds());
    let [named] = &status.partitions[0].violations[..] else { panic!("{status:#?}") };
    assert!(named.cure.contains("asmp remove a --tid 200"), "{named:?}");
    let members = Members { tids: vec![200], ..Members::default() };
    fake.done(&Request::Remove { name: "a".into(), members, demote: false });
    assert!(fake.status().holds());
}

/// A process is where its main thread is; its other threads may be elsewhere.
#[test]
fn a_single_thread_on_cpus_that_must_be_idle_is_named() {
    let kernel = FakeKernel::large(8, 4);
    kernel.start(200, 200, "app", OTHER);
    kernel.start(201, 200, "hog", OTHER);
    let fake = Fake::on(kernel);
    fake.done(&create("a", "3"));
    fake.done(&add("a", 200));
    assert!(fake.status().holds());
    fake.write("/sys/fs/cgroup/asmp/a/idle/cgroup.threads", "201");
    let status = fake.status();
    let [named] = &status.partitions[0].violations[..] else { panic!("{status:#?}") };
    assert!(named.what.contains("task 201 (hog) is on CPUs that must be idle"), "{named:?}");
}

/// The record is of a thread that has ended; the process lives on in `rest`.
#[test]
fn a_process_goes_home_also_after_its_recorded_thread_ended_and_a_job_came() {
    let fake = Fake::with_app();
    fake.kernel.make_group("/control", &CpuSet::new(), &CpuSet::new());
    for tid in [200, 201] {
        fake.kernel.place(tid, "/control", None);
    }
    fake.done(&create("a", "3"));
    fake.done(&add_thread("a", 201));
    fake.kernel.end(201);
    fake.kernel.start(300, 300, "job", OTHER);
    fake.done(&fake.exec("a", 300, "job"));
    fake.done(&destroy("a"));
    assert_eq!(fake.kernel.task(200).unwrap().group, Path::new("/control"));
}

#[test]
fn a_thread_in_a_group_made_inside_stays_when_another_thread_of_its_process_leaves() {
    let fake = Fake::partitioned();
    let sub = format!("{RT}/sub");
    fake.kernel.make_dir(Path::new(&sub)).unwrap();
    fake.write(&format!("{sub}/cgroup.type"), "threaded");
    fake.write(&format!("{sub}/cgroup.threads"), "201");
    let members = Members { tids: vec![200], ..Members::default() };
    fake.done(&Request::Remove { name: "a".into(), members, demote: false });
    assert_eq!((fake.allowed(201), fake.status().partitions[0].tasks.len()), ("3".into(), 1));
}

#[test]
fn the_frozen_group_of_all_partitions_is_named_and_thawed() {
    let fake = Fake::partitioned();
    fake.write("/sys/fs/cgroup/asmp/cgroup.freeze", "1");
    assert!(!fake.status().holds());
    assert!(fake.repair());
    assert_eq!(fake.text("/sys/fs/cgroup/asmp/cgroup.freeze"), "0");
}

#[test]
fn a_file_system_that_takes_no_write_refuses_the_partition() {
    for below in ["/sys/kernel/debug/sched", "/proc/irq/24", "/proc/irq/default_smp_affinity"] {
        let fake = Fake::with_app();
        let untouched = fake.kernel.snapshot();
        fake.kernel.arm(Some(Fault::Hold { below, errno: libc::EROFS }));
        fake.ask(&create("a", "3")).unwrap_err();
        fake.kernel.arm(None);
        fake.ask(&Request::Restore { abandon: false }).unwrap();
        assert_eq!(fake.kernel.snapshot(), untouched, "{below}");
    }
}

/// x86 returns ENOSPC for a line where the CPUs have no vector left.
#[test]
fn a_line_without_a_free_vector_stays_and_is_named() {
    let fake = Fake::with_app();
    fake.kernel.arm(Some(Fault::Hold { below: "/proc/irq/24", errno: libc::ENOSPC }));
    let outcome = fake.done(&create("a", "3"));
    let line = "/proc/irq/24/smp_affinity_list";
    let named = outcome.refused.iter().find(|refused| refused.path == Path::new(line));
    let reason = &named.unwrap_or_else(|| panic!("{:#?}", outcome.refused)).reason;
    assert!(reason.contains("No space left"), "{reason}");
    assert_eq!(fake.text(line), "0-3", "it stays");
}

#[test]
fn jobs_that_have_ended_do_not_stay_in_the_state() {
    let fake = Fake::with_app();
    fake.done(&create("a", "3"));
    for pid in 1000..1050 {
        fake.kernel.start(pid, pid, "job", OTHER);
        fake.done(&fake.exec("a", pid, "job"));
        fake.kernel.end(pid);
    }
    assert_eq!(fake.state().partitions[0].tasks.len(), 1);
}

#[test]
fn a_sibling_that_comes_online_beside_a_partition_is_named_and_resize_keeps_it_idle() {
    let fake = Fake::on(FakeKernel::large(8, 4));
    fake.kernel.set_online(7, false);
    fake.done(&create("a", "3"));
    assert!(fake.status().holds());
    fake.kernel.set_online(7, true);
    let status = fake.status();
    let [named] = &status.partitions[0].violations[..] else { panic!("{status:#?}") };
    assert!(named.what.contains("CPU 7"), "{named:?}");
    assert!(named.cure.contains("asmp resize a --cpus 3"), "{named:?}");
    fake.done(&Request::Resize { name: "a".into(), cpus: "3".parse().unwrap() });
    assert!(fake.status().holds());
    assert_eq!(fake.status().partitions[0].idle_cpus.to_string(), "7");
    fake.restored("the sibling is idle no more");
}

/// A machine with partition `a` on CPU 3, whose kworker has work.
fn with_a_kworker_at_work(release: &str) -> Fake {
    let fake = Fake::after(&[create("a", "3")]);
    fake.kernel.set_file("/proc/sys/kernel/osrelease", release);
    fake.kernel.start_kernel_thread(90, "kworker/3:1-mm_percpu_wq", Some(3));
    fake.kernel.edit(90, |task| task.runnable = true);
    let patience = Patience { busy: Duration::from_millis(50), ..Patience::default() };
    Fake { shield: fake.shield.clone().with_patience(patience), ..fake }
}

#[test]
fn a_change_that_would_wait_for_a_starved_kworker_is_refused_from_7_0_on() {
    let fake = with_a_kworker_at_work("7.2.13");
    let before = fake.kernel.snapshot();
    let asked = Instant::now();
    let refused = fake.ask(&create("b", "2")).unwrap_err();
    // A kworker that gets its CPU meanwhile is waited for.
    assert!(asked.elapsed() >= Duration::from_millis(50));
    let named = Refusal::StarvedKworker { cpu: 3, kworker: "kworker/3:1-mm_percpu_wq".into() };
    assert!(matches!(&refused, ChangeError::Refused(why) if *why == named), "{refused:?}");
    assert_eq!(fake.kernel.snapshot(), before);
    fake.kernel.edit(90, |task| task.runnable = false);
    fake.done(&create("b", "2"));
    // Its tasks leave before the partition ends.
    fake.kernel.edit(90, |task| task.runnable = true);
    fake.done(&RESTORE);
    with_a_kworker_at_work("6.12.107").done(&create("b", "2"));
}

#[test]
fn all_tasks_leave_before_the_first_partition_ends() {
    let fake = Fake::after(&[create("a", "2"), create("b", "3"), add("b", 200)]);
    let steps = fake.done(&RESTORE).plan.steps;
    let place = |wanted: fn(&Action) -> bool| steps.iter().rposition(|step| wanted(&step.action));
    let last_task = place(|action| matches!(action, Action::Evacuate { .. }));
    let first_end =
        steps.iter().position(|s| matches!(&s.action, Action::Set { to, .. } if to == "member"));
    assert!(last_task.is_some() && last_task < first_end, "{steps:#?}");
}
