// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The np-EDF executive. Periodic jobs run by deadline, each to its end. Background jobs run in
//! FIFO order in the remaining time; one whose step does not fit there lets the next pass.
//! Interrupts are counted in a table and served as background jobs.
//!
//! It runs in the thread that calls [`Executive::run`], on a shielded CPU of its own:
//!
//! ```
//! use asmp_rt::executive::{Clock, Executive, Jobs, Late, Monotonic, Task};
//! use std::ops::ControlFlow;
//!
//! let mut left = 3;
//! let mut jobs = Jobs::new();
//! let task = Task { period_ns: 1_000_000, offset_ns: 0, budget_ns: 100_000, late: Late::Finish };
//! jobs.periodic(task, |_tick| {
//!     left -= 1;
//!     if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
//! });
//! let mut executive = Executive::new(Monotonic, jobs)?;
//! executive.run(Monotonic.now_ns(), u64::MAX)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Background jobs consist of steps. A step starts only if its declared length fits before the next
//! start, so background jobs never delay periodic ones. A step that is longer than the periodic
//! jobs ever leave is refused. Work that must be preemptible belongs in
//! another thread of lower priority on that CPU. That thread runs while the executive sleeps, but
//! not while a step waits for a gap that is long enough.
//!
//! Running allocates nothing. The executive makes one system call when there is nothing to do.

use crate::executive::admit::{self, AdmissionError, Demand};
use crate::executive::edf::{Fault, JobSet, Next, Stats, Task, Tick};
use crate::executive::{Clock, Flags};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Whether a background job has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It needs another step and keeps its place.
    More,
    Done,
}

/// The argument of a background job's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Interrupts of its line since its last step.
    pub raises: u64,
}

type PeriodicJob<'a> = Box<dyn FnMut(&Tick) -> ControlFlow<()> + 'a>;
type BackgroundJob<'a> = Box<dyn FnMut(Wake) -> (Progress, ControlFlow<()>) + 'a>;

/// The jobs of an executive.
#[derive(Default)]
pub struct Jobs<'a> {
    tasks: Vec<Task>,
    periodic: Vec<PeriodicJob<'a>>,
    background: Vec<Background<'a>>,
}

impl<'a> Jobs<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a periodic job and returns its number. `Break` stops the executive after this
    /// activation.
    pub fn periodic(
        &mut self,
        task: Task,
        job: impl FnMut(&Tick) -> ControlFlow<()> + 'a,
    ) -> usize {
        self.tasks.push(task);
        self.periodic.push(Box::new(job));
        self.tasks.len() - 1
    }

    /// Adds a background job whose steps take at most `step_ns`, and returns its line: raising that
    /// line in [`Executive::flags`] starts it.
    pub fn background(
        &mut self,
        step_ns: u64,
        mut job: impl FnMut(Wake) -> Progress + 'a,
    ) -> usize {
        self.background_that_stops(step_ns, move |wake| (job(wake), ControlFlow::Continue(())))
    }

    /// The same for a job that may stop the executive with `Break`.
    pub fn background_that_stops(
        &mut self,
        step_ns: u64,
        job: impl FnMut(Wake) -> (Progress, ControlFlow<()>) + 'a,
    ) -> usize {
        self.background.push(Background {
            step_ns,
            step: Box::new(job),
            raises: 0,
            queued: false,
            stats: BackgroundStats::default(),
        });
        self.background.len() - 1
    }
}

/// Statistics of a background job since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackgroundStats {
    pub raises: u64,
    /// Times it finished. One run serves all raises until its last step.
    pub runs: u64,
    pub steps: u64,
    /// Steps that ran longer than declared and may have delayed a periodic job.
    pub overlong_steps: u64,
}

struct Background<'a> {
    step_ns: u64,
    step: BackgroundJob<'a>,
    /// Raises taken from the table that no step has seen yet.
    raises: u64,
    queued: bool,
    stats: BackgroundStats,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end time was reached.
    Time,
    /// A job returned `Break`.
    Asked,
}

pub struct Executive<'a, C> {
    clock: C,
    set: JobSet,
    periodic: Vec<PeriodicJob<'a>>,
    background: Vec<Background<'a>>,
    /// Started background jobs, oldest first. Each is in it at most once, so it never grows.
    queue: VecDeque<usize>,
    flags: Arc<Flags>,
}

impl<'a, C: Clock> Executive<'a, C> {
    /// Admits the jobs. Allocates. Errors: those of [`admit`](crate::executive::admit()), and
    /// `NoGap` for a background step that never fits.
    pub fn new(clock: C, jobs: Jobs<'a>) -> Result<Self, AdmissionError> {
        let demand = |task: &Task| Demand { period_ns: task.period_ns, budget_ns: task.budget_ns };
        admit::admit(&jobs.tasks.iter().map(demand).collect::<Vec<_>>())?;
        // Between two starts of a task lies one run of it.
        let gaps_ns = jobs.tasks.iter().map(|task| task.period_ns.saturating_sub(task.budget_ns));
        let gap_ns = gaps_ns.min().unwrap_or(u64::MAX);
        let too_long = jobs.background.iter().position(|job| job.step_ns > gap_ns);
        if let Some(line) = too_long {
            let step_ns = jobs.background[line].step_ns;
            return Err(AdmissionError::NoGap { line, step_ns, gap_ns });
        }
        Ok(Self {
            clock,
            set: JobSet::new(&jobs.tasks),
            periodic: jobs.periodic,
            queue: VecDeque::with_capacity(jobs.background.len()),
            flags: Arc::new(Flags::new(jobs.background.len())),
            background: jobs.background,
        })
    }

    /// The table of lines, which start the background jobs. Any thread may raise a line.
    pub fn flags(&self) -> Arc<Flags> {
        Arc::clone(&self.flags)
    }

    /// Runs jobs from `epoch_ns`, the origin of offsets, until `end_ns`: no job starts at or after
    /// it. A later run starts anew, but raised interrupts stay raised.
    pub fn run(&mut self, epoch_ns: u64, end_ns: u64) -> Result<End, Fault> {
        self.set.begin(epoch_ns);
        self.background.iter_mut().for_each(|job| job.stats = BackgroundStats::default());
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= end_ns {
                return Ok(End::Time);
            }
            self.serve_flags();
            let asked = match self.set.next(now_ns)? {
                Next::Run(tick) => {
                    let asked = (self.periodic[tick.task])(&tick);
                    self.set.ended(&tick, self.clock.now_ns())?;
                    asked
                }
                Next::Idle(start_ns) => {
                    let free_until_ns = start_ns.unwrap_or(end_ns).min(end_ns);
                    self.idle(now_ns, free_until_ns)
                }
            };
            if asked.is_break() {
                return Ok(End::Asked);
            }
        }
    }

    /// Takes and clears each raised flag, and queues the job of its line unless it is queued
    /// already.
    fn serve_flags(&mut self) {
        for (line, job) in self.background.iter_mut().enumerate() {
            let raises = self.flags.take(line);
            if raises == 0 {
                continue;
            }
            job.raises += raises;
            job.stats.raises += raises;
            if !job.queued {
                job.queued = true;
                self.queue.push_back(line);
            }
        }
    }

    /// Runs one step of the oldest background job whose step fits; else waits for the next start or
    /// a flag.
    fn idle(&mut self, now_ns: u64, free_until_ns: u64) -> ControlFlow<()> {
        let fits = |job: &Background| now_ns.saturating_add(job.step_ns) <= free_until_ns;
        // One that waits for a longer gap must not hold up the others.
        let place = self.queue.iter().position(|&line| fits(&self.background[line]));
        let Some((place, line)) = place.map(|place| (place, self.queue[place])) else {
            self.clock.wait(free_until_ns, &self.flags);
            return ControlFlow::Continue(());
        };
        let job = &mut self.background[line];
        let (progress, asked) = (job.step)(Wake { raises: std::mem::take(&mut job.raises) });
        let took_ns = self.clock.now_ns().saturating_sub(now_ns);
        job.stats.steps += 1;
        job.stats.overlong_steps += u64::from(took_ns > job.step_ns);
        if progress == Progress::Done {
            job.stats.runs += 1;
            job.queued = false;
            self.queue.remove(place);
        }
        asked
    }

    /// Statistics of the periodic jobs, by number.
    pub fn stats(&self) -> impl Iterator<Item = &Stats> {
        self.set.stats()
    }

    /// Statistics of the background jobs, by line.
    pub fn background_stats(&self) -> impl Iterator<Item = &BackgroundStats> {
        self.background.iter().map(|job| &job.stats)
    }
}
