// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state file: what is in force, in /run/asmp. Whatever reads or writes it goes through here,
//! so there is one layout. Like what it describes, it does not survive a reboot.
//!
//! Layouts of the last released version are read too: an upgrade of the program finds its
//! partitions again.

use crate::partition::State;
use asmp_host::Error;
use asmp_host::store::{Store, whole_lines};
use std::io::ErrorKind;
use std::path::PathBuf;

/// Directory of the state, the journal and the lock.
pub const RUN_DIR: &str = "/run/asmp";

pub(crate) const STATE: &str = "state.json";
pub(crate) const JOURNAL: &str = "journal";

/// Version of the layout that is written.
pub const STATE_SCHEMA: u32 = 2;

/// The oldest version that is read.
pub const OLDEST_SCHEMA: u32 = 1;

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    Host(#[from] Error),

    #[error(
        "{path}: {reason}; use the version of asmp that wrote it, or `asmp restore --abandon`, \
         which sets it aside, ends all partitions and leaves other settings as they are",
        path = path.display()
    )]
    Unreadable { path: PathBuf, reason: String },

    /// Another user may have written it. The reason has the cure.
    #[error("{path}: {reason}", path = path.display())]
    Foreign { path: PathBuf, reason: String },
}

/// The bytes of a file of ours; `None` where there is none. Errors: `Unreadable` where another
/// program has put there what asmp never does.
pub(crate) fn read(store: &Store, name: &str) -> Result<Option<Vec<u8>>, StateError> {
    match store.read(name) {
        Err(Error::Io { path, cause, .. })
            if matches!(cause.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidData) =>
        {
            Err(StateError::Unreadable { path, reason: cause.to_string() })
        }
        Err(Error::Io { path, cause, .. }) if cause.kind() == ErrorKind::InvalidInput => {
            Err(StateError::Foreign { path, reason: cause.to_string() })
        }
        read => Ok(read?),
    }
}

/// The committed state; empty where there is none.
pub(crate) fn load(store: &Store) -> Result<State, StateError> {
    let Some(bytes) = read(store, STATE)? else { return Ok(State::default()) };
    parse(&bytes).map_err(|reason| StateError::Unreadable { path: store.path(STATE), reason })
}

fn parse(bytes: &[u8]) -> Result<State, String> {
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| format!("not JSON ({error})"))?;
    let schema = value.get("schema").and_then(serde_json::Value::as_u64);
    let schema = schema.ok_or("no schema number")?;
    if !(u64::from(OLDEST_SCHEMA)..=u64::from(STATE_SCHEMA)).contains(&schema) {
        return Err(format!(
            "schema {schema}, this version reads {OLDEST_SCHEMA} to {STATE_SCHEMA}"
        ));
    }
    let state: State = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok(State { schema: STATE_SCHEMA, ..state })
}

/// Replaces the state whole: a crash leaves the old one or the new one.
pub(crate) fn save(store: &Store, state: &State) -> Result<(), StateError> {
    // The lowest layout that holds it, so that an older version reads it where it can.
    let is_new = state.timerlat.is_some()
        || !state.masks.is_empty()
        || !state.policies_left.is_empty()
        || !state.lost.is_empty()
        || !state.lines.is_empty()
        || state.originals.values().any(|original| !original.offline.is_empty())
        || state.keeps_base
        || !state.returning.is_empty()
        || state.partitions.iter().any(|one| one.granted.is_some())
        || state.partitions.iter().flat_map(|one| &one.tasks).any(|task| {
            let of_threads = !task.apart.is_empty() || task.entered.is_some();
            task.policy.is_some() || task.process.is_some() || of_threads
        });
    let schema = if is_new { STATE_SCHEMA } else { OLDEST_SCHEMA };
    let state = &State { schema, ..state.clone() };
    Ok(store.replace(STATE, &to_bytes(store, state)?)?)
}

fn to_bytes(store: &Store, state: &State) -> Result<Vec<u8>, StateError> {
    serde_json::to_vec(state).map_err(|error| StateError::Unreadable {
        path: store.path(STATE),
        reason: format!("cannot be written as JSON ({error}); it stays as it was"),
    })
}

/// The least room that is kept for the state and for the journal.
const ROOM_BYTES: u64 = 64 << 10;

/// Keeps room for what follows `state`: the next state and the journal of its undoing, so that it
/// can be undone when /run is full. A way back has a line for each entry of the state, shorter than
/// four of those. It has a line too for each task and group that was born inside, which no state
/// lists: the least room holds about 600 of these, and more need room when they are moved.
/// Errors: ENOSPC.
pub(crate) fn reserve(store: &Store, state: &State) -> Result<(), StateError> {
    let length = to_bytes(store, state)?.len() as u64;
    store.reserve(STATE, ROOM_BYTES.max(2 * length), 0o644)?;
    Ok(store.reserve(JOURNAL, ROOM_BYTES.max(4 * length), 0o600)?)
}

/// Has a crash left a change half done, as far as the number of the journal tells?
pub(crate) fn is_interrupted(store: &Store) -> Result<bool, StateError> {
    let Some(bytes) = read(store, JOURNAL)? else { return Ok(false) };
    // A journal without a header was cut before its first action.
    let Some(first) = whole_lines(&bytes).0.next() else { return Ok(false) };
    let header: Option<serde_json::Value> = serde_json::from_slice(first).ok();
    let transaction = header.and_then(|header| header.get("transaction")?.as_u64());
    let committed = load(store)?.transaction;
    Ok(transaction.is_none_or(|transaction| transaction > committed))
}

/// After a change: room is kept as long as there is something to undo. Errors: ENOSPC; the next
/// change tries again.
pub(crate) fn settle(store: &Store) -> Result<(), StateError> {
    // One that cannot be read keeps its room.
    let Ok(state) = load(store) else { return Ok(()) };
    // What is no file is no journal of ours: another program made it, and the change was refused.
    if state.owes_nothing() && !store.path(JOURNAL).is_file() {
        store.release(STATE)?;
        return Ok(store.release(JOURNAL)?);
    }
    reserve(store, &state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// As the version before timerlat's settings wrote it, field for field.
    const SCHEMA_1: &str = r#"{"schema":1,"transaction":7,"partitions":[{"name":"motion",
        "cpus":"3","idle_cpus":"","smt":"idle","tick":"off","strict":false,"without":[],
        "irqs":[24],"irq_priority":null,"served":[{"task":{"tid":20,"start_ticks":1020},
        "command":"ktimers/3","by":{"timers":3},"before":{"policy":"fifo","priority":1},
        "priority":98}],"tasks":[{"task":{"tid":70,"start_ticks":4200},"command":"axis",
        "alone":false,"from":"/user.slice","real_time":[]}],"created_s":1,
        "created_by":"root: asmp create motion --cpus 3","owner":null}],"irq_home":null,
        "originals":{"/proc/irq/default_smp_affinity":{"shape":"cpu-mask","text":"f"}},
        "refused":{}}"#;

    #[test]
    fn a_state_of_the_last_schema_is_read_whole_and_written_in_the_present_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        store.replace(STATE, SCHEMA_1.as_bytes()).unwrap();
        let state = load(&store).unwrap();
        assert_eq!((state.schema, state.transaction), (STATE_SCHEMA, 7));
        assert_eq!(state.partitions[0].tasks[0].command, "axis");
        assert_eq!(state.partitions[0].served[0].priority, 98);
        assert_eq!(state.originals.len(), 1);
        assert_eq!(state.timerlat, None);
        save(&store, &state).unwrap();
        let text = String::from_utf8(store.read(STATE).unwrap().unwrap()).unwrap();
        assert!(text.contains("\"schema\":1,"), "an older version still reads it: {text}");
        assert!(!text.contains("timerlat"), "{text}");
        assert_eq!(load(&store).unwrap(), state);
    }

    /// An older version says of the schema what to do, and of a field only that it is unknown.
    #[test]
    fn a_state_with_a_field_of_the_present_schema_has_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        let irq_home = Some("0-2".parse().unwrap());
        let old = State { irq_home, ..State::default() };
        let lines = BTreeMap::from([(24, "PCI-MSI eth0".to_owned())]);
        let mut granted = parse(SCHEMA_1.as_bytes()).unwrap();
        let (cpus, policy) = ("3".parse().unwrap(), asmp_host::Schedule::Fifo { priority: 50 });
        granted.partitions[0].granted =
            Some(crate::Grant { uid: 1000, cpus, policy, partitions: 1, until_s: None });
        for (state, schema) in [
            (State { lines, ..old.clone() }, STATE_SCHEMA),
            (granted, STATE_SCHEMA),
            (old.clone(), OLDEST_SCHEMA),
        ] {
            save(&store, &state).unwrap();
            let text = String::from_utf8(store.read(STATE).unwrap().unwrap()).unwrap();
            assert!(text.contains(&format!("\"schema\":{schema},")), "{text}");
            assert_eq!(load(&store).unwrap(), state);
        }
    }

    #[test]
    fn a_state_of_a_later_schema_or_with_unknown_fields_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        let later = SCHEMA_1.replace("\"schema\":1", "\"schema\":3");
        let strange = SCHEMA_1.replace("\"refused\":{}", "\"refused\":{},\"colour\":1");
        for (text, says) in [(later, "schema 3"), (strange, "colour"), ("{}".into(), "no schema")] {
            store.replace(STATE, text.as_bytes()).unwrap();
            let error = load(&store).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(store.read(STATE).unwrap().unwrap(), text.as_bytes());
        }
        store.remove(STATE).unwrap();
        assert_eq!(load(&store).unwrap(), State::default());
    }
}
