// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with one kernel file or task, and of which kind it is.

use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with one kernel file or task, with its path.
///
/// `Display` is a whole sentence with the kernel's reason, because most errors end inside another
/// sentence. `source()` gives the [`io::Error`] as well. Code that prints a chain of errors must
/// skip a source that the text before it already ends with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused the operation.
    #[error("{path}: cannot {operation}: {cause}", path = path.display())]
    Io {
        path: PathBuf,
        operation: &'static str,
        #[source]
        cause: io::Error,
    },

    /// The file holds something else than this kernel interface documents.
    #[error("{path}: expected {expected}, found {text:?}", path = path.display())]
    Content { path: PathBuf, text: String, expected: &'static str },

    /// The kernel accepted the write, but a reading shows another value (`got`).
    #[error("{path}: wrote {wanted:?}, but the kernel shows {got:?}", path = path.display())]
    ReadBack { path: PathBuf, wanted: String, got: String },
}

pub type Result<T> = std::result::Result<T, Error>;

/// Kinds of refusal that callers distinguish, without the error numbers of one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The task has ended (ESRCH).
    Ended,
    /// The file or device does not exist (ENOENT, ENODEV).
    Missing,
    /// The kernel forbids it (EPERM, EACCES).
    NotPermitted,
    /// Something still uses it (EBUSY).
    Busy,
    /// The kernel or file system does not implement it here (EOPNOTSUPP).
    Unsupported,
    /// The kernel rejects the value (EINVAL).
    Invalid,
    /// The hardware, or the driver for it, failed (EIO).
    Device,
    /// Any other reason.
    Other,
}

/// The kind of an error of a [`Kernel`](crate::Kernel) call.
pub fn kind_of(error: &io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(libc::ESRCH) => ErrorKind::Ended,
        Some(libc::ENOENT | libc::ENODEV) => ErrorKind::Missing,
        Some(libc::EPERM | libc::EACCES) => ErrorKind::NotPermitted,
        Some(libc::EBUSY) => ErrorKind::Busy,
        Some(libc::EOPNOTSUPP) => ErrorKind::Unsupported,
        Some(libc::EINVAL) => ErrorKind::Invalid,
        Some(libc::EIO) => ErrorKind::Device,
        None if error.kind() == io::ErrorKind::NotFound => ErrorKind::Missing,
        _ => ErrorKind::Other,
    }
}

impl Error {
    /// For `map_err`: an error of an operation ("read", "make the group") on `path`.
    pub fn io(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |cause| Self::Io { path, operation, cause }
    }

    /// An operation on a task that has ended meanwhile, as the kernel would report it.
    pub fn ended(path: &Path, operation: &'static str) -> Self {
        Self::io(path, operation)(io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// An operation on something that stayed in use, as the kernel would report it.
    pub fn busy(path: &Path, operation: &'static str) -> Self {
        Self::io(path, operation)(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// The file or task that it is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. } | Self::Content { path, .. } | Self::ReadBack { path, .. } => {
                path
            }
        }
    }

    /// The kind of the kernel's refusal; `Other` where the kernel refused nothing.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { cause, .. } => kind_of(cause),
            Self::Content { .. } | Self::ReadBack { .. } => ErrorKind::Other,
        }
    }

    /// The kernel's error number, where it gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { cause, .. } => cause.raw_os_error(),
            Self::Content { .. } | Self::ReadBack { .. } => None,
        }
    }

    /// The file or task is not there (any more).
    pub fn is_missing(&self) -> bool {
        matches!(self.kind(), ErrorKind::Missing | ErrorKind::Ended)
    }

    /// Something still uses it: a later try may succeed.
    pub fn is_busy(&self) -> bool {
        self.kind() == ErrorKind::Busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    fn refused(errno: i32) -> Error {
        Error::io(Path::new("/proc/7"), "move")(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn a_refusal_has_a_kind_whatever_number_the_architecture_gives_it() {
        for (errno, kind) in [
            (libc::ESRCH, ErrorKind::Ended),
            (libc::ENOENT, ErrorKind::Missing),
            (libc::ENODEV, ErrorKind::Missing),
            (libc::EPERM, ErrorKind::NotPermitted),
            (libc::EACCES, ErrorKind::NotPermitted),
            (libc::EBUSY, ErrorKind::Busy),
            (libc::EOPNOTSUPP, ErrorKind::Unsupported),
            (libc::EINVAL, ErrorKind::Invalid),
            (libc::EIO, ErrorKind::Device),
            (libc::ENOSPC, ErrorKind::Other),
        ] {
            assert_eq!(refused(errno).kind(), kind, "{errno}");
        }
        let read_back = Error::ReadBack { path: "/x".into(), wanted: "1".into(), got: "0".into() };
        assert_eq!(read_back.kind(), ErrorKind::Other);
        assert!(Error::busy(Path::new("/x"), "remove").is_busy());
        assert!(Error::ended(Path::new("/x"), "move").is_missing());
        assert_eq!(kind_of(&io::Error::from(io::ErrorKind::NotFound)), ErrorKind::Missing);
    }

    #[test]
    fn the_kernels_error_is_both_in_the_sentence_and_its_source() {
        let error = refused(libc::EBUSY);
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(source.raw_os_error(), Some(libc::EBUSY));
        assert!(error.to_string().ends_with(&source.to_string()), "{error}");
        assert_eq!(error.path(), Path::new("/proc/7"));
    }
}
