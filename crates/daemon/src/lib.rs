// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `asmpd` holds the partitions of a machine: it is told when somebody changes something, looks,
//! repairs what violates a partition, and names what it cannot repair.
//!
//! [`hold`] decides when to look and when to repair, and counts: pure, its clock is an argument.
//! [`serve`] does it: it waits for notices ([`asmp_host::watch`]), reads the machine and asks the
//! shield, as `asmp status` and `asmp repair` do, under the same lock. asmpd keeps nothing that it
//! cannot find again: to end it, or to kill it, changes no partition.
//!
//! [`balancer`] tells irqbalance what to leave alone. [`log`] keeps what asmpd did, and a second
//! thread answers other programs: [`board`], [`interface`], [`socket`].
//!
//! [`policy`] says which users may have which CPUs. What they ask for is [`granted`], and [`users`]
//! carries it out in the thread that repairs; [`came`] is what they are told. What leaves a user's
//! partition keeps no real-time policy: [`outside`].
//!
//! [`tree`] says which files there are, [`texts`] what stands in them, [`written`] what a write
//! means. [`files`] shows them with FUSE; [`open`] keeps what a reader has begun. [`counts`] are
//! what came on the CPUs, and metrics.

pub mod aside;
pub mod balancer;
pub mod board;
pub mod came;
pub mod counts;
pub mod files;
pub mod granted;
pub mod hold;
pub mod interface;
pub mod keeper;
pub mod log;
pub mod open;
pub mod outside;
pub mod policy;
pub mod seen;
pub mod serve;
pub mod socket;
pub mod texts;
pub mod tree;
pub mod users;
pub mod work;
pub mod written;
