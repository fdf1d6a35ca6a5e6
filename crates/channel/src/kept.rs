// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A channel that asmpd keeps: programs of other users receive it by the name of its user and its
//! own, and this process serves no socket.
//!
//! The channel is at `/run/asmpd/channels/USER/NAME` from [`Kept::new`] until the value is dropped
//! or the process ends, and its forked children with it. Any user sees the name. Programs receive
//! it by [`receive`](crate::receive()), as an offered one: the kernel says that root serves it, and
//! asmpd says which user has registered it.
//!
//! asmpd forgets all channels when it ends. [`Kept::renew`] registers again.

use crate::keeper::{BYTES, DIR, REGISTER, REPLY_BYTES, Registration, Reply, path_of, reply_of};
use crate::names::me;
use crate::offer::{Access, OfferError, given, wire};
use crate::shm::SharedMemory;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long asmpd may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who else than the user of this process and root may have a channel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Readers<'a> {
    /// User IDs.
    pub users: &'a [u32],
    /// Group IDs: effective and supplementary groups of who asks.
    pub groups: &'a [u32],
}

/// A channel that asmpd keeps until this is dropped.
#[derive(Debug)]
pub struct Kept {
    connection: UnixStream,
    memory: File,
    message: [u8; BYTES],
    name: String,
    dir: PathBuf,
    /// Who registered it: where the channel is.
    user: u32,
}

impl Kept {
    /// Registers a channel with asmpd. Of FIFOs and calls, take the role of our end first. For
    /// set-up only: allocates, makes system calls, waits for asmpd up to 10 s. Errors: `NoKeeper`,
    /// `NameKept`, `TooMany`, `TooManyReaders`, `NotKept`, `BothWrite`, `NoRole`, `HugePages`,
    /// `WrongOwner`, `Busy`, `TimedOut`, `BadMessage`, `Shm`, `Io`.
    pub fn new(
        channel: &SharedMemory,
        access: Access,
        readers: Readers,
    ) -> Result<Self, OfferError> {
        Self::at(Path::new(DIR), channel, access, readers)
    }

    /// The same with an asmpd whose sockets are in another directory.
    pub fn at(
        dir: &Path,
        channel: &SharedMemory,
        access: Access,
        Readers { users, groups }: Readers,
    ) -> Result<Self, OfferError> {
        let name = channel.name().to_owned();
        let (users, groups) = (users.to_vec(), groups.to_vec());
        let message = Registration { name: name.clone(), access, users, groups }.to_bytes()?;
        let memory = given(channel, access, dir)?;
        let connection = register(dir, &name, &message, &memory)?;
        Ok(Self { connection, memory, message, name, dir: dir.to_owned(), user: me() })
    }

    /// Registers again if asmpd has ended meanwhile; false if it has not. Call it each second, or
    /// when [`Kept::as_fd`] is readable, on a thread of ordinary priority. Costs two system calls
    /// where there is nothing to do. Errors: as for `new`; `NoKeeper` until asmpd runs again;
    /// `NotKept` if this process has another user ID by now, and so the channel would have another
    /// path.
    pub fn renew(&mut self) -> Result<bool, OfferError> {
        let mut byte = [0];
        let said = wire::take_bytes(&self.connection, &mut byte);
        let is_open = said.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        // A keeper that was killed and cannot end has the connection open still.
        if is_open && self.path().symlink_metadata().is_ok() {
            return Ok(false);
        }
        if me() != self.user {
            let what = "its process had another user ID when it registered the channel";
            return Err(OfferError::NotKept { name: self.name.clone(), what });
        }
        self.connection = register(&self.dir, &self.name, &self.message, &self.memory)?;
        Ok(true)
    }

    /// Where programs receive the channel.
    pub fn path(&self) -> PathBuf {
        path_of(&self.dir, self.user, &self.name)
    }

    /// For poll(2): readable once asmpd has ended.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// A connection on which asmpd has said that it keeps the channel.
fn register(
    dir: &Path,
    name: &str,
    message: &[u8; BYTES],
    memory: &File,
) -> Result<UnixStream, OfferError> {
    let path = dir.join(REGISTER);
    let io = |cause| OfferError::Io { path: path.clone(), cause };
    let end = Instant::now() + PATIENCE;
    let connection =
        wire::connect(&path, Some(PATIENCE)).map_err(|cause| match cause.raw_os_error() {
            Some(libc::ENOENT | libc::ECONNREFUSED) => OfferError::NoKeeper { path: path.clone() },
            Some(libc::EAGAIN) => OfferError::TimedOut { path: path.clone() },
            _ => io(cause),
        })?;
    let found = wire::peer(&connection).map_err(io)?.user;
    if ![0, me()].contains(&found) {
        return Err(OfferError::WrongOwner { path, found, asked: 0 });
    }
    hear(&connection, Reply::Ready, name, &path, end)?;
    wire::send_bytes(&connection, message, Some(memory.as_fd()))
        .map_err(|cause| gone(cause, &path))?;
    hear(&connection, Reply::Kept, name, &path, end)?;
    Ok(connection)
}

/// Waits until asmpd says this. Errors: why it says something else.
fn hear(
    connection: &UnixStream,
    wanted: Reply,
    name: &str,
    path: &Path,
    end: Instant,
) -> Result<(), OfferError> {
    let mut bytes = [0; REPLY_BYTES];
    let count = loop {
        match wire::take_bytes(connection, &mut bytes) {
            Ok((count, _)) => break count,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(gone(error, path));
            }
            Err(_) if Instant::now() >= end => {
                return Err(OfferError::TimedOut { path: path.to_owned() });
            }
            Err(_) => _ = wire::wait(connection.as_fd(), Some(end)),
        }
    };
    let (name, path) = (name.to_owned(), path.to_owned());
    Err(match reply_of(&bytes).filter(|_| count == REPLY_BYTES) {
        Some(reply) if reply == wanted => return Ok(()),
        Some(Reply::NameKept) => OfferError::NameKept { name },
        Some(Reply::TooMany) => OfferError::TooMany,
        Some(Reply::NoChannel) => {
            OfferError::NotKept { name, what: "what it got is not the memory of that channel" }
        }
        Some(Reply::HugePages) => {
            OfferError::NotKept { name, what: "of huge pages only root's are kept" }
        }
        Some(Reply::Busy) => OfferError::Busy { path },
        None if count == 0 => OfferError::NoKeeper { path },
        _ => OfferError::BadMessage { path, what: "asmpd is of another version: update it" },
    })
}

fn gone(cause: io::Error, path: &Path) -> OfferError {
    let path = path.to_owned();
    match cause.raw_os_error() {
        Some(libc::EPIPE | libc::ECONNRESET) => OfferError::NoKeeper { path },
        _ => OfferError::Io { path, cause },
    }
}
