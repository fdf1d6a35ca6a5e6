// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documents: lines of at most 100 columns, links that lead somewhere, plain words, and a table
//! of limits whose cells can be read.

use std::fs;
use std::path::{Path, PathBuf};

/// A cell of LIMITS.md.
const CELL: usize = 190;
/// Words that house-made English likes and manual pages do without.
const NOT_PLAIN: [&str; 6] = ["whoever", "nobody", "somebody", "whatever", "shall", "is to be had"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README and its like, and everything below docs and examples.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut dirs =
        vec![(root(), false), (root().join("docs"), true), (root().join("examples"), true)];
    while let Some((dir, deep)) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() && deep => dirs.push((path, true)),
                Some(extension) if extension == "md" => {
                    let text = fs::read_to_string(&path).unwrap();
                    found.push((path, text));
                }
                _ => {}
            }
        }
    }
    assert!(found.len() > 15, "{found:?}");
    found
}

/// The lines outside fenced blocks, which hold what programs print.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((at + 1, line))
    })
}

#[test]
fn words_are_plain() {
    let mut found = Vec::new();
    for (path, text) in documents() {
        for (at, line) in prose(&text) {
            let words =
                format!(" {} ", line.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " "));
            let is_there = |word: &&&str| words.contains(&format!(" {word} "));
            found.extend(
                NOT_PLAIN.iter().find(is_there).map(|w| format!("{}:{at}: {w}", path.display())),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn links_lead_to_files() {
    let mut broken = Vec::new();
    for (path, text) in documents() {
        let dir = path.parent().unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_file = !link.is_empty() && !link.contains("://") && !link.contains(' ');
            if is_file && !dir.join(link).exists() {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_limit_has_four_short_cells_and_safety_comes_first() {
    let text = fs::read_to_string(root().join("LIMITS.md")).unwrap();
    let first = text.lines().find(|line| line.starts_with("## ")).unwrap();
    assert_eq!(first, "## Safety");
    let mut rows = 0;
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let row = row.replace("\\|", "/");
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{row}");
        assert!(cells.iter().all(|cell| cell.chars().count() <= CELL), "{row}");
        rows += 1;
    }
    assert!(rows > 60, "{rows}");
}

#[test]
fn architecture_is_a_map_of_at_most_150_lines() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() <= 150, "{} lines", text.lines().count());
}
