// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run directory: `run.json` (what was measured, how, where) and `hist.hlog` or `samples.bin`. A
//! run whose provenance is missing, of another version or contradicts its samples is refused, never
//! guessed.
//!
//! Reading takes constant memory: what is kept of samples are their histograms.

mod write;

use crate::explain::Outlier;
use crate::histogram::Latencies;
use crate::hlog::{self, HlogError, Instants};
pub use crate::kind::Kind;
use crate::load::{Load, LoadDir, Size};
use crate::sample::{self, Sample, SampleError};
use crate::summary::Summary;
pub use crate::times::Times;
use asmp_host::limited::{MOST_BYTES, read_at_most};
use asmp_host::{Cpu, Kernel, Schedule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
pub use write::write_provenance;
pub(crate) use write::{ROOM_BYTES, release, reserve};

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
    /// Of an import: what the tool's column counted, such as `thread 1` or `Usr-003`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    pub load: Load,
    pub load_size: Size,
    pub load_commands: Vec<String>,
    /// What a load that writes wrote to; `None` of one that does not, or where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_dir: Option<LoadDir>,
    /// Caches and TLB made dirty before each event.
    pub flood: bool,
    pub machine: Machine,
    /// The probe's CPU; `None` where it was free to move.
    pub cpu: Option<Cpu>,
    /// `None` where it is not known (an import).
    pub schedule: Option<Schedule>,
    pub memory_locked: bool,
    pub cpu_latency_held: bool,
    /// Period of the instants; `None` where they are random or there are none.
    pub period_ns: Option<u64>,
    pub warm_up_samples: u64,
    /// Seconds since 1970-01-01 UTC.
    pub started_s: u64,
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
            Some(found) if !(u64::from(OLDEST_SCHEMA)..=u64::from(RUN_SCHEMA)).contains(&found) => {
                return Err(RunError::Schema { path, found });
            }
            Some(_) => {}
            None => return Err(bad("no schema number: not a run of asmp measure".to_owned())),
        }
        let mut provenance: Provenance =
            serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
        // Imports once had a policy that no file had told.
        provenance.schedule = provenance.schedule.filter(|_| provenance.source != Source::Import);
        let mut run = Self {
            dir: dir.to_owned(),
            provenance,
            latencies: Latencies::default(),
            times: Times::default(),
            system_max_ns: None,
        };
        run.count()?;
        Ok(run)
    }

    /// Fills in the histograms: from the log, else from the samples.
    fn count(&mut self) -> Result<(), RunError> {
        let path = self.dir.join("hist.hlog");
        match File::open(&path) {
            // Only the first version always had samples.bin.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && (self.provenance.schema == OLDEST_SCHEMA || self.has_samples()) => {}
            Err(cause) => return Err(RunError::Io { path, cause }),
            Ok(file) => {
                let read = hlog::read(BufReader::new(file), |_| ());
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
                // Samples that were cut off since are read as they are.
                if !self.samples_path().exists() {
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
    /// read. Errors: the directory cannot be read, or holds nothing.
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
        below.retain(|path| path.is_dir());
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

    /// `mixed/partition`, and whose times they are where that is not the task's own.
    pub fn name(&self) -> String {
        let thread = if self.is_of_kernel_thread() { " (kernel thread)" } else { "" };
        let column = self.provenance.column.as_ref();
        let column = column.map_or_else(String::new, |column| format!(" {column}"));
        format!("{}/{}{thread}{column}", self.provenance.load, self.provenance.kind)
    }

    /// A thread of the kernel's was measured, no task of user space.
    pub fn is_of_kernel_thread(&self) -> bool {
        self.provenance.source == Source::TimerlatKernel
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sample::Writer;

    /// A latency of 1 ms periods on CPU 3 of a guest.
    pub fn provenance() -> Provenance {
        let machine = Machine {
            kernel: "7.2".into(),
            kernel_version: String::new(),
            cpu_model: String::new(),
            online_cpus: "0-3".into(),
            boot_parameters: String::new(),
            hypervisor: true,
        };
        Provenance {
            schema: RUN_SCHEMA,
            tool: "test".into(),
            command_line: vec![],
            experiment: Experiment::Latency,
            kind: Kind::Partition,
            source: Source::Nanosleep,
            column: None,
            load: Load::Mixed,
            load_size: Size { per_cpu: 1, cpus: 4 },
            load_commands: vec![],
            load_dir: None,
            flood: false,
            machine,
            cpu: Some(3),
            schedule: Some(Schedule::Fifo { priority: 80 }),
            memory_locked: true,
            cpu_latency_held: true,
            period_ns: Some(1_000_000),
            warm_up_samples: 0,
            started_s: 1,
            duration_ns: 1,
            samples: 0,
            lost: 0,
            overruns: 0,
            lost_records: 0,
            partial: None,
            base_ns: None,
            not_recorded: None,
            settings: vec![],
            totals: Totals::default(),
            worst: vec![],
        }
    }

    /// Writes a run of these latencies; a late one skips the instants that it missed.
    fn write(dir: &Path, provenance: Provenance, latencies_ns: &[u64]) {
        std::fs::create_dir_all(dir).unwrap();
        let mut writer = Writer::create(&dir.join("samples.bin")).unwrap();
        let mut due_ns = 1000;
        for value_ns in latencies_ns {
            writer.push(Sample { due_ns, value_ns: *value_ns, ..Sample::default() }).unwrap();
            due_ns += 1_000_000 * (1 + value_ns.saturating_sub(1) / 1_000_000);
        }
        let samples = writer.finish().unwrap().0;
        write_provenance(dir, &Provenance { samples, ..provenance }).unwrap();
    }

    #[test]
    fn a_run_counts_the_instants_that_it_missed() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), provenance(), &[10_000, 40_000_000, 12_000]);
        let run = Run::read(dir.path()).unwrap();
        let summary = run.summary();
        assert_eq!((summary.instants, summary.samples, summary.missed), (42, 3, 39));
        assert_eq!((summary.lost, summary.max_ns), (0, Some(40_000_000)));
        assert_eq!(run.samples().unwrap().len(), 3);
        // Overhead has turns and no instants.
        let base_ns = Some(BaseTime { before_ns: 11_000, after_ns: 12_000, rounds: 1 });
        let overhead = Provenance { experiment: Experiment::Overhead, base_ns, ..provenance() };
        write(&dir.path().join("overhead"), overhead, &[10_000, 40_000_000, 12_000]);
        let run = Run::read(&dir.path().join("overhead")).unwrap();
        assert_eq!((run.latencies.instants(), run.latencies.missed()), (3, 0));
        assert_eq!(run.latencies.min_ns(), Some(0));
        assert_eq!((run.latencies.max_ns(), run.system_max_ns), (Some(39_989_000), Some(0)));
    }

    #[test]
    fn a_log_is_read_in_place_of_the_samples_if_it_has_as_many() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), provenance(), &[10_000, 12_000]);
        let log = |latencies: &Latencies| {
            let mut log = hlog::Writer::new(Vec::new(), std::time::UNIX_EPOCH).unwrap();
            log.second(0, None, latencies).unwrap();
            log.exact(None, latencies).unwrap();
            std::fs::write(dir.path().join("hist.hlog"), log.finish().unwrap()).unwrap();
        };
        let other = Latencies::of([7, 8]);
        log(&other);
        assert_eq!(Run::read(dir.path()).unwrap().latencies, other);
        log(&Latencies::of([7, 8, 9]));
        assert_eq!(Run::read(dir.path()).unwrap().latencies, Latencies::of([10_000, 12_000]));
        std::fs::remove_file(dir.path().join("samples.bin")).unwrap();
        let refused = Run::read(dir.path()).unwrap_err().to_string();
        assert!(refused.ends_with("hist.hlog: 3 samples, and run.json says 2"), "{refused}");
        std::fs::write(dir.path().join("hist.hlog"), "garbage\n").unwrap();
        assert!(matches!(Run::read(dir.path()), Err(RunError::Log { .. })));
    }

    #[test]
    fn a_run_that_lost_its_histograms_names_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let lost = |schema: u32| {
            write(dir.path(), Provenance { schema, ..provenance() }, &[5, 7]);
            assert!(Run::read(dir.path()).is_ok(), "it has its samples");
            std::fs::remove_file(dir.path().join("samples.bin")).unwrap();
            Run::read(dir.path()).unwrap_err().to_string()
        };
        for (schema, name) in [(RUN_SCHEMA, "hist.hlog"), (2, "hist.hlog"), (1, "samples.bin")] {
            let refused = lost(schema);
            assert!(refused.contains(&format!("{name}: No such file")), "{schema}: {refused}");
        }
    }

    #[test]
    fn an_import_has_no_policy_though_an_older_one_wrote_one() {
        let read = |source: Source, schedule: Option<Schedule>| {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), Provenance { source, schedule, ..provenance() }, &[5]);
            Run::read(dir.path()).unwrap().provenance.schedule
        };
        let other = Some(Schedule::Other { nice: 0 });
        assert_eq!(read(Source::Import, other), None);
        assert_eq!(read(Source::Import, None), None);
        assert_eq!(read(Source::Nanosleep, other), other);
    }

    #[test]
    fn a_run_of_the_first_version_is_read() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), Provenance { schema: 1, ..provenance() }, &[5, 7]);
        assert!(!std::fs::read_to_string(dir.path().join("run.json")).unwrap().contains("column"));
        assert_eq!(Run::read(dir.path()).unwrap().latencies, Latencies::of([5, 7]));
        let newer = Provenance { schema: RUN_SCHEMA + 1, ..provenance() };
        write_provenance(dir.path(), &newer).unwrap();
        let refused = Run::read(dir.path()).unwrap_err();
        assert!(matches!(refused, RunError::Schema { found: 4, .. }));
        assert!(refused.to_string().contains("schema 4, but this asmp reads 1 to 3"), "{refused}");
    }

    #[test]
    fn a_run_that_has_the_papers_names_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("MIX-Aoff");
        write(&at, Provenance { schema: 2, ..provenance() }, &[5, 7]);
        let text = std::fs::read_to_string(at.join("run.json")).unwrap();
        let old = text.replace("\"partition\"", "\"Aoff\"").replace("\"mixed\"", "\"MIX\"");
        assert_ne!(old, text);
        std::fs::write(at.join("run.json"), old).unwrap();
        let [run] = Run::read_all(dir.path()).unwrap().runs.try_into().unwrap();
        assert_eq!(run.name(), "mixed/partition");
        assert_eq!(run.latencies, Latencies::of([5, 7]));
    }

    #[test]
    fn what_is_no_run_is_named_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write(&at("first/mixed-partition"), provenance(), &[1]);
        write(&at("second/mixed-partition"), provenance(), &[2]);
        write(&at("second/killed"), provenance(), &[2]);
        std::fs::remove_file(at("second/killed/run.json")).unwrap();
        std::fs::create_dir(at("notes")).unwrap();
        let found = Run::read_all(dir.path()).unwrap();
        assert_eq!(found.runs.len(), 2);
        let refused: Vec<String> = found.refused.iter().map(ToString::to_string).collect();
        assert!(refused[0].contains("notes holds no run"), "{refused:?}");
        assert!(refused[1].contains("second/killed is not a run"), "{refused:?}");
        assert!(matches!(Run::read_all(&at("notes")), Err(RunError::NoProvenance { .. })));
        assert!(matches!(Run::read_all(&at("second/killed")), Err(RunError::NoProvenance { .. })));
        assert!(matches!(Run::read_all(&at("nothing")), Err(RunError::Io { .. })));
    }
}
