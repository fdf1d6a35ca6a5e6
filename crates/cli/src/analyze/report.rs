// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for people: the tightest task first, why it is tight, what would help.

use crate::print::shell_word;
use crate::table::table;
use asmp_analysis::deadline::Admission;
use asmp_analysis::slack::PPM;
use asmp_analysis::{
    Cost, CpuReport, Effort, Explanation, Help, Policy, Report, SampledBound, Summary, Task,
    TimeBase, Verdict, Workload,
};
use std::path::Path;

/// What `simulate` plays where nothing else is asked for.
const SIMULATED_S: u64 = 10;
/// Such a row may be later than its deadline, and the room below 1.
const OFFSETS: &str =
    "offsets: responses, growth and room are those of any first arrivals, whatever the verdict";
const MEASURED: &str = "* measured, not proven: the verdict holds while no job takes longer";

pub fn headline(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Schedulable => "schedulable: no job finishes after its deadline".to_owned(),
        Verdict::NotSchedulable { .. } => "not schedulable".to_owned(),
        Verdict::DoesNotApply { reason } => format!("does not apply: {reason}"),
        Verdict::Unknown { reason } => format!("unknown: {reason}"),
    }
}

pub fn factor(ppm: Option<u64>) -> String {
    ppm.map_or_else(|| "?".to_owned(), |ppm| format!("{}.{:03}", ppm / PPM, ppm % PPM / 1000))
}

/// The tasks as they were analysed, and the length of their ticks.
pub struct Words<'a> {
    pub tasks: &'a [Task],
    pub time: TimeBase,
    /// The task file; `None` where --cpus placed tasks on CPUs that `simulate` does not know.
    pub replayable: Option<&'a Path>,
}

impl Words<'_> {
    fn show(&self, ticks: u64) -> String {
        self.time.show(ticks)
    }

    fn show_or(&self, ticks: Option<u64>, otherwise: &str) -> String {
        ticks.map_or_else(|| otherwise.to_owned(), |ticks| self.show(ticks))
    }

    fn name(&self, task: usize) -> &str {
        &self.tasks[task].name
    }

    /// The first three, and how many more.
    fn names(&self, of: &[usize]) -> String {
        let first: Vec<&str> = of.iter().take(3).map(|index| self.name(*index)).collect();
        let more = of.len() - first.len();
        first.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
    }

    /// One policy in detail.
    pub fn one(&self, report: &Report, effort: &Effort) {
        let failing = report.cpus.iter().position(|cpu| cpu.verdict.is_not_schedulable());
        for (at, cpu) in report.cpus.iter().enumerate() {
            let name = cpu.cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}, "));
            let (policy, count, load) = (report.policy, cpu.tasks.len(), cpu.utilisation * 100.0);
            println!("{name}{policy}: {count} tasks, utilisation {load:.1} %");
            println!("{}", headline(&cpu.verdict));
            let in_chains = !report.chains.is_empty();
            self.counterexample(cpu, in_chains);
            // simulate plays the first CPU that fails.
            if failing == Some(at) {
                self.shown_by(cpu, report.policy, in_chains);
            }
            if cpu.tasks.is_empty() {
                continue;
            }
            print!("\n{}", table(&self.rows(cpu)));
            if cpu.tasks.iter().any(|index| self.tasks[*index].cost.is_measured()) {
                println!("{MEASURED}");
            }
            let has_offset = |index: &usize| self.tasks[*index].offset_ticks.is_some();
            if cpu.verdict.is_schedulable() && cpu.tasks.iter().any(has_offset) {
                println!("{OFFSETS}");
            }
            if !cpu.in_chains {
                if let Some(why) = cpu.explanation(self.tasks, report.policy) {
                    println!("\n{}", self.why(&why));
                }
                if cpu.verdict.is_schedulable() {
                    println!("room: all costs may be {} times as long", factor(cpu.factor_ppm));
                }
                for help in cpu.help(self.tasks, report.policy, effort) {
                    println!("would help: {}", self.help(&help));
                }
            }
            println!();
        }
        for index in &report.unplaced {
            println!("task {} fits on none of the CPUs", self.name(*index));
        }
        for chain in &report.chains {
            let bound = self.show_or(chain.end_to_end_ticks, "no bound");
            let (name, deadline) = (&chain.name, self.show(chain.deadline_ticks));
            let verdict = headline(&chain.verdict);
            println!("chain {name}: end to end {bound}, deadline {deadline}: {verdict}");
        }
        report.sampled.iter().for_each(|chain| println!("{}", self.sampled(chain)));
    }

    fn sampled(&self, chain: &SampledBound) -> String {
        let one = |what: &str, bound: Option<u64>, limit: Option<u64>| {
            let bound = bound.map_or_else(
                || "no bound".to_owned(),
                |bound| format!("at most {}", self.show(bound)),
            );
            let limit = limit.map(|limit| format!(" (limit {})", self.show(limit)));
            format!("{what} {bound}{}", limit.unwrap_or_default())
        };
        let age = one("data age", chain.age_ticks, chain.age_limit_ticks);
        let reaction = one("reaction time", chain.reaction_ticks, chain.reaction_limit_ticks);
        let has_limit = chain.age_limit_ticks.or(chain.reaction_limit_ticks).is_some();
        let verdict = match &chain.verdict {
            Verdict::Schedulable if has_limit => ": kept".to_owned(),
            Verdict::Schedulable => String::new(),
            other => format!(": {}", headline(other)),
        };
        format!("chain {}: {age}, {reaction}{verdict}", chain.name)
    }

    fn rows(&self, cpu: &CpuReport) -> Vec<[String; 7]> {
        let header =
            ["task", "cost", "period", "deadline", "worst response", "left", "may grow by"];
        let mut rows = vec![header.map(str::to_owned)];
        for at in cpu.by_tightness(self.tasks) {
            let task = &self.tasks[cpu.tasks[at]];
            let response = cpu.responses_ticks[at];
            let left = response.and_then(|response| task.deadline_ticks.checked_sub(response));
            let unknown = if cpu.verdict.is_not_schedulable() { "late" } else { "-" };
            let mark = if let Cost::Measured { .. } = task.cost { " *" } else { "" };
            rows.push([
                task.name.clone(),
                format!("{}{mark}", self.show(task.cost_ticks())),
                self.show(task.period_ticks),
                self.show(task.deadline_ticks),
                self.show_or(response, unknown),
                self.show_or(left, "-"),
                self.show_or(cpu.extra_ticks[at], "-"),
            ]);
        }
        rows
    }

    fn counterexample(&self, cpu: &CpuReport, in_chains: bool) {
        let Some(found) = cpu.verdict.counterexample() else { return };
        match &found.missed {
            Some(missed) => println!(
                "job {} of {} is released at {}, due at {}, and finishes at {}",
                missed.job,
                self.name(missed.task),
                self.show(missed.release_ticks),
                self.show(missed.deadline_ticks),
                self.show_or(missed.finished_ticks, "a time after the end of the replay"),
            ),
            None => {
                let by = found.by_ticks.map(|by| format!(" by {}", self.show(by)));
                let by = by.unwrap_or_default();
                println!("the load is above 1: some job misses its deadline{by}");
            }
        }
        if in_chains {
            println!("when all tasks arrive as early as they may");
            return;
        }
        let (count, tick) = (found.pattern.len(), self.show(1));
        let first = found.pattern.iter().min_by_key(|start| start.release_ticks);
        let first = first.filter(|first| {
            let together =
                found.pattern.iter().filter(|start| start.release_ticks == first.release_ticks);
            together.count() == 1 && count > 1
        });
        match first {
            Some(first) => {
                let name = self.name(first.task);
                let other = found.pattern.iter().find(|start| start.task != first.task);
                let others = match other {
                    Some(other) if count == 2 => format!("{} is", self.name(other.task)),
                    _ => format!("{} others are", count - 1),
                };
                let together = if count == 2 { "" } else { " together" };
                println!("when {name} starts {tick} before {others} released{together}");
            }
            None => println!("when {count} tasks are released together"),
        }
        for start in found.pattern.iter().filter(|start| start.held_up_ticks > 0) {
            let (name, held) = (self.name(start.task), self.show(start.held_up_ticks));
            println!("and {name} is blocked for {held}");
        }
    }

    /// The command that shows the miss, long enough to reach it. A miss that is too far away to be
    /// replayed, and a name that cannot be printed, have none.
    fn shown_by(&self, cpu: &CpuReport, policy: Policy, in_chains: bool) {
        let found = cpu.verdict.counterexample();
        let Some(missed) = found.and_then(|found| found.missed.as_ref()) else { return };
        let path = self.replayable.and_then(Path::to_str);
        let Some(path) = path.filter(|path| !path.contains(char::is_control)) else { return };
        let path = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
        let due = self.time.duration(missed.deadline_ticks);
        let due_s = due.numerator_ns() / due.denominator() / 1_000_000_000;
        let time =
            if due_s < SIMULATED_S { String::new() } else { format!(" --for {}s", due_s + 1) };
        let (file, offsets) = (shell_word(&path), if in_chains { "sync" } else { "worst" });
        println!("seen by: asmp simulate {file} --policy {policy} --offsets {offsets}{time}");
    }

    fn why(&self, why: &Explanation) -> String {
        let mut parts = vec![format!("{} of its own", self.show(why.own_ticks))];
        if why.held_ticks > 0 {
            let held = self.show(why.held_ticks);
            let job = |index| format!("a job of {}", self.name(index));
            let of = why.held_by.map_or_else(|| "a section".to_owned(), job);
            parts.push(format!("{held} for {of} that has started"));
        }
        if why.jitter_ticks > 0 {
            parts.push(format!("{} of jitter", self.show(why.jitter_ticks)));
        }
        if why.more_urgent_ticks > 0 {
            parts.push(format!("{} for more urgent work", self.show(why.more_urgent_ticks)));
        }
        let (name, response) = (self.name(why.task), self.show(why.response_ticks));
        format!("{name} is the tightest: {response} = {}", parts.join(" + "))
    }

    fn help(&self, help: &Help) -> String {
        match help {
            Help::AllCosts { factor_ppm } => {
                format!("all costs times {}", factor(Some(*factor_ppm)))
            }
            Help::OtherPolicy { policies } => {
                let names: Vec<&str> =
                    policies.iter().map(|policy| Policy::name(*policy)).collect();
                format!("another policy: {}", names.join(", "))
            }
            Help::Shorter { task, cost_ticks } => format!(
                "{} in {} instead of {}",
                self.name(*task),
                self.show(*cost_ticks),
                self.show(self.tasks[*task].cost_ticks())
            ),
        }
    }

    /// One line for each policy.
    pub fn all(&self, reports: &[Report], admission: &Result<Admission, Verdict>) {
        let mut rows = vec![["policy", "verdict", "all costs times"].map(str::to_owned)];
        for report in reports {
            let verdict = match report.summary() {
                Summary::Verdict(verdict) => headline(verdict),
                Summary::Unplaced(tasks) => {
                    let names = self.names(tasks);
                    format!("unknown: no CPU was found for {names} (asmp analyze place)")
                }
                Summary::NoTasks => "does not apply: there are no tasks".to_owned(),
            };
            // Of a part of the tasks a factor says nothing.
            let is_whole = report.unplaced.is_empty();
            let factor = if is_whole { factor(report.factor_ppm()) } else { "-".to_owned() };
            rows.push([report.policy.to_string(), verdict, factor]);
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
        if self.tasks.iter().any(|task| task.cost.is_measured()) {
            println!("{MEASURED}");
        }
        println!("one policy in detail: --policy NAME");
    }
}

/// Prints what SCHED_DEADLINE does with the workload on these CPUs.
pub fn deadline(workload: &Workload, cpus: &[u32], result: &Result<Admission, Verdict>) {
    let tasks = &workload.tasks;
    let admission = match result {
        Ok(admission) => admission,
        Err(verdict) => return println!("{}", headline(verdict)),
    };
    let part = |units: u64| format!("{:.1} %", units as f64 * 100.0 / f64::from(1 << 20));
    let limit = admission.limit.map_or_else(|| "no limit".to_owned(), part);
    println!("requested: {} of a CPU; the kernel admits: {limit}", part(admission.asked));
    match admission.refused {
        Some(index) => println!("sched_setattr answers EBUSY from task {} on", tasks[index].name),
        None => println!("admitted; deadlines: {}", headline(&admission.deadlines)),
    }
    let Some(partitioned) = &admission.partitioned else { return };
    for load in &partitioned.loads {
        let names: Vec<&str> = load.tasks.iter().map(|index| tasks[*index].name.as_str()).collect();
        let used = load.utilisation_ppm as f64 / 1e4;
        // The domain numbers its CPUs from 0 on.
        let cpu = cpus.get(load.cpu as usize).copied().unwrap_or(load.cpu);
        println!("one queue per CPU, CPU {cpu}: {used:.1} %: {}", names.join(", "));
    }
    if partitioned.is_complete() {
        println!("one queue per CPU: every deadline is met (EDF, exact)");
    } else {
        let unplaced = partitioned.unplaced.iter();
        let names: Vec<&str> =
            unplaced.map(|unplaced| tasks[unplaced.task].name.as_str()).collect();
        println!("one queue per CPU: no CPU was found for {}", names.join(", "));
    }
}
