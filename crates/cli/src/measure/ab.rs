//! ab: which step of the plan helped. The same measurement in a partition with and without the step, in turn.

use super::series::{Case, Plant, What};
use crate::args::{Series, Tried};
use crate::exit::{PARTIAL, USAGE, failure};
use anyhow::Result;
use asmp_host::CpuSet;
use asmp_measure::compare;
use asmp_measure::run::{self, Kind, Run};
use asmp_shield::{Aspect, Refusal, Shield};

/// Each knob with and without, in turn; which helped, by how much, and how sure.
pub fn ab(shield: &Shield, series: &Series, what: What, knobs: &[Tried], rounds: u32) -> Result<u8> {
    let plant = Plant::new(shield, series, what)?;
    let load = match series.loads.as_slice() {
        [load] => *load,
        _ => return Err(failure(USAGE, "ab takes one --load")),
    };
    let candidate = plant.candidates.contains(plant.cpu);
    if knobs.contains(&Tried::Tick) && !candidate {
        return Err(Refusal::TickNotCandidate { cpus: CpuSet::from_iter([plant.cpu]) }.into());
    }
    let kind = if candidate { Kind::Aoff } else { Kind::Aon };
    let mut running = plant.start(load)?;
    let mut lines = Vec::new();
    for (knob, name) in knobs.iter().map(|knob| (*knob, name_of(*knob))) {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // With first, then without first: what drifts over time meets both alike.
            let order = if round % 2 == 0 { [true, false] } else { [false, true] };
            for has in order {
                let word = if has { "with" } else { "without" };
                let (kind, left_out) = match (has, knob) {
                    (true, _) => (kind, vec![]),
                    (_, Tried::Tick) => (Kind::Aon, vec![]),
                    (_, Tried::Step(step)) => (kind, vec![step]),
                };
                let name = format!("{name}-{word}-{round}");
                let case = Case { kind, source: plant.sources[0], without: left_out, name };
                let (dir, provenance) = plant.one(load, &case, &mut running)?;
                run::write_provenance(&dir, &provenance)?;
                if let Some(reason) = &provenance.partial {
                    println!("ended early ({reason}); what was measured is in {}", plant.dir.display());
                    return Ok(if plant.stopped() { 130 } else { PARTIAL });
                }
                if has { &mut with } else { &mut without }.push(Run::read(&dir)?.values());
            }
        }
        lines.push(verdict(&name, &with, &without));
    }
    drop(running);
    println!(
        "without - with, in microseconds, {load} load, CPU {}, {} samples a turn, {rounds} turns each; positive: the step helps",
        plant.cpu,
        what.samples()
    );
    lines.iter().for_each(|line| println!("{line}"));
    println!("runs in {}", plant.dir.display());
    Ok(0)
}

fn name_of(knob: Tried) -> String {
    match knob {
        Tried::Tick => "tick".to_owned(),
        Tried::Step(step) => {
            let named = Aspect::ALL.into_iter().find(|(_, aspect)| *aspect == step);
            named.map_or_else(String::new, |(name, _)| name.to_owned())
        }
    }
}

/// Samples of one turn depend on each other, so the interval alone would be too sure: every turn must agree.
fn verdict(name: &str, with: &[Vec<u64>], without: &[Vec<u64>]) -> String {
    let (all_with, all_without) = (with.concat(), without.concat());
    let figure = |part: f64, label: &str| -> String {
        let Some(all) = compare::quantile(&all_with, &all_without, part) else { return String::new() };
        let agree = with
            .iter()
            .zip(without)
            .filter_map(|(with, without)| compare::quantile(with, without, part))
            .filter(|turn| turn.difference_ns.signum() == all.difference_ns.signum())
            .count();
        let sure = all.is_sure() && agree == with.len();
        let word = match (sure, all.difference_ns > 0) {
            (true, true) => "helps",
            (true, false) => "harms",
            (false, _) => "may be chance",
        };
        let us = |ns: i64| format!("{:+.1}", ns as f64 / 1e3);
        format!(
            "{label} {} [{} .. {}], {agree} of {} turns agree: {word}",
            us(all.difference_ns),
            us(all.low_ns),
            us(all.high_ns),
            with.len()
        )
    };
    format!("{name}: {}; {}", figure(0.5, "median"), figure(0.99, "p99"))
}
