// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A partition that /etc/asmp declares: asmp.service makes it at boot, asmpd.service holds it.

use super::drift::tty_irq;
use super::guests::{Boot, On};
use super::lab::{Called, Process, Test, allowed, asmp, binary, isolated, read, test, until};
use super::others::sh;
use super::random::hands::online;
use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub fn all() -> Vec<Test> {
    let persistent =
        |name, run: fn()| test(name, run).on(On::OneThenAll).booted(&[Boot::Persistent]);
    vec![
        persistent("persistent: a partition is there before multi-user.target, and holds", boots),
        persistent("persistent: the service applies files that changed, or nothing", changes),
        persistent("persistent: what is missing at first is waited for, and for so long", waits),
        persistent("persistent: asmpd of the boot holds what asmp.service makes", held),
    ]
}

/// What the boot made, before the first test ends it.
struct Booted {
    isolated: String,
    status: Called,
}

static BOOTED: OnceLock<Booted> = OnceLock::new();

pub fn record() {
    let _ = BOOTED.set(Booted { isolated: isolated(), status: asmp("status") });
}

fn shown(unit: &str, property: &str) -> String {
    sh(&format!("systemctl show -P {property} {unit}")).done().out.trim().to_owned()
}

fn boots() {
    let Booted { isolated, status } = BOOTED.get().expect("recorded at the start");
    assert_eq!(isolated, "3");
    assert_eq!(status.code, 0, "{}{}", status.out, status.err);
    assert!(status.out.contains("motion"), "{}", status.out);
    let since_us = |unit| -> u64 {
        let since = shown(unit, "ActiveEnterTimestampMonotonic");
        since.parse().unwrap_or_else(|_| panic!("{unit}: {since:?}"))
    };
    let [ours, daemon, target] =
        ["asmp.service", "asmpd.service", "multi-user.target"].map(since_us);
    assert!(0 < ours && ours < daemon && daemon < target, "{ours} {daemon} {target} us");
}

/// A file of /etc/asmp that is removed when dropped.
struct Declared(&'static str);

impl Declared {
    fn write(path: &'static str, text: &str) -> Self {
        fs::write(path, text).expect("a file");
        Self(path)
    }
}

impl Drop for Declared {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

fn changes() {
    sh("systemctl restart asmp").done();
    assert_eq!(isolated(), "3");
    let more = Declared::write("/etc/asmp/b.toml", "[[partition]]\nname = \"b\"\ncpus = \"2\"\n");
    sh("systemctl reload asmp").done();
    assert_eq!(isolated(), "2-3");
    let state = read("/run/asmp/state.json");
    let wrong = Declared::write("/etc/asmp/c.toml", "[[partition]]\nname = \"c\"\ncpu = \"1\"\n");
    assert_ne!(sh("systemctl restart asmp").code, 0);
    // At once: the text stays wrong.
    assert_eq!(shown("asmp", "ActiveState"), "failed");
    assert_eq!(shown("asmp", "ExecMainStatus"), "40");
    assert_eq!(read("/run/asmp/state.json"), state);
    drop((more, wrong));
    sh("systemctl restart asmp && systemctl stop asmp").done();
    assert_eq!(isolated(), "2-3", "what no file names is left alone, and all after a stop");
    asmp("status").done();
}

/// A CPU that is offline stands for a device that comes late.
fn waits() {
    online(2, false);
    let _file = Declared::write("/etc/asmp/b.toml", "[[partition]]\nname = \"b\"\ncpus = \"2\"\n");
    let began = Instant::now();
    asmp("apply /etc/asmp --wait 2s").code(21).says("b.toml: line 3");
    assert!(began.elapsed() >= Duration::from_secs(2));
    let began = Instant::now();
    let ended = sh(&format!("timeout 2 {} apply /etc/asmp --wait 100s", binary().display()));
    assert!(ended.code == 124 && began.elapsed() < Duration::from_secs(60), "{}", ended.err);
    assert!(ended.err.contains("nothing has changed"), "{}", ended.err);
    assert_eq!(isolated(), "", "nothing is half done");
    let dependent = "/run/systemd/system/dependent.service";
    // As asmp-partitions(5) has it.
    let program = binary().display().to_string();
    let unit = format!(
        "[Unit]\nRequires=asmp.service\nAfter=asmp.service\n[Service]\n\
         ExecStart={program} exec b -- /bin/sleep 1000\n"
    );
    fs::write(dependent, unit).expect("a unit");
    sh("systemctl daemon-reload && systemctl stop asmp").done();
    let starts = Process::start("systemctl", &["start", "dependent"]);
    until("asmp.service waits", || shown("asmp", "ActiveState") == "activating");
    online(2, true);
    until("the dependent service runs inside", || {
        shown("dependent", "MainPID").parse().is_ok_and(|pid: u32| pid > 0 && allowed(pid) == "2")
    });
    drop(starts);
    sh("systemctl stop dependent").done();
    fs::remove_file(dependent).expect("the unit");
    sh("systemctl daemon-reload").done();
}

fn held() {
    sh("systemctl restart asmp").done();
    assert_eq!(shown("asmpd", "ActiveState"), "active");
    let file = tty_irq();
    fs::write(&file, "0-3").expect("the line takes all CPUs");
    until("asmpd has repaired it", || read(&file) == "0-2");
    asmp("status").done();
}
