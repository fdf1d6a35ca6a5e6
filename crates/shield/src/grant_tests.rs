// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a user who is not root may do under a grant, and what not.

use crate::choose::Need;
use crate::fixture::{
    FIFO_50, FIFO_80, Fake, OTHER, assert_same, create, destroy, pid_of, root, set,
};
use crate::grant::Grant;
use crate::outcome::Outcome;
use crate::partition::{Refusal, Smt, Tick};
use crate::plan::{Action, Step};
use crate::request::{Caller, Cpus, Request, Spec};
use crate::shield::ChangeError;
use asmp_host::fake::FakeKernel;
use asmp_host::task::TaskId;
use asmp_host::{Kernel, Schedule};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const USER: u32 = 1000;
const OWNER: Option<TaskId> = Some(TaskId { tid: 200, start_ticks: 1200 });

fn grant(cpus: &str) -> Grant {
    Grant { uid: USER, cpus: set(cpus), policy: FIFO_50, partitions: 1, until_s: Some(7) }
}

fn run(name: &str, spec: Spec) -> Request {
    Request::Run { name: name.into(), spec, owner: OWNER }
}

fn of(cpus: &str) -> Spec {
    Spec::of(cpus.parse().unwrap())
}

fn needing(count: usize) -> Spec {
    Spec::with(Cpus::Needed(Need { count, near: None, whole_cores: false }))
}

fn ask(fake: &Fake, grant: &Grant, request: &Request) -> Result<Outcome, ChangeError> {
    let caller = Caller::now(grant.uid, "user", "test").with_grant(grant.clone());
    fake.shield.change(request, &caller)
}

/// What is said to be not granted.
#[track_caller]
fn lacks(fake: &Fake, grant: &Grant, request: &Request) -> String {
    let before = fake.kernel.changes();
    match ask(fake, grant, request) {
        Err(ChangeError::Refused(Refusal::NotGranted { what, granted })) => {
            assert_eq!(fake.kernel.changes(), before, "nothing is touched");
            assert!(granted.starts_with(&format!("user {} may use CPU ", grant.uid)), "{granted}");
            what
        }
        other => panic!("{request:?}: {other:?}"),
    }
}

#[test]
fn a_user_has_the_cpus_of_the_grant_and_no_others() {
    let fake = Fake::with_app();
    for (cpus, beyond) in [("1", "CPU 1"), ("1-3", "CPU 1"), ("last:2", "CPU 2"), ("all", "CPU")] {
        let what = match ask(&fake, &grant("3"), &run("run-1", of(cpus))) {
            Err(ChangeError::Refused(Refusal::NotGranted { what, .. })) => what,
            Err(ChangeError::Refused(Refusal::LastCpu { .. })) => "CPU".to_owned(),
            other => panic!("{cpus}: {other:?}"),
        };
        assert!(what.starts_with(beyond), "{cpus}: {what}");
    }
    ask(&fake, &grant("3"), &run("run-1", of("3"))).unwrap();
    let state = fake.state();
    assert_eq!(state.partition("run-1").unwrap().granted, Some(grant("3")));
    // What was granted is shown, and kept in the state.
    assert_eq!(fake.status().partitions[0].granted, Some(grant("3")));
}

#[test]
fn cpus_are_chosen_among_those_of_the_grant() {
    let fake = Fake::with_app();
    // Without a grant it would be 3, the highest.
    ask(&fake, &grant("1-2"), &run("run-1", needing(1))).unwrap();
    assert_eq!(fake.state().partition("run-1").unwrap().cpus, set("2"));
    let two = Grant { partitions: 2, ..grant("1-2") };
    let refused = ask(&fake, &two, &run("run-2", needing(2))).unwrap_err();
    let words = "at most 1 can be given: CPU 1 is free, and the system keeps one; partition run-1 \
                 has CPU 2; the system alone has CPU 0,3";
    assert!(refused.to_string().contains(words), "{refused}");
}

#[test]
fn the_siblings_that_a_partition_takes_must_be_granted_too() {
    // CPUs 3 and 7 share a core.
    let fake = Fake::on(FakeKernel::large(8, 4));
    fake.kernel.start(200, 200, "app", OTHER);
    let what = lacks(&fake, &grant("3"), &run("run-1", of("3")));
    assert_eq!(what, "CPU 7, which shares a core with it");
    let chosen = ask(&fake, &grant("3"), &run("run-1", needing(1))).unwrap_err();
    assert!(chosen.to_string().contains("CPU 7, which belongs to the system alone"), "{chosen}");
    ask(&fake, &grant("3"), &run("run-1", Spec { smt: Smt::Share, ..of("3") })).unwrap();
    let both = Grant { partitions: 2, ..grant("2,6") };
    ask(&fake, &both, &run("run-2", of("2"))).unwrap();
    assert_eq!(fake.state().partition("run-2").unwrap().shielded(), set("2,6"));
}

#[test]
fn a_user_changes_nothing_of_others() {
    let fake = Fake::with_app();
    fake.done(&create("motion", "1"));
    let other = Grant { uid: 1001, ..grant("2") };
    ask(&fake, &other, &run("run-2", of("2"))).unwrap();
    let mine = Grant { partitions: 3, ..grant("1-3") };
    let exec = |name: &str| fake.exec(name, 200, "x");
    let end = |name: &str| Request::EndRun { name: name.into(), owner: OWNER };
    for name in ["motion", "run-2"] {
        for request in [exec(name), end(name)] {
            assert_eq!(lacks(&fake, &mine, &request), format!("partition {name}"));
        }
    }
    let name = || "run-2".to_owned();
    for request in [
        create("run-3", "3"),
        destroy("run-2"),
        Request::Destroy { name: None, demote: true },
        Request::Resize { name: name(), cpus: "3".parse().unwrap() },
        Request::Add { name: name(), members: pid_of(200) },
        Request::Remove { name: name(), members: pid_of(200), demote: true },
        Request::Move { from: name(), to: "motion".into(), members: pid_of(200) },
        Request::Repair { name: None },
        Request::Restore { abandon: true },
        Request::System(crate::System::default()),
        Request::Apply { declaration: crate::Declaration::default() },
        Request::Run { name: "run-3".into(), spec: of("3"), owner: None },
    ] {
        assert_eq!(lacks(&fake, &mine, &request), "such a change", "{request:?}");
    }
    assert_eq!(fake.state().known_names(), "known are: motion, run-2");
    assert!(fake.status().holds());
}

#[test]
fn lines_ticks_that_are_counted_and_more_partitions_than_granted_are_refused() {
    let fake = Fake::with_app();
    let with_line = Spec { irqs: vec!["24".into()], ..of("3") };
    let with_priority = Spec { irq_priority: Some(90), ..of("3") };
    for spec in [with_line, with_priority] {
        assert_eq!(lacks(&fake, &grant("3"), &run("run-1", spec)), "an IRQ line");
    }
    let counted = Spec { tick: Tick::RequireOff, ..of("3") };
    assert!(lacks(&fake, &grant("3"), &run("run-1", counted)).contains("require-off"));
    ask(&fake, &grant("2-3"), &run("run-1", of("3"))).unwrap();
    let second = run("run-2", of("2"));
    assert_eq!(lacks(&fake, &grant("2-3"), &second), "one more partition");
    // The file may have another line by now.
    assert_eq!(lacks(&fake, &grant("1-3"), &second), "one more partition");
    // A grant of other CPUs, and another user, count by themselves.
    ask(&fake, &grant("2"), &second).unwrap();
    let other = Grant { uid: 1001, ..grant("2") };
    assert!(ask(&fake, &other, &run("run-3", of("2"))).is_err(), "CPU 2 is taken");
    ask(&fake, &grant("2"), &Request::EndRun { name: "run-2".into(), owner: OWNER }).unwrap();
    ask(&fake, &other, &run("run-3", of("2"))).unwrap();
    let fake = Fake::with_app();
    ask(&fake, &Grant { uid: 1001, ..grant("2-3") }, &run("run-1", of("2"))).unwrap();
    ask(&fake, &grant("2-3"), &run("run-2", of("3"))).unwrap();
}

#[test]
fn a_process_of_another_partition_is_not_taken_from_it() {
    let fake = Fake::with_app();
    fake.done(&create("motion", "1"));
    fake.done(&Request::Add { name: "motion".into(), members: pid_of(200) });
    ask(&fake, &grant("3"), &run("run-1", of("3"))).unwrap();
    let exec = fake.exec("run-1", 200, "x");
    let what = lacks(&fake, &grant("3"), &exec);
    assert_eq!(what, "process 200, which is in another partition");
    fake.done(&Request::Remove { name: "motion".into(), members: pid_of(200), demote: true });
    ask(&fake, &grant("3"), &exec).unwrap();
    assert_eq!(fake.allowed(200), "3");
}

#[test]
fn what_became_real_time_inside_goes_on_as_sched_other() {
    let fake = Fake::with_app();
    ask(&fake, &grant("3"), &run("run-1", of("3"))).unwrap();
    let exec = fake.exec("run-1", 200, "x");
    ask(&fake, &grant("3"), &exec).unwrap();
    fake.kernel.set_schedule(200, &FIFO_50).unwrap();
    let end = Request::EndRun { name: "run-1".into(), owner: OWNER };
    let ended = ask(&fake, &grant("3"), &end).unwrap();
    assert!(ended.demoted.iter().any(|one| one.task.tid == 200));
    assert_eq!((fake.policy(200), fake.allowed(200)), (OTHER, "0-3".to_owned()));
}

/// What starts a task as its group is being emptied would start a real-time one outside.
#[test]
fn the_tasks_of_a_user_stand_still_while_they_leave_and_those_of_root_do_not() {
    let place = |steps: &[Step], wanted: &dyn Fn(&Action) -> bool| {
        steps.iter().position(|step| wanted(&step.action))
    };
    let freezes = |action: &Action| {
        matches!(action, Action::Set { knob, to, .. }
        if knob.path.ends_with("run-1/cgroup.freeze") && to == "1")
    };
    let fake = Fake::with_app();
    let rest = |granted: bool| {
        let asked = run("run-1", of("3"));
        match granted {
            true => ask(&fake, &grant("3"), &asked).unwrap(),
            false => fake.done(&asked),
        };
        let exec = fake.exec("run-1", 200, "x");
        fake.done(&exec);
        let end = Request::EndRun { name: "run-1".into(), owner: OWNER };
        fake.done(&end).plan.steps
    };
    let steps = rest(true);
    let freeze = place(&steps, &freezes);
    let leave = place(&steps, &|action| matches!(action, Action::Evacuate { .. }));
    assert!(freeze.is_some() && freeze < leave, "{steps:#?}");
    assert_eq!(place(&rest(false), &freezes), None);
}

#[test]
fn the_end_of_a_user_s_partition_that_is_interrupted_lets_its_tasks_go_on() {
    for at in 0.. {
        let fake = Fake::with_app();
        ask(&fake, &grant("3"), &run("run-1", of("3"))).unwrap();
        fake.done(&fake.exec("run-1", 200, "x"));
        fake.kernel.set_schedule(200, &FIFO_50).unwrap();
        let before = fake.kernel.snapshot();
        let asked = AtomicUsize::new(0);
        let interrupt = move || (asked.fetch_add(1, Relaxed) >= at).then_some(2);
        let end = Request::EndRun { name: "run-1".into(), owner: OWNER };
        if fake.shield.clone().with_interrupt(interrupt).change(&end, &root()).is_ok() {
            assert!(at > 12, "only {at}");
            break;
        }
        assert_same(&before, &fake.kernel.snapshot(), &format!("interrupted at {at}"));
        assert_eq!(fake.text("/sys/fs/cgroup/asmp/run-1/cgroup.freeze"), "0");
    }
}

#[test]
fn a_file_that_declares_the_name_takes_the_partition_from_its_user() {
    let fake = Fake::with_app();
    ask(&fake, &grant("3"), &run("run-1", of("3"))).unwrap();
    let declaration: crate::Declaration =
        serde_json::from_value(serde_json::json!({"partition": [{"name": "run-1", "cpus": "3"}]}))
            .unwrap();
    fake.shield.change(&Request::Apply { declaration }, &root()).unwrap();
    assert_eq!(fake.state().partition("run-1").unwrap().granted, None);
    let end = Request::EndRun { name: "run-1".into(), owner: OWNER };
    assert_eq!(lacks(&fake, &grant("3"), &end), "partition run-1");
}

#[test]
fn a_grant_covers_policies_up_to_its_own() {
    let rr = |priority| Schedule::Rr { priority };
    let with = |policy| Grant { policy, ..grant("3") };
    for (most, asked, covers) in [
        (FIFO_50, FIFO_50, true),
        (FIFO_50, rr(50), true),
        (FIFO_50, FIFO_80, false),
        (FIFO_50, rr(51), false),
        (rr(50), rr(50), true),
        (rr(50), Schedule::Fifo { priority: 1 }, false),
        (OTHER, rr(1), false),
        (OTHER, OTHER, true),
        (OTHER, Schedule::Batch { nice: 5 }, true),
        (OTHER, Schedule::Idle, true),
        (FIFO_80, Schedule::Other { nice: -1 }, false),
        (FIFO_80, Schedule::Batch { nice: -1 }, false),
        (FIFO_80, Schedule::Unknown { number: 7 }, false),
        (
            FIFO_80,
            Schedule::Deadline { runtime_ns: 1024, deadline_ns: 2048, period_ns: 4096 },
            false,
        ),
    ] {
        assert_eq!(with(most).covers(&asked), covers, "{most}: {asked}");
    }
}
