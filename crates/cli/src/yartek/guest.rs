// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task set on a board in QEMU.

use crate::analyze::files::TaskFile;
use crate::exit::{BAD_FILE, BAD_GUEST, NO_PORT, NO_TOOL, NOT_ON_BOARD, USAGE, failure};
use anyhow::Result;
use asmp_analysis::{Arrival, Task, TimeBase, Workload};
use asmp_yartek::{Application, Board, Ending, Partial, Serial, Table, ToolError, Trace};
use std::path::Path;
use std::time::Duration;

/// QEMU may be so much slower than the board.
const SLOWER: u32 = 20;
const WALL_AT_LEAST: Duration = Duration::from_secs(120);

pub fn board(name: &str) -> Result<Board> {
    Board::named(name).map_err(|error| failure(USAGE, error.to_string()))
}

/// A task set by a board's clock.
pub struct Set {
    pub table: Table,
    /// With their times in ticks.
    pub tasks: Vec<Task>,
    /// Nanoseconds and ticks of one period: the grid on which the board counts.
    grid: (u64, u64),
}

impl Set {
    /// Errors: what the board cannot do.
    pub fn of(workload: &Workload, board: &Board, path: &Path) -> Result<Self> {
        let table = Table::of(workload, board.rate())
            .map_err(|refusal| failure(NOT_ON_BOARD, format!("{}: {refusal}", path.display())))?;
        let in_ticks = |task: &asmp_yartek::TableTask| {
            let times = task.times;
            Task::new(task.name.clone(), times.cost_ticks, times.period_ticks)
                .deadline(times.deadline_ticks)
                .offset(times.offset_ticks)
        };
        let tasks: Vec<Task> = table.tasks.iter().map(in_ticks).collect();
        let grid = workload.tasks.iter().zip(&tasks).next().map_or((1, 1), |(given, task)| {
            (given.period_ticks, task.period_ticks * workload.time.ticks_per_ns())
        });
        Ok(Self { table, tasks, grid })
    }

    /// This time of the file, by the board's clock.
    pub fn ticks(&self, time: Duration) -> u64 {
        let (parts, ticks) = self.grid;
        let all = time.as_nanos().saturating_mul(ticks.into()) / u128::from(parts);
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

/// The set without an application: each task keeps the CPU for its cost, sporadic ones come as
/// often as they may, and nothing interrupts.
pub fn spinning(file: &TaskFile) -> Workload {
    let mut workload = file.workload.clone();
    workload.interrupts.clear();
    for task in &mut workload.tasks {
        task.entry = None;
        task.arrival = Arrival::Periodic;
    }
    workload
}

pub fn of_tool(error: &ToolError) -> anyhow::Error {
    let code = match error {
        ToolError::File { .. } | ToolError::NoImage { .. } => BAD_FILE,
        ToolError::NotStarted { .. } => BAD_GUEST,
        ToolError::PortTaken { .. } => NO_PORT,
        ToolError::Missing { .. }
        | ToolError::TooOld { .. }
        | ToolError::Refused { .. }
        | ToolError::Masks { .. }
        | ToolError::Program { .. } => NO_TOOL,
    };
    failure(code, error.to_string())
}

pub fn build(set: &Set, board: &Board, what: Application, image: &Path) -> Result<()> {
    let table = set.table.source(None);
    let built = asmp_yartek::build(&board.machine(), what, &table, image);
    built.map(|_parts| ()).map_err(|error| of_tool(&error))
}

/// What a run gave.
pub struct Guest {
    pub trace: Trace,
    /// Why it is not all that it could be.
    pub trouble: Option<String>,
}

/// Runs an image until so many ticks after its epoch. Its table has so many tasks.
pub fn run(
    image: &Path,
    board: &Board,
    until_ticks: u64,
    tasks: usize,
    serial: Serial,
) -> Result<Guest> {
    let time = Duration::from_nanos(board.rate().ns_up(until_ticks).unwrap_or(u64::MAX));
    let wall = time.saturating_mul(SLOWER).max(WALL_AT_LEAST);
    let output = asmp_yartek::run(&board.machine(), image, until_ticks, wall, serial);
    let output = output.map_err(|error| of_tool(&error))?;
    let trace = Trace::of(&output.console, tasks);
    let trouble = trouble(&trace, output.ending, wall);
    Ok(Guest { trace, trouble })
}

fn trouble(trace: &Trace, ending: Ending, wall: Duration) -> Option<String> {
    if let Some(fault) = &trace.fault {
        let what = match &*fault.why {
            "trap" => format!("the processor refused the instruction at {:#x}", fault.address),
            "stack" => format!(
                "a stack is used up, a thread's or the main one: it ends at {:#x}; give it more",
                fault.address
            ),
            "too-long" => "a job held the CPU for longer than its `most`".to_owned(),
            "not-begun" => "a deadline was over, and its job had not begun".to_owned(),
            "not-ended" => "a deadline was over, and its job had not ended".to_owned(),
            other => format!("it stopped: {other}"),
        };
        let place = fault.job.map_or(String::new(), |(task, activation)| {
            format!(", in task {task} (from 0), activation {activation}")
        });
        return Some(format!("{what}{place}"));
    }
    let hung = || {
        format!(
            "it had not ended after {} s: it hangs, or its tasks leave no time to the background, \
             which prints the trace",
            wall.as_secs()
        )
    };
    match (&trace.partial, ending) {
        (Some(Partial::EndsEarly), Ending::Ended) => Some(hung()),
        (Some(partial), _) => Some(partial.to_string()),
        (None, _) => None,
    }
}

/// What went wrong, after what was traced has been told.
pub fn failed(trouble: &str) -> anyhow::Error {
    failure(BAD_GUEST, format!("the guest: {trouble}; what it traced is partial"))
}

/// Of the board's ticks, for people.
pub fn show(board: &Board, ticks: u64) -> String {
    // Whole microseconds are read with ease, and more is not known.
    let ns = board.rate().ns_up(ticks).unwrap_or(u64::MAX);
    let ns = if ns < 1_000_000 { ns } else { ns / 1000 * 1000 };
    TimeBase::NANOSECONDS.show(if ns < 1000 { ns } else { ns.div_ceil(1000) * 1000 })
}
