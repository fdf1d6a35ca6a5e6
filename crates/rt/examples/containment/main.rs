//! Do faults of time-sharing peers reach a real-time thread? `containment --runs N --cpu C [--partition NAME]`, as root.
//!
//! A periodic thread exchanges data with a peer in another process, a time-sharing one in a cgroup of its own. In
//! each run the peer is killed, is stopped, scribbles over all shared memory, takes all memory of its cgroup, or
//! forks without end; the next run's peer takes up where it was. Beside them, as a control in the same boot, runs
//! without a fault and runs in which well-behaved programs are as busy. Counted are the periods that were
//! missed, whether anything but the thread had its CPU then, and whether a datum that it had accepted was lost. Exits
//! with 1 where a fault has come through.
//!
//! Three ways to see it fail: `--unshielded` (peers may use the CPU), `--wait-on-peer` (a job waits for a command),
//! `--forgetful` (a FIFO that drops what nobody has read).

mod controller;
mod exchange;
mod judge;
mod peer;
mod runs;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("controller") => controller::main(&words[1..]),
        Some("peer") => peer::main(&words[1..]),
        Some("spin") => peer::spin(),
        _ => runs::main(&words),
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
