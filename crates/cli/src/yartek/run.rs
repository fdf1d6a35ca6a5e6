// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek run`: a task set or an image on a board in QEMU.

use super::drawn::{self, Drawn, MOST_DRAWN};
use super::guest::{self, Set};
use super::project::Project;
use super::{board_help, board_of, tcp_port};
use crate::analyze::files::{separate, tasks, write, wrong};
use crate::duration::duration;
use crate::exit::{DIFFERENT, UNEXPECTED, USAGE, failure};
use crate::output::svg_file;
use anyhow::Result;
use asmp_analysis::simulate::perfetto_trace;
use asmp_analysis::{Task, TimeBase};
use asmp_yartek::{Application, Board, Elf, MAX_TASKS, Serial, Trace};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML or CSV, an image, or a directory
    ///
    /// `asmp help analysis` describes the file. Of a file alone, each task keeps the CPU for its
    /// cost, and sporadic ones come as often as they may. A directory has one task set, *.toml, and
    /// the application, *.c. Of an image, tasks have numbers, and no deadline is known. Example:
    /// asmp yartek run robot.toml --board mcf5208evb
    #[arg(value_name = "tasks.toml|IMAGE|DIR")]
    file: PathBuf,
    /// The board [default: the one that the file names, or that the image is for]
    #[arg(
        long,
        value_name = "NAME",
        long_help = board_help("the one that the file names, or that the image is for")
    )]
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
    #[arg(long, value_name = "FILE", value_parser = svg_file())]
    gantt: Option<PathBuf>,
    /// Connect the board's serial line
    ///
    /// `pty` makes a pseudoterminal and says which: picocom or screen opens it. `tcp:PORT` opens
    /// that port, on this machine alone, and says so. The board waits for no client. Its time is
    /// then that of this machine, which may be late: two runs differ, and missed deadlines are no
    /// failure. Example: --serial pty
    #[arg(long, value_name = "pty|tcp:PORT", value_parser = serial)]
    serial: Option<Line>,
}

/// Of `--serial`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Terminal,
    Tcp(u16),
}

fn serial(text: &str) -> Result<Line, String> {
    match tcp_port(text) {
        Some(port) => port.map(Line::Tcp),
        None if text == "pty" => Ok(Line::Terminal),
        None => Err("give pty, or tcp: and a port, for example tcp:5555".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<u8> {
    let outputs = [("--trace", args.trace.as_deref()), ("--gantt", args.gantt.as_deref())];
    let project = Project::at(&args.file)?;
    let dir = tempfile::tempdir().map_err(|error| failure(UNEXPECTED, error.to_string()))?;
    let (image, board, set, until_ticks) = match of_image(&project.tasks)? {
        Some(board) => {
            separate(std::slice::from_ref(&args.file), &outputs)?;
            let named = args.board.as_deref().map(guest::board).transpose()?;
            if let Some(named) = named.filter(|named| named.name != board.name) {
                let what = format!("this image is for {}, not for {}", board.name, named.name);
                return Err(failure(USAGE, format!("{what}: leave --board out")));
            }
            let ps = u64::try_from(args.time.as_nanos() * 1000).unwrap_or(u64::MAX);
            let until_ticks = board.rate().ticks_of_ps(ps);
            (args.file.clone(), board, None, until_ticks)
        }
        None => {
            let file = tasks(&project.tasks)?;
            let board = board_of(&file, &project.tasks, args.board.as_deref())?;
            project.keep(&file.inputs, &outputs)?;
            let image = dir.path().join("image.elf");
            let application = project.application()?;
            let workload = match application {
                Application::Spin => guest::spinning(&file),
                _ => file.workload.clone(),
            };
            let set = Set::of(&workload, &board, &project.tasks)?;
            guest::build(&set, &board, application, &image)?;
            // Until 0 a guest would run for ever.
            let until_ticks = set.ticks(args.time).max(1);
            (image, board, Some(set), until_ticks)
        }
    };
    ends(&image, &args.file)?;
    let tasks = set.as_ref().map(|set| &*set.tasks);
    let count = tasks.map_or(MAX_TASKS, <[Task]>::len);
    let link = dir.path().join("serial");
    let tell_port;
    let serial = match args.serial {
        None => Serial::Nowhere,
        Some(Line::Terminal) => Serial::Terminal {
            link: &link,
            told: &|terminal| eprintln!("serial line: {}", terminal.display()),
        },
        Some(Line::Tcp(port)) => {
            tell_port = move || eprintln!("serial line: tcp:{port}");
            Serial::Tcp { port, is_fast: false, told: Some(&tell_port) }
        }
    };
    let mut guest = guest::run(&image, &board, until_ticks, count, serial)?;
    let trace = &mut guest.trace;
    let dropped = trace.dropped(set.as_ref().map(|set| &*set.table.tasks), until_ticks);
    // It ends itself when its background comes to it.
    trace.jobs.retain(|job| job.begun_ticks < until_ticks);
    trace.lines.iter().for_each(|line| println!("{line}"));
    draw(args, &board, tasks, trace)?;
    let missed = set
        .as_ref()
        .map(|set| trace.missed(&set.tasks) as u64 + trace.overdue(&set.table.tasks, until_ticks));
    // Then it was perhaps this machine that was late.
    let of_here = args.serial.map_or("", |_| " in this machine's time");
    let misses =
        missed.map_or(String::new(), |missed| format!(", {missed} deadlines missed{of_here}"));
    let drops = if dropped > 0 { format!(", {dropped} dropped{of_here}") } else { String::new() };
    println!("{} jobs{misses}{drops}", trace.jobs.len());
    match guest.trouble {
        Some(trouble) => Err(guest::failed(&trouble)),
        None if args.serial.is_some() => Ok(0),
        None if dropped > 0 || missed.is_some_and(|missed| missed > 0) => Ok(DIFFERENT),
        None => Ok(0),
    }
}

/// Refuses an image that would run until we end it. Only a trace ends at a time of the board: what
/// else we linked would have to run in the application's background, which may never sleep.
fn ends(image: &Path, file: &Path) -> Result<()> {
    let bytes = fs::read(image).map_err(|error| wrong(image, &error.to_string()))?;
    if Elf::of(&bytes).and_then(|elf| elf.end_of_trace()).is_some() {
        return Ok(());
    }
    let cure = "end yk_background() with `return yk_trace_print();`, of trace.h";
    Err(wrong(file, &format!("the application does not end at the time of --for: {cure}")))
}

/// The board of an image. `None`: the file is no image.
fn of_image(path: &Path) -> Result<Option<Board>> {
    let unreadable = |error: std::io::Error| wrong(path, &error.to_string());
    let mut head = Vec::new();
    File::open(path).map_err(unreadable)?.take(64).read_to_end(&mut head).map_err(unreadable)?;
    let Some(elf) = Elf::of(&head) else { return Ok(None) };
    match Board::of_image(&elf) {
        Some(board) => Ok(Some(board)),
        None => Err(wrong(path, "this image is for no board that asmp knows")),
    }
}

/// Writes what was asked for.
fn draw(args: &Args, board: &Board, tasks: Option<&[Task]>, trace: &Trace) -> Result<()> {
    let first = |most| Drawn::of(board, tasks, trace, most, &args.file);
    if let Some(path) = &args.trace {
        let ran = first(usize::MAX)?;
        write(path, &perfetto_trace(&ran.run, &ran.record, TimeBase::NANOSECONDS))?;
    }
    if let Some(path) = &args.gantt {
        let title = format!("yartek on {}", board.name);
        write(path, &drawn::svg(&[(&title, &first(MOST_DRAWN)?)], args.time))?;
    }
    Ok(())
}
