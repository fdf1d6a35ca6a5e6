// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that stay whole, and what is not ours.

use super::*;

#[test]
fn a_state_is_replaced_whole_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    assert_eq!(store.read("state").unwrap(), None);
    store.replace("state", b"one").unwrap();
    store.replace("state", b"two").unwrap();
    assert_eq!(store.read("state").unwrap().as_deref(), Some(&b"two"[..]));
    store.remove("state").unwrap();
    store.remove("state").unwrap();
    assert_eq!(store.read("state").unwrap(), None);
}

#[test]
fn room_that_is_given_up_leaves_no_file_of_a_reservation_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    store.reserve("state", 4096, 0o600).unwrap();
    // As a kill before the rename leaves it.
    fs::write(dir.path().join("state.spare.new"), "").unwrap();
    store.release("state").unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_replaced_stays_and_leaves_no_partial_one() {
    let dir = tempfile::tempdir().unwrap();
    // A directory in its place: the rename fails after all bytes were written.
    let path = dir.path().join("state");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("inside"), "old").unwrap();
    assert!(replace_file(&path, b"new", 0o644).is_err());
    assert_eq!(fs::read_to_string(path.join("inside")).unwrap(), "old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no partial file");
    assert!(replace_file(&dir.path().join("no/state"), b"new", 0o644).is_err());
}

#[test]
fn a_file_is_replaced_by_way_of_a_name_that_nothing_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.html");
    let new = dir.path().join("page.html.new");
    // As a killed process of our number has left it.
    let left = dir.path().join(format!(".asmp-new-{}-0", std::process::id()));
    [&new, &left].into_iter().for_each(|path| fs::write(path, "mine").unwrap());
    replace_file(&path, b"page", 0o644).unwrap();
    for (path, text) in [(&path, "page"), (&new, "mine"), (&left, "mine")] {
        assert_eq!(fs::read_to_string(path).unwrap(), text, "{}", path.display());
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_replaced_file_has_the_mode_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    for (bytes, mode) in [(&b"one"[..], 0o600), (b"two", 0o400)] {
        replace_file(&path, bytes, mode).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
    }
}

#[test]
fn links_in_the_place_of_our_files_are_not_followed() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let (own, foreign) = (dir.path().join("own"), dir.path().join("foreign"));
    fs::create_dir(&own).unwrap();
    fs::write(&foreign, "theirs").unwrap();
    let store = Store::at(&own);
    for name in ["state", "state.new", "lock", "journal"] {
        symlink(&foreign, own.join(name)).unwrap();
    }
    assert!(store.lock(Duration::ZERO).is_err());
    assert!(store.read("state").is_err());
    assert!(store.journal("journal").is_err());
    store.replace("state", b"ours").unwrap();
    assert_eq!(store.read("state").unwrap().as_deref(), Some(&b"ours"[..]));
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "theirs");
}

#[test]
fn a_directory_that_others_may_write_in_is_refused() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    assert!(Store::at(&own).lock(Duration::ZERO).unwrap().is_some());
    symlink(&own, dir.path().join("link")).unwrap();
    let error = Store::at(dir.path().join("link")).lock(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("a symbolic link"), "{error}");
    // SAFETY: geteuid has no arguments and cannot fail.
    let by_group = if unsafe { libc::geteuid() } == 0 { 0o775 } else { 0o777 };
    for mode in [0o777, 0o1777, by_group] {
        fs::set_permissions(&own, Permissions::from_mode(mode)).unwrap();
        let error = Store::at(&own).lock(Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("may write"), "{error}");
    }
}

/// What was left in a directory that was open to others for a while.
#[test]
fn what_others_may_have_written_is_neither_believed_nor_used() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let all = ["state", "lock", "journal.spare", "state.spare"];
    type Spoil = fn(&Path);
    let spoil: [(&str, Spoil); 3] = [
        ("a mode", |path| fs::set_permissions(path, Permissions::from_mode(0o664)).unwrap()),
        ("a second name", |path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::hard_link(path, path.with_file_name(format!("other {name}"))).unwrap();
        }),
        ("an owner", |path| std::os::unix::fs::chown(path, Some(65534), None).unwrap()),
    ];
    // SAFETY: geteuid has no arguments and cannot fail.
    let may_give_away = unsafe { libc::geteuid() } == 0;
    for (what, spoil) in spoil.iter().take(if may_give_away { 3 } else { 2 }) {
        for name in all {
            fs::write(store.path(name), vec![b'x'; 8192]).unwrap();
            fs::set_permissions(store.path(name), Permissions::from_mode(0o644)).unwrap();
        }
        assert!(store.read("state").unwrap().is_some());
        let before = all.map(|name| fs::metadata(store.path(name)).unwrap().ino());
        all.iter().for_each(|name| spoil(&store.path(name)));
        let refused = store.read("state").unwrap_err().to_string();
        assert!(refused.contains("another user may have written it"), "{what}: {refused}");
        assert!(
            store
                .lock(Duration::ZERO)
                .unwrap_err()
                .to_string()
                .contains("another user may have written it")
        );
        store.reserve("state", 4096, 0o644).unwrap();
        assert_ne!(fs::metadata(store.path("state.spare")).unwrap().ino(), before[3], "{what}");
        drop(store.journal("journal").unwrap());
        assert_ne!(fs::metadata(store.path("journal")).unwrap().ino(), before[2], "{what}");
        for file in fs::read_dir(dir.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

/// A child process sets its umask: this process has one for all tests.
#[test]
fn a_umask_keeps_no_reader_from_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().join("asmp"));
    // SAFETY: the child allocates (glibc's malloc allows it after a fork) and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: takes a number.
            unsafe { libc::umask(0o077) };
            let made = store.lock(Duration::ZERO).and_then(|_| store.replace("state", b"x"));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(made.is_err())) }
        }
        child => {
            let mut status = 1;
            // SAFETY: waits for our own child; the status is on our stack.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&store.path("")), mode(&store.path("state"))), (0o755, 0o644));
}

#[test]
fn the_second_writer_is_told_that_the_lock_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().join("run/asmp"));
    let first = store.lock(Duration::ZERO).unwrap();
    assert!(first.is_some());
    assert!(store.lock(Duration::from_millis(30)).unwrap().is_none());
    assert!(store.lock_of("another", Duration::ZERO).unwrap().is_some());
    drop(first);
    assert!(store.lock(Duration::ZERO).unwrap().is_some());
}

#[test]
fn a_journal_line_cut_by_a_crash_is_not_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let mut journal = store.journal("journal").unwrap();
    journal.append("first").unwrap();
    journal.append("second").unwrap();
    assert!(store.journal("journal").is_err(), "a journal is never opened twice");
    let mut bytes = store.read("journal").unwrap().unwrap();
    let lines = |bytes: &[u8]| {
        let (whole, cut) = whole_lines(bytes);
        let all = whole.chain([cut]).map(|line| String::from_utf8_lossy(line).into_owned());
        all.collect::<Vec<_>>()
    };
    assert_eq!(lines(&bytes), ["first", "second", ""]);
    bytes.truncate(bytes.len() - 1);
    assert_eq!(lines(&bytes), ["first", "second"]);
    assert_eq!(lines(b""), [""]);
    assert_eq!(lines(b"\n\n"), ["", "", ""]);
}

#[test]
fn what_is_no_regular_file_or_too_long_is_not_read() {
    use io::ErrorKind::{FileTooLarge, InvalidData};
    let dir = tempfile::tempdir().unwrap();
    let (store, path) = (Store::at(dir.path()), dir.path().join("state"));
    let kind = || match store.read("state") {
        Err(Error::Io { cause, .. }) => Err(cause.kind()),
        read => Ok(read.unwrap().map(|bytes| bytes.len() as u64)),
    };
    fs::create_dir(&path).unwrap();
    assert_eq!(kind(), Err(InvalidData));
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert_eq!(kind(), Err(InvalidData));
    fs::remove_file(&path).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(kind(), Err(InvalidData));
    drop((socket, fs::remove_file(&path).unwrap()));
    for (length, expected) in
        [(MOST_BYTES, Ok(Some(MOST_BYTES))), (MOST_BYTES + 1, Err(FileTooLarge)), (0, Ok(Some(0)))]
    {
        File::create(&path).unwrap().set_len(length).unwrap();
        assert_eq!(kind(), expected);
    }
}

#[test]
fn nothing_is_written_that_could_not_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let too_long = |written: Result<()>| {
        let error = written.unwrap_err().to_string();
        assert!(error.contains("too long: at most 64 MiB"), "{error}");
    };
    store.replace("state", b"old").unwrap();
    too_long(store.replace("state", &vec![b' '; MOST_BYTES as usize + 1]));
    assert_eq!(store.read("state").unwrap().as_deref(), Some(&b"old"[..]));
    let mut journal = store.journal("journal").unwrap();
    journal.append("first").unwrap();
    journal.length = MOST_BYTES - 6;
    journal.append("third").unwrap();
    too_long(journal.append(""));
    assert_eq!(store.read("journal").unwrap().as_deref(), Some(&b"first\nthird\n"[..]));
}
