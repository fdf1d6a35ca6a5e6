// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user without rights (65534) beside partitions of root: it tries each row of this list and gets
//! nothing. What it keeps open or locked meanwhile stops no command of root. Channels have a list
//! of their own, `crates/channel/tests/stranger`, which runs here too.
//!
//! | area | what the stranger tries | what it gets |
//! |---|---|---|
//! | state | write, replace, remove, rename, chmod a file of /run/asmp, or the directory | EACCES, EPERM |
//! | state | open the lock | EACCES |
//! | state | hold /run/asmp and the state locked | the locks; root changes partitions all the same |
//! | groups | write each file of each group, make and remove groups | EACCES |
//! | groups | hold the groups locked | the locks; root makes and ends partitions all the same |
//! | groups | mark a group as asmp's, or take the mark off | EACCES |
//! | groups | take itself into a partition | EACCES |
//! | tasks | stop, kill, move, slow down, lower a task of root inside | EPERM |
//! | tasks | run on a shielded CPU, be real-time | EINVAL, EPERM |
//! | machine | IRQ lines, hotplug, sysctls, workqueues; debugfs and tracefs, which are closed | EACCES |
//! | device | open /dev/rtfN | EACCES |
//! | asmp | commands that change partitions | exit 10: be root |

use super::device;
use super::guests::{Boot, On};
use super::held::Daemon;
use super::lab::{Process, Test, asmp, binary, called, example, read, test};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

pub fn all() -> Vec<Test> {
    let bare = |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Bare]);
    vec![
        bare("stranger: a user without rights gets nothing of a partition", gets_nothing)
            .lacks(device::no_cuse),
        bare("stranger: nor of a channel of root, here too", channels),
        bare("stranger: groups that are nested too deep are in no way of root", nested),
    ]
}

/// Prints `wrong: …` for what was not refused as it should, then `tried N`, and holds what it has.
const ATTEMPTS: &str = r#"
import errno, fcntl, os, signal, sys, time
inside = int(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
tried = 0
def refused(what, reasons, attempt):
    global tried
    tried += 1
    try:
        attempt()
        print("wrong:", what, "was allowed", flush=True)
    except OSError as error:
        if error.errno not in reasons:
            print("wrong:", what, error, flush=True)
def write(path):
    refused("write " + path, [errno.EACCES], lambda: os.open(path, os.O_WRONLY))
DENIED = [errno.EACCES, errno.EPERM]
RUN = "/run/asmp"
for name in os.listdir(RUN):
    path = f"{RUN}/{name}"
    write(path)
    refused("remove " + path, DENIED, lambda: os.unlink(path))
    refused("rename " + path, DENIED, lambda: os.rename(path, RUN + "/other"))
    refused("chmod " + path, DENIED, lambda: os.chmod(path, 0o777))
refused("a file in " + RUN, DENIED, lambda: os.open(RUN + "/journal", os.O_WRONLY | os.O_CREAT))
refused("a link in " + RUN, DENIED, lambda: os.symlink("/etc/passwd", RUN + "/link"))
refused("rename " + RUN, DENIED, lambda: os.rename(RUN, "/run/other"))
refused("chmod " + RUN, DENIED, lambda: os.chmod(RUN, 0o777))
refused("read the lock", DENIED, lambda: os.open(RUN + "/lock", os.O_RDONLY))
held = []
def hold(path):
    held.append(os.open(path, os.O_RDONLY))
    fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
hold(RUN); hold(RUN + "/state.json")
ROOT = "/sys/fs/cgroup"
groups = [ROOT] + [dir for dir, _, _ in os.walk(ROOT + "/asmp")]
assert ROOT + "/asmp/a/rt" in groups, groups
for group in groups:
    for name in sorted(os.listdir(group)):
        path = f"{group}/{name}"
        # Files that root may only read are no less closed.
        if os.path.isfile(path):
            write(path)
    refused("make a group in " + group, DENIED, lambda: os.mkdir(group + "/mine"))
    if group != ROOT:
        refused("remove " + group, DENIED, lambda: os.rmdir(group))
        refused("mark " + group, DENIED, lambda: os.setxattr(group, "user.asmp", b"1"))
        refused("unmark " + group, DENIED, lambda: os.removexattr(group, "user.asmp"))
    hold(group)
# SIGCONT is allowed within a session.
for signal_number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM):
    refused(f"signal {signal_number}", [errno.EPERM], lambda: os.kill(inside, signal_number))
refused("move", [errno.EPERM], lambda: os.sched_setaffinity(inside, {0}))
refused("slow down", DENIED, lambda: os.setpriority(os.PRIO_PROCESS, inside, 19))
refused("lower", [errno.EPERM],
        lambda: os.sched_setscheduler(inside, os.SCHED_OTHER, os.sched_param(0)))
refused("run on CPU 3", [errno.EINVAL], lambda: os.sched_setaffinity(0, {3}))
refused("be real-time", [errno.EPERM],
        lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
for path in ("/proc/irq/default_smp_affinity", "/sys/devices/system/cpu/cpu3/online",
             "/proc/sys/kernel/sched_rt_runtime_us", "/proc/sys/kernel/timer_migration",
             "/sys/kernel/debug/sched/fair_server/cpu3/runtime",
             "/sys/devices/virtual/workqueue/cpumask", "/sys/kernel/tracing/trace_marker",
             *(f"/proc/irq/{irq}/smp_affinity_list" for irq in os.listdir("/proc/irq")
               if irq.isdigit())):
    write(path)
for path in sys.argv[2:]:
    refused("read " + path, [errno.EACCES], lambda: os.open(path, os.O_RDONLY))
    write(path)
print("tried", tried, flush=True)
time.sleep(100000)
"#;

fn gets_nothing() {
    asmp("create a --cpus 3").done();
    let task = Process::start("sleep", &["1000"]);
    asmp(&format!("add a --pid {}", task.id())).done();
    let place = device::Place::new();
    let _server = place.serve("5", "from-rt");
    let child = Command::new("python3")
        .args(["-c", ATTEMPTS, &task.id().to_string(), "/dev/rtf5"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut stranger = Process(child.expect("python3 starts"));
    let said = BufReader::new(stranger.0.stdout.take().expect("piped"));
    let mut lines: Vec<String> = Vec::new();
    for line in said.lines() {
        lines.push(line.expect("a line"));
        if lines.last().is_some_and(|line| line.starts_with("tried")) {
            break;
        }
    }
    let tried = lines.pop().unwrap_or_default();
    assert!(lines.is_empty(), "{lines:#?}");
    let count: u32 = tried.strip_prefix("tried ").expect("it ends").parse().expect("a number");
    assert!(count > 150, "{tried}");
    println!("({tried} things)");
    // It holds its locks now.
    for line in [
        "create b --cpus 2",
        "status",
        "resize b --cpus 1",
        "repair",
        "destroy b",
        "run --cpus 2 -- true",
        "status",
    ] {
        asmp(line).done();
    }
    let state = read("/run/asmp/state.json");
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("asmp");
    fs::copy(binary(), &program).expect("a copy that others may run");
    for open in [dir.path(), &program] {
        fs::set_permissions(open, Permissions::from_mode(0o755)).expect("it is ours");
    }
    for line in [
        "create c --cpus 2",
        "destroy a",
        "resize a --cpus 2-3",
        "add a --pid 1",
        "remove a --pid 1",
        "exec a -- true",
        "run --cpus 2 -- true",
        "repair",
        "restore",
    ] {
        let words = line.split_whitespace();
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(words)
            .output();
        called(line, output.expect("setpriv starts")).code(10).says("root");
    }
    assert_eq!(read("/run/asmp/state.json"), state);
    asmp("status").done();
    asmp("destroy a").done();
    drop(stranger);
}

fn channels() {
    let output =
        Command::new(example("stranger")).args(["--test-threads=1", "--nocapture"]).output();
    let output = output.expect("the test starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = called("the stranger's list of channels", output).done();
    assert!(!text.contains("skipped: "), "{text}{}", said.err);
    assert!(text.contains("2 passed"), "{text}");
}

/// Any user can make such groups in a group of their own (user@UID.service). Root cannot open their
/// files by a path. /proc/PID/cgroup has a part of the first task's path, and all of the others'.
const NEST: &str = r#"
import os, subprocess, sys, time
def nest(names):
    for name in names:
        os.mkdir(name)
        os.chdir(name)
def sleep():
    child = subprocess.Popen(["sleep", "1000"])
    with open("cgroup.procs", "w") as procs:
        procs.write(str(child.pid))
    return child
def leave(names):
    end = time.monotonic() + 120
    for name in reversed(names):
        os.chdir("..")
        while True:
            try:
                os.rmdir(name)
                break
            except OSError:
                assert time.monotonic() < end, name
                time.sleep(0.01)
whole = ["deep"] + ["d" * 240] * 16
os.chdir("/sys/fs/cgroup")
nest(whole)
nest(["e" * 214])
second = sleep()
os.chdir("..")
nest(["f" * 205])
third = sleep()
os.chdir("..")
nest(["d" * 240] * 2)
first = sleep()
print(first.pid, second.pid, third.pid, flush=True)
sys.stdin.read()
for child in (first, second, third):
    child.kill()
    child.wait()
leave(["d" * 240] * 2)
for name in ("e" * 214, "f" * 205):
    os.chdir(name)
    leave([name])
leave(whole)
"#;

fn nested() {
    let mut command = Command::new("python3");
    command.args(["-c", NEST]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = Process(command.spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(python.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let pids: Vec<&str> = line.split_whitespace().collect();
    let [first, second, third] = pids[..] else { panic!("{line:?}") };
    // Cut by the kernel; too long for cgroup.procs; for that short enough, for cgroup.threads not.
    let told = [first, second, third].map(|pid| read(format!("/proc/{pid}/cgroup")).len());
    assert_eq!(told, [3 + 4095, 3 + 4076, 3 + 4067]);
    let daemon = Daemon::start();
    asmp("create a --cpus 3").done();
    asmp(&format!("add a --pid {first} --pid {second} --pid {third}")).done();
    asmp("status").done();
    asmp("repair").done();
    asmp("check").done();
    asmp("destroy a").done();
    for pid in [first, second, third] {
        assert!(read(format!("/proc/{pid}/status")).contains("Cpus_allowed_list:\t0-3"), "{pid}");
    }
    drop(python.0.stdin.take());
    assert!(python.0.wait().expect("it ends").success());
    let (counts, told) = daemon.ends();
    assert!(counts.violations == 0 && !told.contains("cannot look"), "{told}");
}
