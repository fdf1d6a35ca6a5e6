// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek check FILE`: is the set proved on this board, and how near is it to the edge?

use super::{OnBoard, on_board};
use crate::exit::NOT_PROVED;
use crate::print::json;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML, or in CSV if the name ends in .csv
    ///
    /// `asmp help analysis` describes the file. Example: asmp yartek check robot.toml --board
    /// mcf5208evb
    #[arg(value_name = "tasks.toml")]
    file: PathBuf,
    /// The board [default: the one that the file names]
    ///
    /// mcf5208evb (ColdFire V2) or mps2-an385 (Cortex-M3). Example: --board mps2-an385
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Print JSON
    ///
    /// The object has `schema`, the verdict, the clock, and each task in ticks of the board. Times
    /// in nanoseconds are rounded to the safe side. Example: asmp yartek check robot.toml --json
    #[arg(long)]
    json: bool,
}

/// The exit code is the answer.
pub fn check(args: &Args) -> Result<u8> {
    let set = on_board(&args.file, args.board.as_deref())?;
    let code = if set.doubt().is_none() { 0 } else { NOT_PROVED };
    if args.json {
        json(&in_json(&set))?;
        return Ok(code);
    }
    for line in lines(&set) {
        println!("{line}");
    }
    Ok(code)
}

/// For people.
fn lines(set: &OnBoard) -> Vec<String> {
    let OnBoard { file, table, proof, .. } = set;
    let (tasks, interrupts) = (&file.workload.tasks, table.lines.len());
    let with = match interrupts {
        0 => "the kernel".to_owned(),
        1 => "the kernel and 1 interrupt line".to_owned(),
        _ => format!("the kernel and {interrupts} interrupt lines"),
    };
    let mut lines = vec![format!(
        "np-edf: {} tasks, utilisation {:.1} %, with {with} {:.1} %: {}",
        tasks.len(),
        proof.utilisation * 100.0,
        proof.whole_utilisation * 100.0,
        set.answer()
    )];
    lines.push(set.doubt().unwrap_or_else(|| tightest(set)));
    if tasks.iter().any(|task| task.cost.is_measured()) {
        lines.push("some costs are measured: it holds while no job takes longer".to_owned());
    }
    let clock = &table.clock;
    lines.push(format!(
        "clock: {} = {} ticks of {}, {:+.1} ppm",
        clock.show_step(),
        clock.step_ticks(),
        clock.rate().show_tick(),
        clock.error_ppm()
    ));
    lines
}

/// The task that is nearest to its deadline, and by how much any one cost may grow.
fn tightest(set: &OnBoard) -> String {
    let OnBoard { table, proof, .. } = set;
    let ns_up = |ticks| table.clock.rate().ns_up(ticks).unwrap_or(u64::MAX);
    let Some(cpu) = proof.report.cpus.first() else { return "no task".to_owned() };
    let Some(at) = cpu.by_tightness(&proof.tasks).first().copied() else {
        return "no task".to_owned();
    };
    let task = &proof.tasks[cpu.tasks[at]];
    let deadline =
        set.file.workload.time.show(set.file.workload.tasks[cpu.tasks[at]].deadline_ticks);
    let left = format!("tightest: {}, worst response", task.name);
    let left = match cpu.responses_ticks[at] {
        Some(response) => format!("{left} {} of {deadline}", up(ns_up(response))),
        None => format!("{left} not known, deadline {deadline}"),
    };
    // All of them are known, or none is.
    let extra = proof.extra_ticks.iter().copied().min().flatten();
    match extra.and_then(|extra| table.clock.rate().ns_down(extra)) {
        Some(extra_ns) => format!("{left:<58} any cost may grow by {}", down(extra_ns)),
        None => left,
    }
}

/// Tenths of the largest unit that it has one of, rounded up.
fn up(ns: u64) -> String {
    tenths(ns, |ns, tenth| ns.div_ceil(tenth))
}

/// The same, rounded down.
fn down(ns: u64) -> String {
    tenths(ns, |ns, tenth| ns / tenth)
}

fn tenths(ns: u64, round: fn(u64, u64) -> u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let Some((unit, of_ns)) = units.into_iter().find(|(_, of_ns)| ns >= *of_ns) else {
        return format!("{ns} ns");
    };
    let all = round(ns, of_ns / 10);
    format!("{}.{} {unit}", all / 10, all % 10)
}

fn in_json(set: &OnBoard) -> Value {
    let OnBoard { board, table, proof, .. } = set;
    let rate = table.clock.rate();
    let ns = |ticks: Option<u64>| ticks.and_then(|ticks| rate.ns_up(ticks));
    let cpu = proof.report.cpus.first();
    let response = |task: usize| cpu.and_then(|cpu| cpu.responses_ticks[task]);
    let tasks = table.tasks.iter().zip(&proof.tasks).enumerate().map(|(at, (task, whole))| {
        let extra = proof.extra_ticks[at];
        json!({
            "name": task.name,
            "entry": task.entry,
            "sporadic": task.is_sporadic,
            "period_ticks": task.times.period_ticks,
            "deadline_ticks": task.times.deadline_ticks,
            "offset_ticks": task.times.offset_ticks,
            "cost_ticks": task.times.cost_ticks,
            "whole_cost_ticks": whole.cost_ticks(),
            "response_ns": ns(response(at)),
            "may_grow_ns": extra.and_then(|extra| rate.ns_down(extra)),
        })
    });
    let lines = table
        .lines
        .iter()
        .map(|line| json!({ "name": line.name, "entry": line.entry, "most": line.most }));
    json!({
        "schema": 1,
        "board": board.name,
        "verdict": set.answer(),
        "reason": set.doubt(),
        "utilisation": proof.utilisation,
        "whole_utilisation": proof.whole_utilisation,
        "clock": {
            "step": table.clock.show_step(),
            "step_ticks": table.clock.step_ticks(),
            "tick": rate.show_tick(),
            "error_ppm": table.clock.error_ppm(),
        },
        "tasks": tasks.collect::<Vec<_>>(),
        "interrupts": lines.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_rounded_up_and_room_down() {
        assert_eq!([241_120_001, 71_000, 999].map(up), ["241.2 ms", "71.0 us", "999 ns"]);
        assert_eq!([257_099_999, 1_999_999_999, 0].map(down), ["257.0 ms", "1.9 s", "0 ns"]);
    }
}
