// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time-sharing ends of FIFOs and mbuffs for Python: the module `asmp_rt._native`. The package
//! `asmp_rt` (python/) adds asyncio. Doc comments here are Python docstrings; crate `asmp-channel`
//! documents the channels.
//!
//! Waiting releases the GIL, checks for signals every 100 ms, and holds no lock. So other threads
//! can use and close a channel meanwhile. Shared memory is never a Rust reference.

mod bytes;
mod errors;
mod fifo;
mod mbuff;
mod offer;
mod record;
mod slot;
mod wait;

use asmp_channel::{Pages, default_dir};
use pyo3::prelude::*;
use std::path::PathBuf;

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::fifo::{Fifo, FifoReader, FifoWriter};
    #[pymodule_export]
    use super::mbuff::Mbuff;
    #[pymodule_export]
    use super::offer::Offer;
    #[pymodule_export]
    use super::record::{Record, RecordWriter};
}

fn directory(dir: Option<PathBuf>) -> PathBuf {
    dir.unwrap_or_else(default_dir)
}

fn pages(huge: bool) -> Pages {
    if huge { Pages::Huge } else { Pages::Normal }
}
