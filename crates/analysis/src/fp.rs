// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed priorities, preemptive, on one CPU: worst response times with jitter, blocking and
//! arbitrary deadlines.
//!
//! Lehoczky, "Fixed priority scheduling of periodic task sets with arbitrary deadlines", RTSS 1990;
//! jitter: Tindell, Burns, Wellings, Real-Time Systems 6(2), 1994. For job q = 0, 1, … of task i in
//! its busy period `w(q) = (q + 1) C_i + B_i + sum over j more urgent of ceil((w(q) + J_j) / T_j)
//! C_j`, and `R_i = max over q of w(q) - (q T_i - J_i)`, until `w(q) <= (q + 1) T_i - J_i`, when
//! the busy period is over. Where it never is, at a load of 1 with blocking or jitter, all repeats
//! with the hyperperiod H: what arrives in H is work of U H, so that `w(q + H / T_i) <= w(q) + H`
//! if and only if the load is at most 1. Exact for sporadic tasks and for periodic tasks with free
//! offsets. Tasks of equal priority count as more urgent for each other: first come, first served
//! is not worse; then a refusal is shown by replay or is `Unknown`.

use crate::check::check;
use crate::decide::{Answer, verdict};
use crate::demand::{Witness, together};
use crate::levels::{Count, Done, Interference, Levels, WORTH_IT};
use crate::numbers::lcm_wide;
use crate::policy::Policy;
use crate::task::{MAX_TICKS, Task};
use crate::utilisation::Utilisation;
use crate::verdict::{About, Doubt, Effort, Inapplicable, Meter, Stop, Verdict};

/// Ways to miss that are replayed where priorities are equal.
pub(crate) const MOST_WITNESSES: usize = 64;

/// Verdict and worst response times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Analysis {
    pub verdict: Verdict,
    /// From the arrival, in the order of the set. It may be longer than the deadline. `None`: no
    /// bound exists, or the work was used up.
    pub responses_ticks: Vec<Option<u64>>,
}

/// Under `Rm`, `Dm`, `Fp` or `Muf`. O(n) a step of an iteration, memory O(n).
pub fn analyse(tasks: &[Task], policy: Policy, effort: &Effort) -> Analysis {
    let mut responses_ticks = vec![None; tasks.len()];
    let answer = each(tasks, policy, effort, WORTH_IT, |task, bound| {
        responses_ticks[task] = bound;
        true
    });
    if let Ok(Answer::Fails(_)) = &answer {
        let little = Effort { steps: effort.steps / 10, ..*effort };
        if let Ok(Some(ranks)) = policy.ranks(tasks) {
            let ranked = Ranked::of(&ranks);
            late(&ranked, tasks, &little, &mut responses_ticks, |at, row, others, meter| {
                let blocking_ticks = tasks[ranked.order[at]].blocking_ticks;
                let count = others.len() + 1;
                response(row, blocking_ticks, others.iter(), count, UNLIMITED, meter)
            });
        }
    }
    Analysis { verdict: verdict(answer, tasks, policy, effort), responses_ticks }
}

pub fn test(tasks: &[Task], policy: Policy, effort: &Effort) -> Verdict {
    // Of equals each may be the one whose miss the replay shows.
    let mut failed = false;
    let distinct = policy.ranks(tasks).is_ok_and(|ranks| ranks.is_none_or(|all| is_distinct(&all)));
    let answer = each(tasks, policy, effort, WORTH_IT, |_, bound| {
        failed |= bound.is_none();
        !(failed && distinct)
    });
    verdict(answer, tasks, policy, effort)
}

/// Whether no two ranks are equal.
pub(crate) fn is_distinct(ranks: &[u32]) -> bool {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

pub(crate) fn decide(tasks: &[Task], policy: Policy, effort: &Effort) -> Result<Answer, Stop> {
    each(tasks, policy, effort, WORTH_IT, |_, bound| bound.is_some())
}

/// Tasks in the order of urgency, as the iterations want them.
#[derive(Debug)]
pub(crate) struct Ranked {
    /// Indices into the set, most urgent first.
    pub order: Vec<usize>,
    /// By position: one past the last of equal rank. Empty where no two ranks are equal.
    group_end: Vec<usize>,
    pub distinct: bool,
}

impl Ranked {
    pub(crate) fn of(ranks: &[u32]) -> Self {
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by_key(|index| ranks[*index]);
        let same = |first: usize, second: usize| ranks[order[first]] == ranks[order[second]];
        let distinct = (1..order.len()).all(|second| !same(second - 1, second));
        let mut group_end = Vec::new();
        if !distinct {
            group_end = vec![ranks.len(); ranks.len()];
            for at in (0..order.len() - 1).rev() {
                group_end[at] = if same(at, at + 1) { group_end[at + 1] } else { at + 1 };
            }
        }
        Self { order, group_end, distinct }
    }

    /// One past the last that is as urgent as the one at `position`.
    pub(crate) fn group_end(&self, position: usize) -> usize {
        self.group_end.get(position).copied().unwrap_or(position + 1)
    }
}

/// A worst response time, or the first job that exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Response {
    Bound(u64),
    Exceeds { job: u64 },
}

/// `others`: everything at least as urgent.
pub(crate) fn response<'a>(
    task: Interference,
    blocking_ticks: u64,
    others: impl Iterator<Item = &'a Interference> + Clone,
    count: usize,
    limit_ticks: u64,
    meter: &mut Meter,
) -> Result<Response, Doubt> {
    let overflow = Doubt::Overflow { what: "a level's busy period" };
    let mut worst_ticks = 0;
    // q T: arrivals are shifted by the jitter so that none is negative.
    let mut arrival_ticks: u64 = 0;
    let mut own_ticks: u64 = 0;
    // Of each at least one job goes before.
    let once_ticks = others.clone().fold(0_u64, |sum, row| sum.saturating_add(row.cost_ticks));
    let mut done_ticks: u64 = once_ticks.saturating_add(blocking_ticks);
    let mut cycle = Cycle::default();
    let mut first_ticks: u64 = 0;
    for job in 0.. {
        own_ticks = own_ticks.saturating_add(task.cost_ticks);
        let base_ticks = blocking_ticks.saturating_add(own_ticks);
        done_ticks = base_ticks.max(done_ticks.saturating_add(task.cost_ticks));
        loop {
            meter.spend(count + 1, "response times")?;
            if done_ticks.saturating_add(task.jitter_ticks).saturating_sub(arrival_ticks)
                > limit_ticks
            {
                return Ok(Response::Exceeds { job });
            }
            if done_ticks > 4 * MAX_TICKS {
                return Err(overflow);
            }
            let next_ticks = others.clone().fold(base_ticks, |sum, other| {
                let jobs = (done_ticks + other.jitter_ticks).div_ceil(other.period_ticks);
                sum.saturating_add(jobs.saturating_mul(other.cost_ticks))
            });
            if next_ticks == done_ticks {
                break;
            }
            done_ticks = next_ticks;
        }
        worst_ticks =
            worst_ticks.max((done_ticks + task.jitter_ticks).saturating_sub(arrival_ticks));
        if job == 0 {
            first_ticks = done_ticks;
        }
        if done_ticks - first_ticks <= arrival_ticks
            && cycle.ends_at(job, arrival_ticks, task, others.clone())
        {
            return Ok(Response::Bound(worst_ticks));
        }
        arrival_ticks = arrival_ticks.checked_add(task.period_ticks).ok_or(overflow.clone())?;
        if done_ticks.saturating_add(task.jitter_ticks) <= arrival_ticks {
            return Ok(Response::Bound(worst_ticks));
        }
    }
    Err(overflow)
}

/// The hyperperiod of a level, found when a busy period is so long that it may matter.
#[derive(Debug, Default)]
pub(crate) struct Cycle {
    ticks: Option<Option<u64>>,
}

/// Jobs of a busy period that are gone through without it.
const FEW_JOBS: u64 = 8;

impl Cycle {
    /// Whether whole hyperperiods end when this job arrives.
    pub(crate) fn ends_at<'a>(
        &mut self,
        job: u64,
        arrival_ticks: u64,
        task: Interference,
        others: impl Iterator<Item = &'a Interference>,
    ) -> bool {
        if job < FEW_JOBS {
            return false;
        }
        let ticks = *self.ticks.get_or_insert_with(|| cycle_ticks(task, others));
        ticks.is_some_and(|all| arrival_ticks.is_multiple_of(all))
    }
}

/// The hyperperiod of a level, where it fits.
fn cycle_ticks<'a>(
    task: Interference,
    others: impl Iterator<Item = &'a Interference>,
) -> Option<u64> {
    let mut all = u128::from(task.period_ticks);
    for other in others {
        all = lcm_wide(all, u128::from(other.period_ticks))
            .filter(|all| *all <= u128::from(MAX_TICKS))?;
    }
    u64::try_from(all).ok()
}

/// No response is as long: what would be has no bound.
pub(crate) const UNLIMITED: u64 = 2 * MAX_TICKS;

/// Bounds of the tasks that have none yet, by their level without a limit. A level of a load above
/// 1 has none. `bound` is the iteration of the policy, for a position, its row, and the others at
/// least as urgent.
pub(crate) fn late(
    ranked: &Ranked,
    tasks: &[Task],
    effort: &Effort,
    responses_ticks: &mut [Option<u64>],
    bound: impl Fn(usize, Interference, &[Interference], &mut Meter) -> Result<Response, Doubt>,
) {
    let rows: Vec<Interference> =
        ranked.order.iter().map(|index| Interference::of(&tasks[*index])).collect();
    let mut meter = Meter::new(effort);
    for (position, index) in ranked.order.iter().enumerate() {
        let end = ranked.group_end(position);
        if responses_ticks[*index].is_some() {
            continue;
        }
        let pairs = rows[..end].iter().map(|row| (row.cost_ticks, row.period_ticks));
        if Utilisation::sum(pairs).excess().is_some() {
            return;
        }
        let others = [&rows[..position], &rows[position + 1..end]].concat();
        match bound(position, rows[position], &others, &mut meter) {
            Ok(Response::Bound(ticks)) => responses_ticks[*index] = Some(ticks),
            Ok(Response::Exceeds { .. }) => {}
            Err(_) => return,
        }
    }
}

/// Calls `tell` with the response of each task, the most urgent first, until it returns false. From
/// `worth_it` tasks on the levels are gone through in one pass, as far as their first jobs decide.
pub(crate) fn each(
    tasks: &[Task],
    policy: Policy,
    effort: &Effort,
    worth_it: usize,
    mut tell: impl FnMut(usize, Option<u64>) -> bool,
) -> Result<Answer, Stop> {
    check(tasks)?;
    let ranks = policy.ranks(tasks)?.filter(|_| policy.is_preemptive());
    let ranks = ranks.ok_or_else(|| Inapplicable::Set {
        about: About::File,
        key: "",
        what: format!("{policy} is not a policy of preemptive fixed priorities"),
    })?;
    let ranked = Ranked::of(&ranks);
    let rows: Vec<Interference> =
        ranked.order.iter().map(|index| Interference::of(&tasks[*index])).collect();
    let mut meter = Meter::new(effort);
    let mut answer = Answer::Fits;
    let mut failures = 0;
    let mut levels = Levels::new(&rows, Count::Before, worth_it, effort);
    for (position, index) in ranked.order.iter().enumerate() {
        let (task, end) = (&tasks[*index], ranked.group_end(position));
        let others = rows[..position].iter().chain(&rows[position + 1..end.max(position + 1)]);
        let of = |at: usize| &tasks[ranked.order[at]];
        let constant = |at| (of(at).blocking_ticks, 0);
        let limit = |at| limit_of_first_job(of(at));
        let found = match levels.first_job(position, end, constant, limit) {
            Done::At(ticks) => Ok(Response::Bound(ticks + task.jitter_ticks)),
            Done::Later if task.deadline_ticks <= task.period_ticks => {
                Ok(Response::Exceeds { job: 0 })
            }
            _ => {
                let blocking_ticks = task.blocking_ticks;
                let limit_ticks = task.deadline_ticks;
                response(rows[position], blocking_ticks, others, end, limit_ticks, &mut meter)
            }
        };
        let response = match found {
            Ok(response) => response,
            // A refusal stands, whatever the rest would take.
            Err(_) if answer != Answer::Fits => break,
            Err(doubt) => return Err(doubt.into()),
        };
        let bound = match response {
            Response::Bound(ticks) => Some(ticks),
            Response::Exceeds { job } => {
                if answer == Answer::Fits || !ranked.distinct && failures < MOST_WITNESSES {
                    failures += 1;
                    answer.add(witness(tasks, &ranked, position, job));
                }
                None
            }
        };
        if !tell(*index, bound) {
            break;
        }
    }
    Ok(answer)
}

/// The latest end of a first job that meets its deadline before the next job arrives. Then its busy
/// period is over. Until then its own row counts one job in the pass over the levels, as it does in
/// the iteration, so that one has a fixed point where the other has.
pub(crate) fn limit_of_first_job(task: &Task) -> u64 {
    task.period_ticks.min(task.deadline_ticks).saturating_sub(task.jitter_ticks)
}

/// Everything at least as urgent released together with the task, as late after arrival as jitter
/// allows; equal ones first.
fn witness(tasks: &[Task], ranked: &Ranked, position: usize, job: u64) -> Witness {
    let index = ranked.order[position];
    let task = &tasks[index];
    let urgent = &ranked.order[..ranked.group_end(position)];
    let at_ticks = urgent.iter().map(|index| tasks[*index].jitter_ticks).max().unwrap_or(0);
    let mut member = vec![false; tasks.len()];
    for index in urgent {
        member[*index] = true;
    }
    let mut pattern = together(tasks, at_ticks, |other| member[other] && other != index);
    let mut own = together(tasks, at_ticks, |other| other == index);
    for start in &mut own {
        start.held_up_ticks = task.blocking_ticks;
    }
    pattern.append(&mut own);
    let arrival_ticks =
        (at_ticks - task.jitter_ticks).checked_add(job.saturating_mul(task.period_ticks));
    // A jitter longer than the deadline releases the job after it.
    let by_ticks = arrival_ticks
        .and_then(|arrival| arrival.checked_add(task.deadline_ticks))
        .map(|by| by.max(at_ticks));
    Witness { pattern, by_ticks, proof: task.blocking_ticks == 0 && ranked.distinct }
}
