// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What two runs must have in common before a difference of theirs means anything. Pure.

use crate::load::LoadDir;
use crate::run::{Machine, Provenance, Source};
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
    Source,
    /// The factor of which the load's processes follow.
    LoadSize,
    /// File system and disk that the load wrote to.
    LoadDisk,
    Period,
    Flood,
    /// Policy and priority of the task.
    Priority,
    /// Processor, CPUs, hypervisor.
    Machine,
    /// Release and build of the kernel, and its boot parameters.
    Kernel,
    /// A run that ended early.
    Completeness,
}

impl Setting {
    pub const ALL: [Self; 13] = [
        Self::Experiment,
        Self::Kind,
        Self::Load,
        Self::Column,
        Self::Source,
        Self::LoadSize,
        Self::LoadDisk,
        Self::Period,
        Self::Flood,
        Self::Priority,
        Self::Machine,
        Self::Kernel,
        Self::Completeness,
    ];

    /// By these a run finds its partner; the others must then be the same.
    pub const NAMING: [Self; 5] =
        [Self::Experiment, Self::Kind, Self::Load, Self::Column, Self::Source];

    const fn name(self) -> &'static str {
        match self {
            Self::Experiment => "experiment",
            Self::Kind => "kind",
            Self::Load => "load",
            Self::Column => "column",
            Self::Source => "source",
            Self::LoadSize => "load-size",
            Self::LoadDisk => "load-disk",
            Self::Period => "period",
            Self::Flood => "flood",
            Self::Priority => "priority",
            Self::Machine => "machine",
            Self::Kernel => "kernel",
            Self::Completeness => "completeness",
        }
    }

    /// What a run has of it, as words that differ where the settings do.
    pub fn of(self, run: &Provenance) -> String {
        let Machine { kernel, kernel_version, cpu_model, online_cpus, .. } = &run.machine;
        match self {
            Self::Experiment => format!("{:?}", run.experiment).to_lowercase(),
            Self::Kind => run.kind.to_string(),
            Self::Load => run.load.to_string(),
            Self::Column => run.column.clone().unwrap_or_else(|| "none".to_owned()),
            Self::Source => run.source.word().to_owned(),
            Self::LoadSize => {
                let factor = run.load_size.factor(run.load);
                factor.map_or_else(|| "none".to_owned(), |factor| format!("factor {factor}"))
            }
            Self::LoadDisk => match (run.load.writes(), &run.load_dir) {
                (false, _) => "none".to_owned(),
                (true, Some(dir)) => disk(dir),
                (true, None) => unknown(),
            },
            Self::Period => match (run.period_ns, run.source) {
                (Some(ns), _) => format!("{ns} ns"),
                (None, Source::Import) => unknown(),
                (None, _) => "none".to_owned(),
            },
            Self::Flood if run.source == Source::Import => unknown(),
            Self::Flood => if run.flood { "yes" } else { "no" }.to_owned(),
            Self::Priority => run.schedule.map_or_else(unknown, |schedule| schedule.to_string()),
            Self::Machine => {
                let guest = if run.machine.hypervisor { ", a guest" } else { "" };
                format!("{cpu_model}, CPUs {online_cpus}{guest}")
            }
            Self::Kernel => {
                let parameters = &run.machine.boot_parameters;
                [kernel, kernel_version, parameters].map(|text| text.as_str()).join(" ")
            }
            Self::Completeness => {
                run.partial.clone().map_or_else(|| "complete".to_owned(), |why| format!("({why})"))
            }
        }
    }

    /// All that two runs differ in.
    pub fn differing(one: &Provenance, other: &Provenance) -> Vec<Self> {
        let differs = |setting: &Self| match setting {
            // Two that ended early are not alike: no one knows what each lacks.
            Self::Completeness => one.partial.is_some() || other.partial.is_some(),
            setting => setting.of(one) != setting.of(other),
        };
        Self::ALL.into_iter().filter(differs).collect()
    }
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
    use crate::load::Load;
    use crate::run::tests::provenance;
    use crate::run::{Experiment, Kind};
    use asmp_host::Schedule;

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
                Setting::Source => other.source = Source::Timerlat,
                Setting::LoadSize => other.load_size.per_cpu += 1,
                Setting::LoadDisk => {
                    other.load_dir = Some(LoadDir {
                        path: "x".into(),
                        file_system: "ext4".into(),
                        device: "8:1".into(),
                    });
                }
                Setting::Period => other.period_ns = Some(1),
                Setting::Flood => other.flood = true,
                Setting::Priority => other.schedule = Some(Schedule::Fifo { priority: 99 }),
                Setting::Machine => other.machine.cpu_model = "another".into(),
                Setting::Kernel => other.machine.boot_parameters = "nohz_full=1".into(),
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
        assert_eq!(Setting::LoadSize.of(&one), "factor 1");
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
    fn what_no_import_says_is_not_known() {
        let import =
            Provenance { source: Source::Import, period_ns: None, schedule: None, ..provenance() };
        for setting in [Setting::Period, Setting::Flood, Setting::Priority] {
            assert_eq!(setting.of(&import), "not known");
        }
        assert_eq!(Setting::differing(&import, &import), []);
        let random = Provenance { period_ns: None, ..provenance() };
        assert_eq!(Setting::Period.of(&random), "none");
    }
}
