// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::{FifoReader, FifoWriter, Options, Overflow, RingError, WaitError, Wake};
use std::os::fd::AsRawFd;
use std::thread;

/// Longer than any of these waits takes if something wakes it.
const PATIENCE: Duration = Duration::from_secs(180);

/// A directory of this user alone.
pub(crate) fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    dir
}

fn fifo(dir: &tempfile::TempDir, capacity_bytes: u64) -> Fifo {
    let options = Options { capacity_bytes, overflow: Overflow::Refuse };
    Fifo::create(dir.path(), "a", &options).unwrap()
}

fn ends(dir: &tempfile::TempDir, capacity_bytes: u64, wake: Wake) -> (FifoWriter, FifoReader) {
    let reader = fifo(dir, capacity_bytes).into_reader(wake).unwrap();
    (Fifo::attach(dir.path(), "a").unwrap().into_writer(wake).unwrap(), reader)
}

/// Whether it becomes readable within so many milliseconds.
pub(crate) fn is_readable(fd: &OwnedFd, within_ms: i32) -> bool {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd on our stack.
    unsafe { libc::poll(&raw mut asked, 1, within_ms) == 1 }
}

/// Waits until it is unreadable, where `finds_nothing` lowers it: the thread may have looked just
/// before, and may raise it once more.
pub(crate) fn falls(fd: &OwnedFd, mut finds_nothing: impl FnMut()) {
    let until = Instant::now() + PATIENCE;
    while is_readable(fd, 20) {
        assert!(Instant::now() < until, "it stays readable");
        finds_nothing();
    }
}

/// Threads of this process by that name.
pub(crate) fn threads(name: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/task").unwrap();
    let names = all.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Waits until no thread has that name: the kernel wakes who joins a thread before it takes the
/// thread out of /proc.
pub(crate) fn gone(name: &str) {
    let until = Instant::now() + PATIENCE;
    while threads(name) != 0 {
        assert!(Instant::now() < until, "the thread {name} stays");
        thread::yield_now();
    }
}

#[test]
fn many_short_waits_learn_that_the_peer_has_ended_as_one_long_wait_does() {
    assert_eq!(PEER_CHECK.as_millis(), 100, "asmp_rt.h and the guide say so");
    for slice in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(50)] {
        let dir = dir();
        let (mut writer, mut reader) = ends(&dir, 64, Wake::IfAsleep);
        writer.put(&[1; 64]).unwrap();
        reader.wait(Some(slice)).unwrap();
        reader.get(&mut [0; 64]).unwrap();
        drop(writer);
        // Each is shorter than it takes to find out; together they are longer.
        let _ = reader.wait(Some(slice));
        thread::sleep(PEER_CHECK);
        assert_eq!(reader.wait(Some(slice)), Err(WaitError::PeerGone), "{slice:?}");
        assert_eq!(reader.wait(Some(PATIENCE)), Err(WaitError::PeerGone));
        let mut writer =
            Fifo::attach(dir.path(), "a").unwrap().into_writer(Wake::IfAsleep).unwrap();
        while writer.put(&[1; 64]).is_ok() {}
        assert_eq!(writer.wait(64, Some(slice)), Err(WaitError::TimedOut));
        drop(reader);
        thread::sleep(PEER_CHECK);
        assert_eq!(writer.wait(64, Some(slice)), Err(WaitError::PeerGone), "{slice:?}");
    }
}

#[test]
fn a_descriptor_is_readable_from_the_first_frame_until_a_get_finds_none() {
    for wake in [Wake::IfAsleep, Wake::Never] {
        let dir = dir();
        let (mut writer, mut reader) = ends(&dir, 1000, wake);
        let fd = reader.descriptor().unwrap();
        assert_eq!(reader.descriptor().unwrap().as_raw_fd(), fd.as_raw_fd());
        let mut byte = [0; 1];
        for round in 0..50 {
            writer.put(&[1, 2]).unwrap();
            writer.put(&[3]).unwrap();
            for expected in 1..=3 {
                assert!(is_readable(&fd, 60_000), "{round}");
                assert_eq!((reader.get(&mut byte), byte[0]), (Ok(1), expected));
            }
            // Not before it finds none: then it stays unreadable.
            assert!(is_readable(&fd, 0));
            falls(&fd, || assert_eq!(reader.get(&mut byte), Ok(0)));
        }
        assert!(!is_readable(&fd, 300), "nothing came");
    }
}

#[test]
fn a_writer_s_descriptor_is_readable_once_the_frame_that_found_no_room_fits() {
    let dir = dir();
    let (mut writer, mut reader) = ends(&dir, 120, Wake::IfAsleep);
    let fd = writer.descriptor().unwrap();
    assert!(is_readable(&fd, 60_000), "there is room");
    for _ in 0..5 {
        writer.put(&[1; 16]).unwrap();
    }
    falls(&fd, || assert_eq!(writer.put(&[1; 100]), Err(RingError::Full)));
    for taken in 0..5 {
        assert!(!is_readable(&fd, 20), "not enough after {taken}");
        reader.get(&mut [0; 16]).unwrap();
    }
    assert!(is_readable(&fd, 60_000));
    writer.put(&[1; 100]).unwrap();
    assert!(is_readable(&fd, 0), "no put has found it full");
    falls(&fd, || assert!(!writer.has_room(100)));
    assert_eq!(writer.put(&[1; 4000]), Err(RingError::BadLength));
    reader.get(&mut [0; 100]).unwrap();
    assert!(is_readable(&fd, 60_000));
}

#[test]
fn a_descriptor_tells_that_the_peer_has_ended_and_not_that_it_has_not_come_yet() {
    let dir = dir();
    let mut reader = fifo(&dir, 100).into_reader(Wake::IfAsleep).unwrap();
    let fd = reader.descriptor().unwrap();
    assert!(!is_readable(&fd, 300), "no writer yet");
    let mut writer = Fifo::attach(dir.path(), "a").unwrap().into_writer(Wake::IfAsleep).unwrap();
    writer.put(b"1").unwrap();
    assert!(is_readable(&fd, 60_000));
    reader.get(&mut [0; 1]).unwrap();
    falls(&fd, || assert_eq!(reader.get(&mut [0; 1]), Ok(0)));
    assert_eq!(reader.wait(Some(Duration::ZERO)), Err(WaitError::TimedOut));
    drop(writer);
    for _ in 0..3 {
        assert!(is_readable(&fd, 60_000));
        assert_eq!(reader.get(&mut [0; 1]), Ok(0));
        assert_eq!(reader.wait(Some(Duration::ZERO)), Err(WaitError::PeerGone));
    }
    let mut writer = Fifo::attach(dir.path(), "a").unwrap().into_writer(Wake::IfAsleep).unwrap();
    let writable = writer.descriptor().unwrap();
    while writer.put(&[1; 8]).is_ok() {}
    drop(reader);
    assert!(is_readable(&writable, 60_000));
    // And so the poll of one that is being dropped ends.
    assert_eq!(writer.put(&[1; 8]), Err(RingError::Full));
    drop(writer);
    assert!(is_readable(&writable, 0));
}

/// A lost wake-up shows as a poll or wait of 100 ms: then the thread looks by itself.
#[test]
fn no_wake_up_is_lost_between_poll_and_put_whatever_else_the_end_does() {
    const FRAMES: u64 = 3000;
    let dir = dir();
    let (mut writer, mut reader) = ends(&dir, 1 << 16, Wake::IfAsleep);
    let fd = reader.descriptor().unwrap();
    let (answers, answered) = std::sync::mpsc::channel();
    let writing = thread::spawn(move || {
        for number in 0..FRAMES {
            if number % 5 == 0 {
                // So that the reader and the thread of its descriptor both sleep now and then.
                thread::sleep(Duration::from_millis(1));
            }
            writer.put(&number.to_ne_bytes()).unwrap();
            // Each third comes while the reader still looks for more.
            while number % 3 != 0 && answered.recv_timeout(PATIENCE).unwrap() != number {}
        }
        while answered.recv().is_ok() {}
    });
    let (mut next, mut late) = (0, 0);
    while next < FRAMES {
        let before = Instant::now();
        match next % 5 {
            0 => {
                // So that the descriptor's thread is the first to sleep, and the first to wake.
                thread::sleep(Duration::from_micros(300));
                reader.wait(Some(PATIENCE)).unwrap();
            }
            _ => assert!(is_readable(&fd, 60_000), "{next}"),
        }
        late += u64::from(before.elapsed() >= Duration::from_millis(99));
        let mut bytes = [0; 8];
        while reader.get(&mut bytes).unwrap() == 8 {
            assert_eq!(u64::from_ne_bytes(bytes), next);
            answers.send(next).unwrap();
            next += 1;
        }
    }
    drop(answers);
    writing.join().unwrap();
    println!("{late} of {FRAMES} took 100 ms");
    assert!(late < FRAMES / 10, "{late} of {FRAMES} took 100 ms");
}

#[test]
fn a_cancel_ends_the_wait_in_progress_or_the_next_one_and_all_until_resume() {
    let dir = dir();
    let (mut writer, mut reader) = ends(&dir, 64, Wake::IfAsleep);
    while writer.put(&[1; 8]).is_ok() {}
    let (reads, writes) = (reader.canceller(), writer.canceller().clone());
    reads.cancel();
    // Also where there is something to get, and with no time.
    for timeout in [None, Some(Duration::ZERO), None] {
        assert_eq!(reader.wait(timeout), Err(WaitError::Cancelled));
    }
    assert!(reads.is_cancelled() && !writes.is_cancelled());
    reads.resume();
    assert_eq!(reader.wait(None), Ok(()));
    writes.cancel();
    assert_eq!(writer.wait(8, None), Err(WaitError::Cancelled));
    while reader.get(&mut [0; 8]).unwrap() > 0 {}
    let mut times = Vec::new();
    for round in 0..300u32 {
        let cancels = reads.clone();
        let cancelling = thread::spawn(move || {
            // Anywhere between before the wait and asleep.
            for _ in 0..round * 20 {
                std::hint::spin_loop();
            }
            let began = Instant::now();
            cancels.cancel();
            began
        });
        assert_eq!(reader.wait(Some(PATIENCE)), Err(WaitError::Cancelled));
        times.push(cancelling.join().unwrap().elapsed());
        reads.resume();
    }
    // A wake-up that is lost takes the 100 ms after which a waiter looks by itself.
    let late = times.iter().filter(|time| **time > Duration::from_millis(40)).count();
    assert!(late < 30, "{late} of 300 waits ended more than 40 ms after their cancel");
}

/// With a peer that rings, a waiter looks by itself each 100 ms: a cancel does not take that long.
#[test]
fn a_cancel_wakes_the_sleeper_and_its_descriptor_and_outlives_neither() {
    let dir = dir();
    let (mut writer, mut reader) = ends(&dir, 64, Wake::IfAsleep);
    let canceller = reader.canceller();
    let mut quick = 0;
    for _ in 0..40 {
        let cancels = canceller.clone();
        let cancelling = thread::spawn(move || {
            // So that the reader sleeps in most rounds; `quick` counts.
            thread::sleep(Duration::from_millis(5));
            let began = Instant::now();
            cancels.cancel();
            began
        });
        assert_eq!(reader.wait(None), Err(WaitError::Cancelled));
        quick += u32::from(cancelling.join().unwrap().elapsed() < Duration::from_millis(40));
        canceller.resume();
    }
    assert!(quick >= 20, "only {quick} of 40 waits ended at once");
    let fd = reader.descriptor().unwrap();
    assert!(!is_readable(&fd, 20));
    canceller.cancel();
    for _ in 0..3 {
        assert!(is_readable(&fd, 60_000));
        assert_eq!(reader.get(&mut [0; 1]), Ok(0));
        assert_eq!(reader.wait(Some(Duration::ZERO)), Err(WaitError::Cancelled));
    }
    canceller.resume();
    reader.get(&mut [0; 1]).unwrap();
    writer.put(b"1").unwrap();
    assert_eq!(reader.wait(Some(PATIENCE)), Ok(()));
    drop((reader, writer));
    canceller.cancel();
    fifo(&dir, 64);
}

#[test]
fn an_end_that_is_dropped_ends_its_thread_at_once_and_leaves_its_name_and_role() {
    let dir = dir();
    let mut waited = Duration::ZERO;
    for round in 0..50 {
        let made = Fifo::create(
            dir.path(),
            "leaves",
            &Options { capacity_bytes: 64, overflow: Overflow::Refuse },
        );
        let mut reader = made.unwrap().into_reader(Wake::IfAsleep).unwrap();
        reader.descriptor().unwrap();
        // It gives itself its name.
        while threads("leaves") == 0 {
            thread::yield_now();
        }
        if round % 2 == 1 {
            // So that the thread sleeps in some rounds and not in others.
            thread::sleep(Duration::from_millis(2));
        }
        let before = Instant::now();
        let left = reader.release();
        waited += before.elapsed();
        gone("leaves");
        left.into_reader(Wake::IfAsleep).unwrap();
    }
    assert!(waited < Duration::from_millis(50 * 60), "{waited:?} for 50");
}
