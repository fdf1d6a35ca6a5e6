// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a file's declaration to the partitions once it is in force: which processes it means, and
//! which it leaves out.

use crate::apart;
use crate::choose::Chosen;
use crate::decide;
use crate::declaration::{Declaration, Declared, DeclaredTask, IrqName, Wrong};
use crate::need::{Asks, Survey};
use crate::neighbours;
use crate::partition::{BoostedThread, Partition, Refusal, State, shielded};
use crate::plan::{Base, Cannot};
use crate::policies;
use crate::request::{Caller, Cpus, Spec};
use crate::rules::{self, Subject, Wish};
use asmp_host::task::{self, Member, Task, TaskId};
use asmp_host::{CpuSpec, Facts, Kernel, Schedule};
use std::collections::BTreeSet;
use std::path::Path;

/// What a file makes of the partitions.
pub(crate) struct InForce {
    /// The partitions once it is in force.
    pub after: Vec<Partition>,
    /// What it does not mean though it has the name.
    pub left_out: Vec<Cannot>,
    /// CPUs that were chosen.
    pub chosen: Vec<Chosen>,
}

/// Decides. `state` gains a record of tasks that were born inside and get a policy.
pub(crate) fn decide(
    kernel: &dyn Kernel,
    facts: &Facts,
    state: &mut State,
    declaration: &Declaration,
    caller: &Caller,
) -> Result<InForce, Refusal> {
    declaration.check()?;
    let base = Base::of(facts).ok_or(Refusal::NoCgroupV2)?;
    let mut now = state.clone();
    // CPUs may pass from one partition of the file to another: all give up theirs first.
    let names: BTreeSet<&str> =
        declaration.partitions.iter().map(|one| one.name.as_str()).collect();
    now.partitions.retain(|partition| !names.contains(partition.name.as_str()));
    // CPUs that our own partitions isolate are no foreign ones.
    let mut ours = facts.clone();
    ours.cgroups.isolated =
        facts.cgroups.isolated.as_ref().map(|all| all.difference(&shielded(&state.partitions)));
    let tasks = match declaration.partitions.iter().any(|one| !one.tasks.is_empty()) {
        true => task::read_all(kernel).unwrap_or_default(),
        false => Vec::new(),
    };
    let about = |declared: &Declared, refusal| {
        let refusal = neighbours::name_isolator(kernel, facts, refusal);
        Refusal::Declared { partition: declared.name.clone(), cause: Box::new(refusal) }
    };
    let before = |name: &str| state.partitions.iter().find(|old| old.name == name);
    // Those that name their CPUs get them, before others choose.
    let mut asking = Vec::new();
    for (partition, declared) in declaration.partitions.iter().enumerate() {
        let old = before(&declared.name);
        let wrong = |reason| Wrong { partition, task: None, key: Some("cpus"), reason };
        match declared.wanted().map_err(wrong)? {
            Cpus::Named(cpus) => {
                let made = declared.make(&ours, &now, (cpus, old), caller);
                now.partitions = made.map_err(|refusal| about(declared, refusal))?;
            }
            Cpus::Needed(need) => {
                let (name, has) = (&*declared.name, old.map(|old| old.cpus.clone()));
                let (tick, smt) = (declared.tick, declared.smt);
                asking.push((declared, Asks { name, need, tick, smt, has, within: None }));
            }
        }
    }
    let asks: Vec<Asks> = asking.iter().map(|(_, asks)| asks.clone()).collect();
    let chosen = match asks.is_empty() {
        true => Vec::new(),
        false => Survey::read(kernel, &ours)
            .settle(&now.partitions, &asks)
            .map_err(|(at, refusal)| about(asking[at].0, refusal))?,
    };
    for ((declared, _), chosen) in asking.iter().zip(&chosen) {
        let cpus = CpuSpec::List(chosen.choice.cpus.clone());
        let made = declared.make(&ours, &now, (cpus, before(&declared.name)), caller);
        now.partitions = made.map_err(|refusal| about(declared, refusal))?;
    }
    let finder = Finder { kernel, base: &base, partitions: &state.partitions.clone(), caller };
    let found = finder.find(declaration, &tasks)?;
    let left_out = found.left_out;
    for Found { task, lineage, wanted, partition } in &found.meant {
        let subject = Subject { task, alone: false, lineage };
        let inside = base.in_tree().join(partition);
        let is_inside = task.group.starts_with(&inside);
        if !is_inside {
            let old = task.group.strip_prefix(base.in_tree()).ok();
            if let Some(old) = old.and_then(|below| below.iter().next()?.to_str())
                && state.partition(old).is_ok()
            {
                decide::record_family(kernel, facts, (state, &mut now), old, task.id)?;
            }
            let origin = apart::origin(kernel, &base.mount, task);
            let tree = base.in_tree();
            now.partitions = rules::add_task(&now, partition, subject, origin, &tree)?;
        } else if wanted.policy.is_some() && state.partition(partition).is_ok() {
            // Born inside: recorded in both, so that the plan does not move it in.
            rules::record_born_inside(state, partition, subject)?;
            rules::record_born_inside(&mut now, partition, subject)?;
        }
    }
    // Only who still has a policy in the file keeps it.
    for partition in now.partitions.iter_mut().filter(|one| names.contains(one.name.as_str())) {
        partition.tasks.iter_mut().for_each(|placed| placed.policy = None);
    }
    for Found { task, wanted, partition, .. } in &found.meant {
        if let Some(to) = wanted.policy {
            let inside = base.in_tree().join(partition);
            let inside = task.group.starts_with(&inside).then(|| inside.join("rt"));
            give_policy(kernel, state, &mut now, task, to, inside.as_deref());
        }
    }
    if declaration.partitions.is_empty() {
        return Ok(InForce { after: state.partitions.clone(), left_out, chosen });
    }
    // Partitions keep their order of creation, so that an unchanged file changes nothing.
    let order = |new: &Partition| state.partitions.iter().position(|old| old.name == new.name);
    let in_file = |new: &Partition| {
        declaration.partitions.iter().position(|declared| declared.name == new.name)
    };
    now.partitions.sort_by_key(|new| (order(new).unwrap_or(usize::MAX), in_file(new)));
    Ok(InForce { after: now.partitions, left_out, chosen })
}

/// Records in `now` that a task gets a policy, with what its threads go back to. `inside`: the
/// group of its partition's tasks, if it is in the partition already.
fn give_policy(
    kernel: &dyn Kernel,
    state: &mut State,
    now: &mut State,
    task: &Task,
    to: Schedule,
    inside: Option<&Path>,
) {
    let old: Vec<Member> =
        state.partitions.iter().flat_map(|partition| partition.tasks.clone()).collect();
    let is_it = |member: &&mut Member| member.process_id() == task.id;
    let given = policies::given(kernel, task, to, inside, &old);
    let members = now.partitions.iter_mut().flat_map(|partition| &mut partition.tasks);
    members.filter(is_it).for_each(|member| member.policy = Some(given.clone()));
    // A thread that has changed its policy since is no longer recorded as having this one: the plan
    // sees a thread more and sets it.
    let has = |tid: i32| kernel.schedule(tid).is_ok_and(|now| now == to);
    let members = state.partitions.iter_mut().flat_map(|partition| &mut partition.tasks);
    for policy in members.filter(is_it).filter_map(|member| member.policy.as_mut()) {
        policy.before.retain(|thread| has(thread.task.tid));
    }
}

impl Declared {
    /// All partitions with this one, on these CPUs. It keeps what its predecessor had.
    fn make(
        &self,
        facts: &Facts,
        now: &State,
        (cpus, old): (CpuSpec, Option<&Partition>),
        caller: &Caller,
    ) -> Result<Vec<Partition>, Refusal> {
        let mut after = rules::create(facts, now, &self.wish(cpus, old, caller))?;
        if let (Some(old), Some(new)) = (old, after.last_mut()) {
            new.tasks.clone_from(&old.tasks);
            let kept = old.served.iter().filter_map(|thread| {
                let priority = rules::priority_for(new, thread.by)?;
                Some(BoostedThread { priority, ..thread.clone() })
            });
            new.served = kept.collect();
        }
        Ok(after)
    }

    fn wish(&self, cpus: CpuSpec, old: Option<&Partition>, caller: &Caller) -> Wish {
        let spec = Spec {
            cpus: Cpus::Named(cpus.clone()),
            irqs: self.irqs.iter().map(IrqName::text).collect(),
            irq_priority: self.irq_priority,
            tick: self.tick,
            smt: self.smt,
            strict: self.strict,
            without: self.without.clone(),
            mode: self.mode,
        };
        let fresh = Wish::new(&self.name, cpus, &spec, caller, None);
        match old {
            Some(old) => {
                Wish { created_s: old.created_s, created_by: old.created_by.clone(), ..fresh }
            }
            None => fresh,
        }
    }
}

impl DeclaredTask {
    /// The entry as the file spells it, for messages.
    fn spelled(&self) -> String {
        match (&self.command, &self.unit) {
            (Some(command), _) => format!("command = {command:?}"),
            (None, unit) => format!("unit = {:?}", unit.as_deref().unwrap_or_default()),
        }
    }
}

/// A process that an entry of the file means.
struct Found<'a> {
    task: Task,
    lineage: Vec<TaskId>,
    wanted: &'a DeclaredTask,
    partition: &'a str,
}

/// All processes that a file means, and entries that do not mean others of their name.
struct AllFound<'a> {
    meant: Vec<Found<'a>>,
    left_out: Vec<Cannot>,
}

/// An entry of the file, with the user whose processes it means.
struct Entry<'a> {
    /// Which partition of the file, and which of its tasks.
    place: (usize, usize),
    partition: &'a str,
    wanted: &'a DeclaredTask,
    uid: Option<u32>,
    /// Users of other processes that match.
    others: BTreeSet<u32>,
}

fn wrong((partition, task): (usize, usize), key: Option<&'static str>, reason: String) -> Wrong {
    Wrong { partition, task: Some(task), key, reason }
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        let Wrong { partition, task, key, reason } = wrong;
        Self::BadDeclaration { partition, task, key, reason }
    }
}

/// Finds processes that run now. A file says what is to be while they run; none is no error.
struct Finder<'a> {
    kernel: &'a dyn Kernel,
    base: &'a Base,
    /// The partitions before the file is in force: they know where a task came from.
    partitions: &'a [Partition],
    caller: &'a Caller,
}

impl Finder<'_> {
    fn find<'a>(
        &self,
        declaration: &'a Declaration,
        tasks: &[Task],
    ) -> Result<AllFound<'a>, Refusal> {
        let mut entries: Vec<Entry> = Vec::new();
        for (at, one) in declaration.partitions.iter().enumerate() {
            let partition = &one.name;
            for (number, wanted) in one.tasks.iter().enumerate() {
                let place = (at, number);
                let uid = wanted.user.as_ref().map(|user| user.uid(self.kernel)).transpose();
                let uid = uid.map_err(|reason| {
                    wrong(place, Some("user"), format!("partition {partition}: {reason}"))
                })?;
                let others = BTreeSet::new();
                entries.push(Entry { place, partition, wanted, uid, others });
            }
        }
        let mut meant: Vec<Found> = Vec::new();
        for task in tasks.iter().filter(|task| !task.kernel_thread && !task.zombie) {
            // What is inside by now counts as of the group that it came from.
            let lineage = task::lineage(self.kernel, task.process);
            let home = match task.group.starts_with(self.base.in_tree()) {
                true => rules::origin(self.partitions, &lineage).map(|origin| origin.from),
                false => Some(task.group.clone()),
            };
            let home = home.unwrap_or_default();
            let mut first: Option<(&str, &DeclaredTask)> = None;
            for Entry { place, partition, wanted, uid, others } in &mut entries {
                if !self.is_called(task, &home, wanted, *uid) {
                    continue;
                }
                let Some(owner) = task::real_uid(self.kernel, task.id.tid) else { continue };
                let meant = match (*uid, &wanted.command) {
                    (None, Some(_)) => owner == self.caller.uid,
                    (uid, _) => uid.is_none_or(|uid| uid == owner),
                };
                if !meant {
                    others.insert(owner);
                    continue;
                }
                if let Some((other, before)) = first {
                    let reason = format!(
                        "task {} ({}) matches two entries, {} of partition {other} and {} of \
                         partition {partition}: remove one of them",
                        task.id.tid,
                        task.command,
                        before.spelled(),
                        wanted.spelled()
                    );
                    return Err(wrong(*place, None, reason).into());
                }
                first = Some((partition, wanted));
            }
            if let Some((partition, wanted)) = first {
                meant.push(Found { task: task.clone(), lineage, wanted, partition });
            }
        }
        let left_out = entries.iter().filter(|entry| !entry.others.is_empty()).map(|entry| {
            let users: Vec<String> = entry.others.iter().take(8).map(u32::to_string).collect();
            Cannot {
                what: format!(
                    "{}: {} matches processes of user {}, which it does not mean",
                    entry.partition,
                    entry.wanted.spelled(),
                    users.join(", ")
                ),
                cure: "name the user in the entry: user = …".to_owned(),
            }
        });
        let left_out = left_out.collect();
        Ok(AllFound { meant, left_out })
    }

    /// Has a task, which came from the group `home`, the name of an entry?
    fn is_called(&self, task: &Task, home: &Path, wanted: &DeclaredTask, uid: Option<u32>) -> bool {
        match (&wanted.command, &wanted.unit) {
            (Some(command), _) => task.command == *command,
            (None, Some(unit)) => {
                // Below a unit its owner may call a group anything; above a unit of the system
                // there are only slices.
                let mut parts = home.iter().skip(1).map(|part| part.to_string_lossy());
                let found = match uid {
                    Some(_) => parts.find(|part| part == unit),
                    None => parts.find(|part| part == unit || !part.ends_with(".slice")),
                };
                found.is_some_and(|part| part == *unit)
            }
            (None, None) => false,
        }
    }
}
