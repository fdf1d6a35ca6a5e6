// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run: streams of jobs made from what is simulated, and the engine that goes through them.

use super::engine::{End, Engine, Job, Key, Level, Observe, Stream};
use super::model::{Background, Interrupt, Owner, Releases, Simulation};
use super::random::Random;
use super::release::{Rule, Train, Trains};
use crate::chain::{Chain, with_deadlines};
use crate::check::check;
use crate::task::Arrival;
use crate::verdict::{Missed, Start, Stop};
use std::collections::BTreeSet;

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

    /// What happens before `until_ticks`; may be called again with a later instant.
    pub fn go(&mut self, until_ticks: u64, most_jobs: u64, observer: &mut impl Observe) -> End {
        self.engine.run_until(until_ticks, most_jobs, observer)
    }

    pub const fn now_ticks(&self) -> u64 {
        self.engine.now_ticks()
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
    pub(super) fn missed(&self, job: &Job, finished_ticks: Option<u64>) -> Option<Missed> {
        let Owner::Task(task) = self.owners[job.stream()] else { return None };
        let deadline_ticks = job.deadline_ticks?;
        Some(Missed {
            task,
            job: job.index,
            release_ticks: job.release_ticks,
            deadline_ticks,
            finished_ticks,
        })
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
        let mut random = Random::new(
            self.simulation.seed ^ (self.streams.len() as u64).wrapping_mul(0x9e37_79b9),
        );
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
        // Where jobs are preempted the section is as urgent as the job it holds up, and just makes
        // it longer; where they are not it is a stretch of its own, after which the choice is free
        // again.
        let apart = !self.simulation.policy.is_preemptive();
        let rule = match (start, &self.simulation.releases) {
            (Some(Start { arrival_ticks, release_ticks, held_up_ticks, .. }), _) => {
                let held_up_ticks = if apart { 0 } else { held_up_ticks };
                Rule::Fixed {
                    first_ticks: arrival_ticks,
                    not_before_ticks: release_ticks,
                    held_up_ticks,
                }
            }
            (None, Releases::Random) => Rule::Chance { first_ticks: task.offset_ticks },
            (None, _) => Rule::Fixed {
                first_ticks: task.offset_ticks.unwrap_or(0),
                not_before_ticks: 0,
                held_up_ticks: 0,
            },
        };
        // A pattern is for one CPU.
        let core = if start.is_some() { 0 } else { self.core(task.core) };
        let stream = Stream {
            level: Level::RealTime,
            key,
            core,
            cost_ticks: task.cost_ticks(),
            deadline_ticks: Some(task.deadline_ticks),
            after: None,
        };
        let seed = self.seed();
        let train = Train::new(
            rule,
            task.period_ticks,
            task.arrival,
            task.jitter_ticks,
            task.cost_ticks(),
            seed,
        );
        self.push(Owner::Task(index), &task.name, stream, train);
        if let Some(start) = start.filter(|start| apart && start.held_up_ticks > 0) {
            self.section(index, start);
        }
    }

    fn section(&mut self, task: usize, start: Start) {
        let stream = Stream {
            level: Level::Handler,
            key: Key::Rank(0),
            core: 0,
            cost_ticks: start.held_up_ticks,
            deadline_ticks: None,
            after: None,
        };
        let rule =
            Rule::Fixed { first_ticks: start.release_ticks, not_before_ticks: 0, held_up_ticks: 0 };
        let train =
            Train::new(rule, u64::MAX, Arrival::Periodic, 0, start.held_up_ticks, self.seed());
        self.push(Owner::Section(task), "section", stream, train);
    }

    fn chains(&mut self, chains: &[Chain]) {
        let stream_of = |owners: &[Owner], task: usize| {
            owners.iter().position(|owner| *owner == Owner::Task(task))
        };
        for chain in chains {
            for pair in chain.tasks.windows(2) {
                let before = stream_of(&self.owners, pair[0]);
                let Some(stream) = stream_of(&self.owners, pair[1]).filter(|_| before.is_some())
                else {
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
            cost_ticks: work.cost_ticks,
            deadline_ticks: None,
            after: None,
        };
        let train = self.train(Arrival::Periodic, work.period_ticks, work.cost_ticks);
        self.push(Owner::Background(index), &work.name, stream, train);
    }

    fn interrupt(&mut self, index: usize, interrupt: &Interrupt) {
        let Some(gap_ticks) = interrupt.gap_ticks else { return };
        let core = self.core(interrupt.core);
        let of = |level, cost_ticks, after| Stream {
            level,
            key: Key::Rank(0),
            core,
            cost_ticks,
            deadline_ticks: None,
            after,
        };
        let mut after = None;
        if interrupt.flag_ticks > 0 {
            after = Some(self.streams.len());
            let train = self.train(Arrival::Sporadic, gap_ticks, interrupt.flag_ticks);
            let name = format!("{} flag", interrupt.name);
            self.push(
                Owner::Handler(index),
                &name,
                of(Level::Handler, interrupt.flag_ticks, None),
                train,
            );
        }
        let train = self.train(Arrival::Sporadic, gap_ticks, interrupt.service_ticks);
        self.push(
            Owner::Service(index),
            &interrupt.name,
            of(Level::Background, interrupt.service_ticks, after),
            train,
        );
    }

    fn train(&self, arrival: Arrival, period_ticks: u64, cost_ticks: u64) -> Train {
        let rule = match self.simulation.releases {
            Releases::Random => Rule::Chance { first_ticks: None },
            _ => Rule::Fixed { first_ticks: 0, not_before_ticks: 0, held_up_ticks: 0 },
        };
        Train::new(rule, period_ticks, arrival, 0, cost_ticks, self.seed())
    }

    fn finish(self) -> Run {
        let core_of = self.streams.iter().map(|stream| stream.core).collect();
        let trains = Trains { trains: self.trains, execution: self.simulation.execution };
        let preemptive = self.simulation.policy.is_preemptive();
        let engine = Engine::new(self.streams, preemptive, trains);
        Run { engine, owners: self.owners, names: self.names, cpus: self.cpus, core_of }
    }
}
