//! When jobs arrive, are released, and how long they take.

use super::engine::{Release, Source};
use super::random::Random;
use crate::task::Arrival;

/// How first arrivals, gaps and jitter are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// From `first_ns` on, exactly a period apart, no jitter; what arrives before `not_before_ns` is released then.
    Fixed { first_ns: u64, not_before_ns: u64, held_up_ns: u64 },
    /// First arrival anywhere in a period (or at `first_ns`), then with chance whatever the task allows.
    Chance { first_ns: Option<u64> },
}

/// One stream's releases.
#[derive(Debug, Clone)]
pub struct Train {
    pub rule: Rule,
    pub period_ns: u64,
    pub arrival: Arrival,
    pub jitter_ns: u64,
    pub cost_ns: u64,
    /// Each stream has its own numbers, so that one more task does not change the others.
    pub random: Random,
    next_ns: Option<u64>,
    last_release_ns: u64,
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

fn part(ns: u64, ppm: u32) -> u64 {
    u64::try_from((u128::from(ns) * u128::from(ppm)).div_ceil(MILLION)).unwrap_or(u64::MAX)
}

impl Train {
    pub fn new(
        rule: Rule,
        period_ns: u64,
        arrival: Arrival,
        jitter_ns: u64,
        cost_ns: u64,
        seed: u64,
    ) -> Self {
        let mut train = Self {
            rule,
            period_ns: period_ns.max(1),
            arrival,
            jitter_ns,
            cost_ns,
            random: Random::new(seed),
            next_ns: None,
            last_release_ns: 0,
        };
        // The first numbers of neighbouring seeds are scrambled enough, but cost nothing to leave out.
        let draw = train.random.next();
        train.next_ns = match rule {
            Rule::Fixed { first_ns, .. } => Some(first_ns),
            Rule::Chance { first_ns: Some(first_ns) } => Some(first_ns),
            Rule::Chance { first_ns: None } => Some(draw % train.period_ns),
        };
        train
    }

    fn release(&mut self, execution: &Execution) -> Option<Release> {
        let arrival_ns = self.next_ns?;
        let (release_ns, gap_ns, extra_ns) = match self.rule {
            Rule::Fixed { not_before_ns, held_up_ns, .. } => {
                // The first job only.
                if let Rule::Fixed { held_up_ns, .. } = &mut self.rule {
                    *held_up_ns = 0;
                }
                (arrival_ns.max(not_before_ns), self.period_ns, held_up_ns)
            }
            Rule::Chance { .. } => {
                let late_ns = self.late();
                (arrival_ns.saturating_add(late_ns), self.gap(), 0)
            }
        };
        self.next_ns = arrival_ns.checked_add(gap_ns);
        self.last_release_ns = self.last_release_ns.max(release_ns);
        let cost_ns = self.cost(execution).saturating_add(extra_ns);
        Some(Release { arrival_ns, release_ns: self.last_release_ns, cost_ns })
    }

    /// Often the extremes, since the worst lies there.
    fn late(&mut self) -> u64 {
        if self.jitter_ns == 0 {
            return 0;
        }
        match self.random.up_to(3) {
            0 => 0,
            1 => self.jitter_ns,
            _ => self.random.up_to(self.jitter_ns),
        }
    }

    fn gap(&mut self) -> u64 {
        let more_ns = match self.arrival {
            Arrival::Periodic => 0,
            Arrival::Sporadic if self.random.up_to(1) == 0 => 0,
            Arrival::Sporadic => self.random.up_to(self.period_ns),
        };
        self.period_ns.saturating_add(more_ns)
    }

    fn cost(&mut self, execution: &Execution) -> u64 {
        if execution.overrun_chance_ppm > 0 && self.random.in_a_million(execution.overrun_chance_ppm) {
            return part(self.cost_ns, execution.overrun_ppm).max(1);
        }
        let least_ns = part(self.cost_ns, execution.least_ppm).clamp(1, self.cost_ns.max(1));
        least_ns + if least_ns < self.cost_ns { self.random.up_to(self.cost_ns - least_ns) } else { 0 }
    }
}

/// All streams' releases.
#[derive(Debug, Clone)]
pub struct Trains {
    pub trains: Vec<Train>,
    pub execution: Execution,
}

impl Source for Trains {
    fn next(&mut self, stream: usize) -> Option<Release> {
        self.trains[stream].release(&self.execution)
    }

    fn cost(&mut self, stream: usize) -> u64 {
        self.trains[stream].cost(&self.execution)
    }
}
