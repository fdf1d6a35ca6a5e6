// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For real-time programs on a stock kernel: periodic threads, and schedulers inside one thread.
//!
//! Each real-time task runs in an address space of its own. It exchanges data with other processes
//! over the channels of crate `asmp-channel`.
//!
//! Set-up allocates, reads files and may block. What runs in the real-time section allocates
//! nothing and does not wait for time-sharing programs, unless it says so.

pub mod executive;
pub mod thread;
/// One CPU on virtual time, for tests (feature `virtual`).
#[cfg(feature = "virtual")]
pub mod virtual_cpu;

/// The programs of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/rt.md")]
struct Guide;
