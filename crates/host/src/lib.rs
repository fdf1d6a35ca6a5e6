// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Linux machine as `asmp` sees it. This is the only crate that opens /proc, /sys, cgroupfs or
//! tracefs. It holds no policy and prints nothing.
//!
//! Start at [`Facts`] (the machine as one value), [`Knob`] (one setting that can be changed and
//! restored) and [`Kernel`] (the trait that everything here goes through, so that tests replace the
//! machine).

pub mod architecture;
pub mod cgroup;
pub mod clock;
pub mod counters;
mod cpuset;
mod deadline;
mod error;
pub mod facts;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod irq;
pub mod irqbalance;
mod kernel;
pub mod knob;
pub mod limited;
mod mark;
pub mod masks;
pub mod names;
pub mod peer;
pub mod rttime;
pub mod sched;
pub mod sharing;
pub mod shown;
mod spin;
pub mod store;
pub mod systemd;
pub mod task;
pub mod topology;
pub mod tracefs;
pub mod uio;
pub mod watch;

/// Sets of CPUs, and the ways people write them.
pub use cpuset::{Cpu, CpuListError, CpuSet, CpuSpec, UpToLast};
/// What the kernel books SCHED_DEADLINE tasks against.
pub use deadline::{Bandwidth, DeadlineLimits, Server, servers as deadline_servers};
/// What can go wrong with one kernel file or task, and its kind.
pub use error::{Error, ErrorKind, Result, kind_of};
/// The machine as one plain value.
pub use facts::Facts;
/// The edge to the kernel: the trait, and the running kernel.
pub use kernel::{Kernel, Linux};
/// One kernel setting.
pub use knob::{Knob, Shape};
/// A scheduling policy with its parameters.
pub use sched::Schedule;
pub use spin::Spinner;

/// A machine of a few files, for tests of the readers.
#[cfg(test)]
fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Linux) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let linux = Linux::below(root.path());
    (root, linux)
}
