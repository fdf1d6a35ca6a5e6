// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp`: arguments in, one call into the library, words and an exit code out.

#[macro_use]
mod print;

mod analyze;
mod args;
mod asmpd;
mod boot;
mod change;
mod check;
mod class;
#[cfg(test)]
mod conformance;
mod duration;
mod events;
mod examples;
mod exit;
mod file;
mod granted;
mod graph;
mod manual;
mod measure;
mod noise;
mod output;
mod outside;
mod prose;
mod run;
mod signals;
mod simulate;
mod status;
mod supervise;
mod table;
mod top;
mod usage;
mod web;
mod yartek;

use anyhow::Result;
use args::{AnalyzeWhat, Cli, Command};
use asmp_shield::Shield;
use clap::{CommandFactory, Parser};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let shield = Shield::of_this_machine();
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => {
            let words = std::env::args_os().skip(1);
            let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
            usage::explain(error, &words).exit()
        }
    };
    let changes = match &command {
        Command::Change(args::Change::Apply { dry_run, .. }) => !dry_run,
        command => matches!(command, Command::Change(_)),
    };
    match dispatch(&shield, command) {
        Ok(code) => match (print::is_complete(changes), code) {
            (false, 0) => ExitCode::from(exit::BAD_FILE),
            _ => ExitCode::from(code),
        },
        Err(error) => {
            let code = change::say(&error);
            if let Some(signal) = change::interrupted_by(&error) {
                signals::end_by(signal);
            }
            ExitCode::from(code)
        }
    }
}

fn dispatch(shield: &Shield, command: Command) -> Result<u8> {
    let kernel = shield.kernel();
    match command {
        Command::Change(change) => change::change(shield, &change)?,
        Command::Run(run) => return run::run(shield, &run),
        Command::Exec(exec) => return run::exec(shield, &exec),
        Command::Class(args) => return class::class(kernel, &args),
        Command::Plan { json, change } => change::planned(shield, &change, json)?,
        Command::Status(args) => return status::status(shield, &args),
        Command::Events(args) => return events::events(&args),
        Command::Top(args) => return top::top(shield, &args),
        Command::Web(args) => return web::web(shield, &args),
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
        Command::Yartek(what) => return yartek::yartek(&what),
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
        Command::Spin { milliseconds } => spin(Duration::from_millis(milliseconds)),
        Command::Flood { bytes } => asmp_measure::load::flood_for_ever(bytes)?,
    }
    Ok(0)
}

fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
