// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is simulated.

use super::release::Execution;
use crate::chain::Chain;
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::Start;
#[cfg(feature = "files")]
use serde::Serialize;

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

/// Work without a deadline, served in the order of arrival when no real-time job wants the CPU, and
/// preempted by any.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Background {
    pub name: String,
    pub cost_ticks: u64,
    pub period_ticks: u64,
    pub core: Option<u32>,
}

/// A deferred interrupt, as Yartek's: a handler that raises a flag and preempts everything, then
/// background service. It has a gap, or a limit of raises, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "files", derive(Serialize))]
pub struct Interrupt {
    pub name: String,
    /// 0: the flag costs nothing.
    pub flag_ticks: u64,
    pub service_ticks: u64,
    /// Least time between two. `None`: any, and the simulator plays none of them.
    pub gap_ticks: Option<u64>,
    pub core: Option<u32>,
    /// The function of C that serves it, where a kernel runs the set.
    pub entry: Option<String>,
    /// The kernel masks the source at so many raises that were not served yet.
    pub most: Option<u32>,
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
    /// The first task of each is released by time, the others by the completion of the one before;
    /// all are due at the chain's deadline.
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
