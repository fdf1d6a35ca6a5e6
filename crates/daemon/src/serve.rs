// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for notices, looks, and asks the shield for repairs.

use crate::hold::{Hold, Order, Pace, Record};
use asmp_host::watch::Notice;
use asmp_shield::{Caller, ChangeError, Request, Shield};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Where notices come from: [`asmp_host::watch::Watch`], or a test.
pub trait Source {
    /// Follows these files and no others; what cannot be followed, with the reason.
    fn follow(&mut self, files: &BTreeSet<PathBuf>) -> Vec<(PathBuf, io::Error)>;

    /// Follows these tasks and no others.
    fn follow_tasks(&mut self, tasks: BTreeSet<i32>);

    /// Waits for notices, at most so long. Errors: in words.
    fn wait(&mut self, most: Duration) -> Result<BTreeSet<Notice>, String>;

    /// A look has ended, and what it asked for.
    fn looked(&mut self, hold: &Hold);

    /// The present time, in nanoseconds of CLOCK_MONOTONIC.
    fn now_ns(&self) -> u64;

    /// Somebody asked for the end.
    fn is_over(&self) -> bool;
}

/// Holds the partitions until the source is over. `tell` gets each record once. Errors: the source
/// fails, in words; partitions stay as they are.
pub fn serve(
    shield: &Shield,
    source: &mut dyn Source,
    pace: Pace,
    tell: &mut dyn FnMut(&Record),
) -> Result<Hold, String> {
    let mut hold = Hold::new(pace);
    let mut followed = None;
    while !source.is_over() {
        let most = hold.due_ns().saturating_sub(source.now_ns());
        let noticed = source.wait(Duration::from_nanos(most))?;
        let now_ns = source.now_ns();
        for notice in &noticed {
            hold.notice(now_ns, notice);
        }
        if noticed.iter().any(brings_files) {
            followed = None;
        }
        if hold.due_ns() <= source.now_ns() {
            look(shield, source, &mut hold, &mut followed)?;
            source.looked(&hold);
        }
        hold.fresh().iter().for_each(&mut *tell);
    }
    Ok(hold)
}

/// Lines and groups come and go with these, and with each new state. A driver may make its lines
/// when its link comes up.
fn brings_files(notice: &Notice) -> bool {
    !matches!(notice, Notice::Written(_) | Notice::Moved(_))
}

/// Looks, and repairs if that is due. `followed`: the change in force when the files were chosen.
/// Errors: those of the source.
fn look(
    shield: &Shield,
    source: &mut dyn Source,
    hold: &mut Hold,
    followed: &mut Option<u64>,
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
    if hold.looked(source.now_ns(), &status) == Order::Rest {
        return Ok(());
    }
    let caller = Caller::now(0, "asmpd", "asmpd");
    let changed = shield.change(&Request::Repair { name: None }, &caller);
    let noticed = source.wait(Duration::ZERO)?;
    if noticed.iter().any(brings_files) {
        *followed = None;
    }
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
            Some(status) => hold.repaired(source.now_ns(), &status),
            None => {
                let why = outcome.unread.unwrap_or_default();
                hold.unrepaired(source.now_ns(), format_args!("cannot read it back: {why}"));
            }
        },
    }
    Ok(())
}

fn follow(
    shield: &Shield,
    source: &mut dyn Source,
    hold: &mut Hold,
    followed: &mut Option<u64>,
) -> Result<(), ChangeError> {
    let state = shield.state()?;
    let members = state.partitions.iter().flat_map(|partition| &partition.tasks);
    source.follow_tasks(members.map(|member| member.task.tid).collect());
    let transaction = state.transaction;
    if *followed == Some(transaction) {
        return Ok(());
    }
    let refused = source.follow(&shield.watched()?);
    if let [(path, error), ..] = refused.as_slice() {
        let (count, path) = (refused.len(), path.display());
        let why = format_args!("files that cannot be followed: {count}, such as {path}: {error}");
        hold.half_blind(source.now_ns(), why);
    }
    *followed = Some(transaction);
    Ok(())
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
