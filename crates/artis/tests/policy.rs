// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the scheduler decides by, src/bpf/policy.h, compiled for this machine: tests/policy.c.

use std::path::Path;
use std::process::Command;

#[test]
fn the_policy_holds_on_this_machine() {
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("policy");
    let compiled = Command::new(&clang)
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsanitize=undefined",
            "-fsanitize-trap=undefined",
            "-o",
        ])
        .arg(&program)
        .arg("tests/policy.c")
        .status()
        .expect("clang runs");
    assert!(compiled.success());
    let ran = Command::new(&program).output().expect("it runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
