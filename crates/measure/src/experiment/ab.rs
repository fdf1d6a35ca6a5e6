// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which setting of a partition helps: the same measurement with and without it, in turn.

use super::series::{Case, Completion, Session, place};
use super::{ExperimentError, Result};
use crate::compare::{self, Difference, Figure};
use crate::histogram::Latencies;
use crate::load::{Load, Running};
use crate::run::{Kind, Run, Step};
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
pub struct Factors {
    /// The effect of each factor that was tried, by its complete rounds.
    pub effects: Vec<Effect>,
    pub ended_early: Option<EndedEarly>,
}

/// A run has fewer samples than asked for: no other one followed it.
#[derive(Debug)]
pub struct EndedEarly {
    pub reason: String,
    /// [`Completion::Stopped`] where the observer ended it.
    pub completion: Completion,
}

/// The effect of one factor: its figures without the factor less the same with it, those that the
/// samples of a round support. All effects of one comparison are judged together.
#[derive(Debug)]
pub struct Effect {
    pub factor: Factor,
    /// How many have a whole run with the factor and one without.
    pub rounds: u32,
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
    let Some(mut running) = session.start(load)? else {
        let early = EndedEarly { reason: "interrupted".into(), completion: Completion::Stopped };
        return Ok(Factors { effects: Vec::new(), ended_early: Some(early) });
    };
    in_turn(factors, rounds, |factor, round| {
        one_round(session, load, kind, factor, round, &mut running)
    })
}

/// Latencies of a round with the factor and without it.
type Round = std::result::Result<[Latencies; 2], EndedEarly>;

/// The effects by rounds that `measure` makes, up to the first that ended early.
fn in_turn(
    factors: &[Factor],
    rounds: u32,
    mut measure: impl FnMut(&Factor, u32) -> Result<Round>,
) -> Result<Factors> {
    let mut all = Factors { effects: Vec::new(), ended_early: None };
    for factor in factors {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            match measure(factor, round)? {
                Ok([has, lacks]) => {
                    with.push(has);
                    without.push(lacks);
                }
                Err(early) => {
                    all.ended_early = Some(early);
                    break;
                }
            }
        }
        all.effects.push(effect(factor.clone(), &with, &without));
        if all.ended_early.is_some() {
            break;
        }
    }
    compare::judge(all.effects.iter_mut().flat_map(|effect| &mut effect.figures));
    Ok(all)
}

/// Two runs. `kind` has the factor.
fn one_round(
    session: &Session,
    load: Load,
    kind: Kind,
    factor: &Factor,
    round: u32,
    running: &mut Running,
) -> Result<Round> {
    let mut measure = |has: bool| -> Result<std::result::Result<Latencies, EndedEarly>> {
        let (kind, left_out) = match (has, factor) {
            (true, _) => (kind, vec![]),
            (_, Factor::Tick) => (Kind::PartitionTick, vec![]),
            (_, Factor::Setting(name)) => (kind, vec![name.clone()]),
        };
        let step = Step { name: factor.to_string(), with: has };
        let name = format!("{step}-{round}");
        let source = session.sources[0];
        let case = Case { kind, source, without: left_out, step: Some(step), name };
        let (dir, provenance) = session.one(load, &case, None, running)?;
        let Some(reason) = provenance.partial else { return Ok(Ok(Run::read(&dir)?.latencies)) };
        let stopped = session.stopped();
        let completion = if stopped { Completion::Stopped } else { Completion::Partial };
        Ok(Err(EndedEarly { reason, completion }))
    };
    // With first, then without first: what drifts over time meets both alike.
    let has_first = round.is_multiple_of(2);
    let mut both = Vec::new();
    for has in [has_first, !has_first] {
        match measure(has)? {
            Ok(latencies) => both.push(latencies),
            Err(early) => return Ok(Err(early)),
        }
    }
    if !has_first {
        both.reverse();
    }
    Ok(Ok(both.try_into().expect("two runs")))
}

fn effect(factor: Factor, with: &[Latencies], without: &[Latencies]) -> Effect {
    let rounds = with.len() as u32;
    let (with, without): (Vec<_>, Vec<_>) = (with.iter().collect(), without.iter().collect());
    Effect { factor, rounds, figures: compare::differences(&with, &without, &FIGURES) }
}

impl Factors {
    /// Why and when the comparison of these factors ended early: `ended early (interrupted): only
    /// complete rounds count: tick 6 of 6, irqs 5 of 6`.
    pub fn told_early(&self, factors: &[Factor], rounds: u32) -> Option<String> {
        let reason = &self.ended_early.as_ref()?.reason;
        let complete = |factor: &Factor| {
            let effect = self.effects.iter().find(|effect| effect.factor == *factor);
            format!("{factor} {} of {rounds}", effect.map_or(0, |effect| effect.rounds))
        };
        let complete: Vec<String> = factors.iter().map(complete).collect();
        let complete = complete.join(", ");
        Some(format!("ended early ({reason}): only complete rounds count: {complete}"))
    }
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

    #[test]
    fn what_ended_early_tells_the_effects_of_its_complete_rounds() {
        let factors = ["irqs", "timers", "watchdog"].map(|name| Factor::Setting(name.into()));
        let level = |ns: u64, round: u32| {
            Latencies::of((0..500).map(|turn| ns + u64::from(round) * 100 + turn))
        };
        let until = |last: (&str, u32)| {
            let measure = |factor: &Factor, round: u32| {
                if (factor.to_string().as_str(), round) == last {
                    let completion = Completion::Stopped;
                    return Ok(Err(EndedEarly { reason: "interrupted".into(), completion }));
                }
                Ok(Ok([level(10_000, round), level(30_000, round)]))
            };
            in_turn(&factors, 6, measure).unwrap()
        };
        let found = until(("timers", 5));
        let rounds: Vec<u32> = found.effects.iter().map(|effect| effect.rounds).collect();
        assert_eq!(rounds, [6, 5]);
        assert!(found.effects[1].to_string().starts_with("timers: median +20.0 ["), "{found:?}");
        assert!(found.effects[1].figures[0].is_sure, "{found:?}");
        assert_eq!(
            found.told_early(&factors, 6).unwrap(),
            "ended early (interrupted): only complete rounds count: irqs 6 of 6, timers 5 of 6, \
             watchdog 0 of 6"
        );
        let whole = until(("none", 0));
        assert_eq!((whole.effects.len(), whole.told_early(&factors, 6)), (3, None));
        assert_eq!(until(("irqs", 0)).effects[0].rounds, 0);
    }
}
