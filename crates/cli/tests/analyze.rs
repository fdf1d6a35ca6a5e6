//! `asmp analyze` and `asmp simulate` as a user calls them: words, JSON, exit codes, examples of the guide.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/analysis")
}

fn asmp(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(examples()).args(words).output().expect("asmp starts")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("words")
}

fn code(words: &[&str]) -> i32 {
    asmp(words).status.code().expect("it exits")
}

#[test]
fn the_robot_prints_what_the_guide_shows() {
    let guide = include_str!("../../../docs/guide/analysis.md");
    for (words, expected) in [
        (
            &["analyze", "robot.toml", "--policy", "np-edf"][..],
            include_str!("../../../examples/analysis/robot.expected"),
        ),
        (
            &["analyze", "overload.toml", "--policy", "np-edf"],
            include_str!("../../../examples/analysis/overload.expected"),
        ),
    ] {
        let found = text(&asmp(words));
        assert_eq!(found, expected);
        assert!(guide.contains(found.trim_end()), "the guide shows something else than:\n{found}");
    }
}

#[test]
fn exit_codes_are_0_yes_1_no_2_wrong_input_3_unknown_or_does_not_apply() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert_eq!(code(&["analyze", "robot.toml", "--policy", "np-edf"]), 0);
    assert_eq!(code(&["analyze", "overload.toml", "--policy", "np-edf"]), 1);
    assert_eq!(code(&["analyze", "overload.toml", "--policy", "edf"]), 0);
    assert_eq!(code(&["analyze", "overload.toml"]), 0, "some policy works");
    assert_eq!(code(&["analyze", "robot.toml", "--policy", "fp"]), 3, "it has no priorities");
    assert_eq!(code(&["analyze", "ros-chain.toml", "--policy", "fp"]), 0);
    assert_eq!(code(&["analyze", "ros-chain.toml", "--policy", "edf"]), 3, "chains want fixed priorities");
    let unknown_field =
        file("a.toml", "[[task]]\nname = \"a\"\ncost = \"1 ms\"\nperiod = \"5 ms\"\nprio = 3\n");
    assert_eq!(code(&["analyze", &unknown_field]), 2);
    assert_eq!(code(&["analyze", "no-such-file.toml"]), 2);
    assert_eq!(code(&["analyze", "robot.toml", "--policy", "lottery"]), 2);
    assert_eq!(code(&["analyze"]), 2);
    let latency = file("m.toml", "[[task]]\nname = \"a\"\nmeasured = \"no-run\"\nperiod = \"5 ms\"\n");
    assert_eq!(code(&["analyze", &latency]), 2);
    let csv = file("a.csv", "name,cost,period\na,1 ms,4 ms\nb,1 ms,5 ms\n");
    assert_eq!(code(&["analyze", &csv, "--policy", "rm"]), 0);
    let over = file("over.csv", "name,cost,period\na,3 ms,4 ms\nb,3 ms,5 ms\n");
    assert_eq!(code(&["analyze", &over]), 1, "no policy works");
    assert_eq!(code(&["analyze", &over, "--policy", "deadline"]), 1, "EBUSY");
    assert_eq!(code(&["analyze", &over, "--policy", "edf", "--cpus", "0-1"]), 0, "one each");
    assert_eq!(code(&["analyze", "budgets", "robot.toml"]), 0);
    assert_eq!(code(&["analyze", "place", &over, "--cpus", "1-2"]), 0);
    assert_eq!(code(&["analyze", "place", &over, "--cpus", "1"]), 3);
    assert_eq!(code(&["simulate", &over, "--policy", "edf", "--for", "1s"]), 1);
    assert_eq!(code(&["simulate", "robot.toml", "--policy", "np-edf"]), 0);
}

#[test]
fn a_counterexample_in_json_is_replayed_to_the_miss_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let output = asmp(&["analyze", "overload.toml", "--policy", "np-edf", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    let missed = &json["policies"][0]["cpus"][0]["verdict"]["counterexample"]["missed"];
    assert_eq!((&missed["task"], &missed["finished_ns"]), (&Value::from(0), &Value::from(12_000_000)));
    let path = dir.path().join("verdict.json");
    std::fs::write(&path, &output.stdout).unwrap();
    let replay = ["simulate", "overload.toml", "--policy", "np-edf", "--for", "50ms", "--json", "--replay"];
    let output = asmp(&[&replay[..], &[path.to_str().unwrap()]].concat());
    let again: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(&again["first_misses"][0], missed);
    assert_eq!(
        code(&["simulate", "overload.toml", "--policy", "np-edf", "--offsets", "worst", "--for", "50ms"]),
        1
    );
    assert_eq!(
        code(&["simulate", "overload.toml", "--policy", "edf", "--offsets", "worst", "--for", "50ms"]),
        0
    );
}

#[test]
fn pictures_and_traces_are_written_and_the_same_for_the_same_seed() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, seed: &str| {
        let (svg, trace) = (dir.path().join(format!("{name}.svg")), dir.path().join(format!("{name}.json")));
        let words =
            ["simulate", "robot.toml", "--policy", "np-edf", "--for", "5s", "--seed", seed, "--gantt"];
        let words = [&words[..], &[svg.to_str().unwrap(), "--trace", trace.to_str().unwrap()]].concat();
        let output = asmp(&words);
        assert_eq!(output.status.code(), Some(0));
        (text(&output), std::fs::read(svg).unwrap(), std::fs::read(trace).unwrap())
    };
    assert_eq!(run("a", "1"), run("b", "1"));
    let (one, other) = (run("c", "1"), run("d", "2"));
    assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2);
    let trace: Value = serde_json::from_slice(&one.2).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["ph"] == "X"));
    let svg = dir.path().join("analyze.svg");
    assert_eq!(
        code(&["analyze", "overload.toml", "--policy", "np-edf", "--gantt", svg.to_str().unwrap()]),
        1
    );
    assert!(std::fs::read_to_string(svg).unwrap().contains("deadline missed"));
}

/// A pipe whose reader has left.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[test]
fn a_reader_that_leaves_is_no_failure_and_the_answer_is_still_the_exit_code() {
    for (words, answer) in [
        (&["analyze", "robot.toml", "--policy", "np-edf"][..], 0),
        (&["analyze", "overload.toml", "--policy", "np-edf"], 1),
        (&["analyze", "graph", "camera.toml", "--json"], 0),
        (&["simulate", "robot.toml", "--policy", "np-edf", "--for", "10s"], 0),
        (&["man"], 0),
        (&["completions", "bash"], 0),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
        command.current_dir(examples()).args(words);
        let output = command.stdout(unread()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(answer), &b""[..]), "{words:?}");
    }
}

#[test]
fn an_error_that_nobody_reads_has_its_exit_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    let output = command.args(["analyze", "/nowhere"]).stdout(unread()).stderr(unread()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn output_that_is_lost_otherwise_is_a_failure() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(examples()).args(["analyze", "robot.toml", "--policy", "np-edf"]);
    let output = command.stdout(full()).stderr(Stdio::piped()).output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("standard output cannot be written"), "{words}");
    assert_eq!(output.status.code(), Some(1));
}
