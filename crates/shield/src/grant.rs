// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a user who is not root may do: a part of the machine that its administrator has granted.
//! Pure.
//!
//! A request of such a user carries the grant ([`Caller::granted`]), and a partition that was made
//! under one keeps it. Which requests it allows: `granted.rs`.
//!
//! [`Caller::granted`]: crate::Caller::granted

use crate::partition::{Partition, Refusal};
use asmp_host::{CpuSet, Schedule};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The CPUs that one user may shield, and the limits of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub uid: u32,
    /// All that a partition may shield, SMT siblings included.
    pub cpus: CpuSet,
    /// The highest policy: `other`, `fifo:N` or `rr:N`.
    #[serde(with = "crate::text")]
    pub policy: Schedule,
    /// Partitions at a time under this grant: those of this user and these CPUs.
    pub partitions: usize,
    /// When a partition ends, in seconds since 1970-01-01 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_s: Option<u64>,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { uid, cpus, policy, partitions, .. } = self;
        write!(f, "user {uid} may use CPU {cpus} with at most {policy}")?;
        match partitions {
            1 => write!(f, ", in one partition"),
            many => write!(f, ", in at most {many} partitions"),
        }
    }
}

impl Grant {
    /// Does it let a task have this policy?
    pub const fn covers(&self, policy: &Schedule) -> bool {
        match (policy, &self.policy) {
            (Schedule::Other { nice } | Schedule::Batch { nice }, _) => *nice >= 0,
            (Schedule::Idle, _) => true,
            (Schedule::Fifo { priority: asked }, Schedule::Fifo { priority: most })
            | (
                Schedule::Rr { priority: asked },
                Schedule::Fifo { priority: most } | Schedule::Rr { priority: most },
            ) => *asked <= *most,
            _ => false,
        }
    }

    /// The refusal of what it does not cover.
    pub fn lacks(&self, what: impl Into<String>) -> Refusal {
        Refusal::NotGranted { what: what.into(), granted: self.to_string() }
    }

    /// Does it cover all CPUs that this partition takes? Errors: `NotGranted`.
    pub(crate) fn allows_cpus(&self, partition: &Partition) -> Result<(), Refusal> {
        let beyond = partition.cpus.difference(&self.cpus);
        if !beyond.is_empty() {
            return Err(self.lacks(format!("CPU {beyond}")));
        }
        let siblings = partition.idle_cpus.difference(&self.cpus);
        match siblings.is_empty() {
            true => Ok(()),
            false => Err(self.lacks(format!("CPU {siblings}, which shares a core with it"))),
        }
    }
}

impl Partition {
    /// Was it made for this user, who is not root?
    pub fn is_of_user(&self, uid: u32) -> bool {
        self.granted.as_ref().is_some_and(|grant| grant.uid == uid)
    }
}
