// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often each task fires in one iteration: the smallest positive q with G q = 0 (Lee,
//! Messerschmitt 1987). The paper's Algorithm 1 (Eustache 2008) finds the same numbers as `Cy`, but
//! does not end on inconsistent rates.
//!
//! Fractions go along a spanning forest that takes edges in the order they were given; each other
//! edge is then checked, so that the edge that is named contradicts edges before it. O(V + E) but
//! for the forest's union-find.

use super::model::Graph;
use super::refusal::{Contradiction, Refusal};
use crate::numbers::{gcd, lcm};
use std::collections::VecDeque;

/// q, and which tasks hang together.
pub(super) struct Balance {
    /// Firings of each task in one iteration of its cluster; their greatest common divisor over a
    /// cluster is 1.
    pub firings: Vec<u64>,
    /// Cluster of each task: those connected by edges, numbered by their first task.
    pub cluster: Vec<usize>,
    pub clusters: usize,
}

/// A positive fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ratio {
    over: u64,
    under: u64,
}

impl Ratio {
    const ONE: Self = Self { over: 1, under: 1 };

    /// Times over / under; `None` where the result in lowest terms does not fit.
    fn times(self, over: u64, under: u64) -> Option<Self> {
        let shared = gcd(over, under);
        let (over, under) = (over / shared, under / shared);
        let (left, right) = (gcd(self.over, under), gcd(over, self.under));
        Some(Self {
            over: (self.over / left).checked_mul(over / right)?,
            under: (self.under / right).checked_mul(under / left)?,
        })
    }
}

/// Errors: [`Refusal::Inconsistent`], [`Refusal::TooManyFirings`].
pub(super) fn balance(graph: &Graph, max_firings: u64) -> Result<Balance, Refusal> {
    let tasks = graph.tasks();
    let too_many = |task: usize| Refusal::TooManyFirings {
        task: tasks[task].name.clone(),
        bound: max_firings,
    };
    let in_forest = forest(graph);
    let mut ratio: Vec<Option<Ratio>> = vec![None; tasks.len()];
    let mut cluster = vec![0; tasks.len()];
    let mut members: Vec<Vec<usize>> = Vec::new();
    for root in 0..tasks.len() {
        if ratio[root].is_some() {
            continue;
        }
        ratio[root] = Some(Ratio::ONE);
        let mut here = Vec::new();
        let mut queue = VecDeque::from([(root, Ratio::ONE)]);
        while let Some((task, of_task)) = queue.pop_front() {
            cluster[task] = members.len();
            here.push(task);
            for &index in graph.outputs(task).iter().chain(graph.inputs(task)) {
                let edge = &graph.edges()[index];
                let (next, over, under) = match edge.from == task {
                    true => (edge.to, edge.write, edge.read),
                    false => (edge.from, edge.read, edge.write),
                };
                if !in_forest[index] || ratio[next].is_some() {
                    continue;
                }
                // The fraction of two tasks of a cluster, in lowest terms, is no larger than their
                // firings: what does not fit here fits nowhere.
                let of_next = of_task.times(over, under).ok_or_else(|| too_many(next))?;
                ratio[next] = Some(of_next);
                queue.push_back((next, of_next));
            }
        }
        members.push(here);
    }
    let ratio: Vec<Ratio> = ratio.into_iter().map(|ratio| ratio.unwrap_or(Ratio::ONE)).collect();
    for (edge, in_forest) in graph.edges().iter().zip(in_forest) {
        let (from, to) = (ratio[edge.from], ratio[edge.to]);
        // Lowest terms are unique: what does not fit is not equal to what does.
        if !in_forest && from.times(edge.write, edge.read) != Some(to) {
            let over = u128::from(from.over) * u128::from(to.under);
            let under = u128::from(to.over) * u128::from(from.under);
            let shared = gcd_wide(over, under);
            return Err(Refusal::Inconsistent(Box::new(Contradiction {
                edge: edge.name.clone(),
                from: tasks[edge.from].name.clone(),
                to: tasks[edge.to].name.clone(),
                write: edge.write,
                read: edge.read,
                from_firings: over / shared,
                to_firings: under / shared,
            })));
        }
    }
    // Scaled by the least common multiple of what is under the fractions, their greatest common
    // divisor is 1: a prime of that multiple is missing where it came from, and any other is
    // missing in the root, whose fraction is 1.
    let mut firings = vec![1; tasks.len()];
    for here in &members {
        let mut scale = 1;
        for &task in here {
            scale = lcm(scale, ratio[task].under).ok_or_else(|| too_many(here[0]))?;
        }
        for &task in here {
            let Ratio { over, under } = ratio[task];
            let count = (scale / under).checked_mul(over).filter(|count| *count <= max_firings);
            firings[task] = count.ok_or_else(|| too_many(task))?;
        }
    }
    Ok(Balance { firings, cluster, clusters: members.len() })
}

/// Which edges join what no edge before them joined.
fn forest(graph: &Graph) -> Vec<bool> {
    let mut parent: Vec<usize> = (0..graph.tasks().len()).collect();
    let mut taken = Vec::with_capacity(graph.edges().len());
    for edge in graph.edges() {
        let (a, b) = (find(&mut parent, edge.from), find(&mut parent, edge.to));
        taken.push(a != b);
        parent[a] = b;
    }
    taken
}

/// The root of a task's tree; halves the path on the way, so a long one is walked once (O(log V)
/// amortized).
fn find(parent: &mut [usize], mut task: usize) -> usize {
    while parent[task] != task {
        parent[task] = parent[parent[task]];
        task = parent[task];
    }
    task
}

fn gcd_wide(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
