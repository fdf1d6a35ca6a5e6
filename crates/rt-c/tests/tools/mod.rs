// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of other people that a test calls.

use std::process::Command;

/// Whether one of these is missing on this machine. The test then prints `skipped: reason`, which
/// tests/counted.sh counts, and returns; in CI (`ASMP_CI`) it fails.
#[track_caller]
pub fn missing(tools: &[&str]) -> bool {
    let is_missing = |tool: &&&str| Command::new(tool).arg("--version").output().is_err();
    let Some(tool) = tools.iter().find(is_missing) else { return false };
    let is_ci = std::env::var_os("ASMP_CI").is_some_and(|value| !value.is_empty());
    assert!(!is_ci, "no {tool} on this machine: `make setup` installs it");
    println!("skipped: no {tool} on this machine");
    true
}
