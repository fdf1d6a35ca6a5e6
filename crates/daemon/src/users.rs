// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out what users who are not root ask for, under their grants.
//!
//! Problem:  a user must not get at what others have. A process number that a user names, or that
//!           the kernel noted, may be another user's process by now.
//! Approach: no number comes from a user. A process that is to enter asks by itself, and the
//!           kernel tells its number. All its user ids must be its user's, before and after the
//!           move. A partition knows whose it is ([`Grant`]), and the shield looks at that with its
//!           lock held. A partition ends with its client, its process or its time, whichever is
//!           first.

use crate::came;
use crate::granted::{self, COUNTS_TICKS, Changed, Ended, Ran};
use crate::work::{Refused, Work};
use crate::written;
use asmp_host::peer::Peer;
use asmp_host::rttime;
use asmp_host::sched::TimeLimits;
use asmp_host::task::{self, TaskId};
use asmp_host::{Kernel, Schedule};
use asmp_shield::code::{NOT_UNDONE, POLICY_REFUSED, USAGE};
use asmp_shield::{
    Caller, ChangeError, Grant, Members, Partition, Refusal, Request, Shield, Spec, Tick,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Who has run what.
#[derive(Debug, Default)]
pub struct Users {
    /// The partitions of each client that made some.
    partitions: BTreeMap<u64, Vec<(String, TaskId)>>,
    /// Partitions whose client is gone, until they have ended.
    gone: BTreeSet<(String, TaskId)>,
    /// Partitions that could not be ended. The next look tries again, and tells it no second time.
    stuck: BTreeSet<(String, Option<TaskId>)>,
}

/// What came of a client's work.
#[derive(Debug, Default, PartialEq)]
pub struct Done {
    /// `None`: the client is gone.
    pub reply: Option<Result<Value, Refused>>,
    /// What happened to which partition, in words.
    pub told: Vec<Told>,
    /// Why a write to the tree of files was refused, or what must be known of it: who writes hears
    /// a number alone.
    pub of_files: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub partition: String,
    pub what: String,
}

fn told(partition: &str, what: impl Into<String>) -> Told {
    Told { partition: partition.to_owned(), what: what.into() }
}

impl Users {
    /// Carries out what this client asked for.
    pub fn carry_out(&mut self, shield: &Shield, client: u64, work: Work) -> Done {
        match work {
            Work::Run { peer, name, spec, grants, policy, command } => {
                let ran = run(shield, &peer, &name, *spec, (&grants, policy), command);
                let told = match &ran {
                    Err(_) => Vec::new(),
                    Ok((ran, owner)) => {
                        self.stuck.remove(&(name.clone(), Some(*owner)));
                        self.partitions.entry(client).or_default().push((name.clone(), *owner));
                        vec![told(&name, words_of(&peer, policy, ran))]
                    }
                };
                Done { reply: Some(ran.map(|(ran, _)| json!(ran))), told, of_files: Vec::new() }
            }
            Work::Enter { peer, name, policy, command } => {
                let entered = enter(shield, &peer, &name, policy, command);
                Done { reply: Some(entered.map(|()| json!({}))), ..Done::default() }
            }
            Work::End { peer, name } => {
                let ended = end_own(shield, &peer, &name);
                let told = match &ended {
                    Ok((_, fails)) => vec![told(&name, ended_words("its user is done", fails))],
                    Err(_) => Vec::new(),
                };
                self.forget(&told);
                let reply = Some(ended.map(|(ended, _)| json!(ended)));
                Done { reply, told, of_files: Vec::new() }
            }
            Work::Change { peer, request, command } => {
                let changed = change(shield, &peer, &request, command);
                Done { reply: Some(changed.map(|changed| json!(changed))), ..Done::default() }
            }
            Work::Left => {
                self.gone.extend(self.partitions.remove(&client).unwrap_or_default());
                Done { told: self.end_over(shield, 0), ..Done::default() }
            }
            Work::Written(written) => {
                let came = written::carry_out(shield, &written);
                let words = match &came {
                    Ok(words) => words.clone(),
                    Err(refused) => vec![refused.why.clone()],
                };
                let of_file = words.iter().map(|word| format!("{}: {word}", written.file));
                let of_files = of_file.collect();
                Done { reply: Some(came.map(|_| json!({}))), told: Vec::new(), of_files }
            }
        }
    }

    /// Ends partitions whose client is gone, whose time is over at `now_s` (seconds since 1970), or
    /// whose process has ended: its client may have been another asmpd's.
    pub fn end_over(&mut self, shield: &Shield, now_s: u64) -> Vec<Told> {
        let Ok(state) = shield.state() else { return Vec::new() };
        let kernel = shield.kernel();
        // Another partition may have the name by now: of root, of a file, or of another user.
        let granted = || state.partitions.iter().filter(|one| one.granted.is_some());
        self.stuck.retain(|stuck| state.partitions.iter().any(|one| key(one) == *stuck));
        self.gone
            .retain(|(name, owner)| granted().any(|one| key(one) == (name.clone(), Some(*owner))));
        let is_gone = |one: &Partition| {
            self.gone.iter().any(|(name, owner)| key(one) == (name.clone(), Some(*owner)))
        };
        let why = |one: &Partition| match one.granted.as_ref()?.until_s {
            _ if is_gone(one) => Some("its client is gone"),
            Some(until_s) if until_s <= now_s => Some("its time is over"),
            _ if !owner_lives(kernel, one) => Some("its process has ended"),
            _ => None,
        };
        let over: Vec<_> = granted().filter_map(|one| Some((one, why(one)?))).collect();
        let over = over.into_iter();
        let told: Vec<Told> = over.filter_map(|(one, why)| self.end(shield, one, why)).collect();
        self.forget(&told);
        told
    }

    /// When the next partition's time is over, in seconds since 1970.
    pub fn next_end_s(&self, shield: &Shield) -> Option<u64> {
        let state = shield.state().ok()?;
        let all = state.partitions.iter().filter(|one| !self.stuck.contains(&key(one)));
        all.filter_map(|one| one.granted.as_ref()?.until_s).min()
    }

    /// Ends a partition. `None`: there is nothing new to tell.
    fn end(&mut self, shield: &Shield, partition: &Partition, why: &str) -> Option<Told> {
        let (name, owner) = key(partition);
        let request = Request::EndRun { name: name.clone(), owner };
        match shield.change(&request, &Caller::now(0, "asmpd", "asmpd")) {
            Ok(outcome) => {
                self.stuck.remove(&(name.clone(), owner));
                self.gone.retain(|(one, of)| (one, Some(*of)) != (&name, owner));
                Some(told(&name, ended_words(why, &came::fails(&request, &outcome))))
            }
            Err(error) if error.is_no_partition() => {
                self.stuck.remove(&(name, owner));
                None
            }
            Err(error) => {
                let words = format!("cannot be ended ({why}): {error}");
                self.stuck.insert((name.clone(), owner)).then(|| told(&name, words))
            }
        }
    }

    /// Another partition may take one of these names later.
    fn forget(&mut self, ended: &[Told]) {
        for names in self.partitions.values_mut() {
            names.retain(|(name, _)| !ended.iter().any(|one| one.partition == *name));
        }
    }
}

/// Another partition may have the same name later, but not of the same process.
fn key(partition: &Partition) -> (String, Option<TaskId>) {
    (partition.name.clone(), partition.owner)
}

fn owner_lives(kernel: &dyn Kernel, partition: &Partition) -> bool {
    partition.owner.is_some_and(|owner| !task::has_ended(kernel, owner))
}

fn run(
    shield: &Shield,
    peer: &Peer,
    name: &str,
    spec: Spec,
    (grants, policy): (&[Grant], Schedule),
    command: String,
) -> Result<(Ran, TaskId), Refused> {
    let owner = own_process(shield.kernel(), peer)?;
    let request = Request::Run { name: name.to_owned(), spec, owner: Some(owner) };
    let caller = caller(peer, command);
    let mut first = None;
    for grant in grants {
        // Its tasks are to have no more than was asked for.
        let asked = Grant { policy, ..grant.clone() };
        match shield.change(&request, &caller.clone().with_grant(asked)) {
            Ok(outcome) => {
                let cpus = outcome.state.partition(name)?.cpus.to_string();
                let ran = Ran { name: name.to_owned(), cpus, notes: came::stays(&outcome) };
                return Ok((ran, owner));
            }
            // Another one may allow it.
            Err(ChangeError::Refused(Refusal::NotGranted { what, .. })) => {
                // With the policies of the file, not the one that was asked for.
                let all: Vec<String> = grants.iter().map(ToString::to_string).collect();
                let refusal = Refusal::NotGranted { what, granted: all.join("; ") };
                first.get_or_insert(Refused::from(refusal));
            }
            // Such as: too few CPUs, or a sibling that this grant does not have.
            Err(error @ ChangeError::Refused(_)) => {
                first.get_or_insert(refused(&error));
            }
            Err(error) => return Err(refused(&error)),
        }
    }
    Err(first.unwrap_or_else(|| granted::not_own(name, peer.uid).into()))
}

fn words_of(peer: &Peer, policy: Schedule, ran: &Ran) -> String {
    let (uid, cpus) = (peer.uid, &ran.cpus);
    format!("made for user {uid}: CPU {cpus}, at most {policy}")
}

/// The process that asked, if it is there and is that user's alone.
fn own_process(kernel: &dyn Kernel, peer: &Peer) -> Result<TaskId, Refused> {
    let before = task::identify(kernel, peer.pid);
    let is_own = task::uids(kernel, peer.pid) == Some([peer.uid; 4]);
    // The same process while its user ids were read.
    match before {
        Some(id) if is_own && task::identify(kernel, peer.pid) == Some(id) => Ok(id),
        _ => Err(not_own(peer)),
    }
}

fn not_own(peer: &Peer) -> Refused {
    let (pid, uid) = (peer.pid, peer.uid);
    Refusal::NotGranted {
        what: format!("process {pid}"),
        granted: format!("it has ended, or does not have user id {uid} alone (setuid programs)"),
    }
    .into()
}

/// Moves the process that asked, and then gives it its policy: it never has that outside.
fn enter(
    shield: &Shield,
    peer: &Peer,
    name: &str,
    policy: Schedule,
    command: String,
) -> Result<(), Refused> {
    let kernel = shield.kernel();
    let state = shield.state().map_err(|error| refused(&error))?;
    let partition = state.partition(name)?;
    let grant = partition.granted.as_ref().filter(|grant| grant.uid == peer.uid);
    let grant = grant.ok_or_else(|| granted::not_own(name, peer.uid))?;
    if !grant.covers(&policy) {
        return Err(grant.lacks(format!("policy {policy}")).into());
    }
    let own = own_process(kernel, peer)?;
    // What marking it would refuse is known before it is moved.
    if policy.is_real_time() {
        let limits = rttime::limits(kernel, own.tid).map_err(|_| not_own(peer))?;
        refuse_lower(&limits, own)?;
    }
    let request = Request::Exec { name: name.to_owned(), process: own, command: command.clone() };
    let caller = caller(peer, command).with_grant(grant.clone());
    let outcome = shield.change(&request, &caller).map_err(|error| refused(&error))?;
    let inside = outcome.state.partition(name)?;
    // It may have executed a setuid program, or its number may be another process's since the
    // shield looked.
    let is_inside = inside.tasks.iter().any(|member| member.task == own);
    let entered = match is_inside && own_process(kernel, peer) == Ok(own) {
        // Before it is real-time: what it starts then has the mark too.
        true => marked(kernel, peer, own, &policy).and_then(|()| {
            let watched = shield.watched().map_err(|error| refused(&error))?;
            give(kernel, own, &watched.partitions.join(name), &policy)
        }),
        false => Err(not_own(peer)),
    };
    entered.map_err(|mut why| {
        let members = Members { pids: vec![peer.pid], ..Members::default() };
        let leave = Request::Remove { name: name.to_owned(), members, demote: true };
        let left = shield.change(&leave, &Caller::now(0, "asmpd", "asmpd"));
        if let Err(error) = left
            && !task::has_ended(kernel, own)
        {
            why.why += &format!("; process {} stays inside: {error}", own.tid);
        }
        why
    })
}

/// Marks a process that is to become real-time. Errors: it has ended, or it has a lower limit,
/// which asmpd would not know for a mark outside.
fn marked(kernel: &dyn Kernel, peer: &Peer, own: TaskId, policy: &Schedule) -> Result<(), Refused> {
    if !policy.is_real_time() {
        return Ok(());
    }
    rttime::mark(kernel, own.tid).map_err(|_| not_own(peer))?;
    refuse_lower(&rttime::limits(kernel, own.tid).map_err(|_| not_own(peer))?, own)
}

fn refuse_lower(limits: &TimeLimits, own: TaskId) -> Result<(), Refused> {
    match limits.hard_us {
        Some(limit_us) if limit_us < rttime::MARK_US => {
            let why = format!(
                "process {} has RLIMIT_RTTIME {limit_us} us, and asmpd marks real-time processes \
                 by that limit: start it without (`ulimit -R unlimited`, LimitRTTIME=infinity)",
                own.tid
            );
            Err(Refused { code: POLICY_REFUSED, why })
        }
        _ => Ok(()),
    }
}

/// Gives all threads of a process in this group a policy. A thread may end meanwhile, and its
/// number be another one's, outside: that becomes SCHED_OTHER.
fn give(
    kernel: &dyn Kernel,
    process: TaskId,
    group: &Path,
    policy: &Schedule,
) -> Result<(), Refused> {
    let is_its = |id: TaskId| {
        task::read(kernel, id.tid).is_ok_and(|task| {
            task.id == id && task.process == process.tid && task.group.starts_with(group)
        })
    };
    for tid in task::thread_numbers(kernel, process.tid).unwrap_or_default() {
        let Some(id) = task::identify(kernel, tid).filter(|id| is_its(*id)) else { continue };
        match kernel.set_schedule(tid, policy) {
            Ok(()) if is_its(id) => {}
            Ok(()) => drop(kernel.set_schedule(tid, &Schedule::Other { nice: 0 })),
            Err(_) if !is_its(id) => {}
            Err(error) => {
                let why = format!("the kernel refuses {policy}: {error}");
                return Err(Refused { code: POLICY_REFUSED, why });
            }
        }
    }
    Ok(())
}

/// Ends a partition because its user asked for that.
fn end_own(shield: &Shield, peer: &Peer, name: &str) -> Result<(Ended, Vec<String>), Refused> {
    let state = shield.state().map_err(|error| refused(&error))?;
    let partition = state.partition(name)?;
    if !partition.is_of_user(peer.uid) {
        return Err(granted::not_own(name, peer.uid).into());
    }
    let request = Request::EndRun { name: name.to_owned(), owner: partition.owner };
    let caller = Caller::now(0, "asmpd", "asmpd");
    let outcome = shield.change(&request, &caller).map_err(|error| refused(&error))?;
    let fails = came::fails(&request, &outcome);
    let mut notes = came::of_tasks(&outcome);
    notes.extend(fails.iter().cloned());
    let code = if fails.is_empty() { 0 } else { NOT_UNDONE };
    Ok((Ended { notes, code }, fails))
}

/// Why it ended, and what was not given back.
fn ended_words(why: &str, fails: &[String]) -> String {
    let fails: String = fails.iter().map(|what| format!("; {what}")).collect();
    format!("ended: {why}{fails}")
}

/// Carries out a request of root's.
fn change(
    shield: &Shield,
    peer: &Peer,
    request: &Request,
    command: String,
) -> Result<Changed, Refused> {
    if let Request::Resize { name, .. } = request {
        let state = shield.state().map_err(|error| refused(&error))?;
        if state.partition(name)?.tick == Tick::RequireOff {
            return Err(Refused { code: USAGE, why: COUNTS_TICKS.to_owned() });
        }
    }
    let caller = Caller::now(peer.uid, "root", command);
    let outcome = shield.change(request, &caller).map_err(|error| refused(&error))?;
    let (transaction, changes) = (outcome.state.transaction, outcome.changes);
    Ok(Changed { transaction, changes, notes: came::of(request, &outcome) })
}

fn caller(peer: &Peer, command: String) -> Caller {
    Caller::now(peer.uid, format!("user {}", peer.uid), command)
}

fn refused(error: &ChangeError) -> Refused {
    Refused { code: error.code(), why: error.to_string() }
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
