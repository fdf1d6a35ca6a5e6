// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a request to the partitions after it. Reads tasks, changes nothing: what a request means is
//! decided here and nowhere else; which partitions are allowed stands in [`crate::rules`].

use crate::apart;
use crate::choose::Chosen;
use crate::declare;
use crate::grant::Grant;
use crate::granted;
use crate::guard;
use crate::lines;
use crate::mend;
use crate::need;
use crate::neighbours::{self, Affected};
use crate::orphans;
use crate::partition::{Partition, Refusal, State, System, shielded};
use crate::plan::{self, Base, Cannot, Plan, Repair};
use crate::policies;
use crate::request::{Caller, Members, Request};
use crate::rules::{self, Origin, Subject, Wish};
use asmp_host::cgroup::{self, Groups};
use asmp_host::task::{self, Task, TaskId};
use asmp_host::tracefs::users;
use asmp_host::{Facts, Kernel, knob};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a request makes of the machine.
pub(crate) struct Decision {
    /// All partitions after it.
    pub after: Vec<Partition>,
    /// Settings of the system outside the partitions after it.
    pub system: System,
    /// Processes that a file does not mean though they have the name of one of its tasks.
    left_out: Vec<Cannot>,
    /// CPUs that were chosen.
    chosen: Vec<Chosen>,
    /// Who else loses CPUs.
    affected: Vec<Affected>,
    repair: Repair,
    /// The group of our partitions is there without any, and goes.
    closes_base: bool,
    /// What waits for a CPU that is offline is given up.
    abandon: bool,
    /// Settings whose originals are lost, because groups were there that no state knows.
    pub unknown: Vec<String>,
}

impl Decision {
    /// The steps of it.
    pub fn plan(self, kernel: &dyn Kernel, facts: &Facts, base: &Base, state: &State) -> Plan {
        let Self {
            after, system, affected, left_out, chosen, repair, closes_base, abandon, ..
        } = self;
        let mut plan = match abandon {
            true => plan::abandon(facts, base, state, after, system),
            false => plan::repair(facts, base, state, after, system, &repair),
        };
        if closes_base {
            plan.steps.extend(plan::close_base(facts, base, state));
        }
        mend::keep_needed(kernel, base, &mut plan.steps);
        Plan { affected, left_out, chosen, ..plan }
    }
}

/// Decides. `state` gains a record of tasks that were born inside a partition, so that the plan
/// sees them leave. Groups without a state beside a change that is half done (`is_half_done`) may
/// be of that change: they are not called lost.
pub(crate) fn decide(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    request: &Request,
    caller: &Caller,
    is_half_done: bool,
) -> Result<Decision, Refusal> {
    rules::check_machine(facts)?;
    name_processes(kernel, state);
    lines::follow(kernel, facts, state);
    let (mut system, mut left_out) = (state.system(), Vec::new());
    let named = |refusal| neighbours::name_isolator(kernel, facts, refusal);
    let mut chosen = Vec::new();
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let orphans = match is_half_done {
        true => Vec::new(),
        false => orphans::groups(kernel, &base, state),
    };
    caller.granted.as_ref().map_or(Ok(()), |grant| granted::check(grant, state, request))?;
    refuse_beside(&orphans, &base, request)?;
    let (mut closes_base, mut unknown) = (false, Vec::new());
    let mut after = match request {
        Request::Create { name, spec }
        | Request::CreateFor { name, spec, .. }
        | Request::Run { name, spec, .. } => {
            let owner = match request {
                Request::Run { owner, .. } => *owner,
                _ => None,
            };
            // Before CPUs are chosen for it.
            rules::check_new(state, name)?;
            let within = caller.granted.as_ref().map(|grant| &grant.cpus);
            let (cpus, choice) =
                need::resolve(kernel, facts, &state.partitions, (name, spec), within)?;
            chosen.extend(choice);
            let wish = Wish::new(name, cpus, spec, caller, owner);
            let after = rules::create(facts, state, &wish).map_err(named)?;
            match request {
                Request::CreateFor { members, .. } => {
                    let mut with = State { partitions: after, ..state.clone() };
                    join(kernel, facts, &mut with, name, members)?
                }
                _ => after,
            }
        }
        Request::Exec { name, process, command } => {
            let granted = caller.granted.as_ref();
            enter(kernel, facts, state, name, (*process, command), granted)?
        }
        Request::Destroy { name: Some(name), .. } => rules::destroy(state, name)?,
        Request::Destroy { name: None, .. } => Vec::new(),
        Request::EndRun { name, owner } => rules::end_run(state, name, *owner)?,
        Request::Resize { name, cpus } => rules::resize(facts, state, name, cpus).map_err(named)?,
        Request::Mode { name, mode } => guard::set(facts, state, name, *mode)?,
        Request::Add { name, members } => join(kernel, facts, state, name, members)?,
        Request::Remove { name, members, .. } => leave(kernel, facts, state, name, members)?,
        Request::Move { from, to, members } => pass(kernel, facts, state, (from, to), members)?,
        Request::Apply { declaration } => {
            let declared = declare::decide(kernel, facts, state, declaration, caller)?;
            (left_out, chosen) = (declared.left_out, declared.chosen);
            declared.after
        }
        Request::Repair { name } => {
            name.as_ref().map(|name| state.partition(name)).transpose()?;
            state.partitions.clone()
        }
        Request::Restore { .. } => {
            system = System::default();
            let found = orphans::partitions(kernel, &base, &orphans);
            if !orphans.is_empty() {
                closes_base = found.is_empty();
                unknown = orphans::suspects(kernel, facts, &base, &found);
            }
            state.partitions.extend(found);
            Vec::new()
        }
        Request::System(wanted) => {
            let tracer = knob::osnoise_cpus();
            if wanted.timerlat.is_some() && facts.setting(&tracer).is_none() {
                return Err(Refusal::NoTimerlat);
            }
            if wanted.timerlat.is_some() {
                no_tracer_runs(kernel)?;
            }
            system = wanted.clone();
            state.partitions.clone()
        }
    };
    guard::fall_back(facts, &state.partitions, &mut after, request);
    adopt_kernel_threads(kernel, facts, state, &mut after);
    let repair = repair(kernel, &base, &state.partitions, &after, request);
    let affected = neighbours::affected(kernel, facts, (&state.partitions, &after))?;
    let abandon = matches!(request, Request::Restore { abandon: true });
    Ok(Decision {
        after,
        system,
        affected,
        left_out,
        chosen,
        repair,
        closes_base,
        abandon,
        unknown,
    })
}

/// Errors: `TracerInUse`, where any program uses osnoise or timerlat.
pub(crate) fn no_tracer_runs(kernel: &dyn Kernel) -> Result<(), Refusal> {
    let users: Vec<String> = users::of_osnoise(kernel).iter().map(ToString::to_string).collect();
    match users.is_empty() {
        true => Ok(()),
        false => Err(Refusal::TracerInUse { users: users.join(", ") }),
    }
}

/// What the request writes again of partitions that are there before and after it.
fn repair(
    kernel: &dyn Kernel,
    base: &Base,
    before: &[Partition],
    after: &[Partition],
    request: &Request,
) -> Repair {
    let mut repair = Repair::default();
    for old in before.iter().filter(|old| request.repairs(&old.name)) {
        let Some(new) = after.iter().find(|new| new.name == old.name) else { continue };
        let known: BTreeSet<(TaskId, bool)> =
            old.tasks.iter().map(|placed| (placed.task, placed.alone)).collect();
        // Who joins now is not in its groups yet.
        let mut staying = new.clone();
        staying.tasks.retain(|placed| known.contains(&(placed.task, placed.alone)));
        repair.astray.extend(mend::astray(kernel, &base.in_tree(), &[staying]));
        repair.partitions.push(old.clone());
    }
    repair
}

/// Groups without a state keep new partitions from being made, and are no partition to destroy. So
/// does the empty group of all partitions: it is the last trace of lost originals, and a new
/// partition inside it would hide that.
fn refuse_beside(orphans: &[PathBuf], base: &Base, request: &Request) -> Result<(), Refusal> {
    let mut inside = orphans.iter().filter(|group| base.is_inside(group));
    let concerns = match request {
        Request::Create { .. }
        | Request::CreateFor { .. }
        | Request::Run { .. }
        | Request::Apply { .. } => !orphans.is_empty(),
        Request::Destroy { name: None, .. } => inside.next().is_some(),
        Request::Destroy { name: Some(name), .. } | Request::EndRun { name, .. } => {
            inside.any(|group| group.ends_with(name))
        }
        _ => false,
    };
    if !concerns {
        return Ok(());
    }
    let groups: Vec<String> = orphans.iter().map(|group| group.display().to_string()).collect();
    Err(Refusal::Orphans { groups: groups.join(", ") })
}

/// The partition of `name` with more members.
fn join(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    name: &str,
    members: &Members,
) -> Result<Vec<Partition>, Refusal> {
    state.partition(name)?;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let tree = base.in_tree();
    let mut now = state.clone();
    for irq in &members.irqs {
        now.partitions = rules::add_irq(facts, &now, name, irq)?;
    }
    let tasks = members.tasks().map(|(tid, alone)| find_task(kernel, tid, alone));
    let tasks = tasks.collect::<Result<Vec<_>, Refusal>>()?;
    if !members.force {
        neighbours::keep_scopes(kernel, facts, tasks.iter().map(|(task, _)| task))?;
    }
    let mut origins: BTreeMap<i32, Origin> = BTreeMap::new();
    for ((task, lineage), (_, alone)) in tasks.into_iter().zip(members.tasks()) {
        let in_another = task.group.starts_with(&tree) && !is_inside(&tree, &task, name);
        if alone && in_another {
            let from = task.group.strip_prefix(&tree).ok().and_then(|below| below.iter().next());
            let from = from.map_or_else(String::new, |from| from.to_string_lossy().into_owned());
            must_be_separable(kernel, &task, &tree.join(&from).join("rt"), &from)?;
        }
        let is_split = !alone && is_split(kernel, &base.groups(name), task.process);
        if is_split || !is_inside(&tree, &task, name) {
            // Recorded or not: the plan moves it in.
            let own = state.partitions.iter_mut().filter(|partition| partition.name == name);
            own.for_each(|own| {
                own.tasks.retain(|placed| placed.task != task.id || placed.alone != alone);
            });
        }
        let origin = origins
            .entry(task.process)
            .or_insert_with(|| apart::origin(kernel, &base.mount, &task));
        let subject = Subject { task: &task, alone, lineage: &lineage };
        now.partitions = rules::add_task(&now, name, subject, origin.clone(), &tree)?;
        if is_split {
            let members = now.partitions.iter_mut().flat_map(|partition| &mut partition.tasks);
            let own = members.filter(|placed| placed.task == task.id);
            own.filter_map(|placed| placed.policy.as_mut())
                .for_each(|given| policies::join(kernel, task.process, given));
        }
    }
    Ok(now.partitions)
}

/// Are some threads of a process in the partition's `rest` group?
fn is_split(kernel: &dyn Kernel, groups: &Groups, process: i32) -> bool {
    let aside = cgroup::threads_of(kernel, &groups.rest).unwrap_or_default();
    if aside.is_empty() {
        return false;
    }
    let threads = task::thread_numbers(kernel, process).unwrap_or_default();
    aside.iter().any(|tid| threads.binary_search(tid).is_ok())
}

/// Records of earlier versions do not name the process of a thread that is alone.
fn name_processes(kernel: &dyn Kernel, state: &mut State) {
    let members = state.partitions.iter_mut().flat_map(|partition| &mut partition.tasks);
    for placed in members.filter(|placed| placed.alone && placed.process.is_none()) {
        if let Ok(task) = task::read(kernel, placed.task.tid)
            && task.id == placed.task
        {
            placed.process = task::identify(kernel, task.process);
        }
    }
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
    let mut processes: BTreeSet<TaskId> = BTreeSet::new();
    for (tid, alone) in members.tasks() {
        let (task, lineage) = find_task(kernel, tid, alone)?;
        must_be_inside(facts, &task, name)?;
        if !alone {
            record_family(kernel, facts, (state, &mut now), name, task.id)?;
        }
        let subject = Subject { task: &task, alone, lineage: &lineage };
        // A task that was born inside is recorded in both: as one that is there, and one that goes.
        rules::record_born_inside(state, name, subject)?;
        now.partitions = rules::remove_task(&mut now, name, subject)?;
        processes.extend(lineage.first().filter(|_| alone));
    }
    if !processes.is_empty() {
        forget_empty(kernel, facts, &mut now, name, members, &processes)?;
    }
    Ok(now.partitions)
}

/// A process of which the last thread inside leaves goes home: nothing of it stays recorded.
fn forget_empty(
    kernel: &dyn Kernel,
    facts: &Facts,
    now: &mut State,
    name: &str,
    members: &Members,
    processes: &BTreeSet<TaskId>,
) -> Result<(), Refusal> {
    let groups = Base::of(facts).ok_or(Refusal::NoCgroupV2)?.groups(name);
    let go: BTreeSet<i32> = members.tids.iter().copied().collect();
    let inside = cgroup::threads_below(kernel, &groups.rt).unwrap_or_default();
    let stay: BTreeSet<i32> = inside.into_iter().filter(|tid| !go.contains(tid)).collect();
    let gone = |process: &&TaskId| {
        let threads = task::thread_numbers(kernel, process.tid).unwrap_or_default();
        !threads.iter().any(|tid| stay.contains(tid))
    };
    let gone: BTreeSet<TaskId> = processes.iter().filter(gone).copied().collect();
    for partition in now.partitions.iter_mut().filter(|partition| partition.name == name) {
        partition.tasks.retain(|placed| !gone.contains(&placed.process_id()));
    }
    Ok(())
}

/// Before a process leaves: what it brought in and stays inside is recorded with the same origin,
/// in both states.
pub(crate) fn record_family(
    kernel: &dyn Kernel,
    facts: &Facts,
    (state, now): (&mut State, &mut State),
    name: &str,
    leaves: TaskId,
) -> Result<(), Refusal> {
    let groups = Base::of(facts).ok_or(Refusal::NoCgroupV2)?.groups(name);
    let threads = [&groups.rt, &groups.rest].map(|group| cgroup::threads_below(kernel, group));
    for tid in threads.into_iter().flat_map(Result::unwrap_or_default) {
        if !task::lineage(kernel, tid).iter().skip(1).any(|ancestor| *ancestor == leaves) {
            continue;
        }
        let Ok((task, lineage)) = find_task(kernel, tid, false) else { continue };
        if task.id.tid == tid {
            let subject = Subject { task: &task, alone: false, lineage: &lineage };
            rules::record_born_inside(state, name, subject)?;
            rules::record_born_inside(now, name, subject)?;
        }
    }
    Ok(())
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
        let (task, lineage) = find_task(kernel, tid, alone)?;
        must_be_inside(facts, &task, from)?;
        if alone {
            must_be_separable(kernel, &task, &tree.join(from).join("rt"), from)?;
        }
        let process = lineage.first().copied().unwrap_or(task.id);
        record_family(kernel, facts, (state, &mut now), from, process)?;
        let subject = Subject { task: &task, alone, lineage: &lineage };
        for state in [&mut *state, &mut now] {
            rules::record_born_inside(state, from, subject)?;
        }
        now.partitions = rules::add_task(&now, to, subject, Origin::default(), &tree)?;
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
    (process, command): (TaskId, &str),
    granted: Option<&Grant>,
) -> Result<Vec<Partition>, Refusal> {
    state.partition(name)?;
    let tree = tree(facts)?;
    let (mut task, lineage) = find_task(kernel, process.tid, false)?;
    if task.id != process {
        return Err(Refusal::UnknownTask { tid: process.tid });
    }
    let is_elsewhere = task.group.starts_with(&tree) && !is_inside(&tree, &task, name);
    if let Some(grant) = granted.filter(|_| is_elsewhere) {
        return Err(grant.lacks(format!("process {}, which is in another partition", process.tid)));
    }
    command.clone_into(&mut task.command);
    let subject = Subject { task: &task, alone: false, lineage: &lineage };
    let origin = Origin { from: task.group.clone(), ..Origin::default() };
    let mut after = rules::add_task(state, name, subject, origin, &tree)?;
    // Else each job that has ended would stay in the state.
    // The way home of a process hangs on the record of a thread of it that may have ended.
    let lives = |id: TaskId| task::identify(kernel, id.tid) == Some(id);
    let joined = after.iter_mut().filter(|partition| partition.name == name);
    joined.for_each(|partition| partition.tasks.retain(|known| lives(known.process_id())));
    Ok(after)
}

/// The group of our partitions, as tasks see it in /proc/PID/cgroup.
fn tree(facts: &Facts) -> Result<PathBuf, Refusal> {
    Ok(Base::of(facts).ok_or(Refusal::NoCgroupV2)?.in_tree())
}

fn is_inside(tree: &Path, task: &Task, name: &str) -> bool {
    task.group.starts_with(tree.join(name))
}

fn must_be_inside(facts: &Facts, task: &Task, name: &str) -> Result<(), Refusal> {
    if is_inside(&tree(facts)?, task, name) {
        return Ok(());
    }
    let command = task.command.clone();
    Err(Refusal::NotInside { tid: task.id.tid, command, partition: name.to_owned() })
}

/// A thread takes its whole process along to another partition (cgroup v2 moves single threads only
/// within one domain), so no other thread of the process may be on shielded CPUs, those of `rt`.
fn must_be_separable(
    kernel: &dyn Kernel,
    thread: &Task,
    rt: &Path,
    from: &str,
) -> Result<(), Refusal> {
    let threads = task::threads(kernel, thread.process).unwrap_or_default();
    let mut others = threads.iter().filter(|other| other.id != thread.id);
    let is_shielded = |task: &&Task| task.group.starts_with(rt);
    match others.find(is_shielded) {
        None => Ok(()),
        Some(_) => Err(Refusal::Inseparable {
            tid: thread.id.tid,
            process: thread.process,
            partition: from.to_owned(),
        }),
    }
}

/// A task and its lineage. A process is named by its main thread; without `alone` a thread's number
/// means its process.
fn find_task(kernel: &dyn Kernel, tid: i32, alone: bool) -> Result<(Task, Vec<TaskId>), Refusal> {
    let task = task::read(kernel, tid).map_err(|_| Refusal::UnknownTask { tid })?;
    if !alone && task.process != tid {
        return find_task(kernel, task.process, false);
    }
    let lineage = task::lineage(kernel, task.process);
    Ok((task, lineage))
}

/// Records the kernel threads that serve the partitions (PREEMPT_RT, `threadirqs`): handlers of
/// their IRQ lines, timers of their CPUs.
fn adopt_kernel_threads(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &State,
    partitions: &mut [Partition],
) {
    if !rules::handlers_are_threads(facts) || partitions.is_empty() {
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
