// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst latencies of a probe that runs: `asmp measure latency` writes them each second.
//!
//! Problem:  nothing says which measurement runs in a partition, nor where it writes.
//! Approach: the process that has a thread in the partition has its `hist.hlog` open. Only files of
//!           root's processes and of this user's are read: another user's may be one that never
//!           answers.

use asmp_host::limited::open_regular;
use asmp_measure::hlog;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Of the log's end: a second has some hundred bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The worst latencies of the last seconds, in nanoseconds, the oldest first: at most `most`.
/// Empty: the process measures none, or is another user's.
pub fn latencies(process: i32, most: usize) -> Vec<u64> {
    below(&Path::new("/proc").join(process.to_string()), most)
}

fn below(process: &Path, most: usize) -> Vec<u64> {
    let me = rustix::process::geteuid().as_raw();
    if !fs::metadata(process).is_ok_and(|found| [0, me].contains(&found.uid())) {
        return Vec::new();
    }
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let is_log = |path: &Path| path.file_name().is_some_and(|name| name == "hist.hlog");
    let mut logs = entries.filter(|fd| fs::read_link(fd.path()).is_ok_and(|path| is_log(&path)));
    logs.next().and_then(|fd| last_seconds(&fd.path(), most)).unwrap_or_default()
}

fn last_seconds(log: &Path, most: usize) -> Option<Vec<u64>> {
    let log = open_regular(log).ok()?;
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
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::time::UNIX_EPOCH;

    #[test]
    fn the_last_seconds_of_a_log_that_a_process_has_open_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hist.hlog");
        let process = std::process::id().cast_signed();
        assert!(latencies(process, 3).is_empty(), "none is open");
        let mut log = hlog::Writer::new(File::create(&path).unwrap(), UNIX_EPOCH).unwrap();
        for second in 0..10_u64 {
            let mut one = Latencies::default();
            one.record(1000 * second + 7);
            one.record(5);
            log.second(second, None, &one).unwrap();
            log.second(second, Some("irq"), &one).unwrap();
        }
        let open = log.finish().unwrap();
        assert_eq!(latencies(process, 3).len(), 3);
        let fd = format!("/proc/self/fd/{}", open.as_raw_fd());
        // Three digits of each are kept.
        let of = |most| last_seconds(Path::new(&fd), most).unwrap();
        let us = |ns: u64| ns / 1000;
        assert_eq!(of(3).into_iter().map(us).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(of(100).len(), 10);
        drop(open);
        assert!(latencies(process, 3).is_empty(), "it is closed");
    }
}
