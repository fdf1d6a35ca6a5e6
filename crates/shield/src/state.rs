// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state file: what is in force, in /run/asmp. Whatever reads or writes it goes through here,
//! so there is one layout. Like what it describes, it does not survive a reboot.
//!
//! Layouts of the last released version are read too: an upgrade of the program finds its
//! partitions again.

use crate::partition::State;
use asmp_host::Error;
use asmp_host::store::Store;
use std::path::PathBuf;

/// Directory of the state, the journal and the lock.
pub const RUN_DIR: &str = "/run/asmp";

pub(crate) const STATE: &str = "state.json";

/// Version of the layout that is written.
pub const STATE_SCHEMA: u32 = 1;

/// The oldest version that is read.
pub const OLDEST_SCHEMA: u32 = 1;

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    Host(#[from] Error),

    #[error(
        "{path}: {reason}; use the version of asmp that wrote it, or reboot",
        path = path.display()
    )]
    Unreadable { path: PathBuf, reason: String },
}

/// The committed state; empty where there is none.
pub(crate) fn load(store: &Store) -> Result<State, StateError> {
    let Some(bytes) = store.read(STATE)? else { return Ok(State::default()) };
    parse(&bytes).map_err(|reason| StateError::Unreadable { path: store.path(STATE), reason })
}

fn parse(bytes: &[u8]) -> Result<State, String> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| format!("not JSON ({error})"))?;
    let schema = value.get("schema").and_then(serde_json::Value::as_u64);
    let schema = schema.ok_or("no schema number")?;
    if !(u64::from(OLDEST_SCHEMA)..=u64::from(STATE_SCHEMA)).contains(&schema) {
        return Err(format!("schema {schema}, this version reads {OLDEST_SCHEMA} to {STATE_SCHEMA}"));
    }
    let state: State = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok(State { schema: STATE_SCHEMA, ..state })
}

/// Replaces the state whole: a crash leaves the old one or the new one.
pub(crate) fn save(store: &Store, state: &State) -> Result<(), StateError> {
    let bytes = serde_json::to_vec(state).map_err(|error| StateError::Unreadable {
        path: store.path(STATE),
        reason: format!("cannot be written as JSON ({error}); it stays as it was"),
    })?;
    Ok(store.replace(STATE, &bytes)?)
}
