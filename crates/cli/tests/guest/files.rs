// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Partitions as files, with the programs of any system: echo, cat, and what polls.

use super::asked::NOBODY;
use super::drift::tty_irq;
use super::guests::{Boot, On, Tier};
use super::held::{Daemon, Unit, median_ms};
use super::lab::{Process, Test, allowed, asmp, isolated, read, test, tier, until};
use super::others::{Machine, sh};
use super::watchdog;
use asmp_host::clock::unix_s;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let files = |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Bare]).lacks(no_fuse);
    vec![
        files("files: a cpu is shielded, given a process and a line, and given back", by_echo)
            .on(On::OnePerSeries),
        files("files: a write that cannot be is refused with its error number", refused),
        files("files: a partition has its files, and they are gone with it", of_a_partition),
        files("files: poll wakes for events and for violations", polled),
        files("files: a long list is taken as a whole or not at all, and read as one", in_pieces),
        files("files: any user reads, and only root writes", permissions),
        files("files: after asmpd is killed the next one shows them again", killed),
        files("files: users who read without end keep asmpd from no repair", read_without_end),
        files("files: bytes without a meaning change nothing and end nothing", fuzzed),
        test("held: the unit of systemd shows the tree of files to all", of_the_unit)
            .on(On::One)
            .booted(&[Boot::Systemd])
            .lacks(no_fuse),
    ]
}

pub fn no_fuse() -> Option<&'static str> {
    let loaded = Command::new("modprobe").arg("fuse").status().is_ok_and(|status| status.success());
    (!loaded || !Path::new("/dev/fuse").exists()).then_some("this kernel has no FUSE")
}

pub const DIR: &str = "/run/asmp/fs";

fn at(file: &str) -> String {
    format!("{DIR}/{file}")
}

/// One write(2), and its error number.
fn write(file: &str, bytes: impl AsRef<[u8]>) -> Result<(), i32> {
    let mut open = OpenOptions::new().write(true).open(at(file)).expect(file);
    let wrote = open.write(bytes.as_ref());
    wrote.map(drop).map_err(|error| error.raw_os_error().unwrap_or(0))
}

fn by_echo() {
    let machine = Machine::now();
    let daemon = Daemon::start();
    let sleeper = Process::start("sleep", &["1000"]);
    let (pid, file) = (sleeper.id(), tty_irq());
    let irq = file.split('/').nth(3).expect("a number").to_owned();
    let before = read(&file);
    let told = sh(&format!(
        "cd {DIR} && cat cpu3/shielded cpu3/localtimer && echo 1 > cpu3/shielded && \
         echo {pid} > cpu3/pids && echo {irq} > cpu3/irqs && \
         cat cpu3/shielded cpu3/localtimer cpu3/pids cpu3/irqs"
    ));
    assert_eq!(told.done().out, format!("0\n1\n1\n0\n{pid}\n{irq}\n"));
    assert_eq!((isolated(), allowed(pid), read(&file)), ("3".into(), "3".into(), "3".into()));
    asmp("status").done().says("wrote to cpu3/shielded");
    sh(&format!("cd {DIR} && echo -{irq} > cpu3/irqs && echo -{pid} > cpu3/pids")).done();
    assert_eq!((allowed(pid), read(&file)), ("0-2".into(), "0-2".into()));
    sh(&format!("echo 1 > {DIR}/cpu3/localtimer")).done();
    asmp("status --json").done().says("\"kept\"");
    sh(&format!("echo 0 > {DIR}/cpu3/localtimer && echo 0 > {DIR}/cpu3/shielded")).done();
    assert_eq!((isolated(), read(&file)), (String::new(), before));
    // The first process shields; what is inside goes back before the shield ends.
    sh(&format!("echo {pid} > {DIR}/cpu2/pids")).done();
    assert_eq!((isolated(), allowed(pid)), ("2".into(), "2".into()));
    sh(&format!("echo 0 > {DIR}/cpu2/shielded")).done();
    assert_eq!((isolated(), allowed(pid)), (String::new(), "0-3".into()));
    daemon.ends();
    assert!(!Path::new(&at("events")).exists(), "the tree is gone with asmpd");
    drop(sleeper);
    machine.is_as_it_was("after its files were used");
}

fn refused() {
    let daemon = Daemon::start();
    asmp("create motion --cpus 2-3").done();
    let sleeper = Process::start("sleep", &["1000"]);
    let pid = sleeper.id().to_string();
    let state = || read("/run/asmp/state.json");
    let before = state();
    for (file, text, errno) in [
        ("cpu1/pids", "999999999", libc::ESRCH),
        ("cpu1/pids", "2147483648", libc::EINVAL),
        ("cpu1/pids", "some", libc::EINVAL),
        ("cpu1/irqs", "9999", libc::ENODEV),
        ("cpu1/localtimer", "0", libc::EINVAL),
        ("cpu1/localtimer", "10", libc::EINVAL),
        ("cpu3/shielded", "0", libc::EBUSY),
        ("cpu3/shielded", "2", libc::EINVAL),
        ("cpu3/pids", &pid, libc::EBUSY),
        ("partitions/motion/cpus", "0-3", libc::EBUSY),
        ("partitions/motion/cpus", "9", libc::ENODEV),
        ("partitions/motion/pids", &format!("-{pid}"), libc::ESRCH),
        ("partitions/motion/tick", "require-off", libc::EINVAL),
    ] {
        assert_eq!(write(file, text), Err(errno), "{file}: {text}");
    }
    for script in ["echo > x", "mkdir x", "rm cpu3/pids", "rmdir cpu3", "mv cpu3 x", "ln events x"]
    {
        let told = sh(&format!("cd {DIR} && {script}"));
        assert!(told.code != 0, "{script}");
    }
    assert_eq!(state(), before);
    let events = asmp("events").done().out;
    for words in [
        "cpu1/localtimer: a stock kernel cannot slow its tick down",
        "cpu3/shielded: CPU 3 belongs to partition motion, which has CPU 2-3",
        "cpu1/pids: ",
    ] {
        assert!(events.contains(words), "{words}: {events}");
    }
    assert_eq!(read(at("events")), events.trim_end(), "the same lines");
    asmp("destroy motion").done();
    daemon.ends();
}

fn of_a_partition() {
    let daemon = Daemon::start();
    asmp("create motion --cpus 3").done();
    let sleeper = Process::start("sleep", &["1000"]);
    let pid = sleeper.id();
    let dir = at("partitions/motion");
    sh(&format!("echo {pid} > {dir}/tids && chrt -f -p 7 {pid}")).done();
    for (file, text) in [
        ("cpus", "3".to_owned()),
        ("pids", pid.to_string()),
        ("tids", pid.to_string()),
        ("policy", format!("{pid} fifo:7")),
        ("tick", "off".to_owned()),
        ("irqs", String::new()),
        ("violations", String::new()),
    ] {
        assert_eq!(read(format!("{dir}/{file}")), text, "{file}");
    }
    let mut kept = File::open(format!("{dir}/cpus")).expect("it is there");
    sh(&format!("echo 2-3 > {dir}/cpus")).done();
    assert_eq!((read(format!("{dir}/cpus")), isolated()), ("2-3".into(), "2-3".into()));
    assert_eq!(sh(&format!("ls {DIR}/partitions")).done().out, "motion\n");
    asmp("destroy motion --force").done();
    assert!(!Path::new(&dir).exists());
    let mut text = String::new();
    let error = kept.read_to_string(&mut text).expect_err("its partition has ended");
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    daemon.ends();
}

/// What poll(2) says of a file within so many milliseconds.
fn poll(file: &File, most_ms: i32) -> i16 {
    let mut polled = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
    // SAFETY: one pollfd, which outlives the call.
    unsafe { libc::poll(&raw mut polled, 1, most_ms) };
    polled.revents
}

fn polled() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    let mut events = File::open(at("events")).expect("a file");
    let mut violations = File::open(at("partitions/a/violations")).expect("a file");
    let mut text = String::new();
    events.read_to_string(&mut text).expect("events");
    violations.read_to_string(&mut text).expect("violations");
    assert_eq!((text.as_str(), poll(&events, 0), poll(&violations, 0)), ("", 0, 0));
    // Who waits is woken: nothing else would end these.
    let waiting = std::thread::spawn(move || (poll(&events, 60_000), events));
    fs::write(&file, "0-3").expect("the line takes all CPUs");
    let (told, mut events) = waiting.join().expect("no panic");
    assert_eq!(told, libc::POLLPRI);
    events.read_to_string(&mut text).expect("events");
    assert!(text.contains("repaired"), "{text}");
    // What cannot be repaired: CPU 3 goes offline.
    let waiting = std::thread::spawn(move || (poll(&violations, 60_000), violations));
    sh("echo 0 > /sys/devices/system/cpu/cpu3/online").done();
    let (told, _violations) = waiting.join().expect("no panic");
    assert_eq!(told, libc::POLLPRI);
    until("it is named", || read(at("partitions/a/violations")).contains("CPU 3"));
    sh("echo 1 > /sys/devices/system/cpu/cpu3/online").done();
    until("it is over", || read(at("partitions/a/violations")).is_empty());
    // What is read to its end is no news, and the end of its partition is.
    let mut violations = File::open(at("partitions/a/violations")).expect("a file");
    violations.read_to_string(&mut text).expect("violations");
    assert_eq!(poll(&violations, 0), 0);
    let waiting = std::thread::spawn(move || poll(&violations, 60_000));
    asmp("destroy a").done();
    let told = waiting.join().expect("no panic");
    assert_eq!(told, libc::POLLPRI | libc::POLLERR | libc::POLLHUP);
    daemon.ends();
}

/// Shells and awk write by the C library, in pieces of its buffer, and read line by line.
fn in_pieces() {
    let daemon = Daemon::start();
    let sleepers: Vec<Process> = (0..6).map(|_| Process::start("sleep", &["1000"])).collect();
    let pids: Vec<String> = sleepers.iter().map(|one| one.id().to_string()).collect();
    let file = at("cpu3/pids");
    sh(&format!("echo {} > {file}", pids.join(" "))).done();
    assert_eq!(read(&file).lines().count(), 6);
    // What is removed while the file is read is not skipped.
    sh(&format!("while read pid; do echo -$pid > {file}; done < {file}")).done();
    assert_eq!((read(&file).as_str(), read(at("cpu3/shielded")).as_str()), ("", "1"));
    // Too long for one write: no piece of it is taken for the whole. A piece of the first list
    // would end in the number of a process that is there.
    let before = read("/run/asmp/state.json");
    let pid = &pids[0];
    for length in [1021, 4093, 8189] {
        let list = format!("{}{pid}7", " ".repeat(length - pid.len() + 3));
        fs::write("/tmp/list", &list).expect("a file");
        for writer in [
            format!("cat /tmp/list > {file}"),
            format!("bash -c 'echo \"$(cat /tmp/list)\" > {file}'"),
            format!("dd if=/tmp/list of={file} bs={} status=none", length + 3),
        ] {
            let told = sh(&writer);
            assert!(told.code != 0, "{writer}: {length}");
        }
    }
    assert_eq!(read("/run/asmp/state.json"), before);
    sh(&format!("echo 0 > {}", at("cpu3/shielded"))).done();
    daemon.ends();
}

fn permissions() {
    let daemon = Daemon::start();
    asmp("create motion --cpus 3").done();
    let as_user = |script: &str| sh(&format!("cd {DIR} && {NOBODY} sh -c '{script}'"));
    assert_eq!(as_user("cat cpu3/shielded partitions/motion/cpus").done().out, "1\n3\n");
    for script in [
        "echo 0 > cpu3/shielded",
        "echo 1 > cpu2/shielded",
        "echo $$ > cpu3/pids",
        "echo $$ > partitions/motion/pids",
        "echo 2-3 > partitions/motion/cpus",
        "echo x > events",
        "chmod 666 cpu3/shielded",
        "touch x",
    ] {
        let told = as_user(script);
        let is_refused = ["Permission denied", "not permitted"].iter();
        assert!(is_refused.clone().any(|words| told.err.contains(words)), "{script}: {}", told.err);
    }
    assert_eq!((isolated(), read(at("cpu2/shielded"))), ("3".into(), "0".into()));
    // Many open files of a user are no burden: some are refused, and root has its own.
    let many = sh(&format!(
        "cd {DIR} && exec 2>&1 && {NOBODY} bash -c 'for i in $(seq 100); do exec {{file}}<events \
         || exit 5; done'"
    ));
    assert!(many.code != 0 && many.out.contains("Too many open files"), "{}", many.out);
    read(at("events"));
    asmp("destroy motion").done();
    daemon.ends();
}

fn killed() {
    asmp("create a --cpus 3").done();
    let mut daemon = Daemon::start();
    let held = File::open(at("events")).expect("a file");
    daemon.process.0.kill().expect("it is killed");
    daemon.process.0.wait().expect("it ends");
    let error = fs::read(at("cpu3/shielded")).expect_err("asmpd is gone");
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    asmp("status").done();
    drop(daemon);
    let daemon = Daemon::start();
    assert_eq!(read(at("cpu3/shielded")), "1");
    drop(held);
    // A directory that is in use does not keep asmpd from its end, nor the tree from its own.
    let mut user = Process(Command::new("sleep").arg("1000").current_dir(DIR).spawn().expect("it"));
    daemon.ends();
    assert!(!Path::new(&at("events")).exists());
    user.0.kill().expect("it ends");
    asmp("destroy a").done();
}

const BYTE_BY_BYTE: &str = "
import os, threading
threading.stack_size(65536)
def read():
    file = os.open('/run/asmp/fs/metrics', os.O_RDONLY)
    while True: os.pread(file, 1, 0)
for _ in range(60): threading.Thread(target=read).start()
";

fn read_without_end() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    let script = "cd /run/asmp/fs; while :; do cat cpu*/* partitions/*/* metrics events; done";
    let mut readers = Vec::new();
    for _ in 0..4 {
        let mut command = Command::new("setpriv");
        command.args(NOBODY.split(' ').skip(1)).args(["sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        readers.push(Process(command.spawn().expect("a reader")));
    }
    // And one that asks for what takes longest, a byte at a time, from 60 threads.
    let mut command = Command::new("setpriv");
    command.args(NOBODY.split(' ').skip(1)).args(["python3", "-c", BYTE_BY_BYTE]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    readers.push(Process(command.spawn().expect("a reader")));
    let mut longest = Duration::ZERO;
    for turn in 0..20 {
        fs::write(&file, "0-3").expect("the line takes all CPUs");
        until("it is repaired and told", || {
            read(&file) == "0-2" && daemon.told().matches(": repaired ").count() > turn
        });
        let began = Instant::now();
        assert_eq!(read(at("cpu3/shielded")), "1");
        longest = longest.max(began.elapsed());
    }
    drop(readers);
    let (counts, told) = daemon.ends();
    println!(
        "  beside readers of 64 threads: median repair {:.1} ms; root waited {:.1} s for a file at \
         most",
        median_ms(&told),
        longest.as_secs_f64()
    );
    assert_eq!((counts.repaired, counts.violations), (20, 20), "{told}");
    asmp("destroy a").done();
}

/// The next number of a generator that each run has alike (xorshift64).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn fuzzed() {
    let asked = std::env::var("ASMP_FILE_WRITES").ok().and_then(|text| text.parse().ok());
    let usual = if tier() == Tier::Nightly { 100_000 } else { 10_000 };
    let (writes, began) = (asked.unwrap_or(usual), Instant::now());
    asmp("create motion --cpus 3").done();
    let machine = Machine::now();
    let daemon = Daemon::start();
    let of_cpu = |file: &str| format!("cpu2/{file}");
    let of_partition = |file: &str| format!("partitions/motion/{file}");
    let files: Vec<String> = ["shielded", "pids", "irqs", "localtimer"]
        .map(of_cpu)
        .into_iter()
        .chain(["cpus", "pids", "tids", "irqs", "tick"].map(of_partition))
        .collect();
    let mut open: Vec<File> = files
        .iter()
        .map(|file| OpenOptions::new().write(true).open(at(file)).expect(file))
        .collect();
    // Other bytes each night.
    let day = unix_s() / 86_400;
    let mut state = if tier() == Tier::Nightly { day } else { 0x2026_1126 };
    println!("seed {state}");
    for number in 0..writes {
        let at = next(&mut state) as usize % open.len();
        let length = next(&mut state) as usize % if number % 1000 == 0 { 20_000 } else { 24 };
        // Half of them are of what numbers are made of.
        let alphabet: &[u8] =
            if next(&mut state).is_multiple_of(2) { b"0123456789- \n" } else { b"" };
        let byte = |state: &mut u64| match alphabet.len() {
            0 => next(state) as u8,
            count => alphabet[next(state) as usize % count],
        };
        let mut bytes: Vec<u8> = (0..length).map(|_| byte(&mut state)).collect();
        // Somewhere is what no file takes.
        let place = next(&mut state) as usize % (length + 1);
        bytes.insert(place, b'!');
        let error = open[at].write(&bytes).expect_err("it has no meaning");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{}: {bytes:?}", files[at]);
        watchdog::goes_on();
    }
    println!("  {writes} writes in {:.0} s", began.elapsed().as_secs_f64());
    assert_eq!((isolated(), read(at("cpu3/shielded"))), ("3".into(), "1".into()));
    drop(open);
    daemon.ends();
    machine.is_as_it_was("after writes without a meaning");
    asmp("destroy motion").done();
}

fn of_the_unit() {
    let _unit = Unit::install();
    sh("systemctl start asmpd").done();
    until("the tree is there", || Path::new(&at("events")).exists());
    sh(&format!("echo 1 > {DIR}/cpu3/shielded")).done();
    assert_eq!((isolated(), read(at("cpu3/shielded"))), ("3".into(), "1".into()));
    sh("systemctl restart asmpd").done();
    let shielded = || fs::read_to_string(at("cpu3/shielded"));
    until("the tree is there", || shielded().is_ok_and(|text| text == "1\n"));
    sh(&format!("echo 0 > {DIR}/cpu3/shielded")).done();
    assert_eq!(isolated(), "");
    sh("systemctl stop asmpd").done();
    assert!(!Path::new(&at("events")).exists());
}
