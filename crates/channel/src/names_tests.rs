// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other users and links. What takes two users needs root; elsewhere it is skipped, with its
//! reason.

use super::*;
use crate::shm::{Kind, Pages, SharedMemory};
use std::io::Write as _;
use std::os::fd::FromRawFd;
use std::os::unix::fs::chown;

/// Two users who are not root.
pub const USER: u32 = 65534;
pub const THIRD: u32 = 65533;

pub fn dir_of(uid: u32, mode: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    if me() != uid {
        chown(dir.path(), Some(uid), None).unwrap();
    }
    dir
}

pub fn is_root(test: &str) -> bool {
    if me() != 0 {
        println!("skipped: {test} needs root");
    }
    me() == 0
}

/// The exit status of a child that cannot do its test.
const SKIPPED: i32 = 77;

/// Runs `act` in a child process, as `uid` if that is another user. The test fails if `act` panics;
/// it counts as skipped if `act` gives a reason.
pub fn in_child(uid: u32, act: impl FnOnce() -> Result<(), &'static str>) {
    // SAFETY: the child allocates (glibc's malloc allows it after a fork) and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            if uid != me() {
                // SAFETY: takes numbers.
                let set = unsafe { libc::setgid(uid) } | unsafe { libc::setuid(uid) };
                assert_eq!(set, 0);
            }
            // The harness does not see what the macros of a child print.
            let say = |line: &str| _ = writeln!(io::stderr(), "{line}");
            let code = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)) {
                Ok(Ok(())) => 0,
                Ok(Err(reason)) => {
                    say(reason);
                    SKIPPED
                }
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    say(text.or(panic.downcast_ref().copied()).unwrap_or("a panic"));
                    1
                }
            };
            // SAFETY: ends the child without what belongs to its parent.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 1;
            // SAFETY: waits for our own child; the status is on our stack.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            match libc::WEXITSTATUS(status) {
                SKIPPED if libc::WIFEXITED(status) => println!("skipped: a child could not do it"),
                _ => assert_eq!(status, 0, "the child said why on stderr"),
            }
        }
    }
}

fn create(dir: &Path, name: &str) -> Result<SharedMemory, ShmError> {
    SharedMemory::create(dir, name, Kind::Mbuff, 8, [0; 4], Pages::Normal)
}

/// Gives this process, which has one thread, an empty /dev/shm of its own. False: not allowed.
fn own_dev_shm() -> bool {
    let mount = |from: &std::ffi::CStr, to: &std::ffi::CStr, kind: &std::ffi::CStr, flags, data| {
        // SAFETY: C strings that outlive the call; `data` is null or such a string.
        unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, data) == 0 }
    };
    // SAFETY: takes a number.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) == 0 };
    unshared
        && mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE, std::ptr::null())
        && mount(c"tmpfs", c"/dev/shm", c"tmpfs", 0, c"mode=1777".as_ptr().cast())
}

#[test]
fn root_refuses_its_default_directory_if_another_user_made_it_first() {
    if !is_root("a directory of another user") {
        return;
    }
    let roots = dir_of(0, 0o700);
    in_child(0, || {
        if !own_dev_shm() {
            return Err("this machine gives no mount namespace");
        }
        std::fs::create_dir(own_dir()).unwrap();
        std::fs::set_permissions(own_dir(), Permissions::from_mode(0o755)).unwrap();
        chown(own_dir(), Some(USER), None).unwrap();
        let refused = create(&own_dir(), "log").unwrap_err().to_string();
        assert!(
            refused.contains("/dev/shm/asmp-0 belongs to another user: remove it"),
            "{refused}"
        );
        // The same directory, named by the program, is another matter.
        create(Path::new("/dev/shm/../shm/asmp-0"), "log").unwrap();
        // A link of his does not help him, even to a directory of root.
        std::fs::remove_dir_all(own_dir()).unwrap();
        symlink(roots.path(), own_dir()).unwrap();
        std::os::unix::fs::lchown(own_dir(), Some(USER), None).unwrap();
        for refused in [
            create(&own_dir(), "log").map(drop),
            SharedMemory::attach(&own_dir(), "log", Kind::Mbuff).map(drop),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("/dev/shm/asmp-0 is a symbolic link: remove it"), "{refused}");
        }
        assert_eq!(std::fs::read_dir(roots.path()).unwrap().count(), 0, "nothing was made there");
        Ok(())
    });
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_the_cure() {
    let dir = dir_of(me(), 0o777);
    let refused = create(dir.path(), "a").unwrap_err().to_string();
    assert!(
        refused.ends_with("may be written by other users: forbid it (chmod go-w)"),
        "{refused}"
    );
    let below_a_file = dir.path().join("file/names");
    std::fs::write(dir.path().join("file"), "").unwrap();
    let refused = create(&below_a_file, "a").unwrap_err().to_string();
    assert!(
        refused.contains("cannot create this directory of names: Not a directory"),
        "{refused}"
    );
    assert!(refused.contains("set ASMP_CHANNELS to one that"), "{refused}");
    let sticky = create(Path::new("/tmp"), "a").unwrap_err().to_string();
    assert!(sticky.ends_with("set ASMP_CHANNELS to a directory of this user"), "{sticky}");
}

#[test]
fn a_symbolic_link_is_no_directory_of_names() {
    let real = dir_of(me(), 0o700);
    let place = dir_of(me(), 0o700);
    let link = place.path().join("names");
    symlink(real.path(), &link).unwrap();
    let with_slash = PathBuf::from(format!("{}/", link.display()));
    for refused in [
        create(&link, "a"),
        create(&with_slash, "a"),
        SharedMemory::attach(&link, "a", Kind::Mbuff),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("is a symbolic link: name the directory itself"), "{refused}");
    }
    assert_eq!(std::fs::read_dir(real.path()).unwrap().count(), 0, "nothing was made behind it");
}

#[test]
fn other_users_cannot_hold_the_lock_of_a_directory_that_they_can_open() {
    if !is_root("a lock of another user") {
        return;
    }
    let dir = dir_of(0, 0o755);
    drop(Names::lock(dir.path()).unwrap());
    let path = dir.path().to_owned();
    in_child(USER, || {
        File::open(&path).unwrap().lock().unwrap();
        let opened = File::open(path.join(LOCK_FILE));
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let refused = Names::lock_within(&path, Duration::ZERO).unwrap_err().to_string();
        assert!(refused.contains("belongs to another user"), "{refused}");
        Ok(())
    });
    let directory = File::open(dir.path()).unwrap();
    directory.lock().unwrap();
    Names::lock_within(dir.path(), Duration::ZERO).unwrap();
}

#[test]
fn root_that_locks_a_users_directory_first_leaves_its_owner_a_way_in() {
    if !is_root("a directory of another user") {
        return;
    }
    let dir = dir_of(USER, 0o700);
    let path = dir.path().to_owned();
    drop(create(&path, "a").unwrap());
    in_child(USER, || {
        create(&path, "a").unwrap();
        Ok(())
    });
}

#[test]
fn root_follows_in_a_users_directory_only_memory_of_that_user_or_of_root() {
    if !is_root("memory of another user") {
        return;
    }
    let dir = dir_of(USER, 0o700);
    let a = create(dir.path(), "a").unwrap();
    for (owner, followed) in [(USER, true), (THIRD, false), (0, true)] {
        fchown(a.as_fd(), Some(owner), None).unwrap();
        let found = Names::lock(dir.path()).unwrap().find("a").unwrap();
        assert_eq!(found.is_some(), followed, "memory of user {owner}");
    }
    // A link of the user's own, to what root has for other programs.
    let names = Names::lock(dir.path()).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_symlink() {
            std::os::unix::fs::lchown(entry, Some(USER), None).unwrap();
        }
    }
    assert!(names.find("a").unwrap().is_none(), "led to memory of root");
}

#[test]
fn a_channel_of_a_process_with_hidden_descriptors_is_named_and_its_name_is_taken() {
    let user = if me() == 0 { USER } else { me() };
    let dir = dir_of(user, 0o700);
    let path = dir.path().to_owned();
    in_child(user, || {
        // SAFETY: takes numbers. As after an exec of a program with capabilities.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
        let _a = create(&path, "a").unwrap();
        let pid = std::process::id();
        in_child(user, || {
            let attached = SharedMemory::attach(&path, "a", Kind::Mbuff).map(drop);
            for refused in [attached, create(&path, "a").map(drop)] {
                let refused = refused.unwrap_err();
                assert!(
                    matches!(refused, ShmError::Hidden { pid: by, .. } if by == pid),
                    "{refused}"
                );
            }
            create(&path, "b").unwrap();
            Ok(())
        });
        Ok(())
    });
}

#[test]
fn a_link_whose_process_number_is_anothers_by_now_takes_no_name() {
    let user = if me() == 0 { USER } else { me() };
    let dir = dir_of(user, 0o700);
    let path = dir.path().to_owned();
    in_child(user, || {
        // SAFETY: takes numbers.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
        let pid = std::process::id();
        // Of the same number and user, but it started at another time.
        symlink(format!("/proc/{pid}/fd/0"), path.join(format!("a.{pid}.0.1"))).unwrap();
        // Number 1 is root's.
        symlink("/proc/1/fd/0", path.join("a.1.0.1")).unwrap();
        in_child(user, || {
            create(&path, "a").unwrap();
            Ok(())
        });
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "nothing but the lock is left");
        Ok(())
    });
}

#[test]
fn a_lock_that_was_removed_under_its_holder_is_no_lock() {
    let dir = dir_of(me(), 0o700);
    let held = Names::lock(dir.path()).unwrap();
    std::fs::remove_file(dir.path().join(LOCK_FILE)).unwrap();
    let removed = inside(&held.dir, LOCK_FILE);
    assert!(!removed.exists() && !is_in(&held.dir, &held.lock));
    // The next one makes its own, and the one after waits for that.
    let next = Names::lock_within(dir.path(), Duration::ZERO).unwrap();
    let refused = Names::lock_within(dir.path(), Duration::ZERO).unwrap_err();
    assert!(matches!(refused, ShmError::DirLocked { .. }), "{refused}");
    drop((held, next));
    Names::lock_within(dir.path(), Duration::ZERO).unwrap();
}

/// Names of all links, in order.
fn links(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut links: Vec<String> = names.filter(|name| name != LOCK_FILE).collect();
    links.sort();
    links
}

/// The number of a process that has just ended.
fn ended() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn who_makes_a_name_removes_the_links_of_other_names_that_a_dead_process_left() {
    let dir = dir_of(me(), 0o700);
    in_child(me(), || {
        std::mem::forget((create(dir.path(), "left").unwrap(), create(dir.path(), "b").unwrap()));
        Ok(())
    });
    assert_eq!(links(dir.path()).len(), 2, "it removed none");
    let _a = create(dir.path(), "a").unwrap();
    let now = links(dir.path());
    assert!(now.len() == 1 && now[0].starts_with("a."), "{now:?}");
    // Of many a part, so that no program waits long.
    let (pid, space) = (ended(), pid_space().unwrap());
    let link = |number: usize| format!("x{number}.{pid}.5.1.{space}");
    for number in 0..MOST_REMOVED + 7 {
        symlink(format!("/proc/{pid}/fd/5"), dir.path().join(link(number))).unwrap();
    }
    let _c = create(dir.path(), "c").unwrap();
    assert_eq!(links(dir.path()).len(), 2 + 7);
    let _d = create(dir.path(), "d").unwrap();
    assert_eq!(links(dir.path()).len(), 3);
}

#[test]
fn links_that_may_be_of_the_living_stay_and_so_do_those_of_other_users_and_other_files() {
    let dir = dir_of(me(), 0o700);
    let (own, dead, space) = (std::process::id(), ended(), pid_space().unwrap());
    let link = |name: String, to: String| {
        let path = dir.path().join(name);
        symlink(to, &path).unwrap();
        path
    };
    let to = |pid: u32| format!("/proc/{pid}/fd/999");
    link(format!("closed.{own}.999.1.{space}"), to(own));
    link(format!("space.{dead}.999.1.{}", space + 1), to(dead));
    link(format!("unknown.{dead}.999.1"), to(dead));
    link(format!("more.{dead}.999.1.{space}.1"), to(dead));
    link(format!("group.0.999.1.{space}"), to(0));
    link(format!("large.4294967295.999.1.{space}"), to(u32::MAX));
    link(format!("other.{dead}.998.1.{space}"), to(dead));
    std::fs::write(dir.path().join(format!("file.{dead}.999.1.{space}")), "").unwrap();
    if me() == 0 {
        let foreign = link(format!("user.{dead}.999.1.{space}"), to(dead));
        std::os::unix::fs::lchown(foreign, Some(USER), None).unwrap();
    }
    let before = links(dir.path());
    drop(create(dir.path(), "a").unwrap());
    assert_eq!(links(dir.path()), before);
}

#[test]
fn a_process_that_may_not_be_seen_or_signalled_is_not_gone() {
    if !is_root("a process of another user") {
        return;
    }
    let pid = std::process::id();
    in_child(USER, || {
        assert!(!is_gone(pid) && !is_gone(1) && !is_gone(0) && is_gone(i32::MAX as u32));
        Ok(())
    });
}

#[test]
fn an_open_directory_is_used_whatever_its_path_names_by_now() {
    let place = dir_of(me(), 0o700);
    let (path, away) = (place.path().join("names"), place.path().join("away"));
    let others = dir_of(me(), 0o700);
    let names = Names::lock(&path).unwrap();
    std::fs::rename(&path, &away).unwrap();
    symlink(others.path(), &path).unwrap();
    // SAFETY: a C string.
    let fd = unsafe { libc::memfd_create(c"asmp:a".as_ptr(), 0) };
    // SAFETY: the descriptor is new, and nothing else owns it.
    let memory = unsafe { File::from_raw_fd(fd) };
    let link = names.link("a", &memory).unwrap();
    assert!(away.join(&link.file_name).is_symlink(), "made elsewhere");
    assert!(names.find("a").unwrap().is_some(), "found elsewhere");
    // What lies behind the new path is neither followed nor removed.
    std::fs::rename(away.join(&link.file_name), others.path().join(&link.file_name)).unwrap();
    assert!(names.find("a").unwrap().is_none(), "looked elsewhere");
    link.remove();
    names.remove_dead();
    assert_eq!(std::fs::read_dir(others.path()).unwrap().count(), 1, "removed elsewhere");
}
