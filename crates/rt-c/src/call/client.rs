//! A client's end.

use crate::call::{asmp_message, number, refused, timeout, value, words};
use crate::why::{self, pointer};
use asmp_channel::call::Client;
use asmp_channel::default_dir;
use std::ffi::{c_char, c_int, c_longlong, c_uint};

/// A client of a call channel, in a slot of its own; for one thread at a time.
#[allow(non_camel_case_types)]
pub struct asmp_client {
    client: Client,
}

/// Becomes a client of the call channel `name`: in the slot `slot`, or below 0 in the first that is free. Set-up only: allocates, takes
/// a lock, reads a directory. Ends with asmp_client_close.
///
/// The client, or null, with errno and asmp_why(): ENODEV, nobody has served it yet; EAGAIN, all slots are taken; EBUSY, that slot is, or
/// the name stands for something else, or was made by another version of this library; EINVAL, the name, or there is no such slot;
/// EACCES, the directory is not this user's; EMFILE; ETIMEDOUT,
/// another process kept its lock for 10 s.
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

/// Sends a message and waits up to `timeout_ns` (below 0: for ever; 0: not at all) for the answer. With a timeout it returns in
/// time, whatever others write into the shared memory. No allocation; system calls: none while the server is awake and answers within the spins; else
/// one to wake it and one to sleep, and three every 100 ms, to see whether the server lives. 0, or -ENOTCONN, nobody serves; -ETIMEDOUT, no
/// answer in time, and the server never will take the request; -EINPROGRESS, no answer in time, but it was taken; -EPIPE, the server
/// ended before it answered; -ENODATA, it went on without an answer; -EINVAL, no client, message or place for the answer. After each
/// of them the client can call again.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now; `message` is null or readable, `answer` null or
/// writable; they may be the same.
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

/// Sends a message and waits until the server has taken it. Costs and errors as asmp_call, but for -ENODATA.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now; `message` is null or readable.
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

/// Sets notification bits for the server, and does not wait; they are there for a server that comes later, too. Bounded, no
/// allocation; at most one system call. 0, or -EINVAL, no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_notify(client: *mut asmp_client, bits: u64) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.notify(bits)))
}

/// Waits up to `timeout_ns` (below 0: for ever; 0: not at all) for notification bits, and takes them. No allocation; system calls: none
/// if there are bits, else one to sleep and two every 100 ms. 0 and the bits in `bits`, or -ETIMEDOUT, none came; -ENOTCONN, there are
/// none and nobody serves; -EPIPE, the server ended; -EINVAL.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now; `bits` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_wait_bits(
    client: *mut asmp_client,
    bits: *mut u64,
    timeout_ns: c_longlong,
) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (client, bits) = (unsafe { own(client) }?, unsafe { bits.as_mut() }.ok_or(-libc::EINVAL)?);
        *bits = client.wait_bits(timeout(timeout_ns)).map_err(number)?;
        Ok(())
    })())
}

/// What the next requests claim, larger is more urgent; 0 at first. It orders the server's queue; what ASMP_CALL_INHERIT lends is the
/// calling thread's own scheduling priority. Bounded, no system call. 0, or -EINVAL, no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_set_priority(client: *mut asmp_client, priority: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.set_priority(priority)))
}

/// How often to look before going to sleep, for a server on another CPU; 0 at first. Bounded, no system call. 0, or -EINVAL, no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_set_spins(client: *mut asmp_client, spins: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.set_spins(spins)))
}

/// The client's slot, by which the server knows it; or -EINVAL, no client. Bounded, no system call.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_slot(client: *mut asmp_client) -> c_int {
    // SAFETY: the caller vouches for it. Below 30.
    unsafe { own(client) }.map_or_else(|error| error, |client| client.slot() as c_int)
}

/// Leaves its slot to another; null is ignored. Set-up only: system calls.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_close(client: *mut asmp_client) {
    if !client.is_null() {
        // SAFETY: made by Box::into_raw in `asmp_call_attach`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(client) });
    }
}
