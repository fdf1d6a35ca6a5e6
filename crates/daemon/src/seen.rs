// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy as it was last read, for those whom many may ask.
//!
//! Problem:  any user may ask for a channel again and again, and to parse a long policy each time
//!           would take asmpd's CPU. But a change of the file must count at once.
//! Approach: the file is read again if the kernel shows any other times, size, owner or mode of it,
//!           of its directory, or of the files with names; and also if one of them was changed so
//!           lately that a second change could bear the same time.

use crate::policy::{Files, Policy};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// A file system's clock is no coarser.
const COARSEST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Seen {
    files: Files,
    say: fn(&str),
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    stamps: Vec<Option<Stamp>>,
    may_change_unseen: bool,
    policy: Policy,
    /// What is wrong with the file.
    why: Option<String>,
}

/// What changes with a file: device, inode, size, owner, mode, times of data and of all.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(u64, u64, u64, u32, u32, [i64; 4]);

impl Stamp {
    fn of(found: &Metadata) -> Self {
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Self(found.dev(), found.ino(), found.size(), found.uid(), found.mode(), times)
    }

    fn is_of_before(&self, time: SystemTime) -> bool {
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (self.5[2], self.5[3])
            < (since_1970.as_secs().cast_signed(), i64::from(since_1970.subsec_nanos()))
    }
}

impl Seen {
    /// `say` hears what is wrong in the file, once for each change of it.
    pub fn new(files: Files, say: fn(&str)) -> Self {
        Self { files, say, last: None }
    }

    /// As the file is now. One with an error grants nothing.
    pub fn policy(&mut self) -> &Policy {
        let stamps = self.stamps();
        let last = self.last.take();
        let is_same = |last: &Last| last.stamps == stamps && !last.may_change_unseen;
        let last = match last {
            Some(last) if is_same(&last) => last,
            last => {
                let settled = SystemTime::now() - COARSEST;
                let of_before = |stamp: &Stamp| stamp.is_of_before(settled);
                let may_change_unseen = !stamps.iter().flatten().all(of_before);
                let (policy, why) = match self.files.read() {
                    Ok(policy) => (policy, None),
                    Err(why) => (Policy::default(), Some(why)),
                };
                let said = last.and_then(|last| last.why);
                if let Some(why) = why.as_deref().filter(|why| said.as_deref() != Some(why)) {
                    (self.say)(why);
                }
                Last { stamps, may_change_unseen, policy, why }
            }
        };
        &self.last.insert(last).policy
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let Files { policy, users, groups, .. } = &self.files;
        let itself = [policy.parent(), Some(policy.as_path())];
        let itself = itself.map(|path| path.and_then(|path| fs::symlink_metadata(path).ok()));
        let names = [users, groups].map(|path| fs::metadata(path).ok());
        itself.iter().chain(&names).map(|found| found.as_ref().map(Stamp::of)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::peer::Peer;
    use std::fs::{File, FileTimes, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static SAID: AtomicUsize = AtomicUsize::new(0);

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }

    #[test]
    fn a_change_counts_at_once_and_an_error_is_said_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let [policy, users, groups] = ["policy", "users", "groups"].map(|f| dir.path().join(f));
        let owner = rustix::process::geteuid().as_raw();
        let files = Files { policy: policy.clone(), users: users.clone(), groups, owner };
        write(&files.groups, "");
        let mut seen = Seen::new(files, |_| _ = SAID.fetch_add(1, Relaxed));
        let peer = Peer { pid: 1, uid: 20, groups: [50].into() };
        let mut gives = || seen.policy().gives_channel(1000, "a", &peer);
        assert!(!gives(), "there is no file");
        let text = |user| format!("[[channel]]\nname = 'a'\nowner = 'alice'\nusers = [{user}]\n");
        write(&users, "alice:x:1000:100::/:\n");
        for turn in 0..100 {
            // Of the same length, and within one tick of the file system's clock.
            write(&policy, &text(21));
            assert!(!gives(), "turn {turn}");
            write(&policy, &text(20));
            assert!(gives(), "turn {turn}");
        }
        // Also where the time of its data is put back.
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        File::options().write(true).open(&policy).unwrap().set_times(times).unwrap();
        assert!(gives());
        write(&users, "alice:x:1001:100::/:\n");
        assert!(!gives(), "alice has another number");
        write(&users, "alice:x:1000:100::/:\n");
        assert!(gives());
        assert_eq!(SAID.load(Relaxed), 0);
        write(&policy, "[[channel]]\n");
        assert!(!gives() && !gives());
        assert_eq!(SAID.load(Relaxed), 1);
        write(&policy, &text(20));
        fs::set_permissions(&policy, Permissions::from_mode(0o666)).unwrap();
        assert!(!gives(), "others may write to it");
        assert_eq!(SAID.load(Relaxed), 2);
    }

    #[test]
    fn a_file_that_stays_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let read = |stamps: Vec<Option<Stamp>>, may_change_unseen| {
            let [policy, users, groups] = ["p", "u", "g"].map(|file| dir.path().join(file));
            let files = Files { policy, users, groups, ..Files::default() };
            let mut seen = Seen::new(files, |_| {});
            let why = Some("kept".to_owned());
            seen.last = Some(Last { stamps, may_change_unseen, policy: Policy::default(), why });
            seen.policy();
            seen.last.unwrap().why.is_none()
        };
        let now = || {
            let found = fs::symlink_metadata(dir.path()).unwrap();
            vec![Some(Stamp::of(&found)), None, None, None]
        };
        assert!(!read(now(), false), "nothing has changed");
        assert!(read(now(), true), "it was changed a moment ago");
        assert!(read(vec![None, None, None, None], false), "it has changed");
    }

    #[test]
    fn what_changed_a_moment_ago_is_not_settled() {
        let dir = tempfile::tempdir().unwrap();
        let stamp = Stamp::of(&fs::metadata(dir.path()).unwrap());
        let now = SystemTime::now();
        assert!(!stamp.is_of_before(now - COARSEST));
        assert!(stamp.is_of_before(now + COARSEST));
    }
}
