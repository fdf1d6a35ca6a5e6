// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program may be started without standard input, output or error. A file that it opens then has
//! one of their numbers, and what it prints goes into that file.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A long time: only a test that fails waits for its end.
const BOUND: Duration = Duration::from_secs(120);

#[test]
fn no_file_of_asmp_gets_the_number_of_a_closed_standard_descriptor() {
    let close = || {
        for descriptor in 0..3 {
            // SAFETY: takes a number; async-signal-safe.
            unsafe { libc::close(descriptor) };
        }
        Ok(())
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.args(["spin", "600000"]).stdin(Stdio::null());
    // SAFETY: system calls alone; nothing allocates.
    let mut child = unsafe { command.pre_exec(close) }.spawn().unwrap();
    let dir = format!("/proc/{}", child.id());
    let descriptors = || -> Vec<PathBuf> {
        (0..3).filter_map(|one| fs::read_link(format!("{dir}/fd/{one}")).ok()).collect()
    };
    let expected = vec![PathBuf::from("/dev/null"); 3];
    let end = Instant::now() + BOUND;
    // It opens them before it does anything else.
    while descriptors() != expected && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let found = descriptors();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, expected);
}
