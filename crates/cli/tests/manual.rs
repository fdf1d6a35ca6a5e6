// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The manual pages as a user gets them: they render without a warning, and they document every key
//! of the partitions file and every exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn asmp(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_asmp")).args(arguments).output().expect("asmp starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn every_page_renders_without_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let written = asmp(&["man", "--all", dir.path().to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    let below = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let pages: Vec<PathBuf> = below(dir.path()).iter().flat_map(|section| below(section)).collect();
    // Where man(1) looks for them.
    for page in ["man5/asmp-partitions.5", "man7/asmp.7", "man8/asmp-create.8", "man8/asmpd.8"] {
        assert!(dir.path().join(page).exists(), "{page}: {pages:?}");
    }
    assert!(pages.len() > 30, "{pages:?}");
    if Command::new("groff").arg("--version").output().is_err() {
        println!("skipped: groff is not installed");
        return;
    }
    for page in pages {
        let rendered =
            Command::new("groff").args(["-man", "-ww", "-Tutf8"]).arg(&page).output().unwrap();
        let warnings = text(&rendered.stderr);
        assert!(rendered.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
        assert!(rendered.stdout.len() > 500, "{}", page.display());
    }
}

/// The keys that the reader of the file knows: its own words about one that it does not know.
fn keys(file: &Path, toml: &str) -> Vec<String> {
    fs::write(file, toml).unwrap();
    let refused = asmp(&["apply", file.to_str().unwrap(), "--dry-run"]);
    assert_eq!(refused.status.code(), Some(40), "{refused:?}");
    let words = text(&refused.stderr);
    let listed = words.split("expected").nth(1).unwrap_or_else(|| panic!("{words}"));
    let keys: Vec<String> = listed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(keys.len() >= 3, "{words}");
    keys
}

#[test]
fn every_key_of_the_partitions_file_is_documented() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("partitions.toml");
    let page = text(&asmp(&["man", "asmp-partitions.5"]).stdout);
    let mut all = keys(&file, "[[partition]]\nno_such_key = 1\n");
    all.extend(keys(
        &file,
        "[[partition]]\nname = \"a\"\ncpus = \"3\"\n[[partition.task]]\nno_such_key = 1\n",
    ));
    for key in all {
        assert!(
            page.contains(&format!("\\fB{key} = ")),
            "asmp-partitions(5) does not document {key}"
        );
    }
}

#[test]
fn the_examples_of_the_partitions_file_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("partitions.toml");
    let source = include_str!("../../../docs/man/asmp-partitions.5.md");
    // Behind it are units of systemd.
    let (source, _) = source.split_once("\n# AT BOOT\n").expect("the section");
    let literal: Vec<String> = source
        .lines()
        .map(|line| {
            line.strip_prefix("    ").unwrap_or(if line.is_empty() { "" } else { "#" }).to_owned()
        })
        .filter(|line| !line.starts_with("asmp "))
        .collect();
    let synopsis_end =
        literal.iter().rposition(|line| line.starts_with("name = \"motion\"")).unwrap();
    for part in [&literal[..synopsis_end - 1], &literal[synopsis_end - 1..]] {
        fs::write(&file, part.join("\n")).unwrap();
        let read = asmp(&["apply", file.to_str().unwrap(), "--dry-run"]);
        assert_ne!(read.status.code(), Some(40), "{}", text(&read.stderr));
    }
}

#[test]
fn help_and_manual_give_every_exit_code_the_same_meaning() {
    let page = text(&asmp(&["man"]).stdout);
    let codes = text(&asmp(&["help", "exit-codes"]).stdout);
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "39", "42", "54", "127"] {
        assert!(page.contains(&format!("\\fB{code}\\fR\n")), "asmp(8): {code}");
        assert!(
            codes.lines().any(|line| line.split_whitespace().next() == Some(code)),
            "topic: {code}"
        );
    }
}
