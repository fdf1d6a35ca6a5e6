// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A series: each load, under it each kind, each of them one run directory.
//!
//! The probe is a thread of this process, alone in its partition; the rest of the process collects
//! on system CPUs. The conductor takes the arrangement of a run back, also where the run fails.

use super::kept_off::KeptOff;
use super::subject::{self, Ready};
use super::totals::{Counters, totals};
use super::{
    Arrangement, Conductor, ExperimentError, Measurement, Observer, Place, Result, Series,
};
use crate::collect::{Collected, Reached, Sink, collect};
use crate::explain::Window;
use crate::load::{self, Load, LoadDir, LoadError, Running, Size};
use crate::probe::{Probe, Raw, Work, calibrate};
use crate::run::{
    self, BaseTime, Experiment, Kind, Machine, Provenance, RUN_SCHEMA, Source, Step, Totals,
    UNFINISHED,
};
use crate::scratch;
use asmp_host::{Cpu, CpuSet, Facts, Kernel, Schedule, clock, task};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One run: a kind, and where its record goes.
#[derive(Debug, Clone)]
pub struct Case {
    pub kind: Kind,
    /// Who takes the times, and so who is measured.
    pub source: Source,
    /// Settings that its partition does without.
    pub without: Vec<String>,
    /// What `ab` tries by it.
    pub step: Option<Step>,
    /// Name below the directory of the series.
    pub name: String,
}

/// How a series ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Every run has all its samples.
    Complete,
    /// At least one run has fewer samples than asked for.
    Partial,
    /// The observer ended it.
    Stopped,
}

/// One series, ready to run.
pub struct Session<'a> {
    pub(super) kernel: &'a dyn Kernel,
    pub(super) conductor: &'a dyn Conductor,
    pub(super) observer: &'a dyn Observer,
    pub(super) measurement: Measurement,
    pub(super) series: &'a Series,
    online: CpuSet,
    /// Those that a load can use.
    load_cpus: CpuSet,
    /// The tick of the measured CPU may stop in this boot.
    pub(super) candidate: bool,
    /// Each kind is measured with each of them.
    pub(super) sources: Vec<Source>,
    /// Below it loads write.
    load_dir: PathBuf,
    /// What makes the loads, by its own words.
    load_tool: Option<String>,
    size: Size,
    /// Rounds of the loop that take the work's time; 0 where no loop is measured.
    rounds: u64,
}

impl<'a> Session<'a> {
    /// Refuses what cannot be measured here before anything is changed; makes the directory.
    pub fn new(
        kernel: &'a dyn Kernel,
        conductor: &'a dyn Conductor,
        observer: &'a dyn Observer,
        measurement: Measurement,
        series: &'a Series,
    ) -> Result<Self> {
        once(&series.kinds)?;
        once(&series.loads)?;
        let facts = Facts::read(kernel)?;
        let may_arrange = conductor.may_arrange();
        let sources = subject::sources(kernel, measurement, series.cpu, may_arrange.is_ok())?;
        let places: Vec<Place> = series
            .kinds
            .iter()
            .map(|kind| place(*kind, series.cpu, &facts.cpus.online, &[]))
            .collect();
        let timerlat = sources.iter().any(|source| subject::handler(*source).is_some());
        let needs_nothing = !timerlat
            && matches!(measurement, Measurement::Latency { .. })
            && places.iter().all(|place| *place == Place::Unchanged);
        // What would be refused after an hour of other runs is refused before the first.
        match may_arrange {
            Err(_) if needs_nothing => {}
            may => may
                .and_then(|()| conductor.check(series.cpu, &places))
                .map_err(ExperimentError::Conductor)?,
        }
        if timerlat || places.iter().any(|place| matches!(place, Place::IrqsKeptTo { .. })) {
            conductor.reserve(timerlat).map_err(ExperimentError::Conductor)?;
        }
        let loads = series.loads.iter().any(|load| *load != Load::Idle);
        // One that is ended meanwhile has no run: it ends before its first load.
        let goes_on = || !observer.is_stopped();
        let load_tool = if loads { load::version(goes_on)? } else { None };
        let load_dir = load_dir(kernel, series)?;
        let load_cpus = load_cpus(&facts, series.cpu);
        let cpus = load_cpus.len() as u32;
        let wanted = series.load_factor.unwrap_or(measurement.load_factor());
        let rounds = match measurement {
            Measurement::Overhead { work, .. } => calibrate(work.as_nanos() as u64),
            Measurement::Latency { .. } | Measurement::Spaces { .. } => 0,
        };
        std::fs::create_dir(&series.dir)
            .map_err(|cause| ExperimentError::File { path: series.dir.clone(), cause })?;
        Ok(Self {
            kernel,
            conductor,
            observer,
            measurement,
            series,
            candidate: facts.cpus.nohz_full.contains(series.cpu),
            online: facts.cpus.online,
            load_cpus,
            sources,
            load_dir,
            load_tool,
            size: Size { per_cpu: load::bounded(wanted, cpus, free_memory(kernel)), cpus },
            rounds,
        })
    }
}

/// A series that has measured nothing leaves no directory, and its name is free.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        // One that holds anything stays.
        let _ = std::fs::remove_dir(&self.series.dir);
    }
}

/// Refuses what is named twice: its runs would have one directory.
pub fn once<T: PartialEq + std::fmt::Display>(all: &[T]) -> Result<()> {
    let twice = all.iter().enumerate().find(|(at, one)| all[..*at].contains(one));
    twice.map_or(Ok(()), |(_, one)| Err(ExperimentError::Twice { what: one.to_string() }))
}

/// CPUs where a load runs: those that are online and not isolated. The kernel refuses to put a task
/// of another group onto a partition's CPU (EINVAL). The measured CPU stays: it must have the load.
fn load_cpus(facts: &Facts, measured: Cpu) -> CpuSet {
    let isolated = facts.cgroups.isolated.clone().unwrap_or_default();
    facts.cpus.online.difference(&isolated.difference(&CpuSet::from_iter([measured])))
}

/// Where loads write: beside the runs, where no other place is named. Removes what killed
/// measurements have left there.
fn load_dir(kernel: &dyn Kernel, series: &Series) -> Result<PathBuf> {
    let beside = || match series.dir.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let dir = series.load_dir.clone().unwrap_or_else(beside);
    if series.load_dir.is_some() {
        let about = LoadDir::of(&dir)
            .map_err(|cause| ExperimentError::File { path: dir.clone(), cause })?;
        if about.is_memory() && series.loads.iter().any(|load| load.writes()) {
            let file_system = about.file_system;
            return Err(ExperimentError::NoDisk { path: dir, file_system });
        }
    }
    scratch::sweep(kernel, &dir);
    Ok(dir)
}

/// Where a task of that kind runs.
pub(super) fn place(kind: Kind, cpu: Cpu, online: &CpuSet, without: &[String]) -> Place {
    let here = CpuSet::from_iter([cpu]);
    match kind {
        Kind::Normal => Place::Unchanged,
        Kind::FifoIrq => Place::IrqsKeptTo { cpus: here },
        Kind::Fifo => Place::IrqsKeptTo { cpus: online.difference(&here) },
        Kind::PartitionTick | Kind::Partition | Kind::Shared | Kind::BestEffort => {
            Place::Partition {
                cpu,
                tick_off: kind == Kind::Partition,
                prove_tick_off: kind == Kind::Partition && without.is_empty(),
                without: without.to_vec(),
                mode: match kind {
                    Kind::Shared => "shared",
                    Kind::BestEffort => "best-effort",
                    _ => "isolated",
                },
            }
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn free_memory(kernel: &dyn Kernel) -> u64 {
    let text = kernel.text(Path::new("/proc/meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    kib * 1024
}

impl Session<'_> {
    /// Measures every kind under every load.
    pub fn run(&self) -> Result<Completion> {
        let runs = self.series.loads.len() * self.series.kinds.len() * self.sources.len();
        self.observer.expects(runs as u64, self.measurement.samples());
        let completion = self.each_load();
        self.observer.ends();
        completion
    }

    fn each_load(&self) -> Result<Completion> {
        let mut completion = Completion::Complete;
        for load in &self.series.loads {
            let before = self.base()?;
            let Some(mut running) = self.start(*load)? else { return Ok(Completion::Stopped) };
            let mut done: Vec<(PathBuf, Provenance)> = Vec::new();
            for case in self.cases(*load) {
                if self.stopped() {
                    break;
                }
                let (dir, provenance) = self.one(*load, &case, before, &mut running)?;
                if let Some(reason) = &provenance.partial {
                    self.observer.is_partial(&case.name, reason);
                    completion = Completion::Partial;
                }
                done.push((dir, provenance));
            }
            drop(running);
            // The undisturbed time again: what differs is the machine's, not the load's.
            if let (Some(before), Some(after)) =
                (before, if self.stopped() { None } else { self.base()? })
            {
                for (dir, mut provenance) in done {
                    provenance.base_ns = Some(BaseTime { after_ns: after.before_ns, ..before });
                    self.write(&dir, &provenance)?;
                }
            }
            if self.stopped() {
                return Ok(Completion::Stopped);
            }
        }
        Ok(completion)
    }

    pub(super) const fn online(&self) -> &CpuSet {
        &self.online
    }

    fn write(&self, dir: &Path, provenance: &Provenance) -> Result<()> {
        run::write_provenance(dir, provenance)
            .map_err(|cause| ExperimentError::Provenance { path: dir.to_owned(), cause })
    }

    /// What is measured under one load: each kind by each source.
    fn cases(&self, load: Load) -> Vec<Case> {
        let case = |kind: Kind, source: Source| {
            let name = match self.measurement {
                Measurement::Spaces { .. } => format!("{load}-{kind}-{}", subject::name(source)),
                Measurement::Latency { .. } | Measurement::Overhead { .. } => {
                    format!("{load}-{kind}")
                }
            };
            Case { kind, source, without: Vec::new(), step: None, name }
        };
        let kinds = self.series.kinds.iter();
        kinds.flat_map(|kind| self.sources.iter().map(move |source| case(*kind, *source))).collect()
    }

    /// A load that runs, with all its processes there. `None`: the observer ended the series.
    pub(super) fn start(&self, load: Load) -> Result<Option<Running>> {
        if self.stopped() {
            return Ok(None);
        }
        if load != Load::Idle {
            self.observer.starts(load);
        }
        let goes_on = |there, all| {
            self.observer.awaits(load, there, all);
            !self.stopped()
        };
        let started = Running::start(self.kernel, load, self.size, &self.load_dir, goes_on)?;
        let Some(mut running) = started.filter(|_| !self.stopped()) else { return Ok(None) };
        if let Some(dir) = running.load_dir.as_ref().filter(|dir| dir.is_memory()) {
            self.observer.has_no_disk(load, dir);
        }
        if load == Load::Cache {
            let (program, cpu) = (&self.series.flooder, self.series.cpu);
            running.flood(self.kernel, program, &self.load_cpus, cpu, self.flood_bytes())?;
        }
        Ok(Some(running))
    }

    pub(super) fn stopped(&self) -> bool {
        self.observer.is_stopped()
    }

    /// Overhead: the fastest of some undisturbed turns. `None` of others, and where the observer
    /// ends the series meanwhile.
    fn base(&self) -> Result<Option<BaseTime>> {
        let Measurement::Overhead { iterations, .. } = self.measurement else { return Ok(None) };
        let turns = iterations.clamp(3, 20);
        let work = Work::Compute { rounds: self.rounds };
        let probe = Probe::spawn(work, turns, 1, false).map_err(ExperimentError::Probe)?;
        self.pin(&probe)?;
        let _kept_off = KeptOff::new(self.kernel, self.series.cpu, &self.online);
        probe.start();
        while !probe.is_done() {
            if self.stopped() {
                probe.stop();
            }
            if probe.is_stuck() {
                self.free(probe.tid);
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.stopped() {
            return Ok(None);
        }
        let (mut ring, _) = probe.join().map_err(ExperimentError::Probe)?;
        let turn = |raw: Raw| raw.end_ns.saturating_sub(raw.due_ns);
        let fastest = std::iter::from_fn(|| ring.pop().ok()).map(turn).min();
        let fastest = fastest.unwrap_or(0);
        Ok(Some(BaseTime { before_ns: fastest, after_ns: fastest, rounds: self.rounds }))
    }

    /// Gives a probe that has no CPU to end on all others, as far as its group has them: this
    /// process ends when its last thread does.
    fn free(&self, tid: i32) {
        let _ = self.kernel.set_affinity(tid, &self.online);
    }

    /// Pins the probe to the measured CPU as a real-time task.
    pub(super) fn pin(&self, probe: &Probe) -> Result<()> {
        let cpu = self.series.cpu;
        self.kernel
            .set_affinity(probe.tid, &CpuSet::from_iter([cpu]))
            .map_err(|cause| ExperimentError::Pin { cpu, cause })?;
        self.schedule(probe.tid, Kind::Fifo)
    }

    pub(super) fn schedule(&self, tid: i32, kind: Kind) -> Result<()> {
        let schedule = self.schedule_of(kind);
        self.kernel
            .set_schedule(tid, &schedule)
            .map_err(|cause| ExperimentError::Schedule { schedule, cause })
    }

    const fn schedule_of(&self, kind: Kind) -> Schedule {
        match kind {
            Kind::Normal => Schedule::Other { nice: 0 },
            _ => Schedule::Fifo { priority: self.series.priority },
        }
    }

    pub(super) fn work(&self, source: Source) -> Work {
        match (self.measurement, source) {
            (Measurement::Overhead { .. }, _) => Work::Compute { rounds: self.rounds },
            (_, Source::Timerlat) => Work::timerlat(self.series.cpu),
            (Measurement::Latency { flood: true, .. }, _) => {
                Work::Flood { bytes: self.flood_bytes(), seed: clock::monotonic_ns() }
            }
            (Measurement::Latency { period, .. } | Measurement::Spaces { period, .. }, _) => {
                let period_ns = period.as_nanos() as u64;
                Work::Periodic { period_ns, counts_missed: self.series.counts_missed }
            }
        }
    }

    fn period_ns(&self) -> Option<u64> {
        self.measurement.period().map(|period| period.as_nanos() as u64)
    }

    /// Twice the second-level cache, and more pages than any TLB holds.
    fn flood_bytes(&self) -> usize {
        let path = format!("/sys/devices/system/cpu/cpu{}/cache/index2/size", self.series.cpu);
        let text = self.kernel.text(Path::new(&path)).unwrap_or_default();
        let kib: usize = text.trim_end_matches('K').parse().unwrap_or(1024);
        (2 * kib * 1024).max(16 << 20)
    }

    /// One run: arrange, measure, take the arrangement back, write the record. What was measured is
    /// kept also where the arrangement stays. `base_ns`: of an overhead.
    pub(super) fn one(
        &self,
        load: Load,
        case: &Case,
        base_ns: Option<BaseTime>,
        running: &mut Running,
    ) -> Result<(PathBuf, Provenance)> {
        let dir = self.series.dir.join(&case.name);
        let arrangement = Arrangement {
            place: place(case.kind, self.series.cpu, &self.online, &case.without),
            timerlat: self.timerlat_settings(case.source),
        };
        let entered = self.conductor.enter(&arrangement).map_err(ExperimentError::Conductor);
        let measured =
            entered.and_then(|settings| self.measure(load, case, &dir, base_ns, running, settings));
        let left = self.conductor.leave().map_err(ExperimentError::NotRestored);
        let written = measured.and_then(|provenance| {
            self.write(&dir, &provenance)?;
            Ok(provenance)
        });
        if written.is_err() {
            run::release(&dir);
        }
        // That the machine is not as it was matters more than why the run failed.
        left?;
        Ok((dir, written?))
    }

    fn measure(
        &self,
        load: Load,
        case: &Case,
        dir: &Path,
        base_ns: Option<BaseTime>,
        running: &mut Running,
        settings: Vec<String>,
    ) -> Result<Provenance> {
        let kind = case.kind;
        let file = |cause| ExperimentError::File { path: dir.to_owned(), cause };
        let Ready { subject, mut origin, bound, not_recorded } = self.ready(case)?;
        // The kernel's thread goes with its tracer, which others may end.
        let proc =
            (case.source == Source::TimerlatKernel).then(|| format!("/proc/{}", subject.tid()));
        let window = match self.measurement.experiment() {
            Experiment::Latency => Window::Wake,
            Experiment::Overhead => Window::Turn,
        };
        let mut provenance = Provenance {
            schema: RUN_SCHEMA,
            tool: self.series.tool.clone(),
            command_line: self.series.command_line.clone(),
            experiment: self.measurement.experiment(),
            kind,
            source: case.source,
            column: None,
            step: case.step.clone(),
            load,
            load_size: self.size,
            load_commands: running.commands.clone(),
            load_tool: self.load_tool.clone().filter(|_| load != Load::Idle),
            load_dir: running.load_dir.clone(),
            flood: Some(matches!(self.measurement, Measurement::Latency { flood: true, .. })),
            machine: Machine::read(self.kernel),
            cpu: bound.then_some(self.series.cpu),
            // What it has: an ordinary task keeps the policy and nice value of its parent.
            schedule: self.kernel.schedule(subject.tid()).ok(),
            memory_locked: Some(self.series.memory_locked),
            cpu_latency_held: Some(self.series.cpu_latency_held),
            period_ns: self.period_ns(),
            warm_up_samples: self.series.warm_up,
            started_s: seconds(SystemTime::now()),
            duration_ns: 0,
            samples: 0,
            lost: 0,
            overruns: 0,
            lost_records: 0,
            partial: Some(UNFINISHED.to_owned()),
            work_ns: match self.measurement {
                Measurement::Overhead { work, .. } => Some(work.as_nanos() as u64),
                Measurement::Latency { .. } | Measurement::Spaces { .. } => None,
            },
            base_ns,
            not_recorded,
            settings,
            totals: Totals::default(),
            worst: Vec::new(),
        };
        // A kill from here on leaves a run, and one before leaves none.
        let begun = run::begin(dir, &provenance).map_err(file)?;
        let sink = match self.measurement.experiment() {
            Experiment::Latency => Sink::of_latency(dir, self.period_ns(), self.series.samples_too),
            Experiment::Overhead => Sink::of_turns(dir),
        };
        let sink = sink.map_err(file)?;
        // A partition moves the flooder to the collector's CPUs: there it stays an ordinary task.
        if !matches!(kind, Kind::PartitionTick | Kind::Partition) {
            running.press(self.kernel).map_err(|cause| LoadError::NotStarted {
                load,
                cause: format!("the flooder's nice value: {cause}"),
            })?;
        }
        self.observer.begins(&case.name);
        let tid = subject.tid();
        let kept_off = bound.then(|| KeptOff::new(self.kernel, self.series.cpu, &self.online));
        let (mut before, mut after) = (Counters::read(self.kernel, self.series.cpu), None);
        let collected = collect(subject, &mut origin, window, sink, |reached| {
            if reached.samples == 0 {
                before = Counters::read(self.kernel, self.series.cpu);
            }
            if reached.is_over {
                after = Some(Counters::read(self.kernel, self.series.cpu));
            }
            if bound && let Some(reason) = self.left_its_cpu(tid, reached) {
                return Err(reason);
            }
            if reached.is_over {
                return Ok(());
            }
            self.observer.has(self.reached(reached));
            if self.stopped() {
                return Err("interrupted".to_owned());
            }
            if proc.as_ref().is_some_and(|path| !self.kernel.exists(Path::new(path))) {
                return Err(
                    "the kernel's timerlat thread is gone: does another tool use the tracer?"
                        .to_owned(),
                );
            }
            running.check().map_err(|error| error.to_string())
        });
        drop(kept_off);
        running.ease(self.kernel);
        let collected = collected.map_err(ExperimentError::Probe)?;
        begun.keep();
        if let Some(tid) = collected.stuck {
            self.free(tid);
        }
        if let Some(after) = after.filter(|_| bound) {
            provenance.totals = totals(before, after, self.series.cpu);
        }
        Ok(self.ended(provenance, collected))
    }

    /// The record of a run that has ended.
    fn ended(&self, begun: Provenance, collected: Collected) -> Provenance {
        let Collected {
            ended, samples, lost_records, worst, partial, started, duration_ns, ..
        } = collected;
        let missed = if self.series.counts_missed { ended.overruns } else { 0 };
        // Of timerlat the probe does not see each sample: the tracer's last ones may be missing.
        let is_short = samples.saturating_add(missed) < self.measurement.samples();
        let too_few = is_short.then(|| format!("{samples} samples"));
        Provenance {
            started_s: started.map_or(begun.started_s, seconds),
            duration_ns,
            samples,
            lost: ended.lost,
            overruns: ended.overruns,
            lost_records,
            partial: partial.or(too_few),
            worst,
            ..begun
        }
    }

    /// What counts of the samples that were asked for.
    const fn reached(&self, reached: Reached) -> u64 {
        let missed = if self.series.counts_missed { reached.missed } else { 0 };
        reached.samples.saturating_add(missed)
    }

    /// Why the samples of a task that is bound to the CPU are not, or no longer, that CPU's: the
    /// kernel moves tasks from one that goes offline.
    fn left_its_cpu(&self, tid: i32, reached: Reached) -> Option<String> {
        let cpu = self.series.cpu;
        let text = self.kernel.text(Path::new("/sys/devices/system/cpu/online"));
        let online = text.ok().and_then(|text| text.parse::<CpuSet>().ok());
        if online.is_some_and(|online| !online.contains(cpu)) {
            return Some(format!("CPU {cpu} went offline"));
        }
        // Before its first sample it may not have run there yet.
        let now = task::last_cpu(self.kernel, tid).filter(|_| reached.samples > 0);
        let has_left = now.is_some_and(|now| now != cpu);
        has_left.then(|| format!("the probe left CPU {cpu}: that went offline meanwhile"))
    }
}

#[cfg(test)]
mod tests;
