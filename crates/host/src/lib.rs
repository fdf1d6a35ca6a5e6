//! The Linux machine as `asmp` sees it: CPU lists, topology, cgroups, IRQs, tasks, scheduling, and one
//! [`Knob`] for every kernel file that can be set. This is the only crate that opens /proc, /sys, cgroupfs
//! or tracefs; it holds no policy and prints nothing.

pub mod cgroup;
pub mod clock;
pub mod counters;
pub mod cpuset;
pub mod deadline;
pub mod facts;
pub mod fake;
pub mod irq;
pub mod kernel;
pub mod knob;
pub mod record;
pub mod sched;
mod spin;
pub mod store;
pub mod systemd;
pub mod task;
pub mod trace;
pub mod uio;

pub use cpuset::{Cpu, CpuSet, CpuSpec};
pub use deadline::DeadlineLimits;
pub use facts::Facts;
pub use kernel::{Kernel, Linux};
pub use knob::{Knob, Shape};
pub use sched::Schedule;
pub use spin::Spinner;

use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with one kernel file, with its path.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: cannot {operation}: {cause}", path = path.display())]
    Io { path: PathBuf, operation: &'static str, cause: io::Error },

    #[error("{path}: {text:?} is not {expected}", path = path.display())]
    Content { path: PathBuf, text: String, expected: &'static str },

    /// The kernel took the write and then showed something else; its own words are in `got`.
    #[error("{path}: wrote {wanted:?}, the kernel says {got:?}", path = path.display())]
    ReadBack { path: PathBuf, wanted: String, got: String },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn io(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |cause| Self::Io { path, operation, cause }
    }

    /// The kernel's error number, where it gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { cause, .. } => cause.raw_os_error(),
            _ => None,
        }
    }

    /// The file or task is not there (any more).
    pub fn is_missing(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ESRCH | libc::ENODEV))
            || matches!(self, Self::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

/// A machine of a few files, for tests of what reads them.
#[cfg(test)]
fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Linux) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let linux = Linux::below(root.path());
    (root, linux)
}
