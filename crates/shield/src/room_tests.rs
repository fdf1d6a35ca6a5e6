// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A full file system: whatever was made can be undone, and nothing is half done.

use crate::fixture::{Fake, RESTORE, add, create, destroy};
use crate::request::Request;
#[test]
fn with_little_room_or_none_every_partition_ends_and_everything_is_given_back() {
    for room in 0..8 {
        for end in [destroy("a"), RESTORE] {
            let fake = Fake::after(&[create("a", "3"), add("a", 200)]);
            fake.store.limit_room(Some(room));
            fake.ask(&end).unwrap_or_else(|error| panic!("{room}, {end:?}: {error}"));
            fake.is_untouched(&format!("{room}, {end:?}"));
        }
    }
}

#[test]
fn with_little_room_a_change_is_whole_or_nothing_and_can_be_undone() {
    let resize = Request::Resize { name: "a".into(), cpus: "2".parse().unwrap() };
    let later = [add("a", 200), resize, create("b", "1")];
    let changes = later.into_iter().map(|change| (vec![create("a", "3")], change));
    let first = (Vec::new(), create("a", "3"));
    let mut refused = 0;
    for (before, change) in changes.chain([first]) {
        for room in 0..8 {
            let fake = Fake::after(&before);
            let then = fake.kernel.snapshot();
            fake.store.limit_room(Some(room));
            if let Err(error) = fake.ask(&change) {
                assert!(error.to_string().contains("No space left"), "{error}");
                assert!(fake.kernel.snapshot() == then, "{room}, {change:?}");
                refused += 1;
            }
            fake.store.limit_room(Some(0));
            fake.ask(&RESTORE).unwrap_or_else(|error| panic!("{room}, {change:?}: {error}"));
            fake.is_untouched(&format!("{room}, {change:?}"));
        }
    }
    assert!(refused > 0, "a first partition is refused where there is no room for its end");
}

#[test]
fn killed_at_any_step_without_room_the_next_restore_gives_everything_back() {
    for at in 0.. {
        let fake = Fake::after(&[create("a", "3"), add("a", 200)]);
        fake.store.limit_room(Some(0));
        let killed = fake.kill(&destroy("a"), at, at % 2 == 0);
        fake.ask(&RESTORE).unwrap_or_else(|error| panic!("{at}: {error}"));
        fake.is_untouched(&format!("{at}"));
        if !killed {
            assert!(at > 20, "{at}");
            break;
        }
    }
}

#[test]
fn an_unreadable_state_is_set_aside_without_room() {
    for file in ["state.json", "journal"] {
        let fake = Fake::after(&[create("a", "3"), add("a", 200)]);
        std::fs::write(fake.dir.path().join(file), "hello\n").unwrap();
        fake.store.limit_room(Some(0));
        let outcome = fake.ask(&Request::Restore { abandon: true }).unwrap();
        assert!(outcome.recovered.unwrap().abandoned[0].contains(file));
        let kept = fake.dir.path().join(format!("{file}.unreadable"));
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "hello\n");
        assert!(fake.shield.status().unwrap().holds());
    }
}

#[test]
fn a_first_partition_is_made_only_with_room_beside_it_for_the_next_journal() {
    // For the state and its own journal, not for the journal of its end.
    let fake = Fake::after(&[]);
    fake.store.limit_room(Some(2));
    let error = fake.ask(&create("a", "3")).unwrap_err().to_string();
    assert!(error.contains("No space left") && error.contains("keep room"), "{error}");
    fake.is_untouched("refused");
}

#[test]
fn room_is_kept_by_the_size_of_what_is_to_be_undone() {
    let fake = Fake::after(&[]);
    for line in 1000..2500 {
        let path = format!("/proc/irq/{line}/smp_affinity_list");
        fake.kernel.set_file(&path, "0-3");
    }
    fake.ask(&create("a", "3")).unwrap();
    let file = |name: &str| std::fs::metadata(fake.dir.path().join(name)).unwrap();
    let length = file("state.json").len();
    for (name, times) in [("state.json.spare", 2), ("journal.spare", 4)] {
        let room = std::os::unix::fs::MetadataExt::blocks(&file(name)) * 512;
        assert!(room >= times * length && room > 64 << 10, "{name}: {room} for {length}");
    }
}

#[test]
fn room_that_cannot_be_kept_after_a_change_is_named() {
    let fake = Fake::after(&[create("a", "3")]);
    let obstacle = fake.dir.path().join("journal.spare.new");
    std::fs::create_dir(&obstacle).unwrap();
    let why = fake.ask(&add("a", 200)).unwrap().no_room.unwrap();
    assert!(why.contains("journal.spare"), "{why}");
    std::fs::remove_dir(&obstacle).unwrap();
    assert_eq!(fake.ask(&Request::Repair { name: None }).unwrap().no_room, None);
    fake.ask(&RESTORE).unwrap();
}
