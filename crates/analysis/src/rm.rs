// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rate-monotonic by utilisation: quick, sufficient tests; the exact one is `fp` under
//! `Policy::Rm`.
//!
//! Liu, Layland, JACM 20(1), 1973: n tasks with `U <= n (2^(1/n) - 1)`, that is `(1 + U / n)^n <=
//! 2`. Hyperbolic bound: Bini, Buttazzo, Buttazzo, IEEE TC 52(7), 2003: `product of (U_i + 1) <=
//! 2`, which accepts more. Deadlines not before the period. Integers only: exact fractions while
//! they fit 128 bits, else units of 2^-62 rounded against the set.

use crate::check::check;
use crate::numbers::gcd_wide;
use crate::task::Task;
use crate::verdict::{Doubt, Inapplicable, Stop, Verdict};

const UNIT: u128 = 1 << 62;

/// `U <= n (2^(1/n) - 1)`.
pub fn liu_layland(tasks: &[Task]) -> Verdict {
    if let Err(reason) = applies(tasks) {
        return Stop::from(reason).into();
    }
    let mut sum: u128 = 0;
    for task in tasks {
        sum = sum.saturating_add(scaled(task));
    }
    let count = tasks.len() as u128;
    let factor = UNIT.saturating_add(sum.div_ceil(count));
    let mut power = UNIT;
    for _ in tasks {
        if power > 2 * UNIT || factor > 2 * UNIT {
            break;
        }
        power = (power * factor).div_ceil(UNIT);
    }
    // One task alone is bounded by 1 exactly.
    let accepted = power <= 2 * UNIT && factor <= 2 * UNIT;
    answer(accepted, "utilisation above the bound of Liu and Layland")
}

/// `product of (U_i + 1) <= 2`.
pub fn hyperbolic(tasks: &[Task]) -> Verdict {
    if let Err(reason) = applies(tasks) {
        return Stop::from(reason).into();
    }
    let accepted = exact_product(tasks).unwrap_or_else(|| {
        let mut product = UNIT;
        for task in tasks {
            let factor = UNIT + scaled(task).min(2 * UNIT);
            product = (product * factor.min(2 * UNIT + 1)).div_ceil(UNIT);
            if product > 2 * UNIT {
                return false;
            }
        }
        true
    });
    answer(accepted, "the product of (U + 1) is above 2")
}

/// `product (C + T) <= 2 product T` in whole numbers; `None`: they do not fit.
fn exact_product(tasks: &[Task]) -> Option<bool> {
    let (mut numerator, mut denominator) = (1u128, 1u128);
    for task in tasks {
        let (cost, period) = (u128::from(task.cost_ticks()), u128::from(task.period_ticks));
        numerator = numerator.checked_mul(cost + period)?;
        denominator = denominator.checked_mul(period)?;
        let common = gcd_wide(numerator, denominator).max(1);
        (numerator, denominator) = (numerator / common, denominator / common);
        if numerator > denominator.checked_mul(2)? {
            return Some(false);
        }
    }
    Some(true)
}

fn scaled(task: &Task) -> u128 {
    (u128::from(task.cost_ticks()) * UNIT).div_ceil(u128::from(task.period_ticks))
}

fn answer(accepted: bool, what: &str) -> Verdict {
    if accepted {
        Verdict::Schedulable
    } else {
        Verdict::Unknown { reason: Doubt::Sufficient { what: what.to_owned() } }
    }
}

fn applies(tasks: &[Task]) -> Result<(), Inapplicable> {
    check(tasks)?;
    for task in tasks {
        let name = || task.name.clone();
        if task.deadline_ticks < task.period_ticks {
            return Err(Inapplicable::DeadlineBeforePeriod { task: name() });
        }
        if task.jitter_ticks > 0 {
            return Err(Inapplicable::Unsupported { task: name(), what: "jitter" });
        }
        if task.blocking_ticks > 0 {
            return Err(Inapplicable::Unsupported { task: name(), what: "blocking" });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(u64, u64)]) -> Vec<Task> {
        pairs.iter().map(|(cost, period)| Task::new("t", *cost, *period)).collect()
    }

    #[test]
    fn liu_and_layland_bound_two_tasks_at_82_8_percent() {
        assert!(
            liu_layland(&set(&[(414_213_562, 1_000_000_000), (414_213_562, 1_000_000_000)]))
                .is_schedulable()
        );
        assert!(
            !liu_layland(&set(&[(414_213_563, 1_000_000_000), (414_213_563, 1_000_000_000)]))
                .is_schedulable()
        );
        assert!(liu_layland(&set(&[(7, 7)])).is_schedulable(), "one task may use everything");
        assert!(!liu_layland(&set(&[(8, 7)])).is_schedulable());
    }

    #[test]
    fn the_hyperbolic_bound_accepts_what_liu_and_layland_do_not_and_is_exact_at_two() {
        let uneven = set(&[(1, 3), (1, 2)]);
        assert!(hyperbolic(&uneven).is_schedulable(), "4/3 x 3/2 is 2");
        assert!(!liu_layland(&uneven).is_schedulable(), "0.8333 is above 0.8284");
        let over = set(&[(333_333_334, 1_000_000_000), (1, 2)]);
        assert!(!hyperbolic(&over).is_schedulable());
    }

    #[test]
    fn many_odd_periods_are_rounded_against_the_set() {
        let odd: Vec<Task> =
            (0..40).map(|i| Task::new("t", 17_000_000, 1_000_000_007 + 2 * i)).collect();
        assert!(hyperbolic(&odd).is_schedulable());
        let heavy: Vec<Task> =
            (0..40).map(|i| Task::new("t", 18_000_000, 1_000_000_007 + 2 * i)).collect();
        assert!(!hyperbolic(&heavy).is_schedulable());
    }

    #[test]
    fn short_deadlines_and_jitter_do_not_apply() {
        let inapplicable = |verdict| matches!(verdict, Verdict::DoesNotApply { .. });
        assert!(inapplicable(liu_layland(&[Task::new("a", 1, 9).deadline(8)])));
        assert!(inapplicable(hyperbolic(&[Task::new("a", 1, 9).jitter(1)])));
    }
}
