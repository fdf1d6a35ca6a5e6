// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run directory: `run.json` (what was measured, how, where) and `hist.hlog` or `samples.bin`. A
//! run whose provenance is missing, of another version or contradicts its samples is refused, never
//! guessed.
//!
//! Reading takes constant memory: what is kept of samples are their histograms.

mod machine;
mod step;
mod write;

use crate::explain::Outlier;
use crate::histogram::Latencies;
use crate::hlog::{self, HlogError, Instants};
pub use crate::kind::Kind;
use crate::load::{Load, LoadDir, Size};
use crate::sample::{self, Sample, SampleError};
use crate::summary::Summary;
pub use crate::times::Times;
use asmp_host::limited::{MOST_BYTES, open_regular, read_regular_at_most};
use asmp_host::{Cpu, Schedule};
pub use machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Seek};
use std::path::{Path, PathBuf};
pub use step::Step;
pub use write::write_provenance;
pub(crate) use write::{ROOM_BYTES, begin, release, reserve};

/// Version of the layout of `run.json`. The first had no `column`, and always samples.bin; up to
/// the second, kinds and loads had the papers' names, and there were no `load_dir` and no `at_ns`.
pub const RUN_SCHEMA: u32 = 3;
/// The oldest that is read.
const OLDEST_SCHEMA: u32 = 1;

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

impl Source {
    /// As the command line and `run.json` have it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nanosleep => "nanosleep",
            Self::Timerlat => "timerlat",
            Self::TimerlatKernel => "timerlat-kernel",
            Self::Loop => "loop",
            Self::Import => "import",
        }
    }
}

/// Why a run is partial as long as it goes on. One that was killed never says anything else.
pub const UNFINISHED: &str = "killed, or still running";

/// What happened on the probe's CPU from the first sample to the last, and up to 10 ms before and
/// after that (a timerlat run ends up to 500 ms later); `None` where it was not counted.
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
    /// Of an import: what the tool's column counted, such as `thread 1` or `Usr-003`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Of a run of `ab`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    pub load: Load,
    pub load_size: Size,
    pub load_commands: Vec<String>,
    /// First line of `stress-ng --version`; `None` without a load, or where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_tool: Option<String>,
    /// What a load that writes wrote to; `None` of one that does not, or where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_dir: Option<LoadDir>,
    /// Caches and TLB made dirty before each event; `None`, here and below, where it is not known
    /// (an import).
    pub flood: Option<bool>,
    pub machine: Machine,
    /// The probe's CPU; `None` where it was free to move.
    pub cpu: Option<Cpu>,
    /// What the probe had.
    pub schedule: Option<Schedule>,
    pub memory_locked: Option<bool>,
    pub cpu_latency_held: Option<bool>,
    /// Period of the instants; `None` where they are random or there are none.
    pub period_ns: Option<u64>,
    pub warm_up_samples: u64,
    /// When the first sample was due; seconds since 1970-01-01 UTC.
    pub started_s: u64,
    /// From there to the end of the last sample; of older versions, warm-up and waiting besides.
    pub duration_ns: u64,
    /// Samples; as many records are in samples.bin, where there is one (`--samples-too`).
    pub samples: u64,
    /// Samples that found the probe's ring full; of timerlat, periods that lack a line.
    pub lost: u64,
    /// Instants that had passed before the probe was done with the one before; not sampled.
    pub overruns: u64,
    /// Records of the kernel that found no room: counts and causes are then incomplete.
    pub lost_records: u64,
    /// Why there are fewer samples than asked for.
    pub partial: Option<String>,
    /// Overhead: how long a turn was to take; `None` of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_ns: Option<u64>,
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
    #[error("{path} holds no run", path = path.display())]
    NoRun { path: PathBuf },
    #[error("{path}: {reason}", path = path.display())]
    BadProvenance { path: PathBuf, reason: String },
    #[error(
        "{path}: schema {found}, but this asmp reads {OLDEST_SCHEMA} to {RUN_SCHEMA}: use the \
         version that wrote it, or a newer one",
        path = path.display()
    )]
    Schema { path: PathBuf, found: u64 },
    #[error("{path}: {cause}", path = path.display())]
    Io { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Samples(#[from] SampleError),
    #[error("{path}: {cause}", path = path.display())]
    Log { path: PathBuf, cause: HlogError },
}

/// A run as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub dir: PathBuf,
    pub provenance: Provenance,
    /// As the papers print them: latencies of all instants, or what a turn took beyond the base
    /// time.
    pub latencies: Latencies,
    pub times: Times,
    /// Overhead: the most that handlers and other tasks took of a turn.
    pub system_max_ns: Option<u64>,
}

/// Runs of a directory, and what is none of them.
#[derive(Debug, Default)]
pub struct Found {
    pub runs: Vec<Run>,
    pub refused: Vec<RunError>,
}

/// What a run has in its directory. One of the last two may be missing.
pub const RUN_FILES: [&str; 3] = ["run.json", "hist.hlog", "samples.bin"];

impl Run {
    /// [`RUN_FILES`] of this one.
    pub fn files(&self) -> [PathBuf; 3] {
        RUN_FILES.map(|name| self.dir.join(name))
    }

    pub fn read(dir: &Path) -> Result<Self, RunError> {
        let path = dir.join("run.json");
        let bytes = match read_regular_at_most(&path, MOST_BYTES) {
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
            Some(found) if !(u64::from(OLDEST_SCHEMA)..=u64::from(RUN_SCHEMA)).contains(&found) => {
                return Err(RunError::Schema { path, found });
            }
            Some(_) => {}
            None => return Err(bad("no schema number: not a run of asmp measure".to_owned())),
        }
        let mut provenance: Provenance =
            serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
        if provenance.source == Source::Import {
            // Imports once had what no file had told.
            provenance.schedule = None;
            provenance.flood = None;
            (provenance.memory_locked, provenance.cpu_latency_held) = (None, None);
        }
        let mut run = Self {
            dir: dir.to_owned(),
            provenance,
            latencies: Latencies::default(),
            times: Times::default(),
            system_max_ns: None,
        };
        if run.provenance.partial.as_deref() == Some(UNFINISHED) {
            run.provenance.samples = run.found()?;
        }
        run.count()?;
        run.check_worst().map_err(bad)?;
        Ok(run)
    }

    /// Errors: the worst sample is not the longest of the log. A run that was cut short may know
    /// more of its worst than its log does.
    fn check_worst(&self) -> Result<(), String> {
        let Provenance { experiment, partial, worst, .. } = &self.provenance;
        if *experiment != Experiment::Latency || partial.is_some() {
            return Ok(());
        }
        let worst_ns = worst.iter().map(|one| one.value_ns).max();
        match worst_ns.filter(|worst_ns| Some(*worst_ns) > self.latencies.max_ns()) {
            None => Ok(()),
            Some(worst_ns) => {
                let max_ns = self.latencies.max_ns().unwrap_or(0);
                Err(format!("its worst took {worst_ns} ns, and the longest of its log {max_ns} ns"))
            }
        }
    }

    /// Samples that an unfinished run has so far, in the file that it is read from.
    fn found(&self) -> Result<u64, RunError> {
        match sample::whole(&self.samples_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            counted => {
                let io = |cause| RunError::Io { path: self.samples_path(), cause };
                return counted.map_err(io);
            }
        }
        let path = self.dir.join("hist.hlog");
        let file =
            open_regular(&path).map_err(|cause| RunError::Io { path: path.clone(), cause })?;
        let all = hlog::read(BufReader::new(file), |_| ());
        let all = all.map_err(|cause| RunError::Log { path, cause })?;
        Ok(all.get(&None).map_or(0, Latencies::samples))
    }

    /// Fills in the histograms: from the log, else from the samples.
    fn count(&mut self) -> Result<(), RunError> {
        let path = self.dir.join("hist.hlog");
        match open_regular(&path) {
            // Only the first version always had samples.bin.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && (self.provenance.schema == OLDEST_SCHEMA || self.has_samples()) => {}
            Err(cause) => return Err(RunError::Io { path, cause }),
            Ok(mut file) => {
                let read = hlog::whole(&file).and_then(|whole| match whole {
                    Some(all) => Ok(all),
                    None => {
                        file.rewind()?;
                        hlog::read(BufReader::new(file), |_| ())
                    }
                });
                let mut all = read.map_err(|cause| RunError::Log { path, cause })?;
                let mut latencies = all.remove(&None).unwrap_or_default();
                let (found, told) = (latencies.samples(), self.provenance.samples);
                if found == told {
                    // Where a full disk has cut it, it does not say.
                    latencies.lose(self.provenance.lost.saturating_sub(latencies.lost()));
                    self.latencies = latencies;
                    let mut of = |tag: &str| all.remove(&Some(tag.to_owned()));
                    self.times = Times::tagged(|tag| of(tag).unwrap_or_default());
                    return Ok(());
                }
                // The samples go on where a full disk, or a kill, has cut the log; or the log does.
                let is_cut = self.provenance.partial.is_some() || found < told;
                if !self.samples_path().exists() || !is_cut {
                    let reason = format!("{found} samples, and run.json says {told}");
                    let path = self.dir.join("hist.hlog");
                    return Err(RunError::BadProvenance { path, reason });
                }
            }
        }
        let Provenance { experiment, period_ns, lost, .. } = self.provenance;
        let base_ns = self.base_ns();
        let mut instants = Instants::new(period_ns.filter(|_| experiment == Experiment::Latency));
        let (mut latencies, mut times) = (Latencies::default(), Times::default());
        let mut system_max_ns = None;
        sample::each(&self.samples_path(), self.provenance.samples, |sample| {
            let value_ns = sample.value_ns.saturating_sub(base_ns);
            instants.sample(&mut latencies, sample.due_ns, value_ns);
            times.add(&sample);
            system_max_ns = system_max_ns.max(Some(sample.system_ns));
        })?;
        latencies.lose(lost.saturating_sub(latencies.lost()));
        self.system_max_ns = system_max_ns.filter(|_| experiment == Experiment::Overhead);
        (self.latencies, self.times) = (latencies, times);
        Ok(())
    }

    /// Overhead: how long an undisturbed turn takes; else 0.
    pub fn base_ns(&self) -> u64 {
        self.provenance.base_ns.map_or(0, |base| base.before_ns.min(base.after_ns))
    }

    /// Sees each sample; none where the run keeps only histograms.
    pub fn each_sample(&self, see: impl FnMut(Sample)) -> Result<(), SampleError> {
        match self.has_samples() {
            true => sample::each(&self.samples_path(), self.provenance.samples, see),
            false => Ok(()),
        }
    }

    /// All samples at once.
    pub fn samples(&self) -> Result<Vec<Sample>, SampleError> {
        sample::read(&self.samples_path(), self.provenance.samples)
    }

    /// It keeps its samples, not only their histograms.
    pub fn has_samples(&self) -> bool {
        self.samples_path().exists()
    }

    fn samples_path(&self) -> PathBuf {
        self.dir.join("samples.bin")
    }

    /// Runs of a directory: itself, or those below it, sorted by path; at most three levels, so
    /// that series may lie side by side. A directory without a run is refused, and the others are
    /// read; those whose names begin with a dot are not looked at. Errors: the directory cannot be
    /// read, or holds nothing.
    pub fn read_all(dir: &Path) -> Result<Found, RunError> {
        let mut found = Found::default();
        Self::search(dir, 3, &mut found)?;
        if !found.runs.is_empty() {
            return Ok(found);
        }
        let is_run = |error: &RunError| !matches!(error, RunError::NoRun { .. });
        let refused = found.refused.into_iter().find(is_run);
        Err(refused.unwrap_or(RunError::NoProvenance { path: dir.to_owned() }))
    }

    fn search(dir: &Path, levels: u32, found: &mut Found) -> Result<(), RunError> {
        let is_run = ["run.json", "samples.bin", "hist.hlog"];
        if is_run.iter().any(|name| dir.join(name).exists()) {
            match Self::read(dir) {
                Ok(run) => found.runs.push(run),
                Err(error) => found.refused.push(error),
            }
            return Ok(());
        }
        let io = |cause| RunError::Io { path: dir.to_owned(), cause };
        let mut below: Vec<PathBuf> = std::fs::read_dir(dir)
            .map_err(io)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()
            .map_err(io)?;
        // Hidden are what loads write to, and what a kill has left of a run that had not begun.
        let is_hidden = |path: &Path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        below.retain(|path| path.is_dir() && !is_hidden(path));
        below.sort();
        if levels == 0 || below.is_empty() {
            found.refused.push(RunError::NoRun { path: dir.to_owned() });
            return Ok(());
        }
        for dir in below {
            if let Err(error) = Self::search(&dir, levels - 1, found) {
                found.refused.push(error);
            }
        }
        Ok(())
    }

    pub fn summary(&self) -> Summary {
        Summary::of(&self.latencies)
    }

    /// `mixed/partition`, and whose times they are where that is not the task's own; of `ab`, the
    /// step.
    pub fn name(&self) -> String {
        let thread = if self.is_of_kernel_thread() { " (kernel thread)" } else { "" };
        let column = self.provenance.column.as_ref();
        let column = column.map_or_else(String::new, |column| format!(" {column}"));
        let step = self.provenance.step.as_ref();
        let step = step.map_or_else(String::new, |step| format!(" {step}"));
        format!("{}/{}{thread}{column}{step}", self.provenance.load, self.provenance.kind)
    }

    /// A thread of the kernel's was measured, no task of user space.
    pub fn is_of_kernel_thread(&self) -> bool {
        self.provenance.source == Source::TimerlatKernel
    }
}

#[cfg(test)]
pub(crate) mod tests;
