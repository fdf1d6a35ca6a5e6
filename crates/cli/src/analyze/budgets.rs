//! `asmp analyze budgets`: how long each task may be, by Proposition 1 of Yartek, and what room the exact test leaves.

use crate::exit::UNKNOWN;
use crate::graph::table;
use anyhow::Result;
use asmp_analysis::slack::slack;
use asmp_analysis::units::show_ns;
use asmp_analysis::{Effort, Policy, Verdict, budgets as analysis, np_edf};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tasks as TOML, or CSV by its name
    #[arg(value_name = "tasks.toml")]
    file: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// The exit code is that of the exact test of non-preemptive EDF.
pub fn budgets(args: &Args) -> Result<u8> {
    let workload = super::read(&args.file)?;
    let (tasks, effort) = (&workload.tasks, Effort::default());
    let budgets = match analysis::budgets(tasks) {
        Ok(budgets) => budgets,
        Err(reason) => {
            let verdict = Verdict::DoesNotApply { reason: reason.clone() };
            if args.json {
                println!("{}", serde_json::to_string_pretty(&json!({ "schema": 1, "verdict": verdict }))?);
            } else {
                println!("does not apply: {reason}");
            }
            return Ok(UNKNOWN);
        }
    };
    let verdict = np_edf::test(tasks, &effort);
    let room = slack(tasks, Policy::NpEdf, super::SEARCHED, &effort).ok();
    if args.json {
        let json = json!({
            "schema": 1, "tasks": tasks, "budgets": budgets, "proposition": analysis::test(tasks), "exact": verdict,
            "slack": room,
        });
        println!("{}", serde_json::to_string_pretty(&json)?);
        return Ok(super::code(&verdict));
    }
    let mut rows = vec![["task", "period", "cost", "budget", "", "may grow by (exact)"].map(str::to_owned)];
    for budget in &budgets {
        let task = &tasks[budget.task];
        let extra = room.as_ref().and_then(|room| room.extra_ns[budget.task]);
        rows.push([
            task.name.clone(),
            show_ns(task.period_ns),
            show_ns(task.cost_ns()),
            show_ns(budget.budget_ns),
            if budget.holds() { "holds" } else { "over" }.to_owned(),
            extra.map_or_else(|| "-".to_owned(), show_ns),
        ]);
    }
    print!("{}", table(&rows));
    let held = budgets.iter().filter(|budget| budget.holds()).count();
    println!(
        "\nwithin its budget: {held} of {} tasks; all: schedulable, else nothing is said (Proposition 1)",
        budgets.len()
    );
    println!("exact test: {}", if verdict.is_schedulable() { "schedulable" } else { "not accepted" });
    if let Some(ppm) = room.and_then(|room| room.factor_ppm) {
        println!("all costs may be multiplied by {:.3}", ppm as f64 / 1e6);
    }
    Ok(super::code(&verdict))
}
