// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line against the fake kernel: every row of the state matrix that the guests run too,
//! and what only a fake can do: refuse, die or lose a task at each single step.

use crate::args::Cli;
use crate::exit;
use asmp_host::fake::{FakeKernel, Fault};
use asmp_host::store::Store;
use asmp_host::{Kernel, Schedule};
use asmp_shield::{Caller, Request, Shield, Spec};
use clap::Parser;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[path = "../tests/guest/rows.rs"]
mod rows;
mod unusual;

const FIFO: Schedule = Schedule::Fifo { priority: 80 };
const OTHER: Schedule = Schedule::Other { nice: 0 };

/// A fake machine and the directory of our own files.
struct Fake {
    kernel: Arc<FakeKernel>,
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        // In memory if possible: a journal syncs at every line.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { kernel: Arc::new(FakeKernel::new()), dir }
    }

    fn shield(&self) -> Shield {
        Shield::new(self.kernel.clone(), Store::at(self.dir.path()))
    }

    /// One `asmp` from its command line to its exit code.
    fn asmp(&self, line: &str) -> u8 {
        self.says(line).0
    }

    /// The same, and the line of its error.
    fn says(&self, line: &str) -> (u8, String) {
        let words = line.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        let shield = self.shield();
        match Cli::try_parse_from(["asmp".to_owned()].into_iter().chain(words)) {
            Err(error) => (u8::try_from(error.exit_code()).unwrap(), error.to_string()),
            Ok(cli) => match crate::dispatch(&shield, cli.command) {
                Ok(code) => (code, String::new()),
                Err(error) => {
                    let words = crate::print::chain(&error).to_string();
                    eprintln!("asmp {line}: {words}");
                    (exit::code_of(&error), words)
                }
            },
        }
    }

    #[track_caller]
    fn done(&self, line: &str) {
        assert_eq!(self.asmp(line), 0, "asmp {line}");
    }

    fn allowed(&self, tid: i32) -> String {
        self.kernel.allowed(tid).map_or_else(|| "ended".to_owned(), |cpus| cpus.to_string())
    }

    /// Our own files, but the lock.
    fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "lock").collect()
    }
}

fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    changed.map(|key| format!("{key}: {:?} -> {:?}", before.get(key), after.get(key))).collect()
}

#[track_caller]
fn assert_same(before: &BTreeMap<String, String>, fake: &Fake, when: &str) {
    let changed = differences(before, &fake.kernel.snapshot());
    assert!(changed.is_empty(), "{when}:\n{}", changed.join("\n"));
}

#[test]
fn the_fake_does_every_row_of_the_matrix_that_starts_no_command() {
    let mut rows_done = 0;
    for row in rows::ROWS
        .iter()
        .filter(|row| !row.action.starts_with("run") && !row.action.starts_with("exec"))
    {
        let fake = Fake::new();
        let untouched = fake.kernel.snapshot();
        row.before.iter().for_each(|line| fake.done(line));
        assert_eq!(i32::from(fake.asmp(row.action)), row.code, "{}", row.name);
        assert_eq!(fake.kernel.isolated().to_string(), row.isolated, "{}", row.name);
        let mask = fake.kernel.text("/proc/irq/default_smp_affinity".as_ref()).unwrap();
        assert_eq!(mask.trim_start_matches('0'), row.irq_mask, "{}", row.name);
        assert_eq!(fake.asmp("status"), 0, "{}", row.name);
        fake.done("restore");
        assert_same(&untouched, &fake, row.name);
        assert!(fake.files().is_empty(), "{}: {:?}", row.name, fake.files());
        rows_done += 1;
    }
    assert!(rows_done > 30, "only {rows_done} rows");
}

/// What comes before, and the change that is disturbed at each of its steps.
const CHANGES: [(&[&str], &str); 10] = [
    (&[], "create a --cpus 2-3 --irq ttyS0"),
    (&["create a --cpus 3"], "create b --cpus 2"),
    (&["create a --cpus 2-3 --irq ttyS0"], "destroy a"),
    (&["create a --cpus 3", "create b --cpus 2"], "destroy a"),
    (&["create a --cpus 2-3"], "resize a --cpus 1"),
    (&["create a --cpus 3"], "add a --pid 200"),
    (&["create a --cpus 3", "add a --tid 201"], "destroy a"),
    (&["create a --cpus 3", "add a --pid 200"], "remove a --pid 200 --force"),
    (&["create a --cpus 3", "create b --cpus 2", "add a --pid 200"], "move a --to b --pid 200"),
    (&["create a --cpus 3 --irq ttyS0", "create b --cpus 2"], "move a --to b --irq ttyS0"),
];

/// A machine with a process of two threads, and `before` done to it.
fn prepared(before: &[&str]) -> (Fake, BTreeMap<String, String>) {
    let fake = Fake::new();
    fake.kernel.start(200, 200, "app", OTHER);
    fake.kernel.start(201, 200, "app-rt", FIFO);
    let untouched = fake.kernel.snapshot();
    before.iter().for_each(|line| fake.done(line));
    (fake, untouched)
}

/// How many steps a change has.
fn steps(before: &[&str], line: &str) -> usize {
    undisturbed(before, line).kernel.changes()
}

/// The machine after a change that succeeds.
fn undisturbed(before: &[&str], line: &str) -> Fake {
    let (fake, _) = prepared(before);
    fake.kernel.arm(None);
    fake.done(line);
    fake
}

/// A partition stands without a setting that others may keep. That is named in the result, or by
/// `status`.
#[track_caller]
fn assert_as_promised(fake: &Fake, promised: &FakeKernel, words: &str, when: &str) {
    assert_eq!(fake.kernel.isolated(), promised.isolated(), "{when}: {words}");
    // `cpumask_requested` shows what was written to `cpumask`.
    let is_said = |place: &str| match place.split_once(' ') {
        Some(("group", group)) => words.contains(&format!("/sys/fs/cgroup{group}/cpuset")),
        Some(("task", tid)) => words.contains(&format!(": /proc/{tid}: cannot set the policy")),
        _ => words.contains(place.trim_end_matches("_requested")),
    };
    let mut unsaid = differences(&promised.snapshot(), &fake.kernel.snapshot());
    unsaid.retain(|line| !line.split(": ").next().is_some_and(is_said));
    if !unsaid.is_empty() {
        assert_eq!(fake.asmp("status"), 7, "{when}: {words}: {unsaid:#?}");
    }
}

#[test]
fn a_change_refused_at_any_step_is_undone_or_says_what_refused() {
    for (before, line) in CHANGES {
        let promised = undisturbed(before, line).kernel;
        for at in 0..promised.changes() {
            let (fake, untouched) = prepared(before);
            let then = fake.kernel.snapshot();
            fake.kernel.arm(Some(Fault::Refuse { at, errno: libc::EINVAL }));
            crate::print::recorded();
            let code = fake.asmp(line);
            let words = crate::print::recorded();
            fake.kernel.arm(None);
            match code {
                3 => assert_same(&then, &fake, &format!("{line}, refused at {at}")),
                0 => assert_as_promised(&fake, &promised, &words, &format!("{line}, {at}")),
                // A resize reads back what it promised.
                exit::VIOLATED if line.starts_with("resize") => {
                    assert_eq!(fake.asmp("status"), 7, "{line}, {at}")
                }
                // On the way back a file that refuses is named, and its original kept.
                exit::NOT_UNDONE => assert_eq!(fake.asmp("status"), 7, "{line}, {at}"),
                other => panic!("{line}, refused at {at}: exit code {other}"),
            }
            fake.done("restore");
            assert_same(&untouched, &fake, &format!("{line}, refused at {at}, restored"));
            assert!(fake.files().is_empty(), "{:?}", fake.files());
        }
    }
}

#[test]
fn a_change_killed_at_any_step_is_undone_by_restore() {
    let mut kills = 0;
    for (before, line) in CHANGES {
        for at in 0..steps(before, line) {
            for after in [false, true] {
                let (fake, untouched) = prepared(before);
                fake.kernel.arm(Some(Fault::Die { at, after }));
                let killed = catch_unwind(AssertUnwindSafe(|| fake.asmp(line)));
                assert!(killed.is_err(), "{line} was not killed at {at}");
                fake.kernel.arm(None);
                fake.done("restore");
                assert_same(&untouched, &fake, &format!("{line}, killed at {at}"));
                assert!(fake.files().is_empty(), "{:?}", fake.files());
                kills += 1;
            }
        }
    }
    assert!(kills > 200, "only {kills} kills");
}

#[test]
fn a_task_that_dies_at_any_step_leaves_a_whole_machine() {
    for (before, line) in
        CHANGES.iter().filter(|(before, line)| format!("{before:?}{line}").contains("id 20"))
    {
        for at in 0..steps(before, line) {
            let (fake, _) = prepared(before);
            fake.kernel.arm(Some(Fault::End { at, tid: 200 }));
            let code = fake.asmp(line);
            fake.kernel.arm(None);
            assert!([0, 33].contains(&code), "{line}, task ended at {at}: exit code {code}");
            assert_eq!(fake.asmp("status"), 0, "{line}, task ended at {at}");
            fake.done("restore");
            let untouched = FakeKernel::new().snapshot();
            assert_same(&untouched, &fake, &format!("{line}, task ended at {at}"));
        }
    }
}

#[test]
fn every_sequence_of_three_changes_ends_where_it_began() {
    const WORDS: [&str; 11] = [
        "create a --cpus 3",
        "create b --cpus 2-3 --irq ttyS0",
        "create b --cpus 1",
        "destroy a",
        "destroy b",
        "resize a --cpus 2",
        "resize b --cpus 1-2",
        "add a --pid 200",
        "add b --tid 201",
        "remove a --pid 200",
        "remove b --irq ttyS0",
    ];
    for first in WORDS {
        for second in WORDS {
            for third in WORDS {
                let (fake, untouched) = prepared(&[]);
                let when = format!("{first}; {second}; {third}");
                for line in [first, second, third] {
                    let code = fake.asmp(line);
                    assert!(code == 0 || code >= 20, "{when}: {line}: {code}");
                    assert_eq!(fake.asmp("status"), 0, "{when}");
                }
                fake.done("restore");
                assert_same(&untouched, &fake, &when);
            }
        }
    }
}

#[test]
fn a_task_that_became_real_time_inside_does_not_take_that_to_the_system() {
    let (fake, _) = prepared(&["create a --cpus 3"]);
    fake.kernel.start(300, 300, "loop", OTHER);
    fake.done("add a --pid 300");
    fake.kernel.set_schedule(300, &FIFO).unwrap();
    for line in ["destroy a", "destroy --all", "remove a --pid 300", "plan destroy a"] {
        assert_eq!(fake.asmp(line), 39, "{line}");
        assert_eq!(
            (fake.allowed(300), fake.kernel.schedule(300).unwrap()),
            ("3".to_owned(), FIFO),
            "{line}"
        );
    }
    fake.done("remove a --pid 300 --force");
    assert_eq!((fake.allowed(300), fake.kernel.schedule(300).unwrap()), ("0-2".to_owned(), OTHER));
    fake.done("add a --pid 300");
    fake.kernel.set_schedule(300, &FIFO).unwrap();
    fake.done("destroy a --force");
    assert_eq!((fake.allowed(300), fake.kernel.schedule(300).unwrap()), ("0-3".to_owned(), OTHER));
}

#[test]
fn restore_takes_the_policy_that_was_got_inside_and_leaves_the_one_that_was_brought() {
    let (fake, untouched) = prepared(&["create a --cpus 3", "add a --pid 200"]);
    assert_eq!(fake.allowed(201), "3");
    fake.kernel.set_schedule(200, &FIFO).unwrap();
    fake.done("restore");
    assert_eq!(fake.kernel.schedule(201).unwrap(), FIFO, "it came as a real-time thread");
    assert_same(&untouched, &fake, "restore");
}

#[test]
fn a_plan_needs_no_root_and_names_what_it_could_not_read() {
    let fake = Fake::new();
    fake.done("plan --json create a --cpus 3");
    let of_root: serde_json::Value = serde_json::from_str(&crate::print::recorded()).unwrap();
    fake.kernel.set_file("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000");
    fake.done("plan create a --cpus 3");
    let words = crate::print::recorded();
    assert!(words.contains("isolated") && words.contains("only root may read it: /"), "{words}");
    fake.done("plan --json create a --cpus 3");
    let of_user: serde_json::Value = serde_json::from_str(&crate::print::recorded()).unwrap();
    let count = |plan: &serde_json::Value, what: &str| plan[what].as_array().unwrap().len();
    assert_eq!(count(&of_root, "unreadable"), 0);
    let missing = count(&of_user, "unreadable");
    assert!(missing > 0, "{of_user}");
    assert!(count(&of_user, "steps") < count(&of_root, "steps"));
    assert_eq!(fake.asmp("create a --cpus 3"), 10);
}

#[test]
fn a_plan_says_which_cpus_it_chose_and_why_not_the_next() {
    let fake = Fake::new();
    fake.done("create a --cpus 3");
    crate::print::recorded();
    for (line, near, not) in [
        ("plan create b --count 1", "", "not CPU 1: as good; of equals"),
        ("plan create b --count 1 --near eth0", "as near to eth0 as every CPU; ", "not CPU 1: "),
        ("plan run --count 1 -- true", "", "not CPU 1: "),
        ("create b --count 1 --near 24", "as near to IRQ 24 (eth0) as every CPU; ", "not CPU 1: "),
    ] {
        fake.done(line);
        let words = crate::print::recorded();
        assert!(words.contains(" needs 1 CPU") && words.contains(" gets CPU 2\n"), "{words}");
        assert!(words.contains(&format!("CPU 2: {near}its tick can stop\n")), "{line}: {words}");
        assert!(words.contains(not), "{line}: {words}");
    }
    fake.done("plan --json create c --count 1");
    let json: serde_json::Value = serde_json::from_str(&crate::print::recorded()).unwrap();
    let chosen = &json["chosen"][0];
    assert_eq!((&chosen["partition"], &chosen["cpus"]), (&"c".into(), &"1".into()));
    assert_eq!(chosen["need"]["count"], 1);
    assert_eq!(chosen["next"]["cpus"], "0");
    assert_eq!(chosen["next"]["why"], "it takes the boot CPU, which keeps the time");
    fake.done("plan --json create c --cpus 1");
    let json: serde_json::Value = serde_json::from_str(&crate::print::recorded()).unwrap();
    assert_eq!(json["chosen"], serde_json::json!([]));
}

#[test]
fn a_refusal_names_file_line_and_partition_and_what_is_wrong_first() {
    let fake = Fake::new();
    fake.done("create a --cpus 3");
    let path = fake.dir.path().join("p.toml");
    let a = "[[partition]]\nname = \"a\"\ncpus = \"3\"\n";
    for (asks, code, says) in [
        ("cpus = \"3\"", 22, "6, partition b: CPU 3 already belongs to partition a: "),
        ("cpus = \"9\"", 20, "6, partition b: CPU 9 does not exist: "),
        ("count = 4", 26, "6, partition b: 4 CPUs are asked for, and at most 2 can be given: "),
        ("count = 1\nnear = \"moon\"", 27, "7, partition b: near \"moon\": this machine has no "),
        ("cpus = \"2\"\nirqs = [99]", 36, "7, partition b: "),
        ("cpus = \"1-2\"\n[[partition.task]]\ncommand = \"x\"\nuser = \"moon\"", 40, "9, "),
    ] {
        std::fs::write(&path, format!("{a}[[partition]]\nname = \"b\"\n{asks}\n")).unwrap();
        for command in ["apply", "plan apply", "apply --dry-run"] {
            let (refused, words) = fake.says(&format!("{command} {}", path.display()));
            assert_eq!(refused, code, "{words}");
            let says = format!("{}: line {says}", path.display());
            assert!(words.starts_with(&says) && !words.contains("--"), "{words}");
        }
    }
    // The name is taken, whatever CPUs are left.
    assert_eq!(fake.asmp("create a --count 9"), 31);
    assert_eq!(fake.asmp("plan create a --count 9"), 31);
}

#[test]
fn without_root_status_says_that_a_journal_is_there() {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;
    let fake = Fake::new();
    fake.done("create a --cpus 3");
    let journal = fake.dir.path().join("journal");
    write(&journal, "{\"schema\":2,\"transaction\":99}\n").unwrap();
    set_permissions(&journal, Permissions::from_mode(0o000)).unwrap();
    set_permissions(fake.dir.path(), Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: takes a number; it is this thread's alone, which ends below.
            unsafe { libc::setfsuid(65534) };
            assert_eq!(fake.asmp("status"), exit::VIOLATED);
            let words = crate::print::recorded();
            assert!(words.contains("run as root to know"), "{words}");
            assert_eq!(fake.asmp("status --json"), exit::VIOLATED);
            let json = crate::print::recorded();
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(
                (&json["journal_unreadable"], &json["interrupted"]),
                (&true.into(), &false.into())
            );
        });
    });
}

#[test]
fn the_name_of_a_process_forges_no_line_and_moves_no_cursor() {
    const NAME: &str = "\u{1b}[31m\u{202e}\nmotion: CPU 3";
    let fake = Fake::new();
    fake.kernel.start(300, 300, NAME, OTHER);
    for (line, code, names_it) in [
        ("create a --cpus 3", 0, false),
        ("plan add a --pid 300", 0, true),
        ("add a --pid 300", 0, false),
        ("status", 0, true),
        ("plan destroy a", 0, false),
    ] {
        crate::print::recorded();
        assert_eq!(fake.asmp(line), code, "{line}");
        let words = crate::print::recorded();
        assert!(!words.contains(['\u{1b}', '\u{202e}']), "{line}: {words}");
        assert!(!words.lines().any(|line| line.starts_with("motion")), "{line}: {words}");
        let shown = words.contains(r"\u{1b}[31m\u{202e}\nmotion: CPU 3");
        assert_eq!(shown, names_it, "{line}: {words}");
    }
    fake.kernel.set_schedule(300, &FIFO).unwrap();
    assert_eq!(fake.asmp("destroy a"), 39);
    let words = crate::print::recorded();
    assert!(words.contains(r"\nmotion") && !words.contains("\nmotion"), "{words}");
    fake.done("status --json");
    let json: serde_json::Value = serde_json::from_str(&crate::print::recorded()).unwrap();
    assert_eq!(json["partitions"][0]["tasks"][0]["command"], NAME);
}

#[test]
fn the_command_line_that_made_a_partition_forges_no_line_and_fills_no_screen() {
    let fake = Fake::new();
    let command = format!("asmp run \u{1b}[31m\nmotion: CPU 3: shielded {}", "x ".repeat(60_000));
    let spec = Spec::of("3".parse().unwrap());
    let request = Request::Create { name: "a".into(), spec };
    fake.shield().change(&request, &Caller::now(0, "root\nmotion", command)).unwrap();
    crate::print::recorded();
    fake.done("status");
    let words = crate::print::recorded();
    assert!(!words.contains('\u{1b}') && words.contains(r"\u{1b}[31m\nmotion"), "{words}");
    assert!(!words.lines().any(|line| line.starts_with("motion")), "{words}");
    assert!(words.lines().all(|line| line.chars().count() < 500), "{words}");
}

#[test]
fn a_process_born_inside_can_be_taken_out() {
    let (fake, untouched) = prepared(&["create a --cpus 3", "add a --pid 200"]);
    // As fork does: the child is where its parent is.
    fake.kernel.start(202, 200, "thread", OTHER);
    assert_eq!(fake.allowed(202), "3");
    fake.done("remove a --tid 202");
    assert_eq!(fake.allowed(202), "0-2");
    assert_eq!(fake.allowed(200), "3");
    fake.done("restore");
    let changed = differences(&untouched, &fake.kernel.snapshot());
    assert_eq!(changed.len(), 1, "only the new thread: {changed:?}");
}

#[test]
fn a_task_moves_from_one_partition_to_another_and_still_finds_home() {
    let before = ["create a --cpus 3", "create b --cpus 2", "add a --pid 200"];
    let (fake, untouched) = prepared(&before);
    fake.kernel.start(202, 200, "born-inside", OTHER);
    let code = fake.asmp("move a --to b --tid 202");
    assert_eq!(code, 44, "threads of one process are in one partition");
    assert_eq!(fake.allowed(202), "3");
    fake.done("move a --to b --pid 200");
    let allowed = [200, 201, 202].map(|tid| fake.allowed(tid));
    assert_eq!(allowed, ["2", "2", "2"]);
    assert_eq!(fake.kernel.schedule(201).unwrap(), FIFO, "a move between partitions demotes none");
    assert_eq!(fake.asmp("status"), 0);
    fake.done("restore");
    let changed = differences(&untouched, &fake.kernel.snapshot());
    assert_eq!(changed.len(), 1, "only the new thread: {changed:?}");
}

#[test]
fn the_proof_that_a_tick_stops_is_taken_and_its_failure_undoes_everything() {
    let (fake, untouched) = prepared(&[]);
    fake.done("create a --cpus 3 --tick require-off");
    fake.done("destroy a");
    fake.kernel.arm(Some(Fault::Tick));
    assert_eq!(fake.asmp("create a --cpus 3 --tick require-off"), exit::UNPROVED);
    fake.kernel.arm(None);
    assert_same(&untouched, &fake, "the proof failed");
    assert!(fake.files().is_empty(), "{:?}", fake.files());
}

#[test]
fn a_kernel_thread_that_came_back_is_named_and_repaired() {
    let (fake, untouched) = prepared(&["create a --cpus 3"]);
    fake.kernel.set_affinity(30, &"0-3".parse().unwrap()).unwrap();
    assert_eq!((fake.asmp("status"), fake.asmp("list")), (7, 7));
    fake.done("repair a");
    assert_eq!((fake.allowed(30).as_str(), fake.asmp("status")), ("0-2", 0));
    fake.done("restore");
    assert_same(&untouched, &fake, "repair");
}

#[test]
fn a_cpu_that_goes_offline_or_a_setting_that_drifts_is_named() {
    let (fake, _) = prepared(&["create a --cpus 3"]);
    fake.kernel.set_online(3, false);
    assert_eq!(fake.asmp("status"), 7);
    fake.kernel.set_online(3, true);
    assert_eq!(fake.asmp("status"), 0);
    fake.kernel.set_file("/proc/irq/24/smp_affinity_list", "0-3");
    assert_eq!(fake.asmp("status"), 7);
    fake.done("repair");
    assert_eq!(fake.asmp("status"), 0);
}

#[test]
fn what_others_broke_has_the_exit_code_of_status() {
    let (fake, _) = prepared(&["create a --cpus 3", "add a --pid 200"]);
    fake.kernel.set_online(3, false);
    assert_eq!((fake.asmp("repair"), fake.asmp("status")), (exit::VIOLATED, exit::VIOLATED));
    fake.kernel.set_online(3, true);
    assert_eq!((fake.asmp("repair"), fake.asmp("status")), (0, 0));
    fake.files().iter().for_each(|file| std::fs::remove_file(fake.dir.path().join(file)).unwrap());
    for (line, code) in [
        ("status", exit::VIOLATED),
        ("repair", exit::VIOLATED),
        ("create b --cpus 2", 25),
        ("destroy a", 25),
        ("restore", exit::UNKNOWN_ORIGINALS),
        ("status", exit::VIOLATED),
        ("restore", exit::UNKNOWN_ORIGINALS),
        ("repair", exit::UNKNOWN_ORIGINALS),
        ("restore --abandon", exit::NOT_UNDONE),
        ("restore", 0),
        ("status", 0),
    ] {
        assert_eq!(fake.asmp(line), code, "{line}");
    }
    assert_eq!(fake.kernel.isolated().to_string(), "");
}

#[test]
fn what_waits_to_be_given_back_is_named_beside_what_was_lost_and_is_not_given_up_for_it() {
    let (fake, _) = prepared(&["create a --cpus 2"]);
    fake.files().iter().for_each(|file| std::fs::remove_file(fake.dir.path().join(file)).unwrap());
    assert_eq!(fake.asmp("restore"), exit::UNKNOWN_ORIGINALS);
    fake.done("create a --cpus 3");
    fake.kernel.set_online(3, false);
    let server = "/sys/kernel/debug/sched/fair_server/cpu3/runtime";
    for line in ["restore", "repair", "restore"] {
        let (code, words) = fake.says(line);
        assert_eq!(code, exit::UNKNOWN_ORIGINALS, "{line}: {words}");
        assert!(words.contains(server) && words.contains("CPU 3 is offline"), "{line}: {words}");
        assert!(!words.contains("--abandon"), "it would drop what waits: {words}");
    }
    fake.kernel.set_online(3, true);
    let (code, words) = fake.says("restore");
    assert_eq!(code, exit::UNKNOWN_ORIGINALS, "{words}");
    assert!(!words.contains(server) && words.contains("`asmp restore --abandon`"), "{words}");
}
