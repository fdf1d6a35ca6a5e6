// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel takes on a board, in instructions: section 4.2 of Mumolo, Nolich, Lenac, "A
//! Real-Time Embedded Kernel for Nonvisual Robotic Sensors" (EURASIP J. Embedded Systems, 2008).
//!
//! The program is `yartek/app/bench`. QEMU lets an instruction take 1,024 ns of the board's time,
//! so that the clock of each board counts at least one tick for it.

use crate::board::Board;
use crate::table::{Refusal, Table};
use crate::tools::{Application, Ending, Pace, Serial, ToolError, build, run_at};
use asmp_analysis::simulate::Interrupt;
use asmp_analysis::{Task, Workload};
use std::time::Duration;

/// From one start to the next, of one task; of several.
const PERIOD_INSTRUCTIONS: u64 = 20_000;
const TIMES_LONGER: u64 = 10;
/// Of tasks after the first, which run in between: without the kernel's own time.
const COST_INSTRUCTIONS: u64 = 100;
const COUNTS: [usize; 4] = [1, 8, 16, 32];
const WALL: Duration = Duration::from_secs(600);

/// A figure, in instructions.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub what: String,
    pub samples: u64,
    pub least: f64,
    pub mean: f64,
    pub most: f64,
    /// What the paper measured on its board, and of RTAI, in microseconds. Its board executed at
    /// most 33 instructions a microsecond.
    pub paper_us: Option<u32>,
    pub rtai_us: Option<u32>,
    /// The paper's count of instructions, where it gives no time (section 4.2.4).
    pub paper_instructions: Option<u32>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{0}")]
    Tool(#[from] ToolError),
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("the guest has printed `{line}`, which is no measurement")]
    Guest { line: String },
    #[error("the guest did not end well: {ending:?}")]
    Ended { ending: Ending },
}

struct Row {
    /// In the guest.
    name: &'static str,
    what: &'static str,
    /// Two readings of the clock are in it that a kernel does not need.
    has_readings: bool,
    paper: Paper,
}

enum Paper {
    Us { own: u32, rtai: u32 },
    Instructions(u32),
    Nothing,
}

const fn row(name: &'static str, what: &'static str, has_readings: bool, paper: Paper) -> Row {
    Row { name, what, has_readings, paper }
}

const ROWS: [Row; 8] = [
    row(
        "job-asleep",
        "start of a job to its begin, CPU idle",
        false,
        Paper::Us { own: 750, rtai: 182 },
    ),
    row("job-busy", "the same, background busy", false, Paper::Nothing),
    row("activation", "all that an empty job takes", false, Paper::Us { own: 130, rtai: 124 }),
    row("interrupt-to-service", "interrupt to its service", true, Paper::Us { own: 780, rtai: 17 }),
    row("raise-to-service", "raise in the handler to the service", true, Paper::Instructions(110)),
    row("next", "choice of a job, one to release", true, Paper::Instructions(150)),
    row("alloc", "a block from the heap, first fit", true, Paper::Instructions(300)),
    row("free", "back to the heap", true, Paper::Instructions(270)),
];

/// What a line of the guest says, in ticks.
struct Measured {
    samples: u64,
    least: u64,
    sum: u64,
    most: u64,
}

fn measured(line: &str) -> Option<(&str, Measured)> {
    let mut words = line.strip_prefix("m ")?.split(' ');
    let name = words.next()?;
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let measured =
        Measured { samples: number()?, least: number()?, sum: number()?, most: number()? };
    (measured.samples > 0 && words.next().is_none()).then_some((name, measured))
}

/// From one start to the next. Where the clock's wraps are near, starts fall behind them by a third
/// of their distance, two thirds or none, and so never into the interrupt of one.
fn period_ticks(board: &Board, count: usize) -> u64 {
    let instructions = PERIOD_INSTRUCTIONS * if count > 1 { TIMES_LONGER } else { 1 };
    let ticks = board.rate().ticks_of_ps(instructions * Pace::Instructions.ps());
    let wrap = board.clock_interrupt_ticks;
    if ticks < wrap {
        return if wrap < ticks * 10 { wrap / 3 } else { ticks };
    }
    ticks / wrap * wrap + wrap / 3
}

/// Tasks that start together. The first is measured.
fn workload(board: &Board, count: usize) -> Workload {
    let period_ns = board.rate().ns_up(period_ticks(board, count)).unwrap_or(u64::MAX);
    let cost_ns = COST_INSTRUCTIONS * Pace::Instructions.ps() / 1000;
    let task = |number| Task::new(format!("t{number}"), cost_ns, period_ns);
    let mut tasks: Vec<Task> = (0..count).map(task).collect();
    if let Some(first) = tasks.first_mut() {
        first.entry = Some("bench_job".to_owned());
    }
    let line = Interrupt {
        name: "line".to_owned(),
        flag_ticks: 0,
        service_ticks: cost_ns,
        gap_ticks: Some(period_ns),
        core: None,
        entry: Some("bench_service".to_owned()),
        most: None,
    };
    Workload { interrupts: vec![line], ..Workload::of(tasks) }
}

fn guest(board: &Board, count: usize) -> Result<String, BenchError> {
    let table = Table::of(&workload(board, count), board.rate())?;
    let image = tempfile::NamedTempFile::new().map_err(ToolError::temporary)?;
    let machine = board.machine();
    build(&machine, Application::Bench, &table.source(None), image.path())?;
    let output = run_at(Pace::Instructions, &machine, image.path(), 0, WALL, Serial::Nowhere)?;
    match output.ending {
        Ending::Exit(0) => Ok(output.console),
        ending => Err(BenchError::Ended { ending }),
    }
}

/// All figures of a board: less than a minute. Errors: what is not installed.
pub fn bench(board: &Board) -> Result<Vec<Figure>, BenchError> {
    let ticks_per_s = board.rate().ticks_of_ps(1_000_000_000_000) as f64;
    let instructions = |ticks: f64| ticks * 1e12 / ticks_per_s / Pace::Instructions.ps() as f64;
    let mut figures = Vec::new();
    for count in COUNTS {
        let console = guest(board, count)?;
        let lines = console.lines().take_while(|line| *line != "end");
        let mut readings_ticks = 0;
        for line in lines {
            let wrong = || BenchError::Guest { line: line.to_owned() };
            let (name, measured) = measured(line).ok_or_else(wrong)?;
            if name == "readings" {
                readings_ticks = measured.least;
                continue;
            }
            let row = ROWS.iter().find(|row| row.name == name).ok_or_else(wrong)?;
            let taken = if row.has_readings { readings_ticks } else { 0 };
            let of = |ticks: u64| instructions(ticks.saturating_sub(taken) as f64);
            let mean = measured.sum as f64 / measured.samples as f64 - taken as f64;
            // The paper has one job.
            let paper = if count == 1 { &row.paper } else { &Paper::Nothing };
            let (paper_us, rtai_us, paper_instructions) = match *paper {
                Paper::Us { own, rtai } => (Some(own), Some(rtai), None),
                Paper::Instructions(number) => (None, None, Some(number)),
                Paper::Nothing => (None, None, None),
            };
            figures.push(Figure {
                what: match count {
                    1 => row.what.to_owned(),
                    _ => format!("the same, {count} jobs start at once"),
                },
                samples: measured.samples,
                least: of(measured.least),
                mean: instructions(mean),
                most: of(measured.most),
                paper_us,
                rtai_us,
                paper_instructions,
            });
        }
    }
    Ok(figures)
}
