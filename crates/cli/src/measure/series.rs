//! latency and overhead: each load, under it each kind, each of them one run directory.
//!
//! The shield sets what a kind needs and takes it back whatever happens: a partition for Aon and Aoff, the
//! device interrupts kept to (Rw) or away from (Rb) the CPU. The probe is a thread of this process, alone in
//! its partition; the rest of the process collects on system CPUs.

use super::subject::{self, Ready};
use crate::args::{Series, Shape, TimeSource};
use crate::change::{caller, changer};
use crate::exit::{BAD_FILE, PARTIAL, UNEXPECTED, failure};
use anyhow::{Context, Result};
use asmp_host::{Cpu, CpuSet, CpuSpec, Facts, Kernel, Schedule, clock, counters, task};
use asmp_measure::collect::{Collected, collect};
use asmp_measure::explain::Window;
use asmp_measure::load::{self, Load, Running, Size};
use asmp_measure::probe::{Probe, Task, calibrate};
use asmp_measure::run::{self, Experiment, Kind, Machine, Provenance, RUN_SCHEMA, Run, Source, Totals};
use asmp_measure::sample::Writer;
use asmp_measure::{report, run::Base as BaseTime, spaces};
use asmp_shield::{Action, Aspect, ChangeError, Plan, Refusal, Request, Shield, System, Tick};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub enum What {
    Latency {
        samples: u64,
        period: Duration,
        source: Option<TimeSource>,
        flood: bool,
    },
    /// Latency of a kernel thread, of a user thread, and of a program.
    Spaces {
        samples: u64,
        period: Duration,
    },
    Overhead {
        iterations: u64,
        work: Duration,
    },
}

impl What {
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

    /// The papers' k.
    const fn load_factor(self) -> u32 {
        match self {
            Self::Latency { .. } | Self::Spaces { .. } => 128,
            Self::Overhead { .. } => 16,
        }
    }

    /// `None` where instants are random or there are none.
    pub const fn period(self) -> Option<Duration> {
        match self {
            Self::Latency { period, flood: false, .. } | Self::Spaces { period, .. } => Some(period),
            Self::Latency { flood: true, .. } | Self::Overhead { .. } => None,
        }
    }
}

/// One run: a kind, and where its record goes.
#[derive(Debug, Clone)]
pub struct Case {
    pub kind: Kind,
    /// Who takes the times, and so who is measured.
    pub source: Source,
    /// Steps of the plan that its partition does without.
    pub without: Vec<Aspect>,
    /// Name below the directory of the series.
    pub name: String,
}

/// Everything that stays the same over one series.
pub struct Plant<'a> {
    pub shield: &'a Shield,
    pub kernel: &'a dyn Kernel,
    pub what: What,
    pub series: &'a Series,
    pub cpu: Cpu,
    online: CpuSet,
    pub candidates: CpuSet,
    /// Each kind is measured with each of them.
    pub sources: Vec<Source>,
    pub size: Size,
    pub dir: PathBuf,
    /// Set by a signal: end, keep what there is, undo. Relaxed: only a hint, nothing else hangs on it.
    stop: Arc<AtomicBool>,
    memory_locked: bool,
    /// While it is open no CPU dozes off.
    no_deep_sleep: Option<File>,
    rounds: u64,
}

/// Measures every kind under every load. Exit code: 0, or of the first run that is partial.
pub fn measure(shield: &Shield, series: &Series, what: What) -> Result<u8> {
    let plant = Plant::new(shield, series, what)?;
    let code = plant.all()?;
    let runs = Run::read_all(&plant.dir)?;
    let rows = report::rows(&runs);
    print!("{}{}", report::text(&rows), spaces::text(&spaces::spaces(&runs)));
    let loads = series.loads.iter().map(ToString::to_string);
    loads.filter_map(|load| report::ratios(&rows, &load)).for_each(|line| print!("{line}"));
    if series.explain > 0 {
        for run in &runs {
            print!("\n{}\n{}", run.name(), report::explain(run, series.explain));
        }
    }
    println!("runs in {}; figures: asmp measure report {0} -o report.html", plant.dir.display());
    Ok(code)
}

impl<'a> Plant<'a> {
    /// Refuses what cannot be measured here before anything is changed; makes the directory.
    pub fn new(shield: &'a Shield, series: &'a Series, what: What) -> Result<Self> {
        let kernel = shield.kernel();
        let facts = Facts::read(kernel)?;
        changer(kernel)?;
        let cpu = one_cpu(&facts, &series.cpu)?;
        let sources = subject::sources(kernel, what, cpu)?;
        refuse_early(shield, series, cpu)?;
        let dir = series
            .output
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("measure-{}", caller(kernel).time_s)));
        std::fs::create_dir(&dir)
            .map_err(|error| failure(BAD_FILE, format!("{}: {error}", dir.display())))?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let cpus = facts.cpus.online.len() as u32;
        let wanted = series.load_factor.unwrap_or(what.load_factor());
        Ok(Self {
            shield,
            kernel,
            what,
            series,
            cpu,
            online: facts.cpus.online,
            candidates: facts.cpus.nohz_full,
            sources,
            size: Size { per_cpu: load::bounded(wanted, cpus, free_memory(kernel)), cpus },
            dir,
            stop,
            memory_locked: clock::lock_memory().is_ok(),
            no_deep_sleep: clock::hold_cpu_latency().ok(),
            rounds: match what {
                What::Overhead { work, .. } => calibrate(work.as_nanos() as u64),
                What::Latency { .. } | What::Spaces { .. } => 0,
            },
        })
    }
}

fn one_cpu(facts: &Facts, spec: &CpuSpec) -> Result<Cpu> {
    let cpus = spec.resolve(&facts.cpus.online);
    let unknown = cpus.difference(&facts.cpus.possible);
    if !unknown.is_empty() {
        return Err(Refusal::UnknownCpus { cpus: unknown, possible: facts.cpus.possible.clone() }.into());
    }
    let offline = cpus.difference(&facts.cpus.online);
    if !offline.is_empty() {
        return Err(Refusal::OfflineCpus { cpus: offline, online: facts.cpus.online.clone() }.into());
    }
    match (cpus.len(), cpus.iter().next()) {
        (1, Some(cpu)) => Ok(cpu),
        _ => Err(failure(crate::exit::USAGE, format!("--cpu {cpus}: one CPU is measured at a time"))),
    }
}

/// What would be refused after an hour of other runs is refused before the first.
fn refuse_early(shield: &Shield, series: &Series, cpu: Cpu) -> Result<()> {
    let state = shield.state()?;
    if let Some(owner) = state.partitions.iter().find(|partition| partition.shielded().contains(cpu)) {
        let (cpus, owner) = (CpuSet::from_iter([cpu]), owner.name.clone());
        return Err(Refusal::TakenCpus { cpus, owner }.into());
    }
    for kind in series.kinds.iter().filter(|kind| matches!(kind, Kind::Aon | Kind::Aoff)) {
        let spec = shape(*kind, cpu, &[]).into();
        let request = Request::Run { name: "measure".to_owned(), spec, owner: None };
        shield.plan(&request, &caller(shield.kernel()))?;
    }
    let loads = series.loads.iter().any(|load| *load != Load::Idl);
    if loads && std::process::Command::new("stress-ng").arg("--version").output().is_err() {
        return Err(load::LoadError::NoTool.into());
    }
    Ok(())
}

fn shape(kind: Kind, cpu: Cpu, without: &[Aspect]) -> Shape {
    Shape {
        cpus: CpuSpec::List(CpuSet::from_iter([cpu])),
        irqs: Vec::new(),
        irq_priority: None,
        // What is tried without a step of the plan may tick for it.
        tick: match kind {
            Kind::Aoff if without.is_empty() => Tick::RequireOff,
            Kind::Aoff => Tick::Off,
            _ => Tick::Keep,
        },
        smt: asmp_shield::Smt::Idle,
        strict: false,
        without: without.to_vec(),
    }
}

fn free_memory(kernel: &dyn Kernel) -> u64 {
    let text = kernel.text(Path::new("/proc/meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    kib * 1024
}

impl Plant<'_> {
    fn all(&self) -> Result<u8> {
        let mut code = 0;
        for load in &self.series.loads {
            let before = self.base()?;
            let mut running = self.start(*load)?;
            let mut done: Vec<(PathBuf, Provenance)> = Vec::new();
            for case in self.cases(*load) {
                if self.stopped() {
                    break;
                }
                let (dir, mut provenance) = self.one(*load, &case, &mut running)?;
                if let Some(reason) = &provenance.partial {
                    eprintln!("asmp: {} is partial: {reason}", case.name);
                    code = if self.stopped() { 130 } else { PARTIAL };
                }
                provenance.base_ns = before;
                run::write_provenance(&dir, &provenance)?;
                done.push((dir, provenance));
            }
            drop(running);
            // The undisturbed time again: what differs is the machine's, not the load's.
            if let (Some(before), Some(after)) = (before, if self.stopped() { None } else { self.base()? }) {
                for (dir, mut provenance) in done {
                    provenance.base_ns = Some(BaseTime { after_ns: after.before_ns, ..before });
                    run::write_provenance(&dir, &provenance)?;
                }
            }
            if self.stopped() {
                return Ok(130);
            }
        }
        Ok(code)
    }

    /// What is measured under one load: each kind by each source.
    fn cases(&self, load: Load) -> Vec<Case> {
        let case = |kind: Kind, source: Source| {
            let name = match self.what {
                What::Spaces { .. } => format!("{load}-{kind}-{}", subject::place(source)),
                What::Latency { .. } | What::Overhead { .. } => format!("{load}-{kind}"),
            };
            Case { kind, source, without: Vec::new(), name }
        };
        let kinds = self.series.kinds.iter();
        kinds.flat_map(|kind| self.sources.iter().map(move |source| case(*kind, *source))).collect()
    }

    /// A load that runs, with all its processes there.
    pub fn start(&self, load: Load) -> Result<Running> {
        let mut running = Running::start(self.kernel, load, self.size)?;
        if load == Load::Flood {
            let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
            running.flood(self.kernel, &own, &self.online, self.cpu, self.flood_bytes())?;
        }
        Ok(running)
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Overhead: the fastest of some undisturbed turns.
    fn base(&self) -> Result<Option<BaseTime>> {
        let What::Overhead { iterations, .. } = self.what else { return Ok(None) };
        let turns = iterations.clamp(3, 20);
        let probe = Probe::spawn(Task::Compute { rounds: self.rounds }, turns, 1, false)?;
        self.pin(&probe)?;
        probe.start();
        let (mut ring, _) = probe.join()?;
        let fastest = std::iter::from_fn(|| ring.pop().ok()).map(|raw| raw.end_ns - raw.due_ns).min();
        let fastest = fastest.unwrap_or(0);
        Ok(Some(BaseTime { before_ns: fastest, after_ns: fastest, rounds: self.rounds }))
    }

    pub fn pin(&self, probe: &Probe) -> Result<()> {
        self.kernel
            .set_affinity(probe.tid, &CpuSet::from_iter([self.cpu]))
            .with_context(|| format!("pin the probe to CPU {}", self.cpu))?;
        self.schedule(probe.tid, Kind::Rb)
    }

    pub fn schedule(&self, tid: i32, kind: Kind) -> Result<()> {
        let schedule = self.schedule_of(kind);
        self.kernel.set_schedule(tid, &schedule).with_context(|| format!("the kernel refuses {schedule}"))
    }

    const fn schedule_of(&self, kind: Kind) -> Schedule {
        match kind {
            Kind::N => Schedule::Other { nice: 0 },
            _ => Schedule::Fifo { priority: self.series.priority },
        }
    }

    pub fn task(&self, source: Source) -> Task {
        match (self.what, source) {
            (What::Overhead { .. }, _) => Task::Compute { rounds: self.rounds },
            (_, Source::Timerlat) => Task::timerlat(self.cpu),
            (What::Latency { flood: true, .. }, _) => {
                Task::Flood { bytes: self.flood_bytes(), seed: clock::monotonic_ns() }
            }
            (What::Latency { period, .. } | What::Spaces { period, .. }, _) => {
                Task::Periodic { period_ns: period.as_nanos() as u64 }
            }
        }
    }

    /// Twice the second-level cache, and more pages than any TLB holds.
    fn flood_bytes(&self) -> usize {
        let path = format!("/sys/devices/system/cpu/cpu{}/cache/index2/size", self.cpu);
        let text = self.kernel.text(Path::new(&path)).unwrap_or_default();
        let kib: usize = text.trim_end_matches('K').parse().unwrap_or(1024);
        (2 * kib * 1024).max(16 << 20)
    }

    /// One run: set up, measure, undo.
    pub fn one(&self, load: Load, case: &Case, running: &mut Running) -> Result<(PathBuf, Provenance)> {
        let name = format!("measure-{}", std::process::id());
        let measured = match self.set_up(case, &name) {
            Ok(settings) => self.run(load, case, &name, running, settings),
            Err(error) => Err(error),
        };
        let undone = self.undo(case.kind, &name);
        let measured = measured?;
        undone?;
        Ok(measured)
    }

    /// What the shield has set for this kind, one line a setting.
    fn set_up(&self, case: &Case, name: &str) -> Result<Vec<String>> {
        let kind = case.kind;
        let here = CpuSet::from_iter([self.cpu]);
        let elsewhere = self.online.difference(&here);
        let request = match kind {
            Kind::N => return Ok(Vec::new()),
            Kind::Rw | Kind::Rb => {
                let home = if kind == Kind::Rw { here } else { elsewhere };
                Request::System(System { irq_home: Some(home) })
            }
            Kind::Aon | Kind::Aoff => Request::Run {
                name: name.to_owned(),
                spec: shape(kind, self.cpu, &case.without).into(),
                owner: task::identify(self.kernel, std::process::id() as i32),
            },
        };
        let outcome = self.shield.change(&request, &caller(self.kernel))?;
        Ok(settings(&outcome.plan))
    }

    fn undo(&self, kind: Kind, name: &str) -> Result<()> {
        let request = match kind {
            Kind::N => return Ok(()),
            Kind::Rw | Kind::Rb => Request::System(System::default()),
            Kind::Aon | Kind::Aoff => Request::Destroy { name: Some(name.to_owned()), demote: true },
        };
        match self.shield.change(&request, &caller(self.kernel)) {
            Err(ChangeError::Refused(Refusal::NoPartition { .. })) | Ok(_) => Ok(()),
            Err(error) => Err(error).context("the measurement's settings could not be undone"),
        }
    }

    fn run(
        &self,
        load: Load,
        case: &Case,
        name: &str,
        running: &mut Running,
        settings: Vec<String>,
    ) -> Result<(PathBuf, Provenance)> {
        let kind = case.kind;
        let dir = self.dir.join(&case.name);
        std::fs::create_dir(&dir)
            .map_err(|error| failure(BAD_FILE, format!("{}: {error}", dir.display())))?;
        let writer = Writer::create(&dir.join("samples.bin"))
            .map_err(|error| failure(BAD_FILE, format!("{}: {error}", dir.display())))?;
        let Ready { subject, from, bound, not_recorded } = self.ready(case, name)?;
        // The kernel's thread goes with its tracer, which others may end.
        let proc = (case.source == Source::TimerlatKernel).then(|| format!("/proc/{}", subject.tid()));
        let window = match self.what.experiment() {
            Experiment::Latency => Window::Wake,
            Experiment::Overhead => Window::Turn,
        };
        let before = self.counters();
        let (started_s, started) = (caller(self.kernel).time_s, Instant::now());
        let bar = self.bar(&case.name);
        let collected = collect(subject, from, window, writer, |samples| {
            bar.set_position(samples);
            if self.stopped() {
                return Err("interrupted".to_owned());
            }
            if proc.as_ref().is_some_and(|path| !self.kernel.exists(Path::new(path))) {
                return Err(
                    "the kernel's timerlat thread is gone: does another tool use the tracer?".to_owned()
                );
            }
            running.check().map_err(|error| error.to_string())
        })
        .map_err(|error| failure(UNEXPECTED, format!("the probe failed: {error}")))?;
        bar.finish_and_clear();
        let duration_ns = started.elapsed().as_nanos() as u64;
        let totals = totals(before, self.counters(), self.cpu, bound);
        let Collected { ended, samples, lost_records, worst, partial } = collected;
        // Of timerlat the probe does not see each sample: the tracer's last ones may be missing.
        let too_few = (samples < self.what.samples()).then(|| format!("{samples} samples"));
        let provenance = Provenance {
            schema: RUN_SCHEMA,
            tool: format!("asmp {}", env!("CARGO_PKG_VERSION")),
            command_line: std::env::args().collect(),
            experiment: self.what.experiment(),
            kind,
            source: case.source,
            load,
            load_size: self.size,
            load_commands: running.commands.clone(),
            flood: matches!(self.what, What::Latency { flood: true, .. }),
            machine: Machine::read(self.kernel),
            cpu: bound.then_some(self.cpu),
            schedule: self.schedule_of(kind),
            memory_locked: self.memory_locked,
            cpu_latency_held: self.no_deep_sleep.is_some(),
            period_ns: self.what.period().map(|period| period.as_nanos() as u64),
            warm_up_samples: self.series.warm_up,
            started_s,
            duration_ns,
            samples,
            lost: ended.lost,
            overruns: ended.overruns,
            lost_records,
            partial: partial.or(too_few),
            base_ns: None,
            not_recorded,
            settings,
            totals,
            worst,
        };
        Ok((dir, provenance))
    }

    fn bar(&self, name: &str) -> ProgressBar {
        if self.series.quiet {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{prefix:>18} {bar:30} {pos}/{len}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(self.what.samples()).with_style(style);
        bar.with_prefix(name.to_owned())
    }

    fn counters(&self) -> Counters {
        let steal = self.kernel.text(Path::new("/proc/stat")).ok().and_then(|text| {
            let label = format!("cpu{} ", self.cpu);
            let line = text.lines().find_map(|line| line.strip_prefix(&label))?.to_owned();
            line.split_whitespace().nth(7)?.parse::<u64>().ok()
        });
        Counters { interrupts: counters::interrupts(self.kernel).unwrap_or_default(), steal }
    }
}

/// Counters of the machine at one instant; steal in ticks of 10 ms.
struct Counters {
    interrupts: Vec<counters::Row>,
    steal: Option<u64>,
}

fn totals(before: Counters, after: Counters, cpu: Cpu, bound: bool) -> Totals {
    if !bound || after.interrupts.is_empty() {
        return Totals::default();
    }
    let earlier: BTreeMap<_, u64> =
        before.interrupts.iter().map(|row| (&row.kind, row.counts.get(&cpu).copied().unwrap_or(0))).collect();
    let mut totals = Totals {
        ticks: Some(0),
        device_interrupts: Some(BTreeMap::new()),
        ipis: Some(BTreeMap::new()),
        steal_ns: after.steal.zip(before.steal).map(|(after, before)| (after - before) * 10_000_000),
    };
    for row in &after.interrupts {
        let count = row.counts.get(&cpu).copied().unwrap_or(0) - earlier.get(&row.kind).copied().unwrap_or(0);
        let add = |counts: &mut Option<BTreeMap<String, u64>>, name: &str| {
            if let Some(counts) = counts.as_mut().filter(|_| count > 0) {
                counts.insert(name.to_owned(), count);
            }
        };
        match &row.kind {
            counters::Kind::LocalTimer => totals.ticks = Some(count),
            counters::Kind::Device(name) => add(&mut totals.device_interrupts, name),
            counters::Kind::Ipi(name) => add(&mut totals.ipis, name),
            counters::Kind::Other(_) => {}
        }
    }
    totals
}

fn settings(plan: &Plan) -> Vec<String> {
    let line = |step: &asmp_shield::Step| match &step.action {
        Action::Set { knob, to, .. } => {
            Some(format!("{}: {} -> {to}", knob.path.display(), step.old.as_deref().unwrap_or("?")))
        }
        _ => None,
    };
    plan.steps.iter().filter_map(line).collect()
}
