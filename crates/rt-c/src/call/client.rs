// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a client.

use crate::call::{asmp_message, number, refused, timeout, value, words};
use crate::why::{self, pointer};
use asmp_channel::call::Client;
use asmp_channel::default_dir;
use std::ffi::{c_char, c_int, c_longlong, c_uint};

/// A client of a call channel, in a slot of its own. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct asmp_client {
    client: Client,
}

/// Becomes a client of the call channel `name`, in slot `slot`, or in the first free one if `slot`
/// is below 0. For set-up only: allocates, takes a lock, reads a directory. End it with
/// asmp_client_close.
///
/// Returns the client. On error returns null, and sets errno and asmp_why():
/// - ENODEV: no server has created the channel
/// - EAGAIN: all slots are in use
/// - EBUSY: the slot is in use, or the name belongs to another kind or version of channel
/// - EINVAL: the name is invalid, or there is no such slot
/// - ENOMEM: no memory
/// - EACCES: another user's directory, or a channel of a process with more rights
/// - EMFILE: too many open files
/// - ETIMEDOUT: another process held the lock of the directory for 10 s
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_attach(name: *const c_char, slot: c_int) -> *mut asmp_client {
    // SAFETY: the caller vouches for it.
    pointer(unsafe { why::name(name) }.and_then(|name| {
        let client = Client::attach(&default_dir(), name, u32::try_from(slot).ok());
        let client = client.map_err(|error| refused(&error))?;
        Ok(Box::into_raw(Box::new(asmp_client { client })))
    }))
}

/// Errors: EINVAL.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now.
unsafe fn own<'a>(client: *mut asmp_client) -> Result<&'a mut Client, c_int> {
    // SAFETY: the caller vouches for it.
    unsafe { client.as_mut() }.map(|client| &mut client.client).ok_or(-libc::EINVAL)
}

/// Sends a message and waits for the answer, at most `timeout_ns` nanoseconds (below 0: without
/// limit; 0: does not wait). The timeout works even if other processes overwrite the shared memory.
/// `message` and `answer` may be the same.
///
/// No allocation. System calls: none while the server is awake and answers while this client polls.
/// Else one to wake the server, one to sleep, and three every 100 ms to check that the server is
/// alive.
///
/// Returns 0, or an error. The client can call again after each of them:
/// - -ENOTCONN: the channel has no server
/// - -ETIMEDOUT: the timeout passed, and the server will never take the request
/// - -EINPROGRESS: the timeout passed, and the server has taken the request
/// - -EPIPE: the server ended before it answered
/// - -ENODATA: the server continued without an answer
/// - -EINVAL: no client, message or place for the answer
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call;
/// `message` is null or readable, `answer` null or writable; they may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call(
    client: *mut asmp_client,
    message: *const asmp_message,
    answer: *mut asmp_message,
    timeout_ns: c_longlong,
) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (client, message) = (unsafe { own(client) }?, unsafe { words(message) }?);
        // SAFETY: as above; the message is a copy.
        let answer = unsafe { answer.as_mut() }.ok_or(-libc::EINVAL)?;
        answer.words = client.call(&message, timeout(timeout_ns)).map_err(number)?;
        Ok(())
    })())
}

/// Sends a message and waits until the server has taken it. Costs and errors are those of
/// asmp_call, except -ENODATA.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call;
/// `message` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_send(
    client: *mut asmp_client,
    message: *const asmp_message,
    timeout_ns: c_longlong,
) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (client, message) = (unsafe { own(client) }?, unsafe { words(message) }?);
        client.send(&message, timeout(timeout_ns)).map_err(number)
    })())
}

/// Sets notification bits for the server, without waiting. A server that opens later receives them,
/// too. Bounded, no allocation; at most one system call.
///
/// Returns 0, or -EINVAL: no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_notify(client: *mut asmp_client, bits: u64) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.notify(bits)))
}

/// Waits for notification bits and takes them, at most `timeout_ns` nanoseconds (below 0: without
/// limit; 0: does not wait). No allocation. System calls: none if there are bits, else one to sleep
/// and two every 100 ms.
///
/// Returns 0 and the bits in `bits`, or an error:
/// - -ETIMEDOUT: no bits came
/// - -ENOTCONN: there are no bits, and the channel has no server
/// - -EPIPE: the server ended
/// - -EINVAL: no client, or no place for the bits
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call;
/// `bits` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_wait_bits(
    client: *mut asmp_client,
    bits: *mut u64,
    timeout_ns: c_longlong,
) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (client, bits) =
            (unsafe { own(client) }?, unsafe { bits.as_mut() }.ok_or(-libc::EINVAL)?);
        *bits = client.wait_bits(timeout(timeout_ns)).map_err(number)?;
        Ok(())
    })())
}

/// Sets the priority of later requests: larger is more urgent, 0 at first. It orders the server's
/// queue. ASMP_CALL_INHERIT lends the scheduling priority of the calling thread instead. Bounded,
/// no system call.
///
/// Returns 0, or -EINVAL: no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_set_priority(
    client: *mut asmp_client,
    priority: c_uint,
) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.set_priority(priority)))
}

/// Sets how often to poll before sleeping: useful for a server on another CPU. 0 at first. Bounded,
/// no system call.
///
/// Returns 0, or -EINVAL: no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_set_spins(client: *mut asmp_client, spins: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.set_spins(spins)))
}

/// Returns the number of the client's slot, which identifies it to the server, or -EINVAL: no
/// client. Bounded, no system call.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_slot(client: *mut asmp_client) -> c_int {
    // SAFETY: the caller vouches for it. Below 30.
    unsafe { own(client) }.map_or_else(|error| error, |client| client.slot() as c_int)
}

/// Frees the client and its slot. Ignores null. For set-up only: makes system calls.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_close(client: *mut asmp_client) {
    if !client.is_null() {
        // SAFETY: made by Box::into_raw in `asmp_call_attach`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(client) });
    }
}
