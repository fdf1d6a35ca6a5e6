// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who runs before whom, under SCHED_FIFO on one CPU: the tour's temporary inversion, and its
//! loaded server that starves those it has served. What counts is the order of events; no thread is
//! busy for longer than 200 ms.
use super::tests::{LENDING, PLAIN, SOON, dir};
use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// The calling thread alone: on the last CPU it may use, with this priority. False: not permitted
/// here.
fn become_real_time(priority: i32) -> bool {
    // SAFETY: all zeros is an empty set of CPUs.
    let mut cpus: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours, and as long as is said.
    unsafe { libc::sched_getaffinity(0, size_of_val(&cpus), &raw mut cpus) };
    // SAFETY: the numbers are below the size of the set.
    let last =
        (0..libc::CPU_SETSIZE as usize).rev().find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &cpus) });
    // SAFETY: all zeros is an empty set of CPUs.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::CPU_SET(last.unwrap_or(0), &mut one) };
    // SAFETY: the set is ours, and as long as is said.
    let pinned = unsafe { libc::sched_setaffinity(0, size_of_val(&one), &raw const one) } == 0;
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure is ours.
    pinned && unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } == 0
}

/// May this process have such threads at all?
fn is_permitted() -> bool {
    let permitted = std::thread::spawn(|| become_real_time(1)).join().unwrap();
    if !permitted {
        println!("skipped: SCHED_FIFO is not permitted here (CAP_SYS_NICE or RLIMIT_RTPRIO)");
    }
    permitted
}

/// Busy with nothing, measured by this thread's own time.
fn work(milliseconds: i64) {
    let used = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure is ours; the clock exists on every Linux.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    };
    let end = used() + milliseconds;
    while used() < end {
        std::hint::spin_loop();
    }
}

/// A (high) calls B (low, the server); while B serves, C (between them) becomes ready and works for
/// 100 ms. Had C done its work before A had its answer?
fn is_overtaken(shape: Shape) -> bool {
    let dir = dir();
    let (go, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let ready = Barrier::new(3);
    std::thread::scope(|scope| {
        let b = scope.spawn(|| {
            assert!(become_real_time(10));
            let mut server = Server::open(dir.path(), "a", shape).unwrap();
            ready.wait();
            let received = server.receive(SOON).unwrap();
            // The critical section, in the middle of which C becomes ready.
            work(5);
            go.store(1, Release);
            crate::futex::wake(&go, 1);
            work(5);
            server.reply(&received.request.unwrap().message).unwrap();
        });
        let c = scope.spawn(|| {
            assert!(become_real_time(20));
            ready.wait();
            while go.load(Acquire) == 0 {
                crate::futex::wait(&go, 0, SOON);
            }
            work(100);
            done.store(true, Release);
        });
        let a = scope.spawn(|| {
            ready.wait();
            assert!(become_real_time(30));
            let mut client = Client::attach(dir.path(), "a", None).unwrap();
            client.call(&[1; WORDS], SOON).unwrap();
            done.load(Acquire)
        });
        b.join().unwrap();
        c.join().unwrap();
        a.join().unwrap()
    })
}

#[test]
fn with_inheritance_a_high_client_waits_for_its_server_only_and_without_for_whoever_is_between() {
    if is_permitted() {
        for _ in 0..3 {
            assert!(!is_overtaken(LENDING), "C ran although A was waiting for B");
            assert!(is_overtaken(PLAIN), "nothing had to be inherited: this test proves nothing");
        }
    }
}

/// One client of priority 25 and three of 10 wait; the server serves them all, highest first. How
/// many had been served when the first of them ran again?
fn served_before_the_first_runs(shape: Shape, server_priority: i32) -> u32 {
    let dir = dir();
    let (posted, served) = (Barrier::new(2), AtomicU32::new(0));
    let ready = Barrier::new(5);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut server = Server::open(dir.path(), "a", shape).unwrap();
            ready.wait();
            posted.wait();
            assert!(become_real_time(server_priority));
            let mut received = server.receive(SOON).unwrap();
            for number in 1..=4 {
                work(2);
                served.store(number, Release);
                let message = received.request.unwrap().message;
                match number {
                    4 => server.reply(&message).unwrap(),
                    _ => received = server.reply_wait(&message, SOON).unwrap(),
                }
            }
        });
        let clients = [25, 10, 10, 10].map(|priority| {
            let (dir, ready, served) = (&dir, &ready, &served);
            scope.spawn(move || {
                ready.wait();
                let mut client = Client::attach(dir.path(), "a", None).unwrap();
                client.set_priority(priority as u32);
                assert!(become_real_time(priority));
                client.call(&[1; WORDS], SOON).unwrap();
                served.load(Acquire)
            })
        });
        // All four wait, asleep.
        let table = loop {
            match Table::attach(dir.path(), "a") {
                Ok(table) => break table,
                Err(_) => std::thread::yield_now(),
            }
        };
        let sleeps = |client| {
            let pi_lock = table.pi_lock(client).load(Relaxed) & libc::FUTEX_WAITERS != 0;
            pi_lock || table.slot(client).answer.load(Relaxed) & rendezvous::ASLEEP != 0
        };
        while !(0..4).all(sleeps) {
            std::thread::yield_now();
        }
        posted.wait();
        server.join().unwrap();
        let [first, ..] = clients.map(|client| client.join().unwrap());
        first
    })
}

#[test]
fn a_loaded_server_starves_whom_it_has_served_unless_it_has_no_more_priority_than_it_is_lent() {
    if is_permitted() {
        assert_eq!(
            served_before_the_first_runs(PLAIN, 30),
            4,
            "a server above all runs until no client waits"
        );
        // L4's ReplyWait: the one served runs first if it is strictly higher than the next in the
        // queue.
        assert_eq!(served_before_the_first_runs(LENDING, 1), 1);
    }
}
