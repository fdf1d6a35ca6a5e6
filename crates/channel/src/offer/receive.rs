// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The side of the client.

use crate::keeper;
use crate::offer::wire::{self, Status, Taken};
use crate::offer::{OfferError, has_room};
use crate::shm::{Kind, SharedMemory, ShmError};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Receives the channel that a program offers at `path`, and waits for that program at most
/// `timeout` (`None`: without limit). It trusts a socket of root, and of user `owner` (a user ID;
/// `None`: this user). Of what asmpd keeps, it trusts channels of the same users, and the one whose
/// user and name `path` spells out below [`keeper::DIR`]. Turn the memory into a channel with
/// `from_shared`. For set-up only: allocates and blocks. Errors: `BadPath`, `NotFound`,
/// `NotASocket`, `WrongOwner`, `NotForUs`, `Busy`, `TimedOut`, `BadMessage`, `Shm` (`Mismatch`,
/// `NoRoom`), `Io`.
pub fn receive(
    path: &Path,
    owner: Option<u32>,
    kind: Kind,
    timeout: Option<Duration>,
) -> Result<SharedMemory, OfferError> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    // SAFETY: takes nothing, cannot fail.
    let me = unsafe { libc::geteuid() };
    if !has_room(path) {
        return Err(OfferError::BadPath { path: path.to_owned() });
    }
    let socket = connect(path, me, end)?;
    let io = |cause| OfferError::Io { path: path.to_owned(), cause };
    let server = wire::peer(&socket).map_err(io)?.user;
    let asked = owner.unwrap_or(me);
    if ![0, asked].contains(&server) {
        return Err(OfferError::WrongOwner { path: path.to_owned(), found: server, asked });
    }
    let Taken { status, kept_for, name, descriptor } = loop {
        match wire::take(&socket, path)? {
            Some(taken) => break taken,
            None if end.is_some_and(|end| Instant::now() >= end) => {
                return Err(OfferError::TimedOut { path: path.to_owned() });
            }
            None => _ = wire::wait(socket.as_fd(), end),
        }
    };
    // Any user can have asmpd keep a channel, and lead us there by a link in the path.
    let from = kept_for.filter(|_| server == 0).unwrap_or(server);
    let is_named = path == keeper::path_of(Path::new(keeper::DIR), from, &name);
    if ![0, me, asked].contains(&from) && !is_named {
        return Err(OfferError::WrongOwner { path: path.to_owned(), found: from, asked });
    }
    let descriptor = match (status, descriptor) {
        (Status::Given, Some(descriptor)) => descriptor,
        (Status::Busy, _) => return Err(OfferError::Busy { path: path.to_owned() }),
        _ => return Err(OfferError::NotForUs { path: path.to_owned(), user: me }),
    };
    // Who writes to huge pages can free them, and our next access would end this process.
    if ![0, me].contains(&from) && wire::has_huge_pages(descriptor.as_fd()).map_err(io)? {
        let found = format!("user {from} offers huge pages: ask for normal ones");
        return Err(ShmError::Mismatch { name, found }.into());
    }
    Ok(SharedMemory::from_fd(descriptor, &name, kind)?)
}

/// A connection to the socket itself, and not to one that a link at its place names.
fn connect(path: &Path, me: u32, end: Option<Instant>) -> Result<UnixStream, OfferError> {
    let io = |cause| OfferError::Io { path: path.to_owned(), cause };
    let refused = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ECONNREFUSED) => OfferError::NotFound { path: path.to_owned() },
        Some(libc::EACCES) => OfferError::NotForUs { path: path.to_owned(), user: me },
        Some(libc::EAGAIN) => OfferError::TimedOut { path: path.to_owned() },
        _ => io(error),
    };
    let found = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)
        .map_err(refused)?;
    let kind = found.metadata().map_err(io)?.file_type();
    if !kind.is_socket() {
        let what = if kind.is_symlink() { "a symbolic link" } else { "no socket" };
        return Err(OfferError::NotASocket { path: path.to_owned(), what });
    }
    // It bounds the wait for a program that takes no client.
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    // The open file, whatever its path names by now.
    let found = format!("/proc/self/fd/{}", found.as_raw_fd());
    wire::connect(Path::new(&found), left).map_err(refused)
}
