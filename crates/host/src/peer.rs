// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is at the other end of a Unix socket, as the kernel noted it at connect(2): unix(7),
//! SO_PEERCRED and SO_PEERGROUPS.

use std::collections::BTreeSet;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// The process that connected, as it was then. It may have ended since, and its number may be
/// another process's by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// 0 where this process cannot see it.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective and supplementary groups.
    pub groups: BTreeSet<u32>,
}

impl Peer {
    /// Errors: those of getsockopt(2).
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let libc::ucred { pid, uid, gid } = credentials(stream)?;
        let mut groups = supplementary(stream)?;
        groups.insert(gid);
        Ok(Self { pid, uid, groups })
    }
}

/// From now on the kernel refuses descriptors that anybody sends to a connection of this listener
/// (EPERM): to close one may wait for who sent it. Kernels before 6.16 cannot, and do not.
pub fn refuse_descriptors(listener: &UnixListener) -> io::Result<()> {
    pass_rights(listener.as_raw_fd(), 0)
}

/// From now on this connection takes descriptors, whatever its listener does.
pub fn take_descriptors(connection: &UnixStream) -> io::Result<()> {
    pass_rights(connection.as_raw_fd(), 1)
}

fn pass_rights(socket: RawFd, passes: libc::c_int) -> io::Result<()> {
    // asm-generic/socket.h; the libc crate does not have it yet.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let (value, bytes) = ((&raw const passes).cast(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel reads one int of ours.
    let result = unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, value, bytes) };
    let error = io::Error::last_os_error();
    match (result, error.raw_os_error()) {
        (0, _) | (_, Some(libc::ENOPROTOOPT)) => Ok(()),
        _ => Err(error),
    }
}

/// By hand: for rustix a process has a number, and one that is not seen from here has 0.
fn credentials(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` has room for so many bytes, and the kernel writes at most as many.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    match result {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}

fn supplementary(stream: &UnixStream) -> io::Result<BTreeSet<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: `groups` has room for so many bytes, and the kernel writes at most as many.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups.into_iter().collect());
        }
        let error = io::Error::last_os_error();
        // The kernel has told how many there are.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_this_process_with_all_its_groups() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(|number| number.parse().unwrap()).collect()
        };
        assert_eq!(peer.uid, numbers("Uid:")[1]);
        let gid = numbers("Gid:")[1];
        assert_eq!(peer.groups, numbers("Groups:").into_iter().chain([gid]).collect());
    }
}
