// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a client.

use crate::call::{asmp_message, number, refused, timeout, value, words};
use crate::slices::in_slices;
use crate::why::{self, pointer};
use asmp_channel::call::Client;
use asmp_channel::{Canceller, default_dir};
use std::ffi::{c_char, c_int, c_longlong, c_uint};

/// A client of a call channel, in a slot of its own. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct asmp_client {
    /// For any thread, while another one waits.
    canceller: Canceller,
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
        let canceller = client.canceller();
        Ok(Box::into_raw(Box::new(asmp_client { canceller, client })))
    }))
}

/// Errors: EINVAL.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it now.
unsafe fn own<'a>(client: *mut asmp_client) -> Result<&'a mut Client, c_int> {
    if client.is_null() {
        return Err(-libc::EINVAL);
    }
    // SAFETY: not null, and the caller vouches for the rest. Only this part is borrowed.
    Ok(unsafe { &mut (*client).client })
}

/// Errors: EINVAL.
///
/// # Safety
/// `client` is null or came from asmp_call_attach.
unsafe fn canceller<'a>(client: *const asmp_client) -> Result<&'a Canceller, c_int> {
    if client.is_null() {
        return Err(-libc::EINVAL);
    }
    // SAFETY: not null, and the caller vouches for the rest. This part is never borrowed mutably.
    Ok(unsafe { &(*client).canceller })
}

/// Ends the wait of this client that another thread is in, and each later one, until
/// asmp_client_resume: they return -ECANCELED. A call ends at once, with ASMP_CALL_INHERIT within
/// 100 ms; the server may have taken its request. asmp_call and asmp_call_send are no cancellation
/// points: a thread that is cancelled in one ends after it.
///
/// Any thread and any signal handler may call it, while another thread uses the client. Bounded, no
/// allocation; one system call.
///
/// Returns 0, or -EINVAL: no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_cancel(client: *const asmp_client) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { canceller(client) }.map(Canceller::cancel))
}

/// Lets the client wait again. Any thread may call it. Bounded, no system call.
///
/// Returns 0, or -EINVAL: no client.
///
/// # Safety
/// As asmp_client_cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_resume(client: *const asmp_client) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { canceller(client) }.map(Canceller::resume))
}

/// Returns a descriptor for poll, select and epoll: readable (POLLIN) while there are notification
/// bits, the channel has no server, or waits are cancelled. asmp_call_wait_bits with a timeout of 0
/// takes the bits, or makes it unreadable. Answers do not show there. Else as asmp_fifo_fd;
/// asmp_client_close closes it.
///
/// Returns the descriptor, or an error: -EINVAL: no client; -EMFILE, -ENFILE, -EAGAIN, -ENOMEM.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and no other thread uses it during the call,
/// except to cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_fd(client: *mut asmp_client) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { own(client) }.map_or_else(|error| error, |client| why::descriptor(client.descriptor()))
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
/// - -ECANCELED: asmp_client_cancel
/// - -EINVAL: no client, message or place for the answer
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and other threads use it only to cancel;
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
/// `client` is null or came from asmp_call_attach, and other threads use it only to cancel;
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
/// `client` is null or came from asmp_call_attach, and other threads use it only to cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_notify(client: *mut asmp_client, bits: u64) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.notify(bits)))
}

/// Waits for notification bits and takes them, at most `timeout_ns` nanoseconds (below 0: without
/// limit; 0: does not wait). No allocation. System calls: none if there are bits, else one to sleep
/// and two every 100 ms. A cancellation point: pthread_cancel ends it within 100 ms.
///
/// Returns 0 and the bits in `bits`, or an error:
/// - -ETIMEDOUT: no bits came
/// - -ENOTCONN: there are no bits, and the channel has no server
/// - -EPIPE: the server ended
/// - -ECANCELED: asmp_client_cancel
/// - -EINVAL: no client, or no place for the bits
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and other threads use it only to cancel;
/// `bits` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn asmp_call_wait_bits(
    client: *mut asmp_client,
    bits: *mut u64,
    timeout_ns: c_longlong,
) -> c_int {
    let wait = |slice| {
        // SAFETY: the caller vouches for it.
        let (client, bits) =
            (unsafe { own(client) }?, unsafe { bits.as_mut() }.ok_or(-libc::EINVAL)?);
        *bits = client.wait_bits(slice).map_err(number)?;
        Ok(())
    };
    in_slices(timeout_ns, |slice| value(wait(slice)))
}

/// Sets the priority of later requests: larger is more urgent, 0 at first. It orders the server's
/// queue. ASMP_CALL_INHERIT lends the scheduling priority of the calling thread instead. Bounded,
/// no system call.
///
/// Returns 0, or -EINVAL: no client.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and other threads use it only to cancel.
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
/// `client` is null or came from asmp_call_attach, and other threads use it only to cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_client_set_spins(client: *mut asmp_client, spins: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(client) }.map(|client| client.set_spins(spins)))
}

/// Returns the number of the client's slot, which identifies it to the server, or -EINVAL: no
/// client. Bounded, no system call.
///
/// # Safety
/// `client` is null or came from asmp_call_attach, and other threads use it only to cancel.
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
