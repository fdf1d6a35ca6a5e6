// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek`: a kernel for microcontrollers that runs exactly the schedule that was proved.

mod compare;
mod guest;
mod run;

use crate::examples;
use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Yartek {
    /// Run a task set, or an image, on a board in QEMU
    ///
    /// Of a task set, each task keeps the CPU for its cost. What the application prints is printed,
    /// then how many jobs ran. Time is that of the board: an instruction takes 32 ns.
    #[command(after_long_help = examples::YARTEK_RUN)]
    Run(run::Args),
    /// Compare a board in QEMU with the simulator, job for job
    ///
    /// Each task keeps the CPU for its cost. The jobs of both must have the same order. No job of
    /// the board may begin before the simulator's, nor later than the kernel's own time explains.
    /// Exit code 1 if one does, if the order differs or hangs on that time, or if a deadline is
    /// missed.
    #[command(after_long_help = examples::YARTEK_COMPARE)]
    Compare(compare::Args),
}

pub fn yartek(what: &Yartek) -> Result<u8> {
    match what {
        Yartek::Run(args) => run::run(args),
        Yartek::Compare(args) => compare::compare(args),
    }
}
