// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Is what asmp says true? Read from the kernel's files, by a program that knows no plan of asmp.

use super::super::lab::asmp;
use asmp_host::CpuSet;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

const DELEGATED: &str = "/sys/fs/cgroup/asmp.slice/asmp-holder.service";
const PF_KTHREAD: u64 = 0x0020_0000;

/// Where our groups lie; under systemd, below a delegated service.
pub fn base() -> &'static str {
    match fs::exists("/run/systemd/system") {
        Ok(true) => DELEGATED,
        _ => "/sys/fs/cgroup/asmp",
    }
}

/// What `asmp status` says: its exit code, and what it printed.
pub struct Said {
    pub code: i32,
    pub all: Value,
}

pub fn status() -> Said {
    let called = asmp("status --json");
    let all = serde_json::from_str(&called.out).unwrap_or(Value::Null);
    Said { code: called.code, all }
}

impl Said {
    pub fn partitions(&self) -> &[Value] {
        self.all["partitions"].as_array().map_or(&[], Vec::as_slice)
    }

    pub fn partition(&self, name: &str) -> Option<&Value> {
        self.partitions().iter().find(|one| one["name"] == name)
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn cpus(text: &str) -> CpuSet {
    text.trim().parse().unwrap_or_default()
}

fn numbers(dir: &str) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What the kernel denies of what `status` promises; empty where both agree. A moment later both
/// are asked again: a kernel thread may have started between the two.
pub fn lies() -> Vec<String> {
    for _ in 0..3 {
        let said = status();
        let wrong = denied(&said);
        if wrong.is_empty() {
            return wrong;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let said = status();
    let wrong = denied(&said);
    if wrong.is_empty() {
        return wrong;
    }
    wrong.into_iter().map(|what| format!("status (exit {}) is silent: {what}", said.code)).collect()
}

fn denied(said: &Said) -> Vec<String> {
    let mut wrong = Vec::new();
    match said.code {
        0 | 7 if said.all.is_object() => {}
        // No claim: a state that cannot be read.
        9 => return wrong,
        code => return vec![format!("exit {code}, and it says {}", said.all)],
    }
    let violated = said.partitions().iter().any(|one| one["shielded"] != true);
    if said.code == 0 && violated {
        wrong.push("a partition that is not shielded, and exit 0".to_owned());
    }
    for partition in said.partitions().iter().filter(|one| one["shielded"] == true) {
        of_partition(partition, &mut wrong);
    }
    if said.code == 0 {
        // Groups of ours that status does not list.
        let listed = |name: &str| said.partition(name).is_some();
        for entry in fs::read_dir(base()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let rt = entry.path().join("rt").join("cpuset.cpus.partition");
            if !listed(&name) && text(&rt.display().to_string()) == "isolated" {
                wrong.push(format!("{} is isolated, and no partition", rt.display()));
            }
        }
    }
    wrong
}

fn of_partition(partition: &Value, wrong: &mut Vec<String>) {
    let name = partition["name"].as_str().unwrap_or("?");
    let own = cpus(partition["cpus"].as_str().unwrap_or_default());
    let shielded = own.union(&cpus(partition["idle_cpus"].as_str().unwrap_or_default()));
    if own.is_empty() {
        wrong.push(format!("{name} has no CPUs in {partition}"));
    }
    let stays = partition["stays"].to_string();
    let group = format!("{}/{name}", base());
    let says = text(&format!("{group}/rt/cpuset.cpus.partition"));
    if says != "isolated" {
        wrong.push(format!("{group}/rt is {says:?}"));
    }
    let effective = text(&format!("{group}/rt/cpuset.cpus.effective"));
    if cpus(&effective) != own {
        wrong.push(format!("{group}/rt has CPU {effective:?}, not {own}"));
    }
    let isolated = cpus(&text("/sys/fs/cgroup/cpuset.cpus.isolated"));
    if !shielded.difference(&isolated).is_empty() {
        wrong.push(format!("{name} has CPU {shielded}, isolated are {isolated}"));
    }
    for file in ["cgroup.freeze", "rt/cgroup.freeze", "rest/cgroup.freeze"] {
        if text(&format!("{group}/{file}")) == "1" {
            wrong.push(format!("{group}/{file} is 1"));
        }
    }
    of_irqs(partition, &shielded, &stays, wrong);
    of_settings(name, &shielded, &stays, wrong);
    of_tasks(name, &shielded, &stays, wrong);
}

/// Device interrupts on its CPUs that are not its own, and its own elsewhere.
fn of_irqs(partition: &Value, shielded: &CpuSet, stays: &str, wrong: &mut Vec<String>) {
    let own: Vec<u64> = partition["irqs"]
        .as_array()
        .map_or_else(Vec::new, |irqs| irqs.iter().filter_map(Value::as_u64).collect());
    for irq in numbers("/proc/irq") {
        let mask = text(&format!("/proc/irq/{irq}/smp_affinity_list"));
        let effective = text(&format!("/proc/irq/{irq}/effective_affinity_list"));
        let here = cpus(&mask).intersects(shielded);
        if own.contains(&irq.into()) {
            if !cpus(&mask).difference(shielded).is_empty() {
                wrong.push(format!("IRQ {irq} is its own, and on CPU {mask}"));
            }
        } else if here && cpus(&effective).intersects(shielded) {
            // A line without an action has no handler that could run.
            let action = text(&format!("/sys/kernel/irq/{irq}/actions"));
            let named = stays.contains(&format!("IRQ {irq} ")) || stays.contains(&action);
            if !named && !action.is_empty() {
                wrong.push(format!("IRQ {irq} ({action}) is on CPU {mask}"));
            }
        }
    }
}

/// Settings that bring work to its CPUs.
fn of_settings(name: &str, shielded: &CpuSet, stays: &str, wrong: &mut Vec<String>) {
    for path in ["/proc/irq/default_smp_affinity", "/sys/devices/virtual/workqueue/cpumask"] {
        let mask = u64::from_str_radix(&text(path).replace(',', ""), 16).unwrap_or(0);
        if shielded.iter().any(|cpu| mask >> cpu & 1 == 1) && !stays.contains(path) {
            wrong.push(format!("{path} is {mask:x}, with CPUs of {name}"));
        }
    }
    for cpu in shielded.iter() {
        for class in ["fair", "ext"] {
            let path = format!("/sys/kernel/debug/sched/{class}_server/cpu{cpu}/runtime");
            let runtime = text(&path);
            if !["", "0"].contains(&runtime.as_str()) && !stays.contains(&path) {
                wrong.push(format!("{path} is {runtime}"));
            }
        }
    }
}

/// Tasks outside that may run on its CPUs.
fn of_tasks(name: &str, shielded: &CpuSet, stays: &str, wrong: &mut Vec<String>) {
    for process in numbers("/proc") {
        for tid in numbers(&format!("/proc/{process}/task")) {
            let dir = format!("/proc/{process}/task/{tid}");
            let known: BTreeMap<String, String> = text(&format!("{dir}/status"))
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
                .collect();
            let of = |key: &str| known.get(key).map_or("", String::as_str);
            let dead = ["", "Z", "X"].iter().any(|state| of("State").get(..1) == Some(state));
            if dead || known.is_empty() || !cpus(of("Cpus_allowed_list")).intersects(shielded) {
                continue;
            }
            let stat = text(&format!("{dir}/stat"));
            let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
            let flags: u64 =
                fields.split_whitespace().nth(6).and_then(|word| word.parse().ok()).unwrap_or(0);
            let group = text(&format!("{dir}/cgroup"));
            let inside = format!("/{name}/");
            let command = of("Name");
            let one = |word: &str| stays.contains(word);
            let of_kernel =
                flags & PF_KTHREAD != 0 && (command.starts_with("irq/") || one(command));
            if !of_kernel && !format!("{group}/").contains(&inside) {
                let allowed = of("Cpus_allowed_list");
                wrong.push(format!("task {tid} ({command}) of {group} may run on {allowed}"));
            }
        }
    }
}
