//! Records in shared memory, one writer and any readers, of any processes.

use crate::mbuff::number;
use crate::why::{self, pointer};
use asmp_channel::{MbuffError, Pages, RawRecord, RawRecordWriter, Role, default_dir};
use std::ffi::{c_char, c_int, c_longlong, c_void};
use std::path::Path;

/// A record in shared memory, of which every reader sees the newest whole one.
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

    fn record(&self) -> Result<&RawRecord, c_int> {
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
        Ok(Box::into_raw(Box::new(asmp_record { end: End::Reads(record) })))
    }))
}

/// Makes shared memory for a record of `size` bytes, or attaches to what has this name and size. The record's type
/// should have no padding, and no pointers. Set-up only: allocates, takes a lock, reads a directory. Ends with
/// asmp_record_free; the memory goes with the last who has it.
///
/// The record, or null, with errno and asmp_why(): EINVAL, the name; EBUSY, the name stands for records of
/// another size, for something else, or was made by another version of this library; ENOMEM, no room, or a size of 0; EACCES;
/// EMFILE; ETIMEDOUT, another process kept its lock for 10 s.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_alloc(name: *const c_char, size: usize) -> *mut asmp_record {
    // SAFETY: the caller vouches for it.
    unsafe { open(name, size, |dir, name, size| RawRecord::alloc(dir, name, size, Pages::Normal)) }
}

/// As asmp_record_alloc, but only what is there; else errno is ENODEV.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_attach(name: *const c_char, size: usize) -> *mut asmp_record {
    // SAFETY: the caller vouches for it.
    unsafe { open(name, size, RawRecord::attach) }
}

/// Makes the `size` bytes at `value` the newest record. The first write makes this process the one writer, until
/// asmp_record_free or its end (two system calls; a write of 0 bytes takes the role up in advance); it goes on from the last whole
/// record, whatever became of the writer before. From then on bounded, O(size): no system call, no allocation, no waiting, whatever
/// readers do or become. 0, or -EBUSY, another is the writer; -EINVAL, no record, no value or not its size; -EIO, the kernel took the
/// role away.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc or asmp_record_attach, and no other thread uses it now; `value` points to
/// `size` readable bytes.
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

/// Copies the newest whole record to `value`. Bounded: at most 16 copies; no system call, no allocation; does not wait for a writer
/// that was stopped or killed in the middle of a record. The record's number, 1 being the first; 0, there is none yet; or -EAGAIN, the
/// writer was faster 16 times: read again; -EINVAL, no record, no value or not its size; -EIO, as asmp_record_write.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc or asmp_record_attach, and no other thread writes by it now; `value` points
/// to `size` writable bytes.
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

/// 1, another process or another asmp_record of this one is the writer, alive; 0, none is. One system call.
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

/// Lets it go; null is ignored. Set-up only: system calls.
///
/// # Safety
/// `record` is null or came from asmp_record_alloc or asmp_record_attach, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn asmp_record_free(record: *mut asmp_record) {
    if !record.is_null() {
        // SAFETY: made by Box::into_raw in `open`, by the caller's word freed once.
        drop(unsafe { Box::from_raw(record) });
    }
}
