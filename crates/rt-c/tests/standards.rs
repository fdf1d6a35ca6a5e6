// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers under strict standards, alone and beside the system's own.

mod tools;

use std::path::Path;
use std::process::Command;
use tools::missing;

const C: [&str; 12] = [
    "stdio.h",
    "stdlib.h",
    "string.h",
    "time.h",
    "pthread.h",
    "sched.h",
    "semaphore.h",
    "signal.h",
    "unistd.h",
    "fcntl.h",
    "sys/mman.h",
    "math.h",
];
const CPLUSPLUS: [&str; 9] =
    ["cstdio", "cstdlib", "string", "vector", "thread", "mutex", "memory", "numeric", "chrono"];
const RTLINUX: [&str; 8] = [
    "rtl.h",
    "rtl_sched.h",
    "rtl_time.h",
    "rtl_fifo.h",
    "mbuff.h",
    "pthread.h",
    "linux/module.h",
    "linux/init.h",
];

/// Of RTLinux 3 too; they include those above.
const MORE: [&str; 12] = [
    "linux/slab.h",
    "posix/pthread.h",
    "posix/signal.h",
    "posix/time.h",
    "rtl_core.h",
    "rtl_malloc.h",
    "rtl_posixio.h",
    "rtl_printf.h",
    "rtl_signal.h",
    "rtl_spinlock.h",
    "rtl_sync.h",
    "rtlinux_signal.h",
];

/// What a compiler says of these headers, in this order, each error a line.
fn said(compiler: &[&str], headers: &[&str]) -> Vec<String> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("headers.c");
    let lines: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    std::fs::write(&file, lines + "int a_source_has_something;\n").unwrap();
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
    command.arg(format!("-I{}", include.display()));
    if !headers.contains(&"asmp_rt.h") {
        command.arg(format!("-I{}", include.join("rtlinux").display()));
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
    if missing(&["cc", "c++"]) {
        return;
    }
    beside(&["cc", "-std=gnu99"], &RTLINUX, &C, 1);
    beside(&["cc", "-std=c99", "-D_GNU_SOURCE"], &RTLINUX, &C, C.len());
    for standard in ["-std=gnu89", "-std=c99", "-std=c11"] {
        beside(&["cc", standard, "-D_GNU_SOURCE"], &MORE, &C, C.len());
    }
    let compiler = ["c++", "-x", "c++", "-std=c++17"];
    // The others are included by these.
    beside(&compiler, &["rtl.h", "mbuff.h", "pthread.h"], &CPLUSPLUS, CPLUSPLUS.len());
    beside(&compiler, &MORE, &CPLUSPLUS, CPLUSPLUS.len());
}

#[test]
fn rtlinux_headers_say_what_a_strict_standard_hides() {
    if missing(&["cc"]) {
        return;
    }
    let said = said(&["cc", "-std=c99"], &["rtl_time.h"]);
    assert!(said[0].contains("compile with -std=gnu99"), "{said:?}");
}
