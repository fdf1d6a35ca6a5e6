// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::time::Duration;

fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    dir
}

/// All but the lock.
fn names_in(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().file_name() != ".lock").count()
}

fn create(dir: &Path, name: &str, bytes: u64) -> Result<SharedMemory, ShmError> {
    SharedMemory::create(dir, name, Kind::Mbuff, bytes, [1, 2, 3, 4], Pages::Normal)
}

#[test]
fn a_name_is_taken_as_long_as_one_process_has_it() {
    let dir = dir();
    let first = create(dir.path(), "a", 1000).unwrap();
    assert!(matches!(create(dir.path(), "a", 1000), Err(ShmError::NameTaken { .. })));
    let second = SharedMemory::attach(dir.path(), "a", Kind::Mbuff).unwrap();
    assert_eq!(second.parameters(), [1, 2, 3, 4]);
    drop(first);
    let third = SharedMemory::attach(dir.path(), "a", Kind::Mbuff).unwrap();
    second.words(0, 1)[0].store(5, Relaxed);
    assert_eq!(third.words(0, 1)[0].load(Relaxed), 5);
    drop((second, third));
    assert!(matches!(
        SharedMemory::attach(dir.path(), "a", Kind::Mbuff),
        Err(ShmError::NotFound { .. })
    ));
    assert_eq!(names_in(dir.path()), 0, "nothing is left");
    create(dir.path(), "a", 1000).unwrap();
}

#[test]
fn what_cannot_be_is_refused() {
    let dir = dir();
    for name in ["", "../a", "a b", "a.1", &"a".repeat(65)] {
        assert!(matches!(create(dir.path(), name, 1), Err(ShmError::BadName { .. })), "{name}");
    }
    for bytes in [0, MAX_CHANNEL_BYTES + 1, u64::MAX] {
        assert!(matches!(create(dir.path(), "a", bytes), Err(ShmError::BadSize { .. })));
    }
    let missing = SharedMemory::attach(&dir.path().join("none"), "a", Kind::Fifo);
    assert!(matches!(missing, Err(ShmError::NotFound { .. })));
    let _a = create(dir.path(), "a", 1).unwrap();
    let other = SharedMemory::attach(dir.path(), "a", Kind::Fifo).unwrap_err();
    assert_eq!(other.to_string(), "channel a does not match: it is of kind 2, expected 1 (Fifo)");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(create(dir.path(), "b", 1), Err(ShmError::ForeignDir { .. })));
}

#[test]
fn a_forked_child_leaves_its_parents_name_and_role_alone() {
    let dir = dir();
    let first = create(dir.path(), "a", 1000).unwrap();
    first.acquire(Role::Writer).unwrap();
    // SAFETY: the child drops one value, which frees memory (glibc's malloc allows it after a
    // fork), and ends.
    match unsafe { libc::fork() } {
        0 => {
            drop(first);
            // SAFETY: ends the child without what belongs to its parent.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 1;
            // SAFETY: waits for our own child; the status is on our stack.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
            assert!(
                SharedMemory::attach(dir.path(), "a", Kind::Mbuff).unwrap().is_held(Role::Writer)
            );
        }
    }
}

#[test]
fn what_a_forked_child_has_open_too_is_free_once_its_parent_lets_it_go() {
    let dir = dir();
    let first = create(dir.path(), "a", 1000).unwrap();
    first.acquire(Role::Writer).unwrap();
    let held = Names::lock(dir.path()).unwrap();
    // SAFETY: the child does nothing but wait for its end.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        },
        child => {
            drop(held);
            let unlocked = Names::lock_within(dir.path(), Duration::ZERO).map(drop);
            let second = SharedMemory::attach(dir.path(), "a", Kind::Mbuff).unwrap();
            drop(first);
            let taken = second.acquire(Role::Writer);
            // SAFETY: our own child, not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: waits for it; no status is asked for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            unlocked.unwrap();
            taken.unwrap();
        }
    }
}

#[test]
fn links_to_the_dead_and_to_other_files_are_not_followed() {
    let dir = dir();
    let other = tempfile::tempfile().unwrap();
    let fd = other.as_raw_fd();
    let link =
        |name: &str, to: String| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
    // Not another user's: only that user can see what it has open.
    link("a.1.9999", "/proc/self/fd/9999".to_owned());
    link(&format!("a.7.{fd}"), format!("/proc/self/fd/{fd}"));
    assert!(matches!(
        SharedMemory::attach(dir.path(), "a", Kind::Mbuff),
        Err(ShmError::NotFound { .. })
    ));
    assert_eq!(names_in(dir.path()), 0, "dead links go");
}

#[test]
fn files_that_are_no_links_of_channels_stay_in_the_directory() {
    let dir = dir();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("a.txt"), "the user's").unwrap();
    std::fs::create_dir(file("a.d")).unwrap();
    std::os::unix::fs::symlink("elsewhere", file("a.link")).unwrap();
    drop(create(dir.path(), "a", 1).unwrap());
    assert!(matches!(
        SharedMemory::attach(dir.path(), "a", Kind::Mbuff),
        Err(ShmError::NotFound { .. })
    ));
    assert_eq!(std::fs::read_to_string(file("a.txt")).unwrap(), "the user's");
    assert!(file("a.d").is_dir() && file("a.link").is_symlink());
}

#[test]
fn a_directory_that_somebody_keeps_locked_is_an_error_and_no_hang() {
    let dir = dir();
    let held = Names::lock(dir.path()).unwrap();
    let refused = Names::lock_within(dir.path(), Duration::from_millis(20)).unwrap_err();
    assert!(matches!(refused, ShmError::DirLocked { .. }), "{refused}");
    drop(held);
    Names::lock_within(dir.path(), Duration::ZERO).unwrap();
}

#[test]
fn nobody_can_change_its_size_and_a_file_whose_size_can_change_is_refused() {
    let dir = dir();
    let a = create(dir.path(), "a", 5000).unwrap();
    assert!(a.file.set_len(0).is_err() && a.file.set_len(1 << 20).is_err());
    let fd = tempfile::tempfile().unwrap().into();
    let refused = SharedMemory::from_fd(fd, "a", Kind::Mbuff).unwrap_err().to_string();
    assert_eq!(refused, "channel a does not match: its size is not sealed");
}

#[test]
fn a_header_that_lies_is_refused() {
    let dir = dir();
    let a = create(dir.path(), "a", 5000).unwrap();
    for (word, value) in [(0, 1), (1, 2), (2, 9), (3, 0), (3, 1 << 20), (3, u64::MAX)] {
        let mut before = [0; 8];
        a.file.read_exact_at(&mut before, word * 8).unwrap();
        a.file.write_all_at(&u64::to_ne_bytes(value), word * 8).unwrap();
        let refused = SharedMemory::attach(dir.path(), "a", Kind::Mbuff);
        assert!(matches!(refused, Err(ShmError::Mismatch { .. })), "{word} {value}");
        a.file.write_all_at(&before, word * 8).unwrap();
    }
    SharedMemory::attach(dir.path(), "a", Kind::Mbuff).unwrap();
}

#[test]
fn a_role_is_one_ends_until_it_leaves_or_ends() {
    let dir = dir();
    let a = create(dir.path(), "a", 1).unwrap();
    let b = SharedMemory::attach(dir.path(), "a", Kind::Mbuff).unwrap();
    a.acquire(Role::Writer).unwrap();
    assert!(b.is_held(Role::Writer) && !b.is_held(Role::Reader) && !a.is_held(Role::Writer));
    assert!(matches!(b.acquire(Role::Writer), Err(ShmError::RoleTaken { role: "writer", .. })));
    b.acquire(Role::Reader).unwrap();
    a.release(Role::Writer);
    b.acquire(Role::Writer).unwrap();
    drop(b);
    a.acquire(Role::Writer).unwrap();
    a.acquire(Role::Reader).unwrap();
}

#[test]
fn huge_pages_are_given_or_refused_with_the_size() {
    let dir = dir();
    match SharedMemory::create(dir.path(), "a", Kind::Mbuff, 1 << 20, [0; 4], Pages::Huge) {
        Ok(a) => assert_eq!(a.body_bytes() + HEADER, 2 << 20),
        Err(error) => {
            assert!(matches!(error, ShmError::NoRoom { bytes: 1_048_576, .. }), "{error}")
        }
    }
}

/// Memory with the header of a channel of this length, which is itself of that length.
fn foreign(whole: u64, bytes: u64, is_sparse: bool) -> OwnedFd {
    // SAFETY: a C string.
    let fd = unsafe {
        libc::memfd_create(c"asmp:a".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    // SAFETY: a new descriptor, which nothing else owns.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(whole).unwrap();
    if !is_sparse {
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::posix_fallocate(fd, 0, whole as libc::off_t) }, 0);
    }
    for (at, word) in [MAGIC, VERSION, Kind::Mbuff as u64, bytes].into_iter().enumerate() {
        file.write_all_at(&word.to_ne_bytes(), 8 * at as u64).unwrap();
    }
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) }, 0);
    file.into()
}

#[test]
fn memory_that_is_longer_than_its_channel_or_not_there_is_refused() {
    let open = |fd| SharedMemory::from_fd(fd, "a", Kind::Mbuff).map_err(|error| error.to_string());
    assert!(open(foreign(8192, 5000, false)).is_ok());
    for (whole, bytes) in [(8192, 10), (8192, 9000), (4096, 5000), (1 << 30, 5000), (8191, 5000)] {
        let refused = open(foreign(whole, bytes, true)).unwrap_err();
        let said = format!("its header says {bytes} bytes, its length is {whole}");
        assert_eq!(refused, format!("channel a does not match: {said}"));
    }
    let refused = open(foreign(1 << 30, (1 << 30) - HEADER as u64, true)).unwrap_err();
    let said = "of its 1073741824 bytes of memory only 4096 are there";
    assert_eq!(refused, format!("channel a does not match: {said}"));
}
