// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sum of cost / period, as two bounds in units of 2^-64, and exactly where the two do not
//! decide.

use crate::numbers::lcm_wide;
use crate::task::Task;
use crate::verdict::Doubt;
use std::cmp::Ordering;

/// One, in units of 2^-64.
const ONE: u128 = 1 << 64;

/// A utilisation between two bounds that lie at most one unit of 2^-64 a task apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utilisation {
    /// Rounded down, in units of 2^-64.
    low: u128,
    /// Rounded up.
    high: u128,
}

impl Utilisation {
    /// Of a checked set (`check::check`): at most 2^20 tasks of at most 2^60 each, so nothing
    /// overflows.
    pub fn of(tasks: &[Task]) -> Self {
        Self::sum(tasks.iter().map(|task| (task.cost_ticks(), task.period_ticks)))
    }

    pub(crate) fn sum(pairs: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut sum = Self { low: 0, high: 0 };
        for (cost_ticks, period_ticks) in pairs {
            let (scaled, period) = (u128::from(cost_ticks) << 64, u128::from(period_ticks.max(1)));
            let low = scaled / period;
            sum.low = sum.low.saturating_add(low);
            sum.high = sum.high.saturating_add(low + u128::from(low * period < scaled));
        }
        sum
    }

    /// Of one fraction of any size; where the shift would overflow, low bits of both are given up,
    /// outwards.
    pub(crate) fn fraction(numerator: u128, denominator: u128) -> Self {
        let excess = 64u32.saturating_sub(numerator.leading_zeros());
        let (shift, rest) = (64 - excess, excess);
        let down = (numerator << shift) / ((denominator >> rest) + 1);
        let up = (numerator << shift).div_ceil((denominator >> rest).max(1));
        Self { low: down, high: up }
    }

    pub(crate) fn plus(self, task: &Task) -> Self {
        let one = Self::sum(std::iter::once((task.cost_ticks(), task.period_ticks)));
        Self { low: self.low.saturating_add(one.low), high: self.high.saturating_add(one.high) }
    }

    /// `length (1 - U)`, rounded down, not below 0. `length` below 2^64.
    pub(crate) fn left_of(self, length: u128) -> u128 {
        self.room().map_or(0, |room| (length * room) >> 64)
    }

    /// For people and plots; off by less than 2^-40 for sets of a million tasks.
    pub fn approximate(&self) -> f64 {
        self.low as f64 / ONE as f64
    }

    /// 1 - U rounded down, in units of 2^-64; `None` where that is not known to be above 0.
    pub(crate) const fn room(&self) -> Option<u128> {
        match ONE.checked_sub(self.high) {
            Some(0) | None => None,
            room => room,
        }
    }

    /// U - 1 rounded down, in units of 2^-64; `None` where that is not known to be above 0.
    pub(crate) const fn excess(&self) -> Option<u128> {
        match self.low.checked_sub(ONE) {
            Some(0) | None => None,
            excess => excess,
        }
    }

    /// Against 1: by the bounds, else exactly over the hyperperiod, which must fit 128 bits. A
    /// period of 0 counts as 1.
    pub fn compare_to_one(&self, tasks: &[Task]) -> Result<Ordering, Doubt> {
        if self.high < ONE {
            return Ok(Ordering::Less);
        }
        if self.low > ONE {
            return Ok(Ordering::Greater);
        }
        let overflow = || Doubt::Overflow {
            what: "the hyperperiod, which decides whether the utilisation is exactly 1",
        };
        let mut hyperperiod: u128 = 1;
        for task in tasks {
            hyperperiod =
                lcm_wide(hyperperiod, u128::from(task.period_ticks.max(1))).ok_or_else(overflow)?;
        }
        let mut demand: u128 = 0;
        for task in tasks {
            let jobs = hyperperiod / u128::from(task.period_ticks.max(1));
            let work = jobs.checked_mul(u128::from(task.cost_ticks())).ok_or_else(overflow)?;
            demand = demand.checked_add(work).ok_or_else(overflow)?;
        }
        Ok(demand.cmp(&hyperperiod))
    }
}

/// Whether the load is known to be above 1, of checked tasks.
pub(crate) fn is_above_one(tasks: &[Task]) -> bool {
    Utilisation::of(tasks).compare_to_one(tasks) == Ok(Ordering::Greater)
}

/// The hyperperiod where it fits `MAX_TICKS`.
pub(crate) fn hyperperiod_ticks(tasks: &[Task]) -> Option<u64> {
    let mut all: u128 = 1;
    for task in tasks {
        all = lcm_wide(all, u128::from(task.period_ticks))?;
        if all > u128::from(crate::task::MAX_TICKS) {
            return None;
        }
    }
    u64::try_from(all).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirds_are_told_from_one_exactly() {
        let thirds = |last: u64| {
            [Task::new("a", 1, 3), Task::new("b", 1, 3), Task::new("c", last, 3_000_000_007)]
        };
        let of = |tasks: &[Task]| Utilisation::of(tasks).compare_to_one(tasks);
        assert_eq!(
            of(&[Task::new("a", 1, 3), Task::new("b", 1, 3), Task::new("c", 1, 3)]),
            Ok(Ordering::Equal)
        );
        assert_eq!(of(&thirds(1_000_000_002)), Ok(Ordering::Less));
        assert_eq!(of(&thirds(1_000_000_003)), Ok(Ordering::Greater));
    }

    #[test]
    fn a_period_of_nothing_divides_by_nothing() {
        let tasks = [Task::new("a", 1, 0)];
        assert_eq!(Utilisation::of(&tasks).compare_to_one(&tasks), Ok(Ordering::Equal));
    }

    #[test]
    fn an_undecidable_one_is_a_doubt() {
        let primes = [1_000_000_007, 1_000_000_009, 1_000_000_021, 1_000_000_033, 1_000_000_087];
        let mut tasks: Vec<Task> = primes.iter().map(|p| Task::new("p", 1, *p)).collect();
        tasks.push(Task::new("whole", 1 << 59, 1 << 59));
        assert_eq!(Utilisation::of(&tasks).compare_to_one(&tasks), Ok(Ordering::Greater));
        // A hair around one: 1 - 1/2^59, plus 2^-60 twice and nothing that the bounds can see.
        let near = [
            Task::new("a", (1 << 59) - 1, 1 << 59),
            Task::new("b", 1, 1 << 60),
            Task::new("c", 1, 1 << 60),
        ];
        assert_eq!(Utilisation::of(&near).compare_to_one(&near), Ok(Ordering::Equal));
        let mut odd: Vec<Task> = primes.iter().map(|p| Task::new("p", p / 5, *p)).collect();
        odd.push(Task::new("q", 1, 3));
        let _ = Utilisation::of(&odd).compare_to_one(&odd);
    }
}
