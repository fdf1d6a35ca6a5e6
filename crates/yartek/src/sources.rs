// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C sources of the kernel, inside this library: an installed `asmp` needs no repository.

use std::path::{Path, PathBuf};
use std::{fs, io};

macro_rules! files {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../yartek/", $path)))),*]
    };
}

/// Path below `yartek`, and text.
const FILES: &[(&str, &str)] = files! {
    "include/yartek.h"
    "kernel/port.h"
    "kernel/dispatch.c"
    "kernel/edf.c"
    "kernel/lines.c"
    "kernel/memory.c"
    "kernel/spin.c"
    "modules/console.h"
    "modules/console.c"
    "modules/trace.h"
    "modules/trace.c"
    "modules/traced.h"
    "app/empty/main.c"
    "app/spin/main.c"
    "port/mcf5208evb/board.toml"
    "port/mcf5208evb/link.ld"
    "port/mcf5208evb/port.c"
    "port/mcf5208evb/start.S"
    "port/mps2-an385/board.toml"
    "port/mps2-an385/link.ld"
    "port/mps2-an385/port.c"
    "port/mps2-an385/start.S"
};

/// Writes all below this directory, which exists.
pub(crate) fn unpack(dir: &Path) -> io::Result<()> {
    for (path, text) in FILES {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

/// Files to compile, without those of a port and of an application.
pub(crate) fn kernel() -> impl Iterator<Item = PathBuf> {
    let of_kernel = |path: &str| path.starts_with("kernel/") || path.starts_with("modules/");
    let paths = FILES.iter().map(|(path, _)| *path);
    paths.filter(move |path| of_kernel(path) && path.ends_with(".c")).map(PathBuf::from)
}

/// The texts of all board.toml.
pub(crate) fn boards() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter(|(path, _)| path.ends_with("/board.toml")).map(|(_, text)| *text)
}

#[cfg(test)]
pub(crate) fn has_port(name: &str) -> bool {
    FILES.iter().any(|(path, _)| *path == format!("port/{name}/port.c"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn below(dir: &Path, root: &Path, all: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => below(&path, root, all),
                false => {
                    let path = path.strip_prefix(root).expect("below the root");
                    all.insert(path.display().to_string());
                }
            }
        }
    }

    #[test]
    fn every_file_of_the_kernel_is_inside() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../yartek");
        let mut there = BTreeSet::new();
        below(&root, &root, &mut there);
        there.retain(|path| !path.starts_with("proof/") && !path.starts_with("test/"));
        let inside: BTreeSet<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(there, inside);
    }
}
