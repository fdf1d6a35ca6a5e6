// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /run/asmp is not what it was: hidden by a mount, no directory, full, or without a way to write.
//! And what a caller leaves us is not what it was: its environment, its umask, its descriptors.

use super::guests::{Boot, On};
use super::lab::{Process, Test, allowed, asmp, binary, isolated, test, until};
use super::others::{Machine, lacks, sh};
use serde_json::Value;
use std::fs;

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
        test("lost: what is printed to a closed descriptor is in no file of asmp", closed)
            .on(On::RtAndNot)
            .booted(&[Boot::Bare]),
        test("lost: a state or journal without an end is refused and set aside", endless)
            .on(On::One)
            .booted(&[Boot::Bare]),
        test("lost: an environment or a umask that is none keeps no change from its end", strange)
            .on(On::One)
            .booted(&[Boot::Bare]),
        test("lost: with few descriptors a change is made whole or not at all", few_descriptors)
            .on(On::One)
            .booted(&[Boot::Bare]),
        test(
            "lost: without systemd's programs in PATH a change is undone and says so",
            no_systemctl,
        )
        .on(On::One)
        .booted(&[Boot::Systemd]),
    ]
}

fn hidden() {
    let machine = Machine::now();
    asmp("create a --cpus 3").done();
    let task = Process::start("sleep", &["1000"]);
    asmp(&format!("add a --pid {}", task.id())).done();
    let spoiled = Spoiled::by("mount -t tmpfs -o mode=755 none /run/asmp", "umount /run/asmp");
    asmp("status").code(7).says("asmp restore");
    asmp("create b --cpus 2").code(25).says("asmp restore");
    asmp("restore").code(45);
    assert_eq!((isolated(), allowed(task.id())), (String::new(), "0-3".to_owned()));
    asmp("status").code(7);
    drop(spoiled);
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

/// Undone where the test ends, also by a failure: the next one starts with the state as it was.
struct Spoiled(&'static str);

impl Spoiled {
    fn by(spoil: &str, undo: &'static str) -> Self {
        sh(spoil).done();
        Self(undo)
    }
}

impl Drop for Spoiled {
    fn drop(&mut self) {
        let undone = sh(self.0);
        if undone.code != 0 {
            println!("  {}: {}", self.0, undone.err.trim());
        }
    }
}

fn unwritable() {
    asmp("create a --cpus 3").done();
    asmp("destroy a").done();
    let machine = Machine::now();
    for (spoil, undo) in SPOILED {
        let spoiled = Spoiled::by(spoil, undo);
        for line in ["create a --cpus 3", "run --cpus 3 -- true"] {
            let refused = asmp(line).code(9).says("/run/asmp");
            assert_eq!(refused.err.lines().count(), 1, "{spoil}: {}", refused.err);
            assert_eq!(isolated(), "", "{spoil}: {line}");
        }
        drop(spoiled);
        machine.is_as_it_was(spoil);
    }
}

/// The task of that name in the first partition.
pub fn inside(command: &str) -> Option<u32> {
    let status: Value = serde_json::from_str(&asmp("status --json").out).ok()?;
    let tasks = status["partitions"][0]["tasks"].as_array()?.iter();
    let mut tasks = tasks.filter(|task| task["command"] == command);
    tasks.next()?["tid"].as_u64()?.try_into().ok()
}

fn read_only_meanwhile() {
    let machine = Machine::now();
    let spoiled = Spoiled::by("mount -t tmpfs -o mode=755 none /run/asmp", "umount /run/asmp");
    let words = ["run", "--cpus", "3", "--name", "a", "--", "sleep", "1000"];
    let mut run = Process::start(&binary().display().to_string(), &words);
    until("the command runs", || inside("sleep").is_some());
    let read_only = || sh("mount -o remount,ro /run/asmp").code == 0;
    until("no file is open for writing", read_only);
    sh(&format!("kill {}", inside("sleep").expect("it sleeps"))).done();
    let status = run.0.wait().expect("it ends");
    assert_eq!(status.code(), Some(9), "{status}");
    asmp("restore").code(9).says("/run/asmp");
    sh("mount -o remount,rw /run/asmp").done();
    asmp("restore").done();
    assert_eq!(isolated(), "");
    asmp("status").done();
    drop(spoiled);
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

/// Where no other file is open yet, the next one has number 0, 1 or 2.
fn closed() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        sh(&format!("exec $ASMP create a --cpus 3 {closed}")).done();
        let command = "sh -c 'echo printed; echo printed >&2; cat'";
        sh(&format!("exec $ASMP run --cpus 2 {closed} -- {command}")).done();
        // Refused, so that it prints an error.
        sh(&format!("exec $ASMP create a --cpus 3 {closed}")).code(31);
        for file in fs::read_dir("/run/asmp").expect("the directory").flatten() {
            let text = fs::read(file.path()).expect("a file");
            let text = String::from_utf8_lossy(&text);
            for word in ["printed", "asmp:", "partition a:"] {
                assert!(!text.contains(word), "{closed}: {}: {text}", file.path().display());
            }
        }
        asmp("status").done().says("a: CPU 3");
        sh(&format!("exec $ASMP destroy a {closed}")).done();
        assert_eq!(isolated(), "", "{closed}");
    }
}

/// A device without an end, and a file of many GiB, whose pages nothing has.
fn endless() {
    let machine = Machine::now();
    for file in ["/run/asmp/journal", "/run/asmp/state.json"] {
        for put in ["mknod -m 600 FILE c 1 5", "truncate -s 64G FILE"] {
            asmp("create a --cpus 3").done();
            sh(&format!("rm -f FILE && {put}").replace("FILE", file)).done();
            for line in ["status", "create b --cpus 2", "destroy a", "repair", "restore"] {
                let refused = asmp(line).code(9).says(file).says("asmp restore --abandon");
                assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
            }
            assert_eq!(isolated(), "3");
            asmp("restore --abandon").code(6).says(file);
            assert_eq!(isolated(), "");
            asmp("status").done();
            sh(&format!("rm {file}.unreadable")).done();
            // Without its state the originals are known to nothing but this test.
            match file.ends_with("journal") {
                true => machine.is_as_it_was(put),
                false => machine.put_back(),
            }
        }
    }
}

/// Before a command.
const STRANGE: [&str; 6] = [
    "PATH=/nowhere",
    "HOME=/nowhere TMPDIR=/nowhere USER= SUDO_USER=",
    "LC_ALL=tr_TR.UTF-8 LANGUAGE=de TZ=/nowhere",
    "LD_PRELOAD=/nowhere.so LD_LIBRARY_PATH=/nowhere LD_BIND_NOW=1",
    "env -i",
    "umask 777;",
];

fn strange() {
    for strange in STRANGE {
        let asked = |line: &str| sh(&format!("{strange} $ASMP {line}"));
        asked("create a --cpus 3").done();
        assert_eq!(isolated(), "3", "{strange}");
        asmp("status").done();
        let command = "/bin/sh -c '/bin/echo printed'";
        assert_eq!(
            asked(&format!("run --cpus 2 -- {command}")).done().out,
            "printed\n",
            "{strange}"
        );
        asked("status").done().says("a: CPU 3");
        // A state that only root may read is none that is empty.
        let user = sh("setpriv --reuid=65534 --regid=65534 --clear-groups $ASMP status");
        lacks(user, "no partition");
        asked("repair").done();
        asked("destroy a").done();
        assert_eq!(isolated(), "", "{strange}");
    }
}

fn few_descriptors() {
    let machine = Machine::now();
    for most in 4..=8 {
        let asked = |line: &str| sh(&format!("ulimit -n {most}; exec $ASMP {line}"));
        for line in ["create a --cpus 3 --irq ttyS0", "run --cpus 3 -- true"] {
            let answer = asked(line);
            println!("  {most} descriptors, {line}: exit {}", answer.code);
            assert!(![101, 134].contains(&answer.code), "{most}: {}", answer.err);
            if answer.code == 0 && line.starts_with("create") {
                // What it claims is true.
                asmp("status").done();
                assert_eq!(isolated(), "3", "{most}: {line}");
                asmp("destroy a").done();
            }
            // What it could not undo by itself it says.
            if answer.code == 6 {
                asmp("restore").done();
            }
            asmp("status").done().says("no partition");
            assert_eq!(isolated(), "", "{most}: {line}");
        }
        // Its own files, which it could not tidy up.
        asmp("restore").done();
        machine.is_as_it_was(&format!("{most} descriptors"));
    }
    sh("ulimit -n 16; exec $ASMP create a --cpus 3").done();
}

fn no_systemctl() {
    let machine = Machine::now();
    let asked = |line: &str| sh(&format!("PATH=/nowhere $ASMP {line}"));
    for line in ["create a --cpus 3", "run --cpus 3 -- /bin/true"] {
        asked(line).code(3).says("asmp-holder.service");
        assert_eq!(isolated(), "");
        asmp("status").done();
        machine.is_as_it_was(line);
    }
    // With a partition there, its service is there too.
    asmp("create a --cpus 3").done();
    asked("create b --cpus 2").done();
    asked("destroy b").done();
    asked("destroy a").code(3).says("asmp-holder.service");
    asmp("status").done().says("a: CPU 3");
    asmp("destroy a").done();
    machine.is_as_it_was("with systemctl");
    // Without any, that of the C library.
    for line in ["create a --cpus 3", "destroy a"] {
        sh(&format!("env -i $ASMP {line}")).done();
    }
}
