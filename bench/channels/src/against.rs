// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::record::{Numbers, Record};
use crate::shared_heap::shared;
use crate::{ROOM, two_processes, two_threads};
use iceoryx2::prelude::*;
use std::hint::spin_loop;
use std::io::{Read, Write};

/// A push and a pop for each record. Its ring lies on a heap that both processes share.
pub fn rtrb_single<T: Record>(count: u64) -> f64 {
    let (mut producer, mut consumer) = shared(|| rtrb::RingBuffer::<T>::new(ROOM));
    let other = move || {
        for number in 0..count {
            let record = loop {
                match consumer.pop() {
                    Ok(record) => break record,
                    Err(_) => spin_loop(),
                }
            };
            record.check(number);
        }
    };
    let here = || {
        for number in 0..count {
            let record = T::of(number);
            while producer.push(record).is_err() {
                spin_loop();
            }
        }
    };
    two_processes(count, here, other)
}

pub fn rtrb_chunks<T: Record>(count: u64) -> f64 {
    let (mut producer, mut consumer) = shared(|| rtrb::RingBuffer::<T>::new(ROOM));
    let other = move || {
        let mut number = 0;
        while number < count {
            let slots = consumer.slots().min(64);
            if slots == 0 {
                spin_loop();
                continue;
            }
            let chunk = consumer.read_chunk(slots).expect("as many as there are");
            for record in chunk {
                record.check(number);
                number += 1;
            }
        }
    };
    let here = || {
        let mut number = 0;
        while number < count {
            let slots = producer.slots().min(64).min((count - number) as usize);
            if slots == 0 {
                spin_loop();
                continue;
            }
            let chunk = producer.write_chunk_uninit(slots).expect("as much room as there is");
            let from = number;
            chunk.fill_from_iter((from..from + slots as u64).map(T::of));
            number += slots as u64;
        }
    };
    two_processes(count, here, other)
}

/// Drops the oldest where the subscriber's buffer is full (its default): the publisher never waits.
pub fn iceoryx2(count: u64) -> f64 {
    set_log_level(LogLevel::Fatal);
    let node = NodeBuilder::new().create::<ipc_threadsafe::Service>().expect("a node");
    let name = format!("asmp-bench-{}", std::process::id());
    let service = node
        .service_builder(&name.as_str().try_into().expect("a name"))
        .publish_subscribe::<Numbers>()
        .subscriber_max_buffer_size(ROOM)
        .max_publishers(1)
        .max_subscribers(1)
        .open_or_create()
        .expect("a service");
    let subscriber = service.subscriber_builder().buffer_size(ROOM).create().expect("a subscriber");
    let publisher = service.publisher_builder().create().expect("a publisher");
    let other = move || {
        while subscriber.receive().expect("a connection").is_none_or(|it| it[0] != count - 1) {
            spin_loop();
        }
    };
    let here = || {
        for number in 0..count {
            let sample = publisher.loan_uninit().expect("a sample");
            sample.write_payload(Numbers::of(number)).send().expect("sent");
        }
    };
    two_threads(count, here, other)
}

unsafe extern "C" {
    fn ring_put(ring: *mut libc::c_void, record: *const libc::c_void) -> libc::c_int;
    fn ring_get(ring: *mut libc::c_void, record: *mut libc::c_void) -> libc::c_int;
    fn ring_new(end: *mut libc::c_void, memory: *mut libc::c_void);
}

/// The usual ring in C: slots, two counters, each end remembers the other's.
pub fn c_ring<T: Record>(count: u64) -> f64 {
    const { assert!(size_of::<T>() == 64) };
    let memory = shared(|| Box::leak(vec![0u64; 128 + 1024 * 8].into_boxed_slice()));
    let memory = memory.as_mut_ptr().cast::<libc::c_void>() as usize;
    let end = || {
        let mut end = [0u64; 8];
        // SAFETY: as large as the structure of an end; memory for two counters and 1024 slots.
        unsafe { ring_new(end.as_mut_ptr().cast(), memory as *mut libc::c_void) };
        end
    };
    let other = || {
        let mut end = end();
        for number in 0..count {
            let mut record = T::of(0);
            // SAFETY: an end of this ring; a record has 64 bytes.
            while unsafe { ring_get(end.as_mut_ptr().cast(), (&raw mut record).cast()) } == 0 {
                spin_loop();
            }
            record.check(number);
        }
    };
    let here = || {
        let mut end = end();
        for number in 0..count {
            let record = T::of(number);
            // SAFETY: as above.
            while unsafe { ring_put(end.as_mut_ptr().cast(), (&raw const record).cast()) } == 0 {
                spin_loop();
            }
        }
    };
    two_processes(count, here, other)
}

/// Whole records through anything that reads and writes.
fn through<T: Record>(count: u64, mut from: impl Read, mut to: impl Write) -> f64 {
    let other = move || {
        let mut record = T::of(0);
        for number in 0..count {
            // SAFETY: the bytes of a record, which has no padding and may have any (`Plain`).
            let bytes = unsafe {
                std::slice::from_raw_parts_mut((&raw mut record).cast::<u8>(), size_of::<T>())
            };
            from.read_exact(bytes).expect("a record");
            record.check(number);
        }
    };
    let here = || {
        for number in 0..count {
            let record = T::of(number);
            // SAFETY: as above.
            let bytes = unsafe {
                std::slice::from_raw_parts((&raw const record).cast::<u8>(), size_of::<T>())
            };
            to.write_all(bytes).expect("written");
        }
    };
    two_processes(count, here, other)
}

pub fn pipe<T: Record>(count: u64) -> f64 {
    let (from, to) = std::io::pipe().expect("a pipe");
    through::<T>(count, from, to)
}

pub fn unix_stream<T: Record>(count: u64) -> f64 {
    let (from, to) = std::os::unix::net::UnixStream::pair().expect("a pair");
    through::<T>(count, from, to)
}

pub fn unix_packets<T: Record>(count: u64) -> f64 {
    use std::os::fd::FromRawFd;
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into our array.
    let made =
        unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0, "a pair");
    // SAFETY: descriptors that the kernel has just given us, each owned once.
    let [from, to] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
    through::<T>(count, from, to)
}

#[repr(C, align(64))]
struct Flags([u32; 32]);

unsafe extern "C" {
    fn flags_ping(flags: *mut Flags, rounds: u32);
    fn flags_pong(flags: *mut Flags, rounds: u32);
    fn futex_ping(flags: *mut Flags, rounds: u32);
    fn futex_pong(flags: *mut Flags, rounds: u32);
}

type End = unsafe extern "C" fn(*mut Flags, u32);

fn bare(count: u64, ping: End, pong: End) -> f64 {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let flags = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Flags>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(flags, libc::MAP_FAILED, "memory");
    let flags = flags.cast::<Flags>();
    // SAFETY: the mapping is shared by both processes and lives to the end of each.
    two_processes(
        count,
        || unsafe { ping(flags, count as u32) },
        || unsafe { pong(flags, count as u32) },
    )
}

pub fn two_flags(count: u64) -> f64 {
    bare(count, flags_ping, flags_pong)
}

pub fn two_futexes(count: u64) -> f64 {
    bare(count, futex_ping, futex_pong)
}
