// SPDX-License-Identifier: Apache-2.0 OR MIT
//! FIFOs by name and by pointer, which RTLinux does not have. They avoid the costs of `rtf_put` for
//! the lookup of its number and for threads that share an end. A full one can drop its oldest
//! frames. `rtfN` is RTLinux's number N.

use crate::slices::in_slices;
use crate::why::{self, keep, pointer};
use asmp_channel::{
    Canceller, Fifo, FifoReader, FifoWriter, Options, Overflow, RingError, Role, ShmError,
    WaitError, Wake, default_dir,
};
use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void};
use std::path::Path;

/// Flag of asmp_fifo_create: a full FIFO drops its oldest frames and counts them. Without it, a put
/// to a full FIFO fails.
pub const ASMP_FIFO_DROP_OLDEST: u32 = 1;
/// Flag: this end wakes the other end when that sleeps, by one system call. Without it, this end
/// makes no system call, and the other end polls every millisecond.
pub const ASMP_FIFO_WAKE: u32 = 2;

/// One end of a FIFO in shared memory. Its first put makes it the writer, its first get the reader.
#[allow(non_camel_case_types)]
pub struct asmp_fifo {
    /// For any thread, while another one waits.
    canceller: Canceller,
    own: Own,
}

/// What one thread at a time uses.
struct Own {
    end: End,
    /// What a put is a multiple of.
    record_bytes: usize,
    wake: Wake,
}

enum End {
    Neither(Fifo),
    Writes(FifoWriter),
    Reads(FifoReader),
    /// Became an end and could not: what the kernel refused.
    Lost,
}

impl asmp_fifo {
    /// An end without a role yet.
    pub fn of(fifo: Fifo, flags: c_int) -> Self {
        let record_bytes = usize::try_from(fifo.record_bytes()).unwrap_or(usize::MAX).max(1);
        let canceller = fifo.canceller();
        Self { canceller, own: Own { end: End::Neither(fifo), record_bytes, wake: wake_of(flags) } }
    }
}

impl Own {
    /// Takes the role, where this is neither end yet. Errors: EBUSY, EBADF, EIO.
    #[cold]
    fn becomes(&mut self, role: Role) -> Result<(), c_int> {
        let End::Neither(fifo) = &self.end else {
            return Err(if matches!(self.end, End::Lost) { -libc::EIO } else { -libc::EBADF });
        };
        // Asked for first, since what is refused below is lost.
        fifo.shared().acquire(role).map_err(|error| why::number(&error))?;
        if let End::Neither(fifo) = std::mem::replace(&mut self.end, End::Lost) {
            self.end = match role {
                Role::Writer => {
                    End::Writes(fifo.into_writer(self.wake).map_err(|error| why::number(&error))?)
                }
                _ => End::Reads(fifo.into_reader(self.wake).map_err(|error| why::number(&error))?),
            };
        }
        Ok(())
    }

    #[inline(always)]
    fn writer(&mut self) -> Result<&mut FifoWriter, c_int> {
        if !matches!(self.end, End::Writes(_)) {
            self.becomes(Role::Writer)?;
        }
        match &mut self.end {
            End::Writes(writer) => Ok(writer),
            _ => Err(-libc::EIO),
        }
    }

    #[inline(always)]
    fn reader(&mut self) -> Result<&mut FifoReader, c_int> {
        if !matches!(self.end, End::Reads(_)) {
            self.becomes(Role::Reader)?;
        }
        match &mut self.end {
            End::Reads(reader) => Ok(reader),
            _ => Err(-libc::EIO),
        }
    }

    /// The FIFO, and the role of the other end: the writer's, where this is none yet.
    fn channel(&self) -> Option<(&Fifo, Role)> {
        match &self.end {
            End::Neither(fifo) => Some((fifo, Role::Writer)),
            End::Writes(writer) => Some((writer.fifo(), Role::Reader)),
            End::Reads(reader) => Some((reader.fifo(), Role::Writer)),
            End::Lost => None,
        }
    }
}

/// What one thread at a time uses. `None`: no FIFO.
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread uses this
/// part now.
#[inline(always)]
unsafe fn own<'a>(fifo: *mut asmp_fifo) -> Option<&'a mut Own> {
    if fifo.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller vouches for the rest. Only this part is borrowed.
    Some(unsafe { &mut (*fifo).own })
}

/// As [`own`], to look only.
///
/// # Safety
/// As [`own`], but others may look, too.
unsafe fn seen<'a>(fifo: *const asmp_fifo) -> Option<&'a Own> {
    if fifo.is_null() {
        return None;
    }
    // SAFETY: as in `own`.
    Some(unsafe { &(*fifo).own })
}

/// The FIFO, to look only. `None`: null, or lost.
///
/// # Safety
/// As [`seen`].
pub unsafe fn fifo<'a>(fifo: *const asmp_fifo) -> Option<&'a Fifo> {
    // SAFETY: the caller vouches for it.
    unsafe { seen(fifo) }?.channel().map(|(fifo, _)| fifo)
}

/// The canceller, for any thread.
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs.
unsafe fn canceller<'a>(fifo: *const asmp_fifo) -> Option<&'a Canceller> {
    if fifo.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller vouches for the rest. This part is never borrowed mutably.
    Some(unsafe { &(*fifo).canceller })
}

fn wake_of(flags: c_int) -> Wake {
    if flags & ASMP_FIFO_WAKE as c_int == 0 { Wake::Never } else { Wake::IfAsleep }
}

/// # Safety
/// As [`why::name`].
unsafe fn open(
    name: *const c_char,
    flags: c_int,
    known: u32,
    open: impl Fn(&Path, &str) -> Result<Fifo, ShmError>,
) -> *mut asmp_fifo {
    // SAFETY: the caller vouches for it.
    pointer(unsafe { why::name(name) }.and_then(|name| {
        if flags & !(known as c_int) != 0 {
            return Err(keep(
                -libc::EINVAL,
                &format_args!("invalid flags {flags:#x}: use bits of {known:#x}"),
            ));
        }
        let fifo = open(&default_dir(), name).map_err(|error| keep(why::number(&error), &error))?;
        Ok(Box::into_raw(Box::new(asmp_fifo::of(fifo, flags))))
    }))
}

/// Creates a FIFO with room for at least `records` records of `size` bytes, each put alone. With a
/// `size` of 0 it carries frames of any length, which take `records` bytes together, 16 to 2^29 -
/// 8: each frame takes 8 bytes for its header, and is padded to 8. `flags`: ASMP_FIFO_DROP_OLDEST,
/// ASMP_FIFO_WAKE. For set-up only: allocates, takes a lock, reads a directory. End it with
/// asmp_fifo_close; the memory is freed when the last process closes it.
///
/// A `name` has 1 to 64 letters, digits, '-' or '_'. FIFOs, shared memory, records and calls share
/// one directory of names: $ASMP_CHANNELS, or else /dev/shm/asmp-UID. It serves the processes of
/// one user, and root. A program with more rights than its caller (setuid, setgid, file
/// capabilities) ignores the variable; other programs of the user cannot attach to its channels.
///
/// A forked child has the same end, not another one, and does not keep the name: only one of the
/// two may use it. If the parent ends without asmp_fifo_close, the role stays taken until the child
/// ends. So fork first and open then. exec closes the FIFO.
///
/// Returns the FIFO. On error returns null, and sets errno and asmp_why():
/// - EINVAL: the name or the flags are invalid
/// - EBUSY: the name is in use
/// - ENOMEM: no memory, or a size outside the limits
/// - EACCES: another user's directory, or a channel of a process with more rights
/// - EMFILE: too many open files
/// - ETIMEDOUT: another process held the lock of the directory for 10 s
/// - ENOENT, ENOTDIR, ENOSPC, EROFS: the directory cannot be used
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_create(
    name: *const c_char,
    records: usize,
    size: usize,
    flags: c_int,
) -> *mut asmp_fifo {
    let drops = flags & ASMP_FIFO_DROP_OLDEST as c_int != 0;
    let overflow = if drops { Overflow::DropOldest } else { Overflow::Refuse };
    let make = |dir: &Path, name: &str| match size {
        0 => Fifo::create(dir, name, &Options { capacity_bytes: records as u64, overflow }),
        size => Fifo::create_for(dir, name, records as u64, size as u64, overflow),
    };
    // SAFETY: the caller vouches for it.
    unsafe { open(name, flags, ASMP_FIFO_DROP_OLDEST | ASMP_FIFO_WAKE, make) }
}

/// Attaches to an existing FIFO with records of `size` bytes, or of any size if `size` is 0. (rtfN
/// is number N of rtf_create.) `flags`: ASMP_FIFO_WAKE. Costs are those of asmp_fifo_create.
///
/// Returns the FIFO. On error returns null, and sets errno and asmp_why() as asmp_fifo_create does,
/// and:
/// - ENODEV: no process has such a FIFO open
/// - EBUSY: it has records of another size, or the name belongs to another kind or version of
///   channel
/// - ENOMEM: it cannot be mapped
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_attach(
    name: *const c_char,
    size: usize,
    flags: c_int,
) -> *mut asmp_fifo {
    let find = |dir: &Path, name: &str| match size {
        0 => Fifo::attach(dir, name),
        size => Fifo::attach_for(dir, name, size as u64),
    };
    // SAFETY: the caller vouches for it.
    unsafe { open(name, flags, ASMP_FIFO_WAKE, find) }
}

/// Puts `count` bytes in as one frame, or nothing: one record, or several that the reader sees at
/// the same time. The first put makes this process the writer until asmp_fifo_close or its end;
/// that takes two system calls. A put of 0 bytes acquires the role in advance.
///
/// Later puts are bounded, O(count), and never wait or allocate, whatever the reader does. They
/// make no system call, or with ASMP_FIFO_WAKE one if the reader sleeps.
///
/// Returns 0, or an error:
/// - -ENOSPC: no room now
/// - -EMSGSIZE: it never fits, or is no multiple of the record size
/// - -EBUSY: another process is the writer
/// - -EBADF: this end is the reader
/// - -EINVAL: no FIFO or no bytes
/// - -EIO: the lock of the role failed
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread uses it
/// during the call; `bytes` points to `count` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_put(
    fifo: *mut asmp_fifo,
    bytes: *const c_void,
    count: usize,
) -> c_int {
    // SAFETY: the caller vouches for it.
    let Some(fifo) = (unsafe { own(fifo) }) else { return -libc::EINVAL };
    let record_bytes = fifo.record_bytes;
    let writer = match fifo.writer() {
        Ok(writer) => writer,
        Err(error) => return error,
    };
    if bytes.is_null() || count == 0 {
        return if count == 0 { 0 } else { -libc::EINVAL };
    }
    if count != record_bytes && never_fits(record_bytes, count) {
        return -libc::EMSGSIZE;
    }
    // SAFETY: not null, and the caller vouches for the length.
    match writer.put(unsafe { std::slice::from_raw_parts(bytes.cast(), count) }) {
        Ok(()) => 0,
        Err(RingError::BadLength) => -libc::EMSGSIZE,
        Err(_) => -libc::ENOSPC,
    }
}

/// Takes the oldest frame, or as much of it as `size` bytes hold. The next get returns the rest,
/// unless the writer has dropped it. One get takes at most one frame. The next reader gets a frame
/// again of which a killed reader had taken only a part.
///
/// The first get makes this process the reader, as a first put makes it the writer. Bounded,
/// O(size); costs are those of asmp_fifo_put.
///
/// Returns the number of bytes, 0 if the FIFO is empty, or an error:
/// - -EAGAIN: the writer dropped each frame while it was read: get again
/// - -EIO: the other side overwrote the control words, and the contents are lost; the next get
///   continues
/// - -EBUSY: another process is the reader
/// - -EBADF: this end is the writer
/// - -EINVAL: no FIFO or no buffer
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread uses it
/// during the call; `buffer` points to `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_get(
    fifo: *mut asmp_fifo,
    buffer: *mut c_void,
    size: usize,
) -> isize {
    let get = || {
        // SAFETY: the caller vouches for it.
        let reader = unsafe { own(fifo) }.ok_or(-libc::EINVAL)?.reader()?;
        if buffer.is_null() || size == 0 {
            return if size == 0 { Ok(0) } else { Err(-libc::EINVAL) };
        }
        // SAFETY: not null, and the caller vouches for the length.
        let into =
            unsafe { std::slice::from_raw_parts_mut(buffer.cast(), size.min(isize::MAX as usize)) };
        reader.get(into).map_err(|error| match error {
            RingError::Overtaken => -libc::EAGAIN,
            _ => -libc::EIO,
        })
    };
    get().map_or_else(|error| error as isize, |got| isize::try_from(got).unwrap_or(isize::MAX))
}

/// Waits until there is a frame to get, at most `timeout_ns` nanoseconds (below 0: without limit;
/// 0: does not wait). Acquires the role as asmp_fifo_get does. Blocks; makes system calls. Signals
/// do not interrupt it (no EINTR): a handler calls asmp_fifo_cancel. A cancellation point:
/// pthread_cancel ends it within 100 ms, and the FIFO can be used further.
///
/// Returns 0, or an error:
/// - -ETIMEDOUT: the timeout passed
/// - -EPIPE: the FIFO is empty and has no writer. This is found within 100 ms, also by many shorter
///   waits.
/// - -ECANCELED: asmp_fifo_cancel
/// - -EBUSY, -EBADF, -EINVAL: as asmp_fifo_get
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread uses it
/// during the call, except to cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn asmp_fifo_wait_get(
    fifo: *mut asmp_fifo,
    timeout_ns: c_longlong,
) -> c_int {
    let wait = |slice| {
        // SAFETY: the caller vouches for it.
        let reader = unsafe { own(fifo) }.ok_or(-libc::EINVAL)?.reader()?;
        reader.wait(slice).map_err(waited)
    };
    in_slices(timeout_ns, |slice| wait(slice).map_or_else(|error| error, |()| 0))
}

/// Waits until `count` bytes fit, at most `timeout_ns` nanoseconds (below 0: without limit; 0: does
/// not wait). Acquires the role as asmp_fifo_put does. Blocks; makes system calls. Signals do not
/// interrupt it (no EINTR). A cancellation point as asmp_fifo_wait_get. With ASMP_FIFO_DROP_OLDEST
/// it waits for the reader, although a put would not.
///
/// Returns 0, or an error:
/// - -ETIMEDOUT: the timeout passed
/// - -EPIPE: there is no room and no reader (found within 100 ms, as by asmp_fifo_wait_get)
/// - -ECANCELED: asmp_fifo_cancel
/// - -EMSGSIZE: so many bytes never fit, or are no multiple of the record size
/// - -EBUSY, -EBADF, -EINVAL: as asmp_fifo_put
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread uses it
/// during the call, except to cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn asmp_fifo_wait_put(
    fifo: *mut asmp_fifo,
    count: usize,
    timeout_ns: c_longlong,
) -> c_int {
    let wait = |slice| {
        // SAFETY: the caller vouches for it.
        let fifo = unsafe { own(fifo) }.ok_or(-libc::EINVAL)?;
        let record_bytes = fifo.record_bytes;
        let writer = fifo.writer()?;
        if count == 0 {
            return Ok(());
        }
        if never_fits(record_bytes, count) || count > writer.fifo().capacity_bytes() - 8 {
            return Err(-libc::EMSGSIZE);
        }
        writer.wait(count, slice).map_err(waited)
    };
    in_slices(timeout_ns, |slice| wait(slice).map_or_else(|error| error, |()| 0))
}

/// Is it no whole number of records, or more than any memory has (-1, say, of a read that failed)?
fn never_fits(record_bytes: usize, count: usize) -> bool {
    count > isize::MAX as usize || !count.is_multiple_of(record_bytes)
}

fn waited(error: WaitError) -> c_int {
    match error {
        WaitError::TimedOut => -libc::ETIMEDOUT,
        WaitError::PeerGone => -libc::EPIPE,
        WaitError::Cancelled => -libc::ECANCELED,
    }
}

/// Ends the wait of this end that another thread is in, at once, and each later one, until
/// asmp_fifo_resume: they return -ECANCELED, even if they had something to return. The descriptor
/// of asmp_fifo_fd is readable meanwhile. Puts and gets work as before.
///
/// Any thread and any signal handler may call it, while another thread uses the FIFO. Bounded, no
/// allocation; two system calls.
///
/// Returns 0, or -EINVAL: no FIFO.
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and is not closed meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_cancel(fifo: *const asmp_fifo) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { canceller(fifo) }.map_or(-libc::EINVAL, |canceller| {
        canceller.cancel();
        0
    })
}

/// Lets this end wait again. Any thread may call it. Bounded, no system call.
///
/// Returns 0, or -EINVAL: no FIFO.
///
/// # Safety
/// As asmp_fifo_cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_resume(fifo: *const asmp_fifo) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { canceller(fifo) }.map_or(-libc::EINVAL, |canceller| {
        canceller.resume();
        0
    })
}

/// Returns a descriptor for poll, select and epoll. It is readable (POLLIN)
/// - for a reader, while there is a frame; a get that finds none makes it unreadable
/// - for a writer, while the frame that last found no room fits, at first any; a put that finds no
///   room makes it unreadable
/// - when the other end was there and has ended, and while waits are cancelled
///
/// It is level-triggered, and no event is lost: get until there is nothing, then poll; or get once
/// after each poll. A wait with a timeout of 0 says why it is readable though there is nothing:
/// -EPIPE, -ECANCELED, or -ETIMEDOUT, by chance. Do not read, write or close it: asmp_fifo_close
/// does, and makes it readable before.
///
/// The end needs its role: put or get 0 bytes first. The first call makes a thread of the ordinary
/// policy, on the CPUs of the caller, so it is for the time-sharing side. The thread sleeps as
/// asmp_fifo_wait_get does. The other end makes no more system calls for it than for a sleeper.
///
/// Returns the descriptor, the same each time, or an error:
/// - -EBADF: this end has no role yet
/// - -EMFILE, -ENFILE, -EAGAIN, -ENOMEM: no descriptor, or no thread
/// - -EINVAL: no FIFO
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread uses it
/// during the call, except to cancel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_fd(fifo: *mut asmp_fifo) -> c_int {
    // SAFETY: the caller vouches for it.
    let made = match unsafe { own(fifo) }.map(|own| &mut own.end) {
        None => return -libc::EINVAL,
        Some(End::Reads(reader)) => reader.descriptor(),
        Some(End::Writes(writer)) => writer.descriptor(),
        Some(End::Neither(_) | End::Lost) => return -libc::EBADF,
    };
    why::descriptor(made)
}

/// Returns the number of frames that this writer has dropped to make room; 0 for a reader. Bounded,
/// no system call.
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread puts by it
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_dropped(fifo: *const asmp_fifo) -> c_ulonglong {
    // SAFETY: the caller vouches for it.
    match unsafe { seen(fifo) } {
        Some(Own { end: End::Writes(writer), .. }) => writer.dropped(),
        _ => 0,
    }
}

/// Returns 1 if the other end is alive: a reader for the writer, a writer for the reader and for an
/// end without a role. Returns 0 if there is none, or if it has neither put nor got yet. One system
/// call.
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and no other thread puts or
/// gets by it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_has_peer(fifo: *const asmp_fifo) -> c_int {
    // SAFETY: the caller vouches for it.
    let channel = unsafe { seen(fifo) }.and_then(Own::channel);
    channel.is_some_and(|(fifo, peer)| fifo.shared().is_held(peer)).into()
}

/// Releases the FIFO and its role. The contents stay while another process has the FIFO open.
/// Ignores null. For set-up only: makes system calls.
///
/// # Safety
/// `fifo` is null or came from a function that opens FIFOs, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_close(fifo: *mut asmp_fifo) {
    if !fifo.is_null() {
        // SAFETY: made by Box::into_raw in `open`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(fifo) });
    }
}
