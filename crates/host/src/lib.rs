//! The Linux machine as `asmp` sees it: CPU lists, topology, cgroups, IRQs, tasks, scheduling, and one
//! [`Knob`] for every kernel file that can be set. This is the only crate that opens /proc, /sys, cgroupfs
//! or tracefs; it holds no policy and prints nothing.

pub mod cgroup;
pub mod clock;
pub mod counters;
pub mod cpuset;
pub mod deadline;
mod error;
pub mod facts;
pub mod fake;
pub mod irq;
pub mod kernel;
pub mod knob;
pub mod sched;
mod spin;
pub mod store;
pub mod systemd;
pub mod task;
pub mod tracefs;
pub mod uio;

pub use cpuset::{Cpu, CpuSet, CpuSpec};
pub use deadline::DeadlineLimits;
pub use error::{Error, ErrorKind, Result, kind_of};
pub use facts::Facts;
pub use kernel::{Kernel, Linux};
pub use knob::{Knob, Shape};
pub use sched::Schedule;
pub use spin::Spinner;

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
