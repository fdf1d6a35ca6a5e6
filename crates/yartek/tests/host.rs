// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The whole kernel, its modules and applications as a process of this machine, in virtual time
//! (`yartek/port/host`), under the address and undefined-behaviour sanitizers. No QEMU.

use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::{Task, Workload};
use asmp_yartek::{Map, Rate, Table, Trace, expect};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// As `port.c` has it: ticks of a microsecond.
fn rate() -> Rate {
    Rate::new(1_000_000, 1).expect("a rate")
}

/// A job begins some readings of the clock after its start, and interrupts take a tick each.
const DISPATCH_TICKS: u64 = 8;
/// The robot has driven all of its path.
const DRIVE_TICKS: u64 = 280_000_000;
/// A process that takes longer hangs.
const PATIENCE_S: &str = "300";

fn kernel() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek")
}

/// The C files of a directory of `yartek`, but for one.
fn files(dir: &str, but: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(kernel().join(dir)).expect("a directory");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "c") && !path.ends_with(but));
    files.sort();
    files
}

fn compiler(dir: &Path) -> Command {
    let mut command = Command::new("cc");
    command.current_dir(dir).args([
        "-std=gnu11",
        "-g",
        "-O1",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]);
    command
}

/// Whether this machine's compiler has sanitizers.
fn can_sanitize() -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("none.c"), "int main(void) { return 0; }\n").expect("written");
    let made = compiler(dir.path()).args(["none.c", "-o", "none"]).output();
    let can = made.is_ok_and(|output| output.status.success());
    assert!(can || std::env::var_os("ASMP_CI").is_none(), "cc has no sanitizers");
    if !can {
        println!("skipped: cc has no sanitizers: install gcc with libasan and libubsan");
    }
    can
}

struct Ran {
    status: ExitStatus,
    console: String,
    /// What it sent over its serial line.
    sent: Vec<u8>,
}

/// Compiles an application, and gives what starts it.
fn process(dir: &Path, application: &[PathBuf], words: &[&str], table: &str) -> Command {
    let (table_c, image) = (dir.join("table.c"), dir.join("image"));
    fs::write(&table_c, table).expect("written");
    let mut command = compiler(dir);
    // Sanitizers know libc's functions in place of memory.c. A process's stack is the system's.
    command.args(files("kernel", "memory.c")).args(files("modules", "stack.c"));
    command.args(application).arg(&table_c).args(files("port/host", "-"));
    command.args(["-Wall", "-Wextra", "-Wconversion", "-Werror", "-DYK_MACHINE=0"]).args(words);
    for include in ["include", "kernel", "modules", "test/host"] {
        command.arg("-I").arg(kernel().join(include));
    }
    let made = command.arg("-o").arg(&image).output().expect("cc");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", PATIENCE_S]).arg(&image);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs an application. It hears `line` over its serial line.
fn run(
    application: &[PathBuf],
    words: &[&str],
    table: &str,
    until_ticks: u64,
    line: Vec<u8>,
) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = process(dir.path(), application, words, table);
    if until_ticks > 0 {
        command.env("YARTEK_UNTIL", until_ticks.to_string());
    }
    let mut child = command.spawn().expect("a process");
    let mut to_line = child.stdin.take().expect("a pipe");
    // It may end before it has heard all.
    let speaker = thread::spawn(move || drop(to_line.write_all(&line)));
    let output = child.wait_with_output().expect("a process that ends");
    speaker.join().expect("a thread that ends");
    let console = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { status: output.status, console, sent: output.stdout }
}

fn workload(name: &str) -> Workload {
    let path = kernel().join("app").join(name).join(format!("{name}.toml"));
    from_toml(&fs::read_to_string(path).expect("a file"), &no_measurement).expect("a task set")
}

/// What the sanitizers said. If they said nothing, the last lines of the console.
fn complaint(ran: &Ran) -> String {
    let lines: Vec<&str> = ran.console.lines().collect();
    let of_sanitizer = |line: &&str| line.contains("ERROR:") || line.contains("runtime error:");
    let first = lines.iter().position(of_sanitizer).unwrap_or(lines.len().saturating_sub(5));
    format!("{}: {}", ran.status, lines[first..].join("\n").chars().take(3000).collect::<String>())
}

#[test]
fn a_process_runs_the_simulators_schedule() {
    if !can_sanitize() {
        return;
    }
    let mut workload = workload("robot");
    for task in &mut workload.tasks {
        task.entry = None;
    }
    workload.interrupts.clear();
    let table = Table::of(&workload, rate()).expect("a table");
    let in_ticks = table.tasks.iter().map(|task| {
        Task::new(task.name.clone(), task.times.cost_ticks, task.times.period_ticks)
            .deadline(task.times.deadline_ticks)
            .offset(task.times.offset_ticks)
    });
    let in_ticks: Vec<Task> = in_ticks.collect();
    let expected = expect(&in_ticks, DRIVE_TICKS, 1000 * DISPATCH_TICKS).expect("a schedule");
    let spin = kernel().join("app/spin/main.c");
    let ran = run(&[spin], &[], &table.source(None), expected.until_ticks, Vec::new());
    assert!(ran.status.success(), "{}", complaint(&ran));
    let found = expected.compare(&in_ticks, &Trace::of(&ran.console, in_ticks.len()));
    assert!(found.is_equal() && found.missed == 0, "{found:?}");
    assert!(found.jobs > 4000 && found.jobs == expected.jobs().len(), "{found:?}");
}

#[test]
fn the_robot_drives_its_path_and_every_access_is_within_its_memory() {
    if !can_sanitize() {
        return;
    }
    let workload = workload("robot");
    let table = Table::of(&workload, rate()).expect("a table").source(None);
    let ran = run(&files("app/robot", "-"), &[], &table, DRIVE_TICKS, Vec::new());
    assert!(ran.status.success(), "{}", complaint(&ran));
    let trace = Trace::of(&ran.console, workload.tasks.len());
    assert!(trace.partial.is_none() && trace.fault.is_none() && trace.jobs.len() > 4000);
    let maps: Vec<&str> = trace.lines.iter().filter_map(|line| line.strip_prefix("map ")).collect();
    assert!(maps.len() >= 27, "{} maps", maps.len());
    let last = maps[maps.len() - 1].as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = last.chunks(2).map(byte).collect();
    let map = Map::decode(&bytes.expect("hexadecimal")).expect("a map");
    assert!(map.occupied_mm().count() > 500, "{} cells", map.occupied_mm().count());
}

#[test]
fn no_raise_of_a_million_is_lost_doubled_or_out_of_order() {
    if !can_sanitize() {
        return;
    }
    let table = "#include \"yartek.h\"\n\
        void work(const struct yk_job *job);\n\
        void serve_0(uint32_t raises);\n\
        void serve_1(uint32_t raises);\n\
        static const struct yk_task_def defs[] = {\n\
        { .run = work, .period = 500, .deadline = 500, .budget = 440, .late = YK_FINISH } };\n\
        static struct yk_task tasks[1];\n\
        static const struct yk_line_def line_defs[] = { { serve_0, 3 }, { serve_1, 0 } };\n\
        static struct yk_line lines[2];\n\
        const struct yk_table yk_table = { defs, tasks, 1, line_defs, lines, 2 };\n";
    let lines = kernel().join("test/lines.c");
    let ran = run(&[lines], &["-DRAISES=1000000"], table, 0, Vec::new());
    assert!(ran.status.success() && ran.console.ends_with("good\n"), "{}", complaint(&ran));
    let numbers = |name: &str| -> Vec<u64> {
        let lines = ran.console.lines().filter_map(|line| line.strip_prefix(name));
        lines.map(|number| number.parse().expect("a number")).collect()
    };
    // Each third raise of the first line raises the second, and nothing else does.
    let raised = numbers("raised ");
    println!("raised {raised:?}");
    assert!(raised[0] >= 1_000_000 && raised[1] == raised[0] / 3, "{raised:?}");
    assert!(numbers("masked ")[0] > 1000 && numbers("jobs ")[0] > 1000);
}

struct Random(u64);

impl Random {
    /// A number below `most`.
    fn below(&mut self, most: u64) -> u64 {
        // Knuth, MMIX.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

const COMMANDS: [&str; 12] =
    ["help", "stat", "ps", "mem", "ls", "cat", "append", "rm", "exec", "kill", "", "no"];
const ARGUMENTS: [&str; 16] = [
    "log",
    "a",
    "b",
    "c",
    "d",
    "note",
    "-",
    "YKP1",
    "exec",
    "0",
    "00",
    "0a1b2c",
    "594b5031",
    "zz",
    "abcdefghijklmnopqrstuvwxyz",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
];

/// What a person, a program or a loose wire may send instead of a line.
fn line(random: &mut Random) -> Vec<u8> {
    let mut line = match random.below(12) {
        0 => random.bytes(300),
        // It never sleeps, and time goes on by ticks meanwhile: for the length of a line.
        1 if random.below(20) == 0 => return b"exec spin\rkill spin\r".to_vec(),
        _ => {
            let mut words = vec![random.one(&COMMANDS)];
            (0..random.below(4)).for_each(|_| words.push(random.one(&ARGUMENTS)));
            words.join(random.one(&[" ", "  ", " \x08 "])).into_bytes()
        }
    };
    if random.below(8) == 0 && !line.is_empty() {
        let at = random.below(line.len() as u64) as usize;
        let keys: [&[u8]; 8] =
            [b"\x1b[A", b"\x1b", b"\x7f", b"\x03", b"\x1b[1;5", b"\0", b"\xff", b"\x08\x08\x08"];
        let key = keys[random.below(8) as usize];
        line.splice(at..at, key.iter().copied());
    }
    line.extend_from_slice(random.one(&["\r", "\n", "\r\n"]).as_bytes());
    line
}

#[test]
fn no_line_breaks_the_shell() {
    let is_nightly = std::env::var_os("ASMP_TIER").is_some_and(|tier| tier == "nightly");
    let lines = if is_nightly { 100_000 } else { 5_000 };
    if !can_sanitize() {
        return;
    }
    let table = Table::of(&workload("shell"), rate()).expect("a table").source(None);
    let mut random = Random(20_261_130);
    let mut heard = b"help\r".to_vec();
    (0..lines).for_each(|_| heard.extend(line(&mut random)));
    // The line before is given up, and what runs is ended.
    heard.extend_from_slice(b"\x03\rkill note\rkill note\rkill spin\rkill spin\rmem\rexec end\r");
    let expected = Answers::to(&heard);
    let ran = run(&[kernel().join("app/shell/main.c")], &[], &table, 0, heard);
    assert!(ran.status.success(), "{}", complaint(&ran));
    let sent = String::from_utf8_lossy(&ran.sent);
    let count = |text: &str| sent.matches(text).count();
    let found = Answers {
        helps: count("\r\nhelp                  this list\r\n"),
        unknown: count(": no such command: help lists them\r\n"),
        usages: count("\r\nusage: "),
        too_long: count("the line is too long\r\n"),
        given_up: count("^C\r\n> "),
    };
    assert_eq!(found, expected);
    assert!(expected.helps > lines / 100 && expected.too_long > 10, "{expected:?}");
    println!("{lines} lines, {expected:?}");
    assert!(sent.contains("serial line, lost                    0 bytes\r\n> exec end"));
}

/// How many answers of each kind the shell gives.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answers {
    helps: usize,
    unknown: usize,
    usages: usize,
    too_long: usize,
    given_up: usize,
}

impl Answers {
    /// By `shell.h`, written apart from `shell.c`.
    fn to(heard: &[u8]) -> Self {
        let mut answers = Self::default();
        let (mut line, mut is_long, mut before) = (Vec::new(), false, 0);
        // Where a key that is no character is: nowhere, after its ESC, or within.
        let mut key = 0;
        for &byte in heard {
            let last = std::mem::replace(&mut before, byte);
            let was = std::mem::take(&mut key);
            match (was, byte) {
                (1, b'[' | b'O') => key = 2,
                (2, b' '..b'@') => key = 2,
                (2, b'@'..) => {}
                (_, b'\r' | b'\n') if byte == b'\r' || last != b'\r' => {
                    answers.obeyed(&line, is_long);
                    (line, is_long) = (Vec::new(), false);
                }
                (_, 3) => {
                    answers.given_up += 1;
                    (line, is_long) = (Vec::new(), false);
                }
                (_, 8 | 127) => is_long &= line.pop().is_none(),
                (_, b' '..127) if line.len() == 99 => is_long = true,
                (_, b' '..127) => line.push(byte),
                (_, 27) => key = 1,
                _ => {}
            }
        }
        answers
    }

    fn obeyed(&mut self, line: &[u8], is_long: bool) {
        let text = str::from_utf8(line).expect("ASCII");
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        let needs = |command| match command {
            "help" | "stat" | "ps" | "mem" | "ls" => Some(0),
            "cat" | "rm" | "exec" | "kill" => Some(1),
            "append" => Some(2),
            _ => None,
        };
        match words.first().map(|command| (*command, needs(command))) {
            _ if is_long => self.too_long += 1,
            None => {}
            Some((_, None)) => self.unknown += 1,
            Some((_, Some(needed))) if needed + 1 != words.len() => self.usages += 1,
            Some(("help", _)) => self.helps += 1,
            Some(_) => {}
        }
    }
}

#[test]
fn the_shell_answers_one_who_waits_for_its_answers() {
    if !can_sanitize() {
        return;
    }
    let table = Table::of(&workload("shell"), rate()).expect("a table").source(None);
    let dir = tempfile::tempdir().expect("a directory");
    let shell = [kernel().join("app/shell/main.c")];
    let mut command = process(dir.path(), &shell, &[], &table);
    let mut child = command.stderr(Stdio::null()).spawn().expect("a process");
    let mut to_line = child.stdin.take().expect("a pipe");
    let mut of_line = BufReader::new(child.stdout.take().expect("a pipe"));
    for (command, last) in [("help", "leave the emulator"), ("mem", "lost")] {
        to_line.write_all(format!("{command}\r").as_bytes()).expect("sent");
        let mut answer = String::new();
        while !answer.contains(last) {
            assert!(of_line.read_line(&mut answer).expect("a line") > 0, "{answer}");
        }
    }
    to_line.write_all(b"exec end\r").expect("sent");
    assert!(child.wait().expect("it ends").success());
}
