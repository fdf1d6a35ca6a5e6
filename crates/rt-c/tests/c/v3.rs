// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What else V3's manual has: signals of threads, soft interrupts, files of the real-time side,
//! times.

use crate::{compile, library, permitted, root, shims};
use std::process::Command;

/// Runs tests/v3_calls.c, which checks by itself and says what failed.
#[test]
fn signals_soft_interrupts_files_and_times_do_what_the_table_of_names_says() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("v3_calls");
    compile(&[root().join("tests/v3_calls.c")], &[&shims()], library("so"), &program);
    let arguments: &[&str] = if permitted() { &[] } else { &["-n"] };
    let output = Command::new(&program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all of v3\n", "{said}");
}
