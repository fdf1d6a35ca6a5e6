// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp analyze budgets`: how long each task may be, by Proposition 1 of Yartek, and what room the
//! exact test leaves.

use super::files::{self, print_json};
use crate::exit::UNDECIDED;
use crate::table::table;
use anyhow::Result;
use asmp_analysis::{Effort, Outcome, Verdict, analyse_budgets};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task set in TOML, or in CSV if the name ends in .csv
    ///
    /// Example: asmp analyze budgets tasks.toml
    #[arg(value_name = "tasks.toml")]
    file: PathBuf,
    /// Print JSON
    ///
    /// The object has `schema`, the budgets and the exact verdict. Example: asmp analyze budgets
    /// tasks.toml --json
    #[arg(long)]
    json: bool,
}

/// The exit code is that of the exact test of non-preemptive EDF.
pub fn budgets(args: &Args) -> Result<u8> {
    let file = files::tasks(&args.file)?;
    let (tasks, time) = (&file.workload.tasks, file.workload.time);
    let report = match analyse_budgets(&file.workload, &Effort::default()) {
        Ok(mut report) => {
            file.place([&mut report.proposition, &mut report.exact].into_iter());
            report
        }
        Err(reason) => {
            let reason = file.placed(reason);
            if args.json {
                print_json(json!({ "verdict": Verdict::DoesNotApply { reason } }), time)?;
            } else {
                println!("does not apply: {reason}");
            }
            return Ok(UNDECIDED);
        }
    };
    let code = super::code(Outcome::from(&report.exact));
    if args.json {
        let json = json!({
            "tasks": tasks, "budgets": report.budgets, "proposition": report.proposition,
            "exact": report.exact, "slack": report.slack,
        });
        print_json(json, time)?;
        return Ok(code);
    }
    let header = ["task", "period", "cost", "budget", "", "may grow by (exact)"];
    let mut rows = vec![header.map(str::to_owned)];
    for budget in &report.budgets {
        let task = &tasks[budget.task];
        let extra = report.slack.as_ref().and_then(|slack| slack.extra_ticks[budget.task]);
        rows.push([
            task.name.clone(),
            time.show(task.period_ticks),
            time.show(task.cost_ticks()),
            time.show(budget.budget_ticks),
            if budget.holds() { "holds" } else { "over" }.to_owned(),
            extra.map_or_else(|| "-".to_owned(), |extra| time.show(extra)),
        ]);
    }
    print!("{}", table(&rows));
    let held = report.budgets.iter().filter(|budget| budget.holds()).count();
    let all = report.budgets.len();
    println!("\nwithin its budget: {held} of {all} tasks (Proposition 1: if all are, schedulable)");
    let exact = if report.exact.is_schedulable() { "schedulable" } else { "not accepted" };
    println!("exact test: {exact}");
    if let Some(ppm) = report.slack.and_then(|slack| slack.factor_ppm) {
        let factor = super::report::factor(Some(ppm));
        match report.exact.is_schedulable() {
            true => println!("room: all costs may be {factor} times as long"),
            false => println!("would help: all costs times {factor}"),
        }
    }
    Ok(code)
}
