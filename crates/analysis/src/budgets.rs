// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Budgets by Proposition 1 of Yartek (Mumolo, Nolich, Lenac, EURASIP J. Embedded Systems 2008,
//! section 2.1).
//!
//! Sorted p_1 <= p_2 <= …, task i may take `B_i = p_1 (1 - sum over j < i of C_j / p_j)`; `C_i <=
//! B_i` for all i means schedulable by non-preemptive EDF. Sufficient only. The proof's own bound,
//! `p_1 (1 - U) + 1`, is not safe: sets that meet it miss deadlines (C = 2, p = 2, then p = 13). So
//! B is taken without the + 1, and `<=`, since Example 1 has C_3 = B_3.

use crate::check::check;
use crate::numbers::gcd_wide;
use crate::task::Task;
use crate::utilisation::Utilisation;
use crate::verdict::{Doubt, Inapplicable, Stop, Verdict};
#[cfg(feature = "files")]
use serde::Serialize;

/// How long a task may be, given those with shorter periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Budget {
    pub task: usize,
    pub cost_ticks: u64,
    /// B, rounded down to a whole nanosecond; 0 where the tasks before use everything.
    pub budget_ticks: u64,
}

impl Budget {
    pub const fn holds(&self) -> bool {
        self.cost_ticks <= self.budget_ticks
    }
}

/// In the order of the periods; equal periods in the order of the set. O(n log n), exact while the
/// sum of fractions fits 128 bits, else rounded against the task by less than a nanosecond. Errors:
/// deadlines that are not the period, jitter, blocking.
pub fn budgets(tasks: &[Task]) -> Result<Vec<Budget>, Inapplicable> {
    check(tasks)?;
    let name = |task: &Task| task.name.clone();
    for task in tasks {
        if task.deadline_ticks != task.period_ticks {
            return Err(Inapplicable::DeadlineNotPeriod { task: name(task) });
        }
        if task.jitter_ticks > 0 {
            return Err(Inapplicable::Unsupported { task: name(task), what: "jitter" });
        }
        if task.blocking_ticks > 0 {
            return Err(Inapplicable::Unsupported { task: name(task), what: "blocking" });
        }
    }
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|index| tasks[*index].period_ticks);
    let shortest = order.first().map_or(0, |index| tasks[*index].period_ticks);
    let mut used = Used::Exact(0, 1);
    let mut all = Vec::with_capacity(tasks.len());
    for index in order {
        let task = &tasks[index];
        all.push(Budget {
            task: index,
            cost_ticks: task.cost_ticks(),
            budget_ticks: used.left_of(shortest),
        });
        used = used.plus(task);
    }
    Ok(all)
}

/// Schedulable, does not apply, or `Unknown`: the proposition refutes nothing.
pub fn test(tasks: &[Task]) -> Verdict {
    let budgets = match budgets(tasks) {
        Ok(budgets) => budgets,
        Err(reason) => return Stop::from(reason).into(),
    };
    match budgets.iter().find(|budget| !budget.holds()) {
        None => Verdict::Schedulable,
        Some(over) => {
            let what = format!("task {} is longer than its budget", tasks[over.task].name);
            Verdict::Unknown { reason: Doubt::Sufficient { what } }
        }
    }
}

/// `sum C_j / p_j` so far.
#[derive(Debug, Clone, Copy)]
enum Used {
    /// Numerator and denominator.
    Exact(u128, u128),
    Bounds(Utilisation),
}

impl Used {
    fn plus(self, task: &Task) -> Self {
        let (cost, period) = (u128::from(task.cost_ticks()), u128::from(task.period_ticks));
        match self {
            Self::Exact(numerator, denominator) => add(numerator, denominator, cost, period)
                .map_or_else(
                    || Self::Bounds(bounds(numerator, denominator).plus(task)),
                    |(n, d)| Self::Exact(n, d),
                ),
            Self::Bounds(sum) => Self::Bounds(sum.plus(task)),
        }
    }

    /// `length (1 - used)`, rounded down, not below 0.
    fn left_of(self, length_ticks: u64) -> u64 {
        let length = u128::from(length_ticks);
        let left = match self {
            Self::Exact(numerator, denominator) if numerator >= denominator => 0,
            Self::Exact(numerator, denominator) => {
                match length.checked_mul(denominator - numerator) {
                    Some(product) => product / denominator,
                    None => bounds(numerator, denominator).left_of(length),
                }
            }
            Self::Bounds(sum) => sum.left_of(length),
        };
        u64::try_from(left).unwrap_or(length_ticks)
    }
}

fn add(numerator: u128, denominator: u128, cost: u128, period: u128) -> Option<(u128, u128)> {
    let shared = gcd_wide(denominator, period).max(1);
    let all = denominator.checked_mul(period / shared)?;
    let sum = numerator
        .checked_mul(period / shared)?
        .checked_add(cost.checked_mul(denominator / shared)?)?;
    let common = gcd_wide(sum, all).max(1);
    Some((sum / common, all / common))
}

/// A fraction as bounds in units of 2^-64; a shift that overflows loses the low bits of both sides,
/// rounded up.
fn bounds(numerator: u128, denominator: u128) -> Utilisation {
    Utilisation::fraction(numerator, denominator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(cost: u64, period: u64) -> Task {
        Task::new("t", cost * 1_000_000, period * 1_000_000)
    }

    fn of(tasks: &[Task]) -> Vec<u64> {
        budgets(tasks).unwrap().iter().map(|budget| budget.budget_ticks).collect()
    }

    #[test]
    fn example_1_of_the_paper_has_the_budgets_it_prints() {
        let tasks = [ms(1500, 4000), ms(1500, 6000), ms(1500, 7000)];
        assert_eq!(of(&tasks), [4_000_000_000, 2_500_000_000, 1_500_000_000]);
        assert_eq!(test(&tasks), Verdict::Schedulable);
        let over = [ms(1500, 4000), ms(1500, 6000), Task::new("t", 1_500_000_001, 7_000_000_000)];
        assert!(matches!(test(&over), Verdict::Unknown { .. }), "the third is a nanosecond over");
    }

    #[test]
    fn the_robot_has_the_budgets_the_paper_prints() {
        let mut tasks = vec![ms(20, 500); 6];
        tasks.extend([ms(100, 500), ms(20, 1200), ms(20, 1200), ms(20, 2000)]);
        let wanted = [500, 480, 460, 440, 420, 400, 380, 280].map(|ms| ms * 1_000_000);
        let found = of(&tasks);
        assert_eq!(found[..8], wanted);
        assert_eq!(found[8..], [271_666_666, 263_333_333]);
        assert_eq!(test(&tasks), Verdict::Schedulable);
    }

    #[test]
    fn the_unsafe_bound_of_the_proof_is_not_used() {
        let tasks = [Task::new("a", 2, 2), Task::new("b", 1, 13)];
        assert_eq!(of(&tasks), [2, 0]);
        assert!(matches!(test(&tasks), Verdict::Unknown { .. }));
    }

    #[test]
    fn other_deadlines_do_not_apply() {
        let tasks = [Task::new("a", 1, 10).deadline(9)];
        assert!(matches!(test(&tasks), Verdict::DoesNotApply { .. }));
        assert!(matches!(test(&[]), Verdict::DoesNotApply { .. }));
    }

    #[test]
    fn fractions_that_do_not_fit_are_rounded_against_the_task() {
        let primes = [
            1_000_000_007u64,
            1_000_000_009,
            1_000_000_021,
            1_000_000_033,
            1_000_000_087,
            1_000_000_093,
        ];
        let tasks: Vec<Task> = primes.iter().map(|p| Task::new("p", 100_000_000, *p)).collect();
        let found = of(&tasks);
        let mut used = 0.0;
        for (budget, prime) in found.iter().zip(primes) {
            let wanted = 1_000_000_007.0 * (1.0 - used);
            assert!((*budget as f64 - wanted).abs() <= 1.0, "{budget} {wanted}");
            used += 0.1e9 / prime as f64;
        }
    }
}
