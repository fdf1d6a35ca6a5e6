// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Descriptors and cancelled waits of calls.

use super::*;
use crate::sync::Ordering::Relaxed;
use crate::waits::tests::{dir, falls, gone, is_readable};
use std::thread;

const PATIENCE: Duration = Duration::from_secs(180);

fn shape(inherit: bool) -> Shape {
    Shape { clients: 2, scheduling: Scheduling::Full, inherit }
}

#[test]
fn a_cancel_ends_a_call_a_receive_and_a_wait_for_bits_until_resume() {
    for inherit in [false, true] {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape(inherit)).unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        let (calls, serves) = (client.canceller(), server.canceller());
        let after = |canceller: &crate::Canceller, ms| {
            let canceller = canceller.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(ms));
                canceller.cancel();
            })
        };
        // Before the wait begins, and while it sleeps: both end it.
        for ms in [0, 30] {
            let cancelling = after(&serves, ms);
            let cancelled = Err(CallError::Cancelled { taken: false });
            assert_eq!(server.receive(None), cancelled);
            assert_eq!(server.receive(Some(Duration::ZERO)), cancelled);
            cancelling.join().unwrap();
            serves.resume();
            let cancelling = after(&calls, ms);
            assert_eq!(client.call(&[1; 8], None), Err(CallError::Cancelled { taken: false }));
            assert_eq!(client.wait_bits(None), Err(CallError::Cancelled { taken: false }));
            cancelling.join().unwrap();
            calls.resume();
            let cancelling = after(&calls, ms);
            assert_eq!(client.wait_bits(None), Err(CallError::Cancelled { taken: false }));
            cancelling.join().unwrap();
            calls.resume();
            // Nothing of them is left, and the server never takes the withdrawn request.
            assert_eq!(server.receive(Some(Duration::ZERO)), Err(CallError::TimedOut));
        }
        let calling = thread::spawn(move || client.call(&[2; 8], Some(PATIENCE)));
        assert_eq!(server.receive(Some(PATIENCE)).unwrap().request.unwrap().message, [2; 8]);
        calls.cancel();
        assert_eq!(calling.join().unwrap(), Err(CallError::Cancelled { taken: true }));
    }
}

/// Written back again and again, the server's word says that it sleeps and nothing has changed.
#[test]
fn a_client_that_hides_wake_ups_does_not_keep_a_server_from_its_end() {
    let dir = dir();
    let mut server = Server::open(dir.path(), "a", shape(false)).unwrap();
    let _fd = server.descriptor().unwrap();
    let table = Table::attach(dir.path(), "a").unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                table.rendezvous().pending.fetch_or(rendezvous::ASLEEP, Relaxed);
                // The test would hang, not fail.
                if began.elapsed() > PATIENCE {
                    eprintln!("the server cannot end");
                    std::process::abort();
                }
            }
        });
        drop(server);
        ended.store(true, Relaxed);
    });
}

#[test]
fn a_cancel_ends_a_reply_and_wait_after_the_answer_was_given() {
    for inherit in [false, true] {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape(inherit)).unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        let serves = server.canceller();
        let cancelled = Err(CallError::Cancelled { taken: false });
        // Before the wait begins.
        let calling = thread::spawn(move || (client.call(&[1; 8], Some(PATIENCE)), client));
        assert!(server.receive(Some(PATIENCE)).unwrap().request.is_some());
        serves.cancel();
        assert_eq!(server.reply_wait(&[2; 8], None), cancelled);
        let (answer, mut client) = calling.join().unwrap();
        assert_eq!(answer, Ok([2; 8]));
        serves.resume();
        // While it waits, or just before: the answer has come, so the wait is next.
        let calling = thread::spawn(move || {
            let answer = client.call(&[3; 8], Some(PATIENCE));
            serves.cancel();
            answer
        });
        assert!(server.receive(Some(PATIENCE)).unwrap().request.is_some());
        assert_eq!(server.reply_wait(&[4; 8], Some(PATIENCE)), cancelled);
        assert_eq!(calling.join().unwrap(), Ok([4; 8]));
    }
}

#[test]
fn a_cancel_ends_a_send_that_no_server_takes_and_withdraws_it() {
    for inherit in [false, true] {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape(inherit)).unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        let sends = client.canceller();
        let cancelled = Err(CallError::Cancelled { taken: false });
        sends.cancel();
        assert_eq!(client.send(&[1; 8], None), cancelled);
        sends.resume();
        let (began, begins) = std::sync::mpsc::channel();
        let sending = thread::spawn(move || {
            began.send(()).unwrap();
            (client.send(&[2; 8], Some(PATIENCE)), client)
        });
        begins.recv().unwrap();
        sends.cancel();
        let (sent, mut client) = sending.join().unwrap();
        assert_eq!(sent, cancelled);
        assert_eq!(server.receive(Some(Duration::ZERO)), Err(CallError::TimedOut));
        sends.resume();
        let sending = thread::spawn(move || client.send(&[3; 8], Some(PATIENCE)));
        let taken = server.receive(Some(PATIENCE)).unwrap().request.unwrap();
        assert_eq!((taken.message, taken.want), ([3; 8], Want::Send));
        assert_eq!(sending.join().unwrap(), Ok(()));
    }
}

#[test]
fn a_server_that_polls_serves_every_request_and_every_bit() {
    const CALLS: u64 = 500;
    let dir = dir();
    let mut server = Server::open(dir.path(), "polls", shape(false)).unwrap();
    let fd = server.descriptor().unwrap();
    assert!(!is_readable(&fd, 50));
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let mut client = Client::attach(dir.path(), "polls", None).unwrap();
            thread::spawn(move || {
                for number in 0..CALLS {
                    let answer = client.call(&[number; 8], Some(PATIENCE)).unwrap();
                    assert_eq!(answer, [number + 1; 8]);
                    client.notify(1);
                    if number % 5 == 0 {
                        // So that the server finds nothing now and then, and sleeps.
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            })
        })
        .collect();
    let (mut served, mut late, mut bits) = (0, 0, 0);
    for turn in 0.. {
        if served == 2 * CALLS {
            break;
        }
        let before = Instant::now();
        // In turn by waiting, by looking, and by its descriptor, one request each time.
        let received = match turn % 5 {
            0 => server.receive(Some(PATIENCE)),
            1 | 3 => server.receive(Some(Duration::ZERO)),
            _ => {
                assert!(is_readable(&fd, 60_000), "{served}");
                server.receive(Some(Duration::ZERO))
            }
        };
        late += u64::from(before.elapsed() >= SLICE);
        match received {
            Ok(Received { bits: found, request }) => {
                bits |= found;
                if let Some(request) = request {
                    server.reply(&request.message.map(|word| word + 1)).unwrap();
                    served += 1;
                }
            }
            Err(error) => assert_eq!(error, CallError::TimedOut),
        }
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    while let Ok(received) = server.receive(Some(Duration::ZERO)) {
        bits |= received.bits;
    }
    assert_eq!(bits, 1);
    falls(&fd, || assert_eq!(server.receive(Some(Duration::ZERO)), Err(CallError::TimedOut)));
    assert!(late < CALLS / 10, "{late} polls took 100 ms");
    drop(server);
    gone("polls");
    assert!(is_readable(&fd, 0));
}

#[test]
fn a_request_that_was_collected_with_another_keeps_the_descriptor_readable() {
    let dir = dir();
    let mut server = Server::open(dir.path(), "a", shape(false)).unwrap();
    let calling: Vec<_> = (0..2)
        .map(|_| {
            let mut client = Client::attach(dir.path(), "a", None).unwrap();
            thread::spawn(move || client.call(&[1; 8], Some(PATIENCE)))
        })
        .collect();
    // Both are there.
    while server.table.rendezvous().pending.load(Relaxed) & 3 != 3 {
        thread::yield_now();
    }
    server.receive(Some(PATIENCE)).unwrap();
    // At once: a client that waits posts again after a slice.
    let fd = server.descriptor().unwrap();
    assert!(is_readable(&fd, 0));
    server.reply_wait(&[2; 8], Some(PATIENCE)).unwrap();
    server.reply(&[2; 8]).unwrap();
    falls(&fd, || assert_eq!(server.receive(Some(Duration::ZERO)), Err(CallError::TimedOut)));
    calling.into_iter().for_each(|client| assert_eq!(client.join().unwrap(), Ok([2; 8])));
}

#[test]
fn a_look_that_finds_nothing_leaves_the_thread_of_the_descriptor_its_wake_up() {
    let dir = dir();
    let mut server = Server::open(dir.path(), "a", shape(false)).unwrap();
    let fd = server.descriptor().unwrap();
    let mut client = Client::attach(dir.path(), "a", None).unwrap();
    let (go, goes) = std::sync::mpsc::channel();
    let calling = thread::spawn(move || {
        while goes.recv().is_ok() {
            client.call(&[1; 8], Some(PATIENCE)).unwrap();
        }
    });
    let mut late = 0;
    for _ in 0..20 {
        let look = |server: &mut Server| server.receive(Some(Duration::ZERO));
        falls(&fd, || assert_eq!(look(&mut server), Err(CallError::TimedOut)));
        assert_eq!(look(&mut server), Err(CallError::TimedOut));
        let before = Instant::now();
        go.send(()).unwrap();
        assert!(is_readable(&fd, 60_000));
        // Then only the client's own check has woken it.
        late += u32::from(before.elapsed() >= SLICE - Duration::from_millis(2));
        let received = server.receive(Some(PATIENCE)).unwrap();
        assert_eq!(received.request.unwrap().message, [1; 8]);
        server.reply(&[2; 8]).unwrap();
    }
    drop(go);
    calling.join().unwrap();
    assert!(late < 10, "{late} of 20 took 100 ms");
}

#[test]
fn a_client_that_polls_sees_bits_the_end_of_its_server_and_still_calls() {
    let dir = dir();
    let mut client = {
        let _first = Server::open(dir.path(), "a", shape(false)).unwrap();
        Client::attach(dir.path(), "a", None).unwrap()
    };
    let fd = client.descriptor().unwrap();
    assert!(is_readable(&fd, 60_000), "it has ended");
    assert_eq!(client.wait_bits(Some(Duration::ZERO)), Err(CallError::NoServer));
    let (done, ends) = std::sync::mpsc::channel::<()>();
    let path = dir.path().to_owned();
    let serving = thread::spawn(move || {
        let mut server = Server::open(&path, "a", shape(false)).unwrap();
        let mut late = 0;
        for bit in 0..300 {
            server.notify(0, 1 << (bit % 64));
            let before = Instant::now();
            let request = server.receive(Some(PATIENCE)).unwrap().request.unwrap();
            late += u32::from(before.elapsed() >= SLICE);
            server.reply(&request.message).unwrap();
        }
        let _ = ends.recv();
        late
    });
    let mut late = 0;
    for bit in 0..300 {
        let found = loop {
            let before = Instant::now();
            assert!(is_readable(&fd, 60_000), "{bit}");
            late += u32::from(before.elapsed() >= SLICE);
            match client.take_bits() {
                0 => continue,
                bits => break bits,
            }
        };
        assert_eq!(found, 1 << (bit % 64));
        assert_eq!(client.call(&[bit; 8], Some(PATIENCE)), Ok([bit; 8]));
    }
    assert_eq!(client.take_bits(), 0);
    drop(done);
    late += serving.join().unwrap();
    assert!(late < 60, "{late} of 600 took 100 ms");
    assert!(is_readable(&fd, 60_000));
    assert_eq!(client.wait_bits(Some(Duration::ZERO)), Err(CallError::NoServer));
}
