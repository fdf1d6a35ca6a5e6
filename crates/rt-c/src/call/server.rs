//! The server's end.

use crate::call::{
    ASMP_CALL_DIRECT, ASMP_CALL_INHERIT, asmp_message, number, refused, timeout, value, words,
};
use crate::why::{self, keep, pointer};
use asmp_channel::call::{Received, Scheduling, Server, Shape, Want};
use asmp_channel::default_dir;
use std::ffi::{c_char, c_int, c_longlong, c_uint};
use std::mem::offset_of;

/// The one server of a call channel, for the thread that opened it.
#[allow(non_camel_case_types)]
pub struct asmp_server {
    server: Server,
    /// Whom the clients lend their priority.
    thread: libc::pthread_t,
}

/// No request: there are bits only.
pub const ASMP_WANT_NONE: c_int = 0;
/// A request that is to be answered.
pub const ASMP_WANT_ANSWER: c_int = 1;
/// A request that was answered by being taken.
pub const ASMP_WANT_NOTHING: c_int = 2;

/// What a receive gives: notification bits, a request, or both. What a client says may be anything.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct asmp_received {
    /// Notification bits set since the last time.
    pub bits: u64,
    /// ASMP_WANT_NONE, and what follows does not count; else the request's.
    pub want: c_int,
    /// Its slot: what asmp_call_set_ceiling and asmp_call_notify_client go by.
    pub client: c_uint,
    /// As the client claims, at most its ceiling. 0 with ASMP_CALL_DIRECT.
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

/// Makes the call channel `name` with slots for `clients`, 1 to 30, and serves it; or takes it over from a server that has
/// ended, whose waiting clients get -EPIPE. `flags`: ASMP_CALL_DIRECT, ASMP_CALL_INHERIT, or 0. The waiting client with the
/// highest priority is served first, among equals the one that came first, unless ASMP_CALL_DIRECT is said. Stays with this thread.
/// Set-up only: allocates, takes a lock, reads a directory. Ends with asmp_server_close.
///
/// The server, or null, with errno and asmp_why(): EINVAL, the name, the number of clients or the flags; EBUSY, there is a server, or the name
/// stands for other slots or flags, for something else, or was made by another version of this library; ENOMEM, no room; EACCES, the
/// directory is not this user's; EMFILE; ETIMEDOUT,
/// another process kept its lock for 10 s.
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
                &format!("flags {flags:#x}: ASMP_CALL_DIRECT, ASMP_CALL_INHERIT or 0"),
            ));
        }
        let direct = flags & ASMP_CALL_DIRECT != 0;
        let scheduling = if direct { Scheduling::Direct } else { Scheduling::Full };
        let shape = Shape { clients, scheduling, inherit: flags & ASMP_CALL_INHERIT != 0 };
        let server = Server::open(&default_dir(), name, shape).map_err(|error| refused(&error))?;
        // SAFETY: takes nothing, touches nothing, cannot fail.
        let thread = unsafe { libc::pthread_self() };
        Ok(Box::into_raw(Box::new(asmp_server { server, thread })))
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

/// Waits up to `timeout_ns` (below 0: for ever; 0: not at all) for a request, notification bits or both. A client that still waits for the
/// answer to its call gets -ENODATA. No allocation; system calls: one to sleep, one or two for each client to wake. 0, or
/// -ETIMEDOUT, nothing came; -EINVAL, no server or no place for it; -EPERM, another thread than the one that opened it.
///
/// # Safety
/// `server` is null or came from asmp_call_serve; `into` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_receive(
    server: *mut asmp_server,
    into: *mut asmp_received,
    timeout_ns: c_longlong,
) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (server, into) = (unsafe { own(server) }?, unsafe { place(into) }?);
        *into = server.receive(timeout(timeout_ns)).map_err(number)?.into();
        Ok(())
    })())
}

/// Answers the call that was received last. Does not wait for the client, and does not notice that it is dead. Bounded, no allocation;
/// system calls: none, or one to wake the client (two with ASMP_CALL_INHERIT). 0, or -ESRCH, nobody waits for an answer; -EINVAL;
/// -EPERM.
///
/// # Safety
/// `server` is null or came from asmp_call_serve; `answer` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_reply(server: *mut asmp_server, answer: *const asmp_message) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (server, answer) = (unsafe { own(server) }?, unsafe { words(answer) }?);
        server.reply(&answer).map_err(number)
    })())
}

/// asmp_call_reply and asmp_call_receive in one step, with the errors of both; -ESRCH did not wait. `answer` may lie in `into`.
///
/// # Safety
/// As asmp_call_reply and asmp_call_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_reply_wait(
    server: *mut asmp_server,
    answer: *const asmp_message,
    into: *mut asmp_received,
    timeout_ns: c_longlong,
) -> c_int {
    value((|| {
        // SAFETY: the caller vouches for it.
        let (server, answer) = (unsafe { own(server) }?, unsafe { words(answer) }?);
        // SAFETY: as above; the answer is a copy.
        let into = unsafe { place(into) }?;
        *into = server.reply_wait(&answer, timeout(timeout_ns)).map_err(number)?.into();
        Ok(())
    })())
}

/// Errors: EINVAL.
///
/// # Safety
/// `into` is null or writable, and nobody else's for now.
unsafe fn place<'a>(into: *mut asmp_received) -> Result<&'a mut asmp_received, c_int> {
    // SAFETY: the caller vouches for it.
    unsafe { into.as_mut() }.ok_or(-libc::EINVAL)
}

/// What the server believes of this client's priority at most; without it, anything. Bounded, no system call. 0, or -EINVAL, no server;
/// -EPERM. Nothing happens for a slot that is not.
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

/// How often to look before going to sleep, for clients on other CPUs; 0 at first. Bounded, no system call. 0, or -EINVAL, no server;
/// -EPERM.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_server_set_spins(server: *mut asmp_server, spins: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    value(unsafe { own(server) }.map(|server| server.set_spins(spins)))
}

/// Sets notification bits for a client, and does not wait. Bounded, no allocation; at most one system call. 0, or -EINVAL, no
/// server; -EPERM. Nothing happens for a slot that is not.
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

/// 1, there is a client in this slot, alive; 0, there is none; or -EINVAL, no server; -EPERM. One system call.
///
/// # Safety
/// `server` is null or came from asmp_call_serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_call_has_client(server: *mut asmp_server, client: c_uint) -> c_int {
    // SAFETY: the caller vouches for it.
    let has = unsafe { own(server) }.map(|server| server.has_client(client));
    has.map_or_else(|error| error, c_int::from)
}

/// Serves no more: a client whose call was taken gets -ENODATA, others that wait -EPIPE. The channel stays as long as a client has it. Set-up only:
/// system calls. 0, also for null; or -EPERM, another thread than the one that opened it.
///
/// # Safety
/// `server` is null or came from asmp_call_serve, and is used no more once this was 0.
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
