// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program `asmpd` as a shell calls it, without a partition.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// What a user has who owns nothing.
const NOBODY: u32 = 65534;

fn asmpd(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_asmpd")).args(words).output().expect("asmpd starts")
}

#[test]
fn help_goes_to_the_output_and_a_mistake_to_the_errors() {
    let help = asmpd(&["--help"]);
    assert_eq!((help.status.code(), help.stderr.as_slice()), (Some(0), &b""[..]));
    assert!(String::from_utf8_lossy(&help.stdout).contains("Usage: asmpd [--sweep TIME]"));
    let wrong = asmpd(&["--sweep", "1ms"]);
    assert_eq!((wrong.status.code(), wrong.stdout.as_slice()), (Some(2), &b""[..]));
    let why = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(why, "asmpd: --sweep 1ms: give a time from 1s to 1h\n");
}

#[test]
fn another_user_than_root_is_refused_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The user can reach this copy, not the directory that it was built in.
    let copy = dir.path().join("asmpd");
    // Another process writes it: a fork of this one would have it open as it is executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_asmpd")).arg(&copy).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new(copy);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY);
    }
    let refused = command.output().expect("asmpd starts");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(why, "asmpd: needs root: start it with sudo, or as a service\n");
    assert_eq!(refused.status.code(), Some(1));
}
