// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek check`: is the set proved on this board, and how near is it to the edge?

use super::project::Project;
use super::{OnBoard, board_help, on_board};
use crate::exit::NOT_PROVED;
use crate::print::json;
use anyhow::Result;
use asmp_yartek::Sizes;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML or CSV, or a directory
    ///
    /// `asmp help analysis` describes the file. A directory has one task set, *.toml; what else is
    /// in it does not count. Example: asmp yartek check robot.toml --board mcf5208evb
    #[arg(value_name = "tasks.toml|DIR")]
    file: PathBuf,
    /// The board [default: the one that the file names]
    #[arg(long, value_name = "NAME", long_help = board_help("the one that the file names"))]
    board: Option<String>,
    /// Print JSON
    ///
    /// The object has `schema`, the verdict, the clock, the sizes (without any: `no_sizes`, why),
    /// and each task in ticks of the board. Times in nanoseconds are rounded to the safe side.
    /// Example: asmp yartek check robot.toml --json
    #[arg(long)]
    json: bool,
}

/// The exit code is the answer.
pub fn check(args: &Args) -> Result<u8> {
    let set = on_board(&Project::at(&args.file)?.tasks, args.board.as_deref())?;
    let sizes = sizes(&set);
    let code = if set.doubt().is_none() { 0 } else { NOT_PROVED };
    if args.json {
        json(&in_json(&set, &sizes))?;
        return Ok(code);
    }
    for line in lines(&set, &sizes) {
        println!("{line}");
    }
    Ok(code)
}

/// Of the image without an application. Errors: why they are not known, in a line.
fn sizes(set: &OnBoard) -> Result<Sizes, String> {
    let mut table = set.table.clone();
    table.tasks.iter_mut().for_each(|task| task.entry = None);
    table.lines.iter_mut().for_each(|line| line.entry = None);
    let sizes = asmp_yartek::sizes(&set.board.machine(), &table.source(None));
    sizes.map_err(|error| error.to_string())
}

/// For people.
fn lines(set: &OnBoard, sizes: &Result<Sizes, String>) -> Vec<String> {
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
    let clock = format!(
        "clock: {} = {} ticks of {}, {:+.1} ppm",
        clock.show_step(),
        clock.step_ticks(),
        clock.rate().show_tick(),
        clock.error_ppm()
    );
    match sizes {
        Ok(sizes) => {
            let (flash, ram) = (bytes_up(sizes.flash_bytes), bytes_up(sizes.ram_bytes));
            let stack = bytes_down(sizes.stack_bytes);
            lines.push(format!("{clock:<58} flash {flash}, RAM {ram} + stack {stack}"));
        }
        Err(why) => lines.extend([clock, format!("flash and RAM are not known: {why}")]),
    }
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

const TIMES: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];
const BYTES: [(&str, u64); 3] = [("MB", 1_000_000), ("kB", 1000), ("B", 1)];

fn up(ns: u64) -> String {
    tenths(ns, &TIMES, u64::div_ceil)
}

fn down(ns: u64) -> String {
    tenths(ns, &TIMES, |ns, tenth| ns / tenth)
}

fn bytes_up(bytes: u64) -> String {
    tenths(bytes, &BYTES, u64::div_ceil)
}

fn bytes_down(bytes: u64) -> String {
    tenths(bytes, &BYTES, |bytes, tenth| bytes / tenth)
}

/// Tenths of the largest unit that it has one of. The last unit is 1.
fn tenths(number: u64, units: &[(&str, u64)], round: fn(u64, u64) -> u64) -> String {
    match units.iter().find(|(_, one)| number >= *one).or(units.last()) {
        Some((unit, one)) if *one > 1 => {
            let all = round(number, one / 10);
            format!("{}.{} {unit}", all / 10, all % 10)
        }
        Some((unit, _)) => format!("{number} {unit}"),
        None => number.to_string(),
    }
}

fn in_json(set: &OnBoard, sizes: &Result<Sizes, String>) -> Value {
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
        "sizes": sizes.as_ref().ok().map(|sizes| json!({
            "flash_bytes": sizes.flash_bytes,
            "ram_bytes": sizes.ram_bytes,
            "stack_bytes": sizes.stack_bytes,
        })),
        "no_sizes": sizes.as_ref().err(),
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
        assert_eq!([1000, 1_000_001, 999].map(bytes_up), ["1.0 kB", "1.1 MB", "999 B"]);
        assert_eq!([1999, 32_504_000].map(bytes_down), ["1.9 kB", "32.5 MB"]);
        assert_eq!([257_099_999, 1_999_999_999, 0].map(down), ["257.0 ms", "1.9 s", "0 ns"]);
    }
}
