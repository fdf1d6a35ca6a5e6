// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other people's hands on a real machine, and the way back of what asmp cannot know of.

use super::super::lab::{Process, read};
use super::super::snapshot::Snapshot;
use super::judge::base;
use super::{Dice, MEMBERS};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROOT: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";
pub const STATE: &str = "/run/asmp";

/// What somebody else does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hand {
    /// A text into a file of a partition's groups.
    Group(&'static str, &'static str, &'static str),
    /// A group beside ours, with CPUs or without, or among ours.
    Beside(&'static str),
    Among,
    /// A group where that of a partition would be, or where that of all would be (the empty name),
    /// with a task in it; or, if it is there, its end.
    InPlace(&'static str),
    /// A group inside a partition, and a member of ours in it, or none.
    Inside(&'static str, Option<usize>),
    /// Removes a group of ours.
    Remove(&'static str, &'static str),
    Offline(u32),
    Online(u32),
    /// `rm -rf /run/asmp`.
    Lose,
    /// No block is left where the state lies; there is room again.
    Fill,
    Free,
    Taskset(usize, &'static str),
    MoveOut(usize),
    Kill(usize),
    /// `smp_affinity` of every line that moves, once or for half a second.
    Irqs(&'static str),
    IrqStorm,
    Irqbalance,
    Setting(&'static str, &'static str),
    Load,
    Unload,
}

/// Each kind has its hands; a sequence has one to three kinds.
pub const KINDS: [&str; 14] = [
    "group", "beside", "among", "inside", "rmdir", "hotplug", "lose", "full", "taskset", "move",
    "kill", "irq", "setting", "module",
];

const FILES: [(&str, &str); 8] = [
    ("rt/cpuset.cpus.partition", "member"),
    ("rt/cpuset.cpus.partition", "root"),
    ("rt/cpuset.cpus.exclusive", ""),
    ("cpuset.cpus.exclusive", ""),
    ("rt/cpuset.cpus", "0-3"),
    ("rt/cpuset.cpus", "1"),
    ("cgroup.freeze", "1"),
    ("rt/cgroup.freeze", "1"),
];

const SETTINGS: [(&str, &str); 5] = [
    ("/proc/irq/default_smp_affinity", "f"),
    ("/sys/devices/virtual/workqueue/cpumask", "f"),
    ("/proc/sys/kernel/watchdog_cpumask", "0-3"),
    ("/sys/devices/system/machinecheck/machinecheck0/check_interval", "300"),
    ("/sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us", "5"),
];

pub fn hand(dice: &mut Dice, kind: &str) -> Hand {
    let name = dice.one(&["a", "a", "b"]);
    let member = dice.below(MEMBERS);
    match kind {
        "group" => {
            let (file, text) = dice.one(&FILES);
            Hand::Group(name, file, text)
        }
        "beside" => Hand::Beside(dice.one(&["", "3", "0-3"])),
        "among" => dice.one(&[
            Hand::Among,
            Hand::InPlace("a"),
            Hand::InPlace("b"),
            Hand::InPlace("b"),
            Hand::InPlace(""),
        ]),
        "inside" => Hand::Inside(name, dice.one(&[None, Some(member)])),
        "rmdir" => Hand::Remove(name, dice.one(&["rt", "rest", "idle"])),
        "hotplug" if dice.chance(50) => Hand::Offline(dice.one(&[2, 3])),
        "hotplug" => Hand::Online(dice.one(&[2, 3])),
        "lose" => Hand::Lose,
        "full" if dice.chance(60) => Hand::Fill,
        "full" => Hand::Free,
        "taskset" => Hand::Taskset(member, dice.one(&["0-3", "0", "3"])),
        "move" => Hand::MoveOut(member),
        "kill" => Hand::Kill(member),
        "irq" => dice.one(&[Hand::Irqs("0-3"), Hand::Irqs("3"), Hand::IrqStorm, Hand::Irqbalance]),
        "setting" => {
            let (path, text) = dice.one(&SETTINGS);
            Hand::Setting(path, text)
        }
        _ if dice.chance(60) => Hand::Load,
        _ => Hand::Unload,
    }
}

/// What hands have done in one sequence, as far as asmp cannot know of it.
pub struct Done {
    pub members: Vec<Process>,
    /// Files whose texts are others' now.
    touched: BTreeSet<String>,
    /// Groups of [`Hand::InPlace`], and the task in each.
    in_place: Vec<(String, Process)>,
    /// Such tasks that were moved out of their groups.
    pub driven_away: Vec<String>,
    disk: bool,
    filled: bool,
    pub lost: bool,
}

fn set(path: &str, text: &str) -> bool {
    fs::write(path, text).is_ok()
}

pub fn run(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let command = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let _ = command.unwrap_or_else(|error| panic!("{line}: {error}"));
}

fn lines() -> Vec<String> {
    let entries = fs::read_dir("/proc/irq").expect("/proc/irq").flatten();
    let files = entries.map(|entry| format!("{}/smp_affinity_list", entry.path().display()));
    files.filter(|path| fs::exists(path).unwrap_or(false)).collect()
}

impl Done {
    /// A machine of its own for one sequence; `full`: with a disk of its own for the state.
    pub fn new(full: bool) -> Self {
        if full {
            fs::create_dir_all(STATE).expect("/run");
            run(&format!("mount -t tmpfs -o size=256k,mode=755 none {STATE}"));
        }
        let members = (0..MEMBERS).map(|_| Process::start("sleep", &["100000"])).collect();
        Self {
            members,
            touched: BTreeSet::new(),
            in_place: Vec::new(),
            driven_away: Vec::new(),
            disk: full,
            filled: false,
            lost: false,
        }
    }

    /// On a disk of its own that has never been filled, so that all of asmp's files fit on it.
    pub fn has_room(&self) -> bool {
        self.disk && !self.filled
    }

    /// Does it now; what the kernel refuses is not done.
    pub fn act(&mut self, hand: &Hand) {
        let base = base();
        let pid = |member: &usize| self.members[*member].id();
        match hand {
            Hand::Group(name, file, text) => {
                let _ = set(&format!("{base}/{name}/{file}"), text);
            }
            Hand::Beside(cpus) => {
                let group = format!("{ROOT}/others");
                if fs::create_dir(&group).is_ok() && !cpus.is_empty() {
                    set(&format!("{group}/cpuset.cpus"), cpus);
                    // Such a group needs the controller: asmp leaves it on.
                    self.touched.insert(CONTROLLERS.to_owned());
                }
            }
            Hand::Among => drop(fs::create_dir(format!("{base}/others"))),
            Hand::InPlace(name) => {
                let group = format!("{base}/{name}").trim_end_matches('/').to_owned();
                if self.in_place.iter().any(|(path, _)| *path == group) {
                    self.end_in_place(&group);
                } else if fs::create_dir(&group).is_ok() {
                    let task = Process::start("sleep", &["100000"]);
                    // An undoing may have removed it while it was empty.
                    if set(&format!("{group}/cgroup.procs"), &task.id().to_string()) {
                        self.in_place.push((group, task));
                    }
                }
            }
            Hand::Inside(name, member) => {
                let group = format!("{base}/{name}/rt/sub");
                if fs::create_dir(&group).is_ok() {
                    set(&format!("{group}/cgroup.type"), "threaded");
                    if let Some(member) = member {
                        set(&format!("{group}/cgroup.threads"), &pid(member).to_string());
                    }
                }
            }
            Hand::Remove(name, group) => drop(fs::remove_dir(format!("{base}/{name}/{group}"))),
            Hand::Offline(cpu) => drop(online(*cpu, false)),
            Hand::Online(cpu) => drop(online(*cpu, true)),
            Hand::Lose => {
                self.lost = true;
                match self.disk {
                    true => clear(STATE),
                    false => drop(fs::remove_dir_all(STATE)),
                }
            }
            Hand::Fill if self.disk => {
                self.filled = true;
                drop(fs::write(format!("{STATE}/others"), vec![0; 1 << 20]));
            }
            Hand::Free => drop(fs::remove_file(format!("{STATE}/others"))),
            Hand::Fill => {}
            Hand::Taskset(member, cpus) => run(&format!("taskset -pc {cpus} {}", pid(member))),
            Hand::MoveOut(member) => {
                let _ = set(&format!("{ROOT}/cgroup.procs"), &pid(member).to_string());
            }
            Hand::Kill(member) => {
                let _ = self.members[*member].0.kill();
                let _ = self.members[*member].0.wait();
            }
            Hand::Irqs(cpus) => self.irqs(cpus),
            Hand::IrqStorm => {
                let end = Instant::now() + Duration::from_millis(300);
                while Instant::now() < end {
                    ["3", "2", "0-3"].into_iter().for_each(|cpus| self.irqs(cpus));
                }
            }
            Hand::Irqbalance => {
                self.touch_lines();
                run("timeout 5 irqbalance --foreground --oneshot --interval 1");
            }
            Hand::Setting(path, text) => {
                if set(path, text) {
                    self.touched.insert((*path).to_owned());
                }
            }
            Hand::Load => run("modprobe dummy numdummies=2"),
            Hand::Unload => run("modprobe -r dummy"),
        }
    }

    fn irqs(&mut self, cpus: &str) {
        let moved = lines().into_iter().filter(|line| set(line, cpus));
        self.touched.extend(moved);
    }

    /// Another program is about to move lines.
    pub fn touch_lines(&mut self) {
        self.touched.extend(lines());
    }

    /// The end of groups of [`Hand::InPlace`]: of this one and those in it, the inner first.
    fn end_in_place(&mut self, outer: &str) {
        let is_inside = |(group, _): &(String, Process)| Path::new(group).starts_with(outer);
        while let Some(at) = self.in_place.iter().rposition(is_inside) {
            let (group, task) = self.in_place.remove(at);
            let now = read(format!("/proc/{}/cgroup", task.id()));
            if format!("{ROOT}{}", now.trim_start_matches("0::")) != group {
                self.driven_away.push(format!("task {} of {group} is in {now}", task.id()));
            }
            drop(task);
            let _ = fs::remove_dir(format!("{group}/others"));
            remove_when_empty(&group);
        }
    }

    /// Undoes what stands in the way of a last `restore`. Their own settings come after it.
    pub fn leave(&mut self) {
        self.end_in_place(ROOT);
        for cpu in 1..4 {
            assert!(online(cpu, true), "CPU {cpu} comes back");
        }
        self.act(&Hand::Free);
        self.act(&Hand::Unload);
        let _ = fs::remove_dir(format!("{ROOT}/others"));
        let _ = fs::remove_dir(format!("{}/others", base()));
    }

    /// Gives what they wrote its text of `before` again.
    pub fn set_back(&mut self, before: &Snapshot) {
        self.members.clear();
        if self.disk {
            run(&format!("umount {STATE}"));
        }
        for path in &self.touched {
            let Some(text) = before.get(path) else { continue };
            if path == CONTROLLERS && !text.contains("cpuset") {
                set(path, "-cpuset");
            } else {
                // Lines that the kernel itself places refuse it, and did so before.
                set(path, text);
            }
        }
    }
}

/// The kernel lets a group go a moment after its last task.
fn remove_when_empty(group: &str) {
    for _ in 0..6000 {
        if fs::remove_dir(group).is_ok() || !Path::new(group).exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn clear(dir: &str) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
}

/// Brings a CPU up or down; whether it is so after that.
pub fn online(cpu: u32, on: bool) -> bool {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    let word = u8::from(on).to_string();
    if !Path::new(&path).exists() {
        return on;
    }
    read(&path) == word || (set(&path, &word) && read(&path) == word)
}
