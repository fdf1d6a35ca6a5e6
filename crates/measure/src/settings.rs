// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What two runs must have in common before a difference of theirs means anything. Pure.

use crate::load::{Load, LoadDir};
use crate::run::{Experiment, Kind, Machine, Provenance, Source, Step};
use crate::told::{self, grouped, short_us};
use std::fmt;
use std::str::FromStr;

/// What runs may differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    Experiment,
    Kind,
    Load,
    /// Whose times an import's column holds.
    Column,
    /// Of `ab`: the step that was done or left out.
    Step,
    Source,
    /// How long an undisturbed turn of the loop takes.
    Work,
    /// How many processes the load has, and the factor of which they follow.
    LoadSize,
    /// File system and disk that the load wrote to.
    LoadDisk,
    Period,
    Flood,
    /// Policy and priority of the task.
    Priority,
    /// The measured CPU.
    Cpu,
    /// Whether the kernel's events were recorded, which lengthens the paths.
    Trace,
    /// Whether the memory of the measuring process was locked.
    MemoryLock,
    /// Whether CPUs were kept from idle states that take time to leave.
    CpuLatency,
    /// Samples before the first that counts.
    WarmUp,
    /// What the shield had set, where both are of one kind.
    Shield,
    /// Processor, CPUs, hypervisor.
    Machine,
    /// Release and build of the kernel, and its boot parameters.
    Kernel,
    /// Version of asmp.
    Version,
    /// A run that ended early.
    Completeness,
}

impl Setting {
    pub const ALL: [Self; 22] = [
        Self::Experiment,
        Self::Kind,
        Self::Load,
        Self::Column,
        Self::Step,
        Self::Source,
        Self::Work,
        Self::LoadSize,
        Self::LoadDisk,
        Self::Period,
        Self::Flood,
        Self::Priority,
        Self::Cpu,
        Self::Trace,
        Self::MemoryLock,
        Self::CpuLatency,
        Self::WarmUp,
        Self::Shield,
        Self::Machine,
        Self::Kernel,
        Self::Version,
        Self::Completeness,
    ];

    /// By these a run finds its partner; the others must then be the same.
    pub const NAMING: [Self; 6] =
        [Self::Experiment, Self::Kind, Self::Load, Self::Column, Self::Step, Self::Source];

    const fn name(self) -> &'static str {
        match self {
            Self::Experiment => "experiment",
            Self::Kind => "kind",
            Self::Load => "load",
            Self::Column => "column",
            Self::Step => "step",
            Self::Source => "source",
            Self::Work => "work",
            Self::LoadSize => "load-size",
            Self::LoadDisk => "load-disk",
            Self::Period => "period",
            Self::Flood => "flood",
            Self::Priority => "priority",
            Self::Cpu => "cpu",
            Self::Trace => "trace",
            Self::MemoryLock => "memory-lock",
            Self::CpuLatency => "cpu-latency",
            Self::WarmUp => "warm-up",
            Self::Shield => "shield",
            Self::Machine => "machine",
            Self::Kernel => "kernel",
            Self::Version => "version",
            Self::Completeness => "completeness",
        }
    }

    /// What a run has of it, as words that differ where the settings do.
    pub fn of(self, run: &Provenance) -> String {
        let Machine { kernel, kernel_version, cpu_model, online_cpus, .. } = &run.machine;
        let is_import = run.source == Source::Import;
        let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
        match self {
            Self::Experiment => format!("{:?}", run.experiment).to_lowercase(),
            Self::Kind => run.kind.to_string(),
            Self::Load if run.load == Load::Unknown => unknown(),
            Self::Load => run.load.to_string(),
            Self::Column => run.column.clone().unwrap_or_else(|| "none".to_owned()),
            Self::Step => run.step.as_ref().map_or_else(|| "none".to_owned(), Step::to_string),
            Self::Source => run.source.word().to_owned(),
            Self::LoadSize if is_import && run.load != Load::Idle => unknown(),
            Self::LoadSize => load_size(run),
            Self::Work => match (run.work_ns, turn_ns(run)) {
                (Some(ns), _) => told::time(ns),
                (None, Some(ns)) => format!("about {} us", short_us(ns)),
                (None, None) if run.experiment == Experiment::Overhead => unknown(),
                (None, None) => "none".to_owned(),
            },
            Self::LoadDisk => match (run.load.writes(), &run.load_dir) {
                (false, _) if run.load == Load::Unknown => unknown(),
                (false, _) => "none".to_owned(),
                (true, Some(dir)) => disk(dir),
                (true, None) => unknown(),
            },
            Self::Period => match run.period_ns {
                Some(ns) => told::time(ns),
                None if is_import => unknown(),
                None => "none".to_owned(),
            },
            Self::Cpu => match run.cpu {
                Some(cpu) => cpu.to_string(),
                None if is_import => unknown(),
                None => "any".to_owned(),
            },
            Self::Trace | Self::WarmUp | Self::Shield | Self::Machine | Self::Version
                if is_import =>
            {
                unknown()
            }
            Self::Flood => run.flood.map_or_else(unknown, yes_or_no),
            Self::Trace => yes_or_no(run.not_recorded.is_none()),
            Self::MemoryLock => run.memory_locked.map_or_else(unknown, yes_or_no),
            Self::CpuLatency => run.cpu_latency_held.map_or_else(unknown, yes_or_no),
            Self::WarmUp => format!("{} samples", grouped(run.warm_up_samples)),
            Self::Shield => match lasting(run).as_slice() {
                [] => "nothing set".to_owned(),
                set => set.join(", "),
            },
            Self::Version => run.tool.clone(),
            Self::Priority if run.schedule.is_none() => unknown(),
            Self::Priority => told::policy(run.schedule),
            Self::Machine => {
                let guest = match run.machine.hypervisor {
                    Some(true) => ", a virtual machine",
                    None if run.source != Source::Import => ", a virtual machine or not: not known",
                    Some(false) | None => "",
                };
                format!("{cpu_model}, CPUs {online_cpus}{guest}")
            }
            Self::Kernel => {
                let parameters = &run.machine.boot_parameters;
                [kernel, kernel_version, parameters].map(|text| text.as_str()).join(" ")
            }
            Self::Completeness => run.partial.clone().unwrap_or_else(|| "complete".to_owned()),
        }
    }

    /// All that two runs differ in.
    pub fn differing(one: &Provenance, other: &Provenance) -> Vec<Self> {
        let differs = |setting: &Self| match setting {
            // Two that ended early are not alike: no one knows what each lacks.
            Self::Completeness => one.partial.is_some() || other.partial.is_some(),
            Self::Work => differ_in_work(one, other),
            // Another load has another number by its nature.
            Self::LoadSize if one.load != other.load => {
                let factor = |run: &Provenance| run.load_size.factor(run.load);
                factor(one) != factor(other)
            }
            // By its nature each kind, and each step of `ab`, has settings of its own.
            Self::Shield if one.kind != other.kind || one.step != other.step => false,
            setting => setting.of(one) != setting.of(other),
        };
        Self::ALL.into_iter().filter(differs).collect()
    }

    /// Those of them in which the two may not differ. `across`: what was named; with the kind goes
    /// what follows of it.
    pub fn refused(one: &Provenance, other: &Provenance, across: &[Self]) -> Vec<Self> {
        let is_of_kind = |setting: &Self| {
            across.contains(&Self::Kind) && setting.follows_of_the_kind(one, other)
        };
        let mut differing = Self::differing(one, other);
        differing.retain(|setting| !across.contains(setting) && !is_of_kind(setting));
        differing
    }

    /// Kind normal has no priority. Where its task is free to move, it has no CPU, and what the
    /// kernel does there is not recorded.
    pub fn follows_of_the_kind(self, one: &Provenance, other: &Provenance) -> bool {
        let is_normal = |run: &Provenance| run.kind == Kind::Normal;
        let is_free = |run: &Provenance| is_normal(run) && run.cpu.is_none();
        match self {
            Self::Priority => is_normal(one) != is_normal(other),
            Self::Cpu | Self::Trace => is_free(one) != is_free(other),
            _ => false,
        }
    }
}

/// `16 processes (factor 1)`.
fn load_size(run: &Provenance) -> String {
    let factor = run.load_size.factor(run.load);
    let factor = factor.map_or_else(String::new, |factor| format!(" (factor {factor})"));
    match run.load_size.processes(run.load) {
        Some(0) => "none".to_owned(),
        Some(count) => format!("{count} processes{factor}"),
        None => unknown(),
    }
}

/// Of an undisturbed turn: as it was asked for, or of older runs the fastest one.
fn turn_ns(run: &Provenance) -> Option<u64> {
    let fastest = || run.base_ns.map(|base| base.before_ns.min(base.after_ns));
    run.work_ns.or_else(fastest)
}

/// Fastest turns of one work differ by some percent from boot to boot.
fn differ_in_work(one: &Provenance, other: &Provenance) -> bool {
    match (turn_ns(one), turn_ns(other)) {
        (Some(of_one), Some(of_other)) if one.work_ns.is_some() && other.work_ns.is_some() => {
            of_one != of_other
        }
        (Some(of_one), Some(of_other)) => of_one.abs_diff(of_other) > of_one.max(of_other) / 20,
        (of_one, of_other) => of_one.is_some() != of_other.is_some(),
    }
}

/// What the shield had set of the machine, as `FILE -> NEW`: what it was before does not count.
/// Left out are groups, whose names hold the number of a process, lines of interrupts, whose
/// numbers a boot gives, and the tracer, which goes with the source.
fn lasting(run: &Provenance) -> Vec<String> {
    let of_a_run = ["/sys/fs/cgroup/", "/proc/irq/", "/sys/kernel/tracing/"];
    let lasts = |line: &&String| !of_a_run.iter().any(|dir| line.starts_with(dir));
    let to = |line: &String| match (line.split_once(": "), line.rsplit_once(" -> ")) {
        (Some((file, _)), Some((_, new))) => format!("{file} -> {new}"),
        _ => line.clone(),
    };
    let mut set: Vec<String> = run.settings.iter().filter(lasts).map(to).collect();
    set.sort();
    set
}

/// What tells two kernels apart, in few words: releases, else builds; and of the boot parameters
/// those that the other has not.
pub(crate) fn kernels(one: &Machine, other: &Machine) -> [String; 2] {
    let of = |one: &Machine, other: &Machine| {
        let mut words = vec![one.kernel.trim()];
        if one.kernel == other.kernel && one.kernel_version != other.kernel_version {
            words.push(one.kernel_version.trim());
        }
        let has = |word: &&str| other.boot_parameters.split_whitespace().any(|one| one == *word);
        let own: Vec<&str> =
            one.boot_parameters.split_whitespace().filter(|word| !has(word)).collect();
        if !own.is_empty() {
            words.push("with");
            words.extend(own);
        }
        words.join(" ")
    };
    let [a, b] = [of(one, other), of(other, one)];
    let is_order = a == b && one.boot_parameters != other.boot_parameters;
    let b = if is_order { b + " with its boot parameters in another order" } else { b };
    [a, b]
}

/// What neither an import's file nor an older `run.json` says.
fn unknown() -> String {
    "not known".to_owned()
}

/// File system and disk. A device of major number 0 is none: each mount may give another one.
fn disk(dir: &LoadDir) -> String {
    match dir.device.starts_with("0:") {
        true => dir.file_system.clone(),
        false => format!("{} on device {}", dir.file_system, dir.device),
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|setting| setting.name() == text);
        found.ok_or_else(|| format!("invalid setting {text:?}: expected one of {names}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Size;
    use crate::run::BaseTime;
    use crate::run::tests::provenance;
    use asmp_host::Schedule;

    const GOVERNOR: &str =
        "/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor: powersave -> performance";

    #[test]
    fn each_setting_is_named_where_it_differs() {
        let one = provenance();
        let change = |setting: Setting| {
            let mut other = one.clone();
            match setting {
                Setting::Experiment => other.experiment = Experiment::Overhead,
                Setting::Kind => other.kind = Kind::Normal,
                Setting::Load => other.load = Load::Io,
                Setting::Column => other.column = Some("Usr-003".into()),
                Setting::Step => other.step = Some(Step { name: "irqs".into(), with: true }),
                Setting::Source => other.source = Source::Timerlat,
                Setting::Work => other.work_ns = Some(50_000_000),
                Setting::LoadSize => other.load_size.per_cpu += 1,
                Setting::LoadDisk => {
                    other.load_dir = Some(LoadDir {
                        path: "x".into(),
                        file_system: "ext4".into(),
                        device: "8:1".into(),
                    });
                }
                Setting::Period => other.period_ns = Some(1),
                Setting::Flood => other.flood = Some(true),
                Setting::Priority => other.schedule = Some(Schedule::Fifo { priority: 99 }),
                Setting::Cpu => other.cpu = Some(2),
                Setting::Trace => other.not_recorded = Some("--no-trace".into()),
                Setting::MemoryLock => other.memory_locked = Some(false),
                Setting::CpuLatency => other.cpu_latency_held = Some(false),
                Setting::WarmUp => other.warm_up_samples = 100_000,
                Setting::Shield => other.settings = vec![GOVERNOR.into()],
                Setting::Machine => other.machine.cpu_model = "another".into(),
                Setting::Kernel => other.machine.boot_parameters = "nohz_full=1".into(),
                Setting::Version => other.tool = "asmp 0.2.0".into(),
                Setting::Completeness => other.partial = Some("interrupted".into()),
            }
            other
        };
        assert_eq!(Setting::differing(&one, &one), []);
        for setting in Setting::ALL {
            let other = change(setting);
            assert_eq!(Setting::differing(&one, &other), [setting]);
            assert_ne!(setting.of(&one), setting.of(&other));
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
        // Disks of one file system differ, but for one without a disk of its own.
        let wrote_to = |file_system: &str, device: &str| {
            let (path, device) = ("x".to_owned(), device.to_owned());
            let load_dir = Some(LoadDir { path, file_system: file_system.to_owned(), device });
            Provenance { load_dir, ..one.clone() }
        };
        let differing = |a: (&str, &str), b: (&str, &str)| {
            Setting::differing(&wrote_to(a.0, a.1), &wrote_to(b.0, b.1))
        };
        assert_eq!(differing(("ext4", "8:1"), ("ext4", "259:2")), [Setting::LoadDisk]);
        assert_eq!(differing(("ext4", "8:1"), ("ext4", "8:1")), []);
        assert_eq!(differing(("btrfs", "0:35"), ("btrfs", "0:41")), []);
        assert_eq!(differing(("btrfs", "0:35"), ("nfs", "0:41")), [Setting::LoadDisk]);
        assert_eq!(Setting::LoadSize.of(&one), "6 processes (factor 1)");
        // As the tables have them.
        assert_eq!(Setting::Period.of(&one), "1 ms");
        assert_eq!(Setting::Priority.of(&one), "SCHED_FIFO 80");
        let early = change(Setting::Completeness);
        assert_eq!(Setting::Completeness.of(&early), "interrupted");
        let mut kernel_thread = one.clone();
        kernel_thread.source = Source::TimerlatKernel;
        assert_eq!(Setting::Source.of(&kernel_thread), "timerlat-kernel");
        // artis has as many whatever the factor is.
        let [mut few, mut many] = [one.clone(), change(Setting::LoadSize)];
        (few.load, many.load) = (Load::Artis, Load::Artis);
        assert_eq!(Setting::differing(&few, &many), []);
        let partial = change(Setting::Completeness);
        assert_eq!(Setting::differing(&partial, &partial), [Setting::Completeness]);
        assert!("shoes".parse::<Setting>().unwrap_err().contains("load-size"));
    }

    #[test]
    fn loads_of_as_many_processes_are_alike_and_no_others() {
        let of = |per_cpu, cpus| Provenance { load_size: Size { per_cpu, cpus }, ..provenance() };
        let differing = |cpus| Setting::differing(&of(1, 4), &of(1, cpus));
        assert_eq!(differing(4), []);
        assert_eq!(differing(64), [Setting::LoadSize]);
    }

    #[test]
    fn loops_are_alike_by_the_work_that_was_asked_for_or_by_their_base_times() {
        let turns = |work_ns, before_ns| {
            let base_ns = Some(BaseTime { before_ns, after_ns: before_ns + 7, rounds: 1 });
            let experiment = Experiment::Overhead;
            Provenance { experiment, work_ns, base_ns, period_ns: None, ..provenance() }
        };
        let are_alike = |one: (Option<u64>, u64), other: (Option<u64>, u64)| {
            Setting::differing(&turns(one.0, one.1), &turns(other.0, other.1)).is_empty()
        };
        let ms = 1_000_000;
        assert!(are_alike((Some(10 * ms), 9 * ms), (Some(10 * ms), 11 * ms)), "one work");
        assert!(!are_alike((Some(10 * ms), 10 * ms), (Some(11 * ms), 10 * ms)));
        // Older runs do not say it.
        assert!(are_alike((None, 100 * ms), (None, 104 * ms)));
        assert!(are_alike((Some(100 * ms), 7), (None, 104 * ms)));
        assert!(!are_alike((None, ms), (None, 50 * ms)));
        assert_eq!(Setting::Work.of(&turns(Some(50 * ms), 1)), "50 ms");
        assert_eq!(Setting::Work.of(&turns(None, 50 * ms)), "about 50,000 us");
    }

    #[test]
    fn what_the_shield_had_set_is_compared_within_one_kind_by_its_new_values() {
        let set = |kind: Kind, lines: &[&str]| {
            let settings = lines.iter().map(|line| (*line).to_owned()).collect();
            Provenance { kind, settings, ..provenance() }
        };
        let group = |pid: u32| format!("/sys/fs/cgroup/asmp/measure-{pid}/cpuset.cpus:  -> 3");
        let (one, other) = (group(7), group(8));
        let irq = "/proc/irq/24/smp_affinity_list: 0-3 -> 0-2";
        let before = GOVERNOR.replace("powersave", "schedutil");
        let a = set(Kind::Partition, &[&one, irq, GOVERNOR]);
        let alike = set(Kind::Partition, &[&before, &other]);
        assert_eq!(Setting::differing(&a, &alike), []);
        let without = set(Kind::Partition, &[&other]);
        assert_eq!(Setting::differing(&a, &without), [Setting::Shield]);
        assert_eq!(Setting::Shield.of(&without), "nothing set");
        let file = "/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor -> performance";
        assert_eq!(Setting::Shield.of(&a), file);
        assert_eq!(Setting::differing(&a, &set(Kind::Fifo, &[])), [Setting::Kind]);
    }

    #[test]
    fn two_kernels_are_told_apart_by_what_differs_alone() {
        let machine = |kernel: &str, version: &str, boot_parameters: &str| Machine {
            kernel: kernel.into(),
            kernel_version: version.into(),
            boot_parameters: boot_parameters.into(),
            ..provenance().machine
        };
        let one = machine("7.2.13", "#1 SMP", "root=/dev/vda quiet nohz_full=1-3");
        let told = |kernel, version, parameters: &str| {
            kernels(&one, &machine(kernel, version, parameters))
        };
        let same = one.boot_parameters.as_str();
        assert_eq!(told("6.12", "#9 SMP", same), ["7.2.13", "6.12"]);
        assert_eq!(told("7.2.13", "#9 SMP", same), ["7.2.13 #1 SMP", "7.2.13 #9 SMP"]);
        let parameters = "root=/dev/vda quiet nohz_full=2";
        let by_parameters = ["7.2.13 with nohz_full=1-3", "7.2.13 with nohz_full=2"];
        assert_eq!(told("7.2.13", "#1 SMP", parameters), by_parameters);
        let [_, other] = told("7.2.13", "#1 SMP", "quiet root=/dev/vda nohz_full=1-3");
        assert_eq!(other, "7.2.13 with its boot parameters in another order");
    }

    #[test]
    fn what_no_import_says_is_not_known() {
        let import =
            Provenance { source: Source::Import, period_ns: None, schedule: None, ..provenance() };
        let (memory_locked, cpu_latency_held) = (None, None);
        let import =
            Provenance { cpu: None, flood: None, memory_locked, cpu_latency_held, ..import };
        let of_another_load = Provenance { load: Load::Unknown, ..import.clone() };
        for setting in [Setting::Load, Setting::LoadSize, Setting::LoadDisk] {
            assert_eq!(setting.of(&of_another_load), "not known", "{setting}");
        }
        assert_eq!(Setting::differing(&of_another_load, &of_another_load.clone()), []);
        let known =
            [Setting::NAMING.as_slice(), &[Setting::Kernel, Setting::Completeness]].concat();
        assert_eq!(Setting::Work.of(&import), "none", "an import has no loop");
        let known = [known, vec![Setting::Work]].concat();
        for setting in Setting::ALL.into_iter().filter(|setting| !known.contains(setting)) {
            assert_eq!(setting.of(&import), "not known", "{setting}");
        }
        let mut other = import.clone();
        (other.tool, other.machine.cpu_model) = ("another".into(), "another".into());
        assert_eq!(Setting::differing(&import, &other), []);
        let random = Provenance { period_ns: None, ..provenance() };
        assert_eq!(Setting::Period.of(&random), "none");
    }

    #[test]
    fn what_a_task_of_kind_normal_lacks_goes_with_its_kind() {
        let partition = provenance();
        let normal = Provenance {
            kind: Kind::Normal,
            cpu: None,
            schedule: Some(Schedule::Other { nice: 0 }),
            not_recorded: Some("the task may move between CPUs".into()),
            ..provenance()
        };
        let differing = [Setting::Kind, Setting::Priority, Setting::Cpu, Setting::Trace];
        assert_eq!(Setting::differing(&normal, &partition), differing);
        assert_eq!(Setting::refused(&normal, &partition, &[Setting::Kind]), []);
        assert_eq!(Setting::refused(&normal, &partition, &[]), differing);
        // Nothing follows of the others.
        let fifo = Provenance { kind: Kind::Fifo, cpu: Some(2), ..provenance() };
        assert_eq!(Setting::refused(&fifo, &partition, &[Setting::Kind]), [Setting::Cpu]);
        let slow = Provenance { period_ns: Some(7), ..normal };
        assert_eq!(Setting::refused(&slow, &partition, &[Setting::Kind]), [Setting::Period]);
    }
}
