// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek run`: a task set or an image on a board in QEMU.

use super::guest::{self, Set, board};
use crate::analyze::files::{separate, tasks, write, wrong};
use crate::duration::duration;
use crate::exit::{DIFFERENT, UNEXPECTED, USAGE, failure};
use anyhow::Result;
use asmp_analysis::simulate::{Releases, Run, Simulation, gantt_svg, perfetto_trace};
use asmp_analysis::{Policy, Task, TimeBase};
use asmp_yartek::{Board, Elf, Trace};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML or CSV, or an image
    ///
    /// `asmp help analysis` describes the file. Sporadic tasks come as often as they may. Example:
    /// asmp yartek run robot.toml --board mcf5208evb
    #[arg(value_name = "tasks.toml|IMAGE")]
    file: PathBuf,
    /// mcf5208evb or mps2-an385; an image tells it by itself
    ///
    /// A ColdFire V2 and a Cortex-M3. Example: --board mps2-an385
    #[arg(long, value_name = "BOARD")]
    board: Option<String>,
    /// Time of the board
    ///
    /// A number with its unit: ns, us, ms, s, min or h. A limit of this machine's time is 20 times
    /// as long, and two minutes at least. Example: --for 12s
    #[arg(long = "for", value_name = "TIME", default_value = "12s", value_parser = duration)]
    time: Duration,
    /// Write a trace for Perfetto (JSON)
    ///
    /// Open the file at ui.perfetto.dev. Example: --trace out.json
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Draw the schedule as an SVG
    ///
    /// An SVG file. If it cannot be written, the old file stays as it was. Example: --gantt
    /// out.svg
    #[arg(long, value_name = "FILE")]
    gantt: Option<PathBuf>,
}

/// As many tasks as an image may have.
const MOST_TASKS: usize = 32;
/// No deadline is known of the tasks of an image.
const NEVER_TICKS: u64 = 1 << 60;

pub fn run(args: &Args) -> Result<u8> {
    let outputs = [("--trace", args.trace.as_deref()), ("--gantt", args.gantt.as_deref())];
    let named = args.board.as_deref().map(board).transpose()?;
    let dir = tempfile::tempdir().map_err(|error| failure(UNEXPECTED, error.to_string()))?;
    let (image, board, tasks, until_ticks) = match (of_image(&args.file)?, named) {
        (Some(board), named) => {
            separate(std::slice::from_ref(&args.file), &outputs)?;
            if let Some(named) = named.filter(|named| named.name != board) {
                let what = format!("this image is for {board}, not for {}", named.name);
                return Err(failure(USAGE, format!("{what}: leave --board out")));
            }
            let board = guest::board(board)?;
            let ps = u64::try_from(args.time.as_nanos() * 1000).unwrap_or(u64::MAX);
            let until_ticks = board.rate().ticks_of_ps(ps);
            (args.file.clone(), board, None, until_ticks)
        }
        (None, None) => {
            let known: Vec<String> = Board::all().into_iter().map(|board| board.name).collect();
            return Err(failure(USAGE, format!("name a board: --board {}", known.join(" or "))));
        }
        (None, Some(board)) => {
            let file = tasks(&args.file)?;
            separate(&file.inputs, &outputs)?;
            let set = Set::of(&file, &board)?;
            let image = dir.path().join("image.elf");
            guest::build(&set.tasks, &board, &image)?;
            let until_ticks = set.ticks(args.time);
            (image, board, Some(set.tasks), until_ticks)
        }
    };
    let count = tasks.as_ref().map_or(MOST_TASKS, Vec::len);
    let mut guest = guest::run(&image, &board, until_ticks, count)?;
    let trace = &mut guest.trace;
    // It ends itself when its background comes to it.
    trace.jobs.retain(|job| job.begun_ticks < until_ticks);
    trace.lines.iter().for_each(|line| println!("{line}"));
    draw(args, &board, tasks.as_deref(), trace)?;
    let missed = tasks.as_deref().map(|tasks| trace.missed(tasks));
    let misses = missed.map_or(String::new(), |missed| format!(", {missed} deadlines missed"));
    println!("{} jobs{misses}", trace.jobs.len());
    match guest.trouble {
        Some(trouble) => Err(guest::failed(&trouble)),
        None => Ok(if missed.is_some_and(|missed| missed > 0) { DIFFERENT } else { 0 }),
    }
}

/// The board of an image. `None`: the file is no image.
fn of_image(path: &Path) -> Result<Option<&'static str>> {
    let unreadable = |error: std::io::Error| wrong(path, &error.to_string());
    let mut head = Vec::new();
    File::open(path).map_err(unreadable)?.take(64).read_to_end(&mut head).map_err(unreadable)?;
    let Some(elf) = Elf::of(&head) else { return Ok(None) };
    match elf.board() {
        Some(board) => Ok(Some(board)),
        None => Err(wrong(path, "this image is for no board that asmp knows")),
    }
}

/// Writes what was asked for, in nanoseconds. The tasks of an image have numbers, and no deadlines.
fn draw(args: &Args, board: &Board, tasks: Option<&[Task]>, trace: &Trace) -> Result<()> {
    if args.trace.is_none() && args.gantt.is_none() {
        return Ok(());
    }
    let ns = |ticks| board.rate().ns_up(ticks).unwrap_or(u64::MAX);
    let count = trace.jobs.iter().map(|job| job.task + 1).max().unwrap_or(0);
    let number = |number| Task::new(format!("task {number}"), 1, NEVER_TICKS);
    let numbered: Vec<Task> = (0..count).map(number).collect();
    let tasks = tasks.unwrap_or(&numbered);
    // For names alone: nothing is simulated.
    let named = |task: &Task| Task::new(task.name.clone(), 1, ns(task.period_ticks));
    let named: Vec<Task> = tasks.iter().map(named).collect();
    let simulation = Simulation::new(&named, Policy::NpEdf, Releases::Together);
    let run = Run::prepare(&simulation).map_err(|_| wrong(&args.file, "has no job to draw"))?;
    let record = trace.record(tasks, ns);
    if let Some(path) = &args.trace {
        write(path, &perfetto_trace(&run, &record, TimeBase::NANOSECONDS))?;
    }
    if let Some(path) = &args.gantt {
        let until_ns = u64::try_from(args.time.as_nanos()).unwrap_or(u64::MAX);
        let title = format!("yartek on {}", board.name);
        write(path, &gantt_svg(&run, &record, until_ns, &title, TimeBase::NANOSECONDS))?;
    }
    Ok(())
}
