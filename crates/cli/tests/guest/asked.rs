// SPDX-License-Identifier: Apache-2.0 OR MIT
//! asmpd is asked over its socket while it holds partitions.

use super::drift::tty_irq;
use super::guests::{Boot, On};
use super::held::{Daemon, median_ms};
use super::lab::{Process, Test, asmp, binary, read, test, until};
use super::others::sh;
use std::fs;
use std::process::{Command, Stdio};

pub fn all() -> Vec<Test> {
    let asked = |name, run: fn()| test(name, run).on(On::One).booted(&[Boot::Bare]);
    vec![
        asked("asked: any user sees what asmpd repaired, and its status", seen),
        asked("asked: a second asmpd is refused, and without one events says so", one_at_a_time),
        asked("asked: another program that speaks Varlink is answered", by_others),
        asked("asked: top shows any user the partitions until a key or a signal ends it", top),
        asked("asked: top shows root the worst latency of a measurement's seconds", measured),
        asked("asked: users who ask without end keep asmpd from no repair", flood),
    ]
}

/// A user who owns nothing.
pub const NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";
pub const SOCKET: &str = "/run/asmpd/socket";

fn breaks(file: &str) {
    fs::write(file, "0-3").expect("the line takes all CPUs");
    until("it is repaired", || read(file) == "0-2");
}

fn seen() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    breaks(&file);
    let words = || sh(&format!("{NOBODY} {} events", binary().display())).done().out;
    until("the event is there", || words().contains(": repaired "));
    let line = words();
    assert!(line.starts_with("20") && line.contains(" UTC  a: /proc/irq/"), "{line}");
    let followed = std::env::temp_dir().join("followed");
    let mut command = Command::new(binary());
    command.args(["events", "--follow", "--json"]).stdin(Stdio::null());
    command.stdout(fs::File::create(&followed).expect("a file"));
    let mut follower = Process(command.spawn().expect("asmp starts"));
    let lines = || read(&followed).lines().count();
    until("the first event has come", || lines() == 1);
    breaks(&file);
    until("the second one has come", || lines() == 2);
    let all = read(&followed);
    assert!(all.lines().all(|line| line.contains("\"kind\":\"repaired\"")), "{all}");
    assert!(all.contains("\"number\":1,") && all.contains("\"number\":2,"), "{all}");
    asmp("status").done().says("held by asmpd, which has run for ").says(": 2 violations repaired");
    asmp("status --json").done().says("\"repaired\": 2");
    daemon.ends();
    let status = follower.0.wait().expect("it ends with asmpd");
    assert!(status.success(), "{status}");
    asmp("status").done().says("asmpd does not run: what other programs change is not repaired");
}

fn one_at_a_time() {
    asmp("events").code(49).says("systemctl start asmpd");
    let daemon = Daemon::start();
    let second = sh(&super::lab::example("asmpd").display().to_string());
    assert_eq!(second.code, 1, "{}", second.err);
    assert_eq!(second.err, "asmpd: another asmpd runs\n");
    asmp("events").done();
    sh(&format!("kill -STOP {}", daemon.process.id())).done();
    asmp("events").code(49).says("has not answered for 5 s");
    asmp("status").done().says("has not answered for 5 s");
    sh(&format!("kill -CONT {}", daemon.process.id())).done();
    asmp("events").done();
    daemon.ends();
    asmp("events").code(49);
}

/// varlinkctl(1), which also checks the text of the interface.
fn by_others() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    breaks(&file);
    let info = sh(&format!("{NOBODY} varlinkctl info {SOCKET}")).done().out;
    assert!(info.contains("asmpd") && info.contains("org.asmp.Hold"), "{info}");
    for interface in ["org.asmp.Hold", "org.varlink.service"] {
        let text = sh(&format!("varlinkctl introspect {SOCKET} {interface}")).done().out;
        assert!(text.contains(&format!("interface {interface}")), "{text}");
    }
    let call = |method: &str, parameters: &str| {
        sh(&format!("varlinkctl call -j {SOCKET} org.asmp.Hold.{method} '{parameters}'"))
    };
    until("the event is there", || call("GetEvents", "{}").out.contains("\"repaired\""));
    let state = call("GetState", "{}").done().out;
    assert!(state.contains("\"repaired\":1"), "{state}");
    let none = call("GetEvents", "{\"after\":1}").done().out;
    assert!(none.contains("\"events\":[]"), "{none}");
    for (method, parameters, error) in [
        ("GetEvents", "{\"before\":1}", "InvalidParameter"),
        ("Stop", "{}", "MethodNotFound"),
        ("FollowEvents", "{}", "ExpectedMore"),
    ] {
        let refused = call(method, parameters);
        let all = format!("{}{}", refused.out, refused.err);
        assert!(refused.code != 0 && all.contains(error), "{method}: {all}");
    }
    let change = |request: &str| {
        let call = format!("varlinkctl call -j {SOCKET} org.asmp.Partitions.Change");
        sh(&format!("{call} '{{\"request\": {request}, \"command\": \"launcher\"}}'"))
    };
    let made = change(r#"{"request": "create", "name": "b", "spec": {"cpus": "2"}}"#).done().out;
    assert!(made.contains("\"transaction\""), "{made}");
    asmp("status").done().says("launcher").says("CPU 2");
    let refused = change(r#"{"request": "create", "name": "c", "spec": {"cpus": "2"}}"#);
    assert!(refused.code != 0, "{}", refused.out);
    let as_user = format!(
        "{NOBODY} varlinkctl call -j {SOCKET} org.asmp.Partitions.Change \
         '{{\"request\": {{\"request\": \"restore\"}}, \"command\": \"x\"}}'"
    );
    let refused = sh(&as_user);
    let all = format!("{}{}", refused.out, refused.err);
    assert!(refused.code != 0 && all.contains("Refused"), "{all}");
    change(r#"{"request": "destroy", "name": "b", "demote": false}"#).done();
    let more = "varlinkctl call -j --more";
    let follow = format!("timeout 5 {more} {SOCKET} org.asmp.Hold.FollowEvents '{{}}'");
    let followed = sh(&follow).out;
    assert!(followed.contains("\"number\":1"), "{followed}");
    daemon.ends();
}

/// On a terminal of script(1), whose screen is what it was in the end.
fn top() {
    asmp("create motion --cpus 3").done();
    let program = format!("{NOBODY} {}", binary().display());
    let once = || sh(&format!("{program} top --once")).done().out;
    assert!(once().contains("motion     3 "), "{}", once());
    assert!(once().contains(" holds\n"), "{}", once());
    sh(&format!("{program} top </dev/null")).code(2).says("use --once");
    let daemon = Daemon::start();
    let file = tty_irq();
    breaks(&file);
    // The line is written before the repair is counted.
    until("the repair is counted", || asmp("events").done().out.contains(": repaired "));
    for end in ["printf q >&3", "pkill -TERM -x asmp"] {
        let seen = std::env::temp_dir().join("seen");
        fs::write(&seen, "").expect("a file");
        let script = format!(
            "rm -f keys; mkfifo keys; TERM=xterm script -qfec \"stty rows 24 cols 100; {program} \
             top\" {} <keys & exec 3>keys; until grep -q 'held by asmpd' {}; do sleep 0.1; done; \
             {end}; wait $!; echo ended $?",
            seen.display(),
            seen.display()
        );
        let told = sh(&format!("cd {} && {script}", std::env::temp_dir().display())).done().out;
        let screen = fs::read_to_string(&seen).expect("what was seen");
        let expected = if end.contains('q') { "ended 0\n" } else { "ended 143\n" };
        assert!(told.ends_with(expected), "{told}");
        for words in ["motion", "1 repaired", "\u{1b}[?1049h", "\u{1b}[?1049l"] {
            assert!(screen.contains(words), "{words:?}: {screen}");
        }
    }
    daemon.ends();
    asmp("destroy motion").done();
}

fn measured() {
    let dir = std::env::temp_dir().join("measured");
    let words = ["measure", "latency", "--cpus", "3", "--kinds", "partition", "--for", "10m"];
    let words = [&words[..], &["-o", dir.to_str().expect("UTF-8")]].concat();
    let mut process = Process::start(&binary().display().to_string(), &words);
    let latency = |out: &str| out.contains(": latency: worst ");
    until("three seconds are measured", || {
        let out = asmp("top --once").done().out;
        latency(&out) && !out.contains(" us in 1 s") && !out.contains(" us in 2 s")
    });
    let out = sh(&format!("{NOBODY} {} top --once", binary().display())).done().out;
    assert!(out.contains(" holds\n") && !latency(&out), "another user's: {out}");
    sh(&format!("kill -INT {}", process.id())).done();
    process.0.wait().expect("it ends");
    assert!(!latency(&asmp("top --once").done().out));
    fs::remove_dir_all(dir).expect("what it kept");
}

/// From each of these processes come requests as fast as they are taken, some that want no reply,
/// connections that end at once, and one that follows and reads nothing.
const FLOOD: &str = "
import socket, sys, threading
def ask(text, reads=False, ends=False):
    while True:
        try:
            s = socket.socket(socket.AF_UNIX)
            s.connect(sys.argv[1])
            while not ends:
                s.sendall(text)
                if reads and not s.recv(4096):
                    break
            s.close()
        except OSError:
            pass
state = b'{\"method\":\"org.asmp.Hold.GetState\"}\\0'
events = b'{\"method\":\"org.asmp.Hold.GetEvents\"}\\0'
quiet = b'{\"method\":\"org.asmp.Hold.GetEvents\",\"oneway\":true}\\0' * 100
follow = b'{\"method\":\"org.asmp.Hold.FollowEvents\",\"more\":true}\\0'
for text, reads, ends in [(state, True, False), (quiet, False, False), (events, False, False),
        (follow, False, False), (b'', False, True), (b'\\xff' * 70000, False, False)]:
    threading.Thread(target=ask, args=(text, reads, ends)).start()
";

fn flood() {
    asmp("create a --cpus 3").done();
    let file = tty_irq();
    let daemon = Daemon::start();
    let descriptors =
        || fs::read_dir(format!("/proc/{}/fd", daemon.process.id())).map_or(0, Iterator::count);
    let before = descriptors();
    let script = std::env::temp_dir().join("flood.py");
    fs::write(&script, FLOOD).expect("a script");
    let words: Vec<&str> = NOBODY.split(' ').collect();
    let script = script.display().to_string();
    let flooding: Vec<Process> = (0..4)
        .map(|_| Process::start(words[0], &[&words[1..], &["python3", &script, SOCKET]].concat()))
        .collect();
    until("there are many connections", || descriptors() >= before + 12);
    for turn in 0..5 {
        breaks(&file);
        // What is broken again while asmpd reads it back is one violation with the first.
        until("asmpd tells of it", || daemon.told().matches(": repaired ").count() > turn);
    }
    // Connections that end at once may fill the queue of the users; root has its own.
    until("root is answered", || asmp("events").code == 0);
    let told = daemon.told();
    println!("  median repair {:.1} ms", median_ms(&told));
    assert!(median_ms(&told) < 10_000.0, "{told}");
    drop(flooding);
    asmp("status").done().says("held by asmpd, which has run for ");
    let (counts, told) = daemon.ends();
    assert!(counts.repaired >= 5, "{counts:?}: {told}");
}
