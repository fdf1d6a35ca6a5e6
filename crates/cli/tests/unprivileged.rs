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
    // The user can reach this copy, not the directory that it was built in. Another process writes
    // it, so that no fork of this one has it open as it is executed.
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_asmp")).arg(dir.path().join("asmp"));
    assert!(copy.status().unwrap().success());
    let series = "measure latency --cpu 0 --samples 50 --load idle --quiet";
    let output = asmp(dir.path(), &format!("{series} --kinds normal -o free"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Which it is, only this machine's kernel tells.
    let reasons = ["only root can set timerlat", "this kernel has no timerlat"];
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("timerlat")).collect();
    let [why, cpu] = lines[..] else { panic!("{said}") };
    assert!(reasons.iter().any(|reason| why.contains(reason)) && !why.contains("partitions"));
    assert!(cpu.contains("--cpu 0 does not hold the task of kind normal"), "{said}");
    let run = fs::read_to_string(dir.path().join("free/idle-normal/run.json")).unwrap();
    assert!(run.contains("\"nanosleep\""), "{run}");
    for kinds in ["fifo", "normal,partition"] {
        let output = asmp(dir.path(), &format!("{series} --kinds {kinds} -o refused"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(10), "{kinds}: {said}");
        assert!(!dir.path().join("refused").exists(), "{kinds}: nothing is half done");
        assert!(said.contains("`--kinds normal` needs no root"), "{kinds}: {said}");
        assert_eq!(said.lines().count(), 1, "the refusal alone: {said}");
    }
    // What is wrong with the arguments is said alone.
    for wrong in ["--kinds normal,N -o twice", "--kinds normal -o free"] {
        let output = asmp(dir.path(), &format!("{series} {wrong}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.lines().count() == 1, "{wrong}: {said}");
    }
}

#[test]
fn a_task_of_kind_normal_is_told_with_the_policy_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let measured = |line: &str, name: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(env!("CARGO_BIN_EXE_asmp")).current_dir(dir.path());
        let series = "measure latency --samples 20 --kinds normal --load idle --quiet -o";
        let output = command.args(series.split(' ')).arg(name).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let run = dir.path().join(name).join("idle-normal/run.json");
        (said, serde_json::from_slice::<serde_json::Value>(&fs::read(run).unwrap()).unwrap())
    };
    let (said, run) = measured("chrt --idle 0", "idle");
    assert!(said.contains("SCHED_IDLE"), "{said}");
    assert_eq!(run["schedule"], serde_json::json!({ "policy": "idle" }));
    // At least as nice as this test.
    let (said, run) = measured("nice -n 19", "nice");
    assert!(said.contains("SCHED_OTHER, nice 19"), "{said}");
    assert_eq!(run["schedule"], serde_json::json!({ "policy": "other", "nice": 19 }));
}
