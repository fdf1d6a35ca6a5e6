//! RTLinux's threads on POSIX threads: periodic releases, suspension, priorities, interrupts.
//!
//! Every `pthread_t` of the process can be given a period; its state lies in a table of fixed size ([`table`]), so nothing
//! allocates after a thread's first call here. Functions return 0 or an error number, as RTLinux's do.
//!
//! A wait and a suspension are cancellation points, so frames here may be unwound by `pthread_cancel`: such functions are
//! `extern "C-unwind"` and own nothing while they sleep.

mod create;
/// cbindgen:ignore
mod glibc;
mod irq;
mod periodic;
mod priority;
mod table;

/// Nanoseconds; instants are of CLOCK_MONOTONIC unless a function says otherwise.
#[allow(non_camel_case_types)]
pub type hrtime_t = std::ffi::c_longlong;
