// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cuts a graph into the pieces in which tasks can block each other.
//!
//! A blocked task waits for one neighbour: for the writer of an edge without enough tokens, or for
//! the reader of an edge without enough room. Where nothing can fire, following these waits ends in
//! a ring, and
//! - a ring lies within tasks that wait for each other both ways ([`rings`]: strongly connected,
//!   where an edge of bounded memory counts both ways), and
//! - a ring is either two tasks at the two ends of one edge, which cannot be from
//!   [`super::least_capacity`] on, or runs through edges none of which is a bridge ([`blocks`]).
//!
//! The tasks of a ring wait for each other independently of the others. So a graph never blocks
//! exactly if none of its pieces does on its own. Both cuts are linear and use no recursion.

use super::model::Graph;

/// Tasks in groups.
pub(super) struct Pieces {
    /// Of each task, the group and its place in it.
    pub of: Vec<(usize, usize)>,
    pub groups: Vec<Vec<usize>>,
}

impl Pieces {
    fn number(groups: Vec<Vec<usize>>, tasks: usize) -> Self {
        let mut of = vec![(0, 0); tasks];
        for (group, members) in groups.iter().enumerate() {
            for (place, &task) in members.iter().enumerate() {
                of[task] = (group, place);
            }
        }
        Self { of, groups }
    }

    /// Both ends of an edge lie in one group.
    pub(super) fn holds(&self, graph: &Graph, edge: usize) -> bool {
        let edge = &graph.edges()[edge];
        self.of[edge.from].0 == self.of[edge.to].0
    }
}

/// Groups of tasks that wait for each other, sources first (Kosaraju). `bounded`: edges whose
/// writer may have to wait for room.
pub(super) fn rings(graph: &Graph, bounded: impl Fn(usize) -> bool) -> Pieces {
    let count = graph.tasks().len();
    let order = {
        let next = |task: usize, at: usize| neighbour(graph, &bounded, task, at, true);
        let mut seen = vec![false; count];
        let mut order = Vec::with_capacity(count);
        for root in 0..count {
            walk(root, &mut seen, next, &mut order);
        }
        order
    };
    let next = |task: usize, at: usize| neighbour(graph, &bounded, task, at, false);
    let mut seen = vec![false; count];
    let mut groups = Vec::new();
    for &root in order.iter().rev() {
        let mut group = Vec::new();
        walk(root, &mut seen, next, &mut group);
        if !group.is_empty() {
            group.sort_unstable();
            groups.push(group);
        }
    }
    Pieces::number(groups, count)
}

/// The `at`th way out of a task: `Some(None)` one that is closed, `None` after the last.
fn neighbour(
    graph: &Graph,
    bounded: &impl Fn(usize) -> bool,
    task: usize,
    at: usize,
    forward: bool,
) -> Option<Option<usize>> {
    let (outputs, inputs) = (graph.outputs(task), graph.inputs(task));
    if let Some(&edge) = outputs.get(at) {
        return Some((forward || bounded(edge)).then(|| graph.edges()[edge].to));
    }
    let &edge = inputs.get(at - outputs.len())?;
    Some((!forward || bounded(edge)).then(|| graph.edges()[edge].from))
}

/// Depth first from `root`, unless it was seen; tasks are appended as they are left.
fn walk(
    root: usize,
    seen: &mut [bool],
    next: impl Fn(usize, usize) -> Option<Option<usize>>,
    left: &mut Vec<usize>,
) {
    if std::mem::replace(&mut seen[root], true) {
        return;
    }
    let mut path = vec![(root, 0)];
    while let Some((task, at)) = path.last_mut() {
        let step = next(*task, *at);
        *at += 1;
        match step {
            Some(Some(to)) if !seen[to] => {
                seen[to] = true;
                path.push((to, 0));
            }
            Some(_) => {}
            None => {
                left.push(*task);
                path.pop();
            }
        }
    }
}

/// Splits groups at their bridges: edges without which the tasks at their ends would not hang
/// together.
pub(super) fn blocks(graph: &Graph, rings: &Pieces) -> Pieces {
    let count = graph.tasks().len();
    let inside = |edge: usize| rings.holds(graph, edge);
    // When a task was first reached, and the earliest task that it or those behind it lead back to.
    let mut reached: Vec<Option<usize>> = vec![None; count];
    let mut earliest = vec![0; count];
    let mut clock = 0;
    let mut bridge = vec![false; graph.edges().len()];
    for root in 0..count {
        if reached[root].is_some() {
            continue;
        }
        let mut path: Vec<(usize, usize, Option<usize>)> = vec![(root, 0, None)];
        while let Some((task, at, came_by)) = path.last_mut() {
            let (task, came_by) = (*task, *came_by);
            if *at == 0 {
                reached[task] = Some(clock);
                earliest[task] = clock;
                clock += 1;
            }
            let (outputs, inputs) = (graph.outputs(task), graph.inputs(task));
            let edge = outputs.get(*at).or_else(|| inputs.get(*at - outputs.len())).copied();
            *at += 1;
            match edge {
                Some(edge) if Some(edge) == came_by || !inside(edge) => {}
                Some(edge) => {
                    let ends = &graph.edges()[edge];
                    let to = if ends.from == task { ends.to } else { ends.from };
                    match reached[to] {
                        Some(time) => earliest[task] = earliest[task].min(time),
                        None => path.push((to, 0, Some(edge))),
                    }
                }
                None => {
                    path.pop();
                    if let (Some((parent, ..)), Some(edge)) = (path.last(), came_by) {
                        bridge[edge] = reached[task] == Some(earliest[task]);
                        earliest[*parent] = earliest[*parent].min(earliest[task]);
                    }
                }
            }
        }
    }
    let next = |task: usize, at: usize| {
        let (outputs, inputs) = (graph.outputs(task), graph.inputs(task));
        let &edge = outputs.get(at).or_else(|| inputs.get(at - outputs.len()))?;
        let ends = &graph.edges()[edge];
        let to = if ends.from == task { ends.to } else { ends.from };
        Some((inside(edge) && !bridge[edge]).then_some(to))
    };
    let mut seen = vec![false; count];
    let mut groups = Vec::new();
    for root in 0..count {
        let mut group = Vec::new();
        walk(root, &mut seen, next, &mut group);
        if !group.is_empty() {
            group.sort_unstable();
            groups.push(group);
        }
    }
    Pieces::number(groups, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Case, Edge, Task};

    fn graph(tasks: usize, ends: &[(usize, usize)]) -> Graph {
        let task = |n| Task {
            name: format!("t{n}"),
            case: Case::Configuration,
            output: None,
            multiple_of: None,
        };
        let edge = |(n, &(from, to)): (usize, &(usize, usize))| Edge {
            name: format!("e{n}"),
            from,
            to,
            write: 1,
            read: 1,
            initial: 0,
            memory: None,
            multiple_of: None,
        };
        Graph::new((0..tasks).map(task).collect(), ends.iter().enumerate().map(edge).collect())
            .unwrap()
    }

    #[test]
    fn rings_come_sources_first_and_bounded_edges_count_both_ways() {
        // 0 -> (1 <-> 2) -> 3
        let graph = graph(4, &[(2, 3), (0, 1), (1, 2), (2, 1)]);
        assert_eq!(rings(&graph, |_| false).groups, [vec![0], vec![1, 2], vec![3]]);
        assert_eq!(rings(&graph, |edge| edge == 0).groups, [vec![0], vec![1, 2, 3]]);
    }

    #[test]
    fn blocks_end_at_bridges_and_parallel_edges_are_none() {
        // A triangle, a bridge, two parallel edges, a loop at the end of another bridge.
        let graph = graph(6, &[(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (3, 4), (4, 5), (5, 5)]);
        let all = rings(&graph, |_| true);
        assert_eq!(all.groups.len(), 1);
        assert_eq!(blocks(&graph, &all).groups, [vec![0, 1, 2], vec![3, 4], vec![5]]);
        let none = rings(&graph, |_| false);
        assert_eq!(blocks(&graph, &none).groups.len(), 6);
    }
}
