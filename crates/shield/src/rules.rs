// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules: which partitions there may be on this machine, from facts and the present state.
//! Pure.

use crate::grant::Grant;
use crate::guard;
use crate::partition::{
    Aspect, BoostedThread, Partition, Refusal, Service, Smt, State, TIMER_PRIORITY, Tick, shielded,
};
use crate::request::{Caller, Spec};
use asmp_host::irq::Irq;
use asmp_host::systemd::HOLDER;
use asmp_host::task::{GivenPolicy, Member, Task, TaskId, ThreadGroup};
use asmp_host::{Cpu, CpuSet, CpuSpec, Facts};
use std::path::{Path, PathBuf};

/// A partition as asked for, with who asked and when.
#[derive(Debug, Clone)]
pub struct Wish {
    pub name: String,
    /// Those that `spec` names, or those chosen for it.
    pub cpus: CpuSpec,
    pub spec: Spec,
    pub created_s: u64,
    pub created_by: String,
    pub owner: Option<TaskId>,
    pub granted: Option<Grant>,
}

impl Wish {
    pub fn new(
        name: &str,
        cpus: CpuSpec,
        spec: &Spec,
        caller: &Caller,
        owner: Option<TaskId>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            cpus,
            spec: spec.clone(),
            created_s: caller.time_s,
            created_by: caller.creator(),
            owner,
            granted: caller.granted.clone(),
        }
    }
}

/// Can this machine be partitioned at all?
pub fn check_machine(facts: &Facts) -> Result<(), Refusal> {
    check_tree(facts)?;
    if let Some(mount) = &facts.cgroups.cpuset_v1 {
        return Err(Refusal::CpusetV1 { mount: mount.clone() });
    }
    if facts.cgroups.mount.is_none() {
        return Err(Refusal::NoCgroupV2);
    }
    if !facts.cgroups.controllers.iter().any(|name| name == "cpuset") {
        return Err(Refusal::NoCpuset);
    }
    // Distributions backport the feature, so the file counts, not the version.
    if facts.cgroups.isolated.is_none() && facts.version() < (6, 7) {
        return Err(Refusal::KernelTooOld { release: facts.release.clone() });
    }
    if !facts.cgroups.is_real_root(facts.version()) {
        return Err(Refusal::InContainer);
    }
    Ok(())
}

/// Does this process see the machine's groups and tasks at all? Errors: `InContainer`,
/// `ContainedPids`.
pub fn check_tree(facts: &Facts) -> Result<(), Refusal> {
    match facts.cgroups.is_group {
        true => Err(Refusal::InContainer),
        false if facts.contained_pids => Err(Refusal::ContainedPids),
        false => Ok(()),
    }
}

/// Are these CPUs of the machine? Errors: `NoCpus`, `UnknownCpus`.
pub fn possible_cpus(facts: &Facts, cpus: &CpuSet) -> Result<(), Refusal> {
    let possible = &facts.cpus.possible;
    if cpus.is_empty() {
        return Err(Refusal::NoCpus { online: facts.cpus.online.clone() });
    }
    if !cpus.is_subset(possible) {
        let (cpus, possible) = (cpus.difference(possible), possible.clone());
        return Err(Refusal::UnknownCpus { cpus, possible });
    }
    Ok(())
}

/// Are these CPUs online? Errors: `NoCpus`, `UnknownCpus`, `OfflineCpus`.
pub fn online_cpus(facts: &Facts, cpus: &CpuSet) -> Result<(), Refusal> {
    possible_cpus(facts, cpus)?;
    let online = &facts.cpus.online;
    if !cpus.is_subset(online) {
        let (cpus, online) = (cpus.difference(online), online.clone());
        return Err(Refusal::OfflineCpus { cpus, online });
    }
    Ok(())
}

/// All partitions with one more.
pub fn create(facts: &Facts, state: &State, wish: &Wish) -> Result<Vec<Partition>, Refusal> {
    check_new(state, &wish.name)?;
    let spec = &wish.spec;
    if let Some(priority) = spec.irq_priority.filter(|priority| !(1..=99).contains(priority)) {
        return Err(Refusal::BadPriority { priority });
    }
    let (cpus, idle_cpus) =
        choose_cpus(facts, &state.partitions, &wish.name, &wish.cpus, spec.smt, spec.tick)?;
    let mut partition = Partition {
        name: wish.name.clone(),
        cpus,
        idle_cpus,
        smt: spec.smt,
        tick: spec.tick,
        strict: spec.strict,
        without: spec.without.clone(),
        irqs: Vec::new(),
        irq_priority: spec.irq_priority,
        served: Vec::new(),
        tasks: Vec::new(),
        created_s: wish.created_s,
        created_by: wish.created_by.clone(),
        owner: wish.owner,
        granted: wish.granted.clone(),
        mode: spec.mode,
    };
    guard::check(facts, partition.mode, &partition.cpus)?;
    for name in &spec.irqs {
        own_irq(facts, &state.partitions, &mut partition, name)?;
    }
    wish.granted.as_ref().map_or(Ok(()), |grant| grant.allows_cpus(&partition))?;
    let mut after = state.partitions.clone();
    after.push(partition);
    Ok(after)
}

/// All partitions once `name` has other CPUs. Its SMT and tick settings stay.
pub fn resize(
    facts: &Facts,
    state: &State,
    name: &str,
    cpus: &CpuSpec,
) -> Result<Vec<Partition>, Refusal> {
    let old = state.partition(name)?;
    let (cpus, idle_cpus) = choose_cpus(facts, &state.partitions, name, cpus, old.smt, old.tick)?;
    change_one(state, name, |partition| {
        guard::check(facts, partition.mode, &cpus)?;
        partition.cpus = cpus;
        partition.idle_cpus = idle_cpus;
        let shielded = partition.shielded();
        partition
            .served
            .retain(|thread| !matches!(thread.by, Service::Timers(cpu) if !shielded.contains(cpu)));
        Ok(())
    })
}

/// All partitions without `name`.
pub fn destroy(state: &State, name: &str) -> Result<Vec<Partition>, Refusal> {
    state.partition(name)?;
    Ok(state.partitions.iter().filter(|partition| partition.name != name).cloned().collect())
}

/// Without the partition that was made for `owner`. Errors: `NoPartition`, also where another one
/// has its name by now.
pub fn end_run(
    state: &State,
    name: &str,
    owner: Option<TaskId>,
) -> Result<Vec<Partition>, Refusal> {
    match state.partition(name)?.owner == owner {
        true => destroy(state, name),
        false => Err(Refusal::NoPartition { name: name.to_owned(), known: state.known_names() }),
    }
}

/// `name` with an IRQ line more.
pub fn add_irq(
    facts: &Facts,
    state: &State,
    name: &str,
    irq: &str,
) -> Result<Vec<Partition>, Refusal> {
    let others = state.partitions.clone();
    change_one(state, name, |partition| own_irq(facts, &others, partition, irq))
}

/// `name` with an IRQ line less. The line goes back to where it was.
pub fn remove_irq(
    facts: &Facts,
    state: &State,
    name: &str,
    irq: &str,
) -> Result<Vec<Partition>, Refusal> {
    change_one(state, name, |partition| {
        let named = find_irqs(facts, irq)?;
        let (gone, kept) = partition.irqs.iter().partition(|own| named.contains(own));
        let gone: Vec<u32> = gone;
        if gone.is_empty() {
            return Err(Refusal::IrqNotInside { irq: named[0], partition: partition.name.clone() });
        }
        partition.irqs = kept;
        partition
            .served
            .retain(|thread| !matches!(thread.by, Service::Irq(irq) if gone.contains(&irq)));
        Ok(())
    })
}

/// A task that joins or leaves a partition.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub task: &'a Task,
    /// Only this thread, else its whole process.
    pub alone: bool,
    /// Its process and the living ancestors of that, nearest first.
    pub lineage: &'a [TaskId],
}

impl Subject<'_> {
    fn process(&self) -> TaskId {
        self.lineage.first().copied().unwrap_or(self.task.id)
    }

    fn is(&self, placed: &Member) -> bool {
        placed.task == self.task.id && placed.alone == self.alone
    }

    fn member(&self, origin: Origin) -> Member {
        let Origin { from, real_time, apart, policy } = origin;
        Member {
            task: self.task.id,
            command: self.task.command.clone(),
            alone: self.alone,
            process: self.alone.then(|| self.process()),
            from,
            apart,
            entered: None,
            real_time,
            policy,
        }
    }
}

/// What a task was before any of our partitions.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The group of its process.
    pub from: PathBuf,
    /// Threads of its process that were real-time.
    pub real_time: Vec<TaskId>,
    /// Threads of its process that were in other groups.
    pub apart: Vec<ThreadGroup>,
    pub policy: Option<GivenPolicy>,
}

/// The origin of a process, or of the nearest ancestor that is recorded, as any of these partitions
/// has it. All records of one process have the same.
pub fn origin(partitions: &[Partition], lineage: &[TaskId]) -> Option<Origin> {
    lineage.iter().find_map(|process| {
        let members = partitions.iter().flat_map(|partition| &partition.tasks);
        let mut of_process = members.filter(|placed| placed.process_id() == *process);
        let first = of_process.next()?;
        let (from, real_time) = (first.from.clone(), first.real_time.clone());
        // Those of an ancestor are not of this process.
        let is_own = lineage.first() == Some(process);
        let apart = if is_own { first.apart.clone() } else { Vec::new() };
        let policy = first.policy.clone().or_else(|| of_process.find_map(|one| one.policy.clone()));
        Some(Origin { from, real_time, apart, policy })
    })
}

/// `name` with a task more. `now`: what it is where it comes from outside; `base_in_tree`: the
/// group below which our partitions lie.
pub fn add_task(
    state: &State,
    name: &str,
    subject: Subject,
    now: Origin,
    base_in_tree: &Path,
) -> Result<Vec<Partition>, Refusal> {
    let Subject { task, alone, lineage } = subject;
    if task.zombie {
        return Err(Refusal::UnknownTask { tid: task.id.tid });
    }
    if task.kernel_thread && task.bound {
        return Err(Refusal::BoundKernelThread { tid: task.id.tid, command: task.command.clone() });
    }
    if task.group.starts_with(base_in_tree.join(HOLDER)) {
        return Err(Refusal::Holder { tid: task.id.tid });
    }
    // A task that moves from one partition to another still came from where it was before the
    // first. What was born inside came with the ancestor that is recorded.
    let known = origin(&state.partitions, lineage);
    let origin = match known {
        Some(known) if task.group.starts_with(base_in_tree) => known,
        None if task.group.starts_with(base_in_tree) => {
            Origin { from: Path::new("/").to_owned(), ..Origin::default() }
        }
        known => {
            let policy = known.and_then(|known| known.policy);
            Origin { policy, ..now }
        }
    };
    // A thread that stood aside was not given the policy of the others.
    let was_given = |policy: &GivenPolicy| {
        let aside = alone && task.group.ends_with("rest");
        !aside || policy.before.iter().any(|thread| thread.task == task.id)
    };
    let origin = Origin { policy: origin.policy.filter(was_given), ..origin };
    let process = subject.process();
    let mut after = state.partitions.clone();
    for partition in &mut after {
        // One process is in one partition: its threads come along, and a whole process stands for
        // its threads.
        let stays = alone && partition.name == name;
        partition.tasks.retain(|placed| {
            placed.process_id() != process
                || stays && placed.task != task.id
                || stays && !placed.alone
        });
    }
    let moved = State { partitions: after, ..state.clone() };
    change_one(&moved, name, |partition| {
        let whole = |placed: &Member| !placed.alone && placed.task == process;
        let is_inside = !task.group.ends_with("rest");
        if !(alone && is_inside && partition.tasks.iter().any(whole)) {
            partition.tasks.push(subject.member(origin));
        }
        Ok(())
    })
}

/// `name` with a task less; of a process that leaves whole, no thread stays. One that was born
/// inside is first recorded in `state`, so that the plan sees it leave.
pub fn remove_task(
    state: &mut State,
    name: &str,
    subject: Subject,
) -> Result<Vec<Partition>, Refusal> {
    record_born_inside(state, name, subject)?;
    change_one(state, name, |partition| {
        partition.tasks.retain(|placed| match subject.alone {
            true => !subject.is(placed),
            false => placed.process_id() != subject.process(),
        });
        let own = partition.tasks.iter_mut().filter(|placed| placed.task == subject.process());
        let entered = own.filter_map(|placed| placed.entered.as_mut());
        entered.for_each(|threads| threads.retain(|thread| *thread != subject.task.id));
        Ok(())
    })
}

/// Records a task that is in `name` but was born there, with the origin of what brought it in.
pub fn record_born_inside(state: &mut State, name: &str, subject: Subject) -> Result<(), Refusal> {
    state.partition(name)?;
    let none = || Origin { from: Path::new("/").to_owned(), ..Origin::default() };
    let origin = origin(&state.partitions, subject.lineage).unwrap_or_else(none);
    if let Some(partition) = state.partitions.iter_mut().find(|partition| partition.name == name) {
        match partition.tasks.iter_mut().find(|placed| subject.is(placed)) {
            // Its process got the policy after it had joined alone.
            Some(placed) if placed.policy.is_none() => placed.policy = origin.policy,
            Some(_) => {}
            None => partition.tasks.push(subject.member(origin)),
        }
    }
    Ok(())
}

/// What a kernel thread serves, by its name: `irq/24-eth0`, `ktimers/3`.
pub fn service_of(command: &str) -> Option<Service> {
    if let Some(rest) = command.strip_prefix("irq/") {
        return rest.split('-').next()?.parse().ok().map(Service::Irq);
    }
    command.strip_prefix("ktimers/")?.parse().ok().map(Service::Timers)
}

/// Do lines have handlers that are threads, whose priority can be set?
pub fn handlers_are_threads(facts: &Facts) -> bool {
    facts.preempt_rt || facts.boot_parameter("threadirqs").is_some()
}

/// Which priority `partition` gives to a thread with this service; `None`: it leaves it alone.
pub fn priority_for(partition: &Partition, service: Service) -> Option<u32> {
    match service {
        Service::Irq(irq) => partition.irq_priority.filter(|_| partition.irqs.contains(&irq)),
        Service::Timers(cpu) => {
            let wanted =
                !partition.without.contains(&Aspect::Timers) && partition.shielded().contains(cpu);
            wanted.then_some(TIMER_PRIORITY)
        }
    }
}

/// Remembers the kernel threads that serve the partitions, with their policies before any of ours.
pub fn adopt(
    state: &State,
    partitions: &mut [Partition],
    threads: &[(TaskId, String, Service, asmp_host::Schedule)],
) {
    let known: Vec<&BoostedThread> =
        state.partitions.iter().flat_map(|one| &one.served).chain(&state.policies_left).collect();
    for partition in partitions {
        for (task, command, by, now) in threads {
            let there = partition.served.iter().any(|served| served.task == *task);
            if let (false, Some(priority)) = (there, priority_for(partition, *by)) {
                let before = known
                    .iter()
                    .find(|known| known.task == *task)
                    .map_or(*now, |known| known.before);
                partition.served.push(BoostedThread {
                    task: *task,
                    command: command.clone(),
                    by: *by,
                    before,
                    priority,
                });
            }
        }
    }
}

/// IRQ lines meant by a number or name. Errors: `UnknownIrq`, `PerCpuIrq`.
pub fn find_irqs(facts: &Facts, name: &str) -> Result<Vec<u32>, Refusal> {
    let found: Vec<&Irq> = facts.irqs.iter().filter(|irq| irq.is_called(name)).collect();
    if let Some(irq) = found.iter().find(|irq| irq.per_cpu) {
        return Err(Refusal::PerCpuIrq { irq: irq.label() });
    }
    match found.is_empty() {
        true => Err(Refusal::UnknownIrq { name: name.to_owned(), hint: String::new() }),
        false => Ok(found.iter().map(|irq| irq.number).collect()),
    }
}

fn own_irq(
    facts: &Facts,
    others: &[Partition],
    partition: &mut Partition,
    name: &str,
) -> Result<(), Refusal> {
    for irq in find_irqs(facts, name)? {
        if let Some(owner) =
            others.iter().find(|other| other.name != partition.name && other.irqs.contains(&irq))
        {
            return Err(Refusal::TakenIrq { irq, owner: owner.name.clone() });
        }
        if !partition.irqs.contains(&irq) {
            partition.irqs.push(irq);
        }
    }
    Ok(())
}

fn change_one(
    state: &State,
    name: &str,
    change: impl FnOnce(&mut Partition) -> Result<(), Refusal>,
) -> Result<Vec<Partition>, Refusal> {
    state.partition(name)?;
    let mut after = state.partitions.clone();
    if let Some(partition) = after.iter_mut().find(|partition| partition.name == name) {
        change(partition)?;
    }
    Ok(after)
}

/// May a new partition have this name? Errors: `BadName`, `NameTaken`.
pub fn check_new(state: &State, name: &str) -> Result<(), Refusal> {
    check_name(name)?;
    match state.partition(name) {
        Ok(_) => Err(Refusal::NameTaken { name: name.to_owned() }),
        Err(_) => Ok(()),
    }
}

/// A name becomes a directory of the cgroup tree and a word of every message.
fn check_name(name: &str) -> Result<(), Refusal> {
    // Files of a cgroup have a dot in their names, and `holder` is the group of the process that
    // holds the delegated service.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let good = name != HOLDER
        && (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain);
    if good { Ok(()) } else { Err(Refusal::BadName { name: name.to_owned() }) }
}

/// The CPUs of partition `name`, and the siblings that must idle with them.
fn choose_cpus(
    facts: &Facts,
    partitions: &[Partition],
    name: &str,
    spec: &CpuSpec,
    smt: Smt,
    tick: Tick,
) -> Result<(CpuSet, CpuSet), Refusal> {
    let others: Vec<Partition> =
        partitions.iter().filter(|other| other.name != name).cloned().collect();
    let own_now =
        partitions.iter().find(|own| own.name == name).map(Partition::shielded).unwrap_or_default();
    let online = &facts.cpus.online;
    // "last" and "all-but" choose among CPUs that are free; a list says exactly what it says.
    let free = online.difference(&shielded(&others));
    let cpus = match spec {
        CpuSpec::Last(_) | CpuSpec::AllBut(_) => spec.resolve(&free),
        CpuSpec::List(_) | CpuSpec::All | CpuSpec::UpToLast(_) => spec.resolve(online),
    };
    if cpus.is_empty() {
        return Err(Refusal::NoCpus { online: free });
    }
    online_cpus(facts, &cpus)?;
    for other in &others {
        let taken = cpus.intersection(&other.shielded());
        if !taken.is_empty() {
            return Err(Refusal::TakenCpus { cpus: taken, owner: other.name.clone() });
        }
    }
    if let Some(isolated) = &facts.cgroups.isolated {
        // isolcpus= CPUs are listed there too; those may join an isolated partition.
        let foreign =
            isolated.intersection(&cpus).difference(&own_now).difference(&facts.cpus.boot_isolated);
        if !foreign.is_empty() {
            return Err(Refusal::ForeignIsolated { cpus: foreign });
        }
    }
    let idle_cpus = match smt {
        Smt::Share => CpuSet::new(),
        Smt::Idle => idle_siblings(facts, &others, &cpus)?,
    };
    if online.difference(&shielded(&others)).difference(&cpus).difference(&idle_cpus).is_empty() {
        return Err(match idle_cpus.first() {
            // Without the siblings there would be a CPU left: then they are the reason.
            Some(sibling)
                if !online.difference(&shielded(&others)).difference(&cpus).is_empty() =>
            {
                Refusal::Sibling {
                    cpu: core_mate(facts, sibling, &cpus),
                    sibling,
                    why: "is the last one of the system".to_owned(),
                }
            }
            _ => Refusal::LastCpu { online: online.clone() },
        });
    }
    if tick == Tick::RequireOff && !cpus.is_subset(&facts.cpus.nohz_full) {
        if !facts.cpus.tick_can_stop {
            return Err(Refusal::TickNeverStops);
        }
        return Err(Refusal::TickNotCandidate { cpus: cpus.difference(&facts.cpus.nohz_full) });
    }
    Ok((cpus, idle_cpus))
}

/// Online hardware threads that share a core with `cpus` and are not among them.
fn idle_siblings(facts: &Facts, others: &[Partition], cpus: &CpuSet) -> Result<CpuSet, Refusal> {
    let idle = siblings(facts, cpus);
    for sibling in idle.iter() {
        if let Some(owner) = others.iter().find(|other| other.shielded().contains(sibling)) {
            let why = format!("belongs to partition {}", owner.name);
            return Err(Refusal::Sibling { cpu: core_mate(facts, sibling, cpus), sibling, why });
        }
    }
    Ok(idle)
}

/// Online CPUs that share a core with one of these and are none of them.
pub fn siblings(facts: &Facts, cpus: &CpuSet) -> CpuSet {
    let cores = cpus.iter().filter_map(|cpu| facts.cpus.core_of.get(&cpu));
    let of_cores = cores.fold(CpuSet::new(), |all, core| all.union(core));
    of_cores.intersection(&facts.cpus.online).difference(cpus)
}

fn core_mate(facts: &Facts, sibling: Cpu, cpus: &CpuSet) -> Cpu {
    facts
        .cpus
        .core_of
        .get(&sibling)
        .and_then(|core| core.intersection(cpus).first())
        .unwrap_or(sibling)
}
