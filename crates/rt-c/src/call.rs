// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls between processes, as in L4 ([`asmp_channel::call`]): several clients, one server,
//! messages of eight words.
//!
//! RTLinux does not have them. Timeouts are nanoseconds: below 0 without limit; 0 does not wait.

mod client;
mod server;

use crate::why::{self, keep, timeout};
use asmp_channel::ShmError;
use asmp_channel::call::{CallError, Message, SetupError, WORDS};
use std::ffi::c_int;

/// A message or an answer: one cache line.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct asmp_message {
    pub words: [u64; 8],
}

const _: () = assert!(size_of::<asmp_message>() == size_of::<Message>() && WORDS == 8);

/// Flag of asmp_call_serve: serve the clients slot after slot, in turn, instead of by priority and
/// order of arrival.
pub const ASMP_CALL_DIRECT: u32 = 1;
/// Flag of asmp_call_serve: a waiting client lends its scheduling priority to the server. Needs
/// Linux 5.14, and both ends in one PID namespace.
pub const ASMP_CALL_INHERIT: u32 = 2;

/// What an error of a call in progress is in C, negative.
fn number(error: CallError) -> c_int {
    -match error {
        CallError::NoServer => libc::ENOTCONN,
        CallError::NoAnswer { taken: false } | CallError::TimedOut => libc::ETIMEDOUT,
        CallError::NoAnswer { taken: true } => libc::EINPROGRESS,
        CallError::PeerDied => libc::EPIPE,
        CallError::Unanswered => libc::ENODATA,
        CallError::NoCaller => libc::ESRCH,
        CallError::Cancelled { .. } => libc::ECANCELED,
    }
}

/// Why there is no server or client, its line kept.
fn refused(error: &SetupError) -> c_int {
    let number = match error {
        SetupError::BadShape { .. } | SetupError::NoSuchSlot { .. } => -libc::EINVAL,
        SetupError::ShapeMismatch { .. } | SetupError::Shm(ShmError::RoleTaken { .. }) => {
            -libc::EBUSY
        }
        SetupError::SlotsTaken { .. } => -libc::EAGAIN,
        SetupError::Shm(error) => why::number(error),
    };
    keep(number, error)
}

/// Errors: EINVAL.
///
/// # Safety
/// `message` is null or readable.
unsafe fn words(message: *const asmp_message) -> Result<Message, c_int> {
    // SAFETY: the caller vouches for it.
    unsafe { message.as_ref() }.map(|message| message.words).ok_or(-libc::EINVAL)
}

fn value(result: Result<(), c_int>) -> c_int {
    result.map_or_else(|error| error, |()| 0)
}
