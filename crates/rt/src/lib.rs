//! For real-time programs on a stock kernel, each real-time task in its own address space.

pub mod thread;
