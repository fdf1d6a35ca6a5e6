// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of `asmp web`: what partitions are like now, in a browser of this machine, which can
//! also make and end them.
//!
//! Problem:  root serves it, and any user of the machine, and any page that the browser has open,
//!           can connect to a port of 127.0.0.1.
//! Approach: the kernel says whose each connection is, and other users' are refused (`peer`). A
//!           page of three files, which hold nothing of the machine, asks for everything else with
//!           a token that the user has from the terminal (`gate`). It is in no URL that is sent,
//!           and in no cookie, which would be sent to other ports too. The address has a new name
//!           at each start (`place`). One reader looks at the machine once a second, and only while
//!           a page is shown (`look`).
//!
//! [`Machine`] is what the page shows and asks for; the crate knows no partition.

mod app;
mod gate;
mod look;
mod machine;
mod peer;
mod place;
mod reports;
mod serve;

pub use gate::Token;
pub use machine::{Change, Cpu, Event, Machine, Partition, Rates, Refused, Seen, Task};
pub use place::Place;
pub use reports::Reports;
pub use serve::{Served, serve};
