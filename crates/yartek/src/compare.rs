// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Did a guest run the simulator's schedule?
//!
//! # Approach
//! The kernel needs a time D to begin a job: after its start if the CPU is idle, else after the end
//! of the job before. Jobs that follow each other add up their D, until the CPU is idle. So each
//! job has a bound of its own. It begins no earlier than in the simulator, and no later than the
//! bound allows.

use crate::trace::{Ran, Trace, late};
use asmp_analysis::simulate::{Job, Observe, Releases, Run, Simulation};
use asmp_analysis::{Policy, Stop, Task};
use std::ops::ControlFlow;

/// Jobs of a run of the simulator.
const MOST_JOBS: u64 = 10_000_000;
const MILLI: u64 = 1000;

/// Where the order of jobs differs first. The jobs are the guest's and the simulator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Same,
    /// The guest's job started after the simulator had chosen, and before the guest had to choose:
    /// the kernel's own time decides. Both are right.
    Hangs {
        at: usize,
        guest: Ran,
        simulator: Ran,
        by_ticks: u64,
    },
    Differs {
        at: usize,
        guest: Ran,
        simulator: Ran,
    },
    /// The guest ended before this job of the simulator.
    Ends {
        at: usize,
        simulator: Ran,
    },
}

/// How late a job began, after the begin of the simulator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lateness {
    pub task: usize,
    pub activation: u64,
    pub late_ticks: u64,
    pub bound_ticks: u64,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Jobs of the guest until the order differs.
    pub jobs: usize,
    pub order: Order,
    /// The first job that began before the simulator's, and by how much.
    pub early: Option<(Ran, u64)>,
    /// The first job that began later than its bound allows.
    pub over: Option<Lateness>,
    pub latest: Option<Lateness>,
    /// How many of the guest's jobs, as many as the simulator has, ended after their deadline.
    pub missed: usize,
}

impl Comparison {
    pub fn is_equal(&self) -> bool {
        self.order == Order::Same && self.early.is_none() && self.over.is_none()
    }
}

/// What the simulator ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    jobs: Vec<Ran>,
    /// For each job: how much later the guest may begin it.
    bounds_ticks: Vec<u64>,
    /// The guest has ended all of these jobs by then.
    pub until_ticks: u64,
}

#[derive(Default)]
struct Seen {
    jobs: Vec<Ran>,
}

impl Observe for Seen {
    fn started(&mut self, job: &Job, at_ticks: u64) {
        self.jobs.push(Ran {
            task: job.stream(),
            activation: job.index,
            start_ticks: job.release_ticks,
            begun_ticks: at_ticks,
            end_ticks: at_ticks + job.cost_ticks,
        });
    }

    fn finished(&mut self, _job: &Job, _at_ticks: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// The jobs that begin before this instant in the simulator; all tasks start as soon as they may.
/// Times are in ticks of the board, `dispatch_milli_ticks` is D, in thousandths.
pub fn expect(
    tasks: &[Task],
    until_ticks: u64,
    dispatch_milli_ticks: u64,
) -> Result<Expected, Stop> {
    let simulation = Simulation::new(tasks, Policy::NpEdf, Releases::Together);
    let mut seen = Seen::default();
    Run::prepare(&simulation)?.go(until_ticks, MOST_JOBS, &mut seen);
    let mut bounds_ticks = Vec::with_capacity(seen.jobs.len());
    let (mut late_milli_ticks, mut end_ticks) = (0_u64, 0);
    for job in &seen.jobs {
        // The guest has ended the job before by then, at the latest.
        let idle_ticks = job.begun_ticks.saturating_sub(end_ticks);
        late_milli_ticks = late_milli_ticks.saturating_sub(idle_ticks.saturating_mul(MILLI));
        late_milli_ticks += dispatch_milli_ticks;
        // A reading of the clock is wrong by less than a tick.
        bounds_ticks.push(late_milli_ticks.div_ceil(MILLI) + 1);
        end_ticks = job.end_ticks;
    }
    let last_ticks = seen.jobs.iter().zip(&bounds_ticks).map(|(job, late)| job.end_ticks + late);
    let until_ticks = last_ticks.max().unwrap_or(0).max(until_ticks) + 1;
    Ok(Expected { jobs: seen.jobs, bounds_ticks, until_ticks })
}

impl Expected {
    pub fn jobs(&self) -> &[Ran] {
        &self.jobs
    }

    /// Compares a guest that ran until `until_ticks` at least.
    pub fn compare(&self, tasks: &[Task], trace: &Trace) -> Comparison {
        let mut found = Comparison {
            jobs: 0,
            order: Order::Same,
            early: None,
            over: None,
            latest: None,
            missed: late(&trace.jobs[..trace.jobs.len().min(self.jobs.len())], tasks),
        };
        for (at, (simulator, bound_ticks)) in self.jobs.iter().zip(&self.bounds_ticks).enumerate() {
            let Some(guest) = trace.jobs.get(at) else {
                found.order = Order::Ends { at, simulator: *simulator };
                break;
            };
            let (guest, simulator, bound_ticks) = (*guest, *simulator, *bound_ticks);
            let of = |job: Ran| (job.task, job.activation, job.start_ticks);
            if of(guest) != of(simulator) {
                let by_ticks = guest.start_ticks.saturating_sub(simulator.begun_ticks);
                let hangs = (1..=bound_ticks).contains(&by_ticks);
                found.order = match hangs {
                    true => Order::Hangs { at, guest, simulator, by_ticks },
                    false => Order::Differs { at, guest, simulator },
                };
                break;
            }
            found.jobs = at + 1;
            if guest.begun_ticks < simulator.begun_ticks {
                let by_ticks = simulator.begun_ticks - guest.begun_ticks;
                found.early = found.early.or(Some((guest, by_ticks)));
                continue;
            }
            let lateness = Lateness {
                task: guest.task,
                activation: guest.activation,
                late_ticks: guest.begun_ticks - simulator.begun_ticks,
                bound_ticks,
            };
            if lateness.late_ticks > bound_ticks {
                found.over = found.over.or(Some(lateness));
            }
            if found.latest.is_none_or(|latest| lateness.late_ticks > latest.late_ticks) {
                found.latest = Some(lateness);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 10, 10 and 40 ticks; the second follows the first, then the CPU is idle.
    fn tasks() -> [Task; 3] {
        [Task::new("a", 3, 10), Task::new("b", 3, 20), Task::new("c", 2, 40).offset(15)]
    }

    const D: u64 = 1500;

    fn guest(late: impl Fn(usize) -> u64) -> Trace {
        let expected = expect(&tasks(), 40, D).expect("a set that can be simulated");
        let jobs = expected.jobs().iter().enumerate().map(|(at, job)| Ran {
            begun_ticks: job.begun_ticks + late(at),
            end_ticks: job.end_ticks + late(at),
            ..*job
        });
        Trace { jobs: jobs.collect(), end_ticks: Some(99), ..Trace::default() }
    }

    fn compared(trace: &Trace) -> Comparison {
        expect(&tasks(), 40, D).expect("a set that can be simulated").compare(&tasks(), trace)
    }

    #[test]
    fn bounds_add_up_until_the_cpu_is_idle() {
        let expected = expect(&tasks(), 40, D).expect("a set that can be simulated");
        let begun: Vec<u64> = expected.jobs.iter().map(|job| job.begun_ticks).collect();
        assert_eq!(begun, [0, 3, 10, 15, 20, 23, 30]);
        assert_eq!(expected.bounds_ticks, [3, 4, 3, 3, 3, 4, 3]);
        assert!(expected.until_ticks > 40);
    }

    #[test]
    fn a_guest_within_its_bounds_is_equal() {
        let found = compared(&guest(|at| [2, 4, 1, 1, 1, 1, 1][at]));
        assert!(found.is_equal(), "{found:?}");
        let latest = Lateness { task: 1, activation: 0, late_ticks: 4, bound_ticks: 4 };
        assert_eq!((found.jobs, found.latest, found.missed), (7, Some(latest), 0));
    }

    #[test]
    fn a_guest_that_is_late_early_or_short_is_not() {
        let found = compared(&guest(|at| if at == 4 { 4 } else { 1 }));
        assert_eq!(found.over.map(|over| (over.task, over.late_ticks)), Some((0, 4)));
        let mut early = guest(|_| 1);
        early.jobs[2].begun_ticks -= 2;
        assert_eq!(compared(&early).early.map(|(job, by)| (job.task, by)), Some((0, 1)));
        let mut short = guest(|_| 1);
        short.jobs.pop();
        assert!(matches!(compared(&short).order, Order::Ends { at: 6, .. }));
        assert!(!compared(&early).is_equal() && !compared(&short).is_equal());
    }

    #[test]
    fn another_order_is_told_from_one_that_hangs_on_the_kernels_time() {
        let mut swapped = guest(|_| 1);
        swapped.jobs.swap(0, 1);
        assert!(matches!(compared(&swapped).order, Order::Differs { at: 0, .. }));
        // Its job starts at 4, just after the simulator's choice at 3.
        let tasks = [Task::new("a", 3, 30), Task::new("b", 3, 40), Task::new("c", 1, 9).offset(4)];
        let expected = expect(&tasks, 9, 3000).expect("a set that can be simulated");
        let jobs: Vec<Ran> = [0, 2, 1].map(|at| expected.jobs[at]).to_vec();
        let found = expected.compare(&tasks, &Trace { jobs, ..Trace::default() });
        assert!(matches!(found.order, Order::Hangs { at: 1, by_ticks: 1, .. }), "{found:?}");
    }
}
