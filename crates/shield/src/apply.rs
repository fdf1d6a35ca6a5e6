// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Taking the steps of a plan, and undoing them.
//!
//! Before each change its inverse goes to the journal. After each write the kernel is read again.
//! The journal holds only inverses ([`Undo`]). Each may be taken twice, or for a step that never
//! happened: so a crash at any instruction leaves a journal that `undo` can finish.

use crate::guard;
use crate::masks::{MasksLeft, confine_strays, give_back_masks};
use crate::moving::{evacuate, evict, move_home, move_in, move_out};
use crate::orphans::{foreign, made_by_others};
use crate::partition::{BoostedThread, Original};
use crate::plan::{Action, Base, IfRefused, Plan, Step};
use crate::policies;
use crate::refusal::{self, is_refusal, reason};
use asmp_host::cgroup;
use asmp_host::masks::{self, Mask};
use asmp_host::sharing::Sharing;
use asmp_host::store::Journal;
use asmp_host::systemd;
use asmp_host::task::{self, TaskId, task_path};
use asmp_host::topology::hotplug_is_under_way;
use asmp_host::tracefs::users;
use asmp_host::{CpuSet, Error, ErrorKind, Facts, Kernel, Knob, Result, Schedule, kind_of, knob};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The inverse of one change. Idempotent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Undo {
    Set {
        knob: Knob,
        to: String,
    },
    Delegate {
        on: bool,
    },
    Share {
        cpus: CpuSet,
    },
    MakeGroup {
        path: PathBuf,
        threaded: bool,
    },
    RemoveGroup {
        path: PathBuf,
    },
    /// Another program made this group first: an earlier `RemoveGroup` of it is void.
    KeepGroup {
        path: PathBuf,
    },
    /// `alone`: only this thread, else its whole process.
    Move {
        task: TaskId,
        alone: bool,
        to: PathBuf,
    },
    SetPolicy {
        task: TaskId,
        to: Schedule,
    },
    SetMasks {
        masks: Vec<Mask>,
    },
}

/// A step that the kernel refused, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    pub path: PathBuf,
    pub what: String,
    pub reason: String,
    /// Does it reach a shielded CPU as things are?
    pub disturbs: bool,
}

/// The result of the steps.
#[derive(Debug, Default)]
pub struct Applied {
    pub refused: Vec<Refused>,
    pub originals: BTreeMap<PathBuf, Original>,
    /// What tasks had before their affinity was changed, or is about to be.
    pub masks: Vec<Mask>,
    /// What tasks did not take back, with the kernel's reason.
    pub masks_left: MasksLeft,
    /// Kernel threads that did not take their policy back, with the kernel's reason.
    pub policies_left: Vec<(BoostedThread, String)>,
    /// The same of those that did not take the policy of a partition, by their directories.
    pub policies_refused: BTreeMap<PathBuf, String>,
    /// Writes, directories and moves that really happened.
    pub changes: usize,
}

/// Appends each inverse to the journal before the change is made.
pub struct UndoLog<'a> {
    journal: &'a mut Journal,
    pub back: Vec<Undo>,
    /// A line could not be written: nothing more may be changed.
    broken: bool,
}

impl<'a> UndoLog<'a> {
    pub fn new(journal: &'a mut Journal) -> Self {
        Self { journal, back: Vec::new(), broken: false }
    }

    pub(crate) fn note(&mut self, undo: Undo) -> Result<()> {
        let line = serde_json::to_string(&undo).map_err(|error| Error::Content {
            path: PathBuf::from("journal"),
            text: error.to_string(),
            expected: "a journal line",
        })?;
        self.broken = true;
        self.journal.append(&line)?;
        self.broken = false;
        self.back.push(undo);
        Ok(())
    }
}

/// Where steps are taken: the kernel, the groups, and how long they wait while the kernel is busy.
pub struct Edge<'a> {
    pub kernel: &'a dyn Kernel,
    pub base: &'a Base,
    /// What is left of the time that all steps together wait on EBUSY.
    pub patience: Cell<Duration>,
}

/// Between two tries on EBUSY.
pub(crate) const NAP: Duration = Duration::from_millis(20);

impl Edge<'_> {
    /// Sets a knob. The kernel keeps the bandwidth of a SCHED_DEADLINE task that ended until its
    /// zero-lag time, and refuses it to a deadline server before that.
    ///
    /// A CPU that comes online while `check_interval` is written starts a timer that the kernel
    /// sets up anew while it is pending (`mce_restart` in arch/x86/kernel/cpu/mce/core.c): it hangs
    /// or panics. So that waits for hotplug to end.
    fn set(&self, knob: &Knob, to: &str) -> Result<()> {
        let restarts_timers = *knob == knob::machine_check_interval();
        let is_of_tracer = knob::is_of_tracer(knob);
        self.while_busy(|| match restarts_timers && hotplug_is_under_way(self.kernel) {
            true => {
                let busy = std::io::Error::from_raw_os_error(libc::EBUSY);
                Err(Error::io(&knob.path, "write, as a CPU goes on or offline")(busy))
            }
            // The kernel would take it, and kill threads of that program.
            false if is_of_tracer && !users::of_osnoise(self.kernel).is_empty() => {
                Err(Error::busy(&knob.path, "write, as osnoise or timerlat runs"))
            }
            false => knob.set(self.kernel, to),
        })
    }

    /// Removes a group: a task that is ending still counts in it for a moment. A group of a
    /// partition goes with the groups that others made inside, deepest first. The way back of each
    /// is given to `note` before.
    fn remove_group(&self, path: &Path, note: &mut dyn FnMut(Undo) -> Result<()>) -> Result<()> {
        let mut noted = BTreeSet::new();
        self.while_busy(|| {
            let mut groups = match self.base.is_inside(path) {
                true => cgroup::groups_below(self.kernel, path),
                false => Vec::new(),
            };
            groups.push(path.to_owned());
            for group in groups {
                if noted.insert(group.clone()) {
                    let threaded = cgroup::is_threaded(self.kernel, &group);
                    note(Undo::MakeGroup { path: group.clone(), threaded })?;
                }
                let removed = self.kernel.remove_dir(&group);
                match removed.map_err(Error::io(&group, "remove the group")) {
                    // systemd was first.
                    Err(error) if error.is_missing() => {}
                    other => other?,
                }
            }
            Ok(())
        })
    }

    /// Retries on EBUSY.
    fn while_busy(&self, mut operation: impl FnMut() -> Result<()>) -> Result<()> {
        loop {
            let left = self.patience.get();
            match operation() {
                Err(error) if error.is_busy() && !left.is_zero() => {
                    std::thread::sleep(NAP.min(left));
                    self.patience.set(left.saturating_sub(NAP));
                }
                other => return other,
            }
        }
    }
}

/// Why not all steps were taken.
#[derive(Debug)]
pub enum Stopped {
    Failed { step: Box<Step>, cause: Error },
    Interrupted { signal: i32 },
}

/// Takes these steps of the plan. Stops at the first error, unless the step says that a refusal is
/// only named, and before a step where `interrupt` gives a signal. The caller undoes.
pub fn apply(
    edge: &Edge,
    facts: &Facts,
    plan: &Plan,
    steps: &[Step],
    undo_log: &mut UndoLog,
    applied: &mut Applied,
    interrupt: &dyn Fn() -> Option<i32>,
) -> std::result::Result<(), Stopped> {
    for step in steps {
        if let Some(signal) = interrupt() {
            return Err(Stopped::Interrupted { signal });
        }
        match take(edge, facts, plan, step, undo_log, applied) {
            Ok(()) => {}
            Err(error) if step.if_refused == IfRefused::Verify && !undo_log.broken => {
                applied.policies_refused.extend(refusal::of_policy(&step.action, &error));
            }
            Err(error)
                if step.if_refused == IfRefused::Name && is_refusal(&error) && !undo_log.broken =>
            {
                let path = match &step.action {
                    Action::Set { knob, .. } => knob.path.clone(),
                    Action::SetPolicy { thread, to } if *to == thread.before => {
                        if !error.is_missing() {
                            applied.policies_left.push((thread.clone(), reason(&error)));
                        }
                        continue;
                    }
                    action => {
                        applied.policies_refused.extend(refusal::of_policy(action, &error));
                        PathBuf::new()
                    }
                };
                applied.refused.push(Refused {
                    path,
                    what: step.why.clone(),
                    reason: reason(&error),
                    disturbs: !error.is_missing(),
                });
            }
            Err(cause) => return Err(Stopped::Failed { step: Box::new(step.clone()), cause }),
        }
    }
    Ok(())
}

fn take(
    edge: &Edge,
    facts: &Facts,
    plan: &Plan,
    step: &Step,
    undo_log: &mut UndoLog,
    applied: &mut Applied,
) -> Result<()> {
    let Edge { kernel, base, .. } = *edge;
    if let Some(group) = ends_base(base, &step.action).and_then(|()| foreign(kernel, base)) {
        // Not ours to end: what lies above it stays.
        applied.refused.push(Refused {
            path: PathBuf::new(),
            what: format!("{} stays", base.dir().display()),
            reason: format!("another program made {}: remove that first", group.display()),
            disturbs: false,
        });
        return Ok(());
    }
    match &step.action {
        Action::Set { knob, to, unless_away_from } => {
            // The plan's reading is a moment old: what an earlier step may have changed is read
            // again.
            let old = match (&step.old, unless_away_from, step.keeps_original) {
                (Some(old), None, true) => old.clone(),
                _ => knob.read(kernel)?,
            };
            let asked = match unless_away_from {
                None => knob.asked(kernel, old.clone()),
                Some(_) => old.clone(),
            };
            let away = |cpus: &CpuSet| knob.cpus(&old).is_ok_and(|named| !named.intersects(cpus));
            if knob.holds(&asked, to) || unless_away_from.as_ref().is_some_and(away) {
                return Ok(());
            }
            let old = knob.asked(kernel, old);
            undo_log.note(Undo::Set { knob: knob.clone(), to: knob.inverse(&old, to) })?;
            edge.set(knob, to)?;
            if step.keeps_original {
                let original = Original::of(knob, old, &facts.cpus);
                applied.originals.insert(knob.path.clone(), original);
            }
        }
        Action::Delegate { on } => {
            // A service that is there already is not ours to stop, nor is what outlived one.
            let is_there = kernel.exists(base.dir());
            if is_there != *on {
                undo_log.note(Undo::Delegate { on: !on })?;
            }
            if is_there != *on || *on && !base.is_held(kernel) {
                delegate(kernel, base, *on)?;
                if *on {
                    mark(kernel, base.dir())?;
                }
            }
        }
        Action::Share { cpus } => {
            if guard::is_guarded(kernel, cpus) {
                return Ok(());
            }
            undo_log.note(Undo::Share { cpus: Sharing::read(kernel).guarded })?;
            guard::set_guard(kernel, cpus)?;
        }
        Action::MakeGroup { path, threaded } => {
            // A group that is there already is somebody else's: undoing must not remove it.
            if kernel.exists(path) {
                // It stayed when the last partition went, because of another program's group in it.
                if base.ancestors.contains(path) && kernel.is_marked(path) {
                    return Ok(());
                }
                let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
                return Err(Error::io(path, "make the group")(exists));
            }
            undo_log.note(Undo::RemoveGroup { path: path.clone() })?;
            let made = make_group(kernel, base, path, *threaded);
            if made.as_ref().is_err_and(|error| error.errno() == Some(libc::EEXIST)) {
                undo_log.note(Undo::KeepGroup { path: path.clone() })?;
            }
            made?;
        }
        Action::RemoveGroup { path, .. } => {
            if !kernel.exists(path) || is_foreign(kernel, base, path) {
                return Ok(());
            }
            edge.remove_group(path, &mut |undo| undo_log.note(undo))?;
        }
        Action::MoveIn { placed, groups } => move_in(kernel, base, placed, groups, undo_log)?,
        Action::MoveOut { placed, groups } => move_out(kernel, base, placed, groups, undo_log)?,
        Action::Evacuate { groups, .. } if is_foreign(kernel, base, &groups.domain) => {
            return Ok(());
        }
        Action::Evacuate { placed, groups, .. } => {
            evacuate(kernel, base, placed, groups, undo_log)?
        }
        Action::SetTaskPolicy { placed, groups, to } => {
            policies::give(kernel, groups, placed, to, undo_log)?;
        }
        Action::RestoreTaskPolicy { placed, groups } => {
            policies::give_back(
                kernel,
                groups,
                std::slice::from_ref(placed),
                Some(placed),
                undo_log,
            )?;
        }
        Action::NoteMasks => {
            applied.masks = masks::of_root(kernel);
            undo_log.note(Undo::SetMasks { masks: applied.masks.clone() })?;
            // The kernel itself gives these back, unless we set them.
            applied.masks.extend(masks::of_real_time(kernel));
            let knob = knob::workqueue_cpus();
            if let Some(text) =
                facts.setting(&knob).filter(|_| !facts.cpus.boot_isolated.is_empty())
            {
                // The kernel forgets what `isolcpus=` took from it.
                undo_log.note(Undo::Set { knob: knob.clone(), to: text.to_owned() })?;
                let original = Original::of(&knob, text.to_owned(), &facts.cpus);
                applied.originals.insert(knob.path, original);
            }
            return Ok(());
        }
        Action::GiveBackMasks { masks } => {
            let note = &mut |masks| undo_log.note(Undo::SetMasks { masks });
            let (changes, left) = give_back_masks(kernel, &base.mount, masks, note)?;
            applied.changes += changes;
            applied.masks_left = left;
            return Ok(());
        }
        Action::Confine => {
            let note = &mut |masks| undo_log.note(Undo::SetMasks { masks });
            let moved = confine_strays(kernel, facts, (&base.in_tree(), &plan.after), note)?;
            applied.changes += moved.len();
            applied.masks.extend(moved);
            return Ok(());
        }
        Action::SetPolicy { thread, to } => {
            if task::identify(kernel, thread.task.tid) != Some(thread.task) {
                return Ok(());
            }
            let path = task_path(thread.task.tid);
            let old =
                kernel.schedule(thread.task.tid).map_err(Error::io(&path, "read the policy of"))?;
            if old == *to {
                return Ok(());
            }
            undo_log.note(Undo::SetPolicy { task: thread.task, to: old })?;
            kernel
                .set_schedule(thread.task.tid, to)
                .map_err(Error::io(&path, "set the policy of"))?;
        }
    }
    applied.changes += 1;
    Ok(())
}

/// Takes the inverses, last first. Returns what could not be restored, in words. A group that
/// another program made among ours stays, with what is above it; all else is undone.
pub fn undo(edge: &Edge, back: &[Undo]) -> Vec<String> {
    let kept: BTreeSet<&Path> = back
        .iter()
        .filter_map(|undo| match undo {
            Undo::KeepGroup { path } => Some(path.as_path()),
            _ => None,
        })
        .collect();
    let mut left: Vec<String> = Vec::new();
    let is_kept =
        |undo: &&Undo| matches!(undo, Undo::RemoveGroup { path } if kept.contains(path.as_path()));
    for undo in back.iter().rev().filter(|undo| !is_kept(undo)) {
        let theirs =
            closes_base(edge.base, undo).then(|| made_by_others(edge.kernel, edge.base)).flatten();
        let words = match theirs {
            Some(group) => format!(
                "{} stays: another program made {}: remove that first",
                edge.base.dir().display(),
                group.display()
            ),
            None => match undo_one(edge, undo) {
                Err(error) if !error.is_missing() => error.to_string(),
                Err(_) => match unmounted(undo) {
                    Some(words) => words,
                    None => continue,
                },
                Ok(()) => continue,
            },
        };
        if !left.contains(&words) {
            left.push(words);
        }
    }
    left
}

/// The file of a line or of a group is gone with what it sets. One of debugfs is there again as
/// soon as that is mounted.
fn unmounted(undo: &Undo) -> Option<String> {
    let Undo::Set { knob, to } = undo else { return None };
    let path = knob.path.display();
    knob.path
        .starts_with("/sys/kernel/debug")
        .then(|| format!("{path} (was {to:?}) is missing: mount -t debugfs none /sys/kernel/debug"))
}

/// Does a way back end the group of our partitions, or take what groups in it need?
fn closes_base(base: &Base, undo: &Undo) -> bool {
    match undo {
        Undo::RemoveGroup { path } => base.ancestors.contains(path),
        Undo::Delegate { on } => !on,
        Undo::Set { knob, to } => {
            let above = [base.dir(), &base.mount];
            to == "-cpuset" && knob.path.parent().is_some_and(|group| above.contains(&group))
        }
        _ => false,
    }
}

fn undo_one(edge: &Edge, undo: &Undo) -> Result<()> {
    let Edge { kernel, base, .. } = *edge;
    match undo {
        Undo::Set { knob, to } => match knob.read(kernel)? {
            now if knob.holds(&now, to) => Ok(()),
            _ => edge.set(knob, to),
        },
        Undo::Delegate { on } => {
            delegate(kernel, base, *on)?;
            match on {
                true => mark(kernel, base.dir()),
                false => Ok(()),
            }
        }
        Undo::Share { cpus } => guard::guard_again(kernel, cpus),
        // A crash may have come between the two halves of making a threaded group.
        Undo::MakeGroup { path, threaded } if kernel.exists(path) => {
            finish_group(kernel, base, path, *threaded)
        }
        Undo::MakeGroup { path, threaded } => make_group(kernel, base, path, *threaded),
        Undo::KeepGroup { .. } => Ok(()),
        Undo::RemoveGroup { path } if !kernel.exists(path) => Ok(()),
        // A crash came before the mark, and it is empty; or another program made it, and it stays
        // as soon as there is anything in it.
        Undo::RemoveGroup { path } if !kernel.is_marked(path) => match kernel.remove_dir(path) {
            Err(error) if kind_of(&error) == ErrorKind::Busy => Ok(()),
            other => other.map_err(Error::io(path, "remove the group")),
        },
        Undo::RemoveGroup { path } => {
            evict(kernel, base, path);
            edge.remove_group(path, &mut |_| Ok(()))
        }
        Undo::Move { task: id, alone, to } => {
            if task::identify(kernel, id.tid) != Some(*id) {
                return Ok(());
            }
            match alone {
                true => match cgroup::move_thread(kernel, id.tid, to) {
                    // Another program has moved its process elsewhere: it stays there.
                    Err(error) if error.kind() == ErrorKind::Unsupported => {
                        if is_beyond(kernel, base, id.tid, to) { Ok(()) } else { Err(error) }
                    }
                    moved => moved,
                },
                false => move_home(kernel, base, id.tid, to),
            }
        }
        Undo::SetPolicy { task: id, to } => {
            let holds = || kernel.schedule(id.tid).is_ok_and(|now| now == *to);
            if task::identify(kernel, id.tid) != Some(*id) || holds() {
                return Ok(());
            }
            let path = task_path(id.tid);
            kernel.set_schedule(id.tid, to).map_err(Error::io(&path, "set the policy of"))
        }
        Undo::SetMasks { masks } => back_to_masks(kernel, &base.mount, masks),
    }
}

/// Is the process of a thread in another domain than this group? Then no thread of it may enter
/// (EOPNOTSUPP, admin-guide/cgroup-v2.rst "Threads").
fn is_beyond(kernel: &dyn Kernel, base: &Base, tid: i32, group: &Path) -> bool {
    let domain = group.ancestors().find(|group| !cgroup::is_threaded(kernel, group));
    let Ok(task) = task::read(kernel, tid) else { return true };
    let now = base.mount.join(task.group.strip_prefix("/").unwrap_or(&task.group));
    domain.is_none_or(|domain| !now.starts_with(domain))
}

fn back_to_masks(kernel: &dyn Kernel, mount: &Path, masks: &[Mask]) -> Result<()> {
    let (_, left) = give_back_masks(kernel, mount, masks, &mut |_| Ok(()))?;
    match left.into_iter().next() {
        None => Ok(()),
        Some((mask, error)) => {
            Err(Error::io(&task_path(mask.task.tid), "set the affinity of")(error))
        }
    }
}

fn delegate(kernel: &dyn Kernel, base: &Base, on: bool) -> Result<()> {
    let operation = if on { "start" } else { "stop" };
    kernel.delegate(&base.mount, on).map_err(Error::io(Path::new(systemd::SERVICE), operation))
}

/// Does a step end the group of our partitions, or take what groups in it need?
fn ends_base(base: &Base, action: &Action) -> Option<()> {
    let ends = match action {
        Action::RemoveGroup { path, .. } => base.ancestors.contains(path),
        Action::Delegate { on } => !on,
        Action::Set { knob, to, .. } => to == "-cpuset" && knob.path.parent() == Some(base.dir()),
        _ => false,
    };
    ends.then_some(())
}

/// Did another program make this group of a partition in place of ours?
fn is_foreign(kernel: &dyn Kernel, base: &Base, group: &Path) -> bool {
    let ours = group.parent() == Some(base.dir()) || base.ancestors.iter().any(|of| of == group);
    ours && kernel.exists(group) && !kernel.is_marked(group)
}

fn make_group(kernel: &dyn Kernel, base: &Base, path: &Path, threaded: bool) -> Result<()> {
    kernel.make_dir(path).map_err(Error::io(path, "make the group"))?;
    finish_group(kernel, base, path, threaded)
}

/// What makes a new group ours, and threaded.
fn finish_group(kernel: &dyn Kernel, base: &Base, path: &Path, threaded: bool) -> Result<()> {
    if base.makes(path) && !kernel.is_marked(path) {
        mark(kernel, path)?;
    }
    if threaded { make_threaded(kernel, path) } else { Ok(()) }
}

fn mark(kernel: &dyn Kernel, group: &Path) -> Result<()> {
    kernel.mark(group).map_err(Error::io(group, "mark the group"))
}

fn make_threaded(kernel: &dyn Kernel, group: &Path) -> Result<()> {
    let file = group.join("cgroup.type");
    if cgroup::is_threaded(kernel, group) {
        return Ok(());
    }
    kernel.write(&file, b"threaded\n").map_err(Error::io(&file, "write"))
}
