// SPDX-License-Identifier: Apache-2.0 OR MIT
//! asmpd under other people's hands: what they break is repaired or named, each time.
//!
//! Problem:  a repair that came by luck, or by a sweep that was due, looks like one that was told.
//! Approach: break the same thing again and again, faster than any sweep, and at the end hold what
//!           asmpd counted against what was broken.

use super::drift::tty_irq;
use super::guests::{Boot, On, Tier};
use super::lab::{
    Process, Test, allowed, asmp, console, example, isolated, read, test, tier, until,
};
use super::others::{Machine, sh};
use super::random::hands::online;
use super::random::judge::{self, base};
use super::watchdog;
use asmp_host::Linux;
use asmp_host::irqbalance::{self, Irqbalance};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let held = |name, run: fn()| test(name, run).on(On::OneThenRt).booted(&[Boot::Bare]);
    vec![
        held("held: an irq that is sent to a shielded cpu goes home each time", irq),
        held("held: a partition that another program dissolves is one again each time", dissolved),
        held("held: a task that another program takes out comes back each time", taken_out),
        held("held: of some tasks the one that is taken out comes back each time", one_of_some),
        held("held: a task that another program moves in is named each time", moved_in),
        held("held: a cpu that goes offline is named and comes back shielded each time", hotplug),
        held("held: what irqbalance moves goes home", moved_by_irqbalance),
        test("held: irqbalance is told what to leave alone, and the end of it", balancer)
            .on(On::One)
            .booted(&[Boot::Plain]),
        held("held: a network link that comes up is looked at", link),
        held("held: kernel threads of a module that comes and goes leave it as it is", modules),
        held("held: a file is followed also after the kernel has dropped its caches", caches),
        held("held: what goes through another mount of proc is found by a sweep", other_mount),
        held("held: at rest asmpd costs next to nothing", at_rest),
        held("held: who kills asmpd again and again loses nothing", killed),
        test(
            "held: asmpd as a service repairs, restarts without a change, and is watched",
            service,
        )
        .on(On::One)
        .booted(&[Boot::Systemd]),
    ]
}

/// How many times a test breaks something.
fn turns() -> usize {
    if tier() == Tier::Nightly { 100 } else { 5 }
}

/// asmpd as it runs; killed when dropped.
pub struct Daemon {
    pub process: Process,
    log: PathBuf,
}

/// The numbers that it says as it ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Counts {
    pub violations: usize,
    pub repaired: usize,
    by_sweep: usize,
}

impl Daemon {
    /// A sweep is an hour away: what is found was told.
    pub fn start() -> Self {
        Self::sweeping("1h")
    }

    fn sweeping(every: &str) -> Self {
        let log = std::env::temp_dir().join("asmpd.log");
        let daemon = Self { process: Self::spawn(&log, every), log };
        daemon.until_ready();
        daemon
    }

    fn spawn(log: &PathBuf, every: &str) -> Process {
        let mut command = Command::new(example("asmpd"));
        command.args(["--sweep", every]).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(log).expect("a log"));
        Process(command.spawn().expect("asmpd starts"))
    }

    /// It has looked once.
    fn until_ready(&self) {
        until("asmpd holds the partitions", || self.told().contains("holds the partitions"));
    }

    pub fn told(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn ends(mut self) -> (Counts, String) {
        sh(&format!("kill -TERM {}", self.process.id())).done();
        let status = self.process.0.wait().expect("it ends");
        let told = self.told();
        assert!(status.success(), "{status}: {told}");
        let last = told.lines().rfind(|line| line.starts_with("asmpd: ends;"));
        let last = last.unwrap_or_default().to_owned();
        let number = |before: &str, after: &str| -> usize {
            let text = last.split_once(before).and_then(|(_, rest)| rest.split(after).next());
            text.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("{last}"))
        };
        let counts = Counts {
            violations: number("ends;", " violations"),
            repaired: number(" violations,", " repaired"),
            by_sweep: number("found by a sweep:", "\n"),
        };
        (counts, told)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.told());
        }
    }
}

/// The middle of what asmpd says of its repairs, in ms.
pub fn median_ms(told: &str) -> f64 {
    let times = told.lines().filter_map(|line| line.split_once(": repaired ")?.1.split_once(" ms"));
    let mut times: Vec<f64> = times.filter_map(|(text, _)| text.parse().ok()).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// When the next turn breaks it again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// As soon as it is whole: asmpd may still be reading the machine after its repair. It then
    /// waits up to five seconds before it tries again, so there are ten turns at most.
    AtOnce,
    /// When asmpd has printed the repair.
    AfterRest,
}

/// Breaks something and waits until it is as it was, so many times, and asks asmpd what it did.
fn again_and_again(next: Next, breaks: impl Fn(usize), is_whole: impl Fn() -> bool) -> String {
    let daemon = Daemon::start();
    let turns = if next == Next::AtOnce { turns().min(10) } else { turns() };
    let began = Instant::now();
    for turn in 0..turns {
        watchdog::goes_on();
        breaks(turn);
        until("what was broken is repaired", &is_whole);
        let is_told = || daemon.told().matches(": repaired ").count() > turn;
        until("asmpd tells of it", || next == Next::AtOnce || is_told());
    }
    let seconds = began.elapsed().as_secs_f64();
    until("all is well", || asmp("status").code == 0);
    let lies = judge::lies();
    assert!(lies.is_empty(), "{lies:?}");
    let (counts, told) = daemon.ends();
    let repairs = told.matches(": repaired ").count();
    println!("  {turns} turns in {seconds:.1} s, median repair {:.1} ms", median_ms(&told));
    // What is broken again while a repair is read back may be told once for both.
    let least = if next == Next::AtOnce { 1 } else { turns };
    assert!(counts.repaired >= least && repairs >= least, "{counts:?} of {turns}: {told}");
    assert_eq!(counts.by_sweep, 0, "{told}");
    told
}

fn irq() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let mask = file.replace("_list", "");
    let breaks = |turn: usize| match turn % 2 {
        0 => fs::write(&mask, "8").expect("the line takes CPU 3"),
        _ => fs::write(&file, "0-3").expect("the line takes all CPUs"),
    };
    let told = again_and_again(Next::AfterRest, breaks, || read(&file) == "0-2");
    assert!(told.contains(&format!("({mask} was written)")), "{told}");
}

fn group() -> String {
    format!("{}/a/rt", base())
}

fn dissolved() {
    asmp("create a --cpus 3").done();
    let kinds = ["member", "root"];
    let file = format!("{}/cpuset.cpus.partition", group());
    let breaks = |turn: usize| fs::write(&file, kinds[turn % 2]).expect("it is none any more");
    again_and_again(Next::AfterRest, breaks, || isolated() == "3" && read(&file) == "isolated");
}

fn member() -> Process {
    let task = Process::start("sleep", &["100000"]);
    asmp(&format!("add a --pid {}", task.id())).done();
    task
}

fn is_home(task: &Process) -> bool {
    allowed(task.id()) == "3" && read(format!("/proc/{}/cgroup", task.id())).ends_with("/a/rt")
}

fn take_out(task: &Process) {
    fs::write("/sys/fs/cgroup/cgroup.procs", task.id().to_string()).expect("it is taken out");
}

fn taken_out() {
    asmp("create a --cpus 3").done();
    let task = member();
    again_and_again(Next::AtOnce, |_| take_out(&task), || is_home(&task));
}

/// And whom asmp moves, or who enters by asmp, is not named.
fn moved_in() {
    asmp("create a --cpus 3").done();
    let daemon = Daemon::start();
    let _members = [member(), super::drift::member()];
    let procs = format!("{}/a/rt/cgroup.procs", base());
    for turn in 0..turns() {
        watchdog::goes_on();
        let task = Process::start("sleep", &["100000"]);
        fs::write(&procs, task.id().to_string()).expect("it is moved in");
        let named =
            format!("asmpd: a: task {} (sleep) was moved in by another program (guest-", task.id());
        until("it is named", || daemon.told().contains(&named));
        assert_eq!(daemon.told().matches("was moved in").count(), turn + 1, "{}", daemon.told());
    }
    asmp("status").done();
    let (counts, told) = daemon.ends();
    assert_eq!(counts, Counts { violations: 0, repaired: 0, by_sweep: 0 }, "{told}");
}

fn one_of_some() {
    asmp("create a --cpus 3").done();
    let tasks = [member(), member(), member()];
    again_and_again(
        Next::AfterRest,
        |turn| take_out(&tasks[turn % 3]),
        || tasks.iter().all(is_home),
    );
}

fn hotplug() {
    asmp("create a --cpus 3").done();
    let task = member();
    let breaks = |turn: usize| {
        assert!(online(3, false), "turn {turn}: CPU 3 goes offline");
        asmp("status").code(7).says("CPU 3 is offline");
        assert!(online(3, true), "turn {turn}: CPU 3 comes back");
    };
    let told = again_and_again(Next::AfterRest, breaks, || {
        isolated() == "3" && is_home(&task) && asmp("status").code == 0
    });
    assert!(told.contains("(device: "), "{told}");
}

/// Moves lines about, once a second, to the CPUs that no list bans: only CPU 3.
fn moved_by_irqbalance() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    let mut command = Command::new("irqbalance");
    command.args(["--foreground", "--interval", "1"]).env("IRQBALANCE_BANNED_CPULIST", "0-2");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let other = Process(command.spawn().expect("irqbalance starts"));
    let repaired = || daemon.told().matches("smp_affinity").count();
    until("irqbalance has moved lines, and they went home", || repaired() >= 3);
    drop(other);
    until("all is well", || asmp("status").code == 0);
    assert!(!read(&file).contains('3'), "{} is at home", console());
    let (counts, told) = daemon.ends();
    assert!(counts.repaired >= 1 && counts.by_sweep == 0, "{counts:?}: {told}");
}

/// Without `nohz_full=`, from which irqbalance would know the CPUs by itself.
fn balancer() {
    fs::create_dir_all(irqbalance::DIR).expect("the directory of its socket");
    let mut command = Command::new("irqbalance");
    command.args(["--foreground", "--interval", "1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let unbalanced = affinities();
    let other = Process(command.spawn().expect("irqbalance starts"));
    let linux = Linux::new();
    let banned = || {
        let running = Irqbalance::running(&linux, Path::new(irqbalance::DIR));
        running.and_then(|one| one.banned().ok()).unwrap_or_default()
    };
    until("irqbalance answers", || {
        Irqbalance::running(&linux, Path::new(irqbalance::DIR)).is_some()
    });
    let before = banned();
    assert!(!before.cpus.contains(3), "{before:?}");
    asmp("create a --cpus 3 --irq ttyS0").done();
    let daemon = Daemon::start();
    let line = tty_irq();
    let line = line.trim_start_matches("/proc/irq/").split('/').next();
    let line: u32 = line.and_then(|number| number.parse().ok()).expect("a number");
    until("it leaves CPU and line alone", || {
        let now = banned();
        now.cpus.contains(3) && now.irqs.contains(&line)
    });
    until("it is told", || {
        daemon.told().contains("asmpd: irqbalance leaves CPU 3 and 1 line alone")
    });
    asmp("destroy a").done();
    until("it does as before", || banned() == before);
    daemon.ends();
    // What irqbalance has moved by itself meanwhile stays moved: it gives nothing back.
    drop(other);
    for (file, list) in unbalanced.iter().filter(|(file, list)| read(file) != *list) {
        fs::write(file, list).expect("it goes back");
    }
    fs::remove_dir_all(irqbalance::DIR).expect("the directory of its socket");
}

/// Of each line.
fn affinities() -> Vec<(PathBuf, String)> {
    let lines = fs::read_dir("/proc/irq").expect("the lines").flatten();
    let files = lines.map(|line| line.path().join("smp_affinity_list"));
    files.filter(|file| file.exists()).map(|file| (file.clone(), read(&file))).collect()
}

/// How often asmpd has looked at the machine, from its last line.
fn looks(told: &str) -> usize {
    let before = told.lines().last().and_then(|line| Some(line.split_once(" looks")?.0));
    let number = before.and_then(|text| text.rsplit(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no number of looks: {told}"))
}

/// A driver may set its interrupts anew when its link comes up. No file tells of it, as here.
fn link() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    write_unseen(&file, "0-3");
    sh("ip link set lo down && ip link set lo up").done();
    until("asmpd has looked", || read(&file) == "0-2");
    let (_, told) = daemon.ends();
    assert!(told.contains("(a network link changed)"), "{told}");
}

/// pktgen has a kernel thread for each CPU.
fn modules() {
    asmp("create a --cpus 3").done();
    let daemon = Daemon::start();
    for _ in 0..turns() {
        watchdog::goes_on();
        sh("modprobe pktgen").done();
        asmp("status").done();
        sh("modprobe -r pktgen").done();
    }
    asmp("status").done();
    let (counts, told) = daemon.ends();
    assert_eq!(counts, Counts { violations: 0, repaired: 0, by_sweep: 0 }, "{told}");
    assert!(looks(&told) > 2, "a module that comes is looked at: {told}");
}

/// The kernel makes a new inode for a file of /proc once it has dropped the old one's name, as it
/// does when memory is short.
fn caches() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let drops_and_breaks = |_| {
        // A name that was used lately outlives the first times.
        for _ in 0..6 {
            fs::write("/proc/sys/vm/drop_caches", "2").expect("names are dropped");
        }
        fs::write(&file, "0-3").expect("the line takes all CPUs");
    };
    again_and_again(Next::AfterRest, drops_and_breaks, || read(&file) == "0-2");
}

/// Through another mount of /proc, as a container has it: inotify(7) knows files by the mount's own
/// inodes.
fn write_unseen(file: &str, value: &str) {
    let theirs = file.replace("/proc/", "/mnt/");
    sh(&format!("unshare -m sh -c 'mount -t proc proc /mnt && echo {value} >{theirs}'")).done();
}

fn other_mount() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::sweeping("2s");
    write_unseen(&file, "0-3");
    until("a sweep finds it", || read(&file) == "0-2");
    let (counts, told) = daemon.ends();
    assert_eq!(counts, Counts { violations: 1, repaired: 1, by_sweep: 1 }, "{told}");
}

/// The CPU time of a thread in ns, and how often the scheduler gave it a CPU
/// (scheduler/sched-stats.rst). It is known by its directory.
fn schedstat(thread: &Path) -> (u64, u64) {
    let text = read(thread.join("schedstat"));
    let mut numbers = text.split(' ').map(|word| word.parse().expect("a number"));
    let run_ns = numbers.next().expect("time");
    (run_ns, numbers.nth(1).expect("count"))
}

/// Between two sweeps; each sweep is one look.
fn at_rest() {
    asmp("create a --cpus 3").done();
    let daemon = Daemon::start();
    let pid = daemon.process.id();
    // All its threads, and those of the process that keeps channels.
    let all = || {
        let children = read(format!("/proc/{pid}/task/{pid}/children"));
        let aside: Vec<u32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(aside.len(), 1, "the process that keeps channels: {children}");
        let threads = aside.iter().chain([&pid]).flat_map(|pid| {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            threads.map(|thread| schedstat(&thread.unwrap().path()))
        });
        threads.fold((0, 0), |(ns, runs), one| (ns + one.0, runs + one.1))
    };
    // Notices of the commands above may still come.
    until("asmpd has not run for a second", || {
        let before = all();
        std::thread::sleep(Duration::from_secs(1));
        before == all()
    });
    let seconds = if tier() == Tier::Nightly { 60 } else { 10 };
    let before = all();
    assert!(before.0 > 0 && before.1 > 0, "this kernel counts no CPU time: {before:?}");
    // The time that is measured.
    std::thread::sleep(Duration::from_secs(seconds));
    let after = all();
    let (run_ns, runs) = (after.0 - before.0, after.1 - before.1);
    println!("  {seconds} s: {run_ns} ns of a CPU, woken {runs} times");
    assert!(!allowed(pid).contains('3'), "asmpd may run on {}", allowed(pid));
    assert!(run_ns < seconds * 1_000_000, "{run_ns} ns of {seconds} s are more than 0.1 %");
    // The sweep is an hour away. A kernel may wake a thread for its own ends.
    assert!(runs <= 3, "woken {runs} times in {seconds} s");
    let (counts, told) = daemon.ends();
    assert_eq!(counts.violations, 0, "{told}");
}

fn killed() {
    asmp("create a --cpus 3").done();
    let (file, task) = (tty_irq(), member());
    let turns = 2 * turns();
    let mut daemon = Daemon::start();
    for turn in 0..turns {
        watchdog::goes_on();
        fs::write(&file, "0-3").expect("the line takes all CPUs");
        take_out(&task);
        // Another moment each turn: before the look, in it, in the repair, after it. Not before
        // asmpd is ready: kernels warn of who is killed while it makes a trace instance.
        std::thread::sleep(Duration::from_millis(turn as u64 * 37 % 1000));
        daemon.process.0.kill().and_then(|()| daemon.process.0.wait()).expect("it is killed");
        daemon.process = Daemon::spawn(&daemon.log, "1h");
        daemon.until_ready();
    }
    until("all is well", || asmp("status").code == 0 && is_home(&task) && read(&file) == "0-2");
    let lies = judge::lies();
    assert!(lies.is_empty(), "{lies:?}");
    daemon.ends();
}

const UNIT: &str = "/run/systemd/system/asmpd.service";

/// The unit that `make install` installs, with the guest's path and a shorter watchdog timeout;
/// gone when dropped.
pub struct Unit;

impl Unit {
    pub fn install() -> Self {
        let text = include_str!("../../../daemon/asmpd.service");
        let text = text.replace("/usr/local/bin/asmpd", &example("asmpd").display().to_string());
        let text = text.replace("WatchdogSec=120", "WatchdogSec=20");
        fs::write(UNIT, text).expect("a unit");
        sh("systemctl daemon-reload").done();
        Self
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = sh("systemctl stop asmpd");
        let _ = fs::remove_file(UNIT);
        let _ = sh("systemctl daemon-reload");
    }
}

fn service() {
    let _unit = Unit::install();
    asmp("create a --cpus 3").done();
    let (file, task) = (tty_irq(), member());
    let before = Machine::now();
    sh("systemctl start asmpd && systemctl restart asmpd && systemctl stop asmpd").done();
    before.is_as_it_was("it came, came again and went");
    sh("systemctl start asmpd").done();
    let is_whole = || read(&file) == "0-2" && is_home(&task) && asmp("status").code == 0;
    let breaks = || {
        fs::write(&file, "0-3").expect("the line takes all CPUs");
        take_out(&task);
    };
    breaks();
    until("it is repaired", is_whole);
    until("systemd shows it", || {
        sh("systemctl status asmpd").out.contains("every partition holds")
    });
    let main_pid = || sh("systemctl show -P MainPID asmpd").out.trim().to_owned();
    let hung = main_pid();
    sh(&format!("kill -STOP {hung}")).done();
    breaks();
    until("another one repairs it", is_whole);
    assert_ne!(main_pid(), hung);
    sh("systemctl stop asmpd").done();
}
