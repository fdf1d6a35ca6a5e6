// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::record::{Numbers, Record};
use crate::{ROOM, two_processes};
use asmp_channel::{Fifo, FifoReader, FifoWriter, Options, Overflow, Wake};
use asmp_channel::{TypedFifo, TypedReader, TypedWriter};
use std::hint::spin_loop;

fn private_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("a mode");
    dir
}

fn pair(name: &str, wake: Wake) -> (FifoWriter, FifoReader) {
    let dir = private_dir();
    let options = Options { capacity_bytes: 65_528, overflow: Overflow::Refuse };
    let writer = Fifo::create(dir.path(), name, &options)
        .expect("a FIFO")
        .into_writer(wake)
        .expect("its writer");
    let reader =
        Fifo::attach(dir.path(), name).expect("the FIFO").into_reader(wake).expect("its reader");
    (writer, reader)
}

fn typed<T: Record>(room: u64) -> (TypedWriter<T>, TypedReader<T>) {
    let dir = private_dir();
    let fifo = TypedFifo::<T>::create(dir.path(), "a", room, Overflow::Refuse);
    let writer = fifo.expect("a FIFO").into_writer(Wake::Never).expect("its writer");
    let fifo = TypedFifo::<T>::attach(dir.path(), "a").expect("the FIFO");
    (writer, fifo.into_reader(Wake::Never).expect("its reader"))
}

pub fn one_way<T: Record>(count: u64) -> f64 {
    let (mut writer, mut reader) = typed::<T>(ROOM as u64);
    let here = || {
        for number in 0..count {
            let record = T::of(number);
            while writer.put(&record).is_err() {
                spin_loop();
            }
        }
    };
    let other = move || {
        for number in 0..count {
            let record = loop {
                match reader.get().expect("a whole ring") {
                    Some(record) => break record,
                    None => spin_loop(),
                }
            };
            record.check(number);
        }
    };
    two_processes(count, here, other)
}

pub fn one_way_together<T: Record>(count: u64) -> f64 {
    let (mut writer, mut reader) = typed::<T>(ROOM as u64);
    let other = move || {
        let (mut records, mut number) = ([T::of(0); 64], 0);
        while number < count {
            let some = reader.get_all(&mut records).expect("a whole ring");
            if some == 0 {
                spin_loop();
            }
            for record in &records[..some] {
                record.check(number);
                number += 1;
            }
        }
    };
    let here = || {
        let (mut records, mut number) = ([T::of(0); 64], 0);
        while number < count {
            let some = (count - number).min(64) as usize;
            for record in &mut records[..some] {
                *record = T::of(number);
                number += 1;
            }
            while writer.put_all(&records[..some]).is_err() {
                spin_loop();
            }
        }
    };
    two_processes(count, here, other)
}

fn send(writer: &mut FifoWriter, number: u64) {
    writer.put(&number.to_ne_bytes()).expect("room");
}

fn receive(reader: &mut FifoReader, sleep: bool) -> u64 {
    let mut bytes = [0; 8];
    while reader.get(&mut bytes).expect("a whole ring") == 0 {
        match sleep {
            true => reader.wait(None).expect("a writer"),
            false => spin_loop(),
        }
    }
    u64::from_ne_bytes(bytes)
}

fn there_and_back(count: u64, sleep: bool) -> f64 {
    let wake = if sleep { Wake::IfAsleep } else { Wake::Never };
    let (mut to, mut at_other) = pair("a", wake);
    let (mut back, mut at_here) = pair("b", wake);
    let other = move || {
        for number in 0..count {
            assert_eq!(receive(&mut at_other, sleep), number);
            send(&mut back, number);
        }
    };
    let here = || {
        for number in 0..count {
            send(&mut to, number);
            assert_eq!(receive(&mut at_here, sleep), number);
        }
    };
    two_processes(count, here, other)
}

pub fn round_trip(count: u64) -> f64 {
    there_and_back(count, false)
}

pub fn sleeping_round_trip(count: u64) -> f64 {
    there_and_back(count, true)
}

/// Puts, and takes out if `get`, for a counter of instructions.
pub fn count_instructions(count: u64, get: bool) {
    let (mut writer, mut reader) = typed::<Numbers>(count);
    let record = Numbers::of(7);
    for _ in 0..count {
        writer.put(std::hint::black_box(&record)).expect("room");
        if get {
            std::hint::black_box(reader.get().expect("a whole ring"));
        }
    }
}
