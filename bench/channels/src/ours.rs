// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::two_processes;
use asmp_channel::{Fifo, FifoReader, FifoWriter, Options, Overflow, TypedFifo, Wake};
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

fn take_all(mut reader: FifoReader, count: u64) {
    let mut record = [0; 64];
    for number in 0..count {
        while reader.get(&mut record).expect("a whole ring") == 0 {
            spin_loop();
        }
        assert_eq!(record[0], number as u8);
    }
}

pub fn one_way(count: u64) -> f64 {
    let (mut writer, reader) = pair("a", Wake::Never);
    let here = || {
        for number in 0..count {
            while writer.put(&[number as u8; 64]).is_err() {
                spin_loop();
            }
        }
    };
    two_processes(count, here, || take_all(reader, count))
}

pub fn one_way_together(count: u64) -> f64 {
    let dir = private_dir();
    let fifo =
        TypedFifo::<[u8; 64]>::create(dir.path(), "a", 910, Overflow::Refuse).expect("a FIFO");
    let mut writer = fifo.into_writer(Wake::Never).expect("its writer");
    let fifo = TypedFifo::<[u8; 64]>::attach(dir.path(), "a").expect("the FIFO");
    let mut reader = fifo.into_reader(Wake::Never).expect("its reader");
    let other = move || {
        let (mut records, mut number) = ([[0; 64]; 64], 0);
        while number < count {
            let some = reader.get_all(&mut records).expect("a whole ring");
            if some == 0 {
                spin_loop();
            }
            for record in &records[..some] {
                assert_eq!(record[0], number as u8);
                number += 1;
            }
        }
    };
    let here = || {
        let (mut records, mut number) = ([[0; 64]; 64], 0);
        while number < count {
            let some = (count - number).min(64) as usize;
            for record in &mut records[..some] {
                *record = [number as u8; 64];
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

/// Puts only (and throws away what is full), for a counter of instructions.
pub fn put_only(count: u64) {
    let dir = private_dir();
    let options = Options { capacity_bytes: 1 << 26, overflow: Overflow::Refuse };
    let fifo = Fifo::create(dir.path(), "a", &options).expect("a FIFO");
    let mut writer = fifo.into_writer(Wake::Never).expect("its writer");
    let record = [7; 64];
    for _ in 0..count {
        writer.put(std::hint::black_box(&record)).expect("room: at most 900,000 records");
    }
}
