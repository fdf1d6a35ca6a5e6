// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first job of each level of fixed priorities, all levels in one pass.
//!
//! Problem:  an iteration for each task of n takes O(n^2) times its rounds: seconds for 10,000.
//! Approach: all is released at once, so the work of a level contains that of the level above. The
//!           least fixed points of `w = K + sum over j of jobs_j(w) C_j` then grow from level to
//!           level, as long as the constant K falls by no more than the work that is added. So the
//!           search for one goes on where the last one ended; a queue gives the next release. Where
//!           K falls by more, it starts again, a few times.

use crate::task::Task;
use crate::verdict::Effort;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What a task at one level meets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interference {
    pub cost_ticks: u64,
    pub period_ticks: u64,
    pub jitter_ticks: u64,
}

impl Interference {
    pub(crate) const fn of(task: &Task) -> Self {
        Self {
            cost_ticks: task.cost_ticks(),
            period_ticks: task.period_ticks,
            jitter_ticks: task.jitter_ticks,
        }
    }
}

/// Which releases count at a time t.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Those before t: `ceil((t + J) / T)` jobs.
    Before,
    /// Those at t too: `floor((t + J) / T) + 1` jobs.
    At,
}

/// A fixed point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    At(u64),
    /// After the limit.
    Later,
    /// Not looked for: too few rows, too many new starts, or the steps are used up.
    Unknown,
}

/// Below so many tasks an iteration for each is faster.
pub(crate) const WORTH_IT: usize = 16;

/// New starts of a pass.
const MOST_STARTS: u32 = 8;

/// A pass may take this part of the steps of an analysis, beside them.
const SHARE: u64 = 4;

/// The fixed point of one level after the other.
#[derive(Debug)]
pub(crate) struct Levels<'a> {
    /// Most urgent first.
    rows: &'a [Interference],
    count: Count,
    is_worth_it: bool,
    steps_left: u64,
    starts: u32,
    /// So many rows are in the sum.
    taken: usize,
    /// K is `plus_ticks - minus_ticks`.
    plus_ticks: u64,
    minus_ticks: u64,
    work_ticks: u64,
    /// Not after the fixed point that was looked for last.
    now_ticks: u64,
    /// The first release of each row in the sum that does not count yet.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    /// The group that was asked for last, and what was found.
    group: Range<usize>,
    of_group: Vec<Done>,
}

impl<'a> Levels<'a> {
    /// Looks for nothing in fewer than `worth_it` rows.
    pub(crate) fn new(
        rows: &'a [Interference],
        count: Count,
        worth_it: usize,
        effort: &Effort,
    ) -> Self {
        let is_worth_it = rows.len() >= worth_it;
        let next = BinaryHeap::with_capacity(if is_worth_it { rows.len() } else { 0 });
        Self {
            rows,
            count,
            is_worth_it,
            steps_left: effort.steps / SHARE,
            starts: 0,
            taken: 0,
            plus_ticks: 0,
            minus_ticks: 0,
            work_ticks: 0,
            now_ticks: 0,
            next,
            group: 0..0,
            of_group: Vec::new(),
        }
    }

    /// The least fixed point of the row `position`, whose group of equally urgent rows ends at
    /// `end`. It has its own constant (`plus`, `minus`), where `minus` is at most the cost of a row
    /// of the group, and its own limit, at most `MAX_TICKS`. Rows are asked for in their order.
    pub(crate) fn first_job(
        &mut self,
        position: usize,
        end: usize,
        constant_ticks: impl Fn(usize) -> (u64, u64),
        limit_ticks: impl Fn(usize) -> u64,
    ) -> Done {
        if !self.is_worth_it {
            return Done::Unknown;
        }
        if position >= self.group.end {
            let mut order: Vec<usize> = (position..end).collect();
            // The least constant first, so that none falls within the group.
            order.sort_by_key(|position| {
                let (plus_ticks, minus_ticks) = constant_ticks(*position);
                i128::from(plus_ticks) - i128::from(minus_ticks)
            });
            let mut all = vec![Done::Unknown; order.len()];
            for one in order {
                all[one - position] = self.done(end, constant_ticks(one), limit_ticks(one));
            }
            (self.group, self.of_group) = (position..end, all);
        }
        self.of_group[position - self.group.start]
    }

    /// The least `w = plus - minus + sum over the first `end` rows of jobs(w) C`.
    fn done(
        &mut self,
        end: usize,
        (plus_ticks, minus_ticks): (u64, u64),
        limit_ticks: u64,
    ) -> Done {
        let added = self.rows[self.taken..end].iter();
        let with_added_ticks =
            added.clone().fold(plus_ticks, |sum, row| sum.saturating_add(row.cost_ticks));
        let grows = with_added_ticks.saturating_add(self.minus_ticks)
            >= self.plus_ticks.saturating_add(minus_ticks);
        if !grows {
            if self.starts == MOST_STARTS {
                return Done::Unknown;
            }
            self.starts += 1;
            (self.taken, self.work_ticks, self.now_ticks) = (0, 0, 0);
            self.next.clear();
        }
        // Also because no sum overflows below the limit.
        if self.now_ticks > limit_ticks {
            return Done::Later;
        }
        if !self.spend(1 + end - self.taken) {
            return Done::Unknown;
        }
        (self.plus_ticks, self.minus_ticks) = (plus_ticks, minus_ticks);
        for row in self.taken..end {
            self.add(row as u32);
        }
        self.taken = end;
        loop {
            let done_ticks = self.work_ticks.saturating_add(plus_ticks).saturating_sub(minus_ticks);
            self.now_ticks = self.now_ticks.max(done_ticks);
            if self.now_ticks > limit_ticks {
                return Done::Later;
            }
            let before_ticks = self.work_ticks;
            while let Some(Reverse((at_ticks, row))) = self.next.peek().copied() {
                let jobs = self.jobs(at_ticks, row);
                if jobs == 0 {
                    break;
                }
                if !self.spend(1) {
                    return Done::Unknown;
                }
                self.next.pop();
                self.count_in(at_ticks, row, jobs);
            }
            if self.work_ticks == before_ticks {
                return Done::At(self.now_ticks);
            }
        }
    }

    /// Are there steps for so many changes of the queue?
    const fn spend(&mut self, changes: usize) -> bool {
        let each = self.rows.len().ilog2() as u64 + 1;
        match self.steps_left.checked_sub(changes as u64 * each) {
            Some(left) => self.steps_left = left,
            None => self.is_worth_it = false,
        }
        self.is_worth_it
    }

    /// Jobs of `row` that count now, from its release at `at_ticks` on.
    fn jobs(&self, at_ticks: u64, row: u32) -> u64 {
        let period_ticks = self.rows[row as usize].period_ticks;
        match (self.count, self.now_ticks.checked_sub(at_ticks)) {
            (_, None) => 0,
            (Count::Before, Some(since_ticks)) => since_ticks.div_ceil(period_ticks),
            (Count::At, Some(since_ticks)) => since_ticks / period_ticks + 1,
        }
    }

    fn count_in(&mut self, at_ticks: u64, row: u32, jobs: u64) {
        let Interference { cost_ticks, period_ticks, .. } = self.rows[row as usize];
        self.work_ticks = self.work_ticks.saturating_add(jobs.saturating_mul(cost_ticks));
        self.next.push(Reverse((at_ticks + jobs * period_ticks, row)));
    }

    /// Takes a row into the sum. Its first job is there right after time 0. With jitter J others
    /// may be: their releases are J earlier, but not before 0.
    fn add(&mut self, row: u32) {
        let Interference { cost_ticks, period_ticks, jitter_ticks } = self.rows[row as usize];
        let first = jitter_ticks / period_ticks + 1;
        self.work_ticks = self.work_ticks.saturating_add(first.saturating_mul(cost_ticks));
        let at_ticks = first * period_ticks - jitter_ticks;
        let jobs = self.jobs(at_ticks, row);
        self.count_in(at_ticks, row, jobs);
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::simulate::Random;
    use crate::task::Task;
    use crate::verdict::Effort;
    use crate::{fp, np_fp};

    fn below(random: &mut Random, end: u64) -> u64 {
        random.up_to(end - 1)
    }

    /// Small numbers, so that releases and ends coincide, or all times 2^52; jitter, sections,
    /// equal priorities, early and late deadlines, loads about 1.
    fn set(random: &mut Random) -> Vec<Task> {
        // Now and then so many that the pass has no new starts left.
        let most = if below(random, 20) == 0 { 70 } else { 9 };
        let count = 1 + below(random, most);
        let longest = 4 + below(random, 60);
        let scale = if below(random, 4) == 0 { 1 << 52 } else { 1 };
        let task = |random: &mut Random| {
            let period = 1 + below(random, longest);
            let cost = 1 + below(random, 2 * period / count + 1).min(period - 1);
            let task = Task::new("t", cost * scale, period * scale)
                .priority(1 + below(random, count) as u32);
            let task = match below(random, 3) {
                0 => task,
                1 => task.deadline(scale * (cost + below(random, period))),
                _ => task.deadline(scale * (1 + below(random, 4 * period))),
            };
            let rare = |random: &mut Random, most: u64| match below(random, 4) {
                0 => below(random, most),
                _ => 0,
            };
            let jitter = scale * rare(random, 2 * period);
            task.jitter(jitter).blocking(scale * rare(random, longest))
        };
        (0..count).map(|_| task(random)).collect()
    }

    #[test]
    fn one_pass_over_all_levels_finds_what_an_iteration_for_each_task_finds() {
        let sets = std::env::var("ASMP_RANDOM_SETS").ok().and_then(|word| word.parse().ok());
        let effort = Effort::default();
        let (mut bounds, mut late) = (0, 0);
        for seed in 0..sets.unwrap_or(5_000) {
            let tasks = set(&mut Random::new(seed));
            for policy in [Policy::Fp, Policy::NpFp, Policy::Dm] {
                let [all, each] = [0, usize::MAX].map(|worth_it| {
                    let mut found = Vec::new();
                    let tell = |task, bound: Option<u64>| {
                        found.push((task, bound));
                        true
                    };
                    let answer = match policy {
                        Policy::NpFp => np_fp::each(&tasks, &effort, worth_it, tell),
                        _ => fp::each(&tasks, policy, &effort, worth_it, tell),
                    };
                    (answer, found)
                });
                assert_eq!(all, each, "seed {seed}, {policy}: {tasks:?}");
                bounds += all.1.iter().filter(|(_, bound)| bound.is_some()).count();
                late += all.1.iter().filter(|(_, bound)| bound.is_none()).count();
            }
        }
        assert!(bounds > 1000 && late > 1000, "{bounds} bounds, {late} late");
    }

    #[test]
    fn ten_thousand_levels_take_few_steps() {
        let mut random = Random::new(1);
        let mut periods: Vec<u64> =
            (0..10_000).map(|_| 1_000_000 + below(&mut random, 999_000_000)).collect();
        periods.sort_unstable();
        let tasks: Vec<Task> = (0..)
            .zip(&periods)
            .map(|(at, period)| Task::new("t", period / 20_000, *period).priority(10_000 - at))
            .collect();
        // An iteration for each task takes 50 million for its first round.
        let effort = Effort { steps: 4_000_000, jobs: 0 };
        for policy in [Policy::Rm, Policy::Dm] {
            let verdict = fp::test(&tasks, policy, &effort);
            assert!(verdict.is_schedulable(), "{policy}: {verdict:?}");
        }
        let np = np_fp::analyse(&tasks, &effort).responses_ticks;
        assert!(np.iter().all(Option::is_some));
    }
}
