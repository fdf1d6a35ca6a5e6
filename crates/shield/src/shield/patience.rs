// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long changes wait.

use std::time::Duration;

/// How long a change waits, for each thing it may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For another writer.
    pub lock: Duration,
    /// For a CPU to stop its tick, where that is required.
    pub tick: Duration,
    /// For the files and groups that the kernel says are busy, all together. Undoing has as much
    /// again, and kworkers that have work before a change.
    pub busy: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            lock: Duration::from_secs(10),
            tick: Duration::from_secs(10),
            busy: Duration::from_secs(2),
        }
    }
}
