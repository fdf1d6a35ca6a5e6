// SPDX-License-Identifier: Apache-2.0 OR MIT
//! compare: two directories of runs, figure by figure.

use crate::exit::{MIXED, USAGE, failure};
use anyhow::Result;
use asmp_measure::compare::{Difference, Figure, are_of_one_length, fewest_rounds, us};
use asmp_measure::pairs::{Differing, Pair, Pairs, lost, pairs};
use asmp_measure::run::{Kind, Run, Source};
use asmp_measure::settings::Setting;
use serde::Serialize;
use std::collections::BTreeMap;

/// A pair in JSON.
#[derive(Serialize)]
struct Compared<'a> {
    /// What the runs of A have of each setting.
    settings: BTreeMap<String, String>,
    /// Where those of B have something else.
    across: BTreeMap<String, String>,
    a: Vec<String>,
    b: Vec<String>,
    /// Samples of A, and of B, whose latencies are not known.
    lost: [u64; 2],
    /// Instants that were missed, which count in all figures; null of imports.
    missed: [Option<u64>; 2],
    /// How many runs of A, and of B, are partial.
    partial: [usize; 2],
    /// What a reader must know before believing the differences.
    reservations: Vec<String>,
    differences: &'a [Difference],
    /// Figures of which there is no difference.
    not_compared: Vec<LeftOut>,
}

/// A figure that is not compared, and why.
#[derive(Serialize)]
struct LeftOut {
    figure: Figure,
    reason: &'static str,
}

/// What is compared of two directories, or of one with itself.
pub struct Sides<'a> {
    pub a: &'a [Run],
    pub b: &'a [Run],
    /// Those of A and of B; all where none are named.
    pub kinds: Option<[Kind; 2]>,
    /// Settings in which the two may differ.
    pub across: &'a [Setting],
}

pub fn compare(sides: &Sides, json: bool) -> Result<()> {
    let [of_a, of_b] = sides.kinds.map_or([None; 2], |kinds| kinds.map(Some));
    let (a, b) = (of_kind(sides.a, of_a)?, of_kind(sides.b, of_b)?);
    let named = sides.across.iter().copied();
    let across: Vec<Setting> = named.chain(sides.kinds.map(|_| Setting::Kind)).collect();
    let found = pairs(a, b, &across).map_err(|error| failure(MIXED, error.to_string()))?;
    let Pairs { pairs, alone } = &found;
    if json {
        let pairs: Vec<Compared> = pairs.iter().map(compared).collect();
        let alone = dirs(&alone.concat());
        let all = serde_json::json!({ "schema": 1, "pairs": pairs, "without_partner": alone });
        return crate::print::json(&all);
    }
    line!("B - A; sure: more than chance at 5 %, all figures together (ranks of rounds)");
    for pair in pairs {
        line!("{}", heading(pair));
        for one in &pair.differences {
            line!("  {} -> {} us, {}", us(one.a_ns), us(one.b_ns), one.told());
        }
        for LeftOut { figure, reason } in left_out(pair) {
            line!("  {} not compared: {reason}", figure.name());
        }
        pair.reservations().iter().for_each(|said| line!("  {said}"));
        if let Some(said) = pair.told() {
            line!("  {said}");
        }
    }
    if !alone.is_empty() {
        let of = |side: &Vec<&Run>| {
            format!("{} ({}, {})", side[0].dir.display(), side[0].name(), count(side))
        };
        let alone: Vec<String> = alone.iter().map(of).collect();
        line!("not compared, without a partner on the other side: {}", alone.join(", "));
    }
    let all = || pairs.iter().flat_map(|pair| &pair.differences);
    let fewest = fewest_rounds(all().count());
    if all().any(|one| one.rounds.into_iter().any(|rounds| rounds < fewest)) {
        let figures = match all().count() {
            1 => "one figure".to_owned(),
            count => format!("{count} figures"),
        };
        line!("too few rounds: to be sure of {figures} takes {fewest} on each side");
    }
    Ok(())
}

fn left_out(pair: &Pair) -> Vec<LeftOut> {
    let is_missing = |figure: &Figure| pair.differences.iter().all(|one| one.figure != *figure);
    let missing = Figure::ALL.into_iter().filter(is_missing);
    missing.map(|figure| LeftOut { figure, reason: why_left_out(pair, figure) }).collect()
}

fn why_left_out(pair: &Pair, figure: Figure) -> &'static str {
    let instants = || pair.a.iter().chain(&pair.b).map(|run| run.latencies.instants());
    let (least, most) = (instants().min().unwrap_or(0), instants().max().unwrap_or(0));
    match figure {
        Figure::Worst if !are_of_one_length(least, most) => {
            "rounds differ in length by more than 1 %: measure them with --for"
        }
        Figure::Worst => "the worst of a round is not known",
        _ => "not every round has enough instants, or rows, for it",
    }
}

/// What is compared: settings that both sides share, and those that differ.
fn heading(pair: &Pair) -> String {
    let provenance = &pair.a[0].provenance;
    let of = |setting: Setting| setting.of(provenance);
    let shared = |setting: &Setting| pair.across.iter().all(|one| one.setting != *setting);
    let told = [Setting::Source, Setting::Period, Setting::Priority];
    let mut words = vec![pair.a[0].name()];
    words.extend(
        told.into_iter().filter(shared).map(|setting| format!("{setting} {}", of(setting))),
    );
    if shared(&Setting::Kernel) {
        words.push(format!("kernel {}", provenance.machine.kernel));
    }
    // As of policy and period: two that are not known are not the same.
    if provenance.source == Source::Import && shared(&Setting::Machine) {
        words.push(format!("machine {}", of(Setting::Machine)));
    }
    let across = |one: &Differing| format!("{} {}", one.setting, one.told.join(" and "));
    words.extend(pair.across.iter().map(across));
    format!("{}: {} and {}", words.join(", "), count(&pair.a), count(&pair.b))
}

fn count(side: &[&Run]) -> String {
    match side.len() {
        1 => "one run".to_owned(),
        rounds => format!("{rounds} rounds"),
    }
}

/// Those of a kind; all where none is named.
fn of_kind(runs: &[Run], kind: Option<Kind>) -> Result<Vec<&Run>> {
    let is_of = |run: &&Run| kind.is_none_or(|kind| run.provenance.kind == kind);
    let found: Vec<&Run> = runs.iter().filter(is_of).collect();
    match kind {
        Some(kind) if found.is_empty() => Err(failure(USAGE, format!("--kinds: no run of {kind}"))),
        _ => Ok(found),
    }
}

fn dirs(runs: &[&Run]) -> Vec<String> {
    runs.iter().map(|run| run.dir.display().to_string()).collect()
}

fn compared<'a>(pair: &'a Pair) -> Compared<'a> {
    let provenance = &pair.a[0].provenance;
    let settings = Setting::ALL.into_iter();
    let sides = [&pair.a, &pair.b];
    let missed = |side: &Vec<&Run>| {
        let missed = side.iter().map(|run| run.latencies.known_missed());
        missed.sum::<Option<u64>>()
    };
    Compared {
        settings: settings.map(|one| (one.to_string(), one.of(provenance))).collect(),
        across: pair.across.iter().map(|one| (one.setting.to_string(), one.b.clone())).collect(),
        a: dirs(&pair.a),
        b: dirs(&pair.b),
        lost: sides.map(|side| lost(side)),
        missed: sides.map(missed),
        partial: sides
            .map(|side| side.iter().filter(|run| run.provenance.partial.is_some()).count()),
        reservations: pair.reservations(),
        differences: &pair.differences,
        not_compared: left_out(pair),
    }
}
