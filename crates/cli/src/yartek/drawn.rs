// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs of a board in nanoseconds, for pictures and traces.

use crate::analyze::files::wrong;
use anyhow::Result;
use asmp_analysis::simulate::{Record, Releases, Run, Schedule, Simulation, gantts_svg};
use asmp_analysis::{Policy, Task, TimeBase};
use asmp_yartek::{Board, Trace};
use std::path::Path;
use std::time::Duration;

/// No deadline is known of the tasks of an image.
const NEVER_TICKS: u64 = 1 << 60;

/// A picture of more is too large to look at.
pub const MOST_DRAWN: usize = 20_000;

/// A schedule, with the names of its tasks.
pub struct Drawn {
    pub run: Run,
    pub record: Record,
}

impl Drawn {
    /// The first jobs. Without `tasks`, which are those of an image: these have numbers, and no
    /// deadlines. Errors: `file` has no task.
    pub fn of(
        board: &Board,
        tasks: Option<&[Task]>,
        trace: &Trace,
        most: usize,
        file: &Path,
    ) -> Result<Self> {
        let ns = |ticks| board.rate().ns_up(ticks).unwrap_or(u64::MAX);
        let count = trace.jobs.iter().map(|job| job.task + 1).max().unwrap_or(0);
        let number = |number| Task::new(format!("task {number}"), 1, NEVER_TICKS);
        let numbered: Vec<Task> = (0..count).map(number).collect();
        let tasks = tasks.unwrap_or(&numbered);
        // For names alone: nothing is simulated.
        let named = |task: &Task| Task::new(task.name.clone(), 1, 2);
        let named: Vec<Task> = tasks.iter().map(named).collect();
        let simulation = Simulation::new(&named, Policy::NpEdf, Releases::Together);
        let run = Run::prepare(&simulation).map_err(|_| wrong(file, "has no job to draw"))?;
        Ok(Self { run, record: trace.record(tasks, most, ns) })
    }
}

/// Schedules with their titles, one below the other.
pub fn svg(schedules: &[(&str, &Drawn)], until: Duration) -> String {
    let until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
    let schedules: Vec<Schedule> = schedules
        .iter()
        .map(|&(title, drawn)| Schedule { title, run: &drawn.run, record: &drawn.record })
        .collect();
    gantts_svg(&schedules, until_ns, TimeBase::NANOSECONDS)
}
