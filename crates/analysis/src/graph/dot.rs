// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The graph for Graphviz.

use super::model::Graph;
use super::refusal::Refusal;
use super::report::Report;
use std::fmt::Write;

/// Words under a task's name, on an edge; edges at fault. Shared by both drawings.
pub(super) struct Labels {
    pub tasks: Vec<Vec<String>>,
    pub edges: Vec<String>,
    pub at_fault: Vec<bool>,
}

pub(super) fn labels(graph: &Graph, result: &Result<Report, Refusal>) -> Labels {
    let mut tasks = vec![Vec::new(); graph.tasks().len()];
    let mut edges = Vec::with_capacity(graph.edges().len());
    for edge in graph.edges() {
        let mut label = format!("{} : {}", edge.write, edge.read);
        if edge.initial > 0 {
            let _ = write!(label, ", starts with {}", edge.initial);
        }
        edges.push(label);
    }
    let mut at_fault = vec![false; graph.edges().len()];
    match result {
        Ok(report) => {
            for (words, task) in tasks.iter_mut().zip(&report.tasks) {
                let factor = report.clusters[task.cluster].factor;
                words.push(format!("q {} · K {factor}", task.firings));
                let mut gc: Vec<String> =
                    task.outputs.iter().map(|output| output.gc.to_string()).collect();
                gc.dedup();
                if gc.len() > 4 {
                    gc.truncate(3);
                    gc.push("…".to_owned());
                }
                words.push(format!("Gc {}", gc.join(", ")));
            }
            for (label, edge) in edges.iter_mut().zip(&report.edges) {
                if let Some(size) = edge.size {
                    let _ = write!(label, ", size {}", size.tokens);
                }
            }
        }
        Err(refusal) => {
            let names = refusal.edges();
            for (at_fault, edge) in at_fault.iter_mut().zip(graph.edges()) {
                *at_fault = names.contains(&edge.name.as_str());
            }
        }
    }
    Labels { tasks, edges, at_fault }
}

/// The graph with its numbers, or with the edges at fault in red. Linear.
pub fn dot(graph: &Graph, result: &Result<Report, Refusal>) -> String {
    let labels = labels(graph, result);
    let mut text = concat!(
        "digraph flow {\n",
        "  rankdir=LR;\n",
        "  node [shape=box, fontname=\"sans-serif\"];\n",
        "  edge [fontname=\"sans-serif\"];\n"
    )
    .to_owned();
    for (index, (task, words)) in graph.tasks().iter().zip(&labels.tasks).enumerate() {
        let lines: Vec<String> =
            std::iter::once(&task.name).chain(words).map(|line| escape(line)).collect();
        let _ = writeln!(text, "  t{index} [label=\"{}\"];", lines.join("\\n"));
    }
    for (index, edge) in graph.edges().iter().enumerate() {
        let red = if labels.at_fault[index] { ", color=red, fontcolor=red" } else { "" };
        let _ = writeln!(
            text,
            "  t{} -> t{} [label=\"{}\"{red}];",
            edge.from,
            edge.to,
            escape(&labels.edges[index])
        );
    }
    text.push_str("}\n");
    text
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
