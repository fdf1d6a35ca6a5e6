// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines as others have them: containers and virtual machines with CPUs of their own, isolated
//! CPUs, a locked-down kernel, irqbalance.
//!
//! Problem:  a lab's guest is empty. Elsewhere something already holds the CPUs, or the kernel does
//!           not give what a partition wants.
//! Approach: bring each of them up, hold what `check`, `plan`, `create`, `status` and `destroy` say
//!           against what the kernel says, and compare the machine while the other is still there.

use super::debugfs::{self, boot_parameter};
use super::guests::{Boot, On};
use super::lab::{
    Called, Process, Test, allowed, asmp, binary, called, console, isolated, read, test, until,
};
use super::random::put_back;
use super::snapshot::{settled, snapshot};
use std::fs;
use std::process::{Command, Stdio};

pub fn all() -> Vec<Test> {
    let bare = |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Bare]);
    let systemd = |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Systemd]);
    let boots = &[Boot::Bare, Boot::Locked, Boot::Blind];
    let booted = |name, run: fn()| test(name, run).on(On::OneThenAll).booted(boots);
    vec![
        systemd("others: a scope with cpus of its own is named and kept", scope),
        systemd("others: a container of systemd-nspawn is named and kept", nspawn),
        systemd("others: the last partition leaves a unit in its slice alone", unit_in_our_slice),
        systemd("others: who kills or stops the holder of the groups ends no task", holder_ends),
        bare("others: a process with threads on single cpus is named and kept", pinned_threads),
        bare("others: threads with groups of their own go home to them", threads_of_a_machine),
        bare("others: in a container every command says run it on the host", inside_a_container),
        bare("others: without the machine's tasks every command says run it on the host", no_tasks),
        test(
            "others: a driver that is bound again beside a partition gets its cpus back",
            bound_again,
        )
        .on(On::OnePerSeries)
        .booted(&[Boot::Bare]),
        bare("others: a group that has the cpus is named", overlapping_groups),
        bare("others: what irqbalance moves is seen and put back", irqbalance),
        bare("others: without debugfs each promise is still true", debugfs::goes),
        booted("others: what closes debugfs is named with its cure", debugfs::is_closed),
        booted("others: cpus of isolcpus= are said to be isolated at boot", boot_isolated),
    ]
}

/// The machine as it is now; compares when it ends, while other tests would do so only later.
pub struct Machine(super::snapshot::Snapshot);

impl Machine {
    pub fn now() -> Self {
        Self(snapshot())
    }

    /// Gives it the values that a lost state leaves changed.
    #[track_caller]
    pub fn put_back(&self) {
        put_back(&self.0, &snapshot());
        self.is_as_it_was("put back");
    }

    #[track_caller]
    pub fn is_as_it_was(&self, when: &str) {
        let (_, changed) = settled(&self.0);
        assert!(changed.is_empty(), "{when}: not as it was:\n{}", changed.join("\n"));
    }
}

/// Runs `script` by sh; `$ASMP` is the program.
pub fn sh(script: &str) -> Called {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("ASMP", binary()).stdin(Stdio::null());
    called(script, command.output().expect("sh starts"))
}

pub fn lacks(called: Called, word: &str) -> Called {
    let all = format!("{}{}", called.out, called.err);
    assert!(!all.contains(word), "asmp {}: {word:?} in\n{all}", called.line);
    called
}

const CGROUPS: &str = "/sys/fs/cgroup";

fn set(path: &str, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {text}: {error}"));
}

/// The process in a group of others; the group asks for CPU 2 alone.
fn loses_its_cpu(group: &str, pid: u32) {
    let machine = Machine::now();
    let says = format!("group {group} (1 task) asks for CPU 2 and loses all of them");
    let says = says.as_str();
    lacks(asmp("plan create a --cpus 3").done(), "asks for");
    asmp("plan create a --cpus 2").done().says(says);
    asmp("plan create a --cpus 2 --strict").code(4).says(says);
    asmp("create a --cpus 2 --strict").code(4).says(says);
    machine.is_as_it_was("refused");
    asmp("create a --cpus 2").done().says(says);
    asmp("status").done().says(says);
    assert_eq!((allowed(pid), isolated()), ("0-1,3".to_owned(), "2".to_owned()));
    // systemd would end the scope, and with it what it thinks of the container.
    for line in ["add", "plan add"] {
        let scope = group.split_inclusive(".scope").next().unwrap_or_default();
        asmp(&format!("{line} a --pid {pid}")).code(46).says(scope).says("--force");
    }
    asmp("destroy a").done();
    assert_eq!(allowed(pid), "2");
    machine.is_as_it_was("destroyed");
}

/// Waits until `group` (below the mount) asks for CPU 2, and returns the process in `inner`.
fn process_in(group: &str, inner: &str) -> u32 {
    let mut pid = None;
    until("the scope has its process", || {
        let procs = fs::read_to_string(format!("{CGROUPS}{group}{inner}/cgroup.procs"));
        pid = procs.ok().and_then(|text| text.trim().parse().ok());
        let cpus = fs::read_to_string(format!("{CGROUPS}{group}/cpuset.cpus"));
        let comm = pid.and_then(|pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        cpus.is_ok_and(|cpus| cpus.trim() == "2") && comm.is_some_and(|comm| comm == "sleep\n")
    });
    pid.expect("until has seen it")
}

fn gone(group: &str) {
    until("the scope is gone", || !fs::exists(format!("{CGROUPS}{group}")).unwrap_or(true));
}

fn scope() {
    const SCOPE: &str = "/system.slice/asmp-other.scope";
    let words = ["--scope", "--unit=asmp-other", "-p", "AllowedCPUs=2", "sleep", "1000"];
    let other = Process::start("systemd-run", &words);
    loses_its_cpu(SCOPE, process_in(SCOPE, ""));
    drop(other);
    gone(SCOPE);
}

fn unit_in_our_slice() {
    let machine = Machine::now();
    sh("systemd-run --quiet --unit=asmp-other --slice=asmp.slice sleep 1000").done();
    asmp("create a --cpus 2").done();
    asmp("destroy a").done();
    sh("systemctl is-active asmp-other.service").done().says("active");
    sh("systemctl stop asmp-other.service asmp.slice").done();
    machine.is_as_it_was("without the other unit");
}

fn holder_ends() {
    const HELD: &str = "/sys/fs/cgroup/asmp.slice/asmp-holder.service/holder/cgroup.procs";
    let machine = Machine::now();
    asmp("create a --cpus 3").done();
    asmp("create empty --cpus 2").done();
    let task = Process::start("sleep", &["1000"]);
    asmp(&format!("add a --pid {}", task.id())).done();
    let holder = read(HELD);
    sh(&format!("kill -9 {holder}")).done();
    let is_new = |text: String| !text.trim().is_empty() && text.trim() != holder.trim();
    until("systemd starts another holder", || fs::read_to_string(HELD).is_ok_and(is_new));
    asmp("status").done();
    assert_eq!(allowed(task.id()), "3");
    // systemd removes the groups that have no task.
    sh("systemctl stop asmp-holder.service").done();
    assert_eq!(allowed(task.id()), "3");
    asmp("status").code(7).says("asmp-holder.service was stopped");
    asmp("repair").done();
    asmp("status").done();
    assert_eq!(allowed(task.id()), "3");
    asmp("destroy --all").done();
    drop(task);
    machine.is_as_it_was("without the partitions");
}

/// Runs a command in a container whose root directory is that of the guest.
fn nspawn() {
    const SCOPE: &str = "/machine.slice/asmp-other.scope";
    const ROOT: &str = "/run/asmp-other";
    sh(&format!("mkdir {ROOT} && mount --bind / {ROOT}")).done();
    let asmp = binary().display().to_string();
    let shared = binary().parent().expect("a directory").display().to_string();
    let options = format!(
        "--quiet --register=no --read-only --link-journal=no -M asmp-other -D {ROOT} \
         --bind-ro={shared} --property=AllowedCPUs=2 --kill-signal=SIGKILL"
    );
    let options: Vec<&str> = options.split_whitespace().collect();
    let mut other = Process::start("systemd-nspawn", &[&options[..], &["sleep", "1000"]].concat());
    let pid = process_in(SCOPE, "/payload");
    loses_its_cpu(SCOPE, pid);
    // A container ends with its first process, and not with systemd-nspawn.
    sh(&format!("kill -KILL {pid}")).done();
    other.0.wait().expect("it ends");
    gone(SCOPE);
    let inside = Command::new("systemd-nspawn")
        .args(&options)
        .args([&asmp, "create", "a", "--cpus", "3"])
        .stdin(Stdio::null())
        .output();
    called("create in a container", inside.expect("it starts"))
        .code(15)
        .says("run asmp on the host");
    gone(SCOPE);
    sh(&format!("umount {ROOT} && rmdir {ROOT}")).done();
    // The slice of containers would stay.
    sh("systemctl stop machine.slice").done();
    gone("/machine.slice");
}

/// As libvirt pins the virtual CPUs of a machine: by the affinity of single threads.
fn pinned_threads() {
    const MACHINE: &str = "import os, threading, time
def run(cpus):
    os.sched_setaffinity(0, cpus)
    time.sleep(1000)
for cpus in ({2}, {3}, {1, 2}):
    threading.Thread(target=run, args=(cpus,), daemon=True).start()
time.sleep(1000)";
    let other = Process::start("python3", &["-c", MACHINE]);
    let pid = other.id();
    let cpus_of_threads = || -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut tids: Vec<u32> =
            threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect();
        tids.sort_unstable();
        tids.into_iter().map(allowed).collect()
    };
    until("the threads are pinned", || cpus_of_threads() == ["0-3", "2", "3", "1-2"]);
    let machine = Machine::now();
    let one = format!("process {pid} (python3) (1 task) asks for CPU 2 and loses all of them");
    let two = format!("process {pid} (python3) (2 tasks) asks for CPU 2-3 and loses all of them");
    lacks(asmp("plan create a --cpus 1").done(), "asks for");
    asmp("plan create a --cpus 2").done().says(&one);
    asmp("plan create a --cpus 2-3").done().says(&two);
    asmp("create a --cpus 2-3 --strict").code(4).says(&two);
    machine.is_as_it_was("refused");
    asmp("create a --cpus 2").done().says(&one);
    asmp("status").done();
    assert_eq!(cpus_of_threads(), ["0-1,3", "0-1,3", "3", "1"]);
    asmp("resize a --cpus 2-3").done().says("(1 task) asks for CPU 3");
    assert_eq!(cpus_of_threads(), ["0-1", "0-1", "0-1", "1"]);
    asmp("destroy a").done();
    assert_eq!(cpus_of_threads(), ["0-3", "2", "3", "1-2"]);
    machine.is_as_it_was("destroyed");
}

/// A process whose threads each have a cgroup, as those of a virtual machine have under libvirt.
fn threads_of_a_machine() {
    const MACHINE: &str = "import threading, time
for _ in range(2):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
time.sleep(1000)";
    let other = Process::start("python3", &["-c", MACHINE]);
    let threads = || -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{}/task", other.id())).into_iter().flatten();
        let numbers = threads.flatten().filter_map(|one| one.file_name().to_str()?.parse().ok());
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers
    };
    until("the threads are there", || threads().len() == 3);
    let groups = ["emulator", "vcpu0", "vcpu1"].map(|name| format!("/vm/{name}"));
    fs::create_dir(format!("{CGROUPS}/vm")).expect("a group");
    for group in &groups {
        fs::create_dir(format!("{CGROUPS}{group}")).expect("a group");
        fs::write(format!("{CGROUPS}{group}/cgroup.type"), "threaded").expect("it takes threads");
    }
    fs::write(format!("{CGROUPS}/vm/cgroup.procs"), other.id().to_string()).expect("it moves");
    for (tid, group) in threads().iter().zip(&groups) {
        fs::write(format!("{CGROUPS}{group}/cgroup.threads"), tid.to_string()).expect("it moves");
    }
    let now = || -> Vec<String> {
        let group = |tid: &u32| read(format!("/proc/{tid}/cgroup")).replace("0::", "");
        threads().iter().map(group).collect()
    };
    let machine = Machine::now();
    for (add, end) in [
        (format!("add a --pid {}", other.id()), "destroy a"),
        (format!("add a --tid {}", threads()[1]), "restore"),
        (format!("add a --tid {} --tid {}", threads()[2], threads()[1]), "restore"),
    ] {
        asmp("create a --cpus 3").done();
        asmp(&add).done();
        assert_eq!(allowed(threads()[1]), "3", "{add}");
        asmp(end).done();
        assert_eq!(now(), groups, "{add}, {end}");
    }
    machine.is_as_it_was("after all");
    asmp("create a --cpus 3").done();
    asmp(&format!("add a --pid {}", other.id())).done();
    fs::remove_dir(format!("{CGROUPS}{}", groups[1])).expect("it is empty");
    asmp("destroy a").done().says("came from the group /vm/vcpu0, which is gone");
    assert_eq!(now(), [0, 0, 2].map(|at| groups[at].clone()));
    drop(other);
    for group in ["/vm/emulator", "/vm/vcpu1", "/vm"] {
        let group = format!("{CGROUPS}{group}");
        until("the group is empty", || fs::remove_dir(&group).is_ok());
    }
}

const COMMANDS: [&str; 18] = [
    "plan create a --cpus 2",
    "create a --cpus 2",
    "run --cpus 2 -- true",
    "exec h -- true",
    "add h --pid 1",
    "remove h --pid 1",
    "move h --to i --pid 1",
    "resize h --cpus 2",
    "apply /tmp/asmp-other.toml",
    "repair",
    "restore",
    "destroy h",
    "status",
    "status h",
    "status --json",
    "noise h -t 1s",
    "noise --cpus 2 -t 1s",
    "measure latency --kinds N --samples 10 --quiet -o /tmp/asmp-other",
];

/// What `apply` of [`COMMANDS`] reads.
fn write_file() {
    let text = "[[partition]]\nname = \"a\"\ncpus = \"2\"\n";
    fs::write("/tmp/asmp-other.toml", text).expect("/tmp");
}

/// As `docker run --privileged --cgroupns=host`: the groups are the machine's, the tasks are not.
fn no_tasks() {
    let inside = |line: &str| {
        sh(&format!("unshare --pid --fork --mount-proc sh -c '$ASMP {line}; exit $?'"))
    };
    let machine = Machine::now();
    write_file();
    inside("check")
        .code(7)
        .says("all tasks of the machine are seen: no")
        .says("run asmp on the host");
    for line in COMMANDS {
        inside(line).code(15).says("run asmp on the host");
    }
    machine.is_as_it_was("after the container");
}

/// The network card, which the lab does not use.
fn bound_again() {
    const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_net";
    let machine = Machine::now();
    let lines = || {
        let of_card = |line: &&str| line.contains("virtio") && line.contains("-input");
        let text = read("/proc/interrupts");
        text.lines()
            .filter(of_card)
            .filter_map(|line| Some(line.split(':').next()?.trim().to_owned()))
            .collect::<Vec<_>>()
    };
    let before = lines();
    assert!(!before.is_empty(), "no line of a virtio network card");
    let card = called("ls", Command::new("ls").arg(DRIVER).output().expect("ls starts")).done();
    let card = card
        .out
        .split_whitespace()
        .find(|name| name.starts_with("virtio"))
        .expect("a card")
        .to_owned();
    asmp("create a --cpus 3").done();
    set(&format!("{DRIVER}/unbind"), &card);
    // Each change notes which lines there are.
    asmp("create b --cpus 2").done();
    set(&format!("{DRIVER}/bind"), &card);
    // This driver chooses CPUs itself.
    asmp("repair").done();
    for line in lines() {
        assert_eq!(read(format!("/proc/irq/{line}/smp_affinity_list")), "0-1", "IRQ {line}");
    }
    asmp("status").done();
    asmp("destroy b").done();
    asmp("destroy a").done();
    assert_eq!(lines(), before);
    machine.is_as_it_was("with the driver bound again");
}

/// A cgroup and a mount namespace of its own, as a container has them.
fn inside_a_container() {
    let group = format!("{CGROUPS}/asmp-other");
    let inside = |line: &str| {
        sh(&format!(
            "echo $$ >{group}/cgroup.procs && exec unshare -C -m sh -c 'umount -R {CGROUPS} && \
             mount -t cgroup2 none {CGROUPS} && exec $ASMP {line}'"
        ))
    };
    fs::create_dir(&group).expect("a group");
    write_file();
    // With and without the cpuset controller in the container, and beside a partition.
    for before in ["", "+cpuset", "partition"] {
        let controllers = format!("{CGROUPS}/cgroup.subtree_control");
        match before {
            "" => {}
            "partition" => drop(asmp("create h --cpus 3").done()),
            on => set(&controllers, on),
        }
        let machine = Machine::now();
        asmp("status").done();
        inside("check")
            .code(7)
            .says("the machine's own cgroup tree: no")
            .says("run asmp on the host");
        inside("check --json").code(7).says("run asmp on the host");
        for line in COMMANDS {
            let said = inside(line).code(15).says("run asmp on the host");
            assert_eq!(said.err.lines().count(), 1, "{line}: {}", said.err);
            assert_eq!(said.out, "", "{line}");
        }
        asmp("status").done();
        machine.is_as_it_was(before);
        match before {
            "" => {}
            "partition" => drop(asmp("destroy h").done()),
            _ => set(&controllers, "-cpuset"),
        }
    }
    until("the group is empty", || fs::remove_dir(&group).is_ok());
}

fn overlapping_groups() {
    let root = format!("{CGROUPS}/cgroup.subtree_control");
    let other = |file: &str| format!("{CGROUPS}/asmp-other/{file}");
    set(&root, "+cpuset");
    fs::create_dir(other("")).expect("a group");
    let refused = |line: &str, code: i32, says: &str| {
        let machine = Machine::now();
        let said = asmp(line).code(code).says(says);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        machine.is_as_it_was(line);
        asmp("status").done();
    };
    // It only keeps others from having the CPU exclusively.
    set(&other("cpuset.cpus.exclusive"), "2");
    let says = "group /asmp-other has CPU 2 exclusively";
    refused("plan create a --cpus 2-3", 22, says);
    refused("create a --cpus 2-3", 22, says);
    // A partition of another program.
    for kind in ["root", "isolated"] {
        set(&other("cpuset.cpus.partition"), kind);
        assert_eq!(read(other("cpuset.cpus.partition")), kind);
        refused("plan create a --cpus 2", 22, says);
        refused("create a --cpus 2", 22, says);
        let status = asmp("status").done();
        match kind {
            "isolated" => drop(status.says("isolated by another program: CPU 2")),
            _ => drop(lacks(status, "isolated by")),
        }
        // A CPU that it does not have.
        let machine = Machine::now();
        asmp("create a --cpus 3").done();
        asmp("status").done();
        asmp("destroy a").done();
        machine.is_as_it_was(kind);
        set(&other("cpuset.cpus.partition"), "member");
    }
    set(&other("cpuset.cpus.exclusive"), "\n");
    // It asks for the CPU and has no tasks, so it loses nothing.
    set(&other("cpuset.cpus"), "2");
    let says = "group /asmp-other beside it asks for CPU 2";
    refused("create a --cpus 2-3", 3, says);
    fs::remove_dir(other("")).expect("the group goes");
    set(&root, "-cpuset");
}

/// The lines whose affinity names CPU 3.
fn lines_on_cpu_3() -> Vec<String> {
    let entries = fs::read_dir("/proc/irq").expect("/proc/irq").flatten();
    let file = |entry: fs::DirEntry| {
        Some(format!("/proc/irq/{}/smp_affinity_list", entry.file_name().to_str()?))
    };
    let has = |file: &String| fs::read_to_string(file).is_ok_and(|cpus| cpus.contains('3'));
    let mut lines: Vec<String> = entries.filter_map(file).filter(has).collect();
    lines.sort();
    lines
}

/// irqbalance is told to use CPU 3 alone, so that it does what asmp must see.
fn irqbalance() {
    lacks(asmp("check").done(), "irqbalance: running");
    asmp("create a --cpus 3").done();
    // What the kernel refuses to move.
    let stay = lines_on_cpu_3();
    let start = || {
        let mut command = Command::new("irqbalance");
        command.args(["--foreground", "--interval", "1"]).env("IRQBALANCE_BANNED_CPULIST", "0-2");
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts"))
    };
    let other = start();
    let signal = |signal: &str| sh(&format!("kill -{signal} {}", other.id())).done();
    until("irqbalance has moved lines", || lines_on_cpu_3().len() > stay.len());
    // Standing still, so that both look at the same machine.
    signal("STOP");
    let moved: Vec<String> =
        lines_on_cpu_3().into_iter().filter(|line| !stay.contains(line)).collect();
    asmp("check").done().says("irqbalance: running").says("IRQBALANCE_BANNED_CPULIST");
    let status = asmp("status").code(7);
    for line in &moved {
        assert!(status.out.contains(line), "{line} is not named:\n{}", status.out);
    }
    asmp("repair").done().says("every setting is as promised");
    asmp("status").done();
    assert_eq!(lines_on_cpu_3(), stay);
    // It goes on, and whatever it does, status agrees with the kernel.
    signal("CONT");
    std::thread::sleep(std::time::Duration::from_secs(4));
    signal("STOP");
    let code = if lines_on_cpu_3() == stay { 0 } else { 7 };
    asmp("status").code(code);
    drop(other);
    // All lines go back to where they were before the partition, also those it moved meanwhile.
    asmp("destroy a").done();
    assert!(lines_on_cpu_3().len() > stay.len(), "{} is back on all CPUs", console());
}

fn boot_isolated() {
    let machine = Machine::now();
    let boot = read("/sys/devices/system/cpu/isolated");
    let given = boot_parameter("isolcpus");
    assert_eq!(boot, if given.is_some() { "3" } else { "" });
    let at_boot = "isolated at boot (isolcpus=): CPU 3";
    // Linux 6.12 counts the CPU no more when its partition ends; bare mkdir and echo show it too.
    let forgetful = given.is_some() && read("/proc/sys/kernel/osrelease").starts_with("6.12.");
    let mut forgotten = forgetful && isolated().is_empty();
    let uncounted = "cpuset.cpus.isolated does not count CPU 3";
    let check = asmp("check").done();
    match &given {
        Some(value) => drop(check.says(&format!("optional  isolcpus: {value}"))),
        None => drop(check.says("n/a  isolcpus: not given")),
    }
    for cpus in ["", "3", "2", "2-3"] {
        if !cpus.is_empty() {
            asmp(&format!("plan create a --cpus {cpus}")).done();
            asmp(&format!("create a --cpus {cpus}")).done();
        }
        let status = lacks(asmp("status").done(), "another program");
        match given.is_some() && !cpus.contains('3') {
            true => drop(status.says(at_boot)),
            false => drop(lacks(status, at_boot)),
        }
        // The kernel's words: those of the boot and those of the partition.
        let all = match (boot.as_str(), cpus) {
            ("3", "2") if !forgotten => "2-3",
            ("3", "") if !forgotten => "3",
            (_, cpus) => cpus,
        };
        assert_eq!(isolated(), all, "with {cpus:?}");
        if !cpus.is_empty() {
            asmp("destroy a").done();
        }
        forgotten |= forgetful && cpus.contains('3');
        assert_eq!(isolated(), if forgotten { "" } else { boot.as_str() }, "after {cpus:?}");
        let status = asmp("status").done().says("system: CPU");
        match forgotten {
            true => drop(status.says(uncounted).says("system: CPU 0-2\n")),
            false => drop(lacks(status, uncounted)),
        }
        machine.is_as_it_was(cpus);
    }
}
