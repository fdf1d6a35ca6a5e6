// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the server.

use crate::call::{
    ASMP_CALL_DIRECT, ASMP_CALL_INHERIT, asmp_message, number, refused, value, words,
};
use crate::slices::in_slices;
use crate::why::{self, keep, pointer};
use asmp_channel::call::{Received, Scheduling, Server, Shape, Want};
use asmp_channel::{Canceller, default_dir};
use std::ffi::{c_char, c_int, c_longlong, c_uint};
use std::mem::offset_of;

/// The server of a call channel. Only the thread that opened it may use it.
#[allow(non_camel_case_types)]
pub struct asmp_server {
    /// For any thread, while the server waits.
    canceller: Canceller,
    server: Server,
    /// Whom the clients lend their priority.
    thread: libc::pthread_t,
}

/// No request: only notification bits came.
pub const ASMP_WANT_NONE: c_int = 0;
/// The client waits for a reply.
pub const ASMP_WANT_ANSWER: c_int = 1;
/// The client does not wait for a reply.
pub const ASMP_WANT_NOTHING: c_int = 2;

/// The result of a receive: notification bits, a request, or both. A client can send any values.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct asmp_received {
    /// Notification bits set since the last receive.
    pub bits: u64,
    /// ASMP_WANT_NONE: the fields below are undefined. Else what the client waits for.
    pub want: c_int,
    /// The slot of the client, for asmp_call_set_ceiling and asmp_call_notify_client.
    pub client: c_uint,
    /// The priority that the client states, at most its ceiling. 0 with ASMP_CALL_DIRECT.
    pub priority: c_uint,
    pub message: asmp_message,
}

/// As in tests/call_calls.c.
const _: () = {
    assert!(size_of::<asmp_message>() == 64 && size_of::<asmp_received>() == 88);
    assert!(offset_of!(asmp_received, want) == 8 && offset_of!(asmp_received, client) == 12);
    assert!(offset_of!(asmp_received, priority) == 16 && offset_of!(asmp_received, message) == 24);
};

impl From<Received> for asmp_received {
    fn from(Received { bits, request }: Received) -> Self {
        match request {
            None => Self {
                bits,
                want: ASMP_WANT_NONE,
                client: 0,
                priority: 0,
                message: asmp_message { words: [0; 8] },
            },
            Some(request) => Self {
                bits,
                want: match request.want {
                    Want::Call => ASMP_WANT_ANSWER,
                    Want::Send => ASMP_WANT_NOTHING,
                },
                client: request.client,
                priority: request.priority,
                message: asmp_message { words: request.message },
            },
        }
    }
}

/// Creates the call channel `name` with slots for `clients` clients, 1 to 30, and serves it. Or
/// takes the channel over from a server that has ended: clients that still wait for that one get
/// -EPIPE.
///
/// `flags`: ASMP_CALL_DIRECT, ASMP_CALL_INHERIT, or 0. Without ASMP_CALL_DIRECT the waiting client
/// with the highest priority is served first, and among equals the one that arrived first.
///
/// Only the calling thread may use the server. For set-up only: allocates, takes a lock, reads a
/// directory. End it with asmp_server_close.
///
/// Returns the server. On error returns null, and sets errno and asmp_why():
/// - EINVAL: the name, the number of clients or the flags are invalid
/// - EBUSY: the channel has a server or other properties, or the name belongs to another kind or
///   version of channel
/// - ENOMEM: no memory
/// - EACCES: another user's directory, or a channel of a process with more rights
/// - EMFILE: too many open files
/// - ETIMEDOUT: another process held the lock of the directory for 10 s
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_serve(
    name: *const c_char,
    clients: c_uint,
    flags: c_uint,
) -> *mut asmp_server {
    let serve = || {
        // SAFETY: the caller vouches for it.
        let name = unsafe { why::name(name) }?;
        if flags & !(ASMP_CALL_DIRECT | ASMP_CALL_INHERIT) != 0 {
            return Err(keep(
                -libc::EINVAL,
                &format!("invalid flags {flags:#x}: use ASMP_CALL_DIRECT, ASMP_CALL_INHERIT or 0"),
            ));
        }
        let direct = flags & ASMP_CALL_DIRECT != 0;
        let scheduling = if direct { Scheduling::Direct } else { Scheduling::Full };
        let shape = Shape { clients, scheduling, inherit: flags & ASMP_CALL_INHERIT != 0 };
        let server = Server::open(&default_dir(), name, shape).map_err(|error| refused(&error))?;
        // SAFETY: takes nothing, touches nothing, cannot fail.
        let thread = unsafe { libc::pthread_self() };
        let canceller = server.canceller();
        Ok(Box::into_raw(Box::new(asmp_server { canceller, server, thread })))
    };
    pointer(serve())
}

/// The server, if it is this thread's. Errors: EINVAL, EPERM.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
unsafe fn own<'a>(server: *mut asmp_server) -> Result<&'a mut Server, c_int> {
    if server.is_null() {
        return Err(-libc::EINVAL);
    }
    // SAFETY: not null, the caller vouches for the rest; this word never changes.
    let thread = unsafe { (*server).thread };
    // SAFETY: takes nothing, touches nothing, cannot fail.
    if thread != unsafe { libc::pthread_self() } {
        return Err(-libc::EPERM);
    }
    // SAFETY: as above, and no other thread gets here.
    Ok(unsafe { &mut (*server).server })
}

/// Errors: EINVAL.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
unsafe fn canceller<'a>(server: *const asmp_server) -> Result<&'a Canceller, c_int> {
    if server.is_null() {
        return Err(-libc::EINVAL);
    }
    // SAFETY: not null, and the caller vouches for the rest. This part is never borrowed mutably.
    Ok(unsafe { &(*server).canceller })
}

/// Ends the wait that the server is in, at once, and each later one, until asmp_server_resume: they
/// return -ECANCELED, even if there is a request. The descriptor of asmp_server_fd is readable
/// meanwhile.
///
/// Any thread and any signal handler may call it. Bounded, no allocation; one system call.
///
/// Returns 0, or -EINVAL: no server.
///
/// # Safety
/// `server` is null or came from asmp_call_serve, and is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_server_cancel(server: *const asmp_server) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { canceller(server) }.map(Canceller::cancel))
}

/// Lets the server wait again. Any thread may call it. Bounded, no system call.
///
/// Returns 0, or -EINVAL: no server.
///
/// # Safety
/// As asmp_server_cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_server_resume(server: *const asmp_server) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { canceller(server) }.map(Canceller::resume))
}

/// Returns a descriptor for poll, select and epoll: readable (POLLIN) while there is a request or
/// notification bits, or waits are cancelled. asmp_call_receive with a timeout of 0 takes them, or
/// makes it unreadable. Else as asmp_fifo_fd; asmp_server_close closes it.
///
/// Returns the descriptor, or an error: -EINVAL: no server; -EPERM: called by another thread;
/// -EMFILE, -ENFILE, -EAGAIN, -ENOMEM.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_server_fd(server: *mut asmp_server) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { own(server) }.map_or_else(|error| error, |server| why::descriptor(server.descriptor()))
}

/// Waits for a request, notification bits or both, at most `timeout_ns` nanoseconds (below 0:
/// without limit; 0: does not wait). A client that still waits for the answer to its call gets
/// -ENODATA. No allocation. System calls: one to sleep, one every 100 ms, and one or two for each
/// client to wake. A cancellation point: pthread_cancel ends it within 100 ms.
///
/// Returns 0, or an error:
/// - -ETIMEDOUT: nothing came
/// - -ECANCELED: asmp_server_cancel
/// - -EINVAL: no server, or no place for the result
/// - -EPERM: called by another thread than the one that opened the server
///
/// # Safety
/// `server` is null or came from asmp_call_serve; `into` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn asmp_call_receive(
    server: *mut asmp_server,
    into: *mut asmp_received,
    timeout_ns: c_longlong,
) -> c_int {
    let wait = |slice| {
        // SAFETY: the caller vouches for it.
        let (server, into) = (unsafe { own(server) }?, unsafe { place(into) }?);
        *into = server.receive(slice).map_err(number)?.into();
        Ok(())
    };
    in_slices(timeout_ns, |slice| value(wait(slice)))
}

/// Answers the call that was received last. Does not wait for the client, and succeeds also if the
/// client has ended. Bounded, no allocation. System calls: none, or one to wake the client (two
/// with ASMP_CALL_INHERIT).
///
/// Returns 0, or an error:
/// - -ESRCH: no client waits for an answer
/// - -EINVAL: no server or no answer
/// - -EPERM: called by another thread
///
/// # Safety
/// `server` is null or came from asmp_call_serve; `answer` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_reply(
    server: *mut asmp_server,
    answer: *const asmp_message,
) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (server, answer) = (unsafe { own(server) }?, unsafe { words(answer) }?);
        server.reply(&answer).map_err(number)
    })())
}

/// asmp_call_reply and asmp_call_receive in one step, with the errors of both. After -ESRCH it did
/// not wait. `answer` may lie in `into`.
///
/// # Safety
/// As asmp_call_reply and asmp_call_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn asmp_call_reply_wait(
    server: *mut asmp_server,
    answer: *const asmp_message,
    into: *mut asmp_received,
    timeout_ns: c_longlong,
) -> c_int {
    let replied = value((|| {
        // SAFETY: the caller vouches for it.
        let (server, answer) = (unsafe { own(server) }?, unsafe { words(answer) }?);
        // SAFETY: as above.
        unsafe { place(into) }?;
        server.reply(&answer).map_err(number)
    })());
    if replied != 0 {
        return replied;
    }
    // SAFETY: the caller vouches for it.
    unsafe { asmp_call_receive(server, into, timeout_ns) }
}

/// Errors: EINVAL.
///
/// # Safety
/// `into` is null or writable, and other threads use it only to cancel.
unsafe fn place<'a>(into: *mut asmp_received) -> Result<&'a mut asmp_received, c_int> {
    // SAFETY: the caller vouches for it.
    unsafe { into.as_mut() }.ok_or(-libc::EINVAL)
}

/// Sets the highest priority that requests of this client may have. No limit at first. Does nothing
/// for a slot that does not exist. Bounded, no system call.
///
/// Returns 0; -EINVAL: no server; -EPERM: called by another thread.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_set_ceiling(
    server: *mut asmp_server,
    client: c_uint,
    priority: c_uint,
) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(server) }.map(|server| server.set_ceiling(client, priority)))
}

/// Sets how often to poll before sleeping: useful for clients on other CPUs. 0 at first. Bounded,
/// no system call.
///
/// Returns 0; -EINVAL: no server; -EPERM: called by another thread.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_server_set_spins(server: *mut asmp_server, spins: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(server) }.map(|server| server.set_spins(spins)))
}

/// Sets notification bits for a client, without waiting. Does nothing for a slot that does not
/// exist. Bounded, no allocation; at most one system call.
///
/// Returns 0; -EINVAL: no server; -EPERM: called by another thread.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_notify_client(
    server: *mut asmp_server,
    client: c_uint,
    bits: u64,
) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(server) }.map(|server| server.notify(client, bits)))
}

/// Returns 1 if this slot has a living client, 0 if not; -EINVAL: no server; -EPERM: called by
/// another thread. One system call.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_has_client(server: *mut asmp_server, client: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    let has = unsafe { own(server) }.map(|server| server.has_client(client));
    has.map_or_else(|error| error, c_int::from)
}

/// Stops serving. A client whose call was taken gets -ENODATA, other waiting clients get -EPIPE.
/// The channel exists as long as a client has it open. For set-up only: makes system calls.
///
/// Returns 0, also for null, or -EPERM: called by another thread than the one that opened the
/// server.
///
/// # Safety
/// `server` is null or came from asmp_call_serve, and is not used again once this returned 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_server_close(server: *mut asmp_server) -> c_int {
    if server.is_null() {
        return 0;
    }
    // SAFETY: the caller vouches for it.
    value(unsafe { own(server) }.map(|_| {
        // SAFETY: made by Box::into_raw in `asmp_call_serve`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(server) });
    }))
}
