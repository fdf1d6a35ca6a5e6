// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists the kernel's sources, and compiles its core, a module and the robot for this machine, so
//! that tests call the very code of the boards.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const KERNEL: &str = "../../yartek";
/// What is for tests alone. Of `test` the directories of boards are inside, for `bench`. `host`, of
/// ports and of tests, is for a process and not for a board.
const PROOF: &str = "proof";
const TEST: &str = "test";
const HOST: &str = "host";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={KERNEL}");
    list_sources()?;
    #[cfg(feature = "core-c")]
    compile_core();
    Ok(())
}

/// Writes `sources.rs`: path below the kernel's directory, and text, of each file.
fn list_sources() -> io::Result<()> {
    let root = fs::canonicalize(KERNEL)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&root)? {
        let entry = entry?;
        if entry.file_name() != PROOF {
            below(&entry.path(), &mut files)?;
        }
    }
    let is_inside = |dir: &Path| dir != root.join(TEST) && !dir.ends_with(HOST);
    files.retain(|file| file.parent().is_some_and(is_inside));
    files.sort();
    let mut list = "&[\n".to_owned();
    for file in files {
        let path = file.strip_prefix(&root).map_err(io::Error::other)?;
        writeln!(list, "({path:?}, include_str!({file:?})),").map_err(io::Error::other)?;
    }
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("sources.rs"), list + "]\n")
}

fn below(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        below(&entry?.path(), files)?;
    }
    Ok(())
}

#[cfg(feature = "core-c")]
fn compile_core() {
    println!("cargo:rerun-if-env-changed=ASMP_CI");
    let robot = ["sine", "world", "map", "tasks"];
    cc::Build::new()
        .file(format!("{KERNEL}/kernel/edf.c"))
        .file(format!("{KERNEL}/modules/link.c"))
        .files(robot.map(|name| format!("{KERNEL}/app/robot/{name}.c")))
        .include(format!("{KERNEL}/include"))
        .std("c11")
        // Another compiler may know more warnings: that stops no user.
        .warnings_into_errors(env::var_os("ASMP_CI").is_some())
        .extra_warnings(true)
        .flag("-Wconversion")
        .compile("yartek");
}
