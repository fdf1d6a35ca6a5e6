// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Releases to simulate: the counterexample of a test, or what is worst for the tightest task; and
//! pictures of them.

use crate::analyse::schedulability;
use crate::chain::by_core;
use crate::policy::Policy;
use crate::report::Report;
use crate::simulate::engine::{Job, Observe};
use crate::simulate::gantt::gantt_svg;
use crate::simulate::model::{Owner, Releases, Simulation};
use crate::simulate::pattern::worst_pattern;
use crate::simulate::record::Record;
use crate::simulate::run::Run;
use crate::task::Task;
use crate::time::TimeBase;
use crate::verdict::{Counterexample, Effort, Start, Stop, Verdict};
use crate::workload::Workload;
use crate::{edf_response, fp, np_fp};
use std::ops::ControlFlow;

/// Segments of a picture.
const DRAWN: usize = 20_000;

/// Why a counterexample is not one of these tasks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the counterexample releases no job")]
    Empty,
    #[error("the counterexample releases task {task}, but the file has {tasks} tasks from 0 on")]
    NoTask { task: usize, tasks: usize },
    #[error(
        "task {task} ({name}): released before its arrival, later than its jitter, or held up \
         longer than its blocking; is the counterexample from another file?"
    )]
    NotAllowed { task: usize, name: String },
}

impl Counterexample {
    /// Errors: the tasks do not allow these releases.
    pub fn check(&self, tasks: &[Task]) -> Result<(), Mismatch> {
        if self.pattern.is_empty() {
            return Err(Mismatch::Empty);
        }
        for start in &self.pattern {
            let number = start.task;
            let missing = Mismatch::NoTask { task: number, tasks: tasks.len() };
            let task = tasks.get(number).ok_or(missing)?;
            let late_ticks = start.release_ticks.checked_sub(start.arrival_ticks);
            if late_ticks.is_none_or(|late_ticks| late_ticks > task.jitter_ticks)
                || start.held_up_ticks > task.blocking_ticks
            {
                return Err(Mismatch::NotAllowed { task: number, name: task.name.clone() });
            }
        }
        Ok(())
    }
}

/// Releases on one CPU: the counterexample of the first CPU that has one, else what is worst for
/// the task with the least room. Errors: sets that the tests do not take.
pub fn worst_releases(tasks: &[Task], policy: Policy, effort: &Effort) -> Result<Vec<Start>, Stop> {
    let mut tightest: Option<(u64, Vec<Start>)> = None;
    for members in by_core(tasks).values() {
        let set: Vec<Task> = members.iter().map(|index| tasks[*index].clone()).collect();
        let verdict = schedulability(&set, policy, effort).numbered_by(members);
        if let Some(found) = verdict.counterexample() {
            return Ok(found.pattern.clone());
        }
        let (left_ticks, mut pattern) = of_tightest(&set, policy, effort)?;
        if tightest.as_ref().is_none_or(|(least_ticks, _)| left_ticks < *least_ticks) {
            pattern.iter_mut().for_each(|start| start.task = members[start.task]);
            tightest = Some((left_ticks, pattern));
        }
    }
    Ok(tightest.map_or_else(Vec::new, |(_, pattern)| pattern))
}

/// How much room the task with least has, and the pattern that is worst for it.
fn of_tightest(tasks: &[Task], policy: Policy, effort: &Effort) -> Result<(u64, Vec<Start>), Stop> {
    let responses = match policy {
        Policy::NpEdf | Policy::Edf => {
            let all = edf_response::responses(tasks, policy == Policy::NpEdf, effort);
            all.map_or_else(|_| Vec::new(), |all| all.into_iter().map(Some).collect())
        }
        Policy::NpFp => np_fp::analyse(tasks, effort).responses_ticks,
        Policy::Rm | Policy::Dm | Policy::Fp | Policy::Muf => {
            fp::analyse(tasks, policy, effort).responses_ticks
        }
    };
    let left = |at: usize| {
        let response = responses.get(at).copied().flatten();
        response.map_or(0, |ticks| tasks[at].deadline_ticks.saturating_sub(ticks))
    };
    let (left_ticks, victim) = (0..tasks.len()).map(|at| (left(at), at)).min().unwrap_or((0, 0));
    Ok((left_ticks, worst_pattern(tasks, policy, victim)?))
}

/// The first CPU that is not schedulable, else the first, as an SVG: its counterexample, or what is
/// worst for the task with the least room, which for chains is not known: there everything is
/// released together. `None`: the report has no CPU. Errors: what `Run::prepare` refuses.
pub fn worst_schedule_svg(workload: &Workload, report: &Report) -> Result<Option<String>, Stop> {
    let failing = report.cpus.iter().find(|cpu| cpu.verdict.is_not_schedulable());
    let Some(cpu) = failing.or(report.cpus.first()) else { return Ok(None) };
    if let Verdict::DoesNotApply { reason } = &cpu.verdict {
        return Err(reason.clone().into());
    }
    let tasks = workload.tasks_in_chains();
    let alone = |index: &usize| Task { core: None, ..tasks[*index].clone() };
    let set: Vec<Task> = cpu.tasks.iter().map(alone).collect();
    // With chains it is no run of this CPU alone.
    let found = cpu.verdict.counterexample().filter(|_| workload.chains.is_empty());
    let (releases, until_ticks, title) = match found {
        Some(found) => {
            let end = found.missed.and_then(|missed| missed.finished_ticks).or(found.by_ticks);
            let second_ticks = workload.time.ticks_per_ns().saturating_mul(1_000_000_000);
            let end = end.unwrap_or(second_ticks);
            let here = |start: &Start| {
                let task = cpu.tasks.iter().position(|index| *index == start.task)?;
                Some(Start { task, ..*start })
            };
            let pattern = found.pattern.iter().filter_map(here).collect();
            let title = "a deadline is missed".to_owned();
            (Releases::Pattern(pattern), with_some_more(end), title)
        }
        None if cpu.in_chains || set.is_empty() => {
            let longest = set.iter().map(|task| task.period_ticks).max().unwrap_or(1);
            let title = "everything released together, which need not be the worst";
            (Releases::Together, longest.saturating_mul(2), title.to_owned())
        }
        None => {
            let victim = cpu.by_tightness(&tasks).first().copied().unwrap_or(0);
            let pattern = worst_pattern(&set, report.policy, victim)?;
            let shown_ticks = shown_ticks(&set, victim, &pattern);
            let releases = Releases::Pattern(pattern);
            let response_ticks = cpu.responses_ticks.get(victim).copied().flatten();
            let due_ticks = match response_ticks {
                Some(ticks) => {
                    let simulation = Simulation::new(&set, report.policy, releases.clone());
                    longest_due_ticks(&simulation, victim, ticks)?
                }
                None => None,
            };
            let until_ticks = shown_ticks.max(due_ticks.map_or(0, with_some_more));
            (releases, until_ticks, format!("the worst case of {}", set[victim].name))
        }
    };
    let simulation = Simulation::new(&set, report.policy, releases);
    let title = format!("{}: {title}", report.policy);
    schedule_svg(&simulation, until_ticks, &title, workload.time).map(Some)
}

/// Until the deadlines of the victim's first jobs, and of the first of every task that is not much
/// longer.
fn shown_ticks(tasks: &[Task], victim: usize, pattern: &[Start]) -> u64 {
    let due = |start: &Start| start.arrival_ticks.saturating_add(tasks[start.task].deadline_ticks);
    let of_victim = pattern.iter().filter(|start| start.task == victim).map(due).max();
    let of_victim = of_victim.unwrap_or(1);
    let near = pattern.iter().map(due).filter(|due| *due <= of_victim.saturating_mul(3));
    with_some_more(near.max().unwrap_or(0).max(of_victim))
}

/// So that an instant is not at the edge of the picture.
const fn with_some_more(ticks: u64) -> u64 {
    ticks.saturating_add(ticks / 20 + 1)
}

/// When the first job of a task is due that takes as long as its bound: not always its first.
/// `None`: none of those that may be drawn. Errors: what `Run::prepare` refuses.
fn longest_due_ticks(
    simulation: &Simulation,
    task: usize,
    response_ticks: u64,
) -> Result<Option<u64>, Stop> {
    let mut run = Run::prepare(simulation)?;
    let stream = run.owners.iter().position(|owner| *owner == Owner::Task(task));
    let Some(stream) = stream else { return Ok(None) };
    let mut longest = Longest { stream, response_ticks, due_ticks: None };
    run.go(u64::MAX, DRAWN as u64, &mut longest);
    Ok(longest.due_ticks)
}

/// Stops at the first job of a stream that takes so long.
struct Longest {
    stream: usize,
    response_ticks: u64,
    due_ticks: Option<u64>,
}

impl Observe for Longest {
    fn finished(&mut self, job: &Job, at_ticks: u64) -> ControlFlow<()> {
        if job.stream() != self.stream || at_ticks - job.arrival_ticks < self.response_ticks {
            return ControlFlow::Continue(());
        }
        self.due_ticks = job.deadline_ticks;
        ControlFlow::Break(())
    }
}

/// Simulates up to an instant and draws it as an SVG, at most 20,000 segments. Errors: what
/// `Run::prepare` refuses.
pub fn schedule_svg(
    simulation: &Simulation,
    until_ticks: u64,
    title: &str,
    time: TimeBase,
) -> Result<String, Stop> {
    let mut run = Run::prepare(simulation)?;
    let mut record = Record::up_to(DRAWN);
    run.go(until_ticks, DRAWN as u64, &mut record);
    Ok(gantt_svg(&run, &record, until_ticks, title, time))
}
