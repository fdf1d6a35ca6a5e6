// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When jobs arrive, are released, and how long they take.

use super::engine::{Release, Source};
use super::random::Random;
use crate::task::Arrival;

/// How first arrivals, gaps and jitter are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// From `first_ticks` on, exactly a period apart, no jitter; what arrives before
    /// `not_before_ticks` is released then.
    Fixed { first_ticks: u64, not_before_ticks: u64, held_up_ticks: u64 },
    /// First arrival anywhere in a period (or at `first_ticks`), then at random what the task
    /// allows.
    Chance { first_ticks: Option<u64> },
}

/// One stream's releases.
#[derive(Debug, Clone)]
pub(super) struct Train {
    pub rule: Rule,
    pub period_ticks: u64,
    pub arrival: Arrival,
    pub jitter_ticks: u64,
    pub cost_ticks: u64,
    /// Each stream has its own numbers, so that one more task does not change the others.
    pub random: Random,
    next_ticks: Option<u64>,
    last_release_ticks: u64,
}

/// How execution times differ from the cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Execution {
    /// Jobs take between this many millionths of their cost and all of it.
    pub least_ppm: u32,
    /// This many jobs in a million take longer than the cost.
    pub overrun_chance_ppm: u32,
    /// Millionths of the cost that an overrunning job takes.
    pub overrun_ppm: u32,
}

impl Default for Execution {
    /// Always the whole cost.
    fn default() -> Self {
        Self { least_ppm: 1_000_000, overrun_chance_ppm: 0, overrun_ppm: 1_000_000 }
    }
}

const MILLION: u128 = 1_000_000;

fn part(ticks: u64, ppm: u32) -> u64 {
    u64::try_from((u128::from(ticks) * u128::from(ppm)).div_ceil(MILLION)).unwrap_or(u64::MAX)
}

impl Train {
    pub(super) fn new(
        rule: Rule,
        period_ticks: u64,
        arrival: Arrival,
        jitter_ticks: u64,
        cost_ticks: u64,
        seed: u64,
    ) -> Self {
        let mut train = Self {
            rule,
            period_ticks: period_ticks.max(1),
            arrival,
            jitter_ticks,
            cost_ticks,
            random: Random::new(seed),
            next_ticks: None,
            last_release_ticks: 0,
        };
        // The first numbers of neighbouring seeds are scrambled enough, but cost nothing to leave
        // out.
        let draw = train.random.next();
        train.next_ticks = match rule {
            Rule::Fixed { first_ticks, .. } => Some(first_ticks),
            Rule::Chance { first_ticks: Some(first_ticks) } => Some(first_ticks),
            Rule::Chance { first_ticks: None } => Some(draw % train.period_ticks),
        };
        train
    }

    fn release(&mut self, execution: &Execution) -> Option<Release> {
        let arrival_ticks = self.next_ticks?;
        let (release_ticks, gap_ticks, extra_ticks) = match self.rule {
            Rule::Fixed { not_before_ticks, held_up_ticks, .. } => {
                // The first job only.
                if let Rule::Fixed { held_up_ticks, .. } = &mut self.rule {
                    *held_up_ticks = 0;
                }
                (arrival_ticks.max(not_before_ticks), self.period_ticks, held_up_ticks)
            }
            Rule::Chance { .. } => {
                let late_ticks = self.late();
                (arrival_ticks.saturating_add(late_ticks), self.gap(), 0)
            }
        };
        self.next_ticks = arrival_ticks.checked_add(gap_ticks);
        self.last_release_ticks = self.last_release_ticks.max(release_ticks);
        let cost_ticks = self.cost(execution).saturating_add(extra_ticks);
        Some(Release { arrival_ticks, release_ticks: self.last_release_ticks, cost_ticks })
    }

    /// Often the extremes, since the worst lies there.
    fn late(&mut self) -> u64 {
        if self.jitter_ticks == 0 {
            return 0;
        }
        match self.random.up_to(3) {
            0 => 0,
            1 => self.jitter_ticks,
            _ => self.random.up_to(self.jitter_ticks),
        }
    }

    fn gap(&mut self) -> u64 {
        let more_ticks = match self.arrival {
            Arrival::Periodic => 0,
            Arrival::Sporadic if self.random.up_to(1) == 0 => 0,
            Arrival::Sporadic => self.random.up_to(self.period_ticks),
        };
        self.period_ticks.saturating_add(more_ticks)
    }

    fn cost(&mut self, execution: &Execution) -> u64 {
        if execution.overrun_chance_ppm > 0
            && self.random.in_a_million(execution.overrun_chance_ppm)
        {
            return part(self.cost_ticks, execution.overrun_ppm).max(1);
        }
        let least_ticks =
            part(self.cost_ticks, execution.least_ppm).clamp(1, self.cost_ticks.max(1));
        least_ticks
            + if least_ticks < self.cost_ticks {
                self.random.up_to(self.cost_ticks - least_ticks)
            } else {
                0
            }
    }
}

/// All streams' releases.
#[derive(Debug, Clone)]
pub(super) struct Trains {
    pub trains: Vec<Train>,
    pub execution: Execution,
}

impl Source for Trains {
    fn next(&mut self, stream: usize) -> Option<Release> {
        self.trains[stream].release(&self.execution)
    }

    fn following(&mut self, stream: usize) -> (u64, u64) {
        let train = &mut self.trains[stream];
        let late_ticks = match train.rule {
            Rule::Chance { .. } => train.late(),
            Rule::Fixed { .. } => 0,
        };
        (train.cost(&self.execution), late_ticks)
    }
}
