//! `asmp analyze place`: which task on which CPU.

use crate::exit::{UNKNOWN, failure};
use crate::graph::table;
use anyhow::Result;
use asmp_analysis::place::{By, place as placed};
use asmp_analysis::{Effort, Policy};
use asmp_host::CpuSet;
use clap::ValueEnum;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tasks as TOML, or CSV by its name
    #[arg(value_name = "tasks.toml")]
    file: PathBuf,
    /// CPUs, in the order in which they are tried
    #[arg(long, value_name = "LIST", value_parser = super::some_cpus)]
    cpus: CpuSet,
    #[arg(long, value_enum, default_value = "first-fit")]
    by: Heuristic,
    /// Whose test says what a CPU takes
    #[arg(long, default_value = "edf")]
    policy: Policy,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Heuristic {
    FirstFit,
    BestFit,
    WorstFit,
    /// Whole applications, in CPU time, memory and bandwidth; cut only where they fit nowhere whole
    BfdPartitioned,
}

/// Exit code 3 where not everything found a place: a heuristic proves no impossibility.
pub fn place(args: &Args) -> Result<u8> {
    let workload = super::read(&args.file)?;
    let by = match args.by {
        Heuristic::FirstFit => By::FirstFit,
        Heuristic::BestFit => By::BestFit,
        Heuristic::WorstFit => By::WorstFit,
        Heuristic::BfdPartitioned => By::BfdPartitioned,
    };
    let cpus: Vec<u32> = args.cpus.iter().collect();
    let (tasks, effort) = (&workload.tasks, Effort::default());
    let placement = placed(tasks, &cpus, by, args.policy, &workload.room, &effort)
        .map_err(|error| failure(UNKNOWN, format!("{}: {error}", args.file.display())))?;
    let code = if placement.is_complete() { 0 } else { UNKNOWN };
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&json!({ "schema": 1, "tasks": tasks, "placement": placement }))?
        );
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
        println!("application {cut} is cut: it fits on no CPU whole");
    }
    for unplaced in &placement.unplaced {
        println!("no place for {}: {}", tasks[unplaced.task].name, unplaced.reason);
    }
    Ok(code)
}
