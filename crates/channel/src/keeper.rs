// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program and asmpd say to each other about the channels that asmpd keeps. For asmpd;
//! programs use [`Kept`](crate::Kept) and [`receive`](crate::receive()).
//!
//! The program connects to [`REGISTER`] below [`DIR`]. asmpd says [`Reply::Ready`], or why not:
//! only then the connection takes descriptors. The program sends one [`Registration`] with the
//! descriptor of the memory, and asmpd answers with one [`Reply`]. Then nothing more is said: asmpd
//! keeps the channel as long as the connection lasts.

use crate::offer::wire::{self, Status};
use crate::offer::{Access, OfferError};
use crate::shm::{SEALS, open_anew};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Below it each user who registers has a directory named by the user's number, and there each
/// channel is a socket.
pub const DIR: &str = "/run/asmpd/channels";
/// The socket on which programs register.
pub const REGISTER: &str = "register";
/// Users and groups, together, whom a registration may name.
pub const MOST_READERS: usize = 64;

/// Its last byte is the version.
const MAGIC: [u8; 8] = *b"ASMPKEP\x01";
const NAME_BYTES: usize = 64;
/// Bytes of a registration: magic; access, number of users, number of groups, filled up to 8; name;
/// readers.
pub const BYTES: usize = 8 + 8 + NAME_BYTES + 4 * MOST_READERS;
pub(crate) const REPLY_BYTES: usize = 16;

/// Which channel, and who else than its user and root may have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    pub name: String,
    pub access: Access,
    /// User IDs.
    pub users: Vec<u32>,
    /// Group IDs.
    pub groups: Vec<u32>,
}

/// What asmpd says to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Kept = 0,
    /// It keeps another channel of this name and user.
    NameKept = 1,
    /// It keeps as many as it may, of this user or of all.
    TooMany = 2,
    /// The descriptor is not the memory of that channel, open for what it is to give.
    NoChannel = 3,
    /// A user's huge pages: the user could free them, and a program that reads them would end.
    HugePages = 4,
    /// The kernel had no descriptor or memory left.
    Busy = 5,
    /// The program may register.
    Ready = 6,
}

impl Registration {
    /// What is sent. Errors: `TooManyReaders`.
    pub fn to_bytes(&self) -> Result<[u8; BYTES], OfferError> {
        let count = self.users.len() + self.groups.len();
        if count > MOST_READERS {
            return Err(OfferError::TooManyReaders { count, most: MOST_READERS });
        }
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = u8::from(self.access == Access::Write);
        bytes[9] = self.users.len() as u8;
        bytes[10] = self.groups.len() as u8;
        bytes[16..16 + self.name.len()].copy_from_slice(self.name.as_bytes());
        let readers = bytes[16 + NAME_BYTES..].chunks_exact_mut(4);
        for (place, id) in readers.zip(self.users.iter().chain(&self.groups)) {
            place.copy_from_slice(&id.to_le_bytes());
        }
        Ok(bytes)
    }

    /// `None`: no registration of this version, or one that says what cannot be.
    fn of_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        let access = match bytes[8] {
            0 => Access::Read,
            1 => Access::Write,
            _ => return None,
        };
        let (users, groups) = (usize::from(bytes[9]), usize::from(bytes[10]));
        let name = &bytes[16..16 + NAME_BYTES];
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let name = str::from_utf8(&name[..length]).ok()?;
        let is_clean = bytes[..8] == MAGIC
            && bytes[11..16]
                .iter()
                .chain(&bytes[16 + length..16 + NAME_BYTES])
                .all(|one| *one == 0)
            && users + groups <= MOST_READERS
            && is_channel_name(name);
        let readers = bytes[16 + NAME_BYTES..].chunks_exact(4);
        let mut readers =
            readers.map(|id| id.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)));
        let users = readers.by_ref().take(users).collect();
        let groups = readers.by_ref().take(groups).collect();
        is_clean.then(|| Self { name: name.to_owned(), access, users, groups })
    }

    /// Takes what a program has sent; does not wait. `Ok(None)`: nothing came yet. `Err`: the
    /// program said something else, or has gone; what came is closed, which may wait for the
    /// program that serves that file.
    pub fn take(from: &UnixStream) -> io::Result<Option<(Self, OwnedFd)>> {
        let mut bytes = [0; BYTES];
        let (count, mut descriptors) = match wire::take_bytes(from, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            taken => taken?,
        };
        let one = descriptors.pop().filter(|_| descriptors.is_empty() && count == BYTES);
        let registration = Self::of_bytes(&bytes);
        registration.zip(one).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Is this descriptor the memory of that channel, open for what is to be given? `is_trusted`:
    /// its user may have huge pages. Asks no file system of a user's.
    pub fn check(&self, descriptor: &OwnedFd, is_trusted: bool) -> Result<(), Reply> {
        // SAFETY: takes numbers.
        let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) };
        // Who keeps it may open it for more than the program could.
        let is_open = match (self.access, flags & libc::O_ACCMODE) {
            _ if flags < 0 => false,
            (Access::Read, mode) => matches!(mode, libc::O_RDONLY | libc::O_RDWR),
            (Access::Write, mode) => mode == libc::O_RDWR,
        };
        // SAFETY: takes numbers. Only files in memory have seals, and O_PATH shows none.
        let seals = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GET_SEALS) };
        let is_writable = seals & (libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE) == 0;
        let is_sealed =
            seals >= 0 && seals & SEALS == SEALS && (is_writable || self.access == Access::Read);
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let is_named = || {
            let named = Path::new(&path).read_link();
            named.is_ok_and(|to| {
                to.to_str() == Some(&*format!("/memfd:asmp:{} (deleted)", self.name))
            })
        };
        if !(is_open && is_sealed && is_named()) {
            return Err(Reply::NoChannel);
        }
        match wire::has_huge_pages(descriptor.as_fd()) {
            Ok(true) if !is_trusted => Err(Reply::HugePages),
            Ok(_) => Ok(()),
            Err(_) => Err(Reply::Busy),
        }
    }
}

/// Letters, digits, '-' and '_', at most 64 bytes.
pub fn is_channel_name(name: &str) -> bool {
    crate::names::check_name(name).is_ok()
}

/// Answers a program. Does not wait.
pub fn reply(to: &UnixStream, reply: Reply) -> io::Result<()> {
    let mut bytes = [0; REPLY_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = reply as u8;
    wire::send_bytes(to, &bytes, None)
}

/// The reply of these bytes.
pub(crate) fn reply_of(bytes: &[u8; REPLY_BYTES]) -> Option<Reply> {
    use Reply::{Busy, HugePages, Kept, NameKept, NoChannel, Ready, TooMany};
    let all = [Kept, NameKept, TooMany, NoChannel, HugePages, Busy, Ready];
    all.into_iter().find(|one| bytes[..8] == MAGIC && *one as u8 == bytes[8])
}

/// Gives the memory of a kept channel to a program that waits for it in
/// [`receive`](crate::receive()), with locks of its own. Does not wait. Errors: it has gone,
/// or no descriptor is left.
pub fn give(
    to: &UnixStream,
    registration: &Registration,
    user: u32,
    memory: &File,
) -> io::Result<()> {
    let name = &registration.name;
    let given = open_anew(memory, registration.access == Access::Write)
        .and_then(|memory| wire::send(to, Status::Given, Some(user), name, Some(memory.as_fd())));
    given.inspect_err(|_| _ = wire::send(to, Status::Busy, Some(user), name, None))
}

/// Tells a program that the channel is not for its user. Does not wait.
pub fn refuse(to: &UnixStream, registration: &Registration) {
    let _ = wire::send(to, Status::NotForYou, None, &registration.name, None);
}

/// Where programs receive the channel of this name that a process of this user has registered.
pub fn path_of(dir: &Path, user: u32, name: &str) -> PathBuf {
    dir.join(user.to_string()).join(name)
}
