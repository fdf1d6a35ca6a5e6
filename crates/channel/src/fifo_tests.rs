// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    dir
}

fn options(capacity_bytes: u64, overflow: Overflow) -> Options {
    Options { capacity_bytes, overflow }
}

/// Frames of 64 bytes that say one number eight times: a mixture shows.
fn frame(number: u64) -> [u8; 64] {
    let mut frame = [0; 64];
    frame.as_chunks_mut::<8>().0.fill(number.to_ne_bytes());
    frame
}

fn number(frame: &[u8]) -> u64 {
    let (words, rest) = frame.as_chunks::<8>();
    assert!(
        words.len() == 8 && rest.is_empty() && words.iter().all(|word| *word == words[0]),
        "a torn frame"
    );
    u64::from_ne_bytes(words[0])
}

/// Another process, which ends with its value: a test that fails leaves none behind.
struct Other(Child);

impl Other {
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Has it done its work?
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().inspect(|status| assert!(status.success(), "{status}")).is_some()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test program again as another process, running one of the parts below.
fn other(part: &str, dir: &Path) -> Other {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("fifo::tests::{part}"), "--ignored"])
        .env("ASMP_RT_TEST_DIR", dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Other(child.unwrap())
}

fn test_dir() -> PathBuf {
    PathBuf::from(std::env::var_os("ASMP_RT_TEST_DIR").unwrap())
}

#[test]
#[ignore = "a part of the tests below"]
fn writes_for_ever() {
    let fifo = Fifo::attach(&test_dir(), "a").unwrap();
    let mut writer = fifo.into_writer(Wake::IfAsleep).unwrap();
    for number in 1.. {
        while writer.put(&frame(number)) == Err(RingError::Full) {
            let _ = writer.wait(64, None);
        }
    }
}

#[test]
#[ignore = "a part of the tests below"]
fn reads_for_ever() {
    let mut reader = Fifo::attach(&test_dir(), "a").unwrap().into_reader(Wake::IfAsleep).unwrap();
    let mut bytes = [0; 64];
    loop {
        let _ = reader.wait(None);
        while reader.get(&mut bytes).unwrap() > 0 {}
    }
}

#[test]
#[ignore = "a part of the tests below"]
fn scribbles_10_000_times() {
    let fifo = Fifo::attach(&test_dir(), "a").unwrap();
    let words = fifo.shared().words(0, WORDS / 8 + fifo.words);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..10_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Half of them among the control words.
        let at = if state & 1 == 0 { (state >> 8) % 32 } else { (state >> 8) % words.len() as u64 };
        let value = if state & 2 == 0 { state } else { state >> 58 };
        words[at as usize].store(value, Relaxed);
        std::thread::yield_now();
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_a_fifo_that_goes_on() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let dir = dir();
        let fifo = Fifo::create(dir.path(), "a", &options(4096, overflow)).unwrap();
        let mut reader = fifo.into_reader(Wake::IfAsleep).unwrap();
        let mut bytes = [0; 64];
        for round in 0..10u32 {
            let writing = other("writes_for_ever", dir.path());
            let (mut seen, mut last, mut writers) = (0, 0, 0);
            while seen < 1000 + round * 37 {
                match reader.get(&mut bytes) {
                    Ok(0) => assert_ne!(
                        reader.wait(Some(Duration::from_secs(180))),
                        Err(WaitError::TimedOut)
                    ),
                    Ok(count) => {
                        let number = number(&bytes[..count]);
                        // What the writer of the round before had left comes first; the new one
                        // counts from 1.
                        writers += u32::from(number <= last);
                        assert!(writers <= 1, "{number} after {last}");
                        (last, seen) = (number, seen + 1);
                    }
                    Err(error) => assert_eq!(error, RingError::Overtaken),
                }
            }
            writing.kill();
            assert!(!reader.has_writer());
        }
        while reader.get(&mut bytes) != Ok(0) {}
        assert_eq!(reader.wait(None), Err(WaitError::PeerGone), "and not for ever");
        assert_eq!(reader.corrupted(), 0);
    }
}

#[test]
fn a_reader_killed_at_any_moment_loses_at_most_the_frame_it_had() {
    let dir = dir();
    let fifo = Fifo::create(dir.path(), "a", &options(4096, Overflow::Refuse)).unwrap();
    let mut writer = fifo.into_writer(Wake::IfAsleep).unwrap();
    let mut next = 1;
    for round in 0..10 {
        let reading = other("reads_for_ever", dir.path());
        let end = next + 1000 + round * 37;
        while next < end {
            match writer.put(&frame(next)) {
                Ok(()) => next += 1,
                Err(RingError::Full) => {
                    assert_ne!(
                        writer.wait(64, Some(Duration::from_secs(180))),
                        Err(WaitError::TimedOut)
                    );
                }
                Err(error) => panic!("{error}"),
            }
        }
        reading.kill();
        let mut reader = Fifo::attach(dir.path(), "a").unwrap().into_reader(Wake::Never).unwrap();
        let mut bytes = [0; 64];
        let mut last = None;
        while let Ok(64) = reader.get(&mut bytes) {
            let number = number(&bytes);
            assert!(last.is_none_or(|last| number == last + 1), "{number} after {last:?}");
            last = Some(number);
        }
        assert!(
            last.is_none_or(|last| last == next - 1),
            "{last:?}: what was put in last comes out"
        );
    }
    assert_eq!(writer.wait(1 << 20, Some(Duration::from_secs(180))), Err(WaitError::PeerGone));
    assert_eq!(writer.corrupted(), 0);
}

#[test]
fn a_process_that_scribbles_neither_stops_nor_crashes_the_ends() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let dir = dir();
        let fifo = Fifo::create(dir.path(), "a", &options(1024, overflow)).unwrap();
        let mut writer = fifo.into_writer(Wake::IfAsleep).unwrap();
        let mut reader =
            Fifo::attach(dir.path(), "a").unwrap().into_reader(Wake::IfAsleep).unwrap();
        let mut bytes = [0; 64];
        let (mut puts, mut gets, mut corrupt) = (0u64, 0u64, 0u64);
        // 10,000 words a round; as often as it takes until the ends have met some of them.
        for _ in 0..50 {
            let mut scribbling = other("scribbles_10_000_times", dir.path());
            while !scribbling.has_ended() {
                for _ in 0..100 {
                    puts += u64::from(writer.put(&frame(puts)).is_ok());
                    let got = reader.get(&mut bytes);
                    gets += u64::from(got.is_ok_and(|count| count > 0));
                    corrupt += u64::from(got == Err(RingError::Corrupt));
                }
            }
            if corrupt + writer.corrupted() > 10 && puts > 1000 && gets > 1000 {
                break;
            }
        }
        assert!(
            puts > 1000 && gets > 1000 && corrupt + writer.corrupted() > 10,
            "{puts} {gets} {corrupt}"
        );
        let _ = reader.wait(Some(Duration::from_millis(1)));
        let _ = writer.wait(64, Some(Duration::from_millis(1)));
        // New ends find their way.
        drop((writer, reader));
        let refused = Fifo::attach(dir.path(), "a");
        assert!(matches!(refused, Err(ShmError::NotFound { .. })), "the last end has gone");
    }
}

#[test]
fn a_reader_that_waits_hears_of_a_frame_that_somebody_scribbled_over() {
    for overflow in [Overflow::Refuse, Overflow::DropOldest] {
        let dir = dir();
        let fifo = Fifo::create(dir.path(), "a", &options(256, overflow)).unwrap();
        let mut writer = fifo.into_writer(Wake::Never).unwrap();
        let mut reader = Fifo::attach(dir.path(), "a").unwrap().into_reader(Wake::Never).unwrap();
        writer.put(&frame(1)).unwrap();
        writer.fifo().shared().words(WORDS, 1)[0].store(0, Relaxed);
        assert_eq!(reader.wait(Some(Duration::ZERO)), Ok(()));
        assert_eq!(reader.get(&mut [0; 64]), Err(RingError::Corrupt));
        assert_eq!(reader.wait(Some(Duration::ZERO)), Err(WaitError::TimedOut));
        writer.put(&frame(2)).unwrap();
        assert_eq!(reader.wait(Some(Duration::ZERO)), Ok(()));
        assert_eq!(reader.get(&mut [0; 64]), Ok(64));
    }
}

#[test]
fn an_end_that_sleeps_is_woken_or_looks_for_itself() {
    for wake in [Wake::IfAsleep, Wake::Never] {
        let dir = dir();
        let fifo = Fifo::create(dir.path(), "a", &options(256, Overflow::Refuse)).unwrap();
        let mut reader = fifo.into_reader(wake).unwrap();
        let path = dir.path().to_owned();
        let writing = std::thread::spawn(move || {
            let mut writer = Fifo::attach(&path, "a").unwrap().into_writer(wake).unwrap();
            for number in 0..500 {
                while writer.put(&frame(number)) == Err(RingError::Full) {
                    writer.wait(64, Some(Duration::from_secs(180))).unwrap();
                }
            }
        });
        let mut bytes = [0; 64];
        for expected in 0..500 {
            while reader.get(&mut bytes).unwrap() == 0 {
                // Before the writer has come, it counts as gone.
                assert_ne!(reader.wait(Some(Duration::from_secs(180))), Err(WaitError::TimedOut));
            }
            assert_eq!(number(&bytes), expected);
        }
        writing.join().unwrap();
        // That the writer has ended is found within 100 ms.
        assert!(reader.wait(Some(Duration::ZERO)).is_err());
    }
}

#[test]
fn roles_and_shapes_are_checked() {
    let dir = dir();
    let a = Fifo::create(dir.path(), "a", &options(1000, Overflow::Refuse)).unwrap();
    assert_eq!(a.capacity_bytes(), 1016);
    let first = a.into_writer(Wake::Never).unwrap();
    let second = Fifo::attach(dir.path(), "a").unwrap().into_writer(Wake::Never);
    assert_eq!(second.unwrap_err().to_string(), "channel a already has a writer");
    drop(first);
    for bytes in [0, 15, (1 << 29) - 7, 1 << 29, 1 << 40] {
        let refused = Fifo::create(dir.path(), "b", &options(bytes, Overflow::Refuse)).unwrap_err();
        let limits = "outside the limits of a channel: use 16 to 536870904";
        assert_eq!(refused.to_string(), format!("{bytes} bytes is {limits}"));
    }
    for parameters in [[3, 0, 0, 0], [2, 0, 0, 0], [1 << 20, 0, 0, 0], [128, 2, 0, 0], [0, 0, 0, 0]]
    {
        let made =
            SharedMemory::create(dir.path(), "c", Kind::Fifo, 2000, parameters, Pages::Normal)
                .unwrap();
        assert!(
            matches!(Fifo::from_shared(made), Err(ShmError::Mismatch { .. })),
            "{parameters:?}"
        );
    }
}

#[test]
fn who_is_no_end_sees_what_is_in_it_and_who_has_moved() {
    let dir = dir();
    let fifo = Fifo::create(dir.path(), "a", &options(1000, Overflow::Refuse)).unwrap();
    let other = || Fifo::attach(dir.path(), "a").unwrap();
    let mut writer = other().into_writer(Wake::IfAsleep).unwrap();
    let before = [Role::Writer, Role::Reader].map(|role| fifo.position(role));
    assert!(fifo.is_empty() && fifo.user_word().load(Relaxed) == 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The positions stay: it returns by itself, and the caller checks again.
            let moved = || fifo.position(Role::Writer) != before[0];
            while !fifo.watch(Role::Writer, Duration::from_millis(100), moved) {}
        });
        writer.put(b"frame").unwrap();
    });
    assert!(!fifo.is_empty() && fifo.position(Role::Reader) == before[1]);
    let mut reader = other().into_reader(Wake::Never).unwrap();
    let mut bytes = [0; 3];
    assert_eq!(reader.get(&mut bytes), Ok(3));
    // Who leaves within a frame leaves it to the next reader whole.
    let left = reader.release();
    let mut reader = other().into_reader(Wake::Never).unwrap();
    let mut bytes = [0; 9];
    assert_eq!((reader.get(&mut bytes), &bytes[..5]), (Ok(5), &b"frame"[..]));
    assert!(left.is_empty() && fifo.position(Role::Reader) != before[1]);
}
