// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of `asmp` in the directory of the analysis examples, for several test programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/analysis")
}

pub fn asmp(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(examples()).args(words).output().expect("asmp starts")
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
