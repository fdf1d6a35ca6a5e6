// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is analysed as a whole: tasks, chains, and other users of the CPUs.

use crate::chain::{Chain, with_deadlines};
use crate::place::Room;
use crate::simulate::model::{Background, Interrupt};
use crate::task::Task;
use crate::time::TimeBase;

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
}
