// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time-sharing side of the FIFOs, for C: what /dev/rtfN was. These functions sleep and make
//! system calls. The program `asmp-rtf` makes files for `cat` and `poll`.

use crate::fifo::{RTF_NO, gather, name_of};
use crate::slices::in_slices;
use crate::why::number;
use asmp_channel::{Fifo, FifoReader, FifoWriter, RingError, Role, WaitError, Wake, default_dir};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A FIFO that is open for the time-sharing side.
#[allow(non_camel_case_types)]
pub struct rtf_file {
    reader: Option<FifoReader>,
    writer: Option<FifoWriter>,
    blocks: bool,
}

/// Bytes of the largest piece that a write is cut into.
const PIECE: usize = 4096;

/// Opens FIFO number `fifo` for the time-sharing side. `flags`: O_RDONLY, O_WRONLY or, for a pair
/// (`rtf_make_user_pair`), O_RDWR; and O_NONBLOCK. Reading from `fifo` of a pair reads from its
/// other FIFO, as in RTLinux. Allocates. End it with `rtf_close_np`.
///
/// Returns 0 and the file in `file`, or an error:
/// - -ENODEV: no such number, or no process has created it
/// - -EBUSY: another process has that end open, also the real-time side
/// - -EINVAL: invalid flags, or O_RDWR without a pair
///
/// # Safety
/// `file` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_open_np(
    fifo: c_uint,
    flags: c_int,
    file: *mut *mut rtf_file,
) -> c_int {
    match open(fifo, flags) {
        Ok(opened) => {
            // SAFETY: the caller vouches for the pointer.
            unsafe { file.write(Box::into_raw(Box::new(opened))) };
            0
        }
        Err(error) => error,
    }
}

fn attach(fifo: c_uint) -> Result<Fifo, c_int> {
    if fifo >= RTF_NO {
        return Err(-libc::ENODEV);
    }
    Fifo::attach(&default_dir(), &name_of(fifo)).map_err(|error| number(&error))
}

fn open(fifo: c_uint, flags: c_int) -> Result<rtf_file, c_int> {
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(-libc::EINVAL),
    };
    if flags & !(libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_CLOEXEC) != 0 {
        return Err(-libc::EINVAL);
    }
    let channel = attach(fifo)?;
    let other = channel.user_word().load(Relaxed).checked_sub(1);
    if reads && writes && other.is_none() {
        return Err(-libc::EINVAL);
    }
    let to = |channel: Fifo| channel.into_writer(Wake::IfAsleep).map_err(|error| number(&error));
    let from = |channel: Fifo| channel.into_reader(Wake::IfAsleep).map_err(|error| number(&error));
    let (reader, writer) = match (reads, other) {
        (false, _) => (None, Some(to(channel)?)),
        (true, None) => (Some(from(channel)?), None),
        (true, Some(other)) => {
            (Some(from(attach(other)?)?), if writes { Some(to(channel)?) } else { None })
        }
    };
    Ok(rtf_file { reader, writer, blocks: flags & libc::O_NONBLOCK == 0 })
}

/// Is there no real-time side any more?
fn is_deserted(channel: &Fifo, other: Role) -> bool {
    !channel.shared().is_held(Role::Server) && !channel.shared().is_held(other)
}

/// Reads up to `count` bytes, as many as there are. Waits for the first one, unless opened with
/// O_NONBLOCK. Signals do not interrupt it (no EINTR). While it waits it is a cancellation point:
/// pthread_cancel ends it within 100 ms, nothing is read, and the file can be used further.
///
/// Returns the number of bytes. 0: the FIFO is empty and the real-time side has ended; reading
/// continues when it comes back. Or an error:
/// - -EAGAIN: there are no bytes (RTLinux: 0)
/// - -EBADF: not open for reading
/// - -EINVAL: no buffer
/// - -EIO: the control words of the FIFO were overwritten
///
/// # Safety
/// `file` is open and no other thread reads from it; `buffer` points to `count` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rtf_read_np(
    file: *mut rtf_file,
    buffer: *mut c_void,
    count: usize,
) -> isize {
    let wait = |slice| {
        // SAFETY: the caller vouches for the file.
        unsafe { file.as_mut() }.map_or(0, |file| file.wait_to_read(slice))
    };
    // This frame owns nothing, so that a cancelled wait may unwind it.
    loop {
        // SAFETY: the caller vouches for the file and the buffer.
        if let Some(read) = unsafe { read(file, buffer, count) } {
            return answer(read);
        }
        if in_slices(-1, wait) == -libc::EPIPE {
            return 0;
        }
    }
}

/// What can be read now. `None`: nothing, and the caller waits.
///
/// # Safety
/// That of `rtf_read_np`.
unsafe fn read(
    file: *mut rtf_file,
    buffer: *mut c_void,
    count: usize,
) -> Option<Result<usize, c_int>> {
    // SAFETY: the caller vouches for the file.
    let Some(file) = (unsafe { file.as_mut() }) else { return Some(Err(-libc::EBADF)) };
    if buffer.is_null() && count > 0 {
        return Some(Err(-libc::EINVAL));
    }
    let into = match count {
        0 => &mut [],
        // SAFETY: not null, and the caller vouches for the length.
        _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast(), count) },
    };
    file.read(into)
}

/// Writes `count` bytes, in pieces of up to 4096. Waits for room, unless opened with O_NONBLOCK.
/// Signals do not interrupt it (no EINTR). While it waits it is a cancellation point as
/// rtf_read_np: the pieces that were written stay.
///
/// Returns the number of bytes written: fewer than `count` only with O_NONBLOCK, or if the
/// real-time side ended. Or an error:
/// - -EAGAIN: no room
/// - -EPIPE: the real-time side has ended
/// - -EBADF: not open for writing
/// - -EINVAL: no buffer
///
/// # Safety
/// `file` is open and no other thread writes to it; `buffer` points to `count` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rtf_write_np(
    file: *mut rtf_file,
    buffer: *const c_void,
    count: usize,
) -> isize {
    let mut written = 0;
    // This frame owns nothing, so that a cancelled wait may unwind it.
    loop {
        // SAFETY: the caller vouches for the file and the buffer.
        if let Some(result) = unsafe { write(file, buffer, count, &mut written) } {
            return answer(result);
        }
        let left = count - written;
        // However it ends, we look again.
        in_slices(-1, |slice| {
            // SAFETY: the caller vouches for the file.
            unsafe { file.as_mut() }.map_or(0, |file| file.wait_to_write(left, slice))
        });
    }
}

/// Writes what fits now, and counts it in `written`. `None`: there is more, and the caller waits.
///
/// # Safety
/// That of `rtf_write_np`.
unsafe fn write(
    file: *mut rtf_file,
    buffer: *const c_void,
    count: usize,
    written: &mut usize,
) -> Option<Result<usize, c_int>> {
    // SAFETY: the caller vouches for the file.
    let Some(file) = (unsafe { file.as_mut() }) else { return Some(Err(-libc::EBADF)) };
    if buffer.is_null() && count > 0 {
        return Some(Err(-libc::EINVAL));
    }
    let bytes = match count {
        0 => &[],
        // SAFETY: not null, and the caller vouches for the length.
        _ => unsafe { std::slice::from_raw_parts(buffer.cast(), count) },
    };
    file.write(bytes, written)
}

/// Closes the file. Ignores null.
///
/// # Safety
/// `file` came from `rtf_open_np` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_close_np(file: *mut rtf_file) {
    if !file.is_null() {
        // SAFETY: made by Box::into_raw in `rtf_open_np`, by the caller's word closed once.
        drop(unsafe { Box::from_raw(file) });
    }
}

fn answer(result: Result<usize, c_int>) -> isize {
    result.map_or_else(|error| error as isize, |count| isize::try_from(count).unwrap_or(isize::MAX))
}

impl rtf_file {
    fn read(&mut self, into: &mut [u8]) -> Option<Result<usize, c_int>> {
        let Some(reader) = self.reader.as_mut() else { return Some(Err(-libc::EBADF)) };
        loop {
            match gather(into, |into| reader.get(into)) {
                Ok(0) if into.is_empty() => return Some(Ok(0)),
                Ok(0) if !self.blocks => {
                    // What came in between is not overlooked.
                    let is_over = is_deserted(reader.fifo(), Role::Writer) && reader.is_empty();
                    return Some(if is_over { Ok(0) } else { Err(-libc::EAGAIN) });
                }
                Ok(0) => return None,
                Ok(count) => return Some(Ok(count)),
                Err(RingError::Overtaken) => {}
                Err(_) => return Some(Err(-libc::EIO)),
            }
        }
    }

    /// -EPIPE: the FIFO is empty and the real-time side has ended. -ETIMEDOUT: wait on.
    fn wait_to_read(&mut self, slice: Option<Duration>) -> c_int {
        let Some(reader) = self.reader.as_mut() else { return 0 };
        match reader.wait(slice) {
            Err(WaitError::TimedOut) => -libc::ETIMEDOUT,
            // Gone is also who has made the FIFO and has not put anything yet.
            Err(WaitError::PeerGone)
                if is_deserted(reader.fifo(), Role::Writer) && reader.is_empty() =>
            {
                -libc::EPIPE
            }
            _ => 0,
        }
    }

    fn write(&mut self, bytes: &[u8], written: &mut usize) -> Option<Result<usize, c_int>> {
        let Some(writer) = self.writer.as_mut() else { return Some(Err(-libc::EBADF)) };
        for bytes in bytes[*written..].chunks(piece_bytes(writer)) {
            if writer.put(bytes).is_err() {
                let error = match (is_deserted(writer.fifo(), Role::Reader), self.blocks) {
                    (true, _) => -libc::EPIPE,
                    (false, true) => return None,
                    (false, false) => -libc::EAGAIN,
                };
                return Some(if *written > 0 { Ok(*written) } else { Err(error) });
            }
            *written += bytes.len();
        }
        Some(Ok(*written))
    }

    /// For the next piece of so many bytes. -ETIMEDOUT: wait on.
    fn wait_to_write(&mut self, left: usize, slice: Option<Duration>) -> c_int {
        let Some(writer) = self.writer.as_mut() else { return 0 };
        match writer.wait(left.min(piece_bytes(writer)), slice) {
            Err(WaitError::TimedOut) => -libc::ETIMEDOUT,
            _ => 0,
        }
    }
}

fn piece_bytes(writer: &FifoWriter) -> usize {
    PIECE.min(writer.fifo().capacity_bytes() - 8)
}
