// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends in threads of one process; `kill_tests` has them in several, `order_tests` under real-time
//! policies.
use super::*;
use crate::shm::Role;
use std::sync::Barrier;
use std::sync::atomic::Ordering::*;

pub(super) fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    dir
}

pub(super) const PLAIN: Shape = Shape { clients: 4, scheduling: Scheduling::Full, inherit: false };
pub(super) const LENDING: Shape = Shape { inherit: true, ..PLAIN };
pub(super) const SHAPES: [Shape; 3] =
    [PLAIN, LENDING, Shape { scheduling: Scheduling::Direct, ..PLAIN }];
pub(super) const SOON: Option<Duration> = Some(Duration::from_secs(180));
const NOT_LONG: Option<Duration> = Some(Duration::from_millis(20));

/// Answers every call with its words plus one, until a message begins with `STOP`.
pub(super) fn serve(server: &mut Server) {
    let mut received = server.receive(None).unwrap();
    loop {
        let request = received.request.expect("no bits were set");
        let answer = request.message.map(|word| word.wrapping_add(1));
        if request.message[0] == STOP {
            return server.reply(&answer).unwrap();
        }
        received = match request.want {
            Want::Call => server.reply_wait(&answer, None).unwrap(),
            Want::Send => server.receive(None).unwrap(),
        };
    }
}

pub(super) const STOP: u64 = u64::MAX;

#[test]
fn calls_are_answered_and_sends_are_taken() {
    for shape in SHAPES {
        let dir = dir();
        let ready = Barrier::new(4);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let mut server = Server::open(dir.path(), "a", shape).unwrap();
                ready.wait();
                serve(&mut server);
            });
            let clients = [1, 2, 3].map(|own: u64| {
                let (dir, ready) = (dir.path(), &ready);
                scope.spawn(move || {
                    ready.wait();
                    let mut client = Client::attach(dir, "a", None).unwrap();
                    client.set_spins(own as u32 * 10);
                    for number in 0..2000 {
                        let message = [own << 32 | number; WORDS];
                        assert_eq!(client.call(&message, None), Ok(message.map(|word| word + 1)));
                        assert_eq!(client.send(&message, SOON), Ok(()));
                    }
                })
            });
            for client in clients {
                client.join().unwrap();
            }
            Client::attach(dir.path(), "a", None).unwrap().call(&[STOP; WORDS], None).unwrap();
            serving.join().unwrap();
        });
    }
}

#[test]
fn there_is_one_server_and_as_many_clients_as_slots() {
    let dir = dir();
    let open = |shape| Server::open(dir.path(), "a", shape);
    let attach = |slot| Client::attach(dir.path(), "a", slot);
    assert!(matches!(attach(None), Err(SetupError::Shm(ShmError::NotFound { .. }))));
    for clients in [0, 31] {
        let refused = open(Shape { clients, ..PLAIN }).map(drop);
        assert!(matches!(refused, Err(SetupError::BadShape { .. })));
    }
    let server = open(PLAIN).unwrap();
    let second = open(PLAIN).map(drop);
    assert!(matches!(second, Err(SetupError::Shm(ShmError::RoleTaken { role: "server", .. }))));
    let other = open(LENDING).map(drop).unwrap_err().to_string();
    assert!(other.contains("inherit: false") && other.contains("inherit: true"), "{other}");
    assert!(matches!(attach(Some(4)), Err(SetupError::NoSuchSlot { slot: 4, clients: 4, .. })));
    let third = attach(Some(2)).unwrap();
    assert!(matches!(
        attach(Some(2)).map(drop),
        Err(SetupError::Shm(ShmError::RoleTaken { role: "client", .. }))
    ));
    let others = [(); 3].map(|()| attach(None).unwrap());
    assert_eq!(others.each_ref().map(Client::slot), [0, 1, 3]);
    assert!(matches!(attach(None).map(drop), Err(SetupError::SlotsTaken { clients: 4, .. })));
    assert!(server.has_client(2));
    drop(third);
    assert!(!server.has_client(2) && !server.has_client(99));
    assert_eq!(attach(None).unwrap().slot(), 2);
}

#[test]
fn a_timeout_says_whether_the_request_was_taken_and_a_late_answer_is_nobodys() {
    for shape in SHAPES {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape).unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        for timeout in [NOT_LONG, Some(Duration::ZERO)] {
            assert_eq!(server.receive(timeout), Err(CallError::TimedOut));
            assert_eq!(
                client.call(&[1; WORDS], timeout),
                Err(CallError::NoAnswer { taken: false })
            );
            assert_eq!(
                client.send(&[1; WORDS], timeout),
                Err(CallError::NoAnswer { taken: false })
            );
        }
        assert_eq!(
            server.receive(NOT_LONG),
            Err(CallError::TimedOut),
            "what was withdrawn is not served"
        );
        assert_eq!(server.reply(&[0; WORDS]), Err(CallError::NoCaller));
        assert_eq!(server.reply_wait(&[0; WORDS], None), Err(CallError::NoCaller));
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| {
                let first = client.call(&[2; WORDS], Some(Duration::from_millis(200)));
                (first, client.call(&[3; WORDS], SOON))
            });
            let taken = server.receive(SOON).unwrap().request.unwrap();
            assert_eq!(taken.message, [2; WORDS]);
            // The client gives up, and calls again (1). In between it might still take an answer.
            while server.table.slot(0).request.load(Relaxed) & 3 != 1 {
                std::thread::yield_now();
            }
            let next = server.reply_wait(&[22; WORDS], SOON).unwrap().request.unwrap();
            assert_eq!(next.message, [3; WORDS]);
            server.reply(&[33; WORDS]).unwrap();
            assert_eq!(
                calling.join().unwrap(),
                (Err(CallError::NoAnswer { taken: true }), Ok([33; WORDS]))
            );
        });
    }
}

#[test]
fn a_server_that_goes_on_without_an_answer_leaves_no_client_waiting() {
    for shape in SHAPES {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape).unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| client.call(&[1; WORDS], None));
            assert!(server.receive(SOON).unwrap().request.is_some());
            assert_eq!(server.receive(Some(Duration::ZERO)), Err(CallError::TimedOut));
            assert_eq!(calling.join().unwrap(), Err(CallError::Unanswered));
        });
    }
}

#[test]
fn a_server_that_leaves_says_so_and_the_next_one_serves_the_same_clients() {
    for shape in SHAPES {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape).unwrap();
        let clients = [(); 3].map(|()| Client::attach(dir.path(), "a", None).unwrap());
        std::thread::scope(|scope| {
            let calling = clients
                .map(|mut client| scope.spawn(move || (client.call(&[1; WORDS], None), client)));
            // One is taken, the others wait.
            let taken = server.receive(SOON).unwrap().request.unwrap();
            let posted = |client| server.table.slot(client).request.load(Relaxed) & 3 != 0;
            while !(0..3).all(posted) {
                std::thread::yield_now();
            }
            drop(server);
            let mut server = Server::open(dir.path(), "a", shape).unwrap();
            let clients = calling.map(|calling| {
                let (outcome, client) = calling.join().unwrap();
                let expected = match client.slot() == taken.client {
                    true => CallError::Unanswered,
                    false => CallError::PeerDied,
                };
                assert_eq!(outcome, Err(expected));
                client
            });
            assert_eq!(
                server.receive(Some(Duration::ZERO)),
                Err(CallError::TimedOut),
                "nothing is left over"
            );
            let [mut one, ..] = clients;
            let calling = scope.spawn(move || (one.call(&[5; WORDS], None), one));
            assert_eq!(server.receive(SOON).unwrap().request.unwrap().message, [5; WORDS]);
            server.reply(&[6; WORDS]).unwrap();
            let (outcome, mut one) = calling.join().unwrap();
            assert_eq!(outcome, Ok([6; WORDS]));
            drop(server);
            assert_eq!(one.call(&[7; WORDS], None), Err(CallError::NoServer));
            assert_eq!(one.wait_bits(None), Err(CallError::NoServer));
        });
    }
}

#[test]
fn bits_come_with_a_message_or_instead_of_one() {
    let dir = dir();
    let mut server = Server::open(dir.path(), "a", PLAIN).unwrap();
    let mut client = Client::attach(dir.path(), "a", None).unwrap();
    client.notify(1);
    client.notify(4);
    assert_eq!(server.receive(None), Ok(Received { bits: 5, request: None }));
    assert_eq!(server.receive(Some(Duration::ZERO)), Err(CallError::TimedOut));
    assert_eq!(client.wait_bits(NOT_LONG), Err(CallError::TimedOut));
    server.notify(0, 2);
    server.notify(0, 8);
    server.notify(99, 1);
    assert_eq!((client.wait_bits(None), client.take_bits()), (Ok(10), 0));
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            client.notify(16);
            let answer = client.call(&[1; WORDS], None);
            (answer, client.wait_bits(None), client.wait_bits(None))
        });
        let (mut bits, mut answered) = (0, false);
        while bits != 16 || !answered {
            let received = server.receive(SOON).unwrap();
            bits |= received.bits;
            if received.request.is_some() {
                // Bits do not disturb a client in a call.
                server.notify(0, 32);
                server.reply(&[2; WORDS]).unwrap();
                answered = true;
            }
        }
        // Either while it sleeps, or before.
        while server.table.slot(0).notifications.load(Relaxed) != 0 {
            std::thread::yield_now();
        }
        server.notify(0, 64);
        assert_eq!(calling.join().unwrap(), (Ok([2; WORDS]), Ok(32), Ok(64)));
        assert!(server.has_client(0) && server.table.shared.is_held(Role::Client(0)));
    });
}

#[test]
fn what_a_scribbler_took_away_is_put_back_in_time() {
    for shape in SHAPES {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape).unwrap();
        let table = Table::attach(dir.path(), "a").unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| {
                let first = client.call(&[1; WORDS], None);
                // The server sleeps for ever, and has to be published that its epoch is gone.
                while table.rendezvous().pending.load(Relaxed) & rendezvous::ASLEEP == 0 {
                    std::thread::yield_now();
                }
                table.epoch().store(0, Relaxed);
                let until = Instant::now() + Duration::from_secs(180);
                while client.call(&[2; WORDS], SOON) == Err(CallError::NoServer)
                    && Instant::now() < until
                {
                    std::thread::yield_now();
                }
                first
            });
            // The bit of a request that is posted: gone before the server looks.
            while table.rendezvous().pending.swap(0, Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(server.receive(SOON).unwrap().request.unwrap().message, [1; WORDS]);
            assert_eq!(
                server.reply_wait(&[1; WORDS], None).unwrap().request.unwrap().message,
                [2; WORDS]
            );
            server.reply(&[2; WORDS]).unwrap();
            assert_eq!(calling.join().unwrap(), Ok([1; WORDS]));
        });
    }
}
