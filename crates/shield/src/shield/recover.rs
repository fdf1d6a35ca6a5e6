// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a killed change has left: its journal, read, judged and undone.

use super::{ChangeError, Shield};
use crate::apply::{Undo, undo};
use crate::kworkers;
use crate::plan::Base;
use crate::state::{self, JOURNAL, OLDEST_SCHEMA, STATE, STATE_SCHEMA, StateError};
use crate::text::cut;
use asmp_host::Facts;
use asmp_host::store::whole_lines;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An interrupted transaction that was undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovered {
    pub steps: usize,
    /// What the kernel refused to undo, given up on demand.
    pub abandoned: Vec<String>,
}

/// First line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub schema: u32,
    pub transaction: u64,
}

/// A journal that is there: its header, where that was written whole, and the ways back.
type Found = (Option<Header>, Vec<Undo>);

impl std::fmt::Display for Recovered {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        let plural = if self.steps == 1 { "" } else { "s" };
        match self.abandoned.as_slice() {
            [] => {
                write!(out, "a change that was cut short was undone ({} step{plural})", self.steps)
            }
            given_up => write!(out, "this was given up: {}", given_up.join("; ")),
        }
    }
}

/// Characters of a line that is none of ours.
const MOST_SHOWN: usize = 80;

/// Does the line of a `T` begin so, or is this all of it? Errors: why not.
fn is_cut<T: DeserializeOwned>(begin: &[u8]) -> Result<(), serde_json::Error> {
    match serde_json::from_slice::<T>(begin) {
        Err(error) if !error.is_eof() => Err(error),
        _ => Ok(()),
    }
}

impl Shield {
    /// Has a crash left a change half done? (A change that a signal ended has undone itself.)
    pub fn is_interrupted(&self) -> Result<bool, ChangeError> {
        match self.journal()? {
            Some((header, _)) => {
                let transaction = self.state()?.transaction;
                Ok(header.is_some_and(|header| header.transaction > transaction))
            }
            None => Ok(false),
        }
    }

    /// The journal that is there, with the lines that are whole. A journal without a header was cut
    /// before its first action. Errors: `Unreadable` where asmp has not written it so; a crash cuts
    /// its last line, and adds nothing.
    fn journal(&self) -> Result<Option<Found>, ChangeError> {
        let bytes = state::read(&self.store, JOURNAL).map_err(|error| match error {
            // What `status` tells apart: without root it may not be read.
            StateError::Host(cause) => ChangeError::Host(cause),
            error => error.into(),
        })?;
        let Some(bytes) = bytes else { return Ok(None) };
        let path = self.store.path(JOURNAL);
        let bad = |line: &[u8], error: serde_json::Error| {
            // Of a line that may be endless.
            let text = String::from_utf8_lossy(&line[..line.len().min(4 * MOST_SHOWN)]);
            let reason = format!("line {:?} is none of ours ({error})", cut(&text, MOST_SHOWN));
            StateError::Unreadable { path: path.clone(), reason }
        };
        let (mut lines, last) = whole_lines(&bytes);
        let Some(first) = lines.next() else {
            is_cut::<Header>(last).map_err(|error| bad(last, error))?;
            return Ok(Some((None, Vec::new())));
        };
        let header: Header = serde_json::from_slice(first).map_err(|error| bad(first, error))?;
        if !(OLDEST_SCHEMA..=STATE_SCHEMA).contains(&header.schema) {
            let reason = format!(
                "schema {}, this version reads {OLDEST_SCHEMA} to {STATE_SCHEMA}",
                header.schema
            );
            return Err(StateError::Unreadable { path, reason }.into());
        }
        let back = lines
            .map(|line| serde_json::from_slice(line).map_err(|error| bad(line, error)))
            .collect::<Result<Vec<Undo>, _>>()?;
        is_cut::<Undo>(last).map_err(|error| bad(last, error))?;
        Ok(Some((Some(header), back)))
    }

    /// Renames a state and a journal that cannot be read. Without its state a journal cannot be
    /// judged, so it goes as well. Returns what was given up.
    pub(super) fn set_aside_unreadable(&self) -> Result<Vec<String>, ChangeError> {
        let mut given_up = Vec::new();
        let state = self.state().map(|_| ());
        let journal = if state.is_err() { Err(None) } else { self.journal().map_err(Some) };
        let reasons = [(STATE, state.map_err(Some)), (JOURNAL, journal.map(|_| ()))];
        for (name, read) in reasons {
            let reason = match read {
                Ok(()) => continue,
                Err(Some(ChangeError::State(
                    StateError::Unreadable { reason, .. } | StateError::Foreign { reason, .. },
                ))) => reason,
                Err(Some(error)) => return Err(error),
                Err(None) => "the state it belongs to cannot be read".to_owned(),
            };
            let kept = format!("{name}.unreadable");
            if !self.store.rename(name, &kept)? {
                continue;
            }
            let path = self.store.path(name);
            given_up.push(format!("{}: {reason} (kept as {kept})", path.display()));
        }
        Ok(given_up)
    }

    /// Undoes what a crash left half done. Call with the lock held. Errors: `NotUndone` where the
    /// kernel refuses a step back; then the journal stays, and the next change tries again
    /// before it begins. With `abandon` the refused steps are given up instead. `StarvedUndo`
    /// where the kernel might not end it.
    pub(super) fn recover(
        &self,
        facts: &Facts,
        base: &Base,
        abandon: bool,
    ) -> Result<Option<Recovered>, ChangeError> {
        // A state that was written but never took its place.
        self.store.remove(&format!("{STATE}.new"))?;
        let Some((header, back)) = self.journal()? else {
            // One that was to be removed after its journal.
            if self.state()?.owes_nothing() {
                self.store.remove(STATE)?;
            }
            return Ok(None);
        };
        let state = self.state()?;
        let committed = header.is_none_or(|header| header.transaction <= state.transaction);
        if committed {
            self.store.remove(JOURNAL)?;
            if state.owes_nothing() {
                self.store.remove(STATE)?;
            }
            return Ok(None);
        }
        let patience = self.patience.busy;
        kworkers::wait_for_undo(self.kernel(), facts, &back, &state.partitions, patience)?;
        let left = undo(&self.edge(base), &back);
        if !left.is_empty() && !abandon {
            let cause = "a change was interrupted".to_owned();
            return Err(ChangeError::NotUndone { cause, left });
        }
        self.store.remove(JOURNAL)?;
        Ok(Some(Recovered { steps: back.len(), abandoned: left }))
    }
}
