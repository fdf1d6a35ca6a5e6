// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek`: a kernel for microcontrollers that runs exactly the schedule that was proved.

mod bench;
mod build;
mod check;
mod compare;
mod drawn;
mod guest;
mod map;
mod new;
mod program;
mod project;
mod run;

use crate::analyze::files::{TaskFile, tasks, wrong};
use crate::examples;
use crate::exit::{NOT_ON_BOARD, USAGE, failure};
use anyhow::Result;
use asmp_analysis::{Effort, Inapplicable, Outcome};
use asmp_yartek::{Board, Proof, Refusal, Table, prove};
use std::path::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Yartek {
    /// Make a project that builds and runs
    ///
    /// Makes a directory with a task set, its application in C, and a README.md that says what to
    /// do with them. The C files are the same for each board. If it fails, nothing is left.
    #[command(after_long_help = examples::YARTEK_NEW)]
    New(new::Args),
    /// Prove a task set on a board, the kernel and interrupts included
    ///
    /// Adds to each cost the time that the kernel needs to begin the job, and the handlers of
    /// interrupts: as many as `gap` or `most` allows, whichever is fewer. Then runs the exact test
    /// of np-edf in ticks of the board, for any first arrivals. If the board's compiler is
    /// installed, it also prints how much flash and RAM the kernel, its port and the table need,
    /// and how much RAM is left for the stack. Exit codes: 0 proved, 3 not proved, 64 the board
    /// cannot run the set.
    #[command(after_long_help = examples::YARTEK_CHECK)]
    Check(check::Args),
    /// Make an image of a task set for a board, or its table alone
    ///
    /// Builds kernel, port, table and application. A set that is not proved is refused with exit
    /// code 3, and nothing is written.
    #[command(after_long_help = examples::YARTEK_BUILD)]
    Build(build::Args),
    /// Run a task set, or an image, on a board in QEMU
    ///
    /// Of a task set, each task keeps the CPU for its cost. What the application prints is printed,
    /// then how many jobs ran. Time is that of the board: an instruction takes 32 ns.
    #[command(after_long_help = examples::YARTEK_RUN)]
    Run(run::Args),
    /// Compare a board in QEMU with the simulator, job for job
    ///
    /// On the board each task keeps the CPU for its cost. The board must run its jobs in the order
    /// of the simulator. It may begin no job earlier than the simulator, and later only by the time
    /// that the kernel itself takes. Exit code 1: a job begins too early or too late, a deadline is
    /// missed, the order differs, or that time alone decides the order.
    #[command(after_long_help = examples::YARTEK_COMPARE)]
    Compare(compare::Args),
    /// Measure what the kernel takes on a board in QEMU
    ///
    /// Counts the instructions that the kernel needs: to begin a job, to choose one, for all of an
    /// empty job, and from an interrupt to its service in the background. It does so 1,024 times
    /// each, with one task and with several that start at once. Beside the figures it prints the
    /// cycles that Mumolo, Nolich and Lenac (2008) measured on an MCF5282, of their kernel and of
    /// RTAI. An instruction takes one cycle or more.
    #[command(after_long_help = examples::YARTEK_BENCH)]
    Bench(bench::Args),
    /// Fetch the map of the robot of the case study, and draw it
    ///
    /// The robot is `yartek/app/robot` of the sources: six sonars in three simulated rooms.
    #[command(after_long_help = examples::YARTEK_MAP)]
    Map(map::Args),
    /// Make a program that a running board begins from its disk
    ///
    /// Links C files for the program area of an image, and puts the program on the RAM disk of a
    /// board that runs this image with a shell, as `yartek/app/shell` of the sources. There `exec
    /// NAME` begins it. It may call the functions that the image has. The board refuses a program
    /// that came damaged, or is for another image or processor.
    #[command(after_long_help = examples::YARTEK_PROGRAM)]
    Program(program::Args),
}

pub fn yartek(action: &Yartek) -> Result<u8> {
    match action {
        Yartek::New(args) => new::new(args),
        Yartek::Check(args) => check::check(args),
        Yartek::Build(args) => build::build(args),
        Yartek::Run(args) => run::run(args),
        Yartek::Compare(args) => compare::compare(args),
        Yartek::Bench(args) => bench::bench(args),
        Yartek::Map(args) => map::map(args),
        Yartek::Program(args) => program::program(args),
    }
}

/// The port of `tcp:PORT`. `None`: it is something else.
fn tcp_port(text: &str) -> Option<Result<u16, String>> {
    let text = text.strip_prefix("tcp:")?;
    let port = text.parse().ok().filter(|port| *port != 0);
    Some(port.ok_or_else(|| {
        format!("{text} is no port: give a number from 1 to 65535, for example tcp:5555")
    }))
}

/// Of `--board`.
fn board_help(default: &str) -> String {
    format!("The board [default: {default}]\n\n{}. Example: --board mps2-an385", boards())
}

fn boards() -> String {
    let of = |board: Board| format!("{} ({})", board.name, board.processor);
    let all: Vec<String> = Board::all().into_iter().map(of).collect();
    all.join(" or ")
}

/// A file on a board.
struct OnBoard {
    file: TaskFile,
    board: Board,
    table: Table,
    proof: Proof,
}

/// Errors: there is no such board.
fn board_by_option(name: &str) -> Result<Board> {
    Board::named(name).map_err(|error| failure(USAGE, format!("--board: {error}")))
}

/// None is named.
fn which_board(cure: &str) -> anyhow::Error {
    let names: Vec<String> = Board::all().into_iter().map(|board| board.name).collect();
    failure(USAGE, format!("which board? {cure}; NAME is {}", names.join(" or ")))
}

/// The board of the option, else of the file. Errors: there is no such board, or none is named.
fn board_of(file: &TaskFile, path: &Path, option: Option<&str>) -> Result<Board> {
    match (option, file.workload.board.as_deref()) {
        (Some(name), _) => board_by_option(name),
        (None, Some(name)) => {
            Board::named(name).map_err(|error| wrong(path, &format!("[board]: {error}")))
        }
        (None, None) => {
            Err(which_board("give --board NAME, or [board] with name = \"NAME\" in the file"))
        }
    }
}

/// Reads and tests a set. Errors: no such board; the file is wrong; the board cannot run it.
fn on_board(path: &Path, option: Option<&str>) -> Result<OnBoard> {
    let file = tasks(path)?;
    let board = board_of(&file, path, option)?;
    let refused = |refusal: Refusal| {
        let ((about, key), what) = (refusal.about(), refusal.to_string());
        let words = match file.placed(Inapplicable::Set { about, key, what }) {
            placed @ Inapplicable::InFile { .. } => placed.to_string(),
            refusal => format!("{}: {refusal}", path.display()),
        };
        failure(NOT_ON_BOARD, words)
    };
    let table = Table::of(&file.workload, board.rate()).map_err(refused)?;
    let proof = prove(&file.workload, &table, &board, &Effort::default()).map_err(refused)?;
    Ok(OnBoard { file, board, table, proof })
}

impl OnBoard {
    const fn verdict(outcome: Outcome) -> &'static str {
        match outcome {
            Outcome::Schedulable => "schedulable",
            Outcome::NotSchedulable => "not schedulable",
            Outcome::Unknown => "unknown",
        }
    }

    /// `schedulable`, or what it is else.
    fn answer(&self) -> &'static str {
        Self::verdict(self.proof.outcome())
    }

    /// Why it is not proved. `None`: it is. Offsets that the test leaves out are named.
    fn doubt(&self) -> Option<String> {
        let mut doubt = self.proof.doubt(&self.table)?;
        if self.file.workload.tasks.iter().any(|task| task.offset_ticks.is_some()) {
            doubt += " (offsets do not count: the kernel's own time moves jobs)";
        }
        Some(doubt)
    }
}
