// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the background has, on the boards: threads, the serial line, the shell.

mod board;

use asmp_analysis::file::{from_toml, no_measurement};
use asmp_analysis::{Task, Workload};
use asmp_yartek::{
    Application, Ending, Map, Output, Robot, Serial, Table, Trace, program, run, send,
};
use board::{Board, Line, c_file, each, number};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn the_main_stack_is_watched_down_to_its_last_word() {
    each(|board| {
        let table = board.table(&[("work", Task::new("a", 1000, 4800), "YK_FINISH")], &[]);
        let output = board.run(Application::Files(&[c_file("stack.c")]), &table, 0);
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
        let said: Vec<&str> = output.console.lines().collect();
        let expected = [
            "watched at first 0",
            "variables 1",
            "all 1",
            "shallow 1",
            "faults when shallow 0",
            "stack 1",
            "unused when deep 0",
            "faults when deep 1",
        ];
        assert_eq!(said, expected, "{}", board.name());
    });
}

#[test]
fn threads_wait_sleep_end_and_overflow_while_jobs_interrupt_them() {
    each(|board| {
        let table = board.table(&[("yk_spin", Task::new("a", 100, 960), "YK_FINISH")], &[]);
        let (sleep, files) = (board.ticks(2000), [c_file("threads.c")]);
        let words = format!("-DSLEEP={sleep}");
        let output = board.run_with(&[&words], Application::Files(&files), &table, 0);
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
        for (name, expected) in [
            ("stack", 1),
            ("turns while suspended", 0),
            ("has turns again", 1),
            ("killed", 1),
            ("turns after the kill", 0),
            ("killed twice", 0),
            ("begun anew", 1),
            ("begun twice", 0),
            ("turns anew", 1),
            ("sum", 1000 * 1001 / 2),
            ("waits in vain", 0),
            ("unused", 1),
            ("unused after the overflow", 0),
            ("missed", 0),
        ] {
            let name = format!("{name} ");
            assert_eq!(number(&output, &name), expected, "{}: {name}", board.name());
        }
        for never in ["after the exit", "after the overflow 1"] {
            assert!(!output.console.lines().any(|line| line.starts_with(never)), "{never}");
        }
        let slept = number(&output, "slept ");
        assert!((20 * sleep..22 * sleep).contains(&slept), "{}: {slept} ticks", board.name());
        assert!(number(&output, "jobs ") > 30);
    });
}

#[test]
fn threads_that_wait_for_each_other_need_no_interrupt() {
    each(|board| {
        let table = board.table(&[("yk_spin", Task::new("a", 96, 9_600_000), "YK_FINISH")], &[]);
        let output = board.run(Application::Files(&[c_file("handover.c")]), &table, 0);
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
        let ticks = number(&output, "ticks ");
        // 100 items; the first alarm and the first job are in it.
        assert!(ticks < board.ticks(20_000), "{}: {ticks} ticks", board.name());
    });
}

/// A port of this machine that is free.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

const PATIENCE: Duration = Duration::from_secs(120);

/// QEMU's end of the line. It opens its port some time after its start, and does not say when.
fn connect(port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                return stream;
            }
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends what ends the board. QEMU forgets bytes that wait if we leave before it.
fn send_last(line: &mut TcpStream, bytes: &[u8]) {
    line.write_all(bytes).expect("sent");
    // It may end by a reset, too.
    let _ = line.read_to_end(&mut Vec::new());
}

/// Runs an image while `talk` has the other end of its serial line.
fn run_with(
    board: &Board,
    files: &[PathBuf],
    table: &str,
    until_ticks: u64,
    talk: impl FnOnce(&mut TcpStream, &Path) + Send,
) -> Output {
    let mut output = None;
    let mut talk = Some(talk);
    let built = board.build(&[], Application::Files(files), table, &mut |image| {
        let port = free_port();
        let talk = talk.take().expect("it is called once");
        thread::scope(|scope| {
            let talks = scope.spawn(move || talk(&mut connect(port), image));
            let machine = board.0.machine();
            // A board that ends by itself, at a time, need not wait for that.
            let serial = Serial::Tcp { port, is_fast: until_ticks > 0, told: None };
            let wall = 2 * PATIENCE;
            output = Some(run(&machine, image, until_ticks, wall, serial).expect("a run"));
            talks.join().expect("a talk");
        });
    });
    built.expect("an image");
    output.expect("an image that was run")
}

#[test]
fn no_byte_of_the_serial_line_is_lost_in_either_direction() {
    const BYTES: usize = 10_000;
    each(|board| {
        let lines = [Line { service: "serve", most: 4 }];
        let table = board.table(&[("yk_spin", Task::new("a", 300, 1000), "YK_FINISH")], &lines);
        let sent: Vec<u8> = (0..BYTES).map(|n| (n * 7 % 113) as u8).collect();
        let output = run_with(board, &[c_file("echo.c")], &table, 0, |line, _| {
            let mut came = vec![0; BYTES];
            let mut at = 0;
            // Pieces of all lengths, none longer than there is room for.
            for length in (1..).map(|n| 1 + n * 37 % 400) {
                let piece = &sent[at..BYTES.min(at + length)];
                if piece.is_empty() {
                    break;
                }
                line.write_all(piece).expect("sent");
                line.read_exact(&mut came[at..at + piece.len()]).expect("sent back");
                at += piece.len();
            }
            assert!(came == sent, "{}", board.name());
            send_last(line, b"q");
        });
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
        println!("{}: {}", board.name(), output.console.replace('\n', " "));
        assert_eq!(number(&output, "lost "), 0);
        assert_eq!(number(&output, "unserved "), 0);
        assert!(number(&output, "raised ") > BYTES as u64 && number(&output, "jobs ") > 10);
    });
}

/// A directory of `yartek/app`.
fn app(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek/app").join(name)
}

fn workload(name: &str) -> Workload {
    let path = app(name).join(format!("{name}.toml"));
    let toml = std::fs::read_to_string(path).expect("a task set");
    from_toml(&toml, &no_measurement).expect("a task set")
}

/// What the shell prints until it asks again.
fn answer(line: &mut TcpStream, command: &str) -> String {
    line.write_all(command.as_bytes()).expect("sent");
    line.write_all(b"\r").expect("sent");
    let mut came = Vec::new();
    while !came.ends_with(b"> ") {
        let mut byte = [0];
        line.read_exact(&mut byte).expect("an answer");
        came.push(byte[0]);
    }
    let text = String::from_utf8(came).expect("ASCII").replace('\r', "");
    let text = text.strip_suffix("> ").expect("it asks again");
    // It sends back what is typed.
    text.split_once('\n').map_or("", |(_, answer)| answer).to_owned()
}

#[test]
fn an_unprepared_person_finds_the_way_in_the_shell() {
    let workload = workload("shell");
    each(|board| {
        let table = Table::of(&workload, board.0.rate()).expect("a table").source(None);
        let output = run_with(board, &[app("shell").join("main.c")], &table, 0, |line, _| {
            greet(line);
            let mut ask = |command: &str| answer(line, command);
            assert_eq!(ask("what"), "what: no such command: help lists them\n");
            let help = ask("help");
            for word in
                ["help", "stat", "ps", "mem", "ls", "cat", "append", "rm", "exec", "kill", "note"]
            {
                assert!(help.contains(word), "{word} in {help}");
            }
            assert_eq!(ask("ls"), "");
            assert!(ask("cat log").starts_with("no such file"));
            assert_eq!(ask("exec"), "usage: exec PROGRAM\n");
            assert_eq!(ask("exec it"), "no such program: help and ls list them\n");
            assert_eq!((ask("exec note"), ask("exec note")), (String::new(), String::new()));
            let files = ask("ls");
            assert_eq!(files.split_whitespace().collect::<Vec<_>>(), ["log", "24"]);
            assert_eq!(ask("cat log"), "all is well\nall is well\n");
            assert_eq!((ask("exec spin"), ask("exec spin")), (String::new(), String::new()));
            assert!(ask("exec spin").starts_with("no place is free"));
            assert_eq!(ask("ps").lines().filter(|line| line.starts_with("spin")).count(), 2);
            assert_eq!(ask("kill spin"), "");
            assert_eq!(ask("ps").lines().filter(|line| line.starts_with("spin")).count(), 1);
            assert!(ask("kill note").starts_with("no such program runs"));
            // Backspace, and a line that is too long.
            assert!(ask("mex\x08m").contains("3008 bytes"));
            assert_eq!(ask(&"x".repeat(120)), "the line is too long\n");
            assert!(ask(&("y".repeat(99))).ends_with("y: no such command: help lists them\n"));
            // Keys that are no characters: a cursor key, Delete, Esc alone and before a word.
            for keys in ["\x1b[A", "\x1bOB", "\x1b[3~", "\x1b[1;5C", "\x1b", "\x1b\x1b[A"] {
                assert!(ask(&format!("{keys}mem")).contains("3008 bytes"), "{keys:?}");
                assert!(ask(&format!("mem{keys}")).contains("3008 bytes"), "{keys:?}");
            }
            // An LF after the CR before.
            assert!(ask("\nmem").contains("3008 bytes"));
            let mem = ask("mem");
            let row = mem.lines().find_map(|line| line.strip_prefix("main stack, never used"));
            let unused = row.and_then(|row| row.trim().strip_suffix(" bytes")?.parse::<u32>().ok());
            assert!(unused.is_some_and(|unused| (1000..4096).contains(&unused)), "{mem}");
            let stat = ask("stat");
            let of = |name: &str| {
                let row = stat.lines().find(|line| line.starts_with(name));
                let row = row.unwrap_or_else(|| panic!("no {name} in {stat}"));
                row.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok())
            };
            assert!(of("serial") > Some(300), "{stat}");
            assert!(of("steer").is_some() && of("look").is_some());
            send_last(line, b"exec end\r");
        });
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
    });
}

/// The shell's answer after Ctrl-C: it asks then, whether or not it has asked before.
fn greet(line: &mut TcpStream) {
    line.write_all(b"\x03").expect("sent");
    let mut has_come = Vec::new();
    while !has_come.ends_with(b"^C\r\n> ") {
        let mut byte = [0];
        line.read_exact(&mut byte).expect("a question");
        has_come.push(byte[0]);
    }
}

#[test]
fn a_program_runs_from_the_disk_and_one_that_is_damaged_or_of_another_image_does_not() {
    let workload = workload("shell");
    each(|board| {
        let table = Table::of(&workload, board.0.rate()).expect("a table").source(None);
        let talk = |line: &mut TcpStream, image: &Path| {
            let made = |name: &str| program(image, &[c_file(name)]).expect("a program");
            greet(line);
            assert!(answer(line, "exec count").starts_with("no such program: help and ls"));
            let good = made("count.c");
            for again in 0..2 {
                send(line, "count", &good).expect("sent");
                assert_eq!(answer(line, "exec count"), "", "{again}");
                let mut says = [0; 20];
                line.read_exact(&mut says).expect("what it says");
                assert_eq!(&says, b"one two three good\r\n", "{}", board.name());
            }
            // Each word of the header, and the bytes behind it.
            let whys = ["no program", "a program for another processor", "a program for another"];
            let whys = whys.into_iter().chain(["damaged: send", "too long", "damaged: send"]);
            let whys =
                whys.chain(["a program for another image", "damaged: send", "damaged: send"]);
            for (at, why) in whys.enumerate() {
                let mut bad = good.clone();
                bad[4 * at + 3] ^= 4;
                bad[4 * at] ^= u8::from(at == 4);
                send(line, "bad", &bad).expect("sent");
                let said = answer(line, "exec bad");
                assert!(said.starts_with(why), "{}: word {at}: {said}", board.name());
            }
            for short in [0, 31, 32, good.len() - 1] {
                send(line, "bad", &good[..short]).expect("sent");
                let said = answer(line, "exec bad");
                let is_told = match short {
                    0 => said.starts_with("no such program"),
                    1..32 => said.starts_with("no program"),
                    _ => said.starts_with("damaged"),
                };
                assert!(is_told, "{}: {short} bytes: {said}", board.name());
            }
            send(line, "turns", &made("turns.c")).expect("sent");
            assert_eq!(answer(line, "exec turns"), "");
            assert_eq!(answer(line, "exec count"), "the area of programs is in use: kill turns\n");
            assert_eq!((answer(line, "kill turns"), answer(line, "rm bad")), Default::default());
            assert_eq!(answer(line, "append note xy"), BYTES_ARE);
            assert_eq!(answer(line, "append note 0"), BYTES_ARE);
            let refused = send(line, "long", &[0; 4000]).expect_err("too long for the disk");
            assert!(refused.to_string().contains("the disk is full"), "{refused}");
            send_last(line, b"exec end\r");
        };
        let output = run_with(board, &[app("shell").join("main.c")], &table, 0, talk);
        assert_eq!(output.ending, Ending::Exit(0), "{}: {}", board.name(), output.console);
    });
}

const BYTES_ARE: &str = "bytes are pairs of the digits 0-9 and a-f\n";

#[test]
fn the_robot_sends_its_map_while_it_drives_and_misses_no_deadline() {
    const SECONDS: u64 = 60;
    let workload = workload("robot");
    let sources = ["commands", "main", "map", "sine", "tasks", "world"];
    let files = sources.map(|name| app("robot").join(format!("{name}.c")));
    each(|board| {
        let table = Table::of(&workload, board.0.rate()).expect("a table");
        let tasks = workload.tasks.iter().zip(&table.tasks);
        let tasks: Vec<Task> = tasks
            .map(|(task, on_board)| {
                let times = on_board.times;
                Task::new(task.name.clone(), times.cost_ticks, times.period_ticks)
                    .deadline(times.deadline_ticks)
            })
            .collect();
        let (mut maps, mut cells) = (0, 0);
        let until = board.ticks(SECONDS * 1_000_000);
        let output = run_with(board, &files, &table.source(None), until, |line, _| {
            let mut robot = Robot::at(&mut *line);
            // Until it ends.
            while let Ok(fetched) = robot.map() {
                let map = Map::decode(&fetched.map).expect("a map");
                (maps, cells) = (maps + 1, map.occupied_mm().count());
                if maps % 5 == 0 && robot.clear().is_err() {
                    break;
                }
            }
        });
        let trace = Trace::of(&output.console, tasks.len());
        let jobs = trace.jobs.len() as u64;
        println!("{}: {maps} maps, the last of {cells} cells, {jobs} jobs", board.name());
        assert_eq!((trace.fault.as_ref(), trace.partial.as_ref()), (None, None));
        assert_eq!((output.ending, trace.missed(&tasks)), (Ending::Exit(0), 0));
        // 12 a period of half a second, but for the slower ones.
        assert!(maps > 5 && jobs > SECONDS * 14, "{}: {maps} maps, {jobs} jobs", board.name());
    });
}
