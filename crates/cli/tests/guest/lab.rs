// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the guest tests share: the guest, the binary, what to read.

use super::guests::{Architecture, Boot, Guest, On, Tier};
use super::snapshot::{before_a_test, changes_of_a_test};
use super::watchdog;
use asmp_host::clock::thread_id;
use asmp_host::{CpuSet, Kernel, Linux};
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A test, the guests it is for, and what a guest may lack for it.
pub struct Test {
    pub name: String,
    on: On,
    boots: &'static [Boot],
    from: Tier,
    arm64: Option<Tier>,
    lacks: fn() -> Option<&'static str>,
    test: Box<dyn Fn() + Send>,
}

/// A test that every guest booted with `nohz_full` can do, with and without systemd.
pub fn test(name: &str, test: impl Fn() + Send + 'static) -> Test {
    Test {
        name: name.to_owned(),
        on: On::All,
        boots: &[Boot::Bare, Boot::Systemd],
        from: Tier::Ci,
        arm64: None,
        lacks: || None,
        test: Box::new(test),
    }
}

impl Test {
    /// On these kernels only.
    pub fn on(self, on: On) -> Self {
        Self { on, ..self }
    }

    /// Booted in one of these ways only.
    pub fn booted(self, boots: &'static [Boot]) -> Self {
        Self { boots, ..self }
    }

    /// Nightly only: what CI has no time for.
    pub fn nightly(self) -> Self {
        Self { from: Tier::Nightly, ..self }
    }

    pub fn is_nightly(&self) -> bool {
        self.from == Tier::Nightly
    }

    /// In the guests of arm64 too, from this tier on, booted as it asks; each costs minutes.
    pub fn also_on_arm64(self, from: Tier) -> Self {
        Self { arm64: Some(from), ..self }
    }

    /// What this guest lacks for it, e.g. a device that an old QEMU does not have. Such a test is
    /// reported as skipped, never as passed; in CI it fails.
    pub fn lacks(self, lacks: fn() -> Option<&'static str>) -> Self {
        Self { lacks, ..self }
    }

    pub fn runs_in(&self, guest: Guest, tier: Tier) -> bool {
        let runs = match guest.architecture {
            Architecture::Amd64 => self.on.runs_in(self.boots, guest, tier),
            Architecture::Arm64 => {
                self.boots.contains(&guest.boot) && self.arm64.is_some_and(|from| from <= tier)
            }
        };
        runs && self.from <= tier
    }

    /// A trial that restores the machine before and compares it after.
    pub fn trial(self) -> Trial {
        let Self { name, lacks, test, .. } = self;
        match lacks() {
            Some(reason) if is_ci() => {
                return Trial::test(name, move || {
                    Err(Failed::from(format!("CI must not skip: {reason}")))
                });
            }
            Some(reason) => {
                println!("skipped: {name}: {reason}");
                return Trial::test(name, || Ok(())).with_ignored_flag(true);
            }
            None => {}
        }
        Trial::test(name.clone(), move || {
            watchdog::begins(&name);
            asmp("restore").done();
            let before = before_a_test();
            let started = Instant::now();
            test();
            asmp("restore").done();
            let changed = changes_of_a_test(&before);
            watchdog::ends();
            TIMES.lock().expect("no panic in between").push((started.elapsed(), name.clone()));
            match changed {
                none if none.is_empty() => Ok(()),
                some => {
                    Err(Failed::from(format!("the machine is not as it was:\n{}", some.join("\n"))))
                }
            }
        })
    }
}

/// What each test took that came to its end.
pub static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// The guest this process runs in, as its caller says; none: an ordinary machine, where no such
/// test may run.
pub fn guest() -> Option<Guest> {
    let name = std::env::var("ASMP_GUEST").ok()?;
    Some(Guest::of(&name).unwrap_or_else(|| panic!("ASMP_GUEST={name} is no guest of the lab")))
}

pub fn tier() -> Tier {
    let name = std::env::var("ASMP_TIER").unwrap_or_else(|_| "ci".into());
    Tier::of(&name).unwrap_or_else(|| panic!("ASMP_TIER={name}: ci or nightly"))
}

/// Whether what is missing is a failure.
fn is_ci() -> bool {
    std::env::var_os("ASMP_CI").is_some_and(|value| !value.is_empty())
}

/// What a call of `asmp` gave.
pub struct Called {
    pub line: String,
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Called {
    /// Expects success.
    #[track_caller]
    pub fn done(self) -> Self {
        self.code(0)
    }

    /// Expects this exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "asmp {}\nout: {}\nerr: {}", self.line, self.out, self.err);
        self
    }

    /// Expects a word in what was printed.
    #[track_caller]
    pub fn says(self, word: &str) -> Self {
        let all = format!("{}{}", self.out, self.err);
        assert!(all.contains(word), "asmp {}: no {word:?} in\n{all}", self.line);
        self
    }
}

pub fn binary() -> PathBuf {
    std::env::var_os("ASMP_BINARY")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_asmp")), PathBuf::from)
}

/// A program of `crates/rt`: an example, or the judge of its test `containment`.
pub fn example(name: &str) -> PathBuf {
    let dir =
        std::env::var_os("ASMP_RT_EXAMPLES").expect("ASMP_RT_EXAMPLES is set by tests/vm/test.sh");
    PathBuf::from(dir).join(name)
}

/// The handler of the console's interrupt, a line of the lab's machine that can be moved. Tests
/// write it as amd64 names it, `ttyS0`.
pub fn console() -> &'static str {
    match guest().map(|guest| guest.architecture) {
        Some(Architecture::Arm64) => "uart-pl011",
        _ => "ttyS0",
    }
}

/// Calls `asmp` with words separated by spaces; a word in single quotes may hold spaces. `ttyS0` is
/// this machine's [`console`].
pub fn asmp(line: &str) -> Called {
    let line = &line.replace("ttyS0", console());
    let output = Command::new(binary())
        .args(words(line))
        .stdin(Stdio::null())
        .output()
        .expect("asmp starts");
    called(line, output)
}

/// The same, again and again while others have the lock (exit code 8).
pub fn until_free(line: &str) -> Called {
    let mut last = asmp(line);
    until("the lock is free", || {
        if last.code == 8 {
            last = asmp(line);
        }
        last.code != 8
    });
    last
}

pub fn spawn_asmp(line: &str) -> Child {
    Command::new(binary())
        .args(words(line))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("asmp starts")
}

pub fn called(line: &str, output: Output) -> Called {
    use std::os::unix::process::ExitStatusExt;
    Called {
        line: line.to_owned(),
        code: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .trim()
        .to_owned()
}

/// CPUs that the kernel says are isolated.
pub fn isolated() -> String {
    read("/sys/fs/cgroup/cpuset.cpus.isolated")
}

/// CPUs a thread may run on, as the kernel says.
pub fn allowed(tid: u32) -> String {
    let status = read(format!("/proc/{tid}/status"));
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

/// Waits until something holds; panics with `what` if it never does.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    // A bound that a busy host does not reach: it is there for what will never happen.
    const MOST: Duration = Duration::from_secs(180);
    let end = Instant::now() + MOST;
    while !holds() {
        assert!(Instant::now() < end, "{} s and still not: {what}", MOST.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process of ours that is killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap_or_else(|error| panic!("{program}: {error}")))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Some stressors one after the other, for two seconds each, again and again until this is dropped.
pub struct Stressors(Process);

impl Stressors {
    /// `which`: stress-ng's options that choose them.
    pub fn start(which: &str) -> Self {
        let script = format!(
            "while :; do stress-ng --sequential 2 --timeout 2s --temp-path /var/tmp -q {which}; \
             done"
        );
        // A namespace ends as a whole. stress-ng itself would go on after the shell.
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(Process(command.spawn().expect("unshare starts")))
    }
}

impl Drop for Stressors {
    fn drop(&mut self) {
        let _ = self.0.0.kill();
        if !std::thread::panicking() {
            until("the stressors have ended", || stressors() == 0);
        }
    }
}

/// Processes of stress-ng.
pub fn stressors() -> usize {
    kernel_threads("stress-ng").len()
}

/// The calling thread, and what it starts, on CPU 0 until this is dropped: with PREEMPT_RT a thread
/// that falls asleep on a CPU which a real-time task then keeps is not woken.
pub struct OnCpu0(CpuSet);

impl OnCpu0 {
    pub fn new() -> Self {
        let before = Linux::new().online_affinity(thread_id()).expect("this thread");
        stay_on(&CpuSet::from_iter([0]));
        Self(before)
    }
}

impl Drop for OnCpu0 {
    fn drop(&mut self) {
        stay_on(&self.0);
    }
}

/// The calling thread runs on these CPUs only.
pub fn stay_on(cpus: &CpuSet) {
    Linux::new().set_affinity(thread_id(), cpus).expect("a CPU");
}

/// Kernel threads by the beginning of their name; of the empty name, all processes.
pub fn kernel_threads(prefix: &str) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut threads: Vec<(u32, String)> = entries
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter_map(|tid: u32| {
            Some((tid, fs::read_to_string(format!("/proc/{tid}/comm")).ok()?.trim().to_owned()))
        })
        .filter(|(_, name)| name.starts_with(prefix))
        .collect();
    threads.sort();
    threads
}

/// Policy and priority as chrt says, another program than ours.
pub fn policy(tid: u32) -> String {
    let output = Command::new("chrt").args(["-p", &tid.to_string()]).output().expect("chrt starts");
    String::from_utf8_lossy(&output.stdout).replace(&format!("pid {tid}'s current "), "")
}
