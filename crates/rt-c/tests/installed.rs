// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `make install-rt` leaves is enough to build and run with; and what a put costs there.

mod files;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tools::missing;

/// Of a put of 64 bytes, with the loop around it: by its pointer, and by RTLinux's number, where a
/// table of FIFOs and a lock for the process's other threads come in. Rust's own put costs 58.
const MOST_INSTRUCTIONS: [(&str, u64); 2] = [("fifo", 100), ("rtf", 150)];

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// The system it is installed into, by `make install-rt DESTDIR=`, under /usr.
fn system() -> &'static Path {
    static INSTALLED: OnceLock<tempfile::TempDir> = OnceLock::new();
    let system = INSTALLED.get_or_init(|| {
        let system = tempfile::tempdir().unwrap();
        install(system.path(), &[]);
        system
    });
    system.path()
}

/// Runs `make install-rt` with `system` as DESTDIR. Returns the /usr in it.
fn install(system: &Path, more: &[&str]) -> PathBuf {
    let mut make = Command::new("make");
    make.arg("-C").arg(root()).arg("install-rt").arg("PREFIX=/usr").args(more);
    make.arg(format!("DESTDIR={}", system.display()));
    // Of a make that runs this test.
    run(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"));
    system.join("usr")
}

/// What pkg-config says of a library in that system.
fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command
        .env("PKG_CONFIG_SYSROOT_DIR", system())
        .env("PKG_CONFIG_LIBDIR", system().join("usr/lib/pkgconfig"));
    run(command.args(arguments)).split_whitespace().map(str::to_owned).collect()
}

fn examples() -> PathBuf {
    root().join("examples/rt/c")
}

#[test]
fn every_header_and_program_is_there() {
    if missing(&["make"]) {
        return;
    }
    let headers = root().join("crates/rt-c/include");
    let names = files::below(&headers);
    for name in ["asmp_rt.h", "rtlinux/mbuff.h", "rtlinux/posix/sys/mman.h"] {
        assert!(names.contains(&PathBuf::from(name)), "{name}: {names:?}");
    }
    for name in names {
        let installed = fs::read(system().join("usr/include").join(&name));
        assert!(
            installed.is_ok_and(|text| text == fs::read(headers.join(&name)).unwrap()),
            "{name:?}"
        );
    }
    let usage = Command::new(system().join("usr/bin/asmp-rtf")).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&usage.stderr).contains("\nusage: asmp-rtf"));
}

#[test]
fn pkg_config_says_all_that_an_rtlinux_source_needs() {
    if missing(&["make", "pkg-config", "c++"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [main] = &pkg_config(&["--variable=rtl_main", "asmp_rtlinux"])[..] else {
        panic!("one file")
    };
    // Some versions put the system before a variable, others do not.
    let main = if Path::new(main).starts_with(system()) {
        main.clone()
    } else {
        format!("{}{main}", system().display())
    };
    let modules: [&[&str]; 3] =
        [&["square_wave.c", "fake_port.c"], &["fifo_echo.c"], &["mbuff_counter.c"]];
    for sources in modules {
        let mut cc = Command::new("cc");
        cc.args(sources.iter().map(|name| examples().join(name))).arg(&main);
        cc.args(pkg_config(&["--cflags", "--libs", "asmp_rtlinux"]))
            .arg("-o")
            .arg(dir.path().join("module"));
        run(&mut cc);
    }
    // A C++ compiler reads the same sources and headers, and what it makes goes together with the
    // main in C.
    let mut cc = Command::new("c++");
    cc.args(["-x", "c++", "-std=c++11", "-Wall", "-Wpedantic", "-Werror", "-c"]);
    cc.arg(examples().join("fifo_echo.c")).args(pkg_config(&["--cflags", "asmp_rtlinux"]));
    run(cc.arg("-o").arg(dir.path().join("echo.o")));
    let mut cc = Command::new("cc");
    cc.arg(dir.path().join("echo.o")).arg(&main).args(pkg_config(&[
        "--cflags",
        "--libs",
        "asmp_rtlinux",
    ]));
    run(cc.arg("-o").arg(dir.path().join("echo")));
    let mut cc = Command::new("cc");
    cc.arg(examples().join("mbuff_reader.c")).args(pkg_config(&[
        "--cflags",
        "--libs",
        "asmp_rtlinux",
    ]));
    run(cc.arg("-o").arg(dir.path().join("reader")));
    let mut reader = Command::new(dir.path().join("reader"));
    reader
        .env("LD_LIBRARY_PATH", system().join("usr/lib"))
        .env("ASMP_CHANNELS", dir.path().join("channels"));
    assert_eq!(run(reader.arg("1")), "0\n");
}

/// Runs tests/rtlinux.sh with the library as it is installed: its exit code and what it says.
fn rtlinux(arguments: &[&Path]) -> (Option<i32>, String) {
    let mut script = Command::new(root().join("tests/rtlinux.sh"));
    script.args(arguments).env("ASMP_PREFIX", system().join("usr")).env_remove("ASMP_COUNTS");
    let output = script.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn the_programs_of_a_list_are_built_and_run_and_a_row_says_what_came_of_each() {
    if missing(&["make", "bash", "cc"]) {
        return;
    }
    let (code, said) = rtlinux(&[&examples()]);
    let rows = |said: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        said.lines().map(words).collect()
    };
    let all = [
        "program builds runs expected",
        "square_wave yes yes ^378 1",
        "fifo_echo yes yes ^hello$",
        "mbuff_reader yes - a part of another",
        "mbuff_counter yes yes ^[1-9][0-9]+$",
        "rtlinux: 4 passed, 0 failed, 0 skipped",
    ];
    assert_eq!((code, rows(&said)), (Some(0), all.map(str::to_owned).into()));

    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("ends.c"),
        "#include <stdio.h>\nint main(void) {\n  puts(\"one\");\n}\n",
    )
    .unwrap();
    fs::write(
        dir.path().join("wrong.c"),
        "#include <rtl.h>\nint init_module(void) { return x; }\n",
    )
    .unwrap();
    let list = "program: says\nsources: ends.c\nmain: own\nexpects: ^one\n\n\
                program: silent\nsources: ends.c\nmain: own\nseconds: 1\nexpects: ^two\n\n\
                program: wrong\nsources: wrong.c\nexpects: x\n\n\
                # as it should be\nprogram: known\nsources: wrong.c\nbuilds: no\n\n\
                program: builds\nsources: ends.c\nmain: own\nbuilds: no\n";
    fs::write(dir.path().join("programs.txt"), list).unwrap();
    let (code, said) = rtlinux(&[dir.path()]);
    let all = rows(&said);
    for row in [
        "says yes yes ^one",
        "silent yes no ^two",
        "wrong no - x",
        "known no - does not build, as listed",
        "builds yes - ",
        "rtlinux: 2 passed, 3 failed, 0 skipped",
    ] {
        assert!(all.iter().any(|line| line == row.trim_end()), "{row}: {said}");
    }
    assert_eq!(code, Some(1), "{said}");
    fs::write(dir.path().join("programs.txt"), "colour: red\n").unwrap();
    let (code, said) = rtlinux(&[dir.path()]);
    assert!(code == Some(2) && said.contains("unknown key: colour: red"), "{said}");
}

#[test]
fn without_sources_the_programs_of_others_are_skipped_and_counted() {
    if missing(&["make", "bash"]) {
        return;
    }
    let (code, said) = rtlinux(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("skipped: no sources: make rtlinux SOURCES="), "{said}");
    assert!(said.ends_with("rtlinux: 0 passed, 0 failed, 1 skipped\n"), "{said}");
}

/// The version that a program asks for. Before 1.0 each minor version has a soname of its own.
const SERIES: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Configures a project in `dir` of these lines, with nothing but the prefix of the library.
fn configure(dir: &Path, languages: &str, version: &str, lines: &str) -> Command {
    let project = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(wave {languages})\n\
         find_package(AsmpRt {version} REQUIRED)\n{lines}"
    );
    fs::write(dir.join("CMakeLists.txt"), project).unwrap();
    let mut configure = Command::new("cmake");
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", system().join("usr").display()));
    configure.arg("-S").arg(dir).arg("-B").arg(dir.join("build"));
    configure
}

/// The same, and builds it; its build directory.
fn cmake(dir: &Path, languages: &str, lines: &str) -> PathBuf {
    run(&mut configure(dir, languages, SERIES, lines));
    let build = dir.join("build");
    run(Command::new("cmake").arg("--build").arg(&build));
    build
}

#[test]
fn cmake_finds_the_library_and_builds_an_rtlinux_source() {
    if missing(&["make", "cmake", "readelf"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let examples = examples().display().to_string();
    let lines = format!(
        "add_executable(wave {examples}/square_wave.c {examples}/fake_port.c)\n\
         target_link_libraries(wave AsmpRt::RTLinux)\n"
    );
    let build = cmake(dir.path(), "C", &lines);
    let needed = run(Command::new("readelf").arg("-d").arg(build.join("wave")));
    let name = format!("[libasmp_rt.so.{SERIES}]");
    assert!(needed.contains(&name), "it is found by its name, not where it was: {needed}");
    assert!(system().join("usr/lib").join(&name[1..name.len() - 1]).exists());
}

#[test]
fn cmake_refuses_a_version_with_another_abi() {
    if missing(&["make", "cmake"]) {
        return;
    }
    for (version, is_good) in [(SERIES, true), ("0.0", false), ("0.99", false), ("1", false)] {
        let dir = tempfile::tempdir().unwrap();
        let output = configure(dir.path(), "C", version, "").output().unwrap();
        assert_eq!(output.status.success(), is_good, "{version}");
    }
}

#[test]
fn cmake_refuses_a_program_whose_pointers_are_of_another_size() {
    if missing(&["make", "cmake"]) {
        return;
    }
    let own = size_of::<usize>();
    for (bytes, is_good) in [("", true), ("4", own == 4), ("8", own == 8)] {
        let dir = tempfile::tempdir().unwrap();
        // After `project`, which asks the compiler.
        let languages = format!("C)\nset(CMAKE_SIZEOF_VOID_P \"{bytes}\"");
        let output = configure(dir.path(), &languages, SERIES, "").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), is_good, "{bytes}: {said}");
        assert!(is_good || said.contains(&format!("(pointers of {own} bytes)")), "{said}");
    }
}

#[test]
fn libraries_go_where_the_system_has_them_and_lose_what_only_a_debugger_reads() {
    if missing(&["make", "cmake", "pkg-config"]) {
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let lib = install(elsewhere.path(), &["LIBDIR=/usr/lib/some-triplet"]).join("lib/some-triplet");
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_LIBDIR", lib.join("pkgconfig"));
    let said = run(pkg_config.args(["--variable=libdir", "asmp_rt"]));
    assert_eq!(said.trim(), "/usr/lib/some-triplet");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("main.c"), "#include <asmp_rt.h>\nint main(void) { return 0; }\n")
        .unwrap();
    let lines = "add_executable(plain main.c)\ntarget_link_libraries(plain AsmpRt::AsmpRt)\n";
    let mut configure = configure(dir.path(), "C", SERIES, lines);
    run(configure.arg(format!("-DAsmpRt_DIR={}", lib.join("cmake/AsmpRt").display())));
    run(Command::new("cmake").arg("--build").arg(dir.path().join("build")));
    let found = fs::read_to_string(dir.path().join("build/CMakeCache.txt")).unwrap();
    assert!(found.contains("some-triplet"), "{found}");
    let megabytes = |name: &str| fs::metadata(lib.join(name)).unwrap().len() >> 20;
    let sizes = (megabytes("libasmp_rt.so"), megabytes("libasmp_rt.a"));
    println!("libasmp_rt.so {} MB, libasmp_rt.a {} MB", sizes.0, sizes.1);
    assert!(sizes.1 < 26, "libasmp_rt.a has {} MB", sizes.1);
}

#[test]
fn cmake_without_c_offers_the_library_and_not_rtlinux_whose_main_is_in_c() {
    if missing(&["make", "cmake", "c++"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("main.cpp"),
        "#include <asmp_rt.h>\nint main() { return asmp_fifo_attach(\"a b\", 0, 0) != nullptr; }\n",
    )
    .unwrap();
    let lines = "if(TARGET AsmpRt::RTLinux)\n  message(FATAL_ERROR \"offered\")\nendif()\n\
                 add_executable(plain main.cpp)\ntarget_link_libraries(plain AsmpRt::AsmpRt)\n";
    let build = cmake(dir.path(), "CXX", lines);
    run(Command::new(build.join("plain")).env("LD_LIBRARY_PATH", system().join("usr/lib")));
}

/// Instructions of the whole program, as callgrind counts them.
fn instructions(program: &Path, how: &str, puts: u32) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .arg(how)
        .arg(puts.to_string());
    valgrind.env("LD_LIBRARY_PATH", system().join("usr/lib"));
    valgrind.env("ASMP_CHANNELS", program.with_file_name("channels"));
    let output = valgrind.output().expect("valgrind starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line = said.lines().find_map(|line| line.split_once("Collected : "));
    line.unwrap_or_else(|| panic!("{said}")).1.trim().parse().unwrap()
}

#[test]
fn a_put_of_64_bytes_from_c_costs_what_the_measurements_say() {
    if missing(&["make", "pkg-config", "valgrind"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("put_cost");
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg(root().join("crates/rt-c/tests/put_cost.c"));
    run(cc.args(pkg_config(&["--cflags", "--libs", "asmp_rt"])).arg("-o").arg(&program));
    for (how, most) in MOST_INSTRUCTIONS {
        let each =
            (instructions(&program, how, 20_000) - instructions(&program, how, 10_000)) / 10_000;
        println!("{how}: {each} instructions a put");
        assert!((55..=most).contains(&each), "{how}: {each} instructions a put");
    }
}
