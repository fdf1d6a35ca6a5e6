// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The graph as a picture: boxes in layers from left to right, each right of all it reads from but
//! for what comes back in a ring. For a few dozen tasks; more are drawn, but DOT and Graphviz lay
//! them out better.

use super::dot::labels;
use super::model::Graph;
use super::refusal::Refusal;
use super::report::Report;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

const BOX: (usize, usize) = (170, 62);
const GAP: (usize, usize) = (190, 120);
const MARGIN: usize = 60;
/// How far arcs of a row leave it, one after another; a curve comes three quarters of the way.
const LANES: [usize; 3] = [36, 56, 76];

/// The graph with its numbers, or with the edges at fault in red. Linear but for sorting.
pub fn svg(graph: &Graph, result: &Result<Report, Refusal>) -> String {
    let labels = labels(graph, result);
    let place = places(graph);
    let (columns, rows) =
        place.iter().fold((0, 0), |(columns, rows), &(x, y)| (columns.max(x + 1), rows.max(y + 1)));
    let corner = |(column, row): (usize, usize)| {
        (MARGIN + column * (BOX.0 + GAP.0), MARGIN + row * (BOX.1 + GAP.1))
    };
    let width = columns * (BOX.0 + GAP.0) - GAP.0 + 2 * MARGIN;
    let height = rows * (BOX.1 + GAP.1) - GAP.1 + 2 * MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\" \
         text-anchor=\"middle\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let mut words = String::new();
    let mut arcs = BTreeMap::new();
    for (index, edge) in graph.edges().iter().enumerate() {
        let (from, to) = (place[edge.from], place[edge.to]);
        let ((x1, y1), (x2, y2)) = (corner(from), corner(to));
        let colour = if labels.at_fault[index] { "red" } else { "black" };
        let mut lane = |key| {
            let count = arcs.entry(key).or_insert(0);
            *count += 1;
            *count - 1
        };
        let (path, (x, y)) = if from.0 + 1 == to.0 {
            // Straight to the next layer; edges side by side leave and arrive one below the other.
            let below = lane((edge.from, edge.to, true)) % LANES.len() * 18;
            let (x1, y1, y2) = (x1 + BOX.0, y1 + BOX.1 / 3 + below, y2 + BOX.1 / 3 + below);
            let middle = x1.midpoint(x2);
            (format!("M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"), (middle, y1.midpoint(y2)))
        } else if from.0 < to.0 {
            // Over the boxes between.
            let far = LANES[lane((from.1, 0, true)) % LANES.len()];
            let (x1, x2, y) = (x1 + BOX.0 * 3 / 4, x2 + BOX.0 / 4, y1.min(y2).saturating_sub(far));
            let top = (y1 + y2 + 6 * y) / 8;
            (format!("M{x1} {y1}C{x1} {y} {x2} {y} {x2} {y2}"), (x1.midpoint(x2), top))
        } else {
            // Back to an earlier layer, to the same, or to itself: under the boxes.
            let far = LANES[lane((from.1, 0, false)) % LANES.len()];
            let (x1, x2, y) = (x1 + BOX.0 * 3 / 4, x2 + BOX.0 / 4, y1.max(y2) + BOX.1 + far);
            let (y1, y2) = (y1 + BOX.1, y2 + BOX.1);
            let bottom = (y1 + y2 + 6 * y) / 8;
            (format!("M{x1} {y1}C{x1} {y} {x2} {y} {x2} {y2}"), (x1.midpoint(x2), bottom))
        };
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" \
             marker-end=\"url(#tip)\"><title>{}</title></path>",
            escape(&graph.edges()[index].name)
        );
        let _ = writeln!(
            words,
            "<text x=\"{x}\" y=\"{}\" fill=\"{colour}\" font-size=\"11\" stroke=\"white\" \
             stroke-width=\"4\" paint-order=\"stroke\">{}</text>",
            y + 4,
            escape(&labels.edges[index])
        );
    }
    for (index, task) in graph.tasks().iter().enumerate() {
        let (x, y) = corner(place[index]);
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"#eef3f8\" \
             stroke=\"black\"/>",
            BOX.0, BOX.1
        );
        let name: String = match task.name.chars().count() {
            0..=24 => task.name.clone(),
            _ => task.name.chars().take(23).chain(['…']).collect(),
        };
        let bold = " font-weight=\"bold\"";
        let lines = std::iter::once((name.as_str(), bold))
            .chain(labels.tasks[index].iter().map(|line| (line.as_str(), "")));
        for (row, (line, weight)) in lines.enumerate() {
            let _ = writeln!(
                text,
                "<text x=\"{}\" y=\"{}\"{weight}>{}</text>",
                x + BOX.0 / 2,
                y + 20 + row * 17,
                escape(line)
            );
        }
    }
    text.push_str(&words);
    text.push_str("</svg>\n");
    text
}

/// Layer and row of each task. Where only rings are left, the first task of the file breaks them.
fn places(graph: &Graph) -> Vec<(usize, usize)> {
    let count = graph.tasks().len();
    let mut missing: Vec<usize> = (0..count)
        .map(|task| {
            graph.inputs(task).iter().filter(|edge| graph.edges()[**edge].from != task).count()
        })
        .collect();
    let mut layer: Vec<Option<usize>> = vec![None; count];
    let mut ready: VecDeque<usize> = (0..count).filter(|task| missing[*task] == 0).collect();
    let mut order = Vec::with_capacity(count);
    let mut rest = 0;
    while order.len() < count {
        let Some(task) = ready.pop_front() else {
            while layer[rest].is_some() {
                rest += 1;
            }
            ready.push_back(rest);
            continue;
        };
        if layer[task].is_some() {
            continue;
        }
        let before = graph.inputs(task).iter().filter_map(|edge| layer[graph.edges()[*edge].from]);
        layer[task] = Some(before.max().map_or(0, |layer| layer + 1));
        order.push(task);
        for &edge in graph.outputs(task) {
            let next = graph.edges()[edge].to;
            if next != task && layer[next].is_none() {
                missing[next] -= 1;
                if missing[next] == 0 {
                    ready.push_back(next);
                }
            }
        }
    }
    // A task stands beside the first it reads from, where that row is free.
    let mut place = vec![(0, 0); count];
    let mut used: Vec<usize> = Vec::new();
    order.sort_by_key(|task| layer[*task]);
    for task in order {
        let column = layer[task].unwrap_or(0);
        used.resize(used.len().max(column + 1), 0);
        let beside = graph.inputs(task).iter().map(|edge| graph.edges()[*edge].from);
        let beside =
            beside.filter(|from| layer[*from] < layer[task]).map(|from| place[from].1).min();
        let row = used[column].max(beside.unwrap_or(0));
        used[column] = row + 1;
        place[task] = (column, row);
    }
    place
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
