// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others do behind our back is seen, named and mended.

use super::guests::{Boot, On};
use super::lab::{
    Process, Test, allowed, asmp, binary, console, isolated, policy, read, spawn_asmp, test, until,
    until_free,
};
use super::others::sh;
use super::random::judge::base;
use super::watchdog;
use std::fs;
use std::path::Path;
use std::time::Instant;

pub fn all() -> Vec<Test> {
    vec![
        test("an irq that comes back is named and mended", irq_comes_back),
        test("a partition that somebody dissolved is seen", dissolved),
        test("a group that somebody removed is seen and can be destroyed", removed),
        test("a cpu that goes offline is seen and comes back shielded", offline),
        test("a shield with a task inside comes back after its cpu was offline", hotplug),
        // With systemd the kernel narrows all tasks of units (LIMITS.md, "CPU hotplug, tasks").
        test("what a cpu that is offline cannot take back waits for it", offline_at_the_end)
            .booted(&[Boot::Bare]),
        test("a group that a program made inside goes with the partition", inner_group),
        test(
            "a group made inside a run goes with it and its task is an ordinary one",
            inner_of_run,
        ),
        test("a group of others where one of ours would be keeps its real-time task", in_our_place),
        test("two writers take turns", two_writers),
        test("an orphan of a killed run is named and can be restored", orphan),
        test("garbage in the state is refused and left as it is", garbage_state),
        test("two hundred partitions one after the other leave no group behind", two_hundred)
            .on(On::One)
            .booted(&[Boot::Bare])
            .nightly(),
    ]
}

fn rt_group() -> String {
    format!("{}/a/rt", base())
}

pub fn tty_irq() -> String {
    let entries = fs::read_dir("/sys/kernel/irq").expect("/sys/kernel/irq").flatten();
    let line = entries
        .filter(|entry| {
            fs::read_to_string(entry.path().join("actions"))
                .is_ok_and(|text| text.trim() == console())
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .next();
    format!("/proc/irq/{}/smp_affinity_list", line.expect("a serial line"))
}

fn irq_comes_back() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    fs::write(&file, "0-3").expect("the line takes all CPUs");
    asmp("status").code(7).says(&file).says("repair");
    asmp("repair a").done();
    assert_eq!(read(&file), "0-2");
    asmp("status").done();
    // Elsewhere on system CPUs is nobody's business: irqbalance may go on.
    fs::write(&file, "1").expect("the line takes CPU 1");
    asmp("status").done();
}

fn dissolved() {
    asmp("create a --cpus 3").done();
    for kind in ["member", "root"] {
        fs::write(format!("{}/cpuset.cpus.partition", rt_group()), kind).expect("it is no more");
        asmp("status").code(7).says(kind);
        asmp("repair").done();
        asmp("status").done();
        assert_eq!(isolated(), "3");
    }
}

fn removed() {
    asmp("create a --cpus 3").done();
    fs::remove_dir(rt_group()).expect("the group goes");
    asmp("status").code(7).says("cannot be read");
    asmp("destroy a").done();
    assert_eq!(isolated(), "");
}

fn offline() {
    asmp("create a --cpus 2-3").done();
    let online = "/sys/devices/system/cpu/cpu3/online";
    fs::write(online, "0").expect("CPU 3 goes offline");
    let called = asmp("status");
    fs::write(online, "1").expect("CPU 3 comes back");
    called.code(7).says("offline");
    asmp("repair a").done();
    // 6.12 lets its memory threads out again with each CPU that comes up; repair moves them back.
    asmp("status").done();
    assert_eq!(isolated(), "2-3");
}

/// A task in partition `a`.
pub fn member() -> Process {
    let words = ["exec", "a", "--", "sleep", "1000"];
    let task = Process::start(&binary().display().to_string(), &words);
    until("the task is inside", || {
        let group = read(format!("/proc/{}/cgroup", task.id()));
        group.trim().ends_with("/a/rt")
            && read(format!("/proc/{}/comm", task.id())).trim() == "sleep"
    });
    task
}

fn set_online(cpu: u32, online: bool) {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(path, u8::from(online).to_string()).expect("the CPU changes");
}

fn hotplug() {
    asmp("create a --cpus 3").done();
    let task = member();
    set_online(3, false);
    set_online(3, true);
    asmp("status").code(7);
    asmp("repair").done().says("every setting is as promised");
    asmp("status").done();
    assert_eq!((isolated().as_str(), allowed(task.id()).as_str()), ("3", "3"));
}

fn offline_at_the_end() {
    asmp("create a --cpus 3").done();
    let task = member();
    set_online(3, false);
    asmp("destroy a").code(6).says("not given back yet").says("CPU 3 is offline");
    asmp("status").code(7).says("left: ");
    set_online(3, true);
    asmp("restore").done().says("the machine is as it was");
    asmp("status").done();
    let (cpus, kernel) = (allowed(task.id()), read("/proc/sys/kernel/osrelease"));
    // 6.12 may leave it without the CPU that was offline (LIMITS.md, "CPU hotplug, tasks").
    let is_narrow = cpus == "0-2" && kernel.starts_with("6.12");
    assert!(cpus == "0-3" || is_narrow, "{cpus} on {kernel}");
}

fn inner_group() {
    let sub = format!("{}/sub", rt_group());
    asmp("create a --cpus 3").done();
    fs::create_dir(&sub).expect("a group inside");
    asmp("status").done().says("rt/sub was made inside");
    asmp("destroy a").done();
    // With a task that became real-time in it.
    asmp("create a --cpus 3").done();
    fs::create_dir(&sub).expect("a group inside");
    fs::write(format!("{sub}/cgroup.type"), "threaded").expect("it takes threads");
    let task = member();
    let id = task.id();
    fs::write(format!("{sub}/cgroup.threads"), id.to_string()).expect("it moves");
    sh(&format!("chrt -f -p 20 {id}")).done();
    asmp("status").done().says("rt/sub was made inside");
    asmp("destroy a").code(39).says(&id.to_string());
    assert!(policy(id).contains("priority: 20"), "{}", policy(id));
    assert!(group_of(id).ends_with("/a/rt/sub"), "{}", group_of(id));
    asmp("destroy a --force").done().says("SCHED_OTHER");
    assert!(policy(id).contains("SCHED_OTHER"), "{}", policy(id));
    assert_eq!(allowed(id), "0-3");
}

/// The end of a run does not ask: what it leaves behind goes on as an ordinary task.
fn inner_of_run() {
    let file = "/tmp/asmp-test-inner";
    let sub = format!("{}/sub", rt_group());
    let made = format!("mkdir {sub} && echo threaded >{sub}/cgroup.type");
    let task = format!("chrt -f 20 sleep 1000 >/dev/null 2>&1 & echo $! | tee {file}");
    let is_real_time = format!("chrt -p $(cat {file}) | grep -q FIFO");
    let script = format!(
        "{made} && {{ {task} >{sub}/cgroup.threads; }} && until {is_real_time}; do :; done"
    );
    asmp(&format!("run --cpus 3 --name a -- sh -c '{script}'")).done().says("SCHED_OTHER");
    let id: u32 = read(file).parse().expect("a number");
    let (policy, allowed, group) = (policy(id), allowed(id), group_of(id));
    sh(&format!("kill {id}")).done();
    assert!(policy.contains("SCHED_OTHER"), "{policy}");
    assert_eq!(allowed, "0-3");
    assert!(!group.contains("asmp"), "{group}");
    assert_eq!(isolated(), "");
    asmp("status").done().says("no partition");
}

/// The group of a task, below the mount.
fn group_of(tid: u32) -> String {
    read(format!("/proc/{tid}/cgroup")).replace("0::", "")
}

/// A group that another program made where ours would be, with a real-time task in it.
struct Theirs {
    group: String,
    task: Process,
}

impl Theirs {
    fn at(group: &str) -> Self {
        fs::create_dir(group).unwrap_or_else(|error| panic!("{group}: {error}"));
        let task = Process::start("chrt", &["-f", "20", "sleep", "1000"]);
        let theirs = Self { group: group.to_owned(), task };
        let id = theirs.task.id();
        until("it is real-time", || policy(id).contains("priority: 20"));
        fs::write(format!("{group}/cgroup.procs"), id.to_string()).expect("it moves");
        theirs
    }

    #[track_caller]
    fn are_left_alone(&self) {
        let id = self.task.id();
        assert_eq!(format!("/sys/fs/cgroup{}", group_of(id)), self.group);
        assert!(policy(id).contains("priority: 20"), "{}", policy(id));
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.task.0.kill();
        let _ = self.task.0.wait();
        for _ in 0..6000 {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn in_our_place() {
    let parent = Path::new(base()).parent().expect("it is below the mount");
    let is_new = fs::create_dir(parent).is_ok();
    let theirs = Theirs::at(base());
    asmp("create a --cpus 3").code(3).says(base());
    theirs.are_left_alone();
    asmp("status").done();
    assert_eq!(isolated(), "");
    drop(theirs);
    if is_new {
        fs::remove_dir(parent).expect("it is empty");
    }
    asmp("create a --cpus 3").done();
    let theirs = Theirs::at(&format!("{}/x", base()));
    asmp("create x --cpus 2").code(3).says(&theirs.group);
    theirs.are_left_alone();
    assert_eq!(isolated(), "3");
    asmp("status").done();
    for line in ["destroy a", "restore"] {
        asmp(line).code(6).says(&theirs.group);
        theirs.are_left_alone();
        asmp("status").code(7).says(&theirs.group);
        assert_eq!(isolated(), "", "{line}");
    }
    drop(theirs);
    asmp("restore").done();
    asmp("status").done();
}

fn two_writers() {
    let lines = ["create a --cpus 3", "create b --cpus 2", "create c --cpus 3"];
    let writers = lines.map(|line| (line, spawn_asmp(line)));
    let codes = writers.map(|(line, mut writer)| match writer.wait().expect("it ends").code() {
        // On a slow host the others have the lock for 10 s.
        Some(8) => until_free(line).code,
        code => code.unwrap_or(-1),
    });
    let mut codes = Vec::from(codes);
    assert_eq!(codes[1], 0);
    codes.remove(1);
    codes.sort_unstable();
    assert_eq!(codes, [0, 22], "of two that want CPU 3 one gets it");
    assert_eq!(isolated(), "2-3");
}

/// The first task inside the first partition.
fn first_task() -> Option<serde_json::Value> {
    let out = asmp("status --json").out;
    let status: serde_json::Value =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    status["partitions"][0]["tasks"].get(0).cloned()
}

fn orphan() {
    let mut run = spawn_asmp("run --cpus 3 --name a -- sleep 1000");
    // Not any task of this name: it must be the command, and inside.
    until("the command runs", || first_task().is_some_and(|task| task["command"] == "sleep"));
    run.kill().expect("kill -9");
    run.wait().expect("it ends");
    asmp("status").code(7).says("killed before it could clean up");
    let child = first_task().expect("the command goes on")["tid"].as_u64().expect("a number");
    let child = child as u32;
    asmp("restore").done();
    assert_eq!(allowed(child), "0-3");
    let _ = std::process::Command::new("kill").arg(child.to_string()).status();
}

fn garbage_state() {
    asmp("create a --cpus 3").done();
    let state = fs::read("/run/asmp/state.json").expect("a state");
    for garbage in [&b"hello"[..], b"{}", b"{\"schema\": 99}", &state[..state.len() / 2]] {
        fs::write("/run/asmp/state.json", garbage).expect("the state is writable");
        let sleeper = Process::start("sleep", &["1000"]);
        asmp(&format!("add a --pid {}", sleeper.id())).code(9).says("/run/asmp/state.json");
        asmp("status").code(9);
        assert_eq!(fs::read("/run/asmp/state.json").expect("a state"), garbage, "left as it is");
    }
    fs::write("/run/asmp/state.json", &state).expect("the state is writable");
    asmp("status").done();
}

/// Groups that are removed and that the kernel has not freed.
fn dying_groups() -> u64 {
    let stat = read("/sys/fs/cgroup/cgroup.stat");
    let count = stat.lines().find_map(|line| line.strip_prefix("nr_dying_descendants "));
    count.and_then(|count| count.parse().ok()).expect("nr_dying_descendants")
}

fn two_hundred() {
    let before = dying_groups();
    let started = Instant::now();
    for cycle in 0..200 {
        watchdog::goes_on();
        match cycle % 2 {
            0 => {
                asmp("create a --cpus 2-3").done();
                asmp("destroy a").done();
            }
            _ => drop(asmp("run --cpus 3 -- true").done()),
        }
    }
    println!("  200 cycles in {:.0} s", started.elapsed().as_secs_f64());
    assert_eq!(isolated(), "");
    until("the kernel has freed the groups", || dying_groups() <= before);
}
