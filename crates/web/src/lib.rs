// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of `asmp web`: what partitions are like now, in a browser of this machine, which can
//! also make and end them.
//!
//! Problem:  root serves it, and any user of the machine, and any page that the browser has open,
//!           can connect to a port of 127.0.0.1.
//! Approach: a page of three files, which hold nothing of the machine, asks for everything else
//!           with a token that the user has from the terminal (`gate`). It is in no URL that is
//!           sent and in no cookie: browsers send cookies of 127.0.0.1 to each of its ports. One
//!           reader looks at the machine once a second, and only while somebody watches (`look`).
//!
//! [`Machine`] is what the page shows and asks for; the crate knows no partition.

mod app;
mod gate;
mod look;
mod machine;
mod reports;
mod serve;

pub use gate::Token;
pub use machine::{Change, Cpu, Event, Machine, Partition, Rates, Refused, Seen, Task};
pub use reports::Reports;
pub use serve::{Served, serve};
