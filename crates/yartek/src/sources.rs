// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C sources of the kernel, inside this library: an installed `asmp` needs no repository.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Path below `yartek`, and text. A port is there because its directory is: `build.rs`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

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

/// The text of a file, by its path below `yartek`. Empty: there is none.
pub(crate) fn text(path: &str) -> &'static str {
    FILES.iter().find(|(of_file, _)| *of_file == path).map_or("", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_its_files_and_of_the_tests_those_of_boards_are_inside() {
        let mut ports: Vec<&str> =
            FILES.iter().filter_map(|(path, _)| path.strip_prefix("port/")).collect();
        let mut expected = Vec::new();
        for board in crate::Board::all() {
            let files = ["board.toml", "link.ld", "port.c", "start.S"];
            expected.extend(files.map(|file| format!("{}/{file}", board.name)));
        }
        ports.sort_unstable();
        assert!(ports.len() >= 8);
        assert_eq!(ports, expected);
        let of_tests: Vec<String> = FILES
            .iter()
            .filter_map(|(path, _)| path.strip_prefix("test/").map(str::to_owned))
            .collect();
        let boards = crate::Board::all();
        let expected: Vec<_> =
            boards.iter().map(|board| format!("{}/board.h", board.name)).collect();
        assert_eq!(of_tests, expected);
        let tops = ["app", "include", "kernel", "modules", "port", "test"];
        for (path, text) in FILES {
            assert!(tops.contains(&path.split('/').next().unwrap_or_default()), "{path}");
            assert!(text.contains("SPDX-License-Identifier"), "{path}");
        }
    }
}
