// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmp yartek new` as a user calls it: what it makes builds and runs on each board, and where it
//! fails nothing is left. What needs a compiler and QEMU is skipped where they are missing, and
//! fails in CI.

use asmp_yartek::Board;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

fn in_dir(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(dir).args(words).output().expect("asmp starts")
}

/// A line for the shell, as we print it.
fn shell(dir: &Path, line: &str) -> Output {
    let mut command = Command::new("sh");
    let line = format!("asmp() {{ \"$ASMP\" \"$@\"; }}\n{line}");
    command.env("ASMP", env!("CARGO_BIN_EXE_asmp"));
    command.current_dir(dir).arg("-c").arg(line).output().expect("a shell")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    text(&output.stdout)
}

/// Its exit code, and the line that it says.
#[track_caller]
fn refused(output: &Output) -> (i32, String) {
    let said = text(&output.stderr);
    assert_eq!((said.lines().count(), &*output.stdout), (1, &b""[..]), "{said}");
    (output.status.code().expect("it exits"), said)
}

/// Name, mode and text of all that is below a directory.
fn tree(dir: &Path) -> Vec<(String, u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let about = path.symlink_metadata().expect("it is there");
        let text = fs::read_to_string(&path).unwrap_or_default();
        found.push((path.display().to_string(), about.mode(), text));
        if about.is_dir() {
            found.extend(tree(&path));
        }
    }
    found.sort();
    found
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().expect("words")).collect();
    names.sort();
    names
}

const FILES: [&str; 5] = ["README.md", "main.c", "motor.toml", "tasks.c", "tasks.h"];

/// Are the programs installed that run a board?
fn has_tools(board: &Board) -> bool {
    match asmp_yartek::missing(&board.machine()) {
        Ok(()) => true,
        Err(why) if std::env::var_os("ASMP_CI").is_some() => panic!("{}: {why}", board.name),
        Err(why) => {
            println!("skipped: {}: {why}", board.name);
            false
        }
    }
}

/// The lines of a text that are calls of `asmp`.
fn calls(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("asmp "));
    lines.map(|line| line.split("  #").next().unwrap_or_default()).collect()
}

#[test]
fn a_new_project_is_proved_and_runs_its_schedule_on_each_board() {
    for board in Board::all() {
        let dir = tempfile::tempdir().expect("a directory");
        let new = ["yartek", "new", "motor", "--board", &board.name];
        let said = done(&in_dir(dir.path(), &new));
        assert!(said.starts_with(&format!("motor: 5 files for {}, ", board.name)), "{said}");
        assert_eq!(names(dir.path()), ["motor"]);
        let project = dir.path().join("motor");
        assert_eq!(names(&project), FILES);
        let [check, run] = calls(&said)[..] else { panic!("{said}") };
        let checked = done(&shell(dir.path(), check));
        assert!(checked.starts_with("np-edf: 3 tasks, "), "{checked}");
        assert!(checked.lines().next().is_some_and(|line| line.ends_with(": schedulable")));
        if !has_tools(&board) {
            continue;
        }
        let ran = done(&shell(dir.path(), run));
        // Ten jobs report in a second; the speed is held in the end.
        assert!(ran.starts_with("speed 0\nspeed 2") && ran.contains("\nspeed 30\n1"), "{ran}");
        assert!(ran.ends_with("\n160 jobs, 0 deadlines missed\n"), "{ran}");
        let readme = fs::read_to_string(project.join("README.md")).expect("a text");
        let calls = calls(&readme);
        assert_eq!(calls.len(), 4, "{readme}");
        for (call, says) in calls.into_iter().zip([
            "np-edf: 3 tasks, ",
            "speed 0\n",
            "320 jobs, same order, latest ",
            &format!("./motor.elf: 3 tasks for {}, np-edf: schedulable\n", board.name),
        ]) {
            let said = done(&shell(&project, call));
            assert!(said.starts_with(says), "{call}: {said}");
        }
        let mut files = FILES.to_vec();
        files.insert(2, "motor.elf");
        assert_eq!(names(&project), files);
        let image = done(&in_dir(&project, &["yartek", "run", "motor.elf", "--for", "1s"]));
        assert!(
            image.starts_with("speed 0\nspeed 2") && image.ends_with("\n160 jobs\n"),
            "{image}"
        );
        // As README.md has it.
        let line = "while (job->activation == 3);";
        assert!(readme.contains(&format!("`{line}` into `measure()`")), "{readme}");
        let source = fs::read_to_string(project.join("tasks.c")).expect("a text");
        let (before, after) = source.split_once("\tspeed = (int32_t)").expect("the job");
        let stuck = format!("{before}\t{line}\n\tspeed = (int32_t){after}");
        fs::write(project.join("tasks.c"), stuck).expect("written");
        let stuck = in_dir(&project, &["yartek", "run", ".", "--for", "1s"]);
        assert_eq!(stuck.status.code(), Some(63), "{stuck:?}");
        assert!(text(&stuck.stderr).contains("`most`, in task 0 (from 0), activation 3"));
    }
}

/// Words alone: the guide breaks long lines.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_guide_begins_with_what_a_new_project_prints() {
    let board = Board::named("mps2-an385").expect("a board");
    if !has_tools(&board) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let guide = words(include_str!("../../../docs/guide/yartek.md"));
    for line in [
        "asmp yartek new motor --board mps2-an385",
        "asmp yartek check motor",
        "asmp yartek run motor --for 300ms",
    ] {
        let said = done(&shell(dir.path(), line));
        // Sizes are the compiler's choice.
        let fixed = said.split(" flash ").next().unwrap_or_default();
        let shown = words(&format!("$ {line}\n{fixed}"));
        assert!(guide.contains(&shown), "not in the guide:\n{shown}");
    }
}

#[test]
fn the_guides_commands_make_a_process_of_a_project() {
    let dir = tempfile::tempdir().expect("a directory");
    let none =
        "echo 'int main(void) { return 0; }' | cc -fsanitize=address,undefined -xc - -o none";
    if !shell(dir.path(), none).status.success() {
        assert!(std::env::var_os("ASMP_CI").is_none(), "cc has no sanitizers");
        return println!("skipped: cc has no sanitizers: install gcc with libasan and libubsan");
    }
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek");
    symlink(kernel, dir.path().join("yartek")).expect("a link");
    done(&shell(dir.path(), "asmp yartek new rover --board mps2-an385"));
    let guide = include_str!("../../../docs/guide/yartek.md");
    let section = &guide[guide.find("\n## 8. ").expect("section 8")..];
    let commands = section.split("```").nth(1).and_then(|block| block.strip_prefix("sh\n"));
    let output = shell(dir.path(), &format!("set -e\n{}", commands.expect("a block of commands")));
    let console = text(&output.stderr);
    assert!(output.status.success(), "{console}");
    // A second of the board's clock, 25 MHz: 101 activations of the first task, of 10 ms.
    assert!(console.lines().any(|line| line.starts_with("j 0 64 ")), "{console}");
    let last = console.lines().last().expect("a line");
    assert!(last.starts_with("end 17d78"), "{last}");
}

#[test]
fn the_commands_that_it_prints_are_words_for_a_shell() {
    let dir = tempfile::tempdir().expect("a directory");
    for parent in ["my robot's", "-x"] {
        fs::create_dir(dir.path().join(parent)).expect("a directory");
        let project = format!("{parent}/förder_band-2/");
        let new = ["yartek", "new", "--board", "mps2-an385", "--", &project];
        // Without any program, network or home.
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmp"));
        command.current_dir(dir.path()).args(new).env_clear();
        let said = done(&command.output().expect("asmp starts"));
        let calls = calls(&said);
        assert_eq!(calls.len(), 2, "{said}");
        let checked = done(&shell(dir.path(), calls[0]));
        assert!(checked.starts_with("np-edf: 3 tasks, "), "{checked}");
        let toml = dir.path().join(parent).join("förder_band-2/förder_band-2.toml");
        assert!(toml.is_file(), "{said}");
    }
}

#[test]
fn what_is_there_is_left_as_it_is_unless_it_is_an_empty_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "mine").expect("written");
    fs::create_dir(at("full")).expect("a directory");
    fs::write(at("full").join(".hidden"), "mine").expect("written");
    fs::create_dir(at("empty")).expect("a directory");
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o2750)).expect("a mode");
    symlink("empty", at("link")).expect("a link");
    symlink("away", at("dangling")).expect("a link");
    let before = tree(dir.path());
    let new = |name: &str| in_dir(dir.path(), &["yartek", "new", name, "--board", "mps2-an385"]);
    for name in ["file", "full", "full/", "link", "link/", "dangling"] {
        let (code, said) = refused(&new(name));
        let words = "exists, and is not an empty directory: name another";
        assert!(code == 40 && said.contains(words), "{name}: {said}");
        assert_eq!(tree(dir.path()), before);
    }
    let (code, said) = refused(&new("away/motor"));
    assert!(code == 40 && said.contains("away: is no directory: make it first"), "{said}");
    let (code, said) = refused(&new("file/motor"));
    assert!(code == 40 && said.contains("file: is no directory: make it first"), "{said}");
    assert_eq!(tree(dir.path()), before);
    done(&new("empty/"));
    assert_eq!(names(&at("empty")).len(), 5);
    assert_eq!(at("empty").metadata().expect("it is there").mode() & 0o7777, 0o2750);
    done(&new("motor"));
    let mode = |path: &Path| path.metadata().expect("it is there").mode();
    assert_eq!(mode(&at("motor")), mode(&at("full")), "as the umask has it");
    assert_eq!(mode(&at("motor").join("main.c")), mode(&at("file")));
    assert_eq!(names(dir.path()), ["dangling", "empty", "file", "full", "link", "motor"]);
}

#[test]
fn a_failure_leaves_nothing_and_a_kill_no_half_project() {
    let dir = tempfile::tempdir().expect("a directory");
    let new = "asmp yartek new motor --board mps2-an385";
    // Files of 512 bytes at most: not all fit. The kernel kills what writes more, or refuses.
    let full = shell(dir.path(), &format!("trap '' XFSZ; ulimit -f 1; {new}"));
    let (code, said) = refused(&full);
    assert!(code == 40 && said.contains("motor: cannot be made: File too large"), "{said}");
    assert_eq!(names(dir.path()), [""; 0]);
    // Some that start tests ignore the signal, and a shell cannot take that back.
    let deadly = new.replacen("asmp", "env --default-signal=XFSZ \"$ASMP\"", 1);
    let killed = shell(dir.path(), &format!("ulimit -c 0; ulimit -f 1; {deadly}; echo $?"));
    let said = text(&killed.stdout);
    let code: i32 = said.trim().parse().expect("an exit code");
    assert!(code > 128, "{killed:?}");
    assert!(!dir.path().join("motor").exists(), "{:?}", names(dir.path()));
    done(&shell(dir.path(), new));
    assert_eq!(names(&dir.path().join("motor")), FILES);
}

#[test]
fn a_name_that_is_none_and_a_board_that_is_none_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let board = ["--board", "mps2-an385"];
    for name in ["", "/", ".", "..", "a/..", "-x", "./-x", ".x", "a b", "a\nb", "a\x1b[31m", "a.b"]
    {
        let (code, said) =
            refused(&in_dir(dir.path(), &[&["yartek", "new"], &board[..], &["--", name]].concat()));
        assert_eq!(code, 2, "{name:?}: {said}");
        let words = format!("{name:?} names no project: end it with letters, digits, - or _");
        assert!(said.contains(&words), "{said}");
    }
    let all: Vec<String> = Board::all().into_iter().map(|board| board.name).collect();
    let (code, said) = refused(&in_dir(dir.path(), &["yartek", "new", "motor"]));
    let words = format!("which board? give --board NAME; NAME is {}\n", all.join(" or "));
    assert!(code == 2 && said.ends_with(&words), "{said}");
    let unknown = in_dir(dir.path(), &["yartek", "new", "motor", "--board", "uno"]);
    let (code, said) = refused(&unknown);
    assert!(code == 2 && said.contains("--board: no board uno: use one of "), "{said}");
    assert_eq!(names(dir.path()), [""; 0]);
}
