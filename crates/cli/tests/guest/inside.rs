// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands from inside a partition, commands that are killed there, and tasks that a file
//! declares.

use super::guests::On;
use super::lab::{Process, Test, allowed, asmp, binary, isolated, policy, test, until};
use super::lost::inside;
use super::others::sh;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn all() -> Vec<Test> {
    vec![
        test("inside: a command may end the partition that it runs in", ends_its_own).on(On::One),
        test(
            "inside: a run whose partition a file declares meanwhile says that it stays",
            declared,
        )
        .on(On::One),
        test("inside: a command that is killed leaves nothing", killed_outright).on(On::One),
        test("inside: a run that is killed with all of its group can be restored", group_killed)
            .on(On::One),
        test("inside: a daemon that a run leaves behind is an ordinary task", daemon).on(On::One),
        test("inside: a file gives all threads of its tasks their policy and takes it back", file)
            .on(On::OnePerSeries),
    ]
}

fn ends_its_own() {
    for end in ["destroy a", "restore"] {
        let script = format!("run --cpus 3 --name a -- sh -c '{} {end}'", binary().display());
        asmp(&script).done();
        assert_eq!(isolated(), "", "{end}");
        asmp("status").done();
    }
    asmp("create a --cpus 3").done();
    let program = binary().display().to_string();
    let script = format!("exec a -- sh -c '{program} destroy a; grep list /proc/self/status'");
    asmp(&script).done().says("Cpus_allowed_list:\t0-3");
    assert_eq!(isolated(), "");
}

fn declared() {
    const FILE: &str = "/tmp/declared.toml";
    fs::write(FILE, "[[partition]]\nname = 'a'\ncpus = '3'\n").expect("/tmp");
    let program = binary().display().to_string();
    let line = |end: &str| format!("run --cpus 3 --name a -- sh -c '{program} apply {FILE}{end}'");
    asmp(&line("")).done().says("asmp: partition a stays: a file of `asmp apply`");
    assert_eq!(isolated(), "3");
    asmp("status").done().says("a: CPU 3: shielded");
    asmp("destroy a").done();
    asmp(&line(&format!("; {program} destroy a")))
        .done()
        .says("asmp: partition a was destroyed while the command ran");
    fs::remove_file(FILE).expect("/tmp");
}

fn killed_outright() {
    asmp("run --cpus 3 -- sh -c 'kill -KILL $$'").code(137);
    assert_eq!(isolated(), "");
    asmp("status").done();
}

fn group_killed() {
    let mut run = Command::new(binary());
    run.args(["run", "--cpus", "3", "--name", "a", "--", "sleep", "1000"]);
    let run = run.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).spawn();
    let mut run = run.expect("asmp starts");
    until("the command runs", || inside("sleep").is_some());
    sh(&format!("kill -KILL -{}", run.id())).done();
    run.wait().expect("it ends");
    asmp("status").code(7).says("killed before it could clean up");
    asmp("restore").done();
    assert_eq!(isolated(), "");
    asmp("status").done();
}

fn daemon() {
    const PID: &str = "/tmp/daemon.pid";
    // Forked twice, with a session of its own and nothing open, as daemon(7) says.
    let script = format!(
        "run --cpus 3 --policy fifo:50 -- sh -c '(setsid sh -c \"echo \\$\\$ >{PID}; exec sleep \
         1000 <&- >&- 2>&-\" &) ; while [ ! -s {PID} ]; do sleep 0.01; done'"
    );
    sh(&format!("rm -f {PID}")).done();
    asmp(&script).done();
    let pid: u32 = fs::read_to_string(PID).expect("a number").trim().parse().expect("a number");
    assert!(policy(pid).contains("SCHED_OTHER"), "{}", policy(pid));
    assert_eq!((allowed(pid).as_str(), isolated().as_str()), ("0-3", ""));
    sh(&format!("kill {pid}; rm {PID}")).done();
}

fn file() {
    const FILE: &str = "/tmp/declared.toml";
    // Each wakes often: the kernel refuses SCHED_DEADLINE to one that has slept since it moved.
    const TWO: &str = "import threading, time
def wakes():
    while True:
        time.sleep(0.02)
open('/proc/self/comm', 'w').write('declared')
threading.Thread(target=wakes, daemon=True).start()
wakes()";
    let process = Process::start("python3", &["-c", TWO]);
    let threads = || -> Vec<u32> {
        let entries = fs::read_dir(format!("/proc/{}/task", process.id())).into_iter().flatten();
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let has_name = || {
        fs::read_to_string(format!("/proc/{}/comm", process.id()))
            .is_ok_and(|it| it == "declared\n")
    };
    until("two threads of that name", || has_name() && threads().len() == 2);
    let text = |policy: &str| {
        format!(
            "[[partition]]\nname = \"a\"\ncpus = \"3\"\n[[partition.task]]\ncommand = \
             \"declared\"\npolicy = \"{policy}\"\n"
        )
    };
    let all = |policy_of: &str, cpus: &str| {
        for tid in threads() {
            assert!(policy(tid).contains(policy_of), "{tid}: {}", policy(tid));
            assert_eq!(allowed(tid), cpus, "{tid}");
        }
    };
    fs::write(FILE, text("fifo:50")).expect("a file");
    asmp(&format!("apply {FILE}")).done();
    all("SCHED_FIFO", "3");
    asmp("status").done();
    asmp(&format!("apply {FILE}")).done().says("(0 changes");
    // Both have run inside by then.
    std::thread::sleep(Duration::from_millis(500));
    fs::write(FILE, text("deadline:40ms/100ms/100ms")).expect("a file");
    asmp(&format!("apply {FILE}")).done();
    all("SCHED_DEADLINE", "3");
    fs::write(FILE, text("fifo:50")).expect("a file");
    asmp(&format!("apply {FILE}")).done();
    // No bandwidth is left for the second thread: the first gets its policy back.
    fs::write(FILE, text("deadline:60ms/100ms/100ms")).expect("a file");
    asmp(&format!("apply {FILE}")).code(42);
    all("SCHED_FIFO", "3");
    asmp("status").done();
    // It came as an ordinary process, and asmp made it a real-time one.
    asmp("destroy a").done();
    all("SCHED_OTHER", "0-3");
    assert_eq!(isolated(), "");
    fs::remove_file(FILE).expect("it is there");
}
