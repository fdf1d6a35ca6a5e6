// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp analyze tasks.toml`: does every job meet its deadline, why is it tight, what would help.

pub mod budgets;
pub mod files;
mod limits;
pub mod place;
mod report;

use crate::exit::{NOT_SCHEDULABLE, UNDECIDED, USAGE, failure};
use crate::output::svg_file;
use anyhow::Result;
use asmp_analysis::deadline::Admission;
use asmp_analysis::{
    Effort, Outcome, Policy, Report, TimeBase, Verdict, analyse, analyse_briefly, best_outcome,
    kernel_admission, worst_schedule_svg,
};
use asmp_host::CpuListError;
use asmp_host::CpuSet;
use files::print_json;
use limits::Limits;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML, or in CSV if the name ends in .csv
    ///
    /// Cost, period and other times need a unit. CSV has the keys of a task as its header.
    /// Example: asmp analyze tasks.toml
    #[arg(value_name = "tasks.toml", required = true)]
    file: Option<PathBuf>,
    /// np-edf, edf, rm, dm, fp, np-fp, muf, deadline (SCHED_DEADLINE), or all: one line each
    ///
    /// `all` tries every policy and prints one line each. `deadline` says what sched_setattr(2)
    /// would answer. Example: --policy np-edf
    #[arg(long, default_value = "all")]
    policy: Which,
    /// CPUs for tasks that name no core [default: one CPU]
    ///
    /// Tasks that name a core stay on it; the others are placed. Example: --cpus 1-3
    #[arg(long, value_name = "LIST", value_parser = some_cpus)]
    cpus: Option<CpuSet>,
    /// deadline, all: read the kernel's limits from DIR/proc and DIR/sys [default: /]
    ///
    /// Only for --policy deadline and all. The directory is a copy of another machine's files.
    /// Example: --root /tmp/target
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Print JSON
    ///
    /// The object has `schema`. Times are integers in nanoseconds, or fractions as text
    /// ("4000000/3"). Example: asmp analyze tasks.toml --json
    #[arg(long)]
    json: bool,
    /// Draw the worst schedule, or the counterexample, as an SVG
    ///
    /// For one policy other than deadline. An accepted set is drawn with what is worst for its
    /// tightest task. If the file cannot be written, the old one stays. Example: --gantt worst.svg
    #[arg(long, value_name = "FILE", value_parser = svg_file())]
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
        match text.to_ascii_lowercase().as_str() {
            "all" => Ok(Self::All),
            "deadline" | "sched_deadline" => Ok(Self::Deadline),
            _ => text.parse().map(Self::One).map_err(|error| format!("{error}, deadline, all")),
        }
    }
}

/// A CPU list that is not empty.
pub fn some_cpus(text: &str) -> Result<CpuSet, String> {
    let wrong = |error: CpuListError| match error {
        // No machine is meant here: `all` and `last` have no meaning.
        CpuListError::NotAList(_) => {
            format!("invalid CPU list {text:?}: write the numbers of CPUs, e.g. 1-3,5")
        }
        error => error.to_string(),
    };
    let cpus: CpuSet = text.parse().map_err(wrong)?;
    if cpus.is_empty() {
        Err("the CPU list is empty: write e.g. 1-3,5".to_owned())
    } else {
        Ok(cpus)
    }
}

/// The exit code of an answer.
pub const fn code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Schedulable => 0,
        Outcome::Unknown => UNDECIDED,
        Outcome::NotSchedulable => NOT_SCHEDULABLE,
    }
}

pub fn analyze(args: &Args) -> Result<u8> {
    let root = root_of(args)?;
    let path = args.file.as_deref().unwrap_or(Path::new(""));
    if is_a_word(path) {
        let what = "neither a file nor one of budgets, place and graph";
        return Err(files::wrong(path, what));
    }
    let file = files::tasks(path)?;
    files::separate(&file.inputs, &[("--gantt", args.gantt.as_deref())])?;
    let workload = &file.workload;
    let effort = Effort::default();
    let cpus: Vec<u32> = args.cpus.iter().flat_map(CpuSet::iter).collect();
    // SCHED_DEADLINE is on the CPU that the tasks name, if --cpus is not given.
    let core = workload.tasks.first().and_then(|task| task.core);
    let domain = args.cpus.clone().or_else(|| core.map(|core| CpuSet::from_iter([core])));
    let one = |policy: &Policy| analyse(workload, *policy, &cpus, &effort);
    let admission = |limits: &Limits| {
        let mut result = kernel_admission(workload, &limits.domain, &effort);
        file.place(std::iter::once(match &mut result {
            Ok(admission) => &mut admission.deadlines,
            Err(verdict) => verdict,
        }));
        result
    };
    let mut reports = match args.policy {
        Which::Deadline => {
            let limits = Limits::read(root, domain.as_ref());
            let result = admission(&limits);
            if args.json {
                let (what, value) = match &result {
                    Ok(admission) => ("admission", json!(admission)),
                    Err(verdict) => ("verdict", json!(verdict)),
                };
                let json = json!({ "policy": "deadline", "limits": limits, what: value });
                // The kernel's times are whole nanoseconds.
                print_json(json, TimeBase::NANOSECONDS)?;
            } else {
                let cpus: Vec<u32> = domain.iter().flat_map(CpuSet::iter).collect();
                report::deadline(workload, &cpus, &result);
                limits.lines().iter().for_each(|line| println!("{line}"));
            }
            return Ok(code(outcome_of(&result)));
        }
        Which::One(policy) => vec![one(&policy)],
        Which::All if args.json => Policy::ALL.iter().map(one).collect(),
        // A line for each shows no more.
        Which::All => {
            let brief = |policy| analyse_briefly(workload, policy, &cpus, &effort);
            Policy::ALL.map(brief).into()
        }
    };
    if let (Some(path), Some(first)) = (&args.gantt, reports.first()) {
        let svg = worst_schedule_svg(workload, first).map_err(|stop| file.undecided(stop))?;
        svg.map(|svg| files::write(path, &svg)).transpose()?;
    }
    file.place(reports.iter_mut().flat_map(Report::verdicts_mut));
    let tasks = workload.tasks_in_chains();
    let people = report::Words {
        tasks: &tasks,
        time: workload.time,
        replayable: args.cpus.is_none().then_some(path),
    };
    if args.json {
        print_json(json!({ "tasks": tasks, "policies": reports }), workload.time)?;
    } else if let [one] = reports.as_slice() {
        people.one(one, &effort);
    } else {
        let limits = Limits::read(root, domain.as_ref());
        people.all(&reports, &admission(&limits));
    }
    // With all policies: is there one that works?
    Ok(code(best_outcome(&reports)))
}

/// Is this rather a mistyped subcommand than the name of a missing file?
fn is_a_word(path: &Path) -> bool {
    let is_word = path.components().count() == 1 && path.extension().is_none();
    is_word && path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Where the kernel's limits are read. Errors: options that the policy would ignore, and what is no
/// directory.
fn root_of(args: &Args) -> Result<&Path> {
    let is_one = matches!(args.policy, Which::One(_));
    if args.gantt.is_some() && !is_one {
        let what = "--gantt draws one policy, and SCHED_DEADLINE not at all";
        return Err(failure(USAGE, format!("{what}: name it, for example --policy edf")));
    }
    let Some(root) = args.root.as_deref() else { return Ok(Path::new("/")) };
    if is_one {
        let what = "--root is only for --policy deadline and all";
        return Err(failure(USAGE, format!("{what}: leave it out")));
    }
    match std::fs::metadata(root) {
        Ok(found) if found.is_dir() => Ok(root),
        Ok(_) => Err(files::wrong(root, "not a directory: --root needs copies of /proc and /sys")),
        Err(error) => {
            let reason = format!("{error}: --root needs a directory with copies of /proc and /sys");
            Err(files::wrong(root, &reason))
        }
    }
}

fn outcome_of(result: &Result<Admission, Verdict>) -> Outcome {
    match result {
        Ok(admission) if !admission.admitted => Outcome::NotSchedulable,
        Ok(admission) => Outcome::from(&admission.deadlines),
        Err(verdict) => Outcome::from(verdict),
    }
}
