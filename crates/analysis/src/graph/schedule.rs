// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One order of firings that an iteration can have: admissible, periodic, and short to write down.
//!
//! Rings of tasks follow each other, sources first. A ring repeats an iteration of its own; a task
//! outside a ring fires all its firings at once.

use super::balance::Balance;
use super::fire::{End, Piece, Run, Work};
use super::model::{Graph, Limits};
use super::piece::{blocks, rings};
use super::refusal::{On, Refusal, Wait};
#[cfg(feature = "files")]
use serde::Serialize;

/// Longest ring iteration that is written down.
const RUNS_KEPT: usize = 1000;

/// The runs, repeated `times`, before the next phase.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Phase {
    pub times: u64,
    /// Indices of its tasks.
    pub tasks: Vec<usize>,
    /// `None`: too long to list; fire any task that has its tokens and its room, it was proven
    /// that one always has.
    pub runs: Option<Vec<Run>>,
}

/// One iteration. After it every edge holds what it held before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Schedule {
    pub phases: Vec<Phase>,
}

impl Schedule {
    /// `2 a, 3 (b, 4 c)`; after `most` runs it says how many more there are.
    pub fn text(&self, graph: &Graph, most: usize) -> String {
        let name = |task: usize| graph.tasks()[task].name.as_str();
        let count = |count: u64| if count == 1 { String::new() } else { format!("{count} ") };
        let mut words = Vec::new();
        let mut shown = 0;
        for (index, phase) in self.phases.iter().enumerate() {
            let Some(runs) = &phase.runs else {
                let names: Vec<&str> =
                    phase.tasks.iter().take(most).map(|task| name(*task)).collect();
                words.push(format!("whichever of {} can fire", names.join(", ")));
                continue;
            };
            if shown >= most {
                words.push(format!("and {} more", self.phases.len() - index));
                break;
            }
            let mut inner: Vec<String> = runs
                .iter()
                .take(most)
                .map(|run| format!("{}{}", count(run.firings), name(run.task)))
                .collect();
            if runs.len() > most {
                inner.push(format!("and {} more", runs.len() - most));
            }
            shown += runs.len();
            let inner = inner.join(", ");
            match phase.times {
                1 => words.push(inner),
                times => words.push(format!("{times} ({inner})")),
            }
        }
        words.join(", ")
    }
}

/// A schedule within the memories, and the most tokens it has on each edge (`None`: in a phase too
/// long to run). Errors: [`Refusal::Deadlock`] is proven; [`Refusal::WorkBound`].
pub(super) fn schedule(
    graph: &Graph,
    balance: &Balance,
    limits: &Limits,
) -> Result<(Schedule, Vec<Option<u64>>), Refusal> {
    self_loops(graph)?;
    let memory = |edge: usize| graph.edges()[edge].memory;
    let rings = rings(graph, |edge| memory(edge).is_some());
    let mut cut_up = None;
    let (mut work, mut more_work) = (Work::new(limits.work), Work::new(limits.work));
    let mut peaks: Vec<Option<u64>> = vec![None; graph.edges().len()];
    for (index, edge) in graph.edges().iter().enumerate() {
        // The writer's ring is done before the reader's begins; a self-loop has the same count
        // after each firing.
        if edge.from == edge.to {
            peaks[index] = Some(edge.initial);
        } else if !rings.holds(graph, index) {
            peaks[index] = balance.firings[edge.from]
                .checked_mul(edge.write)
                .and_then(|written| written.checked_add(edge.initial));
        }
    }
    let mut phases = Vec::with_capacity(rings.groups.len());
    for (group, tasks) in rings.groups.iter().enumerate() {
        if let &[task] = tasks.as_slice() {
            let runs = Some(vec![Run { task, firings: balance.firings[task] }]);
            phases.push(Phase { times: 1, tasks: tasks.clone(), runs });
            continue;
        }
        let mut piece = Piece::new(graph, &rings, group, &balance.firings, memory, RUNS_KEPT);
        match piece.run(&mut work) {
            End::Done => {
                for (edge, _, peak) in piece.sizes() {
                    peaks[edge] = Some(peak);
                }
                phases.push(Phase {
                    times: piece.times,
                    tasks: tasks.clone(),
                    runs: piece.into_runs(),
                });
            }
            End::Stuck => return Err(piece.deadlock()),
            End::OutOfWork => {
                // Its blocks repeat sooner, each on its own. A ring without memories is one block.
                let blocks = cut_up.get_or_insert_with(|| blocks(graph, &rings));
                for &task in tasks {
                    let (block, place) = blocks.of[task];
                    if place > 0 || blocks.groups[block].len() == 1 {
                        continue;
                    }
                    let mut piece = Piece::new(graph, blocks, block, &balance.firings, memory, 0);
                    match piece.run(&mut more_work) {
                        End::Done => {}
                        End::Stuck => return Err(piece.deadlock()),
                        End::OutOfWork => {
                            let task = graph.tasks()[task].name.clone();
                            return Err(Refusal::WorkBound { task, work: limits.work });
                        }
                    }
                }
                phases.push(Phase { times: 1, tasks: tasks.clone(), runs: None });
            }
        }
    }
    Ok((Schedule { phases }, peaks))
}

/// A task that reads what it writes needs what it reads from the start: the count is the same after
/// each firing.
fn self_loops(graph: &Graph) -> Result<(), Refusal> {
    for edge in graph.edges() {
        if edge.from == edge.to && edge.initial < edge.read {
            let on = On::Tokens { reads: edge.read, holds: edge.initial };
            let task = graph.tasks()[edge.from].name.clone();
            return Err(Refusal::Deadlock {
                waits: vec![Wait { task, edge: edge.name.clone(), on }],
            });
        }
    }
    Ok(())
}
