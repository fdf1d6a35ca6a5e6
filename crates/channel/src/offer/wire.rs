// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes over the socket: one message from the program to its client, with one descriptor.

use crate::offer::OfferError;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Its last byte is the version.
const MAGIC: [u8; 8] = *b"ASMPGIV\x01";
/// Bytes of a message: magic, status, 1 where asmpd keeps the channel, 2 bytes, the user who has
/// registered it there; name, filled up with 0.
const BYTES: usize = 8 + 8 + 64;
/// Descriptors to make room for: one more than one shows that there are too many.
const ROOM: usize = 4;

/// What the program says to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The message carries the descriptor of the channel's memory.
    Given = 0,
    /// The channel is for other users.
    NotForYou = 1,
    /// The program has no descriptor left.
    Busy = 2,
}

/// What came of it.
#[derive(Debug)]
pub struct Taken {
    pub status: Status,
    /// asmpd keeps the channel, which this user has registered.
    pub kept_for: Option<u32>,
    pub name: String,
    pub descriptor: Option<OwnedFd>,
}

/// The process at the other end of a socket, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user ID when it connected.
    pub user: u32,
    /// Its process ID when it connected; 0 if it is in another PID namespace.
    pub process: u32,
}

/// Who is at the other end: who connected, or who listens.
pub fn peer(socket: &UnixStream) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into a local of that size.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    match got {
        0 => Ok(Peer { user: peer.uid, process: u32::try_from(peer.pid).unwrap_or(0) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Connects, and waits for room among those who wait at most `at_most` (`None`: without limit).
/// Goes on after a signal. Errors: EAGAIN (the time is up), ECONNREFUSED (no process listens).
pub fn connect(to: &Path, at_most: Option<Duration>) -> io::Result<UnixStream> {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor from the kernel, which nothing else owns.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // 0 would be no limit.
    socket.set_write_timeout(at_most.map(|at_most| at_most.max(Duration::from_millis(1))))?;
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = to.as_os_str().as_bytes();
    if path.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(path) {
        *place = *byte as libc::c_char;
    }
    let bytes = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    loop {
        // SAFETY: the address is a local of this length.
        if unsafe { libc::connect(fd, (&raw const address).cast(), bytes) } == 0 {
            return Ok(socket);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// Waits until the descriptor is readable, or `end` (`None`: without limit). False: the time is up.
/// A signal ends it early.
pub fn wait(fd: BorrowedFd<'_>, end: Option<Instant>) -> bool {
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    // Rounded up: never early.
    let ms =
        |left: Duration| i32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd of ours that outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, left.map_or(-1, ms)) != 0 }
}

/// Control bytes for `ROOM` descriptors, aligned for their header.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a message, with a descriptor. `kept_for`: the user for whom asmpd keeps the channel. Does
/// not wait. Errors: EPIPE, ECONNRESET (it has gone),
/// ETOOMANYREFS (too many descriptors of this user are on their way).
pub fn send(
    socket: &UnixStream,
    status: Status,
    kept_for: Option<u32>,
    name: &str,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut bytes = [0u8; BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = status as u8;
    if let Some(user) = kept_for {
        bytes[9] = 1;
        bytes[12..16].copy_from_slice(&user.to_le_bytes());
    }
    bytes[16..16 + name.len()].copy_from_slice(name.as_bytes());
    send_bytes(socket, &bytes, descriptor)
}

/// The same of any bytes.
pub fn send_bytes(
    socket: &UnixStream,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut control = Control([0; 64]);
    // The kernel only reads them.
    let start = bytes.as_ptr().cast_mut().cast();
    let mut part = libc::iovec { iov_base: start, iov_len: bytes.len() };
    let mut message = message(&mut part);
    if let Some(descriptor) = descriptor {
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: computes a number.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;
        // SAFETY: the control bytes are there and long enough for one header.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: as above; nothing else refers to it.
        let header = unsafe { &mut *header };
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: computes a number.
        header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<i32>() as u32) } as usize;
        // SAFETY: behind the header there is room for one descriptor.
        let place = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: as above; the place need not be aligned.
        unsafe { place.cast::<i32>().write_unaligned(descriptor.as_raw_fd()) };
    }
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: all that `message` points to outlives the call.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) } {
        sent if sent == bytes.len() as isize => Ok(()),
        0.. => Err(io::ErrorKind::WriteZero.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the message and its descriptor. `None`: nothing came yet. Does not wait. Errors:
/// `BadMessage`, `Io`; all descriptors that came are closed then.
pub fn take(socket: &UnixStream, path: &Path) -> Result<Option<Taken>, OfferError> {
    let bad = |what| OfferError::BadMessage { path: path.to_owned(), what };
    let ended = || bad("its program ended before it handed the channel over: try again");
    let mut bytes = [0u8; BYTES];
    let (count, mut descriptors) = match take_bytes(socket, &mut bytes) {
        Ok((0, _)) => return Err(ended()),
        Ok(taken) => taken,
        Err(cause) => {
            return match cause.raw_os_error() {
                Some(libc::EAGAIN) => Ok(None),
                // Before it accepted us.
                Some(libc::ECONNRESET) => Err(ended()),
                Some(libc::EMFILE) => {
                    Err(bad("this process may not open more files: raise its limit (ulimit -n)"))
                }
                Some(libc::EMSGSIZE) => Err(bad(NO_CHANNEL)),
                _ => Err(OfferError::Io { path: path.to_owned(), cause }),
            };
        }
    };
    let name = bytes[16..].split(|byte| *byte == 0).next().and_then(|n| str::from_utf8(n).ok());
    let status = [Status::Given, Status::NotForYou, Status::Busy]
        .into_iter()
        .find(|status| *status as u8 == bytes[8]);
    match (status, name) {
        (Some(status), Some(name))
            if count == BYTES
                && bytes[..8] == MAGIC
                && descriptors.len() == usize::from(status == Status::Given) =>
        {
            let user = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
            let kept_for = (bytes[9] == 1).then_some(user);
            let name = name.to_owned();
            Ok(Some(Taken { status, kept_for, name, descriptor: descriptors.pop() }))
        }
        _ => Err(bad(NO_CHANNEL)),
    }
}

const NO_CHANNEL: &str = "what listens there offers no channel of this version of asmp: update it";

/// Takes bytes and the descriptors that came with them: how many bytes; 0 is the end. Does not
/// wait. Errors: EAGAIN (nothing came yet), ECONNRESET, EMFILE (this process has no descriptor
/// left), EMSGSIZE (too many came; all are closed then).
pub fn take_bytes(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = message(&mut part);
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: computes a number.
    let room = unsafe { libc::CMSG_SPACE((ROOM * size_of::<i32>()) as u32) } as usize;
    message.msg_controllen = room.min(control.0.len());
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: all that `message` points to outlives the call, with the lengths it says.
    let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let Ok(count) = usize::try_from(count) else {
        let cause = io::Error::last_os_error();
        return Err(match cause.raw_os_error() {
            Some(libc::EINTR) => io::Error::from_raw_os_error(libc::EAGAIN),
            _ => cause,
        });
    };
    let descriptors = descriptors(&message);
    match (message.msg_flags & libc::MSG_CTRUNC != 0, descriptors.is_empty()) {
        (false, _) => Ok((count, descriptors)),
        (true, true) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        (true, false) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
    }
}

/// A message of one part, without control bytes.
fn message(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all zeros is a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

/// All descriptors that came with a message; each is ours now.
fn descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the kernel filled the control bytes in; the macros stay inside their length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or a header inside the control bytes.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: computes a number.
            let bytes = header.cmsg_len - unsafe { libc::CMSG_LEN(0) } as usize;
            // SAFETY: computes an address inside the control bytes.
            let data = unsafe { libc::CMSG_DATA(header) };
            for at in 0..bytes / size_of::<i32>() {
                // SAFETY: inside the data of this header.
                let place = unsafe { data.cast::<i32>().add(at) };
                // SAFETY: as above; it need not be aligned.
                let fd = unsafe { place.read_unaligned() };
                // SAFETY: the kernel has just opened it for us.
                all.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    all
}

/// Whether the memory has pages of the kernel's pool.
pub fn has_huge_pages(memory: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: all zeros is a valid statfs structure.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one statfs into a local.
    match unsafe { libc::fstatfs(memory.as_raw_fd(), &raw mut found) } {
        0 => Ok(found.f_type == libc::HUGETLBFS_MAGIC),
        _ => Err(io::Error::last_os_error()),
    }
}
