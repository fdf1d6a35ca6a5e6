// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrows between crates point one way, and ARCHITECTURE.md has the picture of them.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crate, and the crates of ours it may depend on. One that does not exist yet has its place
/// already.
const ALLOWED: &[(&str, &[&str])] = &[
    ("asmp-duration", &[]),
    ("asmp-channel", &[]),
    ("asmp-analysis", &["asmp-duration"]),
    ("asmp-host", &["asmp-duration"]),
    ("asmp-shield", &["asmp-host"]),
    ("asmp-measure", &["asmp-host", "asmp-duration"]),
    ("asmp-rt", &["asmp-channel", "asmp-shield", "asmp-analysis", "asmp-host"]),
    ("asmp-rt-c", &["asmp-rt", "asmp-channel"]),
    ("asmp-rt-py", &["asmp-channel"]),
    ("asmp-daemon", &["asmp-channel", "asmp-shield", "asmp-host", "asmp-duration"]),
    (
        "asmp",
        &[
            "asmp-analysis",
            "asmp-daemon",
            "asmp-host",
            "asmp-shield",
            "asmp-measure",
            "asmp-duration",
            "asmp-web",
            "asmp-yartek",
        ],
    ),
    ("asmp-web", &[]),
    ("asmp-yartek", &["asmp-analysis", "asmp-duration"]),
];

/// Every crate of ours, and those of ours it depends on, without what only its tests need.
type Graph = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn graph() -> Graph {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    let metadata: Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let needs = |package: &Value| -> BTreeSet<String> {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let normal = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
        normal.map(name).filter(|dependency| ours.contains(dependency)).collect()
    };
    packages.iter().map(|package| (name(package), needs(package))).collect()
}

/// What is wrong with a graph.
fn complaints(graph: &Graph) -> Vec<String> {
    let mut all = Vec::new();
    for (from, needs) in graph {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == from) else {
            all.push(format!(
                "crate {from} has no place in the house: add it here and to ARCHITECTURE.md"
            ));
            continue;
        };
        for to in needs {
            if !allowed.contains(&to.as_str()) {
                all.push(format!("{from} must not depend on {to}"));
            }
        }
    }
    all
}

#[test]
fn no_crate_depends_on_one_that_is_not_below_it() {
    let graph = graph();
    assert!(graph.values().flatten().count() >= 4, "the house has arrows: {graph:?}");
    assert_eq!(complaints(&graph), Vec::<String>::new());
}

#[test]
fn an_arrow_upwards_and_an_unknown_crate_are_complaints() {
    let of = |from: &str, to: &str| -> Graph {
        [(from.to_owned(), BTreeSet::from([to.to_owned()]))].into_iter().collect()
    };
    assert_eq!(complaints(&of("asmp-measure", "asmp-shield")).len(), 1);
    assert_eq!(complaints(&of("asmp-common", "asmp-host")).len(), 1);
    assert_eq!(complaints(&of("asmp-shield", "asmp-host")).len(), 0);
    assert_eq!(complaints(&of("asmp-rt-py", "asmp-rt")).len(), 1);
}

#[test]
fn what_is_allowed_has_no_circle() {
    let mut left: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    while !left.is_empty() {
        let needs = |name: &str| ALLOWED.iter().find(|(one, _)| *one == name).expect("known").1;
        let before = left.len();
        let still = left.clone();
        left.retain(|name| needs(name).iter().any(|need| still.contains(need)));
        assert!(left.len() < before, "a circle among {left:?}");
    }
}

const BEGIN: &str = "<!-- crates: begin (drawn by crates/cli/tests/arrows.rs) -->";
const END: &str = "<!-- crates: end -->";

/// Whether `to` is reached from `from` by more than one arrow.
fn is_reached_otherwise(graph: &Graph, from: &str, to: &str) -> bool {
    fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
        from == to || graph[from].iter().any(|next| reaches(graph, next, to))
    }
    graph[from].iter().any(|next| next != to && reaches(graph, next, to))
}

/// The crates in Mermaid, as they are called below `crates/`. An arrow that others imply is left
/// out.
fn picture(graph: &Graph) -> String {
    let short = |name: &str| match name {
        "asmp" => "cli".to_owned(),
        other => other.trim_start_matches("asmp-").to_owned(),
    };
    let mut lines = vec!["```mermaid".to_owned(), "graph TD".to_owned()];
    for (from, needs) in graph {
        if needs.is_empty() && !graph.values().any(|other| other.contains(from)) {
            lines.push(format!("    {}", short(from)));
        }
        let direct = needs.iter().filter(|to| !is_reached_otherwise(graph, from, to));
        lines.extend(direct.map(|to| format!("    {} --> {}", short(from), short(to))));
    }
    lines.push("```".to_owned());
    lines.join("\n")
}

#[test]
fn architecture_shows_the_crates_as_they_are() {
    let file = root().join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&file).expect("ARCHITECTURE.md");
    let between = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (shown, after) = rest.split_once(END)?;
        Some((before, shown, after))
    });
    let (before, shown, after) = between.unwrap_or_else(|| {
        panic!("ARCHITECTURE.md needs these two lines for the picture:\n{BEGIN}\n{END}")
    });
    let now = format!("\n{}\n", picture(&graph()));
    if std::env::var_os("ASMP_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{now}{END}{after}"))
            .expect("ARCHITECTURE.md");
        return;
    }
    assert!(
        shown == now,
        "the picture of the crates is old: ASMP_BLESS=1 cargo test -p asmp --test arrows\n{now}"
    );
}
