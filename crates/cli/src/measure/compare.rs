// SPDX-License-Identifier: Apache-2.0 OR MIT
//! compare: two directories of runs, figure by figure.

use crate::exit::{MIXED, failure};
use anyhow::Result;
use asmp_measure::compare::{Difference, Figure, fewest_rounds};
use asmp_measure::pairs::{Pair, pairs};
use asmp_measure::run::Run;
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
    differences: &'a [Difference],
}

pub fn compare(a: &[Run], b: &[Run], across: &[Setting], json: bool) -> Result<()> {
    let pairs = pairs(a, b, across).map_err(|error| failure(MIXED, error.to_string()))?;
    if json {
        let pairs: Vec<Compared> = pairs.iter().map(compared).collect();
        return crate::print::json(&serde_json::json!({ "schema": 1, "pairs": pairs }));
    }
    println!("B - A; sure: more than chance at 5 %, all figures together (exact ranks of rounds)");
    for pair in &pairs {
        println!("{}", heading(pair));
        for one in &pair.differences {
            let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
            println!("  {} -> {} us, {}", us(one.a_ns), us(one.b_ns), one.told());
        }
        let left_out = |figure: &Figure| pair.differences.iter().all(|one| one.figure != *figure);
        for figure in Figure::ALL.into_iter().filter(left_out) {
            let reason = match figure {
                Figure::Worst => "rounds differ in length by more than 1 %",
                _ => "not every round has enough instants, or rows, for it",
            };
            println!("  {} not compared: {reason}", figure.name());
        }
    }
    let all = || pairs.iter().flat_map(|pair| &pair.differences);
    let fewest = fewest_rounds(all().count());
    if all().any(|one| one.rounds.into_iter().any(|rounds| rounds < fewest)) {
        println!("{fewest} rounds on each side can be sure of {} figures", all().count());
    }
    Ok(())
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
    words.extend(pair.across.iter().map(|one| format!("{} {} and {}", one.setting, one.a, one.b)));
    let count = |side: &[&Run]| match side.len() {
        1 => "one run".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    format!("{}: {} and {}", words.join(", "), count(&pair.a), count(&pair.b))
}

fn compared<'a>(pair: &'a Pair) -> Compared<'a> {
    let provenance = &pair.a[0].provenance;
    let dirs = |side: &[&Run]| side.iter().map(|run| run.dir.display().to_string()).collect();
    let settings = Setting::ALL.into_iter();
    Compared {
        settings: settings.map(|one| (one.to_string(), one.of(provenance))).collect(),
        across: pair.across.iter().map(|one| (one.setting.to_string(), one.b.clone())).collect(),
        a: dirs(&pair.a),
        b: dirs(&pair.b),
        differences: &pair.differences,
    }
}
