// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is analysed as a whole: tasks, chains, and other users of the CPUs.

use crate::chain::{Chain, with_deadlines};
use crate::place::Room;
use crate::sampled::{self, SampledChain};
use crate::simulate::model::{Background, Interrupt};
use crate::task::Task;
use crate::time::TimeBase;
use crate::verdict::{About, Inapplicable};
use std::collections::BTreeMap;

/// The cure where the tasks of one CPU need more than it has.
const MORE: &str = "use more CPUs";

/// Tasks and what surrounds them. All times are whole ticks of `time`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workload {
    pub time: TimeBase,
    pub tasks: Vec<Task>,
    pub chains: Vec<Chain>,
    /// Chains whose tasks have periods of their own.
    pub sampled: Vec<SampledChain>,
    /// Work without a deadline, for the simulator.
    pub background: Vec<Background>,
    /// Deferred interrupts, for the simulator.
    pub interrupts: Vec<Interrupt>,
    /// What one CPU has of memory and bandwidth, for placement.
    pub room: Room,
    /// The board that runs the set, by its name.
    pub board: Option<String>,
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

    /// Whether placement chooses the CPU of some task: it names no core, and there is a choice
    /// among `cpus`, or others name theirs.
    pub(crate) fn is_placed(&self, cpus: &[u32]) -> bool {
        let is_free = |task: &Task| task.core.is_none();
        let some_are_bound = || !self.tasks.iter().all(is_free);
        self.tasks.iter().any(is_free) && (cpus.len() > 1 || (cpus.len() == 1 && some_are_bound()))
    }

    /// Whether the tests count everything that the workload says of these CPUs (none: those that
    /// the tasks name). Errors: the part that they would ignore.
    pub fn check_analysable(&self, cpus: &[u32]) -> Result<(), Inapplicable> {
        self.check_flags()?;
        sampled::check(&self.tasks, &self.chains, &self.sampled)?;
        if !cpus.is_empty() {
            self.check_not_left_out(cpus)?;
        }
        if !self.is_placed(cpus) {
            self.check_cores()?;
            return self.check_room(MORE);
        }
        match self.chains.first() {
            Some(chain) => {
                let name = &chain.name;
                let cure = "placement ignores chains: name the core of each task";
                Err(set(About::Chain(name.clone()), "", format!("chain {name}: {cure}")))
            }
            None => Ok(()),
        }
    }

    /// The same for SCHED_DEADLINE, whose tasks run on any CPU of their root domain of so many.
    pub(crate) fn check_deadline_cores(&self, cpus: u32) -> Result<(), Inapplicable> {
        let first = self.tasks.first().and_then(|task| task.core);
        let named = |task: &&Task| task.core.is_some() && (cpus > 1 || task.core != first);
        match self.tasks.iter().find(named) {
            Some(task) => Err(of_core(
                task,
                format!(
                    "task {} names a core: SCHED_DEADLINE chooses the CPU itself; leave out core, \
                     or give one file and one CPU for each core",
                    task.name
                ),
            )),
            None => {
                // SCHED_DEADLINE is not placed by asmp.
                self.check_cores_or("")?;
                if cpus == 1 { self.check_room(MORE) } else { Ok(()) }
            }
        }
    }

    /// The same for budgets, which are those of one CPU.
    pub fn check_budgets(&self) -> Result<(), Inapplicable> {
        self.check_flags()?;
        self.check_no_chains("budgets")?;
        if let Some(task) = self.tasks.iter().find(|task| task.core != self.tasks[0].core) {
            let what = format!(
                "task {} is on another core than task {}: write one file for each core",
                task.name, self.tasks[0].name
            );
            return Err(of_core(task, what));
        }
        self.check_room(MORE)
    }

    /// The same for a placement on these CPUs.
    pub fn check_placeable(&self, cpus: &[u32]) -> Result<(), Inapplicable> {
        self.check_flags()?;
        self.check_no_chains("place")?;
        self.check_not_left_out(cpus)
    }

    /// No task names a core that is not among these CPUs.
    fn check_not_left_out(&self, cpus: &[u32]) -> Result<(), Inapplicable> {
        let left_out = |core: &u32| !cpus.contains(core);
        let of_task = |task: &Task| Some((task.name.clone(), task.core.filter(left_out)?));
        match self.tasks.iter().find_map(of_task) {
            Some((task, core)) => {
                let what = format!("task {task} names core {core}, which --cpus leaves out");
                Err(set(About::Task(task), "core", what))
            }
            None => Ok(()),
        }
    }

    /// All tasks name a core, or none does: else one without a core could be on any.
    pub fn check_cores(&self) -> Result<(), Inapplicable> {
        self.check_cores_or(", or let `asmp analyze --cpus LIST` place the others")
    }

    /// The same; `cure`: what else would help.
    fn check_cores_or(&self, cure: &str) -> Result<(), Inapplicable> {
        let with = self.tasks.iter().find(|task| task.core.is_some());
        let without = self.tasks.iter().find(|task| task.core.is_none());
        match (with, without) {
            (Some(with), Some(without)) => {
                let what = format!(
                    "task {} names a core, task {} names none: name the core of each task or of \
                     none{cure}",
                    with.name, without.name
                );
                Err(of_core(without, what))
            }
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
            Some(interrupt) => {
                let what = format!(
                    "interrupt {}: its flag delays every task, and no test counts that: \
                     describe the flag as a sporadic task of the highest priority and ask for fp",
                    interrupt.name
                );
                Err(set(About::Interrupt(interrupt.name.clone()), "flag", what))
            }
            None => Ok(()),
        }
    }

    /// The name of the first chain of any kind.
    pub(crate) fn first_chain(&self) -> Option<&str> {
        let triggered = self.chains.iter().map(|chain| chain.name.as_str());
        triggered.chain(self.sampled.iter().map(|chain| chain.name.as_str())).next()
    }

    fn check_no_chains(&self, what: &str) -> Result<(), Inapplicable> {
        match self.first_chain() {
            Some(chain) => {
                let cure = "use asmp analyze, with a core for each task";
                let what = format!("chain {chain}: {what} would ignore it: {cure}");
                Err(set(About::Chain(chain.to_owned()), "", what))
            }
            None => Ok(()),
        }
    }

    /// Under SCHED_DEADLINE on several CPUs any of them may have any task, and then needs the room
    /// for it.
    pub(crate) fn check_room_of_any(&self, cpus: u32) -> Result<(), Inapplicable> {
        let cure = "SCHED_DEADLINE may run all of them there; use asmp analyze place";
        if cpus == 1 { Ok(()) } else { self.check_room(cure) }
    }

    /// Memory and bandwidth of the tasks of each core.
    fn check_room(&self, cure: &str) -> Result<(), Inapplicable> {
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
                    let words = format!(
                        "the tasks of one CPU need {what} {used}, and [room] has {}: {cure}",
                        limit.unwrap_or_default()
                    );
                    return Err(set(About::Room, what, words));
                }
            }
        }
        Ok(())
    }
}

fn set(about: About, key: &'static str, what: String) -> Inapplicable {
    Inapplicable::Set { about, key, what }
}

fn of_core(task: &Task, what: String) -> Inapplicable {
    set(About::Task(task.name.clone()), "core", what)
}
