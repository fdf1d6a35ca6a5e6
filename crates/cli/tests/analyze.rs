// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp analyze` and `asmp simulate` as a user calls them: words, JSON, exit codes, examples of
//! the guide.

mod calls;
mod runs;

use asmp_measure::load::Load;
use asmp_measure::run::{Experiment, Kind, Provenance, Source};
use calls::{asmp, examples, tasks_in, text, timed};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn code(words: &[&str]) -> i32 {
    asmp(words).status.code().expect("it exits")
}

#[test]
fn twenty_tasks_are_analysed_in_a_few_milliseconds() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("twenty.toml").to_str().unwrap().to_owned();
    let names: Vec<String> = (0..20).map(|at| format!("t{at}")).collect();
    let task = |(at, name): (u64, _)| (name, 1 + at % 3, 40 + 7 * at, "priority = 1");
    let tasks: Vec<_> = (0..).zip(names.iter().map(String::as_str)).map(task).collect();
    tasks_in(&file, &tasks);
    // Of the CPU, and the least of nine: what else runs here makes no call shorter.
    let least = |words: &[&str]| (0..9).map(|_| timed(words).2).min().unwrap();
    let (analysis, nothing) = (least(&["analyze", &file]), least(&["--version"]));
    println!("analysis of 20 tasks {analysis:?}, nothing {nothing:?}");
    assert!(analysis < nothing + Duration::from_millis(15), "{analysis:?}, nothing {nothing:?}");
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
        (
            &["analyze", "sampled.toml", "--policy", "fp"],
            include_str!("../../../examples/analysis/sampled.expected"),
        ),
    ] {
        let found = text(&asmp(words));
        assert_eq!(found, expected);
        assert!(guide.contains(found.trim_end()), "the guide shows something else than:\n{found}");
    }
}

#[test]
fn exit_codes_are_0_yes_60_no_61_unknown_40_wrong_file_2_wrong_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert_eq!(code(&["analyze", "robot.toml", "--policy", "np-edf"]), 0);
    assert_eq!(code(&["analyze", "overload.toml", "--policy", "np-edf"]), 60);
    assert_eq!(code(&["analyze", "overload.toml", "--policy", "edf"]), 0);
    assert_eq!(code(&["analyze", "overload.toml"]), 0, "some policy works");
    assert_eq!(code(&["analyze", "robot.toml", "--policy", "fp"]), 61, "it has no priorities");
    assert_eq!(code(&["analyze", "ros-chain.toml", "--policy", "fp"]), 0);
    assert_eq!(code(&["analyze", "ros-chain.toml", "--policy", "edf"]), 0);
    assert_eq!(
        code(&["analyze", "ros-chain.toml", "--policy", "np-edf"]),
        61,
        "a bound refutes nothing"
    );
    assert_eq!(
        code(&["analyze", "ros-chain.toml", "--policy", "deadline"]),
        61,
        "admitted, but nothing bounds it"
    );
    let unknown_field =
        file("a.toml", "[[task]]\nname = \"a\"\ncost = \"1 ms\"\nperiod = \"5 ms\"\nprio = 3\n");
    assert_eq!(code(&["analyze", &unknown_field]), 40);
    assert_eq!(code(&["analyze", "no-such-file.toml"]), 40);
    assert_eq!(code(&["analyze", "robot.toml", "--policy", "lottery"]), 2);
    assert_eq!(code(&["analyze"]), 2);
    let latency =
        file("m.toml", "[[task]]\nname = \"a\"\nmeasured = \"no-run\"\nperiod = \"5 ms\"\n");
    assert_eq!(code(&["analyze", &latency]), 40);
    let sampled = include_str!("../../../examples/analysis/sampled.toml");
    let tight = file("tight.toml", &sampled.replace("age = \"60 ms\"", "age = \"20 ms\""));
    assert_eq!(code(&["analyze", &tight, "--policy", "fp"]), 61, "a bound refutes nothing");
    assert_eq!(code(&["simulate", &tight, "--policy", "fp"]), 60, "a run passes the limit");
    assert_eq!(code(&["simulate", "sampled.toml", "--policy", "fp"]), 0);
    let csv = file("a.csv", "name,cost,period\na,1 ms,4 ms\nb,1 ms,5 ms\n");
    assert_eq!(code(&["analyze", &csv, "--policy", "rm"]), 0);
    let over = file("over.csv", "name,cost,period\na,3 ms,4 ms\nb,3 ms,5 ms\n");
    assert_eq!(code(&["analyze", &over]), 60, "no policy works");
    assert_eq!(code(&["analyze", &over, "--policy", "deadline"]), 60, "EBUSY");
    assert_eq!(code(&["analyze", &over, "--policy", "edf", "--cpus", "0-1"]), 0, "one each");
    assert_eq!(code(&["analyze", "budgets", "robot.toml"]), 0);
    assert_eq!(code(&["analyze", "place", &over, "--cpus", "1-2"]), 0);
    assert_eq!(code(&["analyze", "place", &over, "--cpus", "1"]), 61);
    assert_eq!(code(&["simulate", &over, "--policy", "edf", "--for", "1s"]), 60);
    assert_eq!(code(&["simulate", "robot.toml", "--policy", "np-edf"]), 0);
    let graph = |edge: &str| {
        let tasks = "[[task]]\nname = \"a\"\n[[task]]\nname = \"b\"\n";
        file("flow.toml", &format!("{tasks}[[edge]]\nfrom = \"a\"\nto = \"b\"\nread = 3\n{edge}"))
    };
    assert_eq!(code(&["analyze", "graph", &graph("write = 2\n")]), 0);
    assert_eq!(code(&["analyze", "graph", &graph("write = 2\nmemory = 1\n")]), 60);
    let huge = graph("write = 1234567\n");
    assert_eq!(code(&["analyze", "graph", &huge, "--max-firings", "10"]), 61);
    assert_eq!(code(&["analyze", "graph", &graph("wite = 2\n")]), 40);
    assert_eq!(code(&["analyze", "budgets", "overload.toml"]), 60);
    let early = "name,cost,period,deadline\na,1 ms,4 ms,2 ms\n";
    assert_eq!(code(&["analyze", "budgets", &file("early.csv", early)]), 61);
    assert_eq!(code(&["simulate", "robot.toml", "--policy", "fp"]), 61, "it has no priorities");
    assert_eq!(code(&["simulate", "no-such-file.toml", "--policy", "edf"]), 40);
    assert_eq!(
        code(&["simulate", "robot.toml", "--policy", "edf", "--for", "10"]),
        2,
        "10 of what?"
    );
}

#[test]
fn a_period_that_is_a_fraction_is_analysed_exactly_and_its_miss_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audio.toml");
    let name = path.to_str().unwrap();
    let set = |cost: &str| {
        let task = |name: &str, cost: &str| {
            format!("[[task]]\nname = \"{name}\"\ncost = \"{cost}\"\nperiod = \"64/48000 s\"\n")
        };
        std::fs::write(&path, task("mix", cost) + &task("play", "2/3 ms")).unwrap();
    };
    set("2/3 ms");
    let output = asmp(&["analyze", name, "--policy", "edf"]);
    let words = text(&output);
    assert_eq!(output.status.code(), Some(0), "all of the CPU, and no more: {words}");
    assert!(words.contains("4/3 ms") && words.contains("utilisation 100.0 %"), "{words}");
    // A third of a nanosecond too much.
    set("2000001/3 ns");
    let output = asmp(&["analyze", name, "--policy", "rm", "--json"]);
    assert_eq!(output.status.code(), Some(60));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["tasks"][0]["period_ns"], "4000000/3");
    assert_eq!(json["tasks"][0]["cost"]["guaranteed"], 666_667);
    let missed = &json["policies"][0]["cpus"][0]["verdict"]["counterexample"]["missed"];
    assert_eq!(missed["finished_ns"], "6000002/3", "preempted 1/3 ns before its end");
    let verdict = dir.path().join("verdict.json");
    std::fs::write(&verdict, &output.stdout).unwrap();
    let replay =
        ["simulate", name, "--policy", "rm", "--json", "--replay", verdict.to_str().unwrap()];
    let again = asmp(&replay);
    let json: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((again.status.code(), &json["first_misses"][0]), (Some(60), missed));
    // The times of that file are no whole ticks of this one.
    std::fs::write(&path, "[[task]]\nname = \"a\"\ncost = \"1 ms\"\nperiod = \"2 ms\"\n").unwrap();
    assert_eq!(asmp(&replay).status.code(), Some(40));
    let words = text(&asmp(&["analyze", name, "--policy", "edf"]));
    assert!(words.contains("2 ms") && !words.contains('~'), "{words}");
}

#[test]
fn durations_without_a_unit_are_refused_with_the_cure() {
    for (words, cure) in [
        (
            &["measure", "latency", "--period", "5"][..],
            "duration \"5\" has no unit: write 5ns, 5us, 5ms or 5s",
        ),
        (&["noise", "--cpus", "0", "-t", "5"], "has no unit: write 5s"),
        (&["noise", "--cpus", "0", "-t", "10ms"], "the time must be between 1 s and 24 h"),
        (&["measure", "latency", "--period", "1000"], "duration \"1000\" has no unit"),
        (&["measure", "latency", "--period", "0"], "the duration must be above 0"),
        (&["measure", "latency", "--period", "3kHz"], "use 333333 ns or 333334 ns"),
        (&["measure", "overhead", "--work", "1 fortnight"], "unknown unit \"fortnight\""),
        (
            &["run", "--cpus", "1", "--policy", "deadline:1/2/3", "--", "true"],
            "has no unit: write 1ns",
        ),
    ] {
        let output = asmp(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(cure), "{words:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}

/// The CPU is none of this machine, so that nothing is measured in any case.
#[test]
fn ab_refuses_kinds_that_it_would_not_measure() {
    let output = asmp(&[
        "measure", "ab", "--knob", "tick", "--kinds", "Rb", "--cpu", "4095", "--load", "IDL",
    ]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("takes no --kinds"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn ab_refuses_to_explain_what_it_does_not_print_and_says_who_does() {
    let output = asmp(&["measure", "ab", "--knob", "tick", "--explain", "3", "--cpu", "4095"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("takes no --explain: asmp measure report DIR --explain N"), "{said}");
    assert_eq!(output.status.code(), Some(2));
    let help = String::from_utf8(asmp(&["measure", "ab", "--help"]).stdout).unwrap();
    assert!(!help.contains("--explain"), "{help}");
}

#[test]
fn a_counterexample_in_json_is_replayed_to_the_miss_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let output = asmp(&["analyze", "overload.toml", "--policy", "np-edf", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], 1);
    let missed = &json["policies"][0]["cpus"][0]["verdict"]["counterexample"]["missed"];
    assert_eq!(
        (&missed["task"], &missed["finished_ns"]),
        (&Value::from(0), &Value::from(12_000_000))
    );
    let path = dir.path().join("verdict.json");
    std::fs::write(&path, &output.stdout).unwrap();
    let replay =
        ["simulate", "overload.toml", "--policy", "np-edf", "--for", "50ms", "--json", "--replay"];
    let output = asmp(&[&replay[..], &[path.to_str().unwrap()]].concat());
    let again: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(&again["first_misses"][0], missed);
    assert_eq!(
        code(&[
            "simulate",
            "overload.toml",
            "--policy",
            "np-edf",
            "--offsets",
            "worst",
            "--for",
            "50ms"
        ]),
        60
    );
    assert_eq!(
        code(&[
            "simulate",
            "overload.toml",
            "--policy",
            "edf",
            "--offsets",
            "worst",
            "--for",
            "50ms"
        ]),
        0
    );
}

#[test]
fn a_counterexample_of_one_cpu_of_several_is_replayed_with_its_own_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("two.toml");
    let name = file.to_str().unwrap();
    tasks_in(
        &file,
        &[
            ("x", 1, 10, "core = 0"),
            ("y", 1, 20, "core = 0"),
            ("p", 6, 10, "core = 1"),
            ("q", 6, 10, "core = 1"),
        ],
    );
    let output = asmp(&["analyze", name, "--policy", "edf", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let missed = &json["policies"][0]["cpus"][1]["verdict"]["counterexample"]["missed"];
    assert_eq!(missed["task"], 3, "q, by its index in the file");
    let verdict = dir.path().join("verdict.json");
    std::fs::write(&verdict, &output.stdout).unwrap();
    let simulate = |words: &[&str]| {
        let output = asmp(
            &[&["simulate", name, "--policy", "edf", "--for", "1s", "--json"], words].concat(),
        );
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
    };
    let (exit, again) = simulate(&["--replay", verdict.to_str().unwrap()]);
    assert_eq!((exit, &again["first_misses"][0]), (Some(60), missed));
    let words = text(&asmp(&["analyze", name, "--policy", "edf"]));
    assert!(
        words.contains("job 0 of q is released at 0 ns, due at 10 ms, and finishes at 12 ms"),
        "{words}"
    );
    assert_eq!(simulate(&["--offsets", "worst"]).1["first_misses"][0], *missed);
    // Each on its own CPU, all is well, and the worst of either misses nothing.
    tasks_in(&file, &[("p", 6, 10, "core = 0"), ("q", 6, 10, "core = 1")]);
    assert_eq!(code(&["analyze", name, "--policy", "edf"]), 0);
    assert_eq!(simulate(&["--offsets", "worst"]).0, Some(0));
    // A counterexample of other tasks is refused, not simulated without them.
    assert_eq!(simulate(&["--replay", verdict.to_str().unwrap()]).0, Some(40));
    assert_eq!(code(&["simulate", "ros-chain.toml", "--policy", "fp", "--offsets", "worst"]), 61);
}

#[test]
fn a_task_without_a_cpu_is_not_passed_over_in_the_line_of_a_policy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("three.toml");
    let name = file.to_str().unwrap();
    tasks_in(&file, &[("p", 6, 10, ""), ("q", 6, 10, ""), ("r", 6, 10, "")]);
    let output = asmp(&["analyze", name, "--cpus", "0-1"]);
    let words = text(&output);
    let edf = words.lines().find(|line| line.starts_with("edf")).unwrap();
    assert!(edf.contains("unknown: no CPU was found for r"), "{words}");
    assert_eq!(output.status.code(), Some(61));
    tasks_in(&file, &[("p", 6, 10, "core = 7")]);
    let words = text(&asmp(&["analyze", name, "--cpus", "0-1"]));
    assert!(
        words.contains("task p names core 7, which --cpus leaves out")
            && !words.contains("there are no tasks"),
        "{words}"
    );
    assert_eq!(code(&["analyze", name, "--cpus="]), 2, "no CPU at all");
    assert_eq!(code(&["analyze", "place", name, "--cpus="]), 2);
}

#[test]
fn pictures_and_traces_are_written_and_the_same_for_the_same_seed() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, seed: &str| {
        let (svg, trace) =
            (dir.path().join(format!("{name}.svg")), dir.path().join(format!("{name}.json")));
        let words = [
            "simulate",
            "robot.toml",
            "--policy",
            "np-edf",
            "--for",
            "5s",
            "--seed",
            seed,
            "--gantt",
        ];
        let words =
            [&words[..], &[svg.to_str().unwrap(), "--trace", trace.to_str().unwrap()]].concat();
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
        60
    );
    assert!(std::fs::read_to_string(svg).unwrap().contains("deadline missed"));
}

#[test]
fn a_picture_that_cannot_be_written_leaves_what_was_there_and_prints_nothing() {
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().unwrap();
    let (picture, link) = (dir.path().join("old.svg"), dir.path().join("link.svg"));
    std::fs::write(&picture, "old").unwrap();
    std::os::unix::fs::symlink(&picture, &link).unwrap();
    let run = |svg: &Path, words: &[&str], most_bytes: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
        command.current_dir(examples()).args(words).arg(svg);
        let little = move || {
            let limit = libc::rlimit { rlim_cur: most_bytes, rlim_max: most_bytes };
            // SAFETY: the kernel reads one rlimit, which outlives the call.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
            // SAFETY: takes numbers. Ignored, the signal leaves it at an error of the write, as a
            // full disk does.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
            Ok(())
        };
        // SAFETY: between fork and exec only setrlimit and signal, async-signal-safe system calls.
        unsafe { command.pre_exec(little) };
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        (output.status.code(), text(&output), said)
    };
    let analyze = ["analyze", "overload.toml", "--policy", "np-edf", "--gantt"];
    let simulate = ["simulate", "robot.toml", "--policy", "np-edf", "--for", "5s", "--gantt"];
    let graph = ["analyze", "graph", "camera.toml", "--svg"];
    for words in [&analyze[..], &simulate, &graph] {
        for svg in [&picture, &dir.path().join("new.svg")] {
            let (code, printed, said) = run(svg, words, 1000);
            assert_eq!(
                (code, printed.as_str(), said.lines().count()),
                (Some(40), "", 1),
                "{words:?}: {said}"
            );
            assert!(
                said.contains(&format!("{}: cannot be written: File too large", svg.display())),
                "{said}"
            );
        }
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["link.svg", "old.svg"], "{words:?}");
        assert_eq!(std::fs::read_to_string(&picture).unwrap(), "old", "{words:?}");
        let (code, _, said) = run(&dir.path().join("no/where.svg"), words, u64::MAX);
        assert!(
            code == Some(40) && said.contains("No such file or directory"),
            "{words:?}: {said}"
        );
        let (code, _, said) = run(dir.path(), words, u64::MAX);
        assert!(code == Some(40) && said.contains("Is a directory"), "{words:?}: {said}");
    }
    let (code, ..) = run(&link, &simulate, u64::MAX);
    assert_eq!(code, Some(0));
    assert!(link.is_symlink() && std::fs::read_to_string(&picture).unwrap().contains("<svg"));
    // As /dev/stdout does, it stands for a pipe.
    let output = dir.path().join("stdout");
    std::os::unix::fs::symlink("/proc/self/fd/1", &output).unwrap();
    let (code, printed, _) = run(&output, &simulate, u64::MAX);
    assert!(code == Some(0) && output.is_symlink() && printed.contains("<svg"), "{printed}");
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
        (&["analyze", "overload.toml", "--policy", "np-edf"], 60),
        (&["analyze", "graph", "camera.toml", "--json"], 0),
        (&["simulate", "robot.toml", "--policy", "np-edf", "--for", "10s"], 0),
        (&["man"], 0),
        (&["completions", "bash"], 0),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
        command.current_dir(examples()).args(words);
        let output = command.stdout(unread()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(answer), &b""[..]),
            "{words:?}"
        );
    }
}

#[test]
fn an_error_that_nobody_reads_has_its_exit_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    let output =
        command.args(["analyze", "/nowhere"]).stdout(unread()).stderr(unread()).output().unwrap();
    assert_eq!(output.status.code(), Some(40));
}

#[test]
fn output_that_is_lost_otherwise_is_a_failure() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(examples()).args(["analyze", "robot.toml", "--policy", "np-edf"]);
    let output = command.stdout(full()).stderr(Stdio::piped()).output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("standard output cannot be written"), "{words}");
    assert_eq!(output.status.code(), Some(40));
}

#[test]
fn a_measured_cost_is_the_longest_turn_of_the_run_and_marked_as_not_proven() {
    let dir = tempfile::tempdir().unwrap();
    let latency = runs::provenance("7.2.13", Load::Mixed, Kind::Fifo);
    let overhead =
        Provenance { experiment: Experiment::Overhead, source: Source::Loop, ..latency.clone() };
    runs::write(
        &dir.path().join("runs/turns"),
        overhead,
        [1_000_000, 3_250_000, 2_000_000].into_iter(),
    );
    runs::write(&dir.path().join("runs/waits"), latency, [1_000, 2_000].into_iter());
    let analyze = |run: &str, period: &str, more: &[&str]| {
        let path = dir.path().join("tasks.toml");
        let text = format!(
            "[[task]]\nname = \"axis\"\nmeasured = \"runs/{run}\"\nperiod = \"{period}\"\n"
        );
        std::fs::write(&path, text).unwrap();
        asmp(&[&["analyze", path.to_str().unwrap(), "--policy", "np-edf"], more].concat())
    };
    let output = analyze("turns", "5 ms", &[]);
    let words = text(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("3.25 ms *") && words.contains("* measured, not proven"), "{words}");
    let json: Value =
        serde_json::from_slice(&analyze("turns", "5 ms", &["--json"]).stdout).unwrap();
    let cost = &json["tasks"][0]["cost"];
    assert_eq!(cost["measured"]["ns"], 3_250_000, "{json}");
    assert_eq!(analyze("turns", "3 ms", &[]).status.code(), Some(60), "longer than its period");
    let samples = dir.path().join("runs/turns/samples.bin");
    let before = std::fs::read(&samples).unwrap();
    let refused = analyze("turns", "5 ms", &["--gantt", samples.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2), "the run would be lost");
    assert!(std::fs::read(&samples).unwrap() == before);
    let refused = analyze("waits", "5 ms", &[]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("measures latency, not execution time"), "{words}");
    assert_eq!(refused.status.code(), Some(40));
}

#[test]
fn sched_deadline_is_judged_by_the_limits_of_the_machine_under_root() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("machine");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    std::fs::create_dir(&root).unwrap();
    let tasks = dir.path().join("tasks.toml");
    std::fs::write(&tasks, "[[task]]\nname = \"a\"\ncost = \"92 ms\"\nperiod = \"100 ms\"\n")
        .unwrap();
    let judge = || {
        let (tasks, root) = (tasks.to_str().unwrap(), root.to_str().unwrap());
        let output =
            asmp(&["analyze", tasks, "--policy", "deadline", "--cpus", "1", "--root", root]);
        (output.status.code().unwrap(), text(&output))
    };
    let (code, words) = judge();
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("950 ms of 1 s") && words.contains("not readable"), "{words}");
    let sysctl = |name: &str, value: &str| write(&format!("proc/sys/kernel/{name}"), value);
    sysctl("sched_rt_runtime_us", "900000\n");
    sysctl("sched_rt_period_us", "1000000\n");
    sysctl("sched_deadline_period_min_us", "100\n");
    sysctl("sched_deadline_period_max_us", "4194304\n");
    write("sys/kernel/debug/sched/features", "\n");
    write("sys/devices/system/cpu/possible", "0-1\n");
    let (code, words) = judge();
    assert!(!words.contains("no CPU"), "{words}");
    assert_eq!(code, 60, "{words}");
    assert!(words.contains("limits: 900 ms of 1 s") && !words.contains("not readable"), "{words}");
    sysctl("sched_rt_runtime_us", "950000\n");
    assert_eq!(judge().0, 0);
    write("sys/kernel/debug/sched/fair_server/cpu1/runtime", "50000000\n");
    write("sys/kernel/debug/sched/fair_server/cpu1/period", "1000000000\n");
    let (code, words) = judge();
    assert_eq!(code, 60, "97 % are asked for: {words}");
    assert!(words.contains("fair server of CPU 1: 50 ms of 1 s"), "{words}");
    sysctl("sched_rt_runtime_us", "-1\n");
    assert_eq!(judge().0, 0);
    write("sys/devices/system/cpu/possible", "0\n");
    assert!(judge().1.contains("this machine has no CPU 1"));
    sysctl("sched_deadline_period_max_us", "50000\n");
    assert_eq!(judge().0, 61, "sched_setattr takes no such period");
}

/// 50.0000000001 ns make a tick of a ten-billionth of a nanosecond.
#[test]
fn a_simulation_without_a_policy_takes_the_one_that_the_file_suggests_and_says_so() {
    let run = |words: &[&str]| {
        let output = asmp(words);
        (output.status.code(), text(&output), String::from_utf8(output.stderr).unwrap())
    };
    let note = |policy: &str| format!("asmp: note: simulates {policy}, as ");
    for (file, policy) in [("sampled.toml", "fp"), ("robot.toml", "edf")] {
        let (code, said, notes) = run(&["simulate", file]);
        assert!(notes.starts_with(&note(policy)) && notes.lines().count() == 1, "{notes}");
        let named = run(&["simulate", file, "--policy", policy]);
        assert_eq!((code, said), (named.0, named.1));
        assert_eq!(named.2, "", "no terminal, no progress");
    }
    let (code, _, error) = run(&["simulate", "robot.toml", "--replay", "robot.toml"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("--replay needs the policy") && error.contains("np-edf"), "{error}");
}

#[test]
fn a_run_that_the_file_s_tick_is_too_fine_for_is_refused_with_the_longest() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fine.toml");
    let task = "[[task]]\nname = \"a\"\ncost = \"50.0000000001 ns\"\nperiod = \"1 ms\"\n";
    std::fs::write(&file, task).unwrap();
    let simulate = |time: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_asmp"))
            .args(["simulate", "--policy", "edf", "--for", time])
            .arg(&file)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, words) = simulate("10s");
    assert!(code == Some(2) && words.contains("use at most ~230.584301 ms"), "{code:?}: {words}");
    assert_eq!(simulate("230ms").0, Some(0));
    let (code, words) = simulate("1/100000000000 ns");
    assert!(code == Some(2) && words.contains("shorter than a tick"), "{code:?}: {words}");
}
