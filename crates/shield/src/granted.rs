// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which requests a [`Grant`] allows. Its user makes partitions that end with one of the user's
//! processes, and brings processes of the user into them; nothing else. Pure.

use crate::grant::Grant;
use crate::partition::{Partition, Refusal, State, Tick};
use crate::request::{Request, Spec};

/// May its user ask for this, in this state? Errors: `NotGranted`, `NoPartition`.
pub(crate) fn check(grant: &Grant, state: &State, request: &Request) -> Result<(), Refusal> {
    match request {
        Request::Run { spec, owner: Some(_), .. } => {
            check_spec(grant, spec)?;
            // Whatever the grants were under which they were made: the file may be another one now.
            let has = |one: &&Partition| {
                one.is_of_user(grant.uid) && one.shielded().intersects(&grant.cpus)
            };
            match state.partitions.iter().filter(has).count() < grant.partitions {
                true => Ok(()),
                false => Err(grant.lacks("one more partition")),
            }
        }
        Request::Exec { name, .. } | Request::EndRun { name, .. } => {
            match state.partition(name)?.is_of_user(grant.uid) {
                true => Ok(()),
                false => Err(grant.lacks(format!("partition {name}"))),
            }
        }
        _ => Err(grant.lacks("such a change")),
    }
}

fn check_spec(grant: &Grant, spec: &Spec) -> Result<(), Refusal> {
    if !spec.irqs.is_empty() || spec.irq_priority.is_some() {
        return Err(grant.lacks("an IRQ line"));
    }
    // It changes how every task of the machine is scheduled.
    if !spec.mode.is_isolated() {
        return Err(grant.lacks("to share CPUs (--share)"));
    }
    // Other changes would wait for the ticks to be counted.
    if spec.tick == Tick::RequireOff {
        return Err(grant.lacks("to count ticks (--tick require-off)"));
    }
    Ok(())
}
