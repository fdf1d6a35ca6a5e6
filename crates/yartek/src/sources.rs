// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C sources of the kernel, inside this library: an installed `asmp` needs no repository.

use crate::board::Board;
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

/// Name and text of each file of a new project. They are those of `app/new`, without the line that
/// says our licence: the project is its maker's.
pub fn new_project(name: &str, board: &Board) -> Vec<(String, String)> {
    let filled = |text: &str| text.replace("@NAME@", name).replace("@BOARD@", &board.name);
    let files =
        FILES.iter().filter_map(|(path, text)| Some((path.strip_prefix("app/new/")?, text)));
    let own = files.map(|(file, text)| (file, text.split_once('\n').map_or("", |(_, text)| text)));
    own.map(|(file, text)| (filled(file), filled(text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_its_files_and_of_the_tests_those_of_boards_are_inside() {
        let mut ports: Vec<&str> =
            FILES.iter().filter_map(|(path, _)| path.strip_prefix("port/")).collect();
        let mut expected = Vec::new();
        for board in Board::all() {
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
        let boards = Board::all();
        let expected: Vec<_> =
            boards.iter().map(|board| format!("{}/board.h", board.name)).collect();
        assert_eq!(of_tests, expected);
        let tops = ["app", "include", "kernel", "modules", "port", "test"];
        for (path, text) in FILES {
            assert!(tops.contains(&path.split('/').next().unwrap_or_default()), "{path}");
            assert!(text.contains("SPDX-License-Identifier"), "{path}");
        }
    }
    #[test]
    fn a_new_project_has_five_files_and_differs_between_boards_by_their_names_alone() {
        let boards = Board::all();
        let of = |board| new_project("motor", board);
        for board in &boards {
            let files = of(board);
            let names: Vec<&str> = files.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, ["motor.toml", "README.md", "main.c", "tasks.c", "tasks.h"]);
            assert!(files[0].1.ends_with(&format!("[board]\nname = \"{}\"\n", board.name)));
            for ((_, text), (_, first)) in files.iter().zip(of(&boards[0])) {
                assert!(!text.contains(['@']) && !text.contains("SPDX"), "{text}");
                assert_eq!(text.replace(&board.name, "B"), first.replace(&boards[0].name, "B"));
            }
        }
    }
}
