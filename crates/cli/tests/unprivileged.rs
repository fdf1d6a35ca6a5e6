// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a user without privileges may measure: a task as it is, on any machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// What a user has who owns nothing.
const NOBODY: u32 = 65534;

fn asmp(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(dir.join("asmp"));
    command.current_dir(dir).args(line.split(' '));
    // SAFETY: takes no pointer.
    if unsafe { libc::getuid() } == 0 {
        // The groups of root are given up too, by the standard library.
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().unwrap()
}

#[test]
fn latency_of_a_task_as_it_is_needs_no_root_and_no_cgroup_v2() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The user can reach this copy, not the directory that it was built in.
    fs::copy(env!("CARGO_BIN_EXE_asmp"), dir.path().join("asmp")).unwrap();
    let series = "measure latency --cpu 0 --samples 50 --load idle --quiet";
    let output = asmp(dir.path(), &format!("{series} --kinds normal -o free"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let run = fs::read_to_string(dir.path().join("free/idle-normal/run.json")).unwrap();
    assert!(run.contains("\"nanosleep\""), "{run}");
    for kinds in ["fifo", "normal,partition"] {
        let output = asmp(dir.path(), &format!("{series} --kinds {kinds} -o refused"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(10), "{kinds}: {said}");
        assert!(!dir.path().join("refused").exists(), "{kinds}: nothing is half done");
    }
}
