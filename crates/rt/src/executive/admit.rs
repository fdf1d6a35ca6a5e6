// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The admission test of the np-EDF executive: crate `analysis` proves that no job ends late.
//!
//! The test is exact for sporadic tasks and for arbitrary first starts (Jeffay, Stanat, Martel,
//! RTSS 1991, deadline = period). For given offsets it may refuse a set that would work. A refusal
//! contains a run that misses a deadline.

use asmp_analysis::{
    Counterexample, Doubt, Effort, Inapplicable, Policy, Task, Utilisation, Verdict, budgets,
    schedulability,
};
use std::cmp::Ordering;
use std::fmt;

/// The demand of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Period, which is also the relative deadline.
    pub period_ns: u64,
    /// Longest run time of one activation.
    pub budget_ns: u64,
}

/// Why a set of tasks is not admitted. Tasks are numbered from 0, as given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// A period is 0.
    #[error("invalid period of task {task}: use more than 0 ns")]
    NoPeriod { task: usize },
    /// The utilisation exceeds 1.
    #[error(
        "the CPU is overloaded: utilisation {permille}/1000; lengthen periods or shorten budgets"
    )]
    Overload { permille: u64 },
    /// A job misses its deadline in the counterexample.
    #[error("{}", Miss(.counterexample))]
    Misses { counterexample: Box<Counterexample> },
    /// The test does not apply to the set.
    #[error("{reason}")]
    Inapplicable { reason: Inapplicable },
    /// The test found no answer within its effort.
    #[error(
        "schedulability undecided: {reason}; reduce the ratio between the longest and shortest \
         period"
    )]
    Unproved { reason: Doubt },
    /// A step of the background job of this line never fits between periodic jobs that run as long
    /// as they may.
    #[error(
        "a step of background job {line} takes {step_ns} ns, and the periodic jobs leave at most \
         {gap_ns} ns: make the step shorter"
    )]
    NoGap { line: usize, step_ns: u64, gap_ns: u64 },
}

/// A counterexample in words.
struct Miss<'a>(&'a Counterexample);

impl fmt::Display for Miss<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // The tasks are made from whole nanoseconds: a tick is one.
        let Counterexample { pattern, by_ticks: by_ns, missed } = self.0;
        match (missed, by_ns) {
            (Some(missed), _) => {
                let (task, job, due_ns) = (missed.task, missed.job, missed.deadline_ticks);
                write!(
                    f,
                    "task {task} is late: its job {job}, released at {} ns and due at {due_ns} \
                     ns, ",
                    missed.release_ticks
                )?;
                match missed.finished_ticks {
                    Some(finished_ns) => write!(f, "ends at {finished_ns} ns")?,
                    None => write!(f, "ends later")?,
                }
            }
            (None, Some(by_ns)) => write!(f, "a job that is due by {by_ns} ns is late")?,
            (None, None) => write!(f, "a job is late some day")?,
        }
        // Below full load only a job that has begun makes others late, and it stands first.
        if let Some(first) = pattern.first() {
            write!(
                f,
                " when task {} begins 1 ns before the others start: split it or lengthen the \
                 shorter periods",
                first.task
            )?;
        }
        Ok(())
    }
}

/// At most about 0.2 s: for set-up.
const EFFORT: Effort = Effort { steps: 20_000_000, jobs: 200_000 };

/// Admits a set of tasks, or returns why not. Allocates: for set-up only. A budget of 0 counts as 1
/// ns.
pub fn admit(set: &[Demand]) -> Result<(), AdmissionError> {
    if let Some(task) = set.iter().position(|demand| demand.period_ns == 0) {
        return Err(AdmissionError::NoPeriod { task });
    }
    if set.is_empty() {
        return Ok(());
    }
    let task = |(number, demand): (usize, &Demand)| {
        Task::new(number.to_string(), demand.budget_ns.max(1), demand.period_ns)
    };
    let tasks: Vec<Task> = set.iter().enumerate().map(task).collect();
    let utilisation = Utilisation::of(&tasks);
    if utilisation.compare_to_one(&tasks) == Ok(Ordering::Greater) {
        // Rounded up: 1000 would be no reason.
        let permille = (utilisation.approximate() * 1000.0) as u64;
        return Err(AdmissionError::Overload { permille: permille.saturating_add(1) });
    }
    match schedulability(&tasks, Policy::NpEdf, &EFFORT) {
        Verdict::Schedulable => Ok(()),
        Verdict::NotSchedulable { counterexample } => {
            Err(AdmissionError::Misses { counterexample })
        }
        Verdict::DoesNotApply { reason } => Err(AdmissionError::Inapplicable { reason }),
        // Yartek's budgets (Proposition 1): a fast, sufficient test.
        Verdict::Unknown { .. } if budgets::test(&tasks).is_schedulable() => Ok(()),
        Verdict::Unknown { reason } => Err(AdmissionError::Unproved { reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_analysis::simulate;

    fn set(tasks: &[(u64, u64)]) -> Vec<Demand> {
        tasks.iter().map(|&(period_ns, budget_ns)| Demand { period_ns, budget_ns }).collect()
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn the_papers_example_and_its_robot_are_taken() {
        assert_eq!(admit(&set(&[(4000, 1500), (6000, 1500), (7000, 1500)])), Ok(()));
        let mut robot = vec![(500 * MS, 20 * MS); 6];
        robot.extend([
            (500 * MS, 100 * MS),
            (1200 * MS, 20 * MS),
            (1200 * MS, 20 * MS),
            (2000 * MS, 20 * MS),
        ]);
        assert_eq!(admit(&set(&robot)), Ok(()));
    }

    #[test]
    fn a_set_of_low_utilisation_is_refused_with_a_run_that_misses() {
        // 20 % of the CPU, but the second runs for more than the first can wait.
        let demands = set(&[(10 * MS, MS), (100 * MS, 10 * MS)]);
        let Err(AdmissionError::Misses { counterexample }) = admit(&demands) else {
            panic!("taken")
        };
        let missed = counterexample.missed.expect("a job");
        assert_eq!(
            (missed.task, missed.deadline_ticks, missed.finished_ticks),
            (0, 10 * MS + 1, Some(11 * MS))
        );
        let tasks = [Task::new("0", MS, 10 * MS), Task::new("1", 10 * MS, 100 * MS)];
        let again = simulate::replay(
            &tasks,
            Policy::NpEdf,
            &counterexample.pattern,
            counterexample.by_ticks,
            &EFFORT,
        );
        assert_eq!(again, Some(missed));
        assert_eq!(
            admit(&set(&[(10 * MS, MS), (100 * MS, 9 * MS + 1)])),
            Ok(()),
            "the longest that fits"
        );
        assert!(admit(&set(&[(10 * MS, MS), (100 * MS, 9 * MS + 2)])).is_err());
    }

    #[test]
    fn a_full_cpu_is_taken_and_a_fuller_one_refused() {
        assert_eq!(admit(&set(&[(3, 1), (3, 2)])), Ok(()));
        assert_eq!(admit(&set(&[(10, 10)])), Ok(()));
        assert_eq!(
            admit(&set(&[(2, 2), (13, 1)])),
            Err(AdmissionError::Overload { permille: 1077 })
        );
        assert_eq!(
            admit(&set(&[(10, 10), (1_000_000, 1)])),
            Err(AdmissionError::Overload { permille: 1001 })
        );
        assert!(matches!(admit(&set(&[(1, u64::MAX); 3])), Err(AdmissionError::Overload { .. })));
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        assert_eq!(admit(&set(&[(5, 1), (0, 0)])), Err(AdmissionError::NoPeriod { task: 1 }));
        assert!(matches!(admit(&set(&[(u64::MAX, 1)])), Err(AdmissionError::Inapplicable { .. })));
        assert_eq!(admit(&[]), Ok(()));
        assert_eq!(admit(&set(&[(5, 0)])), Ok(()));
    }

    #[test]
    fn periods_from_100_us_to_an_hour_are_decided() {
        let hour = 3_600_000_000_000;
        assert_eq!(admit(&set(&[(hour, 50_001), (100_000, 50_000)])), Ok(()));
        let refusal = admit(&set(&[(hour, 50_002), (100_000, 50_000)])).unwrap_err();
        assert!(
            refusal.to_string().ends_with(
                "when task 0 begins 1 ns before the others start: split it or lengthen the \
                 shorter periods"
            ),
            "{refusal}"
        );
    }
}
