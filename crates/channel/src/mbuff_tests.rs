// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    dir
}

#[test]
fn what_is_allocated_twice_is_one_memory_until_the_last_goes() {
    let dir = dir();
    let first = Mbuff::alloc(dir.path(), "a", 10, Pages::Normal).unwrap();
    let second = Mbuff::alloc(dir.path(), "a", 10, Pages::Normal).unwrap();
    let third = Mbuff::attach(dir.path(), "a").unwrap();
    first.write(1, b"123456789").unwrap();
    drop(first);
    let mut bytes = [9; 10];
    third.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\x00123456789");
    assert_eq!((third.bytes(), third.words().len()), (10, 1));
    drop((second, third));
    let missing = Mbuff::attach(dir.path(), "a").unwrap_err();
    assert!(matches!(missing, MbuffError::Shm(ShmError::NotFound { .. })), "{missing}");
    let anew = Mbuff::alloc(dir.path(), "a", 20, Pages::Normal).unwrap();
    anew.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 10]);
}

#[test]
fn another_size_or_view_is_refused_with_both() {
    let dir = dir();
    let a = Mbuff::alloc(dir.path(), "a", 100, Pages::Normal).unwrap();
    let error = Mbuff::alloc(dir.path(), "a", 101, Pages::Normal).unwrap_err().to_string();
    assert!(error.starts_with("mbuff a has 100 bytes, not 101: free it"), "{error}");
    let error = Record::<u64>::attach(dir.path(), "a").unwrap_err().to_string();
    assert_eq!(error, "mbuff a holds raw bytes, expected a record of 8 bytes");
    let _b = Record::<[u32; 3]>::alloc(dir.path(), "b", Pages::Normal).unwrap();
    let error = Record::<u64>::alloc(dir.path(), "b", Pages::Normal).unwrap_err().to_string();
    assert_eq!(error, "mbuff b holds a record of 12 bytes, expected a record of 8 bytes");
    assert!(matches!(Mbuff::attach(dir.path(), "b"), Err(MbuffError::ViewMismatch { .. })));
    for (offset, bytes) in [(0, 101), (100, 1), (usize::MAX, 1)] {
        let mut into = vec![0; bytes];
        assert!(matches!(
            a.read(offset, &mut into),
            Err(MbuffError::OutOfBounds { size: 100, .. })
        ));
        assert!(matches!(a.write(offset, &into), Err(MbuffError::OutOfBounds { size: 100, .. })));
    }
    a.read(100, &mut []).unwrap();
}

#[test]
fn bytes_go_where_they_should_and_nowhere_else() {
    let dir = dir();
    let a = Mbuff::alloc(dir.path(), "a", 40, Pages::Normal).unwrap();
    let mut copy = [0; 40];
    for offset in 0..40usize {
        for length in 0..40 - offset {
            let new: Vec<u8> = (0..length).map(|at| (offset * 40 + at) as u8 | 1).collect();
            a.write(offset, &new).unwrap();
            copy[offset..offset + length].copy_from_slice(&new);
            let mut all = [0; 40];
            a.read(0, &mut all).unwrap();
            assert_eq!(all, copy, "{offset}+{length}");
            let mut part = vec![0; length];
            a.read(offset, &mut part).unwrap();
            assert_eq!(part, new);
        }
    }
}

#[test]
fn two_that_write_neighbouring_bytes_do_not_disturb_each_other() {
    let dir = dir();
    let a = Mbuff::alloc(dir.path(), "a", 16, Pages::Normal).unwrap();
    std::thread::scope(|scope| {
        for offset in [1, 5] {
            let a = &a;
            scope.spawn(move || {
                for number in 0..100_000u32 {
                    let mut back = [0; 4];
                    a.write(offset, &number.to_ne_bytes()).unwrap();
                    a.read(offset, &mut back).unwrap();
                    assert_eq!(u32::from_ne_bytes(back), number, "at {offset}");
                }
            });
        }
    });
}

#[test]
fn a_record_has_one_writer_and_any_readers() {
    let dir = dir();
    let a = Record::<[u32; 3]>::alloc(dir.path(), "a", Pages::Normal).unwrap();
    let b = Record::<[u32; 3]>::attach(dir.path(), "a").unwrap();
    assert!(!b.has_writer());
    let mut writer = a.writer().unwrap();
    assert_eq!(b.read(), Ok(None));
    for number in 1..10u32 {
        writer.write(&[number; 3]);
        assert_eq!(b.read(), Ok(Some((number.into(), [number; 3]))));
    }
    assert!(b.has_writer());
    let second = Record::<[u32; 3]>::attach(dir.path(), "a").unwrap().writer().unwrap_err();
    assert!(
        matches!(second, MbuffError::Shm(ShmError::RoleTaken { role: "writer", .. })),
        "{second}"
    );
    drop(writer);
    assert!(!b.has_writer());
    b.writer().unwrap().write(&[10; 3]);
}

#[test]
fn a_record_of_bytes_is_a_record_of_a_type_of_that_size() {
    let dir = dir();
    let typed = Record::<[u8; 13]>::alloc(dir.path(), "a", Pages::Normal).unwrap();
    let mut writer = RawRecord::attach(dir.path(), "a", 13).unwrap().writer().unwrap();
    let raw = RawRecord::alloc(dir.path(), "a", 13, Pages::Normal).unwrap();
    let mut bytes = [1; 13];
    assert_eq!((raw.read(&mut bytes), bytes), (Ok(None), [1; 13]));
    writer.write(b"thirteen byte");
    assert_eq!(typed.read(), Ok(Some((1, *b"thirteen byte"))));
    assert_eq!((raw.read(&mut bytes), &bytes), (Ok(Some(1)), b"thirteen byte"));
    assert!((raw.bytes(), raw.has_writer()) == (13, true) && !writer.record().has_writer());
    let error = RawRecord::attach(dir.path(), "a", 14).unwrap_err().to_string();
    assert_eq!(error, "mbuff a holds a record of 13 bytes, expected a record of 14 bytes");
    for bytes in [0, (1 << 30) + 1, usize::MAX] {
        let refused = RawRecord::alloc(dir.path(), "b", bytes, Pages::Normal);
        assert!(matches!(refused, Err(MbuffError::Shm(ShmError::BadSize { .. }))), "{bytes}");
    }
}

#[test]
fn a_record_of_whatever_size_is_found_with_its_size() {
    let dir = dir();
    let _typed = Record::<[u32; 3]>::alloc(dir.path(), "a", Pages::Normal).unwrap();
    assert_eq!(RawRecord::attach_any(dir.path(), "a").unwrap().bytes(), 12);
    let _plain = Mbuff::alloc(dir.path(), "b", 100, Pages::Normal).unwrap();
    let error = RawRecord::attach_any(dir.path(), "b").unwrap_err().to_string();
    assert_eq!(error, "mbuff b holds raw bytes, expected a record");
}

#[test]
fn a_header_that_lies_about_its_record_is_refused() {
    let dir = dir();
    for (bytes, record) in [(1000, 1000), (1000, u64::MAX), (1000, 1 << 61), (0, 8), (2000, 8)] {
        let made = SharedMemory::create(
            dir.path(),
            "a",
            Kind::Mbuff,
            1000,
            [bytes, record, 0, 0],
            Pages::Normal,
        );
        let refused = RawRecord::attach_any(dir.path(), "a");
        assert!(
            refused.is_err() || bytes == 2000 && made.unwrap().body_bytes() >= 2000,
            "{bytes} {record}"
        );
    }
}

#[test]
fn huge_pages_are_given_or_refused_with_the_size() {
    let dir = dir();
    match Mbuff::alloc(dir.path(), "a", 100_000, Pages::Huge) {
        Ok(a) => assert_eq!((a.bytes(), a.pointer().addr().get() % 64), (100_000, 0)),
        Err(MbuffError::Shm(ShmError::NoRoom { bytes, cause })) => {
            assert_eq!(bytes, 100_000);
            println!("skipped: no huge pages here: {cause}");
        }
        Err(error) => panic!("{error}"),
    }
}

type Wide = [u64; 16];

fn start(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("mbuff::tests::{test}"), "--ignored"])
        .env("ASMP_RT_TEST_DIR", dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Of the child; it ends with the test that started it, however that ends.
fn the_dir() -> PathBuf {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    PathBuf::from(std::env::var_os("ASMP_RT_TEST_DIR").unwrap())
}

#[test]
#[ignore = "a part of the test beside it"]
fn writes_for_ever() {
    let record = Record::<Wide>::attach(&the_dir(), "a").unwrap();
    let from = record.read().ok().flatten().map_or(0, |(_, value)| value[0]);
    let mut writer = record.writer().unwrap();
    for number in from + 1.. {
        writer.write(&[number; 16]);
    }
}

#[test]
fn a_writer_killed_at_any_instant_leaves_a_whole_record_and_the_next_goes_on() {
    let dir = dir();
    let record = Record::<Wide>::alloc(dir.path(), "a", Pages::Normal).unwrap();
    let whole = |record: &Record<Wide>| match record.read() {
        Ok(Some((number, value))) => {
            assert!(value.iter().all(|word| *word == value[0]), "torn: {value:?}");
            number
        }
        _ => 0,
    };
    let mut last = 0;
    for round in 0..20u64 {
        let mut writer = start("writes_for_ever", dir.path());
        let end = Instant::now() + Duration::from_secs(180);
        while whole(&record) < last + 1000 + round * 37 && Instant::now() < end {}
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(!record.has_writer());
        let now = whole(&record);
        assert!(now >= last + 1000, "round {round}: from {last} to {now}");
        last = now;
    }
}

#[test]
#[ignore = "a part of the test beside it"]
fn scribbles_for_ever() {
    let record = Record::<Wide>::attach(&the_dir(), "a").unwrap();
    let mbuff = &record.raw.mbuff;
    let words = mbuff.shared.words(0, mbuff.bytes() / 8);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    loop {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let place = if state.is_multiple_of(2) { 0 } else { (state >> 8) as usize % words.len() };
        words[place].store(state.rotate_left(17) >> (state % 64), Relaxed);
        if state & 0xff00 == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_scribbler_stops_neither_reader_nor_writer_and_is_forgotten_when_it_is_gone() {
    let dir = dir();
    let record = Record::<Wide>::alloc(dir.path(), "a", Pages::Normal).unwrap();
    let mut writer = Record::<Wide>::attach(dir.path(), "a").unwrap().writer().unwrap();
    let mut enemy = start("scribbles_for_ever", dir.path());
    let end = Instant::now() + Duration::from_secs(180);
    let (mut number, mut seen) = (0u64, 0);
    // What came back was not what was written: the enemy is at work.
    while seen < 1000 && Instant::now() < end {
        number += 1;
        writer.write(&[number; 16]);
        if number.is_multiple_of(8) {
            // Where both share one CPU, the enemy comes between only now.
            std::thread::yield_now();
        }
        seen += u32::from(!matches!(record.read(), Ok(Some((_, value))) if value == [number; 16]));
    }
    enemy.kill().unwrap();
    enemy.wait().unwrap();
    // All 1000 at once on CPUs of their own; where others want them too, one for each turn of the
    // enemy.
    assert!(seen > 10, "{seen}");
    writer.write(&[7; 16]);
    assert!(matches!(record.read(), Ok(Some((_, value))) if value == [7; 16]));
}
