//! `libasmp_rt`: the names of RTLinux for C programs on a stock kernel. One file a group of names; `include/asmp_rt.h`
//! is generated from them.

mod call;
mod fifo;
mod mbuff;
mod thread;
mod why;
