// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user who is not root runs programs on the CPUs that /etc/asmp/policy.toml grants, and is
//! refused everything else.

use super::asked::{NOBODY, SOCKET};
use super::drift::tty_irq;
use super::guests::{Boot, On};
use super::held::Daemon;
use super::lab::{Called, Process, Test, asmp, binary, isolated, read, test, until};
use super::others::{Machine, sh};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let granted = |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Bare]);
    vec![
        granted("granted: a user runs a command on the cpu that a file grants", run),
        granted("granted: what a file does not grant is refused", refused),
        granted("granted: the partition of a user ends with its asmp, its time or its asmpd", ends),
        granted(
            "granted: a task that is taken out of its partition is real-time no more",
            taken_out,
        ),
        granted("granted: what starts others while its partition ends leaves as they are", chains),
        granted("granted: a user who tries everything else gets nothing", attempts),
        granted(
            "granted: users who ask for partitions without end keep asmpd from no repair",
            flood,
        ),
    ]
}

/// /etc/asmp/policy.toml; gone when dropped.
struct Policy;

impl Policy {
    fn new(rest: &str) -> Self {
        fs::create_dir_all("/etc/asmp").expect("a directory");
        let text = format!("[[grant]]\nusers = ['nobody']\n{rest}\n");
        fs::write("/etc/asmp/policy.toml", text).expect("a file");
        Self
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        let _ = fs::remove_file("/etc/asmp/policy.toml");
        let _ = fs::remove_dir("/etc/asmp");
    }
}

const CPU_3: &str = "cpus = '3'\npolicy = 'fifo:50'";

/// `asmp` of a user who owns nothing.
fn as_user(line: &str) -> Called {
    sh(&format!("{NOBODY} {} {line}", binary().display()))
}

/// The same, started; killed when dropped.
fn spawn_as_user(line: &str) -> Process {
    let mut words = NOBODY.split(' ').map(str::to_owned).collect::<Vec<_>>();
    words.push(binary().display().to_string());
    words.extend(line.split(' ').map(str::to_owned));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    Process(command.spawn().expect("asmp starts"))
}

/// Processes with this command line.
fn pids(pattern: &str) -> Vec<i32> {
    let found = sh(&format!("pgrep -f '^{pattern}$'")).out;
    found.lines().filter_map(|line| line.parse().ok()).collect()
}

fn policy_of(pid: i32) -> String {
    let words = sh(&format!("chrt -p {pid}")).out;
    words.lines().map(|line| line.rsplit(' ').next().unwrap_or("")).collect::<Vec<_>>().join(" ")
}

fn cpus_of(pid: i32) -> String {
    let status = read(format!("/proc/{pid}/status"));
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

fn run() {
    let machine = Machine::now();
    let _policy = Policy::new(CPU_3);
    let daemon = Daemon::start();
    let told = as_user(
        "run --cpus 3 --policy fifo:50 -- sh -c 'grep -h ^Cpus_allowed_list /proc/self/status; \
         chrt -p $$; id -u; exit 7'",
    )
    .code(7);
    for words in ["Cpus_allowed_list:\t3\n", "SCHED_FIFO", "priority: 50", "65534\n"] {
        assert!(told.out.contains(words), "{words}: {} {}", told.out, told.err);
    }
    let may = "you may `asmp run` on CPU 3: at most fifo:50, 1 partition at a time\n";
    as_user("status").done().says(may);
    // asmp chooses among what is granted; the command has no more than it asked for.
    let told = as_user("run --count 1 -- sh -c 'grep -h ^Cpus_allowed_list /proc/self/status'");
    assert_eq!(told.done().out, "Cpus_allowed_list:\t3\n");
    let events = asmp("events").done().out;
    for words in ["made for user 65534: CPU 3, at most fifo:50", "ended: its user is done"] {
        assert!(events.contains(words), "{words}: {events}");
    }
    let mut running = spawn_as_user("run --cpus 3 --policy rr:9 -- sleep 1000");
    until("the command is inside", || pids("sleep 1000").iter().any(|pid| cpus_of(*pid) == "3"));
    asmp("status").done().says("user 65534: asmp run -- sleep 1000").says("sleep rr:9 on CPU 3");
    sh(&format!("kill -INT {}", running.id())).done();
    assert_eq!(running.0.wait().expect("it ends").code(), Some(130));
    assert_eq!(isolated(), "");
    daemon.ends();
    drop(_policy);
    machine.is_as_it_was("after a user ran commands");
}

fn refused() {
    as_user("run --cpus 3 -- true").code(10).says("start asmpd");
    let daemon = Daemon::start();
    as_user("run --cpus 3 -- true").code(29).says("names neither user 65534 nor a group");
    let policy = Policy::new(CPU_3);
    for (line, code, words) in [
        ("run --cpus 2 -- true", 29, "CPU 2 is not granted: user 65534 may use CPU 3"),
        ("run --cpus 2-3 -- true", 29, "CPU 2-3 is not granted"),
        ("run --cpus 3 --policy fifo:51 -- true", 29, "policy fifo:51 is not granted"),
        ("run --cpus 3 --policy deadline:1ms/5ms/10ms -- true", 29, "is not granted"),
        ("run --count 2 -- true", 29, "is not granted"),
        ("run --cpus 3 --irq 4 -- true", 29, "an IRQ line is not granted"),
        ("run --cpus 3 --tick require-off -- true", 29, "to count ticks"),
        ("run --cpus 3 --name motion -- true", 2, "begins with \"run-\""),
        ("run --cpus 3 -- /nowhere", 127, "/nowhere"),
        ("create a --cpus 3", 10, "only root"),
        ("destroy a", 10, "only root"),
        ("exec a -- true", 10, "only root"),
    ] {
        let called = as_user(line).code(code);
        assert!(called.err.contains(words), "{line}: {}", called.err);
        assert_eq!(isolated(), "", "{line}");
    }
    asmp("create a --cpus 3").done();
    as_user("run --cpus 3 -- true").code(22).says("already belongs to partition a");
    asmp("destroy a").done();
    asmp("check").says("asmpd: running").says("policy of users: /etc/asmp/policy.toml");
    sh("chmod 666 /etc/asmp/policy.toml").done();
    asmp("check").says("it grants nothing").says("users other than root may write to it");
    as_user("run --cpus 3 -- true").code(40).says("users other than root may write to it");
    drop(policy);
    daemon.ends();
}

fn ends() {
    let machine = Machine::now();
    let policy = Policy::new(CPU_3);
    let daemon = Daemon::start();
    let inside = |pattern: &str| {
        until("the command is inside", || pids(pattern).iter().any(|pid| cpus_of(*pid) == "3"));
        pids(pattern)[0]
    };
    let goes_on_outside = |pid: i32| {
        until("the partition has ended", || isolated().is_empty());
        until("the command is outside", || cpus_of(pid) == "0-3");
        assert!(policy_of(pid).starts_with("SCHED_OTHER 0"), "{}", policy_of(pid));
        sh(&format!("kill {pid}")).done();
    };
    // The user's asmp is killed.
    let killed = spawn_as_user("run --cpus 3 --policy fifo:50 -- sleep 1001");
    let pid = inside("sleep 1001");
    assert_eq!(policy_of(pid), "SCHED_FIFO 50");
    sh(&format!("kill -KILL {}", killed.id())).done();
    drop(killed);
    goes_on_outside(pid);
    // asmpd starts again meanwhile: the partition stays, and ends with its asmp.
    let mut running = spawn_as_user("run --cpus 3 --policy fifo:50 -- sleep 1002");
    let pid = inside("sleep 1002");
    let (_, told) = daemon.ends();
    // Its connection and its process end at the same time.
    let why = ["its client is gone", "its process has ended"];
    assert!(why.iter().any(|why| told.contains(&format!("ended: {why}"))), "{told}");
    assert_eq!(isolated(), "3");
    let daemon = Daemon::start();
    assert_eq!((isolated().as_str(), policy_of(pid).as_str()), ("3", "SCHED_FIFO 50"));
    sh(&format!("kill {pid}")).done();
    assert_eq!(running.0.wait().expect("it ends").code(), Some(143));
    assert_eq!(isolated(), "");
    // The same, and asmp is killed: this asmpd has no connection of it.
    let killed = spawn_as_user("run --cpus 3 -- sleep 1005");
    let pid = inside("sleep 1005");
    let (_, _) = daemon.ends();
    let daemon = Daemon::start();
    assert_eq!(isolated(), "3");
    sh(&format!("kill -KILL {}", killed.id())).done();
    drop(killed);
    goes_on_outside(pid);
    // The same, and asmp was killed while no asmpd ran.
    let killed = spawn_as_user("run --cpus 3 -- sleep 1003");
    let pid = inside("sleep 1003");
    let (_, _) = daemon.ends();
    sh(&format!("kill -KILL {}", killed.id())).done();
    drop(killed);
    let daemon = Daemon::start();
    goes_on_outside(pid);
    let (_, told) = daemon.ends();
    assert!(told.contains("ended: its process has ended"), "{told}");
    drop(policy);
    // Its time is over.
    let policy = Policy::new(&format!("{CPU_3}\ntime = '5s'"));
    let daemon = Daemon::start();
    let mut running = spawn_as_user("run --cpus 3 --policy fifo:50 -- sleep 1004");
    let pid = inside("sleep 1004");
    goes_on_outside(pid);
    assert_eq!(running.0.wait().expect("it ends").code(), Some(143));
    let (_, told) = daemon.ends();
    assert!(told.contains("ended: its time is over"), "{told}");
    drop(policy);
    machine.is_as_it_was("after partitions of a user ended");
}

/// As systemd does for a user: the child is no member that asmpd knows by its number.
fn taken_out() {
    let policy = Policy::new(CPU_3);
    let mut daemon = Daemon::start();
    let children = "sleep 1011 & sleep 1012 & sleep 1013 & wait";
    fs::write("/tmp/children", children).expect("a file");
    let mut running = spawn_as_user("run --cpus 3 --policy fifo:50 -- sh /tmp/children");
    let child = |seconds: i32| {
        let pattern = format!("sleep {seconds}");
        until("the child is inside", || pids(&pattern).iter().any(|pid| cpus_of(*pid) == "3"));
        let pid = pids(&pattern)[0];
        assert_eq!(policy_of(pid), "SCHED_FIFO 50");
        pid
    };
    let take = |pid: i32| {
        fs::write("/sys/fs/cgroup/cgroup.procs", pid.to_string()).expect("it is moved");
        assert_eq!(cpus_of(pid), "0-2");
        pid
    };
    let is_other = |pid: i32| policy_of(pid).starts_with("SCHED_OTHER 0");
    let one = take(child(1011));
    until("it is SCHED_OTHER", || is_other(one));
    let told = format!("task {one} (sleep) was taken out to /: SCHED_OTHER now, it was fifo:50");
    until("it is told", || asmp("events").done().out.contains(&told));
    // While no asmpd runs.
    daemon.ends();
    let two = take(child(1012));
    assert_eq!(policy_of(two), "SCHED_FIFO 50");
    daemon = Daemon::start();
    until("it is SCHED_OTHER", || is_other(two));
    // The others keep theirs.
    child(1013);
    sh(&format!("kill -INT {}", running.id())).done();
    let _ = running.0.wait();
    daemon.ends();
    drop(policy);
    sh("pkill -x sleep");
}

/// Threads that start the next one and end, processes that do the same, until the file is there.
const CHAINS: &str = r#"
import ctypes, os, signal, sys, threading, time
# Nothing stays of those that have ended.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
assert ctypes.CDLL(None).prctl(36, 1) == 0, "PR_SET_CHILD_SUBREAPER"
def goes_on():
    return not os.path.exists(sys.argv[1])
# Without a pause a PREEMPT_RT guest hung: see LIMITS.md.
def thread():
    time.sleep(0.002)
    while goes_on():
        try: return threading.Thread(target=thread).start()
        except RuntimeError: time.sleep(0.01)
for _ in range(2):
    if os.fork() == 0:
        while goes_on():
            time.sleep(0.002)
            if os.fork(): os._exit(0)
        os._exit(0)
for _ in range(2): threading.Thread(target=thread).start()
open(sys.argv[2], "w").close()
while goes_on(): time.sleep(0.1)
"#;

fn chains() {
    let _policy = Policy::new(CPU_3);
    let daemon = Daemon::start();
    let (program, stop, began) = ("/tmp/chains.py", "/tmp/stop", "/tmp/began");
    fs::write(program, CHAINS).expect("a file");
    let line = format!("python3 {program} {stop} {began}");
    for turn in 0..10 {
        let _ = (fs::remove_file(stop), fs::remove_file(began));
        let running = spawn_as_user(&format!("run --cpus 3 --policy fifo:50 -- {line}"));
        until("they have begun", || Path::new(began).exists());
        sh(&format!("kill -KILL {}", running.id())).done();
        drop(running);
        until("the partition has ended", || isolated().is_empty());
        // Not those that have ended already.
        let left =
            sh("ps -eLo uid=,cls=,stat=,tid=,args= | grep -E '^ *65534 +(FF|RR) +[^Z ]'").out;
        assert_eq!(left, "", "turn {turn}");
        assert!(!pids(&line).is_empty(), "they were not killed");
        fs::write(stop, "").expect("a file");
        until("they end", || pids(&line).is_empty());
    }
    let (_, told) = daemon.ends();
    // Its client is gone, or its process has ended: whichever asmpd hears of first.
    assert_eq!(told.matches(": ended: its ").count(), 10, "{told}");
    for words in ["cannot be ended", "was taken out"] {
        assert!(!told.contains(words), "{told}");
    }
}

/// Prints `wrong: …` for what was not refused, then `tried N`.
const ATTEMPTS: &str = r#"
import json, os, socket, subprocess, sys, time
path, root_task, setuid = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
tried = 0
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect(path); return s
def ask(s, method, **parameters):
    message = {"method": "org.asmp.Partitions." + method, "parameters": parameters}
    s.sendall(json.dumps(message).encode() + b"\0")
    reply = b""
    while not reply.endswith(b"\0"):
        part = s.recv(4096)
        if not part: return {"error": "closed"}
        reply += part
    return json.loads(reply[:-1])
def refused(what, reply):
    global tried
    tried += 1
    if "error" not in reply: print("wrong:", what, reply, flush=True)
def group(pid):
    return open(f"/proc/{pid}/cgroup").read()
run = dict(cpus="3", policy="fifo:50", command="x")
for name in ("motion", "a", "", "run-/../a", "run-a b", "run-" + "x" * 100, "holder", "run-\n"):
    refused("the name " + repr(name), ask(connect(), "Run", name=name, **run))
for more in ({"owner": {"tid": 1, "start_ticks": 0}}, {"uid": 0}, {"irqs": ["4"]},
             {"pid": root_task}, {"grant": {}}, {"cpus": "0"}, {"cpus": "0-3"}, {"cpus": "all"},
             {"cpus": "all-but 0"},
             {"cpus": "last:2"}, {"cpus": ""}, {"cpus": "3", "count": 1}, {"policy": "fifo:99"},
             {"policy": "deadline:1ms/5ms/10ms"}, {"tick": "require-off"}):
    refused(str(more), ask(connect(), "Run", **{"name": "run-x", **run, **more}))
for name in ("a", "run-x", "b"):
    refused("enter " + name, ask(connect(), "Enter", name=name, policy="other", command="x"))
    refused("end " + name, ask(connect(), "End", name=name))
before = group(os.getpid())
# One of its own, to try the rest from.
own = connect()
made = ask(own, "Run", name="run-own", **run)
assert "error" not in made, made
refused("a second one", ask(connect(), "Run", name="run-two", **run))
refused("more than asked for",
        ask(connect(), "Enter", name="run-own", policy="fifo:51", command="x"))
refused("another's", ask(connect(), "Enter", name="a", policy="other", command="x"))
# A connection of a process that has ended.
theirs, ours = socket.socketpair(socket.AF_UNIX)
pid = os.fork()
if pid == 0:
    s = connect()
    socket.send_fds(theirs, [b"x"], [s.fileno()])
    os._exit(0)
_, fds, _, _ = socket.recv_fds(ours, 1, 1)
os.waitpid(pid, 0)
refused("a process that has ended",
        ask(socket.socket(fileno=fds[0]), "Enter", name="run-own", policy="other", command="x"))
# A connection of a process that has become root since, by a setuid program.
pid = os.fork()
if pid == 0:
    s = connect()
    socket.send_fds(theirs, [b"x"], [s.fileno()])
    os.execv(setuid, [setuid, "1000"])
_, fds, _, _ = socket.recv_fds(ours, 1, 1)
for _ in range(3000):
    if "Uid:\t65534\t0" in open(f"/proc/{pid}/status").read(): break
    time.sleep(0.01)
else: print("wrong: no setuid program runs here", flush=True)
refused("a setuid program",
        ask(socket.socket(fileno=fds[0]), "Enter", name="run-own", policy="fifo:50", command="x"))
if "asmp" in group(pid): print("wrong: a setuid program is inside:", group(pid), flush=True)
os.kill(pid, 9)
os.waitpid(pid, 0)
if group(os.getpid()) != before: print("wrong: this process was moved", flush=True)
# No way to hand a root process in by its number, nor to write to the groups.
for file in ("cgroup.procs", "cgroup.threads"):
    tried += 1
    try:
        open(f"/sys/fs/cgroup/asmp/run-own/rt/{file}", "w")
        print("wrong:", file, "opens", flush=True)
    except PermissionError: pass
# It stays on its CPU, and does not become more than it was granted.
if "error" in ask(connect(), "Enter", name="run-own", policy="fifo:50", command="x"):
    print("wrong: it was not let in", flush=True)
assert os.sched_getscheduler(0) == os.SCHED_FIFO
for what, attempt in (
    ("a higher priority", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(51))),
    ("a system CPU", lambda: os.sched_setaffinity(0, {0})),
    ("the root group", lambda: open("/sys/fs/cgroup/cgroup.procs", "w")),
):
    tried += 1
    try:
        attempt()
        print("wrong:", what, "was allowed", flush=True)
    except OSError: pass
ended = ask(own, "End", name="run-own")
if "error" in ended or os.sched_getscheduler(0) != os.SCHED_OTHER:
    print("wrong: it did not end:", ended, flush=True)
print("tried", tried, flush=True)
"#;

fn attempts() {
    let _policy = Policy::new(CPU_3);
    let daemon = Daemon::start();
    asmp("create a --cpus 1").done();
    let task = Process::start("sleep", &["1005"]);
    asmp(&format!("add a --pid {}", task.id())).done();
    // The guest's /tmp may forbid setuid programs.
    let setuid = Path::new("/usr/local/bin/setuid-sleep");
    sh(&format!("cp \"$(readlink -f /usr/bin/sleep)\" {0} && chmod 4755 {0}", setuid.display()))
        .done();
    let script = std::env::temp_dir().join("attempts.py");
    fs::write(&script, ATTEMPTS).expect("a script");
    let line = format!("python3 {} {SOCKET} {} {}", script.display(), task.id(), setuid.display());
    let told = sh(&line);
    println!("{}", told.out);
    assert!(!told.out.contains("wrong:"), "{} {}", told.out, told.err);
    assert!(told.out.contains("tried "), "{} {}", told.out, told.err);
    asmp("status").done();
    assert_eq!(isolated(), "1");
    assert_eq!(cpus_of(task.id() as i32), "1");
    daemon.ends();
    let _ = fs::remove_file(setuid);
}

/// Makes and ends partitions as fast as asmpd does it.
const FLOOD: &str = r#"
import json, socket, sys, os
name = "run-%d" % os.getpid()
while True:
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
    for method, more in (("Run", {"cpus": "3", "policy": "fifo:50", "command": "x"}), ("End", {})):
        message = {"method": "org.asmp.Partitions." + method, "parameters": {"name": name, **more}}
        s.sendall(json.dumps(message).encode() + b"\0")
        s.recv(4096)
    s.close()
"#;

fn flood() {
    let _policy = Policy::new(CPU_3);
    asmp("create a --cpus 2").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    let script = std::env::temp_dir().join("flood.py");
    fs::write(&script, FLOOD).expect("a script");
    let words: Vec<&str> = NOBODY.split(' ').collect();
    let script = script.display().to_string();
    let flooding: Vec<Process> = (0..3)
        .map(|_| Process::start(words[0], &[&words[1..], &["python3", &script, SOCKET]].concat()))
        .collect();
    until("they make partitions", || daemon.told().matches("made for user").count() > 2);
    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        let began = Instant::now();
        fs::write(&file, "2").expect("the line takes CPU 2");
        until("it is repaired", || !["2", "0-3"].contains(&read(&file).as_str()));
        worst = worst.max(began.elapsed());
    }
    let made = daemon.told().matches("made for user").count();
    println!("  repaired after at most {} ms, beside {made} partitions", worst.as_millis());
    assert!(worst < Duration::from_secs(20), "{worst:?}");
    drop(flooding);
    until("the last one has ended", || isolated() == "2");
    until("all is well", || asmp("status").code == 0);
    daemon.ends();
}
