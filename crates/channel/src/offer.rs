// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A channel for programs of other users: a real-time program that root starts (sudo), or one with
//! file capabilities, offers one channel on a Unix socket; a program without rights receives it.
//!
//! **What the peer gets.** One channel, and nothing else of the program. [`Access::Read`] (records
//! and raw memory) gives memory that the peer can only read. [`Access::Write`] lets the peer take
//! the role of a writer or of a reader. Both ends of a channel can write anything into its memory,
//! so the peer can, too. It cannot release our role: the kernel's lock on it is ours.
//!
//! **Who gets it.** The kernel names the user of who connects (`SO_PEERCRED`): root, and the users
//! that the program names. The receiver asks the same about the socket. A user namespace shows
//! users from outside as 65534: do not name that user inside one.
//!
//! **Who serves.** One thread of ordinary priority calls [`Offer::serve_one`]. It waits for a
//! client, but never for what a client says or reads: clients say nothing.
//!
//! **The socket.** Its directory must belong to this user or to root, and other users must not
//! write there. So no other user can take or replace the path. Mode and owner of the socket do not
//! depend on umask(2).

mod receive;
pub(crate) mod wire;

pub use receive::receive;
pub use wire::Peer;

use crate::shm::{Kind, SharedMemory, ShmError, open_anew};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use wire::Status;

/// The longest path of a socket, in bytes.
const MAX_PATH_BYTES: usize = 107;
/// How long to wait after the kernel had no descriptor for us, so that a loop does not spin.
const PAUSE: Duration = Duration::from_millis(100);

/// What the peer may do with the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Map it for reading: records and raw memory.
    Read,
    /// Take a role and write. Needed for FIFOs and calls: both ends of them write.
    Write,
}

/// Why a channel could not be offered or received.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// The path has no name, or is longer than a socket's address.
    #[error(
        "{path}: the path of a socket has a name and at most 107 bytes: choose another",
        path = path.display()
    )]
    BadPath { path: PathBuf },
    /// Other users could take or replace the path.
    #[error(
        "{dir} {what}: choose a directory that only this user or root may write, such as /run",
        dir = dir.display()
    )]
    ForeignDir { dir: PathBuf, what: &'static str },
    /// The path is something else.
    #[error("{path} is {what}: remove it, or choose another path", path = path.display())]
    NotASocket { path: PathBuf, what: &'static str },
    /// A living process listens there.
    #[error(
        "another process listens on {path}: end it, or choose another path",
        path = path.display()
    )]
    InUse { path: PathBuf },
    /// The peer could take both roles.
    #[error("channel {name} has no end here: take its role first, then offer it")]
    NoRole { name: String },
    /// Both ends of this kind write.
    #[error("channel {name} cannot be offered for reading: both of its ends write")]
    BothWrite { name: String },
    /// The peer could free huge pages, and our next access would end this process by SIGBUS.
    #[error("channel {name} has huge pages: offer it for reading, or allocate normal pages")]
    HugePages { name: String },
    /// The timeout passed.
    #[error("timed out at {path}", path = path.display())]
    TimedOut { path: PathBuf },
    /// Another thread ended the offer.
    #[error("the offer at {path} has ended", path = path.display())]
    Ended { path: PathBuf },
    /// No process listens there.
    #[error("no channel at {path}: start the program that offers it", path = path.display())]
    NotFound { path: PathBuf },
    /// The socket belongs to a process of another user.
    #[error(
        "{path} is served by user {found}, and not by root or user {asked}: \
         name that user if you trust it",
        path = path.display()
    )]
    WrongOwner { path: PathBuf, found: u32, asked: u32 },
    /// The program does not offer the channel to us.
    #[error(
        "{path} is not for user {user}: its program must name this user",
        path = path.display()
    )]
    NotForUs { path: PathBuf, user: u32 },
    /// The other program has no descriptor left.
    #[error("the program at {path} has no descriptor left: try again", path = path.display())]
    Busy { path: PathBuf },
    /// asmpd does not run.
    #[error("{path}: asmpd does not listen there: start it (systemctl start asmpd)",
        path = path.display())]
    NoKeeper { path: PathBuf },
    /// Another process of this user has registered a channel of this name.
    #[error("asmpd keeps another channel {name} of this user: end its program, or choose a name")]
    NameKept { name: String },
    /// asmpd keeps as many channels as it may.
    #[error("asmpd keeps too many channels: of a user other than root 16, of all those 112")]
    TooMany,
    /// More readers than one message has room for.
    #[error("{count} users and groups may have the channel: name at most {most}; groups do more")]
    TooManyReaders { count: usize, most: usize },
    /// asmpd does not keep this.
    #[error("asmpd does not keep channel {name}: {what}")]
    NotKept { name: String, what: &'static str },
    /// What came is no channel of this version of asmp.
    #[error("{path}: {what}", path = path.display())]
    BadMessage { path: PathBuf, what: &'static str },
    /// The memory that came cannot be used.
    #[error(transparent)]
    Shm(#[from] ShmError),
    /// A system call failed.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// A channel on a Unix socket, for users who cannot attach to it by its name. Dropping it removes
/// the socket. Peers keep what they have.
#[derive(Debug)]
pub struct Offer {
    listener: UnixListener,
    memory: File,
    access: Access,
    name: String,
    dir: File,
    path: PathBuf,
    socket: (u64, u64),
    users: Vec<u32>,
    refused: AtomicU64,
    ended: AtomicBool,
    /// The process that owns the socket: a forked child has a copy of this value.
    process: u32,
}

impl Offer {
    /// Offers a channel at `path` to root and to `users` (user IDs; none: the real user of this
    /// process). Take the role of our end first. Keeps the memory until it is dropped. For set-up
    /// only: allocates, makes system calls. Errors: all but those of [`receive()`].
    pub fn new(
        path: &Path,
        channel: &SharedMemory,
        access: Access,
        users: &[u32],
    ) -> Result<Self, OfferError> {
        let io = |cause| OfferError::Io { path: path.to_owned(), cause };
        let memory = given(channel, access, path)?;
        // SAFETY: takes nothing, cannot fail.
        let real_user = unsafe { libc::getuid() };
        let users = if users.is_empty() { vec![real_user] } else { users.to_vec() };
        let (dir, file_name) = place(path)?;
        // Short, whatever the directory's path: and no directory can take its place meanwhile.
        let inside = inside(&dir, file_name);
        clear_stale(&inside, path)?;
        let listener = UnixListener::bind(&inside).map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => OfferError::InUse { path: path.to_owned() },
            _ => io(error),
        })?;
        let admits = || {
            listener.set_nonblocking(true)?;
            admit(&inside, &users)?;
            inside.symlink_metadata()
        };
        let made = admits().inspect_err(|_| _ = std::fs::remove_file(&inside)).map_err(io)?;
        Ok(Self {
            listener,
            memory,
            access,
            name: channel.name().to_owned(),
            dir,
            path: path.to_owned(),
            socket: (made.dev(), made.ino()),
            users,
            refused: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            process: std::process::id(),
        })
    }

    /// Waits for one client that may have the channel, at most `timeout` (`None`: without limit),
    /// and hands it over. Users who may not have it are refused and counted. Blocks; allocates: not
    /// for real-time threads. Errors: `TimedOut`, `Ended`, `Io` (after at most 100 ms; the next
    /// call continues).
    pub fn serve_one(&self, timeout: Option<Duration>) -> Result<Peer, OfferError> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match self.accept() {
                Ok(Some(peer)) => return Ok(peer),
                Ok(None) if self.ended.load(Relaxed) => {
                    return Err(OfferError::Ended { path: self.path.clone() });
                }
                Ok(None) if end.is_some_and(|end| Instant::now() >= end) => {
                    return Err(OfferError::TimedOut { path: self.path.clone() });
                }
                Ok(None) => _ = wire::wait(self.listener.as_fd(), end),
                Err(cause) => {
                    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                    std::thread::sleep(left.map_or(PAUSE, |left| left.min(PAUSE)));
                    return Err(OfferError::Io { path: self.path.clone(), cause });
                }
            }
        }
    }

    /// Serves one client that waits already. `None`: there is none, or it got nothing. Errors:
    /// what keeps us from serving any.
    fn accept(&self) -> io::Result<Option<Peer>> {
        let client = match self.listener.accept() {
            Ok((client, _)) => client,
            Err(error) => {
                return match error.raw_os_error() {
                    // It has gone again, or another thread serves it, or a signal came.
                    Some(libc::EAGAIN | libc::ECONNABORTED | libc::EINTR) => Ok(None),
                    // After `end`, in some kernels.
                    Some(libc::EINVAL) if self.ended.load(Relaxed) => Ok(None),
                    _ => Err(error),
                };
            }
        };
        let peer = wire::peer(&client)?;
        if peer.user != 0 && !self.users.contains(&peer.user) {
            self.refused.fetch_add(1, Relaxed);
            let _ = wire::send(&client, Status::NotForYou, None, &self.name, None);
            return Ok(None);
        }
        let given = open_anew(&self.memory, self.access == Access::Write).and_then(|memory| {
            wire::send(&client, Status::Given, None, &self.name, Some(memory.as_fd()))
        });
        match given {
            Ok(()) => Ok(Some(peer)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {
                Ok(None)
            }
            Err(error) => {
                let _ = wire::send(&client, Status::Busy, None, &self.name, None);
                Err(error)
            }
        }
    }

    /// Ends the offer, also while another thread serves it: that gets `Ended`. One system call.
    pub fn end(&self) {
        // Relaxed: whom the shutdown wakes comes by here again until it sees this.
        self.ended.store(true, Relaxed);
        // SAFETY: the descriptor is open as long as `self`.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
    }

    /// A descriptor for poll(2): readable while a client waits.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many clients were refused, because the channel is not for their user.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let Some(file_name) = self.path.file_name() else { return };
        let inside = inside(&self.dir, file_name);
        let found = inside.symlink_metadata().map(|found| (found.dev(), found.ino()));
        if self.process == std::process::id() && found.is_ok_and(|found| found == self.socket) {
            let _ = std::fs::remove_file(inside);
        }
    }
}

/// What is given of a channel, with locks of its own. Errors: those of [`Offer::new`] about the
/// channel, with `path` where it goes.
pub(crate) fn given(
    channel: &SharedMemory,
    access: Access,
    path: &Path,
) -> Result<File, OfferError> {
    let io = |cause| OfferError::Io { path: path.to_owned(), cause };
    let name = channel.name().to_owned();
    match access {
        Access::Read if channel.kind() != Kind::Mbuff => {
            return Err(OfferError::BothWrite { name });
        }
        Access::Write if channel.kind() != Kind::Mbuff && !channel.holds_a_role() => {
            return Err(OfferError::NoRole { name });
        }
        Access::Write if wire::has_huge_pages(channel.as_fd()).map_err(io)? => {
            return Err(OfferError::HugePages { name });
        }
        Access::Write if !channel.is_writable() => {
            return Err(ShmError::ReadOnly { name }.into());
        }
        _ => {}
    }
    channel.open_again(access == Access::Write).map_err(io)
}

/// A file of an open directory, whatever its path names by now.
fn inside(dir: &File, file_name: &std::ffi::OsStr) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(file_name)
}

/// The directory of a socket and the name in it.
fn place(path: &Path) -> Result<(File, &std::ffi::OsStr), OfferError> {
    let bad = || OfferError::BadPath { path: path.to_owned() };
    let file_name = path.file_name().filter(|_| has_room(path)).ok_or_else(bad)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let io = |cause| OfferError::Io { path: parent.to_owned(), cause };
    let foreign = |what| OfferError::ForeignDir { dir: parent.to_owned(), what };
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(parent);
    let dir = dir.map_err(io)?;
    let metadata = dir.metadata().map_err(io)?;
    // SAFETY: takes nothing, cannot fail.
    if ![0, unsafe { libc::geteuid() }].contains(&metadata.uid()) {
        return Err(foreign("belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(foreign("may be written by other users"));
    }
    Ok((dir, file_name))
}

/// Whether a socket's address takes the path.
fn has_room(path: &Path) -> bool {
    path.as_os_str().len() <= MAX_PATH_BYTES
}

/// Removes a socket on which no process listens any more. Errors: `NotASocket`, `InUse`, `Io`.
fn clear_stale(inside: &Path, path: &Path) -> Result<(), OfferError> {
    let io = |cause| OfferError::Io { path: path.to_owned(), cause };
    let seen = match inside.symlink_metadata() {
        Ok(seen) => seen,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    if !seen.file_type().is_socket() {
        let what = if seen.is_symlink() { "a symbolic link" } else { "no socket" };
        return Err(OfferError::NotASocket { path: path.to_owned(), what });
    }
    match wire::connect(inside, Some(Duration::ZERO)) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(inside).map_err(io)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(OfferError::InUse { path: path.to_owned() }),
    }
}

/// Lets only those connect who may: the kernel refuses the others where one owner says it all.
fn admit(socket: &Path, users: &[u32]) -> io::Result<()> {
    // SAFETY: takes nothing, cannot fail.
    let me = unsafe { libc::geteuid() };
    let mut others = users.iter().filter(|user| ![0, me].contains(user));
    let mode = match (others.next(), others.next()) {
        (None, _) => 0o600,
        (Some(one), None) if me == 0 => {
            chown(socket, Some(*one), None)?;
            0o600
        }
        _ => 0o666,
    };
    std::fs::set_permissions(socket, Permissions::from_mode(mode))
}

#[cfg(all(test, not(miri)))]
#[path = "offer_tests.rs"]
mod tests;
