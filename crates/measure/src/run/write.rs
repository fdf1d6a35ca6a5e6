// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes `run.json`, also where the disk is full by then: room for it is kept from the beginning.

use super::Provenance;
use asmp_host::store::Store;
use std::io;
use std::path::Path;

/// The file of a run's provenance.
const PROVENANCE: &str = "run.json";
/// Bytes that it takes with a hundred causes, and more.
pub(crate) const ROOM_BYTES: u64 = 256 << 10;

/// Keeps room for `run.json`: what a run measures, or what its load writes, may fill the disk.
/// `Ok(false)`: this file system keeps none (it has no fallocate(2)).
pub(crate) fn reserve(dir: &Path) -> io::Result<bool> {
    Store::of_user(dir).reserve(PROVENANCE, ROOM_BYTES, 0o644).map_err(cause_of)?;
    Ok(dir.join(format!("{PROVENANCE}.spare")).exists())
}

/// Gives that room up: the run has failed.
pub(crate) fn release(dir: &Path) {
    // What cannot be removed is in no one's way.
    let _ = Store::of_user(dir).release(PROVENANCE);
}

/// Writes `run.json` whole or not at all, on a full disk in the room that was kept for it.
pub fn write_provenance(dir: &Path, provenance: &Provenance) -> io::Result<()> {
    write_to(&Store::of_user(dir), provenance)
}

fn write_to(store: &Store, provenance: &Provenance) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(provenance).map_err(io::Error::other)?;
    text.push('\n');
    let written = store.replace(PROVENANCE, text.as_bytes());
    let _ = store.release(PROVENANCE);
    written.map_err(cause_of)
}

/// The caller names the directory.
fn cause_of(error: asmp_host::Error) -> io::Error {
    match error {
        asmp_host::Error::Io { cause, .. } => cause,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Outlier;
    use crate::run::tests::provenance;

    #[test]
    fn a_run_is_described_in_the_room_that_was_kept_where_the_disk_is_full_by_then() {
        let dir = tempfile::tempdir().unwrap();
        let worst = Outlier {
            index: u64::MAX,
            at_ns: Some(u64::MAX),
            value_ns: u64::MAX,
            handler_ns: Some(u64::MAX),
            cause: "x".repeat(250),
            records: vec!["x".repeat(70); 24],
        };
        let full = Provenance { worst: vec![worst; 100], ..provenance() };
        let store = Store::of_user(dir.path());
        assert!(reserve(dir.path()).unwrap());
        store.limit_room(Some(0));
        write_to(&store, &full).unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let text = std::fs::read_to_string(dir.path().join("run.json")).unwrap();
        assert!(text.len() as u64 <= ROOM_BYTES, "{} bytes", text.len());
        assert_eq!(serde_json::from_str::<Provenance>(&text).unwrap(), full);
        // Without such room it cannot be written, and what was there stays.
        store.limit_room(Some(0));
        let refused = write_to(&store, &provenance()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read_to_string(dir.path().join("run.json")).unwrap(), text);
        // A run that fails leaves none of it.
        assert!(reserve(dir.path()).unwrap());
        release(dir.path());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
