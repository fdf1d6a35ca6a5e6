// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp analyze graph`: a data-flow graph and what follows from its rates.

use crate::analyze::files::{print_json, read, separate, write, wrong};
use crate::exit::{NOT_SCHEDULABLE, UNDECIDED};
use crate::output::svg_file;
use crate::table::table;
use anyhow::Result;
use asmp_analysis::TimeBase;
use asmp_analysis::graph::{
    Case, Graph, GraphError, Limits, Proof, Refusal, Report, Verdict, analyze, dot, line_of, svg,
};
use serde_json::json;
use std::path::PathBuf;

/// Runs of the schedule in the text; JSON has all.
const RUNS_SHOWN: usize = 40;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tasks and edges in TOML
    ///
    /// `asmp help granularity` describes the file. Example: asmp analyze graph flow.toml
    #[arg(value_name = "flow.toml")]
    file: PathBuf,
    /// Print JSON
    ///
    /// Numbers may exceed 2^53. Example: asmp analyze graph flow.toml --json
    #[arg(long)]
    json: bool,
    /// Draw the graph as an SVG, also if the answer is no
    ///
    /// The graph is drawn even if it is refused. Example: --svg flow.svg
    #[arg(long, value_name = "FILE", value_parser = svg_file())]
    svg: Option<PathBuf>,
    /// Write the graph for Graphviz, also if the answer is no
    ///
    /// The graph is written even if it is refused. Example: --dot flow.dot; dot -Tpng flow.dot
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Answer "unknown" above this many firings of a task in one iteration
    ///
    /// From this number of firings of a task in one iteration on, the answer is "unknown".
    /// Example: --max-firings 1000000
    #[arg(long, value_name = "N", default_value_t = Limits::default().firings)]
    max_firings: u64,
    /// Answer "unknown" after this many steps of the search for deadlocks and sizes
    ///
    /// From this number of steps of the search on, the answer is "unknown". Example: --max-work
    /// 10000000
    #[arg(long, value_name = "N", default_value_t = Limits::default().work)]
    max_work: u64,
}

/// The exit code is the answer. Errors: a file cannot be read, is wrong, or cannot be written.
pub fn graph(args: &Args) -> Result<u8> {
    let outputs = [("--svg", args.svg.as_deref()), ("--dot", args.dot.as_deref())];
    separate(std::slice::from_ref(&args.file), &outputs)?;
    let text = read(&args.file)?;
    let graph: Graph =
        text.parse().map_err(|error: GraphError| wrong(&args.file, &error.to_string()))?;
    let result = analyze(&graph, &Limits { firings: args.max_firings, work: args.max_work });
    for (path, draw) in
        [(&args.svg, svg as fn(&Graph, &Result<Report, Refusal>) -> String), (&args.dot, dot)]
    {
        if let Some(path) = path {
            write(path, &draw(&graph, &result))?;
        }
    }
    let placed = |refusal: &Refusal| match line_of(&text, refusal) {
        Some(line) => format!("{}: line {line}, {refusal}", args.file.display()),
        None => refusal.to_string(),
    };
    if args.json {
        let value = match &result {
            Ok(report) => json!({ "verdict": "yes", "report": report }),
            Err(refusal) => json!({
                "verdict": refusal.verdict(), "refusal": refusal, "message": placed(refusal),
            }),
        };
        print_json(value, TimeBase::NANOSECONDS)?;
    } else if let Ok(report) = &result {
        print!("{}", text_of(&graph, report));
    }
    match result {
        Ok(_) => Ok(0),
        Err(refusal) => {
            let (code, word) = match refusal.verdict() {
                Verdict::No => (NOT_SCHEDULABLE, "no"),
                Verdict::Unknown => (UNDECIDED, "unknown"),
            };
            if !args.json {
                println!("{word}: {}", placed(&refusal));
            }
            Ok(code)
        }
    }
}

/// For people: the answer, a line a task, a line an edge, the schedule, what to mind.
fn text_of(graph: &Graph, report: &Report) -> String {
    let mut text = "yes: consistent, and never blocks with the sizes below\n\n".to_owned();
    let mut rows =
        vec![["task", "case", "firings", "Gc0", "K", "Gc", "may change after"].map(str::to_owned)];
    for task in &report.tasks {
        let list = |of: fn(&asmp_analysis::graph::Output) -> u64| {
            let all: Vec<String> =
                task.outputs.iter().map(|output| of(output).to_string()).collect();
            all.join(" ")
        };
        let (case, factor) = match task.case {
            Case::Independent => ("independent", 1),
            Case::Data => ("data", 1),
            Case::Configuration => ("configuration", report.clusters[task.cluster].factor),
        };
        let after = match task.change_after_firings {
            1 => "each firing".to_owned(),
            firings => format!("{firings} firings"),
        };
        rows.push([
            task.name.clone(),
            case.to_owned(),
            task.firings.to_string(),
            list(|output| output.gc0),
            factor.to_string(),
            list(|output| output.gc),
            after,
        ]);
    }
    text += &table(&rows);
    if !report.edges.is_empty() {
        let mut rows = vec![
            ["edge", "write : read", "initial", "memory", "size", "", "schedule"]
                .map(str::to_owned),
        ];
        for edge in &report.edges {
            let or = |value: Option<u64>, word: &str| {
                value.map_or_else(|| word.to_owned(), |value| value.to_string())
            };
            let proof = match edge.size.map(|size| size.proof) {
                Some(Proof::Least) => "least".to_owned(),
                Some(Proof::Irreducible) => format!("irreducible, at least {}", edge.least),
                Some(Proof::Enough) | None => format!("at least {}", edge.least),
            };
            rows.push([
                edge.name.clone(),
                format!("{} : {}", edge.write, edge.read),
                edge.initial.to_string(),
                or(edge.memory, "-"),
                or(edge.size.map(|size| size.tokens), "unknown"),
                proof,
                or(edge.peak, "unknown"),
            ]);
        }
        text += "\n";
        text += &table(&rows);
    }
    text += &format!("\nschedule: {}\n", report.schedule.text(graph, RUNS_SHOWN));
    if let Some(within) = &report.schedule_within_sizes
        && *within != report.schedule
    {
        text += &format!("within the sizes: {}\n", within.text(graph, RUNS_SHOWN));
    }
    for edge in report.edges.iter().filter(|edge| edge.initial > 0) {
        let tokens = if edge.initial == 1 { "token" } else { "tokens" };
        text += &format!(
            "note: when the configuration changes, {} holds {} {tokens} of the old one: flush or \
             count\n",
            edge.name, edge.initial
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::BAD_FILE;

    #[test]
    fn the_camera_prints_what_the_guide_shows() {
        let graph: Graph = include_str!("../../../examples/analysis/camera.toml").parse().unwrap();
        let report = analyze(&graph, &Limits::default()).unwrap();
        let text = text_of(&graph, &report);
        assert_eq!(text, include_str!("../../../examples/analysis/camera.expected"));
        let guide = include_str!("../../../docs/guide/granularity.md");
        assert!(guide.contains(text.as_str()));
        let example = include_str!("../../../examples/analysis/camera.toml");
        let (_, declared) = example.split_once("\n\n").unwrap();
        assert!(guide.contains(declared), "the file too");
    }

    #[test]
    fn the_exit_code_says_yes_no_wrong_or_unknown_and_refused_graphs_are_drawn() {
        let dir = tempfile::tempdir().unwrap();
        let pair = "[[task]]\nname = \"a\"\n[[task]]\nname = \"b\"\n";
        let edge =
            |rest: &str| format!("[[edge]]\nfrom = \"a\"\nto = \"b\"\nwrite = 2\nread = 3\n{rest}");
        for (text, code) in [
            (format!("{pair}{}", edge("")), 0),
            (format!("{pair}{}", edge("memory = 3\n")), 60),
            (format!("{pair}{}", edge("delay = 3\n")), 40),
            (format!("{pair}{}", edge("").replace("2\n", "1234567\n")), 61),
        ] {
            let file = dir.path().join("flow.toml");
            std::fs::write(&file, &text).unwrap();
            let drawing = dir.path().join(format!("{code}.svg"));
            let args = Args {
                file,
                json: code % 2 == 1,
                svg: Some(drawing.clone()),
                dot: None,
                max_firings: 1_000_000,
                max_work: 1_000,
            };
            let got = graph(&args).unwrap_or_else(|error| crate::exit::code_of(&error));
            assert_eq!(got, code, "{text}");
            assert_eq!(drawing.exists(), code != 40);
            let missing = Args { file: dir.path().join("none.toml"), ..args };
            assert_eq!(crate::exit::code_of(&graph(&missing).unwrap_err()), BAD_FILE);
            let unwritable = Args {
                file: dir.path().join("flow.toml"),
                svg: Some(dir.path().into()),
                ..missing
            };
            assert_eq!(crate::exit::code_of(&graph(&unwritable).unwrap_err()), BAD_FILE);
        }
    }
}
