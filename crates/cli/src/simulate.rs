//! `asmp simulate`: a task set in the simulator.

use crate::analyze::{picture, read, write};
use crate::exit::{CANNOT_WORK, UNKNOWN, USAGE, failure};
use crate::graph::table;
use anyhow::Result;
use asmp_analysis::simulate::{
    End, Execution, Record, Releases, Run, Simulation, Statistics, perfetto, worst_pattern,
};
use asmp_analysis::units::{parse_ns, show_ns};
use asmp_analysis::verdict::Counterexample;
use asmp_analysis::{Effort, Policy, Task, edf_response, slack};
use clap::ValueEnum;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Segments and instants of a trace.
const TRACED: usize = 1_000_000;
/// Jobs of a run.
const MOST_JOBS: u64 = 1_000_000_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tasks as TOML, or CSV by its name
    #[arg(value_name = "tasks.toml")]
    file: PathBuf,
    /// np-edf, edf, rm, dm, fp, np-fp, muf
    #[arg(long)]
    policy: Policy,
    /// Simulated time
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time)]
    time_ns: u64,
    /// Decides all chance: the same seed gives the same bytes
    #[arg(long, default_value = "0")]
    seed: u64,
    /// random: offsets, gaps and jitter by chance; sync: all as early as they may; worst: the counterexample, or what is
    /// worst for the tightest task
    #[arg(long, value_enum, default_value = "random")]
    offsets: Offsets,
    /// Go through the counterexample of `asmp analyze --json` that this file holds
    #[arg(long, value_name = "FILE", conflicts_with = "offsets")]
    replay: Option<PathBuf>,
    /// Jobs take between this part of their cost and all of it
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u32).range(0..=100))]
    least: u32,
    /// This many jobs in a million overrun
    #[arg(long, value_name = "PPM", default_value = "0", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    overruns: u32,
    /// How long an overrunning job takes
    #[arg(long, value_name = "PERCENT", default_value = "150", value_parser = clap::value_parser!(u32).range(0..=4000))]
    overrun: u32,
    /// A trace that Perfetto opens
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// A picture
    #[arg(long, value_name = "FILE")]
    gantt: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Offsets {
    Random,
    Sync,
    Worst,
}

fn time(text: &str) -> Result<u64, String> {
    parse_ns(text)
        .map_err(|error| error.to_string())
        .and_then(|ns| if ns > 0 { Ok(ns) } else { Err("0 is no time".into()) })
}

/// Exit code 1 where a deadline was missed; no miss proves nothing.
pub fn simulate(args: &Args) -> Result<u8> {
    let workload = read(&args.file)?;
    let tasks = &workload.tasks;
    let releases = match (&args.replay, args.offsets) {
        (Some(path), _) => Releases::Pattern(replayed(path)?.pattern),
        (None, Offsets::Random) => Releases::Random,
        (None, Offsets::Sync) => Releases::Together,
        (None, Offsets::Worst) => Releases::Pattern(worst(tasks, args.policy)?.pattern),
    };
    let execution = Execution {
        least_ppm: args.least * 10_000,
        overrun_chance_ppm: args.overruns,
        overrun_ppm: args.overrun * 10_000,
    };
    let simulation = Simulation {
        seed: args.seed,
        execution,
        background: &workload.background,
        interrupts: &workload.interrupts,
        chains: &workload.chains,
        ..Simulation::new(tasks, args.policy, releases)
    };
    let mut run = Run::prepare(&simulation).map_err(|error| failure(UNKNOWN, error.to_string()))?;
    let mut statistics = Statistics::of(&run);
    let mut record = Record::up_to(if args.trace.is_some() { TRACED } else { 0 });
    let end = run.go(args.time_ns, MOST_JOBS, &mut (&mut statistics, &mut record));
    let misses = statistics.miss_count(&run);
    if let Some(path) = &args.trace {
        write(path, &perfetto::trace(&run, &record))?;
        if record.is_cut {
            eprintln!("asmp: the trace has the first {TRACED} segments only");
        }
    }
    if let Some(path) = &args.gantt {
        picture(path, &simulation, args.time_ns, &format!("{} for {}", args.policy, show_ns(args.time_ns)))?;
    }
    let rows = statistics.rows(&run);
    if args.json {
        let json = json!({
            "schema": 1, "policy": args.policy, "seed": args.seed, "simulated_ns": run.now_ns(), "jobs": run.jobs(),
            "misses": misses, "first_misses": statistics.misses(&run), "streams": rows,
        });
        println!("{}", serde_json::to_string_pretty(&json)?);
    } else {
        let header =
            ["name", "jobs", "misses", "least", "average", "median", "p99", "longest", "longest gap"];
        let mut lines = vec![header.map(str::to_owned)];
        for row in &rows {
            let show = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), show_ns);
            let response = [row.min_ns, row.average_ns, row.p50_ns, row.p99_ns, row.max_ns].map(show);
            let [least, average, median, p99, longest] = response;
            let (jobs, missed) = (row.jobs.to_string(), row.misses.to_string());
            let name =
                if run.cpus.len() > 1 { format!("{} (CPU {})", row.name, row.cpu) } else { row.name.clone() };
            lines.push([
                name,
                jobs,
                missed,
                least,
                average,
                median,
                p99,
                longest,
                show_ns(row.longest_gap_ns),
            ]);
        }
        print!("{}", table(&lines));
        println!("\n{} jobs in {}, {misses} deadlines missed", run.jobs(), show_ns(run.now_ns()));
        for missed in statistics.misses(&run).iter().take(5) {
            let finished = missed
                .finished_ns
                .map_or_else(|| "not yet finished".to_owned(), |at| format!("finished {}", show_ns(at)));
            let (name, due) = (&tasks[missed.task].name, show_ns(missed.deadline_ns));
            println!("job {} of {name}: due {due}, {finished}", missed.job);
        }
    }
    if end != End::Horizon {
        eprintln!("asmp: stopped at {}: too many jobs wait or were released", show_ns(run.now_ns()));
        return Ok(if misses > 0 { CANNOT_WORK } else { UNKNOWN });
    }
    Ok(if misses > 0 { CANNOT_WORK } else { 0 })
}

/// A counterexample, alone or anywhere in the output of `analyze --json`.
fn replayed(path: &Path) -> Result<Counterexample> {
    let wrong = |reason: String| failure(USAGE, format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let found = find(&value).unwrap_or(&value);
    serde_json::from_value(found.clone()).map_err(|error| wrong(format!("holds no counterexample: {error}")))
}

fn find(value: &serde_json::Value) -> Option<&serde_json::Value> {
    match value {
        serde_json::Value::Object(fields) => {
            fields.get("counterexample").or_else(|| fields.values().find_map(find))
        }
        serde_json::Value::Array(items) => items.iter().find_map(find),
        _ => None,
    }
}

/// What the test fears, or what is worst for the task with least room.
fn worst(tasks: &[Task], policy: Policy) -> Result<Counterexample> {
    let effort = Effort::default();
    let verdict = slack::test(tasks, policy, &effort);
    if let Some(found) = verdict.counterexample() {
        return Ok(found.clone());
    }
    let responses = match policy {
        Policy::NpEdf | Policy::Edf => edf_response::responses(tasks, policy == Policy::NpEdf, &effort).ok(),
        _ => None,
    };
    let left = |at: &usize| {
        let response = responses.as_ref().map_or_else(|| tasks[*at].cost_ns(), |all| all[*at]);
        tasks[*at].deadline_ns.saturating_sub(response)
    };
    let victim = (0..tasks.len()).min_by_key(left).unwrap_or(0);
    let pattern =
        worst_pattern(tasks, policy, victim).map_err(|error| failure(UNKNOWN, error.to_string()))?;
    Ok(Counterexample { pattern, by_ns: None, missed: None })
}
