// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of users, which may be of any length, or devices that never end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Declarations, task sets, graphs and descriptions of runs are no longer: a million bytes are some
/// 15,000 tasks.
pub const MOST_BYTES: u64 = 16 << 20;

/// What a file holds, if that is at most so many bytes. Not more than that is read, of a device
/// neither. Errors: [`ErrorKind::FileTooLarge`], which says the limit, and those of open(2) and
/// read(2).
pub fn read_at_most(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    read_if(path, most_bytes, |_| true)
}

/// The same of a regular file: see [`open_regular`].
pub fn read_regular_at_most(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    read_open(open_regular(path)?, most_bytes, |_| true)
}

/// A file of a directory that a program has written, to read. A FIFO in its place would never open,
/// and a device never end. Errors: [`ErrorKind::InvalidInput`] if it is no regular file, and those
/// of open(2).
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// As [`read_at_most`], of a file with a JSON object or list. Errors also:
/// [`ErrorKind::InvalidData`] if its first 4 KiB begin with something else; then no more is read.
pub fn read_json_at_most(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let is_json = |c: &u8| matches!(c, b'{' | b'[');
    read_if(path, most_bytes, |begin| begin.trim_ascii_start().first().is_none_or(is_json))
}

/// The same if its first 4 KiB are right.
fn read_if(path: &Path, most_bytes: u64, is_right: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    read_open(File::open(path)?, most_bytes, is_right)
}

/// The same of a file that is open.
pub(crate) fn read_open(
    file: File,
    most_bytes: u64,
    is_right: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    if file.metadata()?.len() > most_bytes {
        return Err(too_long(most_bytes));
    }
    let mut bytes = Vec::new();
    (&file).take(4096.min(most_bytes + 1)).read_to_end(&mut bytes)?;
    if !is_right(&bytes) {
        return Err(ErrorKind::InvalidData.into());
    }
    file.take(most_bytes + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most_bytes {
        true => Err(too_long(most_bytes)),
        false => Ok(bytes),
    }
}

pub(crate) fn too_long(most_bytes: u64) -> io::Error {
    let words = format!("too long: at most {} MiB are read", most_bytes >> 20);
    io::Error::new(ErrorKind::FileTooLarge, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_no_json_only_the_beginning_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        for (text, is_read) in
            [("{}", true), (" \n\t{", true), ("", true), ("[{}]", true), ("\u{feff}{}", false)]
        {
            std::fs::write(&file, text).unwrap();
            let read = read_json_at_most(&file, 1 << 20);
            let read = read.map_err(|error| error.kind());
            let expected = is_read.then(|| text.as_bytes().to_vec());
            assert_eq!(read, expected.ok_or(ErrorKind::InvalidData), "{text}");
        }
        let refused = read_json_at_most(Path::new("/dev/zero"), u64::MAX - 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_regular_at_most(&file, 4).unwrap(), b"text");
        assert_eq!(read_regular_at_most(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        for path in [&fifo, dir.path(), Path::new("/dev/zero")] {
            let refused = open_regular(path).unwrap_err();
            assert_eq!(refused.to_string(), "not a regular file", "{}", path.display());
        }
        let missing = open_regular(&dir.path().join("nothing")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_read_up_to_the_limit_and_refused_beyond_it_and_a_device_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let of_length = |bytes: u64| File::create(&file).unwrap().set_len(bytes).unwrap();
        let most = 1 << 20;
        of_length(most);
        assert_eq!(read_at_most(&file, most).unwrap().len() as u64, most);
        of_length(most + 1);
        for path in [&file, Path::new("/dev/zero")] {
            let refused = read_at_most(path, most).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::FileTooLarge);
            assert_eq!(refused.to_string(), "too long: at most 1 MiB are read");
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read_at_most(&file, most).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
