// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines that tests start from: a small one, and a server.

use super::machine::{FakeTask, Group, Machine};
use super::{FakeKernel, HOOK, MOUNT, SHARER, SYSTEMD};
use crate::cpuset::{Cpu, CpuSet};
use crate::knob;
use crate::sched::Schedule;
use crate::sharing;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

impl FakeKernel {
    /// Four CPUs of one node and cache, candidates 1-3; IRQ 4 (ttyS0), 24 (eth0) and 25 (managed:
    /// virtio0-req.1); 6.12's files.
    pub fn new() -> Self {
        let lines = [(4, "ttyS0", "0-3"), (24, "eth0", "0-3"), (25, "virtio0-req.1", "3")];
        let lines = lines.map(|(irq, name, cpus)| (irq, name.to_owned(), cpus.to_owned()));
        let cores = (0..4).map(|cpu| CpuSet::from_iter([cpu])).collect();
        let fake = Self::of(cores, &lines, [25].into());
        fake.set_file("/sys/class/net/eth0/device/local_cpulist", "0-3");
        fake.set_file("/sys/class/net/lo/mtu", "65536");
        fake.set_node(0, "0-3");
        fake.set_file("/proc/irq/24/node", "0");
        fake.share_cache(&"0-3".parse().unwrap_or_default());
        fake
    }

    /// A server: `cpus` CPUs in pairs (n and n + `cpus` / 2 share a core), all but CPU 0
    /// candidates, in two nodes with a cache for 8 cores each, and `irq_lines` lines from IRQ 4 on.
    /// As drivers spread them: a quarter may go to every CPU, a quarter to half of the CPUs, and
    /// the rest are queues of one CPU each.
    pub fn large(cpus: u32, irq_lines: u32) -> Self {
        let half = cpus / 2;
        let cores = (0..cpus).map(|cpu| CpuSet::from_iter([cpu % half, cpu % half + half]));
        let lines: Vec<(u32, String, String)> = (0..irq_lines)
            .map(|line| {
                let cpus = match line % 4 {
                    0 => format!("0-{}", cpus - 1),
                    1 => format!("0-{},{half}-{}", half / 2 - 1, half + half / 2 - 1),
                    _ => (line % cpus).to_string(),
                };
                (4 + line, format!("nvme0q{line}"), cpus)
            })
            .collect();
        let fake = Self::of(cores.collect(), &lines, BTreeSet::new());
        let pairs = |first: u32, end: u32| -> CpuSet {
            (first..end).chain(first + half..end + half).collect()
        };
        for (node, first) in [0, half / 2].into_iter().enumerate() {
            fake.set_node(node as u32, &pairs(first, first + half / 2).to_string());
        }
        (0..half).step_by(8).for_each(|first| fake.share_cache(&pairs(first, half.min(first + 8))));
        fake
    }

    /// The CPUs of a NUMA node.
    pub fn set_node(&self, node: u32, cpus: &str) {
        self.set_file(&format!("/sys/devices/system/node/node{node}/cpulist"), cpus);
    }

    /// These CPUs share their last-level cache.
    pub fn share_cache(&self, cpus: &CpuSet) {
        for cpu in cpus.iter() {
            let file = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list");
            self.set_file(&file, &cpus.to_string());
        }
    }

    /// These CPUs share their frequency governor.
    pub fn share_governor(&self, cpus: &CpuSet) {
        let numbers: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
        for cpu in cpus.iter() {
            let file = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/related_cpus");
            self.set_file(&file, &numbers.join(" "));
        }
    }

    /// A machine with these cores (by CPU), lines (number, handler, affinity) and managed lines.
    fn of(cores: Vec<CpuSet>, lines: &[(u32, String, String)], managed: BTreeSet<u32>) -> Self {
        let cpus: CpuSet = (0..cores.len() as Cpu).collect();
        let candidates = cpus.difference(&CpuSet::from_iter([0])).to_string();
        let mut files: BTreeMap<PathBuf, String> = [
            ("/proc/sys/kernel/osrelease", "6.12.0-fake".to_owned()),
            ("/proc/sys/kernel/arch", "x86_64".to_owned()),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_RT".to_owned()),
            ("/proc/self/status", "Uid:\t0\t0\t0\t0".to_owned()),
            ("/proc/self/cgroup", "0::/".to_owned()),
            ("/proc/self/mountinfo", format!("25 1 0:23 / {MOUNT} rw - cgroup2 cgroup2 rw")),
            ("/proc/cmdline", format!("nohz_full={candidates}")),
            ("/proc/irq/default_smp_affinity", cpus.to_mask()),
            ("/proc/sys/kernel/watchdog_cpumask", cpus.to_string()),
            ("/sys/devices/virtual/workqueue/cpumask", cpus.to_mask()),
            (knob::WORKQUEUE_REQUESTED, cpus.to_mask()),
            ("/sys/devices/system/cpu/nohz_full", candidates),
            ("/sys/devices/system/machinecheck/machinecheck0/check_interval", "300".to_owned()),
            ("/proc/sys/kernel/timer_migration", "1".to_owned()),
        ]
        .into_iter()
        .map(|(path, text)| (path.into(), text))
        .collect();
        let columns: Vec<String> = cpus.iter().map(|cpu| format!("CPU{cpu}")).collect();
        let counts = "0 ".repeat(cores.len());
        let mut interrupts = format!("  {}\n", columns.join(" "));
        for (irq, name, cpus) in lines {
            files.insert(format!("/proc/irq/{irq}/smp_affinity_list").into(), cpus.clone());
            files.insert(format!("/proc/irq/{irq}/effective_affinity_list").into(), cpus.clone());
            interrupts.push_str(&format!("{irq}: {counts}PCI-MSI 0-edge {name}\n"));
        }
        interrupts.push_str("LOC: 0 0 0 0 Local timer interrupts\n");
        files.insert("/proc/interrupts".into(), interrupts);
        for (cpu, core) in cores.iter().enumerate() {
            let dir = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}"));
            files.insert(dir.join("topology/thread_siblings_list"), core.to_string());
            let timer = format!("/sys/devices/system/clockevents/clockevent{cpu}/current_device");
            files.insert(timer.into(), "lapic-deadline".to_owned());
            files.insert(dir.join("power/pm_qos_resume_latency_us"), "0".to_owned());
            files.insert(dir.join("cpufreq/scaling_governor"), "schedutil".to_owned());
            files.insert(dir.join("cpufreq/related_cpus"), cpu.to_string());
            let server = format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime");
            files.insert(server.into(), "50000000".to_owned());
        }
        let fake = Self {
            machine: Mutex::new(Machine {
                files,
                possible: cpus.clone(),
                online: cpus.clone(),
                groups: BTreeMap::from([(PathBuf::from("/"), Group::default())]),
                tasks: BTreeMap::new(),
                managed,
                changes: 0,
                lost_servers: false,
                fault: None,
            }),
            calls: AtomicUsize::new(0),
        };
        // Four CPUs: 20 to 23; larger machines have theirs beyond the numbers that tests choose.
        let first = if cores.len() <= 4 { 20 } else { 10_000 };
        for cpu in cpus.iter() {
            fake.start_kernel_thread(first + cpu as i32, &format!("ktimers/{cpu}"), Some(cpu));
        }
        fake.start_kernel_thread(30, "kcompactd0", None);
        fake.start(1, 1, "init", Schedule::Other { nice: 0 });
        fake.start(100, 100, "init", Schedule::Other { nice: 0 });
        fake
    }

    pub fn start_kernel_thread(&self, tid: i32, command: &str, cpu: Option<Cpu>) {
        let schedule = Schedule::Fifo { priority: 1 };
        let task = FakeTask {
            process: tid,
            command: command.to_owned(),
            kernel_thread: true,
            bound: cpu.is_some(),
            of_node: command == "kcompactd0",
            affinity: cpu.map(|cpu| CpuSet::from_iter([cpu])),
            asked: None,
            schedule,
            group: PathBuf::from("/"),
            parent: 1,
            start_ticks: 1000 + tid as u64,
            uid: 0,
            other_uids: 0,
            runnable: false,
            most_us: None,
        };
        self.lock().tasks.insert(tid, task);
    }

    /// A kernel that can share CPUs under a guarantee, and the program for it.
    pub fn can_share(&self) {
        let files = [(sharing::STATE, "disabled"), (sharing::BTF, ""), (SHARER, "")];
        files.into_iter().for_each(|(path, text)| self.set_file(path, text));
        self.set_file("/proc/sys/kernel/osrelease", "7.2.0-fake");
    }

    /// Root removed a hook of the scheduler of shared partitions.
    pub fn lose_hook(&self) {
        self.lock().files.remove(&Path::new(sharing::DIR).join(HOOK));
    }

    /// Root made a directory in the place of that hook.
    pub fn replace_hook(&self) {
        self.lose_hook();
        let inside = Path::new(sharing::DIR).join(HOOK).join("inside");
        self.lock().files.insert(inside, String::new());
    }

    /// Root set `kernel.ftrace_enabled`: `false` stops hooks of functions.
    pub fn enable_ftrace(&self, on: bool) {
        self.set_file(sharing::FTRACE, if on { "1" } else { "0" });
    }

    /// The kernel ended the scheduler of shared partitions.
    pub fn end_sharing(&self, why: &str) {
        let files = [(sharing::STATE, "disabled"), (sharing::CPUS, "")];
        files.into_iter().for_each(|(path, text)| self.set_file(path, text));
        self.set_file(sharing::STATS, &format!("calls_from_rt 7\nended {why}"));
    }

    /// systemd runs the machine: `app.service` holds these tasks.
    pub fn boot_systemd(&self, tasks: &[i32]) {
        let mut machine = self.lock();
        machine.files.insert(Path::new(SYSTEMD).join("units"), String::new());
        let unit = Path::new("/system.slice/app.service");
        for group in [Path::new("/system.slice"), unit] {
            machine.groups.insert(group.to_owned(), Group::default());
        }
        for tid in tasks {
            machine.tasks.entry(*tid).and_modify(|task| task.group = unit.to_owned());
        }
    }

    /// The CPUs that the kernel gave a task at boot (`nohz_full=`, `isolcpus=`).
    pub fn give_at_boot(&self, tid: i32, cpus: &CpuSet) {
        if let Some(task) = self.lock().tasks.get_mut(&tid) {
            task.affinity = Some(cpus.clone());
        }
    }
}
