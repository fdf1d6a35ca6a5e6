// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A task set on a board in QEMU.

use crate::analyze::files::TaskFile;
use crate::exit::{BAD_FILE, BAD_GUEST, NO_TOOL, USAGE, failure};
use anyhow::Result;
use asmp_analysis::{Task, TimeBase};
use asmp_yartek::{Application, Board, Clock, Ending, Partial, ToolError, Trace};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// QEMU may be so much slower than the board.
const SLOWER: u32 = 20;
const WALL_AT_LEAST: Duration = Duration::from_secs(120);
/// As many as the kernel knows.
const MOST_TASKS: usize = 32;

pub fn board(name: &str) -> Result<Board> {
    Board::named(name).map_err(|error| failure(USAGE, error.to_string()))
}

/// The tasks with their times in ticks of the board. Sporadic ones come as often as they may.
pub struct Set {
    pub tasks: Vec<Task>,
    /// Nanoseconds and ticks of one period: the grid on which the board counts.
    grid: (u64, u64),
}

impl Set {
    pub fn of(file: &TaskFile, board: &Board) -> Result<Self> {
        let workload = &file.workload;
        if workload.tasks.len() > MOST_TASKS {
            let what = format!("{} tasks, and the kernel knows {MOST_TASKS}", workload.tasks.len());
            return Err(failure(BAD_FILE, format!("{what}: join some that have one period")));
        }
        let (_, times) = Clock::of(&workload.tasks, workload.time, board.rate())
            .map_err(|error| failure(BAD_FILE, error.to_string()))?;
        let grid = workload.tasks.iter().zip(&times).next().map_or((1, 1), |(task, times)| {
            (task.period_ticks, times.period_ticks * workload.time.ticks_per_ns())
        });
        let in_ticks = workload.tasks.iter().zip(times).map(|(task, times)| {
            Task::new(task.name.clone(), times.cost_ticks, times.period_ticks)
                .deadline(times.deadline_ticks)
                .offset(times.offset_ticks)
        });
        Ok(Self { tasks: in_ticks.collect(), grid })
    }

    /// This time of the file, by the board's clock.
    pub fn ticks(&self, time: Duration) -> u64 {
        let (parts, ticks) = self.grid;
        let all = time.as_nanos().saturating_mul(ticks.into()) / u128::from(parts);
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

/// The table of tasks that keep the CPU for their costs.
fn table(tasks: &[Task]) -> String {
    let mut text = "#include \"yartek.h\"\nstatic const struct yk_task_def defs[] = {\n".to_owned();
    // Writing to a String does not fail.
    for task in tasks {
        let (period, deadline) = (task.period_ticks, task.deadline_ticks);
        let (offset, cost) = (task.offset_ticks.unwrap_or(0), task.cost_ticks());
        let _ = writeln!(
            text,
            "{{ .run = yk_spin, .period = {period}, .deadline = {deadline}, .offset = {offset}, \
             .budget = {cost} }},"
        );
    }
    let count = tasks.len();
    let _ = writeln!(text, "}};\nstatic struct yk_task tasks[{count}];");
    let _ = writeln!(
        text,
        "const struct yk_table yk_table = {{ .task_defs = defs, .tasks = tasks, .tasks_count = \
         {count} }};"
    );
    text
}

fn wrong(error: &ToolError) -> anyhow::Error {
    let code = match error {
        ToolError::File { .. } | ToolError::NoImage { .. } => BAD_FILE,
        ToolError::NotStarted { .. } => BAD_GUEST,
        ToolError::Missing { .. }
        | ToolError::TooOld { .. }
        | ToolError::Refused { .. }
        | ToolError::Program { .. } => NO_TOOL,
    };
    failure(code, error.to_string())
}

pub fn build(tasks: &[Task], board: &Board, image: &Path) -> Result<()> {
    asmp_yartek::build(&board.machine(), Application::Spin, &table(tasks), image)
        .map_err(|error| wrong(&error))
}

/// What a run gave.
pub struct Guest {
    pub trace: Trace,
    /// Why it is not all that it could be.
    pub trouble: Option<String>,
}

/// Runs an image until so many ticks after its epoch. Its table has so many tasks.
pub fn run(image: &Path, board: &Board, until_ticks: u64, tasks: usize) -> Result<Guest> {
    let time = Duration::from_nanos(board.rate().ns_up(until_ticks).unwrap_or(u64::MAX));
    let wall = time.saturating_mul(SLOWER).max(WALL_AT_LEAST);
    let output = asmp_yartek::run(board.machine().qemu, image, until_ticks, wall);
    let output = output.map_err(|error| wrong(&error))?;
    let trace = Trace::of(&output.console, tasks);
    let trouble = trouble(&trace, output.ending, wall);
    Ok(Guest { trace, trouble })
}

fn trouble(trace: &Trace, ending: Ending, wall: Duration) -> Option<String> {
    if let Some(fault) = &trace.fault {
        let what = match &*fault.why {
            "trap" => format!("the processor refused the instruction at {:#x}", fault.address),
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
    let hung =
        || format!("it had not ended after {} s: it hangs, or asks too much", wall.as_secs());
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
