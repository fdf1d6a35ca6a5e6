// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a load writes: a directory of its own, on a disk where that was asked for, that goes with
//! the load. A killed measurement leaves it; the next one that writes beside it removes it.

use asmp_host::Kernel;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Names of such directories, before the number of the process.
const PREFIX: &str = "asmp-load-";

/// What a load wrote to, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadDir {
    /// The directory that held that of the load.
    pub path: String,
    /// As mount(8) calls it; a number where asmp does not know its name.
    pub file_system: String,
    /// `8:1`, as in /proc/self/mountinfo; some file systems have one that is no disk's.
    pub device: String,
}

impl LoadDir {
    pub fn of(path: &Path) -> io::Result<Self> {
        let device = path.metadata()?.dev();
        Ok(Self {
            path: path.display().to_string(),
            file_system: file_system(path)?,
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

/// The directory of one load; dropping it removes it with all that is in it.
pub struct Scratch {
    pub path: PathBuf,
}

impl Scratch {
    /// For this process, below `parent`; no other user can enter it.
    pub fn make(parent: &Path) -> io::Result<Self> {
        // Absolute: its name goes to other programs, whose arguments may not begin with '-'.
        let path = parent.canonicalize()?.join(format!("{PREFIX}{}", std::process::id()));
        // A process that had our number has left it.
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes what killed measurements of this user have left below `parent`. What cannot be removed
/// stays: it is in no one's way.
pub fn sweep(kernel: &dyn Kernel, parent: &Path) {
    // SAFETY: geteuid takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let is_left = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        let is_ours = path.symlink_metadata().is_ok_and(|it| it.is_dir() && it.uid() == user);
        is_ours && pid.is_some_and(|pid| !kernel.exists(Path::new(&format!("/proc/{pid}"))))
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| is_left(path)) {
        let _ = std::fs::remove_dir_all(path);
    }
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
    fn a_directory_of_a_load_goes_with_it_and_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(dir.path()).unwrap();
        let path = scratch.path.clone();
        std::fs::write(path.join("data"), "x").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!path.exists());
        // What one that had our number has left is no reason to fail.
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("old"), "x").unwrap();
        let scratch = Scratch::make(dir.path()).unwrap();
        assert!(!path.join("old").exists());
        let at = |name: &str| dir.path().join(name);
        // No process has a number above the kernel's largest limit.
        for name in ["asmp-load-4194305", "asmp-load-x", "other-4194305"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("data"), "x").unwrap();
        }
        std::fs::write(at("asmp-load-4194306"), "a file").unwrap();
        sweep(&Linux::new(), dir.path());
        assert!(!at("asmp-load-4194305").exists());
        assert!(scratch.path.exists(), "its process is there");
        for name in ["asmp-load-x", "other-4194305", "asmp-load-4194306"] {
            assert!(at(name).exists(), "{name} is none of ours");
        }
    }
}
