// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run directory: `run.json` (what was measured, how, where) and `samples.bin`. A run whose
//! provenance is missing, of another version or contradicts its samples is refused, never guessed.

use crate::explain::Outlier;
use crate::load::{Load, Size};
use crate::sample::{self, Sample, SampleError};
use crate::summary::Summary;
use asmp_host::limited::{MOST_BYTES, read_at_most};
use asmp_host::store::replace_file;
use asmp_host::{Cpu, Kernel, Schedule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Version of the layout of `run.json`.
pub const RUN_SCHEMA: u32 = 1;

/// Where the measured task runs, by ASMP-Linux section 6.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// SCHED_OTHER, anywhere.
    N,
    /// SCHED_FIFO on the CPU that takes all device interrupts.
    Rw,
    /// SCHED_FIFO on a CPU that takes none.
    Rb,
    /// In a partition, tick kept.
    Aon,
    /// In a partition, tick off.
    Aoff,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::N, Self::Rw, Self::Rb, Self::Aon, Self::Aoff];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("invalid kind {text:?}: expected N, Rw, Rb, Aon or Aoff"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Experiment {
    /// Values: from the due instant to the wake-up.
    Latency,
    /// Values: how long a turn of the loop took.
    Overhead,
}

/// Who took the times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// `clock_nanosleep` to an absolute instant, and the clock after it.
    Nanosleep,
    /// The kernel's timerlat tracer, user-space interface.
    Timerlat,
    /// The same of a thread of the kernel's own: the event is handled there.
    #[serde(rename = "timerlat-kernel")]
    TimerlatKernel,
    /// The clock before and after each turn of an integer loop.
    Loop,
    /// A histogram of another tool.
    Import,
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub kernel: String,
    pub kernel_version: String,
    pub cpu_model: String,
    pub online_cpus: String,
    pub boot_parameters: String,
    /// As the CPU says; times of a guest are no times of a machine.
    pub hypervisor: bool,
}

impl Machine {
    pub fn read(kernel: &dyn Kernel) -> Self {
        let text = |path: &str| kernel.text(Path::new(path)).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map_or("", |(_, value)| value.trim())
                .to_owned()
        };
        Self {
            kernel: text("/proc/sys/kernel/osrelease"),
            kernel_version: text("/proc/sys/kernel/version"),
            cpu_model: field("model name"),
            online_cpus: text("/sys/devices/system/cpu/online"),
            boot_parameters: text("/proc/cmdline"),
            hypervisor: field("flags").split_whitespace().any(|flag| flag == "hypervisor"),
        }
    }
}

/// What happened on the probe's CPU in the whole run; `None` where it was not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    pub ticks: Option<u64>,
    pub device_interrupts: Option<BTreeMap<String, u64>>,
    pub ipis: Option<BTreeMap<String, u64>>,
    /// Time that the hypervisor reports to have taken (`steal` of /proc/stat); an emulator reports
    /// none.
    pub steal_ns: Option<u64>,
}

/// Everything about a run but its samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    pub schema: u32,
    /// `asmp` and its version.
    pub tool: String,
    pub command_line: Vec<String>,
    pub experiment: Experiment,
    pub kind: Kind,
    pub source: Source,
    pub load: Load,
    pub load_size: Size,
    pub load_commands: Vec<String>,
    /// Caches and TLB made dirty before each event.
    pub flood: bool,
    pub machine: Machine,
    /// The probe's CPU; `None` where it was free to move.
    pub cpu: Option<Cpu>,
    pub schedule: Schedule,
    pub memory_locked: bool,
    pub cpu_latency_held: bool,
    /// Period of the instants; `None` where they are random or there are none.
    pub period_ns: Option<u64>,
    pub warm_up_samples: u64,
    /// Seconds since 1970-01-01 UTC.
    pub started_s: u64,
    pub duration_ns: u64,
    /// Records in samples.bin.
    pub samples: u64,
    /// Samples that found the probe's ring full; of timerlat, periods that lack a line.
    pub lost: u64,
    /// Instants that had passed before the probe was done with the one before; not sampled.
    pub overruns: u64,
    /// Records of the kernel that found no room: counts and causes are then incomplete.
    pub lost_records: u64,
    /// Why there are fewer samples than asked for.
    pub partial: Option<String>,
    /// Overhead: the fastest turn of undisturbed runs before and after.
    pub base_ns: Option<BaseTime>,
    /// Why the causes were not recorded, where they were not.
    pub not_recorded: Option<String>,
    /// What the shield had set for this run, one line a setting.
    pub settings: Vec<String>,
    pub totals: Totals,
    /// The worst samples with their causes, worst first.
    pub worst: Vec<Outlier>,
}

/// Undisturbed turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseTime {
    pub before_ns: u64,
    pub after_ns: u64,
    pub rounds: u64,
}

/// Why a directory is not a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{path} is not a run directory: it has no run.json", path = path.display())]
    NoProvenance { path: PathBuf },
    #[error("{path}: {reason}", path = path.display())]
    BadProvenance { path: PathBuf, reason: String },
    #[error(
        "{path}: schema {found}, but this asmp reads {RUN_SCHEMA}: use the version that wrote \
         it, or a newer one",
        path = path.display()
    )]
    Schema { path: PathBuf, found: u64 },
    #[error("{path}: {cause}", path = path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Samples(#[from] SampleError),
}

/// A run as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub dir: PathBuf,
    pub provenance: Provenance,
    pub samples: Vec<Sample>,
}

impl Run {
    pub fn read(dir: &Path) -> Result<Self, RunError> {
        let path = dir.join("run.json");
        let bytes = match read_at_most(&path, MOST_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RunError::NoProvenance { path: dir.to_owned() });
            }
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let reason = format!("{error}: not a run of asmp measure");
                return Err(RunError::BadProvenance { path, reason });
            }
            Err(cause) => return Err(RunError::Io { path, cause }),
        };
        let bad = |reason: String| RunError::BadProvenance { path: path.clone(), reason };
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| bad(format!("not JSON ({error})")))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(found) if found != u64::from(RUN_SCHEMA) => {
                return Err(RunError::Schema { path, found });
            }
            Some(_) => {}
            None => return Err(bad("no schema number: not a run of asmp measure".to_owned())),
        }
        let provenance: Provenance =
            serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
        let samples = sample::read(&dir.join("samples.bin"), provenance.samples)?;
        Ok(Self { dir: dir.to_owned(), provenance, samples })
    }

    /// Runs of a directory: itself, or those directly below it, sorted by name.
    pub fn read_all(dir: &Path) -> Result<Vec<Self>, RunError> {
        if dir.join("run.json").exists() {
            return Ok(vec![Self::read(dir)?]);
        }
        let io = |cause| RunError::Io { path: dir.to_owned(), cause };
        let mut below: Vec<PathBuf> = std::fs::read_dir(dir)
            .map_err(io)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()
            .map_err(io)?;
        below.retain(|path| path.is_dir());
        below.sort();
        if below.is_empty() {
            return Err(RunError::NoProvenance { path: dir.to_owned() });
        }
        below.iter().map(|dir| Self::read(dir)).collect()
    }

    /// Values as the papers print them: latencies, or what a turn took beyond the base time.
    pub fn values(&self) -> Vec<u64> {
        let base = self.provenance.base_ns.map_or(0, |base| base.before_ns.min(base.after_ns));
        self.samples.iter().map(|sample| sample.value_ns.saturating_sub(base)).collect()
    }

    /// Overhead: what handlers and other tasks took of each turn.
    pub fn system_ns(&self) -> Vec<u64> {
        self.samples.iter().map(|sample| sample.system_ns).collect()
    }

    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.values(), self.provenance.lost)
    }

    /// `MIX/Aoff`.
    pub fn name(&self) -> String {
        let thread = if self.is_of_kernel_thread() { " (kernel thread)" } else { "" };
        format!("{}/{}{thread}", self.provenance.load, self.provenance.kind)
    }

    /// A thread of the kernel's was measured, no task of user space.
    pub fn is_of_kernel_thread(&self) -> bool {
        self.provenance.source == Source::TimerlatKernel
    }
}

/// Writes `run.json` whole or not at all.
pub fn write_provenance(dir: &Path, provenance: &Provenance) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(provenance).map_err(io::Error::other)?;
    text.push('\n');
    replace_file(&dir.join("run.json"), text.as_bytes(), 0o666)
}
