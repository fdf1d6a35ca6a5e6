// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a request to the partitions after it. Reads tasks, changes nothing: what a request means is
//! decided here and nowhere else; which partitions are allowed stands in [`crate::rules`].

use crate::declare;
use crate::mend;
use crate::orphans;
use crate::partition::{Partition, Refusal, State, System, shielded};
use crate::plan::{self, Base, Plan};
use crate::request::{Caller, Members, Request};
use crate::rules::{self, Wish};
use asmp_host::task::{self, Member, Task, TaskId};
use asmp_host::{Facts, Kernel, knob};
use std::path::{Path, PathBuf};

/// What a request makes of the machine.
pub(crate) struct Decision {
    /// All partitions after it.
    pub after: Vec<Partition>,
    /// Settings of the system outside the partitions after it.
    pub system: System,
    /// A repair: all that the partitions need is written again, and these members are moved back.
    repair: Option<Vec<(String, Member)>>,
    /// The group of our partitions is there without any, and goes.
    closes_base: bool,
    /// Settings whose originals are lost, because groups were there that no state knows.
    pub unknown: Vec<String>,
}

impl Decision {
    /// The steps of it.
    pub fn plan(self, kernel: &dyn Kernel, facts: &Facts, base: &Base, state: &State) -> Plan {
        let Self { after, system, repair, closes_base, .. } = self;
        match repair {
            None => {
                let mut plan = plan::plan(facts, base, state, after, system);
                if closes_base {
                    plan.steps.extend(plan::close_base(facts, base, state));
                }
                plan
            }
            Some(astray) => {
                let mut plan = plan::repair(facts, base, state, after, system, &astray);
                plan.steps.retain_mut(|step| mend::is_needed(kernel, base, step));
                plan
            }
        }
    }
}

/// Decides. `state` gains a record of tasks that were born inside a partition, so that the plan
/// sees them leave.
pub(crate) fn decide(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    request: &Request,
    caller: &Caller,
) -> Result<Decision, Refusal> {
    rules::check_machine(facts)?;
    let mut system = state.system();
    let mut repair = None;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let orphans = orphans::groups(kernel, &base, state);
    refuse_beside(&orphans, &base, request)?;
    let (mut closes_base, mut unknown) = (false, Vec::new());
    let mut after = match request {
        Request::Create { name, spec } => {
            rules::create(facts, state, &Wish::new(name, spec, caller, None))?
        }
        Request::Run { name, spec, owner } => {
            rules::create(facts, state, &Wish::new(name, spec, caller, *owner))?
        }
        Request::Exec { name, pid, command } => enter(kernel, facts, state, name, *pid, command)?,
        Request::Destroy { name: Some(name), .. } => rules::destroy(state, name)?,
        Request::Destroy { name: None, .. } => Vec::new(),
        Request::Resize { name, cpus } => rules::resize(facts, state, name, cpus)?,
        Request::Add { name, members } => join(kernel, facts, state, name, members)?,
        Request::Remove { name, members, .. } => leave(kernel, facts, state, name, members)?,
        Request::Move { from, to, members } => pass(kernel, facts, state, (from, to), members)?,
        Request::Apply { declaration } => {
            declare::decide(kernel, facts, state, declaration, caller)?
        }
        Request::Repair { name } => {
            name.as_ref().map(|name| state.partition(name)).transpose()?;
            repair = Some(mend::astray(kernel, &tree(facts)?, &state.partitions));
            state.partitions.clone()
        }
        Request::Restore { .. } => {
            system = System::default();
            let found = orphans::partitions(kernel, &base, &orphans);
            if !orphans.is_empty() {
                closes_base = found.is_empty();
                unknown = orphans::suspects(facts, &base, &found);
            }
            state.partitions.extend(found);
            Vec::new()
        }
        Request::System(wanted) => {
            let tracer = knob::osnoise_cpus();
            if wanted.timerlat.is_some() && facts.setting(&tracer).is_none() {
                return Err(Refusal::NoTimerlat);
            }
            system = wanted.clone();
            state.partitions.clone()
        }
    };
    adopt_kernel_threads(kernel, facts, state, &mut after);
    Ok(Decision { after, system, repair, closes_base, unknown })
}

/// Groups without a state keep new partitions from being made, and are no partition to destroy. The
/// empty group of all partitions is no obstacle.
fn refuse_beside(orphans: &[PathBuf], base: &Base, request: &Request) -> Result<(), Refusal> {
    let mut orphans = orphans.iter().filter(|group| base.is_inside(group)).peekable();
    let concerns = match request {
        Request::Create { .. } | Request::Run { .. } | Request::Apply { .. } => true,
        Request::Destroy { name: None, .. } => true,
        Request::Destroy { name: Some(name), .. } => {
            orphans.clone().any(|group| group.ends_with(name))
        }
        _ => false,
    };
    if !concerns || orphans.peek().is_none() {
        return Ok(());
    }
    let groups: Vec<String> = orphans.map(|group| group.display().to_string()).collect();
    Err(Refusal::Orphans { groups: groups.join(", ") })
}

/// The partition of `name` with more members.
fn join(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &State,
    name: &str,
    members: &Members,
) -> Result<Vec<Partition>, Refusal> {
    state.partition(name)?;
    let tree = tree(facts)?;
    let mut now = state.clone();
    for irq in &members.irqs {
        now.partitions = rules::add_irq(facts, &now, name, irq)?;
    }
    for (tid, alone) in members.tasks() {
        let task = find_task(kernel, tid, alone)?;
        let real_time = task::real_time_threads(kernel, task.process);
        now.partitions = rules::add_task(&now, name, &task, alone, real_time, &tree)?;
    }
    Ok(now.partitions)
}

/// The partition of `name` with fewer members.
fn leave(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    name: &str,
    members: &Members,
) -> Result<Vec<Partition>, Refusal> {
    state.partition(name)?;
    let mut now = state.clone();
    for irq in &members.irqs {
        now.partitions = rules::remove_irq(facts, &now, name, irq)?;
    }
    for (tid, alone) in members.tasks() {
        let task = find_task(kernel, tid, alone)?;
        must_be_inside(facts, &task, name)?;
        // A task that was born inside is recorded in both: as one that is there, and one that goes.
        rules::record_born_inside(state, name, &task, alone)?;
        now.partitions = rules::remove_task(&mut now, name, &task, alone)?;
    }
    Ok(now.partitions)
}

/// Members of one partition become those of another; they keep their way home.
fn pass(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    (from, to): (&str, &str),
    members: &Members,
) -> Result<Vec<Partition>, Refusal> {
    state.partition(from)?;
    state.partition(to)?;
    let tree = tree(facts)?;
    let mut now = state.clone();
    for irq in &members.irqs {
        let had = now.partition(from)?.irqs.clone();
        now.partitions = rules::remove_irq(facts, &now, from, irq)?;
        let kept = now.partition(from)?.irqs.clone();
        // A name may mean lines that `from` does not have.
        for line in had.iter().filter(|line| !kept.contains(line)) {
            now.partitions = rules::add_irq(facts, &now, to, &line.to_string())?;
        }
    }
    for (tid, alone) in members.tasks() {
        let task = find_task(kernel, tid, alone)?;
        must_be_inside(facts, &task, from)?;
        if alone {
            must_be_separable(kernel, &task, from)?;
        }
        for state in [&mut *state, &mut now] {
            rules::record_born_inside(state, from, &task, alone)?;
        }
        now.partitions = rules::add_task(&now, to, &task, alone, Vec::new(), &tree)?;
    }
    Ok(now.partitions)
}

/// A process that is about to execute `command` joins `name`. It gets its policy inside, so none of
/// its threads counts as real-time from before.
fn enter(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &State,
    name: &str,
    pid: i32,
    command: &str,
) -> Result<Vec<Partition>, Refusal> {
    state.partition(name)?;
    let mut task = find_task(kernel, pid, false)?;
    command.clone_into(&mut task.command);
    rules::add_task(state, name, &task, false, Vec::new(), &tree(facts)?)
}

/// The group of our partitions, as tasks see it in /proc/PID/cgroup.
fn tree(facts: &Facts) -> Result<PathBuf, Refusal> {
    Ok(Base::of(facts).ok_or(Refusal::NoCgroupV2)?.in_tree())
}

fn must_be_inside(facts: &Facts, task: &Task, name: &str) -> Result<(), Refusal> {
    let inside = tree(facts)?.join(Path::new(name));
    if task.group.starts_with(&inside) {
        return Ok(());
    }
    let command = task.command.clone();
    Err(Refusal::NotInside { tid: task.id.tid, command, partition: name.to_owned() })
}

/// A thread takes its whole process along to another partition (cgroup v2 moves single threads only
/// within one domain), so no other thread of the process may be on shielded CPUs.
fn must_be_separable(kernel: &dyn Kernel, thread: &Task, from: &str) -> Result<(), Refusal> {
    let threads = task::threads(kernel, thread.process).unwrap_or_default();
    let mut others = threads.iter().filter(|other| other.id != thread.id);
    match others.find(|other| other.group.ends_with("rt")) {
        None => Ok(()),
        Some(_) => Err(Refusal::Inseparable {
            tid: thread.id.tid,
            process: thread.process,
            partition: from.to_owned(),
        }),
    }
}

/// A process is named by its main thread; without `alone` a thread's number means its process.
fn find_task(kernel: &dyn Kernel, tid: i32, alone: bool) -> Result<Task, Refusal> {
    let task = task::read(kernel, tid).map_err(|_| Refusal::UnknownTask { tid })?;
    if alone || task.process == tid { Ok(task) } else { find_task(kernel, task.process, false) }
}

/// Records the kernel threads that serve the partitions (PREEMPT_RT, `threadirqs`): handlers of
/// their IRQ lines, timers of their CPUs.
fn adopt_kernel_threads(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &State,
    partitions: &mut [Partition],
) {
    let threaded = facts.preempt_rt || facts.boot_parameter("threadirqs").is_some();
    if !threaded || partitions.is_empty() {
        return;
    }
    let wanted = |name: &str| {
        rules::service_of(name).is_some_and(|service| {
            partitions.iter().any(|p| rules::priority_for(p, service).is_some())
        })
    };
    // Each shielded CPU has one timer thread; only a look at all tells how many handlers there are.
    let handlers = partitions.iter().any(|p| p.irq_priority.is_some() && !p.irqs.is_empty());
    let enough = if handlers { usize::MAX } else { shielded(partitions).len() };
    let threads: Vec<_> = task::kernel_threads_named(kernel, enough, wanted)
        .into_iter()
        .filter_map(|task| {
            let before = kernel.schedule(task.id.tid).ok()?;
            Some((task.id, task.command.clone(), rules::service_of(&task.command)?, before))
        })
        .collect::<Vec<(TaskId, _, _, _)>>();
    rules::adopt(state, partitions, &threads);
}
