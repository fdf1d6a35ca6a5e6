// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What else V3's manual has: signals of threads, soft interrupts, files of the real-time side,
//! times.

use crate::{compile, library, permitted, root, shims};
use std::process::Command;

/// Runs a program that checks by itself and says what failed. Returns what it said on stderr.
fn passes(name: &str, last_line: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(name);
    compile(&[root().join(format!("tests/{name}.c"))], &[&shims()], library("so"), &program);
    let arguments: &[&str] = if permitted() { &[] } else { &["-n"] };
    let output = Command::new(&program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{last_line}\n"), "{said}");
    said
}

#[test]
fn signals_soft_interrupts_files_and_times_do_what_the_table_of_names_says() {
    passes("v3_calls", "all of v3");
}

#[test]
fn locks_threads_and_clocks_do_what_the_table_of_names_says() {
    let said = passes("v3_posix", "all of posix");
    for line in ["printk 1", "rtl_printf 2", "conpr 2a"] {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
}
