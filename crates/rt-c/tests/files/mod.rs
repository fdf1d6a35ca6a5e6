// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of a tree.

use std::path::{Path, PathBuf};

/// The files of a directory and of all below it, by their paths from there, in order.
pub fn below(directory: &Path) -> Vec<PathBuf> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(next) = directories.pop() {
        for path in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => directories.push(path),
                false => files.push(path.strip_prefix(directory).unwrap().to_owned()),
            }
        }
    }
    files.sort();
    files
}
