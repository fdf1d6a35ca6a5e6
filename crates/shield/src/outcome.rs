// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of a change, for the caller to tell.

use crate::apply::Refused;
use crate::left::{Elsewhere, Left};
use crate::moving::Demotion;
use crate::partition::State;
use crate::plan::Plan;
use crate::request::Request;
use crate::shield::Recovered;
use crate::verify::{PartitionStatus, Status};
use asmp_host::Facts;

/// What came of a change.
#[derive(Debug)]
pub struct Outcome {
    pub facts: Facts,
    pub state: State,
    pub plan: Plan,
    /// What refused, with the kernel's reason.
    pub refused: Vec<Refused>,
    /// What could not be given back yet; with `abandon`, what was given up.
    pub left: Vec<Left>,
    pub changes: usize,
    /// Threads that left as SCHED_OTHER.
    pub demoted: Vec<Demotion>,
    /// Tasks that left, and are not where they came from.
    pub elsewhere: Vec<Elsewhere>,
    /// After a request that repairs: the machine read back.
    pub status: Option<Status>,
    /// Why it could not be read back: the change is made all the same.
    pub unread: Option<String>,
    /// After a restore or a repair: settings that may have been others before a state was lost.
    pub unknown_originals: Vec<String>,
    /// Why no room is kept for undoing, where none could be.
    pub no_room: Option<String>,
    /// A change that a crash had cut short was undone first.
    pub recovered: Option<Recovered>,
}

impl Outcome {
    /// Partitions that the request repaired and that are violated all the same.
    pub fn violated(&self, request: &Request) -> Vec<&PartitionStatus> {
        let read = self.status.iter().flat_map(|status| &status.partitions);
        read.filter(|one| request.repairs(&one.name) && !one.violations.is_empty()).collect()
    }

    /// Of a change that wrote nothing so far.
    pub(crate) fn of(facts: Facts, state: State, plan: Plan) -> Self {
        Self {
            facts,
            state,
            plan,
            refused: Vec::new(),
            left: Vec::new(),
            changes: 0,
            demoted: Vec::new(),
            elsewhere: Vec::new(),
            status: None,
            unread: None,
            unknown_originals: Vec::new(),
            no_room: None,
            recovered: None,
        }
    }
}
