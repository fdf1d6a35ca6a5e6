// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy as it was last read, for those whom many may ask.
//!
//! Problem:  any user may ask for a grant or a channel again and again, and to parse a long policy
//!           each time would take asmpd's CPU. But a change of the file must count at once.
//! Approach: the file is read again if the kernel shows any other times, size, owner or mode of it,
//!           of its directory, or of the files with names; and also if one of them was changed so
//!           lately that a second change could bear the same time.

use crate::policy::{Files, Policy};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// A file system's clock is no coarser, in seconds.
const COARSEST_S: u64 = 2;

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

    /// Could a change at `now` or a moment later bear the same time? One in the future cannot: the
    /// clock was set back.
    fn is_near(&self, now: SystemTime) -> bool {
        let changed_s = self.5[2];
        let now_s = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        changed_s.abs_diff(now_s.cast_signed()) <= COARSEST_S
    }
}

impl Seen {
    /// `say` hears what is wrong in the file, once for each change of it.
    pub fn new(files: Files, say: fn(&str)) -> Self {
        Self { files, say, last: None }
    }

    /// As the file is now. Errors: what is wrong with it; such a file grants nothing.
    pub fn policy(&mut self) -> Result<&Policy, &str> {
        self.policy_at(SystemTime::now())
    }

    fn policy_at(&mut self, now: SystemTime) -> Result<&Policy, &str> {
        let stamps = self.stamps();
        let last = self.last.take();
        let is_same = |last: &Last| last.stamps == stamps && !last.may_change_unseen;
        let last = match last {
            Some(last) if is_same(&last) => last,
            last => {
                let may_change_unseen = stamps.iter().flatten().any(|one| one.is_near(now));
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
        let last = self.last.insert(last);
        match &last.why {
            Some(why) => Err(why),
            None => Ok(&last.policy),
        }
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
    use std::time::Duration;

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
        let gives = |seen: &mut Seen| {
            seen.policy().is_ok_and(|policy| policy.gives_channel(1000, "a", &peer))
        };
        assert!(!gives(&mut seen), "there is no file");
        let text = |user| format!("[[channel]]\nname = 'a'\nowner = 'alice'\nusers = [{user}]\n");
        write(&users, "alice:x:1000:100::/:\n");
        for turn in 0..100 {
            // Of the same length, and within one tick of the file system's clock.
            write(&policy, &text(21));
            assert!(!gives(&mut seen), "turn {turn}");
            write(&policy, &text(20));
            assert!(gives(&mut seen), "turn {turn}");
        }
        // Also where the time of its data is put back.
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        File::options().write(true).open(&policy).unwrap().set_times(times).unwrap();
        assert!(gives(&mut seen));
        write(&users, "alice:x:1001:100::/:\n");
        assert!(!gives(&mut seen), "alice has another number");
        write(&users, "alice:x:1000:100::/:\n");
        assert!(gives(&mut seen));
        assert_eq!(SAID.load(Relaxed), 0);
        write(&policy, "[[channel]]\n");
        assert!(!gives(&mut seen) && !gives(&mut seen));
        assert_eq!(SAID.load(Relaxed), 1);
        assert!(seen.policy().unwrap_err().contains("line 1: missing field"));
        write(&policy, &text(20));
        fs::set_permissions(&policy, Permissions::from_mode(0o666)).unwrap();
        assert!(!gives(&mut seen), "others may write to it");
        assert_eq!(SAID.load(Relaxed), 2);
    }

    #[test]
    fn a_file_that_stays_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let [policy, users, groups] = ["p", "u", "g"].map(|file| dir.path().join(file));
        write(&policy, "[[channel]]\nname = 'a'\nowner = 1\nusers = [2]\n");
        write(&users, "");
        write(&groups, "");
        let owner = rustix::process::geteuid().as_raw();
        let mut seen = Seen::new(Files { policy: policy.clone(), users, groups, owner }, |_| {});
        // What is kept is marked: to read the file again removes the mark.
        let mut is_read_at = |now| {
            seen.last.get_or_insert_with(none).why = Some("marked".to_owned());
            seen.policy_at(now).is_ok()
        };
        let now = SystemTime::now();
        let later = now + Duration::from_secs(60);
        assert!(is_read_at(now), "for the first time");
        assert!(is_read_at(now), "it was changed a moment ago");
        assert!(is_read_at(later), "what was kept was of that moment");
        assert!(!is_read_at(later), "it stays");
        fs::set_permissions(&policy, Permissions::from_mode(0o600)).unwrap();
        assert!(is_read_at(later), "it has changed");
        // The clock is set back: all times of the files are in the future.
        fs::set_permissions(&policy, Permissions::from_mode(0o644)).unwrap();
        let earlier = now - Duration::from_secs(3600);
        assert!(is_read_at(earlier) && !is_read_at(earlier));
    }

    fn none() -> Last {
        let policy = Policy::default();
        Last { stamps: Vec::new(), may_change_unseen: false, policy, why: None }
    }
}
