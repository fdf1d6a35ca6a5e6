// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time threads.
//!
//! [`RealTime`] starts a thread with a policy, CPUs, locked memory and a partition. [`Periodic`]
//! and [`Releases`] release it periodically, without drift. [`Interrupts`] delivers interrupts as
//! messages to a handler thread. [`Watch`] finds page faults and blocking calls in a real-time
//! section.
//!
//! Instants are nanoseconds of CLOCK_MONOTONIC. Set-up allocates, reads files and may block; what
//! runs in the real-time section ([`Periodic::wait`], [`Releases::wait`], [`gethrtime`]) allocates
//! nothing.
//!
//! ```no_run
//! use asmp_rt::thread::RealTime;
//! use std::time::Duration;
//!
//! let axis = RealTime::fifo(80).cpu(3).partition("motion").start("axis", |me| {
//!     let mut releases = me.releases(Duration::from_millis(1), Duration::ZERO)?;
//!     while let Some(tick) = releases.wait() {
//!         if tick.overruns > 0 { /* that many releases had no job */ }
//!     }
//!     Ok::<(), asmp_rt::thread::BadPeriod>(())
//! })?;
//! # axis.delete().expect("no panic").expect("a period above zero");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod control;
mod interrupt;
mod memory;
mod periodic;
mod refusal;
mod start;
mod suspects;
mod watch;

pub use control::{Me, Releases, Task};
pub use interrupt::{Handler, Interrupt, InterruptError, Interrupts, Line, Reply};
/// For programs that create their threads themselves. [`RealTime`] does both.
pub use memory::{lock_memory, prefault_heap, prefault_stack};
pub use periodic::{BadPeriod, Grid, Periodic, Release, Tick};
pub use refusal::{AdmissionLimit, Confined, Limit, Refusal, Share};
pub use start::RealTime;
pub use suspects::{Stack, Suspect};
pub use watch::{Seen, Tally, Watch};

pub use asmp_host::{Cpu, CpuSet, Schedule};

/// Nanoseconds as the `timespec` that system calls take. Bounded, allocates nothing.
pub use asmp_host::clock::timespec;

/// Nanoseconds of CLOCK_MONOTONIC, the time base of this module. Bounded, allocates nothing.
/// No system call if the vDSO has the clock.
pub use asmp_host::clock::monotonic_ns as gethrtime;

use std::io;

/// Nanoseconds of any clock of the kernel (`clock_gettime(2)`), negative before its epoch. Bounded,
/// allocates nothing. A system call unless the vDSO has the clock. Errors: EINVAL (no such clock).
pub fn clock_gethrtime(clock: libc::clockid_t) -> io::Result<i64> {
    let mut now = timespec(0);
    // SAFETY: the kernel writes one timespec into `now`, which outlives the call.
    match unsafe { libc::clock_gettime(clock, &raw mut now) } {
        0 => Ok(now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_is_the_same_by_both_names() {
        let before = gethrtime();
        let between = clock_gethrtime(libc::CLOCK_MONOTONIC).unwrap() as u64;
        assert!(before <= between && between <= gethrtime());
    }

    #[test]
    fn a_clock_that_does_not_exist_is_an_error() {
        assert_eq!(clock_gethrtime(99_999).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
