// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's `edf.c`, compiled for this machine. `yartek/include/yartek.h` describes its types:
//! those here are the same, in the same order.

use std::ffi::c_int;
use std::ptr;

/// What happens to a job whose deadline is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Late {
    Finish,
    Skip,
    Fault,
}

/// A job: one activation of a task. Times in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Job {
    pub task: u32,
    pub activation: u32,
    pub skipped: u32,
    pub start_ticks: u64,
    pub deadline_ticks: u64,
    pub begun_ticks: u64,
}

/// What became of a task's jobs. Times in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    pub ended: u32,
    pub missed: u32,
    pub skipped: u32,
    pub over_budget: u32,
    /// Of the kernel's handlers, which are not here.
    pub refused: u32,
    pub response_ticks: u64,
    pub lateness_ticks: u64,
    pub run_ticks: u64,
}

const MAX_TASKS: usize = 32;
const MAX_ARRIVALS: usize = 8;

#[derive(Debug, Clone, Default)]
#[repr(C)]
struct Arrivals {
    at_ticks: [u64; MAX_ARRIVALS],
    came: u32,
    refused: u32,
    taken: u32,
    earliest_ticks: u64,
}

#[repr(C)]
struct TaskDef {
    run: Option<extern "C" fn(*const Job)>,
    period_ticks: u64,
    offset_ticks: u64,
    deadline_ticks: u64,
    budget_ticks: u64,
    most_ticks: u64,
    arrivals: *mut Arrivals,
    late: Late,
}

#[derive(Clone, Default)]
#[repr(C)]
struct TaskState {
    start_ticks: u64,
    deadline_ticks: u64,
    activation: u32,
    skipped: u32,
    stats: Stats,
}

#[repr(C)]
struct EdfState {
    defs: *const TaskDef,
    tasks: *mut TaskState,
    count: u32,
    released: u32,
    soonest_ticks: u64,
}

/// `enum yk_next`.
const RUN: c_int = 0;
const IDLE: c_int = 1;
const NOT_BEGUN: c_int = 2;

unsafe extern "C" {
    fn yk_edf_begin(
        edf: *mut EdfState,
        defs: *const TaskDef,
        tasks: *mut TaskState,
        count: u32,
        epoch: u64,
    );
    fn yk_edf_next(edf: *mut EdfState, now: u64, job: *mut Job) -> c_int;
    fn yk_edf_ended(edf: *mut EdfState, job: *const Job, now: u64) -> c_int;
    fn yk_edf_arrive(def: *const TaskDef, at: u64);
    fn yk_edf_arrived(edf: *mut EdfState);
}

/// A task of the set. All times in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Of a sporadic task the least distance of two starts. Not 0.
    pub period_ticks: u64,
    pub offset_ticks: u64,
    pub deadline_ticks: u64,
    pub budget_ticks: u64,
    pub is_sporadic: bool,
    pub late: Late,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Run(Job),
    /// Nothing before this instant; `None`: nothing unless something arrives.
    Idle(Option<u64>),
    /// The deadline of a job of [`Late::Fault`] is over, and it has not begun.
    NotBegun(Job),
}

/// The tasks of a board, and the next job of each.
pub struct Edf {
    // The addresses of these are in `state`.
    arrivals: Vec<Arrivals>,
    defs: Vec<TaskDef>,
    tasks: Vec<TaskState>,
    state: Box<EdfState>,
}

impl Edf {
    /// The first start of each task is at `epoch_ticks` and its offset.
    ///
    /// # Panics
    /// With more than 32 tasks, or a period of 0.
    pub fn new(set: &[Task], epoch_ticks: u64) -> Self {
        assert!(set.len() <= MAX_TASKS && set.iter().all(|task| task.period_ticks > 0));
        let mut arrivals = vec![Arrivals::default(); set.len()];
        let defs = set.iter().zip(&mut arrivals).map(|(task, arrivals)| TaskDef {
            run: None,
            period_ticks: task.period_ticks,
            offset_ticks: task.offset_ticks,
            deadline_ticks: task.deadline_ticks,
            budget_ticks: task.budget_ticks,
            // The core does not look at it.
            most_ticks: 0,
            arrivals: if task.is_sporadic { &raw mut *arrivals } else { ptr::null_mut() },
            late: task.late,
        });
        let defs: Vec<TaskDef> = defs.collect();
        let mut tasks = vec![TaskState::default(); set.len()];
        let mut state = Box::new(EdfState {
            defs: ptr::null(),
            tasks: ptr::null_mut(),
            count: 0,
            released: 0,
            soonest_ticks: 0,
        });
        // SAFETY: both arrays have `count` elements, and live with `state`, on the heap.
        unsafe {
            yk_edf_begin(
                &raw mut *state,
                defs.as_ptr(),
                tasks.as_mut_ptr(),
                set.len() as u32,
                epoch_ticks,
            );
        }
        Self { arrivals, defs, tasks, state }
    }

    /// What to do at this instant, which is not before that of any call so far.
    pub fn next(&mut self, now_ticks: u64) -> Next {
        let mut job = Job::default();
        // SAFETY: new() has set up the state, and what it points to has not moved.
        match unsafe { yk_edf_next(&raw mut *self.state, now_ticks, &raw mut job) } {
            IDLE => {
                let soonest_ticks = self.state.soonest_ticks;
                Next::Idle((soonest_ticks != u64::MAX).then_some(soonest_ticks))
            }
            NOT_BEGUN => Next::NotBegun(job),
            _ => Next::Run(job),
        }
    }

    /// The job that [`next`](Self::next) gave has ended. `false`: late, and it is of
    /// [`Late::Fault`].
    pub fn ended(&mut self, job: &Job, now_ticks: u64) -> bool {
        assert!((job.task as usize) < self.tasks.len());
        // SAFETY: as in next(), and the task is one of the set.
        unsafe { yk_edf_ended(&raw mut *self.state, job, now_ticks) == RUN }
    }

    /// Something arrives for this sporadic task.
    ///
    /// # Panics
    /// If the task is periodic.
    pub fn arrive(&mut self, task: usize, at_ticks: u64) {
        assert!(!self.defs[task].arrivals.is_null(), "task {task} is periodic");
        // SAFETY: the arrivals of the task live with it.
        unsafe { yk_edf_arrive(&raw const self.defs[task], at_ticks) };
        // SAFETY: as in next().
        unsafe { yk_edf_arrived(&raw mut *self.state) };
    }

    /// Arrivals that found no room: there is room for eight of which no job was made.
    pub fn refused(&self, task: usize) -> u32 {
        self.arrivals[task].refused
    }

    pub fn stats(&self, task: usize) -> Stats {
        self.tasks[task].stats
    }
}
