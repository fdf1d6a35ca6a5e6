// SPDX-License-Identifier: Apache-2.0 OR MIT
//! C programs against the library as it is built: RTLinux sources rebuild and behave.

#[path = "c/call.rs"]
mod call;
#[path = "c/fifo.rs"]
mod fifo;
#[path = "c/manual.rs"]
mod manual;
#[path = "c/mbuff.rs"]
mod mbuff;
#[path = "c/named.rs"]
mod named;
#[path = "c/offer.rs"]
mod offer;
#[path = "c/place.rs"]
mod place;
mod tools;
#[path = "c/v3.rs"]
mod v3;
#[path = "c/waits.rs"]
mod waits;

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

const CAP_IPC_LOCK: libc::c_ulong = 14;
const CAP_SYS_NICE: libc::c_ulong = 23;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// libasmp_rt.so and libasmp_rt.a, built now: cargo does not build them for a test.
fn libraries() -> &'static [PathBuf] {
    static BUILT: OnceLock<Vec<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--message-format=json", "-p", "asmp-rt-c"])
            .current_dir(root())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let ours = messages.filter(|message| message["target"]["name"] == "asmp_rt");
        let files = ours.filter_map(|message| message["filenames"].as_array().cloned()).flatten();
        let files: Vec<_> = files.map(|file| PathBuf::from(file.as_str().unwrap())).collect();
        files.iter().for_each(|file| give_name(file));
        files
    })
}

/// Programs look for the shared library by the name that the Makefile installs it with.
fn give_name(library: &Path) {
    if library.extension().is_none_or(|found| found != "so") {
        return;
    }
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let name = library.with_file_name(format!("libasmp_rt.so.{major}.{minor}"));
    let linked = std::os::unix::fs::symlink("libasmp_rt.so", &name);
    assert!(linked.is_ok() || name.is_symlink(), "{}: {linked:?}", name.display());
}

fn library(extension: &str) -> &'static Path {
    libraries()
        .iter()
        .find(|file| file.extension().is_some_and(|found| found == extension))
        .unwrap()
}

fn compile(sources: &[PathBuf], flags: &[&str], library: &Path, program: &Path) {
    let directory = library.parent().unwrap();
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-O1", "-pthread"])
        .args(flags)
        .arg(format!("-I{}", root().join("include").display()))
        .args(sources)
        .args(["-x", "none"])
        .arg(library)
        .arg(format!("-Wl,-rpath,{}", directory.display()))
        .args(["-lm", "-ldl", "-o"])
        .arg(program)
        .output()
        .expect("a C compiler by the name of cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// May this process have real-time threads and lock its memory? If not, programs run with -n.
fn permitted() -> bool {
    let limit = |resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes one rlimit into a local.
        unsafe { libc::getrlimit(resource, &raw mut limit) };
        limit.rlim_cur
    };
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    root || limit(libc::RLIMIT_RTPRIO) >= 99 && limit(libc::RLIMIT_MEMLOCK) == libc::RLIM_INFINITY
}

/// What makes a source an RTLinux source.
fn shims() -> String {
    format!("-I{}", root().join("include/rtlinux").display())
}

fn rtlinux(name: &str, program: &Path, more: &[&str]) {
    let examples = root().join("../../examples/rt/c");
    let mut sources = vec![examples.join(name), root().join("include/rtlinux/rtl_main.c")];
    sources.extend(more.iter().map(|more| examples.join(more)));
    compile(&sources, &[&shims()], library("so"), program);
}

fn spawn(program: &Path) -> Child {
    let mut command = Command::new(program);
    if !permitted() {
        eprintln!("note: no permission for real-time threads: run with -n");
        command.arg("-n");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn an_rtlinux_square_wave_rebuilds_and_toggles_in_order_until_its_module_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("square_wave");
    rtlinux("square_wave.c", &program, &["fake_port.c"]);
    let mut child = spawn(&program);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for edge in 0..200 {
        let line = lines.next().map(|line| line.unwrap());
        assert_eq!(line, Some(format!("378 {}", (edge + 1) % 2)), "edge {edge}");
    }
    // SAFETY: the child is not yet waited for, so its number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    let (end, edges) = rest.split_last().unwrap();
    assert_eq!(end, "378 0", "cleanup_module leaves the port low");
    for (edge, line) in edges.iter().enumerate() {
        assert_eq!(*line, format!("378 {}", (edge + 1) % 2));
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "square wave: done\n");
    assert!(child.wait().unwrap().success());
}

/// Runs tests/calls.c, which checks by itself and says what failed.
fn run_calls(library: &Path, arguments: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("calls");
    compile(&[root().join("tests/calls.c")], &[&shims()], library, &program);
    Command::new(&program).args(arguments).output().unwrap()
}

#[test]
fn the_calls_do_what_rtlinux_does_from_the_shared_and_from_the_static_library() {
    let arguments: &[&str] = if permitted() { &[] } else { &["-n"] };
    for library in [library("so"), library("a")] {
        let output = run_calls(library, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {:?}: {said}", library.display(), output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "all calls\n");
    }
}

/// C++'s condition variables wait by the clocks of C++, not by RTLinux's.
#[test]
fn rtlinux_headers_leave_the_waits_of_cplusplus_alone() {
    if tools::missing(&["c++"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("wait.cc"), dir.path().join("wait"));
    let lines = "#include <rtl.h>\n#include <chrono>\n#include <condition_variable>\n\
                 #include <mutex>\nint main() {\n\
                 std::mutex m; std::condition_variable c; std::unique_lock<std::mutex> l(m);\n\
                 auto end = std::chrono::system_clock::now() + std::chrono::milliseconds(20);\n\
                 return c.wait_until(l, end) != std::cv_status::timeout;\n}\n";
    fs::write(&file, lines).unwrap();
    let stdlib = "-Wl,--push-state,--no-as-needed,-lstdc++,--pop-state";
    compile(&[file], &["-x", "c++", &shims(), stdlib], library("so"), &program);
    let status = Command::new("timeout").arg("60").arg(&program).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_program_without_permission_says_why_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("square_wave");
    rtlinux("square_wave.c", &program, &["fake_port.c"]);
    let refused = |limits: &[(libc::__rlimit_resource_t, u64)], capabilities: &[libc::c_ulong]| {
        use std::os::unix::process::CommandExt;
        let (limits, capabilities) = (limits.to_vec(), capabilities.to_vec());
        let mut command = Command::new(&program);
        let give_up = move || {
            for (resource, value) in &limits {
                let limit = libc::rlimit { rlim_cur: *value, rlim_max: *value };
                // SAFETY: the kernel reads one rlimit, which outlives the call.
                unsafe { libc::setrlimit(*resource, &raw const limit) };
            }
            for capability in &capabilities {
                // SAFETY: takes numbers. What is dropped here does not survive exec.
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0) };
            }
            Ok(())
        };
        // SAFETY: between fork and exec only setrlimit and prctl, async-signal-safe system calls.
        unsafe { command.pre_exec(give_up) };
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let no_priority = (libc::RLIMIT_RTPRIO, 0);
    let both = [CAP_SYS_NICE, CAP_IPC_LOCK];
    let (code, said) = refused(&[(libc::RLIMIT_MEMLOCK, 65_536), no_priority], &both);
    assert!(code == Some(3) && said.contains("RLIMIT_MEMLOCK allows 65536"), "{code:?}: {said}");
    let (code, said) = refused(&[no_priority], &[CAP_SYS_NICE]);
    if code == Some(3) {
        eprintln!("skipped: no permission to lock memory, so priorities are not come to");
        return;
    }
    assert!(
        code == Some(1) && said.contains("init_module: Operation not permitted (no permission"),
        "{said}"
    );
}
