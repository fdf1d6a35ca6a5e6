// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who runs where: inheritance, single threads, policies, signals.

use super::guests::{Boot, On};
use super::lab::{
    Process, Test, allowed, asmp, binary, kernel_threads, policy, read, spawn_asmp, test, until,
};
use super::others::sh;
use super::watchdog;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn all() -> Vec<Test> {
    vec![
        test("what a command forks is born inside", children_inherit),
        test("run gives the command its policy", run_sets_policy),
        test("a deadline is admitted and its servers come back", deadline),
        test("a process moves in and out with all its threads", process_in_and_out),
        test("5,000 threads move in and out in time linear in their number", many_threads)
            .on(On::OneThenRt)
            .booted(&[Boot::Bare]),
        test("one thread moves in alone and comes back", thread_alone),
        test("destroy sends a split process home whole", destroy_sends_split_home),
        test("a kernel thread bound to its cpu is refused", bound_kernel_thread),
        test("an affinity inside a partition stays the program's own", own_affinity),
        test(
            "a busy real-time task is let out only by force and then as an ordinary one",
            busy_stays,
        ),
        test("restore lets a busy real-time task out as an ordinary one", restore_demotes),
        // Under systemd the command was seen to hold the lock for 10 s: LIMITS.
        test("a command that waits below a busy real-time task keeps no lock", starved_exec)
            .booted(&[Boot::Bare]),
        test("a change that the kernel may hold for a starved kworker is refused", starved_kworker)
            .on(On::OnePerSeries),
        test("many commands enter a partition at once", exec_storm).on(On::OnePerSeries),
        test("processes that fork all the time come and go whole", fork_storm).on(On::OnePerSeries),
        test("threads that change their cpus and policies all the time come and go whole", fickle)
            .on(On::OnePerSeries)
            .booted(&[Boot::Bare]),
        test("what run leaves behind is an ordinary task of the system", run_leftover),
        test("two runs at once have each its own partition", || runs_at_once(Duration::ZERO)),
        test("two runs that overlap by any time have each its own partition", runs_overlap)
            .on(On::OnePerSeries)
            .booted(&[Boot::Bare])
            .nightly(),
        test("a run in a run is a partition beside it", run_in_run),
        test("run passes signals on and returns 128 plus the signal", signals_pass),
        test("run and exec leave a command the signals that were ignored at start", ignored_stay)
            .on(On::One),
        // Others have no threaded interrupts.
        test("the irq thread gets its priority and gets its old one back", irq_priority).on(On::Rt),
    ]
}

fn children_inherit() {
    let line = "run --cpus 3 -- sh -c 'sh -c \"grep Cpus_allowed_list /proc/self/status\" & wait'";
    asmp(line).done().says("Cpus_allowed_list:\t3\n");
}

fn run_sets_policy() {
    asmp("run --cpus 3 --policy fifo:80 -- sh -c 'chrt -p $$'")
        .done()
        .says("SCHED_FIFO")
        .says("priority: 80");
    asmp("run --cpus 3 --policy rr:7 -- sh -c 'chrt -p $$'")
        .done()
        .says("SCHED_RR")
        .says("priority: 7");
}

fn deadline() {
    // The bandwidth of the ended task is still booked when the deadline servers come back.
    asmp("run --cpus 3 --policy deadline:1ms/50ms/100ms -- chrt -p 0")
        .done()
        .says("SCHED_DEADLINE");
}

fn process_in_and_out() {
    asmp("create a --cpus 3").done();
    let sleeper = Process::start("sleep", &["1000"]);
    let id = sleeper.id();
    let group = read(format!("/proc/{id}/cgroup"));
    asmp(&format!("add a --pid {id}")).done();
    assert_eq!(allowed(id), "3");
    asmp("status a").done().says("sleep");
    asmp(&format!("remove a --pid {id}")).done();
    assert_eq!(allowed(id), "0-2");
    assert_eq!(read(format!("/proc/{id}/cgroup")), group);
    asmp(&format!("remove a --pid {id}")).code(35);
}

/// A process of so many threads, which all sleep.
fn sleepers(count: usize) -> Process {
    let script = format!(
        "import threading,time\nthreading.stack_size(65536)\nfor _ in range({}):\n \
         threading.Thread(target=lambda: time.sleep(100000)).start()\ntime.sleep(100000)",
        count - 1
    );
    let process = Process::start("python3", &["-c", &script]);
    until("all threads", || threads_of(process.id()).len() == count);
    process
}

fn threads_of(id: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

/// CPU time of ended children so far.
fn cpu_time() -> Duration {
    // SAFETY: all zeros are a valid value of this C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage into a local.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    assert_eq!(failed, 0);
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// CPU time of `add` and of the `destroy` beside it, for a process of so many threads.
fn in_and_out(count: usize) -> Duration {
    let process = sleepers(count);
    let started = cpu_time();
    asmp("create a --cpus 3").done();
    asmp(&format!("add a --pid {}", process.id())).done();
    let added = cpu_time() - started;
    assert!(threads_of(process.id()).into_iter().all(|tid| allowed(tid) == "3"));
    let started = cpu_time();
    asmp("destroy a").done();
    let destroyed = cpu_time() - started;
    assert!(threads_of(process.id()).into_iter().all(|tid| allowed(tid) == "0-3"));
    println!("  {count} threads, CPU time: create, add {added:.2?}, destroy {destroyed:.2?}");
    added + destroyed
}

/// Ten times as many: 8 times the CPU time, and 94 times while each thread's numbers were those of
/// the whole process.
fn many_threads() {
    let (few, many) = (in_and_out(500), in_and_out(5_000));
    assert!(many < few * 30, "{many:?} for ten times the threads of {few:?}");
}

/// A process with a second thread that sleeps; returns it and the thread's number.
fn two_threads() -> (Process, u32) {
    let process = sleepers(2);
    let id = process.id();
    let thread = threads_of(id).into_iter().find(|tid| *tid != id).expect("a second thread");
    (process, thread)
}

fn thread_alone() {
    asmp("create a --cpus 3").done();
    let (process, thread) = two_threads();
    asmp(&format!("add a --tid {thread}")).done();
    assert_eq!((allowed(process.id()).as_str(), allowed(thread).as_str()), ("0-2", "3"));
    asmp(&format!("remove a --tid {thread}")).done();
    assert_eq!((allowed(process.id()).as_str(), allowed(thread).as_str()), ("0-2", "0-2"));
    assert!(!read(format!("/proc/{}/cgroup", process.id())).contains("asmp"));
}

fn destroy_sends_split_home() {
    asmp("create a --cpus 3").done();
    asmp("create b --cpus 2").done();
    let (process, thread) = two_threads();
    asmp(&format!("add a --tid {thread}")).done();
    asmp("destroy a").done();
    assert_eq!((allowed(process.id()).as_str(), allowed(thread).as_str()), ("0-1,3", "0-1,3"));
    assert!(!read(format!("/proc/{}/cgroup", process.id())).contains("asmp"));
}

fn bound_kernel_thread() {
    asmp("create a --cpus 3").done();
    let (tid, _) = kernel_threads("ksoftirqd/2").pop().expect("ksoftirqd/2");
    asmp(&format!("add a --pid {tid}")).code(34).says("ksoftirqd/2");
}

/// A busy FIFO task that got its policy inside, and its number.
fn busy_inside() -> (Process, u32) {
    let spin = binary().display().to_string();
    let exec =
        Process::start(&spin, &["exec", "a", "--policy", "fifo:80", "--", &spin, "spin", "600000"]);
    let id = exec.id();
    until("the loop is real-time", || policy(id).contains("priority: 80"));
    (exec, id)
}

fn busy_stays() {
    asmp("create a --cpus 3").done();
    let (_busy, id) = busy_inside();
    for line in ["destroy a", "destroy --all", &format!("remove a --pid {id}")] {
        asmp(line).code(39).says(&id.to_string()).says("--force");
        assert!(policy(id).contains("SCHED_FIFO"), "{line}");
        assert_eq!(allowed(id), "3", "{line}");
    }
    asmp("destroy a --force").done().says("SCHED_OTHER");
    assert!(policy(id).contains("SCHED_OTHER"), "{}", policy(id));
    assert_eq!(allowed(id), "0-3");
}

fn restore_demotes() {
    asmp("create a --cpus 3").done();
    let (_busy, id) = busy_inside();
    asmp("restore").done();
    assert!(policy(id).contains("SCHED_OTHER"), "{}", policy(id));
    assert_eq!(allowed(id), "0-3");
}

/// Its exec never comes to the command, since the loop has the CPU.
fn starved_exec() {
    asmp("create a --cpus 3").done();
    let (_busy, _) = busy_inside();
    let program = binary().display().to_string();
    let mut starved = Process::start(&program, &["exec", "a", "--", "true"]);
    let group = format!("/proc/{}/cgroup", starved.id());
    until("it is inside", || read(&group).ends_with("/a/rt"));
    // The lock is free again. (From 7.0 on the kernel makes no other partition as long as the loop
    // starves a kworker: LIMITS.)
    asmp("destroy --all --force").done();
    assert!(starved.0.wait().expect("it ends").success());
}

/// stat_refresh queues work for each CPU, and waits for it.
fn starved_kworker() {
    asmp("create a --cpus 3").done();
    let (_busy, _) = busy_inside();
    let mut refresh = Process::start("sh", &["-c", "echo 1 >/proc/sys/vm/stat_refresh &"]);
    assert!(refresh.0.wait().expect("it ends").success());
    let is_starved = |(id, name): &(u32, String)| {
        name.starts_with("kworker/3:") && read(format!("/proc/{id}/stat")).contains(") R ")
    };
    until("a kworker waits", || kernel_threads("kworker/3:").iter().any(is_starved));
    if read("/proc/sys/kernel/osrelease").starts_with("6.") {
        asmp("create b --cpus 2").done();
    } else {
        asmp("create b --cpus 2").code(47).says("kworker/3:").says("CPU 3");
        // The lock is free.
        asmp("resize a --cpus 2-3").code(47);
        asmp("status").done();
    }
    asmp("destroy --all --force").done();
    asmp("create b --cpus 2").done();
}

fn exec_storm() {
    asmp("create a --cpus 2-3").done();
    let exec = || {
        let words = ["exec", "a", "--", "cat", "/proc/self/cgroup"];
        let mut command = Command::new(binary());
        command
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    };
    let many: Vec<_> = (0..8).map(|_| exec()).collect();
    for one in many {
        let mut output = one.wait_with_output().expect("it ends");
        // On a slow host the others have the lock for 10 s.
        until("the lock is free", || {
            if output.status.code() == Some(8) {
                output = exec().wait_with_output().expect("it ends");
            }
            output.status.code() != Some(8)
        });
        let words = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && words.trim().ends_with("/a/rt"), "{output:?}");
    }
    asmp("status").done();
    asmp("destroy a").done();
}

fn fork_storm() {
    asmp("create a --cpus 2-3").done();
    let storms: Vec<_> =
        (0..3).map(|_| Process::start("sh", &["-c", "while :; do true | true; done"])).collect();
    let home: Vec<_> =
        storms.iter().map(|one| read(format!("/proc/{}/cgroup", one.id()))).collect();
    let pids: Vec<_> = storms.iter().map(|one| format!("--pid {}", one.id())).collect();
    asmp(&format!("add a {}", pids.join(" "))).done();
    asmp("status").done();
    for one in &storms {
        assert!(read(format!("/proc/{}/cgroup", one.id())).ends_with("/a/rt"));
    }
    // Nothing that was born meanwhile keeps the group.
    asmp("destroy a").done();
    for (one, home) in storms.iter().zip(home) {
        assert_eq!(read(format!("/proc/{}/cgroup", one.id())), home);
    }
}

/// Threads that each change their CPUs and their policy about every millisecond.
const FICKLE: &str = "import os, random, threading, time
def run():
    while True:
        try:
            os.sched_setaffinity(0, random.choice([{1}, {2}, {3}, {2, 3}, {0, 1, 2, 3}]))
            kind = random.choice([os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_FIFO])
            os.sched_setscheduler(0, kind, os.sched_param(kind == os.SCHED_FIFO))
        except OSError:
            pass
        time.sleep(0.001)
for _ in range(3):
    threading.Thread(target=run).start()
run()";

fn fickle() {
    let task = Process::start("python3", &["-c", FICKLE]);
    let id = task.id();
    until("all threads", || threads_of(id).len() == 4);
    let home = read(format!("/proc/{id}/cgroup"));
    let all_in = |group: &str| {
        for tid in threads_of(id) {
            let now = read(format!("/proc/{id}/task/{tid}/cgroup"));
            assert!(now.ends_with(group), "thread {tid} is in {now}, not in {group}");
        }
    };
    for _ in 0..3 {
        asmp("create a --cpus 2-3").done();
        asmp(&format!("add a --pid {id}")).done();
        all_in("/a/rt");
        // The shield does not depend on what they do inside.
        asmp("status").done();
        for tid in threads_of(id) {
            assert!(["2", "3", "2-3"].contains(&allowed(tid).as_str()), "{}", allowed(tid));
        }
        // One may be real-time at this moment, and was not when it came in.
        let destroyed = asmp("destroy a");
        match destroyed.code {
            39 => drop(asmp("destroy a --force").done()),
            _ => drop(destroyed.done()),
        }
        all_in(&home);
        asmp("status").done();
    }
}

fn run_leftover() {
    let file = "/tmp/asmp-test-leftover";
    asmp(&format!(
        "run --cpus 3 -- sh -c 'chrt -f 50 sleep 1000 >/dev/null 2>&1 & echo $! >{file}; sleep 0.5'"
    ))
    .done();
    let id: u32 = read(file).parse().expect("a number");
    let (policy, allowed) = (policy(id), allowed(id));
    let _ = Command::new("kill").arg(id.to_string()).status();
    assert!(policy.contains("SCHED_OTHER"), "{policy}");
    assert_eq!(allowed, "0-3");
}

/// The second starts so much later.
fn runs_at_once(later: Duration) {
    let shown = "grep Cpus_allowed_list /proc/self/status";
    let start = |cpu: u32| {
        Command::new(binary())
            .args(["run", "--cpus", &cpu.to_string(), "--", "sh", "-c", shown])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    };
    let first = start(2);
    std::thread::sleep(later);
    let runs = [(2, first), (3, start(3))];
    for (cpu, run) in runs {
        let output = run.wait_with_output().expect("it ends");
        let words = String::from_utf8_lossy(&output.stdout);
        let is_right = words.trim() == format!("Cpus_allowed_list:\t{cpu}");
        assert!(output.status.success() && is_right, "{later:?}: {output:?}");
    }
    assert!(asmp("status --json").done().out.contains("\"partitions\": []"));
}

/// From both at once to the second after the end of the first.
fn runs_overlap() {
    for turn in 0..16 {
        watchdog::goes_on();
        runs_at_once(Duration::from_millis(turn * 100));
    }
}

fn run_in_run() {
    let inner =
        format!("{} run --cpus 3 -- grep Cpus_allowed_list /proc/self/status", binary().display());
    asmp(&format!("run --cpus 2 -- sh -c '{inner}; grep Cpus_allowed_list /proc/self/status'"))
        .done()
        .says("Cpus_allowed_list:\t3\n")
        .says("Cpus_allowed_list:\t2\n");
}

fn own_affinity() {
    let line = "run --cpus 2-3 -- taskset -c 2 sh -c 'grep Cpus_allowed_list /proc/self/status'";
    asmp(line).done().says("Cpus_allowed_list:\t2\n");
}

fn signals_pass() {
    let marker = "/tmp/asmp-test-ready";
    let _ = fs::remove_file(marker);
    let mut run = spawn_asmp(&format!(
        "run --cpus 3 -- sh -c 'trap \"exit 5\" USR1; touch {marker}; while :; do sleep 0.1; done'"
    ));
    until("the command runs", || fs::exists(marker).unwrap_or(false));
    asmp("status").done().says("run-");
    let kill = |signal: &str| {
        let sent = Command::new("kill").args([signal, &run.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    };
    kill("-USR1");
    assert_eq!(run.wait().expect("asmp ends").code(), Some(5));
    let mut run = spawn_asmp("run --cpus 3 -- sleep 1000");
    until("the command runs", || !kernel_free_of_sleep());
    let sent = Command::new("kill").args(["-TERM", &run.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    assert_eq!(run.wait().expect("asmp ends").code(), Some(143));
}

/// As nohup(1) and shells start a command in the background.
fn ignored_stay() {
    let shown = "grep SigIgn /proc/self/status";
    asmp("create a --cpus 3").done();
    let ignoring = format!(
        "trap '' HUP INT QUIT; {shown}; $ASMP run --cpus 2 -- {shown}; $ASMP exec a -- {shown}"
    );
    let ignored = sh(&ignoring).done().out;
    let lines: Vec<&str> = ignored.lines().collect();
    let [plain, run, exec] = lines[..] else { panic!("{ignored}") };
    assert_eq!((run, exec), (plain, plain), "as without asmp");
    let mask = plain.trim_start_matches("SigIgn:").trim();
    let mask = u64::from_str_radix(mask, 16).expect("a mask");
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        assert!(mask >> (signal - 1) & 1 == 1, "signal {signal} is ignored: {mask:x}");
    }
}

/// No task called sleep is in a partition.
fn kernel_free_of_sleep() -> bool {
    !asmp("status").out.contains("sleep other")
}

fn tty_thread() -> Option<u32> {
    kernel_threads("irq/").into_iter().find(|(_, name)| name.contains("ttyS0")).map(|(tid, _)| tid)
}

fn irq_priority() {
    let tid = tty_thread().expect("a handler thread");
    let before = policy(tid);
    asmp("create a --cpus 3 --irq ttyS0 --irq-priority 71").done();
    assert!(policy(tid).contains("71"), "{}", policy(tid));
    asmp("destroy a").done();
    assert_eq!(policy(tid), before);
}
