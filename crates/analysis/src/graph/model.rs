// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tasks and edges, checked.

use crate::task::is_name;
#[cfg(feature = "files")]
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a task shares with others, and therefore when it may take a new configuration (Eustache,
/// section 3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "files", serde(rename_all = "lowercase"))]
pub enum Case {
    /// It exchanges no data: after any firing.
    Independent,
    /// Data, but any configuration of one task suits any of the others: after any firing.
    Data,
    /// What it writes in one configuration must be read in the same: after Gc.
    Configuration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub name: String,
    pub case: Case,
    /// Tokens that a firing hands to the outside, not to an edge (W of a sink).
    pub output: Option<u64>,
    /// Gc_appli: the tokens of each output come in whole multiples of this (rows of an image).
    pub multiple_of: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub name: String,
    /// Indices of tasks.
    pub from: usize,
    pub to: usize,
    /// W and R: tokens a firing.
    pub write: u64,
    pub read: u64,
    /// Tokens that are there before the first firing (delays).
    pub initial: u64,
    /// Tokens that the memory can hold; `None`: as many as are needed.
    pub memory: Option<u64>,
    /// Gc_appli of this output alone.
    pub multiple_of: Option<u64>,
}

/// Tasks and edges whose names, indices and rates have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    tasks: Vec<Task>,
    edges: Vec<Edge>,
    /// Edges into and out of each task, by index.
    inputs: Vec<Vec<usize>>,
    outputs: Vec<Vec<usize>>,
}

/// Where to stop. All that is not bounded by these is linear in tasks and edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Firings of a task in one iteration; an iteration of 10^15 firings of a microsecond takes 31
    /// years.
    pub firings: u64,
    /// Looks at a task or an edge while firing: to find deadlocks, again for pieces, again for
    /// sizes, and twice for the schedule that keeps them.
    pub work: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { firings: 1_000_000_000_000_000, work: 4_000_000 }
    }
}

/// What is wrong with a graph as it was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("{0}")]
    Toml(String),
    #[error("line {line}, {error}")]
    InFile { line: usize, error: Box<GraphError> },
    #[error("the graph has no task: add a [[task]]")]
    Empty,
    #[error("invalid name {name:?}: use 1 to 64 characters, none of them a control character")]
    BadName { name: String },
    #[error("task name {name} occurs twice: rename one")]
    TwoTasks { name: String },
    #[error("edge name {name} occurs twice: rename one")]
    TwoEdges { name: String },
    #[error("edge {edge}: there is no task {task}")]
    NoTask { edge: String, task: String },
    #[error("{what}: {field} is 0: use at least 1")]
    Zero { what: String, field: &'static str },
    #[error(
        "task {task} is independent, but has edge {edge}: use case \"data\" or \"configuration\""
    )]
    NotIndependent { task: String, edge: String },
    #[error("{what}: multiple_of requires case \"configuration\" for task {task}")]
    NoGranularity { what: String, task: String },
}

impl Graph {
    /// Linear. Errors: the first thing that is wrong, by name.
    pub fn new(tasks: Vec<Task>, edges: Vec<Edge>) -> Result<Self, GraphError> {
        if tasks.is_empty() {
            return Err(GraphError::Empty);
        }
        let mut names = BTreeSet::new();
        for task in &tasks {
            check_name(&task.name)?;
            if !names.insert(task.name.as_str()) {
                return Err(GraphError::TwoTasks { name: task.name.clone() });
            }
            let what = || format!("task {}", task.name);
            not_zero(task.output, "output", what)?;
            check_multiple(task.multiple_of, task, what)?;
        }
        let mut names = BTreeSet::new();
        let (mut inputs, mut outputs) =
            (vec![Vec::new(); tasks.len()], vec![Vec::new(); tasks.len()]);
        for (index, edge) in edges.iter().enumerate() {
            check_name(&edge.name)?;
            if !names.insert(edge.name.as_str()) {
                return Err(GraphError::TwoEdges { name: edge.name.clone() });
            }
            let what = || format!("edge {}", edge.name);
            not_zero(Some(edge.write), "write", what)?;
            not_zero(Some(edge.read), "read", what)?;
            for (end, side) in [(edge.from, &mut outputs), (edge.to, &mut inputs)] {
                let (Some(task), Some(side)) = (tasks.get(end), side.get_mut(end)) else {
                    return Err(GraphError::NoTask {
                        edge: edge.name.clone(),
                        task: format!("{end}"),
                    });
                };
                if task.case == Case::Independent {
                    return Err(GraphError::NotIndependent {
                        task: task.name.clone(),
                        edge: edge.name.clone(),
                    });
                }
                side.push(index);
            }
            check_multiple(edge.multiple_of, &tasks[edge.from], what)?;
        }
        Ok(Self { tasks, edges, inputs, outputs })
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Indices of the edges into a task.
    pub fn inputs(&self, task: usize) -> &[usize] {
        &self.inputs[task]
    }

    /// Indices of the edges out of a task.
    pub fn outputs(&self, task: usize) -> &[usize] {
        &self.outputs[task]
    }
}

fn check_name(name: &str) -> Result<(), GraphError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(GraphError::BadName { name: name.chars().take(80).collect() }),
    }
}

fn not_zero(
    value: Option<u64>,
    field: &'static str,
    what: impl FnOnce() -> String,
) -> Result<(), GraphError> {
    match value {
        Some(0) => Err(GraphError::Zero { what: what(), field }),
        _ => Ok(()),
    }
}

fn check_multiple(
    value: Option<u64>,
    task: &Task,
    what: impl Fn() -> String,
) -> Result<(), GraphError> {
    not_zero(value, "multiple_of", &what)?;
    match value.is_some() && task.case != Case::Configuration {
        true => Err(GraphError::NoGranularity { what: what(), task: task.name.clone() }),
        false => Ok(()),
    }
}
