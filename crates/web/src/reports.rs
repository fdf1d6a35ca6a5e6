// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of `asmp measure report` in one directory.
//!
//! The directory is opened once, and its files below that descriptor, without following a link: who
//! may write there can show what is there, and nothing else of the machine.

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A report has 300 kB.
const MOST_BYTES: u64 = 16 << 20;
/// Names in the list.
const MOST: usize = 200;

#[derive(Debug)]
pub struct Reports(OwnedFd);

impl Reports {
    /// Errors: no such directory, or it may not be read.
    pub fn below(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, dir, flags, Mode::empty())?))
    }

    /// Names of its pages, sorted. Errors: `NotFound` once the directory was removed.
    pub fn names(&self) -> io::Result<Vec<String>> {
        if fstat(&self.0)?.st_nlink == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok().filter(|name| is_page(name));
            let is_file = matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown);
            names.extend(name.filter(|_| is_file).map(str::to_owned));
        }
        names.sort();
        names.truncate(MOST);
        Ok(names)
    }

    /// One of them. Errors: `NotFound`, or it is no regular file of at most 16 MiB.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        if !is_page(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // A FIFO in its place would never open.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.0, name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(io::ErrorKind::NotFound.into()),
            opened => opened?,
        };
        let found = fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut bytes = Vec::new();
        File::from(file).take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > MOST_BYTES {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(bytes),
        }
    }
}

fn is_page(name: &str) -> bool {
    name.ends_with(".html") && !name.starts_with('.') && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn its_pages_are_listed_and_read_and_nothing_else_is() {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("reports");
        std::fs::create_dir(&dir).unwrap();
        for (name, text) in [("b.html", "b"), ("a.html", "a"), (".c.html", "c"), ("d.txt", "d")] {
            std::fs::write(dir.join(name), text).unwrap();
        }
        std::fs::write(outer.path().join("e.html"), "e").unwrap();
        symlink("/etc/passwd", dir.join("f.html")).unwrap();
        std::fs::create_dir(dir.join("g.html")).unwrap();
        let fifo = FileType::Fifo;
        rustix::fs::mknodat(CWD, dir.join("h.html"), fifo, Mode::RUSR, 0).unwrap();
        File::create(dir.join("i.html")).unwrap().set_len(MOST_BYTES + 1).unwrap();
        let reports = Reports::below(&dir).unwrap();
        assert_eq!(reports.names().unwrap(), ["a.html", "b.html", "i.html"]);
        assert_eq!(reports.read("a.html").unwrap(), b"a");
        for name in [
            "../e.html",
            "/etc/passwd",
            ".c.html",
            "d.txt",
            "f.html",
            "g.html",
            "h.html",
            "",
            "..",
            "x.html",
        ] {
            let error = reports.read(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
        }
        assert_eq!(reports.read("i.html").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        // It stays that directory.
        std::fs::rename(&dir, outer.path().join("moved")).unwrap();
        assert_eq!(reports.read("b.html").unwrap(), b"b");
        assert!(Reports::below(&dir).is_err());
        std::fs::remove_dir_all(outer.path().join("moved")).unwrap();
        assert_eq!(reports.names().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
