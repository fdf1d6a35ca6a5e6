// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of channel names.
//!
//! A memfd has no name in the file system. So each process that has it open creates a link in a
//! directory: `NAME.PID.FD.START.SPACE` -> `/proc/PID/fd/FD`. START is when the process started:
//! PID alone may be another process by now. SPACE is the inode of its PID namespace. The kernel
//! lets only the same user (or root) follow the link. For another user, send the descriptor over a
//! socket; the receiver calls [`SharedMemory::from_fd`](crate::SharedMemory::from_fd).
//!
//! **Trust.** `/dev/shm` belongs to all users, and any of them may make a directory there first.
//! So the default directory must belong to the effective user, root included. Root follows a
//! directory of another user only where the program names it, and there only memory of that user,
//! or root's by a link that root made. A directory is opened once, is no symbolic link, and is used
//! by its descriptor.
//!
//! **Lock.** A process that creates or attaches holds flock(2) of the file `.lock`. Only the
//! directory's user may open it. The directory itself could be locked by any user who can open
//! it.

use crate::shm::ShmError;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process waits for others that create or attach.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_FILE: &str = ".lock";
/// Dead links that a program removes when it makes a name, at most.
const MOST_REMOVED: usize = 100;

/// The directory of this user's channel names: `$ASMP_CHANNELS` if it is set and not empty, else
/// `/dev/shm/asmp-UID`. A program that runs with more rights than its caller (setuid, setgid, file
/// capabilities) ignores the variable, as secure_getenv(3) does.
pub fn default_dir() -> PathBuf {
    // SAFETY: takes and gives a number.
    let has_more_rights = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    match std::env::var_os("ASMP_CHANNELS").filter(|dir| !dir.is_empty()) {
        Some(dir) if !has_more_rights => dir.into(),
        _ => own_dir(),
    }
}

fn own_dir() -> PathBuf {
    format!("/dev/shm/asmp-{}", me()).into()
}

/// The effective user.
pub(crate) fn me() -> u32 {
    // SAFETY: takes nothing, touches nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// A directory of names, locked: no other process creates or attaches there meanwhile.
#[derive(Debug)]
pub(crate) struct Names {
    dir: File,
    /// As the program named it, for errors.
    path: PathBuf,
    owner: u32,
    lock: File,
}

impl Names {
    /// Locks the directory, and creates it if necessary. Errors: `ForeignDir`, `DirLocked`, `Io`.
    pub fn lock(path: &Path) -> Result<Self, ShmError> {
        Self::lock_within(path, LOCK_WAIT)
    }

    pub fn lock_within(path: &Path, at_most: Duration) -> Result<Self, ShmError> {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(ShmError::NoDir { dir: path.to_owned(), cause: error })
            }
            _ => Self::lock_existing(path, at_most),
        }
    }

    /// The same for a directory that exists. `None`: it does not.
    pub fn lock_if_there(path: &Path) -> Result<Option<Self>, ShmError> {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Self::lock_existing(path, LOCK_WAIT).map(Some),
        }
    }

    fn lock_existing(path: &Path, at_most: Duration) -> Result<Self, ShmError> {
        let io = |cause| ShmError::Io { path: path.to_owned(), cause };
        let foreign = |what, cure| ShmError::ForeignDir { dir: path.to_owned(), what, cure };
        let is_own = path == own_dir();
        let dir = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            // Without the slash that would make the kernel follow a link.
            .open(path.components().as_path())
            .map_err(|error| match path.components().as_path().is_symlink() {
                true if is_own => foreign("is a symbolic link", "remove it"),
                true => foreign("is a symbolic link", "name the directory itself"),
                false => io(error),
            })?;
        let metadata = dir.metadata().map_err(io)?;
        let owner = metadata.uid();
        if owner != me() && (me() != 0 || is_own) {
            return Err(foreign(
                "belongs to another user",
                match is_own {
                    true => "remove it",
                    false => "set ASMP_CHANNELS to a directory of this user",
                },
            ));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(foreign(
                "may be written by other users",
                match owner == me() && metadata.mode() & 0o1000 == 0 {
                    true => "forbid it (chmod go-w)",
                    false => "set ASMP_CHANNELS to a directory of this user",
                },
            ));
        }
        let mut lock = lock_file(&dir, owner).map_err(io)?;
        let end = Instant::now() + at_most;
        loop {
            match lock.try_lock() {
                Ok(()) if is_in(&dir, &lock) => {
                    return Ok(Self { dir, path: path.to_owned(), owner, lock });
                }
                // Somebody removed it, and another process may hold its successor.
                Ok(()) => lock = lock_file(&dir, owner).map_err(io)?,
                Err(TryLockError::Error(cause)) => return Err(io(cause)),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(ShmError::DirLocked { dir: path.to_owned() });
                }
                // A blocking flock(2) has no timeout.
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Opens the memory of this name through the link of a living process, and removes links of
    /// dead ones. Other files stay: the directory may have other uses. Errors: `Hidden` (only
    /// processes have it whose descriptors are not visible), `Io`.
    pub fn find(&self, name: &str) -> Result<Option<File>, ShmError> {
        let io = |cause| ShmError::Io { path: self.path.clone(), cause };
        let prefix = format!("{name}.");
        let mut hidden = None;
        for entry in std::fs::read_dir(inside(&self.dir, "")).map_err(io)? {
            let link = entry.map_err(io)?.path();
            let file_name = link.file_name().and_then(|name| name.to_str());
            let Some(rest) = file_name.and_then(|name| name.strip_prefix(&prefix)) else {
                continue;
            };
            if !link.read_link().is_ok_and(|to| to.starts_with("/proc")) {
                continue;
            }
            match open_link(&link, name) {
                Ok(Some(found)) if self.may_follow(&found).map_err(io)? => {
                    return Ok(Some(found.memory));
                }
                Ok(Some(_)) => {}
                Ok(None) => _ = std::fs::remove_file(&link),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    match process_of(rest) {
                        Some(pid) => hidden = Some(pid),
                        None => _ = std::fs::remove_file(&link),
                    }
                }
                Err(cause) => {
                    let path = self.path.join(link.file_name().unwrap_or_default());
                    return Err(ShmError::Io { path, cause });
                }
            }
        }
        match hidden {
            Some(pid) => Err(ShmError::Hidden { name: name.to_owned(), pid }),
            None => Ok(None),
        }
    }

    /// Memory of others than the directory's user and root is not what the name stands for. Root's
    /// has this name only where root has made the link: the user could lead to another one.
    fn may_follow(&self, found: &Found) -> io::Result<bool> {
        let owner = found.memory.metadata()?.uid();
        Ok(owner == self.owner || owner == 0 && found.linked_by == 0)
    }

    /// Removes links of this user, of any name, whose process is gone: a few of those that a
    /// program leaves that was killed. The kernel must say that no process has the number, in the
    /// PID namespace that the link is from; what is in doubt stays. We hold the lock, so no new
    /// process makes the same link meanwhile.
    pub fn remove_dead(&self) {
        let Some(space) = pid_space() else { return };
        let Ok(entries) = std::fs::read_dir(inside(&self.dir, "")) else { return };
        let is_dead = |link: &PathBuf| {
            let (_, rest) = link.file_name()?.to_str()?.split_once('.')?;
            let made = Made::read(rest).filter(|made| made.space == Some(space))?;
            let is_ours = link.symlink_metadata().ok()?.uid() == me();
            let to = link.read_link().ok()?;
            let is_link = to.to_str()? == format!("/proc/{}/fd/{}", made.pid, made.fd);
            (is_ours && is_link && is_gone(made.pid)).then_some(())
        };
        let links = entries.filter_map(|entry| Some(entry.ok()?.path()));
        for link in links.filter(|link| is_dead(link).is_some()).take(MOST_REMOVED) {
            let _ = std::fs::remove_file(link);
        }
    }

    /// Links `name` to a descriptor of this process.
    pub fn link(&self, name: &str, file: &File) -> Result<Link, ShmError> {
        let (pid, fd) = (std::process::id(), file.as_raw_fd());
        let start = started_at(pid).unwrap_or_default();
        let space = pid_space().map(|space| format!(".{space}")).unwrap_or_default();
        let file_name = OsString::from(format!("{name}.{pid}.{fd}.{start}{space}"));
        let made = || {
            let dir = self.dir.try_clone()?;
            let link = Link { dir, file_name: file_name.clone() };
            link.remove();
            symlink(format!("/proc/{pid}/fd/{fd}"), link.path())?;
            Ok(link)
        };
        made().map_err(|cause| ShmError::Io { path: self.path.join(&file_name), cause })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // Closing would release it too, unless a child was forked meanwhile.
        let _ = self.lock.unlock();
    }
}

/// A link of this process. It stays until `remove`.
#[derive(Debug)]
pub(crate) struct Link {
    dir: File,
    file_name: OsString,
}

impl Link {
    fn path(&self) -> PathBuf {
        inside(&self.dir, &self.file_name)
    }

    pub fn remove(&self) {
        let _ = std::fs::remove_file(self.path());
    }
}

/// A file of an open directory, whatever its path names by now.
fn inside(dir: &File, file_name: impl AsRef<Path>) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(file_name)
}

/// Whether the directory still has this very lock.
fn is_in(dir: &File, lock: &File) -> bool {
    let number = |metadata: io::Result<std::fs::Metadata>| metadata.ok().map(|file| file.ino());
    number(lock.metadata()) == number(inside(dir, LOCK_FILE).symlink_metadata())
}

/// Who made a link, from its part `PID.FD.START.SPACE`.
struct Made {
    pid: u32,
    fd: u32,
    start: u64,
    space: Option<u64>,
}

impl Made {
    fn read(rest: &str) -> Option<Self> {
        let mut numbers = rest.split('.').map(|number| number.parse::<u64>().ok());
        let mut small = || u32::try_from(numbers.next()??).ok();
        let (pid, fd) = (small()?, small()?);
        let start = numbers.next()??;
        let space = match numbers.next() {
            Some(space) => Some(space?),
            None => None,
        };
        numbers.next().is_none().then_some(Self { pid, fd, start, space })
    }
}

/// The living process of a link, from its part after the name. `None`: it has ended.
fn process_of(rest: &str) -> Option<u32> {
    let made = Made::read(rest)?;
    (started_at(made.pid) == Some(made.start)).then_some(made.pid)
}

/// Whether no process of our PID namespace has this number. One that we may not see has it.
fn is_gone(pid: u32) -> bool {
    // 0 and negative numbers are groups.
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return false };
    // SAFETY: takes numbers; signal 0 is none.
    let is_there = unsafe { libc::kill(pid, 0) } == 0;
    !is_there && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// The inode of our PID namespace. `None`: /proc does not say, or is another namespace's.
fn pid_space() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    // Our numbers from the namespace of /proc down to our own.
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let is_own = numbers.split_whitespace().count() == 1;
    is_own.then(|| std::fs::metadata("/proc/self/ns/pid").ok()).flatten().map(|space| space.ino())
}

/// When a process started, in clock ticks since boot (field 22 of proc_pid_stat(5)).
fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the command, in parentheses, may have spaces.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Opens the lock, and creates it if necessary, for `owner` alone.
fn lock_file(dir: &File, owner: u32) -> io::Result<File> {
    let path = inside(dir, LOCK_FILE);
    let mut options = OpenOptions::new();
    // O_NONBLOCK: a FIFO there must not make us wait.
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.clone().create_new(true).mode(0o600).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(&path),
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(0o600))?;
            if owner != me() {
                fchown(&file, Some(owner), None)?;
            }
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

/// Opens the memfd behind a link. It checks that it is one, because the kernel may have reused the
/// number of a process or descriptor. `None`: a link of a dead process. Errors: those of
/// open(2) beyond that, such as EMFILE.
fn open_link(link: &Path, name: &str) -> io::Result<Option<Found>> {
    let is_gone =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
    let open = |path: &Path, flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    // The link itself: another may have its name a moment later.
    let opened = open(link, libc::O_PATH | libc::O_NOFOLLOW).and_then(|itself| {
        let to = target_of(&itself)?;
        Ok((itself.metadata()?.uid(), open(&to, libc::O_PATH)?))
    });
    let (linked_by, found) = match opened {
        Err(error) if is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    let path = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    if path.read_link()?.to_str() != Some(&format!("/memfd:asmp:{name} (deleted)")) {
        return Ok(None);
    }
    let memory = OpenOptions::new().read(true).write(true).open(path)?;
    Ok(Some(Found { linked_by, memory }))
}

/// Memory, and the user who made the link by which it was found.
struct Found {
    linked_by: u32,
    memory: File,
}

/// Where an open symbolic link leads.
fn target_of(link: &File) -> io::Result<PathBuf> {
    let mut text = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: an empty C string means the descriptor itself; the buffer is as long as is said.
    let length = unsafe {
        libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), text.as_mut_ptr().cast(), text.len())
    };
    text.truncate(usize::try_from(length).map_err(|_| io::Error::last_os_error())?);
    Ok(OsString::from_vec(text).into())
}

pub(crate) fn check_name(name: &str) -> Result<(), ShmError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    match !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        true => Ok(()),
        false => Err(ShmError::BadName { name: name.to_owned() }),
    }
}

#[cfg(all(test, not(miri)))]
#[path = "names_tests.rs"]
pub(crate) mod tests;
