// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies that a partition file gives to tasks: all threads, undone with the change, given back
//! when the task leaves.

use crate::declaration::Declaration;
use crate::fixture::{FIFO_50, FIFO_80, Fake, OTHER, create, destroy, destroy_demoting, pid_of};
use crate::partition::Refusal;
use crate::request::{Request, Spec};
use crate::shield::ChangeError;
use crate::verify::{Finding, Status};
use asmp_host::fake::Fault;
use asmp_host::task::Member;
use asmp_host::{Kernel, Schedule};

impl Fake {
    fn policies(&self) -> [Schedule; 2] {
        [200, 201].map(|tid| self.kernel.schedule(tid).unwrap())
    }
}

/// The file that gives `app` this policy on CPU 3.
fn file(policy: Option<&str>) -> Request {
    let policy = policy.map(|policy| format!(r#","policy":"{policy}""#)).unwrap_or_default();
    let text = format!(
        r#"{{"partition":[{{"name":"a","cpus":"3","task":[{{"command":"app"{policy}}}]}}]}}"#
    );
    let declaration: Declaration = serde_json::from_str(&text).unwrap();
    Request::Apply { declaration }
}

#[test]
fn every_thread_gets_the_policy_and_gives_it_back_when_the_partition_goes() {
    let fake = Fake::with_app();
    fake.ask(&file(Some("fifo:50"))).unwrap();
    assert_eq!(fake.policies(), [FIFO_50; 2]);
    assert_eq!(fake.kernel.allowed(201).unwrap().to_string(), "3");
    let outcome = fake.ask(&destroy("a")).unwrap();
    assert!(outcome.demoted.is_empty());
    assert_eq!(fake.policies(), [OTHER, FIFO_80]);
    fake.is_untouched("destroyed");
}

#[test]
fn a_task_that_is_removed_or_restored_gives_the_policy_back() {
    for request in [
        Request::Remove { name: "a".into(), members: pid_of(200), demote: false },
        Request::Restore { abandon: false },
    ] {
        let fake = Fake::with_app();
        fake.ask(&file(Some("fifo:50"))).unwrap();
        fake.ask(&request).unwrap();
        assert_eq!(fake.policies(), [OTHER, FIFO_80], "{request:?}");
        fake.ask(&Request::Restore { abandon: false }).unwrap();
        fake.is_untouched("restored");
    }
}

#[test]
fn the_same_file_again_changes_nothing_and_another_policy_is_set() {
    let fake = Fake::with_app();
    fake.ask(&file(Some("fifo:50"))).unwrap();
    assert_eq!(fake.ask(&file(Some("fifo:50"))).unwrap().changes, 0);
    fake.ask(&file(Some("rr:7"))).unwrap();
    assert_eq!(fake.policies(), [Schedule::Rr { priority: 7 }; 2]);
    fake.ask(&file(None)).unwrap();
    assert_eq!(fake.policies(), [OTHER, FIFO_80], "the file names no policy any more");
    assert_eq!(fake.kernel.allowed(200).unwrap().to_string(), "3", "the task stays");
    fake.ask(&file(Some("fifo:50"))).unwrap();
    fake.kernel.set_schedule(200, &OTHER).unwrap();
    fake.ask(&file(Some("fifo:50"))).unwrap();
    assert_eq!(fake.policies(), [FIFO_50; 2], "what a thread changed is set again");
    fake.ask(&destroy("a")).unwrap();
    fake.is_untouched("destroyed");
}

#[test]
fn a_task_that_moves_to_another_partition_keeps_the_policy_and_its_way_back() {
    let fake = Fake::with_app();
    fake.ask(&file(Some("fifo:50"))).unwrap();
    fake.ask(&Request::Create { name: "b".into(), spec: Spec::of("2".parse().unwrap()) }).unwrap();
    fake.ask(&Request::Move { from: "a".into(), to: "b".into(), members: pid_of(200) }).unwrap();
    assert_eq!(fake.policies(), [FIFO_50; 2]);
    fake.ask(&destroy("a")).unwrap();
    assert_eq!(fake.policies(), [FIFO_50; 2]);
    fake.ask(&Request::Destroy { name: Some("b".into()), demote: false }).unwrap();
    fake.is_untouched("destroyed");
}

#[test]
fn a_thread_born_inside_goes_back_to_what_the_first_one_had() {
    let fake = Fake::with_app();
    fake.ask(&file(Some("fifo:50"))).unwrap();
    // As clone does: the policy is that of the creator.
    fake.kernel.start(202, 200, "worker", FIFO_50);
    fake.ask(&destroy("a")).unwrap();
    assert_eq!(fake.kernel.schedule(202).unwrap(), OTHER);
}

#[test]
fn a_policy_that_a_thread_chose_itself_is_not_taken_for_ours() {
    let fake = Fake::with_app();
    fake.ask(&file(Some("fifo:50"))).unwrap();
    fake.kernel.set_schedule(200, &Schedule::Fifo { priority: 99 }).unwrap();
    let error = fake.ask(&destroy("a")).unwrap_err();
    let ChangeError::Refused(Refusal::RealTimeInside { tasks, .. }) = &error else {
        panic!("{error}")
    };
    assert!(tasks.contains("200"), "{error}");
    fake.ask(&destroy_demoting("a")).unwrap();
    assert_eq!(fake.policies(), [OTHER, FIFO_80]);
}

/// How many steps a request takes on a machine prepared so.
fn steps(prepared: impl Fn() -> Fake, request: &Request) -> usize {
    let fake = prepared();
    fake.kernel.arm(None);
    fake.ask(request).unwrap();
    fake.kernel.changes()
}

#[test]
fn a_policy_that_the_kernel_refuses_undoes_the_whole_file() {
    let mut refused = 0;
    for at in 0..steps(Fake::with_app, &file(Some("fifo:50"))) {
        let fake = Fake::with_app();
        fake.kernel.arm(Some(Fault::Refuse { at, errno: 1 }));
        let answer = fake.ask(&file(Some("fifo:50")));
        fake.kernel.arm(None);
        if let Err(ChangeError::PolicyRefused { policy, .. }) = &answer {
            assert_eq!(policy, "fifo:50 for app");
            refused += 1;
        }
        if answer.is_err() {
            fake.is_untouched(&format!("refused at {at}"));
        }
    }
    assert_eq!(refused, 2, "one for each thread");
}

#[test]
fn policies_are_as_they_were_after_a_kill_at_any_step() {
    let applied = || {
        let fake = Fake::with_app();
        fake.ask(&file(Some("fifo:50"))).unwrap();
        fake
    };
    let prepared: [(&dyn Fn() -> Fake, Request); 2] =
        [(&Fake::with_app, file(Some("fifo:50"))), (&applied, destroy("a"))];
    for (prepared, request) in prepared {
        for at in 0..steps(prepared, &request) {
            let fake = prepared();
            assert!(fake.kill(&request, at, true));
            fake.ask(&Request::Restore { abandon: false }).unwrap();
            fake.is_untouched(&format!("{request:?} killed at {at}"));
        }
    }
}

#[test]
fn a_task_that_was_recorded_before_there_were_policies_is_read() {
    let old = r#"{"task":{"tid":200,"start_ticks":1200},"command":"app","alone":false,"from":"/","real_time":[]}"#;
    let placed: Member = serde_json::from_str(old).unwrap();
    assert_eq!(placed.policy, None);
    assert_eq!(serde_json::to_string(&placed).unwrap(), old, "and the version before reads ours");
}

#[test]
fn a_kernel_thread_whose_policy_the_kernel_refuses_is_named_as_that_until_a_repair_sets_it() {
    let to = |priority| Schedule::Fifo { priority };
    let mut refused = 0;
    for at in 0..steps(Fake::with_app, &create("a", "3")) {
        let fake = Fake::with_app();
        fake.kernel.arm(Some(Fault::Refuse { at, errno: 22 }));
        let made = fake.ask(&create("a", "3"));
        fake.kernel.arm(None);
        if made.is_err() || fake.kernel.schedule(23).unwrap() == to(98) {
            continue;
        }
        refused += 1;
        let of = |status: Status| status.partitions.into_iter().next().unwrap();
        let is_named =
            |stays: &[Finding]| stays.iter().any(|one| one.what.contains("ktimers/3) s"));
        let found = of(fake.status());
        assert!(found.shielded && is_named(&found.stays), "{found:#?}");
        assert!(fake.repair());
        assert_eq!(fake.kernel.schedule(23).unwrap(), to(98));
        assert!(!is_named(&of(fake.status()).stays));
        // From then on it is somebody else's doing.
        fake.kernel.set_schedule(23, &to(1)).unwrap();
        assert!(is_named(&of(fake.status()).violations));
        fake.ask(&destroy("a")).unwrap();
        fake.is_untouched("destroyed");
    }
    assert_eq!(refused, 1);
}
