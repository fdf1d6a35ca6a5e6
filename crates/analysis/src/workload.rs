// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is analysed as a whole: tasks, chains, and other users of the CPUs.

use crate::chain::{Chain, with_deadlines};
use crate::place::Room;
use crate::simulate::model::{Background, Interrupt};
use crate::task::Task;
use crate::time::TimeBase;
use crate::verdict::Inapplicable;
use std::collections::BTreeMap;

/// Tasks and what surrounds them. All times are whole ticks of `time`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    pub time: TimeBase,
    pub tasks: Vec<Task>,
    pub chains: Vec<Chain>,
    /// Work without a deadline, for the simulator.
    pub background: Vec<Background>,
    /// Deferred interrupts, for the simulator.
    pub interrupts: Vec<Interrupt>,
    /// What one CPU has of memory and bandwidth, for placement.
    pub room: Room,
}

impl Workload {
    /// Tasks whose times are whole nanoseconds, and nothing else.
    pub fn of(tasks: Vec<Task>) -> Self {
        Self { tasks, ..Self::default() }
    }

    /// The tasks as tests take them: one in a chain has the deadline of the chain.
    pub fn tasks_in_chains(&self) -> Vec<Task> {
        with_deadlines(&self.tasks, &self.chains)
    }

    /// Whether the tests count everything that the workload says of these CPUs (none: those that
    /// the tasks name). Errors: the part that they would ignore.
    pub fn check_analysable(&self, cpus: &[u32]) -> Result<(), Inapplicable> {
        self.check_flags()?;
        if let (Some(chain), true) = (self.chains.first(), cpus.len() > 1) {
            return Err(set(format!(
                "chain {}: its tasks stay on the cores that they name: leave out --cpus",
                chain.name
            )));
        }
        if cpus.len() > 1 {
            return Ok(());
        }
        self.check_cores()?;
        if let [cpu] = cpus
            && let Some(task) = self.tasks.iter().find(|task| task.core.is_some_and(|c| c != *cpu))
        {
            return Err(set(format!("task {} names a core that --cpus leaves out", task.name)));
        }
        self.check_room()
    }

    /// The same for budgets, which are those of one CPU.
    pub fn check_budgets(&self) -> Result<(), Inapplicable> {
        self.check_flags()?;
        self.check_no_chains("budgets")?;
        if let Some(task) = self.tasks.iter().find(|task| task.core != self.tasks[0].core) {
            return Err(set(format!(
                "task {} is on another core than task {}: write one file for each core",
                task.name, self.tasks[0].name
            )));
        }
        self.check_room()
    }

    /// The same for a placement on CPUs.
    pub fn check_placeable(&self) -> Result<(), Inapplicable> {
        self.check_flags()?;
        self.check_no_chains("place")
    }

    /// All tasks name a core, or none does: else one without a core could be on any.
    pub fn check_cores(&self) -> Result<(), Inapplicable> {
        let with = self.tasks.iter().find(|task| task.core.is_some());
        let without = self.tasks.iter().find(|task| task.core.is_none());
        match (with, without) {
            (Some(with), Some(without)) => Err(set(format!(
                "task {} names a core, task {} names none: name the core of each task, or of none",
                with.name, without.name
            ))),
            _ => Ok(()),
        }
    }

    /// A flag takes its CPU from every task, also from one that is never preempted. Services and
    /// background work delay no task.
    pub(crate) fn check_flags(&self) -> Result<(), Inapplicable> {
        let delays = |interrupt: &&Interrupt| {
            let is_elsewhere =
                |task: &Task| task.core.zip(interrupt.core).is_some_and(|(of, at)| of != at);
            interrupt.flag_ticks > 0 && !self.tasks.iter().all(is_elsewhere)
        };
        match self.interrupts.iter().find(delays) {
            Some(interrupt) => Err(set(format!(
                "interrupt {}: its flag delays every task, and no test counts that: \
                 describe the flag as a sporadic task of the highest priority under policy fp",
                interrupt.name
            ))),
            None => Ok(()),
        }
    }

    fn check_no_chains(&self, what: &str) -> Result<(), Inapplicable> {
        match self.chains.first() {
            Some(chain) => Err(set(format!(
                "chain {}: {what} would ignore it: use asmp analyze, with a core for each task",
                chain.name
            ))),
            None => Ok(()),
        }
    }

    /// Memory and bandwidth of the tasks of each core.
    fn check_room(&self) -> Result<(), Inapplicable> {
        let mut used: BTreeMap<Option<u32>, (u128, u128)> = BTreeMap::new();
        for task in &self.tasks {
            let of_core = used.entry(task.core).or_default();
            of_core.0 += u128::from(task.memory_bytes);
            of_core.1 += u128::from(task.bandwidth);
        }
        let over = |used: u128, limit: Option<u64>| limit.is_some_and(|most| used > most.into());
        for (memory_bytes, bandwidth) in used.into_values() {
            for (what, used, limit) in [
                ("memory", memory_bytes, self.room.memory_bytes),
                ("bandwidth", bandwidth, self.room.bandwidth),
            ] {
                if over(used, limit) {
                    return Err(set(format!(
                        "the tasks of one CPU need {what} {used}, and [room] has {}: \
                         use more CPUs",
                        limit.unwrap_or_default()
                    )));
                }
            }
        }
        Ok(())
    }
}

fn set(what: String) -> Inapplicable {
    Inapplicable::Set { what }
}
