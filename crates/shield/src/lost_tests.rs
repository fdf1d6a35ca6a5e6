// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of /run/asmp are gone, hidden or unreadable while there are partitions: `status` names
//! what they left, and `restore` ends it.

use crate::fixture::{Call, Fake, REPAIR, RESTORE, add, create, destroy, root};
use crate::request::Request;
use crate::shield::ChangeError;
use crate::state::StateError;
use asmp_host::fake::Fault;
use asmp_host::store::MOST_BYTES;
use asmp_host::{Kernel, Schedule};
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Every file of /run/asmp is gone.
fn lose_state(fake: &Fake) {
    for entry in fs::read_dir(fake.dir.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

#[test]
fn groups_whose_state_was_lost_are_named_and_restored() {
    let fake = Fake::partitioned();
    lose_state(&fake);
    let status = fake.status();
    assert!(!status.holds());
    assert_eq!(status.orphans, [Path::new("/sys/fs/cgroup/asmp/a")]);
    assert!(!fake.repair(), "a repair claims nothing");
    for request in [create("a", "3"), create("b", "2"), destroy("a")] {
        let error = fake.ask(&request).unwrap_err().to_string();
        assert!(error.contains("asmp restore") && error.contains("asmp/a"), "{error}");
    }
    let outcome = fake.done(&Request::Restore { abandon: false });
    let unknown = outcome.unknown_originals.join(", ");
    for what in ["fair_server/cpu3", "default_smp_affinity", "/proc/irq/", "ktimers"] {
        assert!(unknown.contains(what), "{unknown}");
    }
    let servers = unknown.contains("fair_server/cpu3/runtime is 0 (usual: 50000000)");
    assert!(servers && unknown.contains("default_smp_affinity is 7 (usual: f)"), "{unknown}");
    assert_eq!((fake.kernel.isolated().to_string(), fake.allowed(200)), ("".into(), "0-3".into()));
    assert!(fake.status().orphans.is_empty() && fake.status().partitions.is_empty());
    let groups = fake.kernel.snapshot().into_keys().filter(|key| key.starts_with("group ")).count();
    assert_eq!(groups, 1, "only the root is left");
    fake.done(&create("a", "3"));
    // What was changed by then is what this partition's end gives back.
    fake.done(&destroy("a"));
}

#[test]
fn the_cpus_that_unbound_work_was_left_to_are_named_where_isolcpus_had_others() {
    let dir = "/sys/devices/virtual/workqueue";
    let fake = Fake::with_app();
    // As isolcpus=3 boots it, without nohz_full=.
    fake.kernel.set_file("/sys/devices/system/cpu/isolated", "3");
    fake.kernel.set_file("/sys/devices/system/cpu/nohz_full", "(null)");
    for name in ["cpumask", "cpumask_requested"] {
        fake.kernel.set_file(&format!("{dir}/{name}"), "7");
    }
    fake.done(&create("a", "3"));
    fake.done(&Request::Resize { name: "a".into(), cpus: "2".parse().unwrap() });
    lose_state(&fake);
    let unknown = fake.done(&RESTORE).unknown_originals.join("\n");
    assert!(unknown.contains(&format!("{dir}/cpumask is 3 (usual: 7)")), "{unknown}");
    let requested = format!("{dir}/cpumask_requested is 3 (usual: 7, written to cpumask)");
    assert!(unknown.contains(&requested), "{unknown}");
    fake.write(&format!("{dir}/cpumask"), "7");
    fake.done(&create("a", "3"));
    lose_state(&fake);
    let unknown = fake.done(&RESTORE).unknown_originals.join("\n");
    assert!(!unknown.contains("cpumask_requested"), "{unknown}");
}

#[test]
fn lost_originals_are_named_until_they_are_given_up() {
    let names = |fake: &Fake, unknown: &[String]| {
        let status = fake.status();
        let named = |one: &String| status.left.iter().any(|left| left.what.starts_with(one));
        assert!(!status.holds() && unknown.iter().all(named), "{:#?}", status.left);
    };
    let restore = |fake: &Fake, abandon| fake.done(&Request::Restore { abandon }).unknown_originals;
    let fake = Fake::partitioned();
    lose_state(&fake);
    let unknown = restore(&fake, false);
    assert!(unknown.iter().any(|one| one.contains("fair_server/cpu3")), "{unknown:?}");
    for _ in 0..2 {
        names(&fake, &unknown);
        assert_eq!(restore(&fake, false), unknown);
    }
    let repair = fake.done(&Request::Repair { name: None });
    assert_eq!(repair.unknown_originals, unknown);
    // A partition in between knows what it found, not what was before.
    assert!(fake.done(&create("a", "3")).unknown_originals.is_empty());
    names(&fake, &unknown);
    fake.done(&destroy("a"));
    names(&fake, &unknown);
    fake.done(&create("b", "2"));
    assert_eq!(restore(&fake, true), unknown, "what is given up is named");
    assert!(fake.status().holds());
    assert_eq!(restore(&fake, false), [""; 0]);
    assert!(!fake.dir.path().join("state.json").exists());
    // What is lost and given up at once leaves no note.
    fake.done(&create("a", "3"));
    lose_state(&fake);
    assert!(!restore(&fake, true).is_empty());
    assert!(fake.status().holds());
}

#[test]
fn the_way_out_of_an_unreadable_state_ends_all_partitions() {
    for garbage in ["{}", "hello", "{\"schema\":99}"] {
        let fake = Fake::partitioned();
        fs::write(fake.dir.path().join("state.json"), garbage).unwrap();
        let error = fake.ask(&Request::Restore { abandon: false }).unwrap_err().to_string();
        assert!(error.contains("--abandon"), "{error}");
        let outcome = fake.done(&Request::Restore { abandon: true });
        assert!(outcome.recovered.unwrap().abandoned[0].contains("state.json"));
        assert!(!outcome.unknown_originals.is_empty());
        assert!(fake.status().holds());
        assert_eq!(fake.kernel.isolated().to_string(), "");
        let kept = fs::read_to_string(fake.dir.path().join("state.json.unreadable"));
        assert_eq!(kept.unwrap(), garbage);
    }
}

#[test]
fn the_base_group_alone_without_a_state_goes_too() {
    let fake = Fake::with_app();
    fake.done(&create("a", "3"));
    lose_state(&fake);
    for group in ["a/rt", "a/rest", "a"] {
        fake.kernel.remove_dir(&Path::new("/sys/fs/cgroup/asmp").join(group)).unwrap();
    }
    assert_eq!(fake.status().orphans, [Path::new("/sys/fs/cgroup/asmp")]);
    fake.done(&Request::Restore { abandon: false });
    assert!(!fake.kernel.exists(Path::new("/sys/fs/cgroup/asmp")));
    assert!(fake.status().orphans.is_empty());
}

#[test]
fn no_partition_is_made_in_the_empty_group_of_lost_ones_before_a_restore() {
    let fake = Fake::with_app();
    fake.done(&create("a", "3"));
    lose_state(&fake);
    for group in ["a/rt", "a/rest", "a"] {
        fake.kernel.remove_dir(&Path::new("/sys/fs/cgroup/asmp").join(group)).unwrap();
    }
    let refused = fake.ask(&create("b", "2")).unwrap_err().to_string();
    assert!(refused.contains("asmp restore") && refused.contains("/asmp"), "{refused}");
    let unknown = fake.done(&RESTORE).unknown_originals;
    for what in [
        "fair_server/cpu3/runtime is 0 (usual: 50000000)",
        "default_smp_affinity is 7 (usual: f)",
        "/proc/irq/*/smp_affinity_list may have named more",
    ] {
        assert!(unknown.iter().any(|one| one.contains(what)), "{what}: {unknown:#?}");
    }
    // What has its usual value is not suspected.
    for one in &unknown {
        let usual =
            one.split_once(" (usual: ").map(|(now, usual)| (now, usual.trim_end_matches(')')));
        assert!(usual.is_none_or(|(now, usual)| !now.ends_with(&format!(" is {usual}"))), "{one}");
    }
    fake.done(&create("b", "2"));
    fake.done(&Request::Restore { abandon: true });
    assert!(fake.status().holds());
}

#[test]
fn groups_whose_state_was_lost_under_systemd_are_named_and_restored() {
    let fake = Fake::with_app();
    fake.kernel.boot_systemd(&[200]);
    fake.done(&create("a", "3"));
    fake.done(&add("a", 200));
    lose_state(&fake);
    let ours = "/sys/fs/cgroup/asmp.slice/asmp-holder.service/a";
    assert_eq!(fake.status().orphans, [Path::new(ours)]);
    assert!(!fake.repair(), "a repair claims nothing");
    let refused = fake.ask(&create("b", "2")).unwrap_err().to_string();
    assert!(refused.contains("asmp restore") && refused.contains(ours), "{refused}");
    let outcome = fake.done(&RESTORE);
    assert!(!outcome.unknown_originals.is_empty());
    assert_eq!((fake.kernel.isolated().to_string(), fake.allowed(200)), ("".into(), "0-3".into()));
    assert!(!fake.kernel.exists(Path::new("/sys/fs/cgroup/asmp.slice")));
    assert!(fake.status().orphans.is_empty() && fake.status().partitions.is_empty());
}

/// As a second mount over /run does it, and its end.
#[test]
fn a_state_that_was_hidden_tells_the_truth_when_it_is_back() {
    let fake = Fake::partitioned();
    let hidden = tempfile::tempdir().unwrap();
    let files = || fs::read_dir(fake.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    for file in files() {
        fs::copy(&file, hidden.path().join(file.file_name().unwrap())).unwrap();
    }
    lose_state(&fake);
    let outcome = fake.done(&RESTORE);
    assert!(!outcome.unknown_originals.is_empty());
    // A real-time task without a record left as an ordinary one, and was named.
    assert_eq!(fake.kernel.schedule(201).unwrap(), Schedule::Other { nice: 0 });
    assert!(outcome.demoted.iter().any(|one| one.task.tid == 201), "{outcome:#?}");
    fake.kernel.set_schedule(201, &Schedule::Fifo { priority: 80 }).unwrap();
    lose_state(&fake);
    for file in fs::read_dir(hidden.path()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), fake.dir.path().join(file.file_name())).unwrap();
    }
    let status = fake.status();
    assert!(!status.holds() && !status.partitions[0].shielded, "{status:#?}");
    // It knows the originals.
    fake.restored("back");
}

/// A line is on the disk before its step is taken. A crash while it is written leaves a part.
#[test]
fn a_journal_that_a_crash_cut_in_its_last_line_is_undone_exactly() {
    for at in [1, 6, 12] {
        for cut in 1.. {
            let fake = Fake::with_app();
            assert!(fake.kill(&create("a", "3"), at, false), "{at}");
            let journal = fake.dir.path().join("journal");
            let whole = fs::read(&journal).unwrap();
            if cut > 1 && whole[whole.len() - cut] == b'\n' {
                break;
            }
            fs::write(&journal, &whole[..whole.len() - cut]).unwrap();
            fake.restored(&format!("{at}, without its last {cut} bytes"));
        }
    }
}

type Put = Box<dyn Fn(&Path)>;

/// What another program puts in the place of a file of ours, and what a change says to it.
fn put_in_place() -> Vec<(&'static str, &'static str, Put)> {
    let header = "{\"schema\":2,\"transaction\":99}\n";
    let written = |text: String| -> Put { Box::new(move |file| fs::write(file, &text).unwrap()) };
    let mut all: Vec<(_, _, Put)> = Vec::new();
    for name in ["state.json", "journal"] {
        let too_long = |file: &Path| fs::File::create(file).unwrap().set_len(MOST_BYTES + 1);
        all.push((name, "too long", Box::new(move |file| too_long(file).unwrap())));
        let device = |file: &Path| symlink("/dev/zero", file).unwrap();
        all.push((name, "no regular file", Box::new(device)));
        all.push((name, "no regular file", Box::new(|file| fs::create_dir(file).unwrap())));
        let says = if name == "journal" { "is none of ours" } else { "not JSON" };
        all.push((name, says, written("x".repeat(1 << 20))));
    }
    // Neither a header that was cut, nor a step.
    let step = "{\"undo\":\"remove-group\",\"path\":\"/sys/fs/cgroup/asmp\"}\n";
    for text in ["hello".to_owned(), format!("{header}{step}hello"), format!("{header}{step}\n")] {
        all.push(("journal", "is none of ours", written(text)));
    }
    all
}

#[test]
fn what_no_change_has_written_is_refused_at_once_and_set_aside_on_demand() {
    for (name, says, put) in put_in_place() {
        let fake = Fake::partitioned();
        let file = fake.dir.path().join(name);
        let _ = fs::remove_file(&file);
        put(&file);
        let (before, kind) = (fake.kernel.snapshot(), fs::symlink_metadata(&file).unwrap());
        for request in [create("b", "2"), destroy("a"), add("a", 200), REPAIR, RESTORE] {
            let error = fake.ask(&request).unwrap_err();
            let words = error.to_string();
            assert!(matches!(error, ChangeError::State(StateError::Unreadable { .. })), "{words}");
            assert!(words.contains(says) && words.contains("--abandon"), "{name}: {words}");
            assert!(words.len() < 500, "{} letters", words.len());
        }
        assert!(fake.shield.status().unwrap_err().to_string().contains(says));
        assert!(fake.kernel.snapshot() == before, "{name}, {says}");
        let still = |path: &Path| fs::symlink_metadata(path).unwrap();
        assert_eq!((still(&file).file_type(), still(&file).len()), (kind.file_type(), kind.len()));
        let outcome = fake.done(&Request::Restore { abandon: true });
        assert!(outcome.recovered.unwrap().abandoned[0].contains(says));
        let kept = fake.dir.path().join(format!("{name}.unreadable"));
        assert_eq!((still(&kept).file_type(), still(&kept).len()), (kind.file_type(), kind.len()));
        assert!(fake.status().holds());
        assert_eq!(fake.kernel.isolated().to_string(), "");
    }
}

/// The first step of `create b --cpus 2` after which CPU 2 is isolated.
fn until_marked() -> usize {
    (0..)
        .find(|at| {
            let fake = Fake::partitioned();
            assert!(fake.kill(&create("b", "2"), *at, true));
            fake.kernel.isolated().contains(2)
        })
        .unwrap()
}

/// Who is told so runs `asmp restore`, which ends all partitions.
#[test]
fn what_a_killed_change_has_made_is_not_called_lost_by_a_plan() {
    let fake = Fake::partitioned();
    assert!(fake.kill(&create("b", "2"), until_marked(), true));
    fake.shield.plan(&create("c", "1"), &root()).unwrap();
    fake.done(&create("c", "1"));
}

#[test]
fn what_a_change_makes_while_status_reads_is_not_called_lost() {
    let fake = Fake::partitioned();
    let (other, kernel) = (fake.shield.clone(), Arc::clone(&fake.kernel));
    let (came, at) = (AtomicBool::new(false), until_marked());
    let shield = fake.watched(move |call, path| {
        // Lists the groups, late in its look.
        if call == Call::List && path.ends_with("asmp") && !came.swap(true, Relaxed) {
            kernel.arm(Some(Fault::Die { at, after: true }));
            let change = || other.change(&create("b", "2"), &root());
            assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
            kernel.arm(None);
        }
    });
    let status = shield.status().unwrap();
    assert!(status.orphans.is_empty() && status.interrupted, "{status:#?}");
}

#[test]
fn unbound_work_that_nohz_full_keeps_off_cpus_is_as_usual() {
    let fake = Fake::with_app();
    // As nohz_full=1-3 boots it.
    for name in ["cpumask", "cpumask_requested"] {
        fake.kernel.set_file(&format!("/sys/devices/virtual/workqueue/{name}"), "1");
    }
    fake.done(&create("a", "3"));
    lose_state(&fake);
    let unknown = fake.done(&RESTORE).unknown_originals.join("\n");
    assert!(!unknown.contains("(usual: f, written"), "{unknown}");
    assert!(!unknown.contains("cpumask is 1 (usual: f"), "{unknown}");
}
