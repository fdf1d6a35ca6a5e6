// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest program that enters a partition.
//!
//! ```text
//! in_partition NAME [thread|process] [POLICY] [busy]
//! ```
//!
//! POLICY is as of `asmp run` (fifo:80). The program prints what its thread has become, and ends
//! when its input does.

use asmp_rt::thread::{RealTime, Schedule};
use std::hint::black_box;

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "motion".to_owned());
    let whole = arguments.next().is_some_and(|who| who == "process");
    let policy: Schedule =
        arguments.next().map_or(Ok(Schedule::Fifo { priority: 80 }), |p| p.parse()).unwrap();
    let busy = arguments.next().is_some_and(|what| what == "busy");

    let request = RealTime::with(policy);
    let request =
        if whole { request.process_in_partition(&name) } else { request.partition(&name) };
    let axis = request.start("axis", move |me| {
        // A job without releases; `me.releases(period, phase)` gives a grid of them.
        while !me.is_deleted() {
            match busy {
                true => _ = black_box((0..10_000u64).sum::<u64>()),
                false => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        // SAFETY: takes nothing, touches nothing.
        unsafe { libc::sched_getcpu() }
    });
    let axis = match axis {
        Ok(axis) => axis,
        Err(refusal) => {
            eprintln!("in_partition: {refusal}");
            return 1.into();
        }
    };
    println!("process {} thread {}", std::process::id(), axis.tid());
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    println!("ran on CPU {}", axis.delete().expect("no panic"));
    // Its partition's other group keeps the process until it ends or is sent home.
    let _ = std::io::stdin().read_line(&mut line);
    0.into()
}
