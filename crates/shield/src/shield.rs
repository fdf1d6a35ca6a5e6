// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one way to change partitions: lock, finish what a crash left, read the machine, decide,
//! plan, apply, commit. Everything above this file talks to [`Shield`].

mod patience;
mod recover;
mod tracer;
mod watched;

pub use patience::Patience;
pub use recover::Recovered;
pub use watched::Watched;

use recover::Header;

use crate::apply::{Applied, Edge, Refused, Stopped, Undo, UndoLog, apply, undo};
use crate::decide::decide;
use crate::kworkers;
use crate::left;
use crate::lines;
use crate::membership::{self, Entrance, EntryError};
use crate::moving::{Demotion, demotions};
use crate::neighbours;
use crate::outcome::Outcome;
use crate::partition::{Partition, Refusal, State, shielded};
use crate::plan::{Action, Base, Plan, Step};
use crate::prove::{self, Unproved};
use crate::request::{Caller, Request};
use crate::rules::{check_machine, check_tree};
use crate::state::{self, JOURNAL, RUN_DIR, STATE, STATE_SCHEMA, StateError};
use crate::verify::{self, Status};
use asmp_host::store::{Lock, Store};
use asmp_host::task::task_path;
use asmp_host::{CpuSet, Error, ErrorKind, Facts, Kernel, Linux, irq, knob, tracefs};
use serde::Serialize;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a change did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Refused(#[from] Refusal),

    #[error(
        "another asmp has been changing partitions for {} s: try again when it is done",
        patience.as_secs()
    )]
    Busy { patience: Duration },

    #[error(transparent)]
    Host(#[from] Error),

    /// The kernel said no; the machine is as it was.
    #[error("{cause} ({why}); nothing has changed")]
    Undone { why: String, cause: Error },

    /// The kernel refused the policy of a declared task; the machine is as it was.
    #[error("the kernel refuses policy {policy}: {cause}; nothing has changed")]
    PolicyRefused { policy: String, cause: Error },

    /// `--strict`: the machine is as it was.
    #[error(
        "--strict: {count} settings refuse to leave the partition; nothing has changed",
        count = refused.len()
    )]
    Strict { refused: Vec<Refused> },

    /// The proof that was asked for failed; the machine is as it was.
    #[error("{reason}; nothing has changed")]
    Unproved { reason: String },

    /// A change failed and the kernel refused a step back. The journal stays: every change tries
    /// again.
    #[error(
        "{cause}; not restored yet: {left}; remove the cause, then run `asmp repair`, or \
         `asmp restore --abandon` to give them up",
        left = left.join("; ")
    )]
    NotUndone { cause: String, left: Vec<String> },

    /// A signal came, and the change was undone: see [`Shield::with_interrupt`].
    #[error("interrupted by {}; nothing has changed", signal_name(*signal))]
    Interrupted { signal: i32 },

    /// What a crash had left half done was undone first; then this.
    #[error("{cause}; before that, {recovered}")]
    AfterUndoing { cause: Box<ChangeError>, recovered: Recovered },

    #[error(transparent)]
    State(#[from] StateError),
}

impl ChangeError {
    /// The error itself, without what was undone before.
    pub fn cause(&self) -> &Self {
        match self {
            Self::AfterUndoing { cause, .. } => cause.cause(),
            error => error,
        }
    }

    /// There is no partition of that name.
    pub fn is_no_partition(&self) -> bool {
        matches!(self.cause(), Self::Refused(Refusal::NoPartition { .. }))
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGHUP => "SIGHUP".to_owned(),
        libc::SIGINT => "SIGINT".to_owned(),
        libc::SIGQUIT => "SIGQUIT".to_owned(),
        libc::SIGTERM => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    }
}

/// How long `status` waits for a change that is under way.
const AT_WORK: Duration = Duration::from_secs(1);

/// Looks of `status` beside changes that follow one another.
const MOST_LOOKS: usize = 4;

/// The number of a signal that has come and is to end a change. Once it has given one it gives one
/// each time.
type Interrupt = Arc<dyn Fn() -> Option<i32> + Send + Sync>;

/// How long one try for the lock takes.
const LOOK: Duration = Duration::from_millis(100);

/// Partitions of one machine.
#[derive(Clone)]
pub struct Shield {
    kernel: Arc<dyn Kernel>,
    store: Store,
    patience: Patience,
    interrupt: Interrupt,
}

impl Shield {
    /// `store` is the directory of our own files, [`crate::RUN_DIR`].
    pub fn new(kernel: Arc<dyn Kernel>, store: Store) -> Self {
        Self { kernel, store, patience: Patience::default(), interrupt: Arc::new(|| None) }
    }

    /// The shield of the running machine.
    pub fn of_this_machine() -> Self {
        Self::new(Arc::new(Linux::new()), Store::at(RUN_DIR))
    }

    /// The same with other waits.
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// The same, but a signal undoes a change: `interrupt` gives the number of one that has come,
    /// and from then on always a number. It is asked while a change waits for the lock, before each
    /// step, while ticks are counted, and before the change takes effect. Undoing goes on to its
    /// end. After a signal each change of this shield ends at once: clean up with one that has no
    /// interrupt.
    pub fn with_interrupt(
        self,
        interrupt: impl Fn() -> Option<i32> + Send + Sync + 'static,
    ) -> Self {
        Self { interrupt: Arc::new(interrupt), ..self }
    }

    pub fn kernel(&self) -> &dyn Kernel {
        &*self.kernel
    }

    /// The committed state; empty where there is none.
    pub fn state(&self) -> Result<State, ChangeError> {
        Ok(state::load(&self.store)?)
    }

    /// The way into a partition for a process that this one starts. Reads files; changes nothing.
    pub fn entrance(&self, name: &str) -> Result<Entrance, EntryError> {
        membership::find(self.kernel(), &self.store, name)
    }

    /// Reads everything back: what holds, what violates a partition, what cannot move. Waits up to
    /// a second for a change that is under way. It looks again, a few times, where a change began
    /// or ended meanwhile. Errors: `Refused` in a container, which sees none of that.
    pub fn status(&self) -> Result<Status, ChangeError> {
        for _ in 0..MOST_LOOKS {
            let (status, transaction) = self.look(false)?;
            if status.interrupted || status.changing {
                return Ok(status);
            }
            // A change may have begun or ended while the machine was read.
            if !self.is_half_done()? && self.state()?.transaction == transaction {
                return Ok(status);
            }
        }
        // Changes follow one another without a pause.
        let (status, _) = self.look(true)?;
        Ok(Status { changing: !status.interrupted, ..status })
    }

    /// Is a change half done, as far as this caller may know?
    fn is_half_done(&self) -> Result<bool, ChangeError> {
        match self.is_interrupted() {
            // Without root; the state, which all may read, is there.
            Err(ChangeError::Host(error)) if error.kind() == ErrorKind::NotPermitted => Ok(false),
            answer => answer,
        }
    }

    /// What one look sees, and the number of the last change in force then. `is_half_done`: it is
    /// known that changes are under way.
    fn look(&self, is_half_done: bool) -> Result<(Status, u64), ChangeError> {
        let (mut interrupted, mut journal_unreadable, mut changing) = (false, false, false);
        match self.is_interrupted() {
            // Without root; the state, which all may read, is there.
            Err(ChangeError::Host(error)) if error.kind() == ErrorKind::NotPermitted => {
                journal_unreadable = true;
            }
            Err(error) => return Err(error),
            // Who is at work has the lock.
            Ok(true) => match self.store.lock(AT_WORK) {
                Ok(None) => changing = true,
                // Where /run takes no write there is no lock, and no asmp at work.
                _lock => interrupted = self.is_interrupted()?,
            },
            Ok(false) => {}
        }
        // After the wait: the state must not be newer than what is read of the machine.
        let facts = Facts::read(self.kernel())?;
        check_tree(&facts)?;
        let base = Base::of(&facts).ok_or(Refusal::NoCgroupV2)?;
        let mut state = self.state()?;
        lines::follow(self.kernel(), &facts, &mut state);
        // What a change that is under way has made is not called another program's, either.
        let is_half_done = is_half_done || interrupted || changing;
        let status = verify::verify(self.kernel(), &facts, &base, &state, is_half_done)?;
        let status = Status { interrupted, journal_unreadable, changing, ..status };
        Ok((status, state.transaction))
    }

    fn edge<'a>(&'a self, base: &'a Base) -> Edge<'a> {
        Edge { kernel: self.kernel(), base, patience: Cell::new(self.patience.busy) }
    }

    /// What a request would do. Takes no lock and touches nothing: what a change that is half done
    /// has made counts as it is.
    pub fn plan(&self, request: &Request, caller: &Caller) -> Result<(Facts, Plan), ChangeError> {
        let facts = Facts::read(self.kernel())?;
        let base = Base::of(&facts).ok_or(Refusal::NoCgroupV2)?;
        // Read before the state: else a change that ends in between is in neither.
        let is_half_done = self.is_half_done()?;
        let mut state = self.state()?;
        let decision = decide(self.kernel(), &facts, &mut state, request, caller, is_half_done)
            .map_err(|refusal| lines::name_what_it_is(self.kernel(), &facts, refusal))?;
        let plan = decision.plan(self.kernel(), &facts, &base, &state);
        if !request.demotes() {
            refuse_demotions(&demotions(self.kernel(), &plan))?;
        }
        Ok((facts, plan))
    }

    /// Carries a request out whole, or leaves the machine as it was and says why. First it undoes
    /// what a killed change has left: after that an error is `AfterUndoing`, so look at its
    /// [`ChangeError::cause`].
    pub fn change(&self, request: &Request, caller: &Caller) -> Result<Outcome, ChangeError> {
        // The machine is read with the lock held: another writer may be changing it now.
        let _lock = self.lock()?;
        self.change_and_settle(request, caller)
    }

    /// The same, if the state is still the one from which the request was made. `None`: it is not,
    /// and nothing was done.
    pub fn change_of(
        &self,
        known: &State,
        request: &Request,
        caller: &Caller,
    ) -> Result<Option<Outcome>, ChangeError> {
        let _lock = self.lock()?;
        match self.state()? == *known {
            true => self.change_and_settle(request, caller).map(Some),
            false => Ok(None),
        }
    }

    fn change_and_settle(&self, request: &Request, by: &Caller) -> Result<Outcome, ChangeError> {
        let answer = self.change_locked(request, by);
        let no_room = state::settle(&self.store).err().map(|error| error.to_string());
        answer.map(|outcome| Outcome { no_room, ..outcome })
    }

    fn change_locked(&self, request: &Request, caller: &Caller) -> Result<Outcome, ChangeError> {
        let facts = Facts::read(self.kernel())?;
        // Whatever the edge allows its caller: without root the kernel would refuse half of it.
        if !facts.root {
            return Err(Refusal::NotRoot.into());
        }
        check_machine(&facts)?;
        let base = Base::of(&facts).ok_or(Refusal::NoCgroupV2)?;
        // Tracers of measurements that were killed would keep their settings from being undone.
        tracefs::remove_stale(self.kernel());
        let abandon = matches!(request, Request::Restore { abandon: true });
        let set_aside = if abandon { self.set_aside_unreadable()? } else { Vec::new() };
        let mut recovered = self.recover(&facts, &base, abandon)?;
        if !set_aside.is_empty() {
            recovered = Some(Recovered { steps: 0, abandoned: set_aside });
        }
        let undone = recovered.clone();
        let answer = self.change_whole(&base, request, caller, (facts, recovered));
        answer.map_err(|cause| match undone {
            None => cause,
            Some(recovered) => ChangeError::AfterUndoing { cause: Box::new(cause), recovered },
        })
    }

    /// The change itself. Call when no change is half done.
    fn change_whole(
        &self,
        base: &Base,
        request: &Request,
        caller: &Caller,
        (facts, recovered): (Facts, Option<Recovered>),
    ) -> Result<Outcome, ChangeError> {
        let abandon = matches!(request, Request::Restore { abandon: true });
        let facts = if recovered.is_some() { Facts::read(self.kernel())? } else { facts };
        let mut state = self.state()?;
        let decision = decide(self.kernel(), &facts, &mut state, request, caller, false)
            .map_err(|refusal| lines::name_what_it_is(self.kernel(), &facts, refusal))?;
        state.note_lost(&decision.unknown);
        let unknown_originals = match request {
            Request::Restore { .. } | Request::Repair { .. } => state.lost.clone(),
            _ => Vec::new(),
        };
        let plan = decision.plan(self.kernel(), &facts, base, &state);
        let demoted = demotions(self.kernel(), &plan);
        if !request.demotes() {
            refuse_demotions(&demoted)?;
        }
        let (before, restores) =
            (state.partitions.clone(), matches!(request, Request::Restore { .. }));
        let mut outcome = self.carry_out(facts, base, state, plan, abandon)?;
        let after = &outcome.state.partitions;
        let elsewhere = left::of_tasks(self.kernel(), base, &before, after);
        let gone = before.into_iter().filter(|old| !after.iter().any(|new| new.name == old.name));
        let gone: Vec<Partition> = gone.collect();
        let ends = restores || !gone.is_empty() || outcome.state.keeps_base;
        let is_last = after.is_empty() && ends;
        outcome.left.extend(left::of_groups(self.kernel(), base, &gone, is_last));
        let read = request.is_repair().then(|| self.status());
        let unread = read.as_ref().and_then(|read| read.as_ref().err()).map(ToString::to_string);
        let status = read.and_then(Result::ok);
        Ok(Outcome { demoted, elsewhere, recovered, status, unread, unknown_originals, ..outcome })
    }

    fn lock(&self) -> Result<Lock, ChangeError> {
        let patience = self.patience.lock;
        let end = Instant::now() + patience;
        loop {
            if let Some(signal) = (self.interrupt)() {
                return Err(ChangeError::Interrupted { signal });
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.store.lock(left.min(LOOK))? {
                Some(lock) => return Ok(lock),
                None if left.is_zero() => return Err(ChangeError::Busy { patience }),
                None => {}
            }
        }
    }

    fn carry_out(
        &self,
        facts: Facts,
        base: &Base,
        mut state: State,
        plan: Plan,
        abandon: bool,
    ) -> Result<Outcome, ChangeError> {
        let same = plan.after == state.partitions && plan.system == state.system();
        let nothing = plan.waiting.is_empty() && state.lost.is_empty() && plan.held.is_none();
        let given_up = abandon && !nothing;
        if plan.steps.is_empty() && plan.released.is_empty() && same && !given_up {
            let left = left::of_settings(&state, &plan, &Applied::default());
            return Ok(Outcome { left, ..Outcome::of(facts, state, plan) });
        }
        let both = (state.partitions.as_slice(), plan.after.as_slice());
        kworkers::wait_for(self.kernel(), &facts, &plan.steps, both, self.patience.busy)?;
        let reserved = state::reserve(&self.store, &state);
        let is_first = state.owes_nothing();
        if is_first {
            // What begins without room for its end might never end.
            reserved?;
        }
        state.transaction += 1;
        let mut journal = self.store.journal(JOURNAL)?;
        let header = Header { schema: STATE_SCHEMA, transaction: state.transaction };
        journal.append(&to_json(&header)?)?;
        let mut undo_log = UndoLog::new(&mut journal);
        let edge = self.edge(base);
        let mut applied = Applied::default();
        let (settings, joins) = plan.before_tasks();
        let interrupt = &*self.interrupt;
        let mut take = |steps, applied: &mut Applied| {
            apply(&edge, &facts, &plan, steps, &mut undo_log, applied, interrupt)
        };
        let mut taken = take(settings, &mut applied);
        if taken.is_ok() {
            let prover = prove::Prover { kernel: self.kernel(), base, interrupt };
            let proved = prover.ticks(&facts, both, self.patience.tick);
            taken = match proved {
                Ok(()) => take(joins, &mut applied),
                Err(Unproved::Interrupted { signal }) => Err(Stopped::Interrupted { signal }),
                Err(Unproved::Because(reason)) => {
                    self.roll_back(base, &undo_log.back, reason.clone())?;
                    return Err(ChangeError::Unproved { reason });
                }
            };
        }
        match taken {
            Ok(()) => {}
            Err(Stopped::Interrupted { signal }) => {
                return Err(self.interrupted(base, &undo_log.back, signal));
            }
            Err(Stopped::Failed { step, cause: source }) => {
                let why = neighbours::explain(self.kernel(), base, &step, &source);
                let cause = format!("{source} ({why})");
                let task_gone = moved_task(&step).filter(|_| source.is_missing());
                self.roll_back(base, &undo_log.back, cause)?;
                return Err(match (task_gone, step.action) {
                    (Some(tid), _) => Refusal::UnknownTask { tid }.into(),
                    (None, Action::SetTaskPolicy { placed, to, .. }) => {
                        let policy = format!("{to} for {}", placed.command);
                        ChangeError::PolicyRefused { policy, cause: source }
                    }
                    (None, _) => ChangeError::Undone { why, cause: source },
                });
            }
        };
        let mut refused = judge(self.kernel(), &plan.after, applied.refused.clone());
        refused.retain(|refused| !plan.released.contains(&refused.path));
        let left = left::of_settings(&state, &plan, &applied);
        let strict = plan.after.iter().any(|new| new.strict && !state.partitions.contains(new));
        if strict && refused.iter().any(|refused| refused.disturbs) {
            self.roll_back(base, &undo_log.back, "--strict".to_owned())?;
            let refused = refused.into_iter().filter(|refused| refused.disturbs).collect();
            return Err(ChangeError::Strict { refused });
        }
        let had_base = state.keeps_base || !state.partitions.is_empty();
        state.keeps_base = had_base && plan.after.is_empty() && left::has_base(self.kernel(), base);
        state.returning = match state.keeps_base || !plan.after.is_empty() {
            true => plan.returning.clone(),
            false => CpuSet::new(),
        };
        // The last moment at which a signal undoes it.
        if let Some(signal) = interrupt() {
            return Err(self.interrupted(base, &undo_log.back, signal));
        }
        if let Err(error) = self.commit(&mut state, &plan, &applied, (is_first, abandon)) {
            // Not in force where the state on disk is still the old one.
            if self.state()?.transaction < state.transaction {
                self.roll_back(base, &undo_log.back, error.to_string())?;
            }
            return Err(error);
        }
        let changes = applied.changes;
        Ok(Outcome { refused, left, changes, ..Outcome::of(facts, state, plan) })
    }

    /// Undoes a change because of a signal.
    fn interrupted(&self, base: &Base, back: &[Undo], signal: i32) -> ChangeError {
        let cause = format!("interrupted by {}", signal_name(signal));
        match self.roll_back(base, back, cause) {
            Ok(()) => ChangeError::Interrupted { signal },
            Err(error) => error,
        }
    }

    fn roll_back(&self, base: &Base, back: &[Undo], cause: String) -> Result<(), ChangeError> {
        let left = undo(&self.edge(base), back);
        if !left.is_empty() {
            // The journal stays: `asmp repair` tries again.
            return Err(ChangeError::NotUndone { cause, left });
        }
        Ok(self.store.remove(JOURNAL)?)
    }

    /// From here on the change counts: the state names its number, and a journal of that number is
    /// void. An original leaves the state only once it was written back, its file is gone for good,
    /// or it is given up. What is the first to owe something begins only with room for its end.
    fn commit(
        &self,
        state: &mut State,
        plan: &Plan,
        applied: &Applied,
        (is_first, abandon): (bool, bool),
    ) -> Result<(), ChangeError> {
        state.partitions = plan.after.clone();
        state.set_system(&plan.system);
        for (path, original) in &applied.originals {
            state.originals.entry(path.clone()).or_insert_with(|| original.clone());
        }
        let refused: BTreeMap<&Path, &str> = applied
            .refused
            .iter()
            .filter(|refused| !refused.path.as_os_str().is_empty() && !left::is_gone(refused))
            .map(|refused| (refused.path.as_path(), refused.reason.as_str()))
            .collect();
        for path in plan.released.iter().filter(|path| abandon || !refused.contains_key(&***path)) {
            state.originals.remove(path);
        }
        if abandon {
            state.originals.retain(|path, _| !plan.waiting.contains_key(path));
            state.lost.clear();
            state.returning = CpuSet::new();
        }
        for step in &plan.steps {
            match &step.action {
                Action::Set { knob, .. } => match refused.get(&*knob.path) {
                    Some(reason) if !plan.released.contains(&knob.path) => {
                        state.refused.insert(knob.path.clone(), (*reason).to_owned());
                    }
                    _ => drop(state.refused.remove(&knob.path)),
                },
                Action::SetPolicy { thread, .. } => {
                    let path = task_path(thread.task.tid);
                    match applied.policies_refused.get(&path) {
                        Some(reason) => drop(state.refused.insert(path, reason.clone())),
                        None => drop(state.refused.remove(&path)),
                    }
                }
                Action::GiveBackMasks { .. } => state.masks.clear(),
                _ => {}
            }
        }
        let masks_left = applied.masks_left.iter().filter(|_| !abandon);
        state.masks.extend(masks_left.map(|(mask, _)| mask.clone()));
        state.note_masks(&applied.masks);
        let policies_left = applied.policies_left.iter().filter(|_| !abandon);
        state.policies_left = policies_left.map(|(thread, _)| thread.clone()).collect();
        if state.is_empty() {
            state.refused.clear();
        }
        if is_first && !state.owes_nothing() {
            state::reserve(&self.store, state)?;
        }
        state::save(&self.store, state)?;
        // From here on the change is in force. What cannot be removed now is void, and the next
        // change removes it.
        let removed = self.store.remove(JOURNAL);
        if removed.is_ok() && state.owes_nothing() {
            let _ = self.store.remove(STATE);
        }
        Ok(())
    }
}

fn refuse_demotions(demotions: &[Demotion]) -> Result<(), Refusal> {
    let Some(first) = demotions.first() else { return Ok(()) };
    let words: Vec<String> = demotions
        .iter()
        .map(|demotion| {
            format!("task {} ({}, {})", demotion.task.tid, demotion.command, demotion.policy)
        })
        .collect();
    Err(Refusal::RealTimeInside { tasks: words.join(", "), partition: first.partition.clone() })
}

/// A line that refuses to move disturbs a partition only if a shielded CPU gets its interrupts.
fn judge(kernel: &dyn Kernel, after: &[Partition], mut refused: Vec<Refused>) -> Vec<Refused> {
    let shielded = shielded(after);
    for refused in &mut refused {
        let irq = knob::irq_of(&refused.path);
        if let Some(effective) = irq.and_then(|irq| irq::effective(kernel, irq)) {
            refused.disturbs &= effective.intersects(&shielded);
        }
    }
    refused
}

fn moved_task(step: &Step) -> Option<i32> {
    match &step.action {
        Action::MoveIn { placed, .. } => Some(placed.task.tid),
        _ => None,
    }
}

fn to_json(value: &impl Serialize) -> Result<String, ChangeError> {
    serde_json::to_string(value).map_err(|error| {
        ChangeError::State(StateError::Unreadable {
            path: JOURNAL.into(),
            reason: format!("cannot be written as JSON ({error})"),
        })
    })
}
