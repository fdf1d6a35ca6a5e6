// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Channels that asmpd keeps for programs of other users ([`asmp_channel::Kept`]), which RTLinux
//! does not have.

use crate::fifo::named::{self, asmp_fifo};
use crate::mbuff::asmp_record;
use crate::offer::{access_of, not_cancelled, number};
use crate::why::{keep, pointer};
use asmp_channel::{Access, Fifo, Kept, Readers, SharedMemory};
use std::ffi::{c_int, c_uint};
use std::os::fd::AsRawFd;

/// A channel that asmpd keeps.
#[allow(non_camel_case_types)]
pub struct asmp_kept {
    kept: Kept,
}

/// # Safety
/// `ids` points to `count` numbers, or `count` is 0.
unsafe fn numbers<'a>(ids: *const c_uint, count: usize, what: &str) -> Result<&'a [c_uint], c_int> {
    match count {
        0 => Ok(&[]),
        _ if ids.is_null() => {
            Err(keep(-libc::EINVAL, &format_args!("the {what} are null: give them")))
        }
        // SAFETY: not null, and the caller vouches for the length.
        _ => Ok(unsafe { std::slice::from_raw_parts(ids, count) }),
    }
}

fn register(
    channel: &SharedMemory,
    access: Access,
    users: Result<&[c_uint], c_int>,
    groups: Result<&[c_uint], c_int>,
) -> Result<*mut asmp_kept, c_int> {
    let readers = Readers { users: users?, groups: groups? };
    let kept = not_cancelled(|| Kept::new(channel, access, readers));
    Ok(Box::into_raw(Box::new(asmp_kept { kept: kept.map_err(|error| number(&error))? })))
}

/// Lets asmpd keep a FIFO at /run/asmpd/channels/UID/NAME (UID: the effective user of this process)
/// for root, this user, `user_count` users (user IDs) and `group_count` groups (group IDs), 64 in
/// all. They receive it there by asmp_fifo_receive, with an owner below 0 or that user; this
/// process serves no socket. Any user may register, and sees the name. Put or get first (0 bytes
/// will do): this end then has a role, and the one that receives the FIFO has the other. They can
/// write anything into its memory.
///
/// asmpd keeps it until asmp_kept_close or the end of this process. It forgets all channels when it
/// ends: call asmp_kept_renew each second. For set-up only: allocates, makes system calls, waits
/// for asmpd up to 10 s.
///
/// Returns what is kept. On error returns null, and sets errno and asmp_why():
/// - EINVAL: no FIFO, users or groups, or this end has no role yet
/// - ENOTCONN: asmpd does not run
/// - EEXIST: asmpd keeps another channel of this name and user
/// - EDQUOT: it keeps too many channels: of a user other than root 16
/// - E2BIG: too many users and groups
/// - EPERM: another user listens in its place
/// - ETIMEDOUT: it did not answer in time
/// - EPROTO, EAGAIN: it is of another version; it has no descriptor left
/// - EMFILE: too many open files
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create, asmp_fifo_attach or asmp_fifo_receive; `users`
/// and `groups` point to as many IDs as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_keep(
    fifo: *const asmp_fifo,
    users: *const c_uint,
    user_count: usize,
    groups: *const c_uint,
    group_count: usize,
) -> *mut asmp_kept {
    // SAFETY: the caller vouches for it.
    let fifo = unsafe { named::fifo(fifo) };
    let fifo = fifo.ok_or_else(|| keep(-libc::EINVAL, &"the FIFO is null: create one"));
    // SAFETY: the caller vouches for it.
    let users = unsafe { numbers(users, user_count, "users") };
    // SAFETY: the caller vouches for it.
    let groups = unsafe { numbers(groups, group_count, "groups") };
    pointer(fifo.and_then(|fifo: &Fifo| register(fifo.shared(), Access::Write, users, groups)))
}

/// Lets asmpd keep a record as asmp_fifo_keep does a FIFO. `flags`: 0, who receives it can only
/// read it; or ASMP_OFFER_WRITE. Costs and errors are those of asmp_fifo_keep.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc, asmp_record_attach or asmp_record_receive;
/// `users` and `groups` point to as many IDs as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_keep(
    record: *const asmp_record,
    flags: c_int,
    users: *const c_uint,
    user_count: usize,
    groups: *const c_uint,
    group_count: usize,
) -> *mut asmp_kept {
    // SAFETY: the caller vouches for it.
    let record = unsafe { record.as_ref() }.and_then(|record| record.record().ok());
    let record = record.ok_or_else(|| keep(-libc::EINVAL, &"the record is null: allocate one"));
    // SAFETY: the caller vouches for it.
    let users = unsafe { numbers(users, user_count, "users") };
    // SAFETY: the caller vouches for it.
    let groups = unsafe { numbers(groups, group_count, "groups") };
    let access = access_of(flags);
    pointer(access.and_then(|access| register(record?.shared(), access, users, groups)))
}

/// Registers again if asmpd has ended meanwhile. Not for real-time threads then: it waits for asmpd
/// up to 10 s. Costs two system calls where there is nothing to do.
///
/// Returns 0 (there was nothing to do), 1 (it is kept again), -EINVAL (nothing is kept), -EPROTO
/// (also if this process has changed its user ID since then), or an error as for asmp_fifo_keep,
/// negative: -ENOTCONN until asmpd runs again.
///
/// # Safety
/// `kept` is null or came from asmp_fifo_keep or asmp_record_keep, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_kept_renew(kept: *mut asmp_kept) -> c_int {
    // SAFETY: the caller vouches for it.
    let Some(kept) = (unsafe { kept.as_mut() }) else { return -libc::EINVAL };
    not_cancelled(|| kept.kept.renew().map_or_else(|error| number(&error), c_int::from))
}

/// Returns a descriptor for poll and the like, or -EINVAL: nothing is kept. It is readable once
/// asmpd has ended. It belongs to what is kept, until asmp_kept_renew returns 1.
///
/// # Safety
/// `kept` is null or came from asmp_fifo_keep or asmp_record_keep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_kept_fd(kept: *const asmp_kept) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { kept.as_ref() }.map_or(-libc::EINVAL, |kept| kept.kept.as_fd().as_raw_fd())
}

/// asmpd keeps the channel no longer. Who has received it keeps it. Ignores null. For set-up only:
/// makes a system call.
///
/// # Safety
/// `kept` is null or came from asmp_fifo_keep or asmp_record_keep, no other thread uses it, and it
/// is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_kept_close(kept: *mut asmp_kept) {
    if !kept.is_null() {
        // SAFETY: made by Box::into_raw in `register`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(kept) });
    }
}
