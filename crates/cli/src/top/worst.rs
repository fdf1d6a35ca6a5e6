// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst latencies of a probe that runs: `asmp measure latency` writes them each second.
//!
//! Problem:  nothing says which measurement runs in a partition, nor where it writes. A file can
//!           lie where nothing answers: on a file system of another user's, or of a dead server.
//! Approach: the process that has a thread in the partition has its `hist.hlog` open. Only files of
//!           root's and of this user's are read, on a thread that is waited for a moment only. Of
//!           several, the one that was written last counts.

use asmp_host::limited::open_regular;
use asmp_measure::hlog;
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, SystemTime};

/// Of the log's end: a second has some hundred bytes.
const MOST_BYTES: u64 = 1 << 20;
/// To read takes less than a millisecond where the file system answers.
const PATIENCE: Duration = Duration::from_millis(200);
/// A thread reads. While one waits for a file that does not answer, there is no second.
static IS_READING: AtomicBool = AtomicBool::new(false);

/// The worst latencies of the last seconds that one of these processes measures, in nanoseconds,
/// the oldest first: at most `most`. Empty: they measure none, or are another user's.
pub fn latencies(processes: BTreeSet<i32>, most: usize) -> Vec<u64> {
    latencies_within(PATIENCE, processes, most)
}

fn latencies_within(patience: Duration, processes: BTreeSet<i32>, most: usize) -> Vec<u64> {
    within(patience, move || {
        let me = rustix::process::geteuid().as_raw();
        let below = |process: i32| Path::new("/proc").join(process.to_string()).join("fd");
        let logs = processes.into_iter().flat_map(|process| logs(&below(process), me));
        let last = logs.max_by_key(|(written, _)| *written);
        last.and_then(|(_, log)| last_seconds(&log, most)).unwrap_or_default()
    })
}

/// What `read` gives, or nothing if it takes longer, or an earlier one still does.
fn within(most: Duration, read: impl FnOnce() -> Vec<u64> + Send + 'static) -> Vec<u64> {
    if IS_READING.swap(true, Relaxed) {
        return Vec::new();
    }
    let (sender, receiver) = channel();
    let reads = move || {
        let came = read();
        // Before who waits goes on, and may ask again.
        IS_READING.store(false, Relaxed);
        let _ = sender.send(came);
    };
    if thread::Builder::new().name("asmp-logs".to_owned()).spawn(reads).is_err() {
        IS_READING.store(false, Relaxed);
    }
    receiver.recv_timeout(most).unwrap_or_default()
}

/// The logs of these users among open files, and when each was written.
fn logs(fds: &Path, me: u32) -> impl Iterator<Item = (SystemTime, File)> + use<> {
    let entries = fs::read_dir(fds).into_iter().flatten().flatten();
    entries.filter_map(move |fd| {
        if fs::read_link(fd.path()).ok()?.file_name()? != "hist.hlog" {
            return None;
        }
        // To open it for reading would tell its owner: look whose it is first.
        let seen = File::from(open(fd.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?);
        let found = seen.metadata().ok()?;
        if ![0, me].contains(&found.uid()) {
            return None;
        }
        let itself = format!("/proc/self/fd/{}", seen.as_raw_fd());
        Some((found.modified().ok()?, open_regular(Path::new(&itself)).ok()?))
    })
}

fn last_seconds(log: &File, most: usize) -> Option<Vec<u64>> {
    let length = log.metadata().ok()?.len();
    let mut bytes = vec![0; MOST_BYTES.min(length) as usize];
    let from = length - bytes.len() as u64;
    log.read_exact_at(&mut bytes, from).ok()?;
    let mut seconds = hlog::worst_by_second(&String::from_utf8_lossy(&bytes));
    seconds.drain(..seconds.len().saturating_sub(most));
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_measure::histogram::Latencies;
    use std::os::fd::OwnedFd;
    use std::sync::Mutex;
    use std::time::{Instant, UNIX_EPOCH};

    /// One at a time reads.
    static TURN: Mutex<()> = Mutex::new(());

    fn write(path: &Path, seconds: u64) -> OwnedFd {
        let mut log = hlog::Writer::new(File::create(path).unwrap(), UNIX_EPOCH).unwrap();
        for second in 0..seconds {
            let mut one = Latencies::default();
            one.record(1000 * second + 7);
            one.record(5);
            log.second(second, None, &one).unwrap();
            log.second(second, Some("irq"), &one).unwrap();
        }
        log.finish().unwrap().into()
    }

    #[test]
    fn the_last_seconds_of_the_log_that_was_written_last_are_read() {
        let _turn = TURN.lock();
        let dir = tempfile::tempdir().unwrap();
        let process = BTreeSet::from([std::process::id().cast_signed()]);
        // A busy machine may take longer than who looks at `asmp top` likes to wait.
        let read = |most| latencies_within(Duration::from_secs(60), process.clone(), most);
        let _other = write(&dir.path().join("another.hlog"), 2);
        assert!(read(3).is_empty(), "none is open");
        let path = |name: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            dir.path().join(name).join("hist.hlog")
        };
        let open = write(&path("a"), 10);
        // Three digits of each are kept.
        let us = |ns: &u64| ns / 1000;
        assert_eq!(read(3).iter().map(us).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(read(100).len(), 10);
        let old = File::from(write(&path("b"), 4));
        old.set_modified(UNIX_EPOCH).unwrap();
        assert_eq!(read(100).len(), 10, "the other is older");
        old.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
        assert_eq!(read(100).len(), 4);
        drop((open, old));
        assert!(read(3).is_empty(), "both are closed");
    }

    #[test]
    fn a_log_of_another_user_is_not_opened() {
        let _turn = TURN.lock();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hist.hlog");
        let open = write(&path, 1);
        let fds = Path::new("/proc/self/fd");
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(logs(fds, me).filter(|(_, log)| is_same(log, &path)).count(), 1);
        if me != 0 {
            println!("skipped: a log of another user: needs root");
            return;
        }
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert_eq!(logs(fds, me).filter(|(_, log)| is_same(log, &path)).count(), 0);
        assert_eq!(logs(fds, 65534).filter(|(_, log)| is_same(log, &path)).count(), 1);
        drop(open);
    }

    fn is_same(log: &File, path: &Path) -> bool {
        log.metadata().unwrap().ino() == fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn one_that_does_not_answer_is_waited_for_once() {
        let _turn = TURN.lock();
        let (answer, waits) = channel::<()>();
        let begin = Instant::now();
        let stuck = move || {
            let _ = waits.recv();
            vec![1]
        };
        assert!(within(Duration::from_millis(20), stuck).is_empty());
        for _ in 0..100 {
            assert!(within(Duration::from_secs(60), || vec![2]).is_empty());
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it has waited for each");
        drop(answer);
        while IS_READING.load(Relaxed) {
            thread::yield_now();
        }
        assert_eq!(within(Duration::from_secs(60), || vec![3]), [3]);
    }
}
