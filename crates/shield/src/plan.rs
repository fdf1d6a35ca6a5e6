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
mod tasks;

use crate::choose::Chosen;
use crate::doctor;
use crate::guard;
use crate::neighbours::Affected;
use crate::partition::{BoostedThread, Partition, State, System, Tick, shielded};
use crate::rules;
use crate::target::{Due, Lines, Target, due, reading, targets};
use asmp_host::cgroup::{GROUP, Groups};
use asmp_host::masks::Mask;
use asmp_host::systemd::{HOLDER, SLICE};
use asmp_host::task::Member;
use asmp_host::{Cpu, CpuSet, Facts, Kernel, Knob, Schedule, Shape, knob};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tasks::{Direction, policies, policies_again, tasks_in};

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
    /// Have the scheduler of shared partitions guard these CPUs alone; none: unload it.
    Share {
        cpus: CpuSet,
    },
    /// Note the affinity of each task that the kernel moves by itself when CPUs become isolated or
    /// are given back: unbound kernel threads, process 1.
    NoteMasks,
    /// Give those tasks the noted affinity back, where they have another now.
    GiveBackMasks {
        masks: Vec<Mask>,
    },
    /// Move unbound kernel threads that came back off shielded CPUs.
    Confine,
    /// Give all threads of a task that are inside the policy that the partition file names.
    SetTaskPolicy {
        placed: Member,
        groups: Groups,
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
    /// Processes that have the name of a task of the file and are not meant, each with its cure.
    pub left_out: Vec<Cannot>,
    /// Groups and tasks of others that lose CPUs.
    pub affected: Vec<Affected>,
    /// CPUs that were chosen for partitions that ask for a number of them.
    pub chosen: Vec<Chosen>,
    /// The partitions once the steps are taken.
    #[serde(skip)]
    pub after: Vec<Partition>,
    /// Settings of the system outside the partitions, once the steps are taken.
    #[serde(skip)]
    pub system: System,
    /// Originals that no partition needs changed any more.
    #[serde(skip)]
    pub released: BTreeSet<PathBuf>,
    /// Originals that wait for their CPU to come online.
    #[serde(skip)]
    pub waiting: BTreeMap<PathBuf, Cpu>,
    /// CPUs that are offline and that no partition has any more.
    #[serde(skip)]
    pub returning: CpuSet,
    /// Where the kernel would leave tasks of others without those CPUs if it were given back now:
    /// the file that gives groups their CPU lists.
    #[serde(skip)]
    pub held: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cannot {
    pub what: String,
    pub cure: String,
}

impl Plan {
    /// The steps before any task moves into a partition, and the others.
    pub(crate) fn before_tasks(&self) -> (&[Step], &[Step]) {
        let joins = |step: &Step| matches!(step.action, Action::MoveIn { .. });
        let first = self.steps.iter().position(joins).unwrap_or(self.steps.len());
        self.steps.split_at(first)
    }
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
        let service = facts.systemd.then_some(facts.cgroups.service);
        Some(Self::at(facts.cgroups.mount.clone()?, service))
    }

    /// In the tree mounted there: below a service that systemd delegates, or below a group of our
    /// own.
    pub fn at(mount: PathBuf, service: Option<&str>) -> Self {
        let ancestors = match service {
            Some(service) => vec![mount.join(SLICE), mount.join(SLICE).join(service)],
            None => vec![mount.join(GROUP)],
        };
        Self { mount, ancestors, delegated: service.is_some() }
    }

    pub fn dir(&self) -> &Path {
        self.ancestors.last().map_or(&self.mount, |dir| dir)
    }

    /// Is the process there that keeps systemd from removing our groups? Only systemd needs one.
    pub fn is_held(&self, kernel: &dyn Kernel) -> bool {
        !self.delegated || kernel.exists(&self.dir().join(HOLDER))
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

/// What a request that repairs writes again before it changes anything.
#[derive(Default)]
pub(crate) struct Repair {
    /// Partitions that get again all that they need, as they are before the change.
    pub partitions: Vec<Partition>,
    /// Members that are not in their partition, by its name: they are moved back.
    pub astray: Vec<(String, Member)>,
}

/// The steps from `state` to `after` (and `system`) on the machine as it is.
pub fn plan(
    facts: &Facts,
    base: &Base,
    state: &State,
    after: Vec<Partition>,
    system: System,
) -> Plan {
    repair(facts, base, state, after, system, &Repair::default())
}

/// The same, and what `repair` names gets again all that the plan of a fresh machine gives it.
pub(crate) fn repair(
    facts: &Facts,
    base: &Base,
    state: &State,
    after: Vec<Partition>,
    system: System,
    repair: &Repair,
) -> Plan {
    build(facts, base, state, after, system, Manner::Plain(repair))
}

/// The same, and what must wait for a CPU that is offline does not.
pub fn abandon(
    facts: &Facts,
    base: &Base,
    state: &State,
    after: Vec<Partition>,
    system: System,
) -> Plan {
    build(facts, base, state, after, system, Manner::Abandon)
}

/// What kind of change a plan is for.
#[derive(Clone, Copy)]
enum Manner<'a> {
    Plain(&'a Repair),
    Abandon,
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
    manner: Manner,
) -> Plan {
    let before = &state.partitions;
    let nothing = Repair::default();
    let repair = match manner {
        Manner::Plain(repair) => repair,
        Manner::Abandon => &nothing,
    };
    let (held, returning) = groups::held(facts, base, state, &after);
    let closes = after.is_empty() && (held.is_none() || matches!(manner, Manner::Abandon));
    let mut steps = Vec::new();
    let Settings { restored, set, mut released, waiting } = settings(facts, state, &after, &system);
    // 6.12 books a deadline server's bandwidth in a wrong account while its CPU is isolated, and
    // refuses every change with EBUSY: so it is set while the CPU is (or is again) the
    // system's. The CPUs of unbound work the kernel itself changes when CPUs are given back.
    let (restored_late, restored): (Vec<Step>, Vec<Step>) =
        restored.into_iter().partition(|step| is_server(step) || is_of_unbound_work(step));
    let (servers_set, set): (Vec<Step>, Vec<Step>) = set.into_iter().partition(is_server);
    if before.is_empty() && !after.is_empty() {
        steps.push(step(Action::NoteMasks, "the kernel changes them by itself"));
    }
    steps.extend(restored);
    policies(before, &after, Direction::Back, &mut steps);
    for thread in &state.policies_left {
        if !after.iter().flat_map(|one| &one.served).any(|served| served.task == thread.task) {
            let action = Action::SetPolicy { thread: thread.clone(), to: thread.before };
            steps.push(named(step(action, "restore the original policy")));
        }
    }
    steps.extend(servers_set);
    let (guard_first, guard_last) = groups::guard(facts, before, &after);
    steps.extend(guard_first);
    groups::again(base, before, &repair.partitions, &mut steps);
    policies_again(&repair.partitions, &after, &mut steps);
    groups::groups(base, before, &after, facts, &mut steps);
    steps.extend(guard_last);
    if closes && (state.keeps_base || !before.is_empty()) {
        groups::close_base(facts, base, state, &mut steps);
    }
    if closes {
        let root = knob::controllers_of_children(&base.mount).path;
        if before.is_empty() && !state.keeps_base {
            groups::close_root(facts, base, state, &mut steps);
        }
        released.extend(state.originals.contains_key(&root).then_some(root));
    }
    steps.extend(restored_late);
    steps.extend(set);
    policies(before, &after, Direction::Forth, &mut steps);
    tasks_in(base, before, &after, &repair.astray, &mut steps);
    let confines = *before == after || !repair.partitions.is_empty();
    let shares = guard::shared(&after) != guard::shared(before);
    if (confines || shares) && !after.is_empty() {
        steps.push(step(Action::Confine, why_confined(&after)));
    }
    if after.is_empty() && !state.masks.is_empty() {
        let masks = state.masks.clone();
        steps.push(step(Action::GiveBackMasks { masks }, "restore the original CPUs"));
    }
    let cannot = cannot(facts, before, &after);
    let (affected, left_out, chosen) = (Vec::new(), Vec::new(), Vec::new());
    Plan {
        steps,
        cannot,
        affected,
        left_out,
        chosen,
        after,
        system,
        released,
        waiting,
        returning,
        held,
    }
}

fn why_confined(after: &[Partition]) -> &'static str {
    match guard::shared(after).is_empty() {
        true => "unbound kernel threads stay on system CPUs",
        false => "unbound kernel threads, and others' real-time threads, stay on system CPUs",
    }
}

fn is_of_unbound_work(step: &Step) -> bool {
    matches!(&step.action, Action::Set { knob, .. } if *knob == knob::workqueue_cpus())
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

/// Settings that go back to their originals, and settings to be set; the others are those of
/// [`Plan`].
struct Settings {
    restored: Vec<Step>,
    set: Vec<Step>,
    released: BTreeSet<PathBuf>,
    waiting: BTreeMap<PathBuf, Cpu>,
}

fn settings(facts: &Facts, state: &State, after: &[Partition], system: &System) -> Settings {
    let was = targets(facts, &state.partitions, &state.system(), &state.originals);
    let wanted = targets(facts, after, system, &state.originals);
    let lines = Lines::of(facts);
    let now = |knob: &Knob| reading(facts, &lines, knob).map(str::to_owned);

    let mut restored: Vec<Step> = Vec::new();
    let (mut released, mut waiting) = (BTreeSet::new(), BTreeMap::new());
    // A switch of the cgroup tree goes with the groups.
    for (path, original) in state.originals.iter().filter(|(_, o)| o.shape != Shape::Toggle) {
        let knob = Knob::new(path.clone(), original.shape);
        match due(facts, &lines, &wanted, after, (&knob, &original.text)) {
            Due::Needed => continue,
            Due::Offline(cpu) => {
                waiting.insert(path.clone(), cpu);
                continue;
            }
            Due::Gone => {}
            Due::Now => {
                let set = was.get(&knob).map_or(knob::OSNOISE_WORKLOAD, |target| &target.wanted);
                let back = knob.inverse(&original.text, set);
                let why = "restore the original value";
                restored.push(named(write(knob.clone(), now(&knob), back, why)));
            }
        }
        released.insert(path.clone());
    }
    restored.reverse();

    let repairs = state.partitions == after && state.system() == *system;
    let joining = shielded(after).difference(&shielded(&state.partitions));
    let opens = guard::exclusive(&state.partitions).intersects(&guard::shared(after));
    let mut set = Vec::new();
    // Interrupt lines come last, by number: a CPU's text order would put IRQ 10 before IRQ 9.
    let mut in_order: Vec<_> =
        wanted.iter().map(|(knob, target)| (knob::irq_of(&knob.path), knob, target)).collect();
    in_order.sort_by_key(|(irq, ..)| *irq);
    for (irq, knob, target) in in_order {
        let Some(now) = reading(facts, &lines, knob) else { continue };
        // The kernel refuses again what it refused before. A line asked for by name is tried again,
        // and one that may interrupt a CPU that joins a partition now; by `repair` everything.
        let concerns = |cpus: CpuSet| cpus.intersects(&joining);
        let is_old = target.away_from.is_some() && !knob.cpus(now).is_ok_and(concerns);
        if is_old && !repairs && state.refused.contains_key(&knob.path) {
            continue;
        }
        let unchanged = was.get(knob).is_some_and(|was: &Target| was.wanted == target.wanted);
        let met = target.is_met(&lines, knob, now);
        // A kernel that keeps unbound work off isolated CPUs lets it back when they are shared,
        // unless it was asked not to.
        let returns = opens && *knob == knob::workqueue_cpus();
        if met && !returns && (unchanged || knob.holds(now, &target.wanted)) {
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
            && !returns
        {
            *unless_away_from = target.away_from.as_deref().cloned();
        }
        set.push(step);
    }
    Settings { restored, set, released, waiting }
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
                cure: match facts.cpus.tick_can_stop {
                    true => format!(
                        "boot with nohz_full={ticking} rcu_nocbs={ticking} (asmp boot enable \
                         --cpus {ticking}); CPU 0 always ticks"
                    ),
                    false => doctor::NO_HZ_FULL.to_owned(),
                },
            });
        }
        let served = |cpu| facts.setting(&knob::deadline_server_runtime("fair", cpu)).is_some();
        let unserved: CpuSet = new.shielded().iter().filter(|cpu| !served(*cpu)).collect();
        let cure = doctor::deadline_servers_cure(facts).filter(|_| !unserved.is_empty());
        if let Some(cure) = cure {
            let what = format!(
                "{}: the deadline server of CPU {unserved} cannot be switched off; while other \
                 tasks wait there, it takes up to 50 ms of each second from a busy real-time task",
                new.name
            );
            cannot.push(Cannot { what, cure });
        }
        if let Some(priority) = new.irq_priority
            && !new.irqs.is_empty()
            && !rules::handlers_are_threads(facts)
        {
            let what = format!(
                "{}: the handlers of IRQ lines are no threads: none gets priority {priority}",
                new.name
            );
            let cure = "boot with threadirqs, or a PREEMPT_RT kernel".to_owned();
            cannot.push(Cannot { what, cure });
        }
        if let Some((what, cure)) = doctor::throttling(facts) {
            cannot.push(Cannot { what: format!("{}: {what}", new.name), cure });
        }
    }
    cannot
}
