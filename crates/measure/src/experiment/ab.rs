// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which setting of a partition helps: the same measurement with and without it, in turn.

use super::series::{Case, Completion, Session, place};
use super::{ExperimentError, Result};
use crate::compare::{self, Difference};
use crate::load::Load;
use crate::run::{Kind, Run};
use std::fmt;

/// One thing that a partition can do without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Factor {
    /// That the tick stops.
    Tick,
    /// A setting of the partition, by name.
    Setting(String),
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Tick => f.write_str("tick"),
            Self::Setting(name) => f.write_str(name),
        }
    }
}

/// What a comparison gave.
#[derive(Debug)]
pub enum Factors {
    /// The effect of each factor.
    Compared(Vec<Effect>),
    /// A run ended early, for this reason; [`Completion::Stopped`] where the observer ended it.
    EndedEarly { reason: String, completion: Completion },
}

/// The effect of one factor.
#[derive(Debug)]
pub struct Effect {
    pub factor: Factor,
    /// `None` where there are too few samples.
    pub median: Option<Figure>,
    pub p99: Option<Figure>,
}

/// One figure without the factor less the same with it.
#[derive(Debug)]
pub struct Figure {
    pub all: Difference,
    /// Rounds whose own difference has the same sign.
    pub agreeing: usize,
    pub rounds: usize,
}

impl Figure {
    /// Samples of one round depend on each other, so that the interval alone would be too sure:
    /// every round must agree as well.
    pub fn is_sure(&self) -> bool {
        self.all.is_sure() && self.agreeing == self.rounds
    }
}

/// Measures with and without each factor, `rounds` times each, under one load.
pub fn compare_factors(
    session: &Session,
    load: Load,
    factors: &[Factor],
    rounds: u32,
) -> Result<Factors> {
    let (cpu, candidate) = (session.series.cpu, session.candidate);
    if factors.contains(&Factor::Tick) && !candidate {
        let tick_off = place(Kind::Aoff, cpu, session.online(), &[]);
        session.conductor.check(cpu, &[tick_off]).map_err(ExperimentError::Conductor)?;
    }
    let kind = if candidate { Kind::Aoff } else { Kind::Aon };
    let mut running = session.start(load)?;
    let mut effects = Vec::new();
    for factor in factors {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // With first, then without first: what drifts over time meets both alike.
            let order = if round % 2 == 0 { [true, false] } else { [false, true] };
            for has in order {
                let word = if has { "with" } else { "without" };
                let (kind, left_out) = match (has, factor) {
                    (true, _) => (kind, vec![]),
                    (_, Factor::Tick) => (Kind::Aon, vec![]),
                    (_, Factor::Setting(name)) => (kind, vec![name.clone()]),
                };
                let name = format!("{factor}-{word}-{round}");
                let case = Case { kind, source: session.sources[0], without: left_out, name };
                let (dir, provenance) = session.one(load, &case, &mut running)?;
                session.write(&dir, &provenance)?;
                if let Some(reason) = provenance.partial {
                    let stopped = session.stopped();
                    let completion =
                        if stopped { Completion::Stopped } else { Completion::Partial };
                    return Ok(Factors::EndedEarly { reason, completion });
                }
                if has { &mut with } else { &mut without }.push(Run::read(&dir)?.values());
            }
        }
        let (median, p99) = (figure(&with, &without, 0.5), figure(&with, &without, 0.99));
        effects.push(Effect { factor: factor.clone(), median, p99 });
    }
    Ok(Factors::Compared(effects))
}

fn figure(with: &[Vec<u64>], without: &[Vec<u64>], part: f64) -> Option<Figure> {
    let all = compare::quantile(&with.concat(), &without.concat(), part)?;
    let agreeing = with
        .iter()
        .zip(without)
        .filter_map(|(with, without)| compare::quantile(with, without, part))
        .filter(|round| round.difference_ns.signum() == all.difference_ns.signum())
        .count();
    Some(Figure { all, agreeing, rounds: with.len() })
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let figure = |figure: &Option<Figure>, label: &str| -> String {
            let Some(figure) = figure else { return String::new() };
            let Difference { difference_ns, low_ns, high_ns, .. } = figure.all;
            let word = match (figure.is_sure(), difference_ns > 0) {
                (true, true) => "helps",
                (true, false) => "harms",
                (false, _) => "may be chance",
            };
            let us = |ns: i64| format!("{:+.1}", ns as f64 / 1e3);
            format!(
                "{label} {} [{} .. {}], {} of {} turns agree: {word}",
                us(difference_ns),
                us(low_ns),
                us(high_ns),
                figure.agreeing,
                figure.rounds
            )
        };
        let (median, p99) = (figure(&self.median, "median"), figure(&self.p99, "p99"));
        write!(f, "{}: {median}; {p99}", self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_helps_only_where_every_round_agrees() {
        let fast: Vec<u64> = (0..500).map(|value| 10_000 + value).collect();
        let slow: Vec<u64> = (0..500).map(|value| 30_000 + value).collect();
        let effect = |with: &[Vec<u64>], without: &[Vec<u64>]| {
            let (median, p99) = (figure(with, without, 0.5), figure(with, without, 0.99));
            Effect { factor: Factor::Setting("irqs".into()), median, p99 }.to_string()
        };
        let helps = effect(&[fast.clone(), fast.clone()], &[slow.clone(), slow.clone()]);
        assert!(
            helps.starts_with("irqs: median +20.0 [")
                && helps.contains("2 of 2 turns agree: helps"),
            "{helps}"
        );
        // All samples together leave no doubt, but one round says the opposite.
        let (later, earlier) = (vec![20_000; 500], vec![19_900; 500]);
        let with = [fast.clone(), fast, later];
        let mixed = effect(&with, &[slow.clone(), slow, earlier]);
        assert!(mixed.contains("2 of 3 turns agree: may be chance"), "{mixed}");
        assert_eq!(effect(&[], &[]), "irqs: ; ");
    }
}
