// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp analyze place`: which task on which CPU.

use super::files::{self, print_json};
use crate::exit::UNDECIDED;
use crate::table::table;
use anyhow::Result;
use asmp_analysis::place::{By, place as placed};
use asmp_analysis::{Effort, Policy, Stop};
use asmp_host::CpuSet;
use clap::ValueEnum;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML, or in CSV if the name ends in .csv
    ///
    /// Example: asmp analyze place tasks.toml --cpus 1-3
    #[arg(value_name = "tasks.toml")]
    file: PathBuf,
    /// CPUs to place tasks on
    ///
    /// They are tried in this order. Example: --cpus 1-3
    #[arg(long, value_name = "LIST", value_parser = super::some_cpus)]
    cpus: CpuSet,
    /// Heuristic that chooses the CPU
    ///
    /// first-fit, best-fit or worst-fit place single tasks. bfd-partitioned places whole
    /// applications by CPU time, memory and bandwidth, and cuts one only if it fits on no CPU.
    /// Example: --by best-fit
    #[arg(long, value_enum, default_value = "first-fit")]
    by: Heuristic,
    /// Policy whose test decides what fits on a CPU
    ///
    /// np-edf, edf, rm, dm, fp, np-fp or muf. A CPU takes a task if this test accepts all of its
    /// tasks. Example: --policy np-edf
    #[arg(long, default_value = "edf")]
    policy: Policy,
    /// Print JSON
    ///
    /// The object has `schema` and the CPU of each task. Example: asmp analyze place tasks.toml
    /// --cpus 1-3 --json
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Heuristic {
    FirstFit,
    BestFit,
    WorstFit,
    /// Keep each application on one CPU if it fits, by CPU time, memory and bandwidth
    BfdPartitioned,
}

/// Unknown if some task is on no CPU: a heuristic proves no impossibility.
pub fn place(args: &Args) -> Result<u8> {
    let file = files::tasks(&args.file)?;
    let workload = &file.workload;
    let by = match args.by {
        Heuristic::FirstFit => By::FirstFit,
        Heuristic::BestFit => By::BestFit,
        Heuristic::WorstFit => By::WorstFit,
        Heuristic::BfdPartitioned => By::BfdPartitioned,
    };
    let cpus: Vec<u32> = args.cpus.iter().collect();
    let (tasks, effort) = (&workload.tasks, Effort::default());
    let refused = |error: Stop| file.undecided(error);
    workload.check_placeable(&cpus).map_err(|reason| refused(reason.into()))?;
    if tasks.iter().any(|task| task.offset_ticks.is_some()) {
        let note = "a task is placed for any first arrival: no offset makes a place tighter";
        eprintln!("asmp: note: {note}");
    }
    let placement =
        placed(tasks, &cpus, by, args.policy, &workload.room, &effort).map_err(refused)?;
    let code = if placement.is_complete() { 0 } else { UNDECIDED };
    if args.json {
        print_json(json!({ "tasks": tasks, "placement": placement }), workload.time)?;
        return Ok(code);
    }
    let mut rows = vec![["CPU", "used", "memory", "bandwidth", "tasks"].map(str::to_owned)];
    for load in &placement.loads {
        let names: Vec<&str> = load.tasks.iter().map(|index| tasks[*index].name.as_str()).collect();
        rows.push([
            load.cpu.to_string(),
            format!("{:.1} %", load.utilisation_ppm as f64 / 1e4),
            load.memory_bytes.to_string(),
            load.bandwidth.to_string(),
            names.join(", "),
        ]);
    }
    print!("{}", table(&rows));
    for cut in &placement.cut {
        println!("application {cut} is split: it fits on no single CPU");
    }
    for unplaced in &placement.unplaced {
        println!("no CPU for {}: {}", tasks[unplaced.task].name, unplaced.reason);
    }
    Ok(code)
}
