// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is taken out of a user's partition, on a machine in memory.

use super::*;
use asmp_host::fake::FakeKernel;
use asmp_host::sched::TimeLimits;
use std::path::Path;

const FIFO: Schedule = Schedule::Fifo { priority: 50 };
const OTHER: Schedule = Schedule::Other { nice: 0 };

fn tree() -> Tree {
    Tree { mount: "/sys/fs/cgroup".into(), partitions: "/asmp".into() }
}

/// Process 300 with thread 301, from a user's partition, and its child 310; 400 is another user's,
/// whose rtkit limits it.
fn machine() -> FakeKernel {
    let kernel = FakeKernel::new();
    for group in ["/asmp", "/asmp/run-1", "/user.slice", "/user.slice/a.scope"] {
        kernel.make_dir(&Path::new("/sys/fs/cgroup").join(&group[1..])).unwrap();
    }
    for (tid, process) in [(300, 300), (301, 300), (310, 310), (400, 400)] {
        kernel.start(tid, process, "app", FIFO);
        kernel.place(tid, "/asmp/run-1", None);
    }
    for process in [300, 310] {
        rttime::mark(&kernel, process).unwrap();
    }
    let soon = Some(200_000);
    kernel.limit_real_time(400, TimeLimits { soft_us: soon, hard_us: soon }).unwrap();
    kernel
}

fn policies(kernel: &FakeKernel) -> Vec<Schedule> {
    [300, 301, 310, 400].map(|tid| kernel.schedule(tid).unwrap()).to_vec()
}

fn moved(group: &str, tid: i32) -> BTreeSet<TakenOut> {
    BTreeSet::from([TakenOut { group: group.into(), tid }])
}

#[test]
fn all_threads_of_a_process_that_is_taken_out_lose_their_policy() {
    let kernel = machine();
    for tid in [300, 301] {
        kernel.place(tid, "/user.slice/a.scope", None);
    }
    let told = after(&kernel, &tree(), &moved("/user.slice/a.scope", 300));
    assert_eq!(policies(&kernel), [OTHER, OTHER, FIFO, FIFO]);
    let words = "task 300 (app) was taken out to /user.slice/a.scope: SCHED_OTHER now, it was \
                 fifo:50";
    assert_eq!((told.told.len(), told.told[0].as_str()), (2, words));
    // Once is enough.
    assert_eq!(after(&kernel, &tree(), &moved("/user.slice/a.scope", 300)), Done::default());
}

#[test]
fn what_it_started_before_its_end_loses_its_policy_too() {
    let kernel = machine();
    kernel.place(310, "/user.slice/a.scope", None);
    assert_eq!(after(&kernel, &tree(), &moved("/user.slice", 999)).told.len(), 1);
    assert_eq!(policies(&kernel), [FIFO, FIFO, OTHER, FIFO]);
}

#[test]
fn a_task_that_went_on_elsewhere_is_found_by_its_number() {
    let kernel = machine();
    kernel.place(301, "/user.slice", None);
    assert_eq!(after(&kernel, &tree(), &moved("/gone.scope", 301)).told.len(), 1);
    // Its process is in the partition yet.
    assert_eq!(policies(&kernel), [FIFO, OTHER, FIFO, FIFO]);
}

#[test]
fn what_is_inside_keeps_its_policy_and_so_does_what_others_made_real_time() {
    let kernel = machine();
    kernel.start(500, 500, "free", FIFO);
    kernel.place(400, "/user.slice", None);
    assert_eq!(everywhere(&kernel, &tree()), Done::default());
    assert_eq!(after(&kernel, &tree(), &moved("/asmp/run-1", 300)), Done::default());
    assert_eq!(policies(&kernel), [FIFO; 4]);
    assert_eq!(kernel.schedule(500).unwrap(), FIFO);
    assert_eq!(after(&kernel, &tree(), &moved("/user.slice", 400)), Done::default());
}

#[test]
fn where_moves_were_missed_all_tasks_are_looked_at() {
    let kernel = machine();
    kernel.place(310, "/user.slice/a.scope", None);
    kernel.place(400, "/user.slice", None);
    assert_eq!(everywhere(&kernel, &tree()).told.len(), 1);
    assert_eq!(policies(&kernel), [FIFO, FIFO, OTHER, FIFO]);
}

/// The path of the first group leaves room for /cgroup.procs, but not for /cgroup.threads.
#[test]
fn a_group_that_is_nested_too_deep_hides_no_task_from_a_look_at_all() {
    let kernel = machine();
    for length in [4081, 4090] {
        let path = format!("{:d<length$}", "/sys/fs/cgroup/user.slice/");
        let group = path.strip_prefix("/sys/fs/cgroup").unwrap();
        kernel.make_dir(Path::new(&path)).unwrap();
        kernel.start(length as i32, length as i32, "deep", FIFO);
        rttime::mark(&kernel, length as i32).unwrap();
        kernel.place(length as i32, group, None);
    }
    kernel.place(310, "/user.slice/a.scope", None);
    // Beside them the others are found.
    assert_eq!(after(&kernel, &tree(), &moved("/user.slice", 999)).told.len(), 1);
    assert_eq!(policies(&kernel), [FIFO, FIFO, OTHER, FIFO]);
    assert_eq!(everywhere(&kernel, &tree()).told.len(), 2);
}

/// A task that starts another one each time that tasks are listed, before it loses its policy.
#[test]
fn a_task_that_starts_another_one_meanwhile_is_not_the_last_one_found() {
    let kernel = machine();
    kernel.place(300, "/user.slice", None);
    let next = std::cell::Cell::new(600);
    let tasks = || {
        let listed = cgroup::threads_below(&kernel, &tree().mount.join("user.slice")).unwrap();
        // Made before, listed after.
        if next.get() < 620 {
            kernel.start(next.get(), next.get(), "chain", FIFO);
            kernel.place(next.get(), "/user.slice", None);
            rttime::mark(&kernel, next.get()).unwrap();
            next.set(next.get() + 1);
        }
        listed
    };
    let done = demote(&kernel, &tree(), Instant::now() + Duration::from_secs(600), tasks);
    assert_eq!((done.told.len(), done.is_cut), (21, false));
    assert!((600..620).all(|tid| kernel.schedule(tid).unwrap() == OTHER));
}

#[test]
fn a_user_whose_tasks_never_end_has_us_for_a_bounded_time() {
    let kernel = machine();
    let next = std::cell::Cell::new(600);
    let tasks = || {
        kernel.start(next.get(), next.get(), "chain", FIFO);
        kernel.place(next.get(), "/user.slice", None);
        rttime::mark(&kernel, next.get()).unwrap();
        vec![next.replace(next.get() + 1)]
    };
    let end = Instant::now() + Duration::from_millis(50);
    let done = demote(&kernel, &tree(), end, tasks);
    assert!(done.is_cut && !done.told.is_empty(), "{done:?}");
    // Where the time is over already, one pass is made.
    assert_eq!(demote(&kernel, &tree(), end, tasks).told.len(), 1);
}
