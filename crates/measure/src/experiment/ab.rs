// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which setting of a partition helps: the same measurement with and without it, in turn.

use super::series::{Case, Completion, Session, place};
use super::{ExperimentError, Result};
use crate::compare::{self, Difference, Figure};
use crate::histogram::Latencies;
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

/// The effect of one factor: its figures without the factor less the same with it, those that the
/// samples of a round support. All effects of one comparison are judged together.
#[derive(Debug)]
pub struct Effect {
    pub factor: Factor,
    pub figures: Vec<Difference>,
}

/// What is compared of each factor.
const FIGURES: [Figure; 2] = [Figure::Median, Figure::P99];

/// Rounds that can make one of the figures of so many factors sure.
pub fn fewest_rounds(factors: usize) -> usize {
    compare::fewest_rounds(factors * FIGURES.len())
}

/// Measures with and without each factor, `rounds` times each, under one load.
pub fn compare_factors(
    session: &Session,
    load: Load,
    factors: &[Factor],
    rounds: u32,
) -> Result<Factors> {
    let runs = factors.len() as u64 * u64::from(rounds) * 2;
    session.observer.expects(runs, session.measurement.samples());
    let compared = compare_in_turn(session, load, factors, rounds);
    session.observer.ends();
    compared
}

fn compare_in_turn(
    session: &Session,
    load: Load,
    factors: &[Factor],
    rounds: u32,
) -> Result<Factors> {
    let (cpu, candidate) = (session.series.cpu, session.candidate);
    if factors.contains(&Factor::Tick) && !candidate {
        let tick_off = place(Kind::Partition, cpu, session.online(), &[]);
        session.conductor.check(cpu, &[tick_off]).map_err(ExperimentError::Conductor)?;
    }
    let kind = if candidate { Kind::Partition } else { Kind::PartitionTick };
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
                    (_, Factor::Tick) => (Kind::PartitionTick, vec![]),
                    (_, Factor::Setting(name)) => (kind, vec![name.clone()]),
                };
                let name = format!("{factor}-{word}-{round}");
                let case = Case { kind, source: session.sources[0], without: left_out, name };
                let (dir, provenance) = session.one(load, &case, None, &mut running)?;
                if let Some(reason) = provenance.partial {
                    let stopped = session.stopped();
                    let completion =
                        if stopped { Completion::Stopped } else { Completion::Partial };
                    return Ok(Factors::EndedEarly { reason, completion });
                }
                if has { &mut with } else { &mut without }.push(Run::read(&dir)?.latencies);
            }
        }
        effects.push(effect(factor.clone(), &with, &without));
    }
    compare::judge(effects.iter_mut().flat_map(|effect| &mut effect.figures));
    Ok(Factors::Compared(effects))
}

fn effect(factor: Factor, with: &[Latencies], without: &[Latencies]) -> Effect {
    let (with, without): (Vec<_>, Vec<_>) = (with.iter().collect(), without.iter().collect());
    Effect { factor, figures: compare::differences(&with, &without, &FIGURES) }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:", self.factor)?;
        for (turn, one) in self.figures.iter().enumerate() {
            let word = match (one.is_sure, one.difference_ns > 0) {
                (true, true) => "helps",
                (true, false) => "harms",
                (false, _) => "may be chance",
            };
            let us = |ns: i64| format!("{:+.1}", ns as f64 / 1e3);
            let gap = if turn > 0 { ";" } else { "" };
            write!(f, "{gap} {} {}", one.figure.name(), us(one.difference_ns))?;
            if let Some([low, high]) = one.interval_ns {
                write!(f, " [{} .. {}]", us(low), us(high))?;
            }
            if let Some(p) = one.p {
                write!(f, ", p {p:.4}")?;
            }
            write!(f, ": {word}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_helps_only_where_its_rounds_are_surely_apart() {
        // A round each level; its samples lie within half a microsecond.
        let rounds = |levels: &[u64]| -> Vec<Latencies> {
            let of = |level: &u64| Latencies::of((0..500).map(|value| level * 1000 + value));
            levels.iter().map(of).collect()
        };
        let says = |with: &[u64], without: &[u64]| {
            let factor = Factor::Setting("irqs".into());
            let mut effect = effect(factor, &rounds(with), &rounds(without));
            compare::judge(&mut effect.figures);
            effect.to_string()
        };
        let (fast, slow) = ([10, 11, 12, 13, 14, 15], [30, 31, 32, 33, 34, 35]);
        let helps = says(&fast, &slow);
        assert!(helps.starts_with("irqs: median +20.0 [+17"), "{helps}");
        assert!(helps.contains("p 0.0022: helps; p99 +20.0"), "{helps}");
        assert!(says(&slow, &fast).contains("-20.0") && says(&slow, &fast).contains("harms"));
        // Twenty times as far, but rounds overlap: all samples together would leave no doubt.
        let mixed = says(&[10, 11, 12, 413, 14, 15], &[30, 411, 32, 12, 434, 13]);
        assert!(mixed.contains("may be chance") && !mixed.contains("helps"), "{mixed}");
        // Two rounds each cannot be sure, whatever they say.
        assert!(says(&fast[..2], &slow[..2]).contains("p 0.3333: may be chance"));
        assert_eq!(says(&[], &[]), "irqs:");
        assert_eq!((fewest_rounds(1), fewest_rounds(9)), (5, 6));
    }
}
