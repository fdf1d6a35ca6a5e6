// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp analyze` and `asmp simulate` refuse what they would ignore, and what no task set is.

mod calls;
mod places;

use calls::{asmp, examples, tasks_in, text, timed};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Exit code and error of a call.
fn said(words: &[&str]) -> (i32, String) {
    let output = asmp(words);
    (output.status.code().expect("it exits"), String::from_utf8(output.stderr).expect("words"))
}

#[test]
fn a_range_of_cpus_that_runs_backwards_is_named() {
    for words in [&["analyze", "x.toml"][..], &["analyze", "place", "x.toml"]] {
        let (exit, error) = said(&[words, &["--cpus", "3-1"]].concat());
        assert!(exit == 2 && error.contains("the range 3-1 runs backwards"), "{exit}: {error}");
        let (exit, error) = said(&[words, &["--cpus", "last"]].concat());
        assert!(exit == 2 && error.contains("write the numbers of CPUs"), "{exit}: {error}");
    }
}

#[test]
fn an_option_that_the_policy_would_ignore_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("x.svg");
    let svg = picture.to_str().unwrap();
    for policy in ["deadline", "all"] {
        let (exit, words) = said(&["analyze", "robot.toml", "--policy", policy, "--gantt", svg]);
        assert_eq!(exit, 2, "{policy}: {words}");
        assert!(words.contains("--gantt draws one policy"), "{words}");
    }
    assert!(!picture.exists());
    let (exit, words) = said(&["analyze", "robot.toml", "--policy", "edf", "--root", "/"]);
    assert!(exit == 2 && words.contains("--root is only for --policy deadline"), "{words}");
    for policy in ["deadline", "all"] {
        let root = dir.path().join("tpyo");
        let words = ["analyze", "robot.toml", "--policy", policy, "--root"];
        let (exit, words) = said(&[&words[..], &[root.to_str().unwrap()]].concat());
        assert!(exit == 40 && words.contains("tpyo: No such file"), "{words}");
    }
    for (name, same) in [("fifo", "fp"), ("SCHED_FIFO", "fp"), ("EDF", "edf")] {
        let [one, other] =
            [name, same].map(|name| text(&asmp(&["analyze", "ros-chain.toml", "--policy", name])));
        assert!(one == other && one.contains("chain see and steer"), "{name}: {one}");
    }
    assert_eq!(said(&["analyze", "robot.toml", "--policy", "SCHED_DEADLINE"]).0, 0);
    let (exit, words) = said(&["simulate", "robot.toml", "--policy", "edf", "--overrun", "200"]);
    assert!(exit == 2 && words.contains("add, for example, --overruns 1000"), "{words}");
}

#[test]
fn a_mistyped_subcommand_is_told_from_a_missing_file() {
    let (exit, words) = said(&["analyze", "plcae"]);
    assert!(exit == 40 && words.contains("plcae: neither a file nor one of budgets"), "{words}");
    let (exit, words) = said(&["analyze", "plcae.toml"]);
    assert!(exit == 40 && words.contains("plcae.toml: cannot be read: No such file"), "{words}");
}

#[test]
fn a_counterexample_of_another_file_or_policy_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, other, json) = (at("file.toml"), at("other.toml"), at("all.json"));
    tasks_in(&file, &[("x", 3, 10, ""), ("y", 9, 100, "")]);
    tasks_in(&other, &[("x", 3, 10, ""), ("y", 9, 90, "")]);
    let output = asmp(&["analyze", &file, "--json"]);
    std::fs::write(&json, &output.stdout).unwrap();
    let replay = |file: &str, policy: &str, json: &str| {
        said(&["simulate", file, "--policy", policy, "--for", "1s", "--replay", json])
    };
    assert_eq!(replay(&file, "np-edf", &json), (60, String::new()));
    let (exit, words) = replay(&other, "np-edf", &json);
    assert!(exit == 40 && words.contains("of other tasks: task y differs"), "{words}");
    let (exit, words) = replay(&file, "edf", &json);
    assert!(exit == 40 && words.contains("no counterexample of edf in this file"), "{words}");
    // Alone it names a miss, which must happen.
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let alone = at("alone.json");
    let found = &all["policies"][0]["cpus"][0]["verdict"]["counterexample"];
    std::fs::write(&alone, found.to_string()).unwrap();
    assert_eq!(replay(&file, "np-edf", &alone).0, 60);
    let (exit, words) = replay(&file, "edf", &alone);
    assert!(exit == 40 && words.contains("the miss that it names does not happen"), "{words}");
}

const IMPORT: [&str; 6] = ["-o", "/proc/none", "--kernel", "7.2.13", "--kind", "N"];

#[test]
fn endless_and_huge_files_are_refused_before_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let huge = dir.path().join("huge.toml");
    std::fs::File::create(&huge).unwrap().set_len(100_000_000).unwrap();
    let empty = dir.path().join("empty.toml");
    std::fs::write(&empty, "").unwrap();
    for file in [huge.to_str().unwrap(), "/dev/zero"] {
        for words in [
            &["analyze", file][..],
            &["analyze", "budgets", file],
            &["analyze", "place", file, "--cpus", "1-2"],
            &["analyze", "graph", file],
            &["simulate", file, "--policy", "edf"],
            &["apply", "--dry-run", file],
            &["plan", "apply", file],
            &[&["measure", "import", file, "--from", "hdr"], &IMPORT[..]].concat(),
        ] {
            let (exit, error, took) = timed(words);
            assert!(exit == 40 && error.contains("at most 16 MiB are read"), "{words:?}: {error}");
            assert!(took < Duration::from_millis(100), "{words:?}: {took:?}");
        }
    }
    for words in [
        &["analyze", empty.to_str().unwrap()][..],
        &["analyze", "budgets", empty.to_str().unwrap()],
        &["simulate", empty.to_str().unwrap(), "--policy", "edf"],
    ] {
        let (exit, error) = said(words);
        assert!(exit == 43 && error.contains("empty.toml: there is no task"), "{error}");
    }
}

#[test]
fn an_error_of_a_file_shows_no_line_of_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(100_000);
    let task = "[[task]]\nname = \"x\"\ncost = \"1 ms\"\nperiod = \"10 ms\"\n";
    let graph = "[[task]]\nname = \"x\"\n[[edge]]\nfrom = \"x\"\n";
    for (command, name, text) in [
        (&["analyze"][..], "key.toml", format!("{task}{long} = 1\n")),
        (&["analyze"], "value.toml", format!("{task}class = \"{long}\"\n")),
        (&["analyze"], "number.toml", format!("{task}priority = \"{long}\"\n")),
        (&["analyze"], "time.toml", format!("{task}deadline = \"{long}\"\n")),
        (&["analyze"], "column.csv", format!("name,{long}\nx,1\n")),
        (&["analyze"], "number.csv", format!("name,cost,period,priority\nx,1us,1ms,{long}\n")),
        (&["analyze", "graph"], "to.toml", format!("{graph}to = \"{long}\"\n")),
        (&["apply", "--dry-run"], "partition.toml", format!("[[partition]]\n{long} = 1\n")),
        (&["apply", "--dry-run"], "cpus.toml", format!("[[partition]]\ncpus = \"{long}\"\n")),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let (exit, error) = said(&[command, &[file.to_str().unwrap()]].concat());
        assert!(exit == 40 && error.len() < 1000, "{name}, {exit}: {} bytes", error.len());
        assert!(error.contains(name) && error.contains("line "), "{error}");
    }
}

#[test]
fn a_description_of_a_run_that_is_endless_or_huge_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let json = run.join("run.json");
    let tasks = dir.path().join("tasks.toml").to_str().unwrap().to_owned();
    let task = "[[task]]\nname = \"x\"\nmeasured = \"run\"\nperiod = \"10 ms\"\n";
    std::fs::write(&tasks, task).unwrap();
    let both = |says: &str| {
        for (words, code) in [
            (["analyze", &tasks].as_slice(), 40),
            (&["measure", "report", run.to_str().unwrap()], 50),
        ] {
            let (exit, error) = said(words);
            assert!(exit == code && error.contains(says), "{words:?}: {error}");
        }
    };
    std::fs::File::create(&json).unwrap().set_len(100_000_000).unwrap();
    both("run.json: too long: at most 16 MiB are read: not a run of asmp measure");
    std::fs::remove_file(&json).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &json).unwrap();
    both("run.json: not a regular file");
}

#[test]
fn a_replay_may_be_longer_than_a_task_set_but_not_of_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("all.json").to_str().unwrap().to_owned();
    let replay = || said(&["simulate", "robot.toml", "--policy", "edf", "--replay", &json]);
    let of_length = |bytes| std::fs::File::create(&json).unwrap().set_len(bytes).unwrap();
    of_length(300_000_000);
    let (exit, words) = replay();
    assert!(exit == 40 && words.contains("too long: at most 256 MiB are read"), "{words}");
    // Nothing of it is read but its beginning.
    let refused = |json: &str| {
        let words = ["simulate", "robot.toml", "--policy", "edf", "--replay", json];
        let (exit, words, spent) = timed(&words);
        assert!(exit == 40 && words.contains("is no output of asmp analyze --json"), "{words}");
        assert!(spent < Duration::from_millis(100), "{json}: {spent:?}");
    };
    of_length(100_000_000);
    refused(&json);
    refused("/dev/zero");
    let long = format!("{{{}}}", " ".repeat(17 << 20));
    std::fs::write(&json, long).unwrap();
    let (exit, words) = replay();
    assert!(exit == 40 && words.contains("no counterexample"), "{words}");
    let help = text(&asmp(&["simulate", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("At most 256 MiB of it are read, and of a task set 16"), "{help}");
}

#[test]
fn the_factor_that_budgets_prints_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("robot.toml");
    let robot = std::fs::read_to_string(examples().join("robot.toml")).unwrap();
    let words = text(&asmp(&["analyze", "budgets", "robot.toml"]));
    let line = words.lines().find(|line| line.starts_with("room: ")).unwrap();
    let number = line.split(' ').find_map(|word| word.parse::<f64>().ok()).unwrap();
    let times = |thousandths: u64| {
        let scaled =
            robot.replace("cost = \"20 ms\"", &format!("cost = \"{} us\"", 20 * thousandths));
        let scaled =
            scaled.replace("cost = \"100 ms\"", &format!("cost = \"{} us\"", 100 * thousandths));
        assert_ne!(scaled, robot);
        std::fs::write(&file, scaled).unwrap();
        said(&["analyze", file.to_str().unwrap(), "--policy", "np-edf"]).0
    };
    let thousandths = (number * 1000.0).round() as u64;
    assert_eq!((times(thousandths), times(thousandths + 1)), (0, 60), "{line}");
}

#[test]
fn an_output_replaces_neither_an_input_nor_another_output() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (file, link, flow, new) = (at("f.toml"), at("link"), at("flow.toml"), at("new"));
    tasks_in(&file, &[("x", 3, 10, ""), ("y", 9, 100, "")]);
    std::fs::hard_link(&file, &link).unwrap();
    let graph = "[[task]]\nname = \"a\"\n[[task]]\nname = \"b\"\n";
    std::fs::write(&flow, graph).unwrap();
    let all = || [&file, &flow].map(|path| std::fs::read_to_string(path).unwrap());
    let (before, beside) = (all(), format!("{}/./new", dir.path().display()));
    let analyze = ["analyze", &file, "--policy", "edf"];
    let simulate = ["simulate", &file, "--policy", "edf"];
    for (words, option) in [
        ([&analyze[..], &["--gantt", &file]].concat(), "--gantt"),
        ([&analyze[..], &["--gantt", &link]].concat(), "--gantt"),
        ([&simulate[..], &["--trace", &file]].concat(), "--trace"),
        ([&simulate[..], &["--gantt", &new, "--trace", &beside]].concat(), "--gantt"),
        (vec!["analyze", "graph", &flow, "--dot", &flow], "--dot"),
        (vec!["analyze", "graph", &flow, "--svg", &new, "--dot", &new], "--dot"),
    ] {
        let (exit, said) = said(&words);
        assert!(exit == 2 && said.contains(option), "{words:?}: {exit} {said}");
        assert!(said.contains("name another file"), "{words:?}: {said}");
        assert!(!Path::new(&new).exists(), "{words:?}: refused before anything is written");
    }
    assert_eq!(all(), before);
    // A device may be named twice.
    let null = ["--trace", "/dev/null", "--gantt", "/dev/null"];
    assert_eq!(said(&[&simulate[..], &null].concat()).0, 0);
}

#[test]
fn a_drawing_is_not_named_as_what_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let file = at("f.toml");
    tasks_in(&file, &[("x", 3, 10, "")]);
    for name in ["out.png", "out.PDF"] {
        let picture = at(name);
        for words in [
            vec!["analyze", &file, "--policy", "edf", "--gantt", &picture],
            vec!["simulate", &file, "--policy", "edf", "--gantt", &picture],
            vec!["analyze", "graph", &file, "--svg", &picture],
            vec!["yartek", "run", &file, "--board", "mps2-an385", "--gantt", &picture],
            vec!["yartek", "compare", &file, "--board", "mps2-an385", "--gantt", &picture],
            vec!["yartek", "map", &file, "-o", &picture],
        ] {
            let (exit, said) = said(&words);
            let cure = format!("write {}", at("out.svg"));
            assert!(exit == 2 && said.contains(&cure), "{words:?}: {exit} {said}");
        }
    }
    let svg = at("out.svg");
    assert_eq!(said(&["analyze", &file, "--policy", "edf", "--gantt", &svg]).0, 0);
}

/// The words after `seen by:`, without the name of the program.
fn seen_by(output: &str) -> Vec<String> {
    let line = output.lines().find_map(|line| line.strip_prefix("seen by: asmp "));
    let line = line.unwrap_or_else(|| panic!("no command in {output}"));
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn the_command_beside_a_counterexample_shows_the_miss() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.toml").to_str().unwrap().to_owned();
    for (tasks, policy) in [
        (vec![("x", 3, 10, ""), ("y", 9, 100, "")], "np-edf"),
        (vec![("x", 3, 10, "priority = 2"), ("y", 9, 100, "priority = 1")], "np-fp"),
        (vec![("x", 6, 10, ""), ("y", 6, 12, "")], "edf"),
        (vec![("x", 6, 10, ""), ("y", 6, 12, "")], "rm"),
        // The first of two CPUs that fail.
        (
            vec![
                ("x", 6, 10, "core = 1"),
                ("y", 6, 12, "core = 1"),
                ("u", 6, 10, "core = 2"),
                ("v", 6, 12, "core = 2"),
            ],
            "edf",
        ),
        // Late after the 10 s that a simulation takes by default.
        (vec![("x", 6, 10, ""), ("y", 20_000, 49_999, "")], "rm"),
    ] {
        tasks_in(&file, &tasks);
        let output = asmp(&["analyze", &file, "--policy", policy]);
        assert_eq!(output.status.code(), Some(60), "{policy} {tasks:?}: {}", text(&output));
        assert_eq!(text(&output).matches("seen by: ").count(), 1, "{policy} {tasks:?}");
        let command = seen_by(&text(&output));
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        assert_eq!(said(&words).0, 60, "{policy} {tasks:?}: {command:?}");
    }
}

#[test]
fn a_run_says_what_of_the_file_it_leaves_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.toml").to_str().unwrap().to_owned();
    tasks_in(&file, &[("x", 3, 10, "blocking = \"1 ms\"\njitter = \"1 ms\"")]);
    let notes =
        |offsets: &str| said(&["simulate", &file, "--policy", "edf", "--offsets", offsets]).1;
    assert_eq!(notes("random"), "asmp: note: this run has no blocking: --offsets worst has\n");
    assert!(notes("sync").contains("--offsets sync has no jitter"));
    assert_eq!(notes("worst"), "");
    let line = "[[interrupt]]\nname = \"irq\"\nservice = \"1 ms\"\nmost = 2";
    tasks_in(&file, &[("x", 3, 10, &format!("late = \"skip\"\n{line}"))]);
    let (late, gap) =
        ("late = skip or fault is not played", "an interrupt without gap is not played");
    assert!(notes("random").contains(late) && notes("random").contains(gap), "{}", notes("random"));
    tasks_in(&file, &[("x", 3, 10, &format!("late = \"finish\"\n{line}\ngap = \"9 ms\""))]);
    assert_eq!(notes("random"), "");
}

#[test]
fn a_run_says_which_jobs_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.toml").to_str().unwrap().to_owned();
    tasks_in(&file, &[("x", 6, 10, ""), ("y", 6, 12, "")]);
    let run = ["simulate", &file, "--policy", "rm", "--offsets", "sync", "--for", "15ms"];
    let words = text(&asmp(&run));
    let heading = words.lines().next().unwrap();
    assert!(heading.contains("finished") && !heading.contains("jobs"), "{heading}");
    assert!(words.contains("4 jobs released in 15 ms, 1 deadlines missed"), "{words}");
    let output = asmp(&[&run[..], &["--json"]].concat());
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| -> Vec<u64> {
        let streams = all["streams"].as_array().unwrap();
        streams.iter().map(|stream| stream[name].as_u64().unwrap()).collect()
    };
    assert_eq!((of("misses"), &all["misses"]), (vec![0, 1], &1.into()));
    assert_eq!((of("jobs"), &all["jobs"]), (vec![1, 0], &4.into()));
}

#[test]
fn worst_offsets_tell_no_data_age_and_show_a_miss() {
    let worst = ["simulate", "sampled.toml", "--policy", "fp", "--offsets", "worst"];
    let (exit, words) = said(&worst);
    let says = "chain see and steer: no worst case is known for the data of a sampled chain; use \
                --offsets sync or random";
    assert!(exit == 61 && words.contains(says), "{exit}: {words}");
    assert!(asmp(&worst).stdout.is_empty());
    assert_eq!(said(&["simulate", "sampled.toml", "--policy", "fp", "--offsets", "sync"]).0, 0);
    // The command that `analyze` prints beside a miss.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("late.toml").to_str().unwrap().to_owned();
    let sampled = std::fs::read_to_string(examples().join("sampled.toml")).unwrap();
    let late = sampled.replace("cost = \"2 ms\"", "cost = \"9500 us\"");
    assert_ne!(late, sampled);
    std::fs::write(&file, late).unwrap();
    let command = seen_by(&text(&asmp(&["analyze", &file, "--policy", "fp"])));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    assert_eq!(said(&command).0, 60, "{command:?}");
}

#[test]
fn a_run_and_a_placement_say_what_they_do_not_look_at() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.toml").to_str().unwrap().to_owned();
    let run = ["simulate", &file, "--policy", "edf"];
    let place = ["analyze", "place", &file, "--cpus", "0"];
    for more in ["memory = 1", "bandwidth = 1", "[room]\nmemory = 1"] {
        tasks_in(&file, &[("x", 3, 10, more)]);
        let (exit, words) = said(&run);
        assert!(
            exit == 0 && words.contains("compares memory and bandwidth with [room]"),
            "{words}"
        );
        assert_eq!(said(&place), (0, String::new()), "it does look at them");
    }
    tasks_in(&file, &[("x", 3, 10, "offset = \"1 ms\"")]);
    assert_eq!(said(&run), (0, String::new()));
    let (exit, words) = said(&place);
    assert!(exit == 0 && words.contains("for any first arrival"), "{words}");
}

#[test]
fn tasks_without_a_cpu_have_no_factor_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("three.toml").to_str().unwrap().to_owned();
    tasks_in(&file, &[("p", 6, 10, ""), ("q", 6, 10, ""), ("r", 6, 10, "")]);
    let words = text(&asmp(&["analyze", &file, "--cpus", "0-1"]));
    let edf = words.lines().find(|line| line.starts_with("edf")).unwrap();
    assert!(edf.contains("no CPU was found for r") && edf.ends_with('-'), "{words}");
}

#[test]
fn a_placement_or_a_run_that_would_ignore_a_part_of_the_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.toml").to_str().unwrap().to_owned();
    let refused = |tasks: &[(&str, u64, u64, &str)], words: &[&str], says: &str| {
        tasks_in(&file, tasks);
        let (exit, error) = said(words);
        assert!(exit == 61 && error.contains(says), "{words:?}: {exit}, {error}");
    };
    let place = ["analyze", "place", &file, "--cpus", "0-1"];
    let flag =
        "[[interrupt]]\nname = \"eth\"\nflag = \"100 us\"\nservice = \"1 us\"\ngap = \"1 ms\"";
    refused(&[("a", 1, 10, flag)], &place, "interrupt eth: its flag delays every task");
    let chain = "[[chain]]\nname = \"c\"\ntasks = [\"a\"]\ndeadline = \"5 ms\"";
    refused(&[("a", 1, 10, chain)], &place, "chain c: place would ignore it");
    let mixed = [("a", 1, 10, "core = 1"), ("b", 1, 10, "")];
    let simulate = ["simulate", &file, "--policy", "edf"];
    refused(&mixed, &simulate, "task a names a core, task b names none");
    // What the message offers is true.
    let placing = "or let `asmp analyze --cpus LIST` place the others";
    let unplaced = asmp(&["analyze", &file, "--policy", "edf"]);
    assert!(String::from_utf8_lossy(&unplaced.stdout).contains(placing), "{unplaced:?}");
    assert_eq!(said(&["analyze", &file, "--policy", "edf", "--cpus", "1-2"]).0, 0);
}

#[test]
fn a_verdict_by_offsets_says_that_its_table_takes_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.toml").to_str().unwrap().to_owned();
    let alternating =
        [("a", 2, 4, "offset = \"0\""), ("b", 2, 4, "deadline = \"2 ms\"\noffset = \"2 ms\"")];
    let note = "responses, growth and room are those of any first arrivals";
    for (tasks, says) in [(&alternating[..], true), (&[("a", 2, 4, "")], false)] {
        tasks_in(&file, tasks);
        let words = text(&asmp(&["analyze", &file, "--policy", "rm"]));
        assert_eq!((words.contains("schedulable: no"), words.contains(note)), (true, says));
    }
}

#[test]
fn a_refusal_names_what_the_test_lacks_and_no_other_policy() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.toml").to_str().unwrap().to_owned();
    tasks_in(&file, &[("x", 3, 10, "jitter = \"1 ms\"")]);
    let told = |policy: &str| {
        let output = asmp(&["analyze", &file, "--policy", policy]);
        text(&output) + &String::from_utf8(output.stderr).unwrap()
    };
    let deadline = told("deadline");
    assert!(deadline.contains("task x: this test does not support jitter"), "{deadline}");
    assert!(!deadline.contains("EINVAL"), "the kernel has no jitter to refuse: {deadline}");
    tasks_in(&file, &[("x", 3, 10, "")]);
    let np_fp = told("np-fp");
    assert!(np_fp.contains("task x has no priority: give it one"), "{np_fp}");
    assert!(np_fp.contains("np-fp") && !np_fp.contains("policy fp"), "{np_fp}");
    let (exit, words) = said(&["simulate", &file, "--policy", "np-fp"]);
    assert!(exit == 61 && words.contains("file.toml: line 1, task x has no priority"), "{words}");
}

#[test]
fn a_long_simulation_shows_on_a_terminal_how_far_it_is() {
    use std::io::Read;
    use std::os::fd::{FromRawFd, OwnedFd};
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: two places for descriptors; name and settings are left out.
    let opened = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor without another owner.
    let mut screen = unsafe { std::fs::File::from_raw_fd(master) };
    // SAFETY: as above.
    let slave = unsafe { OwnedFd::from_raw_fd(slave) };
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_asmp"));
    // Progress is for terminals that can go back to the start of a line.
    command.env("TERM", "xterm");
    command.current_dir(examples()).stdout(std::process::Stdio::null()).stderr(slave);
    // Months: it is ended as soon as it has said something.
    command.args(["simulate", "robot.toml", "--policy", "np-edf", "--for", "10000000s"]);
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut words, mut page) = (String::new(), [0; 4096]);
    while !words.contains(" %") {
        let count =
            screen.read(&mut page).unwrap_or_else(|error| panic!("{error} after {words:?}"));
        words += &String::from_utf8_lossy(&page[..count]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(words.contains("asmp: simulated") && words.contains("of 10000000 s"), "{words}");
}
