// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp simulate`: a task set in the simulator.

mod progress;

use crate::analyze::files::{
    TaskFile, in_ns, in_ticks, print_json, read_output, separate, tasks, write, wrong,
};
use crate::exit::{NOT_SCHEDULABLE, UNDECIDED, USAGE, failure};
use crate::output::svg_file;
use crate::table::table;
use anyhow::Result;
use asmp_analysis::simulate::{
    DataRow, DataTimes, End, Execution, Record, Releases, Row, Run, Simulation, Statistics,
    perfetto_trace, replay,
};
use asmp_analysis::{
    Counterexample, Effort, Late, Policy, Stop, Task, TimeBase, Workload, schedule_svg,
    worst_releases,
};
use asmp_duration::ExactDuration;
use clap::ValueEnum;
use progress::Progress;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Segments and instants of a trace.
const TRACED: usize = 1_000_000;
const OVERRUN_PERCENT: u32 = 150;
/// Jobs of a run.
const MOST_JOBS: u64 = 1_000_000_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML, or in CSV if the name ends in .csv
    ///
    /// `asmp help analysis` describes the file. Example: asmp simulate tasks.toml --policy edf
    #[arg(value_name = "tasks.toml")]
    file: PathBuf,
    /// np-edf, edf, rm, dm, fp, np-fp, muf [default: fp if each task has a priority, else edf]
    ///
    /// Unlike `asmp analyze`, it simulates a single policy, and names the one that it chose.
    /// --replay needs it. Example: --policy np-edf
    #[arg(long)]
    policy: Option<Policy>,
    /// Simulated time
    ///
    /// A number with its unit: ns, us, ms, s, min or h. Example: --for 10s
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time)]
    time: ExactDuration,
    /// Seed of the random numbers: the same seed gives the same output
    ///
    /// The same file, options and seed give the same bytes. Example: --seed 7
    #[arg(long, default_value = "0")]
    seed: u64,
    /// When jobs are released
    ///
    /// `random`: offsets, gaps and jitter by chance. `sync`: all as early as possible. `worst`:
    /// the counterexample, or the worst case of the tightest task. Example: --offsets worst
    #[arg(long, value_enum, default_value = "random")]
    offsets: Offsets,
    /// Replay the counterexample in this output of `asmp analyze --json`
    ///
    /// The file is the output of `asmp analyze --json` for a set that is not schedulable. At most
    /// 256 MiB of it are read, and of a task set 16: it has rows of each task under each policy.
    /// Example: --replay refused.json
    #[arg(long, value_name = "FILE", conflicts_with = "offsets")]
    replay: Option<PathBuf>,
    /// Least execution time of a job, in percent of its cost
    ///
    /// With 100, every job takes its whole cost. Example: --least 50
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "100",
        value_parser = clap::value_parser!(u32).range(0..=100)
    )]
    least: u32,
    /// Jobs in a million that overrun
    ///
    /// Overruns are drawn by chance from the seed. Example: --overruns 1000
    #[arg(
        long,
        value_name = "PPM",
        default_value = "0",
        value_parser = clap::value_parser!(u32).range(0..=1_000_000)
    )]
    overruns: u32,
    /// Execution time of a job that overruns, in percent of its cost [default: 150]
    ///
    /// Applies to the jobs that --overruns selects. Example: --overrun 200
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=4000)
    )]
    overrun: Option<u32>,
    /// Write a trace for Perfetto (JSON)
    ///
    /// Open the file at ui.perfetto.dev. Example: --trace out.json
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Draw the schedule as an SVG
    ///
    /// An SVG file. If it cannot be written, the old file stays as it was. Example: --gantt
    /// out.svg
    #[arg(long, value_name = "FILE", value_parser = svg_file())]
    gantt: Option<PathBuf>,
    /// Print JSON
    ///
    /// The object has `schema`, response times and misses. Its `jobs` were released, those of a
    /// stream have finished; misses count overdue jobs, too. Times are integers in nanoseconds, or
    /// fractions as text ("4000000/3"). Example: asmp simulate tasks.toml --policy edf --json
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Offsets {
    /// Offsets that are not given, sporadic gaps and jitter at random
    Random,
    /// All as early as allowed
    Sync,
    /// The counterexample, or what is worst for the tightest task
    Worst,
}

fn time(text: &str) -> Result<ExactDuration, String> {
    let duration: ExactDuration = crate::duration::exact(text)?;
    if duration.is_zero() {
        Err("the simulated time must be above 0".to_owned())
    } else {
        Ok(duration)
    }
}

/// The longest run, in ticks: beyond it the simulator cannot tell deadlines apart.
const MOST_TICKS: u64 = 1 << 61;

/// The simulated time in ticks of the file.
fn span(wanted: ExactDuration, time: TimeBase) -> Result<u64> {
    match time.ticks_within(wanted) {
        Some(0) => {
            Err(failure(USAGE, format!("--for {wanted} is shorter than a tick of the file")))
        }
        Some(ticks) if ticks <= MOST_TICKS => Ok(ticks),
        _ => Err(failure(
            USAGE,
            format!(
                "--for {wanted} is too long for times as fine as those of the file: use at most {}",
                time.show(MOST_TICKS)
            ),
        )),
    }
}

/// A missed deadline is proven; a run without one proves nothing.
pub fn simulate(args: &Args) -> Result<u8> {
    if args.overrun.is_some() && args.overruns == 0 {
        let what = "--overrun is only for the jobs that --overruns selects";
        return Err(failure(USAGE, format!("{what}: add, for example, --overruns 1000")));
    }
    let file = tasks(&args.file)?;
    let inputs: Vec<PathBuf> = file.inputs.iter().chain(&args.replay).cloned().collect();
    let outputs = [("--trace", args.trace.as_deref()), ("--gantt", args.gantt.as_deref())];
    separate(&inputs, &outputs)?;
    let workload = &file.workload;
    let (tasks, time) = (&workload.tasks, workload.time);
    let undecided = |stop: Stop| file.undecided(stop);
    workload.check_cores().map_err(|reason| undecided(reason.into()))?;
    let until_ticks = span(args.time, time)?;
    let policy = policy_of(args, tasks)?;
    for note in unplayed(args, workload) {
        eprintln!("asmp: note: {note}");
    }
    let simulation = Simulation {
        seed: args.seed,
        execution: Execution {
            least_ppm: args.least * 10_000,
            overrun_chance_ppm: args.overruns,
            overrun_ppm: args.overrun.unwrap_or(OVERRUN_PERCENT) * 10_000,
        },
        background: &workload.background,
        interrupts: &workload.interrupts,
        chains: &workload.chains,
        ..Simulation::new(tasks, policy, releases(args, policy, &file)?)
    };
    let mut run = Run::prepare(&simulation).map_err(undecided)?;
    let mut statistics = Statistics::of(&run);
    let mut record = Record::up_to(if args.trace.is_some() { TRACED } else { 0 });
    let mut data = DataTimes::of(&run, &workload.sampled);
    let mut progress = Progress::new(until_ticks, time);
    let watch = &mut (&mut (&mut statistics, &mut record), &mut (&mut data, &mut progress));
    let end = run.go(until_ticks, MOST_JOBS, watch);
    progress.end();
    let data: Vec<&DataRow> = data.rows().collect();
    let misses = statistics.miss_count(&run);
    let is_over = misses > 0 || data.iter().any(|row| row.over().next().is_some());
    let is_worst = args.replay.is_none() && matches!(args.offsets, Offsets::Worst);
    // What is worst for one task, on its CPU alone, says nothing of the data of a chain. A run that
    // shows a miss stands: `analyze` names its command.
    if let Some(chain) = workload.sampled.first().filter(|_| is_worst && !is_over) {
        let what = "no worst case is known for the data of a sampled chain";
        let cure = "use --offsets sync or random";
        return Err(file.undecided_by_chain(&chain.name, &format!("{what}; {cure}")));
    }
    if let Some(path) = &args.trace {
        write(path, &perfetto_trace(&run, &record, time))?;
        if record.is_cut {
            eprintln!("asmp: the trace has only the first {TRACED} segments");
        }
    }
    if let Some(path) = &args.gantt {
        let title = format!("{policy} for {}", args.time.rounded());
        write(path, &schedule_svg(&simulation, until_ticks, &title, time).map_err(undecided)?)?;
    }
    if args.json {
        let json = json!({
            "policy": policy, "seed": args.seed, "simulated_ticks": run.now_ticks(),
            "jobs": run.jobs(), "misses": misses, "first_misses": statistics.misses(&run),
            "streams": statistics.rows(&run), "sampled": data,
        });
        print_json(json, time)?;
    } else {
        // A pattern is of one CPU, so its number says nothing.
        let many = run.cpus.len() > 1 && !matches!(simulation.releases, Releases::Pattern(_));
        print!("{}", table(&lines(&statistics.rows(&run), many, time)));
        let simulated = time.show(run.now_ticks());
        println!("\n{} jobs released in {simulated}, {misses} deadlines missed", run.jobs());
        for missed in statistics.misses(&run).iter().take(5) {
            let finished = missed.finished_ticks.map(|at| format!("finished {}", time.show(at)));
            let finished = finished.unwrap_or_else(|| "not yet finished".to_owned());
            let (name, due) = (&tasks[missed.task].name, time.show(missed.deadline_ticks));
            println!("job {} of {name}: due {due}, {finished}", missed.job);
        }
        data.iter().for_each(|row| println!("{}", of_chain(row, time)));
    }
    if end != End::Horizon {
        let now = time.show(run.now_ticks());
        eprintln!("asmp: stopped at {now}: too many jobs are waiting or were released");
    }
    Ok(match (is_over, end) {
        (false, End::Horizon) => 0,
        (false, _) => UNDECIDED,
        (true, _) => NOT_SCHEDULABLE,
    })
}

/// The longest data age and reaction time of a sampled chain, and what passed its limit.
fn of_chain(row: &DataRow, time: TimeBase) -> String {
    let show = |ticks: Option<u64>| ticks.map_or_else(|| "-".to_owned(), |t| time.show(t));
    let (age, reaction) = (show(row.age_ticks), show(row.reaction_ticks));
    let mut line =
        format!("chain {}: longest data age {age}, longest reaction time {reaction}", row.name);
    for (what, _, limit) in row.over() {
        line += &format!("; the {what} passes its limit of {}", time.show(limit));
    }
    line
}

/// What the file has and this run does not.
fn unplayed(args: &Args, workload: &Workload) -> Vec<&'static str> {
    let (mut notes, tasks) = (Vec::new(), &workload.tasks);
    let is_pattern = args.replay.is_some() || matches!(args.offsets, Offsets::Worst);
    if !is_pattern && tasks.iter().any(|task| task.blocking_ticks > 0) {
        notes.push("this run has no blocking: --offsets worst has");
    }
    let is_sync = args.replay.is_none() && matches!(args.offsets, Offsets::Sync);
    if is_sync && tasks.iter().any(|task| task.jitter_ticks > 0) {
        notes.push("--offsets sync has no jitter: random and worst have");
    }
    if tasks.iter().any(|task| task.late != Late::Finish) {
        notes.push(
            "each job runs to its end, also if it is late: late = skip or fault is not played",
        );
    }
    if workload.interrupts.iter().any(|interrupt| interrupt.gap_ticks.is_none()) {
        notes.push("an interrupt without gap is not played: it has no least time between two");
    }
    let room = &workload.room;
    let needs = |task: &Task| task.memory_bytes > 0 || task.bandwidth > 0;
    if tasks.iter().any(needs) || room.memory_bytes.is_some() || room.bandwidth.is_some() {
        notes
            .push("a run plays time alone: asmp analyze compares memory and bandwidth with [room]");
    }
    notes
}

/// The finished jobs, whose times follow; the misses, also of jobs that have not finished.
const HEADER: [&str; 9] =
    ["name", "finished", "misses", "least", "average", "median", "p99", "longest", "longest gap"];

fn lines(rows: &[Row], many: bool, time: TimeBase) -> Vec<[String; 9]> {
    let mut lines = vec![HEADER.map(str::to_owned)];
    for row in rows {
        let show = |ticks: Option<u64>| ticks.map_or_else(|| "-".to_owned(), |t| time.show(t));
        let name = if many { format!("{} (CPU {})", row.name, row.cpu) } else { row.name.clone() };
        lines.push([
            name,
            row.jobs.to_string(),
            row.misses.to_string(),
            show(row.min_ticks),
            show(row.average_ticks),
            show(row.p50_ticks),
            show(row.p99_ticks),
            show(row.max_ticks),
            show(Some(row.longest_gap_ticks)),
        ]);
    }
    lines
}

/// The policy that was asked for, else one that the file suggests. Errors: a replay without one.
fn policy_of(args: &Args, tasks: &[Task]) -> Result<Policy> {
    let Some(policy) = args.policy else {
        if args.replay.is_some() {
            let all = Policy::ALL.map(Policy::name).join(", ");
            let what = "--replay needs the policy of the counterexample: add --policy with one of";
            return Err(failure(USAGE, format!("{what} {all}")));
        }
        let has_priorities = tasks.iter().all(|task| task.priority.is_some());
        let (policy, why) = match has_priorities {
            true => (Policy::Fp, "each task has a priority"),
            false => (Policy::Edf, "some task has no priority"),
        };
        eprintln!("asmp: note: simulates {policy}, as {why}: --policy names another");
        return Ok(policy);
    };
    Ok(policy)
}

fn releases(args: &Args, policy: Policy, file: &TaskFile) -> Result<Releases> {
    let workload = &file.workload;
    Ok(match (&args.replay, args.offsets) {
        (Some(path), _) => Releases::Pattern(replayed(path, policy, file)?.pattern),
        (None, Offsets::Random) => Releases::Random,
        (None, Offsets::Sync) => Releases::Together,
        (None, Offsets::Worst) => {
            if let Some(chain) = workload.chains.first() {
                let what = "no worst case is known for tasks that release each other";
                let cure = "use --offsets random or sync";
                return Err(file.undecided_by_chain(&chain.name, &format!("{what}; {cure}")));
            }
            let pattern = worst_releases(&workload.tasks, policy, &Effort::default());
            Releases::Pattern(pattern.map_err(|stop| file.undecided(stop))?)
        }
    })
}

/// A counterexample of this policy, alone or in the output of `analyze --json`. Errors: there is
/// none, it is of another file, or the tasks do not allow its releases.
fn replayed(path: &Path, policy: Policy, file: &TaskFile) -> Result<Counterexample> {
    let workload = &file.workload;
    let value: Value = serde_json::from_str(&read_output(path)?)
        .map_err(|error| wrong(path, &error.to_string()))?;
    let found = of_policy(&value, policy, workload).map_err(|reason| wrong(path, &reason))?;
    if let Some(chain) = workload.chains.first() {
        let what = "its counterexample is the run of --offsets sync: use that";
        return Err(file.undecided_by_chain(&chain.name, what));
    }
    let found: Counterexample = serde_json::from_value(in_ticks(found, workload.time))
        .map_err(|error| wrong(path, &format!("no counterexample in this file: {error}")))?;
    found.check(&workload.tasks).map_err(|error| wrong(path, &error.to_string()))?;
    let (by_ticks, missed) = (found.by_ticks, found.missed);
    let again = replay(&workload.tasks, policy, &found.pattern, by_ticks, &Effort::default());
    if missed.is_some() && again != missed {
        let reason = "the miss that it names does not happen: is it from another file or policy?";
        return Err(wrong(path, &format!("{reason} Run asmp analyze --json again")));
    }
    Ok(found)
}

/// The counterexample of this policy, or the only one. Errors: there is none, or the tasks that
/// stand beside it are others.
fn of_policy(value: &Value, policy: Policy, workload: &Workload) -> Result<Value, String> {
    if let Some(tasks) = value.get("tasks") {
        let wanted = in_ns(json!(workload.tasks_in_chains()), workload.time);
        if *tasks != wanted {
            let name = |tasks: &Value, at: usize| {
                tasks.get(at).and_then(|task| Some(task.get("name")?.as_str()?.to_owned()))
            };
            let differs = (0..).find(|at| tasks.get(at) != wanted.get(at)).unwrap_or(0);
            let name = name(&wanted, differs).or_else(|| name(tasks, differs));
            let name = name.unwrap_or_else(|| format!("{differs}"));
            return Err(format!(
                "its counterexample is of other tasks: task {name} differs: run asmp analyze \
                 --json again"
            ));
        }
    }
    let Some(policies) = value.get("policies").and_then(Value::as_array) else {
        return Ok(find(value).unwrap_or(value).clone());
    };
    let is_ours = |report: &&Value| report["policy"] == policy.name();
    let of = policies.iter().find(is_ours).and_then(find);
    of.cloned().ok_or_else(|| {
        let with = policies.iter().filter(|report| find(report).is_some());
        let names: Vec<&str> = with.filter_map(|report| report["policy"].as_str()).collect();
        match names.as_slice() {
            [] => "no counterexample in this file".to_owned(),
            names => format!(
                "no counterexample of {policy} in this file: use --policy {}",
                names.join(" or ")
            ),
        }
    })
}

fn find(value: &Value) -> Option<&Value> {
    match value {
        Value::Object(fields) => {
            fields.get("counterexample").or_else(|| fields.values().find_map(find))
        }
        Value::Array(items) => items.iter().find_map(find),
        _ => None,
    }
}
