// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared partitions: others compute on their CPUs, and what ends the guard isolates them.

use super::guests::{Boot, On, Tier};
use super::held::Daemon;
use super::lab::{
    Called, Process, Stressors, Test, allowed, asmp, binary, example, read, spawn_asmp, test, tier,
    until, until_free,
};
use super::random::hands::online;
use super::watchdog;
use asmp_host::sharing::{self, CPUS, counts};
use asmp_host::{Kernel, Linux, task};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let shared_on =
        |on: On, name, run: fn()| test(name, run).on(on).booted(&[Boot::Bare]).lacks(no_scheduler);
    let on_both = |name, run| shared_on(On::RtAndNot, name, run);
    let sharing = |name, run| shared_on(On::NotThenRt, name, run);
    vec![
        on_both("sharing: others compute on the cpus of a shared partition", others_compute),
        sharing("sharing: a real-time thread of others keeps off", rivals),
        sharing("sharing: the loader may be uninstalled meanwhile", uninstalled),
        on_both("sharing: a mode changes under load, with a task inside", both_ways),
        sharing("sharing: modes side by side, and one cpu for the rest", side_by_side),
        sharing("sharing: a class is inherited, and rt1 goes first", classes),
        sharing("sharing: time counts by class and kind of cpu", times),
        on_both("sharing: the end of the scheduler is named, and repair isolates", ended),
        sharing("sharing: asmpd isolates when the scheduler ends", ended_under_asmpd),
        sharing("sharing: stress of all that enters the kernel, while modes change", stress),
        test("sharing: a kernel without it refuses, and shares as best effort", best_effort)
            .on(On::All)
            .booted(&[Boot::Bare]),
    ]
}

pub fn no_scheduler() -> Option<&'static str> {
    let has = |path: &str| Path::new(path).exists();
    match (has("/sys/kernel/sched_ext/state"), example("asmp-artis").exists()) {
        (false, _) => Some("no sched_ext in this kernel"),
        (_, false) => Some("asmp-artis was not built (it needs clang)"),
        _ => None,
    }
}

/// Processes that compute, and never sleep.
fn spinners(count: usize) -> Vec<Process> {
    (0..count).map(|_| Process::start("sh", &["-c", "while :; do :; done"])).collect()
}

/// Waits until these processes were seen on each of the CPUs.
fn run_on(processes: &[Process], cpus: &[u32]) {
    let wanted: BTreeSet<u32> = cpus.iter().copied().collect();
    let mut seen = BTreeSet::new();
    until(&format!("others run on CPU {cpus:?}"), || {
        let last = |one: &Process| task::last_cpu(&Linux::new(), one.id() as i32);
        seen.extend(processes.iter().filter_map(last));
        wanted.is_subset(&seen)
    });
}

fn guarded() -> String {
    std::fs::read_to_string(CPUS).unwrap_or_default().trim().to_owned()
}

fn scheduler() -> String {
    read("/sys/kernel/sched_ext/state")
}

fn others_compute() {
    let others = spinners(4);
    asmp("create a --cpus 2-3 --share").done().says("CPU 2-3 shared");
    asmp("status").done().says("shared, guarded").says("others began to run there");
    assert_eq!((guarded().as_str(), scheduler().as_str()), ("2,3", "enabled"));
    assert_eq!(allowed(others[0].id()), "0-3", "an affinity stays what it was");
    run_on(&others, &[2, 3]);
    asmp("noise a -t 2s --table").done().says("shared CPUs: foreign tasks are there in user mode");
    // Its own tasks have its CPUs alone.
    asmp("exec a --policy fifo:50 -- grep Cpus_allowed_list /proc/self/status")
        .done()
        .says("Cpus_allowed_list:\t2-3\n");
    asmp("status").done();
    asmp("destroy a").done();
    assert_eq!((guarded().as_str(), scheduler().as_str()), ("", "disabled"));
    assert_eq!(allowed(others[0].id()), "0-3");
}

/// Clock ticks in user mode of all these processes together.
fn computed(processes: &[Process]) -> u64 {
    let ticks = |one: &Process| {
        let stat = read(format!("/proc/{}/stat", one.id()));
        let after = stat.rsplit_once(')').expect("a command").1;
        after.split_whitespace().nth(11).expect("utime").parse::<u64>().expect("a number")
    };
    processes.iter().map(ticks).sum()
}

fn classes() {
    asmp("class rt1:20 -- true").code(57).says("no partition is shared under the guarantee");
    asmp("create a --cpus 2-3 --share").done();
    asmp("class rt1:20 -- sh -c true").done();
    asmp("class rt1:20 -- /nowhere").code(127);
    asmp("class rt1:20 --pid 4000000").code(33).says("no process 4000000");
    asmp("class rt0 --pid 1").code(2).says("asmp exec");
    asmp("class rt1:100 --pid 1").code(2).says("1 to 99");
    asmp("class --pid 1").done().says("1 linux");
    let program = binary().display().to_string();
    // CPU 0 is left to this test: a Linux task has a turn each second beside RT1 that computes.
    let spin = |start: &[&str]| {
        let spin = ["sh", "-c", "while :; do :; done"];
        Process::start("taskset", &[&["-c", "1-3"], start, &spin].concat())
    };
    let others: Vec<Process> = (0..4).map(|_| spin(&[])).collect();
    let rt1 = [program.as_str(), "class", "rt1:20", "--"];
    let first: Vec<Process> = (0..4).map(|_| spin(&rt1)).collect();
    let class_of = |one: &Process| asmp(&format!("class --pid {}", one.id())).done();
    until("all have their class", || {
        first.iter().all(|one| class_of(one).out.contains(&format!("{} rt1:20", one.id())))
    });
    let (before, others_before, ns_before) = (computed(&first), computed(&others), rt1_ns());
    until("RT1 computes", || computed(&first) - before > 400);
    let (rt1, linux) = (computed(&first) - before, computed(&others) - others_before);
    // Eight alike would have as much. A turn of a Linux task is long where the host is busy.
    assert!(rt1 > 2 * linux, "RT1 had {rt1} ticks, others {linux}");
    let (counted, ticks) = ((rt1_ns() - ns_before) / 10_000_000, computed(&first) - before);
    // Interrupts count, too: here and not there.
    assert!((ticks * 8 / 10..ticks * 16 / 10).contains(&counted), "{counted} of {ticks} ticks");
    asmp(&format!("class linux --pid {}", first[0].id())).done();
    class_of(&first[0]).says("linux");
    let child = format!("sleep 1000 & {program} class --pid $!; kill $!");
    asmp(&format!("class rt1:7 -- sh -c '{child}'")).done().says(" rt1:7");
    asmp("mode a isolated").done();
    asmp(&format!("class --pid {}", first[1].id())).code(57);
}

fn times() {
    const SECOND: u64 = 1_000_000_000;
    asmp("create a --cpus 2-3 --share").done();
    let before = ran_ns("linux");
    let spin = |cpus| Process::start("taskset", &["-c", cpus, "sh", "-c", "while :; do :; done"]);
    let bound = spin("1");
    until("time on a system CPU counts", || ran_ns("linux")[0] > before[0] + 2 * SECOND);
    assert!(ran_ns("linux")[1] < before[1] + SECOND / 4, "{before:?}, {:?}", ran_ns("linux"));
    drop(bound);

    // As many as CPUs, and CPU 0 is left to this test: those on shared ones run for ever.
    let all = [spin("1-3"), spin("1-3"), spin("1-3")];
    let before = ran_ns("linux");
    until("time on shared CPUs counts", || ran_ns("linux")[1] > before[1] + 2 * SECOND);
    for one in &all {
        asmp(&format!("class rt1:20 --pid {}", one.id())).done();
    }
    let (linux, rt1) = (ran_ns("linux"), ran_ns("rt1"));
    until("it counts as RT1's", || {
        let now = ran_ns("rt1");
        now[0] > rt1[0] + SECOND && now[1] > rt1[1] + 2 * SECOND
    });
    let now = ran_ns("linux");
    assert!(now[1] < linux[1] + SECOND / 4, "a Linux task's as well: {linux:?}, {now:?}");
    asmp("status").done().says("rt1 tasks ran ").says("linux tasks ran ");
}

/// How long tasks of a class ran, as the scheduler counts it: on system CPUs, on shared ones.
fn ran_ns(class: &str) -> [u64; 2] {
    let counts = counts(&Linux::new()).expect("the scheduler counts");
    ["nrt", "rt"].map(|cpus| {
        let name = format!("{class}_on_{cpus}_ns");
        counts.iter().find(|(known, _)| *known == name).expect("a count").1
    })
}

fn rt1_ns() -> u64 {
    ran_ns("rt1").iter().sum()
}

fn uninstalled() {
    asmp("create a --cpus 2-3 --share").done();
    let (loader, aside) = (example("asmp-artis"), example("asmp-artis.aside"));
    std::fs::rename(&loader, &aside).expect("it is moved");
    let shared = asmp("create b --cpus 1 --share");
    let gone = asmp("destroy a");
    std::fs::rename(&aside, &loader).expect("it is moved back");
    shared.code(57).says("is not installed");
    gone.done();
    assert_eq!((guarded().as_str(), scheduler().as_str()), ("", "disabled"));
}

fn rivals() {
    let audio = Process::start("chrt", &["-f", "50", "sleep", "1000"]);
    until("it is real-time", || super::lab::policy(audio.id()).contains("SCHED_FIFO"));
    asmp("create a --cpus 2-3 --share").done();
    assert_eq!(allowed(audio.id()), "0-1");
    let late = Process::start("chrt", &["-f", "50", "sleep", "1000"]);
    until("it is real-time", || super::lab::policy(late.id()).contains("SCHED_FIFO"));
    asmp("status").code(7).says("(sleep) may run on CPU 2-3");
    asmp("repair").done();
    assert_eq!(allowed(late.id()), "0-1");
    asmp("status").done();
    asmp("destroy a").done();
    assert_eq!((allowed(audio.id()), allowed(late.id())), ("0-3".into(), "0-3".into()));
}

/// Each takes an emulated guest half a minute and more.
fn rounds() -> usize {
    if tier() == Tier::Nightly { 5 } else { 2 }
}

fn both_ways() {
    let others = spinners(4);
    asmp("create a --cpus 2-3").done();
    let inside = Process::start("sleep", &["1000"]);
    asmp(&format!("add a --pid {}", inside.id())).done();
    for _ in 0..rounds() {
        asmp("mode a shared").done().says("now CPU 2-3, shared");
        asmp("status").done();
        run_on(&others, &[2, 3]);
        assert_eq!(allowed(inside.id()), "2-3");
        asmp("mode a isolated").done();
        asmp("status").done().says("shielded");
        assert_eq!((allowed(inside.id()), allowed(others[0].id())), ("2-3".into(), "0-1".into()));
        assert_eq!(scheduler(), "disabled");
    }
    asmp("mode a best-effort").done();
    asmp("status").done().says("shared without a guarantee");
    run_on(&others, &[2, 3]);
}

fn side_by_side() {
    let others = spinners(4);
    asmp("create a --cpus 1 --share").done();
    asmp("create b --cpus 2").done();
    asmp("create c --cpus 3 --share").done();
    asmp("status").done();
    assert_eq!(guarded(), "1,3");
    run_on(&others, &[1, 3]);
    assert_eq!(allowed(others[0].id()), "0-1,3");
    asmp("create d --cpus 0").code(23);
    asmp("destroy b").done();
    asmp("resize c --cpus 2-3").done();
    assert_eq!(guarded(), "1,2,3");
    run_on(&others, &[1, 2, 3]);
    asmp("status").done();
}

/// Ends every scheduler in BPF (admin-guide/sysrq.rst, `S`).
fn end_scheduler() {
    std::fs::write("/proc/sysrq-trigger", "S").expect("sysrq");
    until("the scheduler has ended", || scheduler() == "disabled");
}

fn ended() {
    let others = spinners(4);
    asmp("create a --cpus 2-3 --share").done();
    end_scheduler();
    asmp("status").code(7).says("the scheduler of shared partitions has ended");
    asmp("repair").done();
    asmp("status").done().says("shielded");
    assert_eq!(allowed(others[0].id()), "0-1");
    asmp("mode a shared").done();
    run_on(&others, &[2, 3]);
    // Of lost files of the scheduler, too.
    let hook = sharing::DIR.to_owned() + "/page_fault";
    std::fs::remove_file(hook).expect("a hook");
    asmp("status").code(7).says("has lost /sys/fs/bpf/asmp/page_fault");
    asmp("repair").done();
    assert_eq!(allowed(others[0].id()), "0-1");
    asmp("mode a shared").done();
    // Of hooks that stand still, too.
    let ftrace = "/proc/sys/kernel/ftrace_enabled";
    std::fs::write(ftrace, "0").expect("ftrace_enabled");
    asmp("status").code(7).says("kernel.ftrace_enabled is 0: hooks of functions stand still");
    asmp("repair").done();
    asmp("status").done().says("shielded");
    asmp("mode a shared").code(57).says("sysctl kernel.ftrace_enabled=1");
    std::fs::write(ftrace, "1").expect("ftrace_enabled");
    asmp("mode a shared").done();
    // Any other change sees it, too.
    end_scheduler();
    asmp("create b --cpus 1").done();
    assert_eq!(allowed(others[0].id()), "0");
}

fn ended_under_asmpd() {
    let others = spinners(4);
    asmp("create a --cpus 2-3 --share").done();
    let asmpd = Daemon::start();
    for turn in 1..=rounds() {
        run_on(&others, &[2, 3]);
        end_scheduler();
        until("asmpd isolates it", || allowed(others[0].id()) == "0-1");
        until("it has said so", || asmp("status").code == 0);
        asmp("mode a shared").done();
        assert_eq!(guarded(), "2,3", "turn {turn}");
    }
    let (counts, told) = asmpd.ends();
    assert_eq!(counts.violations, rounds(), "{told}");
}

/// Stressors that fork, execute, signal, trace, fault and change affinities.
const STRESSORS: &str = "--with fork,vfork,exec,clone,pthread,signal,sigsegv,sigfpe,ptrace,\
                         affinity,nice,mmap,userfaultfd,io-uring,pipe,switch,futex";

/// Nothing is violated but by the stressor that binds its tasks to one CPU each.
#[track_caller]
fn holds(called: Called) {
    let violated = || called.out.lines().filter(|line| line.contains("violated:"));
    let is_named = violated().all(|line| line.contains("(stress-ng-affin) is bound to CPU"));
    let is_good = called.code == 0 || called.code == 7 && violated().count() > 0 && is_named;
    assert!(is_good, "code {}\n{}\n{}", called.code, called.out, called.err);
}

/// One more change of each kind, by other hands too; after each the partition holds.
fn disturb(turn: usize, others: &[Process]) {
    let other = &others[turn % others.len()];
    match turn % 8 {
        0 => holds(asmp("mode a isolated")),
        1 => holds(asmp("mode a shared")),
        2 => drop(asmp(&format!("class rt1:{} --pid {}", turn % 99 + 1, other.id())).done()),
        3 => {
            // The kernel gives lines of a CPU that goes offline to all others.
            for is_online in [false, true] {
                online(1, is_online);
                holds(asmp("repair"));
                holds(asmp("status"));
            }
        }
        4 => {
            let mut killed = spawn_asmp(["mode a best-effort", "mode a isolated"][turn / 8 % 2]);
            // Each kill comes elsewhere in the change.
            std::thread::sleep(Duration::from_millis(turn as u64 * 7 % 300));
            killed.kill().expect("it is killed");
            killed.wait().expect("it ends");
            holds(until_free("repair"));
            holds(asmp("mode a shared"));
        }
        5 => {
            let group = Path::new("/sys/fs/cgroup/stress");
            std::fs::create_dir(group).expect("a group");
            let id = other.id().to_string();
            std::fs::write(group.join("cgroup.procs"), &id).expect("it moves");
            std::fs::write("/sys/fs/cgroup/cgroup.procs", &id).expect("it moves back");
            until("the group goes", || std::fs::remove_dir(group).is_ok());
        }
        6 => {
            for cpus in ["0,2", "1-3", "0-3"] {
                let cpus = cpus.parse().expect("CPUs");
                Linux::new().set_affinity(other.id() as i32, &cpus).expect("an affinity");
            }
        }
        _ => {
            end_scheduler();
            holds(asmp("repair"));
            holds(asmp("mode a shared"));
        }
    }
    holds(asmp("status"));
}

/// Ten minutes in the nightly tests. What is left afterwards, and the kernel's log, each test looks
/// at.
fn stress() {
    let seconds = if tier() == Tier::Nightly { 600 } else { 40 };
    asmp("create a --cpus 2-3 --share").done();
    let inside = Process::start("chrt", &["-f", "50", "sleep", "100000"]);
    asmp(&format!("add a --pid {}", inside.id())).done();
    let (others, stressors) = (spinners(3), Stressors::start(STRESSORS));
    let began = Instant::now();
    let mut turns = 0;
    while began.elapsed() < Duration::from_secs(seconds) || turns < 8 {
        watchdog::goes_on();
        disturb(turns, &others);
        turns += 1;
    }
    drop(stressors);
    for other in &others {
        assert_eq!(allowed(other.id()), "0-3");
        let before = computed(std::slice::from_ref(other));
        until("it runs", || computed(std::slice::from_ref(other)) > before + 10);
    }
    assert_eq!(allowed(inside.id()), "2-3");
    println!("{turns} changes");
}

fn best_effort() {
    if no_scheduler().is_some() {
        asmp("create a --cpus 2-3 --share").code(57);
    }
    let others = spinners(4);
    asmp("create a --cpus 2-3 --share=best-effort").done().says("without a guarantee");
    asmp("status").done();
    run_on(&others, &[2, 3]);
    asmp("exec a -- grep Cpus_allowed_list /proc/self/status")
        .done()
        .says("Cpus_allowed_list:\t2-3\n");
    asmp("destroy a").done();
    asmp("create a --cpus 2-3 --share=isolated").code(2);
}
