// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random sequences of our commands and of other people's hands, through the user's binary on a
//! real kernel.
//!
//! Problem:  who else changes a machine does so at any moment. The fake's sequences
//!           (`random_tests.rs` of shield) try many more of them, on rules that we wrote down.
//! Approach: each seed gives a sequence with one to three kinds of hands ([`hands::KINDS`]). After
//!           each event `status` is held against the kernel's files ([`judge`]), and a command's
//!           exit code against both. At the end the hands undo what asmp cannot know of, and after
//!           a last `restore` the machine must equal its snapshot.
//!
//! In `make nightly` each day has seeds of its own, and the output names the first.
//! `ASMP_RANDOM_SEED=7 ASMP_RANDOM_SEQUENCES=1 make vm GUESTS=sid-rt:bare FILTER='random hands'`
//! plays one again. In [`storm`] the hands do not wait for our commands: `make hands`.

pub mod hands;
pub mod judge;
mod storm;

use super::guests::{Boot, On, Tier};
use super::lab::{Called, Test, asmp, binary, called, guest, read, spawn_asmp, test, tier};
use super::snapshot::{Snapshot, settled, snapshot};
use super::watchdog;
use hands::{Done, Hand, KINDS};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

pub fn all() -> Vec<Test> {
    let between =
        test("random hands between our commands: no command claims what is not", random_hands);
    let beside =
        test("hands at work beside our commands: no command claims what is not", storm::work);
    let storms = test("taskset and smp_affinity storms beside create and destroy", storm::short);
    let mut tests = vec![
        between.on(On::OneThenRt).booted(&[Boot::Bare, Boot::Locked, Boot::Systemd]),
        storms.on(On::One).booted(&[Boot::Bare]).nightly(),
    ];
    // `make hands`: its time is asked for.
    if number("ASMP_HANDS_MINUTES", 0) > 0 {
        tests.push(beside.on(On::Rt).booted(&[Boot::Bare]));
    }
    tests
}

/// Processes that a sequence has for members.
pub const MEMBERS: usize = 2;

/// xorshift64*, as on the fake.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Something that happens.
#[derive(Debug, Clone)]
enum Event {
    Ask(String),
    /// SIGKILL after so many milliseconds.
    Killed(String, u64),
    /// SIGSTOP after so many milliseconds, a hand, SIGCONT.
    Stopped(String, u64, Hand),
    By(Hand),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask(line) => write!(f, "asmp {line}"),
            Self::Killed(line, ms) => write!(f, "asmp {line}, killed after {ms} ms"),
            Self::Stopped(line, ms, hand) => {
                write!(f, "asmp {line}, stopped after {ms} ms, meanwhile {hand:?}")
            }
            Self::By(hand) => write!(f, "{hand:?}"),
        }
    }
}

/// A command line; `P0`, `P1` are the members.
pub fn command(dice: &mut Dice) -> String {
    let name = dice.one(&["a", "a", "b"]);
    let member = dice.one(&["P0", "P1"]);
    match dice.below(22) {
        0..=4 => {
            let cpus = dice.one(&["3", "2", "2-3", "1"]);
            let irq = dice.one(&["", "", " --irq ttyS0"]);
            format!("create {name} --cpus {cpus}{irq}")
        }
        5 | 6 => format!("destroy {name}{}", dice.one(&["", " --force"])),
        7 => "destroy --all --force".to_owned(),
        8 | 9 => format!("resize {name} --cpus {}", dice.one(&["1", "2", "3", "1-2"])),
        10..=12 => format!("add {name} --pid {member}"),
        13 => format!("remove {name} --pid {member}"),
        14 => format!("move a --to b --pid {member}"),
        15 | 16 => "repair".to_owned(),
        17 => format!("repair {name}"),
        18 => "restore".to_owned(),
        19 => format!("plan create {name} --cpus 3"),
        20 => format!("run --cpus {} -- sleep 0.1", dice.one(&["2", "3"])),
        _ => format!("apply {}", dice.one(&["/tmp/random-1.toml", "/tmp/random-2.toml"])),
    }
}

const FILES: [(&str, &str); 2] = [
    ("/tmp/random-1.toml", "[[partition]]\nname = \"a\"\ncpus = \"2\"\n"),
    (
        "/tmp/random-2.toml",
        "[[partition]]\nname = \"a\"\ncpus = \"3\"\n[[partition]]\nname = \"b\"\ncpus = \"2\"\n",
    ),
];

fn sequence(seed: u64) -> (Vec<&'static str>, Vec<Event>) {
    let mut dice = Dice::new(seed);
    let count = dice.one(&[1, 1, 1, 2, 2, 3]);
    let kinds: Vec<&str> = (0..count).map(|_| dice.one(&KINDS)).collect();
    let mut events = vec![Event::Ask("create a --cpus 3".to_owned())];
    if dice.chance(40) {
        events.push(Event::Ask("add a --pid P0".to_owned()));
    }
    for _ in 0..3 + dice.below(5) {
        let kind = dice.one(&kinds);
        let by = hands::hand(&mut dice, kind);
        let line = command(&mut dice);
        let ms = 5 + dice.below(400) as u64;
        events.push(match dice.below(20) {
            0..=7 => Event::Ask(line),
            8 | 9 => Event::Killed(line, ms),
            10 | 11 => Event::Stopped(line, ms, by),
            _ => Event::By(by),
        });
    }
    (kinds, events)
}

/// What a command that failed must have left alone: the groups, the lines of interrupts, and the
/// settings that a plan has.
fn few() -> Snapshot {
    let mut all = Snapshot::new();
    let mut dirs = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = dirs.pop() {
        for name in ["cpuset.cpus", "cpuset.cpus.exclusive", "cpuset.cpus.partition", "cgroup.type"]
        {
            let path = dir.join(name);
            if let Ok(text) = fs::read_to_string(&path) {
                all.insert(path.display().to_string(), text);
            }
        }
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                all.insert(format!("dir {}", entry.path().display()), String::new());
                dirs.push(entry.path());
            }
        }
    }
    let irqs = fs::read_dir("/proc/irq").into_iter().flatten().flatten();
    let lines = irqs.map(|entry| entry.path().join("smp_affinity_list").display().to_string());
    let of_cpus = (0..4).map(|cpu| format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"));
    let others = ["/proc/irq/default_smp_affinity", "/sys/devices/virtual/workqueue/cpumask"];
    for path in lines.chain(of_cpus).chain(others.map(str::to_owned)) {
        if let Ok(text) = fs::read_to_string(&path) {
            all.insert(path, text);
        }
    }
    all
}

/// A kernel thread may start or end between two readings: what differs is read again.
fn changed(before: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..3 {
        lines = super::snapshot::differences(before, &few());
        if lines.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    lines
}

struct Run {
    done: Done,
    /// What was done and what came of it, for a failure.
    story: Vec<String>,
    /// What `restore` named as not known.
    unknown: String,
    wrong: Vec<String>,
    /// A command was killed: the next one first undoes it.
    cut: bool,
    /// Another hand has done something.
    by_others: bool,
}

impl Run {
    fn new(full: bool) -> Self {
        Self {
            done: Done::new(full),
            story: Vec::new(),
            unknown: String::new(),
            wrong: Vec::new(),
            cut: false,
            by_others: false,
        }
    }

    fn line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (index, member) in self.done.members.iter().enumerate() {
            line = line.replace(&format!("P{index}"), &member.id().to_string());
        }
        line
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::By(hand) => {
                self.story.push(event.to_string());
                self.by_others = true;
                self.done.act(hand);
            }
            Event::Ask(line) => self.ask(&self.line(line)),
            Event::Killed(line, ms) => {
                self.story.push(event.to_string());
                let mut child = spawn_asmp(&self.line(line));
                // A moment by chance, in any step of it.
                std::thread::sleep(Duration::from_millis(*ms));
                let _ = child.kill();
                let _ = child.wait();
                self.cut = true;
            }
            Event::Stopped(line, ms, hand) => {
                self.story.push(event.to_string());
                let words = self.line(line);
                let child = Command::new(binary())
                    .args(words.split(' '))
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("asmp starts");
                let pid = child.id();
                // A moment by chance, in any step of it.
                std::thread::sleep(Duration::from_millis(*ms));
                signal(pid, libc::SIGSTOP);
                self.by_others = true;
                self.done.act(hand);
                // Whatever it finds half done, it must answer.
                let during = judge::status();
                signal(pid, libc::SIGCONT);
                let answer = called(&words, child.wait_with_output().expect("it ends"));
                self.story.push(format!("  status meanwhile: exit {}", during.code));
                self.note(&answer);
            }
        }
        let lies = judge::lies();
        self.wrong.extend(lies);
    }

    fn note(&mut self, answer: &Called) {
        let error = answer.err.lines().last().unwrap_or_default();
        self.story.push(format!("asmp {}: exit {} {error}", answer.line, answer.code));
        if answer.code == 101 || answer.code > 127 || answer.err.contains("panicked") {
            self.wrong.push(format!("asmp {}: {}", answer.line, answer.err));
        }
        // Else a "full" sequence would test nothing.
        let no_room = answer.err.contains("No space left") && answer.err.contains(hands::STATE);
        if no_room && self.done.has_room() {
            self.wrong.push(format!("asmp {}: no room before it was taken", answer.line));
        }
        if answer.code == 45 {
            self.unknown.push_str(&answer.out);
        }
        // What could not be undone is undone by a later command, whatever that says of itself.
        self.cut |= answer.err.contains("not restored yet");
    }

    fn ask(&mut self, line: &str) {
        let before = few();
        let answer = asmp(line);
        self.note(&answer);
        let words: Vec<&str> = line.split(' ').collect();
        let name = words.get(1).copied().unwrap_or_default();
        let mut wrong = |what: String| self.wrong.push(format!("asmp {line}: {what}"));
        let said = judge::status();
        let listed = said.partition(name);
        let kept = listed.is_some_and(|one| one["shielded"] == true);
        // It has set right what others did.
        self.by_others &= !(["repair", "restore"].contains(&words[0]) && answer.code == 0);
        match (words[0], answer.code) {
            // What others changed, a run sets right for the partitions beside its own.
            ("run", 0) if self.cut || self.by_others => {}
            ("plan" | "status", _) | ("run", 0) if !self.cut => {
                let changed = changed(&before);
                if !changed.is_empty() {
                    wrong(format!("exit {} and a change: {changed:?}", answer.code));
                }
            }
            ("create" | "resize", 0) if !kept => wrong(format!("exit 0, status {}", said.all)),
            ("repair", 0) if words.len() == 1 && said.code != 0 => {
                wrong(format!("exit 0, status {}", said.all));
            }
            ("repair", 0) if words.len() > 1 && !kept => {
                wrong(format!("exit 0, status {}", said.all));
            }
            ("restore", 0) if said.code != 0 || !said.partitions().is_empty() => {
                wrong(format!("exit 0, status {}", said.all));
            }
            ("destroy", 0) if words[1] != "--all" && listed.is_some() => {
                wrong(format!("exit 0, status {}", said.all));
            }
            ("add", 0) => {
                let group = fs::read_to_string(format!("/proc/{}/cgroup", words[3]));
                if group.is_ok_and(|group| !format!("{group}/").contains(&format!("/{name}/"))) {
                    wrong("exit 0, and the task is elsewhere".to_owned());
                }
            }
            (_, 0 | 6 | 7 | 45 | 101) => {}
            _ if self.cut => {}
            (_, code) => {
                let changed = changed(&before);
                if !changed.is_empty() {
                    wrong(format!("exit {code} and a change: {changed:?}"));
                }
            }
        }
        // The next change undoes what was cut short, if it comes that far.
        if said.all["interrupted"] == false {
            self.cut = false;
        }
    }

    /// The hands leave, `restore`, and the machine is as it was.
    fn end(&mut self, before: &Snapshot) -> Snapshot {
        self.done.leave();
        self.wrong.append(&mut self.done.driven_away);
        let answer = asmp("restore");
        self.note(&answer);
        let lost = self.done.lost && answer.code == 45;
        if answer.code != 0 && !lost {
            self.wrong.push(format!("the last restore: exit {} {}", answer.code, answer.err));
        }
        if lost {
            // What is lost stays named until it is given up.
            let said = judge::status();
            let named = said.all.to_string().contains("what it was before is not known");
            if said.code != 7 || !named {
                self.wrong
                    .push(format!("status of lost settings: exit {} {}", said.code, said.all));
            }
            let answer = asmp("restore --abandon");
            self.note(&answer);
            if answer.code != 6 {
                self.wrong.push(format!("the end of it: exit {} {}", answer.code, answer.err));
            }
        }
        let said = judge::status();
        if said.code != 0 || !said.partitions().is_empty() {
            self.wrong.push(format!("status after restore: exit {} {}", said.code, said.all));
        }
        self.done.set_back(before);
        let (now, changed) = settled(before);
        let changed = match self.done.lost {
            true => self.forgotten(before, &now),
            false => changed,
        };
        if changed.is_empty() {
            // What was lost was set back after the snapshot.
            return if self.done.lost { snapshot() } else { now };
        }
        self.wrong.push(format!("not as it was:\n      {}", changed.join("\n      ")));
        // For the sequences that follow.
        put_back(before, &now);
        snapshot()
    }

    /// Without its state asmp knows no originals: it must name the files. They are set back here,
    /// with the tasks that it had changed.
    fn forgotten(&mut self, before: &Snapshot, now: &Snapshot) -> Vec<String> {
        let silent = |line: &&String| {
            let path = line.split(": ").next().unwrap_or_default();
            !path.starts_with("task ") && !self.is_named(path)
        };
        let lines = super::snapshot::differences(before, now);
        let silent: Vec<String> = lines.iter().filter(silent).cloned().collect();
        put_back(before, now);
        let left = settled(before).1;
        silent.into_iter().map(|line| format!("not named: {line}")).chain(left).collect()
    }

    fn is_named(&self, path: &str) -> bool {
        let named = |path: &str| self.unknown.contains(&format!("{path} "));
        // Lines are named together, and the files of all CPUs are one value.
        named(path)
            || (path.starts_with("/proc/irq/") && named("/proc/irq/*/smp_affinity_list"))
            || (path.starts_with("/sys/devices/system/machinecheck/")
                && named("/sys/devices/system/machinecheck/machinecheck0/check_interval"))
    }
}

/// Gives files and tasks that live in both their values of `before`.
pub fn put_back(before: &Snapshot, now: &Snapshot) {
    for (name, old) in before {
        if now.get(name).is_none_or(|new| new == old) {
            continue;
        }
        let Some(task) = name.strip_prefix("task ") else {
            match name.ends_with("cgroup.subtree_control") {
                true => drop(fs::write(name, "-cpuset")),
                false => drop(fs::write(name, old)),
            }
            continue;
        };
        let (Some((tid, _)), Some((whole, what))) = (task.split_once('@'), task.rsplit_once(' '))
        else {
            continue;
        };
        let of = |what: &str| before.get(&format!("task {whole} {what}"));
        match what {
            "cpus" => hands::run(&format!("taskset -pc {old} {tid}")),
            "policy" | "priority" => {
                let flag = match of("policy").map(String::as_str) {
                    Some("1") => "-f",
                    Some("2") => "-r",
                    _ => "-o",
                };
                let priority = of("priority").map_or("0", String::as_str);
                hands::run(&format!("chrt {flag} -p {priority} {tid}"));
            }
            _ => {}
        }
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: takes numbers alone.
    let _ = unsafe { libc::kill(pid.cast_signed(), signal) };
}

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).unwrap_or_default();
    if text.is_empty() { default } else { text.parse().expect(variable) }
}

/// The first seed of tonight: each night has its own, and each kernel within it.
fn of_this_night() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nights = now.map_or(0, |since| since.as_secs() / 86_400);
    nights * 1000 + guest().map_or(0, |guest| guest.kernel as u64 * 100)
}

fn write_files() {
    for (path, text) in FILES {
        fs::write(path, text).expect("/tmp");
    }
}

/// Seeds whose sequences have every hand: in CI, and where `isolcpus=` was given.
pub const OF_CI: [u64; 8] = [313, 701, 1258, 1899, 2044, 2650, 2651, 2936];

/// What happens in a sequence, by the words of its events up to their values.
pub fn happens(seed: u64) -> BTreeSet<String> {
    let (_, events) = sequence(seed);
    let words = |event: &Event| -> Vec<String> {
        let hand = |hand: &Hand| format!("{hand:?}").split('(').next().unwrap_or("").to_owned();
        match event {
            Event::Ask(line) => vec![line.split(' ').next().unwrap_or("").to_owned()],
            Event::Killed(..) => vec!["killed".to_owned()],
            Event::Stopped(_, _, by) => vec!["stopped".to_owned(), hand(by)],
            Event::By(by) => vec![hand(by)],
        }
    };
    events.iter().flat_map(words).collect()
}

fn is_under_systemd() -> bool {
    guest().is_some_and(|guest| guest.boot == Boot::Systemd)
}

fn random_hands() {
    let is_bare = guest().is_some_and(|guest| guest.boot == Boot::Bare);
    let usual = if tier() == Tier::Nightly && is_bare { 60 } else { 0 };
    let count = number("ASMP_RANDOM_SEQUENCES", usual);
    let first = number("ASMP_RANDOM_SEED", of_this_night());
    let is_usual = |seed: &u64| !is_under_systemd() || !sequence(*seed).0.contains(&"hotplug");
    let seeds: Vec<u64> = match count {
        // Under systemd the kernel narrows all tasks of units (LIMITS.md, "CPU hotplug, units").
        0 => OF_CI.into_iter().filter(is_usual).collect(),
        count => (first..first + count).collect(),
    };
    write_files();
    let started = Instant::now();
    let mut before = snapshot();
    let mut failed = Vec::new();
    for seed in seeds.iter().copied() {
        watchdog::begins(&format!("random hands, seed {seed}"));
        let (kinds, events) = sequence(seed);
        let mut run = Run::new(kinds.contains(&"full"));
        for event in &events {
            run.happen(event);
        }
        before = run.end(&before);
        if !run.wrong.is_empty() {
            failed.push(seed);
            println!("  seed {seed}, hands {kinds:?}:\n    {}", run.story.join("\n    "));
            run.wrong.iter().for_each(|wrong| println!("    WRONG: {wrong}"));
        }
    }
    let kernel = read("/proc/sys/kernel/osrelease");
    let seconds = started.elapsed().as_secs_f64();
    let (count, first) = (seeds.len(), seeds[0]);
    println!("  {count} sequences from seed {first} in {seconds:.0} s, kernel {kernel}");
    assert!(failed.is_empty(), "{} sequences, of seeds {failed:?}: see above", failed.len());
}
