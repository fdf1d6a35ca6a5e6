// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `report` and `compare` as a user meets them: what is not compared, what is refused, the cure.

mod runs;

use asmp_measure::load::Load;
use asmp_measure::run::{Kind, Provenance};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    error: String,
}

fn asmp(dir: &Path, line: &str) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_asmp"))
        .current_dir(dir)
        .args(["measure"].into_iter().chain(line.split(' ')))
        .output()
        .unwrap();
    let [out, error] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Said { code: output.status.code().unwrap(), out, error }
}

/// A run of so many samples, changed.
fn run(dir: &Path, kernel: &str, samples: u64, change: impl Fn(&mut Provenance)) {
    let mut run = runs::provenance(kernel, Load::Idle, Kind::Normal);
    change(&mut run);
    runs::write(dir, run, (0..samples).map(|turn| 1000 + turn));
}

#[test]
fn figures_that_are_not_compared_are_named_with_their_reason_in_json_too() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("long"), "7.2", 3000, |_| ());
    run(&dir.path().join("short"), "7.2", 300, |_| ());
    let said = asmp(dir.path(), "compare long short --json");
    let all: Value = serde_json::from_str(&said.out).unwrap();
    let left_out = all["pairs"][0]["not_compared"].as_array().unwrap();
    let of = |at: usize, key: &str| left_out[at][key].as_str().unwrap().to_owned();
    assert_eq!([of(0, "figure"), of(1, "figure")], ["p99.9", "worst"]);
    assert!(of(1, "reason").ends_with("measure them with --for"), "{}", of(1, "reason"));
    let text = asmp(dir.path(), "compare long short").out;
    for at in [0, 1] {
        let line = format!("  {} not compared: {}\n", of(at, "figure"), of(at, "reason"));
        assert!(text.contains(&line), "{text}");
    }
    assert!(text.contains("period 1 ms, priority SCHED_FIFO 80"), "as the tables say: {text}");
    assert!(text.contains("too few rounds: to be sure of 2 figures takes 5 on each"), "{text}");
}

#[test]
fn a_refusal_tells_what_differs_of_two_kernels_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let with = |parameters: &str| {
        let parameters = format!("{} {parameters}", "root=/dev/vda".repeat(40));
        move |run: &mut Provenance| run.machine.boot_parameters.clone_from(&parameters)
    };
    run(&dir.path().join("a"), "7.2", 300, with("quiet"));
    run(&dir.path().join("b"), "7.2", 300, with("nohz_full=3"));
    let said = asmp(dir.path(), "compare a b");
    let differ = "differ in kernel (7.2 with quiet; 7.2 with nohz_full=3): choose others, or say \
                  --across kernel\n";
    assert!(said.code == 52 && said.error.ends_with(differ), "{}", said.error);
    // JSON has all of it.
    let json = asmp(dir.path(), "compare a b --across kernel --json").out;
    assert!(json.contains("root=/dev/vdaroot"), "{json}");
}

#[test]
fn runs_of_two_kernels_are_reported_by_the_word_that_compare_takes() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("a"), "6.12", 300, |_| ());
    run(&dir.path().join("b"), "7.2", 300, |_| ());
    let refused = asmp(dir.path(), "report a b");
    assert!(refused.code == 52 && refused.error.contains("say --across kernel"), "{refused:?}");
    let said = asmp(dir.path(), "report a b --across kernel");
    assert!(
        said.code == 0 && said.out.contains("kernel 6.12 (normal a), kernel 7.2 (normal b); "),
        "{said:?}"
    );
}

#[test]
fn a_file_in_the_place_of_a_run_and_an_output_without_its_directory_are_refused_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("a"), "7.2", 300, |_| ());
    for (line, code, cure) in [
        ("report a/samples.bin", 50, "this is a file: name the run's directory, a\n"),
        ("export a/run.json --to json", 50, "name the run's directory, a\n"),
        ("report a -o no/p.html", 40, "there is no directory no: make that first\n"),
    ] {
        let said = asmp(dir.path(), line);
        assert!(said.code == code && said.error.ends_with(cure), "{line}: {said:?}");
        assert_eq!(said.out, "", "{line}: nothing is printed before");
    }
}
