// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Non-preemptive EDF on one CPU, as Yartek schedules.
//!
//! Jeffay, Stanat, Martel, "On non-preemptive scheduling of periodic and sporadic tasks", RTSS
//! 1991. Deadlines equal to periods, sorted p_1 <= p_2 <= …: schedulable if and only if (1) `sum
//! C_i / p_i <= 1` and (2) for all i and all t with `p_1 < t < p_i`: `t >= C_i + sum over j < i of
//! floor((t - 1) / p_j) C_j`. (Yartek prints (2) with ceilings, a misprint: its own Example 1 would
//! fail.) Exact for sporadic tasks and for periodic tasks with free offsets; sufficient where
//! offsets are given. Only `t = k p_j + 1` need be looked at, where the sum steps; with t' = t - 1
//! this is `dbf(t') + max over p_i > t' + 1 of (C_i - 1) <= t'`, so `demand` searches it, and takes
//! other deadlines than the period (George, Rivierre, Spuri, INRIA RR-2966, 1996), jitter and
//! sections too. With jitter or sections a refusal is shown by replay or is `Unknown`.

use crate::check::check;
use crate::decide::{Answer, verdict};
use crate::demand;
use crate::policy::Policy;
use crate::task::Task;
use crate::verdict::{Effort, Meter, Stop, Verdict};

/// Does every job meet its deadline under non-preemptive EDF? O(n) a step, memory O(n).
pub fn test(tasks: &[Task], effort: &Effort) -> Verdict {
    verdict(decide(tasks, effort), tasks, Policy::NpEdf, effort)
}

pub(crate) fn decide(tasks: &[Task], effort: &Effort) -> Result<Answer, Stop> {
    check(tasks)?;
    let overload = demand::overload(tasks, true, &mut Meter::new(effort))?;
    Ok(overload.map_or(Answer::Fits, |witness| Answer::Fails(vec![witness])))
}
