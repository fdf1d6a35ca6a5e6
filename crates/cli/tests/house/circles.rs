// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Circles of files in a crate: who uses whom, read from `use crate::` and `use super::`.
//!
//! A simple scan: macros, paths without `use`, and tests are not looked at. A name that a module
//! above re-exports (`pub use`) counts as use of the file it comes from.

use crate::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Files of a crate by their module path: `thread::start` is `src/thread/start.rs`.
type Modules<'a> = BTreeMap<Vec<String>, &'a Source>;

/// The circles of all crates below `crates/`, each a sorted list of paths.
pub fn of_crates(sources: &[Source]) -> Vec<Vec<String>> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for source in sources {
        let Some(rest) = source.path.strip_prefix("crates/") else { continue };
        let Some((name, path)) = rest.split_once("/src/") else { continue };
        let is_test =
            path.ends_with("tests.rs") || path.ends_with("_models.rs") || path.starts_with("bin/");
        if let Some(module) = path.strip_suffix(".rs").filter(|_| !is_test) {
            let mut module: Vec<String> = module.split('/').map(str::to_owned).collect();
            if ["lib", "main", "mod"].contains(&module[module.len() - 1].as_str()) {
                module.pop();
            }
            crates.entry(name).or_default().insert(module, source);
        }
    }
    crates.values().flat_map(of_crate).collect()
}

fn of_crate(modules: &Modules) -> Vec<Vec<String>> {
    let edges: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> = modules
        .iter()
        .map(|(module, source)| {
            let used = uses(&source.text).into_iter().filter(|(is_facade, _)| !is_facade);
            let used = used.filter_map(|(_, path)| file_of(modules, &absolute(module, &path)?, 0));
            (module, used.filter(|used| used != module).collect())
        })
        .collect();
    components(&edges)
        .into_iter()
        .map(|all| all.iter().map(|one| modules[one].path.clone()).collect())
        .collect()
}

/// What a file uses: whether it is a re-export, and the path.
fn uses(text: &str) -> Vec<(bool, Vec<String>)> {
    // Tests come last in a file.
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut all = Vec::new();
    for (at, _) in text.match_indices("use ") {
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let before = text[line_start..at].trim();
        let is_statement = before.is_empty() || before.starts_with("pub");
        if let Some((tree, _)) = text[at + 4..].split_once(';').filter(|_| is_statement) {
            let mut paths = Vec::new();
            expand(&tree.split_whitespace().collect::<Vec<_>>().join(" "), &[], &mut paths);
            all.extend(paths.into_iter().map(|path| (before.starts_with("pub"), path)));
        }
    }
    all
}

/// `a::{b, c::d as e}` is `a::b` and `a::c::d`.
fn expand(tree: &str, prefix: &[String], paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let words = tree
            .split("::")
            .map(|word| word.split(" as ").next().unwrap_or_default().trim().to_owned());
        paths.push(prefix.iter().cloned().chain(words.filter(|word| word != "self")).collect());
        return;
    };
    let head = tree[..open].trim_end_matches("::").split("::").filter(|word| !word.is_empty());
    let prefix: Vec<String> = prefix.iter().cloned().chain(head.map(str::to_owned)).collect();
    let inner = tree[open + 1..].trim_end().trim_end_matches('}');
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, one) in tree[open + 1..].char_indices() {
        match one {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&tree[open + 1..][start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&tree[open + 1..][start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if parts.is_empty() {
        parts.push(inner);
    }
    parts
        .into_iter()
        .filter(|part| !part.trim().is_empty())
        .for_each(|part| expand(part, &prefix, paths));
}

/// The path from the crate's top, where it is one of this crate.
fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut rest = path;
    match path.first().map(String::as_str) {
        Some("crate") => {
            base.clear();
            rest = &rest[1..];
        }
        Some("super") => {
            while rest.first().map(String::as_str) == Some("super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        _ => return None,
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The module whose file has what a path names.
fn file_of(modules: &Modules, path: &[String], hops: usize) -> Option<Vec<String>> {
    let known = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let (module, name) = (path[..known].to_vec(), path.get(known));
    // The name may come from further down.
    let facade = uses(&modules[&module].text).into_iter().filter(|(is_facade, _)| *is_facade);
    for (_, from) in facade {
        let is_it = name.is_some() && from.last() == name;
        let first = from.first().map(String::as_str);
        if is_it && hops < 4 {
            let from = match first {
                Some("crate" | "super") => absolute(&module, &from)?,
                _ => module.iter().cloned().chain(from.iter().cloned()).collect(),
            };
            return file_of(modules, &from, hops + 1);
        }
    }
    Some(module)
}

/// Strongly connected components of more than one file.
fn components(edges: &BTreeMap<&Vec<String>, BTreeSet<Vec<String>>>) -> Vec<Vec<Vec<String>>> {
    let reach = |from: &Vec<String>| -> BTreeSet<Vec<String>> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&Vec<String>> = edges.get(from).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next.clone()) {
                open.extend(edges.get(next).into_iter().flatten());
            }
        }
        reached
    };
    let reached: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> =
        edges.keys().map(|one| ((*one).clone(), reach(one))).collect();
    let circle = |one: &Vec<String>| -> Vec<Vec<String>> {
        let both = reached[one]
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(one)));
        both.cloned().collect()
    };
    let circles: BTreeSet<Vec<Vec<String>>> =
        reached.keys().map(circle).filter(|all| all.len() > 1).collect();
    circles.into_iter().collect()
}

#[test]
fn a_circle_is_found_through_groups_parents_and_a_facade() {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let sources = [
        source("crates/x/src/lib.rs", "pub mod a;\npub use b::Thing;\n"),
        source("crates/x/src/a.rs", "use crate::{Thing, c::{Deep as Other, D}};\n"),
        source(
            "crates/x/src/b.rs",
            "use super::a;\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n",
        ),
        source("crates/x/src/c.rs", "use std::fs;\n// use crate::a in words\n"),
    ];
    assert_eq!(of_crates(&sources), [["crates/x/src/a.rs", "crates/x/src/b.rs"]]);
}
