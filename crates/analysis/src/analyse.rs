// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The front door: which test answers for which policy, and how CPUs and chains combine.

use crate::budgets::{Budget, budgets};
use crate::chain::Chain;
use crate::deadline::{Admission, Domain, admission};
use crate::holistic::{ChainBound, Holistic, holistic};
use crate::overload::refusal;
use crate::place::{By, place};
use crate::policy::Policy;
use crate::report::{CpuReport, Report};
use crate::sampled::{self, SampledChain};
use crate::slack::{SEARCHED, Slack, slack};
use crate::task::Task;
use crate::utilisation::Utilisation;
use crate::verdict::{About, Effort, Inapplicable, Stop, Verdict};
use crate::workload::Workload;
use crate::{data_age, edf, edf_response, fp, np_edf, np_fp};

/// Does every job of these tasks on one CPU meet its deadline under this policy? The test is the
/// exact one of the policy, where there is one. At most `effort`.
pub fn schedulability(tasks: &[Task], policy: Policy, effort: &Effort) -> Verdict {
    match policy {
        Policy::NpEdf => np_edf::test(tasks, effort),
        Policy::Edf => edf::test(tasks, effort),
        Policy::NpFp => np_fp::test(tasks, effort),
        Policy::Rm | Policy::Dm | Policy::Fp | Policy::Muf => fp::test(tasks, policy, effort),
    }
}

/// Everything that is known of a workload under one policy: verdicts, response times and how much
/// each cost may grow. Tasks are on the cores that they name. Worst-fit places those that name none
/// on `cpus`; without a choice they share one CPU. What the tests would ignore makes each verdict
/// "does not apply". Takes a multiple of `effort` for each CPU.
pub fn analyse(workload: &Workload, policy: Policy, cpus: &[u32], effort: &Effort) -> Report {
    report(workload, policy, cpus, effort, Depth::Tasks)
}

/// The verdicts of [`analyse`] in a small part of its time. Leaves out by how much each cost may
/// grow, and under EDF the response times, unless a sampled chain has a limit.
pub fn analyse_briefly(
    workload: &Workload,
    policy: Policy,
    cpus: &[u32],
    effort: &Effort,
) -> Report {
    let is_sampled = workload.sampled.iter().any(SampledChain::has_limit);
    let depth = if is_sampled { Depth::Responses } else { Depth::Verdict };
    report(workload, policy, cpus, effort, depth)
}

/// What is asked for beside verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    Verdict,
    Responses,
    /// Room of each task, too.
    Tasks,
}

fn report(
    workload: &Workload,
    policy: Policy,
    cpus: &[u32],
    effort: &Effort,
    depth: Depth,
) -> Report {
    let tasks = &workload.tasks_in_chains();
    if let Err(reason) = workload.check_analysable(cpus) {
        return refused(workload, policy, reason);
    }
    let mut unplaced = Vec::new();
    let mut groups: Vec<(Option<u32>, Vec<usize>)> = Vec::new();
    let is_placed = workload.is_placed(cpus);
    let placement =
        is_placed.then(|| place(tasks, cpus, By::WorstFit, policy, &workload.room, effort));
    match placement {
        Some(Ok(placement)) => {
            groups.extend(placement.loads.into_iter().map(|load| (Some(load.cpu), load.tasks)));
            unplaced.extend(placement.unplaced.into_iter().map(|unplaced| unplaced.task));
        }
        Some(Err(_)) | None => groups.extend(crate::chain::by_core(tasks)),
    }
    groups.retain(|(_, members)| !members.is_empty());
    if groups.is_empty() && unplaced.is_empty() {
        groups.push((None, Vec::new()));
    }
    let chained = !workload.chains.is_empty();
    let holistic = chained.then(|| holistic(tasks, &workload.chains, policy, effort));
    let cpus = groups.into_iter().map(|(cpu, members)| match &holistic {
        None => on_cpu(tasks, cpu, members, policy, (effort, depth)),
        Some(holistic) => {
            let mut report = with_chains(tasks, cpu, members, holistic);
            if !matches!(report.verdict, Verdict::DoesNotApply { .. })
                && let Some(no) = refusal(tasks, &workload.chains, policy, &report.tasks, effort)
            {
                report.verdict = no;
            }
            report
        }
    });
    let mut cpus: Vec<CpuReport> = cpus.collect();
    let chains = match holistic {
        None => Vec::new(),
        Some(Ok(holistic)) => holistic.chains,
        Some(Err(stop)) => unbounded(&workload.chains, &Verdict::from(stop)),
    };
    let sampled = data_age::bounds(tasks, &workload.chains, &workload.sampled, policy, &cpus);
    if workload.sampled.iter().any(SampledChain::has_limit) {
        cpus.iter_mut().for_each(CpuReport::forget_room);
    }
    Report { policy, cpus, chains, sampled, unplaced }
}

/// No test applies to the workload.
fn refused(workload: &Workload, policy: Policy, reason: Inapplicable) -> Report {
    let count = workload.tasks.len();
    let verdict = Verdict::DoesNotApply { reason };
    let chains = unbounded(&workload.chains, &verdict);
    let sampled = sampled::unbounded(&workload.sampled, &verdict);
    let all = CpuReport {
        cpu: None,
        tasks: (0..count).collect(),
        utilisation: Utilisation::of(&workload.tasks).approximate(),
        verdict,
        responses_ticks: vec![None; count],
        extra_ticks: vec![None; count],
        factor_ppm: None,
        in_chains: workload.first_chain().is_some(),
    };
    Report { policy, cpus: vec![all], chains, sampled, unplaced: Vec::new() }
}

fn unbounded(chains: &[Chain], verdict: &Verdict) -> Vec<ChainBound> {
    let bound = |chain: &Chain| ChainBound {
        name: chain.name.clone(),
        deadline_ticks: chain.deadline_ticks,
        end_to_end_ticks: None,
        stages_ticks: vec![None; chain.tasks.len()],
        verdict: verdict.clone(),
    };
    chains.iter().map(bound).collect()
}

fn subset(tasks: &[Task], members: &[usize]) -> Vec<Task> {
    members.iter().map(|index| tasks[*index].clone()).collect()
}

/// A CPU of a workload with chains: responses hold with the jitter that chains bring, and all CPUs
/// stand or fall together.
fn with_chains(
    tasks: &[Task],
    cpu: Option<u32>,
    members: Vec<usize>,
    holistic: &Result<Holistic, Stop>,
) -> CpuReport {
    let responses_ticks = match holistic {
        Ok(holistic) => members.iter().map(|index| holistic.responses_ticks[*index]).collect(),
        Err(_) => vec![None; members.len()],
    };
    let verdict = match holistic {
        Ok(holistic) => {
            let failed = holistic.chains.iter().find(|chain| !chain.verdict.is_schedulable());
            failed.map_or(Verdict::Schedulable, |chain| chain.verdict.clone())
        }
        Err(stop) => stop.clone().into(),
    };
    CpuReport {
        cpu,
        utilisation: Utilisation::of(&subset(tasks, &members)).approximate(),
        verdict,
        responses_ticks,
        extra_ticks: vec![None; members.len()],
        factor_ppm: None,
        in_chains: true,
        tasks: members,
    }
}

fn on_cpu(
    tasks: &[Task],
    cpu: Option<u32>,
    members: Vec<usize>,
    policy: Policy,
    (effort, depth): (&Effort, Depth),
) -> CpuReport {
    let set = subset(tasks, &members);
    let (verdict, responses_ticks) = match policy {
        Policy::NpEdf | Policy::Edf if depth == Depth::Verdict => {
            (schedulability(&set, policy, effort), vec![None; set.len()])
        }
        Policy::NpEdf | Policy::Edf => {
            let little = Effort { steps: effort.steps / 10, ..*effort };
            let found = edf_response::responses(&set, policy == Policy::NpEdf, &little);
            let none = |_| vec![None; set.len()];
            let known = found.map_or_else(none, |all| all.into_iter().map(Some).collect());
            (schedulability(&set, policy, effort), known)
        }
        Policy::NpFp => {
            let analysis = np_fp::analyse(&set, effort);
            (analysis.verdict, analysis.responses_ticks)
        }
        Policy::Rm | Policy::Dm | Policy::Fp | Policy::Muf => {
            let analysis = fp::analyse(&set, policy, effort);
            (analysis.verdict, analysis.responses_ticks)
        }
    };
    let searched = if depth == Depth::Tasks { SEARCHED } else { 0 };
    let room = slack(&set, policy, searched, effort)
        .unwrap_or_else(|_| Slack { factor_ppm: None, extra_ticks: vec![None; set.len()] });
    CpuReport {
        cpu,
        utilisation: Utilisation::of(&set).approximate(),
        verdict: verdict.numbered_by(&members),
        responses_ticks,
        extra_ticks: room.extra_ticks,
        factor_ppm: room.factor_ppm,
        in_chains: false,
        tasks: members,
    }
}

/// What SCHED_DEADLINE does with a workload on a root domain of one kernel. The kernel counts each
/// task's own deadline from its wake-up, so chains have no verdict. Errors: sets that
/// `sched_setattr` refuses with EINVAL, and times that are not whole nanoseconds.
pub fn kernel_admission(
    workload: &Workload,
    domain: &Domain,
    effort: &Effort,
) -> Result<Admission, Verdict> {
    let refused = |reason| Verdict::DoesNotApply { reason };
    workload.check_deadline_cores(domain.cpus).map_err(refused)?;
    let tasks = in_whole_ns(workload).map_err(refused)?;
    let mut admission = admission(&tasks, &workload.room, domain, effort).map_err(Verdict::from)?;
    if let Err(reason) = workload.check_room_of_any(domain.cpus) {
        admission.deadlines = Verdict::DoesNotApply { reason };
    }
    if let Err(reason) = workload.check_flags() {
        admission.deadlines = Verdict::DoesNotApply { reason };
        admission.partitioned = None;
    }
    if let Some(chain) = workload.first_chain() {
        let what = format!(
            "chain {chain}: SCHED_DEADLINE counts deadlines from each wake-up; policy edf bounds it"
        );
        let about = About::Chain(chain.to_owned());
        let reason = Inapplicable::Set { about, key: "", what };
        admission.deadlines = Verdict::DoesNotApply { reason };
        admission.partitioned = None;
    }
    Ok(admission)
}

/// The tasks with a tick of a nanosecond. Errors: the first time that is not a whole number of
/// them.
fn in_whole_ns(workload: &Workload) -> Result<Vec<Task>, Inapplicable> {
    let time = workload.time;
    let of = |task: &Task, what: &'static str, ticks: u64| {
        let not_whole =
            |refused| Inapplicable::NotWholeNs { task: task.name.clone(), what, refused };
        time.duration(ticks).whole_ns().map_err(not_whole)
    };
    let convert = |task: &Task| {
        Ok(Task {
            cost: task.cost.with_ticks(of(task, "cost", task.cost_ticks())?),
            period_ticks: of(task, "period", task.period_ticks)?,
            deadline_ticks: of(task, "deadline", task.deadline_ticks)?,
            jitter_ticks: of(task, "jitter", task.jitter_ticks)?,
            blocking_ticks: of(task, "blocking", task.blocking_ticks)?,
            offset_ticks: task.offset_ticks.map(|at| of(task, "offset", at)).transpose()?,
            ..task.clone()
        })
    };
    workload.tasks.iter().map(convert).collect()
}

/// Budgets by Proposition 1 of Yartek, beside the exact test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetReport {
    /// In the order of the periods.
    pub budgets: Vec<Budget>,
    /// Of the proposition: it refutes nothing.
    pub proposition: Verdict,
    /// Of the exact test of non-preemptive EDF.
    pub exact: Verdict,
    /// `None`: the exact test does not apply, or gave up.
    pub slack: Option<Slack>,
}

/// How long each task may be under non-preemptive EDF. Errors: deadlines that are not the period,
/// jitter, blocking, and what [`Workload::check_budgets`] refuses.
pub fn analyse_budgets(workload: &Workload, effort: &Effort) -> Result<BudgetReport, Inapplicable> {
    workload.check_budgets()?;
    let tasks = &workload.tasks;
    Ok(BudgetReport {
        budgets: budgets(tasks)?,
        proposition: crate::budgets::test(tasks),
        exact: np_edf::test(tasks, effort),
        slack: slack(tasks, Policy::NpEdf, SEARCHED, effort).ok(),
    })
}
