// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed priorities, non-preemptive, on one CPU (or messages on a CAN bus).
//!
//! Davis, Burns, Bril, Lukkien, "Controller Area Network (CAN) schedulability analysis: refuted,
//! revisited and revised", Real-Time Systems 35(3), 2007. Job q of task i starts at the latest at
//! the least `w(q) = B_i + q C_i + sum over j more urgent of (floor((w(q) + J_j) / T_j) + 1) C_j`;
//! `R_i = J_i + max over q of w(q) - q T_i + C_i`, over all q of the busy period. Looking at q = 0
//! only was Tindell's error that the paper corrects. With whole nanoseconds a less urgent job has
//! at most C - 1 left, so that `B_i = max over less urgent of (C_k - 1)`, which the paper, in
//! continuous time, rounds to C_k: the answer is then exact, not only sufficient. The task's own
//! `blocking_ticks` counts where it is longer.

use crate::check::check;
use crate::decide::{Answer, verdict};
use crate::demand::{Witness, together};
use crate::fp::{
    Analysis, Cycle, MOST_WITNESSES, Ranked, Response, UNLIMITED, is_distinct, late,
    limit_of_first_job,
};
use crate::levels::{Count, Done, Interference, Levels, WORTH_IT};
use crate::policy::Policy;
use crate::task::{MAX_TICKS, Task};
use crate::utilisation::is_above_one;
use crate::verdict::{About, Doubt, Effort, Inapplicable, Meter, Start, Stop, Verdict};

/// Verdict and worst response times; priorities as given.
pub fn analyse(tasks: &[Task], effort: &Effort) -> Analysis {
    let mut responses_ticks = vec![None; tasks.len()];
    let answer = each(tasks, effort, WORTH_IT, |task, bound| {
        responses_ticks[task] = bound;
        true
    });
    if let Ok(Answer::Fails(_)) = &answer {
        let little = Effort { steps: effort.steps / 10, ..*effort };
        if let Ok(Some(ranks)) = Policy::NpFp.ranks(tasks) {
            let ranked = Ranked::of(&ranks);
            let blocks = blocks(tasks, &ranked);
            late(&ranked, tasks, &little, &mut responses_ticks, |at, row, others, meter| {
                let count = others.len() + 1;
                response(row, blocks[at].ticks(), others.iter(), count, UNLIMITED, meter)
            });
        }
    }
    Analysis { verdict: verdict(answer, tasks, Policy::NpFp, effort), responses_ticks }
}

pub fn test(tasks: &[Task], effort: &Effort) -> Verdict {
    let mut failed = false;
    let ranks = Policy::NpFp.ranks(tasks);
    let distinct = ranks.is_ok_and(|ranks| ranks.is_none_or(|all| is_distinct(&all)));
    let answer = each(tasks, effort, WORTH_IT, |_, bound| {
        failed |= bound.is_none();
        !(failed && distinct)
    });
    verdict(answer, tasks, Policy::NpFp, effort)
}

pub(crate) fn decide(tasks: &[Task], effort: &Effort) -> Result<Answer, Stop> {
    each(tasks, effort, WORTH_IT, |_, bound| bound.is_some())
}

/// What keeps a task from the CPU although it is less urgent.
#[derive(Debug, Clone, Copy)]
enum Block {
    Nothing,
    Job(usize, u64),
    Section(u64),
}

impl Block {
    const fn ticks(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Job(_, ticks) | Self::Section(ticks) => ticks,
        }
    }
}

/// `others`: everything at least as urgent but the task itself.
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
    let mut arrival_ticks: u64 = 0;
    // Of each at least one job goes before.
    let once_ticks = others.clone().fold(0_u64, |sum, row| sum.saturating_add(row.cost_ticks));
    let mut start_ticks: u64 = once_ticks.saturating_add(blocking_ticks);
    let mut before_ticks: u64 = 0;
    let mut cycle = Cycle::default();
    let mut first_ticks: u64 = 0;
    for job in 0.. {
        let base_ticks = blocking_ticks.saturating_add(before_ticks);
        start_ticks = start_ticks.max(base_ticks);
        // The first release of another after the start.
        let release_ticks = loop {
            meter.spend(count + 1, "response times")?;
            let done_ticks =
                start_ticks.saturating_add(task.cost_ticks).saturating_add(task.jitter_ticks);
            if done_ticks.saturating_sub(arrival_ticks) > limit_ticks {
                return Ok(Response::Exceeds { job });
            }
            if start_ticks > 4 * MAX_TICKS {
                return Err(overflow);
            }
            let (mut next_ticks, mut release_ticks) = (base_ticks, u64::MAX);
            for other in others.clone() {
                let jobs = (start_ticks + other.jitter_ticks) / other.period_ticks + 1;
                next_ticks = next_ticks.saturating_add(jobs.saturating_mul(other.cost_ticks));
                release_ticks = release_ticks.min(jobs * other.period_ticks - other.jitter_ticks);
            }
            if next_ticks == start_ticks {
                break release_ticks;
            }
            start_ticks = next_ticks;
        };
        if job > 0 && start_ticks.saturating_add(task.jitter_ticks) < arrival_ticks {
            // Everything was done before this job arrives.
            return Ok(Response::Bound(worst_ticks));
        }
        let done_ticks = start_ticks + task.cost_ticks;
        worst_ticks =
            worst_ticks.max((done_ticks + task.jitter_ticks).saturating_sub(arrival_ticks));
        if job == 0 {
            first_ticks = start_ticks;
        }
        if start_ticks - first_ticks <= arrival_ticks
            && cycle.ends_at(job, arrival_ticks, task, others.clone())
        {
            // All repeats, as in `fp`.
            return Ok(Response::Bound(worst_ticks));
        }
        before_ticks = before_ticks.saturating_add(task.cost_ticks);
        arrival_ticks = arrival_ticks.checked_add(task.period_ticks).ok_or(overflow.clone())?;
        // The busy period is over: the next job arrives later, and none came meanwhile.
        if done_ticks.saturating_add(task.jitter_ticks) <= arrival_ticks
            && release_ticks >= done_ticks
        {
            return Ok(Response::Bound(worst_ticks));
        }
    }
    Err(overflow)
}

/// As `each` of `fp`. Where the busy period with the task's own job is over before its next one
/// arrives, the first job decides.
pub(crate) fn each(
    tasks: &[Task],
    effort: &Effort,
    worth_it: usize,
    mut tell: impl FnMut(usize, Option<u64>) -> bool,
) -> Result<Answer, Stop> {
    check(tasks)?;
    let ranks = Policy::NpFp.ranks(tasks)?;
    let ranks = ranks.ok_or_else(|| Inapplicable::Set {
        about: About::File,
        key: "",
        what: "np-fp needs priorities".to_owned(),
    })?;
    let ranked = Ranked::of(&ranks);
    let rows: Vec<Interference> =
        ranked.order.iter().map(|index| Interference::of(&tasks[*index])).collect();
    let blocks = blocks(tasks, &ranked);
    let mut meter = Meter::new(effort);
    let mut answer = Answer::Fits;
    let mut failures = 0;
    let mut ends = Levels::new(&rows, Count::Before, worth_it, effort);
    let mut starts = Levels::new(&rows, Count::At, worth_it, effort);
    for (position, index) in ranked.order.iter().enumerate() {
        let (task, end) = (&tasks[*index], ranked.group_end(position));
        let others = rows[..position].iter().chain(&rows[position + 1..end.max(position + 1)]);
        let block = blocks[position];
        let of = |at: usize| &tasks[ranked.order[at]];
        let busy = |at: usize| (blocks[at].ticks(), 0);
        let until_next = |at: usize| of(at).period_ticks.saturating_sub(of(at).jitter_ticks);
        let before = |at: usize| (blocks[at].ticks(), rows[at].cost_ticks);
        let latest = |at: usize| limit_of_first_job(of(at)).saturating_sub(rows[at].cost_ticks);
        let mut is_over = || ends.first_job(position, end, busy, until_next);
        let found = match starts.first_job(position, end, before, latest) {
            Done::At(start_ticks) if matches!(is_over(), Done::At(_)) => {
                let ticks = start_ticks + rows[position].cost_ticks + task.jitter_ticks;
                let is_late = ticks > task.deadline_ticks;
                Ok(if is_late { Response::Exceeds { job: 0 } } else { Response::Bound(ticks) })
            }
            Done::Later if task.deadline_ticks <= task.period_ticks => {
                Ok(Response::Exceeds { job: 0 })
            }
            _ => {
                let limit_ticks = task.deadline_ticks;
                response(rows[position], block.ticks(), others, end, limit_ticks, &mut meter)
            }
        };
        let response = match found {
            Ok(response) => response,
            Err(_) if answer != Answer::Fits => break,
            Err(doubt) => return Err(doubt.into()),
        };
        let bound = match response {
            Response::Bound(ticks) => Some(ticks),
            Response::Exceeds { job } => {
                if answer == Answer::Fits || !ranked.distinct && failures < MOST_WITNESSES {
                    failures += 1;
                    answer.add(witness(tasks, &ranked, position, job, block));
                }
                None
            }
        };
        if !tell(*index, bound) {
            break;
        }
    }
    // A level below everything is never asked whether it is over 1; the levels above answered with
    // bounds.
    debug_assert!(answer != Answer::Fits || !is_above_one(tasks), "bounds at more than full load");
    Ok(answer)
}

/// By position in the order of urgency.
fn blocks(tasks: &[Task], ranked: &Ranked) -> Vec<Block> {
    let mut blocks = vec![Block::Nothing; tasks.len()];
    let mut longest: Option<usize> = None;
    let mut end = tasks.len();
    while end > 0 {
        // A whole group of equals sees what is below the group.
        let is_of_group = |at: &usize| ranked.group_end(*at) == end;
        let start = (0..end).rev().take_while(is_of_group).last().unwrap_or(end - 1);
        let below = longest.map(|index| (index, tasks[index].cost_ticks() - 1));
        for (index, block) in ranked.order[start..end].iter().zip(&mut blocks[start..end]) {
            let section_ticks = tasks[*index].blocking_ticks;
            *block = match below {
                Some((job, ticks)) if ticks > 0 && ticks >= section_ticks => Block::Job(job, ticks),
                _ if section_ticks > 0 => Block::Section(section_ticks),
                _ => Block::Nothing,
            };
            if longest.is_none_or(|known| tasks[known].cost_ticks() < tasks[*index].cost_ticks()) {
                longest = Some(*index);
            }
        }
        end = start;
    }
    blocks
}

fn witness(tasks: &[Task], ranked: &Ranked, position: usize, job: u64, block: Block) -> Witness {
    let index = ranked.order[position];
    let task = &tasks[index];
    let urgent = &ranked.order[..ranked.group_end(position)];
    let jitter_ticks = urgent.iter().map(|index| tasks[*index].jitter_ticks).max().unwrap_or(0);
    let at_ticks = jitter_ticks + u64::from(matches!(block, Block::Job(..)));
    let mut member = vec![false; tasks.len()];
    for index in urgent {
        member[*index] = true;
    }
    let mut pattern = together(tasks, at_ticks, |other| member[other] && other != index);
    let mut own = together(tasks, at_ticks, |other| other == index);
    match block {
        Block::Job(task, _) => {
            pattern.insert(
                0,
                Start {
                    task,
                    arrival_ticks: at_ticks - 1,
                    release_ticks: at_ticks - 1,
                    held_up_ticks: 0,
                },
            );
        }
        Block::Section(ticks) => own.iter_mut().for_each(|start| start.held_up_ticks = ticks),
        Block::Nothing => {}
    }
    pattern.append(&mut own);
    let arrival_ticks =
        (at_ticks - task.jitter_ticks).checked_add(job.saturating_mul(task.period_ticks));
    // A jitter longer than the deadline releases the job after it.
    let by_ticks = arrival_ticks
        .and_then(|arrival| arrival.checked_add(task.deadline_ticks))
        .map(|by| by.max(at_ticks));
    let sections = matches!(block, Block::Section(_));
    Witness {
        pattern,
        by_ticks,
        proof: !sections && ranked.distinct && tasks.iter().all(|task| task.jitter_ticks == 0),
    }
}
