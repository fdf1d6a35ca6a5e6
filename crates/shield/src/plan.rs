// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan: every step from the present partitions to the new ones, in order. Each step has the
//! old value, the new value and the reason. Pure. `asmp plan` prints exactly the steps that `apply`
//! takes.
//!
//! Order: settings that go back to their originals, deadline servers off, tasks out, groups (those
//! that give up CPUs first), deadline servers on, settings, tasks in, policies. The root of the
//! cgroup tree is the system partition: an isolated partition takes its CPUs from all other groups
//! in one step of the kernel.

mod groups;

use crate::partition::{BoostedThread, Partition, Service, State, System, Tick};
use crate::target::{Lines, Target, reading, targets};
use asmp_host::cgroup::{GROUP, Groups};
use asmp_host::systemd::{SERVICE, SLICE};
use asmp_host::task::{GivenPolicy, Member, TaskId};
use asmp_host::{CpuSet, Facts, Knob, Schedule, knob};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One thing to do. Each knows its way back (see `apply`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Write a setting. `unless_away_from`: not if it names none of these CPUs by then (the kernel
    /// itself keeps unbound work off isolated CPUs since 6.8).
    Set {
        knob: Knob,
        to: String,
        unless_away_from: Option<CpuSet>,
    },
    /// Ask systemd for (or give back) the delegated service below which our groups lie.
    Delegate {
        on: bool,
    },
    MakeGroup {
        path: PathBuf,
        threaded: bool,
    },
    RemoveGroup {
        path: PathBuf,
        threaded: bool,
    },
    /// Move a process (or one thread `alone`) into a partition.
    MoveIn {
        placed: Member,
        groups: Groups,
    },
    /// Move a process (or one thread `alone`) back to where it came from.
    MoveOut {
        placed: Member,
        groups: Groups,
    },
    /// Move every task that is still in a partition out of it.
    Evacuate {
        partition: String,
        placed: Vec<Member>,
        groups: Groups,
    },
    /// Move unbound kernel threads that came back off shielded CPUs.
    Confine,
    /// Give all threads of a task the policy that the partition file names.
    SetTaskPolicy {
        placed: Member,
        to: Schedule,
    },
    /// Give them back what they had before.
    RestoreTaskPolicy {
        placed: Member,
        groups: Groups,
    },
    /// Set the policy of a kernel thread.
    SetPolicy {
        thread: BoostedThread,
        to: Schedule,
    },
}

/// What a refusal by the kernel means for the whole change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IfRefused {
    /// Everything is undone.
    Abort,
    /// It is named in the result; with `--strict` everything is undone.
    Name,
    /// The rest is mended all the same, and verification names what is still broken.
    Verify,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    #[serde(flatten)]
    pub action: Action,
    /// The value when the plan was made; `None` where the step is no setting.
    pub old: Option<String>,
    pub why: String,
    pub if_refused: IfRefused,
    /// The first value ever read here must be given back when the last partition goes.
    #[serde(skip)]
    pub keeps_original: bool,
}

/// Steps in order, and what cannot be done in this boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// What this boot or machine does not allow, each with its cure.
    pub cannot: Vec<Cannot>,
    /// The partitions once the steps are taken.
    #[serde(skip)]
    pub after: Vec<Partition>,
    /// Settings of the system outside the partitions, once the steps are taken.
    #[serde(skip)]
    pub system: System,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cannot {
    pub what: String,
    pub cure: String,
}

/// Where our groups lie in the cgroup tree of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub mount: PathBuf,
    /// The groups between the root and the partitions, outermost first; the last holds the
    /// partitions.
    pub ancestors: Vec<PathBuf>,
    pub delegated: bool,
}

impl Base {
    /// Under systemd a delegated service, so that its own bookkeeping and ours never meet; else one
    /// group.
    pub fn of(facts: &Facts) -> Option<Self> {
        Some(Self::at(facts.cgroups.mount.clone()?, facts.systemd))
    }

    /// In the tree mounted there: below a service that systemd delegates, or below a group of our
    /// own.
    pub fn at(mount: PathBuf, delegated: bool) -> Self {
        let ancestors = match delegated {
            true => vec![mount.join(SLICE), mount.join(SLICE).join(SERVICE)],
            false => vec![mount.join(GROUP)],
        };
        Self { mount, ancestors, delegated }
    }

    pub fn dir(&self) -> &Path {
        self.ancestors.last().map_or(&self.mount, |dir| dir)
    }

    /// Is a group one of a partition, or below one?
    pub fn is_inside(&self, group: &Path) -> bool {
        group != self.dir() && group.starts_with(self.dir())
    }

    /// Do we make this group? Others below a partition are made by programs inside.
    pub fn makes(&self, group: &Path) -> bool {
        let below = group.strip_prefix(self.dir()).unwrap_or(Path::new(""));
        match below.iter().count() {
            0 => self.ancestors.iter().any(|ancestor| ancestor == group),
            1 => true,
            2 => ["rt", "rest", "idle"].iter().any(|name| below.ends_with(name)),
            _ => false,
        }
    }

    /// The same as tasks see it in /proc/PID/cgroup.
    pub fn in_tree(&self) -> PathBuf {
        Path::new("/").join(self.dir().strip_prefix(&self.mount).unwrap_or(self.dir()))
    }

    pub fn groups(&self, partition: &str) -> Groups {
        Groups::of(self.dir(), partition)
    }
}

/// The steps from `state` to `after` (and `system`) on the machine as it is.
pub fn plan(
    facts: &Facts,
    base: &Base,
    state: &State,
    after: Vec<Partition>,
    system: System,
) -> Plan {
    build(facts, base, state, after, system, None)
}

/// The steps that give the partitions of `state` again all that the plan of a fresh machine gives
/// them. `astray`: members that are not in their partition, by its name.
pub fn repair(
    facts: &Facts,
    base: &Base,
    state: &State,
    after: Vec<Partition>,
    system: System,
    astray: &[(String, Member)],
) -> Plan {
    build(facts, base, state, after, system, Some(astray))
}

/// The steps that remove the group of our partitions, which holds none.
pub fn close_base(facts: &Facts, base: &Base, state: &State) -> Vec<Step> {
    let mut steps = Vec::new();
    groups::close_base(facts, base, state, &mut steps);
    steps
}

fn build(
    facts: &Facts,
    base: &Base,
    state: &State,
    after: Vec<Partition>,
    system: System,
    repair: Option<&[(String, Member)]>,
) -> Plan {
    let before = &state.partitions;
    let mut steps = Vec::new();
    let (restored, set) = settings(facts, state, &after, &system);
    // 6.12 books a deadline server's bandwidth in a wrong account while its CPU is isolated, and
    // refuses every change with EBUSY: so it is set while the CPU is (or is again) the
    // system's.
    let (servers_restored, restored): (Vec<Step>, Vec<Step>) =
        restored.into_iter().partition(is_server);
    let (servers_set, set): (Vec<Step>, Vec<Step>) = set.into_iter().partition(is_server);
    steps.extend(restored);
    policies(before, &after, Direction::Back, &mut steps);
    steps.extend(servers_set);
    groups::groups(facts, base, state, &after, &mut steps);
    if repair.is_some() {
        groups::again(base, &after, &mut steps);
        policies_again(&after, &mut steps);
    }
    steps.extend(servers_restored);
    steps.extend(set);
    policies(before, &after, Direction::Forth, &mut steps);
    tasks_in(base, before, &after, &mut steps);
    for (partition, placed) in repair.unwrap_or_default() {
        let why = format!("{} is a member of {partition}", placed.command);
        let groups = base.groups(partition);
        steps.push(verified(step(Action::MoveIn { placed: placed.clone(), groups }, why)));
    }
    if *before == after && !after.is_empty() {
        steps.push(step(Action::Confine, "unbound kernel threads stay on system CPUs"));
    }
    Plan { steps, cannot: cannot(facts, before, &after), after, system }
}

fn is_server(step: &Step) -> bool {
    matches!(&step.action, Action::Set { knob, .. } if knob::is_deadline_server(knob))
}

fn step(action: Action, why: impl Into<String>) -> Step {
    Step { action, old: None, why: why.into(), if_refused: IfRefused::Abort, keeps_original: false }
}

fn write(knob: Knob, old: Option<String>, to: impl Into<String>, why: impl Into<String>) -> Step {
    Step { old, ..step(Action::Set { knob, to: to.into(), unless_away_from: None }, why) }
}

/// The same step where the kernel's refusal is named but does not undo everything: on the way down
/// a file that is gone already is no obstacle.
fn named(step: Step) -> Step {
    Step { if_refused: IfRefused::Name, ..step }
}

/// The same step where one that fails leaves the others in force: a repair mends what it can.
fn verified(step: Step) -> Step {
    Step { if_refused: IfRefused::Verify, ..step }
}

/// Settings that go back to their originals, and settings to be set.
fn settings(
    facts: &Facts,
    state: &State,
    after: &[Partition],
    system: &System,
) -> (Vec<Step>, Vec<Step>) {
    let was = targets(facts, &state.partitions, &state.system(), &state.originals);
    let wanted = targets(facts, after, system, &state.originals);
    let lines = Lines::of(facts);
    let now = |knob: &Knob| reading(facts, &lines, knob).map(str::to_owned);

    let mut restored: Vec<Step> = Vec::new();
    for (path, original) in &state.originals {
        let knob = Knob::new(path.clone(), original.shape);
        if let (None, Some(target)) = (wanted.get(&knob), was.get(&knob)) {
            let back = knob.inverse(&original.text, &target.wanted);
            restored.push(named(write(
                knob.clone(),
                now(&knob),
                back,
                "restore the original value",
            )));
        }
    }
    restored.reverse();

    let mut set = Vec::new();
    // Interrupt lines come last, by number: a CPU's text order would put IRQ 10 before IRQ 9.
    let mut in_order: Vec<_> =
        wanted.iter().map(|(knob, target)| (knob::irq_of(&knob.path), knob, target)).collect();
    in_order.sort_by_key(|(irq, ..)| *irq);
    for (irq, knob, target) in in_order {
        let Some(now) = reading(facts, &lines, knob) else { continue };
        // The kernel refuses again what it refused before. Only a line asked for by name is tried
        // again.
        if target.away_from.is_some() && state.refused.contains_key(&knob.path) {
            continue;
        }
        let unchanged = was.get(knob).is_some_and(|was: &Target| was.wanted == target.wanted);
        let met = target.is_met(&lines, knob, now);
        if met && (unchanged || knob.holds(now, &target.wanted)) {
            continue;
        }
        let step =
            write(knob.clone(), Some(now.to_owned()), target.wanted.clone(), target.why.clone());
        // What was asked for by name and refuses leaves the request undone.
        let by_name = irq.is_some() || knob::is_of_tracer(knob);
        let asked_for = target.away_from.is_none() && by_name;
        let if_refused = if asked_for { IfRefused::Abort } else { IfRefused::Name };
        let mut step = Step { keeps_original: true, if_refused, ..step };
        if let Action::Set { unless_away_from, .. } = &mut step.action
            && *knob == knob::workqueue_cpus()
            && !state.originals.contains_key(&knob.path)
        {
            *unless_away_from = target.away_from.as_deref().cloned();
        }
        set.push(step);
    }
    (restored, set)
}

fn tasks_in(base: &Base, before: &[Partition], after: &[Partition], steps: &mut Vec<Step>) {
    let held = |partitions: &[Partition], name: &str, placed: &Member| {
        partitions.iter().any(|p| {
            p.name == name
                && p.tasks.iter().any(|t| t.task == placed.task && t.alone == placed.alone)
        })
    };
    let stays = |old: &&Partition| after.iter().any(|new| new.name == old.name);
    let wanted = |placed: &Member| {
        after
            .iter()
            .flat_map(|new| &new.tasks)
            .find(|new| new.task == placed.task && new.alone == placed.alone)
    };
    for old in before.iter().filter(stays) {
        for placed in old.tasks.iter().filter(|placed| placed.policy.is_some()) {
            if wanted(placed).is_some_and(|new| new.policy.is_none()) {
                let why = format!("{} no longer sets a policy for {}", old.name, placed.command);
                let groups = base.groups(&old.name);
                steps.push(step(Action::RestoreTaskPolicy { placed: placed.clone(), groups }, why));
            }
        }
        for placed in &old.tasks {
            if !after.iter().any(|p| p.tasks.iter().any(|t| t.task == placed.task)) {
                let why = format!("{} leaves {}", placed.command, old.name);
                let groups = base.groups(&old.name);
                steps.push(step(Action::MoveOut { placed: placed.clone(), groups }, why));
            }
        }
    }
    for new in after {
        for placed in new.tasks.iter().filter(|placed| !held(before, &new.name, placed)) {
            let why = format!("{} joins {}", placed.command, new.name);
            let groups = base.groups(&new.name);
            steps.push(step(Action::MoveIn { placed: placed.clone(), groups }, why));
        }
    }
    // A task that leaves a partition which goes has given its policy back.
    let given: BTreeMap<(TaskId, bool), &GivenPolicy> = before
        .iter()
        .filter(stays)
        .flat_map(|old| &old.tasks)
        .filter_map(|placed| Some(((placed.task, placed.alone), placed.policy.as_ref()?)))
        .collect();
    for new in after {
        for placed in &new.tasks {
            let Some(policy) = &placed.policy else { continue };
            let holds = given.get(&(placed.task, placed.alone)).is_some_and(|old| {
                old.to == policy.to
                    && policy.before.iter().all(|thread| old.before.contains(thread))
            });
            if !holds {
                let why =
                    format!("the file sets this policy for {} in {}", placed.command, new.name);
                let action = Action::SetTaskPolicy { placed: placed.clone(), to: policy.to };
                steps.push(step(action, why));
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Direction {
    Back,
    Forth,
}

/// Policies of kernel threads: back to what they were, or to what the partition needs.
fn policies(
    before: &[Partition],
    after: &[Partition],
    direction: Direction,
    steps: &mut Vec<Step>,
) {
    // On the way forth a thread counts as known only with the same priority.
    let has = |partitions: &[Partition], thread: &BoostedThread| {
        let is_known = |known: &BoostedThread| {
            known.task == thread.task
                && (direction == Direction::Back || known.priority == thread.priority)
        };
        partitions.iter().any(|p| p.served.iter().any(is_known))
    };
    let (these, others) = match direction {
        Direction::Back => (before, after),
        Direction::Forth => (after, before),
    };
    for partition in these {
        for thread in partition.served.iter().filter(|thread| !has(others, thread)) {
            let (to, why) = match (&direction, thread.by) {
                (Direction::Back, _) => (thread.before, "restore the original policy".to_owned()),
                (Direction::Forth, Service::Irq(irq)) => (
                    Schedule::Fifo { priority: thread.priority },
                    format!("handle IRQ {irq} at the priority of partition {}", partition.name),
                ),
                (Direction::Forth, Service::Timers(cpu)) => (
                    Schedule::Fifo { priority: thread.priority },
                    format!(
                        "CPU {cpu}: a timer that waits behind a busy task would keep the tick \
                         running"
                    ),
                ),
            };
            steps.push(named(step(Action::SetPolicy { thread: thread.clone(), to }, why)));
        }
    }
}

/// Policies of the kernel threads that serve the partitions, whatever they have now.
fn policies_again(after: &[Partition], steps: &mut Vec<Step>) {
    for partition in after {
        for thread in &partition.served {
            let to = Schedule::Fifo { priority: thread.priority };
            let why = format!("{} serves partition {}", thread.command, partition.name);
            steps.push(verified(step(Action::SetPolicy { thread: thread.clone(), to }, why)));
        }
    }
}

/// What only another boot or machine would allow.
fn cannot(facts: &Facts, before: &[Partition], after: &[Partition]) -> Vec<Cannot> {
    let mut cannot = Vec::new();
    for new in after.iter().filter(|new| !before.iter().any(|old| old == *new)) {
        let ticking = new.cpus.difference(&facts.cpus.nohz_full);
        if new.tick != Tick::Keep && !ticking.is_empty() {
            cannot.push(Cannot {
                what: format!(
                    "{}: the tick of CPU {ticking} does not stop while a task runs",
                    new.name
                ),
                cure: format!(
                    "boot with nohz_full={ticking} rcu_nocbs={ticking} (asmp boot enable --cpus \
                     {ticking}); CPU 0 always ticks"
                ),
            });
        }
        for cpu in new.shielded().iter() {
            if facts.setting(&knob::deadline_server_runtime("fair", cpu)).is_none()
                && facts.version() >= (6, 8)
            {
                cannot.push(Cannot {
                    what: format!(
                        "{}: the deadline server of CPU {cpu} cannot be switched off",
                        new.name
                    ),
                    cure: "mount debugfs: mount -t debugfs none /sys/kernel/debug".to_owned(),
                });
                break;
            }
        }
    }
    cannot
}
