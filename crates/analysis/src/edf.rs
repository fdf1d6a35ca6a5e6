// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Preemptive EDF on one CPU, with release jitter, arbitrary deadlines and blocking.
//!
//! Exact without blocking for sporadic tasks and for periodic tasks with free offsets (Baruah, Mok,
//! Rosier 1990, by QPA: Zhang, Burns 2009). With blocking b (SRP, Baker 1991) a window of length t
//! bears `max b_k over D_k <= t`, and from the longest deadline on only the b of the task that has
//! it, since then no task of the set is left to hold the rest up. With offsets given, a refused set
//! may be looked at once more by simulation (`offsets`).

use crate::check::check;
use crate::decide::{Answer, verdict};
use crate::demand;
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{Effort, Meter, Stop, Verdict};

/// Does every job meet its deadline under EDF? O(n) a step of QPA, memory O(n).
pub fn test(tasks: &[Task], effort: &Effort) -> Verdict {
    verdict(decide(tasks, effort), tasks, Policy::Edf, effort)
}

pub(crate) fn decide(tasks: &[Task], effort: &Effort) -> Result<Answer, Stop> {
    check(tasks)?;
    let overload = demand::overload(tasks, false, &mut Meter::new(effort))?;
    Ok(overload.map_or(Answer::Fits, |witness| Answer::Fails(vec![witness])))
}
