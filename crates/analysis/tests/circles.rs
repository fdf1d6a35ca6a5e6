// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No circle of files: no file of `src` uses one that uses it again, by whatever way.
//!
//! A file uses another where it names an item of it by a path from `crate::` or `super::`. A path
//! to a `mod.rs` or to `lib.rs` would hide which file is meant, so there must be none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The text of each module, by its path: `simulate::run`. `mod.rs` and `lib.rs` have no item.
fn modules(dir: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            modules(&path, &format!("{prefix}{stem}::"), found);
        } else if stem != "mod" && stem != "lib" {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.insert(format!("{prefix}{stem}"), lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Paths in a text, each from the root of the crate: also those in `use crate::{a, b::c};`.
fn paths(module: &str, text: &str) -> Vec<String> {
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let mut found = Vec::new();
    for (word, base) in [("crate::", ""), ("super::", parent)] {
        for (at, _) in text.match_indices(word) {
            let rest = &text[at + word.len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(list) => list[..list.find('}').unwrap()].split(',').map(str::trim).collect(),
                None => {
                    let end = rest.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
                    vec![&rest[..end.unwrap_or(rest.len())]]
                }
            };
            let full = |name: &&str| match base {
                "" => (*name).to_owned(),
                base => format!("{base}::{name}"),
            };
            found.extend(names.iter().filter(|name| !name.is_empty()).map(full));
        }
    }
    found
}

#[test]
fn no_file_uses_one_that_uses_it() {
    let mut texts = BTreeMap::new();
    modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut texts);
    assert!(texts.len() > 40, "{:?}", texts.keys());
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, text) in &texts {
        for path in paths(module, text) {
            let is_in = |other: &&String| {
                path.strip_prefix(other.as_str())
                    .is_some_and(|r| r.is_empty() || r.starts_with("::"))
            };
            let used = texts.keys().filter(is_in).max_by_key(|other| other.len());
            let used =
                used.unwrap_or_else(|| panic!("{module} names {path}: of which file is it?"));
            if used != module {
                uses.entry(module).or_default().insert(used);
            }
        }
    }
    let reach = |from: &str| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = left.pop() {
            for used in uses.get(module.as_str()).into_iter().flatten() {
                if seen.insert((*used).to_owned()) {
                    left.push((*used).to_owned());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, _> =
        texts.keys().map(|module| (module.as_str(), reach(module))).collect();
    for (module, others) in &reached {
        let circle: Vec<_> =
            others.iter().filter(|other| reached[other.as_str()].contains(*module)).collect();
        assert!(circle.is_empty(), "{module} is in a circle of files: {circle:?}");
    }
    assert!(uses["decide"].contains("offsets") && uses["edf"].contains("decide"), "it sees uses");
}
