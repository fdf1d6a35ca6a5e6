//! create, destroy, add, remove, resize, apply, repair, restore, and the plan of any of them.

use crate::args::{Change, Create, Members, Shape};
use crate::exit::failure;
use crate::file;
use crate::print;
use anyhow::Result;
use asmp_host::task::{self, Task, TaskId};
use asmp_host::tracefs;
use asmp_host::{CpuSet, Facts, Kernel, Schedule};
use asmp_shield::partition::shielded;
use asmp_shield::plan::Base;
use asmp_shield::request::{self, Wish};
use asmp_shield::{ChangeError, Outcome, Partition, Refusal, Shield, State, SystemIrqs, Terms, Tick};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Carries a change out and prints what came of it.
pub fn change(shield: &Shield, change: &Change) -> Result<()> {
    if let Change::Apply { file, dry_run } = change {
        return apply_file(shield, file, *dry_run);
    }
    let proof =
        |facts: &Facts, base: &Base, after: &[Partition]| prove_ticks(shield.kernel(), facts, base, after);
    let wants_proof = matches!(change, Change::Create(create) if create.shape.tick == Tick::RequireOff);
    let irqs = match change {
        Change::Restore => SystemIrqs::Anywhere,
        _ => SystemIrqs::AsTheyAre,
    };
    let outcome = shield.change(
        |facts, state| decide(shield.kernel(), facts, state, change),
        Terms { proof: wants_proof.then_some(&proof), demote: demotes(change), irqs },
    )?;
    if matches!(change, Change::Restore) {
        // Trace instances of measurements that were killed.
        tracefs::remove_stale(shield.kernel());
    }
    print::outcome(&outcome, &headline(change, &outcome));
    Ok(())
}

/// Prints what a change would do.
pub fn plan(shield: &Shield, change: &Change, json: bool) -> Result<()> {
    let kernel = shield.kernel();
    let (facts, plan) = match change {
        Change::Apply { file, .. } => {
            let wanted = file::read(file)?;
            let decide = |facts: &Facts, state: &mut State| {
                file::decide(kernel, facts, state, &wanted).map(|(after, _)| after)
            };
            shield.plan(decide, false)?
        }
        _ => shield.plan(|facts, state| decide(kernel, facts, state, change), demotes(change))?,
    };
    print::plan(&facts, &plan, json)
}

fn apply_file(shield: &Shield, path: &std::path::Path, dry_run: bool) -> Result<()> {
    let wanted = file::read(path)?;
    let kernel = shield.kernel();
    if dry_run {
        let decide = |facts: &Facts, state: &mut State| {
            file::decide(kernel, facts, state, &wanted).map(|(after, _)| after)
        };
        let (facts, plan) = shield.plan(decide, false)?;
        return print::plan(&facts, &plan, false);
    }
    let mut policies = Vec::new();
    let proof = |facts: &Facts, base: &Base, after: &[Partition]| prove_ticks(kernel, facts, base, after);
    let decide = |facts: &Facts, state: &mut State| {
        let (after, wanted_policies) = file::decide(kernel, facts, state, &wanted)?;
        policies = wanted_policies;
        Ok(after)
    };
    let outcome = shield.change(decide, Terms { proof: Some(&proof), ..Terms::default() })?;
    print::outcome(&outcome, &format!("{} is in force", path.display()));
    for (task, policy) in policies {
        kernel.set_schedule(task.tid, &policy).map_err(|error| {
            failure(crate::exit::POLICY_REFUSED, format!("task {}: {policy}: {error}", task.tid))
        })?;
    }
    Ok(())
}

/// May threads that became real-time inside leave as SCHED_OTHER?
fn demotes(change: &Change) -> bool {
    match change {
        Change::Destroy { force, .. } | Change::Remove { force, .. } => *force,
        // The machine as it was: there they were not real-time.
        Change::Restore => true,
        _ => false,
    }
}

fn headline(change: &Change, outcome: &Outcome) -> String {
    let cpus = |name: &str, verb: &str| {
        outcome.state.partition(name).map_or_else(
            |_| String::new(),
            |partition| format!("CPU {}{verb}{}", partition.cpus, print::idle_siblings(&partition.idle_cpus)),
        )
    };
    match change {
        Change::Create(create) => format!("partition {}: {}", create.name, cpus(&create.name, " shielded")),
        Change::Resize { name, .. } => format!("partition {name}: now {}", cpus(name, "")),
        Change::Destroy { name: Some(name), .. } => format!("partition {name} is gone"),
        Change::Destroy { .. } => "no partition is left".to_owned(),
        Change::Restore => "the machine is as it was before asmp touched it".to_owned(),
        Change::Add(members) => format!("partition {}: members added", members.name),
        Change::Remove { members, .. } => format!("partition {}: members removed", members.name),
        Change::Repair { .. } => "every setting is as promised".to_owned(),
        Change::Apply { file, .. } => format!("{} is in force", file.display()),
    }
}

/// The partitions that shall be. Reads tasks, changes nothing.
pub fn decide(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    change: &Change,
) -> Result<Vec<Partition>, Refusal> {
    let mut after = match change {
        Change::Create(Create { name, shape }) => request::create(facts, state, &wish(name, shape, None))?,
        Change::Destroy { name: Some(name), .. } => request::destroy(facts, state, name)?,
        Change::Destroy { name: None, .. } | Change::Restore => {
            request::check_machine(facts)?;
            Vec::new()
        }
        Change::Resize { name, cpus } => request::resize(facts, state, name, cpus)?,
        Change::Add(members) => join(kernel, facts, state, members)?,
        Change::Remove { members, .. } => leave(kernel, facts, state, members)?,
        Change::Repair { name } => {
            request::check_machine(facts)?;
            if let Some(name) = name {
                state.partition(name)?;
            }
            state.partitions.clone()
        }
        Change::Apply { .. } => state.partitions.clone(),
    };
    adopt_kernel_threads(kernel, facts, state, &mut after);
    Ok(after)
}

/// A partition as the command line asks for it.
pub fn wish(name: &str, shape: &Shape, owner: Option<TaskId>) -> Wish {
    Wish {
        name: name.to_owned(),
        cpus: shape.cpus.clone(),
        irqs: shape.irqs.clone(),
        irq_priority: shape.irq_priority,
        tick: shape.tick,
        smt: shape.smt,
        strict: shape.strict,
        without: shape.without.clone(),
        created_s: now_s(),
        created_by: creator(),
        owner,
    }
}

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Who asks: the user behind sudo, and the command line.
pub fn creator() -> String {
    let user =
        std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "root".into());
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    format!("{user}: {}", words.join(" "))
}

fn join(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &State,
    members: &Members,
) -> Result<Vec<Partition>, Refusal> {
    let name = &members.name;
    state.partition(name)?;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let mut now = state.clone();
    for irq in &members.irqs {
        now.partitions = request::add_irq(facts, &now, name, irq)?;
    }
    for (tid, alone) in members.tasks() {
        let task = find_task(kernel, tid, alone)?;
        let real_time = task::real_time_threads(kernel, task.process);
        now.partitions = request::add_task(facts, &now, name, &task, alone, real_time, &base.in_tree())?;
    }
    Ok(now.partitions)
}

fn leave(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    members: &Members,
) -> Result<Vec<Partition>, Refusal> {
    let name = &members.name;
    state.partition(name)?;
    let inside = Base::of(facts).ok_or(Refusal::NoCgroupV2)?.in_tree().join(name);
    let mut now = state.clone();
    for irq in &members.irqs {
        now.partitions = request::remove_irq(facts, &now, name, irq)?;
    }
    for (tid, alone) in members.tasks() {
        let task = find_task(kernel, tid, alone)?;
        if !task.group.starts_with(&inside) {
            return Err(Refusal::NotInside { tid, command: task.command, partition: name.clone() });
        }
        // Whoever was born inside is taken down in both, as one who is there and one who is to go.
        request::remove_task(facts, state, name, &task, alone)?;
        now.partitions = request::remove_task(facts, &mut now, name, &task, alone)?;
    }
    Ok(now.partitions)
}

fn find_task(kernel: &dyn Kernel, tid: i32, alone: bool) -> Result<Task, Refusal> {
    let task = task::read(kernel, tid).map_err(|_| Refusal::UnknownTask { tid })?;
    // A process is named by its main thread; a thread's number means the process it is of.
    if alone || task.process == tid { Ok(task) } else { find_task(kernel, task.process, false) }
}

/// Kernel threads that serve the partitions: handlers of their IRQs, timers of their CPUs (PREEMPT_RT).
pub fn adopt_kernel_threads(kernel: &dyn Kernel, facts: &Facts, state: &State, partitions: &mut [Partition]) {
    let wanted = |name: &str| {
        request::service_of(name)
            .is_some_and(|service| partitions.iter().any(|p| request::priority_for(p, service).is_some()))
    };
    if !facts.preempt_rt && facts.boot_parameter("threadirqs").is_none() {
        return;
    }
    // One timer thread a shielded CPU; how many handlers a line has, only a look at all tells.
    let handlers = partitions.iter().any(|p| p.irq_priority.is_some() && !p.irqs.is_empty());
    let enough = if handlers { usize::MAX } else { shielded(partitions).len() };
    let threads: Vec<_> = task::named(kernel, enough, wanted)
        .into_iter()
        .filter_map(|task| {
            let before = kernel.schedule(task.id.tid).ok()?;
            Some((task.id, task.command.clone(), request::service_of(&task.command)?, before))
        })
        .collect();
    request::adopt(state, partitions, &threads);
}

/// `--tick require-off`: a busy task on each CPU for up to 3 s must see half a second without a tick.
/// The first ticks after a partition is made are the kernel's own clean-up.
pub fn prove_ticks(
    kernel: &dyn Kernel,
    facts: &Facts,
    base: &Base,
    after: &[Partition],
) -> Result<(), String> {
    for partition in after.iter().filter(|partition| partition.tick == Tick::RequireOff) {
        let ticking = partition.cpus.difference(&facts.cpus.nohz_full);
        if !ticking.is_empty() {
            return Err(format!("the tick of CPU {ticking} cannot stop in this boot"));
        }
        let inhabited = asmp_host::cgroup::threads_of(kernel, &base.groups(&partition.name).rt)
            .is_ok_and(|threads| !threads.is_empty());
        if inhabited {
            continue;
        }
        for cpu in partition.cpus.iter() {
            prove_tick(kernel, base, partition, cpu)?;
        }
    }
    Ok(())
}

fn prove_tick(kernel: &dyn Kernel, base: &Base, partition: &Partition, cpu: u32) -> Result<(), String> {
    let window = Duration::from_millis(500);
    let mut spinner = Spinner::start(cpu)?;
    let group = base.groups(&partition.name).rt;
    asmp_host::cgroup::move_process(kernel, spinner.0.id() as i32, &group)
        .map_err(|error| error.to_string())?;
    spinner.pin(cpu)?;
    kernel
        .set_schedule(spinner.0.id() as i32, &Schedule::Fifo { priority: 1 })
        .map_err(|error| format!("the probe got no real-time priority: {error}"))?;
    let ticks = || {
        asmp_host::counters::local_timer_ticks(kernel, cpu)
            .map_err(|error| format!("ticks cannot be counted: {error}"))
    };
    let mut last = u64::MAX;
    for _ in 0..6 {
        let before = ticks()?;
        std::thread::sleep(window);
        last = ticks()?.saturating_sub(before);
        if last == 0 {
            return Ok(());
        }
    }
    Err(format!(
        "CPU {cpu} still took {last} ticks in the last {} ms of 3 s with one busy task: see `asmp noise`",
        window.as_millis()
    ))
}

/// A busy child of ours; ends with us.
struct Spinner(Child);

impl Spinner {
    fn start(_cpu: u32) -> Result<Self, String> {
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
        Command::new(own)
            .args(["spin", "5000"])
            .stdin(Stdio::null())
            .spawn()
            .map(Self)
            .map_err(|error| format!("the probe did not start: {error}"))
    }

    fn pin(&mut self, cpu: u32) -> Result<(), String> {
        asmp_host::sched::confine(self.0.id() as i32, &CpuSet::from_iter([cpu]))
            .map_err(|error| format!("the probe cannot run on CPU {cpu}: {error}"))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// More lines about an error than its one: what `--strict` stumbled on.
pub fn details(error: &anyhow::Error) -> Vec<String> {
    let change = error.chain().find_map(|cause| cause.downcast_ref::<ChangeError>());
    match change {
        Some(ChangeError::Strict { refused }) => {
            refused.iter().map(|refused| format!("{}: {}", refused.what, refused.reason)).collect()
        }
        _ => Vec::new(),
    }
}
