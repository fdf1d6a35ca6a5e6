// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts as messages: eventfds and timerfds as the kernel makes them, and a UIO device played
//! by a socket.

use asmp_rt::thread::{Handler, Interrupt, Interrupts, Line, RealTime, Reply};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Long enough for any message on a busy machine; passed only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(180);

fn eventfd() -> (OwnedFd, File) {
    // SAFETY: eventfd takes two numbers.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(descriptor >= 0);
    // SAFETY: just made, and nobody else's.
    let ours = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let device = ours.try_clone().unwrap().into();
    (ours, device)
}

fn fire(device: &mut File, events: u64) {
    device.write_all(&events.to_ne_bytes()).unwrap();
}

/// A policy that this process may set: the tests are about messages, not about time.
fn policy() -> RealTime {
    let fifo = RealTime::fifo(1).unlocked();
    match fifo.clone().start("probe", |_| ()) {
        Ok(_) => fifo,
        Err(refusal) => {
            eprintln!("note: at the ordinary policy: {refusal}");
            RealTime::without_policy().unlocked()
        }
    }
}

/// A handler that passes each message on and then waits for its reply from the test.
fn puppet(line: Line) -> (Handler, Receiver<Interrupt>, Sender<Reply>) {
    let ((tell, told), (answer, answers)) = (channel(), channel());
    let handler = Interrupts::handle(line, policy(), move |interrupt| {
        tell.send(interrupt).unwrap();
        answers.recv().unwrap_or(Reply::Unmask)
    });
    (handler.unwrap(), told, answer)
}

#[test]
fn what_comes_while_the_line_is_masked_is_one_message_after_the_reply() {
    let (line, mut device) = eventfd();
    let (handler, told, answer) = puppet(Line::counter(line, "event"));
    fire(&mut device, 1);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().count, 1);
    fire(&mut device, 2);
    fire(&mut device, 3);
    assert!(told.try_recv().is_err(), "masked: the handler has not replied");
    answer.send(Reply::Unmask).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().count, 5);
    drop(answer);
    handler.free().unwrap();
}

#[test]
fn a_line_kept_masked_is_silent_until_somebody_unmasks_it() {
    let (line, mut device) = eventfd();
    let (handler, told, answer) = puppet(Line::counter(line, "event"));
    fire(&mut device, 1);
    told.recv_timeout(PATIENCE).unwrap();
    answer.send(Reply::KeepMasked).unwrap();
    fire(&mut device, 4);
    assert!(told.recv_timeout(Duration::from_millis(30)).is_err(), "masked");
    handler.unmask();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().count, 4);
    answer.send(Reply::Unmask).unwrap();
    handler.free().unwrap();
}

#[test]
fn a_second_handler_is_refused_also_for_a_duplicate_and_welcome_once_the_first_has_gone() {
    let (line, device) = eventfd();
    let (again, later) = (device.try_clone().unwrap(), device.try_clone().unwrap());
    let (handler, _told, answer) = puppet(Line::counter(line, "event"));
    let refused =
        Interrupts::handle(Line::counter(again.into(), "again"), policy(), |_| Reply::Unmask);
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "again already has a handler: free it first");
    let (other, _device) = eventfd();
    assert!(Interrupts::handle(Line::counter(other, "other"), policy(), |_| Reply::Unmask).is_ok());
    drop(answer);
    handler.free().unwrap();
    assert!(
        Interrupts::handle(Line::counter(later.into(), "later"), policy(), |_| Reply::Unmask)
            .is_ok()
    );
}

#[test]
fn a_timer_is_a_line_like_any_other() {
    // SAFETY: timerfd_create takes two numbers.
    let descriptor = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    let once = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 },
    };
    // SAFETY: the kernel reads `once` and gets no place for the old value.
    let set =
        unsafe { libc::timerfd_settime(descriptor, 0, &raw const once, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    // SAFETY: just made, and this is its only owner.
    let line = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let (handler, told, answer) = puppet(Line::counter(line, "timer"));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().count, 1);
    drop(answer);
    handler.free().unwrap();
}

#[test]
fn a_uio_device_is_unmasked_by_writing_one_and_its_running_total_becomes_a_count() {
    let (ours, mut device) = UnixStream::pair().unwrap();
    let line = Line::uio_device(ours.into(), "uio-test").unwrap();
    let (handler, told, answer) = puppet(line);
    let unmasked = |device: &mut UnixStream| {
        let mut word = [0; 4];
        device.read_exact(&mut word).unwrap();
        u32::from_ne_bytes(word)
    };
    assert_eq!(unmasked(&mut device), 1, "unmasked at the start");
    for (total, count) in [(u32::MAX, 1), (2, 3)] {
        device.write_all(&total.to_ne_bytes()).unwrap();
        assert_eq!(
            told.recv_timeout(PATIENCE).unwrap().count,
            count,
            "the first count is not known"
        );
        device.set_nonblocking(true).unwrap();
        assert!(device.read(&mut [0; 4]).is_err(), "masked until the reply");
        device.set_nonblocking(false).unwrap();
        answer.send(Reply::Unmask).unwrap();
        assert_eq!(unmasked(&mut device), 1);
    }
    handler.free().unwrap();
}

#[test]
fn a_uio_device_that_is_open_twice_has_one_owner() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let first = Line::uio(file.path()).unwrap();
    let text = Line::uio(file.path()).unwrap_err().to_string();
    assert!(text.contains("already has a handler"), "{text}");
    drop(first);
    assert!(Line::uio(file.path()).is_ok());
}

#[test]
fn a_device_that_is_not_there_is_refused_with_its_path_and_a_cure() {
    let text = Line::uio(std::path::Path::new("/dev/uio4095")).unwrap_err().to_string();
    assert!(text.starts_with("/dev/uio4095: ") && text.contains("modprobe"), "{text}");
}

#[test]
fn a_device_that_goes_away_ends_its_handler_with_the_cause() {
    let (ours, device) = UnixStream::pair().unwrap();
    let descriptor = ours.as_raw_fd();
    let line = Line::uio_device(ours.into(), "uio-test").unwrap();
    let (handler, told, _answer) = puppet(line);
    drop(device);
    // The handler thread drops its sender when it ends.
    assert!(told.recv_timeout(PATIENCE).is_err());
    assert!(handler.free().is_err(), "descriptor {descriptor} is gone");
}
