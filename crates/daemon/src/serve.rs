// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for notices, looks, and asks the shield for repairs.

use crate::hold::{Hold, Order, Pace, Record};
use crate::outside::{self, Tree};
use crate::users::{Told, Users};
use crate::work::{Refused, Work};
use asmp_host::task::{self, TaskId};
use asmp_host::tracefs::{Entered, TakenOut};
use asmp_host::watch::Notice;
use asmp_shield::verify::Status;
use asmp_shield::{Caller, ChangeError, Request, Shield};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Where notices come from: [`asmp_host::watch::Watch`], or a test.
pub trait Source {
    /// Follows these files and no others; what cannot be followed, with the reason.
    fn follow(&mut self, files: &BTreeSet<PathBuf>) -> Vec<(PathBuf, io::Error)>;

    /// Follows these tasks and no others.
    fn follow_tasks(&mut self, tasks: BTreeSet<i32>);

    /// These users have partitions.
    fn note_users(&mut self, users: BTreeSet<u32>);

    /// Follows the ends of these processes and of no others.
    fn follow_processes(&mut self, processes: &BTreeSet<TaskId>);

    /// Follows who comes into these cgroups and no others.
    fn follow_groups(&mut self, groups: BTreeSet<PathBuf>);

    /// Waits for notices, at most so long. Errors: in words.
    fn wait(&mut self, most: Duration) -> Result<BTreeSet<Notice>, String>;

    /// Tells other programs what to leave alone: what was told, in words.
    fn advise(&mut self, status: &Status) -> Option<String>;

    /// When another program that did not listen is told again, in nanoseconds of CLOCK_MONOTONIC.
    fn advise_again_ns(&self) -> Option<u64>;

    /// What a client wants done, one thing at a time.
    fn work(&mut self) -> Option<(u64, Work)>;

    /// What came of a client's work.
    fn reply(&mut self, client: u64, reply: Result<Value, Refused>);

    /// A look has ended, and what it asked for.
    fn looked(&mut self, hold: &Hold);

    /// Something has happened: each record comes once.
    fn tell(&mut self, record: &Record);

    /// Shows other programs what is known now.
    fn show(&mut self, hold: &Hold);

    /// The present time, in nanoseconds of CLOCK_MONOTONIC.
    fn now_ns(&self) -> u64;

    /// The time of day, in seconds since 1970-01-01 UTC.
    fn now_s(&self) -> u64;

    /// Somebody asked for the end.
    fn is_over(&self) -> bool;
}

/// Holds the partitions until the source is over. Errors: the source fails, in words; partitions
/// stay as they are.
pub fn serve(shield: &Shield, source: &mut dyn Source, pace: Pace) -> Result<Hold, String> {
    let mut hold = Hold::new(pace);
    let mut followed = Followed::default();
    let mut users = Users::default();
    while !source.is_over() {
        // One that is past has had its look.
        let again_ns = source.advise_again_ns().filter(|again_ns| *again_ns > source.now_ns());
        let again_ns = again_ns.unwrap_or(u64::MAX);
        let most = hold.due_ns().min(again_ns).saturating_sub(source.now_ns());
        let next_end_s = users.next_end_s(shield).unwrap_or(u64::MAX);
        let to_end = Duration::from_secs(next_end_s.saturating_sub(source.now_s()));
        let noticed = source.wait(Duration::from_nanos(most).min(to_end))?;
        let now_ns = source.now_ns();
        for notice in noticed.iter().filter(|notice| !matches!(notice, Notice::TakenOut(_))) {
            hold.notice(now_ns, notice);
        }
        followed.note(&noticed);
        take_policies(shield, source, &mut hold, &mut followed);
        // What is broken is repaired before a client gets more.
        let work = source.work();
        let settle_ns = if work.is_some() { pace.settle_ns } else { 0 };
        let due_ns = hold.due_ns().min(again_ns);
        let is_due = due_ns <= source.now_ns().saturating_add(settle_ns);
        // Though it cannot look now, or repairs pause: the state is all that this needs.
        let has_ended = noticed.iter().any(|notice| matches!(notice, Notice::Ended(_)));
        if is_due || has_ended || next_end_s <= source.now_s() {
            let ended = users.end_over(shield, source.now_s());
            tell(source, &mut hold, ended);
        }
        if is_due {
            look(shield, source, &mut hold, &mut followed)?;
            followed.search_if_due(source.now_ns(), pace);
            take_policies(shield, source, &mut hold, &mut followed);
            source.looked(&hold);
        }
        if let Some((client, work)) = work {
            let done = users.carry_out(shield, client, work);
            tell(source, &mut hold, done.told);
            for what in done.of_files {
                hold.refused(source.now_ns(), what);
            }
            if let Some(reply) = done.reply {
                source.reply(client, reply);
            }
        }
        hold.fresh().iter().for_each(|record| source.tell(record));
        source.show(&hold);
    }
    Ok(hold)
}

fn tell(source: &dyn Source, hold: &mut Hold, told: Vec<Told>) {
    for Told { partition, what } in told {
        hold.granted(source.now_ns(), partition, what);
    }
}

/// What is followed, and the tasks that the next look may have to name.
#[derive(Default)]
struct Followed {
    /// The change in force when files and groups were chosen. `None`: they are chosen again.
    transaction: Option<u64>,
    /// Groups with their partitions.
    groups: BTreeMap<PathBuf, String>,
    entered: BTreeSet<Entered>,
    /// `None` until the first look.
    tree: Option<Tree>,
    taken_out: BTreeSet<TakenOut>,
    /// Moves may have been missed.
    has_missed: bool,
    /// When all tasks are looked at though no move was missed.
    search_ns: u64,
    /// Which files could not be followed, in the words of the last record.
    refused: String,
}

impl Followed {
    /// Of some moves the kernel does not tell, and without tracefs of none.
    fn search_if_due(&mut self, now_ns: u64, pace: Pace) {
        if now_ns >= self.search_ns {
            self.has_missed = true;
            self.search_ns = now_ns.saturating_add(pace.sweep_ns);
        }
    }

    fn note(&mut self, noticed: &BTreeSet<Notice>) {
        for notice in noticed {
            match notice {
                Notice::Written(_) | Notice::Moved(_) | Notice::Ended(_) => {}
                Notice::Entered(entered) => drop(self.entered.insert(entered.clone())),
                Notice::TakenOut(out) => drop(self.taken_out.insert(out.clone())),
                Notice::Lost => (self.transaction, self.has_missed) = (None, true),
                // Lines and groups come and go with these, and with each new state. A driver may
                // make its lines when its link comes up.
                Notice::Gone(_) | Notice::Device(_) | Notice::Link | Notice::Resumed => {
                    self.transaction = None
                }
            }
        }
    }
}

/// Looks, and repairs if that is due. Errors: those of the source.
fn look(
    shield: &Shield,
    source: &mut dyn Source,
    hold: &mut Hold,
    followed: &mut Followed,
) -> Result<(), String> {
    // Before the look: what is written from now on is noticed.
    if let Err(error) = follow(shield, source, hold, followed) {
        hold.blind(source.now_ns(), format_args!("cannot look: {error}"));
        return Ok(());
    }
    let status = match shield.status() {
        Ok(status) => status,
        Err(error) => {
            hold.blind(source.now_ns(), format_args!("cannot look: {error}"));
            return Ok(());
        }
    };
    // A change under way may not have recorded yet whom it moved.
    if !status.changing {
        name_entered(shield, source.now_ns(), hold, followed);
    }
    if hold.looked(source.now_ns(), &status) == Order::Rest {
        advise(source, hold, &status);
        return Ok(());
    }
    let caller = Caller::now(0, "asmpd", "asmpd");
    let changed = shield.change(&Request::Repair { name: None }, &caller);
    let noticed = source.wait(Duration::ZERO)?;
    followed.note(&noticed);
    // The repair had an effect, beside its record, or others were at work.
    let state_dir = shield.state_dir();
    let is_record =
        |notice: &Notice| matches!(notice, Notice::Written(path) if path.starts_with(&state_dir));
    if !noticed.iter().all(is_record) {
        hold.changed();
    }
    match changed {
        Err(error) => hold.unrepaired(source.now_ns(), error),
        Ok(outcome) => match outcome.status {
            Some(status) => {
                hold.repaired(source.now_ns(), &status, outcome.changes);
                advise(source, hold, &status);
            }
            None => {
                let why = outcome.unread.unwrap_or_default();
                hold.unrepaired(source.now_ns(), format_args!("cannot read it back: {why}"));
            }
        },
    }
    Ok(())
}

/// From tasks that were taken out of users' partitions.
fn take_policies(shield: &Shield, source: &dyn Source, hold: &mut Hold, followed: &mut Followed) {
    let Some(tree) = &followed.tree else { return };
    let (kernel, moved) = (shield.kernel(), std::mem::take(&mut followed.taken_out));
    let mut done = outside::after(kernel, tree, &moved);
    if std::mem::take(&mut followed.has_missed) {
        let all = outside::everywhere(kernel, tree);
        done.told.extend(all.told);
        done.is_cut |= all.is_cut;
    }
    // The rest comes after what else is to be done.
    followed.has_missed = done.is_cut;
    for what in done.told {
        hold.granted(source.now_ns(), String::new(), what);
    }
}

/// Comes after a repair, which is urgent.
fn advise(source: &mut dyn Source, hold: &mut Hold, status: &Status) {
    // While a change is under way, the partitions are not what they will be.
    if let Some(what) = (!status.changing).then(|| source.advise(status)).flatten() {
        hold.told(source.now_ns(), what);
    }
}

/// Names tasks that came into a partition, are there yet, and are no members of it.
fn name_entered(shield: &Shield, now_ns: u64, hold: &mut Hold, followed: &mut Followed) {
    if followed.entered.is_empty() {
        return;
    }
    // What cannot be read now is read at the next look.
    let Ok(state) = shield.state() else { return };
    let members = state.partitions.iter().flat_map(|partition| &partition.tasks);
    let members: BTreeSet<i32> =
        members.flat_map(|member| [member.task.tid, member.process_id().tid]).collect();
    for Entered { group, tid, by } in std::mem::take(&mut followed.entered) {
        let (Some(partition), Ok(task)) =
            (followed.groups.get(&group), task::read(shield.kernel(), tid))
        else {
            continue;
        };
        let is_member = [tid, task.process].iter().any(|one| members.contains(one));
        if task.group.starts_with(&group) && !is_member {
            hold.entered(now_ns, partition.clone(), (tid, task.command), &by);
        }
    }
}

fn follow(
    shield: &Shield,
    source: &mut dyn Source,
    hold: &mut Hold,
    followed: &mut Followed,
) -> Result<(), ChangeError> {
    let state = shield.state()?;
    let members = state.partitions.iter().flat_map(|partition| &partition.tasks);
    source.follow_tasks(members.map(|member| member.task.tid).collect());
    // They made theirs under an asmpd before this one, perhaps.
    let granted = || state.partitions.iter().filter_map(|one| Some((one, one.granted.as_ref()?)));
    source.note_users(granted().map(|(_, grant)| grant.uid).collect());
    // Their partitions end with them.
    source.follow_processes(&granted().filter_map(|(partition, _)| partition.owner).collect());
    let transaction = state.transaction;
    if followed.transaction == Some(transaction) {
        return Ok(());
    }
    let watched = shield.watched()?;
    source.follow_groups(watched.groups.keys().cloned().collect());
    followed.groups = watched.groups;
    followed.tree = Some(Tree { mount: watched.mount, partitions: watched.partitions });
    let refused = source.follow(&watched.files);
    if refused.is_empty() {
        followed.refused.clear();
    }
    if let [(path, error), ..] = refused.as_slice() {
        let (count, path) = (refused.len(), path.display());
        let why = format!("files that cannot be followed: {count}, such as {path}: {error}");
        if followed.refused != why {
            hold.half_blind(source.now_ns(), &why);
            followed.refused = why;
        }
    }
    followed.transaction = Some(transaction);
    Ok(())
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
