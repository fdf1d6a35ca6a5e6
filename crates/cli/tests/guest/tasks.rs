// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who runs where: inheritance, single threads, policies, signals.

use super::guests::On;
use super::lab::{
    Process, Test, allowed, asmp, binary, kernel_threads, policy, read, spawn_asmp, test, until,
};
use std::fs;

pub fn all() -> Vec<Test> {
    vec![
        test("what a command forks is born inside", children_inherit),
        test("run gives the command its policy", run_sets_policy),
        test("a deadline is admitted and its servers come back", deadline),
        test("a process moves in and out with all its threads", process_in_and_out),
        test("one thread moves in alone and comes back", thread_alone),
        test("destroy sends a split process home whole", destroy_sends_split_home),
        test("a kernel thread bound to its cpu is refused", bound_kernel_thread),
        test("an affinity inside a partition stays the program's own", own_affinity),
        test(
            "a busy real-time task is let out only by force and then as an ordinary one",
            busy_stays,
        ),
        test("restore lets a busy real-time task out as an ordinary one", restore_demotes),
        test("what run leaves behind is an ordinary task of the system", run_leftover),
        test("run passes signals on and returns 128 plus the signal", signals_pass),
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

/// A process with a second thread that sleeps; returns it and the thread's number.
fn two_threads() -> (Process, u32) {
    let script = "import threading,time\nthreading.Thread(target=lambda: \
                  time.sleep(1000)).start()\ntime.sleep(1000)";
    let process = Process::start("python3", &["-c", script]);
    let id = process.id();
    let threads = || -> Vec<u32> {
        let entries = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
    };
    until("a second thread", || threads().len() == 2);
    let thread = threads().into_iter().find(|tid| *tid != id).expect("a second thread");
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

fn run_leftover() {
    let file = "/tmp/asmp-test-leftover";
    asmp(&format!(
        "run --cpus 3 -- sh -c 'chrt -f 50 sleep 1000 >/dev/null 2>&1 & echo $! >{file}; sleep 0.5'"
    ))
    .done();
    let id: u32 = read(file).parse().expect("a number");
    let (policy, allowed) = (policy(id), allowed(id));
    let _ = std::process::Command::new("kill").arg(id.to_string()).status();
    assert!(policy.contains("SCHED_OTHER"), "{policy}");
    assert_eq!(allowed, "0-3");
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
        let sent =
            std::process::Command::new("kill").args([signal, &run.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    };
    kill("-USR1");
    assert_eq!(run.wait().expect("asmp ends").code(), Some(5));
    let mut run = spawn_asmp("run --cpus 3 -- sleep 1000");
    until("the command runs", || !kernel_free_of_sleep());
    let sent = std::process::Command::new("kill").args(["-TERM", &run.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    assert_eq!(run.wait().expect("asmp ends").code(), Some(143));
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
