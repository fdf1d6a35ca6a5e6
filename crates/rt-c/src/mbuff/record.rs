// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records in shared memory: one writer and any number of readers, in any processes.

use crate::mbuff::number;
use crate::why::{self, pointer};
use asmp_channel::{MbuffError, Pages, RawRecord, RawRecordWriter, Role, default_dir};
use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::path::Path;

/// A record in shared memory. Readers see its newest whole value.
#[allow(non_camel_case_types)]
pub struct asmp_record {
    end: End,
}

enum End {
    Reads(RawRecord),
    Writes(RawRecordWriter),
    /// Became the writer and could not: what the kernel refused.
    Lost,
}

impl asmp_record {
    /// A record without a writer here yet.
    pub fn of(record: RawRecord) -> Self {
        Self { end: End::Reads(record) }
    }

    /// Its role is taken if it is not ours yet. Errors: EBUSY, EIO.
    fn writer(&mut self) -> Result<&mut RawRecordWriter, c_int> {
        if let End::Reads(record) = &self.end {
            // Asked for first, since what is refused below is lost.
            record.shared().acquire(Role::Writer).map_err(|error| why::number(&error))?;
            if let End::Reads(record) = std::mem::replace(&mut self.end, End::Lost) {
                self.end = End::Writes(record.writer().map_err(|error| number(&error))?);
            }
        }
        match &mut self.end {
            End::Writes(writer) => Ok(writer),
            _ => Err(-libc::EIO),
        }
    }

    pub fn record(&self) -> Result<&RawRecord, c_int> {
        match &self.end {
            End::Reads(record) => Ok(record),
            End::Writes(writer) => Ok(writer.record()),
            End::Lost => Err(-libc::EIO),
        }
    }
}

type Open = fn(&Path, &str, usize) -> Result<RawRecord, MbuffError>;

/// # Safety
/// As [`why::name`].
unsafe fn open(name: *const c_char, size: usize, open: Open) -> *mut asmp_record {
    // SAFETY: the caller vouches for it.
    pointer(unsafe { why::name(name) }.and_then(|name| {
        let record = open(&default_dir(), name, size).map_err(|error| number(&error))?;
        Ok(Box::into_raw(Box::new(asmp_record::of(record))))
    }))
}

/// Creates shared memory for a record of `size` bytes, or attaches to one with this name and size.
/// The type of the record should have no padding and no pointers. For set-up only: allocates, takes
/// a lock, reads a directory. End it with asmp_record_free; the memory is freed when the last
/// process frees it.
///
/// Returns the record. On error returns null, and sets errno and asmp_why():
/// - EINVAL: the name is invalid
/// - EBUSY: the name belongs to a record of another size, or to another kind or version of channel
/// - ENOMEM: no memory, or a `size` of 0
/// - EACCES: another user's directory, or a channel of a process with more rights
/// - EMFILE: too many open files
/// - ETIMEDOUT: another process held the lock of the directory for 10 s
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_alloc(name: *const c_char, size: usize) -> *mut asmp_record {
    // SAFETY: the caller vouches for it.
    unsafe { open(name, size, |dir, name, size| RawRecord::alloc(dir, name, size, Pages::Normal)) }
}

/// As asmp_record_alloc, but only for an existing record; ENODEV if there is none.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_attach(name: *const c_char, size: usize) -> *mut asmp_record {
    // SAFETY: the caller vouches for it.
    unsafe { open(name, size, RawRecord::attach) }
}

/// Makes the `size` bytes at `value` the newest record. The first write makes this process the
/// writer until asmp_record_free or its end; that takes two system calls. A write of 0 bytes
/// acquires the role in advance. A new writer continues after the last whole record, however the
/// writer before it ended.
///
/// Later writes are bounded, O(size), make no system call, do not allocate and never wait, whatever
/// readers do.
///
/// Returns 0; -EBUSY: another process is the writer; -EINVAL: no record, no value, or another size;
/// -EACCES: it was offered for reading; -EIO: the lock of the role failed.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc or asmp_record_attach, and no other thread uses
/// it during the call; `value` points to `size` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_write(
    record: *mut asmp_record,
    value: *const c_void,
    size: usize,
) -> c_int {
    let write = || {
        // SAFETY: the caller vouches for it.
        let writer = unsafe { record.as_mut() }.ok_or(-libc::EINVAL)?.writer()?;
        if size == 0 {
            return Ok(0);
        }
        if value.is_null() || size != writer.record().bytes() {
            return Err(-libc::EINVAL);
        }
        // SAFETY: not null, and the caller vouches for the length.
        writer.write(unsafe { std::slice::from_raw_parts(value.cast(), size) });
        Ok(0)
    };
    write().unwrap_or_else(|error| error)
}

/// Copies the newest whole record to `value`. Bounded: at most 16 copies. No system call, no
/// allocation. It does not wait for a writer that was stopped or killed inside a write.
///
/// Returns the number of the record, from 1; 0 if there is none yet; -EAGAIN: the writer overtook
/// this reader 16 times: read again; -EINVAL: no record, no value, or another size; -EIO: as
/// asmp_record_write.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc or asmp_record_attach, and no other thread
/// writes by it during the call; `value` points to `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_read(
    record: *const asmp_record,
    value: *mut c_void,
    size: usize,
) -> c_longlong {
    let read = || {
        // SAFETY: the caller vouches for it.
        let record = unsafe { record.as_ref() }.ok_or(-libc::EINVAL)?.record()?;
        if value.is_null() || size != record.bytes() {
            return Err(-libc::EINVAL);
        }
        // SAFETY: not null, and the caller vouches for the length.
        let into = unsafe { std::slice::from_raw_parts_mut(value.cast(), size) };
        let number = record.read(into).map_err(|_| -libc::EAGAIN)?.unwrap_or(0);
        Ok(c_longlong::try_from(number).unwrap_or(c_longlong::MAX))
    };
    read().unwrap_or_else(|error: c_int| error.into())
}

/// Returns 1 if another process, or another asmp_record of this one, is the writer; 0 if not. One
/// system call.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc or asmp_record_attach.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_has_writer(record: *const asmp_record) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { record.as_ref() }
        .and_then(|record| record.record().ok())
        .is_some_and(RawRecord::has_writer)
        .into()
}

/// Releases the record and its role. Ignores null. For set-up only: makes system calls.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc or asmp_record_attach, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_free(record: *mut asmp_record) {
    if !record.is_null() {
        // SAFETY: made by Box::into_raw in `open`, by the caller's word freed once.
        drop(unsafe { Box::from_raw(record) });
    }
}
