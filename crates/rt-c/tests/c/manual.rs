// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/rtlinux.md is held against the headers: each name compiles and links, and each refused one
//! ends its program with its line.

use crate::{compile, library, root, shims};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The verdict on each name of the document's tables.
fn verdicts() -> BTreeMap<String, String> {
    let text = read("../../docs/rtlinux.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let mut all = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [names, verdict, why] = cells[..] else { panic!("three cells: {row}") };
        assert!(["works", "differs", "refused"].contains(&verdict), "{row}");
        assert_eq!(why.is_empty(), verdict == "works", "what differs says how: {row}");
        for name in names.split(',') {
            let name = name.trim().trim_matches('`').to_owned();
            let before = all.insert(name, verdict.to_owned());
            assert_eq!(before, None, "a name twice: {row}");
        }
    }
    all
}

/// A statement of C for each name.
fn uses() -> BTreeMap<String, String> {
    let text = read("tests/manual/uses.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(" | ").unwrap_or_else(|| panic!("name | use: {line}")))
        .map(|(name, used)| (name.to_owned(), used.to_owned()))
        .collect()
}

/// A program with a function for each use; its argument says which one it runs.
fn program(uses: &BTreeMap<String, String>, at: &Path) -> PathBuf {
    let mut functions = String::new();
    let mut rows = String::new();
    for (name, used) in uses {
        functions += &format!("static void use_{name}(void)\n{{\n{used};\n}}\n");
        rows += &format!("{{\"{name}\", use_{name}}},\n");
    }
    let table = "static const struct { const char *name; void (*use)(void); } uses[] =";
    let all = format!("\n{functions}{table} {{\n{rows}}};\n");
    let source = at.join("names.c");
    fs::write(&source, read("tests/manual/frame.c").replace("\nUSES\n", &all)).unwrap();
    let program = at.join("names");
    compile(&[source], &["-std=gnu99", &shims()], library("so"), &program);
    program
}

#[test]
fn each_name_of_the_manual_compiles_and_links_and_each_refused_one_says_why_and_ends_the_program() {
    let (verdicts, uses) = (verdicts(), uses());
    let names = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&verdicts), names(&uses), "docs/rtlinux.md beside tests/manual/uses.txt");
    assert!(verdicts.len() > 150, "{}", verdicts.len());
    let dir = tempfile::tempdir().unwrap();
    let program = program(&uses, dir.path());
    let refused: Vec<_> = verdicts.iter().filter(|(_, verdict)| *verdict == "refused").collect();
    assert!(refused.len() > 20, "{refused:?}");
    for (name, _) in refused {
        let output = Command::new(&program).arg(name).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{name}: {:?}", output.status);
        let begin = format!("rtlinux: {name}: ");
        assert!(said.starts_with(&begin) && said.lines().count() == 1, "{name}: {said}");
        assert!(said.len() > begin.len() + 20, "why and what to do: {said}");
    }
}

/// A source of C without its comments and without what stands between quotes.
fn code(source: &str) -> String {
    let (mut code, mut rest) = (String::new(), source);
    while let Some(first) = rest.chars().next() {
        let left_out = if let Some(comment) = rest.strip_prefix("/*") {
            2 + comment.find("*/").expect("the comment ends") + 2
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' || first == '\'' {
            quoted(rest)
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[left_out..];
    }
    code
}

/// How many bytes stand in quotes at the beginning of this text, with the quotes.
fn quoted(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while bytes[at] != bytes[0] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn words(code: &str) -> BTreeSet<&str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect()
}

#[test]
fn a_word_in_a_comment_or_in_quotes_is_no_use_of_a_name() {
    let source = "a(/* b's */ 'c', \"d \\\" /* e\"); // f\ng /* h\n */ i;";
    assert_eq!(words(&code(source)), BTreeSet::from(["", "a", "g", "i"]));
}

/// A program of the tests that runs uses it; what it does there is that program's matter.
#[test]
fn each_name_that_is_not_refused_is_used_by_a_program_that_runs() {
    let sources: String = fs::read_dir(root().join("tests"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .map(|path| code(&fs::read_to_string(path).unwrap()))
        .collect();
    let words = words(&sources);
    let verdicts = verdicts();
    let used = |(_, verdict): &(&String, &String)| *verdict != "refused";
    let unused: Vec<_> =
        verdicts.iter().filter(used).filter(|(name, _)| !words.contains(&***name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}
