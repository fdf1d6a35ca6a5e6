//! Discrete-event simulation of partitioned CPUs: what the tests are checked against, and what a counterexample runs in.
//!
//! Deterministic: the same set, setting and seed give the same bytes, on every machine. No clock is read. A run costs well
//! under a microsecond a job and as much memory as jobs wait.

pub mod engine;
pub mod gantt;
pub mod perfetto;
mod random;
mod record;
mod release;
pub mod statistics;

use crate::chain::{Chain, with_deadlines};
use crate::check::check;
use crate::demand::together;
use crate::offsets;
use crate::policy::Policy;
use crate::task::{Arrival, Task};
use crate::verdict::{Effort, Missed, Start, Stop};
pub use engine::End;
use engine::{Engine, Job, Key, Level, Observe, Stream};
pub use random::Random;
pub use record::{Record, Segment};
pub use release::Execution;
use release::{Rule, Train, Trains};
use serde::Serialize;
pub use statistics::{Distribution, Statistics};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// When jobs come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Releases {
    /// All as soon as they may: from the offset or 0 on, each period, no jitter.
    Together,
    /// Offsets that are not given, sporadic gaps and jitter by chance.
    Random,
    /// As in a counterexample.
    Pattern(Vec<Start>),
}

/// Work without a deadline, served in the order of arrival when no real-time job wants the CPU, and preempted by any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Background {
    pub name: String,
    pub cost_ns: u64,
    pub period_ns: u64,
    pub core: Option<u32>,
}

/// A deferred interrupt, as Yartek's: a handler that raises a flag and preempts everything, then background service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    pub name: String,
    /// 0: the flag costs nothing.
    pub flag_ns: u64,
    pub service_ns: u64,
    /// Least time between two.
    pub gap_ns: u64,
    pub core: Option<u32>,
}

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Simulation<'a> {
    pub tasks: &'a [Task],
    pub policy: Policy,
    pub releases: Releases,
    pub seed: u64,
    pub execution: Execution,
    pub background: &'a [Background],
    pub interrupts: &'a [Interrupt],
    /// The first task of each is released by time, the others by the completion of the one before; all are due at the
    /// chain's deadline.
    pub chains: &'a [Chain],
}

impl<'a> Simulation<'a> {
    pub fn new(tasks: &'a [Task], policy: Policy, releases: Releases) -> Self {
        Self {
            tasks,
            policy,
            releases,
            seed: 0,
            execution: Execution::default(),
            background: &[],
            interrupts: &[],
            chains: &[],
        }
    }
}

/// Whose jobs a stream has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Task(usize),
    Background(usize),
    Handler(usize),
    Service(usize),
    /// What holds a task's first job up in a pattern, where nothing is preempted.
    Section(usize),
}

/// A run, prepared.
#[derive(Debug)]
pub struct Run {
    engine: Engine<Trains>,
    /// By stream.
    pub owners: Vec<Owner>,
    pub names: Vec<String>,
    /// By core of the run: the number of the CPU.
    pub cpus: Vec<u32>,
    core_of: Vec<usize>,
}

impl Run {
    /// Errors: what `check` refuses, and tasks without a priority under `Fp` and `NpFp`.
    pub fn prepare(simulation: &Simulation) -> Result<Self, Stop> {
        let in_chains;
        let mut simulation = simulation.clone();
        if !simulation.chains.is_empty() {
            in_chains = with_deadlines(simulation.tasks, simulation.chains);
            simulation.tasks = &in_chains;
        }
        let Simulation { tasks, policy, .. } = simulation;
        check(tasks)?;
        let ranks = policy.ranks(tasks)?;
        let mut build = Builder::new(&simulation);
        let starts: Vec<Option<Start>> = match &simulation.releases {
            Releases::Pattern(pattern) => {
                pattern.iter().filter(|start| start.task < tasks.len()).copied().map(Some).collect()
            }
            Releases::Together | Releases::Random => vec![None; tasks.len()],
        };
        for (position, start) in starts.into_iter().enumerate() {
            let index = start.map_or(position, |start| start.task);
            let key = ranks.as_ref().map_or(Key::Deadline, |ranks| Key::Rank(ranks[index]));
            build.task(index, key, start);
        }
        build.chains(simulation.chains);
        for (index, work) in simulation.background.iter().enumerate() {
            build.background(index, work);
        }
        for (index, interrupt) in simulation.interrupts.iter().enumerate() {
            build.interrupt(index, interrupt);
        }
        Ok(build.finish())
    }

    /// What happens before `until_ns`; may be called again with a later instant.
    pub fn go(&mut self, until_ns: u64, most_jobs: u64, observer: &mut impl Observe) -> End {
        self.engine.run_until(until_ns, most_jobs, observer)
    }

    pub const fn now_ns(&self) -> u64 {
        self.engine.now_ns()
    }

    /// Jobs released so far.
    pub const fn jobs(&self) -> u64 {
        self.engine.released()
    }

    pub fn unfinished(&self) -> impl Iterator<Item = Job> + '_ {
        self.engine.unfinished()
    }

    /// Core of the run that a stream belongs to.
    pub fn core_of(&self, stream: usize) -> usize {
        self.core_of[stream]
    }

    /// A job of a task that was not done by its deadline.
    fn missed(&self, job: &Job, finished_ns: Option<u64>) -> Option<Missed> {
        let Owner::Task(task) = self.owners[job.stream()] else { return None };
        let deadline_ns = job.deadline_ns?;
        Some(Missed { task, job: job.index, release_ns: job.release_ns, deadline_ns, finished_ns })
    }
}

/// Collects streams and their releases.
struct Builder<'a> {
    simulation: &'a Simulation<'a>,
    cpus: Vec<u32>,
    streams: Vec<Stream>,
    trains: Vec<Train>,
    owners: Vec<Owner>,
    names: Vec<String>,
}

impl<'a> Builder<'a> {
    fn new(simulation: &'a Simulation<'a>) -> Self {
        let all = simulation.tasks.iter().map(|task| task.core);
        let all = all.chain(simulation.background.iter().map(|work| work.core));
        let all = all.chain(simulation.interrupts.iter().map(|interrupt| interrupt.core));
        let named: BTreeSet<u32> = all.flatten().collect();
        let cpus = if named.is_empty() { vec![0] } else { named.into_iter().collect() };
        Self { simulation, cpus, streams: vec![], trains: vec![], owners: vec![], names: vec![] }
    }

    /// What is bound to no CPU is on the first.
    fn core(&self, cpu: Option<u32>) -> usize {
        cpu.and_then(|cpu| self.cpus.iter().position(|known| *known == cpu)).unwrap_or(0)
    }

    fn seed(&self) -> u64 {
        let mut random =
            Random::new(self.simulation.seed ^ (self.streams.len() as u64).wrapping_mul(0x9e37_79b9));
        random.next()
    }

    fn push(&mut self, owner: Owner, name: &str, stream: Stream, train: Train) {
        self.streams.push(stream);
        self.trains.push(train);
        self.owners.push(owner);
        self.names.push(name.to_owned());
    }

    fn task(&mut self, index: usize, key: Key, start: Option<Start>) {
        let task = &self.simulation.tasks[index];
        // Where jobs are preempted the section is as urgent as the job it holds up, and just makes it longer; where they
        // are not it is a stretch of its own, after which the choice is free again.
        let apart = !self.simulation.policy.is_preemptive();
        let rule = match (start, &self.simulation.releases) {
            (Some(Start { arrival_ns, release_ns, held_up_ns, .. }), _) => {
                let held_up_ns = if apart { 0 } else { held_up_ns };
                Rule::Fixed { first_ns: arrival_ns, not_before_ns: release_ns, held_up_ns }
            }
            (None, Releases::Random) => Rule::Chance { first_ns: task.offset_ns },
            (None, _) => {
                Rule::Fixed { first_ns: task.offset_ns.unwrap_or(0), not_before_ns: 0, held_up_ns: 0 }
            }
        };
        // A pattern is for one CPU.
        let core = if start.is_some() { 0 } else { self.core(task.core) };
        let stream = Stream {
            level: Level::RealTime,
            key,
            core,
            cost_ns: task.cost_ns(),
            deadline_ns: Some(task.deadline_ns),
            after: None,
        };
        let seed = self.seed();
        let train = Train::new(rule, task.period_ns, task.arrival, task.jitter_ns, task.cost_ns(), seed);
        self.push(Owner::Task(index), &task.name, stream, train);
        if let Some(start) = start.filter(|start| apart && start.held_up_ns > 0) {
            self.section(index, start);
        }
    }

    fn section(&mut self, task: usize, start: Start) {
        let stream = Stream {
            level: Level::Handler,
            key: Key::Rank(0),
            core: 0,
            cost_ns: start.held_up_ns,
            deadline_ns: None,
            after: None,
        };
        let rule = Rule::Fixed { first_ns: start.release_ns, not_before_ns: 0, held_up_ns: 0 };
        let train = Train::new(rule, u64::MAX, Arrival::Periodic, 0, start.held_up_ns, self.seed());
        self.push(Owner::Section(task), "section", stream, train);
    }

    fn chains(&mut self, chains: &[Chain]) {
        let stream_of =
            |owners: &[Owner], task: usize| owners.iter().position(|owner| *owner == Owner::Task(task));
        for chain in chains {
            for pair in chain.tasks.windows(2) {
                let before = stream_of(&self.owners, pair[0]);
                let Some(stream) = stream_of(&self.owners, pair[1]).filter(|_| before.is_some()) else {
                    continue;
                };
                self.streams[stream].after = before;
            }
        }
    }

    fn background(&mut self, index: usize, work: &Background) {
        let stream = Stream {
            level: Level::Background,
            key: Key::Rank(0),
            core: self.core(work.core),
            cost_ns: work.cost_ns,
            deadline_ns: None,
            after: None,
        };
        let train = self.train(Arrival::Periodic, work.period_ns, work.cost_ns);
        self.push(Owner::Background(index), &work.name, stream, train);
    }

    fn interrupt(&mut self, index: usize, interrupt: &Interrupt) {
        let core = self.core(interrupt.core);
        let of = |level, cost_ns, after| Stream {
            level,
            key: Key::Rank(0),
            core,
            cost_ns,
            deadline_ns: None,
            after,
        };
        let mut after = None;
        if interrupt.flag_ns > 0 {
            after = Some(self.streams.len());
            let train = self.train(Arrival::Sporadic, interrupt.gap_ns, interrupt.flag_ns);
            let name = format!("{} flag", interrupt.name);
            self.push(Owner::Handler(index), &name, of(Level::Handler, interrupt.flag_ns, None), train);
        }
        let train = self.train(Arrival::Sporadic, interrupt.gap_ns, interrupt.service_ns);
        self.push(
            Owner::Service(index),
            &interrupt.name,
            of(Level::Background, interrupt.service_ns, after),
            train,
        );
    }

    fn train(&self, arrival: Arrival, period_ns: u64, cost_ns: u64) -> Train {
        let rule = match self.simulation.releases {
            Releases::Random => Rule::Chance { first_ns: None },
            _ => Rule::Fixed { first_ns: 0, not_before_ns: 0, held_up_ns: 0 },
        };
        Train::new(rule, period_ns, arrival, 0, cost_ns, self.seed())
    }

    fn finish(self) -> Run {
        let core_of = self.streams.iter().map(|stream| stream.core).collect();
        let trains = Trains { trains: self.trains, execution: self.simulation.execution };
        let preemptive = self.simulation.policy.is_preemptive();
        let engine = Engine::new(self.streams, preemptive, trains);
        Run { engine, owners: self.owners, names: self.names, cpus: self.cpus, core_of }
    }
}

/// Two observers of one run.
impl<A: Observe, B: Observe> Observe for (&mut A, &mut B) {
    fn ran(&mut self, core: usize, job: &Job, from_ns: u64, to_ns: u64) {
        self.0.ran(core, job, from_ns, to_ns);
        self.1.ran(core, job, from_ns, to_ns);
    }

    fn released(&mut self, job: &Job) {
        self.0.released(job);
        self.1.released(job);
    }

    fn finished(&mut self, job: &Job, at_ns: u64) -> ControlFlow<()> {
        self.0.finished(job, at_ns)?;
        self.1.finished(job, at_ns)
    }
}

/// Stops at the first job that finishes late.
#[derive(Debug, Default)]
struct FirstMiss(Option<(Job, u64)>);

impl Observe for FirstMiss {
    #[inline]
    fn finished(&mut self, job: &Job, at_ns: u64) -> ControlFlow<()> {
        if job.deadline_ns.is_some_and(|deadline| at_ns > deadline) {
            self.0 = Some((*job, at_ns));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// The first job that finishes late, if some deadline before an instant is missed. A job that is overdue then is followed
/// until it, or another that is late, finishes, for about as many jobs again: it may be starved for ever.
pub fn first_miss(simulation: &Simulation, until_ns: u64, most_jobs: u64) -> Result<Option<Missed>, Stop> {
    let mut run = Run::prepare(simulation)?;
    let mut first = FirstMiss::default();
    run.go(until_ns, most_jobs, &mut first);
    let now_ns = run.now_ns();
    let overdue = |job: &Job| job.deadline_ns.is_some_and(|deadline| deadline < now_ns);
    let earliest = run.unfinished().filter(overdue).min_by_key(|job| (job.deadline_ns, job.stream));
    if first.0.is_none() && earliest.is_some() {
        let again = run.jobs().saturating_mul(2).saturating_add(1000);
        run.go(u64::MAX, most_jobs.min(again), &mut first);
    }
    Ok(match first.0 {
        Some((job, at_ns)) => run.missed(&job, Some(at_ns)),
        None => earliest.and_then(|job| run.missed(&job, None)),
    })
}

/// Goes through a counterexample on one CPU, until the instant by which it must miss.
pub fn replay(
    tasks: &[Task],
    policy: Policy,
    pattern: &[Start],
    by_ns: Option<u64>,
    effort: &Effort,
) -> Option<Missed> {
    let simulation = Simulation::new(tasks, policy, Releases::Pattern(pattern.to_vec()));
    let until_ns = by_ns.and_then(|by| by.checked_add(1)).unwrap_or(u64::MAX);
    first_miss(&simulation, until_ns, effort.jobs).ok().flatten()
}

/// The pattern that is worst for `victim` by the theory of the policy: everything that can delay it released together, the
/// longest job of the others one tick before where nothing is preempted; given offsets that exclude it are kept instead. It need
/// not be the worst of all its responses.
pub fn worst_pattern(tasks: &[Task], policy: Policy, victim: usize) -> Result<Vec<Start>, Stop> {
    check(tasks)?;
    let ranks = policy.ranks(tasks)?;
    let less = |task: usize| match &ranks {
        Some(ranks) => ranks.get(task) > ranks.get(victim),
        None => tasks.get(task).map(|task| task.deadline_ns) > tasks.get(victim).map(|task| task.deadline_ns),
    };
    let candidates = (0..tasks.len()).filter(|task| !policy.is_preemptive() && less(*task));
    // One thing holds the CPU at that instant: the longest job or the section.
    let section_ns = tasks.get(victim).map_or(0, |task| task.blocking_ns);
    let holder = candidates.max_by_key(|task| tasks[*task].cost_ns());
    let holder = holder.filter(|task| tasks[*task].cost_ns() > section_ns);
    let at_ns = tasks.iter().map(|task| task.jitter_ns).max().unwrap_or(0) + u64::from(holder.is_some());
    // A section that holds the victim up is work of something less urgent: that is not released a second time.
    let held_up = section_ns > 0 && holder.is_none();
    let chosen = |task: usize| Some(task) != holder && task != victim && !(held_up && less(task));
    let mut pattern = together(tasks, at_ns, chosen);
    if let Some(task) = holder {
        pattern.insert(0, Start { task, arrival_ns: at_ns - 1, release_ns: at_ns - 1, held_up_ns: 0 });
    }
    let mut own = together(tasks, at_ns, |task| task == victim);
    for start in &mut own {
        start.held_up_ns = if holder.is_none() { section_ns } else { 0 };
    }
    pattern.append(&mut own);
    Ok(if offsets::decide(tasks, policy, &pattern) { offsets::as_given(tasks) } else { pattern })
}
