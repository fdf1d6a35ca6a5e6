// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers under strict standards, alone and beside the system's own.

mod files;
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;
use tools::missing;

const C: [&str; 41] = [
    "assert.h",
    "complex.h",
    "ctype.h",
    "dirent.h",
    "dlfcn.h",
    "errno.h",
    "fcntl.h",
    "getopt.h",
    "inttypes.h",
    "limits.h",
    "locale.h",
    "math.h",
    "mqueue.h",
    "netinet/in.h",
    "poll.h",
    "pthread.h",
    "sched.h",
    "semaphore.h",
    "setjmp.h",
    "signal.h",
    "stdatomic.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "sys/epoll.h",
    "sys/mman.h",
    "sys/resource.h",
    "sys/select.h",
    "sys/socket.h",
    "sys/stat.h",
    "sys/sysinfo.h",
    "sys/time.h",
    "sys/timerfd.h",
    "sys/types.h",
    "sys/wait.h",
    "syslog.h",
    "termios.h",
    "threads.h",
    "time.h",
    "unistd.h",
    "wchar.h",
];
const CPLUSPLUS: [&str; 19] = [
    "atomic",
    "cerrno",
    "chrono",
    "complex",
    "condition_variable",
    "csignal",
    "cstdio",
    "cstdlib",
    "fstream",
    "functional",
    "future",
    "iostream",
    "map",
    "memory",
    "mutex",
    "numeric",
    "string",
    "thread",
    "vector",
];
/// The headers that each RTLinux source includes. A test compiles them beside each system header.
const RTLINUX: [&str; 6] =
    ["rtl.h", "rtl_sched.h", "rtl_time.h", "rtl_fifo.h", "mbuff.h", "pthread.h"];

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// All headers of the directory rtlinux, by the name that a source includes; those whose only sense
/// is their name, and the others.
fn rtlinux_headers() -> (Vec<String>, Vec<String>) {
    let root = include().join("rtlinux");
    let mut names = files::below(&root);
    names.retain(|name| name.extension().is_some_and(|found| found == "h"));
    let names = names.into_iter().map(|name| name.to_str().unwrap().to_owned());
    let is_a_name = |name: &String| {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        text.contains("For the sake of the include line.")
    };
    names.partition(is_a_name)
}

/// What a compiler says of these headers, in this order, each error a line.
fn said(compiler: &[&str], headers: &[&str]) -> Vec<String> {
    said_of(compiler, headers, "int a_source_has_something;\n")
}

/// The same of a source with these headers.
fn said_of(compiler: &[&str], headers: &[&str], source: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("headers.c");
    let lines: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    std::fs::write(&file, lines + source).unwrap();
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
    command.arg(format!("-I{}", include().display()));
    if !headers.contains(&"asmp_rt.h") {
        command.arg(format!("-I{}", include().join("rtlinux").display()));
    }
    let output = command.arg(&file).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<String> =
        text.lines().filter(|line| line.contains("error")).map(str::to_owned).collect();
    assert_eq!(output.status.success(), said.is_empty(), "{text}");
    said
}

/// Each of ours alone, before and after these of the system's, so many at a time.
fn beside(compiler: &[&str], ours: &[&str], systems: &[&str], at_a_time: usize) {
    for header in ours {
        assert_eq!(said(compiler, &[header]), [""; 0], "{compiler:?} {header}");
        for others in systems.chunks(at_a_time) {
            for all in [[&[*header], others].concat(), [others, &[*header]].concat()] {
                assert_eq!(said(compiler, &all), [""; 0], "{compiler:?} {all:?}");
            }
        }
    }
}

#[test]
fn asmp_rt_h_is_strict_c_and_cplusplus_beside_any_header_of_the_system() {
    if missing(&["cc", "c++"]) {
        return;
    }
    for standard in ["-std=c99", "-std=c11", "-std=c17"] {
        beside(&["cc", standard, "-pedantic"], &["asmp_rt.h"], &C, 1);
    }
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        let compiler = ["c++", "-x", "c++", standard, "-pedantic"];
        beside(&compiler, &["asmp_rt.h"], &CPLUSPLUS, CPLUSPLUS.len());
    }
}

#[test]
fn rtlinux_headers_spoil_no_header_of_the_system() {
    if missing(&["cc"]) {
        return;
    }
    beside(&["cc", "-std=gnu99"], &RTLINUX, &C, 1);
    let (names, others) = rtlinux_headers();
    let all: Vec<&str> = names.iter().chain(&others).map(String::as_str).collect();
    assert!(RTLINUX.iter().all(|header| all.contains(header)) && names.len() > 20, "{all:?}");
    for standard in ["-std=gnu89", "-std=c99", "-std=c11"] {
        beside(&["cc", standard, "-D_GNU_SOURCE"], &all, &C, C.len());
    }
}

#[test]
fn rtlinux_headers_spoil_no_header_of_cplusplus() {
    if missing(&["c++"]) {
        return;
    }
    let compiler = ["c++", "-x", "c++", "-std=c++17"];
    let (names, others) = rtlinux_headers();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    beside(&compiler, &others, &CPLUSPLUS, CPLUSPLUS.len());
    // They include nothing but those and the system's.
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(said(&compiler, &names), [""; 0], "{names:?}");
}

#[test]
fn an_rtlinux_source_has_what_the_systems_headers_take_from_those_of_linux() {
    if missing(&["cc"]) {
        return;
    }
    let uses = "struct sysinfo all;\nint asks(void) { return sysinfo(&all); }\n";
    for headers in [["rtl.h", "sys/sysinfo.h"], ["sys/sysinfo.h", "linux/kernel.h"]] {
        let said = said_of(&["cc", "-std=gnu99"], &headers, uses);
        assert_eq!(said, [""; 0], "{headers:?}");
    }
}

#[test]
fn rtlinux_headers_say_what_a_strict_standard_hides() {
    if missing(&["cc"]) {
        return;
    }
    let said = said(&["cc", "-std=c99"], &["rtl_time.h"]);
    assert!(said[0].contains("compile with -std=gnu99"), "{said:?}");
}
