// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Channels for programs of other users, over a Unix socket ([`asmp_channel::Offer`]), which
//! RTLinux does not have.

use crate::fifo::named::{self, ASMP_FIFO_WAKE, asmp_fifo};
use crate::mbuff::{self, asmp_record};
use crate::slices::in_slices;
use crate::thread::{PTHREAD_CANCEL_DISABLE, pthread_setcancelstate};
use crate::why::{self, keep, pointer, timeout};
use asmp_channel::{Access, Fifo, Kind, Offer, OfferError, RawRecord, SharedMemory, receive};
use std::ffi::{CStr, OsStr, c_char, c_int, c_longlong, c_uint};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Flag of asmp_record_offer: those who receive the record may write it. Without it they map it for
/// reading.
pub const ASMP_OFFER_WRITE: u32 = 1;

/// A channel on a Unix socket, for programs of other users.
#[allow(non_camel_case_types)]
pub struct asmp_offer {
    offer: Offer,
}

/// Runs `work` in a thread that is not cancelled meanwhile: it owns memory and descriptors.
pub(crate) fn not_cancelled<T>(work: impl FnOnce() -> T) -> T {
    let mut before = 0;
    // SAFETY: writes one int into a local.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    let value = work();
    // SAFETY: the state that it had; writes one int into a local.
    unsafe { pthread_setcancelstate(before, &raw mut before) };
    value
}

/// What an error is in C, negative, its line kept.
pub(crate) fn number(error: &OfferError) -> c_int {
    let number = match error {
        OfferError::BadPath { .. } => -libc::ENAMETOOLONG,
        OfferError::ForeignDir { .. } | OfferError::NotForUs { .. } => -libc::EACCES,
        OfferError::NotASocket { .. } => -libc::ENOTSOCK,
        OfferError::InUse { .. } => -libc::EADDRINUSE,
        OfferError::NoRole { .. } | OfferError::BothWrite { .. } | OfferError::HugePages { .. } => {
            -libc::EINVAL
        }
        OfferError::TimedOut { .. } => -libc::ETIMEDOUT,
        OfferError::Ended { .. } => -libc::ECANCELED,
        OfferError::NotFound { .. } => -libc::ENODEV,
        OfferError::WrongOwner { .. } => -libc::EPERM,
        OfferError::Busy { .. } => -libc::EAGAIN,
        OfferError::NoKeeper { .. } => -libc::ENOTCONN,
        OfferError::NameKept { .. } => -libc::EEXIST,
        OfferError::TooMany => -libc::EDQUOT,
        OfferError::TooManyReaders { .. } => -libc::E2BIG,
        OfferError::NotKept { .. } | OfferError::BadMessage { .. } => -libc::EPROTO,
        OfferError::Shm(error) => why::number(error),
        OfferError::Io { cause, .. } => -cause.raw_os_error().unwrap_or(libc::EIO),
    };
    keep(number, error)
}

/// A path that C gave. Errors: EINVAL.
///
/// # Safety
/// `path` is null or points to a C string that outlives the result.
unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, c_int> {
    if path.is_null() {
        return Err(keep(-libc::EINVAL, &"the path is null: give one"));
    }
    // SAFETY: not null, and the caller vouches for the rest.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// # Safety
/// `path` is null or a C string; `users` points to `count` user IDs, or `count` is 0.
unsafe fn offer(
    channel: &SharedMemory,
    at: *const c_char,
    access: Access,
    users: *const c_uint,
    count: usize,
) -> Result<*mut asmp_offer, c_int> {
    // SAFETY: the caller vouches for it.
    let at = unsafe { path(at) }?;
    let users = match count {
        0 => &[],
        _ if users.is_null() => return Err(keep(-libc::EINVAL, &"the users are null: give them")),
        // SAFETY: not null, and the caller vouches for the length.
        _ => unsafe { std::slice::from_raw_parts(users, count) },
    };
    let offer = not_cancelled(|| Offer::new(at, channel, access, users));
    Ok(Box::into_raw(Box::new(asmp_offer { offer: offer.map_err(|error| number(&error))? })))
}

/// What flags of a record say. Errors: EINVAL.
pub(crate) fn access_of(flags: c_int) -> Result<Access, c_int> {
    match u32::try_from(flags) {
        Ok(0) => Ok(Access::Read),
        Ok(ASMP_OFFER_WRITE) => Ok(Access::Write),
        _ => Err(keep(-libc::EINVAL, &format_args!("invalid flags {flags:#x}: use 0 or 0x1"))),
    }
}

/// Offers a FIFO at the Unix socket `path` to root and to `count` users (user IDs; 0: the real user
/// of this process), who cannot attach to it by its name. Put or get first (0 bytes will
/// do): this end then has a role, and the one that receives the FIFO has the other. They get this
/// FIFO and nothing else; they can write anything into its memory. Call asmp_offer_serve in a
/// thread of ordinary priority.
///
/// The directory of `path` must belong to this user or to root, and other users must not write
/// there: /run, for example. A socket that a dead process left there is replaced. For set-up only:
/// allocates, makes system calls. End it with asmp_offer_close, before or after the FIFO.
///
/// Returns the offer. On error returns null, and sets errno and asmp_why():
/// - EINVAL: no path or no users, or this end has no role yet
/// - EACCES: the directory of the path
/// - EADDRINUSE, ENOTSOCK: a living process listens there; it is something else
/// - ENAMETOOLONG: the path has more than 107 bytes
/// - EMFILE: too many open files
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create, asmp_fifo_attach or asmp_fifo_receive; `path` is a
/// C string; `users` points to `count` user IDs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_offer(
    fifo: *const asmp_fifo,
    path: *const c_char,
    users: *const c_uint,
    count: usize,
) -> *mut asmp_offer {
    // SAFETY: the caller vouches for it.
    let fifo = unsafe { named::fifo(fifo) };
    let fifo = fifo.ok_or_else(|| keep(-libc::EINVAL, &"the FIFO is null: create one"));
    // SAFETY: the caller vouches for it.
    let made = |fifo: &Fifo| unsafe { offer(fifo.shared(), path, Access::Write, users, count) };
    pointer(fifo.and_then(made))
}

/// Offers a record as asmp_fifo_offer does a FIFO. `flags`: 0, who receives it can only read it; or
/// ASMP_OFFER_WRITE. Costs and errors are those of asmp_fifo_offer.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc, asmp_record_attach or asmp_record_receive;
/// `path` is a C string; `users` points to `count` user IDs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_offer(
    record: *const asmp_record,
    path: *const c_char,
    flags: c_int,
    users: *const c_uint,
    count: usize,
) -> *mut asmp_offer {
    // SAFETY: the caller vouches for it.
    let record = unsafe { record.as_ref() }.and_then(|record| record.record().ok());
    let record = record.ok_or_else(|| keep(-libc::EINVAL, &"the record is null: allocate one"));
    pointer(access_of(flags).and_then(|access| {
        // SAFETY: the caller vouches for it.
        unsafe { offer(record?.shared(), path, access, users, count) }
    }))
}

/// Waits for one client that may have the channel, at most `timeout_ns` nanoseconds (below 0:
/// without limit; 0: does not wait), and hands the channel over. It never waits for what a client
/// does. Other users are refused. Blocks; allocates: not for real-time threads. A cancellation
/// point (within 100 ms).
///
/// Returns 0, or an error:
/// - -ETIMEDOUT: the timeout passed
/// - -ECANCELED: asmp_offer_end was called
/// - -EMFILE, -ENFILE, -ENOMEM: no descriptor for a client; call again
/// - -EINVAL: no offer
///
/// # Safety
/// `offer` is null or came from asmp_fifo_offer or asmp_record_offer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn asmp_offer_serve(
    offer: *const asmp_offer,
    timeout_ns: c_longlong,
) -> c_int {
    // SAFETY: the caller vouches for it.
    let Some(offer) = (unsafe { offer.as_ref() }) else { return -libc::EINVAL };
    in_slices(timeout_ns, |timeout| {
        not_cancelled(|| offer.offer.serve_one(timeout).map_or_else(|error| number(&error), |_| 0))
    })
}

/// Returns a descriptor for poll and the like, or -EINVAL: no offer. It is readable while a client
/// waits; asmp_offer_serve with a timeout of 0 then serves it. It belongs to the offer.
///
/// # Safety
/// `offer` is null or came from asmp_fifo_offer or asmp_record_offer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_offer_fd(offer: *const asmp_offer) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { offer.as_ref() }.map_or(-libc::EINVAL, |offer| offer.offer.as_fd().as_raw_fd())
}

/// Ends the offer: asmp_offer_serve returns -ECANCELED, also in another thread that waits there.
/// Ignores null. One system call.
///
/// # Safety
/// `offer` is null or came from asmp_fifo_offer or asmp_record_offer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_offer_end(offer: *const asmp_offer) {
    // SAFETY: the caller vouches for it.
    if let Some(offer) = unsafe { offer.as_ref() } {
        offer.offer.end();
    }
}

/// Removes the socket and releases the offer. Who has received the channel keeps it. Ignores null.
/// For set-up only: makes system calls.
///
/// # Safety
/// `offer` is null or came from asmp_fifo_offer or asmp_record_offer, no other thread uses it, and
/// it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_offer_close(offer: *mut asmp_offer) {
    if !offer.is_null() {
        // SAFETY: made by Box::into_raw in `offer`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(offer) });
    }
}

/// # Safety
/// As [`path`].
unsafe fn memory(
    at: *const c_char,
    owner: c_longlong,
    kind: Kind,
    timeout_ns: c_longlong,
) -> Result<SharedMemory, c_int> {
    // SAFETY: the caller vouches for it.
    let at = unsafe { path(at) }?;
    let owner = match owner {
        ..0 => None,
        id => Some(u32::try_from(id).map_err(|_| keep(-libc::EINVAL, &"no such user ID"))?),
    };
    let received = not_cancelled(|| receive(at, owner, kind, timeout(timeout_ns)));
    received.map_err(|error| number(&error))
}

/// Receives the FIFO that a program of another user offers at `path`. It trusts programs of root
/// and of user `owner` (a user ID; below 0: this user). Waits at most `timeout_ns` nanoseconds
/// (below 0: without limit) for the program to serve. `size` and `flags` are those of
/// asmp_fifo_attach. No cancellation point. For set-up only: allocates and blocks. End it with
/// asmp_fifo_close.
///
/// Returns the FIFO. On error returns null, and sets errno and asmp_why() as asmp_fifo_attach does,
/// and:
/// - ENODEV: no process offers a channel there
/// - EACCES: the channel is not for this user
/// - EPERM: the program there is one of another user
/// - ETIMEDOUT: the program did not serve in time
/// - ENOTSOCK, EPROTO: something else is there
/// - EAGAIN: the program has no descriptor left
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_receive(
    path: *const c_char,
    owner: c_longlong,
    size: usize,
    flags: c_int,
    timeout_ns: c_longlong,
) -> *mut asmp_fifo {
    let get = || {
        if flags & !(ASMP_FIFO_WAKE as c_int) != 0 {
            let line = format_args!("invalid flags {flags:#x}: use bits of {ASMP_FIFO_WAKE:#x}");
            return Err(keep(-libc::EINVAL, &line));
        }
        // SAFETY: the caller vouches for it.
        let shared = unsafe { memory(path, owner, Kind::Fifo, timeout_ns) }?;
        let fifo = Fifo::from_shared(shared).and_then(|fifo| match size {
            0 => Ok(fifo),
            size => fifo.of_records(size as u64),
        });
        let fifo = fifo.map_err(|error| keep(why::number(&error), &error))?;
        Ok(Box::into_raw(Box::new(asmp_fifo::of(fifo, flags))))
    };
    pointer(not_cancelled(get))
}

/// Receives the record that a program of another user offers at `path`, as asmp_fifo_receive does a
/// FIFO. A write by who received it for reading returns -EACCES. End it with asmp_record_free.
///
/// Returns the record. On error returns null, and sets errno and asmp_why() as asmp_fifo_receive
/// does; EBUSY: a record of another size, or another kind of channel.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_receive(
    path: *const c_char,
    owner: c_longlong,
    size: usize,
    timeout_ns: c_longlong,
) -> *mut asmp_record {
    let get = || {
        // SAFETY: the caller vouches for it.
        let shared = unsafe { memory(path, owner, Kind::Mbuff, timeout_ns) }?;
        let record = RawRecord::from_shared(shared).and_then(|record| record.of_bytes(size));
        let record = record.map_err(|error| mbuff::number(&error))?;
        Ok(Box::into_raw(Box::new(asmp_record::of(record))))
    };
    pointer(not_cancelled(get))
}
