// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time program of root, a process of its own.

use crate::{OTHERS, STRANGER};
use asmp_channel::{Access, Fifo, Mbuff, Offer, Options, Overflow, Pages, RawRecord, Wake};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The variable that names its directory.
pub const DIR: &str = "ASMP_STRANGER_DIR";

fn fifo(dir: &Path, name: &str, overflow: Overflow) -> Fifo {
    Fifo::create(dir, name, &Options { capacity_bytes: 4096, overflow }).unwrap()
}

fn serve(offer: Offer) {
    std::thread::spawn(move || {
        loop {
            let _ = offer.serve_one(None);
        }
    });
}

#[test]
#[ignore = "a part of the tests beside it"]
fn runs_for_ever() {
    // SAFETY: takes numbers. It ends with the test that started it, however that ends.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let dir = std::path::PathBuf::from(std::env::var_os(DIR).unwrap());
    let (names, sockets) = (dir.join("names"), dir.join("sockets"));
    let at = |name: &str| sockets.join(name);

    let mut log = fifo(&names, "log", Overflow::DropOldest).into_writer(Wake::IfAsleep).unwrap();
    serve(Offer::new(&at("log"), log.fifo().shared(), Access::Write, &[STRANGER]).unwrap());
    let mut state = RawRecord::alloc(&names, "state", 64, Pages::Normal).unwrap().writer().unwrap();
    let shared = state.record().shared();
    serve(Offer::new(&at("state"), shared, Access::Read, &[STRANGER]).unwrap());
    let commands = fifo(&names, "commands", Overflow::Refuse).into_reader(Wake::Never).unwrap();
    let shared = commands.fifo().shared();
    serve(Offer::new(&at("others"), shared, Access::Write, &OTHERS).unwrap());
    serve(Offer::new(&at("one"), shared, Access::Write, &OTHERS[..1]).unwrap());

    let count = Mbuff::alloc(&names, "count", 16, Pages::Normal).unwrap();
    drop(fifo(&dir.join("default"), "made", Overflow::Refuse));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let priority = libc::sched_param { sched_priority: 1 };
            // SAFETY: one structure of ours; refused, the thread is an ordinary one.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
            loop {
                log.put(b"a sample").unwrap();
                state.write(&[7; 64]);
                count.words()[0].fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        std::fs::write(dir.join("ready"), "").unwrap();
        loop {
            drop(fifo(&names, "again", Overflow::Refuse));
            count.words()[1].fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// The harness may keep what the macros print.
fn say(line: &str) {
    let line = format!("{line}\n");
    // SAFETY: writes bytes of ours.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// What a program with more rights than its caller takes for its directory of names.
#[test]
#[ignore = "a part of the tests beside it"]
fn says_its_directory() {
    say(&asmp_channel::default_dir().display().to_string());
}

/// What a setuid program of root does, whoever starts it.
#[test]
#[ignore = "a part of the tests beside it"]
fn makes_a_channel() {
    let names = std::path::PathBuf::from(std::env::var_os(DIR).unwrap()).join("names");
    let options = Options { capacity_bytes: 64, overflow: Overflow::Refuse };
    match Fifo::create(&names, "limited", &options) {
        Ok(_) => say("made"),
        Err(refused) => say(&format!("refused: {refused}")),
    }
}
