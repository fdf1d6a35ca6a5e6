// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a load writes: a directory of its own, on a disk where that was asked for, that goes with
//! the load. A killed measurement leaves it; the next one that writes beside it removes it.
//!
//! Nothing else is removed. Its name says who made it: which process, of which boot and which space
//! of process numbers. Another machine may share the disk, and a container has numbers of its own:
//! what they have made stays. A name can be given to any directory, so a file in it says the same.
//! A directory without that file goes only if it is empty: its process was killed before the file
//! was there, and before the load began.

use asmp_host::Kernel;
use asmp_host::limited::read_regular_at_most;
use asmp_host::task::{TaskId, identify};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Names of such directories, before who made them and a counter.
const PREFIX: &str = ".asmp-load-";
/// The file in each of them that says who made it.
const MARK: &str = "made-by-asmp";

/// What a load wrote to, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadDir {
    /// The directory that held that of the load, from the root and without links.
    pub path: String,
    /// As mount(8) calls it; a number where asmp does not know its name.
    pub file_system: String,
    /// `8:1`, as in /proc/self/mountinfo; some file systems have one that is no disk's.
    pub device: String,
}

impl LoadDir {
    /// The file system and device of a directory that is there.
    pub fn of(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let device = path.metadata()?.dev();
        Ok(Self {
            path: path.display().to_string(),
            file_system: file_system(&path)?,
            device: format!("{}:{}", libc::major(device), libc::minor(device)),
        })
    }

    /// It keeps its files in memory.
    pub fn is_memory(&self) -> bool {
        ["tmpfs", "ramfs"].contains(&self.file_system.as_str())
    }
}

impl fmt::Display for LoadDir {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.is_memory() {
            true => write!(f, "{}: no disk", self.file_system),
            false => write!(f, "{} (device {})", self.file_system, self.device),
        }
    }
}

/// Names of include/uapi/linux/magic.h and of file systems that have theirs elsewhere.
const MAGIC: [(u32, &str); 17] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x2fc1_2fc1, "zfs"),
    (0x794c_7630, "overlay"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs3"),
    (0x3153_464a, "jfs"),
];

fn file_system(path: &Path) -> io::Result<String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: statfs reads a string that ends in 0, and writes one `struct statfs` to room for it.
    if unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has written all of it.
    let magic = unsafe { about.assume_init() }.f_type as u32;
    let known = MAGIC.iter().find(|(number, _)| *number == magic);
    Ok(known.map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned()))
}

/// Who made a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// As /proc/sys/kernel/random/boot_id has it: no two machines, and no two boots, have the same.
    boot_id: String,
    /// Inode of the space of process numbers.
    pid_namespace: u64,
    process: TaskId,
}

impl Mark {
    /// Of this process; `None` where /proc does not tell.
    fn own(kernel: &dyn Kernel) -> Option<Self> {
        let boot_id = kernel.text(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
        let boot_id = boot_id.trim().to_owned();
        let pid_namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
        let process = identify(kernel, i32::try_from(std::process::id()).ok()?)?;
        (!boot_id.is_empty()).then_some(Self { boot_id, pid_namespace, process })
    }

    /// What a directory holds.
    fn of(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&read_regular_at_most(&dir.join(MARK), 4096).ok()?).ok()
    }

    /// As a part of the directory's name.
    fn word(&self) -> String {
        let Self { boot_id, pid_namespace, process: TaskId { tid, start_ticks } } = self;
        format!("{tid}-{start_ticks}-{pid_namespace}-{boot_id}")
    }

    /// What a directory's name says.
    fn named(name: &str) -> Option<Self> {
        let (word, turn) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
        turn.parse::<u32>().ok()?;
        let mut parts = word.splitn(4, '-');
        let tid = parts.next()?.parse().ok()?;
        let start_ticks = parts.next()?.parse().ok()?;
        let pid_namespace = parts.next()?.parse().ok()?;
        let boot_id = parts.next()?.to_owned();
        let mark = Self { boot_id, pid_namespace, process: TaskId { tid, start_ticks } };
        (mark.word() == word).then_some(mark)
    }

    /// Its process has ended, as far as this one can know.
    fn is_left(&self, own: &Self, kernel: &dyn Kernel) -> bool {
        let is_near = self.boot_id == own.boot_id && self.pid_namespace == own.pid_namespace;
        let proc = format!("/proc/{}", self.process.tid);
        let has_number = identify(kernel, self.process.tid);
        is_near
            && (!kernel.exists(Path::new(&proc)) || has_number.is_some_and(|it| it != self.process))
    }
}

/// The directory of one load; dropping it removes it with all that is in it.
pub struct Scratch {
    pub path: PathBuf,
    mark: Option<Mark>,
}

impl Scratch {
    /// For this process, below `parent`, under a name that nothing has; no other user can enter it.
    pub fn make(kernel: &dyn Kernel, parent: &Path) -> io::Result<Self> {
        // Absolute: its name goes to other programs, whose arguments may not begin with '-'.
        let parent = parent.canonicalize()?;
        let mark = Mark::own(kernel);
        let word = mark.as_ref().map_or_else(|| std::process::id().to_string(), Mark::word);
        let mut turn = 0u32;
        let scratch = loop {
            let path = parent.join(format!("{PREFIX}{word}-{turn}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Another machine's, or one that could not be removed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && turn < 1000 => {
                    turn += 1;
                }
                made => break made.map(|()| Self { path, mark })?,
            }
        };
        if let Some(mark) = &scratch.mark {
            let text = serde_json::to_vec(mark).map_err(io::Error::other)?;
            File::create_new(scratch.path.join(MARK))?.write_all(&text)?;
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // In a directory of another user the name may be another directory's by now.
        let is_own = self.mark.is_none() || Mark::of(&self.path) == self.mark;
        let _ = match is_own {
            true => std::fs::remove_dir_all(&self.path),
            false => remove_if_unused(&self.path),
        };
    }
}

/// Removes what killed measurements of this user have left below `parent` in this boot. What cannot
/// be removed stays: it is in no one's way.
pub fn sweep(kernel: &dyn Kernel, parent: &Path) {
    let Some(own) = Mark::own(kernel) else { return };
    // SAFETY: geteuid takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let is_left = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_ours = path.symlink_metadata().is_ok_and(|it| it.is_dir() && it.uid() == user);
        Mark::named(name).filter(|mark| is_ours && mark.is_left(&own, kernel))
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let Some(named) = is_left(&path) else { continue };
        let _ = match Mark::of(&path) {
            Some(mark) if mark == named => std::fs::remove_dir_all(path),
            Some(_) => Ok(()),
            // A kill may have cut the mark, which is the first file there.
            None => remove_if_unused(&path),
        };
    }
}

/// Removes a directory that has nothing but, at most, a mark that was cut.
fn remove_if_unused(dir: &Path) -> io::Result<()> {
    let mut names = std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name()));
    if names.all(|name| name.is_ok_and(|name| name == MARK)) {
        let _ = std::fs::remove_file(dir.join(MARK));
    }
    std::fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use asmp_host::Linux;

    #[test]
    fn a_file_system_is_told_by_its_name_and_one_in_memory_is_no_disk() {
        let proc = LoadDir::of(Path::new("/proc")).unwrap();
        assert_eq!(proc.file_system, "0x9fa0", "no name that loads could meet");
        let (major, minor) = proc.device.split_once(':').unwrap();
        assert!(major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok(), "{}", proc.device);
        let of = |file_system: &str| LoadDir {
            path: "x".into(),
            file_system: file_system.into(),
            device: "8:1".into(),
        };
        assert_eq!(of("tmpfs").to_string(), "tmpfs: no disk");
        assert_eq!(of("ramfs").to_string(), "ramfs: no disk");
        assert_eq!(of("ext4").to_string(), "ext4 (device 8:1)");
        assert!(LoadDir::of(Path::new("/nowhere")).is_err());
        let shm = LoadDir::of(Path::new("/dev/shm")).unwrap();
        assert!(shm.is_memory(), "{shm:?}");
    }

    #[test]
    fn what_a_load_wrote_to_is_named_from_the_root() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(LoadDir::of(Path::new(".")).unwrap().path, here.display().to_string());
    }

    #[test]
    fn a_directory_of_a_load_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Linux::new();
        let scratch = Scratch::make(&kernel, dir.path()).unwrap();
        let path = scratch.path.clone();
        std::fs::write(path.join("data"), "x").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        // What has its name is left alone: it may be another machine's.
        let second = Scratch::make(&kernel, dir.path()).unwrap();
        assert_ne!(second.path, path);
        sweep(&kernel, dir.path());
        assert!(path.join("data").exists(), "its process is there");
        drop((scratch, second));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_directory_of_an_ended_process_of_this_boot_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Linux::new();
        let at = |name: &str| dir.path().join(name);
        let made = |name: &str, mark: &str| {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("run.json"), "x").unwrap();
            if !mark.is_empty() {
                std::fs::write(at(name).join(MARK), mark).unwrap();
            }
        };
        let own = Mark::own(&kernel).unwrap();
        let text = |mark: &Mark| serde_json::to_string(mark).unwrap();
        let named = |mark: &Mark, turn: u32| format!("{PREFIX}{}-{turn}", mark.word());
        // No process has a number above the kernel's largest limit.
        let gone = Mark { process: TaskId { tid: 4_194_305, start_ticks: 7 }, ..own.clone() };
        let mut before = own.clone();
        before.process.start_ticks += 1;
        assert_eq!(Mark::named(&named(&gone, 3)), Some(gone.clone()));
        made(&named(&gone, 0), &text(&gone));
        made(&named(&before, 0), &text(&before));
        // Killed before the mark was there, and while it was written.
        std::fs::create_dir(at(&named(&gone, 1))).unwrap();
        std::fs::create_dir(at(&named(&gone, 2))).unwrap();
        std::fs::write(at(&named(&gone, 2)).join(MARK), "{\"boot").unwrap();
        let goes: Vec<PathBuf> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        // None of what follows is to go.
        let other_boot = Mark { boot_id: "another".to_owned(), ..gone.clone() };
        let other_numbers = Mark { pid_namespace: own.pid_namespace + 1, ..gone.clone() };
        let stays = [
            (named(&own, 7), text(&own)),
            (named(&other_boot, 7), text(&other_boot)),
            (named(&other_numbers, 7), text(&other_numbers)),
            // Renamed by another user: what is in it is not the load's.
            (named(&gone, 8), String::new()),
            (named(&gone, 9), text(&before)),
            (named(&gone, 10), "{}".to_owned()),
            (".asmp-load-4194305-0".to_owned(), text(&gone)),
            ("asmp-load-4194305-0".to_owned(), text(&gone)),
            (format!("{}x", named(&gone, 11)), text(&gone)),
        ];
        stays.iter().for_each(|(name, mark)| made(name, mark));
        std::fs::write(at(&named(&gone, 12)), "a file").unwrap();
        std::os::unix::fs::symlink(at(&named(&gone, 8)), at(&named(&gone, 13))).unwrap();
        sweep(&kernel, dir.path());
        assert_eq!(goes.len(), 4);
        for path in goes {
            assert!(!path.exists(), "{} is left of a killed measurement", path.display());
        }
        for (name, _) in &stays {
            assert!(at(name).join("run.json").exists(), "{name} may be a user's");
        }
        assert!(at(&named(&gone, 12)).exists() && at(&named(&gone, 13)).is_symlink());
    }

    #[test]
    fn a_directory_that_has_the_name_of_a_loads_by_now_stays_with_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Linux::new();
        let scratch = Scratch::make(&kernel, dir.path()).unwrap();
        let path = scratch.path.clone();
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("results"), "mine").unwrap();
        drop(scratch);
        assert!(path.join("results").exists());
    }

    #[test]
    fn what_a_kill_leaves_before_the_load_has_its_mark_says_by_its_name_whose_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Linux::new();
        let scratch = Scratch::make(&kernel, dir.path()).unwrap();
        let name = scratch.path.file_name().unwrap().to_str().unwrap();
        assert_eq!(Mark::named(name), Mark::own(&kernel));
        assert_eq!(Mark::of(&scratch.path), Mark::own(&kernel));
    }
}
