//! `asmp`: arguments in, one call into the library, words and an exit code out.

#[macro_use]
mod print;

mod analyze;
mod args;
mod boot;
mod change;
mod check;
#[cfg(test)]
mod conformance;
mod examples;
mod exit;
mod file;
mod graph;
mod manual;
mod measure;
mod noise;
mod prose;
mod run;
mod simulate;

use anyhow::Result;
use args::{AnalyzeWhat, Cli, Command, Planned};
use asmp_host::store::Store;
use asmp_host::{Facts, Linux};
use asmp_shield::plan::Base;
use asmp_shield::{Refusal, Shield, verify};
use clap::{CommandFactory, Parser};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Where our state and journal lie; like what they describe, gone after a reboot.
const RUN_DIR: &str = "/run/asmp";

fn main() -> ExitCode {
    let linux = Linux::new();
    let shield = Shield::new(&linux, Store::at(RUN_DIR));
    match obey(&shield, Cli::parse().command) {
        Ok(code) => match (print::is_complete(), code) {
            (false, 0) => ExitCode::from(exit::UNEXPECTED),
            _ => ExitCode::from(code),
        },
        Err(error) => {
            eprintln!("asmp: {error:#}");
            for line in change::details(&error) {
                eprintln!("  {line}");
            }
            ExitCode::from(exit::code_of(&error))
        }
    }
}

fn obey(shield: &Shield, command: Command) -> Result<u8> {
    let kernel = shield.kernel();
    match command {
        Command::Change(change) => change::change(shield, &change)?,
        Command::Run(run) => return run::run(shield, &run),
        Command::Exec(exec) => return run::exec(shield, &exec),
        Command::Plan { json, change: Planned::Change(change) } => change::plan(shield, &change, json)?,
        Command::Plan { json, change: Planned::Run(run) } => {
            let name = run.name.clone().unwrap_or_else(|| "run-PID".to_owned());
            let (facts, plan) =
                shield.plan(|facts, state| run::plan_of_run(kernel, facts, state, &run, &name), false)?;
            print::plan(&facts, &plan, json)?;
        }
        Command::Status { name, json } => return status(shield, name.as_deref(), json),
        Command::Noise(noise) => return noise::noise(shield, &noise),
        Command::Measure(action) => return measure::measure(shield, &action),
        Command::Check { json } => return check::check(kernel, json),
        Command::Analyze(analyze) => {
            return match analyze.what {
                Some(AnalyzeWhat::Budgets(args)) => analyze::budgets::budgets(&args),
                Some(AnalyzeWhat::Place(args)) => analyze::place::place(&args),
                Some(AnalyzeWhat::Graph(args)) => graph::graph(&args),
                None => analyze::analyze(&analyze.set),
            };
        }
        Command::Simulate(args) => return simulate::simulate(&args),
        Command::Boot { action } => boot::boot(kernel, &action)?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "asmp", &mut script);
            print!("{}", String::from_utf8_lossy(&script));
        }
        Command::Help { words } => print!("{}", manual::help(&words)?),
        Command::Man { all: Some(dir), .. } => {
            println!("{} pages in {}", manual::write_all(&dir)?, dir.display())
        }
        Command::Man { name, all: None } => print!("{}", manual::page(&name)?),
        Command::Flood { bytes } => asmp_measure::load::flood_for_ever(bytes)?,
        Command::Spin { milliseconds } => spin(Duration::from_millis(milliseconds)),
    }
    Ok(0)
}

/// Reads everything back; exit code 7 where a promise is broken.
fn status(shield: &Shield, name: Option<&str>, json: bool) -> Result<u8> {
    let facts = Facts::read(shield.kernel())?;
    let state = shield.state()?;
    name.map(|name| state.partition(name)).transpose()?;
    let base = Base::of(&facts).ok_or(Refusal::NoCgroupV2)?;
    let mut status = verify::verify(shield.kernel(), &facts, &base, &state, shield.is_interrupted()?)?;
    status.partitions.retain(|partition| name.is_none_or(|name| name == partition.name));
    if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print::status(&status, change::now_s());
    }
    Ok(if status.holds() { 0 } else { exit::VIOLATED })
}

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
