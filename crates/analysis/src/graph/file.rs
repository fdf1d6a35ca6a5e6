// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flow.toml`: tasks and edges, declared. Unknown fields are refused.

use super::model::{Case, Edge, Graph, GraphError, Task};
use crate::syntax::in_a_line;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    task: Vec<TaskEntry>,
    #[serde(default)]
    edge: Vec<EdgeEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    name: String,
    /// Left out: independent without an edge, else configuration, the strictest.
    case: Option<Case>,
    output: Option<u64>,
    multiple_of: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeEntry {
    /// Left out: "from -> to".
    name: Option<String>,
    from: String,
    to: String,
    write: u64,
    read: u64,
    #[serde(default)]
    initial: u64,
    memory: Option<u64>,
    multiple_of: Option<u64>,
}

impl std::str::FromStr for Graph {
    type Err = GraphError;

    /// Reads `flow.toml`. Errors: the place in the text, or the first thing that is wrong by name.
    fn from_str(text: &str) -> Result<Self, GraphError> {
        let file: File =
            toml::from_str(text).map_err(|error| GraphError::Toml(in_a_line(text, &error)))?;
        let mut index = BTreeMap::new();
        for (number, task) in file.task.iter().enumerate() {
            index.entry(task.name.as_str()).or_insert(number);
        }
        let mut edges = Vec::with_capacity(file.edge.len());
        for entry in &file.edge {
            let name = entry.name.clone().unwrap_or_else(|| short(&entry.from, &entry.to));
            let find = |task: &String| {
                let missing = || GraphError::NoTask { edge: name.clone(), task: task.clone() };
                index.get(task.as_str()).copied().ok_or_else(missing)
            };
            let (from, to) = (find(&entry.from)?, find(&entry.to)?);
            let &EdgeEntry { write, read, initial, memory, multiple_of, .. } = entry;
            edges.push(Edge { name, from, to, write, read, initial, memory, multiple_of });
        }
        let touched: BTreeSet<usize> = edges.iter().flat_map(|edge| [edge.from, edge.to]).collect();
        let tasks = file.task.into_iter().enumerate().map(|(number, entry)| {
            let usual =
                if touched.contains(&number) { Case::Configuration } else { Case::Independent };
            let case = match (entry.case, entry.multiple_of) {
                (Some(case), _) => case,
                (None, Some(_)) => Case::Configuration,
                (None, None) => usual,
            };
            Task { name: entry.name, case, output: entry.output, multiple_of: entry.multiple_of }
        });
        Graph::new(tasks.collect(), edges)
    }
}

/// Two names of 64 characters make one that is still a name.
fn short(from: &str, to: &str) -> String {
    let cut = |name: &str| match name.chars().count() {
        0..=30 => name.to_owned(),
        _ => name.chars().take(29).chain(['…']).collect(),
    };
    format!("{} -> {}", cut(from), cut(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = "[[task]]\nname = \"a\"\n[[task]]\nname = \"b\"\ncase = \"data\"\n";

    #[test]
    fn a_file_declares_tasks_and_edges() {
        let text = format!(
            "{PAIR}[[task]]\nname = \"c\"\n[[edge]]\nfrom = \"a\"\nto = \"b\"\nwrite = 2\n\
             read = 3\ninitial = 4\nmemory = 9\n"
        );
        let graph: Graph = text.parse().unwrap();
        let cases: Vec<Case> = graph.tasks().iter().map(|task| task.case).collect();
        assert_eq!(cases, [Case::Configuration, Case::Data, Case::Independent]);
        let edge = &graph.edges()[0];
        assert_eq!((edge.name.as_str(), edge.from, edge.to), ("a -> b", 0, 1));
        assert_eq!((edge.write, edge.read, edge.initial, edge.memory), (2, 3, 4, Some(9)));
        assert_eq!(
            (graph.outputs(0), graph.inputs(0), graph.inputs(1)),
            (&[0][..], &[][..], &[0][..])
        );
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_by_name() {
        let edge = |rest: &str| format!("{PAIR}[[edge]]\nfrom = \"a\"\nto = \"b\"\n{rest}");
        let rates = "write = 1\nread = 1\n";
        for (text, says) in [
            (String::new(), "no task"),
            ("[[task]\n".to_owned(), "line 1"),
            (format!("{PAIR}colour = 1\n"), "colour"),
            (format!("{PAIR}[[task]]\nname = \"a\"\n"), "task name a occurs twice"),
            ("[[task]]\nname = \"\"\n".to_owned(), "invalid name"),
            ("[[task]]\nname = \"a\\u0007\"\n".to_owned(), "control character"),
            (format!("{PAIR}[[task]]\nname = \"c\"\ncase = \"maybe\"\n"), "maybe"),
            (edge("write = 1\n"), "read"),
            (edge("write = 0\nread = 1\n"), "edge a -> b: write is 0"),
            (edge("write = -1\nread = 1\n"), "-1"),
            (edge("write = 1\nread = 99999999999999999999\n"), "line"),
            (edge(&format!("{rates}memory = 1.5\n")), "1.5"),
            (format!("{PAIR}[[edge]]\nfrom = \"a\"\nto = \"z\"\n{rates}"), "there is no task z"),
            (
                edge(&format!("{rates}[[edge]]\nfrom = \"a\"\nto = \"b\"\n{rates}")),
                "edge name a -> b occurs twice",
            ),
            (
                format!(
                    "[[task]]\nname = \"a\"\ncase = \"independent\"\n[[edge]]\nfrom = \"a\"\n\
                     to = \"a\"\n{rates}"
                ),
                "task a is independent, but has edge a -> a",
            ),
            (
                "[[task]]\nname = \"a\"\ncase = \"data\"\nmultiple_of = 20\n".to_owned(),
                "requires case",
            ),
            (
                format!("{PAIR}[[edge]]\nfrom = \"b\"\nto = \"a\"\n{rates}multiple_of = 2\n"),
                "edge b -> a: multiple_of requires case",
            ),
            ("[[task]]\nname = \"a\"\nmultiple_of = 0\n".to_owned(), "multiple_of is 0"),
        ] {
            let error = text.parse::<Graph>().expect_err(&text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
