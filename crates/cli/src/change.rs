// SPDX-License-Identifier: Apache-2.0 OR MIT
//! create, destroy, add, remove, move, resize, apply, repair, restore: from the command line to a
//! [`Request`], and what came of it in words.

use crate::args::{self, Change, Create, Planned, Run};
use crate::exit::{MAY_END, NOT_UNDONE, UNKNOWN_ORIGINALS, VIOLATED, code_of, failure};
use crate::file;
use crate::print;
use crate::signals::{self, Noted};
use anyhow::{Context, Result};
use asmp_host::task::{self, TaskId};
use asmp_host::{CpuSet, CpuSpec, Kernel, facts};
use asmp_shield::verify::Status;
use asmp_shield::{Caller, ChangeError, Cpus, Members, Mode, Need, Outcome, Request, Shield, Spec};
use std::time::{Duration, Instant};

/// Who runs this command: the effective user, the name behind sudo, the command line.
pub fn caller(kernel: &dyn Kernel) -> Caller {
    let name = ["SUDO_USER", "USER"].iter().find_map(|name| std::env::var(name).ok());
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let command = words.collect::<Vec<_>>().join(" ");
    // Unknown is not root.
    let uid = facts::user(kernel).unwrap_or(u32::MAX);
    Caller::now(uid, name.unwrap_or_else(|| "root".to_owned()), command)
}

/// Who changes something with this command. Errors: `NotRoot`.
pub fn changer(kernel: &dyn Kernel) -> Result<Caller> {
    let caller = caller(kernel);
    caller.must_be_root()?;
    signals::outlive_file_size_limit().context("take SIGXFSZ")?;
    Ok(caller)
}

/// Carries a change out and prints what came of it.
pub fn change(shield: &Shield, change: &Change) -> Result<()> {
    if let Change::Apply { dry_run: true, .. } = change {
        return plan(shield, &request(change)?, false);
    }
    let asked = request(change)?;
    let caller = changer(shield.kernel())?;
    let noted = Noted::take().context("take signals")?;
    let until = Instant::now() + waits_for(change);
    let outcome = loop {
        let shield = shield.clone().with_interrupt(noted.interrupt());
        match shield.change(&asked.request, &caller).map_err(|error| asked.refused(error)) {
            // A signal ends the next try before it takes the lock.
            Err(error) if MAY_END.contains(&code_of(&error)) && Instant::now() < until => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            ended => break ended?,
        }
    };
    let late = noted.signal();
    // One that comes while this is printed ends it.
    noted.let_go();
    let told = tell(change, &asked.request, outcome);
    if let Some(signal) = late {
        if let Err(error) = &told {
            say(error);
        }
        eprintln!("asmp: {} came too late: the change was made", signals::name(signal));
        signals::end_by(signal);
    }
    told
}

const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// How long to wait for what is missing.
fn waits_for(change: &Change) -> Duration {
    match change {
        Change::Apply { wait, .. } => wait.unwrap_or_default(),
        _ => Duration::ZERO,
    }
}

/// What came of a change, in words.
fn tell(change: &Change, request: &Request, outcome: Outcome) -> Result<()> {
    let is_violated = !outcome.violated(request).is_empty();
    note_idle_priorities(request);
    print::outcome(&outcome, &headline(change, &outcome, is_violated));
    let left = outcome.left.iter().map(ToString::to_string);
    if let Change::Restore { abandon: true } = change {
        let steps = outcome.recovered.map(|recovered| recovered.abandoned).unwrap_or_default();
        let mut given_up: Vec<String> = steps.into_iter().chain(left).collect();
        if !outcome.unknown_originals.is_empty() {
            print::unknown(&outcome.unknown_originals);
            given_up.push("the lost originals of the settings above".to_owned());
        }
        return match given_up.is_empty() {
            true => Ok(()),
            false => {
                let given_up = given_up.join("; ");
                Err(failure(NOT_UNDONE, format!("given up, not as it was before: {given_up}")))
            }
        };
    }
    if let Some(why) = &outcome.unread {
        let words = format!("the change was made, but the machine could not be read back: {why}");
        return Err(failure(VIOLATED, words));
    }
    if let (Change::Repair { .. }, Some(status)) = (change, &outcome.status) {
        // What is left unrestored has its own words below.
        let is_told = !outcome.left.is_empty() || !outcome.unknown_originals.is_empty();
        if is_violated || (!is_told && !status.holds()) {
            print::orphans(status);
            print::violated("is still violated", &outcome.violated(request));
            let words = "a partition is still violated: see what remains above";
            return Err(failure(VIOLATED, words));
        }
    } else if is_violated {
        if let Some(left) = not_given_back(&outcome) {
            print::err(format_args!("asmp: {left}\n"));
        }
        print::violated("is violated", &outcome.violated(request));
        let words = "the change was made, but a partition is violated: see above";
        return Err(failure(VIOLATED, words));
    }
    if !outcome.unknown_originals.is_empty() {
        print::unknown(&outcome.unknown_originals);
        return Err(failure(UNKNOWN_ORIGINALS, lost(&outcome)));
    }
    let goes_back =
        matches!(change, Change::Destroy { .. } | Change::Restore { .. } | Change::Repair { .. });
    match not_given_back(&outcome) {
        Some(left) if goes_back => Err(failure(NOT_UNDONE, left)),
        Some(left) => {
            print::err(format_args!("asmp: {left}\n"));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Names partitions that have a priority for handler threads and no line: it waits for lines that
/// `asmp add` or `asmp move` brings.
pub fn note_idle_priorities(request: &Request) {
    let idle = |name: &str, has_lines: bool, priority: Option<u32>| {
        if let Some(priority) = priority.filter(|_| !has_lines) {
            print::err(format_args!(
                "asmp: partition {name}: IRQ priority {priority} has no effect until it has a \
                 line: `asmp add {name} --irq LINE`"
            ));
        }
    };
    match request {
        Request::Create { name, spec } | Request::Run { name, spec, .. } => {
            idle(name, !spec.irqs.is_empty(), spec.irq_priority);
        }
        Request::Apply { declaration } => {
            let declared = declaration.partitions.iter();
            declared.for_each(|one| idle(&one.name, !one.irqs.is_empty(), one.irq_priority));
        }
        _ => {}
    }
}

/// What a change could not give back, with the cure; `None` where there is nothing.
pub fn not_given_back(outcome: &Outcome) -> Option<String> {
    let waits = waits(outcome)?;
    Some(format!("{waits}, or `asmp restore --abandon` to give them up"))
}

/// What settings were is not known. `--abandon` would drop the originals that wait as well, so it
/// is the cure only where none do.
fn lost(outcome: &Outcome) -> String {
    let lost = "the state of removed partitions was lost: check the settings above";
    match waits(outcome) {
        None => format!("{lost}, then `asmp restore --abandon`"),
        Some(waits) => format!("{lost}; {waits}"),
    }
}

/// What a change has not given back yet, in words.
pub fn waits(outcome: &Outcome) -> Option<String> {
    let left: Vec<String> = outcome.left.iter().map(ToString::to_string).collect();
    (!left.is_empty()).then(|| {
        let left = left.join("; ");
        format!("not given back yet: {left}; remove the cause, then run `asmp repair`")
    })
}

/// Prints what a command would do.
pub fn planned(shield: &Shield, planned: &Planned, json: bool) -> Result<()> {
    let asked = match planned {
        Planned::Change(change) => request(change)?,
        Planned::Run(run) => run_request(shield.kernel(), run, "run-PID").into(),
    };
    plan(shield, &asked, json)
}

fn plan(shield: &Shield, asked: &Asked, json: bool) -> Result<()> {
    let planned = shield.plan(&asked.request, &caller(shield.kernel()));
    let (facts, plan) = planned.map_err(|error| asked.refused(error))?;
    note_idle_priorities(&asked.request);
    print::plan(&facts, &plan, &facts.unreadable(shield.kernel()), json)
}

/// What the command line asks for, and the file that says it.
struct Asked {
    request: Request,
    file: Option<file::Source>,
}

impl From<Request> for Asked {
    fn from(request: Request) -> Self {
        Self { request, file: None }
    }
}

impl Asked {
    /// The error, with file and line if it is about an entry of the file.
    fn refused(&self, error: ChangeError) -> anyhow::Error {
        match (&self.request, &self.file) {
            (Request::Apply { declaration }, Some(file)) => file.place(declaration, error),
            _ => error.into(),
        }
    }
}

/// What the command line asks for. Reads the file of `apply`, nothing else.
fn request(change: &Change) -> Result<Asked> {
    let request = match change.clone() {
        Change::Create(Create { name, shape }) => Request::Create { name, spec: shape.into() },
        Change::Destroy { name, force, all: _ } => Request::Destroy { name, demote: force },
        Change::Resize { name, cpus } => Request::Resize { name, cpus },
        Change::Mode { name, mode } => Request::Mode { name, mode },
        Change::Add { members, force } => Request::Add {
            name: members.name.clone(),
            members: Members { force, ..members.into() },
        },
        Change::Remove { members, force } => {
            Request::Remove { name: members.name.clone(), members: members.into(), demote: force }
        }
        Change::Move { members, to } => {
            Request::Move { from: members.name.clone(), to, members: members.into() }
        }
        Change::Apply { file, .. } => {
            let (declaration, file) = file::read(&file)?;
            return Ok(Asked { request: Request::Apply { declaration }, file: Some(file) });
        }
        Change::Repair { name } => Request::Repair { name },
        Change::Restore { abandon } => Request::Restore { abandon },
    };
    Ok(request.into())
}

/// A partition for one command, owned by this process.
pub fn run_request(kernel: &dyn Kernel, run: &Run, name: &str) -> Request {
    Request::Run {
        name: run.name.clone().unwrap_or_else(|| name.to_owned()),
        spec: run.shape.clone().into(),
        owner: own_process(kernel),
    }
}

/// This process: the owner of a partition that lasts as long as one command.
pub fn own_process(kernel: &dyn Kernel) -> Option<TaskId> {
    task::identify(kernel, std::process::id() as i32)
}

impl From<args::Shape> for Spec {
    fn from(shape: args::Shape) -> Self {
        let need = |count| Need { count, near: shape.near, whole_cores: shape.whole_cores };
        let cpus = match (shape.count, shape.cpus) {
            (Some(count), _) => Cpus::Needed(need(count)),
            // clap asks for one of the two; the empty list is refused.
            (None, cpus) => Cpus::Named(cpus.unwrap_or_else(|| CpuSpec::List(CpuSet::new()))),
        };
        Self {
            cpus,
            irqs: shape.irqs,
            irq_priority: shape.irq_priority,
            tick: shape.tick,
            smt: shape.smt,
            strict: shape.strict,
            without: shape.without,
            mode: shape.share.unwrap_or_default(),
        }
    }
}

impl From<args::Members> for Members {
    fn from(members: args::Members) -> Self {
        Self { pids: members.pids, tids: members.tids, irqs: members.irqs, force: false }
    }
}

fn headline(change: &Change, outcome: &Outcome, is_violated: bool) -> String {
    let cpus = |name: &str, verb: &str| {
        outcome.state.partition(name).map_or_else(
            |_| String::new(),
            |partition| {
                let idle = print::idle_siblings(&partition.idle_cpus);
                format!("CPU {}{verb}{idle}", partition.cpus)
            },
        )
    };
    match change {
        Change::Create(create) => {
            let verb = match create.shape.share.unwrap_or_default() {
                Mode::Isolated => " shielded",
                Mode::Shared => " shared",
                Mode::BestEffort => " shared, without a guarantee",
            };
            format!("partition {}: {}", create.name, cpus(&create.name, verb))
        }
        Change::Mode { name, .. } if is_violated => {
            format!("partition {name}: now {}", cpus(name, ", but violated"))
        }
        Change::Mode { name, mode } => {
            format!("partition {name}: now {}", cpus(name, &format!(", {mode}")))
        }
        Change::Resize { name, .. } if is_violated => {
            format!("partition {name}: now {}", cpus(name, ", but violated"))
        }
        Change::Resize { name, .. } => format!("partition {name}: now {}", cpus(name, "")),
        Change::Destroy { name: Some(name), .. } => format!("partition {name} is gone"),
        Change::Destroy { .. } => "no partition is left".to_owned(),
        Change::Restore { .. }
            if !outcome.left.is_empty() || !outcome.unknown_originals.is_empty() =>
        {
            "no partition is left".to_owned()
        }
        Change::Restore { .. } if outcome.changes == 0 && outcome.recovered.is_none() => {
            "nothing to restore: asmp knows of no change that it made".to_owned()
        }
        Change::Restore { .. } => "the machine is as it was before asmp touched it".to_owned(),
        Change::Add { members, .. } => format!("partition {}: members added", members.name),
        Change::Remove { members, .. } => format!("partition {}: members removed", members.name),
        Change::Move { members, to } => {
            format!("partition {to}: members of {} moved", members.name)
        }
        Change::Repair { .. } => match outcome.status.as_ref().is_some_and(Status::holds) {
            true => "every setting is as promised".to_owned(),
            false if !outcome.left.is_empty() => "not everything is given back".to_owned(),
            false => "not everything is as promised".to_owned(),
        },
        Change::Apply { file, .. } if is_violated => {
            format!("{} is in force, but for what is violated", file.display())
        }
        Change::Apply { file, .. } => format!("{} is in force", file.display()),
    }
}

/// The signal that ended a change.
pub fn interrupted_by(error: &anyhow::Error) -> Option<i32> {
    let change = error.chain().find_map(|cause| cause.downcast_ref::<ChangeError>());
    match change.map(ChangeError::cause) {
        Some(ChangeError::Interrupted { signal }) => Some(*signal),
        _ => None,
    }
}

/// Prints an error, and what `--strict` stumbled on. Returns the exit code.
pub fn say(error: &anyhow::Error) -> u8 {
    eprintln!("asmp: {}", print::chain(error));
    let change = error.chain().find_map(|cause| cause.downcast_ref::<ChangeError>());
    if let Some(ChangeError::Strict { refused }) = change.map(ChangeError::cause) {
        for refused in refused {
            eprintln!("  {}: {}", refused.what, refused.reason);
        }
    }
    code_of(error)
}
