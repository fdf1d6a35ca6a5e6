// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ends in processes of their own that are killed at random instants, or that scribble.
use super::tests::{LENDING, PLAIN, SHAPES, SOON, STOP, dir, serve};
use super::*;
use crate::mbuff::Mbuff;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::*;

/// The other processes run a test of this file, chosen by name.
fn start(test: &str, dir: &Path, shape: Shape) -> Child {
    let at = SHAPES.iter().position(|known| *known == shape).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("call::kill_tests::{test}"), "--ignored"])
        .env("ASMP_RT_TEST_DIR", dir)
        .env("ASMP_RT_TEST_SHAPE", at.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Of the child; it ends with the test that started it, however that ends.
fn the_dir() -> PathBuf {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    PathBuf::from(std::env::var_os("ASMP_RT_TEST_DIR").unwrap())
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[ignore = "a part of the tests beside it"]
fn serves_for_ever() {
    let at: usize = std::env::var("ASMP_RT_TEST_SHAPE").unwrap().parse().unwrap();
    serve(&mut Server::open(&the_dir(), "a", SHAPES[at]).unwrap());
}

#[test]
#[ignore = "a part of the tests beside it"]
fn calls_for_ever() {
    let mut client = Client::attach(&the_dir(), "a", None).unwrap();
    for number in 0u64.. {
        let message = [number; WORDS];
        assert_eq!(client.call(&message, None), Ok(message.map(|word| word + 1)));
        client.send(&message, None).unwrap();
    }
}

#[test]
#[ignore = "a part of the tests beside it"]
fn scribbles_for_ever() {
    let table = Table::attach(&the_dir(), "a").unwrap();
    let count = Mbuff::attach(&the_dir(), "count").unwrap();
    let words = table.shared.words(0, (SLOTS + table.shape.clients as usize * SLOT_BYTES) / 8);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    loop {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The words that belong to all get more than their share.
        let range = if state.is_multiple_of(4) { SLOTS / 8 } else { words.len() };
        let word = &words[(state >> 8) as usize % range];
        match state >> 40 & 3 {
            0 => word.store(state.rotate_left(21), Relaxed),
            1 => word.store(u64::MAX, Relaxed),
            2 => word.store(0, Relaxed),
            _ => _ = word.fetch_xor(1 << (state >> 50 & 63), Relaxed),
        }
        count.words()[0].fetch_add(1, Relaxed);
        if state & 0xff00 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Until there is no answer.
fn calls(client: &mut Client) -> CallError {
    (0u64..)
        .find_map(|number| match client.call(&[number; WORDS], None) {
            Ok(answer) if answer == [number + 1; WORDS] => None,
            Ok(answer) => panic!("{answer:?} to {number}"),
            Err(error) => Some(error),
        })
        .unwrap()
}

fn waits_for_bits(client: &mut Client) -> CallError {
    client.wait_bits(None).expect_err("no process sets any")
}

#[test]
fn a_server_killed_at_any_instant_leaves_an_error_and_the_next_one_serves() {
    for shape in SHAPES {
        let dir = dir();
        let kept = Table::open(dir.path(), "a", shape).unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        for round in 0..12u32 {
            let server = start("serves_for_ever", dir.path(), shape);
            let until = Instant::now() + Duration::from_secs(180);
            while client.call(&[0; WORDS], Some(SLICE)).is_err() {
                assert!(Instant::now() < until, "round {round}: no server came");
                std::thread::yield_now();
            }
            let killer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(u64::from(round) * 777 % 5000));
                end(server);
            });
            // No timeout: it must end by itself.
            let (tell, ended) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let error =
                    if round % 3 == 2 { waits_for_bits(&mut client) } else { calls(&mut client) };
                tell.send((client, error)).unwrap();
            });
            let (back, error) =
                ended.recv_timeout(Duration::from_secs(180)).expect("the client hangs");
            client = back;
            assert_eq!(error, CallError::PeerDied);
            killer.join().unwrap();
        }
        drop(kept);
    }
}

/// Those with no time are over before they would sleep and look whether the server lives.
#[test]
fn a_client_of_many_short_waits_or_calls_learns_that_its_server_was_killed() {
    type Try = fn(&mut Client) -> CallError;
    let zero = Some(Duration::ZERO);
    let tries: [(bool, Try); 4] = [
        (false, |client| client.wait_bits(Some(Duration::ZERO)).unwrap_err()),
        (true, |client| client.wait_bits(Some(Duration::ZERO)).unwrap_err()),
        (false, |client| client.wait_bits(Some(Duration::from_millis(1))).unwrap_err()),
        (false, |client| client.call(&[0; WORDS], Some(Duration::ZERO)).unwrap_err()),
    ];
    for (has_descriptor, attempt) in tries {
        let dir = dir();
        let kept = Table::open(dir.path(), "a", PLAIN).unwrap();
        let mut client = Client::attach(dir.path(), "a", None).unwrap();
        let server = start("serves_for_ever", dir.path(), PLAIN);
        let until = Instant::now() + Duration::from_secs(180);
        while client.call(&[0; WORDS], Some(SLICE)).is_err() {
            assert!(Instant::now() < until, "no server came");
            std::thread::yield_now();
        }
        let _descriptor = has_descriptor.then(|| client.descriptor().unwrap());
        assert_eq!(client.wait_bits(zero), Err(CallError::TimedOut), "it lives");
        end(server);
        if has_descriptor {
            assert_eq!(client.wait_bits(zero), Err(CallError::PeerDied), "said at once");
        }
        while attempt(&mut client) != CallError::PeerDied {
            assert!(Instant::now() < until, "it is not told");
        }
        assert_eq!(attempt(&mut client), CallError::PeerDied, "and again");
        drop(kept);
    }
}

#[test]
fn clients_killed_at_any_instant_disturb_neither_server_nor_neighbours() {
    for shape in [PLAIN, LENDING] {
        let dir = dir();
        std::thread::scope(|scope| {
            let (tell, opened) = std::sync::mpsc::channel();
            let at = dir.path();
            let serving = scope.spawn(move || {
                let mut server = Server::open(at, "a", shape).unwrap();
                tell.send(()).unwrap();
                serve(&mut server);
            });
            opened.recv().unwrap();
            let mut neighbour = Client::attach(at, "a", None).unwrap();
            for round in 0..20u64 {
                // All other slots are taken by clients that are to die.
                let victims = [(); 3].map(|()| start("calls_for_ever", at, shape));
                for number in 0..200 {
                    assert_eq!(neighbour.call(&[number; WORDS], SOON), Ok([number + 1; WORDS]));
                }
                std::thread::sleep(Duration::from_micros(20_000 + round * 777 % 5000));
                for victim in victims {
                    end(victim);
                }
            }
            let others = [(); 3].map(|()| Client::attach(at, "a", None).unwrap());
            for mut client in others {
                assert_eq!(client.call(&[1; WORDS], SOON), Ok([2; WORDS]));
            }
            neighbour.call(&[STOP; WORDS], None).unwrap();
            serving.join().unwrap();
        });
    }
}

#[test]
fn a_scribbler_neither_stops_nor_crashes_anybody_and_is_forgotten_when_it_is_gone() {
    for shape in SHAPES {
        let dir = dir();
        let mut server = Server::open(dir.path(), "a", shape).unwrap();
        let count = Mbuff::alloc(dir.path(), "count", 8, Pages::Normal).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (at, over) = (dir.path(), &over);
            // Attached before the enemy comes, as a real-time client would be.
            let mut client = Client::attach(at, "a", Some(1)).unwrap();
            let calling = scope.spawn(move || {
                let (mut good, mut bad) = (0u32, 0u32);
                while !over.load(Relaxed) {
                    let _ = client.send(&[8; WORDS], Some(Duration::from_millis(5)));
                    match client.call(&[7; WORDS], Some(Duration::from_millis(5))) {
                        Ok(answer) if answer == [9; WORDS] => good += 1,
                        _ => bad += 1,
                    }
                }
                (good, bad, client)
            });
            let enemy = start("scribbles_for_ever", at, shape);
            // Long enough where twenty others want the CPU; passed only by a test that fails.
            let until = Instant::now() + Duration::from_secs(120);
            let mut requests = 0u32;
            while (count.words()[0].load(Relaxed) < 50_000 || requests < 500)
                && Instant::now() < until
            {
                if let Ok(received) = server.receive(Some(Duration::from_millis(5))) {
                    requests += received.request.map_or(0, |request| {
                        assert!(request.client < shape.clients);
                        1
                    });
                    let _ = server.reply(&[9; WORDS]);
                }
                server.notify(1, 1);
            }
            end(enemy);
            over.store(true, Relaxed);
            let (good, bad, mut client) = calling.join().unwrap();
            println!(
                "{} writes, {requests} requests, {good} good, {bad} bad",
                count.words()[0].load(Relaxed)
            );
            assert!(count.words()[0].load(Relaxed) >= 50_000 && requests >= 500);
            // As if nothing had been: at most the first call notices (the server puts its words
            // right).
            while server.receive(Some(Duration::from_millis(5))).is_ok() {}
            let calling = scope.spawn(move || {
                let _ = client.call(&[7; WORDS], Some(Duration::from_millis(300)));
                (0..100).map(|_| client.call(&[7; WORDS], SOON)).collect::<Vec<_>>()
            });
            let mut answered = 0;
            while !calling.is_finished() {
                if let Ok(Received { request: Some(_), .. }) =
                    server.receive(Some(Duration::from_millis(50)))
                {
                    server.reply(&[9; WORDS]).unwrap();
                    answered += 1;
                }
            }
            assert_eq!(calling.join().unwrap(), vec![Ok([9; WORDS]); 100]);
            assert!(answered >= 100);
        });
    }
}
