//! `asmp simulate`: a task set in the simulator.

use crate::analyze::{in_file, picture, read, write};
use crate::exit::{CANNOT_WORK, UNKNOWN, USAGE, failure};
use crate::graph::table;
use anyhow::Result;
use asmp_analysis::simulate::{
    End, Execution, Record, Releases, Run, Simulation, Statistics, perfetto, worst_pattern,
};
use asmp_analysis::units::{parse_ns, show_ns};
use asmp_analysis::verdict::{Counterexample, Start};
use asmp_analysis::{Effort, Policy, Task, edf_response, slack};
use clap::ValueEnum;
use serde_json::json;
use std::collections::BTreeMap;
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
        (Some(path), _) => Releases::Pattern(replayed(path, tasks)?.pattern),
        (None, Offsets::Random) => Releases::Random,
        (None, Offsets::Sync) => Releases::Together,
        (None, Offsets::Worst) => {
            if let Some(chain) = workload.chains.first() {
                let what = format!(
                    "chain {}: its tasks release each other, and their worst is not known",
                    chain.name
                );
                return Err(failure(UNKNOWN, format!("{what}: --offsets random or sync")));
            }
            Releases::Pattern(worst(tasks, args.policy)?)
        }
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
            // A pattern is of one CPU, whichever.
            let many = run.cpus.len() > 1 && !matches!(simulation.releases, Releases::Pattern(_));
            let name = if many { format!("{} (CPU {})", row.name, row.cpu) } else { row.name.clone() };
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
/// Errors: exit code 2, also for releases that the tasks do not allow.
fn replayed(path: &Path, tasks: &[Task]) -> Result<Counterexample> {
    let wrong = |reason: String| failure(USAGE, format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let found = find(&value).unwrap_or(&value);
    let found: Counterexample = serde_json::from_value(found.clone())
        .map_err(|error| wrong(format!("holds no counterexample: {error}")))?;
    if found.pattern.is_empty() {
        return Err(wrong("its counterexample releases nothing".to_owned()));
    }
    for start in &found.pattern {
        let number = start.task;
        let Some(task) = tasks.get(number) else {
            return Err(wrong(format!(
                "task {number} is not in the tasks, numbered from 0: another file's?"
            )));
        };
        let late_ns = start.release_ns.checked_sub(start.arrival_ns);
        if late_ns.is_none_or(|late_ns| late_ns > task.jitter_ns) || start.held_up_ns > task.blocking_ns {
            let what = "is released before it arrives, or later than its jitter, or held up longer than its blocking";
            return Err(wrong(format!("task {number} ({}) {what}: another file's?", task.name)));
        }
    }
    Ok(found)
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

/// What the test of some CPU fears, or what is worst for the task with least room; of one CPU, as `analyze` takes them.
fn worst(tasks: &[Task], policy: Policy) -> Result<Vec<Start>> {
    let mut cores: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for (index, task) in tasks.iter().enumerate() {
        cores.entry(task.core).or_default().push(index);
    }
    let effort = Effort::default();
    let mut tightest: Option<(u64, Vec<Start>)> = None;
    for members in cores.values() {
        let set: Vec<Task> = members.iter().map(|index| tasks[*index].clone()).collect();
        let verdict = in_file(slack::test(&set, policy, &effort), members);
        if let Some(found) = verdict.counterexample() {
            return Ok(found.pattern.clone());
        }
        let (left_ns, mut pattern) = tightest_of(&set, policy, &effort)?;
        if tightest.as_ref().is_none_or(|(least_ns, _)| left_ns < *least_ns) {
            pattern.iter_mut().for_each(|start| start.task = members[start.task]);
            tightest = Some((left_ns, pattern));
        }
    }
    Ok(tightest.map_or_else(Vec::new, |(_, pattern)| pattern))
}

/// How much room the task with least has, and the pattern that is worst for it.
fn tightest_of(tasks: &[Task], policy: Policy, effort: &Effort) -> Result<(u64, Vec<Start>)> {
    let responses = match policy {
        Policy::NpEdf | Policy::Edf => edf_response::responses(tasks, policy == Policy::NpEdf, effort).ok(),
        _ => None,
    };
    let left = |at: usize| {
        let response = responses.as_ref().map_or_else(|| tasks[at].cost_ns(), |all| all[at]);
        tasks[at].deadline_ns.saturating_sub(response)
    };
    let (left_ns, victim) = (0..tasks.len()).map(|at| (left(at), at)).min().unwrap_or((0, 0));
    let pattern =
        worst_pattern(tasks, policy, victim).map_err(|error| failure(UNKNOWN, error.to_string()))?;
    Ok((left_ns, pattern))
}
