//! Words for people: the tightest task on top, why it is tight, what would help.

use super::{OfPolicy, OnCpu, code};
use crate::exit::CANNOT_WORK;
use crate::graph::table;
use asmp_analysis::deadline::Admission;
use asmp_analysis::file::Workload;
use asmp_analysis::slack::{PPM, factor_ppm, fits, largest_cost};
use asmp_analysis::units::show_ns;
use asmp_analysis::{Effort, Policy, Task, Verdict};

const REPLAY: &str = "asmp simulate --offsets worst";
const MEASURED: &str =
    "* measured, not proven: the verdict holds as long as no job takes longer than was seen";

fn show(ns: Option<u64>, otherwise: &str) -> String {
    ns.map_or_else(|| otherwise.to_owned(), show_ns)
}

fn cost(task: &Task) -> String {
    format!("{}{}", show_ns(task.cost_ns()), if task.cost.is_measured() { " *" } else { "" })
}

fn headline(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Schedulable => "schedulable: no job finishes after its deadline".to_owned(),
        Verdict::NotSchedulable { .. } => "not schedulable".to_owned(),
        Verdict::DoesNotApply { reason } => format!("does not apply: {reason}"),
        Verdict::Unknown { reason } => format!("unknown: {reason}"),
    }
}

fn factor(ppm: Option<u64>) -> String {
    ppm.map_or_else(|| "?".to_owned(), |ppm| format!("{}.{:03}", ppm / PPM, ppm % PPM / 1000))
}

/// One policy in detail.
pub fn one(tasks: &[Task], of: &OfPolicy, effort: &Effort) {
    for cpu in &of.cpus {
        let name = cpu.cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}, "));
        println!(
            "{name}{}: {} tasks, utilisation {:.1} %",
            of.policy,
            cpu.tasks.len(),
            cpu.utilisation * 100.0
        );
        println!("{}", headline(&cpu.verdict));
        counterexample(tasks, cpu);
        if cpu.tasks.is_empty() {
            continue;
        }
        print!("\n{}", table(&rows(tasks, cpu)));
        if cpu.tasks.iter().any(|index| tasks[*index].cost.is_measured()) {
            println!("{MEASURED}");
        }
        if cpu.in_chains {
            println!();
            continue;
        }
        if let Some(why) = why(tasks, cpu, of.policy) {
            println!("\n{why}");
        }
        for line in help(tasks, cpu, of.policy, effort) {
            println!("{line}");
        }
        println!();
    }
    for index in &of.unplaced {
        println!("task {} fits on none of the CPUs", tasks[*index].name);
    }
    for chain in &of.chains {
        let bound = show(chain.end_to_end_ns, "no bound");
        let deadline = show_ns(chain.deadline_ns);
        println!(
            "chain {}: end to end {bound}, deadline {deadline}: {}",
            chain.name,
            headline(&chain.verdict)
        );
    }
}

/// The order of tightness: misses first, then by the part of the deadline that is left.
fn order(tasks: &[Task], cpu: &OnCpu) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cpu.tasks.len()).collect();
    let missed = cpu.verdict.counterexample().and_then(|found| found.missed);
    order.sort_by_key(|at| {
        let deadline_ns = tasks[cpu.tasks[*at]].deadline_ns.max(1);
        let left = cpu.responses_ns[*at].map(|response| deadline_ns.saturating_sub(response));
        let ppm = left.map(|left| u128::from(left) * 1_000_000 / u128::from(deadline_ns));
        (
            missed.map(|missed| missed.task) != Some(cpu.tasks[*at]),
            ppm,
            cpu.extra_ns[*at],
            tasks[cpu.tasks[*at]].period_ns,
        )
    });
    order
}

fn rows(tasks: &[Task], cpu: &OnCpu) -> Vec<[String; 7]> {
    let mut rows = vec![
        ["task", "cost", "period", "deadline", "worst response", "left", "may grow by"].map(str::to_owned),
    ];
    for at in order(tasks, cpu) {
        let task = &tasks[cpu.tasks[at]];
        let response = cpu.responses_ns[at];
        let left = response.and_then(|response| task.deadline_ns.checked_sub(response));
        let unknown = if cpu.verdict.is_not_schedulable() { "late" } else { "-" };
        rows.push([
            task.name.clone(),
            cost(task),
            show_ns(task.period_ns),
            show_ns(task.deadline_ns),
            show(response, unknown),
            show(left, "-"),
            show(cpu.extra_ns[at], "-"),
        ]);
    }
    rows
}

fn counterexample(tasks: &[Task], cpu: &OnCpu) {
    let Some(found) = cpu.verdict.counterexample() else { return };
    let name = |task: usize| tasks[task].name.as_str();
    match &found.missed {
        Some(missed) => {
            let finished = show(missed.finished_ns, "after the end of the replay");
            println!(
                "job {} of {} is released at {}, due at {}, and finishes at {finished}",
                missed.job,
                name(missed.task),
                show_ns(missed.release_ns),
                show_ns(missed.deadline_ns)
            );
        }
        None => println!("at more than full load some job misses: {}", show(found.by_ns, "some day")),
    }
    let first = found.pattern.iter().min_by_key(|start| start.release_ns);
    let same =
        first.map(|first| found.pattern.iter().filter(|start| start.release_ns == first.release_ns).count());
    match (first, same) {
        (Some(first), Some(1)) if found.pattern.len() == 2 => {
            let other = found.pattern.iter().find(|start| start.task != first.task);
            let other = other.map_or("?", |start| name(start.task));
            println!("when {} starts a nanosecond before {other} is released ({REPLAY})", name(first.task));
        }
        (Some(first), Some(1)) if found.pattern.len() > 2 => println!(
            "when {} starts a nanosecond before {} others are released together ({REPLAY})",
            name(first.task),
            found.pattern.len() - 1
        ),
        _ => println!(
            "when {} tasks are released together (asmp simulate --offsets worst)",
            found.pattern.len()
        ),
    }
    for start in found.pattern.iter().filter(|start| start.held_up_ns > 0) {
        println!("and {} is held up for {}", name(start.task), show_ns(start.held_up_ns));
    }
}

/// Of what the worst response of the tightest task consists.
fn why(tasks: &[Task], cpu: &OnCpu, policy: Policy) -> Option<String> {
    let at = *order(tasks, cpu).first()?;
    let task = &tasks[cpu.tasks[at]];
    let response = cpu.responses_ns[at]?;
    let own = task.cost_ns();
    let ranks = policy.ranks(tasks).ok()?;
    let less = |index: &usize| match &ranks {
        Some(ranks) => ranks[*index] > ranks[cpu.tasks[at]],
        None => tasks[*index].deadline_ns > task.deadline_ns,
    };
    let holder = cpu.tasks.iter().filter(|index| !policy.is_preemptive() && less(index));
    let holder = holder.max_by_key(|index| tasks[**index].cost_ns());
    let held = holder.map_or(0, |index| tasks[*index].cost_ns() - 1).max(task.blocking_ns);
    let rest = response.saturating_sub(own).saturating_sub(held).saturating_sub(task.jitter_ns);
    let mut parts = vec![format!("{} of its own", show_ns(own))];
    if held > 0 {
        let of = holder.filter(|index| tasks[**index].cost_ns() > task.blocking_ns);
        let of = of.map_or("a section".to_owned(), |index| format!("a job of {}", tasks[*index].name));
        parts.push(format!("{} for {of} that has started", show_ns(held)));
    }
    if task.jitter_ns > 0 {
        parts.push(format!("{} of jitter", show_ns(task.jitter_ns)));
    }
    if rest > 0 {
        parts.push(format!("{} for more urgent work", show_ns(rest)));
    }
    Some(format!("{} is the tightest: {} = {}", task.name, show_ns(response), parts.join(" + ")))
}

/// The room that is left, or changes that are known to lead to a yes.
fn help(tasks: &[Task], cpu: &OnCpu, policy: Policy, effort: &Effort) -> Vec<String> {
    let set: Vec<Task> = cpu.tasks.iter().map(|index| tasks[*index].clone()).collect();
    if cpu.verdict.is_schedulable() {
        return vec![format!("room: all costs may be {} times as long", factor(cpu.factor_ppm))];
    }
    let mut lines = Vec::new();
    if let Some(ppm) = factor_ppm(&set, policy, effort).filter(|ppm| *ppm > 0) {
        lines.push(format!("would help: all costs times {}", factor(Some(ppm))));
    }
    let others = Policy::ALL.into_iter().filter(|other| *other != policy);
    let able: Vec<&str> =
        others.filter(|other| fits(&set, *other, effort).unwrap_or(false)).map(Policy::name).collect();
    if !able.is_empty() {
        lines.push(format!("would help: another policy: {}", able.join(", ")));
    }
    if set.len() <= super::SEARCHED {
        let mut shorter: Vec<(u64, usize, u64)> = Vec::new();
        for (index, task) in set.iter().enumerate() {
            if let Some(most) = largest_cost(&set, index, policy, effort)
                && most < task.cost_ns()
            {
                shorter.push((task.cost_ns() - most, index, most));
            }
        }
        shorter.sort_unstable();
        for (_, index, most) in shorter.into_iter().take(3) {
            lines.push(format!(
                "would help: {} in {} instead of {}",
                set[index].name,
                show_ns(most),
                show_ns(set[index].cost_ns())
            ));
        }
    }
    lines
}

/// A line a policy.
pub fn all(tasks: &[Task], results: &[OfPolicy], admission: &Result<Admission, Verdict>) {
    let mut rows = vec![["policy", "verdict", "all costs times"].map(str::to_owned)];
    for of in results {
        let worst = of.cpus.iter().max_by_key(|cpu| {
            let code = code(&cpu.verdict);
            (code == CANNOT_WORK, code)
        });
        let chain = of.chains.iter().map(|chain| &chain.verdict).find(|verdict| !verdict.is_schedulable());
        let verdict = match (worst, chain) {
            (Some(cpu), Some(chain)) if cpu.verdict.is_schedulable() => headline(chain),
            (Some(cpu), _) if !cpu.verdict.is_schedulable() => headline(&cpu.verdict),
            _ if !of.unplaced.is_empty() => {
                format!("unknown: no CPU was found for {} (asmp analyze place)", names(tasks, &of.unplaced))
            }
            (Some(cpu), _) => headline(&cpu.verdict),
            (None, _) => "does not apply: there are no tasks".to_owned(),
        };
        let least = of.cpus.iter().map(|cpu| cpu.factor_ppm).min().flatten();
        rows.push([of.policy.to_string(), verdict, factor(least)]);
    }
    let verdict = match admission {
        Ok(admission) if admission.admitted => {
            format!("admitted by the kernel; {}", headline(&admission.deadlines))
        }
        Ok(_) => "the kernel answers EBUSY".to_owned(),
        Err(verdict) => headline(verdict),
    };
    rows.push(["deadline".to_owned(), verdict, "-".to_owned()]);
    print!("{}", table(&rows));
    if tasks.iter().any(|task| task.cost.is_measured()) {
        println!("{MEASURED}");
    }
    println!("one policy in detail: --policy NAME");
}

/// The first of them, and how many more.
fn names(tasks: &[Task], of: &[usize]) -> String {
    let first: Vec<&str> = of.iter().take(3).map(|index| tasks[*index].name.as_str()).collect();
    let more = of.len() - first.len();
    first.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

pub fn deadline_code(admission: &Admission) -> u8 {
    match &admission.deadlines {
        _ if !admission.admitted => CANNOT_WORK,
        verdict => code(verdict),
    }
}

/// SCHED_DEADLINE.
pub fn deadline(workload: &Workload, result: &Result<Admission, Verdict>) {
    let tasks = &workload.tasks;
    let admission = match result {
        Ok(admission) => admission,
        Err(verdict) => return println!("{}", headline(verdict)),
    };
    let part = |units: u64| format!("{:.1} %", units as f64 * 100.0 / f64::from(1 << 20));
    let limit = admission.limit.map_or_else(|| "no limit".to_owned(), part);
    println!("asked {} of a CPU, the kernel admits {limit}", part(admission.asked));
    match admission.refused {
        Some(index) => println!("sched_setattr answers EBUSY from task {} on", tasks[index].name),
        None => println!("admitted; deadlines: {}", headline(&admission.deadlines)),
    }
    if !workload.chains.is_empty() {
        return;
    }
    let partitioned = &admission.partitioned;
    for load in &partitioned.loads {
        let names: Vec<&str> = load.tasks.iter().map(|index| tasks[*index].name.as_str()).collect();
        let used = load.utilisation_ppm as f64 / 1e4;
        println!("one queue a CPU, CPU {}: {used:.1} %: {}", load.cpu, names.join(", "));
    }
    if partitioned.is_complete() {
        println!("one queue a CPU: every deadline is met (EDF, exact)");
    } else {
        let names: Vec<&str> =
            partitioned.unplaced.iter().map(|unplaced| tasks[unplaced.task].name.as_str()).collect();
        println!("one queue a CPU: no place was found for {}", names.join(", "));
    }
}
