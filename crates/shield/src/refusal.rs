// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel refused, in words.

use crate::plan::Action;
use asmp_host::task::task_path;
use asmp_host::{Error, ErrorKind};
use std::path::PathBuf;

/// A kernel thread that was to serve a partition and goes on as it is: its directory, and why.
pub fn of_policy(action: &Action, error: &Error) -> Option<(PathBuf, String)> {
    match action {
        Action::SetPolicy { thread, .. } if is_refusal(error) => {
            Some((task_path(thread.task.tid), reason(error)))
        }
        _ => None,
    }
}

/// The kernel refused and changed nothing. A read-back that shows another value is no refusal, nor
/// is a file system that takes no write.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Io { .. }) && error.errno() != Some(libc::EROFS)
}

/// The kernel's error number in the words of this field.
pub fn reason(error: &Error) -> String {
    match error.kind() {
        kind @ (ErrorKind::Device | ErrorKind::NotPermitted)
            if error.path().starts_with("/proc/irq") =>
        {
            let name = if kind == ErrorKind::Device { "EIO" } else { "EPERM" };
            format!("the kernel manages its affinity and refuses to change it ({name})")
        }
        ErrorKind::Missing | ErrorKind::Ended => "it is gone".to_owned(),
        _ => error.to_string(),
    }
}
