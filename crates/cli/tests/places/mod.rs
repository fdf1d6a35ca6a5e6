// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An error about an entry of a file names the file and the line. One row for each kind of error
//! that the source has. Errors of partitions files are tried beside their reader, `src/file.rs`,
//! and on the fake machine, `src/conformance.rs`.

use crate::calls::asmp;
use asmp_analysis::Inapplicable;
use asmp_analysis::file::Places;
use std::collections::BTreeSet;

/// A file, the command, what it says after `FILE: line `, and the exit code.
struct Row {
    kind: &'static str,
    file: &'static str,
    text: &'static str,
    command: &'static [&'static str],
    says: &'static str,
    code: i32,
}

const fn row(
    kind: &'static str,
    file: &'static str,
    text: &'static str,
    command: &'static [&'static str],
    says: &'static str,
    code: i32,
) -> Row {
    Row { kind, file, text, command, says, code }
}

macro_rules! tasks {
    ($more:literal) => {
        concat!(
            "[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '10 ms'\n\n",
            "[[task]]\nname = 'b'\ncost = '1 ms'\nperiod = '20 ms'\n",
            $more
        )
    };
}

macro_rules! graph {
    ($more:literal) => {
        concat!("[[task]]\nname = 'a'\n\n[[task]]\nname = 'b'\n", $more)
    };
}

const SET: &str = "set.toml";
const CSV: &str = "set.csv";
const FLOW: &str = "flow.toml";
const EDF: &[&str] = &["analyze", "--policy", "edf"];
const GRAPH: &[&str] = &["analyze", "graph"];
const PLACE: &[&str] = &["analyze", "place", "--cpus", "0-1"];
const BUDGETS: &[&str] = &["analyze", "budgets"];
const RUN: &[&str] = &["simulate", "--policy", "edf"];
const DEADLINE: &[&str] = &["analyze", "--policy", "deadline"];

/// What a reader of tasks refuses (F), what a test of tasks does not take (I), what a reader of
/// graphs refuses (G), what a graph cannot do (R). The word after it is the variant.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("F Syntax", SET, tasks!("colour = 1\n"), EDF, "10, colour = 1: unknown key `colour`", 40),
    row("F Entry", SET, tasks!("deadline = '3'\n"), EDF, "10, task b: deadline: ", 40),
    row("F Entry", SET, tasks!("jitter = '90 y'\n"), RUN, "10, task b: jitter: ", 40),
    row("F Entry", SET, tasks!("priority = 100\n"), PLACE, "10, task b: priority: 100 ", 40),
    row("F Entry", SET, tasks!("measured = 'x'\n"), EDF, "6, task b: give either cost or ", 40),
    row("F Entry", SET, tasks!("[[background]]\nname = 'l'\ncost = '0'\nperiod = '1s'\n"), RUN,
        "12, background l: cost is 0", 40),
    row("F Entry", SET, tasks!("[[interrupt]]\nname = 'i'\nservice = '1us'\ngap = '0'\n"), RUN,
        "13, interrupt i: gap is 0", 40),
    row("F Entry", SET, tasks!("entry = '2nd'\n"), EDF,
        "10, task b: entry: \"2nd\" is no name of", 40),
    row("F Entry", SET, tasks!("entry = 'while'\n"), RUN,
        "10, task b: entry: \"while\" is no ", 40),
    row("F Entry", SET, tasks!("most = '999 us'\n"), EDF,
        "10, task b: most: it is below the cost", 40),
    row("F Syntax", SET, tasks!("late = 'later'\n"), EDF,
        "10, late = 'later': unknown value `later`: expected one of `finish`, `skip`, `fault`", 40),
    row("F Entry", SET, tasks!("[[interrupt]]\nname = 'i'\nservice = '1us'\n"), EDF,
        "10, interrupt i: nothing limits how often it comes: give gap", 40),
    row("F Entry", SET, tasks!("[[interrupt]]\nname = 'i'\nservice = '1us'\nmost = 0\n"), EDF,
        "13, interrupt i: most is 0", 40),
    row("F Entry", SET,
        tasks!("[[interrupt]]\nname = 'i'\nservice = '1us'\nmost = 1\nentry = ''\n"), EDF,
        "14, interrupt i: entry: \"\" is no name of", 40),
    row("F Syntax", SET, tasks!("[board]\nname = 'host'\nclock = 3\n"), EDF,
        "12, clock = 3: unknown key `clock`: expected `name`", 40),
    row("F Entry", SET, tasks!("[board]\nname = ''\n"), EDF, "11, board \"\": name: invalid", 40),
    row("F Entry", CSV, "name,cost,period,late\na,1ms,10ms,later\n", EDF,
        "2: late: \"later\" is none ", 40),
    row("F Entry", SET, tasks!("[[chain]]\nname = 'c'\ndeadline = '1ms'\ntasks = ['z']\n"), EDF,
        "13, chain c: tasks: there is no task", 40),
    row("F Entry", SET, tasks!("[[chain]]\nname = 'c'\ndeadline = '1s'\ntasks = []\n"), EDF,
        "10, chain c has no tasks", 40),
    row("F Entry", SET, tasks!("[[chain]]\nname = 'c'\ndeadline = '1s'\ntasks = ['a', 'b']\n"), EDF,
        "10, chain c: task b has a different period", 40),
    row("F TimeBase", SET, tasks!("jitter = '1/18446744073709551557 ns'\noffset = '1/3 ns'\n"), EDF,
        "10: duration \"1/18446744073709551557 ns\": no tick divides", 40),
    row("F TimeBase", SET, tasks!("# 1/3 ns\nblocking = '11/3 ns'\n\
        offset = '1/18446744073709551557 ns'\njitter = '1/3 ns'\n"), EDF,
        "13: duration \"1/3 ns\": no tick", 40),
    row("F Entry", SET, tasks!("[[chain]]\nname = 'c'\ndeadline = '1s'\ntasks = ['a']\n[[chain]]\n\
        name = 'c'\nkind = 'sampled'\ntasks = ['b']\n"), EDF, "14, chain c: this name occurs ", 40),
    row("F Entry", CSV, concat!("name,colour\n", "a,1\n"), EDF, "1: unknown column \"colour\"", 40),
    row("F Entry", CSV, "name,cost,period,deadline\na,1ms,10ms\n", EDF, "2: 3 fields, the ", 40),
    row("I Zero", SET, tasks!("deadline = '0'\n"), EDF, "10, task b: deadline is 0", 40),
    row("I TooLong", SET, tasks!("deadline = '90 h'\noffset = '9999999999 s'\n"), EDF,
        "11, task b: offset is longer than", 40),
    row("I NoPriority", SET, tasks!("priority = 5\n"), &["analyze", "--policy", "fp"],
        "1, task a has no priority: give it one", 61),
    row("I NoPriority", CSV, "name,cost,period,priority\na,1ms,9ms,3\nb,1ms,9ms,\n",
        &["simulate", "--policy", "np-fp"], "3, task b has no priority", 61),
    row("I DeadlineNotPeriod", SET, tasks!("deadline = '9 ms'\n"), BUDGETS,
        "10, task b: this test requires deadline == period", 61),
    row("I Unsupported", SET, tasks!("jitter = '1 ms'\n"), BUDGETS,
        "10, task b: this test does not support jitter", 61),
    row("I Unsupported", SET, tasks!("jitter = '1 ms'\n"), DEADLINE,
        "10, task b: this test does not support jitter", 61),
    row("I Kernel", SET, tasks!("deadline = '30 ms'\n"), DEADLINE,
        "6, task b: the deadline is longer than the period", 61),
    row("I Kernel", CSV, "name,cost,period,deadline\n# late\na,1ms,10ms,\n\nb,1ms,9ms,30ms\n",
        DEADLINE, "5, task b: the deadline is longer than the period", 61),
    row("I NotWholeNs", SET, tasks!("jitter = '1/3 ns'\n"), DEADLINE, "10, task b: jitter: ", 61),
    row("I Set Task", SET, tasks!("core = 3\n"), &["analyze", "--policy", "edf", "--cpus", "0-1"],
        "10, task b names core 3, which --cpus leaves out", 61),
    row("I Set Task", SET, tasks!("core = 3\n"), PLACE,
        "10, task b names core 3, which --cpus leaves out", 61),
    row("I Set Task", SET, tasks!("core = 3\n"), RUN, "1, task b names a core, task a names ", 61),
    row("I Set Task", SET, tasks!("core = 3\n"), BUDGETS, "10, task b is on another core", 61),
    row("I Set Chain", SET, tasks!("[[chain]]\nname = 'c'\ndeadline = '1s'\ntasks = ['b']\n"),
        PLACE, "10, chain c: place would ignore it", 61),
    row("I Set Chain", SET, tasks!("[[chain]]\nname = 'c'\ndeadline = '1s'\ntasks = ['b']\n"),
        &["simulate", "--policy", "edf", "--offsets", "worst"], "10, chain c: no worst case ", 61),
    row("I Set Chain", SET, tasks!("[[chain]]\nname = 'c'\ndeadline = '1s'\ntasks = ['b']\n"),
        DEADLINE, "10, chain c: SCHED_DEADLINE counts deadlines", 61),
    row("I Set Interrupt", SET,
        tasks!("[[interrupt]]\nname = 'i'\nservice = '1us'\nflag = '1us'\ngap = '1ms'\n"), PLACE,
        "13, interrupt i: its flag delays every task", 61),
    row("I Set Room", SET, tasks!("memory = 7\n[room]\nbandwidth = 1\nmemory = 6\n"), EDF,
        "13, the tasks of one CPU need memory 7", 61),
    row("G Toml", FLOW, graph!("colour = 1\n"), GRAPH, "6, colour = 1: unknown key `colour`", 40),
    row("G BadName", FLOW, graph!("[[task]]\nname = ''\n"), GRAPH, "6, invalid name \"\"", 40),
    row("G TwoTasks", FLOW, graph!("[[task]]\nname = 'a'\n"), GRAPH, "6, task name a occurs", 40),
    row("G TwoEdges", FLOW,
        graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=1\nread=1\n[[edge]]\nfrom='a'\nto='b'\nwrite=1\n\
                read=1\n"), GRAPH, "11, edge name a -> b occurs twice", 40),
    row("G NoTask", FLOW, graph!("[[edge]]\nfrom='a'\nto='z'\nwrite=1\nread=1\n"), GRAPH,
        "6, edge a -> z: there is no task z", 40),
    row("G Zero", FLOW, graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=1\nread=0\n"), GRAPH,
        "6, edge a -> b: read is 0", 40),
    row("G NotIndependent", FLOW,
        graph!("case='independent'\n[[edge]]\nfrom='a'\nto='b'\nwrite=1\nread=1\n"), GRAPH,
        "7, task b is independent, but has edge", 40),
    row("G NoGranularity", FLOW, graph!("case='data'\nmultiple_of=2\n"), GRAPH,
        "4, task b: multiple_of requires case", 40),
    row("R Inconsistent", FLOW,
        graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=1\nread=1\n[[edge]]\nfrom='b'\nto='a'\nwrite=1\n\
                read=2\n"), GRAPH, "11, edge b -> a is inconsistent", 60),
    row("R TooManyFirings", FLOW, graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=99\nread=1\n"),
        &["analyze", "graph", "--max-firings", "9"], "4, one iteration fires task b more", 61),
    row("R TooLarge", FLOW,
        graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=9000000000000000000\nread=8999999999999999999\n"),
        &["analyze", "graph", "--max-firings", "18446744073709551615"],
        "6, too large for 64 bits: the tokens of edge a -> b", 61),
    row("R MemoryTooSmall", FLOW,
        graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=2\nread=3\nmemory=3\n"), GRAPH,
        "6, edge a -> b: memory 3 is too small", 60),
    row("R Deadlock", FLOW,
        graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=1\nread=1\n[[edge]]\nfrom='b'\nto='a'\nwrite=1\n\
                read=1\n"), GRAPH, "11, deadlock: a reads 1 from b -> a", 60),
    row("R WorkBound", FLOW,
        graph!("[[edge]]\nfrom='a'\nto='b'\nwrite=7\nread=9\n[[edge]]\nfrom='b'\nto='a'\nwrite=9\n\
                read=7\ninitial=20\n"), &["analyze", "graph", "--max-work", "2"],
        "1, undecided whether the ring of a deadlocks", 61),
];

/// Variants without a row, and why.
const NO_ROW: &[(&str, &str)] = &[
    ("F NoTasks", "the file has no entry"),
    ("I NoTasks", "the same: the reader refuses it"),
    ("I TooMany", "tried below, without a million tasks"),
    ("I DeadlineBeforePeriod", "of tests that no command runs"),
    ("I InFile", "the place itself"),
    ("G Empty", "the file has no entry"),
    ("G InFile", "the place itself"),
];

/// The variants of an enumeration, as its source has them.
fn variants(letter: &str, name: &str, source: &str) -> BTreeSet<String> {
    let (_, body) = source.split_once(&format!("pub enum {name} {{\n")).expect(name);
    let (body, _) = body.split_once("\n}\n").expect("an end");
    let variant = |line: &str| {
        let line = line.strip_prefix("    ").filter(|line| line.starts_with(char::is_uppercase))?;
        let end = line.find(|c: char| !c.is_alphanumeric()).unwrap_or(line.len());
        Some(format!("{letter} {}", &line[..end]))
    };
    body.lines().filter_map(variant).collect()
}

#[test]
fn each_kind_of_error_has_a_row() {
    let mut kinds = BTreeSet::new();
    for (letter, name, source) in [
        ("F", "FileError", include_str!("../../../analysis/src/file/entry.rs")),
        ("I", "Inapplicable", include_str!("../../../analysis/src/verdict.rs")),
        ("I Set", "About", include_str!("../../../analysis/src/verdict.rs")),
        ("G", "GraphError", include_str!("../../../analysis/src/graph/model.rs")),
        ("R", "Refusal", include_str!("../../../analysis/src/graph/refusal.rs")),
    ] {
        let found = variants(letter, name, source);
        assert!(found.len() > 3, "{name}: {found:?}");
        kinds.extend(found);
    }
    // A set is about one of these.
    for not_alone in ["I Set", "I Set File", "I Set TaskAt"] {
        assert!(kinds.remove(not_alone), "{not_alone}");
    }
    let tried = ROWS.iter().map(|row| row.kind).chain(NO_ROW.iter().map(|(kind, _)| *kind));
    assert_eq!(tried.map(str::to_owned).collect::<BTreeSet<_>>(), kinds);
}

/// All wrong rows at once.
#[test]
fn each_error_about_an_entry_names_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        let file = dir.path().join(format!("{number}-{}", row.file));
        std::fs::write(&file, row.text).unwrap();
        let file = file.to_str().unwrap();
        let output = asmp(&[row.command, &[file]].concat());
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8(words).unwrap();
        let says = format!("{file}: line {}", row.says);
        if output.status.code() != Some(row.code) || !words.contains(&says) {
            wrong.push(format!("{}: {says}: {:?} {words}", row.kind, output.status.code()));
        }
        // Of the answers, in JSON too.
        let is_answer = row.code != 40 && row.command[0] == "analyze" && row.command != PLACE;
        if is_answer {
            let output = asmp(&[row.command, &[file, "--json"]].concat());
            let words = String::from_utf8(output.stdout).unwrap();
            // None of them has a quotation mark.
            if !words.contains(&says) {
                wrong.push(format!("{}, JSON: {says}: {words}", row.kind));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_task_that_is_one_too_many_has_a_line() {
    let refusal = Inapplicable::TooMany { most: 1 };
    let toml = tasks!("");
    assert_eq!(Places::in_toml(toml).line_of(toml, &refusal), Some(6));
    let csv = "name,cost,period\n\na,1ms,2ms\nb,1ms,2ms\n";
    assert_eq!(Places::in_csv(csv).line_of(csv, &refusal), Some(4));
}
