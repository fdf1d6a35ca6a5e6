// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary graphs through every function of data flow.

use super::numbers::{Met, index, number, one_in};
use asmp_analysis::graph::{Case, Edge, Graph, Limits, Task, analyze, dot, least_capacity, svg};
use asmp_analysis::simulate::Random;

/// A rate: mostly small.
fn rate(random: &mut Random) -> u64 {
    match random.up_to(3) {
        0 => number(random),
        _ => 1 + random.up_to(3),
    }
}

/// Half of the graphs have rates that fit counts of firings, but for an edge now and then; of the
/// others each rate is anything.
fn arbitrary(random: &mut Random) -> (Vec<Task>, Vec<Edge>) {
    let count = index(random, 7);
    let task = |at: usize, random: &mut Random| Task {
        name: if one_in(random, 50) { "same".to_owned() } else { format!("t{at} <&\"é") },
        case: [Case::Configuration, Case::Data, Case::Independent]
            [index(random, 60).saturating_sub(57)],
        output: one_in(random, 4).then(|| rate(random)),
        multiple_of: one_in(random, 8).then(|| rate(random)),
    };
    let tasks: Vec<Task> = (0..count).map(|at| task(at, random)).collect();
    let firings: Option<Vec<u64>> =
        one_in(random, 2).then(|| (0..count + 2).map(|_| 1 + random.up_to(5)).collect());
    // Now and then a task that is not there.
    let known = count.max(1) + usize::from(one_in(random, 100));
    let edge = |at: usize, random: &mut Random| {
        let (mut from, mut to) = (index(random, known), index(random, count.max(1)));
        let (write, read) = match &firings {
            Some(firings) if !one_in(random, 20) => {
                let times = 1 + random.up_to(2);
                if from > to && !one_in(random, 4) {
                    (from, to) = (to, from);
                }
                (firings[to] * times, firings[from] * times)
            }
            _ => (rate(random), rate(random)),
        };
        let initial = match random.up_to(3) {
            0 => number(random),
            1 => random.up_to(30),
            _ => 0,
        };
        let memory = match random.up_to(7) {
            0 => Some(number(random)),
            1 | 2 => Some(initial.saturating_add(write).saturating_add(read)),
            _ => None,
        };
        let multiple_of = one_in(random, 16).then(|| rate(random));
        Edge { name: format!("e{at}"), from, to, write, read, initial, memory, multiple_of }
    };
    let edges = (0..index(random, 9)).map(|at| edge(at, random)).collect();
    (tasks, edges)
}

pub fn once(seed: u64, met: &mut Met) {
    let random = &mut Random::new(seed ^ 0x6e);
    let (tasks, edges) = arbitrary(random);
    let _ = least_capacity(number(random), number(random), number(random));
    let Ok(graph) = Graph::new(tasks, edges) else {
        met.graphs_refused += 1;
        return;
    };
    judge(&graph, random, met);
}

/// All numbers and both drawings of a graph.
pub fn judge(graph: &Graph, random: &mut Random, met: &mut Met) {
    let firings = if one_in(random, 2) { u64::MAX } else { number(random) };
    let result = analyze(graph, &Limits { firings, work: 1 + random.up_to(500) });
    assert!(svg(graph, &result).ends_with("</svg>\n") && dot(graph, &result).ends_with("}\n"));
    match &result {
        Ok(report) => {
            met.graphs += 1;
            let _ = report.is_least();
            assert!(
                !report.schedule.text(graph, index(random, 12)).is_empty()
                    || graph.tasks().is_empty()
            );
        }
        Err(refusal) => {
            met.graphs_refused += 1;
            let _ = (refusal.verdict(), refusal.edges());
            assert!(!refusal.to_string().is_empty());
        }
    }
}
