// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stand-in for irqbalance records what it is told. The guests test the real one.

use super::*;
use crate::hold::tests::status;
use asmp_host::{CpuSet, Linux};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, channel};

/// The name of a socket that counts as irqbalance's, as this process has its name now.
fn socket_of_this_process() -> String {
    let pid = std::process::id();
    fs::write(format!("/proc/self/task/{pid}/comm"), "irqbalance").unwrap();
    format!("irqbalance{pid}.sock")
}

/// Its directory, and what it heard.
struct Other {
    dir: tempfile::TempDir,
    heard: Receiver<String>,
}

impl Other {
    /// It answers `setup` so. Its thread ends with the test's process.
    fn start(setup: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(socket_of_this_process())).unwrap();
        let (hears, heard) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut page = [0; 4096];
                let count = stream.read(&mut page).unwrap();
                let words = String::from_utf8_lossy(&page[..count]).into_owned();
                if words == "setup" {
                    stream.write_all(setup.as_bytes()).unwrap();
                }
                if hears.send(words).is_err() {
                    return;
                }
            }
        });
        Self { dir, heard }
    }

    fn balancer(&self) -> Balancer {
        Balancer::new(self.dir.path().to_owned(), self.dir.path().join("kept"))
    }

    /// What it heard since the last call: so many messages.
    fn heard(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.heard.recv().unwrap()).collect()
    }

    fn hears_nothing_more(&self) {
        assert!(self.heard.try_recv().is_err());
    }
}

/// Partition motion, CPU 3, with these lines.
fn with_lines(irqs: &[u32]) -> Status {
    let mut status = status(&[]);
    status.partitions[0].irqs = irqs.to_vec();
    status
}

fn none() -> Status {
    Status { partitions: Vec::new(), ..status(&[]) }
}

#[test]
fn it_is_told_once_what_to_leave_alone_and_at_the_end_what_it_did_before() {
    let linux = Linux::new();
    let other = Other::start("SLEEP 10 IRQ 9 LOAD 0 DIFF 0 CLASS 0 BANNED 1");
    let mut balancer = other.balancer();
    assert_eq!(balancer.follow(&linux, &none(), 0), None);
    other.hears_nothing_more();
    let said = balancer.follow(&linux, &with_lines(&[24]), 0).expect("it is told");
    assert_eq!(said, "irqbalance leaves CPU 0,3 and 2 lines alone");
    assert_eq!(other.heard(3), ["setup", "settings cpus 0,3", "settings ban irqs 9 24"]);
    assert_eq!(balancer.follow(&linux, &with_lines(&[24]), 0), None);
    let said = balancer.follow(&linux, &with_lines(&[]), 0).expect("it is told");
    assert_eq!(said, "irqbalance leaves CPU 0,3 and 1 line alone");
    assert_eq!(other.heard(1), ["settings ban irqs 9"]);
    // Another asmpd goes on where this one ended.
    let mut balancer = other.balancer();
    assert!(balancer.follow(&linux, &none(), 0).expect("it is told").contains("used before"));
    assert_eq!(other.heard(2), ["settings cpus 0", "settings ban irqs 9"]);
    assert_eq!(other.balancer().follow(&linux, &none(), 0), None);
    other.hears_nothing_more();
}

#[test]
fn one_that_finds_the_cpus_by_itself_is_told_nothing() {
    let other = Other::start("SLEEP 10 BANNED 0000000e");
    assert_eq!(other.balancer().follow(&Linux::new(), &with_lines(&[]), 0), None);
    assert_eq!(other.heard(1), ["setup"]);
    other.hears_nothing_more();
}

#[test]
fn a_socket_that_another_program_inherited_by_its_number_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(dir.path().join("irqbalance1.sock")).unwrap();
    assert_eq!(Irqbalance::running(&Linux::new(), dir.path()), None);
}

#[test]
fn one_that_would_have_no_cpu_left_keeps_those_that_it_has() {
    let before = Banned { cpus: CpuSet::from_iter([0, 1, 2]), ..Banned::default() };
    assert_eq!(wanted(&before, &with_lines(&[24])).cpus, before.cpus);
    let before = Banned { cpus: CpuSet::from_iter([0, 1]), ..Banned::default() };
    assert_eq!(wanted(&before, &with_lines(&[24])).cpus, CpuSet::from_iter([0, 1, 3]));
}

#[test]
fn one_that_does_not_answer_is_named_once_and_asked_again_ever_more_seldom() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join(socket_of_this_process());
    // No thread reads it.
    let listener = UnixListener::bind(&socket).unwrap();
    let mut balancer = Balancer::new(dir.path().to_owned(), dir.path().join("kept"));
    let linux = Linux::new();
    let said = balancer.follow(&linux, &with_lines(&[]), 0).expect("it is named");
    assert!(said.contains("cannot be told to leave CPUs alone"), "{said}");
    let mut again = Vec::new();
    for _ in 0..9 {
        let due_ns = balancer.again_ns().expect("it is asked again");
        again.push(due_ns / PAUSE_NS);
        assert_eq!(balancer.follow(&linux, &with_lines(&[]), due_ns - 1), None);
        assert_eq!(balancer.again_ns(), Some(due_ns), "too early");
        assert_eq!(balancer.follow(&linux, &with_lines(&[]), due_ns), None);
    }
    assert_eq!(again, [1, 3, 7, 15, 31, 63, 127, 191, 255]);
    // It has gone.
    drop(listener);
    fs::remove_file(socket).unwrap();
    assert_eq!(balancer.follow(&linux, &with_lines(&[]), 0), None);
    assert_eq!(balancer.again_ns(), None);
}
