// SPDX-License-Identifier: Apache-2.0 OR MIT
//! asmp's own files, which stay whole after `kill -9` at any instruction: a state that is replaced
//! whole, a journal that only grows, and the lock that serialises writers. They are in /run/asmp, a
//! file system in memory: what they describe does not survive a reboot either. A measurement keeps
//! room for its `run.json` in the same way.

use crate::{Error, Result, limited};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No file of these is longer, so that one of another program costs no more than that to refuse. A
/// journal of 64 MiB has the ways back of some 300,000 threads.
pub const MOST_BYTES: u64 = 64 << 20;

/// The directory of these files.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    /// Of the system, as /run/asmp: all may read what is written, whatever the umask is, and a file
    /// that another user can have written is not trusted.
    of_system: bool,
    room: Room,
}

/// How many more files or pages there is room for; `None`: the file system knows. Tests limit it.
#[derive(Debug, Clone, Default)]
struct Room(Arc<Mutex<Option<usize>>>);

impl Room {
    /// Errors: ENOSPC.
    fn take(&self) -> io::Result<()> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(0) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn give_back(&self) {
        if let Some(left) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            *left += 1;
        }
    }
}

/// Held by the one writer; released when dropped or when the process dies. `flock(2)`, as
/// [`File::try_lock`] uses on Linux, so that `flock(1)` on the file excludes asmp as well.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Store {
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), of_system: true, room: Room::default() }
    }

    /// A directory of the caller's own, whose umask decides who reads it.
    pub fn of_user(dir: impl Into<PathBuf>) -> Self {
        Self { of_system: false, ..Self::at(dir) }
    }

    /// For tests: from now on there is room for so many files or pages; `None`: as there really is.
    #[doc(hidden)]
    pub fn limit_room(&self, room: Option<usize>) {
        *self.room.0.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }

    /// Keeps room for `bytes` of a file that [`replace`](Self::replace) or
    /// [`journal`](Self::journal) writes later, when the file system may be full: an empty file
    /// NAME.spare that has its pages. Does nothing where there is one, or where the file system
    /// has no fallocate(2). Errors: ENOSPC; then a smaller one stays.
    pub fn reserve(&self, name: &str, bytes: u64, mode: u32) -> Result<()> {
        let (spare, fresh) = (self.spare(name), self.path(&format!("{name}.spare.new")));
        let is_enough = |about: fs::Metadata| self.is_ours(&about) && room_of(&about) >= bytes;
        if fs::symlink_metadata(&spare).is_ok_and(is_enough) {
            return Ok(());
        }
        let made = (|| {
            match fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.room.take()?;
            let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&fresh)?;
            // SAFETY: an open file; the call touches no memory.
            let kept = unsafe {
                libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, bytes as i64)
            };
            match kept {
                0 => fs::rename(&fresh, &spare),
                _ => Err(io::Error::last_os_error()),
            }
        })();
        match made {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = fs::remove_file(&fresh);
                match error.raw_os_error() {
                    Some(libc::EOPNOTSUPP) => Ok(()),
                    _ => Err(Error::io(&spare, "keep room in")(error)),
                }
            }
        }
    }

    /// Gives the room for a file up, also what a kill left of [`reserve`](Self::reserve).
    pub fn release(&self, name: &str) -> Result<()> {
        self.remove(&format!("{name}.spare.new"))?;
        self.remove(&format!("{name}.spare"))
    }

    fn spare(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.spare"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Takes the writers' lock, waiting at most `patience`. `Ok(None)`: another process held it all
    /// the time. Errors: `Content` where the directory is a link or others may write in it.
    pub fn lock(&self, patience: Duration) -> Result<Option<Lock>> {
        self.lock_of("lock", patience)
    }

    /// The same with a lock of its own, whose file has this name.
    pub fn lock_of(&self, name: &str, patience: Duration) -> Result<Option<Lock>> {
        make_dir(&self.dir).map_err(Error::io(&self.dir, "make the directory"))?;
        let owner = self.check_dir()?;
        // SAFETY: geteuid has no arguments and cannot fail.
        if self.of_system && owner != unsafe { libc::geteuid() } {
            // Whatever capabilities there are: root would believe nothing that is written here.
            let denied = io::Error::from_raw_os_error(libc::EPERM);
            return Err(Error::io(&self.dir, "write in")(denied));
        }
        let path = self.path(name);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(UNFOLLOWED)
            .open(&path)
            .and_then(|file| self.ours(file))
            .map_err(Error::io(&path, "open"))?;
        let deadline = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Lock { _file: file })),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(Error::io(&path, "lock")(error)),
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            // flock has no timeout of its own; the holder keeps it for one transaction.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A file's bytes; `None` where there is none. Errors: also [`io::ErrorKind::InvalidData`] for
    /// what is no regular file, [`io::ErrorKind::InvalidInput`] for what is not ours, and
    /// [`io::ErrorKind::FileTooLarge`] beyond [`MOST_BYTES`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let read = || {
            // Opening a device may do something.
            if !fs::symlink_metadata(&path)?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no regular file"));
            }
            let file = OpenOptions::new().read(true).custom_flags(UNFOLLOWED).open(&path)?;
            limited::read_open(self.ours(file)?, MOST_BYTES, |_| true)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path, "read")(error)),
        }
    }

    /// Replaces a file whole: after a crash it holds the old bytes or the new, never a mixture. It
    /// takes no more than [`read`](Self::read) gives.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        if bytes.len() as u64 > MOST_BYTES {
            return Err(Error::io(&path, "write")(limited::too_long(MOST_BYTES)));
        }
        let written =
            match self.room.take().and_then(|()| replaced(&path, bytes, 0o644, self.of_system)) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => {
                    self.replace_by_spare(name, bytes).map_err(|_| error)
                }
                other => other,
            };
        written.and_then(|()| self.sync_dir()).map_err(Error::io(&path, "write"))
    }

    /// The same in the room that was reserved. A crash leaves the old file, or the new one.
    fn replace_by_spare(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let spare = self.spare(name);
        let file =
            self.ours(OpenOptions::new().write(true).custom_flags(UNFOLLOWED).open(&spare)?)?;
        if bytes.len() as u64 > room_of(&file.metadata()?) {
            self.room.take()?;
        }
        if self.of_system {
            file.set_permissions(Permissions::from_mode(0o644))?;
        }
        file.write_all_at(bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()?;
        fs::rename(&spare, self.path(name))?;
        self.room.give_back();
        Ok(())
    }

    /// Removes a file; not an error where there is none.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path).and_then(|()| self.sync_dir()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(&path, "remove")(error))
            }
            Err(_) => Ok(()),
            Ok(()) => {
                self.room.give_back();
                Ok(())
            }
        }
    }

    /// Gives a file another name, which needs no room. `Ok(false)`: there is none.
    pub fn rename(&self, name: &str, to: &str) -> Result<bool> {
        let path = self.path(name);
        match fs::rename(&path, self.path(to)).and_then(|()| self.sync_dir()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io(&path, "rename")(error)),
        }
    }

    /// Opens a new, empty journal, in the room that was reserved for it if there is any.
    pub fn journal(&self, name: &str) -> Result<Journal> {
        let path = self.path(name);
        let opened = (|| {
            let mut options = OpenOptions::new();
            options.append(true).mode(0o600).custom_flags(UNFOLLOWED);
            let is_new = fs::symlink_metadata(&path).is_err();
            let has_room = fs::symlink_metadata(self.spare(name)).is_ok_and(|it| self.is_ours(&it));
            let file = match is_new && has_room && fs::rename(self.spare(name), &path).is_ok() {
                true => self.ours(options.open(&path)?)?,
                false => {
                    self.room.take()?;
                    options.create_new(true).open(&path)?
                }
            };
            self.sync_dir()?;
            let reserved = room_of(&file.metadata()?);
            Ok((file, reserved))
        })();
        let (file, reserved) = opened.map_err(Error::io(&path, "create"))?;
        Ok(Journal { file, path, length: 0, reserved, room: self.room.clone() })
    }

    /// Returns the directory's owner. Errors: `Content` where another user can write in it. That
    /// user could make asmp write anything, anywhere.
    fn check_dir(&self) -> Result<u32> {
        let about = fs::symlink_metadata(&self.dir).map_err(Error::io(&self.dir, "look at"))?;
        // SAFETY: geteuid has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        let (mode, owner) = (about.mode(), about.uid());
        // Of an access control list too: the bits of the group show what it gives at most.
        let by_group = user == 0 && mode & 0o020 != 0;
        let found = match () {
            () if about.is_symlink() => "a symbolic link".to_owned(),
            () if owner != 0 && owner != user => format!("a directory of user {owner}"),
            () if by_group || mode & 0o002 != 0 => format!("mode {:o}", mode & 0o7777),
            () => return Ok(owner),
        };
        // Removing a directory of ours would lose what every setting was.
        let expected = match owner == 0 && !about.is_symlink() {
            true => "a directory that only root or this user may write in (chmod go-w)",
            false => "a directory that only root or this user may write in (remove this one)",
        };
        Err(Error::Content { path: self.dir.clone(), text: found, expected })
    }

    /// Can only root or this user have written this file? Another user may have left it while the
    /// directory was open to all: such a file is never trusted.
    fn is_ours(&self, about: &fs::Metadata) -> bool {
        // SAFETY: geteuid has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        let is_owner = about.uid() == 0 || about.uid() == user;
        // A user's own group may be allowed to by the umask.
        let others = if user == 0 { 0o022 } else { 0o002 };
        let is_closed = about.mode() & others == 0;
        // One that was replaced since it was opened has no name left.
        !self.of_system || about.is_file() && is_owner && is_closed && about.nlink() <= 1
    }

    fn ours(&self, file: File) -> io::Result<File> {
        let about = file.metadata()?;
        if self.is_ours(&about) {
            return Ok(file);
        }
        let (mode, user, names) = (about.mode() & 0o7777, about.uid(), about.nlink());
        let text = format!(
            "another user may have written it (mode {mode:o}, user {user}, {names} hard links); \
             if it is asmp's: chown root, chmod go-w, and remove other hard links"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

/// Makes the directory for all to read, whatever the umask is; what is there stays as it is.
fn make_dir(dir: &Path) -> io::Result<()> {
    let make = || fs::DirBuilder::new().mode(0o755).create(dir);
    let made = match (make(), dir.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(above).and_then(|()| make())
        }
        (made, _) => made,
    };
    match made {
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Bytes that a file has pages for.
fn room_of(about: &fs::Metadata) -> u64 {
    about.blocks() * 512
}

/// No file of ours is a symbolic link; opening a FIFO in its place must not wait.
const UNFOLLOWED: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Replaces a file whole: after a crash it holds the old bytes or the new, never a mixture. The
/// bytes are first written to a new file beside it, under a name that nothing has, which is then
/// renamed. No link is followed. `mode`: permissions of the new file, less the umask. On an error
/// the old file is unchanged and the new one is removed; a kill may leave `.asmp-new-PID-N`.
///
/// Errors: those of open(2), write(2), fsync(2), rename(2). The directory is not synchronised.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut turn = 0u32;
    let (fresh, file) = loop {
        let fresh = path.with_file_name(format!(".asmp-new-{}-{turn}", std::process::id()));
        match OpenOptions::new().create_new(true).write(true).mode(mode).open(&fresh) {
            // A killed process of that number left it, or another machine has that number now.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && turn < 1000 => turn += 1,
            opened => break opened.map(|file| (fresh, file))?,
        }
    };
    renamed(file, &fresh, path, bytes)
}

/// The same of a file of asmp's own, in a directory of its own: `path` with `.new` appended is
/// what a kill left, and is removed. With `exactly` the new file has this mode whatever the umask
/// is.
fn replaced(path: &Path, bytes: &[u8], mode: u32, exactly: bool) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&fresh)?;
    if exactly && let Err(error) = file.set_permissions(Permissions::from_mode(mode)) {
        let _ = fs::remove_file(&fresh);
        return Err(error);
    }
    renamed(file, &fresh, path, bytes)
}

/// Fills a new file and gives it its name; on an error it is removed.
fn renamed(mut file: File, fresh: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(fresh, path));
    if renamed.is_err() {
        // If this fails too, the name says what the file is.
        let _ = fs::remove_file(fresh);
    }
    renamed
}

/// Lines, each of which the kernel has whole before [`Journal::append`] returns.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    length: u64,
    /// Bytes of the reserved room that are left.
    reserved: u64,
    room: Room,
}

impl Journal {
    /// Errors: also [`io::ErrorKind::FileTooLarge`], where [`Store::read`] would refuse the whole.
    pub fn append(&mut self, line: &str) -> Result<()> {
        let bytes = format!("{line}\n");
        self.length += bytes.len() as u64;
        if self.length > MOST_BYTES {
            return Err(Error::io(&self.path, "append")(limited::too_long(MOST_BYTES)));
        }
        let has_room = match self.reserved.checked_sub(bytes.len() as u64) {
            Some(left) => {
                self.reserved = left;
                Ok(())
            }
            None => self.room.take(),
        };
        let written = has_room
            .and_then(|()| self.file.write_all(bytes.as_bytes()))
            .and_then(|()| self.file.sync_data());
        written.map_err(Error::io(&self.path, "append"))
    }
}

/// The whole lines of a journal, and the part of a line after them. A crash may have cut that one;
/// then its action never began.
pub fn whole_lines(bytes: &[u8]) -> (impl Iterator<Item = &[u8]>, &[u8]) {
    let is_end = |byte: &u8| *byte == b'\n';
    let end = bytes.iter().rposition(is_end).map_or(0, |at| at + 1);
    let (whole, cut) = bytes.split_at(end);
    (whole.split_inclusive(is_end).map(|line| &line[..line.len() - 1]), cut)
}

#[cfg(test)]
mod tests;
