// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A graph in, all its numbers or a refusal out.

use super::balance::{Balance, balance};
use super::buffer::{Size, least_capacity, sizes};
use super::granularity::granularity;
use super::model::{Case, Graph, Limits};
use super::refusal::Refusal;
use super::schedule::{Schedule, schedule};
#[cfg(feature = "files")]
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Report {
    /// In the order of the graph.
    pub tasks: Vec<TaskReport>,
    pub edges: Vec<EdgeReport>,
    pub clusters: Vec<Cluster>,
    /// Short to write down.
    pub schedule: Schedule,
    /// One that keeps the sizes; `None`: a size is not known, or the work was used up.
    pub schedule_within_sizes: Option<Schedule>,
}

/// Tasks connected by edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Cluster {
    pub tasks: u64,
    /// K: iterations from one moment at which its configuration may change to the next.
    pub factor: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct TaskReport {
    pub name: String,
    pub case: Case,
    /// Index of the cluster.
    pub cluster: usize,
    /// q, Cy: firings in one iteration.
    pub firings: u64,
    /// K for this task's constraints alone.
    pub own_factor: u64,
    /// Firings after which it may take a new configuration.
    pub change_after_firings: u64,
    pub outputs: Vec<Output>,
}

/// An output of a task. Tokens where the case is configuration; else 1 data set, which is one
/// firing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Output {
    /// Name of the edge; `None`: to the outside.
    pub edge: Option<String>,
    pub gc0: u64,
    pub gc: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct EdgeReport {
    pub name: String,
    pub from: String,
    pub to: String,
    pub write: u64,
    pub read: u64,
    /// Tokens on the edge between iterations. After a change of configuration, this many belong to
    /// the old one: flush or count them.
    pub initial: u64,
    pub memory: Option<u64>,
    /// Tokens that pass in one iteration.
    pub tokens: u64,
    /// No schedule does with a smaller memory.
    pub least: u64,
    /// All of these together never block; `None`: the work was used up.
    pub size: Option<Size>,
    /// Most tokens in the schedule of this report; `None`: its phase was too long to run.
    pub peak: Option<u64>,
}

impl Report {
    /// Whether every size is proven the least for its edge, and so their sum the least of all.
    pub fn is_least(&self) -> bool {
        self.edges.iter().all(|edge| edge.size.is_some_and(|size| size.tokens == edge.least))
    }
}

/// Checks a graph and computes its numbers. Errors: why it cannot run (proven), or which bound was
/// reached.
pub fn analyze(graph: &Graph, limits: &Limits) -> Result<Report, Refusal> {
    let balance = balance(graph, limits.firings)?;
    let mut tokens = Vec::with_capacity(graph.edges().len());
    let mut least = Vec::with_capacity(graph.edges().len());
    for edge in graph.edges() {
        let too_large = || Refusal::TooLarge { what: format!("the tokens of edge {}", edge.name) };
        let passed = balance.firings[edge.from].checked_mul(edge.write).ok_or_else(too_large)?;
        passed.checked_add(edge.initial).ok_or_else(too_large)?;
        tokens.push(passed);
        let needed = least_capacity(edge.write, edge.read, edge.initial).ok_or_else(too_large)?;
        if let Some(memory) = edge.memory.filter(|memory| *memory < needed) {
            return Err(Refusal::MemoryTooSmall { edge: edge.name.clone(), memory, needed });
        }
        least.push(needed);
    }
    let (granularities, factors) = granularity(graph, &balance)?;
    let (schedule, peaks) = schedule(graph, &balance, limits)?;
    let sizes = sizes(graph, &balance.firings, &least, &peaks, limits.work);
    let mut clusters: Vec<Cluster> =
        factors.into_iter().map(|factor| Cluster { tasks: 0, factor }).collect();
    let name = |edge: usize| graph.edges()[edge].name.clone();
    let mut tasks = Vec::with_capacity(graph.tasks().len());
    for (index, (task, granularity)) in graph.tasks().iter().zip(granularities).enumerate() {
        clusters[balance.cluster[index]].tasks += 1;
        let outputs = granularity.outputs.into_iter();
        tasks.push(TaskReport {
            name: task.name.clone(),
            case: task.case,
            cluster: balance.cluster[index],
            firings: balance.firings[index],
            own_factor: granularity.own_factor,
            change_after_firings: granularity.firings,
            outputs: outputs
                .map(|output| Output {
                    edge: output.edge.map(name),
                    gc0: output.gc0,
                    gc: output.gc,
                })
                .collect(),
        });
    }
    let edges = graph.edges().iter().enumerate().map(|(index, edge)| EdgeReport {
        name: edge.name.clone(),
        from: graph.tasks()[edge.from].name.clone(),
        to: graph.tasks()[edge.to].name.clone(),
        write: edge.write,
        read: edge.read,
        initial: edge.initial,
        memory: edge.memory,
        tokens: tokens[index],
        least: least[index],
        size: sizes[index],
        peak: peaks[index],
    });
    let edges = edges.collect();
    let schedule_within_sizes = within(graph, &balance, &sizes, limits);
    Ok(Report { tasks, edges, clusters, schedule, schedule_within_sizes })
}

/// The schedule of the same graph with these sizes as memories.
fn within(
    graph: &Graph,
    balance: &Balance,
    sizes: &[Option<Size>],
    limits: &Limits,
) -> Option<Schedule> {
    let mut edges = graph.edges().to_vec();
    for (edge, size) in edges.iter_mut().zip(sizes) {
        let size = size.as_ref()?.tokens;
        // The count of a self-loop is the same after each firing.
        edge.memory = if edge.from == edge.to { edge.memory } else { Some(size) };
    }
    let graph = Graph::new(graph.tasks().to_vec(), edges).ok()?;
    Some(schedule(&graph, balance, limits).ok()?.0)
}
