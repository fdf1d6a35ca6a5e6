// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek check` and `build` as a user calls them: words, JSON, exit codes. A refusal writes
//! nothing.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TASK: &str = "[[task]]\nname = 'a'\ncost = '1 ms'\nperiod = '10 ms'\n";

/// The name and the compiler of each board.
fn boards() -> Vec<(String, String)> {
    let of = |board: asmp_yartek::Board| {
        let compiler = board.machine().compiler.to_owned();
        (board.name, compiler)
    };
    asmp_yartek::Board::all().into_iter().map(of).collect()
}

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

fn code(output: &Output) -> i32 {
    output.status.code().expect("it exits")
}

/// What a call that fails says, in a line, and its exit code.
fn refused(words: &[&str]) -> (i32, String) {
    let output = asmp(words);
    let said = String::from_utf8(output.stderr.clone()).expect("words");
    assert_eq!(text(&output), "", "{words:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    (code(&output), said)
}

fn file(dir: &Path, text: &str) -> String {
    let path = dir.join("set.toml");
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("a path").to_owned()
}

fn is_there(compiler: &str) -> bool {
    let is_there = Command::new(compiler).arg("--version").output().is_ok();
    assert!(is_there || std::env::var_os("ASMP_CI").is_none(), "no {compiler} here");
    if !is_there {
        println!("skipped: images: no {compiler} here");
    }
    is_there
}

#[test]
fn the_robot_is_proved_on_each_board_in_three_lines() {
    for (board, compiler) in &boards() {
        let output = asmp(&["yartek", "check", "robot.toml", "--board", board]);
        let words = text(&output);
        let lines: Vec<&str> = words.lines().collect();
        let [first, second, third, ref rest @ ..] = lines[..] else { panic!("{words}") };
        let starts =
            "np-edf: 10 tasks, utilisation 48.3 %, with the kernel and 1 interrupt line 48.";
        assert!(first.starts_with(starts) && first.ends_with(" %: schedulable"), "{words}");
        assert!(second.starts_with("tightest: sonar1, worst response 24"), "{words}");
        assert!(second.contains(" ms of 500 ms  ") && second.contains("any cost may grow by 25"));
        assert!(third.starts_with("clock: 100 ms = ") && third.contains(" ppm"), "{words}");
        let sizes = third.contains(" ppm   ") && third.contains(" flash ");
        assert_eq!((sizes, rest.len()), if is_there(compiler) { (true, 0) } else { (false, 1) });
        assert_eq!(code(&output), 0);
    }
}

#[test]
fn sizes_are_those_that_the_compilers_own_tool_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    for (board, compiler) in &boards() {
        if !is_there(compiler) {
            continue;
        }
        // 32 tasks have a table of more than a kilobyte. The function is in no file.
        let tasks: String = (0..32).map(|n| TASK.replace("'a'", &format!("'a{n}'"))).collect();
        let large = file(dir.path(), &(tasks.replace("1 ms", "100 us") + "entry = 'away'\n"));
        let sizes = |set: &str| {
            let output = asmp(&["yartek", "check", set, "--board", board, "--json"]);
            let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!((code(&output), &json["no_sizes"]), (0, &Value::Null), "{json}");
            ["flash_bytes", "ram_bytes", "stack_bytes"].map(|key| json["sizes"][key].as_u64())
        };
        let [flash, ram, stack] = sizes(&large).map(Option::unwrap);
        let small = file(dir.path(), TASK);
        let [flash_of_one, ram_of_one, stack_of_one] = sizes(&small).map(Option::unwrap);
        assert!(flash > flash_of_one + 1000 && ram > ram_of_one + 1000);
        assert!(stack <= stack_of_one - (ram - ram_of_one) + 16 && stack > 1 << 20);

        let image = dir.path().join("x.elf");
        let image = image.to_str().expect("a path");
        let words = ["yartek", "build", &small, "--board", board, "-o", image];
        let main = dir.path().join("main.c");
        std::fs::write(&main, include_str!("../../../yartek/app/empty/main.c")).expect("written");
        let built = asmp(&[&words[..], &["--app", main.to_str().expect("a path")]].concat());
        assert_eq!(code(&built), 0, "{built:?}");
        let size = Command::new(compiler.replace("gcc", "size")).arg(image).output();
        let said = text(&size.expect("a tool"));
        let counts = said.lines().nth(1).expect("a second line").split_whitespace();
        let counts: Vec<u64> = counts.take(3).map(|count| count.parse().expect("bytes")).collect();
        let [code, data, bss] = counts[..] else { panic!("{said}") };
        // The banner of an image that is built is not counted by check, nor are gaps by the tool.
        let about = |found: u64, counted: u64| found.abs_diff(counted) < 100;
        assert!(about(flash_of_one, code + data) && about(ram_of_one, data + bss), "{said}");
    }
}

#[test]
fn the_json_has_each_task_in_ticks_of_the_board() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(
        dir.path(),
        &format!(
            "{TASK}offset = '2 ms'\nentry = 'go'\n[[interrupt]]\nname = 'i'\nservice = '1 us'\n\
             most = 3\n[board]\nname = 'mps2-an385'\n"
        ),
    );
    let output = asmp(&["yartek", "check", &path, "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (code(&output), &json["schema"], &json["board"]),
        (0, &1.into(), &"mps2-an385".into())
    );
    assert_eq!((&json["verdict"], &json["reason"]), (&"schedulable".into(), &Value::Null));
    assert_eq!(json["clock"]["step_ticks"], 50_000);
    assert_eq!(json["interrupts"][0]["most"], 3);
    let task = &json["tasks"][0];
    let ticks = ["period_ticks", "deadline_ticks", "offset_ticks", "cost_ticks"];
    assert_eq!(ticks.map(|key| task[key].as_u64()), [250_000, 250_000, 50_000, 25_000].map(Some));
    let (response, grows) = (task["response_ns"].as_u64(), task["may_grow_ns"].as_u64());
    let (response, grows) = (response.expect("known"), grows.expect("known"));
    assert!((1_000_000..1_100_000).contains(&response), "{response}");
    assert!((8_900_000..9_000_000).contains(&grows), "{grows}");
}

#[test]
fn a_set_that_is_not_proved_has_exit_code_3_and_its_run() {
    let output = asmp(&["yartek", "check", "overload.toml", "--board", "mps2-an385"]);
    let words = text(&output);
    assert_eq!(code(&output), 3, "{words}");
    assert!(
        words.starts_with("np-edf: 2 tasks, utilisation 39.0 %, with the kernel 39."),
        "{words}"
    );
    assert!(
        words.contains(" %: not schedulable\njob 0 of control, released at 40 ns, is due at 10.0")
    );
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("x.elf");
    let build = ["yartek", "build", "overload.toml", "--board", "mps2-an385"];
    let image_words = ["-o", image.to_str().expect("a path")];
    let (exit, said) = refused(&[&build[..], &image_words].concat());
    assert_eq!(exit, 3, "{said}");
    assert!(said.contains("not schedulable: job 0 of control") && said.contains("--unproved"));
    assert!(!image.exists());
}

#[test]
fn offsets_that_alone_save_a_set_do_not_count() {
    let dir = tempfile::tempdir().expect("a directory");
    let tight = "[[task]]\nname = 'a'\ncost = '3 ms'\nperiod = '10 ms'\noffset = '0'\n\
                 [[task]]\nname = 'b'\ncost = '8 ms'\nperiod = '20 ms'\noffset = '3 ms'\n\
                 deadline = '17 ms'\n";
    let path = file(dir.path(), tight);
    let output = asmp(&["yartek", "check", &path, "--board", "mps2-an385"]);
    let words = text(&output);
    assert_eq!(code(&output), 3, "{words}");
    assert!(words.contains("(offsets do not count: the kernel's own time moves jobs)"), "{words}");
}

#[test]
fn each_refusal_is_a_line_with_its_exit_code_and_writes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let table = dir.path().join("table.c");
    let out = table.to_str().expect("a path");
    let line = "[[interrupt]]\nname = 'i'\nservice = '1 us'\ngap = '9 ms'\n";
    let many: String = (0..33).map(|at| TASK.replace("'a'", &format!("'t{at}'"))).collect();
    for (set, exit, says) in [
        (format!("{TASK}jitter = '1 ms'\n"), 64, "line 5, task a: jitter: a board releases"),
        (format!("{TASK}entry = 'yk_run'\n"), 64, "line 5, task a: entry: C or the kernel has"),
        (
            format!("{TASK}entry = 'go'\n{line}entry = 'go'\n"),
            64,
            "line 10, task a and interrupt i",
        ),
        (many, 64, "line 129, 33 tasks, and a board runs 32 at most"),
        (
            format!("{TASK}offset = '10 ns'\n"),
            64,
            "line 5, the offset of a (10 ns) would be 0 ticks of 40",
        ),
        (TASK.replace("10 ms", "3 ms"), 0, ""),
        (
            TASK.replace("1 ms", "39 ns"),
            64,
            "line 3, the cost of a (39 ns) is below a tick of 40 ns",
        ),
        (format!("{TASK}most = '1 ms'\n"), 64, "line 5, task a: most: interrupts included"),
        (format!("{TASK}most = '9 us'\n"), 40, "line 5, task a: most: it is below the cost"),
        (format!("{TASK}entry = '1st'\n"), 40, "line 5, task a: entry: \"1st\" is no name"),
        (line.to_owned(), 43, "there is no task"),
    ] {
        let path = file(dir.path(), &set);
        let words = ["yartek", "build", &path, "--board", "mps2-an385", "--table", out];
        if exit == 0 {
            assert_eq!(code(&asmp(&words)), 0);
            std::fs::remove_file(&table).expect("written");
            continue;
        }
        let (code, said) = refused(&words);
        assert_eq!(code, exit, "{said}");
        assert!(said.contains(&format!("set.toml: {says}")), "{says}: {said}");
        assert!(!table.exists(), "{said}");
    }
}

#[test]
fn a_board_is_named_by_the_option_or_the_file_and_must_be_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), &format!("{TASK}[board]\nname = 'arduino'\n"));
    for (words, exit, says) in [
        (&["yartek", "check", "robot.toml"][..], 2, "which board? give --board NAME, or [board]"),
        (&["yartek", "check", "robot.toml", "--board", "pdp11"], 2, "--board: no board pdp11: use"),
        (
            &["yartek", "check", &path],
            40,
            "set.toml: [board]: no board arduino: use one of mcf5208evb",
        ),
        (&["yartek", "check", "no-such.toml", "--board", "mps2-an385"], 40, "no-such.toml: "),
    ] {
        let (code, said) = refused(words);
        assert_eq!(code, exit, "{said}");
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(code(&asmp(&["yartek", "check", &path, "--board", "mps2-an385"])), 0);
    let same = ["yartek", "build", &path, "--board", "mps2-an385", "--table", &path];
    assert_eq!(refused(&same).0, 2, "it would replace the set");
}

#[test]
fn an_image_holds_what_is_known_of_its_set() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("x.elf");
    let out = image.to_str().expect("a path");
    for (board, compiler) in &boards() {
        if !is_there(compiler) {
            continue;
        }
        for (set, more, banner) in [
            ("robot.toml", &[][..], "yartek: 10 tasks, np-edf: schedulable\0"),
            ("overload.toml", &["--unproved"], "yartek: 2 tasks, unproved\0"),
        ] {
            let words = ["yartek", "build", set, "--board", board, "-o", out];
            let output = asmp(&[&words[..], more].concat());
            assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
            let bytes = std::fs::read(&image).expect("an image");
            let banner = banner.as_bytes();
            assert!(bytes.windows(banner.len()).any(|window| window == banner), "{board} {set}");
        }
    }
}

#[test]
fn entries_need_the_files_that_have_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), &format!("{TASK}entry = 'go'\n[board]\nname = 'mps2-an385'\n"));
    let image = dir.path().join("x.elf");
    let out = image.to_str().expect("a path");
    let (exit, said) = refused(&["yartek", "build", &path, "-o", out]);
    assert_eq!(exit, 2);
    assert!(said.contains("a has the entry go: name the file that has it"), "{said}");
    assert!(said.contains("or give the directory that has both"), "{said}");
    let table = ["--table", out, "--app", "main.c"];
    let (exit, said) = refused(&[&["yartek", "build", &path][..], &table].concat());
    assert!(exit == 2 && said.contains("--app goes into an image: give -o FILE, too"), "{said}");
    if !is_there("arm-none-eabi-gcc") {
        return;
    }
    let app = dir.path().join("main.c");
    let main = "#include \"yartek.h\"\nint main(void) { yk_run(); }\n\
                void yk_fault(enum yk_why why, const struct yk_job *job, uintptr_t at)\n\
                { (void)why; (void)job; (void)at; for (;;) ; }\n";
    let words = ["yartek", "build", &path, "-o", out, "--app", app.to_str().expect("a path")];
    std::fs::write(&app, main).expect("written");
    let (exit, said) = refused(&words);
    assert_eq!(exit, 62, "{said}");
    assert!(said.contains("undefined reference to `go'") && !image.exists(), "{said}");
    let go = "void go(const struct yk_job *job) { (void)job; }\n";
    std::fs::write(&app, format!("{main}{go}")).expect("written");
    assert_eq!(code(&asmp(&words)), 0);
    assert!(image.exists());
}

/// What is in a directory.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> =
        entries.map(|entry| name(entry).into_string().expect("words")).collect();
    names.sort();
    names
}

#[test]
fn without_a_name_the_image_is_beside_the_task_set_and_has_its_name() {
    if !is_there("arm-none-eabi-gcc") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = file(dir.path(), TASK);
    let output = asmp(&["yartek", "build", &path, "--board", "mps2-an385"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let image = path.replace(".toml", ".elf");
    assert!(text(&output).starts_with(&format!("{image}: 1 tasks for mps2-an385")), "{output:?}");
    assert_eq!(names(dir.path()), ["set.elf", "set.toml"]);
    std::fs::remove_file(image).expect("an image");
    let table = dir.path().join("table.c");
    let words = ["yartek", "build", &path, "--board", "mps2-an385", "--table"];
    assert_eq!(code(&asmp(&[&words[..], &[table.to_str().expect("a path")]].concat())), 0);
    assert_eq!(names(dir.path()), ["set.toml", "table.c"], "the table alone");
}

#[test]
fn a_directory_stands_for_its_task_set_and_its_application() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().to_str().expect("a path");
    let verbs = ["check", "build", "compare"];
    for verb in verbs {
        let (exit, said) = refused(&["yartek", verb, at]);
        assert!(exit == 40 && said.contains("has no task set, *.toml: asmp yartek new"), "{said}");
    }
    let path = file(dir.path(), &format!("{TASK}entry = 'go'\n[board]\nname = 'mps2-an385'\n"));
    // As editors write beside what they edit.
    std::fs::write(dir.path().join(".set.toml"), "").expect("written");
    std::os::unix::fs::symlink("away", dir.path().join(".#main.c")).expect("a link");
    // No line of C is needed to prove a set, nor to compare it.
    let checked = asmp(&["yartek", "check", at]);
    assert_eq!((code(&checked), &checked.stdout), (0, &asmp(&["yartek", "check", &path]).stdout));
    let (exit, said) = refused(&["yartek", "build", at]);
    assert!(exit == 40 && said.contains("has no application, *.c: name its task set"), "{said}");
    assert_eq!(names(dir.path()), [".#main.c", ".set.toml", "set.toml"]);
    if !is_there("arm-none-eabi-gcc") || !is_there("qemu-system-arm") {
        return;
    }
    let of_file = asmp(&["yartek", "compare", &path, "--for", "95ms"]);
    let compared = asmp(&["yartek", "compare", at, "--for", "95ms"]);
    assert_eq!((code(&compared), &compared.stdout), (0, &of_file.stdout), "{compared:?}");
    // The application is in two files, and one more is named.
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), format!("#include \"yartek.h\"\n{text}"))
            .expect("written");
    };
    write("main.c", "int main(void) { yk_run(); }\n");
    write("go.c", "void go(const struct yk_job *job) { (void)job; }\n");
    let more = tempfile::tempdir().expect("a directory");
    let fault = more.path().join("fault.c");
    let fault_text = "#include \"yartek.h\"\nvoid yk_fault(enum yk_why why, const struct yk_job \
                      *job, uintptr_t at)\n{ (void)why; (void)job; (void)at; for (;;) ; }\n";
    std::fs::write(&fault, fault_text).expect("written");
    let build = ["yartek", "build", at];
    let (exit, said) = refused(&build);
    assert!(exit == 62 && said.contains("undefined reference to `yk_fault'"), "{said}");
    let built = asmp(&[&build[..], &["--app", fault.to_str().expect("a path")]].concat());
    assert_eq!(code(&built), 0, "{built:?}");
    assert_eq!(
        names(dir.path()),
        [".#main.c", ".set.toml", "go.c", "main.c", "set.elf", "set.toml"]
    );
    assert!(text(&built).contains(&dir.path().join("set.elf").display().to_string()), "{built:?}");
}

#[test]
fn without_a_compiler_the_package_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("x.elf");
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(examples()).env("PATH", dir.path());
    command.args(["yartek", "build", "robot.toml", "--board", "mps2-an385", "-o"]).arg(&image);
    let output = command.output().expect("asmp starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(code(&output), 62, "{said}");
    assert!(said.contains("install the package gcc-arm-none-eabi"), "{said}");
    assert!(!image.exists());
    let mut check = Command::new(env!("CARGO_BIN_EXE_asmp"));
    check.current_dir(examples()).env("PATH", dir.path());
    check.args(["yartek", "check", "robot.toml", "--board", "mps2-an385"]);
    let output = check.output().expect("asmp starts");
    let reason = "flash and RAM are not known: there is no arm-none-eabi-gcc here: install the \
                  package gcc-arm-none-eabi\n";
    assert!(code(&output) == 0 && text(&output).ends_with(reason), "{output:?}");
}
