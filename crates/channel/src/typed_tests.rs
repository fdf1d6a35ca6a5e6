// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::fifo::Options;
use crate::waits::tests::{falls, is_readable};
use std::thread;

/// Longer than any of these waits takes if something ends it.
const PATIENCE: Duration = Duration::from_secs(180);

fn pair<T: Plain>(
    records: u64,
    overflow: Overflow,
) -> (tempfile::TempDir, TypedWriter<T>, TypedReader<T>) {
    let dir = private_dir();
    let fifo = TypedFifo::create(dir.path(), "a", records, overflow).unwrap();
    let writer = fifo.into_writer(Wake::Never).unwrap();
    let reader = TypedFifo::attach(dir.path(), "a").unwrap().into_reader(Wake::Never).unwrap();
    (dir, writer, reader)
}

fn private_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    dir
}

#[test]
fn records_come_out_as_they_went_in_whatever_the_parts() {
    // 12 bytes: no multiple of a word.
    let (_dir, mut writer, mut reader) = pair::<[u32; 3]>(100, Overflow::Refuse);
    let (mut next_in, mut next_out) = (0u32, 0u32);
    for round in 0..500 {
        let together: Vec<[u32; 3]> = (next_in..next_in + round % 7).map(|n| [n, !n, n]).collect();
        writer.put_all(&together).unwrap();
        writer.put(&[next_in + round % 7, !(next_in + round % 7), next_in + round % 7]).unwrap();
        next_in += round % 7 + 1;
        let mut some = vec![[0; 3]; 1 + (round % 5) as usize];
        loop {
            let count = reader.get_all(&mut some).unwrap();
            if count == 0 {
                break;
            }
            for record in &some[..count] {
                assert_eq!(*record, [next_out, !next_out, next_out]);
                next_out += 1;
            }
        }
        assert_eq!(next_out, next_in);
    }
}

#[test]
fn records_put_in_together_fit_together_or_not_at_all() {
    let (_dir, mut writer, mut reader) = pair::<u64>(16, Overflow::Refuse);
    assert_eq!(writer.put_all(&[7; 64]), Err(RingError::BadLength));
    writer.put_all(&[1; 40]).unwrap();
    assert_eq!(writer.put_all(&[2; 40]), Err(RingError::Full));
    writer.put_all(&[]).unwrap();
    writer.put(&3).unwrap();
    let all: Vec<u64> = std::iter::from_fn(|| reader.get().unwrap()).collect();
    assert_eq!(all, [&[1; 40][..], &[3]].concat());
}

#[test]
fn what_is_dropped_is_counted_in_records() {
    let (_dir, mut writer, mut reader) = pair::<u64>(16, Overflow::DropOldest);
    for number in 0..40 {
        writer.put_all(&[number; 3]).unwrap();
    }
    let left: Vec<u64> = std::iter::from_fn(|| reader.get().unwrap()).collect();
    assert_eq!(left.len() as u64 + writer.dropped(), 120);
    assert_eq!((left.len() % 3, *left.last().unwrap()), (0, 39));
}

#[test]
fn another_size_is_refused_with_both() {
    let (dir, _writer, _reader) = pair::<u64>(16, Overflow::Refuse);
    let error = TypedFifo::<[u64; 2]>::attach(dir.path(), "a").unwrap_err().to_string();
    assert!(
        error.contains("records of 8 bytes") && error.contains("records of 16 bytes"),
        "{error}"
    );
    let options = Options { capacity_bytes: 100, overflow: Overflow::Refuse };
    let _bytes = Fifo::create(dir.path(), "b", &options).unwrap();
    let error = TypedFifo::<u64>::attach(dir.path(), "b").unwrap_err().to_string();
    assert!(error.contains("carries bytes"), "{error}");
}

#[test]
fn half_a_record_is_corrupt_and_the_next_ones_are_whole() {
    let dir = private_dir();
    let fifo = TypedFifo::<u64>::create(dir.path(), "a", 16, Overflow::Refuse).unwrap();
    let mut reader = fifo.into_reader(Wake::Never).unwrap();
    // The other side has not kept to the type.
    let mut writer = Fifo::attach(dir.path(), "a").unwrap().into_writer(Wake::Never).unwrap();
    writer.put(&[1; 12]).unwrap();
    writer.put(&[2; 8]).unwrap();
    assert_eq!(reader.get(), Ok(Some(u64::from_ne_bytes([1; 8]))));
    assert_eq!(reader.get(), Err(RingError::Corrupt));
    assert_eq!(reader.get(), Ok(Some(u64::from_ne_bytes([2; 8]))));
}

#[test]
fn each_typed_end_has_the_descriptor_of_its_bytes() {
    let dir = private_dir();
    let fifo = TypedFifo::<u64>::create(dir.path(), "a", 2, Overflow::Refuse).unwrap();
    let mut writer = fifo.into_writer(Wake::IfAsleep).unwrap();
    let fifo = TypedFifo::<u64>::attach(dir.path(), "a").unwrap();
    let mut reader = fifo.into_reader(Wake::IfAsleep).unwrap();
    let (came, fits) = (reader.descriptor().unwrap(), writer.descriptor().unwrap());
    assert!(is_readable(&fits, 60_000), "there is room");
    falls(&came, || assert_eq!(reader.get(), Ok(None)));
    while writer.put(&7).is_ok() {}
    assert!(is_readable(&came, 60_000));
    falls(&fits, || assert_eq!(writer.put(&7), Err(RingError::Full)));
    while reader.get().unwrap().is_some() {}
    assert!(is_readable(&fits, 60_000));
}

#[test]
fn a_cancel_ends_the_wait_of_each_typed_end_before_it_and_within_it() {
    let dir = private_dir();
    let fifo = TypedFifo::<u64>::create(dir.path(), "a", 2, Overflow::Refuse).unwrap();
    let mut writer = fifo.into_writer(Wake::IfAsleep).unwrap();
    let fifo = TypedFifo::<u64>::attach(dir.path(), "a").unwrap();
    let mut reader = fifo.into_reader(Wake::IfAsleep).unwrap();
    let cancelled = Err(WaitError::Cancelled);
    let reads = reader.bytes().canceller();
    reads.cancel();
    assert_eq!(reader.wait(None), cancelled);
    reads.resume();
    let (began, begins) = std::sync::mpsc::channel();
    let reading = thread::spawn(move || {
        began.send(()).unwrap();
        reader.wait(Some(PATIENCE))
    });
    begins.recv().unwrap();
    reads.cancel();
    assert_eq!(reading.join().unwrap(), cancelled);
    while writer.put(&7).is_ok() {}
    let writes = writer.bytes().canceller();
    writes.cancel();
    assert_eq!(writer.wait(1, None), cancelled);
    writes.resume();
    let (began, begins) = std::sync::mpsc::channel();
    let writing = thread::spawn(move || {
        began.send(()).unwrap();
        writer.wait(1, Some(PATIENCE))
    });
    begins.recv().unwrap();
    writes.cancel();
    assert_eq!(writing.join().unwrap(), cancelled);
}
