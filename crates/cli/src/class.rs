// SPDX-License-Identifier: Apache-2.0 OR MIT
//! class: how tasks that share the CPUs of partitions are served.

use crate::change::changer;
use crate::exit::{CANNOT_SHARE, NO_TASK, UNDONE, failure};
use crate::run::cannot_execute;
use crate::signals;
use anyhow::Result;
use asmp_host::sharing::{self, Class, Sharing};
use asmp_host::{Kernel, task};
use clap::ArgGroup;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Start a command in a class, or change the class of a process, on shared CPUs
///
/// Tasks that share the CPUs of partitions wait there for the real-time tasks inside, and for each
/// other by class: `rt1` tasks first, those with the higher priority before others, then `linux`
/// tasks. One that has waited for two seconds goes before all that came since. Every task is
/// `linux` at first, and children inherit the class. All classes end with the last shared
/// partition, or when its mode changes. A real-time task inside a partition has no class.
#[derive(Debug, clap::Args)]
#[command(after_long_help = crate::examples::CLASS)]
#[command(group = ArgGroup::new("whom").required(true).args(["pid", "command"]))]
pub struct Args {
    /// linux, rt1 or rt1:PRIORITY
    ///
    /// PRIORITY is 1 to 99, the highest first; `rt1` is rt1:1. Without it --pid prints the classes.
    /// Example: asmp class rt1:20 --pid 4711
    #[arg(required_unless_present = "pid")]
    pub class: Option<Class>,
    /// A running process with all its threads
    ///
    /// The number of any thread of the process will do. Example: asmp class --pid 4711
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// The command and its arguments, after `--`
    ///
    /// The command replaces asmp. Example: asmp class rt1:20 -- ./vision --fast
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

pub fn class(kernel: &dyn Kernel, args: &Args) -> Result<u8> {
    changer(kernel)?;
    if Sharing::read(kernel).guarded.is_empty() {
        return Err(failure(
            CANNOT_SHARE,
            "no partition is shared under the guarantee: see `asmp create --share`, `asmp mode`",
        ));
    }
    let process = args.pid.unwrap_or(std::process::id() as i32);
    let Some(class) = args.class else {
        print!("{}", sharing::classes(process).map_err(|error| refused(kernel, process, &error))?);
        return Ok(0);
    };
    sharing::set_class(process, class).map_err(|error| refused(kernel, process, &error))?;
    let Some((program, words)) = args.command.split_first() else { return Ok(0) };
    let mut command = Command::new(program);
    signals::keep_ignored_pipe(&mut command);
    Err(cannot_execute(program, &command.args(words).exec()))
}

fn refused(kernel: &dyn Kernel, process: i32, error: &io::Error) -> anyhow::Error {
    match task::identify(kernel, process) {
        None => failure(NO_TASK, format!("no process {process}")),
        Some(_) => failure(UNDONE, error.to_string()),
    }
}
