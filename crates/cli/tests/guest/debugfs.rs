// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that lack debugfs, or whose kernel closes it: the deadline servers stay on.

use super::lab::{Called, asmp, read};
use super::others::{Machine, lacks, sh};
use std::fs;

const DEBUGFS: &str = "/sys/kernel/debug";

/// Mounts debugfs again when a test ends, however it ends.
struct Debugfs;

impl Drop for Debugfs {
    fn drop(&mut self) {
        if !fs::exists(format!("{DEBUGFS}/sched")).unwrap_or(false) {
            drop(sh(&format!("mount -t debugfs debugfs {DEBUGFS}")));
        }
    }
}

/// A partition on CPU 3 while its deadline server is on. For most of the time the kernel stops the
/// tick all the same; where it does not, the proof refuses, and the partition is made without.
fn made_with_the_server_on() -> Called {
    let proved = asmp("create a --cpus 3 --tick require-off");
    if proved.code != 5 {
        return proved.done();
    }
    let error = proved.says("ticks in the last 500 ms").says("nothing has changed").err;
    println!("  the tick goes on beside the deadline server: {}", error.trim());
    asmp("create a --cpus 3").done()
}

pub fn goes() {
    let _mounted_at_the_end = Debugfs;
    let umount = || sh(&format!("umount {DEBUGFS}")).done();
    let mount = || sh(&format!("mount -t debugfs debugfs {DEBUGFS}")).done();
    let server = || read(format!("{DEBUGFS}/sched/fair_server/cpu3/runtime"));
    let machine = Machine::now();
    let original = server();
    umount();
    asmp("check").done().says("mount debugfs: mount -t debugfs none");
    lacks(asmp("plan create a --cpus 3").done(), &format!("{DEBUGFS}/sched"));
    made_with_the_server_on()
        .says("the deadline server of CPU 3 cannot be switched off")
        .says("mount -t debugfs");
    asmp("status").done();
    asmp("destroy a").done();
    mount();
    machine.is_as_it_was("made without it");
    // It goes while a partition has switched the servers off.
    asmp("create a --cpus 3").done();
    assert_eq!(server(), "0");
    umount();
    asmp("status").done().says("the deadline servers of CPU 3 cannot be read: not checked");
    asmp("destroy a").code(6).says("fair_server/cpu3/runtime").says("not given back yet");
    asmp("status").code(7).says("fair_server/cpu3/runtime").says(&original);
    mount();
    assert_eq!(server(), "0");
    asmp("restore").done();
    assert_eq!(server(), original);
    machine.is_as_it_was("restored");
}

/// The value of a boot parameter of this guest.
pub fn boot_parameter(name: &str) -> Option<String> {
    let line = read("/proc/cmdline");
    line.split_whitespace()
        .find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.into()))
}

pub fn is_closed() {
    let file = format!("{DEBUGFS}/sched/fair_server/cpu3/runtime");
    let opens = fs::read_to_string(&file).is_ok();
    let cure = match (boot_parameter("lockdown"), boot_parameter("debugfs")) {
        (None, None) => None,
        (Some(mode), _) => Some(format!("lockdown={mode} closes debugfs: switch Secure Boot off")),
        (None, Some(value)) => Some(format!("boot without debugfs={value}: no mount helps")),
    };
    assert_eq!(opens, cure.is_none(), "{file}");
    let says = |called: Called| match &cure {
        None => lacks(called, "cannot be switched off"),
        Some(cure) => lacks(called.says(cure).says("50 ms of each second"), "sudo"),
    };
    let securityfs = "/sys/kernel/security";
    for mounted in [false, true] {
        if mounted {
            sh(&format!("mount -t securityfs none {securityfs}")).done();
        }
        let check = asmp("check").done();
        match &cure {
            None => drop(check.says("ok  deadline servers can be switched off: yes")),
            Some(_) => drop(says(check)),
        }
        says(asmp("plan create a --cpus 2-3").done());
        let made = match &cure {
            None => asmp("create a --cpus 3 --tick require-off").done(),
            Some(_) => made_with_the_server_on(),
        };
        let made = says(made);
        assert!(cure.is_none() || made.out.contains("server of CPU 3"), "{}", made.out);
        asmp("status").done();
        asmp("destroy a").done();
        if mounted {
            sh(&format!("umount {securityfs}")).done();
        }
    }
}
