// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /run/asmp is not what it was: hidden by a mount, no directory, full, or without a way to write.

use super::guests::{Boot, On};
use super::lab::{Process, Test, allowed, asmp, binary, isolated, test, until};
use super::others::{Machine, sh};

pub fn all() -> Vec<Test> {
    vec![
        test("lost: what a mount over the state hides is named, and known again later", hidden)
            .on(On::RtAndNot),
        test("lost: where the state cannot be written nothing changes", unwritable)
            .on(On::One)
            .booted(&[Boot::Bare]),
        test("lost: a run whose state can no longer be written says so", read_only_meanwhile)
            .on(On::One)
            .booted(&[Boot::Bare]),
        test("lost: a change whose words are lost is made and says so", words_lost).on(On::One),
    ]
}

fn hidden() {
    let machine = Machine::now();
    asmp("create a --cpus 3").done();
    let task = Process::start("sleep", &["1000"]);
    asmp(&format!("add a --pid {}", task.id())).done();
    sh("mount -t tmpfs -o mode=755 none /run/asmp").done();
    asmp("status").code(7).says("asmp restore");
    asmp("create b --cpus 2").code(25).says("asmp restore");
    asmp("restore").code(45);
    assert_eq!((isolated(), allowed(task.id())), (String::new(), "0-3".to_owned()));
    asmp("status").code(7);
    sh("umount /run/asmp").done();
    // The state of before says that CPU 3 is shielded.
    asmp("status").code(7).says("a: CPU 3: VIOLATED");
    asmp("restore").done();
    asmp("status").done();
    assert_eq!(allowed(task.id()), "0-3");
    drop(task);
    machine.is_as_it_was("known again");
}

/// What is done to /run/asmp, and what undoes it.
const SPOILED: [(&str, &str); 9] = [
    ("mv /run/asmp /run/kept && touch /run/asmp", "rm /run/asmp && mv /run/kept /run/asmp"),
    ("mkdir /run/asmp/journal", "rmdir /run/asmp/journal"),
    (
        "mv /run/asmp/lock /run/kept && mkdir /run/asmp/lock",
        "rmdir /run/asmp/lock && mv /run/kept /run/asmp/lock",
    ),
    ("mount -t tmpfs -o ro,mode=755 none /run/asmp", "umount /run/asmp"),
    ("mount -t tmpfs -o mode=755,nr_inodes=1 none /run/asmp", "umount /run/asmp"),
    ("mount -t tmpfs -o mode=755,nr_inodes=2 none /run/asmp", "umount /run/asmp"),
    ("mount -t tmpfs -o mode=755,nr_inodes=3 none /run/asmp", "umount /run/asmp"),
    ("mount -t tmpfs -o mode=755,nr_inodes=4 none /run/asmp", "umount /run/asmp"),
    ("mount -t tmpfs -o mode=755,size=4k none /run/asmp", "umount /run/asmp"),
];

fn unwritable() {
    asmp("create a --cpus 3").done();
    asmp("destroy a").done();
    let machine = Machine::now();
    let mut refused = 0;
    for (spoil, undo) in SPOILED {
        sh(spoil).done();
        for line in ["create a --cpus 3", "run --cpus 3 -- true"] {
            let called = asmp(line);
            println!("  {spoil}: asmp {line}: {}, {}", called.code, called.err.trim());
            match called.code {
                0 if line.starts_with("create") => drop(asmp("destroy a").done()),
                0 => {}
                _ => {
                    refused += 1;
                    assert_eq!(called.err.lines().count(), 1, "{}", called.err);
                    called.code(9).says("/run/asmp");
                }
            }
            assert_eq!(isolated(), "", "{spoil}: {line}");
        }
        sh(undo).done();
        machine.is_as_it_was(spoil);
    }
    assert!(refused >= 8, "only {refused} refusals");
}

fn read_only_meanwhile() {
    let machine = Machine::now();
    sh("mount -t tmpfs -o mode=755 none /run/asmp").done();
    let words = ["run", "--cpus", "3", "--name", "a", "--", "sleep", "1000"];
    let mut run = Process::start(&binary().display().to_string(), &words);
    until("the command runs", || asmp("status").out.contains("sleep"));
    sh("mount -o remount,ro /run/asmp").done();
    let sleep = sh("pgrep -x sleep").done().out;
    sh(&format!("kill {}", sleep.trim())).done();
    let status = run.0.wait().expect("it ends");
    assert_eq!(status.code(), Some(9), "{status}");
    asmp("restore").code(9).says("/run/asmp");
    sh("mount -o remount,rw /run/asmp").done();
    asmp("restore").done();
    assert_eq!(isolated(), "");
    asmp("status").done();
    sh("umount /run/asmp").done();
    machine.is_as_it_was("after it");
}

fn words_lost() {
    let made = "the change was made all the same";
    sh("$ASMP create a --cpus 3 >/dev/full").code(40).says(made);
    assert_eq!(isolated(), "3");
    asmp("status").done();
    sh("$ASMP repair >/dev/full").code(40).says(made);
    sh("$ASMP destroy a >/dev/full").code(40).says(made);
    assert_eq!(isolated(), "");
    asmp("status").done();
}
