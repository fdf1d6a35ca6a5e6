// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments: a series measures each kind under each load and writes a run directory for each.
//!
//! - [`Session`] is one series: it starts loads and probes, collects, and writes;
//! - [`Conductor`] makes the settings that a kind needs (a partition, an affinity of interrupts,
//!   the kernel's tracer) and takes them back: this crate changes none itself;
//! - [`Observer`] sees the progress and may end the series;
//! - [`compare_factors`] measures a partition with and without one setting, in turn.

mod ab;
mod kept_off;
mod series;
mod subject;
mod totals;

pub use ab::{Effect, EndedEarly, Factor, Factors, compare_factors, fewest_rounds};
pub use series::{Completion, Session, once};
pub use subject::misses_timerlat;

use crate::load::{Load, LoadDir, LoadError};
use crate::run::{Experiment, Kind, RunError, Source};
use asmp_host::tracefs::timerlat;
use asmp_host::{Cpu, CpuSet, Schedule};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub enum Measurement {
    /// Wake-up latency. `source`: `None` takes timerlat where it suits, else nanosleep. `flood`:
    /// caches and TLB are dirty before each event, and events come at random.
    Latency { samples: u64, period: Duration, source: Option<Source>, flood: bool },
    /// Wake-up latency of a kernel thread, of a user thread, and of a program.
    Spaces { samples: u64, period: Duration },
    /// How long a loop takes that takes `work` when undisturbed.
    Overhead { iterations: u64, work: Duration },
}

impl Measurement {
    /// Samples of each run.
    pub const fn samples(self) -> u64 {
        match self {
            Self::Latency { samples, .. } | Self::Spaces { samples, .. } => samples,
            Self::Overhead { iterations, .. } => iterations,
        }
    }

    const fn experiment(self) -> Experiment {
        match self {
            Self::Latency { .. } | Self::Spaces { .. } => Experiment::Latency,
            Self::Overhead { .. } => Experiment::Overhead,
        }
    }

    /// Processes of a load for each CPU; the papers' k.
    const fn load_factor(self) -> u32 {
        match self {
            Self::Latency { .. } | Self::Spaces { .. } => 128,
            Self::Overhead { .. } => 16,
        }
    }

    /// `None` where instants are random or there are none.
    pub const fn period(self) -> Option<Duration> {
        match self {
            Self::Latency { period, flood: false, .. } | Self::Spaces { period, .. } => {
                Some(period)
            }
            Self::Latency { flood: true, .. } | Self::Overhead { .. } => None,
        }
    }
}

/// What holds for all runs of a series.
#[derive(Debug, Clone)]
pub struct Series {
    pub kinds: Vec<Kind>,
    pub loads: Vec<Load>,
    /// Processes of a load for each CPU; `None`: as the papers have it, as far as memory allows.
    pub load_factor: Option<u32>,
    /// The CPU that is measured.
    pub cpu: Cpu,
    /// SCHED_FIFO priority of every kind but normal.
    pub priority: u32,
    /// Samples of a run before the first that counts.
    pub warm_up: u64,
    /// An instant that was missed counts as one of the samples asked for: a run takes a known time.
    pub counts_missed: bool,
    /// Directory for the runs; must not exist.
    pub dir: PathBuf,
    /// Where loads write; `None`: beside `dir`. One that is named must be on a disk.
    pub load_dir: Option<PathBuf>,
    /// Latencies: keep each sample, not only the counts of all instants.
    pub samples_too: bool,
    /// Why the kernel's events are not to be recorded; `None` records them.
    pub no_events: Option<String>,
    /// Program that, called with `flood BYTES`, keeps that many bytes of its cache dirty.
    pub flooder: PathBuf,
    /// For the record: tool and version.
    pub tool: String,
    /// For the record.
    pub command_line: Vec<String>,
    /// For the record: this process's memory is locked.
    pub memory_locked: bool,
    /// For the record: CPUs are kept from idle states that take time to leave.
    pub cpu_latency_held: bool,
}

/// What one run needs of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    pub place: Place,
    /// Settings of timerlat, where the run takes its times from it.
    pub timerlat: Option<timerlat::Settings>,
}

/// Where the measured task runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On the machine as it is.
    Unchanged,
    /// On a machine that keeps device interrupts to these CPUs.
    IrqsKeptTo { cpus: CpuSet },
    /// In a partition of this CPU, alone.
    Partition {
        cpu: Cpu,
        /// The tick must be able to stop; else it is kept.
        tick_off: bool,
        /// Count ticks, and fail where they do not stop.
        prove_tick_off: bool,
        /// Settings that the partition does without, by name.
        without: Vec<String>,
        /// Who may use the CPU, as the conductor's partitions name it.
        mode: &'static str,
    },
}

/// An error of a [`Conductor`]: the caller who brought it knows its type.
pub type ConductorError = Box<dyn std::error::Error + Send + Sync>;

/// Makes the settings that runs need, one [`Arrangement`] at a time, and takes them back.
pub trait Conductor {
    /// Errors: this user may not change settings, or this machine has not what a partition needs.
    /// Changes nothing.
    fn may_arrange(&self) -> Result<(), ConductorError>;

    /// Refuses what cannot be arranged for `cpu` here; changes nothing.
    fn check(&self, cpu: Cpu, places: &[Place]) -> Result<(), ConductorError>;

    /// Refuses where another measurement sets what the machine has once (timerlat, the home of
    /// interrupts), and keeps others from it while this conductor lives. `timerlat`: refuses also
    /// where another program uses it, or osnoise.
    fn reserve(&self, timerlat: bool) -> Result<(), ConductorError>;

    /// Makes an arrangement whole, or leaves the machine as it was. Returns what was set, one line
    /// a setting.
    fn enter(&self, arrangement: &Arrangement) -> Result<Vec<String>, ConductorError>;

    /// Moves this thread of the calling process into the partition of the arrangement.
    fn admit(&self, tid: i32) -> Result<(), ConductorError>;

    /// Takes the arrangement back, also after a failed `enter`.
    fn leave(&self) -> Result<(), ConductorError>;
}

/// Sees a series' progress.
pub trait Observer {
    /// Ends the series early: the present run keeps what it has and is marked partial.
    fn is_stopped(&self) -> bool {
        false
    }

    /// The series has so many runs, each of so many samples.
    fn expects(&self, _runs: u64, _samples: u64) {}

    /// The processes of a load are started, which takes its time.
    fn starts(&self, _load: Load) {}

    /// So many of all processes of that load are there. Called every 100 ms.
    fn awaits(&self, _load: Load, _there: u32, _all: u32) {}

    /// A load is to write to a disk, and what it writes to keeps its files in memory.
    fn has_no_disk(&self, _load: Load, _wrote_to: &LoadDir) {}

    /// The next run begins.
    fn begins(&self, _name: &str) {}

    /// The present run has so many samples, or instants where missed ones count. Called about every
    /// 50 ms.
    fn has(&self, _samples: u64) {}

    /// A run of a series has fewer samples than asked for, for this reason.
    fn is_partial(&self, _name: &str, _reason: &str) {}

    /// The series has ended, with or without an error.
    fn ends(&self) {}
}

/// Why a series, or one run of it, failed.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The conductor refused, before anything was changed or when a run began.
    #[error("{0}")]
    Conductor(#[source] ConductorError),

    #[error("the settings of the measurement were not restored: {0}")]
    NotRestored(#[source] ConductorError),

    /// `alternative`: nanosleep would do instead.
    #[error("invalid period {period:?}: timerlat requires 100 us to 1 s in whole microseconds")]
    Period { period: Duration, alternative: bool },

    #[error("this kernel has no timerlat tracer: boot a PREEMPT_RT kernel")]
    NoTimerlat { alternative: bool },

    #[error("this kernel's timerlat has no user-space interface (timerlat_fd): boot 6.5 or newer")]
    NoUserTimerlat { alternative: bool },

    #[error("{path}: {cause}", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },

    /// Nothing is measured twice into one directory.
    #[error("{what} is named twice")]
    Twice { what: String },

    /// A load is to write to a disk there.
    #[error("{path} is on {file_system}, in memory: choose a directory on a disk",
        path = path.display())]
    NoDisk { path: PathBuf, file_system: String },

    /// The run's record was not written.
    #[error("{path}/run.json: {cause}", path = path.display())]
    Provenance {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },

    #[error(transparent)]
    Load(#[from] LoadError),

    #[error(transparent)]
    Run(#[from] RunError),

    #[error(transparent)]
    Host(#[from] asmp_host::Error),

    #[error("the probe failed: {0}")]
    Probe(#[source] io::Error),

    #[error("pin the probe to CPU {cpu}: {cause}")]
    Pin {
        cpu: Cpu,
        #[source]
        cause: io::Error,
    },

    #[error("the kernel refuses {schedule}: {cause}")]
    Schedule {
        schedule: Schedule,
        #[source]
        cause: io::Error,
    },

    /// Seen just before the run would have started the tracer.
    #[error("{users}: it began during this measurement; end that program, then measure again")]
    TracerInUse { users: String },

    #[error("the kernel started no thread timerlat/{cpu}")]
    NoKernelThread { cpu: Cpu },
}

type Result<T, E = ExperimentError> = std::result::Result<T, E>;
