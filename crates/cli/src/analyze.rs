//! `asmp analyze tasks.toml`: will every job meet its deadline, why is it tight, what would help.

pub mod budgets;
mod limits;
pub mod place;
mod report;

use crate::exit::{CANNOT_WORK, UNKNOWN, USAGE, failure};
use anyhow::Result;
use asmp_analysis::chain::{Chain, ChainBound, Holistic, holistic, with_deadlines};
use asmp_analysis::deadline::{Admission, admission};
use asmp_analysis::file::{self, Workload};
use asmp_analysis::place::{By, place as placed};
use asmp_analysis::simulate::{Record, Releases, Run, Simulation, gantt};
use asmp_analysis::verdict::{Start, Stop};
use asmp_analysis::{
    Effort, Inapplicable, Policy, Task, Utilisation, Verdict, edf_response, fp, np_fp, slack,
};
use asmp_host::CpuListError;
use asmp_host::CpuSet;
use asmp_measure::run::{Experiment, Run as Measurement};
use limits::Limits;
use serde::Serialize;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Tasks of which each gets a search of its own for the room that is left.
pub const SEARCHED: usize = 100;
/// Segments of a picture.
pub const DRAWN: usize = 20_000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tasks as TOML, or CSV by its name (docs/guide/analysis.md)
    #[arg(value_name = "tasks.toml", required = true)]
    file: Option<PathBuf>,
    /// np-edf, edf, rm, dm, fp, np-fp, muf, deadline (SCHED_DEADLINE), or all: a line each
    #[arg(long, default_value = "all")]
    policy: Which,
    /// CPUs for tasks that name no core [default: one; tasks that name one are on it]
    #[arg(long, value_name = "LIST", value_parser = some_cpus)]
    cpus: Option<CpuSet>,
    /// deadline: the machine whose kernel admits, its /proc and /sys below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Draw the worst schedule, or the counterexample
    #[arg(long, value_name = "FILE")]
    gantt: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    Deadline,
    One(Policy),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "deadline" => Ok(Self::Deadline),
            _ => text.parse().map(Self::One).map_err(|error| format!("{error}, deadline, all")),
        }
    }
}

/// A CPU list that names one.
fn some_cpus(text: &str) -> Result<CpuSet, String> {
    let cpus: CpuSet = text.parse().map_err(|error: CpuListError| error.to_string())?;
    if cpus.is_empty() { Err("it names no CPU: write it like 1-3,5".to_owned()) } else { Ok(cpus) }
}

/// Reads a task set. Errors: exit code 2 with the place in the file.
pub fn read(path: &Path) -> Result<Workload> {
    let wrong = |reason: String| failure(USAGE, format!("{}: {}", path.display(), reason.trim_end()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let measured = |run: &str| longest_of(&beside.join(run));
    let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let workload = if is_csv { file::from_csv(&text, &measured) } else { file::from_toml(&text, &measured) };
    workload.map_err(|error| wrong(error.to_string()))
}

/// The longest turn of a measured loop. A latency is no execution time.
fn longest_of(dir: &Path) -> Result<u64, String> {
    let run = Measurement::read(dir).map_err(|error| error.to_string())?;
    if run.provenance.experiment != Experiment::Overhead {
        return Err(format!("{}: measures latency, not how long something takes", dir.display()));
    }
    let longest = run.samples.iter().map(|sample| sample.value_ns).max();
    longest.ok_or_else(|| format!("{}: has no samples", dir.display()))
}

/// One CPU under one policy.
#[derive(Debug, Serialize)]
pub struct OnCpu {
    pub cpu: Option<u32>,
    /// Indices into the file's tasks.
    pub tasks: Vec<usize>,
    pub utilisation: f64,
    /// A counterexample names tasks by their index in the file.
    pub verdict: Verdict,
    /// From the arrival, in the order of `tasks`.
    pub responses_ns: Vec<Option<u64>>,
    /// How much longer each may become by itself.
    pub extra_ns: Vec<Option<u64>>,
    /// Millionths.
    pub factor_ppm: Option<u64>,
    /// The file has chains: there is no room known, and no counterexample.
    pub in_chains: bool,
}

#[derive(Debug, Serialize)]
pub struct OfPolicy {
    pub policy: Policy,
    pub cpus: Vec<OnCpu>,
    pub chains: Vec<ChainBound>,
    /// Tasks that no CPU takes.
    pub unplaced: Vec<usize>,
}

impl OfPolicy {
    /// The worst of all parts: no, then unknown, then yes.
    pub fn code(&self) -> u8 {
        let chains = self.chains.iter().map(|chain| &chain.verdict);
        let codes = self.cpus.iter().map(|cpu| &cpu.verdict).chain(chains).map(code);
        let worst = codes.max_by_key(|code| (*code == CANNOT_WORK, *code)).unwrap_or(0);
        if worst == 0 && !self.unplaced.is_empty() { UNKNOWN } else { worst }
    }
}

pub const fn code(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Schedulable => 0,
        Verdict::NotSchedulable { .. } => CANNOT_WORK,
        Verdict::DoesNotApply { .. } | Verdict::Unknown { .. } => UNKNOWN,
    }
}

pub fn analyze(args: &Args) -> Result<u8> {
    let path = args.file.as_deref().unwrap_or(Path::new(""));
    let workload = read(path)?;
    let effort = Effort::default();
    // What SCHED_DEADLINE knows is each task's own deadline.
    let own_deadlines = workload.clone();
    let workload = Workload { tasks: with_deadlines(&workload.tasks, &workload.chains), ..workload };
    let result = match args.policy {
        Which::Deadline => {
            let workload = own_deadlines;
            let limits = Limits::read(&args.root, args.cpus.as_ref());
            let result = deadline(&limits, &workload, &effort);
            if args.json {
                let (what, value) = match &result {
                    Ok(admission) => ("admission", json!(admission)),
                    Err(verdict) => ("verdict", json!(verdict)),
                };
                let json = json!({ "schema": 1, "policy": "deadline", "limits": limits, what: value });
                println!("{}", serde_json::to_string_pretty(&json)?);
            } else {
                report::deadline(&workload, &result);
                limits.lines().iter().for_each(|line| println!("{line}"));
            }
            return Ok(
                result.map_or_else(|verdict| code(&verdict), |admission| report::deadline_code(&admission))
            );
        }
        Which::One(policy) => vec![under(&workload, policy, args.cpus.as_ref(), &effort)],
        Which::All => {
            Policy::ALL.iter().map(|policy| under(&workload, *policy, args.cpus.as_ref(), &effort)).collect()
        }
    };
    if let Some(svg) = &args.gantt {
        draw(svg, &workload.tasks, result.first())?;
    }
    if args.json {
        let tasks: Vec<_> = workload.tasks.iter().collect();
        println!(
            "{}",
            serde_json::to_string_pretty(&json!({ "schema": 1, "tasks": tasks, "policies": result }))?
        );
    } else if let [one] = result.as_slice() {
        report::one(&workload.tasks, one, &effort);
    } else {
        let limits = Limits::read(&args.root, args.cpus.as_ref());
        let admission = deadline(&limits, &own_deadlines, &effort);
        report::all(&workload.tasks, &result, &admission);
    }
    // With all policies: is there one that works, of those that apply.
    let applies =
        |of: &&OfPolicy| !of.cpus.iter().any(|cpu| matches!(cpu.verdict, Verdict::DoesNotApply { .. }));
    let codes = result.iter().filter(applies).map(OfPolicy::code);
    Ok(codes.min_by_key(|code| (*code == CANNOT_WORK, *code)).unwrap_or(UNKNOWN))
}

fn deadline(limits: &Limits, workload: &Workload, effort: &Effort) -> Result<Admission, Verdict> {
    let mut admission = admission(&workload.tasks, &limits.domain, effort).map_err(Verdict::from)?;
    if let Some(chain) = workload.chains.first() {
        let what =
            format!("chain {}: SCHED_DEADLINE counts deadlines from each wake-up; edf bounds it", chain.name);
        admission.deadlines = Verdict::DoesNotApply { reason: Inapplicable::Set { what } };
    }
    Ok(admission)
}

/// Everything about a workload under one policy.
fn under(workload: &Workload, policy: Policy, cpus: Option<&CpuSet>, effort: &Effort) -> OfPolicy {
    let tasks = &workload.tasks;
    let mut unplaced = Vec::new();
    let mut groups: Vec<(Option<u32>, Vec<usize>)> = Vec::new();
    // Chains say themselves where their tasks are.
    let many = cpus
        .filter(|cpus| cpus.len() > 1 && workload.chains.is_empty())
        .map(|cpus| cpus.iter().collect::<Vec<u32>>());
    let placement = many.map(|cpus| placed(tasks, &cpus, By::WorstFit, policy, &workload.room, effort));
    match placement {
        Some(Ok(placement)) => {
            groups.extend(placement.loads.into_iter().map(|load| (Some(load.cpu), load.tasks)));
            unplaced.extend(placement.unplaced.into_iter().map(|unplaced| unplaced.task));
        }
        Some(Err(_)) | None => {
            for (index, task) in tasks.iter().enumerate() {
                match groups.iter_mut().find(|(cpu, _)| *cpu == task.core) {
                    Some((_, members)) => members.push(index),
                    None => groups.push((task.core, vec![index])),
                }
            }
            groups.sort_by_key(|(cpu, _)| *cpu);
        }
    }
    groups.retain(|(_, members)| !members.is_empty());
    if groups.is_empty() && unplaced.is_empty() {
        groups.push((None, Vec::new()));
    }
    let holistic = (!workload.chains.is_empty()).then(|| holistic(tasks, &workload.chains, policy, effort));
    let cpus = groups.into_iter().map(|(cpu, members)| match &holistic {
        None => on_cpu(tasks, cpu, members, policy, effort),
        Some(holistic) => with_chains(tasks, cpu, members, holistic),
    });
    let cpus = cpus.collect();
    let chains = match holistic {
        None => Vec::new(),
        Some(Ok(holistic)) => holistic.chains,
        Some(Err(stop)) => {
            let verdict = Verdict::from(stop);
            let bound = |chain: &Chain| ChainBound {
                name: chain.name.clone(),
                deadline_ns: chain.deadline_ns,
                end_to_end_ns: None,
                stages_ns: vec![None; chain.tasks.len()],
                verdict: verdict.clone(),
            };
            workload.chains.iter().map(bound).collect()
        }
    };
    OfPolicy { policy, cpus, chains, unplaced }
}

/// A CPU of a file with chains: responses hold with the jitter that chains bring, and all stand or fall together.
fn with_chains(
    tasks: &[Task],
    cpu: Option<u32>,
    members: Vec<usize>,
    holistic: &Result<Holistic, Stop>,
) -> OnCpu {
    let responses_ns = match holistic {
        Ok(holistic) => members.iter().map(|index| holistic.responses_ns[*index]).collect(),
        Err(_) => vec![None; members.len()],
    };
    let verdict = match holistic {
        Ok(holistic) => {
            let failed = holistic.chains.iter().find(|chain| !chain.verdict.is_schedulable());
            failed.map_or(Verdict::Schedulable, |chain| chain.verdict.clone())
        }
        Err(stop) => stop.clone().into(),
    };
    let set: Vec<Task> = members.iter().map(|index| tasks[*index].clone()).collect();
    let utilisation = Utilisation::of(&set).approximate();
    let extra_ns = vec![None; members.len()];
    OnCpu {
        cpu,
        tasks: members,
        utilisation,
        verdict,
        responses_ns,
        extra_ns,
        factor_ppm: None,
        in_chains: true,
    }
}

fn on_cpu(tasks: &[Task], cpu: Option<u32>, members: Vec<usize>, policy: Policy, effort: &Effort) -> OnCpu {
    let set: Vec<Task> = members.iter().map(|index| tasks[*index].clone()).collect();
    let (verdict, responses_ns) = match policy {
        Policy::NpEdf | Policy::Edf => {
            let little = Effort { steps: effort.steps / 10, ..*effort };
            let found = edf_response::responses(&set, policy == Policy::NpEdf, &little);
            let known =
                found.map_or_else(|_| vec![None; set.len()], |all| all.into_iter().map(Some).collect());
            (slack::test(&set, policy, effort), known)
        }
        Policy::NpFp => {
            let analysis = np_fp::analyse(&set, effort);
            (analysis.verdict, analysis.responses_ns)
        }
        Policy::Rm | Policy::Dm | Policy::Fp | Policy::Muf => {
            let analysis = fp::analyse(&set, policy, effort);
            (analysis.verdict, analysis.responses_ns)
        }
    };
    let room = slack::slack(&set, policy, SEARCHED, effort);
    let (factor_ppm, extra_ns) =
        room.map_or_else(|_| (None, vec![None; set.len()]), |room| (room.factor_ppm, room.extra_ns));
    let utilisation = Utilisation::of(&set).approximate();
    let verdict = in_file(verdict, &members);
    OnCpu { cpu, tasks: members, utilisation, verdict, responses_ns, extra_ns, factor_ppm, in_chains: false }
}

/// The verdict of a part of the file's tasks, its counterexample with their indices in the file.
pub fn in_file(mut verdict: Verdict, members: &[usize]) -> Verdict {
    if let Verdict::NotSchedulable { counterexample } = &mut verdict {
        counterexample.pattern.iter_mut().for_each(|start| start.task = members[start.task]);
        if let Some(missed) = &mut counterexample.missed {
            missed.task = members[missed.task];
        }
    }
    verdict
}

/// The counterexample, or everything released together, of the first CPU that is drawn best: one that fails, else the first.
fn draw(path: &Path, tasks: &[Task], of: Option<&OfPolicy>) -> Result<()> {
    let Some(of) = of else { return Ok(()) };
    let failing = of.cpus.iter().find(|cpu| cpu.verdict.is_not_schedulable());
    let Some(cpu) = failing.or(of.cpus.first()) else { return Ok(()) };
    let set: Vec<Task> = cpu.tasks.iter().map(|index| Task { core: None, ..tasks[*index].clone() }).collect();
    let (releases, until_ns, title) = match cpu.verdict.counterexample() {
        Some(found) => {
            let end = found.missed.and_then(|missed| missed.finished_ns).or(found.by_ns);
            let end = end.unwrap_or(1_000_000_000);
            let here = |start: &Start| {
                let task = cpu.tasks.iter().position(|index| *index == start.task)?;
                Some(Start { task, ..*start })
            };
            let pattern = found.pattern.iter().filter_map(here).collect();
            (Releases::Pattern(pattern), end + end / 20 + 1, "a deadline is missed")
        }
        None => {
            let longest = set.iter().map(|task| task.period_ns).max().unwrap_or(1);
            (Releases::Together, longest.saturating_mul(2), "everything released together")
        }
    };
    picture(path, &Simulation::new(&set, of.policy, releases), until_ns, &format!("{}: {title}", of.policy))
}

/// Simulates and writes an SVG.
pub fn picture(path: &Path, simulation: &Simulation, until_ns: u64, title: &str) -> Result<()> {
    let mut run = Run::prepare(simulation).map_err(|error| failure(UNKNOWN, error.to_string()))?;
    let mut record = Record::up_to(DRAWN);
    run.go(until_ns, DRAWN as u64, &mut record);
    write(path, &gantt::svg(&run, &record, until_ns, title))
}

/// Errors: exit code 2. Where that happens a file that was there is as it was, and no half of one stays behind. What is no
/// file (a link, which may be /dev/stdout, a pipe, a device) is written to as it is.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let is_other = std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file());
    let written = if is_other { std::fs::write(path, text) } else { replace(path, text) };
    written.map_err(|error| failure(USAGE, format!("{}: cannot be written: {error}", path.display())))
}

fn replace(target: &Path, text: &str) -> io::Result<()> {
    let mut fresh = target.as_os_str().to_owned();
    fresh.push(".partial");
    let replaced = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, target));
    if replaced.is_err() {
        // Where it cannot be removed either, its name says what it is.
        let _ = std::fs::remove_file(&fresh);
    }
    replaced
}
