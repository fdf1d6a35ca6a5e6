//! RTLinux's FIFOs: number N is the channel `rtfN` of the user's directory ([`asmp_channel::default_dir`]).
//!
//! A FIFO has one writer and one reader at a time. Who puts becomes its writer at the first put, who gets its reader at
//! the first get, and stays it until `rtf_destroy`; a put or a get of 0 bytes takes the role up in advance. Both ends may
//! be this process. From then on they enter no kernel (but once for each thread that joins in), wait for no other process and allocate nothing: a time-sharing
//! peer that sleeps looks for itself every millisecond. Threads of this process that use one end of one FIFO at the same time
//! take turns, with priority inheritance.
//!
//! The calls and their values are those of RTLinux 3 (`rtl_fifo.c`); where they differ, the function says so.

mod named;
mod table;
mod user;
mod watch;

use crate::why::number;
use asmp_channel::{Fifo, FifoWriter, Options, Overflow, RingError, Role, ShmError, default_dir};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use table::{Half, Halves, Slot, State, slot};

/// FIFOs, 0 to RTF_NO - 1.
pub const RTF_NO: c_uint = 64;

/// What a program is told of accesses by; its value is not used.
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

/// The memory of a FIFO that is to hold `size` bytes: a new one, or one whose real-time side has died.
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

/// Makes FIFO number `fifo`, in which at least `size` bytes fit, however they are cut (it takes 16 times that much
/// locked memory, rounded up to a power of two). A FIFO that a peer kept while its real-time side died is taken up with what
/// is in it. Allocates, reads a directory, takes a lock: set-up only. 0, or -ENODEV, no such number; -EBUSY, somebody
/// has made it, or a peer still holds one that is smaller; -ENOMEM, no room, or a size below 1 or above 2^25; -EACCES, the
/// directory is not this user's; -ETIMEDOUT, another process kept its lock for 10 s.
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

/// Takes part in a FIFO that another real-time process has made; `rtf_destroy` ends that. Not in RTLinux, where all
/// share one address space. Costs as `rtf_create`. 0, or -ENODEV, no such number or nobody has made it; -EBUSY, this
/// process has it; -ENOMEM; -ETIMEDOUT, as rtf_create.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_attach_np(fifo: c_uint) -> c_int {
    let attach = || {
        let slot = slot(fifo)?;
        let _one = SETUP.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_there() {
            return Err(-libc::EBUSY);
        }
        let channel = Fifo::attach(&default_dir(), &name_of(fifo)).map_err(|error| number(&error))?;
        place(slot, fifo, channel).map(|()| 0)
    };
    value(attach())
}

/// Ends this process's part in a FIFO; its memory goes with the last who has it. No handler runs any more when it
/// returns, unless it is called from that handler. Blocks up to 100 ms where there was a handler; system calls: set-up
/// only. 0, or -ENODEV, no such number; -EINVAL, not created, or another process has it open.
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

/// Makes room for `size` bytes; what is in the FIFO is lost, as in RTLinux. The size of memory that others have mapped
/// cannot change, so it is refused while another process has the FIFO open. Costs as `rtf_create`; no put or get
/// meanwhile. 0, or -EINVAL, a size below 1, not created, or open elsewhere, also as neither end; -ENODEV; -ENOMEM, no
/// room. Where it is refused nothing has changed.
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
        let options = Options { capacity_bytes: bytes * BYTES_PER_BYTE, overflow: Overflow::Refuse };
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

/// Puts all `count` bytes or none. Bounded: O(count). System calls: two at the first put and one at each thread's first; none
/// later while this process's other threads leave this end alone. No allocation. `count`, or -ENODEV, no such number; -EINVAL, not created,
/// or no buffer; -ENOSPC, they do not fit; -EBUSY, another process is the writer (one system call each time).
///
/// # Safety
/// `buffer` points to `count` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_put(fifo: c_uint, buffer: *const c_void, count: c_int) -> c_int {
    let (length, halves) = match length(buffer, count).and_then(|length| Ok((length, slot(fifo)?.halves()?)))
    {
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

/// Gets up to `count` bytes, as many as there are, over the bounds of puts; 0, there are none. Bounded: O(count). System
/// calls and allocation as `rtf_put`. The bytes, or -ENODEV, no such number; -EINVAL, not created, or no buffer;
/// -EBUSY, another process is the reader; -EIO, the other side has overwritten the FIFO's control words, and what was in it
/// is lost (not in RTLinux; the next call goes on).
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

/// Fills `into` from as many frames as that takes. An error comes by itself: what was got before it is given first.
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

/// Throws away what is in the FIFO. Only its reader can: where there is none, this process is it for the time of the
/// call. Bounded: O(size). At most three system calls. 0, or -ENODEV; -EINVAL, not created; -EBUSY, another process is the reader
/// (RTLinux empties it then too).
#[unsafe(no_mangle)]
pub extern "C" fn rtf_flush(fifo: c_uint) -> c_int {
    value(slot(fifo).and_then(Slot::halves).and_then(Halves::flush).map(|()| 0))
}

/// 1, there is nothing in the FIFO; 0, there is; or -ENODEV; -EINVAL, not created. Bounded, no system call, no allocation.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_isempty(fifo: c_uint) -> c_int {
    value(slot(fifo).and_then(Slot::halves).and_then(Halves::is_empty).map(c_int::from))
}

/// 1, another process has the FIFO open (one or the other end); 0, none, or there is no such FIFO. At most two system calls
/// that do not block; no allocation.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_isused(fifo: c_uint) -> c_int {
    slot(fifo).and_then(Slot::halves).and_then(Halves::is_open_elsewhere).map_or(0, c_int::from)
}

/// `handler` is called when the time-sharing side has written to or read from the FIFO, in a thread of its own with the
/// ordinary policy (in RTLinux: in the system's own context); several accesses may be one call. A second
/// handler replaces the first. Makes a thread: set-up only. 0, or -EINVAL, no such FIFO or no handler; -EAGAIN, no thread.
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

/// `handler` is called in the thread that has put or got, after each put that succeeded and each get, also one of nothing;
/// it may put and get itself, but on this FIFO that calls it again. Bounded, no system call. 0, or -EINVAL, no such FIFO or no handler.
#[unsafe(no_mangle)]
pub extern "C" fn rtf_create_rt_handler(fifo: c_uint, handler: RtfHandler) -> c_int {
    if handler.is_none() {
        return -libc::EINVAL;
    }
    let set = slot(fifo).and_then(Slot::halves).and_then(|halves| halves.set_on_access(handler));
    set.map_or(-libc::EINVAL, |()| 0)
}

/// One file for both directions: who opens `fifo_get` on the time-sharing side with O_RDWR (`rtf_open_np`) writes to
/// `fifo_get`, for `rtf_get` here, and reads from `fifo_put`, what `rtf_put` puts here. Bounded, no system call. 0, or
/// -ENODEV, no such numbers; -EINVAL, not created.
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
