//! Arrows between crates point one way (ARCHITECTURE.md).

use serde_json::Value;
use std::process::Command;

/// Crate, and the crates of ours it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("asmp-duration", &[]),
    ("asmp-host", &["asmp-duration"]),
    ("asmp-shield", &["asmp-host"]),
    ("asmp-measure", &["asmp-host"]),
    ("asmp-rt", &["asmp-analysis", "asmp-host"]),
    ("asmp-rt-c", &["asmp-rt"]),
    ("asmp-rt-py", &["asmp-rt"]),
    ("asmp-analysis", &["asmp-duration"]),
    ("asmp", &["asmp-analysis", "asmp-duration", "asmp-host", "asmp-shield", "asmp-measure"]),
];

fn edges() -> Vec<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let ours: Vec<String> = packages.iter().map(name).collect();
    let mut edges = Vec::new();
    for package in packages {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        for dependency in dependencies.iter().filter(|dependency| dependency["kind"].is_null()) {
            if ours.contains(&name(dependency)) {
                edges.push((name(package), name(dependency)));
            }
        }
    }
    edges
}

#[test]
fn no_crate_depends_on_one_that_is_not_below_it() {
    let edges = edges();
    assert!(edges.len() >= 4, "the house has arrows: {edges:?}");
    for (from, to) in edges {
        let allowed = ALLOWED.iter().find(|(name, _)| *name == from).map(|(_, allowed)| *allowed);
        let allowed =
            allowed.unwrap_or_else(|| panic!("crate {from} has no place in the house: add it here"));
        assert!(allowed.contains(&to.as_str()), "{from} must not depend on {to}");
    }
}
