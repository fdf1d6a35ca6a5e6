// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flow.toml`: tasks and edges, declared. Unknown fields are refused.

use super::model::{Case, Edge, Graph, GraphError, Task};
use super::refusal::Refusal;
use crate::syntax::in_a_line;
use crate::task::is_name;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    task: Vec<Spanned<TaskEntry>>,
    #[serde(default)]
    edge: Vec<Spanned<EdgeEntry>>,
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

    /// Reads `flow.toml`. Errors: the first thing that is wrong, with its line.
    fn from_str(text: &str) -> Result<Self, GraphError> {
        let file: File =
            toml::from_str(text).map_err(|error| GraphError::Toml(in_a_line(text, &error)))?;
        graph(&file).map_err(|error| match start_of(&file, &error) {
            Some(start) => {
                GraphError::InFile { line: line_at(text, start), error: Box::new(error) }
            }
            None => error,
        })
    }
}

/// The line, from 1, of the entry of this file that a refusal names first. Reads the text again.
pub fn line_of(text: &str, refusal: &Refusal) -> Option<usize> {
    let file: File = toml::from_str(text).ok()?;
    let entry = refusal.entry()?;
    starts(&file).find(|(name, _)| *name == entry).map(|(_, start)| line_at(text, start))
}

fn line_at(text: &str, start: usize) -> usize {
    text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1
}

/// Each entry by its kind and name, with the byte where it begins.
fn starts(file: &File) -> impl Iterator<Item = (String, usize)> {
    let task =
        |task: &Spanned<TaskEntry>| (format!("task {}", task.as_ref().name), task.span().start);
    let edge =
        |edge: &Spanned<EdgeEntry>| (format!("edge {}", name_of(edge.as_ref())), edge.span().start);
    file.task.iter().map(task).chain(file.edge.iter().map(edge))
}

fn graph(file: &File) -> Result<Graph, GraphError> {
    let mut index = BTreeMap::new();
    for (number, task) in file.task.iter().enumerate() {
        index.entry(task.as_ref().name.as_str()).or_insert(number);
    }
    let mut edges = Vec::with_capacity(file.edge.len());
    for entry in file.edge.iter().map(Spanned::as_ref) {
        let name = name_of(entry);
        let find = |task: &String| {
            let missing = || GraphError::NoTask { edge: name.clone(), task: task.clone() };
            index.get(task.as_str()).copied().ok_or_else(missing)
        };
        let (from, to) = (find(&entry.from)?, find(&entry.to)?);
        let &EdgeEntry { write, read, initial, memory, multiple_of, .. } = entry;
        edges.push(Edge { name, from, to, write, read, initial, memory, multiple_of });
    }
    let touched: BTreeSet<usize> = edges.iter().flat_map(|edge| [edge.from, edge.to]).collect();
    let tasks = file.task.iter().map(Spanned::as_ref).enumerate().map(|(number, entry)| {
        let usual = if touched.contains(&number) { Case::Configuration } else { Case::Independent };
        let case = match (entry.case, entry.multiple_of) {
            (Some(case), _) => case,
            (None, Some(_)) => Case::Configuration,
            (None, None) => usual,
        };
        let &TaskEntry { output, multiple_of, .. } = entry;
        Task { name: entry.name.clone(), case, output, multiple_of }
    });
    Graph::new(tasks.collect(), edges)
}

/// The byte of the text where the entry begins that an error is about. Where two entries have one
/// name, `TwoTasks` and `TwoEdges` are about the second. Any other error is about the first, since
/// nothing of the second is checked once its name is found taken.
fn start_of(file: &File, error: &GraphError) -> Option<usize> {
    let bad_task = || file.task.iter().find(|task| !is_name(&task.as_ref().name));
    let bad_edge = || file.edge.iter().find(|edge| !is_name(&name_of(edge.as_ref())));
    let (what, nth) = match error {
        GraphError::BadName { .. } => {
            return bad_task()
                .map(Spanned::span)
                .or_else(|| bad_edge().map(Spanned::span))
                .map(|span| span.start);
        }
        GraphError::NoTask { edge, task } => {
            let lacks = |entry: &&Spanned<EdgeEntry>| {
                let entry = entry.as_ref();
                name_of(entry) == *edge && (entry.from == *task || entry.to == *task)
            };
            return file.edge.iter().find(lacks).map(|entry| entry.span().start);
        }
        GraphError::TwoTasks { name } => (format!("task {name}"), 1),
        GraphError::TwoEdges { name } => (format!("edge {name}"), 1),
        GraphError::NotIndependent { edge, .. } => (format!("edge {edge}"), 0),
        GraphError::Zero { what, .. } | GraphError::NoGranularity { what, .. } => (what.clone(), 0),
        GraphError::Toml(_) | GraphError::Empty | GraphError::InFile { .. } => return None,
    };
    starts(file).filter(|(entry, _)| *entry == what).nth(nth).map(|(_, start)| start)
}

fn name_of(edge: &EdgeEntry) -> String {
    edge.name.clone().unwrap_or_else(|| short(&edge.from, &edge.to))
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
            assert!(text.is_empty() || error.starts_with("line "), "{text}: {error}");
        }
    }

    #[test]
    fn the_line_is_that_of_the_entry_and_of_two_names_the_second() {
        let rates = "write = 1\nread = 1\n";
        let line = |text: &str| text.parse::<Graph>().expect_err(text).to_string();
        let twice = line(&format!("{PAIR}[[task]]\nname = \"a\"\n"));
        assert_eq!(twice, "line 6, task name a occurs twice: rename one");
        let edge = format!("\n[[edge]]\nfrom = \"a\"\nto = \"b\"\n{rates}");
        let twice = line(&format!("{PAIR}{edge}{edge}"));
        assert_eq!(twice, "line 13, edge name a -> b occurs twice: rename one");
        let zero = line(&format!("{PAIR}{}", edge.replace("read = 1", "read = 0")));
        assert_eq!(zero, "line 7, edge a -> b: read is 0: use at least 1");
        let missing = line(&format!("{PAIR}{edge}{}", edge.replace("\"b\"", "\"z\"")));
        assert_eq!(missing, "line 13, edge a -> z: there is no task z");
        let named = |edge: &str| edge.replace("[[edge]]", "[[edge]]\nname = \"x\"");
        let second = edge.replace("\"b\"", "\"z\"");
        let missing = line(&format!("{PAIR}{}{}", named(&edge), named(&second)));
        assert_eq!(missing, "line 14, edge x: there is no task z");
        let long = line(&format!("{PAIR}[[task]]\nname = \"{}\"\n", "n".repeat(100)));
        assert!(long.starts_with("line 6, invalid name"), "{long}");
    }
}
