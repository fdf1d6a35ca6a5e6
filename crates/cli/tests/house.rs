// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shape of the sources: size of files, width of lines, licence, circles of files, words, names
//! of architectures, bounds of tests, no C.
//!
//! What a rule finds is listed with file and line: `cargo test -p asmp --test house`.

#[path = "house/circles.rs"]
mod circles;
#[path = "house/text.rs"]
mod text;

use std::path::{Path, PathBuf};

/// Of a .rs file.
const MOST_LINES: usize = 600;
/// Of a file, comments included.
const MOST_OF_HEADING: usize = 80;
const MOST_COLUMNS: usize = 100;
/// Files of one crate that use each other in a circle.
const MOST_IN_A_CIRCLE: usize = 3;
const LICENCE: &str = "SPDX-License-Identifier: Apache-2.0 OR MIT";
/// Words that a reader who has never met us stumbles over, in what users and newcomers read.
const PRIVATE: [&str; 4] = ["whoever", "nobody", "shall", "to be had"];

/// How long a test waits at least before it gives up: a host with other work takes as long.
const LEAST_BOUND_S: u64 = 120;
/// Names of architectures, and of what only one of them has, as the kernel's files spell them.
const OF_AN_ARCHITECTURE: &str = "x86_64 amd64 aarch64 arm64 riscv64 tsc hpet acpi_pm \
    tsc_reliable constant_tsc nonstop_tsc tsc_adjust lapic irq_vectors machinecheck \
    arch_sys_counter arch_sys_timer arch_timer GIC riscv_clocksource";

/// A file of the repository: its path from the top, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn has_ending(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }
}

/// All files that people write.
fn sources() -> Vec<Source> {
    fn walk(dir: &Path, root: &Path, all: &mut Vec<Source>) {
        let entries =
            std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                let made = ["target", "data", "__pycache__", ".git"].contains(&name.as_str());
                if !made && !name.ends_with(".egg-info") {
                    walk(&path, root, all);
                }
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let path = path.strip_prefix(root).expect("below the top").display().to_string();
                all.push(Source { path, text });
            }
        }
    }
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    walk(&root, &root, &mut all);
    all.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(all.len() > 200, "only {} files", all.len());
    all
}

#[track_caller]
fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{}: {what}:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_file_has_more_than_600_lines() {
    let long =
        sources().into_iter().filter(|source| source.has_ending(&[".rs"])).filter_map(|source| {
            let lines = source.text.lines().count();
            (lines > MOST_LINES).then(|| format!("{}: {lines} lines", source.path))
        });
    assert_none("files that are too long", &long.collect::<Vec<_>>());
}

#[test]
fn no_circle_of_files_is_larger_than_three() {
    let sources = sources();
    let circles = circles::of_crates(&sources);
    let large = circles.into_iter().filter(|circle| circle.len() > MOST_IN_A_CIRCLE);
    let large: Vec<String> =
        large.map(|circle| format!("{}: {}", circle.len(), circle.join(" "))).collect();
    assert_none("circles of files", &large);
}

#[test]
fn no_line_is_wider_than_100_columns() {
    let written = [".rs", ".md", ".h", ".c", ".py", ".pyi", ".sh", "Makefile"];
    let wide =
        sources().into_iter().filter(|source| source.has_ending(&written)).flat_map(|source| {
            let lines = text::wide_lines(&source.path, &source.text, MOST_COLUMNS);
            lines
                .into_iter()
                .map(move |(line, columns)| format!("{}:{line}: {columns} columns", source.path))
        });
    assert_none("lines that are too wide", &wide.collect::<Vec<_>>());
}

/// Finds a heading that was joined with the paragraph below it.
#[test]
fn no_heading_is_as_long_as_a_paragraph() {
    let long =
        sources().into_iter().filter(|source| source.has_ending(&[".md"])).flat_map(|source| {
            let mut is_code = false;
            let mut long = Vec::new();
            for line in source.text.lines() {
                is_code ^= line.starts_with("```");
                if !is_code && line.starts_with('#') && line.chars().count() > MOST_OF_HEADING {
                    long.push(format!("{}: {line}", source.path));
                }
            }
            long
        });
    assert_none("headings that are too long", &long.collect::<Vec<_>>());
}

#[test]
fn every_source_names_its_licence() {
    let code = [".rs", ".c", ".h", ".py", ".pyi", ".sh"];
    let without = sources().into_iter().filter(|source| {
        // Programs that the kernel runs.
        let is_bpf = source.path.contains("src/bpf/");
        let licence = if is_bpf { "GPL-2.0-only" } else { LICENCE };
        // Behind a line that names the interpreter.
        source.has_ending(&code)
            && !source
                .text
                .lines()
                .take(3)
                .any(|line| line.trim_end_matches(" */").ends_with(licence))
    });
    assert_none("files without a licence", &without.map(|source| source.path).collect::<Vec<_>>());
}

#[test]
fn no_private_word_is_in_what_people_read() {
    let found = sources().into_iter().flat_map(|source| {
        let is_read = source.has_ending(&[".md", ".h"]) || source.path.contains("/src/");
        let lines = if is_read { text::words(&source.path, &source.text) } else { vec![] };
        let lines = lines.into_iter().flat_map(|(line, said)| {
            PRIVATE
                .iter()
                .filter(move |word| text::has_word(&said, word))
                .map(move |word| (line, *word))
        });
        lines.map(|(line, word)| format!("{}:{line}: {word}", source.path)).collect::<Vec<_>>()
    });
    assert_none("private words", &found.collect::<Vec<_>>());
}

/// The fake is a machine of x86-64.
#[test]
fn no_name_of_an_architecture_is_outside_their_table() {
    let is_free = |path: &str| path.ends_with("/architecture.rs") || path.contains("/fake/");
    let sources = sources().into_iter().filter(|source| {
        source.has_ending(&[".rs"]) && source.path.contains("/src/") && !is_free(&source.path)
    });
    let found = sources.flat_map(|source| {
        let code = text::lines(&source.path, &source.text).filter(|(.., is_test)| !is_test);
        let code = code.map(|(at, line, _)| (at, line.split("//").next().unwrap_or_default()));
        let named = code.flat_map(|(at, line)| {
            let names = OF_AN_ARCHITECTURE.split_whitespace();
            names.filter(move |name| text::has_name(line, name)).map(move |name| (at, name))
        });
        named.map(|(at, name)| format!("{}:{at}: {name}", source.path)).collect::<Vec<_>>()
    });
    assert_none("names outside host/src/architecture.rs", &found.collect::<Vec<_>>());
}

#[test]
fn no_test_gives_up_within_two_minutes() {
    let sources = sources().into_iter().filter(|source| source.has_ending(&[".rs"]));
    let short = sources.flat_map(|source| {
        let tests = text::lines(&source.path, &source.text).filter(|(.., is_test)| *is_test);
        let bounds = tests.filter_map(|(at, line, _)| Some((at, text::bound_s(line)?)));
        let short = bounds.filter(|(_, bound_s)| *bound_s < LEAST_BOUND_S);
        short.map(|(at, bound_s)| format!("{}:{at}: {bound_s} s", source.path)).collect::<Vec<_>>()
    });
    assert_none("bounds of tests that are too short", &short.collect::<Vec<_>>());
}

/// A static `asmp` for another machine needs no C compiler.
#[test]
fn no_crate_of_the_command_is_built_by_a_c_compiler() {
    let cargo = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", "asmp", "--edges", "normal,build"])
        .args(["--offline", "--prefix", "none"])
        .output()
        .expect("cargo runs this test");
    let tree = String::from_utf8_lossy(&cargo.stdout);
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let crates: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains(&"signal-hook"), "{crates:?}");
    let builders: Vec<_> =
        crates.iter().filter(|name| ["cc", "cmake", "bindgen"].contains(name)).collect();
    assert!(builders.is_empty(), "{builders:?}: cargo tree --package asmp --invert cc");
}
