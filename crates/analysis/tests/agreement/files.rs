// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random task files with every key, and what must hold of each: what an answer accepts never
//! misses in the simulator, what it refutes does, and the answers do not contradict each other.

use asmp_analysis::deadline::Domain;
use asmp_analysis::file::from_toml;
use asmp_analysis::place::{By, Placement, place};
use asmp_analysis::simulate::{
    DataTimes, Execution, Random, Releases, Run, Simulation, first_miss, replay, worst_pattern,
};
use asmp_analysis::{
    Effort, Outcome, Policy, Report, Task, Verdict, Workload, analyse, analyse_briefly,
    analyse_budgets, kernel_admission,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What was seen, so that a run that looked at nothing is noticed.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub files: u64,
    /// Refused by the reader.
    pub wrong: u64,
    pub accepted: u64,
    pub refuted: u64,
    pub undecided: u64,
    pub placed: u64,
    pub admitted: u64,
    pub budgets: u64,
    pub simulations: u64,
    /// Of these, worst runs in which a section holds a task up.
    pub held_up: u64,
    /// Runs of files with sampled chains that have bounds.
    pub sampled: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        // Each field by name, so that none is forgotten.
        let Self {
            files,
            wrong,
            accepted,
            refuted,
            undecided,
            placed,
            admitted,
            budgets,
            simulations,
            held_up,
            sampled,
        } = more;
        self.files += files;
        self.wrong += wrong;
        self.accepted += accepted;
        self.refuted += refuted;
        self.undecided += undecided;
        self.placed += placed;
        self.admitted += admitted;
        self.budgets += budgets;
        self.simulations += simulations;
        self.held_up += held_up;
        self.sampled += sampled;
    }
}

const EFFORT: Effort = Effort { steps: 3_000_000, jobs: 20_000 };

/// A file that the reader takes, with times in us. Some answers refuse it.
pub fn file(seed: u64) -> String {
    let random = &mut Random::new(seed);
    let mut text = String::new();
    let some = |random: &mut Random, one_in: u64| random.up_to(one_in - 1) == 0;
    let count = 1 + random.up_to(5);
    let cores = random.up_to(2);
    let in_chain = if some(random, 3) { random.up_to(count) } else { 0 };
    let of_chain = 10 * (1 + random.up_to(5));
    let offsets = random.up_to(2);
    let priorities = 1 + random.up_to(5);
    let load = 1 + random.up_to(5);
    let outside = if some(random, 3) { Some(1 + random.up_to(2)) } else { None };
    for at in 0..count {
        let period = match at < in_chain {
            true => of_chain,
            false => [8, 10, 12, 20, 24, 30, 60][random.up_to(6) as usize],
        };
        let cost = 1 + random.up_to(period / (load + 1));
        let mut key = |name: &str, value: String| {
            let _ = writeln!(text, "{name} = {value}");
        };
        key("[[task]]\nname", format!("'t{at}'"));
        let is_sporadic = at > 0 && at >= in_chain && some(random, 4);
        match some(random, 10) {
            true => key("measured", format!("'{cost}'")),
            false => key("cost", format!("'{cost} us'")),
        }
        key(if is_sporadic { "sporadic" } else { "period" }, format!("'{period} us'"));
        if at >= in_chain && some(random, 2) {
            key("deadline", format!("'{} us'", cost + random.up_to(period * 2)));
        }
        if !is_sporadic && (at == 0 || at >= in_chain) && random.up_to(2) < offsets {
            key("offset", format!("'{} us'", random.up_to(period)));
        }
        if some(random, 4) {
            key("jitter", format!("'{} us'", random.up_to(period)));
        }
        if let Some(us) = outside {
            key("blocking", format!("'{us} us'"));
        } else if some(random, 5) {
            key("blocking", format!("'{} us'", random.up_to(3)));
        }
        if !some(random, 40) {
            key("priority", (1 + random.up_to(priorities)).to_string());
        }
        if some(random, 3) {
            key("class", ["'high'", "'low'"][random.up_to(1) as usize].to_owned());
        }
        if cores > 0 && !some(random, 40) {
            key("core", random.up_to(cores).to_string());
        }
        key("importance", random.up_to(2).to_string());
        if some(random, 3) {
            key("app", format!("'x{}'", random.up_to(1)));
        }
        key("memory", random.up_to(9).to_string());
        key("bandwidth", random.up_to(9).to_string());
        if some(random, 4) {
            key("entry", format!("'do_{at}'"));
            key("late", ["'finish'", "'skip'", "'fault'"][random.up_to(2) as usize].to_owned());
            key("most", format!("'{} us'", cost + random.up_to(9)));
        }
    }
    if in_chain > 0 {
        let names: Vec<String> = (0..in_chain).map(|at| format!("'t{at}'")).collect();
        let deadline = of_chain * (1 + random.up_to(2));
        let names = names.join(", ");
        let _ = write!(text, "[[chain]]\nname = 'c'\ntasks = [{names}]\n");
        let _ = writeln!(text, "deadline = '{deadline} us'");
    }
    if some(random, 3) {
        let first = random.up_to(count - 1);
        let names: Vec<String> = (0..1 + random.up_to(2).min(count - 1))
            .map(|at| format!("'t{}'", (first + at) % count))
            .collect();
        let names = names.join(", ");
        let _ = write!(text, "[[chain]]\nname = 's'\nkind = 'sampled'\ntasks = [{names}]\n");
        for limit in ["age", "reaction"] {
            if some(random, 3) {
                let _ = writeln!(text, "{limit} = '{} us'", 5 + random.up_to(150));
            }
        }
    }
    let core = |random: &mut Random| match random.up_to(1) {
        0 => String::new(),
        _ => format!("core = {}\n", random.up_to(2)),
    };
    if some(random, 3) {
        let _ = write!(text, "[[background]]\nname = 'b'\ncost = '{} us'\n", 1 + random.up_to(20));
        let _ = write!(text, "period = '50 us'\n{}", core(random));
    }
    if some(random, 3) {
        let flag = if some(random, 3) { "flag = '1 us'\n" } else { "" };
        let limit = ["gap = '9 us'", "most = 3", "gap = '9 us'\nmost = 3\nentry = 'serve'"];
        let limit = limit[random.up_to(2) as usize];
        let _ = write!(text, "[[interrupt]]\nname = 'i'\nservice = '2 us'\n{flag}{limit}\n");
        text += &core(random);
    }
    if some(random, 2) {
        let _ = write!(text, "[room]\nmemory = {}\n", 10 + random.up_to(30));
        let _ = writeln!(text, "bandwidth = {}", 10 + random.up_to(30));
    }
    if some(random, 4) {
        text += "[board]\nname = 'host'\n";
    }
    text
}

fn measured(run: &str) -> Result<u64, String> {
    run.parse::<u64>().map(|us| us * 1000).map_err(|error| error.to_string())
}

/// All answers to one file; panics with the seed where two disagree.
pub fn check_file(seed: u64, seen: &mut Seen) {
    let text = file(seed);
    seen.files += 1;
    let Ok(workload) = from_toml(&text, &measured) else {
        seen.wrong += 1;
        return;
    };
    let at = |what: &str| format!("seed {seed}: {what}\n{text}");
    for policy in Policy::ALL {
        let report = analyse(&workload, policy, &[], &EFFORT);
        samples(&workload, &report, seed, seen, &at);
        let brief = analyse_briefly(&workload, policy, &[], &EFFORT);
        let verdicts = |report: &Report| -> Vec<Verdict> {
            report.cpus.iter().map(|cpu| cpu.verdict.clone()).collect()
        };
        assert_eq!(verdicts(&brief), verdicts(&report), "{}", at("briefly another verdict"));
        assert_eq!(brief.outcome(), report.outcome(), "{}", at("briefly another outcome"));
        assert_eq!(brief.factor_ppm(), report.factor_ppm(), "{}", at("briefly another factor"));
        match report.outcome() {
            Outcome::Schedulable => {
                seen.accepted += 1;
                survives(&workload, &workload.tasks, policy, seed, seen, &at);
            }
            Outcome::NotSchedulable => {
                seen.refuted += 1;
                misses(&workload, &report, &at);
            }
            Outcome::Unknown => seen.undecided += 1,
        }
    }
    // Periods as short as these are below the default limit of the kernel.
    let domain = Domain { least_period_ns: 1, ..Domain::of(1) };
    if let Ok(admission) = kernel_admission(&workload, &domain, &EFFORT)
        && admission.admitted
        && admission.deadlines.is_schedulable()
    {
        seen.admitted += 1;
        survives(&workload, &workload.tasks, Policy::Edf, seed, seen, &at);
    }
    let domain = Domain { cpus: 2, ..domain };
    if let Ok(admission) = kernel_admission(&workload, &domain, &EFFORT)
        && let Some(found) = admission.partitioned.filter(Placement::is_complete)
    {
        let on = |(index, task): (usize, &Task)| Task { core: found.cpu_of(index), ..task.clone() };
        let tasks: Vec<Task> = workload.tasks.iter().enumerate().map(on).collect();
        survives(&workload, &tasks, Policy::Edf, seed, seen, &at);
        fits(&found, &workload, &at);
    }
    if let Ok(budgets) = analyse_budgets(&workload, &EFFORT) {
        seen.budgets += 1;
        let exact = analyse(&workload, Policy::NpEdf, &[], &EFFORT);
        assert_eq!(Outcome::from(&budgets.exact), exact.outcome(), "{}", at("budgets"));
        let is_safe = !budgets.proposition.is_schedulable() || budgets.exact.is_schedulable();
        assert!(is_safe, "{}", at("the proposition accepts, the exact test does not"));
    }
    let by = [By::FirstFit, By::BestFit, By::WorstFit, By::BfdPartitioned][seed as usize % 4];
    let policy = Policy::ALL[seed as usize / 4 % Policy::ALL.len()];
    if workload.check_placeable(&[0, 1, 2]).is_ok()
        && let Ok(found) = place(&workload.tasks, &[0, 1, 2], by, policy, &workload.room, &EFFORT)
        && found.is_complete()
    {
        seen.placed += 1;
        let on = |(index, task): (usize, &Task)| Task { core: found.cpu_of(index), ..task.clone() };
        let tasks: Vec<Task> = workload.tasks.iter().enumerate().map(on).collect();
        survives(&workload, &tasks, policy, seed, seen, &at);
        fits(&found, &workload, &at);
        let placed = Workload { tasks, ..workload.clone() };
        let again = analyse(&placed, policy, &[], &EFFORT).outcome();
        assert_ne!(again, Outcome::NotSchedulable, "{}", at("placed, then refused"));
    }
}

/// No CPU has more than its room.
fn fits(found: &Placement, workload: &Workload, at: &dyn Fn(&str) -> String) {
    let room = &workload.room;
    for load in &found.loads {
        for (what, used, most) in [
            ("memory", load.memory_bytes, room.memory_bytes),
            ("bandwidth", load.bandwidth, room.bandwidth),
        ] {
            assert!(most.is_none_or(|most| used <= most), "{}", at(what));
        }
    }
}

/// Runs with all that the file has: by chance, with jobs that take less, and all at once.
fn survives(
    workload: &Workload,
    tasks: &[Task],
    policy: Policy,
    seed: u64,
    seen: &mut Seen,
    at: &dyn Fn(&str) -> String,
) {
    let less = Execution { least_ppm: 1, ..Execution::default() };
    for (run, releases, execution) in [
        (0, Releases::Random, Execution::default()),
        (1, Releases::Random, less),
        (2, Releases::Random, Execution::default()),
        (3, Releases::Together, Execution::default()),
        (4, Releases::Together, less),
    ] {
        let simulation = Simulation {
            seed: seed ^ (run << 40),
            execution,
            background: &workload.background,
            interrupts: &workload.interrupts,
            chains: &workload.chains,
            ..Simulation::new(tasks, policy, releases)
        };
        let missed = first_miss(&simulation, 400_000, 5_000).expect("what was analysed");
        assert_eq!(missed, None, "{}", at(&format!("{policy} accepts, run {run} misses")));
        seen.simulations += 1;
    }
    survives_the_worst(workload, tasks, policy, seen, at);
}

/// Runs each CPU with the releases that are worst for each of its tasks. Only where all tasks of
/// the CPU have the same `blocking`: that is a section of something outside. A section that blocks
/// some tasks is part of the cost of the others, and the pattern would count it twice. With chains
/// no pattern is known, because a task is released by another.
fn survives_the_worst(
    workload: &Workload,
    tasks: &[Task],
    policy: Policy,
    seen: &mut Seen,
    at: &dyn Fn(&str) -> String,
) {
    if !workload.chains.is_empty() {
        return;
    }
    let cores: BTreeSet<Option<u32>> = tasks.iter().map(|task| task.core).collect();
    for core in cores {
        let here: Vec<Task> = tasks
            .iter()
            .filter(|task| task.core == core)
            .map(|task| Task { core: None, ..task.clone() })
            .collect();
        let sections: BTreeSet<u64> = here.iter().map(|task| task.blocking_ticks).collect();
        if sections.len() > 1 {
            continue;
        }
        for victim in 0..here.len() {
            let pattern = worst_pattern(&here, policy, victim).expect("what was analysed");
            seen.held_up += u64::from(pattern.iter().any(|start| start.held_up_ticks > 0));
            let worst = Simulation::new(&here, policy, Releases::Pattern(pattern));
            let missed = first_miss(&worst, 400_000, 5_000).expect("what was analysed");
            let what = || format!("{policy} accepts, the worst of {} misses", here[victim].name);
            assert_eq!(missed, None, "{}", at(&what()));
            seen.simulations += 1;
        }
    }
}

/// No run passes the bound of a sampled chain, also of tasks that miss deadlines.
fn samples(
    workload: &Workload,
    report: &Report,
    seed: u64,
    seen: &mut Seen,
    at: &dyn Fn(&str) -> String,
) {
    if report.sampled.iter().all(|bound| bound.age_ticks.is_none()) {
        return;
    }
    for (seed, releases) in [(seed, Releases::Random), (!seed, Releases::Together)] {
        let simulation = Simulation {
            seed,
            chains: &workload.chains,
            background: &workload.background,
            interrupts: &workload.interrupts,
            ..Simulation::new(&workload.tasks, report.policy, releases)
        };
        // The chain may be on one CPU, and a task on another has no priority.
        let Ok(mut run) = Run::prepare(&simulation) else { return };
        let mut data = DataTimes::of(&run, &workload.sampled);
        run.go(400_000, 5_000, &mut data);
        seen.sampled += 1;
        for (row, bound) in data.rows().zip(&report.sampled) {
            if bound.age_ticks.is_some() {
                let within =
                    row.age_ticks <= bound.age_ticks && row.reaction_ticks <= bound.reaction_ticks;
                assert!(within, "{}", at(&format!("{}: {row:?} {bound:?}", report.policy)));
            }
        }
    }
}

/// Each counterexample is allowed by the file and misses as it says, or the load is above 1.
fn misses(workload: &Workload, report: &Report, at: &dyn Fn(&str) -> String) {
    let policy = report.policy;
    if !workload.chains.is_empty() {
        return misses_in_chains(workload, report, at);
    }
    let mut some = false;
    for cpu in &report.cpus {
        let Some(found) = cpu.verdict.counterexample() else { continue };
        some = true;
        found.check(&workload.tasks).unwrap_or_else(|error| panic!("{}", at(&error.to_string())));
        let Some(missed) = found.missed else {
            assert!(cpu.utilisation > 1.0, "{}", at(&format!("{policy}: refuted without a miss")));
            continue;
        };
        // Of the tasks of other CPUs nothing is asked, a priority neither.
        let here = |(index, task): (usize, &Task)| match cpu.tasks.contains(&index) {
            true => task.clone(),
            false => Task { priority: Some(1), ..task.clone() },
        };
        let tasks: Vec<Task> = workload.tasks.iter().enumerate().map(here).collect();
        let again = replay(&tasks, policy, &found.pattern, found.by_ticks, &EFFORT);
        assert_eq!(again, Some(missed), "{}", at(&format!("{policy}: the replay differs")));
        assert!(cpu.tasks.contains(&missed.task), "{}", at("a miss on another CPU"));
    }
    assert!(some, "{}", at(&format!("{policy}: refuted, and no counterexample")));
}

/// With chains a load above 1 is refuted, and nothing else; the run is that of all CPUs.
fn misses_in_chains(workload: &Workload, report: &Report, at: &dyn Fn(&str) -> String) {
    let policy = report.policy;
    for cpu in &report.cpus {
        let is_over = cpu.utilisation > 1.0;
        let Some(found) = cpu.verdict.counterexample() else {
            assert!(!is_over, "{}", at(&format!("{policy}: a load above 1 is not refuted")));
            continue;
        };
        assert!(is_over, "{}", at(&format!("{policy}: refuted at a load of 1 or less")));
        found.check(&workload.tasks).unwrap_or_else(|error| panic!("{}", at(&error.to_string())));
        let Some(missed) = found.missed else { continue };
        let tasks = workload.tasks_in_chains();
        let simulation = Simulation {
            chains: &workload.chains,
            background: &workload.background,
            interrupts: &workload.interrupts,
            ..Simulation::new(&tasks, policy, Releases::Together)
        };
        let again = first_miss(&simulation, missed.deadline_ticks + 1, EFFORT.jobs);
        let is_same = again.is_ok_and(|again| {
            again.is_some_and(|again| again.deadline_ticks <= missed.deadline_ticks)
        });
        assert!(is_same, "{}", at(&format!("{policy}: no miss by {missed:?}")));
    }
}
