// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a measurement or an import that fails says, and that it leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LATENCY: &str = "measure latency --kinds normal --source nanosleep --samples 5 -q";

/// `asmp` by way of a shell that sets its limits or its way to programs before.
fn asmp(dir: &Path, before: &str, line: &str) -> Command {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_asmp");
    command.current_dir(dir).arg("-c").arg(format!("{before}; exec {program} {line}"));
    command
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// No file can grow beyond that, as on a full disk.
const NO_ROOM: &str = "trap '' XFSZ; ulimit -f 0";

#[test]
fn an_import_without_room_names_the_file_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("hist.txt"), "000001 5\n000002 3\n").unwrap();
    let line = "measure import hist.txt --from cyclictest --kernel 7.2 --kind fifo -o theirs";
    let (code, words) = said(&asmp(dir.path(), NO_ROOM, line).output().unwrap());
    assert_eq!(code, Some(40), "{words}");
    assert!(words.contains("thread-0/hist.hlog: cannot be written: File too large"), "{words}");
    assert!(!dir.path().join("theirs").exists());
}

#[test]
fn a_measurement_without_room_leaves_nothing_and_its_name_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let line = format!("{LATENCY} -o mine");
    let (code, words) = said(&asmp(dir.path(), NO_ROOM, &line).output().unwrap());
    assert!(code == Some(40) && words.contains("idle-normal: File too large"), "{code:?} {words}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let (code, words) = said(&asmp(dir.path(), ":", &line).output().unwrap());
    assert_eq!(code, Some(0), "{words}");
}

#[test]
fn a_period_that_no_clock_holds_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for measurement in ["latency --kinds normal", "spaces", "ab --knob tick"] {
        let line = format!("measure {measurement} --period 18446744073709551615ns -o mine");
        let (code, words) = said(&asmp(dir.path(), ":", &line).output().unwrap());
        assert!(code == Some(2) && words.contains("at most 24 h"), "{code:?} {words}");
    }
}

/// A directory with a program of that name, and the words that set the way to it.
fn instead_of_stress_ng(dir: &Path, script: &str) -> String {
    // Another process writes it, so that no fork of this one has it open as it is executed.
    let write = format!("printf '#!/bin/sh\\n%s\\n' '{script}' > stress-ng; chmod +x stress-ng");
    assert!(Command::new("sh").current_dir(dir).args(["-c", &write]).status().unwrap().success());
    format!("PATH={}:$PATH", dir.display())
}

#[test]
fn a_signal_ends_a_measurement_whose_load_never_tells_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let way = instead_of_stress_ng(dir.path(), "echo $$ > began; exec sleep 600");
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let line = format!("{LATENCY} --load cpu -o mine");
        let mut command = asmp(dir.path(), &way, &line);
        // A shell starts what it runs in the background with SIGINT ignored, and so would asmp be.
        // SAFETY: async-signal-safe; SIG_DFL is no function.
        let heeds = move || match unsafe { libc::signal(signal, libc::SIG_DFL) } {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        };
        // SAFETY: between fork and exec only that call.
        unsafe { command.pre_exec(heeds) };
        let mut child = command.stderr(Stdio::null()).process_group(0).spawn().unwrap();
        let began = dir.path().join("began");
        let since = Instant::now();
        while !fs::read_to_string(&began).is_ok_and(|text| text.ends_with('\n')) {
            assert!(since.elapsed() < Duration::from_secs(120), "no load was asked for");
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = Instant::now();
        // SAFETY: kill takes two numbers; the child was not waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(told.elapsed() < Duration::from_secs(120), "it did not wait for ten minutes");
        let other = fs::read_to_string(&began).unwrap();
        assert!(!Path::new("/proc").join(other.trim()).exists(), "it has ended too");
        fs::remove_file(began).unwrap();
        assert!(!dir.path().join("mine").exists(), "nothing was measured");
    }
}

#[test]
fn a_run_says_by_which_program_its_load_was_made() {
    let dir = tempfile::tempdir().unwrap();
    // Called for a load, it has as many children as `--cpu N` asks for.
    let script = "[ $1 = --version ] && echo stress-pretender 7 && exit; \
                  for one in $(seq $5); do sleep 600 & done; wait";
    let way = instead_of_stress_ng(dir.path(), script);
    let line = format!("{LATENCY} --load cpu,idle --load-factor 1 -o mine");
    let output = asmp(dir.path(), &way, &line).output().unwrap();
    let text = |name: &str| fs::read_to_string(dir.path().join("mine").join(name)).unwrap();
    assert_eq!(said(&output).0, Some(0), "{}", said(&output).1);
    assert!(text("cpu-normal/run.json").contains("\"load_tool\": \"stress-pretender 7\""));
    assert!(!text("idle-normal/run.json").contains("load_tool"));
}

#[test]
fn what_is_not_held_off_the_probe_is_said_as_a_measurement_starts() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The user can reach this copy, not the directory that it was built in. Another process writes
    // it, as above.
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_asmp")).arg(dir.path().join("asmp"));
    assert!(copy.status().unwrap().success());
    let mut command = Command::new("sh");
    let line = format!("ulimit -l 64; exec ./asmp {LATENCY} -o mine");
    command.current_dir(dir.path()).args(["-c", &line]);
    // SAFETY: takes nothing.
    if unsafe { libc::getuid() } == 0 {
        command.uid(65_534).gid(65_534);
    }
    let (code, words) = said(&command.output().unwrap());
    assert_eq!(code, Some(0), "{words}");
    let memory = "memory is not locked (Cannot allocate memory";
    assert!(words.contains(memory) && words.contains("ulimit -l unlimited"), "{words}");
    assert!(words.contains("/dev/cpu_dma_latency: ") && words.contains("as root"), "{words}");
}
