// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that enter a partition by themselves: `crates/rt/examples/in_partition.rs`, as a user
//! would write it.

use super::guests::On;
use super::lab::{
    Called, Test, allowed, asmp, called, example, policy, read, test, until, until_free,
};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub fn all() -> Vec<Test> {
    let enter = |name, run: fn()| test(name, run).on(On::OnePerSeries);
    vec![
        enter("enter: the thread alone runs on the partition's cpu under its policy", thread_alone),
        enter("enter: a whole process goes in and out as one that was added", whole_process),
        enter("enter: a deadline is admitted inside", deadline),
        enter(
            "enter: a real-time thread inside is let out only by force and its process goes home",
            stays,
        ),
        enter("enter: a thread that ended leaves its process free to go home", ended),
        enter("enter: a command of run finds itself inside", run_inside),
        enter("enter: what cannot be entered is refused in words and nothing has moved", refusals),
        enter("enter: many at once are all recorded", many_at_once),
        enter("enter: killed at any moment leaves a state that asmp can read", killed),
    ]
}

/// A group that is neither ours nor the caller's, so that going home and going to the caller
/// differ.
const HOME: &str = "/sys/fs/cgroup/home";

/// Where partitions are in the cgroup tree.
fn base() -> &'static str {
    match fs::exists("/run/systemd/system").unwrap_or(false) {
        true => "/asmp.slice/asmp-holder.service",
        false => "/asmp",
    }
}

fn threads_in(group: &str) -> String {
    read(format!("/sys/fs/cgroup{}/{group}/cgroup.threads", base()))
}

/// The example, started from its home; ended and its home removed when dropped.
struct Program {
    child: Child,
    words: BufReader<std::process::ChildStdout>,
    process: u32,
    thread: u32,
}

fn command(line: &str) -> Command {
    fs::create_dir_all(HOME).expect("a group");
    // The shell goes home, then becomes the program: it has never been anywhere else.
    let mut command = Command::new("sh");
    let program = example("in_partition").display().to_string();
    command.args(["-c", &format!("echo $$ >{HOME}/cgroup.procs && exec {program} {line}")]);
    command
}

impl Program {
    #[track_caller]
    fn start(line: &str) -> Self {
        Self::of(&mut command(line))
    }

    #[track_caller]
    fn of(command: &mut Command) -> Self {
        Self::begun(command).unwrap_or_else(|why| panic!("no two numbers: {why}"))
    }

    /// In partition `a`, beside others: who finds the lock taken for 10 s tries again.
    #[track_caller]
    fn start_beside_others() -> Self {
        loop {
            match Self::begun(command("a thread fifo:1").stderr(Stdio::piped())) {
                Ok(program) => return program,
                Err(why) => assert!(why.contains("try again later"), "{why}"),
            }
        }
    }

    /// Errors: what it said in place of its numbers.
    fn begun(command: &mut Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let words = BufReader::new(child.stdout.take().expect("piped"));
        let mut program = Self { child, words, process: 0, thread: 0 };
        let line = program.line();
        let numbers: Vec<u32> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [process, thread] = numbers[..] else {
            let said = program.child.stderr.take().map(std::io::read_to_string);
            return Err(format!("{line}{}", said.and_then(Result::ok).unwrap_or_default()));
        };
        (program.process, program.thread) = (process, thread);
        Ok(program)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.words.read_line(&mut line).expect("words");
        line.trim().to_owned()
    }

    /// Has its thread end; the process goes on. Returns what it says of it.
    fn end_thread(&mut self) -> String {
        use std::io::Write;
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        self.line()
    }

    fn group(&self) -> String {
        read(format!("/proc/{}/cgroup", self.process))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir(HOME);
    }
}

/// Runs the example where it must fail.
fn refused(command: &mut Command) -> Called {
    let output = command.stdin(Stdio::null()).output().expect("the example starts");
    called("(in_partition)", output).code(1)
}

/// The CPU that a thread ran on last.
fn cpu_of(program: &Program) -> String {
    let stat = read(format!("/proc/{}/task/{}/stat", program.process, program.thread));
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(36))
        .unwrap_or_default()
        .to_owned()
}

fn thread_alone() {
    asmp("create a --cpus 3").done();
    let mut program = Program::start("a thread fifo:77");
    assert_eq!((allowed(program.thread).as_str(), allowed(program.process).as_str()), ("3", "0-2"));
    assert_eq!(cpu_of(&program), "3");
    let policy = policy(program.thread);
    assert!(policy.contains("SCHED_FIFO") && policy.contains("priority: 77"), "{policy}");
    asmp("status").done().says("axis fifo:77");
    // A second program beside it.
    let other = Program::start("a thread rr:5");
    assert_eq!(allowed(other.thread), "3");
    asmp("status").done();
    assert_eq!(program.end_thread(), "ran on CPU 3");
}

fn whole_process() {
    asmp("create a --cpus 3").done();
    let program = Program::start("a process fifo:10");
    assert_eq!((allowed(program.thread).as_str(), allowed(program.process).as_str()), ("3", "3"));
    asmp("status").done();
    let remove = format!("remove a --pid {}", program.process);
    asmp(&remove).code(39).says("axis");
    asmp(&format!("{remove} --force")).done();
    assert_eq!(program.group(), "0::/home");
    assert_eq!(
        (allowed(program.thread).as_str(), allowed(program.process).as_str()),
        ("0-2", "0-2")
    );
}

fn deadline() {
    asmp("create a --cpus 3").done();
    let program = Program::start("a process deadline:1ms/50ms/100ms");
    assert!(policy(program.thread).contains("SCHED_DEADLINE"), "{}", policy(program.thread));
    assert_eq!(allowed(program.thread), "3");
    asmp("status").done();
}

fn stays() {
    asmp("create a --cpus 3").done();
    asmp("create b --cpus 2").done();
    let program = Program::start("a thread fifo:80 busy");
    let thread = program.thread;
    for line in ["destroy a", &format!("remove a --pid {}", program.process)] {
        asmp(line).code(39).says(&thread.to_string()).says("--force");
        assert!(policy(thread).contains("SCHED_FIFO"), "{line}");
        assert_eq!(allowed(thread), "3", "{line}");
    }
    drop(program);
    for who in ["tid", "pid"] {
        let program = Program::start("a thread fifo:80 busy");
        let number = if who == "tid" { program.thread } else { program.process };
        asmp(&format!("remove a --{who} {number} --force")).done();
        let policy = policy(program.thread);
        assert!(policy.contains("SCHED_OTHER"), "{who}: {policy}");
        assert_eq!(program.group(), "0::/home", "{who}");
        let allowed = (allowed(program.thread), allowed(program.process));
        assert_eq!(
            allowed,
            ("0-1".to_owned(), "0-1".to_owned()),
            "{who}: the whole process is out"
        );
    }
    let program = Program::start("a thread fifo:80 busy");
    asmp("destroy a --force").done().says("SCHED_OTHER");
    assert!(policy(program.thread).contains("SCHED_OTHER"), "{}", policy(program.thread));
    assert_eq!(program.group(), "0::/home", "not to where asmp was called from");
    assert_eq!(
        (allowed(program.thread).as_str(), allowed(program.process).as_str()),
        ("0-1,3", "0-1,3"),
        "the partition's CPU is the system's again, and the whole process may use it"
    );
}

fn ended() {
    asmp("create a --cpus 3").done();
    let mut program = Program::start("a thread fifo:80 busy");
    assert_eq!(program.end_thread(), "ran on CPU 3");
    asmp("status").done();
    assert_eq!(program.group(), format!("0::{}/a/rest", base()));
    assert_eq!(allowed(program.process), "0-2");
    asmp("destroy a").done();
    assert_eq!((program.group().as_str(), allowed(program.process).as_str()), ("0::/home", "0-3"));
}

fn run_inside() {
    let program = example("in_partition").display().to_string();
    let shell = format!("echo | {program} x thread fifo:42; grep . /proc/self/cgroup");
    asmp(&format!("run --name x --cpus 3 -- sh -c '{shell}'"))
        .done()
        .says("ran on CPU 3")
        .says(&format!("0::{}/x/rt", base()));
}

fn refusals() {
    refused(&mut command("a thread"))
        .says("no partition a: there are none")
        .says("asmp create a --cpus N")
        .says("asmp run --name a --cpus N -- PROGRAM");
    asmp("create a --cpus 3").done();
    asmp("create b --cpus 2").done();
    refused(&mut command("c thread")).says("known are: a, b");
    // No permission: nobody may change groups.
    let nobody = format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups {} a thread",
        example("in_partition").display()
    );
    refused(Command::new("sh").args(["-c", &nobody])).says("no permission to enter partition a");
    // Inside another one.
    asmp(&format!("exec b -- {} a thread", example("in_partition").display()))
        .code(1)
        .says("is already in partition b")
        .says("asmp remove b --pid");
    // A policy that is refused after the way in was open: back home, and no record is left.
    asmp("destroy b").done();
    let first = Program::start("a process deadline:60ms/100ms/100ms");
    let before = read("/run/asmp/state.json");
    refused(&mut command("a process deadline:60ms/100ms/100ms")).says("does not admit");
    assert_eq!(read("/run/asmp/state.json"), before, "no record is left");
    assert_eq!(threads_in("a/rt"), format!("{}\n{}", first.process, first.thread));
    assert_eq!(threads_in("a/rest"), "");
    asmp("status").done();
}

fn many_at_once() {
    asmp("create a --cpus 3").done();
    let start = || std::thread::spawn(Program::start_beside_others);
    let starting: Vec<_> = (0..6).map(|_| start()).collect();
    until_free("resize a --cpus 2-3").done();
    let programs: Vec<Program> =
        starting.into_iter().map(|one| one.join().expect("it started")).collect();
    let state = read("/run/asmp/state.json");
    for program in &programs {
        let known = [',', '}']
            .iter()
            .any(|end| state.contains(&format!("\"tid\":{}{end}", program.process)));
        assert!(known, "{} in {state}", program.process);
        assert_eq!(allowed(program.thread), "2-3");
    }
    asmp("destroy a --force").done();
    for program in &programs {
        assert_eq!(program.group(), "0::/home");
    }
}

fn killed() {
    asmp("create a --cpus 3").done();
    for turn in 0..20u64 {
        let mut child = command("a thread fifo:80")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the example starts");
        // Spread over the whole way in, which takes some tens of milliseconds in a guest.
        std::thread::sleep(std::time::Duration::from_millis(5 * turn));
        child.kill().expect("it is there");
        child.wait().expect("it ends");
        asmp("status").done();
    }
    until("the dead have left", || {
        threads_in("a/rt").is_empty() && threads_in("a/rest").is_empty()
    });
    let program = Program::start("a thread fifo:80");
    let state = read("/run/asmp/state.json");
    assert_eq!(state.matches("in_partition").count(), 1, "records of the dead are gone: {state}");
    drop(program);
    asmp("destroy a").done();
}
