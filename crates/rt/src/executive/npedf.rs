//! The np-EDF executive: periodic jobs by deadline, each run to its end; background jobs in FIFO order in the time
//! that is left; interrupts that are counted in a table and served as background jobs.
//!
//! It runs in the thread that calls [`Executive::run`], which has a shielded CPU for itself:
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
//! Background jobs are cut into steps: a step begins only if its declared length fits before the next start, so that
//! they never delay a periodic job. What shall be preempted at any instruction belongs into another thread of lower
//! priority on that CPU: it runs while the executive sleeps, not while a step waits for a gap that is long enough.
//!
//! Running allocates nothing. System calls: one wait when there is nothing to do; else none of the executive's own.

use crate::executive::admit::{self, AdmissionError, Demand};
use crate::executive::edf::{Fault, JobSet, Next, Stats, Task, Tick};
use crate::executive::{Clock, Flags};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Whether a background job is through with what it was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It wants another step before any other background job.
    More,
    Done,
}

/// What a background job's step is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Interrupts of its line since its last step.
    pub raises: u64,
}

type PeriodicJob<'a> = Box<dyn FnMut(&Tick) -> ControlFlow<()> + 'a>;
type BackgroundJob<'a> = Box<dyn FnMut(Wake) -> (Progress, ControlFlow<()>) + 'a>;

/// The jobs of an executive, gathered before it is made.
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

    /// Adds a periodic job and returns its number. `Break` stops the executive after this activation.
    pub fn periodic(&mut self, task: Task, job: impl FnMut(&Tick) -> ControlFlow<()> + 'a) -> usize {
        self.tasks.push(task);
        self.periodic.push(Box::new(job));
        self.tasks.len() - 1
    }

    /// Adds a background job whose steps take at most `step_ns`, and returns its line: raising that line in
    /// [`Executive::flags`] starts it.
    pub fn background(&mut self, step_ns: u64, mut job: impl FnMut(Wake) -> Progress + 'a) -> usize {
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

/// What became of a background job since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackgroundStats {
    pub raises: u64,
    /// Times it was done; a run covers all raises until its last step.
    pub runs: u64,
    pub steps: u64,
    /// Steps that ran longer than declared and may have delayed a periodic job.
    pub overlong_steps: u64,
}

struct Background<'a> {
    step_ns: u64,
    step: BackgroundJob<'a>,
    /// Taken from the table, not yet told to the job.
    raises: u64,
    queued: bool,
    stats: BackgroundStats,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end given was reached.
    Time,
    /// A job said `Break`.
    Asked,
}

pub struct Executive<'a, C> {
    clock: C,
    set: JobSet,
    periodic: Vec<PeriodicJob<'a>>,
    background: Vec<Background<'a>>,
    /// Background jobs that are started, oldest first; each at most once, so it never grows.
    queue: VecDeque<usize>,
    flags: Arc<Flags>,
}

impl<'a, C: Clock> Executive<'a, C> {
    /// Admits the periodic jobs or says why not. Allocates.
    pub fn new(clock: C, jobs: Jobs<'a>) -> Result<Self, AdmissionError> {
        let demand = |task: &Task| Demand { period_ns: task.period_ns, budget_ns: task.budget_ns };
        admit::admit(&jobs.tasks.iter().map(demand).collect::<Vec<_>>())?;
        Ok(Self {
            clock,
            set: JobSet::new(&jobs.tasks),
            periodic: jobs.periodic,
            queue: VecDeque::with_capacity(jobs.background.len()),
            flags: Arc::new(Flags::new(jobs.background.len())),
            background: jobs.background,
        })
    }

    /// The table whose lines start the background jobs; any thread may raise them.
    pub fn flags(&self) -> Arc<Flags> {
        Arc::clone(&self.flags)
    }

    /// Runs jobs from `epoch_ns` on, to which offsets are counted, until `end_ns`: no job is begun at or after it. A
    /// later run begins anew, but interrupts not yet served stay raised.
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

    /// Takes each flag that is up, clears it, and queues the job of its line, if it is not queued already.
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

    /// One step of the oldest background job, if it fits; else waits for the next start or a flag.
    fn idle(&mut self, now_ns: u64, free_until_ns: u64) -> ControlFlow<()> {
        let fits = |job: &Background| now_ns.saturating_add(job.step_ns) <= free_until_ns;
        let Some(&line) = self.queue.front().filter(|&&line| fits(&self.background[line])) else {
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
            self.queue.pop_front();
        }
        asked
    }

    /// Of the periodic jobs by number.
    pub fn stats(&self) -> impl Iterator<Item = &Stats> {
        self.set.stats()
    }

    /// Of the background jobs by line.
    pub fn background_stats(&self) -> impl Iterator<Item = &BackgroundStats> {
        self.background.iter().map(|job| &job.stats)
    }
}
