// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each key of a task file, changed alone, and each answer: the answer changes, or refuses the
//! file, or the row says why the key means nothing to it. The parser itself lists the keys, so that
//! one without a row fails. A graph file has its own keys, and neither reader takes the other's.

use asmp_analysis::deadline::Domain;
use asmp_analysis::file::{from_csv, from_toml};
use asmp_analysis::graph::{Graph, Limits, analyze};
use asmp_analysis::place::{By, place};
use asmp_analysis::simulate::{DataRow, DataTimes, Releases, Run, Simulation, Statistics};
use asmp_analysis::{
    Effort, Policy, Verdict, Workload, analyse, analyse_budgets, kernel_admission,
};
use std::collections::BTreeSet;

/// The answers, in the order of a row's letters: seven policies, SCHED_DEADLINE on one CPU and on
/// two, placement by two heuristics under edf and by one under fp and muf, budgets, a chain under
/// each of two policies, the simulator.
const ANSWERS: [&str; 17] = [
    "np-edf",
    "edf",
    "rm",
    "dm",
    "fp",
    "np-fp",
    "muf",
    "deadline",
    "deadline on 2",
    "worst-fit",
    "bfd-partitioned",
    "worst-fit fp",
    "worst-fit muf",
    "budgets",
    "chain edf",
    "chain fp",
    "simulate",
];

struct Row {
    key: &'static str,
    /// A file, in which `from` stands once, and what it becomes.
    base: &'static str,
    from: &'static str,
    to: &'static str,
    /// One letter for each answer: `u` uses the key, `r` refuses it, `-` is the same without it.
    answers: &'static str,
    /// Why a `-` is no oversight.
    same: &'static str,
}

const BASE: &str = "\
[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\npriority = 5\n\
[[task]]\nname = 'b'\ncost = '2 ms'\nperiod = '20 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\n\
[[background]]\nname = 'log'\ncost = '4 ms'\nperiod = '40 ms'\n\
[[interrupt]]\nname = 'irq'\nservice = '1 ms'\ngap = '30 ms'\n\
[room]\nmemory = 100\nbandwidth = 100\n";
const CHAIN: &str = "[[chain]]\nname = 'ch'\ntasks = ['b', 'c']\ndeadline = '20 ms'\n";
const CHAINED: &str = "\
[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\npriority = 5\n\
[[task]]\nname = 'b'\ncost = '2 ms'\nperiod = '20 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\n\
[[chain]]\nname = 'ch'\ntasks = ['b', 'c']\ndeadline = '20 ms'\n";
const SAMPLED: &str = "\
[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\npriority = 5\n\
[[task]]\nname = 'b'\ncost = '2 ms'\nperiod = '20 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\n\
[[chain]]\nname = 'sa'\nkind = 'sampled'\ntasks = ['a', 'b']\nage = '90 ms'\n\
reaction = '90 ms'\n";
/// A task that needs a part of the room.
const NEEDY: &str = "\
[[task]]\nname = 'b'\ncost = '2 ms'\nperiod = '20 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\nmemory = 10\nbandwidth = 10\n\
[room]\nmemory = 100\nbandwidth = 100\n";
/// Where offsets decide.
const TIGHT: &str = "\
[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\npriority = 5\noffset = '0'\n\
[[task]]\nname = 'b'\ncost = '1 ms'\nperiod = '20 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '8 ms'\nperiod = '20 ms'\npriority = 3\n";
/// Where they decide with preemption, too.
const SHORT: &str = "\
[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\npriority = 5\noffset = '0'\n\
deadline = '3 ms'\n\
[[task]]\nname = 'b'\ncost = '1 ms'\nperiod = '20 ms'\npriority = 4\noffset = '3 ms'\n\
[[task]]\nname = 'c'\ncost = '5 ms'\nperiod = '20 ms'\npriority = 3\ndeadline = '7 ms'\n";
/// Too much for two CPUs.
const CROWDED: &str = "\
[[task]]\nname = 'a'\ncost = '7 ms'\nperiod = '10 ms'\npriority = 5\n\
[[task]]\nname = 'b'\ncost = '16 ms'\nperiod = '20 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '12 ms'\nperiod = '20 ms'\npriority = 3\n";
/// On one CPU of two.
const BOUND: &str = "\
[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\npriority = 5\ncore = 1\n\
[[task]]\nname = 'b'\ncost = '2 ms'\nperiod = '20 ms'\npriority = 4\ncore = 1\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\ncore = 1\n";
/// Too much for one CPU, with an application.
const LARGE: &str = "\
[[task]]\nname = 'a'\ncost = '7 ms'\nperiod = '10 ms'\npriority = 5\n\
[[task]]\nname = 'b'\ncost = '2 ms'\nperiod = '20 ms'\npriority = 4\napp = 'x'\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\n";
/// On two CPUs, where the priority of the last decides whether it fits.
const PACKED: &str = "\
[[task]]\nname = 'a'\ncost = '5 ms'\nperiod = '10 ms'\npriority = 5\n\
[[task]]\nname = 'b'\ncost = '5 ms'\nperiod = '10 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\n";
const ON_A_BOARD: &str = "\
[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\npriority = 5\n\
[[task]]\nname = 'b'\ncost = '2 ms'\nperiod = '20 ms'\npriority = 4\n\
[[task]]\nname = 'c'\ncost = '6 ms'\nperiod = '20 ms'\npriority = 3\n\
[board]\nname = 'host'\n";
const C: &str = "name = 'c'\n";
const NAMES: &str = "a name is a label";
const ON_BOARD: &str = "only a kernel on a board has a use for it";
const NO_DEADLINE: &str = "background work and services have no deadline and delay no task";
const ROOM: &str = "[room] is asked where tasks share a CPU; a run plays time alone";

const fn row(
    key: &'static str,
    base: &'static str,
    (from, to): (&'static str, &'static str),
    answers: &'static str,
    same: &'static str,
) -> Row {
    Row { key, base, from, to, answers, same }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("task.name", BASE, ("name = 'a'", "name = 'z'"), "-----------------", NAMES),
    row("task.cost", BASE, ("'6 ms'", "'7 ms'"), "uuuuuuuuuuuuuuuuu", ""),
    row("task.measured", BASE, ("cost = '6 ms'", "measured = 'RUN'"), "uuuuuuuuuuuuuuuuu", ""),
    row("task.period", BASE, ("'10 ms'", "'9 ms'"), "uuuuuuuuuuuuuuuuu", ""),
    row("task.sporadic", BASE, ("period = '10 ms'", "sporadic = '10 ms'"), "----------------u",
        "a free first arrival and a least gap have the same worst case"),
    row("task.deadline", BASE, (C, "name = 'c'\ndeadline = '5 ms'\n"), "uuuuuuurruuuurrru", ""),
    row("task.offset", TIGHT, (C, "name = 'c'\noffset = '3 ms'\n"), "u----u-------urru",
        "with preemption any first arrival is accepted; placement takes any, which is safe"),
    row("task.offset", SHORT, (C, "name = 'c'\noffset = '4 ms'\n"), "uuuuuuuu-----rrru",
        "placement and several CPUs take any first arrival, which is safe"),
    row("task.jitter", BASE, (C, "name = 'c'\njitter = '15 ms'\n"), "uuuuuuurruuuuruuu", ""),
    row("task.blocking", BASE, (C, "name = 'c'\nblocking = '15 ms'\n"), "uuuuuuuuruuuuruu-",
        "a random run has no sections, and `asmp simulate` says so"),
    row("task.priority", BASE, ("priority = 3", "priority = 6"), "----uu---------uu",
        "other policies have priorities of their own"),
    row("task.priority", PACKED, ("priority = 3", "priority = 6"), "----uu-----u--rru",
        "other policies have priorities of their own"),
    row("task.class", PACKED, ("name = 'a'\n", "name = 'a'\nclass = 'low'\n"), "------u-----u-rr-",
        "only muf has classes"),
    row("task.class", BASE, ("name = 'a'\n", "name = 'a'\nclass = 'low'\n"), "------u----------",
        "only muf has classes"),
    row("task.core", BOUND, ("priority = 3\ncore = 1", "priority = 3\ncore = 0"),
        "uuuuuuurruuuuruuu", ""),
    row("task.importance", CROWDED, (C, "name = 'c'\nimportance = 4\n"), "-------uuuuuu----",
        "it says what is left out where not everything is placed"),
    row("task.app", LARGE, (C, "name = 'c'\napp = 'x'\n"), "----------u------",
        "only bfd-partitioned places applications"),
    row("task.memory", BASE, (C, "name = 'c'\nmemory = 101\n"), "rrrrrrrrruuuurrr-", ROOM),
    row("task.bandwidth", BASE, (C, "name = 'c'\nbandwidth = 101\n"), "rrrrrrrrruuuurrr-", ROOM),
    row("task.entry", BASE, (C, "name = 'c'\nentry = 'do_c'\n"), "-----------------", ON_BOARD),
    row("task.late", BASE, (C, "name = 'c'\nlate = 'skip'\n"), "-----------------",
        "the tests ask whether a job is late; a run plays finish, and `asmp simulate` says so"),
    row("task.most", BASE, (C, "name = 'c'\nmost = '6 ms'\n"), "-----------------",
        "a job takes its cost at most, which is no more"),
    row("task.most", BASE, (C, "name = 'c'\nmost = '5 ms'\n"), "rrrrrrrrrrrrrrrrr", ""),
    row("chain.name", CHAINED, ("name = 'ch'", "name = 'x'"), "-------rrrrrrr---", NAMES),
    row("chain.tasks", CHAINED, ("['b', 'c']", "['b']"), "uuuuuuurrrrrrruuu", ""),
    row("chain.deadline", CHAINED, ("deadline = '20 ms'", "deadline = '9 ms'"),
        "uuuuuuurrrrrrruuu", ""),
    row("chain.name", SAMPLED, ("name = 'sa'", "name = 'x'"), "-------rrrrrrr---", NAMES),
    row("chain.kind", CHAINED, ("name = 'ch'\n", "name = 'ch'\nkind = 'sampled'\n"),
        "rrrrrrrrrrrrrrrrr", ""),
    row("chain.kind", SAMPLED, ("kind = 'sampled'\n", ""), "rrrrrrrrrrrrrrrrr", ""),
    row("chain.tasks", SAMPLED, ("['a', 'b']", "['b']"), "uuuuuuurrrrrrruuu", ""),
    row("chain.age", SAMPLED, ("age = '90 ms'", "age = '9 ms'"), "uuuuuuurrrrrrruuu", ""),
    row("chain.reaction", SAMPLED, ("reaction = '90 ms'", "reaction = '9 ms'"),
        "uuuuuuurrrrrrruuu", ""),
    row("background.name", BASE, ("'log'", "'x'"), "-----------------", NAMES),
    row("background.cost", BASE, ("cost = '4 ms'", "cost = '5 ms'"), "----------------u",
        NO_DEADLINE),
    row("background.period", BASE, ("'40 ms'", "'50 ms'"), "----------------u", NO_DEADLINE),
    row("background.core", BASE, ("name = 'log'", "name = 'log'\ncore = 1"), "----------------u",
        NO_DEADLINE),
    row("interrupt.name", BASE, ("'irq'", "'x'"), "-----------------", NAMES),
    row("interrupt.flag", BASE, ("name = 'irq'", "name = 'irq'\nflag = '10 us'"),
        "rrrrrrrrrrrrrrrru", ""),
    row("interrupt.service", BASE, ("service = '1 ms'", "service = '2 ms'"), "----------------u",
        NO_DEADLINE),
    row("interrupt.gap", BASE, ("'30 ms'", "'31 ms'"), "----------------u", NO_DEADLINE),
    row("interrupt.gap", BASE, ("gap = '30 ms'", "most = 3"), "----------------u", NO_DEADLINE),
    row("interrupt.gap", BASE, ("gap = '30 ms'\n", ""), "rrrrrrrrrrrrrrrrr", ""),
    row("interrupt.entry", BASE, ("name = 'irq'", "name = 'irq'\nentry = 'serve'"),
        "-----------------", ON_BOARD),
    row("interrupt.most", BASE, ("name = 'irq'", "name = 'irq'\nmost = 3"), "-----------------",
        "with a gap, a run plays one raise for each service"),
    row("interrupt.core", BASE, ("name = 'irq'", "name = 'irq'\ncore = 1"), "----------------u",
        NO_DEADLINE),
    row("room.memory", NEEDY, ("memory = 100", "memory = 9"), "rrrrrrrrruuuurrr-", ROOM),
    row("room.bandwidth", NEEDY, ("bandwidth = 100", "bandwidth = 9"), "rrrrrrrrruuuurrr-", ROOM),
    row("board.name", ON_A_BOARD, ("name = 'host'", "name = 'x'"), "-----------------", ON_BOARD),
];

fn measured(_: &str) -> Result<u64, String> {
    Ok(7_000_000)
}

/// What an answer says, without names, and whether it refuses.
type Said = (String, bool);

fn refused(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::DoesNotApply { .. })
}

fn policy(workload: &Workload, policy: Policy) -> Said {
    let mut report = analyse(workload, policy, &[], &Effort::default());
    report.chains.iter_mut().for_each(|chain| chain.name.clear());
    // A limit that is only repeated would be no use of it.
    for chain in &mut report.sampled {
        chain.name.clear();
        (chain.age_limit_ticks, chain.reaction_limit_ticks) = (None, None);
    }
    (format!("{report:?}"), report.cpus.iter().any(|cpu| refused(&cpu.verdict)))
}

fn said(text: &str) -> [Said; 17] {
    let refusal = |error: &dyn ToString| (error.to_string(), true);
    let alone = from_toml(text, &measured);
    let chain = if text.contains("[[chain]]") { "" } else { CHAIN };
    let chained = from_toml(&format!("{text}{chain}"), &measured);
    let of = |answer: &str| -> Said {
        let chain = answer.strip_prefix("chain ");
        let workload = match if chain.is_some() { &chained } else { &alone } {
            Ok(workload) => workload,
            Err(error) => return refusal(error),
        };
        let tasks = &workload.tasks;
        if let Ok(named) = chain.unwrap_or(answer).parse::<Policy>() {
            return policy(workload, named);
        }
        let placed = |by, policy| {
            if let Err(reason) = workload.check_placeable(&[0, 1]) {
                return refusal(&reason);
            }
            let effort = Effort::default();
            let found = place(tasks, &[0, 1], by, policy, &workload.room, &effort);
            found.map_or_else(|error| refusal(&error), |found| (format!("{found:?}"), false))
        };
        let admitted =
            |cpus| match kernel_admission(workload, &Domain::of(cpus), &Effort::default()) {
                Ok(found) => (format!("{found:?}"), refused(&found.deadlines)),
                Err(verdict) => (format!("{verdict:?}"), refused(&verdict)),
            };
        match answer {
            "deadline" => admitted(1),
            "deadline on 2" => admitted(2),
            "worst-fit" => placed(By::WorstFit, Policy::Edf),
            "worst-fit fp" => placed(By::WorstFit, Policy::Fp),
            "worst-fit muf" => placed(By::WorstFit, Policy::Muf),
            "bfd-partitioned" => placed(By::BfdPartitioned, Policy::Edf),
            "budgets" => match analyse_budgets(workload, &Effort::default()) {
                Ok(found) => (format!("{found:?}"), false),
                Err(reason) => refusal(&reason),
            },
            "simulate" => simulated(workload),
            _ => unreachable!("{answer}"),
        }
    };
    ANSWERS.map(of)
}

fn simulated(workload: &Workload) -> Said {
    if let Err(reason) = workload.check_cores() {
        return (reason.to_string(), true);
    }
    let simulation = Simulation {
        background: &workload.background,
        interrupts: &workload.interrupts,
        chains: &workload.chains,
        seed: 7,
        ..Simulation::new(&workload.tasks, Policy::Fp, Releases::Random)
    };
    let mut run = Run::prepare(&simulation).expect("priorities");
    let mut statistics = Statistics::of(&run);
    let mut data = DataTimes::of(&run, &workload.sampled);
    run.go(10_000_000_000, 1_000_000, &mut (&mut statistics, &mut data));
    let mut rows = statistics.rows(&run);
    rows.iter_mut().for_each(|row| row.name.clear());
    let mut data: Vec<DataRow> = data.rows().cloned().collect();
    let over: Vec<usize> = data.iter().map(|row| row.over().count()).collect();
    for row in &mut data {
        row.name.clear();
        (row.age_limit_ticks, row.reaction_limit_ticks) = (None, None);
    }
    (format!("{rows:?} {data:?} {over:?}"), false)
}

/// All wrong rows at once, with what they must be.
#[test]
fn each_key_changes_each_answer_or_is_refused_or_means_nothing_to_it() {
    let mut wrong = Vec::new();
    for row in ROWS {
        assert_eq!(row.base.matches(row.from).count(), 1, "{}: {}", row.key, row.from);
        let (before, after) = (said(row.base), said(&row.base.replace(row.from, row.to)));
        let letters: String = before
            .iter()
            .zip(&after)
            .map(|(before, after)| match (before == after, before.1, after.1) {
                (_, _, true) => 'r',
                (true, _, false) => '-',
                (false, _, false) => 'u',
            })
            .collect();
        if letters != row.answers {
            let first = ANSWERS.iter().zip(row.answers.chars().zip(letters.chars()));
            let first = first.filter(|(_, (is, found))| is != found).map(|(answer, _)| *answer);
            let first: Vec<&str> = first.collect();
            wrong.push(format!("{} {letters} {first:?}", row.key));
        }
        if letters.contains('-') && row.same.is_empty() {
            wrong.push(format!("{}: say why some answers are the same", row.key));
        }
    }
    assert!(wrong.is_empty(), "{ANSWERS:?}\n{}", wrong.join("\n"));
}

#[test]
fn each_time_of_a_file_may_be_a_fraction_that_no_other_has() {
    let times = ["period", "deadline", "offset", "jitter", "blocking", "most"];
    let task = times.map(|key| ("task", key)).into_iter();
    let all = task.chain([("interrupt", "flag"), ("interrupt", "service"), ("interrupt", "gap")]);
    for (table, key) in all.chain([("background", "cost"), ("background", "period")]) {
        let mut text = BASE.to_owned();
        let start = text.rfind(&format!("[[{table}]]\n")).expect("a table") + table.len() + 5;
        let line = text[start..].lines().find(|line| line.starts_with(&format!("{key} = ")));
        if let Some(line) = line.map(str::to_owned) {
            text = text[..start].to_owned() + &text[start..].replacen(&format!("{line}\n"), "", 1);
        }
        text.insert_str(start, &format!("{key} = '64/7 ms'\n"));
        let workload =
            from_toml(&text, &measured).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(workload.time.ticks_per_ns(), 7, "{table}.{key}");
    }
}

/// The keys that a reader knows, as its refusal of another lists them.
fn known(error: &str) -> BTreeSet<String> {
    let (_, list) = error.split_once("expected").unwrap_or_else(|| panic!("{error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_key_that_the_reader_knows_has_a_row() {
    let keys_of = |text: &str| known(&from_toml(text, &measured).unwrap_err().to_string());
    let mut keys = BTreeSet::new();
    for table in keys_of("no_key = 1\n") {
        let is_one = ["room", "board"].contains(&table.as_str());
        let header = if is_one { format!("[{table}]") } else { format!("[[{table}]]") };
        let of_table = keys_of(&format!("{header}\nno_key = 1\n"));
        keys.extend(of_table.into_iter().map(|key| format!("{table}.{key}")));
    }
    assert_eq!(keys, ROWS.iter().map(|row| row.key.to_owned()).collect());
    assert!(ROWS.iter().all(|row| row.answers.len() == ANSWERS.len()));
}

#[test]
fn csv_has_the_keys_of_a_task() {
    for row in ROWS {
        let Some(key) = row.key.strip_prefix("task.") else { continue };
        let error = from_csv(&format!("{key}\n"), &measured).unwrap_err().to_string();
        assert!(!error.contains("unknown column"), "{key}: {error}");
    }
    assert!(from_csv("no_key\n", &measured).unwrap_err().to_string().contains("unknown column"));
}

const GRAPH: &str = "\
[[task]]\nname = 'a'\n[[task]]\nname = 'b'\n\
[[edge]]\nfrom = 'a'\nto = 'b'\nwrite = 2\nread = 3\n";
/// A key of a graph, and the file with it changed.
const GRAPH_ROWS: &[(&str, &str, &str)] = &[
    ("task.name", "name = 'a'\n[[task]]\nname = 'b'", "name = 'b'\n[[task]]\nname = 'a'"),
    ("task.case", "name = 'b'\n", "name = 'b'\ncase = 'data'\n"),
    ("task.output", "name = 'b'\n", "name = 'b'\noutput = 5\n"),
    ("task.multiple_of", "name = 'a'\n", "name = 'a'\nmultiple_of = 5\n"),
    ("edge.name", "from = 'a'", "name = 'e'\nfrom = 'a'"),
    ("edge.from", "from = 'a'", "from = 'b'"),
    ("edge.to", "to = 'b'", "to = 'a'"),
    ("edge.write", "write = 2", "write = 4"),
    ("edge.read", "read = 3", "read = 1"),
    ("edge.initial", "read = 3", "read = 3\ninitial = 1"),
    ("edge.memory", "read = 3", "read = 3\nmemory = 3"),
    ("edge.multiple_of", "read = 3", "read = 3\nmultiple_of = 7"),
];

#[test]
fn each_key_of_a_graph_changes_its_answer_and_no_reader_takes_the_other_s_file() {
    let answer = |text: &str| {
        let graph: Graph = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
        format!("{:?}", analyze(&graph, &Limits::default()))
    };
    let unchanged = answer(GRAPH);
    for (key, from, to) in GRAPH_ROWS {
        assert!(GRAPH.contains(from), "{key}");
        assert_ne!(answer(&GRAPH.replacen(from, to, 1)), unchanged, "{key}");
    }
    let error = |text: &str| text.parse::<Graph>().unwrap_err().to_string();
    let mut keys = BTreeSet::new();
    for table in known(&error("no_key = 1\n")) {
        let of_table = known(&error(&format!("[[{table}]]\nno_key = 1\n")));
        keys.extend(of_table.into_iter().map(|key| format!("{table}.{key}")));
    }
    assert_eq!(keys, GRAPH_ROWS.iter().map(|(key, _, _)| (*key).to_owned()).collect());
    assert!(error(BASE).contains("unknown key"), "{}", error(BASE));
    assert!(from_toml(GRAPH, &measured).unwrap_err().to_string().contains("unknown key"));
}
