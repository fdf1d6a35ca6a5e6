// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Channels for programs of other users.

use crate::place::{Place, Running};
use crate::{compile, library, root};
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn each_call_on_an_offer_answers_as_documented_from_the_shared_and_from_the_static_library() {
    for extension in ["so", "a"] {
        let place = Place::new();
        // Other users look up the socket there.
        let dir = place.path("sockets");
        std::fs::create_dir(&dir).unwrap();
        for open in [&place.path("."), &dir] {
            std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let program = place.path("offer_calls");
        compile(&[root().join("tests/offer_calls.c")], &[], library(extension), &program);
        place.tries_all_calls(&program, &[dir.to_str().unwrap()]);
        assert_eq!(place.links(), [""; 0], "nothing is left");
    }
}

/// As setcap(8) writes `cap_sys_nice+ep`: struct vfs_cap_data, revision 2, effective, with bit 23
/// permitted.
fn set_capability(program: &Path) -> std::io::Result<()> {
    let words: [u32; 5] = [0x0200_0001, 1 << 23, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(program.as_os_str().as_bytes())?;
    let (name, bytes) = (c"security.capability".as_ptr(), value.as_ptr().cast());
    // SAFETY: two C strings and bytes of ours, which outlive the call.
    match unsafe { libc::setxattr(path.as_ptr(), name, bytes, value.len(), 0) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// A /dev/shm of this process alone: a program with file capabilities keeps its names there,
/// whatever its environment says.
fn own_dev_shm() -> std::io::Result<()> {
    let done = |result| match result {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    };
    // Each only after the one before: else it would be the machine's.
    // SAFETY: takes a number.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let (null, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: a C string, and null where the kernel reads nothing.
    done(unsafe { libc::mount(null, c"/".as_ptr(), null, private, null.cast()) })?;
    let (from, at, mode) = (c"tmpfs".as_ptr(), c"/dev/shm".as_ptr(), c"mode=1777".as_ptr());
    // SAFETY: C strings.
    done(unsafe { libc::mount(from, at, from, libc::MS_NOSUID, mode.cast()) })
}

/// Starts a program as a user without rights.
fn start_as(user: u32, program: &Path, arguments: &[&str]) -> std::io::Result<Running> {
    let mut command = Command::new(program);
    command.args(arguments).uid(user).gid(user).current_dir("/").env_remove("ASMP_CHANNELS");
    Running::started(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn a_program_with_file_capabilities_and_one_without_rights_meet_in_both_directions() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: file capabilities and other users need root");
    }
    let (user, other) = (65534, 65533);
    let place = Place::new();
    let sockets = place.path("sockets");
    std::fs::create_dir(&sockets).unwrap();
    for open in [&place.path("."), &sockets] {
        std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
    }
    chown(&sockets, Some(user), Some(user)).unwrap();
    // Static: the library is where other users may have no way.
    let (motion, client) = (place.path("motion"), place.path("client"));
    compile(&[root().join("tests/capable.c")], &[], library("a"), &client);
    // Another process writes it, so that no fork of this one has it open as it is executed.
    assert!(Command::new("cp").args([&client, &motion]).status().unwrap().success());
    match set_capability(&motion) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return println!("skipped: {} takes no file capabilities", place.path(".").display());
        }
        set => set.unwrap(),
    }
    let dir = sockets.to_str().unwrap();
    for reader in [user, other] {
        let mut command = Command::new(&motion);
        command.args(["offers", dir, &reader.to_string()]).current_dir("/");
        // Who starts it does not choose where its names are: there may be no link.
        command.env("ASMP_CHANNELS", &sockets);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let become_user = move || {
            own_dev_shm()?;
            // SAFETY: takes numbers and a null list; what fails is an error of the start.
            let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
            // SAFETY: takes numbers.
            let ids = unsafe { libc::setgid(user) } | unsafe { libc::setuid(user) };
            if groups == 0 && ids == 0 { Ok(()) } else { Err(Error::last_os_error()) }
        };
        // SAFETY: between fork and exec only system calls.
        unsafe { command.pre_exec(become_user) };
        let mut program = match Running::started(&mut command) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return println!("skipped: no namespace or no CAP_SYS_NICE here: {error}");
            }
            started => started.unwrap(),
        };
        match program.line().as_str() {
            "offers" => {}
            "no capability" => return println!("skipped: the file system gives no capabilities"),
            other => panic!("{other}: {}", program.complaint()),
        }
        let entries = std::fs::read_dir(&sockets).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        assert_eq!(names, ["commands", "samples", "state"], "its sockets, and no names");
        let mut peer = start_as(reader, &client, &["receives", dir, &user.to_string()]).unwrap();
        let line = peer.line();
        assert_eq!(line, "they met", "user {reader}: {}", peer.complaint());
        assert_eq!(program.line(), "the peer has gone");
    }
}
