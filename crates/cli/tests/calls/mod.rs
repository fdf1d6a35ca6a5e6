// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of `asmp` in the directory of the analysis examples, for several test programs.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/analysis")
}

pub fn asmp(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(examples()).args(words).output().expect("asmp starts")
}

/// Exit code and error of a call, and the time that it had on a CPU: a busy machine makes that no
/// longer.
#[expect(clippy::zombie_processes, reason = "wait4 reaps it, and has its time")]
pub fn timed(words: &[&str]) -> (i32, String, Duration) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(examples()).args(words).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("asmp starts");
    let mut error = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut error).expect("words");
    let pid = i32::try_from(child.id()).expect("a pid");
    let mut status = 0;
    // SAFETY: all bytes 0 are an rusage: it is numbers.
    let mut usage = unsafe { std::mem::zeroed::<libc::rusage>() };
    // SAFETY: the kernel writes `status` and `usage`, which outlive the call.
    let ended = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!(ended, pid);
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    (libc::WEXITSTATUS(status), error, of(usage.ru_utime) + of(usage.ru_stime))
}

pub fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("words")
}

/// Writes a file of tasks: name, cost and period in ms, more fields.
pub fn tasks_in(path: impl AsRef<Path>, tasks: &[(&str, u64, u64, &str)]) {
    let task = |(name, cost, period, more): &(&str, u64, u64, &str)| {
        format!(
            "[[task]]\nname = \"{name}\"\ncost = \"{cost} ms\"\nperiod = \"{period} ms\"\n{more}\n"
        )
    };
    std::fs::write(path, tasks.iter().map(task).collect::<String>()).unwrap();
}
