// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libasmp_rt`: the functions of RTLinux for C programs on a stock kernel. Each group of functions
//! has a file. `include/asmp_rt.h` is generated from their documentation.

mod call;
mod fifo;
mod kept;
mod mbuff;
mod offer;
mod refuse;
mod slices;
mod thread;
mod why;
