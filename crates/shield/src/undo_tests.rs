// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoing may itself be interrupted or refused: a kill or a refusal at each step of a recovery.
//! The journal stays until the machine is as it was.

use crate::fixture::{
    Call, Fake, REPAIR, RESTORE, add, assert_same, create, create_for, destroy, root,
};
use crate::partition::{Original, Refusal, State, Tick};
use crate::request::{Members, Request, Spec};
use crate::shield::{ChangeError, Patience, Shield};
use crate::state;
use asmp_host::fake::{Fault, SPINNER};
use asmp_host::store::Store;
use asmp_host::{CpuSet, Kernel, Schedule, Shape};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const EINVAL: i32 = 22;

/// What comes before, and the change that is killed.
fn changes() -> [(Vec<Request>, Request); 4] {
    [
        (vec![], create("a", "2-3")),
        (vec![], create_for("a", "3", 200)),
        (vec![create("a", "3"), add("a", 200)], destroy("a")),
        (vec![create("a", "3"), create("b", "2")], destroy("a")),
    ]
}

#[test]
fn a_recovery_killed_at_any_step_is_finished_by_the_next() {
    let mut kills = 0;
    // Repairs nothing here: it recovers, and the machine is as it was before the change.
    let recover = Request::Repair { name: None };
    for (before, change) in changes() {
        for at in (0..).step_by(5) {
            for step in 0.. {
                let fake = Fake::after(&before);
                let then = fake.kernel.snapshot();
                if !fake.kill(&change, at, true) || !fake.kill(&recover, step, step % 2 == 0) {
                    break;
                }
                let when = format!("{change:?} killed at {at}, recovery at {step}");
                fake.ask(&recover).unwrap();
                assert_same(&then, &fake.kernel.snapshot(), &when);
                fake.restored(&when);
                kills += 1;
            }
            if !Fake::after(&before).kill(&change, at, true) {
                break;
            }
        }
    }
    assert!(kills > 150, "only {kills} kills");
}

#[test]
fn a_signal_between_any_two_steps_undoes_the_change() {
    for (before, change) in changes() {
        let mut undone = 0;
        for at in 0.. {
            let fake = Fake::after(&before);
            let then = fake.kernel.snapshot();
            let asked = AtomicUsize::new(0);
            let interrupt = move || (asked.fetch_add(1, Relaxed) >= at).then_some(2);
            let answer = fake.shield.clone().with_interrupt(interrupt).change(&change, &root());
            let when = format!("{change:?} interrupted at {at}");
            match answer {
                Ok(_) => break,
                Err(error) => {
                    let is_named = matches!(error, ChangeError::Interrupted { signal: 2 });
                    assert!(is_named, "{when}: {error}");
                    assert_same(&then, &fake.kernel.snapshot(), &when);
                    assert!(!fake.has_journal(), "{when}");
                    undone += 1;
                }
            }
        }
        assert!(undone > 12, "only {undone} of {change:?}");
    }
}

/// The kernel (from 7.0 on) might never end the undoing, and would keep the lock with it.
#[test]
fn a_change_that_was_cut_short_is_not_undone_beside_a_starved_kworker_from_7_0_on() {
    let kworker = "kworker/3:1-mm_percpu_wq";
    for (release, is_refused) in [("7.2.13", true), ("6.12.107", false)] {
        let fake = Fake::after(&[create("a", "3")]);
        fake.kernel.set_file("/proc/sys/kernel/osrelease", release);
        let with_a = fake.kernel.snapshot();
        assert!(fake.kill(&create("b", "2"), 20, true));
        fake.kernel.start_kernel_thread(90, kworker, Some(3));
        fake.kernel.edit(90, |task| task.runnable = true);
        let named = Refusal::StarvedUndo { cpu: 3, kworker: kworker.into() };
        let patience = Patience { busy: Duration::ZERO, ..Patience::default() };
        let shield = fake.shield.clone().with_patience(patience);
        match shield.change(&REPAIR, &root()) {
            Err(ChangeError::Refused(why)) => {
                assert!(is_refused && why == named, "{why}");
                assert!(fake.has_journal(), "nothing of it is undone");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => assert!(!is_refused),
        }
        fake.kernel.end(90);
        fake.done(&REPAIR);
        assert_same(&with_a, &fake.kernel.snapshot(), release);
    }
}

#[test]
fn a_signal_ends_the_proof_of_a_tick() {
    let fake = Fake::after(&[]);
    fake.kernel.arm(Some(Fault::Tick));
    let (kernel, windows) = (Arc::clone(&fake.kernel), AtomicUsize::new(0));
    // It comes in the second window.
    let shield = fake.shield.clone().with_interrupt(move || {
        let is_proving = kernel.allowed(SPINNER).is_some();
        (is_proving && windows.fetch_add(1, Relaxed) > 0).then_some(15)
    });
    let spec = Spec { tick: Tick::RequireOff, ..Spec::of("3".parse().unwrap()) };
    let error = shield.change(&Request::Create { name: "a".into(), spec }, &root()).unwrap_err();
    assert!(matches!(error, ChangeError::Interrupted { signal: 15 }), "{error}");
    fake.kernel.arm(None);
    fake.is_untouched("interrupted");
}

/// Else what another asmp has set would become an original.
#[test]
fn the_machine_is_read_when_the_lock_is_held_and_not_before() {
    for (before, others) in [(vec![], create("a", "3")), (vec![create("a", "3")], destroy("a"))] {
        let fake = Fake::after(&before);
        let (other, came) = (fake.shield.clone(), AtomicBool::new(false));
        let when = format!("{others:?}");
        // Asked first when the change is about to take the lock.
        let interrupt = move || {
            if !came.swap(true, Relaxed) {
                other.change(&others, &root()).unwrap();
            }
            None
        };
        let shield = fake.shield.clone().with_interrupt(interrupt);
        shield.change(&create("b", "2"), &root()).unwrap();
        assert!(fake.status().holds(), "{when}");
        fake.restored(&when);
    }
}

#[test]
fn where_nothing_can_be_written_a_change_is_refused_and_the_rest_is_read() {
    // File systems in which no program can make a directory.
    for dir in ["/proc/asmp", "/sys/asmp"] {
        let fake = Fake::after(&[]);
        let kernel = Arc::clone(&fake.kernel) as Arc<dyn Kernel>;
        let shield = Shield::new(kernel, Store::at(dir));
        for change in [create("a", "3"), RESTORE, REPAIR] {
            let error = shield.change(&change, &root()).unwrap_err();
            assert!(error.to_string().starts_with(dir), "{error}");
        }
        fake.is_untouched(dir);
        assert!(shield.status().unwrap().holds());
        shield.plan(&create("a", "3"), &root()).unwrap();
    }
}

#[test]
fn who_waits_for_the_lock_takes_a_signal() {
    let fake = Fake::after(&[]);
    let _held = fake.store.lock(Duration::ZERO).unwrap().unwrap();
    let asked = AtomicUsize::new(0);
    let shield =
        fake.shield.with_interrupt(move || (asked.fetch_add(1, Relaxed) > 0).then_some(15));
    let error = shield.change(&create("a", "3"), &root()).unwrap_err();
    assert!(matches!(error, ChangeError::Interrupted { signal: 15 }), "{error}");
}

#[test]
fn a_change_that_is_refused_says_what_it_undid_before() {
    let fake = Fake::after(&[]);
    assert!(fake.kill(&create("a", "3"), 5, true));
    let error = fake.ask(&destroy("a")).unwrap_err();
    let cause = error.cause();
    assert!(matches!(cause, ChangeError::Refused(Refusal::NoPartition { .. })), "{cause}");
    let said = error.to_string();
    assert!(said.contains("; before that, a change that was cut short was undone ("), "{said}");
    fake.is_untouched("undone");
}

#[test]
fn a_recovery_without_debugfs_gives_back_what_lies_there_once_it_is_mounted() {
    const SERVER: &str = "/sys/kernel/debug/sched/fair_server/cpu3/runtime";
    let mut waited = 0;
    for at in 0.. {
        let fake = Fake::after(&[]);
        let then = fake.kernel.snapshot();
        if !fake.kill(&create("a", "3"), at, true) {
            break;
        }
        if fake.text(SERVER) != "0" {
            continue;
        }
        fake.kernel.remove_file(SERVER);
        let Err(ChangeError::NotUndone { left, .. }) = fake.ask(&RESTORE) else {
            panic!("killed at {at}: restored without debugfs");
        };
        assert!(left.len() == 1 && left[0].contains("mount -t debugfs"), "{left:?}");
        fake.kernel.set_file(SERVER, "0");
        fake.ask(&RESTORE).unwrap();
        assert_same(&then, &fake.kernel.snapshot(), &format!("killed at {at}"));
        waited += 1;
    }
    assert!(waited > 3, "only {waited}");
}

#[test]
fn a_step_back_that_the_kernel_refuses_is_named_and_tried_again() {
    let mut refusals = 0;
    for (before, change) in changes() {
        // Late enough that the first steps back are settings: a group that stays is waited for.
        for at in (20..).step_by(7) {
            if !Fake::after(&before).kill(&change, at, true) {
                break;
            }
            for step in 0..8 {
                let fake = Fake::after(&before);
                fake.kill(&change, at, true);
                fake.kernel.arm(Some(Fault::Refuse { at: step, errno: EINVAL }));
                let answer = fake.ask(&Request::Restore { abandon: false });
                fake.kernel.arm(None);
                let when = format!("{change:?} killed at {at}, step {step} back refused");
                // A step that was refused after the recovery belongs to `restore` itself.
                let Err(ChangeError::NotUndone { left, .. }) = answer else { continue };
                assert!(left[0].contains("Invalid argument"), "{when}: {left:?}");
                assert!(fake.has_journal() && fake.shield.is_interrupted().unwrap(), "{when}");
                assert!(fake.shield.status().unwrap().interrupted, "{when}");
                fake.restored(&when);
                refusals += 1;
            }
        }
    }
    assert!(refusals > 20, "only {refusals} refusals");
}

#[test]
fn a_thread_whose_process_another_program_moved_out_meanwhile_stays_there() {
    let members = Members { tids: vec![201], ..Members::default() };
    let before = [create("a", "3"), Request::Add { name: "a".into(), members }];
    for at in 0.. {
        let fake = Fake::after(&before);
        if !fake.kill(&RESTORE, at, at % 2 == 0) {
            assert!(at > 15, "only {at} steps");
            break;
        }
        fake.write("/sys/fs/cgroup/cgroup.procs", "200");
        fake.restored(&format!("killed at {at}"));
    }
}

#[test]
fn no_change_begins_while_an_earlier_one_is_not_undone() {
    let fake = Fake::after(&[]);
    assert!(fake.kill(&create("a", "3"), 19, true));
    let killed = fake.kernel.snapshot();
    fake.kernel.arm(Some(Fault::Refuse { at: 0, errno: EINVAL }));
    let error = fake.ask(&create("b", "2")).unwrap_err();
    fake.kernel.arm(None);
    assert!(error.to_string().contains("asmp repair"), "{error}");
    assert!(matches!(error, ChangeError::NotUndone { .. }));
    assert!(fake.shield.state().unwrap().is_empty(), "b was not made");
    assert_ne!(fake.kernel.snapshot(), fake.untouched);
    assert_ne!(fake.kernel.snapshot(), killed, "the other steps back were taken");
    // The reason is gone: the next change finishes the recovery and goes on.
    let made = fake.ask(&create("b", "2")).unwrap();
    assert!(made.recovered.is_some());
    fake.restored("after b");
}

/// A state with a path that JSON cannot hold.
fn unwritable() -> State {
    let path = Path::new(OsStr::from_bytes(b"/proc/irq/\xff")).to_owned();
    let original = Original { shape: Shape::Text, text: String::new(), offline: CpuSet::new() };
    State { originals: BTreeMap::from([(path, original)]), ..State::default() }
}

#[test]
fn a_state_that_cannot_be_written_leaves_the_one_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let state = State { transaction: 7, ..State::default() };
    state::save(&store, &state).unwrap();
    let error = state::save(&store, &unwritable()).unwrap_err();
    assert!(error.to_string().contains("JSON"), "{error}");
    assert_eq!(state::load(&store).unwrap(), state);
}

impl Fake {
    /// A kernel at whose first write of an interrupt mask something happens to our files.
    fn spoiled(&self, spoil: impl Fn() + Send + Sync + 'static) -> Shield {
        self.watched(move |call, path| {
            if call == Call::Write && path.ends_with("default_smp_affinity") {
                spoil();
            }
        })
    }

    /// A directory takes the state's place: the last write of a change, that of its state, fails.
    fn without_a_place_for_the_state(&self) -> (Shield, PathBuf) {
        let place = self.dir.path().join("state.json.new");
        let taken = place.clone();
        (self.spoiled(move || drop(std::fs::create_dir(&taken))), place)
    }
}

#[test]
fn a_change_whose_state_cannot_be_written_is_undone() {
    let fake = Fake::after(&[]);
    let (shield, place) = fake.without_a_place_for_the_state();
    let error = shield.change(&create("a", "3"), &root()).unwrap_err();
    assert!(error.to_string().contains("state.json"), "{error}");
    assert_eq!(fake.kernel.snapshot(), fake.untouched);
    assert!(!fake.has_journal());
    std::fs::remove_dir(place).unwrap();
    fake.ask(&create("a", "3")).unwrap();
}

#[test]
fn an_end_whose_state_cannot_be_written_leaves_the_partition_in_force() {
    for end in [destroy("a"), Request::Restore { abandon: false }] {
        let fake = Fake::after(&[create("a", "3"), add("a", 200)]);
        let in_force = (fake.kernel.snapshot(), fake.shield.state().unwrap());
        let (shield, place) = fake.without_a_place_for_the_state();
        let error = shield.change(&end, &root()).unwrap_err();
        assert!(error.to_string().contains("state.json"), "{error}");
        assert_same(&in_force.0, &fake.kernel.snapshot(), "not written");
        assert_eq!(fake.shield.state().unwrap(), in_force.1);
        assert!(fake.shield.status().unwrap().holds() && !fake.has_journal());
        std::fs::remove_dir(place).unwrap();
        fake.restored("there is room again");
    }
}

#[test]
fn a_journal_that_cannot_be_removed_is_void_and_goes_with_the_next_change() {
    for (before, change) in [(vec![], create("a", "3")), (vec![create("a", "3")], destroy("a"))] {
        let fake = Fake::after(&before);
        let [journal, kept] = ["journal", "kept"].map(|name| fake.dir.path().join(name));
        let (from, to) = (journal.clone(), kept.clone());
        // No directory can be removed as a file is.
        let shield = fake.spoiled(move || {
            let _ = std::fs::rename(&from, &to);
            let _ = std::fs::create_dir(&from);
        });
        shield.change(&change, &root()).unwrap();
        let after = fake.kernel.snapshot();
        std::fs::remove_dir(&journal).unwrap();
        std::fs::rename(&kept, &journal).unwrap();
        assert!(fake.status().holds(), "{change:?}: {:#?}", fake.status());
        assert_eq!(fake.done(&REPAIR).recovered, None, "{change:?}");
        assert_same(&after, &fake.kernel.snapshot(), &format!("{change:?}"));
        assert!(!fake.has_journal(), "{change:?}");
        fake.restored(&format!("{change:?}"));
    }
}

#[test]
fn a_journal_of_an_unknown_schema_is_refused_and_kept() {
    for schema in [0, state::STATE_SCHEMA + 1, 99] {
        let fake = Fake::after(&[]);
        let journal = format!("{{\"schema\":{schema},\"transaction\":9}}\n");
        std::fs::write(fake.dir.path().join("journal"), &journal).unwrap();
        for request in [create("a", "3"), Request::Restore { abandon: false }] {
            let error = fake.ask(&request).unwrap_err();
            assert!(error.to_string().contains(&format!("schema {schema}")), "{error}");
            assert!(matches!(error, ChangeError::State(state::StateError::Unreadable { .. })));
        }
        let kept = std::fs::read_to_string(fake.dir.path().join("journal")).unwrap();
        assert_eq!((kept, fake.kernel.snapshot()), (journal, fake.untouched.clone()));
        let outcome = fake.ask(&Request::Restore { abandon: true }).unwrap();
        assert!(outcome.recovered.unwrap().abandoned[0].contains(&format!("schema {schema}")));
        assert!(fake.dir.path().join("journal.unreadable").exists());
    }
}

#[test]
fn a_journal_beside_a_state_that_cannot_be_read_is_not_undone() {
    let fake = Fake::after(&[create("a", "3")]);
    let in_force = fake.kernel.snapshot();
    let journal = "{\"schema\":1,\"transaction\":1}\n\
        {\"undo\":\"set\",\"knob\":{\"path\":\"/proc/sys/kernel/timer_migration\",\
        \"shape\":\"text\"},\"to\":\"1\"}\n";
    std::fs::write(fake.dir.path().join("journal"), journal).unwrap();
    for garbage in ["", "{", "{\"schema\":99}"] {
        std::fs::write(fake.dir.path().join("state.json"), garbage).unwrap();
        let error = fake.ask(&Request::Restore { abandon: false }).unwrap_err();
        assert!(matches!(error, ChangeError::State(_)), "{error}");
        assert!(fake.has_journal());
        assert_same(&in_force, &fake.kernel.snapshot(), garbage);
    }
}

#[test]
fn a_state_without_anything_that_a_crash_left_is_none() {
    let fake = Fake::after(&[]);
    let file = fake.dir.path().join("state.json");
    let text = "{\"schema\":1,\"transaction\":7,\"partitions\":[],\
        \"originals\":{},\"refused\":{}}";
    std::fs::write(&file, text).unwrap();
    assert!(fake.shield.status().unwrap().holds());
    fake.restored("nothing to do");
    assert!(!file.exists());
    std::fs::write(&file, text).unwrap();
    fake.ask(&create("a", "3")).unwrap();
    fake.restored("created and restored");
    assert!(!file.exists());
}

#[test]
fn a_step_back_that_is_refused_for_good_blocks_changes_until_it_is_given_up() {
    let fake = Fake::after(&[]);
    // The fake refuses the affinity of this line for ever.
    let journal = "{\"schema\":1,\"transaction\":1}\n\
        {\"undo\":\"set\",\"knob\":{\"path\":\"/proc/irq/25/smp_affinity_list\",\
        \"shape\":\"cpu-list\"},\"to\":\"0\"}\n";
    std::fs::write(fake.dir.path().join("journal"), journal).unwrap();
    let restore = |abandon| fake.ask(&Request::Restore { abandon });
    for request in [create("a", "3"), Request::Restore { abandon: false }] {
        let error = fake.ask(&request).unwrap_err();
        assert!(matches!(error, ChangeError::NotUndone { .. }), "{error}");
        assert!(error.to_string().contains("--abandon"), "{error}");
        assert!(fake.has_journal());
    }
    let recovered = restore(true).unwrap().recovered.unwrap();
    assert_eq!((recovered.steps, recovered.abandoned.len()), (1, 1));
    assert!(!fake.has_journal());
    fake.ask(&create("a", "3")).unwrap();
    fake.restored("after it was given up");
}

#[test]
fn a_group_that_somebody_else_made_is_refused_and_keeps_its_tasks() {
    let fake = Fake::after(&[]);
    let group = Path::new("/sys/fs/cgroup/asmp");
    fake.kernel.make_dir(group).unwrap();
    fake.kernel.write(&group.join("cgroup.procs"), b"200").unwrap();
    let before = fake.kernel.snapshot();
    let error = fake.ask(&create("a", "3")).unwrap_err();
    assert!(matches!(error, ChangeError::Undone { .. }), "{error}");
    assert!(error.to_string().contains("/sys/fs/cgroup/asmp"), "{error}");
    assert_same(&before, &fake.kernel.snapshot(), "refused");
    assert!(!fake.has_journal());
}

#[test]
fn a_line_that_moves_gets_the_priority_of_its_new_partition_and_only_lines_of_the_old_move() {
    let fake = Fake::after(&[]);
    fake.kernel.set_file("/proc/irq/26/smp_affinity_list", "0-3");
    fake.kernel.set_file("/proc/irq/26/effective_affinity_list", "0-3");
    let text = fake.kernel.text(Path::new("/proc/interrupts")).unwrap();
    let more = text.replace("LOC:", "26: 0 0 0 0 PCI-MSI 0-edge eth0\nLOC:");
    fake.kernel.set_file("/proc/interrupts", &more);
    let handler = 300;
    fake.kernel.start_kernel_thread(handler, "irq/24-eth0", None);
    fake.kernel.set_schedule(handler, &Schedule::Fifo { priority: 50 }).unwrap();
    let with = |name: &str, cpus: &str, irqs: &[&str], priority| {
        let irqs = irqs.iter().map(|irq| (*irq).to_owned()).collect();
        let spec = Spec { irqs, irq_priority: Some(priority), ..Spec::of(cpus.parse().unwrap()) };
        Request::Create { name: name.into(), spec }
    };
    fake.ask(&with("a", "3", &["24"], 80)).unwrap();
    fake.ask(&with("b", "2", &[], 60)).unwrap();
    assert_eq!(fake.kernel.schedule(handler).unwrap(), Schedule::Fifo { priority: 80 });
    let members = Members { irqs: vec!["eth0".into()], ..Members::default() };
    fake.ask(&Request::Move { from: "a".into(), to: "b".into(), members }).unwrap();
    let state = fake.shield.state().unwrap();
    assert_eq!(state.partition("b").unwrap().irqs, [24], "26 has the name, but was not in a");
    assert_eq!(fake.kernel.schedule(handler).unwrap(), Schedule::Fifo { priority: 60 });
    fake.ask(&Request::Restore { abandon: false }).unwrap();
    assert_eq!(fake.kernel.schedule(handler).unwrap(), Schedule::Fifo { priority: 50 });
}

#[test]
fn a_process_that_has_the_name_of_a_kernel_thread_gets_no_priority() {
    let fake = Fake::after(&[]);
    // Lower numbers than the kernel threads of the fake: they would be found first.
    for (tid, name) in [(15, "ktimers/3"), (16, "irq/24-eth0")] {
        fake.kernel.start(tid, tid, name, Schedule::Other { nice: 0 });
    }
    let spec =
        Spec { irqs: vec!["24".into()], irq_priority: Some(90), ..Spec::of("3".parse().unwrap()) };
    fake.ask(&Request::Create { name: "a".into(), spec }).unwrap();
    for tid in [15, 16] {
        assert_eq!(fake.kernel.schedule(tid).unwrap(), Schedule::Other { nice: 0 }, "{tid}");
    }
    let state = fake.shield.state().unwrap();
    assert_eq!(state.partitions[0].served.len(), 1, "the real ktimers/3 alone");
}

#[test]
fn a_change_under_way_is_not_called_cut_short() {
    let fake = Fake::with_app();
    // Its groups are there, and its CPU is isolated.
    for at in 0.. {
        assert!(fake.kill(&create("a", "3"), at, true));
        if !fake.kernel.isolated().is_empty() {
            break;
        }
        fake.done(&RESTORE);
    }
    let held = fake.store.lock(Duration::ZERO).unwrap().unwrap();
    let status = fake.status();
    assert!(status.orphans.is_empty() && status.foreign_isolated_cpus.is_empty(), "{status:#?}");
    assert!(status.changing && !status.interrupted && !status.holds(), "{status:#?}");
    drop(held);
    let status = fake.status();
    assert!(!status.changing && status.interrupted && !status.holds(), "{status:#?}");
}
