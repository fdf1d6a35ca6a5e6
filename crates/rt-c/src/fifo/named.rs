//! FIFOs by name and by pointer, not of RTLinux: what `rtf_put` pays for its numbers and for the threads that share one,
//! these do not; and a full one may lose its oldest instead of refusing. `rtfN` names RTLinux's number N.

use crate::why::{self, keep, pointer, timeout};
use asmp_channel::{
    Fifo, FifoReader, FifoWriter, Options, Overflow, RingError, Role, ShmError, WaitError, Wake, default_dir,
};
use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void};
use std::path::Path;
use std::time::Duration;

/// `flags` of asmp_fifo_create: where there is no room, the oldest frames are dropped and counted; without it a put is refused.
pub const ASMP_FIFO_DROP_OLDEST: u32 = 1;
/// `flags`: this end wakes the other one where that sleeps, by one system call; without it it enters no kernel, and the
/// other end looks for itself every millisecond.
pub const ASMP_FIFO_WAKE: u32 = 2;

/// One end of a FIFO in shared memory: its writer from its first put on, its reader from its first get on.
#[allow(non_camel_case_types)]
pub struct asmp_fifo {
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
            return Err(keep(-libc::EINVAL, &format_args!("flags of {flags:#x}: {known:#x} are known")));
        }
        let fifo = open(&default_dir(), name).map_err(|error| keep(why::number(&error), &error))?;
        let record_bytes = usize::try_from(fifo.record_bytes()).unwrap_or(usize::MAX).max(1);
        Ok(Box::into_raw(Box::new(asmp_fifo { end: End::Neither(fifo), record_bytes, wake: wake_of(flags) })))
    }))
}

/// Makes a FIFO with room for `records` records of `size` bytes, or for more, each put by itself; with a `size` of 0 for frames of
/// any length, which take `records` bytes together, 8 for each one's header and padding to 8 included: 16 to 2^29 - 8. `flags`:
/// ASMP_FIFO_DROP_OLDEST, ASMP_FIFO_WAKE. Set-up only: allocates, takes a lock, reads a directory. Ends with asmp_fifo_close; the
/// memory goes with the last who has it.
///
/// A `name` is 1 to 64 letters, digits, '-' or '_', and stands, beside those of memories, records and calls, in the directory
/// $ASMP_CHANNELS, or else /dev/shm/asmp-UID: for the processes of one user and for root. A child that was forked has the same
/// end, not another, and does not keep the name: only one of the two may use it, and where its parent ends without
/// asmp_fifo_close the role stays until the child has ended, too. So fork first, and open then; exec closes it.
///
/// The FIFO, or null, with errno and asmp_why(): EINVAL, the name or the flags; EBUSY, the name is taken; ENOMEM, no room, or a
/// size that no FIFO has; EACCES, the directory is not this user's; EMFILE; ETIMEDOUT, another process kept its lock for 10 s; or
/// what the directory has against it (ENOENT, its own is not there; ENOTDIR, ENOSPC, EROFS).
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

/// Attaches to a FIFO that is there (rtfN is number N of rtf_create): with records of `size` bytes, or of whatever it has with a `size` of 0. `flags`:
/// ASMP_FIFO_WAKE. Costs as asmp_fifo_create, and errors, of which ENOMEM says that it cannot be mapped; EBUSY, it has records of
/// another size, is no FIFO, or was made by another version of this library; ENODEV, nobody has made it, or has it still.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_attach(name: *const c_char, size: usize, flags: c_int) -> *mut asmp_fifo {
    let find = |dir: &Path, name: &str| match size {
        0 => Fifo::attach(dir, name),
        size => Fifo::attach_for(dir, name, size as u64),
    };
    // SAFETY: the caller vouches for it.
    unsafe { open(name, flags, ASMP_FIFO_WAKE, find) }
}

/// Puts `count` bytes in as one frame, or nothing: one record, or several that the reader sees at once. The first put makes this
/// process the one writer, until asmp_fifo_close or its end (two system calls; a put of 0 bytes takes the role up in advance). From
/// then on bounded, O(count), no allocation, no waiting, whatever the reader does or becomes; no system call, or with ASMP_FIFO_WAKE one
/// where the reader sleeps. 0, or -ENOSPC, no room now; -EMSGSIZE, it never fits, or is no multiple of the records' size; -EBUSY,
/// another is the writer; -EBADF, this is the reader; -EINVAL, no FIFO or no bytes; -EIO, the kernel took the role away.
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create or asmp_fifo_attach, and no other thread uses it now; `bytes` points to `count`
/// readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_put(fifo: *mut asmp_fifo, bytes: *const c_void, count: usize) -> c_int {
    // SAFETY: the caller vouches for it.
    let Some(fifo) = (unsafe { fifo.as_mut() }) else { return -libc::EINVAL };
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

/// Takes the oldest frame out, or as much of it as `size` bytes hold: the rest comes next, unless the writer has dropped it. One frame
/// at a time, whatever `size`. What a reader that was killed had taken in part, or was just taking, comes to the next one again. The
/// first get makes this process the one reader, as a put its writer. Bounded, O(size), and costs as asmp_fifo_put. The bytes; 0, there are none; or -EAGAIN, the writer dropped what
/// was being read, time and again: get again; -EIO, the other side overwrote the control words, and what was in it is lost: the next get goes
/// on; -EBUSY, another is the reader; -EBADF, this is the writer; -EINVAL, no FIFO or no buffer.
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create or asmp_fifo_attach, and no other thread uses it now; `buffer` points to `size`
/// writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_get(fifo: *mut asmp_fifo, buffer: *mut c_void, size: usize) -> isize {
    let get = || {
        // SAFETY: the caller vouches for it.
        let reader = unsafe { fifo.as_mut() }.ok_or(-libc::EINVAL)?.reader()?;
        if buffer.is_null() || size == 0 {
            return if size == 0 { Ok(0) } else { Err(-libc::EINVAL) };
        }
        // SAFETY: not null, and the caller vouches for the length.
        let into = unsafe { std::slice::from_raw_parts_mut(buffer.cast(), size.min(isize::MAX as usize)) };
        reader.get(into).map_err(|error| match error {
            RingError::Overtaken => -libc::EAGAIN,
            _ => -libc::EIO,
        })
    };
    get().map_or_else(|error| error as isize, |got| isize::try_from(got).unwrap_or(isize::MAX))
}

/// Waits up to `timeout_ns` (below 0: for ever; 0: not at all) until there is something to get. Takes the role up as
/// asmp_fifo_get. Blocks; system calls. Not ended by a signal: a program that is to hear of one waits in short steps. 0, or
/// -ETIMEDOUT; -EPIPE, there is nothing, and nobody is the writer, no longer or not yet (found after 100 ms: who waits for less asks
/// asmp_fifo_has_peer); -EBUSY, -EBADF, -EINVAL as asmp_fifo_get.
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create or asmp_fifo_attach, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_wait_get(fifo: *mut asmp_fifo, timeout_ns: c_longlong) -> c_int {
    let wait = || {
        // SAFETY: the caller vouches for it.
        let reader = unsafe { fifo.as_mut() }.ok_or(-libc::EINVAL)?.reader()?;
        waited(|timeout| reader.wait(timeout), timeout_ns)
    };
    wait().map_or_else(|error| error, |()| 0)
}

/// Waits up to `timeout_ns` (below 0: for ever; 0: not at all) until `count` bytes fit. Takes the role up as asmp_fifo_put. Blocks; system
/// calls. Not ended by a signal. 0, or -ETIMEDOUT; -EPIPE, there is no room, and nobody is the reader (found after 100 ms, as by
/// asmp_fifo_wait_get); -EMSGSIZE, so many never fit, or are no multiple of the records' size; -EBUSY, -EBADF, -EINVAL as
/// asmp_fifo_put. With ASMP_FIFO_DROP_OLDEST it waits for the reader, where a put would not.
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create or asmp_fifo_attach, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_wait_put(
    fifo: *mut asmp_fifo,
    count: usize,
    timeout_ns: c_longlong,
) -> c_int {
    let wait = || {
        // SAFETY: the caller vouches for it.
        let fifo = unsafe { fifo.as_mut() }.ok_or(-libc::EINVAL)?;
        let record_bytes = fifo.record_bytes;
        let writer = fifo.writer()?;
        if count == 0 {
            return Ok(());
        }
        if never_fits(record_bytes, count) || count > writer.fifo().capacity_bytes() - 8 {
            return Err(-libc::EMSGSIZE);
        }
        waited(|timeout| writer.wait(count, timeout), timeout_ns)
    };
    wait().map_or_else(|error| error, |()| 0)
}

/// Is it no whole number of records, or more than any memory has (-1, say, of a read that failed)?
fn never_fits(record_bytes: usize, count: usize) -> bool {
    count > isize::MAX as usize || !count.is_multiple_of(record_bytes)
}

fn waited(
    wait: impl FnOnce(Option<Duration>) -> Result<(), WaitError>,
    timeout_ns: c_longlong,
) -> Result<(), c_int> {
    wait(timeout(timeout_ns)).map_err(|error| match error {
        WaitError::TimedOut => -libc::ETIMEDOUT,
        WaitError::PeerGone => -libc::EPIPE,
    })
}

/// Frames that this writer has dropped to make room, so far; 0 for a reader. Bounded, no system call.
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create or asmp_fifo_attach, and no other thread puts by it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_dropped(fifo: *const asmp_fifo) -> c_ulonglong {
    // SAFETY: the caller vouches for it.
    match unsafe { fifo.as_ref() } {
        Some(asmp_fifo { end: End::Writes(writer), .. }) => writer.dropped(),
        _ => 0,
    }
}

/// 1, there is another end, alive: a reader for the writer, a writer for the reader and for who is neither yet; 0, there is none, or
/// it has neither put nor got yet. One system call.
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create or asmp_fifo_attach, and no other thread puts or gets by it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_has_peer(fifo: *const asmp_fifo) -> c_int {
    // SAFETY: the caller vouches for it.
    let channel = unsafe { fifo.as_ref() }.and_then(asmp_fifo::channel);
    channel.is_some_and(|(fifo, peer)| fifo.shared().is_held(peer)).into()
}

/// Lets it go, and its role to another; what is in it stays while somebody has it. Null is ignored. Set-up only: system calls.
///
/// # Safety
/// `fifo` is null or came from asmp_fifo_create or asmp_fifo_attach, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_fifo_close(fifo: *mut asmp_fifo) {
    if !fifo.is_null() {
        // SAFETY: made by Box::into_raw in `open`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(fifo) });
    }
}
