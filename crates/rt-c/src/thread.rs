// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RTLinux's threads on POSIX threads: periodic releases, suspension, priorities, interrupts.
//!
//! Every `pthread_t` of the process can have a period. Its state lies in a table of fixed size
//! ([`table`]), so nothing allocates after a thread's first call here. Functions return 0 or an
//! error number, as RTLinux's do.
//!
//! A wait and a suspension are cancellation points, so `pthread_cancel` may unwind frames here.
//! Such functions are `extern "C-unwind"` and own nothing while they sleep.

mod create;
/// cbindgen:ignore
mod glibc;
mod irq;
mod periodic;
mod priority;
mod signal;
mod soft;
mod table;

pub use glibc::{PTHREAD_CANCEL_DISABLE, pthread_setcancelstate, pthread_testcancel};

/// Nanoseconds. Instants are of CLOCK_MONOTONIC unless a function documents another clock.
#[allow(non_camel_case_types)]
pub type hrtime_t = std::ffi::c_longlong;
