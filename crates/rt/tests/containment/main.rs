// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Do faults of time-sharing peers reach a real-time thread?
//! `containment --runs N --cpu C [--partition NAME]`, in a guest and as root.
//!
//! A periodic thread exchanges data with a peer: another process, with a time-sharing policy, in a
//! cgroup of its own. In each run the peer is killed, is stopped, scribbles over all shared memory,
//! takes all memory of its cgroup, or forks without end. The next run's peer takes up where it was.
//! Two kinds of runs in the same boot are the control: runs without a fault, and runs in which
//! well-behaved programs are as busy.
//!
//! The test counts the periods that were missed, whether anything but the thread had its CPU then,
//! and whether a datum was lost after the thread had accepted it. Exit code 1: a fault came
//! through.
//!
//! Three ways to see it fail: `--unshielded` (peers may use the CPU), `--wait-on-peer` (a job waits
//! for a command), `--forgetful` (a FIFO that drops what was not read).
//!
//! `cargo test` builds it and runs nothing: it passes none of these options.

mod controller;
mod exchange;
mod judge;
mod peer;
mod runs;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("--controller") => controller::main(&words[1..]),
        Some("--peer") => peer::main(&words[1..]),
        Some("--spin") => peer::spin(),
        Some(word) if runs::OPTIONS.contains(&word) => runs::main(&words),
        _ => {
            println!("skipped: containment runs in a guest: make containment");
            Ok(true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("containment: {error}");
            2.into()
        }
    }
}
