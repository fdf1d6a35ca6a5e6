// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test that hangs in a guest ends the guest with what every task was waiting for, instead of the
//! minutes that are left to CI.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// More than any test, or any part of one that calls `goes_on`, takes on a busy machine under
/// emulation.
const MOST: Duration = Duration::from_secs(15 * 60);

/// The test that runs, and since when.
static RUNNING: Mutex<Option<(String, Instant)>> = Mutex::new(None);

pub fn begins(test: &str) {
    *RUNNING.lock().expect("no panic in between") = Some((test.to_owned(), Instant::now()));
}

/// For a test of many parts: one of them is done.
pub fn goes_on() {
    if let Some((_, since)) = &mut *RUNNING.lock().expect("no panic in between") {
        *since = Instant::now();
    }
}

pub fn ends() {
    *RUNNING.lock().expect("no panic in between") = None;
}

pub fn start() {
    std::thread::spawn(|| {
        stay_on_cpu_0();
        loop {
            std::thread::sleep(Duration::from_secs(5));
            let running = RUNNING.lock().expect("no panic in between").clone();
            if let Some((test, since)) = running
                && since.elapsed() > MOST
            {
                println!("\n{test}: not done after {} s; the tasks:", MOST.as_secs());
                print_tasks();
                std::process::exit(124);
            }
        }
    });
}

/// The timer of a sleep that began on a CPU ends there, also once that CPU is shielded: a test that
/// counts would see ours.
fn stay_on_cpu_0() {
    // SAFETY: all zeros are a valid value of this C structure.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU 0 is within the set.
    unsafe { libc::CPU_SET(0, &mut cpus) };
    // SAFETY: the kernel reads as many bytes of a local as is said; 0 is this thread.
    let failed =
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cpus) };
    assert_eq!(failed, 0, "CPU 0 is there");
}

/// What is known of each thread that has an address space of its own.
fn print_tasks() {
    let numbers = |dir: &str| -> Vec<u32> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    for pid in numbers("/proc") {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if command.is_empty() {
            continue;
        }
        println!("{pid}: {}", String::from_utf8_lossy(&command).replace('\0', " "));
        for tid in numbers(&format!("/proc/{pid}/task")) {
            let file = |name: &str| {
                fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap_or_default()
            };
            let status = file("status");
            let wanted = ["State:", "SigPnd:", "ShdPnd:", "SigBlk:", "Cpus_allowed_list:"];
            let known: Vec<String> = status
                .lines()
                .filter(|line| wanted.iter().any(|word| line.starts_with(word)))
                .map(|line| line.replace('\t', " "))
                .collect();
            println!("  {tid} {}: {}", file("comm").trim_end(), known.join(", "));
            println!("    stat {}", file("stat").trim_end());
            file("stack").lines().take(8).for_each(|line| println!("    {line}"));
        }
    }
}
