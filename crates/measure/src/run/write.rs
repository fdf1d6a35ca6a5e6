// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes `run.json`, also where the disk is full by then: room for it is kept from the beginning.

use super::{Provenance, RUN_FILES};
use asmp_host::store::Store;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

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

/// The directory of a run that goes on. Dropping it removes what the run has made: nothing was
/// measured.
pub(crate) struct Begun<'a>(Option<&'a Path>);

impl Begun<'_> {
    /// The run has ended, and is kept.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(discard);
    }
}

/// Makes the directory of a run that begins, with its `run.json`. It has its name once that file
/// is in it, so that a kill leaves a run, or a hidden directory that is read as none. Errors:
/// [`io::ErrorKind::AlreadyExists`] if the name is taken, for nothing is measured twice into one.
pub(crate) fn begin<'a>(dir: &'a Path, provenance: &Provenance) -> io::Result<Begun<'a>> {
    if std::fs::symlink_metadata(dir).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let text = text_of(provenance)?;
    let fresh = hidden(dir);
    std::fs::create_dir(&fresh)?;
    let written = Store::of_user(&fresh).replace(PROVENANCE, text.as_bytes()).map_err(cause_of);
    let made = written.and_then(|()| std::fs::rename(&fresh, dir));
    if made.is_err() {
        discard(&fresh);
    }
    made.map(|()| Begun(Some(dir)))
}

/// `DIR/NAME` before it has its name: `DIR/.NAME.new`.
fn hidden(dir: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(dir.file_name().unwrap_or_default());
    name.push(".new");
    dir.with_file_name(name)
}

/// Removes a run. Anything else in the directory stays, and the directory with it.
fn discard(dir: &Path) {
    // What cannot be removed is in no one's way.
    release(dir);
    RUN_FILES.iter().for_each(|name| _ = std::fs::remove_file(dir.join(name)));
    let _ = std::fs::remove_dir(dir);
}

/// Writes `run.json` whole or not at all, on a full disk in the room that was kept for it.
pub fn write_provenance(dir: &Path, provenance: &Provenance) -> io::Result<()> {
    write_to(&Store::of_user(dir), provenance)
}

fn write_to(store: &Store, provenance: &Provenance) -> io::Result<()> {
    let text = text_of(provenance)?;
    let written = store.replace(PROVENANCE, text.as_bytes());
    let _ = store.release(PROVENANCE);
    written.map_err(cause_of)
}

fn text_of(provenance: &Provenance) -> io::Result<String> {
    let mut text = serde_json::to_string_pretty(provenance).map_err(io::Error::other)?;
    text.push('\n');
    Ok(text)
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
    use crate::hlog::Recorder;
    use crate::run::tests::provenance;
    use crate::run::{Run, UNFINISHED};
    use crate::sample::{Sample, Writer};
    use std::fs::File;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_killed_run_is_read_with_the_samples_that_were_written() {
        const MS: u64 = 1_000_000;
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("idle-normal");
        let dir = dir.as_path();
        let partial = Some(UNFINISHED.to_owned());
        let begun = begin(dir, &Provenance { partial: partial.clone(), ..provenance() }).unwrap();
        assert!(reserve(dir).unwrap());
        assert!(dir.join("run.json.spare").exists(), "there is room for the last words");
        // Its second second is only in the killed program's memory.
        let sample = |ms| Sample { due_ns: ms * MS, value_ns: 7, ..Sample::default() };
        let log = File::create(dir.join("hist.hlog")).unwrap();
        let mut log = Recorder::new(log, UNIX_EPOCH, Some(MS)).unwrap();
        (0..1500).for_each(|ms| log.sample(&sample(ms)).unwrap());
        let read = || Run::read(dir).unwrap();
        let of = |run: &Run| (run.provenance.samples, run.latencies.samples());
        assert_eq!((of(&read()), read().provenance.partial), ((1000, 1000), partial));
        // Samples are written more often, and the last one may be cut.
        let path = dir.join("samples.bin");
        let mut samples = Writer::create(&path).unwrap();
        assert_eq!(of(&read()), (0, 0));
        (0..1300).for_each(|ms| samples.push(sample(ms)).unwrap());
        samples.flush();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 3).unwrap();
        assert_eq!(of(&read()), (1299, 1299));
        write_provenance(dir, &Provenance { samples: 1000, ..provenance() }).unwrap();
        assert_eq!(of(&read()), (1000, 1000));
        assert!(!dir.join("run.json.spare").exists());
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 1);
        let twice = begin(dir, &provenance()).err().unwrap();
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists);
        assert!(Run::read(dir).is_ok());
        drop(begun);
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_left_of_a_run_that_had_not_begun_is_read_as_none_and_a_users_file_stays() {
        let above = tempfile::tempdir().unwrap();
        let run = above.path().join("idle-normal");
        begin(&run, &provenance()).unwrap().keep();
        drop(Recorder::new(File::create(run.join("hist.hlog")).unwrap(), UNIX_EPOCH, None));
        write_provenance(&run, &Provenance { samples: 0, ..provenance() }).unwrap();
        // As a kill leaves them before the rename.
        for names in [&[][..], &["run.json.new"], &["run.json"]] {
            let left = hidden(&run);
            std::fs::create_dir_all(&left).unwrap();
            names.iter().for_each(|name| std::fs::write(left.join(name), "{").unwrap());
            let found = Run::read_all(above.path()).unwrap();
            assert_eq!((found.runs.len(), found.refused.len()), (1, 0), "{names:?}");
        }
        std::fs::write(run.join("notes.txt"), "mine").unwrap();
        drop(Begun(Some(&run)));
        let names: Vec<_> = std::fs::read_dir(&run).unwrap().flatten().collect();
        assert!(names.len() == 1 && run.join("notes.txt").exists(), "{names:?}");
    }

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
