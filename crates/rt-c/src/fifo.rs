// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTLinux's FIFOs: number N is the channel `rtfN` in the user's directory
//! ([`asmp_channel::default_dir`]).
//!
//! A FIFO has one writer and one reader at a time. A process becomes the writer with its first put,
//! the reader with its first get, and stays it until `rtf_destroy`. A put or get of 0 bytes
//! acquires the role in advance. One process may be both.
//!
//! Later puts and gets never wait for another process and allocate nothing. They make no system
//! call, except on the first one of each thread. A sleeping time-sharing peer polls every
//! millisecond. Threads of this process that use one end at the same time take turns, with priority
//! inheritance.
//!
//! Functions and return values are those of RTLinux 3 (`rtl_fifo.c`). Each function documents its
//! differences.

mod file;
pub mod named;
mod table;
mod user;
mod watch;

use crate::why::number;
use asmp_channel::{Fifo, FifoWriter, Options, Overflow, RingError, Role, ShmError, default_dir};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use table::{Half, Halves, Slot, State, slot};

/// Number of FIFOs: they are numbered 0 to RTF_NO - 1.
pub const RTF_NO: c_uint = 64;

/// A handler of accesses. Its return value is not used.
pub type RtfHandler = Option<unsafe extern "C" fn(fifo: c_uint) -> c_int>;

/// A byte alone takes a frame of two words: so much memory makes room for `size` of them.
const BYTES_PER_BYTE: u64 = 16;

/// Creating, destroying and the like: one at a time, and never on the way of a put or a get.
static SETUP: Mutex<()> = Mutex::new(());

fn name_of(fifo: c_uint) -> String {
    format!("rtf{fifo}")
}

/// The value of a C function.
fn value(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|error| error)
}

/// How often to begin anew when the last peer lets a FIFO go while it is taken up.
const ATTEMPTS: u32 = 16;

/// The memory of a FIFO that is to hold `size` bytes: a new one, or one whose real-time side has
/// died.
fn memory(fifo: c_uint, size: c_int) -> Result<Fifo, c_int> {
    let size = u64::try_from(size).ok().filter(|size| *size > 0).ok_or(-libc::ENOMEM)?;
    let options = Options { capacity_bytes: size * BYTES_PER_BYTE, overflow: Overflow::Refuse };
    let (dir, name) = (default_dir(), name_of(fifo));
    let find_or_make = || match Fifo::create(&dir, &name, &options) {
        Err(ShmError::NameTaken { .. }) => Fifo::attach(&dir, &name),
        other => other,
    };
    let mut attempts = 1;
    let channel = loop {
        match find_or_make() {
            Err(ShmError::NotFound { .. }) if attempts < ATTEMPTS => attempts += 1,
            other => break other.map_err(|error| number(&error))?,
        }
    };
    // Held by the real-time side as long as it lives.
    channel.shared().acquire(Role::Server).map_err(|error| number(&error))?;
    match channel.capacity_bytes() as u64 >= options.capacity_bytes {
        true => Ok(channel),
        false => Err(-libc::EBUSY),
    }
}

/// Both ends of a channel in their places.
fn place(slot: &'static Slot, fifo: c_uint, channel: Fifo) -> Result<(), c_int> {
    let second = Fifo::attach(&default_dir(), &name_of(fifo)).map_err(|error| number(&error))?;
    slot.place(channel, second)
}

/// Creates FIFO number `fifo`. At least `size` bytes fit, in frames of any length: it takes 16
/// times as much locked memory, rounded up to a power of two. If a peer kept the FIFO after its
/// real-time side ended, the call continues with it and its contents. For set-up only: allocates,
/// takes a lock, reads a directory.
///
/// Returns 0, or an error:
/// - -ENODEV: no such number
/// - -EBUSY: another process has created it, or a peer still has a smaller one open
/// - -ENOMEM: no memory, or `size` is below 1 or above 2^25
/// - -EACCES: another user's directory, or a channel of a process with more rights
/// - -ETIMEDOUT: another process held the lock of the directory for 10 s
#[unsafe(no_mangle)]
pub extern "C" fn rtf_create(fifo: c_uint, size: c_int) -> c_int {
    let create = || {
        let slot = slot(fifo)?;
        let _one = SETUP.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_there() {
            return Err(-libc::EBUSY);
        }
        let channel = memory(fifo, size)?;
        channel.user_word().store(0, Relaxed);
        place(slot, fifo, channel).map(|()| 0)
    };
    value(create())
}

/// Attaches to a FIFO that another real-time process has created. `rtf_destroy` detaches. RTLinux
/// does not have it: there, all share one address space. Costs are those of `rtf_create`.
///
/// Returns 0, or an error:
/// - -ENODEV: no such number, or no process has created it
/// - -EBUSY: this process has it already
/// - -ENOMEM: no memory
/// - -ETIMEDOUT: another process held the lock of the directory for 10 s
#[unsafe(no_mangle)]
pub extern "C" fn rtf_attach_np(fifo: c_uint) -> c_int {
    let attach = || {
        let slot = slot(fifo)?;
        let _one = SETUP.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_there() {
            return Err(-libc::EBUSY);
        }
        let channel =
            Fifo::attach(&default_dir(), &name_of(fifo)).map_err(|error| number(&error))?;
        place(slot, fifo, channel).map(|()| 0)
    };
    value(attach())
}

/// Detaches this process from a FIFO. The memory is freed when the last process detaches. On return
/// no handler runs any more, unless called from that handler: blocks while it runs. For set-up
/// only: makes system calls.
///
/// Returns 0; -ENODEV: no such number; -EINVAL: not created, or another process has it open.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_destroy(fifo: c_uint) -> c_int {
    let destroy = || {
        let slot = slot(fifo)?;
        let watcher = {
            let _one = SETUP.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.halves()?.is_open_elsewhere()? {
                return Err(-libc::EINVAL);
            }
            slot.clear();
            slot.watcher.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        drop(watcher);
        Ok(0)
    };
    value(destroy())
}

/// Makes room for `size` bytes, and discards the contents, as RTLinux does. The size of memory that
/// others have mapped cannot change, so the call fails while another process has the FIFO open.
/// Costs are those of `rtf_create`. Do not put or get meanwhile.
///
/// Returns 0, or an error, which leaves the FIFO unchanged:
/// - -EINVAL: `size` is below 1, or the FIFO is not created, or open in another process
/// - -ENODEV: no such number
/// - -ENOMEM: no memory
#[unsafe(no_mangle)]
pub extern "C" fn rtf_resize(fifo: c_uint, size: c_int) -> c_int {
    let resize = || {
        let slot = slot(fifo)?;
        let Some(bytes) = u64::try_from(size).ok().filter(|size| *size > 0) else {
            return Err(-libc::EINVAL);
        };
        let _one = SETUP.lock().unwrap_or_else(PoisonError::into_inner);
        let halves = slot.halves()?;
        if halves.is_open_elsewhere()? {
            return Err(-libc::EINVAL);
        }
        // One name cannot stand for two: is there room at all, before the old one goes?
        let options =
            Options { capacity_bytes: bytes * BYTES_PER_BYTE, overflow: Overflow::Refuse };
        let trial = Fifo::create(&default_dir(), &format!("rtf{fifo}-resized"), &options);
        drop(trial.map_err(|error| number(&error))?);
        let (on_access, note) = (halves.on_access()?, halves.user_word()?);
        slot.clear();
        let (channel, answer) = match Fifo::create(&default_dir(), &name_of(fifo), &options) {
            // Somebody who is neither end keeps the old one: it is taken up again.
            Err(ShmError::NameTaken { .. }) => (memory(fifo, 1)?, Err(-libc::EINVAL)),
            new => {
                let new = new.map_err(|error| number(&error))?;
                new.shared().acquire(Role::Server).map_err(|error| number(&error))?;
                (new, Ok(0))
            }
        };
        channel.user_word().store(note, Relaxed);
        place(slot, fifo, channel)?;
        halves.set_on_access(on_access)?;
        let mut watcher = slot.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = watcher.take() {
            let handler = old.handler();
            drop(old);
            *watcher = Some(watch::Watcher::start(fifo, halves, handler)?);
        }
        answer
    };
    value(resize())
}

/// Puts all `count` bytes in, or none. Bounded: O(count). No allocation.
///
/// System calls: two on the process's first put, one on each further thread's first put, then none
/// unless another thread of this process uses this end at the same time.
///
/// Returns `count`, or an error:
/// - -ENODEV: no such number
/// - -EINVAL: not created, or no buffer
/// - -ENOSPC: the bytes do not fit
/// - -EBUSY: another process is the writer (one system call each time)
///
/// # Safety
/// `buffer` points to `count` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_put(fifo: c_uint, buffer: *const c_void, count: c_int) -> c_int {
    let (length, halves) =
        match length(buffer, count).and_then(|length| Ok((length, slot(fifo)?.halves()?))) {
            Ok(found) => found,
            Err(error) => return error,
        };
    let bytes = match length {
        0 => &[],
        // SAFETY: not null, and the caller vouches for the length.
        _ => unsafe { std::slice::from_raw_parts(buffer.cast(), length) },
    };
    let mut half = halves.put.lock();
    let (put, handler) = match &mut *half {
        Some(Half { state: State::Ours(writer), on_access }) => (put_by(writer, bytes), *on_access),
        other => first_put(other, bytes),
    };
    drop(half);
    if put != 0 {
        return put;
    }
    told(handler, fifo, length as c_int)
}

/// Of who is not the writer yet.
#[cold]
fn first_put(half: &mut Option<Half<FifoWriter>>, bytes: &[u8]) -> (c_int, RtfHandler) {
    let put = |half: &mut Half<FifoWriter>| Ok((put_by(half.end()?, bytes), half.on_access));
    half.as_mut().ok_or(-libc::EINVAL).and_then(put).unwrap_or_else(|error| (error, None))
}

/// 0, or the error.
#[inline(always)]
fn put_by(writer: &mut FifoWriter, bytes: &[u8]) -> c_int {
    match writer.put(bytes) {
        // Larger than the FIFO: there is no room either.
        Err(_) if !bytes.is_empty() => -libc::ENOSPC,
        _ => 0,
    }
}

/// Gets up to `count` bytes, as many as there are, also from several puts. Bounded: O(count).
/// System calls and allocation are those of `rtf_put`.
///
/// Returns the number of bytes, 0 if the FIFO is empty, or an error:
/// - -ENODEV: no such number
/// - -EINVAL: not created, or no buffer
/// - -EBUSY: another process is the reader
/// - -EIO: the other side overwrote the control words, and the contents are lost; the next call
///   continues (not in RTLinux)
///
/// # Safety
/// `buffer` points to `count` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_get(fifo: c_uint, buffer: *mut c_void, count: c_int) -> c_int {
    let get = || {
        let length = length(buffer, count)?;
        let mut half = slot(fifo)?.halves()?.get.lock();
        let half = half.as_mut().ok_or(-libc::EINVAL)?;
        let reader = half.end()?;
        if length == 0 {
            return Ok((half.on_access, 0));
        }
        // SAFETY: not null, and the caller vouches for the length.
        let into = unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) };
        let got = gather(into, |into| reader.get(into)).map_err(|_| -libc::EIO)?;
        // No more than `count`.
        Ok((half.on_access, got as c_int))
    };
    get().map_or_else(|error| error, |(handler, got)| told(handler, fifo, got))
}

/// Fills `into` from as many frames as that takes. An error comes by itself: what was got before it
/// is given first.
fn gather(
    into: &mut [u8],
    mut get: impl FnMut(&mut [u8]) -> Result<usize, RingError>,
) -> Result<usize, RingError> {
    let mut got = 0;
    while got < into.len() {
        match get(&mut into[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if got == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(got)
}

fn length(buffer: *const c_void, count: c_int) -> Result<usize, c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(0),
        Ok(length) if !buffer.is_null() => Ok(length),
        _ => Err(-libc::EINVAL),
    }
}

/// Calls the program's handler of real-time accesses, with no lock held, and gives the value on.
fn told(handler: RtfHandler, fifo: c_uint, value: c_int) -> c_int {
    if let Some(handler) = handler {
        // SAFETY: the program's own handler, by its word callable until the FIFO is destroyed.
        unsafe { handler(fifo) };
    }
    value
}

/// Discards the contents. Only the reader can do that: without one, this process is the reader
/// during the call. Bounded: O(size). At most three system calls.
///
/// Returns 0; -ENODEV: no such number; -EINVAL: not created; -EBUSY: another process is the reader
/// (RTLinux discards the contents then, too).
#[unsafe(no_mangle)]
pub extern "C" fn rtf_flush(fifo: c_uint) -> c_int {
    value(slot(fifo).and_then(Slot::halves).and_then(Halves::flush).map(|()| 0))
}

/// Returns 1 if the FIFO is empty, 0 if not; -ENODEV: no such number; -EINVAL: not created.
/// Bounded, no system call, no allocation.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_isempty(fifo: c_uint) -> c_int {
    value(slot(fifo).and_then(Slot::halves).and_then(Halves::is_empty).map(c_int::from))
}

/// Returns 1 if another process has one of the FIFO's ends open; 0 if not, or if there is no such
/// FIFO. At most two system calls, which do not block; no allocation.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_isused(fifo: c_uint) -> c_int {
    slot(fifo).and_then(Slot::halves).and_then(Halves::is_open_elsewhere).map_or(0, c_int::from)
}

/// Calls `handler` when the time-sharing side has written to or read from the FIFO. It runs in a
/// thread of its own with the ordinary policy (in RTLinux: in the context of the system call).
/// Several accesses may cause one call. A second handler replaces the first. For set-up only:
/// creates a thread.
///
/// Returns 0; -EINVAL: no such FIFO, or no handler; -EAGAIN: the thread could not be created.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_create_handler(fifo: c_uint, handler: RtfHandler) -> c_int {
    let create = || {
        let handler = handler.ok_or(-libc::EINVAL)?;
        let slot = slot(fifo).map_err(|_| -libc::EINVAL)?;
        let old = {
            let _one = SETUP.lock().unwrap_or_else(PoisonError::into_inner);
            let new = watch::Watcher::start(fifo, slot.halves()?, handler)?;
            slot.watcher.lock().unwrap_or_else(PoisonError::into_inner).replace(new)
        };
        drop(old);
        Ok(0)
    };
    value(create())
}

/// Calls `handler` after each successful put and after each get, also one of 0 bytes, in the thread
/// that put or got. It may itself put and get; on this FIFO that calls it again. Bounded, no system
/// call.
///
/// Returns 0, or -EINVAL: no such FIFO, or no handler.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_create_rt_handler(fifo: c_uint, handler: RtfHandler) -> c_int {
    if handler.is_none() {
        return -libc::EINVAL;
    }
    let set = slot(fifo).and_then(Slot::halves).and_then(|halves| halves.set_on_access(handler));
    set.map_or(-libc::EINVAL, |()| 0)
}

/// Makes one file for both directions. A time-sharing program that opens `fifo_get` with O_RDWR
/// (`rtf_open_np`) writes to `fifo_get`, for `rtf_get` here, and reads from `fifo_put`, from
/// `rtf_put` here. Bounded, no system call.
///
/// Returns 0; -ENODEV: no such numbers; -EINVAL: not created.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_make_user_pair(fifo_get: c_uint, fifo_put: c_uint) -> c_int {
    let pair = || {
        let (get, put) = (slot(fifo_get)?, slot(fifo_put)?);
        put.halves()?.user_word()?;
        get.halves()?.set_user_word(fifo_put + 1)?;
        Ok(0)
    };
    value(pair())
}
