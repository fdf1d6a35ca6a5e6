// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek` as a user calls it: words, JSON, exit codes. What needs a compiler and QEMU is
//! skipped where they are missing, and fails in CI.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Boards that come later are named after these.
const NO_BOARD: &str = "which board? give --board NAME, or [board] with name = \"NAME\" in the \
                        file; NAME is mcf5208evb or mps2-an385";

fn asmp(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_asmp")).args(arguments).output().expect("asmp starts")
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The board, for tests that need its tools. `None`: it has said why not.
fn with_tools(board: &str) -> Option<asmp_yartek::Board> {
    let board = asmp_yartek::Board::named(board).expect("a board");
    match asmp_yartek::missing(&board.machine()) {
        Ok(()) => Some(board),
        Err(why) if std::env::var_os("ASMP_CI").is_some() => panic!("{}: {why}", board.name),
        Err(why) => {
            println!("skipped: {}: {why}", board.name);
            None
        }
    }
}

fn boards() -> impl Iterator<Item = asmp_yartek::Board> {
    asmp_yartek::Board::all().into_iter().filter_map(|board| with_tools(&board.name))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/analysis").join(name)
}

fn set(dir: &Path, text: &str) -> String {
    let path = dir.join("tasks.toml");
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

fn task(name: &str, cost: &str, period: &str) -> String {
    format!("[[task]]\nname = \"{name}\"\ncost = \"{cost}\"\nperiod = \"{period}\"\n")
}

#[test]
fn the_robot_runs_the_simulators_schedule() {
    let robot = example("robot.toml").display().to_string();
    for board in boards() {
        let output = asmp(&["yartek", "compare", &robot, "--board", &board.name, "--for", "12s"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = words(&output.stdout);
        assert!(said.starts_with("194 jobs, same order, latest "), "{said}");
        assert!(said.ends_with(", 0 deadlines missed\n"), "{said}");
    }
}

#[test]
fn run_and_compare_take_the_board_of_the_file_unless_another_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let text = |board: &str| task("a", "2 ms", "10 ms") + &format!("[board]\nname = \"{board}\"\n");
    for board in boards() {
        let tasks = set(dir.path(), &text(&board.name));
        for (verb, says) in [("run", "10 jobs, 0 "), ("compare", "10 jobs, same order, latest ")] {
            let output = asmp(&["yartek", verb, &tasks, "--for", "95ms"]);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            assert!(words(&output.stdout).starts_with(says), "{output:?}");
        }
        let tasks = set(dir.path(), &text("uno"));
        for verb in ["run", "compare"] {
            let refused = asmp(&["yartek", verb, &tasks]);
            let said = words(&refused.stderr);
            assert!(said.contains("[board]: no board uno") && said.lines().count() == 1, "{said}");
            let given = asmp(&["yartek", verb, &tasks, "--board", &board.name, "--for", "95ms"]);
            assert_eq!(given.status.code(), Some(0), "{given:?}");
        }
    }
}

#[test]
fn a_missed_deadline_has_exit_code_1_and_stands_in_the_json() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    // The second keeps the first from its deadline.
    let tasks = set(dir.path(), &(task("a", "2 ms", "10 ms") + &task("b", "17 ms", "40 ms")));
    let compare = ["yartek", "compare", &tasks, "--board", &board.name, "--for", "400ms"];
    let output = asmp(&[&compare[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&json["order"], &json["schema"]), (&"same".into(), &1.into()));
    let missed = json["missed"].as_u64().expect("a number");
    assert!(missed > 5, "{json}");
    assert!(json["latest"]["late_ns"].as_u64() <= json["latest"]["bound_ns"].as_u64());
    let said = words(&asmp(&compare).stdout);
    assert!(said.ends_with(&format!(", {missed} deadlines missed\n")), "{said}");
    let run = ["yartek", "run", &tasks, "--board", &board.name, "--for", "400ms"];
    assert_eq!(asmp(&run).status.code(), Some(1));
}

#[test]
fn both_schedules_are_drawn_the_simulators_and_below_it_the_boards() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    let tasks = set(dir.path(), &(task("a", "2 ms", "10 ms") + &task("b", "3 ms", "20 ms")));
    let svg = dir.path().join("both.svg");
    let compare = ["yartek", "compare", &tasks, "--board", &board.name, "--for", "100ms"];
    let output = asmp(&[&compare[..], &["--gantt", svg.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let drawn = fs::read_to_string(&svg).unwrap();
    let parts: Vec<&str> = drawn.split("<g ").skip(1).collect();
    let [simulator, guest] = parts[..] else { panic!("two schedules: {drawn}") };
    assert!(simulator.contains(">simulator</text>"), "{simulator}");
    assert!(guest.contains(">yartek on mps2-an385</text>"), "{guest}");
    // The first job begins at once in the simulator; on the board the kernel comes before it.
    let first = "a job 0: 0 ns to 2 ms";
    assert!(simulator.contains(first) && !guest.contains(first), "{drawn}");
    for part in parts {
        let jobs = |name: &str| part.matches(&format!("<title>{name} job ")).count();
        // Each has a deadline, too.
        assert_eq!((jobs("a"), jobs("b")), (10 * 2, 5 * 2), "{part}");
    }
    // It may not be the task set.
    let refused = asmp(&[&compare[..], &["--gantt", &tasks]].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(words(&refused.stderr).contains("--gantt"), "{refused:?}");
}

#[test]
fn jobs_that_were_dropped_are_counted_and_have_exit_code_1() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    // The second covers two deadlines of the first each time, the last time to the end.
    let late = "deadline = \"5 ms\"\nlate = \"skip\"\n";
    let (a, b) = (task("a", "1 ms", "10 ms") + late, task("b", "27 ms", "40 ms"));
    let tasks = set(dir.path(), &(a + &b));
    let output = asmp(&["yartek", "run", &tasks, "--board", &board.name, "--for", "400ms"]);
    assert_eq!(words(&output.stdout), "30 jobs, 0 deadlines missed, 20 dropped\n", "{output:?}");
    assert_eq!(output.status.code(), Some(1));
    // The image knows no deadlines, and the trace says which activations are left out: a job after
    // the last two comes to the same.
    let image = dir.path().join("tasks.elf").display().to_string();
    let build = ["yartek", "build", &tasks, "--board", &board.name, "-o", &image, "--unproved"];
    assert_eq!(asmp(&build).status.code(), Some(0));
    let output = asmp(&["yartek", "run", &image, "--for", "400ms"]);
    assert!(words(&output.stdout).ends_with("\n30 jobs, 20 dropped\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_time_shorter_than_a_tick_ends_too() {
    let Some(board) = with_tools("mcf5208evb") else { return };
    let dir = tempfile::tempdir().unwrap();
    let tasks = set(dir.path(), &task("a", "2 ms", "10 ms"));
    let output = asmp(&["yartek", "run", &tasks, "--board", &board.name, "--for", "500ns"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(words(&output.stdout).ends_with(" jobs, 0 deadlines missed\n"), "{output:?}");
}

#[test]
fn an_order_that_hangs_on_the_kernels_time_is_reported() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    let late = task("c", "1 ms", "20 ms") + "offset = \"3001 us\"\ndeadline = \"3 ms\"\n";
    let text = task("a", "3 ms", "20 ms") + &task("b", "3 ms", "20 ms") + &late;
    let tasks = set(dir.path(), &text);
    let output = asmp(&["yartek", "compare", &tasks, "--board", &board.name, "--for", "15ms"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = words(&output.stdout);
    let first = "job 1 hangs on the kernel's own time: the board runs c (activation 0), which";
    assert!(said.contains(first), "{said}");
}

#[test]
fn a_run_is_counted_and_drawn_and_an_image_runs_by_itself() {
    let Some(board) = with_tools("mcf5208evb") else { return };
    let dir = tempfile::tempdir().unwrap();
    let tasks = set(dir.path(), &(task("a", "2 ms", "10 ms") + &task("b", "3 ms", "20 ms")));
    let [svg, json] = ["out.svg", "out.json"].map(|name| dir.path().join(name));
    let run = ["yartek", "run", &tasks, "--board", &board.name, "--for", "100ms"];
    let drawn = ["--gantt", svg.to_str().unwrap(), "--trace", json.to_str().unwrap()];
    let output = asmp(&[&run[..], &drawn].concat());
    assert_eq!(words(&output.stdout), "15 jobs, 0 deadlines missed\n", "{output:?}");
    assert!(fs::read_to_string(&svg).unwrap().contains("yartek on mcf5208evb"));
    let trace: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() >= 15));

    let table = "#include \"yartek.h\"\n\
                 static const struct yk_task_def defs[] = { { .run = yk_spin, .period = 13020, \
                 .deadline = 13020, .budget = 1302 } };\n\
                 static struct yk_task tasks[1];\n\
                 const struct yk_table yk_table = { defs, tasks, 1, 0, 0, 0 };\n";
    let image = dir.path().join("image.elf");
    let spin = asmp_yartek::Application::Spin;
    asmp_yartek::build(&board.machine(), spin, table, &image).expect("an image");
    let image = image.to_str().unwrap();
    let output = asmp(&["yartek", "run", image, "--for", "95ms"]);
    assert_eq!((words(&output.stdout), output.status.code()), ("10 jobs\n".to_owned(), Some(0)));
    // Its tasks have numbers, and no deadlines.
    let output = asmp(&[&["yartek", "run", image, "--for", "95ms"][..], &drawn].concat());
    assert_eq!((words(&output.stdout), output.status.code()), ("10 jobs\n".to_owned(), Some(0)));
    let picture = fs::read_to_string(&svg).unwrap();
    assert_eq!(picture.matches("<title>task 0 job ").count(), 10, "{picture}");
    assert!(fs::read_to_string(&json).unwrap().contains("task 0"));
    let other = asmp(&["yartek", "run", image, "--board", "mps2-an385"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(words(&other.stderr).contains("this image is for mcf5208evb, not for mps2-an385"));
}

#[test]
fn a_directory_has_a_task_set_and_its_application() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let at = dir.path().to_str().unwrap();
        asmp(&["yartek", "run", at, "--board", &board.name, "--for", "95ms"])
    };
    let said = |output: &Output| words(&output.stderr);
    assert!(said(&run()).contains("has no task set, *.toml"), "{:?}", run());
    set(dir.path(), &(task("a", "2 ms", "10 ms") + "entry = \"blink\"\n"));
    assert!(said(&run()).contains("has no application, *.c"), "{:?}", run());
    let source = "#include \"console.h\"\n#include \"trace.h\"\nstatic volatile int on;\n\
        void blink(const struct yk_job *job);\n\
        void blink(const struct yk_job *job) { on = (int)job->activation + 1; }\n\
        void yk_ended(const struct yk_job *job, yk_ticks end) { yk_trace_keep(job, end); }\n\
        bool yk_background(void)\n{\n\
        static int told;\n\
        if (on > told) { told = on; yk_console_text(\"blinks\\n\"); }\n\
        return yk_trace_print();\n}\n\
        void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t at)\n\
        { yk_trace_fault(why, job, at); }\n\
        int main(void) { yk_run(); }\n";
    fs::write(dir.path().join("main.c"), source).unwrap();
    let output = run();
    let lines = words(&output.stdout);
    // The guest ends when its background comes to it.
    let blinks = lines.lines().filter(|line| *line == "blinks").count();
    assert!((10..=11).contains(&blinks), "{output:?}");
    assert!(lines.ends_with("10 jobs, 0 deadlines missed\n"), "{lines}");
    fs::write(dir.path().join("main.c"), source.replace("void blink", "void wink")).unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(62), "{output:?}");
    assert!(said(&output).contains("blink"), "{output:?}");
}

/// Traces its jobs, and goes on after a fault.
const BEARS_FAULTS: &str = "#include \"trace.h\"\n\
    void slow(const struct yk_job *job);\n\
    void slow(const struct yk_job *job)\n\
    { yk_ticks begun = yk_now(); while (yk_now() - begun < (job->activation ? 1 : 625000)) ; }\n\
    void yk_ended(const struct yk_job *job, yk_ticks end) { yk_trace_keep(job, end); }\n\
    bool yk_background(void) { return yk_trace_print(); }\n\
    void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t at)\n\
    { (void)why; (void)job; (void)at; }\n\
    void fast(const struct yk_job *job);\n\
    void fast(const struct yk_job *job) { (void)job; }\n\
    int main(void) { yk_run(); }\n";

#[test]
fn jobs_that_never_ran_after_a_fault_have_missed_their_deadlines() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    let fast = task("fast", "1 ms", "10 ms") + "late = \"fault\"\nentry = \"fast\"\n";
    // Its first job takes 25 ms of 1.
    set(dir.path(), &(fast + &task("slow", "1 ms", "100 ms") + "entry = \"slow\"\n"));
    fs::write(dir.path().join("main.c"), BEARS_FAULTS).unwrap();
    let at = dir.path().to_str().unwrap();
    let run = ["yartek", "run", at, "--board", &board.name, "--for", "400ms"];
    let output = asmp(&run);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // Of 40 and 4 jobs two have run.
    assert!(words(&output.stdout).ends_with("2 jobs, 42 deadlines missed\n"), "{output:?}");
    // What the project has is no output.
    let main = dir.path().join("main.c");
    fs::write(dir.path().join("main.h"), "").unwrap();
    for file in ["main.c", "main.h", "tasks.toml"].map(|name| dir.path().join(name)) {
        for verb in ["run", "compare"] {
            let option = ["--gantt", file.to_str().unwrap()];
            let refused =
                asmp(&[&["yartek", verb, at, "--board", &board.name][..], &option].concat());
            assert_eq!(refused.status.code(), Some(2), "{verb} {file:?}: {refused:?}");
        }
        let build = ["yartek", "build", at, "--board", &board.name, "-o", file.to_str().unwrap()];
        assert_eq!(asmp(&build).status.code(), Some(2), "{file:?}");
    }
    assert_eq!(fs::read_to_string(main).unwrap(), BEARS_FAULTS);
}

#[test]
fn a_comparison_counts_the_misses_of_what_it_compares_and_needs_a_job() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    // The only job that is late begins at 106 ms; the board runs until some 97 ms at least.
    let late = task("b", "1 ms", "1 s") + "deadline = \"2 ms\"\noffset = \"101 ms\"\n";
    let tasks = set(dir.path(), &(task("a", "6 ms", "20 ms") + &late));
    let compare = ["yartek", "compare", &tasks, "--board", &board.name, "--for"];
    for (time, ends) in [("90ms", ", 0 deadlines missed\n"), ("110ms", ", 1 deadlines missed\n")] {
        let output = asmp(&[&compare[..], &[time]].concat());
        assert!(words(&output.stdout).ends_with(ends), "{time}: {output:?}");
        assert_eq!(output.status.code(), Some(i32::from(time != "90ms")), "{output:?}");
    }
    let tasks = set(dir.path(), &(task("a", "6 ms", "20 ms") + "offset = \"5 ms\"\n"));
    let none = asmp(&["yartek", "compare", &tasks, "--board", &board.name, "--for", "4ms"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    assert!(words(&none.stderr).contains("no job begins within --for"), "{none:?}");
}

/// The processes that this one has started.
fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Asks each 10 ms, for a minute at most.
fn within_a_minute<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("not within a minute: {what}")
}

#[test]
fn the_emulator_ends_with_a_run_that_is_killed() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    // The background never runs, so nothing is printed: a closed pipe does not end QEMU.
    let tasks = set(dir.path(), &task("a", "11 ms", "10 ms"));
    let run = ["yartek", "run", &tasks, "--board", &board.name, "--for", "10h"];
    let mut run = Command::new(env!("CARGO_BIN_EXE_asmp")).args(run).spawn().expect("it starts");
    let command =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // Not the compiler, nor the one that is asked for its version.
    let is_qemu = |pid: &u32| command(pid).contains("-kernel");
    let qemu = within_a_minute("QEMU", || children(run.id()).into_iter().find(is_qemu));
    run.kill().expect("killed");
    run.wait().expect("ended");
    within_a_minute("QEMU has ended", || (!is_qemu(&qemu)).then_some(()));
}

#[test]
fn an_application_that_would_not_end_is_refused_at_once() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let dir = tempfile::tempdir().unwrap();
    let tasks = set(dir.path(), &task("a", "2 ms", "10 ms"));
    let [main, image] = ["main.c", "image.elf"].map(|name| dir.path().join(name));
    let [main_at, image_at] = [&main, &image].map(|path| path.to_str().unwrap());
    // It has all of the trace but what ends it.
    let quiet = "#include \"trace.h\"\n\
        void yk_ended(const struct yk_job *job, yk_ticks end) { yk_trace_keep(job, end); }\n\
        void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t at)\n\
        { yk_trace_fault(why, job, at); }\n\
        int main(void) { yk_run(); }\n";
    let ends = quiet.to_owned() + "bool yk_background(void) { return yk_trace_print(); }\n";
    for (source, code) in [(quiet, 40), (&ends, 0)] {
        fs::write(&main, source).unwrap();
        let words_of_build = ["--board", &board.name, "--app", main_at, "-o", image_at];
        let built = asmp(&[&["yartek", "build", &tasks][..], &words_of_build].concat());
        assert_eq!(built.status.code(), Some(0), "{built:?}");
        let said = words(&built.stdout);
        let [edf, all] = ["edf", "all"].map(|part| flash_bytes(&said, part));
        assert!(500 < edf && edf < all / 2, "{said}");
        let project = dir.path().to_str().unwrap();
        let runs = [&[image_at][..], &[project, "--board", &board.name]];
        for run in runs {
            let output = asmp(&[&["yartek", "run", "--for", "95ms"], run].concat());
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let said = words(&output.stderr);
            let refusal = "the application does not end at the time of --for: end yk_background()";
            assert_eq!(said.contains(run[0]) && said.contains(refusal), code != 0, "{said}");
            assert_eq!(words(&output.stdout).contains("10 jobs"), code == 0, "{output:?}");
        }
    }
}

/// Of a part of an image.
fn flash_bytes(said: &str, part: &str) -> u64 {
    let lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut numbers = lines.filter(|line| line.first() == Some(&part)).map(|line| line[1].parse());
    numbers.next_back().expect("a line of the part").expect("a number")
}

#[test]
fn the_kernel_is_measured_on_each_board() {
    for board in boards() {
        let output = asmp(&["yartek", "bench", "--board", &board.name]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = words(&output.stdout);
        assert!(said.starts_with(&board.name), "{said}");
        assert!(said.contains("\nthe same, 32 jobs start at once"), "{said}");
        let json = asmp(&["yartek", "bench", "--board", &board.name, "--json"]);
        let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
        let first = &json["figures"][0];
        let mean = first["mean_instructions"].as_f64().expect("a number");
        // The paper's 750 us, at one instruction a cycle.
        assert!(100.0 < mean && mean < 750.0 * 33.0, "{json}");
        assert!(said.contains(&format!("{mean:.1}")) && first["paper_us"] == 750, "{json}");
    }
}

const GUIDE: &str = include_str!("../../../docs/guide/yartek.md");

#[test]
fn the_rover_of_the_guide_prints_what_the_guide_shows() {
    let Some(board) = with_tools("mps2-an385") else { return };
    let block = |kind: &str| {
        let (_, rest) = GUIDE.split_once(&format!("```{kind}\n")).expect("a block");
        rest.split_once("```").expect("its end").0
    };
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("rover.toml", block("toml"));
    write("main.c", block("c"));
    assert!(block("toml").contains(&board.name));
    let call = |words_of_call: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
        command.current_dir(dir.path()).args(words_of_call).output().expect("asmp starts")
    };
    // The guide breaks long lines.
    let words_of = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let guide = words_of(GUIDE);
    let shows = |text: &str| assert!(guide.contains(&words_of(text)), "not in the guide:\n{text}");
    for line in [
        "asmp yartek check rover.toml",
        "asmp yartek build rover.toml --app main.c -o rover.elf",
        "asmp yartek run . --for 200ms",
        "asmp yartek compare rover.toml --for 2s",
    ] {
        let output = call(&line.split(' ').skip(1).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        // Sizes are the compiler's choice.
        let said = words(&output.stdout);
        let fixed = said.split(" flash ").next().unwrap_or_default();
        let fixed = fixed.split("  part ").next().unwrap_or_default().trim_end();
        shows(&format!("$ {line}\n{fixed}"));
    }
    let (before, after) = block("c").split_once("\tpower = pulses <").expect("the job");
    write("main.c", &format!("{before}\twhile (job->activation == 3);\n\tpower = pulses <{after}"));
    let stuck = call(&["yartek", "run", ".", "--for", "200ms"]);
    assert_eq!(stuck.status.code(), Some(63), "{stuck:?}");
    shows(&words(&stuck.stderr));
}

#[test]
fn what_is_missing_or_wrong_is_said_in_a_line_with_its_own_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = set(dir.path(), &task("a", "2 ms", "10 ms"));
    let odd = dir.path().join("odd.toml");
    fs::write(&odd, task("a", "2 ms", "10 ms") + &task("b", "1 ms", "9999999 ns")).unwrap();
    let many: String = (0..33).map(|n| task(&format!("t{n}"), "1 ms", "1 s")).collect();
    let many_at = dir.path().join("many.toml");
    fs::write(&many_at, many).unwrap();
    let compare = |file: &str, board: &str| {
        Command::new(env!("CARGO_BIN_EXE_asmp"))
            .args(["yartek", "compare", file, "--board", board])
            .env("PATH", dir.path())
            .output()
            .expect("asmp starts")
    };
    for (output, code, says) in [
        (
            compare(&tasks, "mps2-an385"),
            62,
            "there is no arm-none-eabi-gcc here: install the package gcc-arm-none-eabi",
        ),
        (
            compare(&tasks, "mcf5208evb"),
            62,
            "there is no m68k-linux-gnu-gcc here: install the package gcc-m68k-linux-gnu",
        ),
        (compare(&tasks, "uno"), 2, "no board uno: use one of mcf5208evb, mps2-an385"),
        (compare(odd.to_str().unwrap(), "mcf5208evb"), 64, "100 are allowed"),
        (
            compare(many_at.to_str().unwrap(), "mcf5208evb"),
            64,
            "33 tasks, and a board runs 32 at most",
        ),
        (asmp(&["yartek", "run", &tasks]), 2, NO_BOARD),
        (asmp(&["yartek", "compare", &tasks]), 2, NO_BOARD),
    ] {
        let said = words(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
}
