// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mark on cgroups that asmp made: an extended attribute, which lives as long as the group does
//! and so survives the loss of /run/asmp. cgroup v2 keeps `user.*` attributes since Linux 5.7.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const NAME: &CStr = c"user.asmp";

/// Version of what the mark means.
const VALUE: &[u8] = b"1";

/// Marks a directory. Errors: those of setxattr(2).
pub(crate) fn set(dir: &Path) -> io::Result<()> {
    let dir = path(dir)?;
    // SAFETY: both names end with NUL, and the kernel reads VALUE.len() bytes of VALUE.
    let set = unsafe {
        libc::setxattr(dir.as_ptr(), NAME.as_ptr(), VALUE.as_ptr().cast(), VALUE.len(), 0)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has a directory the mark? One that cannot be read counts as having none.
pub(crate) fn is_set(dir: &Path) -> bool {
    let Ok(dir) = path(dir) else { return false };
    // SAFETY: both names end with NUL; with size 0 the kernel writes nothing.
    let size = unsafe { libc::getxattr(dir.as_ptr(), NAME.as_ptr(), std::ptr::null_mut(), 0) };
    size >= 0
}

fn path(dir: &Path) -> io::Result<CString> {
    CString::new(dir.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_directory_is_known_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_set(dir.path()));
        match set(dir.path()) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                println!("skipped: no user attributes in {}", dir.path().display());
            }
            other => {
                other.unwrap();
                assert!(is_set(dir.path()));
            }
        }
        assert!(set(&dir.path().join("none")).is_err());
        assert!(!is_set(&dir.path().join("none")));
    }
}
